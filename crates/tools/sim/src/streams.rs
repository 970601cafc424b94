//! Connections between the server and the phones: their owners, how they are opened, and when they are closed.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use strowger_foundation::{ConnId, Flow, Timestamp};

use crate::network::Network;
use crate::rng::Rng;

/// Connection faults and lifetimes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectionFaults {
    /// Share of connections that are closed by a fault, in ‰.
    pub cut_per_mille: u64,
    /// Longest time until such a fault, in ms.
    pub life_max_ms: u64,
    /// Share of the server's connection attempts that are refused, in ‰.
    pub refused_per_mille: u64,
}

/// Connection between a phone and the server.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Index of the phone's agent.
    pub agent: usize,
    /// Phone's address as the server sees it.
    pub peer: SocketAddr,
    since: Timestamp,
    open: bool,
    /// Arrival of the last message, at the server and at the phone.
    last: [Timestamp; 2],
}

/// All connections, open and closed.
#[derive(Debug)]
pub struct Streams {
    cuts: ConnectionFaults,
    rng: Rng,
    /// Server's address.
    server: SocketAddr,
    all: BTreeMap<ConnId, Stream>,
    /// Agents by the phone's own address, for phones on streams.
    phones: BTreeMap<SocketAddr, usize>,
    next: u32,
}

impl Streams {
    /// Creates an empty set; the server can connect to `phones`.
    #[must_use]
    pub const fn new(
        cuts: ConnectionFaults,
        rng: Rng,
        server: SocketAddr,
        phones: BTreeMap<SocketAddr, usize>,
    ) -> Self {
        Self { cuts, rng, server, all: BTreeMap::new(), phones, next: 0 }
    }

    /// Returns a connection if it is open.
    #[must_use]
    pub fn open(&self, connection: ConnId) -> Option<&Stream> {
        self.all.get(&connection).filter(|stream| stream.open)
    }

    /// Returns the latest connection of a phone.
    #[must_use]
    pub fn of_agent(&self, agent: usize) -> Option<ConnId> {
        let newest = |(connection, stream): &(&ConnId, &Stream)| (stream.since, connection.generation());
        let own = self.all.iter().filter(|(_, stream)| stream.open && stream.agent == agent);
        own.max_by_key(newest).map(|(connection, _)| *connection)
    }

    /// Opens a connection of `agent` at `host` and returns it with the time of its fault, if any.
    pub fn connect(&mut self, now: Timestamp, agent: usize, host: SocketAddr) -> (ConnId, Option<Timestamp>) {
        let port = u16::try_from(30_000 + self.next % 30_000).unwrap_or(u16::MAX);
        self.add(now, agent, SocketAddr::new(host.ip(), port))
    }

    /// Returns the connection for a message of the server.
    ///
    /// A new connection comes with the time of its fault, if any. Returns `None` if no connection is open and none
    /// can be opened.
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

    /// Sends a message to the server or to the phone.
    pub fn send(&mut self, now: Timestamp, network: &mut Network, connection: ConnId, to_server: bool, bytes: &[u8]) {
        let server = self.server;
        let Some(stream) = self.all.get_mut(&connection).filter(|stream| stream.open) else { return };
        let ends = if to_server { (stream.peer, server) } else { (server, stream.peer) };
        let last = &mut stream.last[usize::from(!to_server)];
        *last = network.send_on(now, connection, ends, bytes, *last);
    }

    /// Closes a connection and returns its former state.
    pub fn cut(&mut self, connection: ConnId) -> Option<Stream> {
        let stream = self.all.get_mut(&connection).filter(|stream| stream.open)?;
        stream.open = false;
        Some(*stream)
    }

    /// Closes all connections after the end of the process and returns them with their agents.
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
