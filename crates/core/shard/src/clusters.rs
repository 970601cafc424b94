//! Users that are spread over clusters: which cluster has one, and what is passed to another.
//!
//! A first stage passes every request to the cluster that has its user. A member of a cluster serves the users of its own, and passes
//! requests for others straight to theirs. Where users have moved lately, the cluster that has them now asks the one that had them
//! for what they registered there. Members are told of a change one after the other, and disagree meanwhile: a request is passed to the
//! cluster that has the user as the sender believes, that one asks one more, and who is asked then deals with the request by what it
//! knows itself ([`strowger_proxy::inquiry`]). So nothing goes to and fro, and whoever may know of a phone is asked once.

use std::sync::Arc;

use smallvec::SmallVec;
use strowger_balancer::{Partition, Slot, SlotLoads};
use strowger_message::{Aor, Method, SipUri, Status, Uri};
use strowger_proxy::cluster_request::{self, BindingId, ClusterRequestKind, Subject};
use strowger_proxy::{Stateless, Target};

use crate::gruu;
use crate::route::Route;
use crate::router::{ForwardOptions, RouteDecision, Router};

/// The preference of what is tried at once with contacts that have none of their own (RFC 3261 §20.10), in thousandths.
const FIRST: u16 = 1000;

/// The clusters, as one server sees them.
#[derive(Clone, Debug)]
pub struct Clusters {
    /// The cluster that this server is a member of; none for a first stage.
    pub own: Option<usize>,
    /// What those have in common that stand in for this server: the name of its cluster, or of the first stage.
    pub stage: Box<str>,
    /// Which cluster has which users.
    pub partition: Partition,
    /// Which cluster had them, where that is another one for some of them.
    pub previous: Option<Partition>,
    /// The way to the members of each cluster.
    pub routes: Vec<Route>,
    /// How much the users of each slot are asked for.
    pub loads: Arc<SlotLoads>,
    /// What holds for a REGISTER that came through another server of ours: that one has added a Path where phones have to be reached
    /// through it.
    pub registrar: strowger_registrar::Policy,
}

/// Who serves a request for a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServingCluster {
    /// This server's cluster, which asks that one, too: there the user was before, or is as this server believes and who asks does not.
    Own { also: Option<usize> },
    /// Another cluster.
    Other(usize),
}

impl Clusters {
    /// Where the user of this slot is for a member of a cluster; `None` for a first stage, and where no cluster has anybody.
    pub(crate) fn serving_cluster(&self, slot: Slot) -> Option<ServingCluster> {
        let own = self.own?;
        let owner = self.partition.owner(slot)?;
        if owner != own {
            return Some(ServingCluster::Other(owner));
        }
        let before = self.previous.as_ref().and_then(|before| before.owner(slot));
        Some(ServingCluster::Own { also: before.filter(|before| *before != own) })
    }
}

impl Router<'_> {
    /// Of a first stage: to the cluster whose the request is. `None` for what is for the server itself, or goes where its Routes lead.
    // Never inlined: most servers have no clusters.
    #[inline(never)]
    pub(crate) fn route_at_first_stage(&self, uri: &Uri<'_>, targets: &mut Vec<Target>) -> Option<RouteDecision> {
        let clusters = self.snapshot.clusters.as_ref().filter(|clusters| clusters.own.is_none())?;
        if let Some(outside) = self.dialog_flow {
            // Whatever its Contact says: only this server reaches it.
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
            //= rfc3261#18.2.2
            // Only a transaction knows the connection that a response goes back on.
            RouteDecision::Forward(onward) if !self.source.transport.is_reliable() => {
                RouteDecision::Forward(ForwardOptions { stateless: Stateless::Always, ..onward })
            }
            way => way,
        })
    }

    /// Of a first stage: on to the server of ours that the next Route names, which looks itself whether it has written that Route. Clients
    /// that send everything through the first stage send what belongs to a call there, too, while its members are all that is on the way
    /// of the call.
    #[inline(never)]
    pub(crate) fn route_to_sibling(&self, targets: &mut Vec<Target>) -> Option<RouteDecision> {
        let next = Uri::parse(self.next_hop)?;
        let next = next.sip().filter(|_| self.snapshot.is_first_stage())?;
        self.snapshot.domain_addressed_elsewhere(next).is_some().then(|| {
            let is_reliable = self.source.transport.is_reliable();
            self.route_to_uri(self.next_hop, if is_reliable { Stateless::Never } else { Stateless::Always }, targets)
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
        // What is for none of our users is the caller's business, and that of his cluster.
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

    /// Whether it is no part of what was begun before.
    fn begins_something(&self) -> bool {
        !matches!(self.message.method(), Method::Ack | Method::Cancel) && self.message.to().tag().is_none()
    }

    /// Who serves a request for the user of a slot, for a member that nobody has asked to serve it by what it knows.
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

    /// Of a REGISTER: to the registrar, or to the cluster that has the user.
    pub(crate) fn route_registration(&self, targets: &mut Vec<Target>) -> RouteDecision {
        let standing = self.claimed.and_then(|aor| self.serving_cluster(|| self.slot_of(aor.as_bytes())));
        match standing {
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

    /// To a cluster that has the user as this server believes.
    #[inline(never)]
    pub(crate) fn route_to_owner(&self, owner: usize, targets: &mut Vec<Target>) -> RouteDecision {
        self.route_with_cluster_request(owner, ClusterRequestKind::ServeAsOwner, &[], targets)
    }

    /// To the members of a cluster; `known` are bindings that it need not try.
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
            // Whoever is there says so at once.
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

    /// To a user who may be known elsewhere, too: to what is registered here, and to what else is there.
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

/// What members with one key know a binding by: its device, or its contact.
pub(crate) fn binding_id(binding: &strowger_registrar::ContactTarget) -> BindingId {
    if binding.instance == 0 { strowger_balancer::hash::fnv(&binding.uri) } else { binding.instance }
}
