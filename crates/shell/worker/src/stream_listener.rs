//! Where connections arrive.

use std::io;
use std::time::Duration;

use mio::{Interest, Registry, Token};
use strowger_foundation::Timestamp;
use strowger_net::{TcpListener, is_out_of_files};

/// A socket that connections arrive at, and its state as mio's edges have told it.
#[derive(Debug)]
pub(crate) struct StreamListener {
    pub(crate) listener: TcpListener,
    /// Whether a connection may wait to be accepted.
    pub(crate) is_readable: bool,
    /// When to try again after an error.
    pub(crate) retry: Option<Timestamp>,
    /// Until when the log has heard enough of errors.
    quiet_until: Timestamp,
}

/// How often the log is told of errors that go on.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

impl StreamListener {
    /// Registers `listener` under `token`.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub(crate) fn new(mut listener: TcpListener, registry: &Registry, token: Token) -> io::Result<Self> {
        registry.register(&mut listener, token, Interest::READABLE)?;
        Ok(Self { listener, is_readable: true, retry: None, quiet_until: Timestamp::ZERO })
    }

    /// Tells the log that nothing can be accepted, and now and then that this goes on.
    pub(crate) fn log_error(&mut self, now: Timestamp, error: &io::Error) {
        if now < self.quiet_until {
            return;
        }
        self.quiet_until = now + LOG_INTERVAL;
        let address = self.listener.local_addr();
        let remedy = match is_out_of_files(error) {
            true => "; raise the limit of open files, or lower tcp.connections",
            false => "",
        };
        tracing::error!(%address, %error, "connections cannot be accepted; trying again{remedy}");
    }
}
