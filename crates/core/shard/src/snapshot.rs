//! The configuration and the directory as one immutable value: a shard sees either the old or the new one, never a
//! mixture.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use strowger_balancer::{Set, TargetId};
use strowger_directory::Directory;
use strowger_foundation::{Flow, ListenerId, Transport};
use strowger_message::{Aor, Host, SipUri, Status};
use strowger_proxy::{Listener, ListenerState, Listeners};
use strowger_registrar::LocalContacts;
use strowger_trunk::Trunk;

use crate::cluster_routes::Clusters;
use crate::route::{Action, Route, RouteTarget};

/// A shard's configuration and directory.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The listeners; a [`ListenerId`] is an index into them, and stays that of its address.
    pub listeners: Listeners,
    /// The local domains, in lower case.
    pub domains: Vec<Box<[u8]>>,
    /// The authentication policy.
    pub auth: strowger_auth::Policy,
    /// The registrar policy.
    pub registrar: strowger_registrar::Policy,
    /// The proxy policy.
    pub proxy: strowger_proxy::Policy,
    /// The timers of RFC 3261.
    pub timing: strowger_transaction::Timing,
    /// The routes, in order.
    pub routes: Vec<Route>,
    /// The route for local users who are not registered here but may be registered at another server; requests from
    /// that server are not sent back.
    pub fallback_route: Option<Route>,
    /// The clusters that users are spread over, if any.
    pub clusters: Option<Arc<Clusters>>,
    /// Addresses of other servers for the same domains; such an address also stands for the first domain.
    pub siblings: Vec<SocketAddr>,
    /// The trunks; a route names one by its [id](Trunk::id).
    pub trunks: Vec<Arc<Trunk>>,
    /// The status for requests that match no domain and no route.
    pub unrouted_status: Status,
    /// Whether calls are tracked from INVITE to BYE.
    pub track_calls: bool,
    /// Whether each tracked call that ends produces a record: [`Event::Call`](crate::Event::Call).
    pub record_calls: bool,
    /// The media engines and which calls go through them, if any do. Needs [`track_calls`](Self::track_calls).
    pub media: Option<Arc<strowger_media::MediaPolicy>>,
    /// Users and aliases.
    pub directory: Directory,
    /// The limits of each shard.
    pub limits: strowger_overload::Limits,
    /// Beginnings of the User-Agent of programs that search for servers or passwords, in any case.
    pub scanners: Vec<Box<[u8]>>,
    /// Set while the server is stopping.
    pub is_draining: bool,
    /// Whether other members share the keys and may receive later requests of a call.
    pub has_shared_keys: bool,
}

/// A target of a balanced set.
#[derive(Clone, Copy)]
pub(crate) struct BalancedMember<'a> {
    pub(crate) set: &'a Set,
    /// Its index among the members.
    pub(crate) index: usize,
    /// Its address.
    pub(crate) route_target: &'a RouteTarget,
}

impl Snapshot {
    /// Creates a snapshot with all defaults, for `listeners` and `domains`.
    #[must_use]
    pub fn new(listeners: Vec<Listener>, domains: Vec<Box<[u8]>>, directory: Directory) -> Self {
        Self {
            listeners: Listeners::new(listeners),
            domains,
            auth: strowger_auth::Policy::default(),
            registrar: strowger_registrar::Policy::default(),
            proxy: strowger_proxy::Policy::default(),
            timing: strowger_transaction::Timing::default(),
            routes: Vec::new(),
            fallback_route: None,
            clusters: None,
            siblings: Vec::new(),
            trunks: Vec::new(),
            unrouted_status: Status::NOT_FOUND,
            track_calls: false,
            record_calls: true,
            media: None,
            directory,
            limits: strowger_overload::Limits::MAX,
            scanners: Vec::new(),
            is_draining: false,
            has_shared_keys: false,
        }
    }

    /// Returns all routes: the operator's and those to the clusters.
    fn all_routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().chain(self.clusters.iter().flat_map(|clusters| &clusters.routes))
    }

    /// Returns the balanced sets of all routes, each once, with the addresses of their members.
    pub fn sets(&self) -> impl Iterator<Item = (&Arc<Set>, &[RouteTarget])> {
        let set_of = |route: &'_ Route| match &route.action {
            Action::Proxy { balance: Some(set), .. } => Some(Arc::as_ptr(set)),
            _ => None,
        };
        self.all_routes().enumerate().filter_map(move |(at, route)| {
            let Action::Proxy { balance: Some(set), targets, .. } = &route.action else { return None };
            let earlier = self.all_routes().take(at);
            (!earlier.filter_map(set_of).any(|known| core::ptr::eq(known, Arc::as_ptr(set))))
                .then_some((set, &**targets))
        })
    }

    /// Returns the balanced target with this ID, if a set contains it.
    pub(crate) fn balanced(&self, id: TargetId) -> Option<BalancedMember<'_>> {
        self.all_routes().find_map(|route| {
            let Action::Proxy { balance: Some(set), targets, .. } = &route.action else { return None };
            let at = set.position(id)?;
            Some(BalancedMember { set, index: at, route_target: targets.get(at)? })
        })
    }

    /// Returns the domain that `host` stands for, as configured: `host` itself, or the first domain if `host` is a
    /// listener's address, so that a phone may use the server's address as its domain.
    #[must_use]
    pub fn domain(&self, host: &Host<'_>) -> Option<&[u8]> {
        self.named_domain(host).or_else(|| self.domain_at(host))
    }

    /// Returns the configured domain with this name.
    fn named_domain(&self, host: &Host<'_>) -> Option<&[u8]> {
        let is_it = |domain: &&[u8]| match host {
            // A domain that is an address cannot equal a name, so it is not parsed.
            Host::Name(_) => Host::Name(domain).same(host),
            Host::Ip(_) => Host::parse(domain).is_some_and(|domain| domain.same(host)),
        };
        self.domains.iter().map(|domain| &**domain).find(is_it)
    }

    /// Returns the first domain if `host` is the address of a server for it.
    fn domain_at(&self, host: &Host<'_>) -> Option<&[u8]> {
        let ip = host.ip()?;
        let is_ours = self.is_local(ip) || self.siblings.iter().any(|sibling| sibling.ip() == ip);
        self.domains.first().filter(|_| is_ours).map(|domain| &**domain)
    }

    //= rfc3261#10.3:without-parameters
    /// Returns the address of record that `uri` claims, in From, To or a REGISTER; `None` if its domain is not local.
    /// The port is ignored.
    #[must_use]
    pub fn identity(&self, uri: &SipUri<'_>) -> Option<Aor> {
        let domain = self.domain(&uri.host())?;
        Some(Aor::new(uri.user.unwrap_or(&[]), domain))
    }

    /// Returns the local domain that a Request-URI addresses, by its name or by the address of a server for it.
    #[must_use]
    pub fn addressed_domain(&self, uri: &SipUri<'_>) -> Option<&[u8]> {
        let here = self.domain_addressed_here(uri);
        if here.is_some() || self.siblings.is_empty() {
            return here;
        }
        self.domain_addressed_elsewhere(uri)
    }

    /// Returns the local domain that a URI addresses by the address of another server for it.
    #[inline(never)]
    pub(crate) fn domain_addressed_elsewhere(&self, uri: &SipUri<'_>) -> Option<&[u8]> {
        let (ip, port) = (uri.host().ip()?, uri.port().unwrap_or(Transport::Udp.default_port()));
        let is_sibling = self.siblings.contains(&SocketAddr::new(ip, port));
        self.domains.first().filter(|_| is_sibling).map(|domain| &**domain)
    }

    /// Returns the local domain that a URI addresses at this server. A port without a listener belongs to another
    /// program on this host.
    #[inline(always)]
    fn domain_addressed_here(&self, uri: &SipUri<'_>) -> Option<&[u8]> {
        let host = uri.host();
        let named = self.named_domain(&host);
        let at = || self.domains.first().filter(|_| host.ip().is_some_and(|ip| self.is_local(ip)));
        let domain = named.or_else(|| at().map(|domain| &**domain))?;
        let ours = match uri.port() {
            None => named.is_some() || self.is_listener(&host, None),
            Some(port) => self.listeners.iter().any(|listener| listener.address.port() == port),
        };
        ours.then_some(domain)
    }

    /// Returns whether this server listens on an address.
    fn is_local(&self, ip: IpAddr) -> bool {
        self.listeners.iter().any(|listener| listener.address.ip() == ip)
    }

    /// Returns whether `host` and `port` name one of the listeners.
    #[must_use]
    pub fn is_listener(&self, host: &Host<'_>, port: Option<u16>) -> bool {
        let Some(ip) = host.ip() else { return false };
        self.listeners.iter().any(|listener| {
            listener.address.ip() == ip && listener.address.port() == port.unwrap_or(listener.transport.default_port())
        })
    }

    /// Returns whether an address is of this machine: of a listener, or a loopback address.
    #[inline]
    pub(crate) fn is_own_address(&self, address: SocketAddr) -> bool {
        address.ip().to_canonical().is_loopback() || self.listeners.iter().any(|own| own.address == address)
    }

    /// Returns whether requests to a URI stay on this machine: at one of the listeners or at a loopback address.
    #[must_use]
    pub fn leads_here(&self, uri: &SipUri<'_>) -> bool {
        let maddr = uri.params.value("maddr").and_then(Host::parse);
        match maddr.unwrap_or_else(|| uri.host()) {
            Host::Name(name) => {
                let last = name.strip_suffix(b".").unwrap_or(name).rsplit(|byte| *byte == b'.').next();
                last.is_some_and(|label| label.eq_ignore_ascii_case(b"localhost"))
            }
            host @ Host::Ip(ip) => ip.to_canonical().is_loopback() || self.is_listener(&host, uri.port()),
        }
    }

    /// Returns whether a peer at `ip` is on this machine.
    #[must_use]
    pub fn is_here(&self, ip: IpAddr) -> bool {
        ip.to_canonical().is_loopback() || self.is_local(ip)
    }

    /// Returns whether what a peer at `ip` names as its address must not lead to this machine.
    pub(crate) fn guards_itself_from(&self, ip: IpAddr) -> bool {
        self.registrar.local_contacts == LocalContacts::Refuse && !self.is_here(ip)
    }

    /// Returns whether a Route's URI names this server: a listener's address and port, or a local domain without a
    /// user.
    #[must_use]
    pub fn is_own_hop(&self, uri: &SipUri<'_>) -> bool {
        if self.is_listener(&uri.host(), uri.port()) {
            return true;
        }
        uri.user.is_none() && self.domain_addressed_here(uri).is_some()
    }

    /// Like [`is_own_hop`](Self::is_own_hop), but returns the listener that the URI names, if any.
    #[must_use]
    pub fn own_hop(&self, uri: &SipUri<'_>) -> Option<Option<ListenerId>> {
        self.is_own_hop(uri).then(|| self.listener_of(uri))
    }

    /// Returns the listener that a URI of ours names, if any.
    #[must_use]
    pub fn listener_of(&self, uri: &SipUri<'_>) -> Option<ListenerId> {
        let ip = uri.host().ip()?;
        let transport = crate::uri_address::transport_of(uri)?.unwrap_or_default();
        // A URI names both kinds of WebSocket the same; addresses and ports tell our listeners apart.
        let is_named = |own: Transport| own == transport || (own.is_web_socket() && transport.is_web_socket());
        let fits = |own: &Listener| {
            own.address.ip() == ip
                && is_named(own.transport)
                && own.address.port() == uri.port().unwrap_or(transport.default_port())
        };
        self.listeners.find(|own| fits(own) && own.state() != ListenerState::Closed)
    }

    /// Returns whether this server passes requests to clusters and belongs to none.
    pub(crate) fn is_first_stage(&self) -> bool {
        self.clusters.as_ref().is_some_and(|clusters| clusters.own.is_none())
    }

    /// Returns the networks whose senders [need no password](Self::trusts), as addresses and prefix lengths.
    #[must_use]
    pub fn trusted_networks(&self) -> Vec<(IpAddr, u8)> {
        let networks = self.auth.trusted.iter().chain(self.trunks.iter().flat_map(|trunk| &trunk.sources));
        networks.map(|network| (network.address, network.prefix)).collect()
    }

    /// Returns whether a message came from another server for the same domains. A datagram's source can be forged, as
    /// everywhere; a phone on the same machine has another port.
    #[must_use]
    pub fn is_from_sibling(&self, source: &Flow) -> bool {
        match source.connection {
            Some(_) => self.is_sibling(source.peer.ip()),
            None => self.siblings.contains(&source.peer),
        }
    }

    /// Returns whether another server for the same domains has the address `ip`.
    #[must_use]
    pub fn is_sibling(&self, ip: IpAddr) -> bool {
        self.siblings.iter().any(|sibling| sibling.ip() == ip)
    }

    /// Returns whether a sender at `ip` needs no password for calls and its asserted identity is trusted: because the
    /// operator trusts it, or because it belongs to a trunk.
    #[must_use]
    pub fn trusts(&self, ip: IpAddr) -> bool {
        self.auth.trusts(ip) || self.trunks.iter().any(|trunk| trunk.is_from(ip))
    }
}
