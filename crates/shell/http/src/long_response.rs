//! Responses that last longer than a connection usually may.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lets the response to a request last longer than the lifetime of a connection, such as a stream of events. Each
/// connection has one, which its handlers find as an extension of the request.
#[derive(Clone, Debug, Default)]
pub struct LongResponse(Arc<Mutex<Option<Instant>>>);

impl LongResponse {
    /// Allows the response in progress to last until `end`.
    pub fn may_last_until(&self, end: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }

    /// Returns the time that the response in progress may still take beyond the usual.
    pub(crate) fn time_left(&self) -> Duration {
        let end = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        end.map_or(Duration::ZERO, |end| end.saturating_duration_since(Instant::now()))
    }
}
