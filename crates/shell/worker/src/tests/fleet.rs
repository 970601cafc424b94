//! Tests of whole fleets, with threads.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use strowger_shard::{Event, Snapshot};

use super::{ask, config, launch, options, phone, receive, snapshot, sockets, spin_until};
use crate::{Fleet, FleetConfig, SHARDS_PER_WORKER, Socket, Spin, WorkerOptions, WorkerStatus};

struct Running {
    fleet: Fleet,
    listeners: Vec<SocketAddr>,
    snapshot: Arc<Snapshot>,
    events: Receiver<Event>,
}

fn start(workers: usize, listeners: usize) -> Running {
    start_with(workers, listeners, WorkerOptions { min_workers: workers, ..WorkerOptions::default() })
}

fn start_with(workers: usize, listeners: usize, chosen: WorkerOptions) -> Running {
    let (queue, events) = sync_channel(1);
    let sockets = sockets(workers, listeners);
    let snapshot = snapshot(&sockets[0]);
    let listeners = sockets[0].iter().map(Socket::local_addr).collect();
    let config = FleetConfig { events: queue, options: chosen, ..config(sockets, Arc::clone(&snapshot)) };
    let fleet = launch(config).expect("threads");
    Running { fleet, listeners, snapshot, events }
}

impl Running {
    /// Waits until the sum over the workers satisfies the condition.
    fn wait_for(&self, mut is_right: impl FnMut(&WorkerStatus) -> bool) -> WorkerStatus {
        spin_until(|| is_right(&self.fleet.status().total));
        self.fleet.status().total
    }
}

//= rfc3581#4:same-address
#[test]
fn answers_leave_from_the_receiving_listener() {
    let running = start(1, 3);
    for listener in &running.listeners {
        let phone = phone(*listener);
        assert_eq!(
            ask(&phone, "3-hello"),
            format!("3-hello shard 3 life 0 count {}", {
                1 + running.listeners.iter().position(|other| other == listener).expect("it is one of them")
            })
        );
    }
}

//= rfc3261#18:udp-and-tcp
#[test]
fn messages_reach_shards_on_other_workers() {
    let running = start(3, 1);
    let shards = 3 * SHARDS_PER_WORKER;
    let phone = phone(running.listeners[0]);
    let mut awaited = HashSet::new();
    for round in 0..4 {
        // At most as many at a time as any socket buffer holds.
        for shard in 0..shards {
            let call_id = format!("{shard}-{round}");
            phone.send(&options(&call_id)).expect("loopback takes it");
            awaited.insert(format!("{call_id} shard {shard} life 0 count {}", round + 1));
        }
        while !awaited.is_empty() {
            let answer = receive(&phone);
            assert!(awaited.remove(&answer), "{answer} was not awaited");
        }
    }
    // With one socket, one worker receives, and two thirds of the shards are elsewhere.
    let elsewhere = u64::from(shards) * 4 * 2 / 3;
    let total = running
        .wait_for(|total| total.worker.handover_received == elsewhere && total.net.sent == u64::from(shards) * 4);
    assert_eq!((total.worker.handover_sent, total.worker.handover_drops), (elsewhere, 0));
    assert_eq!(total.shard.requests, u64::from(shards) * 4);
    let senders = running.fleet.status().workers.iter().filter(|worker| worker.net.sent > 0).count();
    assert_eq!(senders, 3, "each worker answers for its shards");
}

#[test]
fn a_panic_resets_only_one_shard() {
    let running = start(2, 1);
    let phone = phone(running.listeners[0]);
    assert_eq!(ask(&phone, "5-a"), "5-a shard 5 life 0 count 1");
    assert_eq!(ask(&phone, "6-a"), "6-a shard 6 life 0 count 1");
    phone.send(&options("5-bug")).expect("loopback takes it");
    assert_eq!(ask(&phone, "5-b"), "5-b shard 5 life 1 count 1");
    assert_eq!(ask(&phone, "6-b"), "6-b shard 6 life 0 count 2");
    // Another panic, while outputs are drained.
    phone.send(&options("6-drainbug")).expect("loopback takes it");
    assert_eq!(ask(&phone, "6-c"), "6-c shard 6 life 1 count 1");
    let total = running.wait_for(|total| total.worker.panics == 2 && total.shard.requests == 7);
    assert_eq!(total.net.sent, 5);
    let report = running.fleet.status().last_panic.expect("there was one");
    assert_eq!(report.shard.map(|shard| shard.0), Some(6));
    let line = report.to_string();
    assert!(line.contains("a planted bug") && line.contains("6-drainbug"), "{line}");
    assert!(!line.contains("secret") && !line.contains('\n'), "{line}");
}

#[test]
fn a_panic_in_a_timer_or_in_steering_is_contained() {
    let running = start(1, 1);
    let phone = phone(running.listeners[0]);
    phone.send(&options("steering-bug")).expect("loopback takes it");
    assert_eq!(ask(&phone, "1-a"), "1-a shard 1 life 0 count 1");
    assert_eq!(ask(&phone, "1-timerbug"), "1-timerbug shard 1 life 0 count 2");
    running.wait_for(|total| total.worker.panics == 2);
    assert_eq!(ask(&phone, "1-b"), "1-b shard 1 life 1 count 1");
}

#[test]
fn a_panic_in_prefetch_costs_one_shard_and_names_the_message() {
    let running = start(1, 1);
    let phone = phone(running.listeners[0]);
    assert_eq!(ask(&phone, "1-a"), "1-a shard 1 life 0 count 1");
    assert_eq!(ask(&phone, "1-foresightbug"), "1-foresightbug shard 1 life 1 count 1");
    running.wait_for(|total| total.worker.panics == 1);
    let report = running.fleet.status().last_panic.expect("there was one");
    assert!(report.to_string().contains("1-foresightbug"), "{report}");
}

#[test]
fn malformed_messages_are_counted_and_pings_are_answered() {
    let running = start(1, 1);
    let phone = phone(running.listeners[0]);
    for bytes in [b"".as_slice(), b"\r\n", b"hello", b"\0\0\0\0", b"\r\n\r\n"] {
        phone.send(bytes).expect("loopback takes it");
    }
    assert_eq!(receive(&phone), "\r\n", "the one answer is to the last");
    assert_eq!(ask(&phone, "0-a"), "0-a shard 0 life 0 count 1");
    phone.send(&options("nobody")).expect("loopback takes it");
    let total = running.wait_for(|total| total.worker.foreign_responses == 1);
    assert_eq!((total.worker.keep_alives, total.worker.malformed), (3, 2));
}

#[test]
fn timers_wake_an_idle_worker() {
    let running = start(2, 1);
    let phone = phone(running.listeners[0]);
    assert_eq!(ask(&phone, "7-timer"), "7-timer shard 7 life 0 count 1");
    assert_eq!(receive(&phone), "ring");
}

#[test]
fn an_always_spinning_worker_gets_datagrams_timers_and_snapshots() {
    // The second worker has no shards and sleeps.
    let chosen = WorkerOptions { spin: Spin::Always, min_workers: 1, ..WorkerOptions::default() };
    let running = start_with(2, 3, chosen);
    for listener in &running.listeners {
        let phone = phone(*listener);
        assert!(ask(&phone, "3-hello").starts_with("3-hello shard 3"), "whichever socket it comes by");
        assert!(ask(&phone, "7-timer").starts_with("7-timer shard 7"));
        assert_eq!(receive(&phone), "ring", "a timer");
    }
    running.fleet.publish(Arc::clone(&running.snapshot));
    running.wait_for(|total| total.version == 1);
    // Dropping it ends it.
}

#[test]
fn a_snapshot_reaches_every_shard_and_the_fleet_becomes_idle() {
    let running = start(2, 1);
    let phone = phone(running.listeners[0]);
    for call_id in ["1-begin", "1-begin", "2-begin"] {
        ask(&phone, call_id);
    }
    running.wait_for(|total| total.transactions == 3);
    assert!(!running.fleet.is_idle());
    let draining = Arc::new(Snapshot { is_draining: true, ..Snapshot::clone(&running.snapshot) });
    running.fleet.publish(Arc::clone(&draining));
    spin_until(|| running.fleet.is_idle());
    let total = running.fleet.status().total;
    assert_eq!((total.version, total.shard.responses), (1, 2 * u64::from(SHARDS_PER_WORKER)));
    running.fleet.publish(draining);
    running.wait_for(|total| total.version == 2);
}

//= rfc3261#18.4:unreachable
#[test]
fn a_dead_peer_is_reported_to_shards() {
    for workers in [1, 3] {
        let running = start(workers, 1);
        let phone = phone(running.listeners[0]);
        // Regardless of which worker's socket reports it and which worker has the shard.
        for shard in 0..12 {
            // A socket connected to itself: no other process has its port, and it refuses datagrams.
            let dead = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback has a free port");
            let port = dead.local_addr().expect("bound").port();
            dead.connect(("127.0.0.1", port)).expect("its own address");
            assert_eq!(ask(&phone, &format!("{shard}-dead-{port}")), format!("lost {port}"));
        }
    }
}

#[test]
fn unread_events_are_dropped_and_counted() {
    let running = start(1, 1);
    let phone = phone(running.listeners[0]);
    ask(&phone, "0-events");
    assert_eq!(running.wait_for(|total| total.worker.event_drops > 0).worker.event_drops, 2);
    assert!(matches!(running.events.try_recv(), Ok(Event::Malformed { .. })));
}

#[test]
fn a_message_for_an_unknown_listener_is_dropped() {
    let running = start(1, 1);
    let phone = phone(running.listeners[0]);
    assert_eq!(ask(&phone, "0-nowhere"), "0-nowhere shard 0 life 0 count 1");
    running.wait_for(|total| total.worker.misdirected == 1);
}

#[test]
fn a_stopped_fleet_frees_its_addresses() {
    let running = start(2, 1);
    let address = running.listeners[0];
    ask(&phone(address), "0-a");
    running.fleet.stop();
    std::net::UdpSocket::bind(address).expect("nobody has it any more");
}

#[test]
fn a_fleet_needs_a_socket_for_each_listener_of_each_worker() {
    let refused = |sockets: Vec<Vec<Socket>>, snapshot: Arc<Snapshot>| {
        launch(config(sockets, snapshot)).expect_err("refused").kind()
    };
    let mut uneven = sockets(2, 2);
    let snapshot = snapshot(&uneven[0]);
    uneven[1].pop();
    assert_eq!(refused(uneven, Arc::clone(&snapshot)), io::ErrorKind::InvalidInput);
    assert_eq!(refused(Vec::new(), snapshot), io::ErrorKind::InvalidInput);
}
