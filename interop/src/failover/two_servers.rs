//! Clients that know two servers which share registrations (failover paper, section 3.1).

use std::net::SocketAddr;
use std::time::Duration;

use super::clients::register;
use super::members;
use super::{Deployment, Fault, Method, PHONES, Phones, Times, callees};
use crate::machine::{Lan, Machine};
use crate::{Arrangement, Engines, Namespace, Server};

/// The failover method whose clients know two members.
#[derive(Debug)]
pub struct TwoServers {
    name: &'static str,
    describe: &'static str,
    engine: Option<Arrangement>,
    faults: &'static [Fault],
}

/// Members that forward changes to each other.
pub const SECOND_BY_PEERS: TwoServers = TwoServers {
    name: "second-registrar",
    describe: "the client's second registrar; members without an engine",
    engine: None,
    faults: &[Fault::Process, Fault::Machine],
};

/// Members that share a Redis with a replica and sentinels.
pub const SECOND_BY_ENGINE: TwoServers = TwoServers {
    name: "second-registrar-redis",
    describe: "the client's second registrar; members with Redis, a replica and three sentinels",
    engine: Some(Arrangement::RedisSentinel),
    faults: &[Fault::Process, Fault::Machine, Fault::Engine],
};

impl Method for TwoServers {
    fn name(&self) -> &'static str {
        self.name
    }

    fn describe(&self) -> &'static str {
        self.describe
    }

    fn faults(&self) -> &'static [Fault] {
        self.faults
    }

    fn is_available(&self) -> bool {
        Namespace::available(&["ip", "nsenter"]) && self.engine.is_none_or(Arrangement::available)
    }

    fn times(&self, fault: Fault) -> Option<Times> {
        Times::of_clients(fault, Duration::from_millis(1))
    }

    fn start(&self) -> Box<dyn Deployment> {
        let engines = self.engine.map_or(0, Arrangement::machines);
        let lan = Lan::new(engines + 2);
        let first = usize::from(engines);
        let engines = self.engine.map(|arrangement| Engines::start(arrangement, &lan));
        let machines = [lan.machine(first), lan.machine(first + 1)];
        let servers = match &engines {
            Some(engines) => members::start(&machines, |number| engines.url(number)),
            None => members::start_peers(&machines),
        };
        let phones = Phones::on(lan.clients());
        register(lan.clients(), servers[0].address(), &callees(), phones.address());
        members::wait_until_registered(&servers[1], PHONES);
        Box::new(Pair { phones, servers, engines, first, lan })
    }
}

/// Two members. The order of the fields is the order in which they are dropped.
#[derive(Debug)]
struct Pair {
    phones: Phones,
    servers: Vec<Server>,
    engines: Option<Engines>,
    /// Index of the first member's machine.
    first: usize,
    lan: Lan,
}

impl Deployment for Pair {
    fn clients(&self) -> &Machine {
        self.lan.clients()
    }

    fn servers(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(Server::address).collect()
    }

    fn phones(&self) -> &Phones {
        &self.phones
    }

    fn strike(&mut self, fault: Fault) {
        match (fault, &mut self.engines) {
            (Fault::Machine, _) => self.lan.cut_off(self.first),
            (Fault::Engine, Some(engines)) => {
                let master = engines.victim();
                engines.kill(master);
            }
            _ => self.servers[0].kill(),
        }
    }

    fn survivor(&self) -> &Server {
        &self.servers[1]
    }

    fn mend(&mut self, fault: Fault) {
        match fault {
            Fault::Machine => self.lan.heal(self.first),
            Fault::Engine => {}
            _ => self.servers[0].restart_on(&self.lan.machine(self.first)),
        }
    }
}
