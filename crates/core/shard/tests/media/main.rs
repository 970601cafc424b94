//! Calls whose media go through an engine.

#[path = "../support/mod.rs"]
mod support;

mod engine;
mod failures;
mod offers;
mod policies;
mod transfer;

use std::time::Duration;

use engine::{body, command, commands, request, response, routed, sdp, world};
use support::{ALICE, BOB, find, summary};

#[test]
fn offer_and_answer_go_through_the_engine_and_a_bye_ends_the_call_there() {
    let mut world = world(|_| {});
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let waiting = world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    assert_eq!(summary(&waiting), [format!("100 {ALICE}")], "the INVITE waits");
    assert_eq!(world.shard.unanswered(), 1);
    let offer = command(&mut world);
    assert_eq!((offer.summary(), offer.string("sdp")), ("offer a".to_owned(), Some(sdp("alice"))));
    assert_eq!(offer.string("call-id").as_deref(), Some("call-1@alice"));
    let invite = find(&offer.answer(&mut world), "INVITE");
    assert_eq!((invite.to.to_string(), body(&invite)), (BOB.to_owned(), &*offer.result()));

    // A response without a description does not wait.
    let ringing = world.input(BOB, &response(&invite, 180, "b", ""));
    assert_eq!(summary(&ringing), [format!("180 {ALICE}")]);
    let answered = world.input(BOB, &response(&invite, 200, "b", &sdp("bob")));
    assert!(answered.is_empty(), "the 200 waits");
    let answer = command(&mut world);
    assert_eq!((answer.summary(), answer.string("sdp")), ("answer a b".to_owned(), Some(sdp("bob"))));
    let answered = answer.answer(&mut world);
    assert_eq!(summary(&answered), [format!("200 {ALICE}")]);
    assert_eq!(body(&answered[0]), answer.result());

    let ack = world.input(ALICE, &routed(&invite, &request("ACK", 1, "b", "")));
    assert_eq!(summary(&ack), [format!("ACK {BOB}")]);
    assert!(commands(&mut world).is_empty());
    world.wait(Duration::from_millis(500));
    let bye = find(&world.input(ALICE, &routed(&invite, &request("BYE", 2, "b", ""))), "BYE");
    assert_eq!(command(&mut world).summary(), "delete a");
    world.input(BOB, &response(&bye, 200, "b", ""));
    world.settle();
    let counters = world.shard.counters();
    assert_eq!((counters.media_offers, counters.media_answers, counters.media_deletes), (1, 1, 1));
    assert_eq!((counters.media_refused, counters.media_bypassed, counters.media_strays), (0, 0, 0));
}

#[test]
fn a_repeated_invite_is_absorbed_while_the_first_waits() {
    let mut world = world(|_| {});
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let text = request("INVITE", 1, "", &sdp("alice"));
    world.input(ALICE, &text);
    let again = world.input(ALICE, &text);
    assert_eq!(summary(&again), [format!("100 {ALICE}")], "the 100 is repeated");
    let offer = command(&mut world);
    // The command is lost and repeated.
    world.wait(Duration::from_millis(250));
    let repeated = command(&mut world);
    assert_eq!(repeated.text, offer.text);
    assert_eq!(summary(&repeated.answer(&mut world)), [format!("INVITE {BOB}")]);
    assert!(offer.answer(&mut world).is_empty(), "a second answer changes nothing");
    assert_eq!(world.shard.counters().media_retransmissions, 1);
}

#[test]
fn repeated_answers_are_rewritten_alike_without_the_engine() {
    let mut world = world(|_| {});
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let offer = command(&mut world);
    let invite = find(&offer.answer(&mut world), "INVITE");
    // Early media, then the same description in the 200.
    assert!(world.input(BOB, &response(&invite, 183, "b", &sdp("bob"))).is_empty());
    let answer = command(&mut world);
    let progress = answer.answer(&mut world);
    assert_eq!(summary(&progress), [format!("183 {ALICE}")]);
    let ok = response(&invite, 200, "b", &sdp("bob"));
    for _ in 0..3 {
        let answered = world.input(BOB, &ok);
        assert_eq!(summary(&answered), [format!("200 {ALICE}")]);
        assert_eq!(body(&answered[0]), answer.result());
        world.wait(Duration::from_millis(500));
    }
    assert!(commands(&mut world).iter().all(|sent| sent.summary() == "ping"));
}

#[test]
fn a_retransmission_of_a_waiting_response_is_absorbed() {
    let mut world = world(|_| {});
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let offer = command(&mut world);
    let invite = find(&offer.answer(&mut world), "INVITE");
    let ok = response(&invite, 200, "b", &sdp("bob"));
    assert!(world.input(BOB, &ok).is_empty());
    assert!(world.input(BOB, &ok).is_empty());
    let answer = command(&mut world);
    assert_eq!(summary(&answer.answer(&mut world)), [format!("200 {ALICE}")]);
}

#[test]
fn each_branch_of_a_forked_call_has_an_offer_of_its_own() {
    let mut world = world(|_| {});
    let bob2 = support::BOB2;
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    world.register("bob", bob2, &format!("<sip:bob@{bob2}>"));
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let offers = commands(&mut world);
    assert_eq!(engine::summaries(&offers), ["offer a 1-0", "offer a 1-1"]);
    assert!(offers[1].answer(&mut world).is_empty(), "one offer is missing");
    let sent = offers[0].answer(&mut world);
    let invites: Vec<_> = sent.iter().filter(|sent| sent.method() == "INVITE").collect();
    assert_eq!(invites.len(), 2);
    let bodies: Vec<_> = invites.iter().map(|invite| body(invite).to_owned()).collect();
    assert_eq!(bodies, [offers[0].result(), offers[1].result()]);
    // Both ring with early media; their answers name their branches.
    for (invite, tag, expected) in [(invites[0], "b0", "answer a b0 1-0"), (invites[1], "b1", "answer a b1 1-1")] {
        let from = invite.to.to_string();
        assert!(world.input(&from, &response(invite, 183, tag, &sdp(tag))).is_empty());
        let answer = command(&mut world);
        assert_eq!(answer.summary(), expected);
        assert_eq!(body(&answer.answer(&mut world)[0]), answer.result());
    }
    let from = invites[1].to.to_string();
    let answered = world.input(&from, &response(invites[1], 200, "b1", &sdp("b1")));
    assert_eq!(summary(&answered)[0], format!("200 {ALICE}"));
    assert_eq!(find(&answered, "CANCEL").to, invites[0].to);
}

#[test]
fn a_cancelled_call_that_waits_ends_here_and_at_the_engine() {
    let mut world = world(|_| {});
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let offer = command(&mut world);
    let cancelled = world.input(ALICE, &request("CANCEL", 1, "", ""));
    assert_eq!(summary(&cancelled), [format!("200 {ALICE}"), format!("487 {ALICE}")]);
    assert_eq!(command(&mut world).summary(), "delete a");
    assert!(offer.answer(&mut world).is_empty(), "nothing is forwarded any more");
    world.wait(Duration::from_millis(900));
    assert!(commands(&mut world).iter().all(|sent| sent.summary() != "offer a"), "and the offer is not repeated");
    world.settle();
}

#[test]
fn a_refused_call_ends_at_the_engine() {
    let mut world = world(|_| {});
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let offer = command(&mut world);
    let invite = find(&offer.answer(&mut world), "INVITE");
    let refused = world.input(BOB, &response(&invite, 486, "b", ""));
    assert_eq!(support::finals(&refused), [486]);
    assert_eq!(command(&mut world).summary(), "delete a");
    world.settle();
}

#[test]
fn an_unanswered_call_ends_at_the_engine_too() {
    let mut world = world(|snapshot| snapshot.proxy.ring_timeout = Duration::from_secs(10));
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let offer = command(&mut world);
    let invite = find(&offer.answer(&mut world), "INVITE");
    world.input(BOB, &response(&invite, 180, "b", ""));
    world.settle();
    assert!(commands(&mut world).iter().any(|sent| sent.summary() == "delete a"));
}
