//! Reading of the clock for the times of a worker's packets; nothing is read while timing is off.

use strowger_foundation::{Timestamp, Transport};
use strowger_message::{Kind, Method, Peek};
use strowger_net::Clock;
use strowger_timing::MessageType;

use crate::datagram_socket::DatagramSocket;
use crate::handover::HandoverMessage;
use crate::packet_timer::{PacketTimer, ReceiveCall, SendCall};

/// Times of a worker's packets.
#[derive(Debug)]
pub(crate) struct Timing {
    clock: Clock,
    /// `None` if timing is off.
    timer: Option<PacketTimer>,
}

/// When a message came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageArrival {
    /// When it arrived at the device; `None` if the kernel does not say.
    pub(crate) device: Option<Timestamp>,
    /// When this server had received it.
    pub(crate) received: Timestamp,
}

impl Timing {
    pub(crate) fn new(clock: Clock, is_on: bool) -> Self {
        Self { clock, timer: is_on.then(PacketTimer::default) }
    }

    /// Returns what measures; `None` if timing is off.
    pub(crate) const fn timer(&self) -> Option<&PacketTimer> {
        self.timer.as_ref()
    }

    /// Begins with the datagrams of a receive call.
    #[inline]
    pub(crate) fn begin_batch(&mut self, call: ReceiveCall, arrivals: impl Iterator<Item = Timestamp>) {
        if let Some(timer) = &mut self.timer {
            timer.begin_batch(call, arrivals);
        }
    }

    /// Begins with messages of a connection or of another worker.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if let Some(timer) = &mut self.timer {
            timer.begin(self.clock.now());
        }
    }

    /// Returns when the messages at hand were received; `None` if timing is off.
    pub(crate) fn received(&self) -> Option<Timestamp> {
        self.timer.as_ref().map(PacketTimer::received)
    }

    /// Ends the parsing of some messages.
    #[inline]
    pub(crate) fn end_common(&mut self, messages: usize) {
        if let Some(timer) = &mut self.timer {
            timer.end_common(self.clock.now(), messages);
        }
    }

    /// Begins to handle a message. `peek` is empty if it could not be parsed.
    #[inline]
    pub(crate) fn begin_message(&mut self, peek: &Peek<'_>) {
        if let Some(timer) = &mut self.timer {
            timer.begin_message(message_type(peek));
        }
    }

    /// Ends the handling of a message.
    #[inline]
    pub(crate) fn end_message(&mut self, arrival: MessageArrival) {
        if let Some(timer) = &mut self.timer {
            timer.end_message(self.clock.now(), arrival.device, arrival.received);
        }
    }

    /// Ends a step that is not counted, such as handing over.
    #[inline]
    pub(crate) fn skip(&mut self) {
        if let Some(timer) = &mut self.timer {
            timer.skip(self.clock.now());
        }
    }

    /// Counts a datagram that is not handled like others.
    #[inline]
    pub(crate) fn count(&mut self, arrival: Timestamp, message: impl FnOnce() -> MessageType) {
        if let Some(timer) = &mut self.timer {
            timer.count(message(), arrival);
        }
    }

    /// Sends by `queue`, which adds a datagram to the socket's queue and may flush it.
    #[inline]
    pub(crate) fn queue(
        &mut self,
        listener: usize,
        socket: &mut DatagramSocket,
        queue: impl FnOnce(&mut DatagramSocket),
    ) {
        let Some(timer) = &mut self.timer else { return queue(socket) };
        timer.note_unsent(listener);
        if socket.flushes_with_next() {
            self.send(listener, socket, 1, queue);
        } else {
            queue(socket);
        }
    }

    /// Flushes a socket.
    #[inline]
    pub(crate) fn flush(&mut self, listener: usize, socket: &mut DatagramSocket) {
        if self.timer.is_some() && socket.unsent() > 0 {
            self.send(listener, socket, 0, DatagramSocket::flush);
        } else {
            socket.flush();
        }
    }

    /// Runs `act`, which adds `added` datagrams to the socket's queue and sends them all.
    fn send(
        &mut self,
        listener: usize,
        socket: &mut DatagramSocket,
        added: usize,
        act: impl FnOnce(&mut DatagramSocket),
    ) {
        let Some(timer) = &mut self.timer else { return act(socket) };
        let waiting = socket.unsent() + added;
        let sample = timer.sample(listener, waiting);
        let begun = match sample {
            Some(tag) => {
                let pair = self.clock.pair();
                socket.stamp_next(pair.real, tag);
                pair.monotonic
            }
            None => self.clock.now(),
        };
        act(socket);
        let ended = self.clock.now();
        let left = socket.unsent();
        timer.on_send_call(SendCall { listener, begun, ended, sent: waiting.saturating_sub(left), waiting: left });
        if sample.is_some() {
            // Most devices stamp at once; the others wake the worker as an ICMP error does.
            socket.take_errors();
        }
        while let Some(stamp) = socket.poll_send_stamp() {
            timer.on_stamp(stamp.tag, stamp.nanos);
        }
    }
}

impl MessageArrival {
    /// Returns the arrival of a datagram, or of a message of a connection, for which the kernel has no stamp.
    pub(crate) fn new(transport: Transport, arrival: Timestamp, received: Timestamp) -> Self {
        Self { device: (!transport.is_reliable()).then_some(arrival), received }
    }

    /// Returns the arrival of a message that another worker has received, handled in a round that began at `now`.
    pub(crate) fn handed_over(handed: &HandoverMessage, now: Timestamp) -> Self {
        let is_stamped = !handed.flow.transport.is_reliable() && handed.received.is_some();
        // The other worker may have read the clock after this round began.
        Self { device: is_stamped.then_some(handed.arrival), received: handed.received.unwrap_or(now) }
    }
}

/// Returns the type of a parsed message.
fn message_type(peek: &Peek<'_>) -> MessageType {
    match peek.kind {
        Kind::Request(Method::Other([])) => MessageType::Other,
        Kind::Request(method) => MessageType::Request(method.into()),
        Kind::Response(status) => match peek.cseq_method() {
            Some(method) => MessageType::Response(status.code(), method.into()),
            None => MessageType::Other,
        },
    }
}
