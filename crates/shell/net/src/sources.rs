//! Proven sources in memory shared with the sockets' BPF programs.

use std::io;
use std::sync::atomic::AtomicU64;

use strowger_overload::{PROVEN_WORDS, SourceMemory};

use crate::sys::map::SharedWords;

/// Storage of [`ProvenSources`](strowger_overload::ProvenSources) that kernel programs read while it changes.
#[derive(Debug)]
pub struct KnownSources {
    shared: SharedWords,
    seed: u64,
}

impl KnownSources {
    /// Creates an empty table. The seed must be that of the sources stored in it.
    ///
    /// # Errors
    /// When the kernel provides no memory that BPF programs can share: without `CAP_BPF`, or on kernels before 5.12.
    pub fn new(seed: u64) -> io::Result<Self> {
        Ok(Self { shared: SharedWords::new(2 * PROVEN_WORDS)?, seed })
    }

    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the descriptor by which a program refers to this memory.
    pub(crate) fn number(&self) -> i32 {
        self.shared.number()
    }
}

impl SourceMemory for KnownSources {
    fn words(&self) -> &[AtomicU64] {
        self.shared.words()
    }
}
