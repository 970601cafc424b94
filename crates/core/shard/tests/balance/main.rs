//! A route to a balanced set: the choice of the target, in-dialog requests, the counts, and targets that fail and
//! recover.

mod hanging_up;
mod histories;
mod overload;
mod probes;
#[path = "../support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_balancer::{Key, Member, Policy, Set, SetConfig, Target};
use strowger_message::Status;
use strowger_proxy::Stateless;
use strowger_shard::{Action, Input, Route, RouteMatch as Match, RouteTarget};
use support::{ALICE, SERVER, SentMessage, World, destinations, finals, find, request, summary};

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
        snapshot.track_calls = true;
    })
}

fn text(method: &str, number: usize, extra: &str) -> String {
    request(method, "sip:x@elsewhere.example", &format!("{method}{number}"), extra)
        .replace("call-1@alice", &format!("{number}@alice"))
}

fn invite(world: &mut World, number: usize) -> SentMessage {
    find(&world.input(ALICE, &text("INVITE", number, "")), "INVITE")
}

/// A request of the caller in the dialog of `invite`, along its Record-Routes, to `contact`.
fn in_dialog(invite: &SentMessage, method: &str, number: usize, contact: &str) -> String {
    let routes: String = invite.headers("Record-Route").map(|route| format!("Route: {route}\r\n")).collect();
    text(method, number, &routes)
        .replace("sip:x@elsewhere.example", contact)
        .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b")
        .replace(&format!("CSeq: 1 {method}"), &format!("CSeq: 2 {method}"))
}

/// An answered call.
fn call(world: &mut World, number: usize) -> SentMessage {
    let invite = invite(world, number);
    assert_eq!(finals(&world.respond(&invite, 200, "b", "")), [200]);
    invite
}

/// The caller's BYE as it reaches the target.
fn hang_up(world: &mut World, invite: &SentMessage, number: usize) -> SentMessage {
    find(&world.input(ALICE, &in_dialog(invite, "BYE", number, &format!("sip:{SERVER}"))), "BYE")
}

/// The BYE of the target that answered `invite`.
fn callees_bye(invite: &SentMessage) -> String {
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

/// Returns the target of each of `count` calls, numbered from `from`; all are refused.
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
fn requests_of_a_call_follow_its_invite() {
    let targets = targets(4);
    for policy in [Policy::LeastCalls, Policy::Random, Policy::RoundRobin, Policy::Hash] {
        let mut world = world(config(policy), &targets);
        for number in 0..40 {
            let first = invite(&mut world, number);
            // The target writes the server's own address into its Contact, as an element behind one address may.
            for contact in [format!("sip:{SERVER}"), format!("sip:bob@{SERVER}"), format!("sip:{}", first.to)] {
                let again = in_dialog(&first, "INFO", number, &contact);
                // A separate branch for each.
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
fn a_challenged_call_returns_to_the_same_target() {
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
fn an_answered_call_does_not_bypass_the_routes() {
    let targets = targets(2);
    let barred = Match { prefixes: vec![(*b"0900").into()], ..Match::default() };
    let reject = Route::new(barred, Action::Reject { status: Status::FORBIDDEN, reason: None });
    let numbers = Match { domain: (*b"example.com").into(), prefixes: vec![(*b"0").into()], ..Match::default() };
    let Route { action, .. } = route(config(Policy::LeastCalls), &targets);
    let mut world = World::new(|snapshot| {
        snapshot.routes = vec![reject, Route::new(numbers, action)];
        snapshot.track_calls = true;
    });
    let dial = |number: &str, branch: &str| request("INVITE", &format!("sip:{number}@example.com"), branch, "");
    let first = find(&world.input(ALICE, &dial("0123", "b1")), "INVITE");
    world.respond(&first, 200, "b", "");
    let sent = world.input(ALICE, &dial("0900123", "b2").replace("CSeq: 1", "CSeq: 2"));
    assert_eq!((finals(&sent), destinations(&sent, "INVITE")), (vec![403], vec![]));
}

#[test]
fn a_late_answer_counts_at_its_target() {
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
fn a_silent_targets_call_goes_to_the_next_one() {
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
    // While the first one is out, all calls go to the other.
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
fn no_target_in_service_gives_503_with_retry_after() {
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
fn a_call_that_finds_all_dead_gets_the_same_response() {
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
fn draining_keeps_existing_calls() {
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
fn retry_after_of_a_503_is_respected() {
    let targets = targets(2);
    let slow_start = Duration::from_secs(60);
    let mut world = world(SetConfig { slow_start, ..config(Policy::LeastCalls) }, &targets);
    let calls: Vec<SentMessage> = (0..4).map(|number| invite(&mut world, number)).collect();
    let (one, other): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| call.to == calls_of(0));
    assert_eq!((one.len(), other.len()), (2, 2));
    world.wait(Duration::from_millis(1));
    let [first, second] = &one[..] else { panic!("two") };
    let next = find(&world.respond(first, 503, "b", "Retry-After: 120\r\n"), "INVITE");
    assert_eq!(next.to, other[0].to);
    // It accepts the call that was already ringing, and its BYE.
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

/// RFC 3261 §21.5.4: it should get no other request. A target that merely failed is still tried if no other is left.
#[test]
fn a_target_with_retry_after_is_no_last_resort() {
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

    // All of them have sent it; the second later says that it needs less time.
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

/// Taking it for dead because it is slow would leave no target.
#[test]
fn the_last_working_target_gets_time() {
    let targets = targets(3);
    let mut world = world(config(Policy::RoundRobin), &targets);
    let first = invite(&mut world, 1);
    let next = find(&world.give(Input::Unreachable { peer: first.to }), "INVITE");
    let third = find(&world.give(Input::Unreachable { peer: next.to }), "INVITE");
    world.respond(&third, 486, "b", "");
    let slow = invite(&mut world, 2);
    assert_eq!(slow.to, third.to);
    let sent: Vec<SentMessage> = world.wait(Duration::from_secs(6)).into_iter().map(|(_, sent)| sent).collect();
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

/// Returns the number in the Call-ID of a call.
fn number_of(sent: &SentMessage) -> usize {
    let call_id = sent.header("Call-ID").and_then(|id| id.split('@').next());
    call_id.and_then(|number| number.parse().ok()).expect("a number")
}

/// If a target fills up between selection and sending, for example because its neighbour failed, the call goes to the
/// next.
#[test]
fn no_target_exceeds_its_capacity() {
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
        snapshot.track_calls = true;
    });
    // Three calls were sent to the first, each with the other targets as fallback.
    let calls: Vec<SentMessage> = (0..3).map(|number| invite(&mut world, number)).collect();
    assert!(calls.iter().all(|call| call.to == calls_of(0)));
    let next: Vec<_> = calls.iter().map(|call| world.respond(call, 503, "b", "")).collect();
    assert_eq!(destinations(&next[0], "INVITE"), [address(1)]);
    assert_eq!(destinations(&next[1], "INVITE"), [address(2)], "the second one is full by now");
    assert_eq!((destinations(&next[2], "INVITE"), finals(&next[2])), (vec![], vec![500]));
    assert_eq!(targets.iter().map(|target| target.calls()).collect::<Vec<_>>(), [0, 1, 1]);
    world.settle();
    assert_eq!(counts(&targets), [(0, 0); 3]);
}

/// A proxy that stays on the path by its own Record-Route has as much work with the BYE as a phone.
#[test]
fn work_of_a_record_routing_target_is_counted() {
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
    // A contact at another port of its host counts for it as well; one at another host does not.
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

/// Two members with the same keys: one continues the calls of the other.
#[test]
fn a_member_with_the_same_keys_continues_calls() {
    let pool = targets(4);
    let shared = |snapshot: &mut strowger_shard::Snapshot| snapshot.has_shared_keys = true;
    let mut one = world(config(Policy::LeastCalls), &pool);
    one.configure(shared);
    // Separate counts.
    let own = targets(4);
    let mut other = world(config(Policy::LeastCalls), &own);
    other.configure(shared);
    for number in 0..20 {
        // A call in setup: the caller retransmits its INVITE, and the target sees a retransmission.
        let first = invite(&mut one, number);
        let again = invite(&mut other, number);
        if again.to == first.to {
            assert_eq!(again.header("Via"), first.header("Via"), "the same branch");
        }
        // The response to the first one's INVITE reaches the caller.
        assert_eq!(finals(&other.respond(&first, 200, "b", "")), [200]);
        let ack = other.input(ALICE, &in_dialog(&first, "ACK", number, &format!("sip:{SERVER}")));
        assert_eq!(destinations(&ack, "ACK"), [first.to.to_string()]);
        // An established call: its requests go to its target.
        let bye = other.input(ALICE, &in_dialog(&first, "BYE", number, &format!("sip:bob@{SERVER}")));
        assert_eq!(destinations(&bye, "BYE"), [first.to.to_string()]);
        other.respond(&find(&bye, "BYE"), 200, "b", "");
    }
    // A CANCEL for an INVITE that only the other member knew goes to both possible targets, with the branch of the
    // INVITE.
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

#[test]
fn a_user_registers_where_its_calls_go() {
    let targets = targets(5);
    let by_user = SetConfig { key: Key::User, ..config(Policy::Hash) };
    let mut world = world(by_user, &targets);
    let mut seen = Vec::new();
    for (number, user) in ["alice", "bob", "carol", "dave", "erin", "frank"].iter().enumerate() {
        let to = |text: String| text.replace("To: <sip:bob@", &format!("To: <sip:{user}@"));
        let invite = to(text("INVITE", number, "")).replace("sip:x@elsewhere", &format!("sip:{user}@elsewhere"));
        let register = to(text("REGISTER", number + 10, "")).replace("sip:x@elsewhere", "sip:elsewhere");
        let called = find(&world.input(ALICE, &invite), "INVITE").to;
        assert_eq!(find(&world.input(ALICE, &register), "REGISTER").to, called, "{user}");
        seen.push(called);
    }
    seen.dedup();
    assert!(seen.len() > 1, "not all are at one target: {seen:?}");
}
