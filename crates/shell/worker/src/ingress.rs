//! A worker's shards and its ways to the world, as one round of work uses them.

use std::iter;
use std::time::Duration;

use smallvec::SmallVec;
use strowger_foundation::{Flow, ListenerId, ShardId, Timestamp, Transport, prefetch};
use strowger_message::Peek;
use strowger_net::{Clock, Datagram, RecvBatch};
use strowger_overload::{Queue, queue_of};
use strowger_shard::SteeringResult;

use crate::admission::WaitQueue;
use crate::calls::WorkerQuery;
use crate::datagram_socket::DatagramSocket;
use crate::handover::{HANDOVER_BATCH, HandoverCommand, HandoverMessage};
use crate::migration::ShardMessage;
use crate::shard_factory::ShardFactory;
use crate::shard_host::ShardHost;
use crate::stream_reader::SCRATCH_BYTES;
use crate::worker_handle::Mailbox;
use crate::worker_io::ListenerSocket;

/// How long a socket that could not be read is left alone.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// What has waited for so long to be read tells that nobody read.
pub(crate) const STALL_THRESHOLD: Duration = Duration::from_millis(100);

/// Messages that are read before the first of them is dealt with. To read and to deal with a message are each about as
/// much code as a processor keeps at hand: done by turns, each would drive out the other.
const READ_AHEAD: usize = HANDOVER_BATCH;

/// After so many batches in a row from one socket, none of which was slept for, the worker asks that socket and is no longer told
/// by the kernel: to begin and to end it takes two system calls, and saves something with each datagram.
pub(crate) const BUSY_POLL_AFTER: u32 = 256;

/// A message that was read, and whose it is; nobody's where nothing is left to be done.
struct IncomingMessage<'a> {
    arrival: Timestamp,
    flow: Flow,
    bytes: &'a [u8],
    peek: Peek<'a>,
    owner: Option<(ShardId, SteeringResult)>,
}

/// The shards of a worker and its ways to the world.
pub(crate) struct Ingress<M: ShardFactory> {
    pub(crate) host: ShardHost<M>,
    /// Where connections are read into.
    pub(crate) scratch: Vec<u8>,
    /// The listener whose socket was the last to have datagrams.
    hot: usize,
    /// Batches in a row from it, none of which was slept for.
    hot_for: u32,
    /// Since when streams have had something to read without a break.
    pub(crate) streams_busy_since: Timestamp,
    /// The clock as it was read for the last batch; one reading serves all that comes of it.
    read_at: Timestamp,
    /// When the first came of what this round has dealt with; [`Timestamp::MAX`] where nothing did.
    first_arrival: Timestamp,
}

impl<M: ShardFactory> Ingress<M> {
    pub(crate) fn new(desk: ShardHost<M>) -> Self {
        let (read_at, first_arrival) = (Timestamp::ZERO, Timestamp::MAX);
        Self {
            host: desk,
            scratch: vec![0; SCRATCH_BYTES],
            hot: 0,
            hot_for: 0,
            streams_busy_since: Timestamp::ZERO,
            read_at,
            first_arrival,
        }
    }

    /// When the first came of what was dealt with since this was last asked.
    pub(crate) fn take_first_arrival(&mut self) -> Option<Timestamp> {
        let first = std::mem::replace(&mut self.first_arrival, Timestamp::MAX);
        (first != Timestamp::MAX).then_some(first)
    }

    /// When the last batch was received.
    pub(crate) fn read_at(&self) -> Timestamp {
        self.read_at
    }

    /// Whether the next round has work without anything new arriving.
    pub(crate) fn has_work(&self) -> bool {
        let exits = &self.host.io;
        self.has_delivery_failures() || exits.streams.has_work() || exits.is_readable()
    }

    pub(crate) fn has_delivery_failures(&self) -> bool {
        let exits = &self.host.io;
        !exits.unconnected.is_empty() || exits.datagram_sockets().any(DatagramSocket::has_failures)
    }

    /// Whether no other worker has left a message.
    pub(crate) fn is_handover_empty(&self) -> bool {
        self.host.io.links.iter().flatten().all(|neighbour| neighbour.receiver.is_empty())
    }

    /// Tells shards what could not be reached. What they try in its place, and fails too, is told with the next round.
    pub(crate) fn handle_delivery_failures(&mut self, now: Timestamp) {
        self.host.handle_delivery_failures(now);
        for (shard, flow) in std::mem::take(&mut self.host.io.unconnected) {
            self.host.handle_unconnected(now, shard, flow);
        }
    }

    pub(crate) fn handle_mailbox(&mut self, now: Timestamp, post: Mailbox) {
        // First: who knows a plan must not tell what is said afterwards to shards that are leaving.
        let mut told = 0;
        for (before, plan) in post.plans {
            self.host.handle_closed(now, post.closed.get(told..before).unwrap_or_default());
            self.host.handle_plan(&plan);
            told = before;
        }
        for peer in post.unreachable {
            self.host.handle_unreachable(now, peer);
        }
        self.host.handle_closed(now, post.closed.get(told..).unwrap_or_default());
        for (shard, query, answer) in post.answers {
            self.host.send_to_shard(now, shard, ShardMessage::Answer(query, answer));
        }
        for stored in post.store_results {
            let is_here = self.host.slot_of(stored.shard).is_some();
            let tokens = if is_here { Vec::new() } else { post.tokens.clone() };
            self.host.send_to_shard(now, stored.shard, ShardMessage::RecordResult(stored, tokens));
        }
        drop(post.tokens);
        for (shard, forgotten) in post.removals {
            self.host.send_to_shard(now, shard, ShardMessage::RemoveBindings(forgotten));
        }
        for inquiry in post.queries {
            // Who asked may have lost patience.
            match inquiry {
                WorkerQuery::Calls(limit, reply) => drop(reply.try_send(self.host.calls(now, limit))),
                WorkerQuery::Accounts(reply) => drop(reply.try_send(self.host.accounts(now))),
            }
        }
    }

    /// Deals with a batch from the sockets of `listener`; whether there was one. New work has its turn when nothing more of what is
    /// in progress waits, and at times all the same.
    pub(crate) fn receive(&mut self, listener: usize, clock: &Clock, inbox: &mut RecvBatch) -> bool {
        if let Some(port @ ListenerSocket::Tcp(_)) = self.host.io.sockets.get(listener) {
            let is_due = port.retry().is_some_and(|retry| retry <= clock.now());
            return (port.is_readable() || is_due) && self.host.io.accept(clock.now(), listener);
        }
        let is_any = self.receive_from(listener, Queue::InProgress, clock, inbox);
        let is_full = is_any && inbox.is_full();
        let new_work = self.host.io.new_work.get_mut(listener).and_then(Option::as_mut);
        if new_work.is_some_and(|queue| queue.should_defer(is_full)) {
            return true;
        }
        self.receive_from(listener, Queue::NewWork, clock, inbox) || is_any
    }

    fn receive_from(&mut self, listener: usize, queue: Queue, clock: &Clock, inbox: &mut RecvBatch) -> bool {
        let exits = &mut self.host.io;
        let outlet = match queue {
            Queue::InProgress => exits.sockets.get_mut(listener).and_then(ListenerSocket::as_datagram_mut),
            Queue::NewWork => exits.new_work.get_mut(listener).and_then(Option::as_mut).map(|queue| &mut queue.socket),
        };
        let Some(outlet) = outlet else { return false };
        let is_due = outlet.retry.is_some_and(|retry| retry <= clock.now());
        if !outlet.is_readable && !is_due {
            return false;
        }
        outlet.retry = None;
        if let Err(error) = outlet.recv(inbox) {
            let address = outlet.socket().local_addr();
            tracing::error!(%address, %error, "the socket cannot be read; trying again");
            outlet.retry = Some(clock.now() + RETRY_AFTER);
            self.host.io.counters.receive_errors += 1;
            return true;
        }
        if inbox.is_empty() {
            return false;
        }
        let pair = clock.pair();
        self.note_hot(listener);
        self.read_at = pair.monotonic;
        let first = inbox.iter().next().map_or(pair.monotonic, |datagram| pair.arrival(datagram.arrival));
        self.first_arrival = self.first_arrival.min(first);
        if queue == Queue::NewWork
            && let Some(Some(queue)) = self.host.io.new_work.get_mut(listener)
        {
            queue.note_wait(pair.monotonic.saturating_since(first));
        }
        self.host.admission.set_wait_queue(WaitQueue::Listener(listener));
        let listener = ListenerId(u16::try_from(listener).unwrap_or(u16::MAX));
        let arrived = || inbox.iter().map(|datagram| (pair.arrival(datagram.arrival), datagram));
        let now = pair.monotonic;
        if self.host.admission.is_enabled() && !self.host.io.is_sorted(listener) {
            // The kernel has not kept new work apart.
            for queue in [Queue::InProgress, Queue::NewWork] {
                self.handle_batch(now, listener, arrived().filter(|(_, datagram)| queue_of(datagram.bytes) == queue));
            }
        } else {
            self.handle_batch(now, listener, arrived());
        }
        true
    }

    fn handle_batch<'a>(
        &mut self,
        now: Timestamp,
        listener: ListenerId,
        datagrams: impl Iterator<Item = (Timestamp, Datagram<'a>)>,
    ) {
        let mut datagrams = datagrams.peekable();
        while datagrams.peek().is_some() {
            self.handle_datagrams(now, listener, datagrams.by_ref().take(READ_AHEAD));
        }
    }

    /// Whether what was read in this round has waited so long that this thread, or its machine, stood still meanwhile: more
    /// of it may be waiting, and what timers wait for may be in it.
    pub(crate) fn is_catching_up(&self, now: Timestamp) -> bool {
        now.saturating_since(self.first_arrival) > STALL_THRESHOLD
    }

    /// The next round reads from every socket, whatever the kernel has said.
    pub(crate) fn mark_all_readable(&mut self) {
        self.host.io.datagram_sockets_mut().for_each(|outlet| outlet.is_readable = true);
    }

    /// Receives from the socket that was the last to have something, whatever the kernel has said; whether it had.
    pub(crate) fn try_hot(&mut self, clock: &Clock, inbox: &mut RecvBatch) -> bool {
        let mut may_be_read = false;
        for outlet in self.host.io.datagram_sockets_of(self.hot).filter(|outlet| outlet.retry.is_none()) {
            (outlet.is_readable, may_be_read) = (true, true);
        }
        may_be_read && self.receive(self.hot, clock, inbox)
    }

    /// Takes note of which socket had a batch.
    fn note_hot(&mut self, listener: usize) {
        if listener != self.hot {
            // Of which the kernel cannot tell again remains the one that is asked.
            if !self.wait_for_hot() {
                return;
            }
            self.hot = listener;
        }
        self.hot_for = self.hot_for.saturating_add(1);
        if self.hot_for >= BUSY_POLL_AFTER {
            self.host.io.datagram_sockets_of(self.hot).for_each(DatagramSocket::deregister);
        }
    }

    /// Has the kernel tell of all sockets, so that the worker can sleep; whether it does.
    pub(crate) fn wait_for_hot(&mut self) -> bool {
        self.hot_for = 0;
        let mut all = true;
        for outlet in self.host.io.datagram_sockets_of(self.hot) {
            // Every socket of it is put back, also after one that the kernel refused.
            all &= outlet.reregister();
        }
        all
    }

    /// Asks the socket that the kernel does not tell of.
    pub(crate) fn poll_hot(&mut self) {
        self.host.io.datagram_sockets_of(self.hot).for_each(DatagramSocket::poll_readiness);
    }

    /// Reads some datagrams, and then deals with them.
    fn handle_datagrams<'a>(
        &mut self,
        now: Timestamp,
        listener: ListenerId,
        datagrams: impl Iterator<Item = (Timestamp, Datagram<'a>)>,
    ) {
        let mut read: SmallVec<[IncomingMessage<'a>; READ_AHEAD]> = SmallVec::new();
        for (arrival, Datagram { bytes, peer, .. }) in datagrams {
            let flow = Flow::new(listener, Transport::Udp, peer);
            if bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
                self.handle_keep_alive(flow, bytes);
                continue;
            }
            if self.host.filters_out(peer.ip(), bytes) {
                self.host.io.counters.shed += 1;
                continue;
            }
            // In its place first, for a peek is large.
            read.push(IncomingMessage { arrival, flow, bytes, peek: Peek::default(), owner: None });
            let Some(IncomingMessage { peek, owner, .. }) = read.last_mut() else { continue };
            *owner = self.host.steer(now, bytes, peek);
        }
        self.prefetch(now, &read);
        for IncomingMessage { arrival, flow, bytes, peek, owner } in &read {
            // Not when it was read: a trace shows a message before what came of it, and learns from that what to show next.
            self.host.io.tracer.received(now, flow, bytes);
            let Some((id, steered)) = owner else {
                self.host.note_malformed(now, (*arrival, flow.peer.ip()), bytes);
                continue;
            };
            let worker = self.host.io.worker_of(*id);
            if worker == self.host.io.index {
                self.host.deliver(now, *id, (*arrival, *flow), (peek, steered), bytes);
            } else {
                self.host.io.hand_over(worker, *id, *arrival, *flow, bytes);
            }
        }
    }

    /// Answers a ping. A pong is not a ping, so two servers do not keep one going between them.
    //= rfc5626#3.5.1
    fn handle_keep_alive(&mut self, flow: Flow, bytes: &[u8]) {
        self.host.io.counters.keep_alives += 1;
        if bytes == b"\r\n\r\n" {
            self.host.answer(flow, b"\r\n");
        }
    }

    /// Deals with up to `limit` messages that each of the other workers left; whether there was any.
    pub(crate) fn receive_handover(&mut self, now: Timestamp, limit: usize) -> bool {
        let mut is_any = false;
        for worker in 0..self.host.io.links.len() {
            let mut left = limit;
            while left > 0 {
                let taken = self.receive_handover_from(now, worker, left.min(READ_AHEAD));
                if taken == 0 {
                    break;
                }
                is_any = true;
                left -= taken;
            }
        }
        is_any
    }

    /// Up to `most` of them from one worker, read and then dealt with as datagrams are; how many there were.
    fn receive_handover_from(&mut self, now: Timestamp, worker: usize, most: usize) -> usize {
        let mut taken: SmallVec<[HandoverMessage; READ_AHEAD]> = SmallVec::new();
        if let Some(Some(neighbour)) = self.host.io.links.get_mut(worker) {
            taken.extend(iter::from_fn(|| neighbour.receiver.poll()).take(most));
        }
        if taken.is_empty() {
            return 0;
        }
        self.handle_handover(now, &taken);
        let count = taken.len();
        if let Some(Some(neighbour)) = self.host.io.links.get_mut(worker) {
            // Where it is, for to hand on all of it would copy it.
            taken.drain(..).for_each(|handed| neighbour.receiver.recycle(handed.bytes));
        }
        count
    }

    /// Reads what another worker left, and then deals with it.
    fn handle_handover(&mut self, now: Timestamp, taken: &[HandoverMessage]) {
        self.host.admission.set_wait_queue(WaitQueue::OtherWorkers);
        // Another processor has written them.
        taken.iter().for_each(|handed| prefetch(&handed.bytes, handed.bytes.len()));
        let mut read: SmallVec<[IncomingMessage<'_>; READ_AHEAD]> = SmallVec::new();
        for handed in taken {
            self.first_arrival = self.first_arrival.min(handed.arrival);
            // Its receiver may have read the clock later than this round began.
            let arrival = handed.arrival.min(now);
            let (flow, bytes) = (handed.flow, &handed.bytes[..]);
            read.push(IncomingMessage { arrival, flow, bytes, peek: Peek::default(), owner: None });
            if handed.command == HandoverCommand::Deliver
                && let Some(IncomingMessage { peek, owner, .. }) = read.last_mut()
            {
                self.host.io.counters.taken_over += 1;
                *owner = self.host.read_steered(now, bytes, peek).map(|steered| (handed.shard, steered));
            }
        }
        self.prefetch(now, &read);
        for (handed, IncomingMessage { arrival, flow, bytes, peek, owner }) in taken.iter().zip(&read) {
            match (handed.command, owner) {
                (HandoverCommand::Deliver, Some((id, steered))) => {
                    self.host.deliver(now, *id, (*arrival, *flow), (peek, steered), bytes);
                }
                (HandoverCommand::Deliver, None) => {}
                (HandoverCommand::Barrier, _) => self.host.handle_barrier(),
                _ => self.host.io.execute(now, handed),
            }
        }
    }

    /// Shows what was read to the shards that will be told of it.
    fn prefetch(&mut self, now: Timestamp, read: &[IncomingMessage<'_>]) {
        self.host.prefetch(now, read.iter().filter_map(|one| Some((one.owner.as_ref()?, &one.peek, one.bytes))));
    }
}
