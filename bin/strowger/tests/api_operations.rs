//! What the operations of the administration API do, compared with the commands that do the same.

mod common;

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};

use common::api::{Client, LISTEN};
use common::end::End;
use common::server::Server;
use serde_json::{Value, json};

/// Removes what changes from moment to moment.
fn settled(mut value: Value) -> Value {
    fn clear(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.retain(|name, _| {
                    !matches!(
                        name.as_str(),
                        "uptime_s" | "expires_s" | "loads" | "counters" | "age_s" | "last_s" | "since_s" | "left_s"
                    )
                });
                members.values_mut().for_each(clear);
            }
            Value::Array(items) => items.iter_mut().for_each(clear),
            _ => {}
        }
    }
    clear(&mut value);
    value
}

fn register(server: &Server, phone: &UdpSocket, user: &str) -> String {
    let local = phone.local_addr().expect("bound");
    let head = format!(
        "REGISTER sip:localhost SIP/2.0\nFrom: <sip:{user}@localhost>;tag=1\nTo: <sip:{user}@localhost>\n\
         Call-ID: {user}\nCSeq: 1 REGISTER\nContact: <sip:{user}@{local}>"
    );
    server.ask(phone, &head)
}

#[test]
fn users_are_added_changed_and_removed() {
    let server = Server::start(LISTEN);
    let (boss, eyes) = (Client::of(&server, "administrator"), Client::of(&server, "viewer"));
    let made = boss.json("POST", "/api/v1/users", &json!({ "aor": "alice", "password": "s3cret-word" }));
    let alice = made.expect(201);
    assert_eq!(
        (&alice["aor"], &alice["enabled"], &alice["aliases"]),
        (&json!("alice@localhost"), &json!(true), &json!([]))
    );
    assert!(made.head.contains("location: /api/v1/users/alice@localhost"), "{made:?}");
    assert_eq!(server.status()["users"], 1, "the server knows the user when the request ends");
    boss.json("POST", "/api/v1/users", &json!({ "aor": "alice@localhost", "password": "x" })).problem(409);
    let foreign = json!({ "aor": "dora@example.org", "password": "x" });
    let foreign = boss.json("POST", "/api/v1/users", &foreign).expect(201);
    let note = "example.org is not in server.domains, so the server does not serve dora@example.org";
    assert_eq!((&foreign["note"], &alice["note"]), (&json!(note), &json!(null)));
    assert_eq!(eyes.get("/api/v1/users/dora@example.org").expect(200)["note"], note);
    boss.ask("DELETE", "/api/v1/users/dora@example.org");
    for (user, field) in [
        (json!({ "aor": "@", "password": "x" }), "aor"),
        (json!({ "aor": "bob", "password": "" }), "password"),
        (json!({ "aor": "bob", "password": 7 }), "password"),
        (json!({ "aor": "bob", "password": "x", "role": "boss" }), "role"),
    ] {
        assert_eq!(boss.json("POST", "/api/v1/users", &user).problem(422)["field"], field, "{user}");
    }
    assert_eq!(eyes.get("/api/v1/users/alice").expect(200), alice);
    assert_eq!(eyes.get("/api/v1/users/alice%40localhost").expect(200), alice);
    eyes.get("/api/v1/users/bob").problem(404);
    eyes.get("/api/v1/users/%FF").problem(400);
    let alias = boss.ask("PUT", "/api/v1/users/alice/aliases/100").expect(200);
    assert_eq!(alias, json!({ "alias": "100@localhost", "aor": "alice@localhost" }));
    boss.ask("PUT", "/api/v1/users/alice/aliases/100").expect(200);
    boss.ask("PUT", "/api/v1/users/nobody/aliases/101").problem(404);
    boss.json("POST", "/api/v1/users", &json!({ "aor": "bob", "password": "x" })).expect(201);
    boss.ask("PUT", "/api/v1/users/bob/aliases/100").problem(409);
    let listed = eyes.get("/api/v1/users").expect(200);
    assert_eq!(listed["users"], server.folder.run(&["user", "list", "--json"]).json()["users"]);
    let first = eyes.get("/api/v1/users?limit=1").expect(200);
    assert_eq!((&first["users"][0]["aor"], &first["more"]), (&json!("alice@localhost"), &json!(true)));
    let next = eyes.get("/api/v1/users?limit=1&after=alice%40localhost").expect(200);
    assert_eq!((&next["users"][0]["aor"], &next["more"]), (&json!("bob@localhost"), &json!(false)));
    assert_eq!(eyes.get("/api/v1/users?search=100").expect(200)["users"][0]["aor"], "alice@localhost");
    eyes.get("/api/v1/users?limit=0").problem(400);
    eyes.get("/api/v1/users?limit=1001").problem(400);
    let off = boss.json("PATCH", "/api/v1/users/alice", &json!({ "enabled": false })).expect(200);
    assert_eq!(off["enabled"], false);
    boss.json("PATCH", "/api/v1/users/alice", &json!({ "password": "another-word" })).expect(200);
    boss.json("PATCH", "/api/v1/users/alice", &json!({})).problem(422);
    boss.json("PATCH", "/api/v1/users/nobody", &json!({ "enabled": true })).problem(404);
    boss.delete("/api/v1/users/bob/aliases/100").problem(404);
    assert_eq!(boss.delete("/api/v1/users/alice/aliases/100").status, 204);
    assert_eq!(boss.delete("/api/v1/users/alice").status, 204);
    boss.delete("/api/v1/users/alice").problem(404);
    assert_eq!(server.status()["users"], 1);
    let log = server.log();
    for line in ["user add", "user alias add", "user disable", "user passwd", "user rm"] {
        assert!(log.contains(&format!("action=\"{line}\"")), "{line}: {log}");
    }
    assert!(
        log.contains("by=\"token administrator, address 127.0.0.1\"") && log.contains("result=\"failed\""),
        "{log}"
    );
    assert!(!log.contains("s3cret-word") && !log.contains("another-word") && !log.contains("swg_"), "{log}");
}

#[test]
fn gateways_are_added_changed_and_removed() {
    let server = Server::start(LISTEN);
    let (boss, eyes) = (Client::of(&server, "administrator"), Client::of(&server, "viewer"));
    let uri = "sip:192.0.2.1:5060";
    let new = json!({ "set": "pstn", "uri": uri, "capacity": 30, "note": "first line" });
    let made = boss.json("POST", "/api/v1/gateways", &new).expect(201);
    assert_eq!((&made["weight"], &made["capacity"], &made["enabled"]), (&json!(1), &json!(30), &json!(true)));
    boss.json("POST", "/api/v1/gateways", &new).problem(409);
    for (gateway, field) in [
        (json!({ "set": "a b", "uri": uri }), "set"),
        (json!({ "set": "pstn", "uri": "nonsense" }), "uri"),
        (json!({ "set": "pstn", "uri": uri, "weight": 70_000 }), "weight"),
    ] {
        assert_eq!(boss.json("POST", "/api/v1/gateways", &gateway).problem(422)["field"], field, "{gateway}");
    }
    assert_eq!(eyes.get("/api/v1/gateways").expect(200), server.folder.run(&["gateway", "list", "--json"]).json());
    assert_eq!(eyes.get("/api/v1/gateways?set=other").expect(200)["gateways"], json!([]));
    let path = "/api/v1/gateways/pstn/sip%3A192.0.2.1%3A5060";
    let changed = boss.json("PATCH", path, &json!({ "capacity": null, "enabled": false })).expect(200);
    assert_eq!(
        (&changed["capacity"], &changed["enabled"], &changed["note"]),
        (&Value::Null, &json!(false), &json!("first line"))
    );
    boss.json("PATCH", path, &json!({})).problem(422);
    boss.json("PATCH", "/api/v1/gateways/pstn/sip:192.0.2.9", &json!({ "weight": 2 })).problem(404);
    assert_eq!(boss.delete(path).status, 204);
    boss.delete(path).problem(404);
}

#[test]
fn registrations_are_listed_and_removed() {
    let server = Server::start(LISTEN);
    let (operator, eyes) = (Client::of(&server, "operator"), Client::of(&server, "viewer"));
    let phone = UdpSocket::bind("127.0.0.1:0").expect("a port");
    assert!(register(&server, &phone, "alice").starts_with("SIP/2.0 200 "));
    assert!(register(&server, &phone, "bob").starts_with("SIP/2.0 200 "));
    let listed = eyes.get("/api/v1/registrations").expect(200);
    assert_eq!(settled(listed.clone()), settled(server.folder.run(&["ctl", "registrations", "--json"]).json()));
    assert_eq!(listed["registrations"].as_array().map(Vec::len), Some(2));
    let of_alice = eyes.get("/api/v1/registrations?user=alice").expect(200);
    assert_eq!(of_alice["registrations"][0]["aor"], "alice@localhost");
    assert_eq!(eyes.get("/api/v1/registrations?limit=1").expect(200)["more"], true);
    eyes.get("/api/v1/registrations?limit=10001").problem(400);
    eyes.get("/api/v1/registrations?limit=many").problem(400);
    operator.delete("/api/v1/registrations/alice?contact=sip:other@192.0.2.1").problem(404);
    let contact = of_alice["registrations"][0]["contact"].as_str().expect("a contact").replace(':', "%3A");
    let gone = operator.delete(&format!("/api/v1/registrations/alice?contact={contact}")).expect(200);
    assert_eq!(gone["registrations"].as_array().map(Vec::len), Some(1));
    server.until("it is gone", || operator.delete("/api/v1/registrations/alice").status == 404);
    operator.delete("/api/v1/registrations/bob").expect(200);
    server.until("they are gone", || server.status()["registrations"] == 0);
    assert!(server.log().contains("action=\"unregister\" object=\"bob@localhost\""), "{}", server.log());
}

#[test]
fn targets_are_drained_added_and_removed() {
    let (one, two) = (End::new(), End::new());
    let server = Server::start(&format!(
        "{LISTEN}[[balancer]]\nname = \"pool\"\npolicy = \"round-robin\"\ntargets = [\"{}\"]\n[[route]]\nbalance = \"pool\"\n",
        one.uri()
    ));
    let [eyes, operator, boss] = ["viewer", "operator", "administrator"].map(|role| Client::of(&server, role));
    let listed = eyes.get("/api/v1/targets").expect(200);
    assert_eq!(listed, server.folder.run(&["ctl", "targets", "--json"]).json());
    assert_eq!(eyes.get("/api/v1/targets?set=pool").expect(200), listed);
    eyes.get("/api/v1/targets?set=other").problem(404);
    assert_eq!(eyes.get("/api/v1/balancers").expect(200)["balancers"], server.status()["balancers"]);
    let id = listed["targets"][0]["id"].as_str().expect("an id");
    let drained = operator.ask("POST", &format!("/api/v1/targets/{id}/drain")).expect(200);
    assert_eq!((&drained["target"]["draining"], &drained["target"]["calls"]), (&json!(true), &json!(0)));
    assert_eq!(drained["lasts"], "until restart");
    let by_name = format!("/api/v1/targets/pool%2F{}/undrain", one.uri().replace(':', "%3A"));
    assert_eq!(operator.ask("POST", &by_name).expect(200)["target"]["draining"], false);
    operator.ask("POST", "/api/v1/targets/nobody/drain").problem(404);
    let new = json!({ "set": "pool", "uri": two.uri(), "weight": 2 });
    let added = boss.json("POST", "/api/v1/targets", &new).expect(201);
    assert_eq!((&added["target"]["weight"], &added["lasts"]), (&json!(2), &json!("until reload")));
    boss.json("POST", "/api/v1/targets", &new).problem(409);
    boss.json("POST", "/api/v1/targets", &json!({ "set": "other", "uri": two.uri(), "weight": 1 })).problem(422);
    let id = added["target"]["id"].as_str().expect("an id");
    boss.delete(&format!("/api/v1/targets/{id}")).expect(200);
    boss.delete(&format!("/api/v1/targets/{id}")).problem(404);
    let log = server.log();
    assert!(log.contains("action=\"drain\"") && log.contains("action=\"target add\""), "{log}");
}

#[test]
fn addresses_are_banned_until_they_are_not() {
    let server = Server::start(LISTEN);
    let (operator, eyes) = (Client::of(&server, "operator"), Client::of(&server, "viewer"));
    let ban = |address: &str| operator.json("POST", "/api/v1/bans", &json!({ "address": address, "for_s": 3600 }));
    let made = ban("127.0.78.1").expect(201);
    assert_eq!((&made["address"], &made["cause"]), (&json!("127.0.78.1"), &json!("operator")));
    assert!(made["left_s"].as_f64().is_some_and(|left| left > 3_000.0), "{made}");
    let forever = operator.json("POST", "/api/v1/bans", &json!({ "address": "2001:db8::7" })).expect(201);
    assert_eq!((&forever["address"], forever.get("left_s")), (&json!("2001:db8::/64"), None));
    let listed = eyes.get("/api/v1/bans").expect(200);
    assert_eq!(settled(listed.clone()), settled(server.folder.run(&["ctl", "ban", "--json"]).json()));
    assert_eq!((listed["bans"].as_array().map(Vec::len), &listed["more"]), (Some(2), &json!(false)));
    assert_eq!(eyes.get("/api/v1/bans?limit=1").expect(200)["more"], true);
    for (new, field) in [
        (json!({ "address": "nonsense" }), "address"),
        (json!({ "address": "192.0.2.1", "for_s": 0 }), "for_s"),
        (json!({ "address": "192.0.2.1", "for_s": u64::MAX }), "for_s"),
        (json!({ "address": "192.0.2.1", "why": "noise" }), "why"),
    ] {
        assert_eq!(operator.json("POST", "/api/v1/bans", &new).problem(422)["field"], field, "{new}");
    }
    let phone = |last: u8| UdpSocket::bind((Ipv4Addr::new(127, 0, 78, last), 0)).expect("a port");
    assert!(register(&server, &phone(2), "bob").starts_with("SIP/2.0 200 "), "others are served");
    operator.delete("/api/v1/bans/nonsense").problem(400);
    operator.delete("/api/v1/bans/192.0.2.1").problem(404);
    assert_eq!(operator.delete("/api/v1/bans/127.0.78.1").expect(200)["address"], "127.0.78.1");
    operator.delete("/api/v1/bans/127.0.78.1").problem(404);
    operator.delete("/api/v1/bans/2001:db8::%2F64").expect(200);
    assert!(register(&server, &phone(1), "alice").starts_with("SIP/2.0 200 "), "it is served again");
    assert_eq!(eyes.get("/api/v1/bans").expect(200)["bans"], json!([]));
    let log = server.log();
    assert!(log.contains("action=\"ban add\" object=\"127.0.78.1\"") && log.contains("action=\"ban rm\""), "{log}");
}

#[test]
fn status_and_lists_equal_those_of_the_commands() {
    let server = Server::start(LISTEN);
    let eyes = Client::of(&server, "viewer");
    assert_eq!(settled(eyes.get("/api/v1/status").expect(200)), settled(server.status()));
    assert_eq!(eyes.get("/api/v1/calls").expect(200), server.folder.run(&["ctl", "calls", "--json"]).json());
    assert!(eyes.get("/api/v1/members").problem(404)["detail"].as_str().is_some_and(|why| why.contains("[cluster]")));
    eyes.get("/api/v1/clusters").problem(404);
    let times = eyes.get("/api/v1/timing").expect(200);
    let shown = server.folder.run(&["ctl", "timing", "--since-start", "--json"]).json();
    let names = |value: &Value| value.as_object().expect("a report").keys().cloned().collect::<Vec<_>>();
    assert_eq!((times["method"].as_str(), names(&times)), (Some("server"), names(&shown)));
    assert!(eyes.get("/api/v1/timing?duration_ms=100").expect(200)["seconds"].as_f64().is_some_and(|time| time >= 0.1));
    eyes.get("/api/v1/timing?duration_ms=1").problem(400);
}

#[test]
fn the_configuration_is_shown_checked_and_reloaded() {
    let with = |max: u32| {
        format!(
            "{LISTEN}[registrar]\nmax_contacts = {max}\n[[trunk]]\nname = \"carrier\"\ntargets = [\"sip:192.0.2.1\"]\n\
                 username = \"us\"\npassword = \"s3cret-word\"\n"
        )
    };
    let server = Server::start(&with(10));
    let [operator, boss] = ["operator", "administrator"].map(|role| Client::of(&server, role));
    let shown = boss.get("/api/v1/configuration").expect(200);
    assert_eq!(shown["configuration"]["registrar"]["max_contacts"], 10);
    assert!(!shown.to_string().contains("s3cret-word"), "{shown}");
    assert_eq!(shown["file"], "strowger.toml");
    operator.get("/api/v1/configuration").problem(403);
    let text = server.folder.read("strowger.toml");
    server.folder.write("strowger.toml", &text.replace("max_contacts = 10", "max_contacts = 99"));
    for path in ["/api/v1/configuration/check", "/api/v1/configuration/reload"] {
        let problem = operator.ask("POST", path).problem(422);
        assert!(problem["detail"].as_str().is_some_and(|why| why.contains("max_contacts")), "{problem}");
    }
    let problem = operator.get("/api/v1/configuration/changes").problem(422);
    assert!(problem["detail"].as_str().is_some_and(|why| why.contains("max_contacts")), "{problem}");
    server.folder.write("strowger.toml", &text.replace("max_contacts = 10", "max_contacts = 5"));
    let changes = operator.get("/api/v1/configuration/changes").expect(200);
    let change = json!({ "key": "registrar.max_contacts", "change": "value", "before": "10", "after": "5" });
    assert_eq!(changes["changes"], json!([change]));
    assert_eq!(changes, server.folder.run(&["ctl", "reload", "--dry-run", "--json"]).json());
    let checked = operator.ask("POST", "/api/v1/configuration/check").expect(200);
    assert!(checked["result"].as_str().is_some_and(|result| result.contains("is valid")), "{checked}");
    assert_eq!(boss.get("/api/v1/configuration").expect(200)["configuration"]["registrar"]["max_contacts"], 10);
    let reloaded = operator.ask("POST", "/api/v1/configuration/reload").expect(200);
    assert!(reloaded["result"].as_str().is_some_and(|result| result.contains("reloaded")), "{reloaded}");
    assert_eq!(boss.get("/api/v1/configuration").expect(200)["configuration"]["registrar"]["max_contacts"], 5);
}

#[test]
fn backups_are_written_into_their_folder_only() {
    let server = Server::start(LISTEN);
    let boss = Client::of(&server, "administrator");
    boss.json("POST", "/api/v1/users", &json!({ "aor": "alice", "password": "x" })).expect(201);
    let report = boss.json("POST", "/api/v1/backups", &json!({ "file": "one.backup" })).expect(201);
    assert_eq!((&report["users"], &report["key"]), (&json!(1), &json!(true)));
    assert!(server.folder.path().join("data/backups/one.backup").exists());
    boss.json("POST", "/api/v1/backups", &json!({ "file": "one.backup" })).problem(409);
    boss.json("POST", "/api/v1/backups", &json!({ "file": "one.backup", "overwrite": true })).expect(201);
    for bad in ["", "../x", "/tmp/x", ".hidden", "a/b", "a b", &"x".repeat(101)] {
        assert_eq!(
            boss.json("POST", "/api/v1/backups", &json!({ "file": bad })).problem(422)["field"],
            "file",
            "{bad}"
        );
    }
}

/// Reads events until one has this name, and returns its data.
fn next_event(lines: &mut impl Iterator<Item = String>, name: &str) -> Value {
    let wanted = format!("event: {name}");
    lines.find(|line| *line == wanted).unwrap_or_else(|| panic!("no {name}"));
    let data = lines.next().expect("data");
    serde_json::from_str(data.strip_prefix("data: ").expect("data")).expect("JSON")
}

#[test]
fn messages_are_traced_as_they_pass() {
    let server = Server::start(LISTEN);
    let operator = Client::of(&server, "operator");
    for bad in
        ["", "?user=alice&ip=127.0.0.1", "?user=@", "?ip=nonsense", "?user=alice&for_ms=0", "?user=alice&count=0"]
    {
        operator.get(&format!("/api/v1/trace{bad}")).problem(400);
    }
    let stream = operator.open("GET", "/api/v1/trace?user=alice&count=2&messages=true", "", None);
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    assert!(lines.next().is_some_and(|line| line.contains("200 OK")));
    next_event(&mut lines, "started");
    let phone = UdpSocket::bind("127.0.0.1:0").expect("a port");
    register(&server, &phone, "bob");
    register(&server, &phone, "alice");
    let message = next_event(&mut lines, "message");
    assert_eq!((&message["start"], &message["sent"]), (&json!("REGISTER sip:localhost SIP/2.0"), &json!(false)));
    assert!(message["lines"].to_string().contains("alice"), "{message}");
    assert_eq!(next_event(&mut lines, "message")["sent"], true);
    next_event(&mut lines, "ended");
    assert!(server.log().contains("action=\"trace\" object=\"user alice\""), "{}", server.log());
}

#[test]
fn the_number_of_traces_is_bounded_and_ended_ones_make_room() {
    let server = Server::start(LISTEN);
    let operator = Client::of(&server, "operator");
    let open = || operator.open("GET", "/api/v1/trace?user=alice", "", None);
    let running: Vec<_> = (0..6).map(|_| open()).collect();
    assert!(running.iter().all(has_started), "{}", server.log());
    let refused = operator.get("/api/v1/trace?user=alice");
    refused.problem(503);
    assert!(refused.head.contains("retry-after: "), "{refused:?}");
    drop(running);
    server.until("a place is free", || has_started(&open()));
}

fn has_started(stream: &TcpStream) -> bool {
    BufReader::new(stream).lines().next().is_some_and(|line| line.is_ok_and(|line| line.contains("200 OK")))
}

#[test]
fn changes_by_commands_are_in_the_audit_log() {
    let server = Server::start(LISTEN);
    server.folder.run(&["user", "add", "alice", "--password", "s3cret-word"]).ok();
    server.folder.run(&["ctl", "reload"]).ok();
    assert_eq!(server.folder.run(&["ctl", "drain", "nobody"]).code, Some(1));
    let (log, uid) = (server.log(), own_uid());
    let by = format!("by=\"uid {uid}, process ");
    let line =
        |action: &str| log.lines().find(|line| line.contains(&format!("action=\"{action}\""))).unwrap_or_default();
    assert!(line("user add").contains(&by) && line("user add").contains("object=\"alice\""), "{log}");
    assert!(line("reload").contains("result=\"done\""), "{log}");
    assert!(line("drain").contains("result=\"failed\"") && line("drain").contains("there is no target"), "{log}");
    assert!(!log.contains("s3cret-word"), "{log}");
}

fn own_uid() -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").expect("a process").uid()
}
