//! Processes and sockets of a host, read from /proc below a root.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::table::{SocketRow, counter, sockets};
use crate::target::{Protocol, Target};

/// State of a stream socket that listens.
const LISTENING: u8 = 10;
/// State of a datagram socket that has no peer.
const UNCONNECTED: u8 = 7;

/// Why a target cannot be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetError {
    /// The process does not exist.
    NoProcess(u32),
    /// No socket is bound to the port.
    NoSocket(u16, Option<Protocol>),
    /// The process has no socket of the wanted kind.
    NoSocketOfProcess(u32, Option<Protocol>),
}

impl std::fmt::Display for TargetError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |protocol: &Option<Protocol>| match protocol {
            Some(Protocol::Udp) => "UDP",
            Some(Protocol::Tcp) => "TCP",
            None => "UDP or TCP",
        };
        match self {
            Self::NoProcess(pid) => write!(
                to,
                "process {pid} does not exist: it has ended, or the number is wrong (`pgrep -a NAME` lists processes)"
            ),
            Self::NoSocket(port, protocol) => write!(
                to,
                "no program is bound to {} port {port}; start the program first (`ss -lnptu` lists programs and ports)",
                name(protocol)
            ),
            Self::NoSocketOfProcess(pid, protocol) => write!(
                to,
                "process {pid} has no {} socket; give the process that serves the port (`ss -lnptu` lists programs and \
                 ports)",
                name(protocol)
            ),
        }
    }
}

impl std::error::Error for TargetError {}

/// A socket of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalSocket {
    /// Its protocol.
    pub protocol: Protocol,
    /// Its local port.
    pub port: u16,
    /// Its inode number, which all processes that share it have in common.
    pub inode: u64,
}

/// The processes and sockets of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Name for people: the program, its processes and its ports.
    pub name: String,
    /// The processes, the eldest first; empty if they belong to another user.
    pub pids: Vec<u32>,
    /// The sockets; empty if those of the process cannot be seen.
    pub sockets: Vec<LocalSocket>,
    /// Whether the sockets of the processes, or the processes of the sockets, cannot be seen without being root.
    pub is_hidden: bool,
}

/// Reader of /proc.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        Self::at(Path::new("/proc"))
    }
}

impl Host {
    /// Creates a reader of a folder that looks like /proc.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Finds the processes and sockets of a target.
    ///
    /// # Errors
    /// There are none.
    pub fn find(&self, target: Target, protocol: Option<Protocol>) -> Result<Program, TargetError> {
        let mut program = match target {
            Target::Process(pid) => self.of_process(pid, protocol)?,
            Target::Port(port) => self.of_port(port, protocol)?,
        };
        program.name = self.describe(&program);
        Ok(program)
    }

    fn of_process(&self, pid: u32, protocol: Option<Protocol>) -> Result<Program, TargetError> {
        if self.read(&format!("{pid}/stat")).is_empty() {
            return Err(TargetError::NoProcess(pid));
        }
        let pids = self.process_tree(&[pid]);
        let own: Option<BTreeSet<u64>> = self.inodes(&pids);
        let is_hidden = own.is_none();
        let own = own.unwrap_or_default();
        let mut sockets = self.bound(&pids, None, protocol);
        sockets.retain(|socket| own.contains(&socket.inode));
        if sockets.is_empty() && !is_hidden {
            return Err(TargetError::NoSocketOfProcess(pid, protocol));
        }
        Ok(Program { pids, sockets, is_hidden, ..Program::default() })
    }

    fn of_port(&self, port: u16, protocol: Option<Protocol>) -> Result<Program, TargetError> {
        let mut sockets = self.bound(&[], Some(port), protocol);
        if sockets.is_empty() {
            // A container has a network of its own.
            sockets = self.bound(&self.numbers(""), Some(port), protocol);
        }
        if sockets.is_empty() {
            return Err(TargetError::NoSocket(port, protocol));
        }
        let has = |pid: &u32| {
            let own = self.inodes(&[*pid]).unwrap_or_default();
            sockets.iter().any(|socket| own.contains(&socket.inode))
        };
        let holders: Vec<u32> = self.numbers("").into_iter().filter(has).collect();
        // Children that do not hold the socket belong to the program too.
        let pids = self.process_tree(&self.eldest(&holders));
        Ok(Program { is_hidden: pids.is_empty(), pids, sockets, ..Program::default() })
    }

    /// Returns datagram sockets, listening sockets, and connections at a port on which somebody listens: what serves
    /// peers.
    fn bound(&self, pids: &[u32], port: Option<u16>, wanted: Option<Protocol>) -> Vec<LocalSocket> {
        let mut found: Vec<LocalSocket> = Vec::new();
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            if wanted.is_some_and(|wanted| wanted != protocol) {
                continue;
            }
            let rows = self.rows(pids, protocol);
            let listening: BTreeSet<u16> =
                rows.iter().filter(|row| row.state == LISTENING).map(|row| row.port).collect();
            let serves = |row: &SocketRow| {
                port.is_none_or(|port| row.port == port) && (protocol == Protocol::Udp || listening.contains(&row.port))
            };
            let own = rows.iter().filter(|row| serves(row) && row.inode > 0);
            found.extend(own.map(|row| LocalSocket { protocol, port: row.port, inode: row.inode }));
        }
        found.sort_by_key(|socket| (socket.protocol == Protocol::Tcp, socket.port, socket.inode));
        found
    }

    /// Returns the ports on which processes receive: those of their datagram sockets, and those on which they listen.
    /// Without `with_connected`, datagram sockets that are connected to a peer are left out: programs open such
    /// sockets for a single question to a name server.
    #[must_use]
    pub fn ports_of(&self, pids: &[u32], protocol: Option<Protocol>, with_connected: bool) -> BTreeSet<u16> {
        let inodes = self.inodes(pids).unwrap_or_default();
        let rows = |wanted| {
            let is_left_out = protocol.is_some_and(|protocol| protocol != wanted);
            if is_left_out { Vec::new() } else { self.rows(pids, wanted) }
        };
        let datagrams = rows(Protocol::Udp).into_iter().filter(|row| with_connected || row.state == UNCONNECTED);
        let listeners = rows(Protocol::Tcp).into_iter().filter(|row| row.state == LISTENING);
        datagrams.chain(listeners).filter(|row| inodes.contains(&row.inode)).map(|row| row.port).collect()
    }

    /// Returns the local ports of all sockets of processes; `None` if their sockets cannot be seen.
    #[must_use]
    pub fn open_ports(&self, pids: &[u32], protocol: Option<Protocol>) -> Option<BTreeSet<u16>> {
        let inodes = self.inodes(pids)?;
        let protocols =
            [Protocol::Udp, Protocol::Tcp].into_iter().filter(|own| protocol.is_none_or(|wanted| wanted == *own));
        let rows = protocols.flat_map(|protocol| self.rows(pids, protocol));
        Some(rows.filter(|row| inodes.contains(&row.inode)).map(|row| row.port).collect())
    }

    /// Returns the sockets of a protocol in the network namespaces of processes, or in the own one if there are none.
    pub(super) fn rows(&self, pids: &[u32], protocol: Protocol) -> Vec<SocketRow> {
        let files = match protocol {
            Protocol::Udp => ["udp", "udp6"],
            Protocol::Tcp => ["tcp", "tcp6"],
        };
        let rows = |pid, file: &str| sockets(&self.net(pid, file), protocol).collect::<Vec<_>>();
        let networks = self.one_of_each_network(pids);
        networks.into_iter().flat_map(|pid| files.map(|file| rows(pid, file))).flatten().collect()
    }

    /// Returns one of the processes in each network namespace; none for the own namespace, without processes.
    fn one_of_each_network(&self, pids: &[u32]) -> Vec<Option<u32>> {
        let mut seen = BTreeSet::new();
        let network = |pid: &u32| std::fs::read_link(self.root.join(format!("{pid}/ns/net"))).ok();
        let first = pids.iter().filter(|pid| seen.insert(network(pid))).map(|pid| Some(*pid));
        let found: Vec<Option<u32>> = first.collect();
        if found.is_empty() { vec![None] } else { found }
    }

    /// Returns the number of processors on which at least one thread of the processes may run; `None` if unknown.
    #[must_use]
    pub fn allowed_processors(&self, pids: &[u32]) -> Option<usize> {
        let threads = pids.iter().flat_map(|pid| {
            self.numbers(&format!("{pid}/task")).into_iter().map(move |thread| format!("{pid}/task/{thread}/status"))
        });
        let mut allowed = BTreeSet::new();
        for file in threads {
            let status = self.read(&file);
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            allowed.extend(list.into_iter().flat_map(processors));
        }
        Some(allowed.len()).filter(|count| *count > 0)
    }

    /// Returns the number of datagrams that sockets in the network namespace of a process dropped.
    #[must_use]
    pub fn datagram_drops(&self, pid: u32, inodes: &BTreeSet<u64>) -> u64 {
        let rows = self.rows(&[pid], Protocol::Udp).into_iter();
        rows.filter(|row| inodes.contains(&row.inode)).map(|row| row.drops).sum()
    }

    /// Returns a counter of the network namespace of a process, or of the own one: the value `name` of a `group` in a
    /// `file` such as `snmp`.
    #[must_use]
    pub fn counter(&self, pid: Option<u32>, file: &str, group: &str, name: &str) -> Option<u64> {
        counter(&self.net(pid, file), group, name)
    }

    fn net(&self, pid: Option<u32>, file: &str) -> String {
        match pid {
            Some(pid) => self.read(&format!("{pid}/net/{file}")),
            None => self.read(&format!("net/{file}")),
        }
    }

    /// Whether a process exists and has not ended.
    #[must_use]
    pub fn is_running(&self, pid: u32) -> bool {
        let text = self.read(&format!("{pid}/stat"));
        text.rsplit_once(')').is_some_and(|(_, rest)| !matches!(rest.trim_start().get(..1), Some("Z" | "X") | None))
    }

    /// Returns processes and all their descendants, each once, the given ones first.
    #[must_use]
    pub fn process_tree(&self, pids: &[u32]) -> Vec<u32> {
        let all: Vec<(u32, u32)> =
            self.numbers("").into_iter().filter_map(|pid| Some((pid, self.parent(pid)?))).collect();
        let mut family = pids.to_vec();
        let mut next = 0;
        while let Some(parent) = family.get(next).copied() {
            let children = all.iter().filter(|(pid, its)| *its == parent && !pids.contains(pid)).map(|(pid, _)| *pid);
            family.extend(children);
            next += 1;
        }
        family
    }

    /// Returns those processes whose parent is not among them.
    #[must_use]
    pub fn eldest(&self, pids: &[u32]) -> Vec<u32> {
        let is_eldest = |pid: &u32| self.parent(*pid).is_none_or(|parent| !pids.contains(&parent));
        pids.iter().copied().filter(is_eldest).collect()
    }

    fn parent(&self, pid: u32) -> Option<u32> {
        let text = self.read(&format!("{pid}/stat"));
        // The name may contain spaces and parentheses; the later fields do not.
        let (_, rest) = text.rsplit_once(')')?;
        rest.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    /// Returns the inode numbers of the sockets of processes; `None` if those of none of them can be seen.
    #[must_use]
    pub fn inodes(&self, pids: &[u32]) -> Option<BTreeSet<u64>> {
        let mut sockets = None;
        for pid in pids {
            let Ok(files) = std::fs::read_dir(self.root.join(format!("{pid}/fd"))) else { continue };
            let inodes = files.flatten().filter_map(|file| {
                let link = std::fs::read_link(file.path()).ok()?;
                link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
            });
            sockets.get_or_insert_with(BTreeSet::new).extend(inodes);
        }
        sockets
    }

    fn describe(&self, program: &Program) -> String {
        let mut ports: Vec<String> = program
            .sockets
            .iter()
            .map(|socket| format!("{}/{}", socket.port, if socket.protocol == Protocol::Udp { "udp" } else { "tcp" }))
            .collect();
        ports.dedup();
        let ports = match ports.as_slice() {
            [] => String::new(),
            [port] => format!("port {port}"),
            several if several.len() <= 4 => format!("ports {}", several.join(", ")),
            several => format!("{} ports", several.len()),
        };
        let processes = match program.pids.as_slice() {
            [] => return ports,
            [one] => format!("{} (process {one})", self.name(*one)),
            [eldest, more @ ..] => format!("{} (process {eldest} and {} more)", self.name(*eldest), more.len()),
        };
        if ports.is_empty() { processes } else { format!("{processes}, {ports}") }
    }

    /// Returns the name of a process or of its thread, as long as the kernel keeps it.
    fn name(&self, pid: u32) -> String {
        self.read(&format!("{pid}/comm")).trim_end().to_owned()
    }

    /// Returns the entries of a folder whose names are numbers, in order.
    #[must_use]
    pub fn numbers(&self, folder: &str) -> Vec<u32> {
        let Ok(entries) = std::fs::read_dir(self.root.join(folder)) else { return Vec::new() };
        let mut numbers: Vec<u32> =
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Returns the text of a file; empty if it cannot be read, because processes may end at any time.
    #[must_use]
    pub fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.root.join(file)).unwrap_or_default()
    }
}

/// Maximum number of processors of a host.
const MAX_PROCESSORS: u32 = 8_192;

/// Returns the processors of a list such as `0-3,8`.
fn processors(list: &str) -> impl Iterator<Item = u32> + '_ {
    list.trim().split(',').flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) => first..last.saturating_add(1).min(MAX_PROCESSORS),
            _ => 0..0,
        }
    })
}
