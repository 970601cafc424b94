//! Records of ended calls.

mod support;

use std::time::Duration;

use strowger_calls::{CallRecord, Reason};
use strowger_proxy::Stateless;
use strowger_shard::Event;
use support::{ALICE, BOB, SentMessage, World, find, request};

fn world() -> World {
    let mut world = World::new(|snapshot| snapshot.track_calls = true);
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    world
}

fn call(world: &mut World) -> SentMessage {
    find(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", "")), "INVITE")
}

fn record(world: &World) -> CallRecord {
    let calls: Vec<_> = world
        .events
        .iter()
        .filter_map(|event| if let Event::Call(record) = event { Some(record) } else { None })
        .collect();
    assert_eq!(calls.len(), 1, "one record a call");
    let record = calls[0];
    assert_eq!(record.source, ALICE.parse().expect("an address"));
    assert_eq!(record.caller(), b"sip:alice@example.com");
    assert_eq!((record.callee(), record.call_id()), (&b"sip:bob@example.com"[..], &b"call-1@alice"[..]));
    (**record).clone()
}

#[test]
fn an_answered_call_ends_with_its_bye() {
    let mut world = world();
    let invite = call(&mut world);
    world.wait(Duration::from_secs(2));
    world.respond(&invite, 180, "b", "");
    world.wait(Duration::from_secs(3));
    let answer = world.respond(&invite, 200, "b", &format!("Contact: <sip:bob@{BOB}>\r\n"));
    world.wait(Duration::from_secs(60));
    assert!(world.events.is_empty(), "it goes on");
    let route = answer[0].header("Record-Route").expect("recorded");
    let bye = request("BYE", &format!("sip:bob@{BOB}"), "bye", &format!("Route: {route}\r\n"))
        .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b")
        .replace("CSeq: 1", "CSeq: 2");
    let bye = find(&world.input(ALICE, &bye), "BYE");
    world.respond(&bye, 200, "", "");
    world.settle();
    let record = record(&world);
    assert_eq!((record.reason, record.status), (Reason::CallerHungUp, Some(200)));
    assert_eq!(record.target, Some(BOB.parse().expect("an address")));
    let seconds =
        |from: strowger_foundation::Timestamp, to: strowger_foundation::Timestamp| to.saturating_since(from).as_secs();
    let answered = record.answered.expect("answered");
    assert_eq!((seconds(record.began, answered), seconds(answered, record.ended)), (5, 60));
}

#[test]
fn a_stateless_bye_ends_the_call_too() {
    let mut world = world();
    world.configure(|snapshot| snapshot.proxy.stateless = Stateless::WhenPossible);
    let invite = call(&mut world);
    let answer = world.respond(&invite, 200, "b", &format!("Contact: <sip:bob@{BOB}>\r\n"));
    world.wait(Duration::from_secs(60));
    let route = answer[0].header("Record-Route").expect("recorded");
    let bye = request("BYE", &format!("sip:bob@{BOB}"), "bye", &format!("Route: {route}\r\n"))
        .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b")
        .replace("CSeq: 1", "CSeq: 2");
    for _ in 0..2 {
        find(&world.input(ALICE, &bye), "BYE");
    }
    assert_eq!(world.shard.transactions(), 0, "nothing was kept");
    assert_eq!(record(&world).reason, Reason::CallerHungUp);
    world.settle();
    assert_eq!(record(&world).reason, Reason::CallerHungUp);
}

#[test]
fn a_cancelled_call_is_recorded_as_such() {
    let mut world = world();
    let invite = call(&mut world);
    world.respond(&invite, 180, "b", "");
    world.input(ALICE, &request("CANCEL", "sip:bob@example.com", "inv", ""));
    world.respond(&invite, 487, "b", "");
    world.settle();
    let record = record(&world);
    assert_eq!((record.reason, record.status, record.answered), (Reason::Cancelled, Some(487), None));
}

#[test]
fn a_rejection_has_its_status() {
    let mut busy = world();
    let invite = call(&mut busy);
    busy.respond(&invite, 486, "b", "");
    busy.settle();
    assert_eq!((record(&busy).reason, record(&busy).status), (Reason::Rejected, Some(486)));
    let mut nobody = World::new(|snapshot| snapshot.track_calls = true);
    nobody.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""));
    nobody.settle();
    assert_eq!((record(&nobody).reason, record(&nobody).status), (Reason::Rejected, Some(404)));
}

#[test]
fn an_unanswered_call_is_recorded() {
    let mut silent = world();
    call(&mut silent);
    silent.settle();
    assert_eq!((record(&silent).reason, record(&silent).status), (Reason::Rejected, Some(408)));
    let mut ringing = world();
    let invite = call(&mut ringing);
    ringing.respond(&invite, 180, "b", "");
    ringing.wait(Duration::from_secs(180));
    ringing.respond(&invite, 487, "b", "");
    ringing.settle();
    assert_eq!((record(&ringing).reason, record(&ringing).status), (Reason::Rejected, Some(408)));
}

#[test]
fn two_answers_make_one_record() {
    let mut world = world();
    world.register("bob", support::BOB2, &format!("<sip:bob@{}>", support::BOB2));
    let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""));
    let invites: Vec<_> = sent.into_iter().filter(|sent| sent.method() == "INVITE").collect();
    let answer = world.respond(&invites[0], 200, "b0", &format!("Contact: <sip:bob@{BOB}>\r\n"));
    world.respond(&invites[1], 200, "b1", "");
    let route = answer[0].header("Record-Route").expect("recorded");
    for (tag, branch) in [("b1", "one"), ("b0", "two")] {
        let bye = request("BYE", &format!("sip:bob@{BOB}"), branch, &format!("Route: {route}\r\n"))
            .replace("To: <sip:bob@example.com>", &format!("To: <sip:bob@example.com>;tag={tag}"))
            .replace("CSeq: 1", "CSeq: 2");
        let bye = find(&world.input(ALICE, &bye), "BYE");
        world.respond(&bye, 200, "", "");
    }
    world.settle();
    assert_eq!(record(&world).reason, Reason::CallerHungUp);
}

#[test]
fn calls_are_tracked_even_without_records() {
    let mut world = world();
    world.configure(|snapshot| snapshot.record_calls = false);
    let going_on = |world: &World| {
        let mut calls = 0;
        world.shard.for_each_call(|_| calls += 1);
        calls
    };
    let invite = call(&mut world);
    assert_eq!(going_on(&world), 1);
    world.respond(&invite, 486, "b", "");
    world.settle();
    assert_eq!((going_on(&world), world.events.len()), (0, 0));
}
