//! Where a SIP URI is: RFC 3263 without its network.
//!
//! A [`Question`] is asked of the DNS by a resolver outside of the core; its [`Located`] answer lists candidates with their
//! priorities and weights, from which each request takes its own order.

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

mod name_cache;
mod order;
mod outages;

pub use name_cache::{CachePolicy, Lookup, MAX_NAMES, NameCache, NameCounts, RETRY_AFTER};
pub use order::{MAX_CANDIDATES, MAX_HOPS, SplitMix64};
pub use outages::{BackOff, Cause, DetectedBy, MAX_OUTAGES, Outage, OutageChange, Outages, REMEMBERED_FOR};

use core::net::SocketAddr;
use std::sync::Arc;

use smallvec::SmallVec;
use strowger_foundation::{Flow, Transport};

/// What is to be located: the host name of a URI, with what the URI says of port and transport (RFC 3263 §4).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocateQuery {
    /// The host name, in lower case, without a final dot.
    pub host: SmallVec<[u8; 48]>,
    /// The port, where the URI has one.
    pub port: Option<u16>,
    /// The transport, where the URI names one.
    pub transport: Option<Transport>,
    /// The URI is a `sips` URI.
    pub is_secure: bool,
}

/// Bytes of a host name at most, without a final dot (RFC 1035 §2.3.4); nothing longer is kept or asked for.
pub const MAX_HOST: usize = 253;

impl LocateQuery {
    /// Asks for `host` in any case, with or without a final dot.
    #[must_use]
    pub fn new(host: &[u8], port: Option<u16>, transport: Option<Transport>, secure: bool) -> Self {
        let host = host.strip_suffix(b".").unwrap_or(host);
        Self { host: host.iter().map(u8::to_ascii_lowercase).collect(), port, transport, is_secure: secure }
    }

    /// Whether the host could be a name of the DNS, by its length.
    #[must_use]
    pub fn is_valid_name(&self) -> bool {
        self.host.len() <= MAX_HOST
    }
}

/// One place to send a request to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hop {
    /// How.
    pub transport: Transport,
    /// Where.
    pub address: SocketAddr,
}

impl Hop {
    /// The place that a flow leads to.
    #[must_use]
    pub const fn of(flow: &Flow) -> Self {
        Self { transport: flow.transport, address: flow.peer }
    }
}

/// One server of an answer, with the place that the DNS gives it among the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The rank of its transport among those of the answer; lower first (NAPTR order and preference).
    pub rank: u16,
    /// Its SRV priority; lower first.
    pub priority: u16,
    /// Its share among those of the same rank and priority.
    pub weight: u16,
    /// Its addresses, in the order in which they are tried.
    pub hops: SmallVec<[Hop; 2]>,
}

/// All servers that a name stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CandidateList {
    /// In the order of rank and priority.
    pub candidates: Vec<Candidate>,
}

/// Why a name could not be located.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocateError {
    /// There is no such name, or it has no address.
    NoSuchName,
    /// The DNS did not answer in time, or with a failure of its own.
    NoAnswer,
}

/// What the DNS said.
pub type LocateResult = Result<Arc<CandidateList>, LocateError>;

/// One question of one shard, to be named in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u64);
