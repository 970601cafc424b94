//! The administration API: what each operation refuses, and who may use it.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, TcpListener};

use common::Folder;
use common::api::{Answer, Client, LISTEN, new_token};
use common::server::Server;
use serde_json::{Value, json};

const ROLES: [&str; 3] = ["viewer", "operator", "administrator"];

/// An operation of the document.
#[derive(Debug)]
struct Operation {
    method: String,
    /// With a value for each variable part.
    path: String,
    /// The smallest role that may use it.
    role: Option<String>,
    has_body: bool,
    has_query: bool,
}

/// Reads the operations from the document that the server publishes.
fn operations(document: &Value) -> Vec<Operation> {
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let mut filled = path.clone();
            for parameter in parameters.iter().filter(|parameter| parameter["in"] == "path") {
                filled = filled.replace(&format!("{{{}}}", parameter["name"].as_str().expect("a name")), "nobody");
            }
            all.push(Operation {
                method: method.to_ascii_uppercase(),
                path: filled,
                role: operation["security"][0]["token"][0].as_str().map(str::to_owned),
                has_body: operation.get("requestBody").is_some(),
                has_query: parameters.iter().any(|parameter| parameter["in"] == "query"),
            });
        }
    }
    all
}

#[test]
fn every_operation_refuses_what_it_must() {
    let server = Server::start(LISTEN);
    let clients: BTreeMap<&str, Client> = ROLES.map(|role| (role, Client::of(&server, role))).into();
    let document = Client::without_token(&server).get("/api/v1/openapi.json").expect(200);
    let all = operations(&document);
    assert!(all.len() > 20, "{all:?}");
    for (index, operation) in all.iter().enumerate() {
        let Operation { method, path, role, has_body, has_query } = operation;
        // Each operation is tried from an address of its own, for the limits of an address.
        let from = Ipv4Addr::new(127, 0, 1, u8::try_from(index + 1).expect("few"));
        let with = |token: Option<&str>| Client { token: token.map(str::to_owned), from, ..clients["viewer"].clone() };
        let Some(role) = role else {
            assert_eq!(path, "/api/v1/openapi.json", "an operation without a token");
            continue;
        };
        let what = format!("{method} {path}");
        let answer = with(None).ask(method, path);
        answer.problem(401);
        assert!(answer.head.contains("www-authenticate: bearer"), "{what}: {answer:?}");
        with(Some("swg_wrong")).ask(method, path).problem(401);
        let needed = ROLES.iter().position(|one| one == role).expect("a role");
        for (rank, other) in ROLES.iter().enumerate() {
            let client = Client { from, ..clients[other].clone() };
            if rank < needed {
                assert!(client.ask(method, path).problem(403)["detail"].as_str().is_some_and(|why| why.contains(role)));
            } else if rank == needed {
                refuses_bad_requests(&client, operation);
            }
        }
        let able = Client { from, ..clients[role.as_str()].clone() };
        if *has_query {
            able.ask(method, &format!("{path}?nonsense=1")).problem(400);
        }
        if *has_body {
            let json = "Content-Type: application/json\r\n";
            able.send(method, path, "Content-Type: text/plain\r\n", Some("{}")).problem(415);
            able.send(method, path, "", Some("{}")).problem(415);
            able.send(method, path, json, Some("{\"")).problem(400);
            able.send(method, path, json, Some("")).problem(400);
            able.send(method, path, json, Some("7")).problem(422);
            let unknown = able.json(method, path, &json!({ "nonsense": "secret" })).problem(422);
            assert!(!unknown.to_string().contains("secret"), "{what}: {unknown}");
        }
    }
}

fn refuses_bad_requests(client: &Client, Operation { method, path, .. }: &Operation) {
    let large = "x".repeat(64 * 1024 + 1);
    client.send(method, path, "Content-Type: application/json\r\n", Some(&large)).problem(413);
    client.send(method, path, "Host: evil.example\r\n", None).problem(403);
    client.send(method, path, "Origin: http://evil.example\r\n", None).problem(403);
    let other = client.ask("PROPFIND", path);
    other.problem(405);
    assert!(other.head.contains("allow: ") && other.head.contains(&method.to_ascii_lowercase()), "{other:?}");
    let options = client.ask("OPTIONS", path);
    assert!(options.status == 204 && options.head.contains("allow: "), "{options:?}");
}

#[test]
fn the_document_is_consistent() {
    let server = Server::start(LISTEN);
    let document = Client::without_token(&server).get("/api/v1/openapi.json").expect(200);
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")), "{document}");
    let (mut ids, mut references) = (BTreeSet::new(), BTreeSet::new());
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let what = format!("{method} {path}");
            let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{what} has no id"));
            assert!(ids.insert(id.to_owned()), "{id} is there twice");
            assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{what}");
            for (status, response) in operation["responses"].as_object().expect("responses") {
                assert!(response["description"].as_str().is_some_and(|text| !text.is_empty()), "{what} {status}");
            }
            let variables = path.matches('{').count();
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let described = parameters.iter().filter(|parameter| parameter["in"] == "path").count();
            assert_eq!(variables, described, "{what}");
            for parameter in parameters {
                assert!(parameter["description"].as_str().is_some_and(|text| !text.is_empty()), "{what}: {parameter}");
            }
        }
    }
    collect_references(&document, &mut references);
    for reference in references {
        let path = reference.strip_prefix('#').expect("in the document");
        assert!(document.pointer(path).is_some(), "{reference} leads nowhere");
    }
}

fn collect_references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|member| collect_references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, found)),
        _ => {}
    }
}

#[test]
fn answers_protect_themselves_against_pages_of_other_sites() {
    let server = Server::start(LISTEN);
    let client = Client::of(&server, "viewer");
    let good = client.get("/api/v1/session");
    good.expect(200);
    for answer in [&good, &client.get("/nothing"), &client.ask("POST", "/api/v1/session")] {
        for field in [
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: no-referrer",
            "content-security-policy: default-src 'none'",
            "cache-control: no-store",
        ] {
            assert!(answer.head.contains(field), "{field}: {answer:?}");
        }
        assert!(!answer.head.contains("access-control-"), "{answer:?}");
    }
    client.get("/api/v1/nothing").problem(404);
    let port = client.server.port();
    for (host, status) in [("localhost", 200), ("127.0.0.1", 200), ("[::1]", 200), ("evil.example", 403)] {
        client.send("GET", "/api/v1/session", &format!("Host: {host}:{port}\r\n"), None).expect(status);
    }
    let origin = format!("Origin: http://{}\r\n", client.server);
    client.send("GET", "/api/v1/session", &origin, None).expect(200);
    let head = client.ask("HEAD", "/api/v1/session");
    assert!(head.status == 200 && head.body.is_empty(), "{head:?}");
    // A scraper may know the server by any name.
    let metrics = client.send("GET", "/metrics", "Host: monitored.example\r\n", None);
    assert_eq!(metrics.status, 200, "{metrics:?}");
}

#[test]
fn tokens_are_followed_by_the_running_server() {
    let server = Server::start(LISTEN);
    let folder = &server.folder;
    let mut client = Client::without_token(&server);
    let made = folder.run(&["token", "add", "office", "--role", "operator", "--json"]).json();
    client.token = made["token"].as_str().map(str::to_owned);
    let session = client.get("/api/v1/session").expect(200);
    assert_eq!((&session["name"], &session["role"]), (&json!("office"), &json!("operator")));
    assert_eq!((&session["domains"], &session["has_clusters"]), (&json!(["localhost"]), &json!(false)));
    assert_eq!(session["server"], server.status()["version"]);
    let listed = folder.run(&["token", "list", "--json"]).json();
    assert_eq!(listed["tokens"][0]["name"], "office");
    let secret = client.token.clone().expect("a token");
    assert!(!listed.to_string().contains(&secret) && !folder.run(&["token", "list"]).ok().contains(&secret));
    assert!(folder.run(&["token", "add", "office"]).refused(1).contains("strowger token rm office"));
    folder.run(&["token", "rm", "office"]).ok();
    client.get("/api/v1/session").problem(401);
    let brief = folder.run(&["token", "add", "brief", "--expires", "1ms"]).ok();
    client.token = Some(brief.trim_end().to_owned());
    client.get("/api/v1/session").problem(401);
    assert!(folder.run(&["token", "list"]).ok().contains("EXPIRED"));
    let log = server.log();
    assert!(log.contains("token add") && log.contains("office (operator)") && log.contains("token rm"), "{log}");
    assert!(!log.contains("swg_"), "{log}");
}

#[test]
fn a_token_for_a_new_folder_gets_a_warning() {
    let folder = Folder::new("");
    let first = folder.run(&["token", "add", "office"]);
    assert!(first.err.contains("note: this is the first token in a new folder, data;"), "{first:?}");
    let second = folder.run(&["token", "add", "home"]);
    assert!(!second.err.contains("new folder"), "{second:?}");
}

#[test]
fn wrong_tokens_and_floods_are_limited() {
    let server = Server::start(LISTEN);
    let able = Client::of(&server, "viewer");
    let wrong = Client { token: Some("swg_wrong".to_owned()), ..able.clone() };
    let answers: Vec<Answer> = (0..7).map(|_| wrong.get("/api/v1/session")).collect();
    assert!(answers[..5].iter().all(|answer| answer.status == 401), "{answers:?}");
    let limited = &answers[6];
    limited.problem(429);
    assert!(limited.head.contains("retry-after: "), "{limited:?}");
    able.get("/api/v1/session").expect(200);
    assert!(!server.log().contains("swg_wrong"), "{}", server.log());
    let flooder = Client { from: Ipv4Addr::new(127, 0, 2, 1), ..able.clone() };
    let refused = (0..1_000).map(|_| flooder.get("/api/v1/session")).find(|answer| answer.status != 200);
    let refused = refused.expect("a limit");
    refused.problem(429);
    assert!(refused.head.contains("retry-after: 1"), "{refused:?}");
    able.get("/api/v1/session").expect(200);
}

#[test]
fn a_listener_that_others_reach_needs_tls() {
    let folder = Folder::new("[admin]\nlisten = \"0.0.0.0:0\"\n");
    for command in ["check", "serve"] {
        let why = folder.run(&[command]).refused(2);
        assert!(why.contains("admin.listen") && why.contains("[admin.tls]") && why.contains("127.0.0.1:0"), "{why}");
    }
    let tls = "[admin]\nlisten = \"0.0.0.0:0\"\ntls = { certificate = \"no.pem\", key = \"no.key\" }\n";
    folder.write("strowger.toml", tls);
    let why = folder.run(&["check"]).refused(2);
    assert!(why.starts_with("admin.tls: no.pem cannot be read"), "{why}");
    folder.write("no.pem", "garbage");
    let why = folder.run(&["check"]).refused(2);
    assert!(why.starts_with("admin.tls: no.pem has no certificate"), "{why}");
    folder.write("strowger.toml", &tls.replace("0.0.0.0:0", "off"));
    folder.run(&["check"]).ok();
    let ran = Server::prepare(tls).0.run(&["serve"]);
    assert!(ran.code == Some(1) && ran.err.contains("strowger: admin.tls: no.pem cannot be read"), "{ran:?}");
    folder.write("strowger.toml", "[admin]\nlisten = \"0.0.0.0:0\"\nmetrics_only = true\n");
    folder.run(&["check"]).ok();
}

#[test]
fn a_listener_with_metrics_only_has_no_api() {
    let server = Server::start("[admin]\nlisten = \"127.0.0.1:0\"\nmetrics_only = true\n");
    let log = server.log();
    assert!(log.contains("metrics at http://") && !log.contains("administration at"), "{log}");
    let (_, after) = log.split_once("metrics at http://").expect("it listens");
    let address = after.split('/').next().and_then(|address| address.parse().ok()).expect("an address");
    let client = Client { server: address, token: None, from: Ipv4Addr::LOCALHOST };
    assert_eq!(client.get("/metrics").status, 200);
    assert_eq!(client.get("/api/v1/openapi.json").status, 404);
}

#[test]
fn a_server_whose_default_address_is_taken_goes_on() {
    // Another program may have it already.
    let _taken = TcpListener::bind("127.0.0.1:8060");
    let server = Server::start("# admin: the default\n");
    let log = server.log();
    assert!(log.contains("no page, API and metrics: 127.0.0.1:8060"), "{log}");
    assert_eq!(server.status()["draining"], false);
}

#[test]
fn a_forgotten_token_file_lets_nobody_in() {
    let server = Server::start(LISTEN);
    let client = Client::of(&server, "viewer");
    client.get("/api/v1/session").expect(200);
    server.folder.write("data/tokens.json", "{}");
    client.get("/api/v1/session").problem(401);
    server.until("it is reported", || server.log().contains("no token is valid"));
    assert!(server.folder.run(&["token", "list"]).refused(1).contains("is not a file of tokens"));
    std::fs::remove_file(server.folder.path().join("data/tokens.json")).expect("there");
    let token = new_token(&server.folder, "again", "viewer");
    Client { token: Some(token), ..client }.get("/api/v1/session").expect(200);
}
