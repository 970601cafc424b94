//! What TCP costs a server with very many connections: the experiments of Ono and Schulzrinne, "The impact of TCP on SIP
//! servers", on today's kernel.
//!
//! [`echo`] is their echo server, [`phones`] its clients, each a role of the same program: a process holds some 19,000
//! connections at most, so there are several of each. [`kernel`] reads what connections cost below the processes, [`registrar`]
//! puts the SIP server in the echo server's place, [`parts`] times what is done for one message.

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

/// What is sent and comes back, in bytes.
pub const MESSAGE_BYTES: usize = 512;
/// Where servers listen.
const PORT: u16 = 5_060;
/// Connections of one process at most, where it may have 20,000 files.
pub const CONNECTIONS_EACH: usize = 18_750;

/// From one request of a regular series to the next.
#[must_use]
pub fn gap(per_second: u32) -> Duration {
    Duration::from_secs(1) / per_second.max(1)
}

/// How a client uses connections; the paper's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionLifetime {
    /// No connections: datagrams.
    Udp,
    /// A connection for each request, closed by the client after its answer.
    Transaction,
    /// One for each request, left open.
    PersistentWithOpen,
    /// Requests take turns on connections that were opened before.
    Persistent,
}

impl ConnectionLifetime {
    /// All, the cheapest first.
    pub const ALL: [Self; 4] = [Self::Udp, Self::Persistent, Self::PersistentWithOpen, Self::Transaction];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Transaction => "transaction",
            Self::PersistentWithOpen => "persistent-with-open",
            Self::Persistent => "persistent",
        }
    }

    /// Reads its name.
    ///
    /// # Errors
    /// When there is none of this name.
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

/// Where the server under test listens, and clients with datagrams ask it.
#[must_use]
pub fn server_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))
}

/// Where the clients of one process ask the echo server: each of its addresses gives their ports anew, enough for
/// [`CONNECTIONS_EACH`] connections and for those that are closed and still waited for.
#[must_use]
pub fn address_for(process: usize) -> SocketAddr {
    let number = u8::try_from(process % 250).unwrap_or(0);
    SocketAddr::from((Ipv4Addr::new(127, 0, 1, number + 1), PORT))
}
