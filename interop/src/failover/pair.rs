//! Two members on machines of their own, of which one fails: the deployment of most failover methods.

use std::net::SocketAddr;

use super::name_server::NameServer;
use super::{Deployment, Fault, Phones};
use crate::machine::{Lan, Machine};
use crate::{Engines, Server};

/// Two members. The order of the fields is the order in which they are dropped.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) phones: Phones,
    /// Servers that clients ask, in this order.
    pub(super) asked: Vec<SocketAddr>,
    /// Proxy in front of the members.
    pub(super) _edge: Option<Server>,
    pub(super) members: Vec<Server>,
    /// Index of the member that fails.
    pub(super) victim: usize,
    pub(super) engines: Option<Engines>,
    /// Index of the engine that fails and is started again later; if `None`, the current master fails, and a replica
    /// takes over for good.
    pub(super) engine_victim: Option<usize>,
    /// Index of the first member's machine.
    pub(super) first: usize,
    pub(super) lan: Lan,
    pub(super) _names: Option<NameServer>,
}

impl Pair {
    /// Returns members on the first two machines. Clients ask them in order, and the first one fails.
    pub(super) fn new(lan: Lan, phones: Phones, members: Vec<Server>) -> Pair {
        let asked = members.iter().map(Server::address).collect();
        Pair {
            phones,
            asked,
            _edge: None,
            members,
            victim: 0,
            engines: None,
            engine_victim: None,
            first: 0,
            lan,
            _names: None,
        }
    }
}

impl Deployment for Pair {
    fn clients(&self) -> &Machine {
        self.lan.clients()
    }

    fn servers(&self) -> Vec<SocketAddr> {
        self.asked.clone()
    }

    fn phones(&self) -> &Phones {
        &self.phones
    }

    fn strike(&mut self, fault: Fault) {
        if fault == Fault::Machine {
            return self.lan.cut_off(self.first + self.victim);
        }
        if matches!(fault, Fault::Process | Fault::ProcessAndEngine) {
            self.members[self.victim].kill();
        }
        if matches!(fault, Fault::Engine | Fault::ProcessAndEngine) {
            let engines = self.engines.as_mut().expect("the members have an engine");
            let victim = self.engine_victim.unwrap_or_else(|| engines.victim());
            engines.kill(victim);
        }
    }

    fn survivor(&self) -> &Server {
        &self.members[1 - self.victim]
    }

    fn mend(&mut self, fault: Fault) {
        if fault == Fault::Machine {
            return self.lan.heal(self.first + self.victim);
        }
        if matches!(fault, Fault::Engine | Fault::ProcessAndEngine)
            && let (Some(engines), Some(victim)) = (&mut self.engines, self.engine_victim)
        {
            engines.start_again(victim);
            engines.restore();
        }
        if matches!(fault, Fault::Process | Fault::ProcessAndEngine) {
            let machine = self.lan.machine(self.first + self.victim);
            self.members[self.victim].restart_on(&machine);
        }
    }
}
