//! Tests of the event loop over loopback sockets, with scripted shards.

mod allocations;
mod fleet;
mod framing;
mod migration;
mod overload;
mod scripted_shard;
mod single;
mod streams;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket as Phone};
use std::sync::Arc;
use std::time::{Duration, Instant};

use strowger_locate::{CachePolicy, NameCache, Outages};
use strowger_net::{BufferSizes, TcpListener, UdpSocket};
use strowger_registrar::Locations;
use strowger_shard::{Listener, Snapshot};

use crate::Socket;
use crate::shard_factory::SharedTables;

/// Far more than any machine needs; bounds the time of a failing test.
const DEADLINE: Duration = Duration::from_secs(20);

fn bind() -> Socket {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    UdpSocket::bind(local, BufferSizes::DEFAULT).expect("loopback has a free port").into()
}

/// Opens sockets for a number of workers and listeners.
fn sockets(workers: usize, listeners: usize) -> Vec<Vec<Socket>> {
    let first: Vec<_> = (0..listeners).map(|_| bind()).collect();
    let siblings = || first.iter().map(|socket| socket.sibling().expect("the address is ours")).collect();
    let others: Vec<Vec<_>> = (1..workers).map(|_| siblings()).collect();
    std::iter::once(first).chain(others).collect()
}

/// Opens sockets for a number of workers: listener 0 for datagrams, listener 1 for connections.
fn sockets_and_listener(workers: usize) -> Vec<Vec<Socket>> {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let first = [bind(), TcpListener::bind(local).expect("loopback has a free port").into()];
    let siblings = || first.iter().map(|socket| socket.sibling().expect("the address is ours")).collect();
    let others: Vec<Vec<_>> = (1..workers).map(|_| siblings()).collect();
    std::iter::once(first.into()).chain(others).collect()
}

fn snapshot(sockets: &[Socket]) -> Arc<Snapshot> {
    let listeners = sockets.iter().map(|socket| Listener::new(socket.transport(), socket.local_addr())).collect();
    let directory = strowger_directory::Directory::empty(1);
    Arc::new(Snapshot::new(listeners, vec![b"example.com".as_slice().into()], directory))
}

fn names() -> Arc<NameCache> {
    Arc::new(NameCache::new(CachePolicy::default(), 1))
}

fn tables() -> SharedTables {
    SharedTables { locations: Arc::new(Locations::new(1, 1)), outages: Arc::new(Outages::new(1)) }
}

/// Opens a client socket connected to `server`.
fn phone(server: SocketAddr) -> Phone {
    let phone = Phone::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    phone.connect(server).expect("a loopback address");
    phone.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
    phone
}

fn receive(phone: &Phone) -> String {
    let mut buffer = [0; 2048];
    let length = phone.recv(&mut buffer).expect("an answer in time");
    String::from_utf8(buffer[..length].to_vec()).expect("text")
}

fn options(call_id: &str) -> Vec<u8> {
    format!(
        "OPTIONS sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:5060;branch=z9hG4bK{call_id}\r\n\
         To: <sip:example.com>\r\nFrom: <sip:a@example.com>;tag=1\r\nCall-ID: {call_id}\r\nCSeq: 1 OPTIONS\r\n\
         Max-Forwards: 70\r\nAuthorization: secret\r\nContent-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

/// Sends a request and returns the response.
fn ask(phone: &Phone, call_id: &str) -> String {
    phone.send(&options(call_id)).expect("loopback takes it");
    receive(phone)
}

/// Polls until the condition holds, for conditions without an event.
fn spin_until(is_done: impl FnMut() -> bool) {
    spin_for(DEADLINE, is_done);
}

/// Polls until the condition holds, for at most `patience`.
fn spin_for(patience: Duration, mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !is_done() {
        assert!(Instant::now() < deadline, "it does not happen");
        std::thread::yield_now();
    }
}
