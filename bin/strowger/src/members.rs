//! `strowger ctl members`: the servers that share registrations with this one.

use std::io;

use strowger_control::protocol::{Cluster, Member, Peer};

use crate::table::{print_line, print_table};
use crate::text::{clock, count, number};

pub(crate) fn print(cluster: &Cluster) -> io::Result<()> {
    let own = [cluster.member.to_string(), cluster.address.clone(), "this one".to_owned(), String::new()];
    let row = |member: &Member| {
        let state = match (member.alive, &cluster.trouble) {
            // The state is unknown while the engine does not answer.
            (true, Some(_)) => "alive when last seen",
            (true, None) => "alive",
            (false, _) => "no heartbeat",
        };
        [member.member.to_string(), member.address.clone(), state.to_owned(), number(member.read)]
    };
    let rows: Vec<_> = std::iter::once(own).chain(cluster.members.iter().map(row)).collect();
    let last = if cluster.peers.is_empty() { "ENTRIES READ" } else { "CHANGES SENT" };
    print_table(["MEMBER", "ADDRESS", "STATE", last], &rows)?;
    for peer in &cluster.peers {
        if let Some(line) = peer_line(peer) {
            print_line(&line)?;
        }
    }
    print_line(&summary(cluster))
}

/// Describes a problem that the operator must solve.
pub(crate) fn trouble(cluster: &Cluster) -> Option<String> {
    cluster.conflict.clone().or_else(|| cluster.trouble.as_ref().map(|_| "registrations are not shared".to_owned()))
}

/// Returns further details of a peer.
fn peer_line(peer: &Peer) -> Option<String> {
    let listen = &peer.listen;
    match (peer.member, peer.alive) {
        (None, _) => Some(format!("the peer {listen} has not answered yet")),
        (Some(_), false) if peer.dropped > 0 => {
            Some(format!("the peer {listen} does not answer: it will get the full state when it answers again"))
        }
        (Some(_), false) => {
            let waiting = count(peer.waiting, "change");
            Some(format!("the peer {listen} does not answer: {waiting} queued for it"))
        }
        (Some(_), true) => None,
    }
}

/// Formats a summary: `strowger: member 1 of 3, all changes shared`.
pub(crate) fn summary(cluster: &Cluster) -> String {
    let alive = cluster.members.iter().filter(|member| member.alive).count() + 1;
    let state = match (&cluster.trouble, cluster.trouble_s) {
        _ if cluster.conflict.is_some() => format!("WRONG: {}", cluster.conflict.as_deref().unwrap_or_default()),
        (Some(why), since) => format!("NOT SHARED for {}: {why}", clock(since.unwrap_or_default())),
        (None, _) if !cluster.warm => {
            "reading the registrations of the other members; REGISTERs get 503 until this is complete".to_owned()
        }
        (None, _) if cluster.waiting > 0 => {
            let to = if cluster.peers.is_empty() { "the engine" } else { "the other members" };
            format!("{} on the way to {to}", count(cluster.waiting, "change"))
        }
        (None, _) => "all changes shared".to_owned(),
    };
    let all = cluster.members.len().max(cluster.peers.len()) + 1;
    format!("{}: member {}, {alive} of {all} alive, {state}", cluster.name, cluster.member)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_shown() {
        let member = |member, alive| Member { member, alive, ..Member::default() };
        let well = Cluster {
            name: "office".to_owned(),
            member: 2,
            warm: true,
            members: vec![member(1, true), member(3, false)],
            ..Cluster::default()
        };
        assert_eq!(summary(&well), "office: member 2, 2 of 3 alive, all changes shared");
        let ill = Cluster { trouble: Some("refused".to_owned()), trouble_s: Some(65.0), ..well.clone() };
        assert_eq!(summary(&ill), "office: member 2, 2 of 3 alive, NOT SHARED for 0:01:05: refused");
        assert!(
            summary(&Cluster { warm: false, ..well.clone() }).ends_with("REGISTERs get 503 until this is complete")
        );
        let peer =
            |alive, dropped| Peer { listen: "192.0.2.2:5064".to_owned(), member: Some(2), alive, waiting: 3, dropped };
        let with_peers = Cluster { peers: vec![peer(true, 0), peer(false, 0), peer(false, 9)], waiting: 1, ..well };
        assert_eq!(summary(&with_peers), "office: member 2, 2 of 4 alive, 1 change on the way to the other members");
        assert_eq!(
            with_peers.peers.iter().map(peer_line).collect::<Vec<_>>(),
            [
                None,
                Some("the peer 192.0.2.2:5064 does not answer: 3 changes queued for it".to_owned()),
                Some(
                    "the peer 192.0.2.2:5064 does not answer: it will get the full state when it answers again"
                        .to_owned()
                )
            ]
        );
    }
}
