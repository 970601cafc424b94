//! Connections between the server and the phones: who has which, how they are opened, and when they are cut.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use strowger_foundation::{ConnId, Flow, Timestamp};

use crate::network::Network;
use crate::rng::Rng;

/// How long the connections of a world live.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectionFaults {
    /// Connections that are cut at all, of a thousand.
    pub cut_per_mille: u64,
    /// After so long at most, in milliseconds.
    pub life_max_ms: u64,
    /// Connections of the server that are not accepted, of a thousand.
    pub refused_per_mille: u64,
}

/// One connection.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Whose.
    pub agent: usize,
    /// The phone's end, as the server sees it.
    pub peer: SocketAddr,
    since: Timestamp,
    open: bool,
    /// When the last message arrives, at the server and at the phone.
    last: [Timestamp; 2],
}

/// All connections that ever were.
#[derive(Debug)]
pub struct Streams {
    cuts: ConnectionFaults,
    rng: Rng,
    /// The server's end.
    server: SocketAddr,
    all: BTreeMap<ConnId, Stream>,
    /// By a stream phone's own address.
    phones: BTreeMap<SocketAddr, usize>,
    next: u32,
}

impl Streams {
    /// No connections; `phones` can be connected to.
    #[must_use]
    pub const fn new(
        cuts: ConnectionFaults,
        rng: Rng,
        server: SocketAddr,
        phones: BTreeMap<SocketAddr, usize>,
    ) -> Self {
        Self { cuts, rng, server, all: BTreeMap::new(), phones, next: 0 }
    }

    /// The connection, while it is open.
    #[must_use]
    pub fn open(&self, connection: ConnId) -> Option<&Stream> {
        self.all.get(&connection).filter(|stream| stream.open)
    }

    /// The latest connection of a phone.
    #[must_use]
    pub fn of_agent(&self, agent: usize) -> Option<ConnId> {
        let newest = |(connection, stream): &(&ConnId, &Stream)| (stream.since, connection.generation());
        let own = self.all.iter().filter(|(_, stream)| stream.open && stream.agent == agent);
        own.max_by_key(newest).map(|(connection, _)| *connection)
    }

    /// Opens a connection of `agent` at `host`; with the moment at which it will be cut, where it will.
    pub fn connect(&mut self, now: Timestamp, agent: usize, host: SocketAddr) -> (ConnId, Option<Timestamp>) {
        let port = u16::try_from(30_000 + self.next % 30_000).unwrap_or(u16::MAX);
        self.add(now, agent, SocketAddr::new(host.ip(), port))
    }

    /// The connection that a message of the server leaves on, perhaps a new one with the moment of its end; `None` where
    /// there is none and none can be opened.
    pub fn connection_for(&mut self, now: Timestamp, flow: &Flow) -> Option<(ConnId, Option<Timestamp>)> {
        if let Some(connection) = flow.connection.filter(|connection| self.open(*connection).is_some()) {
            return Some((connection, None));
        }
        if flow.connection.is_some() && !flow.reopen {
            return None;
        }
        let known = self.all.iter().find(|(_, stream)| stream.open && stream.peer == flow.peer);
        if let Some((connection, _)) = known {
            return Some((*connection, None));
        }
        let agent = *self.phones.get(&flow.peer)?;
        if self.rng.chance(self.cuts.refused_per_mille) {
            return None;
        }
        Some(self.add(now, agent, flow.peer))
    }

    /// Puts a message on its way to the server, or to the phone.
    pub fn send(&mut self, now: Timestamp, network: &mut Network, connection: ConnId, to_server: bool, bytes: &[u8]) {
        let server = self.server;
        let Some(stream) = self.all.get_mut(&connection).filter(|stream| stream.open) else { return };
        let ends = if to_server { (stream.peer, server) } else { (server, stream.peer) };
        let last = &mut stream.last[usize::from(!to_server)];
        *last = network.send_on(now, connection, ends, bytes, *last);
    }

    /// Cuts a connection; what it was.
    pub fn cut(&mut self, connection: ConnId) -> Option<Stream> {
        let stream = self.all.get_mut(&connection).filter(|stream| stream.open)?;
        stream.open = false;
        Some(*stream)
    }

    /// Cuts all connections, for the server is no more; which, and whose.
    pub fn cut_all(&mut self) -> Vec<(ConnId, usize)> {
        let open = self.all.iter_mut().filter(|(_, stream)| stream.open);
        open.map(|(connection, stream)| {
            stream.open = false;
            (*connection, stream.agent)
        })
        .collect()
    }

    fn add(&mut self, now: Timestamp, agent: usize, peer: SocketAddr) -> (ConnId, Option<Timestamp>) {
        self.next += 1;
        let connection = ConnId::new(0, self.next % 7, self.next);
        self.all.insert(connection, Stream { agent, peer, since: now, open: true, last: [now; 2] });
        let life = Duration::from_millis(self.rng.between(100, self.cuts.life_max_ms.max(100)));
        (connection, self.rng.chance(self.cuts.cut_per_mille).then(|| now + life))
    }
}
