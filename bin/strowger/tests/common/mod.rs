//! A folder with a configuration, in which the binary is run.

#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod api;
pub(crate) mod chain;
pub(crate) mod end;
pub(crate) mod load;
pub(crate) mod phone;
pub(crate) mod server;

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Time after which a test gives up: generous, because a busy machine is not a bug.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) struct Folder {
    folder: TempDir,
}

/// Result of a command.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Folder {
    /// Creates a folder with `config` as `strowger.toml`; without a file if it is empty.
    pub(crate) fn new(config: &str) -> Self {
        let folder = Self { folder: tempfile::tempdir().expect("a folder") };
        if !config.is_empty() {
            folder.write("strowger.toml", config);
        }
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("written");
    }

    /// Returns the text of a file in the folder.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Returns the JSON of a file in the folder.
    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).expect("JSON")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strowger"));
        command.args(arguments).current_dir(self.path());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> CommandResult {
        self.run_with(arguments, "")
    }

    /// Runs a command with `input` on standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> CommandResult {
        CommandResult::of(self.command(arguments), input)
    }
}

impl CommandResult {
    /// Runs a command with `input` on standard input.
    pub(crate) fn of(mut command: Command, input: &str) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        // A command that reads no input may have exited.
        drop(child.stdin.take().expect("piped").write_all(input.as_bytes()));
        let output = child.wait_with_output().expect("it ends");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.ok()).expect("JSON")
    }

    /// Returns the error text; asserts that the exit code is `code` and that there is no other output.
    pub(crate) fn refused(self, code: i32) -> String {
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""), "{self:?}");
        assert!(self.err.starts_with("strowger: ") && self.err.trim_end().lines().count() == 1, "{self:?}");
        self.err.trim_end().trim_start_matches("strowger: ").to_owned()
    }
}

/// Calls `done` until it returns a value; `None` after [`PATIENCE`]. Other processes give no signal, so their state is
/// polled.
pub(crate) fn poll<T>(mut done: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let value = done();
        if value.is_some() || Instant::now() >= deadline {
            return value;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    assert!(poll(|| is_so().then_some(())).is_some(), "not in time: {what}");
}

/// Waits until another process has bound this UDP address.
#[track_caller]
pub(crate) fn until_bound(address: SocketAddr) {
    until("the address is bound", || UdpSocket::bind(address).is_err());
}

/// Returns a free loopback address. The kernel does not assign its port to other sockets, and no other test of this
/// process uses it.
pub(crate) fn free_address() -> SocketAddr {
    const PORTS: (u16, u16) = (16_384, 16_000);
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let (first, count) = PORTS;
    // Different processes start far apart.
    let begin = std::process::id().wrapping_mul(397);
    for _ in 0..count {
        let number = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed).into()) % u32::from(count);
        let port = first + u16::try_from(number).expect("below the count");
        if let Ok(probe) = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)) {
            return probe.local_addr().expect("bound");
        }
    }
    panic!("no port is free");
}

/// Sends a signal, such as `INT`.
pub(crate) fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    assert!(status.expect("kill runs").success());
}
