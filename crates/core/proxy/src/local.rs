//! Responses that the server makes itself, and where they go.

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

/// A To tag of ours.
pub type ToTag = [u8; 16];

//= rfc3261#18.2.1
//= rfc3581#4
/// The topmost Via as it must be once the source of the request is known: `received` where the sent-by is not the
/// source's address or `rport` was asked for, and the value of `rport`. A `received` that came with the request is replaced:
/// it is ours to say, and responses may follow it. `None` where nothing changes.
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
    if via.received.is_none() {
        let _ = write!(text, ";received={}", source.peer.ip());
    }
    Some(text)
}

/// As [`completed_via`], with what its sender is told.
fn via_with_feedback(via: &Via<'_>, source: &Flow, feedback: &Feedback) -> Option<ViaText> {
    let completed = completed_via(via, source);
    with_feedback(completed.as_deref().unwrap_or(via.text), Some(feedback)).or(completed)
}

//= rfc7339#4.1
/// A Via value with `feedback` in the place of what it says of overload control, and with nothing of that where there is none.
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

/// What is written into a Via value.
enum ViaEdit {
    /// The value of `rport`, behind its name.
    Port,
    /// The value of `received`, over one of so many bytes.
    Received(usize),
}

fn offset(text: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr().wrapping_sub(text.as_ptr().addr())
}

//= rfc3261#18.2.2
//= rfc3581#4
/// Where the responses of a request go: back to its source, to the source's port where `rport` was asked for, else to
/// the port of the sent-by. On a stream, over the connection of the request, and once that is closed over one that is
/// opened to the port of the sent-by.
#[must_use]
pub fn response_flow(via: &Via<'_>, source: &Flow) -> Flow {
    let port = via.sent_by.port.unwrap_or(source.transport.default_port());
    let mut flow = *source;
    if source.transport.is_reliable() {
        flow.reopen = true;
        flow.peer.set_port(port);
    } else if via.rport == Rport::Absent {
        flow.peer.set_port(port);
    }
    flow
}

/// The To tag of our responses to the request of a transaction: a keyed function of what identifies it, so that the answer to
/// a retransmission that no transaction remembers bears the same tag (RFC 3261 §8.2.7).
#[must_use]
pub fn to_tag(key: &TagKey, transaction: ServerKey) -> ToTag {
    to_seal(key, transaction).to_text()
}

/// What [`to_tag`] is the text of.
#[must_use]
pub fn to_seal(key: &TagKey, transaction: ServerKey) -> Seal {
    let [a, b, c, d, e, f, g, h, rest @ ..] = transaction.to_bytes();
    key.seal_words([u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes(rest)])
}

//= rfc3261#8.2.7
/// Whether an ACK with the key of this transaction acknowledges a response of ours that nobody remembers: nobody else has put that
/// tag into its To.
#[must_use]
pub fn is_ack_of_ours(key: &TagKey, transaction: ServerKey, ack: &Message<'_>) -> bool {
    // What has not the form of our tags, as those of most others, costs nothing.
    ack.to().tag().and_then(Seal::from_text).is_some_and(|tag| tag.matches(to_seal(key, transaction)))
}

/// As [`to_tag`], for a request that belongs to no transaction because its Via cannot be read.
#[must_use]
pub fn to_tag_without_via(key: &TagKey, head: &Head<'_>) -> ToTag {
    let value = |name| head.first(name).unwrap_or(&[]);
    key.sign(&[value(HeaderName::CallId), value(HeaderName::CSeq), value(HeaderName::Via)]).to_text()
}

/// Begins a response to `message`.
#[must_use]
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

/// Begins a response to a request of which only the head is understood.
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

/// The same, which tells `feedback` to who sent the request.
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

/// Begins a response where only the head of the request is understood, with a status and a reason phrase; it tells `feedback` to who
/// sent the request, where there is any.
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

/// Makes a final response again, byte for byte where the request is the same and there is no feedback; `None` where `kept` is not what was its own.
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
    fn feedback_takes_the_place_of_the_offer() {
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
