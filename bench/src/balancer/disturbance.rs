//! One of eight targets stops under load and comes back. Measures the effect on its calls, on calls to other targets
//! and on the assignment of keys.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strowger_traffic::meter::{ResponseClass, TimeHistogram};
use strowger_traffic::script::MethodId;

use super::cluster::{AnsweringProcess, Group};
use super::contender::{Contender, ExtraConfig, Layout};
use super::generate::{self, LoadRequest, LoadResult, TALK};
use super::keys::{self, MovedKeys};
use super::{peer, target};

/// Number of targets.
pub const TARGETS: u16 = 8;
/// Load in percent. The remaining targets can serve all of it.
pub const PERCENT: f64 = 50.0;
/// Number of keys that are probed.
const KEYS: u32 = 400;
/// A longer response time means that the request reached the stopped target: no queue gets that long at this load.
const CAUGHT: Duration = Duration::from_millis(400);
/// Strowger's configuration: users as keys, so that each can be probed repeatedly; health probes, and a slow start.
const BALANCER: &str =
    "key = \"user\"\nprobe = { interval = \"1s\", timeout = \"500ms\", down = 2, up = 2 }\nslow_start = \"10s\"\n";
/// The same for policies that select by load.
const BY_LOAD: &str = "probe = { interval = \"1s\", timeout = \"500ms\", down = 2, up = 2 }\nslow_start = \"10s\"\n";

/// How a target stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopMethod {
    /// The target is suspended and resumed: SIGSTOP, SIGCONT.
    Stopped,
    /// The target is killed and a new one is started: SIGKILL.
    Killed,
}

impl fmt::Display for StopMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => "SIGSTOP",
            Self::Killed => "SIGKILL",
        })
    }
}

/// Results of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Calls that succeeded and calls that failed.
    pub ended: (u64, u64),
    /// 99th percentile from INVITE to 200, in milliseconds.
    pub p99: f64,
    /// Share of the calls that went to the target, in percent. `None` if the balancer was not queried.
    pub share: Option<f64>,
}

/// Results of a target's failure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Disturbance {
    /// Policy under test.
    pub contender: Contender,
    /// How the target stopped.
    pub how: StopMethod,
    /// When it stopped and when it came back, in seconds.
    pub away: (u64, u64),
    /// INVITEs sent, and those without a 200.
    pub invites: (u64, u64),
    /// BYEs sent, and those without a 200.
    pub byes: (u64, u64),
    /// INVITEs that waited for the stopped target before they were answered.
    pub caught: u64,
    /// Longest response time in seconds.
    pub longest: f64,
    /// Failure reasons with their number of calls.
    pub failures: Vec<(String, u64)>,
    /// Moved keys while the target was away: of the target and of all others. `None` if the policy does not use keys.
    pub moved: Option<((usize, usize), (usize, usize))>,
    /// Keys with another target than at first, after the slow start.
    pub astray: Option<usize>,
    /// Results per second.
    pub seconds: Vec<Second>,
}

/// Schedule of events, in seconds from the start of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// The target stops.
    pub stops: u64,
    /// Keys are probed.
    pub looked_at: u64,
    /// The target comes back.
    pub returns: u64,
    /// Keys are probed again, after the slow start.
    pub looked_at_again: u64,
    /// The run ends.
    pub ends: u64,
}

impl Schedule {
    /// Schedule of a full run.
    pub const USUAL: Self = Self { stops: 8, looked_at: 13, returns: 20, looked_at_again: 36, ends: 42 };
    /// Schedule of a smoke test, too short for a slow start.
    pub const QUICK: Self = Self { stops: 3, looked_at: 6, returns: 9, looked_at_again: 12, ends: 15 };
}

/// Runs the study.
///
/// # Errors
/// If a process does not start, or the balancer ends.
pub fn disturb(
    binary: &Path,
    (contender, how): (Contender, StopMethod),
    times: Schedule,
    percent: f64,
) -> Result<Disturbance, String> {
    let folder = tempfile::Builder::new().prefix("strowger-disturb-").tempdir().map_err(|error| error.to_string())?;
    let layout = Layout::equal(TARGETS);
    let time = layout.service_time(false);
    let group =
        |from: u16, to: u16| Group { addresses: (from..to).map(target).collect(), service_time: Some(time.clone()) };
    let start = |group: &Group| AnsweringProcess::start(binary, folder.path(), group, 7);
    let its = group(0, 1);
    let (mut victim, _others) = (start(&its)?, start(&group(1, TARGETS))?);
    let is_by_key = contender == Contender::Hash;
    let more = ExtraConfig { balancer: if is_by_key { BALANCER } else { BY_LOAD }, ..ExtraConfig::default() };
    let mut server = peer::start(contender, (binary, folder.path()), layout, &more, &[])?;
    let ask = LoadRequest {
        rate: Some(percent / 100.0 * layout.capacity()),
        at_once: 0,
        talk: Some(TALK),
        warm_up: Duration::from_secs(2),
        time: Duration::from_secs(times.ends),
        drain: Duration::from_secs(40),
        seed: 3,
        answered_at: Vec::new(),
    };
    let pid = server.pid();
    let begins = Instant::now() + ask.warm_up;
    let load = thread::spawn(move || generate::run(pid, &ask));
    let mut looking = is_by_key.then(|| KeyProbe::new(begins));
    let mut shares = Shares::new(binary, folder.path());
    for second in 0..times.ends {
        let due = begins + Duration::from_secs(second);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        shares.note();
        if second == times.stops {
            victim.signal(if how == StopMethod::Stopped { Signal::STOP } else { Signal::KILL });
        }
        if second == times.returns {
            match how {
                StopMethod::Stopped => victim.signal(Signal::CONT),
                StopMethod::Killed => victim = start(&its)?,
            }
        }
        if let Some(looking) = &mut looking {
            looking.look(second, times);
        }
    }
    let maps = looking.map(KeyProbe::maps).transpose()?;
    let ran = load.join().map_err(|_| "the generator died".to_owned())??;
    server.check()?;
    drop(victim);
    let mut done = judge(&ran, (contender, how), times, &shares.of_first);
    if let Some([before, during, after]) = maps {
        let MovedKeys { its, others } = keys::moved(&before, &during, target(0));
        done.moved = Some((its, others));
        let MovedKeys { its, others } = keys::moved(&before, &after, target(0));
        done.astray = Some(its.1 + others.1);
    }
    Ok(done)
}

type Map = Vec<Option<SocketAddr>>;

/// Probes keys before the target stops, while it is away and after its return.
struct KeyProbe {
    threads: Vec<JoinHandle<std::io::Result<Map>>>,
}

impl KeyProbe {
    fn new(begins: Instant) -> Self {
        let first = thread::spawn(move || {
            thread::sleep(begins.saturating_duration_since(Instant::now()));
            keys::map(KEYS, 0)
        });
        Self { threads: vec![first] }
    }

    fn look(&mut self, second: u64, times: Schedule) {
        let round = match second {
            second if second == times.looked_at => 1,
            second if second == times.looked_at_again => 2,
            _ => return,
        };
        self.threads.push(thread::spawn(move || keys::map(KEYS, round)));
    }

    fn maps(self) -> Result<[Map; 3], String> {
        let joined = self.threads.into_iter().map(|thread| match thread.join() {
            Ok(map) => map.map_err(|error| error.to_string()),
            Err(_) => Err("the thread that probes keys panicked".to_owned()),
        });
        let maps: Vec<Map> = joined.collect::<Result<_, _>>()?;
        maps.try_into().map_err(|_| "keys were not asked for three times".to_owned())
    }
}

/// Share of requests of the first target, as the balancer reports it.
struct Shares {
    binary: PathBuf,
    folder: PathBuf,
    /// Requests so far: of the first target, and in total.
    last: Option<(f64, f64)>,
    /// Share of the first target between two reports, in percent.
    of_first: Vec<Option<f64>>,
}

impl Shares {
    fn new(binary: &Path, folder: &Path) -> Self {
        Self { binary: binary.to_owned(), folder: folder.to_owned(), last: None, of_first: Vec::new() }
    }

    fn note(&mut self) {
        let now = self.ask();
        let share = self.last.zip(now).and_then(|((first, all), (now_first, now_all))| {
            let share = 100.0 * (now_first - first) / (now_all - all);
            share.is_finite().then_some(share)
        });
        self.of_first.push(share);
        self.last = now;
    }

    fn ask(&self) -> Option<(f64, f64)> {
        let mut command = Command::new(&self.binary);
        command.args(["ctl", "targets", "--json", "-c", "strowger.toml"]).current_dir(&self.folder);
        let output = command.stdin(Stdio::null()).output().ok()?;
        let said: Value = serde_json::from_slice(&output.stdout).ok()?;
        requests(&said, target(0))
    }
}

/// Returns the requests so far of a target, and in total.
fn requests(said: &Value, of: SocketAddr) -> Option<(f64, f64)> {
    let (mut its, mut all) = (None, 0.0);
    for target in said["targets"].as_array()? {
        let count = target["requests"].as_f64()?;
        all += count;
        if target["uri"].as_str()?.contains(&of.to_string()) {
            its = Some(count);
        }
    }
    Some((its?, all))
}

fn judge(
    ran: &LoadResult,
    (contender, how): (Contender, StopMethod),
    times: Schedule,
    shares: &[Option<f64>],
) -> Disturbance {
    let meter = ran.phase.meter();
    let of = |verb| {
        let asked = meter.asked(verb);
        (asked, asked.saturating_sub(meter.answer(verb, ResponseClass::Success).map_or(0, TimeHistogram::count)))
    };
    let answered = meter.answer(MethodId::Invite, ResponseClass::Success);
    let seconds = ran.phase.series.slices().iter().enumerate().map(|(second, slice)| Second {
        ended: (slice.ended_well(), slice.lost + slice.failed),
        p99: 1e3 * slice.latency.quantile(0.99).as_secs_f64(),
        // The report at the end of a second covers that second.
        share: shares.get(second + 1).copied().flatten(),
    });
    Disturbance {
        contender,
        how,
        away: (times.stops, times.returns),
        invites: of(MethodId::Invite),
        byes: of(MethodId::Bye),
        caught: answered.map_or(0, |times| times.count() - times.within(CAUGHT)),
        longest: answered.map_or(0.0, |times| times.max().as_secs_f64()),
        failures: meter.failures.iter().map(|(ending, count)| (ending.to_string(), *count)).collect(),
        moved: None,
        astray: None,
        seconds: seconds.take(usize::try_from(times.ends).unwrap_or(usize::MAX)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_targets_share_is_read_from_the_balancers_output() {
        let said = serde_json::json!({ "targets": [
            { "uri": "sip:127.0.1.1:5080", "requests": 10 }, { "uri": "sip:127.0.1.2:5080", "requests": 30 }] });
        assert_eq!(requests(&said, target(0)), Some((10.0, 40.0)));
        assert_eq!(requests(&said, target(5)), None);
        assert_eq!(requests(&serde_json::json!({}), target(0)), None);
    }
}
