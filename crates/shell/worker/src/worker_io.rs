//! Outputs of a worker: sockets, connections, other workers, DNS.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use strowger_foundation::{Flow, HostId, ListenerId, ShardId, Timestamp, Transport};
use strowger_locate::{LocateError, LocateQuery, QueryId};
use strowger_message::MAX_STREAM_MESSAGE;
use strowger_net::{self as net, OrderingKey};

use crate::datagram_socket::{DatagramSocket, Receiving};
use crate::handover::{HandoverCommand, HandoverMessage, MIN_RING_CAPACITY, Receiver, RingFull, Sender};
use crate::listener_socket::{ListenerSocket, SocketUpdate};
use crate::media_socket::MediaSocket;
use crate::migration::ShardMessage;
use crate::new_work_queue::NewWorkQueue;
use crate::options::PacketSteering;
use crate::predecessors::{Predecessors, ProcessLink};
use crate::record_result::RecordResult;
use crate::record_sink::{RecordBatch, RecordSink};
use crate::resolve::{MAX_DNS_QUERIES, Reply, Resolve};
use crate::status::{Counters, add_net};
use crate::streams::Streams;
use crate::timing::Timing;
use crate::trace::Tracer;
use crate::worker_handle::WorkerHandle;

/// Maximum number of stream messages waiting for room in the ring to one other worker. Beyond it they are lost, and
/// their shards are notified.
pub const HANDOVER_OVERFLOW: usize = 4096;

/// The same limit in bytes.
pub const HANDOVER_OVERFLOW_BYTES: usize = 8 * 1024 * 1024;

/// Number of messages waiting for one other worker at which streams are no longer read for it.
const STREAMS_IN_RING: usize = MIN_RING_CAPACITY / 2;

const _: () = assert!(HANDOVER_OVERFLOW_BYTES > MAX_STREAM_MESSAGE);

/// Maximum number of connections accepted on one listener before other work.
const ACCEPT_BATCH: usize = 64;

/// Maximum number of such batches when a listener closes.
const LAST_ACCEPTS: usize = 64;

/// Maximum delay before a busy worker wakes others for messages handed over to them.
const MAX_WAKE_DELAY: Duration = Duration::from_micros(100);

/// Time before a listener is retried after an accept error.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The link to one other worker.
pub(crate) struct WorkerLink {
    pub(crate) handle: Arc<WorkerHandle>,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    /// Whether messages were sent since the other worker was last woken.
    pub(crate) is_wake_pending: bool,
    /// Stream messages that found no room in the ring, in order.
    overflow: VecDeque<HandoverMessage>,
    overflow_bytes: usize,
}

impl WorkerLink {
    pub(crate) fn new(contact: Arc<WorkerHandle>, give: Sender, take: Receiver) -> Self {
        Self {
            handle: contact,
            sender: give,
            receiver: take,
            is_wake_pending: false,
            overflow: VecDeque::new(),
            overflow_bytes: 0,
        }
    }

    /// Returns whether a message sent at this point would go into the ring.
    fn has_room(&self) -> bool {
        self.overflow.is_empty() && !self.sender.is_full()
    }

    /// Returns whether a stream message may be sent. Streams can wait, so they leave most of the ring to datagrams.
    fn has_room_for_streams(&self) -> bool {
        self.overflow.is_empty() && self.sender.waiting() < STREAMS_IN_RING
    }

    /// Sends a message that may be lost.
    fn send(
        &mut self,
        id: ShardId,
        arrival: (Timestamp, Option<Timestamp>),
        flow: Flow,
        bytes: &[u8],
    ) -> Result<(), RingFull> {
        self.sender.send(HandoverCommand::Deliver, id, arrival, flow, bytes)?;
        self.is_wake_pending = true;
        Ok(())
    }

    /// Sends a message that must not be lost; it waits in the overflow queue if the ring is full.
    fn send_or_queue(
        &mut self,
        errand: HandoverCommand,
        shard: ShardId,
        now: Timestamp,
        flow: Flow,
        bytes: &[u8],
    ) -> Result<(), RingFull> {
        self.is_wake_pending = true;
        if self.has_room() {
            return self.sender.send(errand, shard, (now, None), flow, bytes);
        }
        let waiting = self.overflow_bytes + bytes.len();
        if self.overflow.len() >= HANDOVER_OVERFLOW || waiting > HANDOVER_OVERFLOW_BYTES {
            return Err(RingFull);
        }
        self.overflow_bytes = waiting;
        let (received, bytes) = (None, bytes.to_vec());
        self.overflow.push_back(HandoverMessage { command: errand, shard, arrival: now, received, flow, bytes });
        Ok(())
    }

    /// Sends a barrier. There is always room for one, because only one plan runs at a time.
    fn send_barrier(&mut self) {
        self.is_wake_pending = true;
        let nowhere = Flow::new(ListenerId(0), Transport::Udp, ([0, 0, 0, 0], 0).into());
        let (shard, arrival, bytes) = (ShardId(0), Timestamp::MAX, Vec::new());
        let (command, received) = (HandoverCommand::Barrier, None);
        let mark = HandoverMessage { command, shard, arrival, received, flow: nowhere, bytes };
        if self.overflow.is_empty() {
            self.sender.push(mark).unwrap_or_else(|mark| self.overflow.push_back(mark));
        } else {
            self.overflow.push_back(mark);
        }
    }

    /// Moves waiting messages into the ring as far as there is room.
    fn flush_overflow(&mut self) {
        while let Some(handed) = self.overflow.pop_front() {
            let length = handed.bytes.len();
            if let Err(handed) = self.sender.push(handed) {
                self.overflow.push_front(handed);
                return;
            }
            self.overflow_bytes -= length;
            self.is_wake_pending = true;
        }
    }
}

/// All outputs of one worker.
pub(crate) struct WorkerIo {
    /// Index of this worker.
    pub(crate) index: usize,
    pub(crate) handle: Arc<WorkerHandle>,
    /// Sockets by listener.
    pub(crate) sockets: Vec<ListenerSocket>,
    /// New-work queues by listener, if present.
    pub(crate) new_work: Vec<Option<NewWorkQueue>>,
    pub(crate) streams: Streams,
    /// Links by worker; `None` for the worker itself.
    pub(crate) links: Vec<Option<WorkerLink>>,
    pub(crate) resolver: Option<Arc<dyn Resolve>>,
    pub(crate) media: Arc<MediaSocket>,
    pub(crate) record_sink: Option<Arc<dyn RecordSink>>,
    /// Records of this round, for the record sink.
    pub(crate) records: Vec<RecordResult>,
    /// Flows of this worker's shards that could not be reached.
    pub(crate) unconnected: Vec<(ShardId, Flow)>,
    /// Processes before this one that still have transactions.
    pub(crate) predecessors: Option<Arc<Predecessors>>,
    /// Which workers receive datagrams.
    pub(crate) steering: PacketSteering,
    /// The process that has taken over the sockets, if one has.
    pub(crate) successor: Option<Arc<dyn ProcessLink>>,
    /// Number of this process.
    pub(crate) process: u8,
    /// Whether nothing is read: the sockets are about to be the next process's, or are.
    pub(crate) is_frozen: bool,
    /// Number of messages taken from other workers.
    pub(crate) taken: u64,
    pub(crate) tracer: Arc<Tracer>,
    pub(crate) counters: Counters,
    /// Counters of sockets that were closed.
    pub(crate) closed_sockets: net::Counters,
    pub(crate) timing: Timing,
    /// Time since which a wake-up of another worker is pending.
    pub(crate) wake_owed_since: Option<Timestamp>,
    /// Worker of each shard, or its destination while in transit, as known to this worker.
    pub(crate) owners: Vec<u16>,
}

impl WorkerIo {
    /// Returns the worker of a shard.
    pub(crate) fn worker_of(&self, shard: ShardId) -> usize {
        self.owners.get(usize::from(shard.0)).copied().map_or(0, usize::from)
    }

    /// Returns all datagram sockets.
    pub(crate) fn datagram_sockets(&self) -> impl Iterator<Item = &DatagramSocket> {
        let new_work = self.new_work.iter().flatten().map(|queue| &queue.socket);
        self.sockets.iter().filter_map(ListenerSocket::as_datagram).chain(new_work)
    }

    /// Returns all datagram sockets, mutably.
    pub(crate) fn datagram_sockets_mut(&mut self) -> impl Iterator<Item = &mut DatagramSocket> {
        let new_work = self.new_work.iter_mut().flatten().map(|queue| &mut queue.socket);
        self.sockets.iter_mut().filter_map(ListenerSocket::as_datagram_mut).chain(new_work)
    }

    /// Returns the datagram sockets of one listener in the order in which they are read.
    pub(crate) fn datagram_sockets_of(&mut self, listener: usize) -> impl Iterator<Item = &mut DatagramSocket> {
        let new_work = self.new_work.get_mut(listener).and_then(Option::as_mut).map(|queue| &mut queue.socket);
        self.sockets.get_mut(listener).and_then(ListenerSocket::as_datagram_mut).into_iter().chain(new_work)
    }

    /// Carries out a change of the sockets.
    pub(crate) fn update_socket(&mut self, now: Timestamp, update: SocketUpdate) {
        match update {
            SocketUpdate::Open { listener, socket, new_work } => {
                // A worker learns of all new listeners at once and in order, so there are no gaps.
                while self.sockets.len() <= listener {
                    self.sockets.push(ListenerSocket::Closed(socket.transport()));
                    self.new_work.push(None);
                }
                if let (Some(place), Some(second)) = (self.sockets.get_mut(listener), self.new_work.get_mut(listener)) {
                    (*place, *second) = (*socket, new_work.map(|queue| *queue));
                }
            }
            SocketUpdate::Close { listener } => self.close_socket(now, listener),
        }
    }

    /// Closes the sockets of a listener. Connections that have been established are accepted before.
    fn close_socket(&mut self, now: Timestamp, listener: usize) {
        if let Some(ListenerSocket::Stream(entrance)) = self.sockets.get_mut(listener) {
            entrance.is_readable = true;
        }
        let is_any = |_: &usize| self.accept(now, listener);
        (0..LAST_ACCEPTS).take_while(is_any).for_each(drop);
        if let Some(ListenerSocket::Udp(socket)) = self.sockets.get_mut(listener) {
            self.timing.flush(listener, socket);
        }
        let counted: Vec<_> = self.datagram_sockets_of(listener).map(|socket| *socket.socket().counters()).collect();
        counted.iter().for_each(|counters| add_net(&mut self.closed_sockets, counters));
        if let Some(place) = self.sockets.get_mut(listener) {
            *place = ListenerSocket::Closed(place.transport());
        }
        self.new_work.get_mut(listener).into_iter().for_each(|queue| *queue = None);
    }

    /// Returns whether connections are read.
    pub(crate) fn reads_streams(&self) -> bool {
        !self.is_frozen || self.successor.is_some()
    }

    /// Returns whether the kernel separates new work on every datagram listener.
    pub(crate) fn is_all_sorted(&self) -> bool {
        self.sockets
            .iter()
            .zip(&self.new_work)
            .all(|(port, new_work)| port.as_datagram().is_none() || new_work.is_some())
    }

    /// Returns whether the kernel separates new work on a listener.
    pub(crate) fn is_sorted(&self, listener: ListenerId) -> bool {
        self.new_work.get(usize::from(listener.0)).is_some_and(Option::is_some)
    }

    /// Returns whether input may be waiting.
    pub(crate) fn is_readable(&self) -> bool {
        self.sockets.iter().any(ListenerSocket::is_readable)
            || self.new_work.iter().flatten().any(|queue| queue.socket.is_readable)
    }

    /// Returns when a socket that failed is retried.
    pub(crate) fn next_retry(&self) -> Timestamp {
        let new_work = self.new_work.iter().flatten().filter_map(|queue| queue.socket.retry);
        self.sockets.iter().filter_map(ListenerSocket::retry).chain(new_work).min().unwrap_or(Timestamp::MAX)
    }

    /// Returns the total number of shards of all workers.
    pub(crate) fn shards(&self) -> u16 {
        u16::try_from(self.owners.len()).unwrap_or(u16::MAX)
    }

    /// Records the new worker of a shard.
    pub(crate) fn assign(&mut self, shard: ShardId, worker: usize) {
        if let (Some(owner), Ok(worker)) = (self.owners.get_mut(usize::from(shard.0)), u16::try_from(worker)) {
            *owner = worker;
        }
    }

    /// Returns the number of other workers.
    pub(crate) fn others(&self) -> usize {
        self.links.iter().flatten().count()
    }

    /// Returns the handle of any worker, including this one.
    pub(crate) fn handle_of(&self, worker: usize) -> Option<&Arc<WorkerHandle>> {
        if worker == self.index {
            return Some(&self.handle);
        }
        self.links.get(worker)?.as_ref().map(|neighbour| &neighbour.handle)
    }

    /// Makes the first `active` workers receive datagrams.
    pub(crate) fn receive_at(&self, active: usize) {
        // The next process decides, if it has the sockets.
        if self.is_frozen {
            return;
        }
        for (port, new_work) in self.sockets.iter().zip(&self.new_work) {
            if let Some(outlet) = port.as_datagram() {
                let (all, steering, is_sorted) = (self.links.len(), self.steering, new_work.is_some());
                let receivers = Receiving { active, all, steering, is_sorted };
                receivers.apply(outlet.socket());
            }
        }
    }

    /// Sends another worker a barrier: everything sent after it follows the latest plan.
    pub(crate) fn send_barrier(&mut self, worker: usize) {
        if let Some(Some(neighbour)) = self.links.get_mut(worker) {
            neighbour.send_barrier();
        }
    }

    /// Notifies another worker that shards have arrived.
    pub(crate) fn notify_arrivals(&self, worker: usize) {
        if let Some(contact) = self.handle_of(worker) {
            contact.notify_arrivals();
        }
    }

    /// Notifies all other workers of an unreachable peer.
    pub(crate) fn notify_unreachable(&mut self, peer: SocketAddr) {
        for neighbour in self.links.iter_mut().flatten() {
            neighbour.handle.notify_unreachable(peer);
            neighbour.is_wake_pending = true;
        }
    }

    /// Forwards a message for a shard that is elsewhere to its worker.
    pub(crate) fn forward(&mut self, shard: ShardId, word: ShardMessage) {
        let worker = self.worker_of(shard);
        debug_assert_ne!(worker, self.index, "{shard} is here, or awaited");
        let Some(contact) = self.handle_of(worker).filter(|_| worker != self.index).map(Arc::clone) else { return };
        self.counters.forwarded_after_rebalance += 1;
        match word {
            ShardMessage::Message { arrival, flow, bytes } => {
                self.hand_over(worker, shard, (arrival, None), flow, &bytes);
            }
            ShardMessage::Answer(query, answer) => contact.answer_unasked(shard, query, answer),
            ShardMessage::Media(engine, message) => contact.notify_media(shard, engine, message),
            ShardMessage::RecordResult(stored, tokens) => contact.notify_store_results(vec![stored], tokens),
            ShardMessage::RemoveBindings(forgotten) => contact.notify_removal(shard, forgotten),
            ShardMessage::FlowFailed(flow) => self.fail(Timestamp::ZERO, shard, flow),
            // Every worker is notified of this, so the shard's worker delivers it.
            ShardMessage::Closed(_) => {}
        }
    }

    /// Sends a message of a shard.
    pub(crate) fn send(&mut self, now: Timestamp, sender: ShardId, flow: Flow, message: &mut Vec<u8>) {
        //= rfc3261#18:udp-and-tcp
        match (self.sockets.get_mut(usize::from(flow.listener.0)), flow.transport) {
            (Some(ListenerSocket::Udp(outlet)), Transport::Udp) => {
                self.tracer.sent(now, &flow, message);
                //= rfc3581#3:source-port
                // All messages of a call belong to one shard.
                let (listener, key) = (usize::from(flow.listener.0), OrderingKey::new(sender.0));
                self.timing.queue(listener, outlet, |outlet| outlet.send(flow.peer, message, key));
            }
            (Some(socket), transport) if transport.is_reliable() && socket.transport() == transport => {
                self.send_on_connection(now, sender, flow, message);
            }
            _ => self.counters.misdirected += 1,
        }
    }

    /// Sends by the rules of [`Flow`]: on its connection, or on another one if allowed.
    fn send_on_connection(&mut self, now: Timestamp, sender: ShardId, flow: Flow, message: &[u8]) {
        let Some(id) = flow.connection else { return self.send_to_peer(now, sender, flow, message) };
        if id.process() != self.process && self.relay_output(now, sender, flow, message) {
            return;
        }
        if id.worker() != self.index && matches!(self.links.get(id.worker()), Some(Some(_))) {
            return self.hand_over_bytes(id.worker(), HandoverCommand::Send, now, sender, flow, message);
        }
        match self.streams.find(id) {
            Some(slot) => self.write(now, slot, sender, flow, message),
            //= rfc3261#18.2.2:reopen
            None if flow.reopen => self.send_to_peer(now, sender, flow, message),
            None => self.fail(now, sender, flow),
        }
    }

    /// Sends on a connection to the flow's peer, opening one if needed.
    //= rfc3261#18.1.1:response-on-connection
    pub(crate) fn send_to_peer(&mut self, now: Timestamp, sender: ShardId, flow: Flow, message: &[u8]) {
        let mut way = (flow.listener, flow.peer, flow.host);
        // Without TLS, the address is all that is known of a peer.
        if way.2 == HostId::SOURCE && !(flow.transport.is_secure() && self.streams.owner(way).is_some()) {
            way.2 = HostId::NONE;
        }
        //= rfc3261#18.1.1:open-connection
        let mut id = self.streams.owner(way);
        let is_usable = id.is_some_and(|id| id.worker() != self.index || self.streams.find(id).is_some());
        if !is_usable {
            id = match self.sockets.get(usize::from(flow.listener.0)) {
                Some(ListenerSocket::Stream(entrance)) => self.streams.open(now, way, &entrance.socket).ok(),
                // The listener was removed, and the connection has ended.
                Some(ListenerSocket::Closed(_)) => None,
                Some(ListenerSocket::Udp(_)) | None => return self.counters.misdirected += 1,
            };
        }
        match id {
            Some(id) if id.worker() != self.index => {
                self.hand_over_bytes(id.worker(), HandoverCommand::SendToPeer, now, sender, flow, message);
            }
            Some(id) => match self.streams.find(id) {
                Some(slot) => self.write(now, slot, sender, flow, message),
                None => self.fail(now, sender, flow),
            },
            None => self.fail(now, sender, flow),
        }
    }

    fn write(&mut self, now: Timestamp, slot: u32, sender: ShardId, flow: Flow, message: &[u8]) {
        // The far end of this connection, which may differ from the address to which a new one would be opened.
        let peer = self.streams.peer(slot).unwrap_or(flow.peer);
        self.tracer.sent(now, &Flow { peer, ..flow }, message);
        self.streams.counters.messages_out += 1;
        self.streams.transports.of_mut(flow.transport).messages_out += 1;
        self.streams.write(slot, Some((sender, flow)), message);
    }

    fn hand_over_bytes(
        &mut self,
        worker: usize,
        errand: HandoverCommand,
        now: Timestamp,
        sender: ShardId,
        flow: Flow,
        message: &[u8],
    ) {
        let given = match self.links.get_mut(worker) {
            Some(Some(neighbour)) => neighbour.send_or_queue(errand, sender, now, flow, message),
            _ => Err(RingFull),
        };
        if given == Err(RingFull) {
            self.streams.counters.handover_overflow += 1;
            self.fail(now, sender, flow);
        }
    }

    /// Notifies a shard that its message could not be delivered.
    //= rfc3261#18.4:connection
    fn fail(&mut self, now: Timestamp, shard: ShardId, flow: Flow) {
        let worker = self.worker_of(shard);
        if worker == self.index {
            return self.unconnected.push((shard, flow));
        }
        let Some(Some(neighbour)) = self.links.get_mut(worker) else { return };
        // If there is no room for this either, the shard's timers handle the failure.
        if neighbour.send_or_queue(HandoverCommand::Unconnected, shard, now, flow, &[]).is_err() {
            self.streams.counters.handover_overflow += 1;
        }
    }

    /// Hands a message over to another worker, or drops it. It arrived and, if that is known, was received at these
    /// times.
    pub(crate) fn hand_over(
        &mut self,
        owner: usize,
        id: ShardId,
        arrival: (Timestamp, Option<Timestamp>),
        flow: Flow,
        bytes: &[u8],
    ) {
        let Some(Some(neighbour)) = self.links.get_mut(owner) else { return };
        match neighbour.send(id, arrival, flow, bytes) {
            Ok(()) => self.counters.handover_sent += 1,
            Err(RingFull) => self.counters.handover_drops += 1,
        }
    }

    /// Returns whether a stream message can be handed over.
    pub(crate) fn has_room(&self, owner: usize) -> bool {
        self.links.get(owner).is_none_or(|neighbour| neighbour.as_ref().is_none_or(WorkerLink::has_room_for_streams))
    }

    /// Executes a command of another worker. Messages for shards are not handled here but returned.
    pub(crate) fn execute(&mut self, now: Timestamp, handed: &HandoverMessage) {
        let &HandoverMessage { command: errand, shard, flow, ref bytes, .. } = handed;
        match errand {
            HandoverCommand::Deliver | HandoverCommand::Barrier => debug_assert!(false, "these are the desk's"),
            HandoverCommand::Send => self.send_on_connection(now, shard, flow, bytes),
            HandoverCommand::SendToPeer => self.send_to_peer(now, shard, flow, bytes),
            HandoverCommand::Unconnected => self.unconnected.push((shard, flow)),
        }
    }

    /// Sends a DNS query.
    pub(crate) fn resolve(&mut self, shard: ShardId, query: QueryId, question: LocateQuery) {
        let Some(resolver) = &self.resolver else {
            return self.handle.answer_unasked(shard, query, Err(LocateError::NoAnswer));
        };
        if self.handle.questions.fetch_add(1, Ordering::Relaxed) >= MAX_DNS_QUERIES {
            self.handle.questions.fetch_sub(1, Ordering::Relaxed);
            self.streams.counters.dns_refused += 1;
            return self.handle.answer_unasked(shard, query, Err(LocateError::NoAnswer));
        }
        resolver.resolve(question, Reply::new(Arc::clone(&self.handle), shard, query));
    }

    /// Sends a command of a shard to a media engine.
    pub(crate) fn send_to_engine(&mut self, shard: ShardId, engine: SocketAddr, command: &[u8]) {
        let is_sent = self.media.send(self.index, shard, engine, command);
        self.counters.media_send_errors += u64::from(!is_sent);
    }

    /// Queues a record for the store; it is submitted with the others of the round.
    pub(crate) fn queue_record(&mut self, shard: ShardId, ticket: Option<u64>, record: Vec<u8>) {
        self.records.push(RecordResult { shard, ticket, record, is_stored: false });
    }

    /// Submits the records of the round to the store. Without a store, all are rejected.
    pub(crate) fn submit_records(&mut self) {
        if self.records.is_empty() {
            return;
        }
        let batch = RecordBatch::new(Arc::clone(&self.handle), std::mem::take(&mut self.records));
        match &self.record_sink {
            Some(sink) => sink.store(batch),
            None => drop(batch),
        }
    }

    /// Accepts connections on a listener; returns whether there were any.
    pub(crate) fn accept(&mut self, now: Timestamp, listener: usize) -> bool {
        let id = ListenerId(u16::try_from(listener).unwrap_or(u16::MAX));
        let mut count = 0;
        while count < ACCEPT_BATCH {
            let Some(ListenerSocket::Stream(entrance)) = self.sockets.get_mut(listener) else { return false };
            if !entrance.is_readable && entrance.retry.is_none_or(|retry| retry > now) {
                break;
            }
            entrance.retry = None;
            match entrance.socket.accept() {
                Ok(Some((stream, peer))) => {
                    entrance.is_readable = true;
                    count += 1;
                    self.streams.accept(now, id, stream, peer);
                }
                Ok(None) => {
                    entrance.is_readable = false;
                    break;
                }
                Err(error) => {
                    entrance.log_error(now, &error);
                    entrance.is_readable = false;
                    entrance.retry = Some(now + RETRY_AFTER);
                    self.streams.counters.accept_errors += 1;
                    break;
                }
            }
        }
        count > 0
    }

    /// Sends waiting output, closes dead connections and notifies the shards concerned.
    pub(crate) fn flush(&mut self, now: Timestamp) {
        for (listener, socket) in self.sockets.iter_mut().enumerate() {
            if let ListenerSocket::Udp(socket) = socket {
                self.timing.flush(listener, socket);
            }
        }
        self.streams.finish();
        self.counters.event_drops += std::mem::take(&mut self.streams.event_drops);
        while let Some((shard, flow)) = self.streams.failed.pop() {
            self.fail(now, shard, flow);
        }
        if !self.streams.closed.is_empty() {
            self.relay_closed(now);
            let turn = self.handle.lock_broadcast();
            for neighbour in self.links.iter_mut().flatten() {
                neighbour.handle.notify_closed(&self.streams.closed);
                neighbour.is_wake_pending = true;
            }
            self.handle.notify_closed(&self.streams.closed);
            drop(turn);
            self.streams.closed.clear();
        }
        self.links.iter_mut().flatten().for_each(WorkerLink::flush_overflow);
    }

    /// Returns the number of messages that wait for room in another worker's ring.
    pub(crate) fn overflow(&self) -> usize {
        self.links.iter().flatten().map(|link| link.overflow.len()).sum()
    }

    /// Returns whether messages are waiting for room in another worker's ring.
    pub(crate) fn has_overflow(&self) -> bool {
        self.streams.has_stalled() || self.links.iter().flatten().any(|neighbour| !neighbour.overflow.is_empty())
    }

    /// Wakes sleeping workers that were sent messages. If this worker `goes_on`, it wakes them only once that has
    /// been pending for
    /// [`MAX_WAKE_DELAY`]: a wake-up per message would cost them more than the messages.
    pub(crate) fn wake_workers(&mut self, now: Timestamp, goes_on: bool) {
        if !self.links.iter().flatten().any(|neighbour| neighbour.is_wake_pending) {
            return;
        }
        let since = *self.wake_owed_since.get_or_insert(now);
        if goes_on && now < since + MAX_WAKE_DELAY {
            return;
        }
        self.wake_owed_since = None;
        for neighbour in self.links.iter_mut().flatten() {
            if std::mem::take(&mut neighbour.is_wake_pending) {
                neighbour.handle.waker.wake();
            }
        }
    }

    /// Returns whether a wake-up of another worker is pending.
    pub(crate) fn has_pending_wakes(&self) -> bool {
        self.wake_owed_since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use mio::Poll;

    use super::*;
    use crate::handover::{WorkerWaker, ring};
    use crate::worker::WAKER_TOKEN;

    #[test]
    fn streams_leave_ring_room_for_datagrams_and_answers() {
        let poll = Poll::new().expect("epoll");
        let doorbell = WorkerWaker::new(poll.registry(), WAKER_TOKEN).expect("a file descriptor");
        let (give, mut taker) = ring(MIN_RING_CAPACITY);
        let (_, take) = ring(MIN_RING_CAPACITY);
        let mut neighbour = WorkerLink::new(Arc::new(WorkerHandle::new(doorbell, Arc::default())), give, take);
        let flow = Flow::new(ListenerId(0), Transport::Udp, ([127, 0, 0, 1], 5060).into());
        let give = |neighbour: &mut WorkerLink| neighbour.send(ShardId(1), (Timestamp::ZERO, None), flow, b"x");
        let mut streams = 0;
        while neighbour.has_room_for_streams() {
            assert_eq!(give(&mut neighbour), Ok(()));
            streams += 1;
        }
        let others = std::iter::from_fn(|| give(&mut neighbour).ok()).count();
        assert_eq!((streams, streams + others), (STREAMS_IN_RING, MIN_RING_CAPACITY));
        // Once the other worker has caught up, streams are read again.
        while taker.poll().is_some() {}
        assert!(neighbour.has_room_for_streams());
    }
}
