//! The servers that are compared, as processes.

use std::fmt;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::DOMAIN;
use super::scenario::Scenario;
use crate::register::probe::Probe;
use crate::register::process::{bury, family, signal};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Ours.
    Strowger,
    /// Debian's, configured for speed: `bench/kamailio/proxy.cfg`.
    Kamailio,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strowger => "Strowger",
            Self::Kamailio => "Kamailio",
        })
    }
}

impl Peer {
    /// Reads its name.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "strowger" => Ok(Self::Strowger),
            "kamailio" => Ok(Self::Kamailio),
            _ => Err("no such server; there are strowger and kamailio".to_owned()),
        }
    }

    /// Starts it on the first core, with `users` whom it knows, and waits until it answers.
    ///
    /// # Errors
    /// When it cannot be started or ends again; then with the end of its log.
    pub fn start(
        self,
        binary: &Path,
        folder: &Path,
        scenario: Scenario,
        address: SocketAddr,
        users: u32,
    ) -> Result<Running, String> {
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).current_dir(folder);
        match self {
            Self::Strowger => {
                let wrong = |error: std::io::Error| error.to_string();
                fs::write(folder.join("strowger.toml"), scenario.configuration(address)).map_err(wrong)?;
                if scenario == Scenario::Challenge {
                    import(binary, folder, users)?;
                }
                command.arg(binary).args(["serve", "-c", "strowger.toml"]);
            }
            Self::Kamailio => {
                let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("kamailio/proxy.cfg");
                // -DD: the first process stays, so that it and its children can be found and ended.
                command.args(["kamailio", "-DD", "-E", "-x", "fm", "-X", "fm", "-m", "4096", "-M", "64", "-f"]);
                command.arg(file).arg("-Y").arg(folder).args(["-l", &format!("udp:{address}")]);
                for define in scenario.defines() {
                    command.args(["-A", define]);
                }
            }
        }
        let log = folder.join("log");
        let file = File::create(&log).map_err(|error| error.to_string())?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn();
        let child = child.map_err(|error| format!("{command:?}: {error}"))?;
        let mut running = Running { log, child };
        let mut probe = Probe::new(address);
        let deadline = Instant::now() + PATIENCE;
        while probe.options().is_none() {
            running.check()?;
            if Instant::now() > deadline {
                return Err("it does not answer".to_owned());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(running)
    }
}

/// Makes the users known to ours: user0, user1 and so on, as the generator names them.
fn import(binary: &Path, folder: &Path, users: u32) -> Result<(), String> {
    let mut text = String::from("aor,password\n");
    for number in 0..users {
        text.push_str(&format!("sip:user{number}@{DOMAIN},secret\n"));
    }
    let file: PathBuf = folder.join("users.csv");
    fs::write(&file, text).map_err(|error| error.to_string())?;
    let mut command = Command::new(binary);
    let output = command.args(["user", "import", "users.csv", "-c", "strowger.toml"]).current_dir(folder).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("users cannot be imported: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// A server that runs; dropping it kills it, all of its processes.
#[derive(Debug)]
pub struct Running {
    log: PathBuf,
    child: Child,
}

impl Running {
    /// Its first process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// When it has ended; then with the end of its log.
    pub fn check(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                let mut last: Vec<&str> = log.lines().rev().filter(|line| !line.trim().is_empty()).take(3).collect();
                last.reverse();
                Err(format!("it has ended: {}", last.join(" / ")))
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let family = family(self.child.id());
        signal(self.child.id(), Signal::KILL);
        // Fails only when it is gone already.
        let _ = self.child.wait();
        bury(&family);
    }
}
