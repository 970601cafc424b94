//! Clients that know two servers which share registrations (failover paper, section 3.1).

use std::time::Duration;

use super::clients::register;
use super::members;
use super::pair::Pair;
use super::{Deployment, Fault, Method, PHONES, Phones, Times, callees};
use crate::machine::Lan;
use crate::{Arrangement, Engines, Namespace};

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
        Box::new(Pair { engines, first, ..Pair::new(lan, phones, servers) })
    }
}
