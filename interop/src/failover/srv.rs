//! An edge proxy that finds the members by SRV records and tries the next one if the first does not answer (RFC 3263
//! §4.3; failover paper, section 3.2). Clients know only the edge proxy.

use std::net::SocketAddr;
use std::time::Duration;

use super::clients::register;
use super::members::{self, PORT};
use super::name_server::{NameServer, ZONE};
use super::pair::Pair;
use super::{Deployment, Fault, Method, PHONES, Phones, RETRY, Times, callees};
use crate::bind9::Bind9;
use crate::machine::{Lan, Machine};
use crate::{Config, Namespace, Route};

/// `proxy.failover_timeout` of the edge proxy.
const FAILOVER: Duration = RETRY;

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
        let names = NameServer::start(lan.clients(), &servers);
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
