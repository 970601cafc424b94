//! The sweep with a server of known capacity.

use super::*;
use crate::output::sweep_page;

/// Returns a run at a rate with a server that carries at most `capacity` calls per second in time; a tenth of the
/// others come late.
fn measured(rate: f64, capacity: f64, noise: f64) -> Measurement {
    let mut meter = Meter::default();
    let seconds = 60.0;
    let all = rate * seconds;
    let in_time = all.min((capacity + noise) * seconds);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
    let (all, in_time) = (all as u64, in_time as u64);
    for number in 0..all {
        let began = &mut meter.began;
        (began.offered, began.sent) = (began.offered + 1, began.sent + 1);
        let is_late = number >= in_time && number % 10 == 0;
        if number < in_time || is_late {
            began.carried += 1;
            let time = if is_late { Duration::from_secs(5) } else { Duration::from_millis(10) };
            meter.on_answer(crate::script::MethodId::Invite, 200, time);
            meter.slowest.record(time);
        } else {
            began.lost += 1;
        }
    }
    // Fluctuates around the calls in time, so that no second equals the one before.
    let mean = if all > 0 { in_time as f64 / seconds } else { 0.0 };
    let in_time_per_s = (0..60).map(|second| mean + f64::from(second % 3) - 1.0).collect();
    let processors = Some((rate / capacity).min(1.0));
    Measurement {
        meter,
        elapsed: Duration::from_secs(60),
        in_time_per_s,
        throughput: mean,
        processors,
        bottleneck: None,
    }
}

fn settings(rates: &str, repeats: u32, until: &[&str]) -> Settings {
    let until = until.iter().map(|text| Rule::parse(text).expect("a rule")).collect();
    Settings { rates: Rates::parse(rates).expect("rates"), repeats, within: Duration::from_secs(2), until }
}

/// Performs all runs, with a server of 90 calls per second.
fn run(settings: Settings) -> (Vec<Task>, Sweep) {
    let (mut sweep, mut tasks) = (Sweep::new(settings), Vec::new());
    while let Some(task) = sweep.next_task() {
        tasks.push(task);
        let noise = f64::from(task.repeat) - 2.0;
        let point = sweep.handle_measurement(measured(task.rate, 90.0, noise));
        assert_eq!(point.is_some(), task.repeat == sweep.settings().repeats);
    }
    (tasks, sweep)
}

fn report(sweep: Sweep) -> SweepReport {
    SweepReport {
        workload: "proxy-200".to_owned(),
        to: "udp:127.0.0.1:5060".to_owned(),
        arrivals: "poisson".to_owned(),
        seed: 7,
        restart: Some("systemctl restart <x>".to_owned()),
        length: "60s".to_owned(),
        was_stopped: false,
        sweep,
    }
}

#[test]
fn rates_are_read() {
    let all = |text| Rates::parse(text).map(|rates| rates.0);
    assert_eq!(all("100..500/100"), Ok(vec![100.0, 200.0, 300.0, 400.0, 500.0]));
    assert_eq!(all("0.1..0.3/0.1").expect("fractions").len(), 3);
    assert_eq!(all("100..450/100").expect("no end").last(), Some(&400.0));
    assert_eq!((all("50..50/1"), all("10,20, 40")), (Ok(vec![50.0]), Ok(vec![10.0, 20.0, 40.0])));
    for (text, why) in [
        ("100..500", "no step"),
        ("500..100/100", "ends before"),
        ("100..500/0", "not a number above 0"),
        ("1..1e9/1", "10000"),
        ("x", "not a rate"),
        ("20,10", "rise"),
        ("-5..10/1", "not a number above 0"),
    ] {
        let error = Rates::parse(text).expect_err(text).to_string();
        assert!(error.contains(why) && error.contains("100..2400/100"), "{text}: {error}");
    }
}

/// As in the first paper's figure 15: throughput follows the load up to the capacity and stays there, until half of
/// the calls fail.
#[test]
fn a_sweep_ends_when_half_the_calls_fail() {
    let (tasks, sweep) = run(settings("20..400/20", 3, &["success<50%"]));
    let rates: Vec<f64> = sweep.points().iter().map(|point| point.rate).collect();
    assert_eq!(rates, (1..=10).map(|n| 20.0 * f64::from(n)).collect::<Vec<_>>(), "90 of 200 is the first below a half");
    assert_eq!(tasks.len(), 30);
    assert!(tasks.iter().zip(1..).all(|(task, number)| task.number == number));
    for point in sweep.points() {
        let expected = point.rate.min(90.0);
        assert!((point.throughput.mean - expected).abs() < 0.7, "{} at {}", point.throughput.mean, point.rate);
        assert_eq!(point.runs.len(), 3);
    }
    let report = report(sweep);
    assert!(report.ending().starts_with("ended by success(2s)<50%: success(2s) 45"), "{}", report.ending());
    assert_eq!(report.peak().map(|point| point.rate), Some(100.0), "more load brings no more");
}

#[test]
fn only_timely_counts() {
    let (_, sweep) = run(settings("180..180/1", 1, &[]));
    let point = &sweep.points()[0];
    // A twentieth of all calls came after five seconds.
    let carried = point.runs[0].meter.began.carried;
    assert!(carried > 5_700 && (point.throughput.mean - 89.0).abs() < 0.1, "{carried} {:?}", point.throughput);
}

#[test]
fn repeats_use_students_t_and_single_runs_batch_means() {
    let (_, sweep) = run(settings("200..200/1", 3, &[]));
    // 89, 90 and 91: t(2) = 4.303, standard error 1/√3.
    let half = sweep.points()[0].throughput.half_width.expect("three runs");
    assert!((half - 4.303 / 3.0_f64.sqrt()).abs() < 0.01, "{half}");
    let (_, sweep) = run(settings("200..200/1", 1, &[]));
    let point = &sweep.points()[0];
    let batches = point.batches[0].expect("sixty seconds");
    assert_eq!((batches.batches, point.throughput.half_width), (20, Some(batches.half_width)));
    assert!((batches.mean - point.throughput.mean).abs() <= batches.half_width, "{batches:?} {:?}", point.throughput);
}

/// A growing queue: each second has fewer calls in time than the one before.
#[test]
fn correlated_seconds_have_no_interval() {
    let mut sweep = Sweep::new(settings("200..200/1", 1, &[]));
    let in_time_per_s = (0..60).map(|second| 90.0 - f64::from(second)).collect();
    sweep.handle_measurement(Measurement { in_time_per_s, ..measured(200.0, 90.0, 0.0) });
    let point = &sweep.points()[0];
    assert!(point.batches[0].is_some_and(|batches| batches.is_correlated()), "{:?}", point.batches);
    assert_eq!(point.throughput.half_width, None);
}

#[test]
fn without_calls_there_is_no_share() {
    let mut sweep = Sweep::new(settings("0.1..0.3/0.1", 1, &[]));
    while sweep.next_task().is_some() {
        sweep.handle_measurement(Measurement { elapsed: Duration::from_secs(5), ..Measurement::default() });
    }
    assert!(sweep.points().iter().all(|point| point.success.is_none()));
    let report = report(sweep);
    let csv = report.to_csv();
    assert!(csv.contains("\n0.3,1,") && !csv.contains("0.000000"), "{csv}");
    let line = PointReport(&report.sweep.points()[0]).to_string();
    assert!(!line.contains('%'), "{line}");
}

#[test]
fn calls_held_back_by_the_generator_are_shown() {
    let mut sweep = Sweep::new(settings("20..20/1", 1, &[]));
    let mut run = measured(20.0, 90.0, 0.0);
    (run.meter.began.refused, run.bottleneck) = (7, kept_back(7));
    sweep.handle_measurement(run);
    let report = report(sweep);
    assert!(PointReport(&report.sweep.points()[0]).to_string().contains("THE GENERATOR WAS THE BOTTLENECK"));
    assert!(report.to_csv().lines().last().is_some_and(|line| line.ends_with(",7,true")), "{}", report.to_csv());
    assert_eq!(report.to_json()["points"][0]["refused"], 7);
    assert!(sweep_page(&report).contains("kept back") && kept_back(0).is_none());
}

#[test]
fn any_condition_or_the_last_rate_ends_it() {
    let (_, sweep) = run(settings("20..400/20", 1, &["success<1%", "p99>1s"]));
    assert_eq!(sweep.points().last().expect("points").rate, 100.0, "a hundredth of the answers is late");
    let (_, sweep) = run(settings("20..60/20", 1, &["success<50%"]));
    assert_eq!((sweep.points().len(), sweep.ended_by()), (3, None));
}

#[test]
fn a_stopped_sweep_keeps_its_runs() {
    let mut sweep = Sweep::new(settings("20..400/20", 3, &[]));
    for _ in 0..4 {
        sweep.handle_measurement(measured(20.0, 90.0, 0.0));
    }
    sweep.stop();
    assert_eq!(sweep.points().iter().map(|point| point.runs.len()).collect::<Vec<_>>(), [3, 1]);
    let mut nothing = Sweep::new(settings("20..400/20", 3, &[]));
    nothing.stop();
    assert!(nothing.points().is_empty());
}

#[test]
fn reports_show_the_measurements() {
    let (_, sweep) = run(settings("20..400/20", 3, &["success<50%"]));
    let report = report(sweep);
    let json = report.to_json();
    let last = &json["points"][9];
    assert_eq!((last["rate"].as_f64(), last["runs"].as_array().map(Vec::len)), (Some(200.0), Some(3)));
    assert!((last["throughput_per_s"]["mean"].as_f64().expect("a mean") - 90.0).abs() < 0.01, "{last}");
    assert!(last["latency_us"]["p50"]["mean"].as_f64().is_some_and(|us| (us - 10_000.0).abs() < 150.0), "{last}");
    let csv = report.to_csv();
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert!(rows.len() == 11 && rows.iter().all(|row| row.len() == 14), "{csv}");
    assert!(PointReport(&report.sweep.points()[9]).to_string().contains("90.0 ± 2.5"));
    let html = sweep_page(&report);
    for wanted in ["Throughput", "proxy-200", "systemctl restart &lt;x&gt;", "y = x", "95", "success(2s)"] {
        assert!(html.contains(wanted), "{wanted}");
    }
    assert_eq!(html.matches("<svg").count(), 4, "throughput, response times, CPU, success");
    assert!(!html.contains("NaN") && !html.contains("http"));
}

#[test]
fn an_empty_run_prints_no_nan() {
    let mut sweep = Sweep::new(settings("20..20/1", 1, &["success<50%"]));
    sweep.handle_measurement(Measurement::default());
    let report = report(sweep);
    assert!(report.sweep.ended_by().is_none());
    assert!(!sweep_page(&report).contains("NaN") && !report.to_csv().contains("NaN"));
}
