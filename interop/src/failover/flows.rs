//! Phones with a flow to each of two servers (RFC 5626 §4.2) that share registrations. If the server of one flow is
//! dead, callers reach the phone over the other flow.

use std::net::SocketAddr;
use std::time::Duration;

use super::members;
use super::pair::Pair;
use super::{Deployment, Fault, Method, PHONES, Phones, Times, callees};
use crate::machine::Lan;
use crate::{Config, Namespace, Server};

/// `proxy.failover_timeout`: time for which a call waits for a member that may be dead.
const FAILOVER: Duration = Duration::from_secs(1);

/// The failover method with two flows per phone.
#[derive(Debug)]
pub struct SecondFlow;

/// The only instance.
pub const SECOND_FLOW: SecondFlow = SecondFlow;

impl Method for SecondFlow {
    fn name(&self) -> &'static str {
        "second-flow"
    }

    fn describe(&self) -> &'static str {
        "the phone's second flow, over TCP (RFC 5626); `proxy.failover_timeout = \"1s\"`; the member with the newest flow dies, callers use the other one"
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::Process, Fault::Machine]
    }

    fn is_available(&self) -> bool {
        Namespace::available(&["ip", "nsenter"])
    }

    fn times(&self, fault: Fault) -> Option<Times> {
        // If the machine is alive, it reports the closed port at once.
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
        // The member of the newest flow fails, and callers ask the other one.
        let asked = vec![addresses[0]];
        Box::new(Pair { asked, victim: 1, ..Pair::new(lan, phones, servers) })
    }
}
