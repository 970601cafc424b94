//! The worker's interface to shards, as traits, so that tests can inject shards that panic.

use std::net::IpAddr;
use std::sync::Arc;

use strowger_calls::{CallView, SetupTimes};
use strowger_foundation::{DurationHistogram, Flow, KeyRing, ShardId, Timestamp, Wakeup};
use strowger_locate::{NameCache, Outages};
use strowger_message::{PartialPeek, Peek};
use strowger_net::Clock;
use strowger_overload::ControllerStatus;

use strowger_auth::NonceWindows;
use strowger_registrar::Locations;
use strowger_shard::{
    CallDestination, Classification, Classifier, Counters, ImportedState, Input, Neighbours, Output, ProvenSources,
    ServerKey, Shard, ShardConfig, Shedding, Snapshot, StateError, Steering, SteeringResult,
};

/// A shard as seen by its worker.
pub(crate) trait StateMachine {
    fn prefetch(&self, peek: &Peek<'_>, steered: &SteeringResult);
    fn handle_input(&mut self, now: Timestamp, input: Input<'_>);
    fn handle_timeout(&mut self, now: Timestamp);
    fn poll_output(&mut self, out: &mut Vec<u8>) -> Option<Output>;
    fn poll_timeout(&self) -> Option<Wakeup>;
    fn counters(&self) -> Counters;
    fn transactions(&self) -> usize;
    fn unanswered(&self) -> usize;
    fn for_each_call(&self, visit: &mut dyn FnMut(CallView<'_>));
    fn for_each_account(&self, now: Timestamp, visit: &mut dyn FnMut(&str, strowger_trunk::Status));
    /// Visits the keys of its server transactions.
    fn for_each_server_key(&self, _visit: &mut dyn FnMut(ServerKey)) {}
    /// Returns the number of REGISTERs that wait for the store.
    fn pending_registers(&self) -> usize {
        0
    }
    /// Visits the times of call setup by destination.
    fn for_each_setup(&self, _visit: &mut dyn FnMut(CallDestination, &SetupTimes)) {}
    /// Visits the times until a destination's first response.
    fn for_each_response_time(&self, _visit: &mut dyn FnMut(CallDestination, &DurationHistogram)) {}
    /// Appends what the same shard of another process needs.
    fn export_state(&mut self, _out: &mut Vec<u8>) {}
    /// Takes over what another process has exported.
    fn import_state(&mut self, _now: Timestamp, _state: &[u8]) -> Result<ImportedState, StateError> {
        Ok(ImportedState::default())
    }
}

impl StateMachine for Shard {
    fn prefetch(&self, peek: &Peek<'_>, steered: &SteeringResult) {
        Self::prefetch(self, peek, steered);
    }

    fn handle_input(&mut self, now: Timestamp, input: Input<'_>) {
        Self::handle_input(self, now, input);
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        Self::handle_timeout(self, now);
    }

    fn poll_output(&mut self, out: &mut Vec<u8>) -> Option<Output> {
        Self::poll_output(self, out)
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        Self::poll_timeout(self)
    }

    fn counters(&self) -> Counters {
        Self::counters(self)
    }

    fn transactions(&self) -> usize {
        Self::transactions(self)
    }

    fn unanswered(&self) -> usize {
        Self::unanswered(self)
    }

    fn for_each_call(&self, visit: &mut dyn FnMut(CallView<'_>)) {
        Self::for_each_call(self, visit);
    }

    fn for_each_account(&self, now: Timestamp, visit: &mut dyn FnMut(&str, strowger_trunk::Status)) {
        Self::for_each_trunk_registration(self, now, visit);
    }

    fn for_each_server_key(&self, visit: &mut dyn FnMut(ServerKey)) {
        Self::for_each_server_key(self, visit);
    }

    fn pending_registers(&self) -> usize {
        Self::pending_registers(self)
    }

    fn for_each_setup(&self, visit: &mut dyn FnMut(CallDestination, &SetupTimes)) {
        Self::for_each_setup(self, visit);
    }

    fn for_each_response_time(&self, visit: &mut dyn FnMut(CallDestination, &DurationHistogram)) {
        Self::for_each_response_time(self, visit);
    }

    fn export_state(&mut self, out: &mut Vec<u8>) {
        Self::export_state(self, out);
    }

    fn import_state(&mut self, now: Timestamp, state: &[u8]) -> Result<ImportedState, StateError> {
        Self::import_state(self, now, state)
    }
}

/// Creates shards and determines which of them owns a message. Shared by all workers.
pub(crate) trait ShardFactory: Send + Sync + 'static {
    type Shard: StateMachine + Send;

    /// Creates a shard without state. `life` is the number of earlier shards with this id.
    fn make(&self, id: ShardId, life: u32, snapshot: Arc<Snapshot>) -> Self::Shard;

    /// Returns the owner of a message and what steering has proven about it; `None` if no shard owns it.
    fn owner(&self, partial: &PartialPeek<'_>, snapshot: &Snapshot) -> Option<(ShardId, SteeringResult)>;

    /// Returns the key of the transaction that a request belongs to.
    fn transaction_of(&self, _peek: &Peek<'_>, _steered: &SteeringResult) -> Option<ServerKey> {
        None
    }

    /// Adds the remaining information that the owner of a message needs.
    fn complete(&self, peek: &Peek<'_>, steered: &mut SteeringResult);

    /// Records how much a worker sheds, to be advertised to neighbouring servers.
    fn note_pressure(&self, worker: usize, pressure: &ControllerStatus);

    /// Returns whether a source is trusted or proven.
    fn is_known(&self, source: IpAddr, snapshot: &Snapshot) -> bool;

    /// Classifies a request that begins new work, for overload control.
    fn classify(
        &self,
        now: Timestamp,
        message: (&Peek<'_>, &SteeringResult),
        source: &Flow,
        snapshot: &Snapshot,
    ) -> Classification;
}

/// Tables shared by all shards and read by the control plane.
#[derive(Debug)]
pub(crate) struct SharedTables {
    pub(crate) locations: Arc<Locations>,
    pub(crate) outages: Arc<Outages>,
    pub(crate) proven: Arc<ProvenSources>,
}

/// The factory for real shards.
pub(crate) struct DefaultShardFactory {
    clock: Clock,
    seed: u64,
    ring: KeyRing,
    locations: Arc<Locations>,
    nonces: Arc<NonceWindows>,
    names: Arc<NameCache>,
    outages: Arc<Outages>,
    proven: Arc<ProvenSources>,
    shedding: Arc<Shedding>,
    neighbours: Arc<Neighbours>,
    steering: Steering,
    process: u8,
}

/// Number of lock stripes of the nonce counts.
pub const NONCE_STRIPES: usize = 64;

impl DefaultShardFactory {
    /// Creates the factory for `count` shards. The location table has one stripe per shard.
    pub(crate) fn new(
        (clock, seed): (Clock, u64),
        ring: KeyRing,
        count: u16,
        (names, locations, nonces): (Arc<NameCache>, Arc<Locations>, Option<Arc<NonceWindows>>),
        proven: Arc<ProvenSources>,
    ) -> Self {
        let nonces = nonces.unwrap_or_else(|| Arc::new(NonceWindows::new(NONCE_STRIPES, seed)));
        let steering = Steering::new(&ring, Arc::clone(&locations), count);
        let outages = Arc::new(Outages::new(seed));
        let (shedding, neighbours) = (Arc::default(), Arc::new(Neighbours::new(seed)));
        Self {
            clock,
            seed,
            ring,
            locations,
            nonces,
            names,
            outages,
            proven,
            shedding,
            neighbours,
            steering,
            process: 0,
        }
    }

    /// Sets the number of the process.
    pub(crate) fn with_process(self, process: u8) -> Self {
        Self { process, ..self }
    }

    pub(crate) fn tables(&self) -> SharedTables {
        SharedTables {
            locations: Arc::clone(&self.locations),
            outages: Arc::clone(&self.outages),
            proven: Arc::clone(&self.proven),
        }
    }
}

impl ShardFactory for DefaultShardFactory {
    type Shard = Shard;

    fn make(&self, id: ShardId, life: u32, snapshot: Arc<Snapshot>) -> Shard {
        Shard::new(ShardConfig {
            id,
            now: self.clock.now(),
            seed: shard_seed(self.seed, id, life),
            ring: self.ring,
            locations: Arc::clone(&self.locations),
            nonces: Arc::clone(&self.nonces),
            names: Arc::clone(&self.names),
            outages: Arc::clone(&self.outages),
            proven: Arc::clone(&self.proven),
            shedding: Arc::clone(&self.shedding),
            neighbours: Arc::clone(&self.neighbours),
            snapshot,
        })
        .with_process(self.process)
    }

    fn transaction_of(&self, peek: &Peek<'_>, steered: &SteeringResult) -> Option<ServerKey> {
        self.steering.transaction_of(peek, steered)
    }

    fn owner(&self, partial: &PartialPeek<'_>, snapshot: &Snapshot) -> Option<(ShardId, SteeringResult)> {
        self.steering.owner(partial, snapshot)
    }

    fn complete(&self, peek: &Peek<'_>, steered: &mut SteeringResult) {
        self.steering.complete(peek, steered);
    }

    fn note_pressure(&self, worker: usize, pressure: &ControllerStatus) {
        self.shedding.report(worker, pressure.advertised_permille, pressure.admitted_per_s);
    }

    fn is_known(&self, source: IpAddr, snapshot: &Snapshot) -> bool {
        snapshot.trusts(source) || self.proven.contains(source)
    }

    fn classify(
        &self,
        now: Timestamp,
        (peek, steered): (&Peek<'_>, &SteeringResult),
        source: &Flow,
        snapshot: &Snapshot,
    ) -> Classification {
        let classifier = Classifier { snapshot, locations: &self.locations, proven: &self.proven };
        classifier.classify(now, peek, steered, source)
    }
}

/// Derives a seed for each shard and life: the successor of a shard that panicked must not reuse its tags.
fn shard_seed(seed: u64, id: ShardId, life: u32) -> u64 {
    // The finaliser of splitmix64.
    let mut mixed = seed.wrapping_add((u64::from(life) << 16 | u64::from(id.0)).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
