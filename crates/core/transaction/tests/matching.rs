//! Matching of requests to transactions (RFC 3261 §17.2.3, §9.2).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use strowger_foundation::{Flow, ListenerId, TagKey, Timestamp, Transport};
use strowger_message::{Head, Kind as PeekKind, Peek, ResponseBuilder, Status};
use strowger_transaction::{AckVerdict, Kind, NO_USER, RequestFingerprint, ServerKey, Timing, Transactions};

const INVITE: &str = "INVITE sip:bob@b SIP/2.0\r\nVia: SIP/2.0/UDP a.example;branch=z9hG4bK77\r\n\
    From: <sip:alice@a>;tag=1\r\nTo: <sip:bob@b>\r\nCall-ID: c1\r\nCSeq: 7 INVITE\r\n\r\n";

/// The key as computed before the message is parsed.
fn key(text: &str) -> ServerKey {
    let peek = Peek::read(text.as_bytes()).expect("has a head");
    let PeekKind::Request(method) = peek.kind else { panic!("a request") };
    ServerKey::of(&TagKey::new([1; 16]), peek.head(), &peek.via.expect("has a Via"), method)
}

fn cancelled(text: &str) -> ServerKey {
    let peek = Peek::read(text.as_bytes()).expect("has a head");
    ServerKey::of_cancelled_invite(&TagKey::new([1; 16]), peek.head(), &peek.via.expect("has a Via"))
}

#[test]
fn by_branch_sent_by_and_method() {
    assert_eq!(key(INVITE), key(&INVITE.replace("c1", "c2")), "the rest does not matter");
    assert_eq!(key(INVITE), key(&INVITE.replace("a.example", "A.Example")));
    assert_eq!(key(INVITE), key(&INVITE.replace("INVITE", "ACK").replace("sip:bob@b>", "sip:bob@b>;tag=2")));
    for other in [
        INVITE.replace("z9hG4bK77", "z9hG4bK78"),
        INVITE.replace("a.example", "b.example"),
        INVITE.replace("a.example", "a.example:5070"),
        INVITE.replace("INVITE", "OPTIONS"),
        INVITE.replace("INVITE", "CANCEL"),
    ] {
        assert_ne!(key(INVITE), key(&other), "{other}");
    }
    assert_eq!(key(INVITE), cancelled(&INVITE.replace("INVITE", "CANCEL")));
}

#[test]
fn by_fields_without_a_magic_cookie() {
    for branch in [";branch=77", "", ";branch=z9hG4bK"] {
        let invite = INVITE.replace(";branch=z9hG4bK77", branch);
        let ack = invite.replace("INVITE", "ACK").replace("sip:bob@b>", "sip:bob@b>;tag=2");
        assert_eq!(key(&invite), key(&ack));
        assert_eq!(key(&invite), cancelled(&invite.replace("INVITE", "CANCEL")));
        for other in [
            invite.replace("INVITE sip:bob@b", "INVITE sip:rob@b"),
            invite.replace("tag=1", "tag=2"),
            invite.replace("c1", "c2"),
            invite.replace("CSeq: 7", "CSeq: 8"),
            invite.replace("a.example", "a.example;x"),
            invite.replace("INVITE", "OPTIONS"),
        ] {
            assert_ne!(key(&invite), key(&other), "{other}");
        }
    }
}

#[test]
fn an_rfc2543_ack_must_have_the_responses_to_tag() {
    let invite = INVITE.replace("z9hG4bK", "");
    let mut layer = Transactions::new(Timing::default(), 1);
    let flow = Flow::new(ListenerId(0), Transport::Udp, "192.0.2.1:5060".parse().expect("an address"));
    let id = layer.open_server(Timestamp::ZERO, key(&invite), Kind::Invite, flow, NO_USER).expect("room");
    let busy = "SIP/2.0 486 Busy\r\nTo: <sip:bob@b>;tag=2\r\n\r\n";
    layer.respond(Timestamp::ZERO, id, Status::BUSY_HERE, busy.into());
    let matches = |layer: &Transactions, tag: &str| {
        let ack = invite.replace("INVITE", "ACK").replace("sip:bob@b>", tag);
        layer.ack_matches(id, &Head::scan(ack.as_bytes()).expect("valid"))
    };
    assert!(matches(&layer, "sip:bob@b>;tag=2"));
    assert!(!matches(&layer, "sip:bob@b>;tag=3"));
    assert!(!matches(&layer, "sip:bob@b>"));
}

//= rfc6026#7.1:old-ack
#[test]
fn an_rfc2543_ack_to_a_2xx_goes_to_the_user() {
    let invite = INVITE.replace("z9hG4bK", "");
    let mut layer = Transactions::new(Timing::default(), 1);
    let flow = Flow::new(ListenerId(0), Transport::Udp, "192.0.2.1:5060".parse().expect("an address"));
    let id = layer.open_server(Timestamp::ZERO, key(&invite), Kind::Invite, flow, NO_USER).expect("room");
    layer.respond(Timestamp::ZERO, id, Status::OK, "SIP/2.0 200 OK\r\nTo: <sip:bob@b>;tag=2\r\n\r\n".into());
    let ack = invite.replace("INVITE", "ACK").replace("sip:bob@b>", "sip:bob@b>;tag=2");
    assert_eq!(layer.find_server(key(&ack)), Some(id));
    assert!(layer.ack_matches(id, &Head::scan(ack.as_bytes()).expect("valid")));
    assert_eq!(layer.handle_ack(Timestamp::ZERO, id), AckVerdict::ToUser);
}

#[test]
fn a_used_key_returns_its_transaction() {
    let mut layer = Transactions::new(Timing::default(), 1);
    let flow = Flow::new(ListenerId(0), Transport::Udp, "192.0.2.1:5060".parse().expect("an address"));
    assert_eq!(layer.find_server(key(INVITE)), None);
    let id = layer.open_server(Timestamp::ZERO, key(INVITE), Kind::Invite, flow, 1).expect("room");
    assert_eq!(layer.open_server(Timestamp::ZERO, key(INVITE), Kind::Invite, flow, 2), Ok(id));
    assert_eq!((layer.find_server(key(INVITE)), layer.servers(), layer.server_user(id)), (Some(id), 1, Some(1)));
}

fn mark(text: &str) -> Option<RequestFingerprint> {
    RequestFingerprint::of_head(&TagKey::new([1; 16]), &Head::scan(text.as_bytes()).expect("valid"))
}

#[test]
fn requests_with_one_key_differ_by_call_id_and_cseq() {
    assert_eq!(mark(INVITE), Some(RequestFingerprint::of(&TagKey::new([1; 16]), b"c1", 7)));
    assert_eq!(mark(INVITE), mark(&INVITE.replace("CSeq: 7", "CSeq: 007").replace("Call-ID", "i")));
    for (from, to) in [("c1", "c2"), ("CSeq: 7", "CSeq: 6"), ("CSeq: 7", "CSeq: 4294967303"), ("CSeq: 7", "CSeq:")] {
        let other = INVITE.replace(from, to);
        assert_eq!(key(INVITE), key(&other));
        assert_ne!(mark(INVITE), mark(&other), "{other}");
    }
}

#[test]
fn a_udp_transaction_keeps_only_the_responses_own_parts() {
    let options = INVITE.replace("INVITE", "OPTIONS");
    for (transport, kept) in [(Transport::Udp, Some(&b"200 OK\r\nAllow: OPTIONS\r\n"[..])), (Transport::Tcp, None)] {
        let mut layer = Transactions::new(Timing::default(), 1);
        let flow = Flow::new(ListenerId(0), transport, "192.0.2.1:5060".parse().expect("an address"));
        let id = layer.open_server(Timestamp::ZERO, key(&options), Kind::NonInvite, flow, NO_USER).expect("room");
        assert_eq!(layer.cached_own_response(id), None);
        let (head, mark) = (Head::scan(options.as_bytes()).expect("valid"), mark(&options).expect("has a CSeq"));
        let mut answer = Vec::new();
        let reply = ResponseBuilder::begin(&mut answer, &head, Status::OK, "OK", b"t", None);
        let own = reply.header("Allow", &[b"OPTIONS"]).finish();
        layer.respond_own(Timestamp::ZERO, id, Status::OK, answer.clone(), (own, mark));
        let mut out = Vec::new();
        assert_eq!((layer.poll_transmit(&mut out), &out), (Some(flow), &answer));
        let found = layer.find_server(key(&options));
        assert_eq!(found.and_then(|id| layer.cached_own_response(id)), kept.map(|kept| (mark, kept)));
        layer.check_invariants();
        let elsewhere = Flow { listener: ListenerId(1), ..flow };
        layer.resend_own_response(elsewhere, answer.clone());
        assert_eq!((layer.poll_transmit(&mut out), &out), (Some(elsewhere), &answer));
        assert_eq!(layer.counters().response_retransmissions, 1);
    }
}
