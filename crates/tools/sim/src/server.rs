//! The production core as one process: all shards, steered as a shell would.

use core::net::SocketAddr;
use core::ops::Range;
use std::sync::Arc;

use strowger_auth::NonceWindows;
use strowger_foundation::{Flow, KeyRing, ListenerId, ShardId, TagKey, Timestamp, Transport};
use strowger_locate::{CachePolicy, Names, Outages};
use strowger_message::Peek;
use strowger_registrar::Locations;
use strowger_shard::{Event, Input, Output, Shard, ShardConfig, Snapshot, Steering};

/// A message that the server sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The destination.
    pub to: SocketAddr,
    /// What it says.
    pub bytes: Vec<u8>,
}

/// One thing that was done to the server; a run is the sequence of these.
#[derive(Clone, Debug)]
pub enum Step {
    /// A datagram came.
    Datagram {
        /// When.
        at: Timestamp,
        /// From where.
        from: SocketAddr,
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
    snapshot: Arc<Snapshot>,
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
        let shard = |id| {
            Shard::new(ShardConfig {
                id: ShardId(id),
                seed: seed.wrapping_add(u64::from(id)),
                ring,
                locations: Arc::clone(&locations),
                nonces: Arc::clone(&nonces),
                names: Arc::new(Names::new(CachePolicy::default(), 1)),
                outages: Arc::new(Outages::new(1)),
                snapshot: Arc::clone(&snapshot),
            })
        };
        let steering = Steering::new(&ring, Arc::clone(&locations), shards);
        Self { shards: (0..shards).map(shard).collect(), steering, locations, snapshot, events: 0, touched: 0..0 }
    }

    /// Does one step and gives what was sent.
    pub fn handle(&mut self, step: &Step) -> Vec<Sent> {
        self.touched = 0..0;
        match step {
            Step::Datagram { at, from, bytes } => self.handle_datagram(*at, *from, bytes),
            Step::Unreachable { at, peer } => (0..self.shards.len())
                .flat_map(|shard| {
                    self.shards[shard].handle_input(*at, Input::Unreachable { peer: *peer });
                    self.drain(shard)
                })
                .collect(),
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

    fn handle_datagram(&mut self, now: Timestamp, from: SocketAddr, bytes: &[u8]) -> Vec<Sent> {
        let Ok(peek) = Peek::read(bytes) else { return Vec::new() };
        let Some(shard) = self.steering.shard_of(&peek, &self.snapshot) else { return Vec::new() };
        let shard = usize::from(shard.0);
        let flow = Flow::new(ListenerId(0), Transport::Udp, from);
        self.shards[shard].handle_input(now, Input::Message { arrival: now, flow, peek });
        self.drain(shard)
    }

    fn drain(&mut self, shard: usize) -> Vec<Sent> {
        self.touched = if self.touched.is_empty() { shard..shard + 1 } else { self.touched.start..shard + 1 };
        let (mut sent, mut buffer) = (Vec::new(), Vec::new());
        while let Some(output) = self.shards[shard].poll_output(&mut buffer) {
            match output {
                Output::Send { flow } => sent.push(Sent { to: flow.peer, bytes: buffer.clone() }),
                Output::Resolve { question, .. } => {
                    panic!("nothing in this world has a name, but {question:?} is asked")
                }
                Output::Event(Event::TableFull { table }) => panic!("the table of {table} is full in a small world"),
                Output::Event(_) => self.events += 1,
            }
        }
        sent
    }
}
