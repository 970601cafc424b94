//! The server that is tuned: its processes, threads and sockets.

use crate::host::Host;
use crate::place::Task;

/// Programs that are recognised by their name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// This server.
    Strowger,
    /// Kamailio, which forks receivers.
    Kamailio,
    /// OpenSIPS, which has its processes in common with Kamailio and not its configuration.
    OpenSips,
    /// Another program.
    Other,
}

impl Program {
    /// Returns the program of a process name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "strowger" => Self::Strowger,
            "kamailio" => Self::Kamailio,
            "opensips" => Self::OpenSips,
            _ => Self::Other,
        }
    }
}

/// A running server.
#[derive(Clone, Debug)]
pub struct Target {
    /// The program.
    pub program: Program,
    /// Name of its first process.
    pub name: String,
    /// Its processes: the first one, then those that it started.
    pub processes: Vec<Task>,
    /// Its threads, including the first of each process.
    pub threads: Vec<Task>,
    /// Number of its processes or threads that take packets from sockets; `None` if that cannot be seen.
    pub receivers: Option<usize>,
    /// Its UDP sockets.
    pub sockets: Vec<UdpSocketState>,
    /// Path of its control group in each hierarchy: name of the controllers (empty for version 2) and path.
    pub groups: Vec<(String, String)>,
    /// Whether it is in another network namespace, whose settings are not those that are read.
    pub is_in_other_network: bool,
}

/// State of a UDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpSocketState {
    /// Local port.
    pub port: u16,
    /// Bytes of packets that wait in it.
    pub queued_bytes: u64,
    /// Packets dropped since it was opened.
    pub drops: u64,
    /// Memory for received packets, in bytes, if the kernel tells it.
    pub buffer_bytes: Option<u64>,
}

impl Target {
    /// Finds a server by the number of one of its processes.
    #[must_use]
    pub fn of(host: &Host, pid: u32) -> Option<Self> {
        let pids = with_descendants(host, pid);
        let processes: Vec<Task> = pids.iter().filter_map(|pid| Task::find(host, *pid, *pid)).collect();
        let first = processes.first()?.process;
        let name = host.text(&format!("/proc/{first}/comm")).unwrap_or_default();
        let threads_of = |process: u32| {
            let numbers = host.list(&format!("/proc/{process}/task")).into_iter();
            numbers.filter_map(move |name| Task::find(host, process, name.parse().ok()?))
        };
        let network = |pid: &str| host.link(&format!("/proc/{pid}/ns/net"));
        let (own, its) = (network("self"), network(&first.to_string()));
        let is_in_other_network = own.is_some() && its.is_some() && own != its;
        let (program, threads): (_, Vec<Task>) =
            (Program::named(&name), pids.iter().flat_map(|pid| threads_of(*pid)).collect());
        Some(Self {
            program,
            name,
            receivers: receivers(host, program, &threads),
            threads,
            sockets: if is_in_other_network { Vec::new() } else { sockets(host, &pids) },
            groups: groups(host, first),
            processes,
            is_in_other_network,
        })
    }

    /// Finds servers by the name of their first process.
    #[must_use]
    pub fn named(host: &Host, name: &str) -> Vec<u32> {
        let has_name = |pid: u32| host.text(&format!("/proc/{pid}/comm")).as_deref() == Some(name);
        let pids: Vec<u32> = pids(host).filter(|pid| has_name(*pid)).collect();
        let own = std::process::id();
        let is_first = |pid: u32| parent(host, pid).is_none_or(|parent| !pids.contains(&parent));
        pids.iter().copied().filter(|pid| *pid != own && is_first(*pid)).collect()
    }

    /// Returns the number of its first process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.processes.first().map_or(0, |first| first.process)
    }

    /// Returns its name as a part of a file's name: a process may be named with slashes and spaces.
    #[must_use]
    pub fn file_name(&self) -> String {
        let is_safe = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let name: String = self.name.chars().map(|letter| if is_safe(letter) { letter } else { '-' }).collect();
        let name = name.trim_matches(['-', '.']);
        if name.is_empty() { "server".to_owned() } else { name.to_owned() }
    }

    /// Returns the folder of its control group for a controller, and whether the hierarchy is of version 2.
    #[must_use]
    pub fn group(&self, host: &Host, controller: &str) -> Option<(String, bool)> {
        let has = |names: &str| names.split(',').any(|name| name == controller);
        if let Some((names, path)) = self.groups.iter().find(|(names, _)| has(names)) {
            let folders = [format!("/sys/fs/cgroup/{names}{path}"), format!("/sys/fs/cgroup/{controller}{path}")];
            return folders.into_iter().find(|folder| host.has(folder)).map(|folder| (folder, false));
        }
        let (_, path) = self.groups.iter().find(|(names, _)| names.is_empty())?;
        let folder = format!("/sys/fs/cgroup{path}");
        host.has(&format!("{folder}/cgroup.procs")).then_some((folder, true))
    }

    /// Returns whether it is in the root group of the CPU controller, where nice values count against all programs.
    #[must_use]
    pub fn is_in_root_group(&self) -> bool {
        let of_cpu = |(names, _): &&(String, String)| names.is_empty() || names.split(',').any(|name| name == "cpu");
        self.groups.iter().filter(of_cpu).all(|(_, path)| path == "/")
    }

    /// Returns the name of its systemd unit.
    #[must_use]
    pub fn unit(&self) -> Option<&str> {
        let parts = self.groups.iter().flat_map(|(_, path)| path.rsplit('/'));
        parts.into_iter().find(|part| part.ends_with(".service"))
    }
}

fn pids(host: &Host) -> impl Iterator<Item = u32> {
    host.list("/proc").into_iter().filter_map(|name| name.parse().ok())
}

fn parent(host: &Host, pid: u32) -> Option<u32> {
    let text = host.read(&format!("/proc/{pid}/stat")).ok()?;
    text.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

fn with_descendants(host: &Host, root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = pids(host).filter_map(|pid| Some((pid, parent(host, pid)?))).collect();
    let mut all = vec![root];
    let mut next = 0;
    while let Some(parent) = all.get(next).copied() {
        all.extend(parents.iter().filter(|(pid, its)| *its == parent && *pid != parent).map(|(pid, _)| *pid));
        next += 1;
    }
    all
}

/// Returns the number of processes or threads that receive; `None` if that cannot be seen.
fn receivers(host: &Host, program: Program, threads: &[Task]) -> Option<usize> {
    let receives = |task: &&Task| {
        let folder = format!("/proc/{}/task/{}", task.process, task.thread);
        match program {
            Program::Strowger => host.text(&format!("{folder}/comm")).is_some_and(|name| name.starts_with("worker-")),
            _ => waits_for_packets(host, task.process, &host.text(&format!("{folder}/syscall")).unwrap_or_default()),
        }
    };
    Some(threads.iter().filter(receives).count()).filter(|count| *count > 0)
}

/// Returns whether a thread is receiving. `call` is what the kernel says of it: `running`, or the number and the
/// arguments of the system call in which it sleeps. A busy receiver runs, and the other processes of such a server
/// nearly always sleep.
fn waits_for_packets(host: &Host, process: u32, call: &str) -> bool {
    if call == "running" {
        return true;
    }
    let Some(file) = call.split_whitespace().nth(1).and_then(|word| word.strip_prefix("0x")) else { return false };
    let Ok(file) = u64::from_str_radix(file, 16) else { return false };
    // Only calls on files have the number of one as their first argument.
    let Some(inode) = host.link(&format!("/proc/{process}/fd/{file}")).and_then(|link| inode(&link)) else {
        return false;
    };
    let tables = ["udp", "udp6"].map(|table| host.text(&format!("/proc/{process}/net/{table}")).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().filter_map(parse_row)).any(|(its, _)| its == inode)
}

/// Returns the number of the socket to which a link of `/proc/PID/fd` points.
fn inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Reads `/proc/PID/cgroup`.
fn groups(host: &Host, pid: u32) -> Vec<(String, String)> {
    let text = host.text(&format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let row = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
    };
    text.lines().filter_map(row).collect()
}

/// Returns the UDP sockets of these processes.
fn sockets(host: &Host, pids: &[u32]) -> Vec<UdpSocketState> {
    let of_process = |pid: u32| {
        let folder = format!("/proc/{pid}/fd");
        let names = host.list(&folder).into_iter();
        names.filter_map(move |name| inode(&host.link(&format!("{folder}/{name}"))?)).collect::<Vec<u64>>()
    };
    let inodes: Vec<u64> = pids.iter().flat_map(|pid| of_process(*pid)).collect();
    // Without this, the buffers are unknown but the rest is not.
    let buffers = host.kernel().udp_buffers().unwrap_or_default();
    let first = pids.first().copied().unwrap_or(0);
    let tables = ["udp", "udp6"].map(|table| host.text(&format!("/proc/{first}/net/{table}")).unwrap_or_default());
    let rows = tables.iter().flat_map(|table| table.lines().filter_map(parse_row));
    rows.filter(|(inode, _)| inodes.contains(inode))
        .map(|(inode, state)| {
            let buffer = buffers.iter().find(|buffer| buffer.inode == inode);
            UdpSocketState { buffer_bytes: buffer.map(|buffer| buffer.bytes), ..state }
        })
        .collect()
}

/// Reads a row of `/proc/net/udp`: number of the socket, and its state.
fn parse_row(line: &str) -> Option<(u64, UdpSocketState)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let port = u16::from_str_radix(fields.get(1)?.rsplit(':').next()?, 16).ok()?;
    let queued_bytes = hex(fields.get(4)?.split_once(':')?.1)?;
    let (inode, drops) = (fields.get(9)?.parse().ok()?, fields.last()?.parse().ok()?);
    Some((inode, UdpSocketState { port, queued_bytes, drops, buffer_bytes: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_the_kernels_table_is_read() {
        let line = "  525: 0100007F:13C4 00000000:0000 07 00000000:00000A00 00:00000000 00000000  0 0 4711 2 0000000000000000 17";
        let state = UdpSocketState { port: 5_060, queued_bytes: 2_560, drops: 17, buffer_bytes: None };
        assert_eq!(parse_row(line), Some((4_711, state)));
        assert_eq!(parse_row("  sl  local_address rem_address   st tx_queue rx_queue"), None);
    }

    #[test]
    fn the_name_of_a_process_is_safe_in_the_name_of_a_file() {
        let named = |name: &str| {
            let mut target = Target::of(&Host::running(), std::process::id()).expect("this process");
            name.clone_into(&mut target.name);
            target.file_name()
        };
        assert_eq!((named("kamailio"), named("my server/2")), ("kamailio".to_owned(), "my-server-2".to_owned()));
        assert_eq!((named("../../x"), named("..")), ("x".to_owned(), "server".to_owned()));
        assert_eq!(named("a%n $(x)"), "a-n---x");
    }

    #[test]
    fn own_sockets_are_found() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        let port = socket.local_addr().expect("bound").port();
        let target = Target::of(&Host::running(), std::process::id()).expect("this process");
        assert!(target.sockets.iter().any(|socket| socket.port == port), "{target:?}");
        assert!(target.threads.len() > 1 && target.pid() == std::process::id(), "{target:?}");
        assert!(Target::of(&Host::running(), u32::MAX).is_none());
    }
}
