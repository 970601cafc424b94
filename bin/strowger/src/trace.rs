//! Traces: converts the workers' copies of messages for the control socket.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use strowger_control::protocol::{TraceEvent, TraceFilter, TraceRequest, TracedMessage};
use strowger_control::socket::TraceSource;
use strowger_foundation::{ListenerId, base64url};
use strowger_message::{Head, HeaderName, lossy};
use strowger_net::{Clock, ClockPair};
use strowger_worker::{Direction, MAX_TRACES, Trace, TraceRecord, Tracer};

use crate::utc;

/// Time for which the relation of the clocks is assumed to stay.
const CLOCKS_ARE_VALID: Duration = Duration::from_secs(1);

/// Starts traces for clients of the control socket.
#[derive(Clone)]
pub(crate) struct Traces {
    pub(crate) tracer: Arc<Tracer>,
    pub(crate) clock: Clock,
    /// Listening addresses by listener id.
    pub(crate) listeners: ListenerNames,
}

/// Listening addresses by listener id, which reloads change.
#[derive(Clone, Default)]
pub(crate) struct ListenerNames(Arc<RwLock<Vec<String>>>);

impl ListenerNames {
    pub(crate) fn set(&self, names: Vec<String>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    fn get(&self, listener: ListenerId) -> String {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.get(usize::from(listener.0)).cloned().unwrap_or_default()
    }
}

impl Traces {
    pub(crate) fn start(&self, request: &TraceRequest) -> Result<Box<dyn TraceSource>, String> {
        let filter = filter(&request.filter)?;
        match self.tracer.start(filter) {
            Ok(trace) => {
                let (messages, bytes, times) = (request.messages, request.bytes, self.clock.pair());
                Ok(Box::new(Source { trace, traces: self.clone(), times, messages, bytes }))
            }
            Err(_) => Err(format!("{MAX_TRACES} traces are already running; end one of them")),
        }
    }
}

fn filter(asked: &TraceFilter) -> Result<strowger_worker::TraceFilter, String> {
    Ok(match asked {
        TraceFilter::CallId(call_id) => strowger_worker::TraceFilter::CallId(call_id.clone()),
        TraceFilter::Ip(ip) => strowger_worker::TraceFilter::Ip(*ip),
        TraceFilter::User(text) => {
            TraceFilter::check_user(text)?;
            let bare = ["sip:", "sips:", "tel:"].iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
            let (user, domain) = match bare.rsplit_once('@') {
                Some((user, domain)) => (user, Some(domain.to_owned())),
                None => (bare, None),
            };
            strowger_worker::TraceFilter::User { user: user.to_owned(), domain }
        }
    })
}

struct Source {
    trace: Trace,
    traces: Traces,
    /// Converts the times of messages; read anew every [`CLOCKS_ARE_VALID`].
    times: ClockPair,
    messages: bool,
    bytes: bool,
}

impl TraceSource for Source {
    fn poll(&mut self, wait: Duration) -> Option<TraceEvent> {
        match self.trace.poll_lost() {
            0 => self.trace.poll(wait).map(|traced| TraceEvent::Message(Box::new(self.message(&traced)))),
            lost => Some(TraceEvent::Lost(lost)),
        }
    }
}

impl Source {
    fn message(&mut self, traced: &TraceRecord) -> TracedMessage {
        let Traces { clock, listeners, .. } = &self.traces;
        if traced.at.saturating_since(self.times.monotonic) > CLOCKS_ARE_VALID {
            self.times = clock.pair();
        }
        let unix_ns = self.times.real_time(traced.at).0;
        let head = Head::scan(&traced.bytes).ok();
        let field = |name| lossy(head.as_ref().and_then(|head| head.first(name)).unwrap_or_default());
        let start = traced.bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        TracedMessage {
            time: utc::rfc3339(unix_ns / 1_000_000),
            unix_ns,
            at_us: traced.at.as_nanos() / 1000,
            sent: traced.direction == Direction::Sent,
            transport: traced.transport.as_str().to_owned(),
            local: listeners.get(traced.listener),
            peer: traced.peer,
            start: lossy(start.trim_ascii_end()),
            cseq: field(HeaderName::CSeq),
            call_id: field(HeaderName::CallId),
            length: traced.length,
            lines: self.messages.then(|| lines(traced)),
            bytes: self.bytes.then(|| base64url_text(&traced.bytes)),
            cut: traced.cut(),
        }
    }
}

fn base64url_text(bytes: &[u8]) -> String {
    let mut text = vec![0; base64url::encoded_len(bytes.len())];
    base64url::encode(bytes, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Returns the message's lines, and a note on what is cut off.
fn lines(traced: &TraceRecord) -> Vec<String> {
    let text = String::from_utf8_lossy(&traced.bytes);
    let escaped = |line: &str| -> String {
        let plain = |c: char| if c.is_control() && c != '\t' { c.escape_default().to_string() } else { c.to_string() };
        line.chars().map(plain).collect()
    };
    let mut lines: Vec<String> = text.lines().map(escaped).collect();
    if traced.cut() > 0 {
        lines.push(format!("… of {} bytes", traced.length));
    }
    lines
}
