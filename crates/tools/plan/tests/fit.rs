//! Fits recover the parameters of generated measurements, and validation tells a good profile from a bad one.

use rand::SeedableRng as _;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::{Distribution as _, Normal};
use strowger_plan::fit::{Fit, FitError, Kind, MessageObservation, Observation, Options, Work, fit};
use strowger_plan::validate::validate;
use strowger_plan::{Beta, Curve, Profile, ServiceTime, mg1, mmck};

const SEED: u64 = 7;
/// E[X] of the synthetic server without load.
const SERVICE_S: f64 = 100e-6;
const SCV: f64 = 0.3;

fn options() -> Options {
    Options { seed: 1, from: Profile::measured(), name: "test".to_owned() }
}

fn fitted(measured: &[Observation]) -> Fit {
    fit(measured, &options()).unwrap_or_else(|error| panic!("{error}"))
}

fn slowdown() -> Curve {
    Curve::new(vec![(500.0, 1.0), (4_000.0, 1.2), (8_000.0, 1.3)]).expect("a curve")
}

/// Returns runs of a server whose service time grows with the rate, measured with an error of one percent.
fn runs(repeats: u32) -> Vec<Observation> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let noise = Normal::new(1.0, 0.01).expect("a law");
    let rates = [500.0, 1_000.0, 2_000.0, 4_000.0, 6_000.0, 7_000.0];
    let mut runs = Vec::new();
    for rate in rates {
        for repeat in 0..repeats {
            let mean = SERVICE_S * slowdown().at(rate);
            let service = ServiceTime::with_scv(mean, SCV).expect("a service time");
            let wait = mg1(rate, service).expect("stable").wait_s;
            runs.push(Observation {
                name: format!("{rate}/{repeat}"),
                rate_per_s: rate,
                servers: 1,
                service_s: Some(mean * noise.sample(&mut rng)),
                wait_s: Some(wait * noise.sample(&mut rng)),
                cpu: Some(rate * mean),
                ..Observation::default()
            });
        }
    }
    runs
}

#[test]
fn growth_and_variance_of_service_times_are_recovered() {
    let found = fitted(&runs(4));
    let mut inside = 0;
    for at in &found.service {
        let truth = SERVICE_S * slowdown().at(at.rate_per_s);
        assert!((at.mean_s.value / truth - 1.0).abs() < 0.02, "{at:?}, not {truth}");
        let (low, high) = at.mean_s.interval.expect("four runs at each rate");
        inside += usize::from(low <= truth && truth <= high);
        let (low, high) = at.second_moment_s2.interval.expect("four runs at each rate");
        let second = (1.0 + SCV) * truth * truth;
        assert!(low < second && second < high && high < 1.3 * low, "{at:?}, not {second}");
    }
    assert!(inside + 1 >= found.service.len(), "{inside} of {:?}", found.service);
    let (low, high) = found.base_capacity_per_s.interval.expect("as sure as the service time");
    let base = found.base_capacity_per_s.value;
    assert!(low < base && base < high && high < 1.1 * low, "{:?}", found.base_capacity_per_s);
    assert_eq!(found.alpha.len(), 6);
    assert!(found.alpha.last().is_some_and(|at| (at.alpha.value / slowdown().at(7_000.0) - 1.0).abs() < 0.03));
    let scv = found.scv.as_ref().expect("there were waits");
    assert!((scv.value - SCV).abs() < 0.06, "{scv:?}");
    let (low, high) = scv.interval.expect("many waits");
    assert!(low < SCV && SCV < high && high - low < 0.2, "{scv:?}");
    assert!(scv.method.contains("seed 1"), "{scv:?}");
    let service = found.profile.timing.as_ref().expect("a service time").service_at(6_000.0).expect("one");
    assert!((service.scv() - SCV).abs() < 0.06 && (service.mean_s() / 125e-6 - 1.0).abs() < 0.02, "{service:?}");
    assert_eq!(fitted(&runs(4)), found, "the seed decides");
}

#[test]
fn intervals_need_more_than_one_run() {
    let found = fitted(&runs(1));
    assert_eq!(found.service.len(), 4, "two bends less than runs");
    assert!(found.service.iter().all(|at| at.mean_s.interval.is_some()));
    let one = fitted(&runs(1)[2..3]);
    assert!(one.service[0].mean_s.interval.is_none(), "{:?}", one.service);
    assert!(one.service[0].mean_s.method.contains("repeat the runs"));
}

/// Rates, threads and β of the last columns of the thesis's tables 5.2 to 5.6 give its eq. 5.6.
#[test]
fn the_thesis_beta_plane_fits_its_tables() {
    let single = 65.16e-6;
    let alone =
        |rate: f64| Observation { rate_per_s: rate, servers: 1, service_s: Some(single), ..Observation::default() };
    let mut measured = vec![alone(6_000.0), alone(14_400.0)];
    for (servers, rate, beta) in
        [(2, 14_400.0, 1.077), (4, 13_200.0, 1.314), (6, 10_800.0, 1.4408), (8, 9_600.0, 1.678), (16, 6_000.0, 2.737)]
    {
        measured.push(Observation {
            rate_per_s: rate,
            servers,
            service_s: Some(beta * f64::from(servers) * single),
            ..Observation::default()
        });
    }
    let beta = fitted(&measured).beta.expect("five measurements of several threads");
    assert!((beta.per_thread.value - 0.174).abs() < 0.002, "{beta:?}");
    assert!((beta.per_packet.value - 0.923e-4).abs() < 0.02e-4, "{beta:?}");
    assert!((beta.constant.value + 0.60).abs() < 0.03, "{beta:?}");
    assert!(beta.r_squared > 0.999, "{beta:?}");
    let (low, high) = beta.per_thread.interval.expect("two degrees of freedom");
    // The interval reflects the three digits of the tables.
    assert!(low < high && high - low < 0.001, "{beta:?}");
}

#[test]
fn beta_is_fitted_from_drops() {
    let truth = Beta { per_thread: 0.1, per_packet: 5e-5, constant: 0.5 };
    let mut measured = runs(2);
    for (servers, rate) in [(2, 7_000.0), (2, 7_400.0), (4, 6_600.0), (4, 7_000.0), (8, 5_500.0), (8, 6_000.0)] {
        let single = SERVICE_S * slowdown().at(rate);
        let shared = truth.at(rate, servers).expect("a β") * f64::from(servers) * single;
        let drops = mmck(rate, shared, servers, 100).expect("a queue").drop_probability;
        assert!(drops > 1e-5 && drops < 0.5, "{servers} threads at {rate}/s drop {drops}");
        measured.push(Observation {
            rate_per_s: rate,
            servers,
            queue: Some(100),
            drops: Some(drops),
            ..Observation::default()
        });
    }
    let found = fitted(&measured);
    let beta = found.beta.expect("drops");
    assert!((beta.per_thread.value / truth.per_thread - 1.0).abs() < 0.1, "{beta:?}");
    assert!((beta.coefficients().at(7_000.0, 4).expect("a β") - truth.at(7_000.0, 4).expect("a β")).abs() < 0.05);
    assert!(found.notes.iter().any(|note| note.contains("6 shares of drops")), "{:?}", found.notes);
}

/// K_sockq contains waiting and service; the formula determines α, the thesis's for exponential gaps.
#[test]
fn alpha_is_fitted_from_socket_queue_times() {
    let (base, alpha) = (7.9e-6, Curve::alpha_exponential());
    let measured: Vec<Observation> = [600.0, 1_200.0, 2_400.0, 3_600.0, 4_800.0]
        .into_iter()
        .map(|rate| {
            let rest = 105e-6 + rate * 3e-9;
            let mean = alpha.at(rate) * base + rest;
            let wait = mg1(rate, ServiceTime::constant(mean).expect("a time")).expect("stable").wait_s;
            Observation {
                rate_per_s: rate,
                servers: 1,
                base_s: Some(base),
                rest_s: Some(rest),
                sockq_s: Some(wait + alpha.at(rate) * base),
                ..Observation::default()
            }
        })
        .collect();
    // Each rate twice, so that each can be a point of the curve.
    let found = fitted(&[measured.clone(), measured].concat());
    let wanted = [1.0, 3.0, 5.0, 8.0, 8.0, 8.0];
    assert_eq!(found.alpha.len(), wanted.len(), "{:?}", found.alpha);
    for (at, wanted) in found.alpha.iter().zip(wanted) {
        assert!((at.alpha.value - wanted).abs() < 1e-6, "{at:?}, not {wanted}");
    }
    let timing = found.profile.timing.expect("a service time");
    assert!((timing.service_at(4_800.0).expect("one").mean_s() - (8.0 * base + 105e-6 + 14.4e-6)).abs() < 1e-9);
}

#[test]
fn message_types_have_their_own_moments() {
    let message = |message: &str, weight, us: f64, scv| MessageObservation {
        message: message.to_owned(),
        weight,
        service_s: Some(us * 1e-6),
        scv: Some(scv),
    };
    let measured: Vec<Observation> = [500.0, 1_000.0, 2_000.0]
        .into_iter()
        .map(|rate| Observation {
            rate_per_s: rate,
            servers: 1,
            messages: vec![message("INVITE", 1.0, 240.0, 0.1), message("ACK", 2.0, 90.0, 0.2)],
            ..Observation::default()
        })
        .collect();
    let found = fitted(&measured);
    let names: Vec<(&str, f64)> =
        found.messages.iter().map(|message| (message.message.as_str(), (message.share * 300.0).round())).collect();
    assert_eq!(names, [("ACK", 200.0), ("INVITE", 100.0)]);
    let service = found.profile.timing.expect("a service time").service_at(1_000.0).expect("one");
    let mean = (240.0 + 2.0 * 90.0) / 3.0 * 1e-6;
    let second = (240.0_f64.powi(2) * 1.1 + 2.0 * 90.0_f64.powi(2) * 1.2) / 3.0 * 1e-12;
    assert!((service.mean_s() / mean - 1.0).abs() < 1e-9, "{service:?}");
    assert!((service.second_moment_s2() / second - 1.0).abs() < 1e-9, "{service:?}, not {second}");
}

#[test]
fn a_fitted_profile_predicts_unseen_runs_and_a_wrong_one_does_not() {
    let (known, unseen): (Vec<_>, Vec<_>) = runs(4).into_iter().partition(|run| run.name.ends_with(['0', '2']));
    let found = fitted(&known);
    let good = validate(&unseen, &found.profile).expect("a profile with timing");
    assert_eq!(good.holds, Some(true), "{good:?}");
    assert!(good.waits.0 >= 4 && good.waits.0 == good.waits.1, "{:?}", good.waits);
    let row = good.rows.iter().find(|row| row.rate_per_s == 4_000.0).expect("one at 4000/s");
    assert!(
        row.wait_counts && row.wait_holds == Some(true) && row.wait_s.error().is_some_and(|error| error.abs() < 0.15)
    );
    assert!(row.rho.measured.is_some() && row.service_s.error().is_some_and(|error| error.abs() < 0.05));

    let mut slow = unseen.clone();
    slow.iter_mut().for_each(|run| run.wait_s = run.wait_s.map(|wait| 2.0 * wait));
    let bad = validate(&slow, &found.profile).expect("a profile with timing");
    assert_eq!((bad.holds, bad.waits.1), (Some(false), 0), "{bad:?}");

    let error = validate(&unseen, &Profile::measured()).expect_err("nothing of packets in it");
    assert!(error.remedy().contains("plan fit"), "{error}");
}

/// Table 4.4 of the thesis: its E[X] gives its ρ, and its waits as closely as its own model does.
#[test]
fn the_thesis_table_is_reproduced() {
    let table = "rate,service_us,waiting_us\n600,133.4,5.485\n1200,149.88,13.59\n2400,174.53,53.27\n3600,179.98,190.92\n\
        4200,181.09,333.52\n4800,181.185,664.57\n";
    let measured = strowger_plan::fit::from_csv("table-4.4.csv", table, 6.0).expect("a table");
    let twice = [measured.clone(), measured.clone()].concat();
    let found = fitted(&twice);
    let validation = validate(&measured, &found.profile).expect("a profile with timing");
    let rho: Vec<f64> = validation.rows.iter().filter_map(|row| row.rho.predicted).collect();
    for (rho, wanted) in rho.iter().zip([0.080, 0.1798, 0.4188, 0.6479, 0.7606, 0.8698]) {
        assert!((rho - wanted).abs() < 1e-3, "{rho}, not {wanted}");
    }
    for row in &validation.rows {
        assert!(row.wait_s.error().is_some_and(|error| error.abs() < 0.3), "{row:?}");
    }
}

#[test]
fn insufficient_data_is_rejected_with_a_hint() {
    let refused = |measured: &[Observation], part: &str| {
        let FitError(error) = fit(measured, &options()).expect_err(part);
        assert!(error.contains(part), "{error}");
    };
    refused(&[], "give a column service");
    let mut several = runs(1);
    several.iter_mut().for_each(|run| run.servers = 4);
    refused(&several, "no measurement of one thread");
    let mut negative = runs(2);
    negative.iter_mut().for_each(|run| (run.base_s, run.rest_s) = (Some(8e-6), Some(500e-6)));
    refused(&negative, "check the columns service, base and rest");
}

#[test]
fn a_fit_round_trips_through_json() {
    let found = fitted(&runs(2));
    let text = serde_json::to_string(&found).expect("JSON");
    let again: Fit = serde_json::from_str(&text).expect("the same");
    assert_eq!(again.profile.name, "test");
    assert_eq!(again.service.len(), found.service.len());
    assert!(
        found.profile.source.contains("12 measurements") && found.profile.source.contains("the rest is from measured")
    );
}

/// A measured plain REGISTER also scales the cost of a challenged one.
#[test]
fn one_register_cost_scales_the_other() {
    let of = Profile::measured().costs;
    for (kind, was) in [(Kind::Register, of.register_s), (Kind::ChallengedRegister, of.challenged_register_s)] {
        let mut measured = runs(2);
        let work = Work { kind, carried_per_s: 1_000.0, cost_s: 2.0 * was, messages_in: 1.0 };
        measured.push(Observation { rate_per_s: 1_000.0, work: Some(work), ..Observation::default() });
        let costs = fitted(&measured).profile.costs;
        assert!((costs.register_s / of.register_s - 2.0).abs() < 1e-9, "{kind:?}: {costs:?}");
        assert!((costs.challenged_register_s / of.challenged_register_s - 2.0).abs() < 1e-9, "{kind:?}: {costs:?}");
    }
}
