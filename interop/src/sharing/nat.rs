//! Load sharing by network address translation: one public address, and servers with private ones behind it.

use std::net::SocketAddr;

use crate::sharing::testbed::{FRONT, PORT, Setup, Testbed};
use crate::sharing::{Deployment, Forwarding};

/// How the translator chooses the server of a new flow; conntrack keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// By turns.
    Turns,
    /// By a hash of the source's address and port.
    Source,
}

/// A router with `nftables` before the servers.
#[derive(Debug)]
pub struct Translator {
    site: Testbed,
    choice: Choice,
}

impl Translator {
    /// Starts it with the first three servers.
    ///
    /// # Panics
    /// When a program does not start.
    #[must_use]
    pub fn start(choice: Choice, members: bool) -> Translator {
        let site = Testbed::routed(Setup { forwarding: Forwarding::Stateful, members }, None);
        let router = &site.front;
        router.run("nft", "add table ip share");
        router.run("nft", "add chain ip share in { type nat hook prerouting priority -100 ; }");
        router.run("nft", "add chain ip share out { type nat hook postrouting priority 100 ; }");
        // What a server begins itself, as a request to a phone, leaves from the public address too.
        router.run("nft", "add rule ip share out ip saddr 10.71.0.0/24 ip daddr 10.70.0.0/24 masquerade");
        let mut nat = Translator { site, choice };
        nat.serve_with(&[0, 1, 2]);
        nat
    }

    /// The router forgets all flows, as after the time-out of each, or when another router takes over.
    ///
    /// # Panics
    /// When it does not.
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

    /// The servers name their private addresses in Record-Route.
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
