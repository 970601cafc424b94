//! Counts of spans.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start of the server, which outlive an exporter.
#[derive(Debug, Default)]
pub struct OtlpCounters {
    pub(crate) sent: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// Counts since the start of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtlpCounts {
    /// Spans that the collector took.
    pub sent: u64,
    /// Spans, messages and records lost for lack of room.
    pub dropped: u64,
    /// Spans that the collector refused, or that could not be sent before the end.
    pub failed: u64,
}

impl OtlpCounters {
    /// Returns the counts.
    #[must_use]
    pub fn counts(&self) -> OtlpCounts {
        OtlpCounts {
            sent: self.sent.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }
}
