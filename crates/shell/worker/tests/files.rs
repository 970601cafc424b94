//! A server at its limit of open files: existing connections continue, and it does not spin.

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream as Line, UdpSocket as Phone};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use strowger_worker::{Fleet, FleetConfig, StreamLimits};
use support::DEADLINE;

/// Set in the server process.
const ROLE: &str = "STROWGER_TEST_SERVER";

/// Runs the server: prints its address, and at the end the number of failed accepts.
fn serve() {
    let sockets = vec![support::bind(), support::listen()];
    let [datagrams, connections] = [0, 1].map(|listener: usize| sockets[listener].local_addr());
    let snapshot = Arc::new(support::snapshot(&sockets));
    let streams = StreamLimits { per_source: 10_000, ..StreamLimits::default() };
    let config = FleetConfig { streams, ..support::config(vec![sockets], snapshot) };
    let fleet = Fleet::start(config).expect("threads");
    println!("\nat {datagrams} {connections}");
    std::io::stdin().read_line(&mut String::new()).expect("a word");
    println!("\nerrors {}", fleet.status().total.streams.accept_errors);
}

/// Returns what follows `word` in the next line that begins with it.
fn told(lines: &mut impl Iterator<Item = std::io::Result<String>>, word: &str) -> String {
    let mut lines = lines.map(|line| line.expect("text"));
    lines.find_map(|line| line.strip_prefix(word).map(str::to_owned)).expect("it says so")
}

fn ping(line: &mut Line) -> bool {
    let mut pong = [0; 2];
    line.write_all(b"\r\n\r\n").is_ok() && line.read_exact(&mut pong).is_ok() && &pong == b"\r\n"
}

#[test]
fn open_connections_go_on_without_free_file_descriptors() {
    if std::env::var_os(ROLE).is_some() {
        return serve();
    }
    let this = std::env::current_exe().expect("a program");
    let name = "open_connections_go_on_without_free_file_descriptors";
    let mut server = Command::new("sh")
        .args(["-c", "ulimit -n 64 && exec \"$0\" --exact --nocapture \"$1\""])
        .args([this.as_os_str(), name.as_ref()])
        .env(ROLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut lines = BufReader::new(server.stdout.take().expect("piped")).lines();
    let at = told(&mut lines, "at ");
    let (datagrams, connections) = at.split_once(' ').expect("two addresses");
    let begun = Instant::now();
    let open = || {
        let line = Line::connect(connections).expect("the kernel takes it");
        line.set_read_timeout(Some(DEADLINE)).expect("settable");
        line
    };
    let mut first = open();
    assert!(ping(&mut first));
    // Each connection that cannot be accepted triggers another edge.
    let phone = Phone::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    phone.connect(datagrams).expect("settable");
    phone.set_read_timeout(Some(DEADLINE)).expect("settable");
    let others: Vec<Line> = (0..200)
        .map(|_| {
            let line = open();
            phone.send(b"\r\n\r\n").expect("loopback takes it");
            assert_eq!(phone.recv(&mut [0; 16]).expect("datagrams are answered"), 2);
            line
        })
        .collect();
    assert!(ping(&mut first), "what is open goes on");
    drop(others);
    assert!(ping(&mut open()), "and there is room again");
    let elapsed = begun.elapsed();
    server.stdin.take().expect("piped").write_all(b"end\n").expect("it listens");
    let errors: u128 = told(&mut lines, "errors ").parse().expect("a number");
    assert!((1..=2 + elapsed.as_millis() / 100).contains(&errors), "{errors} in {elapsed:?}");
    assert!(server.wait().expect("it ends").success());
}
