//! The event loop of one core: wait, receive, run shards, send.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use mio::{Events, Poll, Token};
use strowger_foundation::Timestamp;
use strowger_net::{Clock, RecvBatch};

use crate::affinity;
use crate::handover::HANDOVER_QUEUE;
use crate::ingress::{Ingress, STALL_THRESHOLD};
use crate::options::WorkerOptions;
use crate::rebalance::{Decision, Report};
use crate::shard_factory::ShardFactory;
use crate::shard_host::ShardHost;
use crate::spin::Spinner;
use crate::wake_timer::WakeTimer;
use crate::worker_handle::{SnapshotUpdate, WorkerHandle, WorkerUpdate};

/// Maximum age of the published status while there are changes.
const STATUS_EVERY: Duration = Duration::from_millis(100);

/// Maximum sleep while nothing would wake the worker: it waits for room in another worker's ring, or for a socket
/// without kernel events.
const MAX_UNWOKEN_SLEEP: Duration = Duration::from_millis(1);

/// Weight of the latest interval in the reported load. Single intervals of 100 ms vary too much.
const NEWS: f64 = 0.4;

/// Maximum messages taken from one other worker before the sockets are read again.
const TAKE_BATCH: usize = 64;

/// Maximum number of consecutive rounds for which timers are deferred.
const MAX_DEFERRED_ROUNDS: u32 = 256;

/// Timer granularity. Timers fire together, up to this late: under load, hundreds per second would each wake a
/// worker. No SIP timer needs more precision; the shortest, T1, is 500 ms.
pub const TIMER_TICK: Duration = Duration::from_millis(4);

/// One poll in this many is a full poll of the kernel; the others check only the hot socket and the rings from other
/// workers. Without the full polls, a busy hot socket would starve everything else.
pub(crate) const FULL_POLL_EVERY: u32 = 8;

/// Token of the timer that ends a sleep.
const TIMER_TOKEN: Token = Token(usize::MAX - 1);

/// Token of the waker. Sockets use the index of their listener, those for new work plus [`FIRST_NEW_WORK`].
pub(crate) const WAKER_TOKEN: Token = Token(usize::MAX);
pub(crate) const FIRST_NEW_WORK: usize = 1 << 31;

/// One worker.
pub(crate) struct Worker<M: ShardFactory> {
    poll: Poll,
    clock: Clock,
    recv_batch: RecvBatch,
    handle: Arc<WorkerHandle>,
    pub(crate) ingress: Ingress<M>,
    /// When the status was last published.
    status_published: Timestamp,
    /// Whether anything has changed since.
    is_dirty: bool,
    /// Consecutive rounds in which timers were deferred.
    deferred_rounds: u32,
    spinner: Spinner,
    timer: WakeTimer,
    /// Polls since the last full poll.
    looks: u32,
    /// Start of the current wait, or of the one before this round.
    idle_since: Option<Timestamp>,
    meter: Meter,
    report: Report,
}

/// Measures the share of time a worker spends working.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    /// Start of the measurement.
    since: Timestamp,
    /// When it last began to work.
    woke: Timestamp,
    busy: Duration,
}

impl Meter {
    /// Ends a period of work and returns its length.
    fn rest(&mut self, now: Timestamp) -> Duration {
        let worked = now.max(self.woke) - self.woke;
        self.busy += worked;
        self.woke = now;
        worked
    }

    fn wake(&mut self, now: Timestamp) {
        self.woke = now;
    }

    /// Returns the share since the last call.
    fn take(&mut self, now: Timestamp) -> f64 {
        self.rest(now);
        let (busy, all) = (std::mem::take(&mut self.busy), now.max(self.since) - self.since);
        self.since = now;
        if all.is_zero() { 0.0 } else { (busy.as_secs_f64() / all.as_secs_f64()).min(1.0) }
    }
}

impl<M: ShardFactory> Worker<M> {
    /// Creates a worker that is not running.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub(crate) fn new(poll: Poll, clock: Clock, desk: ShardHost<M>, options: &WorkerOptions) -> io::Result<Self> {
        let timer = WakeTimer::new(poll.registry(), TIMER_TOKEN)?;
        let contact = Arc::clone(&desk.io.handle);
        let report = Report::of(desk.io.shards());
        let (inbox, crew, spinner) = (RecvBatch::new(), Ingress::new(desk), Spinner::new(options.spin));
        let (posted, is_dirty, idle_since) = (Timestamp::ZERO, true, None);
        let (meter, looks) = (Meter::default(), 0);
        Ok(Self {
            poll,
            clock,
            recv_batch: inbox,
            handle: contact,
            ingress: crew,
            status_published: posted,
            is_dirty,
            deferred_rounds: 0,
            spinner,
            timer,
            looks,
            idle_since,
            meter,
            report,
        })
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// When polling the kernel fails, from which the loop cannot recover.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        // Publish before the first message, so that whoever gets a response finds the shards in the status.
        self.publish_status(self.clock.now());
        while !self.handle.is_stopping.load(Ordering::Acquire) {
            self.wait(&mut events)?;
            self.handle_events(&events);
            self.round();
        }
        let now = self.clock.now();
        // Other workers may have handed over final output for connections of this worker.
        self.ingress.receive_handover(now, HANDOVER_QUEUE);
        self.ingress.host.io.flush(now);
        self.ingress.host.io.submit_records();
        self.ingress.host.io.wake_workers(now, false);
        self.publish_status(now);
        Ok(())
    }

    /// Waits for work; returns at once if there is any.
    pub(crate) fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        if self.ingress.has_work() {
            return self.poll_events(events, Some(Duration::ZERO));
        }
        // Wake other workers only when there is nothing more to hand over.
        if self.ingress.host.io.has_pending_wakes() {
            self.looks += 1;
            if self.looks < FULL_POLL_EVERY && self.ingress.try_hot(&self.clock, &mut self.recv_batch) {
                events.clear();
                return Ok(());
            }
            self.ingress.host.io.wake_workers(self.clock.now(), false);
        }
        let began = self.clock.now();
        self.spinner.on_worked(self.meter.rest(began));
        self.idle_since = Some(began);
        let next = self.next_deadline(began);
        if self.wait_awake(events, began, next)? {
            return Ok(());
        }
        self.handle.waker.mark_parked();
        let timeout = if self.has_pending() {
            Some(Duration::ZERO)
        } else if !self.ingress.wait_for_hot() {
            Some(MAX_UNWOKEN_SLEEP)
        } else {
            self.timer.arm(self.clock.now(), next)
        };
        let outcome = self.poll_events(events, timeout);
        self.handle.waker.mark_awake();
        self.meter.wake(self.clock.now());
        outcome
    }

    /// Spins if messages usually come so soon that a wake-up would cost more; returns whether there is work.
    fn wait_awake(&mut self, events: &mut Events, began: Timestamp, next: Timestamp) -> io::Result<bool> {
        events.clear();
        let limit = self.spinner.limit(!self.ingress.host.slots.is_empty());
        // Whoever reads nothing leaves the core to the process that does.
        if limit.is_zero() || self.ingress.host.io.is_frozen {
            return Ok(false);
        }
        let until = (began + limit).min(next);
        let mut now = began;
        while now < until {
            self.meter.wake(now);
            self.looks += 1;
            if self.looks >= FULL_POLL_EVERY {
                self.poll_events(events, Some(Duration::ZERO))?;
                if !events.is_empty() || self.ingress.has_delivery_failures() {
                    return Ok(true);
                }
            }
            if self.has_pending() || self.ingress.try_hot(&self.clock, &mut self.recv_batch) {
                return Ok(true);
            }
            now = self.clock.now();
        }
        self.spinner.on_missed(now - began);
        if now < next {
            return Ok(false);
        }
        // A timer is due, so there is no time to sleep.
        self.poll_events(events, Some(Duration::ZERO))?;
        Ok(true)
    }

    /// Polls the kernel for events.
    fn poll_events(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        self.looks = 0;
        let outcome = self.poll.poll(events, timeout);
        self.ingress.poll_hot();
        match outcome {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns whether another thread has left work.
    fn has_pending(&self) -> bool {
        !self.ingress.is_handover_empty() || self.handle.has_pending()
    }

    /// Returns until when there is nothing to do unless something arrives.
    fn next_deadline(&self, now: Timestamp) -> Timestamp {
        let status = if self.is_dirty { self.status_published + STATUS_EVERY } else { Timestamp::MAX };
        let exits = &self.ingress.host.io;
        let retry = exits.next_retry();
        let overload = self.ingress.host.admission.next_deadline();
        let crowded = if exits.has_overflow() { now + MAX_UNWOKEN_SLEEP } else { Timestamp::MAX };
        self.next_timer().min(status).min(retry).min(crowded).min(overload)
    }

    /// Returns the first tick at which a timer must be handled.
    fn next_timer(&self) -> Timestamp {
        let at = self.ingress.host.latest_wakeup().min(self.ingress.host.io.streams.next_deadline());
        next_tick(at)
    }

    /// Handles kernel events.
    pub(crate) fn handle_events(&mut self, events: &Events) {
        for event in events {
            if event.token() == WAKER_TOKEN {
                self.fetch_snapshot();
            } else if event.token() == TIMER_TOKEN {
                self.timer.on_fired();
            } else if !self.ingress.host.io.streams.on_event(event)
                && let Token(token) = event.token()
            {
                let exits = &mut self.ingress.host.io;
                if let Some(port) = exits.sockets.get_mut(token) {
                    port.on_event(event);
                } else if let Some(Some(queue)) = exits.new_work.get_mut(token.wrapping_sub(FIRST_NEW_WORK)) {
                    queue.socket.on_event(event);
                }
            }
        }
    }

    fn fetch_snapshot(&mut self) {
        let update = self.handle.snapshot_update.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(SnapshotUpdate { snapshot, version }) = update {
            let now = self.clock.now();
            self.ingress.host.handle_config(now, &snapshot, version);
            self.publish_status(now);
        }
    }

    /// Runs one round: a batch from each readable socket, some messages of each connection and of each other worker,
    /// and timers.
    pub(crate) fn round(&mut self) {
        let Self {
            clock, recv_batch: inbox, ingress: crew, handle: contact, is_dirty, deferred_rounds: put_off, ..
        } = self;
        // Between rounds, everything that was counted has also been sent.
        if contact.take_arrival_flag() {
            crew.host.adopt_shards(clock.now(), publish_host_status);
            *is_dirty = true;
        }
        let began = crew.read_at();
        for listener in 0..crew.host.io.sockets.len() {
            *is_dirty |= crew.receive(listener, clock, inbox);
        }
        // Reuse the clock reading of the batch: reading the clock is expensive if a round is a single packet.
        let now = if crew.read_at() > began { crew.read_at() } else { clock.now() };
        *is_dirty |= crew.read_streams(now);
        // Messages handed over before a connection was closed must be handled before the closure. So take the mailbox
        // first, then drain the rings, then handle the mailbox.
        let mut post = contact.take_mailbox();
        let updates = post.as_mut().map(|post| std::mem::take(&mut post.updates)).unwrap_or_default();
        *is_dirty |= crew.receive_handover(now, if post.is_some() { HANDOVER_QUEUE } else { TAKE_BATCH });
        if let Some(post) = post {
            crew.handle_mailbox(now, post);
            *is_dirty = true;
        }
        crew.host.ask_wakeups(now);
        // After a stall of the thread or the machine, read what arrived in the meantime before timers declare any
        // peer silent. Not forever, if more arrives than can be read.
        let is_late = now.saturating_since(crew.host.latest_wakeup()) > STALL_THRESHOLD;
        let is_put_off = is_late && (*put_off == 0 || crew.is_catching_up(now)) && *put_off < MAX_DEFERRED_ROUNDS;
        *put_off = if is_put_off { *put_off + 1 } else { 0 };
        if is_put_off {
            // The kernel may not have reported it yet.
            crew.mark_all_readable();
        }
        if !is_put_off && next_tick(crew.host.next_wakeup()) <= now {
            crew.host.handle_timeout(now);
            *is_dirty = true;
        }
        if next_tick(crew.host.io.streams.next_deadline()) <= now {
            crew.host.io.streams.handle_timeout(now);
            *is_dirty = true;
        }
        crew.host.io.flush(now);
        if crew.has_delivery_failures() {
            crew.handle_delivery_failures(now);
            crew.host.io.flush(now);
            *is_dirty = true;
        }
        crew.host.io.submit_records();
        crew.host.adjust_admission(now);
        crew.host.release_shards(now, publish_host_status);
        crew.host.ask_wakeups(now);
        crew.host.io.wake_workers(now, true);
        if !updates.is_empty() {
            self.apply(now, updates);
        }
        let first = self.ingress.take_first_arrival();
        // Includes what was received while spinning.
        self.is_dirty |= first.is_some();
        if let Some(since) = self.idle_since.take() {
            self.spinner.on_waited(first.map_or(Duration::MAX, |first| first.max(since) - since));
        }
        if self.is_dirty && now - self.status_published >= STATUS_EVERY {
            let load = self.meter.take(now);
            self.ingress.host.load += (load - self.ingress.host.load) * NEWS;
            self.publish_status(now);
            self.balance(now);
        }
    }

    /// Carries out changes of sockets and settings.
    #[cold]
    fn apply(&mut self, now: Timestamp, updates: Vec<WorkerUpdate>) {
        for WorkerUpdate { sockets, settings, predecessors, done } in updates {
            let host = &mut self.ingress.host;
            if let Some(predecessors) = predecessors {
                host.io.predecessors = predecessors;
            }
            sockets.into_iter().for_each(|update| host.io.update_socket(now, update));
            let mut balance = host.shared.balance.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(settings) = settings {
                host.io.streams.set_limits(now, settings.streams);
                self.spinner = Spinner::new(settings.spin);
                host.io.steering = settings.steering;
                balance.set_least(settings.min_workers, host.io.others() + 1);
                affinity::pin(host.io.index, &settings.cores, &settings.usable_cores);
            }
            // Another worker may have chosen the receivers before it had these sockets.
            host.io.receive_at(balance.active());
            drop(balance);
            // The control plane may have given up waiting.
            let _ = done.try_send(());
        }
        self.is_dirty = true;
    }

    /// Publishes the status.
    pub(crate) fn publish_status(&mut self, now: Timestamp) {
        publish_host_status(&mut self.ingress.host, now);
        self.status_published = now;
        self.is_dirty = false;
    }

    /// Reports the load and starts a migration if one is due.
    fn balance(&mut self, now: Timestamp) {
        let desk = &mut self.ingress.host;
        if desk.io.others() == 0 || desk.io.is_frozen {
            return;
        }
        (self.report.at, self.report.busy) = (now, desk.load);
        desk.take_loads(&mut self.report.loads);
        let common = Arc::clone(&desk.shared);
        // Another worker is deciding; this report is included next time.
        let Ok(mut balance) = common.balance.try_lock() else { return };
        balance.report(desk.io.index, &mut self.report);
        // A draining server waits for its shards to become idle and must not miss any in transit.
        if desk.snapshot.is_draining {
            return;
        }
        let Some(Decision { plan, active }) = balance.decide(now) else { return };
        // No further decision is made until the plan has been carried out, so this cannot be overtaken by a later
        // change.
        drop(balance);
        desk.io.receive_at(active);
        // Workers that lose shards are notified before any other worker acts on the plan.
        let givers = plan.sources();
        let others = (0..=desk.io.others()).filter(|worker| !givers.contains(worker));
        let _turn = desk.io.handle.lock_broadcast();
        for worker in givers.iter().copied().chain(others) {
            desk.io.handle_of(worker).into_iter().for_each(|contact| contact.notify_plan(&plan));
        }
    }
}

fn publish_host_status<M: ShardFactory>(desk: &mut ShardHost<M>, now: Timestamp) {
    let status = desk.status(now);
    desk.io.handle.status.publish(now, status);
}

/// Returns the first tick at or after `at`.
fn next_tick(at: Timestamp) -> Timestamp {
    let tick = u64::try_from(TIMER_TICK.as_nanos()).unwrap_or(1);
    at.as_nanos().checked_next_multiple_of(tick).map_or(Timestamp::MAX, Timestamp::from_nanos)
}
