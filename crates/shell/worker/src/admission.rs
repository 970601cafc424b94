//! Admission of new work by a worker: its overload controller, and the kernel queues and filters that follow it.

use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::{ConnId, Flow, Timestamp};
use strowger_net::PacketFilter;
use strowger_overload::{
    ConnectionLimit, Controller, ControllerStatus, FilterAbilities, FilteredKind, OfferedRequest, Queue, Verdict,
    WINDOW, fingerprint, may_be_dropped_unread, position, queue_of,
};
use strowger_shard::{Classification, Snapshot};

use crate::kernel_filter::{KernelFilter, Rules, SharedMemory};
use crate::new_work_queue::NewWorkQueue;

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

    /// Attaches kernel filters anew, because another process has detached them.
    pub(crate) fn forget_kernel_filter(&mut self) {
        self.kernel.forget();
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
                    "overload: new requests wait {wait_ms} ms, so some are refused; see `strowger ctl status`"
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
mod admit;
