//! Calls between `baresip` phones whose media go through `rtpengine`. The tests assert what the engine has relayed and
//! what the phones report. Skipped if one of the two is not installed.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use strowger_interop::operate::Upgrades;
use strowger_interop::{
    Browser, Certificate, Config, Namespace, PATIENCE, Phone, Program, Relayed, Rtpengine, Server, WebPhone, free_port,
    key_hash, poll, wait_until,
};

const BOB: &str = "sip:bob@example.com";

/// Starts a server whose calls go through these engines.
fn server(engines: &[&Rtpengine], more: &str) -> Server {
    let engines: Vec<String> = engines.iter().map(|engine| engine.uri()).collect();
    let more = format!("[media]\nengines = {engines:?}\nwhen = \"always\"\nprobe_interval = \"1s\"\n{more}\n");
    Config { more, ..Config::default() }.start()
}

fn registered(server: &Server, name: &'static str) -> Phone {
    let mut phone = Phone::start(name);
    assert_eq!(phone.register(server, &format!("secret of {name}")).kind, "REGISTER_OK");
    phone
}

fn are_available() -> bool {
    Program::Baresip.available() && Program::Rtpengine.available()
}

fn establish(alice: &mut Phone, bob: &mut Phone) {
    alice.dial(BOB);
    bob.expect("CALL_INCOMING");
    bob.accept();
    alice.expect("CALL_ESTABLISHED");
    bob.expect("CALL_ESTABLISHED");
}

/// Waits until the engine has relayed this many packets more of both parties.
fn wait_for_media(engine: &Rtpengine, more: u64) -> Vec<Relayed> {
    let before: u64 = engine.relayed().iter().map(|party| party.packets).min().unwrap_or(0);
    let relayed = poll(PATIENCE, || {
        let relayed = engine.relayed();
        let is_enough = relayed.len() == 2 && relayed.iter().all(|party| party.packets >= before + more);
        is_enough.then_some(relayed)
    });
    relayed.unwrap_or_else(|| panic!("too little media: {:?}", engine.relayed()))
}

#[test]
fn media_of_both_parties_flow_through_the_engine_until_one_hangs_up() {
    if !are_available() {
        return;
    }
    let engine = Rtpengine::start();
    let server = server(&[&engine], "");
    let (mut alice, mut bob) = (registered(&server, "alice"), registered(&server, "bob"));
    establish(&mut alice, &mut bob);
    let relayed = wait_for_media(&engine, 50);
    assert_ne!(relayed[0].tag, relayed[1].tag);
    assert_ne!(relayed[0].port, relayed[1].port);
    // A hold and its end are new offers.
    alice.hold();
    assert_eq!(bob.expect("CALL_REMOTE_SDP").detail, "offer");
    bob.expect("CALL_REMOTE_SDP");
    alice.resume();
    bob.expect("CALL_REMOTE_SDP");
    wait_for_media(&engine, 50);
    bob.hang_up();
    alice.expect_closed();
    assert!(poll(PATIENCE, || engine.calls().is_empty().then_some(())).is_some(), "the engine still has the call");
    wait_until("the engine's answer is counted", || server.status()["counters"]["shards"]["media_deletes"] == 1);
    let status = server.status();
    let shards = &status["counters"]["shards"];
    assert_eq!([&shards["media_refused"], &shards["media_bypassed"]], [0, 0], "{shards}");
    assert!(shards["media_offers"].as_u64() >= Some(3), "{shards}");
}

#[test]
fn a_call_keeps_its_engine_when_the_server_is_upgraded() {
    if !are_available() {
        return;
    }
    let engines = [Rtpengine::start(), Rtpengine::start()];
    let upgrades = Upgrades::of(server(&[&engines[0], &engines[1]], ""));
    let (mut alice, mut bob) = (registered(upgrades.server(), "alice"), registered(upgrades.server(), "bob"));
    establish(&mut alice, &mut bob);
    let own = usize::from(engines[0].calls().is_empty());
    let (own, other) = (&engines[own], &engines[1 - own]);
    let before = own.calls();
    wait_for_media(own, 20);
    upgrades.upgrade();
    wait_for_media(own, 20);
    // A hold and its end are new offers.
    alice.hold();
    bob.expect("CALL_REMOTE_SDP");
    bob.expect("CALL_REMOTE_SDP");
    alice.resume();
    bob.expect("CALL_REMOTE_SDP");
    wait_for_media(own, 20);
    assert_eq!((own.calls(), other.calls()), (before, Vec::new()));
    let shards = || upgrades.server().status()["counters"]["shards"].clone();
    assert!(shards()["media_offers"].as_u64() >= Some(2), "{}", shards());
    bob.hang_up();
    alice.expect_closed();
    assert!(poll(PATIENCE, || own.calls().is_empty().then_some(())).is_some(), "the engine still has the call");
    wait_until("the engine's answer is counted", || shards()["media_deletes"] == 1);
    let others = ["media_refused", "media_bypassed", "media_strays"].map(|name| shards()[name].as_u64());
    assert_eq!(others, [0; 3].map(Some), "{}", shards());
}

#[test]
fn a_call_that_rings_during_an_upgrade_ends_at_its_engine() {
    if !are_available() {
        return;
    }
    let engine = Rtpengine::start();
    let upgrades = Upgrades::of(server(&[&engine], ""));
    let (mut alice, mut bob) = (registered(upgrades.server(), "alice"), registered(upgrades.server(), "bob"));
    alice.dial(BOB);
    bob.expect("CALL_INCOMING");
    upgrades.upgrade();
    bob.accept();
    alice.expect("CALL_ESTABLISHED");
    bob.expect("CALL_ESTABLISHED");
    wait_for_media(&engine, 20);
    alice.hang_up();
    bob.expect_closed();
    assert!(poll(PATIENCE, || engine.calls().is_empty().then_some(())).is_some(), "the engine still has the call");
    let counters = || upgrades.server().status()["counters"]["shards"].clone();
    wait_until("the engine's answer is counted", || counters()["media_deletes"] == 1);
    assert_eq!(counters()["media_offers"], 0, "{}", counters());
}

#[test]
fn a_cancelled_call_leaves_nothing_at_the_engine() {
    if !are_available() {
        return;
    }
    let engine = Rtpengine::start();
    let server = server(&[&engine], "");
    let (mut alice, mut bob) = (registered(&server, "alice"), registered(&server, "bob"));
    alice.dial(BOB);
    bob.expect("CALL_INCOMING");
    assert_eq!(engine.calls().len(), 1);
    alice.hang_up();
    bob.expect_closed();
    wait_until("the engine has no call", || engine.calls().is_empty());
}

#[test]
fn of_two_phones_the_one_that_answers_has_the_media() {
    if !are_available() {
        return;
    }
    let engine = Rtpengine::start();
    let server = server(&[&engine], "");
    let (mut alice, mut bob) = (registered(&server, "alice"), registered(&server, "bob"));
    let mut other = registered(&server, "bob");
    alice.dial(BOB);
    bob.expect("CALL_INCOMING");
    other.expect("CALL_INCOMING");
    other.accept();
    other.expect("CALL_ESTABLISHED");
    alice.expect("CALL_ESTABLISHED");
    bob.expect_closed();
    let has_media = || {
        let relayed = engine.relayed();
        relayed.iter().filter(|party| party.packets >= 50).count() == 2
    };
    wait_until("both parties have sent media", has_media);
    alice.hang_up();
    other.expect_closed();
    wait_until("the engine has no call", || engine.calls().is_empty());
}

#[test]
fn without_its_engine_a_call_is_refused_until_the_engine_is_back() {
    if !are_available() {
        return;
    }
    let mut engine = Rtpengine::start();
    let server = server(&[&engine], "");
    let (mut alice, mut bob) = (registered(&server, "alice"), registered(&server, "bob"));
    engine.kill();
    alice.dial(BOB);
    assert_eq!(alice.expect_closed(), "503 Media Engine Does Not Answer");
    assert!(!bob.has_seen("CALL_INCOMING"));
    let is_up = |server: &Server| server.status()["media"][0]["is_up"].as_bool();
    assert_eq!(is_up(&server), Some(false));
    engine.start_again();
    wait_until("the server finds the engine", || is_up(&server) == Some(true));
    establish(&mut alice, &mut bob);
    wait_for_media(&engine, 20);
}

#[test]
fn without_its_engine_a_call_may_go_past_it() {
    if !are_available() {
        return;
    }
    let mut engine = Rtpengine::start();
    let server = server(&[&engine], "on_failure = \"forward\"\ntimeout = \"300ms\"");
    let (mut alice, mut bob) = (registered(&server, "alice"), registered(&server, "bob"));
    engine.kill();
    establish(&mut alice, &mut bob);
    let status = server.status();
    assert_eq!(status["counters"]["shards"]["media_bypassed"], 1);
    bob.hang_up();
    alice.expect_closed();
}

#[test]
fn calls_of_a_killed_engine_go_to_the_other() {
    if !are_available() {
        return;
    }
    let mut engines = [Rtpengine::start(), Rtpengine::start()];
    let server = server(&[&engines[0], &engines[1]], "");
    let (mut alice, mut bob) = (registered(&server, "alice"), registered(&server, "bob"));
    establish(&mut alice, &mut bob);
    let first = usize::from(engines[0].calls().is_empty());
    let other = 1 - first;
    assert_eq!(engines[other].calls(), [""; 0], "a call has one engine");
    wait_for_media(&engines[first], 20);
    engines[first].kill();
    // The call moves with its next offers.
    alice.hold();
    bob.expect("CALL_REMOTE_SDP");
    bob.expect("CALL_REMOTE_SDP");
    alice.resume();
    bob.expect("CALL_REMOTE_SDP");
    wait_for_media(&engines[other], 20);
    bob.hang_up();
    alice.expect_closed();
    // New calls lose at most the time of one time-out.
    for _ in 0..3 {
        establish(&mut alice, &mut bob);
        assert_eq!(engines[other].calls().len(), 1);
        bob.hang_up();
        alice.expect_closed();
        assert!(poll(Duration::from_secs(5), || engines[other].calls().is_empty().then_some(())).is_some());
    }
}

#[test]
fn a_page_and_a_phone_without_encryption_hear_each_other() {
    let programs = [Program::Chromium, Program::Baresip, Program::OpenSsl, Program::Rtpengine];
    if !programs.into_iter().all(Program::available) || !Namespace::available(&["ip", "nsenter"]) {
        return;
    }
    // Browsers do not offer loopback addresses.
    let (network, host) = (Namespace::new(), Ipv4Addr::new(10, 67, 0, 1));
    network.add_interface("lan", host, Ipv6Addr::new(0xfd67, 0, 0, 0, 0, 0, 0, 1));
    let Some(pages) = WebPhone::serve(env!("CARGO_TARGET_TMPDIR").as_ref(), Some(&network)) else { return };
    let engine = Rtpengine::start_at(SocketAddr::from((host, free_port())), host, Some(&network));
    let certificate = Certificate::new("example.com", host.into());
    let web_sockets = SocketAddr::from((host, free_port()));
    let (section, origin, uri) = (certificate.section(), pages.origin(), engine.uri());
    let media = format!("[media]\nengines = [{uri:?}]\nwhen = \"browser\"");
    let server = Config {
        host: host.into(),
        listeners: vec![format!("wss:{web_sockets}")],
        more: format!("{section}\n[websocket]\norigins = [{origin:?}]\n{media}\n"),
        ..Config::default()
    };
    let server = server.start_in(Some(&network));
    let mut alice = WebPhone::open(Browser::start(&[key_hash(&certificate.key())], Some(&network)), &pages);
    alice.sign_in(&format!("wss://{web_sockets}"), "alice@example.com", "secret of alice");
    alice.expect_status("Signed in as alice@example.com");
    let mut bob = Phone::start_at("bob", host, Some(&network));
    assert_eq!(bob.register_over("udp", server.address()).kind, "REGISTER_OK");
    // Without the engine the answer would be 488.
    alice.dial("bob");
    bob.expect("CALL_INCOMING");
    bob.accept();
    alice.expect_call("In a call with bob");
    alice.expect_audio();
    bob.expect("CALL_RTPESTAB");
    wait_for_media(&engine, 50);
    alice.click("hang-up");
    bob.expect_closed();
    wait_until("the engine has no call", || engine.calls().is_empty());
    bob.dial("sip:alice@example.com");
    alice.expect_call("bob is calling");
    alice.click("answer");
    bob.expect("CALL_ESTABLISHED");
    alice.expect_call("In a call with bob");
    alice.expect_audio();
    bob.expect("CALL_RTPESTAB");
    wait_for_media(&engine, 50);
    bob.hang_up();
    alice.expect_call("Call with bob ended");
    // Between two phones the policy needs no engine.
    let mut carol = Phone::start_at("carol", host, Some(&network));
    assert_eq!(carol.register_over("udp", server.address()).kind, "REGISTER_OK");
    carol.dial(BOB);
    bob.expect("CALL_INCOMING");
    bob.accept();
    carol.expect("CALL_ESTABLISHED");
    assert_eq!(engine.calls(), [""; 0]);
}
