//! What a worker does when another process takes over its sockets, before and after.

use std::io;
use std::sync::{Arc, PoisonError};

use strowger_foundation::{ConnId, Flow, ListenerId, ShardId, Timestamp, Transport};
use strowger_message::Peek;
use strowger_shard::SteeringResult;

use crate::datagram_socket::DatagramSocket;
use crate::listener_socket::ListenerSocket;
use crate::migration::ShardMessage;
use crate::predecessors::{ProcessLink, RelayKind, RelayedMessage};
use crate::process_handover::{ListenerHandover, Remaining, WorkerHandover};
use crate::shard_factory::{ShardFactory, StateMachine as _};
use crate::shard_host::ShardHost;
use crate::status::add_net;
use crate::streams::ClosedConnection;
use crate::worker_io::WorkerIo;

impl<M: ShardFactory> ShardHost<M> {
    /// Passes a message to the predecessor that has its transaction; returns whether there is one.
    pub(crate) fn relay_to_predecessor(
        &mut self,
        shard: ShardId,
        (arrival, flow): (Timestamp, Flow),
        (peek, steered): (&Peek<'_>, &SteeringResult),
        bytes: &[u8],
    ) -> bool {
        let Some(predecessors) = &self.io.predecessors else { return false };
        let link = match steered.client_process() {
            Some(process) => predecessors.of_process(process),
            None => {
                let key = self.shared.factory.transaction_of(peek, steered);
                key.and_then(|key| predecessors.of_request(key.half()))
            }
        };
        let Some(link) = link else { return false };
        if link.relay(RelayKind::Deliver, RelayedMessage { shard, flow, arrival, bytes }) {
            self.io.counters.relayed += 1;
        } else {
            self.io.counters.relay_drops += 1;
        }
        true
    }

    /// Handles a message that another process has relayed.
    pub(crate) fn handle_relayed(&mut self, now: Timestamp, kind: RelayKind, shard: ShardId, message: ShardMessage) {
        let ShardMessage::Message { flow, ref bytes, .. } = message else { return };
        match kind {
            // Another process does not know which worker has a shard.
            RelayKind::Deliver if self.io.worker_of(shard) != self.io.index && self.slot_of(shard).is_none() => {
                self.io.forward(shard, message);
            }
            RelayKind::Deliver => self.send_to_shard(now, shard, message),
            RelayKind::Send => self.io.send_for_other(now, shard, flow, bytes),
            // As for a connection of this process that is gone.
            RelayKind::Failed if flow.reopen => {
                self.io.send_to_peer(now, shard, flow, bytes);
            }
            RelayKind::Failed => self.send_to_shard(now, shard, ShardMessage::FlowFailed(flow)),
            RelayKind::Closed | RelayKind::WayClosed => debug_assert!(false, "every worker is told of these"),
        }
    }

    /// Stops or starts reading.
    #[cold]
    pub(crate) fn set_frozen(&mut self, is_frozen: bool) {
        let was_frozen = std::mem::replace(&mut self.io.is_frozen, is_frozen);
        if is_frozen {
            for socket in self.io.datagram_sockets_mut() {
                socket.deregister();
                socket.retry = None;
            }
            self.io.sockets.iter_mut().for_each(ListenerSocket::forget_retry);
        } else if was_frozen {
            self.io.resume();
            self.admission.forget_kernel_filter();
            let active = self.shared.balance.lock().unwrap_or_else(PoisonError::into_inner).active();
            self.io.receive_at(active);
        }
    }

    /// Returns what is left to do of what has been read.
    #[cold]
    pub(crate) fn remaining(&mut self, now: Timestamp) -> Remaining {
        let mut registers = 0;
        for index in 0..self.slots.len() {
            self.run(index, now, &[], |machine| registers += machine.pending_registers());
        }
        let unsent: usize = self.io.datagram_sockets().map(DatagramSocket::unsent).sum();
        // A shard that is about to move counts as one that moves.
        let shards = if self.is_migrating() { 0 } else { self.slots.len() };
        Remaining { registers, messages: self.io.overflow() + unsent, shards, taken: self.io.taken }
    }

    /// Returns descriptors and transactions for the next process.
    #[cold]
    pub(crate) fn collect_handover(&mut self, now: Timestamp) -> io::Result<WorkerHandover> {
        let mut keys = Vec::new();
        for index in 0..self.slots.len() {
            self.run(index, now, &[], |machine| machine.for_each_server_key(&mut |key| keys.push(key.half())));
        }
        Ok(WorkerHandover { sockets: self.io.to_handover()?, keys })
    }
}

impl WorkerIo {
    /// Returns the way to the process that has a connection; `None` if it is this one, or unknown.
    pub(crate) fn link_to(&self, connection: ConnId) -> Option<&Arc<dyn ProcessLink>> {
        let process = connection.process();
        if process == self.process {
            return None;
        }
        let predecessor = self.predecessors.as_ref().and_then(|all| all.of_process(process));
        predecessor.or(self.successor.as_ref())
    }

    /// Relays a message of a shard on a connection of another process; returns whether it has one.
    pub(crate) fn relay_output(&mut self, now: Timestamp, shard: ShardId, flow: Flow, bytes: &[u8]) -> bool {
        let Some(link) = flow.connection.and_then(|id| self.link_to(id)) else { return false };
        if link.relay(RelayKind::Send, RelayedMessage { shard, flow, arrival: now, bytes }) {
            self.counters.relayed += 1;
        } else {
            self.counters.relay_drops += 1;
        }
        true
    }

    /// Sends a message of a shard of another process on a connection, or passes it on.
    pub(crate) fn send_for_other(&mut self, now: Timestamp, shard: ShardId, flow: Flow, bytes: &[u8]) {
        if self.relay_output(now, shard, flow, bytes) {
            return;
        }
        match flow.connection.and_then(|id| self.streams.find(id)) {
            Some(slot) => {
                let peer = self.streams.peer(slot).unwrap_or(flow.peer);
                self.tracer.sent(now, &Flow { peer, ..flow }, bytes);
                self.streams.counters.messages_out += 1;
                self.streams.transports.of_mut(flow.transport).messages_out += 1;
                self.streams.write(slot, None, bytes);
            }
            None => {
                if let Some(successor) = &self.successor {
                    let message = RelayedMessage { shard, flow, arrival: now, bytes };
                    self.counters.relay_drops += u64::from(!successor.relay(RelayKind::Failed, message));
                }
            }
        }
    }

    /// Tells the next process of closed connections, which its shards may know.
    pub(crate) fn relay_closed(&mut self, now: Timestamp) {
        let Some(successor) = &self.successor else { return };
        for closed in &self.streams.closed {
            let (kind, flow) = match *closed {
                ClosedConnection::Way(flow) => (RelayKind::WayClosed, flow),
                ClosedConnection::Connection(id, peer) => {
                    let flow = Flow::new(ListenerId(0), Transport::Tcp, peer);
                    (RelayKind::Closed, Flow { connection: Some(id), ..flow })
                }
            };
            let message = RelayedMessage { shard: ShardId(0), flow, arrival: now, bytes: &[] };
            self.counters.relay_drops += u64::from(!successor.relay(kind, message));
        }
    }

    fn to_handover(&self) -> io::Result<Vec<ListenerHandover>> {
        let mut all = Vec::with_capacity(self.sockets.len());
        for (socket, new_work) in self.sockets.iter().zip(&self.new_work) {
            let mut handed = ListenerHandover::default();
            match socket {
                ListenerSocket::Udp(socket) => {
                    let (descriptor, drops) = socket.socket().to_handover()?;
                    (handed.socket, handed.drops[0]) = (Some(descriptor), drops);
                }
                ListenerSocket::Stream(listener) => handed.socket = Some(listener.socket.to_handover()?),
                ListenerSocket::Closed(_) => {}
            }
            if let Some(queue) = new_work {
                let (descriptor, drops) = queue.socket.socket().to_handover()?;
                (handed.new_work, handed.drops[1]) = (Some(descriptor), drops);
            }
            all.push(handed);
        }
        Ok(all)
    }

    /// Reads the sockets again.
    fn resume(&mut self) {
        let is_timed = self.timing.timer().is_some();
        for socket in self.datagram_sockets_mut() {
            socket.reregister();
            socket.is_readable = true;
        }
        for socket in &mut self.sockets {
            match socket {
                ListenerSocket::Udp(socket) if is_timed => socket.restart_send_stamps(),
                ListenerSocket::Stream(listener) => listener.is_readable = true,
                ListenerSocket::Udp(_) | ListenerSocket::Closed(_) => {}
            }
        }
    }

    /// Leaves the sockets to the next process. Those for datagrams are still sent on, and connections stay here: what
    /// arrives on them is relayed. With `closes`, they are closed instead.
    #[cold]
    pub(crate) fn release(&mut self, now: Timestamp, successor: Arc<dyn ProcessLink>, closes: bool) {
        self.is_frozen = true;
        self.successor = Some(successor);
        if closes {
            self.streams.end_all(now);
        }
        self.predecessors = None;
        for queue in self.new_work.iter().flatten() {
            add_net(&mut self.closed_sockets, queue.socket.socket().counters());
        }
        self.new_work.iter_mut().for_each(|queue| *queue = None);
        for socket in &mut self.sockets {
            match socket {
                ListenerSocket::Udp(socket) => socket.abandon_send_stamps(),
                ListenerSocket::Stream(_) => *socket = ListenerSocket::Closed(socket.transport()),
                ListenerSocket::Closed(_) => {}
            }
        }
    }
}
