//! Who offers and who answers (RFC 3261 §13.2.1, RFC 3262 §5, RFC 3311).

use std::time::Duration;

use crate::engine::{body, command, commands, request, response, routed, sdp, world};
use crate::support::{ALICE, BOB, SentMessage, World, find, summary};

/// A call that Bob has answered, with its descriptions through the engine.
fn answered_call(world: &mut World) -> SentMessage {
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let offer = command(world);
    let invite = find(&offer.answer(world), "INVITE");
    world.input(BOB, &response(&invite, 200, "b", &sdp("bob")));
    let answer = command(world);
    assert_eq!(summary(&answer.answer(world)), [format!("200 {ALICE}")]);
    world.input(ALICE, &routed(&invite, &request("ACK", 1, "b", "")));
    invite
}

/// A request of Bob in the dialog.
fn from_bob(method: &str, cseq: u32, sdp: &str) -> String {
    let kind = if sdp.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
    format!(
        "{method} sip:alice@{ALICE} SIP/2.0\r\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bKb{method}{cseq}\r\n\
         Max-Forwards: 70\r\nFrom: <sip:bob@example.com>;tag=b\r\nTo: <sip:alice@example.com>;tag=a\r\n\
         Call-ID: call-1@alice\r\nCSeq: {cseq} {method}\r\nContact: <sip:bob@{BOB}>\r\n{kind}\
         Content-Length: {}\r\n\r\n{sdp}",
        sdp.len()
    )
}

#[test]
fn without_an_offer_in_the_invite_the_200_has_it_and_the_ack_the_answer() {
    let mut world = world(|_| {});
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let invite = find(&world.input(ALICE, &request("INVITE", 1, "", "")), "INVITE");
    assert!(commands(&mut world).is_empty(), "there is no description yet");
    let ok = response(&invite, 200, "b", &sdp("bob"));
    assert!(world.input(BOB, &ok).is_empty());
    let offer = command(&mut world);
    assert_eq!(offer.summary(), "offer b a", "Bob offers");
    let answered = offer.answer(&mut world);
    assert_eq!(body(&answered[0]), offer.result());
    // A repeated 200 has the same offer.
    assert_eq!(body(&world.input(BOB, &ok)[0]), offer.result());

    let ack = routed(&invite, &request("ACK", 1, "b", &sdp("alice")));
    assert!(world.input(ALICE, &ack).is_empty(), "the ACK waits");
    assert!(world.input(ALICE, &ack).is_empty(), "and so does the next");
    let answer = command(&mut world);
    assert_eq!(answer.summary(), "answer b a");
    let sent = answer.answer(&mut world);
    assert_eq!((summary(&sent), body(&sent[0])), (vec![format!("ACK {BOB}")], &*answer.result()));
    let again = world.input(ALICE, &ack);
    assert_eq!((summary(&again), body(&again[0])), (vec![format!("ACK {BOB}")], &*answer.result()));
    assert!(commands(&mut world).is_empty());
}

#[test]
fn either_party_may_offer_again() {
    let mut world = world(|_| {});
    let invite = answered_call(&mut world);
    for (from, to, text, offerer, answerer) in [
        (BOB, ALICE, from_bob("INVITE", 7, &sdp("hold")), "b", "a"),
        (ALICE, BOB, request("INVITE", 2, "b", &sdp("again")), "a", "b"),
        (BOB, ALICE, from_bob("UPDATE", 8, &sdp("more")), "b", "a"),
    ] {
        world.input(from, &routed(&invite, &text));
        let offer = command(&mut world);
        assert_eq!(offer.summary(), format!("offer {offerer} {answerer}"), "in the dialog");
        let sent = offer.answer(&mut world);
        let forwarded = sent.iter().find(|sent| sent.to.to_string() == to).expect("forwarded");
        assert_eq!(body(forwarded), offer.result());
        assert!(world.input(to, &response(forwarded, 200, answerer, &sdp("yes"))).is_empty());
        let answer = command(&mut world);
        assert_eq!(answer.summary(), format!("answer {offerer} {answerer}"));
        let sent = answer.answer(&mut world);
        assert_eq!((summary(&sent), body(&sent[0])), (vec![format!("200 {from}")], &*answer.result()));
        world.wait(Duration::from_millis(100));
    }
    // Bob hangs up.
    world.input(BOB, &routed(&invite, &from_bob("BYE", 9, "")));
    assert_eq!(command(&mut world).summary(), "delete a");
}

#[test]
fn a_refused_new_offer_leaves_the_call() {
    let mut world = world(|_| {});
    let invite = answered_call(&mut world);
    world.input(ALICE, &routed(&invite, &request("INVITE", 2, "b", &sdp("video"))));
    let offer = command(&mut world);
    let again = find(&offer.answer(&mut world), "INVITE");
    let refused = world.input(BOB, &response(&again, 488, "b", ""));
    assert_eq!(summary(&refused)[1..], [format!("488 {ALICE}")]);
    world.wait(Duration::from_millis(100));
    assert!(commands(&mut world).is_empty(), "the call goes on");
}

//= rfc3262#5
#[test]
fn a_prack_answers_the_offer_of_a_reliable_response_or_offers_itself() {
    let mut world = world(|_| {});
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let invite = find(&world.input(ALICE, &request("INVITE", 1, "", "")), "INVITE");
    assert!(world.input(BOB, &response(&invite, 183, "b", &sdp("bob"))).is_empty());
    let offer = command(&mut world);
    assert_eq!(offer.summary(), "offer b a");
    assert_eq!(summary(&offer.answer(&mut world)), [format!("183 {ALICE}")]);
    assert!(world.input(ALICE, &routed(&invite, &request("PRACK", 2, "b", &sdp("alice")))).is_empty());
    let answer = command(&mut world);
    assert_eq!(answer.summary(), "answer b a");
    let prack = find(&answer.answer(&mut world), "PRACK");
    assert_eq!(body(&prack), answer.result());
    assert_eq!(summary(&world.input(BOB, &response(&prack, 200, "b", ""))), [format!("200 {ALICE}")]);
    // The next PRACK has an offer of its own.
    assert!(world.input(ALICE, &routed(&invite, &request("PRACK", 3, "b", &sdp("alice2")))).is_empty());
    let offer = command(&mut world);
    assert_eq!(offer.summary(), "offer a b");
    let prack = find(&offer.answer(&mut world), "PRACK");
    assert!(world.input(BOB, &response(&prack, 200, "b", &sdp("bob2"))).is_empty());
    assert_eq!(command(&mut world).summary(), "answer a b");
}

#[test]
fn a_call_set_up_before_a_restart_goes_on_through_the_engine() {
    let invite = answered_call(&mut world(|_| {}));
    let mut world = world(|_| {});
    world.input(ALICE, &routed(&invite, &request("INVITE", 5, "b", &sdp("refresh"))));
    let offer = command(&mut world);
    assert_eq!(offer.summary(), "offer a b");
    let refresh = find(&offer.answer(&mut world), "INVITE");
    world.input(BOB, &response(&refresh, 200, "b", &sdp("bob")));
    let answer = command(&mut world);
    assert_eq!(summary(&answer.answer(&mut world)), [format!("200 {ALICE}")]);
    world.input(BOB, &routed(&invite, &from_bob("BYE", 3, "")));
    assert_eq!(command(&mut world).summary(), "delete a", "whoever hangs up");
}
