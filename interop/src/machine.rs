//! Machines in separate networks that can be isolated from one another.

use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::Namespace;

/// Location where a program runs: a network namespace or this machine.
#[derive(Clone, Debug)]
pub struct Machine {
    network: Option<Arc<Namespace>>,
    address: Ipv4Addr,
}

impl Machine {
    /// Returns this machine, at 127.0.0.1.
    #[must_use]
    pub fn local() -> Machine {
        Machine { network: None, address: Ipv4Addr::LOCALHOST }
    }

    /// Returns this machine, at another loopback address.
    #[must_use]
    pub(crate) fn local_at(address: Ipv4Addr) -> Machine {
        Machine { network: None, address }
    }

    /// Returns a machine with this address in a network namespace.
    #[must_use]
    pub(crate) fn within(network: &Arc<Namespace>, address: Ipv4Addr) -> Machine {
        Machine { network: Some(Arc::clone(network)), address }
    }

    /// Returns the address by which others reach the machine.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns the machine's network namespace, if it has one.
    #[must_use]
    pub fn network(&self) -> Option<&Namespace> {
        self.network.as_deref()
    }

    /// Opens a socket on this machine.
    ///
    /// # Panics
    /// If there is no free port.
    #[must_use]
    pub fn socket(&self) -> UdpSocket {
        self.inside(|| UdpSocket::bind((self.address, 0)).expect("a free port"))
    }

    /// Returns whether a process listens on this port.
    #[must_use]
    pub fn listens(&self, port: u16) -> bool {
        let at = SocketAddr::from((self.address, port));
        self.inside(|| TcpStream::connect_timeout(&at, Duration::from_secs(1)).is_ok())
    }

    /// Runs a program to completion.
    ///
    /// # Panics
    /// If it cannot be started.
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

/// Several machines on a switch, and one more for the clients.
#[derive(Debug)]
pub struct Lan {
    clients: Machine,
    machines: Vec<Machine>,
}

impl Lan {
    /// Creates the given number of machines. Without the rights to make network namespaces, all of them are this
    /// machine and none can be isolated.
    ///
    /// # Panics
    /// If a network cannot be made.
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

    /// Returns the machine of the clients.
    #[must_use]
    pub fn clients(&self) -> &Machine {
        &self.clients
    }

    /// Returns a machine by index, from 0.
    ///
    /// # Panics
    /// If the index is out of range.
    #[must_use]
    pub fn machine(&self, number: usize) -> Machine {
        self.machines[number].clone()
    }

    /// Returns whether machines can be isolated.
    #[must_use]
    pub fn can_cut_off(&self) -> bool {
        self.switch().is_some()
    }

    /// Isolates a machine by taking down its link: nothing comes in or goes out.
    ///
    /// # Panics
    /// If machines [cannot be isolated](Self::can_cut_off).
    pub fn cut_off(&self, number: usize) {
        self.switch().expect("a switch").run("ip", &format!("link set port{number} down"));
    }

    /// Reverts [`Lan::cut_off`].
    ///
    /// # Panics
    /// If machines [cannot be isolated](Self::can_cut_off).
    pub fn heal(&self, number: usize) {
        self.switch().expect("a switch").run("ip", &format!("link set port{number} up"));
    }

    /// Isolates a machine while its own link stays up, as when a switch fails behind it.
    ///
    /// # Panics
    /// If machines [cannot be isolated](Self::can_cut_off).
    pub fn cut_off_unnoticed(&self, number: usize) {
        self.switch().expect("a switch").run("ip", &format!("link set port{number} nomaster"));
    }

    /// Reverts [`Lan::cut_off_unnoticed`].
    ///
    /// # Panics
    /// If machines [cannot be isolated](Self::can_cut_off).
    pub fn heal_unnoticed(&self, number: usize) {
        self.switch().expect("a switch").run("ip", &format!("link set port{number} master switch"));
    }

    fn switch(&self) -> Option<&Namespace> {
        self.clients.network()
    }
}
