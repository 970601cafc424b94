//! Which connections are read while there is far more new work than can be served.
//!
//! To read a request from a stream in order to drop it costs a twentieth of a call. At ten times the capacity that is half of it. A
//! connection that is not read costs nothing, for flow control makes its peer wait. It is always the same connections that wait, so
//! that on the others calls begin, go on and end as if there were no overload.

use core::time::Duration;

use strowger_foundation::ConnId;

use crate::position::POSITIONS;
use crate::proven::mix;

/// With fewer connections than this all are read: each may carry the calls of a whole site.
pub const FEW_CONNECTIONS: usize = 32;

/// What comes on connections has waited for so long is too old to be served. It tells, too, that reading itself takes too long.
pub const LATE_WAIT: Duration = Duration::from_secs(1);

/// Connections are left unread while more than this share of the requests that are read is shed, until it is `WANTED`.
const MAX_SHED: f64 = 0.5;
const TARGET_SHED: f64 = 0.4;
/// More are read where less is shed.
const MIN_SHED: f64 = 0.25;
/// Windows between two changes: the effect of the last one is to be seen first.
const HOLD_WINDOWS: u32 = 20;
/// The same while what comes is late.
const HOLD_LATE_WINDOWS: u32 = 10;
/// By how much the share may change at once: what is shed follows what is read with a delay.
const MIN_CHANGE: f64 = 0.5;
const MAX_CHANGE: f64 = 1.25;
/// Some are always read, or nobody would see when the overload ends.
const MIN_SHARE: f64 = 0.02;

/// The share of the connections with new work that a worker reads.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimit {
    share: f64,
    seed: u64,
    since_change: u32,
}

impl ConnectionLimit {
    /// All are read.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { share: 1.0, seed, since_change: 0 }
    }

    /// Once a window: which share of the requests that are read is shed, for how long what was read has waited, and how many
    /// connections there are.
    pub fn handle_window(&mut self, shed: f64, wait: Duration, connections: usize) {
        if connections < FEW_CONNECTIONS {
            self.share = 1.0;
            return;
        }
        self.since_change = self.since_change.saturating_add(1);
        let is_late = wait > LATE_WAIT;
        let hold = if is_late { HOLD_LATE_WINDOWS } else { HOLD_WINDOWS };
        if self.since_change < hold || (!is_late && (MIN_SHED..=MAX_SHED).contains(&shed)) {
            return;
        }
        let change = if is_late { MIN_CHANGE } else { (1.0 - shed) / (1.0 - TARGET_SHED) };
        let share = (self.share * change.clamp(MIN_CHANGE, MAX_CHANGE)).clamp(MIN_SHARE, 1.0);
        if share < 1.0 || self.share < 1.0 {
            (self.share, self.since_change) = (share, 0);
        }
    }

    /// Whether a connection that brings new work is read.
    #[must_use]
    pub fn should_read(&self, connection: ConnId) -> bool {
        let position = mix(connection.to_bits() ^ self.seed) % u64::from(POSITIONS);
        #[expect(clippy::cast_precision_loss, reason = "below 65,536")]
        let position = position as f64;
        position < self.share * f64::from(POSITIONS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shed of the requests that are read, if so many times the capacity comes on all connections.
    fn shed(limit: &ConnectionLimit, times: f64, connections: &[ConnId]) -> f64 {
        let read = connections.iter().filter(|id| limit.should_read(**id)).count();
        (1.0 - connections.len() as f64 / (times * read as f64)).max(0.0)
    }

    #[test]
    fn so_many_are_read_that_there_is_always_some_choice_and_never_much_to_drop() {
        let connections: Vec<_> = (0..200).map(|slot| ConnId::new(0, slot, 7)).collect();
        for times in [1.5, 3.0, 10.0, 40.0] {
            let mut limit = ConnectionLimit::new(9);
            for window in 0..400 {
                let shed = shed(&limit, times, &connections);
                limit.handle_window(shed, Duration::ZERO, connections.len());
                assert!(window < 160 || (0.15..0.6).contains(&shed), "{times}, window {window}: {shed}");
            }
            let before: Vec<_> = connections.iter().map(|id| limit.should_read(*id)).collect();
            (0..50).for_each(|_| {
                limit.handle_window(shed(&limit, times, &connections), Duration::ZERO, connections.len());
            });
            let changed =
                connections.iter().zip(before).filter(|(id, before)| limit.should_read(**id) != *before).count();
            assert!(changed <= 20, "{times}: {changed}");
        }
    }

    #[test]
    fn where_reading_itself_takes_too_long_half_as_many_are_read_each_second() {
        let connections: Vec<_> = (0..1_000).map(|slot| ConnId::new(0, slot, 7)).collect();
        let mut limit = ConnectionLimit::new(9);
        (0..30).for_each(|_| limit.handle_window(0.0, 2 * LATE_WAIT, connections.len()));
        let read = connections.iter().filter(|id| limit.should_read(**id)).count();
        assert!((80..180).contains(&read), "{read}");
    }

    #[test]
    fn few_connections_are_all_read_and_so_are_all_when_the_overload_has_ended() {
        let connections: Vec<_> = (0..31).map(|slot| ConnId::new(0, slot, 7)).collect();
        let mut limit = ConnectionLimit::new(9);
        (0..100).for_each(|_| limit.handle_window(0.9, Duration::ZERO, connections.len()));
        assert!(connections.iter().all(|id| limit.should_read(*id)));
        (0..100).for_each(|_| limit.handle_window(0.9, Duration::ZERO, 1_000));
        assert!(!connections.iter().all(|id| limit.should_read(*id)));
        // Little by little, for what waits in each has to be dropped.
        (0..500).for_each(|_| limit.handle_window(0.0, Duration::ZERO, 1_000));
        assert!(connections.iter().all(|id| limit.should_read(*id)));
    }
}
