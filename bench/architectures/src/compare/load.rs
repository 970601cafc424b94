//! One run of `strowger load` against a server, and its results.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::server::Server;
use crate::compare::scenario::Scenario;
use crate::shard_group::DOMAIN;

/// Core of the generator, which plays both ends of a call.
const GENERATOR_CORE: &str = "1";

/// Load offered to a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// A constant number of concurrent calls: a new one begins when one ends.
    Saturation(u32),
    /// Calls per second, with Poisson arrivals.
    Rate(f64),
    /// Like `Rate`, without retransmissions.
    Once(f64),
}

/// Duration and number of users of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunSize {
    /// Users per side.
    pub(crate) users: u32,
    /// Initial time that is not measured.
    pub(crate) warm_up: Duration,
    /// Measured time.
    pub(crate) time: Duration,
}

/// Results of a run. A value missing in the report is NaN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Successful calls or registrations per second.
    pub(crate) rate: f64,
    /// Share of started calls or registrations that failed, in percent.
    pub(crate) lost: f64,
    /// Median time from the request to its 2xx, in microseconds.
    pub p50: f64,
    /// 99th percentile of that time, in microseconds.
    pub p99: f64,
    /// Processor time of all server processes per call or registration, in microseconds.
    pub(crate) processor: f64,
    /// Context switches of the server per call or registration.
    pub(crate) switches: f64,
    /// Average number of cores that the server kept busy.
    pub(crate) cores: f64,
    /// Share of a core that its busiest thread used.
    pub(crate) busiest: f64,
    /// Peak resident memory of its processes, in MiB.
    pub(crate) memory: f64,
    /// Datagrams dropped because the server's receive buffer was full.
    pub(crate) drops: f64,
    /// Share of its core that the generator used.
    pub(crate) generator: f64,
}

impl Figures {
    fn of(report: &Value, scenario: Scenario, busiest: f64) -> Self {
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let answers = report["answers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let answer = answers.iter().find(|row| row["method"] == scenario.timed() && row["answer"] == "2xx");
        let time = |name: &str| answer.map_or(f64::NAN, |row| number(&row["us"][name]));
        let (server, generator) = (&report["server"], &report["generator"]);
        // Without retransmissions, a call with a lost message stays unfinished until the end.
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
/// If the generator cannot be run or writes no report. The error includes its output.
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

/// Returns the share of a core that the busiest thread of these processes uses under load.
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

/// Returns the processor time of each thread so far, in nanoseconds.
fn times(processes: &[u32]) -> Vec<(u32, u64)> {
    let threads = processes.iter().flat_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten());
    let time = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let number = thread.file_name().to_str()?.parse().ok()?;
        Some((number, text.split_whitespace().next()?.parse().ok()?))
    };
    threads.flatten().filter_map(time).collect()
}
