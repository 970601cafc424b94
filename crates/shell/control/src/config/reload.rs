//! Which keys a reload may change.

/// Whether a running server applies a change of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// It does.
    Live,
    /// It refuses the new configuration as a whole, for this reason.
    Restart(&'static str),
}

use Reload::{Live, Restart};

const SHARED_TABLE: Reload = Restart("the other members know this server by it");
const SHARDS: Reload = Restart("registrations and calls are divided by the number of workers");

/// Each key, and each list of tables with all its keys. The reference in docs/operating/configuration.md marks the
/// same keys with **restart**.
const KEYS: &[(&str, Reload)] = &[
    ("server.listen", Live),
    ("server.domains", Live),
    ("server.data", Restart("the files in the folder are open")),
    ("server.key_file", Restart("calls and challenges in progress are signed with the key")),
    ("server.workers", SHARDS),
    ("server.min_workers", Live),
    ("server.affinity", Live),
    ("server.steering", Live),
    ("server.segmentation", Live),
    ("server.spin", Live),
    ("server.timing", Restart("the sockets and the workers measure from their start, or not at all")),
    ("tcp.connections", Live),
    ("tcp.per_source", Live),
    ("tcp.idle", Live),
    ("tcp.message_timeout", Live),
    ("tcp.connect_timeout", Live),
    ("tcp.user_timeout", Live),
    ("tcp.proxy_protocol_from", Live),
    ("tls.certificates", Live),
    ("tls.client_certificates", Live),
    ("tls.ca", Live),
    ("tls.crl", Live),
    ("tls.connections", Live),
    ("tls.min_version", Live),
    ("tls.ciphers", Live),
    ("websocket.origins", Live),
    ("websocket.connections", Live),
    ("websocket.ping", Live),
    ("dns.servers", Live),
    ("dns.timeout", Live),
    ("dns.cache", Live),
    ("dns.serve_stale", Live),
    ("store.url", Restart("registrations are stored there")),
    ("store.shared_users", Restart("the copy of the users belongs to that database")),
    ("store.mode", Restart("registrations in progress are promised what it says")),
    ("cluster.store", SHARED_TABLE),
    ("cluster.peers", Live),
    ("cluster.listen", SHARED_TABLE),
    ("cluster.member", SHARED_TABLE),
    ("cluster.address", SHARED_TABLE),
    ("cluster.name", SHARED_TABLE),
    ("cluster.replicas", SHARED_TABLE),
    ("cluster.durability", Restart("registrations in progress are promised what it says")),
    ("kamailio.database", Live),
    ("kamailio.flavor", Live),
    ("kamailio.follow", Live),
    ("kamailio.proxy", Live),
    ("kamailio.domain", Live),
    ("kamailio.set_prefix", Live),
    ("kamailio.any_version", Live),
    // Read by `strowger watch`, not by the server.
    ("watch", Live),
    ("registrar.expires.default", Live),
    ("registrar.expires.min", Live),
    ("registrar.expires.max", Live),
    ("registrar.max_contacts", Live),
    ("registrar.local_contacts", Live),
    ("registrar.nat", Live),
    ("registrar.keepalive", Live),
    ("registrar.keepalive_interval", Live),
    ("registrar.gruu", Live),
    ("registrar.flow_timer", Live),
    ("registrar.service_route", Live),
    ("auth.realm", Live),
    ("auth.algorithms", Live),
    ("auth.require", Live),
    ("auth.in_dialog", Live),
    ("auth.trusted", Live),
    ("auth.nonce_age", Live),
    ("auth.qop", Live),
    ("proxy.ring_timeout", Live),
    ("proxy.fork_timeout", Live),
    ("proxy.failover_timeout", Live),
    ("proxy.avoid_for", Live),
    ("proxy.recurse", Live),
    ("proxy.mtu", Live),
    ("proxy.record_route", Live),
    ("proxy.stateless", Live),
    ("proxy.outbound", Live),
    ("proxy.unrouted_status", Live),
    ("overload.control", Restart("the queues for new work are opened with the sockets")),
    ("overload.feedback", Live),
    ("media.engines", Live),
    ("media.when", Live),
    ("media.on_failure", Live),
    ("media.timeout", Live),
    ("media.probe_interval", Live),
    ("timers.t1", Live),
    ("timers.t2", Live),
    ("timers.t4", Live),
    ("cdr.file", Live),
    ("cdr.database", Live),
    ("control.socket", Live),
    ("admin", Live),
    ("ban", Live),
    ("trace", Live),
    ("log.level", Live),
    ("log.format", Live),
    ("trunk", Live),
    ("balancer", Live),
    ("first_stage", Live),
    ("second_stage", Live),
    ("route", Live),
];

/// Returns whether a reload may change `key`, such as `tcp.idle` or `trunk.pstn.expires`; `None` for an unknown key.
#[must_use]
pub fn reload_of(key: &str) -> Option<Reload> {
    let is_it = |known: &str| {
        let rest = key.strip_prefix(known);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    KEYS.iter().find(|(known, _)| is_it(known)).map(|(_, reload)| *reload)
}
