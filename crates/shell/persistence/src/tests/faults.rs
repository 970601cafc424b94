//! The server continues whatever the disk does, and acknowledges only what it stores.

use super::*;
use strowger_journal::simulated::Failure;

const EIO: i32 = 5;
const EACCES: i32 = 13;
const EROFS: i32 = 30;

/// Starts a server with one registration, just after `break_it`.
fn broken(site: &Site, break_it: impl FnOnce(&SimDisk)) -> Server {
    let server = site.start();
    assert!(server.register("before", 1, &contact(1)));
    break_it(&site.disk);
    assert!(!server.register("refused", 1, &contact(1)), "503");
    let State::Failing { why, remedy, .. } = server.engine.status().state else { panic!("it does not show") };
    assert!(why.contains("journal-") && !remedy.is_empty(), "{why}; {remedy}");
    assert!(!server.register("refused", 2, &contact(1)), "503 at once");
    assert_eq!(server.contacts("before").len(), 1, "calls go on");
    server
}

/// Checks that the server works again and that acknowledged registrations survive a loss of power.
fn mended(site: &Site, server: Server) {
    server.until_well();
    assert!(server.register("after", 1, &contact(1)));
    let status = server.engine.status();
    assert_eq!((status.faults, status.recoveries), (1, 1));
    assert!(status.refused >= 2);
    site.disk.stop_at(0);
    drop(server);
    for choice in site.disk.choices() {
        let site = site.with_disk(site.disk.crash(choice));
        let contents = site.start().contents();
        assert_eq!(contents.keys().collect::<Vec<_>>(), ["after", "before"], "{choice:?}");
    }
}

#[test]
fn a_full_disk_recovers() {
    let site = Site::new(Mode::WriteThrough);
    let server = broken(&site, |disk| disk.set_capacity(Some(0)));
    site.disk.set_capacity(None);
    mended(&site, server);
}

#[test]
fn a_failed_sync() {
    for lose in [false, true] {
        let site = Site::new(Mode::WriteThrough);
        let server = broken(&site, |disk| {
            disk.fail(Failure { lose, ..Failure::once(Operation::Sync, EIO) });
            disk.fail(Failure::always(Operation::Create, EIO));
        });
        site.disk.heal();
        mended(&site, server);
    }
}

#[test]
fn a_file_system_turned_read_only() {
    let writes = [
        Operation::Append,
        Operation::Create,
        Operation::Sync,
        Operation::Truncate,
        Operation::Rename,
        Operation::Remove,
        Operation::SyncFolder,
    ];
    let site = Site::new(Mode::WriteThrough);
    let server =
        broken(&site, |disk| writes.map(|on| Failure::always(on, EROFS)).into_iter().for_each(|f| disk.fail(f)));
    site.disk.heal();
    mended(&site, server);
    // And a disk that fails from the start.
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    assert!(server.register("before", 1, &contact(1)));
    let site = site.crash(server);
    writes.map(|on| Failure::always(on, EROFS)).into_iter().for_each(|failure| site.disk.fail(failure));
    let server = site.start();
    assert_eq!(server.contents().len(), 1, "what was kept is served");
    assert!(!server.register("refused", 1, &contact(1)));
    let state = server.engine.status().state.to_string();
    assert!(state.contains("mount it for writing"), "{state}");
    site.disk.heal();
    server.until_well();
    assert!(server.register("after", 1, &contact(1)));
}

#[test]
fn a_wrong_owner_is_reported_at_start() {
    for on in [Operation::Create, Operation::List] {
        let site = Site::new(Mode::WriteThrough);
        site.disk.fail(Failure::always(on, EACCES));
        let error = site.try_start().err().expect("refused").to_string();
        assert!(error.contains("chown"), "{error}");
    }
}

#[test]
fn a_wrong_owner_while_running() {
    let site = Site::new(Mode::WriteThrough);
    let server = broken(&site, |disk| {
        disk.fail(Failure::once(Operation::Append, EACCES));
        disk.fail(Failure::always(Operation::Create, EACCES));
    });
    site.disk.heal();
    mended(&site, server);
}

#[test]
fn an_unreadable_disk_at_start_is_retried() {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    assert!(server.register("before", 1, &contact(1)));
    let site = site.crash(server);
    site.disk.fail(Failure::always(Operation::List, EIO));
    let server = site.try_start().expect("it starts all the same");
    let record = server.stage("refused", 1, &contact(1));
    assert_eq!(server.offer(&[&record]).recv_timeout(PATIENCE), Ok(false));
    assert!(matches!(server.engine.status().state, State::Opening { .. }));
    assert!(!server.locations.is_complete());
    let target = site.folder.path().join("backup.db");
    let order = crate::BackupSpec { target: target.clone(), overwrite: false, extra: Vec::new() };
    let backup = server.engine.backup(order).wait();
    assert!(matches!(backup, Err(crate::BackupError::Incomplete { .. })), "{backup:?}");
    assert!(!target.exists());
    site.disk.heal();
    server.until_well();
    assert_eq!(server.contents().keys().collect::<Vec<_>>(), ["before"]);
    assert!(server.register("after", 1, &contact(1)));
}

#[test]
fn a_slow_disk_is_shown_and_waiting_is_bounded() {
    let mut site = Site::new(Mode::WriteThrough);
    site.limits.waiting_records = 2;
    let server = site.start();
    assert!(server.register("before", 1, &contact(1)));
    let (arrivals, go_on) = site.gate(|operation| operation == Operation::Sync);
    let records = ["first", "second", "third", "fourth"].map(|user| server.stage(user, 1, &contact(1)));
    let first = server.offer(&[&records[0]]);
    arrivals.recv_timeout(PATIENCE).expect("a sync begins");
    let second = server.offer(&[&records[1]]);
    let third = server.offer(&[&records[2]]);
    assert_eq!(server.offer(&[&records[3]]).try_recv(), Ok(false), "too many wait: 503 at once");
    let state = server.engine.status().state.to_string();
    assert!(state.contains("registrations arrive faster"), "{state}");
    server.pass(Duration::from_secs(5));
    let status = server.engine.status();
    assert!(status.state.to_string().contains("in progress for 5 s"), "{}", status.state);
    assert_eq!(status.waiting, 2);
    drop(go_on);
    assert_eq!(first.recv_timeout(PATIENCE), Ok(true));
    assert_eq!(second.recv_timeout(PATIENCE), Ok(false), "who waited has given up");
    assert_eq!(third.recv_timeout(PATIENCE), Ok(false));
    server.until_well();
    let status = server.engine.status();
    assert_eq!((status.refused, status.late), (3, 2));
    assert!(status.commit_longest >= Duration::from_secs(5));
    assert!(server.register("after", 1, &contact(1)));
    site.disk.set_hook(None);
    drop(server);
    let contents = site.start().contents();
    assert_eq!(contents.keys().collect::<Vec<_>>(), ["after", "before", "first"]);
}

#[test]
fn records_during_a_sync_form_one_group() {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    let (arrivals, go_on) = site.gate(|operation| operation == Operation::Sync);
    let records: Vec<Vec<u8>> = (0..50).map(|user| server.stage(&format!("u{user}"), 1, &contact(1))).collect();
    let first = server.offer(&[&records[0]]);
    arrivals.recv_timeout(PATIENCE).expect("a sync begins");
    let others: Vec<_> = records[1..].iter().map(|record| server.offer(&[record])).collect();
    drop(go_on);
    assert_eq!(first.recv_timeout(PATIENCE), Ok(true));
    assert!(others.iter().all(|answer| answer.recv_timeout(PATIENCE) == Ok(true)));
    // A group is counted once its requesters have been notified.
    server.until(|| server.engine.status().groups >= 2);
    assert_eq!(server.engine.status().groups, 2);
    site.disk.set_hook(None);
}

#[test]
fn write_behind_keeps_all_after_a_disk_fault() {
    let site = Site::new(Mode::WriteBehind);
    let server = site.start();
    server.register_behind("a", 1, &contact(1));
    server.until(|| server.engine.status().records == 1);
    site.disk.set_capacity(Some(0));
    for cseq in 2..10 {
        server.register_behind("a", cseq, &contact(cseq % 3));
        server.register_behind("b", cseq, &contact(cseq % 2));
        server.register_behind(
            "c",
            cseq,
            if cseq == 9 { "Contact: *|Expires: 0" } else { "Contact: <sip:c@192.0.2.1>" },
        );
    }
    server.until(|| server.engine.status().unwritten == 3);
    assert!(matches!(server.engine.status().state, State::Failing { .. }));
    let before = server.contents();
    assert_eq!(before.len(), 2);
    site.disk.set_capacity(None);
    server.until(|| server.engine.status().state == State::Ok && server.engine.status().unwritten == 0);
    server.register_behind("b", 20, "Contact: *|Expires: 0");
    let records = server.engine.status().records;
    server.until(|| server.engine.status().records > records || server.engine.status().waiting == 0);
    assert!(server.engine.stop(PATIENCE).clean);
    assert_eq!(server.engine.status().lost, 0);
    drop(server);
    let after = site.start().contents();
    assert_eq!(after.get("a"), before.get("a"));
    assert_eq!(after.len(), 1, "what was removed stays away");
}

#[test]
fn records_without_room_are_rewritten_from_memory() {
    let mut site = Site::new(Mode::WriteBehind);
    site.limits.unwritten_addresses = 2;
    site.limits.late = Duration::from_millis(10);
    let server = site.start();
    site.disk.set_capacity(Some(0));
    for user in ["a", "b", "c", "d", "e"] {
        server.register_behind(user, 1, &contact(1));
    }
    server.until(|| server.engine.status().lost == 3);
    site.disk.set_capacity(None);
    server.until(|| server.engine.status().state == State::Ok && server.engine.status().checkpoint.rows == 5);
    // A refresh contains only times; it depends on what was lost.
    server.register_behind("e", 2, &contact(1));
    assert!(server.engine.stop(PATIENCE).clean);
    drop(server);
    let server = site.start();
    assert_eq!(server.contents().len(), 5);
    assert_eq!(server.engine.status().load_report.skipped, 0);
}

#[test]
fn lost_or_unreadable_journal_files_are_replaced_from_memory() {
    let mut site = Site::new(Mode::WriteThrough);
    site.limits.late = Duration::from_millis(200);
    let server = site.start();
    site.disk.fail(Failure::always(Operation::Read, EIO));
    let mut users = 0;
    while server.engine.status().checkpoint.failing.is_none() {
        users += 1;
        assert!(server.register(&format!("u{users}"), 1, &contact(1)));
    }
    // No file can be read, so the table in memory becomes the checkpoint.
    server.until(|| {
        server.engine.status().checkpoint.rows >= users && server.engine.status().checkpoint.failing.is_none()
    });
    site.disk.heal();
    assert!(server.register("u1", 2, &contact(1)));
    drop(server);
    let server = site.start();
    assert_eq!(server.contents().len() as u64, users);
    assert_eq!(server.engine.status().load_report.skipped, 0);
}

#[test]
fn a_full_journal_resumes_after_a_checkpoint() {
    let mut site = Site::new(Mode::WriteThrough);
    site.limits.journal_bytes = 4000;
    let server = site.start();
    // A checkpoint begins with a read.
    let (_, open) = site.gate(|operation| operation == Operation::Read);
    let mut users = 0;
    while server.register(&format!("u{users}"), 1, &contact(1)) {
        users += 1;
        assert!(users < 100, "it has to be full at some time");
    }
    let state = server.engine.status().state.to_string();
    assert!(state.contains("checkpoint"), "{state}");
    drop(open);
    server.until_well();
    assert!(server.register("after", 1, &contact(1)));
    site.disk.set_hook(None);
    drop(server);
    assert_eq!(site.start().contents().len(), users + 1);
}
