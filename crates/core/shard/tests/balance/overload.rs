//! Overloaded targets: their throughput with a failover budget, and without one.

use std::collections::BTreeSet;

use super::*;
use strowger_balancer::FailoverBudget;
use strowger_foundation::Timestamp;

/// Cost of reading and ignoring a request, as a fraction of serving one.
const PART_OF_REFUSAL: f64 = 0.13;
const STEP: Duration = Duration::from_millis(10);

/// The limit on failovers.
#[derive(Clone, Copy, Debug)]
enum FailoverLimit {
    /// The failover budget.
    Budget,
    /// No failovers.
    Nothing,
    /// Unlimited failovers.
    Anything,
}

/// A target that answers at once up to its capacity. Requests beyond it get no response, but cost a little time too.
struct Worker {
    /// Requests served per second.
    capacity: f64,
    credit: f64,
    last: Timestamp,
    seen: BTreeSet<Option<String>>,
}

impl Worker {
    fn answers(&mut self, now: Timestamp) -> bool {
        let passed = now.saturating_since(self.last).as_secs_f64();
        self.last = now;
        // Its reserve is at most a tenth of a second.
        self.credit = (self.credit + passed * self.capacity).min(self.capacity / 10.0);
        let is_served = self.credit >= 1.0;
        self.credit = (self.credit - if is_served { 1.0 } else { PART_OF_REFUSAL }).max(0.0);
        is_served
    }
}

struct Run {
    world: World,
    workers: Vec<Worker>,
    budget: Arc<FailoverBudget>,
    pays: FailoverLimit,
}

impl Run {
    fn new(pays: FailoverLimit, capacities: [f64; 3]) -> Self {
        let targets = targets(3);
        let route = route(config(Policy::RoundRobin), &targets);
        let Action::Proxy { balance: Some(set), .. } = &route.action else { panic!("a set") };
        let budget = Arc::clone(set.budget());
        let mut world = World::new(|snapshot| snapshot.routes = vec![route]);
        world.is_checked = false;
        let last = world.now;
        let workers =
            capacities.map(|capacity| Worker { capacity, credit: capacity / 10.0, last, seen: BTreeSet::new() }).into();
        Self { world, workers, budget, pays }
    }

    fn pay(&self) {
        let now = self.world.now;
        match self.pays {
            FailoverLimit::Budget => {}
            FailoverLimit::Nothing => while self.budget.try_withdraw(now) {},
            FailoverLimit::Anything => (0..10_000).for_each(|_| self.budget.deposit(now)),
        }
    }

    /// Offers `rate` calls per second for `seconds`; returns how many are answered 200.
    fn offer(&mut self, from: usize, rate: usize, seconds: usize) -> usize {
        let (mut carried, mut begun) = (0, 0);
        for step in 0..seconds * 100 {
            self.pay();
            let mut sent: Vec<SentMessage> = self.world.wait(STEP).into_iter().map(|(_, sent)| sent).collect();
            while begun * 100 < (step + 1) * rate {
                sent.extend(self.world.input(ALICE, &text("INVITE", from + begun, "")));
                begun += 1;
            }
            while let Some(message) = sent.pop() {
                let to = (0..3).find(|number| message.to == calls_of(*number));
                let Some(worker) = to.and_then(|to| self.workers.get_mut(to)) else {
                    carried += usize::from(message.status() == 200);
                    continue;
                };
                // A retransmission belongs to the same attempt and is ignored with it.
                let is_new =
                    message.method() == "INVITE" && worker.seen.insert(message.header("Via").map(str::to_owned));
                if is_new && worker.answers(self.world.now) {
                    sent.extend(self.world.respond(&message, 200, "b", ""));
                }
            }
        }
        carried
    }
}

#[test]
fn overloaded_targets_do_not_get_each_others_requests() {
    let carried = |pays| {
        let mut run = Run::new(pays, [20.0; 3]);
        // Half the capacity first, to build up a history; then three times the capacity.
        let before = run.offer(0, 30, 20);
        assert!(before == 600, "{pays:?}: {before} of 600");
        run.offer(1_000_000, 180, 20);
        let counted = run.offer(2_000_000, 180, 60);
        (counted, run.world.shard.counters())
    };
    let ((alone, _), (budget, counters), (without, _)) =
        (carried(FailoverLimit::Nothing), carried(FailoverLimit::Budget), carried(FailoverLimit::Anything));
    assert!(budget * 10 >= alone * 9, "{budget} with the budget, {alone} where each request is sent to one target");
    assert!(without * 2 < alone, "{without} without a budget: there is something to be kept");
    assert!(counters.failovers_refused > 1_000, "{counters:?}");
}

#[test]
fn a_dying_target_loses_no_call() {
    for rate in [2, 30, 300] {
        let mut run = Run::new(FailoverLimit::Budget, [1e6; 3]);
        let before = run.offer(0, rate, 40);
        run.workers[0].capacity = 0.0;
        let after = run.offer(1_000_000, rate, 40) + run.offer(2_000_000, 0, 10);
        let offered = 80 * rate;
        assert!(before + after == offered, "{} of {offered} at {rate} a second", before + after);
        assert_eq!(run.world.shard.counters().failovers_refused, 0);
    }
}
