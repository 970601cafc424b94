//! The generator: `strowger load`'s engine in this process, one run for each load.

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

/// Users on each side.
const USERS: u32 = 1_000;
/// Ports of the callers.
const SOCKETS: usize = 8;
/// How long they talk: so long that calls go on at the same time, and BYEs come at random whoever was called in turn.
pub const TALK: &str = "uniform(min=500ms,max=1500ms)";
/// The interval after which a request that is not answered is sent again, as RFC 3261 has it.
pub const T1: Duration = Duration::from_millis(500);
/// What callers would hardly notice: thirty times the mean service time.
pub const SOON: Duration = Duration::from_millis(50);

/// What a server is asked to do.
#[derive(Clone, Debug)]
pub struct LoadRequest {
    /// Calls a second; where it is none, so many at once.
    pub rate: Option<f64>,
    /// How many at once, where there is no rate.
    pub at_once: usize,
    /// How long they talk; not at all without.
    pub talk: Option<&'static str>,
    /// What is not counted, at the beginning.
    pub warm_up: Duration,
    /// What is.
    pub time: Duration,
    /// How long calls may take that have begun by then.
    pub drain: Duration,
    /// What randomness begins with.
    pub seed: u64,
    /// Who answers in this process, at once; where there are none, others do.
    pub answered_at: Vec<SocketAddr>,
}

/// What came of it.
#[derive(Debug)]
pub struct LoadResult {
    /// As the generator saw it.
    pub phase: PhaseReport,
    /// What the server used, meanwhile.
    pub samples: Vec<Sample>,
}

/// Calls through the balancer of process `pid`.
///
/// # Errors
/// When there is nothing to measure: the server answers nothing, or the generator cannot run.
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
    /// Times and shares.
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

    /// What the balancer used for each call.
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

/// From a request to its 2xx, in milliseconds.
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
