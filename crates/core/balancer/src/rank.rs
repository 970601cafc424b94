//! Ranks of members for a request, and the best ones.

use crate::limits::{MAX_MEMBERS, MAX_TRIES};

/// Returns the tier, which precedes all loads: spares come after others, and weight zero comes last within its
/// priority.
pub(crate) fn tier(priority: u16, weight: u16) -> u32 {
    u32::from(priority) << 1 | if weight == 0 { ZERO_WEIGHT } else { 0 }
}

/// The tier flag of weight zero.
pub(crate) const ZERO_WEIGHT: u32 = 1;

/// The tier flag of deferred members, which come after all others.
pub(crate) const DEFERRED: u32 = 1 << 17;
/// The tier flag of avoided members, which come even after those.
pub(crate) const AVOIDED: u32 = 1 << 18;

/// The rank of a member for a request, the lowest being the best: 19 bits of tier, 64 of load, 37 of tie-breaker and
/// 8 of index. It is one number, because a selection consists mostly of rank comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank(u128);

/// Worse than any member.
pub(crate) const WORST: Rank = Rank(u128::MAX);

const LOAD_SHIFT: u32 = 45;
const TIER_SHIFT: u32 = LOAD_SHIFT + 64;
const _: () = assert!(MAX_MEMBERS <= 1 << 8, "an index has 8 bits");

impl Rank {
    #[inline]
    pub(crate) fn new(tier: u32, load: u64, tie: u64, at: usize) -> Self {
        let low = (tie >> (64 - LOAD_SHIFT)) & !0xff | at as u64;
        Self(u128::from(tier) << TIER_SHIFT | u128::from(load) << LOAD_SHIFT | u128::from(low))
    }

    pub(crate) const fn tier(self) -> u32 {
        (self.0 >> TIER_SHIFT) as u32
    }

    pub(crate) const fn load(self) -> u64 {
        (self.0 >> LOAD_SHIFT) as u64
    }

    pub(crate) const fn at(self) -> usize {
        (self.0 & 0xff) as usize
    }
}

/// The best ranks so far, best first.
pub(crate) struct TopRanks(pub [Rank; MAX_TRIES]);

impl Default for TopRanks {
    fn default() -> Self {
        Self([WORST; MAX_TRIES])
    }
}

impl TopRanks {
    #[inline]
    pub(crate) fn offer(&mut self, rank: Rank) {
        let mut places = self.0.iter_mut().rev();
        let Some(mut free) = places.next().filter(|last| rank < **last) else { return };
        for place in places {
            if *place < rank {
                break;
            }
            *free = *place;
            free = place;
        }
        *free = rank;
    }

    /// Moves a rank to the front.
    pub(crate) fn promote(&mut self, rank: Rank) {
        let from = self.0.iter().position(|known| known.at() == rank.at()).unwrap_or(MAX_TRIES - 1);
        if let Some(front) = self.0.get_mut(..=from) {
            front.rotate_right(1);
        }
        if let Some(first) = self.0.first_mut() {
            *first = rank;
        }
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().filter(|rank| **rank != WORST).map(|rank| rank.at())
    }
}
