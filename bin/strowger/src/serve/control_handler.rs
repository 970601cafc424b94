//! Requests of operators, from the control socket and the API, on the threads that received them.

use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use strowger_control::caller::Caller;
use strowger_control::protocol::{
    BackupReport, BackupRequest, Change, Request, Response, TimingRequest, TraceRequest, UpgradeReport, UpgradeRequest,
};
use strowger_control::socket::{Handler, TimingSource, TraceSource};
use strowger_worker::FleetTimesReader;

use super::Message;
use super::succession::{GreetingError, READY_LIMIT, Successor};
use crate::durable_store::DurableStore;
use crate::trace::Traces;
use crate::{audit, packet_times};

/// Time that a client of the control socket waits for a response.
const ANSWER_LIMIT: Duration = Duration::from_secs(9);
/// Time that a client waits while another process takes over.
const UPGRADE_LIMIT: Duration = Duration::from_secs(20);

/// Interval at which is looked whether an earlier process has ended.
const ROOM_INTERVAL: Duration = Duration::from_millis(50);

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
        match self.await_room(request)? {
            None => self.replace(request),
            Some(closed) => self.replace(request).map_err(|why| format!("{why}; {closed}")),
        }
    }

    fn audit(&self, caller: &Caller, change: &Change, failure: Option<&str>) {
        audit::write(caller, change, failure);
    }
}

impl ControlHandler {
    /// Checks that the server can hand over. If there are too many earlier processes, closes their connections if that is
    /// wanted, and waits until one of them has ended. Returns what was closed.
    fn await_room(&self, request: &UpgradeRequest) -> Result<Option<String>, String> {
        match self.ask(ANSWER_LIMIT, Message::Greeting)? {
            Ok(_) => return Ok(None),
            Err(GreetingError::TooManyProcesses) if request.close_connections => {}
            Err(error) => return Err(error.into()),
        }
        let processes = self.ask(ANSWER_LIMIT, Message::CloseEarlierConnections)?;
        let closed = format!("the connections of {processes} earlier processes were closed");
        let limit = request.ready_ms.map_or(READY_LIMIT, Duration::from_millis);
        let deadline = Instant::now() + limit;
        loop {
            match self.ask(ANSWER_LIMIT, Message::Greeting)? {
                Ok(_) => return Ok(Some(closed)),
                Err(GreetingError::TooManyProcesses) if Instant::now() < deadline => thread::sleep(ROOM_INTERVAL),
                Err(GreetingError::TooManyProcesses) => {
                    return Err(format!(
                        "{closed}, but none has ended within {:.1} s: each still has transactions; try again when one has \
                         ended, see `strowger ctl status`",
                        limit.as_secs_f64()
                    ));
                }
                Err(GreetingError::Other(why)) => return Err(format!("{why}; {closed}")),
            }
        }
    }

    /// Starts another process and hands over to it.
    fn replace(&self, request: &UpgradeRequest) -> Result<UpgradeReport, String> {
        let store = self.backups.get().ok_or("the server is starting; try again")?;
        // What must be read of the journal while nothing else is done is short then.
        store.checkpoint().map_err(|why| format!("the registrations cannot be brought into the database: {why}"))?;
        let hello = self.ask(ANSWER_LIMIT, Message::Greeting)??;
        let successor = Box::new(Successor::start(request, hello)?);
        self.ask(UPGRADE_LIMIT, |reply| Message::HandOver(successor, reply))?
    }
}
