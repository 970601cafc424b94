//! The compared servers, as processes.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::DOMAIN;
use super::scenario::Scenario;
use crate::register::probe::Probe;
use crate::register::process::{bury, family, signal};

/// Maximum time for a server to answer after its start: a minute under valgrind on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Time for which Kamailio keeps an answered transaction, in T1: its own default, which is shorter than the 64 of RFC
/// 3261 and faster.
pub const KEPT_FOR: u32 = 10;

/// A server that can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Peer {
    /// A bare relay that forwards packets without parsing them: the lower bound.
    Relay,
    /// Strowger.
    Strowger,
    /// Strowger without `server.segmentation`, as with many peers; measured at saturation, where it matters.
    Apart,
    /// Strowger with a worker that never sleeps and fully uses a core; measured at loads at which it would sleep.
    Awake,
    /// Debian's Kamailio, configured for speed: `bench/kamailio/proxy.cfg`.
    Kamailio,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Relay => "bare relay",
            Self::Strowger => "Strowger",
            Self::Apart => "Strowger, no segmentation",
            Self::Awake => "Strowger, always awake",
            Self::Kamailio => "Kamailio",
        })
    }
}

impl Peer {
    /// All servers, in the order of rotation.
    pub const ALL: [Self; 5] = [Self::Relay, Self::Strowger, Self::Apart, Self::Awake, Self::Kamailio];

    /// Returns the lines of `[server]` that differ from the defaults.
    #[must_use]
    pub const fn set(self) -> &'static str {
        match self {
            Self::Apart => "segmentation = \"never\"\n",
            Self::Awake => "spin = \"always\"\n",
            Self::Relay | Self::Strowger | Self::Kamailio => "",
        }
    }

    /// Returns how this variant of Strowger differs from the default, for tables, or `None`.
    #[must_use]
    pub const fn difference(self) -> Option<&'static str> {
        match self {
            Self::Apart => Some("without segmentation"),
            Self::Awake => Some("always awake"),
            Self::Relay | Self::Strowger | Self::Kamailio => None,
        }
    }

    /// Parses a server's name.
    ///
    /// # Errors
    /// If there is no server of this name.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "relay" => Ok(Self::Relay),
            "strowger" => Ok(Self::Strowger),
            "apart" => Ok(Self::Apart),
            "awake" => Ok(Self::Awake),
            "kamailio" => Ok(Self::Kamailio),
            _ => Err("no such server; choose relay, strowger, apart, awake or kamailio".to_owned()),
        }
    }

    /// Returns the command line of the server in the prepared `folder`.
    fn command(self, place: &Environment<'_>) -> Result<Vec<OsString>, String> {
        let Environment { binary, folder, scenario, address, users, memory_mib, t1_ms } = *place;
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        match self {
            Self::Relay => {
                let own = std::env::current_exe().map_err(|error| error.to_string())?;
                let rest = words(&["relay", &address.to_string(), scenario.name()]);
                Ok([own.into()].into_iter().chain(rest).collect())
            }
            Self::Strowger | Self::Apart | Self::Awake => {
                let wrong = |error: std::io::Error| error.to_string();
                let text = scenario.configuration(address, t1_ms, self.set());
                fs::write(folder.join("strowger.toml"), text).map_err(wrong)?;
                if scenario == Scenario::Challenge {
                    import(binary, folder, users)?;
                }
                let rest = words(&["serve", "-c", "strowger.toml"]);
                Ok([binary.into()].into_iter().chain(rest).collect())
            }
            Self::Kamailio => {
                let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("kamailio/proxy.cfg");
                let memory = memory_mib.to_string();
                // -DD keeps the first process in the foreground, so that it and its children can be found and ended.
                let mut all =
                    words(&["kamailio", "-DD", "-E", "-x", "fm", "-X", "fm", "-m", &memory, "-M", "64", "-f"]);
                all.extend([file.into(), "-Y".into(), folder.into(), "-l".into(), format!("udp:{address}").into()]);
                all.extend(["-A".into(), format!("WT_TIMER={}", KEPT_FOR * t1_ms).into()]);
                all.extend(scenario.defines().iter().flat_map(|define| ["-A".into(), define.into()]));
                Ok(all)
            }
        }
    }

    /// Starts the server with the command prefix `before`, for example `taskset` or `valgrind` with options, and
    /// waits until it answers.
    ///
    /// # Errors
    /// If it cannot be started or exits. The error includes the end of its log.
    pub fn start(self, before: &[&str], place: &Environment<'_>) -> Result<RunningServer, String> {
        self.start_with(before, place, &[])
    }

    /// Starts the server with additional arguments.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(self, before: &[&str], place: &Environment<'_>, more: &[&str]) -> Result<RunningServer, String> {
        let mut words = self.command(place)?;
        words.extend(more.iter().map(OsString::from));
        launch(before, words, place.folder, place.address)
    }
}

/// Starts a command in a folder with the command prefix `before` and waits until it answers at `address`.
///
/// # Errors
/// If it cannot be started or exits. The error includes the end of its log.
pub fn launch(
    before: &[&str],
    words: Vec<OsString>,
    folder: &Path,
    address: SocketAddr,
) -> Result<RunningServer, String> {
    let mut words = before.iter().map(OsString::from).chain(words);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).current_dir(folder);
    let log = folder.join("log");
    let file = File::create(&log).map_err(|error| error.to_string())?;
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn();
    let child = child.map_err(|error| format!("{command:?}: {error}"))?;
    let mut running = RunningServer { log, child };
    Probe::new(address).wait(PATIENCE, || running.check())?;
    Ok(running)
}

/// Start parameters of a server.
#[derive(Clone, Copy, Debug)]
pub struct Environment<'a> {
    /// The `strowger` binary.
    pub binary: &'a Path,
    /// Folder of this server only.
    pub folder: &'a Path,
    /// Scenario of the load.
    pub scenario: Scenario,
    /// Listening address.
    pub address: SocketAddr,
    /// Number of users to import, if the scenario needs them.
    pub users: u32,
    /// Shared memory of Kamailio's processes, in MiB.
    pub memory_mib: u32,
    /// T1 in milliseconds.
    pub t1_ms: u32,
}

/// Imports the users into Strowger: user0, user1 and so on, as the generator names them.
pub(crate) fn import(binary: &Path, folder: &Path, users: u32) -> Result<(), String> {
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
    Err(format!("cannot import users: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// A running server. Dropping it kills all its processes.
#[derive(Debug)]
pub struct RunningServer {
    log: PathBuf,
    child: Child,
}

impl RunningServer {
    /// Returns the ID of its first process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Checks that it is running.
    ///
    /// # Errors
    /// If it has ended. The error includes the end of its log.
    pub fn check(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                let mut last: Vec<&str> = log.lines().rev().filter(|line| !line.trim().is_empty()).take(3).collect();
                last.reverse();
                Err(format!("the server has ended: {}", last.join(" / ")))
            }
        }
    }
}

impl RunningServer {
    /// Requests the server to end and waits for it.
    ///
    /// # Errors
    /// If it does not end in time.
    pub fn stop(mut self) -> Result<(), String> {
        signal(self.child.id(), Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().map_err(|error| error.to_string())?.is_none() {
            if Instant::now() > deadline {
                return Err("the server does not end".to_owned());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let family = family(self.child.id());
        signal(self.child.id(), Signal::KILL);
        // Fails only if the process has ended already.
        let _ = self.child.wait();
        bury(&family);
    }
}
