//! A server with a number of workers, and a generator that sends to it from one address and port.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::DOMAIN;
use super::cpu_quota::ThreadGroups;
use crate::register::probe::Probe;

/// Maximum time for a server to answer after its start.
const PATIENCE: Duration = Duration::from_secs(20);

/// Work of the generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// REGISTERs from one address and port.
    Register,
    /// Calls: callers behind one address and port, callees behind another.
    Call,
}

impl Work {
    /// Returns the workload of `strowger load`.
    #[must_use]
    pub const fn workload(self) -> &'static str {
        match self {
            Self::Register => "registration",
            Self::Call => "proxy-200",
        }
    }
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The `strowger` binary.
    pub binary: PathBuf,
    /// Maximum share of a core per worker, in percent.
    pub percent: u32,
    /// Value of `server.steering`.
    pub steering: String,
    /// Concurrent registrations or calls.
    pub outstanding: u32,
}

/// Results of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Registrations or calls per second.
    pub rate: f64,
    /// Share of started registrations or calls that failed, in percent.
    pub lost: f64,
    /// Processor time of the server per registration or call, in microseconds.
    pub processor: f64,
    /// Share of periods so far in which the workers used up their quota, in percent.
    pub throttled: f64,
    /// Share of its core that the generator used.
    pub generator: f64,
    /// Shards of each worker at the end.
    pub shards: Vec<u64>,
    /// Share of received messages so far that another worker handled.
    pub handed_over: f64,
}

/// A server with limited workers. Dropping it ends it.
#[derive(Debug)]
pub struct Server {
    // Declared first: the threads end before their groups are removed.
    child: ChildGuard,
    cages: ThreadGroups,
    folder: tempfile::TempDir,
    address: SocketAddr,
}

/// A child process that is killed on drop.
#[derive(Debug)]
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Starts a server with `workers` on the first core.
    ///
    /// # Errors
    /// If something is missing or fails.
    pub fn start(how: &RunOptions, workers: u16) -> Result<Self, String> {
        let address = SocketAddr::from(([127, 0, 0, 1], 5_060 + workers));
        let (child, folder) = start(how, workers, address)?;
        let cages = ThreadGroups::hold(child.0.id(), "worker-", how.percent)
            .map_err(|error| format!("the workers cannot be held: {error}"))?;
        if cages.len() != usize::from(workers) {
            return Err(format!("{} threads are limited instead of {workers}", cages.len()));
        }
        Ok(Self { child, cages, folder, address })
    }

    /// Runs a generator from one address and port on the second core, and measures for `time` after `warm_up`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn load(&self, how: &RunOptions, work: Work, warm_up: Duration, time: Duration) -> Result<Outcome, String> {
        let json = self.folder.path().join("report.json");
        let mut command = Command::new("taskset");
        command.args(["-c", "1"]).arg(&how.binary).args(["load", "run", "--to", &format!("udp:{}", self.address)]);
        command.args(["--workload", work.workload(), "--domain", DOMAIN, "--users", "1000", "--sockets", "1"]);
        command.args(["--pid", &self.child.0.id().to_string()]);
        command.args(["--outstanding", &how.outstanding.to_string()]);
        command.args(["--warm-up", &format!("{}s", warm_up.as_secs())]);
        command.args(["--time", &format!("{}s", time.as_secs())]).arg("--json").arg(&json);
        let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
        let report = read(&json).ok_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())?;
        let status = Command::new(&how.binary)
            .args(["ctl", "status", "--json", "-c", "strowger.toml"])
            .current_dir(self.folder.path())
            .output()
            .map_err(|error| error.to_string())?;
        let status: Value = serde_json::from_slice(&status.stdout).map_err(|error| format!("ctl status: {error}"))?;
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let loads = status["loads"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(Outcome {
            rate: number(&report["carried_per_s"]),
            lost: 100.0 * (number(&report["lost"]).max(0.0) + number(&report["failed"])) / number(&report["sent"]),
            processor: number(&report["server"]["cpu_us_per_call"]),
            throttled: self.cages.throttled(),
            generator: number(&report["generator"]["cpu_s"]) / number(&report["elapsed_s"]),
            shards: loads.iter().filter_map(|load| load["shards"].as_u64()).collect(),
            handed_over: number(&status["counters"]["workers"]["handover_sent"])
                / number(&status["counters"]["sockets"]["received"]),
        })
    }
}

fn read(json: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(json).ok()?).ok()
}

fn start(how: &RunOptions, workers: u16, address: SocketAddr) -> Result<(ChildGuard, tempfile::TempDir), String> {
    let wrong = |error: std::io::Error| error.to_string();
    let folder = tempfile::Builder::new().prefix("strowger-workers-").tempdir().map_err(wrong)?;
    let text = format!(
        "[server]\nlisten = [\"udp:{address}\"]\ndomains = [\"{DOMAIN}\"]\ndata = \"data\"\nworkers = {workers}\n\
         min_workers = {workers}\nsteering = \"{}\"\n[store]\nmode = \"memory\"\n[auth]\nrequire = []\nrealm = \"{DOMAIN}\"\n[log]\nlevel = \"warn\"\n",
        how.steering
    );
    fs::write(folder.path().join("strowger.toml"), text).map_err(wrong)?;
    let log = folder.path().join("log");
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(&how.binary).args(["serve", "-c", "strowger.toml"]).current_dir(folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log).map_err(wrong)?);
    let mut server = ChildGuard(command.spawn().map_err(|error| format!("{command:?}: {error}"))?);
    let mut probe = Probe::new(address);
    let deadline = Instant::now() + PATIENCE;
    while probe.options().is_none() {
        if server.0.try_wait().map_err(wrong)?.is_some() || Instant::now() > deadline {
            return Err(format!("the server does not answer: {}", fs::read_to_string(&log).unwrap_or_default()));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok((server, folder))
}
