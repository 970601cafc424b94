//! SIP messages: from bytes to a borrowed view, typed headers and URIs, and back to bytes.
//!
//! A [`PartialPeek`] reads only as much as is needed to find the shard of a message. To process the message, use
//! [`Peek`] first: it finds the lines, reads what admission and steering need, and reads every value in the common
//! form on the way. [`Message::from_peek`] then checks what every element must understand, with the full grammar for
//! values not read yet. Everything else is parsed on demand.
//!
//! Functions called `read_fast` read the common form. They read a value at the start of a text, sixteen bytes at a
//! time, and return what follows. Failure of a fast path is not a syntax error, and the full parser reads the same
//! value from whatever a fast path accepts.
//!
//! Nothing is copied: a view borrows the receive buffer, and what a [`Rewrite`] does not change is sent byte for
//! byte.

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

mod aor;
mod auth_params;
mod cseq;
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
mod unescape;
mod uri;
mod via;

pub use aor::Aor;
pub use auth_params::{AuthParams, AuthScheme};
pub use cseq::CSeq;
pub use fault::Fault;
pub use framer::{FrameResult, MAX_STREAM_MESSAGE, frame_stream};
pub use head::{Field, Head, MAX_FIELDS, MAX_HEAD, StartLine};
pub use header::{HeaderName, HeaderSet};
pub use host::{Host, HostPort};
pub use message::Message;
pub use method::Method;
pub use name_addr::{NameAddr, parse_contacts};
pub use params::{Param, Params};
pub use partial_peek::PartialPeek;
pub use peek::{Kind, Peek};
pub use response_builder::{OwnFields, ResponseBuilder};
pub use rewrite::Rewrite;
pub use status::Status;
pub use text::{Decimal, lossy, parse_decimal, parse_q, split_list, trim, unquote};
pub use unescape::unescape;
pub use uri::{SipUri, TelUri, Uri, is_emergency_service};
pub use via::{MAGIC_COOKIE, OVERLOAD_OFFER, OVERLOAD_OFFER_WITH_RATE, Rport, Via};
