//! Which nonce counts were used (RFC 7616 §3.4): one sliding window a nonce in use.

use core::hash::BuildHasher as _;
use core::time::Duration;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use strowger_foundation::Timestamp;
use strowger_foundation::map::seeded;

use crate::nonce::NonceId;
use crate::nonce_sharing::NonceSharing;

/// The nonces that one stripe remembers; about 64 bytes each.
pub const MAX_NONCES_PER_STRIPE: usize = 16_384;
/// How far below the highest count a late one is still told apart from a replay.
pub const NC_WINDOW: u32 = 64;
/// The aged nonces that one use clears away: more than the one that it may add, so what aged goes.
const CLEARED_PER_USE: usize = 4;

/// The nonce counts that were used, shared by all shards of a process. Only credentials that are right get here, so a
/// peer without a password takes no memory and evicts nobody.
#[derive(Debug)]
pub struct NonceWindows {
    stripes: Box<[Mutex<Stripe>]>,
    seed: u64,
    max_per_stripe: usize,
    /// What is shared with other servers, where it is.
    shared: Option<Box<NonceSharing>>,
}

/// How full the windows are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowStats {
    /// The nonces that are remembered.
    pub nonces: usize,
    /// The nonces that were forgotten before their age because [`MAX_NONCES_PER_STRIPE`] was reached.
    pub evicted: u64,
}

impl NonceWindows {
    /// Windows in `stripes` locks, at least one. The shell draws `seed` at random once a process: it spreads the nonces,
    /// and sets those of an earlier process, whose uses are forgotten, apart.
    #[must_use]
    pub fn new(stripes: usize, seed: u64) -> Self {
        Self::with_limit(stripes, seed, MAX_NONCES_PER_STRIPE)
    }

    pub(crate) fn with_limit(stripes: usize, seed: u64, max_per_stripe: usize) -> Self {
        let stripes = (0..stripes.max(1)).map(|_| Mutex::default()).collect();
        Self { stripes, seed, max_per_stripe: max_per_stripe.max(1), shared: None }
    }

    pub(crate) fn with_sharing(self, shared: NonceSharing) -> Self {
        Self { shared: Some(Box::new(shared)), ..self }
    }

    pub(crate) fn nonce_sharing(&self) -> Option<&NonceSharing> {
        self.shared.as_deref()
    }

    /// How full the windows are.
    #[must_use]
    pub fn stats(&self) -> WindowStats {
        self.stripes.iter().map(lock).fold(WindowStats::default(), |sum, stripe| WindowStats {
            nonces: sum.nonces.saturating_add(stripe.windows.len()),
            evicted: sum.evicted.saturating_add(stripe.evicted),
        })
    }

    /// A new nonce for a request.
    pub(crate) fn issue(&self, now: Timestamp, request: u64) -> NonceId {
        self.nonce_sharing().map_or_else(|| NonceId::issue(now, request), |shared| shared.issue(now, request))
    }

    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    /// Uses the count `nc` of a nonce, or all of them where there is no count; `false` where it was used before or nobody
    /// remembers.
    pub(crate) fn use_count(&self, now: Timestamp, age: Duration, id: NonceId, nc: Option<u32>) -> bool {
        let Some(mut stripe) = self.stripe_of(id) else { return false };
        stripe.clear_aged(now, age);
        let used = stripe.use_count(id, nc, self.max_per_stripe);
        debug_assert!(stripe.windows.len() <= self.max_per_stripe, "a stripe is bounded");
        used
    }

    /// Takes note that a count was used elsewhere; `false` where that was known.
    pub(crate) fn mark(&self, id: NonceId, nc: Option<u32>) -> bool {
        self.stripe_of(id).is_some_and(|mut stripe| stripe.mark(id, nc, self.max_per_stripe))
    }

    #[inline]
    fn stripe_of(&self, id: NonceId) -> Option<MutexGuard<'_, Stripe>> {
        let count = u64::try_from(self.stripes.len()).unwrap_or(u64::MAX);
        let at = seeded(self.seed).hash_one(id).checked_rem(count).unwrap_or(0);
        usize::try_from(at).ok().and_then(|at| self.stripes.get(at)).map(lock)
    }
}

/// A panic elsewhere leaves no window half changed, so a poisoned lock is as good as another.
fn lock(stripe: &Mutex<Stripe>) -> MutexGuard<'_, Stripe> {
    stripe.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Stripe {
    /// Ordered by the time of issue, so the oldest goes first.
    windows: BTreeMap<NonceId, Window>,
    /// No nonce up to this one is taken up anew: it may be one that was forgotten.
    forgotten_until: Option<NonceId>,
    evicted: u64,
}

impl Stripe {
    fn use_count(&mut self, id: NonceId, nc: Option<u32>, max: usize) -> bool {
        let (is_forgotten, is_full) = (self.is_forgotten(id), self.windows.len() >= max);
        match self.windows.entry(id) {
            Entry::Occupied(mut window) => return nc.is_some_and(|nc| window.get_mut().use_count(nc)),
            Entry::Vacant(_) if is_forgotten => return false,
            Entry::Vacant(place) if !is_full => {
                place.insert(Window::first(nc));
                return true;
            }
            Entry::Vacant(_) => {}
        }
        self.evicted = self.evicted.saturating_add(1);
        self.forget_oldest();
        // What came late may itself be older than what had to go.
        if self.is_forgotten(id) {
            return false;
        }
        self.windows.insert(id, Window::first(nc));
        true
    }

    fn mark(&mut self, id: NonceId, nc: Option<u32>, max: usize) -> bool {
        match (self.windows.get_mut(&id), nc) {
            // Without a count it was good once, and is for nothing afterwards.
            (Some(window), None) => {
                let was_used = core::mem::replace(window, Window::first(None)).used == u64::MAX;
                !was_used
            }
            _ => self.use_count(id, nc, max),
        }
    }

    fn clear_aged(&mut self, now: Timestamp, age: Duration) {
        for _ in 0..CLEARED_PER_USE {
            let aged = self.windows.first_key_value().is_some_and(|(id, _)| is_aged(id, now, age));
            if !aged {
                break;
            }
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((id, _)) = self.windows.pop_first() {
            self.forgotten_until = self.forgotten_until.max(Some(id));
        }
    }

    fn is_forgotten(&self, id: NonceId) -> bool {
        self.forgotten_until.is_some_and(|until| id <= until)
    }
}

/// Whether a nonce is past its age.
pub(crate) fn is_aged(id: &NonceId, now: Timestamp, age: Duration) -> bool {
    now.saturating_since(Timestamp::from_millis(id.issued_ms())) > age
}

/// The counts that were used: bit n of `used` is `highest - n`; what is below is taken for used.
#[derive(Clone, Copy, Debug)]
struct Window {
    highest: u32,
    used: u64,
}

impl Window {
    const fn first(nc: Option<u32>) -> Self {
        match nc {
            Some(nc) => Self { highest: nc, used: 1 },
            None => Self { highest: u32::MAX, used: u64::MAX },
        }
    }

    fn use_count(&mut self, nc: u32) -> bool {
        if nc > self.highest {
            let ahead = nc.saturating_sub(self.highest);
            self.used = self.used.checked_shl(ahead).unwrap_or(0) | 1;
            self.highest = nc;
            return true;
        }
        let Some(bit) = 1u64.checked_shl(self.highest.saturating_sub(nc)) else { return false };
        let fresh = self.used & bit == 0;
        self.used |= bit;
        fresh
    }
}
