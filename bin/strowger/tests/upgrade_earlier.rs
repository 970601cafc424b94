//! Earlier processes of an upgrade: what is shown of them, how they end, and what becomes of their phones.

mod common;

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use common::api::Client;
use common::chain::{Chain, ask_on, options, with_gateway};
use common::end::End;
use common::server::Server;
use serde_json::Value;

/// Short, so that transactions end soon.
const TIMERS: &str = "[timers]\nt1 = \"50ms\"\nt2 = \"100ms\"\nt4 = \"100ms\"\n";

fn kill(pid: u64) {
    let killed = Command::new("kill").args(["-s", "KILL", &pid.to_string()]).status();
    assert!(killed.expect("kill runs").success());
}

/// Connects to a server.
fn connect(chain: &Chain, tcp: SocketAddr) -> TcpStream {
    let phone = TcpStream::connect(tcp).expect("it listens");
    assert!(ask_on(&phone, &options(&chain.server)).starts_with("SIP/2.0 200 "));
    phone
}

/// Registers a phone on its connection; it cannot be reached in another way.
fn register(chain: &Chain, tcp: SocketAddr) -> TcpStream {
    let phone = connect(chain, tcp);
    let request = "REGISTER sip:127.0.0.1 SIP/2.0\nFrom: <sip:p@127.0.0.1>;tag=2\nTo: <sip:p@127.0.0.1>\nCall-ID: p\n\
                   CSeq: 1 REGISTER\nContact: <sip:p@192.0.2.1:9;transport=tcp>\nExpires: 600";
    assert!(ask_on(&phone, request).starts_with("SIP/2.0 200 "));
    assert_eq!(contacts(&chain.server), 1);
    phone
}

fn contacts(server: &Server) -> usize {
    let found = server.folder.run(&["ctl", "registrations", "--json"]).json();
    found["registrations"].as_array().map_or(0, Vec::len)
}

/// A server whose first process has a registered phone, and was replaced.
fn with_phone() -> (Chain, TcpStream) {
    let mut chain = Chain::start(&format!("server.domains = [\"127.0.0.1\"]\n{TIMERS}"));
    let tcp = chain.listen_on_tcp();
    let phone = register(&chain, tcp);
    chain.upgrade(&[]);
    assert_eq!(contacts(&chain.server), 1, "the phone stays");
    (chain, phone)
}

#[test]
fn at_the_limit_connections_are_closed_and_the_end_of_a_process_awaited() {
    let (mut chain, gateway, caller) = with_gateway(TIMERS);
    let tcp = chain.listen_on_tcp();
    let phone = connect(&chain, tcp);
    let mut ringing = Vec::new();
    for number in 0..15 {
        let id = format!("ringing{number}");
        caller.request(&chain.server, "INVITE sip:+431@pstn.example", "", &id, "1 INVITE", "");
        // An INVITE of an earlier call may have been sent again meanwhile.
        let (_, request) = End::reached(&chain.server, &[&gateway], &id);
        gateway.answer(&request, "180 Ringing");
        caller.receive("180");
        ringing.push(request);
        chain.upgrade(&[]);
    }
    assert_eq!(chain.earlier().len(), 15);
    let reason = chain.refused(&[]);
    assert!(reason.contains("15 earlier processes still have transactions or connections"), "{reason}");
    // No call has ended: connections are closed, and the message says so.
    let reason = chain.server.folder.run(&["upgrade", "--close-connections", "--wait", "300ms"]).refused(1);
    let expected = "not upgraded: the connections of 15 earlier processes were closed, but none has ended within 0.3 s";
    assert!(reason.starts_with(expected) && reason.ends_with("; the server goes on"), "{reason}");
    assert_eq!((&phone).read(&mut [0]).expect("the end"), 0);
    // A process ends soon after its call, and the command waits for that.
    gateway.answer(&ringing[0], "486 Busy Here");
    caller.receive("486");
    chain.upgrade(&["--close-connections"]);
}

#[test]
fn earlier_processes_end_at_once_if_that_with_the_sockets_dies() {
    let (mut chain, phone) = with_phone();
    let tcp = chain.server.folder.read("strowger.toml");
    let tcp = tcp.split_once("\"tcp:").and_then(|(_, rest)| rest.split_once('"')).expect("an address").0;
    let _other = connect(&chain, tcp.parse().expect("an address"));
    chain.upgrade(&[]);
    let connections =
        |chain: &Chain| -> Vec<Value> { chain.earlier().iter().map(|one| one["connections"].clone()).collect() };
    chain.server.until("both report", || connections(&chain) == [1, 1]);
    let pids = chain.pids.clone();
    kill(pids[2]);
    for pid in &pids[..2] {
        chain.server.until("it ends", || chain.server.log().contains(&format!("process {pid} ended")));
        let why = format!(
            "process {}, which had the sockets, has died: nobody serves; process {pid}, an earlier one",
            pids[2]
        );
        let log = chain.server.log();
        assert!(log.lines().any(|line| line.contains("ERROR") && line.contains(&why)), "{log}");
    }
    assert_eq!(chain.server.ended(), Some(0));
    assert_eq!((&phone).read(&mut [0]).unwrap_or(0), 0, "its connection is closed");
    // The addresses are free.
    let command = chain.server.folder.command(&["serve"]).stderr(Stdio::null()).spawn();
    chain.server.child = command.expect("it starts");
    chain.server.until("it serves", || chain.server.folder.run(&["ctl", "status"]).code == Some(0));
}

#[test]
fn the_death_of_an_earlier_process_is_told_and_removes_its_contacts() {
    let (chain, phone) = with_phone();
    chain.server.until("it reports", || chain.earlier()[0]["connections"] == 1);
    kill(chain.pids[0]);
    chain.server.until("its contact is removed", || contacts(&chain.server) == 0);
    let log = chain.server.log();
    let told =
        format!("process {} of version {}, an earlier one, has died: its", chain.pids[0], env!("CARGO_PKG_VERSION"));
    let line = log.lines().find(|line| line.contains(&told)).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("WARN") && line.contains("and 1 connection, as last reported, are lost"), "{line}");
    drop(phone);
}

#[test]
fn the_end_of_an_earlier_process_is_told_and_removes_its_contacts() {
    let (mut chain, phone) = with_phone();
    chain.server.signal("TERM");
    assert_eq!(chain.server.ended(), Some(0));
    chain.server.until("its contact is removed", || contacts(&chain.server) == 0);
    let log = chain.server.log();
    let told = format!(
        "process {} of version {}, an earlier one, has ended; 0 left",
        chain.pids[0],
        env!("CARGO_PKG_VERSION")
    );
    assert!(log.contains(&told) && !log.contains("has died"), "{log}");
    drop(phone);
}

#[test]
fn a_server_that_is_stopped_ends_earlier_processes() {
    let (mut chain, phone) = with_phone();
    let pids = chain.pids.clone();
    Command::new("kill").args(["-s", "TERM", &pids[1].to_string()]).status().expect("kill runs");
    assert_eq!(chain.server.ended(), Some(0));
    let log = chain.server.log();
    let told = format!("left, as process {}, which had replaced it, ends", pids[1]);
    assert!(log.contains(&told) && !log.contains("has died"), "{log}");
    drop(phone);
}

#[test]
fn earlier_processes_are_shown_and_counted() {
    let admin = common::free_address();
    let mut chain = Chain::start(&format!("server.domains = [\"127.0.0.1\"]\nadmin.listen = \"{admin}\"\n{TIMERS}"));
    let phone = register(&chain, chain.listen_on_tcp());
    chain.upgrade(&[]);
    chain.server.until("it reports", || chain.earlier()[0]["connections"] == 1);
    let shown = &chain.earlier()[0];
    assert_eq!((&shown["pid"], &shown["version"]), (&chain.pids[0].into(), &env!("CARGO_PKG_VERSION").into()));
    assert!(shown["replaced_s"].as_f64() > Some(0.0), "{shown}");
    let text = chain.server.folder.run(&["ctl", "status"]).ok();
    let line = format!("process {} (version {}, replaced 0:00:", chain.pids[0], env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&line), "{text}");
    let client = Client { server: admin, token: None, from: Ipv4Addr::LOCALHOST };
    let metrics = client.get("/metrics").body;
    for sample in
        ["strowger_earlier_processes 1", "strowger_earlier_processes_connections 1", "strowger_connections_open 0"]
    {
        assert!(metrics.lines().any(|line| line == sample), "{sample}: {metrics}");
    }
    drop(phone);
}

#[test]
fn a_call_that_may_ring_in_an_earlier_process_is_not_said_to_have_ended() {
    let (mut chain, gateway, caller) = with_gateway("");
    let hang_up = |chain: &Chain| chain.server.folder.run(&["ctl", "hangup", "unknown"]).refused(1);
    assert!(hang_up(&chain).contains("no call with this Call-ID: it may have ended already;"));
    caller.request(&chain.server, "INVITE sip:+431@pstn.example", "", "unknown", "1 INVITE", "");
    let request = gateway.receive("INVITE");
    gateway.answer(&request, "180 Ringing");
    caller.receive("180");
    chain.upgrade(&[]);
    let reason = hang_up(&chain);
    assert!(reason.contains("or ring in an earlier process, where the server cannot end it"), "{reason}");
}
