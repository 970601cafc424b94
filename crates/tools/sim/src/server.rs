//! The production core as one process: all shards, with inputs steered as in the shell.

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use core::time::Duration;
use std::sync::Arc;

use strowger_auth::NonceWindows;
use strowger_foundation::{ConnId, Flow, KeyRing, ShardId, TagKey, Timestamp};
use strowger_locate::{CachePolicy, LocateQuery, LocateResult, NameCache, Outages, QueryId};
use strowger_message::Peek;
use strowger_registrar::{BindingView, ContactTarget, Locations, Record};
use strowger_shard::{
    Classifier, Counters, Event, Input, Inquiry, Neighbours, Output, ProvenSources, Shard, ShardConfig, Shedding,
    Snapshot, Steering, SteeringResult, Verdict,
};

/// Message that the server sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentMessage {
    /// Shard that sent it; it is notified if the message cannot be sent.
    pub shard: usize,
    /// Destination and connection.
    pub flow: Flow,
    /// Content.
    pub bytes: Vec<u8>,
}

/// Outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageOutcome {
    /// Not SIP, or a response to nothing that the server sent.
    Ignored,
    /// Dropped by overload control.
    Dropped,
    /// Rejected by overload control with 503.
    Refused,
    /// Retransmission to an existing transaction.
    Retransmission,
    /// Served by a shard.
    Served,
}

/// Outcome of a message, and the messages sent in reaction.
#[derive(Clone, Debug)]
pub struct HandleResult {
    /// Outcome.
    pub fate: MessageOutcome,
    /// Sent messages.
    pub sent: Vec<SentMessage>,
}

/// DNS query of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsQuery {
    /// Shard that sent it.
    pub shard: usize,
    /// Identifier.
    pub query: QueryId,
    /// Question.
    pub question: LocateQuery,
}

/// Record for the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRecord {
    /// Shard to notify of the outcome.
    pub shard: usize,
    /// Identifier; `None` if nothing waits for the outcome.
    pub ticket: Option<u64>,
    /// Content.
    pub record: Vec<u8>,
}

/// Input to the server; a run is a sequence of steps.
#[derive(Clone, Debug)]
pub enum Step {
    /// A message arrived.
    Message {
        /// Time.
        at: Timestamp,
        /// Source and connection.
        flow: Flow,
        /// Content.
        bytes: Vec<u8>,
    },
    /// Datagrams to an address were refused.
    Unreachable {
        /// Time.
        at: Timestamp,
        /// Refusing address.
        peer: SocketAddr,
    },
    /// A connection was closed.
    Closed {
        /// Time.
        at: Timestamp,
        /// Closed connection.
        connection: ConnId,
        /// Peer of the connection.
        peer: SocketAddr,
    },
    /// A message of a shard could not be sent.
    Unconnected {
        /// Time.
        at: Timestamp,
        /// Shard that sent it.
        shard: usize,
        /// Destination and connection.
        flow: Flow,
    },
    /// A DNS query was answered.
    Resolved {
        /// Time.
        at: Timestamp,
        /// Query.
        asked: DnsQuery,
        /// The answer.
        answer: LocateResult,
        /// TTL of the answer.
        ttl: Duration,
    },
    /// Timers of a shard are due.
    Timeout {
        /// Time.
        at: Timestamp,
        /// Shard.
        shard: usize,
    },
    /// The outcome of a record with a ticket is known.
    Stored {
        /// Time.
        at: Timestamp,
        /// Shard that sent it.
        shard: usize,
        /// Identifier.
        ticket: u64,
        /// Content.
        record: Vec<u8>,
        /// Whether it was stored.
        kept: bool,
    },
    /// The operator removed a user.
    Forget {
        /// Time.
        at: Timestamp,
        /// Address of record.
        aor: Vec<u8>,
    },
    /// The operator removed registrations of a user who remains.
    Unregister {
        /// Time.
        at: Timestamp,
        /// Address of record.
        aor: Vec<u8>,
        /// Contact to remove; `None` removes all.
        contact: Option<Vec<u8>>,
    },
    /// A record of an earlier process was read.
    Restored {
        /// Time.
        at: Timestamp,
        /// Content.
        record: Vec<u8>,
    },
    /// All records of earlier processes were read.
    Complete {
        /// Time.
        at: Timestamp,
    },
}

/// Initial state of a process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessStart {
    /// Start in the time of the world; the process's own clock starts at zero then.
    pub at: Timestamp,
    /// Number of the process, from 0.
    pub life: u64,
    /// Store time at the start, in ns; `None` without a store.
    pub store_ns: Option<u64>,
}

/// All shards of one process.
#[derive(Debug)]
pub struct Server {
    shards: Vec<Shard>,
    steering: Steering,
    locations: Arc<Locations>,
    names: Arc<NameCache>,
    proven: Arc<ProvenSources>,
    shedding: Arc<Shedding>,
    snapshot: Arc<Snapshot>,
    questions: Vec<DnsQuery>,
    records: Vec<PendingRecord>,
    events: u64,
    born: Timestamp,
    /// Shards that the last step reached.
    touched: Range<usize>,
}

impl Server {
    /// Creates a server with `shards` shards, whose keys and seeds derive from `seed`.
    #[must_use]
    pub fn new(shards: u16, seed: u64, snapshot: Arc<Snapshot>) -> Self {
        let birth = ProcessStart { at: Timestamp::ZERO, life: 0, store_ns: None };
        Self::begin(shards, seed, snapshot, birth)
    }

    /// Creates a server as [`new`](Self::new) does, as a later process: the keys stay the same, all other state is
    /// new.
    #[must_use]
    pub fn begin(shards: u16, seed: u64, snapshot: Arc<Snapshot>, birth: ProcessStart) -> Self {
        let mut key = [0x5A; 16];
        for (byte, seed) in key.iter_mut().zip(seed.to_le_bytes()) {
            *byte = seed;
        }
        let ring = KeyRing::new(TagKey::new(key));
        let listeners = snapshot.listeners.iter().map(|listener| (listener.transport, listener.address));
        let mut locations = Locations::new(shards, seed).with_listeners(listeners);
        if let Some(store_ns) = birth.store_ns {
            locations = locations.with_pending_source();
            locations.set_store_origin(store_ns);
        }
        let locations = Arc::new(locations);
        let life = seed.wrapping_add(birth.life.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let nonces = Arc::new(NonceWindows::new(4, life));
        let names = Arc::new(NameCache::new(CachePolicy::default(), life));
        let outages = Arc::new(Outages::new(life));
        let proven = Arc::new(ProvenSources::new(1));
        let (shedding, neighbours) = (Arc::<Shedding>::default(), Arc::new(Neighbours::new(life)));
        let shard = |id| {
            Shard::new(ShardConfig {
                id: ShardId(id),
                now: Timestamp::ZERO,
                seed: life.wrapping_add(u64::from(id)),
                ring,
                locations: Arc::clone(&locations),
                nonces: Arc::clone(&nonces),
                names: Arc::clone(&names),
                outages: Arc::clone(&outages),
                proven: Arc::clone(&proven),
                shedding: Arc::clone(&shedding),
                neighbours: Arc::clone(&neighbours),
                snapshot: Arc::clone(&snapshot),
            })
        };
        let steering = Steering::new(&ring, Arc::clone(&locations), shards);
        Self {
            shards: (0..shards).map(shard).collect(),
            steering,
            locations,
            names,
            proven,
            shedding,
            snapshot,
            questions: Vec::new(),
            records: Vec::new(),
            events: 0,
            born: birth.at,
            touched: 0..0,
        }
    }

    /// Returns the load shedding that the process announces.
    #[must_use]
    pub const fn shedding(&self) -> &Arc<Shedding> {
        &self.shedding
    }

    /// Takes the DNS queries of the last step.
    pub fn take_queries(&mut self) -> Vec<DnsQuery> {
        core::mem::take(&mut self.questions)
    }

    /// Takes the records for the store of the last step.
    pub fn take_records(&mut self) -> Vec<PendingRecord> {
        core::mem::take(&mut self.records)
    }

    /// Handles one step and returns the sent messages.
    pub fn handle(&mut self, step: &Step) -> Vec<SentMessage> {
        self.touched = 0..0;
        let now = self.local(step.at());
        match step {
            Step::Message { at, flow, bytes } => {
                self.handle_received(*at, (*at, *flow), bytes, |_, _, _| Verdict::Admit).sent
            }
            Step::Unreachable { peer, .. } => self.tell_all(now, || Input::Unreachable { peer: *peer }),
            Step::Closed { connection, peer, .. } => {
                self.tell_all(now, || Input::Closed { connection: *connection, peer: *peer })
            }
            Step::Unconnected { shard, flow, .. } => self.notify(now, *shard, Input::ConnectFailed { flow: *flow }),
            Step::Resolved { asked, answer, ttl, .. } => {
                self.names.insert(now, &asked.question, answer.clone(), *ttl);
                let input = Input::Resolved { query: asked.query, answer: answer.clone() };
                self.notify(now, asked.shard, input)
            }
            Step::Timeout { shard, .. } => {
                self.shards[*shard].handle_timeout(now);
                self.drain(*shard)
            }
            Step::Stored { shard, ticket, record, kept, .. } => {
                let input = Input::Stored { ticket: *ticket, record: record.clone(), is_durable: *kept };
                self.notify(now, *shard, input)
            }
            Step::Forget { aor, .. } => {
                let shard = usize::from(self.locations.shard_of(aor).0);
                self.notify(now, shard, Input::BarUser { aor })
            }
            Step::Unregister { aor, contact, .. } => {
                let shard = usize::from(self.locations.shard_of(aor).0);
                self.notify(now, shard, Input::Unregister { aor, contact: contact.as_deref() })
            }
            Step::Restored { record, .. } => {
                if let Ok(record) = Record::parse(record) {
                    self.locations.restore(now, &self.snapshot.registrar, &record);
                }
                Vec::new()
            }
            Step::Complete { .. } => {
                self.locations.complete_source();
                Vec::new()
            }
        }
    }

    /// Converts a time to the clock of the process.
    #[must_use]
    pub fn local(&self, at: Timestamp) -> Timestamp {
        Timestamp::ZERO + at.saturating_since(self.born)
    }

    fn notify(&mut self, now: Timestamp, shard: usize, input: Input<'_>) -> Vec<SentMessage> {
        self.shards[shard].handle_input(now, input);
        self.drain(shard)
    }

    /// Returns the earliest timeout and its shard.
    #[must_use]
    pub fn next_timeout(&self) -> Option<(Timestamp, usize)> {
        let world = |local: Timestamp| self.born + (local - Timestamp::ZERO);
        let due = |(number, shard): (usize, &Shard)| Some((world(shard.poll_timeout()?.at), number));
        self.shards.iter().enumerate().filter_map(due).min()
    }

    /// Returns the number of transactions.
    #[must_use]
    pub fn transactions(&self) -> usize {
        self.shards.iter().map(Shard::transactions).sum()
    }

    /// Looks up the targets of an address of record.
    pub fn lookup(&self, now: Timestamp, aor: &[u8], out: &mut Vec<ContactTarget>) {
        self.locations.lookup(self.local(now), aor, out);
    }

    /// Visits every binding that has not expired.
    pub fn for_each_binding(&self, now: Timestamp, mut visit: impl FnMut(&BindingView<'_>)) {
        for stripe in (0u16..).take(self.shards.len()) {
            self.locations.for_each_in_stripe(self.local(now), stripe, |view| visit(&view));
        }
    }

    /// Returns the location table; its times are in the clock of the process.
    #[must_use]
    pub fn locations(&self) -> &Locations {
        &self.locations
    }

    /// Returns whether a source is proven, i.e. its address is known to be real.
    #[must_use]
    pub fn has_proven(&self, source: IpAddr) -> bool {
        self.proven.contains(source)
    }

    /// Returns the configuration.
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Returns the number of events for the operator so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Checks the invariants of everything that the last step may have changed.
    pub fn check_invariants(&self) {
        self.shards[self.touched.clone()].iter().for_each(Shard::check_invariants);
        self.locations.check_invariants();
    }

    /// Handles a message that the kernel received at `arrival`, as a worker does.
    ///
    /// `judge` returns the verdict of overload control; a dropped message never reaches its shard.
    pub fn handle_received(
        &mut self,
        at: Timestamp,
        (arrival, flow): (Timestamp, Flow),
        bytes: &[u8],
        judge: impl FnOnce(&Classifier<'_>, &Peek<'_>, &SteeringResult) -> Verdict,
    ) -> HandleResult {
        self.touched = 0..0;
        let (now, arrival) = (self.local(at), self.local(arrival));
        let ignored = HandleResult { fate: MessageOutcome::Ignored, sent: Vec::new() };
        let Ok(peek) = &Peek::read(bytes) else { return ignored };
        let Some((shard, steered)) = &self.steering.steer(peek, &self.snapshot) else { return ignored };
        let classifier = Classifier { snapshot: &self.snapshot, locations: &self.locations, proven: &self.proven };
        let verdict = judge(&classifier, peek, steered);
        if verdict == Verdict::Drop {
            return HandleResult { fate: MessageOutcome::Dropped, sent: Vec::new() };
        }
        let number = usize::from(shard.0);
        let shard = &mut self.shards[number];
        let before = shard.counters();
        shard.prefetch(peek, steered);
        shard.handle_input(now, Input::Message { arrival, flow, peek, steering: steered, verdict });
        let fate = MessageOutcome::between(&before, &shard.counters());
        HandleResult { fate, sent: self.drain(number) }
    }

    fn tell_all(&mut self, now: Timestamp, input: impl Fn() -> Input<'static>) -> Vec<SentMessage> {
        let mut sent = Vec::new();
        for shard in 0..self.shards.len() {
            self.shards[shard].handle_input(now, input());
            sent.extend(self.drain(shard));
        }
        sent
    }

    fn drain(&mut self, shard: usize) -> Vec<SentMessage> {
        self.touched = if self.touched.is_empty() { shard..shard + 1 } else { self.touched.start..shard + 1 };
        let (mut sent, mut buffer) = (Vec::new(), Vec::new());
        while let Some(output) = self.shards[shard].poll_output(&mut buffer) {
            match output {
                Output::Send { flow } => sent.push(SentMessage { shard, flow, bytes: buffer.clone() }),
                Output::Ask(Inquiry::Dns { query, question }) => {
                    self.questions.push(DnsQuery { shard, query, question });
                }
                Output::Event(Event::TableFull { table }) => panic!("the table of {table} is full in a small world"),
                Output::Store { ticket, record } => self.records.push(PendingRecord { shard, ticket, record }),
                Output::Ask(Inquiry::Media { .. }) => panic!("no media engine is configured"),
                Output::Event(_) => self.events += 1,
            }
        }
        sent
    }
}

impl MessageOutcome {
    /// Derives the outcome of a message from a shard's counters before and after it.
    const fn between(before: &Counters, after: &Counters) -> Self {
        if after.overloaded != before.overloaded {
            Self::Refused
        } else if after.retransmissions != before.retransmissions {
            Self::Retransmission
        } else {
            Self::Served
        }
    }
}

impl Step {
    /// Returns the time of the step in the time of the world.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        match self {
            Self::Message { at, .. }
            | Self::Unreachable { at, .. }
            | Self::Closed { at, .. }
            | Self::Unconnected { at, .. }
            | Self::Resolved { at, .. }
            | Self::Timeout { at, .. }
            | Self::Stored { at, .. }
            | Self::Forget { at, .. }
            | Self::Unregister { at, .. }
            | Self::Restored { at, .. }
            | Self::Complete { at } => *at,
        }
    }
}
