//! Whenever the server ends, everything acknowledged is restored.

use super::*;
use strowger_journal::Operation;
use strowger_journal::simulated::{Crash, Data, Failure, Names};
use strowger_store::{Checkpoint, LocationChange, LocationStore};

const LOST: Crash = Crash::Exact(Data::Discarded, Names::Discarded);

/// Runs through new addresses, more contacts, refreshes and removals, enough for some segments. Reports to `each` the
/// contacts before and after.
fn a_run(server: &Server, mut each: impl FnMut(&str, BTreeSet<String>, BTreeSet<String>, bool)) {
    for round in 1..=4 {
        for user in ["a", "b", "c", "d"] {
            let headers = match (user, round) {
                ("b", 3) => "Contact: *|Expires: 0".to_owned(),
                ("c", _) => contact(round),
                _ => contact(1),
            };
            let before = server.contacts(user);
            let record = server.stage(user, round, &headers);
            let kept = server.offer(&[&record]).recv_timeout(PATIENCE).expect("an answer");
            // The state it would have had.
            server.apply(&record);
            let after = server.contacts(user);
            each(user, before, after, kept);
            if !kept {
                return;
            }
        }
    }
}

fn expected() -> Contents {
    let set = |numbers: &[u32]| numbers.iter().map(|number| format!("sip:{number}@192.0.2.1")).collect();
    [("a", set(&[1])), ("b", set(&[1])), ("c", set(&[1, 2, 3, 4])), ("d", set(&[1]))]
        .into_iter()
        .map(|(user, contacts)| (user.to_owned(), contacts))
        .collect()
}

#[test]
fn acknowledged_records_survive_power_loss() {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    a_run(&server, |_, _, _, kept| assert!(kept));
    assert_eq!(server.contents(), expected());
    site.disk.stop_at(0);
    drop(server);
    let site = site.with_disk(site.disk.crash(LOST));
    let server = site.start();
    assert_eq!(server.contents(), expected());
    let status = server.engine.status();
    assert_eq!((status.load_report.loaded, status.load_report.skipped), (7, 0));
    assert_eq!(status.load_report.damage, Vec::<String>::new());
}

#[test]
fn power_loss_at_any_step_is_safe() {
    let mut ends = 0;
    for operation in 0.. {
        let site = Site::new(Mode::WriteThrough);
        drop(site.start());
        let begun = site.disk.operations();
        site.disk.stop_at(begun + operation);
        let Ok(server) = site.try_start() else { continue };
        if !site.disk.is_stopped() {
            server.until(|| server.locations.is_complete() || site.disk.is_stopped());
        }
        let (mut acknowledged, mut doubtful) = (Contents::new(), None);
        if server.locations.is_complete() {
            a_run(&server, |user, before, after, kept| {
                if kept {
                    acknowledged.insert(user.to_owned(), after);
                } else {
                    doubtful = Some((user.to_owned(), before, after));
                }
            });
        }
        ends = if site.disk.is_stopped() { 0 } else { ends + 1 };
        drop(server);
        let choices = site.disk.choices();
        let choice = choices[usize::try_from(operation).expect("few") % choices.len()];
        let site = site.with_disk(site.disk.crash(choice));
        let server = site.start();
        let mut found = server.contents();
        if let Some((user, before, after)) = doubtful {
            let contacts = found.remove(&user).unwrap_or_default();
            assert!(contacts == before || contacts == after, "{operation} {choice:?}: {user} has {contacts:?}");
            acknowledged.remove(&user);
        }
        acknowledged.retain(|_, contacts| !contacts.is_empty());
        assert_eq!(found, acknowledged, "{operation} {choice:?}");
        assert!(server.register("z", 9, &contact(9)), "it goes on");
        if ends > 0 {
            assert!(operation > 60, "the run has some operations");
            return;
        }
    }
}

#[test]
fn unremoved_checkpointed_segments_are_harmless() {
    let site = Site::new(Mode::WriteThrough);
    site.disk.fail(Failure::always(Operation::Remove, 5));
    let server = site.start();
    a_run(&server, |_, _, _, kept| assert!(kept));
    server.until(|| server.engine.status().checkpoint.last.is_some());
    drop(server);
    assert!(site.disk.names().len() > 3, "the files are still there");
    site.disk.heal();
    let server = site.start();
    assert_eq!(server.contents(), expected());
}

#[test]
fn a_partly_written_checkpoint_is_rewritten() {
    // A row may already contain the final state of the journal, or any state in between.
    for rows in 0..=4 {
        let mut site = Site::new(Mode::WriteThrough);
        site.limits.segment_bytes = 1 << 20;
        let server = site.start();
        a_run(&server, |_, _, _, kept| assert!(kept));
        let mut states = Vec::new();
        server.locations.for_each_state(server.now(), |state| states.push(state.to_vec()));
        site.disk.stop_at(0);
        drop(server);
        let mut store = LocationStore::open(site.database()).expect("opened");
        let old = store.checkpoint().expect("read").unwrap_or(Checkpoint { segment: 0, stamp: Vec::new() });
        let changes = states.iter().take(rows).map(|state| {
            let record = Record::parse(state).expect("a record");
            LocationChange::Put { aor: record.aor(), expires_ms: record.expires_ms(), record: state }
        });
        store.write(changes, &old).expect("written");
        drop(store);
        let site = site.with_disk(site.disk.crash(LOST));
        let server = site.start();
        assert_eq!(server.contents(), expected(), "{rows} rows");
        assert!(server.engine.stop(PATIENCE).clean);
        drop(server);
        assert_eq!(site.start().contents(), expected(), "{rows} rows, from the database");
    }
}

#[test]
fn a_clean_stop_leaves_no_journal_to_read() {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    a_run(&server, |_, _, _, kept| assert!(kept));
    let stopped = server.engine.stop(PATIENCE);
    assert_eq!((stopped.clean, stopped.why), (true, None));
    assert!(!server.register("a", 20, &contact(1)), "nothing is kept any more");
    drop(server);
    // Everything is in the database.
    let site = site.with_disk(SimDisk::new());
    let server = site.start();
    assert_eq!(server.contents(), expected());
    assert_eq!(server.engine.status().load_report.skipped, 0);
}

#[test]
fn write_behind_records_survive_once_written() {
    let site = Site::new(Mode::WriteBehind);
    let server = site.start();
    for user in ["a", "b", "c"] {
        server.register_behind(user, 1, &contact(1));
        server.register_behind(user, 2, &contact(1));
    }
    server.until(|| server.engine.status().records >= 6);
    assert!(server.engine.status().groups < 6, "they go together");
    site.disk.stop_at(0);
    drop(server);
    let site = site.with_disk(site.disk.crash(LOST));
    assert_eq!(site.start().contents().len(), 3);
}
