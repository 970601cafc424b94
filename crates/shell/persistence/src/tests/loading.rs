//! Loading at startup.

use super::*;

/// Selects what the loader reads.
fn is_loading(operation: Operation) -> bool {
    operation == Operation::Read && std::thread::current().name() == Some("strowger-load")
}

#[test]
fn removals_while_loading_stay_removed() {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    assert!(server.register("a", 1, &contact(1)));
    assert!(server.register("b", 1, &contact(1)));
    let site = site.crash(server);
    let server = site.try_start().expect("it starts");
    server.until(|| server.locations.is_complete());
    drop(server);
    let server = site.start();
    assert!(server.register("a", 2, &contact(1)));
    let site = site.crash(server);
    let (arrivals, go_on) = site.gate(is_loading);
    let server = site.try_start().expect("it starts");
    arrivals.recv_timeout(PATIENCE).expect("loading begins");
    assert!(matches!(server.engine.status().state, State::Loading { .. }));
    let mut removal = Vec::new();
    server.locations.remove_address(server.now(), b"a@example.com", &mut removal);
    server.give(&removal);
    drop(go_on);
    server.until_well();
    assert_eq!(server.contents().keys().collect::<Vec<_>>(), ["b"]);
    drop(server);
    site.disk.set_hook(None);
    assert_eq!(site.start().contents().keys().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn a_damaged_byte_is_reported_and_the_rest_loads() {
    let mut site = Site::new(Mode::WriteThrough);
    site.limits.segment_bytes = 1 << 20;
    let server = site.start();
    for user in ["a", "b", "c"] {
        assert!(server.register(user, 1, &contact(1)));
    }
    let site = site.crash(server);
    let name = site.disk.names().into_iter().rfind(|name| name.ends_with(".log")).expect("a segment");
    let mut bytes = site.disk.contents(&name).expect("there");
    let at = bytes.windows(13).position(|window| window == b"b@example.com").expect("in it");
    bytes[at] ^= 1;
    site.disk.put(&name, &bytes);
    let server = site.start();
    assert_eq!(server.contents().keys().collect::<Vec<_>>(), ["a"]);
    let status = server.engine.status();
    assert_eq!(status.load_report.damage.len(), 1, "{:?}", status.load_report.damage);
    assert_eq!(status.state, State::Ok);
    assert!(server.register("b", 1, &contact(1)));
}

#[test]
fn invalid_records_are_skipped_and_counted() {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    assert!(server.register("a", 1, &contact(1)));
    assert_eq!(server.offer(&[b"not a record"]).recv_timeout(PATIENCE), Ok(true));
    let site = site.crash(server);
    let server = site.start();
    assert_eq!(server.contents().len(), 1);
    let found = server.engine.status().load_report;
    assert_eq!((found.loaded, found.expired, found.skipped, found.is_complete), (1, 0, 1, true));
}

#[test]
fn several_threads_load_many_records() {
    let mut site = Site::new(Mode::WriteThrough);
    site.limits.segment_bytes = 64 << 10;
    site.limits.load_threads = 3;
    let server = site.start();
    for part in 0..20 {
        let records: Vec<Vec<u8>> =
            (0..100).map(|user| server.stage(&format!("u{part}-{user}"), 1, &contact(1))).collect();
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        assert_eq!(server.offer(&records).recv_timeout(PATIENCE), Ok(true));
        records.iter().for_each(|record| server.apply(record));
    }
    server.until_checkpointed();
    // Some have a refresh in the journal, some were removed.
    for user in 0..50 {
        assert!(server.register(&format!("u3-{user}"), 2, &contact(1)));
        assert!(server.register(&format!("u4-{user}"), 2, "Contact: *|Expires: 0"));
    }
    let before = server.contents();
    assert_eq!(before.len(), 1950);
    let site = site.crash(server);
    let server = site.start();
    assert_eq!(server.contents(), before);
    let found = server.engine.status().load_report;
    assert_eq!((found.loaded, found.expired, found.skipped), (1950, 0, 0));
    server.locations.check_invariants();
}

#[test]
fn only_expired_rows_are_purged() {
    let mut site = Site::new(Mode::WriteThrough);
    site.limits.checkpoint_every = Duration::from_secs(600);
    let server = site.start();
    assert!(server.register("short", 1, "Contact: <sip:a@192.0.2.1>;expires=60"));
    assert!(server.register("long", 1, "Contact: <sip:a@192.0.2.1>;expires=7200"));
    server.pass(Duration::from_secs(1300));
    // Closing a segment also checks the time.
    for cseq in 1..20 {
        assert!(server.register("other", cseq, &contact(1)));
    }
    server.until(|| server.engine.status().checkpoint.purged == 1);
    assert_eq!(server.engine.status().checkpoint.rows, 2);
    drop(server);
    assert_eq!(site.start().contents().keys().collect::<Vec<_>>(), ["long", "other"]);
}

#[test]
fn a_backup_requested_while_loading_waits_for_completion() {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    assert!(server.register("a", 1, &contact(1)));
    assert!(server.register("b", 1, &contact(1)));
    let site = site.crash(server);
    let (arrivals, go_on) = site.gate(is_loading);
    let server = site.try_start().expect("it starts");
    arrivals.recv_timeout(PATIENCE).expect("loading begins");
    let order = crate::BackupSpec { target: site.folder.path().join("b.db"), overwrite: false, extra: Vec::new() };
    let files = site.disk.names();
    let backup = server.engine.backup(order);
    // The clock has been read once the checkpoint thread has checked the timer.
    let asked = server.asked.load(Ordering::Relaxed);
    server.until(|| server.asked.load(Ordering::Relaxed) > asked + 3);
    assert!(backup.try_wait().is_none());
    assert_eq!(site.disk.names(), files, "nothing goes that the loader reads");
    drop(go_on);
    let done = backup.wait().expect("written");
    assert_eq!(done.info.addresses, 2);
    assert_eq!(server.engine.status().load_report.skipped, 0);
    assert_eq!(server.contents().len(), 2);
}
