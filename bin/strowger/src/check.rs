//! `strowger check`: what the configuration would do.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;

use serde_json::json;
use strowger_control::config::values::StoreUrl;
use strowger_control::config::{Action, Config, DEFAULT_FILE, KeepAlive, Nat, Route, Stateless};

use crate::cli::CheckArguments;
use crate::failure::Failure;
use crate::table::{print_facts, print_json};

pub(crate) fn run(file: Option<&Path>, arguments: &CheckArguments) -> Result<(), Failure> {
    if arguments.schema {
        print!("{}", Config::schema());
        return Ok(());
    }
    let (config, file) = Config::load(file)?;
    let addresses = addresses(&config)?;
    let domains: Vec<String> = config.server.domains.iter().map(|domain| domain.0.clone()).collect();
    let workers = config.workers(cores());
    if arguments.json {
        let listeners: Vec<String> = addresses.iter().map(|address| format!("udp:{address}")).collect();
        let value = json!({
            "file": file.as_deref().map(Path::to_string_lossy),
            "listeners": listeners,
            "domains": domains,
            "workers": workers,
            "users": config.store_url().to_string(),
            "control_socket": config.control_socket(),
            "configuration": config,
        });
        return Ok(print_json(&value)?);
    }
    Ok(print_facts(&facts(&config, file.as_deref(), &addresses, &domains, workers))?)
}

/// The addresses that the server would bind.
pub(crate) fn addresses(config: &Config) -> Result<Vec<SocketAddr>, Failure> {
    let local = strowger_net::local_addresses()
        .map_err(|error| Failure::No(format!("this machine's addresses cannot be listed: {error}")))?;
    let addresses = config.addresses(&local);
    if addresses.is_empty() {
        let message = "server.listen: no interface of this machine has an address of this family; name one that exists";
        return Err(Failure::Usage(message.to_owned()));
    }
    Ok(addresses)
}

/// How many threads run at one time.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn facts(
    config: &Config,
    file: Option<&Path>,
    addresses: &[SocketAddr],
    domains: &[String],
    workers: u16,
) -> Vec<(&'static str, String)> {
    let read = file
        .map_or_else(|| format!("the defaults (there is no {DEFAULT_FILE} here)"), |file| file.display().to_string());
    let listeners: Vec<String> = addresses.iter().map(|address| format!("udp:{address}")).collect();
    let first = domains.first().map_or("", String::as_str);
    let shown_domains = format!("{} (each address above stands for {first})", domains.join(", "));
    let shown_workers = match config.server.workers {
        Some(_) => workers.to_string(),
        None => format!("{workers} (one a core)"),
    };
    vec![
        ("configuration", read),
        ("listen", listeners.join("\n")),
        ("domains", shown_domains),
        ("workers", shown_workers),
        ("users", users(config)),
        ("registrations", registrations(config)),
        ("passwords", passwords(config)),
        ("calls", calls(config)),
        ("routes", routes(config)),
        ("control", config.control_socket().display().to_string()),
    ]
}

fn users(config: &Config) -> String {
    match config.store_url() {
        StoreUrl::Memory => "none (memory:)".to_owned(),
        url @ StoreUrl::Sqlite(_) => url.to_string(),
    }
}

fn registrations(config: &Config) -> String {
    let registrar = &config.registrar;
    let expires = &registrar.expires;
    let nat = match registrar.nat {
        Nat::Auto => "requests go to the source of the REGISTER behind a translation",
        Nat::Always => "requests go to the source of the REGISTER",
        Nat::Never => "requests go to the contact's own address",
    };
    let keepalive = match registrar.keepalive {
        KeepAlive::Crlf => format!("an empty line every {}", registrar.keepalive_interval),
        KeepAlive::Options => format!("OPTIONS every {}", registrar.keepalive_interval),
        KeepAlive::Off => "nothing".to_owned(),
    };
    format!(
        "in memory; for {} ({} to {}); up to {} contacts of an address\n{nat}; {keepalive} keeps it open",
        expires.default, expires.min, expires.max, registrar.max_contacts
    )
}

fn passwords(config: &Config) -> String {
    let auth = &config.auth;
    if auth.require.is_empty() {
        return "nobody is asked".to_owned();
    }
    let require = list(&auth.require);
    let realm = auth.realm.as_ref().map_or("the domain".to_owned(), ToString::to_string);
    let mut text = format!("for {require}; realm: {realm}; {}", list(&auth.algorithms));
    if !auth.trusted.is_empty() {
        text.push_str(&format!("\nnot asked: {}", list(&auth.trusted)));
    }
    text
}

fn calls(config: &Config) -> String {
    let stays =
        if config.proxy.record_route { "stays on the way of calls" } else { "leaves the way of answered calls" };
    format!("ring up to {}; the server {stays}", config.proxy.ring_timeout)
}

fn routes(config: &Config) -> String {
    if config.routes.is_empty() {
        return "none".to_owned();
    }
    config.routes.iter().map(route).collect::<Vec<_>>().join("\n")
}

fn route(route: &Route) -> String {
    let methods = match route.matches.method.0.as_slice() {
        [] => "any method".to_owned(),
        methods => list(methods),
    };
    let targets = if route.targets.is_empty() { "the user's contacts".to_owned() } else { list(&route.targets) };
    let action = match (route.action, route.status) {
        (Action::Proxy, _) => format!("proxied to {targets}"),
        (Action::Redirect, _) => format!("redirected to {targets}"),
        (Action::Reject, status) => format!("rejected with {}", status.unwrap_or(403)),
    };
    let state = match (route.action, route.stateless) {
        (Action::Proxy, Stateless::WhenPossible) => ", without state when possible",
        (Action::Proxy, Stateless::Always) => ", without state",
        _ => "",
    };
    format!("{}, {methods}: {action}{state}", route.matches.domain)
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
