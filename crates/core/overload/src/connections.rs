//! Selection of the connections to read while far more new work arrives than can be served.
//!
//! Reading a request from a stream only to drop it costs a twentieth of a call; at ten times the capacity that is
//! half of the capacity. An unread connection costs nothing, because flow control makes its peer wait. The same
//! connections wait all the time, so calls on the others proceed as if there were no overload.

use core::time::Duration;

use strowger_foundation::ConnId;

use crate::position::POSITIONS;
use crate::proven::mix;

/// Number of connections below which all are read, since each may carry the calls of a whole site.
pub const FEW_CONNECTIONS: usize = 32;

/// Wait after which new work from connections is too old to serve. It also shows that reading itself takes too long.
pub const LATE_WAIT: Duration = Duration::from_secs(1);

/// Share of read requests being shed above which fewer connections are read, until it is `TARGET_SHED`.
const MAX_SHED: f64 = 0.5;
const TARGET_SHED: f64 = 0.4;
/// Share of read requests being shed below which more connections are read.
const MIN_SHED: f64 = 0.25;
/// Windows between two changes, so that the effect of the last one shows first.
const HOLD_WINDOWS: u32 = 20;
/// The same while requests are late.
const HOLD_LATE_WINDOWS: u32 = 10;
/// Bounds of the factor by which the share may change at once, since shedding follows reading with a delay.
const MIN_CHANGE: f64 = 0.5;
const MAX_CHANGE: f64 = 1.25;
/// Minimum share of connections read, so that the end of the overload is noticed.
const MIN_SHARE: f64 = 0.02;

/// Share of the connections with new work that a worker reads.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimit {
    share: f64,
    seed: u64,
    since_change: u32,
}

impl ConnectionLimit {
    /// Creates a limit that reads all connections.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { share: 1.0, seed, since_change: 0 }
    }

    /// Updates the share once a window from the share of read requests that is shed, the wait of what was read, and
    /// the number of connections.
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

    /// Whether to read a connection with new work.
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

    /// Returns the share of read requests that is shed if `times` the capacity arrives on all connections.
    fn shed(limit: &ConnectionLimit, times: f64, connections: &[ConnId]) -> f64 {
        let read = connections.iter().filter(|id| limit.should_read(**id)).count();
        (1.0 - connections.len() as f64 / (times * read as f64)).max(0.0)
    }

    #[test]
    fn the_read_limit_keeps_shedding_between_15_and_60_percent() {
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
    fn late_reading_halves_the_connections_read_each_second() {
        let connections: Vec<_> = (0..1_000).map(|slot| ConnId::new(0, slot, 7)).collect();
        let mut limit = ConnectionLimit::new(9);
        (0..30).for_each(|_| limit.handle_window(0.0, 2 * LATE_WAIT, connections.len()));
        let read = connections.iter().filter(|id| limit.should_read(**id)).count();
        assert!((80..180).contains(&read), "{read}");
    }

    #[test]
    fn all_connections_are_read_if_few_or_when_overload_has_ended() {
        let connections: Vec<_> = (0..31).map(|slot| ConnId::new(0, slot, 7)).collect();
        let mut limit = ConnectionLimit::new(9);
        (0..100).for_each(|_| limit.handle_window(0.9, Duration::ZERO, connections.len()));
        assert!(connections.iter().all(|id| limit.should_read(*id)));
        (0..100).for_each(|_| limit.handle_window(0.9, Duration::ZERO, 1_000));
        assert!(!connections.iter().all(|id| limit.should_read(*id)));
        // Gradually, since the backlog of each connection has to be dropped.
        (0..500).for_each(|_| limit.handle_window(0.0, Duration::ZERO, 1_000));
        assert!(connections.iter().all(|id| limit.should_read(*id)));
    }
}
