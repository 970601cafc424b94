//! Going through a script: one step after the other until one waits.

use rand::Rng as _;
use strowger_foundation::Timestamp;

use crate::script::{Ending, Failure, Kind, Numbering, Step, StepIndex, Template, Verb};
use crate::session::{NEVER, NOWHERE, Session};

use super::{Connecting, Driver, MAX_STEPS, Walk};

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
        let scripts = self.setup.scripts.clone();
        for _ in 0..MAX_STEPS {
            let Some(session) = self.sessions.get(slot) else { return };
            let Some(script) = scripts.get(usize::from(session.script)) else { return };
            let at = session.step;
            let next = match script.steps.get(usize::from(at)) {
                None => Next::End(Ending::Carried),
                Some(step) => self.step(slot, step, walk),
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
                let limit = timeout.and_then(|(law, _)| self.sample(slot, law));
                if let Some(session) = self.sessions.get_mut(slot) {
                    session.deadline = limit.map_or(NEVER, |limit| walk.now + limit);
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
            Step::End(ending) => return Next::End(*ending),
        }
        Next::On
    }

    fn sample(&mut self, slot: u32, law: u16) -> Option<std::time::Duration> {
        let script = self.sessions.get(slot)?.script;
        let law = self.setup.scripts.get(usize::from(script))?.laws.get(usize::from(law))?;
        Some(law.sample(&mut self.rng))
    }

    /// Sends a message for the first time.
    fn send(&mut self, slot: u32, template: u16, repeat: bool, walk: &mut Walk<'_, '_>) -> Next {
        let is_stream = self.setup.transport.is_reliable();
        let (t1, repeats) = (self.setup.t1, self.setup.repeats && repeat && !is_stream);
        let per_transaction = is_stream && self.setup.connecting == Connecting::Transaction;
        let Some(session) = self.sessions.get_mut(slot) else { return Next::Stop };
        let script = self.setup.scripts.get(usize::from(session.script));
        let Some(message) = script.and_then(|script| script.templates.get(usize::from(template))) else {
            return Next::On;
        };
        let kind = message.kind();
        match kind {
            Kind::Request(verb) => {
                let is_next = per_transaction && session.flags.is_ours && session.branches > 0;
                if verb.takes_number() && is_next && !reconnect(session, walk) {
                    return Next::End(Ending::Failed(Failure::Connection));
                }
                note_request(session, verb, message, walk.now);
                if verb != Verb::Ack {
                    session.give_up_at = walk.now + t1 * 64;
                }
            }
            Kind::Response(status) => {
                session.reply_step = session.step;
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
        } else if !matches!(kind, Kind::Request(Verb::Ack)) {
            session.resend_at = NEVER;
        }
        let step = session.step;
        self.write(slot, step, template, false, walk)
    }

    /// Writes the message of a step and lets it leave.
    fn write(&mut self, slot: u32, step: StepIndex, template: u16, is_repeat: bool, walk: &mut Walk<'_, '_>) -> Next {
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
                kept.as_ref()
            }
            None => None,
        };
        let (link, peer) = (session.link, session.peer);
        let (lost, numbering, now) = (message.lost(), message.numbering(), walk.now);
        let out = walk.out.slot(link);
        let written = self.render(session, step, message, last, now, out);
        let number = if numbering == Numbering::Written { written_number(out) } else { None };
        if written.is_err() {
            return Next::End(Ending::Failed(Failure::Challenge));
        }
        if lost == 0 || self.rng.next_u32() > lost {
            walk.out.commit(link, peer);
        }
        if let (Some(number), Kind::Request(verb), Some(session)) = (number, kind, self.sessions.get_mut(slot))
            && verb.takes_number()
        {
            session.cseq = number;
            if verb == Verb::Invite {
                session.invite_cseq = number;
            }
        }
        self.meter.on_sent(kind, is_repeat);
        if let (false, Some(session)) = (is_repeat, self.sessions.get_mut(slot)) {
            match kind {
                Kind::Request(verb) => session.attempt.on_sent(verb, now),
                Kind::Response(status) => session.attempt.on_replied(session.got_verb, status, now),
                Kind::Garbage => {}
            }
        }
        Next::On
    }

    /// Sends again what a step sent.
    pub(super) fn write_again(&mut self, slot: u32, step: StepIndex, walk: &mut Walk<'_, '_>) {
        let script = self.sessions.get(slot).and_then(|session| self.script_of(session));
        if let Some(Step::Send { template, .. }) = script.and_then(|script| script.steps.get(usize::from(step))) {
            let template = *template;
            self.write(slot, step, template, true, walk);
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
                Some(Step::Wait { timeout: Some((_, to)), .. }) => *to,
                _ => step + 1,
            };
            session.step = to;
            return self.walk(slot, walk);
        }
        if session.give_up_at <= walk.now {
            return self.end(slot, Ending::Lost, walk);
        }
        if session.resend_at <= walk.now {
            //= rfc3261#17.1.1.2
            // Requests to INVITE double without end, the others and 2xx only up to T2.
            session.resends = session.resends.saturating_add(1);
            let interval = t1 * 2_u32.saturating_pow(u32::from(session.resends).min(16));
            let is_invite = session.sent_verb == Verb::Invite && session.resend_step != session.reply_step;
            session.resend_at = walk.now + if is_invite { interval } else { interval.min(t2) };
            let step = session.resend_step;
            self.write_again(slot, step, walk);
        }
        self.arm(slot);
    }
}

/// The number in the CSeq of a message that was written.
fn written_number(message: &[u8]) -> Option<u32> {
    let value = strowger_message::Head::scan(message).ok()?;
    let value = value.first(strowger_message::HeaderName::CSeq)?;
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(value.get(..digits)?).ok()?.parse().ok()
}

/// A connection of its own for the next transaction; false where there is none to be had.
fn reconnect(session: &mut Session, walk: &mut Walk<'_, '_>) -> bool {
    walk.out.close(session.link);
    let link = walk.out.connect(session.peer, true);
    session.flags.owns_link = link.is_some();
    session.link = link.unwrap_or(session.link);
    link.is_some()
}

/// What sending a request makes of a session: its numbers, its branch, what is waited for.
fn note_request(session: &mut Session, verb: Verb, message: &Template, now: Timestamp) {
    if let Some(extra) = session.extra.as_mut().filter(|_| message.has_credentials()) {
        extra.nonce_count += 1;
    }
    if verb.takes_number() {
        session.cseq = match message.numbering() {
            Numbering::Literal(number) => number,
            _ => session.cseq + 1,
        };
        session.sent_at = now;
        session.flags.is_answered = false;
    }
    // A CANCEL and the ACK to a failure have their INVITE's branch.
    let is_invites = verb == Verb::Cancel || (verb == Verb::Ack && session.invite_class != 2);
    if !is_invites {
        session.branches += 1;
    }
    match verb {
        Verb::Invite => {
            (session.invite_cseq, session.invite_branch) = (session.cseq, session.branches);
            (session.invite_at, session.invite_class) = (now, 0);
            session.flags.is_ringing = false;
            session.ack_step = NOWHERE;
        }
        Verb::Ack => session.ack_step = session.step,
        Verb::Cancel => (session.sent_at, session.flags.is_answered) = (now, false),
        _ => {}
    }
    if verb != Verb::Ack {
        session.sent_verb = verb;
    }
}
