//! Gateways that routes lead to, for the server and `strowger check`.

use serde_json::{Value, json};
use strowger_control::config::Config;
use strowger_control::config::values::{StoreUrl, TargetOrSet, TargetSource};
use strowger_control::targets::TargetSets;
use strowger_directory::{Directory, Gateway, Gateways};
use strowger_kamailio::{Table, Tables};
use strowger_shard::Route;

use crate::kamailio;

/// Returns the gateways in the database, which is not created if missing, and those of a followed server.
pub(crate) fn stored(config: &Config) -> Result<Gateways, String> {
    let mut gateways = match config.store_url() {
        StoreUrl::Memory => Gateways::default(),
        StoreUrl::Sqlite(path) => strowger_store::gateways_at(&path).map_err(|error| error.to_string())?,
    };
    let Some(follow) = kamailio::follow_config(config).filter(|follow| follow.tables.contains(&Table::Dispatcher))
    else {
        return Ok(gateways);
    };
    let mut tables = Tables::new(&follow.url, follow.flavor, follow.timeout);
    let (sets, _) = tables.sets(&follow.set_prefix).map_err(|error| error.to_string())?;
    for set in sets {
        if gateways.members(set.name.as_bytes()).is_empty() {
            let members = set.members.into_iter().map(|member| member.gateway).collect();
            gateways.put(set.name.into_bytes().into(), members);
        }
    }
    Ok(gateways)
}

/// Whether a route or a balancer names a set.
pub(crate) fn are_named(config: &Config) -> bool {
    sets(config).next().is_some()
}

/// Returns the sets named by routes and balancers.
pub(crate) fn sets(config: &Config) -> impl Iterator<Item = &str> {
    let of_routes = config.routes.iter().flat_map(|route| &route.targets).filter_map(|target| match target {
        TargetOrSet::Set(name) => Some(&*name.0),
        TargetOrSet::Target(_) => None,
    });
    let of_balancers =
        config.balancers.iter().flat_map(|balancer| &balancer.targets).filter_map(|source| match source {
            TargetSource::Set(name) => Some(&*name.0),
            _ => None,
        });
    of_routes.chain(of_balancers)
}

/// Logs sets that cannot take calls.
pub(crate) fn report(config: &Config, directory: &Directory) {
    match config.route_warnings(directory.gateways()) {
        Ok(warnings) => warnings.iter().for_each(|warning| tracing::warn!("{warning}")),
        Err(why) => tracing::error!("{why}; until then its calls get 500"),
    }
}

/// Logs changed sets.
pub(crate) fn report_changed(config: &Config, directory: &Directory, changed: &[Box<[u8]>]) {
    for set in changed {
        tracing::info!("gateways: {}", set_shown(set, directory.gateways().members(set)));
    }
    report(config, directory);
}

/// Returns the routes with the current gateways. Returns `None` if no set has changed, or if one is invalid: then all
/// routes stay unchanged and the log says why.
pub(crate) fn routes(
    config: &Config,
    directory: &Directory,
    changed: &[Box<[u8]>],
    sets: &TargetSets,
) -> Option<Vec<Route>> {
    if changed.is_empty() {
        return None;
    }
    match config.route_warnings(directory.gateways()) {
        Ok(_) => Some(config.routes(directory.gateways(), sets)),
        Err(why) => {
            tracing::error!("gateways are unchanged: {why}");
            None
        }
    }
}

/// Formats one line per set.
pub(crate) fn shown(gateways: &Gateways) -> String {
    let lines: Vec<String> = gateways.sets().map(|(set, members)| set_shown(set, members)).collect();
    if lines.is_empty() { "none".to_owned() } else { lines.join("\n") }
}

fn set_shown(set: &[u8], members: &[Gateway]) -> String {
    let enabled = members.iter().filter(|gateway| gateway.enabled);
    let mut parts: Vec<String> = enabled.map(gateway_shown).collect();
    let disabled = members.iter().filter(|gateway| !gateway.enabled).count();
    if disabled > 0 {
        parts.push(format!("{disabled} disabled"));
    }
    if parts.is_empty() {
        parts.push("none left".to_owned());
    }
    format!("{}: {}", set.escape_ascii(), parts.join(", "))
}

fn gateway_shown(Gateway { uri, priority, weight, .. }: &Gateway) -> String {
    format!("{} (priority {priority}, weight {weight})", uri.escape_ascii())
}

/// Returns the gateways by set, in order of priority.
pub(crate) fn in_json(gateways: &Gateways) -> Value {
    let member = |gateway: &Gateway| {
        json!({
            "uri": String::from_utf8_lossy(&gateway.uri),
            "priority": gateway.priority,
            "weight": gateway.weight,
            "capacity": gateway.capacity,
            "enabled": gateway.enabled,
        })
    };
    let set = |(name, members): (&[u8], &[Gateway])| {
        (String::from_utf8_lossy(name).into_owned(), members.iter().map(member).collect())
    };
    Value::Object(gateways.sets().map(set).collect())
}

#[cfg(test)]
mod tests {
    use strowger_directory::DirectoryChange;

    use super::*;

    fn directory(uri: &str) -> Directory {
        let gateway = Gateway { uri: uri.as_bytes().into(), priority: 0, weight: 1, capacity: None, enabled: true };
        Directory::empty(1)
            .with_changes([DirectoryChange::PutGateways { set: (*b"pstn").into(), gateways: vec![gateway] }])
    }

    #[test]
    fn routes_follow_their_sets_and_stay_when_one_is_invalid() {
        let config = Config::parse("[[route]]\ntargets = [\"set:pstn\"]").expect("sound");
        let changed = [(*b"pstn").into()];
        let routes = |uri: &str, changed: &[_]| routes(&config, &directory(uri), changed, &TargetSets::default());
        assert!(routes("sip:192.0.2.1", &[]).is_none(), "nothing is new");
        assert_eq!(routes("sip:192.0.2.1", &changed).map(|routes| routes.len()), Some(1));
        assert!(routes("sip:192.0.2.1;transport=sctp", &changed).is_none());
    }
}
