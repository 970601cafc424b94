//! The generator: the engine of `strowger load` in this process, one run per load.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_traffic::engine::{Callee, PhaseReport, PlanError, Run, SideScripts};
use strowger_traffic::meter::{Meter, ResponseClass};
use strowger_traffic::options::{CalleeLocation, Options, Target, workload_with};
use strowger_traffic::script::MethodId;

use super::figures::{Cost, Figures, Times};
use super::{BALANCER, DOMAIN};
use crate::proxy::watch::{Sample, Watcher, within};

/// Users per side.
const USERS: u32 = 1_000;
/// Number of caller ports.
const SOCKETS: usize = 8;
/// Talk time. Long enough that calls overlap, and random so that BYEs arrive at random even if targets are called in
/// rotation.
pub const TALK: &str = "uniform(min=500ms,max=1500ms)";
/// Initial retransmission interval, as in RFC 3261.
pub const T1: Duration = Duration::from_millis(500);
/// Response time that callers hardly notice: thirty times the mean service time.
pub const SOON: Duration = Duration::from_millis(50);

/// Load offered to a server.
#[derive(Clone, Debug)]
pub struct LoadRequest {
    /// Calls per second. `None` means a closed loop of `at_once` calls.
    pub rate: Option<f64>,
    /// Concurrent calls without a rate.
    pub at_once: usize,
    /// Talk time; `None` means zero.
    pub talk: Option<&'static str>,
    /// Initial time that is not counted.
    pub warm_up: Duration,
    /// Counted time.
    pub time: Duration,
    /// Maximum time for calls to end after the load stops.
    pub drain: Duration,
    /// Random seed.
    pub seed: u64,
    /// Addresses at which this process answers immediately. Empty if other processes are the targets.
    pub answered_at: Vec<SocketAddr>,
}

/// Results of a load.
#[derive(Debug)]
pub struct LoadResult {
    /// The generator's report.
    pub phase: PhaseReport,
    /// Resource usage of the server during the load.
    pub samples: Vec<Sample>,
}

/// Sends calls through the balancer of process `pid`.
///
/// # Errors
/// If nothing can be measured: the server does not answer, or the generator cannot run.
pub fn run(pid: u32, ask: &LoadRequest) -> Result<LoadResult, String> {
    let said = |error: PlanError| error.to_string();
    let set: Vec<_> = ask.talk.iter().map(|law| ("hold".to_owned(), (*law).to_owned())).collect();
    let workload = workload_with("proxy-200", &set, 1.0).map_err(said)?;
    let side = SideScripts { scripts: Arc::from(workload.callees.clone()), answers: workload.answers.clone() };
    let to = Target::parse(&format!("udp:{BALANCER}")).map_err(said)?;
    let options = Options {
        callee_location: CalleeLocation::Remote,
        users: USERS,
        domain: Some(DOMAIN.to_owned()),
        sockets: SOCKETS,
        rate: ask.rate.unwrap_or(1.0),
        outstanding: ask.rate.is_none().then_some(ask.at_once),
        time: Some(ask.time),
        warm_up: ask.warm_up,
        drain: Some(ask.drain),
        ..Options::new(workload, Some(to), ask.seed)
    };
    let mut plan = options.plan().map_err(said)?.0;
    if !ask.answered_at.is_empty() {
        plan.callee = Some(Callee { side, listen: ask.answered_at.clone(), service: None });
    }
    let run = Run::prepare(plan).map_err(said)?;
    let watcher = Watcher::start(pid, BALANCER.port(), run.clock());
    let report = run.go().map_err(said);
    let samples = watcher.stop();
    let report = report?;
    if let Some(why) = report.broken_off {
        return Err(why);
    }
    let phase = report.phases.into_iter().find(|phase| phase.is_measured).ok_or("nothing was measured")?;
    Ok(LoadResult { phase, samples })
}

impl LoadResult {
    /// Returns times and shares.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub fn figures(&self) -> Figures {
        let meter = self.phase.meter();
        let elapsed = self.phase.elapsed.as_secs_f64();
        let asked = (meter.asked(MethodId::Invite) + meter.asked(MethodId::Bye)).max(1) as f64;
        let in_time = |limit: Duration| {
            let of = |verb| meter.answer(verb, ResponseClass::Success).map_or(0, |times| times.within(limit));
            (of(MethodId::Invite) + of(MethodId::Bye)) as f64 / asked
        };
        let cost = self.cost();
        Figures {
            offered: meter.began.offered as f64 / elapsed,
            carried: self.phase.carried_in_time as f64 / elapsed,
            sent: meter.began.sent,
            not_carried: meter.began.sent - meter.began.carried,
            invite: times(meter, MethodId::Invite),
            bye: times(meter, MethodId::Bye),
            before_t1: in_time(T1),
            soon: in_time(SOON),
            processor: cost.map_or(0.0, |cost| cost.processor),
            is_late: self.phase.bottleneck().is_some(),
        }
    }

    /// Returns the balancer's cost per call.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub fn cost(&self) -> Option<Cost> {
        let (first, last) = within(&self.samples, self.phase.counted_from, self.phase.elapsed)?;
        let (used, time) = (last.since(&first), last.at.saturating_since(first.at).as_secs_f64());
        let elapsed = self.phase.elapsed.as_secs_f64();
        let calls = self.phase.carried_in_time as f64 * time / elapsed;
        let processor = used.user + used.system;
        (calls > 0.0 && processor > 0.0).then(|| Cost {
            rate: self.phase.carried_in_time as f64 / elapsed,
            processor: 1e6 * processor / calls,
            kernel: 100.0 * used.system / processor,
            cores: processor / time,
            generator: self.phase.cpu.as_secs_f64() / elapsed,
        })
    }
}

/// Returns the times from a request to its 2xx, in milliseconds.
fn times(meter: &Meter, verb: MethodId) -> Times {
    let ms = |time: Duration| 1e3 * time.as_secs_f64();
    meter.answer(verb, ResponseClass::Success).filter(|times| times.count() > 0).map_or_else(Times::default, |times| {
        Times {
            mean: ms(times.mean()),
            p50: ms(times.quantile(0.5)),
            p95: ms(times.quantile(0.95)),
            p99: ms(times.quantile(0.99)),
        }
    })
}
