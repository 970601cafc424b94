//! The search with servers of known capacity.

use rand::{RngExt as _, SeedableRng as _};

use super::*;
use crate::law::Rng;

/// A server that holds up to a capacity, and a generator.
#[derive(Clone, Copy, Debug)]
struct World {
    capacity: f64,
    generator: f64,
    /// Share of tries that a disturbance makes fail, and of those that pass by luck up to five percent above the
    /// capacity.
    noise: f64,
}

impl World {
    const fn quiet(capacity: f64) -> Self {
        Self { capacity, generator: f64::INFINITY, noise: 0.0 }
    }

    fn try_at(self, at: f64, rng: &mut Rng) -> Outcome {
        if at > self.generator {
            return Outcome::GeneratorLimited;
        }
        let is_disturbed = rng.random::<f64>() < self.noise;
        let holds = if at <= self.capacity { !is_disturbed } else { at < 1.05 * self.capacity && is_disturbed };
        if holds { Outcome::Holds } else { Outcome::Fails }
    }
}

/// Returns all probes and the result.
fn run(settings: Settings, world: World, seed: u64) -> (Vec<(Probe, Outcome)>, SearchResult) {
    let mut rng = Rng::seed_from_u64(seed);
    let (mut search, mut probes) = (Search::new(settings), Vec::new());
    while let Some(probe) = search.next_probe() {
        let outcome = world.try_at(probe.at, &mut rng);
        probes.push((probe, outcome));
        assert!(probes.len() <= settings.max_probes as usize, "it ends");
        search.handle_outcome(outcome);
    }
    (probes, search.result())
}

/// Returns a random value between two, uniform on a logarithmic scale.
fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low * (high / low).powf(rng.random::<f64>())
}

#[test]
fn the_capacity_is_found_within_the_precision() {
    let mut rng = Rng::seed_from_u64(1);
    for seed in 0..2_000 {
        let capacity = between(&mut rng, 1.0, 100_000.0);
        let mut settings = Settings::new(SearchVariable::Rate, between(&mut rng, capacity / 100.0, capacity * 100.0));
        let precision = between(&mut rng, 0.001, 0.2);
        settings.precision = Some(precision);
        settings.up = between(&mut rng, 0.1, 1.0);
        settings.down = between(&mut rng, 0.1, 0.9);
        settings.max_probes = 200;
        let (probes, found) = run(settings, World::quiet(capacity), seed);
        let at = found.at.expect("it holds somewhere");
        assert_eq!((found.verdict, found.times), (Verdict::Found, 3), "{settings:?} {capacity}");
        assert!(
            at <= capacity && at * (1.0 + precision) * (1.0 + 1e-6) >= capacity,
            "{at} for {capacity}: {settings:?}"
        );
        let ceiling = found.ceiling.expect("something was too high");
        assert!(ceiling.at > capacity && !ceiling.is_generator);
        // From the start to the capacity in steps of at least a tenth, then bisection, each failure twice, and two
        // confirmations.
        let climb = (capacity / settings.start).ln().abs() / settings.up.min(settings.down).min(0.5).ln_1p() + 3.0;
        let halve = (1.0 / precision).log2() + 3.0;
        let bound = 2.0 * (climb + halve) + 2.0;
        assert!((probes.len() as f64) <= bound, "{} probes, not {bound}: {settings:?} {capacity}", probes.len());
    }
}

#[test]
fn a_better_server_has_no_worse_result() {
    let mut rng = Rng::seed_from_u64(2);
    for seed in 0..300 {
        let settings = Settings::new(SearchVariable::Rate, between(&mut rng, 10.0, 1_000.0));
        let mut last = 0.0;
        let mut capacity = between(&mut rng, 5.0, 500.0);
        for _ in 0..12 {
            let found = run(settings, World::quiet(capacity), seed).1.at.expect("found");
            assert!(found >= last * (1.0 - 0.011), "{found} after {last}");
            last = found;
            capacity *= 1.0 + rng.random::<f64>();
        }
    }
}

#[test]
fn noise_moves_the_result_little() {
    let mut rng = Rng::seed_from_u64(3);
    let mut close = 0;
    for seed in 0..500 {
        let capacity = between(&mut rng, 50.0, 50_000.0);
        let world = World { noise: 0.05, ..World::quiet(capacity) };
        let (_, found) = run(Settings::new(SearchVariable::Rate, capacity / between(&mut rng, 1.5, 20.0)), world, seed);
        let at = found.at.expect("something holds");
        assert!(at < 1.05 * capacity, "{at} for {capacity}: by luck it never goes far above");
        close += u32::from((0.93 * capacity..1.03 * capacity).contains(&at));
    }
    assert!(close >= 450, "{close} of 500 within a few percent");
}

#[test]
fn the_generators_limit_bounds_the_search() {
    let mut rng = Rng::seed_from_u64(4);
    for seed in 0..500 {
        let generator = between(&mut rng, 100.0, 20_000.0);
        let world = World { generator, ..World::quiet(generator * between(&mut rng, 0.3, 3.0)) };
        let (probes, found) = run(Settings::new(SearchVariable::Rate, generator / 30.0), world, seed);
        let first = probes.iter().position(|(_, outcome)| *outcome == Outcome::GeneratorLimited);
        let Some(first) = first else {
            assert_eq!(found.verdict, Verdict::Found);
            continue;
        };
        let bound = probes[first].0.at;
        // One more try follows, because the generator may have been disturbed.
        assert!(probes[first + 2..].iter().all(|(probe, _)| probe.at < bound), "{probes:?}");
        let at = found.at.expect("it held below");
        let expected = if world.capacity < generator { Verdict::Found } else { Verdict::GeneratorLimited };
        let bracket = found.ceiling.expect("a ceiling").at;
        if !(at <= world.capacity.min(generator) && generator.min(world.capacity) < bracket)
            || found.verdict != expected
        {
            // Capacity and bound are closer together than the precision.
            assert!((world.capacity / generator - 1.0).abs() < 0.02, "{found:?} {world:?}");
        }
    }
}

#[test]
fn users_are_whole() {
    let mut rng = Rng::seed_from_u64(5);
    for seed in 0..500 {
        let capacity = between(&mut rng, 1.0, 1e6);
        let (probes, found) = run(Settings::new(SearchVariable::Users, 100.0), World::quiet(capacity), seed);
        assert!(probes.iter().all(|(probe, _)| probe.at.fract() == 0.0 && probe.at >= 1.0), "{probes:?}");
        let at = found.at.expect("one user holds");
        assert!(at <= capacity && (at * 1.0101).max(at + 1.0) >= capacity.floor(), "{at} of {capacity}");
    }
}

#[test]
fn limits_apply() {
    let mut settings = Settings::new(SearchVariable::Rate, 100.0);
    settings.max = 400.0;
    let (probes, found) = run(settings, World::quiet(1e9), 1);
    assert_eq!((found.verdict, found.at, found.times), (Verdict::AtMax, Some(400.0), 3));
    assert!(probes.iter().all(|(probe, _)| probe.at <= 400.0));
    let (probes, found) = run(settings, World::quiet(0.01), 1);
    assert_eq!((found.verdict, found.at), (Verdict::NothingHolds, None));
    assert!(probes.iter().all(|(probe, _)| probe.at >= 0.1));
    settings.max_probes = 5;
    let (probes, found) = run(settings, World::quiet(50.0), 1);
    assert_eq!((found.verdict, probes.len()), (Verdict::TooManyProbes, 5));
}

#[test]
fn a_single_disturbance_changes_nothing() {
    let settings = Settings::new(SearchVariable::Rate, 100.0);
    let quiet = run(settings, World::quiet(1_000.0), 1).1;
    let disturbances = run(settings, World::quiet(1_000.0), 1).0.len();
    for disturbed in 0..disturbances {
        for kind in [Outcome::Fails, Outcome::GeneratorLimited] {
            let mut search = Search::new(settings);
            let mut number = 0;
            while let Some(probe) = search.next_probe() {
                let is_confirmed = probe.stage == Stage::Confirm && kind == Outcome::Fails;
                let is_disturbed = number == disturbed && !is_confirmed;
                let holds = if probe.at <= 1_000.0 { Outcome::Holds } else { Outcome::Fails };
                search.handle_outcome(if is_disturbed { kind } else { holds });
                number += 1;
            }
            assert_eq!(search.result().at, quiet.at, "disturbed at {disturbed} by {kind:?}");
        }
    }
}

#[test]
fn an_unconfirmed_rate_is_dropped() {
    // 1,000 held once by luck; 990 does each time.
    let mut search = Search::new(Settings::new(SearchVariable::Rate, 500.0));
    let mut lucky = true;
    while let Some(probe) = search.next_probe() {
        let is_lucky = probe.at > 990.0 && probe.at <= 1_010.0 && probe.stage != Stage::Confirm && lucky;
        lucky &= !is_lucky;
        search.handle_outcome(if probe.at <= 990.0 || is_lucky { Outcome::Holds } else { Outcome::Fails });
    }
    let found = search.result();
    assert_eq!(found.verdict, Verdict::Found);
    let at = found.at.expect("found");
    assert!(at <= 990.0 && at > 975.0, "{found:?}");
}

#[test]
fn short_steps_are_not_rounded_away() {
    for (over, start) in [
        (SearchVariable::Rate, 80.0),
        (SearchVariable::Users, 80.0),
        (SearchVariable::Users, 1.0),
        (SearchVariable::Users, 5.0),
    ] {
        let mut settings = Settings { up: 0.1, precision: Some(0.5), ..Settings::new(over, start) };
        settings.max_probes = 200;
        let (_, found) = run(settings, World::quiet(1_000.0), 1);
        let at = found.at.expect("found");
        assert_eq!(found.verdict, Verdict::Found, "from {start}: {found:?}");
        assert!(at <= 1_000.0 && at * 1.5 >= 999.0, "from {start}: {at}");
    }
}

#[test]
fn an_rfc_result_is_dropped_when_confirmation_fails() {
    let mut settings = Settings::rfc7502(SearchVariable::Rate, 100.0);
    settings.confirm = 30;
    let mut search = Search::new(settings);
    let mut failed = Vec::new();
    while let Some(probe) = search.next_probe() {
        let is_confirmed = probe.stage != Stage::Confirm || probe.at <= 250.0;
        let holds = probe.at <= 300.0 && is_confirmed;
        if probe.stage == Stage::Confirm && !holds {
            failed.push(probe.at);
        }
        search.handle_outcome(if holds { Outcome::Holds } else { Outcome::Fails });
    }
    assert!(!failed.is_empty() && failed.is_sorted_by(|a, b| a > b), "each only once: {failed:?}");
    let found = search.result();
    assert_eq!((found.verdict, found.times), (Verdict::Found, 30), "{found:?}");
    assert!(found.at.is_some_and(|at| at <= 250.0), "{found:?}");
}

#[test]
fn without_a_confirmation_there_is_no_result() {
    let mut search = Search::new(Settings { confirm: 30, ..Settings::rfc7502(SearchVariable::Rate, 100.0) });
    while let Some(probe) = search.next_probe() {
        let holds = probe.at <= 300.0 && probe.stage != Stage::Confirm;
        search.handle_outcome(if holds { Outcome::Holds } else { Outcome::Fails });
    }
    assert_eq!((search.result().verdict, search.result().at), (Verdict::NothingHolds, None));
}

/// As in RFC 7502's own simulation in R (appendix A): from 100 in tenths.
#[test]
fn the_rfc_algorithm_converges_as_specified() {
    for capacity in [100.0, 269.0, 460.0, 5_000.0] {
        let (probes, found) = run(Settings::rfc7502(SearchVariable::Rate, 100.0), World::quiet(capacity), 1);
        let at = found.at.expect("found");
        assert_eq!(found.verdict, Verdict::Found, "{capacity}");
        assert!(at <= capacity && at > capacity * 0.9, "{at} of {capacity}");
        let first: Vec<f64> = probes.iter().take(3).map(|(probe, _)| probe.at).collect();
        assert_eq!(first, if capacity > 110.0 { [100.0, 110.0, 121.0] } else { [100.0, 110.0, 99.0] });
        assert!(probes.iter().all(|(probe, _)| probe.at.fract() == 0.0), "floor()");
        // Exactly ten successes without progress.
        let mut best = 0.0;
        let idle = probes.iter().filter(|(probe, outcome)| {
            let is_progress = *outcome == Outcome::Holds && probe.at > best;
            best = if is_progress { probe.at } else { best };
            *outcome == Outcome::Holds && !is_progress
        });
        assert_eq!(idle.count(), 10);
    }
}
