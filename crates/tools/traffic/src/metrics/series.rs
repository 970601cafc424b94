//! Time series of a phase: equal slices, few enough to keep and draw whatever its length.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::meter::{Meter, OutcomeCounts, ResponseClass};
use crate::script::MethodId;
use crate::time_histogram::TimeHistogram;

/// Maximum number of slices. Beyond it, neighbours are merged and the width doubles.
pub const MAX_SLICES: usize = 720;
/// Initial width of a slice.
const WIDTH: Duration = Duration::from_secs(1);

/// The values that occur in a histogram, in ns and ascending, with their counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SparseHistogram(Vec<(u64, u32)>);

impl SparseHistogram {
    /// Returns the values that `later` has in addition to `earlier`.
    fn between(earlier: Option<&Histogram<u32>>, later: &Histogram<u32>) -> Self {
        let rows = later.iter_recorded().filter_map(|row| {
            let value = row.value_iterated_to();
            let count = row.count_at_value().saturating_sub(earlier.map_or(0, |earlier| earlier.count_at(value)));
            (count > 0).then_some((value, count))
        });
        Self(rows.collect())
    }

    fn merge(&mut self, other: &Self) {
        let mut sum = Vec::with_capacity(self.0.len() + other.0.len());
        let (mut mine, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        loop {
            let next = match (mine.peek(), theirs.peek()) {
                (Some((a, _)), Some((b, _))) if a == b => {
                    let (Some((value, one)), Some((_, two))) = (mine.next(), theirs.next()) else { break };
                    (*value, one.saturating_add(*two))
                }
                (Some((a, _)), Some((b, _))) if a > b => *theirs.next().unwrap_or(&(0, 0)),
                (Some(_), _) => *mine.next().unwrap_or(&(0, 0)),
                (None, Some(_)) => *theirs.next().unwrap_or(&(0, 0)),
                (None, None) => break,
            };
            sum.push(next);
        }
        self.0 = sum;
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// Returns how many values do not exceed `limit`, exact to 1 % of it.
    #[must_use]
    pub fn within(&self, limit: Duration) -> u64 {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let fitting = self.0.iter().filter(|(value, _)| *value <= limit);
        fitting.map(|(_, count)| u64::from(*count)).sum()
    }

    /// Returns the value that a share (0 to 1) of them does not exceed, or zero if empty.
    #[must_use]
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = ((self.count() as f64 * share.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.0.iter().find(|(_, count)| {
            seen += u64::from(*count);
            seen >= rank
        });
        Duration::from_nanos(found.or(self.0.last()).map_or(0, |(value, _)| *value))
    }

    /// Returns the mean, or zero if empty.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    pub fn mean(&self) -> Duration {
        let sum: f64 = self.0.iter().map(|(value, count)| *value as f64 * f64::from(*count)).sum();
        Duration::from_nanos((sum / (self.count().max(1)) as f64) as u64)
    }
}

/// Counts of one slice.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Calls that the arrival process generated.
    pub offered: u64,
    /// Calls that limits kept from starting.
    pub refused: u64,
    /// Calls that succeeded.
    pub carried: u64,
    /// Calls that got no answer.
    pub lost: u64,
    /// Calls that failed otherwise.
    pub failed: u64,
    /// Calls in progress at its end.
    pub unfinished: u64,
    /// Retransmissions.
    pub repeats: u64,
    /// Times from the main request of calls to its 2xx.
    pub latency: SparseHistogram,
    /// How late calls began.
    pub lateness: SparseHistogram,
    /// How long messages waited in the receive queue, at both ends.
    pub unread: SparseHistogram,
    /// Longest time from a request to its 2xx of each call of this end that succeeded in the slice. Calls that began
    /// in the warm-up are included, as the server carried them in this slice.
    pub ended: SparseHistogram,
}

impl Slice {
    /// Returns the number of calls that succeeded in the slice, whenever they began. Throughput is computed from it.
    #[must_use]
    pub fn ended_well(&self) -> u64 {
        self.carried.max(self.ended.count())
    }

    /// Appends the slice that follows.
    fn append(&mut self, next: &Self) {
        let unfinished = next.unfinished;
        self.merge(next);
        self.unfinished = unfinished;
    }

    /// Merges a slice of the same time.
    fn merge(&mut self, other: &Self) {
        self.offered += other.offered;
        self.refused += other.refused;
        self.carried += other.carried;
        self.lost += other.lost;
        self.failed += other.failed;
        self.unfinished += other.unfinished;
        self.repeats += other.repeats;
        self.latency.merge(&other.latency);
        self.lateness.merge(&other.lateness);
        self.unread.merge(&other.unread);
        self.ended.merge(&other.ended);
    }
}

/// A meter's counts at the end of the last slice.
#[derive(Clone, Debug, Default)]
struct MeterSnapshot {
    accounts: OutcomeCounts,
    repeats: u64,
    latency: Option<(MethodId, TimeHistogram)>,
    lateness: Option<TimeHistogram>,
    unread: Option<TimeHistogram>,
    ended: Option<TimeHistogram>,
}

/// The slices of a phase, in order from its beginning.
#[derive(Clone, Debug)]
pub struct Series {
    width: Duration,
    slices: Vec<Slice>,
    before: MeterSnapshot,
}

impl Default for Series {
    fn default() -> Self {
        Self { width: WIDTH, slices: Vec::new(), before: MeterSnapshot::default() }
    }
}

impl Series {
    /// Returns whether a slice has ended, `since` the beginning.
    #[must_use]
    pub fn is_due(&self, since: Duration) -> bool {
        since >= self.width * u32::try_from(self.slices.len() + 1).unwrap_or(u32::MAX)
    }

    /// Ends a slice with what `meter`, and `unread` for both ends, have counted since the last one. Slices that
    /// passed without a call to this are empty.
    pub fn record(&mut self, since: Duration, meter: &Meter, unread: &TimeHistogram) {
        let accounts = accounts_of(meter);
        let before = std::mem::take(&mut self.before);
        let verb = main_method(meter);
        let latency = verb.and_then(|verb| Some((verb, meter.answer(verb, ResponseClass::Success)?)));
        // The main request of calls may become known only after a while; then all its times are new.
        let earlier = before.latency.as_ref().filter(|(known, _)| Some(*known) == verb);
        let slice = Slice {
            offered: accounts.offered.saturating_sub(before.accounts.offered),
            refused: accounts.refused.saturating_sub(before.accounts.refused),
            carried: accounts.carried.saturating_sub(before.accounts.carried),
            lost: accounts.lost.saturating_sub(before.accounts.lost),
            failed: accounts.failed.saturating_sub(before.accounts.failed),
            unfinished: accounts.unfinished,
            repeats: meter.repeats_sent.saturating_sub(before.repeats),
            latency: latency.map_or_else(SparseHistogram::default, |(_, times)| {
                SparseHistogram::between(earlier.map(|(_, times)| times.histogram()), times.histogram())
            }),
            lateness: SparseHistogram::between(
                before.lateness.as_ref().map(TimeHistogram::histogram),
                meter.lateness.histogram(),
            ),
            unread: SparseHistogram::between(before.unread.as_ref().map(TimeHistogram::histogram), unread.histogram()),
            ended: SparseHistogram::between(
                before.ended.as_ref().map(TimeHistogram::histogram),
                meter.ended.histogram(),
            ),
        };
        self.before = MeterSnapshot {
            accounts,
            repeats: meter.repeats_sent,
            latency: latency.map(|(verb, times)| (verb, times.clone())),
            lateness: Some(meter.lateness.clone()),
            unread: Some(unread.clone()),
            ended: Some(meter.ended.clone()),
        };
        // Counts recorded late belong to the slice in which they are recorded.
        while self.is_due(since.saturating_sub(self.width)) {
            self.push(Slice { unfinished: slice.unfinished, ..Slice::default() });
        }
        self.push(slice);
    }

    fn push(&mut self, slice: Slice) {
        if self.slices.len() >= MAX_SLICES {
            self.coarsen();
        }
        self.slices.push(slice);
    }

    fn coarsen(&mut self) {
        let pairs = self.slices.chunks(2).map(|pair| match pair {
            [first, second] => {
                let mut sum = first.clone();
                sum.append(second);
                sum
            }
            rest => rest.first().cloned().unwrap_or_default(),
        });
        self.slices = pairs.collect();
        self.width *= 2;
    }

    /// Returns the width of a slice.
    #[must_use]
    pub const fn width(&self) -> Duration {
        self.width
    }

    /// Returns all slices, from the beginning.
    #[must_use]
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// Adds the slices of another thread, one by one.
    pub fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        while self.width < other.width {
            self.coarsen();
        }
        while other.width < self.width {
            other.coarsen();
        }
        let missing = other.slices.len().saturating_sub(self.slices.len());
        self.slices.extend(std::iter::repeat_with(Slice::default).take(missing));
        for (mine, theirs) in self.slices.iter_mut().zip(&other.slices) {
            mine.merge(theirs);
        }
    }
}

/// Returns the outcomes of originated sessions; for an end that only answers, those of answered sessions.
pub(crate) fn accounts_of(meter: &Meter) -> OutcomeCounts {
    if meter.began.offered > 0 {
        return meter.began;
    }
    OutcomeCounts { offered: meter.answered.sent + meter.answered.refused, ..meter.answered }
}

/// Returns the main method of the calls: INVITE if one was sent, else the method sent most often, answered or not.
pub(crate) fn main_method(meter: &Meter) -> Option<MethodId> {
    let answered = |verb| meter.answer(verb, ResponseClass::Success).map_or(0, TimeHistogram::count);
    let asked = |verb: &MethodId| (meter.asked(*verb), answered(*verb));
    let verbs = || MethodId::ALL.into_iter().filter(|verb| *verb != MethodId::Ack && asked(verb) != (0, 0));
    verbs().find(|verb| *verb == MethodId::Invite).or_else(|| verbs().max_by_key(asked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::SessionResult;

    fn call(meter: &mut Meter, millis: u64) {
        meter.began.offered += 1;
        meter.on_begin(true);
        meter.on_answer(MethodId::Invite, 200, Duration::from_millis(millis));
        meter.lateness.record(Duration::from_micros(7));
        meter.unread.record(Duration::from_micros(5));
        meter.on_end(true, SessionResult::Carried, Duration::from_millis(millis));
    }

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn each_slice_holds_its_own_events() {
        let (mut meter, mut series) = (Meter::default(), Series::default());
        assert!(!series.is_due(Duration::from_millis(999)) && series.is_due(second(1)));
        for _ in 0..10 {
            call(&mut meter, 20);
        }
        series.record(second(1), &meter, &meter.unread);
        assert!(!series.is_due(Duration::from_millis(1_999)) && series.is_due(second(2)));
        for _ in 0..30 {
            call(&mut meter, 80);
        }
        series.record(second(2), &meter, &meter.unread);
        let counts: Vec<_> =
            series.slices().iter().map(|slice| (slice.offered, slice.carried, slice.latency.count())).collect();
        assert_eq!(counts, [(10, 10, 10), (30, 30, 30)]);
        let medians: Vec<_> = series.slices().iter().map(|slice| slice.latency.quantile(0.5).as_millis()).collect();
        assert_eq!(medians, [20, 80], "the first slice is not in the second");
        assert_eq!((series.slices()[1].lateness.count(), series.slices()[1].unread.count()), (30, 30));
    }

    #[test]
    fn unrecorded_seconds_are_empty() {
        let (mut meter, mut series) = (Meter::default(), Series::default());
        call(&mut meter, 1);
        series.record(second(1), &meter, &meter.unread);
        call(&mut meter, 1);
        series.record(Duration::from_millis(4_020), &meter, &meter.unread);
        let carried: Vec<_> = series.slices().iter().map(|slice| slice.carried).collect();
        assert_eq!(carried, [1, 0, 0, 1]);
        // The last slice is shorter than the others.
        call(&mut meter, 1);
        series.record(Duration::from_millis(4_300), &meter, &meter.unread);
        assert_eq!(series.slices().len(), 5);
    }

    #[test]
    fn long_runs_have_wider_slices_and_lose_nothing() {
        let (mut meter, mut series) = (Meter::default(), Series::default());
        let mut now = second(0);
        for _ in 0..3_000 {
            now += second(1);
            call(&mut meter, 5);
            if series.is_due(now) {
                series.record(now, &meter, &meter.unread);
            }
        }
        series.record(now, &meter, &meter.unread);
        assert!(series.slices().len() <= MAX_SLICES);
        assert_eq!(series.width(), second(8));
        assert_eq!(series.slices().iter().map(|slice| slice.offered).sum::<u64>(), 3_000);
        assert_eq!(series.slices().iter().map(|slice| slice.latency.count()).sum::<u64>(), 3_000);
        assert!(series.slices().iter().take(300).all(|slice| slice.offered == 8), "equal slices");
    }

    #[test]
    fn threads_merge_with_different_slice_widths() {
        let (mut meter, mut long) = (Meter::default(), Series::default());
        for number in 1..=(MAX_SLICES as u64 + 2) {
            call(&mut meter, 10);
            if long.is_due(second(number)) {
                long.record(second(number), &meter, &meter.unread);
            }
        }
        let (mut meter, mut short) = (Meter::default(), Series::default());
        for number in 1..=4 {
            call(&mut meter, 30);
            short.record(second(number), &meter, &meter.unread);
        }
        let mut sum = short.clone();
        sum.merge(&long);
        let mut other = long.clone();
        other.merge(&short);
        for series in [&sum, &other] {
            let offered: Vec<_> = series.slices().iter().take(3).map(|slice| slice.offered).collect();
            assert_eq!(offered, [4, 4, 2]);
            let first = &series.slices()[0].latency;
            assert_eq!((first.count(), first.quantile(0.5).as_millis(), first.quantile(1.0).as_millis()), (4, 10, 30));
        }
    }
}
