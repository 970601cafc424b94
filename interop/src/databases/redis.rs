//! Redis: a single server, a replica with sentinels, or a cluster.

use std::fs;
use std::path::Path;

use crate::machine::{Lan, Machine};
use crate::{PATIENCE, Program, free_port, poll};

use super::node::Node;

/// The sentinels' name of the master.
const MASTER: &str = "mymaster";

/// Starts an empty server without persistence.
pub(super) fn start(place: (Machine, u16), folder: &Path, more: &[&str]) -> Node {
    let own = folder.join(format!("redis-{}", place.1));
    fs::create_dir(&own).expect("a folder");
    let (port, address) = (place.1.to_string(), place.0.address().to_string());
    let usual = ["--port", &port, "--bind", &address, "--save", "", "--appendonly", "no", "--protected-mode", "no"];
    // Makes a replica that was away resynchronize at once.
    let replication = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--repl-timeout", "4"];
    let arguments = usual.iter().chain(&replication).chain(more).map(ToString::to_string).collect();
    Node::start(place, &own, (Program::Redis.path(), arguments))
}

fn ask(node: &Node, words: &[&str]) -> String {
    let (port, address) = (node.port.to_string(), node.machine.address().to_string());
    let place = ["-h", &address, "-p", &port];
    node.ask("redis-cli", &[&place, words].concat()).unwrap_or_default()
}

fn is_in_step(node: &Node) -> bool {
    ask(node, &["INFO", "replication"]).contains("master_link_status:up")
}

/// A master, its replica, and three sentinels.
#[derive(Debug)]
pub(super) struct Sentinels {
    /// Servers on the first two machines.
    servers: [Node; 2],
    /// Sentinels on the first three machines.
    sentinels: [Node; 3],
    master: usize,
}

impl Sentinels {
    pub(super) fn start(lan: &Lan, folder: &Path) -> Sentinels {
        let place = |number| (lan.machine(number), free_port());
        let master = start(place(0), folder, &[]);
        let (address, port) = (master.machine.address().to_string(), master.port.to_string());
        let replica = start(place(1), folder, &["--replicaof", &address, &port]);
        let sentinels = [0, 1, 2].map(|number| sentinel(place(number), folder, &master));
        replica.wait_until("the replica has all", || is_in_step(&replica));
        let all = Sentinels { servers: [master, replica], sentinels, master: 0 };
        for sentinel in &all.sentinels {
            sentinel.wait_until("it knows the others", || {
                let master = ask(sentinel, &["SENTINEL", "MASTER", MASTER]);
                let value = |name: &str| master.lines().skip_while(|line| *line != name).nth(1).map(str::to_owned);
                value("num-slaves").as_deref() == Some("1") && value("num-other-sentinels").as_deref() == Some("2")
            });
        }
        all
    }

    pub(super) fn url(&self) -> String {
        let sentinels: Vec<String> = self.sentinels.iter().map(Node::authority).collect();
        format!("redis+sentinel://{}/{MASTER}", sentinels.join(","))
    }

    pub(super) fn master(&self) -> usize {
        self.master
    }

    pub(super) fn nodes(&mut self) -> &mut [Node] {
        &mut self.servers
    }

    /// Waits until the sentinels have promoted the replica.
    pub(super) fn fail_over(&mut self) {
        let (lost, next) = (self.master, 1 - self.master);
        let (judge, server) = (&self.sentinels[2], &self.servers[next]);
        judge.wait_until("the replica takes over", || {
            let named = ask(judge, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]);
            named.contains(&server.machine.address().to_string())
                && named.contains(&server.port.to_string())
                && ask(server, &["ROLE"]).starts_with("master")
        });
        self.master = 1 - lost;
    }

    /// Waits until the sentinels agree on a master and the other server is its replica. If a failover was still in
    /// progress, the master may have changed.
    pub(super) fn restore(&mut self) {
        let settled = poll(PATIENCE, || {
            let master = self.agreed()?;
            let (server, replica) = (&self.servers[master], &self.servers[1 - master]);
            let (address, port) = (server.machine.address().to_string(), server.port.to_string());
            if !ask(server, &["ROLE"]).starts_with("master") {
                return None;
            }
            // The sentinels do the same, but ten seconds later.
            ask(replica, &["REPLICAOF", &address, &port]);
            is_in_step(replica).then_some(master)
        });
        self.master = settled.unwrap_or_else(|| panic!("the sentinels do not agree:\n{}", self.sentinels[2].log()));
    }

    /// Returns the master on which all sentinels agree.
    fn agreed(&self) -> Option<usize> {
        let named = |sentinel: &Node| {
            let said = ask(sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]);
            let is_named =
                |server: &Node| said.lines().eq([server.machine.address().to_string(), server.port.to_string()]);
            self.servers.iter().position(is_named)
        };
        let first = named(&self.sentinels[0])?;
        self.sentinels.iter().all(|sentinel| named(sentinel) == Some(first)).then_some(first)
    }
}

fn sentinel(place: (Machine, u16), folder: &Path, master: &Node) -> Node {
    let own = folder.join(format!("sentinel-{}", place.1));
    fs::create_dir(&own).expect("a folder");
    let (address, port) = (place.0.address(), place.1);
    let text = format!(
        "port {port}\nbind {address}\nprotected-mode no\nsentinel monitor {MASTER} {} {} 2\n\
         sentinel down-after-milliseconds {MASTER} 1000\nsentinel failover-timeout {MASTER} 2000\n",
        master.machine.address(),
        master.port
    );
    let file = own.join("sentinel.conf");
    fs::write(&file, text).expect("a file");
    let arguments = vec![file.display().to_string(), "--sentinel".to_owned()];
    Node::start(place, &own, (Program::Redis.path(), arguments))
}

/// Three masters and three replicas.
#[derive(Debug)]
pub(super) struct Cluster {
    servers: Vec<Node>,
    /// Index from which the next master to kill is searched, after the one killed last.
    turn: usize,
}

impl Cluster {
    pub(super) const SERVERS: usize = 6;

    pub(super) fn start(lan: &Lan, folder: &Path) -> Cluster {
        let arguments =
            ["--cluster-enabled", "yes", "--cluster-node-timeout", "1500", "--cluster-replica-validity-factor", "0"];
        let begin = |number| start((lan.machine(number), free_port()), folder, &arguments);
        let servers: Vec<Node> = (0..Self::SERVERS).map(begin).collect();
        let all: Vec<String> = servers.iter().map(Node::authority).collect();
        let words = [&["--cluster", "create"], &all.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat();
        let words = [&words[..], &["--cluster-replicas", "1", "--cluster-yes"]].concat();
        let made = servers[0].ask("redis-cli", &words);
        assert!(made.is_some(), "the cluster is made");
        let cluster = Cluster { servers, turn: 0 };
        cluster.wait_until_whole();
        cluster
    }

    pub(super) fn url(&self) -> String {
        let servers: Vec<String> = self.servers.iter().map(Node::authority).collect();
        format!("redis+cluster://{}", servers.join(","))
    }

    pub(super) fn nodes(&mut self) -> &mut [Node] {
        &mut self.servers
    }

    /// Returns the next master in turn.
    pub(super) fn master(&self) -> usize {
        let turn = (0..Self::SERVERS).map(|number| (self.turn + number) % Self::SERVERS);
        turn.into_iter().find(|number| self.is_master(*number)).expect("a cluster has masters")
    }

    /// Waits until a replica has taken over from `lost`.
    pub(super) fn fail_over(&mut self, lost: usize) {
        let judge = &self.servers[(lost + 1) % Self::SERVERS];
        let own = format!("{}@", self.servers[lost].authority());
        judge.wait_until("a replica takes over", || {
            let nodes = ask(judge, &["CLUSTER", "NODES"]);
            let has_slots = |line: &str| line.split(' ').nth(8).is_some();
            let lost_has = nodes.lines().any(|line| line.contains(&own) && has_slots(line));
            !nodes.is_empty() && !lost_has && ask(judge, &["CLUSTER", "INFO"]).contains("cluster_state:ok")
        });
        self.turn = (lost + 1) % Self::SERVERS;
    }

    /// Waits until all servers are up and each replica is synchronized.
    pub(super) fn wait_until_whole(&self) {
        for server in &self.servers {
            server.wait_until("the cluster is whole", || {
                let is_whole = ask(server, &["CLUSTER", "INFO"]).contains("cluster_state:ok");
                let nodes = ask(server, &["CLUSTER", "NODES"]);
                let has_failed = nodes.lines().any(|line| line.contains("fail"));
                let role = ask(server, &["INFO", "replication"]);
                let is_settled = if role.contains("role:slave") {
                    role.contains("master_link_status:up")
                } else {
                    role.contains("connected_slaves:1")
                };
                is_whole && !has_failed && is_settled
            });
        }
    }

    fn is_master(&self, number: usize) -> bool {
        ask(&self.servers[number], &["ROLE"]).starts_with("master")
    }
}
