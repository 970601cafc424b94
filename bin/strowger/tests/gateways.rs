//! Gateways: managed by commands and used by a server process.

mod common;

use common::Folder;
use common::end::End;
use common::server::Server;
use serde_json::json;

const ROUTE: &str = "proxy.failover_timeout = \"1s\"\n[[route]]\ntargets = [\"set:pstn\"]\n";

/// A server with a route to the set pstn.
fn server() -> Server {
    Server::start(ROUTE)
}

fn add(folder: &Folder, end: &End, more: &[&str]) {
    let uri = end.uri();
    let arguments: Vec<&str> = ["gateway", "add", "pstn", &uri].into_iter().chain(more.iter().copied()).collect();
    assert_eq!(folder.run(&arguments).ok(), format!("pstn: {uri} added\n"));
}

/// Runs a command and waits until the server has applied its change.
fn change(server: &Server, command: &str, end: &End) {
    let before = taken_over(server);
    server.folder.run(&["gateway", command, "pstn", &end.uri()]).ok();
    wait_for_more(server, before);
}

fn taken_over(server: &Server) -> usize {
    server.log().matches("gateways: pstn: ").count()
}

fn wait_for_more(server: &Server, before: usize) {
    server.until("the server has learnt of it", || taken_over(server) > before);
}

/// Makes a call and returns the index of the gateway that receives it. The gateway refuses the call.
fn call_reaches(server: &Server, alice: &End, id: &str, gateways: &[&End]) -> usize {
    alice.request(server, "INVITE sip:+431@pstn.example", "", id, "1 INVITE", "");
    let (index, invite) = End::reached(server, gateways, id);
    gateways[index].answer(&invite, "486 Busy Here");
    alice.receive(" 486 ");
    alice.request(server, "ACK sip:+431@pstn.example", ";tag=g", id, "1 ACK", "");
    index
}

fn refusal(server: &Server, alice: &End, id: &str) -> String {
    alice.request(server, "INVITE sip:+431@pstn.example", "", id, "1 INVITE", "");
    let (text, _) = alice.receive(" 500 ");
    alice.request(server, "ACK sip:+431@pstn.example", ";tag=x", id, "1 ACK", "");
    text
}

#[test]
fn the_next_gateway_takes_the_call_when_the_first_is_dead() {
    let (folder, address) = Server::prepare(ROUTE);
    let (alice, dead, alive) = (End::new(), End::new(), End::new());
    add(&folder, &alive, &["--priority", "2"]);
    add(&folder, &dead, &["--priority", "1", "--note", "says nothing"]);
    let command = folder.command(&["serve"]);
    let server = Server::started_by(command, folder, address);

    alice.request(&server, "INVITE sip:+431@pstn.example", "", "call", "1 INVITE", "");
    dead.receive("INVITE");
    let invite = alive.receive("INVITE sip:+431@pstn.example ");
    alive.answer(&invite, "200 OK");
    let (answer, _) = alice.receive(" 200 ");
    let route = answer.lines().find_map(|line| line.strip_prefix("Record-Route: ")).expect("a record-route");
    let route = format!("Route: {route}\n");
    alice.request(&server, &format!("ACK {}", alive.uri()), ";tag=g", "call", "1 ACK", &route);
    alive.receive("ACK");
    alice.request(&server, &format!("BYE {}", alive.uri()), ";tag=g", "call", "2 BYE", &route);
    let bye = alive.receive("BYE");
    alive.answer(&bye, "200 OK");
    alice.receive(" 200 ");
}

#[test]
fn an_outage_is_shown_until_the_gateway_answers() {
    let (folder, address) = Server::prepare(ROUTE);
    let (alice, first, second) = (End::new(), End::new(), End::new());
    add(&folder, &first, &["--priority", "1"]);
    add(&folder, &second, &["--priority", "2"]);
    let states = |folder: &Folder| {
        let rows = folder.run(&["gateway", "list", "--json"]).json();
        let rows = rows["gateways"].as_array().expect("a list").clone();
        let state = |row: &serde_json::Value| row.get("outage").map(|outage| outage["cause"].clone());
        (state(&rows[0]), state(&rows[1]))
    };
    assert_eq!(states(&folder), (None, None), "no server runs that would know");
    let command = folder.command(&["serve"]);
    let server = Server::started_by(command, folder, address);
    assert_eq!(states(&server.folder), (Some(json!(null)), Some(json!(null))));

    // Both gateways are silent; the caller gets the error after the second timeout.
    alice.request(&server, "INVITE sip:+431@pstn.example", "", "silent", "1 INVITE", "");
    let (refused, _) = alice.receive(" 500 ");
    alice.request(&server, "ACK sip:+431@pstn.example", ";tag=x", "silent", "1 ACK", "");
    assert!(refused.contains("Call-ID: silent"), "{refused}");
    let told = |end: &End| {
        format!("gateway {} of pstn (udp:{}) does not answer (timeout); tried last for 30s", end.uri(), end.address)
    };
    server.until("the log tells of both", || {
        let log = server.log();
        log.contains(&told(&first)) && log.contains(&told(&second))
    });
    server.until("the log tells that there is none", || server.log().contains("no gateway of pstn answers"));
    server.until("the call is counted", || server.status()["counters"]["shards"]["no_gateway"] == 1);
    let status = server.status();
    let outages = status["outages"].as_array().expect("a list");
    assert_eq!(outages.len(), 2, "{status}");
    for outage in outages {
        assert_eq!(
            (&outage["set"], &outage["cause"], &outage["trunk"]),
            (&json!("pstn"), &json!("timeout"), &json!(null))
        );
        assert!(outage["avoided_s"].as_f64().is_some_and(|left| left > 10.0 && left <= 30.0), "{outage}");
    }
    let text = server.folder.run(&["ctl", "status"]).ok();
    let line = format!("gateway {} of pstn: timeout for 0:00:", first.uri());
    assert!(text.starts_with("no answer") && text.contains(&line) && text.contains(", tried last for 0:00:"), "{text}");
    assert_eq!(states(&server.folder), (Some(json!("timeout")), Some(json!("timeout"))));
    let listed = server.folder.run(&["gateway", "list", "pstn"]).ok();
    assert_eq!(listed.matches("  no answer (timeout) 0:00:").count(), 2, "{listed}");

    while first.glance().is_some() {}
    assert_eq!(call_reaches(&server, &alice, "busy", &[&first]), 0);
    server.until("the log tells that it answers", || {
        server.log().contains(&format!(
            "gateway {} of pstn (udp:{}) answers again, after 0:00:",
            first.uri(),
            first.address
        ))
    });
    assert_eq!(states(&server.folder), (Some(json!(null)), Some(json!("timeout"))));
    assert_eq!(server.log().matches(" does not answer (").count(), 2, "each once: {}", server.log());
}

#[test]
fn a_running_server_sees_new_gateways() {
    let server = server();
    let (alice, first, second) = (End::new(), End::new(), End::new());
    let both = [&first, &second];
    assert!(server.log().contains("the set pstn has no gateways"), "{}", server.log());
    let text = refusal(&server, &alice, "none");
    assert!(
        text.starts_with("SIP/2.0 500 No Gateway In Service\r\n") && text.contains("\r\nRetry-After: 5\r\n"),
        "{text}"
    );

    add(&server.folder, &first, &["--priority", "1"]);
    wait_for_more(&server, 0);
    assert_eq!(call_reaches(&server, &alice, "first", &both), 0);
    let before = taken_over(&server);
    add(&server.folder, &second, &[]);
    wait_for_more(&server, before);
    assert_eq!(call_reaches(&server, &alice, "second", &both), 1, "the lower priority goes first");

    change(&server, "disable", &second);
    assert_eq!(call_reaches(&server, &alice, "disabled", &both), 0);
    assert_eq!(server.folder.run(&["ctl", "reload"]).code, Some(0));
    assert_eq!(call_reaches(&server, &alice, "reloaded", &both), 0);
    change(&server, "enable", &second);
    assert_eq!(call_reaches(&server, &alice, "enabled", &both), 1);

    change(&server, "rm", &second);
    assert_eq!(call_reaches(&server, &alice, "removed", &both), 0);
    change(&server, "disable", &first);
    assert!(refusal(&server, &alice, "nobody").contains("\r\nRetry-After: 5\r\n"));
    assert!(server.log().contains("every gateway of the set pstn is disabled"), "{}", server.log());
    change(&server, "rm", &first);
    assert!(refusal(&server, &alice, "empty").contains("\r\nRetry-After: 5\r\n"));
}

#[test]
fn equal_gateways_share_the_calls() {
    let server = server();
    let (alice, first, second) = (End::new(), End::new(), End::new());
    add(&server.folder, &first, &[]);
    add(&server.folder, &second, &[]);
    server.until("both are known", || {
        let log = server.log();
        log.lines().any(|line| line.contains(&first.uri()) && line.contains(&second.uri()))
    });
    let mut calls = [0; 2];
    for index in 0..24 {
        calls[call_reaches(&server, &alice, &format!("call{index}"), &[&first, &second])] += 1;
    }
    assert!(calls.iter().all(|count| *count > 2), "{calls:?}");
}

#[test]
fn gateways_are_added_listed_changed_and_removed() {
    let folder = Folder::new("[[route]]\ntargets = [\"set:pstn\"]\n");
    let ran = folder.run(&["gateway", "add", "pstn", "sip:192.0.2.1:5060"]);
    assert!(ran.err.starts_with("strowger: note: this is the first row of a new database, "), "{ran:?}");
    assert_eq!(ran.ok(), "pstn: sip:192.0.2.1:5060 added\n");
    let tcp = "sip:gw.carrier.example;transport=tcp";
    let more = ["--priority", "1", "--weight", "3", "--capacity", "30", "--note", "second line"];
    let arguments: Vec<&str> = ["gateway", "add", "pstn", tcp].into_iter().chain(more).collect();
    let ran = folder.run(&arguments);
    assert_eq!((ran.err.as_str(), ran.code), ("", Some(0)));
    let ran = folder.run(&["gateway", "add", "mobil", "sip:192.0.2.9", "--json"]);
    let note = "strowger: note: no route uses this set; add one with targets = [\"set:mobil\"]\n";
    assert_eq!(ran.err, note);
    assert_eq!(ran.json(), json!({ "result": "added", "set": "mobil", "uri": "sip:192.0.2.9" }));

    assert_eq!(folder.run(&["gateway", "disable", "pstn", tcp]).ok(), format!("pstn: {tcp} disabled\n"));
    let changed = folder.run(&["gateway", "change", "pstn", tcp, "--weight", "5", "--capacity", "none"]).ok();
    assert_eq!(changed, format!("pstn: {tcp} changed\n"));
    let listed = folder.run(&["gateway", "list", "pstn"]).ok();
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines,
        [
            vec!["SET", "URI", "PRIORITY", "WEIGHT", "CAPACITY", "STATE", "NOTE"],
            vec!["pstn", "sip:192.0.2.1:5060", "0", "1", "-", "enabled"],
            vec!["pstn", tcp, "1", "5", "-", "disabled", "second", "line"],
        ]
    );
    assert_eq!(folder.run(&["gateway", "rm", "mobil", "sip:192.0.2.9"]).ok(), "mobil: sip:192.0.2.9 removed\n");
    let value = folder.run(&["gateway", "list", "--json"]).json();
    let rows = value["gateways"].as_array().expect("a list");
    assert_eq!((rows.len(), &rows[1]["note"], &rows[1]["enabled"]), (2, &json!("second line"), &json!(false)));
    assert_eq!((&rows[1]["weight"], &rows[1]["capacity"]), (&json!(5), &json!(null)));
}

#[test]
fn an_invalid_gateway_is_refused() {
    let folder = Folder::new("");
    let error = folder.run(&["gateway", "list"]).refused(1);
    assert!(error.starts_with("there are no gateways at ") && error.contains("strowger gateway add"), "{error}");
    assert!(!folder.path().join("data").exists(), "looking makes nothing");
    for (uri, expected) in [
        ("192.0.2.1", "\"192.0.2.1\" is not a SIP URI; write sip:HOST or sip:HOST:PORT, such as sip:192.0.2.1:5060"),
        (
            "sip:192.0.2.1;transport=ws",
            "\"sip:192.0.2.1;transport=ws\" asks for a transport that is not supported yet, only udp, tcp and tls are; leave it out",
        ),
        ("set:other", "\"set:other\": a set stands alone among a route's targets, such as targets = [\"set:pstn\"]"),
    ] {
        assert_eq!(folder.run(&["gateway", "add", "pstn", uri]).refused(2), expected);
    }
    let error = folder.run(&["gateway", "add", "p stn", "sip:192.0.2.1"]).refused(2);
    assert!(error.starts_with("\"p stn\" is not a valid set name; write letters, digits"), "{error}");
    for more in [["--weight", "65536"], ["--priority", "-1"], ["--capacity", "0"]] {
        let arguments: Vec<&str> = ["gateway", "add", "pstn", "sip:192.0.2.1"].into_iter().chain(more).collect();
        assert_eq!(folder.run(&arguments).code, Some(2), "{more:?}");
    }
    folder.run(&["gateway", "add", "pstn", "sip:192.0.2.1"]).ok();
    assert_eq!(
        folder.run(&["gateway", "add", "pstn", "sip:192.0.2.1"]).refused(1),
        "sip:192.0.2.1 is already in the set pstn; `strowger gateway change pstn sip:192.0.2.1` changes it"
    );
    for command in ["rm", "enable", "disable", "change"] {
        let error = folder.run(&["gateway", command, "pstn", "sip:192.0.2.2"]).refused(1);
        assert!(error.starts_with("there is no gateway sip:192.0.2.2 in the set pstn; "), "{error}");
    }
    let memory = Folder::new("[store]\nurl = \"memory:\"\n");
    let error = memory.run(&["gateway", "list"]).refused(2);
    assert!(error.starts_with("store.url is memory:, so gateways cannot be stored"), "{error}");
    for command in ["add", "change", "rm", "enable", "disable", "list"] {
        let help = folder.run(&["gateway", command, "--help"]).ok();
        assert!(help.contains("Example"), "{command}: {help}");
    }
}

#[test]
fn check_shows_route_targets() {
    let folder = Folder::new("[[route]]\ntargets = [\"set:pstn\", { uri = \"sip:192.0.2.9\", priority = 9 }]\n");
    let ran = folder.run(&["check"]);
    assert_eq!(
        ran.err,
        "strowger: warning: route[0].targets[0]: the set pstn has no gateways: its calls go to the other targets, or \
         get 500 with Retry-After if there are none; `strowger gateway add pstn sip:HOST` adds one\n"
    );
    assert!(!folder.path().join("data").exists(), "a check changes nothing");
    let out = ran.ok();
    assert!(out.contains("\ngateways       none\n"), "{out}");
    assert!(out.contains("proxied to the gateways of pstn, sip:192.0.2.9 (priority 9, weight 1)\n"), "{out}");

    folder.run(&["gateway", "add", "pstn", "sip:192.0.2.1", "--weight", "2"]).ok();
    folder.run(&["gateway", "add", "pstn", "sip:192.0.2.2"]).ok();
    folder.run(&["gateway", "disable", "pstn", "sip:192.0.2.2"]).ok();
    let ran = folder.run(&["check"]);
    assert_eq!(ran.err, "");
    assert!(
        ran.out.contains("\ngateways       pstn: sip:192.0.2.1 (priority 0, weight 2), 1 disabled\n"),
        "{}",
        ran.out
    );
    let value = folder.run(&["check", "--json"]).json();
    assert_eq!(value["gateways"]["pstn"][0]["weight"], 2);
    assert_eq!((&value["warnings"], value["gateways"]["pstn"].as_array().map(Vec::len)), (&json!([]), Some(2)));
    assert_eq!(value["configuration"]["route"][0]["targets"][0], "set:pstn");

    folder.write("strowger.toml", "[[route]]\ntargets = [\"set:pstm\"]\n");
    let warning = &folder.run(&["check", "--json"]).json()["warnings"][0];
    assert_eq!(
        warning,
        "route[0].targets[0]: the set pstm has no gateways: its calls get 500 with Retry-After; did you mean set:pstn?"
    );
    folder.run(&["gateway", "disable", "pstn", "sip:192.0.2.1"]).ok();
    folder.write("strowger.toml", "[[route]]\ntargets = [\"set:pstn\"]\n");
    let warning = folder.run(&["check"]).err;
    assert!(warning.contains("every gateway of the set pstn is disabled: its calls get 500"), "{warning}");
    folder.write("strowger.toml", "store.url = \"memory:\"\n[[route]]\ntargets = [\"set:pstn\"]\n");
    let error = folder.run(&["check"]).refused(2);
    assert!(error.starts_with("strowger.toml:3: route[0].targets[0]: set:pstn is read from the database"), "{error}");
}

#[test]
fn a_backup_carries_gateways() {
    let folder = Folder::new("");
    folder.run(&["gateway", "add", "pstn", "sip:192.0.2.1", "--capacity", "30", "--note", "first"]).ok();
    folder.run(&["gateway", "add", "pstn", "sip:192.0.2.2"]).ok();
    folder.run(&["gateway", "disable", "pstn", "sip:192.0.2.2"]).ok();
    let before = folder.run(&["gateway", "list", "--json"]).json();
    let written = folder.run(&["backup", "nightly.backup"]).ok();
    assert!(written.contains("2 gateways"), "{written}");
    folder.run(&["gateway", "rm", "pstn", "sip:192.0.2.1"]).ok();
    let told = folder.run(&["restore", "--force", "nightly.backup", "--json"]).json();
    assert_eq!(told["gateways"], 2);
    assert_eq!(folder.run(&["gateway", "list", "--json"]).json(), before);
}
