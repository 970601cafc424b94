//! Several phones of one user: parallel and serial forking, and what the caller receives (RFC 3261 §16.6, §16.7).

mod support;

use std::time::Duration;

use strowger_shard::Snapshot;
use support::{ALICE, BOB, BOB2, SentMessage, World, destinations, finals, find, request, summary};

const BOB3: &str = "192.0.2.22:5060";
const ELSEWHERE: &str = "192.0.2.99:5060";

/// Bob with a phone at each address, with this q.
fn phones(edit: impl FnOnce(&mut Snapshot), phones: &[(&str, &str)]) -> World {
    let mut world = World::new(edit);
    for (address, q) in phones {
        assert_eq!(world.register("bob", address, &format!("<sip:bob@{address}>;q={q}")).status(), 200);
    }
    world
}

fn serial() -> World {
    phones(|_| {}, &[(BOB, "0.9"), (BOB2, "0.5"), (BOB3, "0.1")])
}

fn call(world: &mut World) -> Vec<SentMessage> {
    world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""))
}

fn cancel(world: &mut World) -> Vec<SentMessage> {
    world.input(ALICE, &request("CANCEL", "sip:bob@example.com", "inv", ""))
}

fn to(sent: &[SentMessage], address: &str) -> SentMessage {
    let found = sent.iter().find(|sent| sent.method() == "INVITE" && sent.to.to_string() == address);
    found.unwrap_or_else(|| panic!("no INVITE to {address} in {:?}", summary(sent))).clone()
}

fn messages(timed: Vec<(u64, SentMessage)>) -> Vec<SentMessage> {
    timed.into_iter().map(|(_, sent)| sent).collect()
}

#[test]
fn phones_ring_one_by_one_by_falling_q() {
    let mut world = serial();
    let first = call(&mut world);
    assert_eq!(summary(&first), [format!("100 {ALICE}"), format!("INVITE {BOB}")]);
    world.respond(&first[1], 180, "b1", "");
    let wait = world.wait(Duration::from_secs(20));
    let second: Vec<_> = wait.iter().filter(|(_, sent)| sent.method() == "INVITE").cloned().collect();
    assert_eq!(
        second.iter().map(|(at, sent)| (*at, sent.to.to_string())).collect::<Vec<_>>(),
        [(20_000, BOB2.to_owned())]
    );
    assert_eq!(destinations(&messages(wait), "CANCEL"), [BOB], "the first one stops ringing");
    assert!(finals(&world.respond(&first[1], 487, "b1", "")).is_empty());
    let third = messages(world.wait(Duration::from_secs(20)));
    assert_eq!(destinations(&third, "INVITE").last().map(String::as_str), Some(BOB3));
    world.respond(&second[0].1, 408, "b2", "");
    let answered = world.respond(&to(&third, BOB3), 200, "b3", "");
    assert_eq!(summary(&answered), [format!("200 {ALICE}")]);
    assert_eq!(finals(&world.settle()), [0; 0]);
}

#[test]
fn a_phone_lost_while_ringing_does_not_delay_the_next() {
    let mut world = serial();
    let first = call(&mut world);
    world.respond(&first[1], 180, "b1", "");
    let later = messages(world.wait(Duration::from_secs(41)));
    let mut tried = destinations(&later, "INVITE");
    tried.dedup();
    assert_eq!(tried, [BOB2, BOB3], "no CANCEL was answered, and all phones rang in their turn");
    let mut ends = finals(&world.settle());
    ends.dedup();
    assert_eq!(ends, [408]);
}

//= rfc3261#16.7:sends-final
#[test]
fn the_next_step_begins_when_all_of_the_first_refused() {
    let mut world = phones(|_| {}, &[(BOB, "0.9"), (BOB2, "0.9"), (BOB3, "0.1")]);
    let first = call(&mut world);
    let mut both = destinations(&first, "INVITE");
    both.sort();
    assert_eq!(both, [BOB, BOB2]);
    assert_eq!(destinations(&world.respond(&to(&first, BOB), 486, "b1", ""), "INVITE"), [""; 0]);
    let second = world.respond(&to(&first, BOB2), 480, "b2", "");
    assert_eq!(destinations(&second, "INVITE"), [BOB3], "at once");
    let end = world.respond(&to(&second, BOB3), 404, "b3", "");
    assert_eq!(finals(&end), [486], "the first of equals");
    let again = finals(&world.settle());
    assert!(again.iter().all(|status| *status == 486), "its retransmissions, for nobody acknowledges it: {again:?}");
}

//= rfc3261#16.7:6xx-cancels
//= rfc3261#16.7:6xx-ends
//= rfc3261#16.7:cancels-after-6xx
#[test]
fn a_6xx_ends_all_branches() {
    let mut world = phones(|_| {}, &[(BOB, "0.9"), (BOB2, "0.9"), (BOB3, "0.1")]);
    let first = call(&mut world);
    world.respond(&to(&first, BOB2), 180, "b2", "");
    let refused = world.respond(&to(&first, BOB), 603, "b1", "");
    assert_eq!(destinations(&refused, "CANCEL"), [BOB2]);
    let end = world.respond(&to(&first, BOB2), 487, "b2", "");
    assert_eq!(finals(&end), [603]);
    let rest = world.settle();
    assert_eq!(destinations(&rest, "INVITE"), [""; 0]);
}

//= rfc3261#16.10:cancels
#[test]
fn a_cancel_gets_487_and_no_other_phone_is_tried() {
    let mut world = serial();
    let first = call(&mut world);
    world.respond(&first[1], 180, "b1", "");
    let cancelled = cancel(&mut world);
    assert_eq!(finals(&cancelled), [200]);
    assert_eq!(destinations(&cancelled, "CANCEL"), [BOB]);
    assert_eq!(finals(&world.respond(&first[1], 487, "b1", "")), [487]);
    assert_eq!(destinations(&world.settle(), "INVITE"), [""; 0]);
}

#[test]
fn a_cancel_while_the_second_phone_rings_ends_both() {
    let mut world = serial();
    let first = call(&mut world);
    world.respond(&first[1], 180, "b1", "");
    let second = messages(world.wait(Duration::from_secs(20)));
    world.respond(&to(&second, BOB2), 180, "b2", "");
    let cancelled = cancel(&mut world);
    assert_eq!(destinations(&cancelled, "CANCEL"), [BOB2], "the first was cancelled before");
    let end = world.respond(&to(&second, BOB2), 487, "b2", "");
    assert_eq!(finals(&end), [487], "of the caller's own end it is told, not of the first phone's");
    assert_eq!(destinations(&world.settle(), "INVITE"), [""; 0]);
}

#[test]
fn challenges_of_all_steps_reach_the_caller() {
    let mut world = serial();
    let mut sent = call(&mut world);
    for (address, status, line) in [
        (BOB, 401, "WWW-Authenticate: Digest realm=\"one\", nonce=\"1\"\r\n"),
        (BOB2, 407, "Proxy-Authenticate: Digest realm=\"two\", nonce=\"2\"\r\n"),
        (BOB3, 401, "WWW-Authenticate: Digest realm=\"three\", nonce=\"3\"\r\n"),
    ] {
        sent = world.respond(&to(&sent, address), status, "x", line);
    }
    assert_eq!(finals(&sent), [401]);
    let end = sent.iter().find(|sent| sent.status() == 401).expect("refused");
    let realms: Vec<_> = ["WWW-Authenticate", "Proxy-Authenticate"]
        .iter()
        .flat_map(|name| end.headers(name))
        .map(|value| value.split('"').nth(1).unwrap_or(""))
        .collect();
    assert_eq!(realms, ["three", "one", "two"]);
    world.settle();
}

//= rfc3261#16.7:later-success
//= rfc3261#16.7:keeps-tag
#[test]
fn all_answers_of_a_fork_reach_the_caller() {
    let mut world = phones(|_| {}, &[(BOB, "1"), (BOB2, "1"), (BOB3, "1")]);
    let first = call(&mut world);
    for (number, address) in [BOB, BOB2, BOB3].into_iter().enumerate() {
        let ringing = world.respond(&to(&first, address), 183, &format!("b{number}"), "");
        assert_eq!(ringing[0].header("To"), Some(&*format!("<sip:bob@example.com>;tag=b{number}")), "an early dialog");
    }
    for (number, address) in [BOB, BOB2, BOB3].into_iter().enumerate() {
        let answered = world.respond(&to(&first, address), 200, &format!("b{number}"), "");
        assert_eq!(finals(&answered), [200], "{address}");
        let cancelled = destinations(&answered, "CANCEL").len();
        assert_eq!(cancelled, if number == 0 { 2 } else { 0 });
    }
    assert!(finals(&world.settle()).is_empty());
}

#[test]
fn a_late_answer_of_an_earlier_step_is_forwarded() {
    let mut world = serial();
    let first = call(&mut world);
    world.respond(&first[1], 180, "b1", "");
    let second = messages(world.wait(Duration::from_secs(20)));
    world.respond(&to(&second, BOB2), 180, "b2", "");
    let answered = world.respond(&first[1], 200, "b1", "");
    assert_eq!(finals(&answered), [200]);
    assert_eq!(destinations(&answered, "CANCEL"), [BOB2]);
    world.respond(&to(&second, BOB2), 487, "b2", "");
    assert_eq!(destinations(&world.settle(), "INVITE"), [""; 0]);
}

//= rfc3261#16.7:resets-timer-c
#[test]
fn timer_c_restarts_on_18x_but_not_on_100() {
    let mut world = phones(|s| s.proxy.ring_timeout = Duration::from_secs(30), &[(BOB, "1")]);
    let first = call(&mut world);
    world.respond(&first[1], 180, "b", "");
    assert!(world.wait(Duration::from_secs(20)).is_empty());
    world.respond(&first[1], 183, "b", "");
    assert!(world.wait(Duration::from_secs(20)).is_empty());
    world.respond(&first[1], 100, "", "");
    assert_eq!(destinations(&messages(world.wait(Duration::from_secs(10))), "CANCEL"), [BOB]);
    assert_eq!(finals(&world.respond(&first[1], 487, "b", "")), [408]);
    world.settle();
}

//= rfc5393#5.3.3:sum
//= rfc5393#5.3.3:440
//= rfc5393#5.3.3.1:reuse
#[test]
fn max_breadth_is_shared_and_limits_a_fork() {
    let mut world = phones(|_| {}, &[(BOB, "1"), (BOB2, "1"), (BOB3, "0.1")]);
    let text = |breadth: u32, branch: &str| {
        request("INVITE", "sip:bob@example.com", branch, &format!("Max-Breadth: {breadth}\r\n"))
    };
    assert_eq!(finals(&world.input(ALICE, &text(1, "one"))), [440]);
    let sent = world.input(ALICE, &text(5, "two"));
    let mut shares: Vec<_> = sent.iter().filter_map(|sent| sent.header("Max-Breadth")).collect();
    shares.sort_unstable();
    assert_eq!(shares, ["2", "3"]);
    world.respond(&to(&sent, BOB), 486, "x", "");
    let second = world.respond(&to(&sent, BOB2), 486, "y", "");
    assert_eq!(to(&second, BOB3).header("Max-Breadth"), Some("5"), "a step has it all");
    world.respond(&to(&second, BOB3), 486, "z", "");
    world.settle();
}

//= rfc5393#5.3.3:most
//= rfc5393#5.3.3:most-value
//= rfc5393#5.3.3:overwritten
//= rfc5393#5.3.3:overwritten-value
//= rfc5393#5.3.3:no-hops
#[test]
fn max_breadth_is_capped_by_the_server() {
    for (given, expected) in
        [("61", "60"), ("4294967295", "60"), ("99999999999999999999", "60"), ("60", "60"), ("7", "7")]
    {
        let mut world = phones(|_| {}, &[(BOB, "1")]);
        let text = request("INVITE", "sip:bob@example.com", "inv", &format!("Max-Breadth: {given}\r\n"));
        let sent = world.input(ALICE, &text);
        assert_eq!(to(&sent, BOB).header("Max-Breadth"), Some(expected), "{given}");
    }
}

//= rfc5393#5.3.3:single
#[test]
fn one_max_breadth_header_is_sent() {
    let mut world = phones(|_| {}, &[(BOB, "1")]);
    let text = request("INVITE", "sip:bob@example.com", "inv", "Max-Breadth: 7\r\nSubject: x\r\nMax-Breadth: 9\r\n");
    let invite = to(&world.input(ALICE, &text), BOB);
    assert_eq!(invite.headers("Max-Breadth").collect::<Vec<_>>(), ["7"]);
    assert_eq!(invite.header("Subject"), Some("x"));
}

fn redirected(recurse: bool, contacts: &str) -> (World, Vec<SentMessage>) {
    let mut world = phones(|s| s.proxy.recurse = recurse, &[(BOB, "1")]);
    for address in [BOB2, BOB3] {
        world.register("carol", address, &format!("<sip:carol@{address}>"));
    }
    let first = call(&mut world);
    let sent = world.respond(&first[1], 302, "b", &format!("Contact: {contacts}\r\n"));
    (world, sent)
}

#[test]
fn an_unfollowed_redirection_goes_to_the_caller() {
    let (mut world, sent) = redirected(false, "<sip:carol@192.0.2.99>");
    assert_eq!(finals(&sent), [302]);
    assert_eq!(destinations(&sent, "INVITE"), [""; 0]);
    world.settle();
}

//= rfc3263#4.1:numeric
//= rfc3261#16.6:no-headers
#[test]
fn a_redirection_is_followed_to_a_local_user_and_an_address() {
    let (mut world, sent) = redirected(true, "<sip:carol@example.com>;q=0.8, <sip:dave@192.0.2.99?Subject=x>;q=0.3");
    let mut both = destinations(&sent, "INVITE");
    both.sort();
    assert_eq!(both, [BOB2, BOB3], "Carol's phones");
    world.respond(&to(&sent, BOB2), 486, "c2", "");
    let next = world.respond(&to(&sent, BOB3), 486, "c3", "");
    assert_eq!(to(&next, ELSEWHERE).start(), "INVITE sip:dave@192.0.2.99 SIP/2.0");
    assert_eq!(finals(&world.respond(&to(&next, ELSEWHERE), 200, "d", "")), [200]);
    assert_eq!(world.shard.counters().redirections_followed, 1);
    world.settle();
}

#[test]
fn redirection_loops_end() {
    let (mut world, mut sent) = redirected(true, "<sip:x0@192.0.2.99>");
    let mut followed = 0;
    while sent.iter().any(|sent| sent.method() == "INVITE") {
        followed += 1;
        assert!(followed < 20, "without end");
        let contact = format!("Contact: <sip:x{followed}@192.0.2.99>, <sip:bob@example.com>, <sip:x0@192.0.2.99>\r\n");
        sent = world.respond(&find(&sent, "INVITE"), 302, "x", &contact);
    }
    assert_eq!(followed, 5);
    assert_eq!(finals(&sent), [302], "the last one is the caller's to follow");
    world.settle();
}

//= rfc3261#16.5:each-once
#[test]
fn the_same_contact_twice_is_tried_once() {
    let contacts = "<sip:x@192.0.2.99>, <sip:x@192.0.2.99>, <sip:bob@192.0.2.20:5060>";
    let (mut world, sent) = redirected(true, contacts);
    assert_eq!(destinations(&sent, "INVITE"), [ELSEWHERE]);
    let end = world.respond(&find(&sent, "INVITE"), 302, "x", "Contact: <sip:x@192.0.2.99>\r\n");
    assert_eq!(finals(&end), [302]);
    world.settle();
}

#[test]
fn an_unusable_redirection_is_passed_on() {
    for contacts in ["<sip:nobody@example.com>", "<mailto:x@example.com>", "<sip:x@255.255.255.255>", "*"] {
        let (mut world, sent) = redirected(true, contacts);
        assert_eq!(finals(&sent), [302], "{contacts}");
        world.settle();
    }
}
