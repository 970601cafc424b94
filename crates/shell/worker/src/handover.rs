//! Messages on their way from the worker that received them to the worker whose shard owns them.
//!
//! Each ordered pair of workers has a ring of messages and a ring that brings the emptied buffers back, so nothing is
//! allocated once as many buffers exist as are on their way at one time. Nobody waits: a
//! full ring drops datagrams; what belongs to streams is not read from them, or kept by who has it, until there is room.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::{io, iter};

use mio::{Registry, Token, Waker};
use rtrb::{Consumer, Producer, RingBuffer};
use strowger_foundation::{Flow, ShardId, Timestamp};

/// Messages that wait at most for one worker, each of the others having an equal part of them: as many as it deals with while
/// its thread may have to wait for a core. Past it new ones are dropped and counted.
pub const HANDOVER_QUEUE: usize = 8192;

/// The part that each has at least, however many they are.
pub const MIN_RING_CAPACITY: usize = 256;

/// Empty buffers that are kept for one worker; what a burst took besides is freed.
const SPARE_BUFFERS: usize = 1024;

/// Messages that a worker takes before it deals with the first of them.
pub(crate) const HANDOVER_BATCH: usize = 16;

/// The room of a new buffer: no smaller than what crosses an Ethernet in one piece.
const BUFFER_BYTES: usize = 2 * 1024;

/// A buffer that has grown past this is freed, so that rare large messages do not hold memory.
const KEEP_BYTES: usize = 8 * 1024;

/// What the other worker is to do with what it is handed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandoverCommand {
    /// Give the message to the shard, which it has.
    Deliver,
    /// Send the message, which the shard has written, on the flow's connection, which it has.
    Send,
    /// Send the message, which the shard has written, on any connection to the flow's peer.
    SendToPeer,
    /// Tell the shard, which it has, that the flow could not be reached.
    Unconnected,
    /// Know that what comes behind this was sent by the newest plan: see [`moving`](crate::moving).
    Barrier,
}

/// One message, whole.
#[derive(Debug)]
pub(crate) struct HandoverMessage {
    pub(crate) command: HandoverCommand,
    pub(crate) shard: ShardId,
    pub(crate) arrival: Timestamp,
    pub(crate) flow: Flow,
    pub(crate) bytes: Vec<u8>,
}

/// The end that gives messages away.
#[derive(Debug)]
pub(crate) struct Sender {
    messages: Producer<HandoverMessage>,
    empties: Consumer<Vec<u8>>,
    /// Those that have come back; the last one first, for it may still be near a processor.
    spare: Vec<Vec<u8>>,
}

/// The end that takes them.
#[derive(Debug)]
pub(crate) struct Receiver {
    messages: Consumer<HandoverMessage>,
    empties: Producer<Vec<u8>>,
}

/// The ring was full.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RingFull;

/// The messages in each ring of so many workers.
pub(crate) fn capacity(workers: usize) -> usize {
    (HANDOVER_QUEUE / workers.saturating_sub(1).max(1)).max(MIN_RING_CAPACITY)
}

/// The ring from one worker to another.
pub(crate) fn ring(capacity: usize) -> (Sender, Receiver) {
    let (give, take) = RingBuffer::new(capacity);
    // More than can be on their way: those that the receiver has in its hands.
    let (give_back, take_back) = RingBuffer::new(capacity + HANDOVER_BATCH);
    (Sender { messages: give, empties: take_back, spare: Vec::new() }, Receiver { messages: take, empties: give_back })
}

impl Sender {
    /// Copies a message into the ring.
    ///
    /// # Errors
    /// [`Dropped`] when as many messages wait as the ring takes.
    pub(crate) fn send(
        &mut self,
        errand: HandoverCommand,
        shard: ShardId,
        arrival: Timestamp,
        flow: Flow,
        message: &[u8],
    ) -> Result<(), RingFull> {
        if self.is_full() {
            return Err(RingFull);
        }
        self.spare.extend(iter::from_fn(|| self.empties.pop().ok()));
        self.spare.truncate(SPARE_BUFFERS);
        let mut bytes = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES.max(message.len())));
        bytes.extend_from_slice(message);
        self.messages.push(HandoverMessage { command: errand, shard, arrival, flow, bytes }).map_err(|_| RingFull)
    }

    /// Puts in what was made earlier.
    ///
    /// # Errors
    /// The same, when as many messages wait as the ring takes.
    pub(crate) fn push(&mut self, handed: HandoverMessage) -> Result<(), HandoverMessage> {
        self.messages.push(handed).map_err(|rtrb::PushError::Full(handed)| handed)
    }

    /// How many messages wait.
    pub(crate) fn waiting(&self) -> usize {
        self.messages.buffer().capacity() - self.messages.slots()
    }

    /// Whether nothing more can be put in now.
    pub(crate) fn is_full(&self) -> bool {
        self.messages.is_full()
    }
}

impl Receiver {
    /// The next message. Give its buffer [back](Self::give_back).
    pub(crate) fn poll(&mut self) -> Option<HandoverMessage> {
        self.messages.pop().ok()
    }

    /// Returns the buffer of a message that was dealt with.
    pub(crate) fn recycle(&mut self, mut bytes: Vec<u8>) {
        if (1..=KEEP_BYTES).contains(&bytes.capacity()) {
            bytes.clear();
            // Buffers of messages that had to wait for the ring come on top of its own; what finds no room is freed.
            drop(self.empties.push(bytes));
        }
    }

    /// Whether no message waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

/// Wakes a worker that waits for the kernel, and costs nothing where it does not.
#[derive(Debug)]
pub(crate) struct WorkerWaker {
    is_parked: AtomicBool,
    waker: Waker,
}

impl WorkerWaker {
    /// A doorbell whose events bear `token`.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        Ok(Self { is_parked: AtomicBool::new(false), waker: Waker::new(registry, token)? })
    }

    /// Says that the owner is about to wait. It must look into its rings once more after this: who filled one before saw
    /// it awake and did not ring.
    pub(crate) fn park(&self) {
        self.is_parked.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that the owner does not wait any more.
    pub(crate) fn unpark(&self) {
        self.is_parked.store(false, Ordering::Relaxed);
    }

    /// Whether its owner waits.
    #[cfg(test)]
    pub(crate) fn is_parked(&self) -> bool {
        self.is_parked.load(Ordering::Relaxed)
    }

    /// Called after a ring was filled: wakes the owner where it waits.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.is_parked.load(Ordering::Relaxed) && self.is_parked.swap(false, Ordering::Relaxed) {
            self.wake_always();
        }
    }

    /// Makes the owner look up, whether it waits or not.
    pub(crate) fn wake_always(&self) {
        // The counter of an eventfd is never full here: mio empties it when it would be.
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "a worker could not be woken");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use strowger_foundation::{ListenerId, Transport};

    use super::*;

    fn flow() -> Flow {
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 5060));
        Flow::new(ListenerId(0), Transport::Udp, peer)
    }

    fn send(sender: &mut Sender, shard: u16, message: &[u8]) -> Result<(), RingFull> {
        sender.send(HandoverCommand::Deliver, ShardId(shard), Timestamp::from_millis(7), flow(), message)
    }

    #[test]
    fn a_full_ring_drops_the_newest_and_takes_again_when_one_has_left() {
        let (mut sender, mut receiver) = ring(4);
        for shard in 0..4 {
            assert_eq!(send(&mut sender, shard, b"x"), Ok(()));
        }
        assert_eq!(send(&mut sender, 4, b"x"), Err(RingFull));
        let first = receiver.poll().expect("four wait");
        assert_eq!((first.shard, first.arrival, first.flow), (ShardId(0), Timestamp::from_millis(7), flow()));
        receiver.recycle(first.bytes);
        assert_eq!(send(&mut sender, 5, b"x"), Ok(()));
        let rest: Vec<_> = iter::from_fn(|| receiver.poll()).map(|handed| handed.shard.0).collect();
        assert_eq!(rest, [1, 2, 3, 5]);
    }

    #[test]
    fn buffers_come_back_and_bear_no_trace_of_the_message_before() {
        let (mut sender, mut receiver) = ring(4);
        assert_eq!(send(&mut sender, 0, b"a longer message"), Ok(()));
        let handed = receiver.poll().expect("one waits");
        let address = handed.bytes.as_ptr();
        receiver.recycle(handed.bytes);
        assert_eq!(send(&mut sender, 0, b"short"), Ok(()));
        let handed = receiver.poll().expect("one waits");
        assert_eq!((handed.bytes.as_slice(), handed.bytes.as_ptr()), (b"short".as_slice(), address));
    }

    #[test]
    fn what_came_back_last_is_used_first_and_a_burst_holds_no_memory() {
        let (mut sender, mut receiver) = ring(HANDOVER_QUEUE);
        let exchange = |sender: &mut Sender, receiver: &mut Receiver, count: usize| {
            (0..count).for_each(|_| assert_eq!(send(sender, 0, b"x"), Ok(())));
            let handed: Vec<_> = iter::from_fn(|| receiver.poll()).collect();
            let last = handed.last().map(|handed| handed.bytes.as_ptr());
            handed.into_iter().for_each(|handed| receiver.recycle(handed.bytes));
            last
        };
        exchange(&mut sender, &mut receiver, HANDOVER_QUEUE);
        let one = exchange(&mut sender, &mut receiver, 1);
        assert_eq!(exchange(&mut sender, &mut receiver, 1), one);
        assert!(sender.spare.len() <= SPARE_BUFFERS);
    }

    #[test]
    fn workers_share_what_may_wait_for_one() {
        let parts = [2, 3, 33, 64].map(capacity);
        assert_eq!(parts, [HANDOVER_QUEUE, HANDOVER_QUEUE / 2, MIN_RING_CAPACITY, MIN_RING_CAPACITY]);
    }

    #[test]
    fn a_large_buffer_is_not_kept() {
        let (mut sender, mut receiver) = ring(4);
        assert_eq!(send(&mut sender, 0, &[b'x'; 60_000]), Ok(()));
        let handed = receiver.poll().expect("one waits");
        assert_eq!(handed.bytes.len(), 60_000);
        receiver.recycle(handed.bytes);
        assert!(sender.empties.is_empty() && sender.spare.is_empty());
    }
}
