//! Memory that a peak of load has taken goes back to the system.

mod common;

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use common::server::Server;

/// Connections of the peak, each with a message that is never complete, and the bytes that each sends.
const CONNECTIONS: usize = 240;
const BYTES: usize = 60_000;
/// Private memory in KiB that the peak takes at least: as much as is sent.
const PEAK_KIB: u64 = (CONNECTIONS * BYTES / 1024) as u64;
/// Share of the peak that may stay.
const LEFT: u64 = 3;
/// How long the server may take. It collects memory 5 s after the load has fallen, and again after 40 s.
const REST: Duration = Duration::from_secs(60);
/// Time between two readings.
const READ_EVERY: Duration = Duration::from_millis(100);

#[test]
fn memory_of_a_peak_goes_back_after_a_rest() {
    let server = start();
    let memory = || private_kib(server.child.id());
    // The first connections take what a server in use always has.
    drop(send(server.address, 10));
    let start = memory();
    let connections = send(server.address, CONNECTIONS);
    let mut peak = start;
    server.until("the messages are read", || {
        peak = peak.max(memory());
        peak >= start + PEAK_KIB
    });
    drop(connections);
    let (bound, deadline) = (start + (peak - start) / LEFT, Instant::now() + REST);
    let mut left = peak;
    while left > bound && Instant::now() < deadline {
        thread::sleep(READ_EVERY);
        left = memory();
    }
    let readings = format!("{start} KiB before the peak, {peak} KiB at its end, {left} KiB after a rest");
    println!("{readings}");
    assert!(left <= bound, "{readings}");
}

/// Starts a server that listens on TCP too.
fn start() -> Server {
    let (folder, address) = Server::prepare("store.mode = \"memory\"\n");
    let listen = format!("\"udp:{address}\"");
    let config = folder.read("strowger.toml").replace(&listen, &format!("{listen}, \"tcp:{address}\""));
    folder.write("strowger.toml", &config);
    Server::started_by(folder.command(&["serve"]), folder, address)
}

/// Opens connections and sends the most part of a message on each.
fn send(server: SocketAddr, connections: usize) -> Vec<TcpStream> {
    let head = format!(
        "MESSAGE sip:{server} SIP/2.0\r\nVia: SIP/2.0/TCP {server};branch=z9hG4bK1\r\nMax-Forwards: 70\r\nFrom: <sip:a@b>;tag=1\r\n\
         To: <sip:a@b>\r\nCall-ID: 1\r\nCSeq: 1 MESSAGE\r\nContent-Length: {}\r\n\r\n",
        BYTES + 1
    );
    let text = [head.as_bytes(), &vec![b'x'; BYTES]].concat();
    let send = |_| {
        let mut connection = TcpStream::connect(server).expect("it listens");
        connection.write_all(&text).expect("it reads");
        connection
    };
    (0..connections).map(send).collect()
}

/// Returns the memory of a process that is neither file-backed nor shared.
fn private_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("our child");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux says so");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
