//! A call through a server process: listed, traced and recorded.

mod common;

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Child, Stdio};

use common::PATIENCE;
use common::api::{Client, LISTEN};
use common::server::Server;
use serde_json::Value;

/// Starts a server that knows Bob and records calls.
fn start() -> Server {
    start_with("")
}

fn start_with(more: &str) -> Server {
    let server = Server::start(&format!("server.domains = [\"example.com\"]\ncdr.file = \"cdr.json\"\n{more}"));
    server.folder.run(&["user", "add", "bob@example.com", "--password", "x"]).ok();
    server.until("the user is known", || server.status()["users"] == 1);
    server
}

fn records(server: &Server) -> Vec<Value> {
    let text = std::fs::read_to_string(server.folder.path().join("cdr.json")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Starts a trace and waits until it is active; its output is read at the end.
fn trace(server: &Server, arguments: &[&str]) -> Child {
    let arguments: Vec<_> = ["ctl", "trace"].iter().chain(arguments).copied().collect();
    let mut command = server.folder.command(&arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut word = String::new();
    BufReader::new(child.stderr.as_mut().expect("piped")).read_line(&mut word).expect("a word");
    assert!(word.contains("waiting for messages"), "{word}");
    child
}

fn read(mut trace: Child) -> String {
    let mut text = String::new();
    trace.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
    assert!(trace.wait().expect("it ends").success());
    text
}

/// Reads a trace until this many lines contain `what`.
fn read_until(mut trace: Child, what: &str, mut times: usize) -> String {
    let mut text = String::new();
    for line in BufReader::new(trace.stdout.take().expect("piped")).lines() {
        let line = line.expect("text");
        times -= usize::from(line.contains(what));
        text += &(line + "\n");
        if times == 0 {
            break;
        }
    }
    trace.kill().expect("it goes on");
    trace.wait().expect("it ends");
    text
}

struct Phone {
    socket: UdpSocket,
    server: SocketAddr,
}

impl Phone {
    fn new(server: &Server) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        socket.set_read_timeout(Some(PATIENCE)).expect("settable");
        Self { socket, server: server.address }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("bound")
    }

    fn send(&self, text: &str) {
        self.socket.send_to(text.replace('\n', "\r\n").as_bytes(), self.server).expect("sent");
    }

    /// Sends a request from this phone.
    fn request(&self, start: &str, tags: (&str, &str), cseq: &str, more: &str) {
        let (from, to) = tags;
        self.send(&format!(
            "{start} SIP/2.0\nVia: SIP/2.0/UDP {};branch=z9hG4bK{}\nMax-Forwards: 70\nFrom: <sip:alice@example.com>{from}\n\
             To: <sip:bob@example.com>{to}\nCall-ID: call-1\nCSeq: {cseq}\n{more}Content-Length: 0\n\n",
            self.address(),
            cseq.replace(' ', ""),
        ));
    }

    /// Returns the next message whose first line contains `what`.
    fn receive(&self, what: &str) -> String {
        loop {
            let mut buffer = [0; 4096];
            let length = self.socket.recv(&mut buffer).expect("a message in time");
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.lines().next().is_some_and(|start| start.contains(what)) {
                return text;
            }
        }
    }

    /// Answers a request with its own Via, Record-Route, From, To, Call-ID and CSeq.
    fn answer(&self, request: &str, status: &str, tag: &str) {
        let kept = ["Via", "Record-Route", "From", "To", "Call-ID", "CSeq"];
        let lines = request.lines().filter(|line| kept.iter().any(|name| line.starts_with(&format!("{name}:"))));
        let tagged = |line: &str| {
            let needs_tag = line.starts_with("To:") && !line.contains("tag=");
            if needs_tag { format!("{line};tag={tag}\n") } else { format!("{line}\n") }
        };
        let head: String = lines.map(tagged).collect();
        self.send(&format!("SIP/2.0 {status}\n{head}Contact: <sip:bob@{}>\nContent-Length: 0\n\n", self.address()));
    }
}

/// Alice calls Bob, who is registered and answers.
fn connect(server: &Server) -> (Phone, Phone, String) {
    let (alice, bob) = (Phone::new(server), Phone::new(server));
    bob.send(&format!(
        "REGISTER sip:example.com SIP/2.0\nVia: SIP/2.0/UDP {0};branch=z9hG4bKr\nMax-Forwards: 70\n\
         From: <sip:bob@example.com>;tag=r\nTo: <sip:bob@example.com>\nCall-ID: reg\nCSeq: 1 REGISTER\n\
         Contact: <sip:bob@{0}>\nExpires: 600\nContent-Length: 0\n\n",
        bob.address()
    ));
    bob.receive("200 ");
    let secret = "Authorization: Digest username=\"alice\", response=\"d41d8cd98f00b204\"\n";
    let more = format!("{secret}Contact: <sip:alice@{}>\n", alice.address());
    alice.request("INVITE sip:bob@example.com", (";tag=a", ""), "1 INVITE", &more);
    let invite = bob.receive("INVITE");
    bob.answer(&invite, "180 Ringing", "b");
    alice.receive("180 ");
    bob.answer(&invite, "200 OK", "b");
    let answer = alice.receive("200 ");
    let route = answer.lines().find_map(|line| line.strip_prefix("Record-Route: ")).map(str::to_owned);
    let route = route.map_or(String::new(), |route| format!("Route: {route}\n"));
    alice.request(&format!("ACK sip:bob@{}", bob.address()), (";tag=a", ";tag=b"), "1 ACK", &route);
    bob.receive("ACK");
    (alice, bob, route)
}

#[test]
fn a_call_is_listed_traced_and_recorded() {
    let server = start();
    let ladder = trace(&server, &["--user", "alice"]);
    let whole = trace(&server, &["--call-id", "call-1", "--count", "1", "--messages"]);
    let objects = trace(&server, &["--ip", "127.0.0.1", "--count", "2", "--json"]);
    let (alice, bob, route) = connect(&server);

    let listed = server.folder.run(&["ctl", "calls", "--json"]).json();
    let call = &listed["calls"][0];
    assert_eq!((&call["state"], &call["call_id"]), (&"answered".into(), &"call-1".into()), "{listed}");
    assert_eq!(call["source"], alice.address().to_string());
    assert_eq!(call["target"], bob.address().to_string());
    assert!(call["age_s"].as_f64() >= call["answered_s"].as_f64() && listed["more"] == false);
    let table = server.folder.run(&["ctl", "calls"]).ok();
    assert!(table.lines().count() == 2 && table.contains("sip:alice@example.com  sip:bob@example.com"), "{table}");
    assert!(records(&server).is_empty());

    bob.socket.set_read_timeout(Some(PATIENCE)).expect("settable");
    alice.request(&format!("BYE sip:bob@{}", bob.address()), (";tag=a", ";tag=b"), "2 BYE", &route);
    bob.answer(&bob.receive("BYE"), "200 OK", "b");
    alice.receive("200 ");
    server.until("the record is written", || records(&server).len() == 1);
    let record = &records(&server)[0];
    assert_eq!((&record["reason"], &record["status"]), (&"caller hung up".into(), &200.into()), "{record}");
    assert_eq!(
        (&record["caller"], &record["callee"]),
        (&"sip:alice@example.com".into(), &"sip:bob@example.com".into())
    );
    assert_eq!(record["source"], format!("udp:{}", alice.address()));
    assert!(
        record["start"].as_str() <= record["answer"].as_str() && record["answer"].as_str() <= record["end"].as_str()
    );
    let listed = server.folder.run(&["ctl", "calls", "--json"]).json();
    assert_eq!(listed["calls"], Value::Array(Vec::new()));

    let ladder = read_until(ladder, "200 OK (BYE)", 2);
    for expected in
        ["INVITE sip:bob@", "─ 100 Trying ─", "─ 180 Ringing ─", "─ 200 OK ─", "─ 200 OK (BYE) ─", "strowger"]
    {
        assert!(ladder.contains(expected), "{expected} is missing:\n{ladder}");
    }
    assert!(ladder.contains(&bob.address().to_string()), "both sides are seen:\n{ladder}");
    let objects = read(objects);
    let objects: Vec<Value> = objects.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(objects.len(), 2);
    assert_eq!(
        (&objects[0]["start"], &objects[0]["sent"]),
        (&"REGISTER sip:example.com SIP/2.0".into(), &false.into())
    );
    assert_eq!((&objects[0]["peer"], &objects[1]["sent"]), (&bob.address().to_string().into(), &true.into()));
    assert_eq!(objects[0]["local"], format!("udp:{}", server.address));
    let whole = read(whole);
    assert!(whole.contains("Authorization: Digest ***") && !whole.contains("d41d8cd98f00b204"), "{whole}");
}

#[test]
fn a_record_is_written_before_the_server_ends() {
    let mut server = start();
    let (alice, bob, route) = connect(&server);
    bob.request(&format!("BYE sip:alice@{}", alice.address()), (";tag=b", ";tag=a"), "1 BYE", &route);
    alice.answer(&alice.receive("BYE"), "200 OK", "a");
    bob.receive("200 ");
    server.signal("TERM");
    assert_eq!(server.ended(), Some(0));
    assert_eq!(records(&server)[0]["reason"], "callee hung up");
}

#[test]
fn an_operator_ends_a_call_by_the_api() {
    let server = start_with(LISTEN);
    let operator = Client::of(&server, "operator");
    let (alice, bob, _) = connect(&server);
    operator.delete("/api/v1/calls/call-2").problem(404);
    let ending = operator.delete("/api/v1/calls/call%2D1").expect(202);
    let call = &ending["calls"][0];
    assert_eq!((&call["state"], &call["call_id"]), (&"answered".into(), &"call-1".into()), "{ending}");
    alice.answer(&alice.receive("BYE"), "200 OK", "a");
    bob.answer(&bob.receive("BYE"), "200 OK", "b");
    server.until("the record is written", || records(&server).len() == 1);
    assert_eq!(operator.get("/api/v1/calls").expect(200)["calls"], Value::Array(Vec::new()));
    operator.delete("/api/v1/calls/call-1").problem(404);
    let log = server.log();
    let by = "by=\"token operator, address 127.0.0.1\" action=\"hangup\" object=\"call-1\" result=";
    assert!(log.contains(&format!("{by}\"done\"")) && log.contains(&format!("{by}\"failed\"")), "{log}");
}

#[test]
fn call_records_say_what_to_set_if_there_are_none() {
    let server = Server::start(LISTEN);
    let found = Client::of(&server, "operator").get("/api/v1/call-records").expect(200);
    assert_eq!(found["recorded"], false);
    let note = found["note"].as_str().expect("a text");
    assert!(note.contains("[cdr]"), "{note}");
    let ran = server.folder.run(&["ctl", "calls", "--ended"]);
    assert_eq!(ran.err, format!("strowger: note: {note}\n"));
}

#[test]
fn ended_calls_are_listed_by_user_and_reading_them_is_audited() {
    let server = start_with(LISTEN);
    let operator = Client::of(&server, "operator");
    let none = operator.get("/api/v1/call-records").expect(200);
    assert_eq!((&none["calls"], &none["recorded"]), (&Value::Array(Vec::new()), &true.into()));
    assert_eq!(none["note"], Value::Null);
    let (alice, bob, route) = connect(&server);
    alice.request(&format!("BYE sip:bob@{}", bob.address()), (";tag=a", ";tag=b"), "2 BYE", &route);
    bob.answer(&bob.receive("BYE"), "200 OK", "b");
    alice.receive("200 ");
    server.until("the record is written", || records(&server).len() == 1);
    let all = operator.get("/api/v1/call-records").expect(200);
    // The times are computed back from the wall clock.
    let settled = |record: &Value| {
        let mut record = record.clone();
        for time in ["start", "answer", "end"] {
            record[time] = Value::Null;
        }
        record
    };
    assert_eq!(settled(&all["calls"][0]), settled(&records(&server)[0]));
    assert!(all["calls"][0]["start"].as_str() <= all["calls"][0]["end"].as_str(), "{all}");
    let count = |query: &str| {
        let found = operator.get(&format!("/api/v1/call-records{query}")).expect(200);
        found["calls"].as_array().map(Vec::len)
    };
    for user in ["alice", "bob@example.com", "sip%3Abob%40example.com"] {
        assert_eq!(count(&format!("?user={user}")), Some(1), "{user}");
    }
    assert_eq!((count("?user=ali"), count("?user=bob@example.org")), (Some(0), Some(0)));
    for bad in ["?user=", "?user=@example.com", "?limit=0", "?limit=10001"] {
        operator.get(&format!("/api/v1/call-records{bad}")).problem(400);
    }
    Client::of(&server, "viewer").get("/api/v1/call-records").problem(403);
    let table = server.folder.run(&["ctl", "calls", "--ended", "--user", "alice"]).ok();
    assert!(table.lines().count() == 2 && table.contains("caller hung up  200"), "{table}");
    assert_eq!(server.folder.run(&["ctl", "calls", "--ended", "--user", "carol"]).ok().lines().count(), 1);
    let log = server.log();
    assert!(log.contains("by=\"token operator, address 127.0.0.1\" action=\"call records\" object=\"alice\""), "{log}");
}

#[test]
fn an_impossible_trace_is_refused() {
    let server = start();
    let error = server.folder.run(&["ctl", "trace", "--user", "@example.com"]).refused(1);
    assert!(error.contains("is not a user"), "{error}");
    let none = server.folder.run(&["ctl", "trace"]);
    assert_eq!(none.code, Some(2));
    let traces: Vec<_> = (0..8).map(|_| trace(&server, &["--ip", "192.0.2.1"])).collect();
    let error = server.folder.run(&["ctl", "trace", "--ip", "192.0.2.1"]).refused(1);
    assert_eq!(error, "8 traces are already running; end one of them");
    for mut trace in traces {
        trace.kill().expect("it runs");
        trace.wait().expect("it ends");
    }
    server.until("their places are free again", || {
        server.folder.run(&["ctl", "trace", "--ip", "192.0.2.1", "--for", "10ms"]).code == Some(0)
    });
}
