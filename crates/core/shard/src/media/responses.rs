//! Responses with session descriptions.

use smallvec::SmallVec;
use strowger_foundation::{Flow, Timestamp};
use strowger_media::{Command, Dialog, RequestKind, SdpRole};
use strowger_message::{Message, Status};
use strowger_proxy::branch::BranchOwner;

use super::body::sdp_of;
use super::parties::{may_carry_offer, profile, translated_source};
use super::requests::{branch_name, rewrite};
use super::{HeldKind, HeldMessage, user_of};
use crate::shard::Shard;

impl Shard {
    //= rfc3261#13.2.1
    /// Returns whether a response waits for an engine, is a retransmission of one that does, or was passed on with
    /// the result of an earlier one.
    #[cold]
    pub(crate) fn hold_response(
        &mut self,
        now: Timestamp,
        source: Flow,
        owner: BranchOwner,
        message: &Message<'_>,
    ) -> bool {
        let (Some(hook), Some(calls)) = (&mut self.media, &self.calls) else { return false };
        let has_description = message.status().is_some_and(|status| (101..300).contains(&status.code()))
            && may_carry_offer(message.method());
        let Some(sdp) = sdp_of(message).filter(|_| has_description) else { return false };
        let (Some(from_tag), Some(to_tag)) = (message.from().tag(), message.to().tag()) else { return false };
        let Some((key, call)) = hook.calls.find(calls.keys_of(message)) else { return false };
        let Some(origin) = self.proxy.origin_of_response(owner) else { return false };
        let transaction = origin.server.to_bits();
        let Some(exchange) = call.exchange(transaction) else { return false };
        let (role, cseq) = (exchange.role_of_response(), exchange.cseq);
        let (branches, is_to_browser) = (exchange.branches, exchange.is_from_browser);
        let (offerer, answerer) = match role {
            SdpRole::Answer => (from_tag, to_tag),
            SdpRole::Offer => (to_tag, from_tag),
        };
        if role == SdpRole::Answer && call.engine.is_none() {
            return false;
        }
        let is_from_browser = source.transport.is_web_socket();
        if role == SdpRole::Offer {
            call.record_response_offer(transaction, to_tag, is_from_browser);
        }
        let result_key = hook.calls.result_key(transaction, role, [offerer, answerer], sdp);
        let result = hook.calls.get_mut(key).and_then(|call| call.result(result_key)).map(<[u8]>::to_vec);
        if let Some(sdp) = result {
            self.release_response(now, message.bytes(), source, owner, &[sdp]);
            return true;
        }
        // The same description may be in a 183 and in the 200 after it, so the status tells them apart.
        let held_key = result_key.rotate_left(1) ^ u64::from(message.status().map_or(0, Status::code));
        if hook.is_held(held_key) {
            return true;
        }
        if !hook.has_room() {
            hook.bypassed = hook.bypassed.wrapping_add(1);
            return false;
        }
        let held = HeldMessage {
            bytes: message.bytes().to_vec(),
            source,
            call: key,
            transaction,
            kind: HeldKind::Response(owner),
            bodies: SmallVec::from_elem(None, 1),
            missing: 1,
            held_key,
            result_key,
            failure: None,
        };
        let token = hook.hold(held);
        let branch = (branches > 1).then(|| branch_name(cseq, usize::from(origin.number)));
        let to_tag = Some(answerer);
        let dialog = Dialog { call_id: message.call_id(), from_tag: offerer, to_tag, branch: branch.as_deref() };
        let profile = profile(is_from_browser, is_to_browser, translated_source(message, &source));
        let (kind, command) = match role {
            SdpRole::Answer => (RequestKind::Answer, Command::Answer(dialog, profile, sdp)),
            SdpRole::Offer => (RequestKind::Offer, Command::Offer(dialog, profile, sdp)),
        };
        hook.ask(now, key, (user_of(token, 0), kind), command);
        self.drive_media(now);
        true
    }

    pub(super) fn release_response(
        &mut self,
        now: Timestamp,
        bytes: &[u8],
        source: Flow,
        owner: BranchOwner,
        bodies: &[Vec<u8>],
    ) {
        let rewritten = bodies.first().and_then(|body| rewrite(bytes, body));
        if let Ok(message) = Message::parse(rewritten.as_deref().unwrap_or(bytes)) {
            self.pass_response(now, source, owner, &message);
        }
    }
}
