//! `strowger ctl targets`, `drain` and `undrain`: show and change balancers' targets.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use strowger_control::config::Span;
use strowger_control::protocol::{ChangedTarget, NewTarget, Request, Response, Target, Targets};
use strowger_control::socket;

use crate::cli::ctl::TargetsCommand;
use crate::failure::Failure;
use crate::table::{print_json, print_line, print_table};
use crate::text::{clock, count, number};
use crate::utc;

/// Interval at which a draining target is checked.
const TICK: Duration = Duration::from_millis(250);

/// Settings for waiting until a target is empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) at_most: Option<Duration>,
}

pub(crate) fn print(found: Targets) -> io::Result<()> {
    let row = |target: Target| {
        let calls = match target.capacity {
            Some(most) => format!("{} of {}", number(target.calls.into()), number(most.into())),
            None => number(target.calls.into()),
        };
        let response_time = target.response_time_ms.map_or_else(|| "-".to_owned(), |time| format!("{time:.1} ms"));
        [
            target.set.clone(),
            target.uri.clone(),
            state(&target),
            calls,
            number(target.transactions.into()),
            format!("{:.1}", target.work),
            response_time,
            number(target.requests),
            number(target.failures),
            target.id,
        ]
    };
    let heading = ["SET", "TARGET", "STATE", "CALLS", "TRANSACTIONS", "WORK", "RESPONSE", "REQUESTS", "FAILURES", "ID"];
    let rows: Vec<_> = found.targets.into_iter().map(row).collect();
    print_table(heading, &rows)
}

/// Describes a target's state, with the reason if it gets no calls.
fn state(target: &Target) -> String {
    match (&*target.state, &target.outage) {
        ("up" | "slow start", Some(cause)) => format!("no answer ({cause})"),
        ("up" | "slow start", None) if target.full => "full".to_owned(),
        ("slow start", None) => format!("slow start {:.0} %", target.share * 100.0),
        ("down", _) => target.since_s.map_or_else(|| "down".to_owned(), |since| format!("down for {}", clock(since))),
        ("draining", _) if is_empty(target) => "drained".to_owned(),
        (state, _) => state.to_owned(),
    }
}

fn is_empty(target: &Target) -> bool {
    target.calls == 0 && target.transactions == 0
}

pub(crate) fn change(path: &Path, command: &TargetsCommand, as_json: bool) -> Result<(), Failure> {
    match command {
        TargetsCommand::Add { set, uris, priority, weight, capacity } => uris.iter().try_for_each(|uri| {
            let (priority, weight, capacity) = (*priority, *weight, *capacity);
            let new = NewTarget { set: set.clone(), uri: uri.clone(), priority, weight, capacity };
            tell("added", &ask(path, &Request::AddTarget(new))?, as_json)
        }),
        TargetsCommand::Rm { target } => {
            tell("removed", &ask(path, &Request::RemoveTarget { target: target.clone() })?, as_json)
        }
    }
}

pub(crate) fn undrain(path: &Path, target: &str, as_json: bool) -> Result<(), Failure> {
    let done = ask(path, &Request::Undrain { target: target.to_owned() })?;
    let what = if done.lasts == "as before" { "was not drained" } else { "gets calls again" };
    tell(what, &done, as_json)
}

pub(crate) fn drain(path: &Path, target: &str, wait: Option<Wait>, as_json: bool) -> Result<(), Failure> {
    let done = ask(path, &Request::Drain { target: target.to_owned() })?;
    match wait {
        None if as_json => tell("drained", &done, true),
        None => Ok(print_line(&format!("{} gets no new calls: {}", shown(&done.target), left(&done.target)))?),
        Some(wait) => {
            let mut progress = Progress { is_shown: !as_json, last: String::new() };
            let emptied = until_empty(path, done.target, wait, &mut progress)?;
            progress.end();
            if as_json {
                return Ok(print_json(&json!({ "result": "empty", "target": emptied }))?);
            }
            Ok(print_line(&format!("{} {} is empty", time(), shown(&emptied)))?)
        }
    }
}

/// Waits until the target is empty and shows the remaining calls.
fn until_empty(path: &Path, drained: Target, wait: Wait, progress: &mut Progress) -> Result<Target, Failure> {
    let deadline = wait.at_most.and_then(|limit| Instant::now().checked_add(limit));
    let mut target = drained;
    while !is_empty(&target) {
        progress.show(&left(&target));
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let limit = wait.at_most.map(Span).map_or_else(String::new, |limit| format!(" after {limit}"));
            return Err(Failure::No(format!("{}: {}{limit}; it stays drained", shown(&target), left(&target))));
        }
        thread::sleep(TICK);
        let found = match socket::ask(path, &Request::Targets { set: Some(target.set.clone()) }).map_err(Failure::No)? {
            Response::Targets(found) => found,
            // A reload may have removed its balancer; the target is still in the full list.
            Response::Error(_) => all(path)?,
            _ => return Err(Failure::No("the server sent an unexpected answer".to_owned())),
        };
        match found.targets.into_iter().find(|found| found.id == target.id) {
            Some(found) if found.draining || found.origin.is_none() => target = found,
            Some(found) => return Err(Failure::No(format!("{} was undrained meanwhile", shown(&found)))),
            None => target = Target { calls: 0, transactions: 0, work: 0.0, ..target },
        }
    }
    Ok(target)
}

fn all(path: &Path) -> Result<Targets, Failure> {
    match socket::ask(path, &Request::Targets { set: None }).map_err(Failure::No)? {
        Response::Targets(found) => Ok(found),
        Response::Error(why) => Err(Failure::No(why)),
        _ => Err(Failure::No("the server sent an unexpected answer".to_owned())),
    }
}

fn ask(path: &Path, request: &Request) -> Result<ChangedTarget, Failure> {
    match socket::ask(path, request).map_err(Failure::No)? {
        Response::Target(done) => Ok(*done),
        Response::Error(why) => Err(Failure::No(why)),
        _ => Err(Failure::No("the server sent an unexpected answer".to_owned())),
    }
}

fn tell(what: &str, done: &ChangedTarget, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return Ok(print_json(&json!({ "result": what, "lasts": done.lasts, "target": done.target }))?);
    }
    let lasts = match (&*done.lasts, what) {
        ("kept", "removed") => " (from the database)",
        ("kept", _) => " (kept in the database)",
        ("until reload", _) => " (until the next reload)",
        _ => "",
    };
    let others = match what {
        "removed" if !is_empty(&done.target) => format!(": {}", left(&done.target)),
        _ => String::new(),
    };
    Ok(print_line(&format!("{} {what}{lasts}{others}", shown(&done.target)))?)
}

fn shown(target: &Target) -> String {
    format!("{}: {}", target.set, target.uri)
}

/// Formats the remaining calls as `12 calls left`; without calls, the transactions, which end soon.
fn left(target: &Target) -> String {
    match (target.calls, target.transactions) {
        (0, 0) => "it is empty".to_owned(),
        (0, transactions) => format!("{} left", count(transactions.into(), "transaction")),
        (calls, _) => format!("{} left", count(calls.into(), "call")),
    }
}

/// Returns the time of day in log format.
fn time() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or(0);
    let text = utc::rfc3339(millis);
    text.split_once('.').map_or_else(|| text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// Progress display: one updated line on a terminal, otherwise one line per change.
struct Progress {
    is_shown: bool,
    last: String,
}

impl Progress {
    fn show(&mut self, text: &str) {
        if !self.is_shown || self.last == text {
            return;
        }
        self.last = text.to_owned();
        let mut out = io::stdout().lock();
        // A failed display must not stop the wait.
        let written =
            if out.is_terminal() { write!(out, "\r\x1b[K{text}") } else { writeln!(out, "{} {text}", time()) };
        drop(written.and_then(|()| out.flush()));
    }

    /// Ends the line, for the output that follows.
    fn end(&mut self) {
        let mut out = io::stdout().lock();
        if !std::mem::take(&mut self.last).is_empty() && out.is_terminal() {
            drop(write!(out, "\r\x1b[K").and_then(|()| out.flush()));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_says_why_no_calls_come() {
        let target = |state: &str| Target { state: state.to_owned(), share: 0.4, ..Target::default() };
        let with_calls = Target { calls: 2, ..target("draining") };
        let silent = Target { outage: Some("timeout".to_owned()), ..target("up") };
        let gone = Target { since_s: Some(130.0), ..target("down") };
        let busy = Target { full: true, ..target("up") };
        for (target, expected) in [
            (target("up"), "up"),
            (target("slow start"), "slow start 40 %"),
            (gone, "down for 0:02:10"),
            (target("draining"), "drained"),
            (with_calls, "draining"),
            (silent, "no answer (timeout)"),
            (busy, "full"),
        ] {
            assert_eq!(state(&target), expected);
        }
    }

    #[test]
    fn remaining_work_is_shown() {
        let target = |calls, transactions| Target { calls, transactions, ..Target::default() };
        assert_eq!(left(&target(1, 3)), "1 call left");
        assert_eq!(left(&target(1200, 0)), "1,200 calls left");
        assert_eq!(left(&target(0, 2)), "2 transactions left");
        assert_eq!(left(&target(0, 0)), "it is empty");
    }
}
