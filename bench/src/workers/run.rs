//! One run: a server with so many workers, and a generator that sends from one address and port.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::DOMAIN;
use super::cage::Cages;
use crate::register::probe::Probe;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the generator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// REGISTERs, all of them from one address and port.
    Register,
    /// Calls: callers behind one address and port, callees behind another one.
    Call,
}

impl Work {
    /// The workload of `strowger load`.
    #[must_use]
    pub const fn workload(self) -> &'static str {
        match self {
            Self::Register => "registration",
            Self::Call => "proxy-200",
        }
    }
}

/// How runs are made.
#[derive(Clone, Debug)]
pub struct How {
    /// The program `strowger`.
    pub binary: PathBuf,
    /// What each worker may use of a core, in percent.
    pub percent: u32,
    /// `server.spread`.
    pub spread: String,
    /// Registrations or calls that go on at a time.
    pub outstanding: u32,
    /// What is not measured, at the beginning: the workers find out that they are to share.
    pub warm_up: Duration,
    /// What is.
    pub time: Duration,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Registrations or calls a second.
    pub rate: f64,
    /// Of those that began, the share that did not end well, in percent.
    pub lost: f64,
    /// Processor time of the server for each, in microseconds.
    pub processor: f64,
    /// The share of periods in which the workers had used all that they may, in percent.
    pub throttled: f64,
    /// The share of its core that the generator used.
    pub generator: f64,
    /// The shards of each worker at the end.
    pub shards: Vec<u64>,
    /// Messages that one worker received and another one dealt with, by message received.
    pub handed_over: f64,
}

/// A server; dropping it kills it.
struct Server {
    child: Child,
    folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a server with `workers` on the first core, and the generator on the second one.
///
/// # Errors
/// What is missing, or what went wrong.
pub fn run(how: &How, work: Work, workers: u16) -> Result<Outcome, String> {
    let address = SocketAddr::from(([127, 0, 0, 1], 5_060));
    let server = start(how, workers, address)?;
    let cages = Cages::hold(server.child.id(), "worker-", how.percent)
        .map_err(|error| format!("the workers cannot be held: {error}"))?;
    if cages.len() != usize::from(workers) {
        return Err(format!("{} threads are held in place of {workers}", cages.len()));
    }
    let json = server.folder.path().join("report.json");
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]).arg(&how.binary).args(["load", "run", "--to", &format!("udp:{address}")]);
    command.args(["--workload", work.workload(), "--domain", DOMAIN, "--users", "1000", "--sockets", "1"]);
    command.args(["--pid", &server.child.id().to_string()]);
    command.args(["--outstanding", &how.outstanding.to_string()]);
    command.args(["--warm-up", &format!("{}s", how.warm_up.as_secs())]);
    command.args(["--time", &format!("{}s", how.time.as_secs())]).arg("--json").arg(&json);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let report = read(&json).ok_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())?;
    let throttled = cages.throttled();
    let status = Command::new(&how.binary)
        .args(["ctl", "status", "--json", "-c", "strowger.toml"])
        .current_dir(server.folder.path())
        .output()
        .map_err(|error| error.to_string())?;
    let status: Value = serde_json::from_slice(&status.stdout).map_err(|error| format!("ctl status: {error}"))?;
    drop(server);
    drop(cages);
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let loads = status["loads"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(Outcome {
        rate: number(&report["carried_per_s"]),
        lost: 100.0 * (number(&report["lost"]).max(0.0) + number(&report["failed"])) / number(&report["sent"]),
        processor: number(&report["server"]["cpu_us_per_call"]),
        throttled,
        generator: number(&report["generator"]["cpu_s"]) / number(&report["elapsed_s"]),
        shards: loads.iter().filter_map(|load| load["shards"].as_u64()).collect(),
        handed_over: number(&status["counters"]["workers"]["handed_over"])
            / number(&status["counters"]["sockets"]["received"]),
    })
}

fn read(json: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(json).ok()?).ok()
}

fn start(how: &How, workers: u16, address: SocketAddr) -> Result<Server, String> {
    let wrong = |error: std::io::Error| error.to_string();
    let folder = tempfile::Builder::new().prefix("strowger-workers-").tempdir().map_err(wrong)?;
    let text = format!(
        "[server]\nlisten = [\"udp:{address}\"]\ndomains = [\"{DOMAIN}\"]\ndata = \"data\"\nworkers = {workers}\n\
         spread = \"{}\"\n[store]\nmode = \"memory\"\n[auth]\nrequire = []\nrealm = \"{DOMAIN}\"\n[log]\nlevel = \"warn\"\n",
        how.spread
    );
    fs::write(folder.path().join("strowger.toml"), text).map_err(wrong)?;
    let log = folder.path().join("log");
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(&how.binary).args(["serve", "-c", "strowger.toml"]).current_dir(folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log).map_err(wrong)?);
    let mut server = Server { child: command.spawn().map_err(|error| format!("{command:?}: {error}"))?, folder };
    let mut probe = Probe::new(address);
    let deadline = Instant::now() + PATIENCE;
    while probe.options().is_none() {
        if server.child.try_wait().map_err(wrong)?.is_some() || Instant::now() > deadline {
            return Err(format!("the server does not answer: {}", fs::read_to_string(&log).unwrap_or_default()));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(server)
}
