//! DNS answers for the names in balancers' targets. Names are queried again before their answers expire; the last
//! answer remains in use while DNS does not answer.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use strowger_locate::LocateError;

use crate::config::Config;
use crate::config::values::{DnsName, TargetSource};
use crate::dns::{Server, ServersAnswer};

/// Minimum time until an answer is queried again. Otherwise its TTL applies, up to a maximum.
const OFTEN: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(3600);
/// Time until the next query if there was no answer.
const RETRY: Duration = Duration::from_secs(15);
/// Time after which a query without a reply is repeated.
const LOST: Duration = Duration::from_secs(60);

/// The names, each with its servers from the last useful answer.
#[derive(Clone, Debug, Default)]
pub struct ServiceNames {
    by_name: BTreeMap<String, Service>,
}

#[derive(Clone, Debug)]
struct Service {
    name: DnsName,
    /// Servers in sorted order, independent of the order in DNS; `None` before the first answer.
    servers: Option<Vec<Server>>,
    /// Time of the next query.
    due: Instant,
    failing: Option<LocateError>,
}

/// Effect of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceUpdate {
    /// Nothing changed that needs reporting.
    Nothing,
    /// The servers changed.
    Servers,
    /// There is no answer, or none that names a server; the known servers stay.
    Failing(LocateError),
    /// There is an answer again, with the same servers.
    Recovered,
}

impl ServiceNames {
    /// Follows the names of the balancers in `config`: drops others; new ones are due at once.
    pub fn follow_config(&mut self, config: &Config, now: Instant) {
        let sources = config.balancers.iter().flat_map(|balancer| &balancer.targets);
        self.follow_names(sources.filter_map(TargetSource::dns_name), now);
    }

    /// Follows exactly these names.
    pub fn follow_names(&mut self, names: impl IntoIterator<Item = DnsName>, now: Instant) {
        let mut before = std::mem::take(&mut self.by_name);
        for name in names {
            let shown = name.to_string();
            let service = before.remove(&shown);
            let service = service.unwrap_or_else(|| Service { name, servers: None, due: now, failing: None });
            self.by_name.entry(shown).or_insert(service);
        }
    }

    /// Returns the names to query. They are not returned again until their answers arrive.
    pub fn due(&mut self, now: Instant) -> Vec<DnsName> {
        let due = self.by_name.values_mut().filter(|service| service.due <= now);
        due.map(|service| {
            service.due = now + LOST;
            service.name.clone()
        })
        .collect()
    }

    /// Returns the names without any answer yet.
    pub fn unknown(&self) -> impl Iterator<Item = &DnsName> {
        self.by_name.values().filter(|service| service.servers.is_none()).map(|service| &service.name)
    }

    /// Processes an answer and its lifetime. Answers for names that are not followed are ignored.
    pub fn handle_answer(
        &mut self,
        now: Instant,
        name: &DnsName,
        answer: ServersAnswer,
        ttl: Duration,
    ) -> ServiceUpdate {
        let Some(service) = self.by_name.get_mut(&name.to_string()) else { return ServiceUpdate::Nothing };
        match answer {
            Ok(mut servers) => {
                servers.sort_by(|a, b| (a.priority, &a.host, a.port).cmp(&(b.priority, &b.host, b.port)));
                servers.dedup();
                service.due = now + ttl.clamp(OFTEN, SELDOM);
                let was_failing = service.failing.take().is_some();
                if service.servers.as_ref() != Some(&servers) {
                    service.servers = Some(servers);
                    return ServiceUpdate::Servers;
                }
                if was_failing { ServiceUpdate::Recovered } else { ServiceUpdate::Nothing }
            }
            Err(failure) => {
                service.due = now + RETRY;
                let is_new = service.failing.replace(failure) != Some(failure);
                if is_new { ServiceUpdate::Failing(failure) } else { ServiceUpdate::Nothing }
            }
        }
    }

    /// Returns the known servers of a name.
    #[must_use]
    pub fn known(&self, name: &DnsName) -> Option<&[Server]> {
        self.by_name.get(&name.to_string())?.servers.as_deref()
    }

    /// Returns the error if the last query failed.
    #[must_use]
    pub fn failing(&self, name: &DnsName) -> Option<LocateError> {
        self.by_name.get(&name.to_string())?.failing
    }
}

#[cfg(test)]
mod tests {
    use strowger_foundation::Transport;

    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn config(names: &[&str]) -> Config {
        let sources: Vec<String> = names.iter().map(|name| format!("\"srv:{name}\"")).collect();
        let text = format!("[[balancer]]\nname = \"pool\"\ntargets = [{}]", sources.join(", "));
        Config::parse(&text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn server(host: &str) -> Server {
        Server { host: host.to_owned(), port: 5060, transport: Transport::Udp, priority: 0, weight: 1 }
    }

    #[test]
    fn a_name_is_queried_again_after_its_ttl() {
        let (mut services, start) = (ServiceNames::default(), Instant::now());
        services.follow_config(&config(&["a.example", "b.example"]), start);
        let due = services.due(start);
        assert_eq!(due.iter().map(DnsName::to_string).collect::<Vec<_>>(), ["srv:a.example", "srv:b.example"]);
        assert!(services.due(start).is_empty(), "both are being asked for");
        let a = &due[0];
        assert_eq!(services.handle_answer(start, a, Ok(vec![server("x"), server("w")]), TTL), ServiceUpdate::Servers);
        assert_eq!(services.known(a).map(<[Server]>::len), Some(2));
        assert!(services.due(start + TTL - Duration::from_millis(1)).is_empty());
        assert_eq!(services.due(start + TTL).len(), 2, "and the other, whose answer was lost");
        let again = services.handle_answer(start + TTL, a, Ok(vec![server("w"), server("x")]), Duration::ZERO);
        assert_eq!(again, ServiceUpdate::Nothing, "in another order");
        assert!(
            services.due(start + TTL).is_empty(),
            "an answer that may not be kept is asked for seldom all the same"
        );
        assert_eq!(services.due(start + TTL + OFTEN), std::slice::from_ref(a));
    }

    #[test]
    fn known_servers_are_kept_while_dns_fails() {
        let (mut services, now) = (ServiceNames::default(), Instant::now());
        services.follow_config(&config(&["a.example"]), now);
        let a = services.due(now).remove(0);
        assert_eq!(services.unknown().count(), 1);
        services.handle_answer(now, &a, Ok(vec![server("x")]), TTL);
        for failure in [LocateError::NoAnswer, LocateError::NoSuchName] {
            assert_eq!(services.handle_answer(now, &a, Err(failure), TTL), ServiceUpdate::Failing(failure));
            assert_eq!(services.handle_answer(now, &a, Err(failure), TTL), ServiceUpdate::Nothing, "told once");
            assert_eq!(services.known(&a), Some(&[server("x")][..]));
        }
        assert_eq!(services.due(now + RETRY).len(), 1);
        assert_eq!(services.handle_answer(now, &a, Ok(vec![server("x")]), TTL), ServiceUpdate::Recovered);
        assert_eq!(services.handle_answer(now, &a, Ok(vec![server("y")]), TTL), ServiceUpdate::Servers);
    }

    #[test]
    fn a_reload_keeps_the_servers_of_remaining_names() {
        let (mut services, now) = (ServiceNames::default(), Instant::now());
        services.follow_config(&config(&["a.example", "b.example"]), now);
        let names = services.due(now);
        for name in &names {
            services.handle_answer(now, name, Ok(vec![server("x")]), TTL);
        }
        services.follow_config(&config(&["b.example", "c.example"]), now);
        assert!(services.known(&names[0]).is_none() && services.known(&names[1]).is_some());
        assert_eq!(services.unknown().map(DnsName::to_string).collect::<Vec<_>>(), ["srv:c.example"]);
        assert_eq!(services.handle_answer(now, &names[0], Ok(Vec::new()), TTL), ServiceUpdate::Nothing, "too late");
    }
}
