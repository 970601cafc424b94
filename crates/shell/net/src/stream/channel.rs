//! The bytes of one connection, whatever carries them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use strowger_foundation::{HostId, Transport};

use super::preface::Preface;
use super::progress::Progress;
use super::source::delegate_source;
use super::tcp::{IoOutcome, TcpStream};
use super::tls::TlsSession;
use super::web_socket::WebSocket;

/// A connection as a stream of bytes. Never blocks.
#[derive(Debug)]
pub struct Channel {
    stream: TcpStream,
    /// What a plain connection does not have.
    session: Option<Box<Session>>,
}

/// What lies between the socket and the messages.
#[derive(Debug, Default)]
struct Session {
    tls: Option<Box<TlsSession>>,
    web_socket: Option<WebSocket>,
    preface: Preface,
    /// The name that a peer to which we connect must prove over TLS.
    host: HostId,
    /// The name of the trunk that the peer has proven to be.
    trunk: HostId,
    /// Of a peer that connected to us: the addresses and names that requests to it may have.
    ways: Vec<(SocketAddr, HostId)>,
    /// The port at which it says that it listens.
    alias: Option<u16>,
}

impl Channel {
    pub(super) const fn plain(stream: TcpStream) -> Self {
        Self { stream, session: None }
    }

    pub(super) fn secure(stream: TcpStream, tls: TlsSession, host: HostId) -> Self {
        let mut channel = Self::plain(stream);
        let session = channel.session_mut();
        (session.tls, session.host) = (Some(Box::new(tls)), host);
        channel
    }

    /// Expects a request for a WebSocket on it.
    pub(super) fn with_web_socket(mut self, web_socket: WebSocket) -> Self {
        self.session_mut().web_socket = Some(web_socket);
        self
    }

    /// Expects a PROXY header on it, before everything else.
    pub(super) fn with_preface(mut self) -> Self {
        self.session_mut().preface = Preface::Expected;
        self
    }

    fn session_mut(&mut self) -> &mut Session {
        self.session.get_or_insert_default()
    }

    /// Whether a PROXY header is still to come.
    #[must_use]
    pub fn expects_preface(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.preface == Preface::Expected)
    }

    /// Returns, once, what the PROXY header says: the address of the client, or `None` if the balancer speaks for
    /// itself.
    pub fn take_source(&mut self) -> Option<Option<SocketAddr>> {
        let session = self.session.as_mut()?;
        let Preface::Received(source) = session.preface else { return None };
        session.preface = Preface::None;
        if session.tls.is_none() && session.web_socket.is_none() {
            self.session = None;
        }
        Some(source)
    }

    fn tls(&self) -> Option<&TlsSession> {
        self.session.as_ref()?.tls.as_deref()
    }

    /// Returns the WebSocket, if it has one.
    #[must_use]
    pub fn web_socket(&self) -> Option<&WebSocket> {
        self.session.as_ref()?.web_socket.as_ref()
    }

    /// Returns the WebSocket, if it has one, mutably.
    pub fn web_socket_mut(&mut self) -> Option<&mut WebSocket> {
        self.session.as_mut()?.web_socket.as_mut()
    }

    /// Returns the transport of its messages.
    #[must_use]
    pub fn transport(&self) -> Transport {
        transport_of(self.is_secure(), self.web_socket().is_some())
    }

    /// Whether it has a handshake of TLS, and is encrypted after it.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.tls().is_some()
    }

    /// Continues to open the connection; called when mio reports an event. A step of a handshake may cost a
    /// millisecond.
    ///
    /// # Errors
    /// Why it could not be opened.
    pub fn advance(&mut self) -> io::Result<Progress> {
        if !self.stream.is_connected()? {
            return Ok(Progress::Opening);
        }
        if let Some(session) = &mut self.session
            && !session.preface.receive(&self.stream)?
        {
            return Ok(Progress::Opening);
        }
        match tls_of(&mut self.session) {
            None => Ok(Progress::Open),
            Some(tls) => tls.advance(&self.stream),
        }
    }

    /// Returns the name of a peer to which we connect: once the connection is open, its certificate has proven it.
    #[must_use]
    pub fn host(&self) -> HostId {
        self.session.as_ref().map_or(HostId::NONE, |session| session.host)
    }

    /// Returns the name of the trunk that the peer has proven to be; usually none.
    #[must_use]
    pub fn trunk(&self) -> HostId {
        self.session.as_ref().map_or(HostId::NONE, |session| session.trunk)
    }

    /// Stores the name of the trunk that the peer has proven to be, out of its [domains](Self::domains).
    pub fn set_trunk(&mut self, trunk: HostId) {
        if let Some(session) = &mut self.session {
            session.trunk = trunk;
        }
    }

    /// Returns the addresses and names by which requests reach a peer that connected to us, as far as it has proven
    /// them; none if it has no certificate.
    #[must_use]
    pub fn ways(&self) -> &[(SocketAddr, HostId)] {
        self.session.as_ref().map_or(&[], |session| &session.ways)
    }

    /// Stores the addresses and names by which requests reach a peer that connected to us.
    pub fn set_ways(&mut self, ways: Vec<(SocketAddr, HostId)>) {
        if let Some(session) = &mut self.session {
            session.ways = ways;
        }
    }

    /// Returns the port at which a peer that connected to us says that it listens (RFC 5923).
    #[must_use]
    pub fn alias(&self) -> Option<u16> {
        self.session.as_ref()?.alias
    }

    /// Stores the port at which a peer that connected to us says that it listens.
    pub fn set_alias(&mut self, port: u16) {
        if let Some(session) = &mut self.session {
            session.alias = Some(port);
        }
    }

    /// Returns the domains that the certificate of the peer speaks for (RFC 5922 §7.1); none without a certificate.
    #[must_use]
    pub fn domains(&self) -> Vec<String> {
        self.tls().map(TlsSession::domains).unwrap_or_default()
    }

    /// Whether the peer has a certificate, which is valid once the connection is open.
    #[must_use]
    pub fn has_certificate(&self) -> bool {
        self.tls().is_some_and(TlsSession::has_certificate)
    }

    /// Returns whether the certificate of the peer has an address.
    #[must_use]
    pub fn has_address(&self, ip: IpAddr) -> bool {
        self.tls().is_some_and(|tls| tls.has_address(ip))
    }

    /// Whether its session continues an earlier one, without the certificates being sent again.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.tls().is_some_and(TlsSession::is_resumed)
    }

    /// Sets the options of the socket: see [`TcpStream::tune`].
    ///
    /// # Errors
    /// When the connection is already gone.
    pub fn tune(&self, user_timeout: Duration) -> io::Result<()> {
        self.stream.tune(user_timeout)
    }

    /// Reads received bytes.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<IoOutcome> {
        match tls_of(&mut self.session) {
            None => self.stream.read(buffer),
            Some(tls) => tls.read(&self.stream, buffer),
        }
    }

    /// Whether more input may be waiting after a read that did not fill its buffer.
    #[must_use]
    pub fn has_input(&self) -> bool {
        self.tls().is_some_and(TlsSession::has_input)
    }

    /// Returns the number of received bytes that cannot be read yet, because their record is incomplete.
    #[must_use]
    pub fn held(&self) -> usize {
        self.tls().map_or(0, TlsSession::held)
    }

    /// Whether the peer has begun a record that it has not ended.
    #[must_use]
    pub fn is_midway(&self) -> bool {
        self.tls().is_some_and(TlsSession::is_midway)
    }

    /// Writes as much of `bytes`, which is not empty, as the connection takes.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<IoOutcome> {
        match tls_of(&mut self.session) {
            None => self.stream.write(bytes),
            Some(tls) => tls.write(&self.stream, bytes),
        }
    }

    /// Returns the number of bytes that were taken by [`write`](Self::write) but not yet by the kernel.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.tls().map_or(0, TlsSession::pending)
    }

    /// Sends pending bytes as far as the kernel takes them.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn flush(&mut self) -> io::Result<()> {
        match tls_of(&mut self.session) {
            None => Ok(()),
            Some(tls) => tls.flush(&self.stream),
        }
    }

    /// Closes the sending side; bytes already written are still sent.
    pub fn end(&mut self) {
        self.say_end();
        self.stream.end();
    }

    /// Tells the peer of an encrypted connection that nothing follows; called before it is dropped.
    pub fn say_end(&mut self) {
        if let Some(tls) = tls_of(&mut self.session) {
            tls.end(&self.stream);
        }
    }
}

/// Returns the transport of connections with these layers.
pub(super) const fn transport_of(has_tls: bool, has_web_socket: bool) -> Transport {
    match (has_tls, has_web_socket) {
        (false, false) => Transport::Tcp,
        (true, false) => Transport::Tls,
        (false, true) => Transport::Ws,
        (true, true) => Transport::Wss,
    }
}

fn tls_of(session: &mut Option<Box<Session>>) -> Option<&mut TlsSession> {
    session.as_mut()?.tls.as_deref_mut()
}

delegate_source!(Channel => stream);
