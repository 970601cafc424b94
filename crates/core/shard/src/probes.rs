//! Probes of balanced targets: periodic OPTIONS requests that tell whether a target is available. Each target is
//! probed by one shard.

use core::time::Duration;
use std::sync::Arc;

use strowger_balancer::{Probe, Set, TargetId};
use strowger_foundation::{Flow, ShardId, Timestamp};
use strowger_proxy::OWN_USERS;
use strowger_transaction::ClientId;

use crate::snapshot::Snapshot;

/// The first user number of probe transactions; the offset names the probe.
pub(crate) const PROBE_USERS: u32 = OWN_USERS | 1 << 30;

/// Probe interval after the set has changed and its targets are not probed.
const FALLBACK_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum probe interval, whatever the set's configuration.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// A target and the state of its probes.
#[derive(Debug)]
struct TargetProbe {
    id: TargetId,
    set: Arc<Set>,
    /// When to act next: send the next probe, or give up the pending one.
    due: Timestamp,
    /// The pending probe.
    pending: Option<PendingProbe>,
    /// Set if the last attempt found a DNS query for the target still pending.
    is_resolving: bool,
}

impl TargetProbe {
    fn interval(&self) -> Duration {
        self.set.config().probe.as_ref().map_or(FALLBACK_INTERVAL, interval_of)
    }
}

fn interval_of(probe: &Probe) -> Duration {
    probe.interval.max(MIN_INTERVAL)
}

/// Returns the delay before a target's first probe.
fn first_wait(id: TargetId, interval: Duration) -> Duration {
    interval.mul_f64(f64::from(id.0 % 1009) / 1009.0)
}

#[derive(Clone, Copy, Debug)]
struct PendingProbe {
    client: ClientId,
    /// The user number of its transaction.
    user: u32,
    flow: Flow,
}

/// The probes of one shard.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    list: Vec<TargetProbe>,
    next: Option<Timestamp>,
    /// Number of probes sent.
    sent: u32,
}

impl Probes {
    /// Applies the new set of probed targets and keeps the schedule of those already probed. New ones start spread
    /// over the interval, so that a start does not probe all targets at once. Returns the pending probes of targets
    /// that are no longer probed.
    pub(crate) fn handle_config(
        &mut self,
        now: Timestamp,
        shard: ShardId,
        shards: u16,
        snapshot: &Snapshot,
    ) -> impl Iterator<Item = ClientId> + use<> {
        let mut before = core::mem::take(&mut self.list);
        for (set, _) in snapshot.sets() {
            let Some(probe) = &set.config().probe else {
                // The results of earlier probes are meaningless when probing starts again.
                set.members().iter().for_each(|member| member.target.forget_probes(now));
                continue;
            };
            let interval = interval_of(probe);
            for member in set.members().iter().filter(|member| member.enabled) {
                let id = member.target.id();
                if id.0 % u32::from(shards.max(1)) != u32::from(shard.0) {
                    continue;
                }
                // An old set may coexist with a new one that names the same targets; only one of them probes.
                if self.list.iter().any(|probing| probing.id == id) {
                    continue;
                }
                let known = before.iter().position(|probing| probing.id == id);
                let probing = known.map(|known| before.swap_remove(known)).unwrap_or_else(|| {
                    let due = now + first_wait(id, interval);
                    TargetProbe { id, set: Arc::clone(set), due, pending: None, is_resolving: false }
                });
                let due = probing.due.min(now + interval);
                self.list.push(TargetProbe { set: Arc::clone(set), due, ..probing });
            }
        }
        self.settle();
        before.into_iter().filter_map(|probing| probing.pending).map(|waiting| waiting.client)
    }

    /// Stops probing. Returns the pending probes.
    pub(crate) fn stop(&mut self) -> impl Iterator<Item = ClientId> + use<> {
        let before = core::mem::take(&mut self.list);
        self.settle();
        before.into_iter().filter_map(|probing| probing.pending).map(|waiting| waiting.client)
    }

    pub(crate) const fn poll_timeout(&self) -> Option<Timestamp> {
        self.next
    }

    fn settle(&mut self) {
        self.next = self.list.iter().map(|probing| probing.due).min();
    }
}
mod drive;
