//! `/metrics`: what `ctl status`, `ctl targets` and `ctl timing` show, for Prometheus.
//!
//! A scrape asks the thread that owns the server, as `ctl` does, and reads the histograms that the workers record. Its
//! text is reused for [`REUSE_FOR`], so that the work is bounded however many clients ask.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use strowger_control::protocol::{Request, Response as Answer};
use strowger_control::socket::Handler;
use strowger_http::HttpCounters;
use strowger_http::axum::Router;
use strowger_http::axum::body::Bytes;
use strowger_http::axum::extract::{ConnectInfo, State};
use strowger_http::axum::http::{HeaderMap, StatusCode, header};
use strowger_http::axum::response::{IntoResponse as _, Response};
use strowger_http::axum::routing::get;
use strowger_metrics::{BOUNDS_NS, Format, HttpConnections, Process, Scrape};
use strowger_worker::FleetTimesReader;
use tokio::sync::Mutex;

use crate::running_config::RunningConfig;

/// Time for which the text of a scrape answers further ones.
const REUSE_FOR: Duration = Duration::from_secs(1);

/// The text of a scrape, or why there is none.
type Scraped = Result<Bytes, String>;

pub(crate) fn router(
    config: RunningConfig,
    handler: Arc<dyn Handler>,
    times: Arc<OnceLock<FleetTimesReader>>,
    connections: Arc<HttpCounters>,
) -> Router {
    let source = Arc::new(Source { handler, times, connections });
    let state = Metrics { config, source, prometheus: Mutex::default(), open_metrics: Mutex::default() };
    Router::new().route("/metrics", get(metrics)).with_state(Arc::new(state))
}

struct Metrics {
    config: RunningConfig,
    source: Arc<Source>,
    /// The last scrape in each format, and when it was taken. The lock is held during a scrape, so that there is one at
    /// a time.
    prometheus: Mutex<Option<(Instant, Scraped)>>,
    open_metrics: Mutex<Option<(Instant, Scraped)>>,
}

async fn metrics(
    State(state): State<Arc<Metrics>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Response {
    if !state.config.current().admin.may_read_metrics(peer.ip()) {
        let why = format!("{} may not read the metrics: it is not in admin.metrics_from\n", peer.ip().to_canonical());
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = Format::accepted(accept);
    match state.scrape(format).await {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

impl Metrics {
    async fn scrape(&self, format: Format) -> Scraped {
        let last = match format {
            Format::Prometheus => &self.prometheus,
            Format::OpenMetrics => &self.open_metrics,
        };
        let mut last = last.lock().await;
        if let Some((at, scraped)) = &*last
            && at.elapsed() < REUSE_FOR
        {
            return scraped.clone();
        }
        let source = Arc::clone(&self.source);
        let scraped = tokio::task::spawn_blocking(move || source.read().map(|scrape| scrape.encode(format).into()));
        let scraped: Scraped = scraped.await.unwrap_or_else(|_| Err("the server is stopping".to_owned()));
        *last = Some((Instant::now(), scraped.clone()));
        scraped
    }
}

/// Where a scrape reads.
struct Source {
    handler: Arc<dyn Handler>,
    times: Arc<OnceLock<FleetTimesReader>>,
    connections: Arc<HttpCounters>,
}

impl Source {
    fn read(&self) -> Result<Scrape, String> {
        let times = self.times.get().ok_or("the server is starting; try again")?;
        let status = match self.handler.handle(Request::Status) {
            Answer::Status(status) => *status,
            other => return Err(refusal(&other)),
        };
        let targets = match self.handler.handle(Request::Targets { set: None }) {
            Answer::Targets(found) => found.targets,
            other => return Err(refusal(&other)),
        };
        let setups = match self.handler.handle(Request::CallSetups) {
            Answer::CallSetups(found) => found,
            other => return Err(refusal(&other)),
        };
        let process = Process::read(Duration::try_from_secs_f64(status.uptime_s).unwrap_or_default());
        let http = HttpConnections { accepted: self.connections.accepted(), refused: self.connections.refused() };
        Ok(Scrape { status, targets, setups, times: times.buckets(&BOUNDS_NS), process, http })
    }
}

fn refusal(answer: &Answer) -> String {
    answer.failure().map_or_else(|| format!("the server sent an unexpected answer: {answer:?}"), str::to_owned)
}
