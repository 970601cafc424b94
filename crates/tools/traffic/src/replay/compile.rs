//! Compilation of one end of a call into a script: its messages in order, with the recorded times between them.
//!
//! What the end sent follows either a message that it had received, for which the script waits, or a message that it
//! had sent. The time between them is the recorded one. The script waits for messages during these times instead of
//! pausing. If a message comes earlier than in the recording (an answer before the CANCEL, the BYE of the other end),
//! the script continues where the recording has it, and skips what it would have sent before.

use std::time::Duration;

use strowger_message::{Head, HeaderName};

use super::call::{CallMessage, CallSide};
use super::capture::CapturedMessage;
use super::message::{CALL_FIELD, RequestUri, Rewriter, Variables};
use crate::law::Law;
use crate::script::{
    Action, Condition, ExpectBuilder, Extract, Failure, Kind, Label, LastField, MethodId, Pattern, Place, Script,
    ScriptBuilder, ScriptError, SessionResult, Step, Template, TemplatePart,
};

/// How much later than recorded a request of the other end may come before the script continues without it: at the
/// calling end, whose other end may not be part of the replay, and at the called end.
pub(super) const PATIENCE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(40));
/// Resolution of the engine's timer, in ns.
const GRAIN_NANOS: u64 = 62_500;

/// Options of the compiler.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompilerOptions<'a> {
    pub messages: &'a [CapturedMessage],
    /// Speed of the replay relative to the recording.
    pub speed: f64,
    /// The time of the capture's last message. Calls without an end in the capture are hung up then.
    pub ends_at: u64,
}

/// A request of this end, its answer and the labels that belong to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnRequest {
    pub(super) item: usize,
    /// The index of its recorded final response, and the status.
    pub(super) answer: Option<(usize, u16)>,
    /// Labels of its sending, of the answer to its challenge, and of the steps after its responses.
    pub(super) send: Label,
    pub(super) challenged: Label,
    pub(super) expected: Label,
    pub(super) refused: Label,
    pub(super) surprised: Label,
}

/// Compiles the caller's end into a script. Also returns the number of answers that it does not wait for because they
/// overlap others.
pub(super) fn caller(
    end: &CallSide,
    setting: CompilerOptions<'_>,
    rewriting: Rewriter<'_>,
) -> Result<(Script, u64), ScriptError> {
    let mut compiler = Compiler::new("replay", end, setting, rewriting);
    compiler.items(0)?;
    compiler.finish()
}

/// Compiles the called end into a script, which begins once the first request has come.
pub(super) fn callee(
    end: &CallSide,
    setting: CompilerOptions<'_>,
    rewriting: Rewriter<'_>,
) -> Result<(Script, u64), ScriptError> {
    let mut compiler = Compiler::new("replay callee", end, setting, rewriting);
    compiler.actions_of(0);
    let actions = compiler.taken.clone();
    compiler.b.act(&actions);
    compiler.items(1)?;
    compiler.finish()
}

/// Returns the script that every request to the called end starts. It finds out which call the request belongs to and
/// switches to the script of that call.
pub(super) fn entry(verbs: &[MethodId]) -> Result<Script, ScriptError> {
    let mut b = ScriptBuilder::new("replay entry");
    let (call, known, unknown) = (b.variable(), b.label(), b.label());
    let find = Action::Find {
        place: Place::Header(CALL_FIELD.to_owned()),
        after: String::new(),
        before: String::new(),
        into: call,
        must: false,
    };
    let expects: Vec<_> = verbs
        .iter()
        .map(|verb| ExpectBuilder {
            what: Pattern::Request(*verb),
            takes: Extract { dialog: true, challenge: false, copy: true },
            to: Some(known),
            actions: vec![find.clone()],
        })
        .collect();
    b.wait_for(&expects, None);
    b.place_label(known).when(Condition::Unset(call), unknown);
    b.step(Step::SwitchScript { variable: call });
    b.place_label(unknown).send("SIP/2.0 404 Not Found\n[answer]\nContent-Length: 0\n");
    b.end(SessionResult::Failed(Failure::Unexpected));
    b.build()
}

pub(super) struct Compiler<'a> {
    pub(super) b: ScriptBuilder,
    pub(super) end: &'a CallSide,
    pub(super) setting: CompilerOptions<'a>,
    pub(super) rewriting: Rewriter<'a>,
    pub(super) variables: Variables,
    /// Labels before each item, and after the last.
    pub(super) at: Vec<Label>,
    /// Labels of the steps after each received item.
    pub(super) got: Vec<Label>,
    /// The variable with the fields to copy into responses, for each request of the other end.
    pub(super) answers: Vec<Option<u16>>,
    pub(super) asked: Vec<OwnRequest>,
    /// Actions to run when the next request is received.
    pub(super) taken: Vec<Action>,
    /// When the event that the next one follows happened.
    pub(super) since: u64,
    /// The INVITE that has no final response yet.
    pub(super) open: Option<usize>,
}

impl<'a> Compiler<'a> {
    fn new(name: &str, end: &'a CallSide, setting: CompilerOptions<'a>, rewriting: Rewriter<'a>) -> Self {
        let mut b = ScriptBuilder::new(name);
        let count = end.items.len();
        let at = (0..=count).map(|_| b.label()).collect();
        let got = (0..count).map(|_| b.label()).collect();
        let variables = Variables {
            failed: b.variable(),
            party: b.variable(),
            call_id: b.variable(),
            rseq: b.variable(),
            cseq: b.variable(),
        };
        let answers = end
            .items
            .iter()
            .map(|item| {
                (!item.is_out && matches!(item.kind, Kind::Request(verb) if verb != MethodId::Ack))
                    .then(|| b.variable())
            })
            .collect();
        let mut compiler = Self {
            b,
            end,
            setting,
            rewriting,
            variables,
            at,
            got,
            answers,
            asked: Vec::new(),
            taken: Vec::new(),
            since: end.items.first().map_or(0, |item| item.at),
            open: None,
        };
        compiler.find_answers();
        compiler
    }

    pub(super) fn item(&self, index: usize) -> Option<&'a CallMessage> {
        self.end.items.get(index)
    }

    pub(super) fn head(&self, item: &CallMessage) -> Option<Head<'a>> {
        Head::scan(&self.setting.messages.get(item.message)?.bytes).ok()
    }

    pub(super) fn mark_at(&mut self, index: usize) -> Label {
        self.at.get(index).copied().unwrap_or_else(|| self.b.label())
    }

    /// Finds the answer to each request of this end.
    fn find_answers(&mut self) {
        let items = &self.end.items;
        for (index, item) in items.iter().enumerate().filter(|(_, item)| item.is_out && item.is_request()) {
            let behind = items.iter().enumerate().skip(index + 1);
            let mut finals =
                behind.filter(|(_, other)| !other.is_out && other.number == item.number && other.method == item.method);
            let answer = finals.find_map(|(place, other)| {
                other.status().filter(|status| *status >= 200).map(|status| (place, status))
            });
            // Beside an INVITE, the engine tracks only one transaction: the last of several that overlap.
            let overlaps = answer.is_some_and(|(place, _)| {
                let between = items.get(index + 1..place).unwrap_or(&[]);
                item.method != MethodId::Invite && between.iter().any(|other| other.is_out && other.is_request())
            });
            let mut mark = || self.b.label();
            self.asked.push(OwnRequest {
                item: index,
                answer: answer.map(|(place, status)| (if overlaps { usize::MAX } else { place }, status)),
                send: mark(),
                challenged: mark(),
                expected: mark(),
                refused: mark(),
                surprised: mark(),
            });
        }
    }

    pub(super) fn asked_by(&self, item: usize) -> Option<OwnRequest> {
        self.asked.iter().find(|asked| asked.item == item).copied()
    }

    fn items(&mut self, from: usize) -> Result<(), ScriptError> {
        for index in from..self.end.items.len() {
            let mark = self.mark_at(index);
            self.b.place_label(mark);
            let Some(item) = self.item(index) else { break };
            match (item.is_out, item.kind) {
                (true, Kind::Request(MethodId::Ack)) => self.acknowledge(index, item),
                (true, Kind::Request(_)) => self.send_request(index, item),
                (true, _) => self.send_response(index, item),
                (false, Kind::Request(verb)) => self.await_request(index, item, verb),
                (false, _) => self.await_response(index, item),
            }
        }
        let mark = self.mark_at(self.end.items.len());
        self.b.place_label(mark);
        Ok(())
    }

    /// Returns the time from the previous event to `at`, at the speed of the run.
    pub(super) fn gap(&self, at: u64) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "a gap of less than 2^52 ns, 52 days, is exact")]
        let nanos = at.saturating_sub(self.since) as f64 / self.setting.speed;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is positive, and saturates")]
        let grains = (nanos / GRAIN_NANOS as f64).round() as u64;
        Duration::from_nanos(grains.saturating_mul(GRAIN_NANOS))
    }

    /// Waits until the time at which item `index` was sent.
    pub(super) fn wait_until(&mut self, index: usize, at: u64) {
        let gap = self.gap(at);
        if gap.is_zero() {
            return;
        }
        let next = self.b.label();
        let law = self.b.law(Law::constant(gap));
        let expects = self.concurrent_expects(index);
        self.b.wait_for(&expects, Some((law, next)));
        self.b.place_label(next);
    }

    /// Returns the messages that may come while the script waits for something else before item `index`: the answer
    /// to an open INVITE, and the end of the call. Other responses have no effect.
    pub(super) fn concurrent_expects(&mut self, index: usize) -> Vec<ExpectBuilder> {
        let mut expects = Vec::new();
        if let Some(asked) = self.open.and_then(|item| self.asked_by(item)) {
            self.invite_answers(asked, &mut expects);
        }
        for verb in [MethodId::Bye, MethodId::Cancel] {
            let behind = self.end.items.iter().enumerate().skip(index);
            let found = behind.filter(|(_, item)| !item.is_out).find(|(_, item)| item.kind == Kind::Request(verb));
            if let Some(place) = found.map(|(place, _)| place) {
                expects.push(self.request_at(place, verb));
            }
        }
        let any = Pattern::Response { low: 100, high: 699, method: None };
        expects.push(ExpectBuilder { what: any, takes: Extract::NOTHING, to: None, actions: Vec::new() });
        expects
    }

    /// Returns the pattern of the recorded request at `place`.
    fn request_at(&mut self, place: usize, verb: MethodId) -> ExpectBuilder {
        self.actions_of(place);
        let to = self.got.get(place).copied();
        let is_first = verb.takes_number() && self.item(place).is_some_and(|item| !item.is_in_dialog);
        let takes = if is_first { Extract::DIALOG } else { Extract::NOTHING };
        ExpectBuilder { what: Pattern::Request(verb), takes, to, actions: self.taken.clone() }
    }

    /// Stores in `taken` the actions that extract values from the request at `place`.
    fn actions_of(&mut self, place: usize) {
        self.taken.clear();
        if let Some(answer) = self.answers.get(place).copied().flatten() {
            let fragment = self.fragment(TemplatePart::Answer);
            self.taken.push(Action::Text(answer, fragment));
        }
        if place == 0 && !self.rewriting.is_caller {
            let line = TemplatePart::Last { field: LastField::Known(HeaderName::CallId), line: false };
            let fragment = self.fragment(line);
            self.taken.push(Action::Text(self.variables.call_id, fragment));
            self.taken.push(find("To", self.variables.party));
        }
    }

    fn fragment(&mut self, piece: TemplatePart) -> u16 {
        self.b.template(Template::of_parts(Vec::new(), vec![piece], 1, Kind::Garbage))
    }

    fn request_uri_of(item: &CallMessage) -> RequestUri {
        if item.is_in_dialog { RequestUri::Dialog } else { RequestUri::Recorded }
    }

    /// Sends a request.
    fn send_request(&mut self, index: usize, item: &CallMessage) {
        let (Some(head), Kind::Request(verb)) = (self.head(item), item.kind) else { return };
        self.wait_until(index, item.first_at);
        self.since = item.at;
        let needs_rseq = verb == MethodId::Prack;
        let behind = self.next_step_behind(index);
        if needs_rseq {
            // Without a reliable response there is nothing to acknowledge.
            let behind = self.mark_at(behind);
            self.b.when(Condition::Unset(self.variables.rseq), behind);
        }
        let template = self.rewriting.request(&head, self.variables, Self::request_uri_of(item));
        let template = self.b.template(template);
        if verb == MethodId::Cancel {
            self.b.send_template(template, true);
            return;
        }
        let Some(asked) = self.asked_by(index) else { return };
        self.b.place_label(asked.send).send_template(template, true);
        if verb == MethodId::Invite {
            self.open = Some(index);
        } else if asked.answer.is_none() {
            self.await_answer(asked, verb, 0);
        }
    }

    /// Returns the first item after `index` that is not an answer to it.
    fn next_step_behind(&self, index: usize) -> usize {
        let Some(item) = self.item(index) else { return index + 1 };
        let is_answer = |other: &CallMessage| {
            other.number == item.number && other.method == item.method && other.is_out != item.is_out
        };
        (index + 1..self.end.items.len())
            .find(|place| !self.item(*place).is_some_and(is_answer))
            .unwrap_or(self.end.items.len())
    }

    /// Sends the ACK to a 2xx. ACKs to failures belong to the transaction and are sent at once.
    fn acknowledge(&mut self, index: usize, item: &CallMessage) {
        let invite = self.asked.iter().find(|asked| {
            self.item(asked.item).is_some_and(|asked| asked.method == MethodId::Invite && asked.number == item.number)
        });
        let is_success = invite.is_some_and(|asked| matches!(asked.answer, Some((_, 200..=299))));
        let Some(head) = self.head(item).filter(|_| is_success) else { return };
        self.wait_until(index, item.at);
        self.since = item.at;
        let template = self.rewriting.request(&head, self.variables, RequestUri::Dialog);
        let template = self.b.template(template);
        self.b.send_template(template, false);
    }

    /// Sends a response.
    fn send_response(&mut self, index: usize, item: &CallMessage) {
        let request = self.end.items.iter().take(index).rposition(|other| {
            !other.is_out && other.number == item.number && other.kind == Kind::Request(item.method)
        });
        let answer = request.and_then(|request| self.answers.get(request).copied().flatten());
        let (Some(head), Some(answer)) = (self.head(item), answer) else { return };
        self.wait_until(index, item.at);
        self.since = item.at;
        let template = self.rewriting.response(&head, answer);
        let template = self.b.template(template);
        self.b.send_template(template, item.method == MethodId::Invite);
    }

    /// Waits for a request of the other end.
    fn await_request(&mut self, index: usize, item: &CallMessage, verb: MethodId) {
        let Some(got) = self.got.get(index).copied() else { return };
        let is_ack = verb == MethodId::Ack;
        if is_ack && !self.is_acknowledged_success(item) {
            // This ACK belongs to the transaction.
            self.b.place_label(got);
            return;
        }
        let missing = self.b.label();
        let patience = if self.rewriting.is_caller { PATIENCE.0 } else { PATIENCE.1 };
        let law = self.b.law(Law::constant(self.gap(item.at) + patience));
        let mut expects = vec![self.request_at(index, verb)];
        expects.extend(self.concurrent_expects(index + 1));
        self.b.wait_for(&expects, Some((law, missing)));
        self.b.place_label(missing);
        if !is_ack {
            self.b.act(&[Action::Compare { verb, recorded: 0 }]);
            let behind = if verb == MethodId::Bye { self.end.items.len() } else { self.next_step_behind(index) };
            let behind = self.mark_at(behind);
            self.b.jump(behind);
        }
        self.b.place_label(got);
        self.since = item.at;
    }

    /// Returns whether the ACK belongs to a 2xx that this end has sent.
    fn is_acknowledged_success(&self, ack: &CallMessage) -> bool {
        self.end.items.iter().any(|item| {
            item.is_out
                && item.method == MethodId::Invite
                && item.number == ack.number
                && matches!(item.kind, Kind::Response(200..=299))
        })
    }

    /// Waits for a response if something depends on it.
    fn await_response(&mut self, index: usize, item: &CallMessage) {
        let Some(status) = item.status() else { return };
        if status < 200 {
            return self.await_provisional(index, item, status);
        }
        let Some(asked) =
            self.asked.iter().find(|asked| asked.answer.is_some_and(|(place, _)| place == index)).copied()
        else {
            return;
        };
        if item.method == MethodId::Invite {
            self.await_invite(asked, index);
        } else {
            self.await_answer(asked, item.method, status);
        }
        self.since = item.at;
    }

    /// Waits for a provisional response if the next message was sent because of it.
    fn await_provisional(&mut self, index: usize, item: &CallMessage, status: u16) {
        let next = self.item(index + 1).filter(|next| next.is_out);
        let (Some(next), true, Some(_)) = (next, status > 100 && item.method == MethodId::Invite, self.open) else {
            return;
        };
        let (again, on) = (self.b.label(), self.b.label());
        let method = Some(MethodId::Invite);
        let mut awaited = ExpectBuilder {
            what: Pattern::Response { low: 101, high: 199, method },
            takes: if next.is_in_dialog { Extract::DIALOG } else { Extract::NOTHING },
            to: Some(on),
            actions: Vec::new(),
        };
        let is_reliable = next.kind == Kind::Request(MethodId::Prack);
        if is_reliable {
            awaited.actions = vec![find("RSeq", self.variables.rseq), find("CSeq", self.variables.cseq)];
        }
        let mut expects = vec![awaited];
        expects.extend(self.concurrent_expects(index + 1));
        self.b.place_label(again).wait_for(&expects, None);
        self.b.place_label(on);
        if is_reliable {
            self.b.when(Condition::Unset(self.variables.rseq), again);
        }
        self.since = item.at;
    }

    /// Waits for the final response to an INVITE.
    fn await_invite(&mut self, asked: OwnRequest, index: usize) {
        let expects = self.concurrent_expects(index + 1);
        self.b.wait_for(&expects, None);
        self.b.place_label(asked.expected);
        if !matches!(asked.answer, Some((_, 200..=299))) {
            self.failure_ack(asked);
        }
        self.open = None;
    }

    /// Adds the patterns of the responses to an INVITE and their labels.
    fn invite_answers(&mut self, asked: OwnRequest, expects: &mut Vec<ExpectBuilder>) {
        let method = Some(MethodId::Invite);
        let status = asked.answer.map_or(0, |(_, status)| status);
        let is_initial = self.item(asked.item).is_some_and(|item| !item.is_in_dialog);
        let line = TemplatePart::Last { field: LastField::Known(HeaderName::To), line: false };
        let failed = Action::Text(self.variables.failed, self.fragment(line));
        let compare = Action::Compare { verb: MethodId::Invite, recorded: status };
        let mut push = |low, high, takes, to, actions: &[&Action]| {
            let what = Pattern::Response { low, high, method };
            let actions = actions.iter().map(|action| (*action).clone()).collect();
            expects.push(ExpectBuilder { what, takes, to: Some(to), actions });
        };
        let is_success = (200..300).contains(&status);
        let (yes, no) = match () {
            () if is_success => (asked.expected, asked.refused),
            () if status == 0 => (asked.surprised, asked.refused),
            () => (asked.surprised, asked.expected),
        };
        push(200, 299, if is_initial { Extract::DIALOG } else { Extract::NOTHING }, yes, &[&compare]);
        for challenge in [401, 407] {
            if status != challenge {
                push(challenge, challenge, Extract::CHALLENGE, asked.challenged, &[&failed]);
            }
        }
        // If the recording ends before the answer, any refusal may have followed.
        if status == 0 && is_initial {
            push(300, 699, Extract::NOTHING, no, &[&failed]);
        } else {
            push(300, 699, Extract::NOTHING, no, &[&failed, &compare]);
        }
    }

    pub(super) fn failure_ack(&mut self, asked: OwnRequest) {
        let Some(item) = self.item(asked.item) else { return };
        let Some(head) = self.head(item) else { return };
        let template = self.rewriting.failure_ack(&head, self.variables, Self::request_uri_of(item));
        let template = self.b.template(template);
        self.b.send_template(template, false);
    }

    /// Waits for the final response to a request other than INVITE.
    fn await_answer(&mut self, asked: OwnRequest, verb: MethodId, status: u16) {
        let method = Some(verb);
        let compare = Action::Compare { verb, recorded: status };
        let is_first = self.item(asked.item).is_some_and(|item| !item.is_in_dialog);
        let is_dialog = is_first && matches!(verb, MethodId::Subscribe | MethodId::Refer);
        let awaited = |low, high, takes, to, actions| {
            let what = Pattern::Response { low, high, method };
            ExpectBuilder { what, takes, to, actions }
        };
        let takes = if is_dialog { Extract::DIALOG } else { Extract::NOTHING };
        let mut expects = vec![
            awaited(100, 199, Extract::NOTHING, None, Vec::new()),
            awaited(200, 299, takes, Some(asked.expected), vec![compare.clone()]),
        ];
        for challenge in [401, 407].into_iter().filter(|challenge| status != *challenge) {
            expects.push(awaited(challenge, challenge, Extract::CHALLENGE, Some(asked.send), Vec::new()));
        }
        // If the first request succeeded in the recording but fails in the run, the rest of the call cannot follow.
        let ends = is_first && asked.item == 0 && (200..300).contains(&status);
        let to = if ends { asked.refused } else { asked.expected };
        let compared = if is_first && status == 0 { Vec::new() } else { vec![compare] };
        expects.push(awaited(300, 699, Extract::NOTHING, Some(to), compared));
        let index = asked.answer.map_or(asked.item, |(place, _)| place);
        expects.extend(self.concurrent_expects(index.saturating_add(1)));
        self.b.wait_for(&expects, None);
        if ends {
            self.b.place_label(asked.refused).end(SessionResult::Refused(0));
        }
        self.b.place_label(asked.expected);
    }
}

/// Returns the action that copies the value of a header field into a variable.
fn find(name: &str, into: u16) -> Action {
    let (after, before) = (String::new(), String::new());
    Action::Find { place: Place::Header(name.to_owned()), after, before, into, must: false }
}
