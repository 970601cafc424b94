//! Listeners that come and go while the server runs.

mod support;

use strowger_foundation::{ConnId, Flow, ListenerId, Transport};
use strowger_message::Uri;
use strowger_shard::{Listener, ListenerState, Listeners};
use support::{ALICE, BOB, SERVER, SentMessage, World, find, request};

/// The address of the listener that comes and goes.
const OTHER: &str = "192.0.2.1:5070";
const PHONE: &str = "198.51.100.7:33000";

/// A server with a second listener, for `transport`.
fn world(transport: Transport) -> World {
    let mut world = World::new(|_| {});
    set(&mut world, transport, ListenerState::Open);
    world
}

/// Sets the state of the second listener.
fn set(world: &mut World, transport: Transport, state: ListenerState) {
    let address = |text: &str| text.parse().expect("an address");
    let other = Listener::new(transport, address(OTHER)).with_state(state);
    world.locations.set_listeners([
        (Transport::Udp, address(SERVER), true),
        (transport, address(OTHER), state == ListenerState::Open),
    ]);
    let listeners = vec![Listener::new(Transport::Udp, address(SERVER)), other];
    world.configure(|snapshot| snapshot.listeners = Listeners::new(listeners));
}

fn at(listener: u16, peer: &str) -> Flow {
    Flow::new(ListenerId(listener), Transport::Udp, peer.parse().expect("an address"))
}

/// Bob registers over `flow`, with a Via that says so if there is a NAT.
fn register(world: &mut World, flow: Flow, via: &str) {
    let transport = flow.transport;
    let text = format!(
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/{transport} {via};branch=z9hG4bKr\r\nMax-Forwards: 70\r\n\
         From: <sip:bob@example.com>;tag=r\r\nTo: <sip:bob@example.com>\r\nCall-ID: r\r\nCSeq: 1 REGISTER\r\n\
         Contact: <sip:bob@{via};transport={transport}>\r\nContent-Length: 0\r\n\r\n"
    );
    assert_eq!(world.input_by(flow, &text).remove(0).status(), 200);
}

/// Alice calls Bob over the second listener. Returns the INVITE that reaches him.
fn call(world: &mut World) -> SentMessage {
    find(&world.input_by(at(1, ALICE), &request("INVITE", "sip:bob@example.com", "inv", "")), "INVITE")
}

/// Bob hangs up, over the first listener. Returns what is sent.
fn hang_up(world: &mut World, invite: &SentMessage) -> Vec<SentMessage> {
    hang_up_from(world, at(0, BOB), invite)
}

fn hang_up_from(world: &mut World, flow: Flow, invite: &SentMessage) -> Vec<SentMessage> {
    let routes: String = invite.headers("Record-Route").map(|route| format!("Route: {route}\r\n")).collect();
    let from = invite.header("To").expect("callee").to_owned() + ";tag=b";
    let to = invite.header("From").expect("caller").to_owned();
    let text = format!(
        "BYE sip:alice@{ALICE} SIP/2.0\r\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bKbye\r\nMax-Forwards: 70\r\nFrom: {from}\r\n\
         To: {to}\r\nCall-ID: {}\r\nCSeq: 9 BYE\r\n{routes}Content-Length: 0\r\n\r\n",
        invite.header("Call-ID").expect("a call")
    );
    world.input_by(flow, &text)
}

#[test]
fn a_draining_listener_answers_what_is_in_progress() {
    let mut world = world(Transport::Udp);
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let invite = call(&mut world);
    set(&mut world, Transport::Udp, ListenerState::Draining);
    let ringing = world.respond(&invite, 180, "b", "");
    assert_eq!((ringing[0].status(), ringing[0].flow.listener), (180, ListenerId(1)), "the caller knows this address");
    let answer = world.respond(&invite, 200, "b", &format!("Contact: <sip:bob@{BOB}>\r\n"));
    assert_eq!((answer[0].status(), answer[0].flow.listener), (200, ListenerId(1)));
}

#[test]
fn a_call_ends_after_its_listener_has_closed() {
    let mut world = world(Transport::Udp);
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let invite = call(&mut world);
    world.respond(&invite, 200, "b", &format!("Contact: <sip:bob@{BOB}>\r\n"));
    set(&mut world, Transport::Udp, ListenerState::Draining);
    set(&mut world, Transport::Udp, ListenerState::Closed);
    // The Route names the closed address too, which is still recognized.
    let bye = find(&hang_up(&mut world, &invite), "BYE");
    assert_eq!((bye.to.to_string(), bye.flow.listener), (ALICE.to_owned(), ListenerId(0)), "{}", bye.text);
    assert_eq!(bye.header("Route"), None, "{}", bye.text);
}

#[test]
fn nothing_begins_on_a_listener_that_is_not_open() {
    for state in [ListenerState::Opening, ListenerState::Draining, ListenerState::Closed] {
        let mut world = world(Transport::Udp);
        // Bob has registered there, without a NAT.
        register(&mut world, at(1, BOB), BOB);
        set(&mut world, Transport::Udp, state);
        let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""));
        assert_eq!(find(&sent, "INVITE").flow, at(0, BOB), "{state:?}");
        set(&mut world, Transport::Udp, ListenerState::Open);
        let again = request("INVITE", "sip:bob@example.com", "again", "").replace("Call-ID: ", "Call-ID: again-");
        assert_eq!(find(&world.input(ALICE, &again), "INVITE").flow, at(1, BOB), "{state:?}");
    }
}

#[test]
fn a_phone_behind_a_nat_is_reached_while_its_listener_has_a_socket() {
    let mut world = world(Transport::Udp);
    register(&mut world, at(1, PHONE), "10.0.0.20:5060");
    set(&mut world, Transport::Udp, ListenerState::Draining);
    let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""));
    assert_eq!(find(&sent, "INVITE").flow, at(1, PHONE));
    set(&mut world, Transport::Udp, ListenerState::Closed);
    let again = request("INVITE", "sip:bob@example.com", "again", "").replace("Call-ID: ", "Call-ID: again-");
    let sent = world.input(ALICE, &again);
    assert_eq!(
        sent.iter().map(SentMessage::status).collect::<Vec<_>>(),
        [480],
        "through another socket it would not pass"
    );
}

#[test]
fn the_last_listener_of_a_transport_carries_its_calls_while_it_drains() {
    let address = |text: &str| text.parse().expect("an address");
    let mut world = World::listening(&["TCP"], |_| {});
    let set = |world: &mut World, state| {
        let udp = Listener::new(Transport::Udp, address(OTHER)).with_state(state);
        let tcp = Listener::new(Transport::Tcp, address(SERVER));
        world.configure(|snapshot| snapshot.listeners = Listeners::new(vec![tcp, udp]));
    };
    set(&mut world, ListenerState::Open);
    register(&mut world, at(1, BOB), BOB);
    let invite = call(&mut world);
    world.respond(&invite, 200, "b", &format!("Contact: <sip:bob@{BOB}>\r\n"));
    set(&mut world, ListenerState::Draining);
    let bye = find(&hang_up_from(&mut world, at(1, BOB), &invite), "BYE");
    assert_eq!(bye.flow, at(1, ALICE));
}

#[test]
fn connections_outlive_their_listener() {
    let mut world = world(Transport::Tcp);
    let peer = PHONE.parse().expect("an address");
    let flow = Flow::on_connection(ListenerId(1), Transport::Tcp, peer, ConnId::new(0, 3, 1));
    register(&mut world, flow, "10.0.0.20:5060");
    set(&mut world, Transport::Tcp, ListenerState::Closed);
    let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""));
    let invite = find(&sent, "INVITE");
    assert_eq!((invite.flow.connection, invite.flow.listener), (flow.connection, ListenerId(1)));
    assert_eq!(world.respond(&invite, 200, "b", "")[0].status(), 200);
}

#[test]
fn a_closed_address_may_be_another_programs() {
    let mut world = world(Transport::Udp);
    let text = format!("sip:bob@{OTHER}");
    let is_ours = |world: &World| {
        let uri = Uri::parse(text.as_bytes()).expect("a URI");
        world.snapshot.addressed_domain(uri.sip().expect("sip")).is_some()
    };
    assert!(is_ours(&world));
    set(&mut world, Transport::Udp, ListenerState::Draining);
    assert!(is_ours(&world), "its socket is still there");
    set(&mut world, Transport::Udp, ListenerState::Closed);
    assert!(!is_ours(&world));
}
