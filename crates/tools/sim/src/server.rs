//! The production core as one process: all shards, steered as a shell would.

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
    Classifier, Counters, Event, Input, Neighbours, Output, ProvenSources, Shard, ShardConfig, Shedding, Snapshot,
    Steering, SteeringResult, Verdict,
};

/// A message that the server sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentMessage {
    /// Which shard's it is: it is told where the message cannot be sent.
    pub shard: usize,
    /// Where to, and by which connection.
    pub flow: Flow,
    /// What it says.
    pub bytes: Vec<u8>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageOutcome {
    /// It is no SIP, or a response to nothing that the server sent.
    Ignored,
    /// Overload control dropped it.
    Dropped,
    /// Overload control refused it with a 503.
    Refused,
    /// Its transaction had received it before.
    Retransmission,
    /// A shard served it.
    Served,
}

/// What became of a message, and what the server sent because of it.
#[derive(Clone, Debug)]
pub struct HandleResult {
    /// What became of it.
    pub fate: MessageOutcome,
    /// What was sent.
    pub sent: Vec<SentMessage>,
}

/// A question that the server asks of the DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsQuery {
    /// Who asks.
    pub shard: usize,
    /// Its name.
    pub query: QueryId,
    /// What is asked.
    pub question: LocateQuery,
}

/// A record that the server wants kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRecord {
    /// Who hears what became of it.
    pub shard: usize,
    /// Its name; none where nobody waits for it.
    pub ticket: Option<u64>,
    /// What it says.
    pub record: Vec<u8>,
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
        asked: DnsQuery,
        /// The answer.
        answer: LocateResult,
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
    /// A record that somebody waits for is in the store, or will never be.
    Stored {
        /// When.
        at: Timestamp,
        /// Whose it is.
        shard: usize,
        /// Its name.
        ticket: u64,
        /// The record.
        record: Vec<u8>,
        /// It is in the store.
        kept: bool,
    },
    /// The operator takes a user's bindings away.
    Forget {
        /// When.
        at: Timestamp,
        /// Whose.
        aor: Vec<u8>,
    },
    /// The operator ends registrations of a user who stays.
    Unregister {
        /// When.
        at: Timestamp,
        /// Whose.
        aor: Vec<u8>,
        /// Only that of this contact.
        contact: Option<Vec<u8>>,
    },
    /// A record of an earlier process is read.
    Restored {
        /// When.
        at: Timestamp,
        /// The record.
        record: Vec<u8>,
    },
    /// All of them are.
    Complete {
        /// When.
        at: Timestamp,
    },
}

/// What a process begins with.
#[derive(Clone, Copy, Debug)]
pub struct ProcessStart {
    /// When, in the time of the world; its own clock begins then.
    pub at: Timestamp,
    /// Which process of the server it is, from 0 on.
    pub life: u64,
    /// There is a store: its time when the process begins, in nanoseconds.
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
    /// The shards that the last step went to.
    touched: Range<usize>,
}

impl Server {
    /// A server of `shards` shards, whose keys and seeds follow from `seed`.
    #[must_use]
    pub fn new(shards: u16, seed: u64, snapshot: Arc<Snapshot>) -> Self {
        let birth = ProcessStart { at: Timestamp::ZERO, life: 0, store_ns: None };
        Self::begin(shards, seed, snapshot, birth)
    }

    /// As [`new`](Self::new), as a process of its own: the keys are the same, all else is another's.
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

    /// What the process says that it sheds.
    #[must_use]
    pub const fn shedding(&self) -> &Arc<Shedding> {
        &self.shedding
    }

    /// Takes what the last step asked of the DNS.
    pub fn take_queries(&mut self) -> Vec<DnsQuery> {
        core::mem::take(&mut self.questions)
    }

    /// Takes what the last step wants kept.
    pub fn take_records(&mut self) -> Vec<PendingRecord> {
        core::mem::take(&mut self.records)
    }

    /// Does one step and gives what was sent.
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

    /// A moment by the clock of the process.
    #[must_use]
    pub fn local(&self, at: Timestamp) -> Timestamp {
        Timestamp::ZERO + at.saturating_since(self.born)
    }

    fn notify(&mut self, now: Timestamp, shard: usize, input: Input<'_>) -> Vec<SentMessage> {
        self.shards[shard].handle_input(now, input);
        self.drain(shard)
    }

    /// The earliest moment at which a shard has something to do, and which.
    #[must_use]
    pub fn next_timeout(&self) -> Option<(Timestamp, usize)> {
        let world = |local: Timestamp| self.born + (local - Timestamp::ZERO);
        let due = |(number, shard): (usize, &Shard)| Some((world(shard.poll_timeout()?.at), number));
        self.shards.iter().enumerate().filter_map(due).min()
    }

    /// Transactions that exist.
    #[must_use]
    pub fn transactions(&self) -> usize {
        self.shards.iter().map(Shard::transactions).sum()
    }

    /// The places where an address of record is reached.
    pub fn lookup(&self, now: Timestamp, aor: &[u8], out: &mut Vec<ContactTarget>) {
        self.locations.lookup(self.local(now), aor, out);
    }

    /// Shows every binding that has not expired.
    pub fn for_each_binding(&self, now: Timestamp, mut visit: impl FnMut(&BindingView<'_>)) {
        for stripe in (0u16..).take(self.shards.len()) {
            self.locations.for_each_in_stripe(self.local(now), stripe, |view| visit(&view));
        }
    }

    /// The location table, by the clock of the process.
    #[must_use]
    pub fn locations(&self) -> &Locations {
        &self.locations
    }

    /// Whether a source has proven that it is there.
    #[must_use]
    pub fn has_proven(&self, source: IpAddr) -> bool {
        self.proven.contains(source)
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

    /// Handles a message that the kernel received at `arrival`, as a worker does: `judge` gives the verdict of overload control, and
    /// a dropped message never reaches its shard.
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
                Output::Resolve { query, question } => self.questions.push(DnsQuery { shard, query, question }),
                Output::Event(Event::TableFull { table }) => panic!("the table of {table} is full in a small world"),
                Output::Store { ticket, record } => self.records.push(PendingRecord { shard, ticket, record }),
                Output::Event(_) => self.events += 1,
            }
        }
        sent
    }
}

impl MessageOutcome {
    /// What a shard did with a message between two readings of its counters.
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
    /// When it is done, in the time of the world.
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
