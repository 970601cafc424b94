//! Locating SIP servers: RFC 3263 without the network.
//!
//! A resolver outside the core sends a [`LocateQuery`] to the DNS. The resulting [`CandidateList`] has candidates
//! with priorities and weights, from which each request derives its own order.

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        reason = "a test may fail loudly"
    )
)]

mod host_names;
mod name_cache;
mod order;
mod outages;

pub use host_names::{HostNames, MAX_HOSTS};
pub use name_cache::{CachePolicy, Lookup, MAX_NAMES, NameCache, NameCounts, RETRY_AFTER};
pub use order::{MAX_CANDIDATES, MAX_HOPS, SplitMix64};
pub use outages::{BackOff, Cause, DetectedBy, MAX_OUTAGES, Outage, OutageChange, Outages, REMEMBERED_FOR};

use core::net::SocketAddr;
use std::sync::Arc;

use smallvec::SmallVec;
use strowger_foundation::{Flow, HostId, Transport};

/// What to locate: the host name of a URI, with the URI's port and transport (RFC 3263 §4).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocateQuery {
    /// Host name, in lower case, without a final dot.
    pub host: SmallVec<[u8; 48]>,
    /// Port, if the URI has one.
    pub port: Option<u16>,
    /// Transport, if the URI names one.
    pub transport: Option<Transport>,
    /// Whether the URI is a `sips` URI.
    pub is_secure: bool,
}

/// Maximum length of a host name in bytes, without a final dot (RFC 1035 §2.3.4). Longer names are neither cached nor
/// queried.
pub const MAX_HOST: usize = 253;

impl LocateQuery {
    /// Creates a query for `host`, in any case, with or without a final dot.
    #[must_use]
    pub fn new(host: &[u8], port: Option<u16>, transport: Option<Transport>, secure: bool) -> Self {
        let host = host.strip_suffix(b".").unwrap_or(host);
        Self { host: host.iter().map(u8::to_ascii_lowercase).collect(), port, transport, is_secure: secure }
    }

    /// Whether the host has a valid length for a DNS name.
    #[must_use]
    pub fn is_valid_name(&self) -> bool {
        self.host.len() <= MAX_HOST
    }
}

/// A destination to send a request to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hop {
    /// Transport protocol.
    pub transport: Transport,
    /// On a secure transport, the name that the peer must prove. Peers with one address and several names fail
    /// independently: a caller may choose a name that leads to somebody else's server. [`HostId::NONE`] in an answer
    /// of the DNS.
    pub host: HostId,
    /// Address and port.
    pub address: SocketAddr,
}

impl Hop {
    /// Creates the hop to a peer without a name.
    #[must_use]
    pub const fn new(transport: Transport, address: SocketAddr) -> Self {
        Self { transport, host: HostId::NONE, address }
    }

    /// Returns the hop of a flow of requests.
    #[must_use]
    pub const fn of(flow: &Flow) -> Self {
        Self { transport: flow.transport, host: flow.host, address: flow.peer }
    }
}

/// One server of a candidate list, with its rank among the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Rank of its transport (NAPTR order and preference); lower first.
    pub rank: u16,
    /// SRV priority; lower first.
    pub priority: u16,
    /// SRV weight among candidates of the same rank and priority.
    pub weight: u16,
    /// Addresses, in the order in which they are tried.
    pub hops: SmallVec<[Hop; 2]>,
}

/// All servers of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CandidateList {
    /// Candidates, sorted by rank and priority.
    pub candidates: Vec<Candidate>,
}

/// Why a name could not be located.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocateError {
    /// The name does not exist or has no address.
    NoSuchName,
    /// The DNS did not answer in time, or failed.
    NoAnswer,
}

/// Result of a DNS query.
pub type LocateResult = Result<Arc<CandidateList>, LocateError>;

/// Id of a query of one shard, repeated in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u64);
