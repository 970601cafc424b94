//! The configuration and the directory as one immutable value: a shard sees either the old one or the new one, never a
//! mixture.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use strowger_balancer::{Set, TargetId};
use strowger_directory::Directory;
use strowger_foundation::{Flow, ListenerId, Transport};
use strowger_message::{Aor, Host, SipUri, Status};
use strowger_proxy::{Listener, Listeners};
use strowger_trunk::Trunk;

use crate::clusters::Clusters;
use crate::route::{Action, Route, RouteTarget};

/// Everything that a shard is told from outside.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The listeners; a [`ListenerId`] is an index into them. Fixed for the life of the process.
    pub listeners: Listeners,
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
    pub routes: Vec<Route>,
    /// Where requests go for users of ours who are not registered here but may be at another server; none come back that are from there.
    pub fallback_route: Option<Route>,
    /// The clusters that users are spread over, where they are.
    pub clusters: Option<Arc<Clusters>>,
    /// Where other servers listen that serve the same domains: their addresses stand for the first of these, too.
    pub siblings: Vec<SocketAddr>,
    /// The trunks; a route names one by its [id](Trunk::id).
    pub trunks: Vec<Arc<Trunk>>,
    /// What a request is told that no domain and no route takes.
    pub unrouted_status: Status,
    /// Whether calls are followed from their INVITE to their BYE.
    pub track_calls: bool,
    /// Whether somebody wants a record of each call that was followed and is over: [`Event::Call`](crate::Event::Call).
    pub record_calls: bool,
    /// Users and aliases.
    pub directory: Directory,
    /// What each shard may hold.
    pub limits: strowger_overload::Limits,
    /// Set while the server is being stopped.
    pub is_draining: bool,
    /// Other members share the keys, and may be sent what follows.
    pub has_shared_keys: bool,
}

/// A target of a balanced set.
#[derive(Clone, Copy)]
pub(crate) struct BalancedMember<'a> {
    pub(crate) set: &'a Set,
    /// Its place among the members.
    pub(crate) index: usize,
    /// Where it is.
    pub(crate) route_target: &'a RouteTarget,
}

impl Snapshot {
    /// A snapshot with every default, for `listeners` and `domains`.
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
            directory,
            limits: strowger_overload::Limits::MAX,
            is_draining: false,
            has_shared_keys: false,
        }
    }

    /// All ways to places: the operator's routes, and those to the clusters.
    fn all_routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().chain(self.clusters.iter().flat_map(|clusters| &clusters.routes))
    }

    /// The balanced sets that routes lead to, each once, with where their members are.
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

    /// The target of this name, where one of the sets has it.
    pub(crate) fn balanced(&self, id: TargetId) -> Option<BalancedMember<'_>> {
        self.all_routes().find_map(|route| {
            let Action::Proxy { balance: Some(set), targets, .. } = &route.action else { return None };
            let at = set.position(id)?;
            Some(BalancedMember { set, index: at, route_target: targets.get(at)? })
        })
    }

    /// The domain that `host` stands for, as it is written in the configuration: itself, or the first domain where it is a
    /// listener's address, so that a phone may be given the server's address for its domain.
    #[must_use]
    pub fn domain(&self, host: &Host<'_>) -> Option<&[u8]> {
        self.named_domain(host).or_else(|| self.domain_at(host))
    }

    /// The domain that is written so.
    fn named_domain(&self, host: &Host<'_>) -> Option<&[u8]> {
        let is_it = |domain: &&[u8]| match host {
            // A domain that is an address cannot have the text of a name, so it need not be read.
            Host::Name(_) => Host::Name(domain).same(host),
            Host::Ip(_) => Host::parse(domain).is_some_and(|domain| domain.same(host)),
        };
        self.domains.iter().map(|domain| &**domain).find(is_it)
    }

    /// The first domain, where `host` is the address of a server that serves it.
    fn domain_at(&self, host: &Host<'_>) -> Option<&[u8]> {
        let ip = host.ip()?;
        let is_ours = self.is_local(ip) || self.siblings.iter().any(|sibling| sibling.ip() == ip);
        self.domains.first().filter(|_| is_ours).map(|domain| &**domain)
    }

    /// The address of record that `uri` claims, in From, To or a REGISTER; `None` where its domain is not ours. The port has
    /// no say in who somebody is.
    #[must_use]
    pub fn identity(&self, uri: &SipUri<'_>) -> Option<Aor> {
        let domain = self.domain(&uri.host())?;
        Some(Aor::new(uri.user.unwrap_or(&[]), domain))
    }

    /// The domain of ours that a Request-URI addresses, by its name or by the address of a server that serves it.
    #[must_use]
    pub fn addressed_domain(&self, uri: &SipUri<'_>) -> Option<&[u8]> {
        let here = self.domain_addressed_here(uri);
        if here.is_some() || self.siblings.is_empty() {
            return here;
        }
        self.domain_addressed_elsewhere(uri)
    }

    /// The domain of ours that a URI addresses which leads to another server that serves it.
    #[inline(never)]
    pub(crate) fn domain_addressed_elsewhere(&self, uri: &SipUri<'_>) -> Option<&[u8]> {
        let (ip, port) = (uri.host().ip()?, uri.port().unwrap_or(Transport::Udp.default_port()));
        let is_sibling = self.siblings.contains(&SocketAddr::new(ip, port));
        self.domains.first().filter(|_| is_sibling).map(|domain| &**domain)
    }

    /// The domain of ours that a URI addresses which leads to this server. A port that is no listener's names another program on this
    /// host.
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

    /// Whether this server listens on an address.
    fn is_local(&self, ip: IpAddr) -> bool {
        self.listeners.iter().any(|listener| listener.address.ip() == ip)
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
        uri.user.is_none() && self.domain_addressed_here(uri).is_some()
    }

    /// As [`is_own_hop`](Self::is_own_hop), with the listener that the URI names, where it names one.
    #[must_use]
    pub fn own_hop(&self, uri: &SipUri<'_>) -> Option<Option<ListenerId>> {
        self.is_own_hop(uri).then(|| self.listener_of(uri))
    }

    /// The listener that a URI of ours names, where it names one.
    #[must_use]
    pub fn listener_of(&self, uri: &SipUri<'_>) -> Option<ListenerId> {
        let ip = uri.host().ip()?;
        let transport = crate::next_hops::transport_of(uri)?.unwrap_or_default();
        let fits = |own: &Listener| {
            own.address.ip() == ip
                && own.transport == transport
                && own.address.port() == uri.port().unwrap_or(transport.default_port())
        };
        let index = self.listeners.iter().position(fits)?;
        u16::try_from(index).ok().map(ListenerId)
    }

    /// Whether it passes requests to clusters and is a member of none.
    pub(crate) fn is_first_stage(&self) -> bool {
        self.clusters.as_ref().is_some_and(|clusters| clusters.own.is_none())
    }

    /// Where senders are that [need no password](Self::trusts): addresses and the lengths of their prefixes.
    #[must_use]
    pub fn trusted_networks(&self) -> Vec<(IpAddr, u8)> {
        let networks = self.auth.trusted.iter().chain(self.trunks.iter().flat_map(|trunk| &trunk.sources));
        networks.map(|network| (network.address, network.prefix)).collect()
    }

    /// Whether a message has come from another server that serves the same domains. Of datagrams that is its sender's word, as everywhere; a
    /// phone at the same machine has another port.
    #[must_use]
    pub fn is_from_sibling(&self, source: &Flow) -> bool {
        match source.connection {
            Some(_) => self.is_sibling(source.peer.ip()),
            None => self.siblings.contains(&source.peer),
        }
    }

    /// Whether another server that serves the same domains is at `ip`.
    #[must_use]
    pub fn is_sibling(&self, ip: IpAddr) -> bool {
        self.siblings.iter().any(|sibling| sibling.ip() == ip)
    }

    /// Whether a sender at `ip` needs no password for a call, and its asserted identity is believed: the operator trusts it,
    /// or it is a trunk's.
    #[must_use]
    pub fn trusts(&self, ip: IpAddr) -> bool {
        self.auth.trusts(ip) || self.trunks.iter().any(|trunk| trunk.is_from(ip))
    }
}
