//! The end of a script, and its branches for divergence from the recording: other answers, challenges, and calls
//! without an end in the capture.

use std::time::Duration;

use super::call::CallMessage;
use super::compile::{Compiler, OwnRequest, PATIENCE};
use crate::law::Law;
use crate::script::{Condition, Extract, Failure, Kind, MethodId, Pattern, Script, ScriptError, SessionResult};

/// Maximum time that the called end leaves a request without any response; less than 64·T1 (RFC 3261 §17.1.1.2,
/// §17.1.2.2).
const SILENCE: Duration = Duration::from_secs(28);

impl Compiler<'_> {
    /// Adds the steps after the last item, and the branches for divergence.
    pub(super) fn finish(mut self) -> Result<(Script, u64), ScriptError> {
        if self.rewriting.is_caller {
            self.finish_caller();
        } else {
            self.finish_callee();
        }
        let invites: Vec<OwnRequest> = self
            .asked
            .iter()
            .copied()
            .filter(|asked| self.item(asked.item).is_some_and(|item| item.method == MethodId::Invite))
            .collect();
        for asked in invites {
            self.divergence_branch(asked);
        }
        let overlapping = self.asked.iter().filter(|asked| matches!(asked.answer, Some((usize::MAX, _)))).count();
        Ok((self.b.build()?, overlapping as u64))
    }

    fn finish_caller(&mut self) {
        let first = self.item(0).filter(|item| item.method == MethodId::Invite);
        if let Some(asked) = self.open.and_then(|item| self.asked_by(item)) {
            // The recording ends before the answer.
            let expects = self.concurrent_expects(self.end.items.len());
            self.b.wait_for(&expects, None);
            self.b.place_label(asked.expected).end(SessionResult::Carried);
            return;
        }
        let is_answered = self.asked.iter().any(|asked| matches!(asked.answer, Some((_, 200..=299))));
        let hangs_up = Kind::Request(MethodId::Bye);
        let asks_bye = self.end.items.iter().any(|item| item.kind == hangs_up && item.is_out);
        let Some(first) = first.filter(|_| is_answered && !asks_bye) else {
            self.b.end(SessionResult::Carried);
            return;
        };
        // If the other end's BYE came, the call is over; otherwise this end hangs up.
        let over = self.b.label();
        let bye = self.end.items.iter().position(|item| item.kind == hangs_up);
        let answer = bye.and_then(|bye| self.answers.get(bye).copied().flatten());
        if let Some(answer) = answer {
            self.b.when(Condition::Set(answer), over);
        }
        if bye.is_none() {
            if !self.end.items.iter().any(|item| item.is_out && item.kind == Kind::Request(MethodId::Ack)) {
                self.send_unrecorded_request(first, MethodId::Ack);
            }
            self.wait_until(self.end.items.len(), self.setting.ends_at);
        }
        self.hang_up(first);
        self.b.place_label(over).end(SessionResult::Carried);
    }

    fn finish_callee(&mut self) {
        let items = &self.end.items;
        let first = items.first().copied();
        let hangs_up = Kind::Request(MethodId::Bye);
        let replied = |item: &CallMessage| {
            item.is_out && first.is_some_and(|first| first.method == item.method && first.number <= item.number)
        };
        let last = items.iter().filter(|item| replied(item)).filter_map(CallMessage::status).max();
        let is_call = first.is_some_and(|first| first.method == MethodId::Invite);
        let has_bye = items.iter().any(|item| item.kind == hangs_up);
        let answer = self.answers.first().copied().flatten();
        match (last, answer) {
            (Some(200..=299), _) if is_call && !has_bye => {
                let (law, over) = (self.gap(self.setting.ends_at) + PATIENCE.1, self.b.label());
                let law = self.b.law(Law::constant(law));
                let bye = self.b.label();
                self.b.wait_with(
                    &[
                        (Pattern::Request(MethodId::Ack), Extract::NOTHING, None),
                        (Pattern::Request(MethodId::Bye), Extract::NOTHING, Some(bye)),
                    ],
                    Some((law, over)),
                );
                self.b.place_label(bye).send("SIP/2.0 200 OK\n[answer]\nContent-Length: 0\n");
                self.b.place_label(over).end(SessionResult::Carried);
            }
            (None | Some(100..=199), Some(answer)) => {
                // The recording ends before the answer. There is no answer until the time of its end; then one is
                // sent, so that the caller does not wait forever. If there was no ringing either, it is sent earlier,
                // as the caller would give up after 64·T1.
                let is_ringing = last.is_some();
                let ends_at = self.setting.ends_at;
                self.since =
                    if is_ringing { self.since } else { self.since.max(ends_at.saturating_sub(self.silence())) };
                self.wait_until(self.end.items.len(), ends_at);
                let text = format!("SIP/2.0 480 Temporarily Unavailable\n[${answer}]Content-Length: 0\n");
                self.b.send(&text).end(SessionResult::Carried);
            }
            _ => {
                self.b.end(SessionResult::Carried);
            }
        }
    }

    /// Returns how long a request may stay without any response, in time of the recording.
    fn silence(&self) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is positive, and saturates")]
        let nanos = (SILENCE.as_secs_f64() * 1e9 * self.setting.speed) as u64;
        nanos
    }

    /// Adds the branches of an INVITE for responses that differ from the recording, and for its challenge.
    fn divergence_branch(&mut self, asked: OwnRequest) {
        let Some(item) = self.item(asked.item) else { return };
        let status = asked.answer.map_or(0, |(_, status)| status);
        let behind = asked.answer.map_or(self.end.items.len(), |(place, _)| place.saturating_add(1));
        self.b.place_label(asked.challenged);
        self.failure_ack(asked);
        self.b.jump(asked.send);
        let is_success = (200..300).contains(&status);
        if is_success || status == 0 {
            self.b.place_label(asked.refused);
            self.failure_ack(asked);
            if item.is_in_dialog {
                // The call continues as before; the recorded ACK has nothing to acknowledge.
                let is_ack = |other: &CallMessage| {
                    other.is_out && other.kind == Kind::Request(MethodId::Ack) && other.number == item.number
                };
                let ack = (behind..self.end.items.len()).find(|place| self.item(*place).is_some_and(is_ack));
                let behind = self.mark_at(ack.map_or(behind.min(self.end.items.len()), |ack| ack + 1));
                self.b.jump(behind);
            } else {
                // This may also be how a call ended that the recording leaves open.
                self.b.end(if status == 0 { SessionResult::Carried } else { SessionResult::Refused(0) });
            }
        }
        if !is_success {
            self.b.place_label(asked.surprised);
            self.send_unrecorded_request(item, MethodId::Ack);
            if item.is_in_dialog {
                let behind = self.mark_at(behind.min(self.end.items.len()));
                self.b.jump(behind);
            } else {
                self.hang_up(item);
                self.b.end(if status == 0 { SessionResult::Carried } else { SessionResult::Failed(Failure::Script) });
            }
        }
    }

    /// Sends a request that is not in the recording.
    fn send_unrecorded_request(&mut self, invite: &CallMessage, verb: MethodId) {
        let Some(head) = self.head(invite) else { return };
        let template = self.rewriting.invented(&head, verb, self.variables);
        let template = self.b.template(template);
        self.b.send_template(template, true);
    }

    /// Sends a BYE of this end and waits for its answer.
    fn hang_up(&mut self, invite: &CallMessage) {
        let (bye, over) = (self.b.label(), self.b.label());
        self.b.place_label(bye);
        self.send_unrecorded_request(invite, MethodId::Bye);
        let method = Some(MethodId::Bye);
        let status = |low, high| Pattern::Response { low, high, method };
        self.b.wait(&[
            (status(100, 199), Extract::NOTHING, None),
            (status(401, 401), Extract::CHALLENGE, Some(bye)),
            (status(407, 407), Extract::CHALLENGE, Some(bye)),
            (status(200, 699), Extract::NOTHING, Some(over)),
            (Pattern::Response { low: 100, high: 699, method: None }, Extract::NOTHING, None),
        ]);
        self.b.place_label(over);
    }
}
