//! Recorded traffic played again: the SIP of a capture, its calls with their timing, as scripts.
//!
//! ```text
//! file ─► frame ─► stream ─► capture    bytes of a file ─► packets ─► TCP in order ─► messages
//! call ─► message ─► compile            which belong together ─► as templates of the run's own ─► scripts
//! options                               what a user asks ─► a plan
//! ```
//!
//! A file is what somebody else captured: nothing in it is believed, and what cannot be used is counted by its reason.

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

/// Why a capture cannot be used; the text names the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureError(pub String);

impl std::fmt::Display for CaptureError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CaptureError {}
