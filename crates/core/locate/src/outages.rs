//! The peers that failed lately.

use core::hash::BuildHasher as _;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use strowger_foundation::Timestamp;
use strowger_foundation::map::{Seeded, SeededMap, seeded};

use crate::Hop;

/// Peers that can be out at the same time; others are tried as if nothing were known of them.
pub const MAX_OUTAGES: usize = 4_096;

/// How long a peer that failed is remembered beyond its time when nobody tries it: then nothing is known of it any more.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(3_600);

/// Words of marks: with as many bits as [`MAX_OUTAGES`].
const MARK_WORDS: usize = MAX_OUTAGES / 64;

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
    /// For each hop that is known its [mark](Self::mark_of), so that nobody takes the lock for a hop that is not. Written under
    /// the lock.
    marks: [AtomicU64; MARK_WORDS],
    hasher: Seeded,
    overflow: AtomicU64,
    known: Mutex<SeededMap<Hop, Outage>>,
    /// For sets of hops that are all dead, by one of them: when a request may look whether they still are.
    probes: Mutex<SeededMap<Hop, Timestamp>>,
}

impl Outages {
    /// None is out; `seed` is for the table.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            all_over: AtomicU64::new(0),
            marks: [const { AtomicU64::new(0) }; MARK_WORDS],
            hasher: seeded(seed),
            overflow: AtomicU64::new(0),
            known: Mutex::new(SeededMap::with_hasher(seeded(seed))),
            probes: Mutex::new(SeededMap::with_hasher(seeded(seed))),
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
            self.mark_all(&known);
            if known.len() >= MAX_OUTAGES {
                self.overflow.fetch_add(1, Ordering::Relaxed);
                return false;
            }
        }
        let since = old.map_or(now, |old| old.since);
        known.insert(hop, Outage { since, until, cause });
        let (word, bit) = self.mark_of(&hop);
        if let Some(marks) = self.marks.get(word) {
            marks.fetch_or(bit, Ordering::Relaxed);
        }
        // A reader that does not see it yet tries the peer once more, which does no harm.
        self.all_over.fetch_max(until.as_nanos(), Ordering::Relaxed);
        old.is_none()
    }

    /// Whether `hop` is to be avoided.
    #[must_use]
    pub fn is_out(&self, now: Timestamp, hop: &Hop) -> bool {
        if now.as_nanos() >= self.all_over.load(Ordering::Relaxed) || !self.is_marked(hop) {
            return false;
        }
        self.lock().get(hop).is_some_and(|outage| now < outage.until)
    }

    /// Whether a request may be sent to `hops`, one after the other. Where each of them was silent or unreachable lately, one
    /// request in `every` may, and finds out whether that is still so; the others would only wait for nothing. A hop that
    /// has said 503 is there, and what it refuses is its own.
    pub fn admits(&self, now: Timestamp, hops: impl Iterator<Item = Hop> + Clone, every: Duration) -> bool {
        if now.as_nanos() >= self.all_over.load(Ordering::Relaxed) || !hops.clone().all(|hop| self.is_dead(now, &hop)) {
            return true;
        }
        let Some(first) = hops.min_by_key(|hop| (hop.address, hop.transport)) else { return true };
        let mut probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        if probes.len() >= MAX_OUTAGES {
            probes.retain(|_, next| now < *next);
        }
        if probes.get(&first).is_some_and(|next| now < *next) {
            return false;
        }
        if probes.len() < MAX_OUTAGES {
            probes.insert(first, now + every);
        }
        true
    }

    /// Whether `hop` was silent or unreachable, and is to be avoided.
    fn is_dead(&self, now: Timestamp, hop: &Hop) -> bool {
        let is_dead = |outage: &Outage| now < outage.until && outage.cause != Cause::Refused;
        self.is_marked(hop) && self.lock().get(hop).is_some_and(is_dead)
    }

    /// Whether `hop` has failed and not answered since, as far as that is remembered.
    #[must_use]
    pub fn is_known(&self, now: Timestamp, hop: &Hop) -> bool {
        self.is_marked(hop) && self.lock().get(hop).is_some_and(|outage| !outage.is_forgotten(now))
    }

    /// `hop` has answered; what was known of it, where that is news.
    pub fn clear(&self, now: Timestamp, hop: &Hop) -> Option<Outage> {
        if self.all_over.load(Ordering::Relaxed) == 0 || !self.is_marked(hop) {
            return None;
        }
        self.remove(now, hop, |_| true)
    }

    /// As [`clear`](Self::clear), where `hop` was silent or unreachable: it has said something, though it may refuse yet.
    pub fn revive(&self, now: Timestamp, hop: &Hop) -> Option<Outage> {
        if self.all_over.load(Ordering::Relaxed) == 0 || !self.is_marked(hop) {
            return None;
        }
        self.remove(now, hop, |outage| outage.cause != Cause::Refused)
    }

    fn remove(&self, now: Timestamp, hop: &Hop, may_go: impl FnOnce(&Outage) -> bool) -> Option<Outage> {
        let mut known = self.lock();
        known.get(hop).filter(|outage| may_go(outage))?;
        let outage = known.remove(hop)?;
        self.mark_all(&known);
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

    /// Whether `hop` may be known. Who does not see it yet tries the peer once more, or lets it be avoided a little longer.
    fn is_marked(&self, hop: &Hop) -> bool {
        let (word, bit) = self.mark_of(hop);
        self.marks.get(word).is_some_and(|marks| marks.load(Ordering::Relaxed) & bit != 0)
    }

    /// The word and the bit that stand for `hop`, and for others by chance.
    fn mark_of(&self, hop: &Hop) -> (usize, u64) {
        let hash = self.hasher.hash_one(hop);
        let word = usize::try_from((hash >> 6) % MARK_WORDS as u64).unwrap_or(0);
        (word, 1 << (hash & 63))
    }

    /// Marks the hops that are known, and no others.
    fn mark_all(&self, known: &SeededMap<Hop, Outage>) {
        let mut all = [0_u64; MARK_WORDS];
        for (word, bit) in known.keys().map(|hop| self.mark_of(hop)) {
            all.get_mut(word).into_iter().for_each(|marks| *marks |= bit);
        }
        self.marks.iter().zip(all).for_each(|(marks, all)| marks.store(all, Ordering::Relaxed));
    }

    fn lock(&self) -> MutexGuard<'_, SeededMap<Hop, Outage>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
