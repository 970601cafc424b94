//! Connections, large requests, and calls between transports and families.

mod support;

use strowger_foundation::{ConnId, Flow, ListenerId, Transport};
use strowger_proxy::Stateless;
use strowger_shard::{Action, Input, Route, RouteTarget, Snapshot, TargetAddress};
use support::{ALICE, BOB, SERVER, SentMessage, World, destinations, finals, find, request, summary};

const TRUNK: &str = "203.0.113.1:5060";
const PHONE: &str = "198.51.100.7:33000";
const BOB6: &str = "[2001:db8::20]:5060";

fn over(listener: u16, slot: u32, peer: &str) -> Flow {
    Flow::on_connection(
        ListenerId(listener),
        Transport::Tcp,
        peer.parse().expect("an address"),
        ConnId::new(0, slot, 1),
    )
}

fn to(listener: u16, transport: Transport, peer: &str) -> Flow {
    Flow::new(ListenerId(listener), transport, peer.parse().expect("an address"))
}

fn closed(flow: Flow) -> Input<'static> {
    Input::Closed { connection: flow.connection.expect("a stream"), peer: flow.peer }
}

fn by_tcp(text: &str) -> String {
    text.replace("SIP/2.0/UDP", "SIP/2.0/TCP")
}

fn register(world: &mut World, flow: Flow, via: &str, contact: &str) -> SentMessage {
    let text = format!(
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/{} {via};branch=z9hG4bKr\r\nMax-Forwards: 70\r\n\
         From: <sip:bob@example.com>;tag=r\r\nTo: <sip:bob@example.com>\r\nCall-ID: r\r\nCSeq: 1 REGISTER\r\n\
         Contact: {contact}\r\nContent-Length: 0\r\n\r\n",
        flow.transport
    );
    let sent = world.input_by(flow, &text).remove(0);
    assert_eq!(sent.status(), 200);
    sent
}

fn trunk(transport: Option<Transport>) -> impl FnOnce(&mut Snapshot) {
    move |snapshot| {
        let place = TargetAddress::Literal { address: TRUNK.parse().expect("an address"), transport };
        let target = RouteTarget { uri: (*b"sip:203.0.113.1").into(), address: place, priority: 1, weight: 1 };
        snapshot.routes = vec![Route::of_domain(b"*", Action::proxy(vec![target], Stateless::Never))];
    }
}

fn large(method: &str) -> String {
    request(method, "sip:x@elsewhere.example", "inv", &format!("Subject: {}\r\n", "x".repeat(1300)))
}

//= rfc3261#18.1.1:large-by-stream
//= rfc3261#18.1.1:via-of-transport
//= rfc3261#18.1.1:back-to-datagram
//= rfc3261#16.6:record-route-transport
#[test]
fn a_request_too_large_for_udp_goes_over_tcp() {
    for method in ["INVITE", "MESSAGE"] {
        let mut world = World::listening(&["UDP", "TCP"], trunk(None));
        let sent = find(&world.input(ALICE, &large(method)), method);
        assert_eq!(sent.flow, to(1, Transport::Tcp, TRUNK));
        assert!(sent.header("Via").is_some_and(|via| via.starts_with("SIP/2.0/TCP ")), "{}", sent.text);
        if method == "INVITE" {
            let routes = sent.header("Record-Route").expect("recorded");
            assert!(routes.starts_with(&format!("<sip:{SERVER};transport=tcp;lr>, <sip:{SERVER};lr;dlg=")), "{routes}");
        }
        let refused = world.give(Input::ConnectFailed { flow: sent.flow });
        let datagram = find(&refused, method);
        assert_eq!(datagram.flow, to(0, Transport::Udp, TRUNK), "where nobody listens the datagram may do");
        assert!(datagram.header("Via").is_some_and(|via| via.starts_with("SIP/2.0/UDP ")));
        assert_eq!(finals(&world.respond(&datagram, 200, "x", "")), [200]);
        world.settle();
    }
}

#[test]
fn after_a_failed_connect_the_next_large_request_uses_udp() {
    let mut world = World::listening(&["UDP", "TCP"], trunk(None));
    let sent = find(&world.input(ALICE, &large("INVITE")), "INVITE");
    let datagram = find(&world.give(Input::ConnectFailed { flow: sent.flow }), "INVITE");
    world.respond(&datagram, 486, "x", "");
    let next = find(&world.input(ALICE, &large("INVITE").replace("z9hG4bKinv", "z9hG4bKtwo")), "INVITE");
    assert_eq!(next.flow.transport, Transport::Udp);
    world.respond(&next, 486, "x", "");
    world.settle();
}

#[test]
fn a_large_request_stays_on_udp_where_it_must() {
    let mut udp_only = World::new(trunk(None));
    assert_eq!(find(&udp_only.input(ALICE, &large("INVITE")), "INVITE").flow.transport, Transport::Udp);
    let mut named = World::listening(&["UDP", "TCP"], trunk(Some(Transport::Udp)));
    assert_eq!(find(&named.input(ALICE, &large("INVITE")), "INVITE").flow.transport, Transport::Udp);
    let mut world = World::listening(&["UDP", "TCP"], |_| {});
    register(&mut world, to(0, Transport::Udp, PHONE), "10.0.0.20:5060", "<sip:bob@10.0.0.20>");
    let text = large("INVITE").replace("sip:x@elsewhere.example", "sip:bob@example.com");
    assert_eq!(find(&world.input(ALICE, &text), "INVITE").flow, to(0, Transport::Udp, PHONE), "a registered flow");
    let small = request("INVITE", "sip:x@elsewhere.example", "inv", "");
    let mut world = World::listening(&["UDP", "TCP"], trunk(None));
    assert_eq!(find(&world.input(ALICE, &small), "INVITE").flow.transport, Transport::Udp);
}

//= rfc3261#18.2.2:same-connection
//= rfc3261#18.2.2:reopen
#[test]
fn responses_use_the_connection_of_their_request() {
    let mut world = World::listening(&["UDP", "TCP"], |_| {});
    register(&mut world, to(0, Transport::Udp, BOB), BOB, &format!("<sip:bob@{BOB}>"));
    let alice = over(1, 9, "192.0.2.10:41000");
    let sent = world.input_by(alice, &by_tcp(&request("INVITE", "sip:bob@example.com", "inv", "")));
    let back = Flow { reopen: true, peer: ALICE.parse().expect("an address"), ..alice };
    assert_eq!(sent[0].flow, back, "on it, or once it is closed to where Via says");
    let ringing = world.respond(&find(&sent, "INVITE"), 180, "b", "");
    assert_eq!(ringing[0].flow, back);
    let answered = world.respond(&find(&sent, "INVITE"), 200, "b", "");
    assert_eq!(answered[0].flow, back);
    world.settle();
}

/// A call from `caller`, with requests in both directions of its dialog.
fn call_between(world: &mut World, caller: Flow, text: &str, callee: Flow, contact: &str) {
    let invite = find(&world.input_by(caller, text), "INVITE");
    assert_eq!((invite.flow.listener, invite.flow.peer), (callee.listener, callee.peer));
    let at_callee: Vec<String> =
        invite.headers("Record-Route").flat_map(|v| v.split(", ")).map(str::to_owned).collect();
    assert_eq!(at_callee.len(), 2, "one for each side: {at_callee:?}");
    let answered = world.respond(&invite, 200, "b", &format!("Contact: <{contact}>\r\n"));
    let answer = answered.iter().find(|sent| sent.status() == 200).expect("answered");
    assert_eq!(answer.flow.connection, caller.connection);
    let mut at_caller: Vec<String> =
        answer.headers("Record-Route").flat_map(|v| v.split(", ")).map(str::to_owned).collect();
    assert_eq!(at_caller, at_callee);
    at_caller.reverse();
    // The caller sends ACK and BYE to the callee.
    for (method, cseq) in [("ACK", 1), ("UPDATE", 2)] {
        let text = text
            .replace("INVITE sip:bob@example.com", &format!("{method} {contact}"))
            .replace("1 INVITE", &format!("{cseq} {method}"))
            .replace("z9hG4bKinv", &format!("z9hG4bK{method}"))
            .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b")
            .replace("Max-Forwards", &format!("Route: {}\r\nMax-Forwards", at_caller.join(", ")));
        let sent = find(&world.input_by(caller, &text), method);
        assert_eq!((sent.flow.listener, sent.flow.peer, sent.header("Route")), (callee.listener, callee.peer, None));
        if method == "UPDATE" {
            let back = world.respond(&sent, 200, "", "");
            assert_eq!((back[0].status(), back[0].flow.connection), (200, caller.connection));
        }
    }
    // The callee sends BYE to the caller, whose address is in the INVITE's Contact.
    let target = invite.header("Contact").expect("a contact").trim_matches(['<', '>']).to_owned();
    let bye = format!(
        "BYE {target} SIP/2.0\r\nVia: SIP/2.0/{} {};branch=z9hG4bKbye\r\nMax-Forwards: 70\r\nRoute: {}\r\n\
         From: <sip:bob@example.com>;tag=b\r\nTo: <sip:alice@example.com>;tag=a\r\nCall-ID: call-1@alice\r\n\
         CSeq: 1 BYE\r\nContent-Length: 0\r\n\r\n",
        callee.transport,
        callee.peer,
        at_callee.join(", ")
    );
    let sent = find(&world.input_by(callee, &bye), "BYE");
    assert_eq!((sent.flow.listener, sent.flow.transport), (caller.listener, caller.transport));
    assert!(sent.flow.connection == caller.connection || sent.flow.peer == caller.peer, "{:?}", sent.flow);
    assert_eq!(sent.header("Route"), None);
    assert_eq!(world.respond(&sent, 200, "", "")[0].status(), 200);
    world.settle();
}

//= rfc3261#18.2.1:handed-out
#[test]
fn a_call_goes_from_tcp_to_udp() {
    let mut world = World::listening(&["UDP", "TCP"], |_| {});
    let bob = to(0, Transport::Udp, BOB);
    register(&mut world, bob, BOB, &format!("<sip:bob@{BOB}>"));
    let text = by_tcp(&request("INVITE", "sip:bob@example.com", "inv", ""))
        .replace("<sip:alice@192.0.2.10:5060>", "<sip:alice@192.0.2.10:5060;transport=tcp>");
    call_between(&mut world, over(1, 5, "192.0.2.10:41000"), &text, bob, &format!("sip:bob@{BOB}"));
}

#[test]
fn a_call_goes_from_udp_to_tcp() {
    let mut world = World::listening(&["UDP", "TCP"], |_| {});
    let bob = over(1, 6, PHONE);
    register(&mut world, bob, "10.0.0.20:5060", "<sip:bob@10.0.0.20;transport=tcp>");
    let text = request("INVITE", "sip:bob@example.com", "inv", "");
    call_between(&mut world, to(0, Transport::Udp, ALICE), &text, bob, "sip:bob@10.0.0.20;transport=tcp");
}

#[test]
fn a_call_goes_from_ipv6_to_ipv4_and_back() {
    let six = |text: String| text.replace(ALICE, BOB6);
    let mut world = World::listening(&["UDP", "UDP6"], |_| {});
    let bob = to(0, Transport::Udp, BOB);
    register(&mut world, bob, BOB, &format!("<sip:bob@{BOB}>"));
    let text = six(request("INVITE", "sip:bob@example.com", "inv", ""));
    call_between(&mut world, to(1, Transport::Udp, BOB6), &text, bob, &format!("sip:bob@{BOB}"));
    let mut world = World::listening(&["UDP", "UDP6"], |_| {});
    let bob = to(1, Transport::Udp, BOB6);
    register(&mut world, bob, BOB6, &format!("<sip:bob@{BOB6}>"));
    let text = request("INVITE", "sip:bob@example.com", "inv", "");
    call_between(&mut world, to(0, Transport::Udp, ALICE), &text, bob, &format!("sip:bob@{BOB6}"));
}

#[test]
fn same_transport_adds_one_record_route() {
    let mut world = World::listening(&["UDP", "TCP"], |_| {});
    register(&mut world, to(0, Transport::Udp, BOB), BOB, &format!("<sip:bob@{BOB}>"));
    let sent = find(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", "")), "INVITE");
    assert_eq!(sent.headers("Record-Route").flat_map(|value| value.split(", ")).count(), 1);
}

#[test]
fn a_phone_behind_nat_is_called_only_on_its_live_connection() {
    let mut world = World::listening(&["UDP", "TCP"], |_| {});
    let phone = over(1, 3, PHONE);
    register(&mut world, phone, "10.0.0.20:5060", "<sip:bob@10.0.0.20;transport=tcp>");
    let invite = find(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", "")), "INVITE");
    assert_eq!(invite.flow, phone);
    // There was no response yet, and there will be none.
    assert_eq!(finals(&world.give(closed(phone))), [480]);
    let next = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "two", ""));
    assert!(matches!(finals(&next)[..], [480 | 404]), "{:?}", summary(&next));
    world.settle();
}

#[test]
fn a_cut_connection_of_one_of_two_phones_does_not_end_the_call() {
    let mut world = World::listening(&["UDP", "TCP"], |_| {});
    let phone = over(1, 3, PHONE);
    register(&mut world, phone, "10.0.0.20:5060", "<sip:bob@10.0.0.20;transport=tcp>");
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""));
    assert_eq!(destinations(&sent, "INVITE").len(), 2);
    assert!(finals(&world.give(closed(phone))).is_empty());
    let other = sent.iter().find(|sent| sent.to.to_string() == BOB).expect("called").clone();
    assert_eq!(finals(&world.respond(&other, 200, "b", "")), [200]);
    world.settle();
}

#[test]
fn a_connectable_phone_is_called_on_its_connection_or_a_new_one() {
    let mut world = World::listening(&["UDP", "TCP"], |_| {});
    let phone = over(1, 3, "192.0.2.20:40123");
    register(&mut world, phone, "192.0.2.20:5070", "<sip:bob@192.0.2.20:5070;transport=tcp>");
    let invite = find(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", "")), "INVITE");
    assert!(invite.flow.reopen);
    assert_eq!((invite.flow.connection, invite.to.to_string()), (phone.connection, "192.0.2.20:5070".to_owned()));
    assert_eq!(finals(&world.give(Input::ConnectFailed { flow: invite.flow })), [480]);
    world.settle();
}

#[test]
fn a_request_on_a_reopenable_connection_is_resent_once() {
    let mut world = World::listening(&["UDP", "TCP"], |_| {});
    let phone = over(1, 3, "192.0.2.20:40123");
    register(&mut world, phone, "192.0.2.20:5070", "<sip:bob@192.0.2.20:5070;transport=tcp>");
    let first = find(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", "")), "INVITE");
    let again = find(&world.give(closed(phone)), "INVITE");
    assert_eq!((again.flow.connection, again.to.to_string()), (None, "192.0.2.20:5070".to_owned()));
    assert_eq!(again.header("Via"), first.header("Via"), "to who has read the first it is a retransmission");
    assert_eq!(finals(&world.give(Input::ConnectFailed { flow: again.flow })), [480], "and not after half a minute");
    world.settle();
}
