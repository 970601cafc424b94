//! Requirements of RFC 3261 §8, §10 and §16 that no other test looks at.

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use strowger_foundation::{ConnId, Flow, ListenerId, Transport};
use strowger_proxy::Stateless;
use strowger_registrar::{KeepAlive, LocalContacts, Nat};
use strowger_shard::{Action, Input, Route, RouteTarget, TargetAddress};
use support::{ALICE, BOB, BOB2, SERVER, SentMessage, World, finals, find, request, summary};

const ELSEWHERE: &str = "192.0.2.99:5060";

fn registered() -> World {
    let mut world = World::new(|_| {});
    world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
    world
}

fn invite(extra: &str) -> String {
    request("INVITE", "sip:bob@example.com", "inv", extra)
}

fn target(address: &str) -> RouteTarget {
    RouteTarget::at(format!("sip:{address}").as_bytes(), address.parse().expect("an address"))
}

fn routed(action: Action) -> World {
    World::new(|snapshot| snapshot.routes = vec![Route::of_domain(b"*", action)])
}

fn only(mut sent: Vec<SentMessage>) -> SentMessage {
    assert_eq!(sent.len(), 1, "{:?}", summary(&sent));
    sent.remove(0)
}

/// How Alice sends by `transport`, and its token.
fn caller_by(transport: Transport) -> (Flow, &'static str) {
    let caller = ALICE.parse().expect("an address");
    match transport {
        Transport::Tcp => (Flow::on_connection(ListenerId(1), transport, caller, ConnId::new(0, 9, 1)), "TCP"),
        _ => (Flow::new(ListenerId(0), transport, caller), "UDP"),
    }
}

fn options_of_its_own() -> Vec<SentMessage> {
    let mut world = World::new(|s| {
        s.registrar.keep_alive = KeepAlive::Options;
        s.registrar.nat = Nat::Always;
    });
    for (user, address) in [("bob", BOB), ("carol", BOB2)] {
        world.register(user, address, &format!("<sip:{user}@10.0.0.5:5060>"));
    }
    let sent: Vec<_> = world.wait(Duration::from_secs(120)).into_iter().map(|(_, sent)| sent).collect();
    assert!(sent.len() >= 4 && sent.iter().all(|sent| sent.method() == "OPTIONS"), "{:?}", summary(&sent));
    sent
}

//= rfc3261#8.1.1:mandatory-fields
//= rfc3261#8.1.1.1:request-uri-is-to
//= rfc3261#8.1.1.2:no-to-tag
//= rfc3261#8.1.1.3:from-tag
//= rfc3261#8.1.1.5:cseq-method
//= rfc3261#8.1.1.6:max-forwards
//= rfc3261#8.1.1.6:seventy
//= rfc3261#8.1.1.7:inserts-via
//= rfc3261#8.1.1.7:sip-2-0
//= rfc3261#8.1.1.7:branch
//= rfc3261#8.1.1.7:magic-cookie
#[test]
fn our_options_have_all_mandatory_headers() {
    for sent in options_of_its_own() {
        let field = |name| sent.header(name).unwrap_or_else(|| panic!("no {name}: {}", sent.text));
        let uri = sent.start().split(' ').nth(1).expect("a Request-URI").to_owned();
        assert_eq!(field("To"), format!("<{uri}>"), "without a tag");
        assert!(field("From").contains(";tag="));
        assert_eq!((field("CSeq"), field("Max-Forwards")), ("1 OPTIONS", "70"));
        assert!(!field("Call-ID").is_empty());
        assert!(field("Via").starts_with(&format!("SIP/2.0/UDP {SERVER};branch=z9hG4bK")), "{}", field("Via"));
    }
}

//= rfc3261#8.1.1.4:unique-call-id
//= rfc3261#8.1.1.7:unique-branch
#[test]
fn our_requests_have_unique_call_ids_and_branches() {
    let sent = options_of_its_own();
    for name in ["Call-ID", "Via"] {
        let values: BTreeSet<_> = sent.iter().filter_map(|sent| sent.header(name)).collect();
        assert_eq!(values.len(), sent.len(), "{name}");
    }
}

//= rfc3261#8.1.3.2:unknown-provisional
#[test]
fn an_unknown_provisional_counts_as_183() {
    let mut world = World::new(|s| s.proxy.ring_timeout = Duration::from_secs(30));
    world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
    let branch = find(&world.input(ALICE, &invite("")), "INVITE");
    assert_eq!(summary(&world.respond(&branch, 180, "b", "")), [format!("180 {ALICE}")]);
    world.wait(Duration::from_secs(20));
    assert_eq!(summary(&world.respond(&branch, 155, "b", "")), [format!("155 {ALICE}")]);
    assert!(world.wait(Duration::from_secs(20)).is_empty(), "Timer C begins anew");
}

//= rfc3261#8.2.1:405
//= rfc3261#8.2.1:allow
#[test]
fn an_unsupported_method_gets_405_with_allow() {
    let refused = only(World::new(|_| {}).input(ALICE, &request("MESSAGE", "sip:example.com", "m", "")));
    assert_eq!((refused.status(), refused.header("Allow")), (405, Some("OPTIONS, REGISTER")));
}

//= rfc3261#8.2.2:unknown-fields
//= rfc3261#8.2.2:malformed-fields
//= rfc3261#8.2.2.1:any-to
#[test]
fn irrelevant_headers_are_ignored() {
    let text = request("OPTIONS", "sip:example.com", "o", "X-New: ;;\"\r\nDate: yesterday\r\nReply-To: <<>\r\n")
        .replace("To: <sip:bob@example.com>", "To: <tel:+15550100>");
    assert_eq!(only(World::new(|_| {}).input(ALICE, &text)).status(), 200);
}

//= rfc3261#8.2.2.3:not-in-cancel-or-ack
#[test]
fn require_in_cancel_and_ack_is_ignored() {
    let require = "Require: foo\r\nProxy-Require: foo\r\n";
    let mut world = registered();
    world.input(ALICE, &invite(""));
    let cancelled = world.input(ALICE, &request("CANCEL", "sip:bob@example.com", "inv", require));
    assert_eq!(finals(&cancelled), [200]);
    let mut world = routed(Action::proxy(vec![target(BOB)], Stateless::Always));
    for (method, extra) in [("INVITE", ""), ("CANCEL", require), ("ACK", require)] {
        let sent = world.input(ALICE, &request(method, "sip:x@elsewhere.example", "inv", extra));
        assert_eq!(summary(&sent), [format!("{method} {BOB}")]);
    }
}

//= rfc3261#8.2.2.3:none-in-cancel
#[test]
fn our_cancel_and_ack_carry_no_require() {
    let mut world = registered();
    let branch = find(&world.input(ALICE, &invite("Require: 100rel\r\n")), "INVITE");
    assert_eq!(branch.header("Require"), Some("100rel"));
    world.respond(&branch, 180, "b", "");
    let cancel = find(&world.input(ALICE, &request("CANCEL", "sip:bob@example.com", "inv", "")), "CANCEL");
    let ack = find(&world.respond(&branch, 487, "b", ""), "ACK");
    for sent in [cancel, ack] {
        assert!(!sent.text.contains("Require"), "{}", sent.text);
    }
}

//= rfc3261#8.2.6.1:no-provisional
//= rfc3261#16.2:no-100-to-others
#[test]
fn only_an_invite_gets_100_trying() {
    for (flow, token) in [caller_by(Transport::Udp), caller_by(Transport::Tcp)] {
        let mut world = World::listening(&["UDP", "TCP"], |_| {});
        world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
        for (method, expected) in [("INVITE", 2), ("MESSAGE", 1), ("SUBSCRIBE", 1)] {
            let text =
                request(method, "sip:bob@example.com", method, "").replace("SIP/2.0/UDP", &format!("SIP/2.0/{token}"));
            let sent = world.input_by(flow, &text);
            assert_eq!(
                (sent.len(), sent.last().map(SentMessage::method)),
                (expected, Some(method)),
                "{:?}",
                summary(&sent)
            );
        }
    }
}

//= rfc3261#8.3:ignores-unknown
#[test]
fn a_redirection_ignores_require() {
    let mut world = routed(Action::Redirect { targets: vec![target(BOB)] });
    for (method, id) in [("INVITE", "inv"), ("NEWMETHOD", "new")] {
        let text = request(method, "sip:x@elsewhere.example", id, "Require: foo\r\nX-New: 1\r\n");
        assert_eq!(only(world.input(ALICE, &text)).status(), 302, "{method}");
    }
}

//= rfc3261#8.3:own-uri
#[test]
fn no_redirection_names_the_request_uri() {
    let contact = |uri: &str| RouteTarget { uri: uri.as_bytes().into(), ..target(BOB) };
    let same = "sip:%78@Elsewhere.Example";
    let mut world = routed(Action::Redirect { targets: vec![contact(same), contact("sip:y@elsewhere.example")] });
    let sent = only(world.input(ALICE, &request("INVITE", "sip:x@elsewhere.example", "one", "")));
    assert_eq!(sent.headers("Contact").collect::<Vec<_>>(), ["<sip:y@elsewhere.example>"]);
    let mut world = routed(Action::Redirect { targets: vec![contact(same)] });
    let sent = only(world.input(ALICE, &request("INVITE", "sip:x@elsewhere.example", "two", "")));
    assert_eq!((sent.status(), sent.header("Contact")), (404, None));
}

fn register(to: &str, extra: &str) -> String {
    request("REGISTER", "sip:example.com", "reg", &format!("Contact: <sip:bob@{BOB}>\r\n{extra}"))
        .replace(ALICE, BOB)
        .replace("To: <sip:bob@example.com>", &format!("To: <{to}>"))
        .replace(&format!("Contact: <sip:alice@{BOB}>\r\n"), "")
}

//= rfc3261#10.3:ignores-record-route
//= rfc3261#10.3:no-record-route
#[test]
fn the_registrar_ignores_record_route() {
    let mut world = World::new(|_| {});
    let answer = only(world.input(BOB, &register("sip:bob@example.com", "Record-Route: <sip:192.0.2.77;lr>\r\n")));
    assert_eq!((answer.status(), answer.header("Record-Route")), (200, None));
    let sent = find(&world.input(ALICE, &invite("")), "INVITE");
    assert_eq!((sent.to.to_string(), sent.header("Route")), (BOB.into(), None));
}

//= rfc3261#10.1:shared-data
//= rfc3261#10.3:canonical-form
//= rfc3261#10.3:without-parameters
//= rfc3261#10.3:unescaped
//= rfc3261#16.5:canonical-form
#[test]
fn addresses_of_record_are_canonical() {
    let mut world = World::new(|_| {});
    let to = "sip:%62ob@EXAMPLE.com;user=phone;x=1";
    assert_eq!(only(world.input(BOB, &register(to, ""))).status(), 200);
    for (number, uri) in
        ["sip:bob@example.com", "sip:b%6Fb@example.com", "sip:bob@Example.Com;user=phone"].into_iter().enumerate()
    {
        let sent = world.input(ALICE, &request("INVITE", uri, &format!("c{number}"), ""));
        assert_eq!(find(&sent, "INVITE").to.to_string(), BOB, "{uri}");
    }
}

//= rfc3261#16.3:merged-requests
#[test]
fn a_merged_request_is_forwarded_twice() {
    let mut world = registered();
    for branch in ["one", "two"] {
        let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", branch, ""));
        assert_eq!(summary(&sent), [format!("100 {ALICE}"), format!("INVITE {BOB}")]);
    }
}

//= rfc3261#16.3:ignores-others
//= rfc3261#16.3:unknown-methods
#[test]
fn unknown_methods_and_headers_pass_unchanged() {
    let mut world = registered();
    let lines = "Date: yesterday\r\nX-New:  ;;\"\r\nReply-To: <<>\r\n";
    let sent = only(world.input(ALICE, &request("NEWMETHOD", "sip:bob@example.com", "new", lines)));
    assert_eq!((sent.method(), sent.to.to_string()), ("NEWMETHOD", BOB.into()));
    assert!(sent.text.contains(lines), "{}", sent.text);
}

//= rfc3261#16.6:adds-max-forwards
//= rfc3261#16.6:seventy
#[test]
fn a_missing_max_forwards_becomes_70() {
    let text = invite("").replace("Max-Forwards: 70\r\n", "");
    let sent = find(&registered().input(ALICE, &text), "INVITE");
    assert_eq!(sent.headers("Max-Forwards").collect::<Vec<_>>(), ["70"]);
}

//= rfc3261#16.6:record-route
//= rfc3261#16.6:record-route-uri
//= rfc3261#16.6:record-route-lr
#[test]
fn our_record_route_precedes_the_others() {
    let other = "<sip:192.0.2.77;lr>";
    let route = format!("Route: <sip:{SERVER};lr>\r\nRecord-Route: {other}\r\n");
    let sent = find(&registered().input(ALICE, &invite(&route)), "INVITE");
    let recorded: Vec<_> = sent.headers("Record-Route").collect();
    assert!(recorded[0].starts_with(&format!("<sip:{SERVER};lr")), "{recorded:?}");
    assert_eq!(recorded[1..], [other]);
}

//= rfc3261#16.6:route-leads
//= rfc3261#16.4:own-route
#[test]
fn a_loose_route_keeps_the_request_uri() {
    let mut world = registered();
    let branch = find(&world.input(ALICE, &invite("")), "INVITE");
    let answer = world.respond(&branch, 200, "b", "");
    let ours = answer[0].header("Record-Route").expect("recorded").to_owned();
    let text = request("BYE", "sip:bob@192.0.2.20:5060", "bye", &format!("Route: {ours}, <sip:192.0.2.98;lr>\r\n"))
        .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b");
    let sent = only(world.input(ALICE, &text));
    assert_eq!((sent.start(), sent.to.to_string()), ("BYE sip:bob@192.0.2.20:5060 SIP/2.0", "192.0.2.98:5060".into()));
    assert_eq!(sent.headers("Route").collect::<Vec<_>>(), ["<sip:192.0.2.98;lr>"]);
}

fn by_stream(stateless: Stateless) -> World {
    World::listening(&["UDP", "TCP"], |snapshot| {
        let address =
            TargetAddress::Literal { address: BOB.parse().expect("an address"), transport: Some(Transport::Tcp) };
        let action = Action::proxy(vec![RouteTarget { address, ..target(BOB) }], stateless);
        snapshot.routes = vec![Route::of_domain(b"*", action)];
    })
}

//= rfc3261#16.6:content-length
#[test]
fn a_request_without_content_length_gets_one_on_a_stream() {
    for (body, length) in [("body", "4"), ("", "0")] {
        let text = request("MESSAGE", "sip:x@elsewhere.example", "m", "")
            .replace("Content-Length: 4\r\n\r\nbody", &format!("\r\n{body}"));
        let sent = only(by_stream(Stateless::Never).input(ALICE, &text));
        assert_eq!(sent.flow.transport, Transport::Tcp);
        assert_eq!(sent.headers("Content-Length").collect::<Vec<_>>(), [length]);
        assert!(sent.text.ends_with(&format!("\r\n\r\n{body}")));
        let datagram = only(routed(Action::proxy(vec![target(BOB)], Stateless::Never)).input(ALICE, &text));
        assert_eq!(datagram.header("Content-Length"), None, "it ends by itself");
    }
}

//= rfc3261#20.14
#[test]
fn a_response_without_content_length_gets_one_on_a_stream() {
    let mut world = World::listening(&["UDP", "TCP"], |_| {});
    world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
    for ((flow, token), lengths) in [(caller_by(Transport::Tcp), &["4"][..]), (caller_by(Transport::Udp), &[])] {
        let text =
            request("MESSAGE", "sip:bob@example.com", token, "").replace("SIP/2.0/UDP", &format!("SIP/2.0/{token}"));
        let forwarded = only(world.input_by(flow, &text));
        let answer = forwarded.response(200, "OK", ";tag=b", "").replace("Content-Length: 0\r\n\r\n", "\r\nbody");
        let left = only(world.input_by(forwarded.flow, &answer));
        assert_eq!(
            (left.flow.transport, left.headers("Content-Length").collect::<Vec<_>>()),
            (flow.transport, lengths.to_vec())
        );
        assert!(left.text.ends_with("\r\n\r\nbody"), "{}", left.text);
    }
}

//= rfc3261#16.1:transports
#[test]
fn udp_to_tcp_forwarding_is_stateful() {
    let mut world = by_stream(Stateless::WhenPossible);
    let text = request("INVITE", "sip:x@elsewhere.example", "inv", "");
    let branch = find(&world.input(ALICE, &text), "INVITE");
    assert_eq!(finals(&world.respond(&branch, 486, "b", "")), [486]);
    let again = world.input(ALICE, &text);
    assert_eq!(
        summary(&again),
        [format!("486 {ALICE}")],
        "the stream says it once, and the datagram may have been lost"
    );
}

//= rfc3261#16.6:loop-hash
#[test]
fn a_spiral_is_forwarded() {
    let mut world = World::new(|s| {
        s.registrar.nat = Nat::Never;
        s.registrar.local_contacts = LocalContacts::Accept;
    });
    world.register("bob", BOB, &format!("<sip:carol@{SERVER}>"));
    world.register("carol", BOB2, &format!("<sip:carol@{BOB2}>"));
    let back = find(&world.input(ALICE, &invite("")), "INVITE");
    assert_eq!(back.to.to_string(), SERVER);
    let sent = world.input(SERVER, &back.text);
    assert_eq!(summary(&sent), [format!("100 {SERVER}"), format!("INVITE {BOB2}")], "a spiral is no loop");
}

//= rfc3261#16.7:no-503
//= rfc3261#16.7:503-is-500
#[test]
fn a_503_of_the_only_branch_becomes_500() {
    let mut world = registered();
    let branch = find(&world.input(ALICE, &invite("")), "INVITE");
    assert_eq!(finals(&world.respond(&branch, 503, "b", "")), [500]);
}

//= rfc3261#16.7:adds-no-tag
//= rfc3261#16.7:keeps-tag-of-failures
//= rfc3261#16.7:keeps-tag-in-dialog
#[test]
fn a_responses_to_tag_is_kept() {
    let mut world = registered();
    let branch = find(&world.input(ALICE, &invite("")), "INVITE");
    let ringing = world.respond(&branch, 180, "", "");
    assert_eq!(ringing[0].header("To"), Some("<sip:bob@example.com>"), "and none is added");
    let failure = world.respond(&branch, 486, "bobs", "");
    let to = |sent: &[SentMessage]| {
        sent.iter().find(|sent| sent.status() >= 200).and_then(|s| s.header("To").map(str::to_owned))
    };
    assert_eq!(to(&failure).as_deref(), Some("<sip:bob@example.com>;tag=bobs"));
    let text = request("MESSAGE", "sip:bob@example.com", "in", "")
        .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b");
    let sent = only(world.input(ALICE, &text));
    assert_eq!(to(&world.respond(&sent, 404, "", "")).as_deref(), Some("<sip:bob@example.com>;tag=b"));
}

//= rfc3261#16.7:keeps-received
#[test]
fn a_response_keeps_the_received_parameter() {
    let text = invite("").replace(&format!("Via: SIP/2.0/UDP {ALICE}"), "Via: SIP/2.0/UDP phone.example:5060");
    let mut world = registered();
    let branch = find(&world.input(ALICE, &text), "INVITE");
    let ringing = only(world.respond(&branch, 180, "b", ""));
    assert_eq!(ringing.header("Via"), branch.headers("Via").nth(1));
    assert!(ringing.header("Via").is_some_and(|via| via.ends_with(";received=192.0.2.10")), "{}", ringing.text);
}

//= rfc3261#16.7:removes-contacts
//= rfc3261#16.7:no-empty-redirection
#[test]
fn a_followed_redirection_is_not_the_final_response() {
    let mut world = World::new(|s| s.proxy.recurse = true);
    world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
    let branch = find(&world.input(ALICE, &invite("")), "INVITE");
    let sent = world.respond(&branch, 302, "b", &format!("Contact: <sip:x@{ELSEWHERE}>\r\n"));
    let end = world.respond(&find(&sent, "INVITE"), 486, "x", "");
    assert_eq!(finals(&end), [486], "a 302 would be the better answer");
    assert!(end.iter().all(|sent| sent.header("Contact").is_none()));
}

//= rfc3261#16.9:no-cancel
#[test]
fn an_unreachable_caller_ends_no_branch() {
    let mut world = registered();
    let branch = find(&world.input(ALICE, &invite("")), "INVITE");
    world.respond(&branch, 180, "b", "");
    assert!(world.give(Input::Unreachable { peer: ALICE.parse().expect("an address") }).is_empty());
    assert_eq!(finals(&world.respond(&branch, 200, "b", "")), [200]);
}

//= rfc3261#16.11:validates
#[test]
fn stateless_requests_are_checked_too() {
    let mut world = routed(Action::proxy(vec![target(BOB)], Stateless::Always));
    let text = |branch: &str, extra: &str| request("MESSAGE", "sip:x@elsewhere.example", branch, extra);
    let far = text("far", "").replace("Max-Forwards: 70", "Max-Forwards: 0");
    let strange = text("strange", "Proxy-Require: foo\r\n");
    let scheme = text("scheme", "").replace("sip:x@elsewhere.example", "unknown:x");
    for (text, status) in [(far, 483), (strange, 420), (scheme, 416)] {
        assert_eq!(summary(&world.input(ALICE, &text)), [format!("{status} {ALICE}")]);
    }
}

//= rfc3261#16.11:removes-via
//= rfc3261#16.11:body
//= rfc3261#16.11:keeps-fields
#[test]
fn a_stateless_response_loses_only_our_via() {
    let mut world = routed(Action::proxy(vec![target(BOB)], Stateless::Always));
    let sent = only(world.input(ALICE, &request("MESSAGE", "sip:x@elsewhere.example", "m", "")));
    let text = sent.response(200, "OK", ";tag=b", "X-New: 1\r\n").replace("Length: 0\r\n\r\n", "Length: 4\r\n\r\nbody");
    let ours = format!("Via: {}\r\n", sent.header("Via").expect("ours"));
    let flow = Flow::new(ListenerId(0), Transport::Udp, BOB.parse().expect("an address"));
    let left = only(world.input_by(flow, &text));
    assert_eq!((left.text, left.to.to_string()), (text.replacen(&ours, "", 1), ALICE.into()));
}
