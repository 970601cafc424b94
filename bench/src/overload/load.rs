//! Calls to a server: `strowger load`'s engine, both ends in this process, on the generator's core.

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

/// Ports of the callers, over UDP.
const SOCKETS: usize = 8;
/// Connections of the callers, over TCP.
pub const CONNECTIONS: usize = 32;

/// How calls begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// So many a second, at random (Poisson), whatever the answers.
    Rate(f64),
    /// So many at once, a new one for each that ends.
    AtOnce(usize),
}

/// What is asked of a server.
#[derive(Clone, Debug)]
pub struct LoadRequest {
    /// Over what.
    pub mode: Mode,
    /// How many calls.
    pub pace: Pace,
    /// The beginning, which is not counted.
    pub warm_up: Duration,
    /// What is counted.
    pub time: Duration,
    /// How long what has begun may take at the end. No call begins then, so what is carried in it is in no goodput.
    pub drain: Duration,
    /// Addresses of the callers; one port each. Empty, all come from the server's address.
    pub from: Vec<IpAddr>,
    /// Users on each side.
    pub users: u32,
    /// Callees that register a second; by default as fast as they are answered.
    pub register_rate: Option<f64>,
    /// The pattern of users' names.
    pub pattern: &'static str,
    /// Where callees listen.
    pub callees: SocketAddr,
    /// What randomness begins with.
    pub seed: u64,
}

impl LoadRequest {
    /// Calls at this pace, by callers who behave as RFC 3261 says.
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

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Calls a second that began.
    pub offered: f64,
    /// Calls a second that ended while others began, each answered and ended properly.
    pub goodput: f64,
    /// The share of the calls that were carried in the end, in percent.
    pub carried: f64,
    /// The share of the BYEs of answered calls that were answered, in percent; `None` where there was no BYE.
    pub byes: Option<f64>,
    /// From the first copy of an INVITE to its 200, of those that were answered, in milliseconds: the median.
    pub p50_ms: Option<f64>,
    /// And the 99th percentile.
    pub p99_ms: Option<f64>,
    /// 503 responses a second.
    pub refused: f64,
    /// Requests and responses a second that both ends sent again.
    pub repeats: f64,
    /// Cores that the server used.
    pub processors: f64,
    /// The share of periods in which it used all of its quota, in percent.
    pub throttled: f64,
    /// Datagrams a second for which its sockets had no room.
    pub drops: f64,
    /// Whether the generator was late.
    pub is_late: bool,
}

/// The run for it: callees register, then calls are made.
///
/// # Errors
/// When the generator cannot run.
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
    // The server ends with its registrations.
    plan.phases.truncate(at + 1);
    plan.callees_at = vec![ask.callees];
    Ok(plan)
}

/// The number of the phase that is measured, as `Stopper::phase` says it.
fn measured(plan: &Plan) -> Result<usize, String> {
    plan.phases.iter().position(|phase| phase.is_measured).ok_or_else(|| "the workload measures nothing".to_owned())
}

/// The number of the phase of calls behind that of registrations.
pub const CALLING: usize = 1;

/// Runs it.
///
/// # Errors
/// When there is nothing to measure.
pub fn run(server: &mut Server, ask: &LoadRequest) -> Result<Outcome, String> {
    let run = prepare(ask)?;
    carry_out(server, run)
}

/// Runs what is prepared.
///
/// # Errors
/// When there is nothing to measure.
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

/// What the generator saw of a phase.
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
