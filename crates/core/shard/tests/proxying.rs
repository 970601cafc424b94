//! Rarer duties of a proxy (RFC 3261 §16).

mod support;

use std::time::Duration;

use strowger_foundation::{KeyRing, TagKey};
use strowger_message::{Message, Via};
use strowger_proxy::Stateless;
use strowger_proxy::branch::{BranchId, loop_hash};
use strowger_shard::{Action, Route, RouteMatch, RouteTarget};
use support::{ALICE, BOB, BOB2, RING_KEY, SERVER, SentMessage, World, request, summary};

fn registered() -> World {
    let mut world = World::new(|_| {});
    world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
    world
}

fn invite(world: &mut World) -> Vec<SentMessage> {
    let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""));
    sent.into_iter().filter(|s| s.method() == "INVITE").collect()
}

fn sent_to<'a>(sent: &'a [SentMessage], peer: &str) -> &'a SentMessage {
    sent.iter().find(|s| s.to.to_string() == peer).expect("was sent")
}

#[test]
fn a_ringing_phone_is_not_cut_off() {
    let mut world = World::new(|s| s.proxy.ring_timeout = Duration::from_secs(180));
    world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
    let invite = invite(&mut world).remove(0);
    for _ in 0..5 {
        world.input(BOB, &invite.response(180, "Ringing", ";tag=b", ""));
        assert!(world.wait(Duration::from_secs(60)).is_empty());
    }
    let sent = world.wait(Duration::from_secs(125));
    assert_eq!(
        sent.iter().map(|(at, s)| (*at / 1000, s.method())).next(),
        Some((120, "CANCEL")),
        "180 s after the last"
    );
}

//= rfc3261#16.6:timer-c
//= rfc3261#16.8:408
#[test]
fn timer_c_without_a_response_gives_408() {
    let mut world = World::new(|s| s.proxy.ring_timeout = Duration::from_secs(5));
    world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
    let invite = invite(&mut world).remove(0);
    let sent = world.wait(Duration::from_secs(6));
    let answered = sent.iter().find(|(_, s)| s.status() > 0).map(|(at, s)| (*at / 100, s.status()));
    assert_eq!(answered, Some((50, 408)));
    let late = world.input(BOB, &invite.response(180, "Ringing", ";tag=b", ""));
    assert_eq!(summary(&late), [format!("CANCEL {BOB}")], "who wakes up late is told that nobody waits");
    world.input(BOB, &invite.response(487, "Request Terminated", ";tag=b", ""));
    world.input(ALICE, &request("ACK", "sip:bob@example.com", "inv", ""));
    world.wait(Duration::from_secs(70));
    assert_eq!(world.shard.transactions(), 0);
}

//= rfc3261#16.7:steps-of-the-best
//= rfc3261#16.7:collects-challenges
#[test]
fn all_challenges_of_a_fork_reach_the_caller() {
    let mut world = registered();
    world.register("bob", BOB2, "<sip:bob@192.0.2.21:5060>");
    let branches = invite(&mut world);
    let first =
        sent_to(&branches, BOB).response(401, "Unauthorized", ";tag=1", "WWW-Authenticate: Digest realm=\"one\"\r\n");
    assert_eq!(summary(&world.input(BOB, &first)), [format!("ACK {BOB}")]);
    let challenges = "Proxy-Authenticate: Digest realm=\"two\"\r\nProxy-Authenticate: Digest realm=\"three\"\r\n";
    let second = sent_to(&branches, BOB2).response(407, "Proxy Authentication Required", ";tag=2", challenges);
    let sent = world.input(BOB2, &second);
    let answer = sent_to(&sent, ALICE);
    assert_eq!(answer.status(), 401);
    assert_eq!(answer.headers("WWW-Authenticate").collect::<Vec<_>>(), ["Digest realm=\"one\""]);
    let others: Vec<_> = answer.headers("Proxy-Authenticate").collect();
    assert_eq!(others, ["Digest realm=\"two\"", "Digest realm=\"three\""]);
    assert!(answer.text.ends_with("\r\n\r\n"));
}

//= rfc3261#16.7:own-responses
#[test]
fn a_response_without_a_next_via_is_dropped() {
    let mut world = registered();
    let invite = invite(&mut world).remove(0);
    let second = invite.headers("Via").nth(1).expect("the caller's").to_owned();
    let cut = |text: String| text.replacen(&format!("Via: {second}\r\n"), "", 1);
    assert!(world.input(BOB, &cut(invite.response(200, "OK", ";tag=b", ""))).is_empty());
    assert_eq!(world.shard.counters().stray_responses, 1);
    let answer = world.input(BOB, &invite.response(486, "Busy Here", ";tag=b", ""));
    assert_eq!(summary(&answer), [format!("ACK {BOB}"), format!("486 {ALICE}")]);
    world.wait(Duration::from_secs(70));
    assert_eq!(world.shard.transactions(), 0, "nothing waits for ever");
}

fn stateless(methods: &[&str]) -> World {
    let target = RouteTarget::at(b"sip:192.0.2.20", BOB.parse().expect("an address"));
    let action = Action::proxy(vec![target], Stateless::Always);
    let methods = methods.iter().map(|method| method.as_bytes().into()).collect();
    World::new(|s| s.routes = vec![Route::new(RouteMatch { methods, ..RouteMatch::default() }, action)])
}

//= rfc3261#16.11:finds-targets
//= rfc3261#16.11:cancel-and-ack
//= rfc3261#16.11:cancel
#[test]
fn cancel_and_ack_follow_their_invite() {
    let mut world = stateless(&["INVITE"]);
    for method in ["INVITE", "CANCEL", "ACK"] {
        let sent = world.input(ALICE, &request(method, "sip:carol@elsewhere.example", "inv", ""));
        assert_eq!(summary(&sent), [format!("{method} {BOB}")]);
    }
    let other = world.input(ALICE, &request("MESSAGE", "sip:carol@elsewhere.example", "msg", ""));
    assert_eq!(summary(&other), [format!("404 {ALICE}")]);
}

#[test]
fn max_breadth_applies_statelessly() {
    let text = request("INVITE", "sip:carol@elsewhere.example", "inv", "Max-Breadth: 0\r\n");
    let sent = stateless(&[]).input(ALICE, &text);
    assert_eq!(summary(&sent), [format!("440 {ALICE}")]);
}

#[test]
fn forged_received_cannot_redirect_responses() {
    let mut world = stateless(&[]);
    let text = request("INVITE", "sip:carol@elsewhere.example", "inv", "")
        .replace("branch=z9hG4bKinv", "branch=z9hG4bKinv;received=198.51.100.66;rport=5999");
    let sent = world.input(ALICE, &text);
    let ringing = world.input(BOB, &sent[0].response(180, "Ringing", ";tag=b", ""));
    assert_eq!(ringing[0].to.ip().to_string(), "192.0.2.10");
}

//= rfc3261#8.2.2.3:bad-extension
//= rfc3261#8.2.2.3:unsupported
#[test]
fn an_unknown_extension_gets_420() {
    let mut world = World::new(|_| {});
    let sent = world.input(ALICE, &request("OPTIONS", "sip:example.com", "own", "Require: foo\r\n"));
    assert_eq!((sent[0].status(), sent[0].header("Unsupported")), (420, Some("foo")));
}

//= rfc3261#16.4:own-route
#[test]
fn a_long_list_of_our_routes_is_fast() {
    let routes = vec!["<sip:192.0.2.1;lr>"; 3000].join(",");
    let mut world = registered();
    let text = request("MESSAGE", "sip:bob@example.com", "long", &format!("Route: {routes}\r\n"));
    let sent = world.input(ALICE, &text);
    assert_eq!(summary(&sent), [format!("MESSAGE {BOB}")]);
    assert_eq!(sent[0].header("Route"), None);
}

/// The loop hash leaves the server and must not reveal its key, because the sealing key makes branches.
#[test]
fn the_loop_hash_does_not_use_the_branch_key() {
    let sent = invite(&mut registered()).remove(0);
    let text = request("INVITE", "sip:bob@example.com", "inv", "");
    let ring = KeyRing::new(TagKey::new(RING_KEY)).derive("branch");
    let via = Via::parse_first(sent.header("Via").expect("ours").as_bytes()).expect("a Via").0;
    let branch = BranchId::decode(&ring, via.branch.expect("ours")).expect("sealed");
    let message = Message::parse(text.as_bytes()).expect("a request");
    assert_ne!(branch.loop_hash, loop_hash(ring.current(), &message));
}

//= rfc3261#18.1.1:sent-by
//= rfc3261#18.1.1:listens-at-sent-by
//= rfc5393#4.2.1:via
//= rfc3581#3:sent-by-port
//= rfc5393#4.2.1:unique
#[test]
fn our_via_names_the_outgoing_listener() {
    let sent = invite(&mut registered()).remove(0);
    let via = sent.header("Via").expect("ours");
    assert!(via.starts_with(&format!("SIP/2.0/UDP {SERVER};branch=z9hG4bK")), "{via}");
}

//= rfc3261#18.3:short-response
//= rfc3261#18.3:short-request
#[test]
fn a_truncated_datagram_is_refused_or_dropped() {
    let mut world = registered();
    let text = request("MESSAGE", "sip:bob@example.com", "short", "");
    assert!(text.contains("Content-Length: 4\r\n"));
    let sent = world.input(ALICE, &text.replace("Content-Length: 4", "Content-Length: 5"));
    assert_eq!(summary(&sent), [format!("400 {ALICE}")]);
    let invite = invite(&mut world).remove(0);
    let busy = invite.response(486, "Busy Here", ";tag=b", "");
    assert!(world.input(BOB, &busy.replace("Content-Length: 0", "Content-Length: 1")).is_empty());
    assert_eq!(summary(&world.input(BOB, &busy)), [format!("ACK {BOB}"), format!("486 {ALICE}")]);
}

//= rfc5393#4.2.1:same-branch
#[test]
fn a_stateless_invite_its_cancel_and_its_ack_share_one_branch() {
    let mut world = stateless(&[]);
    let vias = ["INVITE", "CANCEL", "ACK"].map(|method| {
        let sent = world.input(ALICE, &request(method, "sip:carol@elsewhere.example", "inv", ""));
        sent[0].header("Via").expect("ours").to_owned()
    });
    assert!(vias.iter().all(|via| *via == vias[0]), "{vias:?}");
}

//= rfc5393#4.2.1:what-decides
//= rfc5393#4.2.1:not-method
//= rfc5393#4.2.4:varying
//= rfc7616#3.6:transparent
#[test]
fn foreign_credentials_pass_unchanged() {
    let mut world = registered();
    let credentials = "Authorization: Digest  username=\"a\",realm=\"x\", nonce=\"n\",  response=\"0\"\r\n";
    let sent = world.input(ALICE, &request("MESSAGE", "sip:bob@example.com", "auth", credentials)).remove(0);
    assert!(sent.text.contains(credentials), "{}", sent.text);
    let told =
        "WWW-Authenticate: Digest realm=\"x\",  nonce=\"n\"\r\nAuthentication-Info: nextnonce=\"m\",qop=auth\r\n";
    let answer = world.input(BOB, &sent.response(401, "Unauthorized", ";tag=b", told)).remove(0);
    assert!(answer.text.contains(told), "{}", answer.text);
}

//= rfc5393#4.2.1:what-decides
//= rfc5393#4.2.1:not-method
//= rfc5393#4.2.4:varying
#[test]
fn loop_hash_covers_what_decides_routing() {
    let hash = |text: &str| loop_hash(&TagKey::new(RING_KEY), &Message::parse(text.as_bytes()).expect("a request"));
    let routes = "Route: <sip:192.0.2.7;lr>\r\nRoute: <sip:192.0.2.8;lr>\r\n";
    let invite = request("INVITE", "sip:bob@example.com", "inv", routes);
    for same in ["CANCEL", "ACK", "OPTIONS"] {
        assert_eq!(hash(&invite), hash(&invite.replace("INVITE", same)), "{same}");
    }
    assert_eq!(hash(&invite), hash(&invite.replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b")));
    for (from, to) in [
        ("INVITE sip:bob@", "INVITE sip:carol@"),
        ("192.0.2.7;lr", "192.0.2.9;lr"),
        ("192.0.2.8;lr", "192.0.2.9;lr"),
        ("call-1@alice", "call-2@alice"),
        ("CSeq: 1", "CSeq: 2"),
    ] {
        assert!(invite.contains(from), "{from}");
        assert_ne!(hash(&invite), hash(&invite.replace(from, to)), "{to}");
    }
}
