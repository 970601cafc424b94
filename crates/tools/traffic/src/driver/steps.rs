//! Execution of a script: one step after the other until one waits.

use rand::Rng as _;
use strowger_foundation::Timestamp;

use crate::script::{Failure, Kind, MethodId, Numbering, Script, SessionResult, Step, StepIndex, Template};
use crate::session::{CANCELLED, NEVER, NO_LINK, Session, TRYING_LATER, UNSPECIFIED_ADDRESS};

use super::nonces::Nonces;
use super::{ConnectionLifetime, Driver, LastMessage, MAX_STEPS, StepContext};

/// What a step leads to.
enum Transition {
    /// The following step.
    NextStep,
    /// Another step.
    To(StepIndex),
    /// A wait for a message or a timeout.
    Stop,
    /// The end of the session.
    End(SessionResult),
}

impl Driver {
    /// Continues from the session's step.
    pub(super) fn run_steps(&mut self, slot: u32, walk: &mut StepContext<'_, '_>) {
        for _ in 0..MAX_STEPS {
            let Some(session) = self.sessions.get(slot) else { return };
            let Some(script) = self.script_of(session) else { return };
            let at = session.step;
            let next = match script.steps.get(usize::from(at)).cloned() {
                None => Transition::End(SessionResult::Carried),
                Some(step) => self.step(slot, &step, walk),
            };
            let Some(session) = self.sessions.get_mut(slot) else { return };
            match next {
                Transition::NextStep => session.step = at + 1,
                Transition::To(to) => session.step = to,
                Transition::Stop => return self.arm(slot),
                Transition::End(ending) => return self.end(slot, ending, walk),
            }
        }
        self.end(slot, SessionResult::Failed(Failure::Loop), walk);
    }

    fn step(&mut self, slot: u32, step: &Step, walk: &mut StepContext<'_, '_>) -> Transition {
        match step {
            Step::Send { template, repeat } => return self.send(slot, *template, *repeat, walk),
            Step::Wait { timeout, .. } => {
                let limit = timeout.and_then(|(law, _)| self.sample(slot, law)).unwrap_or(self.setup.max_wait);
                if let Some(session) = self.sessions.get_mut(slot) {
                    session.deadline = walk.now + limit;
                }
                return Transition::Stop;
            }
            Step::Pause { law } => {
                let pause = self.sample(slot, *law).unwrap_or_default();
                if let Some(session) = self.sessions.get_mut(slot) {
                    session.deadline = walk.now + pause;
                }
                return Transition::Stop;
            }
            Step::PauseFor { millis } => {
                let pause = self.millis(slot, *millis);
                if let Some(session) = self.sessions.get_mut(slot) {
                    session.deadline = walk.now + pause;
                }
                return Transition::Stop;
            }
            Step::Jump { to } => return Transition::To(*to),
            Step::Chance { share, to } => {
                if self.rng.next_u32() < *share {
                    return Transition::To(*to);
                }
            }
            Step::If { condition, to } => {
                if self.holds(slot, condition) {
                    return Transition::To(*to);
                }
            }
            Step::Actions { actions } => {
                if !self.run_actions(slot, actions.clone(), walk) {
                    return Transition::End(SessionResult::Failed(Failure::Script));
                }
            }
            Step::Start { script } => {
                if let Some(session) = self.sessions.get(slot) {
                    self.started.push((*script, session.caller, session.callee));
                }
            }
            Step::SwitchScript { variable } => return self.switch_script(slot, *variable),
            Step::End(SessionResult::Refused(0)) => {
                return Transition::End(SessionResult::Refused(super::actions::status_of(walk.last).unwrap_or(0)));
            }
            Step::End(ending) => return Transition::End(*ending),
        }
        Transition::NextStep
    }

    fn sample(&mut self, slot: u32, law: u16) -> Option<std::time::Duration> {
        let script = self.sessions.get(slot)?.script;
        let law = self.setup.scripts.get(usize::from(script))?.laws.get(usize::from(law))?;
        Some(law.sample(&mut self.rng))
    }

    /// Continues with the script that a variable names; an unknown name fails the session.
    fn switch_script(&mut self, slot: u32, variable: u16) -> Transition {
        let count = self.setup.scripts.len();
        let Some(session) = self.sessions.get_mut(slot) else { return Transition::Stop };
        let number = crate::script::run::number(Self::variable(session, variable));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
        let number = number as u16;
        if usize::from(number) >= count || number == session.script {
            return Transition::End(SessionResult::Failed(Failure::Script));
        }
        let before = std::mem::replace(&mut session.script, number);
        if session.flags.epoch == self.epoch {
            self.meter.on_script_switch(before, number);
        }
        Transition::To(0)
    }

    /// Sends a message for the first time.
    fn send(&mut self, slot: u32, template: u16, repeat: bool, walk: &mut StepContext<'_, '_>) -> Transition {
        let is_stream = self.setup.transport.is_reliable();
        let (t1, repeats) = (self.setup.t1, self.setup.retransmits && repeat && !is_stream);
        if is_stream && !self.has_connection(slot, template, walk) {
            return Transition::End(SessionResult::Failed(Failure::Connection));
        }
        let Some(session) = self.sessions.get_mut(slot) else { return Transition::Stop };
        let script = self.setup.scripts.get(usize::from(session.script));
        let Some(message) = script.and_then(|script| script.templates.get(usize::from(template))) else {
            return Transition::NextStep;
        };
        let kind = message.kind();
        match kind {
            Kind::Request(verb) => {
                note_request(session, verb, message, walk.now);
                if message.has_credentials() {
                    count_nonce(session, verb, self.nonces.as_mut());
                }
                if verb != MethodId::Ack {
                    session.give_up_at = walk.now + t1 * 64;
                }
            }
            Kind::Response(status) => {
                session.reply_step = session.step;
                session.flags.is_pending &= status < 200 || session.received_method != MethodId::Invite;
                if session.received_method == MethodId::Invite && (200..300).contains(&status) && repeat {
                    session.give_up_at = walk.now + t1 * 64;
                }
            }
            Kind::Garbage => {}
        }
        let is_repeated = repeats
            && match kind {
                Kind::Request(verb) => verb != MethodId::Ack,
                Kind::Response(_) => session.received_method == MethodId::Invite,
                Kind::Garbage => false,
            };
        if is_repeated {
            (session.resend_step, session.resends) = (session.step, 0);
            session.resend_at = walk.now + t1;
        } else if !(matches!(kind, Kind::Request(MethodId::Ack))
            || matches!(kind, Kind::Response(_)) && script.is_some_and(|script| resends_request(session, script)))
        {
            session.resend_at = NEVER;
        }
        self.write(slot, template, false, walk)
    }

    /// Opens a connection if the next message needs a new one; returns false if none can be opened.
    fn has_connection(&mut self, slot: u32, template: u16, walk: &mut StepContext<'_, '_>) -> bool {
        let Some(session) = self.sessions.get(slot) else { return false };
        let template = self.script_of(session).and_then(|script| script.templates.get(usize::from(template)));
        let Some(Kind::Request(verb)) = template.map(Template::kind) else { return true };
        let is_next = self.setup.connection_lifetime == ConnectionLifetime::Transaction
            && session.flags.is_ours
            && session.branches > 0
            && verb.takes_number();
        !(is_next || session.link == NO_LINK) || self.reconnect(slot, walk)
    }

    /// Opens a new connection, for the next transaction or after the last one was closed; returns false if none can
    /// be opened.
    fn reconnect(&mut self, slot: u32, walk: &mut StepContext<'_, '_>) -> bool {
        let is_own =
            matches!(self.setup.connection_lifetime, ConnectionLifetime::Dialog | ConnectionLifetime::Transaction);
        let Some(session) = self.sessions.get_mut(slot) else { return false };
        if session.flags.owns_link {
            walk.out.close(session.link);
        }
        let link = walk.out.connect(session.peer, is_own);
        session.flags.owns_link = is_own && link.is_some();
        if let Some(link) = link {
            self.sessions.move_to_link(slot, link);
        }
        link.is_some()
    }

    /// Renders and sends the message of a step.
    fn write(&mut self, slot: u32, template: u16, is_repeat: bool, walk: &mut StepContext<'_, '_>) -> Transition {
        let Some(session) = self.sessions.get(slot) else { return Transition::Stop };
        let Some(message) = self.script_of(session).and_then(|script| script.templates.get(usize::from(template)))
        else {
            return Transition::NextStep;
        };
        let kind = message.kind();
        let kept;
        let last = match walk.last {
            Some(last) => Some(last),
            None if message.uses_last() && !session.last.is_empty() => {
                kept = strowger_message::Head::scan(&session.last).ok();
                kept.as_ref().map(LastMessage::of)
            }
            None => None,
        };
        let (link, peer) = match kind {
            Kind::Response(_) => session.reply_to(),
            _ => (session.link, session.peer),
        };
        let (call, lost, numbering, now) = (session.call, message.loss(), message.numbering(), walk.now);
        let out = walk.out.slot(link);
        let written = self.render(session, message, last, now, out);
        let number = if numbering == Numbering::Written { written_number(out) } else { None };
        if written.is_err() {
            return Transition::End(SessionResult::Failed(Failure::Challenge));
        }
        if lost == 0 || self.rng.next_u32() > lost {
            walk.out.commit(link, peer, call);
        }
        if let (Some(number), Kind::Request(verb), Some(session)) = (number, kind, self.sessions.get_mut(slot))
            && verb.takes_number()
        {
            session.cseq = number;
            if verb == MethodId::Invite {
                session.invite_cseq = number;
            }
        }
        let is_counted = self.sessions.get(slot).is_some_and(|session| session.flags.epoch == self.epoch);
        if is_counted || is_repeat {
            self.meter.on_sent(kind, is_repeat);
        }
        if let (Kind::Request(verb), Some(session)) = (kind, self.sessions.get_mut(slot)) {
            session.requests = session.requests.saturating_add(u16::from(verb != MethodId::Ack));
        }
        if let (false, Some(session)) = (is_repeat, self.sessions.get_mut(slot)) {
            match kind {
                Kind::Request(verb) => {
                    session.attempt.on_sent(verb, now);
                    if is_counted {
                        self.meter.on_request_sent(verb);
                    }
                    let begins_call = verb == MethodId::Invite && session.flags.is_ours && !session.flags.has_called;
                    session.flags.has_called |= begins_call;
                    self.meter.metrics.calls.begun += u64::from(begins_call && is_counted);
                }
                Kind::Response(status) => session.attempt.on_response_sent(session.received_method, status, now),
                Kind::Garbage => {}
            }
        }
        Transition::NextStep
    }

    /// Retransmits what a step sent.
    pub(super) fn write_again(&mut self, slot: u32, step: StepIndex, walk: &mut StepContext<'_, '_>) {
        if step == CANCELLED {
            return self.write_cancelled(slot, true, walk);
        }
        let script = self.sessions.get(slot).and_then(|session| self.script_of(session));
        if let Some(Step::Send { template, .. }) = script.and_then(|script| script.steps.get(usize::from(step))) {
            let template = *template;
            self.write(slot, template, true, walk);
        }
    }

    /// Handles a timer: one of the session's deadlines may be due.
    pub(super) fn wake(&mut self, slot: u32, walk: &mut StepContext<'_, '_>) {
        let (t1, t2) = (self.setup.t1, self.setup.t2);
        let Some(session) = self.sessions.get_mut(slot) else { return };
        if session.deadline <= walk.now {
            session.deadline = NEVER;
            let (script, step) = (session.script, session.step);
            let script = self.setup.scripts.get(usize::from(script));
            let to = match script.and_then(|script| script.steps.get(usize::from(step))) {
                // It starts over.
                None if step == TRYING_LATER => 0,
                Some(Step::Wait { timeout: Some((_, to)), .. }) => *to,
                Some(Step::Wait { timeout: None, .. }) => return self.end(slot, SessionResult::Lost, walk),
                _ => step + 1,
            };
            session.step = to;
            return self.run_steps(slot, walk);
        }
        if session.give_up_at <= walk.now {
            return self.end(slot, SessionResult::Lost, walk);
        }
        if session.resend_at <= walk.now {
            debug_assert!(repeats_newest(session, self.setup.scripts.get(usize::from(session.script))));
            //= rfc3261#17.1.1.2
            // The interval doubles without limit for an INVITE, and up to T2 for other requests and 2xx.
            session.resends = session.resends.saturating_add(1);
            self.meter.resend_lateness.record(walk.now.saturating_since(session.resend_at));
            let interval = t1 * 2_u32.saturating_pow(u32::from(session.resends).min(16));
            let is_request = session.resend_step != session.reply_step;
            session.resend_at = walk.now
                + match session.sent_method {
                    MethodId::Invite if is_request => interval,
                    //= rfc3261#17.1.2.2
                    _ if is_request && session.flags.is_proceeding => t2,
                    _ => interval.min(t2),
                };
            let step = session.resend_step;
            self.write_again(slot, step, walk);
        }
        self.arm(slot);
    }
}

/// Returns whether the message being retransmitted is a request; it stays scheduled while a request of the other end
/// is answered.
fn resends_request(session: &Session, script: &Script) -> bool {
    let Some(Step::Send { template, .. }) = script.steps.get(usize::from(session.resend_step)) else { return false };
    let template = script.templates.get(usize::from(*template));
    template.is_some_and(|template| matches!(template.kind(), Kind::Request(_)))
}

/// Returns whether the message being retransmitted is a response or the newest request; it is rendered with the
/// session's current numbers.
fn repeats_newest(session: &Session, script: Option<&Script>) -> bool {
    let Some(Step::Send { template, .. }) =
        script.and_then(|script| script.steps.get(usize::from(session.resend_step)))
    else {
        return true;
    };
    match script.and_then(|script| script.templates.get(usize::from(*template))).map(Template::kind) {
        Some(Kind::Request(verb)) => verb == session.sent_method,
        _ => true,
    }
}

/// Returns the CSeq number of a rendered message.
fn written_number(message: &[u8]) -> Option<u32> {
    let value = strowger_message::Head::scan(message).ok()?;
    let value = value.first(strowger_message::HeaderName::CSeq)?;
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(value.get(..digits)?).ok()?.parse().ok()
}

/// Sets which challenges the next request answers, and their nonce counts.
fn count_nonce(session: &mut Session, verb: MethodId, nonces: Option<&mut Nonces>) {
    let mut nonces = nonces;
    for is_proxy in [false, true] {
        let held = nonces.as_mut().and_then(|nonces| nonces.next(session.caller, verb, is_proxy));
        if let Some((challenge, count)) = held {
            let answered = &mut session.extra_mut().challenges[usize::from(is_proxy)];
            (answered.challenge, answered.nonce_count) = (Some(challenge), count);
        } else if let Some(extra) = &mut session.extra {
            let answered = &mut extra.challenges[usize::from(is_proxy)];
            answered.nonce_count = answered.nonce_count.wrapping_add(1);
        }
    }
}

/// Updates a session for a sent request: its numbers, its branch, and what it waits for.
fn note_request(session: &mut Session, verb: MethodId, message: &Template, now: Timestamp) {
    if verb.takes_number() {
        if session.sent_method == MethodId::Cancel && !session.flags.is_answered {
            // Its response is pending beside the one to this request.
            session.extra_mut().cancel = Some((session.invite_cseq, session.sent_at));
        }
        session.cseq = match message.numbering() {
            Numbering::Literal(number) => number,
            _ => session.cseq.wrapping_add(1),
        };
        session.sent_at = now;
        session.flags.is_answered = false;
    }
    // A CANCEL, and the ACK to a failure, have the branch of their INVITE.
    let is_invites = verb == MethodId::Cancel || (verb == MethodId::Ack && session.invite_class != 2);
    if !is_invites {
        session.branches = session.branches.wrapping_add(1);
    }
    match verb {
        MethodId::Invite => {
            (session.invite_cseq, session.invite_branch) = (session.cseq, session.branches);
            (session.invite_at, session.invite_class) = (now, 0);
            session.invite_step = session.step;
            session.flags.is_ringing = false;
            session.ack_step = UNSPECIFIED_ADDRESS;
        }
        MethodId::Ack => (session.ack_step, session.ack_branch) = (session.step, session.branches),
        MethodId::Cancel => (session.sent_at, session.flags.is_answered) = (now, false),
        _ => {}
    }
    if verb != MethodId::Ack {
        session.sent_method = verb;
        session.flags.is_proceeding = false;
    }
}
