//! The servers that are compared, as processes.

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

/// How long a server may take to answer: under valgrind, on a busy machine, a minute.
const PATIENCE: Duration = Duration::from_secs(90);

/// How long Kamailio keeps a transaction that was answered, in T1: its own default, which is shorter than the 64 of RFC 3261 and
/// faster.
pub const KEPT_FOR: u32 = 10;

/// A server that can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Peer {
    /// Nobody's: it passes packets on, and knows nothing of them. The floor.
    Relay,
    /// Ours.
    Strowger,
    /// Ours without `server.segmentation`, as where it has many peers; at saturation, where it matters.
    Apart,
    /// Ours with a worker that never sleeps, which takes a core; where it would sleep otherwise.
    Awake,
    /// Debian's, configured for speed: `bench/kamailio/proxy.cfg`.
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
    /// All of them, in the order in which they take turns.
    pub const ALL: [Self; 5] = [Self::Relay, Self::Strowger, Self::Apart, Self::Awake, Self::Kamailio];

    /// What ours is set to, of `[server]`, that it is not by default.
    #[must_use]
    pub const fn set(self) -> &'static str {
        match self {
            Self::Apart => "segmentation = \"never\"\n",
            Self::Awake => "spin = \"always\"\n",
            Self::Relay | Self::Strowger | Self::Kamailio => "",
        }
    }

    /// How ours differs from what it is by default, in the words of tables; nothing where it does not.
    #[must_use]
    pub const fn difference(self) -> Option<&'static str> {
        match self {
            Self::Apart => Some("without segmentation"),
            Self::Awake => Some("always awake"),
            Self::Relay | Self::Strowger | Self::Kamailio => None,
        }
    }

    /// Reads its name.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "relay" => Ok(Self::Relay),
            "strowger" => Ok(Self::Strowger),
            "apart" => Ok(Self::Apart),
            "awake" => Ok(Self::Awake),
            "kamailio" => Ok(Self::Kamailio),
            _ => Err("no such server; there are relay, strowger, apart, awake and kamailio".to_owned()),
        }
    }

    /// What it is begun with, in `folder`; it has been prepared for that.
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
                // -DD: the first process stays, so that it and its children can be found and ended.
                let mut all =
                    words(&["kamailio", "-DD", "-E", "-x", "fm", "-X", "fm", "-m", &memory, "-M", "64", "-f"]);
                all.extend([file.into(), "-Y".into(), folder.into(), "-l".into(), format!("udp:{address}").into()]);
                all.extend(["-A".into(), format!("WT_TIMER={}", KEPT_FOR * t1_ms).into()]);
                all.extend(scenario.defines().iter().flat_map(|define| ["-A".into(), define.into()]));
                Ok(all)
            }
        }
    }

    /// Starts it behind `before`, as `taskset` or `valgrind` with its options, and waits until it answers.
    ///
    /// # Errors
    /// When it cannot be started or ends again; then with the end of its log.
    pub fn start(self, before: &[&str], place: &Environment<'_>) -> Result<RunningServer, String> {
        self.start_with(before, place, &[])
    }

    /// The same with more words on its command line.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(self, before: &[&str], place: &Environment<'_>, more: &[&str]) -> Result<RunningServer, String> {
        let mut words = self.command(place)?;
        words.extend(more.iter().map(OsString::from));
        launch(before, words, place.folder, place.address)
    }
}

/// Starts a server by its words, in its folder, behind `before`, and waits until it answers at `address`.
///
/// # Errors
/// When it cannot be started or ends again; then with the end of its log.
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

/// What a server is started with.
#[derive(Clone, Copy, Debug)]
pub struct Environment<'a> {
    /// The program `strowger`.
    pub binary: &'a Path,
    /// A folder for it alone.
    pub folder: &'a Path,
    /// What it is for.
    pub scenario: Scenario,
    /// Where it listens.
    pub address: SocketAddr,
    /// Users that it knows, where it must.
    pub users: u32,
    /// What Kamailio's processes may share, in MiB.
    pub memory_mib: u32,
    /// T1, in milliseconds.
    pub t1_ms: u32,
}

/// Makes the users known to ours: user0, user1 and so on, as the generator names them.
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
    Err(format!("users cannot be imported: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// A server that runs; dropping it kills it, all of its processes.
#[derive(Debug)]
pub struct RunningServer {
    log: PathBuf,
    child: Child,
}

impl RunningServer {
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

impl RunningServer {
    /// Asks it to end, and waits for that.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn stop(mut self) -> Result<(), String> {
        signal(self.child.id(), Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().map_err(|error| error.to_string())?.is_none() {
            if Instant::now() > deadline {
                return Err("it does not end".to_owned());
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
        // Fails only when it is gone already.
        let _ = self.child.wait();
        bury(&family);
    }
}
