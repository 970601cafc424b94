//! The multicore paper's users against a server that challenges each of them; and a weighted mix.

mod common;

use common::load;
use common::server::Server;
use serde_json::Value;

/// A server of the domain 127.0.0.1 with `count` users that challenges requests, inside calls too.
fn server(count: u32) -> Server {
    let (folder, address) =
        Server::prepare("server.domains = [\"127.0.0.1\"]\nauth.realm = \"127.0.0.1\"\nauth.in_dialog = true\n");
    let open = std::fs::read_to_string(folder.path().join("strowger.toml")).expect("a configuration");
    let asking = open.replace("auth.require = []", "auth.require = [\"REGISTER\", \"INVITE\", \"BYE\"]");
    folder.write("strowger.toml", &asking);
    let users: String = (0..count).map(|i| format!("user{i}@127.0.0.1,secret\n")).collect();
    folder.write("users.csv", &format!("aor,password\n{users}"));
    folder.run(&["user", "import", "users.csv"]).ok();
    let command = folder.command(&["serve"]);
    Server::started_by(command, folder, address)
}

fn report(server: &Server, arguments: &[&str]) -> Value {
    let to = format!("udp:{}", server.address);
    load::report(&server.folder, &[&["load", "run", "--to", &to], arguments].concat()).0
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number: {value}"))
}

#[test]
fn users_of_the_model_are_served() {
    let server = server(200);
    // Forty minutes and a warm-up of ten, in five seconds.
    let arguments = [
        "--workload",
        "users",
        "--users",
        "200",
        "--speed",
        "600",
        "--time",
        "40m",
        "--seed",
        "3",
        "--set",
        "think=exp(mean=20m)",
        "--set",
        "patience=uniform(min=30s,max=60s)",
        "--drain",
        "10s",
    ];
    let report = report(&server, &arguments);
    assert_eq!(
        (number(&report["users"]["count"]), &report["users"]["conforming"]),
        (200, &Value::Bool(true)),
        "{report}"
    );
    assert_eq!(number(&report["failed"]) + number(&report["lost"]), 0, "{report}");
    assert_eq!(number(&report["preparation"][0]["carried"]), 200, "all registered before: {report}");
    let of = |script: &str| {
        let all = report["scripts"].as_array().expect("a list");
        all.iter().find(|entry| entry["script"] == script).map_or(0, |entry| number(&entry["carried"]))
    };
    // Four refreshes per user, and calls of every kind. All refreshes are of the same binding; after the final
    // unregistration none is left.
    assert!((790..=810).contains(&of("register")), "{}", of("register"));
    assert_eq!(number(&report["preparation"][1]["carried"]), 200, "all unregistered behind: {report}");
    assert_eq!(server.status()["registrations"], 0);
    assert!(of("completed") > of("voicemail") && of("voicemail") > of("cancelled") && of("cancelled") > 0, "{report}");
    let transactions = &report["transactions"];
    // Each registration and each INVITE was challenged first.
    assert!(number(&transactions["REGISTER"]["all"]).abs_diff(2 * of("register")) <= 2, "{transactions}");
    let calls = number(&report["carried"]) + number(&report["unfinished"]);
    assert!(number(&transactions["INVITE"]["all"]).abs_diff(2 * calls) <= 4, "{transactions} {calls}");
    // And each BYE of a user who talked, as in the paper.
    let talked = of("completed") + of("voicemail");
    assert!(talked > 100 && number(&transactions["BYE"]["all"]).abs_diff(2 * talked) <= 4, "{transactions} {talked}");
    let elapsed = report["elapsed_s"].as_f64().expect("a time");
    assert!((3.9..5.0).contains(&elapsed), "{elapsed} s for 40 minutes at 600 times the speed");
    let declared = &report["declared"];
    assert!(declared["speed"].as_str().is_some_and(|text| text.starts_with("600: ")), "{declared}");
    assert_eq!(declared["hold"], "lognormal(mean=300s,sigma=1) (ours)");
    assert_eq!(declared["think"], "exp(mean=20m) (set)");
}

#[test]
fn each_call_of_a_workload_mix_reaches_its_own_callee() {
    let server = server(40);
    let mix = "proxy-200:60,baseline:20,message:10,registration:10";
    let arguments = ["--workload", mix, "--rate", "100", "--calls", "300", "--users", "20", "--seed", "2"];
    let report = report(&server, &arguments);
    assert_eq!(number(&report["carried"]), 300, "{report}");
    let scripts = report["scripts"].as_array().expect("a list");
    let of = |end: &str, name: &str| {
        let its = scripts.iter().filter(|entry| entry["end"] == end);
        let its = its.filter(|entry| entry["script"].as_str().is_some_and(|script| script.starts_with(name)));
        its.map(|entry| number(&entry["carried"])).sum::<u64>()
    };
    for name in ["proxy-200 ", "baseline ", "message "] {
        assert!(of("caller", name) > 0, "{report}");
        assert_eq!(of("caller", name), of("callee", name), "{name}: {report}");
    }
    assert!(of("caller", "registration ") > 0, "{report}");
    assert_eq!(report["workload"], mix);
}

#[test]
fn workloads_are_listed_and_errors_reported() {
    let folder = common::Folder::new("");
    let list = folder.run(&["load", "workloads"]).ok();
    assert!(list.contains("proxy-200:") && list.contains("Wright"), "{list}");
    let users = folder.run(&["load", "workloads", "users"]).ok();
    assert!(users.contains("--set hold") && users.contains("sigma") && !users.contains("proxy-200"), "{users}");
    let json = folder.run(&["load", "workloads", "users", "--json"]).json();
    assert_eq!(json[0]["parameters"][0]["name"], "think");
    for (arguments, remedy) in [
        (&["workloads", "nonsense"][..], "workloads: proxy-200"),
        (&["run", "--workload", "proxy-200:50,users:50"], "cannot be mixed"),
        (&["run", "--workload", "proxy-200", "--speed", "60"], "--workload users"),
        (&["run", "--workload", "users", "--set", "holt=3s"], "hold"),
        (&["run", "--workload", "users", "--set", "hold=3"], "hold: "),
        (&["run", "--workload", "users", "--set", "expires=1m"], "raise expires"),
        (&["run", "--workload", "users", "--calls", "9"], "--time"),
        (&["run", "--set", "hold"], "NAME=VALUE"),
    ] {
        let all: Vec<&str> = ["load"].iter().chain(arguments).copied().collect();
        let ran = folder.run(&all);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
        assert!(ran.err.contains(remedy), "{arguments:?}: {}", ran.err);
    }
}
