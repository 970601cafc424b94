//! Packet captures of traces, read by Wireshark's `tshark`: it finds the messages that the trace shows, whatever their
//! transport.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use strowger_interop::{
    Callee, Caller, Certificate, Config, PATIENCE, Program, Route, Server, Tshark, binary, call_over_all_transports,
    free_port, have_both_calls_ended, poll, traced_messages,
};

/// Asserts that all checksums are right and that the segments of connections follow each other.
fn assert_packets_are_right(file: &Path) {
    let checked = || {
        let all = ["ip.check_checksum:TRUE", "udp.check_checksum:TRUE", "tcp.check_checksum:TRUE"];
        all.into_iter().fold(Tshark::read(file), |tshark, setting| tshark.option("-o", setting))
    };
    let wrong = "ip.checksum.status == 0 || udp.checksum.status == 0 || tcp.checksum.status == 0 || _ws.malformed || \
                 tcp.analysis.flags";
    assert_eq!(checked().fields(wrong, &["frame.number", "_ws.col.Info"]), Vec::<Vec<String>>::new());
    let right = "ip.checksum.status == 1 && (udp.checksum.status == 1 || tcp.checksum.status == 1)";
    let count = checked().fields("ip && eth", &["frame.number"]).len();
    assert!(count > 0 && checked().fields(right, &["frame.number"]).len() == count, "of {count} packets");
}

#[test]
fn wireshark_finds_the_messages_of_a_trace_on_udp_tcp_and_tls() {
    let needed = [Program::Tshark, Program::Baresip, Program::OpenSsl];
    if !needed.into_iter().all(Program::available) {
        return;
    }
    let certificate = Certificate::new("example.com", Ipv4Addr::LOCALHOST.into());
    let secure = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let listeners = vec![format!("tls:{secure}")];
    let server = Config { tcp: true, listeners, more: certificate.section(), ..Config::default() }.start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace.pcapng");
    let name = file.display().to_string();
    let mut trace = server.trace(&["--ip", "127.0.0.1", "--json", "--pcap", &name]);

    let _phones = call_over_all_transports(&server, secure);
    let are_over = || have_both_calls_ended(&traced_messages(&trace.output())).then_some(());
    assert!(poll(PATIENCE, are_over).is_some(), "two calls with both of their sides:\n{}", trace.output());
    // It ends a trace as Ctrl-C does, which processes in the background may ignore.
    trace.signal("TERM");
    assert!(trace.wait(PATIENCE).is_some(), "a signal ends it");

    let (expected, mut found) = (traced_messages(&trace.output()), Tshark::read(&file).messages());
    // A message is written before it is shown, and the signal may come between.
    found.truncate(expected.len());
    for transport in ["udp", "tcp", "exported_pdu"] {
        let filter = format!("sip && {transport}");
        assert!(!Tshark::read(&file).fields(&filter, &["frame.number"]).is_empty(), "no message over {transport}");
    }
    assert_eq!(found, expected);
    assert_packets_are_right(&file);
    let secrets = Tshark::read(&file).fields("sip.auth.digest.response", &["frame.number"]);
    assert_eq!(secrets.len(), 0, "credentials are masked");
    let text = fs::read(&file).expect("the capture");
    assert!(text.windows(11).any(|window| window == b"Digest ***\r"), "a REGISTER with credentials was captured");
}

/// Starts a server with a callee for every domain.
fn start() -> (Server, Callee) {
    let callee = Callee::start((Ipv4Addr::LOCALHOST, free_port()).into());
    let route = Route { domain: "pool.test", action: "proxy", targets: vec![callee.uri()] };
    (Config { routes: vec![route], ..Config::open() }.start(), callee)
}

#[test]
fn a_capture_can_be_piped_into_another_program() {
    if !Program::Tshark.available() {
        return;
    }
    let (server, _callee) = start();
    // As a user does: strowger ctl trace … --pcap - | wireshark -k -i -
    let mut trace = Command::new(binary())
        .args(["ctl", "-c"])
        .arg(server.file())
        .args(["trace", "--call-id", "piped", "--count", "6", "--pcap", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let tshark = Command::new(Program::Tshark.path())
        .env("HOME", "/nonexistent")
        .args(["-n", "-l", "-i", "-", "-Y", "sip", "-T", "fields", "-e", "sip.Request-Line", "-e", "sip.Status-Line"])
        .stdin(trace.stdout.take().expect("piped"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(trace.stderr.as_mut().expect("piped")).read_line(&mut line).expect("text");
    assert!(line.contains("waiting for messages"), "{line}");
    Caller::new(server.address()).make([&"piped".to_owned()], PATIENCE);
    let ended = poll(PATIENCE, || trace.try_wait().expect("our child"));
    assert!(ended.is_some_and(|status| status.success()), "the trace ends after six messages");
    let output = tshark.wait_with_output().expect("it ends with its input");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().count(), 6, "{text}");
    assert!(text.contains("INVITE sip:") && text.contains("SIP/2.0 200 "), "{text}");
}
