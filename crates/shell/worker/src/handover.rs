//! Handover of messages from the worker that received them to the worker whose shard owns them.
//!
//! Each ordered pair of workers has a ring of messages and a ring that returns the empty buffers, so nothing is
//! allocated once there are as many buffers as messages in flight. No worker blocks: a full ring drops datagrams, and
//! stream messages are not read or are held by the sender until there is room.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::{io, iter};

use mio::{Registry, Token, Waker};
use rtrb::{Consumer, Producer, RingBuffer};
use strowger_foundation::{Flow, ShardId, Timestamp};

/// Maximum number of messages waiting for one worker, divided equally among the others: as many as it handles while
/// its thread may have to wait for a core. Further ones are dropped and counted.
pub const HANDOVER_QUEUE: usize = 8192;

/// Minimum capacity per ring, regardless of the number of workers.
pub const MIN_RING_CAPACITY: usize = 256;

/// Maximum number of empty buffers kept per worker; buffers beyond that, left by a burst, are freed.
const SPARE_BUFFERS: usize = 1024;

/// Number of messages a worker takes before it handles the first of them.
pub(crate) const HANDOVER_BATCH: usize = 16;

/// Capacity of a new buffer: at least the size of an Ethernet frame.
const BUFFER_BYTES: usize = 2 * 1024;

/// Buffers that have grown beyond this size are freed, so that rare large messages do not hold memory.
const KEEP_BYTES: usize = 8 * 1024;

/// What the receiving worker does with a handover message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandoverCommand {
    /// Deliver the message to the shard, which the receiver has.
    Deliver,
    /// Send the shard's message on the flow's connection, which the receiver has.
    Send,
    /// Send the shard's message on any connection to the flow's peer.
    SendToPeer,
    /// Notify the shard, which the receiver has, that the flow could not be reached.
    Unconnected,
    /// Everything after this was sent under the latest plan: see [`migration`](crate::migration).
    Barrier,
}

/// A complete message.
#[derive(Debug)]
pub(crate) struct HandoverMessage {
    pub(crate) command: HandoverCommand,
    pub(crate) shard: ShardId,
    pub(crate) arrival: Timestamp,
    /// When the sending worker had received it; `None` if that is not known.
    pub(crate) received: Option<Timestamp>,
    pub(crate) flow: Flow,
    pub(crate) bytes: Vec<u8>,
}

/// The sending end of a ring.
#[derive(Debug)]
pub(crate) struct Sender {
    messages: Producer<HandoverMessage>,
    empties: Consumer<Vec<u8>>,
    /// Returned buffers. The last one is used first, since it may still be in a cache.
    spare: Vec<Vec<u8>>,
}

/// The receiving end of a ring.
#[derive(Debug)]
pub(crate) struct Receiver {
    messages: Consumer<HandoverMessage>,
    empties: Producer<Vec<u8>>,
}

/// Error: the ring is full.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RingFull;

/// Returns the capacity of each ring for a number of workers.
pub(crate) fn capacity(workers: usize) -> usize {
    (HANDOVER_QUEUE / workers.saturating_sub(1).max(1)).max(MIN_RING_CAPACITY)
}

/// Creates the ring from one worker to another.
pub(crate) fn ring(capacity: usize) -> (Sender, Receiver) {
    let (give, take) = RingBuffer::new(capacity);
    // Room for all buffers in flight plus those the receiver has taken.
    let (give_back, take_back) = RingBuffer::new(capacity + HANDOVER_BATCH);
    (Sender { messages: give, empties: take_back, spare: Vec::new() }, Receiver { messages: take, empties: give_back })
}

impl Sender {
    /// Copies a message into the ring.
    ///
    /// # Errors
    /// [`RingFull`] when the ring is full.
    pub(crate) fn send(
        &mut self,
        errand: HandoverCommand,
        shard: ShardId,
        (arrival, received): (Timestamp, Option<Timestamp>),
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
        self.messages
            .push(HandoverMessage { command: errand, shard, arrival, received, flow, bytes })
            .map_err(|_| RingFull)
    }

    /// Adds an existing message.
    ///
    /// # Errors
    /// Returns the message when the ring is full.
    pub(crate) fn push(&mut self, handed: HandoverMessage) -> Result<(), HandoverMessage> {
        self.messages.push(handed).map_err(|rtrb::PushError::Full(handed)| handed)
    }

    /// Returns the number of waiting messages.
    pub(crate) fn waiting(&self) -> usize {
        self.messages.buffer().capacity() - self.messages.slots()
    }

    /// Returns whether the ring is full.
    pub(crate) fn is_full(&self) -> bool {
        self.messages.is_full()
    }
}

impl Receiver {
    /// Returns the next message. [Recycle](Self::recycle) its buffer.
    pub(crate) fn poll(&mut self) -> Option<HandoverMessage> {
        self.messages.pop().ok()
    }

    /// Returns the buffer of a handled message to the sender.
    pub(crate) fn recycle(&mut self, mut bytes: Vec<u8>) {
        if (1..=KEEP_BYTES).contains(&bytes.capacity()) {
            bytes.clear();
            // Buffers of messages from the overflow queue exceed the ring's own; those without room are freed.
            drop(self.empties.push(bytes));
        }
    }

    /// Returns whether no message is waiting.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

/// Wakes a worker that sleeps in the kernel, at no cost if it is awake.
#[derive(Debug)]
pub(crate) struct WorkerWaker {
    is_parked: AtomicBool,
    waker: Waker,
}

impl WorkerWaker {
    /// Creates a waker whose events carry `token`.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        Ok(Self { is_parked: AtomicBool::new(false), waker: Waker::new(registry, token)? })
    }

    /// Marks the owner as about to sleep. The owner must check its rings once more afterwards: a sender that filled
    /// one before saw it awake and did not wake it.
    pub(crate) fn mark_parked(&self) {
        self.is_parked.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Marks the owner as awake.
    pub(crate) fn mark_awake(&self) {
        self.is_parked.store(false, Ordering::Relaxed);
    }

    /// Returns whether the owner is asleep.
    #[cfg(test)]
    pub(crate) fn is_parked(&self) -> bool {
        self.is_parked.load(Ordering::Relaxed)
    }

    /// Wakes the owner if it is asleep; called after a ring was filled.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.is_parked.load(Ordering::Relaxed) && self.is_parked.swap(false, Ordering::Relaxed) {
            self.wake_always();
        }
    }

    /// Wakes the owner, asleep or not.
    pub(crate) fn wake_always(&self) {
        // The eventfd counter never overflows: mio resets it when it is full.
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
        sender.send(HandoverCommand::Deliver, ShardId(shard), (Timestamp::from_millis(7), None), flow(), message)
    }

    #[test]
    fn a_full_ring_drops_the_newest_and_accepts_again_after_a_poll() {
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
    fn recycled_buffers_hold_nothing_of_the_last_message() {
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
    fn buffers_are_reused_last_in_first_out_and_bursts_are_freed() {
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
    fn workers_split_the_handover_queue() {
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
