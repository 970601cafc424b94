//! The networks, the servers that share the load, and their users.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;

use crate::sharing::sniffer::{Arrivals, Sniffer};
use crate::{Callee, Config, Namespace, Server, poll};

/// Port of every server.
pub(super) const PORT: u16 = 5060;
/// Address of the phones.
pub(super) const PHONES: Ipv4Addr = Ipv4Addr::new(10, 70, 0, 200);
/// Address of the callees, each on a separate port.
const CALLEES: Ipv4Addr = Ipv4Addr::new(10, 70, 0, 210);
/// Ports of the callees. Index N is the destination of requests to `poolN.test`.
const CALLEE_PORTS: [u16; 6] = [5070, 5071, 5072, 5073, 5074, 5075];
/// Address of the balancer or router in front of the servers.
pub(super) const FRONT: Ipv4Addr = Ipv4Addr::new(10, 70, 0, 1);
/// Its address towards the servers.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 71, 0, 1);
/// Number of servers. The last one is only used by the trial that adds a server.
pub(super) const SERVERS: usize = 4;
/// Signing key shared by all servers.
pub(super) const KEY: [u8; 16] = *b"one key for all.";

/// Disables joined datagrams, so that each message is seen to arrive.
pub(super) const SEPARATE: &str = "segmentation = \"never\"";

/// Registered users, known to every server.
pub(super) const USERS: [&str; 12] =
    ["alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "mike", "sybil"];

/// How the servers forward calls for `poolN.test` to a callee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// Transaction-stateful, by a route.
    Stateful,
    /// Transaction-stateful, by a balancer set with one target. Servers with a common key continue each other's
    /// calls.
    StatefulSet,
    /// Stateless.
    Stateless,
}

/// Configuration of the servers.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// How they forward requests.
    pub forwarding: Forwarding,
    /// Whether they share registrations.
    pub members: bool,
}

/// One of the servers.
#[derive(Debug)]
pub struct Member {
    /// The server.
    pub server: Server,
    /// Address of this server's machine.
    pub address: Ipv4Addr,
    _sniffer: Sniffer,
    _network: Namespace,
}

/// The complete testbed. The order of the fields is the order in which they are dropped.
#[derive(Debug)]
pub struct Testbed {
    /// The servers.
    pub members: Vec<Member>,
    /// Requests that arrived at the servers.
    pub arrivals: Arrivals,
    /// The callees.
    pub callees: Vec<Callee>,
    /// Network of the phones and callees.
    pub clients: Arc<Namespace>,
    /// Network of the balancer or router in front of the servers. Unused if there is none.
    pub front: Namespace,
}

impl Testbed {
    /// Creates servers on one network with the phones and the balancer.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn flat(setup: Setup) -> Testbed {
        let (clients, front) = (Namespace::new(), Namespace::new());
        let networks: Vec<Namespace> = (0..SERVERS).map(|_| Namespace::new()).collect();
        let address = |number: usize| Ipv4Addr::new(10, 70, 0, 11 + u8::try_from(number).unwrap_or(0));
        let addresses: Vec<[Ipv4Addr; 1]> = (0..SERVERS).map(|number| [address(number)]).collect();
        let mut ends: Vec<(&Namespace, &[Ipv4Addr])> =
            networks.iter().zip(&addresses).map(|(network, address)| (network, &address[..])).collect();
        ends.push((&front, &[FRONT]));
        clients.connect(&ends);
        clients.run("ip", &format!("address add {PHONES}/24 dev switch"));
        Testbed::start(setup, clients, front, networks.into_iter().zip(addresses.into_iter().flatten()), None)
    }

    /// Creates servers behind a router. If `shared` is set, each server also has this address.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn routed(setup: Setup, shared: Option<Ipv4Addr>) -> Testbed {
        let (clients, front) = (Namespace::new(), Namespace::new());
        let networks: Vec<Namespace> = (0..SERVERS).map(|_| Namespace::new()).collect();
        let address = |number: usize| Ipv4Addr::new(10, 71, 0, 11 + u8::try_from(number).unwrap_or(0));
        let addresses: Vec<[Ipv4Addr; 1]> = (0..SERVERS).map(|number| [address(number)]).collect();
        let ends: Vec<(&Namespace, &[Ipv4Addr])> =
            networks.iter().zip(&addresses).map(|(network, address)| (network, &address[..])).collect();
        front.connect(&ends);
        front.run("ip", &format!("address add {GATEWAY}/24 dev switch"));
        front.join(FRONT, &clients, PHONES);
        front.set("ipv4/ip_forward", 1);
        for network in &networks {
            network.run("ip", &format!("route add default via {GATEWAY}"));
            if let Some(shared) = shared {
                // No ARP request asks for this address: the router sends to the servers' own addresses.
                network.run("ip", &format!("address add {shared}/32 dev lo"));
                network.set("ipv4/conf/all/arp_announce", 2);
                network.set("ipv4/conf/all/arp_ignore", 1);
            }
        }
        if let Some(shared) = shared {
            clients.run("ip", &format!("route add {shared} via {FRONT}"));
        }
        Testbed::start(setup, clients, front, networks.into_iter().zip(addresses.into_iter().flatten()), shared)
    }

    fn start(
        setup: Setup,
        clients: Namespace,
        front: Namespace,
        machines: impl Iterator<Item = (Namespace, Ipv4Addr)>,
        shared: Option<Ipv4Addr>,
    ) -> Testbed {
        clients.run("ip", &format!("address add {CALLEES}/32 dev lo"));
        let socket = |port| clients.inside(|| UdpSocket::bind((CALLEES, port)).expect("a new network"));
        let callees = CALLEE_PORTS.iter().map(|port| Callee::play(socket(*port))).collect();
        let arrivals = Arrivals::default();
        let machines: Vec<(Namespace, Ipv4Addr)> = machines.collect();
        let peers: Vec<String> = machines.iter().map(|(_, address)| format!("{address}:5064")).collect();
        let start = |(number, (network, address)): (usize, (Namespace, Ipv4Addr))| {
            let mut config = setup.config(shared.unwrap_or(address));
            if setup.members {
                let (own, member) = (&peers[number], number + 1);
                config.more.push_str(&format!("[cluster]\npeers = {peers:?}\nlisten = {own:?}\nmember = {member}\n"));
            }
            let server = config.start_in(Some(&network));
            Member { server, address, _sniffer: Sniffer::start(&network, number, PORT, &arrivals), _network: network }
        };
        let members: Vec<Member> = machines.into_iter().enumerate().map(start).collect();
        Testbed { members, arrivals, callees, clients: Arc::new(clients), front }
    }

    /// Waits up to 3 s until all active servers have this many registrations, and returns whether they do.
    ///
    /// # Panics
    /// If a server does not report its count.
    #[must_use]
    pub fn all_know(&self, registrations: u64) -> bool {
        let know = || self.members.iter().all(|member| member.server.registrations() >= registrations);
        poll(std::time::Duration::from_secs(3), || know().then_some(())).is_some()
    }

    /// Kills a server.
    ///
    /// # Panics
    /// If it does not end.
    pub fn kill(&mut self, server: usize) {
        self.members[server].server.kill();
    }
}

impl Setup {
    fn config(self, host: Ipv4Addr) -> Config {
        let mut more: String = (0..CALLEE_PORTS.len()).map(|number| self.route(number)).collect();
        let mut proxy = String::new();
        if self.forwarding == Forwarding::Stateless {
            "stateless = \"always\"\n".clone_into(&mut proxy);
            more.push_str("[[route]]\nmatch = { domain = \"example.com\" }\nstateless = \"always\"\n");
        }
        let users = USERS.map(|user| (user, "secret")).to_vec();
        // Phones register the callee's address instead of their own.
        let (key, store, registrar) = (Some(KEY), "memory", "nat = \"never\"");
        Config {
            registrar,
            server: SEPARATE,
            host: host.into(),
            port: PORT,
            tcp: true,
            key,
            users,
            store,
            proxy,
            more,
            ..Config::open()
        }
    }
    /// Returns the route to a callee.
    fn route(self, number: usize) -> String {
        let target = format!("sip:{CALLEES}:{}", CALLEE_PORTS[number]);
        let matches = format!("[[route]]\nmatch = {{ domain = \"pool{number}.test\" }}\n");
        match self.forwarding {
            Forwarding::Stateful => format!("{matches}targets = [\"{target}\"]\n"),
            Forwarding::Stateless => format!("{matches}targets = [\"{target}\"]\nstateless = \"always\"\n"),
            Forwarding::StatefulSet => format!(
                "{matches}balance = \"pool{number}\"\n[[balancer]]\nname = \"pool{number}\"\npolicy = \"hash\"\n\
                 targets = [\"{target}\"]\n"
            ),
        }
    }

    /// Returns the domain of the callee for this number.
    #[must_use]
    pub fn domain(number: usize) -> String {
        format!("pool{}.test", number % CALLEE_PORTS.len())
    }
}
