//! Selects one server's role from a configuration for several servers, by name.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use strowger_foundation::Transport;

use super::balancing::{Balancer, Key, Policy};
use super::cluster::Cluster;
use super::error::Fault;
use super::stages::{FirstStage, SecondStage, StageMember};
use super::values::{ListenAddress, StoreUrl, Target, TargetSource, WeightedTarget};
use super::{Auth, Cdr, Config, Mode, OneOrMany, Otlp, Store};

/// Selects a configuration: a file, and a server if it describes several.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConfigSource<'a> {
    /// The file; `None` for the default file, if it exists.
    pub file: Option<&'a Path>,
    /// The server's name; `None` for the host name.
    pub member: Option<&'a str>,
}

impl<'a, P: AsRef<Path> + ?Sized> From<Option<&'a P>> for ConfigSource<'a> {
    fn from(file: Option<&'a P>) -> Self {
        Self { file: file.map(AsRef::as_ref), member: None }
    }
}

/// Returns the host name.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl Config {
    /// Returns this server's name at collectors of traces.
    #[must_use]
    pub fn trace_node(&self) -> String {
        let role = || self.role.as_ref().map(|role| role.name.clone());
        self.trace.node.clone().or_else(role).unwrap_or_else(host_name)
    }
}

/// Role of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// The server's name.
    pub name: String,
    /// Index of its cluster; `None` for a server of the first stage.
    pub cluster: Option<usize>,
    /// Folder shared by the servers of one machine, with the key.
    pub(super) common: PathBuf,
    /// Addresses where the other servers take requests.
    pub(super) siblings: Vec<SocketAddr>,
}

impl Config {
    /// Returns the role of this server if the file is for several.
    #[must_use]
    pub const fn role(&self) -> Option<&Role> {
        self.role.as_ref()
    }

    /// Returns the folder shared by the servers of one machine. Each server has a subfolder with its name.
    #[must_use]
    pub fn common_folder(&self) -> &Path {
        self.role.as_ref().map_or(&self.server.data, |role| &role.common)
    }

    /// Returns the configuration of the named server.
    pub(super) fn for_member(&self, name: &str) -> Result<Self, Fault> {
        let numbered = name.rsplit_once('-').and_then(|(front, number)| Some((front, number.parse::<u16>().ok()?)));
        for server in &self.first_stage {
            let is_one_of = server.address.is_none() && numbered.is_some_and(|(front, _)| front == server.name);
            if server.name == name || is_one_of {
                return Ok(self.of_first_stage(name, server));
            }
        }
        for (at, cluster) in self.second_stage.iter().enumerate() {
            let listed = cluster.members.iter().position(|member| member.name == name);
            if let Some((place, member)) = listed.and_then(|place| Some((place, cluster.members.get(place)?))) {
                let number = cluster.number(place).unwrap_or(1);
                return Ok(self.of_member(name, at, cluster, number, Some(member)));
            }
            let ordinal = numbered.filter(|(front, _)| *front == cluster.name && !cluster.targets.is_empty());
            if let Some((_, ordinal)) = ordinal {
                let number = ordinal.saturating_add(1);
                if strowger_registrar::MemberId::new(number).is_none() {
                    let message = format!(
                        "{name} would be member {number}, but the maximum is {}",
                        strowger_registrar::MemberId::MAX
                    );
                    return Err(Fault::new(format!("second_stage[{at}].targets"), message));
                }
                return Ok(self.of_member(name, at, cluster, number, None));
            }
        }
        let names = self.stage_names().join(", ");
        let message = format!("there is no server {name:?}; choose this server with --as NAME: {names}");
        Err(Fault::new(if self.first_stage.is_empty() { "second_stage" } else { "first_stage" }, message))
    }

    /// Returns the configuration of a first-stage server, which has no users, registrations or routes of its own.
    fn of_first_stage(&self, name: &str, server: &FirstStage) -> Self {
        let mut config = self.with_role(name, None, server.address);
        config.store =
            Store { url: Some(StoreUrl::Memory), mode: Some(Mode::Memory), shared_users: OneOrMany::default() };
        config.auth = Auth { require: Vec::new(), ..config.auth };
        config.proxy.record_route = true;
        config.proxy.outbound = true;
        config.kamailio = None;
        config.cdr = Cdr::default();
        config.trace.otlp = Otlp::default();
        config.trunks = Vec::new();
        config.routes = Vec::new();
        config.balancers = self.balancers_of_clusters(None);
        config
    }

    fn of_member(
        &self,
        name: &str,
        at: usize,
        cluster: &SecondStage,
        number: u16,
        member: Option<&StageMember>,
    ) -> Self {
        let mut config = self.with_role(name, Some(at), member.map(|member| member.address));
        let peers: Vec<SocketAddr> = match cluster.store.0.is_empty() {
            true => cluster.members.iter().map(StageMember::peer).collect(),
            false => Vec::new(),
        };
        config.cluster = cluster.is_shared().then(|| Cluster {
            store: cluster.store.clone(),
            listen: member.filter(|_| !peers.is_empty()).map(StageMember::peer),
            peers,
            member: number,
            address: member.map(|member| member.address),
            name: cluster.name.clone(),
            replicas: cluster.replicas,
            durability: cluster.durability,
        });
        config.balancers.extend(self.balancers_of_clusters(Some(at)));
        config
    }

    fn with_role(&self, name: &str, cluster: Option<usize>, address: Option<SocketAddr>) -> Self {
        let mut config = self.clone();
        if let Some(address) = address {
            config.server.listen =
                [Transport::Udp, Transport::Tcp].map(|transport| ListenAddress { transport, address }).into();
        }
        config.server.data = self.server.data.join(name);
        let first = self.first_stage.iter().filter_map(|server| server.address);
        let members = self.second_stage.iter().flat_map(|cluster| &cluster.members).map(|member| member.address);
        let siblings = first.chain(members).filter(|sibling| Some(*sibling) != address).collect();
        config.role = Some(Role { name: name.to_owned(), cluster, common: self.server.data.clone(), siblings });
        config
    }

    /// Returns a balancer for each cluster except `own`. All requests of a user go to the same member while it is up.
    fn balancers_of_clusters(&self, own: Option<usize>) -> Vec<Balancer> {
        let others = self.second_stage.iter().enumerate().filter(|(at, _)| Some(*at) != own);
        others.map(|(_, cluster)| cluster.balancer()).collect()
    }
}

impl SecondStage {
    fn balancer(&self) -> Balancer {
        let of = |member: &StageMember| {
            TargetSource::Target(WeightedTarget {
                target: Target::at(member.address),
                priority: 1,
                weight: 1,
                capacity: None,
            })
        };
        Balancer {
            name: self.name.clone(),
            policy: Policy::Hash,
            key: Some(Key::Aor),
            targets: self.members.iter().map(of).chain(self.targets.iter().cloned()).collect(),
            probe: self.probe.clone(),
            // A member that is back has its cluster's registrations and can take its full share at once.
            slow_start: super::Span::from_secs(0),
            failover_timeout: super::Span::from_millis(500),
            // No other server has its users.
            tries_down: true,
            ..Balancer::default()
        }
    }
}

impl Config {
    /// Checks that every user is still reachable after a change from `old`, the configuration that a server runs
    /// with.
    ///
    /// # Errors
    /// Some users would be looked up in the wrong cluster, and calls to them would fail until they register again.
    pub fn check_successor(&self, old: &Self) -> Result<(), String> {
        let clusters = |config: &Self| -> Vec<(String, u16)> {
            config.second_stage.iter().map(|cluster| (cluster.name.clone(), cluster.weight)).collect()
        };
        let weight_in = |clusters: &[(String, u16)], name: &str| {
            clusters.iter().find(|(known, _)| known == name).map_or(0, |(_, weight)| *weight)
        };
        let (running, wanted) = (clusters(old), clusters(self));
        let is_same = wanted.iter().all(|(name, weight)| weight_in(&running, name) == *weight)
            && running.iter().all(|(name, weight)| weight_in(&wanted, name) == *weight);
        if is_same {
            return Ok(());
        }
        let is_missing =
            |(name, weight): &&(String, u16)| *weight > 0 && !wanted.iter().any(|(known, _)| known == name);
        if let Some((name, weight)) = running.iter().find(is_missing) {
            return Err(format!(
                "second_stage: {name} was removed but has users; keep it with weight = 0 and previous_weight = {weight} until they have \
                 registered elsewhere (registrar.expires.max)"
            ));
        }
        let moved = |cluster: &&SecondStage| cluster.weight_before() != weight_in(&running, &cluster.name);
        match self.second_stage.iter().find(moved) {
            Some(cluster) => Err(format!(
                "second_stage: the weight of {} is {} here, but the running server has {}; add previous_weight = {}, so that \
                 moved users are found until they register again (or restart this server if it alone missed an earlier change)",
                cluster.name,
                cluster.weight,
                weight_in(&running, &cluster.name),
                weight_in(&running, &cluster.name)
            )),
            None => Ok(()),
        }
    }
}
