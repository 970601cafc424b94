//! The server's own addresses.

use core::net::SocketAddr;
use std::sync::Arc;

use strowger_foundation::{Flow, ListenerId, Transport};

/// What a listener is used for. Listeners come and go while the server runs; an id is never reused for another address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerState {
    /// Its sockets may receive before every worker has them; nothing is begun on it.
    Opening,
    /// In use.
    Open,
    /// It was removed. It still carries what is in progress, and what comes on its connections; nothing is begun on it.
    /// One for connections stays so: its connections have no common end.
    Draining,
    /// It has no socket, so its address may be another program's.
    Closed,
}

/// A local address.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The transport.
    pub transport: Transport,
    /// The address that the socket is bound to; never a wildcard.
    pub address: SocketAddr,
    /// The `host:port` in Via and Record-Route.
    pub sent_by: Box<[u8]>,
    /// Whether it is in use. Set by [`with_state`](Self::with_state).
    state: ListenerState,
    /// The transport over which it connects to peers; none for WebSockets, which only clients open (RFC 7118).
    opens: Option<Transport>,
    /// Our Via as a header line, up to the value of its branch.
    pub(crate) via: Box<[u8]>,
    /// The start of our Record-Route, up to its `lr`.
    pub(crate) route: Box<[u8]>,
}

impl Listener {
    /// Creates a listener with its own address as sent-by.
    #[must_use]
    pub fn new(transport: Transport, address: SocketAddr) -> Self {
        //= rfc3261#18.1.1:listens-at-sent-by
        //= rfc3581#3:sent-by-port
        let sent_by = address.to_string();
        let via = format!("Via: SIP/2.0/{transport} {sent_by};branch=").into_bytes();
        //= rfc3261#16.6:record-route-uri
        //= rfc3261#16.6:record-route-lr
        let route = format!("<sip:{sent_by}{};lr", transport_param(transport)).into_bytes();
        let (sent_by, via, route) = (sent_by.into_bytes().into(), via.into(), route.into());
        Self { transport, address, state: ListenerState::Open, opens: opened_by(transport), sent_by, via, route }
    }

    /// Sets what it is used for.
    #[must_use]
    pub fn with_state(self, state: ListenerState) -> Self {
        let opens = opened_by(self.transport).filter(|_| state == ListenerState::Open);
        Self { state, opens, ..self }
    }

    /// Returns what it is used for.
    #[must_use]
    pub const fn state(&self) -> ListenerState {
        self.state
    }

    /// Returns whether a message to `flow`, of this listener, can leave: over a socket, or over a connection that
    /// outlives it.
    #[must_use]
    pub fn carries(&self, flow: &Flow) -> bool {
        self.transport == flow.transport && (self.state != ListenerState::Closed || flow.connection.is_some())
    }
}

/// Returns the transport over which a listener of `transport` connects to peers.
fn opened_by(transport: Transport) -> Option<Transport> {
    Some(transport).filter(|transport| !transport.is_web_socket())
}

/// Returns the URI parameter for the transport; empty for UDP, the default.
pub(crate) const fn transport_param(transport: Transport) -> &'static str {
    match transport {
        Transport::Udp => "",
        Transport::Tcp => ";transport=tcp",
        Transport::Tls => ";transport=tls",
        //= rfc7118#5.2
        // TLS is not told apart: the client knows where it has connected.
        Transport::Ws | Transport::Wss => ";transport=ws",
    }
}

/// All listeners, indexed by [`ListenerId`], also those that were removed: their ids stay theirs.
#[derive(Clone, Debug)]
pub struct Listeners {
    all: Arc<[Listener]>,
    /// Those whose address is this server's; `all` unless some are [closed](ListenerState::Closed).
    own: Arc<[Listener]>,
}

impl Listeners {
    /// Creates the list from listeners in order.
    #[must_use]
    pub fn new(listeners: Vec<Listener>) -> Self {
        let all: Arc<[Listener]> = listeners.into();
        let is_own = |listener: &&Listener| listener.state != ListenerState::Closed;
        let own = if all.iter().all(|one| is_own(&one)) {
            Arc::clone(&all)
        } else {
            all.iter().filter(is_own).cloned().collect()
        };
        Self { all, own }
    }

    /// Returns the listener `id`, in any state.
    #[must_use]
    pub fn get(&self, id: ListenerId) -> Option<&Listener> {
        self.all.get(usize::from(id.0))
    }

    /// Returns the first open listener of a transport.
    #[must_use]
    pub fn position(&self, transport: Transport) -> Option<ListenerId> {
        self.find(|own| own.transport == transport && own.state == ListenerState::Open)
    }

    /// Returns the first listener that fits, in any state.
    pub fn find(&self, fits: impl FnMut(&Listener) -> bool) -> Option<ListenerId> {
        let index = self.all.iter().position(fits)?;
        u16::try_from(index).ok().map(ListenerId)
    }

    /// Returns the listeners whose address is this server's. Their places are no ids.
    pub fn iter(&self) -> core::slice::Iter<'_, Listener> {
        self.own.iter()
    }

    /// Returns all listeners by id, also closed ones.
    pub fn all(&self) -> core::slice::Iter<'_, Listener> {
        self.all.iter()
    }

    /// Returns the best listener of `transport` to open a way to `peer`: `preferred` if family and loopback match, else one with
    /// the same address, else the first that matches, else any of the family. One that drains is used only if it is preferred and no open one
    /// will do.
    #[must_use]
    pub fn towards(&self, transport: Transport, peer: SocketAddr, preferred: ListenerId) -> Option<ListenerId> {
        let same_family = |own: &Listener| own.opens == Some(transport) && own.address.is_ipv4() == peer.is_ipv4();
        let agrees = |own: &Listener| {
            same_family(own) && own.address.ip().to_canonical().is_loopback() == peer.ip().to_canonical().is_loopback()
        };
        let wanted = self.get(preferred);
        if wanted.is_some_and(agrees) {
            return Some(preferred);
        }
        let find = |fits: &dyn Fn(&Listener) -> bool| self.all.iter().position(fits);
        let twin = |own: &Listener| agrees(own) && wanted.is_some_and(|wanted| wanted.address.ip() == own.address.ip());
        if let Some(index) = find(&twin).or_else(|| find(&agrees)).or_else(|| find(&same_family)) {
            return u16::try_from(index).ok().map(ListenerId);
        }
        // Without another one, calls in progress still have this one.
        let is_last = |own: &Listener| {
            own.state == ListenerState::Draining
                && own.transport == transport
                && own.address.is_ipv4() == peer.is_ipv4()
        };
        wanted.is_some_and(is_last).then_some(preferred)
    }
}

impl<'a> IntoIterator for &'a Listeners {
    type Item = &'a Listener;
    type IntoIter = core::slice::Iter<'a, Listener>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
