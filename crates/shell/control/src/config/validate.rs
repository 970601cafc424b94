//! Constraints between keys.

mod balancing;
mod cluster;
mod routing;
mod stages;
mod trace;
mod watch;

use std::collections::BTreeSet;
use std::time::Duration;

use strowger_media::MAX_ENGINES;
use strowger_wire::websocket::AllowedOrigins;

use super::error::Fault;
use super::values::{Affinity, Domain, Spin, StoreUrl};
use super::{ClientCertificates, Config, MAX_WORKERS, MediaWhen, Span, WebSocket};

/// Maximum number of alternative database servers.
const MAX_DATABASES: usize = 16;
const MAX_SPAN: Duration = Duration::from_secs(30 * 86_400);
/// Maximum core number.
const MAX_CORE: u16 = 1023;
/// Maximum number of certificates.
const MAX_CERTIFICATES: usize = 256;
/// Maximum number of listeners, domains, service routes and name servers.
const MAX_LISTENERS: usize = 256;
const MAX_DOMAINS: usize = 10_000;
const MAX_SERVICE_ROUTES: usize = 8;
const MAX_DNS_SERVERS: usize = 8;
/// Maximum number of addresses and networks that may read the metrics.
const MAX_METRICS_SOURCES: usize = 64;
/// Maximum time for an answer of a media engine: the caller waits.
const MAX_MEDIA_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of connections.
const MAX_CONNECTIONS: u32 = 1_000_000;
/// Limits of the request size that requires TCP. Below them no request fits; above them no datagram is possible.
const MTU: std::ops::RangeInclusive<u16> = 500..=65_000;
/// Permitted statuses for requests that match no route.
const UNROUTED_STATUSES: [u16; 3] = [403, 404, 603];
/// Maximum number of balancers in front.
const MAX_PROXIES: usize = 64;
/// Maximum number of origins of web pages.
const MAX_ORIGINS: usize = 1024;
/// Maximum number of contacts per address, equal to the maximum number of branches per request.
const MAX_CONTACTS: u16 = 32;
/// Maximum number of failures before a ban.
const MAX_FAILURES: u32 = 1000;
/// Maximum number of networks that are never banned, and of scanners.
const MAX_NEVER_BANNED: usize = 1024;
const MAX_SCANNERS: usize = 64;
/// Maximum length of the beginning of a User-Agent.
const MAX_SCANNER: usize = 64;

impl Config {
    /// Returns the first fault of each section, trunk and route, and those of each balancer.
    pub(crate) fn validate(&self) -> Vec<Fault> {
        let sections = [
            self.validate_server(),
            self.validate_workers(),
            self.validate_store(),
            self.validate_cluster(),
            self.validate_watch(),
            self.validate_registrar(),
            self.validate_auth(),
            self.validate_ban(),
            self.validate_proxy(),
            self.validate_timers(),
            self.validate_streams(),
            self.validate_tls(),
            self.validate_websocket(),
            self.validate_dns(),
            self.validate_admin(),
            self.validate_media(),
            self.validate_trace(),
        ];
        let sections = sections.into_iter().filter_map(Result::err);
        let lists = [self.validate_stages(), self.validate_balancers(), self.validate_routing()];
        sections.chain(lists.into_iter().flatten()).collect()
    }

    fn validate_ban(&self) -> Result<(), Fault> {
        let ban = &self.ban;
        if !(1..=MAX_FAILURES).contains(&ban.failures) {
            let message = format!("{} is not from 1 to {MAX_FAILURES}; choose a value in this range", ban.failures);
            return Err(Fault::new("ban.failures", message));
        }
        let spans = [("within", ban.within), ("duration", ban.duration), ("max_duration", ban.max_duration)];
        for (key, span) in spans {
            within(&format!("ban.{key}"), span, Duration::from_secs(1))?;
        }
        if ban.duration > ban.max_duration {
            let message = format!("{} is more than max_duration ({}); lower it", ban.duration, ban.max_duration);
            return Err(Fault::new("ban.duration", message));
        }
        if ban.allow.len() > MAX_NEVER_BANNED {
            let message = format!("{} entries are more than {MAX_NEVER_BANNED}; join them", ban.allow.len());
            return Err(Fault::new("ban.allow", message));
        }
        if ban.scanners.len() > MAX_SCANNERS {
            let message = format!("{} entries are more than {MAX_SCANNERS}; remove some", ban.scanners.len());
            return Err(Fault::new("ban.scanners", message));
        }
        let is_unfit = |scanner: &String| !(1..=MAX_SCANNER).contains(&scanner.len());
        if let Some(place) = ban.scanners.iter().position(is_unfit) {
            let message = format!("it is not 1 to {MAX_SCANNER} characters long; write how a User-Agent begins");
            return Err(Fault::new(format!("ban.scanners[{place}]"), message));
        }
        Ok(())
    }

    fn validate_server(&self) -> Result<(), Fault> {
        let server = &self.server;
        if server.listen.is_empty() {
            return Err(Fault::new(
                "server.listen",
                "the list is empty; give an address, such as \"udp:0.0.0.0:5060\"",
            ));
        }
        count("server.listen", server.listen.len(), MAX_LISTENERS)?;
        count("server.domains", server.domains.len(), MAX_DOMAINS)?;
        let mut seen = BTreeSet::new();
        for (index, listen) in server.listen.iter().enumerate() {
            // Port 0 asks for any free port, so it may appear twice.
            if listen.address.port() != 0 && !seen.insert(listen) {
                let key = format!("server.listen[{index}]");
                return Err(Fault::new(key, format!("{listen} is listed twice; remove one")));
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
            return Err(Fault::new("server.data", "the path is empty; give a folder, such as \"data\""));
        }
        Ok(())
    }

    fn validate_workers(&self) -> Result<(), Fault> {
        let server = &self.server;
        if let Spin::UpTo(time) = server.spin
            && time > Spin::MOST
        {
            let message = format!("{time} is more than {}; lower it, or write 0s for never, or always", Spin::MOST);
            return Err(Fault::new("server.spin", message));
        }
        if let (Some(least), Some(workers)) = (server.min_workers, server.workers)
            && least > workers
        {
            let message = format!("{least} is more than server.workers, {workers}; lower it");
            return Err(Fault::new("server.min_workers", message));
        }
        if let Affinity::Cores(cores) = &server.affinity {
            for (index, core) in cores.iter().enumerate() {
                if *core > MAX_CORE || cores.iter().take(index).any(|other| other == core) {
                    let message =
                        format!("{core} is listed twice or above {MAX_CORE}; correct the list, or write \"auto\"");
                    return Err(Fault::new(format!("server.affinity[{index}]"), message));
                }
            }
        }
        if let Some(least) = server.min_workers
            && !(1..=MAX_WORKERS).contains(&least)
        {
            let message = format!("{least} is not from 1 to {MAX_WORKERS}; omit it for 1");
            return Err(Fault::new("server.min_workers", message));
        }
        match server.workers {
            Some(workers) if !(1..=MAX_WORKERS).contains(&workers) => Err(Fault::new(
                "server.workers",
                format!("{workers} is not from 1 to {MAX_WORKERS}; omit it for one per core"),
            )),
            _ => Ok(()),
        }
    }

    fn validate_store(&self) -> Result<(), Fault> {
        count("store.shared_users", self.store.shared_users.0.len(), MAX_DATABASES)?;
        count("cdr.database", self.cdr.database.0.len(), MAX_DATABASES)?;
        if !self.store.shared_users.is_any() && self.store_url() == StoreUrl::Memory {
            let message = "the database is copied to a file, but store.url is memory:; give a file there, such as \
                           sqlite:data/strowger.db";
            return Err(Fault::new("store.shared_users", message));
        }
        match (self.store.mode, self.store_url()) {
            (Some(mode), StoreUrl::Memory) if mode.is_durable() => Err(Fault::new(
                "store.mode",
                format!(
                    "{} needs a file, but store.url is memory:; give one there, such as sqlite:data/strowger.db, or write \
                     mode = \"memory\"",
                    mode.as_str()
                ),
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
            whole_seconds(&key, span)?;
        }
        if expires.min > expires.max {
            let message = format!("{} is longer than registrar.expires.max, {}; lower it", expires.min, expires.max);
            return Err(Fault::new("registrar.expires.min", message));
        }
        if expires.default < expires.min || expires.default > expires.max {
            let (min, max) = (expires.min, expires.max);
            let message =
                format!("{} is not from {min} to {max} (min and max); choose a value in this range", expires.default);
            return Err(Fault::new("registrar.expires.default", message));
        }
        if !(1..=MAX_CONTACTS).contains(&registrar.max_contacts) {
            let message =
                format!("{} is not from 1 to {MAX_CONTACTS}; choose a value in this range", registrar.max_contacts);
            return Err(Fault::new("registrar.max_contacts", message));
        }
        within("registrar.keepalive_interval", registrar.keepalive_interval, Duration::from_secs(1))?;
        within("registrar.flow_timer", registrar.flow_timer, Duration::from_secs(10))?;
        whole_seconds("registrar.flow_timer", registrar.flow_timer)?;
        //= rfc5626#5.4:grace
        if registrar.flow_timer >= self.tcp.idle && !self.tcp.idle.0.is_zero() {
            let message = format!(
                "{} is not shorter than tcp.idle, {}, so silent connections would end first; lower it",
                registrar.flow_timer, self.tcp.idle
            );
            return Err(Fault::new("registrar.flow_timer", message));
        }
        count("registrar.service_route", registrar.service_route.len(), MAX_SERVICE_ROUTES)
    }

    fn validate_auth(&self) -> Result<(), Fault> {
        let auth = &self.auth;
        if auth.algorithms.is_empty() {
            let message =
                "the list is empty; give an algorithm, such as \"MD5\" (to require no passwords, write require = [])";
            return Err(Fault::new("auth.algorithms", message));
        }
        for (index, algorithm) in auth.algorithms.iter().enumerate() {
            //= rfc7616#3.7:other-algorithm
            if auth.algorithms.iter().take(index).any(|earlier| earlier == algorithm) {
                let key = format!("auth.algorithms[{index}]");
                return Err(Fault::new(key, format!("{algorithm} is listed twice; remove one")));
            }
        }
        for (index, method) in auth.require.iter().enumerate() {
            // RFC 3261 §22.1: ACK and CANCEL cannot be challenged.
            if matches!(method.0.as_str(), "ACK" | "CANCEL") {
                let key = format!("auth.require[{index}]");
                return Err(Fault::new(key, format!("{method} cannot be challenged (RFC 3261 §22.1); remove it")));
            }
        }
        within("auth.nonce_age", auth.nonce_age, Duration::from_secs(1))
    }

    fn validate_proxy(&self) -> Result<(), Fault> {
        let proxy = &self.proxy;
        within("proxy.ring_timeout", proxy.ring_timeout, Duration::from_secs(1))?;
        within("proxy.fork_timeout", proxy.fork_timeout, Duration::from_secs(1))?;
        within("proxy.failover_timeout", proxy.failover_timeout, Duration::from_millis(100))?;
        at_most("proxy.avoid_for", proxy.avoid_for)?;
        if !MTU.contains(&proxy.mtu) {
            let message =
                format!("{} is not from {} to {}; choose a value in this range", proxy.mtu, MTU.start(), MTU.end());
            return Err(Fault::new("proxy.mtu", message));
        }
        if !UNROUTED_STATUSES.contains(&proxy.unrouted_status) {
            let message = format!("{} is not 403, 404 or 603; choose one of them", proxy.unrouted_status);
            return Err(Fault::new("proxy.unrouted_status", message));
        }
        Ok(())
    }

    fn validate_streams(&self) -> Result<(), Fault> {
        let tcp = &self.tcp;
        let numbers = [
            ("tcp.connections", Some(tcp.connections)),
            ("tcp.per_source", Some(tcp.per_source)),
            ("tls.connections", self.tls.connections),
            ("websocket.connections", self.websocket.connections),
        ];
        for (key, number) in numbers.into_iter().filter_map(|(key, number)| Some((key, number?))) {
            if !(1..=MAX_CONNECTIONS).contains(&number) {
                let message = format!("{number} is not from 1 to {MAX_CONNECTIONS}; choose a value in this range");
                return Err(Fault::new(key, message));
            }
        }
        let times = [
            ("tcp.message_timeout", tcp.message_timeout),
            ("tcp.connect_timeout", tcp.connect_timeout),
            ("tcp.user_timeout", tcp.user_timeout),
        ];
        times.into_iter().try_for_each(|(key, span)| within(key, span, Duration::from_millis(100)))?;
        count("tcp.proxy_protocol_from", tcp.proxy_protocol_from.len(), MAX_PROXIES)?;
        if let Some(index) = tcp.proxy_protocol_from.iter().position(|source| source.0.prefix == 0) {
            let message = "everybody could claim any address; name only the balancers in front of this server";
            return Err(Fault::new(format!("tcp.proxy_protocol_from[{index}]"), message));
        }
        if tcp.idle.0.is_zero() { Ok(()) } else { within("tcp.idle", tcp.idle, Duration::from_secs(1)) }
    }

    fn validate_tls(&self) -> Result<(), Fault> {
        let tls = &self.tls;
        count("tls.certificates", tls.certificates.len(), MAX_CERTIFICATES)?;
        let secure = self.server.listen.iter().find(|listen| listen.transport.is_secure());
        if let Some(listen) = secure.filter(|_| tls.certificates.is_empty()) {
            let name = listen.transport.as_str().to_ascii_lowercase();
            let message = format!(
                "server.listen has a {name} address, but there is no certificate; name one: certificates = \
                 [{{ certificate = \"FILE.pem\", key = \"KEY.pem\" }}]"
            );
            return Err(Fault::new("tls.certificates", message));
        }
        if tls.client_certificates != ClientCertificates::Off && tls.ca.is_none() {
            let message = "clients are asked for certificates, but any authority of the system could sign them; name \
                           the file of those you trust";
            return Err(Fault::new("tls.ca", message));
        }
        Ok(())
    }

    fn validate_websocket(&self) -> Result<(), Fault> {
        let WebSocket { origins, ping, .. } = &self.websocket;
        if !ping.0.is_zero() {
            within("websocket.ping", *ping, Duration::from_secs(1))?;
        }
        let listen = self.server.listen.iter().find(|listen| listen.transport.is_web_socket());
        if let Some(listen) = listen.filter(|_| origins.is_none()) {
            let name = listen.transport.as_str().to_ascii_lowercase();
            let message = format!(
                "server.listen has a {name} address, but it is not said which web pages may connect; name their \
                 origins, such as [\"https://phone.example.com\"]; [] lets in programs only, [\"*\"] every page"
            );
            return Err(Fault::new("websocket.origins", message));
        }
        let origins = origins.as_deref().unwrap_or_default();
        count("websocket.origins", origins.len(), MAX_ORIGINS)?;
        for (index, origin) in origins.iter().enumerate() {
            AllowedOrigins::new([origin.as_str()])
                .map_err(|error| Fault::new(format!("websocket.origins[{index}]"), error.to_string()))?;
        }
        Ok(())
    }

    fn validate_dns(&self) -> Result<(), Fault> {
        let dns = &self.dns;
        count("dns.servers", dns.servers.len(), MAX_DNS_SERVERS)?;
        within("dns.timeout", dns.timeout, Duration::from_millis(100))?;
        at_most("dns.serve_stale", dns.serve_stale)
    }

    fn validate_admin(&self) -> Result<(), Fault> {
        count("admin.metrics_from", self.admin.metrics_from.len(), MAX_METRICS_SOURCES)?;
        count("admin.hosts", self.admin.hosts.len(), MAX_DOMAINS)?;
        self.admin.validate()
    }

    fn validate_media(&self) -> Result<(), Fault> {
        let media = &self.media;
        count("media.engines", media.engines.len(), MAX_ENGINES)?;
        if media.engines.is_empty() && media.when != MediaWhen::Never {
            let message = "no engine is given in media.engines; give one, such as \"udp:192.0.2.50:2223\"";
            return Err(Fault::new("media.when", message));
        }
        for (index, engine) in media.engines.iter().enumerate() {
            if media.engines.iter().take(index).any(|before| before == engine) {
                let message = format!("{engine} is listed twice; remove one");
                return Err(Fault::new(format!("media.engines[{index}]"), message));
            }
        }
        if media.timeout.0 > MAX_MEDIA_TIMEOUT {
            let message = format!("{} is longer than {}; shorten it", media.timeout, Span(MAX_MEDIA_TIMEOUT));
            return Err(Fault::new("media.timeout", message));
        }
        within("media.timeout", media.timeout, Duration::from_millis(100))?;
        within("media.probe_interval", media.probe_interval, Duration::from_millis(500))
    }

    fn validate_timers(&self) -> Result<(), Fault> {
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

/// Whether `text` is one line of 1 to `most` bytes that is valid in any header.
fn text_fits(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.trim() == text && !text.chars().any(char::is_control)
}

fn whole_seconds(key: &str, span: Span) -> Result<(), Fault> {
    if span.0.subsec_nanos() != 0 {
        return Err(Fault::new(key, format!("{span} is not a whole number of seconds, as SIP requires; round it")));
    }
    Ok(())
}

fn at_most(key: &str, span: Span) -> Result<(), Fault> {
    within(key, span, Duration::ZERO)
}

fn within(key: &str, span: Span, least: Duration) -> Result<(), Fault> {
    let least = Span(least);
    if span < least || span.0 > MAX_SPAN {
        let message = format!("{span} is not from {least} to {}; choose a value in this range", Span(MAX_SPAN));
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
