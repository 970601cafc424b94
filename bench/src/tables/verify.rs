//! The load generator's paper workload against a server with this table and these credentials. Checks whether the
//! measured usage matches the computed one, and whether the users are served as well as the paper requires.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::model::Expiry;
use super::serve::Setup;
use super::table::DOMAIN;
use crate::register::probe::Probe;
use crate::register::process::{bury, family};

/// Maximum start time of a server, which fills a database first.
const PATIENCE: Duration = Duration::from_secs(60);

/// Results of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Acceleration relative to the model.
    pub speed: f64,
    /// Share of its core that the server used.
    pub used: f64,
    /// Computed share of its core.
    pub worked_out: f64,
    /// Share of successful transactions.
    pub good: f64,
    /// Whether that share meets the paper's requirement.
    pub is_conforming: bool,
    /// Share of its core that the generator used.
    pub generator: f64,
    /// Reason why the generator was the bottleneck, which makes the other results meaningless.
    pub fault: Option<String>,
}

/// A server process. It ends when its standard input is closed, after its database.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let all = family(self.0.id());
        drop(self.0.stdin.take());
        let deadline = Instant::now() + PATIENCE;
        while !matches!(self.0.try_wait(), Ok(Some(_))) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            bury(&all);
            let _ = self.0.wait();
        }
    }
}

/// Runs the server on the first core and the generator on the second for some seconds.
///
/// # Errors
/// If something is missing or fails.
pub fn run(binary: &Path, setup: &Setup, worked_out: f64, time: Duration) -> Result<Outcome, String> {
    let wrong = |error: std::io::Error| error.to_string();
    let program = std::env::current_exe().map_err(wrong)?;
    let expiry = match setup.expiry {
        Expiry::Parts => "parts",
        Expiry::Sweep => "sweep",
        Expiry::Own => "own",
    };
    let mut command = Command::new(program);
    command.args(["serve", &setup.address.to_string(), "--table", &setup.kind.name()]);
    command.args(["--source", setup.source.name(), "--expiry", expiry]);
    command.args(["--users", &setup.users.to_string(), "--speed", &setup.speed.to_string()]);
    let mut server = Server(command.stdin(Stdio::piped()).spawn().map_err(wrong)?);
    let mut probe = Probe::new(setup.address);
    let deadline = Instant::now() + PATIENCE;
    while probe.options().is_none() {
        if server.0.try_wait().map_err(wrong)?.is_some() || Instant::now() > deadline {
            return Err("the server does not answer".to_owned());
        }
    }
    let report = generate(binary, setup, server.0.id(), time)?;
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    Ok(Outcome {
        speed: setup.speed,
        used: number(&report["server"]["processors"]),
        worked_out,
        good: number(&report["users"]["share"]),
        is_conforming: report["users"]["conforming"].as_bool().unwrap_or(false),
        generator: number(&report["generator"]["cpu_s"]) / number(&report["elapsed_s"]),
        fault: report["generator"]["bottleneck"].as_str().map(str::to_owned),
    })
}

fn generate(binary: &Path, setup: &Setup, pid: u32, time: Duration) -> Result<Value, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let json = folder.path().join("report.json");
    let SocketAddr::V4(address) = setup.address else { return Err("the address must be IPv4".to_owned()) };
    // The generator's times are those of the accelerated model.
    let model = |time: Duration| format!("{:.0}s", time.as_secs_f64() * setup.speed);
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]).arg(binary).args(["load", "run", "--to", &format!("udp:{address}")]);
    command.args(["--workload", "users", "--domain", DOMAIN, "--users", &setup.users.to_string()]);
    command.args(["--speed", &setup.speed.to_string(), "--pid", &pid.to_string(), "--drain", "5s"]);
    command.args(["--warm-up", &model(time / 3), "--time", &model(time), "--json"]).arg(&json);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let report = std::fs::read(&json).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    report.ok_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())
}
