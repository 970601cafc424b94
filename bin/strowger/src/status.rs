//! Status of a running server.

use std::collections::BTreeMap;
use std::time::Duration;

use strowger_calls::SetupTimes;
use strowger_control::dns::DnsCounts;
use strowger_control::protocol::{
    self, CallSetup, Counters, DestinationSetup, MAX_LISTED, MediaEngine, Outage, Overload, Registration,
    Registrations, Status, Trunk, WorkerLoad,
};
use strowger_directory::Directory;
use strowger_foundation::{DurationHistogram, Flow, Timestamp, Transport};
use strowger_locate::{Cause, Hop, NameCounts, Outages};
use strowger_message::lossy;
use strowger_registrar::MemberId;
use strowger_shard::{CallDestination, Listener, ListenerState, NextHopName, NextHopOwner, Snapshot};
use strowger_trunk::State;
use strowger_worker::{
    Account, DestinationTimes, Fleet, OverloadStatus, SHARDS_PER_WORKER, STREAM_TRANSPORTS, TransportCount,
    WorkerStatus,
};

use crate::resolver::Resolver;

pub(crate) fn status(fleet: &Fleet, snapshot: &Snapshot, resolver: &Resolver, uptime: Duration) -> Status {
    let (now, time) = (fleet.status(), resolver.clock.now());
    let mut counters = counters(&now.total);
    counters.extend(reached(resolver.dns().counts(), resolver.names.counts(), fleet.outages(), time));
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uptime_s: seconds(uptime),
        registrations: wide(now.registrations),
        addresses: wide(fleet.locations().addresses()),
        users: wide(snapshot.directory.users()),
        transactions: wide(now.total.transactions),
        workers: wide(now.workers.len()),
        loads: now.workers.iter().map(load).collect(),
        draining: snapshot.is_draining,
        overload: overload(&now.total.overload, snapshot),
        listeners: own_listeners(snapshot),
        domains: snapshot.domains.iter().map(|domain| lossy(domain)).collect(),
        store: None,
        cluster: None,
        users_database: None,
        calls_database: None,
        trunks: fleet.accounts().into_iter().map(|account| trunk(account, time)).collect(),
        outages: outages(fleet.outages(), snapshot, resolver, time),
        balancers: Vec::new(),
        takeover: None,
        certificates: Vec::new(),
        media: engines(snapshot),
        key: String::new(),
        call_setup: call_setup(&now.total.shard.setup),
        counters,
    }
}

fn overload(now: &OverloadStatus, snapshot: &Snapshot) -> Overload {
    let has_datagrams = snapshot.listeners.iter().any(|listener| listener.transport == Transport::Udp);
    let sorted_by = match (now.is_on && has_datagrams, now.sorted_by_kernel) {
        (false, _) => "nobody",
        (true, 0) => "worker",
        (true, _) => "kernel",
    };
    Overload {
        limiting: wide(now.limiting),
        shed: f64::from(now.shed_permille) / 1_000.0,
        admitted_per_s: now.admitted_per_s.into(),
        wait_us: u64::try_from(now.wait.as_micros()).unwrap_or(u64::MAX),
        sorted_by: sorted_by.to_owned(),
        filtered_by_kernel: wide(now.filtered_by_kernel),
    }
}

fn counts_of(times: &DurationHistogram) -> protocol::SetupTimes {
    protocol::SetupTimes { counts: times.counts().to_vec(), sum_s: times.sum().as_secs_f64() }
}

fn call_setup(times: &SetupTimes) -> CallSetup {
    let SetupTimes { ringing, answered, rejected, cancelled } = times;
    CallSetup {
        ringing: counts_of(ringing),
        answered: counts_of(answered),
        rejected: counts_of(rejected),
        cancelled: counts_of(cancelled),
    }
}

/// Returns the times of the calls to the trunks and targets of the configuration.
pub(crate) fn call_setups(fleet: &Fleet, snapshot: &Snapshot) -> Vec<DestinationSetup> {
    let members = || snapshot.sets().flat_map(|(set, _)| set.members()).map(|member| &member.target);
    let targets: BTreeMap<_, _> = members().map(|target| (target.id(), target)).collect();
    let named = |(to, times): (&CallDestination, &DestinationTimes)| {
        let trunk = to.trunk.and_then(|id| snapshot.trunks.iter().find(|trunk| trunk.id() == id));
        let target = to.target.and_then(|id| targets.get(&id));
        (trunk.is_some() || target.is_some()).then(|| DestinationSetup {
            trunk: trunk.map(|trunk| trunk.name.to_string()),
            set: target.map(|target| target.set().to_owned()),
            target: target.map(|target| lossy(target.uri())),
            setup: call_setup(&times.setup),
            response: counts_of(&times.response),
        })
    };
    fleet.destination_times().iter().filter_map(named).collect()
}

fn load(worker: &WorkerStatus) -> WorkerLoad {
    WorkerLoad { shards: wide(worker.shards), load: (worker.load * 1000.0).round() / 1000.0, awake: false }
}

fn trunk(Account { trunk, status }: Account, now: Timestamp) -> Trunk {
    let state = match status.state {
        State::Registering => "registering",
        State::Registered => "registered",
        State::Failing => "failing",
        State::Refused => "refused",
        State::Leaving => "leaving",
        State::Stopped => "stopped",
    };
    Trunk {
        name: trunk,
        state: state.to_owned(),
        since_s: seconds(now - status.since),
        expires_s: status.registered_until.map(|until| seconds(until - now)),
        last_answer: status.last_response,
        next_try_s: status.next_try.map(|at| seconds(at - now)),
    }
}

/// Returns the next hops that do not answer, under each of their names.
pub(crate) fn outages(outages: &Outages, snapshot: &Snapshot, resolver: &Resolver, now: Timestamp) -> Vec<Outage> {
    let mut known = Vec::new();
    outages.for_each(now, |hop, outage| known.push((*hop, *outage)));
    let mut found = Vec::new();
    for (at, outage) in known {
        let told = |uri: Option<String>, set: Option<String>, trunk: Option<String>| Outage {
            uri,
            set,
            trunk,
            address: hop(&at),
            cause: cause(at.transport, outage.cause).to_owned(),
            since_s: seconds(now - outage.since),
            avoided_s: (now < outage.ends()).then(|| seconds(outage.ends() - now)),
        };
        let names = snapshot.names_of(now, &resolver.names, &at);
        if names.is_empty() {
            found.push(told(None, None, None));
        }
        found.extend(names.into_iter().map(|NextHopName { uri, owner: of }| match of {
            NextHopOwner::Set(set) => told(Some(uri), Some(set), None),
            NextHopOwner::Trunk(trunk) => told(Some(uri), None, Some(trunk)),
            NextHopOwner::Route => told(Some(uri), None, None),
        }));
    }
    // Next hops named by the operator come before those named by callers.
    found.sort_by(|a, b| {
        (a.uri.is_none(), &a.set, &a.uri, &a.address).cmp(&(b.uri.is_none(), &b.set, &b.uri, &b.address))
    });
    found.truncate(MAX_LISTED);
    found
}

/// Returns the media engines.
fn engines(snapshot: &Snapshot) -> Vec<MediaEngine> {
    let engines = snapshot.media.iter().flat_map(|policy| policy.engines.iter());
    engines.map(|engine| MediaEngine { address: engine.address(), is_up: !engine.is_out() }).collect()
}

/// Formats a hop as `udp:192.0.2.1:5060`.
pub(crate) fn hop(hop: &Hop) -> String {
    format!("{}:{}", hop.transport.as_str().to_ascii_lowercase(), hop.address)
}

pub(crate) const fn cause(transport: Transport, cause: Cause) -> &'static str {
    match cause {
        Cause::Silent => "timeout",
        Cause::Unreachable if transport.is_reliable() => "no connection",
        Cause::Unreachable => "ICMP",
        Cause::Refused => "503",
    }
}

fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

/// Returns the addresses by listener id, also of listeners that were removed.
pub(crate) fn listeners(snapshot: &Snapshot) -> Vec<String> {
    snapshot.listeners.all().map(shown).collect()
}

/// Returns the listening addresses, and those that are about to close.
fn own_listeners(snapshot: &Snapshot) -> Vec<String> {
    let one = |listener: &Listener| match listener.state() {
        ListenerState::Draining if listener.transport.is_reliable() => None,
        ListenerState::Draining => Some(format!("{} (removed, closing)", shown(listener))),
        ListenerState::Opening | ListenerState::Open | ListenerState::Closed => Some(shown(listener)),
    };
    snapshot.listeners.iter().filter_map(one).collect()
}

pub(crate) fn registrations(fleet: &Fleet, now: Timestamp, user: Option<&str>, limit: usize) -> Registrations {
    let limit = limit.min(MAX_LISTED);
    let (mut found, mut flows) = (Registrations::default(), Vec::new());
    for stripe in 0..stripes(fleet) {
        fleet.locations().for_each_in_stripe(now, stripe, |binding| {
            if user.is_some_and(|user| user.as_bytes() != binding.aor) {
                return;
            }
            if found.registrations.len() >= limit {
                found.more = true;
                return;
            }
            flows.push(binding.flow);
            found.registrations.push(Registration {
                aor: lossy(binding.aor),
                contact: lossy(binding.uri),
                expires_s: binding.expires_in_s,
                source: binding.flow.peer,
                transport: binding.flow.transport.as_str().to_owned(),
                q: f64::from(binding.q.unwrap_or(1000)) / 1000.0,
                member: binding.member.map(MemberId::get),
            });
        });
        if found.more {
            break;
        }
    }
    // A flow that may be opened anew names the address to connect to, not the far end of its connection.
    let is_elsewhere = |flow: &&Flow| flow.reopen;
    let peers = fleet.peers(flows.iter().filter(is_elsewhere).filter_map(|flow| flow.connection).collect());
    for (row, flow) in found.registrations.iter_mut().zip(&flows) {
        row.source = flow.connection.and_then(|id| peers.get(&id)).copied().unwrap_or(row.source);
    }
    found.registrations.sort_by(|a, b| (&a.aor, &a.contact).cmp(&(&b.aor, &b.contact)));
    found
}

/// Removes all registrations of a user, or one contact, and returns them.
pub(crate) fn unregister(fleet: &Fleet, now: Timestamp, user: &str, contact: Option<&str>) -> Registrations {
    let mut found = registrations(fleet, now, Some(user), MAX_LISTED);
    let Some(contact) = contact else {
        fleet.unregister(user.as_bytes(), None);
        return found;
    };
    found.registrations.retain(|known| known.contact == contact);
    // The display is escaped; the registered URI is not.
    let mut uris: Vec<Box<[u8]>> = Vec::new();
    for stripe in 0..stripes(fleet) {
        fleet.locations().for_each_in_stripe(now, stripe, |binding| {
            if binding.aor == user.as_bytes() && lossy(binding.uri) == contact {
                uris.push(binding.uri.into());
            }
        });
    }
    uris.dedup();
    uris.iter().for_each(|uri| fleet.unregister(user.as_bytes(), Some(uri)));
    found
}

/// Returns registered users of `old` who are barred under `new`.
pub(crate) fn barred(fleet: &Fleet, now: Timestamp, old: &Directory, new: &Directory) -> Vec<Box<[u8]>> {
    let serves = |directory: &Directory, aor: &[u8]| directory.user(aor).is_some_and(|user| user.enabled);
    let mut barred: Vec<Box<[u8]>> = Vec::new();
    for stripe in 0..stripes(fleet) {
        fleet.locations().for_each_in_stripe(now, stripe, |binding| {
            if serves(old, binding.aor) && !serves(new, binding.aor) {
                barred.push(binding.aor.into());
            }
        });
    }
    barred
}

/// Returns addresses with bindings from an earlier process that are barred: their users are disabled, or missing
/// although registering requires a user.
pub(crate) fn barred_before(fleet: &Fleet, now: Timestamp, snapshot: &Snapshot) -> Vec<Box<[u8]>> {
    let needs_user = snapshot.auth.requires(b"REGISTER");
    let mut barred: Vec<Box<[u8]>> = Vec::new();
    for stripe in 0..stripes(fleet) {
        fleet.locations().for_each_in_stripe(now, stripe, |binding| {
            let may_be_called = match snapshot.directory.user(binding.aor) {
                Some(user) => user.enabled,
                None => !needs_user || snapshot.auth.trusts(binding.flow.peer.ip()),
            };
            if !may_be_called && barred.last().is_none_or(|last| &**last != binding.aor) {
                barred.push(binding.aor.into());
            }
        });
    }
    barred
}

fn stripes(fleet: &Fleet) -> u16 {
    u16::try_from(fleet.status().workers.len()).unwrap_or(u16::MAX).saturating_mul(SHARDS_PER_WORKER)
}

fn counters(total: &WorkerStatus) -> Counters {
    let WorkerStatus { worker, net, shard, streams, .. } = total;
    let sockets = [
        ("received", net.received),
        ("sent", net.sent),
        ("segmented", net.segmented),
        ("truncated", net.truncated),
        ("unaddressed", net.unaddressed),
        ("kernel_drops", net.kernel_drops),
        ("send_errors", net.send_errors),
        ("no_buffers", net.no_buffers),
        ("send_blocked", net.send_blocked),
        ("send_overflow", net.send_overflow),
        ("icmp_errors", net.icmp_errors),
    ];
    let workers = [
        ("keep_alives", worker.keep_alives),
        ("stun_answered", worker.stun_answered),
        ("stun_ignored", worker.stun_ignored),
        ("malformed", worker.malformed),
        ("banned", worker.banned),
        ("foreign_responses", worker.foreign_responses),
        ("handover_sent", worker.handover_sent),
        ("handover_received", worker.handover_received),
        ("handover_drops", worker.handover_drops),
        ("held_for_rebalance", worker.held_for_rebalance),
        ("forwarded_after_rebalance", worker.forwarded_after_rebalance),
        ("misdirected", worker.misdirected),
        ("event_drops", worker.event_drops),
        ("record_drops", worker.record_drops),
        ("receive_errors", worker.receive_errors),
        ("media_send_errors", worker.media_send_errors),
        ("media_drops", worker.media_drops),
        ("relayed", worker.relayed),
        ("relay_received", worker.relay_received),
        ("relay_drops", worker.relay_drops),
        ("shed", worker.shed),
        ("panics", worker.panics),
    ];
    BTreeMap::from([
        ("sockets".to_owned(), part(&mut sockets.into_iter())),
        ("workers".to_owned(), part(&mut workers.into_iter())),
        ("shards".to_owned(), part(&mut shard.iter())),
        ("connections".to_owned(), part(&mut std::iter::once(("open", wide(total.connections))).chain(streams.iter()))),
        ("transports".to_owned(), STREAM_TRANSPORTS.into_iter().flat_map(|one| of_transport(total, one)).collect()),
    ])
}

/// Returns the counters of the connections of one transport.
fn of_transport(total: &WorkerStatus, transport: Transport) -> [(String, u64); 4] {
    let TransportCount { open, accepted, messages_in, messages_out } = total.transports.of(transport);
    let counts = [("open", open), ("accepted", accepted), ("messages_in", messages_in), ("messages_out", messages_out)];
    counts.map(|(name, count)| (format!("{}_{name}", transport.as_str().to_ascii_lowercase()), count))
}

/// Returns the counters of DNS queries, cached names and avoided targets.
fn reached(dns: DnsCounts, names: NameCounts, outages: &Outages, now: Timestamp) -> Counters {
    let DnsCounts { queries, coalesced, refused, answered, not_found, timeouts } = dns;
    let dns = [
        ("queries", queries),
        ("coalesced", coalesced),
        ("refused", refused),
        ("answered", answered),
        ("not_found", not_found),
        ("timeouts", timeouts),
    ];
    let NameCounts { entries, hits, stale_hits, misses, evicted } = names;
    let names =
        [("entries", entries), ("hits", hits), ("stale_hits", stale_hits), ("misses", misses), ("evicted", evicted)];
    let targets = [("avoided", wide(outages.count(now))), ("avoided_overflow", outages.overflow())];
    BTreeMap::from([
        ("dns".to_owned(), part(&mut dns.into_iter())),
        ("names".to_owned(), part(&mut names.into_iter())),
        ("targets".to_owned(), part(&mut targets.into_iter())),
    ])
}

fn part(names: &mut dyn Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    names.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Formats a listener as `udp:192.0.2.1:5060`.
fn shown(listener: &Listener) -> String {
    format!("{}:{}", listener.transport.as_str().to_ascii_lowercase(), listener.address)
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
