//! The peers that failed lately.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use strowger_foundation::Timestamp;
use strowger_foundation::map::{SeededMap, seeded};

use crate::Hop;

/// Peers that can be out at the same time; others are tried as if nothing were known of them.
pub const MAX_OUTAGES: usize = 4_096;

/// How long a peer that failed is remembered beyond its time when nobody tries it: then nothing is known of it any more.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(3_600);

/// How a peer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It said nothing.
    Silent,
    /// The network says that it cannot be reached, or it takes no connection.
    Unreachable,
    /// It answered 503: it cannot serve anybody.
    Refused,
}

/// What is known of a peer that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When it began. Being tried again in vain does not begin it anew.
    pub since: Timestamp,
    /// Until when the peer is avoided; afterwards it is tried as any other.
    pub until: Timestamp,
    /// How it failed at last.
    pub cause: Cause,
}

impl Outage {
    const fn is_forgotten(&self, now: Timestamp) -> bool {
        now.saturating_since(self.until).as_nanos() > REMEMBERED_FOR.as_nanos()
    }
}

/// The hops that failed lately, and until when they are avoided; shared by all shards.
#[derive(Debug)]
pub struct Outages {
    /// When the last of them is over, in nanoseconds, so that nobody takes the lock where nothing is out.
    all_over: AtomicU64,
    overflow: AtomicU64,
    known: Mutex<SeededMap<Hop, Outage>>,
}

impl Outages {
    /// None is out; `seed` is for the table.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            all_over: AtomicU64::new(0),
            overflow: AtomicU64::new(0),
            known: Mutex::new(SeededMap::with_hasher(seeded(seed))),
        }
    }

    /// `hop` did not answer, or refused everybody (RFC 3263 §4.3): it is avoided for `for_`. Whether that is news: of all
    /// that find it so, one is told.
    pub fn mark(&self, now: Timestamp, hop: Hop, for_: Duration, cause: Cause) -> bool {
        let until = now + for_;
        let mut known = self.lock();
        let old = known.get(&hop).filter(|old| !old.is_forgotten(now)).copied();
        if known.len() >= MAX_OUTAGES && !known.contains_key(&hop) {
            known.retain(|_, outage| now < outage.until);
            if known.len() >= MAX_OUTAGES {
                self.overflow.fetch_add(1, Ordering::Relaxed);
                return false;
            }
        }
        let since = old.map_or(now, |old| old.since);
        known.insert(hop, Outage { since, until, cause });
        // A reader that does not see it yet tries the peer once more, which does no harm.
        self.all_over.fetch_max(until.as_nanos(), Ordering::Relaxed);
        old.is_none()
    }

    /// Whether `hop` is to be avoided.
    #[must_use]
    pub fn is_out(&self, now: Timestamp, hop: &Hop) -> bool {
        if now.as_nanos() >= self.all_over.load(Ordering::Relaxed) {
            return false;
        }
        self.lock().get(hop).is_some_and(|outage| now < outage.until)
    }

    /// `hop` has answered; what was known of it, where that is news.
    pub fn clear(&self, now: Timestamp, hop: &Hop) -> Option<Outage> {
        if self.all_over.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut known = self.lock();
        let outage = known.remove(hop)?;
        if known.is_empty() {
            self.all_over.store(0, Ordering::Relaxed);
        }
        Some(outage).filter(|outage| !outage.is_forgotten(now))
    }

    /// Shows each peer that failed and has not answered since, in no order.
    pub fn for_each(&self, now: Timestamp, mut visit: impl FnMut(&Hop, &Outage)) {
        self.lock().iter().filter(|(_, outage)| !outage.is_forgotten(now)).for_each(|(hop, outage)| visit(hop, outage));
    }

    /// How many are out at `now`.
    #[must_use]
    pub fn count(&self, now: Timestamp) -> usize {
        self.lock().values().filter(|outage| now < outage.until).count()
    }

    /// How often a peer could not be marked since [`MAX_OUTAGES`] were.
    #[must_use]
    pub fn overflow(&self) -> u64 {
        self.overflow.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, SeededMap<Hop, Outage>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
