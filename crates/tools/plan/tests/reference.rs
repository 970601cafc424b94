//! M/M/c/K compared with its definition in 512 bits.
//!
//! Short queues are summed term by term. Long queues use the formulas of the papers, which lose at most a fifth of
//! those bits to cancellation.

use dashu_float::FBig;
use dashu_float::round::mode::HalfEven;
use strowger_plan::mmck;

type Big = FBig<HalfEven, 2>;

const BITS: usize = 512;

fn big(value: f64) -> Big {
    Big::try_from(value).unwrap().with_precision(BITS).value()
}

struct Reference {
    empty: f64,
    full: f64,
    busy: f64,
    waiting: f64,
}

/// p_n = p_0·Π λ/(μ·min(n, c)), n from 0 to K.
fn reference(rate_per_s: f64, service_s: f64, servers: u32, queue: u64) -> Reference {
    let offered = big(rate_per_s) * big(service_s);
    let rho = &offered / big(f64::from(servers));
    let (mut term, mut sum) = (big(1.0), big(1.0));
    let (mut busy, mut waiting) = (big(0.0), big(0.0));
    let c = u64::from(servers);
    for n in 1..=queue {
        if n < c {
            term = term * &offered / big(n as f64);
            busy += &term * big(n as f64);
        } else {
            term = if n == c { term * &offered / big(n as f64) } else { term * &rho };
            busy += &term * big(c as f64);
            waiting += &term * big((n - c) as f64);
        }
        sum += &term;
    }
    let of = |value: Big| (value / &sum).to_f64().value();
    Reference { empty: of(big(1.0)), full: of(term), busy: of(busy), waiting: of(waiting) }
}

/// The same by the formulas of the thesis (eq. 5.3 and 5.4) and of textbooks: geometric sums.
fn by_formula(rate_per_s: f64, service_s: f64, servers: u32, queue: u64) -> Reference {
    let offered = big(rate_per_s) * big(service_s);
    let c = big(f64::from(servers));
    let r = &offered / &c;
    let (mut term, mut sum, mut busy) = (big(1.0), big(0.0), big(0.0));
    for n in 0..servers {
        sum += &term;
        busy += &term * big(f64::from(n));
        term = term * &offered / big(f64::from(n + 1));
    }
    let places = queue - u64::from(servers);
    let (one, many) = (big(1.0), big(places as f64));
    let at_end = power(&r, places);
    let less = &one - &r;
    let (above, waiting) = if less == Big::ZERO {
        (&many + &one, &many * (&many + &one) / big(2.0))
    } else {
        let above = (&one - &at_end * &r) / &less;
        let waiting = &r * (&one - (&many + &one) * &at_end + &many * &at_end * &r) / (&less * &less);
        (above, waiting)
    };
    sum += &term * &above;
    busy += &term * &above * &c;
    let of = |value: Big| (value / &sum).to_f64().value();
    Reference { empty: of(one), full: of(&term * at_end), busy: of(busy), waiting: of(&term * waiting) }
}

fn power(base: &Big, exponent: u64) -> Big {
    let (mut result, mut square, mut left) = (big(1.0), base.clone(), exponent);
    while left > 0 {
        if left % 2 == 1 {
            result *= &square;
        }
        square = &square * &square;
        left /= 2;
    }
    result
}

#[track_caller]
fn agrees(what: &str, computed: f64, exact: f64, tolerance: f64) {
    if exact < 1e-290 {
        assert!(computed < 1e-280, "{what}: {computed:e}, exactly {exact:e}");
        return;
    }
    let error = (computed / exact - 1.0).abs();
    assert!(error <= tolerance, "{what}: {computed:e}, exactly {exact:e}: {error:e} apart, {tolerance:e} allowed");
}

type Definition = fn(f64, f64, u32, u64) -> Reference;

fn compare(load: f64, servers: u32, queue: u64, exactly: Definition) {
    let service_s = 133.4e-6;
    let rate_per_s = load * f64::from(servers) / service_s;
    let exact = exactly(rate_per_s, service_s, servers, queue);
    let answer = mmck(rate_per_s, service_s, servers, queue).unwrap();
    // Error of ρ^K and of the terms below c from rounding ρ to 53 bits.
    let tolerance = 1e-15 * (queue as f64) + 1e-13 * f64::from(servers).sqrt() + 1e-13;
    let name = |quantity: &str| format!("{quantity} at load {load}, c = {servers}, K = {queue}");
    agrees(&name("p_K"), answer.drop_probability, exact.full, tolerance);
    agrees(&name("p_0"), answer.idle_probability, exact.empty, 2.0 * tolerance + 1e-12);
    agrees(&name("throughput"), answer.throughput_per_s, exact.busy / service_s, tolerance);
    agrees(&name("utilization"), answer.utilization, exact.busy / f64::from(servers), tolerance);
    agrees(&name("Lq"), answer.in_queue, exact.waiting, tolerance);
    agrees(&name("W"), answer.wait_s, exact.waiting / exact.busy * service_s, tolerance);
}

const LOADS: [f64; 15] = [
    1e-3,
    0.25,
    0.5,
    0.9,
    0.999,
    0.999_999,
    0.999_999_999_999,
    1.0,
    1.000_000_000_001,
    1.000_001,
    1.001,
    1.1,
    2.0,
    10.0,
    1e6,
];

#[test]
fn agrees_for_few_servers_and_small_queues() {
    for servers in [1, 2, 3, 16] {
        for extra in [0, 1, 2, 20, 184] {
            for load in LOADS {
                compare(load, servers, u64::from(servers) + extra, reference);
            }
        }
    }
}

#[test]
fn agrees_for_many_servers() {
    for servers in [64, 257, 1_024] {
        for extra in [0, 1, 200] {
            for load in [1e-3, 0.5, 0.999, 1.0, 1.001, 2.0] {
                compare(load, servers, u64::from(servers) + extra, reference);
            }
        }
    }
}

#[test]
fn agrees_for_long_queues() {
    for load in LOADS {
        for (servers, queue) in [(1, 10_000), (8, 100_000), (64, 1_000_000), (1_024, 1_000_000)] {
            compare(load, servers, queue, by_formula);
        }
    }
}

/// The reference for long queues agrees with the definition.
#[test]
fn formulas_match_the_definition() {
    for load in LOADS {
        for (servers, queue) in [(1, 1), (1, 200), (16, 200), (3, 2_000)] {
            let (rate, service) = (load * f64::from(servers), 1.0);
            let (plain, closed) = (reference(rate, service, servers, queue), by_formula(rate, service, servers, queue));
            for (plain, closed) in [
                (plain.empty, closed.empty),
                (plain.full, closed.full),
                (plain.busy, closed.busy),
                (plain.waiting, closed.waiting),
            ] {
                assert!((plain - closed).abs() <= 1e-15 * plain, "{plain:e} {closed:e} at {load}, {servers}, {queue}");
            }
        }
    }
}

#[test]
fn a_load_of_exactly_one_gives_uniform_states() {
    // Powers of two: ρ is exactly 1.
    let answer = mmck(1_024.0, 1.0 / 1_024.0, 1, 1_000_000).unwrap();
    assert_eq!(answer.rho, 1.0);
    assert!((answer.drop_probability * 1_000_001.0 - 1.0).abs() < 1e-12);
    assert!((answer.in_system / 500_000.0 - 1.0).abs() < 1e-12);
}
