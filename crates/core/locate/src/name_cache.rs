//! Cache of located names, shared by all shards.

use core::hash::BuildHasher;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use hashbrown::HashTable;
use strowger_foundation::map::{SeededState, seeded};
use strowger_foundation::{HostId, Timestamp};

use crate::{CandidateList, Hop, HostNames, LocateError, LocateQuery, LocateResult};

/// Maximum number of names in the cache.
pub const MAX_NAMES: usize = 65_536;

/// Stripes of the cache, each with its own lock.
const STRIPES: usize = 16;

/// Maximum number of names in a stripe.
const MAX_STRIPE: usize = MAX_NAMES / STRIPES;

/// Number of names compared on eviction.
const EVICTION_SAMPLE: usize = 16;

/// How long a name is not queried again after the DNS failed to answer, and how long a caller has to refresh a stale
/// name.
///
/// RFC 8767 §5 recommends at least 30 s between attempts if stale data are available; calls without any cannot wait
/// that long.
pub const RETRY_AFTER: Duration = Duration::from_secs(5);

/// What is cached, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePolicy {
    /// Whether the cache is on. If not, every lookup returns [`Lookup::Miss`].
    pub enabled: bool,
    /// Minimum time for which answers are fresh, whatever their TTL.
    pub min_ttl: Duration,
    /// Maximum time for which answers are fresh.
    pub max_ttl: Duration,
    /// Maximum time for which a negative answer is cached (RFC 2308 §5).
    pub negative_ttl: Duration,
    /// How long after its TTL an answer may still be used (RFC 8767); zero for never.
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

/// Result of a cache lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Use the answer.
    Fresh(LocateResult),
    /// Use the answer and query the name meanwhile. Only one caller gets this every [`RETRY_AFTER`]; the others get
    /// `Fresh`.
    Stale(LocateResult),
    /// Query the name.
    Miss,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameCounts {
    /// Names in the cache, including expired ones that have not been replaced.
    pub entries: u64,
    /// Lookups that returned an answer.
    pub hits: u64,
    /// Of these, lookups with an expired TTL.
    pub stale_hits: u64,
    /// Lookups that returned none.
    pub misses: u64,
    /// Names evicted while still usable.
    pub evicted: u64,
}

/// Cache of answers by query, for all shards. A [`CachePolicy`] decides what is cached.
#[derive(Debug)]
pub struct NameCache {
    policy: RwLock<CachePolicy>,
    /// [`CachePolicy::enabled`], which every lookup reads.
    is_enabled: AtomicBool,
    hasher: SeededState,
    stripes: [Mutex<Stripe>; STRIPES],
    hosts: HostNames,
}

impl NameCache {
    /// Creates an empty cache. `seed` keeps peers from choosing names that collide.
    #[must_use]
    pub fn new(policy: CachePolicy, seed: u64) -> Self {
        let stripes = core::array::from_fn(|_| Mutex::default());
        let is_enabled = AtomicBool::new(policy.enabled);
        Self { policy: RwLock::new(policy), is_enabled, hasher: seeded(seed), stripes, hosts: HostNames::new(seed) }
    }

    /// Sets the policy for answers to come.
    pub fn set_policy(&self, policy: CachePolicy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = policy;
        self.is_enabled.store(policy.enabled, Ordering::Relaxed);
    }

    /// Returns the numbers of the host names of secure peers.
    #[must_use]
    pub const fn hosts(&self) -> &HostNames {
        &self.hosts
    }

    /// Looks `question` up. Does not allocate.
    #[must_use]
    pub fn lookup(&self, now: Timestamp, question: &LocateQuery) -> Lookup {
        let Some((mut stripe, hash)) = self.stripe_of(question) else {
            return Lookup::Miss;
        };
        if !self.is_enabled.load(Ordering::Relaxed) {
            stripe.counts.misses += 1;
            return Lookup::Miss;
        }
        stripe.lookup(now, question, hash)
    }

    /// Returns `hop`, found in the answer to `question`, as a peer that must prove that name.
    #[must_use]
    pub fn hop_to(&self, hop: &Hop, question: &LocateQuery) -> Hop {
        if hop.transport.is_secure() { self.named_hop(hop, question) } else { *hop }
    }

    // Never inlined: only TLS needs it.
    #[inline(never)]
    fn named_hop(&self, hop: &Hop, question: &LocateQuery) -> Hop {
        // Nothing is ever sent to a name without a number.
        Hop { host: self.hosts.number(&question.host).unwrap_or(HostId::SOURCE), ..*hop }
    }

    /// Returns the cached candidates for `question` without triggering a query.
    #[must_use]
    pub fn peek(&self, now: Timestamp, question: &LocateQuery) -> Option<Arc<CandidateList>> {
        let (stripe, hash) = self.stripe_of(question)?;
        let slot = stripe.slots.get(stripe.find(question, hash)?)?;
        slot.answer.clone().ok().filter(|_| now < slot.usable_until)
    }

    /// Stores the DNS's `answer` to `question`, valid for `ttl`.
    ///
    /// A missing answer is stored for [`RETRY_AFTER`], and never replaces an answer that can still be used.
    pub fn insert(&self, now: Timestamp, question: &LocateQuery, answer: LocateResult, ttl: Duration) {
        // The answer for an invalid name is not worth its bytes.
        if !self.is_enabled.load(Ordering::Relaxed) || !question.is_valid_name() {
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

    /// Removes all names.
    pub fn clear(&self) {
        for stripe in &self.stripes {
            let mut stripe = lock(stripe);
            stripe.index.clear();
            stripe.slots.clear();
            stripe.hand = 0;
        }
    }

    /// Returns the counters since the start.
    #[must_use]
    pub fn counts(&self) -> NameCounts {
        let mut sum = NameCounts::default();
        for stripe in &self.stripes {
            let stripe = lock(stripe);
            let NameCounts { hits, stale_hits, misses, evicted, .. } = stripe.counts;
            sum.entries += u64::try_from(stripe.slots.len()).unwrap_or(u64::MAX);
            sum.hits += hits;
            sum.stale_hits += stale_hits;
            sum.misses += misses;
            sum.evicted += evicted;
        }
        sum
    }

    /// Returns a cache slot with the answer and its times.
    fn slot(&self, now: Timestamp, question: &LocateQuery, hash: u64, answer: LocateResult, ttl: Duration) -> Slot {
        let CachePolicy { min_ttl, max_ttl, negative_ttl, serve_stale, .. } =
            *self.policy.read().unwrap_or_else(PoisonError::into_inner);
        let (fresh, stale) = match answer {
            // A TTL of 0 is valid for the transaction in progress only (RFC 1035 §3.2.1), so it is never stale.
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
        // The stripe's hash table uses the highest and the lowest bits.
        let stripe = usize::try_from(hash >> 32).unwrap_or(0) % STRIPES;
        self.stripes.get(stripe).map(|stripe| (lock(stripe), hash))
    }
}

fn lock(stripe: &Mutex<Stripe>) -> MutexGuard<'_, Stripe> {
    // A stripe is consistent at every point that could panic.
    stripe.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Stripe {
    /// Indices in `slots`.
    index: HashTable<usize>,
    slots: Vec<Slot>,
    /// Slot examined next on eviction.
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
    /// Earliest time of the next refresh; relevant only once the answer is stale.
    retry_at: Timestamp,
    /// Whether it was looked up since the hand passed.
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
        self.counts.stale_hits += 1;
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

    /// Removes the least valuable of the next few names from the index and returns its slot.
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
    /// Returns the value of a cached name on eviction; 0 is the lowest.
    fn worth(&self, now: Timestamp) -> u8 {
        if now >= self.usable_until {
            return 0;
        }
        // Peers can invent any number of nonexistent names.
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
