//! Carriers: routes by number, challenges that the server answers, and registrations of its own.

mod support;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_auth::{Algorithm, Ha1, Network, NonceWindows};
use strowger_foundation::{KeyRing, ShardId, TagKey, Timestamp, Transport};
use strowger_locate::{Candidate, CandidateList, Hop, LocateQuery, Outages};
use strowger_message::{AuthParams, Status};
use strowger_proxy::{Changes, Stateless};
use strowger_registrar::Locations;
use strowger_shard::{
    Action, Event, Input, Neighbours, ProvenSources, Route, RouteMatch, RouteTarget, Shard, ShardConfig, Snapshot,
};
use strowger_trunk::{Account, Credentials, NextHop, NumberRewrite, Secret, Trunk};
use support::{ALICE, BOB, SentMessage, World, destinations, finals, find, request, summary};

const CARRIER: &str = "203.0.113.1:5060";
const SECOND: &str = "203.0.113.2:5060";
const NUMBER: &str = "sip:0049301234@example.com";
const BY_UA: &str = "WWW-Authenticate: Digest realm=\"carrier\", nonce=\"n1\", qop=\"auth\", algorithm=MD5\r\n";
const BY_PROXY: &str = "Proxy-Authenticate: Digest realm=\"carrier\", nonce=\"n2\", qop=\"auth\", algorithm=MD5\r\n";

fn network(ip: &str) -> Network {
    Network { address: ip.parse::<IpAddr>().expect("an address"), prefix: 32 }
}

fn trunk(account: Option<NextHop>) -> Arc<Trunk> {
    Arc::new(Trunk {
        name: "carrier".into(),
        credentials: Some(Credentials {
            username: (*b"acct").into(),
            password: Secret::new(&b"hush"[..]),
            realm: None,
        }),
        sources: vec![network("203.0.113.1")],
        domains: Vec::new(),
        account: account.map(|place| Account {
            from: (*b"sip:acct@carrier.example").into(),
            contact_user: (*b"acct").into(),
            registrar: (*b"sip:carrier.example").into(),
            next_hop: place,
            expires: Duration::from_secs(600),
        }),
    })
}

fn targets(addresses: &[&str]) -> Vec<RouteTarget> {
    let at = |(number, address): (u16, &&str)| RouteTarget {
        priority: number,
        ..RouteTarget::at(format!("sip:{address}").as_bytes(), address.parse().expect("an address"))
    };
    (1..).zip(addresses).map(at).collect()
}

fn to_carrier(addresses: &[&str]) -> Route {
    let action = Action::Proxy {
        targets: targets(addresses),
        stateless: Stateless::Never,
        trunk: Some(Trunk::id_of("carrier")),
        balance: None,
    };
    Route::new(RouteMatch { prefixes: vec![(*b"00").into(), (*b"+").into()], ..RouteMatch::default() }, action)
}

fn world(edit: impl FnOnce(&mut Snapshot)) -> World {
    World::new(|snapshot| {
        snapshot.trunks = vec![trunk(None)];
        snapshot.routes = vec![to_carrier(&[CARRIER])];
        edit(snapshot);
    })
}

fn hex(algorithm_input: [&[u8]; 3]) -> String {
    let [a, b, c] = algorithm_input;
    Ha1::compute(Algorithm::Md5, a, b, c).as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns whether the credentials in `header` of `request` are valid, recomputed by RFC 7616.
fn is_proved(request: &SentMessage, header: &str) -> bool {
    let Some(value) = request.header(header) else { return false };
    let params = AuthParams::parse(value.as_bytes()).expect("credentials");
    let text = |name: &str| {
        let value = params.value(name).unwrap_or_default();
        String::from_utf8_lossy(value).trim_matches('"').to_owned()
    };
    let uri = request.start().split(' ').nth(1).expect("a URI");
    assert_eq!(text("uri"), uri);
    let (scheme, rest) = uri.split_once(':').expect("a scheme");
    let ha1 = hex([text("username").as_bytes(), text("realm").as_bytes(), b"hush"]);
    let ha2 = hex([request.method().as_bytes(), scheme.as_bytes(), rest.as_bytes()]);
    let middle = format!("{}:{}:{}:{}", text("nonce"), text("nc"), text("cnonce"), text("qop"));
    text("response") == hex([ha1.as_bytes(), middle.as_bytes(), ha2.as_bytes()])
}

#[test]
fn trunk_challenges_are_answered_once() {
    for (status, challenge, header) in [(401, BY_UA, "Authorization"), (407, BY_PROXY, "Proxy-Authorization")] {
        let mut world = world(|_| {});
        let first = find(&world.input(ALICE, &request("INVITE", NUMBER, "inv", "")), "INVITE");
        assert_eq!((first.to.to_string().as_str(), first.header(header)), (CARRIER, None));
        let sent = world.respond(&first, status, "t", challenge);
        assert_eq!(summary(&sent), [format!("ACK {CARRIER}"), format!("INVITE {CARRIER}")], "the caller hears nothing");
        let second = find(&sent, "INVITE");
        assert!(is_proved(&second, header), "{}", second.text);
        assert_ne!(second.header("Via"), first.header("Via"));
        assert_eq!(second.header("CSeq"), first.header("CSeq"));
        assert_eq!(second.headers("Via").count(), 2);
        assert!(second.text.ends_with("\r\n\r\nbody"));
        assert_eq!(world.shard.counters().challenges_answered, 1);
        world.respond(&second, 180, "t", "");
        assert_eq!(finals(&world.respond(&second, 200, "t", "")), [200]);
        world.settle();
        let first = find(&world.input(ALICE, &request("INVITE", NUMBER, "two", "")), "INVITE");
        let second = find(&world.respond(&first, status, "t", challenge), "INVITE");
        let again = world.respond(&second, status, "t", challenge);
        assert_eq!(
            (destinations(&again, "INVITE").len(), finals(&again)),
            (0, vec![status]),
            "it would be wrong again"
        );
        world.settle();
    }
}

#[test]
fn without_a_trunk_a_challenge_is_forwarded() {
    let mut world = world(|snapshot| {
        snapshot.routes = vec![Route::of_domain(b"*", Action::proxy(targets(&[CARRIER, SECOND]), Stateless::Never))];
    });
    let first = find(&world.input(ALICE, &request("INVITE", "sip:x@elsewhere.example", "inv", "")), "INVITE");
    let sent = world.respond(&first, 407, "t", BY_PROXY);
    assert_eq!((destinations(&sent, "INVITE").len(), finals(&sent)), (0, vec![407]), "it is the caller's");
    world.settle();
}

#[test]
fn failover_works_after_a_challenge() {
    let mut world = world(|snapshot| snapshot.routes = vec![to_carrier(&[CARRIER, SECOND])]);
    let first = find(&world.input(ALICE, &request("INVITE", NUMBER, "inv", "")), "INVITE");
    let second = find(&world.respond(&first, 401, "t", BY_UA), "INVITE");
    let third = find(&world.respond(&second, 503, "t", ""), "INVITE");
    assert_eq!(third.to.to_string(), SECOND);
    let fourth = find(&world.respond(&third, 407, "t", BY_PROXY), "INVITE");
    assert!(is_proved(&fourth, "Proxy-Authorization"));
    assert_eq!(finals(&world.respond(&fourth, 200, "t", "")), [200]);
    world.settle();
}

#[test]
fn cancelled_calls_send_no_credentials() {
    let mut world = world(|_| {});
    let first = find(&world.input(ALICE, &request("INVITE", NUMBER, "inv", "")), "INVITE");
    world.input(ALICE, &request("CANCEL", NUMBER, "inv", ""));
    let sent = world.respond(&first, 401, "t", BY_UA);
    assert_eq!((destinations(&sent, "INVITE").len(), finals(&sent).len()), (0, 1));
    world.settle();
}

#[test]
fn a_bye_to_a_trunk_has_credentials() {
    let mut world = world(|_| {});
    let first = find(&world.input(ALICE, &request("INVITE", NUMBER, "inv", "")), "INVITE");
    let contact = format!("Contact: <sip:gw@{CARRIER}>\r\n");
    let answer = world.respond(&first, 200, "t", &contact);
    let route = answer[0].header("Record-Route").expect("recorded").to_owned();
    let bye = request("BYE", &format!("sip:gw@{CARRIER}"), "bye", &format!("Route: {route}\r\n"))
        .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=t")
        .replace("CSeq: 1", "CSeq: 2");
    let sent = find(&world.input(ALICE, &bye), "BYE");
    let proved = find(&world.respond(&sent, 401, "", BY_UA), "BYE");
    assert!(is_proved(&proved, "Authorization"), "{}", proved.text);
    assert_eq!(finals(&world.respond(&proved, 200, "", "")), [200]);
    // A forged Route does not draw the trunk's credentials.
    let own = format!("trunk={}", Trunk::id_of("carrier"));
    for (from, to) in [(&own, "trunk=1"), (&format!(";{own}"), ""), (&own, "trunk=4294967296"), (&own, "trunk=x")] {
        assert!(bye.contains(from), "{bye}");
        let forged = bye.replace(from, to).replace("z9hG4bKbye", &format!("z9hG4bK{}", to.len()));
        assert_eq!(destinations(&world.input(ALICE, &forged), "BYE"), [""; 0], "{to}");
    }
    // The other side's BYE comes from the trunk and goes to Alice without credentials.
    let back = format!(
        "BYE sip:alice@{ALICE} SIP/2.0\r\nVia: SIP/2.0/UDP {CARRIER};branch=z9hG4bKback\r\nMax-Forwards: 70\r\n\
         Route: {route}\r\nFrom: <sip:bob@example.com>;tag=t\r\nTo: <sip:alice@example.com>;tag=a\r\n\
         Call-ID: call-1@alice\r\nCSeq: 1 BYE\r\nContent-Length: 0\r\n\r\n"
    );
    let sent = find(&world.input(CARRIER, &back), "BYE");
    assert_eq!(sent.to.to_string(), ALICE);
    let asked = world.respond(&sent, 401, "", BY_UA);
    assert_eq!(summary(&asked), [format!("401 {CARRIER}")], "Alice is not the trunk");
    world.settle();
}

#[test]
fn numbers_precede_users_and_are_rewritten() {
    let mut world = world(|snapshot| {
        let rewrite = NumberRewrite { strip: 2, prefix: (*b"+").into(), e164: None };
        let changes = Changes {
            add: vec![((*b"X-Account").into(), (*b"7").into())],
            remove: vec![(*b"subject").into(), (*b"X-Private").into()],
            body: None,
        };
        let route = Route { rewrite: Some(rewrite), changes: Some(Arc::new(changes)), ..to_carrier(&[CARRIER]) };
        snapshot.routes = vec![route];
    });
    world.register("0049301234", BOB, &format!("<sip:x@{BOB}>"));
    let extra = "Subject: a\r\nX-Private: b\r\nx-private: c\r\nX-Public: d\r\n";
    let sent = find(&world.input(ALICE, &request("INVITE", NUMBER, "inv", extra)), "INVITE");
    assert_eq!(sent.start(), "INVITE sip:+49301234@203.0.113.1:5060 SIP/2.0");
    assert_eq!((sent.header("X-Account"), sent.header("X-Public")), (Some("7"), Some("d")));
    for gone in ["Subject", "X-Private", "x-private"] {
        assert_eq!(sent.header(gone), None, "{gone}");
    }
    let proved = find(&world.respond(&sent, 401, "t", BY_UA), "INVITE");
    assert_eq!((proved.start(), proved.header("X-Account"), proved.header("Subject")), (sent.start(), Some("7"), None));
    assert!(is_proved(&proved, "Authorization"));
    world.respond(&proved, 486, "t", "");
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let user = find(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "bob", "")), "INVITE");
    assert_eq!(user.to.to_string(), BOB);
    world.respond(&user, 486, "t", "");
    world.settle();
}

#[test]
fn routes_match_sources_and_methods() {
    let mut world = world(|snapshot| {
        let mut route = to_carrier(&[CARRIER]);
        route.matches.sources = vec![network("192.0.2.10")];
        route.matches.methods = vec![(*b"INVITE").into()];
        snapshot.routes = vec![route];
        snapshot.unrouted_status = Status::FORBIDDEN;
    });
    let uri = "sip:0049301234@elsewhere.example";
    let sent = world.input(ALICE, &request("INVITE", uri, "a", ""));
    assert_eq!(destinations(&sent, "INVITE"), [CARRIER]);
    world.respond(&find(&sent, "INVITE"), 486, "t", "");
    assert_eq!(finals(&world.input(ALICE, &request("MESSAGE", uri, "b", ""))), [403], "as the operator has it");
    let other = request("INVITE", uri, "c", "").replace(ALICE, BOB);
    assert_eq!(summary(&world.input(BOB, &other)), [format!("403 {BOB}")]);
    world.settle();
}

#[test]
fn ring_timeout_is_per_route() {
    let mut world = world(|snapshot| {
        snapshot.routes = vec![Route { ring_timeout: Some(Duration::from_secs(7)), ..to_carrier(&[CARRIER, SECOND]) }];
    });
    let sent = find(&world.input(ALICE, &request("INVITE", NUMBER, "a", "")), "INVITE");
    world.respond(&sent, 183, "t", "");
    let late: Vec<_> = world.wait(Duration::from_secs(7)).into_iter().collect();
    assert_eq!(late.iter().map(|(at, sent)| (*at, sent.method())).collect::<Vec<_>>(), [(7000, "CANCEL")]);
    assert_eq!(finals(&world.respond(&sent, 487, "t", "")), [408]);
    world.settle();
}

#[test]
fn the_reject_reason_is_configurable() {
    let mut world = world(|snapshot| {
        let action = Action::Reject { status: Status::DECLINE, reason: Some("No Premium Numbers".into()) };
        let matches = RouteMatch { prefixes: vec![(*b"00900").into()], ..RouteMatch::default() };
        snapshot.routes.insert(0, Route::new(matches, action));
    });
    let sent = world.input(ALICE, &request("INVITE", "sip:00900123@example.com", "a", ""));
    assert_eq!(sent[0].start(), "SIP/2.0 603 No Premium Numbers");
    world.settle();
}

#[test]
fn a_trunk_needs_no_password_and_others_do() {
    let mut world = world(|snapshot| snapshot.auth.require = vec![(*b"INVITE").into()]);
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let text = request("INVITE", "sip:bob@example.com", "a", "").replace(ALICE, CARRIER);
    assert_eq!(destinations(&world.input(CARRIER, &text), "INVITE"), [BOB]);
    assert_eq!(finals(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "b", ""))), [407]);
}

fn registering(place: NextHop) -> World {
    let mut world = World::new(|snapshot| snapshot.trunks = vec![trunk(Some(place))]);
    // A shard acts only on input; its timer is due at once.
    assert!(world.shard.poll_timeout().is_some());
    world.now = Timestamp::from_millis(2000);
    world
}

fn here(address: &str) -> Hop {
    Hop::new(Transport::Udp, address.parse().expect("an address"))
}

fn start(world: &mut World) -> Vec<SentMessage> {
    world.wait(Duration::from_millis(1)).into_iter().map(|(_, sent)| sent).collect()
}

fn grant(register: &SentMessage) -> String {
    format!(
        "Contact: {};expires=600\r\n",
        register.header("Contact").expect("a contact").split(";expires").next().unwrap()
    )
}

//= rfc3261#10.2.4:one-call-id
#[test]
fn a_trunk_registers_renews_and_unregisters() {
    let mut world = registering(NextHop::Address(here(CARRIER)));
    let first = find(&start(&mut world), "REGISTER");
    assert_eq!((first.start(), first.to.to_string().as_str()), ("REGISTER sip:carrier.example SIP/2.0", CARRIER));
    assert_eq!(first.header("To"), Some("<sip:acct@carrier.example>"));
    let second = find(&world.respond(&first, 401, "t", BY_UA), "REGISTER");
    assert!(is_proved(&second, "Authorization"), "{}", second.text);
    assert!(world.respond(&second, 200, "t", &grant(&second)).is_empty());
    let renewal: Vec<_> =
        world.wait(Duration::from_secs(541)).into_iter().filter(|(_, s)| s.method() == "REGISTER").collect();
    assert!((300_000..=540_000).contains(&renewal[0].0), "{}", renewal[0].0);
    let renewal = renewal[0].1.clone();
    assert_eq!(renewal.header("Call-ID"), first.header("Call-ID"));
    world.respond(&renewal, 200, "t", &grant(&renewal));
    world.snapshot.is_draining = true;
    let last = world.give(Input::Config(Arc::new(world.snapshot.clone())));
    let last = find(&last, "REGISTER");
    assert!(last.text.contains("expires=0") || last.header("Expires") == Some("0"), "{}", last.text);
    world.respond(&last, 200, "t", "");
    assert!(world.settle().is_empty(), "and never again");
}

//= rfc3261#8.1.3.3:several-vias
#[test]
fn a_response_with_a_further_via_is_dropped() {
    let mut world = registering(NextHop::Address(here(CARRIER)));
    let first = find(&start(&mut world), "REGISTER");
    let via = format!("Via: {}\r\n", first.header("Via").expect("ours"));
    let text = first.response(403, "Forbidden", ";tag=t", "");
    let two = text.replace(&via, &format!("{via}Via: SIP/2.0/UDP 192.0.2.77;branch=z9hG4bKx\r\n"));
    assert!(world.input_by(first.flow, &two).is_empty());
    assert_eq!(world.shard.counters().stray_responses, 1);
    let second = find(&world.respond(&first, 401, "t", BY_UA), "REGISTER");
    assert!(is_proved(&second, "Authorization"), "it still waited");
}

//= rfc3261#8.1.2:dns
//= rfc3261#8.1.2:tries-each-address
#[test]
fn a_named_registrar_fails_over_to_its_second_server() {
    let question = LocateQuery::new(b"carrier.example", None, None, false);
    let mut world = registering(NextHop::Name(question.clone()));
    assert!(start(&mut world).is_empty());
    assert_eq!(world.questions[0].1, question);
    let candidate = |(place, address): (u16, &str)| Candidate {
        rank: 1,
        priority: place,
        weight: 0,
        hops: [here(address)].into_iter().collect(),
    };
    let answer = Ok(Arc::new(CandidateList::new([(1, CARRIER), (2, SECOND)].map(candidate).to_vec())));
    let first = find(&world.resolve(answer), "REGISTER");
    assert_eq!(first.to.to_string(), CARRIER);
    let sent = world.give(Input::Unreachable { peer: CARRIER.parse().expect("an address") });
    let second = find(&sent, "REGISTER");
    assert_eq!(second.to.to_string(), SECOND);
    world.respond(&second, 200, "t", &grant(&second));
    let mut later: Vec<_> = world.wait(Duration::from_secs(541)).into_iter().map(|(_, sent)| sent).collect();
    later.retain(|sent| sent.method() == "REGISTER");
    //= rfc3261#10.2.4:same-address
    assert_eq!(later[0].to.to_string(), SECOND, "and renewed where it is known");
    assert!(
        destinations(&later, "REGISTER").contains(&CARRIER.to_owned()),
        "which is silent now, so the first is tried"
    );
    assert!(!world.questions.is_empty(), "the name has grown old meanwhile, and is asked for again");
}

/// Returns a trunk that registers by name with two servers, and its first REGISTER.
fn registering_at_two_servers() -> (World, SentMessage) {
    let mut world = registering(NextHop::Name(LocateQuery::new(b"carrier.example", None, None, false)));
    assert!(start(&mut world).is_empty());
    let candidate = |(priority, address): (u16, &str)| Candidate {
        rank: 1,
        priority,
        weight: 0,
        hops: [here(address)].into_iter().collect(),
    };
    let servers = [(1, CARRIER), (2, SECOND)].map(candidate).to_vec();
    let first = find(&world.resolve(Ok(Arc::new(CandidateList::new(servers)))), "REGISTER");
    assert_eq!(first.to.to_string(), CARRIER);
    (world, first)
}

//= rfc3263#4.3
#[test]
fn a_registrar_that_is_out_of_service_is_followed_by_the_next() {
    let (mut world, first) = registering_at_two_servers();
    let second = find(&world.respond(&first, 503, "t", "Retry-After: 120\r\n"), "REGISTER");
    assert_eq!(second.to.to_string(), SECOND, "at once, whatever the first asks for");
    world.respond(&second, 200, "t", &grant(&second));
    assert!(world.wait(Duration::from_secs(200)).is_empty(), "it is registered");
}

//= rfc3263#4.3
#[test]
fn only_after_the_last_registrar_is_out_of_service_the_trunk_waits() {
    let (mut world, first) = registering_at_two_servers();
    let second = find(&world.respond(&first, 503, "t", ""), "REGISTER");
    assert!(world.respond(&second, 503, "t", "Retry-After: 300\r\n").is_empty(), "both have been tried");
    let again: Vec<_> = world.wait(Duration::from_secs(601)).into_iter().collect();
    let (at, third) = again.iter().find(|(_, sent)| sent.method() == "REGISTER").expect("it goes on trying");
    assert!(*at >= 300_000, "too soon: {at} ms");
    // Any other refusal is the trunk's word, not one server's.
    assert!(world.respond(third, 403, "t", "").is_empty());
}

fn trunk_record(world: &World) -> strowger_calls::CallRecord {
    let record = |event: &Event| if let Event::Call(record) = event { Some((**record).clone()) } else { None };
    let records: Vec<_> = world.events.iter().filter_map(record).collect();
    assert_eq!(records.len(), 1, "one record a call");
    records[0].clone()
}

#[test]
fn a_record_names_the_trunk_that_answers_or_refuses_and_the_number_as_sent() {
    for status in [200, 404, 503] {
        let mut world = world(|snapshot| {
            snapshot.track_calls = true;
            let rewrite = NumberRewrite { strip: 2, prefix: (*b"+").into(), e164: None };
            snapshot.routes = vec![Route { rewrite: Some(rewrite), ..to_carrier(&[CARRIER, SECOND]) }];
        });
        let first = find(&world.input(ALICE, &request("INVITE", NUMBER, "inv", "")), "INVITE");
        let sent = find(&world.respond(&first, 503, "t", ""), "INVITE");
        let answer = world.respond(&sent, status, "t", "Contact: <sip:carrier@203.0.113.2>\r\n");
        if status == 200 {
            let route = format!("Route: {}\r\n", answer[0].header("Record-Route").expect("recorded"));
            let bye = request("BYE", "sip:carrier@203.0.113.2", "bye", &route).replace("CSeq: 1", "CSeq: 2");
            world.input(ALICE, &bye.replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=t"));
        }
        world.settle();
        let record = trunk_record(&world);
        let trunks = record.trunks.as_deref().expect("it was a trunk's");
        assert_eq!((trunks.source.as_deref(), trunks.target.as_deref()), (None, Some("carrier")), "{status}");
        assert_eq!(trunks.target_uri.as_deref(), Some(&b"sip:+49301234@203.0.113.2:5060"[..]), "{status}");
        assert_eq!(record.callee(), NUMBER.as_bytes());
        assert_eq!(record.target, Some(SECOND.parse().expect("an address")), "{status}");
    }
}

#[test]
fn call_setup_is_timed_by_the_trunk_that_decides() {
    let mut world = world(|snapshot| {
        snapshot.track_calls = true;
        snapshot.routes = vec![to_carrier(&[CARRIER, SECOND])];
    });
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    for (number, uri, status) in [(1, NUMBER, 200), (2, NUMBER, 486), (3, "sip:bob@example.com", 486)] {
        let text = request("INVITE", uri, &format!("inv{number}"), "").replace("call-1@", &format!("call-{number}@"));
        let sent = find(&world.input(ALICE, &text), "INVITE");
        world.wait(Duration::from_secs(1));
        world.respond(&sent, 180, "t", "");
        world.wait(Duration::from_secs(1));
        world.respond(&sent, status, "t", "Contact: <sip:x@203.0.113.1>\r\n");
    }
    let mut all = Vec::new();
    world.shard.for_each_setup(|to, times| {
        let sums = [times.ringing, times.answered, times.rejected, times.cancelled].map(|times| times.sum().as_secs());
        all.push((to.trunk, to.target, sums));
    });
    assert_eq!(all, [(Some(Trunk::id_of("carrier")), None, [2, 2, 2, 0])], "a user's phone is no destination");
    let mut responses = Vec::new();
    world.shard.for_each_response_time(|to, times| responses.push((to.trunk, to.target, *times)));
    let [(trunk, None, times)] = responses.as_slice() else { panic!("{responses:?}") };
    assert_eq!(*trunk, Some(Trunk::id_of("carrier")));
    assert_eq!(
        (times.counts().iter().sum::<u64>(), times.sum()),
        (2, Duration::from_secs(2)),
        "the 180s, not the rest"
    );
}

#[test]
fn a_record_names_the_trunk_that_called() {
    let mut world = world(|snapshot| snapshot.track_calls = true);
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let text = request("INVITE", "sip:bob@example.com", "a", "").replace(ALICE, CARRIER);
    let sent = find(&world.input(CARRIER, &text), "INVITE");
    world.respond(&sent, 486, "t", "");
    world.settle();
    let record = trunk_record(&world);
    let trunks = record.trunks.as_deref().expect("it was a trunk's");
    assert_eq!((trunks.source.as_deref(), trunks.target.as_deref()), (Some("carrier"), None));
    assert_eq!(trunks.target_uri, None, "a contact is no number");
    assert_eq!(record.target, Some(BOB.parse().expect("an address")), "the phone that was busy");
}

#[test]
fn a_call_without_a_trunk_or_a_rewrite_stores_none() {
    let mut world = world(|snapshot| snapshot.track_calls = true);
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let sent = find(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "a", "")), "INVITE");
    world.respond(&sent, 486, "t", "");
    world.settle();
    assert_eq!(trunk_record(&world).trunks, None);
}

#[test]
fn only_the_first_shard_registers() {
    let first = registering(NextHop::Address(here(CARRIER)));
    let mut second = Shard::new(ShardConfig {
        id: ShardId(1),
        now: Timestamp::ZERO,
        seed: 1,
        ring: KeyRing::new(TagKey::new([7; 16])),
        locations: Arc::new(Locations::new(2, 1)),
        nonces: Arc::new(NonceWindows::new(2, 1)),
        names: Arc::clone(&first.names),
        outages: Arc::new(Outages::new(1)),
        proven: Arc::new(ProvenSources::new(1)),
        shedding: Arc::default(),
        neighbours: Arc::new(Neighbours::new(1)),
        snapshot: Arc::new(first.snapshot.clone()),
    });
    assert!(first.shard.poll_timeout().is_some() && second.poll_timeout().is_none());
    second.handle_timeout(first.now);
    assert!(second.poll_output(&mut Vec::new()).is_none());
}

#[test]
fn a_removed_trunk_is_unregistered() {
    let mut world = registering(NextHop::Address(here(CARRIER)));
    let sent = start(&mut world);
    assert_eq!(sent.len(), 1);
    world.snapshot.trunks = Vec::new();
    world.respond(&sent[0], 200, "t", &grant(&sent[0]));
    let left = world.give(Input::Config(Arc::new(world.snapshot.clone())));
    world.respond(&find(&left, "REGISTER"), 200, "t", "");
    assert!(world.settle().is_empty());
}

#[test]
fn a_changed_trunk_password_reregisters_without_unregistering() {
    let mut world = registering(NextHop::Address(here(CARRIER)));
    let first = find(&start(&mut world), "REGISTER");
    world.respond(&first, 200, "t", &grant(&first));
    let mut changed = Trunk::clone(&trunk(Some(NextHop::Address(here(CARRIER)))));
    changed.credentials.as_mut().expect("some").password = Secret::new(&b"other"[..]);
    world.snapshot.trunks = vec![Arc::new(changed)];
    let mut sent = world.give(Input::Config(Arc::new(world.snapshot.clone())));
    sent.extend(start(&mut world));
    let again: Vec<_> = sent.iter().filter(|sent| sent.method() == "REGISTER").collect();
    assert_eq!(again.len(), 1, "{:?}", summary(&sent));
    assert_eq!((again[0].header("Contact"), again[0].header("CSeq")), (first.header("Contact"), first.header("CSeq")));
    assert_ne!(again[0].header("Call-ID"), first.header("Call-ID"), "a registrar takes no CSeq twice of one Call-ID");
    world.respond(again[0], 200, "t", &grant(again[0]));
    // Removed and added again: a new registration.
    world.snapshot.trunks = Vec::new();
    let left = find(&world.give(Input::Config(Arc::new(world.snapshot.clone()))), "REGISTER");
    world.respond(&left, 200, "t", "");
    world.snapshot.trunks = vec![trunk(Some(NextHop::Address(here(CARRIER))))];
    world.give(Input::Config(Arc::new(world.snapshot.clone())));
    let third = find(&start(&mut world), "REGISTER");
    assert!([&first, again[0]].iter().all(|earlier| earlier.header("Call-ID") != third.header("Call-ID")));
}

#[test]
fn a_registrars_unreachable_servers_are_skipped() {
    let question = LocateQuery::new(b"carrier.example", None, None, false);
    let mut world = registering(NextHop::Name(question));
    start(&mut world);
    let candidate = |(priority, transport): (u16, Transport)| Candidate {
        rank: 1,
        priority,
        weight: 0,
        hops: [Hop { transport, ..here(SECOND) }].into_iter().collect(),
    };
    let servers = [(1, Transport::Tcp), (2, Transport::Tls), (3, Transport::Tcp), (4, Transport::Udp)];
    let sent = world.resolve(Ok(Arc::new(CandidateList::new(servers.map(candidate).to_vec()))));
    assert_eq!(find(&sent, "REGISTER").flow.transport, Transport::Udp);
}

#[test]
fn another_process_goes_on_with_a_registration_and_this_one_leaves_it_alone() {
    let mut old = registering(NextHop::Address(here(CARRIER)));
    let first = find(&start(&mut old), "REGISTER");
    old.respond(&first, 200, "t", &grant(&first));
    old.wait(Duration::from_secs(100));
    let mut state = Vec::new();
    old.shard.export_state(&mut state);
    let mut new = registering(NextHop::Address(here(CARRIER)));
    new.now = old.now;
    assert_eq!(new.shard.import_state(new.now, &state).map(|imported| imported.registrations), Ok(1));
    assert!(new.drain().is_empty());
    let status = |world: &World| {
        let mut all = Vec::new();
        world.shard.for_each_trunk_registration(world.now, |name, status| all.push((name.to_owned(), status)));
        all
    };
    assert_eq!(status(&old), status(&new));
    old.give(Input::HandedOver);

    let sent = new.wait(Duration::from_secs(441));
    let (at, renewal) = sent.iter().find(|(_, sent)| sent.method() == "REGISTER").expect("it is renewed");
    assert!((200_000..=440_000).contains(at), "{at}");
    assert_eq!((renewal.header("CSeq"), renewal.header("Call-ID")), (Some("2 REGISTER"), first.header("Call-ID")));
    assert!(old.reconfigure(|snapshot| snapshot.is_draining = true).is_empty(), "the carrier keeps its binding");
    assert!(old.wait(Duration::from_secs(3600)).is_empty());
    assert!(old.reconfigure(|snapshot| snapshot.is_draining = false).is_empty());
}
