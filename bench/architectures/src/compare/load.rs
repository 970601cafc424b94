//! One run of `strowger load` against a server, and what came of it.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::server::Server;
use crate::shard_group::DOMAIN;

/// The core of the generator, both ends of a call.
const GENERATOR_CORE: &str = "1";

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// Proxy-200 without state: INVITE, 180, 200, ACK, BYE, 200, each forwarded and forgotten.
    Stateless,
    /// Proxy-200 with transactions.
    Stateful,
    /// A REGISTER that refreshes.
    Register,
}

impl Scenario {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Stateless, Self::Stateful, Self::Register];

    const fn workload(self) -> &'static str {
        match self {
            Self::Stateless | Self::Stateful => "proxy-200",
            Self::Register => "registration",
        }
    }

    /// The request whose 2xx is timed.
    const fn timed(self) -> &'static str {
        match self {
            Self::Stateless | Self::Stateful => "INVITE",
            Self::Register => "REGISTER",
        }
    }

    /// The messages that the server receives for each.
    pub(crate) const fn messages(self) -> f64 {
        match self {
            Self::Stateless | Self::Stateful => 6.0,
            Self::Register => 1.0,
        }
    }

    /// A registrar would take a REGISTER of the same user from another port for another phone.
    const fn sockets(self) -> &'static str {
        match self {
            Self::Stateless | Self::Stateful => "8",
            Self::Register => "1",
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stateless => "stateless Proxy-200",
            Self::Stateful => "stateful Proxy-200",
            Self::Register => "REGISTER",
        })
    }
}

/// How much is asked of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// So many calls at once: a new one for each that ends.
    Saturation(u32),
    /// So many a second, at random (Poisson).
    Rate(f64),
    /// The same, and nothing is sent again that is lost.
    Once(f64),
}

/// How long, and of how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunSize {
    /// Users on each side.
    pub(crate) users: u32,
    /// What is not measured, at the beginning.
    pub(crate) warm_up: Duration,
    /// What is.
    pub(crate) time: Duration,
}

/// What came of a run; what a report does not say is not a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Calls or registrations a second that ended well.
    pub(crate) rate: f64,
    /// Of those that began, the share that did not, in percent.
    pub(crate) lost: f64,
    /// From the request to its 2xx, at the median, in microseconds.
    pub p50: f64,
    /// The same, of which one in a hundred takes longer.
    pub p99: f64,
    /// Processor time of all the server's processes for each, in microseconds.
    pub(crate) processor: f64,
    /// Its context switches for each.
    pub(crate) switches: f64,
    /// Cores that it kept busy.
    pub(crate) cores: f64,
    /// The share of a core that its busiest thread used.
    pub(crate) busiest: f64,
    /// The most memory that its processes had resident, in MiB.
    pub(crate) memory: f64,
    /// Datagrams that found no room in its socket.
    pub(crate) drops: f64,
    /// The share of its core that the generator used.
    pub(crate) generator: f64,
}

impl Figures {
    fn of(report: &Value, scenario: Scenario, busiest: f64) -> Self {
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let answers = report["answers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let answer = answers.iter().find(|row| row["method"] == scenario.timed() && row["answer"] == "2xx");
        let time = |name: &str| answer.map_or(f64::NAN, |row| number(&row["us"][name]));
        let (server, generator) = (&report["server"], &report["generator"]);
        // What nobody sends again is waited for until the end.
        let bad = number(&report["lost"]).max(0.0) + number(&report["failed"]) + number(&report["unfinished"]);
        Self {
            rate: number(&report["carried_per_s"]),
            lost: 100.0 * bad / number(&report["sent"]),
            p50: time("p50"),
            p99: time("p99"),
            processor: number(&server["cpu_us_per_call"]),
            switches: number(&server["switches_per_call"]),
            cores: number(&server["processors"]),
            busiest,
            memory: number(&server["peak_bytes"]) / f64::from(1 << 20),
            drops: number(&server["drops"]),
            generator: number(&generator["cpu_s"]) / number(&report["elapsed_s"]),
        }
    }
}

/// Runs the generator on its core.
///
/// # Errors
/// When it cannot be run, or writes no report; then with what it said.
pub(crate) fn run(
    binary: &Path,
    server: &Server,
    scenario: Scenario,
    load: Load,
    extent: RunSize,
) -> Result<Figures, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let json = folder.path().join("report.json");
    let mut command = Command::new("taskset");
    command.args(["-c", GENERATOR_CORE]).arg(binary).args(["load", "run", "--quiet"]);
    command.args(["--to", &format!("udp:{}", server.address), "--workload", scenario.workload(), "--domain", DOMAIN]);
    command.args(["--users", &extent.users.to_string(), "--pid", &server.pid().to_string()]);
    command.args(["--sockets", scenario.sockets(), "--drain", "2s"]);
    command.args(["--warm-up", &format!("{}ms", extent.warm_up.as_millis())]);
    command.args(["--time", &format!("{}ms", extent.time.as_millis())]);
    match load {
        Load::Saturation(count) => command.args(["--outstanding", &count.to_string()]),
        Load::Rate(rate) => command.args(["--rate", &rate.to_string()]),
        Load::Once(rate) => command.args(["--rate", &rate.to_string(), "--no-retransmissions"]),
    };
    command.arg("--json").arg(&json);
    let processes = server.processes();
    let share = thread::spawn(move || busiest_share(&processes, extent));
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = fs::read(&json).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("the generator wrote no report: {}", said.trim())
    })?;
    let report = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", json.display()))?;
    Ok(Figures::of(&report, scenario, share.join().unwrap_or(f64::NAN)))
}

/// The share of a core that the busiest thread of these processes uses while the load is on.
fn busiest_share(processes: &[u32], extent: RunSize) -> f64 {
    thread::sleep(extent.warm_up + extent.time / 4);
    let (before, began) = (times(processes), Instant::now());
    thread::sleep(extent.time / 2);
    let (after, time) = (times(processes), began.elapsed());
    let used = after.iter().filter_map(|(thread, ns)| {
        let (_, before) = before.iter().find(|(other, _)| other == thread)?;
        Some(ns.saturating_sub(*before))
    });
    used.max().map_or(f64::NAN, |ns| Duration::from_nanos(ns).as_secs_f64() / time.as_secs_f64())
}

/// The processor time of each thread so far, in nanoseconds.
fn times(processes: &[u32]) -> Vec<(u32, u64)> {
    let threads = processes.iter().flat_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten());
    let time = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let number = thread.file_name().to_str()?.parse().ok()?;
        Some((number, text.split_whitespace().next()?.parse().ok()?))
    };
    threads.flatten().filter_map(time).collect()
}
