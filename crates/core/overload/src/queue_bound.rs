//! Bound of the kernel's queue of new work: what the worker serves in a fraction of a second. The kernel drops the
//! excess before it costs the worker anything.

use core::time::Duration;

/// How long new work may wait in the kernel's queue. A burst of 100 ms at twice the capacity fits.
pub const MAX_QUEUE_WAIT: Duration = Duration::from_millis(250);

/// The same if the worker remembers what it drops. Longer than the time until work is
/// [stale](crate::STALE_REMEMBERED), so that the worker drops it: what overflows the queue is retransmitted after 0.5
/// s and would be served late.
pub const MAX_QUEUE_WAIT_REMEMBERED: Duration = Duration::from_millis(400);

/// Share of its bound to which an overlong queue is cut.
const CUT_TO: f64 = 0.8;

/// Growth per window of a queue that may be longer.
const GROWTH: f64 = 1.25;

/// Minimum size of a queue in bytes, as the kernel accounts them: a few dozen messages.
pub(crate) const MIN_BYTES: usize = 64 * 1_024;

/// Size of one receive queue, derived from how long its messages have waited.
#[derive(Clone, Copy, Debug)]
pub struct QueueBound {
    bytes: usize,
    max_bytes: usize,
}

impl QueueBound {
    /// Creates a queue bound of the maximum size, in bytes.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { bytes: most, max_bytes: most }
    }

    /// Returns the size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Updates the size once a window from the longest wait of what was read and the bound of the wait. Returns the
    /// new size if it changes.
    pub fn handle_window(&mut self, longest: Duration, bound: Duration) -> Option<usize> {
        let wanted = if longest > bound {
            scale(self.bytes, CUT_TO * bound.as_secs_f64() / longest.as_secs_f64())
        } else if longest < bound / 2 {
            scale(self.bytes, GROWTH)
        } else {
            self.bytes
        };
        let wanted = wanted.clamp(MIN_BYTES.min(self.max_bytes), self.max_bytes);
        (core::mem::replace(&mut self.bytes, wanted) != wanted).then_some(wanted)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a size in bytes"
)]
fn scale(bytes: usize, factor: f64) -> usize {
    (bytes as f64 * factor) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_queue_is_cut_to_what_is_served_in_time() {
        let mut bound = QueueBound::new(4 << 20);
        // The worker serves 2,000 messages a second of 2,048 bytes each: 4 MiB take a second.
        let wait = |bytes: usize| Duration::from_nanos(bytes as u64 * 1_000_000_000 / (4 << 20));
        let bytes = bound.handle_window(wait(4 << 20), MAX_QUEUE_WAIT).expect("a second is too long");
        assert!(wait(bytes) <= MAX_QUEUE_WAIT);
        assert_eq!(bound.handle_window(wait(bytes), MAX_QUEUE_WAIT), None, "it stays");
        // As soon as the worker is faster, the queue grows again.
        let windows = (0..).take_while(|_| bound.handle_window(Duration::ZERO, MAX_QUEUE_WAIT).is_some()).count();
        assert!(windows <= 8 && bound.bytes() == 4 << 20, "{windows}");
    }

    #[test]
    fn a_long_pause_still_leaves_the_minimum_queue() {
        let mut bound = QueueBound::new(4 << 20);
        assert_eq!(bound.handle_window(Duration::from_secs(3_600), MAX_QUEUE_WAIT), Some(MIN_BYTES));
        let mut small = QueueBound::new(4_096);
        assert_eq!(small.handle_window(Duration::from_secs(3_600), MAX_QUEUE_WAIT), None);
    }
}
