//! Two proxies, each with a database on its machine, and two-way replication between the databases (failover paper,
//! sections 3.3 and 3.6): P1 with D1, P2 with D2. Phones register at P1. Callers use P2 when P1 has failed.

use std::time::Duration;

use super::clients::register;
use super::members;
use super::pair::Pair;
use super::{Deployment, Fault, Method, PHONES, Phones, Times, callees};
use crate::machine::Lan;
use crate::{Arrangement, Engines};

/// The failover method with one database per proxy.
#[derive(Debug)]
pub struct ReplicatedDatabase;

/// The only instance.
pub const DATABASE: ReplicatedDatabase = ReplicatedDatabase;

impl Method for ReplicatedDatabase {
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
        let (engines, engine_victim) = (Some(engines), Some(0));
        Box::new(Pair { engines, engine_victim, ..Pair::new(lan, phones, servers) })
    }
}
