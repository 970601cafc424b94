//! What actions need from the driver; `script::run` implements the actions.

use std::ops::Range;
use std::time::Duration;

use rand::Rng as _;
use strowger_message::{Head, StartLine};

use crate::script::run::{ActionEnvironment, Outcome, holds, run};
use crate::script::{Condition, MethodId, Stop};
use crate::session::Value;

use super::{Driver, LastMessage, StepContext};

/// Maximum number of log lines that wait to be taken.
const MAX_LOG: usize = 10_000;

/// Longest pause that a variable may set.
const MAX_PAUSE: Duration = Duration::from_secs(366 * 86_400);

impl Driver {
    /// Runs a range of the script's actions; returns false if one of them fails the call.
    pub(super) fn run_actions(&mut self, slot: u32, actions: Range<u16>, walk: &mut StepContext<'_, '_>) -> bool {
        let scripts = self.setup.scripts.clone();
        let Some(session) = self.sessions.get(slot) else { return true };
        let Some(script) = scripts.get(usize::from(session.script)) else { return true };
        let actions = script.actions.get(usize::from(actions.start)..usize::from(actions.end)).unwrap_or(&[]);
        let mut acting = SessionEnvironment { driver: self, slot, walk, nothing: Vec::new() };
        run(actions, &mut acting) == Outcome::Continue
    }

    /// Returns whether a condition holds.
    pub(super) fn holds(&self, slot: u32, condition: &Condition) -> bool {
        let extra = self.sessions.get(slot).and_then(|session| session.extra.as_ref());
        holds(condition, extra.map_or(&[], |extra| &extra.variables))
    }

    /// Takes the stop that a script has requested since the last call.
    pub const fn take_stop(&mut self) -> Option<Stop> {
        self.stop.take()
    }

    /// Sets the wall time (since 1970) at which the run's time is zero. Scripts write dates from it.
    pub const fn set_wall(&mut self, wall_at_zero: Duration) {
        self.wall_at_zero = wall_at_zero;
    }

    /// Returns the value of a variable that holds milliseconds.
    pub(super) fn millis(&self, slot: u32, variable: u16) -> Duration {
        let value = self.sessions.get(slot).map(|session| Self::variable(session, variable));
        let seconds = value.map_or(0.0, crate::script::run::number) / 1_000.0;
        Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(MAX_PAUSE).min(MAX_PAUSE)
    }
}

/// Returns the status of a response.
pub(super) fn status_of(message: Option<LastMessage<'_>>) -> Option<u16> {
    match message?.head.start() {
        StartLine::Response { status, .. } => Some(status.code()),
        StartLine::Request { .. } => None,
    }
}

/// The session whose actions run.
struct SessionEnvironment<'d, 'w, 'a, 'o> {
    driver: &'d mut Driver,
    slot: u32,
    walk: &'w mut StepContext<'a, 'o>,
    /// Variables for a session that is gone.
    nothing: Vec<Value>,
}

impl ActionEnvironment for SessionEnvironment<'_, '_, '_, '_> {
    fn parts(&mut self) -> (&[u8], &mut Vec<Value>) {
        let Some(session) = self.driver.sessions.get_mut(self.slot) else { return (&[], &mut self.nothing) };
        let extra = session.extra.get_or_insert_default();
        let message = match self.walk.last {
            Some(last) => last.head.bytes(),
            None => &session.last,
        };
        (message, &mut extra.variables)
    }

    fn render(&mut self, template: u16, out: &mut Vec<u8>) {
        let Some(session) = self.driver.sessions.get(self.slot) else { return };
        let script = self.driver.script_of(session);
        let Some(template) = script.and_then(|script| script.templates.get(usize::from(template))) else { return };
        let kept;
        let last = match self.walk.last {
            Some(last) => Some(last),
            None => {
                kept = Head::scan(&session.last).ok();
                kept.as_ref().map(LastMessage::of)
            }
        };
        // Only credentials can fail, and a fragment has none.
        let _ = self.driver.render(session, template, last, self.walk.now, out);
    }

    fn sample(&mut self, law: u16) -> f64 {
        let script = self.driver.sessions.get(self.slot).map_or(usize::MAX, |session| usize::from(session.script));
        let law = self.driver.setup.scripts.get(script).and_then(|script| script.laws.get(usize::from(law)));
        law.map_or(0.0, |law| law.seconds(&mut self.driver.rng))
    }

    fn wall(&mut self) -> Duration {
        self.driver.wall_at_zero + self.ticks()
    }

    fn timer(&mut self, number: u8, begins: bool) {
        let now = self.walk.now;
        let Some(session) = self.driver.sessions.get_mut(self.slot) else { return };
        let timers = &mut session.extra_mut().timers;
        if begins {
            timers.retain(|(other, _)| *other != number);
            timers.push((number, now));
        } else if let Some((_, begun)) = timers.iter().find(|(other, _)| *other == number) {
            let time = now.saturating_since(*begun);
            if session.flags.epoch == self.driver.epoch {
                self.driver.meter.on_timer(number, time);
            }
        }
    }

    fn compare(&mut self, verb: MethodId, recorded: u16) {
        let got = status_of(self.walk.last).unwrap_or(0);
        self.driver.meter.compared.add(verb, recorded, got);
    }

    fn log(&mut self, text: &[u8]) {
        if self.driver.log.len() < MAX_LOG {
            self.driver.log.push(String::from_utf8_lossy(text).into_owned());
        }
    }

    fn ticks(&mut self) -> Duration {
        Duration::from_nanos(self.walk.now.as_nanos())
    }

    fn random(&mut self) -> u64 {
        self.driver.rng.next_u64()
    }

    fn user(&mut self) -> u32 {
        self.driver.sessions.get(self.slot).map_or(0, |session| session.caller)
    }

    fn stop(&mut self, stop: Stop) {
        // A stop at once outranks an orderly one.
        if self.driver.stop != Some(Stop::Now) {
            self.driver.stop = Some(stop);
        }
    }
}
