//! The servers, the cores that they have, and how they and the host are tuned.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};
use strowger_tune::{
    Change, Demand, Host, LONGEST_WAIT, Place, Program, Request, StateFile, Target, Undone, Wanted, apply, propose,
    undo,
};

use crate::models::server::ADDRESS;
use crate::proxy::DOMAIN;
use crate::proxy::peer::{Environment, Peer, RunningServer, launch};
use crate::proxy::scenario::{Scenario, T1_MS};

/// Shared memory of Kamailio's processes, in MiB.
const SHARED_MIB: u32 = 4_096;
/// Kamailio's own default of `maxbuffer`; the kernel doubles it.
const DEFAULT_BUFFER: u64 = 262_144;
/// The tuned one: as large as Strowger's. `strowger tune` would propose more for the rates of this machine, but the
/// namespace may not raise rmem_max.
const LARGE_BUFFER: u64 = 4_194_304;
/// A slice that is longer than the default one.
const LONG_SLICE_NS: u64 = 5_000_000;

/// A server with a number of processes or workers, on one or two cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Contender {
    /// Whether it is Strowger; else Kamailio.
    pub is_ours: bool,
    /// Receiving processes, or workers.
    pub processes: u32,
    /// Its cores.
    pub cores: u32,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match (self.is_ours, self.processes) {
            (true, 1) => write!(f, "{name}, 1 worker"),
            (true, many) => write!(f, "{name}, {many} workers"),
            (false, 1) => write!(f, "{name}, 1 process"),
            (false, many) => write!(f, "{name}, {many} processes"),
        }
    }
}

impl Contender {
    /// Returns the name of the program.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        if self.is_ours { "Strowger" } else { "Kamailio" }
    }
}

/// A way to tune a server and its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Tuning {
    /// Nothing: the system's and the program's defaults.
    None,
    /// Slices of 0.1 ms.
    Slice,
    /// Slices of 5 ms.
    LongSlice,
    /// `SCHED_BATCH`.
    Batch,
    /// Nice value -10.
    Nice,
    /// Nice value -10 of the threads and of their session.
    NiceSession,
    /// `SCHED_FIFO`.
    Fifo,
    /// `SCHED_RR`.
    RoundRobin,
    /// A receive buffer of 4 MiB instead of 256 KiB, for Kamailio.
    Buffers,
    /// Everything that `strowger tune` recommends on this host: nice values of threads and session, and the buffer for
    /// Kamailio.
    All,
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "baseline",
            Self::Slice => "slice 0.1 ms",
            Self::LongSlice => "slice 5 ms",
            Self::Batch => "SCHED_BATCH",
            Self::Nice => "nice -10",
            Self::NiceSession => "nice -10, session too",
            Self::Fifo => "SCHED_FIFO",
            Self::RoundRobin => "SCHED_RR",
            Self::Buffers => "buffer 4 MiB",
            Self::All => "tuned",
        })
    }
}

impl Tuning {
    /// The tunings that are measured one by one.
    pub const SINGLE: [Self; 8] = [
        Self::Slice,
        Self::LongSlice,
        Self::Batch,
        Self::Nice,
        Self::NiceSession,
        Self::Fifo,
        Self::RoundRobin,
        Self::Buffers,
    ];

    /// Returns whether it changes anything for this server.
    #[must_use]
    pub const fn concerns(self, contender: Contender) -> bool {
        !(contender.is_ours && matches!(self, Self::Buffers))
    }

    /// Returns whether it is a real-time policy, which has a risk of its own.
    #[must_use]
    pub const fn is_real_time(self) -> bool {
        matches!(self, Self::Fifo | Self::RoundRobin)
    }

    /// Returns its name in `strowger tune`; `None` if it is not one of these.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::None | Self::LongSlice | Self::All => None,
            Self::Slice => Some("slice"),
            Self::Batch => Some("batch"),
            Self::Nice => Some("nice"),
            Self::NiceSession => Some("autogroup-nice"),
            Self::Fifo => Some("fifo"),
            Self::RoundRobin => Some("rr"),
            Self::Buffers => Some("receive-buffer"),
        }
    }

    /// Returns the tunings of `strowger tune` that it applies to the running server.
    const fn applies(self) -> &'static [&'static str] {
        match self {
            Self::None | Self::LongSlice | Self::Buffers => &[],
            Self::Slice => &["slice"],
            Self::Batch => &["batch"],
            Self::Nice => &["nice"],
            Self::NiceSession => &["nice", "autogroup-nice"],
            Self::Fifo => &["fifo"],
            Self::RoundRobin => &["rr"],
            Self::All => &["nice", "autogroup-nice"],
        }
    }

    const fn buffer(self) -> u64 {
        if matches!(self, Self::Buffers | Self::All) { LARGE_BUFFER } else { DEFAULT_BUFFER }
    }
}

/// A running and tuned server. Dropping it ends it and restores the host.
#[derive(Debug)]
pub struct Server {
    running: RunningServer,
    // Removed after the server has ended.
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts a server, waits until it answers, and tunes it.
    ///
    /// # Errors
    /// If it does not start, or a value cannot be set.
    pub fn start(contender: Contender, tuning: Tuning, strowger: &Path) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("strowger-tuning-").tempdir();
        let folder = folder.map_err(|error| error.to_string())?;
        let cores = if contender.cores == 1 { "0" } else { "0,1" };
        // A session of its own, as a service has: automatic groups are by session.
        let before = ["setsid", "--wait", "taskset", "-c", cores];
        let running = if contender.is_ours {
            ours(contender, strowger, folder.path(), &before)?
        } else {
            kamailio(contender, tuning, strowger, folder.path(), &before)?
        };
        let server = Self { running, folder };
        server.tune(contender, tuning)?;
        Ok(server)
    }

    /// Returns the ID of its first process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Returns its folder, in which its control socket is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("tune.json")
    }

    fn tune(&self, contender: Contender, tuning: Tuning) -> Result<(), String> {
        let host = Host::running();
        let target = Target::of(&host, self.pid()).ok_or("the server has ended")?;
        let threads = target.threads.clone();
        let program = if contender.is_ours { Program::Strowger } else { Program::Kamailio };
        let demand = Demand { calls_per_s: 1_000.0, longest_wait: LONGEST_WAIT };
        let proposals = propose(&host, &Request { target: Some(target), program, demand });
        let wrong = |error: strowger_tune::TuneError| error.to_string();
        let mut state = StateFile::open(&self.state(), &host).map_err(wrong)?;
        for name in tuning.applies() {
            let changes: Vec<Change> = match proposals.iter().find(|proposal| proposal.topic.name == *name) {
                Some(proposal) => proposal.changes().to_vec(),
                None if *name == "batch" => policy(&threads),
                None => continue,
            };
            set(&host, &mut state, name, &changes)?;
        }
        if tuning == Tuning::LongSlice {
            let change = |task: &strowger_tune::Task| Change {
                place: Place::Scheduling(*task),
                value: Wanted::Slice(LONG_SLICE_NS),
            };
            set(&host, &mut state, "slice", &threads.iter().map(change).collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

/// Returns the changes to `SCHED_BATCH` for servers for which it is not proposed.
fn policy(threads: &[strowger_tune::Task]) -> Vec<Change> {
    let value = Wanted::Policy(strowger_net::Policy::Batch, 0);
    threads.iter().map(|task| Change { place: Place::Scheduling(*task), value: value.clone() }).collect()
}

fn set(host: &Host, state: &mut StateFile, name: &str, changes: &[Change]) -> Result<(), String> {
    let applied = apply(host, state, name, changes).map_err(|error| error.to_string())?;
    for one in applied {
        one.outcome.map_err(|error| error.to_string())?;
    }
    Ok(())
}

impl Drop for Server {
    fn drop(&mut self) {
        let host = Host::running();
        // Values of the machine are restored; those of the server end with it.
        let undone = StateFile::open_existing(&self.state(), &host).map(|state| state.map(|state| undo(&host, state)));
        match undone {
            Ok(Some(Ok(all))) => {
                for (record, what) in all {
                    if let Undone::Failed(error) = what {
                        eprintln!("tuning: {} is not restored: {error}", record.place);
                    }
                }
            }
            Ok(None) => {}
            Ok(Some(Err(error))) | Err(error) => eprintln!("tuning: the host is not restored: {error}"),
        }
    }
}

fn ours(contender: Contender, binary: &Path, folder: &Path, before: &[&str]) -> Result<RunningServer, String> {
    let workers = contender.processes;
    // Without overload control: it would refuse new calls before packets are dropped, and it is what is compared.
    let text = format!(
        "[server]\nlisten = [\"udp:{ADDRESS}\"]\ndomains = [\"{DOMAIN}\"]\ndata = \"data\"\nworkers = {workers}\n\
         min_workers = {workers}\n[store]\nmode = \"memory\"\n[auth]\nrequire = []\nrealm = \"{DOMAIN}\"\n\
         [overload]\ncontrol = false\n[log]\nlevel = \"warn\"\n"
    );
    fs::write(folder.join("strowger.toml"), text).map_err(|error| error.to_string())?;
    let words: Vec<OsString> = vec![binary.into(), "serve".into(), "-c".into(), "strowger.toml".into()];
    launch(before, words, folder, ADDRESS)
}

fn kamailio(
    contender: Contender,
    tuning: Tuning,
    binary: &Path,
    folder: &Path,
    before: &[&str],
) -> Result<RunningServer, String> {
    let place = Environment {
        binary,
        folder,
        scenario: Scenario::Call,
        address: ADDRESS,
        users: 0,
        memory_mib: SHARED_MIB,
        t1_ms: T1_MS,
    };
    let children = format!("RECEIVERS={}", contender.processes);
    let buffer = format!("RECEIVE_BYTES={}", tuning.buffer());
    Peer::Kamailio.start_with(before, &place, &["-A", &children, "-A", &buffer])
}

/// A program that computes on the server's core, in a session of its own. Dropping it ends it.
#[derive(Debug)]
pub struct Competitor(Child);

impl Competitor {
    /// Starts it on the first core.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start() -> Result<Self, String> {
        let mut command = Command::new("setsid");
        command.args(["--wait", "taskset", "-c", "0", "sh", "-c", "while :; do :; done"]).stdin(Stdio::null());
        command.spawn().map(Self).map_err(|error| format!("{command:?}: {error}"))
    }
}

impl Drop for Competitor {
    fn drop(&mut self) {
        let family = crate::register::process::family(self.0.id());
        // Fails only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
        crate::register::process::bury(&family);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunings_are_those_of_the_command() {
        let known: Vec<&str> = strowger_tune::topics().iter().map(|topic| topic.name).collect();
        for tuning in Tuning::SINGLE.into_iter().chain([Tuning::All]) {
            let names = tuning.applies().iter().copied().chain(tuning.name());
            names.for_each(|name| assert!(known.contains(&name), "{name}"));
        }
    }
}
