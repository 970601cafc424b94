//! Databases that servers share registrations through, each started by the test that uses it, with data that ends with it.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::process::Process;
use crate::program::search;
use crate::{Program, free_port, poll};

/// How long a database may take to start.
const START: Duration = Duration::from_secs(30);

/// A running database.
#[derive(Debug)]
pub struct Database {
    kind: Program,
    port: u16,
    process: Process,
    folder: TempDir,
}

impl Database {
    /// Starts one on a free port of 127.0.0.1: [`Program::Redis`], [`Program::Postgres`] or [`Program::MariaDb`].
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(kind: Program) -> Database {
        let folder = tempfile::Builder::new().prefix("database-").tempdir().expect("a temporary folder");
        let port = free_port();
        match kind {
            Program::Postgres => prepare_postgres(folder.path()),
            Program::MariaDb => prepare_mariadb(folder.path()),
            _ => {}
        }
        let process = launch(kind, port, folder.path());
        let mut database = Database { kind, port, process, folder };
        database.wait_until_it_answers();
        database
    }

    /// How servers name it.
    #[must_use]
    pub fn url(&self) -> String {
        let port = self.port;
        match self.kind {
            Program::Postgres => format!("postgresql://strowger@127.0.0.1:{port}/postgres"),
            Program::MariaDb => format!("mysql://strowger@127.0.0.1:{port}/strowger"),
            _ => format!("redis://127.0.0.1:{port}"),
        }
    }

    /// Has it stand still until [`go_on`](Self::go_on): it takes connections and answers nothing.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// Has it go on.
    pub fn go_on(&self) {
        self.signal("CONT");
    }

    /// Ends it at once, and starts it again: a Redis is empty then.
    pub fn start_again(&mut self) {
        self.process.kill();
        self.process = launch(self.kind, self.port, self.folder.path());
        self.wait_until_it_answers();
    }

    /// To it and the processes that it has started.
    fn signal(&self, name: &str) {
        let own = self.process.id();
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        self.process.signal(name);
        for child in children.split_whitespace() {
            let _ = Command::new("kill").args([&format!("-{name}"), child]).status();
        }
    }

    fn wait_until_it_answers(&mut self) {
        let answers = poll(START, || {
            // Processes of the one before may hold its memory for a moment.
            if self.process.ended().is_some() {
                self.process = launch(self.kind, self.port, self.folder.path());
            }
            TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, self.port).into(), Duration::from_secs(1)).ok()
        });
        assert!(answers.is_some(), "it does not answer:\n{}\n{}", self.process.output(), self.process.errors());
    }
}

fn launch(kind: Program, port: u16, folder: &Path) -> Process {
    let (data, log) = (folder.join("data"), folder.join("log"));
    let (data, port) = (data.display().to_string(), port.to_string());
    let (program, arguments): (PathBuf, Vec<String>) = match kind {
        Program::Postgres => {
            let arguments = ["-D", &data, "-p", &port, "-k", &data, "-h", "127.0.0.1", "-F"];
            as_user("postgres", &postgres("postgres"), &arguments)
        }
        Program::MariaDb => {
            let init = format!("--init-file={data}.sql");
            let socket = format!("--socket={data}.sock");
            let arguments = [
                "--no-defaults",
                &format!("--datadir={data}"),
                &format!("--port={port}"),
                "--bind-address=127.0.0.1",
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-buffer-pool-size=16M",
                "--user=root",
                &socket,
                &init,
            ];
            (kind.path(), arguments.map(String::from).into())
        }
        _ => {
            let arguments = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "."];
            (kind.path(), arguments.map(String::from).into())
        }
    };
    Process::start(&program, &arguments, log)
}

/// It refuses to run as root.
fn as_user(user: &str, program: &Path, arguments: &[&str]) -> (PathBuf, Vec<String>) {
    let program = program.display().to_string();
    if !rustix::process::geteuid().is_root() {
        return (program.into(), arguments.iter().map(ToString::to_string).collect());
    }
    let setpriv = search("setpriv").expect("setpriv is of util-linux");
    let (user, group) = (format!("--reuid={user}"), format!("--regid={user}"));
    let all = [&user, &group, "--clear-groups", "--", &program];
    (setpriv, all.into_iter().chain(arguments.iter().copied()).map(String::from).collect())
}

fn postgres(name: &str) -> PathBuf {
    Program::Postgres.path().with_file_name(name)
}

fn prepare_postgres(folder: &Path) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("the folder is ours");
    let data = folder.join("data");
    fs::create_dir(&data).expect("a folder");
    if rustix::process::geteuid().is_root() {
        let id = |flag| {
            let output = Command::new("id").args([flag, "postgres"]).output().expect("id runs");
            String::from_utf8_lossy(&output.stdout).trim().parse().expect("the user postgres")
        };
        chown(&data, Some(id("-u")), Some(id("-g"))).expect("root may");
    }
    let data = data.display().to_string();
    let arguments = ["-D", &data, "-A", "trust", "-U", "strowger", "--no-sync", "--no-instructions", "-E", "UTF8"];
    let (program, arguments) = as_user("postgres", &postgres("initdb"), &arguments);
    run(&program, &arguments, folder);
}

fn prepare_mariadb(folder: &Path) {
    let data = folder.join("data");
    let sql = "CREATE DATABASE IF NOT EXISTS strowger;\n\
               CREATE USER IF NOT EXISTS 'strowger'@'%';\nGRANT ALL ON strowger.* TO 'strowger'@'%';\n\
               CREATE USER IF NOT EXISTS 'strowger'@'localhost';\nGRANT ALL ON strowger.* TO 'strowger'@'localhost';\n";
    fs::write(folder.join("data.sql"), sql).expect("a file");
    let install =
        search("mariadb-install-db").or_else(|| search("mysql_install_db")).expect("it comes with the server");
    let datadir = format!("--datadir={}", data.display());
    let arguments =
        ["--no-defaults", &datadir, "--user=root", "--auth-root-authentication-method=normal", "--skip-test-db"];
    run(&install, &arguments.map(String::from), folder);
}

fn run(program: &Path, arguments: &[String], folder: &Path) {
    let output = Command::new(program).args(arguments).current_dir(folder).output().expect("it can be started");
    assert!(
        output.status.success(),
        "{}:\n{}\n{}",
        program.display(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
