//! Table of peers that failed recently.

use core::hash::{BuildHasher as _, Hash};
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use strowger_foundation::Timestamp;
use strowger_foundation::map::{SeededMap, SeededState, seeded};

use crate::Hop;

/// Maximum number of failed peers. Further ones are tried as usual.
pub const MAX_OUTAGES: usize = 4_096;

/// How long an expired outage is remembered if nobody tries the peer.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(3_600);

/// Bits of the filter.
const FILTER_BITS: usize = MAX_OUTAGES;

/// How a peer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It did not answer.
    Silent,
    /// The network reports it as unreachable, or it accepts no connection.
    Unreachable,
    /// It answered 503.
    Refused,
}

/// State of a failed peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Start of the outage. A failed retry does not restart it.
    pub since: Timestamp,
    /// Until when the peer is avoided because of the failure; a response may end that earlier.
    pub until: Timestamp,
    /// Cause of the last failure.
    pub cause: Cause,
    /// Until when calls consider the peer dead: an INVITE found it silent or unreachable and it has sent nothing
    /// since. Failures of other requests do not count for calls: a gateway may drop every MESSAGE. In the past if it
    /// has refused since; `None` if it never was dead.
    pub dead_until: Option<Timestamp>,
    /// Back-off the peer asked for itself. Only a later request of its own, or a later call that it accepts, changes
    /// it; neither silence nor other responses do.
    pub back_off: Option<BackOff>,
}

/// A peer's request not to be sent new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// Time of the request.
    pub since: Timestamp,
    /// End of the back-off.
    pub until: Timestamp,
}

/// What detected the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetectedBy {
    /// An INVITE.
    Call,
    /// Another request.
    Other,
}

/// What a detected failure changed. Only one of several detections reports the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutageChange {
    /// Nothing changed.
    Unchanged,
    /// Calls consider the peer dead from here on; its failure was reported before.
    Dead,
    /// The peer has failed, or it refused before and is dead.
    Failed,
}

impl Outage {
    /// Returns when the peer is no longer avoided for any reason.
    #[must_use]
    pub fn ends(&self) -> Timestamp {
        self.back_off.map_or(self.until, |held| held.until.max(self.until))
    }

    fn is_dead(&self, now: Timestamp) -> bool {
        self.dead_until.is_some_and(|until| now < until)
    }

    fn back_off_at(&self, now: Timestamp) -> Option<BackOff> {
        self.back_off.filter(|held| now < held.until)
    }

    fn is_forgotten(&self, now: Timestamp) -> bool {
        now.saturating_since(self.ends()) > REMEMBERED_FOR
    }

    /// Records that the peer has answered. Only its own back-off still applies.
    fn record_answer(&mut self, now: Timestamp) {
        self.until = self.until.min(now);
        self.dead_until = self.dead_until.map(|until| until.min(now));
        self.cause = Cause::Refused;
    }
}

/// Hops that failed recently, with the end of their avoidance; shared by all shards.
#[derive(Debug)]
pub struct Outages {
    /// Latest end of all outages, in nanoseconds. The lock is not taken if there is no outage.
    latest_end: AtomicU64,
    /// [Filter bits](Self::filter_bit) of the hops in the table. The lock is not taken for a hop whose bit is clear.
    /// Written under the lock.
    filter: [AtomicU64; FILTER_BITS / 64],
    hasher: SeededState,
    overflow: AtomicU64,
    known: Mutex<HopTable>,
    /// For sets of dead hops, by a hash of the set: when the next call may probe them.
    probes: Mutex<SeededMap<u64, Timestamp>>,
    /// Owners whose hops were reported dead, by hash, with the start of the latest outage.
    reported: Mutex<SeededMap<u64, Timestamp>>,
}

/// Hops in the table, and per filter bit how many of them it represents.
#[derive(Debug)]
struct HopTable {
    hops: SeededMap<Hop, Outage>,
    filter_counts: Vec<u16>,
}

impl Outages {
    /// Creates an empty table; `seed` is for its hash.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            latest_end: AtomicU64::new(0),
            filter: [const { AtomicU64::new(0) }; FILTER_BITS / 64],
            hasher: seeded(seed),
            overflow: AtomicU64::new(0),
            known: Mutex::new(HopTable {
                hops: SeededMap::with_hasher(seeded(seed)),
                filter_counts: vec![0; FILTER_BITS],
            }),
            probes: Mutex::new(SeededMap::with_hasher(seeded(seed))),
            reported: Mutex::new(SeededMap::with_hasher(seeded(seed))),
        }
    }

    /// Marks `hop` as failed: it did not answer `finder`, or refused everybody (RFC 3263 §4.3). It is avoided for
    /// `for_`.
    pub fn mark_failed(
        &self,
        now: Timestamp,
        hop: Hop,
        for_: Duration,
        cause: Cause,
        finder: DetectedBy,
    ) -> OutageChange {
        self.record(now, hop, for_, (cause, finder), None)
    }

    //= rfc3261#21.5.4
    /// Sets the back-off of `hop`, which answered `finder` 503 with a Retry-After. It replaces any earlier one.
    /// Responses to requests sent before do not end it.
    pub fn set_back_off(&self, now: Timestamp, hop: Hop, for_: Duration, finder: DetectedBy) -> OutageChange {
        let held = BackOff { since: now, until: now + for_ };
        self.record(now, hop, for_, (Cause::Refused, finder), Some(held))
    }

    fn record(
        &self,
        now: Timestamp,
        hop: Hop,
        for_: Duration,
        (cause, finder): (Cause, DetectedBy),
        held: Option<BackOff>,
    ) -> OutageChange {
        let mut known = self.lock();
        let old = known.hops.get(&hop).copied();
        if old.is_none() {
            if known.hops.len() >= MAX_OUTAGES {
                self.evict_expired(now, &mut known);
            }
            if known.hops.len() >= MAX_OUTAGES {
                self.overflow.fetch_add(1, Ordering::Relaxed);
                return OutageChange::Unchanged;
            }
            self.count_in_filter(&mut known, &hop, 1);
        }
        let old = old.filter(|old| !old.is_forgotten(now));
        let until = now + for_;
        let held = held.or(old.and_then(|old| old.back_off_at(now)));
        let was_dead_until = old.and_then(|old| old.dead_until);
        let dead_until = match (cause, finder) {
            (Cause::Refused, _) => was_dead_until.map(|until| until.min(now)),
            (_, DetectedBy::Call) => Some(until),
            (_, DetectedBy::Other) => was_dead_until,
        };
        let outage = Outage { since: old.map_or(now, |old| old.since), until, cause, dead_until, back_off: held };
        known.hops.insert(hop, outage);
        // A reader that does not see it yet tries the peer once more, which is harmless.
        self.latest_end.fetch_max(outage.ends().as_nanos(), Ordering::Relaxed);
        match old {
            None => OutageChange::Failed,
            // At most once per outage, so that a peer that alternates between refusal and silence does not fill the
            // log.
            Some(old) if old.cause == Cause::Refused && old.dead_until.is_none() && dead_until.is_some() => {
                OutageChange::Failed
            }
            Some(old) if !old.is_dead(now) && outage.is_dead(now) => OutageChange::Dead,
            Some(_) => OutageChange::Unchanged,
        }
    }

    /// Whether to avoid `hop`.
    #[must_use]
    pub fn is_out(&self, now: Timestamp, hop: &Hop) -> bool {
        self.outage_of(now, hop).is_some_and(|outage| now < outage.ends())
    }

    /// Returns until when `hop` has [asked for a back-off](Self::set_back_off), if it has.
    #[must_use]
    pub fn back_off_until(&self, now: Timestamp, hop: &Hop) -> Option<Timestamp> {
        self.outage_of(now, hop).and_then(|outage| outage.back_off_at(now)).map(|held| held.until)
    }

    /// Returns the outage of `hop`, unless all outages are over.
    fn outage_of(&self, now: Timestamp, hop: &Hop) -> Option<Outage> {
        if now.as_nanos() >= self.latest_end.load(Ordering::Relaxed) || !self.may_contain(hop) {
            return None;
        }
        self.lock().hops.get(hop).copied()
    }

    /// Whether a call may be sent to `hops` in turn. If all of them are dead, one call per `every` may, as a probe;
    /// the others would only wait. A hop that answered 503 is not dead and decides itself what to refuse.
    pub fn admits(&self, now: Timestamp, hops: impl Iterator<Item = Hop> + Clone, every: Duration) -> bool {
        let is_dead = |hop| self.dead_since(now, &hop).is_some();
        if now.as_nanos() >= self.latest_end.load(Ordering::Relaxed) || !hops.clone().all(is_dead) {
            return true;
        }
        // Independent of their order.
        let set = hops.fold(0_u64, |sum, hop| sum.wrapping_add(self.hasher.hash_one(hop)));
        let mut probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        if probes.get(&set).is_some_and(|next| now < *next) {
            return false;
        }
        if probes.len() >= MAX_OUTAGES {
            probes.retain(|_, next| now < *next);
        }
        if probes.len() < MAX_OUTAGES {
            probes.insert(set, now + every);
        }
        true
    }

    /// Returns since when `hop` has failed, if calls consider it dead.
    #[must_use]
    pub fn dead_since(&self, now: Timestamp, hop: &Hop) -> Option<Timestamp> {
        self.outage_of(now, hop).filter(|outage| outage.is_dead(now)).map(|outage| outage.since)
    }

    /// Whether to report that all hops of `whose` are dead, the last since `since`. It is reported once until one of
    /// them has answered and failed again.
    pub fn should_report(&self, whose: &impl Hash, since: Timestamp) -> bool {
        let whose = self.hasher.hash_one(whose);
        let mut told = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        // Entries of names that are no longer configured. Clearing them at worst repeats a report.
        if told.len() >= MAX_OUTAGES && !told.contains_key(&whose) {
            told.clear();
        }
        told.insert(whose, since) != Some(since)
    }

    /// Handles an answer of `hop` and returns its outage if that changed. A [back-off](Self::set_back_off) remains.
    pub fn clear(&self, now: Timestamp, hop: &Hop) -> Option<Outage> {
        self.remove_if(now, hop, |_| true, |_| false)
    }

    /// Like [`clear`](Self::clear), for a call begun at `begun` that `hop` has accepted. Accepting a newer call also
    /// ends its back-off.
    pub fn clear_by_call(&self, now: Timestamp, hop: &Hop, begun: Timestamp) -> Option<Outage> {
        self.remove_if(now, hop, |_| true, |held| held.since < begun)
    }

    /// Like [`clear`](Self::clear), but only if `hop` was silent or unreachable: it has answered but may still
    /// refuse.
    pub fn revive(&self, now: Timestamp, hop: &Hop) -> Option<Outage> {
        self.remove_if(now, hop, |outage| outage.cause != Cause::Refused, |_| false)
    }

    /// Removes the outage of `hop` if `may_go`. Keeps its own back-off unless that `is_over`.
    fn remove_if(
        &self,
        now: Timestamp,
        hop: &Hop,
        may_go: impl FnOnce(&Outage) -> bool,
        is_over: impl FnOnce(BackOff) -> bool,
    ) -> Option<Outage> {
        if self.latest_end.load(Ordering::Relaxed) == 0 || !self.may_contain(hop) {
            return None;
        }
        let mut known = self.lock();
        let outage = known.hops.get_mut(hop).filter(|outage| may_go(outage))?;
        if outage.back_off_at(now).is_some_and(|held| !is_over(held)) {
            outage.record_answer(now);
            return None;
        }
        let outage = known.hops.remove(hop)?;
        self.count_in_filter(&mut known, hop, -1);
        if known.hops.is_empty() {
            self.latest_end.store(0, Ordering::Relaxed);
        }
        Some(outage).filter(|outage| !outage.is_forgotten(now))
    }

    /// Calls `visit` for each peer that failed and has not answered since, in no particular order.
    pub fn for_each(&self, now: Timestamp, mut visit: impl FnMut(&Hop, &Outage)) {
        self.lock()
            .hops
            .iter()
            .filter(|(_, outage)| !outage.is_forgotten(now))
            .for_each(|(hop, outage)| visit(hop, outage));
    }

    /// Returns the number of failed peers at `now`.
    #[must_use]
    pub fn count(&self, now: Timestamp) -> usize {
        self.lock().hops.values().filter(|outage| now < outage.ends()).count()
    }

    /// Returns how often a peer could not be marked because [`MAX_OUTAGES`] had been reached.
    #[must_use]
    pub fn overflow(&self) -> u64 {
        self.overflow.load(Ordering::Relaxed)
    }

    /// Whether the table may contain `hop`. A reader with a stale view tries the peer once more, or avoids it a
    /// little longer.
    fn may_contain(&self, hop: &Hop) -> bool {
        let (word, bit) = self.filter_bit(hop);
        self.filter.get(word).is_some_and(|marks| marks.load(Ordering::Relaxed) & bit != 0)
    }

    /// Returns the word and the bit of `hop`, which other hops may share.
    fn filter_bit(&self, hop: &Hop) -> (usize, u64) {
        let mark = self.filter_index(hop);
        (mark / 64, 1 << (mark % 64))
    }

    fn filter_index(&self, hop: &Hop) -> usize {
        usize::try_from(self.hasher.hash_one(hop) % FILTER_BITS as u64).unwrap_or(0)
    }

    /// Adds `change` to the count of the filter bit of `hop`.
    fn count_in_filter(&self, known: &mut HopTable, hop: &Hop, change: i16) {
        let Some(count) = known.filter_counts.get_mut(self.filter_index(hop)) else { return };
        *count = count.saturating_add_signed(change);
        let (word, bit) = self.filter_bit(hop);
        let Some(marks) = self.filter.get(word) else { return };
        if *count == 0 {
            marks.fetch_and(!bit, Ordering::Relaxed);
        } else {
            marks.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Evicts expired outages to make room.
    fn evict_expired(&self, now: Timestamp, known: &mut HopTable) {
        let past = known.hops.extract_if(|_, outage| now >= outage.ends());
        let past: Vec<Hop> = past.map(|(hop, _)| hop).collect();
        past.iter().for_each(|hop| self.count_in_filter(known, hop, -1));
    }

    fn lock(&self) -> MutexGuard<'_, HopTable> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
