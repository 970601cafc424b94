//! What no key can be asked alone.

use std::collections::BTreeSet;
use std::time::Duration;

use super::error::Fault;
use super::values::{Domain, Listen};
use super::{Action, Config, MAX_WORKERS, Route, Span};

/// The longest duration that any key takes: expiry is counted in 32-bit seconds in some phones and wheels.
const MAX_SPAN: Duration = Duration::from_secs(30 * 86_400);
/// The most listeners, domains, routes, and targets of a route.
const MAX_LISTENERS: usize = 256;
const MAX_DOMAINS: usize = 10_000;
const MAX_ROUTES: usize = 1_000;
const MAX_TARGETS: usize = 32;
/// The most contacts of one address: as many branches as a request may have.
const MAX_CONTACTS: u16 = 32;

impl Config {
    pub(crate) fn validate(&self) -> Result<(), Fault> {
        self.validate_server()?;
        self.validate_registrar()?;
        self.validate_auth()?;
        self.validate_times()?;
        count("route", self.routes.len(), MAX_ROUTES)?;
        self.routes.iter().enumerate().try_for_each(|(index, route)| validate_route(index, route))
    }

    fn validate_server(&self) -> Result<(), Fault> {
        let server = &self.server;
        if server.listen.is_empty() {
            return Err(Fault::new("server.listen", "the list is empty; name an address, as \"udp:0.0.0.0:5060\""));
        }
        count("server.listen", server.listen.len(), MAX_LISTENERS)?;
        count("server.domains", server.domains.len(), MAX_DOMAINS)?;
        let mut seen = BTreeSet::new();
        for (index, Listen(address)) in server.listen.iter().enumerate() {
            // Port 0 asks for any free port, so it may stand there twice.
            if address.port() != 0 && !seen.insert(address) {
                let key = format!("server.listen[{index}]");
                return Err(Fault::new(key, format!("udp:{address} is listed twice; remove one")));
            }
        }
        let mut seen = BTreeSet::new();
        for (index, Domain(domain)) in server.domains.iter().enumerate() {
            if !seen.insert(domain) {
                let key = format!("server.domains[{index}]");
                return Err(Fault::new(key, format!("{domain} is listed twice; remove one")));
            }
        }
        if server.data.as_os_str().is_empty() {
            return Err(Fault::new("server.data", "the path is empty; name a folder, as \"data\""));
        }
        match server.workers {
            Some(workers) if !(1..=MAX_WORKERS).contains(&workers) => Err(Fault::new(
                "server.workers",
                format!("{workers} is not from 1 to {MAX_WORKERS}; leave it out for one a core"),
            )),
            _ => Ok(()),
        }
    }

    fn validate_registrar(&self) -> Result<(), Fault> {
        let registrar = &self.registrar;
        let expires = &registrar.expires;
        for (name, span) in [("default", expires.default), ("min", expires.min), ("max", expires.max)] {
            let key = format!("registrar.expires.{name}");
            within(&key, span, Duration::from_secs(1))?;
            if span.0.subsec_nanos() != 0 {
                return Err(Fault::new(key, format!("{span} is not in whole seconds, as SIP counts; round it")));
            }
        }
        if expires.min > expires.max {
            let message = format!("{} is longer than registrar.expires.max, {}; lower it", expires.min, expires.max);
            return Err(Fault::new("registrar.expires.min", message));
        }
        if expires.default < expires.min || expires.default > expires.max {
            let (min, max) = (expires.min, expires.max);
            let message = format!("{} is not from {min} to {max} (min and max); choose one between", expires.default);
            return Err(Fault::new("registrar.expires.default", message));
        }
        if !(1..=MAX_CONTACTS).contains(&registrar.max_contacts) {
            let message = format!("{} is not from 1 to {MAX_CONTACTS}; choose one between", registrar.max_contacts);
            return Err(Fault::new("registrar.max_contacts", message));
        }
        within("registrar.keepalive_interval", registrar.keepalive_interval, Duration::from_secs(1))
    }

    fn validate_auth(&self) -> Result<(), Fault> {
        let auth = &self.auth;
        if auth.algorithms.is_empty() {
            let message = "the list is empty; name one, as \"MD5\" (to ask nobody for a password write require = [])";
            return Err(Fault::new("auth.algorithms", message));
        }
        for (index, algorithm) in auth.algorithms.iter().enumerate() {
            if auth.algorithms.iter().take(index).any(|earlier| earlier == algorithm) {
                let key = format!("auth.algorithms[{index}]");
                return Err(Fault::new(key, format!("{algorithm} is listed twice; remove one")));
            }
        }
        for (index, method) in auth.require.iter().enumerate() {
            // RFC 3261 §22.1: neither can be answered with a challenge.
            if matches!(method.0.as_str(), "ACK" | "CANCEL") {
                let key = format!("auth.require[{index}]");
                return Err(Fault::new(key, format!("{method} cannot be challenged (RFC 3261 §22.1); remove it")));
            }
        }
        within("auth.nonce_age", auth.nonce_age, Duration::from_secs(1))
    }

    fn validate_times(&self) -> Result<(), Fault> {
        within("proxy.ring_timeout", self.proxy.ring_timeout, Duration::from_secs(1))?;
        let timers = &self.timers;
        for (key, span) in [("timers.t1", timers.t1), ("timers.t2", timers.t2), ("timers.t4", timers.t4)] {
            within(key, span, Duration::from_millis(1))?;
        }
        if timers.t1 > timers.t2 {
            let message = format!("{} is longer than timers.t2, {}; lower it", timers.t1, timers.t2);
            return Err(Fault::new("timers.t1", message));
        }
        Ok(())
    }
}

fn validate_route(index: usize, route: &Route) -> Result<(), Fault> {
    let key = |name: &str| format!("route[{index}].{name}");
    count(&key("targets"), route.targets.len(), MAX_TARGETS)?;
    match (route.action, route.status) {
        (Action::Reject, None) => {
            return Err(Fault::new(key("action"), "reject needs a status beside it; add one, as status = 403"));
        }
        (Action::Reject, Some(status)) if !(300..=699).contains(&status) => {
            let message = format!("{status} is not from 300 to 699; choose one between, as 403");
            return Err(Fault::new(key("status"), message));
        }
        (Action::Proxy | Action::Redirect, Some(_)) => {
            return Err(Fault::new(key("status"), "only action = \"reject\" has a status; remove it"));
        }
        _ => {}
    }
    if route.action == Action::Reject && !route.targets.is_empty() {
        return Err(Fault::new(key("targets"), "action = \"reject\" has no targets; remove them"));
    }
    if route.action != Action::Proxy && route.stateless != super::Stateless::Never {
        return Err(Fault::new(key("stateless"), "only action = \"proxy\" forwards; remove it"));
    }
    Ok(())
}

fn within(key: &str, span: Span, least: Duration) -> Result<(), Fault> {
    let least = Span(least);
    if span < least || span.0 > MAX_SPAN {
        let message = format!("{span} is not from {least} to {}; choose one between", Span(MAX_SPAN));
        return Err(Fault::new(key, message));
    }
    Ok(())
}

fn count(key: &str, found: usize, most: usize) -> Result<(), Fault> {
    if found > most {
        return Err(Fault::new(key, format!("has {found} entries, more than {most}; shorten it")));
    }
    Ok(())
}
