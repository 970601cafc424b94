//! Phones behind NAT: requests go to the source of the REGISTER, and keep-alives keep the NAT binding open.

mod support;

use std::time::Duration;

use strowger_foundation::{Flow, ListenerId, Transport};
use strowger_proxy::flow_token;
use strowger_registrar::{KeepAlive, Nat};
use strowger_shard::{Input, Snapshot};
use support::{ALICE, BOB, SERVER, SentMessage, World, request, summary};

/// The public address of the NAT.
const OUTSIDE: &str = "203.0.113.7:40123";

fn registration(number: u32) -> String {
    let branch = if number == 1 { "nat".to_owned() } else { format!("nat{number}") };
    format!(
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.5:5060;branch=z9hG4bK{branch};rport\r\n\
         Max-Forwards: 70\r\nFrom: <sip:bob@example.com>;tag=r\r\nTo: <sip:bob@example.com>\r\nCall-ID: nat\r\n\
         CSeq: {number} REGISTER\r\nContact: <sip:bob@10.0.0.5:5060;ob>\r\nExpires: 300\r\nContent-Length: 0\r\n\r\n"
    )
}

/// Registers Bob's phone through the NAT; the phone's own address is 10.0.0.5.
fn register(world: &mut World) {
    let sent = world.input(OUTSIDE, &registration(1));
    assert_eq!(summary(&sent), [format!("200 {OUTSIDE}")], "the answer goes through the translation too");
    assert_eq!(
        sent[0].header("Via"),
        Some("SIP/2.0/UDP 10.0.0.5:5060;branch=z9hG4bKnat;rport=40123;received=203.0.113.7")
    );
}

fn world(edit: impl FnOnce(&mut Snapshot)) -> World {
    let mut world = World::new(edit);
    register(&mut world);
    world
}

fn invite(world: &mut World) -> SentMessage {
    world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", "")).remove(1)
}

#[test]
fn a_call_goes_to_the_nat_address_with_the_contact() {
    let mut world = world(|_| {});
    let invite = invite(&mut world);
    assert_eq!(invite.to.to_string(), OUTSIDE);
    assert_eq!(invite.start(), "INVITE sip:bob@10.0.0.5:5060;ob SIP/2.0");
}

#[test]
fn nat_mode_is_configurable() {
    let mut never = world(|s| s.registrar.nat = Nat::Never);
    assert_eq!(invite(&mut never).to.to_string(), "10.0.0.5:5060");
    let mut always = World::new(|s| s.registrar.nat = Nat::Always);
    always.register("bob", BOB, "<sip:bob@192.0.2.20:5070>");
    assert_eq!(invite(&mut always).to.to_string(), BOB);
    let mut auto = World::new(|_| {});
    auto.register("bob", BOB, "<sip:bob@192.0.2.20:5070>");
    assert_eq!(invite(&mut auto).to.to_string(), "192.0.2.20:5070", "no translation, so the contact's own port");
}

#[test]
fn in_dialog_requests_go_through_the_nat_too() {
    let mut world = world(|_| {});
    let invite = invite(&mut world);
    let contact = "Contact: <sip:bob@10.0.0.5:5060;ob>\r\n";
    let answer = world.input(OUTSIDE, &invite.response(200, "OK", ";tag=b", contact));
    assert_eq!(summary(&answer), [format!("200 {ALICE}")]);
    let route = answer[0].header("Record-Route").expect("recorded").to_owned();
    for (method, number) in [("ACK", 1), ("INVITE", 2), ("ACK", 2), ("BYE", 3)] {
        let text =
            request(method, "sip:bob@10.0.0.5:5060;ob", &format!("{method}{number}"), &format!("Route: {route}\r\n"))
                .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b")
                .replace("CSeq: 1", &format!("CSeq: {number}"));
        let sent = world.input(ALICE, &text);
        let forwarded = sent.iter().find(|s| s.method() == method).expect("forwarded");
        assert_eq!(forwarded.to.to_string(), OUTSIDE, "{method}");
        assert_eq!(forwarded.start(), format!("{method} sip:bob@10.0.0.5:5060;ob SIP/2.0"));
    }
    // Bob hangs up: Alice is reached at her own address.
    let bye = format!(
        "BYE sip:alice@{ALICE} SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.5:5060;branch=z9hG4bKbobs;rport\r\nMax-Forwards: 70\r\n\
         Route: {route}\r\nFrom: <sip:bob@example.com>;tag=b\r\nTo: <sip:alice@example.com>;tag=a\r\n\
         Call-ID: call-1@alice\r\nCSeq: 1 BYE\r\nContent-Length: 0\r\n\r\n"
    );
    assert_eq!(summary(&world.input(OUTSIDE, &bye)), [format!("BYE {ALICE}")]);
}

#[test]
fn in_dialog_routing_cannot_be_forged() {
    let mut world = world(|_| {});
    let invite = invite(&mut world);
    let answer = world.input(OUTSIDE, &invite.response(200, "OK", ";tag=b", ""));
    let route = answer[0].header("Record-Route").expect("recorded");
    let (before, token) = route.split_once("callee=").expect("Bob is behind a translation");
    let other = "198.51.100.66:5060".parse().expect("an address");
    let forged = flow_token::encode(&Flow::new(ListenerId(0), Transport::Udp, other));
    let forged = String::from_utf8(forged.to_vec()).expect("text");
    assert_eq!(forged.len(), token.trim_end_matches('>').len(), "another flow in the same form");
    let route = format!("{before}callee={forged}>");
    let text = request("BYE", "sip:bob@10.0.0.5:5060;ob", "bye", &format!("Route: {route}\r\n"))
        .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b");
    assert_eq!(summary(&world.input(ALICE, &text)), [format!("404 {ALICE}")]);
}

#[test]
fn a_caller_behind_nat_is_reached_too() {
    let mut world = World::new(|_| {});
    world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
    let hide = |text: String| text.replace(ALICE, "10.0.0.9:5060").replace(";branch", ";rport;branch");
    let sent = world.input(OUTSIDE, &hide(request("INVITE", "sip:bob@example.com", "inv", "")));
    assert_eq!(summary(&sent), [format!("100 {OUTSIDE}"), format!("INVITE {BOB}")]);
    let route = sent[1].header("Record-Route").expect("recorded").to_owned();
    let answer = world.input(BOB, &sent[1].response(200, "OK", ";tag=b", ""));
    assert_eq!(summary(&answer), [format!("200 {OUTSIDE}")]);
    let ack = request("ACK", "sip:bob@192.0.2.20:5060", "ack", &format!("Route: {route}\r\n"))
        .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b");
    assert_eq!(summary(&world.input(OUTSIDE, &hide(ack))), [format!("ACK {BOB}")]);
    let bye = format!(
        "BYE sip:alice@10.0.0.9:5060 SIP/2.0\r\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bKbobs\r\nMax-Forwards: 70\r\n\
         Route: {route}\r\nFrom: <sip:bob@example.com>;tag=b\r\nTo: <sip:alice@example.com>;tag=a\r\n\
         Call-ID: call-1@alice\r\nCSeq: 1 BYE\r\nContent-Length: 0\r\n\r\n"
    );
    assert_eq!(summary(&world.input(BOB, &bye)), [format!("BYE {OUTSIDE}")]);
}

/// Returns the keep-alives of five minutes: their times in milliseconds and the messages.
fn kept_open(world: &mut World) -> (Vec<u64>, Vec<SentMessage>) {
    let sent = world.wait(Duration::from_secs(290));
    assert!(sent.iter().all(|(_, sent)| sent.to.to_string() == OUTSIDE));
    sent.into_iter().unzip()
}

fn assert_regular(moments: &[u64], interval_ms: u64, count: usize) {
    assert!(moments.len() >= count, "{moments:?}");
    assert!(moments[0] <= interval_ms + 10, "{moments:?}");
    for pair in moments.windows(2) {
        assert!((pair[1] - pair[0]).abs_diff(interval_ms) <= 20, "{moments:?}");
    }
}

#[test]
fn crlf_keep_alives_keep_the_nat_open() {
    let mut world = world(|_| {});
    let (moments, sent) = kept_open(&mut world);
    assert_regular(&moments, 30_000, 9);
    assert!(sent.iter().all(|sent| sent.text == "\r\n\r\n"));
    assert_eq!(world.shard.counters().keep_alives, sent.len() as u64);
    assert!(world.wait(Duration::from_secs(100)).is_empty(), "the binding has ended, and the keep-alives with it");
}

#[test]
fn a_process_that_has_been_replaced_sends_no_keep_alives() {
    let mut world = world(|_| {});
    let (_, sent) = kept_open(&mut world);
    assert!(!sent.is_empty());
    assert!(world.give(Input::HandedOver).is_empty());
    let (_, sent) = kept_open(&mut world);
    assert!(sent.is_empty(), "{sent:?}");
}

#[test]
fn options_keep_the_nat_open_and_their_responses_are_dropped() {
    let mut world = world(|s| {
        s.registrar.keep_alive = KeepAlive::Options;
        s.registrar.keep_alive_interval = Duration::from_secs(60);
    });
    let (moments, sent) = kept_open(&mut world);
    assert_regular(&moments, 60_000, 4);
    for options in &sent {
        assert_eq!(options.start(), "OPTIONS sip:bob@10.0.0.5:5060;ob SIP/2.0");
        assert!(
            options.header("Via").is_some_and(|via| via.starts_with(&format!("SIP/2.0/UDP {SERVER};branch=z9hG4bK")))
        );
        for status in [200, 404, 501] {
            assert!(world.input(OUTSIDE, &options.response(status, "Whatever", ";tag=o", "")).is_empty());
        }
    }
    let branches: std::collections::BTreeSet<_> = sent.iter().filter_map(|sent| sent.header("Via")).collect();
    assert_eq!(branches.len(), sent.len(), "each is a transaction of its own");
    let counters = world.shard.counters();
    assert_eq!(counters.keep_alive_answers, 3 * sent.len() as u64);
    assert_eq!((counters.stray_responses, counters.foreign_responses, counters.malformed), (0, 0, 0));
    assert_eq!(world.events, []);
    assert_eq!(world.shard.transactions(), 0);
}

#[test]
fn keep_alives_are_not_sent_when_off_or_not_needed() {
    let mut off = world(|s| s.registrar.keep_alive = KeepAlive::Off);
    assert!(kept_open(&mut off).1.is_empty());
    let mut open = World::new(|_| {});
    open.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
    assert!(open.wait(Duration::from_secs(300)).is_empty());
    let mut changed = world(|_| {});
    changed.configure(|s| s.registrar.keep_alive = KeepAlive::Off);
    assert!(kept_open(&mut changed).1.is_empty(), "switched off while the phone is registered");
}

/// An hour behind a NAT that closes after 40 s without a packet from inside or to it.
#[test]
fn the_nat_stays_open_for_an_hour() {
    const CLOSES_AFTER: u64 = 40_000;
    let mut world = world(|s| s.registrar.keep_alive = KeepAlive::Options);
    let mut silent_since = 0;
    for minutes in (0..60u32).step_by(4) {
        let begin = u64::from(minutes) * 60_000;
        for (at, sent) in world.wait(Duration::from_secs(240)) {
            assert_eq!((sent.method(), sent.to.to_string()), ("OPTIONS", OUTSIDE.to_owned()));
            let at = begin + at;
            assert!(at - silent_since < CLOSES_AFTER, "silent from {silent_since} to {at} ms");
            silent_since = at;
            assert!(world.input(OUTSIDE, &sent.response(200, "OK", ";tag=k", "")).is_empty());
        }
        let refreshed = world.input(OUTSIDE, &registration(minutes + 2));
        assert_eq!(summary(&refreshed), [format!("200 {OUTSIDE}")]);
        silent_since = begin + 240_000;
    }
    assert_eq!(invite(&mut world).to.to_string(), OUTSIDE);
}
