//! The engines, configured as an operator would: confirmed data is on disk, or will be within a second.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rustix::process::{Signal, geteuid};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::{OTHER_CORE, SERVER_CORE};
use crate::register::process::{bury, family, signal};

/// Maximum start time of an engine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Folder of PostgreSQL on Debian, with a subfolder per version.
const POSTGRES: &str = "/usr/lib/postgresql";
/// Page cache of both databases. Their default of 128 MB does not hold a million contacts.
const PAGES: &str = "1G";

/// Kind of engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
pub enum Kind {
    /// Redis.
    Redis,
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    Mariadb,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "Redis",
            Self::Postgres => "PostgreSQL",
            Self::Mariadb => "MariaDB",
        })
    }
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Redis, Self::Postgres, Self::Mariadb];

    /// Returns its version, or that it is not installed.
    #[must_use]
    pub fn version(self) -> String {
        let said = |mut command: Command| {
            let output = command.arg("--version").output().ok().filter(|output| output.status.success());
            output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        self.program()
            .and_then(|program| said(Command::new(program)))
            .unwrap_or_else(|| format!("{self}: not installed"))
    }

    /// Returns its program, if installed.
    #[must_use]
    pub fn program(self) -> Option<PathBuf> {
        match self {
            Self::Redis => search("redis-server"),
            Self::Mariadb => search("mariadbd"),
            Self::Postgres => {
                let versions = fs::read_dir(POSTGRES).into_iter().flatten().flatten();
                versions.map(|version| version.path().join("bin/postgres")).find(|file| file.is_file())
            }
        }
    }
}

/// A running engine, with a replica if configured. Dropping it ends both and removes their data.
#[derive(Debug)]
pub struct Engine {
    kind: Kind,
    port: u16,
    child: Child,
    replica: Option<Child>,
    folder: TempDir,
}

impl Engine {
    /// Starts an engine on a free port of 127.0.0.1, with its data in a folder in `place`. Only Redis supports a
    /// replica.
    ///
    /// # Errors
    /// If it is not installed, or does not answer.
    pub fn start(kind: Kind, has_replica: bool, place: &Path) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("strowger-engine-").tempdir_in(place);
        let folder = folder.map_err(|error| format!("{}: {error}", place.display()))?;
        let port = free_port()?;
        match kind {
            Kind::Redis => {}
            Kind::Postgres => prepare_postgres(folder.path())?,
            Kind::Mariadb => prepare_mariadb(folder.path())?,
        }
        let child = launch(command(kind, port, folder.path())?, folder.path(), "log")?;
        let mut engine = Self { kind, port, child, replica: None, folder };
        engine.wait(port, "log")?;
        if has_replica {
            let own = free_port()?;
            engine.replica =
                Some(launch(replica(own, port, engine.folder.path())?, engine.folder.path(), "replica.log")?);
            engine.wait(own, "replica.log")?;
            engine.wait_for_replica()?;
        }
        Ok(engine)
    }

    /// Returns its URL in server configurations.
    #[must_use]
    pub fn url(&self) -> String {
        let port = self.port;
        match self.kind {
            Kind::Redis => format!("redis://127.0.0.1:{port}"),
            Kind::Postgres => format!("postgresql://strowger@127.0.0.1:{port}/postgres"),
            Kind::Mariadb => format!("mysql://strowger@127.0.0.1:{port}/strowger"),
        }
    }

    /// Returns its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns its process IDs, without those of a replica.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        family(self.child.id())
    }

    /// Returns the process IDs of its replica.
    #[must_use]
    pub fn replica(&self) -> Vec<u32> {
        self.replica.as_ref().map(|replica| family(replica.id())).unwrap_or_default()
    }

    /// Suspends the engine: it accepts connections and does not answer.
    pub fn freeze(&self) {
        self.processes().iter().for_each(|pid| signal(*pid, Signal::STOP));
    }

    /// Resumes the engine.
    pub fn thaw(&self) {
        self.processes().iter().for_each(|pid| signal(*pid, Signal::CONT));
    }

    /// Returns the size of its files in bytes.
    #[must_use]
    pub fn disk(&self) -> u64 {
        size_of_all(self.folder.path())
    }

    /// Runs an SQL file in MariaDB.
    ///
    /// # Errors
    /// The error message of the client.
    pub fn run_sql(&self, file: &Path) -> Result<(), String> {
        let text = File::open(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let port = self.port.to_string();
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "-h", "127.0.0.1", "-P", &port, "-u", "strowger", "strowger"]).stdin(text);
        run(&mut command)
    }

    /// Waits until the replica is in sync. It starts reading some seconds after it asks to.
    fn wait_for_replica(&self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        let is_there = || -> std::io::Result<bool> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
            stream.write_all(b"INFO replication\r\n")?;
            let mut text = [0; 4_096];
            let length = stream.read(&mut text)?;
            Ok(String::from_utf8_lossy(&text[..length]).contains("state=online"))
        };
        while !is_there().map_err(|error| format!("Redis with a replica: {error}"))? {
            if Instant::now() > deadline {
                return Err("the replica does not synchronize".to_owned());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn wait(&mut self, port: u16, log: &str) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let is_over = !matches!(self.child.try_wait(), Ok(None)) || Instant::now() > deadline;
            if is_over {
                let text = fs::read_to_string(self.folder.path().join(log)).unwrap_or_default();
                let last: Vec<&str> = text.lines().rev().take(3).collect();
                return Err(format!("{} does not answer: {}", self.kind, last.join(" / ")));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for child in [self.replica.as_mut(), Some(&mut self.child)].into_iter().flatten() {
            let family = family(child.id());
            // SIGKILL also ends a suspended process.
            signal(child.id(), Signal::KILL);
            // Fails only if the process has ended already.
            let _ = child.wait();
            bury(&family);
        }
    }
}

/// Describes how each engine is run.
#[must_use]
pub fn settings() -> String {
    format!(
        "Redis: `appendonly yes`, `appendfsync everysec`, `save \"\"`; rewrites of its file are off during \
         measurements, because they would slow down the server's journal on the same disk. PostgreSQL: \
         its defaults (`fsync`, `synchronous_commit` on), `shared_buffers` {PAGES}B. MariaDB: its defaults \
         (`innodb_flush_log_at_trx_commit = 1`, no binary log), `innodb_buffer_pool_size` {PAGES}B."
    )
}

/// Returns the command that starts an engine on the server's core.
fn command(kind: Kind, port: u16, folder: &Path) -> Result<Command, String> {
    let program = kind.program().ok_or_else(|| format!("{kind} is not installed"))?;
    let (data, port) = (folder.join("data").display().to_string(), port.to_string());
    let mut command = on_core(SERVER_CORE);
    match kind {
        Kind::Redis => {
            command.arg(program).args(["--port", &port]).args(REDIS);
        }
        Kind::Postgres => {
            let buffers = format!("shared_buffers={PAGES}B");
            command.args(as_postgres()).arg(program).args(["-D", &data, "-p", &port, "-k", &data, "-h", "127.0.0.1"]);
            command.args(["-c", &buffers]);
        }
        Kind::Mariadb => {
            command.arg(program).arg("--no-defaults");
            command.args(["--bind-address=127.0.0.1", "--user=root", "--innodb-flush-log-at-trx-commit=1"]);
            command.arg(format!("--innodb-buffer-pool-size={PAGES}")).arg(format!("--datadir={data}"));
            command.arg(format!("--port={port}")).arg(format!("--socket={data}.sock"));
            command.arg(format!("--init-file={data}.sql"));
        }
    }
    Ok(command)
}

const REDIS: [&str; 14] = [
    "--bind",
    "127.0.0.1",
    "--save",
    "",
    "--appendonly",
    "yes",
    "--appendfsync",
    "everysec",
    "--maxmemory-policy",
    "noeviction",
    // Here the engine's file shares a disk with the server's journal, unlike in production: rewriting it would delay
    // the journal by a second.
    "--auto-aof-rewrite-percentage",
    "0",
    // A new replica need not wait for others.
    "--repl-diskless-sync-delay",
    "0",
];

/// Returns the command of a replica of the Redis at `master`, with its own files.
fn replica(port: u16, master: u16, folder: &Path) -> Result<Command, String> {
    let program = Kind::Redis.program().ok_or("Redis is not installed")?;
    let (port, master) = (port.to_string(), master.to_string());
    let mut command = on_core(&OTHER_CORE.to_string());
    command.arg(program).args(["--port", &port, "--replicaof", "127.0.0.1", &master]).args(REDIS);
    command.args(["--appenddirname", "replica"]);
    // Apart from the file of the first one.
    command.args(["--dbfilename", "replica.rdb"]).current_dir(folder);
    Ok(command)
}

fn on_core(core: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", core]);
    command
}

fn launch(mut command: Command, folder: &Path, log: &str) -> Result<Child, String> {
    let errors = File::create(folder.join(log)).map_err(|error| error.to_string())?;
    let output = errors.try_clone().map_err(|error| error.to_string())?;
    let child = command.current_dir(folder).stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
    child.map_err(|error| format!("{command:?}: {error}"))
}

/// PostgreSQL refuses to run as root.
fn as_postgres() -> Vec<&'static str> {
    if !geteuid().is_root() {
        return Vec::new();
    }
    vec!["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
}

fn prepare_postgres(folder: &Path) -> Result<(), String> {
    let said = |error: std::io::Error| error.to_string();
    fs::set_permissions(folder, Permissions::from_mode(0o755)).map_err(said)?;
    let data = folder.join("data");
    fs::create_dir(&data).map_err(said)?;
    if geteuid().is_root() {
        let id = |flag| -> Result<u32, String> {
            let output = Command::new("id").args([flag, "postgres"]).output().map_err(said)?;
            String::from_utf8_lossy(&output.stdout).trim().parse().map_err(|_| "there is no user postgres".to_owned())
        };
        chown(&data, Some(id("-u")?), Some(id("-g")?)).map_err(said)?;
    }
    let program = Kind::Postgres.program().ok_or("PostgreSQL is not installed")?.with_file_name("initdb");
    let mut words: Vec<String> = as_postgres().into_iter().map(str::to_owned).collect();
    words.push(program.display().to_string());
    let data = data.display().to_string();
    words.extend(["-D", &data, "-A", "trust", "-U", "strowger", "--no-instructions", "-E", "UTF8"].map(str::to_owned));
    let (first, rest) = words.split_first().ok_or("no command")?;
    run(Command::new(first).args(rest).current_dir(folder))
}

fn prepare_mariadb(folder: &Path) -> Result<(), String> {
    let data = folder.join("data");
    let sql = "CREATE DATABASE IF NOT EXISTS strowger;\n\
               CREATE USER IF NOT EXISTS 'strowger'@'%';\nGRANT ALL ON strowger.* TO 'strowger'@'%';\n\
               CREATE USER IF NOT EXISTS 'strowger'@'localhost';\nGRANT ALL ON strowger.* TO 'strowger'@'localhost';\n";
    fs::write(folder.join("data.sql"), sql).map_err(|error| error.to_string())?;
    let program = search("mariadb-install-db").ok_or("mariadb-install-db is not installed")?;
    let datadir = format!("--datadir={}", data.display());
    let mut command = Command::new(program);
    command.args([
        "--no-defaults",
        &datadir,
        "--user=root",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
    ]);
    run(command.current_dir(folder))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Returns a free TCP port.
fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| error.to_string())
}

/// Returns the first file of this name in the folders of `PATH` and in those for server programs.
fn search(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let servers = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(servers).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn size_of_all(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(what) if what.is_dir() => size_of_all(&entry.path()),
        Ok(what) => what.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}
