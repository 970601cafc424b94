//! Converts the configuration for the other parts of the server.

mod clusters;
mod route_target;
mod routing;

use std::net::{IpAddr, SocketAddr};

pub(crate) use route_target::route_target;
use strowger_directory::Directory;
use strowger_foundation::Transport;
use strowger_locate::CachePolicy;
use strowger_message::Status;
use strowger_proxy::Listeners;
use strowger_shard::{Limits, Snapshot};

use super::values::ListenAddress;
use super::{Config, Durability, KeepAlive, LocalContacts, Mode, Nat, Qop};
use crate::dns::{DnsConfig, SendableTransports};
use crate::targets::TargetSets;

impl Config {
    /// Returns the addresses to bind, without duplicates. Each wildcard is replaced by the addresses in `local` of
    /// its family.
    #[must_use]
    pub fn addresses(&self, local: &[IpAddr]) -> Vec<(Transport, SocketAddr)> {
        let mut addresses: Vec<(Transport, SocketAddr)> = Vec::new();
        let mut add = |transport: Transport, address: SocketAddr| {
            if address.port() == 0 || !addresses.contains(&(transport, address)) {
                addresses.push((transport, address));
            }
        };
        for ListenAddress { transport, address } in &self.server.listen {
            if address.ip().is_unspecified() {
                let of_family = local.iter().filter(|ip| ip.is_ipv4() == address.is_ipv4());
                of_family.for_each(|ip| add(*transport, SocketAddr::new(*ip, address.port())));
            } else {
                add(*transport, *address);
            }
        }
        addresses
    }

    /// Returns the resolver's settings.
    #[must_use]
    pub fn dns_config(&self, reach: SendableTransports) -> DnsConfig {
        let servers = self.dns.servers.iter().map(|server| server.0).collect();
        DnsConfig { servers, timeout: self.dns.timeout.0, ..DnsConfig::new(reach) }
    }

    /// Returns the lifetimes of DNS answers in the cache.
    #[must_use]
    pub fn cache_policy(&self) -> CachePolicy {
        CachePolicy { enabled: self.dns.cache, serve_stale: self.dns.serve_stale.0, ..CachePolicy::default() }
    }

    /// Builds the snapshot for the shards, with the balancers' targets in `sets`.
    #[must_use]
    pub fn snapshot(&self, listeners: Listeners, directory: Directory, sets: &TargetSets) -> Snapshot {
        let media = self.media_policy(None);
        Snapshot {
            listeners,
            domains: self.server.domains.iter().map(|domain| bytes(&domain.0)).collect(),
            auth: self.auth_policy(),
            registrar: self.registrar_policy(),
            proxy: self.proxy_policy(),
            timing: strowger_transaction::Timing { t1: self.timers.t1.0, t2: self.timers.t2.0, t4: self.timers.t4.0 },
            routes: self.routes(directory.gateways(), sets),
            fallback_route: self.fallback_route(),
            clusters: self.clusters(sets),
            siblings: self.role.as_ref().map(|role| role.siblings.clone()).unwrap_or_default(),
            trunks: self.trunks(),
            unrouted_status: Status::new(self.proxy.unrouted_status).unwrap_or(Status::NOT_FOUND),
            track_calls: !self.is_first_stage() || media.is_some(),
            record_calls: self.records_calls(),
            media,
            directory,
            limits: Limits::MAX,
            scanners: self.ban.scanners.iter().map(|scanner| bytes(scanner)).collect(),
            is_draining: false,
            has_shared_keys: self.server.key_file.is_some() || self.role.is_some(),
        }
    }

    /// Whether ended calls have a reader.
    fn records_calls(&self) -> bool {
        self.cdr.file.is_some() || !self.cdr.database.is_any() || self.trace.otlp.to.is_some()
    }

    /// Whether this is a first-stage server.
    #[must_use]
    pub fn is_first_stage(&self) -> bool {
        self.role.as_ref().is_some_and(|role| role.cluster.is_none())
    }

    fn proxy_policy(&self) -> strowger_proxy::Policy {
        let proxy = &self.proxy;
        let has_web_sockets = self.server.listen.iter().any(|listen| listen.transport.is_web_socket());
        strowger_proxy::Policy {
            ring_timeout: proxy.ring_timeout.0,
            fork_timeout: proxy.fork_timeout.0,
            failover_timeout: proxy.failover_timeout.0,
            avoid_for: proxy.avoid_for.0,
            recurse: proxy.recurse,
            mtu: usize::from(proxy.mtu),
            // Nobody but this server reaches the end of a WebSocket.
            record_route: proxy.record_route || has_web_sockets,
            stateless: proxy.stateless.into(),
            outbound: proxy.outbound,
            only_where_needed: self.is_first_stage() || !proxy.record_route,
            overload_control: self.overload.feedback,
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
            in_dialog: auth.in_dialog,
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
            local_contacts: match registrar.local_contacts {
                LocalContacts::Refuse => strowger_registrar::LocalContacts::Refuse,
                LocalContacts::Accept => strowger_registrar::LocalContacts::Accept,
            },
            keep_alive: match registrar.keepalive {
                KeepAlive::Crlf => strowger_registrar::KeepAlive::Crlf,
                KeepAlive::Options => strowger_registrar::KeepAlive::Options,
                KeepAlive::Off => strowger_registrar::KeepAlive::Off,
            },
            keep_alive_interval: registrar.keepalive_interval.0,
            gruu: registrar.gruu,
            flow_timer: registrar.flow_timer.0,
            durability: match self.store_mode() {
                // The response waits for the engine in every store mode.
                _ if self.cluster.as_ref().is_some_and(|cluster| cluster.durability() == Durability::Engine) => {
                    strowger_registrar::Durability::WriteThrough
                }
                Mode::WriteThrough => strowger_registrar::Durability::WriteThrough,
                Mode::WriteBehind => strowger_registrar::Durability::WriteBehind,
                // The other members must learn of changes.
                Mode::Memory if self.cluster.is_some() => strowger_registrar::Durability::WriteBehind,
                Mode::Memory => strowger_registrar::Durability::Memory,
            },
            service_route: registrar.service_route.iter().map(|route| bytes(&format!("<{}>", route.0))).collect(),
        }
    }
}

fn bytes(text: &str) -> Box<[u8]> {
    text.as_bytes().into()
}
