//! `SIPp` scenarios through a running server. Each test states what the callers and callees of RFC 3261 must see.
//! Skipped if `sipp` is not installed.

use std::env;
use std::net::Ipv4Addr;

use strowger_interop::{Config, LossyRelay, Program, Route, Server, Sipp, SippRun, free_port, register};

#[test]
fn registration_with_password_fetch_and_removal() {
    let Some(server) = start(Config::default()) else { return };
    assert_eq!(server.registrations(), 0);
    Sipp::new("registration", server.address()).login("alice", "secret of alice", "example.com").run();
    assert_eq!(server.registrations(), 0);
    log_in(&server, "alice", "secret of alice");
    assert_eq!(server.registrations(), 1);
}

#[test]
fn first_of_two_challenges_is_answered() {
    let config = Config { algorithms: vec!["MD5", "SHA-256"], ..Config::default() };
    let Some(server) = start(config) else { return };
    log_in(&server, "alice", "secret of alice");
    assert_eq!(server.registrations(), 1);
}

#[test]
fn wrong_password_and_unknown_user_get_the_same_refusal() {
    let Some(server) = start(Config::default()) else { return };
    for user in ["alice", "nobody"] {
        Sipp::new("register_refused", server.address())
            .key("caller", user)
            .key("status", "401")
            .login(user, "wrong", "example.com")
            .run();
    }
    assert_eq!(server.registrations(), 0);
}

#[test]
fn one_user_cannot_register_another() {
    let Some(server) = start(Config::default()) else { return };
    Sipp::new("register_refused", server.address())
        .key("caller", "bob")
        .key("status", "403")
        .login("alice", "secret of alice", "example.com")
        .run();
    assert_eq!(server.registrations(), 0);
}

#[test]
fn user_added_while_the_server_runs() {
    let Some(server) = start(Config::default()) else { return };
    server.add_user("dave@example.com", "secret of dave");
    log_in(&server, "dave", "secret of dave");
    assert_eq!(server.registrations(), 1);
}

#[test]
fn too_brief_an_expiry_gets_423() {
    let Some(server) = start(Config::open()) else { return };
    Sipp::new("register_brief", server.address()).run();
    assert_eq!(server.registrations(), 0);
}

#[test]
fn proxy_200() {
    let Some(server) = start(Config::open()) else { return };
    let callee = bob_plays(&server, "uas_answer");
    Sipp::new("uac_call", server.address()).run();
    callee.finish();
}

#[test]
fn proxy_200_with_passwords() {
    let Some(server) = start(Config::default()) else { return };
    let port = log_in(&server, "bob", "secret of bob");
    let callee = Sipp::new("uas_answer", server.address()).port(port).start();
    Sipp::new("uac_call_login", server.address()).login("alice", "secret of alice", "bob@example.com").run();
    callee.finish();
}

#[test]
fn trusted_address_needs_no_password() {
    let config = Config { require: vec!["INVITE"], trusted: vec!["127.0.0.9"], ..Config::default() };
    let Some(server) = start(config) else { return };
    let callee = bob_plays(&server, "uas_answer");
    Sipp::new("uac_call", server.address()).host(Ipv4Addr::new(127, 0, 0, 9)).run();
    callee.finish();
}

#[test]
fn cancel_before_any_response_waits_for_one() {
    let Some(server) = start(Config::open()) else { return };
    let callee = bob_plays(&server, "uas_cancelled_silent");
    Sipp::new("uac_cancel_early", server.address()).run();
    callee.finish();
}

#[test]
fn cancel_after_100() {
    let Some(server) = start(Config::open()) else { return };
    let callee = bob_plays(&server, "uas_cancelled_trying");
    Sipp::new("uac_cancel_early", server.address()).run();
    callee.finish();
}

#[test]
fn cancel_after_180() {
    let Some(server) = start(Config::open()) else { return };
    let callee = bob_plays(&server, "uas_cancelled_ringing");
    Sipp::new("uac_cancel_ringing", server.address()).run();
    callee.finish();
}

#[test]
fn fork_to_three_phones_of_which_one_answers() {
    let Some(server) = start(Config::open()) else { return };
    let others = [(), ()].map(|()| bob_plays(&server, "uas_cancelled_ringing"));
    let answering = bob_plays(&server, "uas_late");
    assert_eq!(server.registrations(), 3);
    Sipp::new("uac_call", server.address()).run();
    answering.finish();
    for other in others {
        other.finish();
    }
}

#[test]
fn busy_phone() {
    let Some(server) = start(Config::open()) else { return };
    let callee = bob_plays(&server, "uas_busy");
    refused(&server, "bob", "486");
    callee.finish();
}

#[test]
fn reinvite_within_the_dialog() {
    let Some(server) = start(Config::open()) else { return };
    let callee = bob_plays(&server, "uas_reinvite");
    Sipp::new("uac_reinvite", server.address()).run();
    callee.finish();
}

#[test]
fn no_answer_gets_408_and_the_callee_a_cancel() {
    let Some(server) = start(Config { ring_timeout: "2s", ..Config::open() }) else { return };
    let callee = bob_plays(&server, "uas_cancelled_ringing");
    refused(&server, "bob", "408");
    callee.finish();
}

#[test]
fn unknown_user_gets_404() {
    let Some(server) = start(Config::open()) else { return };
    refused(&server, "nobody", "404");
}

#[test]
fn user_without_a_phone_gets_480() {
    let Some(server) = start(Config::open()) else { return };
    refused(&server, "carol", "480");
}

#[test]
fn contact_of_the_server_itself_is_a_loop() {
    let Some(server) = start(Config::open()) else { return };
    register(&server, "bob", &contact("bob", server.address().port()), free_port());
    refused(&server, "bob", "482");
}

#[test]
fn route_to_the_server_itself_is_a_loop() {
    let mut config = Config::open();
    let targets = vec![format!("sip:127.0.0.1:{}", config.port)];
    config.routes = vec![Route { domain: "loop.example", action: "proxy", targets }];
    let Some(server) = start(config) else { return };
    Sipp::new("uac_refused", server.address())
        .key("domain", "loop.example")
        .key("status", "482")
        .key("max_forwards", "70")
        .run();
}

#[test]
fn max_forwards_0_gets_483() {
    let Some(server) = start(Config::open()) else { return };
    Sipp::new("uac_refused", server.address()).key("status", "483").key("max_forwards", "0").run();
}

#[test]
fn caller_behind_a_strict_router() {
    let Some(server) = start(Config::open()) else { return };
    let callee = bob_plays(&server, "uas_strict");
    Sipp::new("uac_strict", server.address()).run();
    callee.finish();
}

#[test]
fn next_hop_that_is_a_strict_router() {
    let Some(server) = start(Config::open()) else { return };
    let callee = bob_plays(&server, "uas_is_strict");
    Sipp::new("uac_to_strict", server.address()).run();
    callee.finish();
}

#[test]
fn static_route_to_an_address() {
    let port = free_port();
    let routes = vec![Route { domain: "*", action: "proxy", targets: vec![format!("sip:127.0.0.1:{port}")] }];
    let Some(server) = start(Config { routes, ..Config::open() }) else { return };
    let callee = Sipp::new("uas_answer", server.address()).port(port).start();
    Sipp::new("uac_call", server.address()).key("domain", "elsewhere.example").run();
    callee.finish();
}

#[test]
fn redirecting_route_gives_302_with_its_target() {
    let targets = vec!["sip:127.0.0.2:5070".to_owned()];
    let routes = vec![Route { domain: "*", action: "redirect", targets }];
    let Some(server) = start(Config { routes, ..Config::open() }) else { return };
    Sipp::new("uac_redirected", server.address())
        .key("domain", "elsewhere.example")
        .key("location", "127.0.0.2:5070")
        .run();
}

#[test]
fn redirecting_route_without_targets_gives_302_with_the_phones() {
    let routes = vec![Route { domain: "example.com", action: "redirect", targets: Vec::new() }];
    let Some(server) = start(Config { routes, ..Config::open() }) else { return };
    let port = free_port();
    register(&server, "bob", &contact("bob", port), port);
    Sipp::new("uac_redirected", server.address()).key("location", &format!("127.0.0.1:{port}")).run();
}

#[test]
fn calls_succeed_at_10_percent_datagram_loss() {
    const CALLS: u32 = 20;
    let seed = env::var("STROWGER_SEED").map_or(20, |seed| seed.parse().expect("STROWGER_SEED is a number"));
    let Some(server) = start(Config::default()) else { return };
    let port = log_in(&server, "bob", "secret of bob");
    let callee = Sipp::new("uas_lossy", server.address()).port(port).calls(CALLS, CALLS).start();
    let relay = LossyRelay::start(server.address(), 10, seed);
    Sipp::new("uac_call_lossy", relay.address())
        .login("alice", "secret of alice", "bob@example.com")
        .calls(CALLS, CALLS)
        .run();
    callee.finish();
    for way in [relay.to_server(), relay.to_client()] {
        assert!(way.lost > 0 && way.passed >= 3 * CALLS, "{way:?}");
    }
}

/// Starts a server, or returns `None` if `sipp` is not installed.
fn start(config: Config) -> Option<Server> {
    Program::Sipp.available().then(|| config.start())
}

/// Registers `bob` at the port at which he then plays the scenario.
fn bob_plays(server: &Server, scenario: &'static str) -> SippRun {
    let port = free_port();
    register(server, "bob", &contact("bob", port), port);
    Sipp::new(scenario, server.address()).port(port).key("port", &port.to_string()).start()
}

/// Registers `user` with a password and returns the phone's port.
fn log_in(server: &Server, user: &str, password: &str) -> u16 {
    let port = free_port();
    Sipp::new("register_login", server.address())
        .port(port)
        .key("caller", user)
        .key("contact", &contact(user, port))
        .login(user, password, "example.com")
        .run();
    port
}

/// Makes a call to `callee` that ends with this status.
fn refused(server: &Server, callee: &str, status: &str) {
    Sipp::new("uac_refused", server.address())
        .key("callee", callee)
        .key("status", status)
        .key("max_forwards", "70")
        .run();
}

fn contact(user: &str, port: u16) -> String {
    format!("<sip:{user}@127.0.0.1:{port}>")
}
