//! Users spread over clusters: which cluster has a user, and which requests pass to another cluster.
//!
//! A first stage passes every request to the cluster that has its user. A member of a cluster serves its own users
//! and passes requests for others straight to their cluster. Where users have moved recently, the cluster that has
//! them asks the previous one for the contacts registered there. Members learn of a change one after the other and
//! disagree meanwhile. A request then goes to the cluster that has the user in the sender's view; that cluster asks
//! at most one more, and the cluster asked last serves the request from its own table
//! ([`strowger_proxy::cluster_request`]). So no request loops, and every cluster that may know a phone is asked once.

use smallvec::SmallVec;
use strowger_balancer::Slot;
use strowger_message::{Aor, Method, SipUri, Status, Uri};
use strowger_proxy::cluster_request::{self, BindingId, ClusterRequestKind, Subject};
use strowger_proxy::{Stateless, Target};

use crate::cluster_routes::{Clusters, ServingCluster};
use crate::gruu;
use crate::next_hops::NextHopResolver;
use crate::router::{ForwardOptions, RouteDecision, Router, binding_id};

/// The preference of a target that is tried in parallel with contacts without a q value (RFC 3261 §20.10), in
/// thousandths.
const FIRST: u16 = 1000;

impl Router<'_> {
    /// Routes a request at a first stage to the cluster that has its user. `None` for a request to the server itself
    /// or one that follows its Routes.
    // Never inlined: most servers have no clusters.
    #[inline(never)]
    pub(crate) fn route_at_first_stage(&self, uri: &Uri<'_>, targets: &mut Vec<Target>) -> Option<RouteDecision> {
        let clusters = self.snapshot.clusters.as_ref().filter(|clusters| clusters.own.is_none())?;
        if let Some(outside) = self.dialog_flow {
            // Only this server reaches the flow, whatever the Contact says.
            return Some(self.route_to_flow(*outside, Status::FLOW_FAILED, targets));
        }
        let slot = self.slot_of_first_stage(uri)?;
        if self.begins_something() {
            clusters.loads.count(slot, self.method == Method::Invite);
        }
        let Some(owner) = clusters.partition.owner(slot) else {
            return Some(RouteDecision::NoTarget { held_until: None });
        };
        let way = self.route_to_cluster(clusters, owner, targets);
        Some(match way {
            //= rfc3261#18.2.2:same-connection
            // Only a transaction knows the connection for the response.
            RouteDecision::Forward(onward) if !self.source.transport.is_reliable() => {
                RouteDecision::Forward(ForwardOptions { stateless: Stateless::Always, ..onward })
            }
            way => way,
        })
    }

    /// Routes a request at a first stage to the sibling that the next Route names; the sibling itself verifies that
    /// it wrote that Route. Clients that send everything through the first stage also send in-dialog requests there,
    /// although only its members are on the path of the call.
    #[inline(never)]
    pub(crate) fn route_to_sibling(&self, targets: &mut Vec<Target>) -> Option<RouteDecision> {
        let next = Uri::parse(self.next_hop)?;
        let next = next.sip().filter(|_| self.snapshot.is_first_stage())?;
        self.snapshot.domain_addressed_elsewhere(next).is_some().then(|| {
            let is_reliable = self.source.transport.is_reliable();
            // The operator has named the sibling.
            let places = NextHopResolver { named_by: None, ..self.hop_resolver() };
            let stateless = if is_reliable { Stateless::Never } else { Stateless::Always };
            self.route_to_uri_by(&places, self.next_hop, stateless, targets)
        })
    }

    fn slot_of_first_stage(&self, uri: &Uri<'_>) -> Option<Slot> {
        if self.method == Method::Register {
            return self.claimed.map(|aor| self.slot_of(aor.as_bytes()));
        }
        if let Uri::Sip(sip) = uri
            && let Some(domain) = self.snapshot.addressed_domain(sip)
        {
            return self.slot_of_user(sip, domain);
        }
        if self.is_dialog_proven {
            return None;
        }
        // A request to none of our users is routed by the caller's cluster.
        let from = self.message.from().parse_uri();
        let from = from.as_ref().and_then(Uri::sip)?;
        let host = from.host_port.host;
        Some(self.slot_of(Aor::new(from.user.unwrap_or_default(), host).as_bytes()))
    }

    fn slot_of_user(&self, uri: &SipUri<'_>, domain: &[u8]) -> Option<Slot> {
        let user = uri.user?;
        if uri.params.contains("gr") && uri.params.value("gr").is_none() {
            return Some(gruu::open(self.ring, user)?.1);
        }
        Some(self.slot_of(Aor::new(user, domain).as_bytes()))
    }

    fn slot_of(&self, aor: &[u8]) -> Slot {
        Slot::of(self.snapshot.directory.resolve(aor))
    }

    /// Returns whether the request is outside any existing dialog or transaction.
    fn begins_something(&self) -> bool {
        !matches!(self.message.method(), Method::Ack | Method::Cancel) && self.message.to().tag().is_none()
    }

    /// Returns which cluster serves the user of a slot, for a request that no other cluster has asked this member to
    /// serve locally.
    #[inline]
    pub(crate) fn serving_cluster(&self, slot: impl Fn() -> Slot) -> Option<ServingCluster> {
        let clusters = self.snapshot.clusters.as_ref()?;
        self.serving_cluster_among(clusters, slot())
    }

    // Never inlined: most servers have no clusters.
    #[inline(never)]
    fn serving_cluster_among(&self, clusters: &Clusters, slot: Slot) -> Option<ServingCluster> {
        match self.cluster_request.map(|asked| asked.kind) {
            None => {
                if self.begins_something() {
                    clusters.loads.count(slot, self.method == Method::Invite);
                }
                clusters.serving_cluster(slot)
            }
            Some(ClusterRequestKind::ServeAsOwner) => match clusters.serving_cluster(slot)? {
                ServingCluster::Other(other) => Some(ServingCluster::Own { also: Some(other) }),
                here => Some(here),
            },
            Some(ClusterRequestKind::ServeLocally | ClusterRequestKind::RemoveBindings) => None,
        }
    }

    /// Routes a REGISTER to the registrar, or to the cluster that has the user.
    pub(crate) fn route_registration(&self, targets: &mut Vec<Target>) -> RouteDecision {
        let serving = self.claimed.and_then(|aor| self.serving_cluster(|| self.slot_of(aor.as_bytes())));
        match serving {
            Some(ServingCluster::Other(owner)) => {
                match self.route_with_cluster_request(owner, ClusterRequestKind::ServeLocally, &[], targets) {
                    RouteDecision::Forward(onward) => {
                        RouteDecision::Forward(ForwardOptions { is_registration: true, ..onward })
                    }
                    way => way,
                }
            }
            Some(ServingCluster::Own { .. }) | None => RouteDecision::Registrar,
        }
    }

    /// Routes to the cluster that has the user in this server's view.
    #[inline(never)]
    pub(crate) fn route_to_owner(&self, owner: usize, targets: &mut Vec<Target>) -> RouteDecision {
        self.route_with_cluster_request(owner, ClusterRequestKind::ServeAsOwner, &[], targets)
    }

    /// Routes to the members of a cluster with a cluster request; `known` are bindings that it need not try.
    pub(crate) fn route_with_cluster_request(
        &self,
        cluster: usize,
        ask: ClusterRequestKind,
        known: &[BindingId],
        targets: &mut Vec<Target>,
    ) -> RouteDecision {
        let Some(clusters) = &self.snapshot.clusters else { return RouteDecision::NoTarget { held_until: None } };
        let domain = self.snapshot.domains.first().map_or(&[][..], |domain| domain);
        let before = targets.len();
        let way = self.route_to_cluster(clusters, cluster, targets);
        let subject = Subject::of(self.message, self.request_uri);
        let route = cluster_request::route(self.ring, domain, &subject, ask, known.iter().copied());
        for target in targets.iter_mut().skip(before) {
            target.q = FIRST;
            // A reachable member responds at once.
            target.has_several_hops = true;
            target.next_hops.iter_mut().for_each(|place| place.path = Some(route.clone()));
        }
        way
    }

    fn route_to_cluster(&self, clusters: &Clusters, cluster: usize, targets: &mut Vec<Target>) -> RouteDecision {
        match clusters.routes.get(cluster) {
            Some(route) => self.apply_route(route, None, targets),
            None => RouteDecision::NoTarget { held_until: None },
        }
    }

    /// Routes to a user who may be registered in another cluster as well: to the contacts registered here and to that
    /// cluster.
    #[inline(never)]
    pub(crate) fn route_to_both_clusters(
        &self,
        other: usize,
        aor: &[u8],
        stateless: Stateless,
        targets: &mut Vec<Target>,
    ) -> RouteDecision {
        let bindings = self.bindings(aor);
        let known: SmallVec<[BindingId; 4]> = bindings.iter().map(binding_id).collect();
        let here = (!bindings.is_empty()).then(|| self.route_to_bindings(&bindings, stateless, targets));
        let best = targets.iter().map(|target| target.q).max();
        let first = targets.len();
        let there = self.route_with_cluster_request(other, ClusterRequestKind::ServeLocally, &known, targets);
        targets.iter_mut().skip(first).for_each(|target| target.q = best.unwrap_or(FIRST));
        match (here, there) {
            (Some(here @ RouteDecision::Forward(_)), _) => here,
            (_, RouteDecision::Forward(onward)) => {
                RouteDecision::Forward(ForwardOptions { fallback: self.absence(aor), ..onward })
            }
            (Some(here), _) => here,
            (None, _) => self.refuse_absent(aor),
        }
    }
}
