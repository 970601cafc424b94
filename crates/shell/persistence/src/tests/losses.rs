//! Lost files, damaged checkpoints, and a database that lacks data it seemed to have.

use super::*;
use std::ops::ControlFlow;
use strowger_journal::simulated::Failure;
use strowger_journal::{Disk as _, MAX_RECORD, Operation};
use strowger_store::{LocationStore, SlotRange};

const EIO: i32 = 5;

fn sql(site: &Site) -> rusqlite::Connection {
    rusqlite::Connection::open(site.database()).expect("opens")
}

fn name_of(segment: u64) -> String {
    format!("journal-{segment:016x}.log")
}

/// Registers users until there has been a checkpoint, and three more.
fn register_many(server: &Server) -> usize {
    let mut users = 0;
    let mut register = |server: &Server| {
        users += 1;
        assert!(server.register(&format!("u{users}"), 1, &contact(1)));
    };
    while server.engine.status().checkpoint.last.is_none() {
        register(server);
    }
    (0..3).for_each(|_| register(server));
    users
}

#[test]
fn a_damaged_checkpoint_row_loses_nothing() {
    for damaged in ["'checkpoint'", "'checkpoint', 'checkpoint.copy'"] {
        let site = Site::new(Mode::WriteThrough);
        let server = site.start();
        let users = register_many(&server);
        let site = site.crash(server);
        assert!(!site.disk.names().contains(&name_of(1)), "a checkpoint has removed it");
        let damage = format!("UPDATE settings SET value = x'01' WHERE key IN ({damaged})");
        sql(&site).execute_batch(&damage).expect("damaged");
        let server = site.start();
        assert_eq!(server.contents().len(), users);
        assert_eq!(server.engine.status().load_report.damage, Vec::<String>::new());
        assert!(server.engine.stop(PATIENCE).clean);
        drop(server);
        assert_eq!(site.start().contents().len(), users);
    }
}

#[test]
fn files_stay_until_the_database_is_settled() {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    site.disk.fail(Failure::always(Operation::Remove, EIO));
    let users = register_many(&server);
    // This connection keeps the write-ahead log when the server ends, as after a kill.
    let other = LocationStore::open(site.database()).expect("opens");
    let site = site.crash(server);
    drop(other);
    let reader = LocationStore::open(site.database()).expect("opens");
    let contained = reader.checkpoint().expect("reads").expect("there was one").segment;
    let is_there = || site.disk.names().contains(&name_of(contained));
    assert!(is_there());
    let mut server = None;
    let found = reader.for_each(&SlotRange::ALL, |_| {
        // A reader is still active, so the log cannot be checkpointed into the file.
        let server = server.insert(site.start());
        assert_eq!(server.contents().len(), users);
        for number in 1.. {
            // No more contacts than one address may have, for any duration.
            assert!(server.register("one", number, &contact(1 + number % 8)));
            if server.engine.status().checkpoint.failing.is_some() {
                break;
            }
        }
        assert!(is_there());
        let other = LocationStore::open(site.database()).expect("opens");
        assert_eq!(other.checkpoint().expect("reads").map(|checkpoint| checkpoint.segment), Some(contained));
        ControlFlow::Break(())
    });
    found.expect("reads");
    drop(reader);
    let server = server.expect("there was a row");
    server.until(|| server.engine.status().checkpoint.failing.is_none() && !is_there());
    assert_eq!(server.contents().len(), users + 1);
}

#[test]
fn nothing_is_acknowledged_after_a_loss_until_a_rewrite() {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    assert!(server.register("a", 1, &contact(1)));
    let lost = site.disk.names().into_iter().find(|name| name.ends_with(".log")).expect("a segment");
    // A database lock prevents the rewrite.
    let holder = sql(&site);
    holder.execute_batch("BEGIN IMMEDIATE").expect("locked");
    site.disk.fail(Failure::once(Operation::Append, EIO));
    site.disk.fail(Failure::always(Operation::Create, EIO));
    assert!(!server.register("b", 1, &contact(1)));
    site.disk.remove(&lost).expect("removed");
    site.disk.sync_folder().expect("for good");
    site.disk.heal();
    server.until(|| server.engine.status().state.to_string().contains("rewritten to the database"));
    // A refresh contains only times of a binding, which is in the lost file.
    assert!(!server.register("a", 2, &contact(1)), "503");
    assert_eq!(server.contents().len(), 1, "calls go on");
    holder.execute_batch("ROLLBACK").expect("free");
    server.until_well();
    assert!(server.register("a", 3, &contact(1)));
    assert!(server.register("b", 3, &contact(1)));
    site.disk.stop_at(0);
    drop(server);
    for choice in site.disk.choices() {
        let site = site.with_disk(site.disk.crash(choice));
        let server = site.start();
        assert_eq!(server.contents().len(), 2, "{choice:?}");
        assert_eq!(server.engine.status().load_report.skipped, 0);
    }
}

#[test]
fn a_clean_stop_after_a_loss_writes_all() {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    assert!(server.register("a", 1, &contact(1)));
    let lost = site.disk.names().into_iter().find(|name| name.ends_with(".log")).expect("a segment");
    site.disk.fail(Failure::once(Operation::Append, EIO));
    site.disk.remove(&lost).expect("removed");
    assert!(!server.register("b", 1, &contact(1)));
    server.until_well();
    assert!(server.engine.stop(PATIENCE).clean);
    drop(server);
    assert_eq!(site.start().contents().keys().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn a_database_has_one_journal_at_a_time() {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    let (disk, folder, clocks) = (SimDisk::new(), Arc::clone(&site.folder), Arc::clone(&site.clocks));
    let second = Site { disk, folder, clocks, mode: Mode::WriteThrough, limits: site.limits.clone() };
    let why = second.try_start().err().expect("refused").to_string();
    assert!(why.contains("strowger.db is in use"), "{why}");
    assert_eq!(second.disk.names(), Vec::<String>::new(), "nothing was touched");
    assert!(server.register("a", 1, &contact(1)));
}

#[test]
fn an_overlong_record_is_counted() {
    let site = Site::new(Mode::WriteBehind);
    let server = site.start();
    let short = server.stage("a", 1, &contact(1));
    let head = 3 + "a@example.com".len();
    let mut long = short[..head].to_vec();
    let bindings = MAX_RECORD / (short.len() - head - 2) + 1;
    let count = u16::try_from(bindings).expect("fits");
    long.extend_from_slice(&if short[head] == 0 { count.to_be_bytes() } else { count.to_le_bytes() });
    (0..bindings).for_each(|_| long.extend_from_slice(&short[head + 2..]));
    assert!(long.len() > MAX_RECORD && Record::parse(&long).is_ok());
    let other = server.stage("b", 1, &contact(1));
    // A batch has one result.
    assert_eq!(server.offer(&[&other, &long]).recv_timeout(PATIENCE), Ok(false));
    assert_eq!(server.engine.status().refused, 2);
    // After a loss the whole table is rewritten, so the record must be in it.
    server.apply(&other);
    server.give(&long);
    // Records without a waiting request are already in the table, from which everything is rewritten after a loss.
    server.apply(&other);
    server.give(&other);
    server.until(|| server.engine.status().lost == 1 && server.engine.status().records == 1);
    server.until_well();
    let site = site.crash(server);
    assert_eq!(site.start().contents().keys().collect::<Vec<_>>(), ["b"]);
}
