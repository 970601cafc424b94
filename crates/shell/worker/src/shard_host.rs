//! Shards of one worker: inputs, outputs and replacement after a panic.

use std::any::Any;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};

use strowger_foundation::{Flow, ShardId, Timestamp};
use strowger_message::{Fault, PartialPeek, Peek};
use strowger_net as net;

use crate::admission::Admission;
use crate::calls::{Account, CallList, TimesByDestination};
use crate::datagram_socket::{DatagramSocket, DeliveryFailure};
use crate::listener_socket::ListenerSocket;
use crate::log_interval::LogInterval;
use crate::migration::{MigrationState, ShardMessage};
use crate::panics::{PanicLog, PanicReport};
use crate::rebalance::Rebalancer;
use crate::shard_factory::{ShardFactory, StateMachine};
use crate::status::{ShardTotals, WorkerStatus, add_net};
use crate::worker_io::WorkerIo;
use crate::worker_times::WorkerTimes;
use strowger_shard as shard;
use strowger_shard::{
    Event, ImportedState, Input, Inquiry, Output, Snapshot, StateError, SteeringResult, shard_of_state,
};

/// State shared by all shard hosts.
pub(crate) struct HostShared<M: ShardFactory> {
    pub(crate) factory: M,
    pub(crate) panics: Arc<PanicLog>,
    /// Shards in transit, by destination worker.
    pub(crate) arrivals: Vec<Mutex<Vec<ShardSlot<M::Shard>>>>,
    /// Contribution of shards in transit to the status.
    pub(crate) in_transit: Arc<Mutex<Vec<(ShardId, ShardTotals)>>>,
    pub(crate) balance: Mutex<Rebalancer>,
}

/// A shard and its next wake-up.
pub(crate) struct ShardSlot<B> {
    pub(crate) id: ShardId,
    /// Boxed because it is large: slots are scanned every round and move between workers.
    pub(crate) shard: Box<B>,
    /// Next wake-up; [`Timestamp::MAX`] if none. Stale while [`has_acted`](Self::has_acted) is set.
    wakeup: Timestamp,
    /// Until when the worker may sleep regardless.
    latest_wakeup: Timestamp,
    /// Whether it has acted since its next wake-up was last queried.
    pub(crate) has_acted: bool,
    /// Number of earlier shards with this id.
    life: u32,
    /// Version of its snapshot at the time it was released.
    pub(crate) version: u64,
    /// Recent inputs.
    pub(crate) inputs: u32,
}

const _: () = assert!(size_of::<ShardSlot<shard::Shard>>() <= 128);

impl<B: StateMachine> ShardSlot<B> {
    fn new(maker: &impl ShardFactory<Shard = B>, id: ShardId, life: u32, snapshot: &Arc<Snapshot>) -> Self {
        let machine = Box::new(maker.make(id, life, Arc::clone(snapshot)));
        let (wakeup, latest_wakeup) = wakeup_of(&*machine);
        Self { id, shard: machine, wakeup, latest_wakeup, has_acted: false, life, version: 0, inputs: 0 }
    }
}

/// The shards of one worker, and its sockets.
pub(crate) struct ShardHost<M: ShardFactory> {
    pub(crate) shared: Arc<HostShared<M>>,
    pub(crate) slots: Vec<ShardSlot<M::Shard>>,
    /// By shard: index in `slots` if the shard is here.
    pub(crate) slot_by_shard: Vec<Option<u16>>,
    /// Whether any of `slots` [has acted](ShardSlot::has_acted).
    pub(crate) has_acted: bool,
    pub(crate) migration: MigrationState,
    pub(crate) io: WorkerIo,
    pub(crate) admission: Admission,
    pub(crate) snapshot: Arc<Snapshot>,
    /// Version of the snapshot.
    pub(crate) version: u64,
    /// Recent share of time that the worker was busy.
    pub(crate) load: f64,
    events: SyncSender<Event>,
    /// Why the last message without an owner could not be parsed, if so.
    fault: Option<Fault>,
    malformed_log: LogInterval,
    /// Buffer that a shard swaps for its next message.
    message: Vec<u8>,
    /// Counters of shards that have been replaced.
    retired_counters: shard::Counters,
    /// Whether another process has taken over.
    is_handed_over: bool,
}

impl<M: ShardFactory> ShardHost<M> {
    pub(crate) fn new(
        common: Arc<HostShared<M>>,
        mut exits: WorkerIo,
        admission: Admission,
        snapshot: Arc<Snapshot>,
        events: SyncSender<Event>,
    ) -> Self {
        exits.streams.learn_trunks(&snapshot);
        let mut shard_slots = Vec::new();
        let mut places = Vec::new();
        for id in (0..exits.shards()).map(ShardId) {
            let is_here = exits.worker_of(id) == exits.index;
            places.push(if is_here { u16::try_from(shard_slots.len()).ok() } else { None });
            if is_here {
                shard_slots.push(ShardSlot::new(&common.factory, id, 0, &snapshot));
            }
        }
        let (message, buried, transit) = (Vec::new(), shard::Counters::default(), MigrationState::default());
        let (has_acted, version, load) = (false, 0, 0.0);
        Self {
            shared: common,
            slots: shard_slots,
            slot_by_shard: places,
            has_acted,
            migration: transit,
            io: exits,
            admission,
            snapshot,
            version,
            load,
            events,
            fault: None,
            malformed_log: LogInterval::default(),
            message,
            retired_counters: buried,
            is_handed_over: false,
        }
    }

    /// Returns the slot of a shard if it is here.
    pub(crate) fn slot_of(&self, id: ShardId) -> Option<usize> {
        self.slot_by_shard.get(usize::from(id.0)).copied().flatten().map(usize::from)
    }

    /// Finds the owner of a message and, if the owner is a shard of this worker, parses it into the empty `peek`.
    /// Malformed messages and those without an owner are dropped here.
    pub(crate) fn steer<'a>(
        &mut self,
        now: Timestamp,
        bytes: &'a [u8],
        peek: &mut Peek<'a>,
    ) -> Option<(ShardId, SteeringResult)> {
        let has_all = self.slots.len() == usize::from(self.io.shards());
        self.find(now, bytes, peek, !has_all)
    }

    /// Parses into the empty `peek` a message already steered by the worker that received it. The owner stays the
    /// same even if something has changed since, such as the proof of its address.
    pub(crate) fn read_steered<'a>(
        &mut self,
        now: Timestamp,
        bytes: &'a [u8],
        peek: &mut Peek<'a>,
    ) -> Option<SteeringResult> {
        self.find(now, bytes, peek, false).map(|(_, steered)| steered)
    }

    /// Finds the owner of a message and parses it. If it `may_leave`, a message of another worker is parsed only as
    /// far as needed to tell that it is one.
    #[inline(always)]
    fn find<'a>(
        &mut self,
        now: Timestamp,
        bytes: &'a [u8],
        peek: &mut Peek<'a>,
        may_leave: bool,
    ) -> Option<(ShardId, SteeringResult)> {
        let Self { shared: common, snapshot, io: exits, .. } = self;
        // Unwind safety: what was parsed is not used after a panic.
        let found = catch_unwind(AssertUnwindSafe(|| {
            let partial = if may_leave { PartialPeek::read(bytes) } else { None };
            let known = partial.map(|partial| common.factory.owner(&partial, snapshot));
            if let Some(Some((owner, _))) = &known
                && exits.worker_of(*owner) != exits.index
            {
                return Ok(known.flatten());
            }
            peek.fill(bytes)?;
            let mut owner = known.unwrap_or_else(|| common.factory.owner(&peek.to_partial(), snapshot));
            if let Some((_, steered)) = &mut owner {
                common.factory.complete(peek, steered);
            }
            Ok(owner)
        }));
        match found {
            Ok(Ok(Some(owner))) => return Some(owner),
            Ok(Ok(None)) => self.io.counters.foreign_responses += 1,
            Ok(Err(fault)) => {
                self.io.counters.malformed += 1;
                self.fault = Some(fault);
            }
            Err(payload) => self.on_panic(None, now, payload.as_ref(), bytes),
        }
        None
    }

    /// Lets the shards that are here prefetch state for their messages.
    pub(crate) fn prefetch<'p, 'a: 'p>(
        &mut self,
        now: Timestamp,
        messages: impl Iterator<Item = (&'p (ShardId, SteeringResult), &'p Peek<'a>, &'a [u8])>,
    ) {
        let mut last = None;
        // Unwind safety: the shard is dropped after a panic.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            for ((id, steered), peek, bytes) in messages {
                let Some(index) = self.slot_of(*id) else { continue };
                last = Some((index, bytes));
                if let Some(call_guard) = self.slots.get(index) {
                    call_guard.shard.prefetch(peek, steered);
                }
            }
        }));
        if let (Err(payload), Some((index, bytes))) = (outcome, last) {
            self.handle_shard_panic(index, now, payload.as_ref(), bytes);
        }
    }

    /// Runs `read` on `bytes` outside any shard; `None` if it panics.
    pub(crate) fn catch_panic<T>(&mut self, now: Timestamp, bytes: &[u8], read: impl FnOnce() -> T) -> Option<T> {
        // Unwind safety: what was parsed is not used after a panic, and its connection is closed.
        match catch_unwind(AssertUnwindSafe(read)) {
            Ok(read) => Some(read),
            Err(payload) => {
                self.on_panic(None, now, payload.as_ref(), bytes);
                None
            }
        }
    }

    /// Reports a datagram that is not SIP, a few per second.
    #[cold]
    pub(crate) fn report_malformed(&mut self, now: Timestamp, flow: &Flow, fault: Fault) {
        if self.malformed_log.begin(now).is_some() {
            let event = Event::Malformed { peer: flow.peer, transport: flow.transport, fault };
            self.io.counters.event_drops += u64::from(self.events.try_send(event).is_err());
        }
    }

    /// Returns why the last message without an owner could not be parsed; `None` if it could, or that panicked.
    #[cold]
    pub(crate) fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    /// Sends a datagram without involving a shard.
    pub(crate) fn answer(&mut self, flow: Flow, bytes: &[u8]) {
        self.message.clear();
        self.message.extend_from_slice(bytes);
        let (WorkerIo { sockets, timing, .. }, listener) = (&mut self.io, usize::from(flow.listener.0));
        if let Some(ListenerSocket::Udp(outlet)) = sockets.get_mut(listener) {
            timing.queue(listener, outlet, |outlet| outlet.send(flow.peer, &mut self.message, net::OrderingKey::ALL));
        }
    }

    /// Notifies every shard of unreachable peers. The kernel may report an error to any socket of an address,
    /// regardless of which one sent, so the shards of other workers are notified as well.
    pub(crate) fn handle_delivery_failures(&mut self, now: Timestamp) {
        loop {
            let Some(lost) = self.io.datagram_sockets_mut().find_map(DatagramSocket::poll_failure) else { break };
            match lost {
                DeliveryFailure::Unreachable(peer) => {
                    self.io.notify_unreachable(peer);
                    self.handle_unreachable(now, peer);
                }
                DeliveryFailure::Unsent(peer) => self.handle_unsent(now, peer),
            }
        }
    }

    /// Notifies every shard of this worker that a peer is unreachable.
    pub(crate) fn handle_unreachable(&mut self, now: Timestamp, peer: SocketAddr) {
        for call_guard in 0..self.slots.len() {
            self.run(call_guard, now, &[], |machine| machine.handle_input(now, Input::Unreachable { peer }));
        }
    }

    /// Notifies every shard of this worker that its messages to a peer were not sent.
    fn handle_unsent(&mut self, now: Timestamp, peer: SocketAddr) {
        for call_guard in 0..self.slots.len() {
            self.run(call_guard, now, &[], |machine| machine.handle_input(now, Input::SendFailed { peer }));
        }
    }

    /// Notifies a shard that a flow could not be reached.
    pub(crate) fn handle_unconnected(&mut self, now: Timestamp, id: ShardId, flow: Flow) {
        self.io.streams.counters.failure_notices += 1;
        self.send_to_shard(now, id, ShardMessage::FlowFailed(flow));
    }

    /// Passes the new snapshot to every shard.
    pub(crate) fn handle_config(&mut self, now: Timestamp, snapshot: &Arc<Snapshot>, version: u64) {
        self.snapshot = Arc::clone(snapshot);
        self.version = version;
        self.io.streams.learn_trunks(snapshot);
        for call_guard in 0..self.slots.len() {
            self.run(call_guard, now, &[], |machine| machine.handle_input(now, Input::Config(Arc::clone(snapshot))));
        }
    }

    /// Wakes each shard whose wake-up is due.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        for index in 0..self.slots.len() {
            if self.slots.get(index).is_some_and(|call_guard| call_guard.wakeup <= now) {
                self.run(index, now, &[], |machine| machine.handle_timeout(now));
            }
        }
    }

    /// Queries the next wake-up of each shard that has acted, once for all its actions.
    pub(crate) fn ask_wakeups(&mut self, now: Timestamp) {
        if !std::mem::take(&mut self.has_acted) {
            return;
        }
        for index in 0..self.slots.len() {
            let Some(call_guard) = self.slots.get_mut(index).filter(|call_guard| call_guard.has_acted) else {
                continue;
            };
            call_guard.has_acted = false;
            // Unwind safety: the shard is dropped after a panic.
            match catch_unwind(AssertUnwindSafe(|| wakeup_of(&*call_guard.shard))) {
                Ok(wakeup) => (call_guard.wakeup, call_guard.latest_wakeup) = wakeup,
                Err(payload) => self.handle_shard_panic(index, now, payload.as_ref(), &[]),
            }
        }
    }

    /// Returns the earliest wake-up of any shard, as of the last [query](Self::ask_wakeups); [`Timestamp::MAX`] if
    /// none.
    pub(crate) fn next_wakeup(&self) -> Timestamp {
        debug_assert!(!self.has_acted, "all have been asked since they acted");
        self.slots.iter().map(|call_guard| call_guard.wakeup).min().unwrap_or(Timestamp::MAX)
    }

    /// Returns until when the worker may sleep regardless of [wake-ups](Self::next_wakeup).
    pub(crate) fn latest_wakeup(&self) -> Timestamp {
        debug_assert!(!self.has_acted, "all have been asked since they acted");
        self.slots.iter().map(|call_guard| call_guard.latest_wakeup).min().unwrap_or(Timestamp::MAX)
    }

    /// Returns the calls in progress, up to `limit`.
    pub(crate) fn calls(&mut self, now: Timestamp, limit: usize) -> CallList {
        let mut list = CallList::default();
        for index in 0..self.slots.len() {
            self.run(index, now, &[], |machine| machine.for_each_call(&mut |view| list.add(limit, &view)));
        }
        list
    }

    /// Returns the times of the calls of the shards by destination.
    pub(crate) fn destination_times(&mut self, now: Timestamp) -> TimesByDestination {
        let mut all = TimesByDestination::new();
        for index in 0..self.slots.len() {
            self.run(index, now, &[], |machine| {
                machine.for_each_setup(&mut |to, times| all.entry(to).or_default().setup.add(times));
                machine.for_each_response_time(&mut |to, times| all.entry(to).or_default().response.add(times));
            });
        }
        all
    }

    /// Ends the calls with this Call-ID, and returns them.
    pub(crate) fn end_calls(&mut self, now: Timestamp, call_id: &[u8]) -> CallList {
        let mut list = CallList::default();
        for index in 0..self.slots.len() {
            self.run(index, now, &[], |machine| {
                let before = list.calls.len();
                machine.for_each_call(&mut |view| {
                    if view.call_id == call_id {
                        list.add(usize::MAX, &view);
                    }
                });
                if list.calls.len() > before {
                    machine.handle_input(now, Input::EndCall { call_id });
                }
            });
        }
        list
    }

    /// Returns what the shards of another process need.
    pub(crate) fn export_states(&mut self, now: Timestamp) -> Vec<(ShardId, Vec<u8>)> {
        let mut states = Vec::new();
        for index in 0..self.slots.len() {
            let Some(id) = self.slots.get(index).map(|slot| slot.id) else { continue };
            let mut state = Vec::new();
            self.run(index, now, &[], |machine| machine.export_state(&mut state));
            states.push((id, state));
        }
        states
    }

    /// Gives a state of another process to its shard; `None` if the shard is not here.
    pub(crate) fn import_state(&mut self, now: Timestamp, state: &[u8]) -> Option<Result<ImportedState, StateError>> {
        let id = shard_of_state(state)?;
        let index = self.slots.iter().position(|slot| slot.id == id)?;
        let mut imported = None;
        self.run(index, now, &[], |machine| imported = Some(machine.import_state(now, state)));
        imported
    }

    /// Lets the shards know that another process has taken over.
    pub(crate) fn hand_over(&mut self, now: Timestamp) {
        self.is_handed_over = true;
        for index in 0..self.slots.len() {
            self.run(index, now, &[], |machine| machine.handle_input(now, Input::HandedOver));
        }
    }

    /// Returns the trunk registrations of the shards; each belongs to one shard.
    pub(crate) fn accounts(&mut self, now: Timestamp) -> Vec<Account> {
        let mut accounts = Vec::new();
        for index in 0..self.slots.len() {
            let mut add = |trunk: &str, status| accounts.push(Account { trunk: trunk.to_owned(), status });
            self.run(index, now, &[], |machine| machine.for_each_account(now, &mut add));
        }
        accounts
    }

    /// Returns the status.
    pub(crate) fn status(&mut self, now: Timestamp) -> WorkerStatus {
        let mut net = self.io.closed_sockets;
        let outlets = || self.io.datagram_sockets();
        outlets().for_each(|outlet| add_net(&mut net, outlet.socket().counters()));
        let mut status = WorkerStatus {
            worker: self.io.counters,
            net,
            streams: self.io.streams.counters,
            connections: self.io.streams.len(),
            transports: self.io.streams.transports,
            unsent: outlets().map(DatagramSocket::unsent).sum::<usize>() + self.io.streams.unsent(),
            version: self.version,
            load: self.load,
            overload: self.overload_status(),
            ..WorkerStatus::default()
        };
        for index in 0..self.slots.len() {
            self.totals_of(index, now).add_to(&mut status);
        }
        status.shard.add(&self.retired_counters);
        status
    }

    /// Returns the times of its packets; `None` if timing is off.
    pub(crate) fn times(&self) -> Option<WorkerTimes> {
        let timer = self.io.timing.timer()?;
        let mut net = self.io.closed_sockets;
        self.io.datagram_sockets().for_each(|socket| add_net(&mut net, socket.socket().counters()));
        let sockets = || self.io.sockets.iter().filter_map(ListenerSocket::as_datagram).map(DatagramSocket::socket);
        Some(WorkerTimes {
            histograms: timer.recorder().recorded(),
            counts: timer.counts().clone(),
            net,
            worker: self.io.counters,
            has_send_stamps: sockets().all(net::UdpSocket::has_send_stamps),
            lost_send_stamps: sockets().map(net::UdpSocket::lost_send_stamps).sum(),
        })
    }

    /// Returns a shard's contribution to the status. A shard that panics here is replaced.
    pub(crate) fn totals_of(&mut self, index: usize, now: Timestamp) -> ShardTotals {
        let Some(call_guard) = self.slots.get(index) else { return ShardTotals::default() };
        // Unwind safety: the shard is dropped after a panic.
        catch_unwind(AssertUnwindSafe(|| ShardTotals::of(&*call_guard.shard))).unwrap_or_else(|payload| {
            self.handle_shard_panic(index, now, payload.as_ref(), &[]);
            ShardTotals::default()
        })
    }

    /// Runs `act` on a shard and handles all its outputs. If it panics, it is replaced.
    pub(crate) fn run(&mut self, index: usize, now: Timestamp, bytes: &[u8], act: impl FnOnce(&mut M::Shard)) {
        self.has_acted = true;
        let Self { slots: shard_slots, io: exits, message, events, .. } = self;
        let Some(call_guard) = shard_slots.get_mut(index) else { return };
        // Unwind safety: the shard is dropped after a panic, an unfinished message is overwritten, counters are plain
        // numbers.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            call_guard.inputs = call_guard.inputs.wrapping_add(1);
            call_guard.has_acted = true;
            act(&mut call_guard.shard);
            drain(now, call_guard, exits, message, events);
        }));
        if let Err(payload) = outcome {
            self.handle_shard_panic(index, now, payload.as_ref(), bytes);
        }
    }

    /// Replaces a shard that has panicked, at `bytes` if it was given any.
    #[cold]
    fn handle_shard_panic(&mut self, index: usize, now: Timestamp, payload: &(dyn Any + Send), bytes: &[u8]) {
        self.replace(index);
        if self.is_handed_over
            && let Some(slot) = self.slots.get_mut(index)
        {
            // What its predecessor had is at the other process.
            slot.shard.handle_input(now, Input::HandedOver);
            slot.has_acted = true;
        }
        let id = self.slots.get(index).map(|call_guard| call_guard.id);
        self.on_panic(id, now, payload, bytes);
    }

    /// Replaces a shard that panicked with a new one.
    #[cold]
    fn replace(&mut self, index: usize) {
        let Self { shared: common, slots: shard_slots, snapshot, retired_counters: buried, .. } = self;
        let Some(call_guard) = shard_slots.get_mut(index) else { return };
        // If reading its counters panics too, they are lost.
        if let Ok(mut counters) = catch_unwind(AssertUnwindSafe(|| call_guard.shard.counters())) {
            // Its calls in progress are no longer known.
            counters.calls_ended = counters.calls;
            buried.add(&counters);
        }
        let fresh = ShardSlot::new(&common.factory, call_guard.id, call_guard.life.wrapping_add(1), snapshot);
        let broken = std::mem::replace(call_guard, fresh);
        // Dropping it may panic on damaged state; what remains is leaked.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(broken)));
    }

    #[cold]
    fn on_panic(&mut self, shard: Option<ShardId>, now: Timestamp, payload: &(dyn Any + Send), bytes: &[u8]) {
        self.io.counters.panics += 1;
        let report = PanicReport::new(shard, now, payload, bytes);
        tracing::error!("{report}");
        if self.shared.panics.record(report) {
            tracing::error!("too many panics within a minute; the process aborts");
            std::process::abort();
        }
    }
}

/// Returns the next wake-up of a shard, and until when it may be delayed.
fn wakeup_of(machine: &impl StateMachine) -> (Timestamp, Timestamp) {
    machine.poll_timeout().map_or((Timestamp::MAX, Timestamp::MAX), |wakeup| (wakeup.at, wakeup.latest))
}

/// Takes all outputs of a shard.
fn drain<B: StateMachine>(
    now: Timestamp,
    call_guard: &mut ShardSlot<B>,
    exits: &mut WorkerIo,
    message: &mut Vec<u8>,
    events: &SyncSender<Event>,
) {
    message.clear();
    while let Some(output) = call_guard.shard.poll_output(message) {
        match output {
            Output::Send { flow } => exits.send(now, call_guard.id, flow, message),
            Output::Ask(Inquiry::Dns { query, question }) => exits.resolve(call_guard.id, query, question),
            Output::Ask(Inquiry::Media { engine, command }) => {
                exits.send_to_engine(call_guard.id, engine.address(), &command);
            }
            Output::Store { ticket, record } => exits.queue_record(call_guard.id, ticket, record),
            Output::Event(event) => {
                let is_record = matches!(event, Event::Call(_) | Event::CallTransferred(_));
                let is_dropped = events.try_send(event).is_err();
                exits.counters.event_drops += u64::from(is_dropped);
                exits.counters.record_drops += u64::from(is_dropped && is_record);
            }
        }
        message.clear();
    }
}
