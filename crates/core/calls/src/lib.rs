//! The calls of one shard: which are in progress, and a [`Record`] of each that has ended.
//!
//! A proxy keeps no dialogs; this is not dialog state either, but a bystander's note of it: nothing that is sent depends on
//! it, and it is not kept at all unless somebody wants it. All of a call comes to one shard, since INVITE and what follows
//! are steered by their Call-ID.
//!
//! [`Calls::begin`] takes an INVITE as it came, [`Calls::answered`] and [`Calls::failed`] what came of it, [`Calls::bye`]
//! its end; a target of a balanced set may still have it to answer then, so the call's [`Seat`](strowger_balancer::Seat) there is
//! given out ([`Ended`]). A call whose parties vanish ends too: when its session timer (RFC 4028) has run out, or after
//! [`Limits::age`] without a sign of it.

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

mod call;
mod chunks;
mod record;
mod session;
mod table;

pub use call::{MAX_CALL_ID, MAX_PARTY};
pub use record::{CallRecord, CallView, Reason, State};
pub use table::{ByeOutcome, CHALLENGE_GRACE, CallKey, Calls, Counters, EXPIRIES_PER_CALL, Limits, SESSION_GRACE};
