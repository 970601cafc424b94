//! Calls that are answered, and the registrations before them.

use std::time::Duration;

use crate::law::Law;
use crate::script::{Ending, Pattern, Script, ScriptBuilder, ScriptError, Takes, Verb};

/// The pauses of a call; none where there is no law.
#[derive(Clone, Debug, Default)]
pub struct CallTimes {
    /// Between 180 and 200.
    pub ring: Option<Law>,
    /// Between ACK and BYE.
    pub hold: Option<Law>,
}

/// 64·T1, and a second for the way.
const BYE_AT_LAST: Duration = Duration::from_secs(33);

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

const ACK_TO_FAILURE: &str = "ACK sip:[callee]@[domain] SIP/2.0
Via: SIP/2.0/[transport] [local];branch=[branch]
Max-Forwards: 70
From: <sip:[caller]@[domain]>;tag=[local_tag]
[last_To:]
Call-ID: [call_id]
CSeq: [cseq] ACK
Content-Length: 0
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

const RINGING: &str = "SIP/2.0 180 Ringing
[answer]
Contact: <sip:[local];transport=[transport]>
Content-Length: 0
";

const ANSWERED: &str = "SIP/2.0 200 OK
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

const OK: &str = "SIP/2.0 200 OK
[answer]
Content-Length: 0
";

/// Who calls: INVITE, ACK, BYE; challenges are answered.
///
/// # Errors
/// Never.
pub fn caller(times: &CallTimes) -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("caller");
    let (again, answered, challenged, bye, done) =
        (script.mark(), script.mark(), script.mark(), script.mark(), script.mark());
    script.place(again).send(INVITE).wait(&[
        (Pattern::PROVISIONAL, Takes::NOTHING, None),
        (Pattern::SUCCESS, Takes::DIALOG, Some(answered)),
        (Pattern::status(401), Takes::CHALLENGE, Some(challenged)),
        (Pattern::status(407), Takes::CHALLENGE, Some(challenged)),
    ]);
    script.place(challenged).send(ACK_TO_FAILURE).jump(again);
    script.place(answered).send(ACK);
    if let Some(hold) = &times.hold {
        script.pause(hold.clone());
    }
    script.place(bye).send(BYE).wait(&[
        (Pattern::PROVISIONAL, Takes::NOTHING, None),
        (Pattern::SUCCESS, Takes::NOTHING, Some(done)),
        (Pattern::status(401), Takes::CHALLENGE, Some(bye)),
        (Pattern::status(407), Takes::CHALLENGE, Some(bye)),
    ]);
    script.place(done).end(Ending::Carried);
    script.build()
}

/// Who is called: 180, 200, and 200 to the BYE.
///
/// # Errors
/// Never.
pub fn callee(times: &CallTimes) -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("callee");
    let (invited, acknowledged, ended, lost) = (script.mark(), script.mark(), script.mark(), script.mark());
    script.wait(&[(Pattern::Request(Verb::Invite), Takes::NOTHING, Some(invited))]);
    script.place(invited).send(RINGING);
    if let Some(ring) = &times.ring {
        script.pause(ring.clone());
    }
    script.send(ANSWERED).wait(&[
        (Pattern::Request(Verb::Ack), Takes::NOTHING, Some(acknowledged)),
        // An ACK may be lost or late.
        (Pattern::Request(Verb::Bye), Takes::NOTHING, Some(ended)),
    ]);
    let bye = [(Pattern::Request(Verb::Bye), Takes::NOTHING, Some(ended))];
    script.place(acknowledged);
    match times.hold {
        Some(_) => script.wait(&bye),
        None => {
            // Where nobody talks, a BYE that has not come by now was given up by who sent it.
            let limit = script.law(Law::constant(BYE_AT_LAST));
            script.wait_with(&bye, Some((limit, lost)))
        }
    };
    script.place(lost).end(Ending::Lost);
    script.place(ended).send(OK).end(Ending::Carried);
    script.build()
}

/// One registration of the caller.
///
/// # Errors
/// Never.
pub fn registering() -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("register");
    let (again, done) = (script.mark(), script.mark());
    script.place(again).send(REGISTER).wait(&[
        (Pattern::PROVISIONAL, Takes::NOTHING, None),
        (Pattern::SUCCESS, Takes::NOTHING, Some(done)),
        (Pattern::status(401), Takes::CHALLENGE, Some(again)),
        (Pattern::status(407), Takes::CHALLENGE, Some(again)),
    ]);
    script.place(done).end(Ending::Carried);
    script.build()
}
