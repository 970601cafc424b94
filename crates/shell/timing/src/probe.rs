//! Measures where a packet's time goes in any program, with eBPF programs on tracepoints of the kernel.
//!
//! [`Probe::start`] attaches them, [`Probe::poll`] returns a [`PacketRecord`] for each packet that the program
//! received, and dropping the probe detaches them. Packets before the start are not seen.
//!
//! Needs the feature `ebpf`, root (or CAP_BPF and CAP_PERFMON, for processes of others also CAP_SYS_PTRACE), Linux 6.3
//! or newer, and its type information (BTF). [`Probe::start`] says what is missing.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::record::PacketRecord;
use crate::target::{Protocol, Target};

#[cfg(feature = "ebpf")]
use attached::Attached;
#[cfg(not(feature = "ebpf"))]
use without::Attached;

#[cfg(feature = "ebpf")]
mod attached;
#[cfg(feature = "ebpf")]
mod cost;
#[cfg(feature = "ebpf")]
mod drop_reasons;
#[cfg(feature = "ebpf")]
mod event;
#[cfg(feature = "ebpf")]
mod kernel_enum;
#[cfg(feature = "ebpf")]
mod pairing;
#[cfg(feature = "ebpf")]
mod programs;
#[cfg(feature = "ebpf")]
mod raw_event;
#[cfg(not(feature = "ebpf"))]
mod without;

/// Settings of a probe.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProbeOptions {
    /// The protocol to measure; both if none.
    pub protocol: Option<Protocol>,
}

/// Why a probe cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// This program was built without the feature.
    #[error("this program was built without the feature `ebpf`: build it with `--features ebpf`")]
    NotBuiltIn,
    /// The target has no sockets, or does not exist.
    #[error("{0}")]
    NoTarget(String),
    /// The kernel refuses to load programs for this user.
    #[error(
        "not permitted to load eBPF programs: run as root, or with CAP_BPF and CAP_PERFMON, also in a container ({0})"
    )]
    NotPermitted(String),
    /// The kernel has no type information.
    #[error("the kernel has no type information (/sys/kernel/btf/vmlinux): it needs CONFIG_DEBUG_INFO_BTF=y ({0})")]
    NoTypeInformation(String),
    /// The kernel lacks something.
    #[error("the kernel is too old or was built without something that the probe needs: {0}")]
    Kernel(String),
}

/// A running measurement.
#[derive(Debug)]
pub struct Probe(Attached);

impl Probe {
    /// Attaches to the kernel's tracepoints and begins to measure.
    ///
    /// # Errors
    /// See [`ProbeError`]; nothing stays attached then.
    pub fn start(target: Target, options: &ProbeOptions) -> Result<Self, ProbeError> {
        Attached::start(target, options).map(Self)
    }

    /// Appends the records of packets whose processing has ended, in no particular order. Returns as soon as there is
    /// at least one, or after `timeout`. Call it at least ten times a second: events of the kernel wait in a buffer
    /// of 16 MiB. A packet's processing ends with the next receive call of its thread, or ten seconds after it.
    pub fn poll(&mut self, timeout: Duration, records: &mut Vec<PacketRecord>) {
        self.0.poll(timeout, records);
    }

    /// Ends the measurement, and appends the records of packets that were still in processing.
    pub fn stop(self, records: &mut Vec<PacketRecord>) {
        self.0.stop(records);
    }

    /// Returns the number of packets that the kernel dropped on their way into the target's sockets since the start,
    /// by the kernel's reason, such as `SOCKET_RCVBUFF` for a full receive buffer.
    #[must_use]
    pub fn drops(&self) -> BTreeMap<String, u64> {
        self.0.drops()
    }

    /// Returns the number of events that did not fit into the buffer since the start. Packets of lost events have no
    /// record, or one without some of its parts.
    #[must_use]
    pub fn lost_events(&self) -> u64 {
        self.0.lost_events()
    }

    /// Returns the number of received packets of which the beginning was not seen, so that K_stack, K_sockq and K_copy
    /// are absent.
    #[must_use]
    pub fn unpaired(&self) -> u64 {
        self.0.unpaired()
    }

    /// Returns the processes that are measured, ascending; with [`Target::Port`] those that received since the start,
    /// and those that had such a socket then.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        self.0.processes()
    }

    /// Returns the ports that are measured, ascending.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.0.ports()
    }

    /// Returns the processors that the probe's programs in the kernel use, without what it costs to enter them; `None`
    /// before it was measured the first time, and where the kernel does not permit that.
    #[must_use]
    pub fn cost(&self) -> Option<f64> {
        self.0.cost()
    }

    /// Returns what cannot be measured on this kernel, and what did not fit into tables, a sentence each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.0.notes()
    }
}
