//! The proxy's engine: one response context a forwarded request, on top of the transactions.

use core::net::SocketAddr;
use core::time::Duration;

use slab::Slab;
use smallvec::SmallVec;
use strowger_foundation::{Buf, Flow, KeyRing, ShardId, TagKey, TimerWheel, Timestamp, Wakeup};
use strowger_message::{Message, Method, Status};
use strowger_transaction::{Event, Kind, ResponseVerdict, ServerId, Transactions};

use crate::answer::is_challenge;
use crate::branch::{Branch as BranchTag, Owner};
use crate::context::{self, Best, Branch, Context, Progress};
use crate::forward::{self, Edits, Hop};
use crate::policy::MAX_BRANCHES;
use crate::routing::{self, Outsides};

/// The user of a server transaction that no context belongs to.
pub const NO_CONTEXT: u32 = u32::MAX;

/// One place that a request is sent to.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    /// The Request-URI there.
    pub request_uri: SmallVec<[u8; 64]>,
    /// Listener and address.
    pub flow: Flow,
    /// The listener's sent-by.
    pub sent_by: &'a [u8],
    /// The flow is the outside of a translation: what follows in the dialog goes there too.
    pub translated: bool,
}

/// What a request is forwarded with.
#[derive(Clone, Debug)]
pub struct Forwarding<'a> {
    /// The edits that all branches share.
    pub edits: Edits<'a>,
    /// Where to; all at once.
    pub targets: SmallVec<[Target<'a>; 2]>,
    /// The caller's address, where a translation hides it: what comes back in the dialog goes there.
    pub caller_outside: Option<SocketAddr>,
    /// The loop hash of the request as it came in.
    pub loop_hash: u64,
    /// Max-Breadth to be shared out, or written where there was none (RFC 5393 §5.3.3).
    pub max_breadth: u32,
    /// Timer C.
    pub ring_timeout: Duration,
}

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
}

/// Contexts and transactions of one shard.
#[derive(Debug)]
pub struct Proxy {
    pub(crate) transactions: Transactions,
    pub(crate) contexts: Slab<Context>,
    timer_c: TimerWheel<(u32, strowger_transaction::ClientId)>,
    ring: KeyRing,
    pub(crate) tag_key: TagKey,
    shard: ShardId,
    pub(crate) counters: Counters,
    /// Contexts without a final response.
    pub(crate) unanswered: usize,
}

impl Proxy {
    /// An engine without work; `ring` is the process's, from which the branch and tag keys are derived.
    #[must_use]
    pub fn new(shard: ShardId, ring: &KeyRing, transactions: Transactions) -> Self {
        Self {
            transactions,
            contexts: Slab::new(),
            timer_c: TimerWheel::new(),
            ring: ring.derive("branch"),
            tag_key: ring.current().derive("to-tag"),
            shard,
            counters: Counters::default(),
            unanswered: 0,
        }
    }

    /// The key ring of branches and Record-Routes.
    #[must_use]
    pub const fn ring(&self) -> &KeyRing {
        &self.ring
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

    /// Forwards the request of the server transaction `server` to all targets at once. Where not one branch can be opened
    /// the request is answered 503.
    pub fn forward(&mut self, now: Timestamp, server: ServerId, message: &Message<'_>, forwarding: &Forwarding<'_>) {
        let is_invite = message.method() == Method::Invite;
        let request = self.transactions.pool().copy_of(message.bytes());
        let index = self.contexts.insert(Context {
            server,
            is_invite,
            ring_timeout: forwarding.ring_timeout,
            source: forwarding.edits.source,
            request: Some(request),
            branches: SmallVec::new(),
            best: None,
            answered: false,
            live: 1,
        });
        let index = narrow(index);
        self.transactions.set_server_user(server, index);
        self.counters.forwarded += 1;
        self.unanswered = self.unanswered.saturating_add(1);
        let count = forwarding.targets.len().min(MAX_BRANCHES);
        for (number, target) in forwarding.targets.iter().take(count).enumerate() {
            let breadth = share(forwarding.max_breadth, count, number);
            self.open_branch(now, index, message, forwarding, target, breadth);
        }
        if self.context(index).is_some_and(|context| context.branches.is_empty()) {
            // This 503 is of ourselves, so it leaves as one.
            let status = Status::SERVICE_UNAVAILABLE;
            let response = self.write_local(index, status, &forwarding.edits.source);
            self.finish(now, index, Best { status, response });
        }
        self.drain_events(now);
    }

    fn open_branch(
        &mut self,
        now: Timestamp,
        index: u32,
        message: &Message<'_>,
        forwarding: &Forwarding<'_>,
        target: &Target<'_>,
        max_breadth: u32,
    ) {
        let Ok(client) = self.transactions.reserve_client() else {
            self.counters.table_full += 1;
            return;
        };
        let owner = Owner::Client(client);
        let tag = BranchTag { shard: self.shard, owner, loop_hash: forwarding.loop_hash };
        let request = self.write_branch(message, forwarding, target, tag, Some(max_breadth));
        let is_invite = message.method() == Method::Invite;
        let kind = if is_invite { Kind::Invite } else { Kind::NonInvite };
        let timer_c = is_invite.then(|| self.timer_c.insert(now + forwarding.ring_timeout, (index, client)));
        if let Some(context) = self.context_mut(index) {
            context.branches.push(Branch::new(client, timer_c));
            context.live = context.live.saturating_add(1);
        }
        self.transactions.start_client(now, client, kind, target.flow, request, index);
    }

    fn write_branch(
        &mut self,
        message: &Message<'_>,
        forwarding: &Forwarding<'_>,
        target: &Target<'_>,
        tag: BranchTag,
        max_breadth: Option<u32>,
    ) -> Buf {
        let branch = tag.encode(&self.ring);
        let recorded = forwarding.edits.record_route && establishes_dialog(message);
        let record_route = recorded.then(|| {
            let callee = target.translated.then_some(target.flow.peer);
            let outsides = Outsides { caller: forwarding.caller_outside, callee };
            routing::record_route(&self.ring, target.sent_by, message, outsides)
        });
        let hop = Hop {
            request_uri: &target.request_uri,
            sent_by: target.sent_by,
            transport: target.flow.transport.as_str(),
            branch: &branch,
            record_route: record_route.as_deref(),
            max_breadth,
        };
        let mut request = self.transactions.pool().take(message.bytes().len().saturating_add(400));
        forward::write_request(&mut request, message, &forwarding.edits, &hop);
        request
    }

    //= rfc3261#16.11
    /// Forwards a request without keeping anything: the first target takes it.
    pub fn forward_stateless(&mut self, message: &Message<'_>, forwarding: &Forwarding<'_>) {
        let Some(target) = forwarding.targets.first() else { return };
        let owner = crate::branch::stateless_owner(&self.ring, message);
        let tag = BranchTag { shard: self.shard, owner, loop_hash: forwarding.loop_hash };
        // An ACK has neither breadth nor forks of its own.
        let breadth = (message.method() != Method::Ack).then_some(forwarding.max_breadth);
        let request = self.write_branch(message, forwarding, target, tag, breadth);
        self.counters.forwarded_stateless += 1;
        self.transactions.send_once(target.flow, request);
    }

    /// Cancels what is still pending for the INVITE of `server` (RFC 3261 §16.10). The CANCEL itself is answered by the caller.
    pub fn cancel(&mut self, now: Timestamp, server: ServerId) {
        if let Some(index) = self.transactions.server_user(server) {
            self.cancel_pending(now, index);
        }
        self.drain_events(now);
    }

    /// A response that carries a branch of ours. `upstream` says from where a stateless one is sent on: the listener's
    /// flow towards the Via below ours.
    pub fn handle_response(
        &mut self,
        now: Timestamp,
        owner: Owner,
        message: &Message<'_>,
        upstream: impl FnOnce(&Message<'_>) -> Option<Flow>,
    ) {
        match owner {
            Owner::Stateless(_) => self.pass_stateless(message, upstream(message)),
            Owner::KeepAlive(_) => self.counters.keep_alive_answers += 1,
            // What was forwarded has another Via below ours. A response without one could be passed on to nobody, and must
            // not end its branch as if it had been.
            Owner::Client(_) if message.method() != Method::Cancel && forward::next_via(message).is_none() => {
                self.counters.stray_responses += 1;
            }
            Owner::Client(client) => match self.transactions.handle_response(now, client, message) {
                ResponseVerdict::ToUser { user } => self.on_response(now, user, client, message),
                ResponseVerdict::Absorbed => {}
                //= rfc6026#8.9
                // A stray response is dropped: without its transaction there is no telling that it was asked for.
                ResponseVerdict::Unknown => self.counters.stray_responses += 1,
            },
        }
        self.drain_events(now);
    }

    fn pass_stateless(&mut self, message: &Message<'_>, upstream: Option<Flow>) {
        let mut response = self.transactions.pool().take(message.bytes().len());
        match upstream.filter(|_| forward::write_response(&mut response, message).is_some()) {
            Some(flow) => {
                self.counters.responses += 1;
                self.transactions.send_once(flow, response);
            }
            None => {
                self.counters.stray_responses += 1;
                self.transactions.pool().give(response);
            }
        }
    }

    fn on_response(
        &mut self,
        now: Timestamp,
        index: u32,
        client: strowger_transaction::ClientId,
        message: &Message<'_>,
    ) {
        let Some(status) = message.status() else { return };
        if status.is_provisional() {
            self.on_provisional(now, index, client, message, status);
            return;
        }
        self.end_timer_c(index, client);
        let Some(context) = self.context_mut(index) else { return };
        let server = context.server;
        let Some(branch) = context.branch_mut(client) else { return };
        let repeated = branch.progress != Progress::Pending;
        let counted = if branch.rang_out && !status.is_success() { Status::REQUEST_TIMEOUT } else { status };
        branch.progress = Progress::Final(counted);
        if status.is_success() {
            //= rfc3261#16.7
            // Every 2xx to an INVITE goes up at once (step 5), also those that come after the first; of a non-INVITE the
            // first answer is the only one.
            if context.is_invite || !context.answered {
                self.mark_answered(index);
                self.pass_up(now, server, status, message);
            }
            self.forget_request(index);
            self.cancel_pending(now, index);
            return;
        }
        if repeated || context.answered {
            return;
        }
        let best = context.best.as_ref().map(|best| best.status);
        if best.is_none_or(|best| context::is_better(counted, best)) {
            let response = (counted == status && status != Status::SERVICE_UNAVAILABLE)
                .then(|| self.transactions.pool().take(message.bytes().len()))
                .and_then(|mut buf| forward::write_response(&mut buf, message).map(|()| buf));
            self.replace_best(index, Best { status: counted, response });
        } else if best.is_some_and(is_challenge) && is_challenge(counted) {
            self.collect_challenges(index, message);
        }
        if status.class() == 6 {
            self.cancel_pending(now, index);
        }
        self.finish_if_done(now, index);
    }

    fn on_provisional(
        &mut self,
        now: Timestamp,
        index: u32,
        client: strowger_transaction::ClientId,
        message: &Message<'_>,
        status: Status,
    ) {
        let Some(context) = self.context_mut(index) else { return };
        let (server, answered, is_invite) = (context.server, context.answered, context.is_invite);
        let Some(branch) = context.branch_mut(client) else { return };
        if branch.cancel_wanted {
            branch.cancel_wanted = false;
            self.transactions.cancel(now, client);
        }
        if status != Status::TRYING {
            self.reset_timer_c(now, index, client);
        }
        // A 100 is hop by hop; a non-INVITE has no other provisional response (RFC 4320 §4.1).
        if status != Status::TRYING && is_invite && !answered {
            self.pass_up(now, server, status, message);
        }
    }

    fn pass_up(&mut self, now: Timestamp, server: ServerId, status: Status, message: &Message<'_>) {
        let mut response = self.transactions.pool().take(message.bytes().len());
        if forward::write_response(&mut response, message).is_none() {
            self.counters.stray_responses += 1;
            self.transactions.pool().give(response);
            return;
        }
        self.counters.responses += 1;
        self.transactions.respond(now, server, status, response);
    }

    /// Timers of transactions and Timer C.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.transactions.handle_timeout(now);
        while let Some((index, client)) = self.timer_c.poll_expired(now) {
            self.on_timer_c(now, index, client);
        }
        self.drain_events(now);
    }

    //= rfc3261#16.8
    fn on_timer_c(&mut self, now: Timestamp, index: u32, client: strowger_transaction::ClientId) {
        self.counters.rang_out += 1;
        let has_provisional = self.transactions.client_has_provisional(client);
        let Some(branch) = self.context_mut(index).and_then(|context| context.branch_mut(client)) else { return };
        branch.timer_c = None;
        branch.rang_out = true;
        if has_provisional {
            self.transactions.cancel(now, client);
            return;
        }
        // Without any provisional response it is as if 408 had come; whatever still comes is cancelled.
        branch.cancel_wanted = true;
        self.on_branch_failed(now, index, client, Status::REQUEST_TIMEOUT);
    }

    /// A hint that `peer` cannot be reached.
    pub fn handle_unreachable(&mut self, now: Timestamp, peer: SocketAddr) {
        self.transactions.handle_unreachable(now, peer);
        self.drain_events(now);
    }

    /// The earliest moment at which [`handle_timeout`](Self::handle_timeout) has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        let transactions = self.transactions.poll_timeout();
        let timer_c = self.timer_c.next_deadline().map(|at| Wakeup { at, reason: "timer C" });
        match (transactions, timer_c) {
            (Some(a), Some(b)) => Some(if a.at <= b.at { a } else { b }),
            (a, b) => a.or(b),
        }
    }

    /// Takes one message that is to be sent; see [`Transactions::poll_transmit`].
    pub fn poll_transmit(&mut self, out: &mut Buf) -> Option<Flow> {
        self.transactions.poll_transmit(out)
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
        let unanswered = self.contexts.iter().filter(|(_, context)| !context.answered).count();
        debug_assert_eq!(unanswered, self.unanswered, "each context is counted until it is answered");
        for (_, context) in &self.contexts {
            debug_assert!(context.live > 0, "a context outlives its transactions");
            debug_assert!(!context.answered || context.best.is_none(), "an answered request keeps no response");
        }
    }

    fn drain_events(&mut self, now: Timestamp) {
        while let Some(event) = self.transactions.poll_event() {
            match event {
                Event::ClientTimeout { user, id } => {
                    self.on_branch_failed(now, user, id, Status::REQUEST_TIMEOUT);
                    self.on_ended(user);
                }
                Event::ClientFailed { user, id } => {
                    self.on_branch_failed(now, user, id, Status::SERVICE_UNAVAILABLE);
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

    fn on_branch_failed(&mut self, now: Timestamp, index: u32, client: strowger_transaction::ClientId, status: Status) {
        self.end_timer_c(index, client);
        let Some(context) = self.context_mut(index) else { return };
        let (is_invite, answered) = (context.is_invite, context.answered);
        let Some(branch) = context.branch_mut(client) else { return };
        if branch.progress != Progress::Pending {
            return;
        }
        //= rfc4320#4.1
        // A non-INVITE that timed out is not answered 408: the answer would come too late for everybody.
        if !is_invite && status == Status::REQUEST_TIMEOUT {
            branch.progress = Progress::Silent;
        } else {
            branch.progress = Progress::Final(status);
            if !answered && context.best.as_ref().is_none_or(|best| context::is_better(status, best.status)) {
                self.replace_best(index, Best { status, response: None });
            }
        }
        self.finish_if_done(now, index);
    }

    fn cancel_pending(&mut self, now: Timestamp, index: u32) {
        let Some(context) = self.context_mut(index).filter(|context| context.is_invite) else { return };
        let pending = context.branches.iter().filter(|branch| branch.progress == Progress::Pending);
        let clients: SmallVec<[_; 4]> = pending.map(|branch| branch.client).collect();
        for client in clients {
            let sent = self.transactions.client_has_provisional(client) && self.transactions.cancel(now, client);
            if let Some(branch) = self.context_mut(index).and_then(|context| context.branch_mut(client)) {
                branch.cancel_wanted = !sent;
            }
        }
    }

    //= rfc3261#16.7 step 2
    /// A branch that says that it still rings is waited for anew.
    fn reset_timer_c(&mut self, now: Timestamp, index: u32, client: strowger_transaction::ClientId) {
        let Some(context) = self.contexts.get_mut(index as usize) else { return };
        let deadline = now + context.ring_timeout;
        let Some(timer) = context.branch_mut(client).and_then(|branch| branch.timer_c.as_mut()) else { return };
        self.timer_c.cancel(*timer);
        *timer = self.timer_c.insert(deadline, (index, client));
    }

    fn end_timer_c(&mut self, index: u32, client: strowger_transaction::ClientId) {
        let branch = self.context_mut(index).and_then(|context| context.branch_mut(client));
        if let Some(timer) = branch.and_then(|branch| branch.timer_c.take()) {
            self.timer_c.cancel(timer);
        }
    }

    fn on_ended(&mut self, index: u32) {
        let Some(context) = self.context_mut(index) else { return };
        context.live = context.live.saturating_sub(1);
        if context.live > 0 {
            return;
        }
        self.mark_answered(index);
        self.forget_request(index);
        let context = self.contexts.remove(index as usize);
        for timer in context.branches.into_iter().filter_map(|branch| branch.timer_c) {
            self.timer_c.cancel(timer);
        }
    }

    fn context(&self, index: u32) -> Option<&Context> {
        self.contexts.get(index as usize)
    }

    pub(crate) fn context_mut(&mut self, index: u32) -> Option<&mut Context> {
        self.contexts.get_mut(index as usize)
    }
}

/// Whether the request begins a dialog that is to stay on our path.
fn establishes_dialog(message: &Message<'_>) -> bool {
    let begins = matches!(message.method(), Method::Invite | Method::Subscribe | Method::Refer);
    begins && message.to().tag().is_none()
}

//= rfc5393#5.3.3
/// The part of the breadth that one of `count` branches gets; all parts together are the whole.
fn share(breadth: u32, count: usize, number: usize) -> u32 {
    let count = u32::try_from(count).unwrap_or(u32::MAX).max(1);
    let extra = u32::from(u32::try_from(number).unwrap_or(u32::MAX) < breadth % count);
    (breadth / count).saturating_add(extra)
}

fn narrow(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NO_CONTEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breadth_is_shared_out_whole() {
        assert_eq!((0..3).map(|n| share(60, 3, n)).collect::<Vec<_>>(), [20, 20, 20]);
        assert_eq!((0..3).map(|n| share(5, 3, n)).collect::<Vec<_>>(), [2, 2, 1]);
        assert_eq!(share(1, 1, 0), 1);
    }
}
