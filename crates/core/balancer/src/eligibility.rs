//! Eligibility of a set's members for a request.

use crate::hash::mix;
use crate::health::{DRAINING, FULL_SHARE};
use crate::limits::MAX_MEMBERS;
use crate::policy::Policy;
use crate::rank::{AVOIDED, DEFERRED, ZERO_WEIGHT};
use crate::selection_input::{Advice, Criterion, SelectionInput};
use crate::set::{MemberEntry, Set};

/// The eligibility of a member for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eligibility {
    Unavailable,
    /// Has the maximum number of calls.
    Full,
    Avoided,
    InService,
    /// In service, but in slow start.
    SlowStart,
    /// In slow start, and this request goes to others if there are any.
    Deferred,
}

impl Eligibility {
    #[inline]
    fn of(set: &Set, pick: &SelectionInput<'_>, at: usize, part: &MemberEntry) -> Self {
        let target = &part.target;
        if !part.enabled || target.health().has(set.exclusion_flags) {
            return Self::of_excluded(set, pick, at, part);
        }
        let is_full = pick.begins_call && target.calls() >= part.capacity;
        match (pick.advice)(at) {
            Advice::Neutral if is_full => Self::Full,
            Advice::Neutral if set.share(target, pick.now) < FULL_SHARE => Self::SlowStart,
            Advice::Neutral => Self::InService,
            Advice::Avoid if !is_full => Self::Avoided,
            // A full member is no last resort either.
            Advice::Avoid | Advice::Exclude => Self::Unavailable,
        }
    }

    /// Returns the eligibility of an excluded member: disabled, drained or down. A member that only fails its probes
    /// may still be a last resort.
    #[cold]
    fn of_excluded(set: &Set, pick: &SelectionInput<'_>, at: usize, part: &MemberEntry) -> Self {
        let target = &part.target;
        let is_tried = part.enabled && set.config().tries_down && !target.health().has(DRAINING);
        let is_full = pick.begins_call && target.calls() >= part.capacity;
        if is_tried && !is_full && (pick.advice)(at) == Advice::Neutral { Self::Avoided } else { Self::Unavailable }
    }
}

/// The eligibility of all members, determined once per request, because other threads change the counts meanwhile.
pub(crate) struct EligibilityTable<'a> {
    eligibilities: &'a mut [Eligibility; MAX_MEMBERS],
    /// Set if no member is in service, so that avoided members are selected from.
    is_last_resort: bool,
    /// The lowest tier of the eligible members, without the zero-weight flag.
    first_tier: u32,
    /// Set if members in slow start have taken part in a draw for the request.
    pub has_slow_start_draw: bool,
    /// Whether full members keep their positions: the end of a call must not move keys.
    keeps_full: bool,
    /// Number of positions in the first tier, for modulo and round-robin policies.
    pub places: u64,
    /// The shortest expected response time of any member, in ticks, for policies that use it.
    pub fastest: u32,
}

impl<'a> EligibilityTable<'a> {
    /// Creates a table with room for all members.
    pub(crate) fn new(standings: &'a mut [Eligibility; MAX_MEMBERS]) -> Self {
        let (is_last_resort, has_lots, keeps_full) = (false, false, false);
        Self {
            eligibilities: standings,
            is_last_resort,
            first_tier: 0,
            has_slow_start_draw: has_lots,
            keeps_full,
            places: 0,
            fastest: u32::MAX,
        }
    }

    /// Returns the eligibilities in the order of the members; entries beyond them are unused.
    #[inline]
    pub(crate) fn eligibilities(&self) -> &[Eligibility; MAX_MEMBERS] {
        self.eligibilities
    }

    pub(crate) fn fill(&mut self, set: &Set, pick: &SelectionInput<'_>, basis: &Criterion) {
        let (mut in_service, mut starting) = (0, 0);
        let (mut first_in_service, mut first_avoided) = (u32::MAX, u32::MAX);
        for (at, (part, standing)) in set.entries.iter().zip(self.eligibilities.iter_mut()).enumerate() {
            *standing = Eligibility::of(set, pick, at, part);
            match standing {
                Eligibility::InService | Eligibility::SlowStart => {
                    in_service += 1;
                    starting += usize::from(*standing == Eligibility::SlowStart);
                    first_in_service = first_in_service.min(part.tier);
                }
                Eligibility::Avoided => first_avoided = first_avoided.min(part.tier),
                Eligibility::Unavailable | Eligibility::Full | Eligibility::Deferred => {}
            }
        }
        self.is_last_resort = in_service == 0;
        let first = if self.is_last_resort { first_avoided } else { first_in_service };
        self.first_tier = first & !ZERO_WEIGHT;
        self.keeps_full = set.config().policy.is_by_key();
        // If all are in slow start, none is deferred.
        self.has_slow_start_draw = starting != 0 && starting != in_service;
        if self.has_slow_start_draw {
            self.defer_slow_starters(set, pick, basis);
        }
        match basis {
            Criterion::Modulo(_) => self.count_places(set),
            _ if set.config().policy == Policy::ResponseTime => self.find_fastest(set, pick),
            _ => {}
        }
    }

    /// Defers some of the members in slow start, by a random draw. Under hash policies each keeps its share of the
    /// requests that would be its own. A load policy would give it everything, because it is idle; so one draw is
    /// made for all members, and each member in slow start gets what its weight and share are of the total, and no
    /// more. With two candidates, its own requests are those for which it is the first.
    fn defer_slow_starters(&mut self, set: &Set, pick: &SelectionInput<'_>, basis: &Criterion) {
        let is_by_load = matches!(basis, Criterion::Load(_));
        // A position on a line of all weights. The members not in slow start share the end of the line.
        let at = if is_by_load { (draw(pick.random) * self.total_weight(set, pick)) >> DRAW_BITS } else { 0 };
        let mut before = 0;
        for (part, standing) in set.entries.iter().zip(self.eligibilities.iter_mut()) {
            if *standing != Eligibility::SlowStart {
                continue;
            }
            let share = u64::from(set.share(&part.target, pick.now));
            let has_lot = if is_by_load && part.tier == self.first_tier {
                let from = before;
                before += share * u64::from(part.weight);
                (from..before).contains(&at)
            } else {
                let number = match *basis {
                    // The same keys each time, and increasingly many of them.
                    Criterion::Rendezvous(hash)
                    | Criterion::Candidates(hash)
                    | Criterion::Modulo(hash)
                    | Criterion::Range { hash, .. } => hash,
                    Criterion::Load(_) | Criterion::VirtualTime(_) | Criterion::ConfigOrder => pick.random,
                };
                draw(number ^ !part.seed) * u64::from(FULL_SHARE) < share << DRAW_BITS
            };
            if !has_lot {
                *standing = Eligibility::Deferred;
            }
        }
    }

    /// Returns the total weight of the first tier's members in service, each scaled by its share.
    fn total_weight(&self, set: &Set, pick: &SelectionInput<'_>) -> u64 {
        let parts = set.entries.iter().zip(self.eligibilities.iter()).filter(|(part, _)| part.tier == self.first_tier);
        let weights = parts.map(|(part, standing)| match standing {
            Eligibility::InService => u64::from(FULL_SHARE) * u64::from(part.weight),
            Eligibility::SlowStart => u64::from(set.share(&part.target, pick.now)) * u64::from(part.weight),
            Eligibility::Unavailable | Eligibility::Full | Eligibility::Avoided | Eligibility::Deferred => 0,
        });
        weights.sum()
    }

    fn count_places(&mut self, set: &Set) {
        let parts = set.entries.iter().zip(self.eligibilities.iter());
        self.places = parts.filter(|(part, standing)| self.has_place(part, **standing)).count() as u64;
    }

    fn find_fastest(&mut self, set: &Set, pick: &SelectionInput<'_>) {
        let parts = set.entries.iter().zip(self.eligibilities.iter());
        let parts = parts.filter(|(_, standing)| self.tier_offset(**standing).is_some_and(|mark| mark != AVOIDED));
        let ticks = parts.filter_map(|(part, _)| part.target.measures().expected_ticks(pick.now));
        self.fastest = ticks.min().unwrap_or(u32::MAX);
    }

    /// Returns the tier flag that puts a member after others of its tier, zero for none; `None` if it must not be
    /// selected.
    #[inline]
    pub(crate) fn tier_offset(&self, standing: Eligibility) -> Option<u32> {
        match standing {
            Eligibility::InService | Eligibility::SlowStart => Some(0),
            Eligibility::Deferred => Some(DEFERRED),
            Eligibility::Avoided => Some(if self.is_last_resort { 0 } else { AVOIDED }),
            Eligibility::Unavailable | Eligibility::Full => None,
        }
    }

    #[inline]
    pub(crate) fn has_place(&self, part: &MemberEntry, standing: Eligibility) -> bool {
        let is_there = match standing {
            Eligibility::InService | Eligibility::SlowStart => true,
            Eligibility::Avoided => self.is_last_resort,
            Eligibility::Full => self.keeps_full,
            Eligibility::Unavailable | Eligibility::Deferred => false,
        };
        is_there && part.tier == self.first_tier
    }
}

/// Bits of a draw. The sum of all weights times shares has at most 34 bits.
const DRAW_BITS: u32 = 24;

fn draw(number: u64) -> u64 {
    mix(number) >> (64 - DRAW_BITS)
}
