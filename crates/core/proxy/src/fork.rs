//! Forking: parallel and serial destinations, their next hops, and DNS lookups before sending (RFC 3261 §16.5, §16.6;
//! RFC 3263 §4.3).

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;

use smallvec::SmallVec;
use strowger_balancer::{CallGuard, MethodClass};
use strowger_foundation::{Buf, Flow, ListenerId, Timestamp, Transport};
use strowger_locate::{LocateQuery, QueryId};
use strowger_message::{HeaderName, Message, Method, NameAddr, Status};
use strowger_transaction::{ClientId, Kind, ServerId};

use crate::branch::{BranchId as BranchTag, BranchOwner};
use crate::context::{
    BestResponse, Branch, BranchState, BranchTimer, CurrentDestination, ForkState, PendingQuery, ResponseContext,
};
use crate::engine::{NO_CONTEXT, Proxy};
use crate::forward::{self, BranchEdits};
use crate::forward_params::{Forwarding, OwnedForwarding};
use crate::policy::{MAX_ATTEMPTS, MAX_BRANCHES};
use crate::routing::{self, DialogEnds};
use crate::target::{BalancedTarget, NextHop, NextHopAddress, NextHopKind, Target};

/// Largest number of pending DNS queries of a shard; a further one fails at once.
pub const MAX_QUESTIONS: usize = 16_384;

/// What the DNS is asked on behalf of.
#[derive(Debug)]
pub struct QueryOrigin {
    /// A number common to all requests of the call.
    pub choice: u64,
    /// The listener to send from.
    pub listener: ListenerId,
    /// What was asked.
    pub question: LocateQuery,
    /// The address of who named the host; `None` if the operator did.
    pub named_by: Option<IpAddr>,
}

impl Proxy {
    /// Forwards the request of the server transaction `server`: first to the targets with the highest q in parallel,
    /// then to the others. If no branch can be opened, responds with 503. The contents of `targets` are undefined
    /// afterwards.
    pub fn forward(
        &mut self,
        now: Timestamp,
        server: ServerId,
        message: &Message<'_>,
        forwarding: &Forwarding<'_>,
        targets: &mut Vec<Target>,
    ) {
        let request = self.transactions.pool().copy_of(message.bytes());
        let index = narrow(self.contexts.insert(ResponseContext {
            server,
            is_invite: message.method() == Method::Invite,
            ring_timeout: forwarding.policy.ring_timeout,
            source: forwarding.edits.source,
            request: Some(request),
            branches: SmallVec::new(),
            fork: None,
            best: None,
            is_answered: false,
            is_given_up: false,
            pending_refs: 1,
            call: forwarding.call,
            call_guard: None,
            is_balanced: false,
        }));
        self.transactions.set_server_user(server, index);
        self.counters.forwarded += 1;
        self.unanswered = self.unanswered.saturating_add(1);
        self.avoid_for = forwarding.policy.avoid_for;
        targets.truncate(MAX_BRANCHES);
        let first = sort_by_q(targets);
        if first < targets.len() || forwarding.policy.recurse {
            let seen = targets
                .iter()
                .filter_map(|target| target.next_hops.first())
                .map(|place| self.uri_hash(place))
                .collect();
            let waiting: Vec<Target> = targets.drain(first..).rev().collect();
            let later =
                ForkState { forwarding: OwnedForwarding::of(forwarding), targets: waiting, seen, redirections: 0 };
            if let Some(context) = self.context_mut(index) {
                context.fork = Some(Box::new(later));
            }
        }
        self.open_step(now, index, message, forwarding, targets);
        if let Some(context) = self.context(index).filter(|context| context.branches.is_empty()) {
            // This 503 is our own, so it is sent as 503.
            let retry_after = context.is_balanced.then_some(NO_TARGET_RETRY_AFTER);
            let response = self.write_own(now, index, Status::SERVICE_UNAVAILABLE, retry_after);
            self.keep_if_better(index, BestResponse { status: Status::SERVICE_UNAVAILABLE, response });
        }
        self.finish_if_done(now, index);
        self.drain_events(now);
    }

    /// Opens a branch for each of `targets`.
    fn open_step(
        &mut self,
        now: Timestamp,
        index: u32,
        message: &Message<'_>,
        forwarding: &Forwarding<'_>,
        targets: &mut [Target],
    ) {
        let count = targets.len();
        for (number, target) in targets.iter_mut().enumerate() {
            //= rfc5393#5.3.3:no-hops
            let breadth = share(forwarding.max_breadth, count, number);
            self.try_target(now, index, message, forwarding, target, breadth, &[]);
        }
    }

    /// Continues with the destinations of the next lower q. Returns whether a branch was opened.
    pub(crate) fn open_next_step(&mut self, now: Timestamp, index: u32) -> bool {
        loop {
            let Some(later) = self.context_mut(index).filter(|c| c.may_try_more()).and_then(|c| c.fork.as_mut()) else {
                return false;
            };
            let Some(next) = later.targets.pop() else { return false };
            let mut step: SmallVec<[Target; 1]> = SmallVec::new();
            let q = next.q;
            step.push(next);
            //= rfc5393#5.3.3
            //= rfc5393#5.3.3.1:reuse
            // Targets beyond the breadth form a further step.
            let breadth = usize::try_from(later.forwarding.max_breadth).unwrap_or(usize::MAX);
            while step.len() < breadth
                && let Some(equal) = later.targets.pop_if(|target| target.q == q)
            {
                step.push(equal);
            }
            let before = self.context(index).map_or(0, |context| context.branches.len());
            self.with_request(index, |proxy, message, forwarding| {
                proxy.open_step(now, index, message, forwarding, &mut step);
            });
            if self.context(index).is_some_and(|context| context.branches.len() > before && context.is_pending()) {
                return true;
            }
        }
    }

    /// Returns the origin of `query`; `None` if nothing waits for it any longer.
    #[must_use]
    pub fn query_origin(&self, query: QueryId) -> Option<QueryOrigin> {
        let asked = self.pending_queries.get(usize::try_from(query.0 >> 32).ok()?)?;
        let context = self.context(asked.context)?;
        let message = Message::parse(context.request.as_ref()?).ok()?;
        let branch = context.branches.iter().find(|branch| branch.client == asked.client)?;
        let place = branch.remaining.as_ref().and_then(|rest| rest.target.next_hops.first());
        let Some(NextHopAddress::Name { listener, question, named_by }) = place.map(|place| &place.address) else {
            return None;
        };
        let choice = self.tag_key.table64(&[message.call_id()]);
        Some(QueryOrigin { choice, listener: *listener, question: question.as_ref().clone(), named_by: *named_by })
    }

    /// Handles the result of the DNS query `query`: the flows in order of preference, or the status for the caller.
    pub fn handle_resolved(&mut self, now: Timestamp, query: QueryId, flows: Result<SmallVec<[Flow; 4]>, Status>) {
        let (slot, serial) = (query.0 >> 32, query.0 & u64::from(u32::MAX));
        let slot = usize::try_from(slot).unwrap_or(usize::MAX);
        if self.pending_queries.get(slot).is_none_or(|asked| u64::from(asked.serial) != serial) {
            return;
        }
        let PendingQuery { context: index, client, .. } = self.pending_queries.remove(slot);
        self.transactions.release_client(client);
        self.on_resolved(now, index, client, flows);
        self.on_ended(index);
        self.drain_events(now);
    }

    fn on_resolved(
        &mut self,
        now: Timestamp,
        index: u32,
        client: ClientId,
        flows: Result<SmallVec<[Flow; 4]>, Status>,
    ) {
        let Some(context) = self.context_mut(index) else { return };
        let may_go_on = context.may_try_more();
        // A cancelled branch ignores the result.
        let branch = context.branch_mut(client).filter(|branch| branch.state == BranchState::Resolving);
        let Some(branch) = branch else { return };
        let rest = branch.remaining.take().filter(|_| may_go_on);
        let Some(rest) = rest else {
            branch.end(BranchState::TimedOut);
            self.finish_if_done(now, index);
            return;
        };
        let CurrentDestination { mut target, breadth, .. } = *rest;
        let current = target.next_hops.remove(0);
        let status = flows.as_ref().err().copied().unwrap_or(Status::SERVICE_UNAVAILABLE);
        for flow in flows.into_iter().flatten().rev() {
            target.next_hops.insert(0, NextHop { address: NextHopAddress::Flow(flow), ..current.clone() });
        }
        if target.next_hops.is_empty() || !self.replace_branch(now, index, client, &mut target, breadth, &[]) {
            if let Some(branch) = self.context_mut(index).and_then(|context| context.branch_mut(client)) {
                branch.end(BranchState::Final(status));
            }
            self.keep_own(now, index, status);
        }
        self.finish_if_done(now, index);
    }

    /// Opens a branch to the first next hop of `target`; takes `target` if it is needed later. Returns whether that
    /// succeeded.
    #[expect(clippy::too_many_arguments, reason = "all of it is the branch's")]
    pub(crate) fn try_target(
        &mut self,
        now: Timestamp,
        index: u32,
        message: &Message<'_>,
        forwarding: &Forwarding<'_>,
        target: &mut Target,
        breadth: u32,
        credentials: &[u8],
    ) -> bool {
        let attempts = self.context(index).map_or(0, |context| context.branches.len());
        if target.next_hops.is_empty() || attempts >= MAX_ATTEMPTS {
            return false;
        }
        if self.overload.neighbours.has_any(now) && !self.skip_overloaded_hops(now, message, target) {
            return false;
        }
        target.has_several_hops |= self.has_alternative(now, target);
        let is_call = message.method() == Method::Invite && message.to().tag().is_none();
        let seat = if is_call { target.acquire_call() } else { Ok(None) };
        let (Ok(seat), Some(place)) = (seat, target.next_hops.first()) else {
            if let Some(context) = self.context_mut(index) {
                context.is_balanced = true;
            }
            return false;
        };
        let Ok(client) = self.transactions.reserve_client() else {
            self.counters.table_full += 1;
            return false;
        };
        match place.address {
            NextHopAddress::Flow(flow) => {
                let sending = BranchSend { target, flow, breadth, credentials, is_call, call_guard: seat };
                self.send(now, index, client, message, forwarding, sending);
                true
            }
            NextHopAddress::Name { .. } => {
                self.store_forwarding(index, forwarding);
                self.resolve(
                    index,
                    client,
                    CurrentDestination { target: core::mem::take(target), has_answered_challenge: false, breadth },
                )
            }
        }
    }

    /// Queues a DNS query for a next hop. Returns whether it was accepted.
    fn resolve(&mut self, index: u32, client: ClientId, rest: CurrentDestination) -> bool {
        if self.pending_queries.len() >= MAX_QUESTIONS {
            self.counters.table_full += 1;
            self.transactions.release_client(client);
            return false;
        }
        let Some(NextHop { address: NextHopAddress::Name { question, .. }, kind: reach, .. }) =
            rest.target.next_hops.first()
        else {
            return false;
        };
        let (question, reach) = (question.as_ref().clone(), *reach);
        self.next_question = self.next_question.wrapping_add(1);
        let serial = self.next_question;
        let slot = self.pending_queries.insert(PendingQuery { context: index, client, serial });
        let slot = u64::try_from(slot).unwrap_or(0);
        self.questions.push_back((QueryId(slot << 32 | u64::from(serial)), question));
        let Some(context) = self.context_mut(index) else { return false };
        context.pending_refs = context.pending_refs.saturating_add(1);
        context.branches.push(Branch {
            client,
            state: BranchState::Resolving,
            timer: None,
            timer_c_deadline: Timestamp::ZERO,
            has_timer_c_fired: false,
            has_response: false,
            is_cancel_pending: false,
            flow: None,
            invite_sent_at: None,
            hop_kind: reach,
            remaining: Some(Box::new(rest)),
            request_guard: None,
            call_guard: None,
            target: None,
            has_overload_offer: false,
            sent_as: None,
        });
        true
    }

    fn send(
        &mut self,
        now: Timestamp,
        index: u32,
        client: ClientId,
        message: &Message<'_>,
        forwarding: &Forwarding<'_>,
        sending: BranchSend<'_>,
    ) {
        let BranchSend { target, flow, breadth, credentials, is_call, call_guard: seat } = sending;
        let Some(place) = target.next_hops.first() else { return };
        let (reach, mut flow) = (place.kind, flow);
        let balanced = place.balanced.clone();
        let sent_as = if is_call && forwarding.call != 0 { target.sent_as(place) } else { None };
        let tag = self.tag_of(client, message, forwarding, balanced.as_ref(), flow);
        let offer = self.overload_offer(now, target, place, flow.peer);
        let to = HopRequest { target, place, credentials, offer };
        //= rfc3261#16.6:writes-for-each
        let mut request = self.write_branch(message, forwarding, &to, flow, tag, Some(breadth));
        if let Some((stream, fixed)) = self.better_stream(now, request.len(), forwarding, place, flow) {
            //= rfc3261#18.1.1:via-of-transport
            let large = self.write_branch(message, forwarding, &to, stream, tag, Some(breadth));
            self.transactions.pool().recycle(core::mem::replace(&mut request, large));
            //= rfc3261#18.1.1:back-to-datagram
            // If the connection is refused, the datagram may still arrive.
            let by_stream = NextHop { address: NextHopAddress::Flow(stream), ..place.clone() };
            if let Some(datagram) = target.next_hops.first_mut() {
                datagram.kind = fixed;
            }
            target.next_hops.insert(0, by_stream);
            flow = stream;
        }
        let is_invite = message.method() == Method::Invite;
        let has_alternative = self.has_alternative(now, target);
        // The last of several next hops gets no more time than the others, since the caller has already waited. With
        // a single next hop, only retransmission is possible, limited by Timer B.
        let is_last = is_invite && target.has_several_hops && reach.is_shared();
        let is_kept = target.next_hops.len() > 1 || target.trunk.is_some();
        if is_kept {
            self.store_forwarding(index, forwarding);
        }
        let rest = is_kept.then(|| {
            let challenged = !credentials.is_empty();
            Box::new(CurrentDestination {
                target: core::mem::take(target),
                has_answered_challenge: challenged,
                breadth,
            })
        });
        let at_target = balanced.as_ref().filter(|_| is_call).map(|balanced| Arc::clone(&balanced.target));
        let class = || MethodClass::from_token(message.method().as_bytes());
        let work = balanced.map(|BalancedTarget { target, work, .. }| target.begin_request(now, work, class()));
        let begun = is_call.then_some(now);
        let Some(context) = self.contexts.get_mut(index as usize) else { return };
        context.is_balanced |= work.is_some();
        let more_steps = context.fork.as_ref().is_some_and(|later| !later.targets.is_empty());
        let times = forwarding.policy;
        //= rfc3261#16.6:timer-c
        let wait = match (has_alternative || is_last, is_invite) {
            (true, _) => Some((times.failover_timeout, BranchTimer::Failover)),
            (false, true) if more_steps => Some((times.fork_timeout.min(times.ring_timeout), BranchTimer::SerialFork)),
            (false, true) => Some((times.ring_timeout, BranchTimer::TimerC)),
            (false, false) => None,
        };
        let rings_until = now + times.ring_timeout;
        let timer = wait.map(|(after, wait)| (self.timers.insert(now + after, (index, client)), wait));
        context.pending_refs = context.pending_refs.saturating_add(1);
        let (progress, rang_out, heard, cancel_wanted) = (BranchState::Pending, false, false, false);
        let sent_to = Some(flow);
        context.branches.push(Branch {
            client,
            state: progress,
            timer,
            timer_c_deadline: rings_until,
            has_timer_c_fired: rang_out,
            has_response: heard,
            is_cancel_pending: cancel_wanted,
            flow: sent_to,
            invite_sent_at: begun,
            hop_kind: reach,
            remaining: rest,
            request_guard: work,
            call_guard: seat,
            target: at_target,
            has_overload_offer: offer.is_some(),
            sent_as,
        });
        let kind = if is_invite { Kind::Invite } else { Kind::NonInvite };
        //= rfc3261#16.6:client-transaction
        self.transactions.start_client(now, client, kind, flow, request, index);
    }

    //= rfc3261#18.1.1:large-by-stream
    /// Returns the stream flow for a request of `length` bytes that is too large for a datagram, and the next-hop
    /// kind of the datagram fallback. If the stream failed recently, the datagram is sent at once.
    fn better_stream(
        &self,
        now: Timestamp,
        length: usize,
        forwarding: &Forwarding<'_>,
        place: &NextHop,
        flow: Flow,
    ) -> Option<(Flow, NextHopKind)> {
        let fixed = place
            .kind
            .with_fixed_transport()
            .filter(|_| flow.transport == Transport::Udp && length > forwarding.policy.mtu)?;
        let listener = self.listeners.towards(Transport::Tcp, flow.peer, flow.listener)?;
        if self.outages.is_out(now, &strowger_locate::Hop::new(Transport::Tcp, flow.peer)) {
            return None;
        }
        Some((Flow::new(listener, Transport::Tcp, flow.peer), fixed))
    }

    /// Writes the request for a next hop, over a stream if it is too large for a datagram.
    #[expect(clippy::too_many_arguments, reason = "all of it is the request's")]
    pub(crate) fn write_fitting(
        &mut self,
        now: Timestamp,
        message: &Message<'_>,
        forwarding: &Forwarding<'_>,
        target: &Target,
        place: &NextHop,
        flow: Flow,
        tag: BranchTag,
        max_breadth: Option<u32>,
    ) -> (Flow, Buf) {
        // The request of an ACK or CANCEL may have offered it, and its Via should match. Any other stateless request
        // gets no offer, because nothing would record the feedback in the response.
        let offer = match message.method() {
            Method::Ack | Method::Cancel => self.overload_offer(now, target, place, flow.peer),
            _ => None,
        };
        let to = HopRequest { target, place, credentials: &[], offer };
        let request = self.write_branch(message, forwarding, &to, flow, tag, max_breadth);
        match self.better_stream(now, request.len(), forwarding, place, flow) {
            Some((stream, _)) => {
                self.transactions.pool().recycle(request);
                (stream, self.write_branch(message, forwarding, &to, stream, tag, max_breadth))
            }
            None => (flow, request),
        }
    }

    fn write_branch(
        &mut self,
        message: &Message<'_>,
        forwarding: &Forwarding<'_>,
        to: &HopRequest<'_>,
        flow: Flow,
        tag: BranchTag,
        max_breadth: Option<u32>,
    ) -> Buf {
        let branch = tag.encode(&self.ring);
        let mut request = self.transactions.pool().take(message.bytes().len().saturating_add(400));
        let (Some(entry), Some(exit)) =
            (self.listeners.get(forwarding.edits.source.listener), self.listeners.get(flow.listener))
        else {
            return request;
        };
        let is_needed = || forwarding.caller.is_some() || to.place.kind.is_flow();
        let recorded = forwarding.edits.record_route
            && forward::begins_dialog(message)
            && (!forwarding.policy.only_where_needed || is_needed());
        let record_route = recorded.then(|| {
            let callee = to.place.kind.is_flow().then_some(flow);
            let target = to.place.balanced.as_ref().map(|balanced| balanced.target.id());
            let caller = forwarding.caller.or_else(|| local_caller(message, &forwarding.edits.source, &flow));
            let ends = DialogEnds { caller, callee, trunk: to.target.trunk, target };
            routing::record_route(self.route_keys(), entry, exit, message, ends)
        });
        let own_path = (forwarding.policy.path && message.method() == Method::Register).then(|| {
            // Nobody but browsers connects to a listener of WebSockets.
            let listener = if entry.transport.is_web_socket() { exit } else { entry };
            routing::path(&self.ring, listener, &forwarding.edits.source, forwarding.outbound)
        });
        let hop = BranchEdits {
            request_uri: &to.place.request_uri,
            egress: exit,
            branch: &branch,
            record_route: record_route.as_deref(),
            max_breadth,
            path: to.place.path.as_deref(),
            own_path: own_path.as_deref(),
            changes: to.target.changes.as_deref(),
            credentials: to.credentials,
            overload_offer: to.offer,
        };
        forward::write_request(&mut request, message, &forwarding.edits, &hop);
        if let Some(changes) = &to.target.changes
            && let Some(body) = &changes.body
        {
            self.replace_body(&mut request, tag.owner, body);
        }
        request
    }

    //= rfc3261#16.6:branch-of-each
    /// Returns the content of a client transaction's branch.
    fn tag_of(
        &mut self,
        client: ClientId,
        message: &Message<'_>,
        forwarding: &Forwarding<'_>,
        balanced: Option<&BalancedTarget>,
        flow: Flow,
    ) -> BranchTag {
        let Some(tag) = balanced.and_then(|balanced| self.shared_tag(message, forwarding, balanced, flow)) else {
            return BranchTag {
                shard: self.shard,
                owner: BranchOwner::Client(client),
                loop_hash: forwarding.loop_hash,
                process: self.process,
            };
        };
        if let BranchOwner::Stateless(place) = tag.owner {
            self.shared_branches.insert(place, client, |client| self.transactions.client_user(client).is_some());
        }
        tag
    }

    /// Stores what later branches are written from.
    fn store_forwarding(&mut self, index: u32, forwarding: &Forwarding<'_>) {
        if let Some(context) = self.context_mut(index)
            && context.fork.is_none()
        {
            let recipe = OwnedForwarding::of(forwarding);
            context.fork = Some(Box::new(ForkState {
                forwarding: recipe,
                targets: Vec::new(),
                seen: Vec::new(),
                redirections: 0,
            }));
        }
    }

    /// Calls `act` with the request as received, if it is still stored.
    pub(crate) fn with_request(&mut self, index: u32, act: impl FnOnce(&mut Self, &Message<'_>, &Forwarding<'_>)) {
        let Some(context) = self.context_mut(index) else { return };
        let Some(recipe) = context.fork.as_ref().map(|later| later.forwarding.clone()) else { return };
        let Some(request) = context.request.take() else { return };
        if let Ok(message) = Message::parse(&request) {
            let routes = recipe.routes(&message);
            let forwarding = recipe.forwarding(&routes);
            act(self, &message, &forwarding);
        }
        match self.context_mut(index).filter(|context| !context.is_answered) {
            Some(context) => context.request = Some(request),
            None => self.transactions.pool().recycle(request),
        }
    }

    /// Makes our own response the best so far, unless there is a better one.
    pub(crate) fn keep_own(&mut self, now: Timestamp, index: u32, status: Status) {
        let response = self.write_local(now, index, status);
        self.keep_if_better(index, BestResponse { status, response });
    }

    /// Returns a hash that distinguishes the Request-URIs of a request.
    pub(crate) fn uri_hash(&self, place: &NextHop) -> u64 {
        self.tag_key.table64(&[&place.request_uri])
    }
}

/// A request to send on a branch, and the remaining next hops if it fails.
struct BranchSend<'a> {
    target: &'a mut Target,
    flow: Flow,
    breadth: u32,
    credentials: &'a [u8],
    /// Whether it begins a call.
    is_call: bool,
    /// Guard of the call at the balanced target.
    call_guard: Option<CallGuard>,
}

/// The next hop that a request is written for.
struct HopRequest<'a> {
    target: &'a Target,
    place: &'a NextHop,
    credentials: &'a [u8],
    /// The overload control offer to the next hop, if any.
    offer: Option<&'static [u8]>,
}

/// Sorts the targets by descending q and returns how many are tried in parallel first.
pub(crate) fn sort_by_q(targets: &mut [Target]) -> usize {
    if targets.windows(2).any(|pair| matches!(pair, [a, b] if a.q < b.q)) {
        targets.sort_by_key(|target| core::cmp::Reverse(target.q));
    }
    let best = targets.first().map_or(0, |target| target.q);
    targets.iter().take_while(|target| target.q == best).count()
}

//= rfc5393#5.3.3:sum
//= rfc5393#5.3.3:whole
/// Returns the share of the breadth for one of `count` branches; the shares add up to the whole.
fn share(breadth: u32, count: usize, number: usize) -> u32 {
    let count = u32::try_from(count).unwrap_or(u32::MAX).max(1);
    let extra = u32::from(u32::try_from(number).unwrap_or(u32::MAX) < breadth % count);
    (breadth / count).saturating_add(extra)
}

fn narrow(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NO_CONTEXT)
}

/// Adds destinations to the waiting ones, each after those with the same q.
pub(crate) fn enqueue(waiting: &mut Vec<Target>, targets: Vec<Target>) {
    for target in targets.into_iter().take(MAX_BRANCHES.saturating_sub(waiting.len())) {
        let at = waiting.partition_point(|other| other.q < target.q);
        waiting.insert(at, target);
    }
}

//= rfc3261#20.33
/// Retry-After when no target of a balanced set has responded.
pub(crate) const NO_TARGET_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Returns the flow to a caller at a loopback address whose call goes elsewhere. The seal of the Record-Route proves the
/// address later: nobody elsewhere may name such a one.
fn local_caller(message: &Message<'_>, source: &Flow, to: &Flow) -> Option<Flow> {
    let is_loopback = |flow: &Flow| flow.peer.ip().to_canonical().is_loopback();
    if !is_loopback(source) || is_loopback(to) {
        return None;
    }
    // A proxy there is reached at the address that it has recorded.
    let recorded = message.head().elements(HeaderName::RecordRoute).next();
    let peer = match recorded {
        None if message.has_one_via() => source.peer,
        None => return None,
        Some(route) => {
            let uri = NameAddr::parse(route)?.parse_uri()?;
            let uri = uri.sip()?;
            SocketAddr::new(uri.host().ip()?, uri.port().unwrap_or(source.transport.default_port()))
        }
    };
    let flow = Flow { connection: None, peer, ..*source };
    is_loopback(&flow).then_some(flow)
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rfc5393#5.3.3:whole
    #[test]
    fn breadth_is_fully_divided() {
        assert_eq!((0..3).map(|n| share(60, 3, n)).collect::<Vec<_>>(), [20, 20, 20]);
        assert_eq!((0..3).map(|n| share(5, 3, n)).collect::<Vec<_>>(), [2, 2, 1]);
        assert_eq!(share(1, 1, 0), 1);
    }
}
