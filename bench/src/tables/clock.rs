//! Processor time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the processor time of this thread so far.
#[must_use]
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
