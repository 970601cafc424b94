//! The framer finds the same messages however a stream is split, and never one that was not sent.

use proptest::prelude::*;
use strowger_message::{Fault, MAX_STREAM_MESSAGE};

use crate::framing::{Frame, StreamFramer};

/// Frames read from a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Brought {
    messages: Vec<Vec<u8>>,
    pings: usize,
    fault: Option<Fault>,
}

/// Reads a stream as a connection does: keeps incomplete input and parses again when enough has arrived.
fn read<'a>(segments: impl Iterator<Item = &'a [u8]>) -> Brought {
    let (mut brought, mut cutter, mut kept, mut needed) = (Brought::default(), StreamFramer::default(), Vec::new(), 0);
    for segment in segments {
        kept.extend_from_slice(segment);
        if kept.len() < needed {
            continue;
        }
        let mut at = 0;
        while at < kept.len() {
            match cutter.next(&kept[at..]) {
                Frame::Message(length) => {
                    brought.messages.push(kept[at..at + length].to_vec());
                    at += length;
                }
                Frame::Blank { length, is_ping } => {
                    brought.pings += usize::from(is_ping);
                    at += length;
                }
                Frame::More(more) => {
                    assert!(more > kept.len() - at, "there is more to wait for");
                    needed = more;
                    break;
                }
                Frame::Broken(fault) => {
                    brought.fault = Some(fault);
                    return brought;
                }
            }
        }
        kept.drain(..at);
        if kept.is_empty() {
            needed = 0;
        }
        assert!(kept.len() <= MAX_STREAM_MESSAGE);
    }
    brought
}

fn split<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

fn message(call_id: &str, length_name: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "MESSAGE sip:a@example.com SIP/2.0\r\nVia: SIP/2.0/TCP x;branch=z9hG4bK{call_id}\r\nCall-ID: {call_id}\r\n\
         {length_name}: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Bodies that resemble the start or end of a message.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let smuggled = message("smuggled", "Content-Length", b"evil");
    prop_oneof![
        Just(Vec::new()),
        Just(b"\r\n\r\n".to_vec()),
        Just(smuggled.clone()),
        Just([b"\r\n\r\n".as_slice(), &smuggled].concat()),
        proptest::collection::vec(any::<u8>(), 0..300),
        Just(b"Content-Length: 5\r\n\r\n".to_vec()),
    ]
}

fn between() -> impl Strategy<Value = &'static [u8]> {
    prop_oneof![Just(b"".as_slice()), Just(b"\r\n".as_slice()), Just(b"\r\n\r\n".as_slice())]
}

proptest! {
    #[test]
    fn split_streams_yield_the_same_messages(
        parts in proptest::collection::vec((between(), "[a-z]{1,9}", prop_oneof![Just("l"), Just("Content-Length")], body()), 0..6),
        cuts in proptest::collection::vec(any::<usize>(), 0..40),
    ) {
        let mut expected = Brought::default();
        let mut stream = Vec::new();
        for (between, call_id, name, body) in &parts {
            stream.extend_from_slice(between);
            expected.pings += usize::from(between.len() == 4);
            let message = message(call_id, name, body);
            stream.extend_from_slice(&message);
            expected.messages.push(message);
        }
        prop_assert_eq!(read(std::iter::once(stream.as_slice())), expected.clone(), "at once");
        prop_assert_eq!(read(split(&stream, &cuts).into_iter()), expected.clone(), "split");
        prop_assert_eq!(read(stream.chunks(1)), expected, "byte by byte");
    }

    #[test]
    fn no_message_is_read_after_an_invalid_content_length(
        doubtful in prop_oneof![
            Just(""), Just("Content-Length: -1\r\n"), Just("Content-Length: 5\r\nl: 5\r\n"),
            Just("Content-Length: 0\r\nContent-Length: 0\r\n"), Just("Content-Length: 0x5\r\n"), Just("l: 5 5\r\n"),
            Just("Content-Length: 67108864\r\n"), Just("Content-Length: 18446744073709551621\r\n"), Just("l:\r\n"),
        ],
        body in body(),
        cuts in proptest::collection::vec(any::<usize>(), 0..40),
    ) {
        let sound = message("first", "l", b"");
        let head = format!("MESSAGE sip:a@example.com SIP/2.0\r\nCall-ID: x\r\n{doubtful}\r\n");
        let stream = [sound.as_slice(), head.as_bytes(), &body, &message("last", "l", b"")].concat();
        for brought in [read(std::iter::once(stream.as_slice())), read(split(&stream, &cuts).into_iter()), read(stream.chunks(1))] {
            prop_assert_eq!(&brought.messages, &vec![sound.clone()]);
            prop_assert!(brought.fault.is_some());
        }
    }

    #[test]
    fn any_bytes_parse_the_same_however_they_are_split(
        bytes in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b':'), Just(b'l'), any::<u8>()], 0..200),
        cuts in proptest::collection::vec(any::<usize>(), 0..20),
    ) {
        let whole = read(std::iter::once(bytes.as_slice()));
        let parts = read(split(&bytes, &cuts).into_iter());
        prop_assert_eq!(whole.messages, parts.messages);
        prop_assert_eq!(whole.fault, parts.fault);
    }
}

#[test]
fn a_partial_body_reports_the_full_length() {
    let whole = message("x", "l", &[b'b'; 1000]);
    let head = whole.len() - 1000;
    assert_eq!(StreamFramer::default().next(&whole[..head]), Frame::More(whole.len()));
    assert_eq!(StreamFramer::default().next(&whole[..head - 1]), Frame::More(head));
    assert_eq!(StreamFramer::default().next(&whole), Frame::Message(whole.len()));
}
