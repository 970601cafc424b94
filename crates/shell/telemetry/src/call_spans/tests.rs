//! Calls as a server sees them, and their spans.

use super::*;

use strowger_calls::{CallKey, Calls, Limits};
use strowger_foundation::{Flow, ListenerId, Timestamp};
use strowger_message::{Head, Message};

use crate::span::Value;

const ALICE: &str = "192.0.2.1:5060";
const BOB: &str = "192.0.2.2:5062";
const CAROL: &str = "192.0.2.3:5062";

/// Milliseconds of a test to nanoseconds.
const fn ns(at_ms: u64) -> u64 {
    1_700_000_000_000_000_000 + at_ms * 1_000_000
}

struct Server {
    calls: CallSpans,
    /// Whether messages come over TCP.
    is_stream: bool,
}

impl Server {
    fn new() -> Self {
        Self { calls: CallSpans::new([7; 16], false), is_stream: false }
    }

    fn message(&mut self, at_ms: u64, arrow: &str, peer: &str, text: &str) {
        let text = text.replace('\n', "\r\n");
        let head = Head::scan(text.as_bytes()).expect("a head");
        let transport = if self.is_stream { Transport::Tls } else { Transport::Udp };
        let peer = peer.parse().expect("an address");
        let message = SetupMessage::read((ns(at_ms), arrow == "to"), (transport, peer), &head);
        if let Some(message) = message {
            self.calls.handle_message(&message);
        }
    }

    /// An INVITE, CANCEL or response of the first transaction in CSeq `cseq`.
    fn say(&mut self, at_ms: u64, (arrow, peer): (&str, &str), start: &str, cseq: &str, branch: &str) {
        let text = format!(
            "{start}\nVia: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bK{branch}\nFrom: <sip:alice@example.com>;tag=a\n\
             To: <sip:bob@example.com>\nCall-ID: c1\nCSeq: {cseq}\n\n"
        );
        self.message(at_ms, arrow, peer, &text);
    }

    fn invite(&mut self, at_ms: u64, arrow: (&str, &str), branch: &str) {
        self.say(at_ms, arrow, "INVITE sip:bob@example.com SIP/2.0", "1 INVITE", branch);
    }

    fn response(&mut self, at_ms: u64, arrow: (&str, &str), status: &str, branch: &str) {
        self.say(at_ms, arrow, &format!("SIP/2.0 {status}"), "1 INVITE", branch);
    }

    fn end(&mut self, record: &CallRecord) {
        let real = |at: Timestamp| ns(at.as_nanos() / 1_000_000);
        let times = RecordTimes {
            began_ns: real(record.began),
            answered_ns: record.answered.map(real),
            ended_ns: real(record.ended),
        };
        self.calls.handle_record(record, times);
    }

    fn spans(&mut self) -> Vec<Span> {
        std::iter::from_fn(|| self.calls.poll_span()).collect()
    }
}

/// Returns the record of a call that began at 0 ms: answered and ended at these times, or rejected.
fn record(answered_ms: Option<u64>, ended_ms: u64, status: u16) -> CallRecord {
    let mut calls = Calls::new(&TagKey::new([1; 16]), Limits::default());
    let text = |start: &str, method: &str, to: &str| {
        format!(
            "{start}\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\nFrom: <sip:alice@example.com>;tag=a\r\n\
             To: <sip:bob@example.com>{to}\r\nCall-ID: c1\r\nCSeq: 1 {method}\r\nContent-Length: 0\r\n\r\n"
        )
    };
    let flow = Flow::new(ListenerId(0), Transport::Tcp, ALICE.parse().expect("an address"));
    let invite = text("INVITE sip:bob@example.com SIP/2.0", "INVITE", "");
    let invite = Message::parse(invite.as_bytes()).expect("valid");
    let key: CallKey = calls.begin(Timestamp::ZERO, &invite, &flow).expect("noted");
    let bob = Flow::new(ListenerId(0), Transport::Udp, BOB.parse().expect("an address"));
    match answered_ms {
        Some(at) => {
            let answer = text("SIP/2.0 200 OK", "INVITE", ";tag=b");
            calls.handle_answer(
                Timestamp::from_millis(at),
                key,
                &Message::parse(answer.as_bytes()).expect("valid"),
                &bob,
            );
            let bye = text("BYE sip:bob@example.com SIP/2.0", "BYE", ";tag=b");
            let bye = Message::parse(bye.as_bytes()).expect("valid");
            calls.handle_bye(Timestamp::from_millis(ended_ms), &bye);
        }
        None => {
            calls.handle_failure(Timestamp::from_millis(ended_ms), key, status, Some(bob.peer));
        }
    }
    calls.poll_record().expect("ended")
}

/// A span as its name, its times in milliseconds of the test, and its status if it has one.
fn shown(spans: &[Span]) -> Vec<(&'static str, u64, u64, Option<i64>)> {
    let ms = |at: u64| (at - ns(0)) / 1_000_000;
    spans.iter().map(|span| (span.name, ms(span.start_ns), ms(span.end_ns), status(span))).collect()
}

fn attribute<'a>(span: &'a Span, name: &str) -> Option<&'a Value> {
    span.attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn status(span: &Span) -> Option<i64> {
    match attribute(span, "sip.response.status_code") {
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    }
}

#[test]
fn an_answered_call_has_its_branch_ringing_and_talking() {
    let mut server = Server::new();
    server.invite(0, ("from", ALICE), "a");
    server.response(1, ("to", ALICE), "100 Trying", "a");
    server.invite(2, ("to", BOB), "b");
    server.invite(502, ("to", BOB), "b");
    server.response(600, ("from", BOB), "180 Ringing", "b");
    server.response(601, ("to", ALICE), "180 Ringing", "a");
    server.response(3000, ("from", BOB), "200 OK", "b");
    server.response(3001, ("to", ALICE), "200 OK", "a");
    let mut spans = server.spans();
    assert_eq!(shown(&spans), [("branch", 2, 3000, Some(200)), ("ringing", 601, 3001, None)]);
    // Repeated by the callee.
    server.response(3500, ("from", BOB), "200 OK", "b");
    server.response(3501, ("to", ALICE), "200 OK", "a");
    server.end(&record(Some(3001), 9000, 200));
    let later = server.spans();
    assert_eq!(shown(&later), [("talking", 3001, 9000, None), ("call", 0, 9000, Some(200))]);
    spans.extend(later);

    let call = spans.last().expect("the call");
    assert_eq!((call.kind, call.parent_id, call.is_error), (SpanKind::Server, None, false));
    for part in &spans[..3] {
        assert_eq!((part.trace_id, part.parent_id), (call.trace_id, Some(call.span_id)), "{part:?}");
    }
    assert_eq!(attribute(call, "sip.call.end_reason"), Some(&"caller hung up".into()));
    assert_eq!(attribute(call, "sip.call_id"), Some(&"c1".into()));
    assert_eq!(attribute(call, "network.peer.address"), Some(&"192.0.2.1".into()));
    let branch = &spans[0];
    assert_eq!((branch.kind, attribute(branch, "server.address")), (SpanKind::Client, Some(&"192.0.2.2".into())));
    assert_eq!(attribute(branch, "server.port"), Some(&Value::Number(5062)));
    assert_eq!(attribute(branch, "sip.retransmissions"), Some(&Value::Number(1)));
    assert_eq!(branch.events, [SpanEvent { at_ns: ns(600), name: "ringing" }]);
    let names = |text: &str| spans.iter().any(|span| format!("{span:?}").contains(text));
    assert!(!names("alice") && !names("bob"), "no user is named");
    server.calls.handle_timeout(ns(100_000));
    assert!(server.calls.calls.is_empty(), "nothing is kept");
}

#[test]
fn users_are_named_only_where_that_is_wanted() {
    let mut server = Server { calls: CallSpans::new([7; 16], true), is_stream: false };
    server.end(&record(None, 10, 486));
    let spans = server.spans();
    assert_eq!(attribute(&spans[0], "sip.from.uri"), Some(&"sip:alice@example.com".into()));
    assert_eq!(attribute(&spans[0], "sip.request.uri"), Some(&"sip:bob@example.com".into()));
    assert!(!spans[0].is_error, "busy is no error");
}

#[test]
fn each_target_is_a_branch_and_a_silent_one_a_timeout() {
    let mut server = Server::new();
    server.is_stream = true;
    server.invite(0, ("from", ALICE), "a");
    server.invite(1, ("to", BOB), "b");
    server.invite(1, ("to", CAROL), "c");
    server.response(2, ("from", CAROL), "180 Ringing", "c");
    server.say(50, ("from", ALICE), "CANCEL sip:bob@example.com SIP/2.0", "1 CANCEL", "a");
    server.say(51, ("to", CAROL), "CANCEL sip:bob@example.com SIP/2.0", "1 CANCEL", "c");
    server.response(52, ("from", CAROL), "487 Request Terminated", "c");
    server.response(60, ("to", ALICE), "487 Request Terminated", "a");
    server.end(&record(None, 60, 487));
    let spans = server.spans();
    assert_eq!(shown(&spans), [("branch", 1, 52, Some(487)), ("call", 0, 60, Some(487))]);
    let events: Vec<_> = spans[0].events.iter().map(|event| event.name).collect();
    assert_eq!(events, ["ringing", "cancelled"]);
    assert_eq!(attribute(&spans[0], "network.transport"), Some(&"tcp".into()));
    assert_eq!(attribute(&spans[0], "sip.transport"), Some(&"tls".into()));
    server.calls.handle_timeout(ns(30_000));
    assert_eq!(server.spans(), [], "it may still answer");
    server.calls.handle_timeout(ns(41_000));
    let spans = server.spans();
    assert_eq!(shown(&spans), [("branch", 1, 60, None)]);
    assert_eq!((spans[0].is_error, attribute(&spans[0], "error.type")), (true, Some(&"timeout".into())));
    assert!(server.calls.calls.is_empty());
}

#[test]
fn a_challenge_lasts_until_the_password_comes() {
    let mut server = Server::new();
    server.invite(0, ("from", ALICE), "a");
    server.response(1, ("to", ALICE), "407 Proxy Authentication Required", "a");
    let second = "INVITE sip:bob@example.com SIP/2.0";
    server.say(80, ("from", ALICE), second, "2 INVITE", "a2");
    server.say(81, ("to", BOB), second, "2 INVITE", "b");
    server.say(90, ("from", BOB), "SIP/2.0 503 Service Unavailable", "2 INVITE", "b");
    server.say(91, ("to", ALICE), "SIP/2.0 503 Service Unavailable", "2 INVITE", "a2");
    server.end(&record(None, 91, 503));
    let spans = server.spans();
    let expected = [("challenge", 0, 80, Some(407)), ("branch", 81, 90, Some(503)), ("call", 0, 91, Some(503))];
    assert_eq!(shown(&spans), expected);
    assert!(spans[1].is_error && spans[2].is_error && !spans[0].is_error);
    assert_eq!(attribute(&spans[2], "error.type"), Some(&"503".into()));
}

#[test]
fn a_caller_that_does_not_answer_the_challenge_leaves_nothing() {
    let mut server = Server::new();
    server.invite(0, ("from", ALICE), "a");
    server.response(1, ("to", ALICE), "401 Unauthorized", "a");
    server.calls.handle_timeout(ns(41_000));
    assert_eq!(shown(&server.spans()), [("challenge", 0, 1, Some(401))]);
    assert!(server.calls.calls.is_empty());
}

#[test]
fn a_caller_may_bring_its_own_trace() {
    let mut server = Server::new();
    let invite = "INVITE sip:bob@example.com SIP/2.0\nVia: SIP/2.0/UDP a;branch=z9hG4bKa\nFrom: <sip:a@b>;tag=a\n\
         To: <sip:bob@example.com>\nCall-ID: c1\nCSeq: 1 INVITE\n\
         TraceParent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n\n";
    server.message(0, "from", ALICE, invite);
    server.invite(1, ("to", BOB), "b");
    server.response(2, ("from", BOB), "486 Busy Here", "b");
    server.response(3, ("to", ALICE), "486 Busy Here", "a");
    server.end(&record(None, 3, 486));
    let spans = server.spans();
    assert_eq!(spans.len(), 2);
    for span in &spans {
        assert_eq!(u128::from_be_bytes(span.trace_id), 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
    }
    assert_eq!(spans[1].parent_id.map(u64::from_be_bytes), Some(0xb7ad_6b71_6920_3331));
    assert_eq!(spans[0].parent_id, Some(spans[1].span_id));
}

#[test]
fn servers_on_the_way_of_a_call_share_its_trace() {
    let of = |seed: u8| {
        let mut server = Server { calls: CallSpans::new([seed; 16], false), is_stream: false };
        server.end(&record(None, 10, 404));
        server.spans().remove(0)
    };
    let (first, second) = (of(1), of(2));
    assert_eq!(first.trace_id, second.trace_id);
    assert_ne!(first.span_id, second.span_id);
}

#[test]
fn requests_within_a_call_are_not_its_setup() {
    let mut server = Server::new();
    server.invite(0, ("from", ALICE), "a");
    server.response(1, ("to", ALICE), "200 OK", "a");
    let again = "INVITE sip:alice@192.0.2.1 SIP/2.0\nVia: SIP/2.0/UDP b;branch=z9hG4bKx\nFrom: <sip:bob@example.com>;tag=b\n\
         To: <sip:alice@example.com>;tag=a\nCall-ID: c1\nCSeq: 1 INVITE\n\n";
    server.message(5, "from", BOB, again);
    server.message(6, "to", ALICE, again);
    server.response(7, ("to", BOB), "200 OK", "x");
    assert_eq!(server.spans(), []);
    server.calls.handle_timeout(ns(500_000));
    assert_eq!(server.calls.calls.len(), 1, "the call goes on");
}

#[test]
fn the_number_of_calls_is_bounded() {
    let mut server = Server::new();
    for number in 0..=MAX_CALLS {
        let text = format!(
            "INVITE sip:bob@example.com SIP/2.0\nVia: SIP/2.0/UDP a;branch=z9hG4bKa\nFrom: <sip:a@b>;tag=a\nTo: <sip:b@c>\n\
             Call-ID: {number}\nCSeq: 1 INVITE\n\n"
        );
        server.message(0, "from", ALICE, &text);
    }
    assert_eq!(
        (server.calls.calls.len(), server.calls.poll_forgotten(), server.calls.poll_forgotten()),
        (MAX_CALLS, 1, 0)
    );
    server.calls.handle_timeout(ns(100_000));
    assert!(server.calls.calls.is_empty() && server.calls.order.len() <= MAX_BRANCHES);
}
