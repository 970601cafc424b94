//! The shard API as the shells use it. No other file touches it.
//!
//! Messages are routed by the user who is called or registers, as the paper chooses its second stage. The shard with
//! a call's transactions therefore also has the callee's bindings, and processes need to share neither.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_auth::NonceWindows;
use strowger_directory::Directory;
use strowger_foundation::{Flow, KeyRing, ListenerId, ShardId, TagKey, Timestamp, Transport};
use strowger_locate::{CachePolicy, NameCache, Outages};
use strowger_message::{Kind, Method, Peek, StartLine, Uri};
use strowger_proxy::Stateless;
use strowger_registrar::Locations;
use strowger_shard::{
    Action, Input, Listener, Neighbours, Output, ProvenSources, Route, Shard, ShardConfig, Shedding, Snapshot,
    Steering, SteeringResult, Verdict,
};
use strowger_transaction::Timing;

/// Domain of all users.
pub(crate) const DOMAIN: &str = "ex.example.com";

/// Parameters of a server. Processes with equal parameters understand each other's branches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Listening address.
    pub(crate) address: SocketAddr,
    /// Number of shard groups over which transactions and users are divided.
    pub(crate) brains: u16,
    /// Shards per group. A shard's transaction capacity covers only a second or two of these loads.
    pub(crate) shards: u16,
    /// Whether requests are forwarded without state.
    pub(crate) is_stateless: bool,
    /// T1 of RFC 3261; transactions live 64 times as long.
    pub t1: Duration,
    /// Seed of hashes and keys.
    pub(crate) seed: u64,
}

/// State common to all shards of a process.
pub(crate) struct ProcessContext {
    is_stateless: bool,
    brains: u16,
    shards: u16,
    seed: u64,
    ring: KeyRing,
    spread: TagKey,
    steering: Steering,
    locations: Arc<Locations>,
    nonces: Arc<NonceWindows>,
    names: Arc<NameCache>,
    outages: Arc<Outages>,
    proven: Arc<ProvenSources>,
    shedding: Arc<Shedding>,
    neighbours: Arc<Neighbours>,
    snapshot: Arc<Snapshot>,
}

/// What ties a message to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Affinity {
    /// The message's transaction.
    Transaction,
    /// The callee's bindings: any shard that sees them can handle the message.
    Callee,
    /// Nothing: any shard can handle the message.
    Nothing,
}

/// A message whose destination shard is known.
pub(crate) struct RoutedMessage<'a> {
    peek: Peek<'a>,
    steered: SteeringResult,
    /// Shard group that owns the message, or an arbitrary one if any will do.
    pub(crate) brain: u16,
    /// Index of the shard within the group.
    part: u16,
    /// What ties the message to the shard.
    pub(crate) bound: Affinity,
}

impl ProcessContext {
    /// Creates the context of a server.
    #[must_use]
    pub(crate) fn new(setup: &Setup) -> Self {
        let Setup { address, brains, shards, is_stateless, t1, seed } = *setup;
        let all = brains.saturating_mul(shards);
        let [high, low] = [seed.to_be_bytes(), (!seed).to_be_bytes()];
        let mut key = [0; 16];
        key[..8].copy_from_slice(&high);
        key[8..].copy_from_slice(&low);
        let ring = KeyRing::new(TagKey::new(key));
        let listener = Listener::new(Transport::Udp, address);
        let mut snapshot = Snapshot::new(vec![listener], vec![DOMAIN.as_bytes().into()], Directory::empty(seed));
        snapshot.auth.require.clear();
        snapshot.timing = Timing { t1, ..Timing::default() };
        if is_stateless {
            let action = Action::proxy(Vec::new(), Stateless::Always);
            snapshot.routes = vec![Route::of_domain(DOMAIN.as_bytes(), action)];
            snapshot.proxy.stateless = Stateless::Always;
        }
        let locations = Arc::new(Locations::new(all, seed).with_listeners([(Transport::Udp, address)]));
        Self {
            is_stateless,
            brains,
            shards,
            seed,
            ring,
            spread: ring.current().derive("spread"),
            steering: Steering::new(&ring, Arc::clone(&locations), all),
            locations,
            nonces: Arc::new(NonceWindows::new(1, seed)),
            names: Arc::new(NameCache::new(CachePolicy::default(), seed)),
            outages: Arc::new(Outages::new(seed)),
            proven: Arc::new(ProvenSources::new(1)),
            shedding: Arc::default(),
            neighbours: Arc::new(Neighbours::new(seed)),
            snapshot: Arc::new(snapshot),
        }
    }

    /// Returns the number of shard groups.
    #[must_use]
    pub(crate) fn brains(&self) -> u16 {
        self.brains
    }

    /// Creates shard group `number` with its shards.
    #[must_use]
    pub(crate) fn brain(&self, number: u16) -> ShardGroup {
        let first = number.saturating_mul(self.shards);
        let own = first..first.saturating_add(self.shards);
        let shards = own.map(|shard| self.shard(shard, u64::from(shard))).collect();
        // A stateless forwarder has the same name in every thread and process, so each accepts responses to the
        // others' requests.
        let forwarder = self.is_stateless.then(|| self.shard(0, u64::from(number) + (1 << 32)));
        ShardGroup { shards, forwarder, message: Vec::new() }
    }

    fn shard(&self, number: u16, life: u64) -> Shard {
        Shard::new(ShardConfig {
            id: ShardId(number),
            now: Timestamp::ZERO,
            seed: self.seed.wrapping_add(life.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            ring: self.ring,
            locations: Arc::clone(&self.locations),
            nonces: Arc::clone(&self.nonces),
            names: Arc::clone(&self.names),
            outages: Arc::clone(&self.outages),
            proven: Arc::clone(&self.proven),
            shedding: Arc::clone(&self.shedding),
            neighbours: Arc::clone(&self.neighbours),
            snapshot: Arc::clone(&self.snapshot),
        })
    }

    /// Reads just enough of a message to route it. Returns `None` if it is not a SIP message or belongs to no shard.
    #[must_use]
    pub(crate) fn steer<'a>(&self, bytes: &'a [u8]) -> Option<RoutedMessage<'a>> {
        let peek = Peek::read(bytes).ok()?;
        let (ShardId(owner), steered) = self.steering.steer(&peek, &self.snapshot)?;
        let is_bound = !self.is_stateless || peek.kind == Kind::Request(Method::Register);
        let (shard, bound) = match self.by_callee(&peek) {
            Some(shard) if is_bound => (shard, Affinity::Transaction),
            Some(shard) => (shard, Affinity::Callee),
            None if is_bound => (owner, Affinity::Transaction),
            None => (self.by_call_id(&peek), Affinity::Nothing),
        };
        Some(RoutedMessage { peek, steered, brain: shard / self.shards, part: shard % self.shards, bound })
    }

    fn by_call_id(&self, peek: &Peek<'_>) -> u16 {
        let hash = self.spread.table64(&[peek.call_id]) % u64::from(self.brains.saturating_mul(self.shards));
        u16::try_from(hash).unwrap_or(0)
    }

    /// Returns the shard of the local user in the Request-URI. A CANCEL and the ACK to a non-2xx response carry the
    /// Request-URI of their INVITE.
    fn by_callee(&self, peek: &Peek<'_>) -> Option<u16> {
        let StartLine::Request { uri, method } = peek.head().start() else { return None };
        if method == Method::Register {
            return None;
        }
        let uri = Uri::parse(uri)?;
        let uri = uri.sip().filter(|uri| uri.user.is_some())?;
        self.snapshot.addressed_domain(uri)?;
        let aor = self.snapshot.identity(uri)?;
        Some(self.locations.shard_of(self.snapshot.directory.resolve(aor.as_bytes())).0)
    }
}

/// A set of shards, plus a stateless forwarder if the server is stateless.
pub(crate) struct ShardGroup {
    shards: Vec<Shard>,
    forwarder: Option<Shard>,
    message: Vec<u8>,
}

impl ShardGroup {
    /// Parses and handles a datagram. Drops anything that is not a SIP message or belongs to no shard.
    pub(crate) fn handle_datagram(
        &mut self,
        rules: &ProcessContext,
        now: Timestamp,
        peer: SocketAddr,
        bytes: &[u8],
        send: impl FnMut(SocketAddr, &[u8]),
    ) {
        if let Some(letter) = rules.steer(bytes) {
            self.handle_message(now, peer, &letter, send);
        }
    }

    /// Handles a message and sends the resulting messages.
    pub(crate) fn handle_message(
        &mut self,
        now: Timestamp,
        peer: SocketAddr,
        letter: &RoutedMessage<'_>,
        send: impl FnMut(SocketAddr, &[u8]),
    ) {
        let Self { shards, forwarder, message } = self;
        let own = shards.get_mut(usize::from(letter.part));
        let Some(shard) = forwarder.as_mut().filter(|_| letter.bound != Affinity::Transaction).or(own) else { return };
        let flow = Flow::new(ListenerId(0), Transport::Udp, peer);
        shard.handle_input(
            now,
            Input::Message {
                arrival: now,
                flow,
                peek: &letter.peek,
                steering: &letter.steered,
                verdict: Verdict::Admit,
            },
        );
        drain(shard, message, send);
    }

    /// Runs due timers, if any.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp, mut send: impl FnMut(SocketAddr, &[u8])) {
        for shard in self.shards.iter_mut().chain(&mut self.forwarder) {
            if wakeup(shard) <= now {
                shard.handle_timeout(now);
                drain(shard, &mut self.message, &mut send);
            }
        }
    }

    /// Returns the time of the next timer, or [`Timestamp::MAX`] if there is none.
    #[must_use]
    pub(crate) fn wakeup(&self) -> Timestamp {
        self.shards.iter().chain(&self.forwarder).map(wakeup).min().unwrap_or(Timestamp::MAX)
    }
}

fn wakeup(shard: &Shard) -> Timestamp {
    shard.poll_timeout().map_or(Timestamp::MAX, |wakeup| wakeup.at)
}

/// Sends all pending messages of a shard. Outputs for the store, DNS and log are discarded: none of them exists here.
fn drain(shard: &mut Shard, message: &mut Vec<u8>, mut send: impl FnMut(SocketAddr, &[u8])) {
    message.clear();
    while let Some(output) = shard.poll_output(message) {
        if let Output::Send { flow } = output {
            send(flow.peer, message);
        }
        message.clear();
    }
}
