//! The calls in progress and the registrations at trunks, as the control plane is told of them.

use std::net::SocketAddr;
use std::sync::mpsc::SyncSender;

use strowger_calls::{CallView, State};
use strowger_foundation::{Timestamp, Transport};

/// A call in progress. Texts are what peers wrote, not escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallInfo {
    /// How far it has come.
    pub state: State,
    /// When its INVITE came.
    pub began: Timestamp,
    /// When its first 2xx came.
    pub answered: Option<Timestamp>,
    /// How the INVITE came.
    pub transport: Transport,
    /// Where the INVITE came from.
    pub source: SocketAddr,
    /// Where it was answered.
    pub target: Option<SocketAddr>,
    /// The URI in From.
    pub caller: Vec<u8>,
    /// The Request-URI as the caller wrote it.
    pub callee: Vec<u8>,
    /// Call-ID.
    pub call_id: Vec<u8>,
}

impl CallInfo {
    fn new(view: &CallView<'_>) -> Self {
        Self {
            state: view.state,
            began: view.began,
            answered: view.answered,
            transport: view.transport,
            source: view.source,
            target: view.target,
            caller: view.caller.to_vec(),
            callee: view.callee.to_vec(),
            call_id: view.call_id.to_vec(),
        }
    }
}

/// Calls, up to a limit, and whether there are more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallList {
    /// The calls, the oldest of them first.
    pub calls: Vec<CallInfo>,
    /// Whether some were left out.
    pub more: bool,
}

impl CallList {
    /// Takes note of one more call.
    pub(crate) fn add(&mut self, limit: usize, view: &CallView<'_>) {
        if self.calls.len() < limit {
            self.calls.push(CallInfo::new(view));
        } else {
            self.more = true;
        }
    }

    /// Both together, the oldest first.
    pub(crate) fn join(&mut self, mut other: Self, limit: usize) {
        self.calls.append(&mut other.calls);
        self.calls.sort_by_key(|call| call.began);
        self.more |= other.more || self.calls.len() > limit;
        self.calls.truncate(limit);
    }
}

/// A trunk that the server registers at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// What the configuration calls it.
    pub trunk: String,
    /// How the registration stands.
    pub status: strowger_trunk::Status,
}

/// A question to a worker.
#[derive(Debug)]
pub(crate) enum WorkerQuery {
    /// Which calls its shards have, up to so many.
    Calls(usize, SyncSender<CallList>),
    /// At which trunks its shards register.
    Accounts(SyncSender<Vec<Account>>),
}
