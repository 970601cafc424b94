//! The response context of one forwarded request (RFC 3261 §16.7): its branches, and the best response so far.

use core::time::Duration;
use std::sync::Arc;

use smallvec::SmallVec;
use strowger_balancer::{CallGuard, RequestGuard, Target as Balanced};
use strowger_foundation::{Buf, Flow, TimerId, Timestamp};
use strowger_message::Status;
use strowger_transaction::{ClientId, ServerId};

use crate::forward_params::OwnedForwarding;
use crate::target::{NextHopKind, Target};

/// How far a branch has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BranchState {
    /// Its name is being looked up; nothing was sent yet.
    Resolving,
    /// No final response yet.
    Pending,
    /// A final response, or what stands for one.
    Final(Status),
    /// It ended without anything that could be passed on: a non-INVITE that timed out (RFC 4320 §4.1).
    TimedOut,
    /// Another branch has taken its place.
    Replaced,
}

/// What the timer of a branch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BranchTimer {
    /// The first sign of life: past it the next place is tried.
    Failover,
    /// Timer C; each provisional response but 100 begins it anew.
    TimerC,
    /// The time of one step of a serial fork, which no response makes longer.
    SerialFork,
}

/// One branch.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) client: ClientId,
    pub(crate) state: BranchState,
    /// What the timer is for, while it runs.
    pub(crate) timer: Option<(TimerId, BranchTimer)>,
    /// When Timer C has run out: each response but 100 moves it on (RFC 3261 §16.7 step 2).
    pub(crate) timer_c_deadline: Timestamp,
    /// Timer C has fired: what the branch says now counts as 408.
    pub(crate) has_timer_c_fired: bool,
    /// It has had a response.
    pub(crate) has_response: bool,
    /// CANCEL waits for the first provisional response (RFC 3261 §9.1).
    pub(crate) is_cancel_pending: bool,
    /// Where it was sent.
    pub(crate) flow: Option<Flow>,
    /// When it was sent, where it begins a call.
    pub(crate) invite_sent_at: Option<Timestamp>,
    /// What is known of the way there.
    pub(crate) hop_kind: NextHopKind,
    /// Where else the destination may be, and what a challenge is answered with.
    pub(crate) remaining: Option<Box<RemainingHops>>,
    /// What the target of a balanced set has to do for it, until it has ended.
    pub(crate) request_guard: Option<RequestGuard>,
    /// The call that it is at that target.
    pub(crate) call_guard: Option<CallGuard>,
    /// That target: it may still answer when another has taken its place.
    pub(crate) target: Option<Arc<Balanced>>,
    /// It was asked how much it takes: what it says of that counts.
    pub(crate) has_overload_offer: bool,
}

impl Branch {
    /// Whether it is still waited for as one of several places that many requests share.
    pub(crate) fn has_alternative_hops(&self) -> bool {
        self.hop_kind.is_shared() && matches!(self.timer, Some((_, BranchTimer::Failover)))
    }

    /// It has come as far as it will: nobody works for it any more.
    pub(crate) fn end(&mut self, progress: BranchState) {
        self.state = progress;
        self.request_guard = None;
        self.call_guard = None;
    }

    /// Whether it was given up before it ended.
    pub(crate) const fn is_stopped(&self) -> bool {
        self.has_timer_c_fired || self.is_cancel_pending
    }

    /// What the caller is told where the branch's peer cannot be reached.
    pub(crate) fn unreachable_status(&self) -> Status {
        self.hop_kind.unreachable_status()
    }
}

/// What is left of a destination while it is tried at one of its places.
#[derive(Debug)]
pub(crate) struct RemainingHops {
    /// The destination; the first of its places is the one that is tried.
    pub(crate) target: Target,
    /// A challenge was answered already.
    pub(crate) has_answered_challenge: bool,
    /// Max-Breadth of the branch.
    pub(crate) breadth: u32,
}

/// A final response that is kept until it is known to be the best.
#[derive(Debug)]
pub(crate) struct BestResponse {
    pub(crate) status: Status,
    /// The response, ready to leave; `None` where the server writes it itself.
    pub(crate) response: Option<Buf>,
}

/// What a request may still become: kept apart, for most have one destination and are sent once.
#[derive(Debug)]
pub(crate) struct ForkState {
    /// What every branch is written from, beside the request.
    pub(crate) forwarding: OwnedForwarding,
    /// The destinations that have not been tried: by rising q, so that the next is the last.
    pub(crate) targets: Vec<Target>,
    /// Hashes of the Request-URIs that were destinations; none is one twice (RFC 3261 §16.5).
    pub(crate) seen: Vec<u64>,
    /// Redirections that were followed.
    pub(crate) redirections: u8,
}

/// One forwarded request.
#[derive(Debug)]
pub(crate) struct ResponseContext {
    pub(crate) server: ServerId,
    pub(crate) is_invite: bool,
    /// Timer C.
    pub(crate) ring_timeout: Duration,
    /// The source of the request.
    pub(crate) source: Flow,
    /// The request, for what is written later; given back once the final response has left.
    pub(crate) request: Option<Buf>,
    pub(crate) branches: SmallVec<[Branch; 1]>,
    pub(crate) fork: Option<Box<ForkState>>,
    pub(crate) best: Option<BestResponse>,
    /// A final response has left.
    pub(crate) is_answered: bool,
    /// Nothing more is tried: the caller cancelled, or somebody refused for everybody.
    pub(crate) is_given_up: bool,
    /// Transactions, and questions to the DNS, that still name this context.
    pub(crate) pending_refs: u16,
    /// The call's name to who follows it; 0 where nobody does.
    pub(crate) call: u64,
    /// The call at a target of a balanced set: of an INVITE, at the one that asked the caller for more; of a BYE, at the one that
    /// has yet to answer it.
    pub(crate) call_guard: Option<CallGuard>,
    /// It was sent to targets of a balanced set.
    pub(crate) is_balanced: bool,
}

impl ResponseContext {
    pub(crate) fn branch_mut(&mut self, client: ClientId) -> Option<&mut Branch> {
        self.branches.iter_mut().find(|branch| branch.client == client)
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.branches.iter().any(|branch| matches!(branch.state, BranchState::Pending | BranchState::Resolving))
    }

    /// Whether it went only to places that many requests are sent to, and was waited for to the end at each, in vain.
    pub(crate) fn is_exhausted(&self) -> bool {
        let is_vain =
            |branch: &Branch| branch.hop_kind.is_shared() && !branch.has_response && !branch.has_timer_c_fired;
        !self.is_given_up && !self.branches.is_empty() && self.branches.iter().all(is_vain)
    }

    /// Whether another place or destination may be tried.
    pub(crate) fn may_try_more(&self) -> bool {
        !self.is_answered && !self.is_given_up
    }
}

//= rfc3261#16.7
/// Whether `new` is a better answer than `old` (step 6): 6xx before all, else the lowest class; within 4xx what the caller
/// can act upon, before what only says that one of several is not there.
pub(crate) fn is_better(new: Status, old: Status) -> bool {
    rank(new) < rank(old)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_response_as_the_rfc_orders_them() {
        let order = [603, 302, 401, 486, 480, 408, 500, 503];
        let statuses: Vec<_> = order.into_iter().filter_map(Status::new).collect();
        for (at, better) in statuses.iter().enumerate() {
            for worse in statuses.iter().skip(at + 1) {
                assert!(is_better(*better, *worse) && !is_better(*worse, *better), "{better} before {worse}");
            }
        }
        let equal = (Status::NOT_FOUND, Status::TEMPORARILY_UNAVAILABLE);
        assert!(!is_better(equal.0, equal.1) && !is_better(equal.1, equal.0), "the first of equals stays");
    }
}
