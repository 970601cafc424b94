//! Rules that are checked after every step, from the server's inputs and outputs, and once more at the end.
//!
//! They use the core's parser to read messages; apart from that they know only the reference model of the location
//! table.

mod durable;
mod end;
mod fork;
mod location_model;
mod requests;
mod responses;
mod unchanged;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use strowger_foundation::{ConnId, Flow, Timestamp, Transport};
use strowger_message::{HeaderName, Message, Method, Status, Via};
use strowger_shard::Snapshot;

use crate::ladder::seconds;
use crate::server::{DnsQuery, PendingRecord, SentMessage, Server, Step};
pub use end::RuleCoverage;
use fork::{DnsAnswers, ExpectedTargets};
use location_model::LocationModel;

/// 64·T1: timers B, F, H, J, L and M.
const TIMEOUT: Duration = Duration::from_secs(32);
/// Tolerance for late timers: one tick each, for several timers.
const SLACK: Duration = Duration::from_millis(100);

/// Rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A server transaction has exactly one final response, or several 2xx from branches of an INVITE;
    /// retransmissions are identical.
    OneFinalResponse,
    /// Every 2xx to an INVITE is forwarded upstream at once.
    EverySuccess,
    /// A non-INVITE gets no 408 and no provisional response except 100 (RFC 4320).
    NonInviteResponses,
    /// A response belongs to a request and is sent to its source.
    ResponseAddressed,
    /// A response is a branch's, changed only by removing the server's Via, or one of the server's own with a To tag.
    ResponseUnchanged,
    /// An ACK to a failure is absorbed.
    AckAbsorbed,
    /// An ACK to a success goes on.
    AckPassed,
    /// A request is forwarded once to each target, however often it arrives.
    ForwardedOnce,
    /// A forwarded request has its Max-Forwards decremented and the server's Via added; everything else is unchanged.
    RequestUnchanged,
    /// Contacts are tried by decreasing q: equal ones at once, lower ones as soon as all higher ones have ended or
    /// timed out, and not before.
    StepOrder,
    /// The targets of a route are tried one after the other, each once. The next follows when the last has failed or
    /// been silent for too long. A failure is forwarded when none is left.
    Failover,
    /// Targets that failed recently are tried last.
    Avoided,
    /// No branch is opened for a request that was cancelled, answered, or rejected by a 6xx.
    NothingNew,
    /// Nothing is retransmitted on a stream, and nothing is sent on a closed connection.
    Streams,
    /// An unwanted branch is cancelled as soon as allowed.
    LosersCancelled,
    /// An INVITE is answered at once, and finally by timer B or C.
    InviteEnds,
    /// A retransmission of an answered request gets the response again.
    Repeated,
    /// The location table, and what REGISTER and calls see of it, match the model.
    Registrar,
    /// A change answered with 200 is in the store before and survives a restart, however the process ended. Removed
    /// bindings do not return, and rejected ones are not stored.
    Durable,
    /// While earlier registrations are being read, no user is reported as unregistered, and nothing is registered.
    Loading,
    /// No client waits for the store longer than two seconds.
    Patience,
    /// Nothing is left at the end.
    Quiescence,
    /// A timer that was served is no longer due.
    Timers,
    /// Messages of the server are valid SIP.
    Understandable,
    /// The core does not panic, and its own invariants hold.
    Panic,
}

/// Violation of a rule.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Time.
    pub at: Timestamp,
    /// Violated rule.
    pub rule: Rule,
    /// Observation.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}: {}", seconds(self.at), self.rule, self.detail)
    }
}

/// Result of checking a rule.
type Verdict = Result<(), (Rule, String)>;

/// Key of an upstream transaction: the caller's branch and the method.
type Key = (Vec<u8>, Vec<u8>);

/// Request that the server received, and its progress.
#[derive(Debug)]
struct Upstream {
    at: Timestamp,
    source: Flow,
    request: Vec<u8>,
    targets: ExpectedTargets,
    finals: Vec<FinalResponse>,
    branches: Vec<Branch>,
    /// Whether its route is stateless, so that transaction rules do not apply to the server.
    stateless: bool,
    cancelled: bool,
    acknowledged: bool,
}

#[derive(Debug)]
struct FinalResponse {
    at: Timestamp,
    status: Status,
    to: Vec<u8>,
    bytes: Vec<u8>,
}

/// Downstream transaction.
#[derive(Debug)]
struct Branch {
    shard: usize,
    flow: Flow,
    uri: Vec<u8>,
    /// q value of its contact, in thousandths.
    q: u16,
    /// Number of the step in which it was opened.
    opened_in: u64,
    /// Number of the step in which it moved to another connection; 0 if none.
    moved_in: u64,
    sent_at: Timestamp,
    bytes: Vec<u8>,
    provisional_at: Option<Timestamp>,
    /// Expiry of timer C; each provisional response except 100 restarts it until it has fired.
    ring_deadline: Timestamp,
    /// Whether it is one of several next hops, so that silence ends it even if it is the last. Timer C starts with
    /// the first response.
    has_others: bool,
    /// End of the time for its group in a serial fork.
    step_deadline: Option<Timestamp>,
    /// Whether another next hop was tried while this one was silent, or the caller was told that nobody answers.
    superseded: bool,
    /// Whether it answered 6xx while that counted.
    declined: bool,
    /// Time at which it became unreachable without a response.
    lost_at: Option<Timestamp>,
    /// Time of a failure for which its target is avoided.
    failed_at: Option<Timestamp>,
    /// First final response, with its time.
    finished: Option<(Status, Timestamp)>,
    cancelled_at: Option<Timestamp>,
    /// Received responses without the server's Via.
    responses: Vec<Vec<u8>>,
}

impl Branch {
    /// Returns the time until which the branch waits for a final response.
    ///
    /// The limit is timer B or F, or 64·T1 after a CANCEL. A ringing INVITE has none.
    fn deadline(&self) -> Option<Timestamp> {
        match (self.provisional_at, self.cancelled_at) {
            (_, Some(at)) => Some(at + TIMEOUT),
            (Some(_), None) => None,
            (None, None) => Some(self.sent_at + TIMEOUT),
        }
    }

    fn waits(&self, now: Timestamp) -> bool {
        self.finished.is_none() && self.lost_at.is_none() && self.deadline().is_none_or(|deadline| now < deadline)
    }
}

/// Context of the current step.
#[derive(Debug, Default)]
struct StepContext {
    number: u64,
    /// Received request, and whether it arrived for the first time.
    request: Option<(Key, bool)>,
    /// Received ACK.
    ack: Option<Vec<u8>>,
    /// Transport of the received message.
    transport: Option<Transport>,
    /// Upstream transactions that were cancelled, or whose branches were opened, answered or lost.
    touched: Vec<Key>,
    /// Whether a DNS query was sent.
    asked: bool,
    /// Whether timers were due.
    timeout: bool,
    /// Whether a connection was closed.
    closed: bool,
    /// 2xx that must be forwarded upstream in this step.
    expected: Option<Vec<u8>>,
}

/// State of the rules.
#[derive(Debug)]
pub struct Invariants {
    snapshot: Arc<Snapshot>,
    upstream: BTreeMap<Key, Upstream>,
    /// Upstream transaction and branch index, by the server's branch and method.
    downstream: BTreeMap<Key, (Key, usize)>,
    table: LocationModel,
    answers: DnsAnswers,
    closed: BTreeSet<ConnId>,
    /// Upstream transactions of processes that have ended.
    ghosts: BTreeSet<Key>,
    can_write: bool,
    /// Time at which an address last accepted something.
    forgiven: BTreeMap<SocketAddr, Timestamp>,
    step: StepContext,
}

impl Invariants {
    /// Creates the rules before any message.
    #[must_use]
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        Self {
            table: LocationModel::new(Arc::clone(&snapshot)),
            snapshot,
            upstream: BTreeMap::new(),
            downstream: BTreeMap::new(),
            answers: DnsAnswers::default(),
            closed: BTreeSet::new(),
            ghosts: BTreeSet::new(),
            can_write: true,
            forgiven: BTreeMap::new(),
            step: StepContext::default(),
        }
    }

    /// Checks one step.
    ///
    /// # Errors
    /// The first violation.
    pub fn check_step(
        &mut self,
        now: Timestamp,
        step: &Step,
        sent: &[SentMessage],
        asked: &[DnsQuery],
        records: &[PendingRecord],
        server: &Server,
    ) -> Result<(), Violation> {
        let (number, asked) = (self.step.number + 1, !asked.is_empty());
        self.step = StepContext { number, asked, ..StepContext::default() };
        let verdict = self.check(now, step, sent, records, server);
        verdict.map_err(|(rule, detail)| Violation { at: now, rule, detail })
    }

    fn check(
        &mut self,
        now: Timestamp,
        step: &Step,
        sent: &[SentMessage],
        records: &[PendingRecord],
        server: &Server,
    ) -> Verdict {
        self.take(now, step);
        for sent in sent {
            // An empty line is a keep-alive.
            if sent.bytes == b"\r\n\r\n" {
                continue;
            }
            let message = Message::parse(&sent.bytes)
                .map_err(|(fault, _)| (Rule::Understandable, format!("{fault}: {}", sent.bytes.escape_ascii())))?;
            match message.status() {
                None => self.check_request(now, sent, &message)?,
                Some(status) => self.check_response(now, &sent.flow, &message, status)?,
            }
        }
        self.check_ack_passed(sent)?;
        self.check_success(sent)?;
        self.check_repeated(now, sent)?;
        self.check_touched(now)?;
        self.check_begun(now)?;
        self.check_table(now, step, records, server)
    }

    /// Updates the state from the input of a step.
    fn take(&mut self, now: Timestamp, step: &Step) {
        match step {
            Step::Message { flow, bytes, .. } => {
                let Ok(message) = Message::parse(bytes) else { return };
                self.step.transport = Some(flow.transport);
                match message.status() {
                    None => self.on_request(now, *flow, &message),
                    Some(status) => self.on_response(now, &message, status),
                }
            }
            Step::Unreachable { peer, .. } => {
                self.lose(now, |branch| !branch.flow.transport.is_reliable() && branch.flow.peer == *peer);
            }
            Step::Closed { connection, peer, .. } => {
                self.on_closed(now, *connection, *peer);
            }
            Step::Unconnected { shard, flow, .. } => {
                self.lose(now, |branch| branch.shard == *shard && branch.flow == *flow);
            }
            Step::Resolved { answer, .. } => {
                if let Ok(located) = answer {
                    let hops = located.candidates.iter().flat_map(|candidate| &candidate.hops);
                    self.answers.add(now, hops.map(|hop| hop.address).collect());
                }
            }
            Step::Timeout { .. } => self.step.timeout = true,
            Step::Stored { .. }
            | Step::Forget { .. }
            | Step::Unregister { .. }
            | Step::Restored { .. }
            | Step::Complete { .. } => {}
        }
    }

    /// Handles a received request.
    fn on_request(&mut self, now: Timestamp, source: Flow, message: &Message<'_>) {
        let branch = branch_of(message.via());
        if message.method() == Method::Ack {
            if let Some(upstream) = self.upstream.get_mut(&key(&branch, Method::Invite)) {
                upstream.acknowledged = true;
            }
            self.step.ack = Some(message.bytes().to_vec());
            return;
        }
        if message.method() == Method::Cancel {
            let invite = key(&branch, Method::Invite);
            if let Some(upstream) = self.upstream.get_mut(&invite).filter(|upstream| upstream.finals.is_empty()) {
                upstream.cancelled = true;
                self.step.touched.push(invite);
            }
        }
        let key = key(&branch, message.method());
        let first = !self.upstream.contains_key(&key);
        let stateless = self.is_stateless(&source, message);
        let plan = if first { self.plan_of(now, message) } else { ExpectedTargets::One };
        self.upstream.entry(key.clone()).or_insert_with(|| Upstream {
            at: now,
            source,
            request: message.bytes().to_vec(),
            targets: plan,
            finals: Vec::new(),
            branches: Vec::new(),
            stateless,
            cancelled: false,
            acknowledged: false,
        });
        self.step.request = Some((key, first));
    }

    /// Handles a received response.
    fn on_response(&mut self, now: Timestamp, message: &Message<'_>, status: Status) {
        let Some((key, index)) = self.downstream.get(&key(&branch_of(message.via()), message.method())) else { return };
        let Some(upstream) = self.upstream.get_mut(key) else { return };
        let is_invite = message.method() == Method::Invite;
        let stripped = unchanged::without_top_via(message);
        if is_invite && status.is_success() && upstream.passes_success(now, *index) {
            self.step.expected = Some(stripped.clone());
        }
        let shared = matches!(upstream.targets, ExpectedTargets::Targets { .. });
        let branch = &mut upstream.branches[*index];
        // A response after the branch has timed out has no transaction.
        let waits = branch.waits(now);
        if waits && status.is_provisional() {
            let first = branch.provisional_at.is_none();
            branch.provisional_at.get_or_insert(now);
            let begins = first && branch.has_others;
            if begins || status != Status::TRYING && now < branch.ring_deadline {
                branch.ring_deadline = now + self.snapshot.proxy.ring_timeout;
            }
        } else if waits {
            let counts = !branch.superseded && branch.ended_at(now).is_none() && now < branch.ring_deadline;
            branch.declined = counts && status.class() == 6;
            if shared && counts && !upstream.stateless && status == Status::SERVICE_UNAVAILABLE {
                branch.failed_at.get_or_insert(now);
            }
            branch.finished = Some((status, now));
        }
        if !status.is_provisional() && status != Status::SERVICE_UNAVAILABLE {
            self.forgiven.insert(branch.flow.peer, now);
        }
        branch.responses.push(stripped);
        self.step.touched.push(key.clone());
    }
}

impl Upstream {
    fn is_invite(&self) -> bool {
        self.request.starts_with(b"INVITE ")
    }

    /// Returns whether ringing branches are unwanted.
    fn is_over(&self) -> bool {
        self.cancelled || self.accepted_at().is_some() || self.branches.iter().any(|branch| branch.declined)
    }

    fn accepted_at(&self) -> Option<Timestamp> {
        self.finals.iter().find(|one| one.status.is_success()).map(|one| one.at)
    }

    /// Returns whether a 2xx on a branch must be forwarded upstream: neither transaction has ended.
    fn passes_success(&self, now: Timestamp, index: usize) -> bool {
        let branch = &self.branches[index];
        let refused = self.finals.iter().any(|one| !one.status.is_success());
        let lasts = |since: Timestamp| now + SLACK < since + TIMEOUT;
        let branch_lives = match branch.finished {
            _ if branch.lost_at.is_some() => false,
            Some((status, at)) => status.is_success() && lasts(at),
            None => branch.deadline().is_none_or(|deadline| now + SLACK < deadline),
        };
        !refused && self.accepted_at().is_none_or(lasts) && branch_lives
    }
}

fn key(branch: &[u8], method: Method<'_>) -> Key {
    (branch.to_vec(), method.as_bytes().to_vec())
}

fn branch_of(via: &Via<'_>) -> Vec<u8> {
    via.branch.unwrap_or(&[]).to_vec()
}

/// Returns the branch of the second Via.
fn second_branch(message: &Message<'_>) -> Option<Vec<u8>> {
    let value = message.head().elements(HeaderName::Via).nth(1)?;
    Via::parse_first(value).map(|(via, _)| branch_of(&via))
}

pub(super) fn broken_unless(holds: bool, rule: Rule, detail: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err((rule, detail())) }
}
