//! Destinations of this machine: who is elsewhere must not name them, by a host name or within a call either, while
//! parties that are really here are reached.

mod support;

use std::sync::Arc;

use strowger_foundation::Transport;
use strowger_locate::{Candidate, CandidateList, Hop, LocateQuery, LocateResult};
use strowger_proxy::Stateless;
use strowger_registrar::{LocalContacts, Nat};
use strowger_shard::{Action, Event, Route, RouteTarget, Snapshot, TargetAddress};
use support::{ALICE, BOB, SERVER, SentMessage, World, destinations, finals, find, request, summary};

/// A service of this machine that is no phone.
const SERVICE: &str = "127.0.0.1:5038";
/// A party that is on this machine.
const HERE: &str = "127.0.0.1:5070";

fn located(addresses: &[&str]) -> LocateResult {
    let candidate = |(place, address): (usize, &&str)| Candidate {
        rank: 1,
        priority: u16::try_from(place).expect("few"),
        weight: 0,
        hops: [Hop::new(Transport::Udp, address.parse().expect("an address"))].into_iter().collect(),
    };
    Ok(Arc::new(CandidateList::new(addresses.iter().enumerate().map(candidate).collect())))
}

fn never(snapshot: &mut Snapshot) {
    snapshot.registrar.nat = Nat::Never;
}

/// A server that accepts them.
fn accepting(snapshot: &mut Snapshot) {
    never(snapshot);
    snapshot.registrar.local_contacts = LocalContacts::Accept;
}

type Change = fn(&mut Snapshot);

/// A server that guards its machine and one that does not, and whether it sends there.
const WAYS: [(Change, bool); 2] = [(never, false), (accepting, true)];

/// Returns how many destinations were refused, all named by this peer, and forgets them.
fn refused(world: &mut World, by: &str) -> u64 {
    let by = by.rsplit_once(':').map_or(by, |(ip, _)| ip);
    for event in world.events.drain(..) {
        if let Event::LocalDestination { by: named_by, address } = event {
            assert_eq!(named_by.to_string(), by, "{address}");
        }
    }
    world.shard.counters().local_destinations
}

fn call_bob(world: &mut World) -> Vec<SentMessage> {
    world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""))
}

#[test]
fn a_contact_whose_name_leads_here_is_not_called() {
    for address in [SERVICE, SERVER] {
        for (edit, is_called) in WAYS {
            let mut world = World::new(edit);
            assert_eq!(world.register("bob", BOB, "<sip:bob@phone.evil.example>").status(), 200);
            assert!(destinations(&call_bob(&mut world), "INVITE").is_empty(), "its name is looked up");
            let sent = world.resolve(located(&[address]));
            assert_eq!(destinations(&sent, "INVITE").len(), usize::from(is_called), "{address}");
            assert_eq!(refused(&mut world, BOB), u64::from(!is_called), "{address}");
            if !is_called {
                assert_eq!(finals(&sent), [403], "{address}");
                // Now the address is known.
                let again = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "again", ""));
                assert!(destinations(&again, "INVITE").is_empty());
                assert_eq!(refused(&mut world, BOB), 2);
            }
        }
    }
}

#[test]
fn other_addresses_of_a_name_are_tried() {
    let mut world = World::new(never);
    world.register("bob", BOB, "<sip:bob@phone.example>");
    call_bob(&mut world);
    let sent = world.resolve(located(&[SERVICE, BOB]));
    assert_eq!((destinations(&sent, "INVITE"), refused(&mut world, BOB)), (vec![BOB.to_owned()], 1));
}

#[test]
fn a_contact_at_a_domain_of_ours_leads_back_to_us() {
    let mut world = World::new(never);
    assert_eq!(world.register("bob", BOB, "<sip:carol@example.com>").status(), 200);
    call_bob(&mut world);
    let sent = world.resolve(located(&[SERVER]));
    assert_eq!(destinations(&sent, "INVITE"), [SERVER]);
    assert_eq!(refused(&mut world, BOB), 0);
}

#[test]
fn names_of_phones_on_this_machine_and_of_the_operator_are_called() {
    let mut world = World::new(never);
    assert_eq!(world.register("bob", "127.0.0.1:5062", "<sip:bob@phone.here>").status(), 200);
    call_bob(&mut world);
    assert_eq!(destinations(&world.resolve(located(&["127.0.0.1:5062"])), "INVITE"), ["127.0.0.1:5062"]);

    let address = TargetAddress::Name(LocateQuery::new(b"voicemail.here", None, None, false));
    let target = RouteTarget { uri: (*b"sip:voicemail.here").into(), address, priority: 1, weight: 1 };
    let mut world = World::new(|snapshot| {
        snapshot.routes = vec![Route::of_domain(b"*", Action::proxy(vec![target], Stateless::Never))];
    });
    world.input(ALICE, &request("INVITE", "sip:x@elsewhere.example", "inv", ""));
    assert_eq!(destinations(&world.resolve(located(&[HERE])), "INVITE"), [HERE]);
}

#[test]
fn a_path_whose_name_leads_here_is_not_followed() {
    let mut world = World::new(never);
    let text = format!(
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bKp\r\nMax-Forwards: 70\r\n\
         From: <sip:bob@example.com>;tag=r\r\nTo: <sip:bob@example.com>\r\nCall-ID: p\r\nCSeq: 1 REGISTER\r\n\
         Supported: path\r\nPath: <sip:edge.evil.example;lr>\r\nContact: <sip:bob@{BOB}>\r\nContent-Length: 0\r\n\r\n"
    );
    assert_eq!(summary(&world.input(BOB, &text)), [format!("200 {BOB}")]);
    call_bob(&mut world);
    let sent = world.resolve(located(&[SERVICE]));
    assert_eq!((finals(&sent), refused(&mut world, BOB)), (vec![403], 1));
}

#[test]
fn a_route_to_the_request_uri_does_not_lead_here() {
    let open = |snapshot: &mut Snapshot| {
        snapshot.routes = vec![Route::of_domain(b"*", Action::proxy(Vec::new(), Stateless::Never))];
    };
    let mut world = World::new(open);
    let sent = world.input(ALICE, &request("INVITE", &format!("sip:x@{SERVICE}"), "inv", ""));
    assert_eq!((finals(&sent), refused(&mut world, ALICE)), (vec![403], 1));
    let sent = world.input("127.0.0.1:5090", &request("INVITE", &format!("sip:x@{SERVICE}"), "here", ""));
    assert_eq!(destinations(&sent, "INVITE"), [SERVICE], "who is here may");
}

#[test]
fn a_redirection_whose_name_leads_here_is_not_followed() {
    let mut world = World::new(|snapshot| snapshot.proxy.recurse = true);
    world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
    let invite = find(&call_bob(&mut world), "INVITE");
    let sent = world.respond(&invite, 302, "t", "Contact: <sip:x@evil.example>\r\n");
    assert!(finals(&sent).is_empty(), "the name is looked up: {:?}", summary(&sent));
    let sent = world.resolve(located(&[SERVICE]));
    assert!(destinations(&sent, "INVITE").is_empty());
    assert_eq!(refused(&mut world, BOB), 1);
    // A literal one is counted too.
    let invite = find(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "two", "")), "INVITE");
    let sent = world.respond(&invite, 302, "t", &format!("Contact: <sip:x@{SERVICE}>\r\n"));
    assert!(destinations(&sent, "INVITE").is_empty());
    assert_eq!(refused(&mut world, BOB), 2);
}

/// Sends a request within a call of the parties with these tags.
fn within(from: &str, method: &str, uri: &str, tags: (&str, &str), users: (&str, &str), routes: &[String]) -> String {
    let hops = routes.len();
    let routes: String = routes.iter().map(|route| format!("Route: {route}\r\n")).collect();
    let ((from_tag, to_tag), (from_user, to_user)) = (tags, users);
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {from};branch=z9hG4bK{method}{}-{hops}\r\nMax-Forwards: 70\r\n\
         From: <sip:{from_user}@example.com>;tag={from_tag}\r\nTo: <sip:{to_user}@example.com>;tag={to_tag}\r\n\
         Call-ID: call-1@alice\r\nCSeq: 7 {method}\r\n{routes}Content-Length: 0\r\n\r\n",
        uri.len()
    )
}

/// Lets a caller's INVITE be answered; returns the Record-Routes.
fn answered(world: &mut World, invited: &[SentMessage]) -> Vec<String> {
    let invite = find(invited, "INVITE");
    let answer = world.respond(&invite, 200, "b", &format!("Contact: <sip:bob@{}>\r\n", invite.to));
    let answer = answer.iter().find(|sent| sent.status() == 200).expect("the answer");
    answer.headers("Record-Route").map(str::to_owned).collect()
}

#[test]
fn within_a_call_nobody_elsewhere_names_a_service_of_this_machine() {
    for (edit, is_sent) in WAYS {
        let mut world = World::new(edit);
        world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
        let invited = call_bob(&mut world);
        let route = answered(&mut world, &invited);
        let service = format!("sip:x@{SERVICE}");
        // By the Request-URI, by a further Route, and by the contact of who began the call.
        let further = [route.clone(), vec![format!("<sip:{SERVICE};lr>")]].concat();
        for (from, tags, uri, routes) in [
            (ALICE, ("a", "b"), service.as_str(), &route),
            (ALICE, ("a", "b"), "sip:bob@192.0.2.20:5060", &further),
            (BOB, ("b", "a"), service.as_str(), &route),
        ] {
            let users = if tags.0 == "a" { ("alice", "bob") } else { ("bob", "alice") };
            let sent = world.input(from, &within(from, "BYE", uri, tags, users, routes));
            assert_eq!(destinations(&sent, "BYE").len(), usize::from(is_sent), "{uri} {routes:?}");
            if !is_sent {
                assert_eq!(sent[0].start(), "SIP/2.0 403 Next Hop Leads To This Server");
            }
        }
        assert_eq!(world.shard.counters().local_destinations, if is_sent { 0 } else { 3 });
        // An ACK is never answered.
        let sent = world.input(ALICE, &within(ALICE, "ACK", &service, ("a", "b"), ("alice", "bob"), &route));
        assert_eq!(summary(&sent).len(), usize::from(is_sent));
        // What is elsewhere is reached as before.
        let bye = within(ALICE, "BYE", "sip:bob@192.0.2.20:5060", ("a", "b"), ("alice", "bob"), &route);
        assert_eq!(destinations(&world.input(ALICE, &bye), "BYE"), [BOB]);
    }
}

#[test]
fn a_configured_next_hop_on_this_machine_has_calls() {
    let target = RouteTarget::at(format!("sip:{HERE}").as_bytes(), HERE.parse().expect("an address"));
    let mut world = World::new(|snapshot| {
        snapshot.routes = vec![Route::of_domain(b"pbx.example", Action::proxy(vec![target], Stateless::Never))];
    });
    let invited = world.input(ALICE, &request("INVITE", "sip:x@pbx.example", "inv", ""));
    let route = answered(&mut world, &invited);
    let uri = format!("sip:bob@{HERE}");
    let bye = within(ALICE, "BYE", &uri, ("a", "b"), ("alice", "bob"), &route);
    assert_eq!(destinations(&world.input(ALICE, &bye), "BYE"), [HERE]);
    // Its own Record-Route leads there too.
    let further = [route.clone(), vec![format!("<sip:{HERE};lr>")]].concat();
    let info = within(ALICE, "INFO", "sip:bob@192.0.2.20:5060", ("a", "b"), ("alice", "bob"), &further);
    assert_eq!(destinations(&world.input(ALICE, &info), "INFO"), [HERE]);
    assert_eq!(world.shard.counters().local_destinations, 0);
}

#[test]
fn a_phone_on_this_machine_has_calls_with_phones_elsewhere() {
    let mut world = World::new(never);
    assert_eq!(world.register("bob", HERE, &format!("<sip:bob@{HERE}>")).status(), 200);
    let invited = call_bob(&mut world);
    assert_eq!(destinations(&invited, "INVITE"), [HERE]);
    let route = answered(&mut world, &invited);
    let uri = format!("sip:bob@{HERE}");
    let bye = within(ALICE, "BYE", &uri, ("a", "b"), ("alice", "bob"), &route);
    assert_eq!(destinations(&world.input(ALICE, &bye), "BYE"), [HERE]);
    let other = within(ALICE, "BYE", &format!("sip:bob@{SERVICE}"), ("a", "b"), ("alice", "bob"), &route);
    assert!(destinations(&world.input(ALICE, &other), "BYE").is_empty(), "only where the phone is");
}

#[test]
fn a_caller_on_this_machine_that_is_not_registered_is_hung_up_on() {
    let mut world = World::new(never);
    world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
    let invite = request("INVITE", "sip:bob@example.com", "inv", "").replace(ALICE, HERE);
    let sent = world.input(HERE, &invite);
    let route = answered(&mut world, &sent);
    let bye = within(BOB, "BYE", &format!("sip:alice@{HERE}"), ("b", "a"), ("bob", "alice"), &route);
    assert_eq!(destinations(&world.input(BOB, &bye), "BYE"), [HERE]);
    // The seal names one address, whatever the Request-URI says.
    let other = within(BOB, "INFO", &format!("sip:alice@{SERVICE}"), ("b", "a"), ("bob", "alice"), &route);
    assert_eq!(destinations(&world.input(BOB, &other), "INFO"), [HERE]);
    assert_eq!(world.shard.counters().local_destinations, 0);
}
