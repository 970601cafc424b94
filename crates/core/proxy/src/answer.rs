//! Responses to a forwarded request: those forwarded at once, those that trigger another attempt, and the best final
//! response, which is stored until no branch can give a better one (RFC 3261 §16.7).

use core::time::Duration;

use smallvec::SmallVec;
use strowger_balancer::CallGuard;
use strowger_foundation::{Buf, Timestamp};
use strowger_message::{HeaderName, Message, NameAddr, Status, parse_decimal};
use strowger_transaction::{ClientId, ServerId};

use crate::context::{self, BestResponse, BranchState, BranchTimer, CurrentDestination, ReportedPeer};
use crate::engine::{CallProgress, Proxy, ProxyCallbacks};
use crate::fork::{NO_TARGET_RETRY_AFTER, enqueue};
use crate::policy::{MAX_ATTEMPTS, MAX_BRANCHES, MAX_REDIRECTIONS};
use crate::response_times::FirstResponse;
use crate::target::Target;
use crate::{forward, local};

/// Bounds of a peer's Retry-After: at least a moment, at most as long as an operator would wait before investigating.
const MIN_RETRY_AFTER: Duration = Duration::from_secs(1);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

impl Proxy {
    /// Holds the call guard of the call that the forwarded BYE of `server` ends. The call counts at its target until
    /// the target responds to the BYE or can no longer be expected to. If that is already so, the guard is released
    /// at once.
    pub fn hold_call(&mut self, server: ServerId, seat: CallGuard) {
        let index = self.transactions.server_user(server);
        if let Some(context) = index.and_then(|index| self.context_mut(index)).filter(|context| !context.is_answered) {
            debug_assert!(!context.is_invite && context.call_guard.is_none(), "a BYE ends one call");
            context.call_guard = Some(seat);
        }
    }

    /// Sets the status for the forwarded request of `server` if no branch gives a better response.
    pub fn set_fallback_status(&mut self, now: Timestamp, server: ServerId, status: Status) {
        let index = self.transactions.server_user(server);
        if let Some(index) = index.filter(|index| self.context(*index).is_some_and(|context| !context.is_answered)) {
            self.keep_own(now, index, status);
        }
    }

    //= rfc3261#16.7:processes
    pub(crate) fn on_response(
        &mut self,
        now: Timestamp,
        index: u32,
        client: ClientId,
        message: &Message<'_>,
        callbacks: &mut dyn ProxyCallbacks,
    ) {
        let Some(status) = message.status() else { return };
        if message.via().has_other_params {
            self.record_next_hop_load(now, index, client, message.via());
        }
        if status.is_provisional() {
            self.on_provisional(now, index, client, message, status);
            return;
        }
        self.end_timer(index, client);
        let Some(context) = self.context_mut(index) else { return };
        let may_go_on = context.may_try_more();
        let Some(branch) = context.branch_mut(client) else { return };
        let repeated = branch.state != BranchState::Pending;
        let counted = if branch.has_timer_c_fired && !status.is_success() { Status::REQUEST_TIMEOUT } else { status };
        let (flow, begun) = (branch.flow, branch.invite_sent_at);
        let first = branch.note_response();
        match branch.request_guard.take() {
            Some(work) if status == Status::SERVICE_UNAVAILABLE => work.handle_failure(now),
            Some(work) => work.handle_final(now),
            None => {}
        }
        if status.is_success() {
            // A replaced branch has given up its call guard.
            let again = branch.target.take().filter(|_| branch.call_guard.is_none() && repeated);
            let seat = branch.call_guard.take().or_else(|| again.map(|target| target.begin_call()));
            branch.state = BranchState::Final(counted);
            let reported = branch.take_reported();
            context.call_guard = seat;
            self.record_first(now, first);
            match begun {
                Some(begun) => self.on_call_answered(now, flow, begun),
                None => self.on_answer(now, flow),
            }
            self.on_success(now, index, message, status, reported);
            return;
        }
        self.record_first(now, first);
        if repeated {
            return;
        }
        if status == Status::SERVICE_UNAVAILABLE {
            self.avoid_after_refusal(now, index, client, retry_after(message));
        } else {
            self.on_answer(now, flow);
        }
        let replaced =
            may_go_on && counted == status && self.try_alternative(now, index, client, message, status, callbacks);
        if !replaced {
            self.on_failure(now, index, client, message, counted);
        }
        self.finish_if_done(now, index);
    }

    #[inline]
    fn record_first(&mut self, now: Timestamp, first: Option<FirstResponse>) {
        if let Some(first) = first {
            self.response_times.record(now, first);
        }
    }

    fn on_success(
        &mut self,
        now: Timestamp,
        index: u32,
        message: &Message<'_>,
        status: Status,
        reported: ReportedPeer,
    ) {
        let Some(context) = self.context_mut(index) else { return };
        //= rfc3261#16.7:success
        //= rfc3261#16.7:later-success
        // Every 2xx to an INVITE is forwarded at once (step 5), also after the first. For a non-INVITE only the first
        // response is forwarded.
        let server = (context.is_invite || !context.is_answered).then_some(context.server);
        if server.is_some() {
            self.report_progress(index, status, reported);
            self.mark_answered(index);
        }
        self.forget_request(index);
        self.end_if_over(index);
        if let Some(server) = server {
            self.forward_upstream(now, server, status, message);
        }
        // If the context is gone, its only branch was final.
        self.cancel_pending(now, index);
    }

    /// Tries an alternative to a refused branch: another next hop, credentials, or the contacts of a redirection.
    /// Returns whether there was one.
    fn try_alternative(
        &mut self,
        now: Timestamp,
        index: u32,
        client: ClientId,
        message: &Message<'_>,
        status: Status,
        callbacks: &mut dyn ProxyCallbacks,
    ) -> bool {
        match status.code() {
            //= rfc5626#7:answered
            // What a device has answered by one of its flows it has answered by all of them.
            502..=504 if self.is_by_flow(index, client) => false,
            //= rfc5626#7:430
            // The target cannot serve any request, or the flow to it is gone; the next may work (RFC 3263 §4.3, RFC
            // 5626 §6).
            430 | 502..=504 => self.try_next_hop(now, index, client),
            401 | 407 => self.try_with_credentials(now, index, client, message, callbacks),
            // 305 names a proxy and 380 an alternative service (§21.3.4, §21.3.5).
            300..=302 => self.try_redirected(now, index, client, message, callbacks),
            _ => false,
        }
    }

    /// Whether the branch went over the flow of a registration, and so to the device itself.
    fn is_by_flow(&mut self, index: u32, client: ClientId) -> bool {
        let branch = self.context_mut(index).and_then(|context| context.branch_mut(client));
        branch.is_some_and(|branch| branch.hop_kind.is_flow())
    }

    /// Responds to the challenge of a trunk, once.
    fn try_with_credentials(
        &mut self,
        now: Timestamp,
        index: u32,
        client: ClientId,
        message: &Message<'_>,
        callbacks: &mut dyn ProxyCallbacks,
    ) -> bool {
        let branch = self.context_mut(index).and_then(|context| context.branch_mut(client));
        let Some(rest) = branch.and_then(|branch| branch.remaining.take_if(|rest| !rest.has_answered_challenge)) else {
            return false;
        };
        let Some(trunk) = rest.target.trunk else { return false };
        let CurrentDestination { mut target, breadth, .. } = *rest;
        let Some(current) = target.next_hops.first() else { return false };
        let mut lines = Vec::new();
        self.with_request(index, |_, request, _| {
            if !callbacks.answer_challenge(trunk, message, request, &current.request_uri, &mut lines) {
                lines.clear();
            }
        });
        if lines.is_empty() {
            return false;
        }
        let retried = self.replace_branch(now, index, client, &mut target, breadth, &lines);
        self.counters.challenges_answered += u64::from(retried);
        retried
    }

    //= rfc3261#16.7
    /// Adds the contacts of a redirection to the target set (step 4), each at most once.
    fn try_redirected(
        &mut self,
        now: Timestamp,
        index: u32,
        client: ClientId,
        message: &Message<'_>,
        callbacks: &mut dyn ProxyCallbacks,
    ) -> bool {
        let later = self.context_mut(index).and_then(|context| context.fork.as_mut());
        let Some(later) = later.filter(|l| l.forwarding.policy.recurse && l.redirections < MAX_REDIRECTIONS) else {
            return false;
        };
        later.redirections = later.redirections.saturating_add(1);
        let mut found: Vec<Target> = Vec::new();
        self.with_request(index, |_, request, forwarding| {
            let source = &forwarding.edits.source;
            for contact in message.head().elements(HeaderName::Contact).take(MAX_BRANCHES) {
                let Some(contact) = NameAddr::parse(contact) else { continue };
                let q = contact.params.value("q").and_then(strowger_message::parse_q).unwrap_or(1000);
                let before = found.len();
                callbacks.redirection_targets(now, contact.uri, request, source, &mut found);
                found.iter_mut().skip(before).for_each(|target| target.q = q);
            }
        });
        let marks: SmallVec<[u64; 8]> =
            found.iter().map(|target| target.next_hops.first().map_or(0, |place| self.uri_hash(place))).collect();
        let Some(later) = self.context_mut(index).and_then(|context| context.fork.as_mut()) else { return false };
        let mut fresh: Vec<Target> = Vec::new();
        for (target, mark) in found.into_iter().zip(marks) {
            //= rfc3261#16.5:each-once
            if !later.seen.contains(&mark) && later.seen.len() < MAX_ATTEMPTS {
                later.seen.push(mark);
                fresh.push(target);
            }
        }
        if fresh.is_empty() {
            return false;
        }
        enqueue(&mut later.targets, fresh);
        if let Some(branch) = self.context_mut(index).and_then(|context| context.branch_mut(client)) {
            //= rfc3261#16.7:removes-contacts
            //= rfc3261#16.7:no-empty-redirection
            branch.end(BranchState::Replaced);
        }
        self.counters.redirections += 1;
        true
    }

    //= rfc3261#16.7:nothing-else
    fn on_failure(&mut self, now: Timestamp, index: u32, client: ClientId, message: &Message<'_>, counted: Status) {
        let Some(context) = self.context_mut(index) else { return };
        let answered = context.is_answered;
        let best = context.best.as_ref().map(|best| best.status);
        if let Some(branch) = context.branch_mut(client) {
            let seat = branch.call_guard.take().filter(|_| is_challenge(counted));
            branch.end(BranchState::Final(counted));
            branch.remaining = None;
            context.call_guard = seat.or(context.call_guard.take());
        }
        if answered {
            return;
        }
        if best.is_none_or(|best| context::is_better(counted, best)) {
            let passed_on = message.status() == Some(counted) && counted != Status::SERVICE_UNAVAILABLE;
            let response = passed_on
                .then(|| self.transactions.pool().take(message.bytes().len()))
                .and_then(|mut buf| self.write_upstream(now, &mut buf, message).map(|()| buf));
            self.replace_best(index, BestResponse { status: counted, response });
        } else if best.is_some_and(is_challenge) && is_challenge(counted) {
            self.collect_challenges(index, message);
        }
        //= rfc3261#16.7:6xx-cancels
        if counted.class() == 6 {
            self.give_up(now, index);
        }
    }

    //= rfc3261#8.1.3.2:unknown-provisional
    fn on_provisional(&mut self, now: Timestamp, index: u32, client: ClientId, message: &Message<'_>, status: Status) {
        let Some(context) = self.context_mut(index) else { return };
        let (server, answered, is_invite) = (context.server, context.is_answered, context.is_invite);
        let Some(branch) = context.branch_mut(client) else { return };
        let (flow, progress, destination) = (branch.flow, branch.state, branch.destination());
        let first = branch.note_response();
        if let Some(work) = &mut branch.request_guard {
            work.handle_provisional(now, status.code());
        }
        if core::mem::take(&mut branch.is_cancel_pending) {
            self.transactions.cancel(now, client);
        }
        self.record_first(now, first);
        if progress == BranchState::Pending {
            self.on_sign_of_life(now, flow);
        }
        self.on_branch_alive(now, index, client, status);
        //= rfc3261#16.7:provisional
        //= rfc3261#16.7:no-100
        // A 100 is hop-by-hop; a non-INVITE has no other provisional response (RFC 4320 §4.1).
        if status != Status::TRYING && is_invite && !answered && progress != BranchState::Replaced {
            let address = flow.map(|flow| flow.peer);
            self.report_progress(index, status, ReportedPeer { address, destination, sent_as: None });
            self.forward_upstream(now, server, status, message);
        }
    }

    //= rfc3261#16.7:resets-timer-c
    /// Handles a provisional response: the branch's other next hops are not needed. Timer C starts, or restarts
    /// unless this is a 100.
    fn on_branch_alive(&mut self, now: Timestamp, index: u32, client: ClientId, status: Status) {
        let Some(context) = self.contexts.get_mut(index as usize) else { return };
        let (ring_timeout, is_invite) = (context.ring_timeout, context.is_invite);
        let steps = context.fork.as_ref().filter(|later| !later.targets.is_empty());
        let step = steps.map(|later| later.forwarding.policy.fork_timeout.min(ring_timeout));
        let Some(branch) = context.branch_mut(client) else { return };
        let (after, wait) = match branch.timer {
            Some((_, BranchTimer::Failover)) if is_invite => {
                step.map_or((ring_timeout, BranchTimer::TimerC), |step| (step, BranchTimer::SerialFork))
            }
            Some((timer, BranchTimer::Failover)) => {
                self.timers.cancel(timer);
                branch.timer = None;
                return;
            }
            Some((_, BranchTimer::TimerC)) if status != Status::TRYING => {
                // The timer fires in between and is then rearmed.
                branch.timer_c_deadline = now + ring_timeout;
                return;
            }
            _ => return,
        };
        if let Some((timer, _)) = branch.timer.take() {
            self.timers.cancel(timer);
        }
        branch.timer_c_deadline = now + after;
        branch.timer = Some((self.timers.insert(now + after, (index, client)), wait));
    }

    //= rfc3261#16.7:steps-of-forwarding
    pub(crate) fn forward_upstream(&mut self, now: Timestamp, server: ServerId, status: Status, message: &Message<'_>) {
        let mut response = self.transactions.pool().take(message.bytes().len());
        if self.write_upstream(now, &mut response, message).is_none() {
            self.counters.stray_responses += 1;
            self.transactions.pool().recycle(response);
            return;
        }
        //= rfc3261#16.7:to-server-transaction
        self.counters.responses += 1;
        self.transactions.respond(now, server, status, response);
    }

    //= rfc3261#16.7:sends-final
    /// Sends the best response once no branch is pending and nothing is left to try.
    pub(crate) fn finish_if_done(&mut self, now: Timestamp, index: u32) {
        let Some(context) = self.context_mut(index) else { return };
        if context.is_answered || context.is_pending() {
            return;
        }
        if self.open_next_step(now, index) {
            return;
        }
        let Some(context) = self.context_mut(index) else { return };
        if context.is_answered || context.is_pending() {
            return;
        }
        match context.best.take() {
            //= rfc3261#16.7:of-the-stored
            Some(best) => self.finish(now, index, best),
            None if context.is_invite => {
                // Everything was cancelled before anything was sent, or no branch could be opened to replace those
                // tried.
                let status = if context.is_given_up { Status::REQUEST_TERMINATED } else { Status::SERVER_ERROR };
                self.finish(now, index, BestResponse { status, response: None });
            }
            None => {
                let server = context.server;
                self.mark_answered(index);
                self.forget_request(index);
                // The transaction sends no 408 to a non-INVITE; given one, it stops waiting for a response.
                self.transactions.respond(now, server, Status::REQUEST_TIMEOUT, Buf::new());
            }
        }
    }

    //= rfc3261#16.7:steps-of-the-best
    /// Sends the best final response.
    fn finish(&mut self, now: Timestamp, index: u32, best: BestResponse) {
        let decisive = best.status;
        //= rfc3261#16.7:no-503
        //= rfc3261#16.7:503-is-500
        // A peer's 503 means that the peer is overloaded, not this server (step 6): it is forwarded as 500. A 503 of
        // our own stays.
        let (status, response) = match best {
            BestResponse { status, response: Some(response) } => (status, Some(response)),
            BestResponse { status: Status::SERVICE_UNAVAILABLE, response: None } => match self.context(index) {
                // A balancer sends 503 here: none of the targets that it represents is available.
                Some(context) if context.is_balanced && context.is_exhausted() => (
                    Status::SERVICE_UNAVAILABLE,
                    self.write_own(now, index, Status::SERVICE_UNAVAILABLE, Some(NO_TARGET_RETRY_AFTER)),
                ),
                _ => (Status::SERVER_ERROR, self.write_local(now, index, Status::SERVER_ERROR)),
            },
            BestResponse { status, response: None } => (status, self.write_local(now, index, status)),
        };
        let Some(context) = self.context_mut(index) else { return };
        let (server, is_exhausted) =
            (context.server, matches!(status.code(), 408 | 500 | 503) && context.is_exhausted());
        let reported = if context.call == 0 { ReportedPeer::default() } else { context.take_decisive(decisive) };
        self.counters.exhausted += u64::from(is_exhausted);
        self.report_progress(index, status, reported);
        self.mark_answered(index);
        self.forget_request(index);
        self.end_if_over(index);
        if let Some(response) = response {
            self.counters.responses += 1;
            self.transactions.respond(now, server, status, response);
        }
    }

    /// Writes the server's own response to the request.
    pub(crate) fn write_local(&mut self, now: Timestamp, index: u32, status: Status) -> Option<Buf> {
        self.write_own(now, index, status, None)
    }

    /// Writes the server's own response, with an optional Retry-After.
    pub(crate) fn write_own(
        &mut self,
        now: Timestamp,
        index: u32,
        status: Status,
        retry_after: Option<Duration>,
    ) -> Option<Buf> {
        let context = self.contexts.get(index as usize)?;
        let request = context.request.as_ref()?;
        let message = Message::parse(request).ok()?;
        let tag = local::to_tag(&self.tag_key, self.transactions.server_key(context.server)?);
        let mut response = self.transactions.pool().take(request.len());
        let reply = self.begin_response(now, &mut response, &tag, &message, &context.source, status, None);
        match retry_after {
            Some(after) => reply.header_fmt("Retry-After", format_args!("{}", after.as_secs())).finish(),
            None => reply.finish(),
        };
        Some(response)
    }

    pub(crate) fn forget_request(&mut self, index: u32) {
        let Some(context) = self.contexts.get_mut(index as usize) else { return };
        let pool = self.transactions.pool();
        if let Some(request) = context.request.take() {
            pool.recycle(request);
        }
        // Checked first because most have neither, and dropping an empty value is not free.
        if context.best.is_some()
            && let Some(response) = context.best.take().and_then(|best| best.response)
        {
            pool.recycle(response);
        }
        // The remaining next hops exist only if they may be tried later.
        if context.fork.is_some() {
            context.fork = None;
            context.branches.iter_mut().for_each(|branch| branch.remaining = None);
        }
    }

    pub(crate) fn keep_if_better(&mut self, index: u32, best: BestResponse) {
        let Some(context) = self.context(index) else { return };
        let is_better = context.best.as_ref().is_none_or(|old| context::is_better(best.status, old.status));
        if !context.is_answered && is_better {
            self.replace_best(index, best);
        } else if let Some(buf) = best.response {
            self.transactions.pool().recycle(buf);
        }
    }

    /// Reports the status sent to the caller to call tracking.
    fn report_progress(&mut self, index: u32, status: Status, peer: ReportedPeer) {
        let Some(context) = self.context_mut(index).filter(|context| !context.is_answered) else { return };
        // If the call is not tracked, the call guard is not needed after the final response.
        let seat = if status.is_provisional() { None } else { context.call_guard.take() };
        let call = context.call;
        if call != 0 {
            let ReportedPeer { address: from, destination, sent_as } = peer;
            self.progress.push_back(CallProgress { call, status, from, call_guard: seat, sent_as, destination });
        }
    }

    pub(crate) fn replace_best(&mut self, index: u32, best: BestResponse) {
        let old = self.context_mut(index).and_then(|context| context.best.replace(best));
        if let Some(buf) = old.and_then(|best| best.response) {
            self.transactions.pool().recycle(buf);
        }
    }

    //= rfc3261#16.7:collects-challenges
    /// Adds the challenges of `message` to the best response, itself a challenge (step 7), so that the caller can
    /// respond to all of them.
    pub(crate) fn collect_challenges(&mut self, index: u32, message: &Message<'_>) {
        let Some(context) = self.contexts.get_mut(index as usize) else { return };
        let Some(best) = context.best.as_mut().and_then(|best| best.response.as_mut()) else { return };
        let mut merged = self.transactions.pool().take(best.len().saturating_add(message.bytes().len()));
        if forward::merge_challenges(&mut merged, best, message).is_some() {
            core::mem::swap(best, &mut merged);
        }
        self.transactions.pool().recycle(merged);
    }

    pub(crate) fn mark_answered(&mut self, index: u32) {
        if let Some(context) = self.context_mut(index)
            && !core::mem::replace(&mut context.is_answered, true)
        {
            // Call tracking has taken over the guard of an INVITE.
            context.call_guard = None;
            self.unanswered = self.unanswered.saturating_sub(1);
        }
    }
}

//= rfc3261#21.5.4
/// Returns the Retry-After of a refusal that applies to all requests, within limits.
fn retry_after(response: &Message<'_>) -> Option<Duration> {
    let value = response.head().first(HeaderName::RetryAfter)?;
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let seconds = parse_decimal(value.get(..digits)?)?;
    Some(Duration::from_secs(seconds).clamp(MIN_RETRY_AFTER, MAX_RETRY_AFTER))
}

pub(crate) const fn is_challenge(status: Status) -> bool {
    matches!(status.code(), 401 | 407)
}
