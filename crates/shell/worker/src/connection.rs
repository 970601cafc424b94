//! One connection: channel, incomplete input, and output queue.

use std::io;
use std::net::{IpAddr, SocketAddr};

use strowger_foundation::{ConnId, Flow, HostId, ListenerId, ShardId, TimerId, Timestamp};
use strowger_net::{Channel, IoOutcome};

use crate::connection_index::PeerKey;
use crate::framing::StreamFramer;
use crate::limits::FREE_BYTES;
use crate::source::Source;

/// Maximum number of (shard, flow) pairs notified when a connection cannot be opened; others rely on their timers.
const WRITERS: usize = 1024;

/// Number of sent bytes at the front of the output queue that triggers compaction.
const COMPACT_BYTES: usize = 16 * 1024;

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Being opened, or in its handshake.
    Opening,
    /// Open, but its WebSocket is not: input is read, no message is sent.
    Upgrading,
    /// In use.
    Open,
    /// Input is ignored; queued output is still sent.
    Ending,
    /// Closed at the end of the round.
    Dead,
}

/// State of a connection's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputState {
    /// Nothing is to be done.
    Idle,
    /// It is in the list of connections to write.
    Listed,
    /// The send buffer was full, and mio has not reported it writable since.
    Blocked,
}

/// A connection, owned by its worker. An idle one owns no other memory.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) channel: Channel,
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
    /// Whether it is in the list of connections to read.
    pub(crate) is_listed: bool,
    pub(crate) output: OutputState,
    /// Whether `unparsed` may hold complete messages; they are handled before further reads.
    pub(crate) has_backlog: bool,
    /// Whether waiting input is too old: new work is dropped until the input is drained.
    pub(crate) is_stale: bool,
    pub(crate) framer: StreamFramer,
    /// Number of bytes `unparsed` must hold before parsing is worthwhile.
    pub(crate) needed: u32,
    /// When the first byte of an incomplete message arrived; [`Timestamp::MAX`] if there is none.
    pub(crate) since: Timestamp,
    /// Time of the last complete message or keep-alive, or when input was last seen waiting; initially, when the
    /// connection was created.
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
    /// Returns the keys by which messages find the connection: the true address of the peer, and for requests on a
    /// secure one also a name or address that the peer has proven, or must prove while the connection is being opened.
    //= rfc5922#7.3
    //= rfc5923#8.2
    pub(crate) fn peer_keys(&self) -> impl Iterator<Item = PeerKey> {
        let is_unproven = self.is_accepted && self.channel.is_secure();
        let own = (self.peer, if is_unproven { HostId::SOURCE } else { self.channel.host() });
        let others = self.channel.ways().iter().copied();
        std::iter::once(own).chain(others).map(|(peer, host)| (self.listener, peer, host))
    }

    /// Returns the source of a handshake or upgrade in progress that its peer began.
    pub(crate) fn handshake(&self) -> Option<IpAddr> {
        let is_begun = matches!(self.phase, Phase::Opening | Phase::Upgrading);
        (is_begun && self.is_accepted).then(|| self.peer.ip())
    }

    /// Returns whether its peer has proven something when it connected, so that it may say where it listens.
    pub(crate) fn may_have_alias(&self) -> bool {
        self.is_accepted && self.channel.has_certificate()
    }

    /// Returns what its peer is known by.
    pub(crate) fn source(&self) -> Source {
        Source { ip: self.peer.ip(), trunk: self.trunk() }
    }

    /// Returns the name of the trunk that its peer has proven to be; usually none.
    pub(crate) fn trunk(&self) -> HostId {
        self.channel.trunk()
    }

    /// Returns the number of received bytes that cannot be handled yet and that count towards
    /// [`KEPT_BYTES`](crate::limits::KEPT_BYTES), apart from `unparsed`.
    pub(crate) fn held(&self) -> usize {
        self.channel.held().saturating_sub(FREE_BYTES)
    }

    /// Returns the flow of its messages.
    pub(crate) fn flow(&self, id: ConnId) -> Flow {
        let host = self.trunk();
        Flow { host, ..Flow::on_connection(self.listener, self.channel.transport(), self.peer, id) }
    }

    /// Returns the number of bytes waiting to be sent.
    pub(crate) fn unsent(&self) -> usize {
        self.out.len().saturating_sub(self.written as usize) + self.channel.pending()
    }

    /// Writes waiting output; returns the number of bytes the kernel accepted.
    pub(crate) fn write_out(&mut self) -> io::Result<usize> {
        let mut taken = 0;
        self.channel.flush()?;
        while let Some(rest) = self.out.get(self.written as usize..).filter(|rest| !rest.is_empty()) {
            match self.channel.write(rest)? {
                IoOutcome::Bytes(count) => {
                    taken += count;
                    self.written = self.written.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
                }
                IoOutcome::Blocked => {
                    self.output = OutputState::Blocked;
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
        if self.channel.pending() > 0 {
            self.output = OutputState::Blocked;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_connection_is_as_small_as_without_tls() {
        // With debug assertions, mio remembers the poll of each socket.
        let of_mio = if cfg!(debug_assertions) { 16 } else { 0 };
        assert!(size_of::<Connection>() <= 152 + of_mio, "{}", size_of::<Connection>());
    }
}
