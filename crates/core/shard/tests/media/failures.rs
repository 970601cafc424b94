//! Engines that are silent or refuse.

use std::time::Duration;

use strowger_media::FailurePolicy;
use strowger_shard::{Event, MAX_HELD_FOR_MEDIA};

use crate::engine::{ENGINE, ENGINE2, body, command, commands, policy, request, response, routed, sdp, world};
use crate::support::{ALICE, BOB, SentMessage, World, finals, find, summary};

fn messages(timed: Vec<(u64, SentMessage)>) -> Vec<SentMessage> {
    timed.into_iter().map(|(_, sent)| sent).collect()
}

fn with(count: usize, on_failure: FailurePolicy) -> World {
    let mut world = World::new(|snapshot| policy(snapshot, count, |policy| policy.on_failure = on_failure));
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    world
}

#[test]
fn if_no_engine_answers_the_call_is_refused_and_the_next_at_once() {
    let mut world = with(1, FailurePolicy::Refuse);
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let sent = world.wait(Duration::from_millis(1000));
    let (at, refusal) = sent.last().expect("a refusal");
    assert_eq!((*at, refusal.start()), (1000, "SIP/2.0 503 Media Engine Does Not Answer"));
    let engine = ENGINE.parse().expect("an address");
    let events: Vec<_> = world.events.drain(..).collect();
    assert!(events.contains(&Event::MediaEngine { engine, is_up: false }), "{events:?}");
    let failed = |call_id: &str, reason: &str, is_refused| Event::MediaFailed {
        call_id: call_id.to_owned(),
        reason: reason.to_owned(),
        is_refused,
    };
    assert!(events.contains(&failed("call-1@alice", "no media engine answers", true)), "{events:?}");
    world.input(ALICE, &request("ACK", 1, "x", ""));
    let sent = world.input(ALICE, &request("INVITE", 2, "", &sdp("alice")));
    assert_eq!(finals(&sent), [503], "at once");
    assert_eq!(world.shard.counters().media_refused, 2);
    assert!(world.events.iter().all(|event| !matches!(event, Event::MediaFailed { .. })), "reported once a second");
    world.settle();
}

#[test]
fn the_operator_may_prefer_calls_without_the_engine() {
    let mut world = with(1, FailurePolicy::Forward);
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let sent = messages(world.wait(Duration::from_millis(1000)));
    let invite = find(&sent, "INVITE");
    assert_eq!(body(&invite), sdp("alice"), "as received");
    commands(&mut world);
    let answered = world.input(BOB, &response(&invite, 200, "b", &sdp("bob")));
    assert_eq!((summary(&answered), body(&answered[0])), (vec![format!("200 {ALICE}")], &*sdp("bob")));
    assert!(commands(&mut world).is_empty(), "the engine does not know the offer");
    assert_eq!(world.shard.counters().media_bypassed, 1);
    assert!(world.events.iter().any(|event| matches!(event, Event::MediaFailed { is_refused: false, .. })));
}

#[test]
fn a_silent_engine_is_replaced_and_the_call_keeps_the_other() {
    let mut world = with(2, FailurePolicy::Refuse);
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let first = command(&mut world);
    world.wait(Duration::from_millis(1010));
    let second = commands(&mut world).into_iter().rfind(|sent| sent.summary() == "offer a").expect("another offer");
    let both = [ENGINE, ENGINE2].map(|text| text.parse().expect("an address"));
    assert!(both.contains(&first.engine) && both.contains(&second.engine) && first.engine != second.engine);
    let invite = find(&second.answer(&mut world), "INVITE");
    world.input(BOB, &response(&invite, 200, "b", &sdp("bob")));
    let answer = command(&mut world);
    assert_eq!(answer.engine, second.engine);
    answer.answer(&mut world);
    world.input(ALICE, &routed(&invite, &request("ACK", 1, "b", "")));
    world.input(ALICE, &routed(&invite, &request("INVITE", 2, "b", &sdp("alice2"))));
    let offer = command(&mut world);
    assert_eq!(offer.engine, second.engine, "an established call stays");
    assert_eq!(world.shard.counters().media_failovers, 1);
}

#[test]
fn an_established_call_leaves_an_engine_that_is_out_with_its_next_offer() {
    let mut world = with(2, FailurePolicy::Refuse);
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let offer = command(&mut world);
    let invite = find(&offer.answer(&mut world), "INVITE");
    world.input(BOB, &response(&invite, 200, "b", &sdp("bob")));
    command(&mut world).answer(&mut world);
    world.input(ALICE, &routed(&invite, &request("ACK", 1, "b", "")));
    let policy = world.snapshot.media.clone().expect("a policy");
    policy.engines.iter().filter(|engine| engine.address() == offer.engine).for_each(|engine| {
        assert!(engine.handle_silence().is_some());
    });
    world.input(ALICE, &routed(&invite, &request("INVITE", 2, "b", &sdp("alice2"))));
    let again = command(&mut world);
    assert_ne!(again.engine, offer.engine);
    let invite = find(&again.answer(&mut world), "INVITE");
    world.input(BOB, &response(&invite, 200, "b", &sdp("bob2")));
    assert_eq!(command(&mut world).engine, again.engine, "and the answer follows");
}

#[test]
fn a_refusal_of_the_engine_refuses_the_call_with_its_reason_in_the_log() {
    let mut world = world(|_| {});
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let offer = command(&mut world);
    let refused = offer.answer_with(&mut world, "d12:error-reason19:Failed to parse SDP6:result5:errore");
    assert_eq!(finals(&refused), [503]);
    assert_eq!(refused[0].start(), "SIP/2.0 503 Media Engine Refused");
    let reason = format!("media engine {ENGINE}: Failed to parse SDP");
    assert!(world.events.iter().any(|event| matches!(event, Event::MediaFailed { reason: why, .. } if *why == reason)));
    assert_eq!(world.shard.counters().media_engine_refusals, 1);
    world.settle();
}

#[test]
fn an_answer_that_the_engine_does_not_take_is_forwarded_as_received() {
    let mut world = world(|_| {});
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let offer = command(&mut world);
    let invite = find(&offer.answer(&mut world), "INVITE");
    world.input(BOB, &response(&invite, 200, "b", &sdp("bob")));
    let sent = messages(world.wait(Duration::from_millis(1000)));
    let answered = sent.iter().find(|sent| sent.status() == 200).expect("the 200");
    assert_eq!(body(answered), sdp("bob"), "the callee has answered, so the caller must know");
    assert_eq!(world.shard.counters().media_bypassed, 1);
}

#[test]
fn messages_that_wait_are_bounded() {
    let mut world = world(|snapshot| {
        snapshot.limits = strowger_shard::Limits::MAX;
    });
    world.is_checked = false;
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    for number in 0..MAX_HELD_FOR_MEDIA {
        let text = request("INVITE", 1, "", &sdp("alice")).replace("call-1", &format!("call-{number}-"));
        let text = text.replace("z9hG4bK", &format!("z9hG4bK{number}-"));
        assert!(finals(&world.input(ALICE, &text)).is_empty(), "{number}");
    }
    let refused = world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    assert_eq!(finals(&refused), [503]);
    assert_eq!(refused.last().map(SentMessage::start), Some("SIP/2.0 503 Too Many Calls With Media"));
    assert_eq!(world.shard.counters().media_table_full, 1);
    // Any answer of the engine makes room.
    let offer = commands(&mut world).remove(0);
    offer.answer(&mut world);
    let text = request("INVITE", 3, "", &sdp("alice"));
    assert!(finals(&world.input(ALICE, &text)).is_empty());
    world.wait(Duration::from_secs(2));
    world.settle();
}
