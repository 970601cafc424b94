//! Input side of a worker: one round reads its sockets and passes messages to its shards.

use std::iter;
use std::time::Duration;

use smallvec::SmallVec;
use strowger_foundation::{Flow, ListenerId, ShardId, Timestamp, Transport, prefetch};
use strowger_message::{Fault, Peek};
use strowger_net::{Clock, Datagram, RecvBatch, collect_freed_memory, return_freed_memory};
use strowger_overload::{Queue, queue_of};
use strowger_shard::SteeringResult;
use strowger_timing::MessageType;
use strowger_wire::stun;

use crate::admission::WaitQueue;
use crate::calls::WorkerQuery;
use crate::datagram_socket::DatagramSocket;
use crate::handover::{HANDOVER_BATCH, HandoverCommand, HandoverMessage};
use crate::listener_socket::ListenerSocket;
use crate::migration::ShardMessage;
use crate::packet_timer::ReceiveCall;
use crate::process_handover::Relayed;
use crate::shard_factory::ShardFactory;
use crate::shard_host::ShardHost;
use crate::source::Source;
use crate::timing::MessageArrival;
use crate::worker_handle::Mailbox;

/// Time before a socket is retried after a receive error.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Age of a received message that indicates that the worker was stalled.
pub(crate) const STALL_THRESHOLD: Duration = Duration::from_millis(100);

/// Number of messages parsed before the first of them is handled. Parsing and handling each fill about one
/// instruction cache; alternating between them would evict one with the other.
const READ_AHEAD: usize = HANDOVER_BATCH;

/// Number of consecutive batches from one socket, none preceded by sleep, after which the worker polls that socket
/// and deregisters it from mio. Deregistering and reregistering cost two system calls; each datagram then costs less.
pub(crate) const BUSY_POLL_AFTER: u32 = 256;

/// A parsed message and its owner; `None` if nothing is left to do.
struct IncomingMessage<'a> {
    arrival: Timestamp,
    flow: Flow,
    bytes: &'a [u8],
    peek: Peek<'a>,
    owner: Option<(ShardId, SteeringResult)>,
    /// Why it could not be parsed.
    fault: Option<Fault>,
}

/// The input side of a worker, with its shards.
pub(crate) struct Ingress<M: ShardFactory> {
    pub(crate) host: ShardHost<M>,
    /// Read buffer of connections.
    pub(crate) scratch: Vec<u8>,
    /// Replies of a WebSocket to its peer, until they are queued.
    pub(crate) replies: Vec<u8>,
    /// The listener whose socket had the most recent datagrams.
    hot: usize,
    /// Consecutive batches from the hot socket without sleep.
    hot_for: u32,
    /// Time since which streams have continuously had input.
    pub(crate) streams_busy_since: Timestamp,
    /// Time at which the last batch was received; one clock reading serves the whole batch.
    read_at: Timestamp,
    /// Earliest arrival of what this round has handled; [`Timestamp::MAX`] if nothing.
    first_arrival: Timestamp,
}

impl<M: ShardFactory> Ingress<M> {
    pub(crate) fn new(desk: ShardHost<M>) -> Self {
        let (read_at, first_arrival) = (Timestamp::ZERO, Timestamp::MAX);
        Self {
            host: desk,
            scratch: vec![0; SCRATCH_BYTES],
            replies: Vec::new(),
            hot: 0,
            hot_for: 0,
            streams_busy_since: Timestamp::ZERO,
            read_at,
            first_arrival,
        }
    }

    /// Returns the earliest arrival of what was handled since the last call.
    pub(crate) fn take_first_arrival(&mut self) -> Option<Timestamp> {
        let first = std::mem::replace(&mut self.first_arrival, Timestamp::MAX);
        (first != Timestamp::MAX).then_some(first)
    }

    /// Returns when the last batch was received.
    pub(crate) fn read_at(&self) -> Timestamp {
        self.read_at
    }

    /// Returns whether the next round has work even if nothing new arrives.
    pub(crate) fn has_work(&self) -> bool {
        let exits = &self.host.io;
        self.has_delivery_failures()
            || exits.reads_streams() && exits.streams.has_work()
            || !exits.is_frozen && exits.is_readable()
    }

    pub(crate) fn has_delivery_failures(&self) -> bool {
        let exits = &self.host.io;
        !exits.unconnected.is_empty() || exits.datagram_sockets().any(DatagramSocket::has_failures)
    }

    /// Returns whether no other worker has handed over a message.
    pub(crate) fn is_handover_empty(&self) -> bool {
        self.host.io.links.iter().flatten().all(|neighbour| neighbour.receiver.is_empty())
    }

    /// Notifies shards of delivery failures. Failures of their next attempts are reported in the next round.
    pub(crate) fn handle_delivery_failures(&mut self, now: Timestamp) {
        self.host.handle_delivery_failures(now);
        for (shard, flow) in std::mem::take(&mut self.host.io.unconnected) {
            self.host.handle_unconnected(now, shard, flow);
        }
    }

    pub(crate) fn handle_mailbox(&mut self, now: Timestamp, post: Mailbox) {
        // Plans come first: after a plan, nothing may be delivered to shards that are leaving.
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
        for (shard, engine, message) in post.media {
            self.host.send_to_shard(now, shard, ShardMessage::Media(engine, message));
        }
        self.host.io.counters.media_drops += post.media_drops;
        self.host.io.counters.relay_received += post.relayed.len() as u64;
        self.host.io.counters.relay_drops += post.relay_drops;
        for Relayed { kind, shard, message } in post.relayed {
            self.host.handle_relayed(now, kind, shard, message);
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
        for query in post.queries {
            // The requester may have timed out.
            match query {
                WorkerQuery::Calls(limit, reply) => drop(reply.try_send(self.host.calls(now, limit))),
                WorkerQuery::EndCalls(call_id, reply) => drop(reply.try_send(self.host.end_calls(now, &call_id))),
                WorkerQuery::Accounts(reply) => drop(reply.try_send(self.host.accounts(now))),
                WorkerQuery::DestinationTimes(reply) => drop(reply.try_send(self.host.destination_times(now))),
                WorkerQuery::ExportStates(reply) => drop(reply.try_send(self.host.export_states(now))),
                WorkerQuery::ImportState(state, reply) => drop(reply.try_send(self.host.import_state(now, &state))),
                WorkerQuery::HandOver(reply) => {
                    self.host.hand_over(now);
                    let _ = reply.try_send(());
                }
                WorkerQuery::CollectMemory(false) => collect_freed_memory(),
                WorkerQuery::CollectMemory(true) => return_freed_memory(),
                WorkerQuery::Peers(ids, reply) => drop(reply.try_send(self.host.io.streams.peers(&ids))),
                WorkerQuery::Times(reply) => drop(reply.try_send(self.host.times())),
                WorkerQuery::Freeze(is_frozen, reply) => {
                    self.host.set_frozen(is_frozen);
                    let _ = reply.try_send(());
                }
                WorkerQuery::Remaining(reply) => drop(reply.try_send(self.host.remaining(now))),
                WorkerQuery::Handover(reply) => drop(reply.try_send(self.host.collect_handover(now))),
                WorkerQuery::EndConnections(reply) => {
                    self.host.io.streams.end_all(now);
                    let _ = reply.try_send(());
                }
                WorkerQuery::Release(successor, closes, reply) => {
                    self.host.io.release(now, successor, closes);
                    let _ = reply.try_send(());
                }
            }
        }
    }

    /// Handles a batch from the sockets of `listener`; returns whether there was one. New work is read when no more
    /// work in progress is waiting, and occasionally even then.
    pub(crate) fn receive(&mut self, listener: usize, clock: &Clock, inbox: &mut RecvBatch) -> bool {
        if self.host.io.is_frozen {
            return false;
        }
        if let Some(port @ ListenerSocket::Stream(_)) = self.host.io.sockets.get(listener) {
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
            tracing::error!(%address, %error, "the socket cannot be read; retrying");
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
        let call = ReceiveCall {
            socket: 2 * listener + usize::from(queue == Queue::NewWork),
            now: pair.monotonic,
            datagrams: inbox.len(),
            is_full: inbox.is_full(),
        };
        self.host.io.timing.begin_batch(call, inbox.iter().map(|datagram| pair.arrival(datagram.arrival)));
        let listener = ListenerId(u16::try_from(listener).unwrap_or(u16::MAX));
        let arrived = || inbox.iter().map(|datagram| (pair.arrival(datagram.arrival), datagram));
        let now = pair.monotonic;
        if self.host.admission.is_enabled() && !self.host.io.is_sorted(listener) {
            // The kernel does not separate new work here.
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

    /// Returns whether messages of this round waited so long that the thread or the machine must have been stalled.
    /// More messages may be waiting, including ones that timers wait for.
    pub(crate) fn is_catching_up(&self, now: Timestamp) -> bool {
        now.saturating_since(self.first_arrival) > STALL_THRESHOLD
    }

    /// Makes the next round read every socket, regardless of kernel events.
    pub(crate) fn mark_all_readable(&mut self) {
        self.host.io.datagram_sockets_mut().for_each(|outlet| outlet.is_readable = true);
    }

    /// Receives from the hot socket, regardless of kernel events; returns whether there was anything.
    pub(crate) fn try_hot(&mut self, clock: &Clock, inbox: &mut RecvBatch) -> bool {
        let mut may_be_read = false;
        if self.host.io.is_frozen {
            return false;
        }
        for outlet in self.host.io.datagram_sockets_of(self.hot).filter(|outlet| outlet.retry.is_none()) {
            (outlet.is_readable, may_be_read) = (true, true);
        }
        may_be_read && self.receive(self.hot, clock, inbox)
    }

    /// Records which socket had a batch.
    fn note_hot(&mut self, listener: usize) {
        if listener != self.hot {
            // If the kernel cannot report the old socket again, that one stays the polled socket.
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

    /// Registers the hot socket for kernel events, so that the worker can sleep; returns whether that succeeded.
    pub(crate) fn wait_for_hot(&mut self) -> bool {
        self.hot_for = 0;
        let mut all = true;
        if self.host.io.is_frozen {
            return all;
        }
        for outlet in self.host.io.datagram_sockets_of(self.hot) {
            // Reregister every socket, even after a failure.
            all &= outlet.reregister();
        }
        all
    }

    /// Polls the socket that is deregistered from kernel events.
    pub(crate) fn poll_hot(&mut self) {
        if self.host.io.is_frozen {
            return;
        }
        self.host.io.datagram_sockets_of(self.hot).for_each(DatagramSocket::poll_readiness);
    }

    /// Parses some datagrams, then handles them.
    fn handle_datagrams<'a>(
        &mut self,
        now: Timestamp,
        listener: ListenerId,
        datagrams: impl Iterator<Item = (Timestamp, Datagram<'a>)>,
    ) {
        let mut read: SmallVec<[IncomingMessage<'a>; READ_AHEAD]> = SmallVec::new();
        for (arrival, Datagram { bytes, peer, .. }) in datagrams {
            if self.host.io.streams.banned.contains(peer.ip()) {
                self.host.io.counters.banned += 1;
                self.host.io.timing.count(arrival, || MessageType::of(bytes));
                continue;
            }
            let flow = Flow::new(listener, Transport::Udp, peer);
            // No SIP message begins with a control character.
            if bytes.first().is_none_or(|byte| *byte < b' ') && self.is_handled_keep_alive(flow, bytes) {
                self.host.io.timing.count(arrival, || MessageType::KeepAlive);
                continue;
            }
            if self.host.filters_out(Source::at(peer.ip()), bytes) {
                self.host.io.counters.shed += 1;
                self.host.io.timing.count(arrival, || MessageType::of(bytes));
                continue;
            }
            // Constructed in place, because a peek is large.
            read.push(IncomingMessage { arrival, flow, bytes, peek: Peek::default(), owner: None, fault: None });
            let Some(IncomingMessage { peek, owner, fault, .. }) = read.last_mut() else { continue };
            *owner = self.host.steer(now, bytes, peek);
            if owner.is_none() {
                *fault = self.host.take_fault();
            }
        }
        self.prefetch(now, &read);
        self.host.io.timing.end_common(read.len());
        for IncomingMessage { arrival, flow, bytes, peek, owner, fault } in &read {
            // Not while parsing: a trace shows a message before its effects and decides from it what to show next.
            self.host.io.tracer.received(now, flow, bytes);
            let measured = MessageArrival::new(flow.transport, *arrival, now);
            let Some((id, steered)) = owner else {
                self.host.io.timing.begin_message(peek);
                self.host.note_malformed(now, (*arrival, flow.peer.ip()), bytes);
                if let Some(fault) = *fault {
                    self.host.report_malformed(now, flow, fault);
                }
                self.host.io.timing.end_message(measured);
                continue;
            };
            let worker = self.host.io.worker_of(*id);
            if worker == self.host.io.index {
                self.host.io.timing.begin_message(peek);
                self.host.deliver(now, *id, (*arrival, *flow), (peek, steered), bytes);
                self.host.io.timing.end_message(measured);
            } else {
                self.host.io.hand_over(worker, *id, (*arrival, Some(now)), *flow, bytes);
                self.host.io.timing.skip();
            }
        }
    }

    /// Answers a ping; returns whether the datagram is a keep-alive. A pong is not a ping, so two servers cannot ping
    /// each other endlessly.
    //= rfc5626#3.5.1
    fn is_handled_keep_alive(&mut self, flow: Flow, bytes: &[u8]) -> bool {
        let mut response = [0; stun::MAX_RESPONSE];
        let counters = &mut self.host.io.counters;
        if bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
            counters.keep_alives += 1;
            if bytes == b"\r\n\r\n" {
                self.host.answer(flow, b"\r\n");
            }
            return true;
        }
        //= rfc5626#5.4:stun
        //= rfc5626#6:keep-alive
        //= rfc5626#8:same-port
        match stun::handle_datagram(bytes, flow.peer, &mut response) {
            stun::Outcome::NotStun => return false,
            stun::Outcome::Ignored => counters.stun_ignored += 1,
            stun::Outcome::Success(length) | stun::Outcome::UnknownAttributes(length) => {
                counters.stun_answered += 1;
                self.host.answer(flow, response.get(..length).unwrap_or_default());
            }
        }
        true
    }

    /// Handles up to `limit` messages handed over by each of the other workers; returns whether there were any.
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

    /// Handles up to `most` messages from one worker, parsing first as for datagrams; returns their number.
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
        self.host.io.taken += count as u64;
        if let Some(Some(neighbour)) = self.host.io.links.get_mut(worker) {
            // In place: moving the whole message would copy it.
            taken.drain(..).for_each(|handed| neighbour.receiver.recycle(handed.bytes));
        }
        count
    }

    /// Parses the messages handed over by another worker, then handles them.
    fn handle_handover(&mut self, now: Timestamp, taken: &[HandoverMessage]) {
        self.host.admission.set_wait_queue(WaitQueue::OtherWorkers);
        self.host.io.timing.begin();
        // Another processor has written them.
        taken.iter().for_each(|handed| prefetch(&handed.bytes, handed.bytes.len()));
        let mut read: SmallVec<[IncomingMessage<'_>; READ_AHEAD]> = SmallVec::new();
        for handed in taken {
            self.first_arrival = self.first_arrival.min(handed.arrival);
            // The receiving worker may have read the clock after this round began.
            let arrival = handed.arrival.min(now);
            let (flow, bytes) = (handed.flow, &handed.bytes[..]);
            read.push(IncomingMessage { arrival, flow, bytes, peek: Peek::default(), owner: None, fault: None });
            if handed.command == HandoverCommand::Deliver
                && let Some(IncomingMessage { peek, owner, .. }) = read.last_mut()
            {
                self.host.io.counters.handover_received += 1;
                *owner = self.host.read_steered(now, bytes, peek).map(|steered| (handed.shard, steered));
            }
        }
        self.prefetch(now, &read);
        self.host.io.timing.end_common(read.len());
        for (handed, IncomingMessage { arrival, flow, bytes, peek, owner, .. }) in taken.iter().zip(&read) {
            match (handed.command, owner) {
                (HandoverCommand::Deliver, Some((id, steered))) => {
                    self.host.io.timing.begin_message(peek);
                    self.host.deliver(now, *id, (*arrival, *flow), (peek, steered), bytes);
                    self.host.io.timing.end_message(MessageArrival::handed_over(handed, now));
                    continue;
                }
                (HandoverCommand::Deliver, None) => {}
                (HandoverCommand::Barrier, _) => self.host.handle_barrier(),
                _ => self.host.io.execute(now, handed),
            }
            self.host.io.timing.skip();
        }
    }

    /// Lets shards prefetch state for the parsed messages.
    fn prefetch(&mut self, now: Timestamp, read: &[IncomingMessage<'_>]) {
        self.host.prefetch(now, read.iter().filter_map(|one| Some((one.owner.as_ref()?, &one.peek, one.bytes))));
    }
}

/// Maximum bytes read from one connection per turn.
pub(crate) const SCRATCH_BYTES: usize = 32 * 1024;
