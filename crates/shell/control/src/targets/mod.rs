//! Balancers' targets: collected from the configuration, the database, dispatcher lists and DNS, and made into the
//! sets that shards choose from.

mod dispatcher;
mod services;
mod sets;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use strowger_directory::{Gateway, Gateways};

use crate::config::values::{DnsName, ListName, Target, TargetSource, WeightedTarget};
use crate::config::{Balancer, Config, Policy};
use crate::dns::Server;

pub use services::{ServiceNames, ServiceUpdate};
pub use sets::{TargetSet, TargetSets};

/// Maximum number of targets of a balancer, from all its sources.
pub const MAX_TARGETS: usize = strowger_balancer::MAX_MEMBERS;
/// Maximum size of a dispatcher list, in bytes.
const MAX_LIST: u64 = 1024 * 1024;

/// Reason why targets cannot be used, with the key that names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetError {
    /// The key, such as `balancer[0].targets[1]`.
    pub key: String,
    /// The problem and its remedy.
    pub message: String,
}

impl TargetError {
    pub(crate) fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into() }
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

impl std::error::Error for TargetError {}

/// A target as its source defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetEntry {
    /// The target with its priority, weight and capacity.
    pub share: WeightedTarget,
    /// Whether it may get new calls.
    pub enabled: bool,
    /// Source of the target.
    pub origin: Origin,
    /// Index of the source in the balancer's list; `None` if an operator added the target.
    pub place: Option<usize>,
}

/// What defines a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The configuration.
    Configuration,
    /// A gateway set in the database.
    Database(String),
    /// A dispatcher list.
    List(ListName),
    /// A name in DNS.
    Dns(DnsName),
    /// An operator, until the next reload.
    Operator,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration => f.write_str("configuration"),
            Self::Database(set) => write!(f, "set:{set}"),
            Self::List(name) => name.fmt(f),
            Self::Dns(name) => name.fmt(f),
            Self::Operator => f.write_str("operator"),
        }
    }
}

/// Contents of the dispatcher lists named in a configuration, as of the last read.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    files: BTreeMap<PathBuf, Result<String, String>>,
}

impl Lists {
    /// Reads the lists. Read errors are reported when a list is used.
    #[must_use]
    pub fn read(config: &Config) -> Self {
        let mut files = BTreeMap::new();
        for source in config.balancers.iter().flat_map(|balancer| &balancer.targets) {
            if let TargetSource::List(ListName { file, .. }) = source {
                files.entry(file.clone()).or_insert_with_key(|file| read_list(file));
            }
        }
        Self { files }
    }
}

fn read_list(file: &Path) -> Result<String, String> {
    let shown = file.display();
    match std::fs::metadata(file) {
        Ok(found) if found.len() > MAX_LIST => {
            return Err(format!("{shown} is longer than {MAX_LIST} bytes; shorten it"));
        }
        _ => {}
    }
    std::fs::read_to_string(file)
        .map_err(|error| format!("{shown} cannot be read: {error}; give a dispatcher list that this user may read"))
}

/// Targets that an operator has added and removed at runtime, by balancer.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    by_name: BTreeMap<String, Change>,
}

#[derive(Clone, Debug, Default)]
struct Change {
    added: Vec<WeightedTarget>,
    /// Removed targets by URI.
    removed: Vec<String>,
}

impl Changes {
    /// Adds the target to the balancer, or restores it.
    pub fn add(&mut self, balancer: &str, share: WeightedTarget) {
        let change = self.by_name.entry(balancer.to_owned()).or_default();
        change.removed.retain(|uri| *uri != share.target.uri);
        change.added.retain(|known| known.target.uri != share.target.uri);
        change.added.push(share);
    }

    /// Removes the target at `uri` from the balancer.
    pub fn remove(&mut self, balancer: &str, uri: &str) {
        let change = self.by_name.entry(balancer.to_owned()).or_default();
        change.added.retain(|known| known.target.uri != uri);
        if !change.removed.iter().any(|known| known == uri) {
            change.removed.push(uri.to_owned());
        }
    }

    /// Returns the number of changes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.by_name.values().map(|change| change.added.len() + change.removed.len()).sum()
    }
}

/// A target, whether it is in service, and its origin.
type SourceTarget = (WeightedTarget, bool, Origin);

/// Sources of targets besides the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// Gateways of the database.
    pub gateways: &'a Gateways,
    /// The dispatcher lists.
    pub lists: &'a Lists,
    /// Latest answers of DNS.
    pub services: &'a ServiceNames,
    /// Changes by an operator.
    pub changes: &'a Changes,
}

impl Sources<'_> {
    /// Returns all targets of the balancer at `index` of the configuration, each URI once; the first entry wins.
    ///
    /// # Errors
    /// One of the sources cannot be used; then none of its targets is used.
    pub fn targets(&self, index: usize, balancer: &Balancer) -> Result<Vec<TargetEntry>, TargetError> {
        let mut all: Vec<TargetEntry> = Vec::new();
        let change = self.changes.by_name.get(&balancer.name);
        let mut add = |new: TargetEntry| {
            let uri = &new.share.target.uri;
            let is_removed = change.is_some_and(|change| change.removed.contains(uri));
            if !is_removed && all.iter().all(|known| known.share.target.uri != *uri) {
                all.push(new);
            }
        };
        for (place, source) in balancer.targets.iter().enumerate() {
            let found = self.of_source(source, balancer.policy);
            let key = || format!("balancer[{index}].targets[{place}]");
            let found = found.map_err(|message| TargetError::new(key(), message))?;
            found
                .into_iter()
                .for_each(|(share, enabled, origin)| add(TargetEntry { share, enabled, origin, place: Some(place) }));
        }
        let added = change.into_iter().flat_map(|change| &change.added);
        let listed = |share: &WeightedTarget| TargetEntry {
            share: share.clone(),
            enabled: true,
            origin: Origin::Operator,
            place: None,
        };
        added.map(listed).for_each(&mut add);
        for (at, one) in all.iter().enumerate() {
            let target = &one.share.target;
            let mut others = all.iter().take(at).map(|other| &other.share.target);
            if let Some(other) = others.find(|other| other.next_hop == target.next_hop) {
                // A duplicate next hop, written differently, would get two shares and be counted twice.
                let message = format!("{target} is the same destination as {other}; remove one, or write both alike");
                let place = one.place.map_or_else(String::new, |place| format!("[{place}]"));
                return Err(TargetError::new(format!("balancer[{index}].targets{place}"), message));
            }
        }
        if all.len() > MAX_TARGETS {
            let message = format!("has {} targets, more than {MAX_TARGETS}; shorten a list, or make two", all.len());
            return Err(TargetError::new(format!("balancer[{index}].targets"), message));
        }
        Ok(all)
    }

    fn of_source(&self, source: &TargetSource, policy: Policy) -> Result<Vec<SourceTarget>, String> {
        match source {
            TargetSource::Target(share) => Ok(vec![(share.clone(), true, Origin::Configuration)]),
            TargetSource::Set(name) => {
                let members = self.gateways.members(name.0.as_bytes());
                let listed = |gateway: &Gateway| {
                    let share = crate::config::share_of(name, gateway)?;
                    Ok((share, gateway.enabled, Origin::Database(name.0.clone())))
                };
                members.iter().map(listed).collect()
            }
            TargetSource::List(name) => self.of_list(name, policy),
            TargetSource::Service(name) => self.of_dns(&DnsName::Service(name.clone())),
            TargetSource::Host(name) => self.of_dns(&DnsName::Host(name.clone())),
        }
    }

    fn of_dns(&self, name: &DnsName) -> Result<Vec<SourceTarget>, String> {
        let servers = self.services.known(name).unwrap_or_default();
        servers.iter().map(|server| of_server(name, server)).collect()
    }

    fn of_list(&self, name: &ListName, policy: Policy) -> Result<Vec<SourceTarget>, String> {
        let ListName { file, id } = name;
        let shown = file.display();
        let text = match self.lists.files.get(file) {
            Some(Ok(text)) => text,
            Some(Err(why)) => return Err(why.clone()),
            None => return Err(format!("{shown} has not been read; reload the configuration")),
        };
        let destinations = dispatcher::read(text, *id).map_err(|fault| format!("{shown}:{fault}"))?;
        let highest = destinations.iter().map(|destination| destination.priority).max().unwrap_or_default();
        let listed = |destination: dispatcher::Destination| {
            let dispatcher::Destination { line, uri, enabled, priority, weight, capacity, .. } = destination;
            let target: Target = uri.parse().map_err(|why| format!("{shown}:{line}: {why}"))?;
            // In Kamailio the highest priority comes first, and only its priority algorithm uses priorities.
            let priority = if policy == Policy::Priority { highest - priority } else { 0 };
            Ok((WeightedTarget { target, priority, weight, capacity }, enabled, Origin::List(name.clone())))
        };
        destinations.into_iter().map(listed).collect()
    }

    /// Returns warnings about targets in use, with their keys.
    #[must_use]
    pub fn warnings(&self, config: &Config) -> Vec<String> {
        let mut warnings = Vec::new();
        for (index, balancer) in config.balancers.iter().enumerate() {
            let is_cluster = config.second_stage.iter().any(|cluster| cluster.name == balancer.name);
            if !is_cluster && !config.routes.iter().any(|route| route.balance.as_ref() == Some(&balancer.name)) {
                let remedy = format!("add one with balance = {:?}", balancer.name);
                warnings.push(format!("balancer[{index}]: no route uses {}; {remedy}", balancer.name));
            }
            warnings.extend(self.look_at_lists(index, balancer));
            let Ok(targets) = self.targets(index, balancer) else { continue };
            let key = format!("balancer[{index}].targets");
            if !targets.is_empty() && targets.iter().all(|target| !target.enabled) {
                warnings.push(format!("{key}: every target is disabled: calls get 503 with Retry-After; enable one"));
            }
            warnings.extend(useless_weights(balancer.policy, &targets).map(|why| format!("{key}: {why}")));
            let unreached = |target: &TargetEntry| config.unreachable(&target.share.target);
            let is_reached = targets.iter().any(|target| unreached(target).is_none());
            warnings
                .extend(targets.iter().filter_map(unreached).map(|why| format!("{key}: {}", why.message(is_reached))));
        }
        warnings
    }

    /// Returns warnings about unsupported attributes of dispatcher lists.
    fn look_at_lists(&self, index: usize, balancer: &Balancer) -> Vec<String> {
        let mut warnings = Vec::new();
        for (place, source) in balancer.targets.iter().enumerate() {
            let TargetSource::List(ListName { file, id }) = source else { continue };
            let Some(Ok(text)) = self.lists.files.get(file) else { continue };
            for destination in dispatcher::read(text, *id).unwrap_or_default() {
                for name in destination.ignored {
                    warnings.push(format!(
                        "balancer[{index}].targets[{place}]: {}:{}: {name} is ignored: requests go to the URI, \
                         through the listener that reaches it",
                        file.display(),
                        destination.line
                    ));
                }
            }
        }
        warnings
    }
}

/// Returns a warning about different weights that the policy ignores. A target of weight 0 comes last under every
/// policy, and so does one of another priority.
fn useless_weights(policy: Policy, targets: &[TargetEntry]) -> Option<String> {
    let mut weighed = targets.iter().map(|target| &target.share).filter(|share| share.weight != 0);
    let unlike =
        |one: &WeightedTarget, other: &WeightedTarget| one.priority == other.priority && one.weight != other.weight;
    let heavier = |share: &WeightedTarget| {
        targets.iter().map(|target| &target.share).find(|one| one.weight != 0 && unlike(one, share))
    };
    let (first, other) = weighed.find_map(|share| Some((share.weight, heavier(share)?.weight)))?;
    if policy.heeds_weight() {
        return None;
    }
    let remedy = match policy {
        Policy::RoundRobin => "choose \"weighted\", which uses them",
        policy if policy.is_by_key() => "choose \"hash\", which uses them",
        _ => "omit them, or choose another policy",
    };
    Some(format!(
        "{} ignores weights, but targets have different ones, such as {first} and {other}; {remedy}",
        policy.as_str()
    ))
}

/// Converts a server from DNS to a target. The addresses of a host name are looked up when requests go there, as for
/// any name.
fn of_server(name: &DnsName, server: &Server) -> Result<SourceTarget, String> {
    let Server { host, port, transport, priority, weight } = server;
    let transport = match transport {
        strowger_foundation::Transport::Udp => "",
        _ => ";transport=tcp",
    };
    let target = format!("sip:{host}:{port}{transport}").parse()?;
    let share = WeightedTarget { target, priority: *priority, weight: *weight, capacity: None };
    Ok((share, true, Origin::Dns(name.clone())))
}
