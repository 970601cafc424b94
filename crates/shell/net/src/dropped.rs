//! Which messages were dropped lately, so that their retransmissions are dropped too: memory that the program of a socket and its
//! worker share.
//!
//! A client that hears nothing sends an INVITE seven times within 32 s. Were its fourth copy let through because there is more
//! room now, the call would be set up seven seconds late, and it would take the place of a call that begins now.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use strowger_overload::{Filter, FilteredKind};

use crate::sys::map::SharedWords;

/// What a retransmission is remembered for at least: the longest time between two copies of an INVITE is 16 s (RFC 3261
/// §17.1.1.2), and each copy is remembered anew.
pub const GENERATION: Duration = Duration::from_secs(17);

/// Bits of each of the two Bloom filters, as a power of two, and their words.
pub(crate) const BITS_LOG2: u32 = 25;
pub(crate) const GENERATION_WORDS: usize = 1 << (BITS_LOG2 - 6);
/// What a generation takes: then 3 messages in 100 pass for dropped ones. More are not remembered.
pub(crate) const MAX_REMEMBERED: u32 = 3_000_000;
/// The second bit of a message is where this factor leads.
pub(crate) const SECOND_FACTOR: u32 = 0x85EB_CA6B;

/// The words before the bits: how many positions of each kind pass, which generation is the younger one, what it holds, and how
/// many messages were dropped.
pub(crate) const PASSING: usize = 0;
pub(crate) const YOUNG: usize = 4;
pub(crate) const REMEMBERED: usize = 5;
pub(crate) const DROPPED: usize = 6;
pub(crate) const HEADER_WORDS: usize = 8;

/// The messages that were dropped in the last 17 to 34 s: two Bloom filters of 4 MiB, of which the older one is emptied.
#[derive(Debug)]
pub struct DroppedMessages {
    shared: SharedWords,
}

impl DroppedMessages {
    /// None yet, and all passes.
    ///
    /// # Errors
    /// When the kernel gives no memory that its programs can share: without `CAP_BPF`, or where it is older than 5.5.
    pub fn new() -> io::Result<Self> {
        let shared = SharedWords::new(HEADER_WORDS + 2 * GENERATION_WORDS)?;
        let dropped = Self { shared };
        dropped.let_pass(&Filter::OPEN);
        Ok(dropped)
    }

    /// What passes from now on.
    pub fn let_pass(&self, filter: &Filter) {
        for kind in FilteredKind::ALL {
            self.word(PASSING + kind as usize).store(filter.passing(kind).into(), Ordering::Relaxed);
        }
    }

    /// Remembers a message that the worker did not serve.
    pub fn insert(&self, fingerprint: u32) {
        if self.is_full() {
            return;
        }
        let mut is_new = false;
        for (word, bit) in places(fingerprint) {
            let word = self.word(self.young_words() + word);
            is_new |= word.load(Ordering::Relaxed) & bit == 0;
            word.fetch_or(bit, Ordering::Relaxed);
        }
        self.word(REMEMBERED).fetch_add(is_new.into(), Ordering::Relaxed);
    }

    /// Whether a message was dropped; seldom also of one that was not.
    #[must_use]
    pub fn contains(&self, fingerprint: u32) -> bool {
        let has = |generation: usize| {
            let begin = HEADER_WORDS + generation * GENERATION_WORDS;
            places(fingerprint).iter().all(|(word, bit)| self.word(begin + word).load(Ordering::Relaxed) & bit != 0)
        };
        has(0) || has(1)
    }

    /// Forgets what the older generation remembers, each [`GENERATION`]; whether anything is remembered still.
    pub fn begin_generation(&self) -> bool {
        let young = self.young();
        let old = HEADER_WORDS + (1 - young) * GENERATION_WORDS;
        let words = self.shared.words().get(old..).unwrap_or_default();
        words.iter().take(GENERATION_WORDS).for_each(|word| word.store(0, Ordering::Relaxed));
        self.word(YOUNG).store(1 - young as u64, Ordering::Relaxed);
        self.word(REMEMBERED).swap(0, Ordering::Relaxed) > 0
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
fn places(fingerprint: u32) -> [(usize, u64); 2] {
    let first = fingerprint & ((1 << BITS_LOG2) - 1);
    let second = fingerprint.wrapping_mul(SECOND_FACTOR) >> (32 - BITS_LOG2);
    [first, second].map(|place| (place as usize >> 6, 1 << (place & 63)))
}
