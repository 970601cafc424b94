//! Tests of one worker, driven round by round on the test's own thread.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use mio::{Events, Poll, Token};
use strowger_ban::BannedSources;
use strowger_foundation::{ConnId, Flow, ListenerId, ShardId, Timestamp, Transport};
use strowger_locate::{CachePolicy, NameCache};
use strowger_net::{Clock, UdpSocket};

use super::scripted_shard::ScriptedShardFactory;
use super::{options, phone, receive, snapshot, sockets, spin_until};
use crate::admission::Admission;
use crate::connection_index::ConnectionIndex;
use crate::datagram_socket::DatagramSocket;
use crate::fleet::sort;
use crate::handover::{self, Receiver, Sender, WorkerWaker};
use crate::ingress::BUSY_POLL_AFTER;
use crate::listener_socket::ListenerSocket;
use crate::media_socket::MediaSocket;
use crate::migration::{MAX_HELD_BYTES, MigrationPlan, ShardMessage, ShardMove};
use crate::new_work_queue::NewWorkQueue;
use crate::panics::PanicLog;
use crate::rebalance::Rebalancer;
use crate::shard_host::{HostShared, ShardHost};
use crate::streams::{ClosedConnection, Streams};
use crate::timing::Timing;
use crate::worker::{FIRST_NEW_WORK, FULL_POLL_EVERY, WAKER_TOKEN, Worker};
use crate::worker_handle::WorkerHandle;
use crate::worker_io::{WorkerIo, WorkerLink};
use crate::worker_times::WorkerTimes;
use crate::{Counters, Socket, Spin, StreamLimits, WorkerOptions};

/// The first of two workers, not running, and the second's ends of the rings between them.
pub(super) struct SingleWorker {
    pub(super) worker: Worker<ScriptedShardFactory>,
    pub(super) address: SocketAddr,
    /// Address of its second listener.
    other_address: SocketAddr,
    pub(super) contact: Arc<WorkerHandle>,
    pub(super) to_second: Receiver,
    pub(super) from_second: Sender,
    _second: Poll,
    events: Events,
}

impl SingleWorker {
    pub(super) fn new(ring_capacity: usize) -> Self {
        Self::with(ring_capacity, &WorkerOptions::default())
    }

    pub(super) fn with(ring_capacity: usize, chosen: &WorkerOptions) -> Self {
        Self::made(ring_capacity, chosen, false)
    }

    /// With `is_sorted`, the kernel separates new work.
    pub(super) fn made(ring_capacity: usize, chosen: &WorkerOptions, is_sorted: bool) -> Self {
        let sockets = sockets(1, 2).pop().expect("one worker");
        let [address, other_address] = [0, 1].map(|listener: usize| sockets[listener].local_addr());
        let snapshot = snapshot(&sockets);
        let contact = |poll: &Poll| {
            Arc::new(WorkerHandle::new(
                WorkerWaker::new(poll.registry(), WAKER_TOKEN).expect("a file descriptor"),
                Arc::default(),
            ))
        };
        let (poll, second) = (Poll::new().expect("epoll"), Poll::new().expect("epoll"));
        let registry = Arc::new(poll.registry().try_clone().expect("a file descriptor"));
        let port = |(token, socket)| match socket {
            Socket::Udp(mut socket) => {
                // On an older kernel, K_snd is not measured.
                let _ = socket.enable_send_stamps();
                ListenerSocket::Udp(DatagramSocket::new(socket, &registry, Token(token)).expect("a fresh socket"))
            }
            Socket::Stream(_) | Socket::Closed(..) => panic!("datagrams"),
        };
        let sockets = vec![sockets];
        let opened = if is_sorted { sort(&sockets, 1, chosen) } else { vec![vec![None, None]] };
        let queue = |(token, socket): (usize, Option<UdpSocket>)| {
            let outlet =
                |socket| DatagramSocket::new(socket, &registry, Token(FIRST_NEW_WORK + token)).expect("a fresh socket");
            socket.map(|socket| NewWorkQueue::new(outlet(socket)))
        };
        let new_work = opened.into_iter().flatten().enumerate().map(queue).collect();
        let ports = sockets.into_iter().flatten().enumerate().map(port).collect();
        let balance = Rebalancer::frozen(2, 2, 32);
        let owners = balance.owners().to_vec();
        let common = HostShared {
            factory: ScriptedShardFactory,
            panics: Arc::new(PanicLog::default()),
            arrivals: vec![Mutex::default(), Mutex::default()],
            in_transit: Arc::default(),
            balance: Mutex::new(balance),
        };
        let clock = Clock::start();
        let (queue, _) = sync_channel(1);
        let (give, to_second) = handover::ring(ring_capacity);
        let (from_second, take) = handover::ring(ring_capacity);
        let second_contact = contact(&second);
        let neighbour = WorkerLink::new(second_contact, give, take);
        let contact = contact(&poll);
        let registry = poll.registry().try_clone().expect("a file descriptor");
        let exits = WorkerIo {
            index: 0,
            handle: Arc::clone(&contact),
            sockets: ports,
            new_work,
            streams: Streams::new(
                0,
                registry,
                Arc::new(ConnectionIndex::new(64, 64)),
                Arc::new(NameCache::new(CachePolicy::default(), 1)),
                StreamLimits::default(),
                (Arc::new(BannedSources::new(1)), queue.clone()),
                1,
            ),
            links: vec![None, Some(neighbour)],
            resolver: None,
            media: Arc::new(MediaSocket::new(Vec::new(), 0)),
            record_sink: None,
            records: Vec::new(),
            tracer: Arc::default(),
            unconnected: Vec::new(),
            predecessors: None,
            successor: None,
            process: 0,
            steering: chosen.steering,
            is_frozen: false,
            taken: 0,
            counters: Counters::default(),
            closed_sockets: strowger_net::Counters::default(),
            timing: Timing::new(clock, chosen.timing),
            wake_owed_since: None,
            owners,
        };
        let desk = ShardHost::new(Arc::new(common), exits, Admission::new(0, 1, true, Arc::default()), snapshot, queue);
        let worker = Worker::new(poll, clock, desk, chosen).expect("a file descriptor");
        let events = Events::with_capacity(8);
        Self { worker, address, other_address, contact, to_second, from_second, _second: second, events }
    }

    /// Runs it on its own thread until `test` has ended.
    fn while_it_runs(mut self, test: impl FnOnce(&WorkerHandle)) {
        let (contact, is_over) = (Arc::clone(&self.contact), AtomicBool::new(false));
        thread::scope(|scope| {
            let _end = End(&is_over, &contact);
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    self.step();
                }
            });
            test(&contact);
        });
    }

    /// Waits once and runs one round.
    pub(super) fn step(&mut self) {
        self.worker.wait(&mut self.events).expect("epoll");
        self.worker.handle_events(&self.events);
        self.worker.round();
    }

    /// Returns the times of its packets; `None` if timing is off.
    pub(super) fn worker_times(&self) -> Option<WorkerTimes> {
        self.worker.ingress.host.times()
    }

    pub(super) fn times(&self) -> WorkerTimes {
        self.worker_times().expect("timing is on")
    }

    /// Returns whether its first socket is registered for kernel events.
    fn is_told(&self) -> bool {
        self.worker.ingress.host.io.sockets[0].as_datagram().expect("of datagrams").is_registered
    }

    /// Returns the number of datagrams that its first socket has sent.
    fn sent(&self) -> u64 {
        self.worker.ingress.host.io.sockets[0].as_datagram().expect("of datagrams").socket().counters().sent
    }

    /// Runs one round with work.
    fn work(&mut self, phone: &std::net::UdpSocket) {
        phone.send(&options("0-work")).expect("loopback takes it");
        self.step();
        receive(phone);
    }
}

/// Stops [`SingleWorker::while_it_runs`], also when the test fails.
struct End<'a>(&'a AtomicBool, &'a WorkerHandle);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        self.1.waker.wake_always();
    }
}

#[test]
fn an_always_spinning_worker_never_parks_with_shards() {
    for (spin, parks) in [(Spin::UpTo(Duration::ZERO), true), (Spin::Always, false)] {
        let alone = SingleWorker::with(4, &WorkerOptions { spin, ..WorkerOptions::default() });
        let phone = phone(alone.address);
        alone.while_it_runs(|contact| {
            for number in 0..20 {
                phone.send(&options(&format!("0-{number}"))).expect("loopback takes it");
                receive(&phone);
                if parks {
                    spin_until(|| contact.waker.is_parked());
                }
                // Long enough for the worker to finish the round of the response and wait.
                (0..10_000).for_each(|_| assert!(parks || !contact.waker.is_parked(), "after {number}"));
            }
        });
    }
}

#[test]
fn work_in_progress_is_answered_before_new_work_however_sorted() {
    for is_sorted in [true, false] {
        let mut alone = SingleWorker::made(4, &WorkerOptions::default(), is_sorted);
        assert_eq!(alone.worker.ingress.host.io.is_sorted(ListenerId(0)), is_sorted);
        let phone = phone(alone.address);
        for number in 0..20 {
            phone.send(&options(&format!("0-new{number}"))).expect("loopback takes it");
        }
        let bye = String::from_utf8(options("0-bye")).expect("text").replace("OPTIONS", "BYE");
        phone.send(bye.as_bytes()).expect("loopback takes it");
        // One round may find all of it or only a part.
        while alone.sent() < 21 {
            alone.step();
        }
        assert!(receive(&phone).starts_with("0-bye"), "sorted by the kernel: {is_sorted}");
        for number in 0..20 {
            assert!(receive(&phone).starts_with(&format!("0-new{number} ")), "the others in their order");
        }
    }
}

#[test]
fn a_busy_worker_polls_its_socket_and_registers_again_to_sleep() {
    let mut alone = SingleWorker::new(4);
    let phone = phone(alone.address);
    spin_until(|| {
        alone.work(&phone);
        !alone.is_told()
    });
    alone.while_it_runs(|contact| {
        for number in 0..3 {
            spin_until(|| contact.waker.is_parked());
            phone.send(&options(&format!("0-{number}"))).expect("loopback takes it");
            assert!(receive(&phone).starts_with(&format!("0-{number} shard 0")));
        }
    });
}

#[test]
fn a_polling_worker_still_sees_dead_peers_and_other_sockets() {
    let mut alone = SingleWorker::with(4, &WorkerOptions { spin: Spin::Always, ..WorkerOptions::default() });
    let (phone, other) = (phone(alone.address), phone(alone.other_address));
    (0..BUSY_POLL_AFTER).for_each(|_| alone.work(&phone));
    assert!(!alone.is_told());
    // A socket connected to itself, which refuses datagrams.
    let dead = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let port = dead.local_addr().expect("bound").port();
    dead.connect(("127.0.0.1", port)).expect("its own address");
    phone.send(&options(&format!("0-dead-{port}"))).expect("loopback takes it");
    alone.step();
    alone.step();
    assert_eq!(receive(&phone), format!("lost {port}"));
    assert!(!alone.is_told());
    other.send(&options("0-other")).expect("loopback takes it");
    alone.step();
    assert!(receive(&other).starts_with("0-other shard 0"));
    assert!(alone.is_told(), "it was busy with another one");
}

#[test]
fn messages_received_while_spinning_are_in_the_status() {
    let alone = SingleWorker::with(4, &WorkerOptions { spin: Spin::Always, ..WorkerOptions::default() });
    let phone = phone(alone.address);
    alone.while_it_runs(|contact| {
        for number in 1..=4 {
            phone.send(&options(&format!("0-{number}"))).expect("loopback takes it");
            // Nothing else is due, so nothing else makes it publish its status.
            spin_until(|| contact.status.read(Timestamp::ZERO).net.received == number);
        }
    });
}

#[test]
fn a_slow_neighbour_loses_only_its_own_messages() {
    let mut alone = SingleWorker::new(4);
    let phone = phone(alone.address);
    for number in 0..10 {
        phone.send(&options(&format!("1-{number}"))).expect("loopback takes it");
        phone.send(&options(&format!("2-{number}"))).expect("loopback takes it");
    }
    let mut status = alone.contact.status.read(Timestamp::ZERO);
    spin_until(|| {
        alone.step();
        alone.worker.publish_status(Clock::start().now());
        status = alone.contact.status.read(Timestamp::ZERO);
        status.net.received == 20
    });
    assert_eq!((status.worker.handover_sent, status.worker.handover_drops), (4, 6));
    assert_eq!((status.shard.requests, status.net.sent), (10, 10), "its own messages were all answered");
    let waiting: Vec<_> = std::iter::from_fn(|| alone.to_second.poll()).collect();
    let expected: Vec<_> = (0..4).map(|number| options(&format!("1-{number}"))).collect();
    assert_eq!(waiting.iter().map(|handed| handed.bytes.clone()).collect::<Vec<_>>(), expected);
    assert!(
        waiting
            .iter()
            .all(|handed| handed.shard == ShardId(1) && handed.flow.peer == phone.local_addr().expect("bound"))
    );
}

#[test]
fn a_batch_is_handled_in_order_whatever_it_contains() {
    let mut alone = SingleWorker::new(64);
    let phone = phone(alone.address);
    // More than twice as many as are parsed ahead.
    let send = |text: &[u8]| phone.send(text).map(drop).expect("loopback takes it");
    for number in 0..20 {
        send(&options(&format!("0-{number}")));
        send(&options(&format!("1-{number}")));
        match number {
            3 => send(&options("steering-bug")),
            5 => send(b"no message"),
            7 => send(b"\r\n\r\n"),
            11 => send(&options("2-bug")),
            _ => {}
        }
    }
    let mut status = alone.contact.status.read(Timestamp::ZERO);
    spin_until(|| {
        alone.step();
        alone.worker.publish_status(Clock::start().now());
        status = alone.contact.status.read(Timestamp::ZERO);
        status.net.received == 44
    });
    assert_eq!((status.worker.malformed, status.worker.panics, status.worker.keep_alives), (1, 2, 1));
    let answers: Vec<String> = (0..21).map(|_| receive(&phone)).collect();
    let own: Vec<&String> = answers.iter().filter(|answer| *answer != "\r\n").collect();
    let said: Vec<String> = (0..20).map(|n| format!("0-{n} shard 0 life 0 count {}", n + 1)).collect();
    assert_eq!(own, said.iter().collect::<Vec<_>>());
    let handed: Vec<_> = std::iter::from_fn(|| alone.to_second.poll()).map(|handed| handed.bytes.clone()).collect();
    assert_eq!(handed, (0..20).map(|number| options(&format!("1-{number}"))).collect::<Vec<_>>());
}

#[test]
fn a_busy_socket_does_not_starve_the_others() {
    let mut alone = SingleWorker::new(4);
    let (busy, seldom) = (phone(alone.address), phone(alone.other_address));
    seldom.set_nonblocking(true).expect("a sound socket");
    // There is always input when the worker polls, so it spins.
    let step = |alone: &mut SingleWorker| {
        busy.send(&options("0-busy")).expect("loopback takes it");
        alone.step();
    };
    (0..64).for_each(|_| step(&mut alone));
    for number in 0..20 {
        seldom.send(&options("0-seldom")).expect("loopback takes it");
        let heard = (0..2 * FULL_POLL_EVERY).find(|_| {
            step(&mut alone);
            seldom.recv(&mut [0; 2048]).is_ok()
        });
        assert!(heard.is_some(), "question {number}");
        // The worker watches the busy socket again.
        (0..FULL_POLL_EVERY).for_each(|_| step(&mut alone));
    }
}

#[test]
fn a_moving_shard_hears_of_closed_connections_from_its_current_worker() {
    let mut alone = SingleWorker::new(4);
    let phone = phone(alone.address);
    phone.send(&options("0-watch")).expect("loopback takes it");
    phone.set_nonblocking(true).expect("a sound socket");
    spin_until(|| {
        alone.step();
        phone.recv(&mut [0; 2048]).is_ok()
    });
    phone.set_nonblocking(false).expect("a sound socket");
    let closed = |port| ClosedConnection::Connection(ConnId::new(1, 2, 3), SocketAddr::from(([127, 0, 0, 1], port)));
    alone.contact.notify_closed(&[closed(7001)]);
    alone.contact.notify_plan(&Arc::new(MigrationPlan::new(vec![ShardMove { shard: ShardId(0), from: 0, to: 1 }])));
    alone.contact.notify_closed(&[closed(7002)]);
    alone.step();
    assert_eq!(receive(&phone), "closed 7001");
    let is_here = alone.worker.ingress.host.slot_of(ShardId(0)).is_some();
    assert!(is_here, "the other worker has not said that it knows of the plan");
    phone.set_nonblocking(true).expect("a sound socket");
    assert!(phone.recv(&mut [0; 2048]).is_err(), "its new owner tells it of the other one");
}

#[test]
fn messages_held_for_a_moving_shard_are_bounded_in_bytes() {
    let mut alone = SingleWorker::new(4);
    let desk = &mut alone.worker.ingress.host;
    let flow = Flow::new(ListenerId(0), Transport::Udp, ([127, 0, 0, 1], 5060).into());
    let tell = |desk: &mut ShardHost<ScriptedShardFactory>, length| {
        let bytes = vec![b'x'; length];
        desk.send_to_shard(
            Timestamp::ZERO,
            ShardId(1),
            ShardMessage::Message { arrival: Timestamp::ZERO, flow, bytes },
        );
    };
    for _ in 0..MAX_HELD_BYTES / 65_536 {
        tell(desk, 65_536);
    }
    assert_eq!((desk.io.counters.held_for_rebalance, desk.io.counters.handover_drops), (128, 0));
    assert!(!desk.has_room(), "connections are not read for it");
    tell(desk, 1);
    assert_eq!((desk.io.counters.held_for_rebalance, desk.io.counters.handover_drops), (128, 1));
}
