//! Ports of the callees in successive runs.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use crate::engine::{Load, Plan};

/// Returns free ports for the called end of each thread, for [`Plan::callees_at`] of this run and later ones. Empty
/// if no user is called in this process, or the plan names the addresses.
///
/// # Errors
/// If no port is free, or the address is not ours.
pub fn callees_at(plan: &Plan) -> io::Result<Vec<SocketAddr>> {
    if plan.callee.as_ref().is_none_or(|callee| !callee.listen.is_empty()) || plan.addresses.is_empty() {
        return Ok(Vec::new());
    }
    let addresses = plan.addresses.iter().cycle().take(plan.threads.max(1)).map(|ip| SocketAddr::new(*ip, 0));
    // All stay bound until the last is known, so that no port is returned twice.
    if plan.transport.is_reliable() {
        let held: Vec<_> = addresses.map(TcpListener::bind).collect::<Result<_, _>>()?;
        return held.iter().map(TcpListener::local_addr).collect();
    }
    let held: Vec<_> = addresses.map(UdpSocket::bind).collect::<Result<_, _>>()?;
    held.iter().map(UdpSocket::local_addr).collect()
}

/// Checks that the plan's sessions arrive at this rate, which a search or a sweep over rates needs.
///
/// # Errors
/// Why not, and the remedy.
pub fn comes_at(plan: &Plan, rate: f64) -> Result<(), String> {
    for phase in plan.phases.iter().filter(|phase| phase.is_measured) {
        match &phase.load {
            Load::Activities(_) => {
                return Err("this workload has users and no rate; use strowger load search --vary users".to_owned());
            }
            Load::Avalanche(_) => {
                return Err("this workload has phones that register once and no rate; use strowger load run".to_owned());
            }
            Load::Open(arrivals) if arrivals.rate().is_none_or(|own| (own / rate - 1.0).abs() > 0.01) => {
                return Err(format!(
                    "the arrivals {arrivals} have their own rate; use a process that follows the rate, such as poisson"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Options, Target, workload};

    fn options() -> Options {
        let to = Target::parse("udp:127.0.0.1:5060").expect("a target");
        let mut options = Options::new(workload("proxy-200").expect("it is there"), Some(to), 1);
        options.time = Some(std::time::Duration::from_secs(1));
        options
    }

    #[test]
    fn each_thread_has_its_own_port() {
        let mut plan = Options { threads: 3, ..options() }.plan().expect("a plan").0;
        let places = callees_at(&plan).expect("free ports");
        let ports: std::collections::BTreeSet<_> = places.iter().map(SocketAddr::port).collect();
        assert!(ports.len() == 3 && !ports.contains(&0), "{places:?}");
        plan.callee = None;
        assert_eq!(callees_at(&plan).expect("nobody"), []);
    }

    #[test]
    fn arrivals_must_follow_the_rate() {
        let plan = |arrivals: &str| {
            Options { rate: 50.0, arrivals: arrivals.to_owned(), ..options() }.plan().expect(arrivals).0
        };
        for law in ["poisson", "uniform", "gamma(shape=0.5)"] {
            assert_eq!(comes_at(&plan(law), 50.0), Ok(()), "{law}");
        }
        assert!(comes_at(&plan("exp(mean=1ms)"), 50.0).expect_err("1000/s").contains("poisson"));
    }
}
