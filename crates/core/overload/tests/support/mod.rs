//! A single-queue server in virtual time: clients, the kernel's queue with its filter and bound, and a worker driven
//! by the controller.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_overload::{
    Class, Controller, FilterAbilities, FilteredKind, OfferedRequest, QueueBound, Verdict, WINDOW,
};

/// Bytes the kernel accounts for a message.
const BOOKED_BYTES: usize = 2_048;
/// RFC 3261 §17.1.1.2: an INVITE is sent seven times, after 0, T1, 3·T1, 7·T1, …
const T1: Duration = Duration::from_millis(500);
const MOST_SENT: u32 = 7;
/// Time after which callers give up.
const PATIENCE_S: f64 = 32.0;

/// Behaviour of clients without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    /// Retransmit until timer B.
    Retransmit,
    /// Wait: their transport is reliable.
    Wait,
    /// Send once: a flood.
    Once,
}

/// Costs of requests, in seconds of the worker's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    pub(crate) serve: f64,
    pub(crate) refuse: f64,
    pub(crate) drop: f64,
    /// Cost of a message in a stream that the filter drops.
    pub(crate) filter: f64,
}

impl Costs {
    /// Costs for a capacity of `rate` requests per second, with the measured costs of refusals.
    pub(crate) fn of_rate(rate: f64) -> Self {
        Self { serve: 1.0 / rate, refuse: 0.17 / rate, drop: 0.04 / rate, filter: 0.02 / rate }
    }
}

/// A stream of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) ip: IpAddr,
    pub(crate) class: Class,
    pub(crate) kind: FilteredKind,
    pub(crate) clients: Clients,
    pub(crate) is_proven: bool,
    /// Position of all its messages; random if `None`.
    pub(crate) position: Option<u16>,
    /// Whether its messages are malformed.
    pub(crate) is_malformed: bool,
}

impl Source {
    pub(crate) fn callers(clients: Clients) -> Self {
        let ip = Ipv4Addr::new(192, 0, 2, 1).into();
        Self {
            ip,
            class: Class::Call,
            kind: FilteredKind::ProvenCall,
            clients,
            is_proven: true,
            position: None,
            is_malformed: false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Request {
    source: usize,
    first: f64,
    position: u16,
    sent: u32,
    /// Whether a copy was not served.
    is_dropped: bool,
}

/// Results of the requests of one source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) offered: u64,
    pub(crate) served: u64,
    pub(crate) refused: u64,
    /// Time of service and delay since the first transmission, in seconds.
    pub(crate) delays: Vec<(f64, f64)>,
    /// Served requests by second of the run.
    pub(crate) by_second: Vec<u64>,
    /// Offered requests by second of the run.
    pub(crate) offered_by_second: Vec<u64>,
}

/// A processor available for a share of each period, as in a control group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    pub(crate) share: f64,
    pub(crate) period: f64,
}

impl Cpu {
    pub(crate) const WHOLE: Self = Self { share: 1.0, period: 0.025 };

    /// Returns the processor time available until `time`.
    fn used_at(self, time: f64) -> f64 {
        let periods = (time / self.period).floor();
        periods * self.period * self.share + (time - periods * self.period).min(self.period * self.share)
    }

    /// Returns when `used` processor time has been available and more is.
    fn time_at(self, used: f64) -> f64 {
        let slice = self.period * self.share;
        let periods = ((used + 1e-12) / slice).floor();
        periods * self.period + (used - periods * slice).max(0.0)
    }
}

pub(crate) struct Model {
    pub(crate) controller: Controller,
    pub(crate) cpu: Cpu,
    /// Variation of the machine's speed; 0 for none.
    pub(crate) noise: f64,
    pub(crate) costs: Costs,
    has_memory: bool,
    pub(crate) bound: QueueBound,
    sources: Vec<Source>,
    pub(crate) outcomes: Vec<Outcome>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    requests: Vec<Request>,
    queue: VecDeque<(f64, u64)>,
    free_at: f64,
    longest: f64,
    window_ends: f64,
    random: u64,
    pub(crate) overflows: u64,
    pub(crate) filtered: u64,
}

impl Model {
    pub(crate) fn new(costs: Costs, sources: Vec<Source>) -> Self {
        let outcomes = vec![Outcome::default(); sources.len()];
        Self {
            controller: Controller::new(7, true),
            cpu: Cpu::WHOLE,
            noise: 0.0,
            costs,
            has_memory: false,
            bound: QueueBound::new(4 << 20),
            sources,
            outcomes,
            events: BinaryHeap::new(),
            requests: Vec::new(),
            queue: VecDeque::new(),
            free_at: 0.0,
            longest: 0.0,
            window_ends: 0.0,
            random: 0x1234_5678_9ABC_DEF1,
            overflows: 0,
            filtered: 0,
        }
    }

    /// Gives the kernel's filter a memory of what it has dropped, and of proven sources.
    pub(crate) fn with_memory(mut self) -> Self {
        self.has_memory = true;
        self.controller.set_filter_abilities(FilterAbilities { has_memory: true, knows_sources: true });
        self
    }

    /// Changes the seed of the arrivals.
    pub(crate) fn seed(&mut self, seed: u64) {
        self.random ^= seed.wrapping_mul(0x2545_F491_4F6C_DD1D) | 1;
    }

    pub(crate) fn uniform(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Poisson arrivals of a source at `rate` a second from `begin` to `end`.
    pub(crate) fn offer(&mut self, source: usize, rate: f64, begin: f64, end: f64) {
        if rate <= 0.0 {
            return;
        }
        let mut at = begin;
        loop {
            at -= self.uniform().max(f64::MIN_POSITIVE).ln() / rate;
            if at >= end {
                break;
            }
            let position = (self.uniform() * 65_536.0) as u16;
            let position = self.sources[source].position.unwrap_or(position);
            let index = self.requests.len() as u64;
            self.requests.push(Request { source, first: at, position, sent: 0, is_dropped: false });
            self.events.push(Reverse(((at * 1e9) as u64, index)));
            let outcome = &mut self.outcomes[source];
            outcome.offered += 1;
            count(&mut outcome.offered_by_second, at);
        }
    }

    /// Runs the model until `end`.
    pub(crate) fn run(&mut self, end: f64) {
        while let Some(&Reverse((at, index))) = self.events.peek() {
            let at = at as f64 / 1e9;
            if at >= end {
                break;
            }
            self.serve_until(at);
            self.events.pop();
            self.arrive(at, index);
        }
        self.serve_until(end);
    }

    /// A message reaches the kernel.
    fn arrive(&mut self, at: f64, index: u64) {
        let request = &mut self.requests[index as usize];
        if request.sent == u32::MAX {
            return;
        }
        let source = self.sources[request.source];
        let again = T1 * (1 << request.sent);
        request.sent += 1;
        if source.clients == Clients::Retransmit && request.sent < MOST_SENT {
            self.events.push(Reverse((((at + again.as_secs_f64()) * 1e9) as u64, index)));
        }
        let is_known = self.has_memory && request.is_dropped;
        let passes = self.controller.passes(source.kind, request.position) && !is_known;
        if !passes && source.clients != Clients::Wait {
            request.is_dropped = true;
            self.filtered += 1;
        } else if source.clients != Clients::Wait && (self.queue.len() + 1) * BOOKED_BYTES > self.bound.bytes() {
            self.overflows += 1;
        } else {
            self.queue.push_back((at, index));
        }
    }

    /// The worker serves what waits.
    fn serve_until(&mut self, now: f64) {
        while let Some(&(arrival, index)) = self.queue.front() {
            let begin = self.free_at.max(arrival);
            if begin >= now {
                break;
            }
            let begin = self.cpu.time_at(self.cpu.used_at(begin));
            if begin >= now {
                break;
            }
            self.queue.pop_front();
            let cost = self.handle(begin, arrival, index) * self.cpu.share;
            self.free_at = self.cpu.time_at(self.cpu.used_at(begin) + cost);
        }
    }

    /// Returns by how much the machine is slower at `now`; it varies every tenth of a second.
    fn slowness(&self, now: f64) -> f64 {
        let tenth = (now * 10.0) as u64;
        let hash = (tenth + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let part = ((hash ^ (hash >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40) as f64 / (1_u64 << 24) as f64;
        match part {
            _ if self.noise == 0.0 => 1.0,
            // Occasionally another process has the processor.
            part if part > 0.98 => 4.0,
            part => 1.0 + self.noise * (part - 0.55),
        }
    }

    /// Handles a message and returns its cost.
    fn handle(&mut self, now: f64, arrival: f64, index: u64) -> f64 {
        let wait = now - arrival;
        self.longest = self.longest.max(wait);
        if now >= self.window_ends {
            self.bound.handle_window(Duration::from_secs_f64(self.longest), self.controller.queue_bound());
            (self.longest, self.window_ends) = (0.0, now + WINDOW.as_secs_f64());
        }
        let request = self.requests[index as usize];
        if request.sent == u32::MAX {
            return self.costs.drop;
        }
        let source = self.sources[request.source];
        if source.clients == Clients::Wait && !self.controller.passes(source.kind, request.position) {
            self.filtered += 1;
            return self.costs.filter;
        }
        let Source { ip, class, kind, clients, is_proven, .. } = self.sources[request.source];
        let is_reliable = clients == Clients::Wait;
        let source = Some(ip);
        let offer = || OfferedRequest { class, kind, position: request.position, source, is_proven, is_reliable };
        let at = Timestamp::from_nanos((now * 1e9) as u64);
        self.controller.record_wait(at, 0, Duration::from_secs_f64(wait));
        if self.sources[request.source].is_malformed {
            self.controller.record_malformed(at, kind);
            return self.costs.refuse;
        }
        let verdict = self.controller.handle_request(at, Duration::from_secs_f64(wait), offer);
        let outcome = &mut self.outcomes[request.source];
        match verdict {
            Verdict::Admit => {
                // A caller that has waited this long has hung up.
                outcome.served += u64::from(now - request.first < PATIENCE_S);
                outcome.delays.push((now, now - request.first));
                if now - request.first >= PATIENCE_S {
                    self.requests[index as usize].sent = u32::MAX;
                    return self.costs.serve;
                }
                count(&mut outcome.by_second, now);
            }
            Verdict::Refuse { .. } => outcome.refused += 1,
            Verdict::Drop => {
                self.requests[index as usize].is_dropped = true;
                return self.costs.drop;
            }
        }
        self.requests[index as usize].sent = u32::MAX;
        if verdict == Verdict::Admit { self.costs.serve * self.slowness(now) } else { self.costs.refuse }
    }
}

impl Outcome {
    /// Returns a quantile of the delays of requests served from second `begin` on.
    pub(crate) fn delay(&self, begin: f64, quantile: f64) -> f64 {
        let mut delays: Vec<f64> = self.delays.iter().filter(|(at, _)| *at >= begin).map(|(_, delay)| *delay).collect();
        delays.sort_by(f64::total_cmp);
        delays[(delays.len() as f64 * quantile) as usize]
    }

    /// Returns the requests served per second from second `begin` to `end`.
    pub(crate) fn rate(&self, begin: usize, end: usize) -> f64 {
        self.by_second[begin..end.min(self.by_second.len())].iter().sum::<u64>() as f64 / (end - begin) as f64
    }
}

fn count(seconds: &mut Vec<u64>, at: f64) {
    let second = at as usize;
    if seconds.len() <= second {
        seconds.resize(second + 1, 0);
    }
    seconds[second] += 1;
}
