//! Replay of recorded traffic: the calls in the SIP messages of a capture, with their timing, as scripts.
//!
//! ```text
//! file ─► frame ─► stream ─► capture    bytes of a file ─► packets ─► TCP in order ─► messages
//! call ─► message ─► compile            grouped into calls ─► as templates ─► scripts
//! options                               a user's options ─► a plan
//! ```
//!
//! Captures are untrusted input: what cannot be used is counted by reason.

mod call;
mod capture;
mod comparison;
mod compile;
mod ending;
mod file;
mod frame;
mod message;
mod options;
mod skipped;
mod stream;

pub use capture::{Capture, CapturedMessage, MAX_MESSAGES};
pub use comparison::{AnswerComparison, Difference};
pub use options::{MAX_CALLS, ReplayOptions, ReplaySides};
pub use skipped::{Reason, SkipCounts};

pub(crate) use call::opening;
pub(crate) use options::gaps;

/// Why a capture cannot be used; the text says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureError(pub String);

impl std::fmt::Display for CaptureError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CaptureError {}
