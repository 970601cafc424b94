//! The log: structured, quiet, on standard error.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::cdr::Cdr;
use strowger_control::config::{Format, Level, Log};
use strowger_message::lossy;
use strowger_shard::Event;
use strowger_trunk::{State, Status};
use strowger_worker::PanicReport;
use tracing::level_filters::LevelFilter;

/// Lines of one kind within [`WINDOW`]; what is more is counted and told in one line.
const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);

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
    for event in events {
        if let Event::Call(record) = event {
            cdr.write(record);
        } else if throttle.admits(kind(&event), Instant::now()) {
            write(event);
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
        Event::TableFull { table } => tracing::error!(table, "a table is full: work is refused"),
        Event::Account { trunk, status } => account(&trunk, &status),
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
