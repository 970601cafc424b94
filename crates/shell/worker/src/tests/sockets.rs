//! Sockets that come to and leave running workers, and changed settings.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::ListenerId;
use strowger_shard::{Listener, ListenerState, Listeners, Snapshot};

use super::{DEADLINE, ask, bind, config, launch, listen, options, phone, snapshot, spin_until, with_siblings};
use crate::{Fleet, PacketSteering, Socket, Spin, StreamLimits, WorkerOptions, WorkerSettings};

/// A fleet of two workers with one listener for datagrams.
struct World {
    fleet: Fleet,
    snapshot: Arc<Snapshot>,
}

impl World {
    fn new() -> Self {
        let sockets = with_siblings(vec![bind()], 2);
        let snapshot = snapshot(&sockets[0]);
        let options = WorkerOptions { min_workers: 2, ..WorkerOptions::default() };
        let fleet = launch(crate::FleetConfig { options, ..config(sockets, Arc::clone(&snapshot)) }).expect("threads");
        Self { fleet, snapshot }
    }

    /// Publishes the listeners, with these ones in another state.
    fn publish(&mut self, ids: &[ListenerId], state: ListenerState, more: &[Listener]) {
        let own = self.snapshot.listeners.all().chain(more).cloned().zip(0_u16..);
        let own = own.map(|(one, id)| if ids.contains(&ListenerId(id)) { one.with_state(state) } else { one });
        let listeners = Listeners::new(own.collect());
        self.snapshot = Arc::new(Snapshot { listeners, ..Snapshot::clone(&self.snapshot) });
        self.fleet.publish(Arc::clone(&self.snapshot));
        assert!(self.fleet.wait_for_snapshot());
    }

    /// Opens listeners after those that there are. Returns their ids and addresses.
    fn open(&mut self, first: Vec<Socket>) -> Vec<(ListenerId, SocketAddr)> {
        let before = u16::try_from(self.snapshot.listeners.all().len()).expect("few");
        let listeners: Vec<_> = first.iter().map(|one| Listener::new(one.transport(), one.local_addr())).collect();
        let ids: Vec<_> = (before..).map(ListenerId).take(first.len()).collect();
        let prepared = self.fleet.prepare_sockets(&ids, with_siblings(first, 2)).expect("registered");
        self.publish(&ids, ListenerState::Opening, &listeners);
        assert!(self.fleet.open_sockets(prepared));
        self.publish(&ids, ListenerState::Open, &[]);
        ids.into_iter().zip(listeners.iter().map(|listener| listener.address)).collect()
    }

    fn settings() -> WorkerSettings {
        WorkerSettings {
            streams: StreamLimits::default(),
            balancers: Vec::new(),
            spin: Spin::UpTo(Duration::ZERO),
            min_workers: 1,
            cores: Vec::new(),
            usable_cores: Vec::new(),
            steering: PacketSteering::Packets,
        }
    }
}

/// Sends a request on a connection and returns what comes back.
fn ask_on(mut stream: &TcpStream, call_id: &str) -> String {
    stream.set_read_timeout(Some(DEADLINE)).expect("settable");
    stream.write_all(&options(call_id)).expect("sent");
    let mut buffer = [0; 4096];
    let length = stream.read(&mut buffer).expect("an answer in time");
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

#[test]
fn a_new_listener_receives_at_every_worker_and_answers_from_its_address() {
    let mut world = World::new();
    for round in 0..3 {
        let (_, address) = world.open(vec![bind()]).remove(0);
        let phones: Vec<_> = (0..8).map(|_| phone(address)).collect();
        for (phone, shard) in phones.iter().zip(0..) {
            assert_eq!(
                ask(phone, &format!("{shard}-{round}")),
                format!("{shard}-{round} shard {shard} life 0 count {}", round + 1)
            );
        }
    }
    assert_eq!(world.fleet.status().total.worker.misdirected, 0);
}

#[test]
fn a_removed_listener_keeps_its_counters_and_frees_its_address() {
    let mut world = World::new();
    let (id, address) = world.open(vec![bind()]).remove(0);
    ask(&phone(address), "1-a");
    spin_until(|| world.fleet.status().total.net.received == 1);
    world.publish(&[id], ListenerState::Closed, &[]);
    assert!(world.fleet.close_sockets(&[id]));
    std::net::UdpSocket::bind(address).expect("nobody has it any more");
    ask(&phone(world.snapshot.listeners.get(ListenerId(0)).expect("the first").address), "1-b");
    spin_until(|| world.fleet.status().total.net.received == 2);
}

#[test]
fn connections_stay_when_their_listener_goes() {
    let mut world = World::new();
    let (id, address) = world.open(vec![listen()]).remove(0);
    let phones: Vec<_> = (0..8).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    // Some have been established but not accepted when the socket closes.
    assert!(world.fleet.close_sockets(&[id]));
    world.publish(&[id], ListenerState::Closed, &[]);
    for (phone, shard) in phones.iter().zip(0..) {
        let answer = ask_on(phone, &format!("{shard}-a"));
        assert!(answer.contains(&format!("{shard}-a shard {shard}")), "{answer}");
    }
    assert_eq!(TcpStream::connect(address).expect_err("refused").kind(), ErrorKind::ConnectionRefused);
    drop(phones);
    spin_until(|| world.fleet.status().total.connections == 0);
}

#[test]
fn an_id_gets_its_sockets_again() {
    let mut world = World::new();
    let (id, address) = world.open(vec![listen()]).remove(0);
    let before = TcpStream::connect(address).expect("it listens");
    assert!(ask_on(&before, "1-a").contains("count 1"));
    assert!(world.fleet.close_sockets(&[id]));
    let again = vec![strowger_net::TcpListener::bind(address).expect("free again").into()];
    let prepared = world.fleet.prepare_sockets(&[id], with_siblings(again, 2)).expect("registered");
    assert!(world.fleet.open_sockets(prepared));
    let after = TcpStream::connect(address).expect("it listens");
    assert!(ask_on(&after, "1-b").contains("count 2") && ask_on(&before, "1-c").contains("count 3"));
}

#[test]
fn sockets_that_are_not_handed_over_are_closed() {
    let world = World::new();
    let first = vec![bind(), listen()];
    let addresses: Vec<_> = first.iter().map(Socket::local_addr).collect();
    drop(world.fleet.prepare_sockets(&[ListenerId(1), ListenerId(2)], with_siblings(first, 2)).expect("registered"));
    std::net::UdpSocket::bind(addresses[0]).expect("nobody has it any more");
    std::net::TcpListener::bind(addresses[1]).expect("nobody has it any more");
    let uneven = vec![vec![bind()], Vec::new()];
    let refused = world.fleet.prepare_sockets(&[ListenerId(1)], uneven).expect_err("refused");
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
}

#[test]
fn shorter_times_end_connections_that_exist() {
    let mut world = World::new();
    let (_, address) = world.open(vec![listen()]).remove(0);
    let mut phone = TcpStream::connect(address).expect("it listens");
    assert!(ask_on(&phone, "1-a").contains("count 1"));
    let streams = StreamLimits { idle: Duration::from_millis(50), ..StreamLimits::default() };
    assert!(world.fleet.configure(WorkerSettings { streams, ..World::settings() }));
    assert_eq!(phone.read(&mut [0; 16]).expect("closed properly"), 0);
    spin_until(|| world.fleet.status().total.connections == 0);
}

#[test]
fn lower_limits_close_nothing_and_refuse_further_connections() {
    let mut world = World::new();
    let (_, address) = world.open(vec![listen()]).remove(0);
    let first = TcpStream::connect(address).expect("it listens");
    assert!(ask_on(&first, "1-a").contains("count 1"));
    let streams = StreamLimits { per_source: 1, ..StreamLimits::default() };
    assert!(world.fleet.configure(WorkerSettings { streams, ..World::settings() }));
    let mut second = TcpStream::connect(address).expect("the system accepts it");
    let end = second.read(&mut [0; 16]);
    assert!(matches!(end, Ok(0)) || end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    assert!(ask_on(&first, "1-b").contains("count 2"));
    assert!(world.fleet.configure(World::settings()));
    let third = TcpStream::connect(address).expect("it listens");
    assert!(ask_on(&third, "1-c").contains("count 3"));
}
