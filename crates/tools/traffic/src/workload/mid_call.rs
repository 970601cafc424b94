//! Calls with requests between the ACK and the BYE, from either side.
//!
//! | request | what is sent |
//! |---|---|
//! | `hold` | a re-INVITE that offers `a=sendonly`, and after the next interval one that offers `a=sendrecv` (RFC 3261 §14, RFC 3264 §8.4) |
//! | `update` | an UPDATE with an offer (RFC 3311 §5.1) |
//! | `info` | an INFO with a DTMF digit (RFC 6086, as a legacy usage) |
//! | `refresh` | a session-timer refresh: an UPDATE with Session-Expires and no offer (RFC 4028 §7.4) |
//!
//! One side of each call sends all requests, in order, and hangs up at the end; the other answers. So requests never
//! cross. A configurable share of calls has the callee as the sender. The call's class tells the callee
//! ([`Script::class`](crate::script::Script::class)), so the callee must be `strowger load` for this.

use std::time::Duration;

use crate::engine::{Mix, WeightedScripts};
use crate::law::Law;
use crate::script::{
    Action, Condition, Extract, Label, MethodId, Operand, Pattern, Place, Script, ScriptBuilder, ScriptError,
    SessionResult, Variable,
};

use super::calls::{self, ACK, ANSWERED, CallTimes, OK, RINGING, registering};
use super::{Parameter, Parameters, Workload, WorkloadError, faults};

/// The parameters of the workload.
pub(super) const MID_CALL: &[Parameter] = &[
    Parameter::ours("requests", "hold+update+info+refresh", "requests in order, from hold, update, info, refresh"),
    Parameter::ours("every", "exp(mean=1s)", "time before each of them, a distribution"),
    Parameter::ours("rounds", "1", "number of times that all are sent"),
    Parameter::ours("from-callee", "50%", "share of calls in which the callee sends them and hangs up"),
    Parameter::ours("ring", "none", "ring time, a distribution"),
    Parameter::ours("hold", "none", "talk time after the last of them, a distribution"),
    faults::FAULTS,
    faults::NO_ANSWER_RING,
];

/// Maximum number of requests of a call, so that a typing error does not exhaust the memory.
const MAX_REQUESTS: usize = 1_000;

/// The class of calls in which the callee sends the requests.
const CALLEE_CLASS: u8 = 1;

/// Maximum wait of the answering side for the next request. After that the call is lost.
const SILENCE: Duration = Duration::from_secs(600);

/// Session interval, in seconds (RFC 4028 §2 recommends half an hour).
const SESSION_SECONDS: u32 = 1_800;

/// Version of the first session description; each later one is one higher (RFC 3264 §8).
const SDP_VERSION: u64 = 2_353_687_637;

/// A request inside a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MidCallRequest {
    /// Two re-INVITEs: hold, and resume.
    Hold,
    /// UPDATE with an offer.
    Update,
    /// INFO.
    Info,
    /// A session-timer refresh with UPDATE.
    Refresh,
}

/// Requests inside calls.
#[derive(Clone, Debug)]
pub struct MidCall {
    /// The requests, in order.
    pub requests: Vec<MidCallRequest>,
    /// The time before each.
    pub every: Law,
    /// The share (0 to 1) of calls in which the callee sends the requests and hangs up.
    pub from_callee: f64,
}

impl MidCallRequest {
    fn parse(text: &str) -> Option<Self> {
        Some(match text.trim() {
            "hold" => Self::Hold,
            "update" => Self::Update,
            "info" => Self::Info,
            "refresh" => Self::Refresh,
            _ => return None,
        })
    }
}

/// Returns the workload `mid-call`.
pub(super) fn mid_call(parameters: &Parameters) -> Result<Workload, WorkloadError> {
    let names = parameters.text("requests")?.split('+').filter(|name| !name.trim().is_empty());
    let requests: Option<Vec<_>> = names.map(MidCallRequest::parse).collect();
    let requests = requests.ok_or_else(|| {
        WorkloadError("requests: write some of hold, update, info and refresh, such as hold+info".to_owned())
    })?;
    let rounds = parameters.number("rounds")?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and it saturates")]
    let rounds = rounds as usize;
    if rounds.saturating_mul(requests.len()) > MAX_REQUESTS {
        return Err(WorkloadError(format!("rounds: a call has at most {MAX_REQUESTS} requests; lower it")));
    }
    let mid = MidCall {
        requests: requests.repeat(rounds),
        every: parameters.law("every")?,
        from_callee: parameters.share("from-callee")?,
    };
    let times =
        CallTimes { ring: parameters.optional_law("ring")?, hold: parameters.optional_law("hold")?, reaction: None };
    faults::add(parameters, Workload::mid_call(&times, &mid)?, &times)
}

impl Workload {
    /// Returns the workload of calls with requests inside.
    ///
    /// # Errors
    /// If there are more requests than a script may have.
    pub fn mid_call(times: &CallTimes, mid: &MidCall) -> Result<Self, WorkloadError> {
        let weights = [(0, 1.0 - mid.from_callee), (1, mid.from_callee)];
        let mix = match WeightedScripts::new(&weights) {
            Some(weighted) if mid.from_callee > 0.0 => Mix::Weighted(weighted),
            _ => Mix::One(0),
        };
        Ok(Self {
            callers: vec![sending_caller(times, mid)?, answering_caller()?],
            mix,
            callees: vec![answering_callee(times)?, sending_callee(times, mid)?, registering()?],
            answers: vec![(MethodId::Invite, 0), (MethodId::Invite, 1)],
            registering: Some(2),
            ..Self::empty()
        })
    }
}

fn sending_caller(times: &CallTimes, mid: &MidCall) -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("caller sends");
    calls::invite(&mut script, &[]);
    script.send(ACK);
    let party = Party { from: "<sip:[caller]@[domain]>;tag=[local_tag]", call_id: "[call_id]", user: "[caller]@" };
    party.requests(&mut script, mid);
    calls::hold(&mut script, times);
    calls::bye(&mut script);
    script.end(SessionResult::Carried);
    script.build()
}

fn answering_caller() -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("callee sends");
    script.class(CALLEE_CLASS);
    let seen = AnswerState::new(&mut script);
    script.act(&[seen.begin()]);
    calls::invite(&mut script, &[]);
    script.send(ACK);
    seen.answer_until_bye(&mut script);
    script.build()
}

fn answering_callee(times: &CallTimes) -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("callee");
    let seen = AnswerState::new(&mut script);
    calls::answer(&mut script, times);
    script.act(&[seen.begin()]);
    seen.answer_until_bye(&mut script);
    script.build()
}

fn sending_callee(times: &CallTimes, mid: &MidCall) -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("callee sends");
    let (acknowledged, ended, invited) = (script.label(), script.label(), script.label());
    script.class(CALLEE_CLASS);
    let (own, call_id) = (script.variable(), script.variable());
    let find = |name: &str, after: &str, before: &str, into| Action::Find {
        place: Place::Header(name.to_owned()),
        after: after.to_owned(),
        before: before.to_owned(),
        into,
        must: true,
    };
    let invite = (Pattern::Request(MethodId::Invite), Extract::DIALOG, Some(invited));
    script.wait(&[invite]).on_last_expect(&[find("To", "<", ">", own), find("Call-ID", "", "", call_id)]);
    script.place_label(invited).send(RINGING);
    if let Some(ring) = &times.ring {
        script.pause(ring.clone());
    }
    script.send(ANSWERED).wait(&[
        (Pattern::Request(MethodId::Ack), Extract::NOTHING, Some(acknowledged)),
        (Pattern::Request(MethodId::Bye), Extract::NOTHING, Some(ended)),
    ]);
    script.place_label(acknowledged);
    let from = format!("<[${own}]>;tag=[local_tag]");
    let party = Party { from: &from, call_id: &format!("[${call_id}]"), user: "" };
    party.requests(&mut script, mid);
    calls::hold(&mut script, times);
    calls::transaction(&mut script, &party.request("BYE", "", None));
    script.end(SessionResult::Carried);
    script.place_label(ended).send(OK).end(SessionResult::Carried);
    script.build()
}

/// The side that sends in-dialog requests, as text for its messages.
struct Party<'a> {
    from: &'a str,
    call_id: &'a str,
    /// The user part of the contact, with the `@`.
    user: &'a str,
}

impl Party<'_> {
    /// Adds all requests, each after its time.
    fn requests(&self, script: &mut ScriptBuilder, mid: &MidCall) {
        let mut version = SDP_VERSION;
        let mut offer = |direction| {
            version += 1;
            sdp(&version.to_string(), direction)
        };
        for request in &mid.requests {
            script.pause(mid.every.clone());
            match request {
                MidCallRequest::Hold => {
                    self.reinvite(script, &offer("sendonly"));
                    script.pause(mid.every.clone());
                    self.reinvite(script, &offer("sendrecv"));
                }
                MidCallRequest::Update => {
                    let body = offer("sendrecv");
                    calls::transaction(script, &self.request("UPDATE", "", Some(("application/sdp", &body))));
                }
                MidCallRequest::Info => {
                    let body = "Signal=5\nDuration=160\n";
                    calls::transaction(script, &self.request("INFO", "", Some(("application/dtmf-relay", body))));
                }
                MidCallRequest::Refresh => {
                    //= rfc4028#7.4
                    // The sender of the refresh is the refresher.
                    let more = format!("Supported: timer\nSession-Expires: {SESSION_SECONDS};refresher=uac\n");
                    calls::transaction(script, &self.request("UPDATE", &more, None));
                }
            }
        }
    }

    /// Adds a re-INVITE and its ACK, with answers to challenges.
    fn reinvite(&self, script: &mut ScriptBuilder, offer: &str) {
        let (again, answered, challenged) = (script.label(), script.label(), script.label());
        script.place_label(again).send(&self.request("INVITE", "", Some(("application/sdp", offer)))).wait(&[
            (Pattern::PROVISIONAL, Extract::NOTHING, None),
            (Pattern::SUCCESS, Extract::NOTHING, Some(answered)),
            (Pattern::status(401), Extract::CHALLENGE, Some(challenged)),
            (Pattern::status(407), Extract::CHALLENGE, Some(challenged)),
        ]);
        script.place_label(challenged).send(&self.request("ACK", "", None)).jump(again);
        script.place_label(answered).send(&self.request("ACK", "", None));
    }

    fn request(&self, method: &str, more: &str, body: Option<(&str, &str)>) -> String {
        let Self { from, call_id, user } = self;
        let contact = match method {
            "INVITE" | "UPDATE" => format!("Contact: <sip:{user}[local];transport=[transport]>\n"),
            _ => String::new(),
        };
        let credentials = if method == "ACK" { "" } else { "[authentication]\n" };
        let (kind, body) = body.map_or((String::new(), ""), |(kind, body)| (format!("Content-Type: {kind}\n"), body));
        format!(
            "{method} [next_url] SIP/2.0\nVia: SIP/2.0/[transport] [local];branch=[branch]\n[routes]\nMax-Forwards: 70\n\
             From: {from}\nTo: [peer]\nCall-ID: {call_id}\nCSeq: [cseq] {method}\n{contact}{more}{credentials}{kind}\
             Content-Length: [len]\n\n{body}"
        )
    }
}

fn sdp(version: &str, direction: &str) -> String {
    format!(
        "v=0\no=load 53655765 {version} IN IP4 [local_ip]\ns=-\nc=IN IP4 [local_ip]\nt=0 0\nm=audio 6000 RTP/AVP 0\n\
         a=rtpmap:0 PCMU/8000\na={direction}\n"
    )
}

/// Variables of the answering side.
#[derive(Clone, Copy)]
struct AnswerState {
    /// The version of its session description.
    version: Variable,
    /// The text after `a=send` in the last offer.
    direction: Variable,
    /// Session-Expires of the last UPDATE.
    session: Variable,
}

impl AnswerState {
    fn new(script: &mut ScriptBuilder) -> Self {
        Self { version: script.variable(), direction: script.variable(), session: script.variable() }
    }

    fn begin(self) -> Action {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        Action::Assign(self.version, Operand::Number(SDP_VERSION as f64))
    }

    /// Answers requests until the BYE, and ends the session.
    fn answer_until_bye(self, script: &mut ScriptBuilder) {
        let (idle, ended, lost) = (script.label(), script.label(), script.label());
        let (invited, updated, informed) = (script.label(), script.label(), script.label());
        let silence = script.law(Law::constant(SILENCE));
        script.place_label(idle).wait_with(
            &[
                // The 200 is retransmitted until the ACK comes, whatever else comes before.
                (Pattern::Request(MethodId::Ack), Extract::NOTHING, None),
                (Pattern::Request(MethodId::Invite), Extract::NOTHING, Some(invited)),
                (Pattern::Request(MethodId::Update), Extract::NOTHING, Some(updated)),
                (Pattern::Request(MethodId::Info), Extract::NOTHING, Some(informed)),
                (Pattern::Request(MethodId::Bye), Extract::NOTHING, Some(ended)),
            ],
            Some((silence, lost)),
        );
        script.place_label(lost).end(SessionResult::Lost);
        script.place_label(informed).send(OK).jump(idle);
        self.answer_update(script, updated, idle);
        self.answer_invite(script, invited, idle);
        script.place_label(ended).send(OK).end(SessionResult::Carried);
    }

    fn answer_update(self, script: &mut ScriptBuilder, updated: Label, idle: Label) {
        let refreshed = script.label();
        let find = Action::Find {
            place: Place::Header("Session-Expires".to_owned()),
            after: String::new(),
            before: String::new(),
            into: self.session,
            must: false,
        };
        script.place_label(updated).act(&[find]).when(Condition::Set(self.session), refreshed);
        script.act(&[self.next_version()]).send(&self.answer("sendrecv")).jump(idle);
        //= rfc4028#9
        // The answer gives the interval and the refresher, with Require: timer because that is the sender of the
        // request.
        let more = format!("Require: timer\nSession-Expires: [${}]\n", self.session);
        script.place_label(refreshed).send(&format!(
            "SIP/2.0 200 OK\n[answer]\nContact: <sip:[local];transport=[transport]>\n{more}Content-Length: 0\n"
        ));
        script.jump(idle);
    }

    fn answer_invite(self, script: &mut ScriptBuilder, invited: Label, idle: Label) {
        let (held, answered) = (script.label(), script.label());
        let find = Action::Find {
            place: Place::Body,
            after: "a=send".to_owned(),
            before: String::new(),
            into: self.direction,
            must: false,
        };
        script.place_label(invited).act(&[find, self.next_version()]);
        script.when(Condition::Is(self.direction, "only".to_owned()), held);
        script.send(&self.answer("sendrecv")).jump(answered);
        //= rfc3264#6.1
        // The answer to `sendonly` is `recvonly`.
        script.place_label(held).send(&self.answer("recvonly"));
        script.place_label(answered).jump(idle);
    }

    const fn next_version(self) -> Action {
        Action::Add(self.version, Operand::Number(1.0))
    }

    fn answer(self, direction: &str) -> String {
        let body = sdp(&format!("[${}]", self.version), direction);
        format!(
            "SIP/2.0 200 OK\n[answer]\nContact: <sip:[local];transport=[transport]>\nContent-Type: application/sdp\n\
             Content-Length: [len]\n\n{body}"
        )
    }
}
