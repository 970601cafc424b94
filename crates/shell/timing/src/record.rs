//! The times of one packet.

use crate::message_type::MessageType;
use crate::part::PartTimes;

/// What was measured of one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketRecord {
    /// When it reached the network device, ns of the monotonic clock; `None` if that was not seen.
    pub arrived_ns: Option<u64>,
    /// When the program had it, ns of the monotonic clock.
    pub received_ns: u64,
    /// The thread that received it.
    pub thread: u32,
    /// The local port.
    pub port: u16,
    /// Whether it is a part of a TCP stream, not a datagram.
    pub is_stream: bool,
    /// Its length, bytes.
    pub length: u32,
    /// Its type.
    pub message: MessageType,
    /// Its parts.
    pub times: PartTimes,
    /// Number of packets that the receive call returned with it, itself included.
    pub batch: u16,
    /// Number of packets that it caused the program to send before the next receive call.
    pub sent: u16,
    /// When the thread was ready for the next packet, ns of the monotonic clock: it called receive again, or waited for
    /// events; `None` if that was not seen. With several packets per receive call only the last one has it.
    pub ready_ns: Option<u64>,
    /// Number of packets left in the socket's queue when the program had it; `None` if that was not seen.
    pub queue: Option<u32>,
}
