//! All phones register at once, as after a power cut: `strowger load run` with this workload, as a separate process.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::contender::{Contender, Environment, Mode, Server};
use super::{DOMAIN, GENERATOR_CORE, SERVER};

/// Name of the workload.
pub const WORKLOAD: &str = "avalanche";

/// Time within which phones start.
const SPREAD: &str = "spread=10s";
/// Number of sockets of the phones.
const SOCKETS: &str = "4";
/// Share of registered phones at which the server counts as recovered, in percent.
const SHARE: f64 = 99.0;

/// Number of phones and maximum duration.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Number of phones.
    pub phones: u32,
    /// Time after which the run is aborted.
    pub time: Duration,
}

impl Schedule {
    /// Schedule of a full run.
    pub const USUAL: Self = Self { phones: 1_000_000, time: Duration::from_secs(900) };
    /// Schedule of a smoke test.
    pub const QUICK: Self = Self { phones: 5_000, time: Duration::from_secs(15) };
}

/// Results of a run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Avalanche {
    /// Server under test.
    pub contender: Contender,
    /// Number of phones.
    pub phones: u32,
    /// Registered phones at the end.
    pub registered: u64,
    /// Seconds until 99 % were registered. `None` if they never were, or it was not reported.
    pub recovery_s: Option<f64>,
    /// 503 responses.
    pub refused: u64,
}

/// Returns whether the binary supports the workload.
#[must_use]
pub fn is_known(place: &Environment) -> bool {
    let output = Command::new(&place.binary).args(["load", "workloads"]).output();
    output.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).lines().any(|line| line.trim_start().starts_with(WORKLOAD))
    })
}

/// Runs the workload against a separate server.
///
/// # Errors
/// If a server or the generator does not run.
pub fn run(contender: Contender, place: &Environment, course: Schedule) -> Result<Avalanche, String> {
    let mut server = Server::start(contender, Mode::Udp, place, None)?;
    let json = server.folder().join("avalanche.json");
    let mut command = Command::new("taskset");
    command.args(["-c", &GENERATOR_CORE.to_string()]).arg(&place.binary).args(["load", "run", "--quiet", "--no-watch"]);
    command.args(["--to", &format!("udp:{SERVER}"), "--workload", WORKLOAD, "--domain", DOMAIN]);
    command.args(["--set", SPREAD, "--sockets", SOCKETS]);
    command.args(["--users", &course.phones.to_string(), "--time", &format!("{}s", course.time.as_secs())]);
    command.arg("--json").arg(&json);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    server.check()?;
    let text = std::fs::read(&json);
    let text = text.map_err(|_| format!("no report: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
    let report: Value = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", json.display()))?;
    Ok(read(contender, course.phones, &report))
}

fn read(contender: Contender, phones: u32, report: &Value) -> Avalanche {
    let recovery = &report["recovery"];
    let times = recovery["times"].as_array().map(Vec::as_slice).unwrap_or_default();
    let recovered = times.iter().find(|time| time["percent"].as_f64() == Some(SHARE));
    Avalanche {
        contender,
        phones,
        registered: recovery["registered"].as_u64().unwrap_or(0),
        recovery_s: recovered.and_then(|time| time["s"].as_f64()),
        refused: report["messages_received"]["503"].as_u64().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_report_gives_the_recovery_time() {
        let times =
            json!([{ "percent": 50.0, "s": 5.0 }, { "percent": 99.0, "s": 12.5 }, { "percent": 100.0, "s": null }]);
        let report = json!({ "recovery": { "registered": 990, "times": times }, "messages_received": { "503": 7 } });
        let found = read(Contender::Control, 1_000, &report);
        assert_eq!((found.registered, found.recovery_s, found.refused), (990, Some(12.5), 7));
        let nothing = read(Contender::Control, 1_000, &json!({}));
        assert_eq!((nothing.registered, nothing.recovery_s), (0, None));
    }
}
