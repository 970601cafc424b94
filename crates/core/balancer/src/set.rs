//! A set: the members and what is computed of them once.

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64};
use core::time::Duration;
use std::sync::Arc;

use strowger_foundation::Timestamp;

use crate::budget::FailoverBudget;
use crate::guard::{CallGuard, RequestGuard};
use crate::health::{DOWN, DRAINING, FULL_SHARE, Probe};
use crate::method::{MethodClass, MethodWeights};
use crate::policy::{Candidates, Key, Policy, Weights};
use crate::rank::tier;
use crate::target::{Target, TargetId};
use crate::view::{TargetState, TargetView};

/// Members of one set, at most.
pub const MAX_MEMBERS: usize = 256;

/// What the operator says of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetConfig {
    /// Its name.
    pub name: String,
    /// By what a target is chosen.
    pub policy: Policy,
    /// What the hash policies go by.
    pub key: Key,
    /// Which targets the load policies choose between.
    pub candidates: Candidates,
    /// What transactions weigh.
    pub weights: Weights,
    /// How long a target that has come back takes to take its whole part; zero where at once.
    pub slow_start: Duration,
    /// How targets are asked whether they are there; without, they are taken to be.
    pub probe: Option<Probe>,
    /// Whether a target that answers no probe is only avoided: it is tried where there is nobody else, unless requests have found it gone,
    /// too. Who is overloaded may answer no probe, and yet what he can do is better than nothing.
    pub tries_down: bool,
    /// How long a target may be silent until the request goes to the next; [`FAILOVER_TIMEOUT`] where the operator says nothing.
    pub failover_timeout: Option<Duration>,
}

/// How long a target may be silent: a request that was sent three times, in half a second and in one, and less than a caller
/// has patience for.
pub const FAILOVER_TIMEOUT: Duration = Duration::from_secs(2);

impl SetConfig {
    /// How long a target may be silent until the request goes to the next.
    #[must_use]
    pub fn failover_timeout(&self) -> Duration {
        self.failover_timeout.unwrap_or(FAILOVER_TIMEOUT)
    }
}

/// A target in a set, and what the operator says of it.
#[derive(Clone, Debug)]
pub struct Member {
    /// The target.
    pub target: Arc<Target>,
    /// Those of the lowest number come first, the others are their spares.
    pub priority: u16,
    /// Its part, relative to the others'. One of weight zero comes after the others of its priority.
    pub weight: u16,
    /// Most calls at one time.
    pub capacity: Option<u32>,
    /// Whether anything new goes there.
    pub enabled: bool,
}

impl Member {
    /// An ordinary member: priority 0, weight 1, without a limit, enabled.
    #[must_use]
    pub const fn new(target: Arc<Target>) -> Self {
        Self { target, priority: 0, weight: 1, capacity: None, enabled: true }
    }
}

/// Why there can be no such set. The operator's mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetError {
    /// It has no members.
    Empty,
    /// It has more than [`MAX_MEMBERS`].
    TooMany,
    /// A target stands in it twice: its URI.
    Duplicate(String),
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a set needs at least one target"),
            Self::TooMany => write!(f, "a set has at most {MAX_MEMBERS} targets"),
            Self::Duplicate(uri) => write!(f, "{uri} stands in the set twice"),
        }
    }
}

impl core::error::Error for SetError {}

/// A list of targets under one name, with a policy. It never changes; a reload makes another around the same targets.
#[derive(Debug)]
pub struct Set {
    config: SetConfig,
    members: Box<[Member]>,
    pub(crate) entries: Box<[MemberEntry]>,
    /// Whether all weights are the same, so that the consistent hash needs no logarithms.
    pub(crate) has_equal_weights: bool,
    /// Members that the alphabet is shared out over.
    pub(crate) ranges: usize,
    /// The marks that keep a target out.
    pub(crate) exclusion_flags: u32,
    /// What a new call is taken to weigh, in thousandths.
    pub(crate) new_work: u64,
    pub(crate) turns: RoundRobinState,
    budget: Arc<FailoverBudget>,
}

/// What a pick reads of a member, in one place, and its turn.
#[derive(Debug)]
pub(crate) struct MemberEntry {
    pub target: Arc<Target>,
    /// What the consistent hash knows it by.
    pub seed: u64,
    /// Its [`tier`].
    pub tier: u32,
    pub enabled: bool,
    pub weight: u16,
    /// Calls from which on it is full.
    pub capacity: u32,
    /// 2³² ÷ weight.
    pub inverse: u64,
    /// Its range of the alphabet.
    pub range: Option<usize>,
    /// From one turn to the next: the less it weighs, the longer.
    pub stride: u64,
    /// When its next turn is.
    pub due: AtomicU64,
}

/// Fraction bits of a [`Part::stride`], where that of the heaviest member is one. Time lasts for 2⁴⁴ of its turns.
pub(crate) const STRIDE_BITS: u32 = 20;

/// Whose turn it is. Begins anew with each reload.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct RoundRobinState {
    /// For round robin: requests so far.
    pub served: AtomicU32,
    /// For weighted round robin: the latest turn that was taken. As long as nobody is away all others are due later.
    pub time: AtomicU64,
}

impl Set {
    /// A set of `members`.
    ///
    /// # Errors
    ///
    /// There are none or too many, or one stands there twice.
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
            // Spread out, so that those that weigh little come between the turns of those that weigh much, each by itself.
            let first_turn = stride * (2 * at + 1) / (2 * count);
            MemberEntry {
                target: Arc::clone(&member.target),
                seed: member.target.seed(),
                tier: tier(member.priority, member.weight),
                enabled: member.enabled,
                weight: member.weight,
                // So many there can't be.
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

    /// What the operator says of it.
    #[must_use]
    pub fn config(&self) -> &SetConfig {
        &self.config
    }

    /// Its members, in the order in which they were given.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The failovers that its members are given. Begins anew with each reload.
    #[must_use]
    pub const fn budget(&self) -> &Arc<FailoverBudget> {
        &self.budget
    }

    /// Whether a member takes new work now, by all that is known here.
    #[must_use]
    pub fn is_in_service(&self, member: usize, now: Timestamp) -> bool {
        let member = self.members.get(member);
        member.is_some_and(|member| matches!(self.state(member, now), TargetState::Up | TargetState::SlowStart { .. }))
    }

    /// The place of a target among the members.
    #[must_use]
    pub fn position(&self, id: TargetId) -> Option<usize> {
        self.members.iter().position(|member| member.target.id() == id)
    }

    /// What a transaction of `class` weighs at `target`, in thousandths of a BYE.
    #[must_use]
    pub fn work_of(&self, target: &Target, class: MethodClass) -> u32 {
        u32::from(match &self.config.weights {
            Weights::Fixed(weights) => weights.of(class),
            Weights::Adaptive => target.measured_weight(class, &MethodWeights::TLWL_1_75),
        })
    }

    /// A transaction of `class` begins at a target of this set. `None` where there is no such member.
    #[must_use]
    pub fn begin_request(&self, member: usize, now: Timestamp, class: MethodClass) -> Option<RequestGuard> {
        let target = &self.members.get(member)?.target;
        Some(target.begin_request(now, self.work_of(target, class), class))
    }

    /// A call begins at a target of this set. `None` where it has as many as it may have, or there is no such member.
    #[must_use]
    pub fn begin_call(&self, member: usize) -> Option<CallGuard> {
        let member = self.members.get(member)?;
        match member.capacity {
            Some(capacity) => member.target.try_begin_call(capacity),
            None => Some(member.target.begin_call()),
        }
    }

    /// Whether a member takes new work, by all that is known here: not by passive detection, nor by its capacity.
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

    /// All that is known of a member. `None` where there is no such member.
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

    /// Its share of what it weighs, in thousandths.
    #[inline]
    pub(crate) fn share(&self, target: &Target, now: Timestamp) -> u16 {
        target.health().share(now, self.config.slow_start)
    }
}

/// What transactions weigh before anything is measured.
fn preset(config: &SetConfig) -> MethodWeights {
    match config.weights {
        Weights::Fixed(weights) => weights,
        Weights::Adaptive => MethodWeights::TLWL_1_75,
    }
}
