//! The probe: attaches the kernel's programs, reads their events, and keeps the watched ports up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::drop_reasons::DropReasons;
use super::pairing::Pairing;
use super::programs::{Programs, Watched};
use super::raw_event;
use super::{ProbeError, ProbeOptions};
use crate::proc::Host;
use crate::record::PacketRecord;
use crate::target::Target;

/// How long to wait before the buffer of events is looked at again.
const PAUSE: Duration = Duration::from_millis(5);
/// Time between two searches for new sockets.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// A running measurement.
#[derive(Debug)]
pub(super) struct Attached {
    programs: Programs,
    pairing: Pairing,
    host: Host,
    target: Target,
    options: ProbeOptions,
    reasons: DropReasons,
    lost: u64,
    ports: BTreeSet<u16>,
    also_sending: BTreeSet<u16>,
    searched: Instant,
}

impl Attached {
    pub(super) fn start(target: Target, options: &ProbeOptions) -> Result<Self, ProbeError> {
        let host = Host::default();
        if let Target::Process(id) = target
            && !host.is_running(id)
        {
            return Err(ProbeError::NoTarget(format!("there is no process {id}")));
        }
        let processes = processes_of(&host, target, options);
        let mut programs = Programs::load(matches!(target, Target::Port(_)), options.protocol)?;
        for id in &processes {
            programs.watch_process(*id)?;
        }
        let mut probe = Self {
            programs,
            pairing: Pairing::default(),
            host,
            target,
            options: *options,
            reasons: DropReasons::of_this_kernel(),
            lost: 0,
            ports: BTreeSet::new(),
            also_sending: BTreeSet::new(),
            searched: Instant::now(),
        };
        probe.watch_ports(&processes, true)?;
        probe.programs.attach()?;
        Ok(probe)
    }

    pub(super) fn poll(&mut self, timeout: Duration, records: &mut Vec<PacketRecord>) {
        let start = Instant::now();
        loop {
            self.read_events(records);
            if self.searched.elapsed() >= SEARCH_INTERVAL {
                self.searched = Instant::now();
                // A port that cannot be added is tried again.
                let _ = self.watch_ports(&self.processes(), false);
            }
            let left = timeout.saturating_sub(start.elapsed());
            if !records.is_empty() || left.is_zero() {
                return;
            }
            thread::sleep(PAUSE.min(left));
        }
    }

    pub(super) fn stop(mut self, records: &mut Vec<PacketRecord>) {
        self.programs.detach();
        self.read_events(records);
        self.pairing.handle_end();
        self.take_records(records);
    }

    pub(super) fn drops(&self) -> BTreeMap<String, u64> {
        let drops = self.programs.drops().filter(|(reason, _)| !self.reasons.is_duplicate(*reason));
        drops.map(|(reason, count)| (self.reasons.name(reason), count)).collect()
    }

    pub(super) fn lost_events(&self) -> u64 {
        self.programs.lost_events()
    }

    pub(super) fn unpaired(&self) -> u64 {
        self.pairing.unpaired()
    }

    pub(super) fn processes(&self) -> Vec<u32> {
        self.programs.processes().unwrap_or_else(|| processes_of(&self.host, self.target, &self.options))
    }

    pub(super) fn cost(&self) -> Option<f64> {
        self.programs.cost()
    }

    pub(super) fn ports(&self) -> Vec<u16> {
        self.ports.iter().copied().collect()
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.programs.notes();
        let duplicates = self.programs.drops().filter(|(reason, _)| self.reasons.is_duplicate(*reason));
        let duplicates: u64 = duplicates.map(|(_, count)| count).sum();
        if duplicates > 0 {
            notes.push(format!(
                "TCP repeated {duplicates} segments that had arrived before: their acknowledgements are lost or late; no \
                 data is missing"
            ));
        }
        notes.extend(self.pairing.overflows().notes());
        notes
    }

    fn read_events(&mut self, records: &mut Vec<PacketRecord>) {
        // Taken before reading: events up to this time are in the buffer or will be within the pairing's patience.
        let now = monotonic_ns();
        let Self { programs, pairing, .. } = self;
        programs.read(|bytes| {
            if let Some(event) = raw_event::read(bytes) {
                pairing.handle_event(event);
            }
        });
        // After reading: what was in the full buffer is older than the loss.
        let lost = self.programs.lost_events();
        if lost != self.lost {
            self.lost = lost;
            self.pairing.handle_loss();
        }
        self.pairing.handle_timeout(now);
        self.programs.measure_cost();
        self.take_records(records);
    }

    fn take_records(&mut self, records: &mut Vec<PacketRecord>) {
        records.extend(std::iter::from_fn(|| self.pairing.poll_record()));
    }

    /// Finds the ports of the target, adds those that are new, and removes those whose sockets are closed: the kernel
    /// may give their number to a socket that asks a name server.
    fn watch_ports(&mut self, processes: &[u32], is_first: bool) -> Result<(), ProbeError> {
        if !is_first {
            self.remove_closed(processes)?;
        }
        let theirs = self.host.ports_of(processes, self.options.protocol, is_first);
        let (watched, sending) = match self.target {
            Target::Process(_) => (theirs, BTreeSet::new()),
            Target::Port(port) => (BTreeSet::from([port]), theirs),
        };
        for port in watched.difference(&self.ports) {
            self.programs.watch_port(*port, Watched::ReceivesAndSends)?;
        }
        for port in sending.difference(&self.also_sending).filter(|port| !watched.contains(port)) {
            self.programs.watch_port(*port, Watched::Sends)?;
        }
        self.ports.extend(watched);
        self.also_sending.extend(sending);
        Ok(())
    }

    fn remove_closed(&mut self, processes: &[u32]) -> Result<(), ProbeError> {
        let Some(open) = self.host.open_ports(processes, self.options.protocol) else { return Ok(()) };
        let is_closed = |port: &u16| !open.contains(port) && self.target != Target::Port(*port);
        let closed: Vec<u16> = self.ports.iter().chain(&self.also_sending).copied().filter(is_closed).collect();
        for port in closed {
            self.programs.watch_port(port, Watched::Nothing)?;
            self.ports.remove(&port);
            self.also_sending.remove(&port);
        }
        Ok(())
    }
}

/// Returns the processes of a target now.
fn processes_of(host: &Host, target: Target, options: &ProbeOptions) -> Vec<u32> {
    match target {
        Target::Process(id) => host.process_tree(&[id]),
        // A port that nobody has yet is watched too.
        Target::Port(_) => host.find(target, options.protocol).map(|program| program.pids).unwrap_or_default(),
    }
}

#[expect(clippy::cast_sign_loss, reason = "the monotonic clock is not negative")]
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
