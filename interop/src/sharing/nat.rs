//! Load sharing by network address translation: one public address in front of servers with private addresses.

use std::net::SocketAddr;

use crate::sharing::testbed::{FRONT, PORT, Setup, Testbed};
use crate::sharing::{Deployment, Forwarding};

/// How the translator chooses a server for a new flow. conntrack keeps the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Round robin.
    Turns,
    /// Hash of the source address and port.
    Source,
}

/// A router with `nftables` in front of the servers.
#[derive(Debug)]
pub struct Translator {
    site: Testbed,
    choice: Choice,
}

impl Translator {
    /// Starts with the first three servers.
    ///
    /// # Panics
    /// If a program does not start.
    #[must_use]
    pub fn start(choice: Choice, members: bool) -> Translator {
        let site = Testbed::routed(Setup { forwarding: Forwarding::Stateful, members }, None);
        let router = &site.front;
        router.run("nft", "add table ip share");
        router.run("nft", "add chain ip share in { type nat hook prerouting priority -100 ; }");
        router.run("nft", "add chain ip share out { type nat hook postrouting priority 100 ; }");
        // Flows that a server opens, such as a request to a phone, also leave from the public address.
        router.run("nft", "add rule ip share out ip saddr 10.71.0.0/24 ip daddr 10.70.0.0/24 masquerade");
        let mut nat = Translator { site, choice };
        nat.serve_with(&[0, 1, 2]);
        nat
    }

    /// Deletes all flows, as after their timeouts or when another router takes over.
    ///
    /// # Panics
    /// If the command fails.
    pub fn forget(&self) {
        self.site.front.run("conntrack", "--flush");
    }
}

impl Deployment for Translator {
    fn site(&self) -> &Testbed {
        &self.site
    }

    fn site_mut(&mut self) -> &mut Testbed {
        &mut self.site
    }

    fn entry(&self, _phone: usize) -> SocketAddr {
        (FRONT, PORT).into()
    }

    /// The servers put their private addresses into Record-Route.
    fn follows_route(&self) -> bool {
        false
    }

    fn serve_with(&mut self, servers: &[usize]) {
        let router = &self.site.front;
        router.run("nft", "flush chain ip share in");
        let entry = |(turn, &server): (usize, &usize)| format!("{turn} : {}", self.site.members[server].address);
        let map = servers.iter().enumerate().map(entry).collect::<Vec<_>>().join(", ");
        for transport in ["udp", "tcp"] {
            let choice = match self.choice {
                Choice::Turns => format!("numgen inc mod {}", servers.len()),
                Choice::Source => format!("jhash ip saddr . {transport} sport mod {}", servers.len()),
            };
            let rule = format!("ip daddr {FRONT} {transport} dport {PORT} dnat to {choice} map {{ {map} }}");
            router.run("nft", &format!("add rule ip share in {rule}"));
        }
    }
}
