//! Stream listeners of a worker.

use std::io;
use std::time::Duration;

use mio::{Interest, Registry, Token};
use strowger_foundation::Timestamp;
use strowger_net::{StreamSocket, is_out_of_files};

/// A listening stream socket and its readiness, tracked from mio's edges.
#[derive(Debug)]
pub(crate) struct StreamListener {
    pub(crate) socket: StreamSocket,
    /// Whether a connection may be waiting to be accepted.
    pub(crate) is_readable: bool,
    /// When to retry after an error.
    pub(crate) retry: Option<Timestamp>,
    /// Time until which further errors are not logged.
    quiet_until: Timestamp,
}

/// Interval at which a persistent error is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

impl StreamListener {
    /// Registers `socket` under `token`.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn new(mut socket: StreamSocket, registry: &Registry, token: Token) -> io::Result<Self> {
        registry.register(&mut socket, token, Interest::READABLE)?;
        Ok(Self { socket, is_readable: true, retry: None, quiet_until: Timestamp::ZERO })
    }

    /// Logs that connections cannot be accepted, and repeats it at intervals while that lasts.
    pub(crate) fn log_error(&mut self, now: Timestamp, error: &io::Error) {
        if now < self.quiet_until {
            return;
        }
        self.quiet_until = now + LOG_INTERVAL;
        let address = self.socket.local_addr();
        let remedy = match is_out_of_files(error) {
            true => "; raise the limit of open files, or lower tcp.connections",
            false => "",
        };
        tracing::error!(%address, %error, "connections cannot be accepted; retrying{remedy}");
    }
}
