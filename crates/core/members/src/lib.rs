//! Servers ("members") that share registrations. Through an engine: what one of them appends to its log there, and how it follows the
//! logs of the others ([`Member`]). Without one: what each tells each other one ([`Peers`]).
//!
//! A [`Member`] does no I/O. It says what is to be asked of the engine ([`Request`]), is told what came of it ([`Reply`]), and gives
//! what is to be done with the location table ([`Output`]). The shell carries this out on a real engine, the simulator on a model.
//! [`Peers`] gives datagrams and takes them.
//!
//! # The logs
//! Each member appends to a log of its own, in numbered [entries](Entry). No order between logs is needed, for every change has a
//! [version](strowger_registrar::Version) and of each contact the newest one counts. An entry says which one it comes after. So whoever
//! reads sees when something is missing, because the log was cut or the engine forgot it, and then reads the whole state anew.
//!
//! # What an engine may forget
//! An engine that fails over to a replica may lose what it has confirmed. Each member remembers how far its own log has come. Where the
//! engine has less, it announces everything again that it knows.

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
