//! Sending of BYEs and their results.

use std::sync::Arc;

use smallvec::SmallVec;
use strowger_calls::{CallKey, State};
use strowger_foundation::Timestamp;
use strowger_locate::QueryId;
use strowger_message::{Message, Status, lossy};
use strowger_proxy::forward::{BranchEdits, Edits, write_request};
use strowger_proxy::routing::RouteSet;
use strowger_proxy::{Changes, NextHop, NextHopAddress, Target};
use strowger_transaction::Kind;
use strowger_trunk::{ChallengedRequest, answer_challenge};

use crate::boundary::Event;
use crate::ending::{BYE_USERS, Bye, CSEQ, MAX_BYES, MAX_REQUESTS, Party, QUERIES, bye};
use crate::router::RouteDecision;
use crate::shard::Shard;

impl Shard {
    /// Ends the calls with this Call-ID.
    pub(crate) fn end_calls(&mut self, now: Timestamp, call_id: &[u8]) {
        let keys = self.calls.as_ref().map(|calls| calls.find_by_call_id(call_id)).unwrap_or_default();
        for key in keys {
            match self.calls.as_mut().and_then(|calls| calls.begin_ending(key)) {
                Some(State::Trying | State::Ringing) => self.cancel_for_operator(now, key),
                Some(State::Challenged) => self.end_tracking(now, key),
                Some(State::Answered) if !self.byes.has_any_of(key) => self.send_byes(now, key),
                Some(State::Answered) | None => {}
            }
        }
    }

    /// Cancels the INVITE of a call; the caller gets a final response when its branches have ended.
    fn cancel_for_operator(&mut self, now: Timestamp, key: CallKey) {
        let held = self.media.as_ref().and_then(|hook| hook.held_invite(key.to_bits()));
        if let Some(server) = held
            && self.cancel_held(now, server)
        {
            return;
        }
        self.proxy.cancel_call(now, key.to_bits());
    }

    //= rfc3261#15.1.1
    /// Sends a BYE to both parties of an answered call.
    pub(crate) fn send_byes(&mut self, now: Timestamp, key: CallKey) {
        let snapshot = Arc::clone(&self.snapshot);
        let Some((dialog, view)) = self.calls.as_ref().and_then(|calls| calls.dialog_of(key)) else { return };
        let call_id: Box<[u8]> = dialog.call_id.into();
        let parties = [Party::Caller, Party::Callee];
        let byes = parties.map(|party| bye(&snapshot, key, &dialog, &view, party).ok_or(party));
        let has_room = self.byes.len().saturating_add(parties.len()) <= MAX_BYES;
        let mut slots: SmallVec<[usize; 2]> = SmallVec::new();
        for bye in byes {
            match bye {
                Ok(bye) if has_room => slots.push(self.byes.list.insert(bye)),
                Ok(Bye { party, .. }) | Err(party) => self.report_not_ended(&call_id, party, None),
            }
        }
        if slots.is_empty() {
            self.end_tracking(now, key);
        }
        slots.into_iter().for_each(|slot| self.send_bye(now, slot));
    }

    /// Sends the request of a BYE to its next hop.
    fn send_bye(&mut self, now: Timestamp, slot: usize) {
        let Some(sent) = self.try_send_bye(now, slot) else { return self.conclude_bye(now, slot, None) };
        if let (Some(bye), true) = (self.byes.list.get_mut(slot), sent) {
            bye.requests = bye.requests.saturating_add(1);
        }
    }

    /// Returns whether a request was sent, or only its next hop's name asked for; `None` if there is no way.
    fn try_send_bye(&mut self, now: Timestamp, slot: usize) -> Option<bool> {
        let bye = self.byes.list.get(slot).filter(|bye| bye.requests < MAX_REQUESTS)?;
        let (source, hop, is_resolved) = (bye.source, bye.hop, bye.is_resolved);
        let (credentials, mut text) = (bye.credentials.clone(), bye.head.clone());
        let cseq = CSEQ.saturating_add(bye.requests).to_string();
        [cseq.as_bytes(), b" BYE\r\nContent-Length: 0\r\n\r\n"].iter().for_each(|part| text.extend_from_slice(part));
        let snapshot = Arc::clone(&self.snapshot);
        let message = Message::parse(&text).ok()?;
        let (mut routes, mut targets) = (RouteSet::default(), Vec::new());
        let request = self.examine(source, &snapshot, &message, None, &mut routes).ok()?;
        let RouteDecision::Forward(onward) = self.route(now, &request, &mut targets) else { return None };
        let target = targets.into_iter().next()?;
        let place = target.next_hops.get(hop)?;
        let flow = match &place.address {
            NextHopAddress::Flow(flow) => *flow,
            NextHopAddress::Name { question, .. } if !is_resolved => {
                let query = QueryId(QUERIES | u64::try_from(slot).ok()?);
                self.questions.push_back((query, question.as_ref().clone()));
                return Some(false);
            }
            NextHopAddress::Name { .. } => return None,
        };
        let egress = snapshot.listeners.get(flow.listener)?;
        let user = BYE_USERS.saturating_add(u32::try_from(slot).ok()?);
        let client = self.proxy.transactions().reserve_client().ok()?;
        let branch = self.proxy.own_branch(client);
        let edits = Edits {
            source,
            routes: &routes,
            strict: onward.is_by_own_route && routes.is_strict(),
            record_route: false,
            strip_identity: false,
            strip_credentials: None,
        };
        // Our own Via takes the place of the one that the message was parsed with.
        let changes = Changes { add: Vec::new(), remove: vec![b"via"[..].into()], body: None };
        let hop = BranchEdits {
            request_uri: &place.request_uri,
            egress,
            branch: &branch,
            record_route: None,
            max_breadth: None,
            path: place.path.as_deref(),
            own_path: None,
            changes: Some(&changes),
            credentials: &credentials,
            overload_offer: None,
        };
        let mut out = self.proxy.transactions().pool().take(text.len().saturating_add(400));
        write_request(&mut out, &message, &edits, &hop);
        self.proxy.transactions().start_client(now, client, Kind::NonInvite, flow, out, user);
        self.note_way(slot, &target, place);
        Some(true)
    }

    fn note_way(&mut self, slot: usize, target: &Target, place: &NextHop) {
        if let Some(bye) = self.byes.list.get_mut(slot) {
            (bye.trunk, bye.request_uri) = (target.trunk, place.request_uri.clone());
        }
    }

    /// Handles the answer to a DNS query; returns whether a BYE has asked. The name is in the cache now.
    pub(crate) fn resolve_bye(&mut self, now: Timestamp, query: QueryId) -> bool {
        if query.0 & QUERIES == 0 {
            return false;
        }
        let slot = usize::try_from(query.0 & !QUERIES).unwrap_or(usize::MAX);
        if let Some(bye) = self.byes.list.get_mut(slot)
            && !core::mem::replace(&mut bye.is_resolved, true)
        {
            self.send_bye(now, slot);
        }
        true
    }

    /// Handles the response to a BYE.
    pub(crate) fn handle_bye_response(&mut self, now: Timestamp, user: u32, message: &Message<'_>, status: Status) {
        let slot = slot_of(user);
        match status.code() {
            100..=199 => {}
            //= rfc3263#4.3
            503 => self.handle_bye_failure(now, user),
            401 | 407 if self.answer_challenge_of_bye(slot, message) => self.send_bye(now, slot),
            _ => self.conclude_bye(now, slot, Some(status)),
        }
    }

    /// Handles a BYE that its next hop did not answer.
    pub(crate) fn handle_bye_failure(&mut self, now: Timestamp, user: u32) {
        let slot = slot_of(user);
        if let Some(bye) = self.byes.list.get_mut(slot) {
            bye.hop = bye.hop.saturating_add(1);
            bye.credentials.clear();
        }
        self.send_bye(now, slot);
    }

    /// Prepares the answer to a trunk's challenge, once; returns whether there is one.
    fn answer_challenge_of_bye(&mut self, slot: usize, response: &Message<'_>) -> bool {
        let Some(bye) = self.byes.list.get_mut(slot).filter(|bye| bye.credentials.is_empty()) else { return false };
        let Some(trunk) = self.snapshot.trunks.iter().find(|known| Some(known.id()) == bye.trunk) else { return false };
        let branch = response.via().branch.unwrap_or(&[]);
        let cnonce = self.proxy.tag_key().hash64(&[b"cnonce", branch, response.call_id()]);
        let challenged = ChallengedRequest { method: b"BYE", uri: &bye.request_uri, body: b"", cnonce, attempts: 0 };
        let mut lines = Vec::new();
        let is_answered = answer_challenge(trunk, response, &challenged, &mut lines);
        bye.credentials = lines;
        is_answered
    }

    /// Ends a BYE with its final response, or none; and with the second one the call.
    fn conclude_bye(&mut self, now: Timestamp, slot: usize, status: Option<Status>) {
        let Some(bye) = self.byes.list.try_remove(slot) else { return };
        //= rfc3261#15.1.1
        // Whoever does not know the dialog, or has given it up, has no call.
        if !status.is_some_and(|status| status.is_success() || matches!(status.code(), 408 | 481)) {
            self.report_not_ended(&bye.call_id, bye.party, status);
        }
        if !self.byes.has_any_of(bye.call) {
            self.end_tracking(now, bye.call);
        }
    }

    fn end_tracking(&mut self, now: Timestamp, key: CallKey) {
        if let Some(calls) = &mut self.calls {
            calls.end_by_operator(now, key);
        }
    }

    fn report_not_ended(&mut self, call_id: &[u8], party: Party, status: Option<Status>) {
        self.report(Event::CallNotEnded { call_id: lossy(call_id), party: party.as_str(), status });
    }
}

fn slot_of(user: u32) -> usize {
    usize::try_from(user.saturating_sub(BYE_USERS)).unwrap_or(usize::MAX)
}
