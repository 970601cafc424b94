//! What is watched: servers, and the records that are to name those of them that are alive.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use strowger_balancer::Probe;

/// Everything that a watcher is told at its start.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The servers, each once.
    pub servers: Vec<Server>,
    /// The record sets that name them, each once.
    pub sets: Vec<RecordSet>,
    /// How servers are asked, and when they count as dead and alive.
    pub probe: Probe,
    /// How often the zone is looked at without a reason.
    pub refresh: Duration,
    /// How soon it is tried again where the name server did not answer, or refused.
    pub retry: Duration,
}

/// How a server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// By datagrams, which are repeated.
    Udp,
    /// Over a connection of its own for each request.
    Tcp,
}

/// A server that is asked whether it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// How.
    pub transport: Transport,
    /// Where.
    pub address: SocketAddr,
}

impl fmt::Display for Server {
    /// As `udp:192.0.2.1:5060`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
        };
        write!(f, "{transport}:{}", self.address)
    }
}

/// The type of a record set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Servers of a service (RFC 2782).
    Srv,
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Srv => "SRV",
            Self::A => "A",
            Self::Aaaa => "AAAA",
        })
    }
}

/// All records of one name and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSet {
    /// In lower case, without a final dot.
    pub name: String,
    /// The type of all of them.
    pub kind: Kind,
    /// How long resolvers may keep them, in seconds.
    pub ttl_s: u32,
    /// Those that are ours. Others in the zone are left alone.
    pub entries: Vec<Entry>,
}

impl fmt::Display for RecordSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.kind)
    }
}

/// One record that is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it says.
    pub data: RecordData,
    /// The place in [`Plan::servers`] of the one whose life it depends on; none: it is to be there always.
    pub server: Option<usize>,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordData {
    /// A server of a service.
    Service {
        /// Those of a lower one are used first.
        priority: u16,
        /// The share among those of the same priority.
        weight: u16,
        /// The port.
        port: u16,
        /// The host, in lower case, without a final dot.
        target: String,
    },
    /// An address.
    Address(IpAddr),
}

impl RecordData {
    /// Whether both are of the same server, whatever their priorities and weights.
    pub(crate) fn is_of_same_server(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Service { port, target, .. }, Self::Service { port: other_port, target: other_target, .. }) => {
                (port, target) == (other_port, other_target)
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for RecordData {
    /// As in a zone file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service { priority, weight, port, target } => write!(f, "{priority} {weight} {port} {target}"),
            Self::Address(address) => address.fmt(f),
        }
    }
}
