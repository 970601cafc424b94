//! One body for each fuzz target. It accepts any bytes, does not panic, and checks properties of the parsed result.

use strowger_message::{
    AuthParams, AuthScheme, FrameResult, Head, HeaderName, MAX_FIELDS, MAX_HEAD, MAX_STREAM_MESSAGE, Message, NameAddr,
    PartialPeek, Peek, ResponseBuilder, Rewrite, StartLine, Status, Uri, Via, frame_stream, split_list,
};

/// Function that a target runs on its input.
pub type Body = fn(&[u8]);

/// All bodies with the names of their targets. The corpus folders have the same names.
pub const ALL: &[(&str, Body)] = &[
    ("message", message),
    ("uri", uri),
    ("via", via),
    ("name_addr", name_addr),
    ("digest", digest),
    ("framer", framer),
];

/// Checks a datagram.
pub fn message(data: &[u8]) {
    let peek = Peek::read(data);
    let head = match Head::scan(data) {
        Ok(head) => head,
        Err(fault) => {
            assert_eq!(peek.err(), Some(fault));
            return assert_eq!(
                Message::parse(data).err().map(|(fault, head)| (fault, head.is_some())),
                Some((fault, false))
            );
        }
    };
    let peek = peek.expect("a head was found");
    if let Some(glance) = PartialPeek::read(data) {
        assert_eq!(glance, peek.to_partial());
    }
    lines_tile_the_head(&head);
    match Message::parse(data) {
        Ok(message) => {
            assert!(data.starts_with(message.bytes()));
            assert_eq!(message.head().len() + message.body().len(), message.bytes().len());
            assert_eq!(message.call_id(), peek.call_id);
            assert_eq!(Some(message.via().text), peek.via.map(|via| via.text));
            assert!(peek.in_dialog || message.to().tag().is_none(), "peek overlooked a tag");
            let mut same = Vec::new();
            Rewrite::new(message.head(), &mut same).finish();
            assert_eq!(same, message.bytes());
            let again = Message::parse(message.bytes()).expect("parsed before");
            assert_eq!(again.bytes(), message.bytes());
            is_forwarded_untouched(&message);
            is_answered(message.head(), Some(&message));
        }
        Err((_, Some(head))) => is_answered(&head, None),
        Err((_, None)) => panic!("the head was scanned before"),
    }
}

fn lines_tile_the_head(head: &Head<'_>) {
    let mut at = head.fields_start();
    for field in head.fields() {
        let (line, value) = (head.line(field), head.value(field));
        assert_eq!(head.position_of(line), at);
        assert!(line.ends_with(b"\r\n"));
        assert!(value.is_empty() || contains(line, value));
        at += line.len();
    }
    assert_eq!(at, head.fields_end());
    assert_eq!(head.len() + head.rest().len(), head.bytes().len());
}

/// Checks that adding a topmost Via leaves the bytes after it and their meaning unchanged.
fn is_forwarded_untouched(message: &Message<'_>) {
    const VIA: &[u8] = b"Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKfuzz\r\n";
    let head = message.head();
    if head.fields().len() == MAX_FIELDS || head.len() + VIA.len() > MAX_HEAD {
        return;
    }
    let mut out = Vec::new();
    Rewrite::new(head, &mut out).copy_to(head.fields_start()).add(&[VIA]).finish();
    let forwarded = Message::parse(&out).expect("a valid message stays valid");
    assert_eq!(forwarded.via().rfc3261_branch(), Some(&b"fuzz"[..]));
    assert_eq!(out.get(head.fields_start() + VIA.len()..), message.bytes().get(head.fields_start()..));
    let values = |of: &Head<'_>| of.fields().iter().map(|field| of.value(field).to_vec()).collect::<Vec<_>>();
    assert_eq!(values(forwarded.head()).get(1..), Some(&values(head)[..]));
    assert_eq!(forwarded.body(), message.body());
}

fn is_answered(request: &Head<'_>, message: Option<&Message<'_>>) {
    if !matches!(request.start(), StartLine::Request { .. }) || request.len() > MAX_HEAD / 2 {
        return;
    }
    let mut out = Vec::new();
    ResponseBuilder::begin(&mut out, request, Status::BAD_REQUEST, "Bad Request", b"fuzz", None).finish();
    if out.len() > MAX_HEAD {
        return;
    }
    let reply = Head::scan(&out).expect("the copied lines are well-formed");
    let vias = |of: &Head<'_>| of.all(HeaderName::Via).map(<[u8]>::to_vec).collect::<Vec<_>>();
    assert_eq!(vias(&reply), vias(request));
    assert!(reply.rest().is_empty());
    if let Some(message) = message {
        let reply = Message::parse(&out).expect("the answer to a valid request is valid");
        assert_eq!((reply.call_id(), reply.cseq()), (message.call_id(), message.cseq()));
        assert_eq!(reply.from().text, message.from().text);
        assert!(reply.to().params.find("tag").is_some());
    }
}

/// Checks two URIs, one on each line.
pub fn uri(data: &[u8]) {
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let (a, b) = (lines.next().unwrap_or(data), lines.next().unwrap_or(&[]));
    let (a, b) = (Uri::parse(a), Uri::parse(b));
    for uri in [&a, &b].into_iter().flatten() {
        assert!(uri.same(uri), "a URI equals itself");
        uri_is_inside(uri);
    }
    if let (Some(a), Some(b)) = (&a, &b) {
        assert_eq!(a.same(b), b.same(a), "comparison is symmetric");
        if let (Uri::Sip(a), Uri::Sip(b), true) = (a, b, a.same(b)) {
            assert_eq!(a.aor(), b.aor(), "equal URIs have the same address of record");
        }
    }
}

fn uri_is_inside(uri: &Uri<'_>) {
    let Uri::Sip(uri) = uri else { return };
    let parts = [uri.user, uri.password, Some(uri.host_port.host), uri.headers, Some(uri.params.as_bytes())];
    assert!(parts.into_iter().flatten().all(|part| contains(uri.text, part)));
    let bare = Uri::parse(uri.without_headers()).expect("a URI without its headers is a URI");
    assert!(bare.sip().is_some_and(|bare| bare.headers.is_none() && bare.user == uri.user));
    if let Some(aor) = uri.aor() {
        assert_eq!(aor.as_bytes().len(), aor.user().len() + 1 + aor.domain().len());
        assert!(!aor.domain().is_empty());
    }
}

/// Checks the value of a Via header.
pub fn via(data: &[u8]) {
    assert!(Via::parse_all(data).count() > 0);
    let Some((via, rest)) = Via::parse_first(data) else { return };
    assert!(rest.is_empty() || rest.starts_with(b","));
    assert!(contains(data, via.text) && contains(via.text, via.sent_by.host) && contains(via.text, via.transport));
    assert_eq!(split_list(data).next(), Some(via.text), "both parsers find the same comma");
    assert!(via.params.iter().all(|param| contains(via.text, param.name) && !param.name.is_empty()));
    let _ = (via.received_ip(), via.response_ip(), via.response_port(), via.rfc3261_branch(), via.transport());

    let written = [via.text, b";received=192.0.2.7"].concat();
    let (stamped, rest) = Via::parse_first(&written).expect("a parameter may be appended");
    assert!(rest.is_empty());
    assert_eq!((stamped.branch, stamped.sent_by), (via.branch, via.sent_by));
    assert!(stamped.received.is_some());
}

/// Checks the value of From, To, Contact, Route or Record-Route.
pub fn name_addr(data: &[u8]) {
    assert_eq!(NameAddr::parse(data).is_some(), NameAddr::parse_first(data).is_some_and(|(_, rest)| rest.is_empty()));
    let Some((addr, rest)) = NameAddr::parse_first(data) else { return };
    assert!(rest.is_empty() || rest.starts_with(b","));
    assert!(contains(data, addr.text) && contains(addr.text, addr.uri) && contains(addr.text, addr.display));
    assert_eq!(split_list(data).next(), Some(addr.text), "both parsers find the same comma");
    let _ = addr.parse_uri();
    let written = [addr.text, b";fuzz=1"].concat();
    let tagged = NameAddr::parse(&written).expect("a parameter may be appended");
    assert_eq!((tagged.uri, tagged.display, tagged.tag()), (addr.uri, addr.display, addr.tag()));
    assert!(tagged.params.find("fuzz").is_some());
}

/// Checks the value of Authorization or WWW-Authenticate.
pub fn digest(data: &[u8]) {
    let Some(auth) = AuthParams::parse(data) else { return };
    if auth.scheme != AuthScheme::Digest {
        return;
    }
    let pairs: Vec<_> = auth.iter().collect();
    assert!(!pairs.is_empty());
    let mut written = b"Digest ".to_vec();
    for (at, (name, value)) in pairs.iter().enumerate() {
        assert!(contains(data, name) && contains(data, value) && !name.is_empty() && !value.is_empty());
        let comma: &[u8] = if at == 0 { b"" } else { b", " };
        written.extend([comma, name, b"=", value].concat());
    }
    let again = AuthParams::parse(&written).expect("parsed credentials can be written and parsed again");
    assert_eq!(again.iter().collect::<Vec<_>>(), pairs);
}

/// Checks the framing of a stream.
pub fn framer(data: &[u8]) {
    let mut rest = data;
    while !rest.is_empty() {
        match frame_stream(rest) {
            FrameResult::KeepAlive(length) => {
                assert!(rest.get(..length).is_some_and(|ends| ends.iter().all(|byte| b"\r\n".contains(byte))));
                assert!(length > 0);
                rest = &rest[length..];
            }
            FrameResult::Message(length) => {
                assert!(length > 0 && length <= rest.len() && length <= MAX_STREAM_MESSAGE);
                let (framed, behind) = rest.split_at(length);
                assert_eq!(
                    frame_stream(framed),
                    FrameResult::Message(length),
                    "the end does not depend on what follows"
                );
                for shorter in [1, length / 2, length - 1] {
                    assert_eq!(frame_stream(&framed[..shorter]), FrameResult::Incomplete);
                }
                if let Ok(message) = Message::parse(framed) {
                    assert_eq!(message.bytes().len(), length, "stream and datagram agree on the end");
                }
                rest = behind;
            }
            FrameResult::Incomplete => return assert!(rest.len() < MAX_STREAM_MESSAGE),
            FrameResult::Malformed(fault) => return assert!(!fault.to_string().is_empty()),
        }
    }
}

/// Returns whether `part` is empty or a slice of `whole`.
fn contains(whole: &[u8], part: &[u8]) -> bool {
    part.is_empty() || {
        let (whole, part) = (whole.as_ptr_range(), part.as_ptr_range());
        whole.start <= part.start && part.end <= whole.end
    }
}
