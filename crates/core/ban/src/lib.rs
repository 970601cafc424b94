//! Sources that are banned: by the operator, or after failed authentications.
//!
//! [`BanList`] decides, on one thread; workers only look up [`BannedSources`]. A source is an IPv4 address or a /64 of
//! IPv6 ([`source_bits`](strowger_foundation::source_bits)). Only failures whose source is proven may be counted, as
//! anybody can send a datagram with somebody else's address. [`LineLimits`] keeps sources from filling the log.

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod banned;
mod lines;
mod list;

pub use banned::{BannedSources, MAX_BANNED};
pub use lines::{LINES_PER_SOURCE, LINES_WINDOW, LineLimits, MAX_LINE_SOURCES, MAX_LINES};
pub use list::{Ban, BanCause, BanCounters, BanList, BanPolicy, FailureOutcome, FullError, MAX_SUSPECTS};
