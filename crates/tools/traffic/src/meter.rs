//! What is counted and timed, by one driver for itself; [`Meter::merge`] adds them up.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::metrics::Metrics;
use crate::script::{Ending, Failure, Kind, Verb};

/// The longest time that is told apart from longer ones.
const LONGEST_NANOS: u64 = 200_000_000_000;
/// Samples kept of messages that nobody expected.
pub const MAX_SAMPLES: usize = 16;
/// Bytes kept of one.
const SAMPLE_BYTES: usize = 2_048;
/// Timers of scripts.
const TIMERS: usize = 16;

/// A histogram of times in nanoseconds, exact to one percent, from 0.1 µs to 200 s.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u32>);

impl Default for Times {
    fn default() -> Self {
        #[expect(clippy::expect_used, reason = "the bounds are constants that the library takes")]
        Self(Histogram::new_with_bounds(100, LONGEST_NANOS, 2).expect("sound bounds"))
    }
}

impl Times {
    /// Adds one.
    pub fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(LONGEST_NANOS));
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that a share (0 to 1) of them does not exceed; zero where there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        if self.0.is_empty() { Duration::ZERO } else { Duration::from_nanos(self.0.value_at_quantile(share)) }
    }

    /// Their mean.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::try_from_secs_f64(self.0.mean() / 1e9).unwrap_or_default()
    }

    /// The longest.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }

    /// The histogram itself, in nanoseconds.
    #[must_use]
    pub const fn histogram(&self) -> &Histogram<u32> {
        &self.0
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &Self) {
        // The bounds are the same.
        let _ = self.0.add(&other.0);
    }
}

/// Which answer a time led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// The first provisional response but 100.
    Provisional,
    /// 2xx.
    Success,
    /// Any other final response.
    Failure,
}

impl Answer {
    /// The kind of `status`; `None` for 100.
    #[must_use]
    pub const fn of(status: u16) -> Option<Self> {
        match status {
            ..=100 => None,
            101..=199 => Some(Self::Provisional),
            200..=299 => Some(Self::Success),
            _ => Some(Self::Failure),
        }
    }
}

/// How many messages of each kind.
#[derive(Clone, Debug)]
pub struct Messages {
    requests: [u64; Verb::ALL.len()],
    statuses: Box<[u64; 700]>,
    /// What is no SIP.
    pub garbage: u64,
}

impl Default for Messages {
    fn default() -> Self {
        Self { requests: [0; Verb::ALL.len()], statuses: Box::new([0; 700]), garbage: 0 }
    }
}

impl Messages {
    fn add(&mut self, kind: Kind) {
        let count = match kind {
            Kind::Request(verb) => self.requests.get_mut(verb as usize),
            Kind::Response(status) => self.statuses.get_mut(usize::from(status)),
            Kind::Garbage => None,
        };
        *count.unwrap_or(&mut self.garbage) += 1;
    }

    /// Requests of this method.
    #[must_use]
    pub fn requests(&self, verb: Verb) -> u64 {
        self.requests.get(verb as usize).copied().unwrap_or(0)
    }

    /// Responses with this status.
    #[must_use]
    pub fn responses(&self, status: u16) -> u64 {
        self.statuses.get(usize::from(status)).copied().unwrap_or(0)
    }

    /// All kinds that there were, and how many.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, u64)> + '_ {
        let requests = Verb::ALL.iter().map(|verb| (Kind::Request(*verb), self.requests(*verb)));
        let responses = (100..700).map(|status| (Kind::Response(status), self.responses(status)));
        requests.chain(responses).chain([(Kind::Garbage, self.garbage)]).filter(|(_, count)| *count > 0)
    }

    /// All of them together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.iter().map(|(_, count)| count).sum()
    }

    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.requests.iter_mut().zip(other.requests) {
            *mine += theirs;
        }
        for (mine, theirs) in self.statuses.iter_mut().zip(other.statuses.iter()) {
            *mine += theirs;
        }
        self.garbage += other.garbage;
    }
}

/// What became of calls. `offered = sent + refused`, `sent = carried + lost + failed + unfinished`, at every moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Calls that the law of arrivals said.
    pub offered: u64,
    /// Those of them that a limit of the generator kept from beginning.
    pub refused: u64,
    /// Those that began.
    pub sent: u64,
    /// Those that ended as they should.
    pub carried: u64,
    /// Those that got no answer.
    pub lost: u64,
    /// Those that were answered otherwise, or failed for another reason.
    pub failed: u64,
    /// Those that still go on.
    pub unfinished: u64,
}

impl Accounts {
    /// Whether all sums are exact.
    #[must_use]
    pub const fn add_up(&self) -> bool {
        self.offered == self.sent + self.refused
            && self.sent == self.carried + self.lost + self.failed + self.unfinished
    }

    fn merge(&mut self, other: &Self) {
        self.offered += other.offered;
        self.refused += other.refused;
        self.sent += other.sent;
        self.carried += other.carried;
        self.lost += other.lost;
        self.failed += other.failed;
        self.unfinished += other.unfinished;
    }
}

/// Everything that one driver counts.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// Sessions that this end began (calls, registrations).
    pub began: Accounts,
    /// Sessions that this end answered; nothing is offered or refused there.
    pub answered: Accounts,
    /// Messages sent, the first time.
    pub sent: Messages,
    /// Messages received, repeated ones not.
    pub received: Messages,
    /// Messages sent again.
    pub repeats_sent: u64,
    /// Messages received again.
    pub repeats_received: u64,
    /// Messages of calls that are over or were never ours.
    pub late: u64,
    /// Messages that no script expected, and what the first of them were.
    pub unexpected: u64,
    /// The first unexpected messages.
    pub samples: Vec<Vec<u8>>,
    /// Why sessions failed.
    pub failures: BTreeMap<Ending, u64>,
    /// From a request to its answers.
    answers: BTreeMap<(Verb, Answer), Times>,
    /// Timers of scripts.
    timers: BTreeMap<u8, Times>,
    /// How late calls began, against the law of arrivals.
    pub lateness: Times,
    /// How long the sessions that were carried took, from their beginning.
    pub durations: Times,
    /// The metrics of RFC 6076.
    pub metrics: Metrics,
}

impl Meter {
    /// A message was sent.
    pub fn on_sent(&mut self, kind: Kind, is_repeat: bool) {
        if is_repeat {
            self.repeats_sent += 1;
        } else {
            self.sent.add(kind);
        }
    }

    /// A message was received for the first time.
    pub fn on_received(&mut self, kind: Kind) {
        self.received.add(kind);
    }

    /// A response came, so long after its request was first sent.
    pub fn on_answer(&mut self, verb: Verb, status: u16, after: Duration) {
        if let Some(answer) = Answer::of(status) {
            self.answers.entry((verb, answer)).or_default().record(after);
        }
    }

    /// A message came that nobody expected.
    pub fn on_unexpected(&mut self, bytes: &[u8]) {
        self.unexpected += 1;
        if self.samples.len() < MAX_SAMPLES {
            self.samples.push(bytes.get(..SAMPLE_BYTES).unwrap_or(bytes).to_vec());
        }
    }

    /// A timer of a script was stopped.
    pub fn on_timer(&mut self, number: u8, time: Duration) {
        if usize::from(number) < TIMERS {
            self.timers.entry(number).or_default().record(time);
        }
    }

    /// A session began.
    pub(crate) fn on_begin(&mut self, is_ours: bool) {
        let accounts = if is_ours { &mut self.began } else { &mut self.answered };
        accounts.sent += 1;
        accounts.unfinished += 1;
    }

    /// A session ended.
    pub(crate) fn on_end(&mut self, is_ours: bool, ending: Ending, after: Duration) {
        let accounts = if is_ours { &mut self.began } else { &mut self.answered };
        accounts.unfinished -= 1;
        match ending {
            Ending::Carried => {
                accounts.carried += 1;
                if is_ours {
                    self.durations.record(after);
                }
                return;
            }
            Ending::Lost => accounts.lost += 1,
            Ending::Refused(_) | Ending::Failed(_) => accounts.failed += 1,
        }
        *self.failures.entry(ending).or_default() += 1;
    }

    /// The times from requests to their answers.
    pub fn answers(&self) -> impl Iterator<Item = (Verb, Answer, &Times)> {
        self.answers.iter().map(|((verb, answer), times)| (*verb, *answer, times))
    }

    /// The time from requests of a method to such answers.
    #[must_use]
    pub fn answer(&self, verb: Verb, answer: Answer) -> Option<&Times> {
        self.answers.get(&(verb, answer))
    }

    /// The timers of scripts.
    pub fn timers(&self) -> impl Iterator<Item = (u8, &Times)> {
        self.timers.iter().map(|(number, times)| (*number, times))
    }

    /// Adds another driver's.
    pub fn merge(&mut self, other: &Self) {
        self.began.merge(&other.began);
        self.answered.merge(&other.answered);
        self.sent.merge(&other.sent);
        self.received.merge(&other.received);
        self.repeats_sent += other.repeats_sent;
        self.repeats_received += other.repeats_received;
        self.late += other.late;
        self.unexpected += other.unexpected;
        let room = MAX_SAMPLES.saturating_sub(self.samples.len());
        self.samples.extend(other.samples.iter().take(room).cloned());
        for (ending, count) in &other.failures {
            *self.failures.entry(*ending).or_default() += count;
        }
        for (key, times) in &other.answers {
            self.answers.entry(*key).or_default().merge(times);
        }
        for (key, times) in &other.timers {
            self.timers.entry(*key).or_default().merge(times);
        }
        self.lateness.merge(&other.lateness);
        self.durations.merge(&other.durations);
        self.metrics.merge(&other.metrics);
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Carried => f.write_str("carried"),
            Self::Lost => f.write_str("no answer"),
            Self::Refused(status) => write!(f, "refused with {status}"),
            Self::Failed(Failure::Unexpected) => f.write_str("an unexpected message"),
            Self::Failed(Failure::Script) => f.write_str("failed by its script"),
            Self::Failed(Failure::Challenge) => f.write_str("a challenge that could not be answered"),
            Self::Failed(Failure::Connection) => f.write_str("no connection"),
            Self::Failed(Failure::Circle) => f.write_str("a script that runs in a circle"),
        }
    }
}
