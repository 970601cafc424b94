//! The production core as one process: all shards, steered as a shell would.

use core::net::SocketAddr;
use core::ops::Range;
use core::time::Duration;
use std::sync::Arc;

use strowger_auth::NonceWindows;
use strowger_foundation::{ConnId, Flow, KeyRing, ShardId, TagKey, Timestamp};
use strowger_locate::{Answer, CachePolicy, Names, Outages, QueryId, Question};
use strowger_message::Peek;
use strowger_registrar::Locations;
use strowger_shard::{Event, Input, Output, Shard, ShardConfig, Snapshot, Steering};

/// A message that the server sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Which shard's it is: it is told where the message cannot be sent.
    pub shard: usize,
    /// Where to, and by which connection.
    pub flow: Flow,
    /// What it says.
    pub bytes: Vec<u8>,
}

/// A question that the server asks of the DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Who asks.
    pub shard: usize,
    /// Its name.
    pub query: QueryId,
    /// What is asked.
    pub question: Question,
}

/// One thing that was done to the server; a run is the sequence of these.
#[derive(Clone, Debug)]
pub enum Step {
    /// A message came.
    Message {
        /// When.
        at: Timestamp,
        /// From where, and by which connection.
        flow: Flow,
        /// What it says.
        bytes: Vec<u8>,
    },
    /// Datagrams to an address are refused.
    Unreachable {
        /// When.
        at: Timestamp,
        /// The address.
        peer: SocketAddr,
    },
    /// A connection was closed.
    Closed {
        /// When.
        at: Timestamp,
        /// Which.
        connection: ConnId,
        /// Whose.
        peer: SocketAddr,
    },
    /// What a shard sent could not be sent.
    Unconnected {
        /// When.
        at: Timestamp,
        /// Whose.
        shard: usize,
        /// As it was sent to.
        flow: Flow,
    },
    /// The DNS answered.
    Resolved {
        /// When.
        at: Timestamp,
        /// What was asked, and by whom.
        asked: Asked,
        /// The answer.
        answer: Answer,
        /// How long it may be kept.
        ttl: Duration,
    },
    /// A shard's timers were due.
    Timeout {
        /// When.
        at: Timestamp,
        /// Whose.
        shard: usize,
    },
}

/// All shards of one process.
#[derive(Debug)]
pub struct Server {
    shards: Vec<Shard>,
    steering: Steering,
    locations: Arc<Locations>,
    names: Arc<Names>,
    snapshot: Arc<Snapshot>,
    questions: Vec<Asked>,
    events: u64,
    /// The shards that the last step went to.
    touched: Range<usize>,
}

impl Server {
    /// A server of `shards` shards, whose keys and seeds follow from `seed`.
    #[must_use]
    pub fn new(shards: u16, seed: u64, snapshot: Arc<Snapshot>) -> Self {
        let mut key = [0x5A; 16];
        for (byte, seed) in key.iter_mut().zip(seed.to_le_bytes()) {
            *byte = seed;
        }
        let ring = KeyRing::new(TagKey::new(key));
        let locations = Arc::new(Locations::new(shards, seed));
        let nonces = Arc::new(NonceWindows::new(4, seed));
        let names = Arc::new(Names::new(CachePolicy::default(), seed));
        let outages = Arc::new(Outages::new(seed));
        let shard = |id| {
            Shard::new(ShardConfig {
                id: ShardId(id),
                seed: seed.wrapping_add(u64::from(id)),
                ring,
                locations: Arc::clone(&locations),
                nonces: Arc::clone(&nonces),
                names: Arc::clone(&names),
                outages: Arc::clone(&outages),
                snapshot: Arc::clone(&snapshot),
            })
        };
        let steering = Steering::new(&ring, Arc::clone(&locations), shards);
        Self {
            shards: (0..shards).map(shard).collect(),
            steering,
            locations,
            names,
            snapshot,
            questions: Vec::new(),
            events: 0,
            touched: 0..0,
        }
    }

    /// Takes what the last step asked of the DNS.
    pub fn take_questions(&mut self) -> Vec<Asked> {
        core::mem::take(&mut self.questions)
    }

    /// Does one step and gives what was sent.
    pub fn handle(&mut self, step: &Step) -> Vec<Sent> {
        self.touched = 0..0;
        match step {
            Step::Message { at, flow, bytes } => self.handle_message(*at, *flow, bytes),
            Step::Unreachable { at, peer } => self.tell_all(*at, || Input::Unreachable { peer: *peer }),
            Step::Closed { at, connection, peer } => {
                self.tell_all(*at, || Input::Closed { connection: *connection, peer: *peer })
            }
            Step::Unconnected { at, shard, flow } => {
                self.shards[*shard].handle_input(*at, Input::Unconnected { flow: *flow });
                self.drain(*shard)
            }
            Step::Resolved { at, asked, answer, ttl } => {
                self.names.insert(*at, &asked.question, answer.clone(), *ttl);
                let input = Input::Resolved { query: asked.query, answer: answer.clone() };
                self.shards[asked.shard].handle_input(*at, input);
                self.drain(asked.shard)
            }
            Step::Timeout { at, shard } => {
                self.shards[*shard].handle_timeout(*at);
                self.drain(*shard)
            }
        }
    }

    /// The earliest moment at which a shard has something to do, and which.
    #[must_use]
    pub fn next_timeout(&self) -> Option<(Timestamp, usize)> {
        let due = |(number, shard): (usize, &Shard)| Some((shard.poll_timeout()?.at, number));
        self.shards.iter().enumerate().filter_map(due).min()
    }

    /// Transactions that exist.
    #[must_use]
    pub fn transactions(&self) -> usize {
        self.shards.iter().map(Shard::transactions).sum()
    }

    /// The location table.
    #[must_use]
    pub fn locations(&self) -> &Locations {
        &self.locations
    }

    /// The configuration.
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Events for the operator so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// What must hold between two steps, of all that the last one may have changed.
    pub fn check_invariants(&self) {
        self.shards[self.touched.clone()].iter().for_each(Shard::check_invariants);
        self.locations.check_invariants();
    }

    fn handle_message(&mut self, now: Timestamp, flow: Flow, bytes: &[u8]) -> Vec<Sent> {
        let Ok(peek) = Peek::read(bytes) else { return Vec::new() };
        let Some(shard) = self.steering.shard_of(&peek, &self.snapshot) else { return Vec::new() };
        let shard = usize::from(shard.0);
        self.shards[shard].handle_input(now, Input::Message { arrival: now, flow, peek });
        self.drain(shard)
    }

    fn tell_all(&mut self, now: Timestamp, input: impl Fn() -> Input<'static>) -> Vec<Sent> {
        let mut sent = Vec::new();
        for shard in 0..self.shards.len() {
            self.shards[shard].handle_input(now, input());
            sent.extend(self.drain(shard));
        }
        sent
    }

    fn drain(&mut self, shard: usize) -> Vec<Sent> {
        self.touched = if self.touched.is_empty() { shard..shard + 1 } else { self.touched.start..shard + 1 };
        let (mut sent, mut buffer) = (Vec::new(), Vec::new());
        while let Some(output) = self.shards[shard].poll_output(&mut buffer) {
            match output {
                Output::Send { flow } => sent.push(Sent { shard, flow, bytes: buffer.clone() }),
                Output::Resolve { query, question } => self.questions.push(Asked { shard, query, question }),
                Output::Event(Event::TableFull { table }) => panic!("the table of {table} is full in a small world"),
                Output::Event(_) => self.events += 1,
            }
        }
        sent
    }
}
