//! Calls with deliberate faults, as a share of all calls.
//!
//! Each fault has a script of its own with the fault's name, so reports count its calls separately. A call counts as
//! successful if the fault had its required outcome: the generator's own errors are not failures of the server.
//!
//! | fault | what happens | required outcome |
//! |---|---|---|
//! | `lost-ack` | the first ACK to the 200 is not sent; half of the calls send it 600 ms later, the other half never | the 200 is retransmitted (RFC 3261 §13.3.1.4), the BYE is answered with 200 |
//! | `late-cancel` | a CANCEL is sent about when the 200 comes (§9.1) | the CANCEL is answered; either a 487 comes, or the 200 wins and is acknowledged and the BYE is answered |
//! | `no-answer` | it rings for `no-answer-ring`, then the caller cancels | the CANCEL is answered, and a 487 comes; or the server ends the call first, with 408 or 480 |
//! | `garbage` | bytes that are not SIP are sent before the INVITE | the call itself proceeds as usual |
//! | `no-bye` | both ends fall silent after the ACK | nothing |
//!
//! Garbage is not a call; it counts as messages sent. Over TCP a server may close the connection on which it came,
//! and so end the call. Use one connection per call there (`--connect dialog`).

use std::time::Duration;

use crate::engine::{Mix, WeightedScripts};
use crate::law::Law;
use crate::script::{Extract, Label, MethodId, Pattern, Script, ScriptBuilder, ScriptError, SessionResult, Template};

use super::calls::{self, ACK, ACK_TO_FAILURE, CANCEL, CallTimes, RINGING};
use super::{Parameter, Parameters, Workload, WorkloadError};

/// The fault parameters of call workloads.
pub(super) const FAULTS: Parameter =
    Parameter::of_paper("faults", "none", "shares of deliberately faulty calls: lost-ack=1%,late-cancel=1%,…");
/// Ring time of a call that is not answered.
pub(super) const NO_ANSWER_RING: Parameter =
    Parameter::of_paper("no-answer-ring", "3s", "time that a caller waits without an answer");

/// A deliberate fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The first ACK to the 200 is lost, or all ACKs are.
    LostAck,
    /// A CANCEL crosses the 200.
    LateCancel,
    /// The callee does not answer.
    NoAnswer,
    /// Bytes that are not SIP precede the call.
    Garbage,
    /// Neither end sends a BYE.
    NoBye,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 5] = [Self::LostAck, Self::LateCancel, Self::NoAnswer, Self::Garbage, Self::NoBye];

    /// Returns its name, which is also the name of its script.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LostAck => "lost-ack",
            Self::LateCancel => "late-cancel",
            Self::NoAnswer => "no-answer",
            Self::Garbage => "garbage",
            Self::NoBye => "no-bye",
        }
    }
}

/// Faults with their shares of all calls. A call has at most one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    shares: Vec<(Fault, f64)>,
}

impl Faults {
    /// Parses `lost-ack=1%,late-cancel=0.02`. `none` and the empty text mean no faults.
    ///
    /// # Errors
    /// Says what is wrong, and lists the faults.
    pub fn parse(text: &str) -> Result<Self, WorkloadError> {
        let mut shares: Vec<(Fault, f64)> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !matches!(*part, "" | "none")) {
            let wrong = |what: &str| {
                let names = Fault::ALL.map(Fault::name).join(", ");
                WorkloadError(format!("faults: '{part}' {what}; write lost-ack=1%,no-bye=0.005, of {names}"))
            };
            let (name, share) = part.split_once('=').ok_or_else(|| wrong("has no share"))?;
            let fault = Fault::ALL.into_iter().find(|fault| fault.name() == name.trim());
            let fault = fault.ok_or_else(|| wrong("is not a fault"))?;
            if shares.iter().any(|(other, _)| *other == fault) {
                return Err(wrong("is given twice"));
            }
            let share = read_share(share.trim()).ok_or_else(|| wrong("has no share from 0 to 100%"))?;
            shares.push((fault, share));
        }
        shares.retain(|(_, share)| *share > 0.0);
        if shares.iter().map(|(_, share)| share).sum::<f64>() > 1.0 {
            return Err(WorkloadError(
                "faults: the shares are more than 100% in total; a call has at most one fault".to_owned(),
            ));
        }
        Ok(Self { shares })
    }

    /// Returns each fault and its share of all calls.
    #[must_use]
    pub fn shares(&self) -> &[(Fault, f64)] {
        &self.shares
    }
}

impl Workload {
    /// Adds faults to shares of the calls. `times` are those of the calls, and `ring` is how long a caller waits for
    /// a callee that does not answer.
    ///
    /// # Errors
    /// Never.
    pub fn with_faults(mut self, faults: &Faults, times: &CallTimes, ring: &Law) -> Result<Self, WorkloadError> {
        let sum: f64 = faults.shares.iter().map(|(_, share)| share).sum();
        if faults.shares.iter().any(|(fault, _)| *fault == Fault::LateCancel) {
            self.callees.iter_mut().for_each(|callee| callee.ends_cancelled = true);
        }
        let mut weights = self.mix.weights();
        weights.iter_mut().for_each(|(_, part)| *part *= 1.0 - sum);
        for (fault, share) in &faults.shares {
            weights.push((number_of(&self.callers), *share));
            self.callers.push(caller_of(*fault, times, ring)?);
            if let Some(callee) = callee_of(*fault, times)? {
                self.answers.push((MethodId::Invite, number_of(&self.callees)));
                self.callees.push(callee);
            }
        }
        if let (Some(weighted), true) = (WeightedScripts::new(&weights), sum > 0.0) {
            self.mix = Mix::Weighted(weighted);
        }
        Ok(self)
    }
}

/// Returns the number of the next script.
fn number_of(scripts: &[Script]) -> u16 {
    u16::try_from(scripts.len()).unwrap_or(u16::MAX)
}

/// Adds the faults in `parameters` to a workload of calls.
///
/// # Errors
/// Says what is wrong with them.
pub(super) fn add(parameters: &Parameters, calls: Workload, times: &CallTimes) -> Result<Workload, WorkloadError> {
    let faults = Faults::parse(parameters.text(FAULTS.name)?)?;
    calls.with_faults(&faults, times, &parameters.law(NO_ANSWER_RING.name)?)
}

fn read_share(text: &str) -> Option<f64> {
    let share: f64 = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

/// Class of the callee's script ([`Script::class`]) that does not answer; 0 and 1 are other calls.
const NO_ANSWER_CLASS: u8 = 2;
const NO_BYE_CLASS: u8 = 3;

/// More than T1, so that the 200 is retransmitted before the ACK comes (RFC 3261 §13.3.1.4).
const ACK_DELAY: Duration = Duration::from_millis(600);

/// Share of lost ACKs that are never sent.
const NEVER_ACKED: f64 = 0.5;

/// Maximum ring time of a callee whose call is not cancelled.
const RINGS_AT_LAST: Duration = Duration::from_secs(600);

/// Invalid messages as servers get them from scanners and broken phones. Each ends like a message head, so that a
/// stream can continue after it.
const GARBAGE: &[&[u8]] = &[
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 is no SIP but TLS\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"INVITE sip:nobody@localhost SIP/2.0\r\n\r\n",
    b"INVITE sip:nobody@localhost SIP/7.0\r\nVia: SIP/7.0/UDP 192.0.2.1;branch=z9hG4bK1\r\nContent-Length: 0\r\n\r\n",
    b"OPTIONS\r\nCSeq: nonsense\r\n\r\n",
    b"REGISTER sip:localhost SIP/2.0\r\nno colon here\r\n: no name\r\n\r\n",
    b"SIP/2.0 999999 What\r\nContent-Length: 0\r\n\r\n",
    b"\xff\xfe\x00\x80\xc0\xaf\x00\r\n\r\n",
];

fn caller_of(fault: Fault, times: &CallTimes, ring: &Law) -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new(fault.name());
    match fault {
        Fault::LostAck => lost_ack(&mut script, times),
        Fault::LateCancel => late_cancel(&mut script, times),
        Fault::NoAnswer => no_answer(&mut script, ring),
        Fault::Garbage => garbage(&mut script, times),
        Fault::NoBye => no_bye(&mut script, times),
    }
    script.end(SessionResult::Carried);
    script.build()
}

fn callee_of(fault: Fault, times: &CallTimes) -> Result<Option<Script>, ScriptError> {
    match fault {
        Fault::NoAnswer => ringing_callee().map(Some),
        Fault::NoBye => silent_callee(times).map(Some),
        Fault::LostAck | Fault::LateCancel | Fault::Garbage => Ok(None),
    }
}

fn lost_ack(script: &mut ScriptBuilder, times: &CallTimes) {
    let never = script.label();
    calls::invite(script, &[]);
    script.pause(Law::constant(ACK_DELAY)).chance(NEVER_ACKED, never).send(ACK);
    calls::hold(script, times);
    script.place_label(never);
    calls::bye(script);
}

fn late_cancel(script: &mut ScriptBuilder, times: &CallTimes) {
    let (ringing, cancel, done, hang_up) = (script.label(), script.label(), script.label(), script.label());
    calls::invite(script, &[(Pattern::status(180), Extract::NOTHING, Some(ringing))]);
    // The 200 came first, or without a 180: it is too late for a CANCEL.
    script
        .place_label(hang_up)
        .send(CANCEL)
        .send(ACK)
        .wait(&[(CANCEL_PROVISIONAL, Extract::NOTHING, None), (CANCEL_ANSWERED, Extract::NOTHING, Some(done))]);
    script.place_label(done);
    let end = script.label();
    calls::bye(script);
    script.jump(end);
    script.place_label(ringing);
    if let Some(ring) = &times.ring {
        // The callee answers at about that time.
        let ring = script.law(ring.clone());
        script.wait_with(
            &[(Pattern::PROVISIONAL, Extract::NOTHING, None), (Pattern::SUCCESS, Extract::DIALOG, Some(hang_up))],
            Some((ring, cancel)),
        );
    }
    script.place_label(cancel);
    cancelled(script);
    script.place_label(end);
}

fn no_answer(script: &mut ScriptBuilder, ring: &Law) {
    let (ringing, cancel, given_up, end) = (script.label(), script.label(), script.label(), script.label());
    script.class(NO_ANSWER_CLASS);
    let ended = |mark| [408, 480].map(|status| (Pattern::status(status), Extract::NOTHING, Some(mark)));
    let ringing_or_ended = [&[(Pattern::status(180), Extract::NOTHING, Some(ringing))], &ended(given_up)[..]].concat();
    calls::invite(script, &ringing_or_ended);
    // A real callee may answer anyway.
    let answered = script.label();
    script.place_label(answered).send(ACK);
    calls::bye(script);
    script.jump(end);
    script.place_label(ringing);
    let ring = script.law(ring.clone());
    let mut awaited =
        vec![(Pattern::PROVISIONAL, Extract::NOTHING, None), (Pattern::SUCCESS, Extract::DIALOG, Some(answered))];
    awaited.extend(ended(given_up));
    script.wait_with(&awaited, Some((ring, cancel)));
    script.place_label(given_up).send(ACK_TO_FAILURE).jump(end);
    script.place_label(cancel);
    cancelled(script);
    script.place_label(end);
}

fn garbage(script: &mut ScriptBuilder, times: &CallTimes) {
    let sent = script.label();
    for (index, bytes) in GARBAGE.iter().enumerate() {
        let next = script.label();
        #[expect(clippy::cast_precision_loss, reason = "a small table")]
        let left = (GARBAGE.len() - index) as f64;
        // All are equally likely.
        script.chance(1.0 - 1.0 / left, next);
        let template = script.template(Template::garbage(bytes));
        script.send_template(template, false).jump(sent).place_label(next);
    }
    script.place_label(sent);
    calls::call(script, times);
}

fn no_bye(script: &mut ScriptBuilder, times: &CallTimes) {
    script.class(NO_BYE_CLASS);
    calls::invite(script, &[]);
    script.send(ACK);
    calls::hold(script, times);
}

const fn to_invite(low: u16, high: u16) -> Pattern {
    Pattern::Response { low, high, method: Some(MethodId::Invite) }
}

const CANCEL_PROVISIONAL: Pattern = Pattern::Response { low: 100, high: 199, method: Some(MethodId::Cancel) };
const CANCEL_ANSWERED: Pattern = Pattern::Response { low: 200, high: 699, method: Some(MethodId::Cancel) };

/// Adds a CANCEL of the INVITE. If its 200 comes anyway, the call is acknowledged and ended.
pub(super) fn cancelled(script: &mut ScriptBuilder) {
    let (confirmed, refused, too_late) = (script.label(), script.label(), script.label());
    let (acknowledge, refuse, hang_up, end) = (script.label(), script.label(), script.label(), script.label());
    let ended = |answered: Label, refused: Label| {
        vec![
            (Pattern::PROVISIONAL, Extract::NOTHING, None),
            (to_invite(200, 299), Extract::DIALOG, Some(answered)),
            (to_invite(487, 487), Extract::NOTHING, Some(refused)),
            (to_invite(408, 408), Extract::NOTHING, Some(refused)),
            (to_invite(480, 480), Extract::NOTHING, Some(refused)),
        ]
    };
    // The answer to the CANCEL may come before or after that to the INVITE.
    let mut awaited = ended(too_late, refused);
    awaited.push((CANCEL_ANSWERED, Extract::NOTHING, Some(confirmed)));
    script.send(CANCEL).wait(&awaited);
    let cancel_answered = |to| [CANCEL_PROVISIONAL, CANCEL_ANSWERED].into_iter().zip([None, Some(to)]);
    let awaiting = |to| cancel_answered(to).map(|(what, to)| (what, Extract::NOTHING, to)).collect::<Vec<_>>();
    script.place_label(too_late).send(ACK).wait(&awaiting(hang_up));
    script.place_label(refused).send(ACK_TO_FAILURE).wait(&awaiting(end));
    script.place_label(confirmed).wait(&ended(acknowledge, refuse));
    script.place_label(refuse).send(ACK_TO_FAILURE).jump(end);
    script.place_label(acknowledge).send(ACK);
    script.place_label(hang_up);
    calls::bye(script);
    script.place_label(end);
}

/// Returns the script of a callee that rings until it is cancelled.
fn ringing_callee() -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("callee: no-answer");
    let (invited, lost) = (script.label(), script.label());
    script.class(NO_ANSWER_CLASS).ends_cancelled();
    script.wait(&[(Pattern::Request(MethodId::Invite), Extract::NOTHING, Some(invited))]);
    script.place_label(invited).send(RINGING);
    let limit = script.law(Law::constant(RINGS_AT_LAST));
    script.wait_with(&[], Some((limit, lost)));
    script.place_label(lost).end(SessionResult::Lost);
    script.build()
}

/// Returns the script of a callee that answers, and ends after the ACK.
fn silent_callee(times: &CallTimes) -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("callee: no-bye");
    let acknowledged = script.label();
    script.class(NO_BYE_CLASS);
    calls::answer(&mut script, times);
    script.wait(&[(Pattern::Request(MethodId::Ack), Extract::NOTHING, Some(acknowledged))]);
    script.place_label(acknowledged).end(SessionResult::Carried);
    script.build()
}
