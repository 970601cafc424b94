//! The protocol by which a server hands over to the process that replaces it, without a lost message.
//!
//! The running process starts the new one, with a [`Channel`] between them as its standard input:
//!
//! | from | message | meaning |
//! |---|---|---|
//! | old | [`Hello`] | what the new process must match: protocol, key, workers, listeners; what it needs to begin |
//! | new | `Ready`, or `Refused` with the reason | it has loaded everything that is not handed over |
//! | old | [`State`] in pieces, then `Complete` | descriptors, registrations, keys of transactions; it reads nothing any more |
//! | new | `Prepared`, or `Refused` | it can go on from here |
//! | old | `Go`, or `Abort` | from `Go` on, the new process serves |
//!
//! Afterwards the old process keeps the transactions that it has begun. The new one receives everything, and passes on
//! what belongs to these over a [relay](RelayLink).
//!
//! The other process is the same program, perhaps of another version. Its bytes are checked as if they were not: lengths
//! and numbers are bounded, and nothing panics.

#![cfg(target_os = "linux")]
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

mod channel;
mod frame;
mod hello;
mod relay;
mod relay_frame;
mod state;

pub use channel::{Channel, ChannelError};
pub use frame::{MAX_DESCRIPTORS, MAX_PAYLOAD};
pub use hello::{Hello, ListenerInfo, MemberInfo, PROTOCOL};
pub use relay::{MAX_RELAY_QUEUE, Relay, RelayEnd, RelayLink};
pub use relay_frame::{MAX_RELAYED_BYTES, RelayFrame};
pub use state::{
    Go, MAX_KEYS, MAX_SECTION_BYTES, MAX_STATE_BYTES, PredecessorInfo, PredecessorState, Reply, Section, State,
    StateReceiver, StateSender, WorkerSockets, receive_go, receive_reply, send_reply,
};
