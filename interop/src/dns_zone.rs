//! The name server's zone, seen by an authorized updater and by a client that caches answers for their TTL.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ProtocolConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, RecordType};
use strowger_watch::{Kind, RecordData, RecordSet, TsigKey, Update, Zone};
use tokio::runtime::Runtime;

use crate::PATIENCE;
use crate::bind9::{self, Bind9};

/// A zone that a test updates and queries without a cache.
#[derive(Debug)]
pub struct ZoneUpdater {
    runtime: Runtime,
    zone: Zone,
}

impl ZoneUpdater {
    /// Creates an updater with the key of this name server.
    ///
    /// # Panics
    /// If no event queue can be created.
    #[must_use]
    pub fn of(server: &Bind9) -> ZoneUpdater {
        let key = TsigKey::parse(bind9::KEY).expect("a key");
        let zone = Zone::new(server.address(), server.zone(), &key, PATIENCE).expect("a zone");
        ZoneUpdater { runtime: runtime(), zone }
    }

    /// Returns the records of this name and type in zone-file form.
    ///
    /// # Panics
    /// If the name server does not answer.
    #[must_use]
    pub fn records(&self, name: &str, kind: Kind) -> Vec<String> {
        let mut records: Vec<String> = self.read(name, kind, 0).iter().map(ToString::to_string).collect();
        records.sort();
        records
    }

    /// Replaces the addresses of a name, as `nsupdate` would.
    ///
    /// # Panics
    /// If the name server refuses the update.
    pub fn set_addresses(&self, name: &str, ttl_s: u32, addresses: &[Ipv4Addr]) {
        let wanted: Vec<RecordData> =
            addresses.iter().map(|address| RecordData::Address(IpAddr::V4(*address))).collect();
        let expected = self.read(name, Kind::A, ttl_s);
        let without = |data: &[RecordData], others: &[RecordData]| -> Vec<RecordData> {
            data.iter().filter(|data| !others.contains(data)).cloned().collect()
        };
        let (remove, add) = (without(&expected, &wanted), without(&wanted, &expected));
        let update = Update { set: 0, expected, remove, add };
        let done = self.runtime.block_on(self.zone.update(&set(name, Kind::A, ttl_s), &update));
        done.unwrap_or_else(|why| panic!("{name} cannot be changed: {why}"));
    }

    fn read(&self, name: &str, kind: Kind, ttl_s: u32) -> Vec<RecordData> {
        let found = self.runtime.block_on(self.zone.read(&set(name, kind, ttl_s)));
        found.unwrap_or_else(|why| panic!("{name} cannot be read: {why}")).records
    }
}

fn set(name: &str, kind: Kind, ttl_s: u32) -> RecordSet {
    RecordSet { name: name.to_owned(), kind, ttl_s, entries: Vec::new() }
}

/// A client's resolver. It caches each answer for exactly its TTL.
#[derive(Debug)]
pub struct Resolver {
    runtime: Runtime,
    resolver: TokioResolver,
}

impl Resolver {
    /// Creates a resolver that queries this name server.
    ///
    /// # Panics
    /// If no event queue can be created.
    #[must_use]
    pub fn of(server: SocketAddr) -> Resolver {
        let mut connection = ConnectionConfig::new(ProtocolConfig::Udp);
        connection.port = server.port();
        let servers = vec![NameServerConfig::new(server.ip(), true, vec![connection])];
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let runtime = runtime();
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        builder.options_mut().timeout = Duration::from_secs(1);
        let resolver = runtime.block_on(async { builder.build() }).expect("a resolver");
        Resolver { runtime, resolver }
    }

    /// Returns the address of a service's preferred server, the one with the lowest priority (RFC 2782), or `None` if
    /// there is none.
    #[must_use]
    pub fn first(&self, service: &str) -> Option<SocketAddr> {
        self.runtime.block_on(async {
            let found = self.resolver.lookup(format!("{service}."), RecordType::SRV).await.ok()?;
            let services = found.answers().iter().filter_map(|record| match &record.data {
                RData::SRV(srv) => Some(srv),
                _ => None,
            });
            let best = services.min_by_key(|srv| srv.priority)?;
            let addresses = self.resolver.lookup(best.target.clone(), RecordType::A).await.ok()?;
            let address = addresses.answers().iter().find_map(|record| record.data.ip_addr())?;
            Some(SocketAddr::new(address, best.port))
        })
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("an event queue")
}
