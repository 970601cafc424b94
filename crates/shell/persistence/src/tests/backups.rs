//! A backup file contains everything, and a server can continue from it.

use std::path::Path;

use super::*;
use crate::backup::{self, BackupError, BackupSpec};
use strowger_journal::Folder;

fn order(target: PathBuf) -> BackupSpec {
    BackupSpec { target, overwrite: false, extra: vec![("server-key".to_owned(), b"abc".to_vec())] }
}

#[test]
fn a_backup_of_a_running_server_has_all_acknowledged_data() {
    let mut site = Site::new(Mode::WriteThrough);
    site.limits.segment_bytes = 1 << 20;
    let server = site.start();
    for user in ["a", "b"] {
        assert!(server.register(user, 1, &contact(1)));
    }
    let target = site.folder.path().join("backup.db");
    let backup = server.engine.backup(order(target.clone()));
    let done = backup.wait().expect("written");
    assert_eq!(done.info.addresses, 2);
    assert_eq!(done.info.extra, [("server-key".to_owned(), b"abc".to_vec())]);
    assert!(server.register("c", 1, &contact(1)), "it goes on");
    let again = server.engine.backup(order(target)).wait();
    assert!(matches!(again, Err(BackupError::Store(_))), "it is not overwritten");
    drop(server);
    assert_eq!(site.start().contents().len(), 3);
}

#[test]
fn an_incomplete_backup_is_not_written() {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    assert!(server.register("a", 1, &contact(1)));
    let (good, new) = (site.folder.path().join("good.db"), site.folder.path().join("new.db"));
    let over = |target: &Path| BackupSpec { overwrite: true, ..order(target.to_owned()) };
    server.engine.backup(over(&good)).wait().expect("written");
    let before = fs::read(&good).expect("there");
    assert!(server.register("b", 1, &contact(1)));
    site.disk.set_capacity(Some(0));
    assert!(!server.register("c", 1, &contact(1)));
    for target in [&good, &new] {
        let error = server.engine.backup(over(target)).wait().expect_err("b would not be in it");
        let BackupError::Incomplete { path, why } = &error else { panic!("{error}") };
        assert_eq!(path, target);
        assert!(!why.is_empty(), "{error}");
    }
    assert_eq!(fs::read(&good).expect("there"), before, "the good one stays");
    assert!(!new.exists());

    site.disk.set_capacity(None);
    server.until_well();
    let done = server.engine.backup(over(&good)).wait().expect("written");
    assert_eq!(done.info.addresses, 2);
}

/// Starts a server on a real disk.
fn real(folder: &Path, database: PathBuf, limits: Limits) -> (Engine<TestBatch>, Arc<Locations>) {
    let address: SocketAddr = "192.0.2.100:5060".parse().expect("an address");
    let locations = Arc::new(Locations::new(4, 7).with_listeners([(Transport::Udp, address)]).with_pending_source());
    let begun = Instant::now();
    let parts = Parts {
        database,
        mode: Mode::WriteThrough,
        now: Arc::new(move || Timestamp::ZERO + begun.elapsed()),
        machine: Arc::new(crate::time::SystemClocks::new()),
        locations: Arc::clone(&locations),
        policy: Policy::default(),
        limits,
        is_filled: false,
    };
    let folder = folder.to_owned();
    let engine = Engine::start(move || Folder::open(&folder), parts).expect("it starts");
    (engine, locations)
}

fn serve(folder: &Path, database: PathBuf, limits: Limits) -> Server {
    let (engine, locations) = real(folder, database, limits);
    let server = Server {
        engine,
        locations,
        passed: Arc::default(),
        begun: Instant::now(),
        undealt: Arc::default(),
        asked: Arc::default(),
    };
    server.until(|| server.locations.is_complete());
    server
}

#[test]
fn offline_backup_and_restore_on_disk() {
    let data = TempDir::new().expect("a folder");
    let at = |name: &str| data.path().join(name);
    let (folder, database) = (at("journal"), at("strowger.db"));
    let server = serve(&folder, database.clone(), Limits::default());
    assert!(server.register("a", 1, &contact(1)));
    let running = backup::backup_offline(&folder, &database, &order(at("early.db")), |_, _| {});
    assert!(matches!(running, Err(BackupError::Running { .. })), "{running:?}");
    // A kill: the record is in the journal but not yet in the database.
    assert!(server.engine.stop(PATIENCE).clean);
    drop(server);
    let server = serve(&folder, database.clone(), Limits::default());
    assert!(server.register("b", 1, &contact(1)));
    fs::create_dir(at("killed")).expect("made");
    fs::create_dir(at("killed/journal")).expect("made");
    for name in fs::read_dir(&folder).expect("readable") {
        let name = name.expect("readable").file_name();
        fs::copy(folder.join(&name), at("killed/journal").join(&name)).expect("copied");
    }
    for name in ["strowger.db", "strowger.db-wal"] {
        let _ = fs::copy(at(name), at("killed").join(name));
    }
    drop(server);
    let (folder, database) = (at("killed/journal"), at("killed/strowger.db"));
    let done = backup::backup_offline(&folder, &database, &order(at("late.db")), |_, _| {}).expect("written");
    assert_eq!(done.info.addresses, 2);

    // The server continues, and afterwards the state is that of the backup.
    let server = serve(&folder, database.clone(), Limits::default());
    assert_eq!(server.contents().len(), 2);
    assert!(server.register("c", 1, &contact(1)));
    drop(server);
    let refused = backup::restore(&at("late.db"), &folder, &database, false);
    assert!(refused.is_err(), "not over a database without being told");
    assert!(folder.exists(), "and then nothing is moved");
    let restored = backup::restore(&at("late.db"), &folder, &database, true).expect("restored");
    assert_eq!(restored.database.info.addresses, 2);
    assert!(restored.journal_moved_aside.is_some_and(|aside| aside.exists()));
    let server = serve(&folder, database.clone(), Limits::default());
    assert_eq!(server.contents().keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(server.engine.status().load_report.damage, Vec::<String>::new());
    assert!(server.register("d", 1, &contact(1)));
    assert!(server.engine.stop(PATIENCE).clean);
    drop(server);
    assert_eq!(serve(&folder, database, Limits::default()).contents().len(), 3);
}

#[test]
fn a_removed_journal_folder_is_recreated_and_nothing_is_lost() {
    let data = TempDir::new().expect("a folder");
    let (folder, database) = (data.path().join("journal"), data.path().join("strowger.db"));
    let limits =
        Limits { late: Duration::from_millis(500), recover_every: Duration::from_millis(5), ..Limits::default() };
    let server = serve(&folder, database.clone(), limits.clone());
    assert!(server.register("a", 1, &contact(1)));
    fs::remove_dir_all(&folder).expect("removed");
    assert!(!server.register("b", 1, &contact(1)), "503: it would be lost");
    server.until_well();
    assert!(server.register("b", 2, &contact(1)));
    server.until(|| server.engine.status().checkpoint.rows >= 1);
    assert!(server.register("a", 2, &contact(1)), "a refresh, of a row that is there again");
    drop(server);
    assert_eq!(serve(&folder, database, limits).contents().len(), 2);
}

#[test]
fn startup_after_offline_backup_finds_no_damage() {
    let data = TempDir::new().expect("a folder");
    let at = |name: &str| data.path().join(name);
    let (folder, database) = (at("journal"), at("strowger.db"));
    let server = serve(&folder, database.clone(), Limits::default());
    assert!(server.register("a", 1, &contact(1)));
    assert!(server.engine.stop(PATIENCE).clean);
    drop(server);
    backup::backup_offline(&folder, &database, &order(at("early.db")), |_, _| {}).expect("written");
    let server = serve(&folder, database.clone(), Limits::default());
    server.until(|| server.engine.status().load_report.is_complete);
    assert_eq!(server.engine.status().load_report.damage, Vec::<String>::new());
    assert_eq!(server.contents().len(), 1);
}

#[test]
fn an_interrupted_restore_has_the_backup_without_the_old_journal() {
    let data = TempDir::new().expect("a folder");
    let at = |name: &str| data.path().join(name);
    let (folder, database) = (at("journal"), at("strowger.db"));
    let server = serve(&folder, database.clone(), Limits::default());
    assert!(server.register("a", 1, &contact(1)));
    server.engine.backup(order(at("backup.db"))).wait().expect("written");
    assert!(server.register("b", 1, &contact(1)));
    assert!(server.engine.stop(PATIENCE).clean);
    drop(server);
    // Killed after the database was restored, before the journal is moved.
    backup::restore_database(&at("backup.db"), &database, true).expect("restored");
    let server = serve(&folder, database.clone(), Limits::default());
    assert_eq!(server.contents().keys().collect::<Vec<_>>(), ["a"]);
    let damage = server.engine.status().load_report.damage;
    assert!(damage.iter().all(|damage| !damage.contains("missing")), "nobody is told to bring it back: {damage:?}");
    assert!(server.register("c", 1, &contact(1)));
    drop(server);
    assert_eq!(serve(&folder, database, Limits::default()).contents().len(), 2);
}
