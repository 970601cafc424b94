//! Calls that the operator ends: what both parties get, and what is left.

mod support;

use std::sync::Arc;
use std::time::Duration;

use strowger_auth::Network;
use strowger_calls::{CallRecord, Reason};
use strowger_proxy::Stateless;
use strowger_shard::{Action, Event, Input, Route, RouteMatch, RouteTarget, Snapshot};
use strowger_trunk::{Credentials, Secret, Trunk};
use support::{ALICE, BOB, SERVER, SentMessage, World, destinations, finals, find, request, summary};

const CALL_ID: &str = "call-1@alice";
const CARRIER: &str = "203.0.113.1:5060";

fn world_with(edit: impl FnOnce(&mut Snapshot)) -> World {
    let mut world = World::new(|snapshot| {
        snapshot.track_calls = true;
        edit(snapshot);
    });
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    world
}

fn world() -> World {
    world_with(|_| {})
}

fn end(world: &mut World) -> Vec<SentMessage> {
    world.give(Input::EndCall { call_id: CALL_ID.as_bytes() })
}

fn invite(world: &mut World) -> SentMessage {
    find(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", "")), "INVITE")
}

/// Alice calls Bob, who answers.
fn connect(world: &mut World) {
    let invite = invite(world);
    world.respond(&invite, 180, "b", "");
    assert_eq!(finals(&world.respond(&invite, 200, "b", &format!("Contact: <sip:bob@{BOB};ob>\r\n"))), [200]);
    world.wait(Duration::from_secs(10));
}

/// Returns the BYEs to Alice and Bob.
fn byes(sent: &[SentMessage], of: [&str; 2]) -> [SentMessage; 2] {
    assert_eq!(sent.len(), 2, "{:?}", summary(sent));
    of.map(|peer| sent.iter().find(|sent| sent.method() == "BYE" && sent.to.to_string() == peer).expect(peer).clone())
}

#[track_caller]
fn record(world: &World) -> CallRecord {
    let record = |event: &Event| if let Event::Call(record) = event { Some((**record).clone()) } else { None };
    let records: Vec<_> = world.events.iter().filter_map(record).collect();
    assert_eq!(records.len(), 1, "one record a call");
    records[0].clone()
}

fn failures(world: &World) -> Vec<(&'static str, Option<u16>)> {
    let failure = |event: &Event| match event {
        Event::CallNotEnded { party, status, call_id } => {
            assert_eq!(call_id, CALL_ID);
            Some((*party, status.map(strowger_message::Status::code)))
        }
        _ => None,
    };
    world.events.iter().filter_map(failure).collect()
}

//= rfc3261#12.2.1.1
//= rfc3261#15.1.1
#[test]
fn both_parties_of_an_answered_call_get_a_bye_that_looks_like_the_others() {
    let mut world = world();
    connect(&mut world);
    let [alice, bob] = byes(&end(&mut world), [ALICE, BOB]);
    assert_eq!(alice.start(), format!("BYE sip:alice@{ALICE} SIP/2.0"));
    assert_eq!(bob.start(), format!("BYE sip:bob@{BOB};ob SIP/2.0"));
    assert_eq!((alice.header("From"), alice.header("To")), (bob.header("To"), bob.header("From")));
    assert_eq!(bob.header("From"), Some("<sip:alice@example.com>;tag=a"));
    assert_eq!(bob.header("To"), Some("<sip:bob@example.com>;tag=b"));
    for bye in [&alice, &bob] {
        assert_eq!(bye.header("Call-ID"), Some(CALL_ID));
        let cseq = bye.header("CSeq").and_then(|cseq| cseq.strip_suffix(" BYE")).expect("a CSeq");
        assert!((1_000_000..1 << 31).contains(&cseq.parse::<u64>().expect("a number")), "{cseq}");
        assert_eq!(
            (bye.headers("Via").count(), bye.header("Route"), bye.header("Content-Length")),
            (1, None, Some("0"))
        );
        assert!(bye.header("Via").is_some_and(|via| via.contains(SERVER)), "{}", bye.text);
        assert_eq!(bye.header("Reason"), Some("Q.850;cause=16;text=\"Ended by operator\""));
    }
    assert!(world.events.is_empty(), "the parties have not responded");
    assert!(end(&mut world).is_empty(), "once is enough");
    world.respond(&alice, 200, "", "");
    assert!(world.events.is_empty(), "one party has not responded");
    world.respond(&bob, 481, "", "");
    let record = record(&world);
    assert_eq!((record.reason, record.status), (Reason::EndedByOperator, Some(200)));
    assert_eq!(record.ended.saturating_since(record.answered.expect("answered")).as_secs(), 10);
    assert!(failures(&world).is_empty(), "a party that does not know the call has none");
    assert!(world.settle().is_empty());
}

#[test]
fn an_unknown_call_id_ends_nothing() {
    let mut world = world();
    connect(&mut world);
    assert!(world.give(Input::EndCall { call_id: b"another" }).is_empty());
    assert!(World::new(|_| {}).give(Input::EndCall { call_id: b"untracked" }).is_empty());
    assert!(world.events.is_empty());
}

#[test]
fn a_ringing_call_is_cancelled_and_its_caller_gets_a_final_response() {
    for is_ringing in [true, false] {
        let mut world = world();
        let invite = invite(&mut world);
        if is_ringing {
            world.respond(&invite, 180, "b", "");
        }
        let mut sent = end(&mut world);
        if !is_ringing {
            assert!(sent.is_empty(), "no CANCEL before a provisional response (RFC 3261 9.1)");
            sent = world.respond(&invite, 180, "b", "");
        }
        let cancel = find(&sent, "CANCEL");
        world.respond(&cancel, 200, "", "");
        assert_eq!(finals(&world.respond(&invite, 487, "b", "")), [487]);
        assert_eq!((record(&world).reason, record(&world).status), (Reason::EndedByOperator, Some(487)));
        world.settle();
    }
}

#[test]
fn a_call_that_is_answered_while_it_is_cancelled_gets_its_byes() {
    let mut world = world();
    let invite = invite(&mut world);
    world.respond(&invite, 180, "b", "");
    find(&end(&mut world), "CANCEL");
    let sent = world.respond(&invite, 200, "b", &format!("Contact: <sip:bob@{BOB}>\r\n"));
    assert_eq!(finals(&sent), [200], "the caller learns of the dialog first");
    let both: Vec<_> = sent.into_iter().filter(|sent| sent.method() == "BYE").collect();
    byes(&both, [ALICE, BOB]).iter().for_each(|bye| drop(world.respond(bye, 200, "", "")));
    assert_eq!(record(&world).reason, Reason::EndedByOperator);
    world.settle();
}

#[test]
fn a_party_that_refuses_or_is_silent_is_reported_and_the_call_is_over() {
    let mut world = world();
    connect(&mut world);
    let [alice, _] = byes(&end(&mut world), [ALICE, BOB]);
    world.respond(&alice, 403, "", "");
    assert_eq!(failures(&world), [("caller", Some(403))]);
    world.settle();
    assert_eq!(failures(&world), [("caller", Some(403)), ("callee", None)]);
    assert_eq!(record(&world).reason, Reason::EndedByOperator);
}

#[test]
fn a_party_that_hangs_up_itself_makes_no_second_record() {
    let mut world = world();
    let invite = invite(&mut world);
    let answer = world.respond(&invite, 200, "b", &format!("Contact: <sip:bob@{BOB}>\r\n"));
    let route = answer[0].header("Record-Route").expect("recorded");
    let [to_alice, to_bob] = byes(&end(&mut world), [ALICE, BOB]);
    let bye = request("BYE", &format!("sip:bob@{BOB}"), "bye", &format!("Route: {route}\r\n"))
        .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b")
        .replace("CSeq: 1", "CSeq: 2");
    let own = find(&world.input(ALICE, &bye), "BYE");
    world.respond(&to_bob, 200, "", "");
    world.respond(&own, 481, "", "");
    world.respond(&to_alice, 481, "", "");
    assert_eq!(record(&world).reason, Reason::EndedByOperator);
    world.settle();
}

#[test]
fn proxies_on_both_sides_stay_in_the_path() {
    let mut world = world();
    let above = "198.51.100.1:5060";
    let via = format!("Record-Route: <sip:{above};lr>\r\nVia: SIP/2.0/UDP {above};branch=z9hG4bKabove\r\n");
    let text = request("INVITE", "sip:bob@example.com", "inv", "").replacen("Via:", &format!("{via}Via:"), 1);
    let invite = find(&world.input(above, &text), "INVITE");
    // A proxy between this server and Bob records itself too.
    let ours = invite.header("Record-Route").expect("ours").to_owned();
    let answer = invite.response(200, "OK", ";tag=b", "Contact: <sip:bob@10.0.0.1>\r\n");
    let answer = answer.replacen("Record-Route:", "Record-Route: <sip:198.51.100.2;lr>\r\nRecord-Route:", 1);
    assert!(answer.contains(&format!("198.51.100.2;lr>\r\nRecord-Route: {ours}")), "{answer}");
    assert_eq!(summary(&world.input(BOB, &answer)), [format!("200 {above}")]);
    let [alice, bob] = byes(&end(&mut world), [above, "198.51.100.2:5060"]);
    assert_eq!(alice.headers("Route").collect::<Vec<_>>(), [format!("<sip:{above};lr>")]);
    assert_eq!(alice.start(), format!("BYE sip:alice@{ALICE} SIP/2.0"));
    assert_eq!(bob.headers("Route").collect::<Vec<_>>(), ["<sip:198.51.100.2;lr>"]);
    assert_eq!(bob.start(), "BYE sip:bob@10.0.0.1 SIP/2.0");
    for bye in [alice, bob] {
        world.respond(&bye, 200, "", "");
    }
    assert_eq!(record(&world).reason, Reason::EndedByOperator);
    world.settle();
}

#[test]
fn phones_behind_nat_get_it_where_their_requests_come_from() {
    let mut world = world();
    let (alice, bob) = ("203.0.113.50:4321", "203.0.113.60:9876");
    world.register("bob", bob, "<sip:bob@192.168.1.2:5060>;expires=600");
    let sent = world.input(alice, &request("INVITE", "sip:bob@example.com", "inv", ""));
    let invite =
        sent.iter().find(|sent| sent.method() == "INVITE" && sent.to.to_string() == bob).expect("Bob's").clone();
    world.respond(&invite, 200, "b", "Contact: <sip:bob@192.168.1.2:5060>\r\n");
    let sent: Vec<_> = end(&mut world).into_iter().filter(|sent| sent.method() == "BYE").collect();
    for bye in byes(&sent, [alice, bob]) {
        world.respond(&bye, 200, "", "");
    }
    assert_eq!(record(&world).reason, Reason::EndedByOperator);
}

#[test]
fn a_trunks_challenge_is_answered() {
    let trunk = Trunk {
        name: "carrier".into(),
        credentials: Some(Credentials {
            username: (*b"acct").into(),
            password: Secret::new(&b"hush"[..]),
            realm: None,
        }),
        sources: vec![Network { address: "203.0.113.1".parse().expect("an address"), prefix: 32 }],
        domains: Vec::new(),
        account: None,
    };
    let mut world = world_with(|snapshot| {
        snapshot.trunks = vec![Arc::new(trunk)];
        let target = RouteTarget::at(format!("sip:{CARRIER}").as_bytes(), CARRIER.parse().expect("an address"));
        let action = Action::Proxy {
            targets: vec![target],
            stateless: Stateless::Never,
            trunk: Some(Trunk::id_of("carrier")),
            balance: None,
        };
        let matches = RouteMatch { prefixes: vec![(*b"00").into()], ..RouteMatch::default() };
        snapshot.routes = vec![Route::new(matches, action)];
    });
    let sent = world.input(ALICE, &request("INVITE", "sip:0049301@example.com", "inv", ""));
    world.respond(&find(&sent, "INVITE"), 200, "t", &format!("Contact: <sip:gw@{CARRIER}>\r\n"));
    let [alice, first] = byes(&end(&mut world), [ALICE, CARRIER]);
    world.respond(&alice, 200, "", "");
    let challenge = "Proxy-Authenticate: Digest realm=\"carrier\", nonce=\"n\", qop=\"auth\", algorithm=MD5\r\n";
    let second = find(&world.respond(&first, 407, "", challenge), "BYE");
    assert!(second.header("Proxy-Authorization").is_some_and(|value| value.contains("username=\"acct\"")));
    let cseq = |bye: &SentMessage| bye.header("CSeq").and_then(|cseq| cseq.split(' ').next()?.parse::<u32>().ok());
    assert!(cseq(&second) > cseq(&first), "a new request");
    world.respond(&second, 200, "", "");
    assert!(failures(&world).is_empty());
    assert_eq!(record(&world).reason, Reason::EndedByOperator);
    world.settle();
}

#[test]
fn without_a_record_route_only_the_tracking_ends() {
    let mut world = world_with(|snapshot| snapshot.proxy.record_route = false);
    let invite = invite(&mut world);
    world.respond(&invite, 200, "b", &format!("Contact: <sip:bob@{BOB}>\r\n"));
    let sent = end(&mut world);
    assert!(destinations(&sent, "BYE").is_empty(), "nobody knows its way");
    assert_eq!(failures(&world), [("caller", None), ("callee", None)]);
    assert_eq!(record(&world).reason, Reason::EndedByOperator);
    world.settle();
}
