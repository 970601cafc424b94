//! Used nonce counts (RFC 7616 §3.4): one sliding window per nonce in use.

mod nonce_sharing;
mod transfer;

use core::hash::BuildHasher as _;
use core::time::Duration;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use strowger_foundation::Timestamp;
use strowger_foundation::map::seeded;

use crate::nonce::NonceId;

use nonce_sharing::NonceSharing;
pub use nonce_sharing::{Issuer, USES_INTERVAL};

/// Largest number of nonces recorded by a stripe, about 64 bytes each.
pub const MAX_NONCES_PER_STRIPE: usize = 16_384;
/// How far below the highest count a late one can still be distinguished from a replay.
pub const NC_WINDOW: u32 = 64;
/// Number of expired nonces that one use removes: more than the one that it may add, so expired ones do not
/// accumulate.
const CLEARED_PER_USE: usize = 4;

/// Used nonce counts, shared by all shards of a process. Only valid credentials are recorded, so a peer without a
/// password uses no memory and evicts nobody.
#[derive(Debug)]
pub struct NonceWindows {
    stripes: Box<[Mutex<Stripe>]>,
    seed: u64,
    max_per_stripe: usize,
    /// State shared with other members, if enabled.
    shared: Option<Box<NonceSharing>>,
}

/// Fill levels of the windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowStats {
    /// Number of nonces recorded.
    pub nonces: usize,
    /// Number of nonces evicted before they expired because [`MAX_NONCES_PER_STRIPE`] was reached.
    pub evicted: u64,
}

impl NonceWindows {
    /// Creates windows with `stripes` locks, at least one. The shell draws `seed` at random once per process: it
    /// distributes the nonces, and distinguishes them from those of an earlier process, whose uses are forgotten.
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

    /// Returns the fill levels.
    #[must_use]
    pub fn stats(&self) -> WindowStats {
        self.stripes.iter().map(lock).fold(WindowStats::default(), |sum, stripe| WindowStats {
            nonces: sum.nonces.saturating_add(stripe.windows.len()),
            evicted: sum.evicted.saturating_add(stripe.evicted),
        })
    }

    /// Issues a nonce for a request.
    pub(crate) fn issue(&self, now: Timestamp, request: u64) -> NonceId {
        self.nonce_sharing().map_or_else(|| NonceId::issue(now, request), |shared| shared.issue(now, request))
    }

    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    /// Uses the count `nc` of a nonce, or all counts if `None`; `false` if it was used before or that cannot be
    /// excluded.
    pub(crate) fn use_count(&self, now: Timestamp, age: Duration, id: NonceId, nc: Option<u32>) -> bool {
        let Some(mut stripe) = self.stripe_of(id) else { return false };
        stripe.clear_aged(now, age);
        let used = stripe.use_count(id, nc, self.max_per_stripe);
        debug_assert!(stripe.windows.len() <= self.max_per_stripe, "a stripe is bounded");
        used
    }

    /// Records a use elsewhere; `false` if it was known.
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

/// Locks a stripe, ignoring poisoning: a panic elsewhere leaves no window half-updated.
fn lock(stripe: &Mutex<Stripe>) -> MutexGuard<'_, Stripe> {
    stripe.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Stripe {
    /// Ordered by time of issue, so the oldest is evicted first.
    windows: BTreeMap<NonceId, Window>,
    /// Nonces up to this one are not recorded again: they may have been evicted.
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
        // A late nonce may itself be older than the one evicted.
        if self.is_forgotten(id) {
            return false;
        }
        self.windows.insert(id, Window::first(nc));
        true
    }

    fn mark(&mut self, id: NonceId, nc: Option<u32>, max: usize) -> bool {
        match (self.windows.get_mut(&id), nc) {
            // A nonce used without a count is used up.
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

/// Whether a nonce has expired.
pub(crate) fn is_aged(id: &NonceId, now: Timestamp, age: Duration) -> bool {
    now.saturating_since(Timestamp::from_millis(id.issued_ms())) > age
}

/// The used counts: bit n of `used` is `highest - n`; lower counts are treated as used.
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
