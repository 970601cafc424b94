//! SIPp's built-in scenarios against each other: uac and uas, with the same six messages.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Probe;

/// Time for which SIPp waits for its last calls.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time after which SIPp is killed.
const GRACE: Duration = Duration::from_secs(20);

/// Cores of the two ends.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    /// Core of the caller.
    pub caller: usize,
    /// Core of the callee.
    pub callee: usize,
}

/// Returns SIPp's version line, or `None` if it is not installed.
#[must_use]
pub fn version() -> Option<String> {
    let output = Command::new("sipp").arg("-v").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::trim).find(|line| line.starts_with("SIPp")).map(|line| line.trim_end_matches('.').to_owned())
}

/// Makes calls at this rate for `time`.
///
/// # Errors
/// If SIPp does not start.
pub fn probe(rate: f64, time: Duration, cores: Cores) -> std::io::Result<Probe> {
    let folder = tempfile::tempdir()?;
    let port = || UdpSocket::bind("127.0.0.1:0")?.local_addr().map(|address| address.port());
    let (uas_port, uac_port) = (port()?, port()?);
    let calls = (rate * time.as_secs_f64()).round();
    let seconds = format!("{}s", (time + PATIENCE).as_secs());
    let start = |core: usize, name: &str, port: u16, arguments: &[&str]| {
        let (core, port) = (core.to_string(), port.to_string());
        let statistics = format!("{name}.csv");
        Command::new("taskset")
            .args(["-c", &core, "sipp", "-sn", name, "-i", "127.0.0.1", "-p", &port, "-nostdin"])
            .args(["-trace_stat", "-stf", &statistics, "-fd", "1", "-buff_size", "4194304"])
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    };
    let mut uas = ChildGuard(start(cores.callee, "uas", uas_port, &[])?);
    std::thread::sleep(Duration::from_millis(500));
    let target = format!("127.0.0.1:{uas_port}");
    let (asked, calls) = (format!("{rate:.0}"), format!("{calls:.0}"));
    let limits = ["-r", &asked, "-m", &calls, "-l", "200000", "-timeout", &seconds];
    let mut uac = ChildGuard(start(cores.caller, "uac", uac_port, &[&[target.as_str()], &limits[..]].concat())?);
    if !ends_within(&mut uac.0, time + GRACE)? {
        // Under overload, SIPp may not even honour its own time-out.
        uac.0.kill()?;
        uac.0.wait()?;
    }
    // SIPp writes its statistics every second.
    std::thread::sleep(Duration::from_millis(1_200));
    let _ = (uas.0.kill(), uas.0.wait());
    let called = Statistics::read(&folder.path().join("uas.csv"));
    let calling = Statistics::read(&folder.path().join("uac.csv"));
    let counts = [
        (calling.number("FailedCall(C)"), "calls failed"),
        (calling.number("TotalCallCreated") - calling.number("SuccessfulCall(C)"), "calls not carried"),
        (calling.number("Retransmissions(C)"), "messages sent again by uac"),
        (called.number("Retransmissions(C)"), "messages sent again by uas"),
    ];
    let faults = counts.iter().filter(|(count, _)| *count > 0.0).map(|(count, what)| format!("{count:.0} {what}"));
    Ok(Probe::new(rate, calling.number("CallRate(C)"), faults.collect()))
}

/// Returns whether a program ends by itself within `time`.
fn ends_within(child: &mut Child, time: Duration) -> std::io::Result<bool> {
    let until = Instant::now() + time;
    while child.try_wait()?.is_none() {
        if Instant::now() >= until {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(true)
}

/// A child process that is killed on drop.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // These fail only if it has ended already.
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// SIPp's statistics file: names, and the last line of values.
struct Statistics {
    names: Vec<String>,
    values: Vec<String>,
}

impl Statistics {
    fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap_or_default();
        let cells = |line: Option<&str>| line.unwrap_or_default().split(';').map(str::to_owned).collect();
        Self { names: cells(text.lines().next()), values: cells(text.lines().last()) }
    }

    /// Returns a value, or 0 if it is missing.
    fn number(&self, name: &str) -> f64 {
        let at = self.names.iter().position(|other| other == name);
        at.and_then(|at| self.values.get(at)?.parse().ok()).unwrap_or(0.0)
    }
}
