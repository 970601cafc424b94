//! Properties of all messages, tested on generated ones.

#[path = "../../../../fuzz/src/bodies.rs"]
#[allow(unreachable_pub, dead_code, reason = "shared with the fuzz targets, where it is a library's module")]
mod bodies;
mod support;

use proptest::collection::vec;
use proptest::prelude::*;
use strowger_message::{FrameResult, Head, Host, Message, Peek, Rewrite, Uri, frame_stream};

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_valid_request_parses_as_generated(wanted in support::request()) {
        let message = Message::parse(&wanted.bytes).map_err(|(fault, _)| TestCaseError::fail(format!("{fault}: {}", String::from_utf8_lossy(&wanted.bytes))))?;
        prop_assert_eq!(message.method().as_bytes(), wanted.method.as_bytes());
        prop_assert_eq!(message.request_uri(), wanted.uri.as_bytes());
        prop_assert_eq!(message.via().branch, Some(wanted.branch.as_bytes()));
        prop_assert_eq!(message.from().tag(), Some(wanted.from_tag.as_bytes()));
        prop_assert_eq!(message.to().tag(), wanted.to_tag.as_deref().map(str::as_bytes));
        prop_assert_eq!(message.call_id(), wanted.call_id.as_bytes());
        prop_assert_eq!(message.cseq().number, wanted.cseq);
        prop_assert_eq!(message.max_forwards(), wanted.max_forwards);
        prop_assert_eq!(message.body(), &wanted.body[..]);
        let head = message.head();
        let read: Vec<_> = head.fields().iter().map(|field| (field.name, head.value(field).to_vec())).collect();
        prop_assert_eq!(read, wanted.fields);
        let peek = Peek::read(&wanted.bytes).expect("parsed");
        prop_assert!(peek.in_dialog || wanted.to_tag.is_none());
        bodies::message(&wanted.bytes);
    }

    #[test]
    fn unedited_parts_keep_their_bytes(request in support::request(), seeds in vec((any::<u16>(), 0usize..8, vec(any::<u8>(), 0..8)), 0..8)) {
        let original = &request.bytes;
        let mut edits: Vec<_> = seeds.into_iter().map(|(at, remove, text)| (usize::from(at) % original.len(), remove, text)).collect();
        edits.sort_by_key(|edit| edit.0);
        edits.dedup_by(|b, a| b.0 < a.0 + a.1.max(1));
        edits.retain(|(at, remove, _)| at + remove <= original.len());
        let mut wanted = Vec::new();
        let mut from = 0;
        for (at, remove, text) in &edits {
            wanted.extend_from_slice(&original[from..*at]);
            wanted.extend_from_slice(text);
            from = at + remove;
        }
        wanted.extend_from_slice(&original[from..]);
        let head = Head::scan(original).expect("a request");
        let mut out = Vec::new();
        let mut copy = Rewrite::new(&head, &mut out);
        for (at, remove, text) in &edits {
            copy.copy_to(*at).remove(&original[*at..at + remove]).add(&[text]);
        }
        copy.finish();
        prop_assert_eq!(out, wanted);
    }

    #[test]
    fn any_bytes_never_panic(data in vec(any::<u8>(), 0..300)) {
        bodies::ALL.iter().for_each(|(_, body)| body(&data));
    }

    /// Text that is almost SIP reaches deeper than random bytes.
    #[test]
    fn sip_like_text_never_panics(data in "([;,:<>\"\\\\@=?&%/. \t\r\n\\[\\]]|sip:|SIP/2.0|tag|branch|INVITE|Via: |To: |l: |\r\n|[a-z0-9é]){0,60}") {
        bodies::ALL.iter().for_each(|(_, body)| body(data.as_bytes()));
    }

    #[test]
    fn damaged_requests_never_panic(request in support::request(), hits in vec((any::<u16>(), any::<u8>(), any::<bool>()), 1..6)) {
        let mut data = request.bytes;
        for (at, byte, insert) in hits {
            let at = usize::from(at) % data.len();
            if insert { data.insert(at, byte) } else { data[at] = byte }
        }
        bodies::message(&data);
        bodies::framer(&data);
    }

    #[test]
    fn framing_does_not_depend_on_chunking(requests in vec(support::request(), 1..4), cuts in vec(1usize..200, 1..40)) {
        let wanted: Vec<_> = requests.into_iter().filter_map(|request| framed(request.bytes, &request.body)).collect();
        let stream = wanted.join(&b"\r\n\r\n"[..]);
        let (mut got, mut buffer, mut sent) = (Vec::new(), Vec::new(), 0);
        for cut in cuts.iter().cycle() {
            if sent == stream.len() {
                break;
            }
            let end = (sent + cut).min(stream.len());
            buffer.extend_from_slice(&stream[sent..end]);
            sent = end;
            drain(&mut buffer, &mut got)?;
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(got, wanted);
    }

    #[test]
    fn uri_comparison_is_reflexive_and_symmetric(a in support::uri(), b in support::uri(), respell in any::<bool>()) {
        let b = if respell { a.replace("%4a", "%4A").to_owned() } else { b };
        bodies::uri(format!("{a}\n{b}").as_bytes());
        let parsed = Uri::parse(a.as_bytes());
        prop_assert!(parsed.is_some(), "{} is valid", a);
        prop_assert!(!respell || parsed.zip(Uri::parse(b.as_bytes())).is_some_and(|(a, b)| a.same(&b)));
    }

    #[test]
    fn ipv6_parses_like_the_standard_library(ip in any::<[u8; 16]>()) {
        let ip = std::net::Ipv6Addr::from(ip);
        let text = format!("[{ip}]");
        prop_assert_eq!(Host::parse(text.as_bytes()), Some(Host::Ip(ip.into())));
    }
}

/// Returns the request as sent on a stream, where Content-Length is required; `None` if the generator omitted it.
fn framed(bytes: Vec<u8>, body: &[u8]) -> Option<Vec<u8>> {
    match frame_stream(&bytes) {
        FrameResult::Message(length) => (length == bytes.len()).then_some(bytes),
        _ => {
            let at = bytes.len() - body.len() - 2;
            let line = format!("l: {}\r\n", body.len());
            Some([&bytes[..at], line.as_bytes(), &bytes[at..]].concat())
        }
    }
}

fn drain(buffer: &mut Vec<u8>, got: &mut Vec<Vec<u8>>) -> Result<(), TestCaseError> {
    while !buffer.is_empty() {
        match frame_stream(buffer) {
            FrameResult::Incomplete => break,
            FrameResult::KeepAlive(length) => drop(buffer.drain(..length)),
            FrameResult::Message(length) => got.push(buffer.drain(..length).collect()),
            FrameResult::Malformed(fault) => return Err(TestCaseError::fail(fault.to_string())),
        }
    }
    Ok(())
}
