//! From a run over loopback to its output.

use std::time::Duration;

use strowger_traffic::engine::Run;
use strowger_traffic::metrics::MAX_SLICES;
use strowger_traffic::options::{CalleeLocation, Options, workload};
use strowger_traffic::output;
use strowger_traffic::process_usage::SamplerThread;

#[test]
fn a_run_is_measured_and_shown_by_slice() {
    let mut options = Options::new(workload("baseline").expect("built in"), None, 7);
    options.callee_location = CalleeLocation::Local;
    (options.rate, options.time, options.threads) = (200.0, Some(Duration::from_millis(2_500)), 2);
    let (plan, about) = options.plan().expect("a plan");
    let run = Run::prepare(plan).expect("sockets");
    // Both ends are in this process, so it is also the server.
    let watcher = SamplerThread::start(&[std::process::id()], run.clock(), Duration::from_millis(100), Vec::new)
        .expect("it runs");
    let mut report = run.go().expect("a run");
    report.server = Some(watcher.stop());
    let phase = report.measured().expect("one phase");
    let accounts = phase.caller.began;
    assert_eq!(accounts.carried, accounts.offered, "{:?}", phase.caller.failures);

    let slices = phase.series.slices();
    assert!((3..MAX_SLICES).contains(&slices.len()), "{}", slices.len());
    assert_eq!(slices.iter().map(|slice| slice.offered).sum::<u64>(), accounts.offered);
    assert_eq!(slices.iter().map(|slice| slice.carried).sum::<u64>(), accounts.carried);
    assert_eq!(slices.iter().map(|slice| slice.latency.count()).sum::<u64>(), accounts.carried);
    for slice in &slices[..2] {
        assert!((100..300).contains(&slice.offered), "200 a second: {}", slice.offered);
    }

    let metrics = &phase.caller.metrics;
    assert_eq!(
        (metrics.ser(), metrics.seer(), metrics.isa(), metrics.scr()),
        (Some(100.0), Some(100.0), Some(0.0), Some(100.0))
    );
    assert_eq!((metrics.invites, metrics.sessions, metrics.registrations), (accounts.sent, accounts.sent, 0));
    // The workload rings and talks for 250 ms each.
    let (request, duration) = (metrics.srd_successful.quantile(0.5), metrics.sdt_successful.quantile(0.5));
    assert!(request < Duration::from_millis(100), "ringing comes at once: {request:?}");
    assert!((0.24..0.35).contains(&duration.as_secs_f64()), "{duration:?}");
    assert_eq!(metrics.sdd_successful.count(), accounts.carried);
    let called = &phase.callee.metrics.sdt_successful;
    assert_eq!(called.count(), accounts.carried, "the called end sees the same calls");

    let json = report.to_json(&about);
    let shown = output::RunReport::from_json(&json).expect("a report");
    let server = shown.server.as_ref().expect("watched");
    assert!(
        server.processors > 0.0 && (2..=3).contains(&server.rows.len()) && server.peak_bytes > 1 << 20,
        "{server:?}"
    );
    assert!(shown.rfc6076.iter().any(|row| row.name == "SDT" && row.value.is_some_and(|s| s > 0.2)));
    let html = output::page(&shown);
    assert_eq!(html.matches("<svg").count(), 8);
    let other = output::compare(&shown, &shown);
    assert!(other.rows.iter().all(|row| row.ratio().is_none_or(|ratio| ratio == 1.0)) && other.warnings.is_empty());
    assert_eq!(output::intervals(&shown).lines().count(), slices.len() + 1);
}
