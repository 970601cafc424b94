//! SIP messages: from bytes to a borrowed view, typed headers, URIs, and back to bytes.
//!
//! Whose a message is, a [`Glance`] tells that reads no more than that. To deal with it, the order of use is [`Peek`] (the
//! lines, what is needed to admit and to steer, and on the way each value that is written as most write it), [`Message::from_peek`] (what every element must understand, by the whole grammar where it was not read
//! yet); everything else is parsed when asked for. What is usual is read by functions called `read_usual`, which take what
//! they know from the start of a text and say what follows, sixteen bytes at a time; what they do not know is no fault, and
//! what they read, the whole grammar reads as the same. Nothing is copied: a view borrows the buffer
//! that the message came in, and what is not changed by a [`Rewrite`] leaves byte for byte.

#![forbid(unsafe_code)]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects,
        reason = "a test may fail loudly"
    )
)]

mod auth_params;
mod cursor;
mod fault;
mod framer;
mod head;
mod header;
mod host;
mod message;
mod method;
mod name_addr;
mod params;
mod partial_peek;
mod peek;
mod response_builder;
mod rewrite;
mod simd;
mod status;
mod text;
mod uri;
mod via;

pub use auth_params::{AuthParams, AuthScheme};
pub use fault::Fault;
pub use framer::{FrameResult, MAX_STREAM_MESSAGE, frame_stream};
pub use head::{Field, Head, MAX_FIELDS, MAX_HEAD, StartLine};
pub use header::{HeaderName, HeaderSet};
pub use host::{Host, HostPort};
pub use message::{CSeq, Message};
pub use method::Method;
pub use name_addr::{NameAddr, parse_contacts};
pub use params::{Param, Params};
pub use partial_peek::PartialPeek;
pub use peek::{Kind, Peek};
pub use response_builder::{OwnFields, ResponseBuilder};
pub use rewrite::Rewrite;
pub use status::Status;
pub use text::{Decimal, lossy, parse_decimal, parse_q, split_list, trim, unquote};
pub use uri::{Aor, SipUri, TelUri, Uri, is_emergency_service, unescape};
pub use via::{MAGIC_COOKIE, OVERLOAD_OFFER, OVERLOAD_OFFER_WITH_RATE, Rport, Via};
