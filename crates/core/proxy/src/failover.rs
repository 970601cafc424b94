//! Failover: the next hop of a destination replaces a failed one, within the failover budget.

use core::net::SocketAddr;

use strowger_foundation::Timestamp;
use strowger_locate::{Cause, Hop, Outages};
use strowger_message::Status;
use strowger_transaction::ClientId;

use crate::context::BranchState;
use crate::engine::Proxy;
use crate::target::{NextHopAddress, Target};

impl Proxy {
    //= rfc3261#16.6:in-order
    //= rfc3263#4.2:next
    /// Replaces a branch with one to its destination's next hop. Returns whether there was one.
    pub(crate) fn try_next_hop(&mut self, now: Timestamp, index: u32, client: ClientId) -> bool {
        let branch = self.context_mut(index).and_then(|context| context.branch_mut(client));
        let Some(branch) = branch else { return false };
        let tried = branch.flow.map(|flow| flow.peer);
        let Some(mut rest) = branch.remaining.take_if(|rest| rest.target.next_hops.len() > 1) else { return false };
        if !may_fail_over(now, &self.outages, &rest.target, tried) {
            self.counters.failovers_refused += 1;
            return false;
        }
        // Release the failed attempt's call first, or one address of a full target would block the next.
        if let Some(branch) = self.context_mut(index).and_then(|context| context.branch_mut(client)) {
            branch.call_guard = None;
        }
        rest.target.next_hops.remove(0);
        let tried = self.replace_branch(now, index, client, &mut rest.target, rest.breadth, &[]);
        self.counters.failovers += u64::from(tried);
        tried
    }

    /// Opens a branch for `target` to replace that of `client`. Returns whether that succeeded.
    pub(crate) fn replace_branch(
        &mut self,
        now: Timestamp,
        index: u32,
        client: ClientId,
        target: &mut Target,
        breadth: u32,
        credentials: &[u8],
    ) -> bool {
        let mut opened = false;
        self.with_request(index, |proxy, message, forwarding| {
            //= rfc3263#4.3:new-branch
            opened = proxy.try_target(now, index, message, forwarding, target, breadth, credentials);
        });
        if opened && let Some(branch) = self.context_mut(index).and_then(|context| context.branch_mut(client)) {
            branch.end(BranchState::Replaced);
            branch.remaining = None;
        }
        opened
    }

    /// Handles the failover timeout: no response from one of several next hops.
    //= rfc3263#4.3
    pub(crate) fn on_failover_timeout(&mut self, now: Timestamp, index: u32, client: ClientId) {
        let Some(context) = self.context_mut(index).filter(|context| context.may_try_more()) else { return };
        let is_invite = context.is_invite;
        let Some(branch) = context.branch_mut(client).filter(|branch| branch.state == BranchState::Pending) else {
            return;
        };
        // If it responds later, it must not ring alongside the other branch.
        branch.is_cancel_pending = true;
        let reach = branch.hop_kind;
        self.avoid(now, index, client, Cause::Silent);
        self.transactions.stop_retransmitting(client);
        // Whether a dead next hop is silent or its network reports errors, the caller gets the same status.
        let is_out = is_invite && reach.is_shared();
        let status = if is_out { Status::SERVICE_UNAVAILABLE } else { Status::REQUEST_TIMEOUT };
        self.fail_branch(now, index, client, status);
    }
}

/// Whether the request may be sent to the second next hop of `target` after the first, at `tried`, failed. Charges
/// the failover budget, unless the attempt adds no load to a working server: the same address over another transport,
/// or a next hop that calls treat as dead.
pub(crate) fn may_fail_over(now: Timestamp, outages: &Outages, target: &Target, tried: Option<SocketAddr>) -> bool {
    let Some(budget) = &target.budget else { return true };
    let is_free = match target.next_hops.get(1).map(|place| &place.address) {
        Some(NextHopAddress::Flow(flow)) => {
            Some(flow.peer) == tried || outages.dead_since(now, &Hop::of(flow)).is_some()
        }
        _ => false,
    };
    is_free || budget.try_withdraw(now)
}
