//! Exercises every operation that the server performs on a message.

use strowger_message::{
    AuthParams, Fault, Head, HeaderName, Message, NameAddr, Peek, ResponseBuilder, Rewrite, StartLine, Status, Uri,
    Via, frame_stream, parse_contacts, unquote,
};

/// Buffers reused between messages.
#[derive(Debug, Default)]
pub struct Scratch {
    out: Vec<u8>,
}

/// Parses `bytes` as a datagram and as a stream, reads every header that the server uses, and answers or forwards the
/// message.
///
/// # Errors
/// The reason why it was not understood.
pub fn message(bytes: &[u8], scratch: &mut Scratch) -> Result<(), Fault> {
    let _ = frame_stream(bytes);
    let peek = Peek::read(bytes)?;
    let _ = peek.to_partial().to.and_then(Uri::parse);
    match Message::from_peek(&peek) {
        Ok(message) => {
            ask(message.head());
            forward(&message, scratch);
            answer(message.head(), scratch);
            Ok(())
        }
        Err(fault) => {
            ask(peek.head());
            answer(peek.head(), scratch);
            Err(fault)
        }
    }
}

fn ask(head: &Head<'_>) {
    if let StartLine::Request { uri, .. } = head.start() {
        compare(Uri::parse(uri));
    }
    for value in head.all(HeaderName::Via) {
        Via::parse_all(value).flatten().for_each(|via| {
            let _ = (via.response_ip(), via.response_port(), via.rfc3261_branch());
        });
    }
    for name in [HeaderName::From, HeaderName::To, HeaderName::Route, HeaderName::RecordRoute, HeaderName::Path] {
        head.elements(name).filter_map(NameAddr::parse).for_each(|addr| compare(addr.parse_uri()));
    }
    for value in head.all(HeaderName::Contact) {
        for contact in parse_contacts(value).unwrap_or_default() {
            let _ = (contact.params.value("q"), contact.params.value("expires"));
            compare(contact.parse_uri());
        }
    }
    for name in [HeaderName::Authorization, HeaderName::ProxyAuthorization] {
        for auth in head.all(name).filter_map(AuthParams::parse) {
            let values = ["username", "realm", "nonce", "uri", "response"].map(|name| auth.value(name).map(unquote));
            drop(values);
        }
    }
}

fn compare(uri: Option<Uri<'_>>) {
    let Some(uri) = uri else { return };
    assert!(uri.same(&uri));
    if let Some(sip) = uri.sip() {
        let _ = (sip.aor(), sip.without_headers());
    }
}

fn forward(message: &Message<'_>, scratch: &mut Scratch) {
    let head = message.head();
    scratch.out.clear();
    let mut copy = Rewrite::new(head, &mut scratch.out);
    copy.copy_to(head.fields_start()).add(&[b"Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKx\r\n"]).finish();
}

fn answer(head: &Head<'_>, scratch: &mut Scratch) {
    if matches!(head.start(), StartLine::Request { .. }) {
        ResponseBuilder::begin(&mut scratch.out, head, Status::BAD_REQUEST, "Bad Request", b"t", None).finish();
    }
}
