//! Requests of operators, from the control socket and the API, on the threads that received them.

use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use strowger_control::caller::Caller;
use strowger_control::protocol::{
    BackupReport, BackupRequest, Change, Request, Response, TimingRequest, TraceRequest, UpgradeReport, UpgradeRequest,
};
use strowger_control::socket::{Handler, TimingSource, TraceSource};
use strowger_worker::FleetTimesReader;

use super::Message;
use super::succession::Successor;
use crate::durable_store::DurableStore;
use crate::trace::Traces;
use crate::{audit, packet_times};

/// Time that a client of the control socket waits for a response.
const ANSWER_LIMIT: Duration = Duration::from_secs(9);
/// Time that a client waits while another process takes over.
const UPGRADE_LIMIT: Duration = Duration::from_secs(20);

/// Passes requests of the control socket to the thread that owns the server.
pub(super) struct ControlHandler {
    pub(super) messages: SyncSender<Message>,
    pub(super) traces: Traces,
    /// Set once loading has started.
    pub(super) backups: Arc<OnceLock<DurableStore>>,
    /// Set once the workers have started.
    pub(super) times: Arc<OnceLock<FleetTimesReader>>,
    /// Held during an upgrade.
    pub(super) upgrading: Mutex<()>,
}

impl ControlHandler {
    /// Asks the thread that owns the server.
    fn ask<T>(&self, limit: Duration, message: impl FnOnce(SyncSender<T>) -> Message) -> Result<T, String> {
        let (reply, answer) = mpsc::sync_channel(1);
        let ended = || "the server is stopping, or too busy".to_owned();
        self.messages.try_send(message(reply)).map_err(|_| ended())?;
        answer.recv_timeout(limit).map_err(|_| ended())
    }
}

impl Handler for ControlHandler {
    fn handle(&self, request: Request) -> Response {
        let (reply, answer) = mpsc::sync_channel(1);
        let ended = || Response::Busy("the server is stopping".to_owned());
        match self.messages.try_send(Message::Request(request, reply)) {
            Ok(()) => answer.recv_timeout(ANSWER_LIMIT).unwrap_or_else(|_| ended()),
            Err(mpsc::TrySendError::Full(_)) => Response::Busy("too many concurrent requests; try again".to_owned()),
            Err(mpsc::TrySendError::Disconnected(_)) => ended(),
        }
    }

    fn trace(&self, request: &TraceRequest) -> Result<Box<dyn TraceSource>, String> {
        self.traces.start(request)
    }

    fn timing(&self, request: &TimingRequest) -> Result<Box<dyn TimingSource>, String> {
        packet_times::measure(self.times.get().ok_or("the server is starting; try again")?, request)
    }

    fn backup(&self, request: &BackupRequest, progress: &mut dyn FnMut(u64, u64)) -> Result<BackupReport, String> {
        let durable = self.backups.get().ok_or("the server is starting; try again")?;
        durable.backup(request, progress)
    }

    fn upgrade(&self, request: &UpgradeRequest) -> Result<UpgradeReport, String> {
        let Ok(_turn) = self.upgrading.try_lock() else { return Err("another upgrade is under way".to_owned()) };
        let store = self.backups.get().ok_or("the server is starting; try again")?;
        if request.close_connections {
            self.ask(ANSWER_LIMIT, Message::CloseEarlierConnections)?;
        }
        self.ask(ANSWER_LIMIT, Message::Greeting)??;
        // What must be read of the journal while nothing else is done is short then.
        store.checkpoint().map_err(|why| format!("the registrations cannot be brought into the database: {why}"))?;
        let hello = self.ask(ANSWER_LIMIT, Message::Greeting)??;
        let successor = Box::new(Successor::start(request, hello)?);
        self.ask(UPGRADE_LIMIT, |reply| Message::HandOver(successor, reply))?
    }

    fn audit(&self, caller: &Caller, change: &Change, failure: Option<&str>) {
        audit::write(caller, change, failure);
    }
}
