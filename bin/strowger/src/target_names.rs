//! Initial DNS lookups of the names in balancers' targets.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use strowger_control::config::Config;
use strowger_control::config::values::DnsName;
use strowger_control::dns::{DnsResolver, ServersAnswer};
use strowger_control::targets::{Origin, ServiceNames, Sources, TargetError};
use strowger_locate::{LocateError, LocateQuery, LocateResult};
use strowger_trunk::NextHop;

/// Time to wait for all answers beyond the timeout of a single query.
const GRACE: Duration = Duration::from_millis(500);

/// Answer of DNS for a service or host, with its lifetime.
pub(crate) struct DnsUpdate {
    pub(crate) name: DnsName,
    pub(crate) answer: ServersAnswer,
    pub(crate) ttl: Duration,
}

/// Problems with names: unknown names, and names without an answer.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) unknown: Vec<TargetError>,
    pub(crate) unanswered: Vec<TargetError>,
}

/// Queries the names that are due and sends their answers to `said`. Returns the number of queries.
pub(crate) fn ask(services: &mut ServiceNames, dns: &DnsResolver, said: &mpsc::Sender<DnsUpdate>) -> usize {
    let due = services.due(Instant::now());
    let count = due.len();
    for name in due {
        let said = said.clone();
        let asked = name.clone();
        let reply = Box::new(move |answer, ttl| drop(said.send(DnsUpdate { name, answer, ttl })));
        match asked {
            DnsName::Service(service) => dns.ask_for_servers(service.question().clone(), reply),
            DnsName::Host(host) => dns.ask_for_addresses(host.question().clone(), reply),
        }
    }
    count
}

/// Queries the names that are due and waits for the answers.
pub(crate) fn resolve(services: &mut ServiceNames, config: &Config, dns: &DnsResolver) {
    let (said, answers) = mpsc::channel();
    let mut open = ask(services, dns, &said);
    drop(said);
    let deadline = Instant::now() + config.dns.timeout.0 + GRACE;
    while open > 0
        && let Ok(DnsUpdate { name, answer, ttl }) =
            answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        services.handle_answer(Instant::now(), &name, answer, ttl);
        open -= 1;
    }
}

/// Checks the names in balancers' targets: those already [resolved](resolve), and hosts of targets, which are queried
/// here.
pub(crate) fn check_names(config: &Config, sources: &Sources<'_>, dns: &DnsResolver) -> Names {
    let mut names = Names::default();
    let (said, answers) = mpsc::channel();
    let mut open = 0;
    for (index, balancer) in config.balancers.iter().enumerate() {
        for (place, source) in balancer.targets.iter().enumerate() {
            let Some(name) = source.dns_name() else { continue };
            let key = format!("balancer[{index}].targets[{place}]");
            let nothing = sources.services.known(&name).is_none().then_some(LocateError::NoAnswer);
            let Some(failure) = sources.services.failing(&name).or(nothing) else { continue };
            match &name {
                DnsName::Service(service) => names.add(failure, key, service.as_str(), "has no SRV records"),
                DnsName::Host(host) => {
                    names.add(failure, key, &host.to_string(), "has no address that the listeners can reach");
                }
            }
        }
        // Invalid targets are reported elsewhere.
        for target in sources.targets(index, balancer).unwrap_or_default() {
            // A server from DNS has its address there too.
            let is_of_dns = matches!(target.origin, Origin::Dns(_));
            let NextHop::Name(question) = &target.share.target.next_hop else { continue };
            if is_of_dns {
                continue;
            }
            let key = match target.place {
                Some(place) => format!("balancer[{index}].targets[{place}]"),
                None => format!("balancer[{index}].targets"),
            };
            let (said, uri) = (said.clone(), target.share.target.uri.clone());
            let reply = move |answer: LocateResult, _: Duration| drop(said.send((key, uri, answer.err())));
            dns.ask(LocateQuery::clone(question), Box::new(reply));
            open += 1;
        }
    }
    drop(said);
    let deadline = Instant::now() + config.dns.timeout.0 + GRACE;
    while open > 0
        && let Ok((key, uri, failure)) = answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        if let Some(failure) = failure {
            names.add(failure, key, &uri, "resolves to no server that the listeners can reach");
        }
        open -= 1;
    }
    names.unknown.sort_by(|a, b| a.key.cmp(&b.key));
    names.unanswered.sort_by(|a, b| a.key.cmp(&b.key));
    names
}

impl Names {
    fn add(&mut self, failure: LocateError, key: String, name: &str, what: &str) {
        match failure {
            LocateError::NoSuchName => {
                let message = format!("DNS: {name} {what}; correct the name, or add the record");
                self.unknown.push(TargetError { key, message });
            }
            LocateError::NoAnswer => {
                let message =
                    format!("DNS does not answer the query for {name}; check the servers in [dns], and try again");
                self.unanswered.push(TargetError { key, message });
            }
        }
    }
}
