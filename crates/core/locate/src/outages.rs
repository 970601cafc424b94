//! The peers that failed lately.

use core::hash::{BuildHasher as _, Hash};
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use strowger_foundation::Timestamp;
use strowger_foundation::map::{SeededMap, SeededState, seeded};

use crate::Hop;

/// Peers that can be out at the same time; others are tried as if nothing were known of them.
pub const MAX_OUTAGES: usize = 4_096;

/// How long a peer that failed is remembered beyond its time when nobody tries it: then nothing is known of it any more.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(3_600);

/// Bits of marks.
const FILTER_BITS: usize = MAX_OUTAGES;

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
    /// Until when the peer is avoided for having failed; what it answers may end that sooner.
    pub until: Timestamp,
    /// How it failed at last.
    pub cause: Cause,
    /// Until when calls take it for dead: an INVITE found it silent or unreachable, and it has said nothing since. What others
    /// find says nothing of calls: a gateway may drop each MESSAGE. Past where it has refused since; nothing where it never was.
    pub dead_until: Option<Timestamp>,
    /// What it has said itself of when it wants to be left alone, where it did. Only a later word of its own, or a call that began
    /// later and that it takes, changes that: neither silence nor what else it answers does.
    pub back_off: Option<BackOff>,
}

/// A peer's wish to be left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// When it said so.
    pub since: Timestamp,
    /// Until when.
    pub until: Timestamp,
}

/// Who found that a peer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetectedBy {
    /// An INVITE.
    Call,
    /// Any other request.
    Other,
}

/// What was learnt when a peer was found to have failed. Of all that find it so, one is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutageChange {
    /// Nothing new.
    Unchanged,
    /// What calls take for dead now had failed already, and that was told of.
    Dead,
    /// It fails; or it refused, and is dead now.
    Failed,
}

impl Outage {
    /// When the peer is tried again as any other, for whatever reason it is avoided.
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

    /// It has said something: nothing but its own wish keeps it away now.
    fn record_answer(&mut self, now: Timestamp) {
        self.until = self.until.min(now);
        self.dead_until = self.dead_until.map(|until| until.min(now));
        self.cause = Cause::Refused;
    }
}

/// The hops that failed lately, and until when they are avoided; shared by all shards.
#[derive(Debug)]
pub struct Outages {
    /// When the last of them is over, in nanoseconds, so that nobody takes the lock where nothing is out.
    latest_end: AtomicU64,
    /// For each hop that is known its [mark](Self::mark_of), so that nobody takes the lock for a hop that is not. Written under
    /// the lock.
    filter: [AtomicU64; FILTER_BITS / 64],
    hasher: SeededState,
    overflow: AtomicU64,
    known: Mutex<HopTable>,
    /// For sets of hops that are all dead, by a hash of all of them: when a call may look whether they still are.
    probes: Mutex<SeededMap<u64, Timestamp>>,
    /// Of whom it was told that all their hops are dead, by a hash, and when the last of those outages had begun.
    reported: Mutex<SeededMap<u64, Timestamp>>,
}

/// The hops that are known, and for each mark how many of them it stands for.
#[derive(Debug)]
struct HopTable {
    hops: SeededMap<Hop, Outage>,
    filter_counts: Vec<u16>,
}

impl Outages {
    /// None is out; `seed` is for the table.
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

    /// `hop` did not answer `finder`, or refused everybody (RFC 3263 §4.3): it is avoided for `for_`.
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
    /// `hop` answered `finder` 503 with a Retry-After, and is avoided for that time, whatever it said before: whoever is served by it
    /// meanwhile had come before.
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
        // A reader that does not see it yet tries the peer once more, which does no harm.
        self.latest_end.fetch_max(outage.ends().as_nanos(), Ordering::Relaxed);
        match old {
            None => OutageChange::Failed,
            // Once in an outage: who refuses and is silent in turn does not fill the log.
            Some(old) if old.cause == Cause::Refused && old.dead_until.is_none() && dead_until.is_some() => {
                OutageChange::Failed
            }
            Some(old) if !old.is_dead(now) && outage.is_dead(now) => OutageChange::Dead,
            Some(_) => OutageChange::Unchanged,
        }
    }

    /// Whether `hop` is to be avoided.
    #[must_use]
    pub fn is_out(&self, now: Timestamp, hop: &Hop) -> bool {
        self.outage_of(now, hop).is_some_and(|outage| now < outage.ends())
    }

    /// Until when `hop` has [said](Self::hold) that it wants to be left alone; `None` where it does not.
    #[must_use]
    pub fn back_off_until(&self, now: Timestamp, hop: &Hop) -> Option<Timestamp> {
        self.outage_of(now, hop).and_then(|outage| outage.back_off_at(now)).map(|held| held.until)
    }

    /// What is known of `hop` while anybody is out.
    fn outage_of(&self, now: Timestamp, hop: &Hop) -> Option<Outage> {
        if now.as_nanos() >= self.latest_end.load(Ordering::Relaxed) || !self.may_contain(hop) {
            return None;
        }
        self.lock().hops.get(hop).copied()
    }

    /// Whether a call may be sent to `hops`, one after the other. Where each of them is dead, one call in `every` may, and
    /// finds out whether that is still so; the others would only wait for nothing. A hop that has said 503 is there, and
    /// what it refuses is its own.
    pub fn admits(&self, now: Timestamp, hops: impl Iterator<Item = Hop> + Clone, every: Duration) -> bool {
        let is_dead = |hop| self.dead_since(now, &hop).is_some();
        if now.as_nanos() >= self.latest_end.load(Ordering::Relaxed) || !hops.clone().all(is_dead) {
            return true;
        }
        // In whatever order they are.
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

    /// Since when `hop` fails, where calls take it for dead now.
    #[must_use]
    pub fn dead_since(&self, now: Timestamp, hop: &Hop) -> Option<Timestamp> {
        self.outage_of(now, hop).filter(|outage| outage.is_dead(now)).map(|outage| outage.since)
    }

    /// Whether it is to be told that all hops of `whose` are dead, the last of them failing since `since`: it is told once,
    /// until one of them has answered and failed again.
    pub fn should_report(&self, whose: &impl Hash, since: Timestamp) -> bool {
        let whose = self.hasher.hash_one(whose);
        let mut told = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        // Names that no configuration has any more; who is told of twice then is told of in vain.
        if told.len() >= MAX_OUTAGES && !told.contains_key(&whose) {
            told.clear();
        }
        told.insert(whose, since) != Some(since)
    }

    /// `hop` has answered; what was known of it, where that is news. Where it is [held](Self::hold) it stays so.
    pub fn clear(&self, now: Timestamp, hop: &Hop) -> Option<Outage> {
        self.remove_if(now, hop, |_| true, |_| false)
    }

    /// As [`clear`](Self::clear), where `hop` has taken a call that had `begun` then: who takes what is new wants to be left alone no
    /// more.
    pub fn clear_by_call(&self, now: Timestamp, hop: &Hop, begun: Timestamp) -> Option<Outage> {
        self.remove_if(now, hop, |_| true, |held| held.since < begun)
    }

    /// As [`clear`](Self::clear), where `hop` was silent or unreachable: it has said something, though it may refuse yet.
    pub fn revive(&self, now: Timestamp, hop: &Hop) -> Option<Outage> {
        self.remove_if(now, hop, |outage| outage.cause != Cause::Refused, |_| false)
    }

    /// Forgets what is known of `hop` where that `may_go`, but for a wish of its own, unless that `is_over` too.
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

    /// Shows each peer that failed and has not answered since, in no order.
    pub fn for_each(&self, now: Timestamp, mut visit: impl FnMut(&Hop, &Outage)) {
        self.lock()
            .hops
            .iter()
            .filter(|(_, outage)| !outage.is_forgotten(now))
            .for_each(|(hop, outage)| visit(hop, outage));
    }

    /// How many are out at `now`.
    #[must_use]
    pub fn count(&self, now: Timestamp) -> usize {
        self.lock().hops.values().filter(|outage| now < outage.ends()).count()
    }

    /// How often a peer could not be marked since [`MAX_OUTAGES`] were.
    #[must_use]
    pub fn overflow(&self) -> u64 {
        self.overflow.load(Ordering::Relaxed)
    }

    /// Whether `hop` may be known. Who does not see it yet tries the peer once more, or lets it be avoided a little longer.
    fn may_contain(&self, hop: &Hop) -> bool {
        let (word, bit) = self.filter_bit(hop);
        self.filter.get(word).is_some_and(|marks| marks.load(Ordering::Relaxed) & bit != 0)
    }

    /// The word and the bit that stand for `hop`, and for others by chance.
    fn filter_bit(&self, hop: &Hop) -> (usize, u64) {
        let mark = self.filter_index(hop);
        (mark / 64, 1 << (mark % 64))
    }

    fn filter_index(&self, hop: &Hop) -> usize {
        usize::try_from(self.hasher.hash_one(hop) % FILTER_BITS as u64).unwrap_or(0)
    }

    /// One hop more, or less, has the mark of `hop`.
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

    /// Makes room for others.
    fn evict_expired(&self, now: Timestamp, known: &mut HopTable) {
        let past = known.hops.extract_if(|_, outage| now >= outage.ends());
        let past: Vec<Hop> = past.map(|(hop, _)| hop).collect();
        past.iter().for_each(|hop| self.count_in_filter(known, hop, -1));
    }

    fn lock(&self) -> MutexGuard<'_, HopTable> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
