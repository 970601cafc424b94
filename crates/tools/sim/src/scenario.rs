//! Scenarios: phones, their actions and the faults of network, DNS and store, all derived from one seed.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use strowger_auth::{Algorithm, Ha1};
use strowger_directory::{Directory, DirectoryChange, Ha1s, User};
use strowger_foundation::Transport;
use strowger_locate::LocateQuery;
use strowger_proxy::Stateless;
use strowger_registrar::{Durability, KeepAlive, LocalContacts, Nat};
use strowger_shard::{Listener, Route, RouteTarget, Snapshot, TargetAddress};

use crate::agent::{Action, AnswerBehavior, Phone};
use crate::dns::Zone;
use crate::network::NetworkConditions;
use crate::rng::Rng;
use crate::store::{DiskFailure, ProcessEnd};
use crate::streams::ConnectionFaults;

/// The domain of every scenario.
pub const DOMAIN: &str = "example.com";
/// Domain of a static route.
const GATEWAY_DOMAIN: &str = "gateway.example.net";
const USERS: [&str; 4] = ["alice", "bob", "carol", "dave"];

/// Configuration of one world.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Number of shards of the server.
    pub shards: u16,
    /// The server's address.
    pub server: SocketAddr,
    /// Configuration and users.
    pub snapshot: Arc<Snapshot>,
    /// The phones.
    pub phones: Vec<Phone>,
    /// The network.
    pub network_conditions: NetworkConditions,
    /// Connection faults.
    pub connection_faults: ConnectionFaults,
    /// The DNS.
    pub zone: Zone,
    /// Whether the server learns that datagrams to unassigned addresses are refused.
    pub tells_unreachable: bool,
    /// Faults of store and process.
    pub faults: FaultPlan,
}

/// Faults of store and process, each with its time.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// Ends of the process.
    pub ends: Vec<(Duration, ProcessEnd)>,
    /// Checkpoints.
    pub checkpoints: Vec<Duration>,
    /// Disk failures, each with its duration.
    pub faults: Vec<(Duration, DiskFailure, Duration)>,
    /// Users whose bindings the operator removes.
    pub forgotten: Vec<(Duration, Vec<u8>)>,
    /// Steps of the wall clock, in ms.
    pub wall_jumps: Vec<(Duration, i64)>,
    /// Share of commits that take seconds, in ‰.
    pub slow_per_mille: u64,
    /// Share of commits during which the process ends, in ‰; at most a few per run.
    pub fatal_per_mille: u64,
    /// Longest time to load the records of the previous process, in ms.
    pub reading_max_ms: u64,
}

impl Scenario {
    /// Creates a random scenario.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let server = SocketAddr::from(([192, 0, 2, 1], 5060));
        let mut snapshot = snapshot(&mut rng, server);
        let shards = *rng.pick(&[1, 2, 3, 8]);
        let mix = Mix {
            users: *rng.pick(&[2, 2, 3, 4]),
            streams_per_mille: *rng.pick(&[0, 300, 600]),
            prefers_per_mille: *rng.pick(&[0, 600, 900]),
        };
        let mut phones: Vec<_> = (0..rng.between(3, 7)).map(|number| phone(&mut rng, number, mix)).collect();
        // Phones on datagrams and phones on streams can reach each other only through the server.
        snapshot.proxy.record_route |= phones.iter().any(|phone| phone.transport == Transport::Tcp);
        phones.extend(gateways(&mut rng));
        let (weather, tells_unreachable) = (weather(&mut rng), rng.chance(500));
        let (cuts, zone) = (cuts(&mut rng), zone(&mut rng));
        let trouble = FaultPlan::default();
        Self {
            shards,
            server,
            snapshot: Arc::new(snapshot),
            phones,
            network_conditions: weather,
            connection_faults: cuts,
            zone,
            tells_unreachable,
            faults: trouble,
        }
    }

    /// Creates a random scenario with a store: phones register more often, the process ends at times, and the disk
    /// fails.
    #[must_use]
    pub fn durable(seed: u64) -> Self {
        let (mut scenario, mut rng) = (Self::random(seed), Rng::new(seed ^ 0x00D0_12AB_1E00));
        let mut snapshot = Snapshot::clone(&scenario.snapshot);
        snapshot.registrar.durability = match rng.between(0, 9) {
            0 => Durability::Memory,
            1 | 2 => Durability::WriteBehind,
            _ => Durability::WriteThrough,
        };
        scenario.snapshot = Arc::new(snapshot);
        for phone in scenario.phones.iter_mut().filter(|phone| phone.domain == DOMAIN) {
            phone.sends_instance = rng.chance(400);
            phone.sends_reg_id = rng.chance(500);
            for _ in 0..rng.between(2, 10) {
                let action = registration(&mut rng, !phone.sends_instance);
                phone.script.push((millis(&mut rng, 0, 250_000), action));
            }
        }
        scenario.faults = trouble(&mut rng);
        scenario
    }

    /// Creates the scenario of `seed`; one in four has no store.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        if seed.is_multiple_of(4) { Self::random(seed) } else { Self::durable(seed) }
    }
}

/// Mix of phones.
#[derive(Clone, Copy)]
struct Mix {
    /// Number of users with phones; the fewer users, the more phones each.
    users: usize,
    streams_per_mille: u64,
    /// Share of phones that register with a q value, in ‰.
    prefers_per_mille: u64,
}

fn snapshot(rng: &mut Rng, server: SocketAddr) -> Snapshot {
    let users = USERS.iter().map(|name| DirectoryChange::PutUser(user(name)));
    let alias = DirectoryChange::PutAlias { alias: aor("reception"), aor: aor("bob") };
    let directory = Directory::empty(rng.next_u64()).with_changes(users.chain([alias]));
    let listeners = [Transport::Udp, Transport::Tcp].map(|transport| Listener::new(transport, server));
    let mut snapshot = Snapshot::new(listeners.into(), vec![DOMAIN.as_bytes().into()], directory);
    if rng.chance(300) {
        snapshot.auth.require.clear();
    }
    if rng.chance(300) {
        snapshot.auth.algorithms = vec![Algorithm::Sha256, Algorithm::Md5];
    }
    snapshot.proxy.record_route = rng.chance(800);
    snapshot.proxy.ring_timeout = Duration::from_secs(*rng.pick(&[20, 60, 180]));
    snapshot.proxy.fork_timeout = Duration::from_secs(*rng.pick(&[2, 5, 20]));
    snapshot.proxy.failover_timeout = Duration::from_secs(*rng.pick(&[1, 4]));
    snapshot.proxy.avoid_for = Duration::from_secs(*rng.pick(&[5, 30, 120]));
    // No request is too large for a datagram.
    snapshot.proxy.mtu = usize::from(u16::MAX);
    snapshot.registrar.max_contacts = *rng.pick(&[1, 2, 4, 6, 6]);
    snapshot.registrar.expires_max = Duration::from_secs(900);
    snapshot.registrar.keep_alive = *rng.pick(&[KeepAlive::Off, KeepAlive::Crlf, KeepAlive::Options]);
    // Some users register the server itself, so that their requests loop.
    snapshot.registrar.local_contacts = LocalContacts::Accept;
    snapshot.registrar.nat = *rng.pick(&[Nat::Auto, Nat::Auto, Nat::Always, Nat::Never]);
    snapshot.routes = vec![route(rng)];
    snapshot
}

/// Returns a route to two gateways, to one of them, or to a name that one may follow.
fn route(rng: &mut Rng) -> Route {
    let at = |number, priority| {
        let address = gateway_address(number);
        RouteTarget { priority, ..RouteTarget::at(format!("sip:{address}").as_bytes(), address) }
    };
    let named = || RouteTarget {
        uri: b"sip:carrier.example.net"[..].into(),
        address: TargetAddress::Name(LocateQuery::new(b"carrier.example.net", None, None, false)),
        priority: 1,
        weight: 1,
    };
    let targets = match rng.between(0, 9) {
        0..=1 => vec![at(0, 1)],
        2..=6 => vec![at(1, 2), at(0, 1)],
        7..=8 => vec![named()],
        _ => vec![named(), at(1, 2)],
    };
    let any = [Stateless::Never, Stateless::Never, Stateless::WhenPossible, Stateless::Always];
    let by_name = targets.iter().any(|target| matches!(target.address, TargetAddress::Name(_)));
    let stateless = if by_name { Stateless::Never } else { *rng.pick(&any) };
    Route::of_domain(GATEWAY_DOMAIN.as_bytes(), strowger_shard::Action::proxy(targets, stateless))
}

fn gateway_address(number: u8) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 9 + number], 5060))
}

/// Returns the targets of the static route: they accept calls and do not register.
fn gateways(rng: &mut Rng) -> [Phone; 3] {
    [0, 1, 2].map(|number| {
        let answering = match rng.between(0, 9) {
            0..=1 if number == 0 => AnswerBehavior::Dead,
            2..=3 if number == 0 => AnswerBehavior::Unavailable,
            4..=5 => AnswerBehavior::Late { silence: millis(rng, 500, 20_000), ring: millis(rng, 0, 8000) },
            _ => answering(rng),
        };
        Phone {
            user: "gateway".to_owned(),
            domain: GATEWAY_DOMAIN.to_owned(),
            address: gateway_address(number),
            own_address: gateway_address(number),
            transport: Transport::Udp,
            q: None,
            sends_instance: false,
            sends_reg_id: false,
            answer_behavior: answering,
            script: Vec::new(),
        }
    })
}

fn cuts(rng: &mut Rng) -> ConnectionFaults {
    ConnectionFaults {
        cut_per_mille: *rng.pick(&[0, 500, 900]),
        life_max_ms: *rng.pick(&[8000, 60_000, 200_000]),
        refused_per_mille: *rng.pick(&[0, 200, 700]),
    }
}

fn zone(rng: &mut Rng) -> Zone {
    let (one, other) = (gateway_address(0), gateway_address(2));
    let all = [vec![one], vec![one, other], vec![other, one], vec![other], Vec::new()];
    Zone {
        answers: (0..rng.between(1, 4)).map(|_| rng.pick(&all).clone()).collect(),
        changes_after: seconds(rng, 5, 60),
        delay_max_ms: *rng.pick(&[50, 2000, 15_000]),
        silent_per_mille: *rng.pick(&[0, 300]),
        ttl: Duration::from_secs(*rng.pick(&[0, 5, 60])),
    }
}

fn user(name: &str) -> User {
    let ha1 = |algorithm| Ha1::compute(algorithm, name.as_bytes(), DOMAIN.as_bytes(), name.as_bytes());
    let md5 = ha1(Algorithm::Md5).as_bytes().try_into().ok();
    let sha256 = ha1(Algorithm::Sha256).as_bytes().try_into().ok();
    User { aor: aor(name), ha1: Ha1s { md5, sha256, sha512_256: None }, enabled: true }
}

fn aor(name: &str) -> Box<[u8]> {
    format!("{name}@{DOMAIN}").into_bytes().into()
}

fn weather(rng: &mut Rng) -> NetworkConditions {
    let mild = rng.chance(250);
    let most = |rng: &mut Rng, most| if mild { 0 } else { rng.between(0, most) };
    let delay_min_ms = rng.between(1, 40);
    NetworkConditions {
        loss_per_mille: most(rng, 150),
        duplication_per_mille: most(rng, 150),
        delay_min_ms,
        delay_max_ms: delay_min_ms + most(rng, 700),
    }
}

fn phone(rng: &mut Rng, number: u64, mix: Mix) -> Phone {
    let user = USERS[usize::try_from(number).unwrap_or(0) % mix.users];
    let octet = u8::try_from(number + 10).unwrap_or(u8::MAX);
    let address = SocketAddr::from(([198, 51, 100, octet], 5060));
    // Behind a NAT the phone knows only its private address.
    let own_address = if rng.chance(200) { SocketAddr::from(([10, 0, 0, octet], 5060)) } else { address };
    Phone {
        user: user.to_owned(),
        domain: DOMAIN.to_owned(),
        address,
        own_address,
        transport: if rng.chance(mix.streams_per_mille) { Transport::Tcp } else { Transport::Udp },
        q: rng.chance(mix.prefers_per_mille).then(|| *rng.pick(&["1", "0.8", "0.5", "0.5", "0.1"])),
        sends_instance: false,
        sends_reg_id: false,
        answer_behavior: answering(rng),
        script: script(rng, user),
    }
}

fn answering(rng: &mut Rng) -> AnswerBehavior {
    let hold = rng.chance(300).then(|| seconds(rng, 1, 30));
    match rng.between(0, 11) {
        0 => AnswerBehavior::Busy,
        1 => AnswerBehavior::Decline,
        2 => AnswerBehavior::Ring,
        3 => AnswerBehavior::RingOn,
        4 => AnswerBehavior::Dead,
        _ => AnswerBehavior::Answer { ring: millis(rng, 0, 12_000), hold },
    }
}

fn script(rng: &mut Rng, user: &str) -> Vec<(Duration, Action)> {
    let mut script = Vec::new();
    if rng.chance(900) {
        script.push((millis(rng, 0, 2000), Action::Register { expires_s: lifetime(rng) }));
    }
    for _ in 0..rng.between(1, 6) {
        let at = millis(rng, 4000, 200_000);
        script.push((at, action(rng, user)));
    }
    script
}

fn action(rng: &mut Rng, user: &str) -> Action {
    let mut callees: Vec<&str> = USERS.into_iter().filter(|name| *name != user).collect();
    callees.extend(["reception", "nobody", "5551234@gateway.example.net", "5554321@gateway.example.net"]);
    let callee = (*rng.pick(&callees)).to_owned();
    match rng.between(0, 16) {
        16 => Action::Divert { user: (*rng.pick(&USERS)).to_owned() },
        0 => Action::Register { expires_s: lifetime(rng) },
        1 => Action::Register { expires_s: 0 },
        2 => Action::RegisterLate,
        3 => Action::Clear,
        4 => Action::Fetch,
        5 => Action::Options,
        6 | 7 => Action::Message { user: callee },
        _ => {
            let patience = rng.chance(350).then(|| millis(rng, 0, 15_000));
            Action::Call { user: callee, hold: millis(rng, 0, 60_000), patience }
        }
    }
}

/// Returns one more registration of a phone, possibly with another contact.
fn registration(rng: &mut Rng, may_have_two: bool) -> Action {
    match rng.between(0, 11) {
        0 => Action::Register { expires_s: 0 },
        1 => Action::Clear,
        2 => Action::Restart,
        3 => Action::RegisterLate,
        4 => Action::Fetch,
        5..=7 if may_have_two => Action::RegisterTwo { expires_s: *rng.pick(&[0, 60, 90, 300]) },
        _ => Action::Register { expires_s: lifetime(rng) },
    }
}

fn trouble(rng: &mut Rng) -> FaultPlan {
    const YEARS_MS: i64 = 3 * 365 * 86_400_000;
    let at = |rng: &mut Rng| millis(rng, 500, 260_000);
    let ends = (0..rng.between(1, 4)).map(|_| {
        let (power, reboot) = (rng.chance(600), rng.chance(200));
        let wall_jump_ms = *rng.pick(&[0, 0, 0, YEARS_MS, -YEARS_MS, -5000, 40_000]);
        (at(rng), ProcessEnd { power, reboot, wall_jump_ms, down: millis(rng, 10, 15_000) })
    });
    let ends = ends.collect();
    let all = [DiskFailure::Full, DiskFailure::Write, DiskFailure::SyncOnce, DiskFailure::Sync, DiskFailure::ReadOnly];
    let faults = (0..rng.between(0, 3)).map(|_| (at(rng), *rng.pick(&all), millis(rng, 100, 30_000)));
    let faults = faults.collect();
    let checkpoints = (0..rng.between(0, 6)).map(|_| at(rng)).collect();
    let forgotten = (0..rng.between(0, 2)).map(|_| (at(rng), aor(rng.pick::<&str>(&USERS)).to_vec())).collect();
    let wall_jumps = (0..rng.between(0, 1)).map(|_| (at(rng), *rng.pick(&[YEARS_MS, -YEARS_MS]))).collect();
    FaultPlan {
        ends,
        checkpoints,
        faults,
        forgotten,
        wall_jumps,
        slow_per_mille: *rng.pick(&[0, 20, 200]),
        fatal_per_mille: *rng.pick(&[0, 100, 300]),
        reading_max_ms: *rng.pick(&[0, 100, 4000]),
    }
}

fn lifetime(rng: &mut Rng) -> u32 {
    *rng.pick(&[30, 60, 90, 120, 300, 600, 3600])
}

fn millis(rng: &mut Rng, from: u64, to: u64) -> Duration {
    Duration::from_millis(rng.between(from, to))
}

fn seconds(rng: &mut Rng, from: u64, to: u64) -> Duration {
    Duration::from_secs(rng.between(from, to))
}
