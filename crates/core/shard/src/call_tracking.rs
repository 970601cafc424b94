//! Tracking of calls from INVITE to BYE, for the operator and call records, for the counts of balanced targets, and
//! for routing in-dialog requests without a Route of ours.

use core::net::SocketAddr;

use strowger_balancer::CallGuard;
use strowger_calls::{ByeOutcome, CallKey, Calls, Reason};
use strowger_foundation::Timestamp;
use strowger_message::{Message, Method, Status};
use strowger_proxy::CallProgress;

use crate::request::Request;
use crate::shard::Shard;

impl Shard {
    /// Records a forwarded INVITE that begins a call. Returns the call's number, or 0 if it is not tracked.
    pub(crate) fn begin_call(&mut self, now: Timestamp, request: &Request<'_, '_>) -> u64 {
        match &mut self.calls {
            Some(calls) if request.message.method() == Method::Invite && request.message.to().tag().is_none() => {
                begin(calls, now, request)
            }
            _ => 0,
        }
    }

    /// Records an in-dialog request that is forwarded, with or without state. For a BYE that ends the call, returns
    /// the call guard of the target that still has to answer it.
    pub(crate) fn track_in_dialog(&mut self, now: Timestamp, message: &Message<'_>) -> Option<CallGuard> {
        let calls = self.calls.as_mut()?;
        message.to().tag()?;
        match message.method() {
            Method::Bye => {
                let ByeOutcome { by, call_guard: seat } = calls.handle_bye(now, message)?;
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
        let Some(calls) = &mut self.calls else { return };
        let message = request.message;
        if message.method() == Method::Invite && message.to().tag().is_none() {
            let key = begin(calls, now, request);
            if key != 0 {
                calls.handle_failure(now, CallKey::from_bits(key), status.code(), None);
            }
        }
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

    /// Records a response to the caller. Returns whether it answered the call.
    pub(crate) fn track_call(
        &mut self,
        now: Timestamp,
        progress: CallProgress,
        response: Option<(&Message<'_>, SocketAddr)>,
    ) -> bool {
        let Some(calls) = &mut self.calls else { return false };
        let CallProgress { call, status, from, call_guard: seat } = progress;
        let key = CallKey::from_bits(call);
        let mut has_answered = false;
        match response {
            _ if status.is_provisional() => calls.handle_ringing(now, key),
            Some((message, source)) if status.is_success() => {
                has_answered = calls.handle_answer(now, key, message, from.unwrap_or(source));
            }
            _ => calls.handle_failure(now, key, status.code(), from),
        }
        if let Some(seat) = seat {
            calls.assign_target(key, seat);
        }
        has_answered
    }
}

fn begin(calls: &mut Calls, now: Timestamp, request: &Request<'_, '_>) -> u64 {
    calls.begin(now, request.message, &request.source).map_or(0, CallKey::to_bits)
}
