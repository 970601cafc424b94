//! Cost of TCP for a server with very many connections: the experiments of Ono and Schulzrinne, "The impact of TCP on
//! SIP servers", on today's kernel.
//!
//! [`echo`] is their echo server, [`phones`] its clients. Each is a role of the same program: a process holds at most
//! some 19,000 connections, so there are several processes of each. [`kernel`] reads the kernel memory of
//! connections, [`registrar`] replaces the echo server by the SIP server, [`parts`] times the steps of handling a
//! message.

pub mod echo;
pub mod growth;
pub mod kernel;
pub mod lifetimes;
pub mod parts;
pub mod phones;
pub mod registrar;
pub mod role;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Size of a request and its echo in bytes.
pub const MESSAGE_BYTES: usize = 512;
/// Listening port of servers.
const PORT: u16 = 5_060;
/// Maximum number of connections per process, within a limit of 20,000 files.
pub const CONNECTIONS_EACH: usize = 18_750;

/// Returns the time between two requests of a regular series.
#[must_use]
pub fn gap(per_second: u32) -> Duration {
    Duration::from_secs(1) / per_second.max(1)
}

/// How a client uses connections, in the paper's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionLifetime {
    /// Datagrams without connections.
    Udp,
    /// A connection per request, closed by the client after the response.
    Transaction,
    /// A connection per request, left open.
    PersistentWithOpen,
    /// Requests use connections opened in advance, in rotation.
    Persistent,
}

impl ConnectionLifetime {
    /// All lifetimes, the cheapest first.
    pub const ALL: [Self; 4] = [Self::Udp, Self::Persistent, Self::PersistentWithOpen, Self::Transaction];

    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Transaction => "transaction",
            Self::PersistentWithOpen => "persistent-with-open",
            Self::Persistent => "persistent",
        }
    }

    /// Parses a name.
    ///
    /// # Errors
    /// If there is no lifetime of this name.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|lifetime| lifetime.name() == text)
            .ok_or_else(|| format!("no such lifetime: {text}"))
    }
}

impl fmt::Display for ConnectionLifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the address of the server under test, also used by datagram clients.
#[must_use]
pub fn server_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))
}

/// Returns the echo server's address for the clients of one process. Each address provides a new set of client ports,
/// enough for [`CONNECTIONS_EACH`] connections and those in `TIME_WAIT`.
#[must_use]
pub fn address_for(process: usize) -> SocketAddr {
    let number = u8::try_from(process % 250).unwrap_or(0);
    SocketAddr::from((Ipv4Addr::new(127, 0, 1, number + 1), PORT))
}
