//! The peers that failed lately.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use strowger_foundation::Timestamp;
use strowger_foundation::map::{SeededMap, seeded};

use crate::Hop;

/// Peers that can be out at the same time; others are tried as if nothing were known of them.
pub const MAX_OUTAGES: usize = 4_096;

/// The hops that failed lately, and until when they are avoided; shared by all shards.
#[derive(Debug)]
pub struct Outages {
    /// When the last of them is over, in nanoseconds, so that nobody takes the lock where nothing is out.
    all_over: AtomicU64,
    overflow: AtomicU64,
    until: Mutex<SeededMap<Hop, Timestamp>>,
}

impl Outages {
    /// None is out; `seed` is for the table.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            all_over: AtomicU64::new(0),
            overflow: AtomicU64::new(0),
            until: Mutex::new(SeededMap::with_hasher(seeded(seed))),
        }
    }

    /// `hop` did not answer, or refused everybody (RFC 3263 §4.3): it is avoided for `for_`.
    pub fn mark(&self, now: Timestamp, hop: Hop, for_: Duration) {
        let end = now + for_;
        let mut until = self.lock();
        if until.len() >= MAX_OUTAGES && !until.contains_key(&hop) {
            until.retain(|_, end| now < *end);
            if until.len() >= MAX_OUTAGES {
                self.overflow.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        until.insert(hop, end);
        // A reader that does not see it yet tries the peer once more, which does no harm.
        self.all_over.fetch_max(end.as_nanos(), Ordering::Relaxed);
    }

    /// Whether `hop` is to be avoided.
    #[must_use]
    pub fn is_out(&self, now: Timestamp, hop: &Hop) -> bool {
        if now.as_nanos() >= self.all_over.load(Ordering::Relaxed) {
            return false;
        }
        self.lock().get(hop).is_some_and(|end| now < *end)
    }

    /// `hop` has answered.
    pub fn clear(&self, hop: &Hop) {
        if self.all_over.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut until = self.lock();
        if until.remove(hop).is_some() && until.is_empty() {
            self.all_over.store(0, Ordering::Relaxed);
        }
    }

    /// How many are out at `now`.
    #[must_use]
    pub fn count(&self, now: Timestamp) -> usize {
        self.lock().values().filter(|end| now < **end).count()
    }

    /// How often a peer could not be marked since [`MAX_OUTAGES`] were.
    #[must_use]
    pub fn overflow(&self) -> u64 {
        self.overflow.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, SeededMap<Hop, Timestamp>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
