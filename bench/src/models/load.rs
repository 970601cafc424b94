//! One run of the load generator against a server: the offered load, the server's drops, and its use of the core.

use std::time::Duration;

use strowger_traffic::engine::{self, Phase, PhaseReport, Run};
use strowger_traffic::meter::{Meter, ResponseClass};
use strowger_traffic::options::{Options, Target, workload_with};
use strowger_traffic::script::MethodId;

use super::server::{ADDRESS, Server};
use crate::proxy::DOMAIN;
use crate::proxy::watch::{Sample, Watcher, within};

/// Users per side: few, so that their registration adds no load.
const USERS: u32 = 50;
/// Number of caller sockets.
const SOCKETS: usize = 8;
/// Concurrent calls at saturation: fewer than the socket's capacity in packets.
const AT_ONCE: usize = 32;
/// Maximum time for calls to end after the load stops. Calls with dropped messages do not end.
const DRAIN: Duration = Duration::from_millis(500);
/// Delay of each end before it sends a message, to make messages independent: random, and far longer than any wait.
const PAUSE: &str = "exp(mean=20ms)";

/// Arrival process of calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Calls per second, with Poisson arrivals.
    Rate(f64),
    /// Closed loop: a new call begins when one ends.
    Saturation,
}

/// Spacing of the messages of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Immediately after the previous message arrives.
    AtOnce,
    /// After a random delay, so that the server's messages are practically independent: six Poisson streams.
    Spread,
}

/// Load offered to a server.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Arrival process of calls.
    pub pace: Pace,
    /// Spacing of their messages.
    pub course: Spacing,
    /// Initial time that is not counted.
    pub warm_up: Duration,
    /// Counted time.
    pub time: Duration,
    /// Random seed.
    pub seed: u64,
}

/// Results of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Successful calls per second.
    pub carried_per_s: f64,
    /// Packets sent to the server per second: λ.
    pub packets_per_s: f64,
    /// Share of packets dropped by its socket.
    pub drops: f64,
    /// Average number of cores that it kept busy.
    pub processors: f64,
    /// Whether the generator fell behind.
    pub is_late: bool,
    /// 99th percentile of the time from INVITE to 180 in milliseconds, if there were any.
    pub p99_ms: Option<f64>,
}

impl Outcome {
    /// Returns the processor time per served packet, in seconds.
    #[must_use]
    pub fn each_s(&self) -> f64 {
        self.processors / (self.packets_per_s * (1.0 - self.drops))
    }
}

/// Runs the load. The generator runs on the core of the calling thread.
///
/// # Errors
/// If nothing can be measured.
pub fn run(server: &Server, load: &Load) -> Result<Outcome, String> {
    carry_out(server.pid(), prepare(load)?)
}

/// Runs a prepared load against the server with this process.
///
/// # Errors
/// If nothing can be measured.
pub fn carry_out(server: u32, run: Run) -> Result<Outcome, String> {
    let watcher = Watcher::start(server, ADDRESS.port(), run.clock());
    let report = run.go().map_err(|error| error.to_string());
    let samples = watcher.stop();
    let report = report?;
    if let Some(why) = report.broken_off {
        return Err(why);
    }
    let phase = report.phases.iter().find(|phase| phase.is_measured).ok_or("nothing was measured")?;
    let (first, last) =
        within(&samples, phase.counted_from, phase.elapsed).ok_or("there are no samples of the server")?;
    let counted: Vec<Sample> = samples.into_iter().filter(|sample| (first.at..=last.at).contains(&sample.at)).collect();
    let ServerUsage { drops_per_s, processors } =
        ServerUsage::of(&counted).ok_or("there are too few samples of the server")?;
    Ok(outcome(phase, drops_per_s, processors))
}

/// Resource usage of a server per second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ServerUsage {
    drops_per_s: f64,
    processors: f64,
}

impl ServerUsage {
    /// Computes the usage from samples without steal, if there are any. While a core is taken away, everything beyond
    /// the socket's capacity is dropped, through no fault of the server.
    fn of(samples: &[Sample]) -> Option<Self> {
        let between = |is_counted: fn(&Sample) -> bool| {
            let (mut drops, mut used, mut seconds) = (0.0, 0.0, 0.0);
            for (before, after) in samples.iter().zip(samples.iter().skip(1)) {
                let since = after.since(before);
                if is_counted(&since) {
                    drops += since.drops;
                    used += since.user + since.system;
                    seconds += after.at.saturating_since(before.at).as_secs_f64();
                }
            }
            (seconds > 0.0).then(|| Self { drops_per_s: drops / seconds, processors: used / seconds })
        };
        between(|since| since.stolen == 0).or_else(|| between(|_| true))
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn outcome(phase: &PhaseReport, drops_per_s: f64, processors: f64) -> Outcome {
    let elapsed = phase.elapsed.as_secs_f64();
    let sent = |meter: &Meter| (meter.sent.total() + meter.repeats_sent) as f64;
    let meter = phase.meter();
    let ringing = meter.answer(MethodId::Invite, ResponseClass::Provisional).filter(|times| times.count() > 0);
    let packets_per_s = (sent(&phase.caller) + sent(&phase.callee)) / elapsed;
    Outcome {
        carried_per_s: phase.carried_in_time as f64 / elapsed,
        packets_per_s,
        drops: (drops_per_s / packets_per_s).min(1.0),
        processors,
        is_late: phase.bottleneck().is_some(),
        p99_ms: ringing.map(|times| times.quantile(0.99).as_secs_f64() * 1e3),
    }
}

/// Prepares a run: callees register, then calls are made.
///
/// # Errors
/// If the generator cannot run.
pub fn prepare(load: &Load) -> Result<Run, String> {
    prepare_with(load, true)
}

/// Prepares a run; tells whether the generator polls its sockets, which takes a whole core.
///
/// # Errors
/// If the generator cannot run.
pub fn prepare_with(load: &Load, is_busy_polling: bool) -> Result<Run, String> {
    let said = |error: engine::PlanError| error.to_string();
    let set: Vec<(String, String)> = match load.course {
        Spacing::AtOnce => Vec::new(),
        Spacing::Spread => ["ring", "hold", "reaction"].map(|name| (name.to_owned(), PAUSE.to_owned())).to_vec(),
    };
    let workload = workload_with("proxy-200", &set, 1.0).map_err(said)?;
    let to = Target::parse(&format!("udp:{ADDRESS}")).map_err(said)?;
    let (rate, outstanding) = match load.pace {
        Pace::Rate(rate) => (rate, None),
        Pace::Saturation => (1.0, Some(AT_ONCE)),
    };
    let options = Options {
        users: USERS,
        domain: Some(DOMAIN.to_owned()),
        sockets: SOCKETS,
        rate,
        outstanding,
        time: Some(load.time),
        warm_up: load.warm_up,
        drain: Some(DRAIN),
        retransmits: false,
        is_busy_polling,
        ..Options::new(workload, Some(to), load.seed)
    };
    let mut plan = options.plan().map_err(said)?.0;
    let at = plan.phases.iter().position(|phase: &Phase| phase.is_measured).ok_or("the workload measures nothing")?;
    // The phones stay registered.
    plan.phases.truncate(at + 1);
    Run::prepare(plan).map_err(said)
}

#[cfg(test)]
mod tests {
    use strowger_foundation::Timestamp;

    use super::*;

    #[test]
    fn samples_with_stolen_time_do_not_count() {
        let counted = [(0.0, 0), (250.0, 0), (90_000.0, 3), (90_000.0, 3)];
        let mut samples: Vec<Sample> = (0..)
            .zip(counted)
            .map(|(quarter, (drops, stolen))| {
                let at = Timestamp::from_millis(250 * quarter);
                Sample { at, drops, stolen, user: 0.125 * quarter as f64, ..Sample::default() }
            })
            .collect();
        assert_eq!(ServerUsage::of(&samples), Some(ServerUsage { drops_per_s: 500.0, processors: 0.5 }));
        assert_eq!(ServerUsage::of(&samples[..1]), None);
        samples[1].stolen = 1;
        samples[3].stolen = 4;
        assert!(ServerUsage::of(&samples).is_some_and(|spent| spent.drops_per_s > 100_000.0), "there is nothing else");
    }
}
