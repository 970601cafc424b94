//! Calls to host names, with a real name server (BIND 9). Skipped if `named` is not installed.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use strowger_interop::bind9::Bind9;
use strowger_interop::{Config, PATIENCE, Route, Server, free_port, poll};

/// Upper limit for a call that waits for nothing. It takes a few milliseconds, but a busy machine is not a bug.
const AT_ONCE: Duration = Duration::from_millis(900);

/// Default of `proxy.failover_timeout`.
const FAILOVER: Duration = Duration::from_secs(4);
/// Pause between calls during an outage. A dozen calls per second show as much as thousands and leave the machine to the
/// other tests.
const BETWEEN_CALLS: Duration = Duration::from_millis(300);

#[test]
fn weights_are_kept() {
    if !Bind9::available() {
        return;
    }
    let lines = [1, 2, 3].map(|number| Line::start(number, 200));
    let [one, two, three] = lines.each_ref().map(Line::port);
    // NAPTR order decides. The other NAPTR record and the name's own address lead nowhere.
    let zone = Zone::start(&format!(
        r#"
carrier          IN NAPTR 20 50 "s" "SIP+D2T" "" _sip._tcp.carrier
carrier          IN NAPTR 10 50 "s" "SIP+D2U" "" _sip._udp.lines
carrier          IN A 127.0.0.99
_sip._tcp.carrier IN SRV 0 0 1 one
_sip._udp.carrier IN SRV 0 0 1 one
_sip._udp.lines  IN SRV 1 40 {one} one
_sip._udp.lines  IN SRV 1 40 {two} two
_sip._udp.lines  IN SRV 1 20 {three} three
_sip._udp.lines  IN SRV 2 100 1 one
"#
    ));
    let server = zone.server(&[("carrier.test", "sip:carrier.example.com")]);

    const CALLS: u32 = 10_000;
    let start = Instant::now();
    Caller::new(&server).call_many("sip:you@carrier.test", CALLS);
    let shares = lines.each_ref().map(|line| 100.0 * f64::from(line.calls()) / f64::from(CALLS));
    println!("{CALLS} calls in {:?}: {shares:.2?} %", start.elapsed());
    for (share, weight) in shares.iter().zip([40.0, 40.0, 20.0]) {
        assert!((share - weight).abs() <= 2.0, "{shares:.2?}");
    }
    assert_eq!(lines.iter().map(Line::calls).sum::<u32>(), CALLS);
    // Requests within a call go to the same server as the call.
    assert_eq!(lines.each_ref().map(Line::calls), lines.each_ref().map(Line::byes));
}

#[test]
fn silent_target_is_skipped() {
    if !Bind9::available() {
        return;
    }
    let (dead, alive) = (Silent::open(1), Line::start(2, 200));
    let zone = Zone::start(&two_lines(dead.port(), alive.port()));
    let server = zone.server(&[("carrier.test", "sip:carrier.example.com")]);
    let caller = Caller::new(&server);

    let (status, time) = caller.call("sip:you@carrier.test");
    assert_eq!((status, alive.calls()), (200, 1));
    assert!(time >= FAILOVER && time < FAILOVER + AT_ONCE, "{time:?}");
    assert!(dead.was_called(), "the first target is tried first");
    for _ in 0..5 {
        let (status, time) = caller.call("sip:you@carrier.test");
        assert_eq!(status, 200);
        assert!(time < AT_ONCE, "the dead target is not avoided: {time:?}");
    }
    assert_eq!(alive.calls(), 6);
}

#[test]
fn refusing_target_is_skipped() {
    if !Bind9::available() {
        return;
    }
    // One port is closed and causes an ICMP error, one server answers 503.
    let (nobody, busy, alive) = (free_port(), Line::start(1, 503), Line::start(2, 200));
    for first in [nobody, busy.port()] {
        let zone = Zone::start(&two_lines(first, alive.port()));
        let server = zone.server(&[("carrier.test", "sip:carrier.example.com")]);
        let caller = Caller::new(&server);
        for _ in 0..3 {
            let (status, time) = caller.call("sip:you@carrier.test");
            assert_eq!(status, 200);
            assert!(time < AT_ONCE, "{time:?}");
        }
    }
    assert_eq!((busy.calls(), alive.calls()), (1, 6), "the busy one is avoided once it has refused");
}

/// The name server fails for a minute: in the first half its port is closed, in the second half queries get no
/// answer.
#[test]
fn name_server_fails_for_a_minute() {
    if !Bind9::available() {
        return;
    }
    const HALF: Duration = Duration::from_secs(30);
    let line = Line::start(1, 200);
    let port = line.port();
    // The cached records expire after one second, after twenty, and not within the minute.
    let mut zone = Zone::start(&format!(
        "known 1 IN A 127.0.0.99\n_sip._udp.known 1 IN SRV 1 0 {port} quick\n_sip._udp.aging 20 IN SRV 1 0 {port} one\n\
         _sip._udp.lasting 300 IN SRV 1 0 {port} one\n*.fresh 1 IN A 127.0.0.11\n"
    ));
    let fresh = ["a.test", "b.test", "c.test", "d.test"];
    let fresh_targets = fresh.map(|domain| format!("sip:{domain}.fresh.example.com:{port}"));
    let literal = format!("sip:127.0.0.11:{port}");
    let mut routes = vec![
        ("known.test", "sip:known.example.com"),
        ("aging.test", "sip:aging.example.com"),
        ("lasting.test", "sip:lasting.example.com"),
        ("literal.test", &literal),
    ];
    routes.extend(fresh.into_iter().zip(fresh_targets.iter().map(String::as_str)));
    let server = zone.server(&routes);
    let known = ["known", "aging", "lasting", "literal"].map(|name| format!("sip:you@{name}.test"));
    let caller = Caller::new(&server);
    for uri in &known {
        assert_eq!(caller.call(uri).0, 200, "{uri}");
    }

    zone.named.stop();
    let stopped = Instant::now();
    let others = thread::spawn({
        let (caller, known) = (Caller::new(&server), known.clone());
        move || {
            let mut worst = Duration::ZERO;
            while stopped.elapsed() < 2 * HALF {
                for uri in &known {
                    let (status, time) = caller.call(uri);
                    assert_eq!(status, 200, "{uri} after {:?}", stopped.elapsed());
                    worst = worst.max(time);
                }
                thread::sleep(BETWEEN_CALLS);
            }
            worst
        }
    });
    // Names that were not resolved before the outage, each tried more than once.
    let mut slowest = Duration::ZERO;
    let mut call_unknown = |until: Duration| {
        for domain in fresh.iter().cycle().take_while(|_| stopped.elapsed() < until) {
            let (status, time) = caller.call(&format!("sip:you@{domain}"));
            assert_eq!(status, 503, "{domain} after {:?}", stopped.elapsed());
            assert!(time < Duration::from_secs(2), "{time:?}");
            slowest = slowest.max(time);
            thread::sleep(BETWEEN_CALLS);
        }
    };
    call_unknown(HALF);
    let silent = UdpSocket::bind(zone.named.address()).expect("its port is free");
    call_unknown(2 * HALF - Duration::from_secs(1));
    let worst = others.join().expect("calls to what is known succeed");
    println!("a minute without a name server: known in {worst:?} at most, unknown refused in {slowest:?} at most");
    assert!(worst < AT_ONCE, "{worst:?}");

    drop(silent);
    zone.named.start_again();
    for domain in fresh {
        let back = poll(PATIENCE, || (caller.call(&format!("sip:you@{domain}")).0 == 200).then_some(()));
        assert!(back.is_some(), "the name that failed fails for ever");
    }
    for uri in &known {
        assert_eq!(caller.call(uri).0, 200, "{uri}");
    }
}

/// Returns a zone with two addresses for `carrier.example.com`. The second is for when the first fails.
fn two_lines(first: u16, second: u16) -> String {
    format!(
        "carrier IN A 127.0.0.99\n_sip._udp.carrier IN SRV 1 0 {first} one\n_sip._udp.carrier IN SRV 2 0 {second} two\n"
    )
}

struct Zone {
    named: Bind9,
}

impl Zone {
    fn start(records: &str) -> Zone {
        let hosts = "one IN A 127.0.0.11\ntwo IN A 127.0.0.12\nthree IN A 127.0.0.13\nquick 1 IN A 127.0.0.11\n";
        Zone { named: Bind9::start("example.com", 1, &format!("{records}{hosts}")) }
    }

    /// Starts a server that queries this zone, with one route per domain.
    fn server(&self, routes: &[(&'static str, &str)]) -> Server {
        let route = |&(domain, target): &(&'static str, &str)| Route {
            domain,
            action: "proxy",
            targets: vec![target.to_owned()],
        };
        Config {
            tcp: true,
            routes: routes.iter().map(route).collect(),
            more: format!("\n[dns]\nservers = [\"{}\"]\n", self.named.address()),
            ..Config::open()
        }
        .start()
    }
}

/// Returns the address of a line.
fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 10 + number)
}

/// A remote party that never answers.
struct Silent {
    socket: UdpSocket,
}

impl Silent {
    fn open(number: u8) -> Silent {
        Silent { socket: UdpSocket::bind((host(number), free_port())).expect("a socket") }
    }

    fn port(&self) -> u16 {
        self.socket.local_addr().expect("a bound socket has an address").port()
    }

    fn was_called(&self) -> bool {
        self.socket.set_nonblocking(true).expect("a socket can be told not to wait");
        self.socket.recv(&mut [0; 16]).is_ok()
    }
}

/// A remote party that answers each INVITE with the same status and takes part in the rest of the call.
struct Line {
    port: u16,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    over: AtomicBool,
    calls: AtomicU32,
    byes: AtomicU32,
}

impl Line {
    fn start(number: u8, status: u16) -> Line {
        let socket = UdpSocket::bind((host(number), free_port())).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a time-out can be set");
        let port = socket.local_addr().expect("a bound socket has an address").port();
        let shared = Arc::new(Shared::default());
        let in_thread = Arc::clone(&shared);
        let thread = Some(thread::spawn(move || answer(&socket, status, &in_thread)));
        Line { port, shared, thread }
    }

    fn port(&self) -> u16 {
        self.port
    }

    /// Returns the number of calls received.
    fn calls(&self) -> u32 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// Returns the number of calls ended by the caller.
    fn byes(&self) -> u32 {
        self.shared.byes.load(Ordering::Relaxed)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread's panic has already been printed. A second one here would abort the test run.
            let _ = thread.join();
        }
    }
}

fn answer(socket: &UdpSocket, status: u16, shared: &Shared) {
    let contact = socket.local_addr().expect("a bound socket has an address");
    let mut buffer = [0; 4096];
    let mut answered = HashSet::new();
    while !shared.over.load(Ordering::Relaxed) {
        let Ok((length, source)) = socket.recv_from(&mut buffer) else { continue };
        let request = String::from_utf8_lossy(&buffer[..length]);
        let (count, status) = match request.split(' ').next() {
            Some("INVITE") => (&shared.calls, status),
            Some("BYE") => (&shared.byes, 200),
            _ => continue,
        };
        // On a busy machine a response may be late, and the request is retransmitted.
        if answered.insert(values(&request, "Via").next().map(str::to_owned)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let mut response = format!("SIP/2.0 {status} So\r\n");
        for name in ["Via", "Record-Route", "From", "To", "Call-ID", "CSeq"] {
            for value in values(&request, name) {
                let tag = if name == "To" && !value.contains(";tag=") { ";tag=line" } else { "" };
                response += &format!("{name}: {value}{tag}\r\n");
            }
        }
        response += &format!("Contact: <sip:{contact}>\r\nContent-Length: 0\r\n\r\n");
        socket.send_to(response.as_bytes(), source).expect("an answer can be sent");
    }
}

/// Returns the values of the header fields of this name.
fn values<'a>(message: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let fields = message.lines().skip(1).take_while(|line| !line.is_empty());
    fields.filter_map(move |line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// A caller that sends INVITE, ACK, and an immediate BYE.
struct Caller {
    socket: UdpSocket,
    local: SocketAddr,
    server: SocketAddr,
    next: AtomicU32,
}

impl Caller {
    fn new(server: &Server) -> Caller {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let local = socket.local_addr().expect("a bound socket has an address");
        socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a time-out can be set");
        Caller { socket, local, server: server.address(), next: AtomicU32::new(0) }
    }

    /// Makes one call. Returns its status and the time until the final response.
    fn call(&self, uri: &str) -> (u16, Duration) {
        let mut outcome = None;
        let start = Instant::now();
        self.call_each(uri, 1, |status| outcome = Some((status, start.elapsed())));
        outcome.expect("a call comes to something")
    }

    /// Makes many calls, all of which must succeed.
    fn call_many(&self, uri: &str, count: u32) {
        self.call_each(uri, count, |status| assert_eq!(status, 200));
    }

    /// Makes calls, several at a time, and returns when all have ended.
    fn call_each(&self, uri: &str, count: u32, mut outcome: impl FnMut(u16)) {
        const AT_A_TIME: usize = 16;
        let mut waiting: HashMap<String, String> = HashMap::new();
        let (mut begun, mut ended) = (0, 0);
        let mut buffer = [0; 4096];
        let mut heard = Instant::now();
        while ended < count {
            while begun < count && waiting.len() < AT_A_TIME {
                let call_id = format!("{}@{}", self.next.fetch_add(1, Ordering::Relaxed), self.local);
                let invite = self.request("INVITE", uri, &call_id, "", "");
                self.send(&invite);
                waiting.insert(call_id, invite);
                begun += 1;
            }
            let response = match self.socket.recv(&mut buffer) {
                Ok(length) => String::from_utf8_lossy(&buffer[..length]).into_owned(),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    assert!(heard.elapsed() < PATIENCE, "{} calls come to nothing", waiting.len());
                    waiting.values().for_each(|request| self.send(request));
                    continue;
                }
                Err(error) => panic!("the caller's socket: {error}"),
            };
            heard = Instant::now();
            let status = response.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a response");
            let call_id = values(&response, "Call-ID").next().expect("a response has a Call-ID");
            if status < 200 || !waiting.contains_key(call_id) {
                continue;
            }
            if values(&response, "CSeq").any(|value| value.ends_with("BYE")) {
                assert_eq!(status, 200, "{response}");
                waiting.remove(call_id);
                ended += 1;
                continue;
            }
            let was_waiting = waiting.get(call_id).is_some_and(|request| request.starts_with("INVITE"));
            if !was_waiting {
                continue;
            }
            outcome(status);
            if status >= 300 {
                let to = values(&response, "To").next().unwrap_or_default();
                self.send(&self.request("ACK", uri, call_id, to, ""));
                waiting.remove(call_id);
                ended += 1;
                continue;
            }
            let bye = self.follow_up(&response, call_id);
            waiting.insert(call_id.to_owned(), bye);
        }
    }

    /// Sends ACK and BYE and returns the BYE.
    fn follow_up(&self, response: &str, call_id: &str) -> String {
        let target = values(response, "Contact").next().expect("a 200 has a Contact").trim_matches(['<', '>']);
        let to = values(response, "To").next().expect("a 200 has a To");
        let mut route: Vec<_> = values(response, "Record-Route").flat_map(|value| value.split(", ")).collect();
        route.reverse();
        let route = route.iter().map(|hop| format!("Route: {hop}\r\n")).collect::<String>();
        self.send(&self.request("ACK", target, call_id, to, &route));
        let bye = self.request("BYE", target, call_id, to, &route);
        self.send(&bye);
        bye
    }

    fn request(&self, method: &str, uri: &str, call_id: &str, to: &str, route: &str) -> String {
        let (local, to) = (self.local, if to.is_empty() { "<sip:you@example.com>" } else { to });
        // The ACK to a failure belongs to the INVITE transaction, the ACK to a 2xx to none.
        let (branch, number) = match (method, route) {
            ("INVITE", _) | ("ACK", "") => ("invite", 1),
            ("ACK", _) => ("ack", 1),
            _ => ("bye", 2),
        };
        let call = call_id.replace(['@', ':'], "-");
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK-{branch}-{call}\r\nMax-Forwards: 70\r\n{route}\
             From: <sip:me@example.com>;tag=caller\r\nTo: {to}\r\nCall-ID: {call_id}\r\nCSeq: {number} {method}\r\n\
             Contact: <sip:{local}>\r\nContent-Length: 0\r\n\r\n"
        )
    }

    fn send(&self, message: &str) {
        self.socket.send_to(message.as_bytes(), self.server).expect("a request can be sent");
    }
}
