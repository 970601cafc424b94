//! Who has proven to be there, in memory that the programs of sockets read.

use std::io;
use std::sync::atomic::AtomicU64;

use strowger_overload::{PROVEN_WORDS, SourceMemory};

use crate::sys::map::SharedWords;

/// The memory of [`ProvenSources`](strowger_overload::ProvenSources), which programs in the kernel read while it changes.
#[derive(Debug)]
pub struct KnownSources {
    shared: SharedWords,
    seed: u64,
}

impl KnownSources {
    /// Knows nobody yet. The seed is that of the sources that are kept in it.
    ///
    /// # Errors
    /// When the kernel gives no memory that its programs can share: without `CAP_BPF`, or where it is older than 5.12.
    pub fn new(seed: u64) -> io::Result<Self> {
        Ok(Self { shared: SharedWords::new(2 * PROVEN_WORDS)?, seed })
    }

    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    /// By which number a program names this memory.
    pub(crate) fn number(&self) -> i32 {
        self.shared.number()
    }
}

impl SourceMemory for KnownSources {
    fn words(&self) -> &[AtomicU64] {
        self.shared.words()
    }
}
