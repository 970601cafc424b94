//! Gateway sets named by routes, and their gateways in the database.

use std::net::IpAddr;

use strowger_directory::{Gateway, Gateways};
use strowger_trunk::NextHop;

use super::error::nearest;
use super::values::{Destination, SetName, Target, TargetOrSet, WeightedTarget};
use super::{Action, Config, Route};

impl Config {
    /// Returns warnings about routes and trunks, with their keys: sets without a gateway in service, and targets that
    /// no listener reaches.
    ///
    /// # Errors
    /// A set has a gateway that is not a valid target; no part of such a set is used.
    pub fn route_warnings(&self, gateways: &Gateways) -> Result<Vec<String>, String> {
        let mut warnings = Vec::new();
        for (index, route) in self.routes.iter().enumerate() {
            let is_only = route.targets.len() == 1;
            let is_reached = self.is_reached(route, gateways)?;
            for (place, target) in route.targets.iter().enumerate() {
                let key = format!("route[{index}].targets[{place}]");
                let name = match target {
                    TargetOrSet::Set(name) => name,
                    TargetOrSet::Target(to) => {
                        let why = self.unreachable(&to.target).filter(|_| route.action == Action::Proxy);
                        warnings.extend(why.map(|why| format!("{key}: {}", why.message(is_reached))));
                        continue;
                    }
                };
                let members = members(gateways, name)?;
                if members.is_empty() {
                    warnings.push(format!("{key}: {}", absence(gateways, name, is_only)));
                }
                let unreached = members.iter().filter(|_| route.action == Action::Proxy);
                let unreached = unreached.filter_map(|member| self.unreachable(&member.target));
                warnings.extend(unreached.map(|why| format!("{key}: gateway {}", why.message(is_reached))));
            }
        }
        for (index, trunk) in self.trunks.iter().enumerate() {
            let is_reached = trunk.targets.iter().any(|to| self.unreachable(&to.target).is_none());
            for (place, to) in trunk.targets.iter().enumerate() {
                let key = format!("trunk[{index}].targets[{place}]");
                let why = self.unreachable(&to.target);
                warnings.extend(why.map(|why| format!("{key}: {}", why.message(is_reached))));
            }
        }
        Ok(warnings)
    }

    /// Returns whether a listener reaches one of a route's targets.
    fn is_reached(&self, route: &Route, gateways: &Gateways) -> Result<bool, String> {
        for target in &route.targets {
            let is_reached = match target {
                TargetOrSet::Target(to) => self.unreachable(&to.target).is_none(),
                TargetOrSet::Set(name) => {
                    members(gateways, name)?.iter().any(|member| self.unreachable(&member.target).is_none())
                }
            };
            if is_reached {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns why no listener reaches a target; `None` if one does, or if only DNS can tell.
    #[must_use]
    pub fn unreachable(&self, target: &Target) -> Option<UnreachableTarget> {
        let (transport, ip) = match &target.next_hop {
            NextHop::Address(hop) => (hop.transport, Some(hop.address.ip())),
            // Without a transport in the URI, DNS records decide.
            NextHop::Name(_) => (target.transport?, None),
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
        Some(UnreachableTarget {
            why: format!("{target} needs {name}{family}, but server.listen has no such listener"),
            listen,
        })
    }
}

/// A target that no listener reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreachableTarget {
    why: String,
    listen: String,
}

impl UnreachableTarget {
    /// Returns the reason, the consequence with or without other reachable targets in the route, and what to add.
    #[must_use]
    pub fn message(&self, are_others_reached: bool) -> String {
        let consequence = if are_others_reached { "it is never tried" } else { "requests to it get 502" };
        self.with(consequence)
    }

    /// Like [`message`](Self::message), for when the other targets are unknown.
    #[must_use]
    pub fn message_alone(&self) -> String {
        self.with("it is never tried, and requests without another target get 502")
    }

    fn with(&self, consequence: &str) -> String {
        let Self { why, listen } = self;
        format!("{why}: {consequence}; add \"{listen}\" to server.listen")
    }
}

/// Returns the gateways of a set that take calls, in order of priority.
///
/// # Errors
/// A gateway is not a valid target.
pub(super) fn members(gateways: &Gateways, SetName(name): &SetName) -> Result<Vec<Destination>, String> {
    let enabled = gateways.members(name.as_bytes()).iter().filter(|gateway| gateway.enabled);
    enabled.map(|gateway| destination(gateway).map_err(|why| bad(name, gateway, &why))).collect()
}

/// Converts a gateway to a balancer's target.
///
/// # Errors
/// It is not a valid target.
pub(crate) fn share_of(SetName(name): &SetName, gateway: &Gateway) -> Result<WeightedTarget, String> {
    let Destination { target, priority, weight } = destination(gateway).map_err(|why| bad(name, gateway, &why))?;
    Ok(WeightedTarget { target, priority, weight, capacity: gateway.capacity })
}

fn destination(gateway: &Gateway) -> Result<Destination, String> {
    let uri = std::str::from_utf8(&gateway.uri).map_err(|_| "it is not text".to_owned())?;
    let target: Target = uri.parse()?;
    Ok(Destination { target, priority: gateway.priority, weight: gateway.weight })
}

fn bad(set: &str, gateway: &Gateway, why: &str) -> String {
    let uri = gateway.uri.escape_ascii();
    format!(
        "a gateway of the set {set} is not a valid target: {why}; remove it with `strowger gateway rm {set} '{uri}'`"
    )
}

fn absence(gateways: &Gateways, SetName(name): &SetName, is_only: bool) -> String {
    let consequence = if is_only {
        "its calls get 500 with Retry-After"
    } else {
        "its calls go to the other targets, or get 500 with Retry-After if there are none"
    };
    if !gateways.members(name.as_bytes()).is_empty() {
        return format!(
            "every gateway of the set {name} is disabled: {consequence}; `strowger gateway enable {name} URI` enables \
             one"
        );
    }
    let known: Vec<&str> = gateways.sets().filter_map(|(set, _)| std::str::from_utf8(set).ok()).collect();
    let remedy = match nearest(name, &known) {
        Some(meant) => format!("did you mean set:{meant}?"),
        None => format!("`strowger gateway add {name} sip:HOST` adds one"),
    };
    format!("the set {name} has no gateways: {consequence}; {remedy}")
}
