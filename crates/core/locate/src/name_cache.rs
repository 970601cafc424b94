//! The names that are known: one cache for all shards.

use core::hash::BuildHasher;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use strowger_foundation::Timestamp;
use strowger_foundation::map::{SeededState, seeded};

use crate::{CandidateList, LocateError, LocateQuery, LocateResult};

/// Names that are kept at most.
pub const MAX_NAMES: usize = 65_536;

/// Parts of the cache, each with a lock of its own.
const STRIPES: usize = 16;

/// Names of one stripe.
const MAX_STRIPE: usize = MAX_NAMES / STRIPES;

/// Names that are compared when one of them has to go.
const EVICTION_SAMPLE: usize = 16;

/// How long a DNS that did not answer is left alone about a name, and how long the one who was told to ask again is given.
///
/// RFC 8767 §5 recommends at least 30 s between attempts while stale data are at hand; calls that have none cannot wait so long.
pub const RETRY_AFTER: Duration = Duration::from_secs(5);

/// What is kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePolicy {
    /// Off: every look-up is [`Lookup::Unknown`].
    pub enabled: bool,
    /// Answers are fresh for so long at least, whatever their TTL.
    pub min_ttl: Duration,
    /// And for so long at most.
    pub max_ttl: Duration,
    /// That there is no such name is believed for so long at most (RFC 2308 §5).
    pub negative_ttl: Duration,
    /// How long after its TTL an answer may still be used (RFC 8767); zero: not at all.
    pub serve_stale: Duration,
}

impl Default for CachePolicy {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(86_400);
        Self {
            enabled: true,
            min_ttl: Duration::from_secs(1),
            max_ttl: DAY,
            negative_ttl: Duration::from_secs(300),
            serve_stale: DAY,
        }
    }
}

/// What the cache says to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Use it.
    Fresh(LocateResult),
    /// Use it, and ask again meanwhile. Only one caller is told so every [`RETRY_AFTER`]; to the others it is `Known`.
    Stale(LocateResult),
    /// Ask.
    Miss,
}

/// What has happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameCounts {
    /// Names in the cache, expired ones among them until their place is needed.
    pub names: u64,
    /// Look-ups that were answered.
    pub hits: u64,
    /// Of these: with an answer whose TTL was over.
    pub stale: u64,
    /// Look-ups that were not answered.
    pub misses: u64,
    /// Names that had to go for others although they could still have been used.
    pub evicted: u64,
}

/// The cache of answers by question, for all shards; what is kept in it is decided by a [`CachePolicy`].
#[derive(Debug)]
pub struct NameCache {
    policy: CachePolicy,
    hasher: SeededState,
    stripes: [Mutex<Stripe>; STRIPES],
}

impl NameCache {
    /// An empty cache; `seed` keeps others from choosing names that collide.
    #[must_use]
    pub fn new(policy: CachePolicy, seed: u64) -> Self {
        Self { policy, hasher: seeded(seed), stripes: core::array::from_fn(|_| Mutex::default()) }
    }

    /// What is known about `question` at `now`. Does not allocate.
    #[must_use]
    pub fn lookup(&self, now: Timestamp, question: &LocateQuery) -> Lookup {
        let Some((mut stripe, hash)) = self.stripe_of(question) else {
            return Lookup::Miss;
        };
        if !self.policy.enabled {
            stripe.counts.misses += 1;
            return Lookup::Miss;
        }
        stripe.lookup(now, question, hash)
    }

    /// Where `question` leads, as far as that is known; for who only wants to know, and asks nobody.
    #[must_use]
    pub fn peek(&self, now: Timestamp, question: &LocateQuery) -> Option<Arc<CandidateList>> {
        let (stripe, hash) = self.stripe_of(question)?;
        let slot = stripe.slots.get(stripe.find(question, hash)?)?;
        slot.answer.clone().ok().filter(|_| now < slot.usable_until)
    }

    /// Takes what the DNS said to `question`: `answer`, which may be kept for `ttl`.
    ///
    /// That there was no answer is kept for [`RETRY_AFTER`], and never in the place of one that can still be used.
    pub fn insert(&self, now: Timestamp, question: &LocateQuery, answer: LocateResult, ttl: Duration) {
        // What is no name has no answer that would be worth its bytes.
        if !self.policy.enabled || !question.is_valid_name() {
            return;
        }
        let Some((mut stripe, hash)) = self.stripe_of(question) else {
            return;
        };
        let known = stripe.find(question, hash);
        if answer == Err(LocateError::NoAnswer)
            && let Some(slot) = known.and_then(|index| stripe.slots.get_mut(index))
            && now < slot.usable_until
        {
            slot.retry_at = now + RETRY_AFTER;
            return;
        }
        let slot = self.slot(now, question, hash, answer, ttl);
        match known.and_then(|index| stripe.slots.get_mut(index)) {
            Some(old) => *old = Slot { used: old.used, ..slot },
            None => stripe.add(now, slot),
        }
    }

    /// Forgets all names.
    pub fn clear(&self) {
        for stripe in &self.stripes {
            let mut stripe = lock(stripe);
            stripe.index.clear();
            stripe.slots.clear();
            stripe.hand = 0;
        }
    }

    /// What has happened since the start.
    #[must_use]
    pub fn counts(&self) -> NameCounts {
        let mut sum = NameCounts::default();
        for stripe in &self.stripes {
            let stripe = lock(stripe);
            let NameCounts { hits: known, stale, misses: unknown, evicted, .. } = stripe.counts;
            sum.names += u64::try_from(stripe.slots.len()).unwrap_or(u64::MAX);
            sum.hits += known;
            sum.stale += stale;
            sum.misses += unknown;
            sum.evicted += evicted;
        }
        sum
    }

    /// An answer with its times.
    fn slot(&self, now: Timestamp, question: &LocateQuery, hash: u64, answer: LocateResult, ttl: Duration) -> Slot {
        let CachePolicy { min_ttl, max_ttl, negative_ttl, serve_stale, .. } = self.policy;
        let (fresh, stale) = match answer {
            // A TTL of 0 is for the transaction in progress only (RFC 1035 §3.2.1), so it is never stale.
            Ok(_) if ttl.is_zero() => (min_ttl, Duration::ZERO),
            Ok(_) => (ttl.max(min_ttl).min(max_ttl.max(min_ttl)), serve_stale),
            Err(LocateError::NoSuchName) => (ttl.min(negative_ttl).max(min_ttl), Duration::ZERO),
            Err(LocateError::NoAnswer) => (RETRY_AFTER, Duration::ZERO),
        };
        let fresh_until = now + fresh;
        Slot {
            question: question.clone(),
            hash,
            answer,
            fresh_until,
            usable_until: fresh_until + stale,
            retry_at: fresh_until,
            used: false,
        }
    }

    fn stripe_of(&self, question: &LocateQuery) -> Option<(MutexGuard<'_, Stripe>, u64)> {
        let hash = self.hasher.hash_one(question);
        // The table of the stripe uses the highest and the lowest bits.
        let stripe = usize::try_from(hash >> 32).unwrap_or(0) % STRIPES;
        self.stripes.get(stripe).map(|stripe| (lock(stripe), hash))
    }
}

fn lock(stripe: &Mutex<Stripe>) -> MutexGuard<'_, Stripe> {
    // A stripe is whole between any two of its statements that could panic.
    stripe.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Stripe {
    /// Places in `slots`.
    index: HashTable<usize>,
    slots: Vec<Slot>,
    /// The slot that is looked at next when one has to go.
    hand: usize,
    counts: NameCounts,
}

#[derive(Debug)]
struct Slot {
    question: LocateQuery,
    hash: u64,
    answer: LocateResult,
    fresh_until: Timestamp,
    usable_until: Timestamp,
    /// Not before is somebody told to ask again; counts only once the answer is stale.
    retry_at: Timestamp,
    /// It was looked up since the hand passed.
    used: bool,
}

impl Stripe {
    fn lookup(&mut self, now: Timestamp, question: &LocateQuery, hash: u64) -> Lookup {
        let found = self.find(question, hash).and_then(|index| self.slots.get_mut(index));
        let Some(slot) = found.filter(|slot| now < slot.usable_until) else {
            self.counts.misses += 1;
            return Lookup::Miss;
        };
        slot.used = true;
        self.counts.hits += 1;
        if now < slot.fresh_until {
            return Lookup::Fresh(slot.answer.clone());
        }
        self.counts.stale += 1;
        if now < slot.retry_at {
            return Lookup::Fresh(slot.answer.clone());
        }
        slot.retry_at = now + RETRY_AFTER;
        Lookup::Stale(slot.answer.clone())
    }

    fn find(&self, question: &LocateQuery, hash: u64) -> Option<usize> {
        let same =
            |index: &usize| self.slots.get(*index).is_some_and(|slot| slot.hash == hash && slot.question == *question);
        self.index.find(hash, same).copied()
    }

    fn add(&mut self, now: Timestamp, slot: Slot) {
        let hash = slot.hash;
        let place = if self.slots.len() < MAX_STRIPE { self.slots.len() } else { self.free(now) };
        match self.slots.get_mut(place) {
            Some(old) => *old = slot,
            None => self.slots.push(slot),
        }
        let slots = &self.slots;
        self.index.insert_unique(hash, place, |index| slots.get(*index).map_or(0, |slot| slot.hash));
    }

    /// Takes the name out of the index that is missed least of the next few, and says where it stands.
    fn free(&mut self, now: Timestamp) -> usize {
        let count = self.slots.len();
        let mut chosen = (u8::MAX, self.hand);
        for step in 0..EVICTION_SAMPLE {
            let place = (self.hand + step) % count;
            let Some(slot) = self.slots.get_mut(place) else { continue };
            let worth = slot.worth(now);
            if worth < chosen.0 {
                chosen = (worth, place);
            }
            slot.used = false;
        }
        let (worth, place) = chosen;
        self.hand = (self.hand + EVICTION_SAMPLE) % count;
        if worth > 0 {
            self.counts.evicted += 1;
        }
        if let Some(hash) = self.slots.get(place).map(|slot| slot.hash)
            && let Ok(entry) = self.index.find_entry(hash, |index| *index == place)
        {
            entry.remove();
        }
        place
    }
}

impl Slot {
    /// How much it would be missed: 0 means not at all.
    fn worth(&self, now: Timestamp) -> u8 {
        if now >= self.usable_until {
            return 0;
        }
        // What does not exist can be invented without end by others.
        let exists = self.answer.is_ok();
        match (exists, self.used, now < self.fresh_until) {
            (false, ..) => 1,
            (true, false, false) => 2,
            (true, false, true) => 3,
            (true, true, false) => 4,
            (true, true, true) => 5,
        }
    }
}
