//! Random histories of a balancer: whatever happens, counts equal the existing guards, and no ineligible member is
//! selected.

use std::sync::Arc;

use std::time::Duration;
use strowger_balancer::{
    Advice, CallGuard, Candidates, Member, MemberOrder, MethodClass, Policy, Probe, Registry, RequestGuard,
    SelectionInput, Set, SetConfig, Target, Weights,
};
use strowger_foundation::Timestamp;

use crate::common::Random;

/// Number of histories; each has some two dozen events.
const HISTORIES: u64 = 1_000_000;
const SHARDS: usize = 3;

/// A shard's work in progress, each with its target's index and its weight.
#[derive(Default)]
struct Shard {
    transactions: Vec<(usize, u64, RequestGuard)>,
    calls: Vec<(usize, CallGuard)>,
}

/// A balancer, and its expected state derived from events alone.
struct World {
    random: Random,
    now: Timestamp,
    registry: Registry,
    targets: Vec<Arc<Target>>,
    set: Set,
    shards: [Shard; SHARDS],
    avoided: u32,
    /// Bits of the targets that have asked for a pause.
    held: u32,
    order: MemberOrder,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let registry = Registry::new();
        let count = 1 + random.below(6);
        let target = |at: usize| registry.target("pool", &[b't', b'0' + at as u8]).expect("few");
        let targets: Vec<Arc<Target>> = (0..count).map(target).collect();
        let set = build(&mut random, &registry, &targets);
        let shards = Default::default();
        let now = Timestamp::from_millis(1_000);
        Self { random, now, registry, targets, set, shards, avoided: 0, held: 0, order: MemberOrder::new() }
    }

    fn step(&mut self) {
        self.now += Duration::from_micros(self.random.below(2_000_000) as u64);
        let target = self.random.below(self.targets.len());
        match self.random.below(16) {
            0..=3 => self.invite(),
            4 => self.other(target),
            5..=8 => self.response(),
            9 => self.end_a_call(),
            10 => self.shards[self.random.below(SHARDS)] = Shard::default(),
            // The configuration is replaced; the same targets are found again.
            11 => self.set = build(&mut self.random, &self.registry, &self.targets),
            12 if self.random.one_in(2) => self.targets[target].drain(),
            12 => self.targets[target].undrain(self.now),
            13 => {
                let probe =
                    Probe { down: self.random.below(3) as u8, up: self.random.below(3) as u8, ..Probe::default() };
                self.targets[target].handle_probe(self.now, self.random.one_in(2), &probe);
            }
            14 => self.targets[target].handle_recovery(self.now),
            _ => {
                self.avoided = self.random.number() as u32 & self.random.number() as u32;
                self.held = self.avoided & self.random.number() as u32;
            }
        }
    }

    /// A new call: to the selected target, or refused.
    fn invite(&mut self) {
        let call_id = self.random.number().to_ne_bytes();
        let begins_call = !self.random.one_in(4);
        let limit = 1 + self.random.below(5);
        let (avoided, held) = (self.avoided, self.held);
        let advice = |at: usize| match (avoided >> at & 1, held >> at & 1) {
            (0, _) => Advice::Neutral,
            (_, 0) => Advice::Avoid,
            _ => Advice::Exclude,
        };
        let draw = self.random.number();
        let pick = SelectionInput {
            now: self.now,
            call_id: &call_id,
            key: &call_id,
            random: draw,
            begins_call,
            limit,
            advice: &advice,
        };
        self.set.select(&pick, &mut self.order);
        assert_order(&self.set, &pick, &self.order);
        let Some(chosen) = self.order.first().copied() else { return };
        let member = &self.set.members()[chosen];
        let at = self.number_of(&member.target);
        let shard = self.random.below(SHARDS);
        if begins_call {
            let call_guard = self.set.begin_call(chosen).expect("it was not full");
            self.shards[shard].calls.push((at, call_guard));
        }
        let weight = u64::from(self.set.work_of(&member.target, MethodClass::Invite));
        let work = self.set.begin_request(chosen, self.now, MethodClass::Invite).expect("a member");
        self.shards[shard].transactions.push((at, weight, work));
    }

    /// A request of an existing call goes to its target, whatever the target's state.
    fn other(&mut self, target: usize) {
        let class = MethodClass::ALL[self.random.below(MethodClass::COUNT)];
        let weight = self.set.work_of(&self.targets[target], class);
        let work = self.targets[target].begin_request(self.now, weight, class);
        let shard = self.random.below(SHARDS);
        self.shards[shard].transactions.push((target, u64::from(weight), work));
    }

    /// A transaction gets a response, or never does.
    fn response(&mut self) {
        let shard = &mut self.shards[self.random.below(SHARDS)];
        if shard.transactions.is_empty() {
            return;
        }
        let at = self.random.below(shard.transactions.len());
        match self.random.below(5) {
            0 => shard.transactions[at].2.handle_provisional(self.now, 100),
            1 => {
                shard.transactions[at].1 = 0;
                shard.transactions[at].2.handle_provisional(self.now, 180);
            }
            2 => shard.transactions.swap_remove(at).2.handle_final(self.now),
            3 => shard.transactions.swap_remove(at).2.handle_failure(self.now),
            _ => drop(shard.transactions.swap_remove(at)),
        }
    }

    fn end_a_call(&mut self) {
        let shard = &mut self.shards[self.random.below(SHARDS)];
        if !shard.calls.is_empty() {
            drop(shard.calls.swap_remove(self.random.below(shard.calls.len())));
        }
    }

    fn number_of(&self, target: &Arc<Target>) -> usize {
        self.targets.iter().position(|known| Arc::ptr_eq(known, target)).expect("a target of this world")
    }

    fn assert_counts(&self) {
        for (at, target) in self.targets.iter().enumerate() {
            let here = self.shards.iter().flat_map(|shard| &shard.transactions).filter(|(here, ..)| *here == at);
            let (transactions, work) = here.fold((0, 0), |(count, sum), (_, weight, _)| (count + 1, sum + weight));
            let calls = self.shards.iter().flat_map(|shard| &shard.calls).filter(|(here, _)| *here == at).count();
            assert_eq!((target.transactions(), target.work(), target.calls() as usize), (transactions, work, calls));
        }
    }
}

/// Creates a set of any policy around the same targets, or some of them.
fn build(random: &mut Random, registry: &Registry, targets: &[Arc<Target>]) -> Set {
    let mut members = Vec::new();
    for target in targets {
        if members.is_empty() || !random.one_in(8) {
            let target = registry.target(target.set(), target.uri()).expect("known");
            members.push(Member {
                priority: random.below(2) as u16,
                weight: random.below(4) as u16,
                capacity: random.one_in(2).then(|| random.below(3) as u32),
                enabled: !random.one_in(6),
                target,
            });
        }
    }
    let config = SetConfig {
        policy: Policy::ALL[random.below(Policy::ALL.len())],
        candidates: Candidates::ALL[random.below(2)],
        weights: if random.one_in(2) { Weights::Adaptive } else { Weights::default() },
        slow_start: Duration::from_secs(random.below(3) as u64 * 5),
        probe: random.one_in(2).then(Probe::default),
        ..SetConfig::default()
    };
    Set::new(config, members).expect("valid")
}

/// Asserts that the order contains no ineligible member and no duplicates, and omits no member without need.
fn assert_order(set: &Set, pick: &SelectionInput<'_>, order: &MemberOrder) {
    let is_out = |member: &Member| {
        let is_down = set.config().probe.is_some() && !member.target.is_up();
        let is_full = pick.begins_call && member.capacity.is_some_and(|capacity| member.target.calls() >= capacity);
        !member.enabled || is_down || is_full || member.target.is_draining()
    };
    let available = |at: usize| !is_out(&set.members()[at]) && (pick.advice)(at) != Advice::Exclude;
    let all = 0..set.members().len();
    let wanted = all.clone().filter(|at| available(*at) && (pick.advice)(*at) == Advice::Neutral).count();
    let last_resort = all.filter(|at| available(*at)).count();
    assert_eq!(order.len(), last_resort.min(pick.limit).min(4), "{pick:?}");
    for (place, at) in order.iter().enumerate() {
        assert!(available(*at) && !order[..place].contains(at), "{pick:?}");
        assert_eq!((pick.advice)(*at) == Advice::Avoid, place >= wanted, "{pick:?}: who is avoided comes last");
    }
    // Spares come last, except for targets in slow start.
    let slow_start = set.config().slow_start;
    if slow_start.is_zero() {
        let priorities: Vec<u16> = order.iter().map(|at| set.members()[*at].priority).collect();
        let (first, last) = priorities.split_at(wanted.min(order.len()));
        assert!(first.is_sorted() && last.is_sorted(), "{pick:?} {priorities:?}");
    }
}

#[test]
fn counts_are_exact_and_only_eligible_members_are_chosen() {
    for seed in 0..HISTORIES {
        let mut world = World::new(seed);
        for _ in 0..4 + world.random.below(40) {
            world.step();
        }
        world.assert_counts();

        // All calls end in one way or another, and nothing remains.
        let World { registry, targets, set, shards, .. } = world;
        drop(shards);
        for target in &targets {
            assert_eq!((target.transactions(), target.work(), target.calls()), (0, 0, 0), "seed {seed}");
        }
        drop((set, targets));
        assert!(registry.all().is_empty(), "seed {seed}: nothing is left of the targets either");
    }
}

/// Guards of one target are created and dropped on many threads at once.
#[test]
fn counts_return_to_zero_under_many_threads() {
    let target = Target::new("pool", b"sip:192.0.2.1");
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let target = &target;
            scope.spawn(move || {
                let mut random = Random(seed);
                let mut tokens = Vec::new();
                for _ in 0..50_000 {
                    if random.one_in(2) {
                        let work =
                            target.begin_request(Timestamp::ZERO, random.below(70_000) as u32, MethodClass::Other);
                        tokens.push((work, target.try_begin_call(100)));
                    } else if !tokens.is_empty() {
                        drop(tokens.swap_remove(random.below(tokens.len())));
                    }
                    assert!(target.calls() <= 100);
                }
            });
        }
    });
    assert_eq!((target.transactions(), target.work(), target.calls()), (0, 0, 0));
}
