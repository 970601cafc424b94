//! One run of the generator, and what its report says.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::DOMAIN;
use super::peer::Running;
use super::scenario::Scenario;

/// How much is asked of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// So many calls or registrations going on all the time: a new one for each that ends.
    Saturation(u32),
    /// So many a second, at random (Poisson).
    Rate(u32),
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Saturation(count) => write!(f, "saturation ({count} at once)"),
            Self::Rate(rate) => write!(f, "{rate}/s"),
        }
    }
}

/// How a run is made.
#[derive(Clone, Debug)]
pub struct How {
    /// The program `strowger`: the generator, and our server.
    pub binary: PathBuf,
    /// Users on each side.
    pub users: u32,
    /// What is not measured, at the beginning.
    pub warm_up: Duration,
    /// What is.
    pub time: Duration,
}

/// What came of a run; what a report does not say is not a number.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Calls or registrations a second that ended well.
    pub rate: f64,
    /// Of those that began, the share that did not, in percent.
    pub lost: f64,
    /// From the request to the answer that the scenario is about, at the median, in microseconds.
    pub p50: f64,
    /// The same, of which one in a hundred takes longer.
    pub p99: f64,
    /// Processor time of all the server's processes for each, in microseconds.
    pub processor: f64,
    /// Cores that the server kept busy.
    pub cores: f64,
    /// The most memory that its processes had resident, in MiB.
    pub memory: f64,
    /// Datagrams that found no room in the server's sockets.
    pub drops: f64,
    /// The share of its core that the generator used.
    pub generator: f64,
    /// Whether the generator says that it was the bottleneck.
    pub is_doubtful: bool,
}

impl Figures {
    fn of(report: &Value, timed: (&str, &str), is_closed: bool) -> Self {
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let answers = report["answers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let answer = answers.iter().find(|row| row["method"] == timed.0 && row["answer"] == timed.1);
        let time = |name: &str| answer.map_or(f64::NAN, |row| number(&row["us"][name]));
        let (server, generator) = (&report["server"], &report["generator"]);
        Self {
            rate: number(&report["carried_per_s"]),
            lost: 100.0 * number(&report["lost"]).max(0.0) / number(&report["sent"])
                + 100.0 * number(&report["failed"]) / number(&report["sent"]),
            p50: time("p50"),
            p99: time("p99"),
            processor: number(&server["cpu_us_per_call"]),
            cores: number(&server["processors"]),
            memory: number(&server["peak_bytes"]) / f64::from(1 << 20),
            drops: number(&server["drops"]),
            generator: number(&generator["cpu_s"]) / number(&report["elapsed_s"]),
            // In a closed loop nothing is due, so nothing is late.
            is_doubtful: !is_closed && generator["was_bottleneck"] == true,
        }
    }
}

/// Runs the generator on the second core against a server, and leaves its report in `json`.
///
/// # Errors
/// When it cannot be run, or writes no report; then with what it said.
pub fn run(
    how: &How,
    server: &Running,
    address: SocketAddr,
    scenario: Scenario,
    load: Load,
    json: &Path,
) -> Result<Figures, String> {
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]).arg(&how.binary).args(["load", "run", "--to", &format!("udp:{address}")]);
    command.args(["--workload", scenario.workload(), "--domain", DOMAIN, "--users", &how.users.to_string()]);
    command.args(["--pid", &server.pid().to_string(), "--sockets", "8"]);
    command.args(["--warm-up", &format!("{}s", how.warm_up.as_secs())]);
    command.args(["--time", &format!("{}s", how.time.as_secs())]);
    match load {
        Load::Saturation(count) => command.args(["--outstanding", &count.to_string()]),
        Load::Rate(rate) => command.args(["--rate", &rate.to_string()]),
    };
    command.arg("--json").arg(json);
    // A report of an earlier run must not be taken for this one's.
    let _ = fs::remove_file(json);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = fs::read(json).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("the generator wrote no report: {}", said.trim())
    })?;
    let report = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", json.display()))?;
    Ok(Figures::of(&report, scenario.timed(), matches!(load, Load::Saturation(_))))
}
