//! Memory of secure connections: idle ones, and after ten thousand handshakes of nonsense.

mod support;

#[path = "support/line.rs"]
mod line;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use line::Line;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use strowger_allocations::{CountingAllocator, live_of_all, live_of_all_after};
use strowger_locate::SplitMix64;
use strowger_net::{StreamSocket, raise_open_files};
use strowger_worker::{Fleet, FleetConfig, StreamLimits};

const DEADLINE: Duration = Duration::from_secs(120);

/// Maximum bytes of user memory per idle secure connection of both ends, of which the server has half.
const BUDGET: usize = 24_000;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn start() -> (Fleet, SocketAddr) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = StreamSocket::bind_tls(address, line::context()).expect("a free port");
    let sockets = support::with_siblings(vec![listener.into()], 2);
    let address = sockets[0][0].local_addr();
    let snapshot = Arc::new(support::snapshot(&sockets[0]));
    let all = 20_000;
    let streams = StreamLimits {
        connections: all,
        per_source: all,
        handshakes: all,
        handshakes_per_source: all,
        ..StreamLimits::default()
    };
    let config = FleetConfig { streams, ..support::config(sockets, Arc::clone(&snapshot)) };
    let fleet = Fleet::start(config).expect("threads");
    fleet.publish(snapshot);
    support::spin_for(DEADLINE, || fleet.is_idle());
    (fleet, address)
}

/// One after the other, because memory is counted for the whole process.
#[test]
fn memory_of_secure_connections_is_bounded() {
    an_idle_secure_connection_is_cheap();
    ten_thousand_malformed_handshakes_leave_nothing();
}

/// The first message of a handshake.
fn client_hello() -> Vec<u8> {
    let name = ServerName::try_from("example.com").expect("a name");
    let mut client = ClientConnection::new(Arc::new(line::client_config(None)), name).expect("a session");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("memory");
    bytes
}

fn ping(line: &mut Line) {
    line.write_all(b"\r\n\r\n").expect("loopback takes it");
    let mut pong = [0; 2];
    line.read_exact(&mut pong).expect("a pong");
    assert_eq!(&pong, b"\r\n");
}

fn ten_thousand_malformed_handshakes_leave_nothing() {
    raise_open_files().expect("a limit");
    let (fleet, address) = start();
    let hello = client_hello();
    let mut random = SplitMix64(7);
    let mut malformed = |count: usize| {
        for number in 0..count {
            let mut bytes = hello.clone();
            match number % 4 {
                0 => bytes.iter_mut().for_each(|byte| *byte = random.below(256) as u8),
                1 => bytes.truncate(random.below(bytes.len() as u64) as usize),
                // Behind the header of the record, so that it is read as one.
                _ => (0..=random.below(8)).for_each(|_| {
                    let at = 5 + random.below(bytes.len() as u64 - 5) as usize;
                    bytes[at] ^= 1 << random.below(8);
                }),
            }
            let mut stream = TcpStream::connect(address).expect("it listens");
            // The server may have closed it already.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read(&mut [0; 512]);
        }
    };
    let is_empty = |count: u64| {
        support::spin_for(DEADLINE, || {
            let total = fleet.status().total;
            total.connections == 0 && total.streams.accepted == count
        });
    };
    // The first ones fill caches and buffers.
    malformed(1000);
    is_empty(1000);
    let before = live_of_all();
    malformed(9000);
    is_empty(10_000);
    let left = live_of_all().saturating_sub(before);
    println!("after 9000 malformed handshakes: {left} B more");
    assert!(left < 64 * 1024, "{left} B");
    let status = fleet.status();
    assert_eq!((status.total.worker.panics, status.last_panic.is_some()), (0, false));
    assert_eq!(status.total.streams.tls_failures + status.total.streams.tls_timeouts, 10_000);
    let mut line = Line::connect(address, true).expect("it listens");
    ping(&mut line);
}

fn an_idle_secure_connection_is_cheap() {
    raise_open_files().expect("a limit");
    let (fleet, address) = start();
    let mut lines = vec![Line::connect(address, true).expect("it listens")];
    lines.iter_mut().for_each(ping);
    let count = 500;
    let ((), bytes) = live_of_all_after(|| {
        lines.extend((0..count).map(|_| Line::connect(address, true).expect("it listens")));
        lines.iter_mut().for_each(ping);
        support::spin_for(DEADLINE, || fleet.status().total.connections == count + 1);
    });
    let each = bytes / count;
    println!("{count} idle secure connections: {each} B of user memory each, of both ends");
    assert!((1..=BUDGET).contains(&each), "{each} B");
    drop(lines);
    support::spin_for(DEADLINE, || fleet.status().total.connections == 0);
}
