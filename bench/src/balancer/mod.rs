//! The balancer in front of emulated servers, side by side with Debian's Kamailio. Measures response times and
//! throughput of each policy, the cost of the balancer itself and of a session, and the effect of a stopped target.
//!
//! [`contender`] defines policies and layouts of targets, [`cluster`] runs the targets, [`peer`] the balancers.
//! [`generate`] sends calls through a balancer, [`keys`] finds the target of each key, [`parts`] counts instructions
//! with callgrind, [`sessions`] measures the memory of established calls, [`disturbance`] stops a target. [`theory`]
//! computes what queueing theory predicts and [`model`] runs the same policies with ideal queues. [`figures`] saves
//! the results; [`table`] and [`plot`] present them.

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
pub mod results;
pub mod sessions;
pub mod table;
pub mod theory;

use std::net::SocketAddr;

/// Domain of all users; not a domain of the balancer.
pub const DOMAIN: &str = "ex.example.com";
/// Listening address of the balancer.
pub const BALANCER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1)), 5_060);
/// Core of the balancer; everything else runs on [`OTHERS`].
pub const ITS: &str = "0";
/// Core of the generator and all targets.
pub const OTHERS: &str = "1";

/// Returns the listening address of a target, counted from 0.
#[must_use]
pub fn target(index: u16) -> SocketAddr {
    let last = u8::try_from(index + 1).unwrap_or(u8::MAX);
    SocketAddr::from(([127, 0, 1, last], 5_080))
}
