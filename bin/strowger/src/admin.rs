//! The HTTP listener for operators and their programs.

mod backend;
mod metrics;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use strowger_administration::{Api, TokenFile};
use strowger_control::config::Config;
use strowger_control::socket::Handler;
use strowger_http::axum::Router;
use strowger_http::{HttpCounters, HttpLimits, HttpServer};
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

/// Opens the listener, unless it is off. Without a configured address, a server whose default address is taken goes on
/// without.
pub(crate) fn start(served: Served) -> Result<Option<HttpServer>, Failure> {
    let config = served.config.current();
    let admin = &config.admin;
    let Some(address) = admin.address() else { return Ok(None) };
    let tls = http_certificate::load(admin)?;
    let no = |error| {
        Failure::No(format!("the HTTP listener {address} cannot be opened: {error}; choose another in [admin] listen"))
    };
    let listener = match TcpListener::bind(address) {
        Ok(listener) => listener,
        Err(error) if !admin.is_required() => {
            tracing::warn!(
                "no page, API and metrics: {address} cannot be opened ({error}); choose another address in [admin] listen, \
                 or write listen = \"off\""
            );
            return Ok(None);
        }
        Err(error) => return Err(no(error)),
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let counters = Arc::<HttpCounters>::default();
    let times = Arc::clone(&served.times);
    let metrics = metrics::router(admin.clone(), Arc::clone(&served.handler), times, Arc::clone(&counters));
    let is_only_metrics = admin.metrics_only;
    let router = if is_only_metrics { metrics } else { metrics.merge(api(&config, served.backend())) };
    let server = HttpServer::start(listener, tls, router, HttpLimits::default(), counters).map_err(no)?;
    let address = server.address();
    tracing::info!("metrics at {scheme}://{address}/metrics");
    if !is_only_metrics {
        tracing::info!(
            "administration at {scheme}://{address}/; `strowger token add NAME --role administrator` lets somebody in"
        );
    }
    Ok(Some(server))
}

impl Served {
    fn backend(self) -> ApiBackend {
        let Self { handler, config, file, security, .. } = self;
        ApiBackend { handler, config, file, security }
    }
}

fn api(config: &Config, backend: ApiBackend) -> Router {
    let mut hosts: Vec<String> = config.admin.hosts.iter().map(|host| host.0.clone()).collect();
    hosts.push(rustix::system::uname().nodename().to_string_lossy().into_owned());
    let tokens = TokenFile::in_folder(&config.server.data);
    Api::new(Arc::new(backend), tokens, hosts).router(strowger_page::router())
}
