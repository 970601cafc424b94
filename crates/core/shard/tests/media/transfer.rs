//! Calls with media that the same shard of another process takes over.

use std::time::Duration;

use strowger_shard::{Event, Input};

use crate::engine::{ENGINE, SentCommand, body, command, commands, request, response, routed, sdp, world};
use crate::support::{ALICE, BOB, SentMessage, World, find, summary};

/// Two processes, of which the first knows where Bob is.
fn processes() -> (World, World) {
    let (mut old, new) = (world(|_| {}), world(|_| {}));
    old.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    (old, new)
}

/// Sends an INVITE with this description, which the engine rewrites; without one, it has nothing to rewrite.
fn invite(world: &mut World, sdp: &str) -> SentMessage {
    let sent = world.input(ALICE, &request("INVITE", 1, "", sdp));
    let sent = if sdp.is_empty() { sent } else { command(world).answer(world) };
    find(&sent, "INVITE")
}

/// Bob answers with a description; returns what the engine was asked.
fn answer(world: &mut World, invite: &SentMessage) -> SentCommand {
    world.input(BOB, &response(invite, 200, "b", &sdp("bob")));
    let asked = command(world);
    assert_eq!(summary(&asked.answer(world)), [format!("200 {ALICE}")]);
    asked
}

/// Lets `new` take over; returns the number of calls.
fn hand_over(old: &mut World, new: &mut World) -> usize {
    let mut state = Vec::new();
    old.shard.export_state(&mut state);
    new.now = old.now;
    let imported = new.shard.import_state(new.now, &state).expect("what was written");
    assert!(new.drain().is_empty());
    assert!(old.give(Input::HandedOver).is_empty());
    imported.calls
}

/// Gives `new` the calls that `old` has set up since.
fn follow(old: &mut World, new: &mut World) {
    new.now = new.now.max(old.now);
    for event in std::mem::take(&mut old.events) {
        let Event::CallTransferred(state) = event else { panic!("{event:?}") };
        assert!(new.give(Input::CallTransferred { state: &state }).is_empty());
    }
}

#[test]
fn another_process_ends_the_calls_that_it_has_taken_over_at_their_engine() {
    let (mut old, mut new) = processes();
    let invite = invite(&mut old, &sdp("alice"));
    let answer = answer(&mut old, &invite);
    assert_eq!(hand_over(&mut old, &mut new), 1);

    // The 200 is repeated, and its transaction is here.
    let again = old.input(BOB, &response(&invite, 200, "b", &sdp("bob")));
    assert_eq!(body(&again[0]), answer.result());
    let bye = find(&new.input(ALICE, &routed(&invite, &request("BYE", 2, "b", ""))), "BYE");
    assert_eq!(command(&mut new).summary(), "delete a");
    new.input(BOB, &response(&bye, 200, "b", ""));
    old.settle();
    new.settle();
    assert_eq!((old.shard.counters().media_deletes, new.shard.counters().media_deletes), (0, 1));
}

#[test]
fn a_new_offer_at_another_process_goes_to_the_engine_of_the_call() {
    let (mut old, mut new) = processes();
    let invite = invite(&mut old, &sdp("alice"));
    answer(&mut old, &invite);
    hand_over(&mut old, &mut new);
    new.input(ALICE, &routed(&invite, &request("INVITE", 2, "b", &sdp("alice again"))));
    let offer = command(&mut new);
    assert_eq!((offer.summary().as_str(), offer.engine.to_string().as_str()), ("offer a b", ENGINE));
    let again = find(&offer.answer(&mut new), "INVITE");
    assert_eq!(body(&again), offer.result());
    new.input(BOB, &response(&again, 200, "b", &sdp("bob again")));
    let asked = command(&mut new);
    assert_eq!(asked.summary(), "answer a b");
    assert_eq!(body(&asked.answer(&mut new)[0]), asked.result());
    new.input(ALICE, &routed(&invite, &request("BYE", 3, "b", "")));
    assert_eq!(command(&mut new).summary(), "delete a");
}

#[test]
fn a_call_whose_answer_waits_for_the_engine_at_the_takeover_follows() {
    let (mut old, mut new) = processes();
    let invite = invite(&mut old, &sdp("alice"));
    old.input(BOB, &response(&invite, 200, "b", &sdp("bob")));
    let asked = command(&mut old);
    let mut state = Vec::new();
    old.shard.export_state(&mut state);
    // The engine answers while no socket for calls is read.
    assert_eq!(summary(&asked.answer(&mut old)), [format!("200 {ALICE}")]);
    new.now = old.now;
    assert_eq!(new.shard.import_state(new.now, &state).map(|imported| imported.calls), Ok(0));
    assert!(old.give(Input::HandedOver).is_empty());
    follow(&mut old, &mut new);
    new.input(ALICE, &routed(&invite, &request("BYE", 2, "b", "")));
    assert_eq!(command(&mut new).summary(), "delete a");
}

#[test]
fn an_answer_in_an_ack_that_overtakes_its_call_goes_to_the_engine() {
    let (mut old, mut new) = processes();
    let invite = invite(&mut old, "");
    hand_over(&mut old, &mut new);
    // The 200 has the offer.
    assert_eq!(answer(&mut old, &invite).summary(), "offer b a");
    let ack = routed(&invite, &request("ACK", 1, "b", &sdp("alice")));
    assert!(new.input(ALICE, &ack).is_empty(), "the ACK waits");
    assert!(new.input(ALICE, &ack).is_empty());
    let asked = command(&mut new);
    assert_eq!((asked.summary().as_str(), asked.engine.to_string().as_str()), ("answer b a", ENGINE));
    let sent = asked.answer(&mut new);
    assert_eq!((summary(&sent), body(&sent[0])), (vec![format!("ACK {BOB}")], &*asked.result()));
    follow(&mut old, &mut new);
    new.input(ALICE, &routed(&invite, &request("BYE", 2, "b", "")));
    assert_eq!(command(&mut new).summary(), "delete a");
}

#[test]
fn an_update_that_overtakes_its_call_leaves_it_complete() {
    let (mut old, mut new) = processes();
    let invite = invite(&mut old, "");
    hand_over(&mut old, &mut new);
    new.now = old.now;
    new.input(ALICE, &routed(&invite, &request("UPDATE", 2, "b", &sdp("alice"))));
    assert_eq!(command(&mut new).summary(), "offer a b");
    answer(&mut old, &invite);
    follow(&mut old, &mut new);
    // The transaction of the INVITE has come with the call, so this is an answer.
    assert!(new.input(ALICE, &routed(&invite, &request("ACK", 1, "b", &sdp("alice")))).is_empty());
    assert_eq!(command(&mut new).summary(), "answer b a");
}

#[test]
fn only_one_process_probes_the_engines() {
    let (mut old, mut new) = processes();
    hand_over(&mut old, &mut new);
    let pings = |world: &mut World| {
        world.wait(Duration::from_secs(60));
        commands(world).iter().filter(|sent| sent.summary() == "ping").count()
    };
    assert_eq!((pings(&mut old), pings(&mut new) > 0), (0, true));
}

#[test]
fn only_one_process_ends_a_call_that_nothing_else_ends() {
    let (mut old, mut new) = processes();
    let invite = invite(&mut old, &sdp("alice"));
    answer(&mut old, &invite);
    hand_over(&mut old, &mut new);
    for world in [&mut old, &mut new] {
        world.wait(Duration::from_secs(13 * 3600));
    }
    let deletes = |world: &mut World| commands(world).iter().filter(|sent| sent.summary() == "delete a").count();
    assert_eq!((deletes(&mut old), deletes(&mut new) > 0), (0, true));
}
