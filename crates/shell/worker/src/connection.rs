//! One connection: its socket, what came in and is incomplete, what waits to go out.

use std::io;
use std::net::SocketAddr;

use strowger_foundation::{ConnId, Flow, ListenerId, ShardId, TimerId, Timestamp};
use strowger_net::{IoOutcome, TcpStream};

use crate::connection_index::PeerKey;
use crate::framing::StreamFramer;

/// Shards and flows that are told when a connection cannot be opened; more are not, and find out by their timers.
const WRITERS: usize = 1024;

/// Sent bytes that stay at the front of a queue until they are moved away.
const COMPACT_BYTES: usize = 16 * 1024;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Being opened by us.
    Opening,
    /// In use.
    Open,
    /// What comes in is not looked at any more; what was said last still goes out.
    Ending,
    /// Closed with the end of the round.
    Dead,
}

/// A connection, as its worker has it. An idle one owns nothing but this.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) listener: ListenerId,
    pub(crate) phase: Phase,
    /// Whether the peer opened it.
    pub(crate) is_accepted: bool,
    /// Whether a shard may have seen its name, or sent on it: then all are told of its end.
    pub(crate) is_known: bool,
    /// Whether something may wait to be read.
    pub(crate) is_readable: bool,
    /// Whether the peer has ended its side, so that reading must go on until that is seen.
    pub(crate) is_ending: bool,
    /// Whether the send buffer was full and mio has not said since that it is not.
    pub(crate) is_blocked: bool,
    /// Whether it stands in the list of those to be read.
    pub(crate) is_listed: bool,
    /// Whether it stands in the list of those to be written to.
    pub(crate) is_dirty: bool,
    /// Whether what was kept may hold whole messages: they come before what can be read.
    pub(crate) has_backlog: bool,
    /// What waits in it is too old: new work is dropped until nothing is left.
    pub(crate) is_stale: bool,
    pub(crate) framer: StreamFramer,
    /// How many bytes `kept` must have before a look at them is worth it.
    pub(crate) needed: u32,
    /// When the first byte of an incomplete message came; [`Timestamp::MAX`] where there is none.
    pub(crate) since: Timestamp,
    /// The last whole message or keep-alive; before one, when the connection came to be.
    pub(crate) heard: Timestamp,
    /// When `timer` fires.
    pub(crate) armed: Timestamp,
    pub(crate) timer: TimerId,
    /// What came in and was not dealt with.
    pub(crate) unparsed: Vec<u8>,
    /// What waits to go out, behind `written` bytes that have gone.
    pub(crate) out: Vec<u8>,
    pub(crate) written: u32,
    /// While it is being opened: which shards have sent on it, by which flows. Once it is open they are told with all others
    /// of its end.
    #[expect(clippy::box_collection, reason = "most have none, and these sixteen bytes are an idle connection's")]
    pub(crate) writers: Option<Box<Vec<(ShardId, Flow)>>>,
}

impl Connection {
    pub(crate) const fn peer_key(&self) -> PeerKey {
        (self.listener, self.peer)
    }

    /// The flow of its messages.
    pub(crate) const fn flow(&self, id: ConnId) -> Flow {
        Flow::on_connection(self.listener, strowger_foundation::Transport::Tcp, self.peer, id)
    }

    /// Bytes that wait to go out.
    pub(crate) fn unsent(&self) -> usize {
        self.out.len().saturating_sub(self.written as usize)
    }

    /// Writes what waits; how many bytes the kernel took.
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

    /// Remembers that a shard has sent to `flow`.
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
