//! The configuration and the directory as one immutable value: a shard sees either the old one or the new one, never a
//! mixture.

use core::net::SocketAddr;

use strowger_directory::Directory;
use strowger_foundation::{ListenerId, Transport};
use strowger_message::{Aor, Host, SipUri};

/// One local address.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The transport.
    pub transport: Transport,
    /// The address that the socket is bound to; never a wildcard.
    pub address: SocketAddr,
    /// What Via and Record-Route say, `host:port`.
    pub sent_by: Box<[u8]>,
}

impl Listener {
    /// A listener that calls itself by its own address.
    #[must_use]
    pub fn new(transport: Transport, address: SocketAddr) -> Self {
        Self { transport, address, sent_by: address.to_string().into_bytes().into() }
    }
}

/// Everything that a shard is told from outside.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The listeners; a [`ListenerId`] is an index into them. Fixed for the life of the process.
    pub listeners: Vec<Listener>,
    /// The domains that the server is responsible for, in lower case.
    pub domains: Vec<Box<[u8]>>,
    /// Authentication.
    pub auth: strowger_auth::Policy,
    /// Registrations.
    pub registrar: strowger_registrar::Policy,
    /// Proxying.
    pub proxy: strowger_proxy::Policy,
    /// Timers of RFC 3261.
    pub timing: strowger_transaction::Timing,
    /// The routes, in their order.
    pub routes: Vec<strowger_proxy::Route>,
    /// Users and aliases.
    pub directory: Directory,
    /// Set while the server is being stopped.
    pub draining: bool,
}

impl Snapshot {
    /// A snapshot with every default, for `listeners` and `domains`.
    #[must_use]
    pub fn new(listeners: Vec<Listener>, domains: Vec<Box<[u8]>>, directory: Directory) -> Self {
        Self {
            listeners,
            domains,
            auth: strowger_auth::Policy::default(),
            registrar: strowger_registrar::Policy::default(),
            proxy: strowger_proxy::Policy::default(),
            timing: strowger_transaction::Timing::default(),
            routes: Vec::new(),
            directory,
            draining: false,
        }
    }

    /// The listener `id`.
    #[must_use]
    pub fn listener(&self, id: ListenerId) -> Option<&Listener> {
        self.listeners.get(usize::from(id.0))
    }

    /// The domain that `host` stands for, as it is written in the configuration: itself, or the first domain where it is a
    /// listener's address, so that a phone may be given the server's address for its domain.
    #[must_use]
    pub fn domain(&self, host: &Host<'_>) -> Option<&[u8]> {
        let named = self.domains.iter().find(|domain| Host::parse(domain).is_some_and(|domain| domain.same(host)));
        let addressed = || {
            let ip = host.ip()?;
            self.listeners.iter().any(|listener| listener.address.ip() == ip).then(|| self.domains.first())?
        };
        named.or_else(addressed).map(|domain| &**domain)
    }

    /// The address of record that `uri` claims, in From, To or a REGISTER; `None` where its domain is not ours. The port has
    /// no say in who somebody is.
    #[must_use]
    pub fn identity(&self, uri: &SipUri<'_>) -> Option<Aor> {
        let domain = self.domain(&uri.host())?;
        Some(Aor::new(uri.user.unwrap_or(&[]), domain))
    }

    /// The domain of ours that a Request-URI addresses. A port that is no listener's names another program on this host.
    #[must_use]
    pub fn addressed_domain(&self, uri: &SipUri<'_>) -> Option<&[u8]> {
        let domain = self.domain(&uri.host())?;
        let by_name = self.domains.iter().any(|own| Host::parse(own).is_some_and(|own| own.same(&uri.host())));
        let ours = match uri.port() {
            None => by_name || self.is_listener(&uri.host(), None),
            Some(port) => self.listeners.iter().any(|listener| listener.address.port() == port),
        };
        ours.then_some(domain)
    }

    /// Whether `host` and `port` name one of the listeners.
    #[must_use]
    pub fn is_listener(&self, host: &Host<'_>, port: Option<u16>) -> bool {
        let Some(ip) = host.ip() else { return false };
        self.listeners.iter().any(|listener| {
            listener.address.ip() == ip && listener.address.port() == port.unwrap_or(listener.transport.default_port())
        })
    }

    /// Whether a Route's URI names this server: a listener's address and port, or a domain of ours without a user.
    #[must_use]
    pub fn is_own_hop(&self, uri: &SipUri<'_>) -> bool {
        if self.is_listener(&uri.host(), uri.port()) {
            return true;
        }
        uri.user.is_none() && self.addressed_domain(uri).is_some()
    }

    /// The listener from which `peer` is best reached: `preferred` where family and loopback agree, else the first that
    /// agrees, else any of the family.
    #[must_use]
    pub fn listener_towards(&self, peer: SocketAddr, preferred: ListenerId) -> Option<ListenerId> {
        let agrees = |listener: &Listener| {
            listener.address.is_ipv4() == peer.is_ipv4()
                && listener.address.ip().is_loopback() == peer.ip().is_loopback()
        };
        if self.listener(preferred).is_some_and(agrees) {
            return Some(preferred);
        }
        let find = |fits: &dyn Fn(&Listener) -> bool| self.listeners.iter().position(fits);
        let same_family = |listener: &Listener| listener.address.is_ipv4() == peer.is_ipv4();
        let index = find(&agrees).or_else(|| find(&same_family))?;
        u16::try_from(index).ok().map(ListenerId)
    }
}
