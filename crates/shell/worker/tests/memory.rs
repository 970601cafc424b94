//! User memory of thousands of connections: idle ones, and ones with messages that never complete.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream as Line};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use strowger_allocations::{Counting, live_of_all};
use strowger_directory::Directory;
use strowger_locate::{CachePolicy, NameCache};
use strowger_net::{Clock, TcpListener, raise_open_files};
use strowger_shard::{Listener, Snapshot};
use strowger_worker::{Fleet, FleetConfig, Socket, StreamLimits, WorkerOptions};

const DEADLINE: Duration = Duration::from_secs(60);

/// Maximum bytes per idle connection, excluding the phone's binding.
const BUDGET: usize = 400;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Starts a server and waits until all workers are running.
fn start(connections: usize) -> (Fleet, SocketAddr) {
    let first: Socket =
        TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("loopback has a free port").into();
    let address = first.local_addr();
    let listeners = vec![Listener::new(first.transport(), address)];
    let second = first.sibling().expect("the address is ours");
    let snapshot = Snapshot::new(listeners, vec![b"example.com".as_slice().into()], Directory::empty(1));
    let (events, _) = sync_channel(16);
    let snapshot = Arc::new(snapshot);
    let config = FleetConfig {
        sockets: vec![vec![first], vec![second]],
        snapshot: Arc::clone(&snapshot),
        seed: 1,
        key: [7; 16],
        clock: Clock::start(),
        events,
        streams: StreamLimits { connections, per_source: connections, ..StreamLimits::default() },
        names: Arc::new(NameCache::new(CachePolicy::default(), 1)),
        resolver: None,
        locations: Arc::new(strowger_registrar::Locations::new(32, 1)),
        record_sink: None,
        nonces: None,
        tracer: Arc::default(),
        options: WorkerOptions::default(),
    };
    let fleet = Fleet::start(config).expect("threads");
    // Memory that a worker allocates for its shards must not be counted with the connections.
    fleet.publish(snapshot);
    spin_until(|| fleet.is_idle());
    (fleet, address)
}

fn spin_until(mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_done() {
        assert!(Instant::now() < deadline, "it does not happen");
        std::thread::yield_now();
    }
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
    let before = live_of_all();
    for half in [first, second] {
        let wanted = fleet.status().total.streams.bytes_in as usize + count * half.len();
        lines.iter_mut().for_each(|line| line.write_all(half).expect("loopback takes it"));
        spin_until(|| fleet.status().total.streams.bytes_in as usize >= wanted);
    }
    let each = live_of_all().saturating_sub(before) / count;
    println!("{count} connections that had {} B and have one byte: {each} B more each", message.len());
    assert!(each <= 64, "{each} B");
}

#[test]
fn an_idle_connection_costs_little_and_an_unfinished_message_its_bytes() {
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
    let before = live_of_all();
    for _ in 0..count {
        let mut line = line();
        ping(&mut line);
        lines.push(line);
    }
    spin_until(|| fleet.status().total.connections == count + 1);
    let each = (live_of_all() - before) / count;
    println!("{count} idle connections: {each} B of user memory each");
    assert!(each <= BUDGET, "{each} B");

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
