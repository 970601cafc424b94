//! Recently dropped messages, kept so that their retransmissions are dropped too. The workers share this memory with
//! the BPF programs of their sockets.
//!
//! A client without a response sends an INVITE seven times within 32 s. If its fourth copy were admitted because
//! there is room again, the call would be set up seven seconds late and would take capacity from a call that starts
//! now.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_overload::{FILTERED_KINDS, Filter, FilteredKind};

use crate::sys::map::SharedWords;

/// Minimum time for which a dropped message is remembered: as long as its client retransmits it (64·T1, RFC 3261
/// §17.1.1.2). A dropped copy does not extend it; otherwise a client that always sends the same bytes would be shut
/// out permanently.
pub(crate) const GENERATION: Duration = Duration::from_secs(32);

/// Bits of each of the two Bloom filters, as a power of two, and their size in words.
pub(crate) const BITS_LOG2: u32 = 27;
pub(crate) const GENERATION_WORDS: usize = 1 << (BITS_LOG2 - 6);
/// Maximum number of messages per generation. At this fill, the false-positive rate is 1 in 100.
pub(crate) const MAX_REMEMBERED: u32 = 7_200_000;
/// Factor that derives the second bit of a message.
pub(crate) const SECOND_FACTOR: u32 = 0x85EB_CA6B;

/// Maximum number of workers whose sockets can share one memory.
pub const MAX_WORKERS: usize = 64;

/// Header words before the bits: the index of the younger generation, the number of entries in it and in the older
/// one, the number of dropped messages, the start time of the younger generation, and for each worker the number of
/// passing positions of each kind.
pub(crate) const YOUNG_WORD: usize = 0;
pub(crate) const REMEMBERED_WORD: usize = 1;
pub(crate) const DROPPED_WORD: usize = 2;
const REMEMBERED_BEFORE_WORD: usize = 3;
const BEGAN_WORD: usize = 4;
const PASSING_WORD: usize = 8;
pub(crate) const HEADER_WORDS: usize = PASSING_WORD + MAX_WORKERS * FILTERED_KINDS;

/// Returns the word that holds the number of passing positions of a kind for a worker.
pub(crate) const fn passing_word(worker: usize, kind: FilteredKind) -> usize {
    PASSING_WORD + worker % MAX_WORKERS * FILTERED_KINDS + kind as usize
}

/// Messages dropped by any worker in the last 32 to 64 s: two Bloom filters of 16 MiB each. The older one is cleared
/// on rotation.
#[derive(Debug)]
pub struct DroppedMessages {
    shared: SharedWords,
}

impl DroppedMessages {
    /// Creates an empty memory; every message passes.
    ///
    /// # Errors
    /// When the kernel provides no memory that BPF programs can share: without `CAP_BPF`, or on kernels before 5.12.
    pub fn new(now: Timestamp) -> io::Result<Self> {
        let shared = SharedWords::new(HEADER_WORDS + 2 * GENERATION_WORDS)?;
        let dropped = Self { shared };
        (0..MAX_WORKERS).for_each(|worker| dropped.set_filter(worker, &Filter::OPEN));
        dropped.word(BEGAN_WORD).store(now.as_nanos(), Ordering::Relaxed);
        Ok(dropped)
    }

    /// Sets the filter of a worker.
    pub fn set_filter(&self, worker: usize, filter: &Filter) {
        for kind in FilteredKind::ALL {
            self.word(passing_word(worker, kind)).store(filter.passing(kind).into(), Ordering::Relaxed);
        }
    }

    /// Records a message that the worker did not serve.
    pub fn insert(&self, fingerprint: u32) {
        if self.is_full() || self.contains(fingerprint) {
            return;
        }
        for (word, bit) in bit_positions(fingerprint) {
            self.word(self.young_words() + word).fetch_or(bit, Ordering::Relaxed);
        }
        self.word(REMEMBERED_WORD).fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether a message was dropped; false positives are rare.
    #[must_use]
    pub fn contains(&self, fingerprint: u32) -> bool {
        let has = |generation: usize| {
            let begin = HEADER_WORDS + generation * GENERATION_WORDS;
            bit_positions(fingerprint)
                .iter()
                .all(|(word, bit)| self.word(begin + word).load(Ordering::Relaxed) & bit != 0)
        };
        has(0) || has(1)
    }

    /// Clears the older generation, once per generation.
    pub fn handle_timeout(&self, now: Timestamp) {
        let began = self.word(BEGAN_WORD).load(Ordering::Relaxed);
        if now < Timestamp::from_nanos(began) + GENERATION {
            return;
        }
        // Several workers may get here at once; one of them wins.
        if self.word(BEGAN_WORD).compare_exchange(began, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let young = self.young();
        let old = HEADER_WORDS + (1 - young) * GENERATION_WORDS;
        let words = self.shared.words().get(old..).unwrap_or_default();
        words.iter().take(GENERATION_WORDS).for_each(|word| word.store(0, Ordering::Relaxed));
        self.word(YOUNG_WORD).store(1 - young as u64, Ordering::Relaxed);
        // In this order, so that no reader sees both at zero.
        self.word(REMEMBERED_BEFORE_WORD).store(self.word(REMEMBERED_WORD).load(Ordering::Relaxed), Ordering::Release);
        self.word(REMEMBERED_WORD).store(0, Ordering::Release);
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) must be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Timestamp {
        Timestamp::from_nanos(self.word(BEGAN_WORD).load(Ordering::Relaxed)) + GENERATION
    }

    /// Returns whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        [REMEMBERED_WORD, REMEMBERED_BEFORE_WORD].iter().all(|word| self.word(*word).load(Ordering::Relaxed) == 0)
    }

    /// Returns the number of messages dropped by the kernel.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.word(DROPPED_WORD).load(Ordering::Relaxed)
    }

    /// Returns the descriptor by which a program refers to this memory.
    pub(crate) fn number(&self) -> i32 {
        self.shared.number()
    }

    fn is_full(&self) -> bool {
        self.word(REMEMBERED_WORD).load(Ordering::Relaxed) >= MAX_REMEMBERED.into()
    }

    /// Returns the index of the younger generation.
    fn young(&self) -> usize {
        usize::from(self.word(YOUNG_WORD).load(Ordering::Relaxed) != 0)
    }

    fn young_words(&self) -> usize {
        HEADER_WORDS + self.young() * GENERATION_WORDS
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        static NONE: AtomicU64 = AtomicU64::new(0);
        self.shared.words().get(index).unwrap_or(&NONE)
    }
}

/// Returns the bit positions of a message: word in the generation, and bit mask.
fn bit_positions(fingerprint: u32) -> [(usize, u64); 2] {
    let first = fingerprint & ((1 << BITS_LOG2) - 1);
    let second = fingerprint.wrapping_mul(SECOND_FACTOR) >> (32 - BITS_LOG2);
    [first, second].map(|place| (place as usize >> 6, 1 << (place & 63)))
}
