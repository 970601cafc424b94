//! A set: its members and values computed once.

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64};
use core::time::Duration;
use std::sync::Arc;

use strowger_foundation::Timestamp;

use crate::budget::FailoverBudget;
use crate::health::{DOWN, DRAINING, FULL_SHARE, Probe};
use crate::limits::MAX_MEMBERS;
use crate::method::{MethodClass, MethodWeights};
use crate::policy::{Candidates, Key, Policy, Weights};
use crate::rank::tier;
use crate::target::{CallGuard, RequestGuard};
use crate::target::{Target, TargetId};
use crate::view::{TargetState, TargetView};

/// The configuration of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetConfig {
    /// Its name.
    pub name: String,
    /// The selection policy.
    pub policy: Policy,
    /// The key of the hash policies.
    pub key: Key,
    /// The targets that load policies choose between.
    pub candidates: Candidates,
    /// The weights of transactions.
    pub weights: Weights,
    /// Time until a target that has come back gets its full share; zero for at once.
    pub slow_start: Duration,
    /// The probe settings; without any, targets count as up.
    pub probe: Option<Probe>,
    /// Whether a target that fails its probes is only avoided: it is tried if no other is left, unless requests have
    /// found it gone as well. An overloaded target may fail its probes and still serve some requests.
    pub tries_down: bool,
    /// Time without a response after which the request goes to the next target; `None` for [`FAILOVER_TIMEOUT`].
    pub failover_timeout: Option<Duration>,
}

/// The default failover timeout: enough for three transmissions, half a second and one second apart, and less than a
/// caller's patience.
pub const FAILOVER_TIMEOUT: Duration = Duration::from_secs(2);

impl SetConfig {
    /// Returns the time without a response after which the request goes to the next target.
    #[must_use]
    pub fn failover_timeout(&self) -> Duration {
        self.failover_timeout.unwrap_or(FAILOVER_TIMEOUT)
    }
}

/// A target in a set, with its configuration.
#[derive(Clone, Debug)]
pub struct Member {
    /// The target.
    pub target: Arc<Target>,
    /// Priority: members with the lowest number are used first, the others are spares.
    pub priority: u16,
    /// Weight relative to the other members. Members of weight zero come after the others of their priority.
    pub weight: u16,
    /// Maximum number of concurrent calls.
    pub capacity: Option<u32>,
    /// Whether it accepts new work.
    pub enabled: bool,
}

impl Member {
    /// Creates a member with priority 0, weight 1, no limit, enabled.
    #[must_use]
    pub const fn new(target: Arc<Target>) -> Self {
        Self { target, priority: 0, weight: 1, capacity: None, enabled: true }
    }
}

/// The error for an invalid set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetError {
    /// The set has no members.
    Empty,
    /// The set has more than [`MAX_MEMBERS`].
    TooMany,
    /// A target occurs twice; its URI.
    Duplicate(String),
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a set needs at least one target"),
            Self::TooMany => write!(f, "a set has at most {MAX_MEMBERS} targets"),
            Self::Duplicate(uri) => write!(f, "{uri} occurs twice in the set"),
        }
    }
}

impl core::error::Error for SetError {}

/// A named list of targets with a policy. Immutable; a reload creates another set around the same targets.
#[derive(Debug)]
pub struct Set {
    config: SetConfig,
    members: Box<[Member]>,
    pub(crate) entries: Box<[MemberEntry]>,
    /// Whether all weights are equal, so that the consistent hash needs no logarithms.
    pub(crate) has_equal_weights: bool,
    /// Number of members that the alphabet is divided among.
    pub(crate) ranges: usize,
    /// The flags that exclude a target.
    pub(crate) exclusion_flags: u32,
    /// Assumed weight of a new call, in thousandths.
    pub(crate) new_work: u64,
    pub(crate) turns: RoundRobinState,
    budget: Arc<FailoverBudget>,
}

/// The data of a member that a selection reads, kept together, and its next turn.
#[derive(Debug)]
pub(crate) struct MemberEntry {
    pub target: Arc<Target>,
    /// Its seed in the consistent hash.
    pub seed: u64,
    /// Its [`tier`].
    pub tier: u32,
    pub enabled: bool,
    pub weight: u16,
    /// Number of calls at which it is full.
    pub capacity: u32,
    /// 2³² ÷ weight.
    pub inverse: u64,
    /// Its range of the alphabet.
    pub range: Option<usize>,
    /// Virtual time between its turns; the lower the weight, the longer.
    pub stride: u64,
    /// When its next turn is due.
    pub due: AtomicU64,
}

/// Fraction bits of a [`MemberEntry::stride`]; that of the heaviest member is one. The virtual time lasts for 2⁴⁴ of
/// its turns.
pub(crate) const STRIDE_BITS: u32 = 20;

/// The state of round-robin policies. Starts anew with each reload.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct RoundRobinState {
    /// Number of requests so far, for round robin.
    pub served: AtomicU32,
    /// The latest turn taken, for weighted round robin. While no member is out, all others are due later.
    pub time: AtomicU64,
}

impl Set {
    /// Creates a set of `members`.
    ///
    /// # Errors
    ///
    /// Fails if there are none, too many, or duplicates.
    pub fn new(config: SetConfig, members: Vec<Member>) -> Result<Self, SetError> {
        if members.is_empty() {
            return Err(SetError::Empty);
        }
        if members.len() > MAX_MEMBERS {
            return Err(SetError::TooMany);
        }
        let mut ids: Vec<_> = members.iter().map(|member| (member.target.id(), member.target.uri())).collect();
        ids.sort_unstable();
        if let Some([(_, uri), _]) = ids.array_windows().find(|[(one, _), (next, _)]| one == next) {
            return Err(SetError::Duplicate(String::from_utf8_lossy(uri).into_owned()));
        }
        drop(ids);

        let first_priority = members.iter().filter(|member| member.enabled).map(|member| member.priority).min();
        let heaviest = u64::from(members.iter().map(|member| member.weight).max().unwrap_or(1).max(1));
        let count = members.len() as u64;
        let mut ranges = 0;
        let parts = members.iter().zip(0_u64..).map(|(member, at)| {
            let has_range = member.enabled && member.weight != 0 && Some(member.priority) == first_priority;
            let range = has_range.then_some(ranges);
            ranges += usize::from(has_range);
            let weight = u64::from(member.weight.max(1));
            let stride = (heaviest << STRIDE_BITS) / weight;
            // Spread out, so that turns of light members fall singly between those of heavy ones.
            let first_turn = stride * (2 * at + 1) / (2 * count);
            MemberEntry {
                target: Arc::clone(&member.target),
                seed: member.target.seed(),
                tier: tier(member.priority, member.weight),
                enabled: member.enabled,
                weight: member.weight,
                // A number that is never reached.
                capacity: member.capacity.unwrap_or(u32::MAX),
                inverse: (1 << 32) / weight,
                range,
                stride,
                due: AtomicU64::new(first_turn),
            }
        });
        let parts = parts.collect();
        let mut weights = members.iter().map(|member| member.weight).filter(|weight| *weight != 0);
        let first_weight = weights.next();
        let is_even = weights.all(|weight| Some(weight) == first_weight);
        let new_work = u64::from(preset(&config).of(MethodClass::Invite));
        let barred = if config.probe.is_some() { DRAINING | DOWN } else { DRAINING };
        let (turns, budget) = (RoundRobinState::default(), Arc::default());
        Ok(Self {
            config,
            members: members.into(),
            entries: parts,
            has_equal_weights: is_even,
            ranges,
            exclusion_flags: barred,
            new_work,
            turns,
            budget,
        })
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &SetConfig {
        &self.config
    }

    /// Returns the members, in the order given.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the failover budget of its members. Starts anew with each reload.
    #[must_use]
    pub const fn budget(&self) -> &Arc<FailoverBudget> {
        &self.budget
    }

    /// Returns whether a member takes new work, as far as the set knows.
    #[must_use]
    pub fn is_in_service(&self, member: usize, now: Timestamp) -> bool {
        let member = self.members.get(member);
        member.is_some_and(|member| matches!(self.state(member, now), TargetState::Up | TargetState::SlowStart { .. }))
    }

    /// Returns the index of a target among the members.
    #[must_use]
    pub fn position(&self, id: TargetId) -> Option<usize> {
        self.members.iter().position(|member| member.target.id() == id)
    }

    /// Returns the weight of a transaction of `class` at `target`, in thousandths of a BYE.
    #[must_use]
    pub fn work_of(&self, target: &Target, class: MethodClass) -> u32 {
        u32::from(match &self.config.weights {
            Weights::Fixed(weights) => weights.of(class),
            Weights::Adaptive => target.measured_weight(class, &MethodWeights::TLWL_1_75),
        })
    }

    /// Begins a transaction of `class` at a member; `None` if there is no such member.
    #[must_use]
    pub fn begin_request(&self, member: usize, now: Timestamp, class: MethodClass) -> Option<RequestGuard> {
        let target = &self.members.get(member)?.target;
        Some(target.begin_request(now, self.work_of(target, class), class))
    }

    /// Begins a call at a member; `None` if it is full or there is no such member.
    #[must_use]
    pub fn begin_call(&self, member: usize) -> Option<CallGuard> {
        let member = self.members.get(member)?;
        match member.capacity {
            Some(capacity) => member.target.try_begin_call(capacity),
            None => Some(member.target.begin_call()),
        }
    }

    /// Returns whether a member takes new work, as far as the set knows; ignores passive failure detection and
    /// capacity.
    #[must_use]
    pub fn state(&self, member: &Member, now: Timestamp) -> TargetState {
        if !member.enabled {
            return TargetState::Disabled;
        }
        if self.config.probe.is_some() && !member.target.is_up() {
            return TargetState::Down;
        }
        if member.target.is_draining() {
            return TargetState::Draining;
        }
        match self.share(&member.target, now) {
            FULL_SHARE => TargetState::Up,
            share => TargetState::SlowStart { share },
        }
    }

    /// Returns the data of a member for the operator; `None` if there is no such member.
    #[must_use]
    pub fn view(&self, member: usize, now: Timestamp) -> Option<TargetView> {
        let member = self.members.get(member)?;
        let target = &member.target;
        let load = target.load();
        let invite_weight = self.work_of(target, MethodClass::Invite);
        let state = self.state(member, now);
        let since = match state {
            TargetState::Down => target.health().down_since(),
            TargetState::SlowStart { .. } => target.health().back_since(),
            TargetState::Disabled | TargetState::Draining | TargetState::Up => None,
        };
        Some(TargetView {
            id: target.id(),
            set: target.set().to_owned(),
            uri: String::from_utf8_lossy(target.uri()).into_owned(),
            state,
            since,
            priority: member.priority,
            weight: member.weight,
            capacity: member.capacity,
            calls: target.calls(),
            transactions: load.transactions,
            work: load.work,
            response_time: target.response_time(),
            invite_weight: u16::try_from(invite_weight).unwrap_or(u16::MAX),
            requests: target.requests(),
            failures: target.failures(),
        })
    }

    /// Returns its share of its weight, in thousandths.
    #[inline]
    pub(crate) fn share(&self, target: &Target, now: Timestamp) -> u16 {
        target.health().share(now, self.config.slow_start)
    }
}

/// Returns the weights of transactions before anything is measured.
fn preset(config: &SetConfig) -> MethodWeights {
    match config.weights {
        Weights::Fixed(weights) => weights,
        Weights::Adaptive => MethodWeights::TLWL_1_75,
    }
}
