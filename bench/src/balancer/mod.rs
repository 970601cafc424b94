//! The balancer in front of emulated servers, side by side with Debian's Kamailio: response times and throughput of each policy,
//! what the balancer itself costs, what a session does, and what becomes of calls when a target stops.
//!
//! [`setting`] says who decides and between which targets, [`cluster`] is the targets, [`peer`] the balancers, [`generate`] calls
//! through one, [`keys`] asks where each key leads, [`parts`] counts in callgrind, [`sessions`] weighs calls that stay,
//! [`disturb`] stops a target, [`theory`] says what queues must do and [`model`] what the same policies do between them, [`figures`]
//! keeps what came of it, [`table`] and [`plot`] show that.

pub mod cluster;
pub mod contender;
pub mod disturbance;
pub mod figures;
pub mod generate;
pub mod keys;
pub mod model;
pub mod parts;
pub mod peer;
pub mod plot;
pub mod sessions;
pub mod table;
pub mod theory;

use std::net::SocketAddr;

/// The domain of all users; none of the balancer's.
pub const DOMAIN: &str = "ex.example.com";
/// Where the balancer listens.
pub const BALANCER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1)), 5_060);
/// The core of the balancer; all else is on [`OTHERS`].
pub const ITS: &str = "0";
/// The core of the generator and of all targets.
pub const OTHERS: &str = "1";

/// Where a target listens, the first being 0.
#[must_use]
pub fn target(index: u16) -> SocketAddr {
    let last = u8::try_from(index + 1).unwrap_or(u8::MAX);
    SocketAddr::from(([127, 0, 1, last], 5_080))
}
