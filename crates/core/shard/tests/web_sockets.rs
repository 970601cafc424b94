//! Browsers: contacts under `invalid`, reached over their WebSockets only (RFC 7118).

mod support;

use strowger_foundation::{ConnId, Flow, ListenerId, Transport};
use strowger_proxy::Stateless;
use strowger_registrar::Nat;
use strowger_shard::{Action, Input, Route, RouteTarget};
use support::{ALICE, BOB, SERVER, SentMessage, World, finals, find, request};

const HOME: &str = "198.51.100.7:40001";

/// The connection of a browser to the listener 1.
fn browser(transport: Transport, slot: u32) -> Flow {
    let peer = HOME.parse().expect("an address");
    Flow::on_connection(ListenerId(1), transport, peer, ConnId::new(0, slot, 1))
}

fn closed(flow: Flow) -> Input<'static> {
    Input::Closed { connection: flow.connection.expect("a stream"), peer: flow.peer }
}

/// A request as a browser sends it: its host is a random name, and it has no Content-Length.
fn by_browser(text: &str, flow: Flow) -> String {
    let via = text.lines().find(|line| line.starts_with("Via: ")).expect("a Via");
    let branch = via.split_once(";branch=").expect("a branch").1;
    let own = format!("Via: SIP/2.0/{} df7jal23ls0d.invalid;branch={branch}", flow.transport);
    text.replace(via, &own).replace("Content-Length: 0\r\n", "")
}

/// The connection on which something is sent, and whether another may replace it.
fn way_of(sent: &SentMessage) -> (Option<ConnId>, bool) {
    way_of_flow(sent.flow)
}

fn way_of_flow(flow: Flow) -> (Option<ConnId>, bool) {
    (flow.connection, flow.reopen)
}

fn register(world: &mut World, flow: Flow, extra: &str) -> SentMessage {
    let text = format!(
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/{} df7jal23ls0d.invalid;branch=z9hG4bKr\r\n\
         Max-Forwards: 70\r\nFrom: <sip:bob@example.com>;tag=r\r\nTo: <sip:bob@example.com>\r\nCall-ID: r\r\n\
         CSeq: 1 REGISTER\r\nContact: <sip:bob@df7jal23ls0d.invalid;transport=ws>{extra}\r\n\r\n",
        flow.transport
    );
    let sent = world.input_by(flow, &text).remove(0);
    assert_eq!((sent.status(), way_of(&sent)), (200, way_of_flow(flow)), "{}", sent.text);
    sent
}

//= rfc7118#5
#[test]
fn a_browser_is_called_over_its_connection_only() {
    for (transport, name) in [(Transport::Ws, "WS"), (Transport::Wss, "WSS")] {
        for nat in [Nat::Auto, Nat::Never, Nat::Always] {
            let mut world = World::listening(&["UDP", name], |snapshot| {
                snapshot.registrar.nat = nat;
                snapshot.proxy.only_where_needed = true;
            });
            let flow = browser(transport, 4);
            register(&mut world, flow, "");
            let invite = find(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", "")), "INVITE");
            assert_eq!(invite.flow, flow);
            assert!(invite.start().starts_with("INVITE sip:bob@df7jal23ls0d.invalid;transport=ws "), "{}", invite.text);
            assert!(invite.header("Via").is_some_and(|via| via.starts_with(&format!("SIP/2.0/{name} "))));
            let routes: Vec<_> = invite.headers("Record-Route").flat_map(|value| value.split(", ")).collect();
            assert_eq!(routes.len(), 2, "one for each side, because it is needed: {routes:?}");
            assert!(routes[0].contains(";transport=ws;lr"), "{routes:?}");
            // After it closes there is no way to the browser, and nobody is to connect anywhere.
            let refused = world.give(closed(flow));
            assert_eq!(finals(&refused), [480]);
            world.settle();
            let late = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "two", ""));
            assert_eq!(finals(&late), [404], "the binding has ended with the connection");
            world.settle();
        }
    }
}

#[test]
fn requests_of_a_dialog_reach_both_ends() {
    let mut world = World::listening(&["UDP", "WSS"], |_| {});
    let flow = browser(Transport::Wss, 4);
    register(&mut world, flow, "");
    let invite = find(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", "")), "INVITE");
    let contact = "Contact: <sip:x7@df7jal23ls0d.invalid;transport=ws;ob>\r\n";
    let answered = world.respond(&invite, 200, "b", contact);
    assert_eq!(finals(&answered), [200]);
    let routes: Vec<_> = invite.headers("Record-Route").flat_map(|value| value.split(", ")).collect();
    let [first, second] = routes[..] else { panic!("{routes:?}") };
    let bye = |uri: &str, from: &str, to: &str, routes: [&str; 2]| {
        let text = request("BYE", uri, "bye", &format!("Route: {}, {}\r\n", routes[0], routes[1]));
        let field = |name: &str| invite.header(name).expect("a field").split(";tag").next().expect("text").to_owned();
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).expect("a line").to_owned();
        let (old_from, old_to, old_call) = (line("From: "), line("To: "), line("Call-ID: "));
        let (caller, callee) = (field("From"), field("To"));
        let (from_name, to_name) = if from == "b" { (callee, caller) } else { (caller, callee) };
        text.replace(&old_from, &format!("From: {from_name};tag={from}"))
            .replace(&old_to, &format!("To: {to_name};tag={to}"))
            .replace(&old_call, &format!("Call-ID: {}", invite.header("Call-ID").expect("a Call-ID")))
    };
    let tag = invite.header("From").and_then(|from| from.split_once(";tag=")).expect("a tag").1.to_owned();
    let from_alice = bye("sip:x7@df7jal23ls0d.invalid;transport=ws;ob", &tag, "b", [second, first]);
    let sent = find(&world.input(ALICE, &from_alice), "BYE");
    assert_eq!(sent.flow, flow, "the contact of the dialog names no reachable host");
    let from_bob = bye(&format!("sip:alice@{ALICE}"), "b", &tag, [first, second]).replace("bye", "byb");
    let sent = find(&world.input_by(flow, &by_browser(&from_bob, flow)), "BYE");
    assert_eq!((sent.flow.transport, sent.flow.peer), (Transport::Udp, ALICE.parse().expect("an address")));
    // The dialog's browser has gone.
    world.give(closed(flow));
    world.settle();
    let late = from_alice.replace("z9hG4bKbye", "z9hG4bKlate");
    let sent = world.input(ALICE, &late);
    let outcome = if finals(&sent).is_empty() { world.give(Input::ConnectFailed { flow }) } else { sent };
    assert_eq!(finals(&outcome), [430]);
}

//= rfc7118#5:reliable
#[test]
fn a_browser_calls_and_its_responses_use_its_connection() {
    let mut world = World::listening(&["UDP", "WS"], |_| {});
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let flow = browser(Transport::Ws, 9);
    let text = by_browser(&request("INVITE", "sip:bob@example.com", "inv", ""), flow);
    let sent = world.input_by(flow, &text);
    assert_eq!(way_of(&sent[0]), way_of_flow(flow), "nobody else can be asked to connect");
    let invite = find(&sent, "INVITE");
    assert_eq!(invite.flow.peer, BOB.parse().expect("an address"));
    assert_eq!(way_of(&world.respond(&invite, 180, "b", "")[0]), way_of_flow(flow));
    let later = world.wait(std::time::Duration::from_secs(5));
    assert!(later.is_empty(), "nothing is retransmitted to a browser: {}", later.len());
    let refused = world.respond(&invite, 486, "b", "");
    assert_eq!(way_of(refused.iter().find(|sent| sent.status() == 486).expect("sent")), way_of_flow(flow));
    world.settle();
}

#[test]
fn a_uri_with_transport_ws_is_no_address() {
    let mut world = World::listening(&["UDP", "WS"], |snapshot| snapshot.registrar.nat = Nat::Never);
    for uri in ["sip:x@198.51.100.7:40001;transport=ws", "sip:x@df7jal23ls0d.invalid;transport=ws"] {
        world.register("carol", BOB, &format!("<{uri}>"));
        let sent = world.input(ALICE, &request("INVITE", "sip:carol@example.com", uri.len().to_string().as_str(), ""));
        assert_eq!(finals(&sent), [480], "{uri}");
        assert!(sent.iter().all(|sent| sent.flow.transport == Transport::Udp), "no connection is opened: {uri}");
        world.settle();
    }
}

//= rfc7118#5
#[test]
fn a_registrar_behind_us_reaches_a_browser_over_its_connection() {
    const HOME_REGISTRAR: &str = "203.0.113.1:5060";
    for (transport, name) in [(Transport::Ws, "WS"), (Transport::Wss, "WSS")] {
        let mut world = World::listening(&["UDP", name], |snapshot| {
            let home = RouteTarget::at(b"sip:203.0.113.1", HOME_REGISTRAR.parse().expect("an address"));
            let action = Action::proxy(vec![home], Stateless::Never);
            snapshot.routes = vec![Route::of_domain(b"home.example", action)];
        });
        let flow = browser(transport, 4);
        let text = format!(
            "REGISTER sip:home.example SIP/2.0\r\nVia: SIP/2.0/{name} df7jal23ls0d.invalid;branch=z9hG4bKr\r\n\
             Max-Forwards: 70\r\nFrom: <sip:bob@home.example>;tag=r\r\nTo: <sip:bob@home.example>\r\nCall-ID: r\r\n\
             CSeq: 1 REGISTER\r\nContact: <sip:bob@df7jal23ls0d.invalid;transport=ws>\r\n\r\n"
        );
        let forwarded = find(&world.input_by(flow, &text), "REGISTER");
        assert_eq!(forwarded.to.to_string(), HOME_REGISTRAR);
        let path = forwarded.header("Path").expect("a way back").to_owned();
        assert!(path.ends_with(&format!("@{SERVER};lr>")), "an address that the registrar can reach: {path}");
        world.respond(&forwarded, 200, "t", "");
        let uri = "sip:bob@df7jal23ls0d.invalid;transport=ws";
        let call = request("INVITE", uri, "inv", &format!("Route: {path}\r\n")).replace(ALICE, HOME_REGISTRAR);
        let invite = find(&world.input(HOME_REGISTRAR, &call), "INVITE");
        assert_eq!((invite.flow, invite.header("Route")), (flow, None));
        world.respond(&invite, 486, "b", "");
        world.settle();
    }
    // Phones that others can reach get a Path only if the configuration says so.
    let mut world = World::listening(&["UDP", "WS"], |snapshot| {
        let home = RouteTarget::at(b"sip:203.0.113.1", HOME_REGISTRAR.parse().expect("an address"));
        snapshot.routes = vec![Route::of_domain(b"home.example", Action::proxy(vec![home], Stateless::Never))];
    });
    let register = request("REGISTER", "sip:home.example", "r", &format!("Contact: <sip:bob@{BOB}>\r\n"));
    assert_eq!(find(&world.input(BOB, &register), "REGISTER").header("Path"), None);
}

#[test]
fn a_connection_of_outbound_is_replaced_by_the_next() {
    let mut world = World::listening(&["UDP", "WSS"], |_| {});
    let instance = ";+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-000A95A0E128>\";reg-id=1";
    register(&mut world, browser(Transport::Wss, 4), instance);
    let again = browser(Transport::Wss, 5);
    let text = format!(
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/WSS abc.invalid;branch=z9hG4bKr2\r\nMax-Forwards: 70\r\n\
         From: <sip:bob@example.com>;tag=r\r\nTo: <sip:bob@example.com>\r\nCall-ID: r2\r\nCSeq: 1 REGISTER\r\n\
         Contact: <sip:bob@abc.invalid;transport=ws>{instance}\r\n\r\n"
    );
    assert_eq!(world.input_by(again, &text)[0].status(), 200);
    let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""));
    let flows: Vec<_> = sent.iter().filter(|sent| sent.start().starts_with("INVITE")).map(|sent| sent.flow).collect();
    assert_eq!(flows, [again], "the page was loaded again");
    world.settle();
}
