//! A simulation of calls at back-ends that serve one transaction after the other, in virtual time, to compare
//! policies.
//!
//! Arrivals are a Poisson process, a BYE goes to the target of its INVITE, and an INVITE costs 1.75 times a BYE. A
//! back-end serves 300 calls per second.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use strowger_balancer::{
    CallGuard, Candidates, Member, MemberOrder, MethodClass, MethodWeights, Policy, RequestGuard, Set, SetConfig,
    Weights,
};
use strowger_foundation::Timestamp;

use crate::common::{Random, call_id, config, members, pick};

/// Calls per second that a back-end of speed one serves.
const CAPACITY: f64 = 300.0;
/// Cost of an INVITE relative to a BYE.
const INVITE: f64 = 1.75;
/// Service time of a BYE, in seconds.
const BYE: f64 = 1.0 / (CAPACITY * (1.0 + INVITE));
/// Mean call duration, in seconds.
const HELD: f64 = 2.0;
/// Simulated seconds before the measurement.
const WARM_UP: f64 = 8.0;
/// Measured seconds.
const MEASURED: f64 = 30.0;

#[derive(Clone, Copy, Debug)]
enum Service {
    /// Every transaction of a method costs the same.
    Fixed,
    /// Exponentially distributed.
    Exponential,
}

#[derive(Clone, Debug)]
struct Experiment {
    policy: Policy,
    candidates: Candidates,
    weights: Weights,
    /// The speeds of the back-ends.
    speeds: Vec<u16>,
    /// Whether the balancer knows the speeds.
    is_told: bool,
    /// Offered load as a fraction of the total capacity.
    load: f64,
    service: Service,
}

/// Response times of INVITEs, in seconds, and other results.
#[derive(Debug)]
struct Outcome {
    p99: f64,
    mean: f64,
    /// Fraction of calls sent to neither of their two candidates.
    beyond: f64,
    /// Final weight of an INVITE at the first back-end, in thousandths.
    invite_weight: u32,
}

enum Event {
    Call(u64),
    /// A transaction is done. With an INVITE its call begins, and with a BYE it ends.
    Done(usize, RequestGuard, MethodClass, Option<CallGuard>),
    Bye(usize, Option<CallGuard>),
}

struct Simulation {
    experiment: Experiment,
    set: Set,
    random: Random,
    /// When each back-end finishes all of its work, in nanoseconds.
    free_at: Vec<u64>,
    agenda: BinaryHeap<Reverse<(u64, usize)>>,
    events: Vec<Option<Event>>,
    unused: Vec<usize>,
    waits: Vec<f64>,
    beyond: u32,
}

impl Experiment {
    fn new(policy: Policy, servers: usize, load: f64, service: Service) -> Self {
        let (candidates, weights) = (Candidates::All, Weights::default());
        Self { policy, candidates, weights, speeds: vec![1; servers], is_told: true, load, service }
    }

    fn run(&self) -> Outcome {
        let member =
            |(member, speed): (Member, &u16)| Member { weight: if self.is_told { *speed } else { 1 }, ..member };
        let members = members(self.speeds.len()).into_iter().zip(&self.speeds).map(member).collect();
        let config = SetConfig { candidates: self.candidates, weights: self.weights, ..config(self.policy) };
        let bed = Simulation {
            experiment: self.clone(),
            set: Set::new(config, members).expect("valid"),
            random: Random(4_711),
            free_at: vec![0; self.speeds.len()],
            agenda: BinaryHeap::new(),
            events: Vec::new(),
            unused: Vec::new(),
            waits: Vec::new(),
            beyond: 0,
        };
        bed.run()
    }
}

impl Simulation {
    fn run(mut self) -> Outcome {
        self.plan(0, Event::Call(0));
        let speed: u16 = self.experiment.speeds.iter().sum();
        let rate = self.experiment.load * CAPACITY * f64::from(speed);
        let end = nanos(WARM_UP + MEASURED);
        while let Some(Reverse((now, at))) = self.agenda.pop() {
            if now > end {
                break;
            }
            self.unused.push(at);
            match self.events[at].take().expect("planned") {
                Event::Call(number) => {
                    let next = now + nanos(self.random.exponential(1.0 / rate));
                    self.plan(next, Event::Call(number + 1));
                    self.call(now, number);
                }
                Event::Done(server, work, class, call_guard) => {
                    work.handle_final(Timestamp::from_nanos(now));
                    if class == MethodClass::Invite {
                        let ends = now + nanos(self.random.exponential(HELD));
                        self.plan(ends, Event::Bye(server, call_guard));
                    }
                }
                Event::Bye(server, call_guard) => self.serve(now, server, MethodClass::Bye, call_guard),
            }
        }
        self.waits.sort_by(f64::total_cmp);
        let p99 = self.waits[self.waits.len() * 99 / 100];
        let mean = self.waits.iter().sum::<f64>() / self.waits.len() as f64;
        let invite_weight = self.set.work_of(&self.set.members()[0].target, MethodClass::Invite);
        let beyond = f64::from(self.beyond) / self.waits.len() as f64;
        Outcome { p99, mean, beyond, invite_weight }
    }

    fn call(&mut self, now: u64, number: u64) {
        let call_id = call_id(number);
        let mut order = MemberOrder::new();
        let pick = strowger_balancer::SelectionInput { now: Timestamp::from_nanos(now), ..pick(&call_id) };
        self.set.select(&pick, &mut order);
        let is_beyond = !self.set.candidates(call_id.as_bytes()).contains(&Some(order[0]));
        self.beyond += u32::from(is_beyond && now > nanos(WARM_UP));
        let call_guard = self.set.begin_call(order[0]);
        self.serve(now, order[0], MethodClass::Invite, call_guard);
    }

    /// Adds a transaction to a back-end's queue; it is done after all earlier ones.
    fn serve(&mut self, now: u64, server: usize, class: MethodClass, call_guard: Option<CallGuard>) {
        let work = self.set.begin_request(server, Timestamp::from_nanos(now), class).expect("a member");
        let mean =
            if class == MethodClass::Invite { BYE * INVITE } else { BYE } / f64::from(self.experiment.speeds[server]);
        let cost = match self.experiment.service {
            Service::Fixed => mean,
            Service::Exponential => self.random.exponential(mean),
        };
        let done = self.free_at[server].max(now) + nanos(cost);
        self.free_at[server] = done;
        if class == MethodClass::Invite && now > nanos(WARM_UP) {
            self.waits.push(Duration::from_nanos(done - now).as_secs_f64());
        }
        self.plan(done, Event::Done(server, work, class, call_guard));
    }

    fn plan(&mut self, at: u64, event: Event) {
        let place = self.unused.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[place] = Some(event);
        self.agenda.push(Reverse((at, place)));
    }
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// The comparison of the papers, at 80 % load.
#[test]
fn load_halves_p99_over_hash_and_round_robin() {
    for servers in [8, 10] {
        let p99 = |policy| Experiment::new(policy, servers, 0.8, Service::Exponential).run().p99;
        let others = [Policy::Hash, Policy::RoundRobin].map(p99);
        for policy in [Policy::LeastWork, Policy::LeastTransactions] {
            let ours = p99(policy);
            assert!(
                others.iter().all(|other| *other >= 2.0 * ours),
                "{policy} of {servers}: {ours}, others {others:?}"
            );
        }
    }
}

#[test]
fn two_candidates_keep_nine_tenths_of_the_gain() {
    for (servers, service) in
        [(8, Service::Fixed), (8, Service::Exponential), (10, Service::Fixed), (10, Service::Exponential)]
    {
        let all = Experiment::new(Policy::LeastWork, servers, 0.8, service);
        let two = Experiment { candidates: Candidates::Two, ..all.clone() };
        let hash = Experiment { policy: Policy::Hash, ..all.clone() }.run();
        let (all, two) = (all.run(), two.run());
        let kept = (hash.p99 - two.p99) / (hash.p99 - all.p99);
        assert!(kept >= 0.9, "{servers} {service:?}: {kept}: {hash:?} {all:?} {two:?}");
        assert!(two.beyond < 0.2 && all.beyond > 0.4, "{servers} {service:?}: {} {}", two.beyond, all.beyond);
    }
}

#[test]
fn measured_weights_are_as_good_as_known_ones() {
    for service in [Service::Fixed, Service::Exponential] {
        let known = Experiment::new(Policy::LeastWork, 8, 0.8, service);
        let measured = Experiment { weights: Weights::Adaptive, ..known.clone() }.run();
        let known = known.run();
        assert!(measured.p99 <= 1.1 * known.p99, "{measured:?} {known:?}");
        assert!((1_300..2_300).contains(&measured.invite_weight), "{measured:?}");
    }
}

/// Half of the back-ends are three times as fast.
#[test]
fn weights_help_targets_of_unequal_speed() {
    let told = Experiment {
        speeds: vec![1, 1, 1, 1, 3, 3, 3, 3],
        ..Experiment::new(Policy::LeastWork, 8, 0.8, Service::Exponential)
    };
    let untold = Experiment { is_told: false, ..told.clone() }.run();
    let (told, hash) = (told.run(), Experiment { policy: Policy::Hash, ..told.clone() }.run());
    assert!(told.p99 < untold.p99 && 2.0 * told.p99 < hash.p99, "{told:?} {untold:?} {hash:?}");
}

#[test]
fn response_time_beats_random() {
    let lot = Experiment::new(Policy::Random, 8, 0.8, Service::Exponential);
    let timed = Experiment { policy: Policy::ResponseTime, ..lot.clone() }.run();
    let lot = lot.run();
    assert!(2.0 * timed.p99 < lot.p99, "{timed:?} {lot:?}");
}

/// Weights matter little if all targets are alike, and also if the choice concerns only one of two methods: none of
/// the three is much worse than another.
#[test]
fn the_exact_weight_matters_little() {
    let with = |weights| {
        let weights = Weights::Fixed(weights);
        Experiment { weights, ..Experiment::new(Policy::LeastWork, 8, 0.8, Service::Fixed) }.run().mean
    };
    let means = [MethodWeights::EVEN, MethodWeights::TLWL_1_75, MethodWeights::TLWL_2].map(with);
    assert!(means.iter().all(|mean| *mean < 1.1 * means[1]), "{means:?}");
}
