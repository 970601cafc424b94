//! Rules for outgoing responses.

use strowger_foundation::{Flow, Timestamp};
use strowger_message::{HeaderName, Message, Method, Status};

use super::{FinalResponse, Invariants, Rule, SLACK, TIMEOUT, Upstream, Verdict, branch_of, key};
use crate::invariants::broken_unless;
use crate::ladder::summary;
use crate::server::SentMessage;

/// Prefix of every tag of a user agent, and of none of the server's.
const AGENT_TAG: &[u8] = b"phone-";

impl Invariants {
    pub(super) fn check_response(
        &mut self,
        now: Timestamp,
        flow: &Flow,
        message: &Message<'_>,
        status: Status,
    ) -> Verdict {
        let key = key(&branch_of(message.via()), message.method());
        let shown = || summary(message.bytes());
        let Some(upstream) = self.upstream.get_mut(&key) else {
            // On a stateless route, responses pass even after a restart.
            if self.ghosts.contains(&key) && self.step.request.is_none() {
                return Ok(());
            }
            return Err((Rule::ResponseAddressed, format!("a response to nobody: {}", shown())));
        };
        let addressed = upstream.is_answered_by(flow);
        broken_unless(addressed, Rule::ResponseAddressed, || format!("to {flow}: {}", shown()))?;
        upstream.check_origin(message, status)?;
        if !upstream.is_invite() {
            let allowed = status != Status::REQUEST_TIMEOUT && (!status.is_provisional() || status == Status::TRYING);
            broken_unless(allowed, Rule::NonInviteResponses, shown)?;
        }
        //= rfc3261#16.7:no-100
        if status == Status::TRYING && !upstream.stateless {
            let asked = self.step.request.as_ref().is_some_and(|(asked, _)| *asked == key);
            broken_unless(asked, Rule::ResponseUnchanged, || {
                format!("a 100 goes no further than its hop: {}", shown())
            })?;
        }
        if status.is_provisional() {
            let early = upstream.stateless || upstream.finals.is_empty();
            return broken_unless(early, Rule::OneFinalResponse, || format!("provisional after final: {}", shown()));
        }
        let to = message.head().first(HeaderName::To).unwrap_or(&[]).to_vec();
        if upstream.finals.iter().any(|one| is_the_same(&one.bytes, message.bytes())) {
            let silent = status.is_success() || !self.step.timeout || !flow.transport.is_reliable();
            return broken_unless(silent, Rule::Streams, || format!("repeated on a stream: {}", shown()));
        }
        upstream.check_untried(status)?;
        let another_success = |one: &FinalResponse| {
            upstream.is_invite() && one.status.is_success() && status.is_success() && one.to != to
        };
        let allowed = upstream.finals.iter().all(another_success);
        broken_unless(allowed, Rule::OneFinalResponse, || format!("a second final response: {}", shown()))?;
        if !status.is_success() {
            upstream.leave_last(now, &self.snapshot.proxy);
        }
        let bytes = message.bytes().to_vec();
        upstream.finals.push(FinalResponse { at: now, status, to, bytes });
        Ok(())
    }

    /// Checks that the 2xx received in this step was forwarded upstream.
    pub(super) fn check_success(&self, sent: &[SentMessage]) -> Verdict {
        let Some(expected) = &self.step.expected else { return Ok(()) };
        //= rfc3261#16.7:body
        //= rfc3261#16.7:keeps-fields
        let passed = sent.iter().any(|sent| sent.bytes == *expected);
        broken_unless(passed, Rule::EverySuccess, || format!("not passed up: {}", summary(expected)))
    }

    /// Checks that a retransmitted request gets the same response, if its transaction has one.
    pub(super) fn check_repeated(&self, now: Timestamp, sent: &[SentMessage]) -> Verdict {
        let Some((key, false)) = &self.step.request else { return Ok(()) };
        let Some(upstream) = self.upstream.get(key) else { return Ok(()) };
        let Some(answer) = upstream.finals.first() else { return Ok(()) };
        let silent =
            upstream.stateless || upstream.is_invite() && (answer.status.is_success() || upstream.acknowledged);
        if silent || now + SLACK >= answer.at + TIMEOUT {
            return Ok(());
        }
        let repeated = sent.iter().any(|sent| is_the_same(&sent.bytes, &answer.bytes));
        broken_unless(repeated, Rule::Repeated, || format!("not repeated: {}", summary(&answer.bytes)))
    }

    //= rfc3261#8.2.6.1:final-soon
    /// Checks that a new INVITE is answered at once, at least with 100, and so is every other request that is not
    /// forwarded.
    pub(super) fn check_begun(&self, now: Timestamp) -> Verdict {
        let Some((key, true)) = &self.step.request else { return Ok(()) };
        let Some(upstream) = self.upstream.get(key) else { return Ok(()) };
        let answered = upstream.finals.iter().any(|one| one.at == now);
        // Other rules check whether a REGISTER may wait.
        let registers = key.1 == Method::Register.as_bytes();
        let goes_on = registers || !upstream.branches.is_empty() || self.step.asked;
        broken_unless(answered || goes_on, Rule::InviteEnds, || {
            format!("neither answered nor forwarded: {}", summary(&upstream.request))
        })
    }
}

/// Returns whether two responses are equal except for the nonce of a challenge.
///
/// The server does not store nonces, so a request repeated some seconds later is challenged with another one (RFC
/// 3261 §26.3.2.4).
fn is_the_same(one: &[u8], other: &[u8]) -> bool {
    const NONCE: &[u8] = b"nonce=\"";
    let is_challenge =
        |bytes: &[u8]| [&b"SIP/2.0 401 "[..], b"SIP/2.0 407 "].iter().any(|line| bytes.starts_with(line));
    if one == other || !is_challenge(one) || !is_challenge(other) {
        return one == other;
    }
    let without_nonces = |bytes: &[u8]| {
        let (mut left, mut rest) = (Vec::new(), bytes);
        while let Some(at) = rest.windows(NONCE.len()).position(|part| part == NONCE) {
            let (before, nonce) = rest.split_at(at + NONCE.len());
            left.extend_from_slice(before);
            rest = nonce.iter().position(|byte| *byte == b'"').map_or(&[][..], |end| &nonce[end..]);
        }
        left.extend_from_slice(rest);
        left
    };
    without_nonces(one) == without_nonces(other)
}

impl Upstream {
    /// Returns whether `flow` leads to the source of the request: on its connection, or on another once that is
    /// closed.
    fn is_answered_by(&self, flow: &Flow) -> bool {
        let source = &self.source;
        let same = flow.transport == source.transport && flow.peer.ip() == source.peer.ip();
        let by_address = !source.transport.is_reliable() || self.stateless;
        let by_connection = source.transport.is_reliable() && flow.connection == source.connection && flow.reopen;
        same && (by_connection || by_address && flow.peer == source.peer)
    }

    /// Checks that a response is a branch's without the server's Via, or the server's own with a To tag.
    fn check_origin(&self, message: &Message<'_>, status: Status) -> Verdict {
        let forwarded = self.branches.iter().flat_map(|branch| &branch.responses).any(|one| one == message.bytes());
        if forwarded {
            return Ok(());
        }
        let Ok(request) = Message::parse(&self.request) else { return Ok(()) };
        let tag = message.to().tag();
        let tagged = match request.to().tag() {
            Some(asked) => tag == Some(asked),
            None if status == Status::TRYING => tag.is_none(),
            None => tag.is_some_and(|tag| !tag.starts_with(AGENT_TAG)),
        };
        let shown = || message.bytes().escape_ascii().to_string();
        broken_unless(tagged, Rule::ResponseUnchanged, || format!("neither a branch's nor ours: {}", shown()))?;
        let vias = |message: &Message<'_>| message.head().elements(HeaderName::Via).count();
        broken_unless(vias(message) == vias(&request), Rule::ResponseUnchanged, || format!("other Vias: {}", shown()))?;
        let copied = [HeaderName::From, HeaderName::CallId, HeaderName::CSeq];
        let same = copied.into_iter().all(|name| message.head().first(name) == request.head().first(name));
        broken_unless(same, Rule::ResponseUnchanged, || format!("of another request: {}", shown()))
    }
}
