//! User memory of thousands of connections: idle ones, and ones with messages that never complete.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream as Line};
use std::sync::Arc;
use std::time::Duration;

use strowger_allocations::{CountingAllocator, live_of_all, live_of_all_after};
use strowger_net::raise_open_files;
use strowger_worker::{Fleet, FleetConfig, StreamLimits};

const DEADLINE: Duration = Duration::from_secs(60);

/// Maximum bytes per idle connection, excluding the phone's binding.
const BUDGET: usize = 400;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Starts a server and waits until all workers are running.
fn start(connections: usize) -> (Fleet, SocketAddr) {
    let sockets = support::with_siblings(vec![support::listen()], 2);
    let address = sockets[0][0].local_addr();
    let snapshot = Arc::new(support::snapshot(&sockets[0]));
    let streams = StreamLimits { connections, per_source: connections, ..StreamLimits::default() };
    let config = FleetConfig { streams, ..support::config(sockets, Arc::clone(&snapshot)) };
    let fleet = Fleet::start(config).expect("threads");
    // Memory that a worker allocates for its shards must not be counted with the connections.
    fleet.publish(snapshot);
    spin_until(|| fleet.is_idle());
    (fleet, address)
}

fn spin_until(is_done: impl FnMut() -> bool) {
    support::spin_for(DEADLINE, is_done);
}

fn ping(line: &mut Line) {
    line.write_all(b"\r\n\r\n").expect("loopback takes it");
    let mut pong = [0; 2];
    line.read_exact(&mut pong).expect("a pong");
    assert_eq!(&pong, b"\r\n");
}

/// Sends large messages in two pieces, each followed by the first byte of the next: only that byte remains.
fn hoard(fleet: &Fleet, lines: &mut [Line]) {
    let count = lines.len().min(500);
    let lines = &mut lines[..count];
    // A response without a request leaves no state.
    let stray = b"SIP/2.0 200 OK\r\nVia: SIP/2.0/TCP x;branch=z9hG4bKx\r\nCall-ID: x\r\nl: 50000\r\n\r\n";
    let message = [stray.as_slice(), &[b'x'; 50_000], b"O"].concat();
    let (first, second) = message.split_at(40_000);
    let ((), bytes) = live_of_all_after(|| {
        for half in [first, second] {
            let wanted = fleet.status().total.streams.bytes_in as usize + count * half.len();
            lines.iter_mut().for_each(|line| line.write_all(half).expect("loopback takes it"));
            spin_until(|| fleet.status().total.streams.bytes_in as usize >= wanted);
        }
    });
    let each = bytes / count;
    println!("{count} connections that had {} B and have one byte: {each} B more each", message.len());
    assert!(each <= 64, "{each} B");
}

#[test]
fn an_idle_connection_is_cheap_and_a_partial_message_costs_its_bytes() {
    let files = raise_open_files().expect("a limit");
    // Both ends belong to this process.
    let count = usize::try_from(files.saturating_sub(512) / 2).expect("a number").min(15_000);
    let (fleet, address) = start(20_000);
    let mut lines: Vec<Line> = Vec::with_capacity(count + 1);
    let line = || {
        let line = Line::connect(address).expect("it listens");
        line.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
        line
    };
    // One in advance, so that one-time allocations are done.
    lines.push(line());
    ping(&mut lines[0]);
    let ((), bytes) = live_of_all_after(|| {
        for _ in 0..count {
            let mut line = line();
            ping(&mut line);
            lines.push(line);
        }
        spin_until(|| fleet.status().total.connections == count + 1);
    });
    let each = bytes / count;
    println!("{count} idle connections: {each} B of user memory each");
    assert!((1..=BUDGET).contains(&each), "{each} B");

    // One third start a message and continue byte by byte; another third declare a body that never comes.
    let third = count / 3;
    let before = live_of_all();
    let head = b"INVITE sip:a@example.com SIP/2.0\r\nVia: SIP/2.0/TCP x;branch=z9hG4bKx\r\nCall-ID: x\r\n";
    for line in &mut lines[1..=third] {
        line.write_all(head).expect("loopback takes it");
    }
    let mut sent = third * head.len();
    let pings = 4 * (count + 1);
    for byte in b"From: <sip" {
        for line in &mut lines[1..=third] {
            line.write_all(&[*byte]).expect("loopback takes it");
        }
        sent += third;
        ping(&mut lines[0]);
    }
    spin_until(|| fleet.status().total.streams.bytes_in as usize >= pings + sent);
    let each = live_of_all().saturating_sub(before) / third;
    println!("{third} unfinished messages of {} B: {each} B more each", head.len() + 10);
    assert!(each <= 4 * head.len(), "{each} B");
    for line in &mut lines[third + 1..=2 * third] {
        line.write_all(b"INVITE sip:a@b SIP/2.0\r\nl: 67108864\r\n\r\nabc").expect("loopback takes it");
    }
    spin_until(|| fleet.status().total.streams.closed_malformed as usize == third);
    ping(&mut lines[0]);
    hoard(&fleet, &mut lines[2 * third + 1..]);
    lines.clear();
    spin_until(|| fleet.status().total.connections == 0);
    let left = live_of_all().saturating_sub(before);
    println!("after the last one was closed: {left} B more than before the unfinished messages");
    assert!(left <= 1024 * 1024);
}
