//! An edge proxy that finds the members by SRV records and tries the next one if the first does not answer (RFC 3263
//! §4.3; failover paper, section 3.2). Clients know only the edge proxy.

use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::clients::register;
use super::members::{self, PORT};
use super::pair::Pair;
use super::{Deployment, Fault, Method, PHONES, Phones, RETRY, Times, callees};
use crate::bind9::Bind9;
use crate::machine::{Lan, Machine};
use crate::{Config, Namespace, Route, Server};

/// `proxy.failover_timeout` of the edge proxy.
const FAILOVER: Duration = RETRY;
const ZONE: &str = "cluster.test";

/// The failover method with an edge proxy in front of members.
#[derive(Debug)]
pub struct Srv;

/// The only instance.
pub const SRV: Srv = Srv;

impl Method for Srv {
    fn name(&self) -> &'static str {
        "srv"
    }

    fn describe(&self) -> &'static str {
        "the next target of SRV records, at an edge proxy with `proxy.failover_timeout = \"500ms\"`"
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::Process, Fault::Machine]
    }

    fn is_available(&self) -> bool {
        Namespace::available(&["ip", "nsenter"]) && Bind9::available()
    }

    fn times(&self, fault: Fault) -> Option<Times> {
        // The edge proxy fails over in the same way as clients.
        Times::of_clients(fault, Duration::from_millis(1))
    }

    fn start(&self) -> Box<dyn Deployment> {
        let lan = Lan::new(2);
        let machines = [lan.machine(0), lan.machine(1)];
        let servers = members::start_peers(&machines);
        let names = Names::start(lan.clients(), &servers);
        let edge = edge(lan.clients(), names.address).start_in(lan.clients().network());
        let phones = Phones::on(lan.clients());
        register(lan.clients(), edge.address(), &callees(), phones.address());
        servers.iter().for_each(|server| members::wait_until_registered(server, PHONES));
        let asked = vec![edge.address()];
        Box::new(Pair { asked, _edge: Some(edge), _names: Some(names), ..Pair::new(lan, phones, servers) })
    }
}

fn edge(machine: &Machine, names: SocketAddr) -> Config {
    Config {
        host: machine.address().into(),
        port: PORT,
        domains: vec!["edge.test"],
        users: Vec::new(),
        proxy: format!("failover_timeout = \"{}ms\"", FAILOVER.as_millis()),
        routes: vec![Route { domain: "example.com", action: "proxy", targets: vec![format!("sip:{ZONE}")] }],
        more: format!("\n[dns]\nservers = [\"{names}\"]\n"),
        ..Config::open()
    }
}

/// A name server on a machine. It lives no longer than the thread that started it.
#[derive(Debug)]
pub(super) struct Names {
    address: SocketAddr,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Names {
    /// Starts a name server whose SRV records prefer the first server.
    fn start(machine: &Machine, servers: &[Server]) -> Names {
        let record = |(number, server): (usize, &Server)| {
            let address = server.address();
            let (priority, port, ip) = (10 * number, address.port(), address.ip());
            format!("_sip._udp IN SRV {priority} 0 {port} m{number}\nm{number} IN A {ip}\n")
        };
        let records: String = servers.iter().enumerate().map(record).collect();
        let (tell, told) = channel();
        let (end, ended) = channel::<()>();
        let machine = machine.clone();
        let thread = thread::spawn(move || {
            machine.inside(move || {
                let named = Bind9::start(ZONE, 5, &records);
                // The receiver may have given up.
                let _ = tell.send(named.address());
                let _ = ended.recv();
            });
        });
        let address = told.recv().expect("the name server starts");
        Names { address, end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.end.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
