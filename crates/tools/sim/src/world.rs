//! A world: a server, its phones and the network between them, on one virtual clock.

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use strowger_foundation::{ConnId, Flow, ListenerId, Timestamp, Transport};

use crate::agent::{Agent, Tally};
use crate::dns::Dns;
use crate::invariants::{Invariants, Rule, RuleCoverage, Violation};
use crate::ladder::Ladder;
use crate::mutant::{self, Bug, Mutant};
use crate::network::Network;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::server::{DnsQuery, SentMessage, Server, Step};
use crate::store::{DiskFailure, ProcessEnd, Store, StoreStats};
use crate::streams::Streams;

/// End of a run, long after all scripts have ended and all bindings have expired.
const END: Timestamp = Timestamp::from_millis(3 * 3600 * 1000);
/// Limit of steps, above that of any scenario; a run that reaches it is in a loop.
const MAX_STEPS: u64 = 200_000;

/// Options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether to record a trace of all messages.
    pub ladder: bool,
    /// Whether to record every step with the messages that the server sent.
    pub recording: bool,
    /// Bug to plant.
    pub bug: Option<Bug>,
}

/// Result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// First violated rule.
    pub violation: Option<Violation>,
    /// Number of steps of the server.
    pub steps: u64,
    /// Results of all phones together.
    pub tally: Tally,
    /// Coverage of the rules for forks and connections.
    pub coverage: RuleCoverage,
    /// Statistics of the store.
    pub store_stats: StoreStats,
    /// Number of processes that ended.
    pub ends: u64,
    /// Trace of the messages, if requested.
    pub ladder: String,
    /// Every step with the messages that the server sent, if requested.
    pub recording: Vec<(Step, Vec<SentMessage>)>,
}

/// State of a running world.
#[derive(Debug)]
pub struct World {
    pub(crate) now: Timestamp,
    address: SocketAddr,
    pub(crate) server: Mutant,
    agents: Vec<Agent>,
    places: BTreeMap<SocketAddr, usize>,
    pub(crate) network: Network,
    pub(crate) streams: Streams,
    dns: Dns,
    /// Events other than messages and timers, by time and sequence.
    events: BTreeMap<(Timestamp, u64), Event>,
    serial: u64,
    pub(crate) invariants: Invariants,
    ladder: Option<Ladder>,
    recording: Option<Vec<(Step, Vec<SentMessage>)>>,
    pub(crate) steps: u64,
    tells_unreachable: bool,
    pub(crate) scenario: Scenario,
    pub(crate) seed: u64,
    pub(crate) bug: Option<Bug>,
    pub(crate) store: Store,
    /// Whether the server is down, between two processes.
    pub(crate) is_down: bool,
    /// Number of the current process, or of the last one.
    pub(crate) life: u64,
    /// Records of earlier processes that are still to be read.
    pub(crate) unread: VecDeque<Vec<u8>>,
    /// Records removed while others are being read.
    pub(crate) taken: Vec<Vec<u8>>,
    /// Rule coverage of the processes that have ended.
    pub(crate) witnessed: RuleCoverage,
}

impl World {
    /// Runs `scenario` to its end or to the first violated rule. A panic of the core is a violation as well.
    #[must_use]
    pub fn run(scenario: &Scenario, seed: u64, options: Options) -> Outcome {
        let mut world = Self::new(scenario, seed, options);
        let run = AssertUnwindSafe(|| world.begin().and_then(|()| world.run_to_end()));
        let violation = match catch_unwind(run) {
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
            coverage: {
                world.witnessed.add(&world.invariants.coverage());
                world.witnessed
            },
            store_stats: world.store.done,
            ends: world.life,
            ladder: world.ladder.map(Ladder::into_text).unwrap_or_default(),
            recording: world.recording.unwrap_or_default(),
        }
    }

    fn new(scenario: &Scenario, seed: u64, options: Options) -> Self {
        let mut rng = Rng::new(seed ^ 0xA5A5_5A5A);
        let network = Network::new(scenario.network_conditions, rng.fork());
        let store = Store::new(Rng::new(seed ^ 0x0057_0DE5), scenario.faults.slow_per_mille, options.bug);
        let agent = |(number, phone): (usize, &crate::agent::Phone)| {
            Agent::new(number, phone.clone(), scenario.server, rng.fork())
        };
        let agents: Vec<_> = scenario.phones.iter().enumerate().map(agent).collect();
        let reachable = |(number, phone): (usize, &crate::agent::Phone)| {
            (phone.transport == Transport::Tcp && phone.address == phone.own_address).then_some((phone.address, number))
        };
        let listening = scenario.phones.iter().enumerate().filter_map(reachable).collect();
        let configured = mutant::configured(&scenario.snapshot, options.bug);
        let server = Server::new(scenario.shards, server_seed(seed), configured);
        let mut world = Self {
            now: Timestamp::ZERO,
            streams: Streams::new(scenario.connection_faults, rng.fork(), scenario.server, listening),
            dns: Dns::new(scenario.zone.clone(), rng.fork()),
            events: BTreeMap::new(),
            serial: 0,
            address: scenario.server,
            server: Mutant::new(server, scenario.server, options.bug),
            places: agents
                .iter()
                .enumerate()
                .filter(|(_, agent)| agent.transport() == Transport::Udp)
                .map(|(number, agent)| (agent.address(), number))
                .collect(),
            agents,
            network,
            invariants: Invariants::new(Arc::clone(&scenario.snapshot)),
            ladder: options.ladder.then(Ladder::default),
            recording: options.recording.then(Vec::new),
            steps: 0,
            tells_unreachable: scenario.tells_unreachable,
            scenario: scenario.clone(),
            seed,
            bug: options.bug,
            store,
            is_down: false,
            life: 0,
            unread: VecDeque::new(),
            taken: Vec::new(),
            witnessed: RuleCoverage::default(),
        };
        world.schedule_faults();
        world
    }

    fn run_to_end(&mut self) -> Result<(), Violation> {
        while let Some((at, next)) = self.next() {
            if at > END || self.steps > MAX_STEPS {
                let detail = format!("still busy after {} steps", self.steps);
                return Err(Violation { at: self.now, rule: Rule::Quiescence, detail });
            }
            // A deadline that has passed is due now.
            self.now = self.now.max(at);
            match next {
                EventSource::Network => self.deliver()?,
                EventSource::Event => self.on_event()?,
                EventSource::Agent(number) => {
                    self.agents[number].handle_timeout(self.now);
                    self.collect(number);
                }
                EventSource::Shard(shard) => self.step(&Step::Timeout { at: self.now, shard })?,
            }
        }
        self.invariants.check_end(self.now, self.server.inner())
    }

    fn next(&self) -> Option<(Timestamp, EventSource)> {
        let network = self.network.next_arrival().map(|at| (at, EventSource::Network));
        let agents = self.agents.iter().enumerate();
        let agents = agents.filter_map(|(number, agent)| Some((agent.poll_timeout()?, EventSource::Agent(number))));
        let shard = self.server.next_timeout().filter(|_| !self.is_down);
        let shard = shard.map(|(at, shard)| (at, EventSource::Shard(shard)));
        let news = self.events.first_key_value().map(|((at, _), _)| (*at, EventSource::Event));
        network.into_iter().chain(news).chain(agents).chain(shard).min()
    }

    fn deliver(&mut self) -> Result<(), Violation> {
        let Some(packet) = self.network.deliver() else { return Ok(()) };
        // Messages in transit on a closed connection are lost.
        if packet.connection.is_some_and(|connection| self.streams.open(connection).is_none()) {
            return Ok(());
        }
        if let Some(ladder) = &mut self.ladder {
            ladder.arrived(self.now, packet.from, packet.to, &packet.bytes);
        }
        if packet.to == self.address && self.is_down {
            return Ok(());
        }
        if packet.to == self.address {
            let flow = match packet.connection {
                Some(connection) => Flow::on_connection(STREAMS, Transport::Tcp, packet.from, connection),
                None => Flow::new(DATAGRAMS, Transport::Udp, packet.from),
            };
            return self.step(&Step::Message { at: self.now, flow, bytes: packet.bytes });
        }
        let stream = packet.connection.and_then(|connection| Some((connection, self.streams.open(connection)?.agent)));
        let (number, flow) = match stream {
            Some((connection, agent)) => {
                (Some(agent), Flow::on_connection(DATAGRAMS, Transport::Tcp, packet.from, connection))
            }
            None => (self.places.get(&packet.to).copied(), Flow::new(DATAGRAMS, Transport::Udp, packet.from)),
        };
        match number {
            Some(number) => {
                self.agents[number].handle_message(self.now, flow, &packet.bytes);
                self.collect(number);
                Ok(())
            }
            None if self.tells_unreachable && packet.from == self.address && !self.is_down => {
                self.step(&Step::Unreachable { at: self.now, peer: packet.to })
            }
            None => Ok(()),
        }
    }

    /// Handles the next event other than messages and timers.
    fn on_event(&mut self) -> Result<(), Violation> {
        match self.events.pop_first().map(|(_, news)| news) {
            Some(Event::Server(life, step)) => {
                if life == self.life && !self.is_down {
                    self.step(&step)
                } else {
                    Ok(())
                }
            }
            Some(Event::Store(happens)) => self.on_store_event(happens),
            Some(Event::Forgotten(_)) if self.is_down => Ok(()),
            Some(Event::Forgotten(aor)) => self.step(&Step::Forget { at: self.now, aor }),
            Some(Event::Cut(connection)) => {
                let Some(stream) = self.streams.cut(connection) else { return Ok(()) };
                if let Some(ladder) = &mut self.ladder {
                    ladder.cut(self.now, stream.peer, connection);
                }
                let told = self.now + self.network.delay();
                self.schedule(told, Event::Lost(stream.agent, connection));
                if self.is_down {
                    return Ok(());
                }
                self.step(&Step::Closed { at: self.now, connection, peer: stream.peer })
            }
            Some(Event::Lost(agent, connection)) => {
                self.agents[agent].handle_closed(self.now, connection);
                self.collect(agent);
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(ladder) = &mut self.ladder {
            ladder.note(self.now, &text());
        }
    }

    pub(crate) fn schedule(&mut self, at: Timestamp, news: Event) {
        self.serial += 1;
        self.events.insert((at, self.serial), news);
    }

    /// Transmits a message that the server sent.
    fn transmit(&mut self, sent: &SentMessage) {
        if !sent.flow.transport.is_reliable() {
            self.network.send(self.now, self.address, sent.flow.peer, &sent.bytes);
            return;
        }
        let Some((connection, end)) = self.streams.connection_for(self.now, &sent.flow) else {
            let at = self.now + self.network.delay();
            let step = Step::Unconnected { at, shard: sent.shard, flow: sent.flow };
            self.schedule(at, Event::Server(self.life, step));
            return;
        };
        if let Some(end) = end {
            self.schedule(end, Event::Cut(connection));
        }
        self.streams.send(self.now, &mut self.network, connection, false, &sent.bytes);
    }

    fn query_dns(&mut self, asked: &DnsQuery) {
        let (answer, delay, ttl) = self.dns.query(self.now - Timestamp::ZERO);
        let (at, asked) = (self.now + delay, asked.clone());
        self.schedule(at, Event::Server(self.life, Step::Resolved { at, asked, answer, ttl }));
    }

    pub(crate) fn step(&mut self, step: &Step) -> Result<(), Violation> {
        self.steps += 1;
        let before = self.server.next_timeout();
        let sent = self.server.handle(step);
        if let Some(ladder) = &mut self.ladder {
            sent.iter().for_each(|sent| ladder.sent(self.now, self.address, sent.flow.peer, &sent.bytes));
        }
        sent.iter().for_each(|sent| self.transmit(sent));
        let asked = self.server.take_queries();
        asked.iter().for_each(|asked| self.query_dns(asked));
        if let Some(recording) = &mut self.recording {
            recording.push((step.clone(), sent.clone()));
        }
        if matches!(step, Step::Timeout { .. }) && sent.is_empty() && self.server.next_timeout() == before {
            let detail = format!("{before:?} stays due after it was served");
            return Err(Violation { at: self.now, rule: Rule::Timers, detail });
        }
        self.server.inner().check_invariants();
        let records = self.server.take_records(self.now);
        self.invariants.check_step(self.now, step, &sent, &asked, &records, self.server.inner())?;
        self.keep(records);
        if self.steps.is_multiple_of(4) {
            self.invariants.check_bindings(self.now, self.server.inner())?;
        }
        Ok(())
    }

    /// Collects and transmits what an agent sends.
    fn collect(&mut self, number: usize) {
        let from = self.agents[number].address();
        while let Some((flow, bytes)) = self.agents[number].poll_transmit() {
            if let Some(ladder) = &mut self.ladder {
                ladder.sent(self.now, from, flow.peer, &bytes);
            }
            if flow.transport.is_reliable() {
                let connection = self.connection_of(number, &flow);
                self.streams.send(self.now, &mut self.network, connection, true, &bytes);
            } else {
                self.network.send(self.now, from, flow.peer, &bytes);
            }
        }
    }

    /// Returns the connection for an agent's message: that of the flow, otherwise an open one, otherwise a new one.
    fn connection_of(&mut self, number: usize, flow: &Flow) -> ConnId {
        let open = flow.connection.filter(|connection| self.streams.open(*connection).is_some());
        if let Some(connection) = open.or_else(|| self.streams.of_agent(number)) {
            return connection;
        }
        let (connection, end) = self.streams.connect(self.now, number, self.agents[number].address());
        if let Some(end) = end {
            self.schedule(end, Event::Cut(connection));
        }
        connection
    }
}

/// Listeners of every scenario.
const DATAGRAMS: ListenerId = ListenerId(0);
const STREAMS: ListenerId = ListenerId(1);

/// Event other than a message or a timer.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// Input for the process with this number.
    Server(u64, Step),
    /// Event of the store or the process.
    Store(StoreEvent),
    /// Removal of a user.
    Forgotten(Vec<u8>),
    /// Closing of a connection; the server is notified at once.
    Cut(ConnId),
    /// Notification of an agent that its connection was closed.
    Lost(usize, ConnId),
}

/// Source of the next event, in the order of precedence at equal times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EventSource {
    Network,
    Event,
    Agent(usize),
    Shard(usize),
}

impl Tally {
    /// Adds another tally.
    pub const fn add(&mut self, other: &Self) {
        self.registered += other.registered;
        self.answered += other.answered;
        self.refused += other.refused;
        self.delivered += other.delivered;
        self.unanswered += other.unanswered;
    }
}

/// Returns the seed of the server's keys and maps in the world of `seed`.
#[must_use]
pub const fn server_seed(seed: u64) -> u64 {
    seed.rotate_left(32) ^ 0x0123_4567_89AB_CDEF
}

/// Event of the store or the process. A number restricts the event to the process with that number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StoreEvent {
    Committed(u64),
    Recovery(u64),
    Checkpoint,
    Checkpointed(u64),
    Fails(DiskFailure),
    Heals,
    WallJumps(i64),
    Ends(ProcessEnd),
    Begins,
    Reads(u64),
}
