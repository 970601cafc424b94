//! Turns messages of call setups and records of ended calls into spans. Does no I/O.
//!
//! A call is one span, `call`, from its first INVITE to its end, which the record of the call tells. Its parts are
//! `challenge` (until the caller has repeated the INVITE with a password), `branch` (one for each target that was
//! tried), `ringing` and `talking`. They become spans as soon as they are over, so that only calls in setup need state.
//!
//! The id of a trace is a hash of the Call-ID: all servers on the way of a call contribute to one trace, and nothing
//! has to be kept until the end of a call. A caller that sends `traceparent` puts its call into its own trace.

use std::collections::{HashMap, VecDeque};

use strowger_calls::{CallRecord, Reason};
use strowger_foundation::{TagKey, Transport};
use strowger_message::lossy;

use crate::setup_message::{SetupKind, SetupMessage, TraceParent};
use crate::span::{Attribute, Span, SpanEvent, SpanKind};

/// Maximum number of calls that are known. A further one replaces the oldest, whose parts get no spans.
const MAX_CALLS: usize = 65_536;
/// Maximum number of branches of a call that are open at a time.
const MAX_BRANCHES: usize = 32;
/// Time after the last message of a setup until what is still open gets no answer: more than timer B (RFC 3261
/// §17.1.1.2).
const FORGOTTEN_AFTER_NS: u64 = 40_000_000_000;
/// Hashes Call-IDs alike on all servers.
const TRACES: TagKey = TagKey::new(*b"ids of call trac");

/// Real times of a record, in nanoseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordTimes {
    pub(crate) began_ns: u64,
    pub(crate) answered_ns: Option<u64>,
    pub(crate) ended_ns: u64,
}

/// The calls in setup, and the spans to send.
#[derive(Debug)]
pub(crate) struct CallSpans {
    /// Makes ids of spans.
    key: TagKey,
    /// Number of ids made.
    made: u64,
    /// Whether spans name users.
    has_users: bool,
    calls: HashMap<Box<[u8]>, Setup>,
    /// Call-IDs, the oldest first; some may be gone.
    order: VecDeque<Box<[u8]>>,
    forgotten: u64,
    spans: VecDeque<Span>,
}

/// A call from its INVITE until nothing of its setup is open and its record has come.
#[derive(Debug)]
struct Setup {
    began_ns: u64,
    parent: Option<TraceParent>,
    /// The latest INVITE of the caller.
    cseq: u32,
    invited_ns: u64,
    /// Status and time of a challenge that the caller has not answered.
    challenge: Option<(u16, u64)>,
    ringing_ns: Option<u64>,
    is_final: bool,
    is_ended: bool,
    branches: Vec<Branch>,
    last_ns: u64,
}

/// An INVITE sent to a target.
#[derive(Debug)]
struct Branch {
    id: Box<[u8]>,
    started_ns: u64,
    transport: Transport,
    peer: std::net::SocketAddr,
    is_ringing: bool,
    events: Vec<SpanEvent>,
    retransmissions: u32,
}

impl CallSpans {
    /// Creates the table. `seed` keeps the ids of this server apart from those of others.
    pub(crate) fn new(seed: [u8; 16], has_users: bool) -> Self {
        Self {
            key: TagKey::new(seed),
            made: 0,
            has_users,
            calls: HashMap::new(),
            order: VecDeque::new(),
            forgotten: 0,
            spans: VecDeque::new(),
        }
    }

    /// Returns the next span.
    pub(crate) fn poll_span(&mut self) -> Option<Span> {
        self.spans.pop_front()
    }

    /// Returns the number of calls forgotten for lack of room since the last call.
    pub(crate) fn poll_forgotten(&mut self) -> u64 {
        std::mem::take(&mut self.forgotten)
    }

    /// Handles a message.
    pub(crate) fn handle_message(&mut self, message: &SetupMessage<'_>) {
        if (message.kind, message.is_sent) == (SetupKind::Invite, false) {
            return self.on_invite(message);
        }
        let Some((call_id, mut setup)) = self.calls.remove_entry(message.call_id) else { return };
        setup.last_ns = message.at_ns;
        match (message.kind, message.is_sent) {
            (SetupKind::Invite, _) => setup.on_invite_sent(message),
            (SetupKind::Cancel, true) => {
                if let Some(branch) = setup.branches.iter_mut().find(|branch| *branch.id == *message.branch) {
                    branch.note(message.at_ns, "cancelled");
                }
            }
            (SetupKind::Cancel, false) => {}
            (SetupKind::Response(status), false) => self.on_branch_response(&mut setup, message, status),
            (SetupKind::Response(status), true) => self.on_response_sent(&mut setup, message, status),
        }
        self.calls.insert(call_id, setup);
    }

    /// Handles the record of a call that has ended.
    pub(crate) fn handle_record(&mut self, record: &CallRecord, times: RecordTimes) {
        let call_id = record.call_id();
        let setup = self.calls.get_mut(call_id);
        let (began_ns, parent) = match &setup {
            Some(setup) => (setup.began_ns.min(times.began_ns), setup.parent),
            None => (times.began_ns, None),
        };
        if let Some(setup) = setup {
            setup.is_ended = true;
            setup.last_ns = setup.last_ns.max(times.ended_ns);
        }
        if let Some(answered_ns) = times.answered_ns {
            let talking = self.part(call_id, parent, "talking", (answered_ns, times.ended_ns));
            self.spans.push_back(talking);
        }
        let mut span = self.part(call_id, parent, "call", (began_ns, times.ended_ns));
        span.span_id = self.call_span_id(call_id);
        span.parent_id = parent.map(|parent| parent.span_id);
        span.kind = SpanKind::Server;
        span.is_error = record.reason == Reason::Lost || record.status.is_some_and(is_error);
        span.attributes.push(("sip.call_id", lossy(call_id).into()));
        span.attributes.push(("sip.request.method", "INVITE".into()));
        span.attributes.push(("sip.call.end_reason", record.reason.as_str().into()));
        span.attributes.extend(record.status.map(|status| ("sip.response.status_code", status.into())));
        span.attributes.extend(transport_attributes(record.transport));
        span.attributes.push(("network.peer.address", record.source.ip().to_canonical().to_string().into()));
        span.attributes.push(("network.peer.port", record.source.port().into()));
        if span.is_error {
            let kind = record.status.filter(|status| is_error(*status)).map(|status| status.to_string());
            span.attributes.push(("error.type", kind.unwrap_or_else(|| record.reason.as_str().to_owned()).into()));
        }
        if self.has_users {
            span.attributes.push(("sip.from.uri", lossy(record.caller()).into()));
            span.attributes.push(("sip.request.uri", lossy(record.callee()).into()));
        }
        self.spans.push_back(span);
        self.close(call_id, times.ended_ns, false);
    }

    /// Ends what nobody will answer any more.
    pub(crate) fn handle_timeout(&mut self, now_ns: u64) {
        let is_due = |setup: &Setup| {
            let is_open = !setup.branches.is_empty() || setup.challenge.is_some() || setup.is_ended || !setup.is_final;
            is_open && now_ns.saturating_sub(setup.last_ns) > FORGOTTEN_AFTER_NS
        };
        let due: Vec<_> = self.calls.iter().filter(|(_, setup)| is_due(setup)).map(|(id, _)| id.clone()).collect();
        for call_id in due {
            self.close(&call_id, now_ns, true);
        }
        if self.order.len() > 2 * self.calls.len() + MAX_BRANCHES {
            self.order.retain(|call_id| self.calls.contains_key(call_id));
        }
    }

    /// Handles a new INVITE of the caller.
    fn on_invite(&mut self, message: &SetupMessage<'_>) {
        let Some(setup) = self.calls.get_mut(message.call_id) else {
            while self.calls.len() >= MAX_CALLS {
                let Some(oldest) = self.order.pop_front() else { break };
                self.forgotten += u64::from(self.calls.remove(&oldest).is_some());
            }
            self.order.push_back(message.call_id.into());
            self.calls.insert(message.call_id.into(), Setup::new(message));
            return;
        };
        setup.last_ns = message.at_ns;
        if message.cseq <= setup.cseq {
            return;
        }
        let challenge = setup.challenge.take().map(|(status, _)| (setup.parent, status, setup.invited_ns));
        (setup.cseq, setup.invited_ns) = (message.cseq, message.at_ns);
        (setup.is_final, setup.ringing_ns) = (false, None);
        if let Some((parent, status, invited_ns)) = challenge {
            self.push_challenge(message.call_id, parent, status, (invited_ns, message.at_ns));
        }
    }

    fn on_branch_response(&mut self, setup: &mut Setup, message: &SetupMessage<'_>, status: u16) {
        let Some(at) = setup.branches.iter().position(|branch| *branch.id == *message.branch) else { return };
        match status {
            ..=100 => {}
            101..=199 => {
                if let Some(branch) = setup.branches.get_mut(at).filter(|branch| !branch.is_ringing) {
                    branch.is_ringing = true;
                    branch.note(message.at_ns, "ringing");
                }
            }
            _ => {
                let branch = setup.branches.swap_remove(at);
                self.push_branch(message.call_id, setup.parent, branch, (message.at_ns, Some(status)));
            }
        }
    }

    fn on_response_sent(&mut self, setup: &mut Setup, message: &SetupMessage<'_>, status: u16) {
        if setup.is_final || message.cseq != setup.cseq {
            return;
        }
        match status {
            ..=100 => {}
            101..=199 => setup.ringing_ns = setup.ringing_ns.or(Some(message.at_ns)),
            401 | 407 => setup.challenge = setup.challenge.or(Some((status, message.at_ns))),
            _ => {
                setup.is_final = true;
                if let Some(since) = setup.ringing_ns {
                    let span = self.part(message.call_id, setup.parent, "ringing", (since, message.at_ns));
                    self.spans.push_back(span);
                }
            }
        }
    }

    /// Ends the parts of a setup that are still open, and forgets it if nothing more can come. At the end of a call,
    /// branches may still get their answers.
    fn close(&mut self, call_id: &[u8], at_ns: u64, is_over: bool) {
        let Some(setup) = self.calls.get_mut(call_id) else { return };
        let (parent, invited_ns) = (setup.parent, setup.invited_ns);
        let challenge = setup.challenge.take();
        let branches = if is_over { std::mem::take(&mut setup.branches) } else { Vec::new() };
        let last_ns = setup.last_ns.min(at_ns);
        // A call that goes on is known until its record, for its beginning and its parent.
        let goes_on = setup.is_final && !setup.is_ended;
        if (setup.is_ended && setup.branches.is_empty()) || (is_over && !goes_on) {
            self.calls.remove(call_id);
        }
        if let Some((status, sent_ns)) = challenge {
            self.push_challenge(call_id, parent, status, (invited_ns, sent_ns));
        }
        for branch in branches {
            self.push_branch(call_id, parent, branch, (last_ns, None));
        }
    }

    fn push_challenge(&mut self, call_id: &[u8], parent: Option<TraceParent>, status: u16, times: (u64, u64)) {
        let mut span = self.part(call_id, parent, "challenge", times);
        span.attributes.push(("sip.response.status_code", status.into()));
        self.spans.push_back(span);
    }

    fn push_branch(
        &mut self,
        call_id: &[u8],
        parent: Option<TraceParent>,
        branch: Branch,
        (end_ns, status): (u64, Option<u16>),
    ) {
        let mut span = self.part(call_id, parent, "branch", (branch.started_ns, end_ns));
        span.kind = SpanKind::Client;
        span.is_error = status.is_none_or(is_error);
        span.attributes.push(("sip.request.method", "INVITE".into()));
        span.attributes.extend(transport_attributes(branch.transport));
        span.attributes.push(("server.address", branch.peer.ip().to_canonical().to_string().into()));
        span.attributes.push(("server.port", branch.peer.port().into()));
        span.attributes.extend(status.map(|status| ("sip.response.status_code", status.into())));
        if branch.retransmissions > 0 {
            span.attributes.push(("sip.retransmissions", branch.retransmissions.into()));
        }
        if span.is_error {
            let kind = status.map_or_else(|| "timeout".to_owned(), |status| status.to_string());
            span.attributes.push(("error.type", kind.into()));
        }
        span.events = branch.events;
        self.spans.push_back(span);
    }

    /// Returns a span for a part of a call.
    fn part(
        &mut self,
        call_id: &[u8],
        parent: Option<TraceParent>,
        name: &'static str,
        (start_ns, end_ns): (u64, u64),
    ) -> Span {
        self.made = self.made.wrapping_add(1);
        Span {
            trace_id: parent.map_or_else(|| trace_id(call_id), |parent| parent.trace_id),
            span_id: span_id(self.key.hash64(&[b"part", &self.made.to_be_bytes()])),
            parent_id: Some(self.call_span_id(call_id)),
            name,
            kind: SpanKind::Internal,
            start_ns,
            end_ns: end_ns.max(start_ns),
            attributes: Vec::new(),
            events: Vec::new(),
            is_error: false,
        }
    }

    fn call_span_id(&self, call_id: &[u8]) -> [u8; 8] {
        span_id(self.key.hash64(&[b"call", call_id]))
    }
}

impl Setup {
    fn new(invite: &SetupMessage<'_>) -> Self {
        Self {
            began_ns: invite.at_ns,
            parent: invite.parent,
            cseq: invite.cseq,
            invited_ns: invite.at_ns,
            challenge: None,
            ringing_ns: None,
            is_final: false,
            is_ended: false,
            branches: Vec::new(),
            last_ns: invite.at_ns,
        }
    }

    fn on_invite_sent(&mut self, message: &SetupMessage<'_>) {
        if let Some(branch) = self.branches.iter_mut().find(|branch| *branch.id == *message.branch) {
            branch.retransmissions = branch.retransmissions.saturating_add(1);
        } else if self.branches.len() < MAX_BRANCHES {
            self.branches.push(Branch {
                id: message.branch.into(),
                started_ns: message.at_ns,
                transport: message.transport,
                peer: message.peer,
                is_ringing: false,
                events: Vec::new(),
                retransmissions: 0,
            });
        }
    }
}

impl Branch {
    /// Notes an event, each once.
    fn note(&mut self, at_ns: u64, name: &'static str) {
        if self.events.iter().all(|event| event.name != name) {
            self.events.push(SpanEvent { at_ns, name });
        }
    }
}

/// Whether a status is the fault of the server or of what is behind it, not the wish of a person.
const fn is_error(status: u16) -> bool {
    matches!(status, 408 | 500..=599)
}

fn transport_attributes(transport: Transport) -> [Attribute; 3] {
    let network = if transport == Transport::Udp { "udp" } else { "tcp" };
    [
        ("network.protocol.name", "sip".into()),
        ("network.transport", network.into()),
        ("sip.transport", transport.as_str().to_ascii_lowercase().into()),
    ]
}

fn trace_id(call_id: &[u8]) -> [u8; 16] {
    TRACES.hash128(&[call_id]).max(1).to_be_bytes()
}

fn span_id(hash: u64) -> [u8; 8] {
    hash.max(1).to_be_bytes()
}

#[cfg(test)]
mod tests;
