//! What is learnt of the places that requests are sent to: who fails is avoided, who says something is there.

use core::time::Duration;
use std::sync::Arc;

use strowger_foundation::{Flow, Timestamp};
use strowger_locate::{Cause, DetectedBy, Hop, Outage, OutageChange};
use strowger_transaction::ClientId;

use crate::engine::{NextHopEvent, Proxy};
use crate::target::{NextHop, NextHopAddress, Target};

impl Proxy {
    /// Tries the place where a branch failed after the others for a while.
    pub(crate) fn avoid(&mut self, now: Timestamp, index: u32, client: ClientId, cause: Cause) {
        self.avoid_as(now, index, client, cause, None);
    }

    /// The same of who refused, and may have said for how long.
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
            // Who answers others meanwhile is there and has too much to do: to take it for dead would give what it does to the others,
            // until all are taken for dead while they have nothing to do.
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

    /// Whether what the first place of `target` does not answer soon is better tried at the next. Where a balanced target has only
    /// such behind it as failed themselves it is waited for as if it stood alone: the last that works, taken for dead because it
    /// is slow, would be avoided as well.
    pub(crate) fn has_alternative(&self, now: Timestamp, target: &Target) -> bool {
        let is_out = |place: &NextHop| match &place.address {
            NextHopAddress::Flow(flow) => self.outages.is_out(now, &Hop::of(flow)),
            NextHopAddress::Name { .. } => false,
        };
        let Some((first, others)) = target.next_hops.split_first() else { return false };
        !others.is_empty() && (first.balanced.is_none() || is_out(first) || !others.iter().all(is_out))
    }

    /// Who is at `flow` has answered, as was found out otherwise than by what is forwarded: if it was taken for gone, it is
    /// not. What it refused it may refuse yet.
    pub fn handle_sign_of_life(&mut self, now: Timestamp, flow: Flow) {
        self.on_sign_of_life(now, Some(flow));
    }

    /// What a branch was sent to has answered.
    pub(crate) fn on_answer(&mut self, now: Timestamp, flow: Option<Flow>) {
        let Some(flow) = flow else { return };
        let hop = Hop::of(&flow);
        let outage = self.outages.clear(now, &hop);
        self.report_recovery(now, hop, outage);
    }

    /// What a branch was sent to has taken the call that had `begun` then.
    pub(crate) fn on_call_answered(&mut self, now: Timestamp, flow: Option<Flow>, begun: Timestamp) {
        let Some(flow) = flow else { return };
        let hop = Hop::of(&flow);
        let outage = self.outages.clear_by_call(now, &hop, begun);
        self.report_recovery(now, hop, outage);
    }

    /// What a branch was sent to has said something, if nothing final: if it was taken for dead, it is not.
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
