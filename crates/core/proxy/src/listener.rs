//! The server's own addresses.

use core::net::SocketAddr;
use std::sync::Arc;

use strowger_foundation::{ListenerId, Transport};

/// A local address.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The transport.
    pub transport: Transport,
    /// The address that the socket is bound to; never a wildcard.
    pub address: SocketAddr,
    /// The `host:port` in Via and Record-Route.
    pub sent_by: Box<[u8]>,
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
        Self { transport, address, sent_by: sent_by.into_bytes().into(), via: via.into(), route: route.into() }
    }
}

/// Returns the URI parameter for the transport; empty for UDP, the default.
pub(crate) const fn transport_param(transport: Transport) -> &'static str {
    match transport {
        Transport::Udp => "",
        Transport::Tcp => ";transport=tcp",
        Transport::Tls => ";transport=tls",
        Transport::Ws => ";transport=ws",
        Transport::Wss => ";transport=wss",
    }
}

/// All listeners, indexed by [`ListenerId`]. Fixed for the life of the process.
#[derive(Clone, Debug)]
pub struct Listeners(Arc<[Listener]>);

impl Listeners {
    /// Creates the list from listeners in order.
    #[must_use]
    pub fn new(listeners: Vec<Listener>) -> Self {
        Self(listeners.into())
    }

    /// Returns the listener `id`.
    #[must_use]
    pub fn get(&self, id: ListenerId) -> Option<&Listener> {
        self.0.get(usize::from(id.0))
    }

    /// Returns all listeners in order.
    pub fn iter(&self) -> core::slice::Iter<'_, Listener> {
        self.0.iter()
    }

    /// Returns the best listener of `transport` for `peer`: `preferred` if family and loopback match, else one with
    /// the same address, else the first that matches, else any of the family.
    #[must_use]
    pub fn towards(&self, transport: Transport, peer: SocketAddr, preferred: ListenerId) -> Option<ListenerId> {
        let same_family = |own: &Listener| own.transport == transport && own.address.is_ipv4() == peer.is_ipv4();
        let agrees = |own: &Listener| {
            same_family(own) && own.address.ip().to_canonical().is_loopback() == peer.ip().to_canonical().is_loopback()
        };
        let wanted = self.get(preferred);
        if wanted.is_some_and(agrees) {
            return Some(preferred);
        }
        let find = |fits: &dyn Fn(&Listener) -> bool| self.0.iter().position(fits);
        let twin = |own: &Listener| agrees(own) && wanted.is_some_and(|wanted| wanted.address.ip() == own.address.ip());
        let index = find(&twin).or_else(|| find(&agrees)).or_else(|| find(&same_family))?;
        u16::try_from(index).ok().map(ListenerId)
    }
}

impl<'a> IntoIterator for &'a Listeners {
    type Item = &'a Listener;
    type IntoIter = core::slice::Iter<'a, Listener>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
