//! The models compared with a packet-by-packet simulation of the queue, with fixed seeds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::SeedableRng as _;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::{Distribution as _, Exp, Gamma};
use strowger_plan::{ServiceTime, mg1, mgck, mmck};

/// Point in time with a total order.
#[derive(Clone, Copy, PartialEq)]
struct At(f64);

impl Eq for At {}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for At {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

struct Seen {
    drops: f64,
    wait_s: f64,
    throughput_per_s: f64,
}

/// Simulates a FIFO queue with `servers` servers and `places` places in all; `service` draws service times.
fn simulate(
    rate: f64,
    servers: usize,
    places: usize,
    packets: u32,
    seed: u64,
    service: impl Fn(&mut Xoshiro256PlusPlus) -> f64,
) -> Seen {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let between = Exp::new(rate).unwrap();
    let mut free: BinaryHeap<Reverse<At>> = (0..servers).map(|_| Reverse(At(0.0))).collect();
    let mut departures: BinaryHeap<Reverse<At>> = BinaryHeap::new();
    let (mut now, mut dropped, mut waited) = (0.0, 0_u32, 0.0);
    for _ in 0..packets {
        now += between.sample(&mut rng);
        while departures.peek().is_some_and(|first| first.0.0 <= now) {
            departures.pop();
        }
        if departures.len() >= places {
            dropped += 1;
            continue;
        }
        let Reverse(At(idle)) = free.pop().unwrap();
        let begins = idle.max(now);
        let ends = begins + service(&mut rng);
        waited += begins - now;
        free.push(Reverse(At(ends)));
        departures.push(Reverse(At(ends)));
    }
    let served = f64::from(packets - dropped);
    Seen { drops: f64::from(dropped) / f64::from(packets), wait_s: waited / served, throughput_per_s: served / now }
}

/// Returns a distribution with a mean of 1 and this squared coefficient of variation.
fn law(scv: f64) -> impl Fn(&mut Xoshiro256PlusPlus) -> f64 {
    let gamma = (scv > 0.0).then(|| Gamma::new(1.0 / scv, scv).unwrap());
    move |rng| gamma.as_ref().map_or(1.0, |gamma| gamma.sample(rng))
}

#[track_caller]
fn near(what: &str, computed: f64, seen: f64, tolerance: f64) {
    let error = (computed - seen).abs() / seen;
    assert!(error <= tolerance, "{what}: {computed} computed, {seen} seen: {:.1} % apart", error * 100.0);
}

#[test]
fn mg1_matches_simulation() {
    for (load, scv, seed) in
        [(0.3, 0.022, 1), (0.3, 1.0, 2), (0.5, 0.0, 3), (0.5, 4.0, 4), (0.8, 0.022, 5), (0.8, 1.0, 6), (0.8, 2.5, 7)]
    {
        let seen = simulate(load, 1, usize::MAX, 800_000, seed, law(scv));
        let answer = mg1(load, ServiceTime::with_scv(1.0, scv).unwrap()).unwrap();
        near(&format!("W at load {load}, scv {scv}"), answer.wait_s, seen.wait_s, 0.03);
    }
}

#[test]
fn mmck_matches_simulation() {
    for (load, servers, places, seed) in [
        (0.7, 1, 5, 11),
        (1.0, 1, 20, 12),
        (1.3, 1, 50, 13),
        (0.9, 4, 12, 14),
        (1.0, 4, 4, 15),
        (1.05, 16, 40, 16),
        (2.0, 8, 200, 17),
        (0.8, 64, 70, 18),
    ] {
        let rate = load * f64::from(servers);
        let seen = simulate(rate, servers as usize, places, 1_500_000, seed, law(1.0));
        let answer = mmck(rate, 1.0, servers, places as u64).unwrap();
        let name = |what: &str| format!("{what} at load {load}, c = {servers}, K = {places}");
        near(&name("drops"), answer.drop_probability, seen.drops, 0.04);
        near(&name("throughput"), answer.throughput_per_s, seen.throughput_per_s, 0.01);
        if places > servers as usize {
            near(&name("W"), answer.wait_s, seen.wait_s, 0.04);
        }
    }
}

/// Accuracy of the approximation around a load of 1, for variances from zero to four times that of the exponential
/// distribution.
#[test]
fn mgck_approximates_simulation() {
    for (load, servers, places, scv, seed) in [
        (0.9, 1, 10, 0.0, 21),
        (0.9, 1, 10, 0.5, 22),
        (0.9, 1, 10, 3.0, 23),
        (1.0, 2, 12, 0.2, 24),
        (1.2, 4, 24, 0.0, 25),
        (1.2, 4, 24, 4.0, 26),
        (0.95, 8, 40, 2.0, 27),
    ] {
        let rate = load * f64::from(servers);
        let seen = simulate(rate, servers as usize, places, 600_000, seed, law(scv));
        let answer = mgck(rate, ServiceTime::with_scv(1.0, scv).unwrap(), servers, places as u64).unwrap();
        let name = |what: &str| format!("{what} at load {load}, c = {servers}, K = {places}, scv = {scv}");
        near(&name("drops"), answer.drop_probability, seen.drops, 0.06);
        near(&name("throughput"), answer.throughput_per_s, seen.throughput_per_s, 0.01);
        near(&name("W"), answer.wait_s, seen.wait_s, 0.10);
    }
}
