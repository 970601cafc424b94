//! Background work: nothing waits for it, it loses nothing, and it costs little.

use super::*;
use crate::failure::StoreFailure;
use crate::group_commit::ENOUGH;
use crate::queue::{Queue, StoreCommand};
use crate::shared::Shared;
use crate::status::State;
use std::thread;
use strowger_journal::simulated::Failure;

const EIO: i32 = 5;

/// Returns records of different addresses.
fn records(count: u32) -> Vec<Vec<u8>> {
    let site = Site::new(Mode::WriteBehind);
    let template = site.start().stage("user000000", 1, &contact(1));
    let at = template.windows(10).position(|window| window == b"user000000").expect("in it");
    let record = |number: u32| {
        let mut record = template.clone();
        record[at..at + 10].copy_from_slice(format!("user{number:06}").as_bytes());
        record
    };
    (0..count).map(record).collect()
}

fn batch(records: Vec<Vec<u8>>) -> TestBatch {
    TestBatch { records, reply: None, token: None, undealt: None }
}

#[test]
fn a_long_outage_does_not_block_workers() {
    let queue: Queue<TestBatch> = Queue::new(Mode::WriteBehind, Limits::default(), true);
    let records = records(100_000);
    queue.push(batch(records.clone()), Timestamp::ZERO);
    assert_eq!(queue.counters().unwritten, 100_000);
    let begun = Instant::now();
    for _ in 0..100 {
        queue.mark_broken(queue.backlog());
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "nothing is new, nothing is done: {:?}", begun.elapsed());
    // All of them failed again and are put below what arrived in the meantime.
    let mut failed = queue.backlog();
    for record in &records {
        failed.add(record);
    }
    let longest = thread::scope(|scope| {
        let merging = scope.spawn(|| {
            let begun = Instant::now();
            queue.mark_broken(failed);
            begun.elapsed()
        });
        let (mut longest, mut kept) = (Duration::ZERO, 0);
        while !merging.is_finished() {
            let begun = Instant::now();
            queue.push(batch(vec![records[kept % 7].clone()]), Timestamp::ZERO);
            longest = longest.max(begun.elapsed());
            kept += 1;
        }
        let took = merging.join().expect("whole");
        assert!(longest < took / 3, "{longest:?} of {took:?}");
        longest
    });
    assert!(longest > Duration::ZERO);
    let counters = queue.counters();
    assert_eq!((counters.unwritten, counters.lost), (100_000, 0));
}

#[test]
fn merged_records_keep_their_order() {
    let site = Site::new(Mode::WriteBehind);
    let server = site.start();
    let state = server.stage("a", 1, &contact(1));
    server.apply(&state);
    let refresh = server.stage("a", 2, &contact(1));
    assert!(Record::parse(&refresh).expect("a record").is_refresh());
    let queue: Queue<TestBatch> = Queue::new(Mode::WriteBehind, Limits::default(), true);
    queue.push(batch(vec![refresh]), Timestamp::ZERO);
    let mut failed = queue.backlog();
    failed.add(&state);
    queue.mark_broken(failed);
    queue.mark_recovered();
    let work = queue.wait(Duration::ZERO, &|| Timestamp::ZERO);
    let unwritten = work.unwritten.expect("there is something");
    let newest =
        unwritten.records().find(|state| Record::parse(state).is_ok_and(|record| record.aor() == b"a@example.com"));
    let newest = newest.expect("there");
    let newest = Record::parse(newest).expect("a record");
    assert!(!newest.is_refresh() && newest.expires_ms() >= Record::parse(&state).expect("a record").expires_ms());
}

#[test]
fn a_blocked_rewrite_is_retried_at_intervals() {
    const EVERY: Duration = Duration::from_millis(50);
    /// The threads count their retries in real time, so this time has to pass.
    const EIGHT_TRIES: Duration = Duration::from_millis(400);
    let mut site = Site::new(Mode::WriteThrough);
    site.limits.recover_every = EVERY;
    let server = site.start();
    assert!(server.register("a", 1, &contact(1)));
    site.disk.set_capacity(Some(0));
    assert!(!server.register("b", 1, &contact(1)));
    server.engine.shared().request_rewrite();
    server.until(|| server.engine.status().checkpoint.failing.is_some());
    let asked = server.asked.load(Ordering::Relaxed);
    thread::sleep(EIGHT_TRIES);
    let asked = server.asked.load(Ordering::Relaxed) - asked;
    assert!((1..500).contains(&asked), "the threads asked for the time {asked} times in eight tries");
    site.disk.set_capacity(None);
    server.until(|| server.engine.status().checkpoint.rows == 1);
}

#[test]
fn a_rewrite_waits_for_records_not_yet_in_the_table() {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    assert!(server.register("a", 1, &contact(1)));
    let record = server.stage("b", 1, &contact(1));
    assert_eq!(server.offer_undealt(&[&record]).recv_timeout(PATIENCE), Ok(true));
    // The record was acknowledged, its file cannot be read, and the worker is busy.
    site.disk.fail(Failure::always(Operation::Read, EIO));
    server.engine.shared().request_rewrite();
    // The checkpoint thread waits for the worker's tokens.
    server.until(|| server.undealt.lock().expect("whole").iter().any(|token| Arc::weak_count(token) > 0));
    assert_eq!(server.engine.status().checkpoint.rows, 0);
    server.apply(&record);
    server.undealt.lock().expect("whole").clear();
    server.until(|| server.engine.status().checkpoint.rows == 2);
    site.disk.heal();
    let site = site.crash(server);
    assert_eq!(site.start().contents().len(), 2);
}

#[test]
fn a_recovered_fault_does_not_hide_an_ended_thread() {
    let shared: Shared<TestBatch> = Shared::new(Mode::WriteThrough, Limits::default(), Arc::new(|| Timestamp::ZERO));
    let trouble = |why: &str| StoreFailure { why: why.to_owned(), remedy: "none".to_owned() };
    shared.end(trouble("a thread ended"));
    shared.mark_broken(Timestamp::ZERO, trouble("no room"));
    shared.mark_recovered(Timestamp::ZERO);
    let state = shared.status().state;
    assert!(matches!(&state, State::Failing { why, .. } if why == "a thread ended"), "{state}");
}

#[test]
fn refreshes_renew_only_their_own_rows() {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    assert!(server.register("a", 1, &contact(1)));
    assert!(server.register("b", 1, &contact(1)));
    server.engine.shared().request_rewrite();
    server.until(|| server.engine.status().checkpoint.rows == 2);
    server.pass(Duration::from_secs(3000));
    let refresh = server.stage("a", 2, &contact(1));
    assert!(Record::parse(&refresh).expect("a record").is_refresh());
    assert!(server.register("a", 2, &contact(1)));
    assert!(server.register("b", 2, "Contact: *|Expires: 0"));
    assert!(server.engine.stop(PATIENCE).clean);
    drop(server);
    let server = site.start();
    server.pass(Duration::from_secs(2000));
    assert_eq!(server.contents().keys().collect::<Vec<_>>(), ["a"], "the refresh counts");
}

/// Returns a queue to which records arrive steadily, and the time.
fn steady() -> (Queue<TestBatch>, Timestamp, Vec<u8>) {
    // So long that a test that waits for it fails.
    let limits = Limits { company: PATIENCE * 10, ..Limits::default() };
    let queue: Queue<TestBatch> = Queue::new(Mode::WriteThrough, limits, false);
    let record = records(1).remove(0);
    let mut now = Timestamp::ZERO + Duration::from_secs(1);
    // Just long enough for the measurement.
    for _ in 0..105 {
        now += Duration::from_micros(200);
        queue.push(batch(vec![record.clone()]), now);
        assert_eq!(queue.wait(Duration::ZERO, &|| now).batches.len(), 1);
    }
    (queue, now, record)
}

#[test]
fn steady_records_share_a_sync_and_a_full_group_does_not_wait() {
    let (queue, now, record) = steady();
    let work = thread::scope(|scope| {
        let waiting = scope.spawn(|| queue.wait(Duration::MAX, &|| now));
        for _ in 0..ENOUGH {
            assert!(!waiting.is_finished(), "it waits for company");
            queue.push(batch(vec![record.clone()]), now);
        }
        waiting.join().expect("whole")
    });
    assert_eq!(work.batches.len(), ENOUGH);
}

#[test]
fn a_command_does_not_wait_for_more_records() {
    let (queue, now, record) = steady();
    queue.push(batch(vec![record]), now);
    let work = thread::scope(|scope| {
        let waiting = scope.spawn(|| queue.wait(Duration::MAX, &|| now));
        queue.send(StoreCommand::End);
        waiting.join().expect("whole")
    });
    assert_eq!((work.batches.len(), work.commands.len()), (1, 1));
}
