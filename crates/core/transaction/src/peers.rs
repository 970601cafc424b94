//! Client transactions that nothing was heard of, by the peer they went to: lists in a fixed number of buckets, linked
//! through the transactions themselves, so that an ICMP hint finds its transactions without a look at all others.

use core::hash::BuildHasher as _;
use core::net::SocketAddr;

use strowger_foundation::map::{Seeded, seeded};

pub(crate) const NIL: u32 = u32::MAX;
/// A power of two.
const BUCKETS: usize = 1024;

/// A transaction's neighbours in its bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

impl Links {
    pub(crate) const NONE: Self = Self { prev: NIL, next: NIL };
}

/// The heads of the lists.
#[derive(Debug)]
pub(crate) struct Peers {
    heads: Box<[u32]>,
    hasher: Seeded,
}

impl Peers {
    pub(crate) fn new(seed: u64) -> Self {
        Self { heads: vec![NIL; BUCKETS].into_boxed_slice(), hasher: seeded(seed) }
    }

    pub(crate) fn head(&self, peer: SocketAddr) -> u32 {
        self.heads.get(self.bucket(peer)).copied().unwrap_or(NIL)
    }

    /// Makes `index` the head of its peer's list; the one before it is returned.
    pub(crate) fn set_head(&mut self, peer: SocketAddr, index: u32) -> u32 {
        let bucket = self.bucket(peer);
        self.heads.get_mut(bucket).map_or(NIL, |head| core::mem::replace(head, index))
    }

    pub(crate) fn heads(&self) -> impl Iterator<Item = u32> + '_ {
        self.heads.iter().copied().filter(|head| *head != NIL)
    }

    fn bucket(&self, peer: SocketAddr) -> usize {
        usize::try_from(self.hasher.hash_one(peer) & (BUCKETS as u64 - 1)).unwrap_or(0)
    }
}
