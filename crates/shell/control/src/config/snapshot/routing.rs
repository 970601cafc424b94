//! Trunks and routes in the form for the shards.

use std::sync::Arc;

use strowger_auth::Network;
use strowger_directory::Gateways;
use strowger_message::{Status, Uri};
use strowger_proxy::Changes;
use strowger_shard::{RouteMatch, RouteTarget};
use strowger_trunk::{Account, CountryRule, Credentials, Secret};

use super::bytes;
use crate::config::gateways::members;
use crate::config::snapshot::route_target::{placed, target};
use crate::config::values::{Destination, Origin, TargetOrSet};
use crate::config::{Action, Config, Match, Rewrite, Route, Stateless, Trunk};
use crate::targets::TargetSets;

impl Config {
    pub(super) fn trunks(&self) -> Vec<Arc<strowger_trunk::Trunk>> {
        self.trunks.iter().map(|trunk| Arc::new(self::trunk(trunk))).collect()
    }

    /// Returns the route to the server that runs beside this one.
    pub(super) fn fallback_route(&self) -> Option<strowger_shard::Route> {
        let proxy = self.kamailio.as_ref()?.proxy.as_ref()?;
        let action = strowger_shard::Action::proxy(vec![placed(proxy, 0, 1)], self.proxy.stateless.into());
        Some(strowger_shard::Route::new(RouteMatch::default(), action))
    }

    /// Returns the routes, with the gateways of their sets and the targets of their balancers.
    #[must_use]
    pub fn routes(&self, gateways: &Gateways, sets: &TargetSets) -> Vec<strowger_shard::Route> {
        self.routes.iter().map(|route| self.route(route, gateways, sets)).collect()
    }

    fn route(&self, route: &Route, gateways: &Gateways, sets: &TargetSets) -> strowger_shard::Route {
        strowger_shard::Route {
            matches: self.matches(&route.matches),
            action: self.action(route, gateways, sets),
            rewrite: route.rewrite.as_ref().map(rewrite),
            changes: changes(route),
            ring_timeout: route.timeout.map(|timeout| timeout.0),
            class: route.class.map(Into::into),
            budget: Arc::default(),
        }
    }

    fn action(&self, route: &Route, gateways: &Gateways, sets: &TargetSets) -> strowger_shard::Action {
        if let Some(name) = &route.balance {
            let Some(set) = sets.of(name) else { return strowger_shard::Action::NoTarget };
            return strowger_shard::Action::balance(
                Arc::clone(set.set()),
                set.next_hops().to_vec(),
                route.stateless.into(),
            );
        }
        let own = targets(&route.targets, gateways);
        if own.is_empty() && !route.targets.is_empty() {
            return strowger_shard::Action::OutOfService;
        }
        match route.action {
            Action::Proxy => {
                let is_named = |trunk: &Trunk| Some(&trunk.name) == route.trunk.as_ref();
                let trunk = self.trunks.iter().find(|trunk| is_named(trunk));
                let targets = trunk.map_or(own, |trunk| trunk.targets.iter().map(target).collect());
                let stateless = route.stateless.into();
                let trunk = trunk.map(|trunk| strowger_trunk::Trunk::id_of(&trunk.name));
                strowger_shard::Action::Proxy { targets, stateless, trunk, balance: None }
            }
            Action::Redirect => strowger_shard::Action::Redirect { targets: own },
            Action::Reject => {
                let status = route.status.and_then(Status::new).unwrap_or(Status::FORBIDDEN);
                strowger_shard::Action::Reject { status, reason: route.reason.as_deref().map(Into::into) }
            }
        }
    }

    fn matches(&self, matches: &Match) -> RouteMatch {
        RouteMatch {
            domain: bytes(&matches.domain.0),
            methods: matches.method.0.iter().map(|method| bytes(&method.0)).collect(),
            prefixes: matches.prefix.0.iter().map(|prefix| bytes(&prefix.0)).collect(),
            sources: matches.source.0.iter().flat_map(|origin| self.networks(origin)).collect(),
        }
    }

    fn networks(&self, origin: &Origin) -> Vec<Network> {
        match origin {
            Origin::Network(source) => vec![source.0],
            Origin::Trunk(name) => {
                let trunk = self.trunks.iter().find(|trunk| trunk.name == *name);
                trunk.map_or_else(Vec::new, |trunk| trunk.sources.iter().map(|source| source.0).collect())
            }
        }
    }
}

fn trunk(trunk: &Trunk) -> strowger_trunk::Trunk {
    let credentials = trunk.username.as_ref().zip(trunk.password.as_ref()).map(|(username, password)| Credentials {
        username: bytes(username),
        password: Secret::new(password.0.as_bytes()),
        realm: trunk.realm.as_ref().map(|realm| bytes(&realm.0)),
    });
    strowger_trunk::Trunk {
        name: trunk.name.as_str().into(),
        credentials,
        sources: trunk.sources.iter().map(|source| source.0).collect(),
        domains: trunk.certificate_domains.iter().map(|domain| domain.0.as_str().into()).collect(),
        account: if trunk.register { account(trunk) } else { None },
    }
}

fn account(trunk: &Trunk) -> Option<Account> {
    let (from, registrar) = (trunk.from()?, trunk.registrar()?);
    let user = match Uri::parse(from.as_bytes()) {
        Some(Uri::Sip(uri)) => uri.user.unwrap_or_default().into(),
        _ => Box::default(),
    };
    Some(Account {
        contact_user: trunk.contact.as_ref().map_or(user, |contact| bytes(&contact.0)),
        from: bytes(&from),
        //= rfc3261#10.2:no-userinfo
        registrar: bytes(&registrar.without_user()),
        next_hop: registrar.next_hop.clone(),
        expires: trunk.expires.0,
    })
}

/// Returns all targets, each URI once. A set with an invalid gateway contributes none.
fn targets(listed: &[TargetOrSet], gateways: &Gateways) -> Vec<RouteTarget> {
    let mut all: Vec<RouteTarget> = Vec::new();
    let mut add = |destination: &Destination| {
        let new = target(destination);
        if all.iter().all(|known| known.uri != new.uri) {
            all.push(new);
        }
    };
    for entry in listed {
        match entry {
            TargetOrSet::Target(destination) => add(destination),
            TargetOrSet::Set(name) => members(gateways, name).unwrap_or_default().iter().for_each(&mut add),
        }
    }
    all
}

fn rewrite(rewrite: &Rewrite) -> strowger_trunk::NumberRewrite {
    strowger_trunk::NumberRewrite {
        strip: rewrite.strip,
        prefix: bytes(&rewrite.prefix.0),
        e164: rewrite.e164.as_ref().map(|rule| CountryRule {
            country: bytes(&rule.country.0),
            national_prefix: bytes(&rule.national_prefix.0),
            international_prefix: bytes(&rule.international_prefix.0),
            plus: rule.plus,
        }),
    }
}

impl From<Stateless> for strowger_proxy::Stateless {
    fn from(stateless: Stateless) -> Self {
        match stateless {
            Stateless::Never => Self::Never,
            Stateless::WhenPossible => Self::WhenPossible,
            Stateless::Always => Self::Always,
        }
    }
}

fn changes(route: &Route) -> Option<Arc<Changes>> {
    if route.add_headers.is_empty() && route.remove_headers.is_empty() {
        return None;
    }
    Some(Arc::new(Changes {
        add: route.add_headers.iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
        remove: route.remove_headers.iter().map(|name| bytes(name)).collect(),
        body: None,
    }))
}
