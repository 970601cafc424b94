//! A NAT between two networks.

use std::net::Ipv4Addr;
use std::sync::Arc;

use crate::machine::Machine;
use crate::namespace::{Namespace, interface};

/// A private network behind a router with address translation (`nftables` masquerade), as in homes.
///
/// The router admits packets of connections opened from inside, and nothing else.
#[derive(Debug)]
pub struct Nat {
    /// The server's network, which has no route to private addresses.
    pub outside: Arc<Namespace>,
    /// The private network.
    pub inside: Namespace,
    router: Namespace,
}

impl Nat {
    /// Where the server is.
    pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
    /// Public address of the router, as the server sees it.
    pub const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
    /// Where the phone is.
    pub const PHONE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
    const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

    /// Returns whether the NAT can be created here. If not, prints that the test is skipped.
    ///
    /// # Panics
    /// As [`Namespace::available`].
    #[must_use]
    pub fn available() -> bool {
        Namespace::available(&["ip", "nft", "conntrack", "nsenter"])
    }

    /// Creates the networks. The router drops UDP mappings after this many seconds without traffic.
    ///
    /// # Panics
    /// If they cannot be created.
    #[must_use]
    pub fn new(udp_timeout_s: u32) -> Nat {
        let nat = Nat { outside: Arc::new(Namespace::new()), inside: Namespace::new(), router: Namespace::new() };
        nat.router.join(Nat::PUBLIC, &nat.outside, Nat::SERVER);
        nat.router.join(Nat::GATEWAY, &nat.inside, Nat::PHONE);
        nat.inside.run("ip", &format!("route add default via {}", Nat::GATEWAY));
        nat.router.set("ipv4/ip_forward", 1);
        let out = interface(Nat::SERVER);
        nat.router.run("nft", "add table ip nat");
        nat.router.run("nft", "add chain ip nat after { type nat hook postrouting priority 100 ; }");
        // Most routers choose a port other than the phone's own.
        nat.router.run(
            "nft",
            &format!("add rule ip nat after oifname {out} meta l4proto {{ tcp, udp }} masquerade to :40000-49999"),
        );
        nat.router.run("nft", "add table ip filter");
        nat.router.run("nft", "add chain ip filter through { type filter hook forward priority 0 ; }");
        nat.router.set("netfilter/nf_conntrack_udp_timeout", udp_timeout_s);
        nat.router.set("netfilter/nf_conntrack_udp_timeout_stream", udp_timeout_s);
        nat
    }

    /// Creates this many machines in the outside network. The first has the address [`Nat::SERVER`].
    ///
    /// # Panics
    /// If they already exist.
    #[must_use]
    pub fn servers(&self, count: u8) -> Vec<Machine> {
        let [a, b, c, _] = Nat::SERVER.octets();
        let others: Vec<Ipv4Addr> =
            (100..).map(|number| Ipv4Addr::new(a, b, c, number)).take(count.into()).skip(1).collect();
        others.iter().for_each(|other| drop(self.outside.run("ip", &format!("address add {other}/32 dev lo"))));
        [Nat::SERVER].into_iter().chain(others).map(|address| Machine::within(&self.outside, address)).collect()
    }

    /// Returns the public ports of the router's mappings from inside to this port of the server, sorted.
    #[must_use]
    pub fn mappings(&self, transport: &str, port: u16) -> Vec<u16> {
        let listed = self.router.run("conntrack", &format!("--dump --proto {transport} --orig-port-dst {port}"));
        let outer = |line: &str| line.rsplit("dport=").next()?.split(' ').next()?.parse().ok();
        // The router keeps the mapping of a closed connection for a while.
        let lives = |line: &&str| transport != "tcp" || line.contains(" ESTABLISHED ");
        let mut ports: Vec<_> = listed.lines().filter(lives).filter_map(outer).collect();
        ports.sort_unstable();
        ports
    }

    /// Deletes all mappings, as a power cycle of the router would.
    pub fn forget(&self) {
        self.router.run("conntrack", "--flush");
    }

    /// Resets TCP connections through the router, both ends of each at their next segment.
    pub fn reset_connections(&self) {
        self.router.run("nft", "add rule ip filter through meta l4proto tcp reject with tcp reset");
    }

    /// Drops all packets silently.
    pub fn swallow(&self) {
        self.router.run("nft", "add rule ip filter through drop");
    }

    /// Reverts [`Nat::reset_connections`] and [`Nat::swallow`].
    pub fn heal(&self) {
        self.router.run("nft", "flush chain ip filter through");
    }
}
