//! A server under more load than it can carry: what it still carries, how soon it recovers, and what floods do to others.
//!
//! [`quota`](crate::quota) holds a server to a share of a core, [`contender`] starts one there, [`load`] offers calls to it, [`capacity`] finds the
//! highest rate that it carries, [`step`] raises the load and takes it away again, [`flood`] sends what attackers send and
//! [`innocent`] the calls of others meanwhile, [`avalanche`] lets all phones register at once, [`cost`] is
//! what control takes where there is no overload. [`results`] keeps what was measured,
//! [`table`] and [`plot`] show it.

pub mod avalanche;
pub mod capacity;
pub mod contender;
pub mod cost;
pub mod flood;
pub mod flood_impact;
pub mod load;
pub mod plot;
pub mod raw;
pub mod results;
pub mod step;
pub mod table;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub use crate::proxy::DOMAIN;

/// Where the server listens, over UDP and TCP.
pub const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 16_060);
/// Where callees listen; those of a second generator at the next port.
pub const CALLEES: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 16_070);
/// The port that floods come from, the first of one for each kind.
pub const FLOOD_PORT: u16 = 16_900;
/// The core of servers. The generator has the next one.
pub const SERVER_CORE: &str = "0";
/// The core of the generator, and of floods.
pub const GENERATOR_CORE: usize = 1;
/// Users on each side.
pub const USERS: u32 = 200;
