//! A target: its constant properties, and its counts and averages.

mod guard;

use core::fmt;
use core::str::FromStr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;

use strowger_foundation::Timestamp;

use crate::averages::TargetAverages;
use crate::hash::stable;
use crate::health::{Health, HealthChange, Probe};
use crate::method::{MethodClass, MethodWeights};

pub use guard::{CallGuard, RequestGuard};

/// A target's permanent ID: a hash of its set's name and its URI, so it is the same on every member and after each
/// reload. Record-Route carries it as one to seven digits and lower-case letters (base 36).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(pub u32);

impl TargetId {
    /// Maximum length of an ID in characters.
    pub const MAX_LEN: usize = 7;

    /// Returns the ID of the target `uri` in the set `set`.
    #[must_use]
    pub fn of(set: &str, uri: &[u8]) -> Self {
        Self(stable(&[set.as_bytes(), uri]) as u32)
    }
}

const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [b'0'; Self::MAX_LEN];
        let mut rest = self.0;
        let mut length = 0;
        for digit in text.iter_mut().rev() {
            *digit = DIGITS.get((rest % 36) as usize).copied().unwrap_or(b'0');
            rest /= 36;
            length += 1;
            if rest == 0 {
                break;
            }
        }
        let written = text.get(Self::MAX_LEN - length..).unwrap_or_default();
        f.pad(core::str::from_utf8(written).unwrap_or_default())
    }
}

/// The error for text that is not a [`TargetId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadTargetId;

impl fmt::Display for BadTargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a target ID: one to seven digits and lower-case letters")
    }
}

impl core::error::Error for BadTargetId {}

impl TargetId {
    /// Parses the output of [`Display`](fmt::Display) and nothing else: each ID has one spelling.
    ///
    /// # Errors
    ///
    /// Fails for any other text.
    pub fn from_bytes(text: &[u8]) -> Result<Self, BadTargetId> {
        if text.is_empty() || text.len() > Self::MAX_LEN || (text.len() > 1 && text.first() == Some(&b'0')) {
            return Err(BadTargetId);
        }
        let digit = |byte: &u8| match byte {
            b'0'..=b'9' => Ok(u64::from(byte - b'0')),
            b'a'..=b'z' => Ok(u64::from(byte - b'a') + 10),
            _ => Err(BadTargetId),
        };
        let number = text.iter().try_fold(0_u64, |number, byte| digit(byte).map(|digit| number * 36 + digit))?;
        u32::try_from(number).map(Self).map_err(|_| BadTargetId)
    }
}

impl FromStr for TargetId {
    type Err = BadTargetId;

    fn from_str(text: &str) -> Result<Self, BadTargetId> {
        Self::from_bytes(text.as_bytes())
    }
}

/// One destination for requests.
///
/// Sets refer to it, and so does each of its transactions ([`RequestGuard`]) and calls ([`CallGuard`]), so it
/// outlives the configuration that created it; a reload finds it in the [`Registry`](crate::Registry). Its counts
/// equal the number of existing guards: dropping a guard, for whatever reason, decrements the count.
#[derive(Debug)]
pub struct Target {
    id: TargetId,
    /// Its seed in the consistent hash. It excludes the set's name, so renaming a set moves no keys.
    seed: u64,
    set: Box<str>,
    uri: Box<[u8]>,
    pub(crate) health: Health,
    pub(crate) counts: Counts,
    pub(crate) measures: TargetAverages,
}

/// The counts written with each transaction, separate from the data that each selection reads.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counts {
    /// Transactions in progress in the bits from [`ONE_TRANSACTION`] up, and their work below, so that both change
    /// atomically.
    load: AtomicU64,
    calls: AtomicU32,
    pub(crate) requests: AtomicU64,
    pub(crate) failures: AtomicU64,
    /// When it last responded, in nanoseconds.
    pub(crate) last_response: AtomicU64,
}

/// One transaction in [`Counts::load`]. The work of as many transactions as fit above it fits below it, since each
/// weighs at most 16 bits.
const ONE_TRANSACTION: u64 = 1 << 40;

/// The load of a target at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub transactions: u32,
    /// Work in thousandths of a BYE.
    pub work: u64,
}

impl Target {
    /// Creates the target `uri` of the set `set`: up, not drained, idle.
    #[must_use]
    pub fn new(set: &str, uri: &[u8]) -> Arc<Self> {
        Arc::new(Self {
            id: TargetId::of(set, uri),
            seed: stable(&[uri]),
            set: set.into(),
            uri: uri.into(),
            health: Health::default(),
            counts: Counts::default(),
            measures: TargetAverages::default(),
        })
    }

    /// Returns its ID.
    #[must_use]
    pub fn id(&self) -> TargetId {
        self.id
    }

    /// Returns the name of its set.
    #[must_use]
    pub fn set(&self) -> &str {
        &self.set
    }

    /// Returns its URI as configured.
    #[must_use]
    pub fn uri(&self) -> &[u8] {
        &self.uri
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Begins a transaction of `class` with a weight of `work` thousandths of a BYE (from 1 to 65,535; see
    /// [`Set::work_of`](crate::Set::work_of)). It lasts as long as the guard.
    pub fn begin_request(self: &Arc<Self>, now: Timestamp, work: u32, class: MethodClass) -> RequestGuard {
        let work = u16::try_from(work).unwrap_or(u16::MAX).max(1);
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        let before = self.counts.load.fetch_add(ONE_TRANSACTION | u64::from(work), Ordering::Relaxed);
        RequestGuard::new(Arc::clone(self), now, work, class, load_of(before).work == 0)
    }

    /// Begins a call; it lasts as long as the guard.
    pub fn begin_call(self: &Arc<Self>) -> CallGuard {
        self.counts.calls.fetch_add(1, Ordering::Relaxed);
        CallGuard::new(Arc::clone(self))
    }

    /// Begins a call like [`begin_call`](Self::begin_call), but only if fewer than `capacity` calls are in progress;
    /// safe against concurrent callers.
    #[must_use]
    pub fn try_begin_call(self: &Arc<Self>, capacity: u32) -> Option<CallGuard> {
        let one_more = |calls: u32| (calls < capacity).then(|| calls.saturating_add(1));
        self.counts.calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(CallGuard::new(Arc::clone(self)))
    }

    /// Returns the number of calls in progress.
    #[must_use]
    pub fn calls(&self) -> u32 {
        self.counts.calls.load(Ordering::Relaxed)
    }

    /// Returns the number of transactions in progress.
    #[must_use]
    pub fn transactions(&self) -> u32 {
        self.load().transactions
    }

    /// Returns the work in progress, in thousandths of a BYE.
    #[must_use]
    pub fn work(&self) -> u64 {
        self.load().work
    }

    #[inline]
    pub(crate) fn load(&self) -> Load {
        load_of(self.counts.load.load(Ordering::Relaxed))
    }

    /// Returns the number of transactions since the start of the process.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// Returns the number of transactions that [failed](RequestGuard::handle_failure).
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.counts.failures.load(Ordering::Relaxed)
    }

    /// Returns the moving average of the time until the first response; `None` before there was any.
    #[must_use]
    pub fn response_time(&self) -> Option<Duration> {
        self.measures.response_time()
    }

    /// Returns the measured weight of a transaction of `class`, in thousandths of a BYE, or that of `otherwise` if
    /// there is no measurement.
    #[must_use]
    pub fn measured_weight(&self, class: MethodClass, otherwise: &MethodWeights) -> u16 {
        self.measures.weight(class).unwrap_or_else(|| otherwise.of(class))
    }

    /// Returns whether it has responded to anything after `begun`. If so, a request from then without a response
    /// means overload, not failure.
    #[must_use]
    pub fn has_answered_since(&self, begun: Timestamp) -> bool {
        self.counts.last_response.load(Ordering::Relaxed) > begun.as_nanos()
    }

    pub(crate) fn record_response(&self, now: Timestamp) {
        self.counts.last_response.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn measures(&self) -> &TargetAverages {
        &self.measures
    }

    /// Stops new work; work in progress continues until it ends.
    pub fn drain(&self) {
        self.health.drain();
    }

    /// Accepts new work again, with a [slow start](crate::SetConfig::slow_start).
    pub fn undrain(&self, now: Timestamp) {
        self.health.undrain(now);
    }

    /// Returns whether it is being drained. It is empty when it has neither [calls](Self::calls) nor
    /// [transactions](Self::transactions).
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.health.is_draining()
    }

    /// Records the outcome of a probe. Returns a change if a threshold was passed; a target that comes up has a slow
    /// start. A probe that could not be sent has no outcome.
    pub fn handle_probe(&self, now: Timestamp, is_good: bool, probe: &Probe) -> Option<HealthChange> {
        self.health.handle_probe(now, is_good, probe)
    }

    /// Discards the probe results when probing ends. If they said that it is down, it gets a slow start.
    pub fn forget_probes(&self, now: Timestamp) {
        self.health.forget_probes(now);
    }

    /// Returns whether it is up according to probes. Sets without probes ignore it.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.health.is_up()
    }

    /// Starts its slow start when it answers again after an outage found by requests.
    pub fn handle_recovery(&self, now: Timestamp) {
        self.health.handle_recovery(now);
    }

    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    pub(crate) fn release_work(&self, work: u16) {
        let before = self.counts.load.fetch_sub(u64::from(work), Ordering::Relaxed);
        debug_assert!(load_of(before).work >= u64::from(work), "work was counted that is taken away");
    }

    pub(crate) fn end_request(&self, work: u16) {
        let before = self.counts.load.fetch_sub(ONE_TRANSACTION | u64::from(work), Ordering::Relaxed);
        debug_assert!(load_of(before).transactions != 0, "a transaction was counted that ends");
        debug_assert!(load_of(before).work >= u64::from(work), "its work was counted");
    }

    pub(crate) fn count_failure(&self) {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_call(&self) {
        let before = self.counts.calls.fetch_sub(1, Ordering::Relaxed);
        debug_assert_ne!(before, 0, "a call was counted that ends");
    }
}

const fn load_of(packed: u64) -> Load {
    Load { transactions: (packed / ONE_TRANSACTION) as u32, work: packed % ONE_TRANSACTION }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_ids_are_stable() {
        assert_eq!(TargetId::of("pool", b"sip:192.0.2.1").to_string(), "1vb83vk");
        assert_ne!(TargetId::of("pool", b"sip:192.0.2.1"), TargetId::of("pools", b"ip:192.0.2.1"));
        assert_ne!(TargetId::of("pool", b"sip:192.0.2.1"), TargetId::of("pool", b"sip:192.0.2.2"));
    }

    #[test]
    fn target_ids_round_trip() {
        for (number, text) in [(0, "0"), (35, "z"), (36, "10"), (1_295, "zz"), (u32::MAX, "1z141z3")] {
            assert_eq!(TargetId(number).to_string(), text);
            assert_eq!(text.parse(), Ok(TargetId(number)));
        }
        for text in ["", "01", "1z141z4", "zzzzzzz", "A", "1-2", "00000001", " 1"] {
            assert_eq!(text.parse::<TargetId>(), Err(BadTargetId), "{text}");
        }
    }

    #[test]
    fn transaction_count_and_work_do_not_overflow_into_each_other() {
        let target = Target::new("pool", b"sip:192.0.2.1");
        let heaviest: Vec<RequestGuard> =
            (0..100_000).map(|_| target.begin_request(Timestamp::ZERO, u32::MAX, MethodClass::Invite)).collect();
        assert_eq!(target.load(), Load { transactions: 100_000, work: 100_000 * u64::from(u16::MAX) });
        drop(heaviest);
        assert_eq!(target.load(), Load::default());
        assert_eq!(target.requests(), 100_000);
    }

    #[test]
    fn call_guards_are_limited_to_capacity() {
        let target = Target::new("pool", b"sip:192.0.2.1");
        let first = target.try_begin_call(2);
        let second = target.try_begin_call(2);
        assert!(first.is_some() && second.is_some() && target.try_begin_call(2).is_none());
        drop(first);
        assert_eq!(target.calls(), 1);
        assert!(target.try_begin_call(2).is_some());
        assert!(target.try_begin_call(0).is_none());
    }
}
