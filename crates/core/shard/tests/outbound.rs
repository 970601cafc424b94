//! Flows registered by phones (RFC 5626), intermediate proxies (RFC 3327) and Service-Route (RFC 3608), as a phone
//! sees them.

mod support;

use std::time::Duration;

use strowger_foundation::{ConnId, Flow, ListenerId, Transport};
use strowger_shard::{Input, Snapshot};
use support::{ALICE, BOB, BOB2, SentMessage, World, destinations, finals, find, request, summary};

const DESK: &str = "+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-AABBCCDDEEFF>\"";
const OUTBOUND: &str = "Supported: path, outbound";
const PEER: &str = "198.51.100.7:33000";

fn world(edit: impl FnOnce(&mut Snapshot)) -> World {
    World::listening(&["UDP", "TCP"], edit)
}

fn over(slot: u32, peer: &str) -> Flow {
    Flow::on_connection(ListenerId(1), Transport::Tcp, peer.parse().expect("an address"), ConnId::new(0, slot, 1))
}

fn datagrams(peer: &str) -> Flow {
    Flow::new(ListenerId(0), Transport::Udp, peer.parse().expect("an address"))
}

/// Registers for Bob; `lines` may begin with further Vias.
fn register(world: &mut World, flow: Flow, call: (&str, u32), lines: &[&str]) -> SentMessage {
    let (call_id, cseq) = call;
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let text = format!(
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/{} 10.0.0.20:5060;branch=z9hG4bK{call_id}{cseq}\r\n{lines}\
         Max-Forwards: 70\r\nFrom: <sip:bob@example.com>;tag=r\r\nTo: <sip:bob@example.com>\r\nCall-ID: {call_id}\r\n\
         CSeq: {cseq} REGISTER\r\nContent-Length: 0\r\n\r\n",
        flow.transport
    );
    let mut sent = world.input_by(flow, &text);
    assert_eq!(sent.len(), 1, "{:?}", summary(&sent));
    sent.remove(0)
}

fn contact(uri: &str, reg_id: u32) -> String {
    format!("Contact: <{uri}>;{DESK};reg-id={reg_id}")
}

/// Calls Bob and returns the outputs except the 100.
fn call(world: &mut World, branch: &str) -> Vec<SentMessage> {
    let mut sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", branch, ""));
    sent.retain(|sent| sent.status() != 100);
    sent
}

//= rfc5626#6:first-hop
//= rfc5626#6:stored
//= rfc5626#6:require
//= rfc5626#6:flow-kept
//= rfc5626#7:same-flow
//= rfc3261#8.2.4:require
#[test]
fn a_registered_flow_is_confirmed_and_used() {
    let mut world = world(|_| {});
    let flow = over(1, PEER);
    let answer = register(&mut world, flow, ("a", 1), &[&contact("sip:bob@10.0.0.20;transport=tcp;ob", 1), OUTBOUND]);
    assert_eq!(answer.status(), 200, "{}", answer.text);
    assert_eq!(answer.header("Require"), Some("outbound"));
    assert_eq!(answer.header("Supported"), Some("outbound, path"));
    assert_eq!(answer.header("Flow-Timer"), Some("120"));
    let echo = format!("<sip:bob@10.0.0.20;transport=tcp;ob>;expires=3600;{DESK};reg-id=1");
    assert_eq!(answer.header("Contact"), Some(&*echo));
    let sent = call(&mut world, "one");
    assert_eq!(sent[0].start(), "INVITE sip:bob@10.0.0.20;transport=tcp;ob SIP/2.0");
    assert_eq!(sent[0].flow, flow);
    assert_eq!(sent.len(), 1);
}

#[test]
fn over_udp_no_flow_timer_is_sent() {
    let mut world = world(|_| {});
    let answer = register(&mut world, datagrams(PEER), ("a", 1), &[&contact("sip:bob@10.0.0.20", 1), OUTBOUND]);
    assert_eq!((answer.header("Require"), answer.header("Flow-Timer")), (Some("outbound"), None));
    assert_eq!(call(&mut world, "one")[0].to, PEER.parse().expect("an address"));
}

//= rfc5626#6:no-require
//= rfc3261#8.2.4:only-supported
//= rfc3261#8.2.4:baseline
#[test]
fn flows_are_confirmed_only_on_request() {
    let mut world = world(|_| {});
    for (cseq, lines) in [
        (1, &["Contact: <sip:bob@10.0.0.20>", OUTBOUND][..]),
        (2, &["Contact: <sip:bob@10.0.0.20>;reg-id=1", OUTBOUND]),
        (3, &[&contact("sip:bob@10.0.0.20", 1)]),
        (4, &[OUTBOUND]),
    ] {
        let answer = register(&mut world, over(1, PEER), ("a", cseq), lines);
        let told = (answer.status(), answer.header("Require"), answer.header("Flow-Timer"));
        assert_eq!(told, (200, None, None), "{lines:?}");
    }
}

//= rfc5626#7:invalidated
#[test]
fn a_cut_connection_makes_a_phone_unreachable_until_it_registers_again() {
    let mut world = world(|_| {});
    let flow = over(1, PEER);
    let lines: &[&str] = &[&contact("sip:bob@10.0.0.20;transport=tcp", 1), OUTBOUND];
    register(&mut world, flow, ("a", 1), lines);
    world.shard.handle_input(world.now, closed(flow));
    assert_eq!(world.locations.len(), 0);
    assert_eq!(summary(&call(&mut world, "gone")), [format!("404 {ALICE}")]);
    let again = over(2, "198.51.100.7:33001");
    register(&mut world, again, ("b", 1), lines);
    assert_eq!(call(&mut world, "back")[0].flow, again);
}

fn closed(flow: Flow) -> Input<'static> {
    Input::Closed { connection: flow.connection.expect("a stream"), peer: flow.peer }
}

#[test]
fn a_phone_with_a_listening_port_outlives_its_connection() {
    let mut world = world(|_| {});
    let flow = over(1, BOB);
    let text = "Contact: <sip:bob@192.0.2.20:5062;transport=tcp>";
    let answer = {
        let text = format!(
            "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/TCP 192.0.2.20:5062;branch=z9hG4bKx\r\nMax-Forwards: 70\r\n\
             From: <sip:bob@example.com>;tag=r\r\nTo: <sip:bob@example.com>\r\nCall-ID: x\r\nCSeq: 1 REGISTER\r\n{text}\r\n\
             Content-Length: 0\r\n\r\n"
        );
        world.input_by(flow, &text).remove(0)
    };
    assert_eq!(answer.status(), 200);
    world.shard.handle_input(world.now, closed(flow));
    assert_eq!(world.locations.len(), 1, "it can be reached without that connection");
    let sent = call(&mut world, "one");
    assert_eq!(sent[0].to, "192.0.2.20:5062".parse().expect("an address"));
    assert!(sent[0].flow.reopen || sent[0].flow.connection.is_none());
}

//= rfc5626#7:one-at-a-time
#[test]
fn a_phones_second_flow_rings_only_when_the_first_is_dead() {
    let mut world = world(|_| {});
    let (first, second) = (over(1, PEER), over(2, "198.51.100.7:33001"));
    register(&mut world, first, ("a", 1), &[&contact("sip:bob@10.0.0.20;transport=tcp", 1), OUTBOUND]);
    register(&mut world, second, ("b", 1), &[&contact("sip:bob@10.0.0.20;transport=tcp", 2), OUTBOUND]);
    let sent = call(&mut world, "one");
    assert_eq!(sent.iter().map(|sent| sent.flow).collect::<Vec<_>>(), [second], "the newest, and never both");
    let next = world.give(Input::ConnectFailed { flow: second });
    let next: Vec<_> = next.iter().filter(|sent| sent.method() == "INVITE").map(|sent| sent.flow).collect();
    assert_eq!(next, [first]);
}

//= rfc5626#7:answered
#[test]
fn an_answer_on_one_flow_counts_for_all() {
    for (status, told) in [(486, 486), (503, 500), (504, 504), (600, 600)] {
        let mut world = world(|_| {});
        for (reg_id, peer) in [(1, PEER), (2, "198.51.100.7:33001")] {
            let contact = contact("sip:bob@10.0.0.20;transport=tcp", reg_id);
            register(&mut world, over(reg_id, peer), (peer, 1), &[&contact, OUTBOUND]);
        }
        let invite = call(&mut world, "one").remove(0);
        let end = world.respond(&invite, status, "b", "");
        assert_eq!((destinations(&end, "INVITE").len(), finals(&end)), (0, vec![told]), "{status}");
        world.settle();
    }
}

//= rfc5626#7:430
#[test]
fn a_430_from_an_edge_tries_the_next_flow() {
    let mut world = world(|_| {});
    for (reg_id, edge) in [(1, "192.0.2.31:5060"), (2, "192.0.2.32:5060")] {
        let (path, contact) = (format!("Path: <sip:token@{edge};lr;ob>"), contact("sip:bob@10.0.0.20", reg_id));
        register(&mut world, datagrams(edge), (edge, 1), &[THROUGH, &path, &contact, OUTBOUND]);
    }
    let sent = call(&mut world, "one");
    assert_eq!(destinations(&sent, "INVITE"), ["192.0.2.32:5060"], "one at a time");
    let next = world.respond(&sent[0], 430, "e", "");
    assert_eq!(destinations(&next, "INVITE"), ["192.0.2.31:5060"]);
    let end = world.respond(&find(&next, "INVITE"), 430, "e", "");
    assert_eq!((destinations(&end, "INVITE").len(), finals(&end).len()), (0, 1));
    world.settle();
}

#[test]
fn a_refresh_with_a_new_uri_replaces_its_flow() {
    let mut world = world(|_| {});
    register(&mut world, over(1, PEER), ("a", 1), &[&contact("sip:bob@10.0.0.20:1111", 1), OUTBOUND]);
    let answer = register(&mut world, over(2, PEER), ("b", 1), &[&contact("sip:bob@10.0.0.20:2222", 1), OUTBOUND]);
    assert_eq!(answer.headers("Contact").count(), 1);
    assert!(answer.header("Contact").is_some_and(|contact| contact.contains(":2222")));
    assert_eq!(world.locations.len(), 1);
}

const THROUGH: &str = "Via: SIP/2.0/TCP 10.0.0.20:5060;branch=z9hG4bKphone";

//= rfc5626#6:first-hop
//= rfc5626#6:439
//= rfc5626#11.6:only-asked
#[test]
fn a_proxy_without_outbound_support_gives_439() {
    let mut world = world(|_| {});
    for (cseq, path) in
        [(1, "User-Agent: a phone"), (2, "Path: <sip:192.0.2.21;lr>"), (3, "Path: <sip:a;lr;ob>, <sip:b;lr>")]
    {
        let contact = contact("sip:bob@10.0.0.20", 1);
        let lines = [THROUGH, path, &contact, OUTBOUND];
        let answer = register(&mut world, datagrams(BOB2), ("a", cseq), &lines[..]);
        assert_eq!(answer.start(), "SIP/2.0 439 First Hop Lacks Outbound Support", "{path}");
        assert_eq!(world.locations.len(), 0);
    }
    let contact = contact("sip:bob@10.0.0.20", 1);
    let answer = register(&mut world, datagrams(BOB2), ("a", 4), &[THROUGH, &contact]);
    assert!(answer.header("Contact").is_some_and(|contact| !contact.contains("reg-id")), "it did not insist");
}

//= rfc5626#6:path
#[test]
fn calls_take_the_path_of_an_outbound_edge() {
    let mut world = world(|_| {});
    let path = "<sip:192.0.2.30:5060;lr>, <sip:token@192.0.2.21;lr;ob>";
    let (line, contact) = (format!("Path: {path}"), contact("sip:bob@10.0.0.20", 1));
    let answer = register(&mut world, datagrams(BOB2), ("a", 1), &[THROUGH, &line, &contact, OUTBOUND]);
    assert_eq!((answer.status(), answer.header("Path")), (200, Some(path)));
    assert_eq!(answer.header("Require"), Some("outbound"));
    assert_eq!(answer.header("Flow-Timer"), None, "the flow is the edge's to watch");
    let sent = call(&mut world, "one");
    assert_eq!(sent[0].start(), "INVITE sip:bob@10.0.0.20 SIP/2.0");
    assert_eq!(sent[0].to, "192.0.2.30:5060".parse().expect("an address"));
    assert_eq!(sent[0].headers("Route").collect::<Vec<_>>().join(", "), path);
}

//= rfc5626#11.6:only-asked
//= rfc3261#8.2.4:only-supported
#[test]
fn an_unsupported_path_is_used_but_not_echoed() {
    let mut world = world(|_| {});
    let lines = [THROUGH, "Path: <sip:192.0.2.30;lr>", "Contact: <sip:bob@10.0.0.20>"];
    let answer = register(&mut world, datagrams(BOB2), ("a", 1), &lines);
    assert_eq!((answer.status(), answer.header("Path")), (200, None));
    assert_eq!(call(&mut world, "one")[0].to, "192.0.2.30:5060".parse().expect("an address"));
    let bad =
        register(&mut world, datagrams(BOB2), ("a", 2), &[THROUGH, "Path: nonsense", "Contact: <sip:b@10.0.0.20>"]);
    assert_eq!(bad.start(), "SIP/2.0 400 Bad Path Header");
}

#[test]
fn our_own_path_entry_is_skipped() {
    let mut world = world(|_| {});
    let lines =
        [THROUGH, "Path: <sip:192.0.2.1:5060;lr>, <sip:192.0.2.30;lr>", "Contact: <sip:bob@10.0.0.20>", OUTBOUND];
    let answer = register(&mut world, datagrams(BOB2), ("a", 1), &lines);
    assert_eq!(answer.header("Path"), Some("<sip:192.0.2.1:5060;lr>, <sip:192.0.2.30;lr>"), "told as it came");
    let sent = call(&mut world, "one");
    assert_eq!(sent[0].to, "192.0.2.30:5060".parse().expect("an address"));
    assert_eq!(sent[0].header("Route"), Some("<sip:192.0.2.30;lr>"));
}

#[test]
fn registers_get_the_service_route() {
    let routes = ["<sip:192.0.2.1;lr>", "<sip:core.example.com;lr;x=1>"];
    let mut world = world(|s| s.registrar.service_route = routes.map(|r| r.as_bytes().into()).to_vec());
    for (cseq, line) in [(1, "Contact: <sip:bob@10.0.0.20>"), (2, "Expires: 60")] {
        let answer = register(&mut world, datagrams(BOB), ("a", cseq), &[line]);
        assert_eq!(answer.headers("Service-Route").collect::<Vec<_>>(), routes, "{line}");
    }
}

#[test]
fn supported_extensions_may_be_required() {
    let mut world = world(|_| {});
    let contact = contact("sip:bob@10.0.0.20", 1);
    let answer = register(
        &mut world,
        over(1, PEER),
        ("a", 1),
        &[&contact, OUTBOUND, "Require: Path, outbound", "Require: gruu"],
    );
    assert_eq!(answer.status(), 200);
    let answer =
        register(&mut world, over(1, PEER), ("a", 2), &[&contact, "Require: outbound, sec-agree", "Require: x"]);
    assert_eq!((answer.status(), answer.header("Unsupported")), (420, Some("sec-agree, x")));
}

#[test]
fn the_flow_timer_is_configurable() {
    let mut world = world(|s| s.registrar.flow_timer = Duration::from_secs(30));
    let answer = register(&mut world, over(1, PEER), ("a", 1), &[&contact("sip:bob@10.0.0.20", 1), OUTBOUND]);
    assert_eq!(answer.header("Flow-Timer"), Some("30"));
}
