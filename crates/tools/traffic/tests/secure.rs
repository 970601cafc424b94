//! Calls over TLS and WebSockets, with both ends in this process or against other servers.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use rcgen::{CertificateParams, DnType, KeyPair};
use strowger_foundation::Transport;
use strowger_traffic::driver::ConnectionLifetime;
use strowger_traffic::engine::{PhaseReport, Plan, Report, Run};
use strowger_traffic::options::{CalleeLocation, Options, SecureOptions, Target, workload};
use strowger_traffic::report::RunDescription;
use tempfile::TempDir;
use tungstenite::handshake::server::{Request, Response};

/// A certificate for this machine, which is its own authority.
struct Certificate {
    folder: TempDir,
}

impl Certificate {
    fn new(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let texts: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(texts).expect("names");
        params.distinguished_name.push(DnType::CommonName, names[0]);
        let pair = KeyPair::generate().expect("a key");
        let made = params.self_signed(&pair).expect("a certificate");
        fs::write(folder.path().join("certificate.pem"), made.pem()).expect("a file");
        let key = folder.path().join("key.pem");
        fs::write(&key, pair.serialize_pem()).expect("a file");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("our file");
        Self { folder }
    }

    /// Options of a process that has it and trusts it.
    fn options(&self) -> SecureOptions {
        let path = |name| Some(self.folder.path().join(name));
        SecureOptions {
            ca: path("certificate.pem"),
            certificate: path("certificate.pem"),
            key: path("key.pem"),
            ..SecureOptions::default()
        }
    }
}

fn options(name: &str, transport: Transport, secure: SecureOptions) -> Options {
    let to = Target::new(transport, SocketAddr::from(([127, 0, 0, 1], 9)));
    let mut options = Options::new(workload(name).expect("built in"), Some(to), 7);
    (options.callee_location, options.secure) = (CalleeLocation::Local, secure);
    (options.rate, options.calls, options.drain) = (400.0, Some(200), Some(Duration::from_secs(5)));
    options
}

fn run(plan: Plan) -> Report {
    Run::prepare(plan).expect("sockets").go().expect("a run")
}

fn measured(report: &Report) -> &PhaseReport {
    let phase = report.measured().expect("one phase");
    assert!(phase.caller.began.add_up(), "{:?}", phase.caller.began);
    phase
}

#[test]
fn all_calls_succeed_over_every_transport_and_lifetime() {
    let certificate = Certificate::new(&["127.0.0.1"]);
    for transport in [Transport::Tls, Transport::Ws, Transport::Wss] {
        let secure = if transport.is_secure() { certificate.options() } else { SecureOptions::default() };
        for (lifetime, handshakes) in [
            (ConnectionLifetime::Transaction, 400..=400),
            (ConnectionLifetime::Dialog, 200..=200),
            // Those that were opened beforehand may have been counted before the phase.
            (ConnectionLifetime::Persistent, 0..=8),
            (ConnectionLifetime::PersistentWithOpen, 4..=8),
        ] {
            let mut options = options("proxy-200", transport, secure.clone());
            (options.connection_lifetime, options.connections, options.threads) = (lifetime, 4, 2);
            let report = run(options.plan().expect("a plan").0);
            let phase = measured(&report);
            assert_eq!(phase.caller.began.carried, 200, "{transport} {lifetime:?}: {:?}", phase.caller.failures);
            let counted = phase.handshakes();
            let count = counted.times.count();
            assert!(handshakes.contains(&count), "{transport} {lifetime:?}: {count}");
            assert_eq!(counted.failed(), 0, "{transport} {lifetime:?}: {:?}", counted.failures);
        }
    }
}

#[test]
fn handshakes_continue_sessions_unless_that_is_off() {
    let certificate = Certificate::new(&["127.0.0.1"]);
    for is_off in [false, true] {
        let secure = SecureOptions { has_no_resumption: is_off, ..certificate.options() };
        let mut options = options("proxy-200", Transport::Tls, secure);
        options.connection_lifetime = ConnectionLifetime::Dialog;
        // So seldom that each handshake finds the ticket of the one before, also on a busy machine.
        (options.rate, options.calls) = (50.0, Some(100));
        let (plan, about) = options.plan().expect("a plan");
        let report = run(plan);
        let handshakes = measured(&report).handshakes();
        let share = handshakes.resumed_share();
        assert!(if is_off { share == 0.0 } else { share > 0.8 }, "{share}");
        let text = report.to_text(&about);
        assert!(text.contains("handshakes 100 ("), "{text}");
        let json = report.to_json(&about);
        assert_eq!((&json["handshakes"]["count"], &json["handshakes"]["failed"]), (&100.into(), &0.into()), "{json}");
        assert_eq!(json["declared"]["resumption"].as_str().is_some_and(|text| text.starts_with("off")), is_off);
    }
}

#[test]
fn a_certificate_that_does_not_fit_is_the_reason_of_the_failure() {
    let good = Certificate::new(&["127.0.0.1"]);
    let other = Certificate::new(&["elsewhere.example"]);
    let distrusted = SecureOptions { ca: good.options().ca, ..other.options() };
    for (secure, expected) in [(other.options(), "elsewhere.example"), (distrusted, "(--ca)")] {
        let mut options = options("proxy-200", Transport::Tls, secure.clone());
        (options.connection_lifetime, options.calls) = (ConnectionLifetime::Dialog, Some(10));
        let report = run(options.plan().expect("a plan").0);
        let handshakes = measured(&report).handshakes();
        assert_eq!((handshakes.times.count(), handshakes.failed()), (0, 10), "{:?}", handshakes.failures);
        assert!(handshakes.failures.keys().all(|reason| reason.contains(expected)), "{:?}", handshakes.failures);
        // Whoever does not ask does not learn it, and says so.
        options.secure = SecureOptions { is_unverified: true, ca: None, ..secure };
        let (plan, about) = options.plan().expect("a plan");
        let report = run(plan);
        assert_eq!(measured(&report).caller.began.carried, 10);
        let text = report.to_text(&about);
        assert!(text.contains("server certificate: not checked (--no-verify)"), "{text}");
    }
}

#[test]
fn options_that_do_not_fit_are_errors_with_a_remedy() {
    let certificate = Certificate::new(&["127.0.0.1"]);
    let error = |transport, secure| match options("proxy-200", transport, secure).plan() {
        Ok((plan, _)) => Run::prepare(plan).expect_err("it does not fit").to_string(),
        Err(error) => error.to_string(),
    };
    let without = error(Transport::Tls, SecureOptions::default());
    assert!(without.contains("--certificate and --key"), "{without}");
    let half = error(Transport::Wss, SecureOptions { key: None, ..certificate.options() });
    assert!(half.contains("give both"), "{half}");
    let needless = error(Transport::Tcp, certificate.options());
    assert!(needless.contains("begin the target with tls:"), "{needless}");
    let missing = SecureOptions { ca: Some("nowhere.pem".into()), ..SecureOptions::default() };
    let missing = error(Transport::Tls, missing);
    assert!(missing.contains("nowhere.pem cannot be read"), "{missing}");
}

/// A WebSocket server by another implementation that answers OPTIONS on `count` connections.
#[expect(clippy::result_large_err, reason = "the type is tungstenite's")]
fn answer(listener: &TcpListener, count: usize) -> Vec<String> {
    let mut requests = Vec::new();
    for _ in 0..count {
        let (stream, _) = listener.accept().expect("a connection");
        let select = |request: &Request, mut response: Response| {
            assert_eq!(request.headers()["Sec-WebSocket-Protocol"], "sip");
            response.headers_mut().insert("Sec-WebSocket-Protocol", "sip".parse().expect("a value"));
            Ok(response)
        };
        let mut socket = tungstenite::accept_hdr(stream, select).expect("an upgrade");
        socket.send(tungstenite::Message::Ping("are you there?".into())).expect("a ping");
        while let Ok(message) = socket.read() {
            match message {
                tungstenite::Message::Text(text) => {
                    let is_copied = |line: &&str| {
                        ["Via", "From", "To", "Call-ID", "CSeq"]
                            .iter()
                            .any(|name| line.starts_with(&format!("{name}:")))
                    };
                    let copied: Vec<_> = text.lines().filter(is_copied).collect();
                    let response = format!("SIP/2.0 200 OK\r\n{}\r\n\r\n", copied.join("\r\n"));
                    socket.send(tungstenite::Message::Text(response.into())).expect("sent");
                    requests.push(text.to_string());
                }
                tungstenite::Message::Close(frame) => {
                    assert_eq!(frame.expect("a reason").code, tungstenite::protocol::frame::coding::CloseCode::Normal);
                }
                tungstenite::Message::Pong(payload) => assert_eq!(&payload[..], b"are you there?"),
                other => panic!("unexpected: {other:?}"),
            }
        }
    }
    requests
}

#[test]
fn another_websocket_server_understands_us() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = Target::new(Transport::Ws, listener.local_addr().expect("bound"));
    let server = std::thread::spawn(move || answer(&listener, 5));
    let mut options = options("handshake", Transport::Ws, SecureOptions::default());
    (options.to, options.callee_location) = (Some(to), CalleeLocation::Remote);
    (options.outstanding, options.calls) = (Some(1), Some(5));
    let report = run(options.plan().expect("a plan").0);
    let phase = measured(&report);
    assert_eq!(phase.caller.began.carried, 5, "{:?} {:?}", phase.caller.failures, phase.handshakes().failures);
    let requests = server.join().expect("it understands all");
    // RFC 7118: a client that cannot be reached names no address.
    for request in requests {
        assert!(request.contains("Via: SIP/2.0/WS c") && request.contains(".invalid;"), "{request}");
        assert!(request.contains("transport=WS"), "{request}");
    }
}

#[test]
fn a_server_that_does_not_upgrade_is_the_reason_of_the_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = Target::new(Transport::Ws, listener.local_addr().expect("bound"));
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = [0; 1024];
        let length = stream.read(&mut request).expect("a request");
        assert!(request[..length].starts_with(b"GET / HTTP/1.1\r\n"));
        stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").expect("sent");
    });
    let mut options = options("handshake", Transport::Ws, SecureOptions::default());
    (options.to, options.callee_location, options.calls) = (Some(to), CalleeLocation::Remote, Some(1));
    let report = run(options.plan().expect("a plan").0);
    server.join().expect("it was asked");
    let failures = measured(&report).handshakes().failures;
    assert!(failures.keys().all(|reason| reason.contains("404")) && failures.len() == 1, "{failures:?}");
    let text = report.to_text(&RunDescription::default());
    assert!(text.contains("1 handshakes failed: the server did not open the WebSocket"), "{text}");
}
