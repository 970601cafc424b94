//! What is watched: servers, and the records that name the live ones.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use strowger_balancer::Probe;

/// Configuration of a watcher.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Servers, each once.
    pub servers: Vec<Server>,
    /// Record sets that name them, each once.
    pub sets: Vec<RecordSet>,
    /// How servers are probed, and when they count as dead or alive.
    pub probe: Probe,
    /// Interval at which the zone is read regardless of changes.
    pub refresh: Duration,
    /// Delay of a retry after the name server did not answer or refused.
    pub retry: Duration,
}

/// Transport of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP, with retransmissions.
    Udp,
    /// TCP, with one connection per request.
    Tcp,
}

/// A server to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Transport.
    pub transport: Transport,
    /// Address and port.
    pub address: SocketAddr,
}

impl fmt::Display for Server {
    /// Formats as `udp:192.0.2.1:5060`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
        };
        write!(f, "{transport}:{}", self.address)
    }
}

/// Type of a record set.
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
    /// Name in lower case, without a final dot.
    pub name: String,
    /// Type of the records.
    pub kind: Kind,
    /// TTL in seconds.
    pub ttl_s: u32,
    /// Managed records. Others in the zone are left alone.
    pub entries: Vec<Entry>,
}

impl fmt::Display for RecordSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.kind)
    }
}

/// A managed record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Data of the record.
    pub data: RecordData,
    /// Index in [`Plan::servers`] of the server it depends on; `None` if it must always be present.
    pub server: Option<usize>,
}

/// Data of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordData {
    /// A server of a service.
    Service {
        /// Priority; lower first.
        priority: u16,
        /// Share among servers of the same priority.
        weight: u16,
        /// The port.
        port: u16,
        /// Host, in lower case, without a final dot.
        target: String,
    },
    /// An address.
    Address(IpAddr),
}

impl RecordData {
    /// Whether both name the same server, regardless of priority and weight.
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
    /// Formats as in a zone file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service { priority, weight, port, target } => write!(f, "{priority} {weight} {port} {target}"),
            Self::Address(address) => address.fmt(f),
        }
    }
}
