//! Access control: a trunk's credentials, numbers, other users' registrations and relaying are denied to strangers.

mod support;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_auth::Network;
use strowger_foundation::{ConnId, Flow, ListenerId, Transport};
use strowger_locate::{Candidate, CandidateList, Hop, LocateQuery};
use strowger_message::Status;
use strowger_proxy::Stateless;
use strowger_shard::{Action, Route, RouteMatch, RouteTarget, Snapshot, TargetAddress};
use strowger_trunk::{Account, Credentials, NextHop as AccountPlace, NumberRewrite, Secret, Trunk};
use support::{ALICE, BOB, BOB2, SERVER, SentMessage, World, destinations, finals, find, request, summary};

const CARRIER: &str = "203.0.113.1:5060";
const GATEWAY: &str = "203.0.113.7:5060";
const STRANGER: &str = "198.51.100.66:5060";
const NUMBER: &str = "sip:0049301234@example.com";
const CHALLENGE: &str = "WWW-Authenticate: Digest realm=\"carrier\", nonce=\"n1\", qop=\"auth\", algorithm=MD5\r\n";

fn trunk(account: Option<Account>) -> Arc<Trunk> {
    let username = (*b"acct").into();
    let password = Secret::new(&b"hush"[..]);
    let address = "203.0.113.7".parse::<IpAddr>().expect("an address");
    Arc::new(Trunk {
        name: "carrier".into(),
        credentials: Some(Credentials { username, password, realm: None }),
        sources: vec![Network { address, prefix: 32 }],
        domains: Vec::new(),
        account,
    })
}

fn at(address: &str) -> RouteTarget {
    RouteTarget::at(format!("sip:{address}").as_bytes(), address.parse().expect("an address"))
}

fn to_trunk(target: RouteTarget) -> Route {
    let action = Action::Proxy {
        targets: vec![target],
        stateless: Stateless::Never,
        trunk: Some(Trunk::id_of("carrier")),
        balance: None,
    };
    Route::new(RouteMatch { prefixes: vec![(*b"00").into()], ..RouteMatch::default() }, action)
}

/// A carrier for numbers that begin with 00 except 00900, and authentication of calls where `edit` sets it.
fn world(edit: impl FnOnce(&mut Snapshot)) -> World {
    World::new(|snapshot| {
        snapshot.trunks = vec![trunk(None)];
        let dear = RouteMatch { prefixes: vec![(*b"00900").into()], ..RouteMatch::default() };
        let refused = Route::new(dear, Action::Reject { status: Status::DECLINE, reason: None });
        snapshot.routes = vec![refused, to_trunk(at(CARRIER))];
        edit(snapshot);
    })
}

/// Makes a call through the trunk; returns the Record-Route that the caller received.
fn call(world: &mut World, uri: &str) -> String {
    let invite = find(&world.input(ALICE, &request("INVITE", uri, "call", "")), "INVITE");
    let answer = world.respond(&invite, 200, "t", "Contact: <sip:gw@203.0.113.1>\r\n");
    answer[0].header("Record-Route").expect("recorded").to_owned()
}

fn in_dialog(method: &str, uri: &str, branch: &str, route: &str) -> String {
    request(method, uri, branch, &format!("Route: {route}\r\n"))
        .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=t")
        .replace("CSeq: 1", "CSeq: 2")
}

/// Returns whether the next hop of `text` gets credentials when it challenges.
fn is_proved_to(world: &mut World, text: &str, place: &str) -> bool {
    let method = text.split(' ').next().expect("a method");
    let sent = find(&world.input(ALICE, text), method);
    assert_eq!(sent.to.to_string(), place);
    let again = world.respond(&sent, 401, "", CHALLENGE);
    again.iter().any(|sent| sent.header("Authorization").is_some())
}

#[test]
fn a_trunks_credentials_go_to_no_one_else() {
    let mut world = world(|_| {});
    let route = call(&mut world, NUMBER);
    let stranger = format!("sip:x@{STRANGER}");
    for (number, method) in ["BYE", "INVITE"].into_iter().enumerate() {
        let text = in_dialog(method, &stranger, &format!("a{number}"), &route);
        assert!(!is_proved_to(&mut world, &text, STRANGER), "where the caller says that the other end is");
        let detour = format!("{route}, <sip:{STRANGER};lr>");
        let text = in_dialog(method, "sip:00900@carrier.example", &format!("b{number}"), &detour);
        assert!(!is_proved_to(&mut world, &text, STRANGER), "a Route of the caller's own");
    }
    for (number, place) in [CARRIER, GATEWAY].into_iter().enumerate() {
        let text = in_dialog("BYE", &format!("sip:gw@{place}"), &format!("c{number}"), &route);
        assert!(is_proved_to(&mut world, &text, place), "a target of the route, and a source of the trunk");
    }
    world.wait(Duration::from_secs(40));
}

#[test]
fn a_named_trunk_matches_its_name_and_addresses() {
    let question = LocateQuery::new(b"carrier.example", None, None, false);
    let place = TargetAddress::Name(question.clone());
    let target = RouteTarget { uri: (*b"sip:carrier.example").into(), address: place, priority: 1, weight: 1 };
    let mut world = world(|snapshot| snapshot.routes = vec![to_trunk(target)]);
    let hop = Hop::new(Transport::Udp, CARRIER.parse().expect("an address"));
    let candidate = Candidate { rank: 1, priority: 1, weight: 1, hops: [hop].into_iter().collect() };
    let answer = Ok(Arc::new(CandidateList::new(vec![candidate])));
    world.names.insert(world.now, &question, answer, Duration::from_secs(600));
    let route = call(&mut world, NUMBER);
    for (number, host) in ["203.0.113.1", "Carrier.Example"].into_iter().enumerate() {
        let text = in_dialog("BYE", &format!("sip:gw@{host}"), &format!("n{number}"), &route);
        assert!(is_proved_to(&mut world, &text, CARRIER), "{host}");
    }
    let text = in_dialog("BYE", &format!("sip:gw@{STRANGER}"), "s", &route);
    assert!(!is_proved_to(&mut world, &text, STRANGER));
}

#[test]
fn a_trunks_redirection_gets_no_credentials() {
    let mut world = world(|snapshot| snapshot.proxy.recurse = true);
    let invite = find(&world.input(ALICE, &request("INVITE", NUMBER, "inv", "")), "INVITE");
    let sent = world.respond(&invite, 302, "t", &format!("Contact: <sip:x@{STRANGER}>\r\n"));
    let elsewhere = find(&sent, "INVITE");
    assert_eq!(elsewhere.to.to_string(), STRANGER);
    let end = world.respond(&elsewhere, 401, "u", CHALLENGE);
    assert_eq!((destinations(&end, "INVITE").len(), finals(&end)), (0, vec![401]));
    world.settle();
}

#[test]
fn a_redirection_gives_the_caller_no_extra_routes() {
    let mut world = world(|snapshot| {
        snapshot.proxy.recurse = true;
        let address = "192.0.2.20".parse::<IpAddr>().expect("an address");
        for route in &mut snapshot.routes {
            route.matches.sources = vec![Network { address, prefix: 32 }];
        }
    });
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let invite = find(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", "")), "INVITE");
    let sent = world.respond(&invite, 302, "b", &format!("Contact: <{NUMBER}>\r\n"));
    assert_eq!((destinations(&sent, "INVITE").len(), finals(&sent)), (0, vec![302]), "Bob may, and Alice may not");
    world.settle();
}

#[test]
fn a_305_or_380_is_not_followed() {
    for status in [305, 380] {
        let mut world = World::new(|snapshot| snapshot.proxy.recurse = true);
        world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
        let invite = find(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", "")), "INVITE");
        let sent = world.respond(&invite, status, "b", &format!("Contact: <sip:x@{STRANGER}>\r\n"));
        assert_eq!((destinations(&sent, "INVITE").len(), finals(&sent)), (0, vec![status]));
        world.settle();
    }
}

fn register(from: &str) -> String {
    request("REGISTER", "sip:example.com", "reg", "")
        .replace(ALICE, from)
        .replace("sip:alice@example", "sip:bob@example")
}

#[test]
fn a_trunks_address_cannot_register() {
    let mut world = world(|snapshot| snapshot.auth.require = vec![(*b"REGISTER").into(), (*b"INVITE").into()]);
    assert_eq!(summary(&world.input(GATEWAY, &register(GATEWAY))), [format!("401 {GATEWAY}")]);
    assert_eq!(world.locations.len(), 0);
    let text = request("INVITE", NUMBER, "inv", "").replace(ALICE, GATEWAY);
    assert_eq!(destinations(&world.input(GATEWAY, &text), "INVITE"), [CARRIER], "but it calls");
}

#[test]
fn a_dialog_route_reaches_no_number_or_user() {
    let mut world = world(|_| {});
    let instance = "+sip.instance=\"<urn:uuid:desk>\"";
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>;{instance}"));
    let route = call(&mut world, NUMBER);
    world.configure(|snapshot| snapshot.auth.require = vec![(*b"INVITE").into()]);
    for (number, uri) in [NUMBER, "sip:bob@example.com", "sip:0049301234@192.0.2.1:5060"].into_iter().enumerate() {
        let sent = world.input(ALICE, &in_dialog("INVITE", uri, &format!("d{number}"), &route));
        assert_eq!(summary(&sent), [format!("407 {ALICE}")], "{uri}");
    }
    let device = in_dialog("INVITE", "sip:bob@example.com;gr=urn:uuid:desk", "gruu", &route);
    assert_eq!(destinations(&world.input(ALICE, &device), "INVITE"), [BOB], "a contact may be a GRUU");
}

#[test]
fn a_strict_route_does_not_replace_the_number() {
    let mut world = world(|_| {});
    for (number, route) in ["sip:00900123@example.com", "sip:00900123@203.0.113.1"].into_iter().enumerate() {
        let line = format!("Route: <{route}>\r\n");
        let sent = find(&world.input(ALICE, &request("INVITE", NUMBER, &format!("r{number}"), &line)), "INVITE");
        assert_eq!(
            (sent.start(), sent.to.to_string()),
            ("INVITE sip:0049301234@203.0.113.1:5060 SIP/2.0", CARRIER.into())
        );
        world.respond(&sent, 486, "t", "");
    }
    world.settle();
}

#[test]
fn no_spelling_of_a_number_evades_its_rule() {
    let mut world = world(|snapshot| {
        let rewrite = NumberRewrite { strip: 2, prefix: (*b"+").into(), e164: None };
        for route in &mut snapshot.routes {
            route.rewrite = Some(rewrite.clone());
        }
    });
    let dear =
        ["00900123", "%30%30900123", "0%30900123", "00-900-123", "00(900).123", "00900123;phone-context=x", "%300-900"];
    for (number, user) in dear.into_iter().enumerate() {
        let text = request("INVITE", &format!("sip:{user}@example.com"), &format!("n{number}"), "");
        assert_eq!(finals(&world.input(ALICE, &text)), [603], "{user}");
    }
    for (number, user) in ["0049301", "%30%3049301", "00-49-301", "0%3049(301)"].into_iter().enumerate() {
        let text = request("INVITE", &format!("sip:{user}@example.com"), &format!("m{number}"), "");
        let sent = find(&world.input(ALICE, &text), "INVITE");
        assert_eq!(sent.start(), "INVITE sip:+49301@203.0.113.1:5060 SIP/2.0", "{user}");
        world.respond(&sent, 486, "t", "");
    }
    // A user part that is no number, or that requires escapes, stays unchanged.
    world.configure(|snapshot| snapshot.routes[1].matches.prefixes = vec![(*b"x-").into()]);
    for (number, (user, sent_user)) in [("x-%40a%3b", "x-%40a%3b"), ("x-%61.b", "x-a.b")].into_iter().enumerate() {
        let text = request("INVITE", &format!("sip:{user}@example.com"), &format!("x{number}"), "");
        let sent = find(&world.input(ALICE, &text), "INVITE");
        assert_eq!(sent.start(), format!("INVITE sip:{sent_user}@203.0.113.1:5060 SIP/2.0"));
        world.respond(&sent, 486, "t", "");
    }
    world.settle();
}

#[test]
fn an_unmatched_ack_is_dropped() {
    let options = |stateless| vec![Route::of_domain(b"*", Action::proxy(Vec::new(), stateless))];
    let ack = |branch: &str| request("ACK", &format!("sip:x@{STRANGER}"), branch, "");
    for stateless in [Stateless::Never, Stateless::Always] {
        let mut world = World::new(|snapshot| snapshot.routes = options(stateless));
        assert_eq!(destinations(&world.input(ALICE, &ack("a")), "ACK"), [STRANGER], "as its INVITE would");
        world.configure(|snapshot| snapshot.auth.require = vec![(*b"INVITE").into()]);
        assert!(world.input(ALICE, &ack("b")).is_empty());
        let cancel = world.input(ALICE, &request("CANCEL", &format!("sip:x@{STRANGER}"), "c", ""));
        assert_eq!(summary(&cancel), [format!("481 {ALICE}")]);
        world.settle();
    }
}

#[test]
fn a_request_on_a_connection_is_forwarded_statefully() {
    let mut world = World::listening(&["UDP", "TCP"], |snapshot| {
        let action = Action::proxy(vec![at(CARRIER)], Stateless::WhenPossible);
        snapshot.routes = vec![Route::of_domain(b"*", action)];
    });
    let peer = "192.0.2.10:41000".parse().expect("an address");
    let alice = Flow::on_connection(ListenerId(1), Transport::Tcp, peer, ConnId::new(0, 9, 1));
    let text = request("OPTIONS", "sip:x@elsewhere.example", "o", "").replace("SIP/2.0/UDP", "SIP/2.0/TCP");
    let sent = find(&world.input_by(alice, &text), "OPTIONS");
    let answer: Vec<SentMessage> = world.respond(&sent, 200, "x", "");
    assert_eq!(answer[0].flow.connection, alice.connection);
    world.settle();
}

//= rfc5393#5.3.3:sum
#[test]
fn max_breadth_limits_every_step() {
    let mut world = World::new(|_| {});
    for (address, q) in [(BOB, "0.9"), (BOB2, "0.5"), (STRANGER, "0.5")] {
        world.register("bob", address, &format!("<sip:bob@{address}>;q={q}"));
    }
    let text = request("INVITE", "sip:bob@example.com", "inv", "Max-Breadth: 1\r\n");
    let mut sent = world.input(ALICE, &text);
    for tried in 1..=3 {
        assert_eq!(destinations(&sent, "INVITE").len(), 1, "step {tried}");
        let invite = find(&sent, "INVITE");
        assert_eq!(invite.header("Max-Breadth"), Some("1"));
        sent = world.respond(&invite, 486, &format!("b{tried}"), "");
    }
    assert_eq!(finals(&sent), [486]);
    world.settle();
}

#[test]
fn an_unreachable_registrar_costs_nothing() {
    let hop = Hop::new(Transport::Tcp, CARRIER.parse().expect("an address"));
    let account = Account {
        from: (*b"sip:acct@carrier.example").into(),
        contact_user: (*b"acct").into(),
        registrar: (*b"sip:carrier.example").into(),
        next_hop: AccountPlace::Address(hop),
        expires: Duration::from_secs(600),
    };
    let mut world = World::new(|snapshot| snapshot.trunks = vec![trunk(Some(account))]);
    assert!(world.wait(Duration::from_secs(600)).is_empty(), "{SERVER} speaks no TCP");
    assert_eq!(world.shard.transactions(), 0);
}

#[test]
fn a_non_unicast_contact_is_not_connected_to() {
    for address in ["0.0.0.0", "255.255.255.255", "224.0.0.1"] {
        let mut world = World::listening(&["UDP", "TCP"], |_| {});
        let peer = STRANGER.parse().expect("an address");
        let flow = Flow::on_connection(ListenerId(1), Transport::Tcp, peer, ConnId::new(0, 3, 1));
        // As if another proxy, which owns the connection, had forwarded it.
        let below = "Via: SIP/2.0/TCP 10.0.0.1;branch=z9hG4bKx\r\nContact: <sip:bob@";
        let text = register(STRANGER)
            .replace("SIP/2.0/UDP", "SIP/2.0/TCP")
            .replace(&format!("Contact: <sip:alice@{STRANGER}>"), &format!("{below}{address}:5038;transport=tcp>"));
        assert!(text.contains(address), "{text}");
        assert_eq!(world.input_by(flow, &text)[0].status(), 200);
        let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""));
        assert_eq!((destinations(&sent, "INVITE").len(), finals(&sent)), (0, vec![480]), "{address}");
    }
}
