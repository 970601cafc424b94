//! Bans: who gets one, for how long, and when it ends.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use strowger_foundation::map::{SeededMap, seeded};
use strowger_foundation::{Timestamp, source_bits, source_network};

use crate::banned::{BannedSources, MAX_BANNED};

/// Maximum number of sources with failures that are remembered, including those whose ban has ended. Failures of
/// further ones are not counted.
pub const MAX_SUSPECTS: usize = 65_536;
/// Minimum time between searches for suspects that can be forgotten.
const FORGET_INTERVAL: Duration = Duration::from_secs(1);

/// When a source is banned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanPolicy {
    /// Whether failures lead to bans. If not, only the operator bans.
    pub is_automatic: bool,
    /// Number of failures after which a source is banned.
    pub failures: u32,
    /// Time within which they must happen, from the first one.
    pub period: Duration,
    /// Duration of a source's first ban. Each further one is twice as long.
    pub duration: Duration,
    /// Maximum duration of a ban. A source without a ban or failure for as long is forgotten, and its next ban is a
    /// first one.
    pub max_duration: Duration,
}

impl Default for BanPolicy {
    fn default() -> Self {
        Self {
            is_automatic: true,
            failures: 10,
            period: Duration::from_secs(600),
            duration: Duration::from_secs(600),
            max_duration: Duration::from_secs(24 * 3600),
        }
    }
}

/// Why a source is banned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BanCause {
    /// Too many failed authentications.
    Failures,
    /// A command.
    Operator,
}

/// A ban.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// The source.
    pub source: u64,
    /// Why.
    pub cause: BanCause,
    /// When it began.
    pub since: Timestamp,
    /// When it ends; `None` if only by a command.
    pub until: Option<Timestamp>,
    /// Number of the source's automatic bans so far, this one included.
    pub number: u32,
}

impl Ban {
    /// Returns the banned address, or the first one of the banned prefix, and the prefix length.
    #[must_use]
    pub fn network(&self) -> (IpAddr, u8) {
        source_network(self.source)
    }
}

/// What a failure has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureOutcome {
    /// It was counted, or there is nothing to count.
    Counted,
    /// The source is banned now.
    Banned(Ban),
    /// The source would be banned, but is exempt.
    Spared,
    /// The source would be banned, but too many are.
    Full,
}

/// No further source can be banned, because [`MAX_BANNED`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullError;

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BanCounters {
    /// Failures that were counted.
    pub failures: u64,
    /// Automatic bans.
    pub banned: u64,
    /// Bans that a command added.
    pub added: u64,
    /// Bans that a command removed.
    pub removed: u64,
    /// Bans that have ended in time.
    pub ended: u64,
    /// Times that a source was not banned because it is exempt.
    pub spared: u64,
    /// Times that a source was not banned because [`MAX_BANNED`] were.
    pub full: u64,
    /// Failures not counted because [`MAX_SUSPECTS`] sources had some.
    pub suspects_full: u64,
}

/// A source with failures or an earlier ban.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    failures: u32,
    /// Time of the first of the failures.
    first: Timestamp,
    /// Number of automatic bans so far.
    bans: u32,
    /// When it is forgotten, unless something happens.
    forgotten_at: Timestamp,
}

/// All bans, and the sources that may get one.
#[derive(Debug)]
pub struct BanList {
    policy: BanPolicy,
    banned: Arc<BannedSources>,
    bans: SeededMap<u64, Ban>,
    /// Ends of bans, in order.
    ends: BTreeSet<(Timestamp, u64)>,
    suspects: SeededMap<u64, Suspect>,
    /// Earliest next search for suspects that can be forgotten.
    next_forget: Timestamp,
    counters: BanCounters,
}

impl BanList {
    /// Creates an empty list. `banned`, which must be empty, is kept up to date from now on; `seed` is for the hashes
    /// of tables.
    #[must_use]
    pub fn new(seed: u64, policy: BanPolicy, banned: Arc<BannedSources>) -> Self {
        debug_assert!(banned.is_empty(), "the list is its only writer");
        Self {
            policy,
            banned,
            bans: SeededMap::with_hasher(seeded(seed)),
            ends: BTreeSet::new(),
            suspects: SeededMap::with_hasher(seeded(seed)),
            next_forget: Timestamp::ZERO,
            counters: BanCounters::default(),
        }
    }

    /// Replaces the policy; bans stay as they are.
    pub const fn set_policy(&mut self, policy: BanPolicy) {
        self.policy = policy;
    }

    /// Handles a failed authentication from `ip`, which must be proven to be its source. `is_exempt` is called only if
    /// the source would be banned.
    pub fn handle_failure(&mut self, now: Timestamp, ip: IpAddr, is_exempt: impl FnOnce() -> bool) -> FailureOutcome {
        let source = source_bits(ip);
        if !self.policy.is_automatic || self.bans.contains_key(&source) {
            return FailureOutcome::Counted;
        }
        let Some(failures) = self.count_failure(now, source) else { return FailureOutcome::Counted };
        if failures < self.policy.failures {
            return FailureOutcome::Counted;
        }
        if is_exempt() {
            // It starts again, so that it is not looked up with each further failure.
            self.suspects.remove(&source);
            self.counters.spared = self.counters.spared.saturating_add(1);
            return FailureOutcome::Spared;
        }
        let before = self.suspects.get(&source).map_or(0, |suspect| suspect.bans);
        let until = now + self.duration_after(before);
        let number = before.saturating_add(1);
        let ban = Ban { source, cause: BanCause::Failures, since: now, until: Some(until), number };
        if self.enter(ban).is_err() {
            self.counters.full = self.counters.full.saturating_add(1);
            return FailureOutcome::Full;
        }
        let forgotten_at = until + self.policy.max_duration;
        self.suspects.insert(source, Suspect { failures: 0, first: now, bans: number, forgotten_at });
        self.counters.banned = self.counters.banned.saturating_add(1);
        FailureOutcome::Banned(ban)
    }

    /// Counts a failure; returns how many there were in the period, or `None` if there is no room.
    fn count_failure(&mut self, now: Timestamp, source: u64) -> Option<u32> {
        self.forget(now);
        if self.suspects.len() >= MAX_SUSPECTS && !self.suspects.contains_key(&source) {
            self.counters.suspects_full = self.counters.suspects_full.saturating_add(1);
            return None;
        }
        self.counters.failures = self.counters.failures.saturating_add(1);
        let BanPolicy { period, max_duration, .. } = self.policy;
        let fresh = Suspect { failures: 0, first: now, bans: 0, forgotten_at: now };
        let suspect = self.suspects.entry(source).or_insert(fresh);
        if now >= suspect.forgotten_at {
            *suspect = fresh;
        } else if now >= suspect.first + period {
            (suspect.failures, suspect.first) = (0, now);
        }
        suspect.failures = suspect.failures.saturating_add(1);
        let remembered = if suspect.bans > 0 { max_duration } else { period };
        suspect.forgotten_at = suspect.forgotten_at.max(now + remembered);
        Some(suspect.failures)
    }

    /// Forgets suspects if there is no room for another.
    fn forget(&mut self, now: Timestamp) {
        if self.suspects.len() >= MAX_SUSPECTS && now >= self.next_forget {
            self.next_forget = now + FORGET_INTERVAL;
            self.suspects.retain(|_, suspect| now < suspect.forgotten_at);
        }
    }

    /// Returns the duration of a ban after `before` others.
    fn duration_after(&self, before: u32) -> Duration {
        let factor = 1u32.checked_shl(before).unwrap_or(u32::MAX);
        self.policy.duration.saturating_mul(factor).min(self.policy.max_duration.max(self.policy.duration))
    }

    /// Bans the source of `ip` by a command, for this long or until another command. Replaces its ban if it has one.
    ///
    /// # Errors
    /// When there is no room for another.
    pub fn add(&mut self, now: Timestamp, ip: IpAddr, duration: Option<Duration>) -> Result<Ban, FullError> {
        let source = source_bits(ip);
        let number = self.suspects.get(&source).map_or(0, |suspect| suspect.bans);
        let until = duration.map(|duration| now + duration);
        let ban = Ban { source, cause: BanCause::Operator, since: now, until, number };
        self.enter(ban)?;
        self.counters.added = self.counters.added.saturating_add(1);
        Ok(ban)
    }

    /// Ends the ban of the source of `ip` by a command and forgets its failures; returns the ban if there was one.
    pub fn remove(&mut self, ip: IpAddr) -> Option<Ban> {
        let source = source_bits(ip);
        self.suspects.remove(&source);
        let ban = self.leave(source)?;
        self.counters.removed = self.counters.removed.saturating_add(1);
        Some(ban)
    }

    /// Adds a ban of an earlier process; one that has ended is only remembered.
    ///
    /// # Errors
    /// When there is no room for another.
    pub fn restore(&mut self, now: Timestamp, ban: Ban) -> Result<(), FullError> {
        if ban.number > 0 && self.suspects.len() < MAX_SUSPECTS {
            let forgotten_at = ban.until.unwrap_or(now) + self.policy.max_duration;
            self.suspects
                .insert(ban.source, Suspect { failures: 0, first: Timestamp::ZERO, bans: ban.number, forgotten_at });
        }
        if ban.until.is_some_and(|until| until <= now) { Ok(()) } else { self.enter(ban) }
    }

    fn enter(&mut self, ban: Ban) -> Result<(), FullError> {
        let old = self.leave(ban.source);
        if !self.banned.insert(ban.source) {
            debug_assert!(old.is_none(), "its own room is free");
            return Err(FullError);
        }
        self.bans.insert(ban.source, ban);
        self.ends.extend(ban.until.map(|until| (until, ban.source)));
        self.check_invariants();
        Ok(())
    }

    fn leave(&mut self, source: u64) -> Option<Ban> {
        let ban = self.bans.remove(&source)?;
        if let Some(until) = ban.until {
            self.ends.remove(&(until, source));
        }
        self.banned.remove(source);
        self.check_invariants();
        Some(ban)
    }

    /// Ends the bans whose time has come; returns them.
    pub fn handle_timeout(&mut self, now: Timestamp) -> Vec<Ban> {
        let mut ended = Vec::new();
        while let Some((_, source)) = self.ends.first().copied().filter(|(until, _)| *until <= now) {
            ended.extend(self.leave(source));
        }
        self.counters.ended = self.counters.ended.saturating_add(ended.len() as u64);
        ended
    }

    /// Returns when the next ban ends.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.ends.first().map(|(until, _)| *until)
    }

    /// Returns all bans, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Ban> {
        self.bans.values()
    }

    /// Returns the number of bans.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bans.len()
    }

    /// Whether nobody is banned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bans.is_empty()
    }

    /// Returns the ban of the source of `ip`.
    #[must_use]
    pub fn get(&self, ip: IpAddr) -> Option<&Ban> {
        self.bans.get(&source_bits(ip))
    }

    /// Returns the number of sources with failures or an earlier ban.
    #[must_use]
    pub fn suspects(&self) -> usize {
        self.suspects.len()
    }

    /// Returns the counts since the start.
    #[must_use]
    pub const fn counters(&self) -> &BanCounters {
        &self.counters
    }

    fn check_invariants(&self) {
        debug_assert!(self.bans.len() <= MAX_BANNED, "bans are bounded");
        debug_assert_eq!(self.bans.len(), self.banned.len(), "workers look up what is listed");
        debug_assert!(self.ends.len() <= self.bans.len(), "only bans end");
    }
}
