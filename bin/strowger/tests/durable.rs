//! Durable registrations, and the status shown to the operator.

mod common;

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;

use common::Folder;
use common::server::Server;

/// A numbered phone with its socket and registration.
struct Phone {
    socket: UdpSocket,
    name: String,
    requests: u32,
}

impl Phone {
    fn new(name: &str) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        Self { socket, name: name.to_owned(), requests: 0 }
    }

    /// Registers for `expires` seconds, or unregisters with 0. Returns the first line of the response.
    fn register(&mut self, server: &Server, expires: u32) -> String {
        self.requests += 1;
        let (name, number) = (&self.name, self.requests);
        let local = self.socket.local_addr().expect("bound");
        let response = server.ask(
            &self.socket,
            &format!(
                "REGISTER sip:localhost SIP/2.0\nFrom: <sip:{name}@localhost>;tag=2\nTo: <sip:{name}@localhost>\n\
                 Call-ID: {name}-{local}\nCSeq: {number} REGISTER\nContact: <sip:{name}@{local}>\nExpires: {expires}\n\
                 X-Number: {:width$}",
                "",
                width = usize::try_from(number).expect("small")
            ),
        );
        response.lines().next().unwrap_or_default().to_owned()
    }

    fn registered(name: &str, server: &Server) -> Self {
        let mut phone = Self::new(name);
        assert_eq!(phone.register(server, 600), "SIP/2.0 200 OK");
        phone
    }
}

/// Returns the registered users in alphabetical order.
fn registered(server: &Server) -> Vec<String> {
    let listed = server.folder.run(&["ctl", "registrations", "--json"]).json();
    let rows = listed["registrations"].as_array().expect("a list");
    let mut names: Vec<String> = rows.iter().map(|row| row["aor"].as_str().expect("text").to_owned()).collect();
    names.sort_unstable();
    names
}

fn killed(mut server: Server) -> Server {
    server.signal("KILL");
    assert_eq!(server.ended(), None, "by a signal");
    server.restart()
}

fn told_to_end(mut server: Server) -> Server {
    server.signal("TERM");
    assert_eq!(server.ended(), Some(0));
    server.restart()
}

#[test]
fn a_phone_that_got_200_survives_a_kill() {
    let server = Server::start("");
    let mut alice = Phone::registered("alice", &server);
    let mut bob = Phone::registered("bob", &server);
    assert_eq!(bob.register(&server, 0), "SIP/2.0 200 OK");
    let server = killed(server);
    assert_eq!(registered(&server), ["alice@localhost"], "who has left does not come back");
    let status = server.status();
    let found = &status["store"]["disk"]["found"];
    assert_eq!((&found["loaded"], &found["is_complete"]), (&1.into(), &true.into()), "{status}");
    assert_eq!(alice.register(&server, 600), "SIP/2.0 200 OK");
    let server = killed(killed(server));
    assert_eq!(registered(&server), ["alice@localhost"]);
    let listed = server.folder.run(&["ctl", "registrations", "--json"]).json();
    let row = &listed["registrations"][0];
    let local = alice.socket.local_addr().expect("bound").to_string();
    assert_eq!(row["contact"], format!("sip:alice@{local}"));
    assert_eq!(row["source"], local);
    assert!(row["expires_s"].as_u64().is_some_and(|left| (500..=600).contains(&left)), "{row}");
}

#[test]
fn a_clean_stop_leaves_no_journal_to_read_and_loses_nothing() {
    for mode in ["write-through", "write-behind"] {
        let server = Server::start(&format!("store.mode = \"{mode}\"\n"));
        let phones = ["alice", "bob", "carol"].map(|name| Phone::registered(name, &server));
        let server = told_to_end(server);
        assert_eq!(registered(&server), ["alice@localhost", "bob@localhost", "carol@localhost"], "{mode}");
        let status = server.status();
        assert_eq!(status["store"]["disk"]["checkpoint"]["rows"], 3, "{mode}: {status}");
        let line = format!("registrations: {mode}, 3 loaded in ");
        assert!(server.log().contains(&line), "{}", server.log());
        assert!(!server.log().contains("WARN") && !server.log().contains("ERROR"), "{}", server.log());
        drop(phones);
    }
}

#[test]
fn memory_forgets() {
    let server = Server::start("store.mode = \"memory\"\n");
    let _alice = Phone::registered("alice", &server);
    let text = server.folder.run(&["ctl", "status"]).ok();
    assert!(text.contains("store          memory: registrations are lost when the server stops\n"), "{text}");
    let server = told_to_end(server);
    assert!(registered(&server).is_empty());
    assert!(!server.folder.path().join("data/journal").exists(), "it leaves nothing on the disk");
}

#[test]
fn the_mode_cannot_change_at_runtime() {
    let server = Server::start("");
    let file = server.folder.path().join("strowger.toml");
    let config = fs::read_to_string(&file).expect("the configuration");
    for (more, key) in
        [("store.mode = \"memory\"", "store.mode"), ("store.url = \"sqlite:data/other.db\"", "store.url")]
    {
        server.folder.write("strowger.toml", &format!("{config}{more}\n"));
        let error = server.folder.run(&["ctl", "reload"]).refused(1);
        assert!(error.starts_with(&format!("{key} (")), "{error}");
        let end = ") cannot change while the server runs; set it back, or restart the server; nothing was changed";
        assert!(error.ends_with(end), "{error}");
    }
}

#[test]
fn users_removed_while_the_server_was_down_are_not_called() {
    let (folder, address) = Server::prepare("auth.trusted = [\"127.0.0.1\"]\n");
    let config = fs::read_to_string(folder.path().join("strowger.toml")).expect("the configuration");
    folder.write("strowger.toml", &config.replace("require = []", "require = [\"REGISTER\"]"));
    for name in ["alice", "bob", "carol"] {
        folder.run(&["user", "add", name, "--password", "x"]).ok();
    }
    let command = folder.command(&["serve"]);
    let mut server = Server::started_by(command, folder, address);
    let _phones = ["alice", "bob", "carol"].map(|name| Phone::registered(name, &server));
    server.signal("TERM");
    assert_eq!(server.ended(), Some(0));
    server.folder.run(&["user", "rm", "alice"]).ok();
    server.folder.run(&["user", "disable", "bob"]).ok();
    let config = fs::read_to_string(server.folder.path().join("strowger.toml")).expect("the configuration");
    server.folder.write("strowger.toml", &config.replace("[\"127.0.0.1\"]", "[]"));
    let server = server.restart();
    server.until("they are forgotten", || registered(&server) == ["carol@localhost"]);
    let server = killed(server);
    assert_eq!(registered(&server), ["carol@localhost"], "for good");
}

#[test]
fn a_backup_of_a_running_server_starts_another_one() {
    let server = Server::start("");
    server.folder.run(&["user", "add", "alice", "--password", "x"]).ok();
    let _phones = ["alice", "bob"].map(|name| Phone::registered(name, &server));
    let ran = server.folder.run(&["backup", "nightly.backup"]);
    assert!(ran.err.contains("note: keep it secret: it contains all password hashes and the server's key"), "{ran:?}");
    let out = ran.ok();
    assert!(out.starts_with("nightly.backup written: 1 user, 2 addresses with registrations ("), "{out}");
    let _carol = Phone::registered("carol", &server);
    let error = server.folder.run(&["backup", "nightly.backup"]).refused(1);
    assert!(error.contains("nightly.backup exists"), "{error}");
    let again = server.folder.run(&["backup", "--json", "later.backup"]).json();
    assert_eq!(
        (&again["addresses"], &again["key"], &again["damaged"]),
        (&3.into(), &true.into(), &0.into()),
        "{again}"
    );

    let error = server.folder.run(&["restore", "--force", "nightly.backup"]).refused(1);
    assert!(error.starts_with("the server is running: ") && error.contains("stop it first"), "{error}");

    let (folder, address) = Server::prepare("");
    let file = server.folder.path().join("nightly.backup");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).expect("there").permissions());
    assert_eq!(mode & 0o777, 0o600);
    let told = folder.run(&["restore", file.to_str().expect("UTF-8")]).ok();
    assert!(told.contains("1 user, 2 addresses with registrations from "), "{told}");
    assert!(told.contains("\nkey       restored\n") && !told.contains("moved aside"), "{told}");
    let key = |folder: &Folder| fs::read(folder.path().join("data/key")).expect("a key");
    assert_eq!(key(&folder), key(&server.folder), "what was signed there is known here");
    drop(server);
    let command = folder.command(&["serve"]);
    let other = Server::started_by(command, folder, address);
    assert_eq!(registered(&other), ["alice@localhost", "bob@localhost"]);
    assert_eq!(other.status()["users"], 1);
    let _dave = Phone::registered("dave", &other);
    let other = killed(other);
    assert_eq!(registered(&other), ["alice@localhost", "bob@localhost", "dave@localhost"]);
}

#[test]
fn a_restore_moves_old_data_aside_and_a_stopped_server_is_backed_up() {
    let mut server = Server::start("");
    let _alice = Phone::registered("alice", &server);
    server.signal("KILL");
    assert_eq!(server.ended(), None);
    let done = server.folder.run(&["backup", "--json", "a.backup"]).json();
    assert_eq!(done["addresses"], 1, "the journal is in it: {done}");
    let server = server.restart();
    let _bob = Phone::registered("bob", &server);
    let mut server = killed(server);
    server.signal("TERM");
    assert_eq!(server.ended(), Some(0));

    let error = server.folder.run(&["restore", "a.backup"]).refused(1);
    assert!(error.contains("data/strowger.db exists") && error.contains("--force"), "{error}");
    let told = server.folder.run(&["restore", "--json", "--force", "a.backup"]).json();
    let aside: Vec<PathBuf> = told["moved_aside"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|path| path.as_str().expect("text").into())
        .collect();
    assert_eq!(aside.len(), 2, "{told}");
    assert!(aside.iter().all(|path| path.exists()), "{told}");
    let server = server.restart();
    assert_eq!(registered(&server), ["alice@localhost"]);
    assert!(!server.log().contains("WARN") && !server.log().contains("ERROR"), "{}", server.log());
}

#[test]
fn a_non_backup_changes_nothing() {
    let folder = Folder::new("");
    folder.write("no.backup", "something else");
    assert!(folder.run(&["restore", "missing.backup"]).refused(1).contains("there is no file"));
    folder.run(&["restore", "no.backup"]).refused(1);
    folder.run(&["backup", "x.backup"]).refused(1);
    assert!(!folder.path().join("data/strowger.db").exists() && !folder.path().join("x.backup").exists());
    let memory = Folder::new("store.url = \"memory:\"\n");
    let error = memory.run(&["backup", "x.backup"]).refused(2);
    assert!(error.starts_with("store.url is memory:, so nothing is stored"), "{error}");
}

#[test]
fn a_removed_journal_is_rewritten() {
    let server = Server::start("");
    let _alice = Phone::registered("alice", &server);
    fs::remove_dir_all(server.folder.path().join("data/journal")).expect("removed");
    let mut bob = Phone::new("bob");
    assert_eq!(
        bob.register(&server, 600),
        "SIP/2.0 503 Registration Cannot Be Stored",
        "what nobody can read is not kept"
    );
    server.until("it goes on by itself", || bob.register(&server, 600) == "SIP/2.0 200 OK");
    let rows = || server.status()["store"]["disk"]["checkpoint"]["rows"].as_u64();
    server.until("what was lost is in the database", || rows() >= Some(1));
    let server = killed(server);
    assert_eq!(registered(&server), ["alice@localhost", "bob@localhost"]);
}

/// Starts a server with its journal on a separate disk, in a namespace that ends with the server; `None` without
/// permission.
fn on_a_small_disk() -> Option<Server> {
    let may = Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success());
    if !may {
        eprintln!("SKIPPED: only root may mount a small disk");
        return None;
    }
    let (folder, address) = Server::prepare("");
    fs::create_dir_all(folder.path().join("data/journal")).expect("made");
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs -o size=512k,mode=0700 tmpfs data/journal && exec \"$0\" serve";
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, env!("CARGO_BIN_EXE_strowger")]);
    command.current_dir(folder.path());
    Some(Server::started_by(command, folder, address))
}

#[test]
fn a_full_disk_refuses_registrations_is_shown_and_recovers_by_itself() {
    let Some(server) = on_a_small_disk() else { return };
    let mut alice = Phone::registered("alice", &server);
    server.folder.run(&["backup", "nightly.backup"]).ok();
    let nightly = || fs::read(server.folder.path().join("nightly.backup")).expect("there");
    let good = nightly();
    let mut bob = Phone::registered("bob", &server);
    assert_eq!(server.status()["store"]["state"], "ok");
    // Path as seen by the server.
    let journal = format!("/proc/{}/root{}/data/journal", server.child.id(), server.folder.path().display());
    let filler = PathBuf::from(&journal).join("filler");
    assert!(fs::write(&filler, vec![0; 1 << 20]).is_err(), "the disk is full");

    server.until("no 200 without the disk", || alice.register(&server, 600).starts_with("SIP/2.0 503 "));
    let status = server.status();
    let store = &status["store"];
    assert_eq!(store["state"], "failing", "{status}");
    assert!(store["why"].as_str().is_some_and(|why| why.contains("journal")), "{status}");
    assert!(store["disk"]["refused"].as_u64() > Some(0) && store["disk"]["faults"].as_u64() > Some(0), "{status}");
    let text = server.folder.run(&["ctl", "status"]).ok();
    assert!(text.starts_with("store          write-through: FAILING for 0:00:"), "{text}");
    assert!(text.contains("REGISTER gets 503, calls continue") && text.contains("→ make room"), "{text}");
    assert_eq!(registered(&server), ["alice@localhost", "bob@localhost"], "who is registered stays so");
    let entries = fs::read_dir(&journal).expect("readable").map(|entry| entry.expect("readable"));
    let files = entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "log"));
    let lengths: Vec<u64> = files.map(|file| file.metadata().expect("readable").len()).collect();
    assert_eq!(store["disk"]["journal_segments"], lengths.len(), "what is there is shown: {status}");
    assert_eq!(store["disk"]["journal_bytes"], lengths.iter().sum::<u64>(), "what is there is shown: {status}");
    assert!(lengths.iter().sum::<u64>() > 0);
    assert!(text.contains(" in 1 file (last known); checkpoint "), "{text}");

    for arguments in [&["backup", "--overwrite", "nightly.backup"][..], &["backup", "new.backup"]] {
        let error = server.folder.run(arguments).refused(1);
        assert!(
            error.starts_with("no backup was written, because it would lack the newest registrations: "),
            "{error}"
        );
        assert!(error.contains("No space left on device"), "{error}");
    }
    assert!(nightly() == good, "the one of before stays as it was");
    let names = fs::read_dir(server.folder.path()).expect("readable").map(|entry| entry.expect("readable").file_name());
    let backups: Vec<_> = names.filter(|name| name.to_string_lossy().contains(".backup")).collect();
    assert_eq!(backups, ["nightly.backup"], "nor is there half a one");

    fs::remove_file(&filler).expect("removed");
    server.until("it goes on by itself", || alice.register(&server, 600) == "SIP/2.0 200 OK");
    let again = server.folder.run(&["backup", "--overwrite", "--json", "nightly.backup"]).json();
    assert_eq!(again["addresses"], 2, "{again}");
    assert_eq!(bob.register(&server, 600), "SIP/2.0 200 OK");
    let status = server.status();
    assert_eq!(status["store"]["state"], "ok", "{status}");
    assert_eq!(status["store"]["disk"]["recoveries"], status["store"]["disk"]["faults"], "{status}");
    let log = server.log();
    assert!(log.contains("ERROR") && log.to_lowercase().contains("again"), "{log}");
}
