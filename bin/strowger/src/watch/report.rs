//! Events of a watcher, as log lines and as JSON.

use std::io::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use strowger_control::config::Watch;
use strowger_watch::{Event, Plan, RecordData, RecordSet};

use crate::utc;

/// Logs an event.
#[expect(clippy::unnecessary_wraps, reason = "it stands in the place of `print`, which can fail")]
pub(super) fn log(plan: &Plan, watch: &Watch, event: &Event) -> io::Result<()> {
    match event {
        Event::Up { server } => tracing::info!("{} is alive", server_of(plan, *server)),
        Event::Down { server } => {
            tracing::warn!("{} is dead: no accepted response to OPTIONS", server_of(plan, *server));
        }
        Event::Changed { set, removed, added } => {
            let (removed, added) = (shown(removed).join(", "), shown(added).join(", "));
            tracing::info!(removed, added, "{} is changed", set_of(plan, *set));
        }
        Event::LastKept { set } => tracing::error!(
            "{}: no server is alive; its records stay, because a zone without servers is worse than one with dead servers",
            set_of(plan, *set)
        ),
        Event::PutBack { set, data } => tracing::warn!(
            "{}: another client has restored {data}, whose server is dead; the record stays",
            set_of(plan, *set)
        ),
        Event::Unreachable => tracing::error!("{}: the zone is unchanged; retrying", silence(watch)),
        Event::Reachable => tracing::info!("the name server answers again"),
        Event::Refused { why } => tracing::error!("{why}; retrying"),
    }
    Ok(())
}

/// Describes the name server that does not answer.
pub(super) fn silence(watch: &Watch) -> String {
    format!("the name server {} (watch.server) does not answer over TCP within {}", watch.server.0, watch.timeout)
}

/// Prints an event as a line of JSON.
pub(super) fn print(plan: &Plan, event: &Event) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", to_json(plan, event))?;
    out.flush()
}

fn to_json(plan: &Plan, event: &Event) -> Value {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = utc::rfc3339(u64::try_from(since.as_millis()).unwrap_or(0));
    let of_set = |event: &str, set: usize, more: Value| {
        let (name, kind) =
            plan.sets.get(set).map_or_else(Default::default, |set| (set.name.clone(), set.kind.to_string()));
        let mut value = json!({ "time": time, "event": event, "name": name, "type": kind });
        if let (Some(value), Value::Object(more)) = (value.as_object_mut(), more) {
            value.extend(more);
        }
        value
    };
    match event {
        Event::Up { server } => json!({ "time": time, "event": "up", "server": server_of(plan, *server) }),
        Event::Down { server } => json!({ "time": time, "event": "down", "server": server_of(plan, *server) }),
        Event::Changed { set, removed, added } => {
            of_set("changed", *set, json!({ "removed": shown(removed), "added": shown(added) }))
        }
        Event::LastKept { set } => of_set("last-kept", *set, json!({})),
        Event::PutBack { set, data } => of_set("put-back", *set, json!({ "record": data.to_string() })),
        Event::Unreachable => json!({ "time": time, "event": "silent" }),
        Event::Reachable => json!({ "time": time, "event": "answers" }),
        Event::Refused { why } => json!({ "time": time, "event": "refused", "why": why }),
    }
}

fn shown(data: &[RecordData]) -> Vec<String> {
    data.iter().map(ToString::to_string).collect()
}

fn server_of(plan: &Plan, index: usize) -> String {
    plan.servers.get(index).map_or_else(String::new, ToString::to_string)
}

fn set_of(plan: &Plan, index: usize) -> String {
    plan.sets.get(index).map_or_else(String::new, RecordSet::to_string)
}
