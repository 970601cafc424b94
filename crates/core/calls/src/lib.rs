//! The calls of a shard: those in progress, and a [`CallRecord`] of each that has ended.
//!
//! A proxy keeps no dialog state. This table only observes dialogs: nothing that is sent depends on it, and it is
//! used only if call tracking is enabled. All messages of a call go to one shard, because they are steered by
//! Call-ID.
//!
//! [`Calls::begin`] handles an INVITE as received, [`Calls::handle_answer`] and [`Calls::handle_failure`] its result,
//! and [`Calls::handle_bye`] the end of the call. A target of a balanced set may still have to respond to the BYE, so
//! the call's [`CallGuard`](strowger_balancer::CallGuard) there is returned ([`ByeOutcome`]). A call whose parties
//! vanish ends too: when its session timer (RFC 4028) expires, or after [`Limits::age`] without a message.

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
mod dialog;
mod early_byes;
mod record;
mod session;
mod setup;
mod table;
mod transfer;

pub use call::{MAX_CALL_ID, MAX_PARTY};
pub use dialog::{DialogView, MAX_DIALOG};
pub use early_byes::{EARLY_BYE_LIFETIME, MAX_EARLY_BYES};
pub use record::{CallRecord, CallView, Reason, State, Trunks};
pub use setup::SetupTimes;
pub use table::{ByeOutcome, CHALLENGE_GRACE, CallKey, Calls, Counters, EXPIRIES_PER_CALL, Limits, SESSION_GRACE};
pub use transfer::ImportedCalls;
