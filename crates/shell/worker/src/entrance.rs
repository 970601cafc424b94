//! Where connections arrive.

use std::io;

use mio::{Interest, Registry, Token};
use strowger_foundation::Timestamp;
use strowger_net::TcpListener;

/// A socket that connections arrive at, and its state as mio's edges have told it.
#[derive(Debug)]
pub(crate) struct Entrance {
    pub(crate) listener: TcpListener,
    /// Whether a connection may wait to be accepted.
    pub(crate) is_readable: bool,
    /// When to try again after an error.
    pub(crate) retry: Option<Timestamp>,
}

impl Entrance {
    /// Registers `listener` under `token`.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub(crate) fn new(mut listener: TcpListener, registry: &Registry, token: Token) -> io::Result<Self> {
        registry.register(&mut listener, token, Interest::READABLE)?;
        Ok(Self { listener, is_readable: true, retry: None })
    }
}
