//! Counts and times of one driver; [`Meter::merge`] adds them up.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::handshakes::Handshakes;
use crate::metrics::Metrics;
use crate::refusals::Refusals;
use crate::replay::AnswerComparison;
use crate::script::{Failure, Kind, MethodId, SessionResult};

pub use crate::time_histogram::TimeHistogram;

/// Maximum number of samples of unexpected messages.
pub const MAX_SAMPLES: usize = 16;
/// Maximum length of a sample in bytes.
const SAMPLE_BYTES: usize = 2_048;
/// Maximum number of timers of scripts.
const TIMERS: usize = 16;

/// Class of response that a measured time ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResponseClass {
    /// First provisional response except 100.
    Provisional,
    /// 2xx.
    Success,
    /// Any other final response.
    Failure,
}

impl ResponseClass {
    /// Returns the name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Provisional => "1xx",
            Self::Success => "2xx",
            Self::Failure => "other",
        }
    }

    /// Returns the class of `status`; `None` for 100.
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

/// Counts of messages by kind.
#[derive(Clone, Debug)]
pub struct Messages {
    requests: [u64; MethodId::ALL.len()],
    statuses: Box<[u64; 700]>,
    /// Messages that are no SIP.
    pub garbage: u64,
}

impl Default for Messages {
    fn default() -> Self {
        Self { requests: [0; MethodId::ALL.len()], statuses: Box::new([0; 700]), garbage: 0 }
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

    /// Returns the number of requests of this method.
    #[must_use]
    pub fn requests(&self, verb: MethodId) -> u64 {
        self.requests.get(verb as usize).copied().unwrap_or(0)
    }

    /// Returns the number of responses with this status.
    #[must_use]
    pub fn responses(&self, status: u16) -> u64 {
        self.statuses.get(usize::from(status)).copied().unwrap_or(0)
    }

    /// Returns all kinds that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, u64)> + '_ {
        let requests = MethodId::ALL.iter().map(|verb| (Kind::Request(*verb), self.requests(*verb)));
        let responses = (100..700).map(|status| (Kind::Response(status), self.responses(status)));
        requests.chain(responses).chain([(Kind::Garbage, self.garbage)]).filter(|(_, count)| *count > 0)
    }

    /// Returns the total.
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

/// Outcomes of calls. `offered = sent + refused` and `sent = carried + lost + failed + unfinished` hold at every
/// moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    /// Calls that the arrival law demanded.
    pub offered: u64,
    /// Offered calls that a limit of the generator kept from beginning.
    pub refused: u64,
    /// Calls that began.
    pub sent: u64,
    /// Calls that succeeded.
    pub carried: u64,
    /// Calls without an answer.
    pub lost: u64,
    /// Calls that were answered otherwise, or failed for another reason.
    pub failed: u64,
    /// Calls in progress.
    pub unfinished: u64,
}

impl OutcomeCounts {
    /// Returns whether all sums hold.
    #[must_use]
    pub const fn add_up(&self) -> bool {
        self.offered == self.sent + self.refused
            && self.sent == self.carried + self.lost + self.failed + self.unfinished
    }

    const fn begin(&mut self) {
        self.sent += 1;
        self.unfinished += 1;
    }

    const fn end(&mut self, ending: SessionResult) {
        self.unfinished -= 1;
        match ending {
            SessionResult::Carried => self.carried += 1,
            SessionResult::Lost => self.lost += 1,
            SessionResult::Refused(_) | SessionResult::Failed(_) => self.failed += 1,
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.offered += other.offered;
        self.refused += other.refused;
        self.sent += other.sent;
        self.carried += other.carried;
        self.lost += other.lost;
        self.failed += other.failed;
        self.unfinished += other.unfinished;
    }
}

/// Outcomes of transactions by method; an ACK is no transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transactions(BTreeMap<MethodId, TransactionCounts>);

/// Outcomes of the transactions of one method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionCounts {
    /// Transactions with a final response that the script expected, including challenges.
    pub succeeded: u64,
    /// All transactions that have ended, plus those in `open`. Those not in `succeeded` had another final response,
    /// or none despite all retransmissions.
    pub all: u64,
    /// Transactions without an answer when the run ended.
    pub open: u64,
}

impl TransactionCounts {
    /// Returns the number of transactions that did not succeed.
    #[must_use]
    pub const fn failed(&self) -> u64 {
        self.all.saturating_sub(self.succeeded).saturating_sub(self.open)
    }

    const fn add(&mut self, other: &Self) {
        self.succeeded += other.succeeded;
        self.all += other.all;
        self.open += other.open;
    }

    /// Returns the share of successful transactions; 1 if there were none.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts, far below 2^52")]
    pub fn share(&self) -> f64 {
        if self.all == 0 { 1.0 } else { self.succeeded as f64 / self.all as f64 }
    }
}

impl Transactions {
    /// Counts a transaction that has ended.
    pub fn add(&mut self, verb: MethodId, is_well: bool) {
        let ends = self.0.entry(verb).or_default();
        ends.succeeded += u64::from(is_well);
        ends.all += 1;
    }

    /// Counts a transaction that was unanswered when the run ended.
    pub fn leave_open(&mut self, verb: MethodId) {
        let ends = self.0.entry(verb).or_default();
        ends.all += 1;
        ends.open += 1;
    }

    /// Returns the counts of each method that occurred.
    pub fn iter(&self) -> impl Iterator<Item = (MethodId, TransactionCounts)> {
        self.0.iter().map(|(verb, ends)| (*verb, *ends))
    }

    /// Returns the counts of one method.
    #[must_use]
    pub fn of(&self, verb: MethodId) -> TransactionCounts {
        self.0.get(&verb).copied().unwrap_or_default()
    }

    /// Returns the counts of all methods together.
    #[must_use]
    pub fn sum(&self) -> TransactionCounts {
        let mut sum = TransactionCounts::default();
        self.0.values().for_each(|ends| sum.add(ends));
        sum
    }

    /// Adds the counts of another driver.
    pub fn merge(&mut self, other: &Self) {
        for (verb, ends) in &other.0 {
            self.0.entry(*verb).or_default().add(ends);
        }
    }
}

/// Everything that one driver counts.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// Sessions that this end began (calls, registrations).
    pub began: OutcomeCounts,
    /// Sessions that this end answered; `offered` and `refused` stay 0.
    pub answered: OutcomeCounts,
    /// Sessions of each script, by its index, begun or answered.
    pub scripts: Vec<OutcomeCounts>,
    /// Requests that this end sent, except ACK, and their outcomes.
    pub transactions: Transactions,
    /// Messages of the counted sessions, sent for the first time.
    pub sent: Messages,
    /// Messages received for the first time, of the counted sessions or of no session.
    pub received: Messages,
    /// Retransmissions sent.
    pub repeats_sent: u64,
    /// Retransmissions received.
    pub repeats_received: u64,
    /// Messages of calls that are over or were never ours.
    pub late: u64,
    /// Messages that no script expected.
    pub unexpected: u64,
    /// The first unexpected messages.
    pub samples: Vec<Vec<u8>>,
    /// Failed sessions by ending.
    pub failures: BTreeMap<SessionResult, u64>,
    /// Reasons that servers gave for refusals.
    pub refusals: Refusals,
    /// Requests of the counted sessions, except ACK, sent for the first time.
    asked: BTreeMap<MethodId, u64>,
    /// Times from a request to its responses.
    answers: BTreeMap<(MethodId, ResponseClass), TimeHistogram>,
    /// Responses of a replay compared with those of its record.
    pub compared: AnswerComparison,
    /// Timers of scripts.
    timers: BTreeMap<u8, TimeHistogram>,
    /// Times from when the first request of a session was due to its 2xx: a call that the generator itself delayed is
    /// as late as a caller would have found it.
    pub from_due: BTreeMap<MethodId, TimeHistogram>,
    /// How late calls began, relative to the arrival law.
    pub lateness: TimeHistogram,
    /// How late retransmissions were, relative to the timers of RFC 3261, over all sessions.
    pub resend_lateness: TimeHistogram,
    /// How long messages waited to be read by this end; for messages read together, that of the first.
    pub unread: TimeHistogram,
    /// Durations of the sessions that were carried.
    pub durations: TimeHistogram,
    /// For each carried session, the longest of its times from a request to its 2xx.
    pub slowest: TimeHistogram,
    /// The same for each session of this end that was carried since counting began, also those that began before.
    pub ended: TimeHistogram,
    /// Handshakes of the connections that this end opened.
    pub handshakes: Handshakes,
    /// Metrics of RFC 6076.
    pub metrics: Metrics,
}

impl Meter {
    /// Counts a sent message.
    pub fn on_sent(&mut self, kind: Kind, is_repeat: bool) {
        if is_repeat {
            self.repeats_sent += 1;
        } else {
            self.sent.add(kind);
        }
    }

    /// Counts a request that a counted session sent for the first time.
    pub fn on_request_sent(&mut self, verb: MethodId) {
        if verb != MethodId::Ack {
            *self.asked.entry(verb).or_default() += 1;
        }
    }

    /// Counts a message received for the first time.
    pub fn on_received(&mut self, kind: Kind) {
        self.received.add(kind);
    }

    /// Records a response, with the time since its request was first sent.
    pub fn on_answer(&mut self, verb: MethodId, status: u16, after: Duration) {
        if let Some(answer) = ResponseClass::of(status) {
            self.answers.entry((verb, answer)).or_default().record(after);
        }
    }

    /// Counts an unexpected message.
    pub fn on_unexpected(&mut self, bytes: &[u8]) {
        self.unexpected += 1;
        if self.samples.len() < MAX_SAMPLES {
            self.samples.push(bytes.get(..SAMPLE_BYTES).unwrap_or(bytes).to_vec());
        }
    }

    /// Records the time of a script's timer.
    pub fn on_timer(&mut self, number: u8, time: Duration) {
        if usize::from(number) < TIMERS {
            self.timers.entry(number).or_default().record(time);
        }
    }

    /// Counts a session that began.
    pub(crate) fn on_begin(&mut self, is_ours: bool) {
        let accounts = if is_ours { &mut self.began } else { &mut self.answered };
        accounts.begin();
    }

    /// Counts a session that began with this script.
    pub(crate) fn on_begin_of(&mut self, script: u16) {
        if let Some(accounts) = script_of(&mut self.scripts, script) {
            accounts.begin();
        }
    }

    /// Moves a session from one script's counts to another's.
    pub(crate) fn on_script_switch(&mut self, before: u16, now: u16) {
        if let Some(accounts) = script_of(&mut self.scripts, before) {
            (accounts.sent, accounts.unfinished) =
                (accounts.sent.saturating_sub(1), accounts.unfinished.saturating_sub(1));
        }
        self.on_begin_of(now);
    }

    /// Counts a session with this script that ended, in addition to [`on_end`](Self::on_end).
    pub(crate) fn on_end_of(&mut self, script: u16, ending: SessionResult) {
        if let Some(accounts) = script_of(&mut self.scripts, script) {
            accounts.end(ending);
        }
    }

    /// Counts a session that ended.
    pub(crate) fn on_end(&mut self, is_ours: bool, ending: SessionResult, after: Duration) {
        let accounts = if is_ours { &mut self.began } else { &mut self.answered };
        accounts.end(ending);
        match ending {
            SessionResult::Carried if is_ours => self.durations.record(after),
            SessionResult::Carried => {}
            _ => *self.failures.entry(ending).or_default() += 1,
        }
    }

    /// Returns the times from requests to their responses.
    pub fn answers(&self) -> impl Iterator<Item = (MethodId, ResponseClass, &TimeHistogram)> {
        self.answers.iter().map(|((verb, answer), times)| (*verb, *answer, times))
    }

    /// Returns the times from requests of a method to this class of response.
    #[must_use]
    pub fn answer(&self, verb: MethodId, answer: ResponseClass) -> Option<&TimeHistogram> {
        self.answers.get(&(verb, answer))
    }

    /// Returns the number of requests of a method that the counted sessions have sent.
    #[must_use]
    pub fn asked(&self, verb: MethodId) -> u64 {
        self.asked.get(&verb).copied().unwrap_or(0)
    }

    /// Returns how many of them have had no final response.
    #[must_use]
    pub fn silent(&self, verb: MethodId) -> u64 {
        let count = |answer| self.answer(verb, answer).map_or(0, TimeHistogram::count);
        self.asked(verb).saturating_sub(count(ResponseClass::Success) + count(ResponseClass::Failure))
    }

    /// Returns the number of calls that succeeded since counting began; at an end that begins calls, this includes
    /// calls that began before.
    #[must_use]
    pub fn success_times(&self) -> u64 {
        if self.began.offered > 0 { self.ended.count().max(self.began.carried) } else { self.answered.carried }
    }

    /// Returns the timers of scripts.
    pub fn timers(&self) -> impl Iterator<Item = (u8, &TimeHistogram)> {
        self.timers.iter().map(|(number, times)| (*number, times))
    }

    /// Adds the counts of another driver.
    pub fn merge(&mut self, other: &Self) {
        self.began.merge(&other.began);
        self.answered.merge(&other.answered);
        for (script, accounts) in (0..).zip(&other.scripts) {
            if let Some(sum) = script_of(&mut self.scripts, script) {
                sum.merge(accounts);
            }
        }
        self.transactions.merge(&other.transactions);
        self.sent.merge(&other.sent);
        self.compared.merge(&other.compared);
        self.received.merge(&other.received);
        self.repeats_sent += other.repeats_sent;
        self.repeats_received += other.repeats_received;
        self.late += other.late;
        self.unexpected += other.unexpected;
        self.refusals.merge(&other.refusals);
        let room = MAX_SAMPLES.saturating_sub(self.samples.len());
        self.samples.extend(other.samples.iter().take(room).cloned());
        for (ending, count) in &other.failures {
            *self.failures.entry(*ending).or_default() += count;
        }
        for (verb, count) in &other.asked {
            *self.asked.entry(*verb).or_default() += count;
        }
        for (key, times) in &other.answers {
            self.answers.entry(*key).or_default().merge(times);
        }
        for (key, times) in &other.timers {
            self.timers.entry(*key).or_default().merge(times);
        }
        for (verb, times) in &other.from_due {
            self.from_due.entry(*verb).or_default().merge(times);
        }
        self.lateness.merge(&other.lateness);
        self.resend_lateness.merge(&other.resend_lateness);
        self.unread.merge(&other.unread);
        self.durations.merge(&other.durations);
        self.slowest.merge(&other.slowest);
        self.ended.merge(&other.ended);
        self.handshakes.merge(&other.handshakes);
        self.metrics.merge(&other.metrics);
    }
}

/// Returns the counts of a script, creating them if needed.
fn script_of(scripts: &mut Vec<OutcomeCounts>, script: u16) -> Option<&mut OutcomeCounts> {
    let place = usize::from(script);
    if scripts.len() <= place {
        scripts.resize(place + 1, OutcomeCounts::default());
    }
    scripts.get_mut(place)
}

impl std::fmt::Display for SessionResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Carried => f.write_str("carried"),
            Self::Lost => f.write_str("no answer"),
            Self::Refused(status) => write!(f, "refused with {status}"),
            Self::Failed(Failure::Unexpected) => f.write_str("an unexpected message"),
            Self::Failed(Failure::Script) => f.write_str("failed by its script"),
            Self::Failed(Failure::Challenge) => f.write_str("a challenge that could not be answered"),
            Self::Failed(Failure::Connection) => f.write_str("no connection"),
            Self::Failed(Failure::Loop) => f.write_str("an endless loop in the script"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(got: Duration, wanted: Duration) {
        assert!((got.as_secs_f64() / wanted.as_secs_f64() - 1.0).abs() < 0.01, "{got:?} for {wanted:?}");
    }

    #[test]
    fn long_calls_are_distinct() {
        let (short, long) = (Duration::from_secs(300), Duration::from_secs(3 * 3_600));
        let mut times = TimeHistogram::default();
        [short, short, long].into_iter().for_each(|time| times.record(time));
        is_near(times.quantile(0.5), short);
        is_near(times.max(), long);
        is_near(times.mean(), (short * 2 + long) / 3);
        assert_eq!((times.within(Duration::from_secs(310)), times.within(long * 2), times.beyond()), (2, 3, 0));
    }

    #[test]
    fn overlong_times_are_counted() {
        let (mut times, mut other) = (TimeHistogram::default(), TimeHistogram::default());
        times.record(Duration::from_secs(86_400 * 30));
        other.record(Duration::from_secs(86_400 * 6));
        other.record(Duration::MAX);
        times.merge(&other);
        assert_eq!((times.count(), times.beyond(), times.within(Duration::MAX)), (3, 2, 3));
        is_near(times.max(), Duration::from_secs(86_400 * 7));
    }

    #[test]
    fn unanswered_requests_are_counted_apart() {
        let mut transactions = Transactions::default();
        transactions.add(MethodId::Bye, true);
        transactions.add(MethodId::Invite, false);
        transactions.leave_open(MethodId::Invite);
        let mut sum = Transactions::default();
        sum.merge(&transactions);
        sum.merge(&transactions);
        let ends = sum.sum();
        assert_eq!((ends.all, ends.succeeded, ends.open, ends.failed()), (6, 2, 2, 2));
        assert_eq!(sum.of(MethodId::Invite).share(), 0.0);
    }
}
