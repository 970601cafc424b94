//! A process of several that share the work.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::SocketAddr as LocalAddr;

use clap::Args;

/// Arguments of one process of a server.
#[derive(Clone, Debug, Args)]
pub(crate) struct Member {
    /// Number of this process within the server
    #[arg(long, hide = true)]
    pub(crate) number: u16,
    /// Process ID of the first process, by which the processes find each other
    #[arg(long, hide = true)]
    pub(crate) server: u32,
}

impl Member {
    /// Returns the arguments of the first process, which is this one.
    #[must_use]
    pub(crate) fn first() -> Self {
        Self { number: 0, server: std::process::id() }
    }

    /// Returns the local address of a process.
    pub(crate) fn address(&self, number: u16) -> io::Result<LocalAddr> {
        LocalAddr::from_abstract_name(format!("strowger-architectures/{}/{number}", self.server))
    }
}
