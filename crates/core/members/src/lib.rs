//! Servers ("members") that share registrations. With an engine, each [`Member`] appends changes to its own log in
//! the engine and follows the logs of the others. Without an engine, [`Peers`] sends changes to each other member
//! directly.
//!
//! A [`Member`] does no I/O. It emits requests to the engine ([`Request`]), handles their replies ([`Reply`]), and
//! says what to do with the location table ([`Output`]). The shell executes the requests on a real engine, the
//! simulator on a model. [`Peers`] takes and returns datagrams.
//!
//! # The logs
//! Each member appends numbered [entries](Entry) to its own log. Logs need no order between them: every change has a
//! [version](strowger_registrar::Version), and the newest change of each contact wins. An entry names its
//! predecessor. A reader thus detects a gap, because the log was truncated or the engine lost entries, and then reads
//! the whole state again.
//!
//! # What an engine may lose
//! An engine that fails over to a replica may lose confirmed entries. Each member remembers the end of its own log.
//! If the engine's log ends earlier, the member announces everything it knows again.

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

mod entry;
mod length_prefixed;
mod member;
pub mod model;
mod outbox;
mod peers;
mod request;
mod status;

pub use entry::{Entry, Position};
pub use member::{FIRST_RETRY, LAST_RETRY, Member, Output};
pub use outbox::{BatchId, Limits};
pub use peers::{PeerLimits, PeerOutput, Peers, PeersConfig, Process};
pub use request::{Kind, LiveMember, Reply, Request};
pub use status::{MemberStatus, PeerStatus, Status};
