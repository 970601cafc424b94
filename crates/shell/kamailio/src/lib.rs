//! The tables of a Kamailio or OpenSIPS database, read as they are and never written: who may register, where calls go, and who is
//! registered.
//!
//! [`Tables::check`] looks whether the tables have versions that are known here. Then [`Tables::for_each_subscriber`],
//! [`Tables::sets`] and [`Tables::for_each_registration`] read them, and
//! a [`Follower`] tells what has changed since it looked last.
//! A row that cannot be read is given as a [`BadRow`] with the reason, and the others are read all the same.

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail loudly")
)]

mod dispatcher;
mod follower;
mod location;
mod subscriber;
mod tables;
mod versions;

pub use dispatcher::{Attributes, Destination, DestinationSet, Member, is_in_service};
pub use follower::{FollowConfig, Follower, PollResult, TableContents};
pub use location::Registration;
pub use subscriber::{Identity, Subscriber};
pub use tables::{BadRow, Tables};
pub use versions::{Flavor, Table, VersionError};
