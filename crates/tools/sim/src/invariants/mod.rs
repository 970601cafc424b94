//! The rules, checked after every step from what went into the server and what came out of it, and once more when all is
//! quiet. They read messages with the core's own parser and know nothing else of the core but the reference model.

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

use crate::server::{DnsQuery, PendingRecord, SentMessage, Server, Step};
use crate::world::seconds;
pub use end::RuleCoverage;
use fork::{DnsAnswers, ExpectedTargets};
use location_model::LocationModel;

/// 64·T1: Timers B, F, H, J, L and M.
const TIMEOUT: Duration = Duration::from_secs(32);
/// What timers may come late by: a tick each, of a few.
const SLACK: Duration = Duration::from_millis(100);

/// What may be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Exactly one final response a server transaction, or several 2xx of an INVITE's branches; the same bytes each time.
    OneFinalResponse,
    /// Every 2xx to an INVITE that comes in goes up at once.
    EverySuccess,
    /// No 408 and no provisional response but 100 to a non-INVITE (RFC 4320).
    NonInviteResponses,
    /// A response belongs to a request, and goes where it came from.
    ResponseAddressed,
    /// A response is a branch's, without our Via and else untouched, or one of the server's own with a To tag.
    ResponseUnchanged,
    /// An ACK to a failure is absorbed.
    AckAbsorbed,
    /// An ACK to a success goes on.
    AckPassed,
    /// A request is forwarded once to each target, however often it comes.
    ForwardedOnce,
    /// A forwarded request has one hop less, a Via of ours, and what a proxy has no business with is untouched.
    RequestUnchanged,
    /// Contacts are tried by falling preference: equal ones at once, lower ones as soon as all before them have ended, or
    /// their time is over, and not before.
    StepOrder,
    /// The targets of a route are tried one after the other, each once, the next one when the last has failed or is silent
    /// for long; a failure goes up when none is left.
    Failover,
    /// Who failed lately is tried after the others.
    Avoided,
    /// Nothing new is tried for what was cancelled, answered, or refused for everybody.
    NothingNew,
    /// Nothing is said twice on a stream, and nobody is looked for on a connection that is closed.
    Streams,
    /// A branch that is no longer wanted is cancelled as soon as it may be.
    LosersCancelled,
    /// An INVITE is answered at once, and finally by Timer B or C.
    InviteEnds,
    /// A retransmission of an answered request is answered again.
    Repeated,
    /// The location table, and what REGISTER and calls see of it, are the model's.
    Registrar,
    /// What was answered 200 is in the store before, and there after a restart, however the process ended; what was removed
    /// does not come back, and what was refused is nowhere.
    Durable,
    /// While the registrations of before are being read, nobody is told that they are not there, and nothing is registered.
    Loading,
    /// Nobody waits for the store longer than two seconds.
    Patience,
    /// Nothing is left when all is quiet.
    Quiescence,
    /// A timer that was served is not due.
    Timers,
    /// A message of the server is SIP.
    Understandable,
    /// The core does not panic, and its own invariants hold.
    Panic,
}

/// A broken rule.
#[derive(Clone, Debug)]
pub struct Violation {
    /// When.
    pub at: Timestamp,
    /// Which.
    pub rule: Rule,
    /// What was seen.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}: {}", seconds(self.at), self.rule, self.detail)
    }
}

/// What a rule says.
type Verdict = Result<(), (Rule, String)>;

/// An upstream transaction: the branch that the caller gave it, and its method.
type Key = (Vec<u8>, Vec<u8>);

/// One request as the server got it, and what came of it.
#[derive(Debug)]
struct Upstream {
    at: Timestamp,
    source: Flow,
    request: Vec<u8>,
    targets: ExpectedTargets,
    finals: Vec<FinalResponse>,
    branches: Vec<Branch>,
    /// Its route keeps no state: what a transaction would do is the peers' affair.
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

/// One downstream transaction.
#[derive(Debug)]
struct Branch {
    shard: usize,
    flow: Flow,
    uri: Vec<u8>,
    /// The preference of its contact, in thousandths.
    q: u16,
    /// The number of the step in which it was opened.
    opened_in: u64,
    /// And that in which it took another connection; 0 where none.
    moved_in: u64,
    sent_at: Timestamp,
    bytes: Vec<u8>,
    provisional_at: Option<Timestamp>,
    /// Timer C: set anew by each provisional response but 100, until it has fired.
    ring_deadline: Timestamp,
    /// It is one of several places, and left for another while it is silent, the last for none; Timer C begins with the first sign of life.
    has_others: bool,
    /// The end of the step of a serial fork.
    step_deadline: Option<Timestamp>,
    /// Another place was tried while this one was silent, or the caller told that nobody answers.
    superseded: bool,
    /// It refused for everybody, while it counted.
    declined: bool,
    /// It was out of reach before it was heard of.
    lost_at: Option<Timestamp>,
    /// It failed so that its target is avoided.
    failed_at: Option<Timestamp>,
    /// The first final response, and when.
    finished: Option<(Status, Timestamp)>,
    cancelled_at: Option<Timestamp>,
    /// The responses that came, without our Via.
    responses: Vec<Vec<u8>>,
}

impl Branch {
    /// Until when the branch waits for a final response, unless more is heard of it: Timer B or F, and where a CANCEL went,
    /// 64·T1 after it. Without end while an INVITE rings.
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

/// What the present step was about.
#[derive(Debug, Default)]
struct StepContext {
    number: u64,
    /// The request that came, and whether it came for the first time.
    request: Option<(Key, bool)>,
    /// The ACK that came.
    ack: Option<Vec<u8>>,
    /// How the message came.
    transport: Option<Transport>,
    /// The upstream transactions whose branches were answered, lost or begun, or that were cancelled.
    touched: Vec<Key>,
    /// The DNS was asked something.
    asked: bool,
    /// Timers were due.
    timeout: bool,
    /// A connection was closed.
    closed: bool,
    /// A 2xx that must go up now.
    expected: Option<Vec<u8>>,
}

/// The state that the rules need.
#[derive(Debug)]
pub struct Invariants {
    snapshot: Arc<Snapshot>,
    upstream: BTreeMap<Key, Upstream>,
    /// Our branches by their method, and where they stand.
    downstream: BTreeMap<Key, (Key, usize)>,
    table: LocationModel,
    answers: DnsAnswers,
    closed: BTreeSet<ConnId>,
    /// The upstream transactions of processes that have ended.
    ghosts: BTreeSet<Key>,
    can_write: bool,
    /// When an address last accepted something.
    forgiven: BTreeMap<SocketAddr, Timestamp>,
    step: StepContext,
}

impl Invariants {
    /// No messages yet.
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
    /// The first rule that it broke.
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
            // An empty line keeps a translation open.
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

    /// What has happened.
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

    /// A request came in.
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

    /// A response came in.
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
        // What comes when the branch has timed out finds nobody.
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

    /// Whether what still rings is no longer wanted.
    fn is_over(&self) -> bool {
        self.cancelled || self.accepted_at().is_some() || self.branches.iter().any(|branch| branch.declined)
    }

    fn accepted_at(&self) -> Option<Timestamp> {
        self.finals.iter().find(|one| one.status.is_success()).map(|one| one.at)
    }

    /// Whether a 2xx that comes on a branch now must go up: neither side's transaction has ended.
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

/// The branch of the second Via.
fn second_branch(message: &Message<'_>) -> Option<Vec<u8>> {
    let value = message.head().elements(HeaderName::Via).nth(1)?;
    Via::parse_first(value).map(|(via, _)| branch_of(&via))
}
