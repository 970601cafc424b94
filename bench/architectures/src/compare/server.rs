//! The compared servers, as processes pinned to their own cores.

use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use strowger_bench::programs::{self, Lines};

use super::scenario::Scenario;
use crate::shard_group::DOMAIN;
use crate::shells::Architecture;

/// Maximum time for a server to answer after its start, and to exit.
const PATIENCE: Duration = Duration::from_secs(10);
/// Listening address of all servers; each measurement has its own network namespace.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5060);

/// Server under measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A shell of this program.
    Shell(Architecture),
    /// `strowger serve` with one worker, to show the cost of what the shells leave out.
    Product,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shell(architecture) => architecture.fmt(f),
            Self::Product => f.write_str("`strowger serve`"),
        }
    }
}

/// Start parameters of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'a> {
    /// Server to start.
    pub(crate) subject: Subject,
    /// Scenario of the load.
    pub(crate) scenario: Scenario,
    /// Cores that the server may use, in the format of `taskset`.
    pub(crate) cores: &'a str,
    /// T1 of the server.
    pub t1: Duration,
    /// Number of threads, if not the default.
    pub(crate) threads: Option<usize>,
    /// Capacity of the receive buffer in packets, if not the default.
    pub(crate) room: Option<usize>,
    /// The `strowger` binary.
    pub(crate) binary: &'a Path,
}

/// A running server. Dropping it ends all its processes.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Listening address.
    pub(crate) address: SocketAddr,
    /// Its reports on the socket.
    pub(crate) lines: Lines,
    _folder: Option<tempfile::TempDir>,
}

impl Server {
    /// Starts a server and waits until it accepts messages.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) fn start(how: &Start<'_>) -> Result<Self, String> {
        match how.subject {
            Subject::Shell(architecture) => Self::start_shell(how, architecture),
            Subject::Product => Self::start_product(how),
        }
    }

    fn start_shell(how: &Start<'_>, architecture: Architecture) -> Result<Self, String> {
        let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
        let name = architecture.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        command.args(["--architecture", &name, "--listen", &ADDRESS.to_string(), "--cores", how.cores]);
        command.args(["--t1-ms", &how.t1.as_millis().to_string()]);
        if how.scenario == Scenario::Stateless {
            command.arg("--stateless");
        }
        if let Some(threads) = how.threads {
            command.args(["--threads", &threads.to_string()]);
        }
        if let Some(room) = how.room {
            command.args(["--report", "--receive-buffer", &room.to_string()]);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{command:?}: {error}"))?;
        let lines = programs::listen(&mut child);
        let mut server = Self { child, address: ADDRESS, lines: Lines::default(), _folder: None };
        // If the server does not listen, dropping `server` ends it.
        server.lines = lines.map_err(|error| format!("{command:?}: {error}"))?;
        Ok(server)
    }

    fn start_product(how: &Start<'_>) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("strowger-architectures-").tempdir();
        let folder = folder.map_err(|error| error.to_string())?;
        let state = if how.scenario == Scenario::Stateless {
            format!(
                "[proxy]\nstateless = \"always\"\n[[route]]\nmatch = {{ domain = \"{DOMAIN}\" }}\nstateless = \"always\"\n"
            )
        } else {
            String::new()
        };
        let text = format!(
            "[server]\nlisten = [\"udp:{ADDRESS}\"]\ndomains = [\"{DOMAIN}\"]\ndata = \"data\"\nworkers = 1\n\
             [store]\nmode = \"memory\"\n[auth]\nrequire = []\n[log]\nlevel = \"warn\"\n[timers]\nt1 = \"{}ms\"\n{state}",
            how.t1.as_millis()
        );
        fs::write(folder.path().join("strowger.toml"), text).map_err(|error| error.to_string())?;
        let mut command = Command::new("taskset");
        command.args(["-c", how.cores]).arg(how.binary).args(["serve", "-c", "strowger.toml"]);
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let server = Self { child, address: ADDRESS, lines: Lines::default(), _folder: Some(folder) };
        let deadline = Instant::now() + PATIENCE;
        while !answers(ADDRESS) {
            if Instant::now() > deadline {
                return Err(format!("{command:?} does not answer"));
            }
        }
        Ok(server)
    }

    /// Returns the ID of the first process.
    #[must_use]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the IDs of all processes.
    #[must_use]
    pub(crate) fn processes(&self) -> Vec<u32> {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|child| child.parse().ok());
        std::iter::once(pid).chain(children).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let children: Vec<PathBuf> =
            self.processes().into_iter().skip(1).map(|pid| PathBuf::from(format!("/proc/{pid}/fd/0"))).collect();
        // Both fail only if the process has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The kernel kills the other processes; the address is free only after that. A process that has ended has no
        // files in /proc.
        let deadline = Instant::now() + PATIENCE;
        while children.iter().any(|file| fs::symlink_metadata(file).is_ok()) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Returns whether a server answers an OPTIONS request shortly.
fn answers(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let local = socket.local_addr()?;
        let request = format!(
            "OPTIONS sip:{address} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bKready{}\r\nMax-Forwards: 70\r\n\
             From: <sip:ready@{local}>;tag=r\r\nTo: <sip:{address}>\r\nCall-ID: ready@{local}\r\nCSeq: 1 OPTIONS\r\n\
             Content-Length: 0\r\n\r\n",
            local.port()
        );
        socket.send_to(request.as_bytes(), address)?;
        let mut answer = [0; 2_048];
        let length = socket.recv(&mut answer)?;
        Ok(answer[..length].starts_with(b"SIP/2.0 200 "))
    };
    ask().unwrap_or(false)
}
