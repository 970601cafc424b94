//! The servers whose queues are modelled, each on the first core.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;

use crate::programs::{self, Lines};
use crate::proxy::peer::{Environment, Peer, RunningServer};
use crate::proxy::scenario::{Scenario, T1_MS};
use crate::register::process::family;

/// Listening address of servers; measurements run in their own network namespace.
pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5060);
/// Core of the server; the generator has the other one.
const CORE: &str = "0";
/// T1 of the shells in milliseconds: long, so that the server retransmits nothing during a run and no transaction
/// ends.
const SHELL_T1_MS: &str = "4000";
/// Receive buffer of a pool in packets of 600 bytes, and in bytes for Kamailio: about as many packets. More than
/// arrive during a short pause of the virtual machine; otherwise the pauses would be measured.
const ROOM: &str = "1000";
const ROOM_BYTES: &str = "RECEIVE_BYTES=600000";
/// Shared memory of Kamailio's processes, in MiB.
const SHARED_MIB: u32 = 4_096;

/// Server whose queue is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The thread pool of the architectures, with this many threads.
    Pool(u32),
    /// Kamailio with this many children.
    Kamailio(u32),
    /// The same, sending through UDP sockets instead of raw ones: the probe knows the ports of those only.
    ProbedKamailio(u32),
    /// Strowger with one worker.
    Strowger,
    /// The event-based shell that times each message; whether it polls continuously.
    Timed(bool),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, count) = match self {
            Self::Pool(threads) => ("thread pool", threads),
            Self::Kamailio(children) | Self::ProbedKamailio(children) => ("Kamailio", children),
            Self::Strowger => return f.write_str("Strowger"),
            Self::Timed(true) => return f.write_str("one thread awake"),
            Self::Timed(false) => return f.write_str("one thread"),
        };
        write!(f, "{what} of {count}")
    }
}

impl Kind {
    /// Returns c, its number of threads or processes that receive.
    #[must_use]
    pub const fn servers(self) -> u32 {
        match self {
            Self::Pool(count) | Self::Kamailio(count) | Self::ProbedKamailio(count) => count,
            Self::Strowger | Self::Timed(_) => 1,
        }
    }
}

/// Paths of the programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `strowger`.
    pub strowger: PathBuf,
    /// `strowger-architectures`.
    pub architectures: PathBuf,
}

/// A running server. Dropping it ends all its processes.
#[derive(Debug)]
pub struct Server {
    process: Process,
    lines: Lines,
}

#[derive(Debug)]
enum Process {
    Shell(Child),
    /// Kamailio or Strowger with its folder.
    Peer(RunningServer, tempfile::TempDir),
}

impl Server {
    /// Starts a server and waits until it accepts messages.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(kind: Kind, programs: &Programs) -> Result<Self, String> {
        match kind {
            Kind::Pool(threads) => {
                let threads = threads.to_string();
                Self::shell(&programs.architectures, &["thread-pool", "--threads", &threads, "--receive-buffer", ROOM])
            }
            Kind::Timed(true) => Self::shell(&programs.architectures, &["event-based", "--timing", "--awake"]),
            Kind::Timed(false) => Self::shell(&programs.architectures, &["event-based", "--timing"]),
            Kind::Strowger => Self::peer(Peer::Strowger, &programs.strowger, &[]),
            Kind::Kamailio(children) => {
                let children = format!("RECEIVERS={children}");
                Self::peer(Peer::Kamailio, &programs.strowger, &["-A", &children, "-A", ROOM_BYTES])
            }
            Kind::ProbedKamailio(children) => {
                let children = format!("RECEIVERS={children}");
                let more = ["-A", &children, "-A", ROOM_BYTES, "-A", "RAW_SENDS=0"];
                Self::peer(Peer::Kamailio, &programs.strowger, &more)
            }
        }
    }

    fn shell(program: &Path, options: &[&str]) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.arg("--architecture").args(options);
        command.args(["--listen", &ADDRESS.to_string(), "--cores", CORE, "--t1-ms", SHELL_T1_MS]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("{}: {error}", program.display()))?;
        let lines = programs::listen(&mut child);
        let mut server = Self { process: Process::Shell(child), lines: Lines::default() };
        // If the server does not listen, dropping `server` ends it.
        server.lines = lines.map_err(|error| format!("{command:?}: {error}"))?;
        Ok(server)
    }

    fn peer(peer: Peer, binary: &Path, more: &[&str]) -> Result<Self, String> {
        let folder =
            tempfile::Builder::new().prefix("strowger-models-").tempdir().map_err(|error| error.to_string())?;
        let place = Environment {
            binary,
            folder: folder.path(),
            scenario: Scenario::Call,
            address: ADDRESS,
            users: 0,
            memory_mib: SHARED_MIB,
            t1_ms: T1_MS,
        };
        let running = peer.start_with(&["taskset", "-c", CORE], &place, more)?;
        Ok(Self { process: Process::Peer(running, folder), lines: Lines::default() })
    }

    /// Returns the ID of its first process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        match &self.process {
            Process::Shell(child) => child.id(),
            Process::Peer(running, _) => running.pid(),
        }
    }

    /// Returns the folder of its configuration, if it has one.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        match &self.process {
            Process::Shell(_) => None,
            Process::Peer(_, folder) => Some(folder.path()),
        }
    }

    /// Returns its process IDs.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        family(self.pid())
    }

    /// Returns its output so far.
    #[must_use]
    pub fn said(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Process::Shell(child) = &mut self.process {
            // Both fail only if the process has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
