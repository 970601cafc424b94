//! Targets that are names: the queries sent, the requests that wait, and the order in which addresses are tried (RFC
//! 3263).

mod support;

use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::Transport;
use strowger_locate::{Candidate, CandidateList, Hop, LocateError, LocateQuery, LocateResult};
use strowger_proxy::Stateless;
use strowger_shard::{Action, Input, Route, RouteTarget, Snapshot, TargetAddress};
use support::{ALICE, SentMessage, World, destinations, finals, find, request, summary};

const ONE: &str = "203.0.113.1:5060";
const TWO: &str = "203.0.113.2:5060";
const THREE: &str = "203.0.113.3:5062";

fn question() -> LocateQuery {
    LocateQuery::new(b"Carrier.example", None, None, false)
}

fn named(priority: u16) -> RouteTarget {
    RouteTarget { uri: (*b"sip:carrier.example").into(), address: TargetAddress::Name(question()), priority, weight: 1 }
}

fn routed(stateless: Stateless, targets: Vec<RouteTarget>) -> impl FnOnce(&mut Snapshot) {
    move |snapshot| snapshot.routes = vec![Route::of_domain(b"*", Action::proxy(targets, stateless))]
}

fn world() -> World {
    World::new(routed(Stateless::Never, vec![named(1)]))
}

fn hop(address: &str, transport: Transport) -> Hop {
    Hop::new(transport, address.parse().expect("an address"))
}

/// An answer with servers that are tried in this order.
fn servers(addresses: &[&str]) -> LocateResult {
    let candidate = |(place, address): (usize, &&str)| Candidate {
        rank: 1,
        priority: u16::try_from(place).expect("few"),
        weight: 0,
        hops: [hop(address, Transport::Udp)].into_iter().collect(),
    };
    Ok(Arc::new(CandidateList::new(addresses.iter().enumerate().map(candidate).collect())))
}

fn call(world: &mut World) -> Vec<SentMessage> {
    world.input(ALICE, &request("INVITE", "sip:x@elsewhere.example", "inv", ""))
}

#[test]
fn addresses_need_no_dns() {
    let target = RouteTarget::at(b"sip:203.0.113.1", ONE.parse().expect("an address"));
    let mut world = World::new(routed(Stateless::Never, vec![target]));
    find(&call(&mut world), "INVITE");
    assert!(world.questions.is_empty());
}

//= rfc3263#4.2:first
//= rfc3263#4.2:next
//= rfc3261#16.6:in-order
#[test]
fn a_name_is_resolved_and_its_servers_are_tried_in_order() {
    let mut world = world();
    assert_eq!(summary(&call(&mut world)), [format!("100 {ALICE}")]);
    assert_eq!(world.questions.len(), 1);
    assert_eq!(world.questions[0].1, question());
    assert_eq!(summary(&call(&mut world)), [format!("100 {ALICE}")], "a retransmission asks no more");
    assert_eq!(world.questions.len(), 1);
    let sent = world.resolve(servers(&[ONE, TWO, THREE]));
    assert_eq!(summary(&sent), [format!("INVITE {ONE}")]);
    assert_eq!(sent[0].start(), "INVITE sip:x@elsewhere.example SIP/2.0");
    let sent = world.respond(&sent[0], 503, "x", "");
    assert_eq!(destinations(&sent, "INVITE"), [TWO]);
    let sent = world.give(Input::Unreachable { peer: TWO.parse().expect("an address") });
    assert_eq!(summary(&sent), [format!("INVITE {THREE}")]);
    assert_eq!(finals(&world.respond(&sent[0], 200, "z", "")), [200]);
    world.wait(Duration::from_secs(40));
    let next = world.input(ALICE, &request("INVITE", "sip:x@elsewhere.example", "two", ""));
    assert_eq!(destinations(&next, "INVITE"), [ONE], "the answer was kept, and the dead are forgiven by now");
    assert!(world.questions.is_empty());
    world.respond(&find(&next, "INVITE"), 486, "x", "");
    world.settle();
}

//= rfc3263#4.2:next
#[test]
fn a_silent_server_of_a_name_fails_over() {
    let mut world = world();
    call(&mut world);
    world.resolve(servers(&[ONE, TWO]));
    let sent: Vec<_> =
        world.wait(Duration::from_secs(5)).into_iter().filter(|(_, s)| s.to.to_string() == TWO).collect();
    assert_eq!(sent[0].0, 4000);
    assert_eq!(finals(&world.respond(&sent[0].1, 404, "x", "")), [404]);
    world.settle();
}

#[test]
fn dns_failures_give_502_or_503() {
    for (failure, status) in [(LocateError::NoAnswer, 503), (LocateError::NoSuchName, 502)] {
        for method in ["INVITE", "MESSAGE"] {
            let mut world = world();
            world.input(ALICE, &request(method, "sip:x@elsewhere.example", "one", ""));
            assert_eq!(finals(&world.resolve(Err(failure))), [status]);
            world.wait(Duration::from_secs(6));
            let again = world.input(ALICE, &request(method, "sip:x@elsewhere.example", "two", ""));
            if failure == LocateError::NoSuchName {
                assert_eq!(finals(&again), [status], "and kept");
                assert!(world.questions.is_empty());
            } else {
                assert_eq!(world.questions.len(), 1, "a DNS that did not answer is asked again");
                world.resolve(servers(&[]));
            }
            world.settle();
        }
    }
}

#[test]
fn an_unresolved_name_fails_over_to_the_next_target() {
    let other = RouteTarget { priority: 2, ..RouteTarget::at(b"sip:203.0.113.2", TWO.parse().expect("an address")) };
    let mut world = World::new(routed(Stateless::Never, vec![named(1), other]));
    assert_eq!(destinations(&call(&mut world), "INVITE"), [""; 0]);
    let sent = world.resolve(Err(LocateError::NoAnswer));
    assert_eq!(summary(&sent), [format!("INVITE {TWO}")]);
    world.respond(&sent[0], 200, "x", "");
    world.settle();
}

#[test]
fn a_cancel_during_a_lookup_ends_the_call() {
    let mut world = world();
    call(&mut world);
    let cancelled = world.input(ALICE, &request("CANCEL", "sip:x@elsewhere.example", "inv", ""));
    assert_eq!(finals(&cancelled), [200, 487]);
    assert_eq!(summary(&world.resolve(servers(&[ONE]))), [""; 0], "nothing is sent");
    world.settle();
}

#[test]
fn a_6xx_stops_a_pending_lookup() {
    let mut world = World::new(|snapshot| snapshot.registrar.nat = strowger_registrar::Nat::Never);
    world.register("bob", ALICE, "<sip:bob@192.0.2.20>");
    world.register("bob", "192.0.2.30:5060", "<sip:bob@phone.example>");
    for method in ["MESSAGE", "INVITE"] {
        world.names.clear();
        let sent = world.input(ALICE, &request(method, "sip:bob@example.com", method, ""));
        let first = find(&sent, method);
        assert_eq!(world.questions.len(), 1);
        let refused = world.respond(&first, 603, "x", "");
        let late = world.resolve(servers(&[ONE]));
        assert_eq!(destinations(&late, method), [""; 0]);
        assert_eq!([finals(&refused), finals(&late)].concat(), [603]);
        world.settle();
    }
}

#[test]
fn a_stateless_route_waits_for_the_retransmission() {
    let mut world = World::new(routed(Stateless::Always, vec![named(1)]));
    assert!(call(&mut world).is_empty());
    assert_eq!((world.questions.len(), world.shard.transactions()), (1, 0));
    assert!(world.resolve(servers(&[ONE])).is_empty());
    assert_eq!(summary(&call(&mut world)), [format!("INVITE {ONE}")]);
    assert_eq!(world.shard.transactions(), 0);
}

#[test]
fn a_stale_answer_is_used_and_refreshed() {
    let mut world = world();
    world.names.insert(world.now, &question(), servers(&[ONE]), Duration::from_secs(10));
    world.wait(Duration::from_secs(60));
    let sent = call(&mut world);
    assert_eq!(destinations(&sent, "INVITE"), [ONE], "without waiting");
    assert_eq!(world.questions.len(), 1);
    assert!(world.resolve(servers(&[TWO])).is_empty(), "it is for the next call");
    world.respond(&find(&sent, "INVITE"), 486, "x", "");
    let next = world.input(ALICE, &request("INVITE", "sip:x@elsewhere.example", "two", ""));
    assert_eq!(destinations(&next, "INVITE"), [TWO]);
    world.respond(&find(&next, "INVITE"), 486, "x", "");
    world.settle();
}

#[test]
fn unrequested_answers_are_ignored() {
    let mut world = world();
    call(&mut world);
    let (query, _) = world.questions[0].clone();
    for strange in [0, 1, u64::from(u32::MAX), 1 << 32, 1 << 62, 1 << 63, u64::MAX, query.0 ^ 1, query.0 | 7 << 32] {
        let strange = strowger_locate::QueryId(strange);
        if strange == query {
            continue;
        }
        let sent = world.give(Input::Resolved { query: strange, answer: servers(&[TWO]) });
        assert!(sent.is_empty(), "{strange:?}");
    }
    let sent = world.resolve(servers(&[ONE]));
    assert_eq!(summary(&sent), [format!("INVITE {ONE}")]);
    assert!(world.give(Input::Resolved { query, answer: servers(&[TWO]) }).is_empty(), "nor the same one twice");
    world.respond(&sent[0], 486, "x", "");
    world.settle();
}

#[test]
fn queries_are_bounded() {
    let mut world = world();
    let mut text = |number: u32| {
        let text = request("MESSAGE", "sip:x@elsewhere.example", &format!("b{number}"), "");
        let flow = strowger_foundation::Flow::new(
            strowger_foundation::ListenerId(0),
            Transport::Udp,
            ALICE.parse().expect("an address"),
        );
        world.hand(flow, &text);
        let (mut asked, mut answered, mut buffer) = (0, 0, Vec::new());
        while let Some(output) = world.shard.poll_output(&mut buffer) {
            match output {
                strowger_shard::Output::Ask(strowger_shard::Inquiry::Dns { query, question }) => {
                    asked += 1;
                    world.questions.push((query, question));
                }
                strowger_shard::Output::Send { .. } => {
                    assert!(buffer.starts_with(b"SIP/2.0 503 "));
                    answered += 1;
                }
                strowger_shard::Output::Store { .. }
                | strowger_shard::Output::Ask(strowger_shard::Inquiry::Media { .. })
                | strowger_shard::Output::Event(_) => {}
            }
        }
        (asked, answered)
    };
    for number in 0..16_384 {
        assert_eq!(text(number), (1, 0));
    }
    assert_eq!(text(16_384), (0, 1), "one more fails at once");
    assert!(world.shard.counters().table_full > 0);
    world.shard.check_invariants();
    for (query, _) in std::mem::take(&mut world.questions) {
        world.shard.handle_input(world.now, Input::Resolved { query, answer: Err(LocateError::NoAnswer) });
        let mut buffer = Vec::new();
        while world.shard.poll_output(&mut buffer).is_some() {}
    }
    world.settle();
}

#[test]
fn a_dialog_by_name_stays_at_its_server() {
    let answer = || {
        let same = |address: &&str| Candidate {
            rank: 1,
            priority: 1,
            weight: 1,
            hops: [hop(address, Transport::Udp)].into_iter().collect(),
        };
        Ok(Arc::new(CandidateList::new([ONE, TWO, THREE].iter().map(same).collect())))
    };
    let mut seen = Vec::new();
    for number in 0..12 {
        let mut world = world();
        let text = |method: &str, branch: &str, extra: &str| {
            request(method, "sip:x@carrier.example", branch, extra).replace("call-1@alice", &format!("{number}@alice"))
        };
        world.input(ALICE, &text("INVITE", "inv", ""));
        let invite = world.resolve(answer()).remove(0);
        let place = invite.to;
        seen.push(place.to_string());
        let answered = world.respond(&invite, 200, "y", "Contact: <sip:x@carrier.example>\r\n");
        let route = format!("Route: {}\r\n", answered[0].header("Record-Route").expect("recorded"));
        for (method, cseq) in [("ACK", 1), ("INFO", 2), ("BYE", 3)] {
            let text = text(method, method, &route)
                .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=y")
                .replace("CSeq: 1", &format!("CSeq: {cseq}"));
            let sent = world.input(ALICE, &text);
            assert_eq!(summary(&sent), [format!("{method} {place}")]);
            if method != "ACK" {
                world.respond(&sent[0], 200, "", "");
            }
        }
        world.settle();
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3, "different calls go to different servers");
}
