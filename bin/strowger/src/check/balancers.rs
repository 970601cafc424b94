//! Output of `strowger check` about balancers.

use std::net::SocketAddr;
use std::path::Path;

use strowger_control::config::values::{StoreUrl, TargetSource, WeightedTarget};
use strowger_control::config::{Balancer, Candidates, Config, Policy};
use strowger_control::dns::{DnsResolver, SendableTransports};
use strowger_control::targets::{Changes, Lists, ServiceNames, Sources, TargetError, TargetSets};
use strowger_directory::Gateways;
use strowger_foundation::Transport;
use strowger_trunk::NextHop;

use super::list;
use crate::failure::Failure;
use crate::target_names;

/// Returns warnings about balancers' targets. Names are resolved through DNS.
///
/// # Errors
/// A target set is unusable or empty, or a name does not exist in DNS.
pub(super) fn warnings(
    config: &Config,
    gateways: Option<&Gateways>,
    listeners: &[(Transport, SocketAddr)],
    file: Option<&Path>,
) -> Result<Vec<String>, Failure> {
    if config.balancers.is_empty() {
        return Ok(Vec::new());
    }
    let located = |TargetError { key, message }: TargetError| Config::located(file, &key, message);
    let (none, lists, changes, mut services) =
        (Gateways::default(), Lists::read(config), Changes::default(), ServiceNames::default());
    let sources =
        Sources { gateways: gateways.unwrap_or(&none), lists: &lists, services: &services, changes: &changes };
    let needs_dns = has_names(config, &sources);
    let dns =
        needs_dns.then(|| DnsResolver::start(&config.dns_config(SendableTransports::of(listeners.iter().copied()))));
    let dns = dns.transpose().map_err(|error| Failure::No(format!("DNS cannot be queried: {error}")))?;
    if let Some(dns) = &dns {
        services.follow_config(config, std::time::Instant::now());
        target_names::resolve(&mut services, config, dns);
    }
    let sources =
        Sources { gateways: gateways.unwrap_or(&none), lists: &lists, services: &services, changes: &changes };
    let sets = TargetSets::build(config, &sources, &strowger_balancer::Registry::default()).map_err(located)?;
    let names = dns.map(|dns| target_names::check_names(config, &sources, &dns)).unwrap_or_default();
    if let Some(unknown) = names.unknown.into_iter().next() {
        return Err(located(unknown).into());
    }
    // The size of a source is unknown if it cannot be read or DNS does not answer.
    let is_known = |empty: &TargetError| !names.unanswered.iter().any(|why| why.key.starts_with(&empty.key));
    let empty = sets.empty(config).into_iter().filter(|empty| gateways.is_some() && is_known(empty));
    if let Some(empty) = empty.into_iter().next() {
        return Err(located(empty).into());
    }
    let mut warnings = sources.warnings(config);
    warnings.extend(own(config, &sources, listeners).map(|why| located(why).to_string()));
    warnings.extend(challenge_warning(config).map(|why| located(why).to_string()));
    warnings.extend(names.unanswered.iter().map(TargetError::to_string));
    Ok(warnings)
}

/// Returns targets that are this server itself.
fn own(
    config: &Config,
    sources: &Sources<'_>,
    listeners: &[(Transport, SocketAddr)],
) -> impl Iterator<Item = TargetError> {
    let mut found = Vec::new();
    for (index, balancer) in config.balancers.iter().enumerate() {
        for target in sources.targets(index, balancer).unwrap_or_default() {
            let NextHop::Address(hop) = target.share.target.next_hop else { continue };
            if listeners.contains(&(hop.transport, hop.address)) {
                let place = target.place.map_or_else(String::new, |place| format!("[{place}]"));
                let message = format!(
                    "{} is this server itself, so requests would loop; name another server",
                    target.share.target
                );
                found.push(TargetError { key: format!("balancer[{index}].targets{place}"), message });
            }
        }
    }
    found.into_iter()
}

/// Returns a warning if callers of balancers are challenged although there are no users.
fn challenge_warning(config: &Config) -> Option<TargetError> {
    let balancer = config.routes.iter().find_map(|route| route.balance.as_ref())?;
    let auth = &config.auth;
    // Requests from a trunk need no password either.
    let is_open = !auth.trusted.is_empty() || !config.trunks.is_empty();
    let is_asked = !is_open && auth.require.iter().any(|method| method.0 == "INVITE");
    let has_users = match config.store_url() {
        StoreUrl::Memory => false,
        // The contents of an unreadable database are unknown.
        StoreUrl::Sqlite(path) => strowger_store::has_users_at(&path).unwrap_or(true),
    };
    let message = format!(
        "callers need a password, but there are no users: all calls to balancer {balancer} get 407; write require = \
         [], list the callers in auth.trusted, or add users"
    );
    (is_asked && !has_users).then(|| TargetError { key: "auth.require".to_owned(), message })
}

fn has_names(config: &Config, sources: &Sources<'_>) -> bool {
    config.balancers.iter().enumerate().any(|(index, balancer)| {
        let is_asked_for = |source: &TargetSource| source.dns_name().is_some();
        let mut targets = sources.targets(index, balancer).unwrap_or_default().into_iter();
        balancer.targets.iter().any(is_asked_for)
            || targets.any(|target| matches!(target.share.target.next_hop, NextHop::Name(_)))
    })
}

/// Describes each balancer in a few lines.
pub(super) fn shown(config: &Config) -> String {
    if config.balancers.is_empty() {
        return "none".to_owned();
    }
    config.balancers.iter().map(balancer).collect::<Vec<_>>().join("\n")
}

fn balancer(balancer: &Balancer) -> String {
    let targets: Vec<String> = balancer.targets.iter().map(source).collect();
    let probed = match &balancer.probe.0 {
        None => "not probed; only calls detect failed targets".to_owned(),
        Some(probe) => format!(
            "probed every {}: down after {} without an accepted response within {} ({}), up after {}",
            probe.interval,
            probe.down,
            probe.timeout,
            list(&probe.accept),
            probe.up
        ),
    };
    format!(
        "{}: {}, {}\n  targets are {probed}; a recovered target gets its full share after {}\n  a target silent for {} is abandoned for the next one",
        balancer.name,
        policy(balancer),
        targets.join(", "),
        balancer.slow_start,
        balancer.failover_timeout
    )
}

fn policy(balancer: &Balancer) -> String {
    let name = balancer.policy.as_str();
    let two = match balancer.candidates {
        Some(Candidates::Two) => " of two candidates chosen by Call-ID",
        _ => "",
    };
    match balancer.policy {
        Policy::LeastWork => format!("{name} ({}){two}", balancer.transaction_cost()),
        policy if policy.is_by_key() => {
            format!("{name} of {}", strowger_balancer::Key::from(balancer.key()).as_str())
        }
        _ => format!("{name}{two}"),
    }
}

fn source(source: &TargetSource) -> String {
    let TargetSource::Target(WeightedTarget { target, priority, weight, capacity }) = source else {
        return source.to_string();
    };
    let facts = [
        (*priority > 0).then(|| format!("priority {priority}")),
        (*weight != 1).then(|| format!("weight {weight}")),
        capacity.map(|calls| format!("up to {calls} calls")),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    if facts.is_empty() { target.to_string() } else { format!("{target} ({})", list(&facts)) }
}
