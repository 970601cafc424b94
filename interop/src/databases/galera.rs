//! Galera: MariaDB servers with synchronous replication.

use std::path::{Path, PathBuf};

use crate::machine::{Lan, Machine};
use crate::{Program, free_port};

use super::mariadb::{command, copy, install, run_sql, urls};
use super::node::Node;

/// Common start position of all servers: history UUID and number of transactions.
const BEGIN: &str = "5e6fe4f5-0000-11f1-8000-000000000000:0";

/// A group of three servers.
#[derive(Debug)]
pub(super) struct Galera {
    servers: Vec<Node>,
    turn: usize,
}

impl Galera {
    pub(super) const SERVERS: usize = 3;

    pub(super) fn start(lan: &Lan, folder: &Path) -> Galera {
        let ports: Vec<Ports> = (0..Self::SERVERS).map(|_| Ports::free()).collect();
        let machines: Vec<Machine> = (0..Self::SERVERS).map(|number| lan.machine(number)).collect();
        let group = machines.iter().zip(&ports);
        let group: Vec<String> =
            group.map(|(machine, ports)| format!("{}:{}", machine.address(), ports.group)).collect();
        let installed = install(folder, ports[0].clients);
        let others = ports[1..].iter().map(|ports| copy(&installed, folder, ports.clients));
        let folders: Vec<PathBuf> = [installed.clone()].into_iter().chain(others).collect();
        let mut servers: Vec<Node> = Vec::new();
        for (number, own) in folders.iter().enumerate() {
            let options = options(&machines[number], &ports[number], &group);
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let place = (machines[number].clone(), ports[number].clients);
            let command = command(&place, own, &options);
            // All start with the same data, so no state transfer is needed.
            let begun = format!("--wsrep-start-position={BEGIN}");
            let first = [&begun, "--wsrep-new-cluster"];
            let first = if number == 0 { &first[..] } else { &first[..1] };
            let server = Node::begin_with(place, own, command, first).wait_until_it_listens();
            server.wait_until("it has joined the others", || is_synced(&server));
            servers.push(server);
        }
        let galera = Galera { servers, turn: 0 };
        galera.wait_until_whole();
        galera
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

    /// Restarts a server at its recovered position, so that it needs no full state transfer.
    pub(super) fn start_again(&mut self, number: usize) {
        let server = &mut self.servers[number];
        let said = server.run_once(&["--wsrep-recover"]);
        let position = said.split("Recovered position: ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let position = position.map(|position| format!("--wsrep-start-position={position}"));
        let more: Vec<&str> = position.iter().map(String::as_str).collect();
        server.start_again(&more);
    }

    /// Waits until all servers have joined and are synchronized.
    pub(super) fn wait_until_whole(&self) {
        for server in &self.servers {
            server.wait_until("it has joined the others", || {
                let size = run_sql(server, "SHOW STATUS LIKE 'wsrep_cluster_size'").unwrap_or_default();
                is_synced(server) && size.trim_end().ends_with(&Self::SERVERS.to_string())
            });
        }
    }
}

/// Listening ports of a server: client connections, group communication, and incremental and full state transfer.
struct Ports {
    clients: u16,
    group: u16,
    increments: u16,
    whole: u16,
}

impl Ports {
    fn free() -> Ports {
        Ports { clients: free_port(), group: free_port(), increments: free_port(), whole: free_port() }
    }
}

fn options(machine: &Machine, ports: &Ports, group: &[String]) -> Vec<String> {
    let address = machine.address();
    let Ports { group: own, increments, whole, .. } = ports;
    let times = "evs.keepalive_period=PT0.5S;evs.suspect_timeout=PT2S;evs.inactive_timeout=PT4S;evs.inactive_check_period=PT0.5S;gcache.size=32M";
    vec![
        "--wsrep-on=ON".to_owned(),
        format!("--wsrep-provider={}", Program::Galera.path().display()),
        format!("--wsrep-cluster-address=gcomm://{}", group.join(",")),
        format!("--wsrep-node-address={address}:{own}"),
        format!("--wsrep-sst-receive-address={address}:{whole}"),
        "--wsrep-sst-method=rsync".to_owned(),
        format!(
            "--wsrep-provider-options=gmcast.listen_addr=tcp://{address}:{own};ist.recv_addr={address}:{increments};{times}"
        ),
        "--binlog-format=ROW".to_owned(),
        "--innodb-autoinc-lock-mode=2".to_owned(),
        "--innodb-flush-log-at-trx-commit=2".to_owned(),
    ]
}

fn is_synced(server: &Node) -> bool {
    let state = run_sql(server, "SHOW STATUS LIKE 'wsrep_local_state_comment'");
    state.is_some_and(|state| state.contains("Synced"))
}
