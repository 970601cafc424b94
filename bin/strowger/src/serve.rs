//! `strowger serve`: the server in the foreground.
//!
//! The thread that runs [`Server::run`] owns everything outside the workers: it follows the users database, answers
//! the control socket and handles signals, one event at a time.

mod bans;
mod clusters;
mod control_handler;
mod inheritance;
mod limits;
mod listeners;
mod reload;
mod succession;
mod targets;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use strowger_auth::NonceWindows;
use strowger_control::config::{self, Config, ConfigSource};
use strowger_control::dns::{DnsResolver, SendableTransports};
use strowger_control::protocol::{EndedCalls, Request, Response, Status, Takeover, UpgradeReport};
use strowger_control::socket::{ControlSocket, Handler};
use strowger_foundation::{TagKey, Transport};
use strowger_locate::NameCache;
use strowger_net::{Clock, WebSocketContext};
use strowger_registrar::Locations;
use strowger_shard::{Listener, ListenerState, Listeners, Snapshot};
use strowger_takeover::{Hello, Relay};
use strowger_worker::{Fleet, FleetConfig, NONCE_STRIPES, Predecessors, Resolve, StreamLimits};

use self::control_handler::ControlHandler;
use self::inheritance::Inheritance;
use self::limits::{limits_of_shards, shards_of, stream_limits, worker_options};
use self::listeners::{ListenerSet, bind, listeners_of};
use self::succession::{PredecessorRelay, Successor};

use crate::admin::{AdminListener, Served};
use crate::balancing::TargetManager;
use crate::ban_keeper::{BanKeeper, KnownSources};
use crate::cdr::Cdr;
use crate::cluster::{self, SharedTable};
use crate::durable_store::DurableStore;
use crate::exporters::Exporters;
use crate::failure::Failure;
use crate::freed_memory::FreedMemory;
use crate::huge_pages::HugePages;
use crate::log::LogHandle;
use crate::passed_calls::PassedCalls;
use crate::resolver::Resolver;
use crate::running_config::RunningConfig;
use crate::security_log::SecurityLog;
use crate::segmentation::Segmentation;
use crate::text::count;
use crate::tls::Certificates;
use crate::trace::{ListenerNames, Traces};
use crate::users::{DirectoryUpdate, Users};
use crate::{calls, check, former_names, gateways, key, log, service_manager, status, web_sockets};

/// Interval at which the users database is checked for changes.
const FOLLOW_EVERY: Duration = Duration::from_millis(250);
/// Interval at which a draining server checks whether it is done.
const DRAIN_TICK: Duration = Duration::from_millis(20);
/// Maximum time for transactions to end after a signal.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// Queue length for requests of the control socket, above its number of connections.
const QUEUE: usize = 64;
/// Queue length for log events and ended calls.
const EVENT_QUEUE: usize = 8192;

pub(crate) fn run(meant: ConfigSource<'_>, takes_over: bool) -> Result<(), Failure> {
    let inheritance = if takes_over { Some(Inheritance::receive()?) } else { None };
    let refusal = inheritance.as_ref().map(Inheritance::refusal);
    let (mut server, pages) = start(meant, inheritance).inspect_err(|failure| {
        refusal.iter().for_each(|refusal| refusal.send(failure));
    })?;
    drop(refusal);
    service_manager::ready();
    server.run(pages);
    server.end();
    Ok(())
}

fn start(meant: ConfigSource<'_>, inheritance: Option<Inheritance>) -> Result<(Server, HugePages), Failure> {
    let (config, read) = Config::load_with_secrets(meant)?;
    let log = log::start(&config.log);
    match &read {
        Some(read) => tracing::info!("configuration {}", read.display()),
        None => tracing::info!("no configuration file; using the default of every key"),
    }
    former_names::warnings(read.as_deref()).iter().for_each(|warning| tracing::warn!("{warning}"));
    let files = strowger_net::raise_open_files()
        .map_err(|error| Failure::No(format!("the limit of open files cannot be read: {error}")))?;
    let streams = stream_limits(&config, files);
    tracing::info!("open files: up to {files}; connections: up to {}", streams.connections);
    let wanted = config.tcp.connections;
    if streams.connections < usize::try_from(wanted).unwrap_or(usize::MAX) {
        tracing::warn!(
            "this is less than tcp.connections ({wanted}): raise the limit of open files, or lower tcp.connections"
        );
    }
    let pages = HugePages::disable();
    let file = (meant.file.map(Path::to_owned), read.as_deref());
    let server = Server::start(config, file, (log, files), streams, inheritance)?;
    Ok((server, pages))
}

/// Messages to the thread that owns the server.
enum Message {
    Signal(i32),
    Request(Request, SyncSender<Response>),
    /// Asks what a new process must match.
    Greeting(SyncSender<Result<Hello, String>>),
    /// Makes earlier processes close their connections.
    CloseEarlierConnections(SyncSender<()>),
    /// Hands over to a process that is ready.
    HandOver(Box<Successor>, SyncSender<Result<UpgradeReport, String>>),
}

struct Server {
    config: Config,
    /// The same for other threads.
    running_config: RunningConfig,
    file: Option<PathBuf>,
    users: Users,
    balancing: TargetManager,
    segmentation: Segmentation,
    certificates: Certificates,
    web_sockets: Arc<WebSocketContext>,
    listening: ListenerSet,
    /// Names of the listeners in traces.
    listener_names: ListenerNames,
    snapshot: Arc<Snapshot>,
    fleet: Fleet,
    resolver: Arc<Resolver>,
    store: DurableStore,
    cluster: SharedTable,
    /// Fingerprint of the key.
    fingerprint: String,
    /// Set when stored registrations are loaded and those of barred users removed.
    is_loaded: bool,
    clock: Clock,
    bans: Arc<BanKeeper>,
    cdr: Arc<Cdr>,
    exporters: Exporters,
    /// Thread that writes log events and passes calls to `cdr`.
    log: JoinHandle<()>,
    log_handle: LogHandle,
    /// Maximum number of open files.
    files: u64,
    handler: Arc<ControlHandler>,
    started: Instant,
    messages: Receiver<Message>,
    /// Time since which users are also looked up in their previous cluster.
    moving_since: Option<Instant>,
    /// Time of the last halving of the request counts.
    counted_since: Instant,
    last_panic: Option<strowger_foundation::Timestamp>,
    /// Users whose bindings are removed in the round after the next.
    removals_next: Vec<Box<[u8]>>,
    /// Users whose bindings are removed in the next round.
    removals_due: Vec<Box<[u8]>>,
    /// `None` once another process has taken over.
    control: Option<ControlSocket>,
    admin: Option<AdminListener>,
    /// Number of this process in its chain of upgrades.
    process: u8,
    /// Seed of nonces, the same in the whole chain.
    nonce_seed: u64,
    /// The nonce counts that clients have used.
    nonces: Arc<NonceWindows>,
    /// Earlier processes that still have transactions.
    predecessors: Vec<PredecessorRelay>,
    /// The same, as the workers know them.
    known_predecessors: Option<Arc<Predecessors>>,
    /// How this process has replaced an earlier one.
    takeover: Option<Takeover>,
    /// The relay from the process that has replaced this one.
    successor: Option<Relay>,
    /// Whether another process has replaced this one.
    is_succeeded: bool,
    /// Set when that process wants all connections to be closed.
    closes_connections: Arc<AtomicBool>,
    /// Set when that process has ended.
    is_alone: Arc<AtomicBool>,
    passed_calls: PassedCalls,
}

impl Server {
    fn start(
        config: Config,
        (file, read): (Option<PathBuf>, Option<&Path>),
        (log_handle, files): (LogHandle, u64),
        streams: StreamLimits,
        inheritance: Option<Inheritance>,
    ) -> Result<Self, Failure> {
        let workers = config.workers(check::cores());
        let segmentation = Segmentation::new(config.server.segmentation);
        let certificates = Certificates::load(&config)?;
        let web_sockets = web_sockets::context(&config)?;
        let contexts = (certificates.context(), &web_sockets);
        let (listening, listeners, bound) = match &inheritance {
            Some(inheritance) => {
                inheritance.check(&config, workers)?;
                let (listening, listeners) = ListenerSet::inherit(&config, &inheritance.hello.listeners)?;
                (listening, listeners, Vec::new())
            }
            None => {
                let (listening, sockets) = bind(&config, workers, &segmentation, contexts)?;
                (listening, listeners_of(&sockets), sockets)
            }
        };
        let [seed, directory_seed, key_low, key_high] = entropy()?;
        let users = Users::open(&config, directory_seed)?;
        check::machine_warnings(&config, file.as_deref()).iter().for_each(|warning| tracing::warn!("{warning}"));
        gateways::report(&config, users.directory());
        let clock = inheritance.as_ref().map_or_else(Clock::start, |inheritance| inheritance.clock);
        let names = Arc::new(NameCache::new(config.cache_policy(), seed));
        let resolver = start_resolver(&config, &listeners, &names, clock)?;
        let balancing = TargetManager::start(&config, users.directory().gateways(), &resolver.dns());
        let snapshot = config.snapshot(Listeners::new(listeners), users.directory().clone(), balancing.sets());
        let snapshot = Arc::new(Snapshot { limits: limits_of_shards(workers)?, ..snapshot });
        let (sender, messages) = mpsc::sync_channel(QUEUE);
        let listener_names = ListenerNames::default();
        listener_names.set(status::listeners(&snapshot));
        let traces = Traces { tracer: Arc::default(), clock, listeners: listener_names.clone() };
        let tracer = Arc::clone(&traces.tracer);
        let exporters = Exporters::start(&config, &snapshot.listeners, Arc::clone(&tracer), clock);
        let ended_calls = exporters.ended_calls();
        let (backups, times) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
        let handler = ControlHandler {
            messages: sender.clone(),
            traces,
            backups: Arc::clone(&backups),
            times: Arc::clone(&times),
            upgrading: Mutex::default(),
        };
        let handler = Arc::new(handler);
        let running_config = RunningConfig::new(&config, read);
        forward_signals(sender)?;
        let (events, received) = mpsc::sync_channel(EVENT_QUEUE);
        let cdr = Cdr::start(config.cdr.file.as_deref(), config.calls_databases(), clock);
        let cdr = Arc::new(cdr.map_err(|error| Failure::No(format!("a thread cannot be started: {error}")))?);
        let fresh = (u128::from(key_high) << 64) | u128::from(key_low);
        let key = key::of_server(&config, fresh.to_le_bytes())?;
        let locations = empty_table([], workers, &key)?;
        locations.set_listeners(addresses_of(&snapshot));
        let locations = if config.store_mode().is_durable() { locations.with_pending_source() } else { locations };
        let locations = cluster::share(locations, &config);
        // What is handed over is complete.
        let locations = if inheritance.is_none() { cluster::await_members(locations, &config) } else { locations };
        let locations = Arc::new(locations);
        let mut inherited = match &inheritance {
            Some(inheritance) => {
                inheritance.check_key(&key::fingerprint(&key))?;
                locations.set_store_origin(inheritance.hello.store_origin);
                Some(inheritance.receive_state(&locations, &snapshot.registrar, contexts, &segmentation)?)
            }
            None => None,
        };
        // The process before has written its bans by now.
        let bans = Arc::new(BanKeeper::start(&config, seed, clock));
        let security = Arc::new(SecurityLog::new(Arc::clone(&bans), seed, clock));
        let served = Served {
            handler: Arc::clone(&handler) as Arc<dyn Handler>,
            config: running_config.clone(),
            file: file.clone(),
            security: Arc::clone(&security),
            times: Arc::clone(&times),
        };
        let writer = Arc::clone(&cdr);
        let passed_calls = PassedCalls::default();
        let passed = passed_calls.clone();
        let log = spawn("events", move || log::events(&received, (&writer, &ended_calls), &security, &passed))?;
        // If there is another server, it answers there, and has the store too.
        let (mut served, mut opened) = (Some(served), (None, None));
        if inheritance.is_none()
            && let Some(served) = served.take()
        {
            opened = open_for_operators(served, &config, (None, None))?;
        }
        let durable =
            DurableStore::start(&config, &locations, &snapshot.registrar, key, (clock, inheritance.is_some()))?;
        let member = inheritance.as_ref().zip(inherited.as_mut()).and_then(|(at, found)| found.take_member(&at.hello));
        let cluster = SharedTable::start(&config, &locations, &snapshot.listeners, (&key, clock), member)?;
        drop(backups.set(durable.clone()));
        let (nonce_seed, process) = inheritance
            .as_ref()
            .map_or((seed, 0), |inheritance| (inheritance.hello.nonce_seed, inheritance.hello.process));
        let nonces = cluster.nonces().unwrap_or_else(|| Arc::new(NonceWindows::new(NONCE_STRIPES, nonce_seed)));
        let (sockets, taken_over) = match (&inheritance, &mut inherited) {
            (Some(inheritance), Some(inherited)) => {
                let (sockets, taken_over) = inherited.take_sockets(&inheritance.hello);
                (sockets, Some(taken_over))
            }
            _ => (bound, None),
        };
        let fleet = FleetConfig {
            sockets,
            taken_over,
            snapshot: Arc::clone(&snapshot),
            seed,
            key,
            clock,
            events,
            streams,
            banned: bans.banned(),
            balancers: config.tcp.proxy_protocol_from.iter().map(|source| source.0).collect(),
            names,
            resolver: Some(Arc::clone(&resolver) as Arc<dyn Resolve>),
            locations,
            record_sink: cluster.record_sink(durable.record_sink()),
            nonces: Some(Arc::clone(&nonces)),
            tracer,
            options: worker_options(&config, workers),
        };
        let fleet = Fleet::start(fleet).map_err(|error| {
            Failure::No(format!("the workers cannot be started: {error}; try fewer (server.workers)"))
        })?;
        drop(times.set(fleet.times().clone()));
        bans.set_known(KnownSources {
            locations: Arc::clone(fleet.locations()),
            stripes: shards_of(workers)?,
            proven: Arc::clone(fleet.proven()),
            names: Arc::clone(&resolver.names),
        });
        tracing::info!(
            "{}, {}; control socket {}",
            count(workers.into(), "worker"),
            count(snapshot.directory.users() as u64, "user"),
            config.control_socket().display()
        );
        let started = Instant::now();
        let snapshot_is_moving = snapshot.clusters.as_ref().is_some_and(|clusters| clusters.previous.is_some());
        let mut server = Self {
            config,
            running_config,
            file,
            users,
            balancing,
            segmentation,
            certificates,
            web_sockets,
            listening,
            listener_names,
            snapshot,
            fleet,
            resolver,
            store: durable,
            cluster,
            fingerprint: key::fingerprint(&key),
            is_loaded: false,
            clock,
            bans,
            cdr,
            exporters,
            log,
            log_handle,
            files,
            handler,
            moving_since: snapshot_is_moving.then_some(started),
            counted_since: started,
            started,
            messages,
            last_panic: None,
            removals_next: Vec::new(),
            removals_due: Vec::new(),
            control: opened.1,
            admin: opened.0,
            process,
            nonce_seed,
            nonces,
            predecessors: Vec::new(),
            known_predecessors: None,
            takeover: None,
            successor: None,
            is_succeeded: false,
            closes_connections: Arc::default(),
            is_alone: Arc::default(),
            passed_calls,
        };
        if let (Some(inheritance), Some(inherited), Some(served)) = (inheritance, inherited, served) {
            server.take_over(&inheritance, inherited, served)?;
        }
        Ok(server)
    }

    /// Runs until a signal ends the server and its transactions.
    fn run(&mut self, mut pages: HugePages) {
        self.follow_loading();
        let mut freed = FreedMemory::default();
        let mut next_follow = Instant::now() + FOLLOW_EVERY;
        loop {
            match self.messages.recv_timeout(next_follow.saturating_duration_since(Instant::now())) {
                Ok(Message::Signal(SIGHUP)) => drop(self.reload()),
                Ok(Message::Signal(_)) => return self.drain(),
                Ok(Message::Request(request, reply)) => self.answer(&request, &reply),
                Ok(Message::Greeting(reply)) => drop(reply.try_send(self.greeting())),
                Ok(Message::CloseEarlierConnections(reply)) => {
                    self.close_earlier_connections();
                    let _ = reply.try_send(());
                }
                Ok(Message::HandOver(successor, reply)) => {
                    let handed = self.hand_over(*successor);
                    let is_done = handed.is_ok();
                    match &handed {
                        Ok(report) => succession::log(report),
                        Err(why) => tracing::warn!("this process goes on, as the upgrade has failed: {why}"),
                    }
                    drop(reply.try_send(handed));
                    if is_done {
                        return self.retire();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    pages.update(freed.has_load_fallen());
                    freed.update(Instant::now(), &self.fleet);
                    self.segmentation.update();
                    self.certificates.follow();
                    self.follow();
                    next_follow = Instant::now() + FOLLOW_EVERY;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn drain(&mut self) {
        tracing::info!("draining: stopping when every request is answered, within {} s", DRAIN_LIMIT.as_secs());
        self.publish(Snapshot { is_draining: true, ..Snapshot::clone(&self.snapshot) });
        let deadline = Instant::now() + DRAIN_LIMIT;
        while !self.fleet.is_idle() {
            if Instant::now() >= deadline {
                let left = self.fleet.status().total.unanswered;
                return tracing::info!("stopping with {left} unanswered requests");
            }
            match self.messages.recv_timeout(DRAIN_TICK) {
                Ok(Message::Signal(SIGHUP)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Request(request, reply)) => self.answer(&request, &reply),
                Ok(Message::CloseEarlierConnections(reply)) => _ = reply.try_send(()),
                Ok(Message::Greeting(reply)) => drop(reply.try_send(Err("the server is stopping".to_owned()))),
                Ok(Message::HandOver(_, reply)) => drop(reply.try_send(Err("the server is stopping".to_owned()))),
                Ok(Message::Signal(_)) => return tracing::warn!("second signal: stopping at once"),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn end(self) {
        let Self { fleet, log, bans, cdr, exporters, store: durable, cluster, is_succeeded, .. } = self;
        fleet.stop();
        // All records have been sent.
        cluster.stop();
        if !is_succeeded {
            durable.stop();
        }
        // All event senders are gone; once the last event is written, so is the last call's record.
        drop(log.join());
        if !is_succeeded {
            bans.end();
        }
        drop(cdr);
        exporters.stop();
        tracing::info!("ended");
    }

    /// Updates users from the database, and reports a panic once.
    fn follow(&mut self) {
        // By now the workers have the snapshot from before the last round, so none of them registers these users
        // again.
        for aor in std::mem::replace(&mut self.removals_due, std::mem::take(&mut self.removals_next)) {
            self.fleet.forget(&aor);
        }
        self.bans.follow(&self.snapshot, || bans::member_addresses(&self.cluster));
        self.follow_users();
        self.follow_loads();
        self.follow_listeners();
        self.follow_predecessors();
        if self.balancing.follow(&self.resolver.dns()) {
            self.publish_targets();
        }
        self.follow_loading();
        if let Some(panic) = self.fleet.last_panic()
            && self.last_panic != Some(panic.at)
        {
            self.last_panic = Some(panic.at);
            log::panic(&panic);
        }
    }

    fn follow_users(&mut self) {
        let followed = self.users.follow();
        self.apply_users(followed);
    }

    fn apply_users(&mut self, followed: DirectoryUpdate) {
        match followed {
            DirectoryUpdate::Unchanged => {}
            DirectoryUpdate::Changed { gone, sets } => {
                self.removals_next.extend(gone);
                self.publish_users(&sets);
            }
            DirectoryUpdate::Replaced => {
                let old = self.snapshot.directory.clone();
                let sets: Vec<_> = self.users.directory().gateways().sets().map(|(set, _)| set.into()).collect();
                self.publish_users(&sets);
                self.removals_next.extend(status::barred(&self.fleet, self.clock.now(), &old, self.users.directory()));
            }
        }
    }

    /// Once everything is loaded, removes the bindings of users who were removed or disabled while no server ran.
    fn follow_loading(&mut self) {
        if self.is_loaded || !self.store.is_loaded() {
            return;
        }
        self.is_loaded = true;
        // Loaded bindings have timers that their shard has not scheduled; a snapshot makes each shard check them.
        self.publish(Snapshot::clone(&self.snapshot));
        let gone = status::barred_before(&self.fleet, self.clock.now(), &self.snapshot);
        if !gone.is_empty() {
            tracing::info!(
                "registrations: removing {} of disabled or unknown users",
                count(gone.len() as u64, "address")
            );
        }
        self.removals_next.extend(gone);
    }

    /// Publishes the current directory, and the routes if these gateway sets have changed.
    fn publish_users(&mut self, sets: &[Box<[u8]>]) {
        let directory = self.users.directory().clone();
        if !sets.is_empty()
            && let Err(why) = self.balancing.rebuild(&self.config, directory.gateways())
        {
            tracing::error!("targets are unchanged: {why}");
        }
        match gateways::routes(&self.config, &directory, sets, self.balancing.sets()) {
            Some(routes) => {
                self.publish(Snapshot { directory, routes, ..Snapshot::clone(&self.snapshot) });
                gateways::report_changed(&self.config, &self.snapshot.directory, sets);
            }
            None => self.publish(Snapshot { directory, ..Snapshot::clone(&self.snapshot) }),
        }
    }

    fn publish(&mut self, snapshot: Snapshot) {
        self.snapshot = Arc::new(snapshot);
        // Before a message can come from a new one.
        self.fleet.locations().set_listeners(addresses_of(&self.snapshot));
        self.fleet.publish(Arc::clone(&self.snapshot));
    }

    fn answer(&mut self, request: &Request, reply: &SyncSender<Response>) {
        let response = match request {
            Request::Status => Response::Status(Box::new(self.status())),
            Request::Registrations { user, limit } => {
                let found = status::registrations(&self.fleet, self.clock.now(), user.as_deref(), *limit);
                Response::Registrations(found)
            }
            Request::Unregister { .. } if !self.fleet.locations().is_complete() => {
                Response::Busy("registrations are being loaded: try again later".to_owned())
            }
            Request::Unregister { user, contact } => {
                let (now, contact) = (self.clock.now(), contact.as_deref());
                let gone = status::unregister(&self.fleet, now, user, contact);
                gone.registrations.iter().for_each(|one| {
                    tracing::info!(aor = one.aor, contact = one.contact, "the operator removed a registration");
                });
                Response::Unregistered(gone)
            }
            Request::Calls { limit } => Response::Calls(calls::list(&self.fleet, self.clock.now(), *limit)),
            Request::EndedCalls { user, limit } => {
                let (calls, more) = self.cdr.latest(user.as_deref(), *limit);
                Response::EndedCalls(EndedCalls { calls, more, recorded: self.snapshot.record_calls })
            }
            Request::CallSetups => Response::CallSetups(status::call_setups(&self.fleet, &self.snapshot)),
            Request::EndCall { call_id } => calls::end(&self.fleet, self.clock.now(), call_id),
            Request::Trace(_) | Request::Timing(_) | Request::Backup(_) | Request::Upgrade(_) => {
                Response::Error("this request needs its own connection".to_owned())
            }
            Request::Reload => match self.reload() {
                Ok(done) => Response::Reloaded(done),
                Err(why) => Response::Error(format!("{why}; nothing was changed")),
            },
            Request::CheckReload => self.check_reload().map_or_else(Response::Error, Response::Reloaded),
            Request::Follow { .. } => {
                let followed = self.users.follow_now();
                self.apply_users(followed);
                Response::Followed
            }
            Request::Targets { set } => self.targets(set.as_deref()).map_or_else(Response::NotFound, Response::Targets),
            Request::Clusters(reweighing) => {
                self.clusters(reweighing).map_or_else(Response::NotFound, Response::Clusters)
            }
            change @ (Request::Drain { .. }
            | Request::Undrain { .. }
            | Request::AddTarget(_)
            | Request::RemoveTarget { .. }) => {
                self.change_target(change).map_or_else(|refused| refused, Response::Target)
            }
            Request::Bans { limit } => Response::Bans(self.bans.list(*limit)),
            Request::Failures { limit } => Response::Failures(self.bans.list_failures(*limit)),
            Request::AddBan(new) => self.bans.add(new).map_or_else(Response::Conflict, Response::Ban),
            Request::RemoveBan { address } => self.bans.remove(*address).map_or_else(Response::NotFound, Response::Ban),
        };
        // The client may have disconnected.
        drop(reply.try_send(response));
    }

    fn status(&self) -> Status {
        let mut status = status::status(&self.fleet, &self.snapshot, &self.resolver, self.started.elapsed());
        let lost = self.cdr.lost() + self.fleet.status().total.worker.record_drops;
        status.store = Some(self.store.status());
        status.cluster = self.cluster.status();
        status.users_database = self.users.shared_status();
        status.calls_database = self.cdr.database_status();
        let is_awake = self.config.server.spin == config::values::Spin::Always;
        status.loads.iter_mut().for_each(|worker| worker.awake = is_awake && worker.shards > 0);
        status.balancers = self.balancing.summary(&self.config, self.clock.now());
        status.certificates = self.certificates.status();
        status.key = self.fingerprint.clone();
        status.takeover = self.takeover_status();
        status.counters.insert("bans".to_owned(), self.bans.counters());
        status.counters.insert("cdr".to_owned(), [("lost".to_owned(), lost)].into());
        self.exporters.count(&mut status.counters);
        let targets = status.counters.entry("targets".to_owned()).or_default();
        let counts = self.balancing.counts(self.clock.now());
        targets.extend(counts.map(|(name, count)| (name.to_owned(), count)));
        status
    }
}

/// Returns the addresses of the listeners, and whether each takes requests.
fn addresses_of(snapshot: &Snapshot) -> impl Iterator<Item = (Transport, SocketAddr, bool)> {
    snapshot.listeners.all().map(|listener| {
        let is_open = matches!(listener.state(), ListenerState::Opening | ListenerState::Open);
        (listener.transport, listener.address, is_open)
    })
}

/// Opens the HTTP listener and the control socket, or goes on with those of the process before.
fn open_for_operators(
    served: Served,
    config: &Config,
    (control, administration): (Option<OwnedFd>, Option<TcpListener>),
) -> Result<(Option<AdminListener>, Option<ControlSocket>), Failure> {
    let handler = Arc::clone(&served.handler);
    let admin = AdminListener::start(served, administration)?;
    let path = config.control_socket();
    let control = match control {
        Some(control) => ControlSocket::take_over(&path, control, handler),
        None => ControlSocket::open(&path, handler),
    };
    Ok((Some(admin), Some(control.map_err(Failure::No)?)))
}

fn start_resolver(
    config: &Config,
    listeners: &[Listener],
    names: &Arc<NameCache>,
    clock: Clock,
) -> Result<Arc<Resolver>, Failure> {
    let reach = SendableTransports::of(listeners.iter().map(|listener| (listener.transport, listener.address)));
    let dns = DnsResolver::start(&config.dns_config(reach));
    let dns = dns.map_err(|error| Failure::No(format!("the resolver's thread cannot be started: {error}")))?;
    Ok(Arc::new(Resolver::new(dns, Arc::clone(names), clock)))
}

/// Creates an empty location table. Its hashes depend on the server's key, because Call-IDs and temporary GRUUs
/// survive a restart.
pub(crate) fn empty_table(
    listeners: impl IntoIterator<Item = (Transport, SocketAddr)>,
    workers: u16,
    key: &[u8; 16],
) -> Result<Locations, Failure> {
    let stripes = shards_of(workers)?;
    let seed = TagKey::new(*key).derive("locations").hash64(&[]);
    Ok(Locations::new(stripes, seed).with_listeners(listeners))
}

/// Returns a random key for a server without one.
pub(crate) fn fresh_key() -> Result<[u8; 16], Failure> {
    let [first, second, ..] = entropy()?;
    Ok((u128::from(first) << 64 | u128::from(second)).to_be_bytes())
}

fn entropy() -> Result<[u64; 4], Failure> {
    let mut numbers = [0; 4];
    for number in &mut numbers {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)
            .map_err(|error| Failure::No(format!("the system does not provide random bytes: {error}")))?;
        *number = u64::from_le_bytes(bytes);
    }
    Ok(numbers)
}

fn forward_signals(messages: SyncSender<Message>) -> Result<(), Failure> {
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
    let mut signals = signals.map_err(|error| Failure::No(format!("signals cannot be caught: {error}")))?;
    spawn("signals", move || {
        for signal in signals.forever() {
            if messages.send(Message::Signal(signal)).is_err() {
                return;
            }
        }
    })
    .map(drop)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Failure> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(work);
    spawned.map_err(|error| Failure::No(format!("a thread cannot be started: {error}")))
}
