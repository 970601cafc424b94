//! Calls through one shard, as seen on the wire.

mod support;

use std::time::Duration;

use strowger_shard::Input;
use support::{ALICE, BOB, BOB2, SERVER, SentMessage, World, finals, find, request, summary};

fn registered() -> World {
    let mut world = World::new(|_| {});
    assert_eq!(world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>").status(), 200);
    world
}

fn invite(world: &mut World) -> SentMessage {
    let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""));
    assert_eq!(summary(&sent), [format!("100 {ALICE}"), format!("INVITE {BOB}")]);
    sent[1].clone()
}

//= rfc3261#17.2.1:to-user
//= rfc3261#18.1.2:matched
//= rfc5393#5.3.3:added
//= rfc5393#5.3.3:default
//= rfc6026#8.9:matched
//= rfc3261#8.1.1.2:sip-scheme
//= rfc3261#16.2:trying
//= rfc3261#16.2:steps
//= rfc3261#16.6:request-uri
//= rfc3261#16.6:decrements-max-forwards
//= rfc3261#16.6:record-route-resolves
//= rfc3261#16.7:processes
//= rfc3261#16.7:provisional
//= rfc3261#16.7:steps-of-forwarding
#[test]
fn a_call_is_set_up_and_torn_down() {
    let mut world = registered();
    let invite = invite(&mut world);
    assert_eq!(invite.start(), "INVITE sip:bob@192.0.2.20:5060 SIP/2.0");
    assert_eq!(invite.header("Max-Forwards"), Some("69"));
    assert_eq!(invite.header("Max-Breadth"), Some("60"));
    assert!(invite.text.ends_with("\r\n\r\nbody"));
    assert_eq!(invite.headers("Via").count(), 2);

    let ringing = world.input(BOB, &invite.response(180, "Ringing", ";tag=b", ""));
    assert_eq!(summary(&ringing), [format!("180 {ALICE}")]);
    assert_eq!(ringing[0].headers("Via").count(), 1);

    let answer = world.input(BOB, &invite.response(200, "OK", ";tag=b", "Contact: <sip:bob@192.0.2.20:5060>\r\n"));
    assert_eq!(summary(&answer), [format!("200 {ALICE}")]);
    let route = answer[0].header("Record-Route").expect("stays on the path").to_owned();
    assert!(route.starts_with(&format!("<sip:{SERVER};lr;dlg=")), "{route}");

    let in_dialog = |method: &str, branch: &str| {
        request(method, "sip:bob@192.0.2.20:5060", branch, &format!("Route: {route}\r\n"))
            .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b")
    };
    let ack = world.input(ALICE, &in_dialog("ACK", "ack"));
    assert_eq!(summary(&ack), [format!("ACK {BOB}")]);
    assert_eq!(ack[0].header("Route"), None);

    let bye = world.input(ALICE, &in_dialog("BYE", "bye").replace("CSeq: 1", "CSeq: 2"));
    assert_eq!(summary(&bye), [format!("BYE {BOB}")]);
    let done = world.input(BOB, &bye[0].response(200, "OK", "", ""));
    assert_eq!(summary(&done), [format!("200 {ALICE}")]);

    assert!(world.wait(Duration::from_secs(40)).is_empty(), "nothing is retransmitted");
    assert_eq!(world.shard.transactions(), 0, "nothing is left");
}

//= rfc6026#7.1:success-again
//= rfc6026#8.9:stray
//= rfc3261#16.7:keeps-context
#[test]
fn a_repeated_2xx_reaches_its_caller_until_the_transaction_ends() {
    let mut world = registered();
    let first = invite(&mut world);
    let contact = "Contact: <sip:bob@192.0.2.20:5060>\r\n";
    let success = first.response(200, "OK", ";tag=b", contact);
    assert_eq!(summary(&world.input(BOB, &success)), [format!("200 {ALICE}")]);
    assert_eq!(world.shard.contexts(), 0, "nothing but the transactions is kept");

    // Other calls come and go meanwhile, also in the freed slots.
    for number in 0..20 {
        let other = request("INVITE", "sip:bob@example.com", &format!("other{number}"), "")
            .replace("call-1@alice", &format!("call-other-{number}"));
        let other = find(&world.input(ALICE, &other), "INVITE");
        assert_eq!(
            finals(&world.input(BOB, &other.response(if number % 2 == 0 { 200 } else { 486 }, "X", ";tag=c", "")))
                .len(),
            1
        );
        world.wait(Duration::from_millis(700));
    }
    let again = world.input(BOB, &success);
    assert_eq!(summary(&again), [format!("200 {ALICE}")]);
    assert_eq!(again[0].header("Call-ID"), Some("call-1@alice"));

    world.settle();
    assert!(world.input(BOB, &success).is_empty(), "nobody waits for it any more");
}

//= rfc3261#17.1.1.2:further-provisionals
#[test]
fn each_180_restarts_timer_c() {
    let mut world = registered();
    let invite = invite(&mut world);
    let ringing = invite.response(180, "Ringing", ";tag=b", "");
    assert_eq!(summary(&world.input(BOB, &ringing)), [format!("180 {ALICE}")]);
    for _ in 0..3 {
        assert!(world.wait(Duration::from_secs(170)).is_empty(), "Timer C begins anew with each");
        assert_eq!(summary(&world.input(BOB, &ringing)), [format!("180 {ALICE}")]);
    }
    let sent = world.wait(Duration::from_secs(181));
    let cancelled = sent.iter().find(|(_, sent)| sent.method() == "CANCEL").expect("it has rung long enough");
    assert_eq!(cancelled.0, 180_000, "to the millisecond");
}

//= rfc3261#17.2.1:trying
//= rfc3261#17.2.1:failure-again
//= rfc3261#16.2:trying
//= rfc3261#16.7:to-server-transaction
#[test]
fn a_retransmission_is_answered_and_not_forwarded_again() {
    let mut world = registered();
    let forwarded = invite(&mut world);
    let again = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""));
    assert_eq!(summary(&again), [format!("100 {ALICE}")]);
    world.input(BOB, &forwarded.response(486, "Busy Here", ";tag=b", ""));
    let again = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""));
    assert_eq!(summary(&again), [format!("486 {ALICE}")]);
}

#[test]
fn busy_is_acknowledged_by_the_server_on_both_sides() {
    let mut world = registered();
    let invite = invite(&mut world);
    let busy = world.input(BOB, &invite.response(486, "Busy Here", ";tag=b", ""));
    assert_eq!(summary(&busy), [format!("ACK {BOB}"), format!("486 {ALICE}")]);
    let ack = request("ACK", "sip:bob@example.com", "inv", "");
    assert!(world.input(ALICE, &ack).is_empty(), "the ACK to a non-2xx goes no further");
    world.wait(Duration::from_secs(40));
    assert_eq!(world.shard.transactions(), 0);
}

//= rfc5393#4.2.1:same-branch
//= rfc3261#16.6:cancel-and-ack
//= rfc3261#16.10:200
//= rfc3261#16.10:each-branch
#[test]
fn cancel_waits_for_a_provisional_response() {
    let mut world = registered();
    let invite = invite(&mut world);
    let cancelled = world.input(ALICE, &request("CANCEL", "sip:bob@example.com", "inv", ""));
    assert_eq!(summary(&cancelled), [format!("200 {ALICE}")]);
    let ringing = world.input(BOB, &invite.response(180, "Ringing", ";tag=b", ""));
    assert!(summary(&ringing).contains(&format!("CANCEL {BOB}")), "{:?}", summary(&ringing));
    let cancel = ringing.iter().find(|s| s.method() == "CANCEL").expect("sent");
    assert_eq!(cancel.header("Via"), invite.header("Via"), "the CANCEL has the INVITE's branch");
    assert!(world.input(BOB, &cancel.response(200, "OK", ";tag=b", "")).is_empty());
    let end = world.input(BOB, &invite.response(487, "Request Terminated", ";tag=b", ""));
    assert_eq!(summary(&end), [format!("ACK {BOB}"), format!("487 {ALICE}")]);
}

//= rfc3261#16.7:success
//= rfc3261#16.7:cancels
#[test]
fn a_fork_ends_with_the_first_answer() {
    let mut world = registered();
    world.register("bob", BOB2, "<sip:bob@192.0.2.21:5060>");
    let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""));
    let mut branches: Vec<_> = sent.into_iter().filter(|s| s.method() == "INVITE").collect();
    branches.sort_by_key(|s| s.to);
    assert_eq!(branches.len(), 2);
    assert_eq!(branches.iter().map(|b| b.header("Max-Breadth")).collect::<Vec<_>>(), [Some("30"); 2]);
    for branch in &branches {
        world.input(&branch.to.to_string(), &branch.response(180, "Ringing", ";tag=x", ""));
    }
    let answered = world.input(BOB, &branches[0].response(200, "OK", ";tag=b", ""));
    assert_eq!(summary(&answered), [format!("200 {ALICE}"), format!("CANCEL {BOB2}")]);
    let lost = world.input(BOB2, &branches[1].response(487, "Request Terminated", ";tag=c", ""));
    assert_eq!(summary(&lost), [format!("ACK {BOB2}")]);
    // Two phones answered at once: the second 2xx is forwarded too.
    let late = world.input(BOB, &branches[0].response(200, "OK", ";tag=b", ""));
    assert_eq!(summary(&late), [format!("200 {ALICE}")], "a 2xx retransmission is passed on");
}

//= rfc3261#16.7:nothing-else
//= rfc3261#16.7:best
//= rfc3261#16.7:of-the-stored
#[test]
fn the_best_of_several_refusals_is_forwarded() {
    let mut world = registered();
    world.register("bob", BOB2, "<sip:bob@192.0.2.21:5060>");
    let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""));
    let to = |peer: &str| sent.iter().find(|s| s.to.to_string() == peer).expect("forked").clone();
    let first = world.input(BOB, &to(BOB).response(503, "Service Unavailable", ";tag=b", ""));
    assert_eq!(summary(&first), [format!("ACK {BOB}")]);
    let second = world.input(BOB2, &to(BOB2).response(404, "Not Found", ";tag=c", ""));
    assert_eq!(summary(&second), [format!("ACK {BOB2}"), format!("404 {ALICE}")]);
}

//= rfc3261#8.1.3.1:timeout-is-408
//= rfc3261#16.6:client-transaction
//= rfc3261#16.7:408
#[test]
fn a_phone_that_never_answers_ends_in_408() {
    let mut world = registered();
    let start = request("INVITE", "sip:bob@example.com", "inv", "");
    world.input(ALICE, &start);
    let sent = world.wait(Duration::from_secs(33));
    let instants: Vec<_> = sent.iter().filter(|(_, s)| s.method() == "INVITE").map(|(at, _)| *at).collect();
    assert_eq!(instants, [500, 1500, 3500, 7500, 15500, 31500]);
    let (at, last) = sent.iter().find(|(_, s)| s.status() >= 200).expect("an end");
    assert_eq!((*at, last.status()), (32000, 408));
}

//= rfc3261#16.8:ends
//= rfc3261#16.8:cancels
#[test]
fn timer_c_cancels_and_tells_the_caller_408() {
    let mut world = World::new(|s| s.proxy.ring_timeout = Duration::from_secs(5));
    world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
    let invite = invite(&mut world);
    world.input(BOB, &invite.response(180, "Ringing", ";tag=b", ""));
    let sent = world.wait(Duration::from_secs(5));
    assert_eq!(summary(&sent.into_iter().map(|(_, s)| s).collect::<Vec<_>>()), [format!("CANCEL {BOB}")]);
    let end = world.input(BOB, &invite.response(487, "Request Terminated", ";tag=b", ""));
    assert_eq!(summary(&end), [format!("ACK {BOB}"), format!("408 {ALICE}")]);
}

//= rfc4320#4.2:no-408
#[test]
fn a_non_invite_that_times_out_is_not_answered() {
    let mut world = registered();
    let sent = world.input(ALICE, &request("MESSAGE", "sip:bob@example.com", "msg", ""));
    assert_eq!(summary(&sent), [format!("MESSAGE {BOB}")]);
    let sent = world.wait(Duration::from_secs(80));
    assert!(sent.iter().all(|(_, s)| s.method() == "MESSAGE"), "no response is made up");
    assert_eq!(world.shard.transactions(), 0);
}

//= rfc4320#4.2:no-stray
#[test]
fn a_late_response_to_a_non_invite_is_dropped() {
    let mut world = registered();
    let message = find(&world.input(ALICE, &request("MESSAGE", "sip:bob@example.com", "late", "")), "MESSAGE");
    world.wait(Duration::from_secs(31));
    assert_eq!(summary(&world.input(BOB, &message.response(100, "Trying", "", ""))), [""; 0]);
    world.wait(Duration::from_secs(2));
    assert!(world.input(BOB, &message.response(200, "OK", ";tag=b", "")).is_empty(), "nobody waits for it any more");
    assert_eq!(world.shard.counters().stray_responses, 1);
}

//= rfc5393#4.1:checked
//= rfc5393#4.1:by-this-way
//= rfc5393#4.2.2:before-forwarding
//= rfc5393#4.2.2:compared
//= rfc5393#4.2.2:482
#[test]
fn a_contact_that_points_back_at_the_server_loops_once() {
    let mut world = World::new(|s| {
        s.registrar.nat = strowger_registrar::Nat::Never;
        s.registrar.local_contacts = strowger_registrar::LocalContacts::Accept;
    });
    world.register("bob", BOB, &format!("<sip:bob@{SERVER}>"));
    let mut sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", ""));
    for _ in 0..4 {
        let Some(back) = sent.iter().find(|s| s.to.to_string() == SERVER && s.method() == "INVITE") else { break };
        sent = world.input(SERVER, &back.text.clone());
    }
    assert!(sent.iter().any(|s| s.status() == 482), "{:?}", summary(&sent));
}

//= rfc5393#4.2.2:each-via
#[test]
fn a_loop_is_detected_behind_other_vias() {
    let mut world = registered();
    let ours = invite(&mut world).header("Via").expect("ours").to_owned();
    let back = |uri: &str, branch: &str| {
        let vias = format!("Via: SIP/2.0/UDP {BOB};branch=z9hG4bK{branch}\r\nVia: {ours}\r\nVia: ");
        request("INVITE", uri, "inv", "").replacen("Via: ", &vias, 1)
    };
    assert_eq!(summary(&world.input(BOB, &back("sip:bob@example.com", "loop"))), [format!("482 {BOB}")]);
    let spiral = world.input(BOB, &back("sip:nobody@example.com", "spiral"));
    assert_eq!(summary(&spiral), [format!("404 {BOB}")], "another Request-URI is another way");
}

//= rfc6026#7.1:transport-error
//= rfc6026#7.1:stays
#[test]
fn an_unreachable_caller_keeps_its_transaction() {
    let mut world = registered();
    let forwarded = invite(&mut world);
    let again = |world: &mut World| {
        world.give(Input::Unreachable { peer: ALICE.parse().expect("an address") });
        summary(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "inv", "")))
    };
    assert_eq!(again(&mut world), [format!("100 {ALICE}")]);
    world.input(BOB, &forwarded.response(486, "Busy Here", ";tag=b", ""));
    assert_eq!(again(&mut world), [format!("486 {ALICE}")], "it is no new call");
}

//= rfc3261#8.2.2.1:unknown-scheme
//= rfc3261#8.2.2.1:unknown-address
//= rfc3261#16.1:uas
//= rfc3261#16.3:validates
//= rfc3261#16.3:refuses
//= rfc3261#16.3:unknown-scheme
//= rfc3261#16.3:max-forwards
//= rfc3261#16.3:483
//= rfc3261#16.3:proxy-require
//= rfc3261#16.3:unsupported
//= rfc3261#16.5:not-found
#[test]
fn refusals_before_anything_is_forwarded() {
    let mut world = registered();
    let mut status = |text: &str| {
        let sent = world.input(ALICE, text);
        assert_eq!(sent.len(), 1, "{:?}", summary(&sent));
        sent[0].clone()
    };
    let options = |uri: &str, branch: &str, extra: &str| request("OPTIONS", uri, branch, extra);
    assert_eq!(status(&options("sip:example.com", "1", "")).status(), 200);
    assert_eq!(status(&options("sip:carol@example.com", "2", "")).status(), 404);
    assert_eq!(status(&options("sip:bob@elsewhere.example", "3", "")).status(), 404);
    assert_eq!(status(&options("unknown:opaque", "4", "")).status(), 416);
    assert_eq!(
        status(&options("sip:bob@example.com", "5", "").replace("Max-Forwards: 70", "Max-Forwards: 0")).status(),
        483
    );
    let refused = status(&options("sip:bob@example.com", "6", "Proxy-Require: foo, bar\r\nRequire: baz\r\n"));
    assert_eq!((refused.status(), refused.header("Unsupported")), (420, Some("foo, bar")));
    let breadth = request("MESSAGE", "sip:bob@example.com", "7", "Max-Breadth: 0\r\n");
    assert_eq!(status(&breadth).status(), 440);
}

//= rfc3261#18.1.2:foreign
//= rfc3261#16.3:well-formed
//= rfc3261#16.11:foreign
#[test]
fn malformed_messages_are_reported_once_and_not_forwarded() {
    let mut world = World::new(|_| {});
    let bad = request("INVITE", "sip:bob@example.com", "bad", "").replace("CSeq: 1 INVITE", "CSeq: 1 OPTIONS");
    let sent = world.input(ALICE, &bad);
    assert_eq!(sent[0].start(), "SIP/2.0 400 CSeq Method Does Not Match");
    assert_eq!(world.shard.transactions(), 0, "no state for what is not understood");
    assert_eq!(world.events.len(), 1);
    let foreign = "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bKforged\r\nFrom: <sip:a@b>;tag=1\r\n\
        To: <sip:a@b>;tag=2\r\nCall-ID: x\r\nCSeq: 1 INVITE\r\n\r\n";
    assert!(world.input(BOB, foreign).is_empty());
    assert_eq!(world.shard.counters().foreign_responses, 1);
}

/// Returns the request as Alice sends it in the call that Bob has answered.
fn in_dialog(request: &str) -> String {
    request.replace("CSeq: 1", "CSeq: 2").replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b")
}

//= rfc3261#16.4:inspects-uri
//= rfc3261#16.4:strict-router
//= rfc3261#16.4:goes-on
#[test]
fn strict_routed_requests_are_fixed() {
    let mut world = registered();
    let invite = invite(&mut world);
    let answer = world.input(BOB, &invite.response(200, "OK", ";tag=b", ""));
    let ours = answer[0].header("Record-Route").expect("recorded").trim_matches(['<', '>']).to_owned();
    let bye = in_dialog(&request("BYE", &ours, "bye", "Route: <sip:bob@192.0.2.20:5060>\r\n"));
    let sent = world.input(ALICE, &bye);
    assert_eq!(summary(&sent), [format!("BYE {BOB}")]);
    assert_eq!(sent[0].start(), "BYE sip:bob@192.0.2.20:5060 SIP/2.0");
    assert_eq!(sent[0].header("Route"), None);
}

//= rfc3261#16.6:looks-at-route
//= rfc3261#16.6:uri-to-last-route
//= rfc3261#16.6:route-to-uri
//= rfc3261#16.6:strict-router-leads
#[test]
fn a_strict_router_downstream_gets_a_strict_route() {
    let mut world = registered();
    let invite = invite(&mut world);
    let answer = world.input(BOB, &invite.response(200, "OK", ";tag=b", ""));
    let ours = answer[0].header("Record-Route").expect("recorded").to_owned();
    let extra = format!("Route: {ours}, <sip:192.0.2.99:5070>, <sip:192.0.2.98;lr>\r\n");
    let sent = world.input(ALICE, &in_dialog(&request("BYE", "sip:bob@192.0.2.20:5060", "bye", &extra)));
    assert_eq!(summary(&sent), ["BYE 192.0.2.99:5070"]);
    assert_eq!(sent[0].start(), "BYE sip:192.0.2.99:5070 SIP/2.0");
    let routes: Vec<_> = sent[0].headers("Route").collect();
    assert_eq!(routes, ["<sip:192.0.2.98;lr>", "<sip:bob@192.0.2.20:5060>"]);
}

#[test]
fn a_forged_route_is_refused() {
    let mut world = registered();
    let forged =
        request("BYE", "sip:victim@198.51.100.1", "bye", &format!("Route: <sip:{SERVER};lr;dlg=AAAAAAAAAAAAAAAA>\r\n"));
    let sent = world.input(ALICE, &forged);
    assert_eq!(summary(&sent), [format!("404 {ALICE}")]);
}

#[test]
fn strangers_cannot_assert_identity() {
    let mut world = registered();
    let text = request("INVITE", "sip:bob@example.com", "inv", "P-Asserted-Identity: <sip:boss@example.com>\r\n");
    let sent = world.input(ALICE, &text);
    assert!(sent.iter().all(|s| !s.text.contains("P-Asserted-Identity")));
    let trusted = strowger_auth::Network { address: "192.0.2.10".parse().expect("an address"), prefix: 32 };
    let mut world = World::new(|s| s.auth.trusted = vec![trusted]);
    world.register("bob", BOB, "<sip:bob@192.0.2.20:5060>");
    let sent = world.input(ALICE, &text);
    assert!(sent[1].text.contains("P-Asserted-Identity: <sip:boss@example.com>\r\n"));
}

#[test]
fn an_unreachable_phone_fails_at_once() {
    let mut world = registered();
    invite(&mut world);
    let peer = BOB.parse().expect("an address");
    world.shard.handle_input(world.now, Input::Unreachable { peer });
    let sent = world.wait(Duration::from_millis(1));
    let mut buffer = Vec::new();
    let direct = world.shard.poll_output(&mut buffer).is_some();
    assert!(direct || sent.iter().any(|(_, s)| s.status() == 500));
}
