//! Where a request goes: to the server itself, to the registrar, to a user's contacts, or along a route.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use smallvec::SmallVec;
use strowger_foundation::{Flow, Timestamp};
use strowger_message::{Aor, Method, SipUri, Status, Uri};
use strowger_proxy::{Action, Route, RouteTarget, Stateless, Target};
use strowger_registrar::Locations;

use crate::snapshot::Snapshot;

/// The decision.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one, and none is stored")]
pub(crate) enum Way<'s> {
    /// A REGISTER for a domain of ours.
    Registrar,
    /// A request to the server itself.
    Server,
    /// It goes on.
    Forward { targets: SmallVec<[Target<'s>; 2]>, stateless: Stateless },
    /// It is answered 302 with these URIs.
    Redirect { contacts: Vec<Box<[u8]>> },
    /// It is answered so.
    Refuse { status: Status, reason: Option<&'static str> },
}

impl Way<'_> {
    const fn refuse(status: Status) -> Self {
        Self::Refuse { status, reason: None }
    }
}

/// What the decision is made from.
pub(crate) struct Question<'a, 's> {
    pub(crate) now: Timestamp,
    pub(crate) snapshot: &'s Snapshot,
    pub(crate) locations: &'a Locations,
    pub(crate) method: Method<'a>,
    /// The Request-URI that counts.
    pub(crate) request_uri: &'a [u8],
    /// Where the request goes next: the first Route that remains, else the Request-URI.
    pub(crate) next_hop: &'a [u8],
    /// A Route of ours proved that the dialog came through here.
    pub(crate) proven: bool,
    /// The outside of the translation that the other side of a proven dialog is behind.
    pub(crate) outside: Option<SocketAddr>,
    pub(crate) source: Flow,
}

impl<'s> Question<'_, 's> {
    /// Decides.
    pub(crate) fn way(&self) -> Way<'s> {
        let Some(uri) = Uri::parse(self.request_uri) else { return Way::refuse(Status::BAD_REQUEST) };
        let routed = self.next_hop != self.request_uri;
        let domain = uri.sip().and_then(|uri| self.snapshot.addressed_domain(uri));
        if let (Some(domain), Some(uri), false) = (domain, uri.sip(), routed) {
            return self.way_in_domain(domain, uri);
        }
        if self.proven {
            return match self.outside.filter(|_| !routed) {
                Some(outside) => self.way_to(outside),
                None => self.way_along(self.next_hop),
            };
        }
        //= rfc3261#16.3
        if !routed && !matches!(uri, Uri::Sip(_) | Uri::Tel(_)) {
            return Way::refuse(Status::UNSUPPORTED_URI_SCHEME);
        }
        let host = uri.sip().map_or(&[][..], |uri| uri.host_port.host);
        let host: SmallVec<[u8; 64]> = host.iter().map(u8::to_ascii_lowercase).collect();
        match self.route(&host) {
            Some(route) => self.way_by(&route.action, None),
            None => Way::Refuse { status: Status::NOT_FOUND, reason: Some("Domain Not Served Here") },
        }
    }

    fn way_in_domain(&self, domain: &[u8], uri: &SipUri<'_>) -> Way<'s> {
        if self.method == Method::Register {
            return Way::Registrar;
        }
        let Some(user) = uri.user else { return Way::Server };
        let aor = Aor::new(user, domain);
        let own = |route: &&Route| *route.domain != *b"*" && route.matches(domain, self.method.as_bytes());
        if let Some(route) = self.snapshot.routes.iter().find(own) {
            return self.way_by(&route.action, Some(&aor));
        }
        let way = self.way_to_contacts(&aor, Stateless::Never);
        // An address of ours with a user that nobody knows may be meant for the route that takes everything.
        let unknown = matches!(way, Way::Refuse { status: Status::NOT_FOUND, .. });
        let by_address = uri.host().ip().is_some();
        match self.route(b"*").filter(|_| unknown && by_address) {
            Some(route) => self.way_by(&route.action, None),
            None => way,
        }
    }

    fn route(&self, domain: &[u8]) -> Option<&'s Route> {
        self.snapshot.routes.iter().find(|route| route.matches(domain, self.method.as_bytes()))
    }

    fn way_by(&self, action: &'s Action, aor: Option<&Aor>) -> Way<'s> {
        match action {
            Action::Reject { status } => Way::refuse(*status),
            Action::Proxy { targets, stateless } if targets.is_empty() => match aor {
                Some(aor) => self.way_to_contacts(aor, *stateless),
                None => self.way_along(self.next_hop),
            },
            Action::Proxy { targets, stateless } => self.way_to_targets(targets, *stateless),
            Action::Redirect { targets } if targets.is_empty() => match aor {
                Some(aor) => self.redirect_to_contacts(aor),
                None => Way::refuse(Status::NOT_FOUND),
            },
            Action::Redirect { targets } => {
                Way::Redirect { contacts: targets.iter().map(|target| target.uri.clone()).collect() }
            }
        }
    }

    fn way_to_targets(&self, targets: &'s [RouteTarget], stateless: Stateless) -> Way<'s> {
        let request_uri: SmallVec<[u8; 64]> = SmallVec::from_slice(self.request_uri);
        let targets = targets.iter().filter_map(|target| self.target(request_uri.clone(), target.address)).collect();
        Self::forward_or(targets, stateless, Status::BAD_GATEWAY)
    }

    fn way_to_contacts(&self, aor: &Aor, stateless: Stateless) -> Way<'s> {
        let aor = self.snapshot.directory.resolve(aor.as_bytes());
        let bindings = self.bindings(aor);
        if bindings.is_empty() {
            return Way::refuse(self.absent(aor));
        }
        let targets = bindings.iter().filter_map(|binding| self.contact_target(binding)).collect();
        Self::forward_or(targets, stateless, Status::TEMPORARILY_UNAVAILABLE)
    }

    fn redirect_to_contacts(&self, aor: &Aor) -> Way<'s> {
        let aor = self.snapshot.directory.resolve(aor.as_bytes());
        let bindings = self.bindings(aor);
        if bindings.is_empty() {
            return Way::refuse(self.absent(aor));
        }
        Way::Redirect { contacts: bindings.iter().map(|binding| (*binding.uri).into()).collect() }
    }

    fn bindings(&self, aor: &[u8]) -> SmallVec<[strowger_registrar::Target; 4]> {
        let mut bindings = SmallVec::new();
        self.locations.lookup(self.now, aor, &mut bindings);
        bindings
    }

    /// A user without a phone is away; an address that is nobody's does not exist.
    fn absent(&self, aor: &[u8]) -> Status {
        let known = self.snapshot.directory.user(aor).is_some_and(|user| user.enabled);
        if known { Status::TEMPORARILY_UNAVAILABLE } else { Status::NOT_FOUND }
    }

    /// To the address that `uri` spells out.
    fn way_along(&self, uri: &[u8]) -> Way<'s> {
        const UNRESOLVED: &str = "Host Name Not Resolved";
        match Uri::parse(uri) {
            Some(Uri::Sip(hop)) => match literal_address(&hop) {
                Some(address) => self.way_to(address),
                None => Way::Refuse { status: Status::BAD_GATEWAY, reason: Some(UNRESOLVED) },
            },
            Some(_) => Way::refuse(Status::UNSUPPORTED_URI_SCHEME),
            None => Way::refuse(Status::BAD_REQUEST),
        }
    }

    fn way_to(&self, address: SocketAddr) -> Way<'s> {
        let targets = self.target(SmallVec::from_slice(self.request_uri), address).into_iter().collect();
        Self::forward_or(targets, Stateless::Never, Status::BAD_GATEWAY)
    }

    fn forward_or(targets: SmallVec<[Target<'s>; 2]>, stateless: Stateless, none: Status) -> Way<'s> {
        if targets.is_empty() { Way::refuse(none) } else { Way::Forward { targets, stateless } }
    }

    fn contact_target(&self, binding: &strowger_registrar::Target) -> Option<Target<'s>> {
        let uri = Uri::parse(&binding.uri);
        let sip = uri.as_ref().and_then(Uri::sip);
        // Headers of a contact must not become headers of a request, nor part of its Request-URI.
        let request_uri = SmallVec::from_slice(sip.map_or(&binding.uri[..], |uri| uri.without_headers()));
        let address = sip.and_then(literal_address).filter(|_| !binding.translated);
        match address {
            Some(address) => self.target_from(request_uri, address, binding.flow),
            None => self
                .target_from(request_uri, binding.flow.peer, binding.flow)
                .map(|target| Target { translated: true, ..target }),
        }
    }

    fn target(&self, request_uri: SmallVec<[u8; 64]>, address: SocketAddr) -> Option<Target<'s>> {
        self.target_from(request_uri, address, self.source)
    }

    fn target_from(&self, request_uri: SmallVec<[u8; 64]>, peer: SocketAddr, from: Flow) -> Option<Target<'s>> {
        let id = self.snapshot.listener_towards(peer, from.listener)?;
        let listener = self.snapshot.listener(id)?;
        let flow = Flow { listener: id, transport: listener.transport, peer };
        Some(Target { request_uri, flow, sent_by: &listener.sent_by, translated: false })
    }
}

/// Whether an address that a message names can be one host's: nothing is ever sent to all of them.
pub(crate) fn is_one_host(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    !ip.is_unspecified() && !ip.is_multicast() && ip != IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// The address of a URI whose host is one; `maddr` goes before the host (RFC 3261 §19.1.1).
fn literal_address(uri: &SipUri<'_>) -> Option<SocketAddr> {
    let host = match uri.params.value("maddr") {
        Some(maddr) => strowger_message::Host::parse(maddr)?,
        None => uri.host(),
    };
    let ip = host.ip().filter(|ip| is_one_host(*ip))?;
    let default = if uri.secure { 5061 } else { 5060 };
    Some(SocketAddr::new(ip, uri.port().unwrap_or(default)))
}
