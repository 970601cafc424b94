//! `[[first_stage]]` and `[[second_stage]]`: consistency of names, addresses and weights.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::count;
use crate::config::Config;
use crate::config::error::Fault;
use crate::config::stages::SecondStage;
use crate::config::values::Source;

/// Maximum number of clusters, and of first-stage servers.
const MAX_STAGE: usize = 64;
/// Maximum number of members of a cluster.
const MAX_STAGE_MEMBERS: usize = 64;

impl Config {
    pub(super) fn validate_stages(&self) -> Vec<Fault> {
        if !self.has_stages() {
            return Vec::new();
        }
        let whole = [
            count("first_stage", self.first_stage.len(), MAX_STAGE),
            count("second_stage", self.second_stage.len(), MAX_STAGE),
            self.validate_shares(),
            self.validate_places(),
            self.validate_trust(),
            self.validate_stage_names(),
        ];
        let clusters =
            self.second_stage.iter().enumerate().map(|(at, cluster)| self.validate_second_stage(at, cluster));
        whole.into_iter().chain(clusters).filter_map(Result::err).collect()
    }

    fn validate_shares(&self) -> Result<(), Fault> {
        if self.second_stage.is_empty() {
            let message = "there is no [[second_stage]], so no server has the users; add one with its members";
            return Err(Fault::new("first_stage", message));
        }
        if self.second_stage.iter().all(|cluster| cluster.weight == 0) {
            let message = "is 0 in each cluster, so no cluster has users; give one a weight, such as 100";
            return Err(Fault::new("second_stage[0].weight", message));
        }
        if self.cluster.is_some() {
            let message = "each [[second_stage]] is a cluster; remove it, and set store and members there";
            return Err(Fault::new("cluster", message));
        }
        Ok(())
    }

    /// Checks that no two servers have the same address.
    fn validate_places(&self) -> Result<(), Fault> {
        let mut seen = BTreeSet::new();
        let mut check = |address: SocketAddr, key: String| {
            if address.ip().is_unspecified() || address.port() == 0 {
                let message = format!("{address} cannot be reached by others; give one such as 192.0.2.1:5060");
                return Err(Fault::new(key, message));
            }
            if seen.insert(address) {
                return Ok(());
            }
            Err(Fault::new(key, format!("{address} is also used by another server; give each server its own")))
        };
        for (at, server) in self.first_stage.iter().enumerate() {
            server.address.map_or(Ok(()), |address| check(address, format!("first_stage[{at}].address")))?;
        }
        for (at, cluster) in self.second_stage.iter().enumerate() {
            for (place, member) in cluster.members.iter().enumerate() {
                check(member.address, format!("second_stage[{at}].members[{place}].address"))?;
            }
        }
        Ok(())
    }

    /// Checks that no trusted address or trunk source covers a first-stage server. Callers through it would otherwise
    /// need no password.
    fn validate_trust(&self) -> Result<(), Fault> {
        let first = || self.first_stage.iter().filter_map(|server| Some((&server.name, server.address?.ip())));
        let covered = |source: &Source| first().find(|(_, ip)| source.0.contains(*ip));
        let of_auth = self.auth.trusted.iter().enumerate().map(|(at, source)| (format!("auth.trusted[{at}]"), source));
        let of_trunks = self.trunks.iter().enumerate().flat_map(|(trunk, of)| {
            of.sources.iter().enumerate().map(move |(at, source)| (format!("trunk[{trunk}].sources[{at}]"), source))
        });
        match of_auth.chain(of_trunks).find_map(|(key, source)| Some((key, covered(source)?))) {
            Some((key, (name, ip))) => {
                let message = format!(
                    "covers {name} of the first stage, at {ip}, so calls through it would need no password; exclude that \
                     address"
                );
                Err(Fault::new(key, message))
            }
            None => Ok(()),
        }
    }

    /// Checks that the names of servers, and of clusters and balancers, are unique.
    fn validate_stage_names(&self) -> Result<(), Fault> {
        let (mut servers, mut sets) = (BTreeSet::new(), BTreeSet::new());
        sets.extend(self.balancers.iter().map(|balancer| &*balancer.name));
        for (at, server) in self.first_stage.iter().enumerate() {
            name(&server.name, &mut servers, format!("first_stage[{at}].name"))?;
        }
        for (at, cluster) in self.second_stage.iter().enumerate() {
            name(&cluster.name, &mut sets, format!("second_stage[{at}].name"))?;
            for (place, member) in cluster.members.iter().enumerate() {
                name(&member.name, &mut servers, format!("second_stage[{at}].members[{place}].name"))?;
            }
        }
        Ok(())
    }

    fn validate_second_stage(&self, at: usize, cluster: &SecondStage) -> Result<(), Fault> {
        let key = |name: &str| format!("second_stage[{at}].{name}");
        count(&key("members"), cluster.members.len(), MAX_STAGE_MEMBERS)?;
        match (cluster.members.is_empty(), cluster.targets.is_empty()) {
            (true, true) => {
                let message = "is missing; list them, such as [{ name = \"a1\", address = \"192.0.2.11:5060\" }]";
                return Err(Fault::new(key("members"), message));
            }
            (false, false) => {
                return Err(Fault::new(key("targets"), "members are set too; remove one of the two"));
            }
            (true, false) if cluster.store.0.is_empty() => {
                let message =
                    "members known only from DNS cannot forward registrations to each other; set an engine in store";
                return Err(Fault::new(key("targets"), message));
            }
            _ => {}
        }
        if let Some(place) = cluster.targets.iter().position(|source| source.dns_name().is_none()) {
            let message =
                "is not a DNS name; write \"srv:DOMAIN\" or \"dns:HOST:PORT\", or name the members in members";
            return Err(Fault::new(format!("{}[{place}]", key("targets")), message));
        }
        let mut numbers = BTreeSet::new();
        for place in 0..cluster.members.len() {
            let number = cluster.number(place).unwrap_or(0);
            if strowger_registrar::MemberId::new(number).is_none() || !numbers.insert(number) {
                let most = strowger_registrar::MemberId::MAX;
                let message = format!(
                    "{number} is used by another member, or not from 1 to {most}; give each member a unique number"
                );
                return Err(Fault::new(format!("{}[{place}].number", key("members")), message));
            }
        }
        let mut peers = BTreeSet::new();
        for (place, member) in cluster.members.iter().enumerate().filter(|_| cluster.store.0.is_empty()) {
            let peer = member.peer();
            if !peers.insert(peer) {
                let message = format!(
                    "{peer} is already used by another member; choose another, such as peer = \"{}:5065\"",
                    peer.ip()
                );
                return Err(Fault::new(format!("{}[{place}].peer", key("members")), message));
            }
        }
        self.validate_sharing(at, cluster)
    }

    /// Checks the settings that a member of the cluster would otherwise have in `[cluster]`.
    fn validate_sharing(&self, at: usize, cluster: &SecondStage) -> Result<(), Fault> {
        let name = cluster.members.first().map_or_else(|| format!("{}-0", cluster.name), |member| member.name.clone());
        let fault = match self.for_member(&name) {
            Ok(played) => played.validate_cluster().err(),
            Err(fault) => Some(fault),
        };
        match fault {
            Some(Fault { key, message }) => {
                let key = key.strip_prefix("cluster").map_or(key.clone(), |rest| format!("second_stage[{at}]{rest}"));
                Err(Fault::new(key, message))
            }
            None => Ok(()),
        }
    }
}

fn name<'a>(name: &'a str, seen: &mut BTreeSet<&'a str>, key: String) -> Result<(), Fault> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(Fault::new(key, format!("{name:?} is not a valid name; write letters, digits, -, _ and .")));
    }
    if !seen.insert(name) {
        return Err(Fault::new(key, format!("{name:?} is already used; choose another")));
    }
    Ok(())
}
