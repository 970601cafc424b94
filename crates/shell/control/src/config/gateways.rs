//! The sets that routes name, and the gateways that the database has in them.

use strowger_directory::{Gateway, Gateways};

use super::Config;
use super::error::nearest;
use super::values::{Destination, SetName, Target, TargetOrSet};

impl Config {
    /// What an operator should know of the sets that routes name: each that nobody is in service of, with its key.
    ///
    /// # Errors
    /// A set in which a gateway is no target; no part of such a set is used.
    pub fn look_at_sets(&self, gateways: &Gateways) -> Result<Vec<String>, String> {
        let mut warnings = Vec::new();
        for (index, route) in self.routes.iter().enumerate() {
            let is_only = route.targets.len() == 1;
            for (place, target) in route.targets.iter().enumerate() {
                let TargetOrSet::Set(name) = target else { continue };
                if members(gateways, name)?.is_empty() {
                    let key = format!("route[{index}].targets[{place}]");
                    warnings.push(format!("{key}: {}", absence(gateways, name, is_only)));
                }
            }
        }
        Ok(warnings)
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
