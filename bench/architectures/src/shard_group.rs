//! The shard, as all shells see it: the one file that touches its API.
//!
//! A message is steered by the user who is called or registers, as the paper's second stage is chosen: so the shard that has a
//! call's transactions also has its callee's bindings, and processes need share neither.

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

/// The domain of all users.
pub(crate) const DOMAIN: &str = "ex.example.com";

/// What a server is made from. Processes that are made from the same understand each other's branches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Into how many brains transactions and users are divided.
    pub(crate) brains: u16,
    /// Of how many shards each brain is: one has room for no more transactions than a second or two of such loads leave.
    pub(crate) shards: u16,
    /// Whether requests are forwarded without state.
    pub(crate) is_stateless: bool,
    /// T1 of RFC 3261; transactions live 64 times as long.
    pub t1: Duration,
    /// What hashes and keys are made from.
    pub(crate) seed: u64,
}

/// What all shards of a process have in common.
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

/// What binds a message to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Affinity {
    /// Its transaction.
    Transaction,
    /// The bindings of who is called: any shard that sees them will do.
    Callee,
    /// Nothing: any shard will do.
    Nothing,
}

/// A message of which is known where it goes.
pub(crate) struct RoutedMessage<'a> {
    peek: Peek<'a>,
    steered: SteeringResult,
    /// The brain where it belongs, or where it may go as well as anywhere else.
    pub(crate) brain: u16,
    /// The shard of that brain.
    part: u16,
    /// What binds it to that.
    pub(crate) bound: Affinity,
}

impl ProcessContext {
    /// The rules of a server.
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

    /// How many brains there are.
    #[must_use]
    pub(crate) fn brains(&self) -> u16 {
        self.brains
    }

    /// The brain `number`, with its shards.
    #[must_use]
    pub(crate) fn brain(&self, number: u16) -> ShardGroup {
        let first = number.saturating_mul(self.shards);
        let own = first..first.saturating_add(self.shards);
        let shards = own.map(|shard| self.shard(shard, u64::from(shard))).collect();
        // What keeps no state has one name in every thread and process, so that each takes the responses to another's requests.
        let forwarder = self.is_stateless.then(|| self.shard(0, u64::from(number) + (1 << 32)));
        ShardGroup { shards, forwarder, message: Vec::new() }
    }

    fn shard(&self, number: u16, life: u64) -> Shard {
        Shard::new(ShardConfig {
            id: ShardId(number),
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

    /// Reads the little of a message that says where it goes; `None` for what is no message, or nobody's.
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

    /// The shard of the user of ours whom a Request-URI names. A CANCEL and the ACK to a refusal have that of their INVITE.
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

/// Some shards, and beside them, where nothing is kept of what is forwarded, one that only forwards.
pub(crate) struct ShardGroup {
    shards: Vec<Shard>,
    forwarder: Option<Shard>,
    message: Vec<u8>,
}

impl ShardGroup {
    /// Reads a datagram and deals with it; what is no message, or nobody's, is dropped.
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

    /// Deals with a message, and sends what comes of it.
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

    /// Does what is due, if anything is.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp, mut send: impl FnMut(SocketAddr, &[u8])) {
        for shard in self.shards.iter_mut().chain(&mut self.forwarder) {
            if wakeup(shard) <= now {
                shard.handle_timeout(now);
                drain(shard, &mut self.message, &mut send);
            }
        }
    }

    /// When something is due; [`Timestamp::MAX`] where nothing is.
    #[must_use]
    pub(crate) fn wakeup(&self) -> Timestamp {
        self.shards.iter().chain(&self.forwarder).map(wakeup).min().unwrap_or(Timestamp::MAX)
    }
}

fn wakeup(shard: &Shard) -> Timestamp {
    shard.poll_timeout().map_or(Timestamp::MAX, |wakeup| wakeup.at)
}

/// Sends all that a shard has to send. Its other outputs are for a store, the DNS and a log, none of which is here.
fn drain(shard: &mut Shard, message: &mut Vec<u8>, mut send: impl FnMut(SocketAddr, &[u8])) {
    message.clear();
    while let Some(output) = shard.poll_output(message) {
        if let Output::Send { flow } = output {
            send(flow.peer, message);
        }
        message.clear();
    }
}
