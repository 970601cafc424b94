//! Two members on machines of their own, of which one dies: what most ways to fail over have in common.

use std::net::SocketAddr;

use super::srv::Names;
use super::{Deployment, Fault, Phones};
use crate::machine::{Lan, Machine};
use crate::{Engines, Server};

/// Two members that run. Fields are dropped in this order.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) phones: Phones,
    /// The servers that clients ask, in this order.
    pub(super) asked: Vec<SocketAddr>,
    /// A server before the members.
    pub(super) _edge: Option<Server>,
    pub(super) members: Vec<Server>,
    /// The member that dies.
    pub(super) victim: usize,
    pub(super) engines: Option<Engines>,
    /// The engine that dies, which is started again then; otherwise the one that leads, which another replaces.
    pub(super) engine_victim: Option<usize>,
    /// The machine of the first member.
    pub(super) first: usize,
    pub(super) lan: Lan,
    pub(super) _names: Option<Names>,
}

impl Pair {
    /// Members on the first two machines, of which clients ask the first one and then the second one. The first one dies.
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
