//! Takeover: a process hands its sockets to the one that replaces it, and keeps the transactions that it has begun.
//!
//! 1. [`Fleet::freeze`]: the workers read nothing any more, and what they have read is done. Timers and output go on.
//! 2. [`Fleet::hand_over`]: another descriptor of each socket, and the keys of the server transactions.
//! 3. [`Fleet::release`] once the other process has everything, or [`Fleet::thaw`] if it has failed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use strowger_foundation::ConnId;
use strowger_shard::{ImportedState, StateError, shard_of_state};

use super::Fleet;
use crate::calls::WorkerQuery;
use crate::predecessors::{Predecessors, ProcessLink, RelayKind, RelayedMessage};
use crate::process_handover::{FleetHandover, Remaining, WorkerHandover};
use crate::streams::ClosedConnection;
use crate::worker_handle::{WorkerHandle, WorkerUpdate};

/// Interval at which workers are asked whether everything that they have read is done.
const QUIET_TICK: Duration = Duration::from_micros(200);

/// How often a call is offered to a shard that is moving, and the pause between two attempts.
const IMPORT_ATTEMPTS: u32 = 20;
const IMPORT_PAUSE: Duration = Duration::from_millis(5);

/// Passes messages of the process that has the sockets to the workers of this one.
#[derive(Clone, Debug)]
pub struct RelayInlet {
    handles: Vec<Arc<WorkerHandle>>,
    shards: u16,
}

impl RelayInlet {
    /// Takes over a call that the other process has set up; see [`Fleet::import_state`].
    ///
    /// # Errors
    /// If it cannot be read here.
    pub fn import_call(&self, state: &[u8]) -> Option<Result<ImportedState, StateError>> {
        // A shard that moves to another worker arrives within a few rounds.
        for _ in 0..IMPORT_ATTEMPTS {
            let imported = import_state(&self.handles, self.shards, state);
            if imported.is_some() {
                return imported;
            }
            thread::sleep(IMPORT_PAUSE);
        }
        None
    }

    /// Passes a message to its worker, or drops and counts it if too many wait.
    pub fn pass(&self, kind: RelayKind, message: RelayedMessage<'_>) {
        let closed = match (kind, message.flow.connection) {
            (RelayKind::Closed, Some(id)) => ClosedConnection::Connection(id, message.flow.peer),
            (RelayKind::WayClosed, _) => ClosedConnection::Way(message.flow),
            (RelayKind::Closed, None) => return,
            (RelayKind::Send, Some(id)) => return self.pass_to(id.worker(), kind, message),
            _ => return self.pass_to(usize::from(message.shard.0), kind, message),
        };
        self.announce_closed(&[closed]);
    }

    /// Tells all shards that connections of another process, each with its peer, are closed: that process is gone, and
    /// can no longer say so.
    pub fn close_connections_of_others(&self, gone: &[(ConnId, SocketAddr)]) {
        let closed: Vec<_> = gone.iter().map(|(id, peer)| ClosedConnection::Connection(*id, *peer)).collect();
        self.announce_closed(&closed);
    }

    fn announce_closed(&self, closed: &[ClosedConnection]) {
        let Some(first) = self.handles.first() else { return };
        let _turn = first.lock_broadcast();
        for handle in &self.handles {
            handle.notify_closed(closed);
            handle.waker.wake();
        }
    }

    fn pass_to(&self, worker: usize, kind: RelayKind, message: RelayedMessage<'_>) {
        if let Some(handle) = self.handles.get(worker % self.handles.len().max(1)) {
            handle.notify_relayed(kind, message);
        }
    }
}

impl Fleet {
    /// Makes the workers read nothing any more and waits until all that they have read is done: no REGISTER waits for
    /// the store, no message for another worker. Timers and output go on.
    ///
    /// `commit` makes the store commit what waits; it is called while a REGISTER waits.
    ///
    /// # Errors
    /// What is not done after `limit`. The workers then read again.
    pub fn freeze(&self, limit: Duration, commit: impl Fn()) -> Result<(), String> {
        let deadline = Instant::now() + limit;
        let outcome = self.try_freeze(deadline, commit);
        if outcome.is_err() {
            self.thaw();
        }
        outcome
    }

    fn try_freeze(&self, deadline: Instant, commit: impl Fn()) -> Result<(), String> {
        let freeze = |reply| WorkerQuery::Freeze(true, reply);
        if self.query_within(deadline, freeze).iter().any(Option::is_none) {
            return Err("a worker is stalled".to_owned());
        }
        let shards = self.tables.locations.shards();
        let mut taken = None;
        loop {
            let found = self.query_within(deadline, WorkerQuery::Remaining);
            let mut all = Remaining::default();
            let Some(found) = found.into_iter().collect::<Option<Vec<_>>>() else {
                return Err("a worker is stalled".to_owned());
            };
            for one in found {
                all.registers += one.registers;
                all.messages += one.messages;
                all.shards += one.shards;
                all.taken += one.taken;
            }
            // A worker that has answered may get a message of one that answers after it.
            let is_quiet = taken.replace(all.taken) == Some(all.taken);
            let moving = usize::from(shards).saturating_sub(all.shards);
            if is_quiet && (all.registers, all.messages, moving) == (0, 0, 0) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(format!(
                    "{} REGISTER requests wait for the store, {} messages for a socket or a worker, {moving} shards are moving",
                    all.registers, all.messages
                ));
            }
            if all.registers > 0 {
                commit();
            }
            thread::sleep(QUIET_TICK);
        }
    }

    /// Makes the workers read again, as before [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        let deadline = Instant::now() + super::updates::UPDATE_TIMEOUT;
        let thaw = |reply| WorkerQuery::Freeze(false, reply);
        if self.query_within(deadline, thaw).iter().any(Option::is_none) {
            tracing::warn!("a worker does not read its sockets: it is stalled");
        }
    }

    /// Returns what the next process gets. The workers must be [frozen](Self::freeze).
    ///
    /// # Errors
    /// If the process has no file descriptor left, or a worker is stalled.
    pub fn hand_over(&self, limit: Duration) -> Result<FleetHandover, String> {
        let deadline = Instant::now() + limit;
        let mut all = FleetHandover { sockets: Vec::new(), keys: Vec::new() };
        for found in self.query_within(deadline, WorkerQuery::Handover) {
            let WorkerHandover { sockets, mut keys } = found
                .ok_or("a worker is stalled")?
                .map_err(|error| format!("a socket cannot be duplicated: {error}"))?;
            all.sockets.push(sockets);
            all.keys.append(&mut keys);
        }
        Ok(all)
    }

    /// Leaves the sockets to the next process, which has them all. The workers send on them what their transactions send
    /// until they end. Connections stay here, and what arrives on them goes to that process; with `closes_connections`,
    /// they are closed.
    pub fn release(&self, successor: &Arc<dyn ProcessLink>, closes_connections: bool) {
        let deadline = Instant::now() + super::updates::UPDATE_TIMEOUT;
        let release = |reply| WorkerQuery::Release(Arc::clone(successor), closes_connections, reply);
        if self.query_within(deadline, release).iter().any(Option::is_none) {
            tracing::warn!("a worker still has sockets that are the next process's: it is stalled");
        }
    }

    /// Closes all connections once their output is sent.
    pub fn end_connections(&self) {
        let deadline = Instant::now() + super::updates::UPDATE_TIMEOUT;
        if self.query_within(deadline, WorkerQuery::EndConnections).iter().any(Option::is_none) {
            tracing::warn!("a worker does not close its connections: it is stalled");
        }
    }

    /// Returns the inlet for messages that the process after this one receives.
    #[must_use]
    pub fn relay_inlet(&self) -> RelayInlet {
        RelayInlet { handles: self.handles.clone(), shards: self.tables.locations.shards() }
    }

    /// Sets the predecessors that still have transactions. Returns whether all workers know them in time; the others do
    /// so later.
    pub fn set_predecessors(&self, predecessors: Option<&Arc<Predecessors>>) -> bool {
        let (done, told) = mpsc::sync_channel(self.handles.len());
        for handle in &self.handles {
            let predecessors = Some(predecessors.cloned());
            handle.update(WorkerUpdate { sockets: Vec::new(), settings: None, predecessors, done: done.clone() });
        }
        drop(done);
        let deadline = Instant::now() + super::updates::UPDATE_TIMEOUT;
        self.handles.iter().all(|_| told.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok())
    }

    fn query_within<T>(&self, deadline: Instant, make_query: impl Fn(SyncSender<T>) -> WorkerQuery) -> Vec<Option<T>> {
        crate::worker_handle::query_workers_until(&self.handles, deadline, make_query)
    }
}

/// Gives the state of a shard of another process to the shard here; see [`Fleet::import_state`].
pub(super) fn import_state(
    handles: &[Arc<WorkerHandle>],
    shards: u16,
    state: &[u8],
) -> Option<Result<ImportedState, StateError>> {
    let Some(shard) = shard_of_state(state) else { return Some(Err(StateError::Malformed)) };
    if shard.0 >= shards {
        return Some(Err(StateError::OtherShard(shard)));
    }
    let state: Arc<[u8]> = state.into();
    let query = |reply| WorkerQuery::ImportState(Arc::clone(&state), reply);
    crate::worker_handle::query_workers(handles, query).into_iter().flatten().flatten().next()
}
