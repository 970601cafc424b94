//! Where a packet's time goes in Strowger, Kamailio and an echo program, beside Krishnamurthy's thesis.
//!
//! [`probe`] runs `strowger probe`. [`injection`] compares its figures with delays of [`echo`] and of a [`link`],
//! [`agreement`] with the server's own, [`overhead`] measures what it costs. [`baseline`] measures without load,
//! [`loaded`] under load, and [`processes`] compares numbers of Kamailio's processes. [`results`] is what is saved,
//! [`thesis`] has the thesis's figures; [`goals`], [`table`] and [`plot`] present both.
//!
//! The load and the servers are those of [`models`](crate::models).

pub mod agreement;
pub mod baseline;
pub mod echo;
pub mod figures;
pub mod goals;
pub mod injection;
pub mod link;
pub mod loaded;
pub mod overhead;
pub mod packets;
pub mod plot;
pub mod probe;
pub mod processes;
pub mod program;
pub mod results;
pub mod table;
pub mod thesis;

/// Core of the measured programs.
pub const SERVER_CORE: usize = 0;
/// Core of the generator.
pub const GENERATOR_CORE: usize = 1;
