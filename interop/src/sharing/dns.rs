//! Load sharing by DNS: clients resolve the servers and choose one themselves (RFC 2782, RFC 3263).

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::bind9::Bind9;
use crate::sharing::testbed::{PORT, SEPARATE, Setup, Testbed};
use crate::sharing::{Deployment, Forwarding};
use crate::{Config, Namespace, Server};

/// Clients that resolve the servers. Each is a proxy in front of some of the phones, with its own DNS cache.
const CLIENTS: [Ipv4Addr; 6] = [
    Ipv4Addr::new(10, 70, 0, 100),
    Ipv4Addr::new(10, 70, 0, 101),
    Ipv4Addr::new(10, 70, 0, 102),
    Ipv4Addr::new(10, 70, 0, 103),
    Ipv4Addr::new(10, 70, 0, 104),
    Ipv4Addr::new(10, 70, 0, 105),
];
/// TTL of all records in seconds.
const TTL_S: u64 = 1;
/// Time until no client uses old records. Clients do not report when records expire, so this time has to pass.
const EXPIRED: Duration = Duration::from_millis(TTL_S * 1_000 + 200);

/// Records that name the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// SRV records of equal priority with these weights.
    Weights([u16; 4]),
    /// Several A records for one name.
    Addresses,
}

/// Load sharing by DNS.
#[derive(Debug)]
pub struct Dns {
    clients: Vec<Server>,
    zone: Zone,
    site: Testbed,
    records: Records,
}

impl Dns {
    /// Starts with the first three servers.
    ///
    /// # Panics
    /// If a program does not start.
    #[must_use]
    pub fn start(records: Records, members: bool) -> Dns {
        let site = Testbed::flat(Setup { forwarding: Forwarding::Stateful, members });
        let zone = Zone::start(&site, text(&site, records, &[0, 1, 2]));
        let target = if records == Records::Addresses { format!("all.lb.test:{PORT}") } else { "lb.test".to_owned() };
        let more = format!(
            "[dns]\nservers = [\"{}\"]\n[[route]]\nmatch = {{ domain = \"*\" }}\ntargets = [\"sip:{target}\"]\n",
            zone.address
        );
        let client = |host: Ipv4Addr| {
            site.clients.run("ip", &format!("address add {host}/32 dev lo"));
            let config = Config { host: host.into(), port: PORT, tcp: true, more: more.clone(), ..Config::open() };
            let config = Config { domains: vec!["client.test"], users: Vec::new(), server: SEPARATE, ..config };
            config.start_in(Some(&site.clients))
        };
        let clients = CLIENTS.map(client).into();
        Dns { clients, zone, site, records }
    }
}

impl Deployment for Dns {
    fn site(&self) -> &Testbed {
        &self.site
    }

    fn site_mut(&mut self) -> &mut Testbed {
        &mut self.site
    }

    fn entry(&self, phone: usize) -> SocketAddr {
        self.clients[phone % self.clients.len()].address()
    }

    fn serve_with(&mut self, servers: &[usize]) {
        self.zone.replace(text(&self.site, self.records, servers));
        thread::sleep(EXPIRED);
    }
}

/// Returns the records of these servers.
fn text(site: &Testbed, records: Records, servers: &[usize]) -> String {
    let line = |&number: &usize| {
        let address = site.members[number].address;
        let host = format!("s{number} {TTL_S} IN A {address}\nall {TTL_S} IN A {address}\n");
        match records {
            Records::Weights(weights) => {
                let weight = weights[number];
                format!("{host}_sip._udp {TTL_S} IN SRV 0 {weight} {PORT} s{number}\n")
            }
            Records::Addresses => host,
        }
    };
    servers.iter().map(line).collect()
}

/// A name server in the phones' network. It runs in a separate thread, since a thread cannot leave a network it has
/// entered.
#[derive(Debug)]
struct Zone {
    address: SocketAddr,
    orders: Option<Sender<String>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Zone {
    fn start(site: &Testbed, records: String) -> Zone {
        let network: Arc<Namespace> = Arc::clone(&site.clients);
        let (orders, received) = mpsc::channel::<String>();
        let (started, address) = mpsc::channel();
        let (finished, done) = mpsc::channel();
        let thread = thread::spawn(move || {
            network.inside(|| {
                let mut named = Bind9::start("lb.test", 1, &records);
                // The starting thread waits for each of these, or is gone.
                let _ = started.send(named.address());
                for records in received {
                    named.replace(&records);
                    let _ = finished.send(());
                }
            });
        });
        let address = address.recv().expect("the name server starts");
        Zone { address, orders: Some(orders), done, thread: Some(thread) }
    }

    fn replace(&self, records: String) {
        let sent = self.orders.as_ref().map(|orders| orders.send(records));
        assert!(sent.is_some_and(|sent| sent.is_ok()) && self.done.recv().is_ok(), "the name server is there");
    }
}

impl Drop for Zone {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // The thread's panic has already been printed. A second one here would abort the run.
            let _ = thread.join();
        }
    }
}
