//! Calls in progress and trunk registrations, as reported to the control plane.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use strowger_calls::{CallView, SetupTimes, State};
use strowger_foundation::{ConnId, DurationHistogram, ShardId, Timestamp, Transport};
use strowger_shard::{CallDestination, ImportedState, StateError};

use crate::predecessors::ProcessLink;
use crate::process_handover::{Remaining, WorkerHandover};
use crate::worker_times::WorkerTimes;

/// A call in progress. Texts are as sent by the peers, not escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallInfo {
    /// State of the call.
    pub state: State,
    /// Time of the INVITE.
    pub began: Timestamp,
    /// Time of the first 2xx.
    pub answered: Option<Timestamp>,
    /// Transport of the INVITE.
    pub transport: Transport,
    /// Source address of the INVITE.
    pub source: SocketAddr,
    /// Address that answered.
    pub target: Option<SocketAddr>,
    /// Transport of the answer.
    pub target_transport: Option<Transport>,
    /// URI of From.
    pub caller: Vec<u8>,
    /// Request-URI as sent by the caller.
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
            target_transport: view.target_transport,
            caller: view.caller.to_vec(),
            callee: view.callee.to_vec(),
            call_id: view.call_id.to_vec(),
        }
    }
}

/// Calls up to a limit, and whether there are more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallList {
    /// The calls, oldest first.
    pub calls: Vec<CallInfo>,
    /// Whether some calls were left out.
    pub more: bool,
}

impl CallList {
    /// Adds a call.
    pub(crate) fn add(&mut self, limit: usize, view: &CallView<'_>) {
        if self.calls.len() < limit {
            self.calls.push(CallInfo::new(view));
        } else {
            self.more = true;
        }
    }

    /// Merges another list, oldest first.
    pub(crate) fn join(&mut self, mut other: Self, limit: usize) {
        self.calls.append(&mut other.calls);
        self.calls.sort_by_key(|call| call.began);
        self.more |= other.more || self.calls.len() > limit;
        self.calls.truncate(limit);
    }
}

/// Times of the calls to a trunk or balanced target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DestinationTimes {
    /// Times of call setup.
    pub setup: SetupTimes,
    /// Times from an INVITE sent there until its first response, 100 included.
    pub response: DurationHistogram,
}

impl DestinationTimes {
    /// Adds all times of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        self.setup.add(&other.setup);
        self.response.add(&other.response);
    }
}

/// Times of calls by trunk and balanced target.
pub type TimesByDestination = BTreeMap<CallDestination, DestinationTimes>;

/// A trunk that the server registers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Name of the trunk in the configuration.
    pub trunk: String,
    /// State of the registration.
    pub status: strowger_trunk::Status,
}

/// A query to a worker.
#[derive(Debug)]
pub(crate) enum WorkerQuery {
    /// Lists the calls of its shards, up to a limit.
    Calls(usize, SyncSender<CallList>),
    /// Ends the calls of its shards with this Call-ID, and lists them.
    EndCalls(Arc<[u8]>, SyncSender<CallList>),
    /// Lists the trunk registrations of its shards.
    Accounts(SyncSender<Vec<Account>>),
    /// Lists the times of the calls of its shards by destination.
    DestinationTimes(SyncSender<TimesByDestination>),
    /// Returns the states of its shards that another process needs.
    ExportStates(SyncSender<Vec<(ShardId, Vec<u8>)>>),
    /// Gives a state of another process to its shard; answered by the worker that has it.
    ImportState(Arc<[u8]>, SyncSender<Option<Result<ImportedState, StateError>>>),
    /// Lets its shards know that another process has taken over.
    HandOver(SyncSender<()>),
    /// Collects the memory that its thread has freed, and with `true` returns it to the system.
    CollectMemory(bool),
    /// Returns the peers of those of these connections that are its own.
    Peers(Arc<[ConnId]>, SyncSender<Vec<(ConnId, SocketAddr)>>),
    /// Returns the times of its packets; `None` if timing is off.
    Times(SyncSender<Option<WorkerTimes>>),
    /// Stops or starts reading.
    Freeze(bool, SyncSender<()>),
    /// Returns what is left to do of what it has read.
    Remaining(SyncSender<Remaining>),
    /// Returns descriptors and transactions for the next process.
    Handover(SyncSender<io::Result<WorkerHandover>>),
    /// Closes all connections.
    EndConnections(SyncSender<()>),
    /// Leaves the sockets to the next process.
    Release(Arc<dyn ProcessLink>, bool, SyncSender<()>),
}
