//! Sockets for the workers, on Linux: UDP with up to 64 datagrams per system call, and TCP streams.
//!
//! A worker owns one [`UdpSocket`] per listen address (workers share the address with `SO_REUSEPORT`), one
//! [`RecvBatch`] for all of them and one [`SendBatch`] for each. Its loop is: wait with mio, [`UdpSocket::recv`],
//! pass every [`Datagram`] to a shard, let the shard write into [`SendBatch::next_slot`], [`UdpSocket::send`], and
//! [`UdpSocket::poll_error`] for ICMP errors. Once the buffers have grown, nothing here allocates per packet.
//!
//! For streams, a worker has a [`StreamSocket`] per listen address and a [`Channel`] per connection. The worker does
//! the framing and queueing.
//!
//! Only the programs that the kernel runs to [sort](ReceiverSelection) and to [drop](PacketFilter) arriving datagrams
//! know SIP; they follow the rules of `strowger-overload`. `unsafe` is confined to system calls in the private
//! modules `sys` and `recv_arena`.

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
mod freed_memory;
mod interfaces;
mod limits;
mod memory_filter;
mod recv_arena;
mod reuseport;
mod scheduling;
mod send;
mod send_stamps;
mod sources;
mod stream;
mod sys;
mod udp;

pub use batch::{Datagram, RecvBatch};
pub use captures::count_captures;
pub use clock::{Clock, ClockPair, RealNanos};
pub use counters::Counters;
pub use dropped_messages::{DroppedMessages, MAX_WORKERS};
pub use error::{BindError, Cause, PeerError};
pub use filter::PacketFilter;
pub use freed_memory::{collect_freed_memory, return_freed_memory};
pub use interfaces::local_addresses;
pub use limits::{is_out_of_files, raise_open_files, shorten_slice};
pub use memory_filter::FilterMemory;
pub use recv_arena::RECV_BATCH;
pub use reuseport::{ReceiverSelection, Receivers};
pub use scheduling::{Policy, Scheduling};
pub use send::{Flush, OrderingKey, SEND_BATCH, SEND_QUEUE, SendBatch};
pub use send_stamps::SendStamp;
pub use sources::KnownSources;
pub use stream::{
    AcceptedStream, AllowedOrigins, BACKLOG, CertificateFiles, CertificateStatus, Channel, ClientCertificates,
    IoOutcome, Progress, ResumptionOfClients, StreamSocket, SubjectNames, TcpListener, TcpStream, TlsContext, TlsError,
    TlsSettings, WebSocket, WebSocketContext, WebSocketInput, identities, is_same_domain, speaks_for,
};
pub use udp::{BufferSizes, DEFAULT_BUFFER_BYTES, UdpSocket};
