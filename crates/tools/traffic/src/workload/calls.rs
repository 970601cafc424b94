//! Scripts of answered calls, and of the registrations before them.

use std::time::Duration;

use crate::law::Law;
use crate::script::{Extract, Label, MethodId, Pattern, Script, ScriptBuilder, ScriptError, SessionResult};

/// Pauses of a call; `None` for no pause.
#[derive(Clone, Debug, Default)]
pub struct CallTimes {
    /// Between 180 and 200.
    pub ring: Option<Law>,
    /// Between ACK and BYE.
    pub hold: Option<Law>,
    /// Before the 180, the ACK and the 200 to the BYE.
    pub reaction: Option<Law>,
}

/// The callee's address of record, as messages name it.
const CALLEE: &str = "sip:[callee]@[domain]";

/// An expected message: its pattern, what is stored of it, and the label to go to.
pub(super) type Expected = (Pattern, Extract, Option<Label>);

/// 64·T1, and 1 s for the transmission.
pub(super) const BYE_AT_LAST: Duration = Duration::from_secs(33);

pub(super) const INVITE: &str = "INVITE sip:[callee]@[domain] SIP/2.0
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

pub(super) const ACK_TO_FAILURE: &str = "ACK sip:[callee]@[domain] SIP/2.0
Via: SIP/2.0/[transport] [local];branch=[branch]
Max-Forwards: 70
From: <sip:[caller]@[domain]>;tag=[local_tag]
[last_To:]
Call-ID: [call_id]
CSeq: [cseq] ACK
Content-Length: 0
";

pub(super) const ACK: &str = "ACK [next_url] SIP/2.0
Via: SIP/2.0/[transport] [local];branch=[branch]
[routes]
Max-Forwards: 70
From: <sip:[caller]@[domain]>;tag=[local_tag]
To: [peer]
Call-ID: [call_id]
CSeq: [cseq] ACK
Content-Length: 0
";

pub(super) const BYE: &str = "BYE [next_url] SIP/2.0
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

const REGISTER: &str = "REGISTER sip:[domain] SIP/2.0
Via: SIP/2.0/[transport] [local];branch=[branch]
Max-Forwards: 70
From: <sip:[caller]@[domain]>;tag=[local_tag]
To: <sip:[caller]@[domain]>
Call-ID: [call_id]
CSeq: [cseq] REGISTER
Contact: <sip:[caller]@[local];transport=[transport]>
Expires: 3600
[authentication]
Content-Length: 0
";

const OPTIONS: &str = "OPTIONS sip:[domain] SIP/2.0
Via: SIP/2.0/[transport] [local];branch=[branch]
Max-Forwards: 70
From: <sip:[caller]@[domain]>;tag=[local_tag]
To: <sip:[domain]>
Call-ID: [call_id]
CSeq: [cseq] OPTIONS
Contact: <sip:[caller]@[local];transport=[transport]>
[authentication]
Content-Length: 0
";

pub(super) const RINGING: &str = "SIP/2.0 180 Ringing
[answer]
Contact: <sip:[local];transport=[transport]>
Content-Length: 0
";

pub(super) const ANSWERED: &str = "SIP/2.0 200 OK
[answer]
Contact: <sip:[local];transport=[transport]>
Content-Type: application/sdp
Content-Length: [len]

v=0
o=callee 53655765 2353687637 IN IP4 [local_ip]
s=-
c=IN IP4 [local_ip]
t=0 0
m=audio 6000 RTP/AVP 0
a=rtpmap:0 PCMU/8000
";

pub(super) const OK: &str = "SIP/2.0 200 OK
[answer]
Content-Length: 0
";

pub(super) const CANCEL: &str = "CANCEL sip:[callee]@[domain] SIP/2.0
Via: SIP/2.0/[transport] [local];branch=[branch]
Max-Forwards: 70
From: <sip:[caller]@[domain]>;tag=[local_tag]
To: <sip:[callee]@[domain]>
Call-ID: [call_id]
CSeq: [cseq] CANCEL
Content-Length: 0
";

/// Returns the caller's script: INVITE, ACK, BYE, with answers to challenges.
///
/// # Errors
/// Never.
pub fn caller(times: &CallTimes) -> Result<Script, ScriptError> {
    caller_to(times, CALLEE)
}

/// Does the same as [`caller`], with another URI than the callee's address of record.
pub(super) fn caller_to(times: &CallTimes, uri: &str) -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("caller");
    let (again, answered, challenged) = (script.label(), script.label(), script.label());
    let to = |text: &str| text.replace(CALLEE, uri);
    script.place_label(again).send(&to(INVITE)).wait(&answers((answered, challenged), &[]));
    script.place_label(challenged).send(&to(ACK_TO_FAILURE)).jump(again);
    script.place_label(answered);
    pause(&mut script, times.reaction.as_ref());
    script.send(ACK);
    hold(&mut script, times);
    bye(&mut script);
    script.end(SessionResult::Carried);
    script.build()
}

/// Adds a whole call, up to the answer to its BYE.
pub(super) fn call(script: &mut ScriptBuilder, times: &CallTimes) {
    invite(script, &[]);
    script.send(ACK);
    hold(script, times);
    bye(script);
}

/// Adds an INVITE, up to its 2xx, with answers to challenges. `others` are further messages to expect.
pub(super) fn invite(script: &mut ScriptBuilder, others: &[Expected]) {
    let (again, answered, challenged) = (script.label(), script.label(), script.label());
    script.place_label(again).send(INVITE).wait(&answers((answered, challenged), others));
    script.place_label(challenged).send(ACK_TO_FAILURE).jump(again);
    script.place_label(answered);
}

/// Returns the expected responses to an INVITE, and `others`.
fn answers((answered, challenged): (Label, Label), others: &[Expected]) -> Vec<Expected> {
    let mut all = others.to_vec();
    all.extend_from_slice(&[
        (Pattern::PROVISIONAL, Extract::NOTHING, None),
        (Pattern::SUCCESS, Extract::DIALOG, Some(answered)),
        (Pattern::status(401), Extract::CHALLENGE, Some(challenged)),
        (Pattern::status(407), Extract::CHALLENGE, Some(challenged)),
    ]);
    all
}

/// Adds the talk time, if there is one.
pub(super) fn hold(script: &mut ScriptBuilder, times: &CallTimes) {
    pause(script, times.hold.as_ref());
}

fn pause(script: &mut ScriptBuilder, law: Option<&Law>) {
    if let Some(law) = law {
        script.pause(law.clone());
    }
}

/// Adds the BYE, up to its answer.
pub(super) fn bye(script: &mut ScriptBuilder) {
    transaction(script, BYE);
}

/// Adds a request other than INVITE, up to its 2xx, with answers to challenges.
pub(super) fn transaction(script: &mut ScriptBuilder, request: &str) {
    let (again, done) = (script.label(), script.label());
    script.place_label(again).send(request).wait(&[
        (Pattern::PROVISIONAL, Extract::NOTHING, None),
        (Pattern::SUCCESS, Extract::NOTHING, Some(done)),
        (Pattern::status(401), Extract::CHALLENGE, Some(again)),
        (Pattern::status(407), Extract::CHALLENGE, Some(again)),
    ]);
    script.place_label(done);
}

/// Returns the callee's script: 180, 200, and the 200 to the BYE.
///
/// # Errors
/// Never.
pub fn callee(times: &CallTimes) -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("callee");
    let (acknowledged, ended, lost) = (script.label(), script.label(), script.label());
    answer(&mut script, times);
    script.wait(&[
        (Pattern::Request(MethodId::Ack), Extract::NOTHING, Some(acknowledged)),
        // An ACK may be lost or late.
        (Pattern::Request(MethodId::Bye), Extract::NOTHING, Some(ended)),
    ]);
    let bye = [(Pattern::Request(MethodId::Bye), Extract::NOTHING, Some(ended))];
    script.place_label(acknowledged);
    match times.hold {
        Some(_) => script.wait(&bye),
        None => {
            // Without a talk time, the sender of a BYE that has not come by this time has given it up.
            let limit = script.law(Law::constant(BYE_AT_LAST));
            script.wait_with(&bye, Some((limit, lost)))
        }
    };
    script.place_label(lost).end(SessionResult::Lost);
    script.place_label(ended);
    pause(&mut script, times.reaction.as_ref());
    script.send(OK).end(SessionResult::Carried);
    script.build()
}

/// Adds a 180, and a 200 after the ring time.
pub(super) fn answer(script: &mut ScriptBuilder, times: &CallTimes) {
    let invited = script.label();
    script.wait(&[(Pattern::Request(MethodId::Invite), Extract::NOTHING, Some(invited))]);
    script.place_label(invited);
    pause(script, times.reaction.as_ref());
    script.send(RINGING);
    pause(script, times.ring.as_ref());
    script.send(ANSWERED);
}

/// Returns the script of one OPTIONS to the server itself.
pub(super) fn asking() -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("options");
    transaction(&mut script, OPTIONS);
    script.end(SessionResult::Carried);
    script.build()
}

/// Returns the script of one registration of the caller.
///
/// # Errors
/// Never.
pub fn registering() -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("register");
    transaction(&mut script, REGISTER);
    script.end(SessionResult::Carried);
    script.build()
}

/// Returns the script that removes the caller's registration, so that the server does not ring users that are gone
/// (RFC 3261 §10.2.2).
///
/// # Errors
/// Never.
pub fn unregistering() -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("unregister");
    transaction(&mut script, &REGISTER.replace("Expires: 3600", "Expires: 0"));
    script.end(SessionResult::Carried);
    script.build()
}
