//! TLS with real peers: phones over TLS call phones over TLS and UDP, and `openssl` finds only safe versions and
//! suites. Skipped if `baresip` or `openssl` is not installed.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

use strowger_interop::{Certificate, Config, PATIENCE, Phone, Program, Server, free_port, poll};

/// A server that listens on UDP and TLS.
struct SecureServer {
    server: Server,
    address: SocketAddr,
    certificate: Certificate,
}

fn start() -> Option<SecureServer> {
    if !Program::OpenSsl.available() {
        return None;
    }
    let certificate = Certificate::new("example.com", Ipv4Addr::LOCALHOST.into());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let listeners = vec![format!("tls:{address}")];
    let server = Config { listeners, more: certificate.section(), ..Config::default() }.start();
    Some(SecureServer { server, address, certificate })
}

fn over_tls(server: &SecureServer, name: &'static str) -> Phone {
    let mut phone = Phone::start(name);
    let event = phone.register_over("tls", server.address);
    assert_eq!((event.kind.as_str(), event.detail.as_str()), ("REGISTER_OK", "200 OK"));
    phone
}

fn over_udp(server: &SecureServer, name: &'static str) -> Phone {
    let mut phone = Phone::start(name);
    assert_eq!(phone.register(&server.server, &format!("secret of {name}")).kind, "REGISTER_OK");
    phone
}

/// Makes a call that is answered, with audio in both directions, and ends it.
fn talk(caller: &mut Phone, callee: &mut Phone) {
    caller.dial(&format!("sip:{}@example.com", callee.name()));
    callee.expect("CALL_INCOMING");
    caller.expect("CALL_RINGING");
    callee.accept();
    for phone in [&mut *caller, &mut *callee] {
        phone.expect("CALL_ESTABLISHED");
        phone.expect("CALL_RTPESTAB");
    }
    caller.hang_up();
    callee.expect_closed();
    caller.expect_closed();
}

#[test]
fn calls_cross_between_tls_and_udp() {
    if !Program::Baresip.available() {
        return;
    }
    let Some(server) = start() else { return };
    let (mut alice, mut bob) = (over_tls(&server, "alice"), over_udp(&server, "bob"));
    talk(&mut alice, &mut bob);
    talk(&mut bob, &mut alice);
    // Cancelled while it rings.
    alice.dial("sip:bob@example.com");
    bob.expect("CALL_INCOMING");
    alice.hang_up();
    bob.expect_closed();
    alice.expect_closed();
}

#[test]
fn both_phones_use_tls() {
    if !Program::Baresip.available() {
        return;
    }
    let Some(server) = start() else { return };
    let (mut alice, mut bob) = (over_tls(&server, "alice"), over_tls(&server, "bob"));
    talk(&mut alice, &mut bob);
    let status = server.server.status();
    assert_eq!(status["counters"]["connections"]["tls_handshakes"], 2, "{status}");
    assert_eq!(status["counters"]["connections"]["tls_failures"], 0);
}

/// Connects with `openssl s_client`; returns the version and suite, or nothing if the handshake fails.
fn negotiated(server: &SecureServer, options: &[&str]) -> Option<String> {
    let address = server.address.to_string();
    let client = Command::new("openssl")
        .args(["s_client", "-connect", &address, "-servername", "example.com", "-verify_return_error", "-CAfile"])
        .arg(server.certificate.file())
        .args(options)
        .stdin(Stdio::null())
        .output()
        .expect("openssl runs");
    let said = String::from_utf8_lossy(&client.stdout).into_owned();
    let line = said.lines().find(|line| line.starts_with("New, TLS"))?.to_owned();
    Some(line).filter(|_| client.status.success())
}

#[test]
fn openssl_finds_only_safe_versions_and_suites() {
    let Some(server) = start() else { return };
    for (options, found) in [
        (&["-tls1_3"][..], "New, TLSv1.3, Cipher is TLS_AES_256_GCM_SHA384"),
        (&["-tls1_2"], "New, TLSv1.2, Cipher is ECDHE-ECDSA-AES256-GCM-SHA384"),
    ] {
        assert_eq!(negotiated(&server, options).as_deref(), Some(found));
    }
    for weak in [
        &["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"][..],
        &["-tls1", "-cipher", "DEFAULT@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "AES128-SHA:AES256-GCM-SHA384:DHE-RSA-AES128-SHA@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA:NULL-SHA256@SECLEVEL=0"],
    ] {
        assert_eq!(negotiated(&server, weak), None, "{weak:?}");
    }
}

#[test]
fn a_renewed_certificate_is_used_without_a_restart() {
    let Some(server) = start() else { return };
    let domains = || server.server.status()["certificates"][0]["domains"][0].clone();
    assert_eq!(domains(), "example.com");
    assert_eq!(server.server.status()["certificates"][0]["expires_days"], 364);
    server.certificate.renew("renewed.example.com", Ipv4Addr::LOCALHOST.into());
    let renewed = poll(PATIENCE, || (domains() == "renewed.example.com").then_some(()));
    assert!(renewed.is_some(), "{}", server.server.log());
    assert!(negotiated(&server, &[]).is_some(), "the client trusts only the new one");
    // Files that do not belong together change nothing.
    fs::write(server.certificate.file(), "nonsense").expect("our file");
    let told = poll(PATIENCE, || server.server.log().contains("contains no certificate in PEM form").then_some(()));
    assert!(told.is_some(), "{}", server.server.log());
    assert_eq!(domains(), "renewed.example.com");
}
