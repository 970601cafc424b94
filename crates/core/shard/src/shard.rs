//! The interface of a shard: four functions over everything that it owns.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use strowger_auth::{Authenticator, NonceWindows};
use strowger_calls::{CallKey, CallView, Calls, Limits, SetupTimes};
use strowger_foundation::{ConnId, DurationHistogram, Flow, KeyRing, ShardId, TagKey, Timestamp, Wakeup};
use strowger_locate::{LocateQuery, LocateResult, NameCache, Outages, QueryId};
use strowger_message::{Kind, Message, Method, Peek, Status};
use strowger_overload::{Neighbours, ProvenSources, Shedding};
use strowger_proxy::{CallDestination, OverloadControl, Proxy, ProxyConfig, QueryOrigin, Target};
use strowger_registrar::Locations;
use strowger_transaction::{MAX_CLIENT, MAX_SERVER, ServerKey, Transactions};

use crate::boundary::{Counters, Event, Input, Inquiry, Output};
use crate::callbacks::CACHE_ONLY_QUERY;
use crate::ending::{BYE_USERS, Byes};
use crate::media::MediaHook;
use crate::next_hops::{NextHopResolver, RefusedDestination, ResolutionNotes, WeightedChoice};
use crate::pending_registers::PendingRegisters;
use crate::probes::{PROBE_USERS, Probes};
use crate::setup_times::DestinationTimes;
use crate::snapshot::Snapshot;
use crate::steering::{SteeringResult, match_key};
use crate::trunk_registrations::TrunkRegistrations;

/// Maximum number of events that wait for the shell; more are counted and dropped.
pub const MAX_EVENTS: usize = 256;

/// Interval at which memory that is not needed any more is freed: half of the buffers that were not used since.
pub const TRIM_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum number of bindings that expire in one step, so that no step takes long.
const EXPIRE_BATCH: usize = 64;

/// Capacity of the transaction tables. It exceeds the admission limits, to leave room for CANCEL and in-dialog
/// requests, which are no new work.
const ROOM: usize = if MAX_SERVER < MAX_CLIENT { MAX_SERVER } else { MAX_CLIENT };
const _: () = assert!(strowger_overload::Limits::MAX.server_transactions < ROOM);

/// The inputs for creating a shard.
#[derive(Debug)]
pub struct ShardConfig {
    /// The ID of the shard, which is also the stripe of the location table that it writes.
    pub id: ShardId,
    /// The time of creation.
    pub now: Timestamp,
    /// The seed of its maps.
    pub seed: u64,
    /// The keys of the process, shared by all shards and all members of a cluster.
    pub ring: KeyRing,
    /// The location table.
    pub locations: Arc<Locations>,
    /// The nonce counts seen.
    pub nonces: Arc<NonceWindows>,
    /// The DNS cache.
    pub names: Arc<NameCache>,
    /// The peers that failed recently.
    pub outages: Arc<Outages>,
    /// The sources that have proven their address.
    pub proven: Arc<ProvenSources>,
    /// The load that the process sheds, as reported to its neighbours.
    pub shedding: Arc<Shedding>,
    /// The load that next hops accept.
    pub neighbours: Arc<Neighbours>,
    /// The configuration and directory.
    pub snapshot: Arc<Snapshot>,
}

/// One shard. Deterministic: the same inputs give the same outputs, to the byte.
#[derive(Debug)]
pub struct Shard {
    pub(crate) id: ShardId,
    pub(crate) proxy: Proxy,
    pub(crate) authenticator: Authenticator,
    pub(crate) locations: Arc<Locations>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) names: Arc<NameCache>,
    pub(crate) outages: Arc<Outages>,
    pub(crate) proven: Arc<ProvenSources>,
    pub(crate) counters: Counters,
    /// The tracked calls, if calls are tracked.
    pub(crate) calls: Option<Calls>,
    /// The media hook, if calls go through engines.
    pub(crate) media: Option<Box<MediaHook>>,
    pub(crate) seed: u64,
    /// The registrations of trunks, if this shard holds them.
    pub(crate) trunk_registrations: TrunkRegistrations,
    /// DNS queries of the shard itself.
    pub(crate) questions: VecDeque<(QueryId, LocateQuery)>,
    /// Whether any route leads to a balanced set.
    pub(crate) has_sets: bool,
    /// This shard's probes of balanced targets.
    pub(crate) probes: Probes,
    /// REGISTERs that wait for the store.
    pub(crate) pending_registers: PendingRegisters,
    /// Times of call setup by trunk and target.
    pub(crate) setup_times: DestinationTimes,
    /// BYEs of calls that the operator ends.
    pub(crate) byes: Byes,
    /// The calls that were exported last, which another process has if it takes over.
    pub(crate) exported: Vec<CallKey>,
    /// Whether another process has taken over, so that it gets each call that is set up here.
    pub(crate) is_handed_over: bool,
    pub(crate) ring: KeyRing,
    pub(crate) match_key: TagKey,
    /// Outputs that most inputs do not have: events and commands to media engines.
    pub(crate) rare: VecDeque<Output>,
    /// Number of events among these.
    events: usize,
    /// When probes, the media hook or the trim have something to do.
    pub(crate) next_duty: Option<Timestamp>,
    /// When buffers are trimmed next; [`Timestamp::MAX`] if none are idle.
    pub(crate) next_trim: Timestamp,
    /// Number of requests refused for lack of capacity.
    pub(crate) refusals: u64,
    /// The target set of the request being served; empty between requests.
    pub(crate) targets: Vec<Target>,
}

impl Shard {
    /// Creates an idle shard.
    #[must_use]
    pub fn new(config: ShardConfig) -> Self {
        let ShardConfig { id, now, seed, ring, locations, nonces, names, .. } = config;
        let ShardConfig { outages, proven, shedding, neighbours, snapshot, .. } = config;
        let transactions = Transactions::new(snapshot.timing, seed);
        let overload = OverloadControl { shedding, neighbours, is_enabled: snapshot.proxy.overload_control };
        let proxy = ProxyConfig {
            shard: id,
            listeners: snapshot.listeners.clone(),
            outages: Arc::clone(&outages),
            overload,
            stage: snapshot.clusters.as_ref().map(|clusters| clusters.stage.clone()).unwrap_or_default(),
        };
        let calls = snapshot.track_calls.then(|| new_calls(&ring, &snapshot));
        let has_sets = snapshot.sets().next().is_some();
        let mut probes = Probes::default();
        let given_up = probes.handle_config(now, id, locations.shards(), &snapshot).count();
        debug_assert_eq!(given_up, 0, "who has just begun has asked nobody");
        let mut shard = Self {
            id,
            proxy: Proxy::new(proxy, &ring, transactions),
            names,
            outages,
            proven,
            calls,
            media: None,
            seed,
            trunk_registrations: TrunkRegistrations::new(now, id, seed, &snapshot.trunks),
            questions: VecDeque::new(),
            has_sets,
            probes,
            pending_registers: PendingRegisters::new(seed),
            setup_times: DestinationTimes::new(seed),
            byes: Byes::default(),
            exported: Vec::new(),
            is_handed_over: false,
            authenticator: Authenticator::new(&ring, nonces),
            locations,
            snapshot,
            counters: Counters::default(),
            match_key: match_key(&ring),
            ring,
            rare: VecDeque::new(),
            events: 0,
            next_duty: None,
            next_trim: Timestamp::MAX,
            refusals: 0,
            targets: Vec::new(),
        };
        let snapshot = Arc::clone(&shard.snapshot);
        let held = shard.configure_media(now, &snapshot);
        debug_assert!(held.is_empty(), "there was no hook");
        shard.settle_duties();
        shard
    }

    /// Sets the number of the process, which the branches of client transactions name. It must differ from those of
    /// earlier processes that still have some.
    #[must_use]
    pub fn with_process(self, process: u8) -> Self {
        Self { proxy: self.proxy.with_process(process), ..self }
    }

    /// Visits the key of each server transaction.
    pub fn for_each_server_key(&self, visit: impl FnMut(ServerKey)) {
        self.proxy.transactions_ref().for_each_server_key(visit);
    }

    /// Returns the number of REGISTERs that wait for the store.
    #[must_use]
    pub fn pending_registers(&self) -> usize {
        self.pending_registers.len()
    }

    /// Handles one input. Afterwards drain [`poll_output`](Self::poll_output) until it returns `None`.
    pub fn handle_input(&mut self, now: Timestamp, input: Input<'_>) {
        debug_assert!(self.rare.is_empty(), "the outputs of the input before were not drained");
        match input {
            Input::Message { flow, peek, steering: steered, verdict, .. } => match peek.kind {
                Kind::Request(method) => self.handle_request(now, flow, (peek, steered), method, verdict),
                Kind::Response(_) => self.handle_response(now, flow, peek, steered),
            },
            Input::Unreachable { peer } => self.proxy.handle_unreachable(now, peer),
            Input::SendFailed { peer } => self.handle_unsent(now, peer),
            Input::Closed { connection, peer } => self.handle_closed(now, connection, peer),
            Input::ConnectFailed { flow } => self.proxy.handle_unconnected(now, &flow),
            Input::Resolved { query, answer } => self.handle_resolved(now, query, &answer),
            Input::Stored { ticket, record, is_durable: kept } => self.handle_stored(now, ticket, record, kept),
            Input::Media { engine, message } => {
                self.handle_media(now, engine, message);
            }
            Input::BarUser { aor } => self.bar_user(now, aor),
            Input::Unregister { aor, contact } => self.unregister(now, aor, contact),
            Input::EndCall { call_id } => self.end_calls(now, call_id),
            Input::HandedOver => self.hand_over(),
            Input::CallTransferred { state } => {
                if let Err(reason) = self.import_state(now, state) {
                    self.report(Event::CallNotTaken { reason });
                }
            }
            Input::Config(snapshot) => {
                self.handle_config(now, snapshot);
            }
        }
        self.drain_components(now, None);
    }

    fn handle_config(&mut self, now: Timestamp, snapshot: Arc<Snapshot>) {
        self.proxy.transactions().set_timing(snapshot.timing);
        if snapshot.is_draining {
            self.trunk_registrations.unregister_all(now);
        } else {
            self.trunk_registrations.handle_config(now, &snapshot.trunks);
        }
        self.proxy.set_overload_control(snapshot.proxy.overload_control);
        self.proxy.set_listeners(snapshot.listeners.clone());
        self.has_sets = snapshot.sets().next().is_some();
        for client in self.probes.handle_config(now, self.id, self.locations.shards(), &snapshot) {
            self.proxy.transactions().stop_retransmitting(client);
        }
        match (snapshot.track_calls, &mut self.calls) {
            (true, None) => self.calls = Some(new_calls(&self.ring, &snapshot)),
            (true, Some(calls)) => calls.set_recording(needs_records(&snapshot)),
            (false, Some(calls)) => {
                add_calls(calls, &mut self.counters);
                // Its calls in progress are no longer known.
                self.counters.calls_ended = self.counters.calls;
                self.calls = None;
            }
            _ => {}
        }
        let held = self.configure_media(now, &snapshot);
        if self.is_handed_over {
            self.end_own_requests();
        }
        self.settle_duties();
        self.snapshot = snapshot;
        self.release_all(now, held);
    }

    /// Drops everything bound to a closed connection.
    fn handle_closed(&mut self, now: Timestamp, connection: ConnId, peer: SocketAddr) {
        let keeping = &mut self.pending_registers;
        //= rfc5626#7:invalidated
        self.locations.disconnect(now, self.id, connection, |record| keeping.push_record(None, record.into()));
        self.pending_registers.handle_closed(connection);
        self.proxy.handle_closed(now, connection, peer);
    }

    /// Handles the answer to a DNS query.
    fn handle_resolved(&mut self, now: Timestamp, query: QueryId, answer: &LocateResult) {
        if query == CACHE_ONLY_QUERY || self.resolve_registrar(now, query, answer) || self.resolve_bye(now, query) {
            return;
        }
        let Some(QueryOrigin { choice, listener, question, named_by }) = self.proxy.query_origin(query) else {
            // Nothing waits for it any longer: this only removes the query from the list.
            return self.proxy.handle_resolved(now, query, Err(Status::BAD_GATEWAY));
        };
        let named_by = named_by.map(|ip| SocketAddr::new(ip, 0));
        let notes = ResolutionNotes::default();
        let places = NextHopResolver {
            now,
            snapshot: &self.snapshot,
            names: &self.names,
            outages: &self.outages,
            ring: self.proxy.ring(),
            egress: listener,
            is_secure: false,
            choice: WeightedChoice::Fixed(choice),
            named_by: named_by.as_ref(),
            notes: &notes,
        };
        let flows = places.flows_of(&question, answer);
        if let Some(refused) = notes.refused.take() {
            self.report_local_destination(refused);
        }
        self.proxy.handle_resolved(now, query, flows);
    }

    /// Handles the pending results of the components: call progress, failed requests of our own, trunk registrations.
    /// `response` is the response just received, if any, and its flow. Returns whether it answered a tracked call.
    pub(crate) fn drain_components(&mut self, now: Timestamp, response: Option<(&Message<'_>, &Flow)>) -> bool {
        let has_answered = !self.proxy.is_drained() && self.drain_proxy(now, response);
        if !self.trunk_registrations.is_settled() {
            self.drive_trunk_registrations(now);
            while let Some((trunk, status)) = self.trunk_registrations.poll_change(now) {
                self.report(Event::TrunkRegistration { trunk, status });
            }
            self.trunk_registrations.settle();
        }
        if self.calls.as_ref().is_some_and(Calls::has_records) {
            while let Some(record) = self.calls.as_mut().and_then(Calls::poll_record) {
                if let Some(hook) = &mut self.media {
                    hook.end_call(now, record.key);
                }
                if self.snapshot.record_calls {
                    self.report(Event::Call(Box::new(record)));
                }
            }
            if self.media.is_some() {
                self.settle_media();
            }
        }
        has_answered
    }

    /// Handles the pending results of the proxy, like [`drain_components`](Self::drain_components).
    fn drain_proxy(&mut self, now: Timestamp, response: Option<(&Message<'_>, &Flow)>) -> bool {
        let mut has_answered = false;
        while let Some(progress) = self.proxy.poll_progress() {
            has_answered |= self.track_call(now, progress, response);
        }
        while let Some(news) = self.proxy.poll_hop_event() {
            self.report_hop_event(now, news);
        }
        while let Some(user) = self.proxy.poll_failed() {
            if user >= PROBE_USERS {
                self.handle_probe_failure(now, user);
            } else if user >= BYE_USERS {
                self.handle_bye_failure(now, user);
            } else {
                self.trunk_registrations.handle_failure(now, user);
            }
        }
        has_answered
    }

    /// Handles what is due: retransmissions, timeouts, expiring bindings, keep-alives.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.proxy.handle_timeout(now);
        if self.locations.next_deadline(self.id).is_some_and(|at| at <= now) {
            self.locations.expire(now, self.id, EXPIRE_BATCH);
            for _ in 0..EXPIRE_BATCH {
                let Some(due) = self.locations.poll_keep_alive(now, self.id) else { break };
                // The process that has taken over does it.
                if !self.is_handed_over {
                    self.keep_alive(&due);
                }
            }
        }
        if let Some(calls) = &mut self.calls {
            calls.handle_timeout(now);
        }
        self.trunk_registrations.handle_timeout(now);
        self.drive_probes(now);
        self.expire_pending_registers(now);
        if self.media.is_some() {
            self.handle_media_timeout(now);
            self.drive_media(now);
        }
        if now >= self.next_trim || self.next_trim == Timestamp::MAX {
            self.trim(now);
        }
        self.drain_components(now, None);
    }

    /// Frees memory that a peak has left, and schedules the next time.
    #[cold]
    fn trim(&mut self, now: Timestamp) {
        let has_more = match self.next_trim {
            Timestamp::MAX => self.proxy.has_idle_memory(),
            _ => {
                let has_more = self.proxy.trim();
                if let Some(calls) = self.calls.as_mut().filter(|_| !has_more) {
                    calls.free_if_empty();
                }
                has_more
            }
        };
        self.next_trim = if has_more { now + TRIM_INTERVAL } else { Timestamp::MAX };
        self.settle_duties();
    }

    /// Returns the next output. A message is swapped into `out`: the shard takes over the buffer passed in. Other
    /// outputs leave `out` untouched.
    pub fn poll_output(&mut self, out: &mut Vec<u8>) -> Option<Output> {
        // Before any message that depends on it.
        if let Some((ticket, record)) = self.pending_registers.poll_record() {
            return Some(Output::Store { ticket, record });
        }
        if let Some(flow) = self.proxy.poll_transmit(out) {
            return Some(Output::Send { flow });
        }
        if let Some((query, question)) = self.proxy.poll_question().or_else(|| self.questions.pop_front()) {
            return Some(Output::Ask(Inquiry::Dns { query, question }));
        }
        if self.rare.is_empty() { None } else { self.poll_rare() }
    }

    #[cold]
    fn poll_rare(&mut self) -> Option<Output> {
        self.rare.pop_front()
    }

    /// Returns the earliest time at which [`handle_timeout`](Self::handle_timeout) has work, and the reason. Never
    /// scans.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        let bindings = self.locations.next_deadline(self.id).map(|at| Wakeup::at(at, "binding"));
        let calls = self.calls.as_ref().and_then(Calls::poll_timeout);
        let accounts = self.trunk_registrations.poll_timeout().map(|at| Wakeup::at(at, "registration of a trunk"));
        let duty = self.next_duty.map(|at| Wakeup::at(at, "probe of a target, media engine, or trim"));
        let next = Wakeup::sooner(Wakeup::sooner(self.proxy.poll_timeout(), bindings), duty);
        let others = Wakeup::sooner(accounts, self.pending_registers.poll_timeout());
        Wakeup::sooner(Wakeup::sooner(next, calls), others)
    }

    /// Visits the tracked calls.
    pub fn for_each_call(&self, visit: impl FnMut(CallView<'_>)) {
        if let Some(calls) = &self.calls {
            calls.for_each(visit);
        }
    }

    /// Visits the times of call setup by trunk and balanced target.
    pub fn for_each_setup(&self, visit: impl FnMut(CallDestination, &SetupTimes)) {
        self.setup_times.for_each(visit);
    }

    /// Visits the times from an INVITE sent to a trunk or balanced target until its first response, 100 included.
    pub fn for_each_response_time(&self, visit: impl FnMut(CallDestination, &DurationHistogram)) {
        self.proxy.for_each_response_time(visit);
    }

    /// Visits each trunk that this shard registers with, and the registration's status.
    pub fn for_each_trunk_registration(&self, now: Timestamp, visit: impl FnMut(&str, strowger_trunk::Status)) {
        self.trunk_registrations.for_each(now, visit);
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let proxy = self.proxy.counters();
        let mut counters = self.counters;
        counters.forwarded = proxy.forwarded;
        counters.forwarded_stateless = proxy.forwarded_stateless;
        counters.forwarded_responses = proxy.responses;
        counters.keep_alive_answers = proxy.keep_alive_answers;
        counters.stray_responses = counters.stray_responses.wrapping_add(proxy.stray_responses);
        counters.ring_timeouts = proxy.ring_timeouts;
        counters.failovers = proxy.failovers;
        counters.no_gateway = counters.no_gateway.wrapping_add(proxy.exhausted);
        counters.failovers_refused = proxy.failovers_refused;
        counters.shed_for_next_hop = proxy.shed_for_next_hop;
        counters.redirections_followed = proxy.redirections;
        counters.challenges_answered = proxy.challenges_answered;
        counters.table_full = counters.table_full.wrapping_add(proxy.table_full);
        self.calls.iter().for_each(|calls| add_calls(calls, &mut counters));
        self.media.iter().for_each(|hook| hook.add_counters(&mut counters));
        counters
    }

    /// Returns the number of server and client transactions.
    #[must_use]
    pub fn transactions(&self) -> usize {
        let transactions = self.proxy.transactions_ref();
        transactions.servers().saturating_add(transactions.clients())
    }

    /// Returns the number of requests without a final response: forwarded ones, REGISTERs that wait for the store, and
    /// our own BYEs. All other transactions only absorb retransmissions, so a stopping server need not wait for them.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        let held = self.media.as_ref().map_or(0, |hook| hook.held_requests());
        let waiting = self.pending_registers.unanswered().saturating_add(self.byes.len());
        self.proxy.unanswered().saturating_add(waiting).saturating_add(held)
    }

    /// Returns the number of response contexts, including those kept for retransmissions and late responses.
    #[must_use]
    pub fn contexts(&self) -> usize {
        self.proxy.contexts()
    }

    /// Checks the invariants between two inputs; for tests and the simulator.
    pub fn check_invariants(&self) {
        self.proxy.check_invariants();
        assert!(self.events <= MAX_EVENTS, "events are bounded");
    }

    /// Prefetches the memory for a coming input: where its transaction is looked up and where its response will be
    /// written. Changes nothing. If several inputs are prefetched before the first is handled, their cache misses
    /// overlap.
    pub fn prefetch(&self, peek: &Peek<'_>, steered: &SteeringResult) {
        let (Kind::Request(method), Some(key)) = (peek.kind, steered.key) else { return };
        let transactions = self.proxy.transactions_ref();
        transactions.prefetch_server(key);
        if !matches!(method, Method::Invite | Method::Ack) {
            transactions.prefetch_cached_response();
        }
    }

    /// Reports that somebody elsewhere has named a destination that leads to this machine.
    #[cold]
    pub(crate) fn report_local_destination(&mut self, refused: RefusedDestination) {
        let RefusedDestination { named_by: by, address } = refused;
        self.counters.local_destinations += 1;
        self.report(Event::LocalDestination { by, address });
    }

    pub(crate) fn report(&mut self, event: Event) {
        if self.rare.is_empty() {
            self.events = 0;
        }
        if self.events < MAX_EVENTS {
            self.events = self.events.saturating_add(1);
            self.rare.push_back(Output::Event(event));
        } else {
            self.counters.events_lost += 1;
        }
    }
}

fn new_calls(ring: &KeyRing, snapshot: &Snapshot) -> Calls {
    let mut calls = Calls::new(ring.current(), Limits::default());
    calls.set_recording(needs_records(snapshot));
    calls
}

/// Adds what has been counted of calls.
fn add_calls(calls: &Calls, to: &mut Counters) {
    to.setup.add(calls.setup_times());
    let calls = calls.counters();
    to.calls = to.calls.wrapping_add(calls.begun);
    to.calls_answered = to.calls_answered.wrapping_add(calls.answered);
    to.calls_ended = to.calls_ended.wrapping_add(calls.ended);
}

/// Whether ended calls are recorded: for the operator, or to end them at media engines too.
fn needs_records(snapshot: &Snapshot) -> bool {
    snapshot.record_calls || snapshot.media.is_some()
}
