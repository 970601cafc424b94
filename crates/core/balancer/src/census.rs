//! Who of a set is there for a request.

use crate::hash::mix;
use crate::health::{DRAINING, WHOLE_SHARE};
use crate::order::{Advice, Basis, Pick};
use crate::policy::Policy;
use crate::rank::{AVOIDED, PASSED_OVER, WEIGHS_NOTHING};
use crate::set::{MAX_MEMBERS, Part, Set};

/// Whether a request may go to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Out,
    /// It has as many calls as it may have.
    Full,
    Avoided,
    InService,
    /// In service since a short time ago.
    Starting,
    /// It starts slowly, and this request is left to others if there are any.
    PassedOver,
}

impl Standing {
    #[inline]
    fn of(set: &Set, pick: &Pick<'_>, at: usize, part: &Part) -> Self {
        let target = &part.target;
        if !part.enabled || target.health().has(set.barred) {
            return Self::of_barred(set, pick, at, part);
        }
        let is_full = pick.begins_call && target.calls() >= part.capacity;
        match (pick.advice)(at) {
            Advice::Free if is_full => Self::Full,
            Advice::Free if set.share(target, pick.now) < WHOLE_SHARE => Self::Starting,
            Advice::Free => Self::InService,
            Advice::Avoid if !is_full => Self::Avoided,
            // Nor is who is full a last resort.
            Advice::Avoid | Advice::LeaveAlone => Self::Out,
        }
    }

    /// Of one that is kept out: by the operator, or for answering no probe, which may be no reason.
    #[cold]
    fn of_barred(set: &Set, pick: &Pick<'_>, at: usize, part: &Part) -> Self {
        let target = &part.target;
        let is_tried = part.enabled && set.config().tries_down && !target.health().has(DRAINING);
        let is_full = pick.begins_call && target.calls() >= part.capacity;
        if is_tried && !is_full && (pick.advice)(at) == Advice::Free { Self::Avoided } else { Self::Out }
    }
}

/// Who is there, asked once for each request: others count at the same time.
pub(crate) struct Census<'a> {
    standings: &'a mut [Standing; MAX_MEMBERS],
    /// Nobody is in service, so those who are avoided are chosen from.
    is_last_resort: bool,
    /// The lowest tier of those who are chosen from that weigh anything, or where it would be.
    first_tier: u32,
    /// Those who start slowly have drawn lots for the request.
    pub has_lots: bool,
    /// Whether who is full keeps its place: calls that end should move no keys.
    keeps_full: bool,
    /// Where they are shared out or gone round: places, of those of that tier.
    pub places: u64,
    /// Where it counts: the shortest response time that is expected of anybody, in ticks.
    pub fastest: u32,
}

impl<'a> Census<'a> {
    /// With room for everybody.
    pub(crate) fn new(standings: &'a mut [Standing; MAX_MEMBERS]) -> Self {
        let (is_last_resort, has_lots, keeps_full) = (false, false, false);
        Self { standings, is_last_resort, first_tier: 0, has_lots, keeps_full, places: 0, fastest: u32::MAX }
    }

    /// The members', in their order, and then nobody's.
    #[inline]
    pub(crate) fn standings(&self) -> &[Standing; MAX_MEMBERS] {
        self.standings
    }

    pub(crate) fn take(&mut self, set: &Set, pick: &Pick<'_>, basis: &Basis) {
        let (mut in_service, mut starting) = (0, 0);
        let (mut first_in_service, mut first_avoided) = (u32::MAX, u32::MAX);
        for (at, (part, standing)) in set.parts.iter().zip(self.standings.iter_mut()).enumerate() {
            *standing = Standing::of(set, pick, at, part);
            match standing {
                Standing::InService | Standing::Starting => {
                    in_service += 1;
                    starting += usize::from(*standing == Standing::Starting);
                    first_in_service = first_in_service.min(part.tier);
                }
                Standing::Avoided => first_avoided = first_avoided.min(part.tier),
                Standing::Out | Standing::Full | Standing::PassedOver => {}
            }
        }
        self.is_last_resort = in_service == 0;
        let first = if self.is_last_resort { first_avoided } else { first_in_service };
        self.first_tier = first & !WEIGHS_NOTHING;
        self.keeps_full = set.config().policy.is_by_key();
        // Where all start nobody stands back.
        self.has_lots = starting != 0 && starting != in_service;
        if self.has_lots {
            self.draw_lots(set, pick, basis);
        }
        match basis {
            Basis::Place(_) => self.count_places(set),
            _ if set.config().policy == Policy::ResponseTime => self.find_fastest(set, pick),
            _ => {}
        }
    }

    /// Of those who start slowly some are passed over. By lot: of those requests that would be its own each gets its share.
    /// Policies that go by load would give it everything, since it has nothing to do; so there one lot is drawn for all, and each
    /// gets what its weight and its share are of all weights and shares, and no more. Of two candidates its own is what it is the
    /// first for.
    fn draw_lots(&mut self, set: &Set, pick: &Pick<'_>, basis: &Basis) {
        let is_by_load = matches!(basis, Basis::Load(_));
        // Where on a line on which all parts lie one behind the other. Those that do not start are behind its end, together.
        let at = if is_by_load { (lot(pick.draw) * self.all_parts(set, pick)) >> LOT_BITS } else { 0 };
        let mut before = 0;
        for (part, standing) in set.parts.iter().zip(self.standings.iter_mut()) {
            if *standing != Standing::Starting {
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
                    Basis::Rendezvous(hash)
                    | Basis::Candidates(hash)
                    | Basis::Place(hash)
                    | Basis::Range { hash, .. } => hash,
                    Basis::Load(_) | Basis::Due(_) | Basis::Listed => pick.draw,
                };
                lot(number ^ !part.seed) * u64::from(WHOLE_SHARE) < share << LOT_BITS
            };
            if !has_lot {
                *standing = Standing::PassedOver;
            }
        }
    }

    /// What those in service of the first tier weigh together, each by its share.
    fn all_parts(&self, set: &Set, pick: &Pick<'_>) -> u64 {
        let parts = set.parts.iter().zip(self.standings.iter()).filter(|(part, _)| part.tier == self.first_tier);
        let weights = parts.map(|(part, standing)| match standing {
            Standing::InService => u64::from(WHOLE_SHARE) * u64::from(part.weight),
            Standing::Starting => u64::from(set.share(&part.target, pick.now)) * u64::from(part.weight),
            Standing::Out | Standing::Full | Standing::Avoided | Standing::PassedOver => 0,
        });
        weights.sum()
    }

    fn count_places(&mut self, set: &Set) {
        let parts = set.parts.iter().zip(self.standings.iter());
        self.places = parts.filter(|(part, standing)| self.has_place(part, **standing)).count() as u64;
    }

    fn find_fastest(&mut self, set: &Set, pick: &Pick<'_>) {
        let parts = set.parts.iter().zip(self.standings.iter());
        let parts = parts.filter(|(_, standing)| self.set_back(**standing).is_some_and(|mark| mark != AVOIDED));
        let ticks = parts.filter_map(|(part, _)| part.target.measures().expected_ticks(pick.now));
        self.fastest = ticks.min().unwrap_or(u32::MAX);
    }

    /// What makes a member come after those of its tier, as a mark of a tier: zero where nothing does. `None` where it may not be
    /// chosen.
    #[inline]
    pub(crate) fn set_back(&self, standing: Standing) -> Option<u32> {
        match standing {
            Standing::InService | Standing::Starting => Some(0),
            Standing::PassedOver => Some(PASSED_OVER),
            Standing::Avoided => Some(if self.is_last_resort { 0 } else { AVOIDED }),
            Standing::Out | Standing::Full => None,
        }
    }

    #[inline]
    pub(crate) fn has_place(&self, part: &Part, standing: Standing) -> bool {
        let is_there = match standing {
            Standing::InService | Standing::Starting => true,
            Standing::Avoided => self.is_last_resort,
            Standing::Full => self.keeps_full,
            Standing::Out | Standing::PassedOver => false,
        };
        is_there && part.tier == self.first_tier
    }
}

/// Bits of a lot. All weights by their shares have 34 at most.
const LOT_BITS: u32 = 24;

fn lot(number: u64) -> u64 {
    mix(number) >> (64 - LOT_BITS)
}
