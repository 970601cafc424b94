//! The same policies with ideal queues in virtual time: the production code for target selection ([`Set::select`])
//! and counts, the same emulated servers, and nothing else. The difference to the measurements is due to processes
//! and their wake-ups.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Duration;

use strowger_balancer::{
    Advice, CallGuard, Candidates, Member, MemberOrder, MethodClass, MethodWeights, Policy, RequestGuard,
    SelectionInput, Set, SetConfig, Target, Weights,
};
use strowger_foundation::Timestamp;
use strowger_traffic::arrival::Arrivals;
use strowger_traffic::service::{AppliesTo, Service, ServiceLaw, ServiceTimes};

use super::contender::{Contender, Layout};
use super::figures::Times;
use super::target;

/// Initial share of the calls that is not counted.
const WARM_UP: f64 = 0.1;

/// Returns the times of INVITEs and BYEs at `load` (0 to 1) over `calls` calls, or `None` for Kamailio.
#[must_use]
pub fn run(contender: Contender, layout: Layout, load: f64, calls: usize, seed: u64) -> Option<(Times, Times)> {
    let mut model = Model::new(set(contender, layout)?, layout, calls, seed);
    model.go(load * layout.capacity(), seed);
    Some((times(model.invites), times(model.byes)))
}

/// Builds the target set from Strowger's configuration of a contender.
fn set(contender: Contender, layout: Layout) -> Option<Set> {
    let least_work =
        |weights, candidates| SetConfig { policy: Policy::LeastWork, weights, candidates, ..SetConfig::default() };
    let of = |policy| SetConfig { policy, ..SetConfig::default() };
    let fixed = Weights::Fixed(MethodWeights::TLWL_1_75);
    let config = match contender {
        Contender::Hash => of(Policy::Hash),
        Contender::Openser => of(Policy::Openser),
        Contender::Fnv => of(Policy::Fnv),
        Contender::RoundRobin => of(Policy::RoundRobin),
        Contender::Weighted => of(Policy::Weighted),
        Contender::LeastCalls => of(Policy::LeastCalls),
        Contender::LeastTransactions => of(Policy::LeastTransactions),
        Contender::LeastWork175 => least_work(fixed, Candidates::All),
        Contender::LeastWork2 => least_work(Weights::Fixed(MethodWeights::TLWL_2), Candidates::All),
        Contender::LeastWorkOfTwo => least_work(fixed, Candidates::Two),
        Contender::Adaptive => least_work(Weights::Adaptive, Candidates::All),
        Contender::KamailioHash
        | Contender::KamailioRoundRobin
        | Contender::KamailioWeight
        | Contender::KamailioCallLoad => return None,
    };
    let member = |index: u16| {
        let uri = format!("sip:{}", target(index));
        Member { weight: layout.weight(index), ..Member::new(Target::new("pool", uri.as_bytes())) }
    };
    Set::new(config, (0..layout.targets).map(member).collect()).ok()
}

/// An active call.
struct Call {
    began: u64,
    member: usize,
    call_guard: Option<CallGuard>,
    /// Transaction in service and its start.
    request_guard: Option<(RequestGuard, u64)>,
}

struct Model {
    set: Set,
    layout: Layout,
    /// The fast servers and the slow ones, each at the address of its number.
    services: [Service; 2],
    calls: Vec<Call>,
    /// End of talk of each call.
    talks: BinaryHeap<Reverse<(u64, usize)>>,
    counted_from: usize,
    invites: Vec<f64>,
    byes: Vec<f64>,
}

impl Model {
    fn new(set: Set, layout: Layout, calls: usize, seed: u64) -> Self {
        let service = |is_slow: bool| {
            let times = ServiceTimes::parse(&layout.service_time(is_slow)).expect("laws that are always the same");
            let law = ServiceLaw { times, servers: 1, queue: usize::MAX, applies: AppliesTo::New };
            Service::of_addresses(law, usize::from(layout.targets), mix(seed ^ u64::from(is_slow)))
        };
        Self {
            set,
            layout,
            services: [service(false), service(true)],
            calls: Vec::with_capacity(calls),
            talks: BinaryHeap::new(),
            counted_from: (calls as f64 * WARM_UP) as usize,
            invites: Vec::new(),
            byes: Vec::new(),
        }
    }

    /// Runs until the last call has ended.
    fn go(&mut self, rate: f64, seed: u64) {
        let mut arrivals = Arrivals::poisson(rate).times(seed, 0, 1).take(self.calls.capacity()).peekable();
        loop {
            let served = self.services.iter().filter_map(Service::poll_timeout).min().map(Timestamp::as_nanos);
            let talked = self.talks.peek().map(|Reverse((at, _))| *at);
            let Some(now) = [arrivals.peek().copied(), served, talked].into_iter().flatten().min() else { return };
            if served == Some(now) {
                self.on_served(now);
            } else if talked == Some(now) {
                let Some(Reverse((_, call))) = self.talks.pop() else { return };
                self.send(now, call, MethodClass::Bye);
            } else {
                arrivals.next();
                self.on_arrival(now);
            }
        }
    }

    fn on_arrival(&mut self, now: u64) {
        let number = self.calls.len();
        let call_id = format!("{:016x}@model", mix(number as u64));
        let pick = SelectionInput {
            now: Timestamp::from_nanos(now),
            call_id: call_id.as_bytes(),
            key: call_id.as_bytes(),
            random: mix(!(number as u64)),
            begins_call: true,
            limit: 1,
            advice: &|_| Advice::Neutral,
        };
        let mut order = MemberOrder::new();
        self.set.select(&pick, &mut order);
        let member = order[0];
        let seat = self.set.begin_call(member);
        self.calls.push(Call { began: now, member, call_guard: seat, request_guard: None });
        self.send(now, number, MethodClass::Invite);
    }

    /// Sends a request of a call to its target.
    fn send(&mut self, now: u64, number: usize, class: MethodClass) {
        let call = &mut self.calls[number];
        let at = Timestamp::from_nanos(now);
        call.request_guard = self.set.begin_request(call.member, at, class).map(|work| (work, now));
        let index = u16::try_from(call.member).expect("a few targets");
        let service = &mut self.services[usize::from(self.layout.is_slow(index))];
        let bytes = format!("{} {number}", class.as_str());
        service.handle_message(at, (u32::from(index), SocketAddr::from(([127, 0, 0, 1], 1))), bytes.as_bytes());
    }

    fn on_served(&mut self, now: u64) {
        let at = Timestamp::from_nanos(now);
        for service in &mut self.services {
            while let Some(job) = service.poll_done(at) {
                let text = String::from_utf8_lossy(&job.bytes);
                let (method, number) = text.split_once(' ').expect("as it was written");
                let number: usize = number.parse().expect("a number");
                let call = &mut self.calls[number];
                let Some((work, since)) = call.request_guard.take() else { continue };
                work.handle_final(at);
                let took = 1e-6 * (now - since) as f64;
                let is_counted = number >= self.counted_from;
                if method == MethodClass::Invite.as_str() {
                    let talk = Duration::from_millis(500 + mix(call.began ^ number as u64) % 1_001);
                    self.talks.push(Reverse((now + talk.as_nanos() as u64, number)));
                    self.invites.extend(is_counted.then_some(took));
                } else {
                    call.call_guard = None;
                    self.byes.extend(is_counted.then_some(took));
                }
                service.recycle(job);
            }
        }
    }
}

/// Returns a pseudorandom number (SplitMix64).
const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn times(mut all: Vec<f64>) -> Times {
    all.sort_by(f64::total_cmp);
    let at = |share: f64| all.get(((all.len() as f64 * share) as usize).min(all.len().saturating_sub(1)));
    let at = |share: f64| at(share).copied().unwrap_or(0.0);
    let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
    Times { mean, p50: at(0.5), p95: at(0.95), p99: at(0.99) }
}

#[cfg(test)]
mod tests {
    use super::super::theory;
    use super::*;

    const CALLS: usize = 60_000;

    fn at_80(contender: Contender) -> Times {
        run(contender, Layout::equal(8), 0.8, CALLS, 7).expect("ours").0
    }

    #[test]
    fn hashing_to_ideal_queues_matches_theory() {
        let (theory, _) = theory::at_random(Layout::equal(8), 0.8).expect("it is stable");
        let mean = at_80(Contender::Hash).mean;
        assert!((mean / theory - 1.0).abs() < 0.1, "{mean} for {theory}");
    }

    #[test]
    fn least_work_halves_the_p99_of_other_policies() {
        let best = at_80(Contender::LeastWork175).p99;
        for other in [Contender::Hash, Contender::RoundRobin] {
            let p99 = at_80(other).p99;
            assert!(p99 > 2.0 * best, "{other}: {p99} against {best}");
        }
    }

    #[test]
    fn with_one_target_all_policies_agree() {
        let of = |contender| run(contender, Layout::equal(1), 0.5, 5_000, 3).expect("ours");
        assert_eq!(of(Contender::Hash), of(Contender::LeastWork175));
        assert!(run(Contender::KamailioHash, Layout::equal(1), 0.5, 10, 3).is_none());
    }
}
