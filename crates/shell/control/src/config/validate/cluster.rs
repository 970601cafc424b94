//! `[cluster]`: a single way of sharing, and the keys that go with it.

use std::net::SocketAddr;
use std::time::Duration;

use super::count;
use crate::config::error::Fault;
use crate::config::{Cluster, Config, Durability};

const MAX_ENGINES: usize = 16;
/// Maximum number of peers. Each one adds a message per REGISTER for every member.
const MAX_PEERS: usize = 16;
/// Maximum lifetime of a shared registration. Tombstones are kept for 24 h, slightly longer.
const MOST_SHARED: Duration = Duration::from_secs(23 * 3_600);

impl Config {
    pub(super) fn validate_cluster(&self) -> Result<(), Fault> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        if cluster.peers.is_empty() {
            validate_engines(cluster)?;
        } else {
            validate_peers(cluster)?;
        }
        if strowger_registrar::MemberId::new(cluster.member).is_none() {
            let most = strowger_registrar::MemberId::MAX;
            let message = format!("{} is not from 1 to {most}; give each member a unique number", cluster.member);
            return Err(Fault::new("cluster.member", message));
        }
        if let Some(address) = cluster.address.filter(|address| address.ip().is_unspecified() || address.port() == 0) {
            let message = format!(
                "{address} cannot be reached by others; give an address of this machine, such as 192.0.2.1:5060"
            );
            return Err(Fault::new("cluster.address", message));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if cluster.name.is_empty() || !cluster.name.chars().all(is_plain) {
            let message = format!("{:?} is not a valid name; write letters, digits, -, _ and .", cluster.name);
            return Err(Fault::new("cluster.name", message));
        }
        if self.registrar.expires.max.0 > MOST_SHARED {
            let message = format!(
                "{} is longer than {} h, the maximum for shared registrations; lower it",
                self.registrar.expires.max,
                MOST_SHARED.as_secs() / 3_600
            );
            return Err(Fault::new("registrar.expires.max", message));
        }
        if cluster.durability == Some(Durability::Disk) && cluster.peers.is_empty() && !self.store_mode().is_durable() {
            let message = "disk guarantees what store.mode does, but it is memory; write durability = \"engine\", or choose another mode";
            return Err(Fault::new("cluster.durability", message));
        }
        Ok(())
    }
}

fn validate_engines(cluster: &Cluster) -> Result<(), Fault> {
    count("cluster.store", cluster.store.0.len(), MAX_ENGINES)?;
    if cluster.store.0.is_empty() {
        return Err(Fault::new(
            "cluster.store",
            "is missing; give an engine, such as \"redis://192.0.2.10:6379\", or the other members in cluster.peers",
        ));
    }
    if cluster.listen.is_some() {
        return Err(Fault::new("cluster.listen", "needs cluster.peers, which is missing; remove it"));
    }
    let mut kinds = cluster.store.0.iter().map(|url| url.kind);
    let first = kinds.next();
    if kinds.any(|kind| Some(kind) != first) {
        return Err(Fault::new("cluster.store", "these engines are of different kinds; list engines of one kind"));
    }
    Ok(())
}

fn validate_peers(cluster: &Cluster) -> Result<(), Fault> {
    count("cluster.peers", cluster.peers.len(), MAX_PEERS)?;
    if !cluster.store.0.is_empty() {
        return Err(Fault::new("cluster.peers", "cluster.store is set too; remove one of the two"));
    }
    if cluster.durability == Some(Durability::Engine) {
        return Err(Fault::new(
            "cluster.durability",
            "with cluster.peers there is no engine; remove it, or write \"disk\"",
        ));
    }
    if cluster.replicas > 0 {
        return Err(Fault::new("cluster.replicas", "is for an engine, but cluster.peers uses none; remove it"));
    }
    let Some(listen) = cluster.listen else {
        let message =
            "is missing; give the address on which this member listens for the others, such as \"192.0.2.1:5064\"";
        return Err(Fault::new("cluster.listen", message));
    };
    let is_reached = |address: &SocketAddr| !address.ip().is_unspecified() && address.port() != 0;
    if !is_reached(&listen) {
        let message =
            format!("{listen} cannot be reached by others; give an address of this machine, such as 192.0.2.1:5064");
        return Err(Fault::new("cluster.listen", message));
    }
    if let Some(peer) = cluster.peers.iter().find(|peer| !is_reached(peer) || peer.is_ipv4() != listen.is_ipv4()) {
        let message = format!(
            "{peer} cannot be reached from {listen}; give the address on which that member listens, such as 192.0.2.2:5064"
        );
        return Err(Fault::new("cluster.peers", message));
    }
    if !cluster.peers.iter().any(|peer| *peer != listen) {
        return Err(Fault::new("cluster.peers", "lists only this member; add the others"));
    }
    Ok(())
}
