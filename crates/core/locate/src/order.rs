//! In which order one request tries the servers of an answer.

use smallvec::SmallVec;

use crate::{Candidate, CandidateList, Hop};

/// Hops that one request tries at most: with Timer B's share for each, more would outlast the caller's patience.
pub const MAX_HOPS: usize = 8;

/// Candidates of an answer that are looked at; an answer with more is cut here.
pub const MAX_CANDIDATES: usize = 64;

/// What a weight counts against a weight of 0, which RFC 2782 gives "a very small chance".
const WEIGHT_UNIT: u64 = 256;

impl CandidateList {
    /// An answer of these candidates, sorted by rank and priority and cut at [`MAX_CANDIDATES`].
    #[must_use]
    pub fn new(mut candidates: Vec<Candidate>) -> Self {
        candidates.retain(|candidate| !candidate.hops.is_empty());
        candidates.sort_by_key(|candidate| (candidate.rank, candidate.priority));
        candidates.truncate(MAX_CANDIDATES);
        Self { candidates }
    }

    /// Writes into `out`, which is emptied first, the hops in the order in which one request tries them, each once and at most
    /// [`MAX_HOPS`]: by rank, by priority, and within equal priority as `choice` says with regard to the weights (RFC 2782).
    /// `choice` may be any number that differs from request to request; equal ones give equal orders, so that a
    /// retransmission, a CANCEL and an ACK that are located again find the same server. Hops that `avoid` names go last.
    pub fn order(&self, choice: u64, avoid: impl Fn(&Hop) -> bool, out: &mut SmallVec<[Hop; 4]>) {
        out.clear();
        let mut avoided: SmallVec<[Hop; MAX_HOPS]> = SmallVec::new();
        let mut draw = SplitMix64(choice);
        let mut left = Remaining::new(self);
        // The first MAX_HOPS are tried, whatever stands behind them.
        while out.len() < MAX_HOPS
            && let Some(candidate) = left.take(&mut draw)
        {
            for hop in &candidate.hops {
                if out.contains(hop) || avoided.contains(hop) {
                    continue;
                }
                match avoid(hop) {
                    true if avoided.len() < MAX_HOPS => avoided.push(*hop),
                    false if out.len() < MAX_HOPS => out.push(*hop),
                    _ => {}
                }
            }
        }
        let room = MAX_HOPS.saturating_sub(out.len());
        out.extend(avoided.into_iter().take(room));
    }
}

/// The candidates that have not been taken yet.
struct Remaining<'a> {
    candidates: &'a [Candidate],
    /// A bit for each.
    remaining: u64,
}

impl<'a> Remaining<'a> {
    fn new(located: &'a CandidateList) -> Self {
        let count = located.candidates.len().min(MAX_CANDIDATES);
        let untaken = if count == MAX_CANDIDATES { u64::MAX } else { (1 << count) - 1 };
        Self { candidates: &located.candidates, remaining: untaken }
    }

    /// The next one: of those with the lowest rank and priority, one by weight.
    //= rfc2782#Priority
    fn take(&mut self, draw: &mut SplitMix64) -> Option<&'a Candidate> {
        let place = |candidate: &Candidate| (candidate.rank, candidate.priority);
        let best = self.rest().map(|(_, candidate)| place(candidate)).min()?;
        let equals = || self.rest().filter(|(_, candidate)| place(candidate) == best);
        // RFC 2782 draws from 0 to the sum, both included, which gives the first of two equal weights two thirds.
        let mut drawn = draw.below(equals().map(|(_, candidate)| share(candidate)).sum());
        let (index, taken) = equals().find(|(_, candidate)| {
            let found = drawn < share(candidate);
            drawn = drawn.saturating_sub(share(candidate));
            found
        })?;
        self.remaining &= !(1 << index);
        Some(taken)
    }

    fn rest(&self) -> impl Iterator<Item = (usize, &'a Candidate)> + use<'a> {
        let untaken = self.remaining;
        self.candidates.iter().take(MAX_CANDIDATES).enumerate().filter(move |(index, _)| untaken >> index & 1 == 1)
    }
}

fn share(candidate: &Candidate) -> u64 {
    u64::from(candidate.weight).saturating_mul(WEIGHT_UNIT).max(1)
}

/// A row of well mixed numbers from one (SplitMix64, Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 where that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let scaled = (u128::from(self.next()) * u128::from(bound)) >> 64;
        u64::try_from(scaled).unwrap_or(0)
    }
}
