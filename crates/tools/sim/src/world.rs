//! One world: a server, its phones and the network between them, on one virtual clock.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use strowger_foundation::Timestamp;

use crate::agent::{Agent, Tally};
use crate::invariants::{Invariants, Rule, Violation};
use crate::ladder::Ladder;
use crate::mutant::{Bug, Mutant};
use crate::network::Network;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::server::{Sent, Server, Step};

/// Long after everything that a script does has ended and every binding has expired.
const END: Timestamp = Timestamp::from_millis(3 * 3600 * 1000);
/// More steps than any scenario takes; past it something goes in circles.
const MAX_STEPS: u64 = 200_000;

/// How a world is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Keep a ladder of all messages.
    pub ladder: bool,
    /// Keep every step with what the server sent.
    pub recording: bool,
    /// Plant this bug.
    pub bug: Option<Bug>,
}

/// What came of a world.
#[derive(Debug)]
pub struct Outcome {
    /// The first rule that was broken.
    pub violation: Option<Violation>,
    /// Steps of the server.
    pub steps: u64,
    /// What the phones achieved together.
    pub tally: Tally,
    /// The messages, where they were wanted.
    pub ladder: String,
    /// Every step and what the server sent, where it was wanted.
    pub recording: Vec<(Step, Vec<Sent>)>,
}

/// A world at work.
#[derive(Debug)]
pub struct World {
    now: Timestamp,
    address: SocketAddr,
    server: Mutant,
    agents: Vec<Agent>,
    places: BTreeMap<SocketAddr, usize>,
    network: Network,
    invariants: Invariants,
    ladder: Option<Ladder>,
    recording: Option<Vec<(Step, Vec<Sent>)>>,
    steps: u64,
    tells_unreachable: bool,
}

impl World {
    /// Runs `scenario` to its end, or to the first rule that is broken. A panic of the core is a broken rule too.
    #[must_use]
    pub fn run(scenario: &Scenario, seed: u64, options: Options) -> Outcome {
        let mut world = Self::new(scenario, seed, options);
        let violation = match catch_unwind(AssertUnwindSafe(|| world.run_to_end())) {
            Ok(result) => result.err(),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
                Some(Violation { at: world.now, rule: Rule::Panic, detail: text.to_owned() })
            }
        };
        let mut tally = Tally::default();
        world.agents.iter().for_each(|agent| tally.add(&agent.tally));
        Outcome {
            violation,
            steps: world.steps,
            tally,
            ladder: world.ladder.map(Ladder::into_text).unwrap_or_default(),
            recording: world.recording.unwrap_or_default(),
        }
    }

    fn new(scenario: &Scenario, seed: u64, options: Options) -> Self {
        let mut rng = Rng::new(seed ^ 0xA5A5_5A5A);
        let network = Network::new(scenario.weather, rng.fork());
        let server = Server::new(scenario.shards, server_seed(seed), Arc::clone(&scenario.snapshot));
        let agent = |(number, phone): (usize, &crate::agent::Phone)| {
            Agent::new(number, phone.clone(), scenario.server, rng.fork())
        };
        let agents: Vec<_> = scenario.phones.iter().enumerate().map(agent).collect();
        Self {
            now: Timestamp::ZERO,
            address: scenario.server,
            server: Mutant::new(server, scenario.server, options.bug),
            places: agents.iter().enumerate().map(|(number, agent)| (agent.address(), number)).collect(),
            agents,
            network,
            invariants: Invariants::new(Arc::clone(&scenario.snapshot)),
            ladder: options.ladder.then(Ladder::default),
            recording: options.recording.then(Vec::new),
            steps: 0,
            tells_unreachable: scenario.tells_unreachable,
        }
    }

    fn run_to_end(&mut self) -> Result<(), Violation> {
        while let Some((at, next)) = self.next() {
            if at > END || self.steps > MAX_STEPS {
                let detail = format!("still busy after {} steps", self.steps);
                return Err(Violation { at: self.now, rule: Rule::Quiescence, detail });
            }
            // A deadline that passed while nothing was done about it is due now.
            self.now = self.now.max(at);
            match next {
                Next::Network => self.deliver()?,
                Next::Agent(number) => {
                    self.agents[number].handle_timeout(self.now);
                    self.collect(number);
                }
                Next::Shard(shard) => self.step(&Step::Timeout { at: self.now, shard })?,
            }
        }
        self.invariants.check_end(self.now, self.server.inner())
    }

    fn next(&self) -> Option<(Timestamp, Next)> {
        let network = self.network.next_arrival().map(|at| (at, Next::Network));
        let agents = self.agents.iter().enumerate();
        let agents = agents.filter_map(|(number, agent)| Some((agent.poll_timeout()?, Next::Agent(number))));
        let shard = self.server.next_timeout().map(|(at, shard)| (at, Next::Shard(shard)));
        network.into_iter().chain(agents).chain(shard).min()
    }

    fn deliver(&mut self) -> Result<(), Violation> {
        let Some(datagram) = self.network.deliver() else { return Ok(()) };
        if let Some(ladder) = &mut self.ladder {
            ladder.arrived(self.now, datagram.from, datagram.to, &datagram.bytes);
        }
        if datagram.to == self.address {
            return self.step(&Step::Datagram { at: self.now, from: datagram.from, bytes: datagram.bytes });
        }
        match self.places.get(&datagram.to).copied() {
            Some(number) => {
                self.agents[number].handle_datagram(self.now, datagram.from, &datagram.bytes);
                self.collect(number);
                Ok(())
            }
            None if self.tells_unreachable && datagram.from == self.address => {
                self.step(&Step::Unreachable { at: self.now, peer: datagram.to })
            }
            None => Ok(()),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), Violation> {
        self.steps += 1;
        let before = self.server.next_timeout();
        let sent = self.server.handle(step);
        if let Some(ladder) = &mut self.ladder {
            sent.iter().for_each(|sent| ladder.sent(self.now, self.address, sent.to, &sent.bytes));
        }
        for message in &sent {
            self.network.send(self.now, self.address, message.to, &message.bytes);
        }
        if let Some(recording) = &mut self.recording {
            recording.push((step.clone(), sent.clone()));
        }
        if matches!(step, Step::Timeout { .. }) && sent.is_empty() && self.server.next_timeout() == before {
            let detail = format!("{before:?} stays due after it was served");
            return Err(Violation { at: self.now, rule: Rule::Timers, detail });
        }
        self.server.inner().check_invariants();
        self.invariants.check_step(self.now, step, &sent, self.server.inner())
    }

    /// Takes what an agent sends.
    fn collect(&mut self, number: usize) {
        let from = self.agents[number].address();
        while let Some((to, bytes)) = self.agents[number].poll_transmit() {
            if let Some(ladder) = &mut self.ladder {
                ladder.sent(self.now, from, to, &bytes);
            }
            self.network.send(self.now, from, to, &bytes);
        }
    }
}

/// What happens next; in this order where several are due at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Network,
    Agent(usize),
    Shard(usize),
}

impl Tally {
    /// Adds another's.
    pub const fn add(&mut self, other: &Self) {
        self.registered += other.registered;
        self.answered += other.answered;
        self.refused += other.refused;
        self.delivered += other.delivered;
        self.unanswered += other.unanswered;
    }
}

/// The seed of the server's keys and maps in the world of `seed`.
#[must_use]
pub const fn server_seed(seed: u64) -> u64 {
    seed.rotate_left(32) ^ 0x0123_4567_89AB_CDEF
}

/// A moment as ladders and violations show it.
#[must_use]
pub fn seconds(at: Timestamp) -> String {
    let since: Duration = at - Timestamp::ZERO;
    format!("{:9.3}s", since.as_secs_f64())
}
