//! `strowger serve`: the server in the foreground.
//!
//! The thread that runs [`Server::run`] owns everything outside the workers: it follows the users database, answers
//! the control socket and handles signals, one event at a time.

mod bans;
mod chain;
mod clusters;
mod control_handler;
mod handover;
mod inheritance;
mod limits;
mod listeners;
mod operators;
mod predecessors;
mod reload;
mod retirement;
mod start;
mod succession;
mod targets;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use signal_hook::consts::SIGHUP;
use strowger_auth::NonceWindows;
use strowger_control::config::{self, Config, ConfigSource};
use strowger_control::protocol::{EndedCalls, Request, Response, Status, UpgradeReport};
use strowger_control::socket::ControlSocket;
use strowger_foundation::Transport;
use strowger_net::{Clock, WebSocketContext};
use strowger_shard::{ListenerState, Snapshot};
use strowger_takeover::Hello;
use strowger_worker::Fleet;

use self::chain::Chain;
use self::control_handler::ControlHandler;
use self::inheritance::Inheritance;
use self::listeners::ListenerSet;
pub(crate) use self::start::{empty_table, fresh_key};
use self::succession::{GreetingError, Successor};

use crate::admin::AdminListener;
use crate::balancing::TargetManager;
use crate::ban_keeper::BanKeeper;
use crate::cdr::Cdr;
use crate::cluster::SharedTable;
use crate::durable_store::DurableStore;
use crate::exporters::Exporters;
use crate::failure::Failure;
use crate::freed_memory::FreedMemory;
use crate::huge_pages::HugePages;
use crate::log::LogHandle;
use crate::passed_calls::PassedCalls;
use crate::resolver::Resolver;
use crate::running_config::RunningConfig;
use crate::segmentation::Segmentation;
use crate::text::count;
use crate::tls::Certificates;
use crate::trace::ListenerNames;
use crate::users::{DirectoryUpdate, Users};
use crate::{calls, gateways, log, service_manager, status};

/// Interval at which the users database is checked for changes.
const FOLLOW_EVERY: Duration = Duration::from_millis(250);
/// Interval at which a draining server checks whether it is done.
const DRAIN_TICK: Duration = Duration::from_millis(20);
/// Maximum time for transactions to end after a signal.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

pub(crate) fn run(meant: ConfigSource<'_>, takes_over: bool) -> Result<(), Failure> {
    let inheritance = if takes_over { Some(Inheritance::receive()?) } else { None };
    let refusal = inheritance.as_ref().map(Inheritance::refusal);
    let (mut server, pages) = start::start(meant, inheritance).inspect_err(|failure| {
        refusal.iter().for_each(|refusal| refusal.send(failure));
    })?;
    drop(refusal);
    service_manager::ready();
    server.run(pages);
    server.end();
    Ok(())
}

/// Messages to the thread that owns the server.
enum Message {
    Signal(i32),
    Request(Request, SyncSender<Response>),
    /// Asks what a new process must match.
    Greeting(SyncSender<Result<Hello, GreetingError>>),
    /// Makes earlier processes close their connections; the answer is how many there are.
    CloseEarlierConnections(SyncSender<usize>),
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
    /// The nonce counts that clients have used.
    nonces: Arc<NonceWindows>,
    passed_calls: PassedCalls,
    /// The processes before and after this one.
    chain: Chain,
}

impl Server {
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
                    _ = reply.try_send(self.chain.predecessors.close_connections());
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
                Ok(Message::CloseEarlierConnections(reply)) => _ = reply.try_send(0),
                Ok(Message::Greeting(reply)) => drop(reply.try_send(Err("the server is stopping".to_owned().into()))),
                Ok(Message::HandOver(_, reply)) => drop(reply.try_send(Err("the server is stopping".to_owned()))),
                Ok(Message::Signal(_)) => return tracing::warn!("second signal: stopping at once"),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn end(self) {
        let Self { fleet, log, bans, cdr, exporters, store: durable, cluster, chain, .. } = self;
        chain.predecessors.end();
        fleet.stop();
        // All records have been sent.
        cluster.stop();
        if !chain.is_succeeded {
            durable.stop();
        }
        // All event senders are gone; once the last event is written, so is the last call's record.
        drop(log.join());
        if !chain.is_succeeded {
            bans.end();
        }
        drop(cdr);
        exporters.stop();
        tracing::info!("process {} ended", std::process::id());
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
                Response::EndedCalls(EndedCalls::new(calls, more, self.snapshot.record_calls))
            }
            Request::CallSetups => Response::CallSetups(status::call_setups(&self.fleet, &self.snapshot)),
            Request::EndCall { call_id } => {
                calls::end(&self.fleet, self.clock.now(), call_id, self.chain.predecessors.transactions() > 0)
            }
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
