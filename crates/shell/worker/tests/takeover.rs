//! A fleet hands over to another one, as between two processes.

mod support;

use std::net::{SocketAddr, UdpSocket as Phone};
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use strowger_net::{BufferSizes, Clock, UdpSocket};
use strowger_shard::Snapshot;
use strowger_worker::{
    Fleet, FleetConfig, FleetHandover, Predecessor, Predecessors, ProcessLink, RelayInlet, RelayKind, RelayedMessage,
    Socket, TakenOver,
};
use support::{phone, receive};

const LIMIT: Duration = Duration::from_secs(10);

/// A relay within this process, which remembers what it has passed.
#[derive(Debug)]
struct Link {
    inlet: RelayInlet,
    passed: Mutex<Vec<RelayKind>>,
}

impl Link {
    fn to(fleet: &Fleet) -> Arc<Self> {
        Arc::new(Self { inlet: fleet.relay_inlet(), passed: Mutex::default() })
    }

    fn passed(&self) -> usize {
        self.passed.lock().expect("nobody panics").len()
    }
}

impl ProcessLink for Link {
    fn relay(&self, kind: RelayKind, message: RelayedMessage<'_>) -> bool {
        // First, since the answer may come before this returns.
        self.passed.lock().expect("nobody panics").push(kind);
        self.inlet.pass(kind, message);
        true
    }
}

struct Server {
    clock: Clock,
    snapshot: Arc<Snapshot>,
    address: SocketAddr,
}

impl Server {
    fn start(workers: usize) -> (Self, Fleet) {
        let sockets = support::sockets(workers, 1);
        let address = sockets[0][0].local_addr();
        let mut snapshot = support::snapshot(&sockets[0]);
        snapshot.auth.require.clear();
        let server = Self { clock: Clock::start(), snapshot: Arc::new(snapshot), address };
        let fleet = Fleet::start(server.config(sockets)).expect("threads");
        (server, fleet)
    }

    fn config(&self, sockets: Vec<Vec<Socket>>) -> FleetConfig {
        FleetConfig { clock: self.clock, ..support::config(sockets, Arc::clone(&self.snapshot)) }
    }

    /// Starts the fleet that takes over, frozen.
    fn successor(&self, handover: FleetHandover, before: &Arc<Link>) -> Fleet {
        let adopt =
            |descriptor, drops| UdpSocket::take_over(descriptor, drops, BufferSizes::DEFAULT).expect("a socket");
        let mut predecessors = Predecessors::default();
        let link = Arc::clone(before) as Arc<dyn ProcessLink>;
        predecessors.add(Predecessor { process: 0, link }, handover.keys.into_iter());
        let (mut sockets, mut new_work) = (Vec::new(), Vec::new());
        for of_worker in handover.sockets {
            let (mut own, mut second) = (Vec::new(), Vec::new());
            for one in of_worker {
                own.push(Socket::from(adopt(one.socket.expect("for datagrams"), one.drops[0])));
                second.push(one.new_work.map(|descriptor| adopt(descriptor, one.drops[1])));
            }
            sockets.push(own);
            new_work.push(second);
        }
        let taken_over = Some(TakenOver { process: 1, new_work, predecessors: Arc::new(predecessors), source_seed: 1 });
        let config = FleetConfig { taken_over, seed: 2, ..self.config(sockets) };
        Fleet::start(config).expect("threads")
    }

    /// Sends a REGISTER, whose transaction stays after the answer.
    fn register(&self, phone: &Phone, call_id: &str) {
        let local = phone.local_addr().expect("bound");
        let text = format!(
            "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK{call_id};rport\r\n\
             To: <sip:{call_id}@example.com>\r\nFrom: <sip:{call_id}@example.com>;tag=1\r\nCall-ID: {call_id}\r\n\
             CSeq: 1 REGISTER\r\nContact: <sip:{call_id}@{local}>\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
        );
        phone.send(text.as_bytes()).expect("loopback takes it");
    }
}

#[test]
fn a_frozen_fleet_leaves_datagrams_in_the_sockets_and_answers_them_afterwards() {
    for workers in [1, 3] {
        let (server, fleet) = Server::start(workers);
        let phones: Vec<Phone> = (0..8).map(|_| phone(server.address)).collect();
        fleet.freeze(LIMIT, || {}).expect("nothing is left");
        for (number, phone) in phones.iter().enumerate() {
            server.register(phone, &format!("waits{number}"));
            phone.set_read_timeout(Some(Duration::from_millis(10))).expect("settable");
            assert!(phone.recv(&mut [0; 100]).is_err(), "nobody reads");
            phone.set_read_timeout(Some(support::DEADLINE)).expect("settable");
        }
        fleet.thaw();
        for (number, phone) in phones.iter().enumerate() {
            assert!(receive(phone).contains(&format!("Call-ID: waits{number}\r\n")));
        }
    }
}

#[test]
fn what_waits_is_answered_by_the_next_fleet_and_repetitions_by_the_one_before() {
    for workers in [1, 3] {
        let (server, fleet) = Server::start(workers);
        let phones: Vec<Phone> = (0..8).map(|_| phone(server.address)).collect();
        let mut answers = Vec::new();
        for (number, phone) in phones.iter().enumerate() {
            server.register(phone, &format!("before{number}"));
            answers.push(receive(phone));
        }
        fleet.freeze(LIMIT, || {}).expect("nothing is left");
        phones.iter().enumerate().for_each(|(number, phone)| server.register(phone, &format!("between{number}")));
        let handover = fleet.hand_over(LIMIT).expect("descriptors are left");
        assert_eq!(handover.keys.len(), phones.len());
        let back = Link::to(&fleet);
        let next = server.successor(handover, &back);
        let forth: Arc<dyn ProcessLink> = Link::to(&next);
        fleet.release(&forth, false);
        next.thaw();
        for (number, phone) in phones.iter().enumerate() {
            assert!(receive(phone).contains(&format!("Call-ID: between{number}\r\n")));
        }
        assert_eq!(back.passed(), 0, "these are new");
        // An answer is repeated to the byte.
        for (number, phone) in phones.iter().enumerate() {
            server.register(phone, &format!("before{number}"));
            assert_eq!(receive(phone), answers[number]);
        }
        assert_eq!(back.passed(), phones.len());
        next.set_predecessors(None);
        server.register(&phones[0], "before0");
        receive(&phones[0]);
        assert_eq!(back.passed(), phones.len(), "whose process has ended is this one's");
        drop(fleet);
        server.register(&phones[0], "after");
        assert!(receive(&phones[0]).contains("Call-ID: after\r\n"), "the sockets are the next fleet's");
    }
}
