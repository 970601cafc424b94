//! Who else is known to the ban list.

use std::net::IpAddr;

use crate::ban_keeper;
use crate::cluster::SharedTable;

/// Returns the addresses of the other members that are known.
pub(super) fn member_addresses(cluster: &SharedTable) -> Vec<IpAddr> {
    let Some(cluster) = cluster.status() else { return Vec::new() };
    let peers = cluster.peers.iter().map(|peer| &peer.listen);
    let members = cluster.members.iter().map(|member| &member.address);
    peers.chain(members).filter_map(|address| ban_keeper::ip_of(address)).collect()
}
