//! Removal of bindings in other clusters that may know the user (see [`crate::clusters`]). The user's previous
//! cluster and the one that passed the REGISTER on keep bindings until they expire, and must not call a phone that
//! has unregistered.

use std::sync::Arc;

use smallvec::SmallVec;
use strowger_balancer::Slot;
use strowger_foundation::{Flow, ListenerId, Timestamp, Transport};
use strowger_message::{HeaderName, Message, NameAddr};
use strowger_proxy::cluster_request::{self, ClusterRequest, ClusterRequestKind, Subject};
use strowger_proxy::{Listener, NextHop, NextHopAddress};
use strowger_registrar::{Update, UpdateKind};
use strowger_transaction::Kind;

use crate::cluster_routes::ServingCluster;
use crate::next_hops::{self, NextHopResolver, ResolutionNotes, WeightedChoice};
use crate::probes::PROBE_USERS;
use crate::register::RegisterRequest;
use crate::shard::Shard;

/// The user number of a transaction whose response is discarded.
const DISCARD_USER: u32 = PROBE_USERS | ((1 << 30) - 1);

/// Number of members of a cluster that are told of a removal; they tell the others.
const NOTIFIED_MEMBERS: usize = 2;

/// The Contacts that a REGISTER removes, as written in it.
type Contacts<'m> = SmallVec<[&'m [u8]; 2]>;

impl Shard {
    /// Sends the bindings that this REGISTER has removed to the other clusters that may have them.
    pub(crate) fn forward_removal(
        &mut self,
        now: Timestamp,
        registering: RegisterRequest<'_, '_>,
        update: &Update<'_>,
    ) {
        let RegisterRequest { source, message, aor, .. } = registering;
        let Some(clusters) = self.snapshot.clusters.as_ref().map(Arc::clone) else { return };
        let removed = removed(message, update);
        if removed.is_empty() {
            return;
        }
        let sender = match self.cluster_request_of(message) {
            // A forwarded removal is not forwarded again.
            Some(ClusterRequestKind::RemoveBindings) => return,
            Some(ClusterRequestKind::ServeLocally | ClusterRequestKind::ServeAsOwner) => Some(source),
            None => None,
        };
        let before = match clusters.serving_cluster(Slot::of(aor)) {
            // If the sender and this server take each other for the owner, the whole cluster of the sender is told,
            // because the sender may fail.
            Some(ServingCluster::Own { also: Some(other) }) => clusters.routes.get(other),
            Some(ServingCluster::Other(owner)) if sender.is_some() => clusters.routes.get(owner),
            _ => None,
        };
        let mut flows = before.map(|route| self.first_places(now, message, route)).unwrap_or_default();
        if before.is_some() && flows.is_empty() {
            self.counters.removals_lost += 1;
        }
        flows.retain(|flow| sender.is_none_or(|sender| sender.peer != flow.peer));
        flows.extend(sender);
        for flow in flows {
            self.send_removal(now, flow, message, &removed);
        }
    }

    /// Returns the cluster request in the first Route.
    pub(crate) fn cluster_request_of(&self, message: &Message<'_>) -> Option<ClusterRequestKind> {
        let route = message.head().elements(HeaderName::Route).next().and_then(NameAddr::parse)?;
        let uri = route.parse_uri()?;
        let subject = Subject::of(message, message.request_uri());
        Some(ClusterRequest::read(self.proxy.ring(), &subject, uri.sip()?)?.kind)
    }

    fn send_removal(&mut self, now: Timestamp, flow: Flow, message: &Message<'_>, removed: &[&[u8]]) {
        let snapshot = Arc::clone(&self.snapshot);
        let Some(listener) = snapshot.listeners.get(flow.listener) else { return };
        let Ok(client) = self.proxy.transactions().reserve_client() else {
            self.counters.removals_lost += 1;
            return;
        };
        let branch = self.proxy.own_branch(client);
        let domain = snapshot.domains.first().map_or(&[][..], |domain| domain);
        let subject = Subject::of(message, message.request_uri());
        let asking =
            cluster_request::route(self.proxy.ring(), domain, &subject, ClusterRequestKind::RemoveBindings, []);
        let mut request = self.proxy.transactions().pool().take(1024);
        let removal = Removal { listener, domain, branch: &branch, route: &asking, message, removed };
        removal.write(&mut request);
        self.proxy.transactions().start_client(now, client, Kind::NonInvite, flow, request, DISCARD_USER);
        self.counters.removals_forwarded += 1;
    }

    /// Returns the first next hops of a route: several, because a member that fails or starts accepts no removal.
    fn first_places(&self, now: Timestamp, message: &Message<'_>, route: &crate::route::Route) -> SmallVec<[Flow; 4]> {
        let notes = ResolutionNotes::default();
        let places = NextHopResolver {
            now,
            snapshot: &self.snapshot,
            names: &self.names,
            outages: &self.outages,
            ring: self.proxy.ring(),
            egress: ListenerId(0),
            is_secure: false,
            choice: WeightedChoice::ByCallId(self.proxy.tag_key(), message.call_id()),
            named_by: None,
            notes: &notes,
        };
        let source = Flow::new(ListenerId(0), Transport::Udp, ([0, 0, 0, 0], 0).into());
        let uri = message.uri().copied();
        let asked = next_hops::RoutedRequest {
            message,
            source: &source,
            request_uri: message.request_uri(),
            uri: uri.as_ref(),
            target: None,
            is_tentative: false,
        };
        let mut found = Vec::new();
        if places.resolve_route(route, &asked, &mut found).is_err() {
            return SmallVec::new();
        }
        let flow = |place: &NextHop| match place.address {
            NextHopAddress::Flow(flow) => Some(flow),
            NextHopAddress::Name { .. } => None,
        };
        found.iter().flat_map(|target| &target.next_hops).filter_map(flow).take(NOTIFIED_MEMBERS).collect()
    }
}

/// Returns the Contacts that `message` removes; `update` is its parsed form.
fn removed<'m>(message: &'m Message<'_>, update: &Update<'_>) -> Contacts<'m> {
    let elements = message.head().elements(HeaderName::Contact);
    match &update.kind {
        UpdateKind::Fetch => Contacts::new(),
        UpdateKind::RemoveAll => elements.collect(),
        UpdateKind::Contacts(contacts) => {
            let pairs = elements.zip(contacts);
            pairs.filter(|(_, contact)| contact.expires_s == Some(0)).map(|(element, _)| element).collect()
        }
    }
}

/// A REGISTER that repeats a removal.
struct Removal<'a> {
    listener: &'a Listener,
    domain: &'a [u8],
    branch: &'a [u8],
    route: &'a [u8],
    message: &'a Message<'a>,
    removed: &'a [&'a [u8]],
}

impl Removal<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let Self { listener, domain, branch, route, message, removed } = *self;
        // From the parsed message, so that it can contain nothing else.
        let user = message.to().uri;
        let cseq = message.cseq().number.to_string();
        let tag = message.from().tag().unwrap_or(b"removed");
        let parts: [&[u8]; 22] = [
            b"REGISTER sip:",
            domain,
            b" SIP/2.0\r\nVia: SIP/2.0/",
            listener.transport.as_str().as_bytes(),
            b" ",
            &listener.sent_by,
            b";branch=",
            branch,
            b"\r\nMax-Forwards: 70\r\nRoute: ",
            route,
            b"\r\nFrom: <",
            user,
            b">;tag=",
            tag,
            b"\r\nTo: <",
            user,
            b">\r\nCall-ID: ",
            message.call_id(),
            b"\r\nCSeq: ",
            cseq.as_bytes(),
            b" REGISTER\r\nExpires: 0\r\n",
            b"Content-Length: 0\r\n",
        ];
        parts.iter().for_each(|part| out.extend_from_slice(part));
        for contact in removed {
            [&b"Contact: "[..], contact, b"\r\n"].iter().for_each(|part| out.extend_from_slice(part));
        }
        out.extend_from_slice(b"\r\n");
    }
}
