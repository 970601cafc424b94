//! Each shell carries calls end to end: registration, INVITE, ACK and BYE between two phones.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum time of any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
const DOMAIN: &str = "ex.example.com";
/// Number of calls: enough that every thread and process that owns users has some.
const CALLS: u32 = 8;

struct Server {
    child: Child,
    address: SocketAddr,
    stdout: BufReader<ChildStdout>,
}

impl Server {
    fn start(architecture: &str, options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_strowger-architectures"))
            .args(["--architecture", architecture, "--listen", "127.0.0.1:0"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        stdout.read_line(&mut line).expect("it says where it listens");
        let address = line.split_whitespace().last().and_then(|word| word.parse().ok());
        Self { child, address: address.unwrap_or_else(|| panic!("no address in {line:?}")), stdout }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A phone and the address of its server.
struct Phone {
    socket: UdpSocket,
    server: SocketAddr,
}

impl Phone {
    fn new(server: SocketAddr) -> Self {
        Self { socket: UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"), server }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("bound")
    }

    fn send(&self, text: &str) {
        self.socket.send_to(text.as_bytes(), self.server).expect("loopback takes it");
    }

    /// Returns the next message of this call whose first line begins with `start`, skipping others. Panics if
    /// `refused` arrives.
    fn expect(&self, start: &str, call: &str, refused: Option<&str>) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        let mut buffer = [0; 4_096];
        while let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            self.socket.set_read_timeout(Some(left)).expect("a time-out can be set");
            let Ok(length) = self.socket.recv(&mut buffer) else { break };
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let is_of_call = text.contains(call);
            assert!(!is_of_call || refused.is_none_or(|refused| !text.starts_with(refused)), "{text}");
            if is_of_call && text.starts_with(start) {
                return text;
            }
            seen.push(text.lines().next().unwrap_or_default().to_owned());
        }
        panic!("no {start} for {call}; there came {seen:?}");
    }

    fn request(&self, method: &str, uri: &str, to: &str, call: &str, cseq: u32, extra: &str) -> String {
        let address = self.address();
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {address};branch=z9hG4bK{call}{cseq}{method}\r\nMax-Forwards: 70\r\n\
             From: <sip:alice@{DOMAIN}>;tag=a\r\nTo: {to}\r\nCall-ID: {call}\r\nCSeq: {cseq} {method}\r\n\
             Contact: <sip:alice@{address}>\r\n{extra}Content-Length: 0\r\n\r\n"
        )
    }

    /// Answers a request as a phone would.
    fn answer(&self, request: &str, status: &str) {
        let mut text = format!("SIP/2.0 {status}\r\n");
        for line in request.split("\r\n").skip(1) {
            let name = line.split(':').next().unwrap_or_default();
            if ["Via", "Record-Route", "From", "To", "Call-ID", "CSeq"].contains(&name) {
                let tag = if name == "To" && !line.contains(";tag=") { ";tag=b" } else { "" };
                text += &format!("{line}{tag}\r\n");
            }
        }
        self.send(&format!("{text}Contact: <sip:bob@{}>\r\nContent-Length: 0\r\n\r\n", self.address()));
    }
}

fn header<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text.split("\r\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}"))
}

fn carry_a_call(alice: &Phone, bob: &Phone, number: u32, is_stateless: bool) {
    let (call, user) = (format!("call{number}-end"), format!("sip:bob{number}@{DOMAIN}"));
    let contact = format!("sip:bob@{}", bob.address());
    let register = format!(
        "REGISTER sip:{DOMAIN} SIP/2.0\r\nVia: SIP/2.0/UDP {address};branch=z9hG4bKreg{number}\r\nMax-Forwards: 70\r\n\
         From: <{user}>;tag=r\r\nTo: <{user}>\r\nCall-ID: reg{number}-end\r\nCSeq: 1 REGISTER\r\nContact: <{contact}>\r\n\
         Content-Length: 0\r\n\r\n",
        address = bob.address()
    );
    bob.send(&register);
    bob.expect("SIP/2.0 200 ", &format!("reg{number}-end"), None);

    let trying = "SIP/2.0 100 ";
    alice.send(&alice.request("INVITE", &user, &format!("<{user}>"), &call, 1, ""));
    if !is_stateless {
        alice.expect(trying, &call, None);
    }
    let invite = bob.expect("INVITE ", &call, None);
    assert!(invite.starts_with(&format!("INVITE {contact} SIP/2.0\r\n")), "{invite}");
    assert_eq!(header(&invite, "Max-Forwards"), "69");
    bob.answer(&invite, "180 Ringing");
    bob.answer(&invite, "200 OK");
    let refused = is_stateless.then_some(trying);
    let ok = alice.expect("SIP/2.0 200 ", &call, refused);
    assert_eq!(ok.matches("\r\nVia: ").count(), 1, "{ok}");

    let route = format!("Route: {}\r\n", header(&ok, "Record-Route"));
    let to = header(&ok, "To");
    alice.send(&alice.request("ACK", &contact, to, &call, 1, &route));
    bob.expect("ACK ", &call, None);
    alice.send(&alice.request("BYE", &contact, to, &call, 2, &route));
    let bye = bob.expect("BYE ", &call, None);
    bob.answer(&bye, "200 OK");
    // A retransmitted 200 to the INVITE may arrive first.
    while header(&alice.expect("SIP/2.0 200 ", &call, refused), "CSeq") != "2 BYE" {}
}

fn carry(architecture: &str) {
    for is_stateless in [false, true] {
        let options = ["--threads", "3", "--stateless"];
        let server = Server::start(architecture, if is_stateless { &options } else { &options[..2] });
        let (alice, bob) = (Phone::new(server.address), Phone::new(server.address));
        for number in 0..CALLS {
            carry_a_call(&alice, &bob, number, is_stateless);
        }
    }
}

#[test]
fn event_based_carries_calls() {
    carry("event-based");
}

#[test]
fn thread_per_message_carries_calls() {
    carry("thread-per-message");
}

#[test]
fn pool_thread_per_message_carries_calls() {
    carry("pool-thread-per-message");
}

#[test]
fn thread_pool_carries_calls() {
    carry("thread-pool");
}

#[test]
fn process_pool_carries_calls() {
    carry("process-pool");
}

#[test]
fn two_stage_threads_carry_calls() {
    carry("two-stage-threads");
}

#[test]
fn two_stage_processes_carry_calls() {
    carry("two-stage-processes");
}

#[test]
fn a_timed_server_reports_wait_and_service_per_type() {
    for options in [&["--timing"][..], &["--timing", "--awake"]] {
        let mut server = Server::start("event-based", options);
        let (alice, bob) = (Phone::new(server.address), Phone::new(server.address));
        for number in 0..CALLS {
            carry_a_call(&alice, &bob, number, false);
        }
        let counts_all = |line: &str| {
            ["INVITE", "180", "200 to INVITE", "ACK", "BYE", "200 to BYE", "REGISTER"]
                .iter()
                .all(|kind| line.contains(&format!("{{\"count\":{CALLS},\"message\":\"{kind}\",\"service_ns\":")))
        };
        let mut next_line = || {
            let mut line = String::new();
            server.stdout.read_line(&mut line).map(|_| line)
        };
        let is_told = (0..20 * PATIENCE.as_secs()).any(|_| next_line().is_ok_and(|line| counts_all(&line)));
        assert!(is_told, "{options:?}");
    }
}

#[test]
fn the_other_processes_end_with_the_first() {
    let server = Server::start("two-stage-processes", &["--threads", "3"]);
    let pid = server.child.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("the server runs");
    let children: Vec<String> = children.split_whitespace().map(|child| format!("/proc/{child}/fd/0")).collect();
    assert_eq!(children.len(), 3, "one for each share of the users");
    drop(server);
    let deadline = Instant::now() + PATIENCE;
    while children.iter().any(|file| std::fs::symlink_metadata(file).is_ok()) {
        assert!(Instant::now() < deadline, "a process outlives the server");
        std::thread::yield_now();
    }
}
