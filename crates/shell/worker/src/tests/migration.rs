//! Migration of shards between running workers under traffic.

use std::collections::HashSet;
use std::io::Write as _;
use std::net::{Shutdown, TcpStream, UdpSocket as Phone};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use strowger_foundation::ShardId;
use strowger_shard::Snapshot;

use super::{
    ask, config, launch, options, phone, receive, snapshot, sockets, sockets_and_listener, spin_for, spin_until,
};
use crate::migration::{MigrationPlan, ShardMove};
use crate::{Fleet, FleetConfig, PacketSteering, SHARDS_PER_WORKER, Socket, WorkerOptions};

/// Far more than rebalancing needs; gathering shards waits for some seconds of low load.
const PATIENCE: Duration = Duration::from_secs(60);

struct Running {
    fleet: Fleet,
    address: std::net::SocketAddr,
    snapshot: Arc<Snapshot>,
    workers: usize,
    owners: Vec<usize>,
}

/// Starts workers whose shards move only when the test requests it.
fn start(workers: usize, least: usize, steering: PacketSteering) -> Running {
    start_at(sockets(workers, 1), least, steering)
}

/// Does the same on the given sockets of each worker.
fn start_at(sockets: Vec<Vec<Socket>>, least: usize, steering: PacketSteering) -> Running {
    start_with(
        sockets,
        WorkerOptions { min_workers: least, steering, is_rebalancing_off: true, ..WorkerOptions::default() },
    )
}

fn start_with(sockets: Vec<Vec<Socket>>, options: WorkerOptions) -> Running {
    let (workers, least) = (sockets.len(), options.min_workers);
    let snapshot = snapshot(&sockets[0]);
    let address = sockets[0].first().map(Socket::local_addr).expect("one listener");
    let config = FleetConfig { options, ..config(sockets, Arc::clone(&snapshot)) };
    let fleet = launch(config).expect("threads");
    let shards = workers * usize::from(SHARDS_PER_WORKER);
    let owners = (0..shards).map(|shard| shard % least).collect();
    Running { fleet, address, snapshot, workers, owners }
}

impl Running {
    /// Moves shards and waits for their arrival.
    fn carry(&mut self, wanted: impl IntoIterator<Item = (usize, usize)>) {
        let mut moves: Vec<ShardMove> = Vec::new();
        for (shard, to) in wanted {
            let (shard, to) = (shard % self.owners.len(), to % self.workers);
            let from = std::mem::replace(&mut self.owners[shard], to);
            if from != to && moves.iter().all(|one| usize::from(one.shard.0) != shard) {
                moves.push(ShardMove { shard: ShardId(shard as u16), from, to });
            } else {
                self.owners[shard] = from;
            }
        }
        let plan = Arc::new(MigrationPlan::new(moves));
        self.fleet.broadcast_plan(&plan);
        spin_until(|| plan.is_done());
    }

    fn shards(&self) -> Vec<usize> {
        let status = self.fleet.status();
        assert_eq!(status.total.shards, self.owners.len(), "each shard is somewhere, once");
        status.workers.iter().map(|worker| worker.shards).collect()
    }
}

#[test]
fn a_moved_shard_keeps_its_state_and_timers() {
    let mut running = start(3, 1, PacketSteering::Peers);
    let phone = phone(running.address);
    assert_eq!(ask(&phone, "7-hello"), "7-hello shard 7 life 0 count 1");
    assert_eq!(ask(&phone, "7-timer"), "7-timer shard 7 life 0 count 2");
    running.carry([(7, 2)]);
    // Regardless of which worker has it; the timer was set by another one.
    let said = [ask(&phone, "7-hello"), receive(&phone)];
    assert!(said.contains(&"ring".to_owned()), "{said:?}");
    assert!(said.contains(&"7-hello shard 7 life 0 count 3".to_owned()), "{said:?}");
    spin_until(|| running.shards() == [47, 0, 1]);
    running.carry([(7, 1)]);
    running.carry([(7, 0), (8, 1)]);
    assert_eq!(ask(&phone, "7-hello"), "7-hello shard 7 life 0 count 4");
    spin_until(|| running.shards() == [47, 1, 0]);
}

#[test]
fn a_moved_shard_gets_the_newest_snapshot_and_keeps_the_fleet_busy() {
    let mut running = start(2, 1, PacketSteering::Peers);
    let phone = phone(running.address);
    ask(&phone, "5-begin");
    running.carry([(5, 1)]);
    spin_until(|| running.fleet.status().total.transactions == 1);
    assert!(!running.fleet.is_idle());
    let draining = Arc::new(Snapshot { is_draining: true, ..Snapshot::clone(&running.snapshot) });
    running.fleet.publish(draining);
    running.carry([(5, 0), (6, 1)]);
    // The scripted shard ends its transactions when told to drain.
    spin_until(|| running.fleet.is_idle());
    assert_eq!(running.fleet.status().total.version, 1);
}

#[test]
fn commands_follow_a_moved_shard() {
    let mut running = start(2, 1, PacketSteering::Peers);
    let phone = phone(running.address);
    ask(&phone, "0-watch");
    running.carry([(0, 1)]);
    // The worker that is told had the shard earlier.
    running.fleet.forget(b"bob@example.com");
    assert_eq!(receive(&phone), "forget bob@example.com");
    // Unregistering a user does not bar the user.
    running.fleet.unregister(b"bob@example.com", None);
    assert_eq!(receive(&phone), "unregister bob@example.com all");
    running.fleet.unregister(b"bob@example.com", Some(b"sip:b@192.0.2.1"));
    assert_eq!(receive(&phone), "unregister bob@example.com sip:b@192.0.2.1");
    spin_until(|| running.fleet.status().total.worker.forwarded_after_rebalance == 3);
}

#[test]
fn a_shard_that_panics_when_counted_is_replaced() {
    let mut running = start(2, 1, PacketSteering::Peers);
    let phone = phone(running.address);
    assert_eq!(ask(&phone, "7-countbug"), "7-countbug shard 7 life 0 count 1");
    running.carry([(7, 1)]);
    assert_eq!(ask(&phone, "7-hello"), "7-hello shard 7 life 1 count 1");
    spin_until(|| running.shards() == [31, 1]);
    assert_eq!(running.fleet.status().total.worker.panics, 1);
}

#[test]
fn each_shard_hears_once_of_a_closed_connection_even_while_moving() {
    let mut running = start_at(sockets_and_listener(3), 1, PacketSteering::Peers);
    let connections = running.snapshot.listeners.iter().last().map(|listener| listener.address).expect("two listeners");
    let watchers: Vec<_> = (0..4).map(|shard| (shard, phone(running.address))).collect();
    for (shard, watcher) in &watchers {
        ask(watcher, &format!("{shard}-watch"));
    }
    for round in 0..60 {
        let mut lines: Vec<_> = (0..6).map(|_| TcpStream::connect(connections).expect("it listens")).collect();
        for line in &mut lines {
            let message: Vec<u8> = (0..4).flat_map(|shard| options(&format!("{shard}-x"))).collect();
            line.write_all(&message).expect("loopback takes it");
        }
        let mut expected: Vec<_> =
            lines.iter().map(|line| format!("closed {}", line.local_addr().expect("bound").port())).collect();
        expected.sort();
        let closer = thread::spawn(move || lines.iter().for_each(|line| drop(line.shutdown(Shutdown::Write))));
        running.carry((0..4).map(|shard| (shard, round + shard)));
        running.carry((0..4).map(|shard| (shard, 2 * round)));
        closer.join().expect("it closes them");
        for (shard, watcher) in &watchers {
            // A response to a connection that is already gone is reported too.
            let words = std::iter::repeat_with(|| receive(watcher)).filter(|word| !word.starts_with("unconnected "));
            let mut heard: Vec<_> = words.take(6).collect();
            heard.sort();
            assert_eq!(heard, expected, "shard {shard} in round {round}");
        }
    }
}

/// Sends numbered messages to one shard after another while shards migrate back and forth. Each shard must receive
/// all its messages in order.
fn carry_under_fire(workers: usize, wanted: &[Vec<(usize, usize)>]) {
    let mut running = start(workers, 1, PacketSteering::Peers);
    let phone = phone(running.address);
    let is_over = Arc::new(AtomicBool::new(false));
    let gunner = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || fire(&phone, 8, &is_over)
    });
    for moves in wanted {
        running.carry(moves.iter().copied());
    }
    is_over.store(true, Ordering::Release);
    let answered = gunner.join().expect("all is answered");
    running.carry([]);
    let expected: Vec<_> =
        (0..workers).map(|worker| running.owners.iter().filter(|owner| **owner == worker).count()).collect();
    spin_until(|| running.shards() == expected);
    spin_until(|| running.fleet.status().total.shard.requests == answered);
    assert_eq!(running.fleet.status().total.worker.handover_drops, 0);
}

/// Sends to one shard after another until stopped; returns the number sent.
fn fire(phone: &Phone, shards: usize, is_over: &AtomicBool) -> u64 {
    let mut volleys = Volleys::new(std::slice::from_ref(phone), shards);
    while !is_over.load(Ordering::Acquire) || volleys.answered < 64 {
        volleys.fire("n");
    }
    volleys.answered
}

/// Sends numbered messages from each phone in turn to each shard in turn.
struct Volleys<'a> {
    phones: &'a [Phone],
    /// Messages sent, by shard.
    counts: Vec<u64>,
    answered: u64,
}

impl<'a> Volleys<'a> {
    fn new(phones: &'a [Phone], shards: usize) -> Self {
        Self { phones, counts: vec![0; shards], answered: 0 }
    }

    /// Sends a few messages at a time, so that none is lost to a full buffer. Each must be answered once.
    fn fire(&mut self, verb: &str) {
        let phones = self.phones.iter().cycle().take(32);
        let numbered = phones.clone().enumerate();
        let mut awaited: HashSet<_> =
            numbered.map(|(number, phone)| self.send(phone, number % self.counts.len(), verb)).collect();
        for phone in phones {
            let answer = receive(phone);
            assert!(awaited.remove(&answer), "{answer} was not awaited");
            self.answered += 1;
        }
    }

    /// Sends one message that its shard answers a little later.
    fn ring(&mut self) {
        let phone = &self.phones[0];
        let answer = self.send(phone, 0, "timer");
        assert_eq!([receive(phone), receive(phone)], [answer, "ring".to_owned()]);
        self.answered += 1;
    }

    /// Sends a message to be answered. A shard counts its messages, so after reordering the count differs from the
    /// number.
    fn send(&mut self, phone: &Phone, shard: usize, verb: &str) -> String {
        self.counts[shard] += 1;
        let count = self.counts[shard];
        let call_id = format!("{shard}-{verb}-{count}");
        phone.send(&options(&call_id)).expect("loopback takes it");
        format!("{call_id} shard {shard} life 0 count {count}")
    }
}

#[test]
fn workers_share_the_load_and_one_takes_over_when_it_ends() {
    let running = start_with(sockets(2, 1), WorkerOptions { min_workers: 1, ..WorkerOptions::default() });
    let phones: Vec<_> = (0..16).map(|_| phone(running.address)).collect();
    // One message at a time per shard: the receiving worker changes too and may reorder messages.
    let mut volleys = Volleys::new(&phones, 32);
    let received_by_second = |volleys: &Volleys<'_>| {
        spin_until(|| running.fleet.status().total.net.received == volleys.answered);
        running.fleet.status().workers[1].net.received
    };
    volleys.fire("n");
    assert_eq!((running.shards(), received_by_second(&volleys)), (vec![32, 0], 0), "one is enough for little");
    spin_for(PATIENCE, || {
        volleys.fire("toil");
        let second = running.fleet.status().workers[1].net;
        second.received.min(second.sent) > 100 && running.shards().iter().all(|shards| *shards >= 8)
    });
    // An idle worker does not report its load, so some load must remain.
    spin_for(PATIENCE, || {
        volleys.ring();
        running.shards() == [32, 0] && {
            let before = received_by_second(&volleys);
            volleys.fire("n");
            received_by_second(&volleys) == before
        }
    });
    spin_until(|| running.fleet.status().total.shard.requests == volleys.answered);
    assert_eq!(running.fleet.status().total.worker.handover_drops, 0);
    for phone in phones {
        phone.set_nonblocking(true).expect("a sound socket");
        assert!(phone.recv(&mut [0; 64]).is_err(), "nothing is answered twice");
    }
}

#[test]
fn nothing_is_lost_or_reordered_while_shards_move() {
    let everywhere = |to: usize| (0..8).map(|shard| (shard, to)).collect::<Vec<_>>();
    let round = [everywhere(1), everywhere(2), everywhere(0), vec![(0, 1), (1, 2)], vec![(0, 2), (1, 1), (2, 1)]];
    let many: Vec<_> = (0..20).flat_map(|_| round.clone()).collect();
    carry_under_fire(3, &many);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_moves_keep_one_owner_per_shard(
        workers in 2_usize..5,
        wanted in prop::collection::vec(prop::collection::vec((0_usize..8, 0_usize..5), 0..6), 1..40),
    ) {
        carry_under_fire(workers, &wanted);
    }
}
