//! The shards of one worker: their inputs, their outputs, and what becomes of one that panics.

use std::any::Any;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};

use strowger_foundation::{Flow, ShardId, Timestamp};
use strowger_message::{Glance, Peek};
use strowger_net as net;

use crate::admission::Admission;
use crate::balance::Balance;
use crate::brain::{Brain, Maker};
use crate::calls::{Account, CallList};
use crate::exits::{Exits, Port};
use crate::moving::{Transit, Word};
use crate::outlet::{Lost, Outlet};
use crate::panics::{PanicLog, PanicReport};
use crate::status::{Moving, WorkerStatus, add_net};
use strowger_shard as shard;
use strowger_shard::{Event, Input, Output, Snapshot, Steered};

/// What all desks share.
pub(crate) struct Common<M: Maker> {
    pub(crate) maker: M,
    pub(crate) panics: Arc<PanicLog>,
    /// Shards that were let go and have not arrived, by the worker that they go to.
    pub(crate) arrivals: Vec<Mutex<Vec<Seat<M::Brain>>>>,
    /// What these would add to a worker's status.
    pub(crate) moving: Arc<Mutex<Vec<(ShardId, Moving)>>>,
    pub(crate) balance: Mutex<Balance>,
}

/// One shard and when it wants to be woken.
pub(crate) struct Seat<B> {
    pub(crate) id: ShardId,
    /// Elsewhere, for it is large: seats are looked through in every round, and move between workers.
    pub(crate) brain: Box<B>,
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

const _: () = assert!(size_of::<Seat<shard::Shard>>() <= 128);

impl<B: Brain> Seat<B> {
    fn new(maker: &impl Maker<Brain = B>, id: ShardId, life: u32, snapshot: &Arc<Snapshot>) -> Self {
        let brain = Box::new(maker.make(id, life, Arc::clone(snapshot)));
        let wakeup = wakeup_of(&*brain);
        Self { id, brain, wakeup, has_acted: false, life, version: 0, inputs: 0 }
    }
}

/// The shards that belong to one worker, and its sockets.
pub(crate) struct Desk<M: Maker> {
    pub(crate) common: Arc<Common<M>>,
    pub(crate) seats: Vec<Seat<M::Brain>>,
    /// By shard: which of `seats` it has, where it is here.
    pub(crate) places: Vec<Option<u16>>,
    /// One of `seats` [has acted](Seat::has_acted).
    pub(crate) has_acted: bool,
    pub(crate) transit: Transit,
    pub(crate) exits: Exits,
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
    buried: shard::Counters,
}

impl<M: Maker> Desk<M> {
    pub(crate) fn new(
        common: Arc<Common<M>>,
        exits: Exits,
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
                seats.push(Seat::new(&common.maker, id, 0, &snapshot));
            }
        }
        let (message, buried, transit) = (Vec::new(), shard::Counters::default(), Transit::default());
        let (has_acted, version, load) = (false, 0, 0.0);
        Self {
            common,
            seats,
            places,
            has_acted,
            transit,
            exits,
            admission,
            snapshot,
            version,
            load,
            events,
            message,
            buried,
        }
    }

    /// Which of the seats a shard has, where it is here.
    pub(crate) fn seat_of(&self, id: ShardId) -> Option<usize> {
        self.places.get(usize::from(id.0)).copied().flatten().map(usize::from)
    }

    /// Finds whose a message is and, where that is one of this worker's shards, reads it into `peek`, which holds nothing yet.
    /// What is not a message, or nobody's, is dropped here.
    pub(crate) fn steer<'a>(
        &mut self,
        now: Timestamp,
        bytes: &'a [u8],
        peek: &mut Peek<'a>,
    ) -> Option<(ShardId, Steered)> {
        let has_all = self.seats.len() == usize::from(self.exits.shards());
        self.find(now, bytes, peek, !has_all)
    }

    /// Reads a message into `peek`, which holds nothing yet, that was steered once already by the worker that received it:
    /// what has changed since, such as whose address it claims, does not give it another owner.
    pub(crate) fn read_steered<'a>(&mut self, now: Timestamp, bytes: &'a [u8], peek: &mut Peek<'a>) -> Option<Steered> {
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
    ) -> Option<(ShardId, Steered)> {
        let Self { common, snapshot, exits, .. } = self;
        // Unwind safety: what was read is not used any more.
        let found = catch_unwind(AssertUnwindSafe(|| {
            let glance = if may_leave { Glance::read(bytes) } else { None };
            let known = glance.map(|glance| common.maker.owner(&glance, snapshot));
            if let Some(Some((owner, _))) = &known
                && exits.worker_of(*owner) != exits.index
            {
                return known;
            }
            peek.fill(bytes).ok()?;
            let mut owner = known.unwrap_or_else(|| common.maker.owner(&peek.glance(), snapshot));
            if let Some((_, steered)) = &mut owner {
                common.maker.complete(peek, steered);
            }
            Some(owner)
        }));
        match found {
            Ok(Some(Some(owner))) => return Some(owner),
            Ok(Some(None)) => self.exits.counters.unowned += 1,
            Ok(None) => self.exits.counters.malformed += 1,
            Err(payload) => self.on_panic(None, now, payload.as_ref(), bytes),
        }
        None
    }

    /// Shows messages to the shards that will be told of them, as far as these are here.
    pub(crate) fn foresee<'p, 'a: 'p>(
        &mut self,
        now: Timestamp,
        messages: impl Iterator<Item = (&'p (ShardId, Steered), &'p Peek<'a>, &'a [u8])>,
    ) {
        let mut last = None;
        // Unwind safety: the shard is dropped after a panic.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            for ((id, steered), peek, bytes) in messages {
                let Some(index) = self.seat_of(*id) else { continue };
                last = Some((index, bytes));
                if let Some(seat) = self.seats.get(index) {
                    seat.brain.foresee(peek, steered);
                }
            }
        }));
        if let (Err(payload), Some((index, bytes))) = (outcome, last) {
            self.on_broken(index, now, payload.as_ref(), bytes);
        }
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

    /// Sends a datagram without asking a shard.
    pub(crate) fn answer(&mut self, flow: Flow, bytes: &[u8]) {
        self.message.clear();
        self.message.extend_from_slice(bytes);
        if let Some(Port::Udp(outlet)) = self.exits.ports.get_mut(usize::from(flow.listener.0)) {
            outlet.send(flow.peer, &mut self.message, net::Strand::ALL);
        }
    }

    /// Tells every shard which peers cannot be reached. Of the sockets of an address the kernel tells any, whichever has sent,
    /// so the shards of the other workers must know it too.
    pub(crate) fn handle_lost(&mut self, now: Timestamp) {
        loop {
            let Some(lost) = self.exits.outlets_mut().find_map(Outlet::poll_lost) else { break };
            match lost {
                Lost::Unreachable(peer) => {
                    self.exits.tell_lost(peer);
                    self.handle_unreachable(now, peer);
                }
                Lost::Unsent(peer) => self.handle_unsent(now, peer),
            }
        }
    }

    /// Tells every shard of this worker that a peer cannot be reached.
    pub(crate) fn handle_unreachable(&mut self, now: Timestamp, peer: SocketAddr) {
        for seat in 0..self.seats.len() {
            self.run(seat, now, &[], |brain| brain.handle_input(now, Input::Unreachable { peer }));
        }
    }

    /// Tells every shard of this worker that what it sent to a peer has not left.
    fn handle_unsent(&mut self, now: Timestamp, peer: SocketAddr) {
        for seat in 0..self.seats.len() {
            self.run(seat, now, &[], |brain| brain.handle_input(now, Input::Unsent { peer }));
        }
    }

    /// Tells a shard that a flow could not be reached.
    pub(crate) fn handle_unconnected(&mut self, now: Timestamp, id: ShardId, flow: Flow) {
        self.exits.streams.counters.unconnected += 1;
        self.tell(now, id, Word::Unconnected(flow));
    }

    /// Gives every shard the new snapshot.
    pub(crate) fn handle_config(&mut self, now: Timestamp, snapshot: &Arc<Snapshot>, version: u64) {
        self.snapshot = Arc::clone(snapshot);
        self.version = version;
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

    /// Asks each shard that has acted when it wants to be woken: once for all that it did since.
    pub(crate) fn ask_wakeups(&mut self, now: Timestamp) {
        if !std::mem::take(&mut self.has_acted) {
            return;
        }
        for index in 0..self.seats.len() {
            let Some(seat) = self.seats.get_mut(index).filter(|seat| seat.has_acted) else { continue };
            seat.has_acted = false;
            // Unwind safety: the shard is dropped after a panic.
            match catch_unwind(AssertUnwindSafe(|| wakeup_of(&*seat.brain))) {
                Ok(wakeup) => seat.wakeup = wakeup,
                Err(payload) => self.on_broken(index, now, payload.as_ref(), &[]),
            }
        }
    }

    /// When the next shard wants to be woken, as of when they [were asked](Self::ask_wakeups); [`Timestamp::MAX`] where none
    /// does.
    pub(crate) fn next_wakeup(&self) -> Timestamp {
        debug_assert!(!self.has_acted, "all have been asked since they acted");
        self.seats.iter().map(|seat| seat.wakeup).min().unwrap_or(Timestamp::MAX)
    }

    /// The calls in progress, up to `limit` of them.
    pub(crate) fn calls(&mut self, now: Timestamp, limit: usize) -> CallList {
        let mut list = CallList::default();
        for index in 0..self.seats.len() {
            self.run(index, now, &[], |brain| brain.for_each_call(&mut |view| list.add(limit, &view)));
        }
        list
    }

    /// The trunks that shards register at, each by one of them.
    pub(crate) fn accounts(&mut self, now: Timestamp) -> Vec<Account> {
        let mut accounts = Vec::new();
        for index in 0..self.seats.len() {
            let mut add = |trunk: &str, status| accounts.push(Account { trunk: trunk.to_owned(), status });
            self.run(index, now, &[], |brain| brain.for_each_account(now, &mut add));
        }
        accounts
    }

    /// What there is to tell.
    pub(crate) fn status(&mut self, now: Timestamp) -> WorkerStatus {
        let mut net = net::Counters::default();
        let outlets = || self.exits.outlets();
        outlets().for_each(|outlet| add_net(&mut net, outlet.socket().counters()));
        let mut status = WorkerStatus {
            worker: self.exits.counters,
            net,
            streams: self.exits.streams.counters,
            connections: self.exits.streams.len(),
            unsent: outlets().map(Outlet::unsent).sum::<usize>() + self.exits.streams.unsent(),
            version: self.version,
            load: self.load,
            overload: self.overload_status(),
            ..WorkerStatus::default()
        };
        for index in 0..self.seats.len() {
            self.tally(index, now).add_to(&mut status);
        }
        status.shard.add(&self.buried);
        status
    }

    /// What a shard adds to the status. One that cannot even be counted is replaced.
    pub(crate) fn tally(&mut self, index: usize, now: Timestamp) -> Moving {
        let Some(seat) = self.seats.get(index) else { return Moving::default() };
        // Unwind safety: the shard is dropped after a panic.
        catch_unwind(AssertUnwindSafe(|| Moving::of(&*seat.brain))).unwrap_or_else(|payload| {
            self.on_broken(index, now, payload.as_ref(), &[]);
            Moving::default()
        })
    }

    /// Lets a shard act and takes all that comes of it. If it panics, it is replaced.
    pub(crate) fn run(&mut self, index: usize, now: Timestamp, bytes: &[u8], act: impl FnOnce(&mut M::Brain)) {
        self.has_acted = true;
        let Self { seats, exits, message, events, .. } = self;
        let Some(seat) = seats.get_mut(index) else { return };
        // Unwind safety: the shard is dropped after a panic, an unfinished message is overwritten, counters are numbers.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            seat.inputs = seat.inputs.wrapping_add(1);
            seat.has_acted = true;
            act(&mut seat.brain);
            drain(now, seat, exits, message, events);
        }));
        if let Err(payload) = outcome {
            self.on_broken(index, now, payload.as_ref(), bytes);
        }
    }

    /// A shard has panicked, at `bytes` where it was given some: another takes its place.
    #[cold]
    fn on_broken(&mut self, index: usize, now: Timestamp, payload: &(dyn Any + Send), bytes: &[u8]) {
        self.replace(index);
        let id = self.seats.get(index).map(|seat| seat.id);
        self.on_panic(id, now, payload, bytes);
    }

    /// Puts a fresh shard in the place of one that panicked.
    #[cold]
    fn replace(&mut self, index: usize) {
        let Self { common, seats, snapshot, buried, .. } = self;
        let Some(seat) = seats.get_mut(index) else { return };
        // Where even its counters cannot be had, what they counted is lost.
        if let Ok(counters) = catch_unwind(AssertUnwindSafe(|| seat.brain.counters())) {
            buried.add(&counters);
        }
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

pub(crate) fn wakeup_of(brain: &impl Brain) -> Timestamp {
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
