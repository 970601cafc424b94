//! Connections of one end on one thread, as the driver's [`Outbox`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Interest, Registry, Token};
use strowger_foundation::{HostId, Transport};
use strowger_net::{Channel, IoOutcome, Progress, StreamSocket};

use super::line::{Line, Masks};
use super::links::{LinkCounts, cannot_bind};
use super::plan::PlanError;
use crate::driver::{Outbox, Partition};

/// Buffer size of one read from a stream.
const READ_BYTES: usize = 64 * 1024;
/// Maximum number of unsent bytes of a connection; further messages are dropped and counted.
const MAX_UNWRITTEN: usize = 1024 * 1024;
/// Time after which the kernel gives up sent bytes that are not acknowledged.
const USER_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of shared connections in their handshakes at a time. Servers limit those of one source.
const MAX_OPENING: usize = 16;
/// Number of the name in the server's certificate; all connections of a run go to one server.
const SERVER: HostId = HostId(1);

/// What connections are, and how they are opened.
#[derive(Clone, Debug)]
pub(super) struct StreamSettings {
    pub transport: Transport,
    /// Our addresses.
    pub sources: Vec<IpAddr>,
    /// Number of shared connections.
    pub limit: usize,
    /// Whether further shared connections are opened one by one as calls begin.
    pub opens_late: bool,
    /// Whether shared connections are opened beforehand.
    pub opens_ahead: bool,
    /// Name of the server, which its certificate must have; `None` if only the address is known.
    pub server: Option<Arc<str>>,
    pub masks: Masks,
}

/// A handshake that is over: its time and whether it continued an earlier session, or why it failed.
pub(super) type HandshakeResult = Result<(Duration, bool), String>;

/// Connections, opened and accepted.
#[derive(Debug)]
pub(super) struct Streams {
    listener: StreamSocket,
    settings: StreamSettings,
    /// Whether a connection could not be accepted for lack of a file; no further event reports it.
    is_starved: bool,
    /// Index of the next address to connect from.
    next_source: usize,
    connections: Vec<Option<Connection>>,
    free: Vec<u32>,
    /// Shared connections, and the index of the next one.
    shared: Vec<u32>,
    next: usize,
    /// Peer and number of shared connections that are still to be opened, and the number in their handshakes.
    unopened: Option<(SocketAddr, usize)>,
    opening: usize,
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
    /// Handshakes on connections that we opened and that are over.
    pub handshakes: Vec<HandshakeResult>,
    counts: LinkCounts,
}

#[derive(Debug)]
struct Connection {
    line: Line,
    /// When we began to open it; `None` if it was accepted.
    began: Option<Instant>,
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
        listener: StreamSocket,
        settings: StreamSettings,
        registry: Registry,
        token_of: fn(u32) -> Token,
    ) -> Self {
        Self {
            listener,
            settings,
            is_starved: false,
            next_source: 0,
            connections: Vec::new(),
            free: Vec::new(),
            shared: Vec::new(),
            next: 0,
            unopened: None,
            opening: 0,
            registry,
            token_of,
            dirty: Vec::new(),
            leaving: Vec::new(),
            spare: Vec::new(),
            buffer: vec![0; READ_BYTES],
            share: Partition::SINGLE,
            away: Vec::new(),
            handshakes: Vec::new(),
            counts: LinkCounts::default(),
        }
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
                connection.line.write(&self.spare, &mut connection.output);
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
        let StreamSettings { opens_late, limit, .. } = self.settings;
        if self.shared.is_empty() || (opens_late && self.shared.len() < limit) {
            return self.open(peer, true);
        }
        self.next = (self.next + 1) % self.shared.len();
        self.shared.get(self.next).copied()
    }

    /// Opens another listener at the same address, for another thread.
    pub(super) fn sibling_listener(&self) -> Result<StreamSocket, PlanError> {
        self.listener.sibling().map_err(|error| cannot_bind(&error))
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    pub(super) fn register_listener(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.listener, token, Interest::READABLE)
    }

    pub(super) fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok(Some((accepted, peer))) => {
                    // An end without a certificate cannot accept connections over TLS.
                    let Ok(channel) = accepted.into_channel(false) else {
                        self.counts.broken += 1;
                        continue;
                    };
                    let _ = channel.tune(USER_TIMEOUT);
                    let line = match self.settings.transport.is_web_socket() {
                        true => Line::websocket_from(channel, self.settings.masks.fork()),
                        false => Line::plain(channel),
                    };
                    let is_open = self.settings.transport == Transport::Tcp;
                    self.insert(line, peer, is_open, None, false);
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

    fn insert(
        &mut self,
        mut line: Line,
        peer: SocketAddr,
        is_open: bool,
        began: Option<Instant>,
        is_shared: bool,
    ) -> Option<u32> {
        let link = match self.free.pop() {
            Some(link) => link,
            None => {
                self.connections.push(None);
                u32::try_from(self.connections.len() - 1).ok()?
            }
        };
        let interest = Interest::READABLE | Interest::WRITABLE;
        if self.registry.register(&mut line.channel, (self.token_of)(link), interest).is_err() {
            self.free.push(link);
            return None;
        }
        let connection = Connection {
            line,
            began,
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
        let began = Instant::now();
        for _ in 0..self.settings.sources.len().max(1) {
            let source = self.next_source(peer);
            connected = self.connect_from(source, peer);
            if !connected.as_ref().is_err_and(is_out_of_ports) {
                break;
            }
        }
        match connected {
            Ok(line) => {
                let link = self.insert(line, peer, false, Some(began), is_shared)?;
                if is_shared {
                    self.shared.push(link);
                    self.opening += 1;
                }
                Some(link)
            }
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

    fn connect_from(&mut self, source: IpAddr, peer: SocketAddr) -> io::Result<Line> {
        let server = self.settings.server.as_deref();
        let channel = self.listener.connect_from(source, peer, server.map(|name| (SERVER, name)))?;
        if !self.settings.transport.is_web_socket() {
            return Ok(Line::plain(channel));
        }
        let host = match server {
            Some(name) => format!("{name}:{}", peer.port()),
            None => peer.to_string(),
        };
        Ok(Line::websocket_to(channel, &host, self.settings.masks.fork()))
    }

    /// Returns the source address of the next connection.
    fn next_source(&mut self, peer: SocketAddr) -> IpAddr {
        self.next_source = (self.next_source + 1) % self.settings.sources.len().max(1);
        let source = self.settings.sources.get(self.next_source).filter(|source| source.is_ipv4() == peer.is_ipv4());
        source.copied().unwrap_or(match peer {
            SocketAddr::V4(_) => IpAddr::from([0, 0, 0, 0]),
            SocketAddr::V6(_) => IpAddr::from([0_u16; 8]),
        })
    }

    /// Begins to open the shared connections; those over TCP at once, others as handshakes end.
    pub(super) fn open_shared(&mut self, peer: SocketAddr) {
        let count = if self.settings.opens_ahead { self.settings.limit } else { 0 };
        self.unopened = Some((peer, count));
        self.open_next();
    }

    fn open_next(&mut self) {
        while let Some((peer, count @ 1..)) = self.unopened {
            if self.settings.transport != Transport::Tcp && self.opening >= MAX_OPENING {
                return;
            }
            self.unopened = Some((peer, count - 1));
            self.open(peer, true);
        }
    }

    /// Notes the end of a handshake; with an error the connection is broken.
    fn on_opened(&mut self, link: u32, result: Result<(), &io::Error>) {
        let Some(Some(connection)) = self.connections.get_mut(link as usize) else { return };
        connection.is_open = result.is_ok();
        self.counts.broken += u64::from(result.is_err());
        if let Some(began) = connection.began.take() {
            self.opening -= usize::from(connection.is_shared);
            let handshake = result.map(|()| (began.elapsed(), connection.line.channel.is_resumed())).map_err(reason_of);
            if self.settings.transport != Transport::Tcp {
                self.handshakes.push(handshake);
            }
        }
        self.open_next();
    }

    /// Continues to open a connection; returns whether it is open. On an error it is closed.
    fn advance(&mut self, link: u32, received: &mut ReadResult) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(link as usize) else { return false };
        if connection.is_open {
            return true;
        }
        match connection.line.advance(&mut connection.input, &mut self.buffer) {
            Ok(Progress::Opening) => false,
            Ok(Progress::Open) => {
                if connection.began.is_some() {
                    let _ = connection.line.channel.tune(USER_TIMEOUT);
                }
                self.on_opened(link, Ok(()));
                true
            }
            Err(error) => {
                received.is_closed = true;
                self.on_opened(link, Err(&error));
                false
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
        if !self.advance(link, received) {
            return;
        }
        let Some(Some(connection)) = self.connections.get_mut(link as usize) else { return };
        received.is_closed = !fill(&mut connection.line.channel, &mut connection.input, &mut self.buffer);
        let Connection { line, input, output, .. } = connection;
        let counts = &mut self.counts;
        let is_open = line.messages(input, output, |message| {
            received.bytes.extend_from_slice(message);
            received.ends.push(received.bytes.len());
            counts.received += 1;
        });
        received.is_closed |= !is_open;
        let waits = connection.output.len() > connection.written || connection.line.channel.pending() > 0;
        if !connection.is_dirty && waits {
            connection.is_dirty = true;
            self.dirty.push(link);
        }
    }

    /// Removes a connection.
    pub(super) fn forget(&mut self, link: u32) {
        let Some(place) = self.connections.get_mut(link as usize) else { return };
        if let Some(mut connection) = place.take() {
            if connection.is_open {
                connection.line.end();
            }
            let _ = self.registry.deregister(&mut connection.line.channel);
            self.free.push(link);
            if connection.is_shared {
                self.shared.retain(|other| *other != link);
            }
            // A handshake that was still in progress when its call ended.
            if connection.began.is_some() && self.settings.transport != Transport::Tcp {
                self.handshakes.push(Err("not complete when the call gave up".to_owned()));
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
                match connection.line.channel.write(rest) {
                    Ok(IoOutcome::Bytes(count)) => connection.written += count,
                    Ok(IoOutcome::Blocked) => break,
                    Ok(IoOutcome::Eof) | Err(_) => {
                        connection.written = connection.output.len();
                        self.counts.send_failures += 1;
                    }
                }
            }
            if connection.written < connection.output.len() {
                continue;
            }
            connection.output.clear();
            connection.written = 0;
            // A failure shows when the connection is read.
            let _ = connection.line.channel.flush();
            if connection.is_closing && connection.line.channel.pending() == 0 {
                self.forget(link);
            }
        }
        self.leaving.clear();
    }

    pub(super) const fn counts(&self) -> LinkCounts {
        self.counts
    }
}

/// Reads what has arrived into `input`; returns false if the connection is over.
fn fill(channel: &mut Channel, input: &mut Vec<u8>, buffer: &mut [u8]) -> bool {
    loop {
        match channel.read(buffer) {
            Ok(IoOutcome::Bytes(count)) => input.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            Ok(IoOutcome::Blocked) => return true,
            Ok(IoOutcome::Eof) | Err(_) => return false,
        }
    }
}

/// Returns why a connection could not be opened, in terms of this program's options.
fn reason_of(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "the server closed the connection; it may have reached a limit of connections or handshakes".to_owned()
        }
        io::ErrorKind::ConnectionRefused => "connection refused: nothing listens there (--to)".to_owned(),
        _ => error.to_string().replace("tls.certificates", "--certificate").replace("tls.ca", "--ca"),
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
        if connection.output.len() > connection.written || connection.line.channel.pending() > 0 {
            connection.is_closing = true;
        } else {
            self.forget(link);
        }
    }
}
