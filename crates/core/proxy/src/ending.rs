//! How branches and response contexts end: failure, CANCEL, and the removal of what nothing can change any more.

use smallvec::SmallVec;
use strowger_foundation::Timestamp;
use strowger_locate::Cause;
use strowger_message::Status;
use strowger_transaction::ClientId;

use crate::context::{BestResponse, BranchState};
use crate::engine::{NO_CONTEXT, PAIRED, Proxy};

impl Proxy {
    pub(crate) fn on_branch_failed(
        &mut self,
        now: Timestamp,
        index: u32,
        client: ClientId,
        status: Status,
        cause: Cause,
    ) {
        let branch = self.context_mut(index).and_then(|context| context.branch_mut(client));
        if branch.is_some_and(|branch| branch.state == BranchState::Pending && !branch.has_timer_c_fired) {
            self.avoid(now, index, client, cause);
        }
        self.fail_branch(now, index, client, status);
    }

    /// Handles a failed branch: another next hop replaces it, or `status` counts as its response.
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
        //= rfc4320#4.2:no-408
        // A timed-out non-INVITE gets no 408: it would arrive too late.
        if !is_invite && status == Status::REQUEST_TIMEOUT {
            branch.end(BranchState::TimedOut);
        } else {
            branch.end(BranchState::Final(status));
            self.keep_if_better(index, BestResponse { status, response: None });
        }
        self.finish_if_done(now, index);
    }

    //= rfc3261#16.7:6xx-ends
    //= rfc3261#16.7:cancels-after-6xx
    /// Gives up on the request: nothing more is tried and pending branches are cancelled.
    pub(crate) fn give_up(&mut self, now: Timestamp, index: u32) {
        let Some(context) = self.context_mut(index) else { return };
        context.is_given_up = true;
        if let Some(later) = &mut context.fork {
            later.targets.clear();
        }
        self.cancel_pending(now, index);
    }

    //= rfc3261#16.7:cancels
    //= rfc3261#16.10:each-branch
    pub(crate) fn cancel_pending(&mut self, now: Timestamp, index: u32) {
        let Some(context) = self.context_mut(index).filter(|context| context.is_invite) else { return };
        for branch in &mut context.branches {
            branch.remaining = None;
            if branch.state == BranchState::Resolving {
                // Nothing was sent; the result of the query will be ignored.
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

    //= rfc3261#16.7:keeps-context
    /// Ends a context with one branch if nothing is left to do. Its transactions absorb what still arrives, without a
    /// user. Called before the final response is sent, because a transaction without a user stores less once it is
    /// answered. If a success to an INVITE may be retransmitted, the two transactions become a pair. A context with a
    /// CANCEL to send is not ended.
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
}
