//! Both ends of calls in one process and thread, without a server between.

use std::time::Duration;

use strowger_traffic::engine::{PhaseReport, Plan, PlanError, Run};
use strowger_traffic::options::{CalleeLocation, Options, workload};

use super::Probe;

/// Results of a closed loop.
#[derive(Clone, Copy, Debug)]
pub struct Loop {
    /// Calls per second.
    pub rate: f64,
    /// Processor time per call, in microseconds.
    pub cost: f64,
}

fn options() -> Options {
    let mut options = Options::new(workload("proxy-200").expect("it is built in"), None, 1);
    options.callee_location = CalleeLocation::Local;
    options.users = 10_000;
    options.warm_up = Duration::from_millis(500);
    options.drain = Some(Duration::from_secs(2));
    options
}

fn run(plan: Plan) -> Result<PhaseReport, PlanError> {
    let report = Run::prepare(plan)?.go()?;
    let phase = report.measured().ok_or_else(|| PlanError("nothing was measured".to_owned()))?;
    let accounts = phase.caller.began;
    assert!(accounts.add_up(), "the accounts are exact: {accounts:?}");
    Ok(phase.clone())
}

/// Makes as many calls as possible, with `at_once` concurrent calls.
///
/// # Errors
/// As the engine's.
pub fn closed(time: Duration, at_once: usize) -> Result<Loop, PlanError> {
    let mut options = options();
    (options.outstanding, options.time) = (Some(at_once), Some(time));
    let phase = run(options.plan()?.0)?;
    let calls = phase.caller.began.carried.max(1) as f64;
    Ok(Loop { rate: calls / phase.elapsed.as_secs_f64(), cost: phase.cpu.as_secs_f64() * 1e6 / calls })
}

/// Makes calls with Poisson arrivals at this rate.
///
/// # Errors
/// As the engine's.
pub fn open(rate: f64, time: Duration) -> Result<Probe, PlanError> {
    let mut options = options();
    (options.rate, options.time) = (rate, Some(time));
    let phase = run(options.plan()?.0)?;
    let accounts = phase.caller.began;
    let counts = [
        (accounts.offered - accounts.carried, "calls not carried"),
        (phase.caller.repeats_sent + phase.callee.repeats_sent, "messages sent again"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let faults = counts.chain(phase.bottleneck()).collect();
    // The number of arrivals is random: the generator must carry those that occurred.
    let made = accounts.carried as f64 / accounts.offered.max(1) as f64 * rate;
    Ok(Probe::new(rate, made, faults))
}
