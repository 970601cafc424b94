//! All workers of the process, as seen by the control plane.

mod takeover;
mod updates;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::{fmt, io};

use mio::{Poll, Registry, Token};
use strowger_auth::{Network, NonceWindows};
use strowger_ban::BannedSources;
use strowger_foundation::{ConnId, KeyRing, ShardId, TagKey};
use strowger_locate::{NameCache, Outages};
use strowger_net::{Clock, KnownSources, UdpSocket};
use strowger_overload::SourceMemory;

use crate::admission::Admission;
use crate::affinity;
use crate::calls::{Account, CallList, TimesByDestination, WorkerQuery};
use crate::connection_index::ConnectionIndex;
use crate::datagram_socket::{DatagramSocket, Receiving};
use crate::fleet_times::FleetTimesReader;
use crate::handover::{self, WorkerWaker};
use crate::kernel_filter::SharedMemory;
use crate::limits::StreamLimits;
use crate::listener_socket::ListenerSocket;
use crate::media_socket::MediaSocket;
#[cfg(test)]
use crate::migration::MigrationPlan;
use crate::migration::{BindingRemoval, RemovalReason};
use crate::new_work_queue::NewWorkQueue;
use crate::options::WorkerOptions;
use crate::panics::{PanicLog, PanicReport};
use crate::predecessors::Predecessors;
use crate::rebalance::Rebalancer;
use crate::record_sink::RecordSink;
use crate::resolve::Resolve;
use crate::shard_factory::{DefaultShardFactory, ShardFactory, SharedTables};
use crate::shard_host::{HostShared, ShardHost};
use crate::socket::Socket;
use crate::status::{Counters, FleetStatus, ShardTotals, WorkerStatus};
use crate::stream_listener::StreamListener;
use crate::streams::Streams;
use crate::timing::Timing;
use crate::trace::Tracer;
use crate::worker::{FIRST_NEW_WORK, WAKER_TOKEN, Worker};
use crate::worker_handle::{SnapshotUpdate, WorkerHandle, query_workers};
use crate::worker_io::{WorkerIo, WorkerLink};
pub use takeover::RelayInlet;
pub use updates::PreparedSockets;

use strowger_registrar::Locations;
use strowger_shard::{Event, ImportedState, ProvenSources, Snapshot, StateError};

/// Number of shards per worker: enough to move load between workers in small steps.
pub const SHARDS_PER_WORKER: u16 = 16;

/// Maximum number of workers, so that every shard has an id.
pub const MAX_WORKERS: usize = (u16::MAX / SHARDS_PER_WORKER) as usize;

/// Startup parameters of a fleet.
pub struct FleetConfig {
    /// Sockets of each worker: one for each listener of the snapshot, in order. The sockets of one listener are
    /// [siblings](Socket::sibling), opened in the order of the workers.
    pub sockets: Vec<Vec<Socket>>,
    /// The initial snapshot.
    pub snapshot: Arc<Snapshot>,
    /// Random, drawn once per process; seeds hashes and choices.
    pub seed: u64,
    /// Random and secret; signs branches and nonces.
    pub key: [u8; 16],
    /// The process's clock.
    pub clock: Clock,
    /// Channel for log events. If it is full, events are dropped and counted.
    pub events: SyncSender<Event>,
    /// Connection limits.
    pub streams: StreamLimits,
    /// Sources whose datagrams are dropped and whose connections are closed.
    pub banned: Arc<BannedSources>,
    /// Balancers: their connections begin with the address of a client (PROXY protocol).
    pub balancers: Vec<Network>,
    /// DNS cache. The shards read it, and the resolver writes it.
    pub names: Arc<NameCache>,
    /// DNS resolver. Without one, every query fails.
    pub resolver: Option<Arc<dyn Resolve>>,
    /// The location table, with one stripe for each of the fleet's [shards](shards_of).
    pub locations: Arc<Locations>,
    /// Store for records of the location table. Without one, nothing is stored, and requests that must be durable are
    /// refused.
    pub record_sink: Option<Arc<dyn RecordSink>>,
    /// Nonce usage shared with other servers; if absent, the fleet has its own.
    pub nonces: Option<Arc<NonceWindows>>,
    /// What was taken over from the process before this one, if there is one. The workers then read nothing until
    /// [`Fleet::thaw`].
    pub taken_over: Option<TakenOver>,
    /// Receives copies of traced messages.
    pub tracer: Arc<Tracer>,
    /// How the workers share the load and the machine.
    pub options: WorkerOptions,
}

/// What a fleet has taken over from the process before it, besides the sockets.
#[derive(Debug)]
pub struct TakenOver {
    /// Number of this process, which no process before it has that still has transactions.
    pub process: u8,
    /// The sockets for new work by worker and listener; `None` where there is none.
    pub new_work: Vec<Vec<Option<UdpSocket>>>,
    /// The processes before this one that still have transactions.
    pub predecessors: Arc<Predecessors>,
    /// Seed of the set of proven sources: [`FleetConfig::seed`] of the first process of the chain.
    pub source_seed: u64,
}

impl fmt::Debug for FleetConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetConfig")
            .field("sockets", &self.sockets)
            .field("streams", &self.streams)
            .finish_non_exhaustive()
    }
}

/// The running workers. Dropping it stops them.
#[derive(Debug)]
pub struct Fleet {
    handles: Vec<Arc<WorkerHandle>>,
    threads: Vec<JoinHandle<()>>,
    tables: SharedTables,
    panics: Arc<PanicLog>,
    published: Mutex<PublishedSnapshots>,
    /// Totals of shards in transit.
    in_transit: Arc<Mutex<Vec<(ShardId, ShardTotals)>>>,
    clock: Clock,
    times: FleetTimesReader,
    /// Event loops of the workers, for sockets that are opened later.
    registries: Vec<Arc<Registry>>,
    connections: Arc<ConnectionIndex>,
    options: WorkerOptions,
}

#[derive(Debug)]
struct PublishedSnapshots {
    version: u64,
    /// Snapshots that a shard may still hold. Retained so that no worker has to free one, since they may be large.
    retained: Vec<Arc<Snapshot>>,
}

impl Fleet {
    /// Starts a thread for each worker.
    ///
    /// # Errors
    /// `InvalidInput` if there is no worker, more than [`MAX_WORKERS`], or a worker that does not have one socket per
    /// listener; otherwise when the system has no thread or file descriptor left.
    pub fn start(config: FleetConfig) -> io::Result<Self> {
        let shards = shards_of(config.sockets.len())?;
        let ring = KeyRing::new(TagKey::new(config.key));
        let (names, locations) = (Arc::clone(&config.names), Arc::clone(&config.locations));
        let source_seed = config.taken_over.as_ref().map_or(config.seed, |taken_over| taken_over.source_seed);
        let sources = KnownSources::new(source_seed).ok().map(Arc::new);
        let proven = Arc::new(match &sources {
            Some(sources) => ProvenSources::in_memory(source_seed, Arc::clone(sources) as Arc<dyn SourceMemory>),
            None => ProvenSources::new(source_seed),
        });
        let nonces = config.nonces.clone();
        let process = config.taken_over.as_ref().map_or(0, |taken_over| taken_over.process);
        let maker =
            DefaultShardFactory::new((config.clock, config.seed), ring, shards, (names, locations, nonces), proven);
        let maker = maker.with_process(process);
        let tables = maker.tables();
        Self::launch(config, maker, tables, SharedMemory::new(sources))
    }

    /// Starts the workers with shards created by `maker`.
    pub(crate) fn launch<M: ShardFactory>(
        config: FleetConfig,
        maker: M,
        tables: SharedTables,
        memory: SharedMemory,
    ) -> io::Result<Self> {
        let FleetConfig {
            names,
            sockets,
            snapshot,
            seed,
            clock,
            events,
            streams: limits,
            balancers,
            banned,
            resolver,
            record_sink: keeper,
            tracer,
            options,
            taken_over,
            ..
        } = config;
        let shards = shards_of(sockets.len())?;
        let transports = || snapshot.listeners.all().map(|listener| listener.transport);
        if sockets.iter().any(|sockets| !sockets.iter().map(Socket::transport).eq(transports())) {
            return Err(invalid("each worker needs one socket for each listener, of its transport"));
        }
        let panics = Arc::new(PanicLog::default());
        let balance = Rebalancer::new(sockets.len(), options.min_workers, shards);
        #[cfg(test)]
        let balance = if options.is_rebalancing_off {
            Rebalancer::frozen(sockets.len(), options.min_workers, shards)
        } else {
            balance
        };
        let owners = balance.owners().to_vec();
        let is_taking_over = taken_over.is_some();
        let process = taken_over.as_ref().map_or(0, |taken_over| taken_over.process);
        let (new_work, predecessors) = match taken_over {
            Some(TakenOver { new_work, predecessors, .. }) => (new_work, Some(predecessors)),
            None => (sort(&sockets, balance.active(), &options), None),
        };
        let predecessors = predecessors.filter(|predecessors| !predecessors.is_empty());
        let arrivals = sockets.iter().map(|_| Mutex::default()).collect();
        let (balance, moving) = (Mutex::new(balance), Arc::default());
        let common = Arc::new(HostShared {
            factory: maker,
            panics: Arc::clone(&panics),
            arrivals,
            in_transit: Arc::clone(&moving),
            balance,
        });
        let polls = (0..sockets.len()).map(|_| Poll::new()).collect::<io::Result<Vec<_>>>()?;
        let announcing = Arc::default();
        let contact = |poll: &Poll| {
            Ok(Arc::new(WorkerHandle::new(WorkerWaker::new(poll.registry(), WAKER_TOKEN)?, Arc::clone(&announcing))))
        };
        let contacts = polls.iter().map(contact).collect::<io::Result<Vec<_>>>()?;
        let mut neighbours = connect_workers(&contacts).into_iter();
        let media = Arc::new(MediaSocket::new(contacts.clone(), shards));
        let connections = ConnectionIndex::new(limits.connections, limits.per_source).with_balancers(balancers);
        let connections = Arc::new(connections);
        let published = Mutex::new(PublishedSnapshots { version: 0, retained: vec![Arc::clone(&snapshot)] });
        let memory = Arc::new(memory);
        let times = FleetTimesReader::new(contacts.clone(), clock, Arc::clone(&memory));
        // On a failure after this point, dropping the fleet stops what was started.
        let mut fleet = Self {
            handles: contacts,
            threads: Vec::new(),
            tables,
            panics,
            published,
            in_transit: moving,
            clock,
            times,
            registries: Vec::new(),
            connections: Arc::clone(&connections),
            options: options.clone(),
        };
        for (index, ((sockets, new_work), poll)) in sockets.into_iter().zip(new_work).zip(polls).enumerate() {
            let registry = Arc::new(poll.registry().try_clone()?);
            fleet.registries.push(Arc::clone(&registry));
            let register = |(listener, socket)| port(socket, &registry, Token(listener), options.timing);
            let ports = sockets.into_iter().enumerate().map(register).collect::<io::Result<Vec<_>>>()?;
            let register = |(listener, socket)| new_work_queue(socket, &registry, listener);
            let new_work = new_work.into_iter().enumerate().map(register).collect::<io::Result<Vec<_>>>()?;
            let (common, snapshot, events) = (Arc::clone(&common), Arc::clone(&snapshot), events.clone());
            let contact =
                fleet.handles.get(index).map(Arc::clone).ok_or_else(|| invalid("a worker nobody can reach"))?;
            let neighbours = neighbours.next().unwrap_or_default();
            let first = u16::try_from(index).unwrap_or(u16::MAX);
            let mut streams = Streams::new(
                first,
                poll.registry().try_clone()?,
                Arc::clone(&connections),
                Arc::clone(&names),
                limits,
                (Arc::clone(&banned), events.clone()),
                seed,
            );
            streams.set_process(process, seed);
            let timing = Timing::new(clock, options.timing);
            fleet.times.add_recorded(timing.timer().map(|timer| timer.recorder().recorded()));
            let exits = WorkerIo {
                index,
                handle: contact,
                sockets: ports,
                new_work,
                streams,
                links: neighbours,
                resolver: resolver.clone(),
                media: Arc::clone(&media),
                record_sink: keeper.clone(),
                records: Vec::new(),
                unconnected: Vec::new(),
                predecessors: predecessors.clone(),
                successor: None,
                process,
                steering: options.steering,
                is_frozen: is_taking_over,
                taken: 0,
                tracer: Arc::clone(&tracer),
                counters: Counters::default(),
                closed_sockets: strowger_net::Counters::default(),
                timing,
                wake_owed_since: None,
                owners: owners.clone(),
            };
            let options = options.clone();
            let memory = Arc::clone(&memory);
            let work = move || {
                affinity::pin(index, &options.cores, &[]);
                let admission = Admission::new(index, seed, options.overload_control, memory);
                let host = ShardHost::new(common, exits, admission, snapshot, events);
                Worker::new(poll, clock, host, &options)?.run()
            };
            let thread =
                thread::Builder::new().name(format!("worker-{index}")).spawn(move || abort_on_failure(index, work))?;
            fleet.threads.push(thread);
        }
        Ok(fleet)
    }

    /// Publishes a new snapshot to every shard. Returns at once; each worker fetches the latest one in its loop.
    ///
    /// Its listeners must be those of the snapshot before, in any state, and those added since at the end.
    pub fn publish(&self, snapshot: Arc<Snapshot>) {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.version += 1;
        // Snapshots held only by this list are freed here, on a thread that may be slow.
        published.retained.retain(|kept| Arc::strong_count(kept) > 1);
        for contact in &self.handles {
            contact.publish(SnapshotUpdate { snapshot: Arc::clone(&snapshot), version: published.version });
        }
        published.retained.push(snapshot);
    }

    /// Sends a migration plan to all workers.
    #[cfg(test)]
    pub(crate) fn broadcast_plan(&self, plan: &Arc<MigrationPlan>) {
        let givers = plan.sources();
        let others = (0..self.handles.len()).filter(|worker| !givers.contains(worker));
        let _turn = self.handles.first().map(|contact| contact.lock_broadcast());
        for worker in givers.iter().copied().chain(others) {
            self.handles.get(worker).into_iter().for_each(|contact| contact.notify_plan(plan));
        }
    }

    /// Removes the bindings of `aor` because its user must no longer be reached. Returns at once. Any worker may
    /// receive this; it forwards it to the shard's worker.
    pub fn forget(&self, aor: &[u8]) {
        self.broadcast_removal(BindingRemoval { aor: aor.into(), reason: RemovalReason::Bar });
    }

    /// Removes all registrations of `aor`, or only that of `contact` as registered; the user stays valid. Returns at
    /// once. Does nothing while earlier registrations are being loaded.
    pub fn unregister(&self, aor: &[u8], contact: Option<&[u8]>) {
        self.broadcast_removal(BindingRemoval {
            aor: aor.into(),
            reason: RemovalReason::Unregister(contact.map(Into::into)),
        });
    }

    fn broadcast_removal(&self, forgotten: BindingRemoval) {
        let aor = &forgotten.aor;
        let shard = self.tables.locations.shard_of(aor);
        if let Some(contact) = self.handles.get(usize::from(shard.0) % self.handles.len().max(1)) {
            contact.notify_removal(shard, forgotten);
        }
    }

    /// Returns the counters of all workers.
    #[must_use]
    pub fn status(&self) -> FleetStatus {
        let now = self.clock.now();
        // While this lock is held, no shard leaves one worker's total or enters another's.
        let moving = self.in_transit.lock().unwrap_or_else(PoisonError::into_inner);
        let workers: Vec<_> = self.handles.iter().map(|contact| contact.status.read(now)).collect();
        let mut total = WorkerStatus { version: u64::MAX, ..WorkerStatus::default() };
        workers.iter().for_each(|worker| total.add(worker));
        moving.iter().for_each(|(_, shard)| shard.add_to(&mut total));
        drop(moving);
        FleetStatus { workers, total, registrations: self.tables.locations.len(), last_panic: self.panics.last() }
    }

    /// Returns the latest panic of a shard.
    #[must_use]
    pub fn last_panic(&self) -> Option<PanicReport> {
        self.panics.last()
    }

    /// Returns the calls in progress, oldest first, up to `limit`; if there are more, the selection is arbitrary.
    /// Calls of a worker that does not answer in time are missing.
    #[must_use]
    pub fn calls(&self, limit: usize) -> CallList {
        let mut all = CallList::default();
        for list in self.query_workers(|reply| WorkerQuery::Calls(limit, reply)) {
            match list {
                Some(list) => all.join(list, limit),
                None => all.more = true,
            }
        }
        all
    }

    /// Returns the times of calls by trunk and balanced target. Those of a worker that does not answer in time are
    /// missing.
    #[must_use]
    pub fn destination_times(&self) -> TimesByDestination {
        let mut all = TimesByDestination::new();
        for (to, times) in self.query_workers(WorkerQuery::DestinationTimes).into_iter().flatten().flatten() {
            all.entry(to).or_default().add(&times);
        }
        all
    }

    /// Ends the calls with this Call-ID, and returns them as they were: answered ones with a BYE to both parties, others
    /// with CANCEL. Returns before the parties have responded.
    #[must_use]
    pub fn end_calls(&self, call_id: &[u8]) -> CallList {
        let call_id: Arc<[u8]> = call_id.into();
        let mut all = CallList::default();
        for list in self.query_workers(|reply| WorkerQuery::EndCalls(Arc::clone(&call_id), reply)) {
            match list {
                Some(list) => all.join(list, usize::MAX),
                None => all.more = true,
            }
        }
        all
    }

    /// Returns what the shards of another process need, in the order of the shards; `None` if a worker does not answer
    /// in time. Nothing changes: after the other process has [taken all over](Self::import_state), call
    /// [`pass_on_calls`](Self::pass_on_calls) before the next message is read.
    #[must_use]
    pub fn export_states(&self) -> Option<Vec<Vec<u8>>> {
        let answers = self.query_workers(WorkerQuery::ExportStates);
        let mut states: Vec<_> = answers.into_iter().collect::<Option<Vec<_>>>()?.into_iter().flatten().collect();
        states.sort_unstable_by_key(|(shard, _)| *shard);
        (states.len() == usize::from(self.tables.locations.shards()))
            .then(|| states.into_iter().map(|(_, state)| state).collect())
    }

    /// Gives the state of a shard of another process to the shard here: one of [`export_states`](Self::export_states)
    /// before the first message is read, or that of a single call
    /// ([`Event::CallTransferred`](strowger_shard::Event::CallTransferred)) at any time. Both processes must have the
    /// same number of shards. `None` if the shard's worker does not answer in time, or the shard is just moving to
    /// another one.
    ///
    /// # Errors
    ///
    /// If the state cannot be read here; the reason says why.
    pub fn import_state(&self, state: &[u8]) -> Option<Result<ImportedState, StateError>> {
        takeover::import_state(&self.handles, self.tables.locations.shards(), state)
    }

    /// Lets the shards know that another process has taken over what [`export_states`](Self::export_states) returned.
    /// Calls that are set up from here on are passed on ([`Event::CallTransferred`](strowger_shard::Event::CallTransferred)).
    /// Returns whether all workers have answered in time.
    pub fn pass_on_calls(&self) -> bool {
        self.query_workers(WorkerQuery::HandOver).into_iter().all(|answer| answer.is_some())
    }

    /// Lets each worker collect the memory that it has freed ([`strowger_net::collect_freed_memory`]), and does not wait
    /// for them.
    pub fn collect_memory(&self) {
        self.handles.iter().for_each(|worker| worker.query(WorkerQuery::CollectMemory(false)));
    }

    /// Lets each worker return to the system what it has freed and not [collected](Self::collect_memory), and does not wait
    /// for them.
    pub fn return_memory(&self) {
        self.handles.iter().for_each(|worker| worker.query(WorkerQuery::CollectMemory(true)));
    }

    /// Returns the peers of these connections, as far as they are open: behind a balancer that tells them, the clients.
    /// Those of a worker that does not answer in time are missing.
    #[must_use]
    pub fn peers(&self, ids: Vec<ConnId>) -> HashMap<ConnId, SocketAddr> {
        if ids.is_empty() {
            return HashMap::new();
        }
        let ids: Arc<[ConnId]> = ids.into();
        let answers = self.query_workers(|reply| WorkerQuery::Peers(Arc::clone(&ids), reply));
        answers.into_iter().flatten().flatten().collect()
    }

    /// Returns the trunk registrations by name. Those of a worker that does not answer in time are missing.
    #[must_use]
    pub fn accounts(&self) -> Vec<Account> {
        let mut all: Vec<_> = self.query_workers(WorkerQuery::Accounts).into_iter().flatten().flatten().collect();
        all.sort_by(|a, b| a.trunk.cmp(&b.trunk));
        all
    }

    /// Returns a reader of the times of packets, for any thread.
    #[must_use]
    pub const fn times(&self) -> &FleetTimesReader {
        &self.times
    }

    fn query_workers<T>(&self, make_query: impl Fn(SyncSender<T>) -> WorkerQuery) -> Vec<Option<T>> {
        query_workers(&self.handles, make_query)
    }

    /// Returns the next hops that failed recently and are tried last.
    #[must_use]
    pub fn outages(&self) -> &Arc<Outages> {
        &self.tables.outages
    }

    /// Returns the location table.
    #[must_use]
    pub fn locations(&self) -> &Arc<Locations> {
        &self.tables.locations
    }

    /// Returns the sources that have proven that they receive packets at their address, such as by a password. Each is
    /// remembered for two to four hours.
    #[must_use]
    pub fn proven(&self) -> &Arc<ProvenSources> {
        &self.tables.proven
    }

    /// Returns whether every shard has the latest snapshot, every forwarded request is answered and nothing waits to
    /// be sent.
    ///
    /// While the server drains, this becomes true and stays true; otherwise it is up to 100 ms old. Transactions may
    /// remain that only absorb retransmissions.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let version = self.published.lock().unwrap_or_else(PoisonError::into_inner).version;
        let FleetStatus { workers, total, .. } = self.status();
        workers.iter().all(|worker| worker.version == version) && total.unanswered == 0 && total.unsent == 0
    }

    fn has_latest_snapshot(&self) -> bool {
        let version = self.published.lock().unwrap_or_else(PoisonError::into_inner).version;
        let now = self.clock.now();
        self.handles.iter().all(|handle| handle.status.read(now).version == version)
    }

    /// Stops all workers and waits for them. Output in the send buffers is sent; transactions are dropped.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.handles.iter().for_each(|contact| contact.stop());
        for thread in self.threads.drain(..) {
            // A worker that panics aborts the process, so the result is irrelevant.
            let _ = thread.join();
        }
    }
}

/// Opens the second sockets of each address, for new work, and makes the kernel sort arriving datagrams. Returns one
/// per worker and listener; `None` if the kernel cannot sort, in which case all datagrams arrive at the first socket.
pub(crate) fn sort(sockets: &[Vec<Socket>], active: usize, options: &WorkerOptions) -> Vec<Vec<Option<UdpSocket>>> {
    let all = sockets.len();
    let mut second: Vec<Vec<Option<UdpSocket>>> = (0..all).map(|_| Vec::new()).collect();
    for socket in sockets.first().into_iter().flatten() {
        let receiving = Receiving { active, all, steering: options.steering, is_sorted: true };
        let mut opened: Vec<UdpSocket> = Vec::new();
        if let Socket::Udp(socket) = socket {
            if options.overload_control {
                opened = (0..all).map_while(|_| socket.sibling().ok()).collect();
                if opened.len() < all || !receiving.apply(socket) {
                    let address = socket.local_addr();
                    tracing::warn!(%address, "the kernel cannot sort datagrams, so the worker sorts them");
                    opened.clear();
                }
            }
            if opened.is_empty() && all > 1 {
                Receiving { is_sorted: false, ..receiving }.apply(socket);
            }
        }
        let mut opened = opened.into_iter();
        second.iter_mut().for_each(|second| second.push(opened.next()));
    }
    second
}

/// Runs `work` and aborts the process if it fails. Without one of its workers the server would ignore the peers whose
/// packets the kernel steers to it.
fn abort_on_failure(index: usize, work: impl FnOnce() -> io::Result<()>) {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return,
        Ok(Err(error)) => tracing::error!(worker = index, %error, "the worker cannot poll its sockets"),
        Err(_) => tracing::error!(worker = index, "the worker panicked outside its shards"),
    }
    std::process::abort();
}

/// Creates a ring in each direction between every two workers; returns the links of each worker.
fn connect_workers(contacts: &[Arc<WorkerHandle>]) -> Vec<Vec<Option<WorkerLink>>> {
    let count = contacts.len();
    let mut gives: Vec<Vec<_>> = (0..count).map(|_| Vec::with_capacity(count)).collect();
    // By receiver, then by sender; the sending ends are ordered the other way round.
    let mut takes: Vec<Vec<_>> = (0..count).map(|_| Vec::with_capacity(count)).collect();
    for (giver, gives) in gives.iter_mut().enumerate() {
        for (taker, takes) in takes.iter_mut().enumerate() {
            let ring = (giver != taker).then(|| handover::ring(handover::capacity(count)));
            let (give, take) = ring.unzip();
            gives.push(give);
            takes.push(take);
        }
    }
    let meet = |((give, take), contact): ((Option<_>, Option<_>), &Arc<WorkerHandle>)| {
        Some(WorkerLink::new(Arc::clone(contact), give?, take?))
    };
    let ways = gives.into_iter().zip(takes);
    ways.map(|(gives, takes)| gives.into_iter().zip(takes).zip(contacts).map(meet).collect()).collect()
}

fn new_work_queue(
    socket: Option<UdpSocket>,
    registry: &Arc<Registry>,
    listener: usize,
) -> io::Result<Option<NewWorkQueue>> {
    let token = Token(FIRST_NEW_WORK + listener);
    socket.map(|socket| DatagramSocket::new(socket, registry, token).map(NewWorkQueue::new)).transpose()
}

fn port(socket: Socket, registry: &Arc<Registry>, token: Token, is_timed: bool) -> io::Result<ListenerSocket> {
    match socket {
        Socket::Udp(mut socket) => {
            if is_timed && let Err(error) = socket.enable_send_stamps() {
                let address = socket.local_addr();
                tracing::debug!(%address, %error, "the kernel does not report when packets reach the device");
            }
            DatagramSocket::new(socket, registry, token).map(ListenerSocket::Udp)
        }
        Socket::Stream(socket) => StreamListener::new(socket, registry, token).map(ListenerSocket::Stream),
        Socket::Closed(transport, _) => Ok(ListenerSocket::Closed(transport)),
    }
}

/// Returns the number of shards for a number of workers.
///
/// # Errors
/// `InvalidInput` when there is no worker, or more than [`MAX_WORKERS`].
pub fn shards_of(workers: usize) -> io::Result<u16> {
    match u16::try_from(workers) {
        Ok(count @ 1..) if workers <= MAX_WORKERS => Ok(count * SHARDS_PER_WORKER),
        _ => Err(invalid("there must be at least one worker, and at most 4,095")),
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
