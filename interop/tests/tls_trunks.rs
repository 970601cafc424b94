//! Carriers over TLS: a real Kamailio, with certificates on both sides and calls in both directions; and peers played
//! by `openssl` whose certificates must be refused. Skipped if a program is not installed.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use strowger_interop::bind9::Bind9;
use strowger_interop::{
    Authority, Callee, Caller, Config, IssuedCertificate, Kamailio, PATIENCE, Phone, Process, Program, Route, Server,
    free_port, poll,
};
use tempfile::TempDir;

const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Returns the configuration of a server that listens on TLS at `address`, with this certificate.
fn over_tls(
    config: Config,
    address: SocketAddr,
    (authority, own): (&Authority, &IssuedCertificate),
    tls: &str,
) -> Config {
    let more = config.more + &authority.section(own, tls);
    Config { listeners: vec![format!("tls:{address}")], more, ..config }
}

fn loopback() -> SocketAddr {
    (HOST, free_port()).into()
}

#[test]
fn kamailio_is_a_trunk_in_both_directions() {
    if !Kamailio::speaks_tls() || !Program::Baresip.available() {
        return;
    }
    let Some(authority) = Authority::new() else { return };
    let own = authority.issue("server", "DNS:example.com,IP:127.0.0.1");
    let theirs = authority.issue("carrier", "DNS:carrier.example,IP:127.0.0.1");
    let (address, phone) = (loopback(), Callee::start(loopback()));
    let (port, secure) = (free_port(), free_port());
    let more = format!(
        "\n[[trunk]]\nname = \"carrier\"\ntargets = [\"sip:{HOST}:{secure};transport=tls\"]\n\
         certificate_domains = [\"carrier.example\"]\n\n[[route]]\n\
         match = {{ domain = \"example.com\", prefix = \"9\" }}\ntrunk = \"carrier\"\n"
    );
    let config = Config { more, ..Config::default() };
    let server = over_tls(config, address, (&authority, &own), "client_certificates = \"optional\"").start();
    let kamailio = Kamailio::secure((HOST, port), secure, (&theirs, &authority), (phone.address().port(), address));

    let mut alice = Phone::start("alice");
    assert_eq!(alice.register_over("tls", address).kind, "REGISTER_OK");
    for number in 1..=2 {
        alice.dial("sip:9030123456@example.com");
        alice.expect("CALL_ESTABLISHED");
        alice.hang_up();
        alice.expect_closed();
        assert_eq!(phone.calls().len(), number);
    }
    let is_over = || phone.calls().iter().all(|call| call.is_acknowledged && call.requests.len() == 1);
    assert!(poll(PATIENCE, || is_over().then_some(())).is_some(), "{:?}", phone.calls());

    // Its certificate is its password; anybody else would get 407.
    let mut caller = Caller::new(kamailio.address());
    caller.call_whom("sip:alice@example.com");
    caller.begin_with("inwards", "", true);
    alice.expect("CALL_INCOMING");
    alice.accept();
    caller.settle(PATIENCE);
    assert_eq!(caller.call("inwards").answer.map(|(status, _)| status), Some(200));
    alice.expect_closed();
    let failures = &server.status()["counters"]["connections"]["tls_failures"];
    assert_eq!(*failures, 0, "{}", server.log());
}

/// A peer played by `openssl s_server`.
struct SecurePeer {
    address: SocketAddr,
    _process: Process,
    _folder: TempDir,
}

impl SecurePeer {
    fn start(own: &IssuedCertificate, more: &[&str]) -> SecurePeer {
        let address = loopback();
        let folder = tempfile::tempdir().expect("a folder");
        let [certificate, key] = [&own.certificate, &own.key].map(|file| file.display().to_string());
        let place = address.to_string();
        let words = ["s_server", "-accept", &place, "-cert", &certificate, "-key", &key, "-quiet"];
        let words: Vec<String> = words.iter().chain(more).map(|word| (*word).to_owned()).collect();
        // It ends when its input does.
        let process = Process::start_interactive(Path::new("openssl"), &words, folder.path().join("log"));
        let is_open = || std::net::TcpStream::connect(address).is_ok().then_some(());
        assert!(poll(PATIENCE, is_open).is_some(), "openssl does not listen: {}", process.errors());
        SecurePeer { address, _process: process, _folder: folder }
    }
}

/// Calls until the log says why the target is refused.
fn expect_refusal(server: &Server, domain: &str, reason: &str) {
    let number = std::cell::Cell::new(0);
    let said = poll(PATIENCE, || {
        let mut caller = Caller::new(server.address());
        caller.call_whom(&format!("sip:you@{domain}"));
        let call = format!("{domain}-{}", number.get());
        number.set(number.get() + 1);
        caller.begin(&call);
        caller.settle(PATIENCE);
        let status = caller.call(&call).answer.map(|(status, _)| status);
        assert!(status.is_some_and(|status| (500..600).contains(&status)), "{domain}: {status:?}");
        server.log().lines().any(|line| line.contains("no TLS connection") && line.contains(reason)).then_some(())
    });
    assert!(said.is_some(), "{domain}: no {reason:?} in\n{}", server.log());
}

#[test]
fn targets_with_a_faulty_certificate_are_refused_with_a_reason() {
    let (Some(authority), Some(stranger)) = (Authority::new(), Authority::new()) else { return };
    let here = "IP:127.0.0.1";
    let own = authority.issue("server", here);
    let revoked = authority.issue("revoked", here);
    let list = authority.revoke(&revoked);
    let strangers_ca = stranger.ca().display().to_string();
    let demanding = ["-Verify", "1", "-verify_return_error", "-CAfile", &strangers_ca];
    let cases: [(&'static str, IssuedCertificate, &[&str], &str); 6] = [
        ("wrong.test", authority.issue("wrong", "DNS:carrier.example,IP:192.0.2.1"), &[], "not for 127.0.0.1"),
        ("expired.test", authority.issue_expired("expired", here), &[], "it has expired"),
        ("self.test", authority.self_signed("self", here), &[], "no trusted authority signed it (tls.ca)"),
        ("strange.test", stranger.issue("strange", here), &[], "no trusted authority signed it (tls.ca)"),
        ("revoked.test", revoked, &[], "it is revoked (tls.crl)"),
        // Under TLS 1.3 it says so only after the handshake.
        ("demanding.test", authority.issue("demanding", here), &demanding, "it does not trust our certificate"),
    ];
    let peers = cases.each_ref().map(|(_, own, more, _)| SecurePeer::start(own, more));
    let routes = cases.iter().zip(&peers).map(|((domain, ..), peer)| Route {
        domain,
        action: "proxy",
        targets: vec![format!("sip:{};transport=tls", peer.address)],
    });
    let config = Config { routes: routes.collect(), ..Config::open() };
    let crl = format!("crl = {list:?}");
    let server = over_tls(config, loopback(), (&authority, &own), &crl).start();
    for (domain, _, _, reason) in &cases {
        expect_refusal(&server, domain, reason);
    }
}

#[test]
fn clients_with_a_faulty_certificate_are_refused_with_a_reason() {
    let (Some(authority), Some(stranger)) = (Authority::new(), Authority::new()) else { return };
    let own = authority.issue("server", "DNS:example.com,IP:127.0.0.1");
    let revoked = authority.issue("revoked", "DNS:carrier.example");
    let crl = authority.revoke(&revoked);
    let address = loopback();
    let tls = format!("client_certificates = \"required\"\ncrl = {crl:?}");
    let server = over_tls(Config::open(), address, (&authority, &own), &tls).start();
    let connect = |own: Option<&IssuedCertificate>, version: &str| {
        let mut client = Command::new("openssl");
        client.args(["s_client", "-connect", &address.to_string(), version, "-quiet", "-no_ign_eof", "-CAfile"]);
        client.arg(authority.ca());
        if let Some(own) = own {
            client.arg("-cert").arg(&own.certificate).arg("-key").arg(&own.key);
        }
        let done = client.stdin(Stdio::null()).output();
        done.expect("openssl runs");
    };
    let good = authority.issue("good", "DNS:carrier.example");
    for (own, reason) in [
        (None, "it has no certificate, but tls.client_certificates requires one"),
        (Some(authority.issue_expired("expired", "DNS:carrier.example")), "it has expired"),
        (Some(authority.self_signed("self", "DNS:carrier.example")), "no trusted authority signed it (tls.ca)"),
        (Some(stranger.issue("strange", "DNS:carrier.example")), "no trusted authority signed it (tls.ca)"),
        (Some(revoked), "it is revoked (tls.crl)"),
    ] {
        for version in ["-tls1_2", "-tls1_3"] {
            let before = server.log().matches(reason).count();
            let said = poll(PATIENCE, || {
                connect(own.as_ref(), version);
                (server.log().matches(reason).count() > before).then_some(())
            });
            assert!(said.is_some(), "{version}: no {reason:?} in\n{}", server.log());
        }
    }
    let handshakes = || server.status()["counters"]["connections"]["tls_handshakes"].clone();
    assert_eq!(handshakes(), 0);
    connect(Some(&good), "-tls1_3");
    assert!(poll(PATIENCE, || (handshakes() == 1).then_some(())).is_some(), "{}", server.log());
}

#[test]
fn a_key_that_others_may_read_is_noticed() {
    let Some(authority) = Authority::new() else { return };
    let own = authority.issue("server", "DNS:example.com");
    let server = over_tls(Config::open(), loopback(), (&authority, &own), "").start();
    fs::set_permissions(&own.key, fs::Permissions::from_mode(0o644)).expect("our file");
    let warned = poll(PATIENCE, || server.log().contains("a private key that other users may read").then_some(()));
    assert!(warned.is_some(), "{}", server.log());
}

/// The domain that is called is in the certificate, not the name of the machine that the DNS answers.
//= rfc3263#4.1:certificates
#[test]
fn a_domain_is_found_by_naptr_and_proven_by_certificate() {
    if !Bind9::available() {
        return;
    }
    let Some(authority) = Authority::new() else { return };
    let machine = authority.issue("machine", "DNS:host.example.com");
    let domain = authority.issue("domain", "DNS:carrier.example.com");
    let own = authority.issue("server", "DNS:example.com");
    let phone = Callee::start(loopback());
    let carriers = [&machine, &domain].map(|own| {
        let route = Route { domain: "*", action: "proxy", targets: vec![phone.uri()] };
        let address = loopback();
        let config =
            Config { domains: vec!["elsewhere.example.com"], users: Vec::new(), routes: vec![route], ..Config::open() };
        (over_tls(config, address, (&authority, own), "").start(), address)
    });
    let [wrong, right] = carriers.each_ref().map(|(_, address)| address.port());
    let named = Bind9::start(
        "example.com",
        1,
        &format!(
            "carrier IN NAPTR 10 50 \"s\" \"SIPS+D2T\" \"\" _sips._tcp.carrier\n\
             carrier IN NAPTR 5 50 \"s\" \"SIP+D2U\" \"\" _sip._udp.carrier\n\
             _sip._udp.carrier IN SRV 0 0 1 host\n_sips._tcp.carrier IN SRV 1 0 {right} host\n\
             other IN NAPTR 10 50 \"s\" \"SIPS+D2T\" \"\" _sips._tcp.other\n\
             _sips._tcp.other IN SRV 1 0 {wrong} host\nhost IN A 127.0.0.1\n"
        ),
    );
    let route =
        |domain: &'static str, target: &str| Route { domain, action: "proxy", targets: vec![target.to_owned()] };
    let config = Config {
        routes: vec![route("right.test", "sips:carrier.example.com"), route("wrong.test", "sips:other.example.com")],
        more: format!("\n[dns]\nservers = [\"{}\"]\n", named.address()),
        ..Config::open()
    };
    let server = over_tls(config, loopback(), (&authority, &own), "").start();
    let mut caller = Caller::new(server.address());
    caller.call_whom("sip:you@right.test");
    caller.make(&["one".to_owned(), "two".to_owned()], PATIENCE);
    for call in ["one", "two"] {
        let (status, log) = (caller.call(call).answer.map(|(status, _)| status), server.log());
        assert_eq!(status, Some(200), "{log}");
    }
    assert_eq!(phone.calls().len(), 2);
    let opened = || server.status()["counters"]["connections"]["opened"] == 1;
    assert!(poll(PATIENCE, || opened().then_some(())).is_some(), "one connection: {}", server.status());
    expect_refusal(&server, "wrong.test", "it speaks for host.example.com, not for other.example.com");
}
