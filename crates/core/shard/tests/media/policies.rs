//! Which calls go through an engine, and with which profile.

use strowger_media::{MediaPolicy, When};
use strowger_proxy::Stateless;
use strowger_shard::Snapshot;

use crate::engine::{
    SentCommand, body, by_web_socket, command, commands, policy, request, response, routed, sdp, world,
};
use crate::support::{ALICE, BOB, World, find, summary};

const BROWSER: &str = "192.0.2.77:40000";

fn when(when: When) -> impl Fn(&mut MediaPolicy) {
    move |policy| policy.when = when
}

/// A server for phones and browsers.
fn mixed(edit: impl FnOnce(&mut MediaPolicy)) -> World {
    World::listening(&["UDP", "WS"], |snapshot| policy(snapshot, 1, edit))
}

/// Registers Bob's page.
fn register_page(world: &mut World) {
    let text = "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/WS x.invalid;branch=z9hG4bKr\r\nMax-Forwards: 70\r\n\
                From: <sip:bob@example.com>;tag=r\r\nTo: <sip:bob@example.com>\r\nCall-ID: page\r\nCSeq: 1 REGISTER\r\n\
                Contact: <sip:bob@x.invalid;transport=ws>\r\nContent-Length: 0\r\n\r\n";
    let sent = world.input_by(by_web_socket(BROWSER), text);
    assert_eq!(sent[0].status(), 200, "{}", sent[0].text);
}

fn profile(command: &SentCommand) -> [Option<String>; 2] {
    [command.string("transport-protocol"), command.string("ICE")]
}

fn some(profile: &str, ice: &str) -> [Option<String>; 2] {
    [Some(profile.to_owned()), Some(ice.to_owned())]
}

#[test]
fn a_call_between_phones_goes_past_the_engine_if_only_browsers_need_it() {
    let mut world = mixed(when(When::Browser));
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let sent = world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let invite = find(&sent, "INVITE");
    assert_eq!(body(&invite), sdp("alice"));
    let answered = world.input(BOB, &response(&invite, 200, "b", &sdp("bob")));
    assert_eq!(body(&answered[0]), sdp("bob"));
    assert!(commands(&mut world).is_empty());
}

#[test]
fn a_phone_calls_a_browser() {
    let mut world = mixed(when(When::Browser));
    register_page(&mut world);
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let offer = command(&mut world);
    assert_eq!(profile(&offer), some("UDP/TLS/RTP/SAVPF", "force"));
    let invite = find(&offer.answer(&mut world), "INVITE");
    assert_eq!((invite.to.to_string(), body(&invite)), (BROWSER.to_owned(), &*offer.result()));
    world.input_by(by_web_socket(BROWSER), &response(&invite, 200, "b", &sdp("bob")));
    let answer = command(&mut world);
    assert_eq!(profile(&answer), some("RTP/AVP", "remove"));
    assert_eq!(summary(&answer.answer(&mut world)), [format!("200 {ALICE}")]);
}

#[test]
fn a_browser_calls_a_phone() {
    let mut world = mixed(when(When::Browser));
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let text = request("INVITE", 1, "", &sdp("page"))
        .replace(&format!("SIP/2.0/UDP {ALICE}"), "SIP/2.0/WS x.invalid")
        .replace(&format!("sip:alice@{ALICE}"), "sip:alice@x.invalid;transport=ws");
    world.input_by(by_web_socket(BROWSER), &text);
    let offer = command(&mut world);
    assert_eq!(profile(&offer), some("RTP/AVP", "remove"));
    assert_eq!(offer.string("received-from"), None, "a browser finds its addresses itself");
    let invite = find(&offer.answer(&mut world), "INVITE");
    world.input(BOB, &response(&invite, 200, "b", &sdp("bob")));
    assert_eq!(profile(&command(&mut world)), some("UDP/TLS/RTP/SAVPF", "force"));
}

#[test]
fn a_desk_phone_and_a_page_of_one_user_get_the_offer_that_each_understands() {
    let mut world = mixed(when(When::Browser));
    register_page(&mut world);
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let offers = commands(&mut world);
    let mut profiles: Vec<_> = offers.iter().map(profile).collect();
    profiles.sort();
    assert_eq!(profiles, [[None, Some("remove".to_owned())], some("UDP/TLS/RTP/SAVPF", "force")]);
    let sent: Vec<_> = offers.iter().flat_map(|offer| offer.answer(&mut world)).collect();
    for invite in sent.iter().filter(|sent| sent.method() == "INVITE") {
        let is_page = invite.to.to_string() == BROWSER;
        let offer = offers.iter().find(|offer| offer.result() == body(invite)).expect("one of the offers");
        assert_eq!(profile(offer)[0].is_some(), is_page, "to {}", invite.to);
    }
}

#[test]
fn a_phone_behind_nat_needs_the_engine_as_caller_and_as_callee() {
    const OUTSIDE: &str = "203.0.113.7:40123";
    let mut world = World::new(|snapshot| policy(snapshot, 1, when(When::Nat)));
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let sent = world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    assert_eq!(summary(&sent), [format!("100 {ALICE}"), format!("INVITE {BOB}")], "neither is");
    let text = request("INVITE", 1, "", &sdp("nat")).replace(ALICE, "10.0.0.5:5060").replace("call-1", "call-2");
    world.input(OUTSIDE, &text);
    let offer = command(&mut world);
    assert_eq!(offer.string("call-id").as_deref(), Some("call-2@alice"));
    assert!(offer.text.contains("13:received-froml3:IP411:203.0.113.7e"), "{}", offer.text);
    assert!(offer.text.contains("SIP-source-address"));

    let registration = "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.5:5060;branch=z9hG4bKc;rport\r\n\
        Max-Forwards: 70\r\nFrom: <sip:carol@example.com>;tag=r\r\nTo: <sip:carol@example.com>\r\nCall-ID: nat\r\n\
        CSeq: 1 REGISTER\r\nContact: <sip:carol@10.0.0.5:5060>\r\nContent-Length: 0\r\n\r\n";
    world.input(OUTSIDE, registration);
    let text = request("INVITE", 1, "", &sdp("alice")).replace("bob", "carol").replace("call-1", "call-3");
    world.input(ALICE, &text.replace("z9hG4bK", "z9hG4bKc"));
    assert!(command(&mut world).text.contains("call-3@alice"));
}

#[test]
fn strangers_cost_the_engine_nothing() {
    let mut world = world(|snapshot| snapshot.auth.require = vec![(*b"INVITE").into()]);
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let sent = world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    assert_eq!(summary(&sent), [format!("407 {ALICE}")]);
    let unknown =
        request("INVITE", 2, "", &sdp("alice")).replace("sip:bob@example.com SIP", "sip:nobody@example.com SIP");
    world.input(ALICE, &unknown);
    assert!(commands(&mut world).is_empty());
}

#[test]
fn a_route_without_state_keeps_state_for_offers() {
    let mut world = world(|snapshot: &mut Snapshot| snapshot.proxy.stateless = Stateless::Always);
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let first = find(&world.input(ALICE, &request("INVITE", 1, "", "")), "INVITE");
    world.input(BOB, &response(&first, 200, "b", ""));
    // In a dialog, which the policy would forward without state.
    world.input(ALICE, &routed(&first, &request("INVITE", 5, "b", &sdp("refresh"))));
    let offer = command(&mut world);
    let invite = find(&offer.answer(&mut world), "INVITE");
    assert!(world.input(BOB, &response(&invite, 200, "b", &sdp("bob"))).is_empty());
    assert_eq!(command(&mut world).summary(), "answer a b");
}

#[test]
fn a_reload_may_turn_the_hook_off_and_keeps_its_counts() {
    let mut world = world(|_| {});
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let offer = command(&mut world);
    offer.answer(&mut world);
    world.configure(|snapshot| snapshot.media = None);
    assert_eq!(world.shard.counters().media_offers, 1);
    let text = request("INVITE", 1, "", &sdp("alice")).replace("call-1", "call-2").replace("z9hG4bK", "z9hG4bKx");
    assert_eq!(body(&find(&world.input(ALICE, &text), "INVITE")), sdp("alice"));
}

#[test]
fn a_reload_that_turns_the_hook_off_lets_waiting_messages_go_on() {
    let mut world = world(|_| {});
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    let offer = command(&mut world);
    let invite = find(&offer.answer(&mut world), "INVITE");
    assert!(world.input(BOB, &response(&invite, 200, "b", &sdp("bob"))).is_empty(), "it waits for its engine");
    let second = request("INVITE", 1, "", &sdp("second")).replace("call-1", "call-2").replace("z9hG4bK", "z9hG4bKx");
    let sent = world.input(ALICE, &second);
    assert!(sent.iter().all(|sent| !sent.text.starts_with("INVITE")), "it waits for its engine");
    commands(&mut world);
    let sent = world.reconfigure(|snapshot| snapshot.media = None);
    let answer = sent.iter().find(|sent| sent.text.starts_with("SIP/2.0 200")).expect("the answer goes on");
    assert_eq!(body(answer), sdp("bob"));
    assert_eq!(body(&find(&sent, "INVITE")), sdp("second"));
}

#[test]
fn a_reload_that_ends_the_tracking_of_calls_keeps_their_counts() {
    let mut world = world(|_| {});
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    world.input(ALICE, &request("INVITE", 1, "", &sdp("alice")));
    assert_eq!((world.shard.counters().calls, world.shard.counters().calls_ended), (1, 0));
    let sent = world.reconfigure(|snapshot| (snapshot.media, snapshot.track_calls) = (None, false));
    assert_eq!(body(&find(&sent, "INVITE")), sdp("alice"));
    assert_eq!(
        (world.shard.counters().calls, world.shard.counters().calls_ended),
        (1, 1),
        "none is followed any longer"
    );
    world.configure(|snapshot| snapshot.track_calls = true);
    let second = request("INVITE", 1, "", &sdp("second")).replace("call-1", "call-2").replace("z9hG4bK", "z9hG4bKx");
    world.input(ALICE, &second);
    assert_eq!((world.shard.counters().calls, world.shard.counters().calls_ended), (2, 1));
}

#[test]
fn a_body_that_is_no_description_is_left_alone() {
    let mut world = world(|_| {});
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let sent = world.input(ALICE, &crate::support::request("INVITE", "sip:bob@example.com", "inv", ""));
    assert_eq!(body(&find(&sent, "INVITE")), "body");
    let text = request("MESSAGE", 2, "", &sdp("alice"));
    assert_eq!(body(&find(&world.input(ALICE, &text), "MESSAGE")), sdp("alice"));
    assert!(commands(&mut world).is_empty());
}
