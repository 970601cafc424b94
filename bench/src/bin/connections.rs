//! Cost of thousands of connections for a running server, and the effect of misbehaving ones on others. Writes
//! `bench/CONNECTIONS.md`.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use strowger_bench::connection_load::{self, Probe, Times};
use strowger_bench::register::report::replace;
use strowger_bench::server::{Server, circumstances};

#[derive(Debug, Parser)]
#[command(about = "What connections cost, and what bad ones do to others; a report, not a test")]
struct Arguments {
    /// Number of phones that register.
    #[arg(long, default_value_t = 15_000)]
    phones: usize,
    /// Number of connections that send one byte per second.
    #[arg(long, default_value_t = 5_000)]
    slow: usize,
    /// File for the report, in addition to standard output.
    #[arg(long)]
    output: Option<String>,
}

fn main() {
    let arguments = Arguments::parse();
    let mut report = String::from(
        "Private memory is the process's `RssAnon`. It \
         includes memory kept by the allocator, which differs between runs by about a megabyte.\n\n",
    );
    report.push_str(&circumstances(
        "cargo build --release -p strowger && cargo run --release -p strowger-bench --bin connections",
    ));
    idle(&arguments, &mut report);
    bad(&arguments, &mut report);
    print!("{report}");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("CONNECTIONS.md");
    let file = arguments.output.map_or(file, Into::into);
    replace(&file, "connections", &report).expect("the report can be written");
}

fn start(name: &str) -> (Server, SocketAddr) {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
    let address = port.expect("there is a free port");
    // A short T1, so that the transactions of the registrations have ended when memory is measured.
    let config = format!(
        "[server]\nlisten = [\"udp:{address}\", \"tcp:{address}\"]\ndomains = [\"example.com\"]\ndata = \"data\"\n\
         workers = 2\n[store]\nurl = \"memory:\"\n[auth]\nrequire = []\n[tcp]\nconnections = 19000\nper_source = 1000\n[timers]\nt1 = \"5ms\"\n\
         [log]\nlevel = \"error\"\n"
    );
    let server = Server::start(name, &config, address);
    warm(address);
    (server, address)
}

/// Triggers the allocations that a server makes once with its first requests, so that they are not attributed to
/// connections.
fn warm(address: SocketAddr) {
    for number in 1..=2 {
        over_udp(address, 300, number);
        let mut lines = connection_load::idle(address, 300);
        connection_load::ask_all(&mut lines, "OPTIONS", number);
    }
    settle();
}

/// Compares the same phones over UDP and over TCP.
fn idle(arguments: &Arguments, report: &mut String) {
    let phones = arguments.phones;
    let (server, address) = start("datagrams");
    let empty = connection_load::memory(server.pid());
    let by_udp = [1, 2].map(|number| {
        over_udp(address, phones, number);
        settle();
        connection_load::memory(server.pid()).saturating_sub(empty) / phones as u64
    });
    drop(server);
    let (server, address) = start("streams");
    let empty = connection_load::memory(server.pid());
    let mut lines = connection_load::idle(address, phones);
    settle();
    let opened = connection_load::memory(server.pid()).saturating_sub(empty) / phones as u64;
    let by_tcp = ["REGISTER", "OPTIONS"].map(|method| {
        connection_load::ask_all(&mut lines, method, if method == "REGISTER" { 1 } else { 2 });
        settle();
        connection_load::memory(server.pid()).saturating_sub(empty) / phones as u64
    });
    eprintln!("bytes a phone by UDP {by_udp:?}, by TCP {opened} {by_tcp:?}");
    let open = server.counter("connections.open");
    let _ = write!(
        report,
        "\n## {phones} idle connections\n\n{open} connections were open at the end, from {} addresses.\n\n| bytes a phone | over UDP | over TCP | a connection, beside the binding |\n|---|---:|---:|---:|\n\
         | connected | | {opened} | {opened} |\n| registered | {} | {} | {} |\n| and after an OPTIONS each | {} | {} | {} |\n",
        phones.div_ceil(500),
        by_udp[0],
        by_tcp[0],
        difference(by_tcp[0], by_udp[0]),
        by_udp[1],
        by_tcp[1],
        difference(by_tcp[1], by_udp[1]),
    );
}

fn difference(more: u64, less: u64) -> i64 {
    i64::try_from(more).unwrap_or(i64::MAX) - i64::try_from(less).unwrap_or(i64::MAX)
}

/// Sends one request of each phone from a single socket; the contacts have other addresses.
fn over_udp(server: SocketAddr, phones: usize, number: u64) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    socket.connect(server).expect("a datagram socket can be connected");
    socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a time-out can be set");
    let local = socket.local_addr().expect("a bound socket has an address");
    let method = if number == 1 { "REGISTER" } else { "OPTIONS" };
    for index in 0..phones {
        let text = connection_load::request(method, "UDP", &format!("u{index}"), local, number);
        let mut answer = [0; 2048];
        socket.send(text.as_bytes()).expect("the server is there");
        socket.recv(&mut answer).expect("the server answers");
        assert!(answer.starts_with(b"SIP/2.0 200 "), "{}", String::from_utf8_lossy(&answer));
        // Slow enough that few transactions exist at a time, as in production.
        thread::sleep(Duration::from_micros(500));
    }
}

/// Waits until the transactions have ended.
fn settle() {
    thread::sleep(Duration::from_secs(3));
}

/// Runs each kind of misbehaving peer against a separate server, with a well-behaved client beside it.
fn bad(arguments: &Arguments, report: &mut String) {
    report.push_str(
        "\n## Bad peers\n\nAnother client registers over UDP and sends OPTIONS over TCP throughout, \
         without retransmissions; the table has its round-trip times. Bad peers and the two \
         workers share the machine's processors; the second row shows the effect of as many threads \
         that only compute. The last column counts messages dropped between the workers.\n\n\
         | what they do | peers | closed by the server | memory more, at most | others: median | 99 % | longest | unanswered | lost between workers |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    row(report, "none", 0, |_| {
        thread::sleep(Duration::from_secs(3));
        0
    });
    row(report, "none, but three threads of this benchmark compute", 0, |_| {
        let until = Instant::now() + Duration::from_secs(3);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| while Instant::now() < until {});
            }
        });
        0
    });
    row(report, "send requests and stop reading", 100, |server| connection_load::deaf(server, 100, 100_000));
    let slow = arguments.slow;
    row(report, "send a byte a second, for 35 s", slow, |server| {
        connection_load::dripping(server, slow, Duration::from_secs(1), Duration::from_secs(35))
    });
    row(report, "announce a body of 64 MiB", 1000, |server| connection_load::boasting(server, 1000).0);
    row(report, "send 60 KiB of a message and stop", slow, |server| {
        let lines = connection_load::hoarding(server, slow, 60 * 1024);
        thread::sleep(Duration::from_secs(1));
        connection_load::closed(&lines)
    });
}

fn row(report: &mut String, what: &str, peers: usize, attack: impl FnOnce(SocketAddr) -> usize) {
    let (server, address) = start("bad");
    let probe = Probe::start(address);
    drop(probe.take());
    let before = connection_load::memory(server.pid());
    let (most, closed) = thread::scope(|scope| {
        let pid = server.pid();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let watch = scope.spawn(move || {
            let mut most = 0;
            while stopped.recv_timeout(Duration::from_millis(20)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                most = most.max(connection_load::memory(pid));
            }
            most
        });
        let closed = attack(address);
        drop(stop);
        (watch.join().expect("it only looks"), closed)
    });
    let began = Instant::now();
    let times: Times = probe.take();
    drop(probe);
    assert!(began.elapsed() < Duration::from_secs(30), "the server is stuck");
    if times.lost > 0 {
        eprintln!("{what}: {} unanswered\n{}", times.lost, server.status());
    }
    let dropped = server.counter("workers.handover_drops") + server.counter("connections.handover_overflow");
    let _ = writeln!(
        report,
        "| {what} | {peers} | {closed} | {:.1} MiB | {:.2} ms | {:.2} ms | {:.1} ms | {} | {dropped} |",
        most.saturating_sub(before) as f64 / f64::from(1 << 20),
        milliseconds(times.quantile(0.5)),
        milliseconds(times.quantile(0.99)),
        milliseconds(times.longest()),
        times.lost
    );
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
