//! Real shards over loopback sockets.

mod support;

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket as Phone};
use std::sync::Arc;
use std::time::Duration;

use strowger_shard::Snapshot;
use strowger_worker::{Fleet, FleetConfig, WorkerOptions};
use support::{phone, receive, spin_until};

struct Server {
    fleet: Fleet,
    address: SocketAddr,
    snapshot: Arc<Snapshot>,
}

impl Server {
    fn start(workers: usize) -> Self {
        let sockets = support::sockets(workers, 1);
        let address = sockets[0][0].local_addr();
        let mut snapshot = support::snapshot(&sockets[0]);
        snapshot.auth.require.clear();
        // Transactions end during the test: after 64 times this.
        snapshot.timing.t1 = Duration::from_millis(5);
        let snapshot = Arc::new(snapshot);
        let options = WorkerOptions { min_workers: workers, ..WorkerOptions::default() };
        let config = FleetConfig { options, ..support::config(sockets, Arc::clone(&snapshot)) };
        Self { fleet: Fleet::start(config).expect("threads"), address, snapshot }
    }

    fn phone(&self) -> Phone {
        phone(self.address)
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

fn field<'a>(message: &'a str, name: &str) -> Option<&'a str> {
    message.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[test]
fn options_to_the_server_are_answered_by_any_worker() {
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
