//! Two-stage clusters: first-stage servers and clusters of members, all with one configuration, each a separate
//! process.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tempfile::TempDir;

use crate::machine::Machine;
use crate::{PATIENCE, Server, free_port, poll};

/// Layout of the servers.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Number of first-stage servers, named s1, s2 and so on.
    pub first: usize,
    /// Clusters by name, each with the engine of its members. `None` means that the members forward changes to each
    /// other.
    pub clusters: Vec<(&'static str, Option<String>)>,
    /// Members per cluster. Those of cluster a are a1, a2 and so on.
    pub members: usize,
    /// `auth.require`.
    pub require: Vec<&'static str>,
    /// `store.mode` of the members.
    pub store: &'static str,
    /// Keys of `[store]` that concern users, as TOML.
    pub users_in: String,
    /// `registrar.expires`: the default and maximum, and the minimum, in seconds.
    pub expires_s: (u64, u64),
    /// Further sections of the configuration, as TOML.
    pub more: String,
}

impl Default for Layout {
    /// Two of each, without passwords and without engines.
    fn default() -> Layout {
        Layout {
            first: 2,
            clusters: vec![("a", None), ("b", None)],
            members: 2,
            require: Vec::new(),
            store: "write-through",
            users_in: String::new(),
            expires_s: (3_600, 60),
            more: String::new(),
        }
    }
}

impl Layout {
    /// Returns the total number of servers.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.first + self.clusters.len() * self.members
    }
}

/// A cluster in the configuration file.
#[derive(Clone, Debug)]
struct Cluster {
    name: &'static str,
    weight: u16,
    /// Weight before the last change.
    previous_weight: u16,
    store: Option<String>,
    members: Vec<String>,
}

/// Machine and addresses of a server.
#[derive(Clone, Debug)]
struct ServerLocation {
    machine: Machine,
    address: SocketAddr,
    /// Address at which a member without an engine receives forwarded changes.
    peer: SocketAddr,
}

/// The running servers. If a test fails, their logs are printed.
#[derive(Debug)]
pub struct Stages {
    layout: Layout,
    first: Vec<String>,
    clusters: Vec<Cluster>,
    places: BTreeMap<String, ServerLocation>,
    servers: BTreeMap<String, Server>,
    file: PathBuf,
    folder: Arc<TempDir>,
}

impl Stages {
    /// Starts the servers on these machines in order, the first stage first, and waits until all answer.
    ///
    /// # Panics
    /// If there are too few machines or a server does not answer.
    #[must_use]
    pub fn start(layout: Layout, machines: &[Machine]) -> Stages {
        let folder = tempfile::Builder::new().prefix("strowger-stages-").tempdir().expect("a temporary folder");
        let first = (1..=layout.first).map(|number| format!("s{number}")).collect();
        let (file, clusters) = (folder.path().join("strowger.toml"), layout.clusters.clone());
        let (places, servers) = (BTreeMap::new(), BTreeMap::new());
        let mut stages =
            Stages { layout, first, clusters: Vec::new(), places, servers, file, folder: Arc::new(folder) };
        let mut machines = machines.iter();
        for name in stages.first.clone() {
            stages.place(&name, machines.next().expect("a machine for each server"));
        }
        for (name, store) in clusters {
            let own: Vec<Machine> = machines.by_ref().take(stages.layout.members).cloned().collect();
            stages.place_cluster((name, store), 100, &own);
        }
        stages.write();
        let names: Vec<String> = stages.places.keys().cloned().collect();
        names.iter().for_each(|name| stages.begin(name));
        names.iter().for_each(|name| stages.wait(name));
        stages
    }

    /// Like [`Stages::start`], with a separate loopback address for each server.
    ///
    /// # Panics
    /// As [`Stages::start`].
    #[must_use]
    pub fn start_here(layout: Layout) -> Stages {
        let machines = loopback(layout.servers());
        Stages::start(layout, &machines)
    }

    fn place(&mut self, name: &str, machine: &Machine) {
        let at = |port| SocketAddr::from((machine.address(), port));
        let place = ServerLocation { machine: machine.clone(), address: at(free_port()), peer: at(free_port()) };
        self.places.insert(name.to_owned(), place);
    }

    fn place_cluster(&mut self, (name, store): (&'static str, Option<String>), weight: u16, machines: &[Machine]) {
        let members: Vec<String> = (1..=self.layout.members).map(|number| format!("{name}{number}")).collect();
        assert_eq!(machines.len(), members.len(), "a machine for each member");
        members.iter().zip(machines).for_each(|(member, machine)| self.place(member, machine));
        self.clusters.push(Cluster { name, weight, previous_weight: weight, store, members });
    }

    fn write(&self) {
        fs::write(&self.file, self.to_toml()).expect("the configuration can be written");
    }

    fn to_toml(&self) -> String {
        let Layout { require, store, users_in, expires_s: (usual, least), more, .. } = &self.layout;
        let data = self.folder.path().join("data");
        let mut text = format!(
            "[server]\ndomains = [\"example.com\"]\ndata = {data:?}\nworkers = 1\n\n[store]\nmode = {store:?}\n{users_in}\n\n\
             [auth]\nrealm = \"example.com\"\nalgorithms = [\"MD5\"]\nrequire = {require:?}\n\n[registrar]\n\
             expires = {{ default = \"{usual}s\", min = \"{least}s\", max = \"{usual}s\" }}\n\n{more}\n"
        );
        // Writing to a String cannot fail.
        for name in &self.first {
            let address = self.address(name);
            let _ = write!(text, "\n[[first_stage]]\nname = {name:?}\naddress = \"{address}\"\n");
        }
        for Cluster { name, weight, previous_weight, store, members } in &self.clusters {
            let _ = write!(
                text,
                "\n[[second_stage]]\nname = {name:?}\nweight = {weight}\nprevious_weight = {previous_weight}\n"
            );
            if let Some(store) = store {
                let _ = writeln!(text, "store = {store:?}");
            }
            let member = |name: &String| {
                let ServerLocation { address, peer, .. } = &self.places[name];
                let peer = if store.is_none() { format!(", peer = \"{peer}\"") } else { String::new() };
                format!("{{ name = {name:?}, address = \"{address}\"{peer} }}")
            };
            let members: Vec<String> = members.iter().map(member).collect();
            let _ = writeln!(text, "members = [{}]", members.join(", "));
        }
        text
    }

    /// Returns a server's listening address.
    ///
    /// # Panics
    /// If there is no such server.
    #[must_use]
    pub fn address(&self, name: &str) -> SocketAddr {
        self.places[name].address
    }

    /// Returns the listening addresses of the first stage.
    #[must_use]
    pub fn entrances(&self) -> Vec<SocketAddr> {
        self.first.iter().map(|name| self.address(name)).collect()
    }

    /// Returns the names of the first-stage servers.
    #[must_use]
    pub fn entrance_names(&self) -> &[String] {
        &self.first
    }

    /// Returns a server by name.
    ///
    /// # Panics
    /// If there is no such server.
    #[must_use]
    pub fn server(&self, name: &str) -> &Server {
        &self.servers[name]
    }

    /// Returns the names of all servers.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.servers.keys().cloned().collect()
    }

    /// Returns the names of the members of all clusters in the file.
    #[must_use]
    pub fn members(&self) -> Vec<String> {
        self.clusters.iter().flat_map(|cluster| cluster.members.iter().cloned()).collect()
    }

    /// Returns the names of a cluster's members.
    ///
    /// # Panics
    /// If there is no such cluster.
    #[must_use]
    pub fn members_of(&self, cluster: &str) -> &[String] {
        let cluster = self.clusters.iter().find(|known| known.name == cluster);
        &cluster.expect("there is such a cluster").members
    }

    /// Returns the clusters in the file with their weights.
    #[must_use]
    pub fn weights(&self) -> Vec<(&'static str, u16)> {
        self.clusters.iter().map(|cluster| (cluster.name, cluster.weight)).collect()
    }

    /// Adds a user to each member's database.
    ///
    /// # Panics
    /// If the command fails.
    pub fn add_user(&self, who: &str, password: &str) {
        self.members().iter().for_each(|member| self.server(member).add_user(who, password));
    }

    /// Returns the number of requests a server has received (counter `shards.requests`).
    ///
    /// # Panics
    /// If the status has no such count.
    #[must_use]
    pub fn requests(&self, name: &str) -> u64 {
        let status = self.server(name).status();
        let count = &status["counters"]["shards"]["requests"];
        count.as_u64().unwrap_or_else(|| panic!("no count of requests in {status}"))
    }

    /// Kills a server (SIGKILL).
    pub fn kill(&mut self, name: &str) {
        self.servers.get_mut(name).expect("there is such a server").kill();
    }

    /// Restarts a killed server and waits until it answers.
    pub fn restart(&mut self, name: &str) {
        self.begin(name);
        self.wait(name);
    }

    fn begin(&mut self, name: &str) {
        let ServerLocation { machine, address, .. } = &self.places[name];
        let server = Server::of_several((&self.folder, &self.file), name, (machine, *address));
        self.servers.insert(name.to_owned(), server);
    }

    fn wait(&mut self, name: &str) {
        let machine = self.places[name].machine.clone();
        let server = self.servers.get_mut(name).expect("there is such a server");
        server.wait(&machine);
        // A member refuses registrations until it is warm.
        let is_warm = || server.status()["cluster"]["warm"] != false;
        assert!(poll(PATIENCE, || is_warm().then_some(())).is_some(), "{name} does not become warm");
    }

    /// Adds a cluster that has no users yet and starts its members. The other servers learn of it when they
    /// [reload](Self::reload).
    ///
    /// # Panics
    /// If its members do not answer.
    pub fn add(&mut self, cluster: (&'static str, Option<String>), machines: &[Machine]) {
        let (name, machines) = (cluster.0, machines.to_vec());
        self.place_cluster(cluster, 0, &machines);
        self.settle_weights();
        self.write();
        let members = self.members_of(name).to_vec();
        members.iter().for_each(|member| self.begin(member));
        members.iter().for_each(|member| self.wait(member));
    }

    /// Changes a cluster's weight in the file. Servers apply it when they [reload](Self::reload).
    ///
    /// # Panics
    /// If there is no such cluster.
    pub fn weigh(&mut self, cluster: &str, weight: u16) {
        self.settle_weights();
        let cluster = self.clusters.iter_mut().find(|known| known.name == cluster).expect("there is such a cluster");
        cluster.weight = weight;
        self.write();
    }

    /// Marks earlier weight changes as complete, so that users are no longer looked up at their previous cluster.
    fn settle_weights(&mut self) {
        self.clusters.iter_mut().for_each(|cluster| cluster.previous_weight = cluster.weight);
    }

    /// Makes a server reload the file.
    ///
    /// # Panics
    /// If it rejects the file.
    pub fn reload(&self, name: &str) {
        self.server(name).control(&["reload"]);
    }

    /// Makes all servers in the file reload it, one after the other.
    ///
    /// # Panics
    /// If one rejects it.
    pub fn reload_all(&self) {
        self.first.iter().for_each(|name| self.reload(name));
        self.members().iter().for_each(|name| self.reload(name));
    }

    /// Returns the highest number of bindings among the members of a cluster.
    ///
    /// # Panics
    /// If a member does not answer.
    #[must_use]
    pub fn registrations(&self, cluster: &str) -> u64 {
        let members = self.members_of(cluster).iter();
        members.map(|name| self.server(name).registrations()).max().unwrap_or_default()
    }
}

/// Returns this many unused loopback addresses of this machine.
///
/// # Panics
/// If there are too few left.
#[must_use]
pub fn loopback(count: usize) -> Vec<Machine> {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = process::id().to_be_bytes();
    let machine = |_| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(number < u8::MAX, "this test executable has used all its loopback addresses");
        Machine::local_at(Ipv4Addr::new(127, 64 | high & 63, low, number))
    };
    (0..count).map(machine).collect()
}
