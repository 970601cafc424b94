//! What the kernel's programs tell, in the order of a packet's way. Times are ns of the monotonic clock.

use crate::message_type::MessageType;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A packet came into a socket's queue.
    Queued(Queued),
    /// A message was copied to the program.
    Received(Received),
    /// A call that sent returned.
    Sent(Sent),
    /// A device took a packet later than within the call that sent it.
    Given(Given),
}

impl Event {
    /// Returns when it happened, ns.
    pub(crate) fn at(&self) -> u64 {
        match self {
            Self::Queued(event) => event.at,
            Self::Received(event) => event.at,
            Self::Sent(event) => event.exit,
            Self::Given(event) => event.at,
        }
    }
}

/// A packet came into a socket's queue, or bytes into a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queued {
    /// The socket's identity.
    pub socket: u64,
    /// When, ns.
    pub at: u64,
    /// When the packet reached the network device, ns.
    pub arrived: Option<u64>,
    /// Length of a datagram, bytes.
    pub length: u32,
    /// Sequence number after the last byte of a stream.
    pub stream_end: u32,
}

/// A message was copied to the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// The thread.
    pub thread: u32,
    /// The socket's identity.
    pub socket: u64,
    /// Its local port.
    pub port: u16,
    /// Whether it is a stream.
    pub is_stream: bool,
    /// When the message had been copied, ns.
    pub at: u64,
    /// Entry of the receive call, ns.
    pub enter: u64,
    /// End of the call's previous message, or its entry, ns.
    pub mark: u64,
    /// Position in the call.
    pub index: u16,
    /// Last wake-up of the thread since it last received, and when it ran then, ns.
    pub woken: Option<(u64, u64)>,
    /// When the thread was ready to receive: the first call in which it waited for events since it last received, or the
    /// receive call, ns.
    pub ready: u64,
    /// Return of the thread's previous receive call, ns.
    pub returned: Option<u64>,
    /// Length, bytes.
    pub length: u32,
    /// Number of packets left in the queue.
    pub queue: u32,
    /// Sequence number after the last byte of a stream.
    pub stream_end: u32,
    /// The type.
    pub message: MessageType,
}

/// A call that sent returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// The thread.
    pub thread: u32,
    /// Number of the thread's send call.
    pub call: u32,
    /// Entry of the call, ns.
    pub enter: u64,
    /// Return of the call, ns.
    pub exit: u64,
    /// Return of the thread's last receive call, ns.
    pub returned: Option<u64>,
    /// Number of messages.
    pub messages: u32,
    /// Number of messages that reached the queue of a device.
    pub queued: u32,
    /// Number of messages given to a device.
    pub given: u32,
    /// Sum of the times from the beginning of each to the device, ns.
    pub given_ns: u64,
    /// When the thread was ready to receive again before this call, ns: it sends for another reason than the packet that
    /// it received last, such as a timer. `None` if it has not been.
    pub ready: Option<u64>,
}

/// A device took a packet later than within the call that sent it, or on behalf of another thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    /// The thread that sent it.
    pub thread: u32,
    /// Number of its send call.
    pub call: u32,
    /// When, ns.
    pub at: u64,
    /// Time since the message began, ns.
    pub ns: u64,
}
