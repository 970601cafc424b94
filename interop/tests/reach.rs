//! `baresip` phones that reach each other across transports and address families. Skipped if `baresip` is not
//! installed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde_json::Value;
use strowger_interop::{Authority, Config, Namespace, PATIENCE, Phone, Program, Server, free_port, poll};

const ALICE: &str = "sip:alice@example.com";
const BOB: &str = "sip:bob@example.com";
const RECORDS: &str = "[cdr]\nfile = \"cdr.json\"\n";

#[test]
fn tcp_to_tcp() {
    on_loopback("tcp", "tcp");
}

#[test]
fn tcp_to_udp() {
    on_loopback("tcp", "udp");
}

#[test]
fn udp_to_tcp() {
    on_loopback("udp", "tcp");
}

#[test]
fn tls_to_tls() {
    on_loopback("tls", "tls");
}

#[test]
fn tls_to_udp() {
    on_loopback("tls", "udp");
}

#[test]
fn tcp_to_tls() {
    on_loopback("tcp", "tls");
}

#[test]
fn ipv6_to_ipv4() {
    across_families(("udp", V6), ("udp", V4));
}

#[test]
fn ipv4_to_ipv6() {
    across_families(("udp", V4), ("udp", V6));
}

#[test]
fn tcp_over_ipv6_to_udp_over_ipv4() {
    across_families(("tcp", V6), ("udp", V4));
}

#[test]
fn tls_over_ipv6_to_udp_over_ipv4() {
    across_families(("tls", V6), ("udp", V4));
}

fn on_loopback(alices: &str, bobs: &str) {
    if !Program::Baresip.available() {
        return;
    }
    let Some(tls) = Tls::new(alices, bobs) else { return };
    let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let config = Config { tcp: true, ..Config::default() };
    let server = Config { listeners: tls.listeners(host), more: tls.sections(), ..config }.start();
    let [alice, bob] = [("alice", alices), ("bob", bobs)].map(|(name, transport)| {
        let mut phone = Phone::start(name);
        register(&mut phone, transport, tls.address(transport, server.address()));
        phone
    });
    calls_of_all_kinds(&server, alice, bob, (alices, server.address().ip()));
}

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

/// Each phone uses one address family towards the server and supports media over both: the server does not relay
/// media, and a `baresip` with one family refuses offers of the other. On a loopback interface it never uses both.
fn across_families(alices: (&str, IpAddr), bobs: (&str, IpAddr)) {
    if !Program::Baresip.available() || !Namespace::available(&["ip", "nsenter"]) {
        return;
    }
    let network = Namespace::new();
    let (IpAddr::V4(v4), IpAddr::V6(v6)) = (V4, V6) else { unreachable!() };
    network.add_interface("lan", v4, v6);
    let Some(tls) = Tls::new(alices.0, bobs.0) else { return };
    let config = Config { host: V4, tcp: true, more: tls.sections(), ..Config::default() };
    let six = SocketAddr::new(V6, config.port);
    let mut listeners = vec![format!("udp:{six}"), format!("tcp:{six}")];
    listeners.extend(tls.listeners(V6));
    let server = Config { listeners, ..config }.start_in(Some(&network));
    let [alice, bob] = [("alice", alices), ("bob", bobs)].map(|(name, (transport, host))| {
        let mut phone = Phone::start_on(name, "lan", &network);
        register(&mut phone, transport, tls.address(transport, SocketAddr::new(host, server.address().port())));
        phone
    });
    calls_of_all_kinds(&server, alice, bob, alices);
}

/// The server's port for TLS and its certificate, if a phone needs them.
struct Tls {
    port: u16,
    authority: Option<Authority>,
}

impl Tls {
    /// Returns `None` if TLS is needed and `openssl` is not installed.
    fn new(alices: &str, bobs: &str) -> Option<Tls> {
        let authority = if [alices, bobs].contains(&"tls") { Some(Authority::new()?) } else { None };
        Some(Tls { port: free_port(), authority })
    }

    fn listeners(&self, host: IpAddr) -> Vec<String> {
        self.authority.iter().map(|_| format!("tls:{}", SocketAddr::new(host, self.port))).collect()
    }

    fn sections(&self) -> String {
        let section = |authority: &Authority| authority.section(&authority.issue("server", "DNS:example.com"), "");
        RECORDS.to_owned() + &self.authority.as_ref().map(section).unwrap_or_default()
    }

    /// Returns where a transport is listened for, if UDP is at this address.
    fn address(&self, transport: &str, address: SocketAddr) -> SocketAddr {
        if transport == "tls" { SocketAddr::new(address.ip(), self.port) } else { address }
    }
}

fn register(phone: &mut Phone, transport: &str, address: SocketAddr) {
    let event = phone.register_over(transport, address);
    assert_eq!((event.kind.as_str(), event.detail.as_str()), ("REGISTER_OK", "200 OK"));
}

/// Makes calls from Alice to Bob that end in every way, and checks what `ctl calls` and the call records contain.
fn calls_of_all_kinds(server: &Server, mut alice: Phone, mut bob: Phone, way: (&str, IpAddr)) {
    talk(&mut alice, &mut bob);
    assert_listed(server, way);
    alice.hang_up();
    assert_eq!(bob.expect_closed(), "Connection reset by peer");
    assert_eq!(alice.expect_closed(), "Connection reset by user");
    assert_recorded(server, 1, "caller hung up", way);

    talk(&mut alice, &mut bob);
    hold_and_resume(&mut alice, &mut bob);
    hold_and_resume(&mut bob, &mut alice);
    bob.hang_up();
    assert_eq!(alice.expect_closed(), "Connection reset by peer");
    assert_eq!(bob.expect_closed(), "Connection reset by user");
    assert_recorded(server, 2, "callee hung up", way);

    ring(&mut alice, &mut bob);
    alice.hang_up();
    assert_eq!(bob.expect_closed(), "Connection reset by peer");
    assert_eq!(alice.expect_closed(), "Connection reset by user");
    assert_recorded(server, 3, "cancelled", way);

    ring(&mut alice, &mut bob);
    bob.hang_up();
    assert_eq!(alice.expect_closed(), "486 Rejected");
    assert_recorded(server, 4, "rejected", way);
    assert!(server.calls().is_empty(), "{:?}", server.calls());
}

fn ring(alice: &mut Phone, bob: &mut Phone) {
    alice.dial(BOB);
    assert_eq!(bob.expect("CALL_INCOMING").peer, ALICE);
    // The phone adds the transport of its account to the dialed URI.
    assert!(alice.expect("CALL_RINGING").peer.starts_with(BOB));
}

/// Makes a call that is answered, with one offer and one answer.
fn talk(alice: &mut Phone, bob: &mut Phone) {
    ring(alice, bob);
    bob.accept();
    alice.expect("CALL_ESTABLISHED");
    bob.expect("CALL_ESTABLISHED");
    assert_eq!(bob.expect("CALL_REMOTE_SDP").detail, "offer");
    assert_eq!(alice.expect("CALL_REMOTE_SDP").detail, "answer");
}

/// Sends two re-INVITEs.
fn hold_and_resume(holder: &mut Phone, held: &mut Phone) {
    for change in [Phone::hold, Phone::resume] {
        change(holder);
        assert_eq!(held.expect("CALL_REMOTE_SDP").detail, "offer");
        assert_eq!(holder.expect("CALL_REMOTE_SDP").detail, "answer");
    }
}

fn assert_listed(server: &Server, (transport, host): (&str, IpAddr)) {
    let calls = server.calls();
    let [call] = calls.as_slice() else { panic!("one call is in progress, not {calls:?}") };
    assert_eq!((&call["state"], &call["caller"], &call["callee"]), (&"answered".into(), &ALICE.into(), &BOB.into()));
    assert_eq!(call["transport"].as_str().map(str::to_lowercase).as_deref(), Some(transport), "{call}");
    let source = call["source"].as_str().and_then(|source| source.parse::<SocketAddr>().ok());
    assert_eq!(source.map(|source| source.ip()), Some(host), "{call}");
}

/// Asserts the record of the `count`th call to end.
fn assert_recorded(server: &Server, count: usize, reason: &str, (transport, host): (&str, IpAddr)) {
    let records = poll(PATIENCE, || Some(server.records()).filter(|records| records.len() >= count));
    let records = records.unwrap_or_else(|| panic!("there are only the records {:?}", server.records()));
    assert_eq!(records.len(), count, "{records:?}");
    let record: &Value = &records[count - 1];
    assert_eq!(record["reason"], reason, "{record}");
    assert_eq!((&record["caller"], &record["callee"]), (&ALICE.into(), &BOB.into()), "{record}");
    let source = SocketAddr::new(host, 0).to_string();
    let begin = format!("{transport}:{}", source.trim_end_matches('0'));
    assert!(record["source"].as_str().is_some_and(|source| source.starts_with(&begin)), "{begin} in {record}");
    assert_eq!(record["answer"].is_null(), !reason.ends_with("hung up"), "{record}");
}
