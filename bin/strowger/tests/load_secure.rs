//! `strowger load` over TLS and WebSockets against a Strowger server.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use common::load::{number, report, sound_report};
use common::server::Server;
use common::{Folder, free_address};
use serde_json::Value;

/// Writes a certificate of 127.0.0.1, and its key, into a folder.
fn make_certificate(folder: &Folder) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    folder.write("certificate.pem", &made.cert.pem());
    folder.write("key.pem", &made.signing_key.serialize_pem());
    let key = folder.path().join("key.pem");
    fs::set_permissions(key, fs::Permissions::from_mode(0o600)).expect("our file");
}

/// Starts a server that also listens for TLS. Returns it with that target.
fn start(more: &str) -> (Server, String) {
    start_over("tls", more)
}

fn start_over(transport: &str, more: &str) -> (Server, String) {
    let (folder, address) = Server::prepare("server.domains = [\"127.0.0.1\"]\n");
    make_certificate(&folder);
    let secure = free_address();
    let config = fs::read_to_string(folder.path().join("strowger.toml")).expect("a configuration");
    let listen = format!("server.listen = [\"udp:{address}\", \"{transport}:{secure}\"]");
    let config = config.replace(&format!("server.listen = [\"udp:{address}\"]"), &listen);
    let certificates = "tls.certificates = [{ certificate = \"certificate.pem\", key = \"key.pem\" }]";
    folder.write("strowger.toml", &format!("{config}\n{certificates}\n{more}\n"));
    let command = folder.command(&["serve"]);
    (Server::started_by(command, folder, address), format!("{transport}:{secure}"))
}

fn run(server: &Server, arguments: &[&str]) -> Value {
    sound_report(&server.folder, &[&["load", "run", "--rate", "100", "--calls", "100"], arguments].concat()).0
}

#[test]
fn calls_and_handshakes_over_tls() {
    let (server, to) = start("");
    let trusted = ["--to", &to, "--ca", "certificate.pem", "--users", "10"];
    let calls = run(&server, &trusted);
    assert_eq!(number(&calls, "carried"), 100, "{calls}");
    assert_eq!(calls["preparation"][0]["carried"], 10, "callees without a certificate registered: {calls}");
    assert_eq!(calls["declared"]["server certificate"], "checked against certificate.pem");
    // A callee keeps its connection while callers have one for each call.
    let calls = run(&server, &[&trusted[..], &["--connect", "dialog"]].concat());
    assert_eq!((number(&calls, "carried"), &calls["handshakes"]["count"]), (100, &100.into()), "{calls}");
    // Requests in dialogs from either side.
    let calls = run(&server, &[&trusted[..], &["--workload", "mid-call", "--set", "hold=50ms"]].concat());
    assert_eq!(number(&calls, "carried"), 100, "{calls}");
    for request in ["OPTIONS", "REGISTER"] {
        let set = format!("request={request}");
        let shaken = run(&server, &[&trusted[..], &["--workload", "handshake", "--set", &set]].concat());
        assert_eq!((number(&shaken, "carried"), &shaken["handshakes"]["count"]), (100, &100.into()), "{shaken}");
        assert_eq!(shaken["messages_sent"][request], 100);
    }
    let full = run(&server, &[&trusted[..], &["--workload", "handshake", "--resumption", "off"]].concat());
    assert_eq!(full["handshakes"]["resumed"], 0, "{full}");
    let status = server.status();
    assert_eq!(status["counters"]["connections"]["tls_failures"], 0, "{status}");
}

#[test]
fn calls_and_handshakes_over_websockets() {
    for (transport, unchecked) in [("ws", &[][..]), ("wss", &["--no-verify"])] {
        let (server, to) = start_over(transport, "websocket.origins = []");
        let usual = [&["--to", &to, "--domain", "127.0.0.1", "--users", "10"], unchecked].concat();
        for more in [&[][..], &["--connect", "dialog"], &["--workload", "mid-call", "--set", "hold=50ms"]] {
            let calls = run(&server, &[&usual, more].concat());
            assert_eq!(number(&calls, "carried"), 100, "{to} {more:?}: {calls}");
        }
        let shaken = run(&server, &[&usual[..], &["--workload", "handshake"]].concat());
        assert_eq!((number(&shaken, "carried"), &shaken["handshakes"]["count"]), (100, &100.into()), "{shaken}");
    }
}

#[test]
fn mutual_tls_needs_a_certificate() {
    let (server, to) = start("tls.client_certificates = \"required\"\ntls.ca = \"certificate.pem\"");
    let handshakes = ["--to", &to, "--ca", "certificate.pem", "--workload", "handshake"];
    let own = ["--certificate", "certificate.pem", "--key", "key.pem"];
    let good = run(&server, &[&handshakes[..], &own].concat());
    assert_eq!(number(&good, "carried"), 100, "{good}");
    let arguments = [&["load", "run", "--rate", "100", "--calls", "20"], &handshakes[..]].concat();
    let bad = server.folder.run(&arguments);
    assert_eq!(bad.code, Some(1), "{bad:?}");
}

#[test]
fn a_distrusted_server_is_an_error_that_says_why() {
    let (server, to) = start("");
    let other = Folder::new("");
    make_certificate(&other);
    let ca = other.path().join("certificate.pem");
    let ran = server.folder.run(&["load", "run", "--to", &to, "--ca", ca.to_str().expect("UTF-8"), "--calls", "10"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains(&format!("no connection to {to} could be used: its certificate is refused")), "{ran:?}");
    let arguments = ["load", "run", "--to", &to, "--no-verify", "--rate", "100", "--calls", "10", "--users", "5"];
    let (unchecked, ran) = report(&server.folder, &arguments);
    assert_eq!(number(&unchecked, "carried"), 10, "{unchecked}");
    assert!(ran.out.contains("server certificate: not checked (--no-verify)"), "{ran:?}");
    let both = server.folder.run(&[&arguments[..], &["--ca", "certificate.pem"]].concat());
    assert_eq!(both.code, Some(2), "{both:?}");
    let udp = server.folder.run(&["load", "run", "--to", "udp:127.0.0.1:9", "--no-verify"]);
    assert!(udp.code == Some(2) && udp.err.contains("begin the target with tls:"), "{udp:?}");
}
