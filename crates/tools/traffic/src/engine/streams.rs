//! Connections of one end on one thread, as the driver's [`Outbox`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use mio::{Interest, Registry, Token};
use strowger_message::{FrameResult, frame_stream};
use strowger_net::{IoOutcome, TcpListener, TcpStream};

use super::links::{LinkCounts, cannot_bind};
use super::plan::PlanError;
use crate::driver::{Outbox, Partition};

/// Buffer size of one read from a stream.
const READ_BYTES: usize = 64 * 1024;
/// Maximum number of unsent bytes of a connection; further messages are dropped and counted.
const MAX_UNWRITTEN: usize = 1024 * 1024;

/// Connections, opened and accepted.
#[derive(Debug)]
pub(super) struct Streams {
    listener: Option<TcpListener>,
    /// Whether a connection could not be accepted for lack of a file; no further event reports it.
    is_starved: bool,
    /// Our addresses, and the index of the next one to connect from.
    sources: Vec<IpAddr>,
    next_source: usize,
    connections: Vec<Option<Connection>>,
    free: Vec<u32>,
    /// Shared connections, and the index of the next one.
    shared: Vec<u32>,
    next: usize,
    limit: usize,
    /// Whether shared connections are opened one by one as calls begin, not beforehand.
    opens_late: bool,
    registry: Registry,
    token_of: fn(u32) -> Token,
    dirty: Vec<u32>,
    /// Connections of `dirty` that are being flushed; the memory is reused.
    leaving: Vec<u32>,
    spare: Vec<u8>,
    buffer: Vec<u8>,
    /// Our index among the threads that listen at one address; links are numbered over all of them.
    share: Partition,
    /// Messages for connections of other threads: link, peer and bytes.
    pub away: Vec<(u32, SocketAddr, Vec<u8>)>,
    counts: LinkCounts,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    is_open: bool,
    is_dirty: bool,
    is_closing: bool,
    is_shared: bool,
    /// Bytes read and not yet framed.
    input: Vec<u8>,
    /// Bytes rendered; those from `written` on are not yet taken by the kernel.
    output: Vec<u8>,
    written: usize,
    peer: SocketAddr,
}

/// Result of reading a connection.
#[derive(Debug, Default)]
pub(super) struct ReadResult {
    /// Consecutive messages, and where each ends.
    pub bytes: Vec<u8>,
    pub ends: Vec<usize>,
    pub is_closed: bool,
    pub peer: Option<SocketAddr>,
}

impl Streams {
    pub(super) fn new(
        listener: Option<TcpListener>,
        sources: &[IpAddr],
        (limit, opens_late): (usize, bool),
        registry: Registry,
        token_of: fn(u32) -> Token,
    ) -> Result<Self, PlanError> {
        Ok(Self {
            listener,
            is_starved: false,
            sources: sources.to_vec(),
            next_source: 0,
            connections: Vec::new(),
            free: Vec::new(),
            shared: Vec::new(),
            next: 0,
            limit: limit.max(1),
            opens_late,
            registry,
            token_of,
            dirty: Vec::new(),
            leaving: Vec::new(),
            spare: Vec::new(),
            buffer: vec![0; READ_BYTES],
            share: Partition::SINGLE,
            away: Vec::new(),
            counts: LinkCounts::default(),
        })
    }

    /// Makes link numbers differ from those of the other threads at this address. Must be called before any link
    /// exists.
    pub(super) const fn number_as(&mut self, share: Partition) {
        self.share = share;
    }

    /// Returns the number of a connection among those of all threads at this address.
    pub(super) const fn global(&self, link: u32) -> u32 {
        link.saturating_mul(self.share.of).saturating_add(self.share.index)
    }

    /// Returns the local number of a connection, if it is ours.
    const fn own(&self, link: u32) -> Option<u32> {
        if link % self.share.of == self.share.index { Some(link / self.share.of) } else { None }
    }

    /// Sends a message of another thread on a connection of ours. Checks the peer, because the connection may have
    /// been closed meanwhile and its number reused.
    pub(super) fn send_for_other(&mut self, link: u32, peer: SocketAddr, bytes: &[u8]) {
        let link = self.own(link).unwrap_or(u32::MAX);
        let is_there = matches!(self.connections.get(link as usize), Some(Some(there)) if there.peer == peer);
        if is_there {
            self.spare.clear();
            self.spare.extend_from_slice(bytes);
            self.write(link);
        } else {
            self.counts.send_failures += 1;
        }
    }

    /// Sends the contents of the spare buffer on one of our connections.
    fn write(&mut self, link: u32) {
        match self.connections.get_mut(link as usize) {
            Some(Some(connection)) if connection.output.len() - connection.written < MAX_UNWRITTEN => {
                connection.output.drain(..std::mem::take(&mut connection.written));
                connection.output.extend_from_slice(&self.spare);
                self.counts.sent += 1;
                if !std::mem::replace(&mut connection.is_dirty, true) {
                    self.dirty.push(link);
                }
            }
            _ => self.counts.send_failures += 1,
        }
    }

    /// Returns a connection to `peer`: a new one of its own, or a shared one.
    fn connection_to(&mut self, peer: SocketAddr, is_own: bool) -> Option<u32> {
        if is_own {
            return self.open(peer, false);
        }
        if self.shared.is_empty() || (self.opens_late && self.shared.len() < self.limit) {
            let link = self.open(peer, true)?;
            self.shared.push(link);
            return Some(link);
        }
        self.next = (self.next + 1) % self.shared.len();
        self.shared.get(self.next).copied()
    }

    /// Opens another listener at the same address, for another thread.
    pub(super) fn sibling_listener(&self) -> Result<Option<TcpListener>, PlanError> {
        self.listener.as_ref().map(TcpListener::sibling).transpose().map_err(|error| cannot_bind(&error))
    }

    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().map(TcpListener::local_addr)
    }

    pub(super) fn register_listener(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match &mut self.listener {
            Some(listener) => registry.register(listener, token, Interest::READABLE),
            None => Ok(()),
        }
    }

    pub(super) fn accept(&mut self) {
        while let Some(listener) = &self.listener {
            match listener.accept() {
                Ok(Some((stream, peer))) => {
                    let _ = stream.tune(Duration::from_secs(60));
                    self.insert(stream, peer, true, false);
                }
                Ok(None) => return self.is_starved = false,
                Err(error) => {
                    if !std::mem::replace(&mut self.is_starved, true) {
                        self.counts.exhausted += 1;
                        self.counts.out_of_files += u64::from(strowger_net::is_out_of_files(&error));
                    }
                    return;
                }
            }
        }
    }

    fn insert(&mut self, mut stream: TcpStream, peer: SocketAddr, is_open: bool, is_shared: bool) -> Option<u32> {
        let link = match self.free.pop() {
            Some(link) => link,
            None => {
                self.connections.push(None);
                u32::try_from(self.connections.len() - 1).ok()?
            }
        };
        let interest = Interest::READABLE | Interest::WRITABLE;
        if self.registry.register(&mut stream, (self.token_of)(link), interest).is_err() {
            self.free.push(link);
            return None;
        }
        let connection = Connection {
            stream,
            is_open,
            is_dirty: false,
            is_closing: false,
            is_shared,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            peer,
        };
        if let Some(place) = self.connections.get_mut(link as usize) {
            *place = Some(connection);
        }
        self.counts.connected += 1;
        Some(link)
    }

    fn open(&mut self, peer: SocketAddr, is_shared: bool) -> Option<u32> {
        // If one address has no port left, another may.
        let mut connected = Err(io::ErrorKind::AddrNotAvailable.into());
        for _ in 0..self.sources.len().max(1) {
            connected = TcpStream::connect(self.next_source(peer), peer);
            if !connected.as_ref().is_err_and(is_out_of_ports) {
                break;
            }
        }
        match connected {
            Ok(stream) => self.insert(stream, peer, false, is_shared),
            Err(error) => {
                let is_of_files = strowger_net::is_out_of_files(&error);
                if is_of_files || is_out_of_ports(&error) {
                    self.counts.exhausted += 1;
                    self.counts.out_of_files += u64::from(is_of_files);
                } else {
                    self.counts.broken += 1;
                }
                None
            }
        }
    }

    /// Returns the source address of the next connection.
    fn next_source(&mut self, peer: SocketAddr) -> IpAddr {
        self.next_source = (self.next_source + 1) % self.sources.len().max(1);
        let source = self.sources.get(self.next_source).filter(|source| source.is_ipv4() == peer.is_ipv4());
        source.copied().unwrap_or(match peer {
            SocketAddr::V4(_) => IpAddr::from([0, 0, 0, 0]),
            SocketAddr::V6(_) => IpAddr::from([0_u16; 8]),
        })
    }

    /// Opens the shared connections.
    pub(super) fn open_shared(&mut self, peer: SocketAddr) {
        for _ in 0..if self.opens_late { 0 } else { self.limit } {
            if let Some(link) = self.open(peer, true) {
                self.shared.push(link);
            }
        }
    }

    /// Reads from a connection.
    pub(super) fn read(&mut self, link: u32, received: &mut ReadResult) {
        received.bytes.clear();
        received.ends.clear();
        (received.is_closed, received.peer) = (false, None);
        let Some(Some(connection)) = self.connections.get_mut(link as usize) else { return };
        received.peer = Some(connection.peer);
        if !connection.is_open {
            match connection.stream.is_connected() {
                Ok(true) => {
                    connection.is_open = true;
                    let _ = connection.stream.tune(Duration::from_secs(60));
                    if connection.output.len() > connection.written
                        && !std::mem::replace(&mut connection.is_dirty, true)
                    {
                        self.dirty.push(link);
                    }
                }
                Ok(false) => return,
                Err(_) => {
                    received.is_closed = true;
                    self.counts.broken += 1;
                    return;
                }
            }
        }
        loop {
            match connection.stream.read(&mut self.buffer) {
                Ok(IoOutcome::Bytes(count)) => {
                    connection.input.extend_from_slice(self.buffer.get(..count).unwrap_or(&[]));
                }
                Ok(IoOutcome::Blocked) => break,
                Ok(IoOutcome::Eof) | Err(_) => {
                    received.is_closed = true;
                    break;
                }
            }
        }
        let mut at = 0;
        loop {
            let rest = connection.input.get(at..).unwrap_or(&[]);
            match frame_stream(rest) {
                FrameResult::KeepAlive(count) => at += count,
                FrameResult::Message(count) => {
                    received.bytes.extend_from_slice(rest.get(..count).unwrap_or(&[]));
                    received.ends.push(received.bytes.len());
                    self.counts.received += 1;
                    at += count;
                }
                FrameResult::Incomplete => break,
                FrameResult::Malformed(_) => {
                    received.is_closed = true;
                    break;
                }
            }
        }
        connection.input.drain(..at);
        if !connection.is_dirty && connection.output.len() > connection.written {
            connection.is_dirty = true;
            self.dirty.push(link);
        }
    }

    /// Removes a connection.
    pub(super) fn forget(&mut self, link: u32) {
        let Some(place) = self.connections.get_mut(link as usize) else { return };
        if let Some(mut connection) = place.take() {
            let _ = self.registry.deregister(&mut connection.stream);
            self.free.push(link);
            if connection.is_shared {
                self.shared.retain(|other| *other != link);
            }
        }
    }

    pub(super) fn flush(&mut self) {
        if self.is_starved {
            self.accept();
        }
        std::mem::swap(&mut self.dirty, &mut self.leaving);
        for index in 0..self.leaving.len() {
            let Some(link) = self.leaving.get(index).copied() else { break };
            let Some(Some(connection)) = self.connections.get_mut(link as usize) else { continue };
            connection.is_dirty = false;
            if !connection.is_open {
                continue;
            }
            while let Some(rest) = connection.output.get(connection.written..).filter(|rest| !rest.is_empty()) {
                match connection.stream.write(rest) {
                    Ok(IoOutcome::Bytes(count)) => connection.written += count,
                    Ok(IoOutcome::Blocked) => break,
                    Ok(IoOutcome::Eof) | Err(_) => {
                        connection.written = connection.output.len();
                        self.counts.send_failures += 1;
                    }
                }
            }
            if connection.written == connection.output.len() {
                connection.output.clear();
                connection.written = 0;
                if connection.is_closing {
                    self.forget(link);
                }
            }
        }
        self.leaving.clear();
    }

    pub(super) const fn counts(&self) -> LinkCounts {
        self.counts
    }
}

fn is_out_of_ports(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse)
}

impl Outbox for Streams {
    fn slot(&mut self, _: u32) -> &mut Vec<u8> {
        // Templates read back what they have written, so each message starts in an empty buffer.
        self.spare.clear();
        &mut self.spare
    }

    fn commit(&mut self, link: u32, peer: SocketAddr, _: u64) {
        match self.own(link) {
            Some(link) => self.write(link),
            None => self.away.push((link, peer, self.spare.clone())),
        }
    }

    fn connect(&mut self, peer: SocketAddr, is_own: bool) -> Option<u32> {
        self.connection_to(peer, is_own).map(|link| self.global(link))
    }

    fn close(&mut self, link: u32) {
        let Some(link) = self.own(link) else { return };
        let Some(Some(connection)) = self.connections.get_mut(link as usize) else { return };
        if connection.is_shared {
            return;
        }
        if connection.output.len() > connection.written {
            connection.is_closing = true;
        } else {
            self.forget(link);
        }
    }
}
