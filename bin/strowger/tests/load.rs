//! `strowger load` against a Strowger server, against itself, and without a server.

mod common;

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use common::load::{assert_adds_up, number, sound_report};
use common::server::Server;
use common::{Folder, free_address, signal, until_bound};
use serde_json::Value;

/// Duration of a run that is then interrupted. A run without a terminal shows nothing before its end.
const RUN_TIME: Duration = Duration::from_millis(1_500);

/// A run whose figures are not checked closely: on a busy machine the generator may be late, which is exit code 1.
fn report(folder: &Folder, arguments: &[&str]) -> Value {
    sound_report(folder, &[&["load"], arguments].concat()).0
}

#[test]
fn calls_through_our_server_succeed() {
    let server = Server::start("server.domains = [\"127.0.0.1\"]\n");
    let to = format!("udp:{}", server.address);
    let report = report(
        &server.folder,
        &[
            "run",
            "--to",
            &to,
            "--workload",
            "proxy-200",
            "--rate",
            "200",
            "--calls",
            "200",
            "--users",
            "20",
            "--seed",
            "1",
        ],
    );
    assert_eq!((number(&report, "offered"), number(&report, "carried")), (200, 200), "{report}");
    assert_eq!(report["messages_received"]["180"], 200);
    assert_eq!(report["preparation"][0]["carried"], 20, "the callees registered: {report}");
    assert_eq!((&report["seed"], &report["workload"]), (&Value::from(1), &Value::from("proxy-200")));
    assert!(report["generator"]["lateness_us"]["p50"].as_f64().is_some());
}

#[test]
fn credentials_are_sent_when_challenged() {
    let (folder, address) = Server::prepare("server.domains = [\"127.0.0.1\"]\nauth.realm = \"127.0.0.1\"\n");
    let open = std::fs::read_to_string(folder.path().join("strowger.toml")).expect("a configuration");
    folder.write(
        "strowger.toml",
        &open.replace("auth.require = []", "auth.require = [\"REGISTER\", \"INVITE\", \"BYE\"]"),
    );
    let command = folder.command(&["serve"]);
    let server = Server::started_by(command, folder, address);
    let users: String = (0..10).map(|i| format!("user{i}@127.0.0.1,secret\n")).collect();
    server.folder.write("users.csv", &format!("aor,password\n{users}"));
    server.folder.run(&["user", "import", "users.csv"]).ok();
    server.folder.run(&["ctl", "reload"]).ok();
    let to = format!("udp:{}", server.address);
    let arguments = ["run", "--to", &to, "--rate", "100", "--calls", "100", "--users", "5"];
    let good = report(&server.folder, &arguments);
    assert_eq!(number(&good, "carried"), 100, "{good}");
    assert_eq!(good["messages_received"]["407"], 100);
    let wrong: Vec<_> = ["load"].iter().chain(&arguments).chain(&["--password", "wrong"]).copied().collect();
    let ran = server.folder.run(&wrong);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("--password") && ran.err.contains("refused with 401"), "{ran:?}");
    assert!(ran.err.contains("auth.require = []") && ran.err.contains("auth.trusted"), "{ran:?}");
}

#[test]
fn users_have_their_own_domain_or_the_server_address() {
    // The domain is localhost; the listening address is an alias of it.
    let server = Server::start("");
    let to = format!("udp:{}", server.address);
    let usual = report(&server.folder, &["run", "--to", &to, "--rate", "100", "--calls", "20", "--users", "5"]);
    assert_eq!(number(&usual, "carried"), 20, "{usual}");
    server.folder.write("users.csv", "name,password\nann@localhost,x\nbob@localhost,x\n");
    let from_file = ["--users-file", "users.csv", "--domain", "nowhere.example", "--rate", "100"];
    let run = |more: &[&'static str]| {
        let all: Vec<&str> = ["run", "--to", &to].into_iter().chain(from_file).chain(more.iter().copied()).collect();
        report(&server.folder, &all)
    };
    let called = run(&["--calls", "20"]);
    assert_eq!(number(&called, "carried"), 20, "ann calls bob: {called}");
    // A registration calls nobody.
    let registered = run(&["--workload", "registration", "--calls", "2"]);
    assert_eq!(number(&registered, "carried"), 2, "{registered}");
    for user in ["ann@localhost", "bob@localhost"] {
        let shown = server.folder.run(&["ctl", "registrations", "--user", user]).ok();
        assert!(shown.contains("127.0.0.1"), "{user}: {shown}");
    }
}

#[test]
fn a_run_that_carries_no_call_fails() {
    let server = Server::start("");
    let to = format!("udp:{}", server.address);
    let ran = server.folder.run(&[
        "load",
        "run",
        "--to",
        &to,
        "--workload",
        "registration",
        "--domain",
        "nowhere.example",
        "--calls",
        "5",
        "--rate",
        "100",
    ]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("none of 5 calls was carried") && ran.err.contains("--domain"), "{ran:?}");
    assert!(ran.out.contains("failed 5") && !ran.out.contains("CPU per call"), "{ran:?}");
}

#[test]
fn separate_ends_and_an_interrupted_run() {
    let folder = Folder::new("");
    let address = free_address();
    let listen = format!("udp:{address}");
    let mut answer = folder.command(&["load", "answer", "--listen", &listen, "--json", "answered.json"]);
    let answer = answer.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    until_bound(address);
    let mut run = folder.command(&[
        "load", "run", "--to", &listen, "--callee", "remote", "--rate", "100", "--time", "1h", "--json", "ran.json",
    ]);
    let run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    thread::sleep(RUN_TIME);
    signal(&run, "INT");
    let ran = run.wait_with_output().expect("it ends");
    assert!(ran.status.code().is_some_and(|code| code < 2), "{ran:?}");
    signal(&answer, "INT");
    assert!(answer.wait_with_output().expect("it ends").status.code().is_some_and(|code| code < 2));
    let (ran, answered) = (folder.json("ran.json"), folder.json("answered.json"));
    assert_adds_up(&ran);
    assert_adds_up(&answered);
    assert!(number(&ran, "carried") > 30, "{ran}");
    assert_eq!(ran["was_stopped"], true);
    assert_eq!(number(&answered, "carried"), number(&ran, "carried"));
}

#[test]
fn impossible_runs_are_refused_with_a_remedy() {
    let folder = Folder::new("");
    for (arguments, code, remedy) in [
        (&["run", "--to", "udp:127.0.0.1:9", "--callee", "remote", "--rate", "200"][..], 1, "start the server"),
        (&["run", "--workload", "nonsense"], 2, "proxy-200, baseline"),
        (&["run", "--arrivals", "poison"], 2, "Arrivals are: poisson"),
        (&["run", "--arrivals", "file(/nowhere,unit=us)"], 2, "cannot be read"),
        (&["run", "--callee", "remote"], 2, "need --to"),
        (&["run", "--users-file", "/nowhere"], 2, "cannot be read"),
        (&["run", "--to", "udp:[zz]:1"], 2, "udp:HOST:PORT"),
        (&["run", "--service-time", "1ms", "--to", "udp:127.0.0.1:9", "--callee", "remote"], 2, "load answer"),
        (&["answer", "--listen", "udp:192.0.2.1:5060"], 2, "--listen"),
        (&["answer", "--listen", "udp:0.0.0.0:5060"], 2, "callers reach"),
        (&["answer", "--listen", "udp:127.0.0.1:0", "--listen", "udp:0.0.0.0:5060"], 2, "callers reach"),
        (&["answer", "--listen", "udp:127.0.0.1:0", "--listen", "tcp:127.0.0.1:0"], 2, "over one transport"),
        (&["answer", "--listen", "tcp:127.0.0.1:0", "--listen", "tcp:127.0.0.1:0"], 2, "answers at one address"),
        (&["answer", "--listen", "udp:127.0.0.1:0", "--service-time", "INVIT=1ms"], 2, "is not a method"),
    ] {
        let all: Vec<&str> = ["load"].iter().chain(arguments).copied().collect();
        let ran = folder.run(&all);
        assert_eq!(ran.code, Some(code), "{arguments:?}: {ran:?}");
        assert!(ran.err.contains(remedy), "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn load_answer_reports_that_no_call_arrived() {
    let folder = Folder::new("");
    let ran = folder.run(&["load", "answer", "--listen", &format!("udp:{}", free_address()), "--time", "300ms"]);
    assert!(ran.code == Some(1) && ran.err.contains("nobody called: no message arrived"), "{ran:?}");
}

/// SIPp's scenario files, and its options with one dash.
#[test]
fn sipp_scenarios_run_with_sipp_options() {
    const CALLER: &str = r#"<?xml version="1.0"?><scenario name="options"><send retrans="500"><![CDATA[
        OPTIONS sip:[service]@[remote_ip]:[remote_port] SIP/2.0
        Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
        From: <sip:[field0]@[local_ip]>;tag=[call_number]
        To: <sip:[service]@[remote_ip]>
        Call-ID: [call_id]
        CSeq: 1 OPTIONS
        Max-Forwards: 70
        Content-Length: 0
        ]]></send><recv response="200"/></scenario>"#;
    const CALLEE: &str = r#"<?xml version="1.0"?><scenario name="answer"><recv request="OPTIONS"/><send><![CDATA[
        SIP/2.0 200 OK
        [last_Via:]
        [last_From:]
        [last_To:];tag=[call_number]
        [last_Call-ID:]
        [last_CSeq:]
        Content-Length: 0
        ]]></send></scenario>"#;
    let folder = Folder::new("");
    folder.write("caller.xml", CALLER);
    folder.write("callee.xml", CALLEE);
    folder.write("users.csv", "SEQUENTIAL\nann\nbob\n");
    let address = free_address();
    let listen = format!("udp:{address}");
    let mut answer = folder.command(&["load", "answer", "-sf", "callee.xml", "--listen", &listen, "-m", "50"]);
    let mut answer = answer.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    until_bound(address);
    let to = address.to_string();
    let report =
        report(&folder, &["run", "-sf", "caller.xml", "-inf", "users.csv", "-s", "x", "-r", "100", "-m", "50", &to]);
    assert_eq!(number(&report, "carried"), 50, "{report}");
    assert_eq!(report["messages_received"]["200"], 50);
    assert!(answer.wait().expect("it ends").code().is_some_and(|code| code < 2));
    let wrong = folder.run(&["load", "run", "-sf", "callee.xml", &to]);
    assert!(wrong.code == Some(2) && wrong.err.contains("load answer --sf"), "{wrong:?}");
}
