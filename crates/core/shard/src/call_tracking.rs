//! Tracking of calls from INVITE to BYE, for the operator and call records, for the counts of balanced targets, and
//! for routing in-dialog requests without a Route of ours.

use std::sync::Arc;

use strowger_balancer::CallGuard;
use strowger_calls::{ByeOutcome, CallKey, Calls, Reason};
use strowger_foundation::{Flow, HostId, Timestamp};
use strowger_message::{Message, Method, Status};
use strowger_proxy::{CallDestination, CallProgress};
use strowger_trunk::Trunk;

use crate::request::Request;
use crate::setup_times::SetupOutcome;
use crate::shard::Shard;

impl Shard {
    /// Records a forwarded INVITE that begins a call. Returns the call's number, or 0 if it is not tracked.
    pub(crate) fn begin_call(&mut self, now: Timestamp, request: &Request<'_, '_>) -> u64 {
        match &mut self.calls {
            Some(calls) if request.message.method() == Method::Invite && request.message.to().tag().is_none() => {
                let key = begin(calls, now, request);
                if key != 0 && !request.snapshot.trunks.is_empty() {
                    self.note_source_trunk(CallKey::from_bits(key), request);
                }
                key
            }
            _ => 0,
        }
    }

    /// Records the trunk that a call comes from.
    // Never inlined: most servers have no trunks.
    #[inline(never)]
    fn note_source_trunk(&mut self, key: CallKey, request: &Request<'_, '_>) {
        let name = match request.source.host {
            HostId::NONE => None,
            host => self.names.hosts().name(host),
        };
        let is_it = |trunk: &&Arc<Trunk>| {
            let is_proven = |name: &Arc<str>| trunk.domains.iter().any(|domain| domain.eq_ignore_ascii_case(name));
            trunk.is_from(request.source.peer.ip()) || name.as_ref().is_some_and(is_proven)
        };
        if let Some(trunk) = request.snapshot.trunks.iter().find(is_it)
            && let Some(calls) = &mut self.calls
        {
            calls.set_source_trunk(key, &trunk.name);
        }
    }

    /// Records an in-dialog request that is forwarded, with or without state. For a BYE that ends the call, returns
    /// the call guard of the target that still has to answer it.
    pub(crate) fn track_in_dialog(&mut self, now: Timestamp, message: &Message<'_>) -> Option<CallGuard> {
        let calls = self.calls.as_mut()?;
        message.to().tag()?;
        match message.method() {
            Method::Bye => {
                let Some(ByeOutcome { by, call_guard: seat }) = calls.handle_bye(now, message) else {
                    self.end_untracked_media(now, message);
                    return None;
                };
                // A target that hangs up has nothing left to do for the call.
                seat.filter(|_| by == Reason::CallerHungUp)
            }
            Method::Invite | Method::Update => {
                calls.handle_refresh(now, message);
                None
            }
            _ => None,
        }
    }

    /// Records an INVITE that the server itself refuses.
    pub(crate) fn refuse_call(&mut self, now: Timestamp, request: &Request<'_, '_>, status: Status) {
        let key = self.begin_call(now, request);
        self.fail_tracked(now, key, status);
    }

    /// Records a success response within a dialog, which gives the session's lifetime (RFC 4028 §7).
    pub(crate) fn refresh_call(&mut self, now: Timestamp, response: &Message<'_>) {
        if let Some(calls) = &mut self.calls
            && matches!(response.method(), Method::Invite | Method::Update)
        {
            calls.handle_refresh(now, response);
        }
    }

    /// Records a CANCEL that matched its INVITE.
    pub(crate) fn cancel_call(&mut self, now: Timestamp, message: &Message<'_>) {
        if let Some(calls) = &mut self.calls {
            let key = calls.key_of(message);
            calls.handle_cancel(now, key);
        }
    }

    /// Records that the server itself has answered a tracked INVITE with this final status.
    pub(crate) fn fail_tracked(&mut self, now: Timestamp, call: u64, status: Status) {
        if let Some(calls) = self.calls.as_mut().filter(|_| call != 0) {
            calls.handle_failure(now, CallKey::from_bits(call), status.code(), None);
            if self.is_handed_over {
                self.transfer_call(CallKey::from_bits(call));
            }
        }
    }

    /// Records a response to the caller. Returns whether it answered the call.
    pub(crate) fn track_call(
        &mut self,
        now: Timestamp,
        progress: CallProgress,
        response: Option<(&Message<'_>, &Flow)>,
    ) -> bool {
        let Some(calls) = &mut self.calls else { return false };
        let CallProgress { call, status, from, call_guard: seat, sent_as, destination } = progress;
        let key = CallKey::from_bits(call);
        let mut has_answered = false;
        if let Some(sent_as) = sent_as {
            let trunk = self.snapshot.trunks.iter().find(|trunk| Some(trunk.id()) == sent_as.trunk);
            calls.set_target_trunk(key, trunk.map(|trunk| &*trunk.name), &sent_as.request_uri);
        }
        let recorded = match response {
            _ if status.is_provisional() => calls.handle_ringing(now, key).map(|began| (began, SetupOutcome::Ringing)),
            Some((message, source)) if status.is_success() => {
                // Where it came from: the branch's flow may name the address that a connection is opened to.
                has_answered = calls.handle_answer(now, key, message, source);
                let is_named = has_answered && destination != CallDestination::default();
                let began = if is_named { calls.began(key) } else { None };
                began.map(|began| (began, SetupOutcome::Answered))
            }
            _ => {
                let ended = calls.handle_failure(now, key, status.code(), from);
                ended.map(|(began, reason)| (began, SetupOutcome::Ended(reason)))
            }
        };
        if let Some((began, outcome)) = recorded
            && destination != CallDestination::default()
        {
            self.setup_times.record(destination, began, now, outcome);
        }
        if let Some(seat) = seat {
            calls.assign_target(key, seat);
        }
        // The answer has crossed the operator's command.
        if has_answered && calls.is_ending(key) {
            self.send_byes(now, key);
        }
        if self.is_handed_over {
            self.transfer_call(key);
        }
        has_answered
    }
}

fn begin(calls: &mut Calls, now: Timestamp, request: &Request<'_, '_>) -> u64 {
    calls.begin(now, request.message, &request.source).map_or(0, CallKey::to_bits)
}
