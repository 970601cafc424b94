//! CPU affinity of workers. In a file of its own because threads are found by name.

mod support;

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use strowger_worker::{Fleet, FleetConfig, WorkerOptions};
use support::DEADLINE;

fn start(workers: usize, cores: Vec<usize>) -> Fleet {
    let sockets = support::sockets(workers, 1);
    let snapshot = Arc::new(support::snapshot(&sockets[0]));
    let options = WorkerOptions { cores, ..WorkerOptions::default() };
    Fleet::start(FleetConfig { options, ..support::config(sockets, snapshot) }).expect("threads")
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
fn workers_stay_on_their_given_cores() {
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
