//! Stateless forwarding (RFC 3261 §16.11): requests, and responses that match no transaction.

use strowger_foundation::{Flow, Timestamp};
use strowger_message::{Message, Method};

use crate::branch::{ANY_SHARD, BranchId as BranchTag, shared_owner, stateless_owner};
use crate::engine::Proxy;
use crate::forward_params::Forwarding;
use crate::target::{BalancedTarget, NextHop, NextHopAddress, Target};

impl Proxy {
    //= rfc3261#16.11:one-target
    /// Forwards a request statelessly to the first next hop of `target`. Drops the request if that is an unresolved
    /// name; the client retransmits.
    pub fn forward_stateless(
        &mut self,
        now: Timestamp,
        message: &Message<'_>,
        forwarding: &Forwarding<'_>,
        target: &Target,
    ) {
        //= rfc3261#16.10
        // Another member may have sent the INVITE to any of them.
        let is_for_all = forwarding.has_shared_keys && matches!(message.method(), Method::Ack | Method::Cancel);
        let target_of = |place: &NextHop| place.balanced.as_ref().map(|balanced| balanced.target.id());
        let mut before = None;
        for (at, place) in target.next_hops.iter().enumerate() {
            let this = target_of(place);
            // One address per target.
            if at == 0 || (is_for_all && this.is_some() && this != before) {
                self.send_stateless(now, message, forwarding, target, place);
            }
            before = this;
        }
    }

    //= rfc3261#16.11:same-changes
    //= rfc3261#16.11:same-values
    //= rfc3261#16.11:lasting-changes
    fn send_stateless(
        &mut self,
        now: Timestamp,
        message: &Message<'_>,
        forwarding: &Forwarding<'_>,
        target: &Target,
        place: &NextHop,
    ) {
        let NextHopAddress::Flow(flow) = place.address else { return };
        let shared = place.balanced.as_ref().and_then(|balanced| self.shared_tag(message, forwarding, balanced, flow));
        let tag = shared.unwrap_or_else(|| {
            let owner = stateless_owner(self.loop_key(), message);
            BranchTag { shard: self.shard, owner, loop_hash: forwarding.loop_hash, process: 0 }
        });
        // An ACK has no breadth and does not fork.
        let breadth = (message.method() != Method::Ack).then_some(forwarding.max_breadth);
        //= rfc3261#16.11:forwards
        let (flow, request) = self.write_fitting(now, message, forwarding, target, place, flow, tag, breadth);
        self.counters.forwarded_stateless += 1;
        self.transactions.send_once(flow, request);
    }

    /// Returns the branch to a balanced target when other members share the keys.
    pub(crate) fn shared_tag(
        &self,
        message: &Message<'_>,
        forwarding: &Forwarding<'_>,
        balanced: &BalancedTarget,
        flow: Flow,
    ) -> Option<BranchTag> {
        let owner = || shared_owner(self.loop_key(), message, balanced.target.id(), flow.peer);
        forwarding.has_shared_keys.then(|| BranchTag {
            shard: ANY_SHARD,
            owner: owner(),
            loop_hash: forwarding.loop_hash,
            process: 0,
        })
    }

    //= rfc3261#16.11:removes-via
    /// Forwards a response to `upstream`, if known.
    pub(crate) fn pass_stateless(&mut self, now: Timestamp, message: &Message<'_>, upstream: Option<Flow>) {
        let mut response = self.transactions.pool().take(message.bytes().len());
        match upstream.filter(|_| self.write_upstream(now, &mut response, message).is_some()) {
            Some(flow) => {
                self.counters.responses += 1;
                self.transactions.send_once(flow, response);
            }
            None => {
                self.counters.stray_responses += 1;
                self.transactions.pool().recycle(response);
            }
        }
    }
}
