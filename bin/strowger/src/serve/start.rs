//! The start of a server: a fresh one, or one that goes on where another process stops.
//!
//! The parts are made in an order that matters. What another process does not hand over is loaded before that process
//! stops reading; what it closes is opened afterwards.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use strowger_auth::NonceWindows;
use strowger_control::config::{Config, ConfigSource};
use strowger_control::dns::{DnsResolver, SendableTransports};
use strowger_control::socket::Handler;
use strowger_foundation::{TagKey, Transport};
use strowger_locate::NameCache;
use strowger_net::{Clock, WebSocketContext};
use strowger_registrar::Locations;
use strowger_shard::{Event, Listener, Listeners, Snapshot};
use strowger_worker::{
    Fleet, FleetConfig, FleetTimesReader, NONCE_STRIPES, Resolve, Socket, StreamLimits, TakenOver, Tracer,
};

use super::chain::Chain;
use super::control_handler::ControlHandler;
use super::inheritance::{Inheritance, Inherited};
use super::limits::{limits_of_shards, shards_of, stream_limits, worker_options};
use super::listeners::{ListenerSet, bind, listeners_of};
use super::operators::OperatorAccess;
use super::{Message, Server, addresses_of};
use crate::admin::Served;
use crate::balancing::TargetManager;
use crate::ban_keeper::{BanKeeper, KnownSources};
use crate::cdr::Cdr;
use crate::cluster::{self, SharedTable};
use crate::durable_store::DurableStore;
use crate::exporters::Exporters;
use crate::failure::Failure;
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
use crate::users::Users;
use crate::{check, former_names, gateways, key, log, status, web_sockets};

/// Queue length for requests of the control socket, above its number of connections.
const QUEUE: usize = 64;
/// Queue length for log events and ended calls.
const EVENT_QUEUE: usize = 8192;

/// Starts a server; if another process hands over to it, that has decided so when this returns.
pub(super) fn start(meant: ConfigSource<'_>, inheritance: Option<Inheritance>) -> Result<(Server, HugePages), Failure> {
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
    let setup = Setup {
        workers: config.workers(check::cores()),
        clock: inheritance.as_ref().map_or_else(Clock::start, |inheritance| inheritance.clock),
        entropy: Entropy::draw()?,
        file: meant.file.map(Path::to_owned),
        config,
        files,
        streams,
    };
    let server = Server::start(setup, (log, read.as_deref()), inheritance)?;
    Ok((server, pages))
}

/// What all parts are made from.
struct Setup {
    config: Config,
    /// The file that the operator has named.
    file: Option<PathBuf>,
    workers: u16,
    clock: Clock,
    entropy: Entropy,
    /// Maximum number of open files.
    files: u64,
    streams: StreamLimits,
}

/// Random numbers.
struct Entropy {
    seed: u64,
    directory_seed: u64,
    /// The key, if the server has none so far.
    key: [u8; 16],
}

impl Entropy {
    fn draw() -> Result<Self, Failure> {
        let [seed, directory_seed] = [random()?, random()?].map(u64::from_le_bytes);
        Ok(Self { seed, directory_seed, key: fresh_key()? })
    }
}

impl Server {
    fn start(
        setup: Setup,
        (log_handle, read): (LogHandle, Option<&Path>),
        inheritance: Option<Inheritance>,
    ) -> Result<Self, Failure> {
        let (mut opened, listeners) = ListenerSockets::open(&setup, inheritance.as_ref())?;
        let routing = Routing::load(&setup, listeners)?;
        let reporting = Reporting::start(&setup, read, &routing.snapshot)?;
        let table = Table::create(&setup, &routing.snapshot, inheritance.is_some())?;
        let inherited = inheritance.map(|from| table.inherit(from, &opened, &routing.snapshot));
        let mut inherited = inherited.transpose()?;
        // The process before has written its bans by now.
        let (event_log, events) = EventLog::start(&setup, &reporting)?;
        let served = reporting.served(&setup, &event_log);
        // If there is another server, it answers there, and has the store too.
        let (served, interfaces) = match &inherited {
            Some(_) => (Some(served), None),
            None => (None, Some(OperatorAccess::bind(&setup.config, (None, None))?.serve(served)?)),
        };
        let (admin, control) = interfaces.unzip();
        let chain = inherited.as_ref().map_or_else(|| Chain::new(0, setup.entropy.seed), Inherited::chain);
        let stores = Stores::start(&setup, &table, &routing.snapshot, &chain, inherited.as_mut())?;
        drop(reporting.backups.set(stores.durable.clone()));
        let sockets = match &mut inherited {
            Some(inherited) => inherited.take_sockets(),
            None => (std::mem::take(&mut opened.bound), None),
        };
        let fleet = start_fleet(&setup, &routing, &table, &stores, (&reporting, &event_log), sockets, events)?;
        let started = Instant::now();
        let is_moving = routing.snapshot.clusters.as_ref().is_some_and(|clusters| clusters.previous.is_some());
        let mut server = Self {
            config: setup.config,
            running_config: reporting.running_config,
            file: setup.file,
            users: routing.users,
            balancing: routing.balancing,
            segmentation: opened.segmentation,
            certificates: opened.certificates,
            web_sockets: opened.web_sockets,
            listening: opened.listening,
            listener_names: reporting.listener_names,
            snapshot: routing.snapshot,
            fleet,
            resolver: routing.resolver,
            store: stores.durable,
            cluster: stores.cluster,
            fingerprint: key::fingerprint(&table.key),
            is_loaded: false,
            clock: setup.clock,
            bans: event_log.bans,
            cdr: reporting.cdr,
            exporters: reporting.exporters,
            log: event_log.log,
            log_handle,
            files: setup.files,
            handler: reporting.handler,
            moving_since: is_moving.then_some(started),
            counted_since: started,
            started,
            messages: reporting.messages,
            last_panic: None,
            removals_next: Vec::new(),
            removals_due: Vec::new(),
            control,
            admin,
            nonces: stores.nonces,
            passed_calls: event_log.passed_calls,
            chain,
        };
        if let (Some(inherited), Some(served)) = (inherited, served) {
            server.take_over(inherited, served)?;
        }
        Ok(server)
    }
}

/// The sockets, and what is needed to open them.
struct ListenerSockets {
    segmentation: Segmentation,
    certificates: Certificates,
    web_sockets: Arc<WebSocketContext>,
    listening: ListenerSet,
    /// The sockets of each worker; empty if another process hands them over.
    bound: Vec<Vec<Socket>>,
}

impl ListenerSockets {
    /// Binds the sockets, unless another process hands them over. Returns the listeners too.
    fn open(setup: &Setup, inheritance: Option<&Inheritance>) -> Result<(Self, Vec<Listener>), Failure> {
        let Setup { config, workers, .. } = setup;
        let segmentation = Segmentation::new(config.server.segmentation);
        let certificates = Certificates::load(config)?;
        let web_sockets = web_sockets::context(config)?;
        let (listening, listeners, bound) = match inheritance {
            Some(inheritance) => {
                inheritance.check(config, *workers)?;
                // Before anything is created in a folder that is not the running server's.
                inheritance.check_key(&key::fingerprint(&key::of_predecessor(config)?))?;
                let (listening, listeners) = ListenerSet::inherit(config, &inheritance.hello.listeners)?;
                (listening, listeners, Vec::new())
            }
            None => {
                let contexts = (certificates.context(), &web_sockets);
                let (listening, sockets) = bind(config, *workers, &segmentation, contexts)?;
                (listening, listeners_of(&sockets), sockets)
            }
        };
        Ok((Self { segmentation, certificates, web_sockets, listening, bound }, listeners))
    }
}

/// What tells where requests go.
struct Routing {
    users: Users,
    names: Arc<NameCache>,
    resolver: Arc<Resolver>,
    balancing: TargetManager,
    snapshot: Arc<Snapshot>,
}

impl Routing {
    fn load(setup: &Setup, listeners: Vec<Listener>) -> Result<Self, Failure> {
        let Setup { config, entropy, workers, clock, .. } = setup;
        let users = Users::open(config, entropy.directory_seed)?;
        let warnings = check::machine_warnings(config, setup.file.as_deref());
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        gateways::report(config, users.directory());
        let names = Arc::new(NameCache::new(config.cache_policy(), entropy.seed));
        let resolver = start_resolver(config, &listeners, &names, *clock)?;
        let balancing = TargetManager::start(config, users.directory().gateways(), &resolver.dns());
        let snapshot = config.snapshot(Listeners::new(listeners), users.directory().clone(), balancing.sets());
        let snapshot = Arc::new(Snapshot { limits: limits_of_shards(*workers)?, ..snapshot });
        Ok(Self { users, names, resolver, balancing, snapshot })
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
    Ok(Arc::new(Resolver::new(dns, Arc::clone(names), clock)))
}

/// What operators ask, and what other programs are told.
struct Reporting {
    handler: Arc<ControlHandler>,
    /// What the handler and signals ask of the server.
    messages: Receiver<Message>,
    running_config: RunningConfig,
    listener_names: ListenerNames,
    tracer: Arc<Tracer>,
    exporters: Exporters,
    cdr: Arc<Cdr>,
    /// Set once the store has been opened.
    backups: Arc<OnceLock<DurableStore>>,
    /// Set once the workers have started.
    times: Arc<OnceLock<FleetTimesReader>>,
}

impl Reporting {
    fn start(setup: &Setup, read: Option<&Path>, snapshot: &Snapshot) -> Result<Self, Failure> {
        let Setup { config, clock, .. } = setup;
        let (sender, messages) = mpsc::sync_channel(QUEUE);
        let listener_names = ListenerNames::default();
        listener_names.set(status::listeners(snapshot));
        let traces = Traces { tracer: Arc::default(), clock: *clock, listeners: listener_names.clone() };
        let tracer = Arc::clone(&traces.tracer);
        let exporters = Exporters::start(config, &snapshot.listeners, Arc::clone(&tracer), *clock);
        let (backups, times) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
        let handler = ControlHandler {
            messages: sender.clone(),
            traces,
            backups: Arc::clone(&backups),
            times: Arc::clone(&times),
            upgrading: Mutex::default(),
        };
        let handler = Arc::new(handler);
        let running_config = RunningConfig::new(config, read);
        forward_signals(sender)?;
        let cdr = Cdr::start(config.cdr.file.as_deref(), config.calls_databases(), *clock);
        let cdr = Arc::new(cdr.map_err(|error| Failure::No(format!("a thread cannot be started: {error}")))?);
        Ok(Self { handler, messages, running_config, listener_names, tracer, exporters, cdr, backups, times })
    }

    /// Returns what the HTTP listener shows.
    fn served(&self, setup: &Setup, event_log: &EventLog) -> Served {
        Served {
            handler: Arc::clone(&self.handler) as Arc<dyn Handler>,
            config: self.running_config.clone(),
            file: setup.file.clone(),
            security: Arc::clone(&event_log.security),
            times: Arc::clone(&self.times),
        }
    }
}

/// The location table, so far empty.
struct Table {
    key: [u8; 16],
    locations: Arc<Locations>,
}

impl Table {
    /// Creates it. What another process hands over `is_complete`.
    fn create(setup: &Setup, snapshot: &Snapshot, is_complete: bool) -> Result<Self, Failure> {
        let Setup { config, workers, entropy, .. } = setup;
        let key = key::of_server(config, entropy.key)?;
        let locations = empty_table([], *workers, &key)?;
        locations.set_listeners(addresses_of(snapshot));
        let locations = if config.store_mode().is_durable() { locations.with_pending_source() } else { locations };
        let locations = cluster::share(locations, config);
        let locations = if is_complete { locations } else { cluster::await_members(locations, config) };
        Ok(Self { key, locations: Arc::new(locations) })
    }

    /// Receives what another process hands over; it reads nothing from here on. Fills the table.
    fn inherit(&self, from: Inheritance, opened: &ListenerSockets, snapshot: &Snapshot) -> Result<Inherited, Failure> {
        self.locations.set_store_origin(from.hello.store_origin);
        let contexts = (opened.certificates.context(), &opened.web_sockets);
        from.receive_state(&self.locations, &snapshot.registrar, contexts, &opened.segmentation)
    }
}

/// Bans, and the thread that writes log events.
struct EventLog {
    bans: Arc<BanKeeper>,
    security: Arc<SecurityLog>,
    log: JoinHandle<()>,
    passed_calls: PassedCalls,
}

impl EventLog {
    /// Starts the thread, which ends when the sender of events is gone.
    fn start(setup: &Setup, reporting: &Reporting) -> Result<(Self, SyncSender<Event>), Failure> {
        let bans = Arc::new(BanKeeper::start(&setup.config, setup.entropy.seed, setup.clock));
        let security = Arc::new(SecurityLog::new(Arc::clone(&bans), setup.entropy.seed, setup.clock));
        let (events, received) = mpsc::sync_channel(EVENT_QUEUE);
        let (writer, ended_calls) = (Arc::clone(&reporting.cdr), reporting.exporters.ended_calls());
        let passed_calls = PassedCalls::default();
        let (seen, passed) = (Arc::clone(&security), passed_calls.clone());
        let log = spawn("events", move || log::events(&received, (&writer, &ended_calls), &seen, &passed))?;
        Ok((Self { bans, security, log, passed_calls }, events))
    }
}

/// What outlives the process or is shared with others.
struct Stores {
    durable: DurableStore,
    cluster: SharedTable,
    nonces: Arc<NonceWindows>,
}

impl Stores {
    /// Opens the store. If another process has filled the table, it loads nothing.
    fn start(
        setup: &Setup,
        table: &Table,
        snapshot: &Snapshot,
        chain: &Chain,
        inherited: Option<&mut Inherited>,
    ) -> Result<Self, Failure> {
        let Setup { config, clock, .. } = setup;
        let Table { key, locations } = table;
        let durable = DurableStore::start(config, locations, &snapshot.registrar, *key, (*clock, inherited.is_some()))?;
        let member = inherited.and_then(Inherited::take_member);
        let cluster = SharedTable::start(config, locations, &snapshot.listeners, (key, *clock), member)?;
        let own = || Arc::new(NonceWindows::new(NONCE_STRIPES, chain.nonce_seed));
        let nonces = cluster.nonces().unwrap_or_else(own);
        Ok(Self { durable, cluster, nonces })
    }
}

/// Starts the workers. Those that take over read nothing so far.
fn start_fleet(
    setup: &Setup,
    routing: &Routing,
    table: &Table,
    stores: &Stores,
    (reporting, event_log): (&Reporting, &EventLog),
    (sockets, taken_over): (Vec<Vec<Socket>>, Option<TakenOver>),
    events: SyncSender<Event>,
) -> Result<Fleet, Failure> {
    let Setup { config, workers, .. } = setup;
    let fleet = FleetConfig {
        sockets,
        taken_over,
        snapshot: Arc::clone(&routing.snapshot),
        seed: setup.entropy.seed,
        key: table.key,
        clock: setup.clock,
        events,
        streams: setup.streams,
        banned: event_log.bans.banned(),
        balancers: config.tcp.proxy_protocol_from.iter().map(|source| source.0).collect(),
        names: Arc::clone(&routing.names),
        resolver: Some(Arc::clone(&routing.resolver) as Arc<dyn Resolve>),
        locations: Arc::clone(&table.locations),
        record_sink: stores.cluster.record_sink(stores.durable.record_sink()),
        nonces: Some(Arc::clone(&stores.nonces)),
        tracer: Arc::clone(&reporting.tracer),
        options: worker_options(config, *workers),
    };
    let fleet = Fleet::start(fleet)
        .map_err(|error| Failure::No(format!("the workers cannot be started: {error}; try fewer (server.workers)")))?;
    drop(reporting.times.set(fleet.times().clone()));
    event_log.bans.set_known(KnownSources {
        locations: Arc::clone(fleet.locations()),
        stripes: shards_of(*workers)?,
        proven: Arc::clone(fleet.proven()),
        names: Arc::clone(&routing.names),
    });
    tracing::info!(
        "{}, {}; control socket {}",
        count((*workers).into(), "worker"),
        count(routing.snapshot.directory.users() as u64, "user"),
        config.control_socket().display()
    );
    Ok(fleet)
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
    random()
}

fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::No(format!("the system does not provide random bytes: {error}")))?;
    Ok(bytes)
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
