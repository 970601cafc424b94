//! Fleets on loopback sockets, and their clients. The unit tests of the crate use this file too.

#![allow(dead_code, reason = "each test file uses a part")]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket as Phone};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use strowger_ban::BannedSources;
use strowger_directory::Directory;
use strowger_locate::{CachePolicy, NameCache};
use strowger_net::{BufferSizes, Clock, TcpListener, UdpSocket};
use strowger_registrar::Locations;
use strowger_shard::{Listener, Snapshot};
use strowger_worker::{FleetConfig, Socket, StreamLimits, WorkerOptions, shards_of};

/// Far more than any machine needs; bounds the time of a failing test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Opens a socket for datagrams.
pub(crate) fn bind() -> Socket {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    UdpSocket::bind(local, BufferSizes::DEFAULT).expect("loopback has a free port").into()
}

/// Opens a socket for connections.
pub(crate) fn listen() -> Socket {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("loopback has a free port").into()
}

/// Opens sockets for a number of workers and listeners for datagrams.
pub(crate) fn sockets(workers: usize, listeners: usize) -> Vec<Vec<Socket>> {
    with_siblings((0..listeners).map(|_| bind()).collect(), workers)
}

/// Returns the sockets of the first worker, and siblings of them for each other worker.
pub(crate) fn with_siblings(first: Vec<Socket>, workers: usize) -> Vec<Vec<Socket>> {
    let siblings = || first.iter().map(|socket| socket.sibling().expect("the address is ours")).collect();
    let others: Vec<Vec<_>> = (1..workers).map(|_| siblings()).collect();
    std::iter::once(first).chain(others).collect()
}

/// The configuration of a server for example.com, without users, on the sockets of one worker.
pub(crate) fn snapshot(sockets: &[Socket]) -> Snapshot {
    let listeners = sockets.iter().map(|socket| Listener::new(socket.transport(), socket.local_addr())).collect();
    Snapshot::new(listeners, vec![b"example.com".as_slice().into()], Directory::empty(1))
}

/// A fleet with default limits and without store, resolver and log.
pub(crate) fn config(sockets: Vec<Vec<Socket>>, snapshot: Arc<Snapshot>) -> FleetConfig {
    // Some tests have a number of workers that no fleet can have.
    let stripes = shards_of(sockets.len()).unwrap_or(1);
    FleetConfig {
        sockets,
        snapshot,
        seed: 1,
        key: [7; 16],
        clock: Clock::start(),
        events: sync_channel(1).0,
        streams: StreamLimits::default(),
        banned: Arc::new(BannedSources::new(1)),
        balancers: Vec::new(),
        names: Arc::new(NameCache::new(CachePolicy::default(), 1)),
        resolver: None,
        locations: Arc::new(Locations::new(stripes, 1)),
        record_sink: None,
        nonces: None,
        taken_over: None,
        tracer: Arc::default(),
        options: WorkerOptions::default(),
    }
}

/// Opens a client socket connected to `server`.
pub(crate) fn phone(server: SocketAddr) -> Phone {
    let phone = Phone::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    phone.connect(server).expect("a loopback address");
    phone.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
    phone
}

pub(crate) fn receive(phone: &Phone) -> String {
    let mut buffer = [0; 4096];
    let length = phone.recv(&mut buffer).expect("an answer in time");
    String::from_utf8(buffer[..length].to_vec()).expect("text")
}

/// Polls until the condition holds, for conditions without an event.
pub(crate) fn spin_until(is_done: impl FnMut() -> bool) {
    spin_for(DEADLINE, is_done);
}

/// Polls until the condition holds, for at most `patience`.
pub(crate) fn spin_for(patience: Duration, mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !is_done() {
        assert!(Instant::now() < deadline, "it does not happen");
        std::thread::yield_now();
    }
}
