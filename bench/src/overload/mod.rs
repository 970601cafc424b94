//! A server under more load than it can carry: its remaining goodput, its recovery time, and the effect of floods on
//! others.
//!
//! [`quota`](crate::quota) limits a server to a share of a core, [`contender`] starts it there, [`load`] offers calls
//! to it, [`capacity`] finds the highest rate that it carries, [`step`] raises the load and lowers it again,
//! [`flood`] sends attack traffic and [`flood_impact`] the calls of others meanwhile, [`avalanche`] lets all phones
//! register at once, [`cost`] measures the cost of control without overload. [`results`] saves the results, [`table`]
//! and [`plot`] present them.

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

/// Listening address of the server, over UDP and TCP.
pub const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 16_060);
/// Listening address of the callees; those of a second generator use the next port.
pub const CALLEES: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 16_070);
/// First source port of floods; each kind has its own.
pub const FLOOD_PORT: u16 = 16_900;
/// Core of servers. The generator has the next one.
pub const SERVER_CORE: &str = "0";
/// Core of the generator and of floods.
pub const GENERATOR_CORE: usize = 1;
/// Users per side.
pub const USERS: u32 = 200;
