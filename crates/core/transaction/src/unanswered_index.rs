//! Index of client transactions without any response, by peer. The lists hang in a fixed number of buckets and are
//! linked through the outgoing requests, so that an ICMP error finds its transactions without a full scan.

use core::hash::BuildHasher as _;
use core::net::SocketAddr;

use strowger_foundation::map::{SeededState, seeded};

pub(crate) const NIL: u32 = u32::MAX;
/// Number of buckets, a power of two.
const BUCKETS: usize = 1024;

/// Links to the neighbours of an outgoing request in its bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub(crate) prev: u32,
    pub(crate) next: u32,
    pub(crate) list: PeerList,
}

/// Number of a list; several peers may share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerList(u16);

impl Links {
    pub(crate) const NONE: Self = Self { prev: NIL, next: NIL, list: PeerList(0) };
}

/// The heads of the lists.
#[derive(Debug)]
pub(crate) struct UnansweredIndex {
    heads: Box<[u32]>,
    hasher: SeededState,
}

impl UnansweredIndex {
    pub(crate) fn new(seed: u64) -> Self {
        Self { heads: vec![NIL; BUCKETS].into_boxed_slice(), hasher: seeded(seed) }
    }

    pub(crate) fn head(&self, list: PeerList) -> u32 {
        self.heads.get(usize::from(list.0)).copied().unwrap_or(NIL)
    }

    /// Makes `index` the head of a list and returns the previous head.
    pub(crate) fn set_head(&mut self, list: PeerList, index: u32) -> u32 {
        self.heads.get_mut(usize::from(list.0)).map_or(NIL, |head| core::mem::replace(head, index))
    }

    pub(crate) fn heads(&self) -> impl Iterator<Item = u32> + '_ {
        self.heads.iter().copied().filter(|head| *head != NIL)
    }

    /// Returns the list of a peer.
    pub(crate) fn list_of(&self, peer: SocketAddr) -> PeerList {
        PeerList(u16::try_from(self.hasher.hash_one(peer) & (BUCKETS as u64 - 1)).unwrap_or(0))
    }
}
