//! The proxy's engine: one response context a forwarded request, on top of the transactions.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use slab::Slab;
use smallvec::SmallVec;
use strowger_balancer::CallGuard;
use strowger_foundation::{Buf, ConnId, Flow, KeyRing, ShardId, TagKey, TimerWheel, Timestamp, Wakeup};
use strowger_locate::{Cause, Hop, LocateQuery, Outages, QueryId};
use strowger_message::{Message, Method, Status};
use strowger_transaction::{ClientId, Event, ResponseVerdict, ServerId, Transactions};

use crate::branch::BranchOwner;
use crate::context::{BestResponse, Branch, BranchState, BranchTimer, ResponseContext};
use crate::fork::PendingQuery;
use crate::listener::Listeners;
use crate::overload::OverloadControl;
use crate::routing::RouteKeys;
use crate::shared_branches::SharedBranches;
use crate::target::Target;

/// The user of a server transaction that no context belongs to.
pub const NO_CONTEXT: u32 = u32::MAX;
/// The users of client transactions that are the server's own requests: a number from here on.
pub const OWN_USERS: u32 = 1 << 31;
/// The users of two transactions that are a pair, as nothing is left of their request but that a success may come again: a
/// number from here on, which names the other's slot. Each names the other, so none is taken for another's.
const PAIRED: u32 = 1 << 30;
/// Timers of branches that one call serves; the rest are due at once.
const MAX_TIMERS_PER_CALL: usize = 4096;

/// How often what happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Requests forwarded with state.
    pub forwarded: u64,
    /// Requests forwarded without state.
    pub forwarded_stateless: u64,
    /// Responses passed on.
    pub responses: u64,
    /// Responses that no transaction and no Via below ours knows.
    pub stray_responses: u64,
    /// Answers to keep-alives.
    pub keep_alive_answers: u64,
    /// Timer C fired.
    pub rang_out: u64,
    /// Requests refused because a table was full.
    pub table_full: u64,
    /// Branches that were tried at another place.
    pub failovers: u64,
    /// Requests answered 408, 500 or 503 since none of the places they were sent to, which many are sent to, said anything.
    pub exhausted: u64,
    /// Requests that were not tried at another place, since the budget for that was spent.
    pub failovers_refused: u64,
    /// Requests refused because their next hop asked for less.
    pub shed_for_next_hop: u64,
    /// Redirections that were followed.
    pub redirections: u64,
    /// Challenges that were answered for a trunk.
    pub challenges_answered: u64,
}

/// What a proxy cannot know by itself, and asks of its shard.
pub trait ProxyCallbacks {
    /// From where a stateless response is sent on: the flow towards the Via below ours.
    fn upstream(&mut self, response: &Message<'_>) -> Option<Flow>;

    /// Adds to `found` the destinations that a contact of a redirection of `request`, which came from `source`, stands for.
    fn redirection_targets(
        &mut self,
        now: Timestamp,
        contact: &[u8],
        request: &Message<'_>,
        source: &Flow,
        found: &mut Vec<Target>,
    );

    /// Writes the header lines that answer the challenge `response` of a trunk to `request`, whose Request-URI was
    /// `request_uri`; whether there are any.
    fn answer_challenge(
        &mut self,
        trunk: u32,
        response: &Message<'_>,
        request: &Message<'_>,
        request_uri: &[u8],
        out: &mut Vec<u8>,
    ) -> bool;
}

/// How far a call that is followed has come.
#[derive(Debug)]
pub struct CallProgress {
    /// The call, as [`Forwarding`](crate::Forwarding) named it.
    pub call: u64,
    /// What the caller was told.
    pub status: Status,
    /// Who said it, where it was not the server itself.
    pub from: Option<SocketAddr>,
    /// The target of a balanced set that has the call from now on, where it was answered or is to be tried again.
    pub call_guard: Option<CallGuard>,
}

/// A change of what is known of a place that many requests are sent to. Of all shards one learns of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHopEvent {
    /// It does not answer, and is tried after others.
    Outage {
        /// Which.
        hop: Hop,
        /// How that was found.
        cause: Cause,
        /// How long it is tried after others; it is not avoided at all where that is nothing.
        avoided_for: Duration,
    },
    /// It was told of already, but only now do calls take it for dead.
    Dead {
        /// Which.
        hop: Hop,
    },
    /// It has answered again.
    Recovery {
        /// Which.
        hop: Hop,
        /// How long it had not.
        after: Duration,
        /// It had been silent or out of reach; else it had refused.
        was_unreachable: bool,
    },
}

/// What [`Proxy::handle_response`] did not deal with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseOutcome {
    /// Nothing is left to do.
    Done,
    /// It answers a request of the server's own: the user that it was sent for.
    OwnRequest(u32),
}

/// What a proxy is made from.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// Which shard's it is.
    pub shard: ShardId,
    /// The server's addresses.
    pub listeners: Listeners,
    /// The peers that failed lately; all shards share them.
    pub outages: Arc<Outages>,
    /// What neighbours and this server tell each other of their load.
    pub overload: OverloadControl,
    /// What tells this server from others with its keys that a request passes through before it or after it; the same for those that
    /// stand in for one another.
    pub stage: Box<str>,
}

/// Contexts and transactions of one shard.
#[derive(Debug)]
pub struct Proxy {
    pub(crate) transactions: Transactions,
    pub(crate) contexts: Slab<ResponseContext>,
    /// The timers of branches.
    pub(crate) timers: TimerWheel<(u32, ClientId)>,
    pub(crate) ring: KeyRing,
    dialogs: KeyRing,
    loop_key: TagKey,
    pub(crate) tag_key: TagKey,
    pub(crate) shard: ShardId,
    pub(crate) listeners: Listeners,
    pub(crate) outages: Arc<Outages>,
    pub(crate) overload: OverloadControl,
    /// How long a target that failed is avoided, as the last request had it.
    pub(crate) avoid_for: Duration,
    pub(crate) counters: Counters,
    /// Contexts without a final response.
    pub(crate) unanswered: usize,
    /// The client transactions whose branches do not name them.
    pub(crate) shared_branches: SharedBranches,
    /// What was asked of the DNS.
    pub(crate) pending_queries: Slab<PendingQuery>,
    pub(crate) next_question: u32,
    pub(crate) questions: VecDeque<(QueryId, LocateQuery)>,
    pub(crate) progress: VecDeque<CallProgress>,
    pub(crate) hop_events: VecDeque<NextHopEvent>,
    /// Users of own requests whose transaction ended without an answer.
    pub(crate) failed: VecDeque<u32>,
}

impl Proxy {
    /// An engine without work; `ring` is the process's, from which the branch and tag keys are derived.
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
            listeners,
            outages,
            overload,
            avoid_for: Duration::ZERO,
            counters: Counters::default(),
            unanswered: 0,
            shared_branches: SharedBranches::new(ring.current().derive("shared").table64(&[])),
            pending_queries: Slab::new(),
            next_question: 0,
            questions: VecDeque::new(),
            progress: VecDeque::new(),
            hop_events: VecDeque::new(),
            failed: VecDeque::new(),
        }
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

    /// The transactions, for requests that the server answers itself.
    pub const fn transactions(&mut self) -> &mut Transactions {
        &mut self.transactions
    }

    /// The transactions, to be looked at.
    #[must_use]
    pub const fn transactions_ref(&self) -> &Transactions {
        &self.transactions
    }

    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Cancels what is still pending for the INVITE of `server` (RFC 3261 §16.10). The CANCEL itself is answered by the caller.
    pub fn cancel(&mut self, now: Timestamp, server: ServerId) {
        if let Some(index) = self.transactions.server_user(server) {
            self.give_up(now, index);
            self.finish_if_done(now, index);
        }
        self.drain_events(now);
    }

    /// A response that carries a branch of ours.
    pub fn handle_response(
        &mut self,
        now: Timestamp,
        owner: BranchOwner,
        message: &Message<'_>,
        guide: &mut dyn ProxyCallbacks,
    ) -> ResponseOutcome {
        let mut handled = ResponseOutcome::Done;
        match owner {
            BranchOwner::Stateless(place) => match self.client_at(place) {
                Some(client) => handled = self.handle_answer(now, client, message, guide),
                None => {
                    let upstream = guide.upstream(message);
                    self.pass_stateless(now, message, upstream);
                }
            },
            BranchOwner::KeepAlive(_) => self.counters.keep_alive_answers += 1,
            BranchOwner::Client(client) => handled = self.handle_answer(now, client, message, guide),
        }
        self.drain_events(now);
        handled
    }

    /// The client transaction of a branch that does not name it.
    fn client_at(&self, place: u64) -> Option<ClientId> {
        self.shared_branches.find(place).filter(|client| self.transactions.client_user(*client).is_some())
    }

    fn handle_answer(
        &mut self,
        now: Timestamp,
        client: ClientId,
        message: &Message<'_>,
        guide: &mut dyn ProxyCallbacks,
    ) -> ResponseOutcome {
        let own = self.transactions.client_user(client).is_some_and(|user| user != NO_CONTEXT && user >= OWN_USERS);
        // What was forwarded has another Via below ours. A response without one could be passed on to nobody, and must
        // not end its branch as if it had been.
        if !own && message.method() != Method::Cancel && !message.has_next_via() {
            self.counters.stray_responses += 1;
            return ResponseOutcome::Done;
        }
        match self.transactions.handle_response(now, client, message) {
            ResponseVerdict::ToUser { user } if own => return ResponseOutcome::OwnRequest(user),
            ResponseVerdict::ToUser { user } if is_paired(user) => {
                self.forward_repeated_success(now, user, client, message);
            }
            ResponseVerdict::ToUser { user } => self.on_response(now, user, client, message, guide),
            ResponseVerdict::Absorbed => {}
            //= rfc6026#8.9
            // A stray response is dropped: without its transaction there is no telling that it was asked for.
            ResponseVerdict::Unknown => self.counters.stray_responses += 1,
        }
        ResponseOutcome::Done
    }

    /// A success to an INVITE that came before.
    fn forward_repeated_success(&mut self, now: Timestamp, user: u32, client: ClientId, message: &Message<'_>) {
        let server = self.transactions.server_of(user & !PAIRED, PAIRED | client.index());
        if let Some((server, status)) = server.zip(message.status()) {
            self.forward_upstream(now, server, status, message);
        }
    }

    /// Timers of transactions and branches.
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

    //= rfc3261#16.8
    pub(crate) fn on_timer_c(&mut self, now: Timestamp, index: u32, client: ClientId) {
        self.counters.rang_out += 1;
        let has_provisional = self.transactions.client_has_provisional(client);
        let Some(branch) = self.context_mut(index).and_then(|context| context.branch_mut(client)) else { return };
        branch.has_timer_c_fired = true;
        branch.remaining = None;
        if has_provisional {
            self.transactions.cancel(now, client);
            return;
        }
        // Without any provisional response it is as if 408 had come; whatever still comes is cancelled.
        branch.is_cancel_pending = true;
        self.fail_branch(now, index, client, Status::REQUEST_TIMEOUT);
    }

    /// The time of a step is over: the next one begins at once, also where the phone that rang does not answer its CANCEL.
    fn on_fork_timeout(&mut self, now: Timestamp, index: u32, client: ClientId) {
        self.on_timer_c(now, index, client);
        self.fail_branch(now, index, client, Status::REQUEST_TIMEOUT);
    }

    /// A hint that datagrams do not reach `peer`.
    pub fn handle_unreachable(&mut self, now: Timestamp, peer: SocketAddr) {
        self.transactions.handle_unreachable(now, peer);
        self.drain_events(now);
    }

    /// No connection for `flow` could be opened, or the one that it means is gone.
    pub fn handle_unconnected(&mut self, now: Timestamp, flow: &Flow) {
        self.transactions.handle_unconnected(now, flow);
        self.drain_events(now);
    }

    /// A connection is closed.
    pub fn handle_closed(&mut self, now: Timestamp, connection: ConnId, peer: SocketAddr) {
        self.transactions.handle_closed(now, connection, peer);
        self.drain_events(now);
    }

    /// The earliest moment at which [`handle_timeout`](Self::handle_timeout) has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        let transactions = self.transactions.poll_timeout();
        let branches = self.timers.next_deadline().map(|at| Wakeup { at, reason: "branch" });
        match (transactions, branches) {
            (Some(a), Some(b)) => Some(if a.at <= b.at { a } else { b }),
            (a, b) => a.or(b),
        }
    }

    /// Takes one message that is to be sent; see [`Transactions::poll_transmit`].
    pub fn poll_transmit(&mut self, out: &mut Buf) -> Option<Flow> {
        self.transactions.poll_transmit(out)
    }

    /// Takes one question for the DNS; its answer goes to [`handle_resolved`](Self::handle_resolved).
    pub fn poll_question(&mut self) -> Option<(QueryId, LocateQuery)> {
        self.questions.pop_front()
    }

    /// Whether there is nothing to take of what follows: steps of calls, news of others, own requests that nobody answered.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.progress.is_empty() && self.hop_events.is_empty() && self.failed.is_empty()
    }

    /// Takes one step of a call that is followed.
    pub fn poll_progress(&mut self) -> Option<CallProgress> {
        self.progress.pop_front()
    }

    /// Takes one change of what is known of others.
    pub fn poll_hop_event(&mut self) -> Option<NextHopEvent> {
        self.hop_events.pop_front()
    }

    /// Takes one request of the server's own that nobody answered: the user that it was sent for.
    pub fn poll_failed(&mut self) -> Option<u32> {
        self.failed.pop_front()
    }

    /// Forwarded requests that no final response has answered yet: what a server that is being stopped waits for.
    #[must_use]
    pub const fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Contexts that exist.
    #[must_use]
    pub fn contexts(&self) -> usize {
        self.contexts.len()
    }

    /// What must hold between two inputs.
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
                Event::ClientTimeout { user, id } => {
                    // Where Timer B is the shorter one, it ends the time of one place of several.
                    let context = self.context(user);
                    let is_out = context.is_some_and(|context| {
                        let branch = context.branches.iter().find(|branch| branch.client == id);
                        context.is_invite && branch.is_some_and(Branch::has_alternative_hops)
                    });
                    let status = if is_out { Status::SERVICE_UNAVAILABLE } else { Status::REQUEST_TIMEOUT };
                    self.on_branch_failed(now, user, id, status, Cause::Silent);
                    self.on_ended(user);
                }
                Event::ClientFailed { user, id } => {
                    let lost = self.context_mut(user).and_then(|context| context.branch_mut(id));
                    let status = lost.map_or(Status::SERVICE_UNAVAILABLE, |branch| branch.unreachable_status());
                    self.on_branch_failed(now, user, id, status, Cause::Unreachable);
                    self.on_ended(user);
                }
                Event::ClientEnded { user, .. }
                | Event::ServerEnded { user, .. }
                | Event::ServerTimeout { user, .. } => {
                    self.on_ended(user);
                }
            }
        }
    }

    fn on_branch_failed(&mut self, now: Timestamp, index: u32, client: ClientId, status: Status, cause: Cause) {
        let branch = self.context_mut(index).and_then(|context| context.branch_mut(client));
        if branch.is_some_and(|branch| branch.state == BranchState::Pending && !branch.has_timer_c_fired) {
            self.avoid(now, index, client, cause);
        }
        self.fail_branch(now, index, client, status);
    }

    /// A branch has come to nothing: another place takes its own, or `status` counts as its answer.
    pub(crate) fn fail_branch(&mut self, now: Timestamp, index: u32, client: ClientId, status: Status) {
        self.end_timer(index, client);
        let Some(context) = self.context_mut(index) else { return };
        let (is_invite, may_go_on) = (context.is_invite, context.may_try_more());
        if context.branch_mut(client).is_none_or(|branch| branch.state != BranchState::Pending) {
            return;
        }
        if may_go_on && self.try_next_hop(now, index, client) {
            return;
        }
        let Some(branch) = self.context_mut(index).and_then(|context| context.branch_mut(client)) else { return };
        //= rfc4320#4.1
        // A non-INVITE that timed out is not answered 408: the answer would come too late for everybody.
        if !is_invite && status == Status::REQUEST_TIMEOUT {
            branch.end(BranchState::TimedOut);
        } else {
            branch.end(BranchState::Final(status));
            self.keep_if_better(index, BestResponse { status, response: None });
        }
        self.finish_if_done(now, index);
    }

    /// Nothing more is tried for the request, and what is pending is cancelled.
    pub(crate) fn give_up(&mut self, now: Timestamp, index: u32) {
        let Some(context) = self.context_mut(index) else { return };
        context.is_given_up = true;
        if let Some(later) = &mut context.fork {
            later.targets.clear();
        }
        self.cancel_pending(now, index);
    }

    pub(crate) fn cancel_pending(&mut self, now: Timestamp, index: u32) {
        let Some(context) = self.context_mut(index).filter(|context| context.is_invite) else { return };
        for branch in &mut context.branches {
            branch.remaining = None;
            if branch.state == BranchState::Resolving {
                // Nothing was sent; the answer will find nobody.
                branch.end(BranchState::Final(Status::REQUEST_TERMINATED));
            }
        }
        let pending = context.branches.iter().filter(|branch| branch.state == BranchState::Pending);
        let clients: SmallVec<[_; 4]> = pending.map(|branch| branch.client).collect();
        for client in clients {
            let sent = self.transactions.client_has_provisional(client) && self.transactions.cancel(now, client);
            if let Some(branch) = self.context_mut(index).and_then(|context| context.branch_mut(client)) {
                branch.is_cancel_pending = !sent;
            }
        }
    }

    pub(crate) fn end_timer(&mut self, index: u32, client: ClientId) {
        let branch = self.context_mut(index).and_then(|context| context.branch_mut(client));
        if let Some((timer, _)) = branch.and_then(|branch| branch.timer.take()) {
            self.timers.cancel(timer);
        }
    }

    pub(crate) fn on_ended(&mut self, index: u32) {
        let Some(context) = self.context_mut(index) else { return };
        context.pending_refs = context.pending_refs.saturating_sub(1);
        if context.pending_refs == 0 {
            self.remove(index);
        }
    }

    /// Ends a context of one branch that has done all it ever will: its transactions absorb what still comes, and tell
    /// nobody. Before its final response is sent, for a transaction that has nobody to tell keeps less of itself once it is
    /// answered. They make a pair where a success to an INVITE may come again. What is still to be cancelled has work to do.
    pub(crate) fn end_if_over(&mut self, index: u32) {
        let Some(context) = self.context(index).filter(|context| context.is_answered) else { return };
        let [branch] = &context.branches[..] else { return };
        let BranchState::Final(status) = branch.state else { return };
        if branch.flow.is_none() || (context.is_invite && branch.is_stopped() && !status.is_success()) {
            return;
        }
        let (server, client) = (context.server, branch.client);
        let of_pair = context.is_invite && status.is_success();
        let user = |other: u32| if of_pair { PAIRED | other } else { NO_CONTEXT };
        self.transactions.set_server_user(server, user(client.index()));
        self.transactions.set_client_user(client, user(server.index()));
        self.remove(index);
    }

    fn remove(&mut self, index: u32) {
        self.mark_answered(index);
        self.forget_request(index);
        let context = self.contexts.remove(index as usize);
        for (timer, _) in context.branches.into_iter().filter_map(|branch| branch.timer) {
            self.timers.cancel(timer);
        }
    }

    pub(crate) fn context(&self, index: u32) -> Option<&ResponseContext> {
        self.contexts.get(index as usize)
    }

    pub(crate) fn context_mut(&mut self, index: u32) -> Option<&mut ResponseContext> {
        self.contexts.get_mut(index as usize)
    }
}

fn is_paired(user: u32) -> bool {
    (PAIRED..OWN_USERS).contains(&user)
}
