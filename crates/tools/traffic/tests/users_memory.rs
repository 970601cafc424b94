//! A million of the multicore paper's users, with all their concurrent calls, in the memory that
//! docs/operating/load.md states.

mod virtual_users;

use std::time::Duration;

use strowger_traffic::engine::{Activity, CallRole};
use strowger_traffic::workload::Workload;
use virtual_users::World;

const USERS: u32 = 1_000_000;
/// In the model's time: long enough to measure the memory of a call.
const TIME: Duration = Duration::from_secs(60);
/// Concurrent calls of a million users: each has one for a ring time and a hold time per think time.
const AT_ONCE: usize = 60_000;
/// Maximum memory of an idle user, in bytes: a time and a count for each of two activities.
const WAITING: usize = 56;
/// Maximum memory of all users, in bytes, apart from the program's own 25 MB.
const ALL: usize = 256 << 20;

/// Returns the resident memory of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

#[test]
fn a_million_model_users_fit_the_memory_goal() {
    let workload = Workload::parse("users", &[], 1.0).expect("the model");
    // A registration ends with its answer. Only the users that wait for their next one matter here, and beginning
    // none saves time.
    let lazily = |habit: &Activity| match habit.who {
        CallRole::Caller => habit.clone(),
        CallRole::Callee => Activity { gap: strowger_traffic::law::Law::parse("1d").expect("a law"), ..habit.clone() },
    };
    let habits: Vec<_> = workload.activities.iter().map(lazily).collect();
    let before = resident();
    let mut world = World::new(&workload, USERS, &habits);
    let waiting = resident() - before;
    world.keeps = false;
    world.run(TIME, true);
    let (caller, callee) = (world.caller.session_count(), world.callee.session_count());
    assert!(caller > 10_000 && callee > 10_000, "{caller} and {callee} sessions");
    // Memory of a call at both ends, including everything that ended meanwhile.
    let call = (resident() - before - waiting) / caller;
    let all = waiting + call * AT_ONCE;
    println!("{} bytes a user who waits, {call} bytes a call; {} MiB for all", waiting / USERS as usize, all >> 20);
    // It includes a page or two of the process itself.
    assert!(waiting < (WAITING + 1) * USERS as usize, "{waiting} bytes");
    assert!(all < ALL, "{all} bytes");
}
