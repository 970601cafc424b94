//! One run of the load generator against a server: what it offered, what the server dropped, and what it took of its core.

use std::time::Duration;

use strowger_traffic::engine::{self, Phase, PhaseReport, Run};
use strowger_traffic::meter::Meter;
use strowger_traffic::options::{Options, Target, workload_with};

use super::server::{ADDRESS, Server};
use crate::proxy::DOMAIN;
use crate::proxy::watch::{Sample, Watcher, within};

/// Users on each side: few, so that their registration is no load of its own.
const USERS: u32 = 50;
/// Sockets of the callers.
const SOCKETS: usize = 8;
/// Calls that go on at saturation: fewer than a socket has room for.
const AT_ONCE: usize = 32;
/// How long what has begun may take at the end; of what was dropped nothing comes any more.
const DRAIN: Duration = Duration::from_millis(500);
/// How long each end takes before it sends a message, where messages are to come independently of each other: at random, and far
/// longer than anything waits.
const PAUSE: &str = "exp(mean=20ms)";

/// How many calls there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// So many a second, at random (Poisson).
    Rate(f64),
    /// Some at once: a new one for each that ends.
    Saturation,
}

/// When the messages of a call are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// At once, when the one before has come.
    AtOnce,
    /// After a while, so that the server's messages are as good as independent: six Poisson streams.
    Spread,
}

/// What is asked of a server.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many calls.
    pub pace: Pace,
    /// When their messages are sent.
    pub course: Spacing,
    /// What is not counted, at the beginning.
    pub warm_up: Duration,
    /// What is.
    pub time: Duration,
    /// What randomness begins with.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Calls a second that were carried.
    pub carried_per_s: f64,
    /// Packets a second that were sent to the server: λ.
    pub packets_per_s: f64,
    /// The share of them for which its socket had no room.
    pub drops: f64,
    /// Processors that it kept busy.
    pub processors: f64,
    /// Whether the generator was late.
    pub is_late: bool,
}

impl Outcome {
    /// Processor time of a packet that was served, s.
    #[must_use]
    pub fn each_s(&self) -> f64 {
        self.processors / (self.packets_per_s * (1.0 - self.drops))
    }
}

/// Runs it. The generator has the core of the thread that calls this.
///
/// # Errors
/// When there is nothing to measure.
pub fn run(server: &Server, load: &Load) -> Result<Outcome, String> {
    let run = prepare(load)?;
    let watcher = Watcher::start(server.pid(), ADDRESS.port(), run.clock());
    let report = run.go().map_err(|error| error.to_string());
    let samples = watcher.stop();
    let report = report?;
    if let Some(why) = report.broken_off {
        return Err(why);
    }
    let phase = report.phases.iter().find(|phase| phase.is_measured).ok_or("nothing was measured")?;
    let (first, last) = within(&samples, phase.counted_from, phase.elapsed).ok_or("the server was not seen")?;
    let counted: Vec<Sample> = samples.into_iter().filter(|sample| (first.at..=last.at).contains(&sample.at)).collect();
    let ServerUsage { drops_per_s, processors } =
        ServerUsage::of(&counted).ok_or("the server was not seen for long enough")?;
    Ok(outcome(phase, drops_per_s, processors))
}

/// What a server did, each second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ServerUsage {
    drops_per_s: f64,
    processors: f64,
}

impl ServerUsage {
    /// Between looks during which nobody took the machine's cores away, where there are such: while one is away all is dropped that a
    /// socket has no room for, and that is not the server's.
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
    let packets_per_s = (sent(&phase.caller) + sent(&phase.callee)) / elapsed;
    Outcome {
        carried_per_s: phase.carried_in_time as f64 / elapsed,
        packets_per_s,
        drops: (drops_per_s / packets_per_s).min(1.0),
        processors,
        is_late: phase.bottleneck().is_some(),
    }
}

/// A run that has not begun: callees register, then calls are made.
///
/// # Errors
/// When the generator cannot run.
pub fn prepare(load: &Load) -> Result<Run, String> {
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
        is_busy_polling: true,
        ..Options::new(workload, Some(to), load.seed)
    };
    let mut plan = options.plan().map_err(said)?.0;
    let at = plan.phases.iter().position(|phase: &Phase| phase.is_measured).ok_or("the workload measures nothing")?;
    // Nobody waits for the end of registrations.
    plan.phases.truncate(at + 1);
    Run::prepare(plan).map_err(said)
}

#[cfg(test)]
mod tests {
    use strowger_foundation::Timestamp;

    use super::*;

    #[test]
    fn while_the_machine_was_away_nothing_counts() {
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
