//! Planted bugs: a wrapper around the server that mutates its inputs or outputs, to prove that the rules detect it.
//!
//! The production core has no switch for this.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use strowger_foundation::{Flow, Timestamp};
use strowger_message::{HeaderName, Message, Method, ResponseBuilder, Status, Via};
use strowger_proxy::Stateless;
use strowger_registrar::Record;
use strowger_shard::{Action, Snapshot};

use crate::server::{DnsQuery, PendingRecord, SentMessage, Server, Step};

/// Planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Forwards the ACK to a failure downstream.
    ForwardsFailureAck,
    /// Drops the ACK to a success.
    SwallowsSuccessAck,
    /// Removes the To tag from the server's own responses.
    DropsToTag,
    /// Sends a second failure after the first.
    SecondFinal,
    /// Drops a retransmitted 2xx.
    DropsRepeatedSuccess,
    /// Forwards only the first 2xx of a fork.
    DropsSecondSuccess,
    /// Forwards a retransmitted request again, in another branch.
    ForwardsAgain,
    /// Changes a byte of the body.
    EditsBody,
    /// Swaps unknown header fields.
    ReordersHeaders,
    /// Drops CANCEL requests.
    ForgetsCancel,
    /// Does not serve timers.
    NeverTimesOut,
    /// Does not serve timers that are due.
    IgnoresTimeouts,
    /// Stops serving timers after a minute.
    StopsTimingOut,
    /// Answers a MESSAGE with 408.
    Answers408,
    /// Keeps bindings after their expiry.
    KeepsExpired,
    /// Accepts a REGISTER with a lower CSeq.
    AcceptsLowerCSeq,
    /// Does not decrement Max-Forwards.
    KeepsMaxForwards,
    /// Does not remove the server's Via from a response.
    KeepsVia,
    /// Does not repeat the response to a retransmitted request.
    ForgetsReplay,
    /// Sends responses to the sent-by in spite of `rport`.
    IgnoresRport,
    /// Calls contacts of lower preference while the others still ring.
    HurriesSteps,
    /// Calls contacts of lower preference too late.
    DelaysSteps,
    /// Does not cancel a target that responds after the server has moved on.
    LeavesBothRinging,
    /// Keeps bindings whose connection is closed.
    KeepsClosed,
    /// Tries only the first target of a route.
    TriesOneTarget,
    /// Waits for a silent target.
    WaitsForSilent,
    /// Tries a failed target first the next time.
    ForgetsOutages,
    /// Sends a response to its peer on any connection.
    AnswersAtAddress,
    /// Retransmits on streams.
    RepeatsOnStreams,
    /// Ignores connections that could not be opened.
    IgnoresUnconnected,
    /// Sends a request that was cancelled during its DNS lookup.
    SendsCancelled,
    /// Does not sync the journal.
    SkipsSync,
    /// Answers a REGISTER before its record is in the journal.
    RepliesEarly,
    /// Accepts a torn group in spite of its checksums.
    AcceptsTornTail,
    /// Does not write the removal of an address's last binding to the journal.
    ForgetsRemovals,
    /// Drops the address's other bindings when a checkpoint merges a refresh.
    DropsOthers,
    /// Shows bindings before they are stored.
    ShowsStaged,
    /// Restores bindings that expired while the server was down.
    RestoresExpired,
    /// Uses the wall clock as store time.
    TrustsWallClock,
    /// Ignores the failure of a sync.
    TrustsFailedSync,
    /// Removes segments before the checkpoint that contains them is durable.
    RemovesSegmentsEarly,
}

/// Returns the configuration as a server with `bug` sees it.
#[must_use]
pub fn configured(snapshot: &Arc<Snapshot>, bug: Option<Bug>) -> Arc<Snapshot> {
    let mut configured = Snapshot::clone(snapshot);
    let proxy = &mut configured.proxy;
    match bug {
        Some(Bug::HurriesSteps) => proxy.fork_timeout /= 2,
        Some(Bug::DelaysSteps) => proxy.fork_timeout += Duration::from_secs(5),
        Some(Bug::WaitsForSilent) => proxy.failover_timeout += Duration::from_secs(5),
        Some(Bug::ForgetsOutages) => proxy.avoid_for = Duration::ZERO,
        Some(Bug::TriesOneTarget) => {
            for route in &mut configured.routes {
                if let Action::Proxy { targets, stateless, .. } = &mut route.action {
                    if targets.len() > 1 && *stateless == Stateless::WhenPossible {
                        *stateless = Stateless::Never;
                    }
                    targets.sort_by_key(|target| target.priority);
                    targets.truncate(1);
                }
            }
        }
        _ => return Arc::clone(snapshot),
    }
    Arc::new(configured)
}

/// Returns the store time as a process with `bug` sees it. With one bug, expiries long past appear to be in the
/// future.
#[must_use]
pub fn believed(store_ns: u64, bug: Option<Bug>) -> u64 {
    let late = if bug == Some(Bug::RestoresExpired) { 7_200_000_000_000 } else { 0 };
    store_ns.saturating_sub(late)
}

/// Server with an optional bug.
#[derive(Debug)]
pub struct Mutant {
    server: Server,
    address: SocketAddr,
    bug: Option<Bug>,
    /// Messages received and sent so far.
    seen: BTreeSet<Vec<u8>>,
    /// Forwarded requests, by the branch of the upstream Via.
    forwarded: BTreeMap<Vec<u8>, SentMessage>,
}

impl Mutant {
    /// Wraps the server at `address`, with an optional bug.
    #[must_use]
    pub fn new(server: Server, address: SocketAddr, bug: Option<Bug>) -> Self {
        Self { server, address, bug, seen: BTreeSet::new(), forwarded: BTreeMap::new() }
    }

    /// Handles one step.
    pub fn handle(&mut self, step: &Step) -> Vec<SentMessage> {
        let Some(bug) = self.bug else { return self.server.handle(step) };
        let Step::Message { at, flow, bytes } = step else {
            if is_ignored(bug, step) {
                return Vec::new();
            }
            let sent = self.server.handle(step);
            return sent.into_iter().filter_map(|sent| self.mutate(bug, sent)).collect();
        };
        let bytes = mutate_input(bug, bytes);
        let repeated = !self.seen.insert(bytes.clone());
        if let Some(sent) = self.instead(bug, flow, &bytes) {
            return sent;
        }
        let sent = self.server.handle(&Step::Message { at: *at, flow: *flow, bytes: bytes.clone() });
        let mut sent: Vec<_> = sent.into_iter().filter_map(|sent| self.mutate(bug, sent)).collect();
        if bug == Bug::RepeatsOnStreams {
            let again: Vec<_> = sent.iter().filter(|sent| sent.flow.transport.is_reliable()).cloned().collect();
            sent.extend(again);
        }
        if let Ok(message) = Message::parse(&bytes) {
            self.mutate_output(bug, *flow, &message, repeated, &mut sent);
        }
        sent
    }

    /// Takes the DNS queries of the last step; see [`Server::take_queries`].
    pub fn take_queries(&mut self) -> Vec<DnsQuery> {
        self.server.take_queries()
    }

    /// Takes the records of the last step; see [`Server::take_records`].
    pub fn take_records(&mut self, now: Timestamp) -> Vec<PendingRecord> {
        let records = self.server.take_records();
        if self.bug == Some(Bug::ShowsStaged) {
            let all = records.iter().filter_map(|kept| Record::parse(&kept.record).ok());
            all.for_each(|record| {
                self.server.locations().put(self.server.local(now), &record, None);
            });
        }
        records
    }

    /// Returns the next timeout; see [`Server::next_timeout`].
    #[must_use]
    pub fn next_timeout(&self) -> Option<(Timestamp, usize)> {
        let next = self.server.next_timeout();
        match self.bug {
            Some(Bug::NeverTimesOut) => None,
            Some(Bug::StopsTimingOut) => next.filter(|(at, _)| *at < Timestamp::from_millis(60_000)),
            _ => next,
        }
    }

    /// Returns the wrapped server.
    #[must_use]
    pub const fn inner(&self) -> &Server {
        &self.server
    }

    /// Returns the messages to send instead of the server's own: the responses to a CANCEL and to its pending INVITE.
    fn instead(&self, bug: Bug, flow: &Flow, bytes: &[u8]) -> Option<Vec<SentMessage>> {
        let cancel = Message::parse(bytes).ok()?;
        let branch = cancel.via().branch?;
        let cancels = cancel.status().is_none() && cancel.method() == Method::Cancel;
        if bug != Bug::SendsCancelled || !cancels || self.forwarded.contains_key(branch) {
            return None;
        }
        let came = self.seen.iter().filter_map(|bytes| Message::parse(bytes).ok());
        let invites = |one: &Message<'_>| one.method() == Method::Invite && one.status().is_none();
        let invite = came.filter(invites).find(|one| one.via().branch == Some(branch))?;
        let answer = |request: &Message<'_>, status: Status| {
            let mut bytes = Vec::new();
            ResponseBuilder::begin(&mut bytes, request.head(), status, status.reason(), b"planted", None).finish();
            SentMessage { shard: 0, flow: Flow { reopen: flow.connection.is_some(), ..*flow }, bytes }
        };
        Some(vec![answer(&cancel, Status::OK), answer(&invite, Status::REQUEST_TERMINATED)])
    }

    /// Mutates one outgoing message.
    fn mutate(&mut self, bug: Bug, mut sent: SentMessage) -> Option<SentMessage> {
        let bytes = sent.bytes.clone();
        let Ok(message) = Message::parse(&bytes) else { return Some(sent) };
        let forwarded = message.head().elements(HeaderName::Via).nth(1);
        match (message.status(), bug) {
            (None, Bug::ForgetsCancel) if message.method() == Method::Cancel => return None,
            (None, Bug::SwallowsSuccessAck) if message.method() == Method::Ack && forwarded.is_some() => return None,
            (None, Bug::EditsBody) if !message.body().is_empty() => {
                let middle = bytes.len() - message.body().len() / 2 - 1;
                sent.bytes[middle] ^= 1;
            }
            (None, Bug::ReordersHeaders) => {
                let without = replaced(&bytes, b"\r\nSubject:odd", b"");
                sent.bytes = replaced(&without, b"\r\nX-Unknown:", b"\r\nSubject:odd\r\nX-Unknown:");
            }
            (None, Bug::KeepsMaxForwards) => sent.bytes = replaced(&bytes, b"Max-Forwards: 69", b"Max-Forwards: 70"),
            (None, Bug::LeavesBothRinging) if message.method() == Method::Cancel && self.was_left(&message) => {
                return None;
            }
            (None, Bug::ForwardsAgain | Bug::SendsCancelled | Bug::LeavesBothRinging) => {
                if let Some((above, _)) = forwarded.and_then(Via::parse_first) {
                    self.forwarded.insert(above.branch.unwrap_or(&[]).to_vec(), sent.clone());
                }
            }
            (Some(status), Bug::DropsRepeatedSuccess) if status.is_success() && message.method() == Method::Invite => {
                return self.seen.insert(bytes).then_some(sent);
            }
            (Some(status), Bug::DropsSecondSuccess) if status.is_success() && message.method() == Method::Invite => {
                let branch = message.via().branch.unwrap_or(&[]).to_vec();
                let first = self.forwarded.entry(branch).or_insert_with(|| sent.clone());
                return (*first == sent).then_some(sent);
            }
            (Some(_), Bug::AnswersAtAddress) => sent.flow.connection = None,
            (Some(_), Bug::KeepsVia) => sent.bytes = with_via(&bytes, self.address),
            (Some(_), Bug::AcceptsLowerCSeq) => sent.bytes = replaced(&bytes, b"CSeq: 9000 REG", b"CSeq: 1 REG"),
            (Some(_), Bug::IgnoresRport) => sent.flow.peer.set_ip(message.via().host().ip()?),
            (Some(_), Bug::DropsToTag) => {
                let tag = message.to().tag().filter(|tag| !tag.starts_with(b"phone-")).unwrap_or(&[]);
                sent.bytes = replaced(&bytes, &[b";tag=", tag].concat(), b"");
            }
            _ => {}
        }
        Some(sent)
    }

    /// Returns whether a CANCEL is for a branch that was followed by another.
    fn was_left(&self, cancel: &Message<'_>) -> bool {
        let branch = cancel.via().branch.unwrap_or(&[]);
        let latest = |sent: &SentMessage| {
            let last = Message::parse(&sent.bytes);
            last.is_ok_and(|last| last.via().branch == Some(branch))
        };
        !self.forwarded.values().any(latest)
    }

    /// Mutates what the server sends in reaction to a message.
    fn mutate_output(&self, bug: Bug, from: Flow, message: &Message<'_>, repeated: bool, sent: &mut Vec<SentMessage>) {
        let is_request = message.status().is_none();
        match bug {
            Bug::ForwardsFailureAck if is_request && message.method() == Method::Ack && sent.is_empty() => {
                sent.push(SentMessage { shard: 0, flow: from, bytes: with_via(message.bytes(), self.address) });
            }
            Bug::SecondFinal => {
                let failure = |sent: &&SentMessage| sent.bytes.starts_with(b"SIP/2.0 4");
                if let Some(first) = sent.iter().find(failure).cloned() {
                    let bytes = replaced(&first.bytes, b"SIP/2.0 4", b"SIP/2.0 5");
                    sent.push(SentMessage { bytes, ..first });
                }
            }
            Bug::ForwardsAgain if is_request && repeated => {
                if let Some(again) = self.forwarded.get(message.via().branch.unwrap_or(&[])).cloned() {
                    sent.push(SentMessage { bytes: replaced(&again.bytes, b"z9hG4bK", b"z9hG4bKagain"), ..again });
                }
            }
            Bug::Answers408 if is_request && message.method() == Method::Message && !repeated => {
                let (status, mut bytes) = (Status::REQUEST_TIMEOUT, Vec::new());
                ResponseBuilder::begin(&mut bytes, message.head(), status, status.reason(), b"planted", None).finish();
                sent.insert(
                    0,
                    SentMessage { shard: 0, flow: Flow { reopen: from.connection.is_some(), ..from }, bytes },
                );
            }
            Bug::ForgetsReplay if is_request && repeated => sent.clear(),
            _ => {}
        }
    }
}

/// Returns whether the server does not see a step.
const fn is_ignored(bug: Bug, step: &Step) -> bool {
    matches!(
        (bug, step),
        (Bug::IgnoresTimeouts, Step::Timeout { .. })
            | (Bug::KeepsClosed, Step::Closed { .. })
            | (Bug::IgnoresUnconnected, Step::Unconnected { .. })
    )
}

/// Mutates an incoming message.
fn mutate_input(bug: Bug, bytes: &[u8]) -> Vec<u8> {
    match bug {
        Bug::AcceptsLowerCSeq => replaced(bytes, b"CSeq: 1 REG", b"CSeq: 9000 REG"),
        Bug::KeepsExpired => replaced(bytes, b";expires=60\r", b";expires=70\r"),
        _ => bytes.to_vec(),
    }
}

/// Returns `bytes` with the first occurrence of `from` replaced.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    match bytes.windows(from.len()).position(|window| window == from) {
        Some(at) => [&bytes[..at], to, &bytes[at + from.len()..]].concat(),
        None => bytes.to_vec(),
    }
}

/// Returns `bytes` with a Via of the server on top.
fn with_via(bytes: &[u8], address: SocketAddr) -> Vec<u8> {
    let via = format!("\r\nVia: SIP/2.0/UDP {address};branch=z9hG4bKplanted\r\n");
    replaced(bytes, b"\r\n", via.as_bytes())
}
