//! One address that goes from a registrar that is dead to the other one (failover paper, section 3.4), by keepalived.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::clients::register;
use super::members::{self, PORT};
use super::{Deployment, Fault, Method, PHONES, Phones, RETRY, Times, callees};
use crate::machine::{Lan, Machine};
use crate::{Config, Contender, Keepalived, Namespace, PATIENCE, Server, poll};

/// The address that one of the two has.
const SHARED: Ipv4Addr = Ipv4Addr::new(10, 66, 0, 100);
/// How often keepalived looks, and how long it waits for the other's advertisements.
const DETECTION: Duration = Duration::from_millis(1_600);

/// Registrars of which one has the address.
#[derive(Debug)]
pub struct ByTakeover;

/// The only one.
pub const TAKEOVER: ByTakeover = ByTakeover;

impl Method for ByTakeover {
    fn name(&self) -> &'static str {
        "takeover"
    }

    fn describe(&self) -> &'static str {
        "one address of two registrars, moved by keepalived; clients know that address alone"
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::Process, Fault::Machine]
    }

    fn is_available(&self) -> bool {
        Namespace::available(&["ip", "nsenter", "keepalived"])
    }

    fn times(&self, _: Fault) -> Option<Times> {
        // A call that comes meanwhile waits for half of that on the mean, and then for its own retransmission.
        Some(Times { retry: (DETECTION + RETRY) / 2, detection: DETECTION, replication: Duration::from_millis(1) })
    }

    fn start(&self) -> Box<dyn Deployment> {
        Box::new(Takeover::with_phones())
    }
}

/// Two registrars that run. What stands first goes first at the end.
#[derive(Debug)]
pub struct Takeover {
    phones: Phones,
    keepalived: Vec<Keepalived>,
    servers: Vec<Server>,
    /// The machine that had the address when something was last done to it.
    active: usize,
    lan: Lan,
}

impl Takeover {
    /// Starts them, and registers phones.
    ///
    /// # Panics
    /// When something does not start.
    #[must_use]
    pub fn with_phones() -> Takeover {
        let takeover = Takeover::start();
        register(takeover.clients(), Takeover::address(), &callees(), takeover.phones().address());
        takeover.servers.iter().for_each(|server| members::wait_until_registered(server, PHONES));
        takeover
    }

    fn start() -> Takeover {
        let lan = Lan::new(2);
        let machines = [lan.machine(0), lan.machine(1)];
        for machine in &machines {
            machine.network().expect("it has a network of its own").set("ipv4/ip_nonlocal_bind", 1);
        }
        // Its own address first, where the other members send what is for its phones; then the shared one.
        let listeners = ["udp", "tcp"].map(|transport| format!("{transport}:{SHARED}:{PORT}")).to_vec();
        let servers = members::start_peers_with(&machines, |config| Config { listeners: listeners.clone(), ..config });
        let keepalived = (0..2).map(|number: usize| {
            let [own, peer] = [number, 1 - number].map(|number| machines[number].address());
            let contender = Contender { own, peer, shared: SHARED };
            Keepalived::start(machines[number].network().expect("its own"), &servers[number], contender)
        });
        let keepalived = keepalived.collect();
        let phones = Phones::on(lan.clients());
        let mut takeover = Takeover { phones, keepalived, servers, active: 0, lan };
        takeover.active = poll(PATIENCE, || takeover.holders().first().copied()).expect("one has the address");
        takeover
    }

    /// The address that clients know.
    #[must_use]
    pub fn address() -> SocketAddr {
        (SHARED, PORT).into()
    }

    /// The machines that have the address.
    #[must_use]
    pub fn holders(&self) -> Vec<usize> {
        let has = |number: &usize| {
            let machine = self.lan.machine(*number);
            let network = machine.network().expect("it has a network of its own");
            network.run("ip", "address show dev lan").contains(&format!(" {SHARED}/"))
        };
        (0..2).filter(has).collect()
    }

    /// The two servers.
    #[must_use]
    pub fn both(&self) -> &[Server] {
        &self.servers
    }

    /// Has keepalived end where the address is, so that it goes to the other machine while all servers run.
    ///
    /// # Panics
    /// When it does not go.
    pub fn hand_over(&mut self) {
        self.active = self.holders()[0];
        self.keepalived[self.active].terminate();
        let is_there = || (self.holders() == [1 - self.active]).then_some(());
        assert!(poll(PATIENCE, is_there).is_some(), "the other machine has not the address: {:?}", self.holders());
    }
}

impl Deployment for Takeover {
    fn clients(&self) -> &Machine {
        self.lan.clients()
    }

    fn servers(&self) -> Vec<SocketAddr> {
        vec![Takeover::address()]
    }

    fn phones(&self) -> &Phones {
        &self.phones
    }

    fn strike(&mut self, fault: Fault) {
        self.active = self.holders()[0];
        match fault {
            Fault::Machine => self.lan.cut_off_unnoticed(self.active),
            _ => self.servers[self.active].kill(),
        }
    }

    fn survivor(&self) -> &Server {
        &self.servers[1 - self.active]
    }

    fn mend(&mut self, fault: Fault) {
        match fault {
            Fault::Machine => self.lan.heal_unnoticed(self.active),
            _ => self.servers[self.active].restart_on(&self.lan.machine(self.active)),
        }
        self.servers.iter().for_each(|server| members::wait_until_ready(server, 1));
    }
}
