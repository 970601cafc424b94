//! `strowger probe` beside a real Kamailio through which calls are made. Without root or Kamailio it is skipped.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use strowger_interop::{Answerer, Kamailio, Load, Program, binary, free_port, is_required};

/// Rows that a proxy must have: what callers and callees send.
const ROWS: [&str; 6] = ["INVITE", "ACK", "BYE", "180 INVITE", "200 INVITE", "200 BYE"];

#[test]
fn each_message_type_of_a_kamailio_has_its_times() {
    if !Program::Kamailio.available() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let target = Answerer::start("udp", (Ipv4Addr::LOCALHOST, free_port()).into(), "");
    let list = folder.path().join("dispatcher.list");
    fs::write(&list, format!("1 {}\n", target.uri())).expect("the list can be written");
    let kamailio = Kamailio::dispatching(Ipv4Addr::LOCALHOST, free_port(), &list);
    let to = kamailio.address();
    let load = Load::start(&format!(
        "--to udp:{to} --callee remote --domain pool.test --rate 200 --time 12s --drain 40s --seed 5"
    ));
    let log = folder.path().join("packets.csv");
    let output = Command::new(binary())
        .args(["probe", "--pid", &kamailio.process_id().to_string(), "--duration", "4s", "--quiet", "--json", "-"])
        .arg("--log")
        .arg(&log)
        .output()
        .expect("the binary starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if errors.contains("--log needs eBPF") && !is_required() {
        eprintln!("skipped: {errors}");
        return;
    }
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["method"], "ebpf", "{report}");
    assert!(report["program"].as_str().is_some_and(|name| name.starts_with("kamailio (process ")), "{report}");
    for row in ROWS {
        check(row, &report);
    }
    // A stateful proxy sends 100 and the INVITE, so both are in T_sip and K_snd.
    assert!(mean(&report, "INVITE", "t_sip").is_some_and(|time| time > 1.0), "{report}");
    assert!(mean(&report, "INVITE", "k_snd").is_some_and(|time| time > 0.1), "{report}");
    let packets = report["all"]["packets"].as_u64().expect("a count");
    let text = fs::read_to_string(&log).expect("a log");
    let lines = text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(u64::try_from(lines).expect("few"), packets + 1, "a line for each packet, below the heading");
    assert!(load.finish(Duration::from_secs(80)).count("carried") > 1_000);
    let fitted = Command::new(binary()).args(["plan", "fit", "--json"]).arg(&log).output().expect("the binary starts");
    assert!(fitted.status.success(), "{}", String::from_utf8_lossy(&fitted.stderr));
    let fitted: Value = serde_json::from_slice(&fitted.stdout).expect("JSON");
    let service = fitted["fit"]["service"][0]["mean_s"]["value"].as_f64().expect("a time");
    assert!((3e-6..5e-3).contains(&service), "{fitted}");
}

/// Returns the mean of a part of a message type, µs.
fn mean(report: &Value, message: &str, part: &str) -> Option<f64> {
    let rows = report["messages"].as_array()?;
    rows.iter().find(|row| row["message"] == message)?["parts"][part]["mean_us"].as_f64()
}

/// Checks that a row exists and that its parts are plausible. Busy machines make packets wait, so only the order of
/// magnitude is known.
fn check(message: &str, report: &Value) {
    let part = |name: &str| mean(report, message, name).unwrap_or_else(|| panic!("no {name} of {message} in {report}"));
    let (stack, queue, copy, receive) = (part("k_stack"), part("k_sockq"), part("k_copy"), part("k_rcv"));
    assert!(stack > 0.1 && stack < 1e5 && queue > 0.1 && copy > 0.1 && copy < 1e5, "{message}: {report}");
    assert!((stack + queue + copy - receive).abs() < 0.02 * receive + 0.1, "{message}: {report}");
}
