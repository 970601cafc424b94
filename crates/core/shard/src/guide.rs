//! What the proxy asks while it deals with a response: where a stateless one goes, what a redirection means, and what
//! answers a trunk's challenge.

use core::cell::Cell;
use core::net::SocketAddr;
use std::collections::VecDeque;

use strowger_foundation::{Flow, KeyRing, TagKey, Timestamp};
use strowger_locate::{Names, Outages, QueryId, Question as Name};
use strowger_message::{Message, Uri};
use strowger_proxy::{Guide, Target};
use strowger_registrar::Locations;
use strowger_trunk::{Challenged, answer_challenge};

use crate::places::{Choice, is_one_host};
use crate::shard::FOR_NOBODY;
use crate::snapshot::Snapshot;
use crate::way::Question;

/// The shard, but for its proxy.
pub(crate) struct ShardGuide<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) locations: &'a Locations,
    pub(crate) names: &'a Names,
    pub(crate) outages: &'a Outages,
    /// That of flow tokens and GRUUs.
    pub(crate) ring: KeyRing,
    pub(crate) tag_key: TagKey,
    /// Where the response came from.
    pub(crate) source: Flow,
    pub(crate) questions: &'a mut VecDeque<(QueryId, Name)>,
}

impl Guide for ShardGuide<'_> {
    fn upstream(&mut self, response: &Message<'_>) -> Option<Flow> {
        let via = response.next_via()?;
        let transport = via.transport()?;
        let ip = via.response_ip().filter(|ip| is_one_host(*ip))?;
        let peer = SocketAddr::new(ip, via.response_port());
        let listener = self.snapshot.listeners.towards(transport, peer, self.source.listener)?;
        Some(Flow::new(listener, transport, peer))
    }

    fn follow(
        &mut self,
        now: Timestamp,
        contact: &[u8],
        request: &Message<'_>,
        source: &Flow,
        found: &mut Vec<Target>,
    ) {
        let Some(uri) = Uri::parse(contact) else { return };
        // Headers of a contact must not become headers of a request, nor part of its Request-URI.
        let request_uri = uri.sip().map_or(contact, |sip| sip.without_headers());
        let Some(uri) = Uri::parse(request_uri) else { return };
        let refresh = Cell::new(None);
        let question = Question {
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
            proven: false,
            outside: None,
            trunk: None,
            target: None,
            is_tentative: false,
            token: None,
            // A redirection leads nobody where he could not have gone by himself.
            source,
            claimed: None,
            asked: None,
            exit: self.source.listener,
            choice: Choice::OfCall(&self.tag_key, request.call_id()),
            refresh: &refresh,
        };
        question.follow(&uri, found);
        if let Some(name) = refresh.take() {
            self.questions.push_back((FOR_NOBODY, *name));
        }
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
        let challenged =
            Challenged { method: method.as_bytes(), uri: request_uri, body: request.body(), cnonce, answered: 0 };
        answer_challenge(trunk, response, &challenged, out)
    }
}
