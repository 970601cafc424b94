//! Secrets are in no output and in no file that others can read.

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::phone::{Phone, authorization};
use common::server::Server;
use common::{CommandResult, Folder};
use strowger_auth::{Algorithm, Ha1};

/// Secrets as the operator wrote them.
const TRUNK: &str = "trunk-Q7ZsE";
const TRUNK_FILE: &str = "trunkfile-K2mWp";
const DATABASE: &str = "database-X9rTv";
const USER: &str = "user-B4nLc";
const WRONG: &str = "guess-H6yUd";

/// Writes a configuration with a secret of each kind and adds a user.
fn prepare(level: &str, format: &str) -> (Folder, std::net::SocketAddr) {
    let (folder, address) = Server::prepare("");
    folder.write("carrier.password", &format!("{TRUNK_FILE}\n"));
    folder.write(
        "strowger.toml",
        &format!(
            "[server]\nlisten = [\"udp:{address}\"]\nworkers = 1\ndomains = [\"example.com\"]\n\
             [log]\nlevel = \"{level}\"\nformat = \"{format}\"\n\
             [cdr]\nfile = \"cdr.jsonl\"\ndatabase = \"postgresql://cdr:{DATABASE}@127.0.0.1:1/calls\"\n\
             [[trunk]]\nname = \"one\"\ntargets = [\"sip:127.0.0.1:9\"]\nusername = \"me\"\npassword = \"{TRUNK}\"\n\
             [[trunk]]\nname = \"two\"\ntargets = [\"sip:127.0.0.1:9\"]\nusername = \"me\"\n\
             password_file = \"carrier.password\"\n"
        ),
    );
    for name in ["strowger.toml", "carrier.password"] {
        fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o600)).expect("our file");
    }
    let added = folder.run_with(&["user", "add", "bob@example.com"], &format!("{USER}\n"));
    assert_eq!(added.code, Some(0), "{added:?}");
    assert_hidden("user add", &added, &[USER.to_owned()]);
    (folder, address)
}

#[track_caller]
fn assert_hidden(what: &str, result: &CommandResult, secrets: &[String]) {
    assert_no_secret(what, &format!("{}{}", result.out, result.err), secrets);
}

#[track_caller]
fn assert_no_secret(what: &str, text: &str, secrets: &[String]) {
    for secret in secrets {
        assert!(!text.contains(secret.as_str()), "{what} shows {secret}:\n{text}");
    }
}

/// Returns the value of `response` in credentials.
fn response_of(authorization: &str) -> String {
    let (_, rest) = authorization.split_once("response=\"").expect("a digest");
    rest.split('"').next().expect("quoted").to_owned()
}

#[test]
fn no_output_shows_a_secret() {
    for (level, format) in [("trace", "text"), ("debug", "json")] {
        let (folder, address) = prepare(level, format);
        let server = Server::started_by(folder.command(&["serve"]), folder, address);
        let hash = Ha1::compute(Algorithm::Md5, b"bob", b"example.com", USER.as_bytes());
        let hash: String = hash.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let key = fs::read(server.folder.path().join("data/key")).expect("a key");
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut secrets = [TRUNK, TRUNK_FILE, DATABASE, USER, WRONG].map(str::to_owned).to_vec();
        secrets.extend([hash, key]);

        let mut trace =
            server.folder.command(&["ctl", "trace", "--user", "bob", "--messages", "--count", "6", "--for", "20s"]);
        let mut trace = trace.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut phone = Phone::new(address, [127, 0, 0, 1], "bob");
        let mut told = String::new();
        let mut said = BufReader::new(trace.stderr.take().expect("piped"));
        said.read_line(&mut told).expect("it waits for messages");
        for password in [WRONG, USER, WRONG] {
            let challenge = phone.ask();
            let credentials = authorization(&challenge, "bob", password);
            secrets.push(response_of(&credentials));
            let text = phone.register(&credentials);
            phone.send(&text);
            phone.receive();
        }
        let traced = trace.wait_with_output().expect("it ends");
        let traced = String::from_utf8_lossy(&traced.stdout).into_owned();
        assert!(traced.contains("Authorization: "), "the trace shows the requests: {traced}");
        assert_no_secret("ctl trace", &traced, &secrets);

        let commands: [&[&str]; 18] = [
            &["check"],
            &["check", "--json"],
            &["check", "--connect"],
            &["ctl", "status"],
            &["ctl", "status", "--json"],
            &["ctl", "members"],
            &["ctl", "registrations", "--json"],
            &["ctl", "calls", "--json"],
            &["ctl", "targets", "--json"],
            &["ctl", "ban", "--json"],
            &["ctl", "timing", "--duration", "100ms"],
            &["user", "list", "--json"],
            &["user", "passwd", "nobody@example.com", "--password", USER],
            &["gateway", "list", "--json"],
            &["backup", "copy"],
            &["restore", "copy"],
            &["ctl", "reload"],
            &["serve"],
        ];
        for arguments in commands {
            assert_hidden(&arguments.join(" "), &server.folder.run(arguments), &secrets);
        }
        assert_no_secret("the log", &server.log(), &secrets);
        let records = fs::read_to_string(server.folder.path().join("cdr.jsonl")).unwrap_or_default();
        assert_no_secret("call records", &records, &secrets);
    }
}

#[test]
fn errors_about_secrets_do_not_show_them() {
    let folder = Folder::new("x");
    let faults = [
        format!("[[trunk]]\nname = \"a\"\ntargets = [\"sip:192.0.2.1\"]\npassword = [\"{TRUNK}\"]\n"),
        format!("[[trunk]]\nname = \"a\"\ntargets = [\"sip:192.0.2.1\"]\npasswort = \"{TRUNK}\"\n"),
        format!("[cdr]\ndatabase = \"postgres:/cdr:{DATABASE}@192.0.2.1/calls\"\n"),
        format!("[cdr]\ndatabase = \"oracle://cdr:{DATABASE}@192.0.2.1/calls\"\n"),
        format!("[store]\nshared_users = \"postgresql://u:{DATABASE}@192.0.2.1:port/users\"\n"),
    ];
    for fault in faults {
        folder.write("strowger.toml", &fault);
        for arguments in [&["check"][..], &["check", "--json"], &["serve"]] {
            let result = folder.run(arguments);
            assert_eq!(result.code, Some(2), "{fault}: {result:?}");
            assert_hidden(&fault, &result, &[TRUNK.to_owned(), DATABASE.to_owned()]);
        }
    }
}

/// Returns all files and folders below a folder.
fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(|path| if path.is_dir() { [vec![path.clone()], below(&path)].concat() } else { vec![path] })
        .collect()
}

#[test]
fn files_are_private_whatever_the_umask_is() {
    let (folder, address) = Server::prepare("server.domains = [\"example.com\"]\n[cdr]\nfile = \"cdr.jsonl\"\n");
    let binary = env!("CARGO_BIN_EXE_strowger");
    let mut open = std::process::Command::new("sh");
    open.args(["-c", &format!("umask 000; exec {binary} serve")]).current_dir(folder.path());
    let server = Server::started_by(open, folder, address);
    let script = format!("umask 000; echo {USER} | {binary} user add bob@example.com && {binary} backup copy");
    let done = std::process::Command::new("sh").args(["-c", &script]).current_dir(server.folder.path()).output();
    let done = done.expect("it runs");
    assert!(done.status.success(), "{done:?}");
    server.folder.run(&["ctl", "ban", "add", "192.0.2.7"]).ok();
    let mut phone = Phone::new(address, [127, 0, 0, 1], "bob");
    server.until("it knows the user", || phone.ask().starts_with("SIP/2.0 200 "));
    let data = server.folder.path().join("data");
    server.until("the bans are written", || data.join("bans").exists());
    let mode = |path: &Path| fs::symlink_metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&data) & 0o007, 0, "{:o}", mode(&data));
    let mut all = below(&data);
    all.extend([server.folder.path().join("copy")]);
    assert!(all.len() > 4, "{all:?}");
    for path in &all {
        let (mode, name) = (mode(path), path.file_name().and_then(|name| name.to_str()).unwrap_or_default());
        let allowed = match name {
            "control.sock" => 0o660,
            _ if path.is_dir() => 0o700,
            _ => 0o600,
        };
        assert_eq!(mode & !allowed, 0, "{}: {mode:o}", path.display());
    }
}

#[test]
fn a_configuration_with_secrets_that_others_can_read_is_announced() {
    let (folder, address) = prepare("info", "text");
    let told = "cdr.database: every user of this machine can read this secret; chmod o= strowger.toml";
    assert!(!folder.run(&["check"]).err.contains("every user"));
    for name in ["strowger.toml", "carrier.password"] {
        fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o644)).expect("our file");
    }
    let checked = folder.run(&["check"]);
    assert!(checked.err.contains(told), "{checked:?}");
    assert!(checked.err.contains("trunk[1].password_file: every user of this machine can read carrier.password"));
    let server = Server::started_by(folder.command(&["serve"]), folder, address);
    assert!(server.log().contains(told), "{}", server.log());
}

#[test]
fn a_check_warns_of_files_that_others_read_or_own() {
    let (folder, _) = Server::prepare("cdr.file = \"calls.jsonl\"\n");
    folder.run_with(&["user", "add", "bob@example.com"], "secret\n").ok();
    let warnings = || {
        let ran = folder.run(&["check", "--json"]).json();
        ran["warnings"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| one.as_str().unwrap_or_default().to_owned())
            .collect()
    };
    let expect = |part: &str| {
        let found: Vec<String> = warnings();
        assert!(found.iter().any(|warning| warning.contains(part)), "{part}: {found:?}");
    };
    let none: Vec<String> = warnings();
    assert_eq!(none, Vec::<String>::new());
    let change = |name: &str, mode: u32| {
        fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(mode)).expect("our file");
    };
    folder.write("calls.jsonl", "{}\n");
    change("calls.jsonl", 0o644);
    expect("every user of this machine can read who called whom in calls.jsonl; chmod o= calls.jsonl");
    change("calls.jsonl", 0o640);
    // Nobody else gets into the folder.
    change("data/strowger.db", 0o644);
    let none: Vec<String> = warnings();
    assert_eq!(none, Vec::<String>::new());
    change("data/strowger.db", 0o600);
    folder.write("data/bans", "");
    change("data/bans", 0o644);
    change("data", 0o755);
    expect("every user of this machine can read data/bans, which has secrets; chmod -R o= data");
    change("data/bans", 0o600);
    change("data", 0o703);
    expect("every user of this machine can replace the files in data; chmod o-w data");
    change("data", 0o700);
    if std::os::unix::fs::chown(folder.path().join("data"), Some(5060), Some(5060)).is_ok() {
        expect("does not belong to the owner of data, the server's user");
        expect("chown -R --reference=data data");
    }
}
