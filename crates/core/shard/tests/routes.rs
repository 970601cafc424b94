//! Routes: stateless forwarding, redirection, rejection, and determinism.

mod support;

use std::time::Duration;

use strowger_directory::{DirectoryChange, Ha1s, User};
use strowger_message::Status;
use strowger_proxy::Stateless;
use strowger_shard::{Action, Route, RouteTarget};
use support::{ALICE, BOB, BOB2, World, request, summary};

fn target(address: &str) -> RouteTarget {
    RouteTarget::at(format!("sip:{address}").as_bytes(), address.parse().expect("an address"))
}

fn world(domain: &str, action: Action) -> World {
    World::new(|snapshot| {
        snapshot.routes = vec![Route::of_domain(domain.as_bytes(), action)];
    })
}

//= rfc3261#16.6:no-method
//= rfc3261#16.6:cancel-and-ack
//= rfc3261#16.11:no-provisional
//= rfc3261#16.11:same-branch
//= rfc3261#16.11:branch
//= rfc3261#16.11:same-changes
//= rfc3261#16.11:same-values
//= rfc3261#16.11:lasting-changes
#[test]
fn a_stateless_route_keeps_nothing() {
    let action = Action::proxy(vec![target(BOB)], Stateless::WhenPossible);
    let mut world = world("*", action);
    let invite = request("INVITE", "sip:carol@elsewhere.example", "inv", "");
    let sent = world.input(ALICE, &invite);
    assert_eq!(summary(&sent), [format!("INVITE {BOB}")]);
    assert_eq!(world.shard.transactions(), 0);
    let again = world.input(ALICE, &invite);
    assert_eq!(again[0].text, sent[0].text, "a retransmission leaves as the same bytes");
    let ringing = world.input(BOB, &sent[0].response(180, "Ringing", ";tag=b", ""));
    assert_eq!(summary(&ringing), [format!("180 {ALICE}")]);
    assert_eq!(ringing[0].headers("Via").count(), 1);
    for method in ["CANCEL", "ACK"] {
        let text = request(method, "sip:carol@elsewhere.example", "inv", "");
        let follow = world.input(ALICE, &text);
        assert_eq!(summary(&follow), [format!("{method} {BOB}")]);
        assert_eq!(follow[0].header("Via"), sent[0].header("Via"), "{method} takes the INVITE's branch");
    }
}

//= rfc3261#16.11:forwards
#[test]
fn a_stateless_call_stays_stateless() {
    let mut world = World::new(|snapshot| {
        let action = Action::proxy(Vec::new(), Stateless::WhenPossible);
        snapshot.routes = vec![Route::of_domain(b"example.com", action)];
        snapshot.proxy.stateless = Stateless::WhenPossible;
    });
    world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
    world.wait(Duration::from_secs(40));
    let invite = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""));
    assert_eq!(summary(&invite), [format!("INVITE {BOB}")]);
    let answer = world.input(BOB, &invite[0].response(200, "OK", ";tag=b", "Contact: <sip:bob@192.0.2.20:5060>\r\n"));
    let route = format!("Route: {}\r\n", answer[0].header("Record-Route").expect("stays on the path"));
    for method in ["ACK", "BYE"] {
        let text = request(method, "sip:bob@192.0.2.20:5060", method, &route)
            .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b");
        let sent = world.input(ALICE, &text);
        assert_eq!(summary(&sent), [format!("{method} {BOB}")]);
        assert_eq!(sent[0].header("Route"), None);
        let done = world.input(BOB, &sent[0].response(200, "OK", "", ""));
        assert!(method == "ACK" || summary(&done) == [format!("200 {ALICE}")], "{:?}", summary(&done));
    }
    assert_eq!(world.shard.transactions(), 0, "nothing was kept");
}

//= rfc3263#4.4:stateful
//= rfc3261#16.1:forks-with-state
//= rfc3261#16.11:one-target
#[test]
fn several_targets_are_stateful_unless_configured_otherwise() {
    let targets = vec![target(BOB), target(BOB2)];
    let action = Action::proxy(targets.clone(), Stateless::WhenPossible);
    let sent = world("*", action).input(ALICE, &request("INVITE", "sip:x@elsewhere.example", "inv", ""));
    assert_eq!(sent.len(), 2, "100 and one branch: the other target is for when this one fails");
    let action = Action::proxy(targets, Stateless::Always);
    let sent = world("*", action).input(ALICE, &request("INVITE", "sip:x@elsewhere.example", "inv", ""));
    assert_eq!(sent.len(), 1, "nothing is kept, so there is no other try");
}

#[test]
fn redirection_names_the_targets_or_the_contacts() {
    let mut routed = world("*", Action::Redirect { targets: vec![target(BOB)] });
    let sent = routed.input(ALICE, &request("INVITE", "sip:x@elsewhere.example", "inv", ""));
    assert_eq!((sent[0].status(), sent[0].header("Contact")), (302, Some("<sip:192.0.2.20:5060>")));
    let mut own = world("example.com", Action::Redirect { targets: Vec::new() });
    own.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
    let sent = own.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""));
    assert_eq!((sent[0].status(), sent[0].header("Contact")), (302, Some("<sip:bob@192.0.2.20:5060>")));
}

#[test]
fn rejection_is_as_configured() {
    let mut world = world("*", Action::Reject { status: Status::DECLINE, reason: None });
    let sent = world.input(ALICE, &request("INVITE", "sip:x@elsewhere.example", "inv", ""));
    assert_eq!(summary(&sent), [format!("603 {ALICE}")]);
}

#[test]
fn a_route_out_of_service_sends_retry_after() {
    let mut world = world("*", Action::OutOfService);
    for (method, id) in [("INVITE", "inv"), ("MESSAGE", "msg")] {
        let sent = world.input(ALICE, &request(method, "sip:x@elsewhere.example", id, ""));
        assert_eq!(summary(&sent), [format!("500 {ALICE}")], "a 503 would be said of the whole server");
        assert!(sent[0].text.starts_with("SIP/2.0 500 No Gateway In Service\r\n"), "{}", sent[0].text);
        assert_eq!(sent[0].header("Retry-After"), Some("5"));
    }
}

#[test]
fn a_balanced_set_without_targets_refuses_at_once() {
    let mut world = world("*", Action::NoTarget);
    let sent = world.input(ALICE, &request("INVITE", "sip:x@elsewhere.example", "inv", ""));
    assert_eq!(summary(&sent), [format!("503 {ALICE}")]);
    assert!(sent[0].text.starts_with("SIP/2.0 503 No Target In Service\r\n"), "{}", sent[0].text);
    assert!(sent[0].header("Retry-After").is_some());
}

#[test]
fn a_405_has_an_allow_header() {
    let mut world = world("*", Action::Reject { status: Status::METHOD_NOT_ALLOWED, reason: None });
    let sent = world.input(ALICE, &request("INVITE", "sip:x@elsewhere.example", "inv", ""));
    assert_eq!((sent[0].status(), sent[0].header("Allow")), (405, Some("OPTIONS, REGISTER")));
}

#[test]
fn a_request_with_a_bad_via_is_answered_to_its_source() {
    let action = Action::proxy(vec![target(BOB)], Stateless::Never);
    let mut world = world("*", action);
    let good = request("INVITE", "sip:carol@elsewhere.example", "inv", "");
    let broken = |method: &str, from: &str, to: &str| {
        let text = good.replace("INVITE", method);
        assert!(text.contains(from));
        text.replacen(from, to, 1)
    };
    for (from, to, status) in [
        ("Via: SIP/2.0/UDP ", "Via: SIP/2.0/UDP ;;,;,,", 400),
        ("Via: SIP/2.0/UDP ", "Via: SIP/7.0/UDP ", 400),
        (" SIP/2.0\r\nVia: SIP/2.0/", " SIP/7.0\r\nVia: SIP/7.0/", 505),
        (" SIP/2.0\r\n", " SIP/7.0\r\n", 505),
    ] {
        let sent = world.input(ALICE, &broken("INVITE", from, to));
        assert_eq!(summary(&sent), [format!("{status} {ALICE}")], "{to}");
        assert!(world.input(ALICE, &broken("ACK", from, to)).is_empty(), "no ACK is ever answered");
    }
    assert!(world.input(ALICE, &broken("INVITE", "Via: ", "X: ")).is_empty(), "without a Via there is no response");
    assert_eq!(world.shard.transactions(), 0);
}

//= rfc3261#18.2.1:received-value
#[test]
fn a_forged_received_is_ignored() {
    let action = Action::proxy(vec![target(BOB)], Stateless::Always);
    let mut world = world("*", action);
    for victim in ["255.255.255.255", "192.0.2.99"] {
        let claim = format!(";received={victim};branch=");
        let text = request("OPTIONS", "sip:x@elsewhere.example", "opt", "").replacen(";branch=", &claim, 1);
        let sent = world.input(ALICE, &text);
        assert_eq!(summary(&sent), [format!("OPTIONS {BOB}")]);
        assert!(!sent[0].text.contains(victim));
        let answer = world.input(BOB, &sent[0].response(200, "OK", ";tag=b", ""));
        assert_eq!(summary(&answer), [format!("200 {ALICE}")]);
    }
}

#[test]
fn an_unknown_user_at_our_address_takes_the_catch_all_route() {
    let action = Action::proxy(vec![target(BOB)], Stateless::Never);
    let mut world = world("*", action);
    let sent = world.input(ALICE, &request("INVITE", "sip:service@192.0.2.1:5060", "inv", ""));
    assert_eq!(summary(&sent), [format!("100 {ALICE}"), format!("INVITE {BOB}")]);
    let named = world.input(ALICE, &request("INVITE", "sip:service@example.com", "inv2", ""));
    assert_eq!(summary(&named), [format!("404 {ALICE}")], "a domain of ours is never sent away");
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let run = || {
        let mut world = World::new(|s| s.auth.require = vec![(*b"INVITE").into()]);
        let mut bytes = String::new();
        world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
        for (number, method) in ["INVITE", "MESSAGE", "OPTIONS", "INVITE", "CANCEL"].into_iter().enumerate() {
            for sent in world.input(ALICE, &request(method, "sip:bob@example.com", &format!("b{number}"), "")) {
                bytes += &sent.text;
            }
        }
        for (_, sent) in world.wait(Duration::from_secs(100)) {
            bytes += &sent.text;
        }
        bytes
    };
    assert_eq!(run(), run());
}

#[test]
fn a_user_not_registered_here_is_tried_at_the_other_server() {
    let mut world = World::new(|snapshot| {
        let user =
            |aor: &[u8], enabled| DirectoryChange::PutUser(User { aor: aor.into(), ha1: Ha1s::default(), enabled });
        let users = [user(b"bob@example.com", true), user(b"carol@example.com", false)];
        snapshot.directory = snapshot.directory.with_changes(users);
        let action = Action::proxy(vec![target(BOB2)], Stateless::Never);
        snapshot.fallback_route = Some(Route::of_domain(b"*", action));
    });
    let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "one", ""));
    assert_eq!(summary(&sent), [format!("100 {ALICE}"), format!("INVITE {BOB2}")]);
    assert_eq!(sent[1].start(), "INVITE sip:bob@example.com SIP/2.0", "it knows the user by this address");
    assert_eq!(sent[1].header("Route"), None);

    // Requests from that server are not sent back, and only local users are looked for.
    let back = world.input(BOB2, &request("INVITE", "sip:bob@example.com", "two", ""));
    assert_eq!(summary(&back), [format!("480 {BOB2}")]);
    for nobody in ["carol", "dave"] {
        let refused = world.input(ALICE, &request("INVITE", &format!("sip:{nobody}@example.com"), nobody, ""));
        assert_eq!(summary(&refused), [format!("404 {ALICE}")]);
    }
    world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
    let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "three", ""));
    assert_eq!(summary(&sent), [format!("100 {ALICE}"), format!("INVITE {BOB}")]);
}
