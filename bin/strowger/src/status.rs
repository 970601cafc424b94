//! Status of a running server.

use std::collections::BTreeMap;
use std::time::Duration;

use strowger_control::dns::DnsCounts;
use strowger_control::protocol::{
    Counters, MAX_LISTED, Outage, Overload, Registration, Registrations, Status, Trunk, WorkerLoad,
};
use strowger_directory::Directory;
use strowger_foundation::{Timestamp, Transport};
use strowger_locate::{Cause, Hop, NameCounts, Outages};
use strowger_message::lossy;
use strowger_registrar::MemberId;
use strowger_shard::{Listener, NextHopName, NextHopOwner, Snapshot};
use strowger_trunk::State;
use strowger_worker::{Account, Fleet, OverloadStatus, SHARDS_PER_WORKER, WorkerStatus};

use crate::resolver::Resolver;

pub(crate) fn status(fleet: &Fleet, snapshot: &Snapshot, resolver: &Resolver, uptime: Duration) -> Status {
    let (now, time) = (fleet.status(), resolver.clock.now());
    let mut counters = counters(&now.total);
    counters.extend(reached(resolver.dns.counts(), resolver.names.counts(), fleet.outages(), time));
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
        listeners: listeners(snapshot),
        domains: snapshot.domains.iter().map(|domain| lossy(domain)).collect(),
        store: None,
        cluster: None,
        users_database: None,
        calls_database: None,
        trunks: fleet.accounts().into_iter().map(|account| trunk(account, time)).collect(),
        outages: outages(fleet.outages(), snapshot, resolver, time),
        balancers: Vec::new(),
        key: String::new(),
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

/// Returns the listening addresses by listener id.
pub(crate) fn listeners(snapshot: &Snapshot) -> Vec<String> {
    snapshot.listeners.iter().map(shown).collect()
}

pub(crate) fn registrations(fleet: &Fleet, now: Timestamp, user: Option<&str>, limit: usize) -> Registrations {
    let limit = limit.min(MAX_LISTED);
    let mut found = Registrations::default();
    for stripe in 0..stripes(fleet) {
        fleet.locations().for_each_in_stripe(now, stripe, |binding| {
            if user.is_some_and(|user| user.as_bytes() != binding.aor) {
                return;
            }
            if found.registrations.len() >= limit {
                found.more = true;
                return;
            }
            found.registrations.push(Registration {
                aor: lossy(binding.aor),
                contact: lossy(binding.uri),
                expires_s: binding.expires_in_s,
                source: binding.flow.peer,
                q: f64::from(binding.q.unwrap_or(1000)) / 1000.0,
                member: binding.member.map(MemberId::get),
            });
        });
        if found.more {
            break;
        }
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
        ("malformed", worker.malformed),
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
        ("shed", worker.shed),
        ("panics", worker.panics),
    ];
    BTreeMap::from([
        ("sockets".to_owned(), part(&mut sockets.into_iter())),
        ("workers".to_owned(), part(&mut workers.into_iter())),
        ("shards".to_owned(), part(&mut shard.iter())),
        ("connections".to_owned(), part(&mut std::iter::once(("open", wide(total.connections))).chain(streams.iter()))),
    ])
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

fn shown(listener: &Listener) -> String {
    format!("{}:{}", listener.transport.as_str().to_ascii_lowercase(), listener.address)
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
