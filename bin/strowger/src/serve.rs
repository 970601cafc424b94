//! `strowger serve`: the server in the foreground.
//!
//! The thread that runs [`Server::run`] owns everything outside the workers: it follows the users database, answers
//! the control socket and handles signals, one event at a time.

mod clusters;
mod targets;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use strowger_control::config::values::Affinity;
use strowger_control::config::{self, Config, ConfigSource};
use strowger_control::dns::{DnsResolver, SendableTransports};
use strowger_control::protocol::{BackupReport, BackupRequest, Request, Response, Status, TraceRequest};
use strowger_control::socket::{ControlSocket, Handler, TraceSource};
use strowger_control::targets::TargetError;
use strowger_foundation::{TagKey, Transport};
use strowger_locate::NameCache;
use strowger_net::{BufferSizes, Clock, TcpListener, UdpSocket};
use strowger_registrar::Locations;
use strowger_shard::{Limits, Listener, Listeners, Snapshot};
use strowger_worker::{Fleet, FleetConfig, PacketSteering, Resolve, Socket, Spin, StreamLimits, WorkerOptions};

use crate::balancing::TargetManager;
use crate::cdr::Cdr;
use crate::cluster::{self, SharedTable};
use crate::durable_store::DurableStore;
use crate::failure::Failure;
use crate::huge_pages::HugePages;
use crate::resolver::Resolver;
use crate::segmentation::Segmentation;
use crate::text::count;
use crate::trace::Traces;
use crate::users::{DirectoryUpdate, Users};
use crate::{calls, check, former_names, gateways, key, log, memory, status};

/// Interval at which the users database is checked for changes.
const FOLLOW_EVERY: Duration = Duration::from_millis(250);
/// Interval at which a draining server checks whether it is done.
const DRAIN_TICK: Duration = Duration::from_millis(20);
/// Maximum time for transactions to end after a signal.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// Queue length for requests of the control socket, above its number of connections.
const QUEUE: usize = 64;
/// Number of open files besides connections: databases, listeners, the control socket, logs.
const OTHER_FILES: usize = 512;
/// Queue length for log events and ended calls.
const EVENT_QUEUE: usize = 8192;
/// Divisor of the memory: requests, from first packet to last timer, may use one part in this many.
const PART_FOR_REQUESTS: u64 = 2;
/// Time that a client of the control socket waits for a response.
const ANSWER_LIMIT: Duration = Duration::from_secs(9);

pub(crate) fn run(meant: ConfigSource<'_>) -> Result<(), Failure> {
    let (config, read) = Config::load_with_secrets(meant)?;
    log::start(&config.log);
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
    let mut server = Server::start(config, meant.file.map(Path::to_owned), streams)?;
    server.run(pages);
    server.end();
    Ok(())
}

/// Messages to the thread that owns the server.
enum Message {
    Signal(i32),
    Request(Request, SyncSender<Response>),
}

struct Server {
    config: Config,
    file: Option<PathBuf>,
    users: Users,
    balancing: TargetManager,
    segmentation: Segmentation,
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
    cdr: Arc<Cdr>,
    /// Thread that writes log events and passes calls to `cdr`.
    log: JoinHandle<()>,
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
    _control: ControlSocket,
}

impl Server {
    fn start(config: Config, file: Option<PathBuf>, streams: StreamLimits) -> Result<Self, Failure> {
        let workers = config.workers(check::cores());
        let segmentation = Segmentation::new(config.server.segmentation);
        let sockets = bind(&config, workers, &segmentation)?;
        let listeners: Vec<Listener> = sockets.first().map_or_else(Vec::new, |sockets| {
            sockets.iter().map(|socket| Listener::new(socket.transport(), socket.local_addr())).collect()
        });
        let [seed, directory_seed, key_low, key_high] = entropy()?;
        let users = Users::open(&config, directory_seed)?;
        check::machine_warnings(&config, file.as_deref()).iter().for_each(|warning| tracing::warn!("{warning}"));
        gateways::report(&config, users.directory());
        let clock = Clock::start();
        let names = Arc::new(NameCache::new(config.cache_policy(), seed));
        let resolver = start_resolver(&config, &listeners, &names, clock)?;
        let balancing = TargetManager::start(&config, users.directory().gateways(), &resolver.dns);
        let snapshot = config.snapshot(Listeners::new(listeners), users.directory().clone(), balancing.sets());
        let snapshot = Arc::new(Snapshot { limits: limits_of_shards(workers)?, ..snapshot });
        let (sender, messages) = mpsc::sync_channel(QUEUE);
        let traces = Traces { tracer: Arc::default(), clock, listeners: status::listeners(&snapshot).into() };
        let tracer = Arc::clone(&traces.tracer);
        let backups = Arc::new(OnceLock::new());
        let handler = Arc::new(ControlHandler { messages: sender.clone(), traces, backups: Arc::clone(&backups) });
        let control = ControlSocket::open(&config.control_socket(), handler).map_err(Failure::No)?;
        forward_signals(sender)?;
        let (events, received) = mpsc::sync_channel(EVENT_QUEUE);
        let cdr = Cdr::start(config.cdr.file.as_deref(), config.calls_databases(), clock);
        let cdr = Arc::new(cdr.map_err(|error| Failure::No(format!("a thread cannot be started: {error}")))?);
        let writer = Arc::clone(&cdr);
        let log = spawn("events", move || log::events(&received, &writer))?;
        let fresh = (u128::from(key_high) << 64) | u128::from(key_low);
        let key = key::of_server(&config, fresh.to_le_bytes())?;
        let listeners = snapshot.listeners.iter().map(|listener| (listener.transport, listener.address));
        let locations = empty_table(listeners, workers, &key)?;
        let locations = if config.store_mode().is_durable() { locations.with_pending_source() } else { locations };
        let locations = Arc::new(cluster::share(locations, &config));
        let durable = DurableStore::start(&config, &locations, &snapshot.registrar, key, clock)?;
        let cluster = SharedTable::start(&config, &locations, &snapshot.listeners, (&key, clock))?;
        drop(backups.set(durable.clone()));
        let fleet = FleetConfig {
            sockets,
            snapshot: Arc::clone(&snapshot),
            seed,
            key,
            clock,
            events,
            streams,
            names,
            resolver: Some(Arc::clone(&resolver) as Arc<dyn Resolve>),
            locations,
            record_sink: cluster.record_sink(durable.record_sink()),
            nonces: cluster.nonces(),
            tracer,
            options: worker_options(&config, workers),
        };
        let fleet = Fleet::start(fleet).map_err(|error| {
            Failure::No(format!("the workers cannot be started: {error}; try fewer (server.workers)"))
        })?;
        tracing::info!(
            "{}, {}; control socket {}",
            count(workers.into(), "worker"),
            count(snapshot.directory.users() as u64, "user"),
            config.control_socket().display()
        );
        let started = Instant::now();
        let snapshot_is_moving = snapshot.clusters.as_ref().is_some_and(|clusters| clusters.previous.is_some());
        Ok(Self {
            config,
            file,
            users,
            balancing,
            segmentation,
            snapshot,
            fleet,
            resolver,
            store: durable,
            cluster,
            fingerprint: key::fingerprint(&key),
            is_loaded: false,
            clock,
            cdr,
            log,
            moving_since: snapshot_is_moving.then_some(started),
            counted_since: started,
            started,
            messages,
            last_panic: None,
            removals_next: Vec::new(),
            removals_due: Vec::new(),
            _control: control,
        })
    }

    /// Runs until a signal ends the server and its transactions.
    fn run(&mut self, mut pages: HugePages) {
        self.follow_loading();
        let mut next_follow = Instant::now() + FOLLOW_EVERY;
        loop {
            match self.messages.recv_timeout(next_follow.saturating_duration_since(Instant::now())) {
                Ok(Message::Signal(SIGHUP)) => drop(self.reload()),
                Ok(Message::Signal(_)) => return self.drain(),
                Ok(Message::Request(request, reply)) => self.answer(&request, &reply),
                Err(RecvTimeoutError::Timeout) => {
                    pages.update();
                    self.segmentation.update();
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
                Ok(Message::Signal(_)) => return tracing::warn!("second signal: stopping at once"),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn end(self) {
        let Self { fleet, log, cdr, store: durable, cluster, .. } = self;
        fleet.stop();
        // All records have been sent.
        cluster.stop();
        durable.stop();
        // All event senders are gone; once the last event is written, so is the last call's record.
        drop(log.join());
        drop(cdr);
        tracing::info!("ended");
    }

    /// Updates users from the database, and reports a panic once.
    fn follow(&mut self) {
        // By now the workers have the snapshot from before the last round, so none of them registers these users
        // again.
        for aor in std::mem::replace(&mut self.removals_due, std::mem::take(&mut self.removals_next)) {
            self.fleet.forget(&aor);
        }
        self.follow_users();
        self.follow_loads();
        if self.balancing.follow(&self.resolver.dns) {
            self.publish_targets();
        }
        self.follow_loading();
        if let Some(panic) = self.fleet.status().last_panic
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
                Response::Error("registrations are being loaded: try again later".to_owned())
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
            Request::Trace(_) | Request::Backup(_) => {
                Response::Error("this request needs its own connection".to_owned())
            }
            Request::Reload => match self.reload() {
                Ok(done) => Response::Reloaded(done),
                Err(why) => Response::Error(format!("{why}; nothing was changed")),
            },
            Request::Follow => {
                let followed = self.users.follow_now();
                self.apply_users(followed);
                Response::Followed
            }
            Request::Targets { set } => self.targets(set.as_deref()).map_or_else(Response::Error, Response::Targets),
            Request::Clusters(reweighing) => self.clusters(reweighing).map_or_else(Response::Error, Response::Clusters),
            change @ (Request::Drain { .. }
            | Request::Undrain { .. }
            | Request::AddTarget(_)
            | Request::RemoveTarget { .. }) => {
                self.change_target(change).map_or_else(Response::Error, Response::Target)
            }
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
        status.key = self.fingerprint.clone();
        status.counters.insert("cdr".to_owned(), [("lost".to_owned(), lost)].into());
        let targets = status.counters.entry("targets".to_owned()).or_default();
        let counts = self.balancing.counts(self.clock.now());
        targets.extend(counts.map(|(name, count)| (name.to_owned(), count)));
        status
    }

    /// Applies the whole new configuration or none of it.
    fn reload(&mut self) -> Result<String, String> {
        let result = self.try_reload();
        // Log rotation needs this even if the new configuration is invalid.
        self.cdr.reopen(self.config.cdr.file.as_deref());
        match &result {
            Ok(done) => tracing::info!("{done}"),
            Err(why) => tracing::error!("not reloaded, nothing was changed: {why}"),
        }
        result
    }

    fn try_reload(&mut self) -> Result<String, String> {
        if self.snapshot.is_draining {
            return Err("the server is being stopped".to_owned());
        }
        let member = self.config.role().map(|role| role.name.as_str());
        let wanted = ConfigSource { file: self.file.as_deref(), member };
        let (config, read) = Config::load_with_secrets(wanted).map_err(|error| error.to_string())?;
        unchanged(&self.config, &config)?;
        let users = self.users.reopen(&config).map_err(|error| error.to_string())?;
        config.route_warnings(users.directory().gateways())?;
        let prepared = self.balancing.prepare(&config, users.directory().gateways(), &self.resolver.dns);
        let located = |TargetError { key, message }| Config::located(read.as_deref(), &key, message).to_string();
        let prepared = prepared.map_err(located)?;
        former_names::warnings(read.as_deref()).iter().for_each(|warning| tracing::warn!("{warning}"));
        gateways::report(&config, users.directory());
        let old = self.snapshot.directory.clone();
        self.users = users;
        self.config = config;
        let undone = self.balancing.apply(prepared);
        self.segmentation.set_mode(self.config.server.segmentation);
        self.cluster.update_peers(&self.config);
        self.removals_next.extend(status::barred(&self.fleet, self.clock.now(), &old, self.users.directory()));
        let (listeners, directory) = (self.snapshot.listeners.clone(), self.users.directory().clone());
        let snapshot = self.config.snapshot(listeners, directory, self.balancing.sets());
        let warning = self.note_move(&snapshot);
        self.publish(Snapshot { limits: self.snapshot.limits, ..snapshot });
        let users = count(self.snapshot.directory.users() as u64, "user");
        let routes = count(self.snapshot.routes.len() as u64, "route");
        let undone = match undone {
            0 => String::new(),
            changes => format!("; discarded: {} to targets by commands", count(changes as u64, "change")),
        };
        // Names the file, because the operator may have another one in mind.
        let file = read.as_deref().map_or("defaults, as there is no file".into(), Path::to_string_lossy);
        Ok(format!("reloaded {file}: {users}, {routes}{undone}{warning}"))
    }
}

/// Checks that keys that need a restart are unchanged.
fn unchanged(old: &Config, new: &Config) -> Result<(), String> {
    let same = [
        ("server.listen", old.server.listen == new.server.listen),
        ("server.workers", old.server.workers == new.server.workers),
        ("server.min_workers", old.server.min_workers == new.server.min_workers),
        ("server.affinity", old.server.affinity == new.server.affinity),
        ("server.steering", old.server.steering == new.server.steering),
        ("server.spin", old.server.spin == new.server.spin),
        ("server.data", old.server.data == new.server.data),
        ("server.key_file", old.key_file() == new.key_file()),
        ("overload.control", old.overload.control == new.overload.control),
        ("store.url", old.store_url() == new.store_url() || !old.store_mode().is_durable()),
        ("store.shared_users", old.store.shared_users == new.store.shared_users),
        ("cluster", is_same_cluster(old, new)),
        ("store.mode", old.store_mode() == new.store_mode()),
        ("control.socket", old.control_socket() == new.control_socket()),
        ("log", old.log == new.log),
        ("tcp", old.tcp == new.tcp),
        ("dns", old.dns == new.dns),
        ("cdr", old.cdr == new.cdr),
    ];
    if old.role().map(|role| role.cluster.is_some()) != new.role().map(|role| role.cluster.is_some()) {
        return Err("the server's role cannot change while it runs; restart it".to_owned());
    }
    new.check_successor(old)?;
    match same.into_iter().find(|(_, same)| !same) {
        Some((key, _)) => Err(format!("{key} cannot change while the server runs; set it back, or restart the server")),
        None => Ok(()),
    }
}

/// Whether sharing is unchanged, apart from the list of peers.
fn is_same_cluster(old: &Config, new: &Config) -> bool {
    let without_peers = |config: &Config| {
        config
            .cluster
            .clone()
            .map(|cluster| (cluster.peers.is_empty(), config::Cluster { peers: Vec::new(), ..cluster }))
    };
    without_peers(old) == without_peers(new)
}

/// Binds one socket per address and worker.
fn bind(config: &Config, workers: u16, segmentation: &Segmentation) -> Result<Vec<Vec<Socket>>, Failure> {
    let no = |error: strowger_net::BindError| Failure::No(error.to_string());
    let mut sockets: Vec<Vec<Socket>> = (0..workers).map(|_| Vec::new()).collect();
    let mut firsts: Vec<Socket> = Vec::new();
    for (transport, mut address) in check::addresses(config)? {
        // Port 0 means one free port for all transports of the address.
        let twin =
            firsts.iter().map(Socket::local_addr).find(|first| address.port() == 0 && first.ip() == address.ip());
        address.set_port(twin.map_or(address.port(), |twin| twin.port()));
        let first = match transport {
            Transport::Udp => UdpSocket::bind(address, BufferSizes::DEFAULT).map(|mut socket| {
                segmentation.apply(&mut socket);
                Socket::from(socket)
            }),
            _ => TcpListener::bind(address).map(Socket::from),
        };
        let first = first.map_err(no)?;
        tracing::info!("listening on {}:{}", transport.as_str().to_ascii_lowercase(), first.local_addr());
        firsts.push(first);
    }
    for first in firsts {
        let others = (1..workers).map(|_| first.sibling().map_err(no)).collect::<Result<Vec<_>, _>>()?;
        for (mine, socket) in sockets.iter_mut().zip(std::iter::once(first).chain(others)) {
            mine.push(socket);
        }
    }
    Ok(sockets)
}

/// Returns how the workers share work and cores.
fn worker_options(config: &Config, workers: u16) -> WorkerOptions {
    let server = &config.server;
    let cores = match &server.affinity {
        Affinity::None => Vec::new(),
        Affinity::Auto => check::usable_cores(),
        Affinity::Cores(cores) => cores.iter().copied().map(usize::from).collect(),
    };
    let steering = match server.steering {
        config::Steering::Peers => PacketSteering::Peers,
        config::Steering::Packets => PacketSteering::Packets,
    };
    let spin = match server.spin {
        config::values::Spin::UpTo(span) => Spin::UpTo(span.0),
        config::values::Spin::Always => {
            tracing::info!("server.spin: workers with shards busy-poll, each occupying a core");
            Spin::Always
        }
    };
    let overload_control = config.overload.control;
    WorkerOptions { spin, min_workers: config.min_workers(workers).into(), cores, steering, overload_control }
}

/// Returns the limits of each shard, so that requests use at most one part in [`PART_FOR_REQUESTS`] of the memory.
fn limits_of_shards(workers: u16) -> Result<Limits, Failure> {
    let shards = shards_of(workers)?;
    let bytes = memory::allowed() / PART_FOR_REQUESTS / u64::from(shards);
    let limits = Limits::within(usize::try_from(bytes).unwrap_or(usize::MAX));
    let all = |each: usize| count((each * usize::from(shards)) as u64, "request");
    let (going_on, held) = (all(limits.in_progress), all(limits.server_transactions));
    tracing::info!("limits: {going_on} in progress, {held} held until their timers expire");
    Ok(limits)
}

fn shards_of(workers: u16) -> Result<u16, Failure> {
    strowger_worker::shards_of(workers.into())
        .map_err(|error| Failure::No(format!("server.workers = {workers}: {error}")))
}

/// Returns the connection limits, given the maximum number of open files.
fn stream_limits(config: &Config, files: u64) -> StreamLimits {
    let tcp = &config.tcp;
    let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let files = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(OTHER_FILES);
    StreamLimits {
        connections: number(tcp.connections).min(files),
        per_source: number(tcp.per_source),
        message_timeout: tcp.message_timeout.0,
        idle: tcp.idle.0,
        connect_timeout: tcp.connect_timeout.0,
        user_timeout: tcp.user_timeout.0,
        ..StreamLimits::default()
    }
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
    Ok(Arc::new(Resolver { dns, names: Arc::clone(names), clock }))
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

/// Passes requests of the control socket to the thread that owns the server.
struct ControlHandler {
    messages: SyncSender<Message>,
    traces: Traces,
    /// Set once loading has started.
    backups: Arc<OnceLock<DurableStore>>,
}

impl Handler for ControlHandler {
    fn handle(&self, request: Request) -> Response {
        let (reply, answer) = mpsc::sync_channel(1);
        let ended = || Response::Error("the server is stopping".to_owned());
        match self.messages.try_send(Message::Request(request, reply)) {
            Ok(()) => answer.recv_timeout(ANSWER_LIMIT).unwrap_or_else(|_| ended()),
            Err(mpsc::TrySendError::Full(_)) => Response::Error("too many concurrent requests; try again".to_owned()),
            Err(mpsc::TrySendError::Disconnected(_)) => ended(),
        }
    }

    fn trace(&self, request: &TraceRequest) -> Result<Box<dyn TraceSource>, String> {
        self.traces.start(request)
    }

    fn backup(&self, request: &BackupRequest, progress: &mut dyn FnMut(u64, u64)) -> Result<BackupReport, String> {
        let durable = self.backups.get().ok_or("the server is starting; try again")?;
        durable.backup(request, progress)
    }
}
