//! Read-only access to the tables of a Kamailio or OpenSIPS database: users, destinations and registrations.
//!
//! [`Tables::check`] checks that the versions of the tables are supported. [`Tables::for_each_subscriber`],
//! [`Tables::sets`] and [`Tables::for_each_registration`] read the tables, and a [`Follower`] reports changes since
//! its last poll. A row that cannot be read becomes a [`BadRow`] with the reason; the other rows are read regardless.

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail loudly")
)]

mod dispatcher;
mod follower;
mod location;
mod row;
mod subscriber;
mod tables;
mod versions;

pub use dispatcher::{Attributes, Destination, DestinationSet, Member, is_in_service};
pub use follower::{FollowConfig, Follower, PollResult, TableContents};
pub use location::Registration;
pub use row::BadRow;
pub use subscriber::{Identity, Subscriber};
pub use tables::Tables;
pub use versions::{Flavor, Table, VersionError};
