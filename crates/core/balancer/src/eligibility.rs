//! Who of a set is there for a request.

use crate::hash::mix;
use crate::health::{DRAINING, FULL_SHARE};
use crate::policy::Policy;
use crate::rank::{AVOIDED, DEFERRED, ZERO_WEIGHT};
use crate::selection::{Advice, Criterion, SelectionInput};
use crate::set::{MAX_MEMBERS, MemberEntry, Set};

/// Whether a request may go to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eligibility {
    Unavailable,
    /// It has as many calls as it may have.
    Full,
    Avoided,
    InService,
    /// In service since a short time ago.
    SlowStart,
    /// It starts slowly, and this request is left to others if there are any.
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
            // Nor is who is full a last resort.
            Advice::Avoid | Advice::Exclude => Self::Unavailable,
        }
    }

    /// Of one that is kept out: by the operator, or for answering no probe, which may be no reason.
    #[cold]
    fn of_excluded(set: &Set, pick: &SelectionInput<'_>, at: usize, part: &MemberEntry) -> Self {
        let target = &part.target;
        let is_tried = part.enabled && set.config().tries_down && !target.health().has(DRAINING);
        let is_full = pick.begins_call && target.calls() >= part.capacity;
        if is_tried && !is_full && (pick.advice)(at) == Advice::Neutral { Self::Avoided } else { Self::Unavailable }
    }
}

/// Who is there, asked once for each request: others count at the same time.
pub(crate) struct EligibilityTable<'a> {
    eligibilities: &'a mut [Eligibility; MAX_MEMBERS],
    /// Nobody is in service, so those who are avoided are chosen from.
    is_last_resort: bool,
    /// The lowest tier of those who are chosen from that weigh anything, or where it would be.
    first_tier: u32,
    /// Those who start slowly have drawn lots for the request.
    pub has_slow_start_draw: bool,
    /// Whether who is full keeps its place: calls that end should move no keys.
    keeps_full: bool,
    /// Where they are shared out or gone round: places, of those of that tier.
    pub places: u64,
    /// Where it counts: the shortest response time that is expected of anybody, in ticks.
    pub fastest: u32,
}

impl<'a> EligibilityTable<'a> {
    /// With room for everybody.
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

    /// The members', in their order, and then nobody's.
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
        // Where all start nobody stands back.
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

    /// Of those who start slowly some are passed over. By lot: of those requests that would be its own each gets its share.
    /// Policies that go by load would give it everything, since it has nothing to do; so there one lot is drawn for all, and each
    /// gets what its weight and its share are of all weights and shares, and no more. Of two candidates its own is what it is the
    /// first for.
    fn defer_slow_starters(&mut self, set: &Set, pick: &SelectionInput<'_>, basis: &Criterion) {
        let is_by_load = matches!(basis, Criterion::Load(_));
        // Where on a line on which all parts lie one behind the other. Those that do not start are behind its end, together.
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
                    // The same keys each time, and ever more of them.
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

    /// What those in service of the first tier weigh together, each by its share.
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

    /// What makes a member come after those of its tier, as a mark of a tier: zero where nothing does. `None` where it may not be
    /// chosen.
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

/// Bits of a lot. All weights by their shares have 34 at most.
const DRAW_BITS: u32 = 24;

fn draw(number: u64) -> u64 {
    mix(number) >> (64 - DRAW_BITS)
}
