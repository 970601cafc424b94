//! The registrations that this server shares with others.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use strowger_cluster::{Cluster, ClusterConfig, EngineAddress, EngineKind, Promise};
use strowger_control::config::values::{self, EngineUrl};
use strowger_control::config::{self, Config};
use strowger_control::protocol;
use strowger_foundation::Transport;
use strowger_net::Clock;
use strowger_registrar::{Locations, MemberId};
use strowger_shard::{Listener, Listeners};
use strowger_worker::Keep;

use crate::failure::Failure;

/// Store time begins as the wall clock's: no clock that is right shows less.
const LEAST_STORE_MS: u64 = 1_000_000_000_000;

/// How long what waits may take to reach the engine at the end.
const STOP_LIMIT: Duration = Duration::from_secs(3);

/// The table, as one that is shared where the configuration says so.
pub(crate) fn share(locations: Locations, config: &Config) -> Locations {
    match member(config) {
        Some((cluster, member)) => {
            let locations = locations.shared_by(member, config.registrar.expires.max.0);
            // What is promised for the disk needs nothing of the others.
            if cluster.promise == config::Promise::Disk { locations } else { locations.awaiting() }
        }
        None => locations,
    }
}

fn member(config: &Config) -> Option<(&config::Cluster, MemberId)> {
    let cluster = config.cluster.as_ref()?;
    Some((cluster, MemberId::new(cluster.member)?))
}

/// Who shares registrations, if anybody does.
pub(crate) struct SharedTable {
    sharing: Option<Sharing>,
    clock: Clock,
}

/// That this server shares them, and as whom.
struct Sharing {
    cluster: Cluster,
    name: String,
    member: u16,
    address: SocketAddr,
}

impl SharedTable {
    /// Begins to share them.
    pub(crate) fn start(
        config: &Config,
        locations: &Arc<Locations>,
        listeners: &Listeners,
        (key, clock): (String, Clock),
    ) -> Result<Self, Failure> {
        let Some((cluster, member)) = member(config) else {
            return Ok(Self { sharing: None, clock });
        };
        if locations.store_ms(clock.now()) < LEAST_STORE_MS {
            // Nobody has said which time it is: nothing is kept on the disk, or it cannot be read yet.
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let wall = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
            locations.begin(wall.saturating_sub(clock.now().as_nanos()));
        }
        let address = cluster.address.or_else(|| listened_on(listeners)).ok_or_else(|| {
            Failure::No("the other members cannot send requests to this one: say where in cluster.address".to_owned())
        })?;
        let engines = cluster.store.0.iter();
        tracing::info!(
            "cluster {}: member {}, registrations shared through {}",
            cluster.name,
            cluster.member,
            engines.clone().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        );
        let started = Cluster::start(ClusterConfig {
            name: cluster.name.clone(),
            member,
            address,
            key,
            kind: match cluster.store.0.first().map(|url| url.kind) {
                Some(values::EngineKind::Postgres) => EngineKind::Postgres,
                Some(values::EngineKind::MariaDb) => EngineKind::MariaDb,
                Some(values::EngineKind::RedisSentinel) => EngineKind::RedisSentinel,
                Some(values::EngineKind::RedisCluster) => EngineKind::RedisCluster,
                Some(values::EngineKind::Redis) | None => EngineKind::Redis,
            },
            engines: engines.flat_map(addresses).collect(),
            promise: match cluster.promise {
                config::Promise::Disk => Promise::Nothing,
                config::Promise::Engine => Promise::Engine,
            },
            replicas: cluster.replicas,
            disk_promises: config.store_mode() == config::Mode::WriteThrough,
            locations: Arc::clone(locations),
            longest: config.registrar.expires.max.0,
            now: Arc::new(move || clock.now()),
            limits: strowger_cluster::Limits::default(),
        });
        let started = started.map_err(|error| Failure::No(format!("a thread cannot be started: {error}")))?;
        let (name, member) = (cluster.name.clone(), cluster.member);
        Ok(Self { sharing: Some(Sharing { cluster: started, name, member, address }), clock })
    }

    /// Who keeps the workers' records: `disk`, and the engine where they are shared.
    pub(crate) fn keeper(&self, disk: Option<Arc<dyn Keep>>) -> Option<Arc<dyn Keep>> {
        match &self.sharing {
            Some(sharing) => Some(sharing.cluster.keeper(disk)),
            None => disk,
        }
    }

    /// How it goes.
    pub(crate) fn status(&self) -> Option<protocol::Cluster> {
        let sharing = self.sharing.as_ref()?;
        let status = sharing.cluster.status();
        let now = self.clock.now();
        let members = status.others.into_iter();
        Some(protocol::Cluster {
            name: sharing.name.clone(),
            member: sharing.member,
            address: sharing.address.to_string(),
            warm: status.is_warm,
            trouble: status.trouble,
            conflict: status.conflict,
            trouble_s: status.trouble_since.map(|since| now.saturating_since(since).as_secs_f64()),
            waiting: status.waiting as u64,
            refused: status.refused,
            read_whole: status.read_whole,
            announced: status.announced,
            members: members
                .map(|seen| protocol::Member {
                    member: seen.member.get(),
                    address: seen.address.map(|address| address.to_string()).unwrap_or_default(),
                    alive: seen.is_alive,
                    read: seen.read.number,
                })
                .collect(),
        })
    }

    /// Brings to the engine what waits, after the workers have ended.
    pub(crate) fn stop(&self) {
        if let Some(sharing) = &self.sharing {
            sharing.cluster.stop(STOP_LIMIT);
        }
    }
}

/// The first address that datagrams come to, where it is one of this machine and not of this machine alone. Without one, on a machine
/// where nothing else is listened on, that one.
fn listened_on(listeners: &Listeners) -> Option<SocketAddr> {
    let of_datagrams = || listeners.iter().filter(|listener| listener.transport == Transport::Udp);
    let others_reach = |listener: &&Listener| !listener.address.ip().is_loopback();
    let found = of_datagrams().find(others_reach).or_else(|| of_datagrams().next());
    found.map(|listener| listener.address)
}

fn addresses(url: &EngineUrl) -> impl Iterator<Item = EngineAddress> {
    let EngineUrl { authorities, password, database, .. } = url.clone();
    let address = move |authority| EngineAddress { authority, password: password.clone(), database: database.clone() };
    authorities.into_iter().map(address)
}
