//! Carriers and other servers as trunks, played by `SIPp` in the manner of Kamailio and Asterisk, and one real
//! Kamailio: what a route sends to them, what they may answer, and what comes from them. Skipped if `sipp` is not
//! installed.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use strowger_interop::{Config, Kamailio, PATIENCE, Program, Server, Sipp, free_port, md5, poll, register};

/// Address of the trunks.
const CARRIER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
const PASSWORD: &str = "the carrier's secret";

#[test]
fn kamailio_style_407_challenge_is_answered() {
    let (port, config) = (free_port(), Config::open());
    challenged(config, port, Challenge { status: "407", qop: ", qop=\"auth\"", mode: "u1" });
}

#[test]
fn asterisk_style_401_challenge_is_answered() {
    challenged(Config::open(), free_port(), Challenge { status: "401", qop: "", mode: "u1" });
}

#[test]
fn challenge_over_tcp_is_answered() {
    for status in ["407", "401"] {
        let config = Config { tcp: true, ..Config::open() };
        challenged(config, free_port(), Challenge { status, qop: ", qop=\"auth\"", mode: "t1" });
    }
}

/// How a trunk asks for credentials.
#[derive(Clone, Copy)]
struct Challenge {
    status: &'static str,
    qop: &'static str,
    mode: &'static str,
}

/// Makes a call from a local user to a number that a route rewrites and sends to a trunk, which challenges it.
fn challenged(mut config: Config, port: u16, challenge: Challenge) {
    let Challenge { status, qop, mode } = challenge;
    let target = target(port, mode);
    config.more = format!(
        r#"
[[trunk]]
name = "carrier"
targets = ["{target}"]
username = "account"
password = "{PASSWORD}"

[[route]]
match = {{ domain = "example.com", prefix = "9" }}
trunk = "carrier"
rewrite = {{ strip = 1, e164 = "49" }}
add_headers = {{ "X-Account" = "12" }}
"#
    );
    let Some(server) = start(config) else { return };
    let name = if status == "407" { "Proxy-Authenticate" } else { "WWW-Authenticate" };
    let answer = if status == "407" { "Proxy-Authorization" } else { "Authorization" };
    let trunk = trunk("trunk_uas_challenge", &server, port, mode)
        .key("status", status)
        .key("challenge", name)
        .key("credentials", answer)
        .key("qop", qop)
        .key("number", "[+]4930123456@127.0.0.9")
        .start();
    Sipp::new("uac_call", server.address()).mode(mode).key("callee", "9030123456").run();
    let messages = trunk.messages();
    trunk.finish();
    verify(&messages, answer);
}

/// Recomputes the response to the challenge (RFC 7616 §3.4.1) with an independent program.
fn verify(messages: &str, header: &str) {
    let line = messages.lines().find_map(|line| line.strip_prefix(header)?.strip_prefix(": Digest "));
    let line = line.unwrap_or_else(|| panic!("no {header} in\n{messages}"));
    let value = |name: &str| {
        let field = line.split(", ").find_map(|field| field.trim().strip_prefix(name)?.strip_prefix('='));
        field.map(|value| value.trim_matches('"').to_owned())
    };
    let part = |name: &str| value(name).unwrap_or_else(|| panic!("no {name} in {line}"));
    let secret = md5(&format!("account:carrier.example:{PASSWORD}"));
    let what = md5(&format!("INVITE:{}", part("uri")));
    let nonce = part("nonce");
    let expected = match value("qop") {
        Some(qop) => md5(&format!("{secret}:{nonce}:{}:{}:{qop}:{what}", part("nc"), part("cnonce"))),
        None => md5(&format!("{secret}:{nonce}:{what}")),
    };
    assert_eq!(part("response"), expected, "{line}");
    assert!(messages.contains(&format!("INVITE {} SIP/2.0", part("uri"))), "it is for another URI: {line}");
    assert_eq!(value("opaque").as_deref(), Some("x"), "{line}");
}

#[test]
fn a_whole_dialog_from_either_side() {
    whole_dialog("u1", "u1");
}

#[test]
fn a_whole_dialog_over_one_connection() {
    whole_dialog("t1", "t1");
}

#[test]
fn a_whole_dialog_with_one_connection_per_call() {
    whole_dialog("tn", "t1");
}

/// Early media with PRACK, UPDATE and re-INVITE, REFER and NOTIFY, MESSAGE and BYE, along the recorded route.
fn whole_dialog(callers: &'static str, trunks: &'static str) {
    let port = free_port();
    let Some(server) = start(with_trunks(&[target(port, trunks)])) else { return };
    let trunk = trunk("trunk_uas_dialog", &server, port, trunks).start();
    caller("trunk_uac_dialog", &server).mode(callers).run();
    trunk.finish();
}

#[test]
fn a_whole_dialog_from_udp_caller_to_tcp_trunk() {
    whole_dialog("u1", "t1");
}

#[test]
fn a_whole_dialog_from_tcp_caller_to_udp_trunk() {
    whole_dialog("t1", "u1");
}

#[test]
fn a_message_and_a_subscription() {
    for mode in ["u1", "t1"] {
        let port = free_port();
        let Some(server) = start(with_trunks(&[target(port, mode)])) else { return };
        for (caller_plays, trunk_plays) in
            [("trunk_uac_message", "trunk_uas_message"), ("trunk_uac_subscribe", "trunk_uas_subscribe")]
        {
            let trunk = trunk(trunk_plays, &server, port, mode).start();
            caller(caller_plays, &server).mode(mode).run();
            trunk.finish();
        }
    }
}

#[test]
fn a_503_moves_the_call_to_the_next_target() {
    let ports = [free_port(), free_port()];
    let Some(server) = start(with_trunks(&ports.map(|port| target(port, "u1")))) else { return };
    let refusing = trunk("trunk_uas_refuse", &server, ports[0], "u1").key("status", "503").start();
    let taking = trunk("trunk_uas_answer", &server, ports[1], "u1").start();
    caller("uac_call", &server).run();
    refusing.finish();
    taking.finish();
}

#[test]
fn an_absent_tcp_target_is_skipped_at_once() {
    let ports = [free_port(), free_port()];
    let Some(server) = start(with_trunks(&ports.map(|port| target(port, "t1")))) else { return };
    let taking = trunk("trunk_uas_answer", &server, ports[1], "t1").start();
    let began = Instant::now();
    caller("uac_call", &server).mode("t1").run();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    taking.finish();
}

#[test]
fn busy_ends_failover() {
    let ports = [free_port(), free_port()];
    let Some(server) = start(with_trunks(&ports.map(|port| target(port, "u1")))) else { return };
    let busy = trunk("trunk_uas_refuse", &server, ports[0], "u1").key("status", "486").start();
    let other = UdpSocket::bind((CARRIER, ports[1])).expect("the port is free");
    caller("uac_refused", &server).key("status", "486").key("max_forwards", "70").run();
    busy.finish();
    assert!(is_silent(&other), "the second target is asked though the first is busy");
}

#[test]
fn a_silent_target_is_left_after_four_seconds_and_then_avoided() {
    let ports = [free_port(), free_port()];
    let Some(server) = start(with_trunks(&ports.map(|port| target(port, "u1")))) else { return };
    let silent = UdpSocket::bind((CARRIER, ports[0])).expect("the port is free");
    for (least, most) in [(3.5, 5.0), (0.0, 1.5)] {
        let taking = trunk("trunk_uas_answer", &server, ports[1], "u1").start();
        let began = Instant::now();
        caller("uac_call", &server).run();
        let took = began.elapsed().as_secs_f64();
        assert!((least..most).contains(&took), "{took} s");
        taking.finish();
    }
    assert!(!is_silent(&silent), "the first target was asked first");
}

#[test]
fn a_slow_target_is_waited_for() {
    let ports = [free_port(), free_port()];
    let Some(server) = start(with_trunks(&ports.map(|port| target(port, "u1")))) else { return };
    let slow = trunk("trunk_uas_slow", &server, ports[0], "u1").start();
    let other = UdpSocket::bind((CARRIER, ports[1])).expect("the port is free");
    caller("uac_call", &server).run();
    slow.finish();
    assert!(is_silent(&other), "the second target is asked though the first said 100 Trying");
}

#[test]
fn calls_from_a_trunk_need_no_password_and_others_do() {
    let mut config = Config { require: vec!["INVITE"], ..Config::default() };
    config.more =
        format!("\n[[trunk]]\nname = \"carrier\"\ntargets = [\"sip:{CARRIER}:5060\"]\nsources = [\"{CARRIER}\"]\n");
    let Some(server) = start(config) else { return };
    let port = free_port();
    register(&server, "bob", &format!("<sip:bob@127.0.0.1:{port}>"), port);
    let bob = Sipp::new("uas_answer", server.address()).port(port).start();
    caller("uac_call", &server).host(CARRIER).key("callee", "bob").run();
    bob.finish();
    let other = Ipv4Addr::new(127, 0, 0, 10);
    caller("uac_refused", &server)
        .host(other)
        .key("callee", "bob")
        .key("status", "407")
        .key("max_forwards", "70")
        .run();
}

#[test]
fn unrouted_calls_get_the_configured_status() {
    for status in ["403", "603", "404"] {
        let config = Config { proxy: format!("unrouted_status = {status}"), ..Config::open() };
        let Some(server) = start(config) else { return };
        Sipp::new("uac_refused", server.address())
            .key("domain", "elsewhere.example")
            .key("status", status)
            .key("max_forwards", "70")
            .run();
    }
}

//= rfc3581#3:source-port
#[test]
fn server_registers_refreshes_and_leaves_at_a_carrier() {
    let port = free_port();
    let mut config = Config::open();
    config.more = format!(
        r#"
[[trunk]]
name = "carrier"
targets = ["sip:{CARRIER}:{port}"]
register = true
from = "sip:4930123@carrier.example"
username = "account"
password = "{PASSWORD}"
"#
    );
    if !Program::Sipp.available() {
        return;
    }
    let address = (config.host, config.port).into();
    let registrar = Sipp::new("trunk_registrar", address).host(CARRIER).port(port).start();
    let mut server = config.start();
    // The second REGISTER with credentials verified by the registrar is the refresh.
    let renewed = poll(PATIENCE, || (registrar.messages().matches("SIP/2.0 200 OK").count() >= 2).then_some(()));
    assert!(renewed.is_some(), "the registration is not renewed:\n{}", registrar.messages());
    server.terminate();
    registrar.finish();
}

/// A real Kamailio asks for credentials, verifies them, and forwards the call to a phone behind it.
#[test]
fn kamailio_as_a_trunk_takes_our_credentials() {
    if !Program::Kamailio.available() {
        return;
    }
    let (port, phone) = (free_port(), free_port());
    let Some(server) = start(with_account(&format!("sip:{CARRIER}:{port}"))) else { return };
    let kamailio = Kamailio::start(CARRIER, port, PASSWORD, phone);
    let callee = Sipp::new("uas_answer", server.address()).host(CARRIER).port(phone).start();
    caller("uac_call", &server).run();
    callee.finish();
    drop(kamailio);
}

/// Returns a configuration that routes numbers to a trunk at `targets`, in order.
fn with_trunks(targets: &[String]) -> Config {
    let targets: Vec<String> = targets
        .iter()
        .enumerate()
        .map(|(priority, uri)| format!("{{ uri = \"{uri}\", priority = {priority} }}"))
        .collect();
    let trunk = format!("\n[[trunk]]\nname = \"carrier\"\ntargets = [{}]\n", targets.join(", "));
    Config { tcp: true, more: trunk + ROUTE, ..Config::open() }
}

fn with_account(target: &str) -> Config {
    let trunk = format!(
        "\n[[trunk]]\nname = \"carrier\"\ntargets = [\"{target}\"]\nusername = \"account\"\npassword = \"{PASSWORD}\"\n"
    );
    Config { more: trunk + ROUTE, ..Config::open() }
}

/// Route of all numbers to the trunk.
const ROUTE: &str = "\n[[route]]\nmatch = { domain = \"example.com\", prefix = \"0\" }\ntrunk = \"carrier\"\n";

fn target(port: u16, mode: &str) -> String {
    let transport = if mode.starts_with('t') { ";transport=tcp" } else { "" };
    format!("sip:{CARRIER}:{port}{transport}")
}

/// Returns the `SIPp` that plays the trunk.
fn trunk(scenario: &'static str, server: &Server, port: u16, mode: &'static str) -> Sipp {
    Sipp::new(scenario, server.address()).host(CARRIER).port(port).mode(mode)
}

/// Returns the `SIPp` that calls a number of the trunk.
fn caller(scenario: &'static str, server: &Server) -> Sipp {
    Sipp::new(scenario, server.address()).key("callee", "030123456")
}

/// Starts a server, or returns `None` if `sipp` is not installed.
fn start(config: Config) -> Option<Server> {
    Program::Sipp.available().then(|| config.start())
}

fn is_silent(socket: &UdpSocket) -> bool {
    socket.set_nonblocking(true).expect("a socket can be set not to block");
    socket.recv(&mut [0; 64]).is_err()
}
