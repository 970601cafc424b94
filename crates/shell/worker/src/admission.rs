//! Admission of new work by a worker: its overload controller, and the kernel queues and filters that follow it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::{ConnId, Flow, Timestamp};
use strowger_message::{Kind, Peek};
use strowger_net::PacketFilter;
use strowger_overload::{
    ConnectionLimit, Controller, ControllerStatus, FilterAbilities, FilteredKind, OfferedRequest, Queue, Verdict,
    WINDOW, fingerprint, kind_of, may_be_dropped_unread, position, queue_of,
};
use strowger_shard::{Classification, Snapshot, SteeringResult, begins_work, may_begin_work};

use crate::kernel_filter::{KernelFilter, Rules, SharedMemory};
use crate::new_work_queue::NewWorkQueue;
use crate::shard_factory::ShardFactory;
use crate::shard_host::ShardHost;
use crate::status::OverloadStatus;

/// Queue in which messages waited. Waits are tracked separately, because one queue may be short while another is
/// long.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitQueue {
    /// All connections.
    Streams,
    /// The rings from other workers.
    OtherWorkers,
    /// The socket of a listener.
    Listener(usize),
}

impl WaitQueue {
    const fn number(self) -> usize {
        match self {
            Self::Streams => 0,
            Self::OtherWorkers => 1,
            Self::Listener(listener) => 2 + listener,
        }
    }
}

/// New work received on connections since the last control window.
#[derive(Clone, Copy, Debug, Default)]
struct StreamLoad {
    read: u32,
    /// Number of messages refused or dropped.
    shed: u32,
    /// Shortest wait of any message; `None` if there was none.
    wait: Option<Duration>,
    /// Share of messages shed, smoothed.
    share: f64,
}

impl StreamLoad {
    /// Weight of a window in the smoothed share.
    const NEWS: f64 = 0.3;

    fn note_wait(&mut self, wait: Duration) {
        self.wait = Some(self.wait.map_or(wait, |shortest| shortest.min(wait)));
    }

    const fn count(&mut self, is_shed: bool) {
        self.read = self.read.saturating_add(1);
        self.shed = self.shed.saturating_add(is_shed as u32);
    }

    /// Ends a window; returns the share shed and the wait.
    fn take(&mut self) -> (f64, Duration) {
        let share = if self.read == 0 { 0.0 } else { f64::from(self.shed) / f64::from(self.read) };
        let wait = self.wait.unwrap_or_default();
        *self = Self { share: self.share + (share - self.share) * Self::NEWS, ..Self::default() };
        (self.share, wait)
    }
}

/// Minimum time between logging an overload and logging its end.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// A worker's overload control.
#[derive(Debug)]
pub(crate) struct Admission {
    is_enabled: bool,
    /// Queue in which the current messages waited.
    queue: WaitQueue,
    controller: Controller,
    salt: u32,
    kernel: KernelFilter,
    connections: ConnectionLimit,
    streams: StreamLoad,
    /// Whether reading is paused on any connection.
    has_unread: bool,
    /// When the queues are adjusted next.
    next_look: Timestamp,
    /// Time at which the current overload was logged.
    overload_logged_at: Option<Timestamp>,
}

impl Admission {
    pub(crate) fn new(worker: usize, seed: u64, is_enabled: bool, memory: Arc<SharedMemory>) -> Self {
        // The same for all workers, since a retransmission may arrive at another worker than its original.
        let salt = u32::try_from(seed >> 32).unwrap_or(0);
        Self {
            is_enabled,
            queue: WaitQueue::Streams,
            controller: Controller::new(seed, is_enabled),
            salt,
            kernel: KernelFilter::new(worker, memory),
            connections: ConnectionLimit::new(seed),
            streams: StreamLoad::default(),
            has_unread: false,
            next_look: Timestamp::ZERO,
            overload_logged_at: None,
        }
    }

    pub(crate) fn pressure(&self) -> ControllerStatus {
        self.controller.pressure()
    }

    /// Returns whether overload control is enabled.
    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Returns whether requests are being refused.
    pub(crate) fn is_limiting(&self) -> bool {
        self.controller.is_limiting()
    }

    /// Returns whether the kernel drops what the controller does not admit.
    pub(crate) fn is_filtered_by_kernel(&self) -> bool {
        self.kernel.is_filtering()
    }

    /// Returns when the controller must be called next, even without traffic: a filter must not outlast its cause.
    pub(crate) fn next_deadline(&self) -> Timestamp {
        let is_watched = self.is_limiting() || self.has_unread;
        let window_ends = if is_watched { self.controller.window_ends().max(self.next_look) } else { Timestamp::MAX };
        window_ends.min(self.kernel.next_deadline().max(self.next_look))
    }

    /// Returns whether a connection may be read for new work.
    pub(crate) fn may_read(&self, connection: ConnId) -> bool {
        self.connections.should_read(connection)
    }

    /// Sets the queue in which the following messages waited.
    pub(crate) const fn set_wait_queue(&mut self, queue: WaitQueue) {
        self.queue = queue;
    }

    /// Returns whether a message is dropped unparsed: new work that the filter does not pass. The kernel's filter
    /// passes messages it cannot classify.
    pub(crate) fn filters_out(&self, message: &[u8], kind: impl FnOnce() -> FilteredKind) -> bool {
        if self.controller.filter().is_open() || queue_of(message) == Queue::InProgress {
            return false;
        }
        !self.controller.passes(kind(), position(message, self.salt)) && may_be_dropped_unread(message)
    }

    /// Simulates new work that waited too long.
    #[cfg(test)]
    pub(crate) fn begin_limiting(&mut self) {
        let wait = Duration::from_millis(200);
        for number in 0..10 {
            self.controller.record_wait(Timestamp::ZERO + WINDOW * number, 0, wait);
        }
        assert!(self.is_limiting());
    }

    /// Simulates far too much new work on many connections.
    #[cfg(test)]
    pub(crate) fn limit_connections(&mut self) {
        (0..100).for_each(|_| self.connections.handle_window(0.98, Duration::ZERO, 1_000));
    }

    /// Records that new work on connections is still waiting, and for how long.
    pub(crate) fn note_waiting(&mut self, now: Timestamp, wait: Duration) {
        self.streams.note_wait(wait);
        self.controller.record_wait(now, WaitQueue::Streams.number(), wait);
    }

    /// Records how long a message waited, if it is new work.
    fn note_wait(&mut self, now: Timestamp, wait: Duration, message: &[u8]) {
        if queue_of(message) == Queue::NewWork {
            if matches!(self.queue, WaitQueue::Streams) {
                self.streams.note_wait(wait);
            }
            self.controller.record_wait(now, self.queue.number(), wait);
        }
    }

    /// Decides what to do with a parsed message; `classify` returns its classification.
    fn decide(
        &mut self,
        now: Timestamp,
        wait: Duration,
        (bytes, flow): (&[u8], &Flow),
        classify: impl FnOnce() -> Classification,
    ) -> Verdict {
        let Self { controller, kernel, streams, salt, .. } = self;
        let is_reliable = flow.transport.is_reliable();
        let verdict = controller.handle_request(now, wait, || {
            let Classification { class, kind, is_unlimited, is_proven } = classify();
            let source = (!is_unlimited).then_some(flow.peer.ip());
            OfferedRequest { class, kind, position: position(bytes, *salt), source, is_proven, is_reliable }
        });
        if is_reliable {
            streams.count(verdict != Verdict::Admit);
        } else if verdict != Verdict::Admit {
            kernel.remember(|| fingerprint(bytes, *salt));
        }
        verdict
    }

    /// Logs the start and the end of an overload, at most once per [`LOG_INTERVAL`].
    fn log_overload(&mut self, now: Timestamp) {
        match self.overload_logged_at {
            None if self.is_limiting() => {
                let wait_ms = self.pressure().wait.as_millis();
                tracing::warn!(
                    "overload: new requests wait {wait_ms} ms, so some are refused; see strowger ctl status"
                );
                self.overload_logged_at = Some(now);
            }
            Some(since) if !self.is_limiting() && now >= since + LOG_INTERVAL => {
                let lasted = now.saturating_since(since).as_secs();
                tracing::info!("overload: ended after {lasted} s");
                self.overload_logged_at = None;
            }
            _ => {}
        }
    }

    /// Adjusts the kernel's queues and filters to the controller; returns whether it was due.
    pub(crate) fn adjust(
        &mut self,
        now: Timestamp,
        queues: &mut [Option<NewWorkQueue>],
        (connections, is_sorted): (usize, bool),
        (snapshot, version): (&Snapshot, u64),
    ) -> bool {
        if now < self.next_look {
            return false;
        }
        self.next_look = now + WINDOW;
        self.controller.handle_timeout(now);
        self.log_overload(now);
        let (salt, is_limiting) = (self.salt, self.is_limiting());
        let rules = |filter| PacketFilter { filter, salt, trusted: snapshot.trusted_networks() };
        self.kernel.update(now, *self.controller.filter(), Rules { queues, version, is_limiting, rules: &rules });
        // Messages on connections are not retransmitted, so none need to be remembered.
        self.controller.set_filter_abilities(if is_sorted {
            self.kernel.abilities()
        } else {
            FilterAbilities::default()
        });
        let (shed, wait) = self.streams.take();
        let (shed, wait) = if self.is_limiting() { (shed, wait) } else { (0.0, Duration::ZERO) };
        self.connections.handle_window(shed, wait, connections);
        let bound = self.controller.queue_bound();
        queues.iter_mut().flatten().for_each(|queue| queue.bound(bound));
        true
    }
}

/// Whether a message begins new work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NewWork {
    /// A response, or part of work in progress.
    No,
    Yes,
    /// Claims to be within a dialog, from an unproven source.
    Unproven,
}

impl<M: ShardFactory> ShardHost<M> {
    /// Returns the decision of overload control on a message for one of this worker's shards.
    pub(crate) fn admit(
        &mut self,
        now: Timestamp,
        (arrival, flow): (Timestamp, &Flow),
        (peek, steered): (&Peek<'_>, &SteeringResult),
        bytes: &[u8],
    ) -> Verdict {
        let wait = now.saturating_since(arrival);
        self.admission.note_wait(now, wait, bytes);
        let begins_work = self.begins_work(peek, flow);
        if begins_work == NewWork::No {
            self.admission.controller.record_in_progress();
            return Verdict::Admit;
        }
        let Self { admission, shared: common, snapshot, .. } = self;
        let verdict = admission
            .decide(now, wait, (bytes, flow), || common.factory.classify(now, (peek, steered), flow, snapshot));
        let verdict = match verdict {
            // A refusal would end the dialog for its participants, if the dialog exists.
            Verdict::Refuse { .. } if begins_work == NewWork::Unproven => Verdict::Drop,
            verdict => verdict,
        };
        self.io.counters.shed += u64::from(verdict == Verdict::Drop);
        verdict
    }

    /// Returns whether a message may be refused. While the worker is limiting, a To tag from an unproven source is
    /// not trusted.
    fn begins_work(&self, peek: &Peek<'_>, flow: &Flow) -> NewWork {
        let Kind::Request(method) = peek.kind else { return NewWork::No };
        let is_known = |ip: IpAddr| self.shared.factory.is_known(ip, &self.snapshot);
        if begins_work(peek, method) {
            NewWork::Yes
        } else if self.admission.is_limiting() && may_begin_work(method) && !is_known(flow.peer.ip()) {
            NewWork::Unproven
        } else {
            NewWork::No
        }
    }

    /// Returns whether reading is paused on a connection that brings new work.
    pub(crate) fn should_pause(&self, connection: ConnId, peer: IpAddr) -> bool {
        !self.admission.may_read(connection) && !self.snapshot.trusts(peer)
    }

    /// Returns whether a message of a peer is dropped unparsed.
    pub(crate) fn filters_out(&self, peer: IpAddr, message: &[u8]) -> bool {
        self.admission.filters_out(message, || self.kind_from(peer, message))
    }

    /// Returns the kind of new work from a peer.
    fn kind_from(&self, peer: IpAddr, message: &[u8]) -> FilteredKind {
        match kind_of(message) {
            FilteredKind::Call if self.snapshot.trusts(peer) => FilteredKind::TrunkCall,
            FilteredKind::Call if self.shared.factory.is_known(peer, &self.snapshot) => FilteredKind::ProvenCall,
            kind => kind,
        }
    }

    /// Records a malformed datagram. In the new-work queue it uses capacity of new work.
    pub(crate) fn note_malformed(&mut self, now: Timestamp, (arrival, peer): (Timestamp, IpAddr), bytes: &[u8]) {
        self.admission.note_wait(now, now.saturating_since(arrival), bytes);
        if queue_of(bytes) == Queue::NewWork {
            let kind = self.kind_from(peer, bytes);
            self.admission.controller.record_malformed(now, kind);
        }
    }

    /// Returns whether a message on a connection is dropped unparsed, because of the filter or because it `is_stale`
    /// new work.
    pub(crate) fn filters_out_of_stream(&mut self, peer: IpAddr, is_stale: bool, message: &[u8]) -> bool {
        let is_old = || is_stale && queue_of(message) == Queue::NewWork && may_be_dropped_unread(message);
        let filters_out = is_old() || self.filters_out(peer, message);
        if filters_out {
            self.admission.streams.count(true);
        }
        filters_out
    }

    /// Returns whether messages of a peer may be dropped for having waited too long on its connection.
    pub(crate) fn may_be_stale(&self, peer: IpAddr) -> bool {
        !self.snapshot.trusts(peer)
    }

    /// Adjusts the kernel's queues and filters to the controller.
    pub(crate) fn adjust_admission(&mut self, now: Timestamp) {
        let Self { admission, io: exits, snapshot, version, shared: common, .. } = self;
        let load = (exits.streams.len(), exits.is_all_sorted());
        if admission.adjust(now, &mut exits.new_work, load, (snapshot, *version)) {
            admission.has_unread = exits.streams.resume_reading(|connection| admission.may_read(connection));
            common.factory.note_pressure(exits.index, &admission.pressure());
        }
    }

    pub(crate) fn overload_status(&self) -> OverloadStatus {
        let ControllerStatus { is_limiting, shed_permille, admitted_per_s, wait, .. } = self.admission.pressure();
        OverloadStatus {
            is_on: self.admission.is_enabled,
            limiting: usize::from(is_limiting),
            shed_permille,
            admitted_per_s: if is_limiting { admitted_per_s } else { 0 },
            wait,
            sorted_by_kernel: self.io.new_work.iter().flatten().count(),
            filtered_by_kernel: usize::from(self.admission.is_filtered_by_kernel()),
        }
    }
}
