//! A NAT between two networks.

use std::net::Ipv4Addr;
use std::sync::Arc;

use crate::machine::Machine;
use crate::namespace::{Namespace, interface};

/// A private network behind a router that translates addresses (`nftables` masquerade), as homes have it.
///
/// The router lets in what belongs to a connection that came from inside, and nothing else.
#[derive(Debug)]
pub struct Nat {
    /// The network of the server, which knows no way to private addresses.
    pub outside: Arc<Namespace>,
    /// The private network.
    pub inside: Namespace,
    router: Namespace,
}

impl Nat {
    /// Where the server is.
    pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
    /// The outer address of the router, which the server sees.
    pub const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
    /// Where the phone is.
    pub const PHONE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
    const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

    /// Whether it can be made here; if not, says that the test is skipped.
    ///
    /// # Panics
    /// As [`Namespace::available`].
    #[must_use]
    pub fn available() -> bool {
        Namespace::available(&["ip", "nft", "conntrack", "nsenter"])
    }

    /// Makes the networks. The router forgets UDP mappings over which nothing went for so many seconds.
    ///
    /// # Panics
    /// When they cannot be made.
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
        // Another port than the phone's own, as most routers choose.
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

    /// So many machines outside, the first one with [`Nat::SERVER`] for its address. They share one network.
    ///
    /// # Panics
    /// When they were made already.
    #[must_use]
    pub fn servers(&self, count: u8) -> Vec<Machine> {
        let [a, b, c, _] = Nat::SERVER.octets();
        let others: Vec<Ipv4Addr> =
            (100..).map(|number| Ipv4Addr::new(a, b, c, number)).take(count.into()).skip(1).collect();
        others.iter().for_each(|other| drop(self.outside.run("ip", &format!("address add {other}/32 dev lo"))));
        [Nat::SERVER].into_iter().chain(others).map(|address| Machine::within(&self.outside, address)).collect()
    }

    /// The outer ports of the mappings that the router has for what goes from inside to this port of the server, in order.
    #[must_use]
    pub fn mappings(&self, transport: &str, port: u16) -> Vec<u16> {
        let listed = self.router.run("conntrack", &format!("--dump --proto {transport} --orig-port-dst {port}"));
        let outer = |line: &str| line.rsplit("dport=").next()?.split(' ').next()?.parse().ok();
        // Of a connection that has ended it keeps the mapping for a while.
        let lives = |line: &&str| transport != "tcp" || line.contains(" ESTABLISHED ");
        let mut ports: Vec<_> = listed.lines().filter(lives).filter_map(outer).collect();
        ports.sort_unstable();
        ports
    }

    /// The router forgets all mappings, as one that was switched off and on.
    pub fn forget(&self) {
        self.router.run("conntrack", "--flush");
    }

    /// From now on TCP connections through the router are reset, both ends of each at their next segment.
    pub fn reset_connections(&self) {
        self.router.run("nft", "add rule ip filter through meta l4proto tcp reject with tcp reset");
    }

    /// From now on the router passes nothing on and says nothing about it.
    pub fn swallow(&self) {
        self.router.run("nft", "add rule ip filter through drop");
    }

    /// Ends [`Nat::reset_connections`] and [`Nat::swallow`].
    pub fn heal(&self) {
        self.router.run("nft", "flush chain ip filter through");
    }
}
