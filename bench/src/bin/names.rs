//! Calls to contacts by host name, with a slow name server. Writes `bench/NAMES.md`.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::Parser;
use strowger_bench::register::report::replace;
use strowger_bench::server::{Server, circumstances};

/// Time after which an unfinished call counts as failed.
const PATIENCE: Duration = Duration::from_secs(8);

#[derive(Debug, Parser)]
#[command(about = "Proxy-200 to contacts by host name, with and without a cache; a report, not a test")]
struct Arguments {
    /// Measured seconds of each row.
    #[arg(long, default_value_t = 6)]
    seconds: u64,
    /// Number of concurrent calls.
    #[arg(long, default_value_t = 64)]
    at_a_time: usize,
    /// Response delay of the name server, in milliseconds.
    #[arg(long, default_value_t = 25)]
    delay: u64,
    /// File for the report, in addition to standard output.
    #[arg(long)]
    output: Option<String>,
}

fn main() {
    let arguments = Arguments::parse();
    let mut report = String::from(
        "Calls (INVITE, 180, 200, ACK, BYE, 200) \
         go through one worker to a thousand users in turn; the lines below give the number of concurrent \
         calls and the delay of the name server. Caller, callee and name server share the machine. The \
         caller does not retransmit, so a packet that overflows its receive buffer is a failed call.\n\n",
    );
    report.push_str(&circumstances(
        "cargo build --release -p strowger && cargo run --release -p strowger-bench --bin names",
    ));
    let _ = write!(
        report,
        "- {} calls at a time for {} s; the name server answers after {} ms\n\n\
         | contacts | cache | calls a second | set-up: median | 99 % | longest | questions | failed | server's processor time a call |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|\n",
        arguments.at_a_time, arguments.seconds, arguments.delay
    );
    row(&arguments, &mut report, Contacts::Literal, true);
    for contacts in [Contacts::Names(1), Contacts::Names(1000)] {
        for cache in [false, true] {
            row(&arguments, &mut report, contacts, cache);
        }
    }
    print!("{report}");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("NAMES.md");
    replace(&arguments.output.map_or(file, Into::into), "names", &report).expect("the report can be written");
}

#[derive(Clone, Copy)]
enum Contacts {
    Literal,
    Names(u32),
}

const USERS: u32 = 1000;

fn row(arguments: &Arguments, report: &mut String, contacts: Contacts, cache: bool) {
    let names = NameServer::start(Duration::from_millis(arguments.delay));
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
    let address = port.expect("there is a free port");
    let config = format!(
        "[server]\nlisten = [\"udp:{address}\"]\ndomains = [\"example.com\"]\ndata = \"data\"\nworkers = 1\n[store]\n\
         url = \"memory:\"\n[registrar]\nnat = \"never\"\nkeepalive = \"off\"\n[auth]\nrequire = []\n[dns]\n\
         servers = [\"{}\"]\ncache = {cache}\n[log]\nlevel = \"error\"\n",
        names.address
    );
    let server = Server::start("names", &config, address);
    let callee = Callee::start();
    let mut caller = Caller::new(address);
    for user in 0..USERS {
        let host = match contacts {
            Contacts::Literal => "127.0.0.1".to_owned(),
            Contacts::Names(count) => format!("h{}.bench.test", user % count),
        };
        caller.register(user, &format!("{host}:{}", callee.address.port()));
    }
    let before = (server.processor_time(), names.asked.load(Ordering::Relaxed));
    let outcome = caller.play(arguments.at_a_time, Duration::from_secs(arguments.seconds));
    let used = server.processor_time().saturating_sub(before.0);
    let asked = names.asked.load(Ordering::Relaxed) - before.1;
    let mut times = outcome.times;
    times.sort();
    let at = |share: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        let index = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
        times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    let (what, kept) = match contacts {
        Contacts::Literal => ("a literal address".to_owned(), ""),
        Contacts::Names(count) => {
            (if count == 1 { "1 name".to_owned() } else { format!("{count} names") }, if cache { "on" } else { "off" })
        }
    };
    let _ = writeln!(
        report,
        "| {what} | {kept} | {:.0} | {:.2} ms | {:.2} ms | {:.1} ms | {asked} | {} | {:.0} µs |",
        outcome.ended as f64 / outcome.took.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(1.0),
        outcome.failed,
        used.as_secs_f64() * 1e6 / outcome.ended.max(1) as f64
    );
}

// ---- the name server ---------------------------------------------------------------------------------------------------

/// Answers after a delay that every name has the address 127.0.0.1, with a TTL of five minutes, and no other records.
struct NameServer {
    address: SocketAddr,
    asked: Arc<AtomicU64>,
    thread: Background,
}

impl NameServer {
    fn start(delay: Duration) -> NameServer {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let address = socket.local_addr().expect("a bound socket has an address");
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        let thread = Background::start(move |is_over| name_server(&socket, delay, &count, is_over));
        NameServer { address, asked, thread }
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.thread.end();
    }
}

fn name_server(socket: &UdpSocket, delay: Duration, asked: &AtomicU64, is_over: &AtomicBool) {
    let mut waiting: VecDeque<(Instant, SocketAddr, Vec<u8>)> = VecDeque::new();
    let mut question = [0; 1500];
    while !is_over.load(Ordering::Relaxed) {
        let now = Instant::now();
        while waiting.front().is_some_and(|(due, ..)| *due <= now) {
            if let Some((_, peer, answer)) = waiting.pop_front() {
                let _ = socket.send_to(&answer, peer);
            }
        }
        let due = waiting.front().map_or(Duration::from_millis(50), |(due, ..)| due.saturating_duration_since(now));
        let _ = socket.set_read_timeout(Some(due.max(Duration::from_micros(100))));
        let Ok((length, peer)) = socket.recv_from(&mut question) else { continue };
        if let Some(answer) = answer(&question[..length]) {
            asked.fetch_add(1, Ordering::Relaxed);
            waiting.push_back((Instant::now() + delay, peer, answer));
        }
    }
}

/// Returns the response to a query (RFC 1035 §4).
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let mut end = 12;
    while *question.get(end)? != 0 {
        end += 1 + usize::from(question[end]);
    }
    let kind = question.get(end + 1..end + 3)?;
    let has_answer = kind == [0, 1];
    let mut out = question.get(..2)?.to_vec();
    // A response, authoritative, with one question and at most one answer.
    out.extend_from_slice(&[0x84, 0, 0, 1, 0, u8::from(has_answer), 0, 0, 0, 0]);
    out.extend_from_slice(question.get(12..end + 5)?);
    if has_answer {
        out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 127, 0, 0, 1]);
    }
    Some(out)
}

// ---- the two ends ------------------------------------------------------------------------------------------------------

/// Answers every INVITE with 180 and 200, and every BYE with 200.
struct Callee {
    address: SocketAddr,
    thread: Background,
}

impl Callee {
    fn start() -> Callee {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let address = socket.local_addr().expect("a bound socket has an address");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a time-out can be set");
        let thread = Background::start(move |is_over| {
            let mut request = [0; 4096];
            while !is_over.load(Ordering::Relaxed) {
                let Ok((length, peer)) = socket.recv_from(&mut request) else { continue };
                let text = String::from_utf8_lossy(&request[..length]);
                if text.starts_with("INVITE ") {
                    let _ = socket.send_to(response(&text, "180 Ringing", address).as_bytes(), peer);
                }
                if text.starts_with("INVITE ") || text.starts_with("BYE ") {
                    let _ = socket.send_to(response(&text, "200 OK", address).as_bytes(), peer);
                }
            }
        });
        Callee { address, thread }
    }
}

impl Drop for Callee {
    fn drop(&mut self) {
        self.thread.end();
    }
}

fn response(request: &str, status: &str, contact: SocketAddr) -> String {
    let mut text = format!("SIP/2.0 {status}\r\n");
    for line in request.split("\r\n") {
        let name = line.split(':').next().unwrap_or_default();
        if matches!(name, "Via" | "Record-Route" | "From" | "To" | "Call-ID" | "CSeq") {
            let tag = if name == "To" && !line.contains(";tag=") { ";tag=callee" } else { "" };
            let _ = write!(text, "{line}{tag}\r\n");
        }
    }
    text + &format!("Contact: <sip:callee@{contact}>\r\nContent-Length: 0\r\n\r\n")
}

struct Caller {
    socket: UdpSocket,
    local: SocketAddr,
}

struct Outcome {
    ended: u64,
    failed: u64,
    times: Vec<Duration>,
    took: Duration,
}

impl Caller {
    fn new(server: SocketAddr) -> Caller {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        socket.connect(server).expect("a datagram socket can be connected");
        socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a time-out can be set");
        let local = socket.local_addr().expect("a bound socket has an address");
        Caller { socket, local }
    }

    fn send(&self, head: &str, number: &str, method: &str, more: &str) {
        let Caller { local, .. } = self;
        let text = format!(
            "{method} {head} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK{method}{number}\r\nMax-Forwards: 70\r\n\
             From: <sip:caller@example.com>;tag=c\r\nCall-ID: {number}\r\n\
             CSeq: {} {method}\r\n{more}Content-Length: 0\r\n\r\n",
            if method == "BYE" { 2 } else { 1 }
        );
        let _ = self.socket.send(text.as_bytes());
    }

    fn register(&mut self, user: u32, contact: &str) {
        let more = format!("To: <sip:u{user}@example.com>\r\nContact: <sip:u{user}@{contact}>\r\nExpires: 3600\r\n");
        self.send("sip:example.com", &format!("r{user}"), "REGISTER", &more);
        let mut answer = [0; 4096];
        let length = self.socket.recv(&mut answer).expect("the server answers");
        assert!(answer.starts_with(b"SIP/2.0 200"), "{}", String::from_utf8_lossy(&answer[..length]));
    }

    /// Keeps `at_a_time` calls active for `time`.
    fn play(&mut self, at_a_time: usize, time: Duration) -> Outcome {
        let mut outcome = Outcome { ended: 0, failed: 0, times: Vec::new(), took: Duration::ZERO };
        let mut calls: BTreeMap<u64, (Instant, bool)> = BTreeMap::new();
        let mut next = 0;
        let began = Instant::now();
        self.socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a time-out can be set");
        loop {
            let is_on = began.elapsed() < time;
            while is_on && calls.len() < at_a_time {
                let user = u32::try_from(next % u64::from(USERS)).unwrap_or(0);
                let more = format!("To: <sip:u{user}@example.com>\r\nContact: <sip:caller@{}>\r\n", self.local);
                self.send(&format!("sip:u{user}@example.com"), &next.to_string(), "INVITE", &more);
                calls.insert(next, (Instant::now(), false));
                next += 1;
            }
            if calls.is_empty() {
                break;
            }
            let mut bytes = [0; 4096];
            match self.socket.recv(&mut bytes) {
                Ok(length) => self.on_response(&String::from_utf8_lossy(&bytes[..length]), &mut calls, &mut outcome),
                Err(_) => {
                    let before = calls.len();
                    calls.retain(|_, (since, _)| since.elapsed() < PATIENCE);
                    outcome.failed += (before - calls.len()) as u64;
                }
            }
            if is_on {
                outcome.took = began.elapsed();
            }
        }
        outcome
    }

    fn on_response(&self, text: &str, calls: &mut BTreeMap<u64, (Instant, bool)>, outcome: &mut Outcome) {
        let header = |name: &str| text.split("\r\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let Some(number) = header("Call-ID").and_then(|id| id.parse::<u64>().ok()) else { return };
        let Some((since, is_up)) = calls.get_mut(&number) else { return };
        if text.starts_with("SIP/2.0 1") {
            return;
        }
        if !text.starts_with("SIP/2.0 200") {
            outcome.failed += 1;
            calls.remove(&number);
            return;
        }
        if header("CSeq").is_some_and(|cseq| cseq.ends_with("BYE")) {
            outcome.ended += 1;
            calls.remove(&number);
            return;
        }
        if std::mem::replace(is_up, true) {
            return;
        }
        outcome.times.push(since.elapsed());
        let target = header("Contact").unwrap_or_default().trim_matches(['<', '>']);
        let to = header("To").unwrap_or_default();
        let route = header("Record-Route").unwrap_or_default();
        let more = format!("To: {to}\r\nRoute: {route}\r\n");
        self.send(target, &number.to_string(), "ACK", &more);
        self.send(target, &number.to_string(), "BYE", &more);
    }
}

/// A thread that ends on request.
struct Background {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    fn start(work: impl FnOnce(&AtomicBool) + Send + 'static) -> Background {
        let is_over = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&is_over);
        Background { is_over, thread: Some(thread::spawn(move || work(&theirs))) }
    }

    fn end(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
