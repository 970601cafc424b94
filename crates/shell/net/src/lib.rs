//! Sockets for the workers, on Linux: datagrams in batches, one system call for up to 64 of them, and streams.
//!
//! A worker owns one [`UdpSocket`] on each listen address (they share it by `SO_REUSEPORT`), one [`RecvBatch`] for all
//! of them and one [`SendBatch`] for each. Its loop is: wait through mio, [`UdpSocket::recv`], hand every
//! [`Datagram`] to a shard, let the shard write into [`SendBatch::next_slot`], [`UdpSocket::send`], and
//! [`UdpSocket::poll_error`] for what ICMP had to say. Nothing here allocates for a packet once buffers have grown.
//!
//! Streams are a [`TcpListener`] a worker on each listen address and a [`TcpStream`] each connection; framing and queues
//! are the worker's.
//!
//! Nothing here knows SIP but the programs that the kernel runs to [sort](Choice) and to [drop](PacketFilter) what arrives, by the
//! rules of `strowger-overload`. `unsafe` stands in the private modules `sys` and `inbox`, around system calls.

#![cfg(target_os = "linux")]
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod address;
mod batch;
mod bpf;
mod captures;
mod clock;
mod control_message;
mod counters;
mod dropped_messages;
mod ebpf;
mod error;
mod filter;
mod interfaces;
mod limits;
mod memory_filter;
mod recv_arena;
mod reuseport;
mod send;
mod sources;
mod sys;
mod tcp;
mod udp;

pub use batch::{Datagram, RECV_BATCH, RecvBatch};
pub use captures::count_captures;
pub use clock::{Clock, ClockPair, RealNanos};
pub use counters::Counters;
pub use dropped_messages::{DroppedMessages, MAX_WORKERS};
pub use error::{BindError, Cause, PeerError};
pub use filter::PacketFilter;
pub use interfaces::local_addresses;
pub use limits::{is_out_of_files, raise_open_files, shorten_slice};
pub use memory_filter::FilterMemory;
pub use reuseport::{ReceiverSelection, Receivers};
pub use send::{Flush, OrderingKey, SEND_BATCH, SEND_QUEUE, SendBatch};
pub use sources::KnownSources;
pub use tcp::{BACKLOG, IoOutcome, TcpListener, TcpStream};
pub use udp::{BufferSizes, DEFAULT_BUFFER_BYTES, UdpSocket};
