//! Status for the operator.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use crate::Mode;

/// Status at one moment. Counters start at the process start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Durability mode.
    pub mode: Mode,
    /// State of the store.
    pub state: State,
    /// Total size of the journal's files.
    pub journal_bytes: u64,
    /// Number of the journal's files.
    pub journal_segments: u64,
    /// Committed groups.
    pub groups: u64,
    /// Records in these groups.
    pub records: u64,
    /// File syncs.
    pub syncs: u64,
    /// Median time to write and sync a group, within one eighth.
    pub commit_p50: Duration,
    /// 99th percentile of that time.
    pub commit_p99: Duration,
    /// Maximum of that time.
    pub commit_longest: Duration,
    /// Records waiting for their commit.
    pub waiting: u64,
    /// Addresses whose latest state could not be written yet, without a waiting request.
    pub unwritten: u64,
    /// Records answered with 503: storage broken, journal full, or too many waiting.
    pub refused: u64,
    /// Refused records that had waited too long for a slow disk.
    pub late: u64,
    /// Records without a waiting request that were lost for lack of room while the disk was broken.
    pub lost: u64,
    /// Number of journal failures.
    pub faults: u64,
    /// Number of recoveries.
    pub recoveries: u64,
    /// State of the checkpoint.
    pub checkpoint: CheckpointStatus,
    /// Result of loading.
    pub load_report: LoadReport,
}

/// Whether registrations are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Journal or database cannot be opened yet; the server keeps retrying.
    Opening {
        /// What is wrong, and what to do.
        why: String,
    },
    /// Stored registrations are being loaded; registrations are refused until then.
    Loading {
        /// Rows and records loaded.
        done: u64,
        /// Approximate total.
        of: u64,
        /// Why loading is being retried.
        why: Option<String>,
    },
    /// Registrations are stored.
    Ok,
    /// Registrations are not being stored.
    Failing {
        /// Duration of the failure.
        since: Duration,
        /// What is wrong.
        why: String,
        /// What to do.
        remedy: String,
    },
}

impl Display for State {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opening { why } => write!(f, "cannot be opened: {why}"),
            Self::Loading { done, of, why: None } => write!(f, "loading, {done} of {of}"),
            Self::Loading { why: Some(why), .. } => write!(f, "cannot be loaded: {why}"),
            Self::Ok => f.write_str("ok"),
            Self::Failing { since, why, remedy } => write!(f, "failing for {} s: {why}; {remedy}", since.as_secs()),
        }
    }
}

/// State of the checkpoint in the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointStatus {
    /// Age of the last checkpoint.
    pub last: Option<Duration>,
    /// Closed segments not yet in it.
    pub segments_behind: u64,
    /// Number of addresses in it.
    pub rows: u64,
    /// Why the last attempt failed, and what to do.
    pub failing: Option<String>,
    /// Expired addresses that were removed.
    pub purged: u64,
}

/// Result of loading at startup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Restored bindings.
    pub loaded: u64,
    /// Addresses without a remaining binding: expired, or bound to a connection of the previous process.
    pub expired: u64,
    /// Rows and records that are damaged or meaningless on their own.
    pub skipped: u64,
    /// Damage found in the journal's files; the first sixteen.
    pub damage: Vec<String>,
    /// Duration of loading.
    pub took: Duration,
    /// Whether loading has finished.
    pub is_complete: bool,
}

/// Histogram of durations in µs, with buckets of an eighth of an octave.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [u64; BUCKETS],
    count: u64,
    longest: Duration,
}

const PER_OCTAVE: usize = 8;
const BUCKETS: usize = PER_OCTAVE * 40;

impl Histogram {
    pub(crate) const fn new() -> Self {
        Self { buckets: [0; BUCKETS], count: 0, longest: Duration::ZERO }
    }

    pub(crate) fn add(&mut self, duration: Duration) {
        if let Some(bucket) = self.buckets.get_mut(bucket_of(duration)) {
            *bucket += 1;
        }
        self.count += 1;
        self.longest = self.longest.max(duration);
    }

    pub(crate) fn longest(&self) -> Duration {
        self.longest
    }

    /// Returns the upper end of the bucket that contains the given percentile.
    pub(crate) fn percentile(&self, share: u64) -> Duration {
        let wanted = (self.count * share).div_ceil(100);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && wanted > 0 {
                return upper_end(index).min(self.longest);
            }
        }
        self.longest
    }
}

fn bucket_of(duration: Duration) -> usize {
    let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).max(PER_OCTAVE as u64);
    let octave = us.ilog2() as usize;
    let within = (us >> (octave - 3)) as usize & (PER_OCTAVE - 1);
    ((octave - 3) * PER_OCTAVE + within).min(BUCKETS - 1)
}

fn upper_end(index: usize) -> Duration {
    let (octave, within) = (index / PER_OCTAVE, index % PER_OCTAVE);
    Duration::from_micros(((PER_OCTAVE + within + 1) as u64) << octave)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_accurate_to_an_eighth() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.percentile(99), Duration::ZERO);
        for us in 1..=1000 {
            histogram.add(Duration::from_micros(us));
        }
        let (p50, p99) = (histogram.percentile(50), histogram.percentile(99));
        assert!((500..=563).contains(&p50.as_micros()), "{p50:?}");
        assert!((990..=1000).contains(&p99.as_micros()), "{p99:?}");
        assert_eq!(histogram.longest(), Duration::from_millis(1));
        histogram.add(Duration::MAX);
        assert_eq!(histogram.longest(), Duration::MAX);
    }

    #[test]
    fn a_state_is_one_line() {
        let failing =
            State::Failing { since: Duration::from_secs(61), why: "no room".into(), remedy: "make some".into() };
        assert_eq!(failing.to_string(), "failing for 61 s: no room; make some");
        assert_eq!(State::Loading { done: 3, of: 9, why: None }.to_string(), "loading, 3 of 9");
    }
}
