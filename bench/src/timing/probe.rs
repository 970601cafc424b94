//! Runs `strowger probe` and `strowger ctl timing`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use strowger_timing::TimingReport;

use super::{GENERATOR_CORE, SERVER_CORE};
use crate::register::process::signal;

/// Time in which the probe loads its programs and attaches them.
pub const ATTACH: Duration = Duration::from_millis(1_200);
/// Maximum time that a probe needs after it was told to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// Interval between two readings of the probe's processor time.
const EVERY: Duration = Duration::from_millis(100);

/// Where the probe runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the core of the probed program, when that is idle, so that it does not delay the generator.
    WhenIdle,
    /// On the generator's core, for a program that is never idle.
    WithGenerator,
}

/// What is to be probed.
#[derive(Clone, Copy, Debug)]
pub struct ProbeRequest<'a> {
    /// The `strowger` binary.
    pub strowger: &'a Path,
    /// The process, whose children are probed as well.
    pub pid: u32,
    /// How long.
    pub time: Duration,
    /// Where the probe runs.
    pub place: Place,
    /// File for a log of all packets.
    pub log: Option<&'a Path>,
}

/// Result of a probe.
#[derive(Clone, Debug)]
pub struct Probed {
    /// Its report.
    pub report: TimingReport,
    /// Processors that it used itself.
    pub own_cpu: f64,
}

/// A running probe. Dropping it kills it.
#[derive(Debug)]
pub struct RunningProbe {
    child: Child,
    folder: tempfile::TempDir,
    stop: Sender<()>,
    cpu: Option<JoinHandle<f64>>,
}

impl RunningProbe {
    /// Starts a probe.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(request: ProbeRequest<'_>) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("strowger-probe-").tempdir().map_err(|error| error.to_string())?;
        let said = File::create(folder.path().join("said")).map_err(|error| error.to_string())?;
        let mut command = Command::new("taskset");
        match request.place {
            Place::WhenIdle => command.args(["-c", &SERVER_CORE.to_string(), "chrt", "--idle", "0"]),
            Place::WithGenerator => command.args(["-c", &GENERATOR_CORE.to_string()]),
        };
        command.arg(request.strowger);
        command.args(["probe", "--pid", &request.pid.to_string()]);
        command.args(["--duration", &format!("{}ms", request.time.as_millis()), "--json"]);
        command.arg(folder.path().join("report.json"));
        if let Some(log) = request.log {
            command.arg("--log").arg(log);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn();
        let child = child.map_err(|error| format!("{command:?}: {error}"))?;
        let (stop, stopped) = channel();
        let pid = child.id();
        let cpu = Some(thread::spawn(move || watch(pid, &stopped)));
        Ok(Self { child, folder, stop, cpu })
    }

    /// Ends the probe now and returns its result.
    ///
    /// # Errors
    /// If it fails. The error has what it said.
    pub fn stop(self) -> Result<Probed, String> {
        signal(self.child.id(), Signal::INT);
        self.finish(Duration::ZERO)
    }

    /// Waits until the probe has ended, which takes `time` more, and returns its result.
    ///
    /// # Errors
    /// If it fails. The error has what it said.
    pub fn finish(mut self, time: Duration) -> Result<Probed, String> {
        let begun = Instant::now();
        let status = loop {
            match self.child.try_wait().map_err(|error| error.to_string())? {
                Some(status) => break status,
                None if begun.elapsed() > time + PATIENCE => return Err("the probe does not end".to_owned()),
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        let said = fs::read_to_string(self.folder.path().join("said")).unwrap_or_default();
        if !status.success() {
            return Err(format!("the probe failed ({status}): {}", said.trim()));
        }
        let own_cpu = self.own_cpu();
        Ok(Probed { report: read(&self.folder.path().join("report.json"))?, own_cpu })
    }

    fn own_cpu(&mut self) -> f64 {
        let _ = self.stop.send(());
        self.cpu.take().and_then(|thread| thread.join().ok()).unwrap_or(f64::NAN)
    }
}

impl Drop for RunningProbe {
    fn drop(&mut self) {
        // They fail only if the probe has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.stop.send(());
    }
}

/// Probes a process for some time.
///
/// # Errors
/// If the probe fails.
pub fn probe(request: ProbeRequest<'_>) -> Result<Probed, String> {
    RunningProbe::start(request)?.finish(request.time + ATTACH)
}

/// Returns the server's own report of the next `time`.
///
/// # Errors
/// If the server does not answer.
pub fn own_report(strowger: &Path, folder: &Path, time: Duration) -> Result<TimingReport, String> {
    let mut command = Command::new("taskset");
    command.args(["-c", &SERVER_CORE.to_string(), "chrt", "--idle", "0"]).arg(strowger);
    command.args(["ctl", "timing", "--json", "--duration", &format!("{}ms", time.as_millis())]);
    command.args(["-c", "strowger.toml"]).current_dir(folder);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{command:?}: {error}"))
}

fn read(file: &PathBuf) -> Result<TimingReport, String> {
    let text = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Returns the processors used by a process from when it has attached until it ends or this is stopped.
#[expect(clippy::cast_precision_loss, reason = "a processor time of seconds")]
fn watch(pid: u32, stopped: &Receiver<()>) -> f64 {
    if stopped.recv_timeout(ATTACH) != Err(RecvTimeoutError::Timeout) {
        return f64::NAN;
    }
    let (first, begun) = (processor_ns(pid), Instant::now());
    let (mut last, mut ended) = (first, begun);
    while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        match processor_ns(pid) {
            0 => break,
            now => (last, ended) = (now, Instant::now()),
        }
    }
    last.saturating_sub(first) as f64 / 1e9 / ended.duration_since(begun).as_secs_f64()
}

/// Returns the processor time of all threads of a process so far, ns; 0 if it has ended.
fn processor_ns(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let times = threads.map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        text.split_whitespace().next().and_then(|time| time.parse::<u64>().ok()).unwrap_or(0)
    });
    times.sum()
}
