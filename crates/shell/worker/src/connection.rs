//! One connection: socket, incomplete input, and output queue.

use std::io;
use std::net::SocketAddr;

use strowger_foundation::{ConnId, Flow, ListenerId, ShardId, TimerId, Timestamp};
use strowger_net::{IoOutcome, TcpStream};

use crate::connection_index::PeerKey;
use crate::framing::StreamFramer;

/// Maximum number of (shard, flow) pairs notified when a connection cannot be opened; others rely on their timers.
const WRITERS: usize = 1024;

/// Number of sent bytes at the front of the output queue that triggers compaction.
const COMPACT_BYTES: usize = 16 * 1024;

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Outgoing connection being opened.
    Opening,
    /// In use.
    Open,
    /// Input is ignored; queued output is still sent.
    Ending,
    /// Closed at the end of the round.
    Dead,
}

/// A connection, owned by its worker. An idle one owns no other memory.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) listener: ListenerId,
    pub(crate) phase: Phase,
    /// Whether the peer opened it.
    pub(crate) is_accepted: bool,
    /// Whether a shard may know it or has sent on it; if so, all shards are notified of its end.
    pub(crate) is_known: bool,
    /// Whether input may be waiting.
    pub(crate) is_readable: bool,
    /// Whether the peer has closed its side, so that reading must continue until end of stream.
    pub(crate) is_ending: bool,
    /// Whether the send buffer was full and mio has not reported it writable since.
    pub(crate) is_blocked: bool,
    /// Whether it is in the list of connections to read.
    pub(crate) is_listed: bool,
    /// Whether it is in the list of connections to write.
    pub(crate) is_dirty: bool,
    /// Whether `unparsed` may hold complete messages; they are handled before further reads.
    pub(crate) has_backlog: bool,
    /// Whether waiting input is too old: new work is dropped until the input is drained.
    pub(crate) is_stale: bool,
    pub(crate) framer: StreamFramer,
    /// Number of bytes `unparsed` must hold before parsing is worthwhile.
    pub(crate) needed: u32,
    /// When the first byte of an incomplete message arrived; [`Timestamp::MAX`] if there is none.
    pub(crate) since: Timestamp,
    /// Time of the last complete message or keep-alive; initially, when the connection was created.
    pub(crate) heard: Timestamp,
    /// When `timer` fires.
    pub(crate) armed: Timestamp,
    pub(crate) timer: TimerId,
    /// Received bytes that have not been handled.
    pub(crate) unparsed: Vec<u8>,
    /// Output queue; the first `written` bytes have been sent.
    pub(crate) out: Vec<u8>,
    pub(crate) written: u32,
    /// While the connection is being opened: the shards and flows that have sent on it. Once it is open, they are
    /// notified of its end with all others.
    #[expect(clippy::box_collection, reason = "most have none, and these sixteen bytes are an idle connection's")]
    pub(crate) writers: Option<Box<Vec<(ShardId, Flow)>>>,
}

impl Connection {
    pub(crate) const fn peer_key(&self) -> PeerKey {
        (self.listener, self.peer)
    }

    /// Returns the flow of its messages.
    pub(crate) const fn flow(&self, id: ConnId) -> Flow {
        Flow::on_connection(self.listener, strowger_foundation::Transport::Tcp, self.peer, id)
    }

    /// Returns the number of bytes waiting to be sent.
    pub(crate) fn unsent(&self) -> usize {
        self.out.len().saturating_sub(self.written as usize)
    }

    /// Writes waiting output; returns the number of bytes the kernel accepted.
    pub(crate) fn write_out(&mut self) -> io::Result<usize> {
        let mut taken = 0;
        while let Some(rest) = self.out.get(self.written as usize..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest)? {
                IoOutcome::Bytes(count) => {
                    taken += count;
                    self.written = self.written.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
                }
                IoOutcome::Blocked => {
                    self.is_blocked = true;
                    if self.written as usize >= COMPACT_BYTES {
                        self.out.drain(..self.written as usize);
                        self.out.shrink_to(2 * self.out.len());
                        self.written = 0;
                    }
                    return Ok(taken);
                }
                IoOutcome::Eof => return Err(io::ErrorKind::WriteZero.into()),
            }
        }
        Ok(taken)
    }

    /// Records that a shard has sent to `flow`.
    pub(crate) fn note_writer(&mut self, shard: ShardId, flow: Flow) {
        self.is_known = true;
        if self.phase != Phase::Opening {
            return;
        }
        let writers = self.writers.get_or_insert_default();
        if writers.len() < WRITERS && !writers.contains(&(shard, flow)) {
            writers.push((shard, flow));
        }
    }
}
