//! Workloads of `strowger load` through a Strowger server.

mod common;

use common::free_address;
use common::load::{self, number, sound_report};
use common::server::Server;
use serde_json::Value;

const OPEN: &str = "server.domains = [\"127.0.0.1\"]\n";

/// A server with user0 to user19 that requires no passwords.
fn server(more: &str) -> Server {
    server_that_asks("[]", more)
}

/// The same, with passwords required for these methods.
fn server_that_asks(methods: &str, more: &str) -> Server {
    let (folder, address) = Server::prepare(&format!("{OPEN}auth.realm = \"127.0.0.1\"\n{more}"));
    let text = std::fs::read_to_string(folder.path().join("strowger.toml")).expect("it was written");
    folder.write("strowger.toml", &text.replace("auth.require = []", &format!("auth.require = {methods}")));
    let users: String = (0..20).map(|number| format!("user{number}@127.0.0.1,secret\n")).collect();
    folder.write("users.csv", &format!("aor,password\n{users}"));
    folder.run(&["user", "import", "users.csv"]).ok();
    let command = folder.command(&["serve"]);
    Server::started_by(command, folder, address)
}

/// Runs a workload at 50 sessions per second.
fn run(server: &Server, workload: &str, sessions: u64, more: &[&str]) -> Value {
    let (to, calls) = (format!("udp:{}", server.address), sessions.to_string());
    let mut arguments = vec!["load", "run", "--to", &to, "--workload", workload, "--rate", "50", "--calls", &calls];
    arguments.extend_from_slice(&["--users", "10", "--seed", "1"]);
    arguments.extend_from_slice(more);
    let (report, _) = sound_report(&server.folder, &arguments);
    let n = |name| number(&report, name);
    assert_eq!((n("offered"), n("carried")), (sessions, sessions), "{workload}: {report}");
    report
}

fn received(report: &Value, what: &str) -> u64 {
    report["messages_received"][what].as_u64().unwrap_or(0)
}

#[test]
fn messaging_and_presence_work() {
    let server = server("");
    let message = run(&server, "message", 30, &["--set", "sizes=50+500"]);
    assert_eq!(received(&message, "200"), 30);
    let publish = run(&server, "publish", 20, &["--set", "refresh-every=100ms"]);
    assert_eq!(received(&publish, "200"), 80, "{publish}");
    let fast = ["--set", "resubscribe-every=300ms", "--set", "change-every=100ms"];
    let subscribe = run(&server, "subscribe", 20, &fast);
    // Each SUBSCRIBE has its NOTIFY, and each state change has one.
    assert!(received(&subscribe, "200") == 60 && received(&subscribe, "NOTIFY") >= 60 + 40, "{subscribe}");
    let presence = run(&server, "presence", 40, &fast);
    assert!(received(&presence, "200") > 40, "{presence}");
}

#[test]
fn requests_within_calls_work_from_either_side() {
    let server = server("");
    for (share, byes) in [("0", 0), ("100%", 20)] {
        let set = format!("from-callee={share}");
        let report = run(&server, "mid-call", 20, &["--set", "every=50ms", "--set", &set]);
        assert_eq!(received(&report, "BYE"), byes, "{report}");
        let inside = if byes == 0 { ("200", 20 * 7) } else { ("INFO", 20) };
        assert_eq!(received(&report, inside.0), inside.1, "{report}");
    }
}

#[test]
fn injected_faults_are_not_server_faults() {
    let server = server("");
    let faults = "lost-ack=15%,late-cancel=20%,no-answer=15%,garbage=15%,no-bye=15%";
    let more = ["--faults", faults, "--set", "ring=40ms", "--set", "no-answer-ring=300ms"];
    let report = run(&server, "proxy-200", 100, &more);
    assert!(received(&report, "487") >= 5, "who was not answered cancelled: {report}");
    let sent = |what: &str| report["messages_sent"][what].as_u64().unwrap_or(0);
    assert!(sent("garbage") >= 3 && sent("BYE") < 100, "{report}");
    let text = report.to_string();
    for fault in ["lost-ack", "late-cancel", "no-answer", "garbage", "no-bye"] {
        assert!(text.contains(&format!("\"{fault}\"")), "{fault} is counted by its name: {report}");
    }
    let status = server.folder.run(&["ctl", "status"]);
    assert_eq!(status.code, Some(0), "the server is well: {status:?}");
}

#[test]
fn sipstone_tests_and_their_score() {
    let server = server("[[route]]\nmatch = { domain = \"*\" }\naction = \"proxy\"\n");
    let at = format!("at={}", free_address());
    let outbound = run(&server, "outbound", 20, &["--set", &at]);
    assert_eq!((received(&outbound, "180"), received(&outbound, "200")), (20, 40), "{outbound}");
    let absent = run(&server, "proxy-480", 20, &[]);
    assert_eq!(received(&absent, "480"), 20, "{absent}");
    let to = format!("udp:{}", server.address);
    let mut arguments = vec!["load", "sipstone", "--to", &to, "--users", "10", "--only", "proxy-480"];
    for known in ["registration=100", "outbound=100", "redirect=100", "proxy-200=100"] {
        arguments.extend_from_slice(&["--rate-of", known]);
    }
    arguments.extend_from_slice(&["--weight", "proxy-480=6", "--time", "1s", "--start", "50", "--max", "50"]);
    arguments.extend_from_slice(&["--confirm", "1", "--settle", "0s", "--json", "score.json"]);
    let score = || server.folder.json("score.json");
    let ran = server.folder.run(&arguments);
    // The server's capacity is unknown because no higher rate was tried.
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("(--max)") && ran.out.contains("not known") && ran.err.contains("--rate-of"), "{ran:?}");
    let limited = score();
    assert_eq!((&limited["sipstone_a"], &limited["tests"][2]["rate"]), (&Value::Null, &Value::Null), "{limited}");
    assert_eq!(limited["tests"][2]["search"]["verdict"], "at the maximum", "{limited}");
    arguments.extend_from_slice(&["--rate-of", "proxy-480=50"]);
    let ran = server.folder.run(&arguments);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("SIPstone-A") && ran.out.contains("70.0/s"), "(4 · 100 + 6 · 50) / 10: {ran:?}");
    assert_eq!(score()["sipstone_a"], 70.0);
    for (wrong, remedy) in [("--vary", "unexpected argument"), ("--workload", "sipstone")] {
        let ran = server.folder.run(&[&arguments[..], &[wrong, "users"]].concat());
        assert!(ran.code == Some(2) && ran.err.contains(remedy), "{ran:?}");
    }
}

#[test]
fn a_redirect_server_redirects() {
    let server = server("[[route]]\nmatch = { domain = \"127.0.0.1\", method = \"INVITE\" }\naction = \"redirect\"\n");
    let report = run(&server, "redirect", 20, &[]);
    assert_eq!(received(&report, "302"), 20, "{report}");
    assert_eq!(report["messages_sent"]["ACK"], 20);
}

#[test]
fn phones_return_after_a_power_cut() {
    let server = server_that_asks("[\"REGISTER\"]", "");
    let to = format!("udp:{}", server.address);
    let arguments = [
        "load",
        "run",
        "--to",
        &to,
        "--workload",
        "avalanche",
        "--users",
        "20",
        "--spread",
        "200ms",
        "--sockets",
        "2",
        "--seed",
        "1",
        "--html",
        "report.html",
    ];
    let (report, _) = load::report(&server.folder, &arguments);
    let recovery = &report["recovery"];
    assert_eq!((recovery["phones"].as_u64(), recovery["registered"].as_u64()), (Some(20), Some(20)), "{report}");
    // Each is challenged once.
    assert!(recovery["requests"]["mean"].as_f64().is_some_and(|mean| mean >= 2.0), "{recovery}");
    assert_eq!(recovery["course"].as_array().and_then(|course| course.last()).map(|last| &last[1]), Some(&20.into()));
    let page = server.folder.read("report.html");
    assert!(page.contains("Phones registered, over time") && page.contains("REGISTERs per phone"), "{page}");
}

#[test]
fn a_call_reports_its_setup_time_and_that_a_bye_ended_it() {
    let server = server("");
    let report = run(&server, "proxy-200", 20, &["--callee", "registered", "--call-retries", "2"]);
    let calls = &report["calls"];
    for (name, count) in [("begun", 20), ("answered", 20), ("ended_by_bye", 20), ("refused_503", 0), ("going_on", 0)] {
        assert_eq!(calls[name].as_u64(), Some(count), "{name}: {calls}");
    }
    assert_eq!((calls["setup_us"]["count"].as_u64(), calls["bye_share"].as_f64()), (Some(20), Some(1.0)));
}
