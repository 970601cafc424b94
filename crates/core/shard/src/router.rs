//! Where a request goes: to the server itself, to the registrar, to a user's contacts, along a route, or where its own
//! Routes lead.

use core::cell::Cell;
use core::time::Duration;

use smallvec::SmallVec;
use strowger_balancer::{Slot, TargetId};
use strowger_foundation::{Flow, KeyRing, ListenerId, Timestamp};
use strowger_locate::{LocateQuery as Name, NameCache, Outages};
use strowger_message::{Aor, Message, Method, SipUri, Status, Uri};
use strowger_proxy::cluster_request::{ClusterRequest, ClusterRequestKind};
use strowger_proxy::{NextHop, NextHopAddress, NextHopKind, Stateless, Target};
use strowger_registrar::Locations;

use crate::clusters::{ServingCluster, binding_id};
use crate::gruu;
use crate::next_hops::{NextHopResolver, RoutedRequest, WeightedChoice, is_from};
use crate::route::{Action, Route};
use crate::snapshot::Snapshot;

/// The decision.
#[derive(Debug)]
pub(crate) enum RouteDecision {
    /// A REGISTER for a domain of ours.
    Registrar,
    /// A request to the server itself.
    Local,
    /// It goes on, to the targets that were found.
    Forward(ForwardOptions),
    /// It is answered 302 with these URIs.
    Redirect { contacts: Vec<Box<[u8]>> },
    /// Whether there is anybody is not known yet: the registrations of before are still being read.
    Loading,
    /// The operator's targets for it are not in service.
    OutOfService,
    /// None of the balanced set that it is for takes it now; until when all want to be left alone, where that is why.
    NoTarget { held_until: Option<Timestamp> },
    /// It is answered so.
    Refuse { status: Status, reason: Option<Box<str>> },
}

/// How a request goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardOptions {
    pub(crate) stateless: Stateless,
    /// The route's ring time-out, where it has one.
    pub(crate) ring_timeout: Option<Duration>,
    /// Its own Routes, or its Request-URI, say where it goes; not the operator, nor a registration.
    pub(crate) is_by_own_route: bool,
    /// A route's own targets are where it goes.
    pub(crate) is_to_route_targets: bool,
    /// It is a REGISTER for the cluster that has the user, which asks its sender for a password itself.
    pub(crate) is_registration: bool,
    /// They are those of a balanced set, which has a failover time-out of its own.
    pub(crate) failover_timeout: Option<Duration>,
    /// What the caller is told where nobody has anything better to say.
    pub(crate) fallback: Option<Absence>,
}

/// Why nobody can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// The user has no phone.
    Unavailable,
    /// There is no such user.
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
    /// On to the targets that were found.
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

    /// On to the targets that were found.
    const fn forward(stateless: Stateless) -> Self {
        Self::Forward(ForwardOptions::new(stateless))
    }
}

/// What the decision is made from.
pub(crate) struct Router<'a> {
    pub(crate) now: Timestamp,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) locations: &'a Locations,
    pub(crate) names: &'a NameCache,
    pub(crate) outages: &'a Outages,
    pub(crate) ring: &'a KeyRing,
    pub(crate) message: &'a Message<'a>,
    pub(crate) method: Method<'a>,
    /// The Request-URI that counts.
    pub(crate) request_uri: &'a [u8],
    /// The same, read; `None` where it cannot be.
    pub(crate) uri: Option<&'a Uri<'a>>,
    /// Where the request goes next: the first Route that remains, else the Request-URI.
    pub(crate) next_hop: &'a [u8],
    /// A Route of ours proved that the dialog came through here.
    pub(crate) is_dialog_proven: bool,
    /// The flow by which the other side of a proven dialog is reached.
    pub(crate) dialog_flow: Option<&'a Flow>,
    /// The trunk that a proven dialog goes through.
    pub(crate) trunk: Option<u32>,
    /// The target of a balanced set that has the call which the request belongs to.
    pub(crate) target: Option<TargetId>,
    /// It will be asked for credentials, wherever it would go.
    pub(crate) is_tentative: bool,
    /// The flow of a token in a Route of ours.
    pub(crate) token_flow: Option<&'a Flow>,
    pub(crate) source: &'a Flow,
    /// The listener on which it leaves, as far as one can say: the source's, or that of the last Route of ours.
    pub(crate) egress: ListenerId,
    /// Whom a REGISTER claims to register, where its domain is ours.
    pub(crate) claimed: Option<&'a Aor>,
    /// What a member of another cluster asks.
    pub(crate) cluster_request: Option<&'a ClusterRequest<'a>>,
    /// What chooses among targets by weight.
    pub(crate) choice: WeightedChoice<'a>,
    /// A name whose answer is old, to be asked for again.
    pub(crate) refresh: &'a Cell<Option<Box<Name>>>,
}

impl Router<'_> {
    /// Decides, and adds to `targets` where a request that goes on is sent; they are not returned, because they are large.
    pub(crate) fn decide(&self, targets: &mut Vec<Target>) -> RouteDecision {
        let Some(uri) = self.uri else { return RouteDecision::refuse(Status::BAD_REQUEST) };
        let routed = self.next_hop != self.request_uri;
        if let Some(flow) = self.token_flow.filter(|flow| !routed && !is_from(self.source, flow)) {
            //= rfc5626#5.3.1
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
        //= rfc3261#16.3
        if !routed && !matches!(uri, Uri::Sip(_) | Uri::Tel(_)) {
            return RouteDecision::refuse(Status::UNSUPPORTED_URI_SCHEME);
        }
        let host = uri.sip().map_or(&[][..], |uri| uri.host_port.host);
        let host: SmallVec<[u8; 64]> = host.iter().map(u8::to_ascii_lowercase).collect();
        match self.find_route(&host, uri, |_| true) {
            Some(route) => self.apply_route(route, None, targets),
            None => match self.snapshot.unrouted_status {
                Status::NOT_FOUND => RouteDecision::refuse_because(Status::NOT_FOUND, "Domain Not Served Here"),
                status => RouteDecision::refuse(status),
            },
        }
    }

    /// Adds to `targets` the destinations that a contact of a redirection stands for.
    pub(crate) fn resolve_redirection(&self, contact: &Uri<'_>, targets: &mut Vec<Target>) {
        let domain = contact.sip().and_then(|uri| self.snapshot.addressed_domain(uri));
        let before = targets.len();
        let way = match (contact, domain) {
            (Uri::Sip(uri), Some(domain)) if uri.user.is_some() => self.route_in_domain(domain, uri, targets),
            (Uri::Sip(_), _) => self.route_to_uri(contact.as_bytes(), Stateless::Never, targets),
            _ => return,
        };
        if !matches!(way, RouteDecision::Forward(_)) {
            targets.truncate(before);
        }
    }

    /// To the target that has the call, where the request says no more than that: by its address, or by one of ours.
    fn route_in_call(&self, targets: &mut Vec<Target>) -> Option<RouteDecision> {
        //= rfc3261#12.2.2
        // A request without a To tag begins something, and routes say where to.
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
        let aor = Aor::new(user, domain);
        // What names a domain of ours, or numbers, goes before the users; what takes everything comes after them.
        let own = |route: &Route| *route.matches.domain != *b"*" || !route.matches.prefixes.is_empty();
        if let Some(route) = self.find_route(domain, &Uri::Sip(*uri), own) {
            return self.apply_route(route, Some(&aor), targets);
        }
        let way = self.route_to_contacts(&aor, Stateless::Never, targets);
        // An address of ours with a user that nobody knows may be meant for the route that takes everything.
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
                    // What is counted takes a transaction.
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

    /// To the other server where a user of ours may be registered, with the Request-URI as it is; not for what that one has sent, which
    /// knows nothing of the user either.
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
        // A flow is the last choice while the member that has it is silent.
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

    /// With what is registered here; where that is nothing, it is left to whom more may be known.
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

    pub(crate) fn bindings(&self, aor: &[u8]) -> SmallVec<[strowger_registrar::ContactTarget; 4]> {
        let mut bindings = SmallVec::new();
        self.locations.lookup(self.now, aor, &mut bindings);
        if let Some(asked) = self.cluster_request {
            leave_known(asked, &mut bindings);
        }
        bindings
    }

    /// A user without a phone is away; an address that is nobody's does not exist.
    pub(crate) fn refuse_absent(&self, aor: &[u8]) -> RouteDecision {
        self.absence(aor).map_or(RouteDecision::Loading, |absence| RouteDecision::refuse(absence.status()))
    }

    /// Why nobody is at `aor`; `None` where that is not known yet.
    pub(crate) fn absence(&self, aor: &[u8]) -> Option<Absence> {
        let known = || self.snapshot.directory.user(aor).is_some_and(|user| user.enabled);
        let why = || if known() { Absence::Unavailable } else { Absence::Unknown };
        self.locations.is_complete().then(why)
    }

    /// To where `uri` says.
    pub(crate) fn route_to_uri(&self, uri: &[u8], stateless: Stateless, targets: &mut Vec<Target>) -> RouteDecision {
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
        let places = self.hop_resolver();
        let mut target = Target::default();
        if let Err(status) = places.resolve_uri(hop, self.request_uri, &mut target.next_hops) {
            return RouteDecision::refuse_because(status, "Next Hop Not Reachable");
        }
        if target.next_hops.is_empty() {
            return RouteDecision::refuse(Status::BAD_GATEWAY);
        }
        if self.message.to().tag().is_some()
            && let Some(balanced) = self.target.and_then(|id| self.snapshot.balanced(id))
        {
            places.count_in_call(&balanced, self.message, self.source, &mut target.next_hops);
        }
        // Whoever is in the dialog says where its requests go; what proves us to the trunk goes there only.
        target.trunk = self.trunk.filter(|trunk| places.is_of_trunk(hop, *trunk));
        // Its challenges are answered, and that takes a transaction.
        let stateless = if target.trunk.is_some() { Stateless::Never } else { stateless };
        targets.push(target);
        RouteDecision::Forward(ForwardOptions { is_by_own_route: true, ..ForwardOptions::new(stateless) })
    }

    pub(crate) fn route_to_flow(&self, flow: Flow, lost: Status, targets: &mut Vec<Target>) -> RouteDecision {
        if self.snapshot.listeners.get(flow.listener).is_none_or(|own| own.transport != flow.transport) {
            return RouteDecision::refuse(lost);
        }
        let request_uri = SmallVec::from_slice(self.request_uri);
        let reach = NextHopKind::Flow { status_if_gone: lost };
        let place =
            NextHop { request_uri, address: NextHopAddress::Flow(flow), path: None, kind: reach, balanced: None };
        targets.push(Target::at(place));
        RouteDecision::forward(Stateless::Never)
    }

    fn hop_resolver(&self) -> NextHopResolver<'_> {
        let Self { now, snapshot, names, outages, ring, choice, refresh, .. } = *self;
        NextHopResolver { now, snapshot, names, outages, ring, egress: self.egress, choice, refresh }
    }
}

/// Leaves out what who asks knows.
// Never inlined: hardly anybody asks.
#[inline(never)]
fn leave_known(asked: &ClusterRequest<'_>, bindings: &mut SmallVec<[strowger_registrar::ContactTarget; 4]>) {
    bindings.retain(|binding| !asked.has_known_binding(binding_id(binding)));
}
