//! Order in which a request tries the servers of a name.

use smallvec::SmallVec;

use crate::{Candidate, CandidateList, Hop};

/// Maximum number of hops one request tries: each gets a share of Timer B, and callers do not wait longer.
pub const MAX_HOPS: usize = 8;

/// Maximum number of candidates; an answer with more is truncated.
pub const MAX_CANDIDATES: usize = 64;

/// Weight unit relative to a weight of 0, which RFC 2782 gives "a very small chance".
const WEIGHT_UNIT: u64 = 256;

impl CandidateList {
    /// Creates a list of these candidates, sorted by rank and priority and truncated to [`MAX_CANDIDATES`].
    #[must_use]
    pub fn new(mut candidates: Vec<Candidate>) -> Self {
        candidates.retain(|candidate| !candidate.hops.is_empty());
        candidates.sort_by_key(|candidate| (candidate.rank, candidate.priority));
        candidates.truncate(MAX_CANDIDATES);
        Self { candidates }
    }

    //= rfc3263#4.2:first
    /// Writes into `out`, after clearing it, the hops in the order in which one request tries them, each once and at
    /// most [`MAX_HOPS`]: by rank, by priority, and within equal priority by weight (RFC 2782). `choice` drives the
    /// weighted selection and may be any number that differs between requests. Equal numbers give equal orders, so a
    /// retransmission, a CANCEL and an ACK that are located again reach the same server. Hops matched by `avoid` go
    /// last.
    pub fn order(&self, choice: u64, avoid: impl Fn(&Hop) -> bool, out: &mut SmallVec<[Hop; 4]>) {
        out.clear();
        let mut avoided: SmallVec<[Hop; MAX_HOPS]> = SmallVec::new();
        let mut draw = SplitMix64(choice);
        let mut left = RemainingCandidates::new(self);
        // Only the first MAX_HOPS are tried.
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

/// Candidates not yet taken.
struct RemainingCandidates<'a> {
    candidates: &'a [Candidate],
    /// One bit per candidate.
    remaining: u64,
}

impl<'a> RemainingCandidates<'a> {
    fn new(located: &'a CandidateList) -> Self {
        let count = located.candidates.len().min(MAX_CANDIDATES);
        let untaken = if count == MAX_CANDIDATES { u64::MAX } else { (1 << count) - 1 };
        Self { candidates: &located.candidates, remaining: untaken }
    }

    /// Takes the next candidate: one of those with the lowest rank and priority, chosen by weight.
    //= rfc2782#Priority
    fn take(&mut self, draw: &mut SplitMix64) -> Option<&'a Candidate> {
        let place = |candidate: &Candidate| (candidate.rank, candidate.priority);
        let best = self.rest().map(|(_, candidate)| place(candidate)).min()?;
        let equals = || self.rest().filter(|(_, candidate)| place(candidate) == best);
        // RFC 2782 draws from 0 to the sum, both inclusive, which gives the first of two equal weights two thirds.
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

/// Pseudo-random number generator SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// Returns the next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let scaled = (u128::from(self.next()) * u128::from(bound)) >> 64;
        u64::try_from(scaled).unwrap_or(0)
    }
}
