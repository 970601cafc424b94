//! The proxy core: one response context per forwarded request, on top of the transaction layer.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use slab::Slab;
use smallvec::SmallVec;
use strowger_balancer::CallGuard;
use strowger_foundation::{
    Buf, ConnId, DurationHistogram, Flow, KeyRing, ShardId, TagKey, TimerWheel, Timestamp, Wakeup,
};
use strowger_locate::{Cause, Hop, LocateQuery, Outages, QueryId};
use strowger_message::{Message, Method, Status};
use strowger_transaction::{ClientId, Event, ResponseVerdict, ServerId, Transactions};

use crate::body_numbers::BodyNumbers;
use crate::branch::{BRANCH_LEN, BranchId, BranchOwner};
use crate::context::{Branch, BranchTimer, PendingQuery, ResponseContext};
use crate::listener::Listeners;
use crate::policy::OverloadControl;
use crate::response_times::ResponseTimes;
use crate::routing::RouteKeys;
use crate::shared_branches::SharedBranches;
use crate::target::{CallDestination, SentAs, Target};

/// The user of a server transaction without a context.
pub const NO_CONTEXT: u32 = u32::MAX;
/// Lowest user number for client transactions of the server's own requests.
pub const OWN_USERS: u32 = 1 << 31;
/// Lowest user number for paired transactions. A pair is all that is left of a request when only a retransmitted
/// success can still arrive; each transaction's user names the slot of the other, so that a mismatch is detected.
pub(crate) const PAIRED: u32 = 1 << 30;
/// Largest number of branch timers handled in one call; the rest are due immediately.
const MAX_TIMERS_PER_CALL: usize = 4096;

/// Capacity that an empty queue keeps.
const MAX_IDLE_QUEUE: usize = 64;

/// Event counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Requests forwarded statefully.
    pub forwarded: u64,
    /// Requests forwarded statelessly.
    pub forwarded_stateless: u64,
    /// Responses forwarded.
    pub responses: u64,
    /// Responses that match no transaction and have no Via below ours.
    pub stray_responses: u64,
    /// Responses to keep-alives.
    pub keep_alive_answers: u64,
    /// Expiries of Timer C.
    pub ring_timeouts: u64,
    /// Requests rejected because a table was full.
    pub table_full: u64,
    /// Branches retried at another next hop.
    pub failovers: u64,
    /// Requests answered with 408, 500 or 503 because none of their shared next hops responded.
    pub exhausted: u64,
    /// Failovers not attempted because the failover budget was exhausted.
    pub failovers_refused: u64,
    /// Requests rejected because their next hop asked for less load.
    pub shed_for_next_hop: u64,
    /// Redirections followed.
    pub redirections: u64,
    /// Challenges answered for a trunk.
    pub challenges_answered: u64,
}

/// Callbacks to the shard for what the proxy does not know.
pub trait ProxyCallbacks {
    /// Returns the flow towards the Via below ours, for a stateless response.
    fn upstream(&mut self, response: &Message<'_>) -> Option<Flow>;

    /// Adds to `found` the destinations for a contact of a redirection of `request`, which was received from
    /// `source`.
    fn redirection_targets(
        &mut self,
        now: Timestamp,
        contact: &[u8],
        request: &Message<'_>,
        source: &Flow,
        found: &mut Vec<Target>,
    );

    /// Writes the header lines that answer a trunk's challenge `response` to `request`, sent with `request_uri`.
    /// Returns whether there are any.
    fn answer_challenge(
        &mut self,
        trunk: u32,
        response: &Message<'_>,
        request: &Message<'_>,
        request_uri: &[u8],
        out: &mut Vec<u8>,
    ) -> bool;
}

/// Progress of a tracked call.
#[derive(Debug)]
pub struct CallProgress {
    /// The call's id from [`Forwarding`](crate::Forwarding).
    pub call: u64,
    /// The status sent to the caller.
    pub status: Status,
    /// The peer that sent it; `None` for the server itself.
    pub from: Option<SocketAddr>,
    /// Guard of the call at a target of a balanced set, if it was answered or will be retried there.
    pub call_guard: Option<CallGuard>,
    /// How the call was sent to the peer that gave its final status, if that is of interest.
    pub sent_as: Option<Box<SentAs>>,
    /// The trunk and the balanced target of that peer.
    pub destination: CallDestination,
}

/// A change in the health of a shared next hop. Exactly one shard reports each change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHopEvent {
    /// It does not respond and is tried after others.
    Outage {
        /// The next hop.
        hop: Hop,
        /// The cause.
        cause: Cause,
        /// How long it is tried after others; zero if it is not avoided.
        avoided_for: Duration,
    },
    /// An outage already reported is confirmed: calls treat the next hop as dead.
    Dead {
        /// The next hop.
        hop: Hop,
    },
    /// It has responded again.
    Recovery {
        /// The next hop.
        hop: Hop,
        /// Duration of the outage.
        after: Duration,
        /// True if it was silent or unreachable, false if it was refusing.
        was_unreachable: bool,
    },
}

/// What is left to do after [`Proxy::handle_response`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseOutcome {
    /// Nothing.
    Done,
    /// It is a response to the server's own request; the request's user.
    OwnRequest(u32),
}

/// Configuration of a proxy.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// The shard.
    pub shard: ShardId,
    /// The server's addresses.
    pub listeners: Listeners,
    /// Recently failed peers, shared by all shards.
    pub outages: Arc<Outages>,
    /// Overload control with neighbours.
    pub overload: OverloadControl,
    /// Name that distinguishes this server from others with its keys on the path of a request; equal for servers that
    /// stand in for one another.
    pub stage: Box<str>,
}

/// Response contexts and transactions of a shard.
#[derive(Debug)]
pub struct Proxy {
    pub(crate) transactions: Transactions,
    pub(crate) contexts: Slab<ResponseContext>,
    /// Timers of branches.
    pub(crate) timers: TimerWheel<(u32, ClientId)>,
    pub(crate) ring: KeyRing,
    dialogs: KeyRing,
    loop_key: TagKey,
    pub(crate) tag_key: TagKey,
    pub(crate) shard: ShardId,
    /// Number of the process, in branches of client transactions.
    pub(crate) process: u8,
    pub(crate) listeners: Listeners,
    pub(crate) outages: Arc<Outages>,
    pub(crate) overload: OverloadControl,
    /// How long a failed target is avoided, from the last request.
    pub(crate) avoid_for: Duration,
    pub(crate) counters: Counters,
    /// Number of contexts without a final response.
    pub(crate) unanswered: usize,
    /// Client transactions whose branches do not name them.
    pub(crate) shared_branches: SharedBranches,
    /// The bodies sent by client transactions whose targets have their own.
    pub(crate) body_numbers: BodyNumbers,
    /// Pending DNS queries.
    pub(crate) pending_queries: Slab<PendingQuery>,
    pub(crate) next_question: u32,
    pub(crate) questions: VecDeque<(QueryId, LocateQuery)>,
    pub(crate) progress: VecDeque<CallProgress>,
    pub(crate) response_times: ResponseTimes,
    pub(crate) hop_events: VecDeque<NextHopEvent>,
    /// Users of own requests whose transaction ended without a response.
    pub(crate) failed: VecDeque<u32>,
}

impl Proxy {
    /// Sets the server's addresses. The ids of those that it had stay valid.
    pub fn set_listeners(&mut self, listeners: Listeners) {
        self.listeners = listeners;
    }

    /// Creates an idle proxy; the branch and tag keys are derived from `ring`, the process's key ring.
    #[must_use]
    pub fn new(config: ProxyConfig, ring: &KeyRing, transactions: Transactions) -> Self {
        let ProxyConfig { shard, listeners, outages, overload, stage } = config;
        Self {
            transactions,
            contexts: Slab::new(),
            timers: TimerWheel::new(),
            ring: ring.derive("branch"),
            dialogs: ring.derive("dialog"),
            loop_key: ring.current().derive(&format!("loop{stage}")),
            tag_key: ring.current().derive("to-tag"),
            shard,
            process: 0,
            listeners,
            outages,
            overload,
            avoid_for: Duration::ZERO,
            counters: Counters::default(),
            unanswered: 0,
            shared_branches: SharedBranches::new(ring.current().derive("shared").table64(&[])),
            body_numbers: BodyNumbers::new(ring.current().derive("bodies").table64(&[])),
            pending_queries: Slab::new(),
            next_question: 0,
            questions: VecDeque::new(),
            progress: VecDeque::new(),
            response_times: ResponseTimes::new(ring.current().derive("response-times").table64(&[])),
            hop_events: VecDeque::new(),
            failed: VecDeque::new(),
        }
    }

    /// Sets the number of the process, which its branches name: below [`PROCESS_NUMBERS`](crate::branch::PROCESS_NUMBERS).
    #[must_use]
    pub fn with_process(self, process: u8) -> Self {
        Self { process, ..self }
    }

    /// Returns the text of the branch of a request of the server itself.
    #[must_use]
    pub fn own_branch(&self, client: ClientId) -> [u8; BRANCH_LEN] {
        let owner = BranchOwner::Client(client);
        BranchId { shard: self.shard, owner, loop_hash: 0, process: self.process }.encode(&self.ring)
    }

    /// The key ring of branches and flow tokens.
    #[must_use]
    pub const fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// The keys of Routes.
    #[must_use]
    pub const fn route_keys(&self) -> RouteKeys<'_> {
        RouteKeys { tokens: &self.ring, dialogs: &self.dialogs }
    }

    /// The key of loop hashes.
    #[must_use]
    pub const fn loop_key(&self) -> &TagKey {
        &self.loop_key
    }

    /// The key of To tags.
    #[must_use]
    pub const fn tag_key(&self) -> &TagKey {
        &self.tag_key
    }

    /// The transaction layer, for requests that the server answers itself.
    pub const fn transactions(&mut self) -> &mut Transactions {
        &mut self.transactions
    }

    /// The transaction layer, read-only.
    #[must_use]
    pub const fn transactions_ref(&self) -> &Transactions {
        &self.transactions
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Visits the times from an INVITE sent to a trunk or balanced target until its first response.
    pub fn for_each_response_time(&self, visit: impl FnMut(CallDestination, &DurationHistogram)) {
        self.response_times.for_each(visit);
    }

    //= rfc3261#16.10:cancels
    /// Cancels the pending branches of the INVITE of `server` (RFC 3261 §16.10). The caller responds to the CANCEL
    /// itself.
    pub fn cancel(&mut self, now: Timestamp, server: ServerId) {
        if let Some(index) = self.transactions.server_user(server) {
            self.give_up(now, index);
            self.finish_if_done(now, index);
        }
        self.drain_events(now);
    }

    /// Cancels the pending branches of the INVITE of a tracked call, which is then answered as after a CANCEL. Scans all
    /// response contexts.
    pub fn cancel_call(&mut self, now: Timestamp, call: u64) {
        let is_it = |context: &ResponseContext| context.call == call && context.is_invite && !context.is_answered;
        let of_call = self.contexts.iter().filter(|(_, context)| is_it(context));
        let found: SmallVec<[u32; 2]> = of_call.filter_map(|(index, _)| u32::try_from(index).ok()).collect();
        for index in found {
            self.give_up(now, index);
            self.finish_if_done(now, index);
        }
        self.drain_events(now);
    }

    /// Handles a response with one of our branches.
    pub fn handle_response(
        &mut self,
        now: Timestamp,
        owner: BranchOwner,
        message: &Message<'_>,
        callbacks: &mut dyn ProxyCallbacks,
    ) -> ResponseOutcome {
        let mut handled = ResponseOutcome::Done;
        match owner {
            BranchOwner::Stateless(place) => match self.client_at(place) {
                Some(client) => handled = self.handle_answer(now, client, message, callbacks),
                None => {
                    let upstream = callbacks.upstream(message);
                    self.pass_stateless(now, message, upstream);
                }
            },
            BranchOwner::KeepAlive(_) => self.counters.keep_alive_answers += 1,
            BranchOwner::Client(client) => handled = self.handle_answer(now, client, message, callbacks),
        }
        self.drain_events(now);
        handled
    }

    /// Returns the client transaction of a branch that does not name it.
    pub(crate) fn client_at(&self, place: u64) -> Option<ClientId> {
        self.shared_branches.find(place).filter(|client| self.transactions.client_user(*client).is_some())
    }

    fn handle_answer(
        &mut self,
        now: Timestamp,
        client: ClientId,
        message: &Message<'_>,
        callbacks: &mut dyn ProxyCallbacks,
    ) -> ResponseOutcome {
        let own = self.transactions.client_user(client).is_some_and(|user| user != NO_CONTEXT && user >= OWN_USERS);
        //= rfc3261#16.7:own-responses
        //= rfc3261#8.1.3.3:several-vias
        // The response to a forwarded request has another Via below ours; the response to a request of our own does not.
        // One that differs cannot be forwarded and must not end its branch.
        if message.method() != Method::Cancel && own == message.has_next_via() {
            self.counters.stray_responses += 1;
            return ResponseOutcome::Done;
        }
        //= rfc3261#18.1.2:matched
        //= rfc6026#8.9:matched
        match self.transactions.handle_response(now, client, message) {
            ResponseVerdict::ToUser { user } if own => return ResponseOutcome::OwnRequest(user),
            ResponseVerdict::ToUser { user } if is_paired(user) => {
                self.forward_repeated_success(now, user, client, message);
            }
            ResponseVerdict::ToUser { user } => self.on_response(now, user, client, message, callbacks),
            ResponseVerdict::Absorbed => {}
            //= rfc6026#8.9:stray
            //= rfc4320#4.2:no-stray
            // A stray response is dropped: without a transaction there is no evidence of a request.
            ResponseVerdict::Unknown => self.counters.stray_responses += 1,
        }
        ResponseOutcome::Done
    }

    /// Forwards a retransmitted success to an INVITE.
    fn forward_repeated_success(&mut self, now: Timestamp, user: u32, client: ClientId, message: &Message<'_>) {
        let server = self.transactions.server_of(user & !PAIRED, PAIRED | client.index());
        if let Some((server, status)) = server.zip(message.status()) {
            self.forward_upstream(now, server, status, message);
        }
    }

    /// Handles expired timers of transactions and branches.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.transactions.handle_timeout(now);
        self.drain_events(now);
        for _ in 0..MAX_TIMERS_PER_CALL {
            let Some((index, client)) = self.timers.poll_expired(now) else { break };
            self.on_timer(now, index, client);
        }
        self.drain_events(now);
    }

    fn on_timer(&mut self, now: Timestamp, index: u32, client: ClientId) {
        let branch = self.contexts.get_mut(index as usize).and_then(|context| context.branch_mut(client));
        let Some(branch) = branch else { return };
        let wait = branch.timer.take().map(|(_, wait)| wait);
        if wait == Some(BranchTimer::TimerC) && now < branch.timer_c_deadline {
            branch.timer = Some((self.timers.insert(branch.timer_c_deadline, (index, client)), BranchTimer::TimerC));
            return;
        }
        match wait {
            Some(BranchTimer::Failover) => self.on_failover_timeout(now, index, client),
            Some(BranchTimer::TimerC) => self.on_timer_c(now, index, client),
            Some(BranchTimer::SerialFork) => self.on_fork_timeout(now, index, client),
            None => {}
        }
    }

    //= rfc3261#16.8:ends
    pub(crate) fn on_timer_c(&mut self, now: Timestamp, index: u32, client: ClientId) {
        self.counters.ring_timeouts += 1;
        let has_provisional = self.transactions.client_has_provisional(client);
        let Some(branch) = self.context_mut(index).and_then(|context| context.branch_mut(client)) else { return };
        branch.has_timer_c_fired = true;
        branch.remaining = None;
        //= rfc3261#16.8:cancels
        if has_provisional {
            self.transactions.cancel(now, client);
            return;
        }
        //= rfc3261#16.8:408
        // Without a provisional response this counts as a 408; a later one triggers the CANCEL.
        branch.is_cancel_pending = true;
        self.fail_branch(now, index, client, Status::REQUEST_TIMEOUT);
    }

    /// Ends a step of a serial fork. The next step starts at once, even if the phone does not respond to its CANCEL.
    fn on_fork_timeout(&mut self, now: Timestamp, index: u32, client: ClientId) {
        self.on_timer_c(now, index, client);
        self.fail_branch(now, index, client, Status::REQUEST_TIMEOUT);
    }

    //= rfc6026#7.1:transport-error
    //= rfc6026#7.1:stays
    /// Handles a report that datagrams do not reach `peer`.
    pub fn handle_unreachable(&mut self, now: Timestamp, peer: SocketAddr) {
        self.transactions.handle_unreachable(now, peer);
        self.drain_events(now);
    }

    /// Handles a failure to connect `flow`, or the loss of its connection.
    pub fn handle_unconnected(&mut self, now: Timestamp, flow: &Flow) {
        self.transactions.handle_unconnected(now, flow);
        self.drain_events(now);
    }

    /// Handles the close of a connection.
    pub fn handle_closed(&mut self, now: Timestamp, connection: ConnId, peer: SocketAddr) {
        self.transactions.handle_closed(now, connection, peer);
        self.drain_events(now);
    }

    /// Returns the earliest moment at which [`handle_timeout`](Self::handle_timeout) has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        let transactions = self.transactions.poll_timeout();
        let branches = self.timers.next_deadline().map(|at| Wakeup::at(at, "branch"));
        Wakeup::sooner(transactions, branches)
    }

    /// Moves the next message to send into `out`; see [`Transactions::poll_transmit`].
    pub fn poll_transmit(&mut self, out: &mut Buf) -> Option<Flow> {
        self.transactions.poll_transmit(out)
    }

    /// Returns the next DNS query; its result goes to [`handle_resolved`](Self::handle_resolved).
    pub fn poll_question(&mut self) -> Option<(QueryId, LocateQuery)> {
        self.questions.pop_front()
    }

    /// Whether nothing is left to poll: call progress, next-hop events, failed own requests.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.progress.is_empty() && self.hop_events.is_empty() && self.failed.is_empty()
    }

    /// Returns the next progress of a tracked call.
    pub fn poll_progress(&mut self) -> Option<CallProgress> {
        self.progress.pop_front()
    }

    /// Returns the next change in the health of a next hop.
    pub fn poll_hop_event(&mut self) -> Option<NextHopEvent> {
        self.hop_events.pop_front()
    }

    /// Returns the user of the next own request that ended without a response.
    pub fn poll_failed(&mut self) -> Option<u32> {
        self.failed.pop_front()
    }

    /// Number of forwarded requests without a final response; a server that is shutting down waits for them.
    #[must_use]
    pub const fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Frees memory that is not needed any more: half of the buffers that were not used since the last call, and the
    /// tables once they are empty. Returns whether another call may free more.
    pub fn trim(&mut self) -> bool {
        if self.contexts.is_empty() {
            self.contexts.shrink_to_fit();
        }
        if self.progress.is_empty() && self.progress.capacity() > MAX_IDLE_QUEUE {
            self.progress = VecDeque::new();
        }
        let has_timers = self.timers.trim();
        let has_more = self.transactions.trim() | has_timers;
        if !has_more {
            self.timers.free_if_empty();
        }
        has_more
    }

    /// Whether a peak has left memory that [`trim`](Self::trim) may free.
    #[must_use]
    pub fn has_idle_memory(&self) -> bool {
        self.transactions.has_idle_memory()
    }

    /// Number of contexts.
    #[must_use]
    pub fn contexts(&self) -> usize {
        self.contexts.len()
    }

    /// Checks the invariants between inputs.
    pub fn check_invariants(&self) {
        self.transactions.check_invariants();
        let unanswered = self.contexts.iter().filter(|(_, context)| !context.is_answered).count();
        debug_assert_eq!(unanswered, self.unanswered, "each context is counted until it is answered");
        for (_, context) in &self.contexts {
            debug_assert!(context.pending_refs > 0, "a context outlives its transactions");
            debug_assert!(!context.is_answered || context.best.is_none(), "an answered request keeps no response");
            debug_assert!(!context.is_answered || context.fork.is_none(), "an answered request becomes nothing more");
            let is_over = context.is_answered && !context.is_invite;
            debug_assert!(!is_over || context.call_guard.is_none(), "a call does not outlive its answered BYE");
        }
    }

    pub(crate) fn drain_events(&mut self, now: Timestamp) {
        while let Some(event) = self.transactions.poll_event() {
            match event {
                Event::ClientEnded { user, .. } | Event::ServerEnded { user, .. } if is_paired(user) => {}
                Event::ClientTimeout { user, .. } | Event::ClientFailed { user, .. } if user >= OWN_USERS => {
                    self.failed.push_back(user);
                }
                Event::ClientEnded { user, .. } if user >= OWN_USERS => {}
                //= rfc3261#8.1.3.1:timeout-is-408
                Event::ClientTimeout { user, id } => {
                    // If Timer B is shorter, it ends the attempt at one of several next hops.
                    let context = self.context(user);
                    let is_out = context.is_some_and(|context| {
                        let branch = context.branches.iter().find(|branch| branch.client == id);
                        context.is_invite && branch.is_some_and(Branch::has_alternative_hops)
                    });
                    //= rfc3261#16.7:408
                    let status = if is_out { Status::SERVICE_UNAVAILABLE } else { Status::REQUEST_TIMEOUT };
                    self.on_branch_failed(now, user, id, status, Cause::Silent);
                    self.on_ended(user);
                }
                //= rfc3261#8.1.3.1:transport-error-is-503
                Event::ClientFailed { user, id } => {
                    let lost = self.context_mut(user).and_then(|context| context.branch_mut(id));
                    //= rfc3261#16.9:503
                    let status = lost.map_or(Status::SERVICE_UNAVAILABLE, |branch| branch.unreachable_status());
                    self.on_branch_failed(now, user, id, status, Cause::Unreachable);
                    self.on_ended(user);
                }
                //= rfc3261#16.9:no-cancel
                Event::ClientEnded { user, .. }
                | Event::ServerEnded { user, .. }
                | Event::ServerTimeout { user, .. } => {
                    self.on_ended(user);
                }
            }
        }
    }

    pub(crate) fn context(&self, index: u32) -> Option<&ResponseContext> {
        self.contexts.get(index as usize)
    }

    pub(crate) fn context_mut(&mut self, index: u32) -> Option<&mut ResponseContext> {
        self.contexts.get_mut(index as usize)
    }
}

pub(crate) fn is_paired(user: u32) -> bool {
    (PAIRED..OWN_USERS).contains(&user)
}
