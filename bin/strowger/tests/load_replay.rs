//! `strowger load replay`: a capture against a Strowger server and against another one, and a Strowger trace.

mod common;

use std::net::SocketAddr;
use std::process::Stdio;

use common::load::{number, sound_report};
use common::server::Server;
use common::{Folder, free_address, signal, until_bound};
use serde_json::Value;

const ALICE: &str = "10.0.0.1:5060";
const PROXY: &str = "10.0.0.5:5060";
const BOB: &str = "10.0.0.9:5060";

/// Appends a datagram to a capture of raw IP.
fn packet(file: &mut Vec<u8>, ms: u32, source: &str, destination: &str, text: &str) {
    let at = |text: &str| -> SocketAddr { text.parse().expect("an address") };
    let length = u16::try_from(text.len()).expect("a datagram");
    let mut packet = vec![0x45, 0];
    packet.extend_from_slice(&(length + 28).to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0]);
    for address in [at(source), at(destination)] {
        let SocketAddr::V4(address) = address else { panic!("of version 4") };
        packet.extend_from_slice(&address.ip().octets());
    }
    for word in [at(source).port(), at(destination).port(), length + 8, 0] {
        packet.extend_from_slice(&word.to_be_bytes());
    }
    packet.extend_from_slice(text.as_bytes());
    let length = u32::try_from(packet.len()).expect("small");
    for word in [1_700_000_000 + ms / 1_000, ms % 1_000 * 1_000, length, length] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&packet);
}

fn message(start: &str, via: &str, cseq: &str, call: &str, is_tagged: bool, contact: &str) -> String {
    let tag = if is_tagged { ";tag=b" } else { "" };
    format!(
        "{start}\r\n{via}Max-Forwards: 70\r\nFrom: <sip:alice@10.0.0.5>;tag=a\r\nTo: <sip:bob@10.0.0.5>{tag}\r\n\
         Call-ID: {call}\r\nCSeq: {cseq}\r\nContact: <sip:{contact}>\r\nX-Kept: yes\r\nContent-Length: 0\r\n\r\n"
    )
}

/// Returns a capture of calls from alice to bob through a proxy, one every 300 ms; the second is refused.
fn capture() -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xA1B2_C3D4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for number in 0..4_u32 {
        let (at, call) = (number * 300, format!("call{number}"));
        let near = "Via: SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bKa\r\n";
        let far = format!("Via: SIP/2.0/UDP 10.0.0.5:5060;branch=z9hG4bKp\r\n{near}");
        let invite = |via: &str| {
            message("INVITE sip:bob@10.0.0.5 SIP/2.0", via, "1 INVITE", &call, false, "alice@10.0.0.1:5060")
        };
        let reply = |status: &str, via: &str, cseq: &str| {
            message(&format!("SIP/2.0 {status}"), via, cseq, &call, true, "bob@10.0.0.9:5060")
        };
        let inside = |method: &str, number: u32| {
            let via = "Via: SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bKd\r\n";
            let start = format!("{method} sip:bob@10.0.0.9:5060 SIP/2.0");
            message(&start, via, &format!("{number} {method}"), &call, true, "alice@10.0.0.1:5060")
        };
        packet(&mut file, at, ALICE, PROXY, &invite(near));
        packet(&mut file, at + 1, PROXY, BOB, &invite(&far));
        packet(&mut file, at + 41, BOB, PROXY, &reply("180 Ringing", &far, "1 INVITE"));
        packet(&mut file, at + 42, PROXY, ALICE, &reply("180 Ringing", near, "1 INVITE"));
        let status = if number == 1 { "486 Busy Here" } else { "200 OK" };
        packet(&mut file, at + 141, BOB, PROXY, &reply(status, &far, "1 INVITE"));
        packet(&mut file, at + 142, PROXY, ALICE, &reply(status, near, "1 INVITE"));
        if number == 1 {
            packet(&mut file, at + 143, ALICE, PROXY, &inside("ACK", 1).replace("z9hG4bKd", "z9hG4bKa"));
        } else {
            packet(&mut file, at + 145, ALICE, BOB, &inside("ACK", 1));
            packet(&mut file, at + 245, ALICE, BOB, &inside("BYE", 2));
            packet(
                &mut file,
                at + 247,
                BOB,
                ALICE,
                &reply("200 OK", "Via: SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bKd\r\n", "2 BYE"),
            );
        }
    }
    file
}

fn folder_with_capture(folder: &Folder) {
    std::fs::write(folder.path().join("calls.pcap"), capture()).expect("written");
}

fn replay(folder: &Folder, arguments: &[&str]) -> (Value, String) {
    let (report, ran) = sound_report(folder, &[&["load", "replay"], arguments].concat());
    (report, ran.out)
}

#[test]
fn both_capture_sides_replay_via_our_server() {
    let server = Server::start("server.domains = [\"127.0.0.1\"]\n");
    folder_with_capture(&server.folder);
    let to = format!("udp:{}", server.address);
    let (report, out) = replay(&server.folder, &["calls.pcap", "--to", &to, "--side", "both", "--seed", "1"]);
    assert_eq!((number(&report, "offered"), number(&report, "carried")), (4, 4), "{report}");
    assert_eq!(report["preparation"][0]["carried"], 1, "bob registered: {report}");
    // Three calls with two responses each, and a refusal.
    assert_eq!(report["record"], serde_json::json!({ "same": 7, "differs": [] }), "{report}");
    assert_eq!((&report["messages_received"]["180"], &report["messages_received"]["486"]), (&4.into(), &1.into()));
    assert!(out.contains("7 answers as recorded"), "{out}");
    // The last call began 900 ms after the first.
    let seconds = report["elapsed_s"].as_f64().unwrap_or_else(|| panic!("{report}"));
    assert!((0.9..5.0).contains(&seconds), "{seconds}");
}

#[test]
fn differences_from_the_recorded_answers_are_reported() {
    let folder = Folder::new("");
    folder_with_capture(&folder);
    let at = free_address();
    let listen = format!("udp:{at}");
    let mut answer = folder.command(&["load", "answer", "--listen", &listen, "--json", "answered.json"]);
    let mut answer = answer.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    until_bound(at);
    let (report, out) = replay(&folder, &["calls.pcap", "--to", &listen, "--user-pattern", "user%4", "--speed", "2"]);
    signal(&answer, "INT");
    drop(answer.wait());
    // The call that was busy in the record is answered here: it is hung up and does not count as a success.
    assert_eq!((number(&report, "carried"), number(&report, "failed")), (3, 1), "{report}");
    assert_eq!(report["record"]["same"], 6);
    let differs = serde_json::json!([{ "method": "INVITE", "recorded": "486", "got": "200", "count": 1 }]);
    assert_eq!(report["record"]["differs"], differs);
    assert!(out.contains("INVITE   differs from the recording: 486 → 200: 1"), "{out}");
}

/// Returns the number of responses to BYEs in a trace.
fn ended_calls(trace: &str) -> usize {
    let is_answer = |line: &&str| line.contains("\"start\":\"SIP/2.0 200") && line.contains(" BYE\"");
    trace.lines().filter(is_answer).count()
}

#[test]
fn a_trace_of_our_server_can_be_replayed() {
    let server = Server::start("server.domains = [\"127.0.0.1\"]\n");
    let file = std::fs::File::create(server.folder.path().join("trace.json")).expect("a file");
    let trace = ["ctl", "trace", "--ip", "127.0.0.1", "--json", "--messages", "--for", "20s"];
    let mut trace = server.folder.command(&trace).stdout(file).stderr(Stdio::null()).spawn().expect("it starts");
    let to = format!("udp:{}", server.address);
    let written = || std::fs::read_to_string(server.folder.path().join("trace.json")).unwrap_or_default();
    // The trace has started once it has output. An ACK without a transaction is not a call and has no response.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    server.until("the trace has begun", || {
        let from = socket.local_addr().expect("bound");
        let ack = format!(
            "ACK sip:nobody@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP {from};branch=z9hG4bKack\r\nMax-Forwards: 70\r\n\
             From: <sip:a@127.0.0.1>;tag=a\r\nTo: <sip:nobody@127.0.0.1>;tag=b\r\nCall-ID: ack\r\nCSeq: 1 ACK\r\n\
             Content-Length: 0\r\n\r\n"
        );
        socket.send_to(ack.as_bytes(), server.address).expect("it goes out");
        !written().is_empty()
    });
    let ran = server.folder.run(&["load", "run", "--to", &to, "--rate", "20", "--calls", "5", "--users", "3"]);
    assert!(ran.code == Some(0) || ran.err.contains("bottleneck"), "{ran:?}");
    // Each message is received and sent; a call ends with the 200 to its BYE.
    server.until("the trace has all calls", || ended_calls(&written()) >= 10);
    let killed = std::process::Command::new("kill").args(["-s", "INT", &trace.id().to_string()]).status();
    assert!(killed.expect("kill runs").success());
    drop(trace.wait());
    let (report, _) = replay(&server.folder, &["trace.json", "--side", "both"]);
    assert_eq!(report["messages_received"]["180"], 5, "{report}\n{}", written());
    // The server itself answered three registrations, which are not replayed.
    assert_eq!((number(&report, "offered"), number(&report, "carried")), (5, 5), "{report}");
}

#[test]
fn a_tcp_trace_is_replayed_through_our_server() {
    let (folder, address) = Server::prepare("");
    let config = std::fs::read_to_string(folder.path().join("strowger.toml")).expect("a configuration");
    let both = format!("[\"udp:{address}\", \"tcp:{address}\"]");
    folder.write("strowger.toml", &config.replace(&format!("[\"udp:{address}\"]"), &both));
    let command = folder.command(&["serve"]);
    let server = Server::started_by(command, folder, address);
    let to = format!("tcp:{}", server.address);
    let file = std::fs::File::create(server.folder.path().join("trace.json")).expect("a file");
    let trace = ["ctl", "trace", "--ip", "127.0.0.1", "--json", "--messages", "--for", "30s"];
    let mut trace = server.folder.command(&trace).stdout(file).stderr(Stdio::null()).spawn().expect("it starts");
    let written = || std::fs::read_to_string(server.folder.path().join("trace.json")).unwrap_or_default();
    // The trace has started once it has output.
    server.until("the trace has begun", || {
        let asked = ["load", "run", "--to", &to, "--workload", "registration", "--calls", "1", "--users", "1"];
        drop(server.folder.run(&asked));
        !written().is_empty()
    });
    let ran = ["load", "run", "--to", &to, "--rate", "20", "--calls", "5", "--users", "3", "--connect", "dialog"];
    let ran = server.folder.run(&ran);
    assert!(ran.code == Some(0) || ran.err.contains("bottleneck"), "{ran:?}");
    server.until("the trace has all calls", || ended_calls(&written()) >= 10);
    let killed = std::process::Command::new("kill").args(["-s", "INT", &trace.id().to_string()]).status();
    assert!(killed.expect("kill runs").success());
    drop(trace.wait());
    for connect in ["persistent", "dialog", "transaction"] {
        let (report, out) =
            replay(&server.folder, &["trace.json", "--to", &to, "--side", "both", "--connect", connect]);
        assert_eq!(report["messages_received"]["180"], 5, "{connect}: {report}\n{out}");
        assert_eq!(report["record"]["differs"], serde_json::json!([]), "{connect}: {report}");
        assert_eq!(number(&report, "carried"), number(&report, "offered"), "{connect}: {report}\n{out}");
    }
}

#[test]
fn errors_are_reported_with_a_remedy() {
    let folder = Folder::new("");
    folder_with_capture(&folder);
    let refused = |arguments: &[&str], what: &str| {
        let all: Vec<&str> = ["load", "replay"].iter().chain(arguments).copied().collect();
        let ran = folder.run(&all);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains(what), "{what}: {ran:?}");
    };
    refused(&["calls.pcap"], "--to");
    refused(&["nothing.pcap", "--to", "udp:127.0.0.1:9"], "nothing.pcap cannot be read");
    refused(&["calls.pcap", "--to", "udp:127.0.0.1:9", "--speed=-1"], "--speed");
    refused(&["calls.pcap", "--to", "udp:127.0.0.1:9", "--threads", "0"], "--threads");
    refused(&["calls.pcap", "--to", "udp:127.0.0.1:9", "--callee", "local"], "--side both");
    folder.write("text.pcap", "this is no capture");
    refused(&["text.pcap", "--to", "udp:127.0.0.1:9"], "neither pcap nor pcapng");
}
