//! Phones that all register after a power cut: when each starts, and when it retries.
//!
//! A waiting phone takes 16 bytes beside its next time; a session exists only while a REGISTER is in progress. Random
//! numbers derive from the phone's number and its count of attempts, so one seed gives every phone the same times
//! with any number of threads.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use strowger_foundation::Timestamp;

use crate::driver::{EndedSession, mix};
use crate::law::{Law, Rng};
use crate::metrics::Recovery;
use crate::script::SessionResult;

/// Wait of a phone that a limit of the generator kept from registering.
const HELD_FOR: Duration = Duration::from_millis(100);

/// Waiting time before a retry (RFC 5626 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRecovery {
    /// Base that each failure doubles. The RFC's default is 30 s if all flows of a phone have failed, as does the
    /// only one here.
    pub base: Duration,
    /// Upper limit of all bounds; the RFC's default is 1800 s.
    pub max: Duration,
}

impl Default for FlowRecovery {
    fn default() -> Self {
        Self { base: Duration::from_secs(30), max: Duration::from_secs(1_800) }
    }
}

impl FlowRecovery {
    /// Returns the upper bound of the wait after this many consecutive failures.
    //= rfc5626#4.5
    #[must_use]
    pub fn upper_bound(&self, failures: u32) -> Duration {
        self.base.saturating_mul(2_u32.saturating_pow(failures)).min(self.max)
    }

    /// Returns the wait after this many consecutive failures: from half the bound to all of it, by `drawn` (0 to 1),
    /// and at least the Retry-After of a 503.
    //= rfc5626#4.5
    // The UA MUST wait for at least the value of the retry delay time.
    #[must_use]
    pub fn wait(&self, failures: u32, drawn: f64, retry_after: Option<Duration>) -> Duration {
        let delay = self.upper_bound(failures).mul_f64(0.5 + drawn.clamp(0.0, 1.0) / 2.0);
        delay.max(retry_after.unwrap_or_default())
    }
}

/// Behaviour of phones after a power cut.
#[derive(Clone, Debug)]
pub struct Avalanche {
    /// Time from the beginning of the phase to a phone's first registration.
    pub start: Law,
    /// Wait after a failure.
    pub flow_recovery: FlowRecovery,
    /// Part of a registration's lifetime after which a phone refreshes it. With `None` no phone refreshes, and the
    /// phase ends when all are registered.
    pub refresh: Option<f64>,
}

/// A phone that registers now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueRegistration {
    /// Phone.
    pub user: u32,
    /// Due time.
    pub at: Timestamp,
    /// Last CSeq used.
    pub cseq: u32,
}

/// Phones of a thread.
#[derive(Debug)]
pub struct Phones {
    how: Avalanche,
    seed: u64,
    begin: Timestamp,
    /// First phone, and the step to the next.
    users: (u32, u32),
    phones: Vec<Phone>,
    /// Nanoseconds from the beginning, and the phone.
    next: BinaryHeap<Reverse<(u64, u32)>>,
    registered: u32,
    refreshed: u64,
    refreshes_failed: u64,
}

/// State of a phone.
#[derive(Clone, Copy, Debug)]
struct Phone {
    cseq: u32,
    /// Milliseconds from the beginning to its first registration; [`NOT_YET`] before that.
    registered_ms: u32,
    /// REGISTERs sent until then, with retransmissions and those with credentials.
    requests: u32,
    /// Registrations begun until then.
    attempts: u16,
    /// Failures since the last success.
    failures: u8,
}

/// Time of a phone that has not been registered.
const NOT_YET: u32 = u32::MAX;

impl Phones {
    /// Creates the phones of thread `thread` of `threads`, with start times drawn from the law.
    #[must_use]
    pub fn new(how: &Avalanche, users: &Range<u32>, seed: u64, (thread, threads): (usize, usize)) -> Self {
        let small = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let own = || users.clone().skip(thread).step_by(threads.max(1));
        let first = own().map(|user| {
            let mut rng = Rng::seed_from_u64(mix(seed ^ mix(u64::from(user))));
            Reverse((nanos(how.start.sample(&mut rng)), user))
        });
        let idle = Phone { cseq: 0, registered_ms: NOT_YET, requests: 0, attempts: 0, failures: 0 };
        Self {
            next: first.collect::<Vec<_>>().into(),
            phones: vec![idle; own().len()],
            users: (users.start.saturating_add(small(thread)), small(threads.max(1))),
            how: how.clone(),
            seed,
            begin: Timestamp::ZERO,
            registered: 0,
            refreshed: 0,
            refreshes_failed: 0,
        }
    }

    /// Sets the time at which the power returns.
    #[must_use]
    pub fn beginning(self, begin: Timestamp) -> Self {
        Self { begin, ..self }
    }

    /// Returns the next due time of any phone.
    #[must_use]
    pub fn next_at(&self) -> Option<Timestamp> {
        self.next.peek().map(|next| self.begin + Duration::from_nanos(next.0.0))
    }

    /// Returns the next phone that is due.
    pub fn poll_due(&mut self, now: Timestamp) -> Option<DueRegistration> {
        let at = self.next_at().filter(|at| *at <= now)?;
        let Reverse((_, user)) = self.next.pop()?;
        let cseq = self.phone(user).map_or(0, |phone| phone.cseq);
        Some(DueRegistration { user, at, cseq })
    }

    /// Reschedules a phone that a limit of the generator kept from registering.
    pub fn on_held(&mut self, user: u32, now: Timestamp) {
        self.wait(user, now, HELD_FOR);
    }

    /// Handles a registration that has ended, successfully or not.
    pub fn on_end(&mut self, ended: &EndedSession, now: Timestamp) {
        let since_ms = u32::try_from(now.saturating_since(self.begin).as_millis()).unwrap_or(NOT_YET - 1);
        let user = ended.caller;
        let Some(phone) = self.phone(user) else { return };
        phone.cseq = ended.cseq;
        let is_first = phone.registered_ms == NOT_YET;
        if is_first {
            phone.attempts = phone.attempts.saturating_add(1);
            phone.requests = phone.requests.saturating_add(u32::from(ended.requests));
        }
        if ended.ending == SessionResult::Carried {
            phone.failures = 0;
            if is_first {
                phone.registered_ms = since_ms;
                self.registered += 1;
            } else {
                self.refreshed += 1;
            }
            if let (Some(part), Some(expires)) = (self.how.refresh, ended.expires) {
                self.wait(user, now, expires.mul_f64(part));
            }
            return;
        }
        phone.failures = phone.failures.saturating_add(1);
        let (failures, cseq) = (phone.failures, phone.cseq);
        self.refreshes_failed += u64::from(!is_first);
        let drawn = self.drawn(user, cseq);
        self.wait(user, now, self.how.flow_recovery.wait(u32::from(failures), drawn, ended.retry_after));
    }

    /// Returns whether every phone has been registered and none has anything left to do.
    #[must_use]
    pub fn is_recovered(&self) -> bool {
        self.how.refresh.is_none() && self.registered as usize == self.phones.len()
    }

    /// Returns the recovery so far.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        let mut recovery = Recovery::of(self.phones.len() as u64, self.refreshed, self.refreshes_failed);
        for phone in &self.phones {
            let at = (phone.registered_ms != NOT_YET).then(|| Duration::from_millis(u64::from(phone.registered_ms)));
            recovery.add(at, u32::from(phone.attempts), phone.requests);
        }
        recovery
    }

    fn wait(&mut self, user: u32, now: Timestamp, time: Duration) {
        let after = now.saturating_since(self.begin).saturating_add(time);
        self.next.push(Reverse((nanos(after), user)));
    }

    /// Returns a number from 0 to 1 for this attempt of a phone.
    fn drawn(&self, user: u32, cseq: u32) -> f64 {
        let mut rng = Rng::seed_from_u64(mix(self.seed ^ mix(u64::from(cseq) << 32 | u64::from(user))));
        f64::from(rng.next_u32()) / f64::from(u32::MAX)
    }

    fn phone(&mut self, user: u32) -> Option<&mut Phone> {
        let (first, step) = self.users;
        let place = usize::try_from(user.checked_sub(first)? / step.max(1)).ok()?;
        self.phones.get_mut(place)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn avalanche(start: &str, refresh: Option<f64>) -> Avalanche {
        Avalanche { start: Law::parse(start).expect("a law"), flow_recovery: FlowRecovery::default(), refresh }
    }

    fn ended(user: u32, ending: SessionResult, retry_after: Option<u64>) -> EndedSession {
        let seconds = |time: Option<u64>| time.map(Duration::from_secs);
        let expires = seconds((ending == SessionResult::Carried).then_some(600));
        EndedSession {
            script: 0,
            caller: user,
            ending,
            retry_after: seconds(retry_after),
            expires,
            cseq: 1,
            requests: 2,
        }
    }

    #[test]
    fn a_phones_wait_is_random_and_its_bound_doubles_up_to_half_an_hour() {
        let recovery = FlowRecovery::default();
        let bounds: Vec<_> = (1..=8).map(|failures| recovery.upper_bound(failures).as_secs()).collect();
        // 240 s after three failures is the RFC's own example.
        assert_eq!(bounds, [60, 120, 240, 480, 960, 1_800, 1_800, 1_800]);
        let wait = |drawn, after: Option<u64>| recovery.wait(1, drawn, after.map(Duration::from_secs)).as_secs();
        assert_eq!([wait(0.0, None), wait(1.0, None), wait(0.0, Some(45)), wait(1.0, Some(45))], [30, 60, 45, 60]);
        assert_eq!(recovery.wait(u32::MAX, 1.0, Some(Duration::from_secs(7_200))).as_secs(), 7_200);
    }

    #[test]
    fn phones_start_by_their_law_and_retry_until_registered() {
        let begin = Timestamp::from_millis(5_000);
        let mut phones = Phones::new(&avalanche("uniform(min=0s,max=10s)", None), &(100..1_100), 3, (0, 1));
        phones = phones.beginning(begin);
        let mut now = begin + Duration::from_secs(10);
        let first: Vec<_> = std::iter::from_fn(|| phones.poll_due(now)).collect();
        assert!(first.len() == 1_000 && first.is_sorted_by_key(|due| due.at));
        assert!(first[499].at.saturating_since(begin).abs_diff(Duration::from_secs(5)) < Duration::from_millis(500));
        first.iter().for_each(|due| phones.on_end(&ended(due.user, SessionResult::Lost, None), now));
        assert!(phones.poll_due(now + Duration::from_millis(29_999)).is_none(), "sooner than half the bound");
        now += Duration::from_secs(60);
        let again: Vec<_> = std::iter::from_fn(|| phones.poll_due(now)).collect();
        assert_eq!((again.len(), again[0].cseq), (1_000, 1));
        again.iter().for_each(|due| phones.on_end(&ended(due.user, SessionResult::Carried, None), now));
        assert!(phones.is_recovered() && phones.next_at().is_none());
        let recovery = phones.recovery();
        assert_eq!((recovery.phones(), recovery.registered()), (1_000, 1_000));
        assert_eq!(recovery.time_of(0.5), Some(Duration::from_secs(70)));
        assert_eq!((recovery.attempts().mean(), recovery.requests().mean()), (2.0, 4.0));
    }

    #[test]
    fn a_registration_is_refreshed_before_expiry_if_configured() {
        let mut phones = Phones::new(&avalanche("0s", Some(0.5)), &(0..1), 3, (0, 1));
        let start = phones.poll_due(Timestamp::ZERO).expect("on at once");
        phones.on_end(&ended(start.user, SessionResult::Carried, None), Timestamp::from_millis(1_000));
        assert_eq!(phones.next_at(), Some(Timestamp::from_millis(301_000)));
        assert!(!phones.is_recovered());
        phones.poll_due(Timestamp::from_millis(301_000)).expect("its refresh");
        phones.on_end(&ended(0, SessionResult::Refused(503), Some(100)), Timestamp::from_millis(301_000));
        assert_eq!(phones.next_at(), Some(Timestamp::from_millis(401_000)), "no sooner than the 503 said");
        assert_eq!(phones.recovery().refreshes(), (0, 1));
    }

    #[test]
    fn a_waiting_phone_is_small() {
        assert!(size_of::<Phone>() + size_of::<Reverse<(u64, u32)>>() <= 32);
    }
}
