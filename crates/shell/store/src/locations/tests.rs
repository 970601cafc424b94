//! A batch in several transactions.

use std::fs;
use std::sync::mpsc;

use super::*;
use crate::UserStore;

fn checkpoint(segment: u64) -> Checkpoint {
    Checkpoint { segment, stamp: Vec::new() }
}

/// Returns a store that starts a new transaction at each reading of the clock.
fn in_pieces(path: &Path, pause: Duration) -> LocationStore {
    let mut store = LocationStore::open(path).expect("opens");
    (store.max_transaction, store.pause) = (Duration::ZERO, pause);
    store
}

fn records(store: &LocationStore) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let loaded = store.for_each(&SlotRange::ALL, |location| {
        records.push(location.record.to_vec());
        ControlFlow::Continue(())
    });
    let rows = records.len() as u64;
    assert_eq!(loaded.expect("reads"), LoadCounts { rows, damaged: 0, missing: 0 });
    records
}

#[test]
fn power_loss_between_batch_transactions_is_safe() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("strowger.db");
    let mut store = in_pieces(&path, Duration::ZERO);
    let names: Vec<String> = (0..1000).map(|index| format!("user{index:04}@example.com")).collect();
    let change = |index: usize, record| LocationChange::Put { aor: names[index].as_bytes(), expires_ms: 1, record };
    store.write((0..1000).map(|index| change(index, b"first")), &checkpoint(1)).expect("written");

    let mut copies = 0;
    let batch = (0..1000).map(|index| {
        // Occasionally simulates a crash: the files as they are.
        if index % 100 == 50 {
            copies += 1;
            for suffix in ["", "-wal"] {
                let name = |name: &str| folder.path().join(format!("{name}{suffix}"));
                fs::copy(name("strowger.db"), name(&format!("crash{copies}.db"))).expect("copied");
            }
        }
        change(index, b"second")
    });
    let written = store.write(batch, &checkpoint(2)).expect("written");
    assert_eq!(written, WriteCounts { rows: 1000, transactions: 16, ..WriteCounts::default() });
    assert_eq!(store.checkpoint().expect("reads"), Some(checkpoint(2)));

    let mut partly = 0;
    for copy in 1..=copies {
        let mut crashed = LocationStore::open(folder.path().join(format!("crash{copy}.db"))).expect("opens");
        assert_eq!(crashed.checkpoint().expect("reads"), Some(checkpoint(1)), "the one before");
        let found = records(&crashed);
        assert_eq!(found.len(), 1000);
        let second = found.iter().filter(|record| record[..] == *b"second").count();
        assert_eq!(second % ROWS_PER_CLOCK_READ, 0, "whole transactions");
        partly += usize::from(second > 0);
        crashed.write((0..1000).map(|index| change(index, b"second")), &checkpoint(2)).expect("written");
        assert!(records(&crashed).iter().all(|record| record[..] == *b"second"), "writing all again is enough");
    }
    assert!(partly > 5, "{partly} of {copies}");
}

#[test]
fn a_command_is_not_starved_by_an_endless_batch() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("strowger.db");
    let mut store = in_pieces(&path, PAUSE);
    store.max_transaction = Duration::from_millis(50);
    let (begun, wait) = mpsc::channel();
    std::thread::scope(|scope| {
        let path = &path;
        let command = scope.spawn(move || {
            let mut users = UserStore::open(path).expect("opens");
            wait.recv().expect("the batch has begun");
            users.add_user("alice@example.com", "example.com", "x").expect("not locked out");
        });
        let batch = std::iter::from_fn(|| {
            let _ = begun.send(());
            let change = LocationChange::Put { aor: b"bob@example.com", expires_ms: 1, record: b"x" };
            (!command.is_finished()).then_some(change)
        });
        store.write(batch, &checkpoint(1)).expect("written");
    });
    assert_eq!(store.checkpoint().expect("reads"), Some(checkpoint(1)));
}
