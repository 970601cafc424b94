//! A route with several targets: how calls are shared, and failover when one is dead (RFC 3263 §4.3).

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use strowger_directory::{Directory, DirectoryChange, Gateway};
use strowger_foundation::{Flow, ListenerId, Transport};
use strowger_locate::{Cause, Hop};
use strowger_proxy::Stateless;
use strowger_shard::{Action, Event, Input, NextHopName, NextHopOwner, Route, RouteTarget};
use support::{ALICE, SentMessage, World, destinations, finals, find, request, summary};

const ONE: &str = "203.0.113.1:5060";
const TWO: &str = "203.0.113.2:5060";
const THREE: &str = "203.0.113.3:5060";

fn target(address: &str, priority: u16, weight: u16) -> RouteTarget {
    let at = RouteTarget::at(format!("sip:{address}").as_bytes(), address.parse().expect("an address"));
    RouteTarget { priority, weight, ..at }
}

fn routed(targets: Vec<RouteTarget>) -> World {
    World::new(|snapshot| {
        snapshot.routes = vec![Route::of_domain(b"*", Action::proxy(targets, Stateless::Never))];
    })
}

/// Two targets, of which the first is tried first.
fn two() -> World {
    routed(vec![target(TWO, 2, 1), target(ONE, 1, 1)])
}

fn text(method: &str, number: u32) -> String {
    request(method, "sip:x@elsewhere.example", &format!("b{number}"), "")
        .replace("call-1@alice", &format!("{number}@alice"))
}

fn call(world: &mut World, number: u32) -> Vec<SentMessage> {
    world.input(ALICE, &text("INVITE", number))
}

fn tried(sent: &[(u64, SentMessage)]) -> Vec<(u64, String)> {
    sent.iter().filter(|(_, sent)| sent.method() == "INVITE").map(|(at, sent)| (*at, sent.to.to_string())).collect()
}

fn messages(timed: Vec<(u64, SentMessage)>) -> Vec<SentMessage> {
    timed.into_iter().map(|(_, sent)| sent).collect()
}

#[test]
fn weights_are_obeyed() {
    let mut world = routed(vec![target(ONE, 1, 40), target(TWO, 1, 40), target(THREE, 1, 20)]);
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for number in 0..10_000 {
        let invite = find(&call(&mut world, number), "INVITE");
        *counts.entry(invite.to.to_string()).or_default() += 1;
        world.respond(&invite, 486, "x", "");
        if number % 100 == 0 {
            world.settle();
        }
    }
    for (address, share) in [(ONE, 4000_i64), (TWO, 4000), (THREE, 2000)] {
        let count = i64::from(counts[address]);
        assert!((count - share).abs() <= 200, "{address}: {count}");
    }
    world.settle();
}

#[test]
fn lower_priorities_are_used_when_higher_ones_are_dead() {
    let mut world = routed(vec![target(THREE, 20, 100), target(ONE, 10, 1), target(TWO, 10, 0)]);
    for number in 0..50 {
        let sent = call(&mut world, number);
        assert!([ONE, TWO].contains(&&*destinations(&sent, "INVITE")[0]));
        world.respond(&find(&sent, "INVITE"), 404, "x", "");
    }
    world.settle();
    let mut sent = call(&mut world, 99);
    let mut order = Vec::new();
    while sent.iter().any(|sent| sent.method() == "INVITE") {
        let invite = find(&sent, "INVITE");
        order.push(invite.to.to_string());
        sent = world.respond(&invite, 503, "x", "");
    }
    assert_eq!(order.len(), 3, "each once");
    assert_eq!(order[2], THREE);
    assert_eq!(finals(&sent), [500], "a 503 says only that one hop is overloaded");
    world.settle();
}

//= rfc3263#4:same-server
//= rfc3263#4.3:new-branch
//= rfc5393#4.2.1:unique
//= rfc3261#16.6:writes-for-each
//= rfc3261#16.6:branch-of-each
#[test]
fn a_silent_target_fails_over_after_four_seconds() {
    let mut world = two();
    let first = find(&call(&mut world, 1), "INVITE");
    assert_eq!(first.to.to_string(), ONE);
    let sent = world.wait(Duration::from_millis(7_900));
    let expected = [(500, ONE), (1500, ONE), (3500, ONE), (4000, TWO), (4500, TWO), (5500, TWO), (7500, TWO)];
    assert_eq!(tried(&sent), expected.map(|(at, to)| (at, to.to_owned())), "and the first hears no more of it");
    let second = sent.iter().find(|(at, _)| *at == 4000).expect("tried").1.clone();
    assert_ne!(first.header("Via"), second.header("Via"), "a branch of its own");
    assert_eq!(finals(&world.respond(&second, 180, "two", "")), [0; 0]);
    let late = world.respond(&first, 180, "one", "");
    assert_eq!(summary(&late), [format!("CANCEL {ONE}")], "it must not ring beside the other");
    assert_eq!(summary(&world.respond(&find(&late, "CANCEL"), 200, "one", "")), [""; 0]);
    assert_eq!(summary(&world.respond(&first, 487, "one", "")), [format!("ACK {ONE}")]);
    assert_eq!(finals(&world.respond(&second, 200, "two", "")), [200]);
    assert_eq!(world.shard.counters().failovers, 1);
    assert!(finals(&world.settle()).is_empty());
}

#[test]
fn a_100_is_a_sign_of_life() {
    let mut world = two();
    let first = find(&call(&mut world, 1), "INVITE");
    world.respond(&first, 100, "", "");
    assert_eq!(tried(&world.wait(Duration::from_secs(60))), []);
    assert_eq!(finals(&world.respond(&first, 486, "x", "")), [486], "busy is an answer: nobody else is asked");
    world.settle();
}

#[test]
fn a_target_that_was_silent_may_still_answer() {
    let mut world = two();
    let first = find(&call(&mut world, 1), "INVITE");
    let sent = messages(world.wait(Duration::from_secs(5)));
    let second = sent.iter().find(|sent| sent.to.to_string() == TWO).expect("tried").clone();
    world.respond(&second, 180, "two", "");
    let answered = world.respond(&first, 200, "one", "");
    assert_eq!(finals(&answered), [200]);
    assert_eq!(destinations(&answered, "CANCEL"), [TWO]);
    world.respond(&second, 487, "two", "");
    world.settle();
}

//= rfc3263#4:same-server
//= rfc3261#8.1.3.1:transport-error-is-503
//= rfc3261#16.9:503
#[test]
fn a_503_icmp_error_or_refused_connection_fails_over_at_once() {
    let mut world = two();
    let first = find(&call(&mut world, 1), "INVITE");
    let next = world.respond(&first, 503, "x", "Retry-After: 30\r\n");
    assert_eq!(summary(&next), [format!("ACK {ONE}"), format!("INVITE {TWO}")]);
    world.respond(&find(&next, "INVITE"), 200, "y", "");
    let mut world = two();
    call(&mut world, 2);
    let next = world.give(Input::Unreachable { peer: ONE.parse().expect("an address") });
    assert_eq!(summary(&next), [format!("INVITE {TWO}")]);
    world.respond(&find(&next, "INVITE"), 486, "y", "");
    world.settle();
    let stream = |address: &str| RouteTarget {
        address: strowger_shard::TargetAddress::Literal {
            address: address.parse().expect("an address"),
            transport: Some(Transport::Tcp),
        },
        ..target(address, if address == ONE { 1 } else { 2 }, 1)
    };
    let mut world = World::listening(&["UDP", "TCP"], |snapshot| {
        let action = Action::proxy(vec![stream(ONE), stream(TWO)], Stateless::Never);
        snapshot.routes = vec![Route::of_domain(b"*", action)];
    });
    let first = find(&call(&mut world, 3), "INVITE");
    assert_eq!(first.flow, Flow::new(ListenerId(1), Transport::Tcp, ONE.parse().expect("an address")));
    let next = world.give(Input::ConnectFailed { flow: first.flow });
    assert_eq!(summary(&next), [format!("INVITE {TWO}")]);
    assert!(next[0].header("Via").is_some_and(|via| via.starts_with("SIP/2.0/TCP ")));
    world.respond(&next[0], 486, "z", "");
    world.settle();
}

#[test]
fn a_failed_target_is_avoided_briefly() {
    let mut world = two();
    let first = find(&call(&mut world, 1), "INVITE");
    let next = world.respond(&first, 503, "x", "");
    world.respond(&find(&next, "INVITE"), 486, "y", "");
    for number in 2..10 {
        let sent = call(&mut world, number);
        assert_eq!(destinations(&sent, "INVITE"), [TWO]);
        world.respond(&find(&sent, "INVITE"), 486, "y", "");
        world.wait(Duration::from_secs(3));
    }
    world.wait(Duration::from_secs(10));
    let sent = call(&mut world, 10);
    assert_eq!(destinations(&sent, "INVITE"), [ONE], "after half a minute it has another chance");
    world.respond(&find(&sent, "INVITE"), 200, "x", "");
    world.settle();
}

#[test]
fn an_avoided_target_is_still_a_last_resort() {
    let mut world = two();
    let first = find(&call(&mut world, 1), "INVITE");
    let next = world.respond(&first, 503, "x", "");
    assert_eq!(finals(&world.respond(&find(&next, "INVITE"), 503, "y", "")), [500]);
    let sent = call(&mut world, 2);
    assert_eq!(destinations(&sent, "INVITE"), [ONE], "all are out, so all are tried in their order");
    let next = world.respond(&find(&sent, "INVITE"), 503, "x", "");
    assert_eq!(destinations(&next, "INVITE"), [TWO]);
    world.respond(&find(&next, "INVITE"), 200, "y", "");
    world.settle();
}

fn refused(world: &mut World, peer: &str) -> Vec<SentMessage> {
    world.give(Input::Unreachable { peer: peer.parse().expect("an address") })
}

/// A dead target may be silent, refused by the network, or answered 503 by another process: the caller gets the same
/// response.
#[test]
fn when_all_are_dead_the_caller_soon_gets_the_same_response() {
    let end = |sent: &[(u64, SentMessage)]| -> Vec<(u64, u16)> {
        sent.iter().filter(|(_, sent)| sent.status() >= 200).map(|(at, sent)| (*at, sent.status())).collect()
    };
    let acknowledge = |world: &mut World, number| assert!(world.input(ALICE, &text("ACK", number)).is_empty());
    let mut world = two();
    call(&mut world, 1);
    let sent = world.wait(Duration::from_millis(8_100));
    assert_eq!(end(&sent), [(8_000, 500)], "four seconds each");
    acknowledge(&mut world, 1);
    let late = world.wait(Duration::from_secs(40));
    assert!(late.is_empty(), "nothing is sent any more: {late:?}");
    world.settle();

    let mut world = two();
    call(&mut world, 2);
    refused(&mut world, ONE);
    assert_eq!(end(&world.wait(Duration::from_secs(4))), [(4_000, 500)], "unreachable, then silent");
    acknowledge(&mut world, 2);
    world.settle();

    let mut world = two();
    call(&mut world, 3);
    world.wait(Duration::from_secs(4));
    assert_eq!(finals(&refused(&mut world, TWO)), [500], "silent, then unreachable");
    acknowledge(&mut world, 3);
    world.settle();

    let mut world = two();
    let first = find(&call(&mut world, 4), "INVITE");
    world.respond(&first, 503, "x", "");
    assert_eq!(end(&world.wait(Duration::from_secs(4))), [(4_000, 500)], "503, then silent");
    acknowledge(&mut world, 4);
    world.settle();

    let mut world = two();
    call(&mut world, 5);
    assert_eq!(finals(&refused(&mut world, ONE)), [0; 0]);
    assert_eq!(finals(&refused(&mut world, TWO)), [500], "both unreachable");
    acknowledge(&mut world, 5);
    world.settle();
}

#[test]
fn a_shorter_timer_b_gives_the_same_response() {
    let mut world = two();
    world.configure(|snapshot| {
        snapshot.timing.t1 = Duration::from_millis(20);
        snapshot.proxy.failover_timeout = Duration::from_secs(9);
    });
    call(&mut world, 1);
    assert_eq!(finals(&messages(world.wait(Duration::from_millis(2 * 64 * 20)))).first(), Some(&500));
    world.settle();
}

#[test]
fn a_last_target_ringing_after_the_final_response_is_cancelled() {
    let mut world = two();
    call(&mut world, 1);
    let sent = messages(world.wait(Duration::from_secs(8)));
    assert_eq!(finals(&sent), [500]);
    let second = sent.iter().find(|sent| sent.to.to_string() == TWO).expect("tried").clone();
    world.input(ALICE, &text("ACK", 1));
    assert_eq!(summary(&world.respond(&second, 180, "two", "")), [format!("CANCEL {TWO}")], "it must not ring");
    assert_eq!(summary(&world.respond(&second, 487, "two", "")), [format!("ACK {TWO}")]);
    world.settle();
}

#[test]
fn the_last_target_gets_time_after_a_100() {
    let mut world = two();
    call(&mut world, 1);
    let sent = messages(world.wait(Duration::from_secs(4)));
    let second = find(&sent, "INVITE");
    let second = if second.to.to_string() == TWO { second } else { sent.last().expect("tried").clone() };
    world.respond(&second, 100, "", "");
    assert_eq!(finals(&messages(world.wait(Duration::from_secs(60)))), [0; 0]);
    assert_eq!(finals(&world.respond(&second, 200, "two", "")), [200]);
    world.settle();
}

/// There is no failover target, so retransmissions continue as long as RFC 3261 says.
#[test]
fn a_single_target_has_timer_b() {
    let mut world = routed(vec![target(ONE, 1, 1)]);
    call(&mut world, 1);
    let sent = world.wait(Duration::from_secs(33));
    let ends: Vec<_> = sent.iter().filter(|(_, s)| s.status() >= 200).map(|(at, s)| (*at, s.status())).collect();
    assert_eq!(ends.first(), Some(&(32_000, 408)));
    world.settle();
}

#[test]
fn outage_and_recovery_are_each_reported_once() {
    let gateway =
        |uri: &str| Gateway { uri: uri.as_bytes().into(), priority: 1, weight: 1, capacity: None, enabled: true };
    let mut world = two();
    world.configure(|snapshot| {
        let gateways = vec![gateway(&format!("sip:{ONE}")), gateway("sip:203.0.113.9")];
        let change = DirectoryChange::PutGateways { set: (*b"pstn").into(), gateways };
        snapshot.directory = Directory::empty(1).with_changes([change]);
    });
    for number in 1..4 {
        call(&mut world, number);
        world.wait(Duration::from_secs(60));
    }
    let hop = |address: &str| Hop::new(Transport::Udp, address.parse().expect("an address"));
    let out = |address: &str, owner: NextHopOwner| Event::Outage {
        hop: hop(address),
        names: vec![NextHopName { uri: format!("sip:{address}"), owner }],
        cause: Cause::Silent,
        avoided_for: Duration::from_secs(30),
    };
    assert_eq!(world.events, [out(ONE, NextHopOwner::Set("pstn".to_owned())), out(TWO, NextHopOwner::Route)]);
    world.events.clear();
    world.wait(Duration::from_secs(60));
    let first = find(&call(&mut world, 9), "INVITE");
    assert_eq!(finals(&world.respond(&first, 486, "x", "")), [486], "busy is an answer");
    let [Event::Recovery { hop: back, after, .. }] = &world.events[..] else { panic!("{:?}", world.events) };
    assert_eq!((back, after.as_secs()), (&hop(ONE), 4 * 60 - 4 - 4 + 4));
    world.events.clear();
    let again = find(&call(&mut world, 10), "INVITE");
    world.respond(&again, 503, "x", "");
    let told = world.events.iter().filter(|event| matches!(event, Event::Outage { cause: Cause::Refused, .. })).count();
    assert_eq!(told, 1, "{:?}", world.events);
    world.settle();
}

/// Like [`two`], with a set of these gateways.
fn of_pstn(addresses: &[&str]) -> World {
    let gateway = |address: &&str| Gateway {
        uri: format!("sip:{address}").as_bytes().into(),
        priority: 1,
        weight: 1,
        capacity: None,
        enabled: true,
    };
    let gateways: Vec<Gateway> = addresses.iter().map(gateway).collect();
    let mut world = two();
    world.configure(|snapshot| {
        let change = DirectoryChange::PutGateways { set: (*b"pstn").into(), gateways: gateways.clone() };
        snapshot.directory = Directory::empty(1).with_changes([change]);
    });
    world
}

/// Returns how often it was reported that no gateway of the set answers.
fn none_answers(world: &World) -> usize {
    let told = Event::AllTargetsOut { owner: NextHopOwner::Set("pstn".to_owned()) };
    world.events.iter().filter(|event| **event == told).count()
}

fn no_gateway(world: &World) -> u64 {
    world.shard.counters().no_gateway
}

/// Makes a call that gets no answer and is refused after `seconds`.
fn call_in_vain(world: &mut World, number: u32, seconds: u64) {
    call(world, number);
    let sent = messages(world.wait(Duration::from_millis(seconds * 1_000 + 100)));
    assert_eq!(finals(&sent), [500], "call {number}");
    world.input(ALICE, &text("ACK", number));
}

/// While no target answers, one call at a time waits as a probe.
#[test]
fn calls_fail_at_once_when_all_targets_are_known_dead() {
    let mut world = of_pstn(&[ONE, TWO]);
    call(&mut world, 1);
    assert_eq!(finals(&messages(world.wait(Duration::from_millis(8_100)))), [500], "who finds it out");
    assert_eq!(none_answers(&world), 1, "{:?}", world.events);
    world.input(ALICE, &text("ACK", 1));
    assert_eq!(destinations(&call(&mut world, 2), "INVITE").len(), 1, "one looks whether it is still so");
    for number in 3..6 {
        let refused = call(&mut world, number);
        assert_eq!((refused.len(), refused[0].status()), (1, 500), "the others do not wait");
        assert!(refused[0].text.starts_with("SIP/2.0 500 No Gateway Answers\r\n"), "{}", refused[0].text);
        assert_eq!(refused[0].header("Retry-After"), Some("5"));
        world.input(ALICE, &text("ACK", number));
    }
    world.wait(Duration::from_millis(8_100));
    world.input(ALICE, &text("ACK", 2));
    assert_eq!(world.shard.counters().no_gateway, 5);
    let probe = find(&call(&mut world, 6), "INVITE");
    assert_eq!(summary(&call(&mut world, 7)), [format!("500 {ALICE}")]);
    world.input(ALICE, &text("ACK", 7));
    world.respond(&probe, 100, "", "");
    let back = find(&call(&mut world, 8), "INVITE");
    world.respond(&back, 486, "x", "");
    assert_eq!(none_answers(&world), 1, "it is told once");
    world.respond(&probe, 486, "x", "");
    world.settle();
}

/// A gateway may drop unknown methods and still serve calls.
#[test]
fn unanswered_messages_do_not_block_calls() {
    let mut world = of_pstn(&[ONE, TWO]);
    for number in 1..10 {
        world.input(ALICE, &text("MESSAGE", number));
        world.wait(Duration::from_secs(4));
    }
    world.wait(Duration::from_secs(32));
    assert_eq!(none_answers(&world), 0, "{:?}", world.events);
    for number in 11..14 {
        let invite = find(&call(&mut world, number), "INVITE");
        world.respond(&invite, 486, "x", "");
    }
    world.settle();

    let mut world = two();
    call_in_vain(&mut world, 1, 8);
    for number in 2..5 {
        let sent = world.input(ALICE, &text("MESSAGE", number));
        assert_eq!(destinations(&sent, "MESSAGE").len(), 1, "a message is always tried");
    }
    world.settle();
}

#[test]
fn no_answer_is_reported_only_while_all_are_dead() {
    let end = |world: &mut World, number: u32| {
        let first = find(&call(world, number), "INVITE");
        let next = world.respond(&first, 503, "x", "");
        assert_eq!(finals(&world.respond(&find(&next, "INVITE"), 503, "y", "")), [500]);
        world.input(ALICE, &text("ACK", number));
    };
    let mut world = of_pstn(&[ONE, TWO]);
    end(&mut world, 1);
    assert_eq!((none_answers(&world), no_gateway(&world)), (0, 0), "both are there: {:?}", world.events);
    call_in_vain(&mut world, 2, 8);
    assert_eq!((none_answers(&world), no_gateway(&world)), (1, 1), "they have refused, and are silent now");
    let told = world.events.iter().filter(|event| matches!(event, Event::Outage { cause: Cause::Silent, .. })).count();
    assert_eq!(told, 2, "which is news: {:?}", world.events);
    world.settle();

    let mut world = of_pstn(&[ONE, TWO]);
    world.configure(|snapshot| snapshot.proxy.avoid_for = Duration::ZERO);
    for number in 1..4 {
        call_in_vain(&mut world, number, 8);
    }
    assert_eq!((none_answers(&world), no_gateway(&world)), (0, 3), "nobody is avoided, and each call waits");
    world.settle();

    let mut world = of_pstn(&[ONE, TWO, &format!("{TWO};x=y")]);
    call_in_vain(&mut world, 1, 8);
    assert_eq!(none_answers(&world), 1, "two that share an address are told of once: {:?}", world.events);
    world.wait(Duration::from_secs(600));
    call_in_vain(&mut world, 2, 8);
    assert_eq!(none_answers(&world), 1, "nor when that has not changed");
    world.settle();
}

#[test]
fn a_target_past_its_outage_is_not_dead_until_it_is_tried() {
    let mut world = of_pstn(&[ONE, TWO]);
    let first = find(&call(&mut world, 1), "INVITE");
    assert_eq!(first.to.to_string(), ONE);
    let sent = messages(world.wait(Duration::from_secs(5)));
    let second = sent.iter().find(|sent| sent.to.to_string() == TWO).expect("tried").clone();
    world.respond(&second, 486, "y", "");
    world.input(ALICE, &text("ACK", 1));
    world.wait(Duration::from_secs(20));
    // The second is silent; the half minute of the first has passed before that is found.
    call(&mut world, 2);
    world.wait(Duration::from_millis(3_900));
    assert_eq!(none_answers(&world), 0);
    world.wait(Duration::from_secs(10));
    assert_eq!(none_answers(&world), 1, "{:?}", world.events);
    world.settle();
}

/// Each request counts once, and only if no gateway responded.
#[test]
fn calls_without_a_gateway_are_counted() {
    let mut world = two();
    let first = find(&call(&mut world, 1), "INVITE");
    world.respond(&first, 100, "", "");
    assert!(!finals(&messages(world.wait(Duration::from_secs(400)))).is_empty(), "it said that it tries, and no more");
    assert_eq!(no_gateway(&world), 0);
    world.settle();

    let mut world = two();
    let first = find(&call(&mut world, 1), "INVITE");
    world.respond(&first, 503, "x", "");
    world.wait(Duration::from_secs(5));
    assert_eq!(no_gateway(&world), 0, "the first was there");
    world.settle();

    let mut world = routed(vec![target(ONE, 1, 1)]);
    call(&mut world, 1);
    world.wait(Duration::from_secs(33));
    assert_eq!(no_gateway(&world), 1, "408");
    world.settle();

    let mut world = routed(vec![target(ONE, 1, 1)]);
    world.configure(|snapshot| snapshot.proxy.ring_timeout = Duration::from_secs(10));
    call(&mut world, 1);
    assert_eq!(finals(&messages(world.wait(Duration::from_secs(11)))).first(), Some(&408));
    assert_eq!(no_gateway(&world), 0, "its time was over before it could be known");
    world.settle();

    let mut world = two();
    call(&mut world, 1);
    world.input(ALICE, &text("CANCEL", 1));
    world.wait(Duration::from_secs(40));
    assert_eq!(no_gateway(&world), 0, "the caller did not wait");
    world.settle();

    let mut world = two();
    world.input(ALICE, &text("MESSAGE", 1));
    refused(&mut world, ONE);
    assert_eq!((finals(&refused(&mut world, TWO)), no_gateway(&world)), (vec![500], 1));
    world.input(ALICE, &text("MESSAGE", 2));
    world.settle();
    assert_eq!(no_gateway(&world), 1, "silence is no answer to what is no call");
}

/// Trying all targets takes longer than each is avoided, so the probing call must come early enough to spare the
/// others.
#[test]
fn with_many_targets_a_call_probes_before_the_first_outage_ends() {
    let targets = (1..=20).map(|number| target(&format!("203.0.113.{number}:5060"), number, 1)).collect();
    let mut world = routed(targets);
    world.configure(|snapshot| snapshot.proxy.avoid_for = Duration::from_secs(60));
    call_in_vain(&mut world, 1, 80);
    let mut waiting = Vec::new();
    for number in 2..600 {
        if destinations(&call(&mut world, number), "INVITE").is_empty() {
            world.input(ALICE, &text("ACK", number));
        } else {
            waiting.push(number);
        }
        world.wait(Duration::from_secs(1));
    }
    // Until all have been found dead, the avoidance of some has ended.
    waiting.retain(|number| *number >= 200);
    assert!((13..=14).contains(&waiting.len()), "one in thirty seconds, not all of them: {waiting:?}");
    world.settle();
}

/// A gateway that answers 503 is alive: it may be full, or have refused only this call.
#[test]
fn a_refusing_gateway_is_tried_by_every_call() {
    let mut world = routed(vec![target(ONE, 1, 1)]);
    for number in 1..4 {
        let sent = call(&mut world, number);
        assert_eq!(finals(&world.respond(&find(&sent, "INVITE"), 503, "x", "")), [500]);
        world.input(ALICE, &text("ACK", number));
    }
    world.settle();
}

//= rfc3263#4:cancel-same-server
#[test]
fn a_cancel_goes_to_the_ringing_target() {
    let mut world = two();
    let first = find(&call(&mut world, 1), "INVITE");
    let next = find(&world.respond(&first, 503, "x", ""), "INVITE");
    world.respond(&next, 180, "y", "");
    let sent = world.input(ALICE, &text("CANCEL", 1));
    assert_eq!(destinations(&sent, "CANCEL"), [TWO]);
    assert_eq!(finals(&world.respond(&next, 487, "y", "")), [487]);
    world.settle();
}

#[test]
fn after_a_cancel_no_other_target_is_tried() {
    let mut world = two();
    let first = find(&call(&mut world, 1), "INVITE");
    assert_eq!(summary(&world.input(ALICE, &text("CANCEL", 1))), [format!("200 {ALICE}")]);
    let sent = world.wait(Duration::from_secs(10));
    assert!(sent.iter().all(|(_, sent)| sent.to.to_string() == ONE), "{sent:?}");
    let ringing = world.respond(&first, 180, "x", "");
    assert_eq!(destinations(&ringing, "CANCEL"), [ONE]);
    assert_eq!(finals(&world.respond(&first, 487, "x", "")), [487]);
    world.settle();
    for status in [503, 430] {
        let first = find(&call(&mut world, u32::from(status)), "INVITE");
        world.respond(&first, 180, "x", "");
        world.input(ALICE, &text("CANCEL", u32::from(status)));
        let end = world.respond(&first, status, "x", "");
        assert_eq!((destinations(&end, "INVITE").len(), finals(&end).len()), (0, 1));
        world.settle();
    }
}

#[test]
fn the_dialog_stays_with_the_invites_target() {
    let mut world = two();
    let first = find(&call(&mut world, 1), "INVITE");
    let next = find(&world.respond(&first, 503, "x", ""), "INVITE");
    let answer = world.respond(&next, 200, "y", &format!("Contact: <sip:x@{TWO}>\r\n"));
    let route = answer[0].header("Record-Route").expect("recorded").to_owned();
    for (method, cseq) in [("ACK", 1), ("BYE", 2)] {
        let text = request(method, &format!("sip:x@{TWO}"), method, &format!("Route: {route}\r\n"))
            .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=y")
            .replace("call-1@alice", "1@alice")
            .replace("CSeq: 1", &format!("CSeq: {cseq}"));
        let sent = world.input(ALICE, &text);
        assert_eq!(summary(&sent), [format!("{method} {TWO}")]);
        if method == "BYE" {
            assert_eq!(finals(&world.respond(&sent[0], 200, "", "")), [200]);
        }
    }
    world.settle();
}

//= rfc3263#4.4:order
#[test]
fn stateless_target_order_depends_on_the_call() {
    let targets = vec![target(ONE, 1, 1), target(TWO, 1, 1)];
    let mut world = World::new(|snapshot| {
        snapshot.routes = vec![Route::of_domain(b"*", Action::proxy(targets, Stateless::Always))];
    });
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for number in 0..50 {
        let first = destinations(&call(&mut world, number), "INVITE");
        for method in ["INVITE", "CANCEL", "ACK"] {
            assert_eq!(destinations(&world.input(ALICE, &text(method, number)), method), first, "{method} {number}");
        }
        *counts.entry(first[0].clone()).or_default() += 1;
    }
    assert_eq!(counts.len(), 2, "{counts:?}");
}

#[test]
fn non_invites_fail_over_too() {
    let mut world = two();
    let first = find(&world.input(ALICE, &text("MESSAGE", 1)), "MESSAGE");
    let sent = messages(world.wait(Duration::from_secs(6)));
    let second = sent.iter().find(|sent| sent.to.to_string() == TWO).expect("tried").clone();
    assert!(world.respond(&first, 100, "", "").is_empty());
    let late = messages(world.wait(Duration::from_secs(10)));
    assert!(
        late.iter().all(|sent| sent.to.to_string() == TWO),
        "what was left is not sent again: {:?}",
        summary(&late)
    );
    assert_eq!(finals(&world.respond(&second, 200, "y", "")), [200]);
    assert_eq!(finals(&world.respond(&first, 200, "x", "")), [0; 0], "one answer");
    assert!(finals(&world.settle()).is_empty());
    let sent = world.input(ALICE, &text("OPTIONS", 2));
    let next = world.respond(&find(&sent, "OPTIONS"), 503, "x", "");
    let end = world.respond(&find(&next, "OPTIONS"), 405, "y", "");
    assert_eq!(finals(&end), [405]);
    let silent = world.input(ALICE, &text("INFO", 3));
    assert_eq!(destinations(&silent, "INFO").len(), 1);
    assert!(finals(&world.settle()).is_empty(), "nobody is told of silence");
}

//= rfc3261#16.11:choice
//= rfc3261#16.11:same-destination
//= rfc3263#4.4:same-server
#[test]
fn a_stateless_retransmission_goes_the_way_of_the_original() {
    let targets = || vec![target(TWO, 2, 1), target(ONE, 1, 1)];
    let mut world = World::new(|snapshot| {
        snapshot.routes = vec![
            Route::of_domain(b"stateless.example", Action::proxy(targets(), Stateless::Always)),
            Route::of_domain(b"*", Action::proxy(targets(), Stateless::Never)),
        ];
    });
    let text = request("MESSAGE", "sip:x@stateless.example", "again", "");
    let first = world.input(ALICE, &text);
    assert_eq!(destinations(&first, "MESSAGE"), [ONE]);
    let invite = find(&call(&mut world, 1), "INVITE");
    assert_eq!(destinations(&world.respond(&invite, 503, "x", ""), "INVITE"), [TWO], "and the first is avoided now");
    assert_eq!(summary(&world.input(ALICE, &text)), summary(&first));
    let elsewhere = find(&call(&mut world, 2), "INVITE");
    assert_eq!(elsewhere.to.to_string(), TWO);
}
