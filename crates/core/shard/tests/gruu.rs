//! GRUUs (RFC 5627), by which one device of a user is reached.

mod support;

use support::{ALICE, BOB, BOB2, SentMessage, World, destinations, find, request, summary};

const DESK: &str = "+sip.instance=\"<urn:uuid:desk>\"";
const SOFT: &str = "+sip.instance=\"<urn:uuid:soft>\"";
const GRUU: &str = "Supported: gruu";
const CAROL: &str = "192.0.2.30:5060";

fn register(world: &mut World, from: &str, call: (&str, u32), lines: &[&str]) -> SentMessage {
    let (call_id, cseq) = call;
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let text = format!(
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {from};branch=z9hG4bK{call_id}{cseq}\r\nMax-Forwards: 70\r\n\
         From: <sip:bob@example.com>;tag=r\r\nTo: <sip:bob@example.com>\r\nCall-ID: {call_id}\r\nCSeq: {cseq} REGISTER\r\n\
         {lines}Allow: INVITE, ACK, BYE, CANCEL, OPTIONS, INFO, PRACK, UPDATE, MESSAGE, SUBSCRIBE, NOTIFY, REFER\r\n\
         User-Agent: Phone/1.0 (as long as those of phones are)\r\nContent-Length: 0\r\n\r\n"
    );
    world.input(from, &text).remove(0)
}

/// Returns a quoted parameter of the response's Contact for `instance`.
fn param(answer: &SentMessage, instance: &str, name: &str) -> Option<String> {
    assert_eq!(answer.status(), 200, "{}", answer.text);
    let contact = answer.headers("Contact").find(|contact| contact.contains(instance))?;
    let value = contact.split(&format!(";{name}=\"")).nth(1)?;
    value.split('"').next().map(str::to_owned)
}

fn both(world: &mut World) -> SentMessage {
    let desk = format!("Contact: <sip:bob@{BOB}>;{DESK}");
    register(world, BOB, ("desk", 1), &[&desk, GRUU]);
    let soft = format!("Contact: <sip:bob@{BOB2}>;{SOFT}");
    register(world, BOB2, ("soft", 1), &[&soft, GRUU])
}

/// Calls `uri` and returns the outputs except the 100.
fn call(world: &mut World, uri: &str, branch: &str) -> Vec<String> {
    let mut sent = world.input(ALICE, &request("INVITE", uri, branch, ""));
    sent.retain(|sent| sent.status() != 100);
    summary(&sent)
}

#[test]
fn a_public_gruu_rings_only_its_device() {
    let mut world = World::new(|_| {});
    let answer = both(&mut world);
    assert_eq!(param(&answer, DESK, "pub-gruu").as_deref(), Some("sip:bob@example.com;gr=urn:uuid:desk"));
    let soft = param(&answer, SOFT, "pub-gruu").expect("a GRUU");
    assert_eq!(soft, "sip:bob@example.com;gr=urn:uuid:soft");
    assert_eq!(answer.header("Require"), None);
    assert_eq!(call(&mut world, "sip:bob@example.com", "all").len(), 2);
    assert_eq!(call(&mut world, &soft, "soft"), [format!("INVITE {BOB2}")]);
    assert_eq!(call(&mut world, "sip:bob@example.com;gr=urn:uuid:desk", "desk"), [format!("INVITE {BOB}")]);
    assert_eq!(call(&mut world, "sip:bob@example.com;gr=urn:uuid:none", "none"), [format!("404 {ALICE}")]);
}

#[test]
fn temporary_gruus_ring_their_device_and_hide_the_user() {
    let mut world = World::new(|_| {});
    let answer = both(&mut world);
    let desk = param(&answer, DESK, "temp-gruu").expect("a GRUU");
    let soft = param(&answer, SOFT, "temp-gruu").expect("a GRUU");
    assert!(desk.ends_with("@example.com;gr") && !desk.contains("bob"), "{desk}");
    assert_eq!(call(&mut world, &desk, "desk"), [format!("INVITE {BOB}")]);
    assert_eq!(call(&mut world, &soft, "soft"), [format!("INVITE {BOB2}")]);
    let forged = desk.replacen("sip:", "sip:A", 1);
    assert_eq!(call(&mut world, &forged, "forged"), [format!("404 {ALICE}")]);
}

#[test]
fn temporary_gruus_add_up_until_the_device_restarts() {
    let mut world = World::new(|_| {});
    let contact = format!("Contact: <sip:bob@{BOB}>;{DESK}");
    let lines: &[&str] = &[&contact, GRUU];
    let first = param(&register(&mut world, BOB, ("a", 1), lines), DESK, "temp-gruu").expect("a GRUU");
    let second = param(&register(&mut world, BOB, ("a", 2), lines), DESK, "temp-gruu").expect("a GRUU");
    assert_ne!(first, second);
    assert_eq!(call(&mut world, &first, "one"), [format!("INVITE {BOB}")]);
    assert_eq!(call(&mut world, &second, "two"), [format!("INVITE {BOB}")]);
    let third = param(&register(&mut world, BOB, ("b", 1), lines), DESK, "temp-gruu").expect("a GRUU");
    assert_eq!(call(&mut world, &first, "three"), [format!("404 {ALICE}")]);
    assert_eq!(call(&mut world, &second, "four"), [format!("404 {ALICE}")]);
    assert_eq!(call(&mut world, &third, "five"), [format!("INVITE {BOB}")]);
    register(&mut world, BOB, ("b", 2), &["Contact: *", "Expires: 0"]);
    assert_eq!(call(&mut world, &third, "six"), [format!("404 {ALICE}")]);
}

#[test]
fn gruus_are_given_only_on_request_and_if_enabled() {
    let contact = format!("Contact: <sip:bob@{BOB}>;{DESK}");
    let plain = format!("<sip:bob@{BOB}>;expires=3600;{DESK}");
    let mut world = World::new(|_| {});
    let answer = register(&mut world, BOB, ("a", 1), &[&contact]);
    assert_eq!(answer.header("Contact"), Some(&*plain), "the instance is told all the same");
    let mut world = World::new(|s| s.registrar.gruu = false);
    let answer = register(&mut world, BOB, ("a", 1), &[&contact, GRUU]);
    assert_eq!(answer.header("Contact"), Some(&*plain));
    let answer = register(&mut world, BOB, ("a", 2), &["Contact: <sip:bob@192.0.2.20:5070>", GRUU]);
    assert!(!answer.text.contains("gruu"), "no device, no name");
}

#[test]
fn a_contact_cannot_be_the_user() {
    let mut world = World::new(|_| {});
    let contact = format!("Contact: <sip:bob@example.com>;{DESK}");
    let answer = register(&mut world, BOB, ("a", 1), &[&contact, GRUU]);
    assert_eq!(answer.start(), "SIP/2.0 403 Contact Is The Address Itself");
}

#[test]
fn a_redirection_to_a_temporary_gruu_is_followed() {
    let mut world = World::new(|snapshot| snapshot.proxy.recurse = true);
    let desk = param(&both(&mut world), DESK, "temp-gruu").expect("a GRUU");
    world.register("carol", CAROL, &format!("<sip:carol@{CAROL}>"));
    let invite = find(&world.input(ALICE, &request("INVITE", "sip:carol@example.com", "inv", "")), "INVITE");
    let sent = world.respond(&invite, 302, "c", &format!("Contact: <{desk}>\r\n"));
    assert_eq!(destinations(&sent, "INVITE"), [BOB]);
}
