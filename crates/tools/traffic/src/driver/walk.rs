//! Going through a script: one step after the other until one waits.

use rand::Rng as _;
use strowger_foundation::Timestamp;

use crate::script::{Ending, Failure, Kind, Numbering, Script, Step, StepIndex, Template, Verb};
use crate::session::{CANCELLED, NEVER, NO_LINK, NOWHERE, Session, TRYING_LATER};

use super::nonces::Nonces;
use super::{Connecting, Driver, Last, MAX_STEPS, Walk};

/// What a step leads to.
enum Next {
    /// The step behind it.
    On,
    /// Another one.
    To(StepIndex),
    /// Nothing, until a message comes or time is up.
    Stop,
    /// The end.
    End(Ending),
}

impl Driver {
    /// Goes on from the session's step.
    pub(super) fn walk(&mut self, slot: u32, walk: &mut Walk<'_, '_>) {
        for _ in 0..MAX_STEPS {
            let Some(session) = self.sessions.get(slot) else { return };
            let Some(script) = self.script_of(session) else { return };
            let at = session.step;
            let next = match script.steps.get(usize::from(at)).cloned() {
                None => Next::End(Ending::Carried),
                Some(step) => self.step(slot, &step, walk),
            };
            let Some(session) = self.sessions.get_mut(slot) else { return };
            match next {
                Next::On => session.step = at + 1,
                Next::To(to) => session.step = to,
                Next::Stop => return self.arm(slot),
                Next::End(ending) => return self.end(slot, ending, walk),
            }
        }
        self.end(slot, Ending::Failed(Failure::Circle), walk);
    }

    fn step(&mut self, slot: u32, step: &Step, walk: &mut Walk<'_, '_>) -> Next {
        match step {
            Step::Send { template, repeat } => return self.send(slot, *template, *repeat, walk),
            Step::Wait { timeout, .. } => {
                let limit = timeout.and_then(|(law, _)| self.sample(slot, law)).unwrap_or(self.setup.max_wait);
                if let Some(session) = self.sessions.get_mut(slot) {
                    session.deadline = walk.now + limit;
                }
                return Next::Stop;
            }
            Step::Pause { law } => {
                let pause = self.sample(slot, *law).unwrap_or_default();
                if let Some(session) = self.sessions.get_mut(slot) {
                    session.deadline = walk.now + pause;
                }
                return Next::Stop;
            }
            Step::PauseFor { millis } => {
                let pause = self.millis(slot, *millis);
                if let Some(session) = self.sessions.get_mut(slot) {
                    session.deadline = walk.now + pause;
                }
                return Next::Stop;
            }
            Step::Jump { to } => return Next::To(*to),
            Step::Chance { share, to } => {
                if self.rng.next_u32() < *share {
                    return Next::To(*to);
                }
            }
            Step::When { condition, to } => {
                if self.holds(slot, condition) {
                    return Next::To(*to);
                }
            }
            Step::Act { actions } => {
                if !self.act(slot, actions.clone(), walk) {
                    return Next::End(Ending::Failed(Failure::Script));
                }
            }
            Step::Start { script } => {
                if let Some(session) = self.sessions.get(slot) {
                    self.started.push((*script, session.caller, session.callee));
                }
            }
            Step::Become { variable } => return self.become_script(slot, *variable),
            Step::End(Ending::Refused(0)) => {
                return Next::End(Ending::Refused(super::act::status_of(walk.last).unwrap_or(0)));
            }
            Step::End(ending) => return Next::End(*ending),
        }
        Next::On
    }

    fn sample(&mut self, slot: u32, law: u16) -> Option<std::time::Duration> {
        let script = self.sessions.get(slot)?.script;
        let law = self.setup.scripts.get(usize::from(script))?.laws.get(usize::from(law))?;
        Some(law.sample(&mut self.rng))
    }

    /// Goes on as the script that a variable names; one that there is not fails the session.
    fn become_script(&mut self, slot: u32, variable: u16) -> Next {
        let count = self.setup.scripts.len();
        let Some(session) = self.sessions.get_mut(slot) else { return Next::Stop };
        let number = crate::script::run::number(Self::variable(session, variable));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
        let number = number as u16;
        if usize::from(number) >= count || number == session.script {
            return Next::End(Ending::Failed(Failure::Script));
        }
        let before = std::mem::replace(&mut session.script, number);
        if session.flags.epoch == self.epoch {
            self.meter.on_become(before, number);
        }
        Next::To(0)
    }

    /// Sends a message for the first time.
    fn send(&mut self, slot: u32, template: u16, repeat: bool, walk: &mut Walk<'_, '_>) -> Next {
        let is_stream = self.setup.transport.is_reliable();
        let (t1, repeats) = (self.setup.t1, self.setup.repeats && repeat && !is_stream);
        if is_stream && !self.has_connection(slot, template, walk) {
            return Next::End(Ending::Failed(Failure::Connection));
        }
        let Some(session) = self.sessions.get_mut(slot) else { return Next::Stop };
        let script = self.setup.scripts.get(usize::from(session.script));
        let Some(message) = script.and_then(|script| script.templates.get(usize::from(template))) else {
            return Next::On;
        };
        let kind = message.kind();
        match kind {
            Kind::Request(verb) => {
                note_request(session, verb, message, walk.now);
                if message.has_credentials() {
                    count_nonce(session, verb, self.nonces.as_mut());
                }
                if verb != Verb::Ack {
                    session.give_up_at = walk.now + t1 * 64;
                }
            }
            Kind::Response(status) => {
                session.reply_step = session.step;
                session.flags.is_pending &= status < 200 || session.got_verb != Verb::Invite;
                if session.got_verb == Verb::Invite && (200..300).contains(&status) && repeat {
                    session.give_up_at = walk.now + t1 * 64;
                }
            }
            Kind::Garbage => {}
        }
        let is_repeated = repeats
            && match kind {
                Kind::Request(verb) => verb != Verb::Ack,
                Kind::Response(_) => session.got_verb == Verb::Invite,
                Kind::Garbage => false,
            };
        if is_repeated {
            (session.resend_step, session.resends) = (session.step, 0);
            session.resend_at = walk.now + t1;
        } else if !(matches!(kind, Kind::Request(Verb::Ack))
            || matches!(kind, Kind::Response(_)) && script.is_some_and(|script| resends_request(session, script)))
        {
            session.resend_at = NEVER;
        }
        self.write(slot, template, false, walk)
    }

    /// Opens a connection where the next message needs another one; false where there is none to be had.
    fn has_connection(&mut self, slot: u32, template: u16, walk: &mut Walk<'_, '_>) -> bool {
        let Some(session) = self.sessions.get(slot) else { return false };
        let template = self.script_of(session).and_then(|script| script.templates.get(usize::from(template)));
        let Some(Kind::Request(verb)) = template.map(Template::kind) else { return true };
        let is_next = self.setup.connecting == Connecting::Transaction
            && session.flags.is_ours
            && session.branches > 0
            && verb.takes_number();
        !(is_next || session.link == NO_LINK) || self.reconnect(slot, walk)
    }

    /// Another connection: for the next transaction, or where the last one was closed; false where there is none to be had.
    fn reconnect(&mut self, slot: u32, walk: &mut Walk<'_, '_>) -> bool {
        let is_own = matches!(self.setup.connecting, Connecting::Dialog | Connecting::Transaction);
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

    /// Writes the message of a step and lets it leave.
    fn write(&mut self, slot: u32, template: u16, is_repeat: bool, walk: &mut Walk<'_, '_>) -> Next {
        let Some(session) = self.sessions.get(slot) else { return Next::Stop };
        let Some(message) = self.script_of(session).and_then(|script| script.templates.get(usize::from(template)))
        else {
            return Next::On;
        };
        let kind = message.kind();
        let kept;
        let last = match walk.last {
            Some(last) => Some(last),
            None if message.uses_last() && !session.last.is_empty() => {
                kept = strowger_message::Head::scan(&session.last).ok();
                kept.as_ref().map(Last::of)
            }
            None => None,
        };
        let (link, peer) = match kind {
            Kind::Response(_) => session.reply_to(),
            _ => (session.link, session.peer),
        };
        let (call, lost, numbering, now) = (session.call, message.lost(), message.numbering(), walk.now);
        let out = walk.out.slot(link);
        let written = self.render(session, message, last, now, out);
        let number = if numbering == Numbering::Written { written_number(out) } else { None };
        if written.is_err() {
            return Next::End(Ending::Failed(Failure::Challenge));
        }
        if lost == 0 || self.rng.next_u32() > lost {
            walk.out.commit(link, peer, call);
        }
        if let (Some(number), Kind::Request(verb), Some(session)) = (number, kind, self.sessions.get_mut(slot))
            && verb.takes_number()
        {
            session.cseq = number;
            if verb == Verb::Invite {
                session.invite_cseq = number;
            }
        }
        let is_counted = self.sessions.get(slot).is_some_and(|session| session.flags.epoch == self.epoch);
        if is_counted || is_repeat {
            self.meter.on_sent(kind, is_repeat);
        }
        if let (Kind::Request(verb), Some(session)) = (kind, self.sessions.get_mut(slot)) {
            session.requests = session.requests.saturating_add(u16::from(verb != Verb::Ack));
        }
        if let (false, Some(session)) = (is_repeat, self.sessions.get_mut(slot)) {
            match kind {
                Kind::Request(verb) => {
                    session.attempt.on_sent(verb, now);
                    if is_counted {
                        self.meter.on_asked(verb);
                    }
                    let begins_call = verb == Verb::Invite && session.flags.is_ours && !session.flags.has_called;
                    session.flags.has_called |= begins_call;
                    self.meter.metrics.calls.begun += u64::from(begins_call && is_counted);
                }
                Kind::Response(status) => session.attempt.on_replied(session.got_verb, status, now),
                Kind::Garbage => {}
            }
        }
        Next::On
    }

    /// Sends again what a step sent.
    pub(super) fn write_again(&mut self, slot: u32, step: StepIndex, walk: &mut Walk<'_, '_>) {
        if step == CANCELLED {
            return self.write_cancelled(slot, true, walk);
        }
        let script = self.sessions.get(slot).and_then(|session| self.script_of(session));
        if let Some(Step::Send { template, .. }) = script.and_then(|script| script.steps.get(usize::from(step))) {
            let template = *template;
            self.write(slot, template, true, walk);
        }
    }

    /// A timer went off: something of the session may be due.
    pub(super) fn wake(&mut self, slot: u32, walk: &mut Walk<'_, '_>) {
        let (t1, t2) = (self.setup.t1, self.setup.t2);
        let Some(session) = self.sessions.get_mut(slot) else { return };
        if session.deadline <= walk.now {
            session.deadline = NEVER;
            let (script, step) = (session.script, session.step);
            let script = self.setup.scripts.get(usize::from(script));
            let to = match script.and_then(|script| script.steps.get(usize::from(step))) {
                // From its beginning.
                None if step == TRYING_LATER => 0,
                Some(Step::Wait { timeout: Some((_, to)), .. }) => *to,
                Some(Step::Wait { timeout: None, .. }) => return self.end(slot, Ending::Lost, walk),
                _ => step + 1,
            };
            session.step = to;
            return self.walk(slot, walk);
        }
        if session.give_up_at <= walk.now {
            return self.end(slot, Ending::Lost, walk);
        }
        if session.resend_at <= walk.now {
            debug_assert!(repeats_newest(session, self.setup.scripts.get(usize::from(session.script))));
            //= rfc3261#17.1.1.2
            // Requests to INVITE double without end, the others and 2xx only up to T2.
            session.resends = session.resends.saturating_add(1);
            self.meter.resend_lateness.record(walk.now.saturating_since(session.resend_at));
            let interval = t1 * 2_u32.saturating_pow(u32::from(session.resends).min(16));
            let is_request = session.resend_step != session.reply_step;
            session.resend_at = walk.now
                + match session.sent_verb {
                    Verb::Invite if is_request => interval,
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

/// Whether what is repeated is a request: it goes on being repeated while one of the other end is answered.
fn resends_request(session: &Session, script: &Script) -> bool {
    let Some(Step::Send { template, .. }) = script.steps.get(usize::from(session.resend_step)) else { return false };
    let template = script.templates.get(usize::from(*template));
    template.is_some_and(|template| matches!(template.kind(), Kind::Request(_)))
}

/// Whether what is repeated is a response, or the newest request: it is written with the session's present numbers.
fn repeats_newest(session: &Session, script: Option<&Script>) -> bool {
    let Some(Step::Send { template, .. }) =
        script.and_then(|script| script.steps.get(usize::from(session.resend_step)))
    else {
        return true;
    };
    match script.and_then(|script| script.templates.get(usize::from(*template))).map(Template::kind) {
        Some(Kind::Request(verb)) => verb == session.sent_verb,
        _ => true,
    }
}

/// The number in the CSeq of a message that was written.
fn written_number(message: &[u8]) -> Option<u32> {
    let value = strowger_message::Head::scan(message).ok()?;
    let value = value.first(strowger_message::HeaderName::CSeq)?;
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(value.get(..digits)?).ok()?.parse().ok()
}

/// Which challenges the next request answers, and how often that was done.
fn count_nonce(session: &mut Session, verb: Verb, nonces: Option<&mut Nonces>) {
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

/// What sending a request makes of a session: its numbers, its branch, what is waited for.
fn note_request(session: &mut Session, verb: Verb, message: &Template, now: Timestamp) {
    if verb.takes_number() {
        if session.sent_verb == Verb::Cancel && !session.flags.is_answered {
            // Its answer is still to come, beside that of this one.
            session.extra_mut().cancel = Some((session.invite_cseq, session.sent_at));
        }
        session.cseq = match message.numbering() {
            Numbering::Literal(number) => number,
            _ => session.cseq.wrapping_add(1),
        };
        session.sent_at = now;
        session.flags.is_answered = false;
    }
    // A CANCEL and the ACK to a failure have their INVITE's branch.
    let is_invites = verb == Verb::Cancel || (verb == Verb::Ack && session.invite_class != 2);
    if !is_invites {
        session.branches = session.branches.wrapping_add(1);
    }
    match verb {
        Verb::Invite => {
            (session.invite_cseq, session.invite_branch) = (session.cseq, session.branches);
            (session.invite_at, session.invite_class) = (now, 0);
            session.invite_step = session.step;
            session.flags.is_ringing = false;
            session.ack_step = NOWHERE;
        }
        Verb::Ack => (session.ack_step, session.ack_branch) = (session.step, session.branches),
        Verb::Cancel => (session.sent_at, session.flags.is_answered) = (now, false),
        _ => {}
    }
    if verb != Verb::Ack {
        session.sent_verb = verb;
        session.flags.is_proceeding = false;
    }
}
