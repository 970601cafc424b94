//! The programs in the kernel, and the tables that they share with the probe.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use aya::maps::{Array, HashMap, MapData, MapError, RingBuf};
use aya::programs::{BtfTracePoint, ProgramError};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};

use super::ProbeError;
use super::cost::Cost;
use crate::target::Protocol;

/// The compiled programs.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/probe.bpf.o"));

/// Where the kernel's type information is.
const TYPE_INFORMATION: &str = "/sys/kernel/btf/vmlinux";

/// Inode of the first namespace of process numbers, a constant of the kernel (`PROC_PID_INIT_INO`).
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Maximum number of events read at once: what the full buffer holds.
const MAX_READ: usize = 262_144;

/// Number of reasons to drop a packet that are told apart in the kernel.
const REASONS: u32 = 512;

/// Programs and their tracepoints.
const TRACEPOINTS: [(&str, &str); 14] = [
    ("on_backlog", "netif_rx"),
    ("on_arrival", "netif_receive_skb"),
    ("on_free", "kfree_skb"),
    ("on_queued", "sk_data_ready"),
    ("on_received", "sock_recv_length"),
    ("on_call", "sys_enter"),
    ("on_return", "sys_exit"),
    ("on_sent", "sock_send_length"),
    ("on_device_queue", "net_dev_queue"),
    ("on_device", "net_dev_start_xmit"),
    ("on_wakeup", "sched_wakeup"),
    ("on_switch", "sched_switch"),
    ("on_fork", "sched_process_fork"),
    ("on_exit", "sched_process_exit"),
];
/// Programs of which the first that loads is used.
const DROP_TRACEPOINTS: [(&str, &str); 2] = [("on_drop", "kfree_skb"), ("on_no_room", "udp_fail_queue_rcv_skb")];

/// Tables of the kernel's programs that can be full: the place of their count, and what is missing then.
const LOST: [(u32, &str); 3] = [
    (1, "there are more than the 4,096 processes that the probe can watch: packets of the others are missing"),
    (2, "there are more than the 16,384 threads that the probe can watch: packets of the others are missing"),
    (3, "packets between send call and device took each other's place in the probe's table, so K_snd is missing"),
];

/// What is watched at a port.
#[derive(Clone, Copy, Debug)]
pub(super) enum Watched {
    /// Nothing any more.
    Nothing,
    /// What is sent from it counts as sent.
    Sends,
    /// Also what is received on it.
    ReceivesAndSends,
}

/// The loaded programs. They detach when this is dropped.
pub(super) struct Programs {
    /// Owns programs and tables; none after detaching.
    loaded: Option<Ebpf>,
    events: RingBuf<MapData>,
    ports: Array<MapData, u8>,
    processes: HashMap<MapData, u32, u8>,
    processes_inside: HashMap<MapData, u32, u8>,
    /// Whether processes have other numbers for the kernel than here.
    is_inside: bool,
    cost: Cost,
    drops: Array<MapData, u64>,
    lost: Array<MapData, u64>,
    notes: Vec<String>,
}

impl fmt::Debug for Programs {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Programs").field("notes", &self.notes).finish_non_exhaustive()
    }
}

impl Programs {
    /// Loads the programs; [`Programs::attach`] lets them run. With `learns_processes`, each process that receives on
    /// a watched port is watched.
    pub(super) fn load(learns_processes: bool, protocol: Option<Protocol>) -> Result<Self, ProbeError> {
        let types = Btf::from_sys_fs().map_err(|error| match Path::new(TYPE_INFORMATION).exists() {
            true => ProbeError::NotPermitted(format!("cannot read {TYPE_INFORMATION}: {error}")),
            false => ProbeError::NoTypeInformation(error.to_string()),
        })?;
        let learns = u32::from(learns_processes);
        let (device, inode) = process_namespace();
        let only_protocol = protocol.map_or(0_u32, |protocol| match protocol {
            Protocol::Udp => 17,
            Protocol::Tcp => 6,
        });
        let mut loaded = EbpfLoader::new()
            .btf(Some(&types))
            .override_global("learns_processes", &learns, true)
            .override_global("only_protocol", &only_protocol, true)
            .override_global("namespace_device", &device, true)
            .override_global("namespace_inode", &inode, true)
            .load(OBJECT)
            .map_err(|error| of_loader(&error))?;
        for (program, tracepoint) in TRACEPOINTS {
            load_program(&mut loaded, program, tracepoint, &types)?;
        }
        let mut notes = Vec::new();
        let mut drops = DROP_TRACEPOINTS.into_iter();
        if !drops.any(|(program, tracepoint)| load_program(&mut loaded, program, tracepoint, &types).is_ok()) {
            notes.push("This kernel does not tell which packets it drops.".to_owned());
        }
        Ok(Self {
            events: table(&mut loaded, "events")?,
            ports: table(&mut loaded, "ports")?,
            processes: table(&mut loaded, "processes")?,
            processes_inside: table(&mut loaded, "processes_inside")?,
            is_inside: inode > 0,
            cost: Cost::default(),
            drops: table(&mut loaded, "drops")?,
            lost: table(&mut loaded, "lost")?,
            loaded: Some(loaded),
            notes,
        })
    }

    /// Attaches the programs to their tracepoints.
    pub(super) fn attach(&mut self) -> Result<(), ProbeError> {
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        for (name, program) in loaded.programs_mut() {
            let program: &mut BtfTracePoint = program.try_into().map_err(|error| of_program(name, &error))?;
            // The one of several programs for drops that the kernel refused is left alone.
            if program.fd().is_ok() {
                program.attach().map_err(|error| of_program(name, &error))?;
            }
        }
        Ok(())
    }

    /// Measures now and then what the programs cost; called every few milliseconds.
    pub(super) fn measure_cost(&mut self) {
        if let Some(loaded) = &self.loaded {
            self.cost.step(loaded);
        }
    }

    /// Returns the processors that the programs use, if that is known.
    pub(super) fn cost(&self) -> Option<f64> {
        self.cost.processors()
    }

    /// Detaches the programs; their events so far can still be read.
    pub(super) fn detach(&mut self) {
        self.loaded = None;
    }

    /// Watches a process.
    pub(super) fn watch_process(&mut self, process: u32) -> Result<(), ProbeError> {
        let table = if self.is_inside { &mut self.processes_inside } else { &mut self.processes };
        table.insert(process, 1, 0).map_err(|error| of_map(&error))
    }

    /// Watches a port.
    pub(super) fn watch_port(&mut self, port: u16, watched: Watched) -> Result<(), ProbeError> {
        let bits = match watched {
            Watched::Nothing => 0,
            Watched::Sends => 2,
            Watched::ReceivesAndSends => 3,
        };
        self.ports.set(u32::from(port), bits, 0).map_err(|error| of_map(&error))
    }

    /// Returns the watched processes that have not ended, ascending; `None` in a namespace of processes, where they have
    /// other numbers.
    pub(super) fn processes(&self) -> Option<Vec<u32>> {
        if self.is_inside {
            return None;
        }
        let processes: BTreeSet<u32> = self.processes.keys().filter_map(Result::ok).collect();
        Some(processes.into_iter().collect())
    }

    /// Passes new events to `handle`, at most [`MAX_READ`].
    pub(super) fn read(&mut self, mut handle: impl FnMut(&[u8])) {
        for _ in 0..MAX_READ {
            let Some(event) = self.events.next() else { return };
            handle(&event);
        }
    }

    /// Returns the number of dropped packets by reason, without zeros.
    pub(super) fn drops(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (0..REASONS).filter_map(|reason| Some((reason, self.drops.get(&reason, 0).ok().filter(|count| *count > 0)?)))
    }

    /// Returns the number of events that did not fit into the buffer.
    pub(super) fn lost_events(&self) -> u64 {
        self.lost(0)
    }

    fn lost(&self, kind: u32) -> u64 {
        self.lost.get(&kind, 0).unwrap_or(0)
    }

    /// Returns what this kernel does not let measure, and what its tables had no room for.
    pub(super) fn notes(&self) -> Vec<String> {
        let full = LOST.into_iter().filter(|(kind, _)| self.lost(*kind) > 0);
        let full = full.map(|(kind, what)| format!("{what} ({} times)", self.lost(kind)));
        self.notes.iter().cloned().chain(full).collect()
    }
}

/// Returns device and inode of the namespace of process numbers; zeros for the first one, whose numbers the kernel uses.
fn process_namespace() -> (u64, u64) {
    match std::fs::metadata("/proc/self/ns/pid") {
        Ok(namespace) if namespace.ino() != FIRST_NAMESPACE => (namespace.dev(), namespace.ino()),
        _ => (0, 0),
    }
}

fn table<Table: TryFrom<aya::maps::Map, Error = MapError>>(loaded: &mut Ebpf, name: &str) -> Result<Table, ProbeError> {
    let map = loaded.take_map(name).ok_or_else(|| ProbeError::Kernel(format!("the table {name} is missing")))?;
    Table::try_from(map).map_err(|error| of_map(&error))
}

fn load_program(loaded: &mut Ebpf, name: &str, tracepoint: &str, types: &Btf) -> Result<(), ProbeError> {
    let program = loaded.program_mut(name).ok_or_else(|| ProbeError::Kernel(format!("{name} is missing")))?;
    let program: &mut BtfTracePoint = program.try_into().map_err(|error| of_program(tracepoint, &error))?;
    program.load(tracepoint, types).map_err(|error| of_program(tracepoint, &error))
}

fn of_loader(error: &EbpfError) -> ProbeError {
    match error {
        EbpfError::MapError(error) => of_map(error),
        other => ProbeError::Kernel(other.to_string()),
    }
}

fn of_map(error: &MapError) -> ProbeError {
    match error {
        MapError::CreateError { name, io_error, .. } => refused(&format!("creating the table `{name}`"), io_error, ""),
        MapError::SyscallError(call) => refused(call.call, &call.io_error, ""),
        other => ProbeError::Kernel(other.to_string()),
    }
}

/// Makes an error of what happened to the program of a tracepoint.
fn of_program(tracepoint: &str, error: &ProgramError) -> ProbeError {
    match error {
        ProgramError::LoadError { io_error, verifier_log } => {
            refused(&format!("the program at {tracepoint}"), io_error, &verifier_log.to_string())
        }
        ProgramError::SyscallError(call) => refused(&format!("{} at {tracepoint}", call.call), &call.io_error, ""),
        other => ProbeError::Kernel(format!("tracepoint {tracepoint}: {other}")),
    }
}

/// Makes an error of a refusal. A refusal with a log of the verifier is none for lack of permission.
fn refused(what: &str, error: &io::Error, log: &str) -> ProbeError {
    let is_permission = error.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error())
        || error.kind() == io::ErrorKind::PermissionDenied && log.trim().is_empty();
    match log.lines().rev().find(|line| !line.trim().is_empty() && !is_statistics(line)) {
        _ if is_permission => ProbeError::NotPermitted(format!("{what}: {error}")),
        Some(reason) => ProbeError::Kernel(format!("{what}: {error}: {reason}")),
        None => ProbeError::Kernel(format!("{what}: {error}")),
    }
}

/// Returns whether the verifier's line says how long it worked, not what it refused.
fn is_statistics(line: &str) -> bool {
    ["verification time", "stack depth", "processed"].iter().any(|word| line.starts_with(word))
}
