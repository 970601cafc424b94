//! Load of each second-stage cluster, now and under other weights.

use std::time::{Duration, Instant};

use strowger_balancer::{Partition, SLOTS, Slot, SlotLoads, WeightedCluster, solve_weights};
use strowger_control::config::{Config, SecondStage};
use strowger_control::protocol::{ClusterShare, Clusters, Share, WeightProposal};
use strowger_shard::Snapshot;

use super::Server;
use crate::text::clock;

/// Half-life of the request counts.
const HALF_LIFE: Duration = Duration::from_secs(300);

impl Server {
    /// Halves the request counts at intervals.
    pub(super) fn follow_loads(&mut self) {
        if self.counted_since.elapsed() >= HALF_LIFE {
            self.counted_since = Instant::now();
            self.balancing.sets().slot_loads().halve();
        }
    }

    /// Records the start of a move of users. Returns a warning if the previous move is not over.
    pub(super) fn note_move(&mut self, next: &Snapshot) -> String {
        let before = |snapshot: &Snapshot| {
            let clusters = snapshot.clusters.as_ref()?;
            clusters.previous.clone().map(|before| (before, clusters.partition.clone()))
        };
        let (was, will) = (before(&self.snapshot), before(next));
        let mut warning = String::new();
        if will != was {
            let lasts = self.config.registrar.expires.max.0;
            let left =
                self.moving_since.map(|since| lasts.saturating_sub(since.elapsed())).filter(|left| !left.is_zero());
            if let Some(left) = left {
                let left = clock(left.as_secs_f64());
                warning = format!(
                    "; BUT users of the last move may not have registered again for another {left}, and are not found in their previous \
                     cluster"
                );
            }
            self.moving_since = will.map(|_| Instant::now());
        }
        warning
    }

    /// Returns the clusters' current and proposed load.
    pub(super) fn clusters(&self, reweighing: &WeightProposal) -> Result<Clusters, String> {
        if !self.config.is_first_stage() {
            return Err(refusal(&self.config));
        }
        let all = &self.config.second_stage;
        if let Some((name, _)) = reweighing.weights.iter().find(|(name, _)| !all.iter().any(|one| one.name == *name)) {
            let known: Vec<&str> = all.iter().map(|cluster| &*cluster.name).collect();
            return Err(format!("there is no cluster {name:?}; clusters: {}", known.join(", ")));
        }
        let loads = self.balancing.sets().slot_loads();
        let users = self.users_of_slots();
        let weights = weights(all, reweighing, &loads);
        let (now, then) = (self.config.partition(), weights.as_deref().map(|weights| partition(all, weights)));
        let shares = |partition: &Partition, weights: &[u16]| shares(partition, weights, &loads, &users);
        let weights_now: Vec<u16> = all.iter().map(|cluster| cluster.weight).collect();
        let shares_now = shares(&now, &weights_now);
        let shares_then = then.as_ref().zip(weights).map(|(then, weights)| shares(then, &weights));
        let clusters = all.iter().zip(shares_now).enumerate();
        let clusters = clusters.map(|(at, (cluster, now))| {
            let then = shares_then.as_ref().and_then(|shares| shares.get(at)).copied();
            let (members, in_service) = self.members_of(cluster);
            ClusterShare { name: cluster.name.clone(), members, in_service: Some(in_service), now, then }
        });
        let lasts = self.config.registrar.expires.max.0;
        let left = self.moving_since.map(|since| lasts.saturating_sub(since.elapsed()).as_secs());
        Ok(Clusters {
            clusters: clusters.collect(),
            moves: then.map(|then| now.moved(&then)),
            moved: now.moved(&self.config.partition_before()),
            moving_s: left.filter(|left| *left > 0),
            busiest: busiest(&loads),
        })
    }

    /// Returns the number of members of a cluster, and of those in service.
    fn members_of(&self, cluster: &SecondStage) -> (u64, u64) {
        let Some(set) = self.balancing.sets().of(&cluster.name) else { return (0, 0) };
        let members = set.set().members().len();
        let in_service = (0..members).filter(|at| set.set().is_in_service(*at, self.clock.now())).count();
        (members as u64, in_service as u64)
    }

    /// Returns the number of known users per slot.
    fn users_of_slots(&self) -> Vec<u32> {
        let mut users = vec![0_u32; SLOTS];
        self.snapshot.directory.for_each_user(|aor| {
            if let Some(count) = users.get_mut(usize::from(Slot::of(aor).0)) {
                *count += 1;
            }
        });
        users
    }
}

fn refusal(config: &Config) -> String {
    match config.first_stage.first() {
        Some(first) => format!(
            "this server is not in the first stage, and does not know the load of all users; ask a first-stage server, with \
             --as {}",
            first.name
        ),
        None if config.has_stages() => {
            "there is no first stage, and only first-stage servers know the load of all users".to_owned()
        }
        None => "there are no clusters: the configuration has no [[second_stage]]".to_owned(),
    }
}

/// Returns the proposed weights, if any.
fn weights(all: &[SecondStage], reweighing: &WeightProposal, loads: &SlotLoads) -> Option<Vec<u16>> {
    if reweighing.even {
        let wish = |cluster: &SecondStage| cluster.members.len().max(1) as f64;
        let desired: Vec<WeightedCluster<'_>> = all
            .iter()
            .map(|cluster| WeightedCluster { name: &cluster.name, weight: cluster.weight, share: wish(cluster) })
            .collect();
        return Some(solve_weights(&desired, |slot| u64::from(loads.requests(slot))));
    }
    let named = |cluster: &SecondStage| reweighing.weights.iter().find(|(name, _)| *name == cluster.name);
    let weight = |cluster: &SecondStage| named(cluster).map_or(cluster.weight, |(_, weight)| *weight);
    (!reweighing.weights.is_empty()).then(|| all.iter().map(weight).collect())
}

fn partition(all: &[SecondStage], weights: &[u16]) -> Partition {
    Partition::new(all.iter().map(|cluster| &*cluster.name).zip(weights.iter().copied()))
}

fn shares(partition: &Partition, weights: &[u16], loads: &SlotLoads, users: &[u32]) -> Vec<Share> {
    let requests = partition.sums(|slot| u64::from(loads.requests(slot)));
    let calls = partition.sums(|slot| u64::from(loads.calls(slot)));
    let users = partition.sums(|slot| users.get(usize::from(slot.0)).copied().unwrap_or(0).into());
    let all: u64 = requests.iter().sum();
    let at = |numbers: &[u64], at: usize| numbers.get(at).copied().unwrap_or(0);
    let slots = partition.slots();
    let share = |(place, slots): (usize, &u32)| Share {
        weight: weights.get(place).copied().unwrap_or(0),
        share: f64::from(*slots) / SLOTS as f64,
        users: at(&users, place),
        requests: at(&requests, place),
        calls: at(&calls, place),
        load: at(&requests, place) as f64 / all.max(1) as f64,
    };
    slots.iter().enumerate().map(share).collect()
}

/// Returns the load share of the busiest slot.
fn busiest(loads: &SlotLoads) -> f64 {
    let each = || (0..=u16::MAX).map(|slot| u64::from(loads.requests(Slot(slot))));
    each().max().unwrap_or(0) as f64 / each().sum::<u64>().max(1) as f64
}
