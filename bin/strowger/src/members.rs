//! `strowger ctl members`: the servers that share registrations with this one.

use std::io;

use strowger_control::protocol::{Cluster, Member};

use crate::table::{print_line, print_table};
use crate::text::{clock, count, number};

pub(crate) fn print(cluster: &Cluster) -> io::Result<()> {
    let own = [cluster.member.to_string(), cluster.address.clone(), "this one".to_owned(), String::new()];
    let row = |member: &Member| {
        let state = match (member.alive, &cluster.trouble) {
            // While the engine does not answer nobody knows.
            (true, Some(_)) => "alive when last heard of",
            (true, None) => "alive",
            (false, _) => "no sign of life",
        };
        [member.member.to_string(), member.address.clone(), state.to_owned(), number(member.read)]
    };
    let rows: Vec<_> = std::iter::once(own).chain(cluster.members.iter().map(row)).collect();
    print_table(["MEMBER", "ADDRESS", "STATE", "ENTRIES READ"], &rows)?;
    print_line(&summary(cluster))
}

/// `strowger: member 1 of 3, all is shared`.
pub(crate) fn summary(cluster: &Cluster) -> String {
    let alive = cluster.members.iter().filter(|member| member.alive).count() + 1;
    let state = match (&cluster.trouble, cluster.trouble_s) {
        _ if cluster.conflict.is_some() => format!("WRONG: {}", cluster.conflict.as_deref().unwrap_or_default()),
        (Some(why), since) => format!("NOT SHARED for {}: {why}", clock(since.unwrap_or_default())),
        (None, _) if !cluster.warm => "reading what the others have; REGISTERs get 503 until then".to_owned(),
        (None, _) if cluster.waiting > 0 => format!("{} on the way to the engine", count(cluster.waiting, "change")),
        (None, _) => "all is shared".to_owned(),
    };
    format!("{}: member {}, {alive} of {} alive, {state}", cluster.name, cluster.member, cluster.members.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said() {
        let member = |member, alive| Member { member, alive, ..Member::default() };
        let well = Cluster {
            name: "office".to_owned(),
            member: 2,
            warm: true,
            members: vec![member(1, true), member(3, false)],
            ..Cluster::default()
        };
        assert_eq!(summary(&well), "office: member 2, 2 of 3 alive, all is shared");
        let ill = Cluster { trouble: Some("refused".to_owned()), trouble_s: Some(65.0), ..well.clone() };
        assert_eq!(summary(&ill), "office: member 2, 2 of 3 alive, NOT SHARED for 0:01:05: refused");
        assert!(summary(&Cluster { warm: false, ..well }).ends_with("REGISTERs get 503 until then"));
    }
}
