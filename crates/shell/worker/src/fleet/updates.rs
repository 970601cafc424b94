//! Changes of a running fleet: sockets that come and go, settings.

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use mio::Token;
use strowger_foundation::ListenerId;

use super::{Fleet, invalid, new_work_queue, port, sort};
use crate::listener_socket::SocketUpdate;
use crate::options::WorkerSettings;
use crate::socket::Socket;
use crate::worker_handle::WorkerUpdate;

/// Maximum time to wait for a worker. A round takes a few milliseconds; a worker that takes longer is stalled, and does
/// what it was told when it goes on.
pub(super) const UPDATE_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval at which the versions of the workers' snapshots are read.
const VERSION_TICK: Duration = Duration::from_millis(1);

/// Sockets for new listeners that are registered with the event loops of the workers, but not theirs yet. Dropping it
/// closes them.
#[derive(Debug)]
pub struct PreparedSockets {
    by_worker: Vec<Vec<SocketUpdate>>,
}

impl Fleet {
    /// Registers sockets for the listeners `ids`, by worker as in [`FleetConfig`](crate::FleetConfig). Nothing is read
    /// from them yet.
    ///
    /// # Errors
    /// `InvalidInput` if a worker does not have one socket per listener; otherwise when the system refuses one.
    pub fn prepare_sockets(&self, ids: &[ListenerId], sockets: Vec<Vec<Socket>>) -> io::Result<PreparedSockets> {
        let is_complete = sockets.iter().all(|sockets| sockets.len() == ids.len());
        if sockets.len() != self.registries.len() || !is_complete {
            return Err(invalid("each worker needs one socket for each listener"));
        }
        // The workers restrict who receives when they get the sockets.
        let second = sort(&sockets, sockets.len(), &self.options);
        let mut by_worker = Vec::with_capacity(sockets.len());
        for ((sockets, second), registry) in sockets.into_iter().zip(second).zip(&self.registries) {
            let open = |((socket, second), id): ((Socket, _), &ListenerId)| -> io::Result<SocketUpdate> {
                let listener = usize::from(id.0);
                let socket = Box::new(port(socket, registry, Token(listener), self.options.timing)?);
                let new_work = new_work_queue(second, registry, listener)?.map(Box::new);
                Ok(SocketUpdate::Open { listener, socket, new_work })
            };
            by_worker.push(sockets.into_iter().zip(second).zip(ids).map(open).collect::<io::Result<Vec<_>>>()?);
        }
        Ok(PreparedSockets { by_worker })
    }

    /// Hands the sockets to the workers, whose snapshots must [have](Self::wait_for_snapshot) the listeners. Returns
    /// whether all have taken them in time; the others do so later.
    pub fn open_sockets(&self, prepared: PreparedSockets) -> bool {
        self.update(prepared.by_worker, None)
    }

    /// Closes the sockets of listeners. Connections that they accepted stay. Returns whether all workers have done so in
    /// time.
    pub fn close_sockets(&self, ids: &[ListenerId]) -> bool {
        let close = |id: &ListenerId| SocketUpdate::Close { listener: usize::from(id.0) };
        self.update(self.handles.iter().map(|_| ids.iter().map(close).collect()).collect(), None)
    }

    /// Changes the settings of the workers. Returns whether all have done so in time.
    pub fn configure(&self, settings: WorkerSettings) -> bool {
        self.connections.configure(&settings.streams, settings.balancers.clone());
        self.update(self.handles.iter().map(|_| Vec::new()).collect(), Some(&Arc::new(settings)))
    }

    fn update(&self, by_worker: Vec<Vec<SocketUpdate>>, settings: Option<&Arc<WorkerSettings>>) -> bool {
        let (done, told) = mpsc::sync_channel(self.handles.len());
        for (handle, sockets) in self.handles.iter().zip(by_worker) {
            handle.update(WorkerUpdate {
                sockets,
                settings: settings.cloned(),
                predecessors: None,
                done: done.clone(),
            });
        }
        drop(done);
        let deadline = Instant::now() + UPDATE_TIMEOUT;
        self.handles.iter().all(|_| told.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok())
    }

    /// Waits until every worker has the latest snapshot; returns whether that is so in time.
    #[must_use]
    pub fn wait_for_snapshot(&self) -> bool {
        let deadline = Instant::now() + UPDATE_TIMEOUT;
        while !self.has_latest_snapshot() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(VERSION_TICK);
        }
        true
    }
}
