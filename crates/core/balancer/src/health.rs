//! Health of a target: probe results, draining, and slow start.

use core::fmt;
use core::str::FromStr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use strowger_foundation::Timestamp;

/// The full share, in thousandths.
pub const FULL_SHARE: u16 = 1_000;
/// The initial share of a target in slow start, in thousandths of its weight.
pub const FIRST_SHARE: u16 = 100;

/// The settings for probing a target by OPTIONS (RFC 3261 §11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Interval between probes.
    pub interval: Duration,
    /// Timeout of a probe.
    pub timeout: Duration,
    /// Consecutive failures after which the target is down; zero counts as one.
    pub down: u8,
    /// Consecutive successes after which it is up again; zero counts as one.
    pub up: u8,
    /// Final responses that count as success.
    pub accept: Vec<StatusRange>,
}

impl Probe {
    /// Returns whether a final response with this status is a success.
    #[must_use]
    pub fn accepts(&self, status: u16) -> bool {
        self.accept.iter().any(|range| range.contains(status))
    }
}

impl Default for Probe {
    /// Returns the default: every 5 s, timeout 1 s, down and up after two. Any status that is not the server's own
    /// failure is a success, because many working servers refuse OPTIONS with 404, 405 or 407.
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
            down: 2,
            up: 2,
            accept: vec![StatusRange { first: 200, last: 499 }],
        }
    }
}

/// Status codes from `first` to `last`, written as `404`, `2xx` or `400-499`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusRange {
    /// The lowest code.
    pub first: u16,
    /// The highest code.
    pub last: u16,
}

impl StatusRange {
    /// Returns whether `status` is in the range.
    #[must_use]
    pub const fn contains(self, status: u16) -> bool {
        self.first <= status && status <= self.last
    }
}

/// The error for text that is not a final status code, a class or a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadStatusRange;

impl fmt::Display for BadStatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "expected a status code like \"404\", a class like \"2xx\" or a range like \"400-499\", from 200 to 699",
        )
    }
}

impl core::error::Error for BadStatusRange {}

impl FromStr for StatusRange {
    type Err = BadStatusRange;

    fn from_str(text: &str) -> Result<Self, BadStatusRange> {
        let code = |text: &str| match text.as_bytes() {
            [b'2'..=b'6', b'0'..=b'9', b'0'..=b'9'] => text.parse::<u16>().map_err(|_| BadStatusRange),
            _ => Err(BadStatusRange),
        };
        let (first, last) = match text.as_bytes() {
            [class @ b'2'..=b'6', b'x' | b'X', b'x' | b'X'] => {
                let first = u16::from(class - b'0') * 100;
                (first, first + 99)
            }
            _ => match text.split_once('-') {
                Some((first, last)) => (code(first)?, code(last)?),
                None => (code(text)?, code(text)?),
            },
        };
        if first > last {
            return Err(BadStatusRange);
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) if first % 100 == 0 && last == first + 99 => write!(f, "{}xx", first / 100),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

/// A change found by probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthChange {
    /// The target answers again.
    Up,
    /// The target has stopped answering.
    Down,
}

/// The health of a target. Read by every selection, rarely written.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// [`DOWN`], [`DRAINING`], and the number of consecutive outcomes that contradict the former.
    pub(crate) flags: AtomicU32,
    /// When probes last took it down, in nanoseconds.
    pub(crate) down_since: AtomicU64,
    /// When it came back, in nanoseconds; zero if it was never out.
    pub(crate) back_since: AtomicU64,
}

/// The flag of a target that is down.
pub(crate) const DOWN: u32 = 1 << 31;
/// The flag of a target that is being drained.
pub(crate) const DRAINING: u32 = 1 << 30;

impl Health {
    pub(crate) fn drain(&self) {
        self.flags.fetch_or(DRAINING, Ordering::Relaxed);
    }

    /// Ends draining; starts a [slow start](Self::share), as after any absence.
    pub(crate) fn undrain(&self, now: Timestamp) {
        if self.flags.fetch_and(!DRAINING, Ordering::Relaxed) & DRAINING != 0 {
            self.handle_recovery(now);
        }
    }

    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        self.has(DRAINING)
    }

    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        !self.has(DOWN)
    }

    /// Returns whether any of the flags is set.
    #[inline]
    pub(crate) fn has(&self, marks: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & marks != 0
    }

    pub(crate) fn handle_probe(&self, now: Timestamp, is_good: bool, probe: &Probe) -> Option<HealthChange> {
        let (Ok(old) | Err(old)) =
            self.flags.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some(after(old, is_good, probe)));
        let (was_down, is_down) = (old & DOWN != 0, after(old, is_good, probe) & DOWN != 0);
        match (was_down, is_down) {
            (false, true) => {
                self.down_since.store(now.as_nanos(), Ordering::Relaxed);
                Some(HealthChange::Down)
            }
            (true, false) => {
                self.handle_recovery(now);
                Some(HealthChange::Up)
            }
            _ => None,
        }
    }

    /// Discards all probe results. A target that was down may still be down, so it gets a [slow start](Self::share).
    pub(crate) fn forget_probes(&self, now: Timestamp) {
        if self.flags.fetch_and(DRAINING, Ordering::Relaxed) & DOWN != 0 {
            self.handle_recovery(now);
        }
    }

    /// Returns since when it is down; `None` if it is up.
    pub(crate) fn down_since(&self) -> Option<Timestamp> {
        (!self.is_up()).then(|| Timestamp::from_nanos(self.down_since.load(Ordering::Relaxed)))
    }

    /// Returns since when it is back; `None` if it was never out.
    pub(crate) fn back_since(&self) -> Option<Timestamp> {
        Some(self.back_since.load(Ordering::Relaxed)).filter(|since| *since != 0).map(Timestamp::from_nanos)
    }

    pub(crate) fn handle_recovery(&self, now: Timestamp) {
        self.back_since.store(now.as_nanos().max(1), Ordering::Relaxed);
    }

    /// Returns its share of its weight, in thousandths; it grows from [`FIRST_SHARE`] to [`FULL_SHARE`] within
    /// `slow_start`.
    #[inline]
    pub(crate) fn share(&self, now: Timestamp, slow_start: Duration) -> u16 {
        match self.back_since() {
            None => FULL_SHARE,
            Some(since) => share_after(now.saturating_since(since), slow_start),
        }
    }
}

const FLAGS: u32 = DOWN | DRAINING;

/// Returns the state after one more outcome.
fn after(known: u32, is_good: bool, probe: &Probe) -> u32 {
    let is_down = known & DOWN != 0;
    if is_good != is_down {
        // It confirms the state, so earlier contradicting outcomes do not count.
        return known & FLAGS;
    }
    let (state, streak) = (known & FLAGS, (known & !FLAGS) + 1);
    let enough = u32::from(if is_down { probe.up } else { probe.down }.max(1));
    if streak >= enough { state ^ DOWN } else { state | streak }
}

fn share_after(elapsed: Duration, slow_start: Duration) -> u16 {
    if elapsed >= slow_start {
        return FULL_SHARE;
    }
    let missing = u128::from(FULL_SHARE - FIRST_SHARE);
    let grown = elapsed.as_nanos() * missing / slow_start.as_nanos().max(1);
    u16::try_from(grown).map_or(FULL_SHARE, |grown| (FIRST_SHARE + grown).min(FULL_SHARE))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp::from_millis(1_000);

    fn probe(down: u8, up: u8) -> Probe {
        Probe { down, up, ..Probe::default() }
    }

    #[test]
    fn thresholds_count_runs_of_outcomes() {
        let (health, probe) = (Health::default(), probe(3, 2));
        let mut outcome = |is_good| health.handle_probe(AT, is_good, &probe);
        assert_eq!([false, false, true, false, false].map(&mut outcome), [None; 5]);
        assert_eq!(outcome(false), Some(HealthChange::Down));
        assert_eq!([false, true, false, true].map(&mut outcome), [None; 4]);
        assert!(!health.is_up());
        let outcome = |is_good| health.handle_probe(AT, is_good, &probe);
        assert_eq!(outcome(true), Some(HealthChange::Up));
        assert!(health.is_up());
        assert_eq!(outcome(true), None);
    }

    #[test]
    fn all_states_handle_all_outcomes() {
        for (down, up) in [(0, 0), (1, 1), (1, 3), (3, 1), (255, 255)] {
            let (health, probe) = (Health::default(), probe(down, up));
            let (down, up) = (down.max(1), up.max(1));
            for _ in 1..down {
                assert_eq!(health.handle_probe(AT, false, &probe), None);
            }
            assert_eq!(health.handle_probe(AT, false, &probe), Some(HealthChange::Down));
            for _ in 1..up {
                assert_eq!(health.handle_probe(AT, true, &probe), None);
            }
            assert_eq!(health.handle_probe(AT, true, &probe), Some(HealthChange::Up));
        }
    }

    #[test]
    fn a_share_grows_linearly_from_a_tenth() {
        let (health, slow_start) = (Health::default(), Duration::from_secs(30));
        assert_eq!(health.share(AT, slow_start), FULL_SHARE, "it has never been away");
        health.handle_recovery(AT);
        let share = |millis| health.share(AT + Duration::from_millis(millis), slow_start);
        assert_eq!([0, 10_000, 15_000, 29_999, 30_000, 90_000].map(share), [100, 400, 550, 999, 1_000, 1_000]);
        assert_eq!(health.share(AT, Duration::ZERO), FULL_SHARE, "without a slow start it takes its part at once");
        assert_eq!(health.share(Timestamp::ZERO, slow_start), 100, "a clock read a little earlier elsewhere");
    }

    #[test]
    fn undrain_starts_slowly_only_if_drained() {
        let (health, slow_start) = (Health::default(), Duration::from_secs(30));
        health.undrain(AT);
        assert_eq!(health.share(AT, slow_start), FULL_SHARE);
        health.drain();
        assert!(health.is_draining() && health.is_up());
        assert_eq!(health.handle_probe(AT, false, &probe(1, 1)), Some(HealthChange::Down));
        assert_eq!(health.handle_probe(AT, true, &probe(1, 1)), Some(HealthChange::Up));
        assert!(health.is_draining(), "what probes say changes nothing about that");
        health.undrain(AT);
        assert!(!health.is_draining());
        assert_eq!(health.share(AT, slow_start), FIRST_SHARE);
    }

    #[test]
    fn status_ranges_are_read_and_written() {
        for (text, first, last) in [("2xx", 200, 299), ("404", 404, 404), ("400-499", 400, 499), ("405-407", 405, 407)]
        {
            let range: StatusRange = text.parse().expect("valid");
            assert_eq!(range, StatusRange { first, last });
            assert_eq!(range.to_string().parse(), Ok(range));
            assert!(range.contains(first) && range.contains(last) && !range.contains(last + 1));
        }
        for text in ["", "1xx", "7xx", "100", "20", "2000", "499-400", "2xx-3xx", "+99", "4x4", "404-", "-404"] {
            assert_eq!(text.parse::<StatusRange>(), Err(BadStatusRange), "{text}");
        }
        assert!(Probe::default().accepts(405) && !Probe::default().accepts(503));
    }
}
