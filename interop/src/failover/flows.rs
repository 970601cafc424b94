//! Phones with a flow to each of two servers (RFC 5626 §4.2), which share registrations: who calls reaches a phone by the other flow
//! when the server of one is dead.

use std::net::SocketAddr;
use std::time::Duration;

use super::members;
use super::pair::Pair;
use super::{Deployment, Fault, Method, PHONES, Phones, Times, callees};
use crate::machine::Lan;
use crate::{Config, Namespace, Server};

/// `proxy.failover_timeout`: how long a call waits for a member that may be dead.
const FAILOVER: Duration = Duration::from_secs(1);

/// Phones with two flows.
#[derive(Debug)]
pub struct Flows;

/// The only one.
pub const FLOWS: Flows = Flows;

impl Method for Flows {
    fn name(&self) -> &'static str {
        "second-flow"
    }

    fn describe(&self) -> &'static str {
        "the phone's second flow, by TCP (RFC 5626); `proxy.failover_timeout = \"1s\"`; the member of the newest flow dies, callers ask the other"
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::Process, Fault::Machine]
    }

    fn is_available(&self) -> bool {
        Namespace::available(&["ip", "nsenter"])
    }

    fn times(&self, fault: Fault) -> Option<Times> {
        // A machine that is there says at once that nobody listens.
        let wait = if fault == Fault::Machine { FAILOVER } else { Duration::ZERO };
        Some(Times { retry: wait, detection: wait, replication: Duration::from_millis(1) })
    }

    fn start(&self) -> Box<dyn Deployment> {
        let lan = Lan::new(2);
        let machines = [lan.machine(0), lan.machine(1)];
        let servers = members::start_peers_with(&machines, |config| {
            let proxy = format!("failover_timeout = \"{}ms\"", FAILOVER.as_millis());
            Config { tcp: true, proxy, ..config }
        });
        let addresses: Vec<SocketAddr> = servers.iter().map(Server::address).collect();
        let phones = Phones::by_flows(lan.clients(), &callees(), &addresses);
        servers.iter().for_each(|server| members::wait_until_registered(server, 2 * PHONES));
        // The member of the newest flow dies, and callers ask the other one.
        let asked = vec![addresses[0]];
        Box::new(Pair { asked, victim: 1, ..Pair::new(lan, phones, servers) })
    }
}
