//! Load sharing by identifier: a balancer sends each request to the server responsible for the user.

use std::net::SocketAddr;

use crate::sharing::testbed::{FRONT, PORT, SEPARATE, Setup, Testbed};
use crate::sharing::{Deployment, Forwarding};
use crate::{Config, Server};

/// A balancer in front of the servers.
#[derive(Debug)]
pub struct BalancerFront {
    balancer: Server,
    site: Testbed,
    serving: Vec<usize>,
}

impl BalancerFront {
    /// Starts with the first three servers and this policy: `hash` or `range`.
    ///
    /// # Panics
    /// If a program does not start.
    #[must_use]
    pub fn start(policy: &str, members: bool) -> BalancerFront {
        let site = Testbed::flat(Setup { forwarding: Forwarding::Stateful, members });
        let serving = vec![0, 1, 2];
        let targets: Vec<String> = serving.iter().map(|&number| uri(&site, number)).collect();
        let more = format!(
            "[[balancer]]\nname = \"users\"\npolicy = \"{policy}\"\nkey = \"user\"\nslow_start = \"0s\"\ntargets = {targets:?}\n\
             [[route]]\nmatch = {{ domain = \"*\" }}\nbalance = \"users\"\n"
        );
        let config =
            Config { host: FRONT.into(), port: PORT, tcp: true, domains: vec!["front.test"], more, ..Config::open() };
        let balancer = Config { users: Vec::new(), server: SEPARATE, ..config }.start_in(Some(&site.front));
        BalancerFront { balancer, site, serving }
    }
}

impl Deployment for BalancerFront {
    fn site(&self) -> &Testbed {
        &self.site
    }

    fn site_mut(&mut self) -> &mut Testbed {
        &mut self.site
    }

    fn entry(&self, _phone: usize) -> SocketAddr {
        self.balancer.address()
    }

    fn serve_with(&mut self, servers: &[usize]) {
        for &number in servers.iter().filter(|number| !self.serving.contains(number)) {
            self.balancer.control(&["targets", "add", "users", &uri(&self.site, number)]);
        }
        for &number in self.serving.iter().filter(|number| !servers.contains(number)) {
            self.balancer.control(&["targets", "rm", &format!("users/{}", uri(&self.site, number))]);
        }
        self.serving = servers.to_vec();
    }
}

fn uri(site: &Testbed, number: usize) -> String {
    format!("sip:{}:{PORT}", site.members[number].address)
}
