//! Recovery of phones after a power cut: how many were registered at each time, and how many attempts they needed.

use std::collections::BTreeMap;
use std::time::Duration;

/// Shares of all phones whose registration times are reported, in percent.
pub const SHARES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 100.0];
/// Maximum number of points of the time series.
const MAX_POINTS: usize = 600;

/// Recovery of a population of phones.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    phones: u64,
    /// Number of phones registered for the first time at each millisecond since the beginning.
    registered: BTreeMap<u32, u32>,
    attempts: Counts,
    requests: Counts,
    refreshed: u64,
    refreshes_failed: u64,
}

/// Number of occurrences of each of some small numbers.
#[derive(Clone, Debug, Default)]
pub struct Counts(BTreeMap<u32, u32>);

impl Counts {
    /// Returns the mean, or zero if empty.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.0.iter().map(|(value, count)| f64::from(*value) * f64::from(*count)).sum();
        sum / total(&self.0).max(1) as f64
    }

    /// Returns the number that a share (0 to 1) of them does not exceed, or zero if empty.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u32 {
        nth(&self.0, rank(share, total(&self.0))).unwrap_or(0)
    }

    /// Returns the largest number.
    #[must_use]
    pub fn max(&self) -> u32 {
        self.0.keys().next_back().copied().unwrap_or(0)
    }
}

fn total(counts: &BTreeMap<u32, u32>) -> u64 {
    counts.values().map(|count| u64::from(*count)).sum()
}

/// Returns the rank, from 1, of the element at a share (0 to 1) of `of` elements.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
fn rank(share: f64, of: u64) -> u64 {
    // Tolerates rounding errors: 99.9 % of 1,000 is 999.
    ((of as f64 * share - 1e-6).ceil() as u64).clamp(1, of.max(1))
}

/// Returns the value with this rank.
fn nth(counts: &BTreeMap<u32, u32>, rank: u64) -> Option<u32> {
    let mut seen = 0;
    let found = counts.iter().find(|(_, count)| {
        seen += u64::from(**count);
        seen >= rank
    });
    found.map(|(value, _)| *value)
}

impl Recovery {
    /// Creates the statistics of `phones` phones, none of them added yet, with the counts of their refreshes.
    pub(crate) fn of(phones: u64, refreshed: u64, refreshes_failed: u64) -> Self {
        Self { phones, refreshed, refreshes_failed, ..Self::default() }
    }

    /// Adds a phone: when it was registered, and how many registrations and REGISTERs it needed.
    pub(crate) fn add(&mut self, registered_after: Option<Duration>, attempts: u32, requests: u32) {
        if let Some(after) = registered_after {
            let millis = u32::try_from(after.as_millis()).unwrap_or(u32::MAX);
            *self.registered.entry(millis).or_default() += 1;
        }
        *self.attempts.0.entry(attempts).or_default() += 1;
        *self.requests.0.entry(requests).or_default() += 1;
    }

    /// Returns the number of phones.
    #[must_use]
    pub const fn phones(&self) -> u64 {
        self.phones
    }

    /// Returns the number of phones that were registered.
    #[must_use]
    pub fn registered(&self) -> u64 {
        total(&self.registered)
    }

    /// Returns the time since the beginning at which a share (0 to 1) of all phones was registered, exact to 1 ms;
    /// `None` if that was never reached.
    #[must_use]
    pub fn time_of(&self, share: f64) -> Option<Duration> {
        let millis = nth(&self.registered, rank(share, self.phones)).filter(|_| self.phones > 0)?;
        Some(Duration::from_millis(u64::from(millis)))
    }

    /// Returns the number of registrations that each phone began until it was registered.
    #[must_use]
    pub const fn attempts(&self) -> &Counts {
        &self.attempts
    }

    /// Returns the number of REGISTERs that each phone sent until it was registered, including retransmissions and
    /// those with credentials.
    #[must_use]
    pub const fn requests(&self) -> &Counts {
        &self.requests
    }

    /// Returns the number of refreshes that succeeded, and of those that failed.
    #[must_use]
    pub const fn refreshes(&self) -> (u64, u64) {
        (self.refreshed, self.refreshes_failed)
    }

    /// Returns the number of registered phones over time, at up to a few hundred equidistant points.
    #[must_use]
    pub fn time_series(&self) -> Vec<(Duration, u64)> {
        let Some(last) = self.registered.keys().next_back().copied() else { return Vec::new() };
        // At least 10 ms, and a round number.
        let step = [10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];
        let step = step.into_iter().find(|step| (last / step) as usize + 2 <= MAX_POINTS).unwrap_or(last / 500);
        let (mut points, mut so_far, mut at) = (vec![(Duration::ZERO, 0)], 0_u64, step);
        for (millis, count) in &self.registered {
            while *millis > at {
                points.push((Duration::from_millis(u64::from(at)), so_far));
                at = at.saturating_add(step);
            }
            so_far += u64::from(*count);
        }
        points.push((Duration::from_millis(u64::from(at)), so_far));
        points
    }

    /// Adds the counts of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.phones += other.phones;
        self.refreshed += other.refreshed;
        self.refreshes_failed += other.refreshes_failed;
        for (mine, theirs) in [
            (&mut self.registered, &other.registered),
            (&mut self.attempts.0, &other.attempts.0),
            (&mut self.requests.0, &other.requests.0),
        ] {
            theirs.iter().for_each(|(value, count)| *mine.entry(*value).or_default() += count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_cover_all_phones_and_are_none_until_reached() {
        let mut one = Recovery::of(1_000, 0, 0);
        (0..999).for_each(|phone| one.add(Some(Duration::from_millis(phone * 10)), 1, 1));
        one.add(None, 4, 28);
        let at = |share: f64| one.time_of(share).map(|time| time.as_millis());
        assert_eq!([at(0.5), at(0.9), at(0.999), at(1.0)], [Some(4_990), Some(8_990), Some(9_980), None]);
        assert_eq!((one.attempts().max(), one.attempts().quantile(0.99), one.requests().max()), (4, 1, 28));
        let mut both = one.clone();
        both.merge(&one);
        assert_eq!((both.phones(), both.registered(), both.time_of(0.5)), (2_000, 1_998, one.time_of(0.5)));
        let course = one.time_series();
        assert!(course.len() <= MAX_POINTS + 2 && course.is_sorted());
        assert_eq!((course[0], course.last().map(|last| last.1)), ((Duration::ZERO, 0), Some(999)));
    }
}
