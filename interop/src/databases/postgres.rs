//! PostgreSQL: a single server, or a primary with a standby.

use std::fs;
use std::path::{Path, PathBuf};

use crate::machine::{Lan, Machine};
use crate::{PATIENCE, Program, free_port, poll};

use super::node::Node;
use super::user;

/// User that runs PostgreSQL, which refuses to run as root.
const USER: &str = "postgres";

/// Starts a new server.
pub(super) fn start(place: (Machine, u16), folder: &Path, more: &[&str]) -> Node {
    let own = new_folder(folder, place.1);
    let data = own.join("data").display().to_string();
    let arguments = ["-D", &data, "-A", "trust", "-U", "strowger", "--no-sync", "--no-instructions", "-E", "UTF8"];
    let (program, arguments) = user::run_as(USER, &program("initdb"), &arguments);
    let output = place.0.run(&program, &arguments, &own);
    assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
    let hba = own.join("data/pg_hba.conf");
    let known = fs::read_to_string(&hba).expect("initdb has written it");
    fs::write(&hba, known + "host all all 0.0.0.0/0 trust\nhost replication all 0.0.0.0/0 trust\n").expect("a file");
    launch(place, &own, more)
}

pub(super) fn url(authorities: &str) -> String {
    format!("postgresql://strowger@{authorities}/postgres")
}

/// Starts a standby of a primary.
fn standby(place: (Machine, u16), folder: &Path, primary: &Node, more: &[&str]) -> Node {
    let own = new_folder(folder, place.1);
    copy(primary, &place.0, &own);
    launch(place, &own, more)
}

/// Copies the primary's data, so that a server on the copy is its standby.
fn copy(primary: &Node, machine: &Machine, own: &Path) {
    let (data, port) = (own.join("data").display().to_string(), primary.port.to_string());
    let address = primary.machine.address().to_string();
    let from = ["-h", &address, "-p", &port, "-U", "strowger"];
    let arguments = [&["-D", &data, "-R", "-X", "stream", "-c", "fast", "--no-sync"], &from[..]].concat();
    let (program, arguments) = user::run_as(USER, &program("pg_basebackup"), &arguments);
    // A machine that was isolated may be unreachable for a moment longer.
    let mut said = String::new();
    let copied = poll(PATIENCE, || {
        let output = machine.run(&program, &arguments, own);
        said = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(())
    });
    assert!(copied.is_some(), "pg_basebackup: {said}");
}

fn launch(place: (Machine, u16), own: &Path, more: &[&str]) -> Node {
    let (data, port) = (own.join("data").display().to_string(), place.1.to_string());
    let address = place.0.address().to_string();
    let usual = ["-D", &data, "-p", &port, "-k", &data, "-h", &address, "-F", "-c", "wal_sender_timeout=3s"];
    let replica = ["-c", "wal_receiver_timeout=3s", "-c", "wal_retrieve_retry_interval=200ms"];
    let started = user::run_as(USER, &program("postgres"), &[&usual[..], &replica, more].concat());
    let node = Node::start(place, own, started);
    node.wait_until("it answers", || run_sql(&node, "SELECT 1").is_some());
    node
}

/// Runs SQL on a PostgreSQL node. `None` if that fails.
fn run_sql(node: &Node, text: &str) -> Option<String> {
    let (port, address) = (node.port.to_string(), node.machine.address().to_string());
    node.ask("psql", &["-h", &address, "-p", &port, "-U", "strowger", "-d", "postgres", "-Atc", text])
}

/// A primary and its standby.
#[derive(Debug)]
pub(super) struct Pair {
    servers: [Node; 2],
    primary: usize,
    is_synchronous: bool,
}

impl Pair {
    pub(super) fn start(lan: &Lan, folder: &Path, is_synchronous: bool) -> Pair {
        let more: &[&str] = if is_synchronous { &["-c", "synchronous_standby_names=*"] } else { &[] };
        let primary = start((lan.machine(0), free_port()), folder, more);
        let standby = standby((lan.machine(1), free_port()), folder, &primary, more);
        let pair = Pair { servers: [primary, standby], primary: 0, is_synchronous };
        pair.wait_until_it_follows();
        pair
    }

    pub(super) fn url(&self) -> String {
        let [one, two] = &self.servers;
        url(&format!("{},{}", one.authority(), two.authority()))
    }

    pub(super) fn primary(&self) -> usize {
        self.primary
    }

    pub(super) fn nodes(&mut self) -> &mut [Node] {
        &mut self.servers
    }

    /// Promotes the standby. The primary is dead or does not come back as a primary.
    pub(super) fn fail_over(&mut self) {
        self.servers[self.primary].kill();
        self.primary = 1 - self.primary;
        let next = &self.servers[self.primary];
        next.wait_until("it takes over", || {
            run_sql(next, "SELECT pg_promote()").is_some_and(|said| said.contains('t'))
        });
    }

    /// Rebuilds the other server as the standby.
    pub(super) fn restore(&mut self) {
        let (first, second) = self.servers.split_at_mut(1);
        let (primary, lost) = if self.primary == 0 { (&first[0], &mut second[0]) } else { (&second[0], &mut first[0]) };
        fs::remove_dir_all(lost.folder.join("data")).expect("its data");
        copy(primary, &lost.machine, &lost.folder);
        lost.start_again(&[]);
        self.wait_until_it_follows();
    }

    fn wait_until_it_follows(&self) {
        let primary = &self.servers[self.primary];
        let wanted = if self.is_synchronous { "streaming|sync" } else { "streaming|async" };
        primary.wait_until("the standby follows", || {
            run_sql(primary, "SELECT state, sync_state FROM pg_stat_replication")
                .is_some_and(|said| said.contains(wanted))
        });
    }
}

fn program(name: &str) -> PathBuf {
    // The program in `PATH` may be a link. Its target has the other programs beside it.
    let postgres = Program::Postgres.path();
    postgres.canonicalize().unwrap_or(postgres).with_file_name(name)
}

/// Creates a folder that belongs to the user that runs the server.
fn new_folder(folder: &Path, port: u16) -> PathBuf {
    let own = folder.join(format!("postgres-{port}"));
    fs::create_dir(&own).expect("a folder");
    user::give(USER, &own);
    own
}
