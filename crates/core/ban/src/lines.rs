//! Limits of the log lines about sources.

use core::mem;
use core::net::IpAddr;
use core::time::Duration;

use strowger_foundation::map::{SeededMap, seeded};
use strowger_foundation::{Timestamp, source_bits};

/// Period of the limits.
pub const LINES_WINDOW: Duration = Duration::from_secs(10);
/// Maximum number of lines about one source in a period: enough for a reader that counts failures.
pub const LINES_PER_SOURCE: u32 = 10;
/// Maximum number of lines about all sources in a period.
pub const MAX_LINES: u32 = 500;
/// Maximum number of sources that are told apart in a period; there are no lines about further ones.
pub const MAX_LINE_SOURCES: usize = MAX_LINES as usize;

/// Limits how many lines are logged about each source, and about all together.
#[derive(Debug)]
pub struct LineLimits {
    began: Timestamp,
    lines: u32,
    sources: SeededMap<u64, u32>,
    suppressed: u64,
}

impl LineLimits {
    /// Creates limits of which nothing is used; `seed` is for a table's hash.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { began: Timestamp::ZERO, lines: 0, sources: SeededMap::with_hasher(seeded(seed)), suppressed: 0 }
    }

    /// Whether a line about this source may be logged now. If not, it is counted.
    pub fn admits(&mut self, now: Timestamp, ip: IpAddr) -> bool {
        if now >= self.began + LINES_WINDOW {
            (self.began, self.lines) = (now, 0);
            self.sources.clear();
        }
        let admitted = self.lines < MAX_LINES && {
            let lines = self.sources.entry(source_bits(ip)).or_default();
            *lines = lines.saturating_add(1);
            *lines <= LINES_PER_SOURCE
        };
        self.lines = self.lines.saturating_add(u32::from(admitted));
        self.suppressed = self.suppressed.saturating_add(u64::from(!admitted));
        debug_assert!(self.sources.len() <= MAX_LINE_SOURCES, "a source is only added with a line");
        admitted
    }

    /// Returns when suppressed lines should be reported; `None` if there are none.
    #[must_use]
    pub fn report_due(&self) -> Option<Timestamp> {
        (self.suppressed > 0).then_some(self.began + LINES_WINDOW)
    }

    /// Returns the number of lines suppressed since the last call.
    pub const fn take_suppressed(&mut self) -> u64 {
        mem::replace(&mut self.suppressed, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u32) -> IpAddr {
        core::net::Ipv4Addr::from(0x0A00_0000 + number).into()
    }

    #[test]
    fn one_source_cannot_fill_the_log_and_does_not_mute_others() {
        let mut limits = LineLimits::new(1);
        let now = Timestamp::from_millis(5);
        assert_eq!((0..1000).filter(|_| limits.admits(now, source(1))).count(), LINES_PER_SOURCE as usize);
        assert!(limits.admits(now, source(2)));
        assert_eq!(limits.report_due(), Some(Timestamp::ZERO + LINES_WINDOW));
        assert_eq!((limits.take_suppressed(), limits.take_suppressed()), (990, 0));
        assert_eq!(limits.report_due(), None);
        assert!(limits.admits(now + LINES_WINDOW, source(1)));
    }

    #[test]
    fn many_sources_together_cannot_fill_the_log_either() {
        let mut limits = LineLimits::new(1);
        let admitted = (0..1_000_000).filter(|number| limits.admits(Timestamp::ZERO, source(*number))).count();
        assert_eq!(admitted, MAX_LINES as usize);
        assert!(limits.sources.len() <= MAX_LINE_SOURCES);
        assert_eq!(limits.take_suppressed(), 1_000_000 - u64::from(MAX_LINES));
    }
}
