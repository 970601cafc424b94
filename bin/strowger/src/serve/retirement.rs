//! A process that another one has replaced, until its transactions and connections have ended.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use signal_hook::consts::SIGHUP;
use strowger_control::protocol::Response;
use strowger_takeover::{Relay, RelayFrame};

use super::{DRAIN_LIMIT, DRAIN_TICK, Message, Server};
use crate::text::count;

/// Interval at which a process without sockets reports how many transactions it has.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time for which a process stays after it has handed over, for clients of its control socket.
pub(super) const STAY: Duration = Duration::from_secs(1);

/// What the thread of the relay has heard of the process that has the sockets.
#[derive(Debug, Default)]
pub(super) struct SuccessorState {
    /// Its process id. After a further upgrade it is another process.
    pid: AtomicU32,
    /// It wants all connections to be closed.
    closes_connections: AtomicBool,
    /// It has said that it ends.
    ends_in_order: AtomicBool,
    has_ended: AtomicBool,
}

impl SuccessorState {
    pub(super) fn set_pid(&self, pid: u32) {
        self.pid.store(pid, Ordering::Release);
    }

    pub(super) fn on_frame(&self, frame: RelayFrame<'_>) {
        match frame {
            RelayFrame::CloseConnections => self.closes_connections.store(true, Ordering::Release),
            RelayFrame::Serves { pid } => self.set_pid(pid),
            RelayFrame::Ended => self.ends_in_order.store(true, Ordering::Release),
            RelayFrame::Message(..) | RelayFrame::Remaining { .. } | RelayFrame::Call(_) => {}
        }
    }

    pub(super) fn on_end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }
}

impl Server {
    /// Waits until the transactions and connections of a process that has handed over have ended.
    pub(super) fn retire(&mut self) {
        let Some(relay) = self.chain.successor.take() else { return };
        self.await_end(&relay);
        relay.link().send(&RelayFrame::Ended);
    }

    fn await_end(&mut self, relay: &Relay) {
        let pid = std::process::id();
        let limit = super::listeners::draining_time(&self.config);
        tracing::info!(
            "process {pid} has handed over: ending when every transaction has ended, within {} s, and every connection is \
             closed",
            limit.as_secs()
        );
        let begun = Instant::now();
        let (deadline, mut end_at, mut report_at) = (begun + limit, None::<Instant>, begun + REPORT_INTERVAL);
        loop {
            let total = self.fleet.status().total;
            let (transactions, connections) = (total.transactions as u64, total.connections as u64);
            let now = Instant::now();
            let left = || format!("{} and {}", count(transactions, "transaction"), count(connections, "connection"));
            if self.chain.successor_state.has_ended.load(Ordering::Acquire) {
                return self.log_orphaned(&left());
            }
            if self.chain.successor_state.closes_connections.swap(false, Ordering::AcqRel) {
                self.fleet.end_connections();
            }
            if now >= report_at {
                report_at = now + REPORT_INTERVAL;
                relay.link().send(&RelayFrame::Remaining { transactions, connections });
            }
            if transactions == 0 && connections == 0 && now >= begun + STAY {
                return;
            }
            // Connections do not end by themselves.
            let is_over = |at| now >= at || transactions == 0;
            if (now >= deadline && connections == 0) || end_at.is_some_and(is_over) {
                return tracing::info!("process {pid} ends with {} left", left());
            }
            match self.messages.recv_timeout(DRAIN_TICK) {
                Ok(Message::Signal(SIGHUP)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Signal(_)) => end_at = end_at.or(Some(Instant::now() + DRAIN_LIMIT)),
                Ok(message) => refuse(message),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Says that this process ends because that with the sockets has: nothing reaches its transactions any more, and a new
    /// server needs the addresses.
    fn log_orphaned(&self, left: &str) {
        let (own, pid) = (std::process::id(), self.chain.successor_state.pid.load(Ordering::Acquire));
        if self.chain.successor_state.ends_in_order.load(Ordering::Acquire) {
            return tracing::info!(
                "process {own} ends with {left} left, as process {pid}, which had replaced it, ends"
            );
        }
        tracing::error!(
            "process {pid}, which had the sockets, has died: nobody serves; process {own}, an earlier one, ends too with {left} \
             left, as nothing reaches it any more; start the server again, unless the service manager does, and see the system's \
             log for the cause"
        );
    }
}

/// Answers that another process serves.
fn refuse(message: Message) {
    let moved = || "another process serves now; ask again".to_owned();
    match message {
        Message::Signal(_) => {}
        Message::Request(_, reply) => drop(reply.try_send(Response::Busy(moved()))),
        Message::CloseEarlierConnections(reply) => _ = reply.try_send(0),
        Message::Greeting(reply) => drop(reply.try_send(Err(moved().into()))),
        Message::HandOver(_, reply) => drop(reply.try_send(Err(moved()))),
    }
}
