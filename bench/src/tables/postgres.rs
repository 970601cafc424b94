//! A private PostgreSQL server, and the part of its protocol that queries a user.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::lookup::{Credentials, read_hash};
use crate::register::process::{bury, family, signal};

/// Maximum start time.
const PATIENCE: Duration = Duration::from_secs(20);
/// User of its processes if this program runs as root, which PostgreSQL refuses.
const ACCOUNT: &str = "postgres";

/// A server with a table of users. Dropping it ends the server and removes its folder.
pub struct Cluster {
    child: Child,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts a server with `users` users.
    ///
    /// # Errors
    /// If it is not installed or does not start.
    pub fn start(users: u32, domain: &str) -> Result<Self, String> {
        let programs = programs().ok_or("not installed (sudo apt-get install postgresql)")?;
        let folder = tempfile::Builder::new().prefix("strowger-pg-").tempdir().map_err(|error| error.to_string())?;
        let account = account()?;
        if let Some((uid, gid)) = account {
            chown(folder.path(), Some(uid), Some(gid)).map_err(|error| {
                format!("PostgreSQL refuses to run as root, and this program cannot switch to another user: {error}; run as root")
            })?;
        }
        // It ends when its parent does, for any reason.
        let run = |program: &str| {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "QUIT"]).arg(programs.join(program));
            command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if let Some((uid, gid)) = account {
                command.uid(uid).gid(gid);
            }
            command
        };
        let made =
            run("initdb").args(["-D", "data", "-A", "trust", "-U", ACCOUNT, "-N"]).stderr(Stdio::piped()).output();
        let Output { status, stderr, .. } = made.map_err(|error| format!("setpriv (util-linux): {error}"))?;
        if !status.success() {
            return Err(format!("initdb: {}", String::from_utf8_lossy(&stderr).trim()));
        }
        let settings = ["listen_addresses=", "fsync=off", "shared_buffers=512MB", "jit=off", "autovacuum=off"];
        let mut command = run("postgres");
        command.args(["-D", "data", "-k"]).arg(folder.path());
        for setting in settings {
            command.args(["-c", setting]);
        }
        let child = command.spawn().map_err(|error| error.to_string())?;
        let cluster = Self { child, folder };
        let deadline = Instant::now() + PATIENCE;
        while Wire::connect(&cluster).is_err() {
            if Instant::now() > deadline {
                return Err("the server does not start".to_owned());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Wire::connect(&cluster)?.run(&format!(
            "CREATE TABLE users (aor text PRIMARY KEY, realm text NOT NULL, ha1_md5 text);
             INSERT INTO users SELECT 'u' || lpad(n::text, 8, '0') || '@{domain}', '{domain}', lpad(to_hex(n), 32, '0')
             FROM generate_series(0, {users} - 1) n; VACUUM ANALYZE users"
        ))?;
        Ok(cluster)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Immediately: its data is not needed any more.
        let all = family(self.child.id());
        signal(self.child.id(), Signal::QUIT);
        let deadline = Instant::now() + Duration::from_secs(5);
        while !matches!(self.child.try_wait(), Ok(Some(_))) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        bury(&all);
        let _ = self.child.wait();
    }
}

/// Returns the program folder of the newest installed version.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|entry| entry.path().join("bin"));
    versions.filter(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file()).max()
}

/// Returns the user and group IDs that it runs with if this program runs as root.
fn account() -> Result<Option<(u32, u32)>, String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let text = fs::read_to_string("/etc/passwd").map_err(|error| format!("/etc/passwd: {error}"))?;
    let read = || {
        let mut fields =
            text.lines().find_map(|line| line.strip_prefix(ACCOUNT)?.strip_prefix(':'))?.split(':').skip(1);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    read().map(Some).ok_or_else(|| format!("PostgreSQL refuses to run as root, and there is no user {ACCOUNT}"))
}

/// A connection with protocol version 3.
struct Wire {
    stream: UnixStream,
    /// Process ID of the backend.
    backend: u32,
    out: Vec<u8>,
    body: Vec<u8>,
}

impl Wire {
    fn connect(cluster: &Cluster) -> Result<Self, String> {
        let wrong = |error: std::io::Error| error.to_string();
        let stream = UnixStream::connect(socket_in(cluster.folder.path())).map_err(wrong)?;
        let mut wire = Self { stream, backend: 0, out: Vec::new(), body: Vec::new() };
        let body = format!("\0\x03\0\0user\0{ACCOUNT}\0database\0postgres\0\0");
        wire.out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        wire.out.extend_from_slice(body.as_bytes());
        wire.exchange(|_, _| ())?;
        Ok(wire)
    }

    /// Queues a message for the next exchange.
    fn put(&mut self, kind: u8, body: &[&[u8]]) {
        let len = body.iter().map(|part| part.len()).sum::<usize>();
        self.out.push(kind);
        self.out.extend_from_slice(&(len as u32 + 4).to_be_bytes());
        body.iter().for_each(|part| self.out.extend_from_slice(part));
    }

    /// Sends the queued messages and passes the responses to `see` until the server is ready again.
    fn exchange(&mut self, mut see: impl FnMut(u8, &[u8])) -> Result<(), String> {
        let wrong = |error: std::io::Error| error.to_string();
        self.stream.write_all(&self.out).map_err(wrong)?;
        self.out.clear();
        self.body.clear();
        let mut begin = 0;
        loop {
            let known = &self.body[begin..];
            let whole = known
                .get(..5)
                .map(|head| (head[0], 1 + u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize));
            let Some((kind, len)) = whole.filter(|(_, len)| known.len() >= *len) else {
                let mut more = [0; 4096];
                let count = self.stream.read(&mut more).map_err(wrong)?;
                if count == 0 {
                    return Err("the connection is closed".to_owned());
                }
                self.body.extend_from_slice(&more[..count]);
                continue;
            };
            let body = &known[5..len];
            match kind {
                b'E' => return Err(String::from_utf8_lossy(body).replace('\0', " ")),
                b'K' => self.backend = u32::from_be_bytes([body[0], body[1], body[2], body[3]]),
                b'Z' => return Ok(()),
                _ => see(kind, body),
            }
            begin += len;
        }
    }

    /// Runs statements without results, one at a time.
    fn run(&mut self, statements: &str) -> Result<(), String> {
        for statement in statements.split(';') {
            self.put(b'Q', &[statement.as_bytes(), b"\0"]);
            self.exchange(|_, _| ())?;
        }
        Ok(())
    }
}

fn socket_in(folder: &Path) -> PathBuf {
    folder.join(".s.PGSQL.5432")
}

/// Queries users with a prepared statement.
pub struct Client(Wire);

impl Client {
    /// Opens a connection.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn connect(cluster: &Cluster) -> Result<Self, String> {
        let mut wire = Wire::connect(cluster)?;
        wire.put(b'P', &[b"q\0SELECT ha1_md5 FROM users WHERE aor = $1\0", &0_u16.to_be_bytes()]);
        wire.put(b'S', &[]);
        wire.exchange(|_, _| ())?;
        Ok(Self(wire))
    }
}

impl Credentials for Client {
    fn hash(&mut self, aor: &[u8]) -> Option<[u8; 16]> {
        let wire = &mut self.0;
        // Bind with one text parameter and a text result, Execute, Sync.
        let len = (aor.len() as u32).to_be_bytes();
        wire.put(b'B', &[b"\0q\0", &[0, 0, 0, 1], &len, aor, &[0, 0]]);
        wire.put(b'E', &[b"\0", &0_u32.to_be_bytes()]);
        wire.put(b'S', &[]);
        let mut hash = None;
        let seen = wire.exchange(|kind, body| {
            if kind == b'D' {
                // One column: number of columns, length, text.
                hash = body.get(6..).and_then(read_hash);
            }
        });
        seen.ok().and(hash)
    }

    fn elsewhere(&self) -> Duration {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.0.backend)).unwrap_or_default();
        Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_ends_with_the_thread_that_started_it() {
        // The kernel watches the parent thread, so a thread that ends stands for a program that is killed.
        let started = thread::spawn(|| {
            // Not dropped, as in a killed program.
            let cluster = std::mem::ManuallyDrop::new(Cluster::start(10, "example.com")?);
            Ok::<_, String>((cluster.child.id(), cluster.folder.path().to_owned()))
        });
        match started.join().expect("it ends") {
            Err(error) => eprintln!("SKIPPED: PostgreSQL: {error}"),
            Ok((pid, folder)) => {
                let pid = rustix::process::Pid::from_raw(pid as i32);
                let ended = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).expect("it is ours");
                assert!(ended.is_some_and(|(_, status)| status.exited() || status.signaled()), "{ended:?}");
                fs::remove_dir_all(folder).expect("it is there");
            }
        }
    }
}
