//! Properties of the models that hold for any input.

use proptest::prelude::*;
use strowger_plan::capacity::{mg1_capacity, mgck_capacity, mmck_capacity};
use strowger_plan::{
    Availability, Beta, Curve, Objective, ServiceTime, TwoStage, databases, mg1, mgck, mmck, threads_on_one_core,
};

/// Loads from far below to far above a server's capacity.
fn loads() -> impl Strategy<Value = f64> {
    prop_oneof![1e-6..0.5_f64, 0.5..1.5_f64, Just(1.0), 1.5..100.0_f64]
}

fn services() -> impl Strategy<Value = f64> {
    prop_oneof![Just(133.4e-6), 1e-7..1e-3_f64, 1e-3..10.0_f64]
}

fn servers() -> impl Strategy<Value = u32> {
    prop_oneof![1..9_u32, 1..1_025_u32]
}

fn extra() -> impl Strategy<Value = u64> {
    prop_oneof![0..300_u64, 0..1_000_000_u64]
}

fn shares() -> impl Strategy<Value = Vec<f64>> {
    proptest::collection::vec(0.01..1.0_f64, 1..12).prop_map(|parts| {
        let sum: f64 = parts.iter().sum();
        parts.iter().map(|part| part / sum).collect()
    })
}

const SLACK: f64 = 1e-9;

proptest! {
    #[test]
    fn mmck_is_a_distribution(load in loads(), service in services(), servers in servers(), extra in extra()) {
        let queue = u64::from(servers) + extra;
        let rate = load * f64::from(servers) / service;
        let answer = mmck(rate, service, servers, queue).unwrap();
        for share in [answer.drop_probability, answer.idle_probability, answer.utilization] {
            prop_assert!((0.0..=1.0).contains(&share), "{answer:?}");
        }
        prop_assert!(answer.wait_s >= 0.0 && answer.in_queue <= extra as f64 * (1.0 + SLACK), "{answer:?}");
        // Each packet is dropped or served, and served packets keep servers busy.
        let served = rate * (1.0 - answer.drop_probability);
        prop_assert!((served - answer.throughput_per_s).abs() <= rate * SLACK, "{answer:?}");
        prop_assert!(answer.throughput_per_s <= f64::from(servers) / service * (1.0 + SLACK));
        // An infinite queue under overload drops least.
        prop_assert!(answer.drop_probability >= 1.0 - 1.0 / answer.rho - SLACK);
    }

    #[test]
    fn mmck_drops_more_with_more_load(
        load in loads(), more in 1.0..3.0_f64, service in services(), servers in servers(), extra in extra(),
    ) {
        let queue = u64::from(servers) + extra;
        let rate = load * f64::from(servers) / service;
        let (less, more) = (mmck(rate, service, servers, queue).unwrap(), mmck(rate * more, service, servers, queue).unwrap());
        prop_assert!(less.drop_probability <= more.drop_probability + SLACK);
        prop_assert!(less.utilization <= more.utilization + SLACK);
        prop_assert!(less.in_queue <= more.in_queue * (1.0 + SLACK) + SLACK);
        prop_assert!(less.throughput_per_s <= more.throughput_per_s * (1.0 + SLACK));
    }

    #[test]
    fn mmck_drops_less_in_longer_queues(
        load in loads(), service in services(), servers in servers(), extra in extra(), more in 1..1_000_u64,
    ) {
        let queue = u64::from(servers) + extra;
        let rate = load * f64::from(servers) / service;
        let (small, large) = (mmck(rate, service, servers, queue).unwrap(), mmck(rate, service, servers, queue + more).unwrap());
        prop_assert!(large.drop_probability <= small.drop_probability + SLACK);
        prop_assert!(large.wait_s >= small.wait_s * (1.0 - SLACK) - SLACK * service);
    }

    #[test]
    fn mmck_drops_less_with_more_servers(
        load in loads(), service in services(), servers in 1..512_u32, extra in extra(), more in 1..64_u32,
    ) {
        // The same number of places, at the same rate.
        let queue = u64::from(servers + more) + extra;
        let rate = load * f64::from(servers) / service;
        let (few, many) = (mmck(rate, service, servers, queue).unwrap(), mmck(rate, service, servers + more, queue).unwrap());
        prop_assert!(many.drop_probability <= few.drop_probability + SLACK);
        prop_assert!(many.wait_s <= few.wait_s * (1.0 + SLACK) + SLACK * service);
    }

    #[test]
    fn mgck_of_exponential_times_is_mmck(load in loads(), service in services(), servers in servers(), extra in extra()) {
        let queue = u64::from(servers) + extra;
        let rate = load * f64::from(servers) / service;
        let general = mgck(rate, ServiceTime::exponential(service).unwrap(), servers, queue).unwrap();
        let markov = mmck(rate, service, servers, queue).unwrap();
        prop_assert!((general.drop_probability - markov.drop_probability).abs() <= SLACK);
        prop_assert!((general.wait_s - markov.wait_s).abs() <= markov.wait_s * 1e-6 + SLACK * service);
    }

    #[test]
    fn mgck_drops_more_with_more_variance(
        load in loads(), service in services(), servers in servers(), extra in extra(),
        scv in 0.0..5.0_f64, more in 0.0..5.0_f64,
    ) {
        let queue = u64::from(servers) + extra;
        let rate = load * f64::from(servers) / service;
        let of = |scv| mgck(rate, ServiceTime::with_scv(service, scv).unwrap(), servers, queue).unwrap();
        let (less, more) = (of(scv), of(scv + more));
        prop_assert!((0.0..=1.0).contains(&less.drop_probability), "{less:?}");
        prop_assert!(less.drop_probability <= more.drop_probability + SLACK, "{less:?} {more:?}");
        prop_assert!(less.in_queue >= 0.0 && less.in_queue <= extra as f64 && less.wait_s.is_finite(), "{less:?}");
    }

    #[test]
    fn mg1_waits_longer_with_more_load_and_more_variance(
        load in 1e-6..0.999_f64, other in 0.0..1.0_f64, service in services(), scv in 0.0..10.0_f64,
    ) {
        let time = ServiceTime::with_scv(service, scv).unwrap();
        let answer = mg1(load / service, time).unwrap();
        prop_assert!(answer.wait_s >= 0.0 && (0.0..1.0).contains(&answer.rho));
        let lighter = mg1(load * other.max(1e-6) / service, time).unwrap();
        prop_assert!(lighter.wait_s <= answer.wait_s * (1.0 + SLACK));
        let steadier = mg1(load / service, ServiceTime::with_scv(service, scv * other).unwrap()).unwrap();
        prop_assert!(steadier.wait_s <= answer.wait_s * (1.0 + SLACK));
        // The moments survive serialization.
        let again: ServiceTime = serde_json::from_str(&serde_json::to_string(&time).unwrap()).unwrap();
        prop_assert!((again.second_moment_s2() / time.second_moment_s2() - 1.0).abs() < SLACK);
    }

    #[test]
    fn mmck_with_a_huge_queue_is_mm1(load in 0.01..0.95_f64, service in services()) {
        let endless = mg1(load / service, ServiceTime::exponential(service).unwrap()).unwrap();
        let long = mmck(load / service, service, 1, 1_000_000).unwrap();
        prop_assert!((long.wait_s / endless.wait_s - 1.0).abs() < 1e-9);
    }

    #[test]
    fn two_stages_carry_no_more_than_either(
        first in 0..6_u32, first_capacity in 1.0..2_000.0_f64, second_capacity in 1.0..2_000.0_f64, shares in shares(),
        load in 0.0..20_000.0_f64,
    ) {
        let cluster = TwoStage::new(first, first_capacity, second_capacity, &shares).unwrap();
        let carried = cluster.throughput(load);
        let behind = shares.len() as f64 * second_capacity;
        prop_assert!(carried >= 0.0 && carried <= load * (1.0 + SLACK) && carried <= behind * (1.0 + SLACK));
        if first > 0 {
            prop_assert!(carried <= f64::from(first) * first_capacity * (1.0 + SLACK));
        }
        prop_assert!(carried <= cluster.capacity() * (1.0 + SLACK));
        prop_assert!(cluster.throughput(load * 1.1) >= carried * (1.0 - SLACK));
        let all = cluster.carries_all_up_to();
        prop_assert!((cluster.throughput(all) / all - 1.0).abs() < SLACK);
        prop_assert!(cluster.throughput(all * 1.01) < all * 1.01);
    }

    #[test]
    fn break_points_define_the_curve(
        first in 0..6_u32, first_capacity in 1.0..2_000.0_f64, second_capacity in 1.0..2_000.0_f64, shares in shares(),
        load in 0.0..20_000.0_f64,
    ) {
        let cluster = TwoStage::new(first, first_capacity, second_capacity, &shares).unwrap();
        let (mut x, mut y, mut slope) = (0.0, 0.0, 1.0);
        for point in cluster.break_points() {
            prop_assert!(point.slope_after < slope && point.load_per_s > x);
            if point.load_per_s > load {
                break;
            }
            prop_assert!((y + (point.load_per_s - x) * slope - point.throughput_per_s).abs() < 1e-6 * point.throughput_per_s);
            (x, y, slope) = (point.load_per_s, point.throughput_per_s, point.slope_after);
        }
        let by_the_line = y + (load - x) * slope;
        prop_assert!((by_the_line - cluster.throughput(load)).abs() <= 1e-6 * (1.0 + by_the_line));
    }

    #[test]
    fn an_even_cluster_is_limited_by_the_smaller_stage(
        first in 1..20_u32, second in 1..20_u32, first_capacity in 1.0..2_000.0_f64, second_capacity in 1.0..2_000.0_f64,
    ) {
        let cluster = TwoStage::even(first, first_capacity, second, second_capacity).unwrap();
        let least = (f64::from(first) * first_capacity).min(f64::from(second) * second_capacity);
        prop_assert!((cluster.capacity() / least - 1.0).abs() < SLACK);
    }

    #[test]
    fn more_spares_raise_availability(
        first in 1..6_u32, clusters in 1..50_u32, members in 1..6_u32, node in 0.0..1.0_f64,
    ) {
        let of = |s, p, b| Availability::two_stage(s, node, p, b, node).unwrap();
        let here = of(first, clusters, members);
        prop_assert!((0.0..=1.0).contains(&here.availability) && (0.0..=1.0).contains(&here.unavailability));
        prop_assert!((here.availability + here.unavailability - 1.0).abs() < 1e-12);
        prop_assert!(of(first + 1, clusters, members).unavailability <= here.unavailability * (1.0 + SLACK));
        prop_assert!(of(first, clusters, members + 1).unavailability <= here.unavailability * (1.0 + SLACK));
        prop_assert!(of(first, clusters + 1, members).unavailability >= here.unavailability * (1.0 - SLACK));
        let plain = (1.0 - (1.0 - node).powi(first as i32))
            * (1.0 - (1.0 - node).powi(members as i32)).powi(clusters as i32);
        prop_assert!((here.availability - plain).abs() < 1e-12);
    }

    #[test]
    fn partitions_never_work_more_than_replicas(
        many in 1..100_u32, writes in 0.0..1e6_f64, reads in 0.0..100.0_f64, write in 1e-6..1.0_f64, ratio in 0.0..2.0_f64,
    ) {
        let answer = databases(many, writes, reads, write, ratio).unwrap();
        prop_assert!(answer.partitioned <= answer.replicated * (1.0 + SLACK));
        let at_the_limit = databases(many, answer.replicated_limit_per_s, reads, write, ratio).unwrap();
        prop_assert!((at_the_limit.replicated - 1.0).abs() < SLACK);
    }

    #[test]
    fn threads_on_a_core_are_never_faster_than_the_core(rate in 0.0..50_000.0_f64, threads in 1..65_u32) {
        let single = ServiceTime::exponential(65e-6).unwrap();
        let answer = threads_on_one_core(rate, single, threads, Beta::THESIS).unwrap();
        prop_assert!(answer.service.mean_s() >= single.mean_s() * f64::from(threads) * (1.0 - SLACK));
        prop_assert!((answer.service.scv() - 1.0).abs() < SLACK);
    }

    #[test]
    fn the_objective_fails_above_capacity(
        drops in 1e-6..0.5_f64, servers in 1..17_u32, extra in 1..2_000_u64, service in services(),
    ) {
        let queue = u64::from(servers) + extra;
        let found = mmck_capacity(Objective::Drops(drops), servers, queue, |_| Ok(service)).unwrap();
        let at = |rate| mmck(rate, service, servers, queue).unwrap().drop_probability;
        prop_assert!(at(found.rate_per_s) <= drops && at(found.rate_per_s * (1.0 + 1e-9)) > drops);
        prop_assert_eq!(found.measure, at(found.rate_per_s));
    }
}

#[test]
fn a_wait_objective_is_met_exactly() {
    let alpha = Curve::alpha_exponential();
    let service_at = |rate: f64| ServiceTime::with_scv(alpha.at(rate) * 7.9e-6 + 120e-6, 0.022);
    let found = mg1_capacity(Objective::WaitS(200e-6), service_at).unwrap();
    let wait = |rate: f64| mg1(rate, service_at(rate).unwrap()).unwrap().wait_s;
    assert!(wait(found.rate_per_s) <= 200e-6 && wait(found.rate_per_s * (1.0 + 1e-9)) > 200e-6);
    // An infinite queue drops nothing, so the limit is ρ = 1.
    let endless = mg1_capacity(Objective::Drops(0.01), service_at).unwrap();
    assert!((endless.rate_per_s * service_at(endless.rate_per_s).unwrap().mean_s() - 1.0).abs() < 1e-9);
    let busy = mgck_capacity(Objective::Utilization(0.7), 4, 200, service_at).unwrap();
    assert!((busy.measure - 0.7).abs() < 1e-9);
}

/// β of the thesis's tables falls with the rate before it rises: the first rate that breaks the objective counts.
#[test]
fn capacity_ends_at_the_first_violation() {
    let service = Curve::new(vec![(0.0, 100e-6), (4_000.0, 100e-6), (5_000.0, 250e-6), (6_000.0, 100e-6)]).unwrap();
    let found = mmck_capacity(Objective::Drops(0.01), 1, 200, |rate| Ok(service.at(rate))).unwrap();
    assert!((4_000.0..5_000.0).contains(&found.rate_per_s), "{found:?}");
}
