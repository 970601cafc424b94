//! One address that keepalived moves from a failed registrar to the other one (failover paper, section 3.4).

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::clients::register;
use super::members::{self, PORT};
use super::{Deployment, Fault, Method, PHONES, Phones, RETRY, Times, callees};
use crate::machine::{Lan, Machine};
use crate::{Config, Contender, Keepalived, Namespace, PATIENCE, Server, poll};

/// The shared address.
const SHARED: Ipv4Addr = Ipv4Addr::new(10, 66, 0, 100);
/// Time until keepalived detects a failure: its check interval plus the timeout of the other's advertisements.
const DETECTION: Duration = Duration::from_millis(1_600);

/// The failover method with a shared address.
#[derive(Debug)]
pub struct ByTakeover;

/// The only instance.
pub const TAKEOVER: ByTakeover = ByTakeover;

impl Method for ByTakeover {
    fn name(&self) -> &'static str {
        "takeover"
    }

    fn describe(&self) -> &'static str {
        "one address of two registrars, moved by keepalived; clients know only that address"
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::Process, Fault::Machine]
    }

    fn is_available(&self) -> bool {
        Namespace::available(&["ip", "nsenter", "keepalived"])
    }

    fn times(&self, _: Fault) -> Option<Times> {
        // A call that arrives during the detection waits for half of it on average, and then for its own
        // retransmission.
        Some(Times { retry: (DETECTION + RETRY) / 2, detection: DETECTION, replication: Duration::from_millis(1) })
    }

    fn start(&self) -> Box<dyn Deployment> {
        Box::new(Takeover::with_phones())
    }
}

/// Two running registrars. The order of the fields is the order in which they are dropped.
#[derive(Debug)]
pub struct Takeover {
    phones: Phones,
    keepalived: Vec<Keepalived>,
    servers: Vec<Server>,
    /// Index of the machine that held the address at the last fault or handover.
    active: usize,
    lan: Lan,
}

impl Takeover {
    /// Starts the registrars and registers the phones.
    ///
    /// # Panics
    /// If something does not start.
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
        // Each registrar's own address comes first: other members send requests for its phones there. The shared
        // address follows.
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

    /// Returns the address that clients know.
    #[must_use]
    pub fn address() -> SocketAddr {
        (SHARED, PORT).into()
    }

    /// Returns the machines that hold the address.
    #[must_use]
    pub fn holders(&self) -> Vec<usize> {
        let has = |number: &usize| {
            let machine = self.lan.machine(*number);
            let network = machine.network().expect("it has a network of its own");
            network.run("ip", "address show dev lan").contains(&format!(" {SHARED}/"))
        };
        (0..2).filter(has).collect()
    }

    /// Returns the two servers.
    #[must_use]
    pub fn both(&self) -> &[Server] {
        &self.servers
    }

    /// Terminates keepalived on the machine that holds the address, so that the address moves while all servers keep
    /// running.
    ///
    /// # Panics
    /// If it does not move.
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
