//! The shards of one worker: their inputs, their outputs, and what becomes of one that panics.

use std::any::Any;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};

use strowger_foundation::{Flow, ShardId, Timestamp};
use strowger_message::{PartialPeek, Peek};
use strowger_net as net;

use crate::admission::Admission;
use crate::calls::{Account, CallList};
use crate::datagram_socket::{DatagramSocket, DeliveryFailure};
use crate::migration::{MigrationState, ShardMessage};
use crate::panics::{PanicLog, PanicReport};
use crate::rebalance::Rebalancer;
use crate::shard_factory::{ShardFactory, StateMachine};
use crate::status::{ShardTotals, WorkerStatus, add_net};
use crate::worker_io::{ListenerSocket, WorkerIo};
use strowger_shard as shard;
use strowger_shard::{Event, Input, Output, Snapshot, SteeringResult};

/// What all desks share.
pub(crate) struct HostShared<M: ShardFactory> {
    pub(crate) factory: M,
    pub(crate) panics: Arc<PanicLog>,
    /// Shards that were let go and have not arrived, by the worker that they go to.
    pub(crate) arrivals: Vec<Mutex<Vec<ShardSlot<M::Shard>>>>,
    /// What these would add to a worker's status.
    pub(crate) in_transit: Arc<Mutex<Vec<(ShardId, ShardTotals)>>>,
    pub(crate) balance: Mutex<Rebalancer>,
}

/// One shard and when it wants to be woken.
pub(crate) struct ShardSlot<B> {
    pub(crate) id: ShardId,
    /// Elsewhere, for it is large: seats are looked through in every round, and move between workers.
    pub(crate) shard: Box<B>,
    /// [`Timestamp::MAX`] where it waits for nothing; of before, while the shard [has acted](Self::has_acted).
    wakeup: Timestamp,
    /// It has acted since it was last asked when it wants to be woken.
    pub(crate) has_acted: bool,
    /// How many shards of this id there were before.
    life: u32,
    /// The version of the snapshot that it has, as of when it was let go.
    pub(crate) version: u64,
    /// What it was told of late.
    pub(crate) inputs: u32,
}

const _: () = assert!(size_of::<ShardSlot<shard::Shard>>() <= 128);

impl<B: StateMachine> ShardSlot<B> {
    fn new(maker: &impl ShardFactory<Shard = B>, id: ShardId, life: u32, snapshot: &Arc<Snapshot>) -> Self {
        let brain = Box::new(maker.make(id, life, Arc::clone(snapshot)));
        let wakeup = wakeup_of(&*brain);
        Self { id, shard: brain, wakeup, has_acted: false, life, version: 0, inputs: 0 }
    }
}

/// The shards that belong to one worker, and its sockets.
pub(crate) struct ShardHost<M: ShardFactory> {
    pub(crate) shared: Arc<HostShared<M>>,
    pub(crate) slots: Vec<ShardSlot<M::Shard>>,
    /// By shard: which of `seats` it has, where it is here.
    pub(crate) slot_by_shard: Vec<Option<u16>>,
    /// One of `seats` [has acted](Seat::has_acted).
    pub(crate) has_acted: bool,
    pub(crate) migration: MigrationState,
    pub(crate) io: WorkerIo,
    pub(crate) admission: Admission,
    pub(crate) snapshot: Arc<Snapshot>,
    /// The version of the snapshot.
    pub(crate) version: u64,
    /// The share of its time that the worker was at work, as of late.
    pub(crate) load: f64,
    events: SyncSender<Event>,
    /// The buffer that a shard swaps for its next message.
    message: Vec<u8>,
    /// The counters of shards that are no more.
    retired_counters: shard::Counters,
}

impl<M: ShardFactory> ShardHost<M> {
    pub(crate) fn new(
        common: Arc<HostShared<M>>,
        exits: WorkerIo,
        admission: Admission,
        snapshot: Arc<Snapshot>,
        events: SyncSender<Event>,
    ) -> Self {
        let mut seats = Vec::new();
        let mut places = Vec::new();
        for id in (0..exits.shards()).map(ShardId) {
            let is_here = exits.worker_of(id) == exits.index;
            places.push(if is_here { u16::try_from(seats.len()).ok() } else { None });
            if is_here {
                seats.push(ShardSlot::new(&common.factory, id, 0, &snapshot));
            }
        }
        let (message, buried, transit) = (Vec::new(), shard::Counters::default(), MigrationState::default());
        let (has_acted, version, load) = (false, 0, 0.0);
        Self {
            shared: common,
            slots: seats,
            slot_by_shard: places,
            has_acted,
            migration: transit,
            io: exits,
            admission,
            snapshot,
            version,
            load,
            events,
            message,
            retired_counters: buried,
        }
    }

    /// Which of the seats a shard has, where it is here.
    pub(crate) fn slot_of(&self, id: ShardId) -> Option<usize> {
        self.slot_by_shard.get(usize::from(id.0)).copied().flatten().map(usize::from)
    }

    /// Finds whose a message is and, where that is one of this worker's shards, reads it into `peek`, which holds nothing yet.
    /// What is not a message, or nobody's, is dropped here.
    pub(crate) fn steer<'a>(
        &mut self,
        now: Timestamp,
        bytes: &'a [u8],
        peek: &mut Peek<'a>,
    ) -> Option<(ShardId, SteeringResult)> {
        let has_all = self.slots.len() == usize::from(self.io.shards());
        self.find(now, bytes, peek, !has_all)
    }

    /// Reads a message into `peek`, which holds nothing yet, that was steered once already by the worker that received it:
    /// what has changed since, such as whose address it claims, does not give it another owner.
    pub(crate) fn read_steered<'a>(
        &mut self,
        now: Timestamp,
        bytes: &'a [u8],
        peek: &mut Peek<'a>,
    ) -> Option<SteeringResult> {
        self.find(now, bytes, peek, false).map(|(_, steered)| steered)
    }

    /// Finds whose a message is and reads it; where it `may_leave`, no more of another worker's than tells that it is one.
    #[inline(always)]
    fn find<'a>(
        &mut self,
        now: Timestamp,
        bytes: &'a [u8],
        peek: &mut Peek<'a>,
        may_leave: bool,
    ) -> Option<(ShardId, SteeringResult)> {
        let Self { shared: common, snapshot, io: exits, .. } = self;
        // Unwind safety: what was read is not used any more.
        let found = catch_unwind(AssertUnwindSafe(|| {
            let glance = if may_leave { PartialPeek::read(bytes) } else { None };
            let known = glance.map(|glance| common.factory.owner(&glance, snapshot));
            if let Some(Some((owner, _))) = &known
                && exits.worker_of(*owner) != exits.index
            {
                return known;
            }
            peek.fill(bytes).ok()?;
            let mut owner = known.unwrap_or_else(|| common.factory.owner(&peek.to_partial(), snapshot));
            if let Some((_, steered)) = &mut owner {
                common.factory.complete(peek, steered);
            }
            Some(owner)
        }));
        match found {
            Ok(Some(Some(owner))) => return Some(owner),
            Ok(Some(None)) => self.io.counters.unowned += 1,
            Ok(None) => self.io.counters.malformed += 1,
            Err(payload) => self.on_panic(None, now, payload.as_ref(), bytes),
        }
        None
    }

    /// Shows messages to the shards that will be told of them, as far as these are here.
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
                if let Some(seat) = self.slots.get(index) {
                    seat.shard.prefetch(peek, steered);
                }
            }
        }));
        if let (Err(payload), Some((index, bytes))) = (outcome, last) {
            self.handle_shard_panic(index, now, payload.as_ref(), bytes);
        }
    }

    /// Reads `bytes` for no shard; `None` where that panics.
    pub(crate) fn catch_panic<T>(&mut self, now: Timestamp, bytes: &[u8], read: impl FnOnce() -> T) -> Option<T> {
        // Unwind safety: what was read is not used any more, and its connection is closed.
        match catch_unwind(AssertUnwindSafe(read)) {
            Ok(read) => Some(read),
            Err(payload) => {
                self.on_panic(None, now, payload.as_ref(), bytes);
                None
            }
        }
    }

    /// Sends a datagram without asking a shard.
    pub(crate) fn answer(&mut self, flow: Flow, bytes: &[u8]) {
        self.message.clear();
        self.message.extend_from_slice(bytes);
        if let Some(ListenerSocket::Udp(outlet)) = self.io.sockets.get_mut(usize::from(flow.listener.0)) {
            outlet.send(flow.peer, &mut self.message, net::OrderingKey::ALL);
        }
    }

    /// Tells every shard which peers cannot be reached. Of the sockets of an address the kernel tells any, whichever has sent,
    /// so the shards of the other workers must know it too.
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

    /// Tells every shard of this worker that a peer cannot be reached.
    pub(crate) fn handle_unreachable(&mut self, now: Timestamp, peer: SocketAddr) {
        for seat in 0..self.slots.len() {
            self.run(seat, now, &[], |brain| brain.handle_input(now, Input::Unreachable { peer }));
        }
    }

    /// Tells every shard of this worker that what it sent to a peer has not left.
    fn handle_unsent(&mut self, now: Timestamp, peer: SocketAddr) {
        for seat in 0..self.slots.len() {
            self.run(seat, now, &[], |brain| brain.handle_input(now, Input::SendFailed { peer }));
        }
    }

    /// Tells a shard that a flow could not be reached.
    pub(crate) fn handle_unconnected(&mut self, now: Timestamp, id: ShardId, flow: Flow) {
        self.io.streams.counters.unconnected += 1;
        self.send_to_shard(now, id, ShardMessage::FlowFailed(flow));
    }

    /// Gives every shard the new snapshot.
    pub(crate) fn handle_config(&mut self, now: Timestamp, snapshot: &Arc<Snapshot>, version: u64) {
        self.snapshot = Arc::clone(snapshot);
        self.version = version;
        for seat in 0..self.slots.len() {
            self.run(seat, now, &[], |brain| brain.handle_input(now, Input::Config(Arc::clone(snapshot))));
        }
    }

    /// Wakes each shard whose time has come.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        for index in 0..self.slots.len() {
            if self.slots.get(index).is_some_and(|seat| seat.wakeup <= now) {
                self.run(index, now, &[], |brain| brain.handle_timeout(now));
            }
        }
    }

    /// Asks each shard that has acted when it wants to be woken: once for all that it did since.
    pub(crate) fn ask_wakeups(&mut self, now: Timestamp) {
        if !std::mem::take(&mut self.has_acted) {
            return;
        }
        for index in 0..self.slots.len() {
            let Some(seat) = self.slots.get_mut(index).filter(|seat| seat.has_acted) else { continue };
            seat.has_acted = false;
            // Unwind safety: the shard is dropped after a panic.
            match catch_unwind(AssertUnwindSafe(|| wakeup_of(&*seat.shard))) {
                Ok(wakeup) => seat.wakeup = wakeup,
                Err(payload) => self.handle_shard_panic(index, now, payload.as_ref(), &[]),
            }
        }
    }

    /// When the next shard wants to be woken, as of when they [were asked](Self::ask_wakeups); [`Timestamp::MAX`] where none
    /// does.
    pub(crate) fn next_wakeup(&self) -> Timestamp {
        debug_assert!(!self.has_acted, "all have been asked since they acted");
        self.slots.iter().map(|seat| seat.wakeup).min().unwrap_or(Timestamp::MAX)
    }

    /// The calls in progress, up to `limit` of them.
    pub(crate) fn calls(&mut self, now: Timestamp, limit: usize) -> CallList {
        let mut list = CallList::default();
        for index in 0..self.slots.len() {
            self.run(index, now, &[], |brain| brain.for_each_call(&mut |view| list.add(limit, &view)));
        }
        list
    }

    /// The trunks that shards register at, each by one of them.
    pub(crate) fn accounts(&mut self, now: Timestamp) -> Vec<Account> {
        let mut accounts = Vec::new();
        for index in 0..self.slots.len() {
            let mut add = |trunk: &str, status| accounts.push(Account { trunk: trunk.to_owned(), status });
            self.run(index, now, &[], |brain| brain.for_each_account(now, &mut add));
        }
        accounts
    }

    /// What there is to tell.
    pub(crate) fn status(&mut self, now: Timestamp) -> WorkerStatus {
        let mut net = net::Counters::default();
        let outlets = || self.io.datagram_sockets();
        outlets().for_each(|outlet| add_net(&mut net, outlet.socket().counters()));
        let mut status = WorkerStatus {
            worker: self.io.counters,
            net,
            streams: self.io.streams.counters,
            connections: self.io.streams.len(),
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

    /// What a shard adds to the status. One that cannot even be counted is replaced.
    pub(crate) fn totals_of(&mut self, index: usize, now: Timestamp) -> ShardTotals {
        let Some(seat) = self.slots.get(index) else { return ShardTotals::default() };
        // Unwind safety: the shard is dropped after a panic.
        catch_unwind(AssertUnwindSafe(|| ShardTotals::of(&*seat.shard))).unwrap_or_else(|payload| {
            self.handle_shard_panic(index, now, payload.as_ref(), &[]);
            ShardTotals::default()
        })
    }

    /// Lets a shard act and takes all that comes of it. If it panics, it is replaced.
    pub(crate) fn run(&mut self, index: usize, now: Timestamp, bytes: &[u8], act: impl FnOnce(&mut M::Shard)) {
        self.has_acted = true;
        let Self { slots: seats, io: exits, message, events, .. } = self;
        let Some(seat) = seats.get_mut(index) else { return };
        // Unwind safety: the shard is dropped after a panic, an unfinished message is overwritten, counters are numbers.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            seat.inputs = seat.inputs.wrapping_add(1);
            seat.has_acted = true;
            act(&mut seat.shard);
            drain(now, seat, exits, message, events);
        }));
        if let Err(payload) = outcome {
            self.handle_shard_panic(index, now, payload.as_ref(), bytes);
        }
    }

    /// A shard has panicked, at `bytes` where it was given some: another takes its place.
    #[cold]
    fn handle_shard_panic(&mut self, index: usize, now: Timestamp, payload: &(dyn Any + Send), bytes: &[u8]) {
        self.replace(index);
        let id = self.slots.get(index).map(|seat| seat.id);
        self.on_panic(id, now, payload, bytes);
    }

    /// Puts a fresh shard in the place of one that panicked.
    #[cold]
    fn replace(&mut self, index: usize) {
        let Self { shared: common, slots: seats, snapshot, retired_counters: buried, .. } = self;
        let Some(seat) = seats.get_mut(index) else { return };
        // Where even its counters cannot be had, what they counted is lost.
        if let Ok(counters) = catch_unwind(AssertUnwindSafe(|| seat.shard.counters())) {
            buried.add(&counters);
        }
        let fresh = ShardSlot::new(&common.factory, seat.id, seat.life.wrapping_add(1), snapshot);
        let broken = std::mem::replace(seat, fresh);
        // Its state may be too damaged even to be dropped; then what is left of it is lost memory.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(broken)));
    }

    #[cold]
    fn on_panic(&mut self, shard: Option<ShardId>, now: Timestamp, payload: &(dyn Any + Send), bytes: &[u8]) {
        self.io.counters.panics += 1;
        let report = PanicReport::new(shard, now, payload, bytes);
        tracing::error!("{report}");
        if self.shared.panics.record(report) {
            tracing::error!("too many panics within a minute: the process ends");
            std::process::abort();
        }
    }
}

pub(crate) fn wakeup_of(brain: &impl StateMachine) -> Timestamp {
    brain.poll_timeout().map_or(Timestamp::MAX, |wakeup| wakeup.at)
}

/// Takes all outputs of a shard.
fn drain<B: StateMachine>(
    now: Timestamp,
    seat: &mut ShardSlot<B>,
    exits: &mut WorkerIo,
    message: &mut Vec<u8>,
    events: &SyncSender<Event>,
) {
    message.clear();
    while let Some(output) = seat.shard.poll_output(message) {
        match output {
            Output::Send { flow } => exits.send(now, seat.id, flow, message),
            Output::Resolve { query, question } => exits.resolve(seat.id, query, question),
            Output::Store { ticket, record } => exits.queue_record(seat.id, ticket, record),
            Output::Event(event) => {
                let is_record = matches!(event, Event::Call(_));
                let is_dropped = events.try_send(event).is_err();
                exits.counters.event_drops += u64::from(is_dropped);
                exits.counters.record_drops += u64::from(is_dropped && is_record);
            }
        }
        message.clear();
    }
}
