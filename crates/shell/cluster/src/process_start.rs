//! When this process started.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the process start, in ms since 1970.
pub(crate) fn process_start_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}
