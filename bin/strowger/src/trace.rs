//! Traces: converts the workers' copies of messages for the control socket.

use std::sync::Arc;
use std::time::Duration;

use strowger_control::protocol::{TraceEvent, TraceFilter, TraceRequest, TracedMessage};
use strowger_control::socket::TraceSource;
use strowger_message::{Head, HeaderName, lossy};
use strowger_net::Clock;
use strowger_worker::{Direction, MAX_TRACES, Trace, TraceRecord, Tracer};

use crate::utc;

/// Starts traces for clients of the control socket.
#[derive(Clone)]
pub(crate) struct Traces {
    pub(crate) tracer: Arc<Tracer>,
    pub(crate) clock: Clock,
    /// Listening addresses by listener id.
    pub(crate) listeners: Arc<[String]>,
}

impl Traces {
    pub(crate) fn start(&self, request: &TraceRequest) -> Result<Box<dyn TraceSource>, String> {
        let filter = filter(&request.filter)?;
        match self.tracer.start(filter) {
            Ok(trace) => Ok(Box::new(Source { trace, traces: self.clone(), messages: request.messages })),
            Err(_) => Err(format!("{MAX_TRACES} traces are already running; end one of them")),
        }
    }
}

fn filter(asked: &TraceFilter) -> Result<strowger_worker::TraceFilter, String> {
    Ok(match asked {
        TraceFilter::CallId(call_id) => strowger_worker::TraceFilter::CallId(call_id.clone()),
        TraceFilter::Ip(ip) => strowger_worker::TraceFilter::Ip(*ip),
        TraceFilter::User(text) => {
            let bare = ["sip:", "sips:", "tel:"].iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
            let (user, domain) = match bare.rsplit_once('@') {
                Some((user, domain)) => (user, Some(domain.to_owned())),
                None => (bare, None),
            };
            if user.is_empty() || domain.as_deref() == Some("") {
                return Err(format!("{text:?} is not a user; write it as alice or alice@example.com"));
            }
            strowger_worker::TraceFilter::User { user: user.to_owned(), domain }
        }
    })
}

struct Source {
    trace: Trace,
    traces: Traces,
    messages: bool,
}

impl TraceSource for Source {
    fn poll(&mut self, wait: Duration) -> Option<TraceEvent> {
        match self.trace.poll_lost() {
            0 => self.trace.poll(wait).map(|traced| TraceEvent::Message(Box::new(self.to_protocol(&traced)))),
            lost => Some(TraceEvent::Lost(lost)),
        }
    }
}

impl Source {
    fn to_protocol(&self, traced: &TraceRecord) -> TracedMessage {
        let Traces { clock, listeners, .. } = &self.traces;
        let now = clock.pair();
        let ago = now.monotonic.as_nanos().saturating_sub(traced.at.as_nanos());
        let head = Head::scan(&traced.bytes).ok();
        let field = |name| lossy(head.as_ref().and_then(|head| head.first(name)).unwrap_or_default());
        let start = traced.bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        TracedMessage {
            time: utc::rfc3339(now.real.0.saturating_sub(ago) / 1_000_000),
            at_us: traced.at.as_nanos() / 1000,
            sent: traced.direction == Direction::Sent,
            transport: traced.transport.as_str().to_owned(),
            local: listeners.get(usize::from(traced.listener.0)).cloned().unwrap_or_default(),
            peer: traced.peer,
            start: lossy(start.trim_ascii_end()),
            cseq: field(HeaderName::CSeq),
            call_id: field(HeaderName::CallId),
            length: traced.length,
            lines: self.messages.then(|| lines(traced)),
        }
    }
}

/// Returns the message's lines, and a note on what is cut off.
fn lines(traced: &TraceRecord) -> Vec<String> {
    let text = String::from_utf8_lossy(&traced.bytes);
    let escaped = |line: &str| -> String {
        let plain = |c: char| if c.is_control() && c != '\t' { c.escape_default().to_string() } else { c.to_string() };
        line.chars().map(plain).collect()
    };
    let mut lines: Vec<String> = text.lines().map(escaped).collect();
    if traced.bytes.len() < traced.length && traced.length > strowger_worker::MAX_TRACED_BYTES {
        lines.push(format!("… of {} bytes", traced.length));
    }
    lines
}
