//! Callers: they call, retransmit until they get a response, talk, and hang up.

use core::net::SocketAddr;
use core::time::Duration;

use strowger_foundation::Timestamp;
use strowger_message::{HeaderName, Message, Method, Status};

use super::Setup;
use super::requests::{CallIdentity, Dialog, call_of};
use super::schedule::{Schedule, Timer};
use crate::agent::wire;
use crate::rng::Rng;

pub(super) const T1: Duration = Duration::from_millis(500);
pub(super) const T2: Duration = Duration::from_secs(4);
/// Timers B and F, and the time for which a callee retransmits its 200.
pub(super) const TIMEOUT: Duration = Duration::from_secs(32);

/// Progress of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The INVITE has no response yet and is retransmitted.
    Calling,
    /// A provisional response arrived.
    Proceeding,
    /// A 2xx arrived.
    Answered,
    /// The BYE was sent.
    HangingUp,
    /// The BYE was answered 200.
    Ended,
    /// The BYE had no response, or another one.
    Lost,
    /// A 503 arrived.
    Refused,
    /// The INVITE had no response, or another failure arrived.
    Failed,
}

/// Call as its caller sees it.
#[derive(Debug)]
pub(super) struct Call {
    identity: CallIdentity,
    pub(super) stage: Stage,
    pub(super) began: Timestamp,
    pub(super) answered: Option<Timestamp>,
    /// Time at which the BYE was first sent.
    pub(super) hung_up: Option<Timestamp>,
    dialog: Option<Box<Dialog>>,
}

/// All callers.
#[derive(Debug)]
pub(super) struct Callers {
    pub(super) calls: Vec<Call>,
    sources: u8,
    talk: (Duration, Duration),
    rng: Rng,
}

impl Callers {
    pub(super) const fn new(setup: &Setup, rng: Rng) -> Self {
        Self { calls: Vec::new(), sources: setup.sources, talk: setup.talk, rng }
    }

    /// Starts a call.
    pub(super) fn call(&mut self, now: Timestamp, schedule: &mut Schedule) {
        let call = self.calls.len();
        let host = u8::try_from(self.rng.between(1, self.sources.into())).unwrap_or(u8::MAX);
        let caller = SocketAddr::from(([198, 51, 100, host], 5060));
        let identity = CallIdentity { call, word: self.rng.next_u64(), caller };
        self.calls.push(Call {
            identity,
            stage: Stage::Calling,
            began: now,
            answered: None,
            hung_up: None,
            dialog: None,
        });
        schedule.send_to_server(now, caller, identity.invite());
        schedule.add_timer(now + T1, call, Timer::InviteAgain(T1));
        schedule.add_timer(now + TIMEOUT, call, Timer::InviteTimeout);
    }

    /// Handles a caller's timer.
    pub(super) fn handle_timeout(&mut self, now: Timestamp, number: usize, timer: Timer, schedule: &mut Schedule) {
        let Some(call) = self.calls.get_mut(number) else { return };
        match (timer, call.stage) {
            //= rfc3261#17.1.1.2
            (Timer::InviteAgain(interval), Stage::Calling) => {
                schedule.send_to_server(now, call.identity.caller, call.identity.invite());
                schedule.add_timer(now + 2 * interval, number, Timer::InviteAgain(2 * interval));
            }
            (Timer::InviteTimeout, Stage::Calling) => call.stage = Stage::Failed,
            (Timer::HangUp, Stage::Answered) => {
                (call.stage, call.hung_up) = (Stage::HangingUp, Some(now));
                schedule.add_timer(now + TIMEOUT, number, Timer::ByeTimeout);
                call.send_bye(now, T1, schedule);
            }
            //= rfc3261#17.1.2.2
            (Timer::ByeAgain(interval), Stage::HangingUp) => call.send_bye(now, (2 * interval).min(T2), schedule),
            (Timer::ByeTimeout, Stage::HangingUp) => call.stage = Stage::Lost,
            _ => {}
        }
    }

    /// Handles a message for a caller. Callers receive no requests.
    pub(super) fn handle_message(&mut self, now: Timestamp, bytes: &[u8], schedule: &mut Schedule) {
        let Ok(message) = Message::parse(bytes) else { return };
        let (Some(status), Some(number)) = (message.status(), call_of(message.call_id())) else { return };
        let Some(call) = self.calls.get_mut(number) else { return };
        match message.method() {
            Method::Invite if status.is_provisional() => call.handle_provisional(),
            Method::Invite if status.is_success() => {
                let (least, most) = self.talk;
                let spread = u64::try_from((most - least).as_millis()).unwrap_or(0);
                let talk = least + Duration::from_millis(self.rng.between(0, spread));
                call.handle_answer(now, &message, talk, schedule);
            }
            Method::Invite => call.handle_failure(now, &message, status, schedule),
            Method::Bye if !status.is_provisional() && call.stage == Stage::HangingUp => {
                call.stage = if status.is_success() { Stage::Ended } else { Stage::Lost };
                call.dialog = None;
            }
            _ => {}
        }
    }
}

impl Call {
    fn handle_provisional(&mut self) {
        if self.stage == Stage::Calling {
            self.stage = Stage::Proceeding;
        }
    }

    /// Handles a 2xx: each is acknowledged, and a caller that has given up hangs up at once.
    //= rfc3261#13.2.2.4
    fn handle_answer(&mut self, now: Timestamp, message: &Message<'_>, talk: Duration, schedule: &mut Schedule) {
        if self.answered.is_none() {
            let Some(target) = wire::contact(message) else { return };
            let mut routes = wire::record_routes(message);
            routes.reverse();
            let to = wire::value(message, HeaderName::To);
            self.dialog = Some(Box::new(Dialog { target, routes, to }));
            let talk = if self.stage == Stage::Failed { Duration::ZERO } else { talk };
            (self.stage, self.answered) = (Stage::Answered, Some(now));
            schedule.add_timer(now + talk, self.identity.call, Timer::HangUp);
        }
        if let Some(dialog) = &self.dialog {
            schedule.send_to_server(now, self.identity.caller, self.identity.ack(dialog));
        }
    }

    fn handle_failure(&mut self, now: Timestamp, message: &Message<'_>, status: Status, schedule: &mut Schedule) {
        if matches!(self.stage, Stage::Calling | Stage::Proceeding) {
            self.stage = if status == Status::SERVICE_UNAVAILABLE { Stage::Refused } else { Stage::Failed };
        }
        let to = wire::value(message, HeaderName::To);
        schedule.send_to_server(now, self.identity.caller, self.identity.ack_of_failure(to));
    }

    /// Sends the BYE, and again after `interval` without a response.
    fn send_bye(&self, now: Timestamp, interval: Duration, schedule: &mut Schedule) {
        let Some(dialog) = &self.dialog else { return };
        schedule.send_to_server(now, self.identity.caller, self.identity.bye(dialog));
        schedule.add_timer(now + interval, self.identity.call, Timer::ByeAgain(interval));
    }
}
