//! The first message: what the new process must match, and what it needs to begin.

use std::net::SocketAddr;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::channel::{Channel, ChannelError};
use crate::frame::Kind;

/// Version of the protocol. A process refuses another one, and the one before it goes on.
pub const PROTOCOL: u32 = 1;

/// What the running process says about itself. Fields may be added; a process ignores those that it does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Version of its program, for people.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Number of the new process, which is in its branches.
    pub process: u8,
    /// Fingerprint of the key.
    pub key: String,
    /// Number of workers.
    pub workers: u16,
    /// Whether the kernel sorts new work apart, which must stay so.
    pub sorts_new_work: bool,
    /// Its `CLOCK_MONOTONIC` at the origin of its timestamps, in nanoseconds.
    pub clock_origin: u64,
    /// Store time at the origin of its timestamps, in nanoseconds.
    pub store_origin: u64,
    /// Seed of its nonces and of its set of proven sources.
    pub nonce_seed: u64,
    /// How registrations are stored: `memory`, `write-behind` or `write-through`.
    pub store: String,
    /// Which member of a cluster it is, if it shares registrations.
    pub member: Option<MemberInfo>,
    /// Whether the new process makes all earlier ones close their connections.
    #[serde(default)]
    pub closes_connections: bool,
    /// Its listeners, by id.
    pub listeners: Vec<ListenerInfo>,
}

/// The member of a cluster that the running process is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberInfo {
    /// Name of the cluster.
    pub cluster: String,
    /// Its number.
    pub number: u16,
    /// Where it receives what the other members forward, if they do.
    pub listen: Option<SocketAddr>,
    /// Wall clock time at the origin of its timestamps, in ms since 1970. Its nonces name it.
    pub clock_origin_ms: u64,
}

/// A listener of the running process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerInfo {
    /// Its transport, as in Via.
    pub transport: String,
    /// Its address.
    pub address: SocketAddr,
    /// Its address as configured: the port may be 0.
    pub configured: SocketAddr,
    /// Whether it takes new requests.
    pub is_open: bool,
    /// Whether it has sockets.
    pub has_sockets: bool,
    /// Milliseconds until its sockets are closed, if it was removed and that is to come.
    pub closes_in_ms: Option<u64>,
}

impl Hello {
    /// Sends it.
    ///
    /// # Errors
    /// When the other process has ended.
    pub fn send(&self, channel: &Channel, deadline: Instant) -> Result<(), ChannelError> {
        let bytes = serde_json::to_vec(self).map_err(|error| ChannelError::System(error.into()))?;
        channel.send(Kind::Hello, &bytes, &[], deadline)
    }

    /// Receives it. Its protocol may be another one.
    ///
    /// # Errors
    /// When it does not arrive in time or is nothing of this kind.
    pub fn receive(channel: &Channel, deadline: Instant) -> Result<Self, ChannelError> {
        let frame = channel.receive(deadline)?;
        if frame.kind != Kind::Hello {
            return Err(ChannelError::Protocol("no greeting"));
        }
        serde_json::from_slice(&frame.payload).map_err(|_| ChannelError::Protocol("a greeting with unknown fields"))
    }
}
