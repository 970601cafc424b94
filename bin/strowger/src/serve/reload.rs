//! Reload of the configuration while the server runs: the whole new configuration is applied, or none of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use strowger_control::config::{self, Config, ConfigSource, Reload, reload_of};
use strowger_control::dns::DnsResolver;
use strowger_control::protocol::{ConfigChange, KeyChange, Reloaded};
use strowger_control::socket::{ControlSocket, Handler};
use strowger_control::targets::TargetError;
use strowger_shard::{Listener, Listeners, Snapshot};
use strowger_worker::{PreparedSockets, WorkerSettings};

use super::Server;
use super::limits::{stream_limits, worker_options};
use super::listeners::ListenerPlan;
use crate::admin::AdminChange;
use crate::balancing::TargetUpdate;
use crate::cdr::CallsDatabase;
use crate::text::count;
use crate::users::Users;
use crate::{check, cluster, files, former_names, gateways, http_certificate, status, web_sockets};

/// A new configuration, and what it needs before it can be applied.
struct Prepared {
    config: Config,
    read: Option<PathBuf>,
    changes: Vec<ConfigChange>,
    users: Users,
    targets: TargetUpdate,
    plan: ListenerPlan,
    /// Another resolver, if its settings change.
    dns: Option<DnsResolver>,
}

/// What is opened for a new configuration.
struct Opened {
    listeners: Vec<Listener>,
    sockets: Option<PreparedSockets>,
    /// Another database of call records, if it changes.
    calls: Option<Option<CallsDatabase>>,
    control: Option<ControlSocket>,
    admin: Option<AdminChange>,
}

impl Server {
    /// Applies the whole new configuration or none of it.
    pub(super) fn reload(&mut self) -> Result<Reloaded, String> {
        let result = self.try_reload();
        // Log rotation needs this even if the new configuration is invalid.
        self.cdr.reopen(self.config.cdr.file.as_deref());
        match &result {
            Ok(done) => {
                done.changes.iter().for_each(|change| tracing::info!("changed: {change}"));
                tracing::info!("{done}");
            }
            Err(why) => tracing::error!("not reloaded, nothing was changed: {why}"),
        }
        result
    }

    /// Returns what a reload would change. It opens no sockets.
    pub(super) fn check_reload(&self) -> Result<Reloaded, String> {
        let Prepared { config, read, changes, .. } = self.prepare()?;
        self.certificates.check(&config)?;
        http_certificate::load(&config.admin)?;
        web_sockets::check(&config)?;
        let file = file_name(read.as_deref());
        let result = match changes.len() {
            0 => format!("a reload of {file} would change no key"),
            keys => format!("a reload of {file} would apply {}", count(keys as u64, "change")),
        };
        Ok(Reloaded { result, changes })
    }

    fn try_reload(&mut self) -> Result<Reloaded, String> {
        if self.snapshot.is_draining {
            return Err("the server is being stopped".to_owned());
        }
        let prepared = self.prepare()?;
        let opened = self.open(&prepared)?;
        Ok(self.apply(prepared, opened))
    }

    /// Reads the new configuration, and checks that it can be applied.
    fn prepare(&self) -> Result<Prepared, String> {
        files::refuse_pipe(self.file.as_deref().unwrap_or_else(|| config::default_file()))?;
        let member = self.config.role().map(|role| role.name.as_str());
        let wanted = ConfigSource { file: self.file.as_deref(), member };
        let (config, read) = Config::load_with_secrets(wanted).map_err(|error| error.to_string())?;
        let mut changes = self.config.changes(&config, check::cores());
        self.changeable(&config, &changes)?;
        let plan = self.listening.plan(&config, &self.snapshot.listeners)?;
        self.keeps_address(&config, &plan)?;
        let found = plan.found(&config);
        if !found.is_empty() && !changes.iter().any(|change| change.key == "server.listen") {
            let change = KeyChange::List { added: found, removed: Vec::new() };
            changes.insert(0, ConfigChange { key: "server.listen".to_owned(), change });
        }
        let users = self.users.reopen(&config).map_err(|error| error.to_string())?;
        config.route_warnings(users.directory().gateways())?;
        let dns = self.other_resolver(&config, &plan)?;
        let current = self.resolver.dns();
        let resolver = dns.as_ref().unwrap_or(&current);
        let targets = self.balancing.prepare(&config, users.directory().gateways(), resolver);
        let located = |TargetError { key, message }| Config::located(read.as_deref(), &key, message).to_string();
        let targets = targets.map_err(located)?;
        Ok(Prepared { config, read, changes, users, targets, plan, dns })
    }

    /// Checks that no key changes that needs a restart.
    fn changeable(&self, new: &Config, changes: &[ConfigChange]) -> Result<(), String> {
        let old = &self.config;
        if old.role().map(|role| role.cluster.is_some()) != new.role().map(|role| role.cluster.is_some()) {
            return Err("the server's role cannot change while it runs; restart it".to_owned());
        }
        new.check_successor(old)?;
        let refused = |change: &ConfigChange| match reload_of(&change.key) {
            // Without stored registrations, another database has only other users.
            Some(Reload::Restart(_)) if change.key == "store.url" && !old.store_mode().is_durable() => None,
            Some(Reload::Restart(why)) => Some(format!("{} ({why})", change.key)),
            Some(Reload::Live) | None => None,
        };
        let refused: Vec<String> = changes.iter().filter_map(refused).collect();
        let it = if refused.len() == 1 { "it" } else { "them" };
        match refused.as_slice() {
            [] => Ok(()),
            keys => Err(format!(
                "{} cannot change while the server runs; set {it} back, or restart the server",
                keys.join(", ")
            )),
        }
    }

    /// Checks that the other members of a cluster can still reach this one at the address that they know.
    fn keeps_address(&self, config: &Config, plan: &ListenerPlan) -> Result<(), String> {
        if config.cluster.as_ref().is_none_or(|cluster| cluster.address.is_some()) || plan.is_empty() {
            return Ok(());
        }
        let before = cluster::listened_on(&self.snapshot.listeners);
        let after = cluster::listened_on(&Listeners::new(plan.candidates(&self.snapshot.listeners)));
        match before {
            Some(address) if after != before => Err(format!(
                "server.listen: the other members know this server by its first UDP address, {address}; set \
                 cluster.address, and restart the server"
            )),
            _ => Ok(()),
        }
    }

    /// Starts another resolver if its settings change.
    fn other_resolver(&self, config: &Config, plan: &ListenerPlan) -> Result<Option<DnsResolver>, String> {
        let reach = plan.reach(&self.snapshot.listeners);
        let before = self.config.dns_config(ListenerPlan::default().reach(&self.snapshot.listeners));
        let after = config.dns_config(reach);
        if before == after {
            return Ok(None);
        }
        let started = self.resolver.dns().successor(&after);
        started.map(Some).map_err(|error| format!("dns: the resolver's thread cannot be started: {error}"))
    }

    /// Opens everything that the new configuration needs. What was opened closes if something else cannot be.
    fn open(&mut self, prepared: &Prepared) -> Result<Opened, String> {
        let Prepared { config, plan, .. } = prepared;
        let tls = self.certificates.prepare(config)?;
        web_sockets::check(config)?;
        let (listeners, sockets) = plan.bind(self, tls.as_ref())?;
        let calls = match self.config.cdr.database == config.cdr.database {
            true => None,
            false => {
                let started = self.cdr.prepare_database(config.calls_databases());
                Some(started.map_err(|error| format!("cdr.database: a thread cannot be started: {error}"))?)
            }
        };
        let control = match self.config.control_socket() == config.control_socket() {
            true => None,
            false => {
                let handler = Arc::clone(&self.handler) as Arc<dyn Handler>;
                Some(ControlSocket::open(&config.control_socket(), handler)?)
            }
        };
        let admin = match &self.admin {
            Some(listener) => listener.prepare(&self.config.admin, &config.admin)?,
            None => None,
        };
        self.certificates.reload(config, tls)?;
        Ok(Opened { listeners, sockets, calls, control, admin })
    }

    /// Applies a configuration for which everything is prepared; nothing can fail any more.
    fn apply(&mut self, prepared: Prepared, opened: Opened) -> Reloaded {
        let Prepared { config, read, changes, users, targets, plan, dns } = prepared;
        let Opened { listeners, sockets, calls, control, admin } = opened;
        web_sockets::reload(&self.web_sockets, &config);
        former_names::warnings(read.as_deref()).iter().for_each(|warning| tracing::warn!("{warning}"));
        gateways::report(&config, users.directory());
        let old = self.snapshot.directory.clone();
        self.users = users;
        let before = std::mem::replace(&mut self.config, config);
        let undone = self.balancing.apply(targets);
        self.segmentation.set_mode(self.config.server.segmentation);
        self.cluster.update_peers(&self.config);
        self.apply_resolver(&before, dns);
        if let Some(database) = calls {
            self.cdr.set_database(database);
        }
        if let Some(control) = control {
            self.control = Some(control);
        }
        if before.log != self.config.log {
            self.log_handle.configure(&self.config.log);
        }
        self.bans.reconfigure(&self.config);
        self.removals_next.extend(status::barred(&self.fleet, self.clock.now(), &old, self.users.directory()));
        let listeners = self.changed_listeners(&plan, listeners);
        let directory = self.users.directory().clone();
        let mut snapshot = self.config.snapshot(listeners, directory, self.balancing.sets());
        snapshot.media = self.config.media_policy(self.snapshot.media.as_deref());
        let warning = self.note_move(&snapshot);
        self.publish(Snapshot { limits: self.snapshot.limits, ..snapshot });
        self.configure_workers(&before);
        self.exchange_sockets(&plan, sockets);
        self.listener_names.set(status::listeners(&self.snapshot));
        self.exporters.apply(&self.config, &self.snapshot.listeners);
        self.running_config.replace(&self.config, read.as_deref());
        if let (Some(listener), Some(change)) = (&mut self.admin, admin) {
            listener.apply(change, &self.config.admin);
        }
        let users = count(self.snapshot.directory.users() as u64, "user");
        let routes = count(self.snapshot.routes.len() as u64, "route");
        let undone = match undone {
            0 => String::new(),
            changes => format!("; discarded: {} to targets by commands", count(changes as u64, "change")),
        };
        // Names the file, because the operator may have another one in mind.
        let file = file_name(read.as_deref());
        Reloaded { result: format!("reloaded {file}: {users}, {routes}{undone}{warning}"), changes }
    }

    fn apply_resolver(&mut self, before: &Config, dns: Option<DnsResolver>) {
        if before.cache_policy() != self.config.cache_policy() {
            self.resolver.names.set_policy(self.config.cache_policy());
        }
        if let Some(dns) = dns {
            self.resolver.replace(dns);
            // Other servers may answer otherwise, and with other listeners other addresses can be reached.
            self.resolver.names.clear();
        }
    }

    /// Passes changed limits and settings to the workers.
    fn configure_workers(&self, before: &Config) {
        let config = &self.config;
        let server = |config: &Config| {
            let server = &config.server;
            (server.spin, server.affinity.clone(), server.steering, server.min_workers)
        };
        let connections = |config: &Config| {
            (config.tcp.clone(), config.tls.connections, config.websocket.connections, config.websocket.ping)
        };
        if server(before) == server(config) && connections(before) == connections(config) {
            return;
        }
        let workers = u16::try_from(self.fleet.status().workers.len()).unwrap_or(u16::MAX);
        let options = worker_options(config, workers);
        let done = self.fleet.configure(WorkerSettings {
            streams: stream_limits(config, self.files),
            balancers: config.tcp.proxy_protocol_from.iter().map(|source| source.0).collect(),
            spin: options.spin,
            min_workers: options.min_workers,
            cores: options.cores,
            usable_cores: check::usable_cores(),
            steering: options.steering,
        });
        if !done {
            tracing::warn!("a worker does not take the new settings: it is stalled");
        }
    }
}

fn file_name(read: Option<&Path>) -> String {
    read.map_or_else(|| "defaults, as there is no file".to_owned(), |path| path.display().to_string())
}
