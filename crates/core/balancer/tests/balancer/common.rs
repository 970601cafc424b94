//! Sets, requests and random numbers for the tests.

use std::collections::BTreeMap;

use strowger_balancer::{Advice, Member, MemberOrder, Policy, SelectionInput, Set, SetConfig, Target};
use strowger_foundation::{TagKey, Timestamp};

/// SplitMix64: a seed gives the same numbers everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let number = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ number >> 31
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.number()) * bound as u128) >> 64) as usize
    }

    /// Returns true one time in `of`.
    pub(crate) fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    /// Returns an exponentially distributed number.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        let unit = ((self.number() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        -mean * unit.ln()
    }
}

pub(crate) fn members(count: usize) -> Vec<Member> {
    (1..=count).map(|number| Member::new(Target::new("pool", format!("sip:192.0.2.{number}").as_bytes()))).collect()
}

pub(crate) fn weighted(weights: &[u16]) -> Vec<Member> {
    members(weights.len())
        .into_iter()
        .zip(weights)
        .map(|(member, weight)| Member { weight: *weight, ..member })
        .collect()
}

pub(crate) fn config(policy: Policy) -> SetConfig {
    SetConfig { name: "pool".into(), policy, ..SetConfig::default() }
}

pub(crate) fn set(policy: Policy, members: Vec<Member>) -> Set {
    Set::new(config(policy), members).expect("a valid set")
}

pub(crate) fn call_id(number: u64) -> String {
    format!("{:016x}@198.51.100.7", Random(number).number())
}

fn nothing(_: usize) -> Advice {
    Advice::Neutral
}

/// Returns advice to avoid the members for which this holds.
pub(crate) fn avoid(is_avoided: impl Fn(usize) -> bool) -> impl Fn(usize) -> Advice {
    move |at| if is_avoided(at) { Advice::Avoid } else { Advice::Neutral }
}

/// An INVITE with the Call-ID as key.
pub(crate) fn pick(call_id: &str) -> SelectionInput<'_> {
    let draw = TagKey::new([9; 16]).hash64(&[call_id.as_bytes()]);
    SelectionInput {
        now: Timestamp::from_millis(1_000_000),
        call_id: call_id.as_bytes(),
        key: call_id.as_bytes(),
        random: draw,
        begins_call: true,
        limit: 4,
        advice: &nothing,
    }
}

pub(crate) fn order(set: &Set, pick: &SelectionInput<'_>) -> Vec<usize> {
    let mut order = MemberOrder::new();
    set.select(pick, &mut order);
    order.to_vec()
}

/// Returns the first selected member of each of so many calls.
pub(crate) fn firsts(set: &Set, calls: u64) -> Vec<usize> {
    (0..calls).map(|number| order(set, &pick(&call_id(number)))[0]).collect()
}

/// Returns how often each member was chosen.
pub(crate) fn tally(chosen: impl IntoIterator<Item = usize>, members: usize) -> Vec<u64> {
    let mut counts: BTreeMap<usize, u64> = (0..members).map(|member| (member, 0)).collect();
    chosen.into_iter().for_each(|member| *counts.entry(member).or_default() += 1);
    counts.into_values().collect()
}

/// Asserts that each member gets about its share. The tolerance is the greater of `within` (of its share) and 4.5
/// standard deviations of independent draws.
pub(crate) fn assert_parts(counts: &[u64], weights: &[u16], within: f64, what: &str) {
    let all: u64 = counts.iter().sum();
    let whole: f64 = weights.iter().copied().map(f64::from).sum();
    for (count, weight) in counts.iter().zip(weights) {
        let part = f64::from(*weight) / whole;
        let expected = all as f64 * part;
        let bound = (expected * within).max(4.5 * (expected * (1.0 - part)).sqrt());
        assert!(
            (*count as f64 - expected).abs() <= bound,
            "{what}: {counts:?}, {expected:.0} ± {bound:.0} of {weight}"
        );
    }
}
