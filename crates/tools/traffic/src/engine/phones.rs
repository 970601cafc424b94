//! Phones that all register after a power cut: when each comes on, and when it tries again.
//!
//! Of a phone that waits a few numbers are kept, 16 bytes beside its next time: a session exists only while a REGISTER is on its
//! way. Chance is drawn from the phone's number and how often it has tried, so one seed gives every phone the same times with
//! any number of threads.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use strowger_foundation::Timestamp;

use crate::driver::{EndedSession, mix};
use crate::law::{Law, Rng};
use crate::metrics::Recovery;
use crate::script::Ending;

/// How long a phone waits that a limit of the generator kept from registering.
const HELD_FOR: Duration = Duration::from_millis(100);

/// How long a phone waits before it tries again (RFC 5626 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRecovery {
    /// What a failure doubles; the RFC's default is 30 s where all flows of a phone have failed, as here the only one.
    pub base: Duration,
    /// What no bound exceeds; the RFC's default is 1800 s.
    pub max: Duration,
}

impl Default for FlowRecovery {
    fn default() -> Self {
        Self { base: Duration::from_secs(30), max: Duration::from_secs(1_800) }
    }
}

impl FlowRecovery {
    /// The upper bound of the wait after so many consecutive failures.
    //= rfc5626#4.5
    #[must_use]
    pub fn upper_bound(&self, failures: u32) -> Duration {
        self.base.saturating_mul(2_u32.saturating_pow(failures)).min(self.max)
    }

    /// The wait after so many consecutive failures: between half the bound and all of it as `drawn` (0 to 1) says, and no shorter
    /// than a 503 said.
    //= rfc5626#4.5
    // The UA MUST wait for at least the value of the retry delay time.
    #[must_use]
    pub fn wait(&self, failures: u32, drawn: f64, retry_after: Option<Duration>) -> Duration {
        let delay = self.upper_bound(failures).mul_f64(0.5 + drawn.clamp(0.0, 1.0) / 2.0);
        delay.max(retry_after.unwrap_or_default())
    }
}

/// What phones do after a power cut.
#[derive(Clone, Debug)]
pub struct Avalanche {
    /// When a phone comes on, from the beginning of the phase.
    pub start: Law,
    /// How long it waits after a failure.
    pub flow_recovery: FlowRecovery,
    /// The part of what a registration is good for after which a phone refreshes it; `None` where none is refreshed, and the
    /// phase ends when all are registered.
    pub refresh: Option<f64>,
}

/// A phone registers now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueRegistration {
    /// The phone.
    pub user: u32,
    /// When it wanted to.
    pub at: Timestamp,
    /// The last number of its CSeq.
    pub cseq: u32,
}

/// The phones of a thread.
#[derive(Debug)]
pub struct Phones {
    how: Avalanche,
    seed: u64,
    begin: Timestamp,
    /// The first phone, and the step to the next.
    users: (u32, u32),
    phones: Vec<Phone>,
    /// Nanoseconds from the beginning, and the phone.
    next: BinaryHeap<Reverse<(u64, u32)>>,
    registered: u32,
    refreshed: u64,
    refreshes_failed: u64,
}

/// What is kept of a phone.
#[derive(Clone, Copy, Debug)]
struct Phone {
    cseq: u32,
    /// Milliseconds from the beginning to its first registration; [`NOT_YET`] before.
    registered_ms: u32,
    /// REGISTERs sent until then, retransmissions and those with credentials among them.
    requests: u32,
    /// Registrations begun until then.
    attempts: u16,
    /// Failures since the last success.
    failures: u8,
}

/// A phone that was never registered.
const NOT_YET: u32 = u32::MAX;

impl Phones {
    /// Those of thread `thread` of `threads`; each comes on when the law says.
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

    /// The power comes back now.
    #[must_use]
    pub fn beginning(self, begin: Timestamp) -> Self {
        Self { begin, ..self }
    }

    /// When the next phone wants to register.
    #[must_use]
    pub fn next_at(&self) -> Option<Timestamp> {
        self.next.peek().map(|next| self.begin + Duration::from_nanos(next.0.0))
    }

    /// The next phone whose time has come.
    pub fn poll_due(&mut self, now: Timestamp) -> Option<DueRegistration> {
        let at = self.next_at().filter(|at| *at <= now)?;
        let Reverse((_, user)) = self.next.pop()?;
        let cseq = self.phone(user).map_or(0, |phone| phone.cseq);
        Some(DueRegistration { user, at, cseq })
    }

    /// A limit of the generator kept a phone from registering.
    pub fn on_held(&mut self, user: u32, now: Timestamp) {
        self.wait(user, now, HELD_FOR);
    }

    /// A registration has ended, well or not.
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
        if ended.ending == Ending::Carried {
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

    /// Whether each phone has been registered, and none does anything any more.
    #[must_use]
    pub fn is_recovered(&self) -> bool {
        self.how.refresh.is_none() && self.registered as usize == self.phones.len()
    }

    /// What has come of it so far.
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

    /// A number from 0 to 1, for this try of a phone.
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

    fn ended(user: u32, ending: Ending, retry_after: Option<u64>) -> EndedSession {
        let seconds = |time: Option<u64>| time.map(Duration::from_secs);
        let expires = seconds((ending == Ending::Carried).then_some(600));
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
    fn a_phone_waits_half_to_all_of_the_bound_which_doubles_up_to_half_an_hour() {
        let recovery = FlowRecovery::default();
        let bounds: Vec<_> = (1..=8).map(|failures| recovery.upper_bound(failures).as_secs()).collect();
        // 240 s after three failures is the RFC's own example.
        assert_eq!(bounds, [60, 120, 240, 480, 960, 1_800, 1_800, 1_800]);
        let wait = |drawn, after: Option<u64>| recovery.wait(1, drawn, after.map(Duration::from_secs)).as_secs();
        assert_eq!([wait(0.0, None), wait(1.0, None), wait(0.0, Some(45)), wait(1.0, Some(45))], [30, 60, 45, 60]);
        assert_eq!(recovery.wait(u32::MAX, 1.0, Some(Duration::from_secs(7_200))).as_secs(), 7_200);
    }

    #[test]
    fn phones_come_on_by_their_law_and_try_again_until_they_are_registered() {
        let begin = Timestamp::from_millis(5_000);
        let mut phones = Phones::new(&avalanche("uniform(min=0s,max=10s)", None), &(100..1_100), 3, (0, 1));
        phones = phones.beginning(begin);
        let mut now = begin + Duration::from_secs(10);
        let first: Vec<_> = std::iter::from_fn(|| phones.poll_due(now)).collect();
        assert!(first.len() == 1_000 && first.is_sorted_by_key(|due| due.at));
        assert!(first[499].at.saturating_since(begin).abs_diff(Duration::from_secs(5)) < Duration::from_millis(500));
        first.iter().for_each(|due| phones.on_end(&ended(due.user, Ending::Lost, None), now));
        assert!(phones.poll_due(now + Duration::from_millis(29_999)).is_none(), "sooner than half the bound");
        now += Duration::from_secs(60);
        let again: Vec<_> = std::iter::from_fn(|| phones.poll_due(now)).collect();
        assert_eq!((again.len(), again[0].cseq), (1_000, 1));
        again.iter().for_each(|due| phones.on_end(&ended(due.user, Ending::Carried, None), now));
        assert!(phones.is_recovered() && phones.next_at().is_none());
        let recovery = phones.recovery();
        assert_eq!((recovery.phones(), recovery.registered()), (1_000, 1_000));
        assert_eq!(recovery.time_of(0.5), Some(Duration::from_secs(70)));
        assert_eq!((recovery.attempts().mean(), recovery.requests().mean()), (2.0, 4.0));
    }

    #[test]
    fn a_registration_is_refreshed_before_it_ends_where_that_is_wanted() {
        let mut phones = Phones::new(&avalanche("0s", Some(0.5)), &(0..1), 3, (0, 1));
        let start = phones.poll_due(Timestamp::ZERO).expect("on at once");
        phones.on_end(&ended(start.user, Ending::Carried, None), Timestamp::from_millis(1_000));
        assert_eq!(phones.next_at(), Some(Timestamp::from_millis(301_000)));
        assert!(!phones.is_recovered());
        phones.poll_due(Timestamp::from_millis(301_000)).expect("its refresh");
        phones.on_end(&ended(0, Ending::Refused(503), Some(100)), Timestamp::from_millis(301_000));
        assert_eq!(phones.next_at(), Some(Timestamp::from_millis(401_000)), "no sooner than the 503 said");
        assert_eq!(phones.recovery().refreshes(), (0, 1));
    }

    #[test]
    fn a_phone_that_waits_is_small() {
        assert!(size_of::<Phone>() + size_of::<Reverse<(u64, u32)>>() <= 32);
    }
}
