//! Responses that the server generates itself, and their destination.

use std::io::Write as _;

use smallvec::SmallVec;
use strowger_foundation::{Flow, Seal, TagKey};
use strowger_message::{
    Decimal, Head, HeaderName, Host, Message, OwnFields, Param, ResponseBuilder, Rport, Status, Via,
};
use strowger_overload::Feedback;
use strowger_transaction::ServerKey;

/// A Via value with `received` and `rport` filled in.
pub type ViaText = SmallVec<[u8; 160]>;

/// The text of one of our To tags.
pub type ToTag = [u8; 16];

//= rfc3261#18.2.1:received
//= rfc3581#4
/// Completes the topmost Via once the source of the request is known: adds `received` if the sent-by is not the
/// source address or `rport` was requested, and the value of `rport`. Replaces a `received` from the sender, because
/// responses may be sent there. Returns `None` if nothing changes.
#[must_use]
pub fn completed_via(via: &Via<'_>, source: &Flow) -> Option<ViaText> {
    let asked = match via.rport {
        Rport::Requested(name) => Some(name),
        _ => None,
    };
    let differs = via.host() != Host::Ip(source.peer.ip());
    if asked.is_none() && !differs && via.received.is_none() {
        return None;
    }
    //= rfc3581#4:rport
    let port = asked.map(|name| (offset(via.text, name).saturating_add(name.len()), ViaEdit::Port));
    let claimed = via.received.map(|received| (offset(via.text, received), ViaEdit::Received(received.len())));
    let mut gaps: SmallVec<[(usize, ViaEdit); 2]> = port.into_iter().chain(claimed).collect();
    gaps.sort_unstable_by_key(|(at, _)| *at);
    let (mut text, mut from) = (ViaText::new(), 0);
    for (at, gap) in gaps {
        text.extend_from_slice(via.text.get(from..at).unwrap_or(&[]));
        from = match gap {
            ViaEdit::Port => {
                text.push(b'=');
                text.extend_from_slice(Decimal::new(u32::from(source.peer.port())).as_bytes());
                at
            }
            ViaEdit::Received(length) => {
                let _ = write!(text, "{}", source.peer.ip());
                at.saturating_add(length)
            }
        };
    }
    text.extend_from_slice(via.text.get(from..).unwrap_or(&[]));
    //= rfc3581#4:received
    if via.received.is_none() {
        //= rfc3261#18.2.1:received-value
        let _ = write!(text, ";received={}", source.peer.ip());
    }
    Some(text)
}

/// Like [`completed_via`], with overload feedback for the sender.
fn via_with_feedback(via: &Via<'_>, source: &Flow, feedback: &Feedback) -> Option<ViaText> {
    let completed = completed_via(via, source);
    with_feedback(completed.as_deref().unwrap_or(via.text), Some(feedback)).or(completed)
}

//= rfc7339#4.1
/// Replaces the overload control parameters of a Via value with `feedback`, or removes them if it is `None`.
pub(crate) fn with_feedback(via: &[u8], feedback: Option<&Feedback>) -> Option<ViaText> {
    let (via, _) = Via::parse_first(via)?;
    let params = via.params.as_bytes();
    let mut text = ViaText::from_slice(via.text.get(..offset(via.text, params))?);
    for Param { name, value } in via.params.iter().filter(|param| !Feedback::is_param(param.name)) {
        let value: [&[u8]; 2] = value.map_or([b"", b""], |value| [b"=", value]);
        [&b";"[..], name].into_iter().chain(value).for_each(|part| text.extend_from_slice(part));
    }
    if let Some(feedback) = feedback {
        let _ = write!(text, "{feedback}");
    }
    Some(text)
}

/// An edit of a Via value.
enum ViaEdit {
    /// Insert the value of `rport` after its name.
    Port,
    /// Replace a `received` value of this length.
    Received(usize),
}

fn offset(text: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr().wrapping_sub(text.as_ptr().addr())
}

//= rfc3261#18.2.2
//= rfc3581#4:same-address
/// Returns the flow for responses to a request: to its source address, and to the source port if `rport` was
/// requested, else the sent-by port. On a stream, over the request's connection; after it closes, over a connection
/// opened to the sent-by port, unless only the peer can open one.
#[must_use]
pub fn response_flow(via: &Via<'_>, source: &Flow) -> Flow {
    //= rfc3261#18.2.2:to-sent-by
    let port = via.sent_by.port.unwrap_or(source.transport.default_port());
    //= rfc3581#4:to-rport
    let mut flow = *source;
    if source.transport.is_reliable() {
        //= rfc3261#18.2.2:same-connection
        if !source.transport.is_web_socket() {
            flow.reopen = true;
            flow.peer.set_port(port);
        }
    //= rfc3261#18.2.2:to-received
    } else if via.rport == Rport::Absent {
        flow.peer.set_port(port);
    }
    flow
}

//= rfc3261#8.2.6.2:same-to-tag
//= rfc3261#8.2.7:same-to-tag
/// Returns the To tag of our responses to a transaction's request: a keyed function of its key, so that a stateless
/// response to a retransmission has the same tag (RFC 3261 §8.2.7).
#[must_use]
pub fn to_tag(key: &TagKey, transaction: ServerKey) -> ToTag {
    to_seal(key, transaction).to_text()
}

/// Returns the seal that [`to_tag`] is the text of.
#[must_use]
pub fn to_seal(key: &TagKey, transaction: ServerKey) -> Seal {
    let [a, b, c, d, e, f, g, h, rest @ ..] = transaction.to_bytes();
    key.seal_words([u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes(rest)])
}

//= rfc3261#8.2.7:ignores-ack
/// Whether an ACK with this transaction's key acknowledges a stateless response of ours: nobody else puts that tag
/// into To.
#[must_use]
pub fn is_ack_of_ours(key: &TagKey, transaction: ServerKey, ack: &Message<'_>) -> bool {
    // Most other tags do not have the form of ours and are rejected at no cost.
    ack.to().tag().and_then(Seal::from_text).is_some_and(|tag| tag.matches(to_seal(key, transaction)))
}

/// Like [`to_tag`], for a request without a transaction because its Via is malformed.
#[must_use]
pub fn to_tag_without_via(key: &TagKey, head: &Head<'_>) -> ToTag {
    let value = |name| head.first(name).unwrap_or(&[]);
    key.sign(&[value(HeaderName::CallId), value(HeaderName::CSeq), value(HeaderName::Via)]).to_text()
}

/// Starts a response to `message`.
#[must_use]
#[inline]
pub fn begin<'b>(
    out: &'b mut Vec<u8>,
    to_tag: &ToTag,
    message: &Message<'_>,
    source: &Flow,
    status: Status,
    reason: Option<&str>,
) -> ResponseBuilder<'b> {
    begin_from_head(out, to_tag, message.head(), message.via(), source, status, reason.unwrap_or(status.reason()))
}

/// Starts a response to a request of which only the head was parsed.
#[must_use]
pub fn begin_from_head<'b>(
    out: &'b mut Vec<u8>,
    to_tag: &ToTag,
    head: &Head<'_>,
    via: &Via<'_>,
    source: &Flow,
    status: Status,
    reason: &str,
) -> ResponseBuilder<'b> {
    let via = completed_via(via, source);
    ResponseBuilder::begin(out, head, status, reason, to_tag, via.as_deref())
}

/// Starts the same with overload `feedback` for the sender.
#[cold]
#[expect(clippy::too_many_arguments, reason = "all of it is the response's")]
#[must_use]
pub(crate) fn begin_with_feedback<'b>(
    out: &'b mut Vec<u8>,
    to_tag: &ToTag,
    head: &Head<'_>,
    via: &Via<'_>,
    source: &Flow,
    status: Status,
    reason: &str,
    feedback: &Feedback,
) -> ResponseBuilder<'b> {
    let via = via_with_feedback(via, source, feedback);
    ResponseBuilder::begin(out, head, status, reason, to_tag, via.as_deref())
}

/// Starts a response to a request of which only the head was parsed, with a status, a reason phrase and optional
/// overload `feedback` for the sender.
#[must_use]
pub fn begin_with<'b>(
    out: &'b mut Vec<u8>,
    to_tag: &ToTag,
    (head, via): (&Head<'_>, &Via<'_>),
    source: &Flow,
    (status, reason): (Status, &str),
    feedback: Option<&Feedback>,
) -> ResponseBuilder<'b> {
    match feedback {
        Some(feedback) => begin_with_feedback(out, to_tag, head, via, source, status, reason, feedback),
        None => begin_from_head(out, to_tag, head, via, source, status, reason),
    }
}

/// Rebuilds a final response. It is identical byte for byte if the request is and there is no feedback. Returns
/// `None` if `kept` is not the own part of a response.
#[must_use]
pub fn rebuild(
    out: &mut Vec<u8>,
    to_tag: &ToTag,
    head: &Head<'_>,
    via: &Via<'_>,
    source: &Flow,
    kept: &[u8],
    feedback: Option<&Feedback>,
) -> Option<OwnFields> {
    let via = match feedback {
        None => completed_via(via, source),
        Some(feedback) => via_with_feedback(via, source, feedback),
    };
    ResponseBuilder::rebuild(out, head, kept, to_tag, via.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_foundation::{ListenerId, Transport};

    fn flow(peer: &str) -> Flow {
        Flow::new(ListenerId(0), Transport::Udp, peer.parse().expect("an address"))
    }

    fn completed(via: &str, source: &str) -> Option<String> {
        let (via, _) = Via::parse_first(via.as_bytes()).expect("valid");
        completed_via(&via, &flow(source)).map(|text| String::from_utf8(text.to_vec()).expect("ASCII"))
    }

    //= rfc3261#18.2.1:received
    //= rfc3261#18.2.1:received-value
    //= rfc3581#4:rport
    //= rfc3581#4:received
    #[test]
    fn received_and_rport() {
        let at = |text: &str| Some(text.to_owned());
        assert_eq!(completed("SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK1", "192.0.2.1:5060"), None);
        assert_eq!(
            completed("SIP/2.0/UDP pc33;branch=z9hG4bK1", "192.0.2.1:5066"),
            at("SIP/2.0/UDP pc33;branch=z9hG4bK1;received=192.0.2.1")
        );
        assert_eq!(
            completed("SIP/2.0/UDP 10.1.1.1:4540;rport;branch=z9hG4bKkjshdyff", "192.0.2.1:9988"),
            at("SIP/2.0/UDP 10.1.1.1:4540;rport=9988;branch=z9hG4bKkjshdyff;received=192.0.2.1")
        );
        assert_eq!(
            completed("SIP/2.0/UDP 192.0.2.1;rport;branch=z9hG4bK1", "192.0.2.1:5060"),
            at("SIP/2.0/UDP 192.0.2.1;rport=5060;branch=z9hG4bK1;received=192.0.2.1")
        );
        assert_eq!(
            completed("SIP/2.0/UDP [2001:db8::1];branch=z9hG4bK1", "[2001:db8::9]:5060"),
            at("SIP/2.0/UDP [2001:db8::1];branch=z9hG4bK1;received=2001:db8::9")
        );
        for claimed in ["[2001:db8::7]", "2001:db8::7", "255.255.255.255"] {
            assert_eq!(
                completed(&format!("SIP/2.0/UDP a;received={claimed};branch=z9hG4bK1;rport"), "[2001:db8::9]:5062"),
                at("SIP/2.0/UDP a;received=2001:db8::9;branch=z9hG4bK1;rport=5062")
            );
        }
    }

    #[test]
    fn feedback_replaces_the_offer() {
        let told = Feedback::read([(&b"oc"[..], Some(&b"7"[..])), (b"oc-seq", Some(b"3.5"))].into_iter());
        let with = |via: &str, feedback| {
            String::from_utf8(with_feedback(via.as_bytes(), feedback).expect("valid").to_vec()).expect("ASCII")
        };
        let offer = "SIP/2.0/UDP a:5060;oc;branch=z9hG4bK1;oc-algo=\"loss,rate\";rport=5;x=\"a;b\"";
        let stripped = "SIP/2.0/UDP a:5060;branch=z9hG4bK1;rport=5;x=\"a;b\"";
        let feedback = ";oc=7;oc-algo=\"loss\";oc-validity=500;oc-seq=3.50000";
        assert_eq!(with(offer, told.as_ref()), format!("{stripped}{feedback}"));
        let forged = "SIP/2.0/UDP a:5060;branch=z9hG4bK1;OC=100;oc-validity=9;oc-seq=9.9;rport=5;x=\"a;b\"";
        assert_eq!(with(forged, None), stripped);
    }

    //= rfc3261#18.2.2:to-received
    //= rfc3261#18.2.2:to-sent-by
    //= rfc3581#4:to-rport
    #[test]
    fn responses_go_to_the_source_or_the_sent_by_port() {
        let reply = |via: &str| {
            let (via, _) = Via::parse_first(via.as_bytes()).expect("valid");
            response_flow(&via, &flow("192.0.2.1:9988")).peer.to_string()
        };
        assert_eq!(reply("SIP/2.0/UDP 10.1.1.1:4540;rport"), "192.0.2.1:9988");
        assert_eq!(reply("SIP/2.0/UDP 10.1.1.1:4540"), "192.0.2.1:4540");
        assert_eq!(reply("SIP/2.0/UDP host"), "192.0.2.1:5060");
    }
}
