//! CPU affinity of workers. In a file of its own because threads are found by name.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use strowger_directory::Directory;
use strowger_foundation::Transport;
use strowger_locate::{CachePolicy, NameCache};
use strowger_net::{BufferSizes, Clock, UdpSocket};
use strowger_registrar::Locations;
use strowger_shard::{Listener, Snapshot};
use strowger_worker::{Fleet, FleetConfig, Socket, StreamLimits, WorkerOptions, shards_of};

const DEADLINE: Duration = Duration::from_secs(20);

fn start(workers: usize, cores: Vec<usize>) -> Fleet {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let first: Socket = UdpSocket::bind(local, BufferSizes::DEFAULT).expect("loopback has a free port").into();
    let listeners = vec![Listener::new(Transport::Udp, first.local_addr())];
    let others: Vec<_> = (1..workers).map(|_| vec![first.sibling().expect("the address is ours")]).collect();
    let config = FleetConfig {
        sockets: std::iter::once(vec![first]).chain(others).collect(),
        snapshot: Arc::new(Snapshot::new(listeners, vec![b"example.com".as_slice().into()], Directory::empty(1))),
        seed: 1,
        key: [7; 16],
        clock: Clock::start(),
        events: sync_channel(1).0,
        streams: StreamLimits::default(),
        names: Arc::new(NameCache::new(CachePolicy::default(), 1)),
        resolver: None,
        locations: Arc::new(Locations::new(shards_of(workers).expect("few"), 1)),
        record_sink: None,
        nonces: None,
        tracer: Arc::default(),
        options: WorkerOptions { cores, ..WorkerOptions::default() },
    };
    Fleet::start(config).expect("threads")
}

/// Returns the CPUs allowed for the thread of this name, in the kernel's notation; `None` if there is no such thread.
fn allowed(name: &str) -> Option<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("the kernel tells");
    let statuses = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
    statuses.into_iter().find_map(|status| {
        let value = |key: &str| status.lines().find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()));
        (value("Name:")? == name).then(|| value("Cpus_allowed_list:"))?
    })
}

#[test]
fn workers_stay_on_the_cores_that_they_are_given() {
    let status = fs::read_to_string("/proc/thread-self/status").expect("the kernel tells");
    let all = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("it has some").trim();
    // For example "0-3,8".
    let ends: Vec<usize> = all.split([',', '-']).map(|core| core.parse().expect("a number")).collect();
    let [first, last] = [ends[0], ends[ends.len() - 1]];
    let fleet = start(3, vec![last, first]);
    let expected = [last.to_string(), first.to_string(), all.to_owned()].map(Some);
    let deadline = Instant::now() + DEADLINE;
    loop {
        let found = ["worker-0", "worker-1", "worker-2"].map(allowed);
        if found == expected {
            break;
        }
        assert!(Instant::now() < deadline, "{found:?}, not {expected:?}");
        std::thread::yield_now();
    }
    fleet.stop();
}
