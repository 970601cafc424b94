//! A route that leads to a balanced set: who gets a call, that all of a call goes there, what is counted, and what happens when
//! targets go and come back.

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use strowger_balancer::{Member, Policy, Probe, Set, SetConfig, Target};
use strowger_locate::Failure;
use strowger_message::Status;
use strowger_proxy::{MAX_QUESTIONS, Stateless};
use strowger_shard::{Action, Event, Input, Route, RouteMatch as Match, RouteTarget};
use support::{ALICE, SERVER, Sent, World, destinations, finals, find, request, summary};

const NAME: &str = "pool";

fn address(number: usize) -> String {
    format!("203.0.113.{}:5060", number + 1)
}

fn uri(number: usize) -> String {
    format!("sip:{}", address(number))
}

/// The targets of a world, which outlive its configurations.
fn targets(count: usize) -> Vec<Arc<Target>> {
    (0..count).map(|number| Target::new(NAME, uri(number).as_bytes())).collect()
}

fn config(policy: Policy) -> SetConfig {
    SetConfig { name: NAME.into(), policy, ..SetConfig::default() }
}

fn route(config: SetConfig, targets: &[Arc<Target>]) -> Route {
    let member = |target: &Arc<Target>| Member::new(Arc::clone(target));
    let set = Set::new(config, targets.iter().map(member).collect()).expect("a sound set");
    let at = |number| RouteTarget::at(uri(number).as_bytes(), address(number).parse().expect("an address"));
    let places = (0..targets.len()).map(at).collect();
    Route::of_domain(b"*", Action::balance(Arc::new(set), places, Stateless::Never))
}

fn world(config: SetConfig, targets: &[Arc<Target>]) -> World {
    World::new(|snapshot| {
        snapshot.routes = vec![route(config, targets)];
        snapshot.follow_calls = true;
    })
}

fn text(method: &str, number: usize, extra: &str) -> String {
    request(method, "sip:x@elsewhere.example", &format!("{method}{number}"), extra)
        .replace("call-1@alice", &format!("{number}@alice"))
}

fn invite(world: &mut World, number: usize) -> Sent {
    find(&world.input(ALICE, &text("INVITE", number, "")), "INVITE")
}

/// A request of the caller's in the dialog that `invite` began, along its Record-Routes, to `contact`.
fn in_dialog(invite: &Sent, method: &str, number: usize, contact: &str) -> String {
    let routes: String = invite.headers("Record-Route").map(|route| format!("Route: {route}\r\n")).collect();
    text(method, number, &routes)
        .replace("sip:x@elsewhere.example", contact)
        .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b")
        .replace(&format!("CSeq: 1 {method}"), &format!("CSeq: 2 {method}"))
}

/// A call that is answered.
fn call(world: &mut World, number: usize) -> Sent {
    let invite = invite(world, number);
    assert_eq!(finals(&world.respond(&invite, 200, "b", "")), [200]);
    invite
}

/// The caller's BYE as it goes to the target.
fn hang_up(world: &mut World, invite: &Sent, number: usize) -> Sent {
    find(&world.input(ALICE, &in_dialog(invite, "BYE", number, &format!("sip:{SERVER}"))), "BYE")
}

/// The BYE of the target that has answered `invite`.
fn callees_bye(invite: &Sent) -> String {
    let routes: String = invite.headers("Record-Route").map(|route| format!("Route: {route}\r\n")).collect();
    let call_id = invite.header("Call-ID").expect("has one");
    format!(
        "BYE sip:alice@{ALICE} SIP/2.0\r\nVia: SIP/2.0/UDP {};branch=z9hG4bK{call_id}\r\nMax-Forwards: 70\r\n\
         {routes}From: <sip:bob@example.com>;tag=b\r\nTo: <sip:alice@example.com>;tag=a\r\nCall-ID: {call_id}\r\n\
         CSeq: 7 BYE\r\nContent-Length: 0\r\n\r\n",
        invite.to
    )
}

fn counts(targets: &[Arc<Target>]) -> Vec<(u32, u32)> {
    targets.iter().map(|target| (target.calls(), target.transactions())).collect()
}

#[test]
fn a_call_is_counted_from_its_invite_to_its_bye() {
    let targets = targets(2);
    let mut world = world(config(Policy::LeastCalls), &targets);
    let first = invite(&mut world, 1);
    let at = usize::from(first.to.to_string() == address(1));
    let mut expected = vec![(0, 0); 2];
    expected[at] = (1, 1);
    assert_eq!(counts(&targets), expected, "one call, one transaction");
    world.respond(&first, 180, "b", "");
    assert_eq!(counts(&targets), expected);
    assert_eq!(finals(&world.respond(&first, 200, "b", "")), [200]);
    expected[at] = (1, 0);
    assert_eq!(counts(&targets), expected, "the work is done, the call goes on");
    let second = invite(&mut world, 2);
    assert_ne!(second.to, first.to, "the other one has fewer calls");
    world.respond(&second, 486, "b", "");
    assert_eq!(counts(&targets), expected, "a call that was refused is none");
    let bye = find(&world.input(ALICE, &in_dialog(&first, "BYE", 1, &uri(at))), "BYE");
    assert_eq!(bye.to, first.to);
    expected[at] = (1, 1);
    assert_eq!(counts(&targets), expected, "the target has yet to answer the BYE");
    world.respond(&bye, 200, "b", "");
    assert_eq!(counts(&targets), [(0, 0); 2]);
    world.settle();
    assert_eq!(counts(&targets), [(0, 0); 2]);
}

/// Who is sent each of `count` calls, of the numbers from `from` on; all are refused.
fn takers(world: &mut World, from: usize, count: usize) -> Vec<SocketAddr> {
    let take = |number| {
        let call = invite(world, number);
        world.respond(&call, 486, "b", "");
        call.to
    };
    (from..from + count).map(take).collect()
}

#[test]
fn who_has_a_bye_to_answer_still_has_its_call() {
    let targets = targets(2);
    let mut world = world(config(Policy::LeastCalls), &targets);
    let first = call(&mut world, 1);
    let bye = hang_up(&mut world, &first, 1);
    assert!(takers(&mut world, 100, 20).iter().all(|to| *to != first.to), "the other one has nothing to do");
    // It comes again, and it is being dealt with.
    let again = in_dialog(&first, "BYE", 1, &format!("sip:{SERVER}"));
    assert_eq!(destinations(&world.input(ALICE, &again), "BYE"), [""; 0]);
    world.respond(&bye, 100, "", "");
    assert!(takers(&mut world, 200, 20).iter().all(|to| *to != first.to));
    assert_eq!(finals(&world.respond(&bye, 200, "b", "")), [200]);
    let takers = takers(&mut world, 300, 20);
    assert!(takers.contains(&first.to) && takers.iter().any(|to| *to != first.to), "both have nothing: {takers:?}");
    world.settle();
    assert_eq!(counts(&targets), [(0, 0); 2]);
}

#[test]
fn a_full_target_has_room_again_once_its_bye_is_answered() {
    let targets = targets(1);
    let member = Member { capacity: Some(1), ..Member::new(Arc::clone(&targets[0])) };
    let set = Set::new(config(Policy::LeastCalls), vec![member]).expect("sound");
    let action =
        Action::balance(Arc::new(set), vec![RouteTarget::at(uri(0).as_bytes(), calls_of(0))], Stateless::Never);
    let mut world = World::new(|snapshot| {
        snapshot.routes = vec![Route::of_domain(b"*", action)];
        snapshot.follow_calls = true;
    });
    let first = call(&mut world, 1);
    let bye = hang_up(&mut world, &first, 1);
    assert_eq!(finals(&world.input(ALICE, &text("INVITE", 2, ""))), [503]);
    world.respond(&bye, 200, "b", "");
    invite(&mut world, 3);
    world.settle();
}

/// However a BYE comes to its end, the call counts until then; and it is told of as ended when the BYE came.
#[test]
fn a_bye_that_comes_to_nothing_ends_its_call_too() {
    type End = fn(&mut World, &Sent);
    let ends: [(&str, End); 5] = [
        ("refused", |world, bye| drop(world.respond(bye, 481, "b", ""))),
        ("asked for credentials", |world, bye| drop(world.respond(bye, 407, "b", ""))),
        ("unavailable", |world, bye| drop(world.respond(bye, 503, "b", ""))),
        ("unreachable", |world, bye| drop(world.give(Input::Unreachable { peer: bye.to }))),
        ("silence", |world, _| drop(world.wait(Duration::from_secs(1)))),
    ];
    for (name, end) in ends {
        let targets = targets(1);
        let mut world = world(config(Policy::LeastCalls), &targets);
        let first = call(&mut world, 1);
        world.wait(Duration::from_secs(5));
        let bye = hang_up(&mut world, &first, 1);
        let records = |world: &World| world.events.iter().filter(|event| matches!(event, Event::Call(_))).count();
        assert_eq!(records(&world), 1, "{name}: its record does not wait");
        world.wait(Duration::from_secs(31));
        assert_eq!(counts(&targets), [(1, 1)], "{name}: not yet");
        end(&mut world, &bye);
        assert_eq!(counts(&targets), [(0, 0)], "{name}");
        // Another BYE for it ends nothing any more.
        let again =
            in_dialog(&first, "BYE", 1, &uri(0)).replace("z9hG4bK", "z9hG4bKagain").replace("CSeq: 2", "CSeq: 3");
        let again = find(&world.input(ALICE, &again), "BYE");
        assert_eq!(counts(&targets), [(0, 1)], "{name}");
        world.respond(&again, 200, "b", "");
        world.settle();
        assert_eq!((counts(&targets), records(&world)), (vec![(0, 0)], 1), "{name}");
    }
}

#[test]
fn a_target_that_hangs_up_has_nothing_more_to_do() {
    let targets = targets(1);
    let mut world = world(config(Policy::LeastCalls), &targets);
    let first = call(&mut world, 1);
    assert_eq!(destinations(&world.input(&address(0), &callees_bye(&first)), "BYE"), [ALICE]);
    assert_eq!(counts(&targets), [(0, 0)], "whether or not the caller is there to answer");
    world.settle();
    assert_eq!(counts(&targets), [(0, 0)]);
}

#[test]
fn both_may_hang_up_at_once() {
    for is_callers_first in [true, false] {
        let targets = targets(1);
        let mut world = world(config(Policy::LeastCalls), &targets);
        let first = call(&mut world, 1);
        let (callers, callees) = if is_callers_first {
            let callers = hang_up(&mut world, &first, 1);
            (callers, find(&world.input(&address(0), &callees_bye(&first)), "BYE"))
        } else {
            let callees = find(&world.input(&address(0), &callees_bye(&first)), "BYE");
            (hang_up(&mut world, &first, 1), callees)
        };
        assert_eq!(counts(&targets), [(u32::from(is_callers_first), 1)]);
        world.respond(&callees, 481, "", "");
        assert_eq!(counts(&targets), [(u32::from(is_callers_first), 1)], "it has its own to answer yet");
        world.respond(&callers, 200, "", "");
        assert_eq!(counts(&targets), [(0, 0)]);
        world.settle();
        assert_eq!(counts(&targets), [(0, 0)]);
    }
}

/// RFC 3261 §15: a caller may end an early dialog by BYE. The call is counted until its INVITE is answered, as by CANCEL.
#[test]
fn a_bye_in_an_early_dialog_leaves_the_call_to_its_invite() {
    let targets = targets(1);
    let mut world = world(config(Policy::LeastCalls), &targets);
    let first = invite(&mut world, 1);
    world.respond(&first, 180, "b", "");
    let bye = hang_up(&mut world, &first, 1);
    assert_eq!(counts(&targets), [(1, 2)]);
    world.respond(&bye, 200, "b", "");
    assert_eq!(counts(&targets), [(1, 1)]);
    assert_eq!(finals(&world.respond(&first, 487, "b", "")), [487]);
    assert_eq!(counts(&targets), [(0, 0)]);

    // Of two dialogs of one INVITE the first that was answered is the call.
    let forked = invite(&mut world, 2);
    world.respond(&forked, 180, "early", "");
    world.respond(&forked, 200, "b", "");
    let early =
        in_dialog(&forked, "BYE", 2, &uri(0)).replace(";tag=b", ";tag=early").replace("z9hG4bK", "z9hG4bKearly");
    let early = find(&world.input(ALICE, &early), "BYE");
    world.respond(&early, 481, "", "");
    assert_eq!(counts(&targets), [(1, 0)]);
    let bye = hang_up(&mut world, &forked, 2);
    world.respond(&bye, 200, "", "");
    assert_eq!(counts(&targets), [(0, 0)]);
    world.settle();
    assert_eq!(counts(&targets), [(0, 0)]);
}

/// Nobody would learn of the answer, or there is none.
#[test]
fn a_bye_that_nothing_is_kept_of_gives_the_call_back_at_once() {
    let targets = targets(1);
    let mut world = world(config(Policy::LeastCalls), &targets);
    world.configure(|snapshot| snapshot.proxy.stateless = Stateless::Always);
    let first = call(&mut world, 1);
    hang_up(&mut world, &first, 1);
    assert_eq!(counts(&targets), [(0, 0)]);
    world.configure(|snapshot| snapshot.proxy.stateless = Stateless::Never);

    // One that is refused here ends no call; with the next it is over.
    let second = call(&mut world, 2);
    let spent = in_dialog(&second, "BYE", 2, &uri(0)).replace("Max-Forwards: 70", "Max-Forwards: 0");
    assert_eq!(finals(&world.input(ALICE, &spent)), [483]);
    assert_eq!(counts(&targets), [(1, 0)]);
    let bye = in_dialog(&second, "BYE", 2, &uri(0)).replace("z9hG4bK", "z9hG4bKagain");
    let bye = find(&world.input(ALICE, &bye), "BYE");
    world.respond(&bye, 200, "", "");
    world.settle();
    assert_eq!(counts(&targets), [(0, 0)]);
}

/// Where the way to the target is by a name, it may have to be asked for, and no more than so many may ask.
#[test]
fn a_bye_that_never_leaves_gives_the_call_back() {
    let targets = targets(1);
    let mut world = world(config(Policy::LeastCalls), &targets);
    world.is_checked = false;
    let by_name = |invite: &Sent, method: &str, number| in_dialog(invite, method, number, "sip:bob@silent.example");
    let first = call(&mut world, 1);
    assert_eq!(destinations(&world.input(ALICE, &by_name(&first, "BYE", 1)), "BYE"), [""; 0]);
    assert_eq!((world.questions.len(), counts(&targets)), (1, vec![(1, 0)]));
    assert_eq!(finals(&world.resolve(Err(Failure::NoAnswer))).len(), 1);
    assert_eq!(counts(&targets), [(0, 0)]);

    let second = call(&mut world, 2);
    for number in 0..MAX_QUESTIONS {
        let info = by_name(&second, "INFO", 2).replace("silent", &format!("silent{number}"));
        world.input(ALICE, &info.replace("z9hG4bK", &format!("z9hG4bK{number}")));
    }
    assert_eq!(world.questions.len(), MAX_QUESTIONS);
    let bye = by_name(&second, "BYE", 2).replace("silent", "another");
    assert_eq!(finals(&world.input(ALICE, &bye)), [503]);
    assert_eq!(counts(&targets), [(0, 0)]);
    world.shard.check_invariants();
}

#[test]
fn work_is_weighed_by_method() {
    let targets = targets(2);
    let mut world = world(config(Policy::LeastWork), &targets);
    let first = invite(&mut world, 1);
    let at = usize::from(first.to.to_string() == address(1));
    assert_eq!(targets[at].work(), 1750);
    world.respond(&first, 200, "b", "");
    assert_eq!(targets[at].work(), 0);
    world.input(ALICE, &in_dialog(&first, "BYE", 1, &uri(at)));
    assert_eq!(targets[at].work(), 1000);
    world.settle();
    assert_eq!(targets[at].work(), 0, "also where nobody has answered");
}

#[test]
fn all_of_a_call_goes_where_its_invite_went() {
    let targets = targets(4);
    for policy in [Policy::LeastCalls, Policy::Random, Policy::RoundRobin, Policy::Hash] {
        let mut world = world(config(policy), &targets);
        for number in 0..40 {
            let first = invite(&mut world, number);
            // The target writes the server's own address into its Contact, as who is behind one address may.
            for contact in [format!("sip:{SERVER}"), format!("sip:bob@{SERVER}"), format!("sip:{}", first.to)] {
                let again = in_dialog(&first, "INFO", number, &contact);
                // A branch of its own for each.
                let again = again.replace("z9hG4bK", &format!("z9hG4bK{}", contact.len()));
                let sent = world.input(ALICE, &again);
                assert_eq!(destinations(&sent, "INFO"), [first.to.to_string()], "{contact}");
                world.respond(&find(&sent, "INFO"), 200, "b", "");
            }
            world.respond(&first, 200, "b", "");
            let ack = world.input(ALICE, &in_dialog(&first, "ACK", number, &format!("sip:{SERVER}")));
            assert_eq!(destinations(&ack, "ACK"), [first.to.to_string()]);
            let bye = world.input(ALICE, &in_dialog(&first, "BYE", number, &format!("sip:bob@{SERVER}")));
            assert_eq!(destinations(&bye, "BYE"), [first.to.to_string()]);
            world.respond(&find(&bye, "BYE"), 200, "b", "");
        }
        world.settle();
    }
    assert_eq!(counts(&targets), [(0, 0); 4]);
}

#[test]
fn a_call_that_is_asked_for_credentials_goes_to_the_same_target_again() {
    let targets = targets(8);
    let mut world = world(config(Policy::RoundRobin), &targets);
    for number in 0..16 {
        let first = invite(&mut world, number);
        world.respond(&first, 407, "b", "");
        let again = text("INVITE", number, "").replace("CSeq: 1", "CSeq: 2").replace("z9hG4bK", "z9hG4bKagain");
        let second = find(&world.input(ALICE, &again), "INVITE");
        assert_eq!(second.to, first.to);
        world.respond(&second, 486, "b", "");
    }
    world.settle();
    assert_eq!(counts(&targets), [(0, 0); 8]);
}

#[test]
fn a_call_that_was_once_answered_opens_no_way_past_the_routes() {
    let targets = targets(2);
    let barred = Match { prefixes: vec![(*b"0900").into()], ..Match::default() };
    let reject = Route::new(barred, Action::Reject { status: Status::FORBIDDEN, reason: None });
    let numbers = Match { domain: (*b"example.com").into(), prefixes: vec![(*b"0").into()], ..Match::default() };
    let Route { action, .. } = route(config(Policy::LeastCalls), &targets);
    let mut world = World::new(|snapshot| {
        snapshot.routes = vec![reject, Route::new(numbers, action)];
        snapshot.follow_calls = true;
    });
    let dial = |number: &str, branch: &str| request("INVITE", &format!("sip:{number}@example.com"), branch, "");
    let first = find(&world.input(ALICE, &dial("0123", "b1")), "INVITE");
    world.respond(&first, 200, "b", "");
    let sent = world.input(ALICE, &dial("0900123", "b2").replace("CSeq: 1", "CSeq: 2"));
    assert_eq!((finals(&sent), destinations(&sent, "INVITE")), (vec![403], vec![]));
}

#[test]
fn a_late_answer_counts_where_the_call_is() {
    let targets = targets(2);
    let mut world = world(config(Policy::RoundRobin), &targets);
    let first = invite(&mut world, 1);
    let sent = world.wait(Duration::from_secs(3));
    let second =
        sent.iter().find(|(_, sent)| sent.method() == "INVITE" && sent.to != first.to).expect("tried").1.clone();
    world.respond(&second, 180, "two", "");
    assert_eq!(finals(&world.respond(&first, 200, "b", "")), [200]);
    world.respond(&second, 487, "two", "");
    let at = usize::from(first.to.to_string() == address(1));
    assert_eq!((targets[at].calls(), targets[1 - at].calls()), (1, 0));
    world.input(ALICE, &in_dialog(&first, "BYE", 1, &format!("sip:{SERVER}")));
    world.settle();
    assert_eq!(counts(&targets), [(0, 0); 2]);
}

#[test]
fn a_target_that_says_100_first_has_answered_its_probe() {
    let targets = targets(1);
    let probe = Probe { interval: Duration::from_secs(1), down: 1, ..Probe::default() };
    let mut world = world(SetConfig { probe: Some(probe), ..config(Policy::Hash) }, &targets);
    for _ in 0..30 {
        for (_, sent) in world.wait(Duration::from_millis(100)) {
            world.respond(&sent, 100, "", "");
            world.respond(&sent, 200, "p", "");
        }
    }
    assert!(targets[0].is_up(), "{:?}", world.events);
}

#[test]
fn a_session_without_bye_ends_with_its_timer() {
    let targets = targets(1);
    let mut world = world(config(Policy::LeastCalls), &targets);
    let first = invite(&mut world, 1);
    world.respond(&first, 200, "b", "Session-Expires: 1800;refresher=uac\r\n");
    world.wait(Duration::from_secs(1801));
    assert_eq!(counts(&targets), [(1, 0)]);
    world.wait(Duration::from_secs(60));
    assert_eq!(counts(&targets), [(0, 0)]);
}

#[test]
fn the_call_of_a_silent_target_is_the_next_ones() {
    let targets = targets(2);
    let mut world = world(config(Policy::RoundRobin), &targets);
    let first = invite(&mut world, 1);
    let sent = world.wait(Duration::from_secs(3));
    let second =
        sent.iter().find(|(_, sent)| sent.method() == "INVITE" && sent.to != first.to).expect("tried elsewhere");
    assert!(second.0 <= 2_500, "within the caller's patience: {} ms", second.0);
    let second = second.1.clone();
    let at = usize::from(second.to.to_string() == address(1));
    assert_eq!(targets[at].calls(), 1, "one call, and it is there");
    assert_eq!(targets[1 - at].calls(), 0);
    assert_eq!(finals(&world.respond(&second, 200, "b", "")), [200]);
    // While the first one is out everybody goes to the other.
    for number in 2..10 {
        let next = invite(&mut world, number);
        assert_eq!(next.to, second.to);
        world.respond(&next, 486, "b", "");
    }
    let bye = in_dialog(&second, "BYE", 1, &format!("sip:{SERVER}"));
    assert_eq!(destinations(&world.input(ALICE, &bye), "BYE"), [second.to.to_string()]);
    world.settle();
    assert_eq!(counts(&targets), [(0, 0); 2]);
}

#[test]
fn nobody_in_service_is_told_at_once_with_a_time_to_come_back() {
    let targets = targets(2);
    let mut world = world(config(Policy::LeastCalls), &targets);
    targets.iter().for_each(|target| target.drain());
    let sent = world.input(ALICE, &text("INVITE", 1, ""));
    assert_eq!(finals(&sent), [503]);
    assert!(sent.iter().any(|sent| sent.header("Retry-After").is_some()), "{:?}", summary(&sent));
    targets[0].undrain(world.now);
    world.input(ALICE, &text("INVITE", 1, "").replace("z9hG4bK", "z9hG4bKa").replace("CSeq: 1", "CSeq: 2"));
    assert_eq!(targets[0].calls(), 1);
    world.settle();
}

#[test]
fn the_call_that_finds_them_all_dead_is_told_the_same() {
    let targets = targets(2);
    let mut world = world(config(Policy::LeastCalls), &targets);
    invite(&mut world, 1);
    let lost = |world: &mut World, number| {
        world.give(Input::Unreachable { peer: address(number).parse().expect("an address") })
    };
    let sent = [lost(&mut world, 0), lost(&mut world, 1), lost(&mut world, 0)].concat();
    assert_eq!(finals(&sent), [503]);
    assert!(sent.iter().any(|sent| sent.header("Retry-After") == Some("5")), "{:?}", summary(&sent));
    world.settle();
    assert_eq!(counts(&targets), [(0, 0); 2]);
}

#[test]
fn draining_keeps_the_calls_that_there_are() {
    let targets = targets(2);
    let mut world = world(config(Policy::LeastCalls), &targets);
    let first = invite(&mut world, 1);
    world.respond(&first, 200, "b", "");
    let at = usize::from(first.to.to_string() == address(1));
    targets[at].drain();
    for number in 2..12 {
        let next = invite(&mut world, number);
        assert_ne!(next.to, first.to);
        world.respond(&next, 486, "b", "");
    }
    let sent = world.input(ALICE, &in_dialog(&first, "INFO", 1, &format!("sip:{SERVER}")));
    assert_eq!(destinations(&sent, "INFO"), [first.to.to_string()]);
    let bye = hang_up(&mut world, &first, 1);
    assert_eq!(targets[at].calls(), 1, "it has the BYE to answer");
    world.respond(&bye, 200, "b", "");
    assert_eq!(targets[at].calls(), 0, "it is empty");
    world.settle();
}

#[test]
fn probes_take_a_target_out_and_bring_it_back() {
    let targets = targets(2);
    let probe =
        Probe { interval: Duration::from_secs(5), timeout: Duration::from_secs(1), down: 2, up: 2, ..Probe::default() };
    let mut world = world(SetConfig { probe: Some(probe), ..config(Policy::RoundRobin) }, &targets);
    let mut dead = true;
    // Whoever is probed answers, but for the first target while it is dead.
    let run = |world: &mut World, seconds: u64, dead: bool| {
        for _ in 0..seconds * 10 {
            for (_, sent) in world.wait(Duration::from_millis(100)) {
                if sent.method() == "OPTIONS" && !(dead && sent.to.to_string() == address(0)) {
                    world.respond(&sent, 200, "p", "");
                }
            }
        }
    };
    run(&mut world, 20, dead);
    assert!(!targets[0].is_up() && targets[1].is_up());
    let is_down = |event: &Event| matches!(event, Event::Target { is_up: false, uri, .. } if uri.contains(&address(0)));
    assert_eq!(world.events.iter().filter(|event| is_down(event)).count(), 1, "it is told once: {:?}", world.events);
    for number in 0..6 {
        let sent = invite(&mut world, number);
        assert_eq!(sent.to.to_string(), address(1));
        world.respond(&sent, 486, "b", "");
    }
    dead = false;
    run(&mut world, 20, dead);
    assert!(targets[0].is_up());
    assert!(world.events.iter().any(|event| matches!(event, Event::Target { is_up: true, .. })));
}

/// What a loaded target says to calls of before lifts nothing: it has said when to come back.
#[test]
fn a_503_with_a_time_holds_until_then() {
    let targets = targets(2);
    let slow_start = Duration::from_secs(60);
    let mut world = world(SetConfig { slow_start, ..config(Policy::LeastCalls) }, &targets);
    let calls: Vec<Sent> = (0..4).map(|number| invite(&mut world, number)).collect();
    let (one, other): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| call.to == calls_of(0));
    assert_eq!((one.len(), other.len()), (2, 2));
    world.wait(Duration::from_millis(1));
    let [first, second] = &one[..] else { panic!("two") };
    let next = find(&world.respond(first, 503, "b", "Retry-After: 120\r\n"), "INVITE");
    assert_eq!(next.to, other[0].to);
    // It takes the call that it was ringing already, and its BYE.
    world.respond(second, 180, "b", "");
    assert_eq!(finals(&world.respond(second, 200, "b", "")), [200]);
    let bye = find(&world.input(ALICE, &in_dialog(second, "BYE", number_of(second), &uri(0))), "BYE");
    world.respond(&bye, 200, "b", "");
    for number in 10..30 {
        let call = invite(&mut world, number);
        assert_eq!(call.to, other[0].to, "left alone");
        world.respond(&call, 486, "b", "");
    }
    other.iter().chain([&next]).for_each(|call| drop(world.respond(call, 486, "b", "")));
    world.wait(Duration::from_secs(121));
    let firsts: Vec<_> = (30..50)
        .map(|number| {
            let call = invite(&mut world, number);
            world.respond(&call, 486, "b", "");
            call.to
        })
        .collect();
    assert!(firsts.iter().filter(|to| **to == calls_of(0)).count() > 5, "with its whole share at once: {firsts:?}");
    world.settle();
}

/// RFC 3261 §21.5.4: it should get no other request. Who merely failed is still tried where nobody else is left.
#[test]
fn who_has_said_when_to_come_back_is_no_last_resort() {
    let targets = targets(3);
    let mut world = world(config(Policy::LeastCalls), &targets);
    let first = invite(&mut world, 1);
    let next = find(&world.respond(&first, 503, "b", "Retry-After: 120\r\n"), "INVITE");
    let third = find(&world.respond(&next, 503, "b", ""), "INVITE");
    world.respond(&third, 486, "b", "");
    let call = invite(&mut world, 2);
    assert_eq!(call.to, third.to);
    let call = find(&world.respond(&call, 503, "b", ""), "INVITE");
    assert_eq!(call.to, next.to, "it may be back");
    let sent = world.respond(&call, 503, "b", "");
    assert_eq!((destinations(&sent, "INVITE"), finals(&sent).len()), (vec![], 1), "{:?}", summary(&sent));

    // Now all of them have said so; the second, by and by, that it needs less time.
    world.wait(Duration::from_secs(1));
    let call = invite(&mut world, 3);
    let call = find(&world.respond(&call, 503, "b", "Retry-After: 60\r\n"), "INVITE");
    assert_eq!(finals(&world.respond(&call, 503, "b", "Retry-After: 30\r\n")).len(), 1);
    world.wait(Duration::from_millis(9_500));
    let sent = world.input(ALICE, &text("INVITE", 4, ""));
    assert_eq!((destinations(&sent, "INVITE"), finals(&sent)), (vec![], vec![503]));
    assert!(sent.iter().any(|sent| sent.header("Retry-After") == Some("21")), "{:?}", summary(&sent));
    world.wait(Duration::from_secs(21));
    let back = invite(&mut world, 5);
    assert_eq!(back.to, call.to, "its time is over");
    world.respond(&back, 486, "b", "");
    world.settle();
}

/// To take it for dead because it is slow would leave nobody.
#[test]
fn the_last_that_works_is_given_time() {
    let targets = targets(3);
    let mut world = world(config(Policy::RoundRobin), &targets);
    let first = invite(&mut world, 1);
    let next = find(&world.give(Input::Unreachable { peer: first.to }), "INVITE");
    let third = find(&world.give(Input::Unreachable { peer: next.to }), "INVITE");
    world.respond(&third, 486, "b", "");
    let slow = invite(&mut world, 2);
    assert_eq!(slow.to, third.to);
    let sent: Vec<Sent> = world.wait(Duration::from_secs(6)).into_iter().map(|(_, sent)| sent).collect();
    assert!(destinations(&sent, "INVITE").iter().all(|to| *to == third.to.to_string()), "{:?}", summary(&sent));
    let another = invite(&mut world, 3);
    assert_eq!(another.to, third.to, "calls still go there");
    for call in [&slow, &another] {
        assert_eq!(finals(&world.respond(call, 200, "b", "")), [200]);
    }
    world.settle();
}

fn calls_of(number: usize) -> SocketAddr {
    address(number).parse().expect("an address")
}

/// The number in the Call-ID of a call.
fn number_of(sent: &Sent) -> usize {
    let call_id = sent.header("Call-ID").and_then(|id| id.split('@').next());
    call_id.and_then(|number| number.parse().ok()).expect("a number")
}

/// Where a target has filled up between the choice and the sending, as when its neighbour failed, the call goes to the next.
#[test]
fn no_target_gets_more_calls_than_it_may_have() {
    let targets = targets(3);
    let member = |(number, target): (usize, &Arc<Target>)| Member {
        capacity: Some([10, 1, 1][number]),
        priority: u16::try_from(number).expect("small"),
        ..Member::new(Arc::clone(target))
    };
    let set = Set::new(config(Policy::Priority), targets.iter().enumerate().map(member).collect()).expect("sound");
    let at = |number| RouteTarget::at(uri(number).as_bytes(), calls_of(number));
    let action = Action::balance(Arc::new(set), (0..3).map(at).collect(), Stateless::Never);
    let mut world = World::new(|snapshot| {
        snapshot.routes = vec![Route::of_domain(b"*", action)];
        snapshot.follow_calls = true;
    });
    // Three calls were sent to the first, each with the others behind it.
    let calls: Vec<Sent> = (0..3).map(|number| invite(&mut world, number)).collect();
    assert!(calls.iter().all(|call| call.to == calls_of(0)));
    let next: Vec<_> = calls.iter().map(|call| world.respond(call, 503, "b", "")).collect();
    assert_eq!(destinations(&next[0], "INVITE"), [address(1)]);
    assert_eq!(destinations(&next[1], "INVITE"), [address(2)], "the second one is full by now");
    assert_eq!((destinations(&next[2], "INVITE"), finals(&next[2])), (vec![], vec![500]));
    assert_eq!(targets.iter().map(|target| target.calls()).collect::<Vec<_>>(), [0, 1, 1]);
    world.settle();
    assert_eq!(counts(&targets), [(0, 0); 3]);
}

/// A proxy that stays on the way of the call by its own Record-Route has the BYE to do as much as a phone has.
#[test]
fn what_a_target_that_records_its_route_gets_to_do_is_counted() {
    let targets = targets(2);
    let mut world = world(config(Policy::LeastWork), &targets);
    let first = invite(&mut world, 1);
    let at = usize::from(first.to == calls_of(1));
    let recorded = format!("Record-Route: <{};lr>\r\n", uri(at));
    let answer = world.respond(&first, 200, "b", &recorded);
    assert_eq!(finals(&answer), [200]);
    let ours: String = first.headers("Record-Route").map(|route| format!("Route: {route}\r\n")).collect();
    let routes = format!("{ours}Route: <{};lr>\r\n", uri(at));
    let bye = text("BYE", 1, &routes)
        .replace("sip:x@elsewhere.example", "sip:bob@198.51.100.99")
        .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b")
        .replace("CSeq: 1", "CSeq: 2");
    let bye = find(&world.input(ALICE, &bye), "BYE");
    assert_eq!(bye.to, first.to);
    assert_eq!((targets[at].transactions(), targets[at].work()), (1, 1000));
    world.respond(&bye, 200, "b", "");
    assert_eq!(counts(&targets), [(0, 0); 2]);
    // A contact at another port of its host is its as well, one elsewhere is not.
    for (number, is_at_host) in [(10, true), (11, false)] {
        let call = invite(&mut world, number);
        let at = usize::from(call.to == calls_of(1));
        world.respond(&call, 200, "b", "");
        let contact =
            if is_at_host { format!("sip:b@{}:5099", call.to.ip()) } else { "sip:b@198.51.100.99".to_owned() };
        let bye = find(&world.input(ALICE, &in_dialog(&call, "BYE", number, &contact)), "BYE");
        assert_eq!(targets[at].transactions(), u32::from(is_at_host), "{contact}");
        world.respond(&bye, 200, "b", "");
    }
    world.settle();
    assert_eq!(counts(&targets), [(0, 0); 2]);
}

#[test]
fn probes_follow_what_the_configuration_says_of_them() {
    let targets = targets(1);
    let with = |interval: Option<u64>| {
        let probe = |seconds| Probe { interval: Duration::from_secs(seconds), down: 1, ..Probe::default() };
        SetConfig { probe: interval.map(probe), ..config(Policy::Hash) }
    };
    let is_probed_within = |world: &mut World, seconds: u64| {
        world.wait(Duration::from_secs(seconds)).iter().any(|(_, sent)| sent.method() == "OPTIONS")
    };
    let mut world = world(with(Some(3_600)), &targets);
    world.configure(|snapshot| snapshot.routes = vec![route(with(Some(5)), &targets)]);
    assert!(is_probed_within(&mut world, 6), "an interval that is made shorter holds at once");
    world.wait(Duration::from_secs(3));
    assert!(!targets[0].is_up());
    world.configure(|snapshot| snapshot.routes = vec![route(with(None), &targets)]);
    assert!(!is_probed_within(&mut world, 60));
    world.configure(|snapshot| snapshot.routes = vec![route(with(Some(5)), &targets)]);
    assert!(targets[0].is_up(), "what probes said before says nothing now");
    world.configure(|snapshot| snapshot.routes = vec![route(with(Some(0)), &targets)]);
    let asked = world.wait(Duration::from_secs(3)).iter().filter(|(_, sent)| sent.method() == "OPTIONS").count();
    assert!(asked < 200, "not as fast as it can: {asked}");
}

/// What is known of a target ends with its probes: it gets calls again, a few at first, for it may be dead still.
#[test]
fn a_target_that_was_down_comes_back_slowly_when_probes_are_switched_off() {
    let targets = targets(4);
    let with = |probe: Option<Probe>| SetConfig {
        probe,
        slow_start: Duration::from_secs(30),
        ..config(Policy::LeastTransactions)
    };
    let probe = Probe { interval: Duration::from_secs(5), down: 1, up: 1, ..Probe::default() };
    let mut world = world(with(Some(probe)), &targets);
    for _ in 0..100 {
        for (_, sent) in world.wait(Duration::from_millis(100)) {
            if sent.method() == "OPTIONS" && sent.to.to_string() != address(0) {
                world.respond(&sent, 200, "p", "");
            }
        }
    }
    assert_eq!([0, 1, 2, 3].map(|at| targets[at].is_up()), [false, true, true, true]);
    world.configure(|snapshot| snapshot.routes = vec![route(with(None), &targets)]);
    let calls = |world: &mut World, first: usize| {
        let begun = (first..first + 200).map(|number| {
            let sent = invite(world, number);
            world.respond(&sent, 180, "b", "");
            sent.to.to_string()
        });
        begun.filter(|to| *to == address(0)).count()
    };
    let at_first = calls(&mut world, 0);
    assert!((1..=12).contains(&at_first), "{at_first} of 200");
    world.wait(Duration::from_secs(31));
    assert!(calls(&mut world, 200) >= 30, "all of its part");
}

#[test]
fn a_probe_that_is_on_its_way_is_not_repeated_once_probes_are_switched_off() {
    let targets = targets(1);
    let with = |probe: Option<Probe>| SetConfig { probe, ..config(Policy::Hash) };
    let probe = Probe { interval: Duration::from_secs(5), timeout: Duration::from_secs(4), ..Probe::default() };
    let mut world = world(with(Some(probe)), &targets);
    while !world.wait(Duration::from_millis(100)).iter().any(|(_, sent)| sent.method() == "OPTIONS") {}
    world.configure(|snapshot| snapshot.routes = vec![route(with(None), &targets)]);
    let sent = world.settle();
    assert!(sent.is_empty(), "{:?}", summary(&sent));
}

/// An answer counts for the probe that it is to, and once.
#[test]
fn an_answer_that_comes_late_is_nobodys() {
    let targets = targets(1);
    let probe =
        Probe { interval: Duration::from_secs(5), timeout: Duration::from_secs(1), down: 2, up: 2, ..Probe::default() };
    let mut world = world(SetConfig { probe: Some(probe), ..config(Policy::Hash) }, &targets);
    let next = |world: &mut World| loop {
        let sent = world.wait(Duration::from_millis(100));
        if let Some((_, sent)) = sent.into_iter().find(|(_, sent)| sent.method() == "OPTIONS") {
            break sent;
        }
    };
    let first = next(&mut world);
    world.wait(Duration::from_secs(2));
    let second = next(&mut world);
    assert_ne!(first.header("Via"), second.header("Via"));
    // Of the one that was given up, while the next one is waited for, which fails too.
    world.respond(&first, 200, "p", "");
    world.wait(Duration::from_secs(2));
    assert!(!targets[0].is_up(), "two in a row had no answer in time");
    world.respond(&second, 200, "p", "");
    let third = next(&mut world);
    for _ in 0..3 {
        world.respond(&third, 200, "p", "");
    }
    assert!(!targets[0].is_up(), "one answer, however often it comes");
    let fourth = next(&mut world);
    world.respond(&fourth, 200, "p", "");
    assert!(targets[0].is_up());
}

/// Where our own network is full every probe is lost, and no target is worse for it.
#[test]
fn probes_that_never_left_take_nobody_out() {
    let targets = targets(2);
    let probe = Probe { interval: Duration::from_secs(5), down: 1, ..Probe::default() };
    let mut world = world(SetConfig { probe: Some(probe), ..config(Policy::Hash) }, &targets);
    let mut lost = 0;
    for _ in 0..600 {
        for (_, sent) in world.wait(Duration::from_millis(100)) {
            lost += 1;
            assert!(world.give(Input::Unsent { peer: sent.to }).is_empty());
        }
    }
    assert!(lost >= 20 && targets.iter().all(|target| target.is_up()), "{lost} lost, {:?}", world.events);
    world.wait(Duration::from_secs(10));
    assert!(!targets.iter().any(|target| target.is_up()), "now they leave, and nobody answers");
}

/// Two members with the same keys: what the one began the other carries on.
#[test]
fn another_member_with_the_same_keys_carries_on() {
    let pool = targets(4);
    let shared = |snapshot: &mut strowger_shard::Snapshot| snapshot.shared_keys = true;
    let mut one = world(config(Policy::LeastCalls), &pool);
    one.configure(shared);
    // Counts of its own.
    let own = targets(4);
    let mut other = world(config(Policy::LeastCalls), &own);
    other.configure(shared);
    for number in 0..20 {
        // A call that is being set up: the caller repeats its INVITE, and for the target that is a retransmission.
        let first = invite(&mut one, number);
        let again = invite(&mut other, number);
        if again.to == first.to {
            assert_eq!(again.header("Via"), first.header("Via"), "the same branch");
        }
        // What answers the first one's INVITE finds the caller.
        assert_eq!(finals(&other.respond(&first, 200, "b", "")), [200]);
        let ack = other.input(ALICE, &in_dialog(&first, "ACK", number, &format!("sip:{SERVER}")));
        assert_eq!(destinations(&ack, "ACK"), [first.to.to_string()]);
        // An established call: its requests go where it is.
        let bye = other.input(ALICE, &in_dialog(&first, "BYE", number, &format!("sip:bob@{SERVER}")));
        assert_eq!(destinations(&bye, "BYE"), [first.to.to_string()]);
        other.respond(&find(&bye, "BYE"), 200, "b", "");
    }
    // A CANCEL of what only the other one knew goes to both that may have it, by the branch of the INVITE.
    let first = invite(&mut one, 99);
    let cancel = text("CANCEL", 99, "").replace("z9hG4bKCANCEL", "z9hG4bKINVITE");
    let sent = other.input(ALICE, &cancel);
    let meant: Vec<_> = sent.iter().filter(|sent| sent.method() == "CANCEL").collect();
    assert!(meant.len() <= 2 && !meant.is_empty(), "{:?}", summary(&sent));
    for sent in meant.iter().filter(|sent| sent.to == first.to) {
        assert_eq!(sent.header("Via"), first.header("Via"));
    }
    one.settle();
    other.settle();
    assert_eq!(counts(&own), [(0, 0); 4]);
    assert_eq!(counts(&pool).iter().map(|(_, transactions)| transactions).sum::<u32>(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Call(usize),
    Respond { back: usize, status: u16 },
    Bye(usize),
    CalleesBye(usize),
    Cancel(usize),
    Unreachable(usize),
    Wait(u64),
    Drain(usize),
    Undrain(usize),
    Reload(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..40_usize).prop_map(Step::Call),
        4 => (0..6_usize, prop::sample::select(vec![100, 180, 200, 302, 404, 407, 486, 500, 503, 603]))
            .prop_map(|(back, status)| Step::Respond { back, status }),
        2 => (0..40_usize).prop_map(Step::Bye),
        1 => (0..40_usize).prop_map(Step::CalleesBye),
        1 => (0..40_usize).prop_map(Step::Cancel),
        1 => (0..4_usize).prop_map(Step::Unreachable),
        2 => (1..40_000_u64).prop_map(Step::Wait),
        1 => (0..4_usize).prop_map(Step::Drain),
        1 => (0..4_usize).prop_map(Step::Undrain),
        1 => (1..5_usize).prop_map(Step::Reload),
    ]
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(vec![
        Policy::Hash,
        Policy::RoundRobin,
        Policy::Random,
        Policy::LeastCalls,
        Policy::LeastTransactions,
        Policy::LeastWork,
    ])
}

/// What may happen to calls that are answered.
#[derive(Clone, Debug)]
enum Moment {
    Call,
    Bye { call: usize, is_callers: bool },
    Answer { bye: usize, status: u16 },
    Pass,
    PassLong,
}

fn moment() -> impl Strategy<Value = Moment> {
    let statuses = vec![100, 200, 200, 200, 401, 407, 408, 481, 500, 503, 603];
    prop_oneof![
        4 => Just(Moment::Call),
        3 => (0..20_usize, prop::bool::weighted(0.7)).prop_map(|(call, is_callers)| Moment::Bye { call, is_callers }),
        4 => (0..6_usize, prop::sample::select(statuses)).prop_map(|(bye, status)| Moment::Answer { bye, status }),
        1 => Just(Moment::Pass),
        1 => Just(Moment::PassLong),
    ]
}

proptest! {
    /// Whatever is lost, answered twice, cancelled, drained or reloaded: when all calls are over nothing is counted.
    #[test]
    fn the_counters_come_back_to_nothing(policy in any_policy(), steps in prop::collection::vec(step(), 1..120), crash: bool) {
        let targets = targets(4);
        let mut world = world(config(policy), &targets);
        // All that may still be answered.
        let mut requests: Vec<Sent> = Vec::new();
        let is_request = |sent: &Sent| matches!(sent.method(), "INVITE" | "BYE");
        let invite_of = |requests: &[Sent], number: usize| {
            let is_it = |sent: &&Sent| sent.method() == "INVITE" && number_of(sent) == number;
            requests.iter().find(is_it).cloned()
        };
        for step in steps {
            match step {
                Step::Call(number) => {
                    let sent = world.input(ALICE, &text("INVITE", number, ""));
                    requests.extend(sent.into_iter().filter(is_request));
                }
                Step::Respond { back, status } => {
                    if let Some(request) = requests.len().checked_sub(back + 1).map(|at| requests[at].clone()) {
                        let sent = world.respond(&request, status, "b", "");
                        requests.extend(sent.into_iter().filter(is_request));
                    }
                }
                Step::Bye(number) => {
                    if let Some(first) = invite_of(&requests, number) {
                        let bye = world.input(ALICE, &in_dialog(&first, "BYE", number, &format!("sip:{SERVER}")));
                        requests.extend(bye.into_iter().filter(is_request));
                    }
                }
                Step::CalleesBye(number) => {
                    if let Some(first) = invite_of(&requests, number) {
                        let bye = world.input(&first.to.to_string(), &callees_bye(&first));
                        requests.extend(bye.into_iter().filter(is_request));
                    }
                }
                Step::Cancel(number) => {
                    let cancel = text("CANCEL", number, "").replace("z9hG4bKCANCEL", "z9hG4bKINVITE");
                    world.input(ALICE, &cancel);
                }
                Step::Unreachable(number) => {
                    let sent = world.give(Input::Unreachable { peer: address(number).parse().expect("an address") });
                    requests.extend(sent.into_iter().filter(is_request));
                }
                Step::Wait(millis) => {
                    let sent = world.wait(Duration::from_millis(millis));
                    requests.extend(sent.into_iter().map(|(_, sent)| sent).filter(is_request));
                }
                Step::Drain(number) => targets[number].drain(),
                Step::Undrain(number) => targets[number].undrain(world.now),
                Step::Reload(count) => {
                    let kept = &targets[..count.min(targets.len())];
                    let route = route(config(policy), kept);
                    world.configure(|snapshot| snapshot.routes = vec![route]);
                }
            }
        }
        if crash {
            drop(world);
        } else {
            // Sessions without BYE have a maximum age.
            world.wait(Duration::from_secs(13 * 3600));
            prop_assert_eq!(world.shard.transactions(), 0);
        }
        prop_assert_eq!(counts(&targets), vec![(0, 0); 4]);
        prop_assert_eq!(targets.iter().map(|target| target.work()).sum::<u64>(), 0);
    }

    /// Whatever becomes of BYEs, a call counts from its INVITE until its first one is answered or given up, and who has the
    /// fewest such calls gets the next.
    #[test]
    fn a_call_counts_until_its_bye_is_answered(steps in prop::collection::vec(moment(), 1..120), crash: bool) {
        let targets = targets(3);
        let mut world = world(config(Policy::LeastCalls), &targets);
        world.configure(|snapshot| snapshot.proxy.avoid_for = Duration::ZERO);
        // Each with where it is, until it counts no more.
        let mut calls: Vec<(Sent, Option<usize>)> = Vec::new();
        // Those without an answer, with the call that each has ended.
        let mut byes: Vec<(Sent, Option<usize>)> = Vec::new();
        let mut ended: Vec<usize> = Vec::new();
        for (serial, step) in steps.into_iter().enumerate() {
            match step {
                Moment::Call => {
                    let before = targets.iter().map(|target| target.calls()).min();
                    let first = call(&mut world, calls.len());
                    let at = (0..3).find(|number| first.to == calls_of(*number)).expect("one of them");
                    prop_assert_eq!(Some(targets[at].calls() - 1), before, "it had the fewest");
                    calls.push((first, Some(at)));
                }
                Moment::Bye { call, is_callers } if call < calls.len() => {
                    let first = calls[call].0.clone();
                    let (from, text) = if is_callers {
                        (ALICE.to_owned(), in_dialog(&first, "BYE", call, &format!("sip:{SERVER}")))
                    } else {
                        (first.to.to_string(), callees_bye(&first))
                    };
                    // Each is another request, so that also those are looked at that come after the call.
                    let text = text.replacen("z9hG4bK", &format!("z9hG4bK{serial}x"), 1);
                    let bye = find(&world.input(&from, &text), "BYE");
                    prop_assert!(world.input(&from, &text).iter().all(|sent| sent.method() != "BYE"), "the same again");
                    let is_first = !ended.contains(&call);
                    ended.push(call);
                    if is_first && !is_callers {
                        calls[call].1 = None;
                    }
                    byes.push((bye, (is_first && is_callers).then_some(call)));
                }
                Moment::Answer { bye, status } if bye < byes.len() => {
                    let (request, call) = byes[bye].clone();
                    world.respond(&request, status, "", "");
                    if status >= 200 {
                        byes.swap_remove(bye);
                        call.into_iter().for_each(|call| calls[call].1 = None);
                    }
                }
                Moment::Pass => drop(world.wait(Duration::from_millis(100))),
                // Longer than anybody waits for the answer to a BYE (Timer F).
                Moment::PassLong => {
                    world.wait(Duration::from_secs(40));
                    byes.drain(..).filter_map(|(_, call)| call).for_each(|call| calls[call].1 = None);
                }
                Moment::Bye { .. } | Moment::Answer { .. } => {}
            }
            let expected = |number| calls.iter().filter(|(_, at)| *at == Some(number)).count();
            let counted: Vec<_> = targets.iter().map(|target| target.calls() as usize).collect();
            prop_assert_eq!(counted, (0..3).map(expected).collect::<Vec<_>>());
        }
        if crash {
            drop(world);
        } else {
            world.wait(Duration::from_secs(13 * 3600));
            prop_assert_eq!(world.shard.contexts(), 0);
        }
        prop_assert_eq!(counts(&targets), vec![(0, 0); 3]);
    }
}
