//! Machines in networks of their own, which can be cut off from one another.

use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::Namespace;

/// Where a program runs: a network namespace, or this machine.
#[derive(Clone, Debug)]
pub struct Machine {
    network: Option<Arc<Namespace>>,
    address: Ipv4Addr,
}

impl Machine {
    /// This machine, at 127.0.0.1.
    #[must_use]
    pub fn local() -> Machine {
        Machine { network: None, address: Ipv4Addr::LOCALHOST }
    }

    /// This machine, at another one of its loopback addresses.
    #[must_use]
    pub(crate) fn local_at(address: Ipv4Addr) -> Machine {
        Machine { network: None, address }
    }

    /// The one that has this address, in a network of its own.
    #[must_use]
    pub(crate) fn within(network: &Arc<Namespace>, address: Ipv4Addr) -> Machine {
        Machine { network: Some(Arc::clone(network)), address }
    }

    /// Where others reach it.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Its network, where it has one of its own.
    #[must_use]
    pub fn network(&self) -> Option<&Namespace> {
        self.network.as_deref()
    }

    /// A socket of this machine.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn socket(&self) -> UdpSocket {
        self.inside(|| UdpSocket::bind((self.address, 0)).expect("a free port"))
    }

    /// Whether something listens on this port.
    #[must_use]
    pub fn listens(&self, port: u16) -> bool {
        let at = SocketAddr::from((self.address, port));
        self.inside(|| TcpStream::connect_timeout(&at, Duration::from_secs(1)).is_ok())
    }

    /// Runs a program to its end.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn run(&self, program: &Path, arguments: &[String], folder: &Path) -> Output {
        let mut command = self.network().map_or_else(|| Command::new(program), |network| network.command(program));
        let output = command.args(arguments).current_dir(folder).stdin(Stdio::null()).output();
        output.unwrap_or_else(|error| panic!("{}: {error}", program.display()))
    }

    pub(crate) fn inside<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        match self.network() {
            Some(network) => network.inside(what),
            None => what(),
        }
    }
}

/// Some machines on a switch, and one more that clients are on.
#[derive(Debug)]
pub struct Lan {
    clients: Machine,
    machines: Vec<Machine>,
}

impl Lan {
    /// So many machines: in networks of their own where those can be made, else all of them are this one, and none can be cut off.
    ///
    /// # Panics
    /// When a network cannot be made.
    #[must_use]
    pub fn new(machines: u8) -> Lan {
        if !Namespace::available(&["ip", "nsenter"]) {
            return Lan { clients: Machine::local(), machines: vec![Machine::local(); machines.into()] };
        }
        let address = |number: u8| Ipv4Addr::new(10, 66, 0, number);
        let machine = |number| Machine { network: Some(Arc::new(Namespace::new())), address: address(number) };
        let clients = machine(254);
        let machines: Vec<Machine> = (1..=machines).map(machine).collect();
        let addresses: Vec<[Ipv4Addr; 1]> = machines.iter().map(|machine| [machine.address]).collect();
        let lan = Lan { clients, machines };
        let ends = lan.machines.iter().zip(&addresses);
        let ends: Vec<(&Namespace, &[Ipv4Addr])> =
            ends.filter_map(|(machine, addresses)| Some((machine.network()?, &addresses[..]))).collect();
        let switch = lan.switch().expect("it has a network");
        switch.connect(&ends);
        switch.run("ip", &format!("address add {}/24 dev switch", lan.clients.address));
        lan
    }

    /// Where clients are.
    #[must_use]
    pub fn clients(&self) -> &Machine {
        &self.clients
    }

    /// One of them, from 0.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn machine(&self, number: usize) -> Machine {
        self.machines[number].clone()
    }

    /// Whether machines can be cut off.
    #[must_use]
    pub fn can_cut_off(&self) -> bool {
        self.switch().is_some()
    }

    /// Cuts a machine off from all others: nothing comes in or goes out.
    ///
    /// # Panics
    /// When it [cannot](Self::can_cut_off).
    pub fn cut_off(&self, number: usize) {
        self.switch().expect("a switch").run("ip", &format!("link set port{number} down"));
    }

    /// Ends [`Lan::cut_off`].
    ///
    /// # Panics
    /// When it [cannot](Self::can_cut_off).
    pub fn heal(&self, number: usize) {
        self.switch().expect("a switch").run("ip", &format!("link set port{number} up"));
    }

    /// Cuts a machine off from all others, which its own link does not tell it: as where a switch fails behind it.
    ///
    /// # Panics
    /// When it [cannot](Self::can_cut_off).
    pub fn cut_off_unnoticed(&self, number: usize) {
        self.switch().expect("a switch").run("ip", &format!("link set port{number} nomaster"));
    }

    /// Ends [`Lan::cut_off_unnoticed`].
    ///
    /// # Panics
    /// When it [cannot](Self::can_cut_off).
    pub fn heal_unnoticed(&self, number: usize) {
        self.switch().expect("a switch").run("ip", &format!("link set port{number} master switch"));
    }

    fn switch(&self) -> Option<&Namespace> {
        self.clients.network()
    }
}
