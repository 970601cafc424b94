//! Records between shards, over loopback sockets, and a store controlled by the test.

mod support;

use std::net::{SocketAddr, UdpSocket as Phone};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use strowger_registrar::{Durability, Record};
use strowger_worker::{Fleet, FleetConfig, RecordBatch, RecordSink};
use support::DEADLINE;

/// Passes every batch to the test.
struct ChannelSink(Mutex<Sender<RecordBatch>>);

impl RecordSink for ChannelSink {
    fn store(&self, batch: RecordBatch) {
        self.0.lock().expect("sound").send(batch).expect("the test listens");
    }
}

struct Server {
    fleet: Fleet,
    address: SocketAddr,
    batches: Receiver<RecordBatch>,
}

impl Server {
    fn start(has_store: bool) -> Self {
        let sockets = support::sockets(2, 1);
        let address = sockets[0][0].local_addr();
        let mut snapshot = support::snapshot(&sockets[0]);
        snapshot.auth.require.clear();
        snapshot.registrar.durability = Durability::WriteThrough;
        let (give, batches) = channel();
        let sink: Arc<dyn RecordSink> = Arc::new(ChannelSink(Mutex::new(give)));
        let record_sink = has_store.then_some(sink);
        let config = FleetConfig { record_sink, ..support::config(sockets, Arc::new(snapshot)) };
        Self { fleet: Fleet::start(config).expect("threads"), address, batches }
    }

    fn phone(&self) -> Phone {
        support::phone(self.address)
    }

    fn batch(&self) -> RecordBatch {
        self.batches.recv_timeout(DEADLINE).expect("a batch in time")
    }
}

fn register(phone: &Phone, user: usize) {
    let local = phone.local_addr().expect("bound");
    let text = format!(
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bKr{user};rport\r\n\
         To: <sip:u{user}@example.com>\r\nFrom: <sip:u{user}@example.com>;tag=1\r\nCall-ID: r{user}\r\n\
         CSeq: 1 REGISTER\r\nMax-Forwards: 70\r\nContact: <sip:u{user}@{local}>\r\nContent-Length: 0\r\n\r\n"
    );
    phone.send(text.as_bytes()).expect("loopback takes it");
}

fn status(phone: &Phone) -> String {
    let mut buffer = [0; 4096];
    let length = phone.recv(&mut buffer).expect("an answer in time");
    String::from_utf8_lossy(&buffer[8..length.min(11)]).into_owned()
}

/// Returns the addresses of record of a batch.
fn addresses(batch: &RecordBatch) -> Vec<String> {
    let aor = |bytes: &[u8]| String::from_utf8_lossy(Record::parse(bytes).expect("a record").aor()).into_owned();
    batch.records().map(aor).collect()
}

#[test]
fn a_200_follows_a_successful_store_and_a_503_a_failed_one() {
    const USERS: usize = 100;
    let server = Server::start(true);
    let phone = server.phone();
    (0..USERS).for_each(|user| register(&phone, user));
    let mut batches = Vec::new();
    while batches.iter().map(RecordBatch::len).sum::<usize>() < USERS {
        batches.push(server.batch());
    }
    assert!(server.fleet.locations().is_empty(), "nothing is seen before it is kept");
    // A dropped batch was not stored.
    let lost = batches.pop().expect("some");
    let refused = lost.len();
    drop(lost);
    batches.into_iter().for_each(|batch| batch.acknowledge(true));
    let mut answers: Vec<_> = (0..USERS).map(|_| status(&phone)).collect();
    answers.sort_unstable();
    let kept = answers.iter().filter(|status| *status == "200").count();
    assert_eq!((kept, answers.iter().filter(|status| *status == "503").count()), (USERS - refused, refused));
    assert_eq!(server.fleet.locations().len(), kept);
    server.fleet.locations().check_invariants();
}

#[test]
fn a_forgotten_user_is_removed_at_once_and_from_store() {
    let server = Server::start(true);
    let phone = server.phone();
    register(&phone, 1);
    server.batch().acknowledge(true);
    assert_eq!(status(&phone), "200");
    server.fleet.forget(b"u1@example.com");
    let batch = server.batch();
    assert_eq!(addresses(&batch), ["u1@example.com"]);
    assert!(batch.records().all(|bytes| Record::parse(bytes).is_ok_and(|record| record.is_removal())));
    assert!(server.fleet.locations().is_empty());
}

#[test]
fn without_a_store_register_gets_503() {
    let server = Server::start(false);
    let phone = server.phone();
    register(&phone, 1);
    assert_eq!(status(&phone), "503");
    assert!(server.fleet.locations().is_empty());
}
