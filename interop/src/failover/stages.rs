//! Two stages: first-stage servers probe the members of a cluster and forward requests to those that are alive.
//! Clients know both first-stage servers and use the other one if the first does not answer, as with SRV records.

use std::net::SocketAddr;
use std::time::Duration;

use super::clients::register;
use super::members;
use super::{Deployment, Fault, Method, PHONES, Phones, RETRY, Times, callees};
use crate::machine::{Lan, Machine};
use crate::stages::{Layout, Stages};
use crate::{Arrangement, Engines, Namespace, Server};

/// Time until the first stage excludes a member: two unanswered probes, sent every 250 ms with a timeout of 250 ms.
const DETECTION: Duration = Duration::from_millis(750);
/// Members of the only cluster. Members of other clusters would notice nothing.
const MEMBERS: [&str; 2] = ["a1", "a2"];
const ENTRANCE: &str = "s1";

/// The failover method with a first stage and a cluster.
#[derive(Debug)]
pub struct TwoStages {
    name: &'static str,
    describe: &'static str,
    engine: Option<Arrangement>,
    /// The server that fails.
    victim: &'static str,
    faults: &'static [Fault],
}

/// A member fails. Members forward changes to each other.
pub const STAGES_BY_PEERS: TwoStages = TwoStages {
    name: "two-stages",
    describe: "a first stage that probes members every 250 ms; members without an engine; a member dies",
    engine: None,
    victim: MEMBERS[0],
    faults: &[Fault::Process, Fault::Machine],
};

/// A member or the engine fails.
pub const STAGES_BY_ENGINE: TwoStages = TwoStages {
    name: "two-stages-redis",
    describe: "the same with Redis, a replica and three sentinels",
    engine: Some(Arrangement::RedisSentinel),
    victim: MEMBERS[0],
    faults: &[Fault::Process, Fault::Machine, Fault::Engine],
};

/// A first-stage server fails.
pub const FIRST_STAGE: TwoStages = TwoStages {
    name: "two-stages-first",
    describe: "the same without an engine; a first-stage server dies, and clients try the other one",
    engine: None,
    victim: ENTRANCE,
    faults: &[Fault::Process, Fault::Machine],
};

impl Method for TwoStages {
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
        let replication = Duration::from_millis(1);
        match fault {
            Fault::Engine => None,
            _ if self.victim == ENTRANCE => Times::of_clients(fault, replication),
            _ => Some(Times { retry: RETRY, detection: DETECTION, replication }),
        }
    }

    fn start(&self) -> Box<dyn Deployment> {
        let of_engines = self.engine.map_or(0, Arrangement::machines);
        let first = usize::from(of_engines);
        let mut layout = Layout { clusters: vec![("a", None)], ..Layout::default() };
        let servers = layout.servers();
        let lan = Lan::new(of_engines + u8::try_from(servers).expect("few"));
        let engines = self.engine.map(|arrangement| Engines::start(arrangement, &lan));
        layout.clusters[0].1 = engines.as_ref().map(|engines| engines.url(1));
        let machines: Vec<Machine> = (first..first + servers).map(|number| lan.machine(number)).collect();
        let stages = Stages::start(layout, &machines);
        let names = [stages.entrance_names().to_vec(), stages.members()].concat();
        let place = first + names.iter().position(|name| name == self.victim).expect("it is one of them");
        MEMBERS.iter().for_each(|member| members::wait_until_ready(stages.server(member), 1));
        let phones = Phones::on(lan.clients());
        register(lan.clients(), stages.entrances()[0], &callees(), phones.address());
        members::wait_until_registered(stages.server(MEMBERS[1]), PHONES);
        Box::new(StageServers { phones, stages, engines, victim: self.victim, place, lan })
    }
}

/// Servers of both stages. The order of the fields is the order in which they are dropped.
#[derive(Debug)]
struct StageServers {
    phones: Phones,
    stages: Stages,
    engines: Option<Engines>,
    victim: &'static str,
    /// Index of the victim's machine.
    place: usize,
    lan: Lan,
}

impl Deployment for StageServers {
    fn clients(&self) -> &Machine {
        self.lan.clients()
    }

    fn servers(&self) -> Vec<SocketAddr> {
        self.stages.entrances()
    }

    fn phones(&self) -> &Phones {
        &self.phones
    }

    fn strike(&mut self, fault: Fault) {
        match (fault, &mut self.engines) {
            (Fault::Machine, _) => self.lan.cut_off(self.place),
            (Fault::Engine, Some(engines)) => {
                let master = engines.victim();
                engines.kill(master);
            }
            _ => self.stages.kill(self.victim),
        }
    }

    fn survivor(&self) -> &Server {
        self.stages.server(MEMBERS[1])
    }

    fn mend(&mut self, fault: Fault) {
        match fault {
            Fault::Machine => self.lan.heal(self.place),
            Fault::Engine => {}
            _ => self.stages.restart(self.victim),
        }
    }
}
