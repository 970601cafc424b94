//! The compared servers: Strowger and Debian's Kamailio, each in its modes.

use std::fmt;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::message::DOMAIN;
use super::probe::Probe;
use super::process::{bury, family, signal};

/// Maximum time for a server to start, and to end on request.
const PATIENCE: Duration = Duration::from_secs(120);
/// Folder of the table definitions of Kamailio's modules on Debian.
const SCHEMA: &str = "/usr/share/kamailio/db_sqlite";

/// A server that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contender {
    /// Strowger with `store.mode`.
    Strowger {
        /// The `strowger` binary.
        binary: PathBuf,
        /// `memory`, `write-behind` or `write-through`.
        mode: String,
    },
    /// Debian's Kamailio with `db_mode` of usrloc.
    Kamailio {
        /// Value of `db_mode`, 0 to 3.
        mode: u8,
        /// Journal mode of its SQLite, if not the default.
        journal: Option<String>,
    },
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Strowger { mode, .. } => write!(f, "Strowger, {mode}"),
            Self::Kamailio { mode, journal } => {
                let name = ["memory", "write-through", "write-back", "database only"][usize::from(*mode).min(3)];
                write!(f, "Kamailio, {name} ({mode})")?;
                journal.as_ref().map_or(Ok(()), |journal| write!(f, ", {journal}"))
            }
        }
    }
}

impl Contender {
    /// Parses `memory`, `write-behind`, `write-through`, `kamailio-0` to `kamailio-3`, or one of the latter followed
    /// by `-wal`.
    ///
    /// # Errors
    /// If it is none of these.
    pub fn parse(text: &str, binary: &Path) -> Result<Contender, String> {
        let (name, journal) = text.strip_suffix("-wal").map_or((text, None), |name| (name, Some("WAL".to_owned())));
        match name.strip_prefix("kamailio-").map(str::parse) {
            Some(Ok(mode @ 0..=3)) => Ok(Contender::Kamailio { mode, journal }),
            None if ["memory", "write-behind", "write-through"].contains(&text) => {
                Ok(Contender::Strowger { binary: binary.to_owned(), mode: text.to_owned() })
            }
            _ => Err(format!(
                "{text}: no such contender; write memory, write-behind, write-through or kamailio-0 to -3[-wal]"
            )),
        }
    }

    /// Returns whether it is Strowger.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Strowger { .. })
    }

    /// Returns whether bindings survive the end of its process.
    #[must_use]
    pub fn keeps(&self) -> bool {
        match self {
            Self::Strowger { mode, .. } => mode != "memory",
            Self::Kamailio { mode, .. } => *mode != 0,
        }
    }

    /// Returns the command that starts it on the first core, in a [prepared](Self::prepare) folder.
    fn command(&self, folder: &Path, address: SocketAddr) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).current_dir(folder);
        match self {
            Self::Strowger { binary, .. } => {
                command.arg(binary).args(["serve", "-c", "strowger.toml"]);
            }
            Self::Kamailio { mode, journal } => {
                let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("kamailio/registrar.cfg");
                let base = folder.join("kamailio.db");
                // -DD keeps the first process in the foreground, so that it and its children can be found and ended.
                command.args(["kamailio", "-DD", "-E", "-x", "fm", "-X", "fm", "-m", "2048"]);
                // Limit of private memory: sufficient to read a million rows at start. Unused memory is not
                // allocated.
                command.args(["-M", if self.keeps() { "2040" } else { "64" }]);
                command.arg("-f").arg(file).arg("-Y").arg(folder).args(["-l", &format!("udp:{address}")]);
                command.args(["-A", &format!("DB_MODE={mode}")]);
                if self.keeps() {
                    command.args(["-A", &format!("DB_URL=\"sqlite:///{}\"", base.display())]);
                }
                if *mode == 2 {
                    command.args(["-A", "TIMER_INTERVAL=5"]);
                }
                if let Some(journal) = journal {
                    command.args(["-A", &format!("DB_JOURNAL=\"{}={journal};\"", base.display())]);
                }
            }
        }
        command
    }

    /// Writes configuration and empty tables into a folder.
    ///
    /// # Errors
    /// If they cannot be created. The error names what is missing.
    pub fn prepare(&self, folder: &Path, address: SocketAddr, t1: &str) -> Result<(), String> {
        match self {
            Self::Strowger { mode, .. } => {
                let config = format!(
                    "[server]\nlisten = [\"udp:{address}\"]\ndomains = [\"{DOMAIN}\"]\ndata = \"data\"\nworkers = 1\n\
                     [store]\nmode = \"{mode}\"\n[auth]\nrequire = []\n[timers]\nt1 = \"{t1}\"\n[log]\nlevel = \"warn\"\n"
                );
                fs::write(folder.join("strowger.toml"), config).map_err(|error| error.to_string())
            }
            Self::Kamailio { .. } if self.keeps() => {
                let schema = ["standard-create.sql", "usrloc-create.sql"].map(|name| Path::new(SCHEMA).join(name));
                schema.iter().try_for_each(|file| {
                    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
                    sqlite(&folder.join("kamailio.db"), &text).map(drop)
                })
            }
            Self::Kamailio { .. } => Ok(()),
        }
    }

    /// Starts it without waiting for it to answer.
    ///
    /// # Errors
    /// If the program does not exist.
    pub fn begin(&self, folder: &Path, address: SocketAddr) -> Result<RunningServer, String> {
        let log = File::create(folder.join("log")).map_err(|error| error.to_string())?;
        let mut command = self.command(folder, address);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let child = child.map_err(|error| format!("{command:?}: {error}"))?;
        Ok(RunningServer { contender: self.clone(), folder: folder.to_owned(), address, child, family: Vec::new() })
    }

    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// If it exits. The error includes the end of its log.
    pub fn start(&self, folder: &Path, address: SocketAddr) -> Result<RunningServer, String> {
        let mut running = self.begin(folder, address)?;
        Probe::new(address).wait(PATIENCE, || running.check())?;
        running.meet();
        Ok(running)
    }
}

/// A running server. Dropping it kills all its processes.
#[derive(Debug)]
pub struct RunningServer {
    contender: Contender,
    folder: PathBuf,
    /// Listening address.
    pub address: SocketAddr,
    child: Child,
    family: Vec<u32>,
}

impl RunningServer {
    /// Records the IDs of all its processes. Before this call, only the first is known.
    pub fn meet(&mut self) {
        self.family = family(self.child.id());
    }

    /// Returns its process IDs.
    #[must_use]
    pub fn processes(&self) -> &[u32] {
        &self.family
    }

    /// Checks that it is running.
    ///
    /// # Errors
    /// If it has ended. The error includes the end of its log.
    pub fn check(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                let mut last: Vec<&str> = log.lines().rev().filter(|line| !line.trim().is_empty()).take(3).collect();
                last.reverse();
                Err(last.join(" / "))
            }
        }
    }

    /// Returns the output of `ctl status --json`, or `None` for Kamailio.
    #[must_use]
    pub fn status(&self) -> Option<serde_json::Value> {
        let Contender::Strowger { binary, .. } = &self.contender else { return None };
        let mut command = Command::new(binary);
        let output =
            command.args(["ctl", "status", "--json", "-c", "strowger.toml"]).current_dir(&self.folder).output();
        serde_json::from_slice(&output.ok()?.stdout).ok()
    }

    /// Requests the server to end, waits for it and returns the time.
    ///
    /// # Errors
    /// If the server does not end.
    pub fn stop(mut self) -> Result<Duration, String> {
        let began = Instant::now();
        signal(self.child.id(), Signal::TERM);
        while began.elapsed() < PATIENCE {
            if let Ok(Some(_)) = self.child.try_wait() {
                return Ok(began.elapsed());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Err("the server does not end".to_owned())
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let family = family(self.child.id());
            signal(self.child.id(), Signal::KILL);
            // Fails only if the process has ended already.
            let _ = self.child.wait();
            bury(&family);
        }
    }
}

/// Runs SQL with the program `sqlite3`.
///
/// # Errors
/// Its error message, or that it is not installed.
pub fn sqlite(base: &Path, text: &str) -> Result<String, String> {
    let output = Command::new("sqlite3").arg(base).arg(text).output().map_err(|error| format!("sqlite3: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// Returns a free port of the loopback interface.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free_address() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
    socket.expect("there is a free port")
}
