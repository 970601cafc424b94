//! Balancers of a server process: commands that show and change their targets.

mod common;

#[path = "../../../interop/src/bind9.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is a part of another crate, which uses all of it")]
mod bind9;

use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::process::Stdio;

use bind9::Bind9;
use common::Folder;
use common::end::End;
use common::server::Server;
use serde_json::{Value, json};

const ROUTE: &str = "[[route]]\nbalance = \"pool\"\n";

/// A balancer with these targets and a route to it.
fn pool(lines: &str, targets: &[&End]) -> String {
    let uris: Vec<String> = targets.iter().map(|end| format!("\"{}\"", end.uri())).collect();
    format!("[[balancer]]\nname = \"pool\"\n{lines}\ntargets = [{}]\n{ROUTE}", uris.join(", "))
}

/// An answered call.
struct Call {
    /// Index of its target.
    at: usize,
    id: String,
    /// Route of its requests.
    route: String,
}

/// Makes a call that the chosen target answers.
fn call(server: &Server, alice: &End, id: &str, targets: &[&End]) -> Call {
    alice.request(server, "INVITE sip:+431@pstn.example", "", id, "1 INVITE", "");
    let (at, invite) = End::reached(server, targets, id);
    let target = targets[at];
    target.answer(&invite, "200 OK");
    let (answer, _) = alice.receive(" 200 ");
    let route = answer.lines().find_map(|line| line.strip_prefix("Record-Route: ")).expect("a record-route");
    let route = format!("Route: {route}\n");
    alice.request(server, &format!("ACK {}", target.uri()), ";tag=g", id, "1 ACK", &route);
    target.receive("ACK");
    Call { at, id: id.to_owned(), route }
}

fn hang_up(server: &Server, alice: &End, call: &Call, target: &End) {
    alice.request(server, &format!("BYE {}", target.uri()), ";tag=g", &call.id, "2 BYE", &call.route);
    let bye = target.receive("BYE");
    target.answer(&bye, "200 OK");
    alice.receive(" 200 ");
}

/// Returns the targets in configuration order.
fn targets(folder: &Folder) -> Vec<Value> {
    let found = folder.run(&["ctl", "targets", "--json"]).json();
    found["targets"].as_array().expect("a list").clone()
}

fn of(folder: &Folder, end: &End) -> Value {
    let found = targets(folder).into_iter().find(|target| target["uri"] == end.uri());
    found.unwrap_or_else(|| panic!("{} is no target", end.uri()))
}

#[test]
fn targets_are_shown_with_their_state() {
    let (alice, one, two) = (End::new(), End::new(), End::new());
    let server = Server::start(&pool("policy = \"least-calls\"", &[&one, &two]));
    let ends = [&one, &two];
    let first = call(&server, &alice, "first", &ends);
    let second = call(&server, &alice, "second", &ends);
    assert_ne!(first.at, second.at, "who has no call gets the next one");
    let busy = ends[first.at];
    let told = of(&server.folder, busy);
    assert_eq!(
        (&told["set"], &told["state"], &told["calls"], &told["share"]),
        (&json!("pool"), &json!("up"), &json!(1), &json!(1.0))
    );
    assert_eq!((&told["origin"], &told["full"], &told["weight"]), (&json!("configuration"), &json!(false), &json!(1)));
    assert!(told["requests"].as_u64() >= Some(1) && told["failures"] == 0, "{told}");
    assert!(told["response_time_ms"].as_f64().is_some_and(|time| time > 0.0), "{told}");
    let text = server.folder.run(&["ctl", "targets", "pool"]).ok();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows[0],
        ["SET", "TARGET", "STATE", "CALLS", "TRANSACTIONS", "WORK", "RESPONSE", "REQUESTS", "FAILURES", "ID"]
    );
    assert_eq!((rows.len(), &rows[1][..4]), (3, &["pool", &*one.uri(), "up", "1"][..]));
    hang_up(&server, &alice, &first, busy);
    server.until("the call is over", || of(&server.folder, busy)["calls"] == 0);

    let status = server.status();
    let expected = json!([{ "name": "pool", "policy": "least-calls", "targets": 2, "in_service": 2, "calls": 1 }]);
    assert_eq!(status["balancers"], expected);
    assert_eq!(
        (&status["counters"]["targets"]["balanced"], &status["counters"]["targets"]["draining"]),
        (&json!(2), &json!(0))
    );
    let text = server.folder.run(&["ctl", "status"]).ok();
    assert!(text.contains("pool (least-calls): 2 of 2 targets in service, 1 call\n"), "{text}");
    let error = server.folder.run(&["ctl", "targets", "pol"]).refused(1);
    assert!(error.starts_with("there is no balancer \"pol\""), "{error}");
}

#[test]
fn a_target_is_drained_until_it_is_empty() {
    let (alice, one, two) = (End::new(), End::new(), End::new());
    let server = Server::start(&pool("policy = \"round-robin\"\nslow_start = \"0s\"", &[&one, &two]));
    let ends = [&one, &two];
    let calls: Vec<Call> = (0..4).map(|number| call(&server, &alice, &format!("call{number}"), &ends)).collect();
    let at_one: Vec<&Call> = calls.iter().filter(|call| call.at == 0).collect();
    assert_eq!(at_one.len(), 2);
    let drained = server.folder.run(&["ctl", "drain", &one.uri()]).ok();
    assert_eq!(drained, format!("pool: {} gets no new calls: 2 calls left\n", one.uri()));
    assert_eq!(of(&server.folder, &one)["state"], "draining");
    assert_eq!(server.status()["counters"]["targets"]["draining"], 1);
    for number in 0..4 {
        let new = call(&server, &alice, &format!("new{number}"), &ends);
        assert_eq!(new.at, 1, "no new call goes there");
        hang_up(&server, &alice, &new, &two);
    }

    let late = server.folder.run(&["ctl", "drain", &one.uri(), "--wait", "--for", "300ms"]);
    assert_eq!(late.code, Some(1), "{late:?}");
    assert!(late.out.ends_with("Z 2 calls left\n") && late.out.lines().count() == 1, "{late:?}");
    assert!(late.err.contains("2 calls left after 300ms; it stays drained"), "{late:?}");
    let id = of(&server.folder, &one)["id"].as_str().expect("an id").to_owned();
    let mut command = server.folder.command(&["ctl", "drain", &id, "--wait"]);
    let mut waiting = command.stdout(Stdio::piped()).spawn().expect("it starts");
    // The output is one stream; each line has a time.
    let mut told = BufReader::new(waiting.stdout.take().expect("piped")).lines().map(|line| {
        let line = line.expect("text");
        let (time, text) = line.split_once(' ').expect("a time");
        assert!(time.len() == "2026-01-02T03:04:05Z".len() && time.ends_with('Z'), "{line}");
        text.to_owned()
    });
    assert_eq!(told.next().as_deref(), Some("2 calls left"));
    hang_up(&server, &alice, at_one[0], &one);
    assert_eq!(told.find(|line| !line.contains("2 calls")).as_deref(), Some("1 call left"));
    hang_up(&server, &alice, at_one[1], &one);
    let last = told.find(|line| !line.ends_with("left"));
    assert_eq!(last, Some(format!("pool: {} is empty", one.uri())));
    assert_eq!((told.next(), waiting.wait().expect("it ends").code()), (None, Some(0)));
    let listed = server.folder.run(&["ctl", "targets"]).ok();
    assert!(listed.lines().any(|line| line.contains(&one.uri()) && line.contains("  drained  ")), "{listed}");

    let back = server.folder.run(&["ctl", "undrain", &format!("pool/{}", one.uri())]).ok();
    assert_eq!(back, format!("pool: {} gets calls again\n", one.uri()));
    let reached: Vec<usize> = (0..2).map(|number| call(&server, &alice, &format!("back{number}"), &ends).at).collect();
    assert!(reached.contains(&0), "{reached:?}");
    let again = server.folder.run(&["ctl", "drain", one.uri().trim_start_matches("sip:")]).ok();
    assert!(again.contains(&one.uri()), "{again}");
    let error = server.folder.run(&["ctl", "drain", "sip:192.0.2.99"]).refused(1);
    assert!(error.starts_with("there is no target \"sip:192.0.2.99\"; `strowger ctl targets` lists"), "{error}");
}

/// A file that is being edited does not prevent listing and draining targets.
#[test]
fn ctl_works_while_the_config_file_is_invalid() {
    let (one, two) = (End::new(), End::new());
    let server = Server::start(&pool("policy = \"least-calls\"", &[&one, &two]));
    let path = server.folder.path().join("strowger.toml");
    let sound = std::fs::read_to_string(&path).expect("a configuration");
    for faulty in [sound.replace("\"least-calls\"", "\"least-cals\""), format!("{sound}\nhalf a line")] {
        server.folder.write("strowger.toml", &faulty);
        let ran = server.folder.run(&["ctl", "targets"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.out.contains(&one.uri()) && ran.err.starts_with("strowger: warning: strowger.toml:"), "{ran:?}");
        server.folder.run(&["ctl", "drain", &one.uri()]).ok();
        server.folder.run(&["ctl", "reload"]).refused(2);
    }
    let elsewhere = Folder::new("");
    let socket = server.folder.path().join("data/control.sock");
    let socket = socket.to_str().expect("UTF-8");
    let found = elsewhere.run(&["ctl", "targets", "--socket", socket]).ok();
    assert!(found.contains("  drained  "), "{found}");

    let undrain = |uri: &str| elsewhere.run(&["ctl", "undrain", uri, "--socket", socket]).ok();
    assert_eq!(undrain(&one.uri()), format!("pool: {} gets calls again\n", one.uri()));
    assert_eq!(undrain(&one.uri()), format!("pool: {} was not drained\n", one.uri()));
    assert_eq!(server.log().matches("gets new calls again").count(), 1, "{}", server.log());
}

#[test]
fn a_target_failing_probes_gets_no_calls_until_it_answers() {
    let (alice, one) = (End::new(), End::new());
    let probe = "probe = { interval = \"300ms\", timeout = \"200ms\", accept = [\"2xx\", \"405\"] }";
    let server = Server::start(&pool(probe, &[&one]));
    server.until("it is down", || of(&server.folder, &one)["state"] == "down");
    assert!(of(&server.folder, &one)["since_s"].as_f64().is_some_and(|since| since < 20.0));
    assert_eq!(server.status()["counters"]["targets"]["down"], 1);
    let listed = server.folder.run(&["ctl", "targets"]).ok();
    assert!(listed.contains("  down for 0:00:"), "{listed}");
    alice.request(&server, "INVITE sip:+431@pstn.example", "", "none", "1 INVITE", "");
    let (refused, _) = alice.receive(" 503 ");
    assert!(refused.contains("\r\nRetry-After: "), "{refused}");
    alice.request(&server, "ACK sip:+431@pstn.example", ";tag=x", "none", "1 ACK", "");

    let answers = |status: &str| {
        let probe = one.receive("OPTIONS");
        one.answer(&probe, status);
    };
    answers("503 Service Unavailable");
    answers("405 Method Not Allowed");
    server.until("it is back", || {
        if of(&server.folder, &one)["state"] == "down" {
            answers("405 Method Not Allowed");
        }
        of(&server.folder, &one)["state"] == "slow start"
    });
    let told = of(&server.folder, &one);
    assert!(told["share"].as_f64().is_some_and(|share| (0.1..1.0).contains(&share)), "{told}");
    // The log line follows a moment later.
    server.until("it is told", || server.log().contains("answers probes again"));
    let log = server.log();
    let line = |what: &str| log.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {log}"));
    assert!(line("does not answer probes").contains("WARN") && line("answers probes again").contains("INFO"));
    assert_eq!(call(&server, &alice, "back", &[&one]).at, 0);
}

#[test]
fn a_reload_keeps_calls_and_states() {
    let (alice, one, two, three) = (End::new(), End::new(), End::new(), End::new());
    let server = Server::start(&pool("policy = \"round-robin\"", &[&one, &two]));
    let head = std::fs::read_to_string(server.folder.path().join("strowger.toml")).expect("a configuration");
    let head = head.split("[[balancer]]").next().expect("a beginning").to_owned();
    let calls: Vec<Call> =
        (0..2).map(|number| call(&server, &alice, &format!("call{number}"), &[&one, &two])).collect();
    server.folder.run(&["ctl", "drain", &one.uri()]).ok();
    server.folder.write("strowger.toml", &format!("{head}{}", pool("policy = \"least-work\"", &[&three, &one])));
    let told = server.folder.run(&["ctl", "reload"]).ok();
    assert!(
        told.starts_with("balancer.pool.policy: round-robin → least-work\nbalancer.pool.targets: added "),
        "{told}"
    );
    assert!(told.ends_with("\nreloaded strowger.toml: 0 users, 1 route\n"), "{told}");
    let found = targets(&server.folder);
    let shown: Vec<_> = found.iter().map(|target| (&target["uri"], &target["state"], &target["calls"])).collect();
    let expected = [(three.uri(), "up", 0), (one.uri(), "draining", 1), (two.uri(), "removed", 1)];
    let expected = expected.map(|(uri, state, calls)| (json!(uri), json!(state), json!(calls)));
    assert_eq!(shown, expected.iter().map(|(uri, state, calls)| (uri, state, calls)).collect::<Vec<_>>());
    // Answered calls continue.
    let at_two = calls.iter().find(|call| call.at == 1).expect("one of each");
    hang_up(&server, &alice, at_two, &two);
    server.until("nobody names it any more", || targets(&server.folder).len() == 2);

    // A faulty file changes nothing. The command would detect the fault first, so a signal triggers the reload.
    let good = std::fs::read_to_string(server.folder.path().join("strowger.toml")).expect("a configuration");
    server.folder.write("strowger.toml", &format!("{head}{}", pool("polcy = \"hash\"", &[&two])));
    server.signal("HUP");
    server.until("it is refused", || server.log().contains("not reloaded, nothing was changed: "));
    server.folder.write("strowger.toml", &good);
    assert_eq!(targets(&server.folder).len(), 2);
}

#[test]
fn targets_are_added_and_removed_until_a_reload() {
    let (alice, one, two) = (End::new(), End::new(), End::new());
    let server = Server::start(&pool("policy = \"round-robin\"", &[&one]));
    let added = server.folder.run(&["ctl", "targets", "add", "pool", &two.uri(), "--weight", "2"]).ok();
    assert_eq!(added, format!("pool: {} added (until the next reload)\n", two.uri()));
    assert_eq!(
        (&of(&server.folder, &two)["origin"], &of(&server.folder, &two)["weight"]),
        (&json!("operator"), &json!(2))
    );
    let reached: Vec<usize> =
        (0..2).map(|number| call(&server, &alice, &format!("call{number}"), &[&one, &two]).at).collect();
    assert!(reached.contains(&1), "{reached:?}");
    let error = server.folder.run(&["ctl", "targets", "add", "pool", &two.uri()]).refused(1);
    assert_eq!(error, format!("{} is already a target of pool", two.uri()));
    let error = server.folder.run(&["ctl", "targets", "add", "pol", &two.uri()]).refused(1);
    assert_eq!(error, "there is no balancer \"pol\"; balancers: there are pool");
    let error = server.folder.run(&["ctl", "targets", "add", "pool", "192.0.2.1"]).refused(1);
    assert!(error.starts_with("\"192.0.2.1\" is not a SIP URI"), "{error}");

    let removed = server.folder.run(&["ctl", "targets", "rm", &one.uri(), "--json"]).json();
    assert_eq!(
        (&removed["result"], &removed["lasts"], &removed["target"]["calls"]),
        (&json!("removed"), &json!("until reload"), &json!(1))
    );
    for number in 0..3 {
        assert_eq!(call(&server, &alice, &format!("after{number}"), &[&one, &two]).at, 1);
    }
    let told = server.folder.run(&["ctl", "reload"]).ok();
    assert_eq!(told, "reloaded strowger.toml: 0 users, 1 route; discarded: 2 changes to targets by commands\n");
    assert_eq!(
        (&of(&server.folder, &one)["state"], &of(&server.folder, &two)["state"]),
        (&json!("up"), &json!("removed"))
    );
}

#[test]
fn database_targets_stay_in_the_database() {
    let (alice, one, two) = (End::new(), End::new(), End::new());
    let balancer =
        format!("[[balancer]]\nname = \"pool\"\npolicy = \"round-robin\"\ntargets = [\"set:back\"]\n{ROUTE}");
    let server = Server::start(&balancer);
    assert!(server.log().contains("set:back has no targets: calls would get 503"), "{}", server.log());
    alice.request(&server, "INVITE sip:+431@pstn.example", "", "none", "1 INVITE", "");
    let (refused, _) = alice.receive(" 503 ");
    assert!(refused.contains("\r\nRetry-After: "), "{refused}");
    alice.request(&server, "ACK sip:+431@pstn.example", ";tag=x", "none", "1 ACK", "");

    let added = server.folder.run(&["ctl", "targets", "add", "pool", &one.uri(), "--capacity", "5"]).ok();
    assert_eq!(added, format!("pool: {} added (kept in the database)\n", one.uri()));
    assert_eq!(call(&server, &alice, "first", &[&one, &two]).at, 0);
    server.folder.run(&["gateway", "add", "back", &two.uri(), "--weight", "3"]).ok();
    server.until("it is followed", || targets(&server.folder).len() == 2);
    let told = of(&server.folder, &two);
    assert_eq!((&told["origin"], &told["weight"], &told["capacity"]), (&json!("set:back"), &json!(3), &json!(null)));
    server.folder.run(&["gateway", "disable", "back", &two.uri()]).ok();
    server.until("that too", || of(&server.folder, &two)["state"] == "disabled");
    server.folder.run(&["ctl", "reload"]).ok();
    assert_eq!((of(&server.folder, &one)["calls"].clone(), targets(&server.folder).len()), (json!(1), 2));

    let removed = server.folder.run(&["ctl", "targets", "rm", &two.uri()]).ok();
    assert_eq!(removed, format!("pool: {} removed (from the database)\n", two.uri()));
    let rows = server.folder.run(&["gateway", "list", "--json"]).json();
    let uris: Vec<_> = rows["gateways"].as_array().expect("a list").iter().map(|row| &row["uri"]).collect();
    assert_eq!(uris, [&json!(one.uri())]);
}

#[test]
fn a_reload_rereads_the_dispatcher_list() {
    let (alice, one, two) = (End::new(), End::new(), End::new());
    let balancer = "[[balancer]]\nname = \"pool\"\npolicy = \"round-robin\"\ntargets = [\"list:dispatcher.list#1\"]\n";
    let (folder, address) = Server::prepare(&format!("{balancer}{ROUTE}"));
    folder.write("dispatcher.list", &format!("# gateways\n1 {} 0 0 weight=5;maxload=7\n2 sip:192.0.2.9\n", one.uri()));
    let command = folder.command(&["serve"]);
    let server = Server::started_by(command, folder, address);
    let told = of(&server.folder, &one);
    assert_eq!(
        (&told["weight"], &told["capacity"], &told["origin"]),
        (&json!(5), &json!(7), &json!("list:dispatcher.list#1"))
    );
    call(&server, &alice, "first", &[&one]);
    server.folder.write("dispatcher.list", &format!("1 {}\n1 {} 4\n", one.uri(), two.uri()));
    assert_eq!(targets(&server.folder).len(), 1, "not before it is told");
    server.folder.run(&["ctl", "reload"]).ok();
    let states =
        [&one, &two].map(|end| (of(&server.folder, end)["state"].clone(), of(&server.folder, end)["calls"].clone()));
    assert_eq!(states, [(json!("up"), json!(1)), (json!("disabled"), json!(0))]);
    server.folder.write("dispatcher.list", &format!("1 {}\none {}\n", one.uri(), two.uri()));
    let error = server.folder.run(&["ctl", "reload"]).refused(1);
    assert!(error.contains("balancer[0].targets[0]: dispatcher.list:2: \"one\" is not a set number"), "{error}");
    assert!(error.starts_with("strowger.toml:"), "{error}");
    assert_eq!(targets(&server.folder).len(), 2, "never a half of it");
}

#[test]
fn check_describes_a_balancer_and_rejects_invalid_ones() {
    let folder = Folder::new(
        "[[balancer]]\nname = \"pool\"\npolicy = \"least-work\"\ntransaction_cost = \"2\"\ncandidates = \"two\"\nprobe = true\n\
         targets = [\"sip:192.0.2.1\", { uri = \"sip:203.0.113.2\", weight = 2, capacity = 500 }]\n[[route]]\nbalance = \"pool\"\n",
    );
    let text = std::fs::read_to_string(folder.path().join("strowger.toml")).expect("a configuration");
    let asking = folder.run(&["check"]);
    assert_eq!(
        asking.err,
        "strowger: warning: strowger.toml: auth.require: callers need a password, but there are no users: all \
         calls to balancer pool get 407; write require = [], list the callers in auth.trusted, or add users\n"
    );
    folder.write("strowger.toml", &format!("server.listen = [\"udp:203.0.113.2:5060\"]\nauth.require = []\n{text}"));
    let itself = folder.run(&["check"]);
    assert_eq!(
        itself.err,
        "strowger: warning: strowger.toml:9: balancer[0].targets[1]: sip:203.0.113.2 is this server itself, so requests would \
         loop; name another server\n"
    );
    folder.write("strowger.toml", &format!("auth.require = []\n{text}"));
    let ran = folder.run(&["check"]);
    assert_eq!(ran.err, "");
    let out = ran.ok();
    for line in [
        "pool: least-work (2) of two candidates chosen by Call-ID, sip:192.0.2.1, sip:203.0.113.2 (weight 2, up to 500 calls)\n",
        "targets are probed every 5s: down after 2 without an accepted response within 1s (200-499, 501, 6xx), up after 2; a recovered target gets \
         its full share after 30s\n",
        "*, any method: proxied to the targets of balancer pool\n",
        "created at the first start, in data/key\n",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(!folder.path().join("data").exists(), "a check changes nothing");
    for (lines, expected) in [
        ("targets = []", "strowger.toml:3: balancer[0].targets: the list is empty; "),
        (
            "targets = [\"set:pstn\"]",
            "strowger.toml:3: balancer[0].targets: set:pstn has no targets: calls would get 503; `strowger gateway add pstn \
             sip:HOST` adds one",
        ),
        ("targets = [\"list:no.list#1\"]", "strowger.toml:3: balancer[0].targets[0]: no.list cannot be read: "),
        (
            "targets = [\"sip:192.0.2.1\", \"list:a.list#3\"]",
            "strowger.toml:3: balancer[0].targets[1]: a.list: there is no destination of set 3 in it; sets: there are 1, 2",
        ),
        ("targets = [\"list:a.list#2\"]", "strowger.toml:3: balancer[0].targets[0]: a.list:2: \"sip:a b\" "),
        (
            "targets = [{ uri = \"sip:192.0.2.1\", weight = 0 }]",
            "strowger.toml:3: balancer[0].targets[0].weight: a target with weight 0 would never",
        ),
        (
            "policy = \"best\"\ntargets = [\"sip:192.0.2.1\"]",
            "strowger.toml:3: balancer[0].policy: unknown value \"best\"; ",
        ),
    ] {
        folder.write("a.list", "1 sip:192.0.2.1\n2 sip:a%20b:x\n");
        folder.write(
            "strowger.toml",
            &format!("[[balancer]]\nname = \"pool\"\n{lines}\n[[route]]\nbalance = \"pool\"\n"),
        );
        let error = folder.run(&["check"]).refused(2);
        let expected = expected.replace("sip:a b", "sip:a%20b:x");
        assert!(error.starts_with(&expected), "{error}\n{expected}");
    }
}

#[test]
fn a_shared_key_has_one_fingerprint() {
    let folder = Folder::new("server.key_file = \"shared.key\"\n");
    let error = folder.run(&["check"]).refused(2);
    assert!(
        error.contains("shared.key does not exist; copy it from the other server, or create it: `head -c 16"),
        "{error}"
    );
    let error = folder.run(&["serve"]);
    assert!(error.code == Some(2) && error.err.contains("shared.key does not exist"), "{error:?}");
    folder.write("shared.key", "00112233445566778899aabbccddeeff\n");
    let fingerprint = folder.run(&["check", "--json"]).json()["key"].as_str().expect("a key").to_owned();
    let out = folder.run(&["check"]).ok();
    assert!(out.contains(&format!("{fingerprint}, of shared.key, shared with other servers\n")), "{out}");
    let server = Server::start("");
    assert_ne!(server.status()["key"], fingerprint, "its own");
    let (other, address) = Server::prepare("server.key_file = \"key\"\n");
    std::fs::write(
        other.path().join("key"),
        std::array::from_fn::<u8, 16, _>(|at| u8::try_from(at * 0x11).expect("small")),
    )
    .expect("written");
    let command = other.command(&["serve"]);
    let server = Server::started_by(command, other, address);
    assert_eq!(server.status()["key"], fingerprint, "the same bytes, in another form");
}

#[test]
fn srv_records_are_followed_and_unknown_hosts_refused() {
    if !Bind9::available() {
        return;
    }
    let (alice, one, two) = (End::new(), End::new(), End::new());
    let zone = |port: u16| format!("back IN A {}\n_sip._udp.pool 5 IN SRV 0 3 {port} back\n", Ipv4Addr::LOCALHOST);
    let mut dns = Bind9::start("example.com", 5, &zone(one.address.port()));
    let config = |targets: &str| {
        let servers = format!("dns.servers = [\"{}\"]\n", dns.address());
        format!("{servers}[[balancer]]\nname = \"pool\"\ntargets = [{targets}]\n{ROUTE}")
    };
    let both = config("\"srv:pool.example.com\", \"sip:back.example.com:5099\"");
    let folder = Folder::new(&format!("auth.require = []\n{both}"));
    let ran = folder.run(&["check"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    for (targets, expected) in [
        ("\"sip:nobody.example.com\"", "balancer[0].targets[0]: DNS: sip:nobody.example.com resolves to no server"),
        (
            "\"sip:192.0.2.1\", \"srv:nothing.example.com\"",
            "balancer[0].targets[1]: DNS: nothing.example.com has no SRV records",
        ),
    ] {
        folder.write("strowger.toml", &config(targets));
        let error = folder.run(&["check"]).refused(2);
        assert!(error.starts_with(&format!("strowger.toml:4: {expected}")), "{error}");
    }

    let server = Server::start(&config("\"srv:pool.example.com\""));
    let uri = |end: &End| format!("sip:back.example.com:{}", end.address.port());
    let shown = |server: &Server| -> Vec<(Value, Value)> {
        targets(&server.folder).iter().map(|target| (target["uri"].clone(), target["weight"].clone())).collect()
    };
    assert_eq!(shown(&server), [(json!(uri(&one)), json!(3))]);
    assert_eq!(call(&server, &alice, "first", &[&one, &two]).at, 0);
    dns.stop();
    server.until("the DNS is missed", || {
        server.log().contains("srv:pool.example.com: DNS does not answer; its targets are unchanged")
    });
    assert_eq!(shown(&server).len(), 1);
    assert_eq!(call(&server, &alice, "second", &[&one, &two]).at, 0);
    let error = server.folder.run(&["ctl", "drain", "--wait", "--for", "1ms", &uri(&one)]);
    assert_eq!(error.code, Some(1), "{error:?}");
}
