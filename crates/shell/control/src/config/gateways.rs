//! The sets that routes name, and the gateways that the database has in them.

use std::net::IpAddr;

use strowger_directory::{Gateway, Gateways};
use strowger_trunk::Place;

use super::error::nearest;
use super::values::{Destination, SetName, Target, TargetOrSet};
use super::{Action, Config};

impl Config {
    /// What an operator should know of where routes and trunks lead, with its key: sets that nobody is in service of, and
    /// targets that no listener reaches.
    ///
    /// # Errors
    /// A set in which a gateway is no target; no part of such a set is used.
    pub fn look_at_routes(&self, gateways: &Gateways) -> Result<Vec<String>, String> {
        let mut warnings = Vec::new();
        for (index, route) in self.routes.iter().enumerate() {
            let is_only = route.targets.len() == 1;
            for (place, target) in route.targets.iter().enumerate() {
                let key = format!("route[{index}].targets[{place}]");
                let name = match target {
                    TargetOrSet::Set(name) => name,
                    TargetOrSet::Target(to) => {
                        let why = self.unreached(&to.target).filter(|_| route.action == Action::Proxy);
                        warnings.extend(why.map(|why| format!("{key}: {why}")));
                        continue;
                    }
                };
                let members = members(gateways, name)?;
                if members.is_empty() {
                    warnings.push(format!("{key}: {}", absence(gateways, name, is_only)));
                }
                let unreached = members.iter().filter(|_| route.action == Action::Proxy);
                let unreached = unreached.filter_map(|member| self.unreached(&member.target));
                warnings.extend(unreached.map(|why| format!("{key}: gateway {why}")));
            }
        }
        for (index, trunk) in self.trunks.iter().enumerate() {
            for (place, to) in trunk.targets.iter().enumerate() {
                let key = format!("trunk[{index}].targets[{place}]");
                warnings.extend(self.unreached(&to.target).map(|why| format!("{key}: {why}")));
            }
        }
        Ok(warnings)
    }

    /// Why no listener reaches a target, and what to add; nothing where one does, or where only the DNS knows.
    #[must_use]
    pub fn unreached(&self, target: &Target) -> Option<String> {
        let (transport, ip) = match &target.place {
            Place::At(hop) => (hop.transport, Some(hop.address.ip())),
            // By its records, where it names no transport.
            Place::Named(_) => (target.transport?, None),
        };
        let of_transport = || self.server.listen.iter().filter(|listen| listen.transport == transport);
        let of_family = |ip: IpAddr| of_transport().any(|listen| listen.address.is_ipv6() == ip.is_ipv6());
        if of_transport().next().is_some() && ip.is_none_or(of_family) {
            return None;
        }
        let name = transport.as_str();
        let (family, any) = match ip {
            Some(IpAddr::V6(_)) if of_transport().next().is_some() => (" over IPv6", "[::]"),
            Some(IpAddr::V4(_)) if of_transport().next().is_some() => (" over IPv4", "0.0.0.0"),
            Some(IpAddr::V6(_)) => ("", "[::]"),
            _ => ("", "0.0.0.0"),
        };
        let listen = format!("{}:{any}:{}", name.to_ascii_lowercase(), transport.default_port());
        Some(format!(
            "{target} is reached by {name}{family}, and nothing in server.listen is: what is sent there gets 502; add \
             \"{listen}\" to server.listen"
        ))
    }
}

/// The gateways of the set to which calls go, in the order of their priorities.
///
/// # Errors
/// One of them is no target.
pub(super) fn members(gateways: &Gateways, SetName(name): &SetName) -> Result<Vec<Destination>, String> {
    let enabled = gateways.members(name.as_bytes()).iter().filter(|gateway| gateway.enabled);
    enabled.map(|gateway| destination(gateway).map_err(|why| bad(name, gateway, &why))).collect()
}

fn destination(gateway: &Gateway) -> Result<Destination, String> {
    let uri = std::str::from_utf8(&gateway.uri).map_err(|_| "it is no text".to_owned())?;
    let target: Target = uri.parse()?;
    Ok(Destination { target, priority: gateway.priority, weight: gateway.weight })
}

fn bad(set: &str, gateway: &Gateway, why: &str) -> String {
    let uri = gateway.uri.escape_ascii();
    format!("a gateway of the set {set} is no target: {why}; remove it with `strowger gateway rm {set} '{uri}'`")
}

fn absence(gateways: &Gateways, SetName(name): &SetName, is_only: bool) -> String {
    let consequence = if is_only {
        "its calls get 503 with Retry-After"
    } else {
        "its calls go to the other targets, and get 503 with Retry-After where there is none"
    };
    if !gateways.members(name.as_bytes()).is_empty() {
        return format!(
            "every gateway of the set {name} is disabled: {consequence}; `strowger gateway enable {name} URI` lets one \
             serve again"
        );
    }
    let known: Vec<&str> = gateways.sets().filter_map(|(set, _)| std::str::from_utf8(set).ok()).collect();
    let remedy = match nearest(name, &known) {
        Some(meant) => format!("did you mean set:{meant}?"),
        None => format!("`strowger gateway add {name} sip:HOST` adds one"),
    };
    format!("there is no gateway in the set {name}: {consequence}; {remedy}")
}
