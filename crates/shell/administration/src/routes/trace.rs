//! Messages as they pass, as server-sent events.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{Stream, unfold};
use serde::Deserialize;
use serde_json::{Value, json};
use strowger_control::protocol::{Request, TraceEvent, TraceFilter, TraceRequest};
use strowger_control::socket::TraceSource;
use strowger_http::LongResponse;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use utoipa::IntoParams;

use super::bad_query;
use crate::body::Parameters;
use crate::context::Context;
use crate::problem::Problem;
use crate::shared::MAX_TRACES;

/// Longest duration of a trace, in ms.
const MAX_DURATION_MS: u64 = 3_600_000;
/// Duration of a trace if none is given, in ms.
const DEFAULT_DURATION_MS: u64 = 600_000;
/// Number of events that wait for a client that reads slowly; further ones are counted as lost.
const QUEUE: usize = 256;
/// Interval at which an idle trace checks whether its client is still there.
const TICK: Duration = Duration::from_millis(100);
/// Interval of comments that keep the connection alive, for proxies and to notice that the client is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Which messages, and for how long.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// User who calls, is called or registers: alice or alice@example.com. One of user, call_id and ip is needed.
    user: Option<String>,
    /// Call-ID.
    call_id: Option<String>,
    /// Address of a peer.
    #[param(value_type = Option<String>)]
    ip: Option<IpAddr>,
    /// Duration, in ms.
    #[param(minimum = 1, maximum = 3_600_000, default = 600_000)]
    for_ms: Option<u64>,
    /// Number of messages after which the trace ends.
    #[param(minimum = 1)]
    count: Option<u64>,
    /// Whether to send whole messages; otherwise only what a ladder shows.
    messages: bool,
}

/// Traces messages
///
/// Events: `started`; `message` with a message as in `strowger ctl trace --json`; `lost` with the number of messages
/// that the client was too slow for; `ended` when a limit is reached. Credentials and media keys are masked.
#[utoipa::path(
    get,
    path = "/api/v1/trace",
    operation_id = "trace",
    tag = "calls",
    params(Wanted),
    responses((status = 200, description = "The events", body = String, content_type = "text/event-stream")),
    security(("token" = ["operator"])),
)]
pub(super) async fn trace(
    context: Context,
    long: Option<Extension<LongResponse>>,
    Parameters(wanted): Parameters<Wanted>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let request = request(wanted)?;
    let busy = |why| Problem::new(StatusCode::SERVICE_UNAVAILABLE, why).retry_after(5);
    let place = Arc::clone(&context.shared.traces).try_acquire_owned();
    let place = place.map_err(|_| busy(format!("{MAX_TRACES} traces are running; end one of them")))?;
    let change = Request::Trace(request.clone()).change();
    let started = context.backend().handler().trace(&request);
    context.audit(change.as_ref(), started.as_ref().err().map(String::as_str));
    let source = started.map_err(busy)?;
    let end = Instant::now() + Duration::from_millis(request.for_ms.unwrap_or(DEFAULT_DURATION_MS));
    if let Some(Extension(long)) = long {
        long.may_last_until(end);
    }
    let (events, received) = channel(QUEUE);
    let count = request.count.unwrap_or(u64::MAX);
    let follow = move || follow(source, &events, end, count, place);
    thread::Builder::new()
        .name("api-trace".to_owned())
        .spawn(follow)
        .map_err(|error| busy(format!("a thread cannot be started: {error}")))?;
    Ok(Sse::new(stream(received)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

fn request(wanted: Wanted) -> Result<TraceRequest, Problem> {
    let Wanted { user, call_id, ip, for_ms, count, messages } = wanted;
    let filter = match (user, call_id, ip) {
        (Some(user), None, None) => {
            TraceFilter::check_user(&user).map_err(bad_query)?;
            TraceFilter::User(user)
        }
        (None, Some(call_id), None) => TraceFilter::CallId(call_id),
        (None, None, Some(ip)) => TraceFilter::Ip(ip),
        _ => return Err(bad_query("give one of user, call_id and ip".to_owned())),
    };
    let for_ms = for_ms.unwrap_or(DEFAULT_DURATION_MS);
    if !(1..=MAX_DURATION_MS).contains(&for_ms) {
        return Err(bad_query(format!("for_ms must be from 1 to {MAX_DURATION_MS}")));
    }
    if count == Some(0) {
        return Err(bad_query("count must be 1 or more".to_owned()));
    }
    Ok(TraceRequest { filter, for_ms: Some(for_ms), count, messages, bytes: false })
}

/// Passes events to the client until a limit is reached or the client is gone. Never waits for the client.
fn follow(
    mut source: Box<dyn TraceSource>,
    events: &Sender<(&'static str, Value)>,
    end: Instant,
    count: u64,
    _place: OwnedSemaphorePermit,
) {
    let (mut left, mut lost) = (count, 0_u64);
    let _ = events.try_send(("started", json!({})));
    while left > 0 && !events.is_closed() {
        let wait = end.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            break;
        }
        let event = match source.poll(wait.min(TICK)) {
            Some(TraceEvent::Message(message)) => ("message", json!(message)),
            Some(TraceEvent::Lost(number)) => {
                lost += number;
                continue;
            }
            Some(TraceEvent::Started | TraceEvent::Ended) | None => {
                lost -= send_lost(events, lost);
                continue;
            }
        };
        left -= 1;
        lost -= send_lost(events, lost);
        if let Err(TrySendError::Full(_)) = events.try_send(event) {
            lost += 1;
        }
    }
    send_lost(events, lost);
    let _ = events.try_send(("ended", json!({})));
}

/// Tells how many messages were lost, and returns how many of them the client will learn of.
fn send_lost(events: &Sender<(&'static str, Value)>, lost: u64) -> u64 {
    if lost > 0 && events.try_send(("lost", json!({ "lost": lost }))).is_ok() { lost } else { 0 }
}

fn stream(received: Receiver<(&'static str, Value)>) -> impl Stream<Item = Result<Event, Infallible>> {
    unfold(received, |mut received| async {
        let (name, data) = received.recv().await?;
        Some((Ok(Event::default().event(name).data(data.to_string())), received))
    })
}
