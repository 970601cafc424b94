//! Instruction counts of selecting one of eight targets, measured by callgrind like those of a shard; see there for
//! the requirements: `cargo bench -p strowger-balancer --bench instructions`.

#![expect(
    missing_docs,
    unused_qualifications,
    clippy::disallowed_macros,
    clippy::disallowed_types,
    reason = "what the macros of gungraun write"
)]

use std::hint::black_box;

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig};
use strowger_balancer::{
    Advice, CallGuard, Candidates, Member, MemberOrder, MethodClass, Policy, Probe, RequestGuard, SelectionInput, Set,
    SetConfig, Target, Weights,
};
use strowger_foundation::Timestamp;

/// Repetitions of the work in a benchmark.
const TIMES: u64 = 1_000;

/// Eight probed targets under load.
struct Pool {
    set: Set,
    order: MemberOrder,
    _tokens: Vec<(Option<CallGuard>, Option<RequestGuard>)>,
}

fn pool(policy: Policy, candidates: Candidates, weights: [u16; 8]) -> Pool {
    let member = |(weight, number): (u16, usize)| Member {
        weight,
        capacity: Some(10_000),
        ..Member::new(Target::new("pool", format!("sip:192.0.2.{number}:5060").as_bytes()))
    };
    let (probe, weighing) = (Some(Probe::default()), Weights::Adaptive);
    let config =
        SetConfig { name: "pool".into(), policy, candidates, probe, weights: weighing, ..SetConfig::default() };
    let set = Set::new(config, weights.into_iter().zip(1..).map(member).collect()).expect("valid");
    let tokens = |number: usize| {
        (set.begin_call(number * 5 % 8), set.begin_request(number * 5 % 8, Timestamp::ZERO, MethodClass::Invite))
    };
    let tokens = (0..50).map(tokens).collect();
    Pool { set, order: MemberOrder::new(), _tokens: tokens }
}

fn even(policy: Policy, candidates: Candidates) -> Pool {
    pool(policy, candidates, [1; 8])
}

fn nothing(_: usize) -> Advice {
    Advice::Neutral
}

/// The limit, in instructions for one selection.
fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, TIMES * instructions)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

#[library_benchmark]
#[bench::hash(args = (even(Policy::Hash, Candidates::All)), config = at_most(1_515))]
#[bench::weighted_hash(args = (pool(Policy::Hash, Candidates::All, [1, 2, 3, 4, 5, 6, 7, 8])), config = at_most(1_720))]
#[bench::weighted(args = (pool(Policy::Weighted, Candidates::All, [1, 2, 3, 4, 5, 6, 7, 8])), config = at_most(1_760))]
#[bench::round_robin(args = (even(Policy::RoundRobin, Candidates::All)), config = at_most(1_540))]
#[bench::least_calls(args = (even(Policy::LeastCalls, Candidates::All)), config = at_most(1_855))]
#[bench::least_work(args = (even(Policy::LeastWork, Candidates::All)), config = at_most(1_905))]
#[bench::weighted_least_work(args = (pool(Policy::LeastWork, Candidates::All, [1, 2, 3, 4, 5, 6, 7, 8])), config = at_most(2_560))]
#[bench::least_work_of_two(args = (even(Policy::LeastWork, Candidates::Two)), config = at_most(2_170))]
#[bench::response_time(args = (even(Policy::ResponseTime, Candidates::All)), config = at_most(2_090))]
fn order(mut pool: Pool) -> (usize, Pool) {
    let mut chosen = 0;
    for draw in 0..TIMES {
        let call_id = black_box(b"843817637684230-4711@192.0.2.10");
        let pick = SelectionInput {
            now: Timestamp::from_millis(draw),
            call_id,
            key: call_id,
            random: draw.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            begins_call: true,
            limit: 4,
            advice: &nothing,
        };
        pool.set.select(&pick, &mut pool.order);
        chosen += black_box(&pool.order).first().copied().unwrap_or_default();
    }
    (chosen, pool)
}

// The cost of counting an INVITE answered after ringing, and its call.
#[library_benchmark]
#[bench::call(args = (even(Policy::LeastWork, Candidates::All)), config = at_most(157))]
fn count(pool: Pool) -> Pool {
    for number in 0..TIMES {
        let now = Timestamp::from_millis(number);
        let member = black_box(number as usize % 8);
        let call_guard = pool.set.begin_call(member);
        if let Some(mut work) = pool.set.begin_request(member, now, MethodClass::Invite) {
            work.handle_provisional(now, 100);
            work.handle_provisional(now, 180);
            work.handle_final(now);
        }
        drop(black_box(call_guard));
    }
    pool
}

library_benchmark_group!(name = work, benchmarks = [order, count]);
main!(library_benchmark_groups = work);
