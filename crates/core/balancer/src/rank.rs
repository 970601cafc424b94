//! How good members are for a request, and the best of them.

use crate::selection::MAX_TRIES;
use crate::set::MAX_MEMBERS;

/// What stands before all loads: spares come after the others, and who weighs nothing after those of its priority.
pub(crate) fn tier(priority: u16, weight: u16) -> u32 {
    u32::from(priority) << 1 | if weight == 0 { ZERO_WEIGHT } else { 0 }
}

/// The mark of a tier of those who weigh nothing.
pub(crate) const ZERO_WEIGHT: u32 = 1;

/// Who is passed over comes after all.
pub(crate) const DEFERRED: u32 = 1 << 17;
/// Who is avoided comes after even those.
pub(crate) const AVOIDED: u32 = 1 << 18;

/// How good a member is for a request, the lowest is the best: 19 bits of its tier, 64 of its load, 37 that decide between equal
/// ones, and 8 of its index. In one number, since comparing ranks is most of what there is to do.
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

/// The best so far, the best first.
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

    /// Puts one first, wherever it was.
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
