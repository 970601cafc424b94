//! `strowger check`: validates the configuration and prints its effect.

mod balancers;
mod connect;
mod files;
mod stages;

use std::net::SocketAddr;
use std::path::Path;
use std::thread;

use rustix::fs::Access;
use rustix::thread::CpuSet;
use serde_json::json;
use strowger_control::config::values::{Affinity, Destination, ListenAddress, Spin, StoreUrl, TargetOrSet};
use strowger_control::config::{
    Action, Config, ConfigSource, DEFAULT_FILE, Durability, KeepAlive, Mode, Nat, Rewrite, Route, SYSTEM_FILE,
    Segmentation, Span, Stateless, Steering, Trunk,
};
use strowger_foundation::Transport;

use crate::cli::CheckArguments;
use crate::failure::Failure;
use crate::table::{print_facts, print_json};
use crate::text::count;
use crate::{exporters, former_names, gateways, http_certificate, key, tls};
use connect::ConnectionCheck;

/// Keys common to all servers of a configuration for several, printed before a server is selected.
const OF_ALL: [&str; 4] = ["configuration", "domains", "passwords", "names"];

pub(crate) fn run(wanted: ConfigSource<'_>, arguments: &CheckArguments) -> Result<(), Failure> {
    if arguments.schema {
        print!("{}", Config::schema());
        return Ok(());
    }
    let (config, file) = Config::load_for_check(wanted)?;
    let addresses = addresses(&config)?;
    let listeners =
        addresses.iter().map(|(transport, address)| ListenAddress { transport: *transport, address: *address });
    let listeners: Vec<String> = listeners.map(|listen| listen.to_string()).collect();
    let domains: Vec<String> = config.server.domains.iter().map(|domain| domain.0.clone()).collect();
    let workers = config.workers(cores());
    // An unreadable database is not a fault of the configuration: the server may run as another user.
    let known = gateways::stored(&config);
    let mut warnings = former_names::warnings(file.as_deref());
    warnings.extend(machine_warnings(&config, file.as_deref()));
    warnings.extend(match &known {
        Ok(known) => config.route_warnings(known).map_err(Failure::No)?,
        Err(why) if gateways::are_named(&config) => vec![format!("the gateways cannot be read: {why}")],
        Err(_) => Vec::new(),
    });
    warnings.extend(balancers::warnings(&config, known.as_ref().ok(), &addresses, file.as_deref())?);
    let key = key(&config, &mut warnings)?;
    let certificates = tls::check(&config, &mut warnings)?;
    http_certificate::check(&config.admin, &mut warnings)?;
    let tried = if arguments.connect { ConnectionCheck::all(&config) } else { Vec::new() };
    if arguments.json {
        let value = json!({
            "file": file.as_deref().map(Path::to_string_lossy),
            "listeners": listeners,
            "domains": domains,
            "workers": workers,
            "users": config.store_url().to_string(),
            "mode": config.store_mode(),
            "control_socket": config.control_socket(),
            "gateways": known.as_ref().map(gateways::in_json).ok(),
            "key": key,
            "certificates": certificates,
            "stages": stages::in_json(&config),
            "warnings": warnings,
            "connections": arguments.connect.then(|| tried.iter().map(ConnectionCheck::to_json).collect::<Vec<_>>()),
            "configuration": config,
        });
        print_json(&value)?;
        return all_usable(&tried);
    }
    let mut facts = facts(&config, file.as_deref(), &listeners, &domains, workers);
    let place = facts.iter().position(|(name, _)| *name == "routes").unwrap_or(facts.len());
    facts.insert(place, ("gateways", known.as_ref().map_or_else(Clone::clone, gateways::shown)));
    facts.push(("key", shown_key(&config, key.as_deref())));
    if !certificates.is_empty() {
        facts.push(("certificates", certificates.iter().map(tls::line).collect::<Vec<_>>().join("\n")));
    }
    if let Some(shown) = stages::shown(&config) {
        if config.role().is_none() {
            facts.retain(|(name, _)| OF_ALL.contains(name));
        }
        facts.insert(1, ("stages", shown));
    }
    if arguments.connect {
        let lines: Vec<_> = tried.iter().map(ConnectionCheck::line).collect();
        facts.push((
            "elsewhere",
            if lines.is_empty() { "no engine or database is configured".to_owned() } else { lines.join("\n") },
        ));
    }
    print_facts(&facts)?;
    warnings.iter().for_each(|warning| eprintln!("strowger: warning: {warning}"));
    all_usable(&tried)
}

fn all_usable(tried: &[ConnectionCheck]) -> Result<(), Failure> {
    match tried.iter().filter(|tried| !tried.is_usable()).count() {
        0 => Ok(()),
        1 => Err(Failure::No("one configured engine or database cannot be used".to_owned())),
        more => Err(Failure::No(format!("{more} configured engines or databases cannot be used"))),
    }
}

/// Returns the fingerprint of the server's key; `None` if the key does not exist yet.
fn key(config: &Config, warnings: &mut Vec<String>) -> Result<Option<String>, Failure> {
    let path = config.key_file();
    match key::read(&path) {
        Ok(Some(key)) => Ok(Some(key::fingerprint(&key))),
        Ok(None) if config.server.key_file.is_some() => Err(Failure::Usage(key::missing(&path))),
        Ok(None) => Ok(None),
        // The server may run as another user.
        Err(why) => {
            warnings.push(why.to_string());
            Ok(None)
        }
    }
}

fn shown_key(config: &Config, fingerprint: Option<&str>) -> String {
    let path = config.key_file();
    let who = if config.server.key_file.is_some() { ", shared with other servers" } else { "" };
    match fingerprint {
        Some(fingerprint) => format!("{fingerprint}, of {}{who}", path.display()),
        None => format!("created at the first start, in {}", path.display()),
    }
}

/// Returns the addresses that the server would listen on.
pub(crate) fn addresses(config: &Config) -> Result<Vec<(Transport, SocketAddr)>, Failure> {
    let local = strowger_net::local_addresses()
        .map_err(|error| Failure::No(format!("this machine's addresses cannot be listed: {error}")))?;
    let addresses = config.addresses(&local);
    if addresses.is_empty() {
        let message = "server.listen: no interface of this machine has an address of this family; name one that exists";
        return Err(Failure::Usage(message.to_owned()));
    }
    Ok(addresses)
}

/// Returns warnings about settings that exceed this machine, and about the modes of files, with the place of the key.
pub(crate) fn machine_warnings(config: &Config, file: Option<&Path>) -> Vec<String> {
    let mut found = config.machine_warnings(cores(), &usable_cores());
    found.extend(config.exposure_warnings(file));
    found.extend(files::warnings(config));
    found.into_iter().map(|(key, what)| Config::located(file, &key, what).to_string()).collect()
}

/// Returns the available parallelism.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the numbers of the cores available to this process.
pub(crate) fn usable_cores() -> Vec<usize> {
    let usable = rustix::thread::sched_getaffinity(None);
    usable.map(|set| (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()).unwrap_or_default()
}

fn facts(
    config: &Config,
    file: Option<&Path>,
    listeners: &[String],
    domains: &[String],
    workers: u16,
) -> Vec<(&'static str, String)> {
    let read = file.map_or_else(
        || format!("the defaults (there is no {DEFAULT_FILE} here, and no {SYSTEM_FILE})"),
        |file| file.display().to_string(),
    );
    let first = domains.first().map_or("", String::as_str);
    let shown_domains = format!("{} (each address above is treated as {first})", domains.join(", "));
    vec![
        ("configuration", read),
        ("listen", listeners.join("\n")),
        ("domains", shown_domains),
        ("workers", shown_workers(config, workers)),
        ("sending", sending(config).to_owned()),
        ("users", users(config)),
        ("registrations", registrations(config)),
        ("members", members(config)),
        ("passwords", passwords(config)),
        ("calls", calls(config)),
        ("records", records(config)),
        ("traces", exporters::summary(config)),
        ("connections", connections(config)),
        ("names", names(config)),
        ("trunks", trunks(config)),
        ("balancers", balancers::shown(config)),
        ("routes", routes(config)),
        ("control", config.control_socket().display().to_string()),
    ]
}

fn shown_workers(config: &Config, workers: u16) -> String {
    let server = &config.server;
    let of_machine = if server.workers.is_some() { "" } else { " (one a core)" };
    let least = match config.min_workers(workers) {
        all if all == workers => "all of them active".to_owned(),
        least => format!("at least {least} of them active"),
    };
    let cores = match &server.affinity {
        Affinity::None => "placed by the scheduler".to_owned(),
        Affinity::Auto => "each pinned to its own core".to_owned(),
        Affinity::Cores(cores) => format!("pinned to the cores {}", list(cores)),
    };
    let steering = match server.steering {
        Steering::Peers => "all datagrams of a peer go to the same worker",
        Steering::Packets => "datagrams of a peer are spread over all workers",
    };
    let spin = match server.spin {
        Spin::UpTo(Span(time)) if time.is_zero() => "no busy-polling".to_owned(),
        Spin::UpTo(time) => format!("each busy-polls for up to {time} before it sleeps"),
        Spin::Always => "each worker with shards busy-polls all the time".to_owned(),
    };
    let timing = if server.timing { "" } else { "; packets are not timed" };
    format!("{workers}{of_machine}\n{least}, {cores}\n{steering}; {spin}{timing}")
}

/// Describes how datagrams are sent.
const fn sending(config: &Config) -> &'static str {
    match config.server.segmentation {
        Segmentation::Never => "each message is sent as a separate packet",
        Segmentation::Auto => {
            "messages of equal length to one peer are sent as one segmented packet, except during a packet capture"
        }
        Segmentation::Always => {
            "messages of equal length to one peer are sent as one segmented packet, also during a packet capture"
        }
    }
}

fn users(config: &Config) -> String {
    match config.store_url() {
        StoreUrl::Memory => "none (memory:)".to_owned(),
        url @ StoreUrl::Sqlite(_) if config.store.shared_users.is_any() => url.to_string(),
        url @ StoreUrl::Sqlite(_) => {
            let databases: Vec<_> = config.shared_users().iter().map(ToString::to_string).collect();
            format!("{}, copied to {url}", databases.join(", "))
        }
    }
}

fn members(config: &Config) -> String {
    let Some(cluster) = &config.cluster else { return "none: registrations are not shared".to_owned() };
    let through = match (cluster.store.0.as_slice(), cluster.durability()) {
        ([], _) => {
            let peers: Vec<_> = cluster.peers.iter().map(ToString::to_string).collect();
            format!("registrations are forwarded to {}", peers.join(", "))
        }
        (engines, durability) => {
            let engines: Vec<_> = engines.iter().map(ToString::to_string).collect();
            let when = if durability == Durability::Engine { "before" } else { "after" };
            format!("registrations are shared {when} the 200, through {}", engines.join(", "))
        }
    };
    format!("this is member {} of {}; {through}", cluster.member, cluster.name)
}

fn records(config: &Config) -> String {
    let file = config.cdr.file.iter().map(|file| file.display().to_string());
    let places: Vec<_> = file.chain(config.calls_databases().iter().map(ToString::to_string)).collect();
    if places.is_empty() { "none".to_owned() } else { places.join(", ") }
}

fn registrations(config: &Config) -> String {
    let registrar = &config.registrar;
    let expires = &registrar.expires;
    let nat = match registrar.nat {
        Nat::Auto => "requests to a phone behind NAT go to the source address of its REGISTER",
        Nat::Always => "requests go to the source address of the REGISTER",
        Nat::Never => "requests go to the contact's own address",
    };
    let keepalive = match registrar.keepalive {
        KeepAlive::Crlf => format!("CRLF every {}", registrar.keepalive_interval),
        KeepAlive::Options => format!("OPTIONS every {}", registrar.keepalive_interval),
        KeepAlive::Off => "none".to_owned(),
    };
    format!(
        "{}\nfor {} ({} to {}); up to {} per address of record\n{nat}; keep-alive: {keepalive}",
        kept(config),
        expires.default,
        expires.min,
        expires.max,
        count(registrar.max_contacts.into(), "contact")
    )
}

/// Describes how registrations are stored, and what that requires.
fn kept(config: &Config) -> String {
    let mode = config.store_mode();
    let journal = config.journal_folder();
    let on_disk = match mode {
        Mode::WriteThrough => "on disk before the phone gets its 200",
        Mode::WriteBehind => "on disk about 100 ms after the phone gets its 200",
        Mode::Memory if config.is_first_stage() => return "none: the clusters hold them".to_owned(),
        Mode::Memory => return "memory: lost when the server stops".to_owned(),
    };
    let mut text = format!("{}: {on_disk}, in {} and the database", mode.as_str(), journal.display());
    let there = journal.ancestors().find(|folder| folder.exists());
    let there = there.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !there.is_dir() {
        text.push_str(&format!("\n({} is not a folder)", there.display()));
    } else if rustix::fs::access(there, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        text.push_str(&format!("\n(this user may not write to {})", there.display()));
    }
    text
}

fn passwords(config: &Config) -> String {
    let auth = &config.auth;
    if auth.require.is_empty() {
        return "not required".to_owned();
    }
    let require = list(&auth.require);
    let realm = auth.realm.as_ref().map_or("the domain".to_owned(), ToString::to_string);
    let inside = if auth.in_dialog { ", also within calls" } else { "" };
    let mut text = format!("for {require}{inside}; realm: {realm}; {}", list(&auth.algorithms));
    if !auth.trusted.is_empty() {
        text.push_str(&format!("\nnot required from {}", list(&auth.trusted)));
    }
    text
}

fn calls(config: &Config) -> String {
    let proxy = &config.proxy;
    let stays = if config.is_first_stage() {
        "stays in the path of calls if only it can reach a phone"
    } else if proxy.record_route {
        "stays in the path of calls"
    } else {
        "leaves the path of answered calls"
    };
    let redirections = if proxy.recurse { "follows redirects" } else { "passes redirects to the caller" };
    let mut text = format!(
        "ring for up to {}, sequential targets for {} each; the server {stays} and {redirections}\na target that is \
         silent for {} is abandoned for the next one",
        proxy.ring_timeout, proxy.fork_timeout, proxy.failover_timeout
    );
    if !proxy.avoid_for.0.is_zero() {
        text.push_str(&format!(", and tried last for the next {}", proxy.avoid_for));
    }
    match proxy.stateless {
        Stateless::Never => {}
        Stateless::WhenPossible => text.push_str("\nrequests within a call are forwarded statelessly when possible"),
        Stateless::Always => text.push_str("\nrequests within a call are forwarded statelessly"),
    }
    text.push_str(&format!("\nrequests over {} bytes use TCP where the target allows it", proxy.mtu));
    if proxy.outbound {
        text.push_str("\nforwarded REGISTERs get a Path that leads back over the phone's flow");
    }
    text
}

fn connections(config: &Config) -> String {
    let tcp = &config.tcp;
    let idle = if tcp.idle.0.is_zero() {
        "kept open when idle".to_owned()
    } else {
        format!("closed when idle for {}", tcp.idle)
    };
    format!("up to {}, {} per source; {idle}", tcp.connections, tcp.per_source)
}

fn names(config: &Config) -> String {
    let dns = &config.dns;
    let servers = if dns.servers.is_empty() { "the system's DNS servers".to_owned() } else { list(&dns.servers) };
    let kept = match (dns.cache, dns.serve_stale) {
        (false, _) => "not cached".to_owned(),
        (true, Span(stale)) if stale.is_zero() => "cached".to_owned(),
        (true, stale) => format!("cached, and used up to {stale} longer if no server answers"),
    };
    format!("resolved by {servers} within {}; answers are {kept}", dns.timeout)
}

fn trunks(config: &Config) -> String {
    if config.trunks.is_empty() {
        return "none".to_owned();
    }
    config.trunks.iter().map(trunk).collect::<Vec<_>>().join("\n")
}

fn trunk(trunk: &Trunk) -> String {
    let mut text = format!("{}: {}", trunk.name, destinations(&trunk.targets));
    match (trunk.from(), trunk.registrar()) {
        (Some(from), Some(registrar)) if trunk.register => {
            text.push_str(&format!("\n  registers {from} at {registrar} for {}", trunk.expires));
        }
        _ => {}
    }
    if let Some(user) = &trunk.username {
        text.push_str(&format!("\n  answers challenges as {user}"));
    }
    match &trunk.password_env {
        Some(name) if std::env::var_os(name).is_none() => text.push_str(&format!(" (${name} is not set here)")),
        _ => {}
    }
    if !trunk.sources.is_empty() {
        text.push_str(&format!("\n  trusted sources: {}", list(&trunk.sources)));
    }
    text
}

fn routes(config: &Config) -> String {
    let mut lines: Vec<String> = config.routes.iter().map(route).collect();
    lines.push(format!("other requests not for local users: rejected with {}", config.proxy.unrouted_status));
    lines.join("\n")
}

fn route(route: &Route) -> String {
    let to = match (&route.balance, &route.trunk) {
        (Some(balancer), _) => format!("the targets of balancer {balancer}"),
        (None, Some(trunk)) => format!("trunk {trunk}"),
        (None, None) if route.targets.is_empty() => "the user's contacts".to_owned(),
        (None, None) => targets(&route.targets),
    };
    let action = match (route.action, route.status, &route.reason) {
        (Action::Proxy, ..) => format!("proxied to {to}"),
        (Action::Redirect, ..) => format!("redirected to {to}"),
        (Action::Reject, status, None) => format!("rejected with {}", status.unwrap_or(403)),
        (Action::Reject, status, Some(reason)) => format!("rejected with {} {reason}", status.unwrap_or(403)),
    };
    let state = match (route.action, route.stateless) {
        (Action::Proxy, Stateless::WhenPossible) => ", statelessly when possible",
        (Action::Proxy, Stateless::Always) => ", statelessly",
        _ => "",
    };
    format!("{}: {action}{state}{}", matched(route), changed(route))
}

/// Describes what a route matches.
fn matched(route: &Route) -> String {
    let matches = &route.matches;
    let methods = if matches.method.is_any() { "any method".to_owned() } else { list(&matches.method.0) };
    let also = |what: &str, values: String| if values.is_empty() { values } else { format!(", {what} {values}") };
    let prefix = also("numbers beginning with", list(&matches.prefix.0));
    let source = also("from", list(&matches.source.0));
    format!("{}, {methods}{prefix}{source}", matches.domain)
}

/// Describes what a route changes.
fn changed(route: &Route) -> String {
    let mut text = String::new();
    if let Some(rewrite) = &route.rewrite {
        text.push_str(&rewritten(rewrite));
    }
    for (name, value) in &route.add_headers {
        text.push_str(&format!(", with {name}: {value}"));
    }
    if !route.remove_headers.is_empty() {
        text.push_str(&format!(", without {}", list(&route.remove_headers)));
    }
    if let Some(timeout) = route.timeout {
        text.push_str(&format!(", ringing up to {timeout}"));
    }
    text
}

fn rewritten(rewrite: &Rewrite) -> String {
    let mut text = String::new();
    if rewrite.strip > 0 {
        text.push_str(&format!(", first {} digits removed from numbers", rewrite.strip));
    }
    if !rewrite.prefix.0.is_empty() {
        text.push_str(&format!(", numbers prefixed with {}", rewrite.prefix));
    }
    if let Some(rule) = &rewrite.e164 {
        let plus = if rule.plus { "+" } else { "" };
        let (national, international) = (&rule.national_prefix, &rule.international_prefix);
        text.push_str(&format!(
            ", numbers in E.164 form with {plus}{} (dialled with {national} and {international})",
            rule.country
        ));
    }
    text
}

fn targets(targets: &[TargetOrSet]) -> String {
    let written = |target: &TargetOrSet| match target {
        TargetOrSet::Target(to) => Some(to.clone()),
        TargetOrSet::Set(_) => None,
    };
    if let Some(written) = targets.iter().map(written).collect::<Option<Vec<_>>>() {
        return destinations(&written);
    }
    // Next to a gateway set, priorities matter, because its gateways have some.
    let one = |target: &TargetOrSet| match target {
        TargetOrSet::Target(to) => with_rank(to),
        TargetOrSet::Set(name) => format!("the gateways of {}", name.0),
    };
    targets.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn destinations(destinations: &[Destination]) -> String {
    let alike = destinations.windows(2).all(|pair| match pair {
        [a, b] => (a.priority, a.weight) == (b.priority, b.weight),
        _ => true,
    });
    if alike {
        return list(destinations);
    }
    destinations.iter().map(with_rank).collect::<Vec<_>>().join(", ")
}

fn with_rank(to: &Destination) -> String {
    format!("{to} (priority {}, weight {})", to.priority, to.weight)
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
