//! Two or three `baresip` phones call each other through a running server. The tests assert what the phones report.
//! Skipped if `baresip` is not installed.

use strowger_interop::{Config, PATIENCE, Phone, Program, Server, poll};

const ALICE: &str = "sip:alice@example.com";
const BOB: &str = "sip:bob@example.com";

#[test]
fn phones_register_and_unregister() {
    if !Program::Baresip.available() {
        return;
    }
    let server = Config::default().start();
    let mut alice = registered(&server, "alice");
    assert_eq!(server.registrations(), 1);
    alice.delete_account();
    let gone = poll(PATIENCE, || (server.registrations() == 0).then_some(()));
    assert!(gone.is_some(), "the binding is still there");
}

#[test]
fn wrong_password_is_refused() {
    if !Program::Baresip.available() {
        return;
    }
    let server = Config::default().start();
    let event = Phone::start("alice").register(&server, "wrong");
    assert_eq!(event.kind, "REGISTER_FAIL");
    assert_eq!(event.detail.split(' ').next(), Some("401"), "{event:?}");
    assert_eq!(server.registrations(), 0);
}

#[test]
fn caller_hangs_up() {
    let Some((_server, mut alice, mut bob)) = two_phones(Config::default()) else { return };
    talk(&mut alice, &mut bob);
    alice.hang_up();
    assert_eq!(bob.expect_closed(), "Connection reset by peer");
    assert_eq!(alice.expect_closed(), "Connection reset by user");
}

#[test]
fn callee_hangs_up() {
    let Some((_server, mut alice, mut bob)) = two_phones(Config::default()) else { return };
    talk(&mut alice, &mut bob);
    bob.hang_up();
    assert_eq!(alice.expect_closed(), "Connection reset by peer");
    assert_eq!(bob.expect_closed(), "Connection reset by user");
}

#[test]
fn call_after_call() {
    let Some((_server, mut alice, mut bob)) = two_phones(Config::default()) else { return };
    talk(&mut alice, &mut bob);
    alice.hang_up();
    bob.expect_closed();
    alice.expect_closed();
    bob.dial(ALICE);
    assert_eq!(alice.expect("CALL_INCOMING").peer, BOB);
    alice.accept();
    bob.expect("CALL_ESTABLISHED");
    bob.hang_up();
    assert_eq!(alice.expect_closed(), "Connection reset by peer");
}

#[test]
fn hold_and_resume() {
    let Some((_server, mut alice, mut bob)) = two_phones(Config::default()) else { return };
    talk(&mut alice, &mut bob);
    assert_eq!(bob.expect("CALL_REMOTE_SDP").detail, "offer");
    assert_eq!(alice.expect("CALL_REMOTE_SDP").detail, "answer");
    alice.hold();
    assert_eq!(bob.expect("CALL_REMOTE_SDP").detail, "offer");
    assert_eq!(alice.expect("CALL_REMOTE_SDP").detail, "answer");
    alice.resume();
    assert_eq!(bob.expect("CALL_REMOTE_SDP").detail, "offer");
    assert_eq!(alice.expect("CALL_REMOTE_SDP").detail, "answer");
    bob.hang_up();
    assert_eq!(alice.expect_closed(), "Connection reset by peer");
}

#[test]
fn the_operator_hangs_up_for_both() {
    let Some((server, mut alice, mut bob)) = two_phones(Config::default()) else { return };
    talk(&mut alice, &mut bob);
    let call_id = server.calls()[0]["call_id"].as_str().expect("a Call-ID").to_owned();
    let told = server.control(&["hangup", &call_id]);
    assert!(told.contains(&format!("{call_id}: answered call from {ALICE} to {BOB} is being ended")), "{told}");
    assert_eq!(alice.expect_closed(), "Connection reset by peer");
    assert_eq!(bob.expect_closed(), "Connection reset by peer");
    assert!(poll(PATIENCE, || server.calls().is_empty().then_some(())).is_some(), "the server has no call left");
    // Both phones can go on.
    talk(&mut alice, &mut bob);
    alice.hang_up();
    assert_eq!(bob.expect_closed(), "Connection reset by peer");
}

#[test]
fn the_operator_hangs_up_while_it_rings() {
    let Some((server, mut alice, mut bob)) = two_phones(Config::default()) else { return };
    ring(&mut alice, &mut bob);
    let call_id = server.calls()[0]["call_id"].as_str().expect("a Call-ID").to_owned();
    server.control(&["hangup", &call_id]);
    assert_eq!(alice.expect_closed(), "487 Request Terminated");
    assert_eq!(bob.expect_closed(), "Connection reset by peer");
    assert!(!bob.has_seen("CALL_ESTABLISHED"));
}

#[test]
fn callee_declines() {
    let Some((_server, mut alice, mut bob)) = two_phones(Config::default()) else { return };
    ring(&mut alice, &mut bob);
    bob.hang_up();
    assert_eq!(alice.expect_closed(), "486 Rejected");
    assert!(!alice.has_seen("CALL_ESTABLISHED"));
}

#[test]
fn callee_is_busy() {
    let Some((server, mut alice, mut bob)) = two_phones(Config::default()) else { return };
    let mut carol = registered(&server, "carol");
    talk(&mut alice, &mut bob);
    carol.dial(BOB);
    let reason = carol.expect_closed();
    assert!(reason.starts_with("486 "), "{reason}");
    alice.hang_up();
    assert_eq!(bob.expect_closed(), "Connection reset by peer");
}

#[test]
fn caller_cancels() {
    let Some((_server, mut alice, mut bob)) = two_phones(Config::default()) else { return };
    ring(&mut alice, &mut bob);
    alice.hang_up();
    assert_eq!(bob.expect_closed(), "Connection reset by peer");
    assert_eq!(alice.expect_closed(), "Connection reset by user");
    assert!(!bob.has_seen("CALL_ESTABLISHED"));
}

#[test]
fn nobody_answers() {
    let config = Config { ring_timeout: "3s", ..Config::default() };
    let Some((_server, mut alice, mut bob)) = two_phones(config) else { return };
    ring(&mut alice, &mut bob);
    assert_eq!(alice.expect_closed(), "408 Request Timeout");
    assert_eq!(bob.expect_closed(), "Connection reset by peer");
}

#[test]
fn unknown_user_is_404() {
    if !Program::Baresip.available() {
        return;
    }
    let server = Config::default().start();
    let mut alice = registered(&server, "alice");
    alice.dial("sip:nobody@example.com");
    assert_eq!(alice.expect_closed(), "404 Not Found");
}

#[test]
fn the_servers_address_as_domain() {
    if !Program::Baresip.available() {
        return;
    }
    let users = vec![("alice@127.0.0.1", "secret of alice"), ("bob@127.0.0.1", "secret of bob")];
    let server = Config { domains: vec!["127.0.0.1"], users, ..Config::default() }.start();
    let [mut alice, mut bob] = ["alice", "bob"].map(|name| {
        let mut phone = Phone::start(name);
        let account = format!("<sip:{name}@{}>;auth_pass=\"secret of {name}\";regint=600", server.address());
        assert_eq!(phone.register_account(&account).kind, "REGISTER_OK");
        phone
    });
    alice.dial(&format!("sip:bob@{}", server.address()));
    bob.expect("CALL_INCOMING");
    bob.accept();
    alice.expect("CALL_ESTABLISHED");
    bob.expect("CALL_ESTABLISHED");
    alice.hang_up();
    assert_eq!(bob.expect_closed(), "Connection reset by peer");
}

/// Starts a server and registers the phones of alice and bob. Returns `None` if `baresip` is not installed.
fn two_phones(config: Config) -> Option<(Server, Phone, Phone)> {
    if !Program::Baresip.available() {
        return None;
    }
    let server = config.start();
    let [alice, bob] = ["alice", "bob"].map(|name| registered(&server, name));
    Some((server, alice, bob))
}

fn registered(server: &Server, name: &'static str) -> Phone {
    let mut phone = Phone::start(name);
    let event = phone.register(server, &format!("secret of {name}"));
    assert_eq!((event.kind.as_str(), event.detail.as_str()), ("REGISTER_OK", "200 OK"));
    phone
}

fn ring(alice: &mut Phone, bob: &mut Phone) {
    alice.dial(BOB);
    assert_eq!(bob.expect("CALL_INCOMING").peer, ALICE);
    assert_eq!(alice.expect("CALL_RINGING").peer, BOB);
}

/// Makes a call that is answered, with audio in both directions.
fn talk(alice: &mut Phone, bob: &mut Phone) {
    ring(alice, bob);
    bob.accept();
    alice.expect("CALL_ESTABLISHED");
    bob.expect("CALL_ESTABLISHED");
    alice.expect("CALL_RTPESTAB");
    bob.expect("CALL_RTPESTAB");
}
