//! The log: structured, quiet, on standard error.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::iter;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use crate::cdr::Cdr;
use crate::status;
use crate::text::clock;
use strowger_control::config::{Format, Level, Log, Span};
use strowger_locate::{Cause, Hop};
use strowger_message::lossy;
use strowger_shard::{Event, Owner, PlaceName};
use strowger_trunk::{State, Status};
use strowger_worker::PanicReport;
use tracing::level_filters::LevelFilter;

/// Lines of one kind within [`WINDOW`]; what is more is counted and told in one line.
const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);
/// How long events are gathered: a thread that is woken by each call that ends takes the worker's core from it each time.
const GATHERED_FOR: Duration = Duration::from_millis(20);

pub(crate) fn start(log: &Log) {
    let level = match log.level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    let builder = tracing_subscriber::fmt().with_max_level(level).with_target(false).with_writer(io::stderr);
    let builder = builder.with_ansi(io::stderr().is_terminal());
    match log.format {
        Format::Text => builder.init(),
        Format::Json => builder.json().flatten_event(true).init(),
    }
}

/// Writes events until nobody is left to send any; calls that have ended go to their own file.
pub(crate) fn events(events: &Receiver<Event>, cdr: &Cdr) {
    let mut throttle = Throttle::default();
    while let Ok(first) = events.recv() {
        thread::sleep(GATHERED_FOR);
        for event in iter::once(first).chain(events.try_iter()) {
            if let Event::Call(record) = event {
                cdr.write(record);
            } else if throttle.admits(kind(&event), Instant::now()) {
                write(event);
            }
        }
    }
}

fn account(trunk: &str, status: &Status) {
    let answer = status.last_answer.map_or_else(|| "no answer".to_owned(), |code| code.to_string());
    match status.state {
        State::Registered => tracing::info!(trunk, "registered at the trunk"),
        State::Refused => {
            tracing::error!(trunk, answer, "the trunk refuses the registration: check its username, password and from");
        }
        State::Failing => tracing::warn!(trunk, answer, "the trunk cannot be registered at; trying again"),
        State::Registering | State::Leaving | State::Stopped => tracing::debug!(trunk, "the trunk is left"),
    }
}

/// `gateway sip:192.0.2.1 of pstn does not answer (timeout); tried last for 30s`.
fn outage(hop: &Hop, names: &[PlaceName], cause: Cause, avoided_for: Duration) {
    let (who, why) = (named(hop, names), status::cause(hop.transport, cause));
    let last = if avoided_for.is_zero() { String::new() } else { format!("; tried last for {}", Span(avoided_for)) };
    if names.is_empty() {
        tracing::info!("{who} does not answer ({why}){last}");
    } else {
        tracing::warn!("{who} does not answer ({why}){last}");
    }
}

/// What the operator calls it, with the address where that is not in its URI.
fn named(hop: &Hop, names: &[PlaceName]) -> String {
    let address = status::hop(hop);
    match names {
        [] => address,
        names => {
            let names: Vec<String> = names.iter().map(PlaceName::to_string).collect();
            format!("{} ({address})", names.join(", "))
        }
    }
}

/// A panic that a worker contained.
pub(crate) fn panic(report: &PanicReport) {
    tracing::error!("a fault in this program was contained; please report it: {report}");
}

fn kind(event: &Event) -> &'static str {
    match event {
        Event::Malformed { .. } => "malformed messages",
        Event::WrongCredentials { .. } => "wrong credentials",
        Event::WrongIdentity { .. } => "wrong identities",
        Event::TableFull { .. } => "full tables",
        Event::Account { .. } => "registrations of trunks",
        // What callers name may be many; it must not silence the operator's own.
        Event::Outage { names, .. } | Event::Recovery { names, .. } if names.is_empty() => "others that do not answer",
        Event::Outage { .. } => "gateways that do not answer",
        Event::NoneAnswers { .. } => "sets of which nobody answers",
        Event::Recovery { .. } => "gateways that answer again",
        Event::Target { .. } => "targets that probes find gone or back",
        Event::TooManyContacts { .. } => "too many contacts",
        Event::TooManyWaiting { .. } => "too many REGISTERs of an address",
        Event::Call(_) => "calls",
    }
}

fn write(event: Event) {
    match event {
        Event::Malformed { peer, fault } => tracing::info!(%peer, ?fault, "malformed message"),
        Event::WrongCredentials { peer, identity } => {
            tracing::warn!(%peer, identity = lossy(identity.as_bytes()), "wrong credentials");
        }
        Event::WrongIdentity { peer, user, claimed } => {
            let (user, claimed) = (lossy(user.as_bytes()), lossy(claimed.as_bytes()));
            tracing::warn!(%peer, user, claimed, "a user claimed to be somebody else");
        }
        Event::Target { set, uri, is_up: true } => {
            tracing::info!("{uri} of balancer {set} answers its probes again: it takes new calls, little by little");
        }
        Event::Target { set, uri, is_up: false } => {
            tracing::warn!("{uri} of balancer {set} does not answer its probes: it gets no new calls");
        }
        Event::TableFull { table } => tracing::error!(table, "a table is full: work is refused"),
        Event::Account { trunk, status } => account(&trunk, &status),
        Event::Outage { hop, names, cause, avoided_for } => outage(&hop, &names, cause, avoided_for),
        Event::NoneAnswers { of: Owner::Set(set) } => {
            tracing::error!("no gateway of {set} answers");
        }
        Event::NoneAnswers { of: Owner::Trunk(trunk) } => {
            tracing::error!("no target of trunk {trunk} answers");
        }
        Event::NoneAnswers { of: Owner::Route } => {}
        Event::Recovery { hop, names, after } => {
            tracing::info!("{} answers again, after {}", named(&hop, &names), clock(after.as_secs_f64()));
        }
        Event::TooManyContacts { peer, aor, limit } => {
            tracing::warn!(%peer, aor, limit, "a REGISTER for more contacts than registrar.max_contacts is refused");
        }
        Event::TooManyWaiting { peer, aor } => {
            tracing::warn!(%peer, aor, "a REGISTER is refused, for too many of its address wait for the store");
        }
        Event::Call(record) => tracing::debug!(reason = record.reason.as_str(), "a call has ended"),
    }
}

/// Lets so many lines of a kind pass that a peer cannot fill the disk.
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
        let window = self.kinds.entry(kind).or_insert(Window { began: now, lines: 0, kept_back: 0 });
        if now.duration_since(window.began) >= WINDOW {
            if window.kept_back > 0 {
                tracing::warn!(kind, count = window.kept_back, "more of the same was not logged");
            }
            *window = Window { began: now, lines: 0, kept_back: 0 };
        }
        window.lines = window.lines.saturating_add(1);
        let admitted = window.lines <= LINES;
        window.kept_back += u64::from(!admitted);
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_kind_silences_that_kind_only_and_only_for_a_while() {
        let mut throttle = Throttle::default();
        let start = Instant::now();
        let admitted = (0..1000).filter(|_| throttle.admits("flood", start)).count();
        assert_eq!(admitted, LINES as usize);
        assert!(throttle.admits("other", start));
        assert!(throttle.admits("flood", start + WINDOW));
    }
}
