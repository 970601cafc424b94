//! Sessions that a server defers with 503 and Retry-After (RFC 3261 §21.5.4), and the description of a session that
//! has ended.

use std::time::Duration;

use strowger_message::{Head, HeaderName, StartLine, parse_contacts};

use super::answer::IncomingMessage;
use crate::script::SessionResult;
use crate::session::{NEVER, NO_INVITE, Session, TRYING_LATER};

use super::{Driver, LastMessage, StepContext};

/// Upper bound of Retry-After; longer times are cut to this.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);

/// A session that this end began and that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedSession {
    /// Script.
    pub script: u16,
    /// User that began it.
    pub caller: u32,
    /// Result.
    pub ending: SessionResult,
    /// Retry-After of the last response.
    pub retry_after: Option<Duration>,
    /// How long the last response registers the caller: the interval of the contact at this address, else that of the
    /// response.
    pub expires: Option<Duration>,
    /// Last CSeq used.
    pub cseq: u32,
    /// Requests sent, with retransmissions.
    pub requests: u16,
}

impl EndedSession {
    pub(super) fn of(session: &Session, ending: SessionResult, last: Option<LastMessage<'_>>, own: &[u8]) -> Self {
        let response = last.map(|last| last.head).filter(|head| matches!(head.start(), StartLine::Response { .. }));
        Self {
            script: session.script,
            caller: session.caller,
            ending,
            retry_after: response.filter(|_| ending != SessionResult::Carried).and_then(retry_after),
            expires: response.filter(|_| ending == SessionResult::Carried).and_then(|head| expires(head, own)),
            cseq: session.cseq,
            requests: session.requests,
        }
    }
}

/// Returns the time in a Retry-After.
fn retry_after(head: &Head<'_>) -> Option<Duration> {
    leading_seconds(head.first(HeaderName::RetryAfter)?).map(|time| time.min(MAX_RETRY_AFTER))
}

/// Returns how long a 2xx to REGISTER registers the contact whose URI contains `own`.
//= rfc3261#10.3
// Each contact has its own interval in the response.
fn expires(head: &Head<'_>, own: &[u8]) -> Option<Duration> {
    let is_own = |uri: &[u8]| !own.is_empty() && uri.windows(own.len()).any(|part| part == own);
    let of_contact = head.all(HeaderName::Contact).filter_map(parse_contacts).flatten();
    let of_contact = of_contact
        .filter(|contact| is_own(contact.uri))
        .find_map(|contact| leading_seconds(contact.params.value("expires")?));
    of_contact.or_else(|| leading_seconds(head.first(HeaderName::Expires)?))
}

fn leading_seconds(value: &[u8]) -> Option<Duration> {
    let value = value.trim_ascii_start();
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    strowger_message::parse_decimal(value.get(..digits)?).map(Duration::from_secs)
}

impl Driver {
    /// Suspends a session refused with 503 until its Retry-After is over; returns false if the session may not retry
    /// and has failed.
    pub(super) fn schedule_retry(
        &mut self,
        slot: u32,
        status: u16,
        got: &IncomingMessage<'_>,
        walk: &StepContext<'_, '_>,
    ) -> bool {
        let retries = self.setup.retries;
        let Some(session) = self.sessions.get_mut(slot) else { return false };
        // A request inside a dialog is no new work, and its script cannot start over.
        let is_first = session.accepted_cseq == NO_INVITE && session.dialog.is_empty();
        if status != 503 || !session.flags.is_ours || session.tries >= retries || !is_first {
            return false;
        }
        //= rfc3261#21.5.4
        // Without Retry-After it is treated as a 500.
        let Some(wait) = retry_after(got.head) else { return false };
        session.tries = session.tries.saturating_add(1);
        session.step = TRYING_LATER;
        session.deadline = walk.now + wait;
        (session.resend_at, session.give_up_at) = (NEVER, NEVER);
        if let Some(extra) = &mut session.extra {
            extra.challenges.iter_mut().for_each(|challenged| challenged.times = 0);
        }
        if session.flags.epoch == self.epoch && session.flags.has_called {
            self.meter.metrics.calls.tried_again += 1;
        }
        self.arm(slot);
        true
    }
}
