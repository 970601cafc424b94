//! What an operator is shown.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use crate::Mode;

/// How it goes, at one moment. Counters count since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What a 200 promises.
    pub mode: Mode,
    /// Whether it is well.
    pub state: State,
    /// What the journal's files have together.
    pub journal_bytes: u64,
    /// The journal's files.
    pub journal_segments: u64,
    /// Groups that were committed.
    pub groups: u64,
    /// Records in these groups.
    pub records: u64,
    /// Syncs of a file.
    pub syncs: u64,
    /// The time that half of all groups took at most to be written and synced, within an eighth.
    pub commit_p50: Duration,
    /// The same of 99 in a hundred.
    pub commit_p99: Duration,
    /// The longest.
    pub commit_longest: Duration,
    /// Records that wait for their commit now.
    pub waiting: u64,
    /// Addresses whose newest state could not be written yet, although nobody waits for it.
    pub unwritten: u64,
    /// Records that were answered with 503: broken, full, or too many waiting.
    pub refused: u64,
    /// Of these, those that had waited too long for a slow disk.
    pub late: u64,
    /// Records that nobody waits for and that found no room while the disk was broken.
    pub lost: u64,
    /// How often the journal broke.
    pub faults: u64,
    /// How often it was mended.
    pub recoveries: u64,
    /// The checkpoint in the database.
    pub checkpoint: CheckpointStatus,
    /// What the start found.
    pub load_report: LoadReport,
}

/// Whether registrations are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Journal or database cannot be opened yet: it is tried again and again.
    Opening {
        /// What is wrong, and what to do.
        why: String,
    },
    /// What was kept is being read; registrations are refused until then.
    Loading {
        /// Rows and records that were read.
        done: u64,
        /// How many there are, about.
        of: u64,
        /// Why it has to be tried again.
        why: Option<String>,
    },
    /// All is well.
    Ok,
    /// What is registered now is not kept.
    Failing {
        /// For how long.
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

/// The checkpoint in the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointStatus {
    /// How long ago the last one was.
    pub last: Option<Duration>,
    /// Closed segments that are not in it yet.
    pub segments_behind: u64,
    /// Addresses in it.
    pub rows: u64,
    /// Why the last try failed, and what to do.
    pub failing: Option<String>,
    /// Addresses that were removed because they had expired.
    pub purged: u64,
}

/// What the start found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Bindings that are there again.
    pub loaded: u64,
    /// Addresses of which nothing is left: expired, or bound to a connection of the process before.
    pub expired: u64,
    /// Rows and records that are damaged, or mean nothing alone.
    pub skipped: u64,
    /// What was wrong with the journal's files; the first sixteen.
    pub damage: Vec<String>,
    /// How long loading took.
    pub took: Duration,
    /// Loading has ended.
    pub is_complete: bool,
}

/// Durations in buckets of an eighth of an octave, from microseconds.
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

    /// The upper end of the bucket that `share` of 100 are not above.
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
    fn percentiles_are_right_within_an_eighth() {
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
