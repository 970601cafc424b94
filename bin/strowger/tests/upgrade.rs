//! Upgrades of a running server: nothing is lost, and a failed one changes nothing.

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use common::chain::{Chain, ask_on, options, phone, with_gateway};
use common::end::End;
use common::load::{assert_adds_up, number};
use common::phone::Phone;
use common::server::Server;
use common::{poll, until};
use serde_json::Value;

/// Upgrades a server ten times under calls and REGISTERs.
fn none_is_lost(store: &str) {
    let mut chain = Chain::start(&format!("server.domains = [\"127.0.0.1\"]\n[store]\n{store}\n"));
    let to = format!("udp:{}", chain.server.address);
    let folder = chain.server.folder.path().to_owned();
    let load = |words: &str, report: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strowger"));
        command.args(["load", "run", "--to", &to, "--arrivals", "uniform", "--json", report]).args(words.split(' '));
        command.current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
    };
    let mut calls = load("--rate 60 --calls 900 --set hold=uniform(min=0s,max=2s) --users 50 --seed 1", "calls.json");
    let users = "--users 40 --user-pattern phone%";
    let mut registrations =
        load(&format!("--workload registration --rate 60 --calls 900 {users} --seed 2"), "registrations.json");
    chain.server.until("phones are registered", || chain.server.status()["addresses"].as_u64() >= Some(40));
    for _ in 0..10 {
        let report = chain.upgrade(&[]);
        assert!(report["transactions"].as_u64() > Some(0) && report["addresses"].as_u64() >= Some(40), "{report}");
    }
    calls.wait().expect("it ends");
    registrations.wait().expect("it ends");
    for report in ["calls.json", "registrations.json"] {
        let report = chain.server.folder.json(report);
        assert_adds_up(&report);
        assert_eq!(number(&report, "carried"), number(&report, "sent"), "{}\n{report}", chain.server.log());
    }
    assert!(chain.server.status()["addresses"].as_u64() >= Some(40));
}

#[test]
fn ten_upgrades_lose_nothing_of_a_server_without_a_store() {
    none_is_lost("url = \"memory:\"");
}

#[test]
fn ten_upgrades_lose_nothing_of_a_server_that_writes_behind() {
    none_is_lost("mode = \"write-behind\"");
}

#[test]
fn ten_upgrades_lose_nothing_of_a_server_that_writes_through() {
    none_is_lost("mode = \"write-through\"");
}

#[test]
fn registrations_are_in_the_store_after_an_upgrade() {
    let mut chain = Chain::start("server.domains = [\"127.0.0.1\"]\n");
    let register = |chain: &Chain, name: &str| {
        let phone = phone();
        let local = phone.local_addr().expect("bound");
        let request = format!(
            "REGISTER sip:127.0.0.1 SIP/2.0\nFrom: <sip:{name}@127.0.0.1>;tag=2\nTo: <sip:{name}@127.0.0.1>\n\
             Call-ID: {name}\nCSeq: 1 REGISTER\nContact: <sip:{name}@{local}>\nExpires: 600"
        );
        assert!(chain.server.ask(&phone, &request).starts_with("SIP/2.0 200 "));
    };
    register(&chain, "before");
    chain.upgrade(&[]);
    register(&chain, "after");
    let pid = chain.pids[1].to_string();
    Command::new("kill").args(["-s", "KILL", &pid]).status().expect("kill runs");
    assert_eq!(chain.server.ended(), Some(0), "the first process ends by itself");
    chain.server.child = chain.server.folder.command(&["serve"]).stderr(Stdio::null()).spawn().expect("it starts");
    let server = &chain.server;
    server.until("both are loaded", || {
        server.folder.run(&["ctl", "status"]).code == Some(0) && server.status()["addresses"] == 2
    });
}

#[test]
fn a_call_that_rings_is_answered_after_two_upgrades() {
    let (mut chain, gateway, caller) = with_gateway("");
    let invite =
        |chain: &Chain| caller.request(&chain.server, "INVITE sip:+431@pstn.example", "", "answered", "1 INVITE", "");
    invite(&chain);
    let request = gateway.receive("INVITE");
    gateway.answer(&request, "180 Ringing");
    caller.receive("180");
    chain.upgrade(&[]);
    // A retransmission belongs to the process that has the call.
    invite(&chain);
    caller.receive("180");
    chain.upgrade(&[]);
    assert_eq!(chain.server.status()["takeover"]["predecessors"].as_array().map(Vec::len), Some(2));
    gateway.answer(&request, "200 OK");
    let (answer, _) = caller.receive("200");
    assert!(answer.contains("Call-ID: answered\r\n"));
    let route = answer.lines().find_map(|line| line.strip_prefix("Record-Route: "));
    let route = route.map(|route| format!("Route: {route}\n")).unwrap_or_default();
    caller.request(&chain.server, &format!("ACK {}", gateway.uri()), ";tag=g", "answered", "1 ACK", &route);
    gateway.receive("ACK");
    caller.request(&chain.server, &format!("BYE {}", gateway.uri()), ";tag=g", "answered", "2 BYE", &route);
    let bye = gateway.receive("BYE");
    gateway.answer(&bye, "200 OK");
    caller.receive("200");
    assert!(gateway.glance().is_none_or(|(text, _)| !text.starts_with("INVITE")), "one call");
    // It was set up by the first process, and ends in the third.
    assert_eq!(records(&chain), ["answered"]);
}

/// Returns the Call-IDs in the file of call records, once there is one.
fn records(chain: &Chain) -> Vec<String> {
    let file = chain.server.folder.path().join("calls.json");
    let lines = || fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n'));
    let text = poll(lines).expect("a call record");
    let record = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
    text.lines().map(|line| record(line)["call_id"].as_str().expect("a Call-ID").to_owned()).collect()
}

#[test]
fn a_call_is_listed_and_recorded_after_an_upgrade() {
    let (mut chain, gateway, caller) = with_gateway("");
    caller.request(&chain.server, "INVITE sip:+431@pstn.example", "", "carried", "1 INVITE", "");
    let request = gateway.receive("INVITE");
    gateway.answer(&request, "200 OK");
    let (answer, _) = caller.receive("200");
    let route = answer.lines().find_map(|line| line.strip_prefix("Record-Route: "));
    let route = route.map(|route| format!("Route: {route}\n")).unwrap_or_default();
    caller.request(&chain.server, &format!("ACK {}", gateway.uri()), ";tag=g", "carried", "1 ACK", &route);
    gateway.receive("ACK");
    let calls = |chain: &Chain| chain.server.folder.run(&["ctl", "calls", "--json"]).json()["calls"].clone();
    let before = calls(&chain);
    assert_eq!(before.as_array().map(Vec::len), Some(1), "{before}");
    chain.upgrade(&[]);
    let after = calls(&chain);
    assert_eq!((&after[0]["call_id"], &after[0]["state"]), (&"carried".into(), &"answered".into()), "{after}");
    assert!(after[0]["age_s"].as_f64() >= before[0]["age_s"].as_f64(), "{before} {after}");
    caller.request(&chain.server, &format!("BYE {}", gateway.uri()), ";tag=g", "carried", "2 BYE", &route);
    let bye = gateway.receive("BYE");
    gateway.answer(&bye, "200 OK");
    caller.receive("200");
    assert_eq!(records(&chain), ["carried"]);
    assert_eq!(calls(&chain).as_array().map(Vec::len), Some(0));
}

#[test]
fn a_call_that_rings_is_cancelled_after_an_upgrade() {
    let (mut chain, gateway, caller) = with_gateway("");
    caller.request(&chain.server, "INVITE sip:+431@pstn.example", "", "cancelled", "1 INVITE", "");
    let request = gateway.receive("INVITE");
    gateway.answer(&request, "180 Ringing");
    caller.receive("180");
    chain.upgrade(&[]);
    // A CANCEL has the branch of its INVITE.
    let via = |text: &str| text.replace("z9hG4bKcancelled1CANCEL", "z9hG4bKcancelled1INVITE");
    let cancel = format!(
        "CANCEL sip:+431@pstn.example SIP/2.0\nVia: SIP/2.0/UDP {};branch=z9hG4bKcancelled1CANCEL\nMax-Forwards: 70\n\
         From: <sip:alice@example.com>;tag=a\nTo: <sip:+431@pstn.example>\nCall-ID: cancelled\nCSeq: 1 CANCEL\n\
         Content-Length: 0\n\n",
        caller.address
    );
    caller.send(chain.server.address, &via(&cancel));
    caller.receive("200");
    let cancel = gateway.receive("CANCEL");
    gateway.answer(&cancel, "200 OK");
    gateway.answer(&request, "487 Request Terminated");
    caller.receive("487");
    gateway.receive("ACK");
}

#[test]
fn a_phone_keeps_its_connection_across_upgrades_until_it_is_told_to_close_it() {
    let mut chain = Chain::start("server.domains = [\"127.0.0.1\"]\n");
    let tcp = chain.listen_on_tcp();
    let phone = TcpStream::connect(tcp).expect("it listens");
    let register = "REGISTER sip:127.0.0.1 SIP/2.0\nFrom: <sip:p@127.0.0.1>;tag=2\nTo: <sip:p@127.0.0.1>\nCall-ID: p\n\
                    CSeq: 1 REGISTER\nContact: <sip:p@127.0.0.1:9;transport=tcp>\nExpires: 600";
    assert!(ask_on(&phone, register).starts_with("SIP/2.0 200 "));
    for round in 0..2 {
        chain.upgrade(&[]);
        assert!(
            ask_on(&phone, &format!("{}\nX-Round: {round}", options(&chain.server))).starts_with("SIP/2.0 200 "),
            "the phone asks"
        );
    }
    // A call reaches the phone on its connection, which the first process has.
    let caller = End::new();
    caller.request(&chain.server, "INVITE sip:p@127.0.0.1", "", "to-tcp", "1 INVITE", "");
    let mut buffer = [0; 4096];
    let length = (&phone).read(&mut buffer).expect("an INVITE");
    let invite = String::from_utf8_lossy(&buffer[..length]).into_owned();
    assert!(invite.starts_with("INVITE "), "{invite}");
    let kept = ["Via", "Record-Route", "From", "To", "Call-ID", "CSeq"];
    let lines = invite.lines().filter(|line| kept.iter().any(|name| line.starts_with(&format!("{name}:"))));
    let head: String = lines
        .map(|line| if line.starts_with("To:") { format!("{line};tag=t\r\n") } else { format!("{line}\r\n") })
        .collect();
    let busy = format!("SIP/2.0 486 Busy Here\r\n{head}Content-Length: 0\r\n\r\n");
    (&phone).write_all(busy.as_bytes()).expect("sent");
    caller.receive("486");
    let connections = |chain: &Chain| chain.server.status()["takeover"]["predecessors"][0]["connections"].as_u64();
    chain.server.until("the first process reports", || connections(&chain) == Some(1));
    // An upgrade that closes connections closes those of the first process too.
    chain.upgrade(&["--close-connections"]);
    // What is left before the end is the ACK.
    (&phone).read_to_end(&mut Vec::new()).expect("the end");
    let again = TcpStream::connect(tcp).expect("it listens");
    assert!(ask_on(&again, &options(&chain.server)).starts_with("SIP/2.0 200 "));
}

/// A server with passwords and the user Bob.
fn with_passwords(more: &str) -> Chain {
    let (folder, address) = Server::prepare("");
    let config = folder.read("strowger.toml").replace("auth.require = []", "server.domains = [\"example.com\"]");
    folder.write("strowger.toml", &format!("{config}{more}"));
    let added = folder.run_with(&["user", "add", "bob@example.com"], "correct horse\n");
    assert_eq!(added.code, Some(0), "{added:?}");
    Chain::of(Server::started_by(folder.command(&["serve"]), folder, address))
}

#[test]
fn no_credentials_are_accepted_twice_across_upgrades() {
    let mut chain = with_passwords("");
    let mut phone = Phone::new(chain.server.address, Ipv4Addr::LOCALHOST, "bob");
    let [used, unused] = [phone.ask(), phone.ask()];
    let answer = |phone: &mut Phone, challenge: &str| phone.answer(challenge, "correct horse");
    assert!(answer(&mut phone, &used).starts_with("SIP/2.0 200 "));
    for _ in 0..2 {
        let refusal = answer(&mut phone, &used);
        assert!(refusal.starts_with("SIP/2.0 401 ") && refusal.contains("stale=true"), "{refusal}");
        chain.upgrade(&[]);
    }
    let refusal = answer(&mut phone, &used);
    assert!(refusal.starts_with("SIP/2.0 401 "), "two processes later: {refusal}");
    assert!(answer(&mut phone, &unused).starts_with("SIP/2.0 200 "), "a challenge of an earlier process is valid");
    assert!(answer(&mut phone, &unused).starts_with("SIP/2.0 401 "));
}

#[test]
fn a_source_that_has_proven_its_address_need_not_do_so_after_an_upgrade() {
    let mut chain = with_passwords("[ban]\nfailures = 5\n");
    let source = Ipv4Addr::new(127, 0, 78, 1);
    let mut phone = Phone::new(chain.server.address, source, "bob");
    let challenge = phone.ask();
    assert!(phone.answer(&challenge, "correct horse").starts_with("SIP/2.0 200 "));
    // Without a registration, nothing but the proof protects the address of a phone.
    chain.server.folder.run(&["ctl", "unregister", "bob@example.com", "--all"]).ok();
    chain.server.until("it is removed", || chain.server.status()["addresses"] == 0);
    chain.upgrade(&[]);
    let challenge = phone.ask();
    for number in 0..5 {
        let refusal = phone.answer(&challenge, &format!("guess {number}"));
        assert!(refusal.starts_with("SIP/2.0 401 "), "{refusal}");
    }
    chain.server.until("it is spared", || chain.server.status()["counters"]["bans"]["spared"] == 1);
    let bans = chain.server.folder.run(&["ctl", "ban", "--json"]).json();
    assert_eq!(bans["bans"], Value::Array(Vec::new()));
}

#[test]
fn the_process_before_ends_when_its_transactions_have() {
    let mut chain = Chain::start("[timers]\nt1 = \"20ms\"\nt2 = \"40ms\"\nt4 = \"40ms\"\n");
    assert!(chain.server.ask(&phone(), &options(&chain.server)).starts_with("SIP/2.0 200 "));
    chain.upgrade(&[]);
    assert_eq!(chain.server.ended(), Some(0));
    until("the next one knows", || chain.server.status()["takeover"]["predecessors"] == Value::Array(Vec::new()));
    assert!(chain.server.log().contains("ended"));
}

/// Starts a command that waits for messages or packets, and waits until it has said so.
fn watching(chain: &Chain, arguments: &[&str]) -> Child {
    let mut command = chain.server.folder.command(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().expect("piped")).read_line(&mut line).expect("a line");
    assert!(line.contains("waiting for messages"), "{line}");
    child
}

#[test]
fn a_trace_says_that_another_process_serves_now() {
    let mut chain = Chain::start("");
    let mut trace = watching(&chain, &["ctl", "trace", "--ip", "127.0.0.1", "--pcap", "trace.pcapng"]);
    assert!(chain.server.ask(&phone(), &options(&chain.server)).starts_with("SIP/2.0 200 "));
    chain.upgrade(&[]);
    let (mut shown, mut said) = (String::new(), String::new());
    trace.stdout.take().expect("piped").read_to_string(&mut shown).expect("text");
    trace.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_eq!(trace.wait().expect("it ends").code(), Some(1));
    assert!(shown.contains("OPTIONS"), "what was seen before is shown: {shown}");
    assert_eq!(
        said,
        "strowger: 2 messages written to trace.pcapng\nstrowger: the server was upgraded, and another process serves \
         now; run the command again\n"
    );
}

#[test]
fn the_audit_log_names_the_program_of_an_upgrade() {
    let mut chain = Chain::start("");
    chain.upgrade(&[]);
    let expected = format!("action=\"upgrade\" object=\"{}\" result=\"done\"", env!("CARGO_BIN_EXE_strowger"));
    chain.server.until("it is written", || chain.server.log().contains(&expected));
}

#[test]
fn an_upgrade_finds_the_server_at_another_socket_and_says_where_it_has_looked() {
    let mut chain = Chain::start("");
    let config = chain.server.folder.read("strowger.toml");
    chain.server.folder.write("strowger.toml", &format!("{config}control.socket = \"other.sock\"\n"));
    for command in [&["upgrade"][..], &["ctl", "status"]] {
        let reason = chain.server.folder.run(command).refused(1);
        assert!(reason.starts_with("no server is running: nothing answers at "), "{reason}");
        assert!(reason.contains("other.sock") && reason.contains("--socket"), "{reason}");
    }
    let report = chain.server.folder.run(&["upgrade", "--json", "--socket", "data/control.sock"]).json();
    chain.pids.push(report["pid"].as_u64().expect("a process"));
    // From here on it is where the file says.
    chain.server.until("it answers", || chain.server.folder.run(&["ctl", "status"]).code == Some(0));
    chain.server.until("the former one is gone", || !chain.server.folder.path().join("data/control.sock").exists());
    chain.upgrade(&[]);
}

#[test]
fn a_wait_beyond_the_limit_is_refused_at_once() {
    let folder = common::Folder::new("");
    let ran = folder.run(&["upgrade", "--wait", "200s"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("at most 100 s"), "{ran:?}");
}

#[test]
fn a_failed_upgrade_changes_nothing() {
    let mut chain = Chain::start("");
    let folder = chain.server.folder.path().to_owned();
    let config = chain.server.folder.read("strowger.toml");
    let program = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its owner");
    };
    let reason = chain.refused(&["--binary", "missing"]);
    assert!(reason.contains("missing cannot be started: No such file"), "{reason}");
    program("ends", "#!/bin/sh\nexit 3\n");
    let reason = chain.refused(&["--binary", "ends"]);
    assert!(reason.contains("it has ended with exit status: 3"), "{reason}");
    program("hangs", "#!/bin/sh\nexec sleep 1000\n");
    let reason = chain.refused(&["--binary", "hangs", "--wait", "200ms"]);
    assert!(reason.contains("hangs (process ") && reason.contains(") was not ready within 200ms"), "{reason}");
    assert!(reason.contains("--wait"), "{reason}");
    for (change, expected) in [
        (
            config.replace("server.workers = 2", "server.workers = 3"),
            "server.workers: 2 run, and the configuration has 3",
        ),
        (format!("server.key_file = \"none\"\n{config}"), "none does not exist"),
        (format!("{config}overload.control = false\n"), "overload.control has changed"),
        (config.replace("udp:", "tcp:"), "server.listen differs from the running server's"),
        (
            format!("{config}server.data = \"data2\"\ncontrol.socket = \"data/control.sock\"\n"),
            "data2/key, the key, does not exist",
        ),
        (format!("{config}store.mode = \"write-behind\"\n"), "store.mode: registrations are in write-through mode"),
    ] {
        chain.server.folder.write("strowger.toml", &change);
        let reason = chain.refused(&[]);
        assert!(reason.contains(expected), "{reason}");
    }
    chain.server.folder.write("strowger.toml", &config);
    assert!(!folder.join("data2").exists(), "nothing is created");
    fs::rename(folder.join("data").join("key"), folder.join("key")).expect("there is a key");
    let reason = chain.refused(&[]);
    assert!(reason.contains("data/key, the key, does not exist"), "{reason}");
    fs::write(folder.join("data").join("key"), [7; 16]).expect("written");
    let reason = chain.refused(&[]);
    assert!(reason.contains("another key than the running server"), "{reason}");
    fs::rename(folder.join("key"), folder.join("data").join("key")).expect("it is put back");
    // After all this an upgrade succeeds, and so does one to the program before.
    chain.upgrade(&[]);
    chain.upgrade(&["--binary", env!("CARGO_BIN_EXE_strowger")]);
    let log = chain.server.log();
    assert!(log.contains("took over from process"), "{log}");
}
