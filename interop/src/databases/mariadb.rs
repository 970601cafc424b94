//! MariaDB: a single server, or several that replicate in a circle (with two, in both directions).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::machine::{Lan, Machine};
use crate::program::search;
use crate::{PATIENCE, Program, free_port, poll};

use super::node::Node;
use super::user;

/// User that runs MariaDB. Galera's state transfer runs as nobody when it is started by root.
const USER: &str = "mysql";

/// Starts a new server.
pub(super) fn start(place: (Machine, u16), folder: &Path, more: &[&str]) -> Node {
    let own = install(folder, place.1);
    launch(place, &own, more)
}

/// Maximum number of attempts to install a data directory.
const INSTALLATIONS: usize = 3;

pub(super) fn url(authorities: &str) -> String {
    format!("mysql://strowger@{authorities}/strowger")
}

/// Returns the servers' URL for a member. Each member has another server first.
pub(super) fn urls(servers: &[Node], member: u16) -> String {
    let mut authorities: Vec<String> = servers.iter().map(Node::authority).collect();
    authorities.rotate_left((usize::from(member) - 1) % servers.len());
    url(&authorities.join(","))
}

pub(super) fn install(folder: &Path, port: u16) -> PathBuf {
    let own = folder.join(format!("mariadb-{port}"));
    fs::create_dir(&own).expect("a folder");
    let datadir = format!("--datadir={}", own.join("data").display());
    let install =
        search("mariadb-install-db").or_else(|| search("mysql_install_db")).expect("it comes with the server");
    let arguments = [
        "--no-defaults",
        &datadir,
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--innodb-log-file-size=8M",
    ];
    let arguments = arguments.map(String::from);
    // An installation may fail for lack of a resource while many run at the same time.
    let failed = (0..INSTALLATIONS).map_while(|_| {
        let _ = fs::remove_dir_all(own.join("data"));
        let output = Machine::local().run(&install, &arguments, &own);
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (!output.status.success()).then(|| said.into_owned())
    });
    let failed: Vec<String> = failed.collect();
    assert!(failed.len() < INSTALLATIONS, "{}: {}", install.display(), failed.join("\n"));
    user::give(USER, &own);
    own
}

/// Creates a server folder as a copy of an installed one.
pub(super) fn copy(installed: &Path, folder: &Path, port: u16) -> PathBuf {
    let own = folder.join(format!("mariadb-{port}"));
    let copied = Command::new("cp").arg("-r").args([installed, &own]).status();
    assert!(copied.is_ok_and(|status| status.success()), "a copy of {}", installed.display());
    user::give(USER, &own);
    own
}

/// Returns the program and the options common to all servers.
pub(super) fn command((machine, port): &(Machine, u16), own: &Path, more: &[&str]) -> (PathBuf, Vec<String>) {
    let (data, address) = (own.join("data").display().to_string(), machine.address().to_string());
    let sql = own.join("init.sql");
    // Each server executes these statements itself, so they are not replicated.
    let text = "SET sql_log_bin = 0;\nCREATE DATABASE IF NOT EXISTS strowger;\n\
                CREATE USER IF NOT EXISTS 'strowger'@'%';\nGRANT ALL ON *.* TO 'strowger'@'%';\n\
                CREATE USER IF NOT EXISTS 'strowger'@'localhost';\nGRANT ALL ON *.* TO 'strowger'@'localhost';\n\
                FLUSH PRIVILEGES;\n";
    fs::write(&sql, text).expect("a file");
    let usual = [
        "--no-defaults".to_owned(),
        format!("--datadir={data}"),
        format!("--port={port}"),
        format!("--bind-address={address}"),
        "--innodb-buffer-pool-size=16M".to_owned(),
        "--innodb-log-file-size=8M".to_owned(),
        "--skip-name-resolve".to_owned(),
        format!("--socket={data}.sock"),
        format!("--pid-file={data}.pid"),
        format!("--init-file={}", sql.display()),
    ];
    let arguments: Vec<&str> = usual.iter().map(String::as_str).chain(more.iter().copied()).collect();
    user::run_as(USER, &Program::MariaDb.path(), &arguments)
}

fn launch(place: (Machine, u16), own: &Path, more: &[&str]) -> Node {
    let command = command(&place, own, more);
    let node = Node::start(place, own, command);
    node.wait_until("it answers", || run_sql(&node, "SELECT 1").is_some());
    node
}

/// Runs SQL on a MariaDB node. `None` if that fails.
pub(super) fn run_sql(node: &Node, text: &str) -> Option<String> {
    let (address, port) = (format!("-h{}", node.machine.address()), format!("-P{}", node.port));
    node.ask("mariadb", &["--no-defaults", &address, &port, "-ustrowger", "--connect-timeout=2", "-e", text])
}

/// Servers in a replication circle: each follows the one before it.
#[derive(Debug)]
pub(super) struct Circle {
    servers: Vec<Node>,
    turn: usize,
}

impl Circle {
    pub(super) fn start(lan: &Lan, folder: &Path, servers: usize) -> Circle {
        let ports: Vec<u16> = (0..servers).map(|_| free_port()).collect();
        let installed = install(folder, ports[0]);
        let others: Vec<PathBuf> = ports[1..].iter().map(|port| copy(&installed, folder, *port)).collect();
        let folders: Vec<PathBuf> = [installed].into_iter().chain(others).collect();
        let begin = |(number, own): (usize, &PathBuf)| {
            let id = [format!("--server-id={}", number + 1), format!("--gtid-domain-id={}", number + 1)];
            let replication = [
                &id[0],
                &id[1],
                "--log-bin=log",
                "--log-slave-updates",
                "--binlog-format=MIXED",
                "--slave-exec-mode=IDEMPOTENT",
                "--slave-net-timeout=3",
                "--innodb-flush-log-at-trx-commit=2",
            ];
            let place = (lan.machine(number), ports[number]);
            let command = command(&place, own, &replication);
            Node::begin(place, own, command)
        };
        let begun: Vec<Node> = folders.iter().enumerate().map(begin).collect();
        let servers: Vec<Node> = begun.into_iter().map(Node::wait_until_it_listens).collect();
        let circle = Circle { servers, turn: 0 };
        for number in 0..circle.servers.len() {
            circle.follow_the_one_before(number);
        }
        circle.wait_until_in_step();
        circle
    }

    fn follow_the_one_before(&self, number: usize) {
        let (own, before) =
            (&self.servers[number], &self.servers[(number + self.servers.len() - 1) % self.servers.len()]);
        let text = format!(
            "CHANGE MASTER TO MASTER_HOST='{}', MASTER_PORT={}, MASTER_USER='strowger', MASTER_CONNECT_RETRY=1, \
             MASTER_HEARTBEAT_PERIOD=1, MASTER_USE_GTID=slave_pos; START SLAVE",
            before.machine.address(),
            before.port
        );
        own.wait_until("it follows the one before it", || run_sql(own, &text).is_some());
    }

    pub(super) fn url(&self, member: u16) -> String {
        urls(&self.servers, member)
    }

    /// Returns the next server in turn.
    pub(super) fn next(&mut self) -> usize {
        let next = self.turn;
        self.turn = (self.turn + 1) % self.servers.len();
        next
    }

    pub(super) fn nodes(&mut self) -> &mut [Node] {
        &mut self.servers
    }

    /// Waits until each server has applied everything from the one before it.
    pub(super) fn wait_until_in_step(&self) {
        const WANTED: [&str; 3] = ["Slave_IO_Running: Yes", "Slave_SQL_Running: Yes", "Seconds_Behind_Master: 0"];
        for server in &self.servers {
            let mut said = String::new();
            let is_in_step = poll(PATIENCE, || {
                said = run_sql(server, "SHOW SLAVE STATUS\\G").unwrap_or_default();
                WANTED.iter().all(|part| said.contains(part)).then_some(())
            });
            assert!(is_in_step.is_some(), "{} does not follow the one before it:\n{said}", server.authority());
        }
    }
}
