//! The configuration of all servers of a layout. Only [`configuration`] knows how servers are assigned to stages.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use super::DOMAIN;
use super::layout::{Layout, Work};

/// Port of all servers; each has its own address.
const PORT: u16 = 5_060;
/// T1. Transactions live 64 times as long, so they end at the rate at which they begin after 6.4 s.
pub const T1: &str = "100ms";

/// Stage of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Forwards each request to the cluster of its user.
    First,
    /// Serves the users of this cluster, counted from 0.
    Second(u32),
}

/// A server of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Name, such as `s1`, `p2`, or `p2-2` for the second server of the second cluster.
    pub name: String,
    /// Stage of the server.
    pub stage: Stage,
    /// Listening address over UDP.
    pub address: SocketAddr,
}

/// Returns all servers of a layout: those of the second stage first, because the first stage probes them.
#[must_use]
pub fn servers(layout: Layout) -> Vec<Server> {
    let second = (0..layout.clusters).flat_map(|cluster| members(layout, cluster));
    let first = (0..layout.first).map(|number| Server {
        name: format!("s{}", number + 1),
        stage: Stage::First,
        address: address(1, number),
    });
    second.chain(first).collect()
}

fn members(layout: Layout, cluster: u32) -> Vec<Server> {
    let name = |number: u32| match number {
        0 => format!("p{}", cluster + 1),
        _ => format!("p{}-{}", cluster + 1, number + 1),
    };
    let one =
        |number| Server { name: name(number), stage: Stage::Second(cluster), address: address(2 + cluster, number) };
    (0..layout.servers).map(one).collect()
}

/// Returns the configuration file of all servers, each of which reads it with its name (`strowger serve -c FILE --as
/// NAME`). Data is in `folder`. Clusters have shares of the users by `weights`; a missing weight is 1.
#[must_use]
pub fn configuration(layout: Layout, work: Work, weights: &[u16], folder: &Path) -> String {
    let mut text = format!(
        "[server]\ndomains = [\"{DOMAIN}\"]\ndata = \"{}\"\nworkers = 1\nspin = \"0s\"\n\n[store]\nmode = \"memory\"\n\n\
         [auth]\nrequire = []\n\n[timers]\nt1 = \"{T1}\"\n\n[log]\nlevel = \"error\"\n",
        folder.join("data").display()
    );
    if !work.has_control() {
        text.push_str("\n[overload]\ncontrol = false\n");
    }
    for server in servers(layout).iter().filter(|server| server.stage == Stage::First) {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n[[first_stage]]\nname = \"{}\"\naddress = \"{}\"\n", server.name, server.address);
    }
    for cluster in 0..layout.clusters {
        let member = |one: Server| format!("{{ name = \"{}\", address = \"{}\" }}", one.name, one.address);
        let members: Vec<String> = members(layout, cluster).into_iter().map(member).collect();
        let weight = weights.get(cluster as usize).copied().unwrap_or(1);
        let _ = write!(
            text,
            "\n[[second_stage]]\nname = \"c{}\"\nweight = {weight}\nmembers = [{}]\n",
            cluster + 1,
            members.join(", ")
        );
    }
    text
}

/// Returns a loopback address; each group of servers has its own range.
fn address(group: u32, number: u32) -> SocketAddr {
    let [.., low] = group.to_be_bytes();
    let [.., last] = (number + 1).to_be_bytes();
    (Ipv4Addr::new(127, 0, low, last), PORT).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_servers_share_one_file() {
        let layout = Layout::new(2, 2, 2);
        let names: Vec<String> = servers(layout).into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["p1", "p1-2", "p2", "p2-2", "s1", "s2"]);
        let text = configuration(layout, Work::Calls, &[3, 2], Path::new("/x"));
        assert!(text.contains("[[first_stage]]\nname = \"s2\"\naddress = \"127.0.1.2:5060\"\n"), "{text}");
        let cluster =
            "name = \"c2\"\nweight = 2\nmembers = [{ name = \"p2\", address = \"127.0.3.1:5060\" }, { name = \"p2-2\"";
        assert!(text.contains(cluster) && !text.contains("control"), "{text}");
        let alone = configuration(Layout::new(0, 1, 1), Work::Registrations, &[], Path::new("/x"));
        assert!(!alone.contains("first_stage") && alone.contains("control = false"), "{alone}");
    }
}
