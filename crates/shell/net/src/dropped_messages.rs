//! Which messages were dropped lately, so that their retransmissions are dropped too: memory that the workers share with the
//! programs of their sockets.
//!
//! A client that hears nothing sends an INVITE seven times within 32 s. Were its fourth copy let through because there is more
//! room now, the call would be set up seven seconds late, and it would take the place of a call that begins now.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_overload::{FILTERED_KINDS, Filter, FilteredKind};

use crate::sys::map::SharedWords;

/// For how long a message is remembered at least: as long as its client sends it again (64·T1, RFC 3261 §17.1.1.2). A copy that is dropped
/// does not prolong it, or whoever always sends the same bytes would be shut out for good.
pub(crate) const GENERATION: Duration = Duration::from_secs(32);

/// Bits of each of the two Bloom filters, as a power of two, and their words.
pub(crate) const BITS_LOG2: u32 = 27;
pub(crate) const GENERATION_WORDS: usize = 1 << (BITS_LOG2 - 6);
/// What a generation remembers at most: then 1 message in 100 passes for a dropped one.
pub(crate) const MAX_REMEMBERED: u32 = 7_200_000;
/// The second bit of a message is where this factor leads.
pub(crate) const SECOND_FACTOR: u32 = 0x85EB_CA6B;

/// Workers whose sockets can follow one memory.
pub const MAX_WORKERS: usize = 64;

/// The words before the bits: which generation is the younger one, what it and the older one hold, how many messages were dropped,
/// when the younger one began, and for each worker how many positions of each kind pass.
pub(crate) const YOUNG: usize = 0;
pub(crate) const REMEMBERED: usize = 1;
pub(crate) const DROPPED: usize = 2;
const REMEMBERED_BEFORE: usize = 3;
const BEGAN: usize = 4;
const PASSING: usize = 8;
pub(crate) const HEADER_WORDS: usize = PASSING + MAX_WORKERS * FILTERED_KINDS;

/// The word that says how many positions of a kind pass to a worker.
pub(crate) const fn passing_word(worker: usize, kind: FilteredKind) -> usize {
    PASSING + worker % MAX_WORKERS * FILTERED_KINDS + kind as usize
}

/// The messages that were dropped in the last 32 to 64 s, whichever worker they came to: two Bloom filters of 16 MiB, of which the
/// older one is emptied.
#[derive(Debug)]
pub struct DroppedMessages {
    shared: SharedWords,
}

impl DroppedMessages {
    /// None yet, and all passes.
    ///
    /// # Errors
    /// When the kernel gives no memory that its programs can share: without `CAP_BPF`, or where it is older than 5.12.
    pub fn new(now: Timestamp) -> io::Result<Self> {
        let shared = SharedWords::new(HEADER_WORDS + 2 * GENERATION_WORDS)?;
        let dropped = Self { shared };
        (0..MAX_WORKERS).for_each(|worker| dropped.set_filter(worker, &Filter::OPEN));
        dropped.word(BEGAN).store(now.as_nanos(), Ordering::Relaxed);
        Ok(dropped)
    }

    /// What passes to a worker from now on.
    pub fn set_filter(&self, worker: usize, filter: &Filter) {
        for kind in FilteredKind::ALL {
            self.word(passing_word(worker, kind)).store(filter.passing(kind).into(), Ordering::Relaxed);
        }
    }

    /// Remembers a message that the worker did not serve.
    pub fn insert(&self, fingerprint: u32) {
        if self.is_full() || self.contains(fingerprint) {
            return;
        }
        for (word, bit) in bit_positions(fingerprint) {
            self.word(self.young_words() + word).fetch_or(bit, Ordering::Relaxed);
        }
        self.word(REMEMBERED).fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a message was dropped; seldom also of one that was not.
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

    /// Once a generation forgets what the older one remembers.
    pub fn handle_timeout(&self, now: Timestamp) {
        let began = self.word(BEGAN).load(Ordering::Relaxed);
        if now < Timestamp::from_nanos(began) + GENERATION {
            return;
        }
        // One of several workers that come at once.
        if self.word(BEGAN).compare_exchange(began, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let young = self.young();
        let old = HEADER_WORDS + (1 - young) * GENERATION_WORDS;
        let words = self.shared.words().get(old..).unwrap_or_default();
        words.iter().take(GENERATION_WORDS).for_each(|word| word.store(0, Ordering::Relaxed));
        self.word(YOUNG).store(1 - young as u64, Ordering::Relaxed);
        // In this order, so that nobody sees both at zero.
        self.word(REMEMBERED_BEFORE).store(self.word(REMEMBERED).load(Ordering::Relaxed), Ordering::Release);
        self.word(REMEMBERED).store(0, Ordering::Release);
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Timestamp {
        Timestamp::from_nanos(self.word(BEGAN).load(Ordering::Relaxed)) + GENERATION
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        [REMEMBERED, REMEMBERED_BEFORE].iter().all(|word| self.word(*word).load(Ordering::Relaxed) == 0)
    }

    /// How many messages the kernel has dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.word(DROPPED).load(Ordering::Relaxed)
    }

    /// By which number a program names this memory.
    pub(crate) fn number(&self) -> i32 {
        self.shared.number()
    }

    fn is_full(&self) -> bool {
        self.word(REMEMBERED).load(Ordering::Relaxed) >= MAX_REMEMBERED.into()
    }

    /// The index of the younger generation.
    fn young(&self) -> usize {
        usize::from(self.word(YOUNG).load(Ordering::Relaxed) != 0)
    }

    fn young_words(&self) -> usize {
        HEADER_WORDS + self.young() * GENERATION_WORDS
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        static NONE: AtomicU64 = AtomicU64::new(0);
        self.shared.words().get(index).unwrap_or(&NONE)
    }
}

/// Where the bits of a message are: words of a generation, and bits of them.
fn bit_positions(fingerprint: u32) -> [(usize, u64); 2] {
    let first = fingerprint & ((1 << BITS_LOG2) - 1);
    let second = fingerprint.wrapping_mul(SECOND_FACTOR) >> (32 - BITS_LOG2);
    [first, second].map(|place| (place as usize >> 6, 1 << (place & 63)))
}
