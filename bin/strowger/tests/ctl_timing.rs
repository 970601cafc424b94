//! `strowger ctl timing`: the times of the server's own packets.

mod common;

use std::process::Stdio;

use common::load::sound_report;
use common::server::Server;
use serde_json::Value;

const CALLS: u64 = 200;

/// Returns the row of a message type.
fn row<'r>(report: &'r Value, message: &str) -> &'r Value {
    let rows = report["messages"].as_array().expect("rows");
    rows.iter().find(|row| row["message"] == message).unwrap_or(&Value::Null)
}

/// Returns the number of values, and the mean in µs, of a part.
fn part(row: &Value, part: &str) -> (u64, f64) {
    let part = &row["parts"][part];
    (part["count"].as_u64().unwrap_or(0), part["mean_us"].as_f64().unwrap_or(0.0))
}

/// Lets calls pass through the server.
fn call(server: &Server, transport: &str) {
    let (to, calls) = (format!("{transport}:{}", server.address), CALLS.to_string());
    let arguments = ["load", "run", "--to", &to, "--rate", "400", "--calls", &calls, "--users", "10", "--seed", "1"];
    sound_report(&server.folder, &arguments);
}

#[test]
fn each_message_of_a_call_is_in_its_row_with_all_parts() {
    let server = Server::start("server.domains = [\"127.0.0.1\"]\n");
    call(&server, "udp");
    let report = server.folder.run(&["ctl", "timing", "--since-start", "--json"]).json();
    assert_eq!(report["method"], "server");
    let expected = ["INVITE", "180 INVITE", "200 INVITE", "ACK", "BYE", "200 BYE"];
    for message in expected {
        let row = row(&report, message);
        // A generator on a busy machine may retransmit.
        assert!((CALLS..=2 * CALLS).contains(&row["packets"].as_u64().unwrap_or(0)), "{message}: {row}");
        let packets = row["packets"].as_u64();
        for name in ["k_rcv", "receive_batch", "t_sip_common", "t_sip_specific", "t_sip"] {
            assert_eq!(Some(part(row, name).0), packets, "{message} {name}");
        }
        let [common, specific, whole] = ["t_sip_common", "t_sip_specific", "t_sip"].map(|name| part(row, name).1);
        // Means are of whole nanoseconds.
        assert!((common + specific - whole).abs() < 0.01 && specific > 0.0, "{common} + {specific} = {whole}");
        for name in ["send_batch", "send_call"] {
            assert!(part(row, name).0 >= CALLS, "{message} {name}: {row}");
        }
    }
    // The server sends 100 Trying besides forwarding.
    assert!(part(row(&report, "INVITE"), "send_call").0 >= 2 * CALLS);
    // The callees register before and after the calls.
    assert!(row(&report, "REGISTER")["packets"].as_u64() >= Some(20));
    let sampled = part(&report["all"], "k_snd");
    let is_old = report["notes"].as_array().expect("notes").iter().any(|note| note.to_string().contains("6.12"));
    assert!(sampled.0 >= 2 || is_old, "one in 256 of some 1,400 packets: {report}");
    assert!(is_old || sampled.1 > 0.0);
    assert!(report["queue"]["mean"].as_f64().is_some_and(|mean| mean >= 1.0));
    assert!(report["packets_per_receive"].as_f64().is_some_and(|mean| mean >= 1.0));
    assert!(report["cpu"].as_f64().is_some_and(|cpu| cpu > 0.0));

    let table = server.folder.run(&["ctl", "timing", "--since-start"]);
    assert_eq!(table.code, Some(0), "{}", table.err);
    assert!(expected.iter().all(|message| table.out.contains(message)), "{}", table.out);
}

#[test]
fn a_period_has_only_its_own_packets_and_becomes_a_page() {
    let server = Server::start("server.domains = [\"127.0.0.1\"]\n");
    call(&server, "udp");
    let idle = server.folder.run(&["ctl", "timing", "--duration", "200ms", "--json"]).json();
    assert_eq!(idle["all"]["packets"], 0, "{idle}");
    assert!(idle["seconds"].as_f64().is_some_and(|seconds| (0.2..5.0).contains(&seconds)), "{idle}");

    let arguments = ["ctl", "timing", "--duration", "3s", "--html", "times.html", "--svg", "times.svg"];
    let mut command = server.folder.command(&arguments);
    let measurement = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    call(&server, "udp");
    let output = measurement.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("INVITE"), "{output:?}");
    let page = std::fs::read_to_string(server.folder.path().join("times.html")).expect("a page");
    assert!(page.contains("INVITE"));
    assert!(std::fs::read_to_string(server.folder.path().join("times.svg")).expect("a picture").contains("<svg"));
}

#[test]
fn timing_can_be_turned_off() {
    let server = Server::start("server.timing = false\n");
    let answer = server.folder.run(&["ctl", "timing"]);
    assert_eq!(answer.code, Some(1));
    assert!(answer.err.contains("server.timing is false"), "{}", answer.err);
}
