//! Number of workers with shards, and assignment of shards to workers.
//!
//! Handing a message to another worker costs both more than processing it, especially if the other one sleeps. So few
//! workers have shards under low load, and all of them under high load. The decision depends only on the workers'
//! reports; no clock is read here.

use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::{ShardId, Timestamp};

use crate::migration::{MigrationPlan, ShardMove};
use crate::status::Load;

/// Utilization of the busiest worker at which the number of workers with shards doubles.
pub const GROW_UTILIZATION: f64 = 0.6;

/// Maximum utilization per worker, after halving the number of workers with shards, at which it is halved.
pub const SHRINK_UTILIZATION: f64 = 0.3;

/// Time for which utilization must stay below [`SHRINK_UTILIZATION`] before the number is halved.
pub const SHRINK_AFTER: Duration = Duration::from_secs(5);

/// Difference in utilization between two workers at which shards start to move.
pub const IMBALANCE_START: f64 = 0.2;

/// Difference in utilization between two workers at which shards stop moving.
pub const IMBALANCE_STOP: f64 = 0.05;

/// Minimum time between decisions, for the last one to take effect.
pub const SETTLE_TIME: Duration = Duration::from_millis(500);

/// Age at which a report expires. An idle worker does not report.
const REPORT_TTL: Duration = Duration::from_millis(500);

/// Share of a worker's time spent in its shards; the rest is receiving, which does not move with them.
const SHARE_OF_SHARDS: f64 = 0.8;

/// Assignment of shards to workers, and the workers' reports.
#[derive(Debug)]
pub(crate) struct Rebalancer {
    /// Minimum number of workers with shards.
    least: usize,
    /// Number of workers with shards; always the first ones.
    active: usize,
    owners: Vec<u16>,
    reports: Vec<Report>,
    /// The latest plan.
    plan: Option<Arc<MigrationPlan>>,
    decided: Timestamp,
    calm_since: Option<Timestamp>,
}

/// Recent utilization of a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// Time of the report.
    pub(crate) at: Timestamp,
    /// Share of time spent working.
    pub(crate) busy: f64,
    /// Load of each of its shards.
    pub(crate) loads: Vec<Load>,
}

impl Report {
    /// Creates an empty report with capacity for `shards`.
    pub(crate) fn of(shards: u16) -> Self {
        Self { loads: Vec::with_capacity(shards.into()), ..Self::default() }
    }
}

/// A decision to move shards.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) plan: Arc<MigrationPlan>,
    /// New number of workers with shards.
    pub(crate) active: usize,
}

impl Rebalancer {
    /// Assigns the shards evenly to the first `least` of `workers`.
    pub(crate) fn new(workers: usize, least: usize, shards: u16) -> Self {
        let least = least.clamp(1, workers.max(1));
        let owners = (0..usize::from(shards)).map(|shard| u16::try_from(shard % least).unwrap_or(0)).collect();
        Self {
            least,
            active: least,
            owners,
            reports: (0..workers).map(|_| Report::of(shards)).collect(),
            plan: None,
            decided: Timestamp::ZERO,
            calm_since: None,
        }
    }

    /// Creates a rebalancer that never decides anything.
    #[cfg(test)]
    pub(crate) fn frozen(workers: usize, least: usize, shards: u16) -> Self {
        let endless = MigrationPlan::new(vec![ShardMove { shard: ShardId(0), from: 0, to: 1 }]);
        Self { plan: Some(Arc::new(endless)), ..Self::new(workers, least, shards) }
    }

    /// Returns the worker of each shard.
    pub(crate) fn owners(&self) -> &[u16] {
        &self.owners
    }

    /// Returns the number of workers with shards.
    pub(crate) fn active(&self) -> usize {
        self.active
    }

    /// Sets the minimum number of workers with shards, of `workers`. If it is higher than the number that have shards,
    /// the next decision adds some.
    pub(crate) fn set_least(&mut self, least: usize, workers: usize) {
        self.least = least.clamp(1, workers.max(1));
    }

    /// Stores the report of a worker and returns the previous one in its place, so that its memory is reused.
    pub(crate) fn report(&mut self, worker: usize, report: &mut Report) {
        if let Some(place) = self.reports.get_mut(worker) {
            std::mem::swap(place, report);
        }
    }

    /// Returns the next decision; usually `None`, and always while shards are migrating.
    pub(crate) fn decide(&mut self, now: Timestamp) -> Option<Decision> {
        let is_moving = self.plan.as_ref().is_some_and(|plan| !plan.is_done());
        if is_moving || now < self.decided + SETTLE_TIME {
            return None;
        }
        let before = self.active;
        self.choose_active(now);
        let is_new = self.active != before;
        if !is_new && self.gap(now) <= IMBALANCE_START {
            return None;
        }
        let moves = self.moves(now, is_new);
        if moves.is_empty() {
            return None;
        }
        for one in &moves {
            if let (Some(owner), Ok(to)) = (self.owners.get_mut(usize::from(one.shard.0)), u16::try_from(one.to)) {
                *owner = to;
            }
        }
        self.decided = now;
        let plan = Arc::new(MigrationPlan::new(moves));
        self.plan = Some(Arc::clone(&plan));
        Some(Decision { plan, active: self.active })
    }

    /// Returns the largest difference in utilization between two active workers.
    fn gap(&self, now: Timestamp) -> f64 {
        let least = self.busy(now).take(self.active).fold(1.0, f64::min);
        self.busy(now).take(self.active).fold(0.0, f64::max) - least
    }

    fn busy(&self, now: Timestamp) -> impl Iterator<Item = f64> {
        self.fresh(now).map(|report| report.map_or(0.0, |report| report.busy))
    }

    fn fresh(&self, now: Timestamp) -> impl Iterator<Item = Option<&Report>> {
        self.reports.iter().map(move |report| Some(report).filter(|report| now < report.at + REPORT_TTL))
    }

    fn choose_active(&mut self, now: Timestamp) {
        if self.active < self.least {
            self.active = self.least;
            return;
        }
        let busiest = self.busy(now).take(self.active).fold(0.0, f64::max);
        if busiest >= GROW_UTILIZATION && self.active < self.reports.len() {
            self.calm_since = None;
            self.active = (self.active * 2).min(self.reports.len());
            return;
        }
        let half = (self.active / 2).max(self.least);
        let all: f64 = self.busy(now).sum();
        if half == self.active || all > SHRINK_UTILIZATION * half as f64 {
            self.calm_since = None;
        } else if now - *self.calm_since.get_or_insert(now) >= SHRINK_AFTER {
            self.calm_since = None;
            self.active = half;
        }
    }

    /// Selects the shards to move: all shards of deactivated workers, and enough shards of the busiest workers to
    /// balance the load.
    fn moves(&self, now: Timestamp, is_new: bool) -> Vec<ShardMove> {
        let mut busy: Vec<f64> = self.busy(now).collect();
        let costs = self.costs(now, busy.iter().sum());
        let mut owners: Vec<usize> = self.owners.iter().copied().map(usize::from).collect();
        let cost = |shard: usize| costs.get(shard).copied().unwrap_or(0.0);
        let of = |list: &[f64], worker: usize| list.get(worker).copied().unwrap_or(0.0);
        let carry = |shard: usize, to: usize, busy: &mut Vec<f64>, owners: &mut Vec<usize>| {
            let Some(owner) = owners.get_mut(shard) else { return };
            let from = std::mem::replace(owner, to);
            busy.get_mut(from).into_iter().for_each(|busy| *busy -= cost(shard));
            busy.get_mut(to).into_iter().for_each(|busy| *busy += cost(shard));
        };
        for shard in 0..owners.len() {
            if owners.get(shard).is_some_and(|owner| *owner >= self.active) {
                let to = (0..self.active).min_by(|a, b| of(&busy, *a).total_cmp(&of(&busy, *b))).unwrap_or(0);
                carry(shard, to, &mut busy, &mut owners);
            }
        }
        let mut bound = if is_new { IMBALANCE_STOP } else { IMBALANCE_START };
        for _ in 0..owners.len() {
            let by_load = |a: &usize, b: &usize| of(&busy, *a).total_cmp(&of(&busy, *b));
            let ends = (0..self.active).max_by(by_load).zip((0..self.active).min_by(by_load));
            let Some((most, least)) = ends else { break };
            let gap = of(&busy, most) - of(&busy, least);
            if gap <= bound {
                break;
            }
            // The heaviest shard that does not make the other worker as much busier in turn.
            let fits = |shard: &usize| owners.get(*shard) == Some(&most) && cost(*shard) < gap * 0.75;
            let Some(shard) = (0..owners.len()).filter(fits).max_by(|a, b| cost(*a).total_cmp(&cost(*b))) else {
                break;
            };
            if cost(shard) <= 0.0 {
                break;
            }
            carry(shard, least, &mut busy, &mut owners);
            bound = IMBALANCE_STOP;
        }
        let pairs = self.owners.iter().copied().map(usize::from).zip(owners).enumerate();
        let moved = pairs.filter(|(_, (from, to))| from != to);
        moved
            .filter_map(|(shard, (from, to))| Some(ShardMove { shard: ShardId(u16::try_from(shard).ok()?), from, to }))
            .collect()
    }

    /// Returns the share of a worker's time that each shard takes. A shard without messages gets a small share, so
    /// that it moves with the others.
    fn costs(&self, now: Timestamp, busy: f64) -> Vec<f64> {
        let mut messages = vec![0_u32; self.owners.len()];
        for load in self.fresh(now).flatten().flat_map(|report| &report.loads) {
            if let Some(count) = messages.get_mut(usize::from(load.shard.0)) {
                *count = load.messages;
            }
        }
        let all: f64 = messages.iter().map(|count| f64::from(*count) + 1.0).sum();
        messages.iter().map(|count| (f64::from(*count) + 1.0) * busy * SHARE_OF_SHARDS / all.max(1.0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::SHARDS_PER_WORKER;

    const TICK: Duration = Duration::from_millis(100);

    /// Simulated workers in virtual time: each shard demands a share of one worker's time, and plans take effect at
    /// once.
    struct World {
        balance: Rebalancer,
        now: Timestamp,
        demand: Vec<f64>,
        plans: usize,
        /// Share of the first worker's time spent on receiving.
        receiving: f64,
    }

    impl World {
        fn new(workers: usize, least: usize) -> Self {
            let shards = u16::try_from(workers).expect("few") * SHARDS_PER_WORKER;
            let balance = Rebalancer::new(workers, least, shards);
            let demand = vec![0.0; usize::from(shards)];
            Self { balance, now: Timestamp::from_millis(10_000), demand, plans: 0, receiving: 0.0 }
        }

        fn busy(&self, worker: usize) -> f64 {
            let its = self.balance.owners.iter().zip(&self.demand).filter(|(owner, _)| usize::from(**owner) == worker);
            let receiving = if worker == 0 { self.receiving } else { 0.0 };
            (its.map(|(_, demand)| demand).sum::<f64>() + receiving).min(1.0)
        }

        fn shards(&self, worker: usize) -> usize {
            self.balance.owners.iter().filter(|owner| usize::from(**owner) == worker).count()
        }

        fn pass(&mut self, time: Duration) {
            let end = self.now + time;
            while self.now < end {
                self.now += TICK;
                for worker in 0..self.balance.reports.len() {
                    let owners = self.balance.owners.iter().zip(&self.demand).enumerate();
                    let its = owners.filter(|(_, (owner, _))| usize::from(**owner) == worker);
                    let load = |(shard, (_, demand)): (usize, (&u16, &f64))| {
                        let messages = (demand * 10_000.0) as u32;
                        Load { shard: ShardId(shard as u16), messages }
                    };
                    let loads = its.map(load).collect();
                    let busy = self.busy(worker);
                    if busy > 0.0 {
                        self.balance.report(worker, &mut Report { at: self.now, busy, loads });
                    }
                }
                let before = self.balance.owners.clone();
                if let Some(Decision { plan, active }) = self.balance.decide(self.now) {
                    self.plans += 1;
                    assert!((1..=self.balance.reports.len()).contains(&active));
                    let moves: Vec<ShardMove> = plan.moves().to_vec();
                    for one in &moves {
                        assert_eq!(usize::from(before[usize::from(one.shard.0)]), one.from);
                        assert!(one.from != one.to && one.to < active);
                    }
                    plan.finish();
                }
            }
        }

        fn load(&mut self, whole: f64) {
            let each = whole / self.demand.len() as f64;
            self.demand.iter_mut().for_each(|demand| *demand = each);
        }
    }

    #[test]
    fn one_worker_has_all_shards_under_light_load() {
        let mut world = World::new(4, 1);
        world.load(0.4);
        world.pass(Duration::from_secs(60));
        assert_eq!((world.shards(0), world.plans), (64, 0));
    }

    #[test]
    fn all_workers_share_shards_under_load_and_one_has_them_afterwards() {
        let mut world = World::new(4, 1);
        world.load(3.0);
        world.pass(Duration::from_secs(5));
        let shares: Vec<_> = (0..4).map(|worker| world.shards(worker)).collect();
        assert!(shares.iter().all(|count| (14..=18).contains(count)), "{shares:?}");
        let plans = world.plans;
        world.pass(Duration::from_secs(60));
        assert_eq!(world.plans, plans, "what is even stays");
        world.load(0.1);
        world.pass(Duration::from_secs(20));
        assert_eq!(world.shards(0), 64);
        world.load(0.0);
        world.pass(Duration::from_secs(20));
        assert_eq!(world.shards(0), 64);
    }

    #[test]
    fn the_receiving_worker_has_fewer_shards() {
        let mut world = World::new(2, 1);
        world.receiving = 0.3;
        world.load(1.2);
        world.pass(Duration::from_secs(10));
        assert!((world.busy(0) - world.busy(1)).abs() <= IMBALANCE_START, "{} {}", world.busy(0), world.busy(1));
        assert!(world.shards(0) < world.shards(1));
    }

    #[test]
    fn one_heavy_shard_gets_a_worker_to_itself() {
        let mut world = World::new(2, 2);
        world.load(0.2);
        world.demand[3] = 0.7;
        world.pass(Duration::from_secs(20));
        let owner = world.balance.owners[3];
        let beside = (0..32).filter(|shard| *shard != 3 && world.balance.owners[*shard] == owner).count();
        assert!(beside <= 3, "{beside}");
        let plans = world.plans;
        world.pass(Duration::from_secs(20));
        assert_eq!(world.plans, plans, "it does not go to and fro");
    }

    #[test]
    fn a_load_between_the_thresholds_changes_nothing() {
        let mut world = World::new(2, 1);
        world.load(0.7);
        world.pass(Duration::from_secs(5));
        assert_eq!(world.balance.active, 2);
        world.load(0.45);
        let plans = world.plans;
        world.pass(Duration::from_secs(60));
        assert_eq!((world.balance.active, world.plans), (2, plans));
    }

    #[test]
    fn no_plan_is_made_while_shards_are_moving() {
        let mut world = World::new(2, 1);
        world.load(1.5);
        world.pass(Duration::from_secs(1));
        let plans = world.plans;
        assert!(plans > 0);
        let plan = world.balance.plan.clone().expect("there is one");
        plan.begin_again();
        world.load(0.0);
        world.pass(Duration::from_secs(60));
        assert_eq!(world.plans, plans);
        plan.finish();
        world.pass(Duration::from_secs(60));
        assert_eq!(world.plans, plans + 1);
    }

    proptest! {
        #[test]
        fn each_shard_has_one_active_owner(
            workers in 1_usize..6,
            least in 1_usize..6,
            demands in prop::collection::vec((0_usize..96, 0.0_f64..0.5, 1_u64..4), 1..40),
        ) {
            let mut world = World::new(workers, least);
            for (shard, demand, seconds) in demands {
                let count = world.demand.len();
                world.demand[shard % count] = demand;
                world.pass(Duration::from_secs(seconds));
                let active = world.balance.active();
                prop_assert!(active >= least.min(workers) && active <= workers);
                prop_assert!(world.balance.owners().iter().all(|owner| usize::from(*owner) < active));
            }
        }
    }
}
