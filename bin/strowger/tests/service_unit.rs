//! The units for systemd: how much they confine, and that the server works within.
//!
//! systemd itself does not run in most build environments. The server runs as another user, with the unit's only
//! capability, below a read-only root, and strace shows what it asks of the kernel.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::server::Server;
use common::{Folder, PATIENCE};

/// A user without any rights: `nobody`.
const USER: u32 = 65_534;
/// System calls that the server tries and does without: the kernel's memory of dropped calls, and files for the owner of
/// their folder, which only the superuser gives away.
const DENIED: [&str; 2] = ["bpf", "fchown"];
/// Largest exposure that `systemd-analyze security` may compute, in tenths.
const MAX_EXPOSURE: u32 = 20;

/// Whether these programs are installed. Required in the complete test run.
fn has(programs: &[&str]) -> bool {
    let is_missing = |program: &&&str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
        !found.is_ok_and(|status| status.success())
    };
    let Some(missing) = programs.iter().find(is_missing) else { return true };
    assert_ne!(std::env::var("STROWGER_REQUIRE_INTEROP").as_deref(), Ok("1"), "{missing} is not installed");
    eprintln!("SKIPPED: {missing} is not installed");
    false
}

fn units() -> [PathBuf; 2] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    ["strowger.service", "strowger-watch.service"].map(|name| folder.join(name))
}

/// Returns the values of a key, in order.
fn values(unit: &str, key: &str) -> Vec<String> {
    let of_key = |line: &str| Some(line.strip_prefix(key)?.strip_prefix('=')?.to_owned());
    unit.lines().filter_map(of_key).collect()
}

fn output(command: &mut Command) -> (bool, String) {
    let output = command.output().expect("the program runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn units_are_valid_and_confine() {
    if !has(&["systemd-analyze"]) {
        return;
    }
    let folder = Folder::new("");
    for unit in units() {
        let threshold = format!("--threshold={MAX_EXPOSURE}");
        let mut rate = Command::new("systemd-analyze");
        rate.args(["security", "--offline=true", "--no-pager", &threshold]).arg(&unit);
        let (is_confined, text) = output(&mut rate);
        assert!(is_confined, "{}: {text}", unit.display());
        // `verify` wants the programs to exist.
        let text = fs::read_to_string(&unit).expect("a unit");
        assert!(text.contains("/usr/local/bin/strowger"), "{text}");
        let name = unit.file_name().and_then(|name| name.to_str()).expect("a name");
        folder.write(name, &text.replace("/usr/local/bin/strowger", env!("CARGO_BIN_EXE_strowger")));
        let (is_valid, text) = output(Command::new("systemd-analyze").arg("verify").arg(folder.path().join(name)));
        assert!(is_valid && text.is_empty(), "{}: {text}", unit.display());
    }
}

/// Returns the system calls that the unit allows.
fn allowed_calls(unit: &str) -> BTreeSet<String> {
    let mut allowed = BTreeSet::new();
    for line in values(unit, "SystemCallFilter") {
        let (is_removal, sets) = line.strip_prefix('~').map_or((false, line.as_str()), |sets| (true, sets));
        for name in sets.split_whitespace().flat_map(calls_of) {
            if is_removal {
                allowed.remove(&name)
            } else {
                allowed.insert(name)
            };
        }
    }
    // Always allowed by systemd.
    allowed.extend(calls_of("@default"));
    allowed
}

/// Returns the calls of a set, also of the sets within; or the name itself.
fn calls_of(name: &str) -> Vec<String> {
    if !name.starts_with('@') {
        return vec![name.to_owned()];
    }
    let (is_known, text) = output(Command::new("systemd-analyze").args(["--no-pager", "syscall-filter", name]));
    assert!(is_known, "{text}");
    let members = text.lines().skip(1).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    members.flat_map(calls_of).collect()
}

/// Copies the server to where the other user may run it.
fn accessible_binary(folder: &Folder) -> PathBuf {
    let binary = folder.path().join("strowger");
    fs::copy(env!("CARGO_BIN_EXE_strowger"), &binary).expect("copied");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("our folder");
    binary
}

/// Returns a shell command that gives up what the unit takes away, then runs the program in `$1` with the other
/// arguments. Only the state and log folders can be written.
fn confined(unit: &str, folder: &Path) -> Command {
    let [umask, bounding, ambient] =
        ["UMask", "CapabilityBoundingSet", "AmbientCapabilities"].map(|key| values(unit, key).concat());
    let capabilities = |names: &str| {
        let names =
            names.split_whitespace().map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase()));
        format!("-all{}", names.collect::<String>())
    };
    let (bounding, ambient) = (capabilities(&bounding), capabilities(&ambient));
    let script = format!(
        "set -e; mount --make-rprivate /; for one in state logs trace; do mount --bind $1/$one $1/$one; done; \
         findmnt -rno TARGET | grep -v \"^$1/\" | while read -r at; do mount -o remount,bind,ro \"$at\" 2>/dev/null || :; done; \
         umask {umask}; cd /; shift; exec setpriv --reuid {USER} --regid {USER} --clear-groups --inh-caps={ambient} \
         --ambient-caps={ambient} --bounding-set={bounding} --no-new-privs \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "sh", "-c", &script, "sh"]).arg(folder);
    command
}

/// A configuration with listeners of several kinds, one of them at a port of root.
fn configuration(folder: &Folder, address: &str) {
    let at = folder.path().display();
    folder.write(
        "strowger.toml",
        &format!(
            "[server]\nlisten = [\"udp:{address}\", \"tcp:{address}\", \"tcp:127.0.0.9:443\"]\ndata = \"{at}/state\"\n\
             domains = [\"example.com\"]\n[auth]\nrequire = []\n[cdr]\nfile = \"{at}/logs/cdr.jsonl\"\n\
             [admin]\nlisten = \"127.0.0.1:0\"\n"
        ),
    );
}

fn request(method: &str, transport: &str, more: &str) -> String {
    format!(
        "{method} sip:example.com SIP/2.0\r\nVia: SIP/2.0/{transport} 127.0.0.1:9;branch=z9hG4bK{method}{transport}\r\n\
         Max-Forwards: 70\r\nFrom: <sip:alice@example.com>;tag=a\r\nTo: <sip:alice@example.com>\r\n\
         Call-ID: {method}-{transport}\r\nCSeq: 1 {method}\r\n{more}Content-Length: 0\r\n\r\n"
    )
}

#[test]
fn the_server_works_within_the_confinement() {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !is_root {
        eprintln!("SKIPPED: only root can confine a process to a read-only root");
        return;
    }
    if !has(&["systemd-analyze", "strace", "setpriv", "unshare", "findmnt"]) {
        return;
    }
    let unit = fs::read_to_string(&units()[0]).expect("a unit");
    let (folder, address) = Server::prepare("");
    configuration(&folder, &address.to_string());
    for name in ["state", "logs", "trace"] {
        let path = folder.path().join(name);
        fs::create_dir(&path).expect("our folder");
        chown(&path, Some(USER), Some(USER)).expect("root may");
    }
    let binary = accessible_binary(&folder);
    let trace = folder.path().join("trace/calls");
    let mut command = confined(&unit, folder.path());
    // The server ends with strace, also if the test fails.
    command.args(["strace", "-f", "-qq", "-e", &format!("inject={}:error=EPERM", DENIED.join(",")), "-o"]).arg(&trace);
    command.args(["setpriv", "--pdeathsig", "KILL", "--"]);
    command.arg(&binary).args(["serve", "-c"]);
    command.arg(folder.path().join("strowger.toml"));
    let mut server = Server::started_by(command, folder, address);

    assert_confined(&server);
    let (folder, address) = (&server.folder, server.address);
    let phone = UdpSocket::bind("127.0.0.1:0").expect("a port");
    phone.set_read_timeout(Some(PATIENCE)).expect("settable");
    let contact = "Contact: <sip:alice@127.0.0.1:9>\r\nExpires: 600\r\n";
    phone
        .send_to(request("OPTIONS", "UDP", "").replace("UDP 127.0.0.1:9", "UDP 127.0.0.1:9;rport").as_bytes(), address)
        .expect("sent");
    let mut buffer = [0; 2048];
    let length = phone.recv(&mut buffer).expect("an answer");
    assert!(buffer[..length].starts_with(b"SIP/2.0 200"), "{}", String::from_utf8_lossy(&buffer[..length]));
    for to in [address, "127.0.0.9:443".parse().expect("an address")] {
        let mut stream = TcpStream::connect(to).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("settable");
        stream.write_all(request("REGISTER", "TCP", contact).as_bytes()).expect("sent");
        let length = stream.read(&mut buffer).expect("an answer");
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        assert!(text.starts_with("SIP/2.0 "), "{text}");
    }
    for command in [&["ctl", "reload"][..], &["ctl", "registrations"], &["ctl", "timing", "--duration", "1s"]] {
        folder.run(command).ok();
    }
    let backup = folder.path().join("state/backup");
    folder.run(&["backup", backup.to_str().expect("text")]).ok();
    // strace passes signals on only to its own child, which ends with it.
    let pid = server.status()["pid"].to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("runs").success());
    assert_eq!(server.ended(), Some(0), "{}", server.log());

    let calls = fs::read_to_string(&trace).expect("a trace");
    assert_within(&unit, &calls);
}

/// Asserts that the process has only the unit's capability and sees a read-only root.
fn assert_confined(server: &Server) {
    let process = PathBuf::from(format!("/proc/{}", server.status()["pid"]));
    let status = fs::read_to_string(process.join("status")).expect("it runs");
    let value = |name: &str| {
        let line =
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {status}"));
        line.trim_start_matches(':').trim().to_owned()
    };
    // Bit 10 is CAP_NET_BIND_SERVICE.
    for set in ["CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(value(set), "0000000000000400", "{set}");
    }
    assert_eq!(value("NoNewPrivs"), "1");
    assert!(value("Uid").split_whitespace().all(|uid| uid == USER.to_string()), "{status}");
    let mounts = fs::read_to_string(process.join("mountinfo")).expect("it runs");
    let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/")).expect("a root");
    assert!(root.split(' ').nth(5).is_some_and(|options| options.split(',').any(|option| option == "ro")), "{root}");
}

/// Asserts that the unit allows these calls.
fn assert_within(unit: &str, calls: &str) {
    let allowed = allowed_calls(unit);
    let families = values(unit, "RestrictAddressFamilies").concat();
    let mut seen = BTreeSet::new();
    // What comes before is the work of the program that starts the server.
    let is_start = |line: &str| {
        let program = line.split_once("execve(\"").and_then(|(_, rest)| rest.split('"').next());
        program.is_some_and(|program| program.ends_with("/strowger"))
    };
    let of_server = calls.lines().skip_while(|line| !is_start(line));
    for line in of_server {
        // `123 openat(…` or `123 <... futex resumed>…`
        let Some((_, call)) = line.split_once(' ') else { continue };
        let Some((name, arguments)) = call.trim_start().split_once('(') else { continue };
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            continue;
        }
        seen.insert(name);
        assert!(allowed.contains(name) || DENIED.contains(&name), "the unit does not allow {line}");
        if name == "socket" {
            let family = arguments.split(',').next().unwrap_or_default();
            assert!(families.split(' ').any(|allowed| allowed == family), "the unit does not allow {line}");
        }
        let is_memory = name == "mmap" || name == "mprotect" || name == "pkey_mprotect";
        let is_both = arguments.contains("PROT_WRITE") && arguments.contains("PROT_EXEC");
        assert!(!(is_memory && is_both), "the unit does not allow {line}");
        let is_made_executable = name == "mprotect" && arguments.contains("PROT_EXEC");
        assert!(!is_made_executable, "the unit does not allow {line}");
        assert!(!(name.starts_with("clone") && arguments.contains("CLONE_NEW")), "the unit does not allow {line}");
    }
    assert!(!DENIED.iter().any(|name| allowed.contains(*name)), "no exception is needed");
    assert!(seen.contains("recvmmsg") && seen.contains("bind"), "no server: {seen:?}");
}
