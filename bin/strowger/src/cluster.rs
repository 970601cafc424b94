//! Registrations shared with other servers.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use strowger_auth::{Issuer, NonceWindows};
use strowger_cluster::{
    Cluster, ClusterConfig, EngineAddress, EngineConfig, EngineError, EngineKind, PeerStatus, PeerTransportConfig,
    SharingMode, WriteConcern,
};
use strowger_control::config::values::{self, EngineUrl};
use strowger_control::config::{self, Config};
use strowger_control::protocol;
use strowger_foundation::{TagKey, Transport};
use strowger_net::Clock;
use strowger_registrar::{Locations, MemberId};
use strowger_shard::{Listener, Listeners};
use strowger_takeover::MemberInfo;
use strowger_worker::{NONCE_STRIPES, RecordSink};

use crate::failure::Failure;
use crate::key;

/// Minimum store time, in ms since 1970. Store time starts from the wall clock, and no correct clock shows less.
const LEAST_STORE_MS: u64 = 1_000_000_000_000;

/// Maximum time at shutdown for pending changes to reach the engine or the peers.
const STOP_LIMIT: Duration = Duration::from_secs(3);

/// Maximum time before an upgrade until nothing is written to the engine.
const PAUSE_LIMIT: Duration = Duration::from_millis(500);

/// Makes the table a shared one if the configuration says so.
pub(crate) fn share(locations: Locations, config: &Config) -> Locations {
    match member(config) {
        Some((_, member)) => locations.with_member(member, config.registrar.expires.max.0),
        None => locations,
    }
}

/// Makes the table wait for what the other members have, if the configuration says so.
pub(crate) fn await_members(locations: Locations, config: &Config) -> Locations {
    // The disk guarantee does not wait for an engine. Peers answer at once, or are not waited for.
    let waits = |(cluster, _): (&config::Cluster, MemberId)| {
        cluster.durability() == config::Durability::Engine || !cluster.peers.is_empty()
    };
    if member(config).is_some_and(waits) { locations.with_pending_source() } else { locations }
}

fn member(config: &Config) -> Option<(&config::Cluster, MemberId)> {
    let cluster = config.cluster.as_ref()?;
    Some((cluster, MemberId::new(cluster.member)?))
}

/// Shared registrations, if the server is in a cluster.
pub(crate) struct SharedTable {
    sharing: Option<Sharing>,
    clock: Clock,
}

/// State of a server that shares registrations.
struct Sharing {
    cluster: Cluster,
    info: MemberInfo,
    address: SocketAddr,
    nonces: Arc<NonceWindows>,
}

/// What the process before this one has been as a member.
pub(crate) struct InheritedMember {
    pub(crate) info: MemberInfo,
    /// Socket for the peers' messages.
    pub(crate) socket: Option<OwnedFd>,
}

/// Checks that this process can become the member that the running one is.
pub(crate) fn check_member(config: &Config, running: Option<&MemberInfo>) -> Result<(), Failure> {
    let differs = |key: &str, was: String| {
        Failure::No(format!("{key}: the running server {was}; set it back, or restart the server"))
    };
    match (&config.cluster, running) {
        (None, None) => Ok(()),
        (Some(_), None) => Err(differs("cluster", "shares registrations with nobody".to_owned())),
        (None, Some(_)) => Err(differs("cluster", "shares registrations".to_owned())),
        (Some(cluster), Some(was)) if cluster.member != was.number => {
            Err(differs("cluster.member", format!("is member {}", was.number)))
        }
        (Some(cluster), Some(was)) if cluster.name != was.cluster => {
            Err(differs("cluster.name", format!("is in {:?}", was.cluster)))
        }
        (Some(cluster), Some(was)) if cluster.listen != was.listen => {
            let listens = was.listen.map_or_else(|| "uses an engine".to_owned(), |at| format!("listens on {at}"));
            Err(differs("cluster.listen", listens))
        }
        (Some(_), Some(_)) => Ok(()),
    }
}

impl SharedTable {
    /// Starts sharing. A process that takes over begins with [`resume`](Self::resume).
    pub(crate) fn start(
        config: &Config,
        locations: &Arc<Locations>,
        listeners: &Listeners,
        (key, clock): (&[u8; 16], Clock),
        inherited: Option<InheritedMember>,
    ) -> Result<Self, Failure> {
        let Some((cluster, member)) = member(config) else {
            return Ok(Self { sharing: None, clock });
        };
        if locations.store_ms(clock.now()) < LEAST_STORE_MS {
            // The store time is unknown: nothing is stored on disk, or it cannot be read yet.
            locations.set_store_origin(wall().saturating_sub(clock.now().as_nanos()));
        }
        let address = cluster.address.or_else(|| listened_on(listeners)).ok_or_else(|| {
            Failure::No(
                "the other members cannot send requests to this one: set its address in cluster.address".to_owned(),
            )
        })?;
        let starts_paused = inherited.is_some();
        let (clock_origin_ms, socket) = match inherited {
            Some(InheritedMember { info, socket }) => (info.clock_origin_ms, socket),
            None => (wall().saturating_sub(clock.now().as_nanos()) / 1_000_000, None),
        };
        let issuer = Issuer { member: member.get(), clock_origin_ms };
        let nonces = Arc::new(NonceWindows::for_members(NONCE_STRIPES, *key, issuer));
        let started = Cluster::start(ClusterConfig {
            member,
            address,
            nonces: Arc::clone(&nonces),
            mode: sharing_mode(cluster, key, socket)?,
            write_concern: match cluster.durability() {
                config::Durability::Disk => WriteConcern::None,
                config::Durability::Engine => WriteConcern::Engine,
            },
            waits_for_disk: config.store_mode() == config::Mode::WriteThrough,
            locations: Arc::clone(locations),
            max_lifetime: config.registrar.expires.max.0,
            now: Arc::new(move || clock.now()),
            starts_paused,
        });
        let started = started.map_err(|error| Failure::No(format!("a thread cannot be started: {error}")))?;
        let info = MemberInfo {
            cluster: cluster.name.clone(),
            number: cluster.member,
            listen: cluster.listen,
            clock_origin_ms,
        };
        Ok(Self { sharing: Some(Sharing { cluster: started, info, address, nonces }), clock })
    }

    /// Returns which member this server is, if it shares registrations.
    pub(crate) fn member_info(&self) -> Option<MemberInfo> {
        self.sharing.as_ref().map(|sharing| sharing.info.clone())
    }

    /// Returns a duplicate of the socket for the peers' messages, if there is one.
    pub(crate) fn to_handover(&self) -> std::io::Result<Option<OwnedFd>> {
        let socket = self.sharing.as_ref().and_then(|sharing| sharing.cluster.socket());
        Ok(socket.map(UdpSocket::try_clone).transpose()?.map(OwnedFd::from))
    }

    /// Says nothing more to the other members until [`resume`](Self::resume), since another process may become this one.
    pub(crate) fn pause(&self) -> Result<(), String> {
        match &self.sharing {
            Some(sharing) if !sharing.cluster.pause(PAUSE_LIMIT) => {
                Err("the engine of the cluster does not answer in time; try again".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Goes on as the member, or begins to.
    pub(crate) fn resume(&self) {
        if let Some(sharing) = &self.sharing {
            sharing.cluster.resume();
        }
    }

    /// Is the member no more, since another process is.
    pub(crate) fn leave(&self) {
        if let Some(sharing) = &self.sharing {
            sharing.cluster.stop(Duration::ZERO);
        }
    }

    /// Returns the sink for the workers' records: `disk`, wrapped to send changes to the other members if
    /// registrations are shared.
    pub(crate) fn record_sink(&self, disk: Option<Arc<dyn RecordSink>>) -> Option<Arc<dyn RecordSink>> {
        match &self.sharing {
            Some(sharing) => Some(sharing.cluster.record_sink(disk)),
            None => disk,
        }
    }

    /// Returns the nonce windows, if the members share them.
    pub(crate) fn nonces(&self) -> Option<Arc<NonceWindows>> {
        self.sharing.as_ref().map(|sharing| Arc::clone(&sharing.nonces))
    }

    /// Returns the state of sharing.
    pub(crate) fn status(&self) -> Option<protocol::Cluster> {
        let sharing = self.sharing.as_ref()?;
        let status = sharing.cluster.status();
        let now = self.clock.now();
        let members = status.others.into_iter();
        Some(protocol::Cluster {
            name: sharing.info.cluster.clone(),
            member: sharing.info.number,
            address: sharing.address.to_string(),
            warm: status.is_synced,
            trouble: status.failure,
            conflict: status.conflict,
            trouble_s: status.failure_since.map(|since| now.saturating_since(since).as_secs_f64()),
            waiting: status.waiting as u64,
            refused: status.refused,
            read_whole: status.full_reads,
            announced: status.full_announcements,
            peers: status.peers.iter().map(peer).collect(),
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

    /// Switches to the peers in the new configuration.
    pub(crate) fn update_peers(&self, config: &Config) {
        if let (Some(sharing), Some(cluster)) = (&self.sharing, &config.cluster) {
            sharing.cluster.set_peers(cluster.peers.clone());
        }
    }

    /// Sends pending changes to the other members after the workers have ended.
    pub(crate) fn stop(&self) {
        if let Some(sharing) = &self.sharing {
            sharing.cluster.stop(STOP_LIMIT);
        }
    }
}

/// Returns the wall clock time in ns since 1970.
fn wall() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the first UDP listening address that is not a loopback address. If there is none on a machine that listens
/// on nothing else, returns the loopback address.
pub(crate) fn listened_on(listeners: &Listeners) -> Option<SocketAddr> {
    let of_datagrams = || listeners.iter().filter(|listener| listener.transport == Transport::Udp);
    let others_reach = |listener: &&Listener| !listener.address.ip().is_loopback();
    let found = of_datagrams().find(others_reach).or_else(|| of_datagrams().next());
    found.map(|listener| listener.address)
}

/// Returns how this member shares registrations. `key` is the members' common key; `inherited` the socket for the peers'
/// messages of the process before this one.
fn sharing_mode(cluster: &config::Cluster, key: &[u8; 16], inherited: Option<OwnedFd>) -> Result<SharingMode, Failure> {
    let Some(listen) = cluster.listen else { return Ok(SharingMode::Engine(engine(cluster, key))) };
    tracing::info!(
        "cluster {}: member {}, at {listen}, registrations forwarded to {}",
        cluster.name,
        cluster.member,
        cluster.peers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    );
    let socket = inherited.map_or_else(|| UdpSocket::bind(listen), |socket| Ok(socket.into()));
    let socket = socket.map_err(|error| {
        Failure::No(format!("cluster.listen: cannot listen on {listen}: {error}; use a free address of this machine"))
    })?;
    let (peers, key) = (cluster.peers.clone(), TagKey::new(*key));
    Ok(SharingMode::Peers(PeerTransportConfig { socket, peers, key, limits: strowger_cluster::PeerLimits::default() }))
}

fn engine(cluster: &config::Cluster, key: &[u8; 16]) -> EngineConfig {
    let engines = cluster.store.0.iter();
    tracing::info!(
        "cluster {}: member {}, registrations shared through {}",
        cluster.name,
        cluster.member,
        engines.clone().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    );
    EngineConfig {
        name: cluster.name.clone(),
        key: key::fingerprint(key),
        kind: kind(cluster),
        engines: engines.flat_map(addresses).collect(),
        replicas: cluster.replicas,
        limits: strowger_cluster::Limits::default(),
    }
}

fn kind(cluster: &config::Cluster) -> EngineKind {
    match cluster.store.0.first().map(|url| url.kind) {
        Some(values::EngineKind::Postgres) => EngineKind::Postgres,
        Some(values::EngineKind::MariaDb) => EngineKind::MariaDb,
        Some(values::EngineKind::RedisSentinel) => EngineKind::RedisSentinel,
        Some(values::EngineKind::RedisCluster) => EngineKind::RedisCluster,
        Some(values::EngineKind::Redis) | None => EngineKind::Redis,
    }
}

/// Connects to the engine once; `None` if there is no engine.
pub(crate) fn try_engine(cluster: &config::Cluster) -> Option<Result<(), EngineError>> {
    let engines: Vec<EngineAddress> = cluster.store.0.iter().flat_map(addresses).collect();
    (!engines.is_empty()).then(|| strowger_cluster::check_engines(kind(cluster), &engines))
}

fn peer(seen: &PeerStatus) -> protocol::Peer {
    protocol::Peer {
        listen: seen.address.to_string(),
        member: seen.member.map(MemberId::get),
        alive: seen.is_alive,
        waiting: seen.waiting as u64,
        dropped: seen.dropped,
    }
}

fn addresses(url: &EngineUrl) -> impl Iterator<Item = EngineAddress> {
    let EngineUrl { authorities, password, database, .. } = url.clone();
    let address = move |authority| EngineAddress { authority, password: password.clone(), database: database.clone() };
    authorities.into_iter().map(address)
}
