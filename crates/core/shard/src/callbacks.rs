//! The proxy's callbacks while it handles a response: the next hop of a stateless response, the targets of a
//! redirection, and the credentials for a trunk's challenge.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::collections::VecDeque;

use strowger_foundation::{Flow, HostId, KeyRing, TagKey, Timestamp};
use strowger_locate::{LocateQuery as Name, NameCache, Outages, QueryId};
use strowger_message::{Message, Uri};
use strowger_proxy::routing::is_sips;
use strowger_proxy::{ProxyCallbacks, Target};
use strowger_registrar::Locations;
use strowger_trunk::{ChallengedRequest, answer_challenge};

use crate::next_hops::{RefusedDestination, ResolutionNotes, WeightedChoice};
use crate::router::Router;
use crate::snapshot::Snapshot;
use crate::uri_address::{is_one_host, peer_of};

/// The shard without its proxy.
pub(crate) struct ShardCallbacks<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) locations: &'a Locations,
    pub(crate) names: &'a NameCache,
    pub(crate) outages: &'a Outages,
    /// The keys of flow tokens and GRUUs.
    pub(crate) ring: KeyRing,
    pub(crate) tag_key: TagKey,
    /// The flow the response came on.
    pub(crate) source: Flow,
    pub(crate) questions: &'a mut VecDeque<(QueryId, Name)>,
    /// An address of this machine to which the response would lead a call, and must not.
    pub(crate) refused: Option<RefusedDestination>,
}

impl ShardCallbacks<'_> {
    /// Returns whether a peer elsewhere redirects a call to this machine, though not to a user of it.
    fn is_local_redirection(&self, contact: &Uri<'_>) -> bool {
        let Some(uri) = contact.sip() else { return false };
        let is_user = || uri.user.is_some() && self.snapshot.addressed_domain(uri).is_some();
        self.snapshot.guards_itself_from(self.source.peer.ip()) && self.snapshot.leads_here(uri) && !is_user()
    }
}

impl ProxyCallbacks for ShardCallbacks<'_> {
    fn upstream(&mut self, response: &Message<'_>) -> Option<Flow> {
        let via = response.next_via()?;
        let transport = via.transport()?;
        let ip = via.response_ip().filter(|ip| is_one_host(*ip))?;
        let peer = SocketAddr::new(ip, via.response_port());
        let listeners = &self.snapshot.listeners;
        let listener = listeners.towards(transport, peer, self.source.listener);
        // The response goes on the connection that the peer has opened.
        let listener = listener.or_else(|| listeners.position(transport))?;
        //= rfc3261#18.2.2:same-connection
        Some(Flow { host: HostId::SOURCE, ..Flow::new(listener, transport, peer) })
    }

    fn redirection_targets(
        &mut self,
        now: Timestamp,
        contact: &[u8],
        request: &Message<'_>,
        source: &Flow,
        found: &mut Vec<Target>,
    ) {
        let Some(uri) = Uri::parse(contact) else { return };
        //= rfc3261#16.6:no-headers
        // Headers in a contact URI must not become headers of a request or part of its Request-URI.
        let request_uri = uri.sip().map_or(contact, |sip| sip.without_headers());
        let Some(uri) = Uri::parse(request_uri) else { return };
        if self.is_local_redirection(&uri) {
            let address = uri.sip().and_then(peer_of).unwrap_or(LOCALHOST);
            self.refused = Some(RefusedDestination { named_by: self.source.peer.ip(), address });
            return;
        }
        let notes = ResolutionNotes::default();
        let question = Router {
            now,
            snapshot: self.snapshot,
            locations: self.locations,
            names: self.names,
            outages: self.outages,
            ring: &self.ring,
            message: request,
            method: request.method(),
            request_uri,
            uri: Some(&uri),
            next_hop: request_uri,
            is_dialog_proven: false,
            dialog_flow: None,
            trunk: None,
            target: None,
            is_tentative: false,
            token_flow: None,
            // A redirection must not lead where the caller could not have called directly.
            source,
            claimed: None,
            cluster_request: None,
            egress: self.source.listener,
            // Neither the caller's `sips` nor the callee's leaves TLS.
            is_secure: is_sips(request.request_uri()) || is_sips(uri.as_bytes()),
            choice: WeightedChoice::ByCallId(&self.tag_key, request.call_id()),
            named_by: &self.source,
            notes: &notes,
        };
        question.resolve_redirection(&uri, found);
        if let Some(name) = notes.refresh.take() {
            self.questions.push_back((CACHE_ONLY_QUERY, *name));
        }
        self.refused = notes.refused.take().or(self.refused);
    }

    fn answer_challenge(
        &mut self,
        trunk: u32,
        response: &Message<'_>,
        request: &Message<'_>,
        request_uri: &[u8],
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(trunk) = self.snapshot.trunks.iter().find(|known| known.id() == trunk) else { return false };
        let via = response.via();
        let cnonce = self.tag_key.hash64(&[b"cnonce", via.branch.unwrap_or(&[]), response.call_id()]);
        let method = request.method();
        let challenged = ChallengedRequest {
            method: method.as_bytes(),
            uri: request_uri,
            body: request.body(),
            cnonce,
            attempts: 0,
        };
        answer_challenge(trunk, response, &challenged, out)
    }
}

/// What the name `localhost` leads to.
const LOCALHOST: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The ID of queries whose answer only refreshes the cache.
pub(crate) const CACHE_ONLY_QUERY: QueryId = QueryId(u64::MAX);
