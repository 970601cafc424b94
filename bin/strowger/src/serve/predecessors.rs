//! Earlier processes of an upgrade, which still have transactions or connections.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use strowger_control::protocol::{Predecessor, Takeover};
use strowger_foundation::{ConnId, Timestamp};
use strowger_takeover::{PredecessorInfo, PredecessorState, Relay, RelayEnd, RelayFrame};
use strowger_worker::{MAX_PREDECESSORS, Predecessors, RelayInlet};

use super::Server;
use crate::text::count;

/// Time after the end of a process when contacts on its connections are looked for again: a REGISTER from it may have
/// waited for the store.
const SWEEP_AGAIN: Duration = Duration::from_secs(5);

/// The processes before this one that still have transactions or connections.
#[derive(Default)]
pub(super) struct EarlierProcesses {
    /// The oldest first.
    all: Vec<EarlierProcess>,
    /// The same, as the workers know them.
    known: Option<Arc<Predecessors>>,
    /// When contacts on connections of processes that are gone are looked for.
    sweep_at: Option<Instant>,
}

/// A process before this one.
struct EarlierProcess {
    process: u8,
    pid: u32,
    version: String,
    replaced_at: Timestamp,
    /// `None` while the relay is handed over.
    relay: Option<Relay>,
    /// The socket of a relay that has been stopped, in case that the handover fails.
    stopped: Option<RelayEnd>,
    report: Arc<Report>,
}

/// What the thread of a relay has heard of the process at the other end.
#[derive(Debug, Default)]
struct Report {
    transactions: AtomicU64,
    connections: AtomicU64,
    /// It has said that it ends.
    ends_in_order: AtomicBool,
    has_ended: AtomicBool,
}

impl EarlierProcesses {
    /// Returns whether there is room for one more.
    pub(super) const fn has_room(&self) -> bool {
        self.all.len() < MAX_PREDECESSORS
    }

    /// Returns the number of their transactions, as last reported.
    pub(super) fn transactions(&self) -> u64 {
        self.all.iter().map(|one| one.report.transactions.load(Ordering::Relaxed)).sum()
    }

    /// Makes all close their connections; returns how many processes there are.
    pub(super) fn close_connections(&self) -> usize {
        for relay in self.all.iter().filter_map(|one| one.relay.as_ref()) {
            relay.link().send(&RelayFrame::CloseConnections);
        }
        self.all.len()
    }

    /// Looks soon for contacts on connections of processes that are gone.
    pub(super) fn sweep_soon(&mut self) {
        self.sweep_at = Some(Instant::now());
    }

    /// Forgets all, since another process has the relays.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Says to all that this process ends in order.
    pub(super) fn end(self) {
        for relay in self.all.into_iter().filter_map(|one| one.relay) {
            relay.link().send(&RelayFrame::Ended);
        }
    }

    /// Stops the relays, and returns what the next process gets. Keys are in none: [`keys_of`](Self::keys_of) has them.
    pub(super) fn stop_relays(&mut self) -> Vec<PredecessorState> {
        let mut states = Vec::new();
        for one in &mut self.all {
            let Some(Ok(relay)) = one.relay.take().map(Relay::stop) else { continue };
            if one.report.ends_in_order.load(Ordering::Acquire) {
                // The next process would hear only that the relay has ended.
                one.report.has_ended.store(true, Ordering::Release);
                continue;
            }
            let copy = relay.as_fd().try_clone_to_owned().map(RelayEnd::from_descriptor);
            one.stopped = copy.ok();
            states.push(PredecessorState { process: one.process, info: one.info(), relay, keys: Vec::new() });
        }
        states
    }

    /// Returns the keys of the transactions of a process.
    pub(super) fn keys_of(&self, process: u8) -> impl Iterator<Item = u64> {
        self.known.iter().flat_map(move |known| known.keys_of(process))
    }

    /// Returns whether no process has this number any more.
    fn is_gone(&self, process: u8) -> bool {
        self.all.iter().all(|one| one.process != process)
    }

    /// Removes those that have ended, and returns them.
    fn remove_ended(&mut self) -> Vec<EarlierProcess> {
        self.all.extract_if(.., |one| one.report.has_ended.load(Ordering::Acquire)).collect()
    }
}

impl EarlierProcess {
    fn info(&self) -> PredecessorInfo {
        PredecessorInfo {
            pid: self.pid,
            version: self.version.clone(),
            replaced_at: self.replaced_at.as_nanos(),
            transactions: self.report.transactions.load(Ordering::Relaxed),
            connections: self.report.connections.load(Ordering::Relaxed),
        }
    }

    fn shown(&self, now: Timestamp) -> Predecessor {
        let PredecessorInfo { pid, version, transactions, connections, .. } = self.info();
        let replaced_s = (now.saturating_since(self.replaced_at).as_secs_f64() * 1000.0).round() / 1000.0;
        Predecessor { process: self.process, pid, version, replaced_s, transactions, connections }
    }

    /// Logs its end. `left` others are there.
    fn log_end(&self, left: usize) {
        let PredecessorInfo { pid, version, transactions, connections, .. } = self.info();
        if self.report.ends_in_order.load(Ordering::Acquire) {
            return tracing::info!("process {pid} of version {version}, an earlier one, has ended; {left} left");
        }
        tracing::warn!(
            "process {pid} of version {version}, an earlier one, has died: its {} and {}, as last reported, are lost, and \
             their phones must connect again; see the system's log for the cause; {left} left",
            count(transactions, "transaction"),
            count(connections, "connection")
        );
    }
}

impl Server {
    /// Starts the relays to earlier processes again, after a handover that has failed.
    pub(super) fn restart_relays(&mut self) {
        let stopped = |one: &mut EarlierProcess| Some((one.process, one.info(), one.stopped.take()?));
        let stopped: Vec<_> = self.chain.predecessors.all.iter_mut().filter_map(stopped).collect();
        if stopped.is_empty() {
            return;
        }
        let mut known = Predecessors::default();
        for (process, info, relay) in stopped {
            let keys = self.chain.predecessors.keys_of(process).collect();
            self.add_predecessor(PredecessorState { process, info, relay, keys }, &mut known);
        }
        self.set_predecessors(known);
    }

    /// Starts the relay to an earlier process, and adds it to those that the workers know.
    pub(super) fn add_predecessor(&mut self, state: PredecessorState, known: &mut Predecessors) {
        let PredecessorState { process, info, relay: end, keys } = state;
        let PredecessorInfo { pid, version, replaced_at, transactions, connections } = info;
        let report = Arc::new(Report {
            transactions: transactions.into(),
            connections: connections.into(),
            ..Report::default()
        });
        let (reported, ended) = (Arc::clone(&report), Arc::clone(&report));
        let inlet = self.fleet.relay_inlet();
        let on_frame = move |frame: RelayFrame<'_>| match frame {
            RelayFrame::Message(kind, message) => inlet.pass(kind, message),
            RelayFrame::CloseConnections | RelayFrame::Serves { .. } => {}
            RelayFrame::Call(state) => import_call(&inlet, state),
            RelayFrame::Remaining { transactions, connections } => {
                reported.transactions.store(transactions, Ordering::Relaxed);
                reported.connections.store(connections, Ordering::Relaxed);
            }
            RelayFrame::Ended => reported.ends_in_order.store(true, Ordering::Release),
        };
        let on_end = move || ended.has_ended.store(true, Ordering::Release);
        let relay = match Relay::start(end, on_frame, on_end) {
            Ok(relay) => relay,
            Err(error) => {
                return tracing::error!("process {pid} gets nothing for its transactions, which time out: {error}");
            }
        };
        relay.link().send(&RelayFrame::Serves { pid: std::process::id() });
        known.add(strowger_worker::Predecessor { process, link: Arc::new(relay.link()) }, keys.into_iter());
        let replaced_at = Timestamp::from_nanos(replaced_at);
        let one = EarlierProcess { process, pid, version, replaced_at, relay: Some(relay), stopped: None, report };
        self.chain.predecessors.all.retain(|other| other.process != process);
        self.chain.predecessors.all.push(one);
    }

    /// Makes the workers know the earlier processes.
    pub(super) fn set_predecessors(&mut self, known: Predecessors) {
        let known = (!known.is_empty()).then(|| Arc::new(known));
        self.chain.predecessors.known.clone_from(&known);
        if !self.fleet.set_predecessors(known.as_ref()) {
            tracing::warn!("a worker does not know which transactions earlier processes have: it is stalled");
        }
    }

    /// Returns how this process has replaced an earlier one.
    pub(super) fn takeover_status(&self) -> Option<Takeover> {
        let now = self.clock.now();
        let predecessors = self.chain.predecessors.all.iter().map(|one| one.shown(now)).collect();
        self.chain.takeover.clone().map(|takeover| Takeover { predecessors, ..takeover })
    }

    /// Forgets earlier processes that have ended, and the contacts on their connections.
    pub(super) fn follow_predecessors(&mut self) {
        let ended = self.chain.predecessors.remove_ended();
        if !ended.is_empty() {
            let mut known = self.chain.predecessors.known.as_deref().cloned().unwrap_or_default();
            ended.iter().for_each(|one| known.remove(one.process));
            self.set_predecessors(known);
            ended.iter().for_each(|one| one.log_end(self.chain.predecessors.all.len()));
            self.remove_stranded_contacts();
            self.chain.predecessors.sweep_at = Some(Instant::now() + SWEEP_AGAIN);
        } else if self.chain.predecessors.sweep_at.is_some_and(|at| Instant::now() >= at) {
            self.chain.predecessors.sweep_at = None;
            self.remove_stranded_contacts();
        }
    }

    /// Removes the contacts on connections of processes that are gone, as those on any closed connection.
    fn remove_stranded_contacts(&self) {
        let own_member = self.cluster.member_info().map(|info| info.number);
        let mut gone: Vec<(ConnId, SocketAddr)> = Vec::new();
        for stripe in 0..self.fleet.locations().shards() {
            self.fleet.locations().for_each_in_stripe(self.clock.now(), stripe, |binding| {
                let is_own = binding.member.is_none_or(|member| Some(member.get()) == own_member);
                // A flow that may be opened anew needs no connection.
                let bound = binding.flow.connection.filter(|_| is_own && !binding.flow.reopen);
                let is_gone =
                    |id: &ConnId| id.process() != self.chain.process && self.chain.predecessors.is_gone(id.process());
                gone.extend(bound.filter(is_gone).map(|id| (id, binding.flow.peer)));
            });
        }
        if gone.is_empty() {
            return;
        }
        gone.sort_unstable_by_key(|(id, _)| *id);
        gone.dedup_by_key(|(id, _)| *id);
        tracing::info!(
            "registrations: removing the contacts on {} of processes that have ended",
            count(gone.len() as u64, "connection")
        );
        self.fleet.relay_inlet().close_connections_of_others(&gone);
    }
}

/// Takes over a call that an earlier process has set up.
fn import_call(inlet: &RelayInlet, state: &[u8]) {
    let why = match inlet.import_call(state) {
        Some(Ok(imported)) if imported.refused == 0 => return,
        Some(Ok(_)) => "there is no room for it".to_owned(),
        Some(Err(error)) => error.to_string(),
        None => "its worker is stalled".to_owned(),
    };
    tracing::error!("a call of an earlier process is not tracked, and its call record will be missing: {why}");
}
