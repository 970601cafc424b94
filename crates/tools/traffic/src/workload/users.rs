//! The users of the multicore paper: they register every few minutes, think, and call one another.
//!
//! A user's next registration and its next call are all that is kept of it ([`Activity`]); a session exists only while a call or
//! a registration is going on. The caller thinks again when its call has ended; being called does not keep it from thinking.
//!
//! What the paper leaves open is a parameter, and declared: the log-normal's sigma, the law of ring times, and when a caller
//! who cancels has had enough. A voicemail box is the callee's end: it answers after the ring time, and only the talk is
//! shorter.

use std::time::Duration;

use super::{CallTimes, NamedWorkload, Parameter, Parameters, Workload, WorkloadError, callee, calls, faults};
use crate::engine::{Activity, CallRole, GapFrom, Mix, WeightedScripts};
use crate::law::Law;
use crate::script::{Extract, MethodId, Pattern, Script, ScriptBuilder, ScriptError, SessionResult};

/// Share of transactions that must succeed for users to count as served.
pub const CONFORMING: f64 = 0.9999;
/// The paper's measuring time.
const MEASURED: Duration = Duration::from_secs(2 * 3_600);
const WARM_UP: Duration = Duration::from_secs(600);

pub(super) const KNOWN: NamedWorkload = NamedWorkload {
    name: "users",
    about: "users who register every 10 minutes, think for an hour, and call each other: completed, voicemail, cancelled",
    paper: "SIP server performance on multicore systems (Wright et al.)",
    parameters: &[
        Parameter::of_paper("think", "exp(mean=1h)", "time between a user's calls, a distribution"),
        Parameter::of_paper("refresh", "10m", "time between a user's registrations, a distribution"),
        Parameter::of_paper("expires", "15m", "expiry requested in registrations; never compressed"),
        Parameter::of_paper("completed", "65", "weight of calls answered by the callee"),
        Parameter::of_paper("voicemail", "30", "weight of calls answered by voicemail"),
        Parameter::of_paper("cancelled", "5", "weight of calls that the caller cancels before the answer"),
        Parameter::ours(
            "hold",
            "lognormal(mean=300s,sigma=1)",
            "talk time of completed calls, a distribution; the paper gives no sigma",
        ),
        Parameter::of_paper("voicemail-hold", "exp(mean=30s)", "talk time to voicemail, a distribution"),
        Parameter::ours(
            "ring",
            "uniform(min=1s,max=15s)",
            "time from ringing to the answer, a distribution; random in the paper",
        ),
        Parameter::ours(
            "patience",
            "uniform(min=1s,max=15s)",
            "time from ringing to CANCEL, a distribution; not given in the paper",
        ),
    ],
    make: users,
    is_model: true,
};

const REGISTER: &str = "REGISTER sip:[domain] SIP/2.0
Via: SIP/2.0/[transport] [local];branch=[branch]
Max-Forwards: 70
From: <sip:[caller]@[domain]>;tag=[local_tag]
To: <sip:[caller]@[domain]>
Call-ID: [call_id]
CSeq: [cseq] REGISTER
Contact: <sip:[caller]@[local];transport=[transport]>
Expires: EXPIRES
[authentication]
Content-Length: 0
";

const INVITE: &str = "INVITE sip:[callee]@[domain] SIP/2.0
Via: SIP/2.0/[transport] [local];branch=[branch]
Max-Forwards: 70
From: <sip:[caller]@[domain]>;tag=[local_tag]
To: <sip:[callee]@[domain]>
Call-ID: [call_id]
CSeq: [cseq] INVITE
Contact: <sip:[caller]@[local];transport=[transport]>
[authentication]
Content-Type: application/sdp
Content-Length: [len]

v=0
o=[caller] 53655765 2353687637 IN IP4 [local_ip]
s=-
c=IN IP4 [local_ip]
t=0 0
m=audio 6000 RTP/AVP 0
a=rtpmap:0 PCMU/8000
";

const ACK: &str = "ACK [next_url] SIP/2.0
Via: SIP/2.0/[transport] [local];branch=[branch]
[routes]
Max-Forwards: 70
From: <sip:[caller]@[domain]>;tag=[local_tag]
To: [peer]
Call-ID: [call_id]
CSeq: [cseq] ACK
Content-Length: 0
";

const BYE: &str = "BYE [next_url] SIP/2.0
Via: SIP/2.0/[transport] [local];branch=[branch]
[routes]
Max-Forwards: 70
From: <sip:[caller]@[domain]>;tag=[local_tag]
To: [peer]
Call-ID: [call_id]
CSeq: [cseq] BYE
[authentication]
Content-Length: 0
";

/// ACK to a failure, with the branch and number of its INVITE.
const ACK_TO_FAILURE: &str = "ACK sip:[callee]@[domain] SIP/2.0
Via: SIP/2.0/[transport] [local];branch=[branch]
Max-Forwards: 70
From: <sip:[caller]@[domain]>;tag=[local_tag]
[last_To:]
Call-ID: [call_id]
CSeq: [cseq] ACK
Content-Length: 0
";

const RINGING: &str = "SIP/2.0 180 Ringing
[answer]
Contact: <sip:[local];transport=[transport]>
Content-Length: 0
";

/// Outcomes of calls, which are the classes of their scripts.
const COMPLETED: u8 = 0;
const VOICEMAIL: u8 = 1;
const CANCELLED: u8 = 2;

fn users(parameters: &Parameters) -> Result<Workload, WorkloadError> {
    let law = |name: &str| parameters.law(name);
    let weights = [
        (0, parameters.number("completed")?),
        (1, parameters.number("voicemail")?),
        (2, parameters.number("cancelled")?),
    ];
    let mix = WeightedScripts::new(&weights).map(Mix::Weighted);
    let mix =
        mix.ok_or_else(|| WorkloadError("of completed, voicemail and cancelled one must be above 0".to_owned()))?;
    let answer = |name: &str, class| -> Result<Script, WorkloadError> {
        // The callee only needs to know that there is a hold time.
        let script = callee(&CallTimes { ring: Some(law("ring")?), hold: Some(law("hold")?), reaction: None })?;
        Ok(Script { name: name.to_owned(), class, ..script })
    };
    let refresh = law("refresh")?;
    let expires = parameters.time("expires")?;
    let real_refresh = refresh.mean().unwrap_or(0.0);
    if expires.as_secs() == 0 || real_refresh >= expires.as_secs_f64() {
        return Err(WorkloadError(format!(
            "registrations with expiry {expires:?} expire before their refresh after {refresh}; raise expires"
        )));
    }
    Ok(Workload {
        callers: vec![
            calling("completed", COMPLETED, law("hold")?)?,
            calling("voicemail", VOICEMAIL, law("voicemail-hold")?)?,
            cancelling(law("patience")?)?,
        ],
        mix: mix.clone(),
        callees: vec![
            answer("callee", COMPLETED)?,
            answer("voicemail box", VOICEMAIL)?,
            cancelled()?,
            registering(expires.as_secs())?,
        ],
        answers: vec![(MethodId::Invite, 0), (MethodId::Invite, 1), (MethodId::Invite, 2)],
        registering: Some(3),
        activities: vec![
            Activity { who: CallRole::Caller, mix, gap: law("think")?, gap_from: GapFrom::End },
            Activity { who: CallRole::Callee, mix: Mix::One(3), gap: refresh, gap_from: GapFrom::Begin },
        ],
        time: Some(MEASURED),
        warm_up: WARM_UP,
        declared: declared(parameters, expires),
        ..Workload::empty()
    })
}

/// Returns the assumptions that a report declares beside the parameters.
fn declared(parameters: &Parameters, expires: Duration) -> Vec<(String, String)> {
    let speed = parameters.speed();
    let mut list = vec![
        ("think from", "the end of the user's last call; being called does not interrupt it"),
        ("voicemail", "the callee's end answers after the ring time"),
        ("credentials", "sent only after a challenge: each REGISTER, INVITE and BYE is challenged if the server does so"),
        ("transactions", "requests except ACK with a final response or timeout; one succeeds if the response is expected: a challenge, 487 after CANCEL, 2xx"),
    ]
    .into_iter()
    .map(|(name, text)| (name.to_owned(), text.to_owned()))
    .collect::<Vec<_>>();
    if (speed - 1.0).abs() > f64::EPSILON {
        list.push((
            "speed".to_owned(),
            format!(
                "{speed}: think, refresh, ring, patience and hold times, warm-up and duration are divided by it; T1 and the \
                 other timers of SIP are not, nor is Expires ({} s)",
                expires.as_secs()
            ),
        ));
    }
    list
}

/// Returns the script of a registration or its refresh.
pub(super) fn registering(expires_secs: u64) -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("register");
    let (again, done) = (script.label(), script.label());
    script.place_label(again).send(&REGISTER.replace("EXPIRES", &expires_secs.to_string())).wait(&[
        (Pattern::PROVISIONAL, Extract::NOTHING, None),
        (Pattern::SUCCESS, Extract::NOTHING, Some(done)),
        (Pattern::status(401), Extract::CHALLENGE, Some(again)),
        (Pattern::status(407), Extract::CHALLENGE, Some(again)),
    ]);
    script.place_label(done).end(SessionResult::Carried);
    script.build()
}

/// Returns the script of a caller who talks and hangs up. As in the paper, credentials are sent only after a
/// challenge, for the BYE as well.
fn calling(name: &str, class: u8, hold: Law) -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new(name);
    script.class(class);
    let (again, answered, challenged, bye, done) =
        (script.label(), script.label(), script.label(), script.label(), script.label());
    script.place_label(again).send(INVITE).wait(&[
        (Pattern::PROVISIONAL, Extract::NOTHING, None),
        (Pattern::SUCCESS, Extract::DIALOG, Some(answered)),
        (Pattern::status(401), Extract::CHALLENGE, Some(challenged)),
        (Pattern::status(407), Extract::CHALLENGE, Some(challenged)),
    ]);
    script.place_label(challenged).send(ACK_TO_FAILURE).jump(again);
    let ended = [
        (Pattern::PROVISIONAL, Extract::NOTHING, None),
        (Pattern::SUCCESS, Extract::NOTHING, Some(done)),
        (Pattern::status(401), Extract::CHALLENGE, Some(bye)),
        (Pattern::status(407), Extract::CHALLENGE, Some(bye)),
    ];
    script.place_label(answered).send(ACK).pause(hold).send(&BYE.replace("[authentication]\n", "")).wait(&ended);
    script.place_label(bye).send(BYE).wait(&ended);
    script.place_label(done).end(SessionResult::Carried);
    script.build()
}

/// Returns the script of a caller who hangs up during ringing.
fn cancelling(patience: Law) -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("cancelled");
    script.class(CANCELLED);
    let (again, challenged, ringing, enough) = (script.label(), script.label(), script.label(), script.label());
    let (answered, done) = (script.label(), script.label());
    script.place_label(again).send(INVITE).wait(&[
        (Pattern::status(100), Extract::NOTHING, None),
        (Pattern::PROVISIONAL, Extract::NOTHING, Some(ringing)),
        (Pattern::SUCCESS, Extract::DIALOG, Some(answered)),
        (Pattern::status(401), Extract::CHALLENGE, Some(challenged)),
        (Pattern::status(407), Extract::CHALLENGE, Some(challenged)),
    ]);
    script.place_label(challenged).send(ACK_TO_FAILURE).jump(again);
    let patience = script.law(patience);
    script.place_label(ringing).wait_with(
        &[(Pattern::PROVISIONAL, Extract::NOTHING, None), (Pattern::SUCCESS, Extract::DIALOG, Some(answered))],
        Some((patience, enough)),
    );
    script.place_label(enough);
    faults::cancelled(&mut script);
    script.jump(done);
    // Only a callee outside this process can answer before the CANCEL; such a call is ended at once.
    script.place_label(answered).send(ACK);
    calls::bye(&mut script);
    script.place_label(done).end(SessionResult::Carried);
    script.build()
}

/// Returns the script of a callee that rings until its caller hangs up. The engine answers the CANCEL, and the INVITE
/// with 487.
fn cancelled() -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("cancelled callee");
    script.class(CANCELLED).ends_cancelled();
    let invited = script.label();
    script.wait(&[(Pattern::Request(MethodId::Invite), Extract::NOTHING, Some(invited))]);
    script.place_label(invited).send(RINGING).wait(&[]);
    script.build()
}
