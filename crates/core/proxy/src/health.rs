//! Health of next hops: one that fails is avoided, one that responds is available.

use core::time::Duration;
use std::sync::Arc;

use strowger_foundation::{Flow, Timestamp};
use strowger_locate::{Cause, DetectedBy, Hop, Outage, OutageChange};
use strowger_transaction::ClientId;

use crate::engine::{NextHopEvent, Proxy};
use crate::target::{NextHop, NextHopAddress, Target};

impl Proxy {
    /// Avoids the next hop where a branch failed: it is tried after others for a while.
    pub(crate) fn avoid(&mut self, now: Timestamp, index: u32, client: ClientId, cause: Cause) {
        self.avoid_as(now, index, client, cause, None);
    }

    /// Avoids a next hop that refused, for the time it asked for, if any.
    pub(crate) fn avoid_after_refusal(
        &mut self,
        now: Timestamp,
        index: u32,
        client: ClientId,
        wanted: Option<Duration>,
    ) {
        self.avoid_as(now, index, client, Cause::Refused, wanted);
    }

    fn avoid_as(&mut self, now: Timestamp, index: u32, client: ClientId, cause: Cause, wanted: Option<Duration>) {
        let avoided_for = wanted.unwrap_or(self.avoid_for);
        let Some(context) = self.context_mut(index) else { return };
        let finder = if context.is_invite { DetectedBy::Call } else { DetectedBy::Other };
        let Some(branch) = context.branch_mut(client).filter(|branch| branch.hop_kind.is_shared()) else { return };
        if let Some(work) = branch.request_guard.take() {
            let target = Arc::clone(work.target());
            work.handle_failure(now);
            // A target that responds to other requests is alive but overloaded. Treating it as dead would shift its
            // load to the others, until all are treated as dead while they are idle.
            if cause == Cause::Silent && branch.invite_sent_at.is_some_and(|begun| target.has_answered_since(begun)) {
                return;
            }
        }
        let Some(flow) = branch.flow else { return };
        let hop = Hop::of(&flow);
        let learnt = match wanted {
            Some(time) => self.outages.set_back_off(now, hop, time, finder),
            None => self.outages.mark_failed(now, hop, avoided_for, cause, finder),
        };
        match learnt {
            OutageChange::Failed => self.hop_events.push_back(NextHopEvent::Outage { hop, cause, avoided_for }),
            OutageChange::Dead => self.hop_events.push_back(NextHopEvent::Dead { hop }),
            OutageChange::Unchanged => {}
        }
    }

    /// Whether a request that the first next hop of `target` does not answer soon should be tried at the next. If all
    /// other next hops of a balanced set have failed, the first gets as much time as if it were alone: otherwise the
    /// last working one, treated as dead because it is slow, would be avoided too.
    pub(crate) fn has_alternative(&self, now: Timestamp, target: &Target) -> bool {
        let is_out = |place: &NextHop| match &place.address {
            NextHopAddress::Flow(flow) => self.outages.is_out(now, &Hop::of(flow)),
            NextHopAddress::Name { .. } => false,
        };
        let Some((first, others)) = target.next_hops.split_first() else { return false };
        !others.is_empty() && (first.balanced.is_none() || is_out(first) || !others.iter().all(is_out))
    }

    /// Handles evidence, from other than forwarded requests, that the peer at `flow` is alive: it is not treated as
    /// unreachable any more. A refusal stays in effect.
    pub fn handle_sign_of_life(&mut self, now: Timestamp, flow: Flow) {
        self.on_sign_of_life(now, Some(flow));
    }

    /// Records a final response from the flow of a branch.
    pub(crate) fn on_answer(&mut self, now: Timestamp, flow: Option<Flow>) {
        let Some(flow) = flow else { return };
        let hop = Hop::of(&flow);
        let outage = self.outages.clear(now, &hop);
        self.report_recovery(now, hop, outage);
    }

    /// Records that the flow of a branch has answered the call that was sent at `begun`.
    pub(crate) fn on_call_answered(&mut self, now: Timestamp, flow: Option<Flow>, begun: Timestamp) {
        let Some(flow) = flow else { return };
        let hop = Hop::of(&flow);
        let outage = self.outages.clear_by_call(now, &hop, begun);
        self.report_recovery(now, hop, outage);
    }

    /// Records a provisional response from the flow of a branch, which shows that the peer is not dead.
    pub(crate) fn on_sign_of_life(&mut self, now: Timestamp, flow: Option<Flow>) {
        let Some(flow) = flow else { return };
        let hop = Hop::of(&flow);
        let outage = self.outages.revive(now, &hop);
        self.report_recovery(now, hop, outage);
    }

    fn report_recovery(&mut self, now: Timestamp, hop: Hop, outage: Option<Outage>) {
        if let Some(outage) = outage {
            let (after, was_gone) = (now - outage.since, outage.cause != Cause::Refused);
            self.hop_events.push_back(NextHopEvent::Recovery { hop, after, was_unreachable: was_gone });
        }
    }
}
