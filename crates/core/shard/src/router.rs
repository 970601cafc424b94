//! Routing decisions: to the server itself, the registrar, a user's contacts, the targets of a route, or along the
//! request's own Routes.

use core::net::SocketAddr;
use core::time::Duration;

use smallvec::SmallVec;
use strowger_balancer::{Slot, TargetId};
use strowger_foundation::{Flow, KeyRing, ListenerId, Timestamp, Transport};
use strowger_locate::{NameCache, Outages};
use strowger_message::{Aor, Message, Method, SipUri, Status, Uri};
use strowger_proxy::cluster_request::{BindingId, ClusterRequest, ClusterRequestKind};
use strowger_proxy::routing::is_sips;
use strowger_proxy::{NextHop, NextHopAddress, NextHopKind, Stateless, Target};
use strowger_registrar::Locations;

use crate::cluster_routes::ServingCluster;
use crate::gruu;
use crate::next_hops::{NextHopResolver, NextHops, ResolutionNotes, RoutedRequest, WeightedChoice, is_from};
use crate::route::{Action, Route};
use crate::snapshot::Snapshot;
use crate::uri_address::{peer_of, transport_of};

/// The routing decision for a request.
#[derive(Debug)]
pub(crate) enum RouteDecision {
    /// A REGISTER for a local domain.
    Registrar,
    /// A request to the server itself.
    Local,
    /// Forward to the collected targets.
    Forward(ForwardOptions),
    /// Answer 302 with these URIs.
    Redirect { contacts: Vec<Box<[u8]>> },
    /// Unknown yet, because stored registrations are being loaded.
    Loading,
    /// No gateway of its route is in service.
    OutOfService,
    /// No target of its balanced set accepts it. `held_until` is set if all of them have asked for a pause.
    NoTarget { held_until: Option<Timestamp> },
    /// Refuse with this status.
    Refuse { status: Status, reason: Option<Box<str>> },
}

/// Options for forwarding a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardOptions {
    pub(crate) stateless: Stateless,
    /// The route's ring timeout, if it has one.
    pub(crate) ring_timeout: Option<Duration>,
    /// Set if the request's own Routes or Request-URI decide where it goes, not the operator or a registration.
    pub(crate) is_by_own_route: bool,
    /// Set if it goes to the targets of a route.
    pub(crate) is_to_route_targets: bool,
    /// Set for a REGISTER to the cluster that has the user, which challenges the sender itself.
    pub(crate) is_registration: bool,
    /// The failover timeout of the balanced set, if the targets belong to one.
    pub(crate) failover_timeout: Option<Duration>,
    /// The response if no target gives a better one.
    pub(crate) fallback: Option<Absence>,
}

/// The reason why a user cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// The user has no registered contact.
    Unavailable,
    /// The user does not exist.
    Unknown,
}

impl Absence {
    pub(crate) const fn status(self) -> Status {
        match self {
            Self::Unavailable => Status::TEMPORARILY_UNAVAILABLE,
            Self::Unknown => Status::NOT_FOUND,
        }
    }
}

impl ForwardOptions {
    /// Creates options for the collected targets.
    const fn new(stateless: Stateless) -> Self {
        Self {
            stateless,
            ring_timeout: None,
            is_by_own_route: false,
            is_to_route_targets: false,
            is_registration: false,
            failover_timeout: None,
            fallback: None,
        }
    }
}

impl RouteDecision {
    pub(crate) const fn refuse(status: Status) -> Self {
        Self::Refuse { status, reason: None }
    }

    fn refuse_because(status: Status, reason: &str) -> Self {
        Self::Refuse { status, reason: Some(reason.into()) }
    }

    /// Returns a decision to forward to the collected targets.
    const fn forward(stateless: Stateless) -> Self {
        Self::Forward(ForwardOptions::new(stateless))
    }
}

/// The inputs of a routing decision.
pub(crate) struct Router<'a> {
    pub(crate) now: Timestamp,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) locations: &'a Locations,
    pub(crate) names: &'a NameCache,
    pub(crate) outages: &'a Outages,
    pub(crate) ring: &'a KeyRing,
    pub(crate) message: &'a Message<'a>,
    pub(crate) method: Method<'a>,
    /// The effective Request-URI.
    pub(crate) request_uri: &'a [u8],
    /// The parsed Request-URI; `None` if it is invalid.
    pub(crate) uri: Option<&'a Uri<'a>>,
    /// The next hop: the first remaining Route, else the Request-URI.
    pub(crate) next_hop: &'a [u8],
    /// Set if a Route of ours proved that the dialog was established through this server.
    pub(crate) is_dialog_proven: bool,
    /// The flow to the other side of a proven dialog.
    pub(crate) dialog_flow: Option<&'a Flow>,
    /// The trunk of a proven dialog.
    pub(crate) trunk: Option<u32>,
    /// The target of a balanced set that has the request's call.
    pub(crate) target: Option<TargetId>,
    /// Set if the request will be challenged, whatever its target.
    pub(crate) is_tentative: bool,
    /// The flow of a token in a Route of ours.
    pub(crate) token_flow: Option<&'a Flow>,
    pub(crate) source: &'a Flow,
    /// The likely outgoing listener: the source's, or that of the last Route of ours.
    pub(crate) egress: ListenerId,
    /// Set if the Request-URI is `sips`, or that of a redirection.
    pub(crate) is_secure: bool,
    /// The address of record that a REGISTER claims, if its domain is local.
    pub(crate) claimed: Option<&'a Aor>,
    /// The request of a member of another cluster.
    pub(crate) cluster_request: Option<&'a ClusterRequest<'a>>,
    /// The random value for the choice among targets by weight.
    pub(crate) choice: WeightedChoice<'a>,
    /// Who named the destination: the source, or who redirects.
    pub(crate) named_by: &'a Flow,
    pub(crate) notes: &'a ResolutionNotes,
}

impl Router<'_> {
    /// Makes the decision and adds the targets of a forwarded request to `targets`; they are too large to return.
    pub(crate) fn decide(&self, targets: &mut Vec<Target>) -> RouteDecision {
        let Some(uri) = self.uri else { return RouteDecision::refuse(Status::BAD_REQUEST) };
        let way = self.decide_by(uri, targets);
        if self.is_secure { self.keep_secure(way, targets) } else { way }
    }

    //= rfc3261#16.6:sips
    /// Removes the next hops that a request for a `sips` URI must not take: every hop is secure, and the scheme stays.
    #[inline(never)]
    fn keep_secure(&self, way: RouteDecision, targets: &mut Vec<Target>) -> RouteDecision {
        let has_listener = || self.snapshot.listeners.iter().any(|own| own.transport.is_secure());
        match &way {
            RouteDecision::Forward(_) => {}
            // Without a listener, there is no way to any `sips` address.
            RouteDecision::Refuse { status: Status::BAD_GATEWAY, .. } if !has_listener() => return refuse_sips(),
            _ => return way,
        }
        for target in targets.iter_mut() {
            target.next_hops.retain(|place| is_sips(&place.request_uri) && make_secure(&mut place.address));
        }
        targets.retain(|target| !target.next_hops.is_empty());
        if !targets.is_empty() {
            return way;
        }
        //= rfc5630#4
        match has_listener() {
            true => RouteDecision::refuse_because(Status::TEMPORARILY_UNAVAILABLE, "No Secure Path"),
            false => refuse_sips(),
        }
    }

    #[inline(always)]
    fn decide_by(&self, uri: &Uri<'_>, targets: &mut Vec<Target>) -> RouteDecision {
        let routed = self.next_hop != self.request_uri;
        if let Some(flow) = self.token_flow.filter(|flow| !routed && !is_from(self.source, flow)) {
            //= rfc5626#5.3.1:dead-flow
            return self.route_to_flow(*flow, Status::FLOW_FAILED, targets);
        }
        if let Some(way) = self.route_in_call(targets) {
            return way;
        }
        if !routed
            && self.snapshot.clusters.is_some()
            && let Some(way) = self.route_at_first_stage(uri, targets)
        {
            return way;
        }
        if routed && let Some(way) = self.route_to_sibling(targets) {
            return way;
        }
        if let Some(uri) = uri.sip().filter(|_| !routed)
            && let Some(domain) = self.snapshot.addressed_domain(uri)
        {
            return self.route_in_domain(domain, uri, targets);
        }
        if self.is_dialog_proven {
            return match self.dialog_flow.filter(|_| !routed) {
                Some(outside) => self.route_to_flow(*outside, Status::FLOW_FAILED, targets),
                None => self.route_to_uri(self.next_hop, self.snapshot.proxy.stateless, targets),
            };
        }
        //= rfc3261#8.2.2.1:unknown-scheme
        //= rfc3261#16.3:unknown-scheme
        if !routed && !matches!(uri, Uri::Sip(_) | Uri::Tel(_)) {
            return RouteDecision::refuse(Status::UNSUPPORTED_URI_SCHEME);
        }
        let host = uri.sip().map_or(&[][..], |uri| uri.host_port.host);
        let host: SmallVec<[u8; 64]> = host.iter().map(u8::to_ascii_lowercase).collect();
        //= rfc3261#8.2.2.1:unknown-address
        match self.find_route(&host, uri, |_| true) {
            Some(route) => self.apply_route(route, None, targets),
            None => match self.snapshot.unrouted_status {
                Status::NOT_FOUND => RouteDecision::refuse_because(Status::NOT_FOUND, "Domain Not Served Here"),
                status => RouteDecision::refuse(status),
            },
        }
    }

    /// Adds the targets of a redirection's contact to `targets`.
    pub(crate) fn resolve_redirection(&self, contact: &Uri<'_>, targets: &mut Vec<Target>) {
        let domain = contact.sip().and_then(|uri| self.snapshot.addressed_domain(uri));
        let before = targets.len();
        let way = match (contact, domain) {
            (Uri::Sip(uri), Some(domain)) if uri.user.is_some() => self.route_in_domain(domain, uri, targets),
            (Uri::Sip(_), _) => self.route_to_uri(contact.as_bytes(), Stateless::Never, targets),
            _ => return,
        };
        if !matches!(way, RouteDecision::Forward(_)) {
            return targets.truncate(before);
        }
        if self.is_secure {
            let mut found = targets.split_off(before);
            let _ = self.keep_secure(way, &mut found);
            targets.append(&mut found);
        }
    }

    /// Routes to the target that has the call, if the request names only that target's address or an address of ours.
    fn route_in_call(&self, targets: &mut Vec<Target>) -> Option<RouteDecision> {
        //= rfc3261#12.2.2
        // A request without a To tag begins new work and is subject to routes.
        self.message.to().tag()?;
        let balanced = self.snapshot.balanced(self.target?)?;
        let uri = self.uri?.sip().filter(|_| self.next_hop == self.request_uri)?;
        if uri.params.contains("gr") {
            return None;
        }
        let is_there = || balanced.route_target.is_at(uri);
        if self.snapshot.addressed_domain(uri).is_none() && !is_there() {
            return None;
        }
        let mut found = Target::default();
        if let Err(status) =
            self.hop_resolver().resolve_balanced(&balanced, self.message, self.request_uri, &mut found.next_hops)
        {
            return Some(RouteDecision::refuse_because(status, "Next Hop Not Reachable"));
        }
        if found.next_hops.is_empty() {
            return Some(RouteDecision::refuse(Status::BAD_GATEWAY));
        }
        targets.push(found);
        Some(RouteDecision::forward(self.snapshot.proxy.stateless))
    }

    fn route_in_domain(&self, domain: &[u8], uri: &SipUri<'_>, targets: &mut Vec<Target>) -> RouteDecision {
        if self.method == Method::Register {
            return self.route_registration(targets);
        }
        let Some(user) = uri.user else { return RouteDecision::Local };
        if uri.params.contains("gr") {
            return self.route_to_instance(domain, user, uri.params.value("gr"), targets);
        }
        //= rfc3261#16.5:canonical-form
        let aor = Aor::new(user, domain);
        // A route for a local domain or for numbers precedes the users; a catch-all route follows them.
        let own = |route: &Route| *route.matches.domain != *b"*" || !route.matches.prefixes.is_empty();
        if let Some(route) = self.find_route(domain, &Uri::Sip(*uri), own) {
            return self.apply_route(route, Some(&aor), targets);
        }
        let way = self.route_to_contacts(&aor, Stateless::Never, targets);
        // An unknown user at our address may be meant for the catch-all route.
        let unknown = matches!(way, RouteDecision::Refuse { status: Status::NOT_FOUND, .. });
        let by_address = uri.host().ip().is_some();
        match self.find_route(b"*", &Uri::Sip(*uri), |_| true).filter(|_| unknown && by_address) {
            Some(route) => self.apply_route(route, None, targets),
            None => way,
        }
    }

    fn find_route(&self, domain: &[u8], uri: &Uri<'_>, also: impl Fn(&Route) -> bool) -> Option<&Route> {
        let source = self.source.peer.ip();
        let method = self.method.as_bytes();
        self.snapshot.routes.iter().find(|route| route.matches.fits(domain, method, uri, source) && also(route))
    }

    pub(crate) fn apply_route(&self, route: &Route, aor: Option<&Aor>, found: &mut Vec<Target>) -> RouteDecision {
        let way = match &route.action {
            Action::Reject { status, reason } => RouteDecision::Refuse { status: *status, reason: reason.clone() },
            Action::OutOfService => RouteDecision::OutOfService,
            Action::NoTarget => RouteDecision::NoTarget { held_until: None },
            Action::Proxy { targets, stateless, .. } if targets.is_empty() => match aor {
                Some(aor) => self.route_to_contacts(aor, *stateless, found),
                None => self.route_to_uri(self.next_hop, *stateless, found),
            },
            Action::Proxy { stateless, balance, targets, .. } => match self.resolve_route(route, found) {
                Ok(()) => RouteDecision::Forward(ForwardOptions {
                    is_to_route_targets: true,
                    failover_timeout: balance.as_ref().map(|set| set.config().failover_timeout()),
                    // Counting requires a transaction.
                    ..ForwardOptions::new(match stateless {
                        Stateless::WhenPossible if balance.is_some() => Stateless::Never,
                        stateless => *stateless,
                    })
                }),
                Err(Status::SERVICE_UNAVAILABLE) if let Some(set) = balance => {
                    RouteDecision::NoTarget { held_until: self.hop_resolver().all_held_until(set, targets) }
                }
                Err(status) => RouteDecision::refuse_because(status, "Next Hop Not Reachable"),
            },
            Action::Redirect { targets } if targets.is_empty() => match aor {
                Some(aor) => self.redirect_to_contacts(aor, found),
                None => RouteDecision::refuse(Status::NOT_FOUND),
            },
            Action::Redirect { targets } => {
                RouteDecision::Redirect { contacts: targets.iter().map(|target| target.uri.clone()).collect() }
            }
        };
        match way {
            RouteDecision::Forward(onward) => {
                RouteDecision::Forward(ForwardOptions { ring_timeout: route.ring_timeout, ..onward })
            }
            way => way,
        }
    }

    fn resolve_route(&self, route: &Route, found: &mut Vec<Target>) -> Result<(), Status> {
        let asked = RoutedRequest {
            message: self.message,
            source: self.source,
            request_uri: self.request_uri,
            uri: self.uri,
            target: self.target,
            is_tentative: self.is_tentative,
        };
        self.hop_resolver().resolve_route(route, &asked, found)
    }

    fn route_to_contacts(&self, aor: &Aor, stateless: Stateless, targets: &mut Vec<Target>) -> RouteDecision {
        let aor = self.snapshot.directory.resolve(aor.as_bytes());
        match self.serving_cluster(|| Slot::of(aor)) {
            Some(ServingCluster::Other(owner)) => return self.route_to_owner(owner, targets),
            Some(ServingCluster::Own { also: Some(other) }) => {
                return self.route_to_both_clusters(other, aor, stateless, targets);
            }
            Some(ServingCluster::Own { also: None }) | None => {}
        }
        let bindings = self.bindings(aor);
        if bindings.is_empty() {
            return self.route_to_fallback(aor, stateless, targets).unwrap_or_else(|| self.refuse_absent(aor));
        }
        self.route_to_bindings(&bindings, stateless, targets)
    }

    /// Routes to another server where a local user may be registered, with the Request-URI unchanged; not for
    /// requests from that server, which does not know the user either.
    fn route_to_fallback(&self, aor: &[u8], stateless: Stateless, targets: &mut Vec<Target>) -> Option<RouteDecision> {
        let route = self.snapshot.fallback_route.as_ref()?;
        let is_user = self.snapshot.directory.user(aor).is_some_and(|user| user.enabled);
        let is_from_there = route.action.targets().iter().any(|target| target.has_sent(self.source));
        if !is_user || is_from_there || !self.locations.is_complete() {
            return None;
        }
        self.resolve_route(route, targets).ok()?;
        Some(RouteDecision::Forward(ForwardOptions { is_to_route_targets: true, ..ForwardOptions::new(stateless) }))
    }

    pub(crate) fn route_to_bindings(
        &self,
        bindings: &[strowger_registrar::ContactTarget],
        stateless: Stateless,
        targets: &mut Vec<Target>,
    ) -> RouteDecision {
        let places = self.hop_resolver();
        let before = targets.len();
        let mut devices: SmallVec<[u32; 4]> = SmallVec::new();
        for binding in bindings {
            let known = devices.iter().position(|device| binding.instance != 0 && *device == binding.instance);
            //= rfc5626#5.3
            //= rfc5626#7:one-at-a-time
            // The flows of one device are tried one after the other.
            if let Some(target) = known.and_then(|known| targets.get_mut(before.saturating_add(known))) {
                places.resolve_binding(binding, &mut target.next_hops);
                continue;
            }
            let mut target = Target { q: binding.q, ..Target::default() };
            if places.resolve_binding(binding, &mut target.next_hops).is_some() {
                devices.push(binding.instance);
                targets.push(target);
            }
        }
        if targets.len() == before {
            return RouteDecision::refuse(Status::TEMPORARILY_UNAVAILABLE);
        }
        // A flow is tried last while the member that holds it is silent.
        if stateless != Stateless::Always {
            targets.iter_mut().skip(before).for_each(|target| places.sort_failed_last(&mut target.next_hops));
        }
        RouteDecision::forward(stateless)
    }

    //= rfc5627#5.1
    fn route_to_instance(
        &self,
        domain: &[u8],
        user: &[u8],
        instance: Option<&[u8]>,
        targets: &mut Vec<Target>,
    ) -> RouteDecision {
        let mut bindings: SmallVec<[strowger_registrar::ContactTarget; 4]> = SmallVec::new();
        let (slot, absent) = match instance {
            Some(instance) => {
                let aor = Aor::new(user, domain);
                let aor = self.snapshot.directory.resolve(aor.as_bytes());
                self.locations.lookup_instance(self.now, aor, instance, &mut bindings);
                (Slot::of(aor), self.refuse_absent(aor))
            }
            None => {
                let is_known = self.locations.is_complete();
                let absent = if is_known { RouteDecision::refuse(Status::NOT_FOUND) } else { RouteDecision::Loading };
                let Some((key, slot)) = gruu::open(self.ring, user) else { return absent };
                if self.locations.lookup_temporary(self.now, &key, &mut bindings).is_none() {
                    bindings.clear();
                }
                (slot, absent)
            }
        };
        match self.serving_cluster(|| slot) {
            Some(ServingCluster::Other(owner)) => self.route_to_owner(owner, targets),
            _ if !bindings.is_empty() => self.route_to_bindings(&bindings, Stateless::Never, targets),
            Some(ServingCluster::Own { also: Some(other) }) => {
                self.route_with_cluster_request(other, ClusterRequestKind::ServeLocally, &[], targets)
            }
            Some(ServingCluster::Own { also: None }) | None => absent,
        }
    }

    /// Redirects to the contacts registered here; if there are none, forwards to the cluster that may know others.
    fn redirect_to_contacts(&self, aor: &Aor, found: &mut Vec<Target>) -> RouteDecision {
        let aor = self.snapshot.directory.resolve(aor.as_bytes());
        let bindings = self.bindings(aor);
        match self.serving_cluster(|| Slot::of(aor)) {
            Some(ServingCluster::Other(owner)) => self.route_to_owner(owner, found),
            _ if !bindings.is_empty() => {
                RouteDecision::Redirect { contacts: bindings.iter().map(|binding| (*binding.uri).into()).collect() }
            }
            Some(ServingCluster::Own { also: Some(other) }) => {
                self.route_with_cluster_request(other, ClusterRequestKind::ServeLocally, &[], found)
            }
            Some(ServingCluster::Own { also: None }) | None => self.refuse_absent(aor),
        }
    }

    //= rfc3261#10.1:shared-data
    pub(crate) fn bindings(&self, aor: &[u8]) -> SmallVec<[strowger_registrar::ContactTarget; 4]> {
        let mut bindings = SmallVec::new();
        self.locations.lookup(self.now, aor, &mut bindings);
        if let Some(asked) = self.cluster_request {
            leave_known(asked, &mut bindings);
        }
        bindings
    }

    //= rfc3261#16.5:not-found
    //= rfc3261#16.5:no-target
    /// Refuses a request for `aor`: an existing user is unavailable, any other is unknown.
    pub(crate) fn refuse_absent(&self, aor: &[u8]) -> RouteDecision {
        self.absence(aor).map_or(RouteDecision::Loading, |absence| RouteDecision::refuse(absence.status()))
    }

    //= rfc3261#16.5:480
    /// Returns why `aor` has no contact; `None` while that is unknown.
    pub(crate) fn absence(&self, aor: &[u8]) -> Option<Absence> {
        let known = || self.snapshot.directory.user(aor).is_some_and(|user| user.enabled);
        let why = || if known() { Absence::Unavailable } else { Absence::Unknown };
        self.locations.is_complete().then(why)
    }

    /// Routes to the address of `uri`.
    fn route_to_uri(&self, uri: &[u8], stateless: Stateless, targets: &mut Vec<Target>) -> RouteDecision {
        self.route_to_uri_by(&self.hop_resolver(), uri, stateless, targets)
    }

    pub(crate) fn route_to_uri_by(
        &self,
        places: &NextHopResolver<'_>,
        uri: &[u8],
        stateless: Stateless,
        targets: &mut Vec<Target>,
    ) -> RouteDecision {
        let read;
        let hop = if uri == self.request_uri {
            self.uri
        } else {
            read = Uri::parse(uri);
            read.as_ref()
        };
        let hop = match hop {
            Some(Uri::Sip(hop)) => hop,
            Some(_) => return RouteDecision::refuse(Status::UNSUPPORTED_URI_SCHEME),
            None => return RouteDecision::refuse(Status::BAD_REQUEST),
        };
        let mut target = Target::default();
        if let Err(status) = places.resolve_uri(hop, self.request_uri, &mut target.next_hops)
            && !(status == Status::FORBIDDEN && self.resolve_party(hop, &mut target.next_hops))
        {
            return RouteDecision::refuse_because(
                status,
                match status {
                    Status::FORBIDDEN => "Next Hop Leads To This Server",
                    _ => "Next Hop Not Reachable",
                },
            );
        }
        if target.next_hops.is_empty() {
            if transport_of(hop).flatten().is_some_and(Transport::is_web_socket) {
                return RouteDecision::refuse_because(Status::TEMPORARILY_UNAVAILABLE, "Next Hop Not Reachable");
            }
            return RouteDecision::refuse(Status::BAD_GATEWAY);
        }
        if self.message.to().tag().is_some()
            && let Some(balanced) = self.target.and_then(|id| self.snapshot.balanced(id))
        {
            places.count_request_in_call(&balanced, self.message, self.source, &mut target.next_hops);
        }
        // The dialog's other party decides where its requests go, so our trunk credentials must go to the trunk's
        // hosts only.
        target.trunk = self.trunk.filter(|trunk| places.is_of_trunk(hop, *trunk));
        // Answering its challenges requires a transaction.
        let stateless = if target.trunk.is_some() { Stateless::Never } else { stateless };
        targets.push(target);
        RouteDecision::Forward(ForwardOptions { is_by_own_route: true, ..ForwardOptions::new(stateless) })
    }

    /// Adds the next hop of a URI that leads to this machine, if a party of the call is there. Returns whether it is.
    #[cold]
    fn resolve_party(&self, uri: &SipUri<'_>, found: &mut NextHops) -> bool {
        if !self.is_dialog_proven || !self.notes.refused.get().is_some_and(|refused| self.is_party(refused.address)) {
            return false;
        }
        self.notes.refused.set(None);
        NextHopResolver { named_by: None, ..self.hop_resolver() }.resolve_uri(uri, self.request_uri, found).is_ok()
    }

    /// Returns whether a party of a proven dialog may be at an address of this machine: who began it there, a next hop in
    /// the configuration, or a phone that is registered there.
    fn is_party(&self, address: SocketAddr) -> bool {
        let has_begun_it = || self.dialog_flow.is_some_and(|flow| flow.peer == address);
        let is_configured = || self.snapshot.has_next_hop(self.now, self.names, |hop| hop == address);
        let is_registered = || {
            let to = self.message.to().parse_uri();
            let Some(to) = to.as_ref().and_then(Uri::sip) else { return false };
            let (Some(user), Some(domain)) = (to.user, self.snapshot.domain(&to.host())) else { return false };
            let aor = Aor::new(user, domain);
            let is_there = |contact: &strowger_registrar::ContactTarget| {
                Uri::parse(&contact.uri).and_then(|uri| uri.sip().and_then(peer_of)) == Some(address)
            };
            self.bindings(self.snapshot.directory.resolve(aor.as_bytes())).iter().any(is_there)
        };
        has_begun_it() || is_configured() || is_registered()
    }

    pub(crate) fn route_to_flow(&self, flow: Flow, lost: Status, targets: &mut Vec<Target>) -> RouteDecision {
        if self.snapshot.listeners.get(flow.listener).is_none_or(|own| !own.carries(&flow)) {
            return RouteDecision::refuse(lost);
        }
        let request_uri = SmallVec::from_slice(self.request_uri);
        let reach = NextHopKind::Flow { status_if_gone: lost };
        let place =
            NextHop { request_uri, address: NextHopAddress::Flow(flow), path: None, kind: reach, balanced: None };
        targets.push(Target::at(place));
        RouteDecision::forward(Stateless::Never)
    }

    pub(crate) fn hop_resolver(&self) -> NextHopResolver<'_> {
        let Self { now, snapshot, names, outages, ring, egress, is_secure, choice, named_by, notes, .. } = *self;
        let named_by = Some(&named_by.peer);
        NextHopResolver { now, snapshot, names, outages, ring, egress, is_secure, choice, named_by, notes }
    }
}

/// Refuses a `sips` URI because the server has no secure listener.
fn refuse_sips() -> RouteDecision {
    RouteDecision::refuse_because(Status::UNSUPPORTED_URI_SCHEME, "SIPS Not Supported")
}

/// Makes a name be located with secure transports only; returns whether an address is, or can be, secure.
fn make_secure(address: &mut NextHopAddress) -> bool {
    match address {
        NextHopAddress::Flow(flow) => flow.transport.is_secure(),
        NextHopAddress::Name { question, .. } => {
            question.is_secure = true;
            question.transport != Some(Transport::Udp)
        }
    }
}

/// Removes the bindings that the asking cluster knows.
// Never inlined: cluster requests are rare.
#[inline(never)]
fn leave_known(asked: &ClusterRequest<'_>, bindings: &mut SmallVec<[strowger_registrar::ContactTarget; 4]>) {
    bindings.retain(|binding| !asked.has_known_binding(binding_id(binding)));
}

/// Returns the ID of a binding that all members with one key compute alike, from its instance or its contact.
pub(crate) fn binding_id(binding: &strowger_registrar::ContactTarget) -> BindingId {
    if binding.instance == 0 { strowger_balancer::hash::fnv(&binding.uri) } else { binding.instance }
}
