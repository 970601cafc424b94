//! Calls to a server: the engine of `strowger load` with both ends in this process, on the generator's core.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strowger_traffic::engine::{self, PhaseReport, Plan, Run};
use strowger_traffic::meter::ResponseClass;
use strowger_traffic::options::{Options, Target, workload_with};
use strowger_traffic::script::MethodId;

use super::contender::{Mode, Server};
use super::{CALLEES, DOMAIN, SERVER, USERS};
use crate::proxy::watch::{Watcher, within};

/// Number of caller ports over UDP.
const SOCKETS: usize = 8;
/// Number of caller connections over TCP.
pub const CONNECTIONS: usize = 32;

/// Arrival process of calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Calls per second, with Poisson arrivals, independent of responses.
    Rate(f64),
    /// Closed loop with this many calls: a new one begins when one ends.
    AtOnce(usize),
}

/// Load offered to a server.
#[derive(Clone, Debug)]
pub struct LoadRequest {
    /// Transport and authentication.
    pub mode: Mode,
    /// Arrival process of calls.
    pub pace: Pace,
    /// Initial time that is not counted.
    pub warm_up: Duration,
    /// Counted time.
    pub time: Duration,
    /// Maximum time for calls to end after the load stops. Calls that end in it do not count as goodput.
    pub drain: Duration,
    /// Addresses of the callers, with one port each. If empty, all calls come from the server's address.
    pub from: Vec<IpAddr>,
    /// Users per side.
    pub users: u32,
    /// Callees that register per second; by default as fast as they are answered.
    pub register_rate: Option<f64>,
    /// Pattern of user names.
    pub pattern: &'static str,
    /// Listening address of the callees.
    pub callees: SocketAddr,
    /// Random seed.
    pub seed: u64,
}

impl LoadRequest {
    /// Creates a load at this pace from callers that follow RFC 3261.
    #[must_use]
    pub fn new(mode: Mode, pace: Pace, seed: u64) -> Self {
        let second = Duration::from_secs(1);
        Self {
            mode,
            pace,
            warm_up: 2 * second,
            time: second,
            drain: 4 * second,
            from: Vec::new(),
            users: USERS,
            register_rate: None,
            pattern: "user%",
            callees: CALLEES,
            seed,
        }
    }
}

/// Results of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Started calls per second.
    pub offered: f64,
    /// Successful calls per second that ended while others began.
    pub goodput: f64,
    /// Share of calls that succeeded in the end, in percent.
    pub carried: f64,
    /// Share of BYEs of answered calls that were answered, in percent; `None` without BYEs.
    pub byes: Option<f64>,
    /// Median time from the first copy of an INVITE to its 200 for answered calls, in milliseconds.
    pub p50_ms: Option<f64>,
    /// 99th percentile of that time, in milliseconds.
    pub p99_ms: Option<f64>,
    /// 503 responses per second.
    pub refused: f64,
    /// Retransmissions of requests and responses per second by both ends.
    pub repeats: f64,
    /// Average number of cores that the server used.
    pub processors: f64,
    /// Share of periods in which it used up its quota, in percent.
    pub throttled: f64,
    /// Datagrams per second dropped by its sockets.
    pub drops: f64,
    /// Whether the generator fell behind.
    pub is_late: bool,
}

/// Prepares a run: callees register, then calls are made.
///
/// # Errors
/// If the generator cannot run.
pub fn prepare(ask: &LoadRequest) -> Result<Run, String> {
    Run::prepare(plan(ask)?).map_err(|error| error.to_string())
}

fn plan(ask: &LoadRequest) -> Result<Plan, String> {
    let said = |error: engine::PlanError| error.to_string();
    let is_stream = ask.mode == Mode::Tcp;
    let workload = workload_with("proxy-200", &[], 1.0).map_err(said)?;
    let to = Target::parse(&format!("{}:{SERVER}", if is_stream { "tcp" } else { "udp" })).map_err(said)?;
    let (rate, outstanding) = match ask.pace {
        Pace::Rate(rate) => (rate.max(1.0), None),
        Pace::AtOnce(count) => (1.0, Some(count)),
    };
    let options = Options {
        users: ask.users,
        register_rate: ask.register_rate,
        pattern: ask.pattern.to_owned(),
        domain: Some(DOMAIN.to_owned()),
        from: ask.from.clone(),
        sockets: ask.from.len().max(SOCKETS),
        connections: CONNECTIONS,
        has_segmentation: !is_stream,
        rate,
        outstanding,
        time: Some(ask.time),
        warm_up: ask.warm_up,
        drain: Some(ask.drain),
        ..Options::new(workload, Some(to), ask.seed)
    };
    let mut plan = options.plan().map_err(said)?.0;
    let at = measured(&plan)?;
    // No unregistration: the server ends with its registrations.
    plan.phases.truncate(at + 1);
    plan.callees_at = vec![ask.callees];
    Ok(plan)
}

/// Returns the index of the measured phase, as `Stopper::phase` counts.
fn measured(plan: &Plan) -> Result<usize, String> {
    plan.phases.iter().position(|phase| phase.is_measured).ok_or_else(|| "the workload measures nothing".to_owned())
}

/// Index of the phase of calls, after that of registrations.
pub const CALLING: usize = 1;

/// Runs the load.
///
/// # Errors
/// If nothing can be measured.
pub fn run(server: &mut Server, ask: &LoadRequest) -> Result<Outcome, String> {
    let run = prepare(ask)?;
    carry_out(server, run)
}

/// Runs a prepared load.
///
/// # Errors
/// If nothing can be measured.
pub fn carry_out(server: &mut Server, run: Run) -> Result<Outcome, String> {
    let watcher = Watcher::start(server.pid(), SERVER.port(), run.clock());
    let before = server.throttling();
    let report = run.go().map_err(|error| error.to_string());
    let samples = watcher.stop();
    let throttled = server.throttling().percent_since(before);
    server.check()?;
    let report = report?;
    if let Some(why) = report.broken_off {
        return Err(why);
    }
    let phase = report.phases.iter().find(|phase| phase.is_measured).ok_or("nothing was measured")?;
    let mut outcome = Outcome { throttled, ..outcome(phase) };
    if let Some((first, last)) = within(&samples, phase.counted_from, phase.elapsed) {
        let (used, seconds) = (last.since(&first), last.at.saturating_since(first.at).as_secs_f64());
        outcome.processors = (used.user + used.system) / seconds.max(0.001);
        outcome.drops = used.drops / seconds.max(0.001);
    }
    Ok(outcome)
}

/// Returns the generator's results of a phase.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub fn outcome(phase: &PhaseReport) -> Outcome {
    let meter = phase.meter();
    let seconds = phase.elapsed.as_secs_f64().max(0.001);
    let byes = meter.transactions.of(MethodId::Bye);
    let setup = meter.answer(MethodId::Invite, ResponseClass::Success).filter(|times| times.count() > 0);
    let setup = |share: f64| Some(setup?.quantile(share).as_secs_f64() * 1e3);
    Outcome {
        offered: meter.began.sent as f64 / seconds,
        goodput: phase.carried_in_time as f64 / seconds,
        carried: 100.0 * meter.began.carried as f64 / (meter.began.sent as f64).max(1.0),
        byes: (byes.all > 0).then(|| 100.0 * byes.succeeded as f64 / byes.all as f64),
        p50_ms: setup(0.5),
        p99_ms: setup(0.99),
        refused: meter.received.responses(503) as f64 / seconds,
        repeats: (phase.caller.repeats_sent + phase.callee.repeats_sent) as f64 / seconds,
        is_late: phase.bottleneck().is_some(),
        ..Outcome::default()
    }
}
