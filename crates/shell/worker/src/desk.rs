//! The shards of one worker: their inputs, their outputs, and what becomes of one that panics.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use strowger_foundation::{Flow, ShardId, Timestamp};
use strowger_locate::{Answer, QueryId};
use strowger_message::Peek;
use strowger_net as net;

use crate::brain::{Brain, Maker};
use crate::calls::{Account, CallList};
use crate::exits::{Exits, Port};
use crate::keep::Stored;
use crate::outlet::Outlet;
use crate::panics::{PanicLog, PanicReport};
use crate::status::{WorkerStatus, add_net};
use crate::streams::Closed;
use strowger_shard as shard;
use strowger_shard::{Event, Input, Output, Snapshot, Steered};

/// What all desks share.
pub(crate) struct Common<M> {
    pub(crate) maker: M,
    pub(crate) panics: Arc<PanicLog>,
    /// How many workers there are: shard `s` belongs to worker `s % workers`.
    pub(crate) workers: u16,
}

/// One shard and when it wants to be woken.
struct Seat<B> {
    id: ShardId,
    brain: B,
    /// [`Timestamp::MAX`] where it waits for nothing.
    wakeup: Timestamp,
    /// How many shards of this id there were before.
    life: u32,
}

impl<B: Brain> Seat<B> {
    fn new(maker: &impl Maker<Brain = B>, id: ShardId, life: u32, snapshot: &Arc<Snapshot>) -> Self {
        let brain = maker.make(id, life, Arc::clone(snapshot));
        let wakeup = wakeup_of(&brain);
        Self { id, brain, wakeup, life }
    }
}

/// The shards that belong to one worker, and its sockets.
pub(crate) struct Desk<M: Maker> {
    common: Arc<Common<M>>,
    seats: Vec<Seat<M::Brain>>,
    pub(crate) exits: Exits,
    snapshot: Arc<Snapshot>,
    events: SyncSender<Event>,
    /// The buffer that a shard swaps for its next message.
    message: Vec<u8>,
    /// The counters of shards that are no more.
    buried: shard::Counters,
}

impl<M: Maker> Desk<M> {
    pub(crate) fn new(
        common: Arc<Common<M>>,
        ids: impl Iterator<Item = ShardId>,
        exits: Exits,
        snapshot: Arc<Snapshot>,
        events: SyncSender<Event>,
    ) -> Self {
        let seats = ids.map(|id| Seat::new(&common.maker, id, 0, &snapshot)).collect();
        Self { seats, common, exits, snapshot, events, message: Vec::new(), buried: shard::Counters::default() }
    }

    /// Reads a message into `peek`, which holds nothing yet, and finds whose it is. What is not a message, or nobody's, is
    /// dropped here.
    pub(crate) fn steer<'a>(
        &mut self,
        now: Timestamp,
        bytes: &'a [u8],
        peek: &mut Peek<'a>,
    ) -> Option<(ShardId, Steered)> {
        let Self { common, snapshot, .. } = self;
        // Unwind safety: what was read is not used any more.
        let steered = catch_unwind(AssertUnwindSafe(|| {
            peek.fill(bytes).ok()?;
            Some(common.maker.steer(peek, snapshot))
        }));
        match steered {
            Ok(Some(Some(owner))) => return Some(owner),
            Ok(Some(None)) => self.exits.counters.unowned += 1,
            Ok(None) => self.exits.counters.malformed += 1,
            Err(payload) => self.on_panic(None, now, payload.as_ref(), bytes),
        }
        None
    }

    /// Reads `bytes` for no shard; `None` where that panics.
    pub(crate) fn contain<T>(&mut self, now: Timestamp, bytes: &[u8], read: impl FnOnce() -> T) -> Option<T> {
        // Unwind safety: what was read is not used any more, and its connection is closed.
        match catch_unwind(AssertUnwindSafe(read)) {
            Ok(read) => Some(read),
            Err(payload) => {
                self.on_panic(None, now, payload.as_ref(), bytes);
                None
            }
        }
    }

    /// Gives `input` to the shard `id`, which must be one of this desk's. `bytes` is the message that it came from.
    pub(crate) fn handle_input(&mut self, now: Timestamp, id: ShardId, input: Input<'_>, bytes: &[u8]) {
        let seat = usize::from(id.0 / self.common.workers);
        debug_assert!(self.seats.get(seat).is_some_and(|seat| seat.id == id), "{id} sits at another desk");
        self.run(seat, now, bytes, |brain| brain.handle_input(now, input));
    }

    /// Sends a datagram without asking a shard.
    pub(crate) fn answer(&mut self, flow: Flow, bytes: &[u8]) {
        self.message.clear();
        self.message.extend_from_slice(bytes);
        if let Some(Port::Udp(outlet)) = self.exits.ports.get_mut(usize::from(flow.listener.0)) {
            outlet.send(flow.peer, &mut self.message);
        }
    }

    /// Tells every shard which peers cannot be reached. Their messages leave through this worker's sockets only, so no
    /// other worker needs to know.
    pub(crate) fn handle_lost(&mut self, now: Timestamp) {
        for port in 0..self.exits.ports.len() {
            while let Some(peer) =
                self.exits.ports.get_mut(port).and_then(Port::as_outlet_mut).and_then(Outlet::poll_lost)
            {
                for seat in 0..self.seats.len() {
                    self.run(seat, now, &[], |brain| brain.handle_input(now, Input::Unreachable { peer }));
                }
            }
        }
    }

    /// Tells every shard that connections, of whatever worker, are closed.
    pub(crate) fn handle_closed(&mut self, now: Timestamp, closed: &[Closed]) {
        for seat in 0..self.seats.len() {
            for &(connection, peer) in closed {
                self.run(seat, now, &[], |brain| brain.handle_input(now, Input::Closed { connection, peer }));
            }
        }
    }

    /// Tells a shard that a flow could not be reached.
    pub(crate) fn handle_unconnected(&mut self, now: Timestamp, id: ShardId, flow: Flow) {
        self.exits.streams.counters.unconnected += 1;
        self.handle_input(now, id, Input::Unconnected { flow }, &[]);
    }

    /// Gives a shard what the DNS answered.
    pub(crate) fn handle_answer(&mut self, now: Timestamp, id: ShardId, query: QueryId, answer: Answer) {
        self.handle_input(now, id, Input::Resolved { query, answer }, &[]);
    }

    /// Tells a shard what became of a record; one that nobody waited for is not told of.
    pub(crate) fn handle_stored(&mut self, now: Timestamp, stored: Stored) {
        let Stored { shard, ticket, record, kept } = stored;
        if let Some(ticket) = ticket {
            self.handle_input(now, shard, Input::Stored { ticket, record, kept }, &[]);
        }
    }

    /// Tells a shard that a user of its stripe may not be called any more.
    pub(crate) fn handle_forgotten(&mut self, now: Timestamp, id: ShardId, aor: &[u8]) {
        self.handle_input(now, id, Input::Forget { aor }, &[]);
    }

    /// Gives every shard the new snapshot.
    pub(crate) fn handle_config(&mut self, now: Timestamp, snapshot: &Arc<Snapshot>) {
        self.snapshot = Arc::clone(snapshot);
        for seat in 0..self.seats.len() {
            self.run(seat, now, &[], |brain| brain.handle_input(now, Input::Config(Arc::clone(snapshot))));
        }
    }

    /// Wakes each shard whose time has come.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        for index in 0..self.seats.len() {
            if self.seats.get(index).is_some_and(|seat| seat.wakeup <= now) {
                self.run(index, now, &[], |brain| brain.handle_timeout(now));
            }
        }
    }

    /// When the next shard wants to be woken; [`Timestamp::MAX`] where none does. There are sixteen, next to one another.
    pub(crate) fn next_wakeup(&self) -> Timestamp {
        self.seats.iter().map(|seat| seat.wakeup).min().unwrap_or(Timestamp::MAX)
    }

    /// The calls in progress, up to `limit` of them.
    pub(crate) fn calls(&self, limit: usize) -> CallList {
        let mut list = CallList::default();
        self.seats.iter().for_each(|seat| seat.brain.for_each_call(&mut |view| list.add(limit, &view)));
        list
    }

    /// The trunks that shards register at, each by one of them.
    pub(crate) fn accounts(&self, now: Timestamp) -> Vec<Account> {
        let mut accounts = Vec::new();
        for seat in &self.seats {
            seat.brain.for_each_account(now, &mut |trunk, status| {
                accounts.push(Account { trunk: trunk.to_owned(), status });
            });
        }
        accounts
    }

    /// What there is to tell.
    pub(crate) fn status(&self, version: u64) -> WorkerStatus {
        let mut net = net::Counters::default();
        let outlets = || self.exits.ports.iter().filter_map(Port::as_outlet);
        outlets().for_each(|outlet| add_net(&mut net, outlet.socket().counters()));
        let mut shard = self.buried;
        self.seats.iter().for_each(|seat| shard.add(&seat.brain.counters()));
        WorkerStatus {
            worker: self.exits.counters,
            net,
            streams: self.exits.streams.counters,
            connections: self.exits.streams.len(),
            shard,
            transactions: self.seats.iter().map(|seat| seat.brain.transactions()).sum(),
            unanswered: self.seats.iter().map(|seat| seat.brain.unanswered()).sum(),
            unsent: outlets().map(Outlet::unsent).sum::<usize>() + self.exits.streams.unsent(),
            version,
        }
    }

    /// Lets a shard act and takes all that comes of it. If it panics, it is replaced.
    fn run(&mut self, index: usize, now: Timestamp, bytes: &[u8], act: impl FnOnce(&mut M::Brain)) {
        let Self { seats, exits, message, events, .. } = self;
        let Some(seat) = seats.get_mut(index) else { return };
        // Unwind safety: the shard is dropped after a panic, an unfinished message is overwritten, counters are numbers.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            act(&mut seat.brain);
            drain(now, seat, exits, message, events);
            seat.wakeup = wakeup_of(&seat.brain);
        }));
        if let Err(payload) = outcome {
            self.replace(index);
            let id = self.seats.get(index).map(|seat| seat.id);
            self.on_panic(id, now, payload.as_ref(), bytes);
        }
    }

    /// Puts a fresh shard in the place of one that panicked.
    #[cold]
    fn replace(&mut self, index: usize) {
        let Self { common, seats, snapshot, buried, .. } = self;
        let Some(seat) = seats.get_mut(index) else { return };
        buried.add(&seat.brain.counters());
        let fresh = Seat::new(&common.maker, seat.id, seat.life.wrapping_add(1), snapshot);
        let broken = std::mem::replace(seat, fresh);
        // Its state may be too damaged even to be dropped; then what is left of it is lost memory.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(broken)));
    }

    #[cold]
    fn on_panic(&mut self, shard: Option<ShardId>, now: Timestamp, payload: &(dyn Any + Send), bytes: &[u8]) {
        self.exits.counters.panics += 1;
        let report = PanicReport::new(shard, now, payload, bytes);
        tracing::error!("{report}");
        if self.common.panics.record(report) {
            tracing::error!("too many panics within a minute: the process ends");
            std::process::abort();
        }
    }
}

fn wakeup_of(brain: &impl Brain) -> Timestamp {
    brain.poll_timeout().map_or(Timestamp::MAX, |wakeup| wakeup.at)
}

/// Takes all outputs of a shard.
fn drain<B: Brain>(
    now: Timestamp,
    seat: &mut Seat<B>,
    exits: &mut Exits,
    message: &mut Vec<u8>,
    events: &SyncSender<Event>,
) {
    message.clear();
    while let Some(output) = seat.brain.poll_output(message) {
        match output {
            Output::Send { flow } => exits.send(now, seat.id, flow, message),
            Output::Resolve { query, question } => exits.ask(seat.id, query, question),
            Output::Store { ticket, record } => exits.keep(seat.id, ticket, record),
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
