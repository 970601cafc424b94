//! The response context of one forwarded request (RFC 3261 §16.7): its branches, and the best response so far.

use core::time::Duration;

use smallvec::SmallVec;
use strowger_foundation::{Buf, Flow, TimerId};
use strowger_message::Status;
use strowger_transaction::{ClientId, ServerId};

/// How far a branch has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No final response yet.
    Pending,
    /// A final response, or what stands for one.
    Final(Status),
    /// It ended without anything that could be passed on: a non-INVITE that timed out (RFC 4320 §4.1).
    Silent,
}

/// One branch.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) client: ClientId,
    pub(crate) progress: Progress,
    /// Timer C, while it runs.
    pub(crate) timer_c: Option<TimerId>,
    /// Timer C has fired: what the branch says now counts as 408.
    pub(crate) rang_out: bool,
    /// CANCEL waits for the first provisional response (RFC 3261 §9.1).
    pub(crate) cancel_wanted: bool,
}

impl Branch {
    pub(crate) const fn new(client: ClientId, timer_c: Option<TimerId>) -> Self {
        Self { client, progress: Progress::Pending, timer_c, rang_out: false, cancel_wanted: false }
    }
}

/// A final response that is kept until it is known to be the best.
#[derive(Debug)]
pub(crate) struct Best {
    pub(crate) status: Status,
    /// The response, ready to leave; `None` where the server writes it itself.
    pub(crate) response: Option<Buf>,
}

/// One forwarded request.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) server: ServerId,
    pub(crate) is_invite: bool,
    /// Timer C.
    pub(crate) ring_timeout: Duration,
    /// The source of the request.
    pub(crate) source: Flow,
    /// The request, for the responses that the server makes itself; given back once the final response has left.
    pub(crate) request: Option<Buf>,
    pub(crate) branches: SmallVec<[Branch; 1]>,
    pub(crate) best: Option<Best>,
    /// A final response has left.
    pub(crate) answered: bool,
    /// Transactions that still name this context.
    pub(crate) live: u16,
}

impl Context {
    pub(crate) fn branch_mut(&mut self, client: ClientId) -> Option<&mut Branch> {
        self.branches.iter_mut().find(|branch| branch.client == client)
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.branches.iter().any(|branch| branch.progress == Progress::Pending)
    }
}

//= rfc3261#16.7
/// Whether `new` is a better answer than `old` (step 6): 6xx before all, else the lowest class; within 4xx what the caller
/// can act upon.
pub(crate) fn is_better(new: Status, old: Status) -> bool {
    rank(new) < rank(old)
}

fn rank(status: Status) -> (u16, u16) {
    match (status.class(), status.code()) {
        (6, _) => (0, 0),
        (4, 401 | 407 | 415 | 420 | 484) => (4, 0),
        (4, 408) => (4, 2),
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
        let order = [603, 302, 401, 404, 408, 500, 503];
        let statuses: Vec<_> = order.into_iter().filter_map(Status::new).collect();
        for (at, better) in statuses.iter().enumerate() {
            for worse in statuses.iter().skip(at + 1) {
                assert!(is_better(*better, *worse) && !is_better(*worse, *better), "{better} before {worse}");
            }
        }
        assert!(!is_better(Status::NOT_FOUND, Status::BUSY_HERE), "the first of equals stays");
    }
}
