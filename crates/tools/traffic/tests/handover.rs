//! Several threads that answer at one address: the messages of a call belong together, wherever they come from.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread::JoinHandle;
use std::time::Duration;

use strowger_traffic::engine::{Report, Run};
use strowger_traffic::options::{AnswerOptions, Target, workload};

/// Timeout for the other end on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts two threads that answer this many calls of a workload.
fn answering(listen: &str, name: &str, calls: u64) -> (SocketAddr, JoinHandle<Report>) {
    let options = AnswerOptions {
        secure: strowger_traffic::options::SecureOptions::default(),
        listen: vec![Target::parse(listen).expect("a target")],
        workload: workload(name).expect("built in"),
        scenario: None,
        calls: Some(calls),
        time: None,
        threads: 2,
        is_busy_polling: false,
        has_segmentation: false,
        retransmits: true,
        service: None,
        seed: 7,
    };
    let (plan, about) = options.plan().expect("a plan");
    assert!(about.declared.is_empty(), "there is nothing to warn of: {about:?}");
    let run = Run::prepare(plan).expect("both threads listen");
    let at = run.listening()[0];
    (at, std::thread::spawn(move || run.go().expect("a run")))
}

fn request(method: &str, call: &str, number: u32, transport: &str, from: SocketAddr, to: &str) -> String {
    let branch = if method == "CANCEL" { "INVITE" } else { method };
    format!(
        "{method} sip:b@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/{transport} {from};branch=z9hG4bK{call}{branch};rport\r\nMax-Forwards: 70\r\n\
         From: <sip:a@127.0.0.1>;tag=a\r\n{to}\r\nCall-ID: {call}\r\nCSeq: {number} {method}\r\nContact: <sip:a@{from}>\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

const NO_TAG: &str = "To: <sip:b@127.0.0.1>";

fn to_of(response: &str) -> &str {
    response.lines().find(|line| line.starts_with("To:")).expect("a To")
}

/// Waits on a socket for the response of this call with this status and CSeq.
fn wait(socket: &UdpSocket, status: &str, cseq: &str, call: &str) -> String {
    let mut buffer = [0; 4_096];
    loop {
        let length = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{status} to {cseq} of {call}: {error}"));
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        if !text.contains(&format!("Call-ID: {call}\r\n")) || !text.contains(&format!("CSeq: {cseq}\r\n")) {
            continue;
        }
        let code = &text[8..11];
        if code >= "200" {
            assert_eq!(code, status, "{text}");
            return text;
        }
    }
}

fn sockets() -> Vec<UdpSocket> {
    let open = |_| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_read_timeout(Some(PATIENCE)).expect("it can be told");
        socket
    };
    (0..12).map(open).collect()
}

fn send(socket: &UdpSocket, to: SocketAddr, method: &str, call: &str, number: u32, tagged: &str) {
    let text = request(method, call, number, "UDP", socket.local_addr().expect("bound"), tagged);
    socket.send_to(text.as_bytes(), to).expect("it leaves");
}

#[test]
fn a_call_is_found_from_any_socket() {
    let (at, answered) = answering("udp:127.0.0.1:0", "proxy-200", 60);
    let sockets = sockets();
    for number in 0..60 {
        let call = format!("udp{number}");
        let [first, second, third] = [0, 5, 7].map(|step| &sockets[(number + step) % sockets.len()]);
        send(first, at, "INVITE", &call, 1, NO_TAG);
        let answer = wait(first, "200", "1 INVITE", &call);
        send(second, at, "ACK", &call, 1, to_of(&answer));
        send(third, at, "BYE", &call, 2, to_of(&answer));
        wait(third, "200", "2 BYE", &call);
    }
    let report = answered.join().expect("it ends");
    let phase = report.measured().expect("one phase");
    let (accounts, links) = (phase.callee.answered, phase.links);
    assert_eq!((accounts.sent, accounts.carried), (60, 60), "all threads together: {accounts:?}");
    // An ACK that the other thread received may come after the BYE.
    assert_eq!(phase.callee.unexpected, 0, "{:?}", phase.callee.failures);
    // Each of 240 messages reaches either thread.
    assert!(links.handed_over > 20 && links.handover_drops == 0, "{links:?}");
}

#[test]
fn a_call_is_cancelled_from_another_socket() {
    let (at, answered) = answering("udp:127.0.0.1:0", "baseline", 20);
    let sockets = sockets();
    for number in 0..20 {
        let call = format!("cancel{number}");
        let [first, second, third] = [0, 5, 7].map(|step| &sockets[(number + step) % sockets.len()]);
        send(first, at, "INVITE", &call, 1, NO_TAG);
        // A copy of it is not another call. A CANCEL needs its request.
        send(first, at, "INVITE", &call, 1, NO_TAG);
        let mut ringing = [0; 4_096];
        first.recv(&mut ringing).expect("it rings");
        send(second, at, "CANCEL", &call, 1, NO_TAG);
        wait(second, "200", "1 CANCEL", &call);
        let refusal = wait(first, "487", "1 INVITE", &call);
        send(third, at, "ACK", &call, 1, to_of(&refusal));
    }
    let report = answered.join().expect("it ends");
    let accounts = report.measured().expect("one phase").callee.answered;
    assert_eq!((accounts.sent, accounts.failed, accounts.lost), (20, 20, 0), "{accounts:?}");
}

/// A connection that is read message by message.
struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    fn open(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("it can be told");
        Self { stream, read: Vec::new() }
    }

    fn send(&mut self, method: &str, call: &str, number: u32, tagged: &str) {
        let from = self.stream.local_addr().expect("bound");
        self.stream.write_all(request(method, call, number, "TCP", from, tagged).as_bytes()).expect("it leaves");
    }

    /// Returns the next final response.
    fn wait(&mut self) -> String {
        loop {
            if let Some(end) = self.read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.read[..end]).into_owned();
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
                let all = end + 4 + length.unwrap_or(0);
                if self.read.len() >= all {
                    self.read.drain(..all);
                    if &head[8..11] >= "200" {
                        return head;
                    }
                    continue;
                }
            }
            let mut buffer = [0; 4_096];
            let length = self.stream.read(&mut buffer).expect("it answers");
            assert!(length > 0, "the connection was closed");
            self.read.extend_from_slice(&buffer[..length]);
        }
    }
}

#[test]
fn a_call_may_use_several_connections() {
    let (at, answered) = answering("tcp:127.0.0.1:0", "proxy-200", 40);
    for number in 0..40 {
        let call = format!("tcp{number}");
        let [mut first, mut second, mut third] = [(); 3].map(|()| Connection::open(at));
        first.send("INVITE", &call, 1, NO_TAG);
        let answer = first.wait();
        assert!(answer.starts_with("SIP/2.0 200"), "{answer}");
        second.send("ACK", &call, 1, to_of(&answer));
        // A connection closed during the call is no longer needed.
        drop(first);
        third.send("BYE", &call, 2, to_of(&answer));
        let bye = third.wait();
        assert!(bye.starts_with("SIP/2.0 200") && bye.contains("CSeq: 2 BYE"), "{bye}");
    }
    let report = answered.join().expect("it ends");
    let phase = report.measured().expect("one phase");
    let (accounts, links) = (phase.callee.answered, phase.links);
    assert_eq!((accounts.sent, accounts.carried), (40, 40), "{accounts:?} {:?}", phase.callee.failures);
    assert!(links.handed_over > 10 && links.handover_drops == 0 && links.send_failures == 0, "{links:?}");
}

#[test]
fn one_socket_keeps_all_threads_busy() {
    let (at, answered) = answering("udp:127.0.0.1:0", "proxy-200", 100);
    let target = Target::parse(&format!("udp:{at}")).expect("a target");
    let mut calling =
        strowger_traffic::options::Options::new(workload("proxy-200").expect("built in"), Some(target), 3);
    calling.callee_location = strowger_traffic::options::CalleeLocation::Remote;
    (calling.rate, calling.calls) = (500.0, Some(100));
    let (plan, _) = calling.plan().expect("a plan");
    let called = Run::prepare(plan).expect("sockets").go().expect("a run");
    let began = called.measured().expect("one phase").caller.began;
    let report = answered.join().expect("it ends");
    let phase = report.measured().expect("one phase");
    assert_eq!((began.carried, phase.callee.answered.carried), (100, 100), "{:?}", phase.callee.failures);
    // The kernel gives all of it to one thread, and half of the calls belong to the other.
    assert!((60..=240).contains(&phase.links.handed_over), "{:?}", phase.links);
}
