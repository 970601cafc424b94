//! Two proxies, each with a database on its machine, and two-way replication between the databases (failover paper,
//! sections 3.3 and 3.6): P1 with D1, P2 with D2. Phones register at P1. Callers use P2 when P1 has failed.

use std::net::SocketAddr;
use std::time::Duration;

use super::clients::register;
use super::members;
use super::{Deployment, Fault, Method, PHONES, Phones, Times, callees};
use crate::machine::{Lan, Machine};
use crate::{Arrangement, Engines, Server};

/// The failover method with one database per proxy.
#[derive(Debug)]
pub struct Replicated;

/// The only instance.
pub const DATABASE: Replicated = Replicated;

impl Method for Replicated {
    fn name(&self) -> &'static str {
        "database"
    }

    fn describe(&self) -> &'static str {
        "a second proxy with a replicated database (MariaDB, in both directions); clients know both proxies"
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::Process, Fault::Machine, Fault::Engine, Fault::ProcessAndEngine]
    }

    fn is_available(&self) -> bool {
        crate::Namespace::available(&["ip", "nsenter"]) && Arrangement::MariaDbTwoWay.available()
    }

    fn times(&self, fault: Fault) -> Option<Times> {
        Times::of_clients(fault, Duration::from_millis(20))
    }

    fn start(&self) -> Box<dyn Deployment> {
        let lan = Lan::new(2);
        let engines = Engines::start(Arrangement::MariaDbTwoWay, &lan);
        let machines = [lan.machine(0), lan.machine(1)];
        let servers = members::start(&machines, |number| engines.url(number));
        let phones = Phones::on(lan.clients());
        register(lan.clients(), servers[0].address(), &callees(), phones.address());
        members::wait_until_registered(&servers[1], PHONES);
        Box::new(Proxies { phones, servers, engines, lan })
    }
}

/// P1 and P2. The order of the fields is the order in which they are dropped.
#[derive(Debug)]
struct Proxies {
    phones: Phones,
    servers: Vec<Server>,
    engines: Engines,
    lan: Lan,
}

impl Deployment for Proxies {
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
        if fault == Fault::Machine {
            return self.lan.cut_off(0);
        }
        if matches!(fault, Fault::Process | Fault::ProcessAndEngine) {
            self.servers[0].kill();
        }
        if matches!(fault, Fault::Engine | Fault::ProcessAndEngine) {
            self.engines.kill(0);
        }
    }

    fn survivor(&self) -> &Server {
        &self.servers[1]
    }

    fn mend(&mut self, fault: Fault) {
        if fault == Fault::Machine {
            return self.lan.heal(0);
        }
        if matches!(fault, Fault::Engine | Fault::ProcessAndEngine) {
            self.engines.start_again(0);
            self.engines.restore();
        }
        if matches!(fault, Fault::Process | Fault::ProcessAndEngine) {
            self.servers[0].restart_on(&self.lan.machine(0));
        }
    }
}
