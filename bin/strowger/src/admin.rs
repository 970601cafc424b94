//! The HTTP listener for operators and their programs.

mod backend;
mod metrics;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use strowger_administration::{Api, TokenFile};
use strowger_control::config::Admin;
use strowger_control::socket::Handler;
use strowger_http::axum::Router;
use strowger_http::{HttpCounters, HttpLimits, HttpServer, HttpTls};
use strowger_worker::FleetTimesReader;

use self::backend::ApiBackend;
use crate::failure::Failure;
use crate::http_certificate;
use crate::running_config::RunningConfig;
use crate::security_log::SecurityLog;

/// What the listener's routes show and change.
pub(crate) struct Served {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) config: RunningConfig,
    /// The file that the configuration was read from.
    pub(crate) file: Option<PathBuf>,
    /// Learns of wrong tokens.
    pub(crate) security: Arc<SecurityLog>,
    /// Set once the workers have started.
    pub(crate) times: Arc<OnceLock<FleetTimesReader>>,
}

/// The listener, if there is one, and its routes. These stay when the listener is exchanged, with what they know of clients
/// and tokens.
pub(crate) struct AdminListener {
    server: Option<HttpServer>,
    metrics: Router,
    /// Page, API and metrics.
    all: Router,
    counters: Arc<HttpCounters>,
}

/// A listener whose clients wait until it is served.
#[derive(Default)]
pub(crate) struct BoundAdminListener(Option<(TcpListener, Option<HttpTls>)>);

impl BoundAdminListener {
    /// Opens the listener and loads its certificate, unless it is off. Without a configured address, a server whose default
    /// address is taken goes on without.
    ///
    /// `inherited` is the socket of the process that this one replaces, used if its address is still the configured one.
    pub(crate) fn bind(admin: &Admin, inherited: Option<TcpListener>) -> Result<Self, String> {
        let Some(address) = admin.address() else { return Ok(Self(None)) };
        let tls = http_certificate::load(admin)?;
        let inherited = inherited.filter(|listener| listener.local_addr().is_ok_and(|local| is_at(local, address)));
        match inherited.map_or_else(|| TcpListener::bind(address), Ok) {
            Ok(listener) => Ok(Self(Some((listener, tls)))),
            Err(error) if !admin.is_required() => {
                tracing::warn!(
                    "no page, API and metrics: {address} cannot be opened ({error}); choose another address in [admin] listen, \
                     or write listen = \"off\""
                );
                Ok(Self(None))
            }
            Err(error) => {
                Err(format!("the HTTP listener {address} cannot be opened: {error}; choose another in [admin] listen"))
            }
        }
    }
}

/// A change of the listener that cannot fail any more.
pub(crate) enum AdminChange {
    /// Other routes or another certificate at the same address.
    Service(Option<HttpTls>),
    /// Another listener, or none.
    Listener(Option<HttpServer>),
}

impl AdminListener {
    /// Answers on the listener.
    pub(crate) fn start(served: Served, bound: BoundAdminListener) -> Result<Self, Failure> {
        let config = served.config.current();
        let counters = Arc::<HttpCounters>::default();
        let Served { handler, config: running, file, security, times } = served;
        let metrics = metrics::router(running.clone(), Arc::clone(&handler), times, Arc::clone(&counters));
        let tokens = TokenFile::in_folder(&config.server.data);
        let api = Api::new(Arc::new(ApiBackend { handler, config: running, file, security }), tokens);
        let all = metrics.clone().merge(api.router(strowger_page::router()));
        let mut listener = Self { server: None, metrics, all, counters };
        listener.server = listener.serve(&config.admin, bound).map_err(Failure::No)?;
        listener.announce(&config.admin);
        Ok(listener)
    }

    /// Returns another descriptor of the socket, for the process that takes it over.
    pub(crate) fn to_handover(&self) -> io::Result<Option<TcpListener>> {
        self.server.as_ref().map(HttpServer::to_handover).transpose()
    }

    /// Opens what the new configuration needs, in addition to what is open; `None` if nothing changes there.
    pub(crate) fn prepare(&self, before: &Admin, after: &Admin) -> Result<Option<AdminChange>, String> {
        // The routes read the other keys for each request.
        let service = |admin: &Admin| (admin.tls.clone(), admin.metrics_only);
        if before.address() != after.address() {
            return Ok(Some(AdminChange::Listener(self.serve(after, BoundAdminListener::bind(after, None)?)?)));
        }
        if service(before) == service(after) {
            return Ok(None);
        }
        Ok(Some(AdminChange::Service(http_certificate::load(after)?)))
    }

    /// Applies a change. Connections end after the response in progress, which may be that to the request for this change.
    pub(crate) fn apply(&mut self, change: AdminChange, admin: &Admin) {
        match change {
            AdminChange::Service(tls) => {
                if let Some(server) = &self.server {
                    server.exchange(tls, self.routes(admin).clone());
                }
            }
            AdminChange::Listener(server) => {
                if let Some(old) = std::mem::replace(&mut self.server, server) {
                    tracing::info!("the HTTP listener at {} is closed", old.address());
                    old.retire();
                }
            }
        }
        self.announce(admin);
    }

    const fn routes(&self, admin: &Admin) -> &Router {
        if admin.metrics_only { &self.metrics } else { &self.all }
    }

    /// Answers on another listener, if there is one.
    fn serve(&self, admin: &Admin, bound: BoundAdminListener) -> Result<Option<HttpServer>, String> {
        let Some((listener, tls)) = bound.0 else { return Ok(None) };
        let routes = self.routes(admin).clone();
        let started = HttpServer::start(listener, tls, routes, HttpLimits::default(), Arc::clone(&self.counters));
        started.map(Some).map_err(|error| format!("the HTTP listener's thread cannot be started: {error}"))
    }

    /// Logs where the listener is.
    fn announce(&self, admin: &Admin) {
        let Some(address) = self.server.as_ref().map(HttpServer::address) else { return };
        let scheme = if admin.tls.is_some() { "https" } else { "http" };
        tracing::info!("metrics at {scheme}://{address}/metrics");
        if !admin.metrics_only {
            tracing::info!(
                "administration at {scheme}://{address}/; `strowger token add NAME --role administrator` lets somebody in"
            );
        }
    }
}

/// Returns whether a socket has a configured address, whose port may be 0.
fn is_at(local: SocketAddr, configured: SocketAddr) -> bool {
    local.ip() == configured.ip() && (configured.port() == 0 || local.port() == configured.port())
}
