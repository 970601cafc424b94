//! Instant messaging and presence.
//!
//! | workload | a session | RFC |
//! |---|---|---|
//! | `message` | MESSAGE, 200 | 3428 |
//! | `publish` | PUBLISH with a document, refreshes of it by SIP-If-Match, its removal | 3903 §4 |
//! | `subscribe` | SUBSCRIBE and the first NOTIFY, refreshes, NOTIFYs as the state changes, the end by `Expires: 0` | 6665 §4 |
//! | `presence` | one of the three, by weight | |
//!
//! The callee's end answers: it accepts messages, stores published documents by their entity-tags, and is the
//! notifier. So the server only has to proxy. A presence server answers PUBLISH and SUBSCRIBE itself.

use std::time::Duration;

use crate::engine::{Mix, WeightedScripts};
use crate::law::Law;
use crate::script::{
    Action, Condition, Extract, Label, MethodId, Operand, Pattern, Place, Script, ScriptBuilder, ScriptError,
    SessionResult, Template, Variable,
};

use super::calls::{self, OK, registering};
use super::{Parameter, Parameters, Workload, WorkloadError};

/// The parameters of `message`.
pub(super) const MESSAGE: &[Parameter] =
    &[Parameter::ours("sizes", "100", "bytes of the text; a list such as 50+200+800 has equal probabilities")];

/// The parameters of `publish`.
pub(super) const PUBLISH: &[Parameter] = &[
    Parameter::ours("refreshes", "2", "number of refreshes of a publication"),
    Parameter::ours("refresh-every", "1s", "time before each refresh and the removal, a distribution"),
    Parameter::ours("published-size", "400", "bytes of the document, at least 200"),
];

/// The parameters of `subscribe`.
pub(super) const SUBSCRIBE: &[Parameter] = &[
    Parameter::ours("resubscriptions", "1", "number of refreshes of a subscription"),
    Parameter::ours("resubscribe-every", "2s", "time before each refresh and the end, a distribution"),
    Parameter::ours("change-every", "exp(mean=1s)", "time between NOTIFYs, a distribution"),
    Parameter::ours("notified-size", "400", "bytes of the document, at least 200"),
];

/// The parameters of `presence`: those of its parts, and their weights.
pub(super) const PRESENCE: &[Parameter] = &[
    MESSAGE[0],
    PUBLISH[0],
    PUBLISH[1],
    PUBLISH[2],
    SUBSCRIBE[0],
    SUBSCRIBE[1],
    SUBSCRIBE[2],
    SUBSCRIBE[3],
    Parameter::ours("messages", "40", "weight of MESSAGE sessions"),
    Parameter::ours("publications", "30", "weight of PUBLISH sessions"),
    Parameter::ours("subscriptions", "30", "weight of SUBSCRIBE sessions"),
];

/// Maximum size of a body, in bytes, so that the message fits into a datagram. RFC 3428 §8 allows 1,300 for a whole
/// MESSAGE if a link may be congested.
const MAX_BODY: usize = 60_000;
/// Minimum size of a document, in bytes.
const MIN_DOCUMENT: usize = 200;
/// Maximum number of refreshes of a session.
const MAX_REFRESHES: usize = 10_000;
/// Requested lifetime of publications and subscriptions, in seconds; refreshes come far earlier.
const EXPIRES: u32 = 3_600;
/// Timer N of RFC 6665 §4.1.2.4: maximum time until the first NOTIFY.
const TIMER_N: Duration = Duration::from_secs(32);
/// Time after which the callee's end gives up a publisher or subscriber that has fallen silent.
const SILENCE: Duration = Duration::from_secs(2 * EXPIRES as u64);

/// Parameters of `publish`.
#[derive(Clone, Debug)]
pub struct PublishParameters {
    /// Number of refreshes of a publication.
    pub refreshes: usize,
    /// The time before each refresh, and before the removal.
    pub every: Law,
    /// Size of the document, in bytes.
    pub size: usize,
}

/// Parameters of `subscribe`.
#[derive(Clone, Debug)]
pub struct SubscribeParameters {
    /// Number of refreshes of a subscription.
    pub refreshes: usize,
    /// The time before each refresh, and before the end.
    pub every: Law,
    /// The time between changes of the state.
    pub changes: Law,
    /// Size of the document in a NOTIFY, in bytes.
    pub size: usize,
}

pub(super) fn message(parameters: &Parameters) -> Result<Workload, WorkloadError> {
    let sizes = sizes_of(parameters)?;
    Ok(Workload {
        callers: vec![sender(&sizes)?],
        callees: vec![receiver()?, registering()?],
        answers: vec![(MethodId::Message, 0)],
        registering: Some(1),
        ..Workload::empty()
    })
}

pub(super) fn publish(parameters: &Parameters) -> Result<Workload, WorkloadError> {
    Ok(Workload {
        callers: vec![publisher(&publishing_of(parameters)?)?],
        callees: vec![compositor()?, registering()?],
        answers: vec![(MethodId::Publish, 0)],
        registering: Some(1),
        ..Workload::empty()
    })
}

pub(super) fn subscribe(parameters: &Parameters) -> Result<Workload, WorkloadError> {
    let subscribing = subscribing_of(parameters)?;
    Ok(Workload {
        callers: vec![subscriber(&subscribing)?],
        callees: vec![notifier(&subscribing)?, registering()?],
        answers: vec![(MethodId::Subscribe, 0)],
        registering: Some(1),
        ..Workload::empty()
    })
}

pub(super) fn presence(parameters: &Parameters) -> Result<Workload, WorkloadError> {
    let subscribing = subscribing_of(parameters)?;
    let weights = [
        (0, parameters.number("messages")?),
        (1, parameters.number("publications")?),
        (2, parameters.number("subscriptions")?),
    ];
    let weighted = WeightedScripts::new(&weights)
        .ok_or_else(|| WorkloadError("one of messages, publications and subscriptions must be above 0".to_owned()))?;
    Ok(Workload {
        callers: vec![
            sender(&sizes_of(parameters)?)?,
            publisher(&publishing_of(parameters)?)?,
            subscriber(&subscribing)?,
        ],
        mix: Mix::Weighted(weighted),
        callees: vec![receiver()?, compositor()?, notifier(&subscribing)?, registering()?],
        answers: vec![(MethodId::Message, 0), (MethodId::Publish, 1), (MethodId::Subscribe, 2)],
        registering: Some(3),
        ..Workload::empty()
    })
}

fn sizes_of(parameters: &Parameters) -> Result<Vec<usize>, WorkloadError> {
    let text = parameters.text("sizes")?;
    let sizes: Option<Vec<usize>> = text.split('+').map(|size| size.trim().parse().ok()).collect();
    let sizes = sizes.filter(|sizes| sizes.iter().all(|size| (1..=MAX_BODY).contains(size)));
    sizes.ok_or_else(|| {
        WorkloadError(format!("sizes: '{text}' is not a list of sizes from 1 to {MAX_BODY}; write 100 or 50+200+800"))
    })
}

fn document_size(parameters: &Parameters, name: &str) -> Result<usize, WorkloadError> {
    let size = count_of(parameters, name, MAX_BODY)?;
    if size < MIN_DOCUMENT {
        return Err(WorkloadError(format!("{name}: a document has at least {MIN_DOCUMENT} bytes")));
    }
    Ok(size)
}

fn count_of(parameters: &Parameters, name: &str, most: usize) -> Result<usize, WorkloadError> {
    let number = parameters.number(name)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and it saturates")]
    let count = number as usize;
    if count > most {
        return Err(WorkloadError(format!("{name}: {count} is more than {most}")));
    }
    Ok(count)
}

fn publishing_of(parameters: &Parameters) -> Result<PublishParameters, WorkloadError> {
    Ok(PublishParameters {
        refreshes: count_of(parameters, "refreshes", MAX_REFRESHES)?,
        every: parameters.law("refresh-every")?,
        size: document_size(parameters, "published-size")?,
    })
}

fn subscribing_of(parameters: &Parameters) -> Result<SubscribeParameters, WorkloadError> {
    Ok(SubscribeParameters {
        refreshes: count_of(parameters, "resubscriptions", MAX_REFRESHES)?,
        every: parameters.law("resubscribe-every")?,
        changes: parameters.law("change-every")?,
        size: document_size(parameters, "notified-size")?,
    })
}

/// Returns an out-of-dialog request of the caller to the callee's address of record.
fn request(method: &str, more: &str, body: Option<(&str, &str)>) -> String {
    let (kind, body) = body.map_or((String::new(), ""), |(kind, body)| (format!("Content-Type: {kind}\n"), body));
    format!(
        "{method} sip:[callee]@[domain] SIP/2.0\nVia: SIP/2.0/[transport] [local];branch=[branch]\nMax-Forwards: 70\n\
         From: <sip:[caller]@[domain]>;tag=[local_tag]\nTo: <sip:[callee]@[domain]>\nCall-ID: [call_id]\n\
         CSeq: [cseq] {method}\n{more}[authentication]\n{kind}Content-Length: [len]\n\n{body}"
    )
}

/// Returns `size` bytes of text, including the line end.
fn text_of(size: usize) -> String {
    format!("{}\n", "strowger ".repeat(size / 9 + 1).get(..size.saturating_sub(2)).unwrap_or_default())
}

/// Returns a presence document (RFC 3863) of about `size` bytes.
fn document(size: usize, state: &str) -> String {
    let rest = "n".repeat(size.saturating_sub(MIN_DOCUMENT - 20));
    format!(
        "<?xml version=\"1.0\"?>\n<presence xmlns=\"urn:ietf:params:xml:ns:pidf\" entity=\"sip:load\">\n<tuple id=\"load\">\
         <status><basic>{state}</basic></status></tuple>\n<note>{rest}</note>\n</presence>\n"
    )
}

/// Returns the script that sends one MESSAGE (RFC 3428 §4).
fn sender(sizes: &[usize]) -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("message");
    let done = script.label();
    for (index, size) in sizes.iter().enumerate() {
        let next = script.label();
        #[expect(clippy::cast_precision_loss, reason = "a small table")]
        let left = (sizes.len() - index) as f64;
        script.chance(1.0 - 1.0 / left, next);
        calls::transaction(&mut script, &request("MESSAGE", "", Some(("text/plain", &text_of(*size)))));
        script.jump(done).place_label(next);
    }
    script.place_label(done).end(SessionResult::Carried);
    script.build()
}

/// Returns the script that accepts a MESSAGE (RFC 3428 §7).
fn receiver() -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("receiver");
    let got = script.label();
    script.wait(&[(Pattern::Request(MethodId::Message), Extract::NOTHING, Some(got))]);
    script.place_label(got).send(OK).end(SessionResult::Carried);
    script.build()
}

/// Returns the action that copies the value of a header field into a variable.
fn find(name: &str, into: Variable) -> Action {
    let place = Place::Header(name.to_owned());
    Action::Find { place, after: String::new(), before: String::new(), into, must: false }
}

/// Returns the script of a publication (RFC 3903 §4.1): the first PUBLISH, refreshes, the removal. It fails if the
/// server has forgotten the publication (412).
fn publisher(publishing: &PublishParameters) -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("publish");
    let tag = script.variable();
    let expires = format!("Event: presence\nExpires: {EXPIRES}\n");
    let known = format!("SIP-If-Match: [${tag}]\n");
    let document = document(publishing.size, "open");
    published(&mut script, &request("PUBLISH", &expires, Some(("application/pidf+xml", &document))), tag);
    for _ in 0..publishing.refreshes {
        script.pause(publishing.every.clone());
        //= rfc3903#4.1
        // The entity-tag identifies the publication; a refresh has no body.
        published(&mut script, &request("PUBLISH", &format!("{known}{expires}"), None), tag);
    }
    script.pause(publishing.every.clone());
    published(&mut script, &request("PUBLISH", &format!("{known}Event: presence\nExpires: 0\n"), None), tag);
    script.end(SessionResult::Carried);
    script.build()
}

/// Adds a PUBLISH, up to its 2xx, and stores the entity-tag.
fn published(script: &mut ScriptBuilder, request: &str, tag: Variable) {
    let (again, done) = (script.label(), script.label());
    script.place_label(again).send(request).wait(&[
        (Pattern::PROVISIONAL, Extract::NOTHING, None),
        (Pattern::status(401), Extract::CHALLENGE, Some(again)),
        (Pattern::status(407), Extract::CHALLENGE, Some(again)),
        (Pattern::SUCCESS, Extract::NOTHING, Some(done)),
    ]);
    script.on_last_expect(&[find("SIP-ETag", tag)]);
    script.place_label(done);
}

/// Reads the lifetime that a request asks for, or the default.
fn read_expires(script: &mut ScriptBuilder, into: Variable) {
    let said = script.label();
    script.act(&[find("Expires", into)]).when(Condition::Set(into), said);
    script.act(&[Action::Assign(into, Operand::Text(EXPIRES.to_string()))]).place_label(said);
}

/// Returns the script that stores a publication (RFC 3903 §6).
fn compositor() -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("compositor");
    let (got, known, removed, lost) = (script.label(), script.label(), script.label(), script.label());
    let (tag, matches, expires, order) = (script.variable(), script.variable(), script.variable(), script.variable());
    let silence = script.law(Law::constant(SILENCE));
    let fragment = |text: &str| Template::fragment_with(text, |_, _| None);
    let (new_tag, own_tag) = match (fragment("[timestamp]"), fragment(&format!("[${tag}]"))) {
        (Ok(new), Ok(own)) => (script.template(new), script.template(own)),
        (Err(error), _) | (_, Err(error)) => return Err(ScriptError::Template { number: 1, error }),
    };
    let publish = [(Pattern::Request(MethodId::Publish), Extract::NOTHING, Some(got))];
    script.wait(&publish);
    script.place_label(got).act(&[find("SIP-If-Match", matches)]);
    read_expires(&mut script, expires);
    script.when(Condition::Unset(matches), known);
    // A removal may come again after it was done, if its 200 was lost. Then there is no tag to compare with.
    script.when(Condition::Is(expires, "0".to_owned()), known);
    //= rfc3903#6
    // The tag must be that of the publication.
    script.act(&[Action::Order { into: order, left: matches, right: own_tag }]);
    script.when(Condition::Is(order, "0".to_owned()), known);
    script.send("SIP/2.0 412 Conditional Request Failed\n[answer]\nContent-Length: 0\n");
    let waiting = script.label();
    script.place_label(waiting).wait_with(&publish, Some((silence, lost)));
    script.place_label(lost).end(SessionResult::Lost);
    script.place_label(known).act(&[Action::Text(tag, new_tag)]);
    script.send(&format!("SIP/2.0 200 OK\n[answer]\nSIP-ETag: [${tag}]\nExpires: [${expires}]\nContent-Length: 0\n"));
    script.when(Condition::Is(expires, "0".to_owned()), removed).jump(waiting);
    script.place_label(removed).end(SessionResult::Carried);
    script.build()
}

/// Returns the script of a subscription (RFC 6665 §4.1.2).
fn subscriber(subscribing: &SubscribeParameters) -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("subscribe");
    let lost = script.label();
    let heard = NotifyState { state: script.variable(), over: script.variable(), is_over: script.variable() };
    let contact = "Contact: <sip:[caller]@[local];transport=[transport]>";
    let asked =
        |expires: u32| format!("{contact}\nEvent: presence\nAccept: application/pidf+xml\nExpires: {expires}\n");
    heard.subscribe(&mut script, &request("SUBSCRIBE", &asked(EXPIRES), None), Extract::DIALOG);
    let timer = script.law(Law::constant(TIMER_N));
    heard.await_notify(&mut script, heard.state, (timer, lost));
    let in_dialog = |expires| {
        format!(
            "SUBSCRIBE [next_url] SIP/2.0\nVia: SIP/2.0/[transport] [local];branch=[branch]\n[routes]\nMax-Forwards: 70\n\
             From: <sip:[caller]@[domain]>;tag=[local_tag]\nTo: [peer]\nCall-ID: [call_id]\nCSeq: [cseq] SUBSCRIBE\n\
             {}[authentication]\nContent-Length: 0\n",
            asked(expires)
        )
    };
    for _ in 0..subscribing.refreshes {
        // The engine answers NOTIFYs that come meanwhile.
        script.pause(subscribing.every.clone());
        heard.subscribe(&mut script, &in_dialog(EXPIRES), Extract::NOTHING);
    }
    script.pause(subscribing.every.clone());
    //= rfc6665#4.1.2.3
    // The subscription ends with the final NOTIFY, not with the 200.
    heard.subscribe(&mut script, &in_dialog(0), Extract::NOTHING);
    heard.await_notify(&mut script, heard.is_over, (timer, lost));
    script.end(SessionResult::Carried);
    script.place_label(lost).end(SessionResult::Lost);
    script.build()
}

/// Variables with what a subscriber has received in NOTIFYs.
#[derive(Clone, Copy)]
struct NotifyState {
    /// Subscription-State of the last NOTIFY.
    state: Variable,
    /// Set if that says that the subscription has ended.
    over: Variable,
    /// Set once any NOTIFY has said so, as NOTIFYs may be reordered.
    is_over: Variable,
}

impl NotifyState {
    /// Adds a SUBSCRIBE, up to its 2xx. A NOTIFY may come before that (RFC 6665 §4.1.2.4).
    fn subscribe(self, script: &mut ScriptBuilder, request: &str, takes: Extract) {
        let (again, waiting, done) = (script.label(), script.label(), script.label());
        let (notified, unknown) = (script.label(), script.label());
        script.place_label(again).send(request);
        script.place_label(waiting).wait(&[
            (Pattern::PROVISIONAL, Extract::NOTHING, None),
            (Pattern::SUCCESS, takes, Some(done)),
            (Pattern::status(401), Extract::CHALLENGE, Some(again)),
            (Pattern::status(407), Extract::CHALLENGE, Some(again)),
            (Pattern::status(481), Extract::NOTHING, Some(unknown)),
            (Pattern::Request(MethodId::Notify), Extract::NOTHING, Some(notified)),
        ]);
        script.place_label(notified);
        self.answer_notify(script);
        script.jump(waiting);
        // After the final NOTIFY, a 481 is as good as the 200, which was lost.
        script.place_label(unknown).when(Condition::Set(self.is_over), done).end(SessionResult::Refused(481));
        script.place_label(done);
    }

    /// Waits until a NOTIFY sets a variable, for at most Timer N.
    fn await_notify(self, script: &mut ScriptBuilder, until: Variable, limit: (u16, Label)) {
        let (waiting, notified, done) = (script.label(), script.label(), script.label());
        script.place_label(waiting).when(Condition::Set(until), done);
        script.wait_with(&[(Pattern::Request(MethodId::Notify), Extract::NOTHING, Some(notified))], Some(limit));
        script.place_label(notified);
        self.answer_notify(script);
        script.jump(waiting).place_label(done);
    }

    fn answer_notify(self, script: &mut ScriptBuilder) {
        let goes_on = script.label();
        let ends = Action::Find {
            place: Place::Variable(self.state),
            after: "termin".to_owned(),
            before: String::new(),
            into: self.over,
            must: false,
        };
        script.act(&[find("Subscription-State", self.state), ends]).when(Condition::Unset(self.over), goes_on);
        script.act(&[Action::Assign(self.is_over, Operand::Number(1.0))]);
        script.place_label(goes_on).send(OK);
    }
}

/// Returns the script that sends state changes to a subscriber (RFC 6665 §4.2).
fn notifier(subscribing: &SubscribeParameters) -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("notifier");
    let marks: [Label; 6] = std::array::from_fn(|_| script.label());
    let [asked, notify, idle, over, gone, closed] = marks;
    let (own, call_id, expires) = (script.variable(), script.variable(), script.variable());
    let in_dialog = |state: &str, basic: &str| {
        let body = document(subscribing.size, basic);
        format!(
            "NOTIFY [next_url] SIP/2.0\nVia: SIP/2.0/[transport] [local];branch=[branch]\n[routes]\nMax-Forwards: 70\n\
             From: <[${own}]>;tag=[local_tag]\nTo: [peer]\nCall-ID: [${call_id}]\nCSeq: [cseq] NOTIFY\n\
             Contact: <sip:[local];transport=[transport]>\nEvent: presence\nSubscription-State: {state}\n\
             Content-Type: application/pidf+xml\nContent-Length: [len]\n\n{body}"
        )
    };
    let own_uri = Action::Find {
        place: Place::Header("To".to_owned()),
        after: "<".to_owned(),
        before: ">".to_owned(),
        into: own,
        must: true,
    };
    let subscribe = Pattern::Request(MethodId::Subscribe);
    let again = [(subscribe, Extract::NOTHING, Some(asked))];
    script.wait(&[(subscribe, Extract::DIALOG, Some(asked))]).on_last_expect(&[own_uri, find("Call-ID", call_id)]);
    script.place_label(asked);
    read_expires(&mut script, expires);
    script.send(&format!(
        "SIP/2.0 200 OK\n[answer]\nContact: <sip:[local];transport=[transport]>\nExpires: [${expires}]\nContent-Length: 0\n"
    ));
    script.when(Condition::Is(expires, "0".to_owned()), over);
    //= rfc6665#4.2.1.2
    // Each accepted SUBSCRIBE is followed by a NOTIFY at once.
    script.place_label(notify);
    let next = script.label();
    script.chance(0.5, closed).send(&in_dialog(&format!("active;expires={EXPIRES}"), "open")).jump(next);
    script.place_label(closed).send(&in_dialog(&format!("active;expires={EXPIRES}"), "closed"));
    script.place_label(next).wait(&[
        (Pattern::PROVISIONAL, Extract::NOTHING, None),
        (Pattern::SUCCESS, Extract::NOTHING, Some(idle)),
        again[0],
    ]);
    let changes = script.law(subscribing.changes.clone());
    script.place_label(idle).wait_with(&again, Some((changes, notify)));
    //= rfc6665#4.2.1.4
    // An unsubscription is answered with the final NOTIFY.
    script.place_label(over).send(&in_dialog("terminated;reason=timeout", "closed")).wait(&[
        (Pattern::PROVISIONAL, Extract::NOTHING, None),
        (Pattern::SUCCESS, Extract::NOTHING, Some(gone)),
        // A subscriber that got the NOTIFY, but whose 200 was lost, has already dropped the subscription.
        (Pattern::status(481), Extract::NOTHING, Some(gone)),
    ]);
    script.place_label(gone).end(SessionResult::Carried);
    script.build()
}
