//! Memory after a peak of load goes back to the system.

mod common;

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use common::server::Server;

/// Memory in KiB that may stay after a peak and a rest.
const LEFT_KIB: u64 = 8 * 1024;
/// How long a server may take to give it back: the last transactions end after 64 × T1, and memory is collected at
/// intervals of up to 35 s.
const REST: Duration = Duration::from_secs(150);
/// Number of requests that a peak has.
const REQUESTS: usize = 60_000;

/// Returns the process's own memory in KiB: what is neither file-backed nor shared.
fn anonymous_kib(pid: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("our child");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("of each process");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn memory_of_a_peak_is_returned_after_a_rest() {
    let server = Server::start("store.mode = \"memory\"\ntimers.t1 = \"100ms\"\n");
    let pid = server.child.id();
    let phones: Vec<_> = (0..8).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port")).collect();
    let ask = |number: usize| {
        let phone = &phones[number % phones.len()];
        let local = phone.local_addr().expect("bound");
        let text = format!(
            "MESSAGE sip:nobody{number}@{} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK{number}\r\n\
             Max-Forwards: 70\r\nFrom: <sip:a@b>;tag={number}\r\nTo: <sip:x@y>\r\nCall-ID: {number}\r\n\
             CSeq: 1 MESSAGE\r\nX-Long: {}\r\nContent-Length: 0\r\n\r\n",
            server.address,
            "x".repeat(600)
        );
        phone.send_to(text.as_bytes(), server.address).expect("sent");
        phone.set_nonblocking(true).expect("settable");
        while phone.recv(&mut [0; 2048]).is_ok() {}
    };
    // The first requests allocate what a server in use always has.
    (0..100).for_each(ask);
    server.until("they are answered", || server.status()["counters"]["shards"]["requests"].as_u64() >= Some(100));
    let start = anonymous_kib(pid);
    let mut peak = start;
    for number in 100..REQUESTS {
        ask(number);
        if number % 500 == 0 {
            peak = peak.max(anonymous_kib(pid));
        }
    }
    peak = peak.max(anonymous_kib(pid));
    assert!(peak > start + 2 * LEFT_KIB, "no peak: {start} KiB, then {peak} KiB");
    let deadline = Instant::now() + REST;
    let mut rest = peak;
    while rest > start + LEFT_KIB && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(500));
        rest = anonymous_kib(pid);
    }
    println!("{start} KiB at the start, {peak} KiB at the peak, {rest} KiB after a rest");
    assert!(rest <= start + LEFT_KIB, "{start} KiB at the start, {peak} KiB at the peak, {rest} KiB after a rest");
}
