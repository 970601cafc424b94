//! Registration client (RFC 3261 §10.2): keeps one address of record registered at a trunk.

mod request;
#[cfg(test)]
mod tests;
mod transfer;

use core::time::Duration;
use std::sync::Arc;

use strowger_foundation::{Timestamp, Transport};
use strowger_message::{HeaderName, Message, Method, NameAddr, Uri, parse_contacts, parse_decimal};

use crate::challenge::{MAX_ANSWERS, select_challenges};
use crate::random::Random;
use crate::trunk::Trunk;

/// Maximum wait after temporary failures, and the maximum Retry-After that is obeyed.
pub const MAX_WAIT: Duration = Duration::from_secs(600);
/// Maximum wait after a refusal that only the operator or the carrier can fix, such as a wrong password; the minimum
/// is half of it. More frequent attempts could lock the account.
pub const SLOW_WAIT: Duration = Duration::from_secs(1800);
/// How long to wait for an answer if no failure is reported.
pub const TRYING_LIMIT: Duration = Duration::from_secs(120);
/// Wait after the first failure; it doubles with each further one.
const BASE_WAIT: Duration = Duration::from_secs(30);
/// Bounds of the time of renewal, in percent of the granted period. They spread the renewals of many registrations.
const RENEW_FROM: u32 = 50;
const RENEW_TO: u32 = 90;
/// Minimum wait before a renewal.
const MIN_RENEWAL: Duration = Duration::from_secs(5);
/// Maximum Min-Expires that is accepted.
const MAX_EXPIRES: Duration = Duration::from_secs(7 * 86_400);

/// Registration at one trunk. It sends nothing and reads no clock:
///
/// 1. Call [`handle_timeout`](Self::handle_timeout) when [`poll_timeout`](Self::poll_timeout) is due.
/// 2. If [`wants_request`](Self::wants_request), locate the registrar (on failure call
///    [`handle_failure`](Self::handle_failure)); [`poll_request`](Self::poll_request) writes the REGISTER, which gets
///    its own transaction.
/// 3. Report the result with [`handle_response`](Self::handle_response) or `handle_failure`. Continue with step 1, or
///    after a challenge with step 2.
#[derive(Debug)]
pub struct Registration {
    trunk: Arc<Trunk>,
    random: Random,
    /// Call-ID of all requests of this registration (RFC 3261 §10.2).
    call_id: Box<[u8]>,
    tag: Box<[u8]>,
    cseq: u32,
    phase: Phase,
    /// State shown to the operator.
    state: State,
    since: Timestamp,
    /// Expiry of the binding at the trunk.
    until: Option<Timestamp>,
    /// Requested period: the configured one, or the trunk's minimum.
    expires: Duration,
    /// Contact URI last sent.
    contact: Box<[u8]>,
    challenges: Vec<CachedChallenge>,
    /// State of the current attempt.
    attempt: Attempt,
    failures: u32,
    last_answer: Option<u16>,
    /// Set while the registration is being removed.
    leaving: bool,
    /// Whether the request in progress removes the contact.
    removing: bool,
}

/// Next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Wait until this time.
    Waiting(Timestamp),
    /// A request is due.
    Due,
    /// A request is in progress; it is given up at this time.
    Trying(Timestamp),
    /// Nothing more will be sent.
    Stopped,
}

/// Counters that limit one attempt, from the first request to the final answer.
#[derive(Clone, Copy, Debug, Default)]
struct Attempt {
    answered: u8,
    lengthened: bool,
}

/// A challenge used for several requests until the trunk sends another.
#[derive(Debug)]
struct CachedChallenge {
    by_proxy: bool,
    value: Box<[u8]>,
    nonce: Box<[u8]>,
    /// Number of uses of the nonce.
    count: u32,
}

/// State of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waiting for the first answer.
    Registering,
    /// The trunk has the binding.
    Registered,
    /// A temporary failure; retried soon.
    Failing,
    /// Refused: the operator or the carrier must act. Retried at long intervals.
    Refused,
    /// The binding is being removed.
    Leaving,
    /// Nothing is registered, and nothing will be.
    Stopped,
}

/// Status of a registration, for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Current state.
    pub state: State,
    /// Time of the last change of state.
    pub since: Timestamp,
    /// Expiry of the binding at the trunk, also while renewals fail; `None` if there is no binding.
    pub registered_until: Option<Timestamp>,
    /// Status code of the trunk's last final response; `None` if the last request got none.
    pub last_response: Option<u16>,
    /// Time of the next request; `None` while one is in progress.
    pub next_try: Option<Timestamp>,
}

/// Via and Contact parameters of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestParams<'a> {
    /// Listener name, `host:port`.
    pub sent_by: &'a [u8],
    /// The transport.
    pub transport: Transport,
    /// Branch of a new transaction, with its magic cookie.
    pub branch: &'a [u8],
}

impl Registration {
    /// Creates a registration that is due at once. The seed must be random: Call-ID, tags, client nonces and waits
    /// are derived from it and the trunk's name. For a trunk without an account the registration is stopped.
    #[must_use]
    pub fn new(now: Timestamp, trunk: Arc<Trunk>, seed: u64) -> Self {
        // Several trunks may share a seed.
        let seed = trunk.name.bytes().fold(seed, |seed, byte| Random::new(seed ^ u64::from(byte)).next());
        let mut random = Random::new(seed);
        let mut word = || random.next();
        //= rfc3261#8.1.1.4:unique-call-id
        let call_id = format!("{:016x}{:016x}", word(), word()).into_bytes().into();
        let tag = format!("{:016x}", word()).into_bytes().into();
        let (phase, state) = match trunk.account {
            Some(_) => (Phase::Waiting(now), State::Registering),
            None => (Phase::Stopped, State::Stopped),
        };
        let expires = trunk.account.as_ref().map_or(Duration::ZERO, |account| account.expires);
        Self {
            trunk,
            random,
            call_id,
            tag,
            cseq: 0,
            phase,
            state,
            since: now,
            until: None,
            expires,
            contact: Box::default(),
            challenges: Vec::new(),
            attempt: Attempt::default(),
            failures: 0,
            last_answer: None,
            leaving: false,
            removing: false,
        }
    }

    /// Returns the trunk.
    #[must_use]
    pub const fn trunk(&self) -> &Arc<Trunk> {
        &self.trunk
    }

    /// Returns the status.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> Status {
        Status {
            state: self.state,
            since: self.since,
            registered_until: self.until.filter(|until| *until > now),
            last_response: self.last_answer,
            next_try: match self.phase {
                Phase::Waiting(at) => Some(at),
                _ => None,
            },
        }
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Waiting(at) | Phase::Trying(at) => Some(at),
            Phase::Due | Phase::Stopped => None,
        }
    }

    /// Processes timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        match self.phase {
            Phase::Waiting(at) if at <= now => {
                self.attempt = Attempt::default();
                self.phase = Phase::Due;
            }
            Phase::Trying(at) if at <= now => self.handle_failure(now),
            _ => {}
        }
    }

    /// Whether [`poll_request`](Self::poll_request) has a request to write.
    #[must_use]
    pub fn wants_request(&self) -> bool {
        self.phase == Phase::Due
    }

    /// Appends the due REGISTER to `out` and returns whether there is one. Its CSeq identifies it: responses to
    /// earlier requests are ignored.
    pub fn poll_request(&mut self, now: Timestamp, sending: &RequestParams<'_>, out: &mut Vec<u8>) -> bool {
        if self.phase != Phase::Due {
            return false;
        }
        //= rfc3261#8.1.1.5:cseq-below-2-31
        //= rfc3261#10.2:cseq
        self.cseq = self.cseq.wrapping_add(1) & 0x7fff_ffff;
        self.last_answer = None;
        self.phase = Phase::Trying(now + TRYING_LIMIT);
        self.write_register(sending, out);
        true
    }

    /// Makes the request due again for another next hop, because it failed at the current one.
    pub fn retry_at_next_hop(&mut self) {
        if matches!(self.phase, Phase::Trying(_)) {
            self.phase = Phase::Due;
        }
    }

    /// Handles the failure of the request in progress or due: no answer, or nobody reached.
    pub fn handle_failure(&mut self, now: Timestamp) {
        match self.phase {
            Phase::Due | Phase::Trying(_) if self.leaving => self.stop(now),
            Phase::Due | Phase::Trying(_) => self.fail(now, Duration::ZERO),
            Phase::Waiting(_) | Phase::Stopped => {}
        }
    }

    /// Removes the binding from the trunk, for example on shutdown. [`is_stopped`](Self::is_stopped) tells when that
    /// is done; it is also done if the attempt gets no answer.
    pub fn unregister(&mut self, now: Timestamp) {
        if self.leaving || self.phase == Phase::Stopped {
            return;
        }
        self.leaving = true;
        self.attempt = Attempt::default();
        let under_way = matches!(self.phase, Phase::Trying(_));
        if !under_way && self.until.is_none_or(|until| until <= now) {
            return self.stop(now);
        }
        self.enter(now, State::Leaving);
        //= rfc3261#10.2:one-at-a-time
        // RFC 3261 §10.2: no new registration before the last one is answered.
        if !under_way {
            self.phase = Phase::Due;
        }
    }

    /// Whether nothing is registered and nothing will be.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.phase == Phase::Stopped
    }

    /// Returns whether a response answers the request in progress.
    #[must_use]
    pub fn is_answered_by(&self, response: &Message<'_>) -> bool {
        response.call_id() == &*self.call_id
            && response.cseq().number == self.cseq
            && response.method() == Method::Register
            && matches!(self.phase, Phase::Trying(_))
    }

    /// Handles a response. Returns whether it answers the request in progress.
    pub fn handle_response(&mut self, now: Timestamp, response: &Message<'_>) -> bool {
        let Some(status) = response.status().filter(|_| self.is_answered_by(response)) else { return false };
        if status.is_provisional() {
            return true;
        }
        self.last_answer = Some(status.code());
        match status.code() {
            200..=299 => self.on_success(now, response),
            401 | 407 => self.on_challenge(now, response),
            423 => self.on_too_brief(now, response),
            _ if self.leaving => self.stop(now),
            // Transient failures.
            408 | 430 | 480..=489 | 491 => self.fail(now, retry_after(response)),
            //= rfc3261#8.1.3.2:unknown-final
            // Permanent failures: RFC 3261 §21.4 and §21.6. An unknown code counts as 400 or 600.
            400..=499 | 600..=699 => self.refuse(now),
            _ => self.fail(now, retry_after(response)),
        }
        true
    }

    //= rfc3261#10.2:ignores-record-route
    //= rfc3261#10.2:no-route-set
    fn on_success(&mut self, now: Timestamp, response: &Message<'_>) {
        if self.removing {
            return self.stop(now);
        }
        let granted = self.granted(response);
        if granted.is_zero() {
            return self.fail(now, Duration::ZERO);
        }
        self.until = Some(now + granted);
        if self.leaving {
            self.phase = Phase::Due;
            return;
        }
        self.failures = 0;
        let renewal = self.random.share(granted, RENEW_FROM, RENEW_TO).max(MIN_RENEWAL);
        self.phase = Phase::Waiting(now + renewal);
        self.enter(now, State::Registered);
    }

    /// Returns the period the registrar granted our contact, or that of all contacts if it rewrote ours (some
    /// registrars do behind NAT).
    fn granted(&self, response: &Message<'_>) -> Duration {
        let head = response.head();
        let lists: Vec<Vec<NameAddr<'_>>> = head.all(HeaderName::Contact).filter_map(parse_contacts).collect();
        let mut contacts = lists.iter().flatten();
        let ours = contacts.clone().find(|contact| self.is_ours(contact)).or_else(|| {
            let only = contacts.next();
            only.filter(|_| contacts.next().is_none())
        });
        //= rfc3261#10.2.4
        let seconds = ours.and_then(|contact| contact.params.value("expires")).and_then(parse_decimal);
        let seconds = seconds.or_else(|| head.first(HeaderName::Expires).and_then(parse_decimal));
        seconds.map_or(self.expires, Duration::from_secs).min(MAX_EXPIRES)
    }

    fn is_ours(&self, contact: &NameAddr<'_>) -> bool {
        match (contact.parse_uri(), Uri::parse(&self.contact)) {
            (Some(theirs), Some(ours)) => theirs.same(&ours),
            _ => false,
        }
    }

    //= rfc3261#8.1.3.5:answers-challenges
    fn on_challenge(&mut self, now: Timestamp, response: &Message<'_>) {
        let trunk = Arc::clone(&self.trunk);
        let offers =
            trunk.credentials.as_ref().map_or_else(Vec::new, |credentials| select_challenges(credentials, response));
        // Refused credentials are refused again for the same nonce, except if the nonce was stale.
        let refused = |kept: &CachedChallenge| {
            let again = |offer: &crate::challenge::Challenge<'_>| {
                offer.is_by_proxy == kept.by_proxy
                    && !offer.is_stale()
                    && (self.attempt.answered > 0 || offer.nonce().as_deref() == Some(&*kept.nonce))
            };
            kept.count > 0 && offers.iter().any(again)
        };
        let hopeless = offers.is_empty() || self.attempt.answered >= MAX_ANSWERS || self.challenges.iter().any(refused);
        if hopeless && self.leaving {
            return self.stop(now);
        }
        if hopeless {
            self.challenges.clear();
            return self.refuse(now);
        }
        self.challenges.retain(|kept| offers.iter().all(|offer| offer.is_by_proxy != kept.by_proxy));
        self.challenges.extend(offers.iter().filter_map(|offer| {
            Some(CachedChallenge {
                by_proxy: offer.is_by_proxy,
                value: offer.value.into(),
                nonce: offer.nonce()?,
                count: 0,
            })
        }));
        self.attempt.answered = self.attempt.answered.saturating_add(1);
        self.phase = Phase::Due;
    }

    //= rfc3261#10.2.8
    fn on_too_brief(&mut self, now: Timestamp, response: &Message<'_>) {
        let least = response.head().first(HeaderName::MinExpires).and_then(parse_decimal).map(Duration::from_secs);
        match least {
            _ if self.leaving => self.stop(now),
            Some(least) if least > self.expires && least <= MAX_EXPIRES && !self.attempt.lengthened => {
                self.attempt.lengthened = true;
                self.expires = least;
                self.phase = Phase::Due;
            }
            _ => self.refuse(now),
        }
    }

    //= rfc3261#10.2.7:no-hurry
    //= rfc5626#4.5
    fn fail(&mut self, now: Timestamp, at_least: Duration) {
        self.failures = self.failures.saturating_add(1);
        let doubled = BASE_WAIT.saturating_mul(1_u32.checked_shl(self.failures.min(16)).unwrap_or(1));
        let wait = self.random.share(doubled.min(MAX_WAIT), 50, 100).max(at_least.min(MAX_WAIT));
        self.wait(now, wait, State::Failing);
    }

    fn refuse(&mut self, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        let wait = self.random.share(SLOW_WAIT, 50, 100);
        self.wait(now, wait, State::Refused);
    }

    fn wait(&mut self, now: Timestamp, wait: Duration, state: State) {
        if self.leaving {
            return self.stop(now);
        }
        self.phase = Phase::Waiting(now + wait);
        self.enter(now, state);
    }

    fn stop(&mut self, now: Timestamp) {
        self.phase = Phase::Stopped;
        self.until = None;
        self.enter(now, State::Stopped);
    }

    fn enter(&mut self, now: Timestamp, state: State) {
        if self.state != state {
            self.state = state;
            self.since = now;
        }
    }
}

/// Returns the value of Retry-After without its comment and parameters (RFC 3261 §20.33).
fn retry_after(response: &Message<'_>) -> Duration {
    let value = response.head().first(HeaderName::RetryAfter).unwrap_or_default();
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let seconds = value.get(..digits).and_then(parse_decimal).unwrap_or(0);
    Duration::from_secs(seconds)
}
