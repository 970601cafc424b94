//! Load sharing by servers with one common address. The router of their network chooses the MAC address for each
//! packet.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use crate::sharing::testbed::{PORT, SERVERS, Setup, Testbed};
use crate::sharing::{Deployment, Forwarding};
use crate::{PATIENCE, poll};

/// Address common to all servers.
const SHARED: Ipv4Addr = Ipv4Addr::new(10, 72, 0, 1);
/// Port at which nobody listens.
const DISCARD: u16 = 9;
/// ID of the router's next-hop group.
const GROUP: usize = 100;

/// How the router distributes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Each packet goes to the next server (round robin).
    Packets,
    /// Hash of the packet's addresses and ports (ECMP).
    Flows,
}

/// A router in front of servers with one address.
#[derive(Debug)]
pub struct OneAddress {
    site: Testbed,
    spread: Spread,
}

impl OneAddress {
    /// Starts with the first three servers.
    ///
    /// # Panics
    /// If a program does not start.
    #[must_use]
    pub fn start(spread: Spread, forwarding: Forwarding, members: bool) -> OneAddress {
        let site = Testbed::routed(Setup { forwarding, members }, Some(SHARED));
        let router = &site.front;
        for number in 0..SERVERS {
            let (id, via) = (number + 1, site.members[number].address);
            router.run("ip", &format!("nexthop add id {id} via {via} dev switch"));
            router.run("ip", &format!("rule add fwmark {id} table {id}"));
            router.run("ip", &format!("route add default table {id} nhid {id}"));
        }
        router.set("ipv4/fib_multipath_hash_policy", 1);
        router.run("ip", &format!("nexthop add id {GROUP} group 1"));
        router.run("ip", &format!("route add {SHARED} nhid {GROUP}"));
        router.run("nft", "add table ip share");
        router.run("nft", "add chain ip share in { type filter hook prerouting priority -150 ; }");
        let mut one = OneAddress { site, spread };
        one.find_neighbours();
        one.serve_with(&[0, 1, 2]);
        one
    }

    /// Makes the router learn the link addresses of the servers. Until it has one, it sends flows of that server to
    /// another, and their later packets to the right one.
    fn find_neighbours(&self) {
        let router = &self.site.front;
        for member in self.site.members.iter().take(SERVERS) {
            let address = member.address;
            router.inside(|| {
                let socket = UdpSocket::bind("0.0.0.0:0").expect("a free port");
                socket.send_to(b"\r\n", (address, DISCARD)).expect("a route");
            });
            let is_known = || !router.run("ip", &format!("neigh show {address} nud reachable")).is_empty();
            assert!(poll(PATIENCE, || is_known().then_some(())).is_some(), "{address} does not answer ARP");
        }
    }
}

impl Deployment for OneAddress {
    fn site(&self) -> &Testbed {
        &self.site
    }

    fn site_mut(&mut self) -> &mut Testbed {
        &mut self.site
    }

    fn entry(&self, _phone: usize) -> SocketAddr {
        (SHARED, PORT).into()
    }

    fn serve_with(&mut self, servers: &[usize]) {
        let router = &self.site.front;
        let ids: Vec<String> = servers.iter().map(|server| (server + 1).to_string()).collect();
        match self.spread {
            Spread::Flows => {
                router.run("ip", &format!("nexthop replace id {GROUP} group {}", ids.join("/")));
            }
            Spread::Packets => {
                let map: Vec<String> = ids.iter().enumerate().map(|(turn, id)| format!("{turn} : {id}")).collect();
                let rule = format!(
                    "ip daddr {SHARED} meta mark set numgen inc mod {} map {{ {} }}",
                    ids.len(),
                    map.join(", ")
                );
                router.run("nft", "flush chain ip share in");
                router.run("nft", &format!("add rule ip share in {rule}"));
            }
        }
    }
}
