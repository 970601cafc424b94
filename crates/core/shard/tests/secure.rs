//! `sips` URIs, and the names that the certificates of next hops must have (RFC 3261 §26, RFC 5630, RFC 5922).

mod support;

use std::sync::Arc;

use strowger_foundation::{ConnId, Flow, HostId, ListenerId, Transport};
use strowger_locate::{Candidate, CandidateList, Hop, LocateQuery, LocateResult};
use strowger_proxy::Stateless;
use strowger_registrar::Nat;
use strowger_shard::{Action, Input, Route, RouteTarget, Snapshot, TargetAddress};
use strowger_trunk::Trunk;
use support::{ALICE, BOB, SERVER, World, finals, find, request, summary};

const CARRIER: &str = "203.0.113.1:5061";

fn over_tls(slot: u32, peer: &str) -> Flow {
    Flow::on_connection(ListenerId(1), Transport::Tls, peer.parse().expect("an address"), ConnId::new(0, slot, 1))
}

fn by_tls(text: &str) -> String {
    text.replace("SIP/2.0/UDP", "SIP/2.0/TLS")
}

fn register(world: &mut World, flow: Flow, contact: &str) {
    let text = format!(
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/{} {};branch=z9hG4bKr{}\r\nMax-Forwards: 70\r\n\
         From: <sip:bob@example.com>;tag=r\r\nTo: <sip:bob@example.com>\r\nCall-ID: r\r\nCSeq: 1 REGISTER\r\n\
         Contact: {contact}\r\nContent-Length: 0\r\n\r\n",
        flow.transport, flow.peer, flow.listener.0
    );
    assert_eq!(world.input_by(flow, &text)[0].status(), 200);
}

fn to_carrier(uri: &str, question: LocateQuery) -> impl FnOnce(&mut Snapshot) {
    let target =
        RouteTarget { uri: uri.as_bytes().into(), address: TargetAddress::Name(question), priority: 1, weight: 1 };
    |snapshot| snapshot.routes = vec![Route::of_domain(b"*", Action::proxy(vec![target], Stateless::Never))]
}

fn carrier() -> LocateResult {
    let hop = Hop::new(Transport::Tls, CARRIER.parse().expect("an address"));
    let candidate = Candidate { rank: 1, priority: 1, weight: 0, hops: [hop].into_iter().collect() };
    Ok(Arc::new(CandidateList::new(vec![candidate])))
}

//= rfc3261#16.6:sips
#[test]
fn a_sips_uri_reaches_only_sips_contacts_over_tls() {
    let mut world = World::listening(&["UDP", "TLS"], |_| {});
    let alice = over_tls(1, ALICE);
    register(
        &mut world,
        Flow::new(ListenerId(0), Transport::Udp, BOB.parse().expect("an address")),
        "<sip:bob@192.0.2.20>",
    );
    let refused = world.input_by(alice, &by_tls(&request("INVITE", "sips:bob@example.com", "one", "")));
    assert_eq!(summary(&refused).last().map(String::as_str), Some(&*format!("480 {ALICE}")));
    assert!(refused.last().expect("refused").start().ends_with(" No Secure Path"), "{}", refused[0].text);
    let bob = over_tls(2, BOB);
    register(&mut world, bob, "<sips:bob@192.0.2.20>");
    let sent = find(&world.input_by(alice, &by_tls(&request("INVITE", "sips:bob@example.com", "two", ""))), "INVITE");
    assert_eq!((sent.flow.connection, sent.start()), (bob.connection, "INVITE sips:bob@192.0.2.20 SIP/2.0"));
    let route = sent.header("Record-Route").expect("recorded");
    assert!(route.starts_with(&format!("<sips:{SERVER};lr;dlg=")), "{route}");
    assert!(sent.header("Via").is_some_and(|via| via.starts_with("SIP/2.0/TLS ")));
    let answer = world.respond(&sent, 200, "b", "Contact: <sips:bob@192.0.2.20>\r\n");
    assert_eq!(summary(&answer), [format!("200 {ALICE}")]);
    // Within the call, our own URI is recognized.
    let ack = format!(
        "ACK sips:bob@192.0.2.20 SIP/2.0\r\nVia: SIP/2.0/TLS {ALICE};branch=z9hG4bKa\r\nMax-Forwards: 70\r\n\
         Route: {route}\r\nFrom: <sip:alice@example.com>;tag=a\r\nTo: <sips:bob@example.com>;tag=b\r\n\
         Call-ID: {}\r\nCSeq: 1 ACK\r\nContent-Length: 0\r\n\r\n",
        sent.header("Call-ID").expect("its own")
    );
    let passed = world.input_by(alice, &ack);
    assert!(
        passed.iter().all(|sent| sent.flow.transport == Transport::Tls && sent.header("Route").is_none()),
        "{passed:?}"
    );
}

//= rfc3261#16.6:sips
#[test]
fn a_server_without_tls_does_not_support_sips() {
    let mut world = World::listening(&["UDP", "TCP"], |_| {});
    world.register("bob", BOB, "<sip:bob@192.0.2.20>");
    let refused = world.input(ALICE, &request("INVITE", "sips:bob@example.com", "one", ""));
    assert_eq!(finals(&refused), [416]);
}

//= rfc3261#16.6:sips
#[test]
fn a_route_does_not_lead_a_sips_uri_out_of_tls() {
    let question = LocateQuery::new(b"carrier.example", None, None, false);
    let mut world = World::listening(&["UDP", "TLS"], to_carrier("sip:carrier.example", question));
    world.input_by(over_tls(1, ALICE), &by_tls(&request("INVITE", "sips:x@elsewhere.example", "one", "")));
    assert!(world.questions[0].1.is_secure, "only secure services are looked up");
    let sent = find(&world.resolve(carrier()), "INVITE");
    assert_eq!((sent.flow.transport, sent.flow.peer.to_string()), (Transport::Tls, CARRIER.to_owned()));
    assert!(sent.start().starts_with("INVITE sips:"), "{}", sent.text);
    let udp = RouteTarget::at(b"sip:203.0.113.1", CARRIER.parse().expect("an address"));
    world.configure(|snapshot| {
        snapshot.routes = vec![Route::of_domain(b"*", Action::proxy(vec![udp], Stateless::Never))];
    });
    let refused =
        world.input_by(over_tls(1, ALICE), &by_tls(&request("INVITE", "sips:x@elsewhere.example", "two", "")));
    assert_eq!(finals(&refused), [480]);
}

/// Lets any address be called.
fn open_relay(snapshot: &mut Snapshot) {
    snapshot.routes = vec![Route::of_domain(b"*", Action::proxy(Vec::new(), Stateless::Never))];
}

//= rfc3261#16.6:sips
#[test]
fn a_sips_address_without_a_secure_way_is_refused() {
    let mut world = World::listening(&["UDP", "TCP"], open_relay);
    for uri in ["sips:x@203.0.113.1", "sips:x@203.0.113.1;transport=udp", "sips:x@203.0.113.1;transport=tcp"] {
        let refused = world.input(ALICE, &request("INVITE", uri, uri, ""));
        assert_eq!(finals(&refused), [416], "{uri}");
    }
    let mut world = World::listening(&["UDP", "TLS"], open_relay);
    let refused = world.input(ALICE, &request("INVITE", "sips:x@203.0.113.1;transport=udp", "one", ""));
    assert_eq!(summary(&refused), [format!("502 {ALICE}")], "nothing is sent over UDP");
    let sent = find(&world.input(ALICE, &request("INVITE", "sips:x@203.0.113.1", "two", "")), "INVITE");
    assert_eq!((sent.flow.transport, sent.flow.peer.to_string()), (Transport::Tls, CARRIER.to_owned()));
}

//= rfc3261#16.6:sips
#[test]
fn a_redirection_to_a_sips_address_stays_in_tls() {
    let mut world = World::listening(&["UDP", "TLS"], |snapshot| snapshot.proxy.recurse = true);
    world.register("bob", BOB, "<sip:bob@192.0.2.20>");
    world.register("carol", "192.0.2.30:5060", "<sip:carol@192.0.2.30>");
    let mut redirect = |branch: &str, contact: &str| {
        let invite = find(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", branch, "")), "INVITE");
        world.respond(&invite, 302, "b", &format!("Contact: <{contact}>\r\n"))
    };
    assert_eq!(find(&redirect("one", "sip:carol@example.com"), "INVITE").flow.transport, Transport::Udp);
    for (branch, contact) in [("two", "sips:carol@example.com"), ("three", "sips:carol@203.0.113.9;transport=udp")] {
        assert_eq!(finals(&redirect(branch, contact)), [302], "{contact} is the caller's to follow");
    }
    let sent = find(&redirect("four", "sips:carol@203.0.113.1"), "INVITE");
    assert_eq!((sent.flow.transport, sent.flow.peer.to_string()), (Transport::Tls, CARRIER.to_owned()));
}

//= rfc3261#16.6:sips
#[test]
fn a_sips_contact_is_not_reached_over_udp() {
    for nat in [Nat::Auto, Nat::Always] {
        let mut world = World::listening(&["UDP", "TLS"], |snapshot| snapshot.registrar.nat = nat);
        let flow = Flow::new(ListenerId(0), Transport::Udp, BOB.parse().expect("an address"));
        register(&mut world, flow, "<sips:bob@192.0.2.20;transport=udp>");
        for (branch, uri) in [("one", "sip:bob@example.com"), ("two", "sips:bob@example.com")] {
            let refused = world.input(ALICE, &request("INVITE", uri, branch, ""));
            assert_eq!(summary(&refused), [format!("480 {ALICE}")], "{nat:?} {uri}");
        }
    }
}

//= rfc3261#18.2.2:same-connection
#[test]
fn a_stateless_response_goes_to_the_connection_that_its_request_came_from() {
    let target = RouteTarget::at(b"sip:203.0.113.1", "203.0.113.1:5060".parse().expect("an address"));
    let mut world = World::listening(&["UDP", "TLS"], |snapshot| {
        snapshot.routes = vec![Route::of_domain(b"*", Action::proxy(vec![target], Stateless::Always))];
    });
    let text = request("OPTIONS", "sip:x@elsewhere.example", "one", "").replace("branch=", "rport;branch=");
    let sent = find(&world.input_by(over_tls(1, "198.51.100.7:40000"), &by_tls(&text)), "OPTIONS");
    let answer = world.respond(&sent, 200, "b", "");
    assert_eq!((answer[0].status(), answer[0].flow.host), (200, HostId::SOURCE));
    assert_eq!(answer[0].flow.peer.to_string(), "198.51.100.7:40000");
}

//= rfc3263#4.1:certificates
#[test]
fn a_secure_flow_carries_the_name_that_was_asked_for() {
    let question = LocateQuery::new(b"carrier.example", None, Some(Transport::Tls), true);
    let mut world = World::listening(&["UDP", "TLS"], to_carrier("sips:carrier.example", question));
    world.input(ALICE, &request("INVITE", "sip:x@elsewhere.example", "one", ""));
    let named = find(&world.resolve(carrier()), "INVITE").flow;
    assert_ne!(named.host, HostId::NONE);
    let again = find(&world.input(ALICE, &request("INVITE", "sip:y@elsewhere.example", "two", "")), "INVITE").flow;
    assert_eq!(again, named, "from the cache as well");
    let other = LocateQuery::new(b"other.example", None, Some(Transport::Tls), true);
    world.configure(to_carrier("sips:other.example", other));
    world.input(ALICE, &request("INVITE", "sip:z@elsewhere.example", "three", ""));
    let other = find(&world.resolve(carrier()), "INVITE").flow;
    assert!(other.peer == named.peer && other.host != named.host, "one address, two names: two connections");
    let literal = TargetAddress::Literal { address: named.peer, transport: Some(Transport::Tls) };
    let target = RouteTarget { uri: (*b"sips:203.0.113.1").into(), address: literal, priority: 1, weight: 1 };
    world.configure(|snapshot| {
        snapshot.routes = vec![Route::of_domain(b"*", Action::proxy(vec![target], Stateless::Never))];
    });
    let sent = find(&world.input(ALICE, &request("INVITE", "sip:a@elsewhere.example", "four", "")), "INVITE");
    assert_eq!(sent.flow.host, HostId::NONE, "its certificate must have the address");
}

//= rfc5922#7.3
#[test]
fn the_address_of_a_named_target_is_proven_by_its_name_within_a_call() {
    let question = LocateQuery::new(b"carrier.example", None, Some(Transport::Tls), true);
    let mut world = World::listening(&["UDP", "TLS"], to_carrier("sips:carrier.example", question));
    world.input(ALICE, &request("INVITE", "sip:x@elsewhere.example", "one", ""));
    let invite = find(&world.resolve(carrier()), "INVITE");
    let own = invite.header("Record-Route").expect("recorded").to_owned();
    let contact = "Contact: <sip:x@198.51.100.9>\r\n";
    let answer = world.respond(&invite, 200, "b", contact);
    assert_eq!(summary(&answer), [format!("200 {ALICE}")]);
    let mut follow = |next: &str| {
        let bye = format!(
            "BYE sip:x@198.51.100.9 SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bK{}\r\nMax-Forwards: 70\r\n\
             Route: {own}\r\nRoute: <{next};lr>\r\nFrom: <sip:alice@example.com>;tag=a\r\n\
             To: <sip:x@elsewhere.example>;tag=b\r\nCall-ID: {}\r\nCSeq: 2 BYE\r\nContent-Length: 0\r\n\r\n",
            next.replace([':', ';', '='], "-"),
            invite.header("Call-ID").expect("its own")
        );
        find(&world.input(ALICE, &bye), "BYE").flow
    };
    assert_eq!(follow("sip:203.0.113.1:5061;transport=tls").host, invite.flow.host);
    assert_eq!(follow("sip:203.0.113.1:15061;transport=tls").host, HostId::NONE, "another server there");
    assert_eq!(follow("sip:203.0.113.99:5061;transport=tls").host, HostId::NONE, "another address");
}

//= rfc5922#7.3
#[test]
fn a_name_of_somebody_else_does_not_make_a_target_count_as_dead() {
    let question = LocateQuery::new(b"carrier.example", None, Some(Transport::Tls), true);
    let mut world = World::listening(&["UDP", "TLS"], to_carrier("sips:carrier.example", question));
    let open = Route::of_domain(b"x.attacker.example", Action::proxy(Vec::new(), Stateless::Never));
    world.configure(|snapshot| snapshot.routes.insert(0, open));
    world.input(ALICE, &request("INVITE", "sip:x@x.attacker.example;transport=tls", "zero", ""));
    let wrong = find(&world.resolve(carrier()), "INVITE").flow;
    assert_eq!(wrong.peer.to_string(), CARRIER, "the name leads to the carrier");
    assert_eq!(finals(&world.give(Input::ConnectFailed { flow: wrong })), [500], "whose certificate is another");
    let mut call = |branch: &str| {
        let sent = world.input(ALICE, &request("INVITE", "sip:x@elsewhere.example", branch, ""));
        let sent = if world.questions.is_empty() { sent } else { world.resolve(carrier()) };
        if finals(&sent).is_empty() { Some(find(&sent, "INVITE").flow) } else { None }
    };
    let right = call("one").expect("called");
    assert_eq!(call("two"), Some(right), "of dead targets, one call in a while is a probe");
    assert_eq!(call("three"), Some(right));
    assert_ne!(right.host, wrong.host);
    world.give(Input::ConnectFailed { flow: right });
    let mut call = |branch: &str| {
        let sent = world.input(ALICE, &request("INVITE", "sip:x@elsewhere.example", branch, ""));
        finals(&sent).first().copied()
    };
    assert_eq!([call("four"), call("five")], [None, Some(500)], "its own failure counts");
}

//= rfc3263#4.1:sips-services
#[test]
fn what_the_cache_knows_of_a_name_without_tls_is_not_for_sips() {
    let question = LocateQuery::new(b"carrier.example", None, None, false);
    let mut world = World::listening(&["UDP", "TLS"], to_carrier("sip:carrier.example", question));
    world.input(ALICE, &request("INVITE", "sip:x@elsewhere.example", "one", ""));
    let hop = Hop::new(Transport::Udp, "203.0.113.1:5060".parse().expect("an address"));
    let candidate = Candidate { rank: 1, priority: 1, weight: 0, hops: [hop].into_iter().collect() };
    let sent = find(&world.resolve(Ok(Arc::new(CandidateList::new(vec![candidate])))), "INVITE");
    assert_eq!(sent.flow.transport, Transport::Udp);
    let alice = over_tls(1, ALICE);
    world.input_by(alice, &by_tls(&request("INVITE", "sips:x@elsewhere.example", "two", "")));
    let sent = find(&world.resolve(carrier()), "INVITE");
    assert_eq!((sent.flow.transport, sent.flow.peer.to_string()), (Transport::Tls, CARRIER.to_owned()));
    for (branch, uri, transport) in
        [("three", "sips:x@elsewhere.example", Transport::Tls), ("four", "sip:x@elsewhere.example", Transport::Udp)]
    {
        let sent = find(&world.input_by(alice, &by_tls(&request("INVITE", uri, branch, ""))), "INVITE");
        assert_eq!(sent.flow.transport, transport, "each from the cache");
    }
}

//= rfc3261#16.11:validates
#[test]
fn an_ack_finds_what_it_has_asked_the_dns_for() {
    let mut world = World::listening(&["UDP", "TLS"], |_| {});
    let (alice, bob) = (over_tls(1, ALICE), over_tls(2, BOB));
    register(&mut world, bob, "<sips:bob@192.0.2.20>");
    let sent = find(&world.input_by(alice, &by_tls(&request("INVITE", "sips:bob@example.com", "one", ""))), "INVITE");
    let route = sent.header("Record-Route").expect("recorded").to_owned();
    world.respond(&sent, 200, "b", "Contact: <sips:bob@192.0.2.20>\r\n");
    let ack = format!(
        "ACK sips:bob@192.0.2.20 SIP/2.0\r\nVia: SIP/2.0/TLS {ALICE};branch=z9hG4bKa\r\nMax-Forwards: 70\r\n\
         Route: {route}, <sip:carrier.example;transport=tls;lr>\r\nFrom: <sip:alice@example.com>;tag=a\r\n\
         To: <sips:bob@example.com>;tag=b\r\nCall-ID: {}\r\nCSeq: 1 ACK\r\nContent-Length: 0\r\n\r\n",
        sent.header("Call-ID").expect("its own")
    );
    assert_eq!(world.input_by(alice, &ack).len(), 0, "the name is located first");
    world.resolve(carrier());
    let sent = find(&world.input_by(alice, &ack), "ACK");
    assert_eq!((sent.flow.transport, sent.flow.peer.to_string()), (Transport::Tls, CARRIER.to_owned()));
}

/// Requires that users authenticate, and knows a trunk by its certificate.
fn with_trunk(snapshot: &mut Snapshot) {
    snapshot.auth.require = vec![(*b"INVITE").into(), (*b"REGISTER").into()];
    snapshot.trunks = vec![Arc::new(Trunk {
        name: "carrier".into(),
        credentials: None,
        sources: Vec::new(),
        domains: vec!["carrier.example".into()],
        account: None,
    })];
}

//= rfc5922#7.3
#[test]
fn a_trunk_with_a_name_is_found_after_its_connection_is_gone() {
    let mut world = World::listening(&["UDP", "TLS"], |snapshot| snapshot.registrar.nat = Nat::Auto);
    world.register("bob", BOB, "<sip:bob@192.0.2.20>");
    world.configure(with_trunk);
    let host = world.names.hosts().number(b"carrier.example").expect("room");
    let trunk = Flow { host, ..over_tls(1, "203.0.113.1:40000") };
    let mut hang_up = |branch: &str, contact: &str| {
        let invite = by_tls(&request("INVITE", "sip:bob@example.com", branch, ""));
        let invite = invite.replace(&format!("<sip:alice@{ALICE}>"), &format!("<{contact}>"));
        let invite = invite.replace(&format!("TLS {ALICE}"), "TLS carrier.example");
        assert!(invite.contains(contact) && invite.contains("TLS carrier.example"), "{invite}");
        let sent = find(&world.input_by(trunk, &invite), "INVITE");
        let route = sent.header("Record-Route").expect("recorded").to_owned();
        world.respond(&sent, 200, "b", "Contact: <sip:bob@192.0.2.20>\r\n");
        let bye = format!(
            "BYE {contact} SIP/2.0\r\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bKbye{branch}\r\nMax-Forwards: 70\r\n\
             Route: {route}\r\nFrom: <sip:bob@example.com>;tag=b\r\nTo: <sip:alice@example.com>;tag=a\r\n\
             Call-ID: {}\r\nCSeq: 1 BYE\r\nContent-Length: 0\r\n\r\n",
            sent.header("Call-ID").expect("its own")
        );
        let sent = world.input(BOB, &bye);
        let sent = if world.questions.is_empty() { sent } else { world.resolve(carrier()) };
        find(&sent, "BYE").flow
    };
    let flow = hang_up("one", "sip:carrier.example;transport=tls");
    assert_eq!((flow.connection, flow.host, flow.peer.to_string()), (None, host, CARRIER.to_owned()));
    let flow = hang_up("two", "sip:gateway7.internal;transport=tls");
    assert_eq!((flow.connection, flow.reopen), (trunk.connection, false), "nobody knows that name");
}

//= rfc5922#7.4
#[test]
fn a_trunk_is_known_by_its_certificate() {
    let mut world = World::listening(&["UDP", "TLS"], with_trunk);
    let call = |world: &mut World, flow: Flow, branch: &str| {
        finals(&world.input_by(flow, &by_tls(&request("INVITE", "sip:bob@example.com", branch, ""))))
    };
    let stranger = over_tls(1, ALICE);
    let host = world.names.hosts().number(b"carrier.example").expect("room");
    assert_eq!(call(&mut world, stranger, "one"), [407]);
    assert_eq!(call(&mut world, Flow { host, ..stranger }, "three"), [404], "there is no such user, and no challenge");
    let register = by_tls(&request("REGISTER", "sip:example.com", "four", "Contact: <sip:a@192.0.2.10>\r\n"));
    assert_eq!(finals(&world.input_by(Flow { host, ..stranger }, &register)), [401], "a trunk is not a user");
}
