//! Structured log on standard error, with limited volume.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::iter;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::audit;
use crate::cdr::Cdr;
use crate::exporters::EndedCalls;
use crate::passed_calls::PassedCalls;
use crate::security_log::SecurityLog;
use crate::status;
use crate::text::clock;
use strowger_control::config::{Format, Level, Log, Span};
use strowger_locate::{Cause, Hop};
use strowger_message::lossy;
use strowger_shard::{Event, NextHopName, NextHopOwner};
use strowger_trunk::{State, Status};
use strowger_worker::PanicReport;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layered, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, reload};

/// Maximum number of lines of one kind within [`WINDOW`]; further ones are counted and reported in one line.
const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);
/// Time to collect events. Waking the thread for each ended call would take the worker's core each time.
const GATHERED_FOR: Duration = Duration::from_millis(20);

/// The log's layers, which a reload replaces.
type Filtered = Layered<reload::Layer<Targets, Registry>, Registry>;
type Lines = Box<dyn Layer<Filtered> + Send + Sync>;

/// Changes the log of the running server.
pub(crate) struct LogHandle {
    level: reload::Handle<Targets, Registry>,
    lines: reload::Handle<Lines, Filtered>,
}

/// Starts the log.
pub(crate) fn start(log: &Log) -> LogHandle {
    let (level, level_handle) = reload::Layer::new(level(log));
    let (lines, lines_handle) = reload::Layer::new(lines(log));
    tracing_subscriber::registry().with(level).with(lines).init();
    LogHandle { level: level_handle, lines: lines_handle }
}

impl LogHandle {
    /// Applies a new configuration.
    pub(crate) fn configure(&self, log: &Log) {
        // They fail only if the log has ended.
        drop(self.level.reload(level(log)));
        drop(self.lines.reload(lines(log)));
    }
}

/// Selects what is written: the level, and in any case the audit log.
fn level(log: &Log) -> Targets {
    let level = match log.level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    Targets::new().with_default(level).with_target(audit::TARGET, level.max(LevelFilter::INFO))
}

fn lines(log: &Log) -> Lines {
    let layer = tracing_subscriber::fmt::layer().with_target(false).with_writer(io::stderr);
    let layer = layer.with_ansi(io::stderr().is_terminal());
    match log.format {
        Format::Text => Box::new(layer),
        Format::Json => Box::new(layer.json().flatten_event(true)),
    }
}

/// Writes events until all senders are gone; ended calls go to `cdr` and `calls`, and what is about security to
/// `security`.
pub(crate) fn events(
    events: &Receiver<Event>,
    (cdr, calls): (&Cdr, &EndedCalls),
    security: &SecurityLog,
    passed: &PassedCalls,
) {
    let mut throttle = Throttle::default();
    loop {
        // What other threads report to `security` wakes nobody.
        let looked_at = Instant::now() + WINDOW;
        let end = throttle.next_end().into_iter().chain(security.report_due()).min().unwrap_or(looked_at);
        let first = events.recv_timeout(end.saturating_duration_since(Instant::now()));
        match first {
            Ok(first) => {
                thread::sleep(GATHERED_FOR);
                for event in iter::once(first).chain(events.try_iter()) {
                    match event {
                        Event::Call(record) => {
                            let record = Arc::from(record);
                            calls.write(&record);
                            cdr.write(record);
                        }
                        Event::CallTransferred(state) if passed.pass(&state) => {}
                        event if !security.handle(&event) && throttle.admits(kind(&event), Instant::now()) => {
                            write(event);
                        }
                        _ => {}
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        // After each batch: if calls end all the time, the wait above never times out.
        throttle.tell_of_ended(Instant::now());
        security.report_suppressed(false);
    }
    throttle.tell_of_all();
    security.report_suppressed(true);
}

fn account(trunk: &str, status: &Status) {
    let answer = status.last_response.map_or_else(|| "no answer".to_owned(), |code| code.to_string());
    match status.state {
        State::Registered => tracing::info!(trunk, "registered with the trunk"),
        State::Refused => {
            tracing::error!(
                trunk,
                answer,
                "the trunk rejected the registration: check its username, password and from"
            );
        }
        State::Failing => tracing::warn!(trunk, answer, "the registration with the trunk failed; retrying"),
        State::Registering | State::Leaving | State::Stopped => tracing::debug!(trunk, "not registered with the trunk"),
    }
}

/// Logs an outage: `gateway sip:192.0.2.1 of pstn does not answer (timeout); tried last for 30s`.
fn outage(hop: &Hop, names: &[NextHopName], cause: Cause, avoided_for: Duration) {
    let (who, why) = (named(hop, names), status::cause(hop.transport, cause));
    let last = if avoided_for.is_zero() { String::new() } else { format!("; tried last for {}", Span(avoided_for)) };
    if names.is_empty() {
        tracing::info!("{who} does not answer ({why}){last}");
    } else {
        tracing::warn!("{who} does not answer ({why}){last}");
    }
}

/// Returns the operator's name for a next hop, with the address if the URI lacks it.
fn named(hop: &Hop, names: &[NextHopName]) -> String {
    let address = status::hop(hop);
    match names {
        [] => address,
        names => {
            let names: Vec<String> = names.iter().map(NextHopName::to_string).collect();
            format!("{} ({address})", names.join(", "))
        }
    }
}

/// Logs a panic that a worker contained.
pub(crate) fn panic(report: &PanicReport) {
    tracing::error!("internal error (the server continues); please report it: {report}");
}

fn kind(event: &Event) -> &'static str {
    match event {
        Event::Malformed { .. }
        | Event::WrongCredentials { .. }
        | Event::Scanner { .. }
        | Event::HandshakeFailed { .. } => "security",
        Event::WrongIdentity { .. } => "wrong identities",
        Event::TableFull { .. } => "full tables",
        Event::TrunkRegistration { .. } => "registrations of trunks",
        // Callers can name many next hops, which must not suppress the operator's own.
        Event::Outage { names, .. } | Event::Recovery { names, .. } if names.is_empty() => {
            "other next hops that do not answer"
        }
        Event::Outage { .. } => "gateways that do not answer",
        Event::AllTargetsOut { .. } => "sets and trunks without an answering target",
        Event::Recovery { .. } => "gateways that answer again",
        Event::TargetHealth { .. } => "targets going down or up",
        Event::TooManyContacts { .. } => "too many contacts",
        Event::LocalContact { .. } => "contacts that lead to this machine",
        Event::LocalDestination { .. } => "destinations that lead to this machine",
        Event::TooManyPendingRegisters { .. } => "too many pending REGISTERs",
        Event::MediaEngine { .. } => "media engines going down or up",
        Event::MediaFailed { .. } => "calls without a media engine",
        Event::CallNotEnded { .. } => "parties of ended calls",
        Event::Call(_) => "calls",
        Event::CallTransferred(_) | Event::CallNotTaken { .. } => "calls of another process",
    }
}

fn write(event: Event) {
    match event {
        // The security log has written these.
        Event::Malformed { .. }
        | Event::WrongCredentials { .. }
        | Event::Scanner { .. }
        | Event::HandshakeFailed { .. } => {}
        Event::WrongIdentity { peer, user, claimed } => {
            let (user, claimed) = (lossy(user.as_bytes()), lossy(claimed.as_bytes()));
            tracing::warn!(%peer, user, claimed, "a user claimed another identity");
        }
        Event::TargetHealth { set, uri, is_up: true } => {
            tracing::info!("{uri} of balancer {set} answers probes again: it gradually gets new calls");
        }
        Event::TargetHealth { set, uri, is_up: false } => {
            tracing::warn!("{uri} of balancer {set} does not answer probes: it gets no new calls");
        }
        Event::TableFull { table } => tracing::error!(table, "a table is full: new work is refused"),
        Event::TrunkRegistration { trunk, status } => account(&trunk, &status),
        Event::Outage { hop, names, cause, avoided_for } => outage(&hop, &names, cause, avoided_for),
        Event::AllTargetsOut { owner: NextHopOwner::Set(set) } => {
            tracing::error!("no gateway of {set} answers");
        }
        Event::AllTargetsOut { owner: NextHopOwner::Trunk(trunk) } => {
            tracing::error!("no target of trunk {trunk} answers");
        }
        Event::AllTargetsOut { owner: NextHopOwner::Route } => {}
        Event::Recovery { hop, names, after } => {
            tracing::info!("{} answers again, after {}", named(&hop, &names), clock(after.as_secs_f64()));
        }
        Event::TooManyContacts { peer, aor, limit } => {
            tracing::warn!(%peer, aor, limit, "REGISTER refused: more contacts than registrar.max_contacts");
        }
        Event::LocalContact { peer, aor, contact } => {
            tracing::warn!(
                %peer, aor, contact,
                "REGISTER refused: its Contact (or Path) leads to this machine; correct the phone, or set registrar.local_contacts"
            );
        }
        Event::LocalDestination { by, address } => {
            tracing::warn!(
                %by, %address,
                "request or redirection not followed: its destination, named by a peer elsewhere, leads to this machine; correct \
                 the peer, name the destination as a target of a route, or set registrar.local_contacts"
            );
        }
        Event::TooManyPendingRegisters { peer, aor } => {
            tracing::warn!(%peer, aor, "REGISTER refused: too many for its address are waiting for the store");
        }
        Event::MediaEngine { engine, is_up: true } => {
            tracing::info!("media engine udp:{engine} answers again: it gets calls");
        }
        Event::MediaEngine { engine, is_up: false } => {
            tracing::error!(
                "media engine udp:{engine} does not answer: new calls use the others, or are handled by media.on_failure if none answers; check that rtpengine runs there, and the path to its listen-ng"
            );
        }
        Event::MediaFailed { call_id, reason, is_refused: true } => {
            tracing::warn!(call_id, "call refused with 503: {reason} (media.on_failure)");
        }
        Event::MediaFailed { call_id, reason, is_refused: false } => {
            tracing::warn!(call_id, "media forwarded without an engine: {reason}");
        }
        Event::CallNotEnded { call_id, party, status } => {
            let answer = status.map_or_else(|| "does not answer".to_owned(), |status| format!("has answered {status}"));
            tracing::warn!(
                call_id,
                "the call was ended by the operator, but its {party} {answer}: it may still have the call; hang up there"
            );
        }
        Event::CallTransferred(_) => {
            tracing::error!(
                "a call is not passed on: the process that has taken over does not read; its call record will be missing"
            );
        }
        Event::CallNotTaken { reason } => {
            tracing::error!(
                "a call of the other process is not tracked, and its call record will be missing: {reason}"
            );
        }
        Event::Call(record) => tracing::debug!(reason = record.reason.as_str(), "a call has ended"),
    }
}

/// Limits the lines of each kind, so that a peer cannot fill the disk.
#[derive(Default)]
struct Throttle {
    kinds: BTreeMap<&'static str, Window>,
}

struct Window {
    began: Instant,
    lines: u32,
    kept_back: u64,
}

impl Throttle {
    fn admits(&mut self, kind: &'static str, now: Instant) -> bool {
        let window = self.kinds.entry(kind).or_insert_with(|| Window::new(now));
        if window.end() <= now {
            window.tell(kind);
            *window = Window::new(now);
        }
        window.lines = window.lines.saturating_add(1);
        let admitted = window.lines <= LINES;
        window.kept_back += u64::from(!admitted);
        admitted
    }

    /// Returns the time of the next report; `None` if nothing was suppressed.
    fn next_end(&self) -> Option<Instant> {
        self.kinds.values().filter(|window| window.kept_back > 0).map(Window::end).min()
    }

    /// Reports the suppressed lines of past windows.
    fn tell_of_ended(&mut self, now: Instant) {
        self.kinds.iter_mut().filter(|(_, window)| window.end() <= now).for_each(|(kind, window)| window.tell(kind));
    }

    /// Reports all suppressed lines, at the end of the log.
    fn tell_of_all(&mut self) {
        self.kinds.iter_mut().for_each(|(kind, window)| window.tell(kind));
    }
}

impl Window {
    const fn new(now: Instant) -> Self {
        Self { began: now, lines: 0, kept_back: 0 }
    }

    fn end(&self) -> Instant {
        self.began + WINDOW
    }

    /// Reports a kind once and resets its count.
    fn tell(&mut self, kind: &str) {
        let count = mem::take(&mut self.kept_back);
        if count > 0 {
            tracing::warn!(kind, count, "similar lines were suppressed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _};
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_flood_of_one_kind_mutes_only_that_kind_for_a_while() {
        let mut throttle = Throttle::default();
        let start = Instant::now();
        let admitted = (0..1000).filter(|_| throttle.admits("flood", start)).count();
        assert_eq!(admitted, LINES as usize);
        assert!(throttle.admits("other", start));
        assert!(throttle.admits("flood", start + WINDOW));
    }

    /// Returns the log output of `work`.
    fn logged(work: impl FnOnce()) -> String {
        let file = tempfile::tempfile().expect("a file");
        let writer = file.try_clone().expect("the same file");
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(Mutex::new(writer)).finish();
        tracing::subscriber::with_default(subscriber, work);
        let mut text = String::new();
        (&file).rewind().and_then(|()| (&file).read_to_string(&mut text)).expect("what was written");
        text
    }

    #[test]
    fn the_count_of_a_flood_is_logged_once_after_its_window() {
        let mut throttle = Throttle::default();
        let start = Instant::now();
        assert_eq!(throttle.next_end(), None);
        assert_eq!((0..50).filter(|_| throttle.admits("flood", start)).count(), 10);
        let end = throttle.next_end().expect("a count that is to be told");
        assert_eq!(end, start + WINDOW);
        assert_eq!(logged(|| throttle.tell_of_ended(end - Duration::from_millis(1))), "");
        let text = logged(|| throttle.tell_of_ended(end));
        assert!(text.contains("similar lines were suppressed kind=\"flood\" count=40"), "{text}");
        assert_eq!(throttle.next_end(), None);
        let later = logged(|| {
            throttle.tell_of_ended(end);
            throttle.admits("flood", end);
            throttle.tell_of_all();
        });
        assert_eq!(later, "", "told twice");
    }
}
