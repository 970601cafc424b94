//! Real shards over loopback sockets.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket as Phone};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use strowger_directory::Directory;
use strowger_foundation::Transport;
use strowger_locate::{CachePolicy, NameCache};
use strowger_net::{BufferSizes, Clock, UdpSocket};
use strowger_shard::{Listener, Snapshot};
use strowger_worker::{Fleet, FleetConfig, Socket, StreamLimits, WorkerOptions};

const DEADLINE: Duration = Duration::from_secs(20);

struct Server {
    fleet: Fleet,
    address: SocketAddr,
    snapshot: Arc<Snapshot>,
}

impl Server {
    fn start(workers: usize) -> Self {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let first: Socket = UdpSocket::bind(local, BufferSizes::DEFAULT).expect("loopback has a free port").into();
        let address = first.local_addr();
        let others: Vec<_> = (1..workers).map(|_| vec![first.sibling().expect("the address is ours")]).collect();
        let sockets: Vec<_> = std::iter::once(vec![first]).chain(others).collect();
        let listeners = vec![Listener::new(Transport::Udp, address)];
        let mut snapshot = Snapshot::new(listeners, vec![b"example.com".as_slice().into()], Directory::empty(1));
        snapshot.auth.require.clear();
        // Transactions end during the test: after 64 times this.
        snapshot.timing.t1 = Duration::from_millis(5);
        let snapshot = Arc::new(snapshot);
        let (events, _) = sync_channel(16);
        let shards = strowger_worker::shards_of(sockets.len()).expect("few");
        let config = FleetConfig {
            sockets,
            snapshot: Arc::clone(&snapshot),
            seed: 1,
            key: [7; 16],
            clock: Clock::start(),
            events,
            streams: StreamLimits::default(),
            names: Arc::new(NameCache::new(CachePolicy::default(), 1)),
            resolver: None,
            locations: Arc::new(strowger_registrar::Locations::new(shards, 1)),
            record_sink: None,
            nonces: None,
            tracer: Arc::default(),
            options: WorkerOptions { min_workers: workers, ..WorkerOptions::default() },
        };
        Self { fleet: Fleet::start(config).expect("threads"), address, snapshot }
    }

    fn phone(&self) -> Phone {
        let phone = Phone::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        phone.connect(self.address).expect("a loopback address");
        phone.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
        phone
    }
}

fn request(phone: &Phone, method: &str, uri: &str, call_id: &str, more: &str) -> Vec<u8> {
    let local = phone.local_addr().expect("bound");
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK{call_id};rport\r\nTo: <sip:bob@example.com>\r\n\
         From: <sip:bob@example.com>;tag=1\r\nCall-ID: {call_id}\r\nCSeq: 1 {method}\r\nMax-Forwards: 70\r\n{more}\
         Content-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

fn receive(phone: &Phone) -> String {
    let mut buffer = [0; 4096];
    let length = phone.recv(&mut buffer).expect("an answer in time");
    String::from_utf8(buffer[..length].to_vec()).expect("text")
}

fn field<'a>(message: &'a str, name: &str) -> Option<&'a str> {
    message.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn spin_until(mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_done() {
        assert!(Instant::now() < deadline, "it does not happen");
        std::thread::yield_now();
    }
}

#[test]
fn options_to_the_server_are_answered_whichever_worker_has_the_shard() {
    for workers in [1, 3] {
        let server = Server::start(workers);
        let phone = server.phone();
        let uri = format!("sip:{}", server.address);
        let mut awaited = HashSet::new();
        for batch in 0..5 {
            for number in 0..40 {
                let call_id = format!("c{batch}n{number}");
                phone.send(&request(&phone, "OPTIONS", &uri, &call_id, "")).expect("loopback takes it");
                awaited.insert(call_id);
            }
            while !awaited.is_empty() {
                let answer = receive(&phone);
                assert!(answer.starts_with("SIP/2.0 200 "), "{answer}");
                let call_id = field(&answer, "Call-ID").expect("every answer has one");
                assert!(awaited.remove(call_id), "{call_id} was not awaited");
            }
        }
        spin_until(|| server.fleet.status().total.net.sent == 200);
        let total = server.fleet.status().total;
        assert_eq!((total.shard.requests, total.net.received), (200, 200));
        assert_eq!(total.worker.handover_sent > 0, workers > 1);
        assert_eq!((total.worker.handover_drops, total.worker.panics), (0, 0));
    }
}

#[test]
fn a_registration_is_seen_and_a_draining_fleet_becomes_idle() {
    let server = Server::start(2);
    let phone = server.phone();
    let contact = format!("Contact: <sip:bob@{}>\r\n", phone.local_addr().expect("bound"));
    let register = request(&phone, "REGISTER", "sip:example.com", "r1", &contact);
    phone.send(&register).expect("loopback takes it");
    let answer = receive(&phone);
    assert!(answer.starts_with("SIP/2.0 200 "), "{answer}");
    assert_eq!((server.fleet.status().registrations, server.fleet.locations().len()), (1, 1));
    // Its transactions end by their timers, and no new one may start.
    let draining = Snapshot { is_draining: true, ..Snapshot::clone(&server.snapshot) };
    server.fleet.publish(Arc::new(draining));
    spin_until(|| server.fleet.is_idle());
    let uri = format!("sip:nobody@{}", server.address);
    phone.send(&request(&phone, "INVITE", &uri, "i1", "Contact: <sip:bob@127.0.0.1>\r\n")).expect("loopback takes it");
    let answer = receive(&phone);
    assert!(answer.starts_with("SIP/2.0 503 "), "{answer}");
    assert!(server.fleet.is_idle());
    assert_eq!(server.fleet.status().registrations, 1, "draining forgets nobody");
}
