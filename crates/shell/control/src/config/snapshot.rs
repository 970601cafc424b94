//! From what the operator wrote to what shards are told.

use std::net::{IpAddr, SocketAddr};

use strowger_directory::Directory;
use strowger_message::Status;
use strowger_proxy::RouteTarget;
use strowger_shard::{Listener, Snapshot};

use super::values::{Listen, Target};
use super::{Action, Config, KeepAlive, Nat, Qop, Route, Stateless};

impl Config {
    /// The addresses to bind, each once: every wildcard is replaced by those of `local` that are of its family.
    #[must_use]
    pub fn addresses(&self, local: &[IpAddr]) -> Vec<SocketAddr> {
        let mut addresses: Vec<SocketAddr> = Vec::new();
        let mut add = |address: SocketAddr| {
            if address.port() == 0 || !addresses.contains(&address) {
                addresses.push(address);
            }
        };
        for Listen(address) in &self.server.listen {
            if address.ip().is_unspecified() {
                let of_family = local.iter().filter(|ip| ip.is_ipv4() == address.is_ipv4());
                of_family.for_each(|ip| add(SocketAddr::new(*ip, address.port())));
            } else {
                add(*address);
            }
        }
        addresses
    }

    /// What shards are told.
    #[must_use]
    pub fn snapshot(&self, listeners: Vec<Listener>, directory: Directory) -> Snapshot {
        Snapshot {
            listeners,
            domains: self.server.domains.iter().map(|domain| bytes(&domain.0)).collect(),
            auth: self.auth_policy(),
            registrar: self.registrar_policy(),
            proxy: strowger_proxy::Policy {
                ring_timeout: self.proxy.ring_timeout.0,
                record_route: self.proxy.record_route,
            },
            timing: strowger_transaction::Timing { t1: self.timers.t1.0, t2: self.timers.t2.0, t4: self.timers.t4.0 },
            routes: self.routes.iter().map(route).collect(),
            directory,
            draining: false,
        }
    }

    fn auth_policy(&self) -> strowger_auth::Policy {
        let auth = &self.auth;
        strowger_auth::Policy {
            realm: auth.realm.as_ref().map(|realm| bytes(&realm.0)),
            algorithms: auth.algorithms.iter().map(|algorithm| algorithm.0).collect(),
            qop: match auth.qop {
                Qop::Auth => strowger_auth::Qop::Auth,
                Qop::AuthOrAuthInt => strowger_auth::Qop::AuthOrAuthInt,
            },
            require: auth.require.iter().map(|method| bytes(&method.0)).collect(),
            nonce_age: auth.nonce_age.0,
            trusted: auth.trusted.iter().map(|source| source.0).collect(),
        }
    }

    fn registrar_policy(&self) -> strowger_registrar::Policy {
        let registrar = &self.registrar;
        strowger_registrar::Policy {
            expires_default: registrar.expires.default.0,
            expires_min: registrar.expires.min.0,
            expires_max: registrar.expires.max.0,
            max_contacts: usize::from(registrar.max_contacts),
            nat: match registrar.nat {
                Nat::Auto => strowger_registrar::Nat::Auto,
                Nat::Always => strowger_registrar::Nat::Always,
                Nat::Never => strowger_registrar::Nat::Never,
            },
            keep_alive: match registrar.keepalive {
                KeepAlive::Crlf => strowger_registrar::KeepAlive::Crlf,
                KeepAlive::Options => strowger_registrar::KeepAlive::Options,
                KeepAlive::Off => strowger_registrar::KeepAlive::Off,
            },
            keep_alive_interval: registrar.keepalive_interval.0,
        }
    }
}

fn route(route: &Route) -> strowger_proxy::Route {
    let targets = route.targets.iter().map(target).collect();
    let action = match route.action {
        Action::Proxy => {
            let stateless = match route.stateless {
                Stateless::Never => strowger_proxy::Stateless::Never,
                Stateless::WhenPossible => strowger_proxy::Stateless::WhenPossible,
                Stateless::Always => strowger_proxy::Stateless::Always,
            };
            strowger_proxy::Action::Proxy { targets, stateless }
        }
        Action::Redirect => strowger_proxy::Action::Redirect { targets },
        Action::Reject => {
            let status = route.status.and_then(Status::new).unwrap_or(Status::FORBIDDEN);
            strowger_proxy::Action::Reject { status }
        }
    };
    let methods = route.matches.method.0.iter().map(|method| bytes(&method.0)).collect();
    strowger_proxy::Route { domain: bytes(&route.matches.domain.0), methods, action }
}

fn target(target: &Target) -> RouteTarget {
    RouteTarget { uri: bytes(&target.uri), address: target.address }
}

fn bytes(text: &str) -> Box<[u8]> {
    text.as_bytes().into()
}
