//! Outcome of consecutive requests, and the length of the outage.

use std::time::{Duration, Instant};

/// Maximum response time of an attempt that is not late.
pub const LATE: Duration = Duration::from_millis(500);

/// One call or registration.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// Start time.
    pub began: Instant,
    /// Time until success. `None` if it failed.
    pub took: Option<Duration>,
}

impl Attempt {
    fn is_good(&self) -> bool {
        self.took.is_some_and(|took| took <= LATE)
    }
}

/// Summary of the attempts of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Series {
    /// Number of attempts.
    pub offered: u64,
    /// Number of failed attempts.
    pub failed: u64,
    /// Number of attempts that succeeded [late](LATE).
    pub late: u64,
    /// Time from the start of the last good attempt before the first failed or late one to the start of the first
    /// good attempt after the last such one. Zero if none failed or was late.
    pub outage: Duration,
    /// Longest time until success.
    pub longest: Duration,
    /// Total time by which successful attempts exceeded the median.
    pub delay: Duration,
}

impl Series {
    /// Summarizes attempts given in start order.
    #[must_use]
    pub fn of(attempts: &[Attempt]) -> Series {
        let count = |is: fn(&&Attempt) -> bool| attempts.iter().filter(is).count() as u64;
        Series {
            offered: attempts.len() as u64,
            failed: count(|attempt| attempt.took.is_none()),
            late: count(|attempt| attempt.took.is_some_and(|took| took > LATE)),
            outage: outage(attempts),
            longest: attempts.iter().filter_map(|attempt| attempt.took).max().unwrap_or_default(),
            delay: delay(attempts),
        }
    }
}

fn delay(attempts: &[Attempt]) -> Duration {
    let mut times: Vec<Duration> = attempts.iter().filter_map(|attempt| attempt.took).collect();
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    times.into_iter().map(|time| time.saturating_sub(median)).sum()
}

fn outage(attempts: &[Attempt]) -> Duration {
    let is_bad = |attempt: &Attempt| !attempt.is_good();
    let (Some(first), Some(last)) = (attempts.iter().position(is_bad), attempts.iter().rposition(is_bad)) else {
        return Duration::ZERO;
    };
    // Without a good attempt before or after, the outage is at least the observed interval.
    let before = &attempts[first.saturating_sub(1)];
    let after = attempts.get(last + 1).unwrap_or(&attempts[last]);
    after.began - before.began
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(took_ms: &[Option<u64>]) -> Series {
        let start = Instant::now();
        let attempt = |(number, took): (u64, &Option<u64>)| Attempt {
            began: start + Duration::from_millis(number * 100),
            took: took.map(Duration::from_millis),
        };
        Series::of(&(0..).zip(took_ms).map(attempt).collect::<Vec<_>>())
    }

    #[test]
    fn outage_lasts_from_the_last_success_until_all_succeed_again() {
        let found = series(&[Some(1), Some(2), None, Some(3), Some(600), Some(4), Some(5)]);
        assert_eq!((found.offered, found.failed, found.late), (7, 1, 1));
        assert_eq!((found.outage, found.longest), (Duration::from_millis(400), Duration::from_millis(600)));
        // The median is 4 ms.
        assert_eq!(found.delay, Duration::from_millis(597));
    }

    #[test]
    fn without_failures_there_is_no_outage() {
        assert_eq!(series(&[Some(1), Some(2)]).outage, Duration::ZERO);
        assert_eq!(series(&[]), Series::default());
    }

    #[test]
    fn an_unended_outage_lasts_until_the_end() {
        assert_eq!(series(&[Some(1), None, None]).outage, Duration::from_millis(200));
        assert_eq!(series(&[None, Some(1)]).outage, Duration::from_millis(100));
    }
}
