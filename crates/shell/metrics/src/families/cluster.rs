//! Members that share registrations.

use std::fmt;

use strowger_control::protocol::{Cluster, Member, Peer};

use crate::encoder::{Encoder, Family, Labels, flag};

pub(crate) fn write(to: &mut Encoder<'_>, cluster: Option<&Cluster>) -> fmt::Result {
    let Some(cluster) = cluster else { return Ok(()) };
    let gauges = [
        ("cluster_up", "1 if registrations are shared.", flag(cluster.trouble.is_none())),
        ("cluster_warm", "1 once everything that the others had is read.", flag(cluster.warm)),
        (
            "cluster_conflict",
            "1 if another member's configuration contradicts this one.",
            flag(cluster.conflict.is_some()),
        ),
        ("cluster_waiting", "Changes not yet confirmed by the engine or by a peer that answers.", cluster.waiting),
    ];
    gauges.iter().try_for_each(|(name, help, value)| to.gauge(&Family::new(name, help), *value))?;
    let counters = [
        ("cluster_refused", "Batches of changes refused for lack of room; with peers, changes.", cluster.refused),
        ("cluster_read_whole", "Times that the whole state was read.", cluster.read_whole),
        ("cluster_announced", "Times that the whole state was sent again.", cluster.announced),
    ];
    counters.iter().try_for_each(|(name, help, value)| to.counter(&Family::new(name, help), *value))?;
    members(to, &cluster.members)?;
    peers(to, &cluster.peers)
}

fn members(to: &mut Encoder<'_>, members: &[Member]) -> fmt::Result {
    let label = |member: &Member| -> Labels { vec![("member", member.member.to_string())] };
    let family = Family::new("member_up", "1 if another member sent a heartbeat within the last two seconds.");
    to.gauges(&family, members.iter().map(|member| (label(member), flag(member.alive))))?;
    let family = Family::new("member_last_change", "Last change of another member that was read.");
    to.gauges(&family, members.iter().map(|member| (label(member), member.read)))
}

fn peers(to: &mut Encoder<'_>, peers: &[Peer]) -> fmt::Result {
    let label = |peer: &Peer| -> Labels { vec![("peer", peer.listen.clone())] };
    let family = Family::new("peer_up", "1 if a peer answered within the last two seconds.");
    to.gauges(&family, peers.iter().map(|peer| (label(peer), flag(peer.alive))))?;
    let family = Family::new("peer_waiting", "Changes that a peer has not confirmed.");
    to.gauges(&family, peers.iter().map(|peer| (label(peer), peer.waiting)))?;
    let family = Family::new("peer_dropped", "Changes for a peer dropped for lack of room.");
    to.counters(&family, peers.iter().map(|peer| (label(peer), peer.dropped)))
}
