//! The server as the edge of another registrar, and as the registrar behind other edges (RFC 3327, RFC 5626).

mod support;

use strowger_foundation::{ConnId, Flow, ListenerId, Transport};
use strowger_proxy::Stateless;
use strowger_shard::{Action, Input, Route, RouteTarget, Snapshot};
use support::{ALICE, BOB, SERVER, SentMessage, World, destinations, finals, find, request, summary};

const HOME: &str = "203.0.113.1:5060";
const PHONE: &str = "198.51.100.7:33000";

fn world(edit: impl FnOnce(&mut Snapshot)) -> World {
    World::listening(&["UDP", "TCP"], |snapshot| {
        snapshot.proxy.outbound = true;
        let home = RouteTarget::at(b"sip:203.0.113.1", HOME.parse().expect("an address"));
        snapshot.routes = vec![Route::of_domain(b"home.example", Action::proxy(vec![home], Stateless::Never))];
        edit(snapshot);
    })
}

fn connection() -> Flow {
    Flow::on_connection(ListenerId(1), Transport::Tcp, PHONE.parse().expect("an address"), ConnId::new(0, 3, 1))
}

/// Returns the forwarded REGISTER of a phone behind this server.
fn registered(world: &mut World, flow: Flow, extra: &str) -> SentMessage {
    let text = format!(
        "REGISTER sip:home.example SIP/2.0\r\nVia: SIP/2.0/{} 10.0.0.20:5060;branch=z9hG4bKr{}\r\nMax-Forwards: 70\r\n\
         From: <sip:bob@home.example>;tag=r\r\nTo: <sip:bob@home.example>\r\nCall-ID: r\r\nCSeq: 1 REGISTER\r\n{extra}\
         Contact: <sip:bob@10.0.0.20>\r\nContent-Length: 0\r\n\r\n",
        flow.transport,
        extra.len()
    );
    let sent = find(&world.input_by(flow, &text), "REGISTER");
    assert_eq!(sent.to.to_string(), HOME);
    world.respond(&sent, 200, "t", "");
    sent
}

/// Sends an INVITE from the home registrar to the phone, by this Route.
fn from_home(world: &mut World, route: &str, branch: &str) -> Vec<SentMessage> {
    let text = request("INVITE", "sip:bob@10.0.0.20", branch, &format!("Route: {route}\r\n")).replace(ALICE, HOME);
    world.input(HOME, &text)
}

fn status(sent: &[SentMessage]) -> u16 {
    sent.iter().map(SentMessage::status).find(|status| *status >= 200).unwrap_or(0)
}

//= rfc5626#5.1:path
//= rfc5626#5.1:token
//= rfc5626#5.1:token-unique
//= rfc5626#5.1:ob
#[test]
fn our_path_leads_back_to_the_flow() {
    for (flow, supported, flags) in [
        (connection(), "Supported: path, outbound\r\n", ";transport=tcp;lr;ob>"),
        (connection(), "", ";transport=tcp;lr>"),
        (
            Flow::new(ListenerId(0), Transport::Udp, PHONE.parse().expect("an address")),
            "Supported: outbound\r\n",
            ";lr;ob>",
        ),
    ] {
        let mut world = world(|snapshot| snapshot.auth.require = vec![(*b"INVITE").into()]);
        let path = registered(&mut world, flow, supported).header("Path").expect("a Path").to_owned();
        assert!(path.starts_with("<sip:") && path.ends_with(&format!("@{SERVER}{flags}")), "{path}");
        let sent = from_home(&mut world, &path, "in");
        let invite = find(&sent, "INVITE");
        assert_eq!((invite.flow, invite.header("Route")), (flow, None));
        assert_eq!(invite.start(), "INVITE sip:bob@10.0.0.20 SIP/2.0");
        let answer = world.respond(&invite, 200, "b", "Contact: <sip:bob@10.0.0.20>\r\n");
        let mut routes: Vec<_> =
            answer[0].headers("Record-Route").flat_map(|value| value.split(", ")).map(str::to_owned).collect();
        routes.reverse();
        let ack = request("ACK", "sip:bob@10.0.0.20", "ack", &format!("Route: {}\r\n", routes.join(", ")))
            .replace(ALICE, HOME)
            .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b");
        assert_eq!(find(&world.input(HOME, &ack), "ACK").flow, flow, "the dialog stays on the flow");
        world.settle();
    }
}

//= rfc5626#5.1:no-ob
#[test]
fn a_path_behind_another_proxy_has_no_ob() {
    let mut world = world(|_| {});
    let extra = "Supported: outbound\r\nVia: SIP/2.0/UDP 10.9.9.9;branch=z9hG4bKother\r\n";
    let path = registered(&mut world, connection(), extra).header("Path").expect("a Path").to_owned();
    assert!(path.ends_with(";lr>"), "{path}");
}

#[test]
fn a_forged_token_is_refused() {
    let mut world = world(|_| {});
    let path = registered(&mut world, connection(), "").header("Path").expect("a Path").to_owned();
    let token = path.split(['@', ':']).nth(1).expect("a token").to_owned();
    let mut forged = token.clone().into_bytes();
    forged[12] = if forged[12] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).expect("ASCII");
    for (number, other) in [&*forged, "bob", "", "%00%ff", "====", &"A".repeat(200)].into_iter().enumerate() {
        let route = if other.is_empty() { format!("<sip:{SERVER};lr>") } else { path.replace(&token, other) };
        let sent = from_home(&mut world, &route, &format!("f{number}"));
        assert_eq!((destinations(&sent, "INVITE").len(), status(&sent)), (0, 404), "{route}");
    }
    world.wait(std::time::Duration::from_secs(100));
    assert_eq!(world.shard.contexts(), 0);
}

//= rfc5626#5.3.1:dead-flow
#[test]
fn a_dead_flow_gets_430() {
    let mut world = world(|_| {});
    let path = registered(&mut world, connection(), "").header("Path").expect("a Path").to_owned();
    let invite = find(&from_home(&mut world, &path, "a"), "INVITE");
    assert_eq!(status(&world.give(Input::ConnectFailed { flow: invite.flow })), 430);
    let invite = find(&from_home(&mut world, &path, "b"), "INVITE");
    let closed = Input::Closed { connection: connection().connection.expect("a stream"), peer: invite.to };
    assert_eq!(status(&world.give(closed)), 430);
    world.settle();
}

#[test]
fn a_flow_token_does_not_replace_authentication() {
    let mut world = world(|snapshot| snapshot.auth.require = vec![(*b"INVITE").into()]);
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let phone = Flow::new(ListenerId(0), Transport::Udp, ALICE.parse().expect("an address"));
    let path = registered(&mut world, phone, "").header("Path").expect("a Path").to_owned();
    let text = request("INVITE", "sip:bob@example.com", "a", &format!("Route: {path}\r\n"));
    assert_eq!(finals(&world.input(ALICE, &text)), [407]);
    let detour = format!("Route: {path}, <sip:203.0.113.9;lr>\r\n");
    let elsewhere = request("INVITE", "sip:bob@example.com", "b", &detour);
    let sent = world.input(BOB, &elsewhere);
    assert_eq!(destinations(&sent, "INVITE"), [""; 0], "nor does another's lead anywhere but to its flow: {sent:?}");
    world.wait(std::time::Duration::from_secs(100));
}

//= rfc5626#6:path
#[test]
fn another_proxys_path_becomes_its_route() {
    let mut world = World::new(|_| {});
    let edge = "<sip:token@203.0.113.7;lr;ob>";
    let text = |path: &str, number: u32| {
        format!(
            "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP 203.0.113.7;branch=z9hG4bKe{number}\r\n\
             Via: SIP/2.0/UDP 10.0.0.20;branch=z9hG4bKp\r\nMax-Forwards: 70\r\nFrom: <sip:bob@example.com>;tag=r\r\n\
             To: <sip:bob@example.com>\r\nCall-ID: r\r\nCSeq: {number} REGISTER\r\nSupported: path\r\nPath: {path}\r\n\
             Contact: <sip:bob@10.0.0.20>\r\nContent-Length: 0\r\n\r\n"
        )
    };
    let sent = world.input("203.0.113.7:5060", &text(&format!("{edge}, <sip:203.0.113.8;lr>"), 1));
    assert_eq!(sent[0].status(), 200);
    let invite = find(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "a", "")), "INVITE");
    assert_eq!(invite.to.to_string(), "203.0.113.7:5060");
    assert_eq!(invite.start(), "INVITE sip:bob@10.0.0.20 SIP/2.0");
    let routes: Vec<_> =
        invite.headers("Route").flat_map(|value| value.split(", ").flat_map(|v| v.split(','))).collect();
    assert_eq!(routes, [edge, "<sip:203.0.113.8;lr>"]);
    world.respond(&invite, 430, "b", "");
    for (number, garbage) in [
        "<<<",
        "<sip:;lr>",
        "\"",
        "<sip:x@255.255.255.255;lr>",
        "<tel:1>",
        "sip:a b c",
        "<sip:nobody@192.0.2.1:5060;lr>",
        ",",
    ]
    .into_iter()
    .enumerate()
    {
        let number = u32::try_from(number).expect("few") + 2;
        let sent = world.input("203.0.113.7:5060", &text(garbage, number));
        assert!([200, 400].contains(&sent[0].status()), "{garbage}: {}", sent[0].start());
        let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", &format!("g{number}"), ""));
        assert_ne!(summary(&sent), [""; 0], "{garbage}");
        for invite in sent.iter().filter(|sent| sent.method() == "INVITE") {
            world.respond(invite, 486, "b", "");
        }
    }
    world.wait(std::time::Duration::from_secs(40));
    assert_eq!((world.shard.transactions(), world.shard.contexts()), (0, 0));
}

#[test]
fn garbage_in_our_route_is_refused() {
    let mut world = world(|_| {});
    for (number, parameter) in [
        "dlg=",
        "dlg=====",
        "dlg=AAAAAAAAAAAAAAAA;caller=AAAA",
        "caller=%%;callee=\"",
        "trunk=99999999999",
        "dlg;caller;callee",
    ]
    .into_iter()
    .enumerate()
    {
        let route = format!("Route: <sip:{SERVER};lr;{parameter}>\r\n");
        for (uri, tag) in [("sip:x@198.51.100.1", ";tag=z"), ("sip:x@198.51.100.1", "")] {
            let text = request("BYE", uri, &format!("g{number}{}", tag.len()), &route)
                .replace("To: <sip:bob@example.com>", &format!("To: <sip:bob@example.com>{tag}"));
            let sent = world.input(ALICE, &text);
            assert!([400, 404].contains(&status(&sent)), "{parameter}: {:?}", summary(&sent));
        }
    }
    world.settle();
}
