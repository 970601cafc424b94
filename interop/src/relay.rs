//! A lossy network between a client and the server.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Interval at which a thread checks whether to end.
const TICK: Duration = Duration::from_millis(20);

/// A UDP relay that drops a share of the datagrams in each direction.
///
/// As behind a NAT, the server sees every client at an address of the relay. Whether a datagram is dropped depends
/// only on the seed and on its position in its direction.
#[derive(Debug)]
pub struct LossyRelay {
    address: SocketAddr,
    shared: Arc<Shared>,
    front: Option<JoinHandle<()>>,
}

/// Counts of one direction of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Datagrams forwarded.
    pub passed: u32,
    /// Datagrams dropped.
    pub lost: u32,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    over: AtomicBool,
    to_server: Direction,
    to_client: Direction,
}

#[derive(Debug)]
struct Direction {
    random: Mutex<u64>,
    loss_percent: u64,
    passed: AtomicU32,
    lost: AtomicU32,
}

impl LossyRelay {
    /// Starts a relay to `server` that drops `loss_percent` of the datagrams in each direction.
    ///
    /// # Panics
    /// If no socket can be opened.
    #[must_use]
    pub fn start(server: SocketAddr, loss_percent: u8, seed: u64) -> LossyRelay {
        println!("the relay's seed is {seed}");
        let front = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let address = front.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            server,
            over: AtomicBool::new(false),
            to_server: Direction::new(seed, loss_percent),
            to_client: Direction::new(!seed, loss_percent),
        });
        let in_thread = Arc::clone(&shared);
        let front = Some(thread::spawn(move || relay_to_server(&front, &in_thread)));
        LossyRelay { address, shared, front }
    }

    /// Returns the address to which clients send.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counts from clients to the server.
    #[must_use]
    pub fn to_server(&self) -> Traffic {
        self.shared.to_server.traffic()
    }

    /// Returns the counts from the server to clients.
    #[must_use]
    pub fn to_client(&self) -> Traffic {
        self.shared.to_client.traffic()
    }
}

impl Drop for LossyRelay {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(front) = self.front.take() {
            // The thread's panic has already been printed. A second one here would abort the test run.
            let _ = front.join();
        }
    }
}

impl Direction {
    fn new(seed: u64, loss_percent: u8) -> Direction {
        let (passed, lost) = (AtomicU32::new(0), AtomicU32::new(0));
        Direction { random: Mutex::new(seed), loss_percent: loss_percent.into(), passed, lost }
    }

    fn loses_the_next(&self) -> bool {
        let mut state = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = split_mix(&mut state) % 100 < self.loss_percent;
        let counter = if lost { &self.lost } else { &self.passed };
        counter.fetch_add(1, Ordering::Relaxed);
        lost
    }

    fn traffic(&self) -> Traffic {
        let (passed, lost) = (self.passed.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed));
        Traffic { passed, lost }
    }
}

/// Relays datagrams to the server, with a separate upstream socket for each client. Joins the threads of these
/// sockets at its end.
fn relay_to_server(front: &UdpSocket, shared: &Arc<Shared>) {
    let mut clients: HashMap<SocketAddr, UdpSocket> = HashMap::new();
    let mut ways_back = Vec::new();
    receive_until_over(front, shared, |datagram, client| {
        let upstream = clients.entry(client).or_insert_with(|| {
            let upstream = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
            let back = upstream.try_clone().expect("a socket can be shared");
            let front = front.try_clone().expect("a socket can be shared");
            let shared = Arc::clone(shared);
            ways_back.push(thread::spawn(move || relay_to_client(&back, &front, client, &shared)));
            upstream
        });
        if !shared.to_server.loses_the_next() {
            // The network does not care whether the server is gone.
            let _ = upstream.send_to(datagram, shared.server);
        }
    });
    for way_back in ways_back {
        let _ = way_back.join();
    }
}

fn relay_to_client(upstream: &UdpSocket, front: &UdpSocket, client: SocketAddr, shared: &Shared) {
    receive_until_over(upstream, shared, |datagram, _| {
        if !shared.to_client.loses_the_next() {
            let _ = front.send_to(datagram, client);
        }
    });
}

fn receive_until_over(socket: &UdpSocket, shared: &Shared, mut handle: impl FnMut(&[u8], SocketAddr)) {
    socket.set_read_timeout(Some(TICK)).expect("a time-out can be set");
    let mut buffer = vec![0; 65_536];
    while !shared.over.load(Ordering::Relaxed) {
        // Errors are the timeout, or an ICMP error for an earlier datagram.
        if let Ok((length, source)) = socket.recv_from(&mut buffer) {
            handle(&buffer[..length], source);
        }
    }
}

/// SplitMix64, which works with any seed.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Direction, LossyRelay};
    use std::net::UdpSocket;

    #[test]
    fn losses_follow_the_seed() {
        let lost = |seed| {
            let direction = Direction::new(seed, 10);
            (0..1000).map(|_| direction.loses_the_next()).collect::<Vec<_>>()
        };
        assert_eq!(lost(1), lost(1));
        assert_ne!(lost(1), lost(2));
        let count = lost(1).into_iter().filter(|&lost| lost).count();
        assert!((70..130).contains(&count), "{count} of 1000 lost");
    }

    #[test]
    fn answers_find_their_client() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let relay = LossyRelay::start(server.local_addr().expect("an address"), 0, 1);
        let clients = [(), ()].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        let mut buffer = [0; 16];
        for (client, text) in clients.iter().zip([b"one", b"two"]) {
            client.send_to(text, relay.address()).expect("sent");
            let (length, source) = server.recv_from(&mut buffer).expect("received");
            assert_eq!(&buffer[..length], text);
            assert_ne!(source, client.local_addr().expect("an address"));
            server.send_to(text, source).expect("sent");
            let (length, source) = client.recv_from(&mut buffer).expect("received");
            assert_eq!((&buffer[..length], source), (&text[..], relay.address()));
        }
        assert_eq!((relay.to_server().passed, relay.to_client().passed), (2, 2));
    }
}
