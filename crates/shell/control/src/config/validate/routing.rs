//! Constraints between the keys of a trunk or route.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;

use strowger_message::{HeaderName, Uri};

use super::{count, text_fits, whole_seconds, within};
use crate::config::error::{Fault, nearest};
use crate::config::values::{Destination, Origin, StoreUrl, TargetOrSet};
use crate::config::{Action, Config, Rewrite, Route, Stateless, Trunk};

/// Maximum number of routes, of trunks, of targets, sources and prefixes of each, and of headers that a route
/// changes.
const MAX_ROUTES: usize = 1_000;
const MAX_TRUNKS: usize = 256;
const MAX_TARGETS: usize = 32;
/// Maximum number of gateway sets per route. Each request orders all their gateways.
const MAX_SETS: usize = 4;
const MAX_SOURCES: usize = 256;
const MAX_PREFIXES: usize = 256;
const MAX_HEADERS: usize = 32;
/// Maximum length of an added header's name and value, and of a reason phrase.
const MAX_TEXT: usize = 256;

/// Headers for identity, routing and framing. A route that changed them would break the message.
const ESSENTIAL: [HeaderName; 12] = [
    HeaderName::Via,
    HeaderName::Route,
    HeaderName::RecordRoute,
    HeaderName::From,
    HeaderName::To,
    HeaderName::CallId,
    HeaderName::CSeq,
    HeaderName::Contact,
    HeaderName::MaxForwards,
    HeaderName::ContentLength,
    HeaderName::ContentType,
    HeaderName::Path,
];

impl Config {
    /// Returns the first fault of each trunk and route.
    pub(super) fn validate_routing(&self) -> Vec<Fault> {
        let mut names = BTreeSet::new();
        let counts = [count("trunk", self.trunks.len(), MAX_TRUNKS), count("route", self.routes.len(), MAX_ROUTES)];
        let trunks = self.trunks.iter().enumerate().map(|(index, trunk)| {
            let key = |name: &str| format!("trunk[{index}].{name}");
            let fits = |c: char| c.is_alphanumeric() || "-_.".contains(c);
            if trunk.name.is_empty() || trunk.name.len() > MAX_TEXT || !trunk.name.chars().all(fits) {
                let message = format!(
                    "{:?} is not a valid name; write letters and digits, such as name = \"carrier\"",
                    trunk.name
                );
                return Err(Fault::new(key("name"), message));
            }
            if !names.insert(&trunk.name) {
                let message = format!("{:?} is the name of another trunk; choose another", trunk.name);
                return Err(Fault::new(key("name"), message));
            }
            validate_trunk(trunk, &key)
        });
        let routes = self.routes.iter().enumerate().map(|(index, route)| {
            let key = |name: &str| format!("route[{index}].{name}");
            validate_action(route, &key)?;
            self.validate_balance(route, &key)?;
            validate_targets(route, &key)?;
            self.validate_sets(route, &key)?;
            validate_headers(route, &key)?;
            self.validate_names(route, &key)
        });
        counts.into_iter().chain(trunks).chain(routes).filter_map(Result::err).collect()
    }

    /// Checks that sets are allowed here. Their contents are unknown at this point.
    fn validate_sets(&self, route: &Route, key: &dyn Fn(&str) -> String) -> Result<(), Fault> {
        let targets = route.targets.iter().enumerate();
        let mut sets = targets.filter(|(_, target)| matches!(target, TargetOrSet::Set(_)));
        match (sets.clone().nth(MAX_SETS), sets.next()) {
            (Some((index, _)), _) => {
                let message = format!("a route has {MAX_SETS} sets at most; remove one");
                Err(Fault::new(format!("{}[{index}]", key("targets")), message))
            }
            (None, Some((index, set))) if self.store_url() == StoreUrl::Memory => {
                let message = format!(
                    "{set} is read from the database, but store.url is memory:; give one there, such as sqlite:data/strowger.db, or write the targets here"
                );
                Err(Fault::new(format!("{}[{index}]", key("targets")), message))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the trunks named by a route exist.
    fn validate_names(&self, route: &Route, key: &dyn Fn(&str) -> String) -> Result<(), Fault> {
        let known: Vec<&str> = self.trunks.iter().map(|trunk| trunk.name.as_str()).collect();
        let check = |key: String, name: &str| {
            if known.contains(&name) {
                return Ok(());
            }
            let remedy = match nearest(name, &known) {
                Some(name) => format!("did you mean {name:?}?"),
                None => format!("add a [[trunk]] with name = {name:?}"),
            };
            Err(Fault::new(key, format!("there is no trunk {name:?}; {remedy}")))
        };
        if let Some(name) = &route.trunk {
            check(key("trunk"), name)?;
        }
        for origin in &route.matches.source.0 {
            if let Origin::Trunk(name) = origin {
                check(key("match.source"), name)?;
                let sources = self.trunks.iter().find(|trunk| trunk.name == *name).map(|trunk| &trunk.sources);
                if sources.is_none_or(Vec::is_empty) {
                    let message = format!("the trunk {name:?} has no sources; add its addresses there");
                    return Err(Fault::new(key("match.source"), message));
                }
            }
        }
        Ok(())
    }
}

fn validate_trunk(trunk: &Trunk, key: &dyn Fn(&str) -> String) -> Result<(), Fault> {
    if trunk.targets.is_empty() {
        let message = "the list is empty; list the targets, such as [\"sip:carrier.example\"]";
        return Err(Fault::new(key("targets"), message));
    }
    destinations(&trunk.targets, key)?;
    count(&key("sources"), trunk.sources.len(), MAX_SOURCES)?;
    count(&key("certificate_domains"), trunk.certificate_domains.len(), MAX_SOURCES)?;
    let passwords = [
        ("password", trunk.password.is_some()),
        ("password_file", trunk.password_file.is_some()),
        ("password_env", trunk.password_env.is_some()),
    ];
    let mut given = passwords.iter().filter(|(_, given)| *given).map(|(name, _)| *name);
    let first = given.next();
    if let (Some(first), Some(second)) = (first, given.next()) {
        return Err(Fault::new(key(second), format!("{first} already gives the password; remove one")));
    }
    match (&trunk.username, first) {
        (Some(name), _) if !text_fits(name, MAX_TEXT) => {
            return Err(Fault::new(
                key("username"),
                format!("{name:?} is not a valid user name; write it as given by the carrier"),
            ));
        }
        (Some(_), None) => {
            let message = "the password is missing; add password_file, password_env or password";
            return Err(Fault::new(key("username"), message));
        }
        (None, Some(name)) => return Err(Fault::new(key(name), "the user name is missing; add username")),
        _ => {}
    }
    if trunk.password.as_ref().is_some_and(|password| !text_fits(&password.0, 4 * MAX_TEXT)) {
        return Err(Fault::new(key("password"), "this is not a valid password; write one line of text"));
    }
    if trunk.username.is_none() && trunk.realm.is_some() {
        return Err(Fault::new(key("realm"), "it has no effect without username and password; add them, or remove it"));
    }
    validate_registration(trunk, key)
}

fn validate_registration(trunk: &Trunk, key: &dyn Fn(&str) -> String) -> Result<(), Fault> {
    within(&key("expires"), trunk.expires, Duration::from_secs(60))?;
    whole_seconds(&key("expires"), trunk.expires)?;
    if !trunk.register {
        let given = [
            ("registrar", trunk.registrar.is_some()),
            ("from", trunk.from.is_some()),
            ("contact", trunk.contact.is_some()),
        ];
        return match given.into_iter().find(|(_, given)| *given) {
            Some((name, _)) => {
                Err(Fault::new(key(name), "it has no effect without registration; add register = true, or remove it"))
            }
            None => Ok(()),
        };
    }
    let Some(from) = trunk.from() else {
        let message = "the address of record is missing; add username, or from = \"sip:NUMBER@DOMAIN\"";
        return Err(Fault::new(key("register"), message));
    };
    //= rfc3261#10.2:sip-address
    match Uri::parse(from.as_bytes()) {
        Some(Uri::Sip(uri)) if uri.user.is_some() && uri.password.is_none() && uri.params.as_bytes().is_empty() => {
            Ok(())
        }
        _ => {
            let message = format!("{from:?} cannot be registered; write sip:NUMBER@DOMAIN");
            Err(Fault::new(key("from"), message))
        }
    }
}

fn validate_action(route: &Route, key: &dyn Fn(&str) -> String) -> Result<(), Fault> {
    match (route.action, route.status) {
        (Action::Reject, None) => {
            return Err(Fault::new(key("action"), "reject needs a status; add one, such as status = 403"));
        }
        (Action::Reject, Some(status)) if !(300..=699).contains(&status) => {
            let message = format!("{status} is not from 300 to 699; choose a value in this range, such as 403");
            return Err(Fault::new(key("status"), message));
        }
        (Action::Proxy | Action::Redirect, Some(_)) => {
            return Err(Fault::new(key("status"), "only action = \"reject\" has a status; remove it"));
        }
        _ => {}
    }
    if let Some(reason) = &route.reason {
        if route.action != Action::Reject {
            return Err(Fault::new(key("reason"), "only action = \"reject\" has a reason; remove it"));
        }
        if !text_fits(reason, MAX_TEXT) {
            let message = format!("{reason:?} is not one line of 1 to {MAX_TEXT} bytes; shorten it");
            return Err(Fault::new(key("reason"), message));
        }
    }
    let given = [
        ("stateless", route.stateless != Stateless::Never),
        ("trunk", route.trunk.is_some()),
        ("rewrite", route.rewrite.is_some()),
        ("add_headers", !route.add_headers.is_empty()),
        ("remove_headers", !route.remove_headers.is_empty()),
        ("timeout", route.timeout.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given && route.action != Action::Proxy) {
        Some((name, _)) => Err(Fault::new(key(name), "only action = \"proxy\" forwards; remove it")),
        None => route.timeout.map_or(Ok(()), |timeout| within(&key("timeout"), timeout, Duration::from_secs(1))),
    }
}

fn validate_targets(route: &Route, key: &dyn Fn(&str) -> String) -> Result<(), Fault> {
    if route.action == Action::Reject && !route.targets.is_empty() {
        return Err(Fault::new(key("targets"), "action = \"reject\" has no targets; remove them"));
    }
    if route.trunk.is_some() && !route.targets.is_empty() {
        return Err(Fault::new(key("targets"), "the trunk has its own targets; remove these, or trunk"));
    }
    if route.trunk.is_some() && route.stateless != Stateless::Never {
        return Err(Fault::new(key("stateless"), "a trunk needs state, to answer its challenges; remove it"));
    }
    let same = |one: &TargetOrSet, other: &TargetOrSet| match (one, other) {
        (TargetOrSet::Target(one), TargetOrSet::Target(other)) => same_place(one, other),
        (one, other) => one == other,
    };
    once_each(&route.targets, same, key)?;
    count(&key("match.prefix"), route.matches.prefix.0.len(), MAX_PREFIXES)?;
    count(&key("match.source"), route.matches.source.0.len(), MAX_SOURCES)?;
    match &route.rewrite {
        Some(rewrite) if *rewrite == Rewrite::default() => {
            Err(Fault::new(key("rewrite"), "it rewrites nothing; add strip, prefix or e164, or remove it"))
        }
        _ => Ok(()),
    }
}

fn destinations(targets: &[Destination], key: &dyn Fn(&str) -> String) -> Result<(), Fault> {
    once_each(targets, same_place, key)
}

fn same_place(one: &Destination, other: &Destination) -> bool {
    one.target.next_hop == other.target.next_hop && one.target.uri == other.target.uri
}

fn once_each<T: Display>(
    targets: &[T],
    same: impl Fn(&T, &T) -> bool,
    key: &dyn Fn(&str) -> String,
) -> Result<(), Fault> {
    count(&key("targets"), targets.len(), MAX_TARGETS)?;
    for (index, target) in targets.iter().enumerate() {
        if targets.iter().take(index).any(|other| same(target, other)) {
            let message = format!("{target} is listed twice; remove one (weight gives it a greater share)");
            return Err(Fault::new(format!("{}[{index}]", key("targets")), message));
        }
    }
    Ok(())
}

fn validate_headers(route: &Route, key: &dyn Fn(&str) -> String) -> Result<(), Fault> {
    count(&key("add_headers"), route.add_headers.len(), MAX_HEADERS)?;
    count(&key("remove_headers"), route.remove_headers.len(), MAX_HEADERS)?;
    for (name, value) in &route.add_headers {
        let key = format!("{}.{name}", key("add_headers"));
        header_name(&key, name)?;
        if !text_fits(value, MAX_TEXT) {
            let message = format!("{value:?} is not one line of 1 to {MAX_TEXT} bytes; shorten it");
            return Err(Fault::new(key, message));
        }
    }
    for (index, name) in route.remove_headers.iter().enumerate() {
        header_name(&format!("{}[{index}]", key("remove_headers")), name)?;
    }
    Ok(())
}

fn header_name(key: &str, name: &str) -> Result<(), Fault> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-.!%*_+`'~".contains(c);
    if name.is_empty() || name.len() > MAX_TEXT || !name.chars().all(fits) {
        return Err(Fault::new(key, format!("{name:?} is not a header name; write one such as X-Account")));
    }
    if ESSENTIAL.contains(&HeaderName::from_bytes(name.as_bytes())) {
        return Err(Fault::new(key, format!("{name} is essential to the message and cannot be changed; remove it")));
    }
    Ok(())
}
