//! The response context of a forwarded request (RFC 3261 §16.7): its branches and the best response so far.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use smallvec::SmallVec;
use strowger_balancer::{CallGuard, RequestGuard, Target as Balanced};
use strowger_foundation::{Buf, Flow, TimerId, Timestamp};
use strowger_message::Status;
use strowger_transaction::{ClientId, ServerId};

use crate::forward_params::OwnedForwarding;
use crate::response_times::FirstResponse;
use crate::target::{CallDestination, NextHopKind, SentAs, Target};

/// State of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BranchState {
    /// A DNS query is pending; nothing has been sent.
    Resolving,
    /// No final response yet.
    Pending,
    /// A final response, or the status that stands for one.
    Final(Status),
    /// Ended without a response to forward: a non-INVITE timed out (RFC 4320 §4.1).
    TimedOut,
    /// Replaced by another branch.
    Replaced,
}

/// Purpose of a branch's timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BranchTimer {
    /// Time for the first response; then the next hop is tried.
    Failover,
    /// Timer C; restarted by each provisional response but 100.
    TimerC,
    /// Time of a step of a serial fork, which no response extends.
    SerialFork,
}

/// A branch.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) client: ClientId,
    pub(crate) state: BranchState,
    /// The running timer and its purpose.
    pub(crate) timer: Option<(TimerId, BranchTimer)>,
    /// When Timer C expires; extended by each provisional response but 100 (RFC 3261 §16.7 step 2).
    pub(crate) timer_c_deadline: Timestamp,
    /// Timer C has fired: any final response counts as 408.
    pub(crate) has_timer_c_fired: bool,
    /// A response has been received.
    pub(crate) has_response: bool,
    /// A CANCEL waits for the first provisional response (RFC 3261 §9.1).
    pub(crate) is_cancel_pending: bool,
    /// The flow that it was sent to.
    pub(crate) flow: Option<Flow>,
    /// When the INVITE was sent, if it begins a call.
    pub(crate) invite_sent_at: Option<Timestamp>,
    /// What is known about its next hop.
    pub(crate) hop_kind: NextHopKind,
    /// The target being tried, kept for failover and for answering a challenge.
    pub(crate) remaining: Option<Box<CurrentDestination>>,
    /// Counts the request at its target of a balanced set until the branch ends.
    pub(crate) request_guard: Option<RequestGuard>,
    /// Counts the call at that target.
    pub(crate) call_guard: Option<CallGuard>,
    /// That target, which may still respond after the branch was replaced.
    pub(crate) target: Option<Arc<Balanced>>,
    /// The next hop was offered overload control, so its feedback counts.
    pub(crate) has_overload_offer: bool,
    /// How its call was sent, for the call's record.
    pub(crate) sent_as: Option<Box<SentAs>>,
}

impl Branch {
    /// Whether it is still pending at one of several next hops that many requests share.
    pub(crate) fn has_alternative_hops(&self) -> bool {
        self.hop_kind.is_shared() && matches!(self.timer, Some((_, BranchTimer::Failover)))
    }

    /// Notes that its peer has responded. Returns the first response to an INVITE if the destination has a name.
    #[inline]
    pub(crate) fn note_response(&mut self) -> Option<FirstResponse> {
        if core::mem::replace(&mut self.has_response, true) {
            return None;
        }
        let (from, sent_at) = (self.destination(), self.invite_sent_at?);
        (from != CallDestination::default()).then_some(FirstResponse { from, sent_at })
    }

    /// Sets the final state and releases what the branch holds.
    pub(crate) fn end(&mut self, progress: BranchState) {
        self.state = progress;
        self.request_guard = None;
        self.call_guard = None;
    }

    /// Returns where its call was sent, as far as that has a name.
    pub(crate) fn destination(&self) -> CallDestination {
        let trunk = self.sent_as.as_ref().and_then(|sent_as| sent_as.trunk);
        CallDestination { trunk, target: self.target.as_ref().map(|target| target.id()) }
    }

    /// Returns what its final response says of the call's way, once.
    pub(crate) fn take_reported(&mut self) -> ReportedPeer {
        let (address, destination) = (self.flow.map(|flow| flow.peer), self.destination());
        ReportedPeer { address, destination, sent_as: self.sent_as.take() }
    }

    /// Whether it was given up before it ended.
    pub(crate) const fn is_stopped(&self) -> bool {
        self.has_timer_c_fired || self.is_cancel_pending
    }

    /// The status for the caller if the branch's peer is unreachable.
    pub(crate) fn unreachable_status(&self) -> Status {
        self.hop_kind.unreachable_status()
    }
}

/// A peer that has responded to a call, for call tracking.
#[derive(Debug, Default)]
pub(crate) struct ReportedPeer {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) destination: CallDestination,
    pub(crate) sent_as: Option<Box<SentAs>>,
}

/// A target while one of its next hops is tried: that next hop first, then the others.
#[derive(Debug)]
pub(crate) struct CurrentDestination {
    /// The destination; the first next hop is the one being tried.
    pub(crate) target: Target,
    /// Whether a challenge has been answered.
    pub(crate) has_answered_challenge: bool,
    /// Max-Breadth of the branch.
    pub(crate) breadth: u32,
}

/// The best final response so far, stored until no better one can arrive.
#[derive(Debug)]
pub(crate) struct BestResponse {
    pub(crate) status: Status,
    /// The response, ready to send; `None` if the server writes it itself.
    pub(crate) response: Option<Buf>,
}

/// State for further branches. Stored separately because most requests have one destination and are sent once.
#[derive(Debug)]
pub(crate) struct ForkState {
    /// What every branch is written from, in addition to the request.
    pub(crate) forwarding: OwnedForwarding,
    /// Untried destinations in order of ascending q, so that the next one is the last.
    pub(crate) targets: Vec<Target>,
    /// Hashes of the Request-URIs in the target set; each occurs once (RFC 3261 §16.5).
    pub(crate) seen: Vec<u64>,
    /// Number of redirections followed.
    pub(crate) redirections: u8,
}

/// The response context of a forwarded request.
#[derive(Debug)]
pub(crate) struct ResponseContext {
    pub(crate) server: ServerId,
    pub(crate) is_invite: bool,
    /// Timer C.
    pub(crate) ring_timeout: Duration,
    /// The source of the request.
    pub(crate) source: Flow,
    /// The request, for further branches; released after the final response is sent.
    pub(crate) request: Option<Buf>,
    pub(crate) branches: SmallVec<[Branch; 1]>,
    pub(crate) fork: Option<Box<ForkState>>,
    pub(crate) best: Option<BestResponse>,
    /// Whether a final response was sent.
    pub(crate) is_answered: bool,
    /// Nothing more is tried: the caller cancelled, or a 6xx was received.
    pub(crate) is_given_up: bool,
    /// Number of transactions and DNS queries that refer to this context.
    pub(crate) pending_refs: u16,
    /// Id of the call in call tracking; 0 if it is not tracked.
    pub(crate) call: u64,
    /// Guard of a call at a target of a balanced set. For an INVITE, the target that asked the caller to retry (a
    /// challenge, or a longer session interval); for a BYE, the one whose response is pending.
    pub(crate) call_guard: Option<CallGuard>,
    /// Whether it was sent to targets of a balanced set.
    pub(crate) is_balanced: bool,
}

impl ResponseContext {
    pub(crate) fn branch_mut(&mut self, client: ClientId) -> Option<&mut Branch> {
        self.branches.iter_mut().find(|branch| branch.client == client)
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.branches.iter().any(|branch| matches!(branch.state, BranchState::Pending | BranchState::Resolving))
    }

    /// Whether all its next hops are shared, none of them responded, and it was not given up.
    pub(crate) fn is_exhausted(&self) -> bool {
        let is_vain =
            |branch: &Branch| branch.hop_kind.is_shared() && !branch.has_response && !branch.has_timer_c_fired;
        !self.is_given_up && !self.branches.is_empty() && self.branches.iter().all(is_vain)
    }

    /// Returns what is known of the peer whose final response gives the caller's status; without such a peer, of the
    /// last one that the call was sent to, but not its address.
    pub(crate) fn take_decisive(&mut self, status: Status) -> ReportedPeer {
        let is_it = |branch: &Branch| branch.state == BranchState::Final(status) && branch.has_response;
        match self.branches.iter().rposition(is_it) {
            Some(at) => self.branches.get_mut(at).map(Branch::take_reported).unwrap_or_default(),
            None => {
                let last =
                    self.branches.iter_mut().rev().find(|branch| branch.destination() != CallDestination::default());
                ReportedPeer { address: None, ..last.map(Branch::take_reported).unwrap_or_default() }
            }
        }
    }

    /// Whether another next hop or destination may be tried.
    pub(crate) fn may_try_more(&self) -> bool {
        !self.is_answered && !self.is_given_up
    }
}

//= rfc3261#16.7:best
/// Whether `new` is better than `old` (step 6). 6xx is best, then the lowest class. Within 4xx, a response that the
/// caller can act on is better than one that only says that one of several targets is unavailable.
pub(crate) fn is_better(new: Status, old: Status) -> bool {
    rank(new) < rank(old)
}

//= rfc3261#16.7:6xx-first
//= rfc3261#16.7:lowest-class
//= rfc3261#16.7:helpful-4xx
fn rank(status: Status) -> (u16, u16) {
    match (status.class(), status.code()) {
        (6, _) => (0, 0),
        (4, 401 | 407 | 415 | 420 | 484) => (4, 0),
        (4, 404 | 480) => (4, 2),
        (4, 408) => (4, 3),
        (class @ 3..=4, _) => (class, 1),
        (class, 503) => (class, 1),
        (class, _) => (class, 0),
    }
}

/// The origin of a DNS query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingQuery {
    pub(crate) context: u32,
    pub(crate) client: ClientId,
    pub(crate) serial: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rfc3261#16.7:6xx-first
    //= rfc3261#16.7:lowest-class
    //= rfc3261#16.7:helpful-4xx
    #[test]
    fn the_best_response_follows_the_rfc() {
        let order = [603, 302, 401, 486, 480, 408, 500, 503];
        let statuses: Vec<_> = order.into_iter().filter_map(Status::new).collect();
        for (at, better) in statuses.iter().enumerate() {
            for worse in statuses.iter().skip(at + 1) {
                assert!(is_better(*better, *worse) && !is_better(*worse, *better), "{better} before {worse}");
            }
        }
        for helpful in [401, 407, 415, 420, 484].into_iter().filter_map(Status::new) {
            assert!(is_better(helpful, Status::BAD_REQUEST) && is_better(helpful, Status::NOT_FOUND), "{helpful}");
        }
        let equal = (Status::NOT_FOUND, Status::TEMPORARILY_UNAVAILABLE);
        assert!(!is_better(equal.0, equal.1) && !is_better(equal.1, equal.0), "the first of equals stays");
    }
}
