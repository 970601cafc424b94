//! `strowger ctl`: a running server, over its control socket.

use std::path::Path;

use serde_json::json;
use strowger_control::config::Config;
use strowger_control::protocol::{Registrations, Request, Response, Status};
use strowger_control::socket;

use crate::address;
use crate::cli::{CtlArguments, CtlCommand};
use crate::failure::Failure;
use crate::table::{print_facts, print_json, print_line, print_table};

pub(crate) fn run(file: Option<&Path>, arguments: &CtlArguments) -> Result<(), Failure> {
    let (config, _) = Config::load(file)?;
    let request = match &arguments.command {
        CtlCommand::Status => Request::Status,
        CtlCommand::Registrations { user, limit } => {
            let user = user.as_deref().map(|user| address::typed(&config, user)).transpose()?;
            let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
            Request::Registrations { user: user.map(|user| user.to_string()), limit }
        }
        CtlCommand::Reload => Request::Reload,
    };
    match socket::ask(&config.control_socket(), &request).map_err(Failure::No)? {
        Response::Error(message) => Err(Failure::No(message)),
        Response::Status(status) if arguments.json => Ok(print_json(&json!(status))?),
        Response::Status(status) => Ok(print_status(&status)?),
        Response::Registrations(found) if arguments.json => Ok(print_json(&json!(found))?),
        Response::Registrations(found) => Ok(print_registrations(found)?),
        Response::Reloaded(what) if arguments.json => Ok(print_json(&json!({ "result": what }))?),
        Response::Reloaded(what) => Ok(print_line(&what)?),
    }
}

fn print_status(status: &Status) -> std::io::Result<()> {
    let state = if status.draining { ", draining" } else { "" };
    let mut facts = vec![
        ("version", format!("{} (process {}{state})", status.version, status.pid)),
        ("uptime", format!("{:.0} s", status.uptime_s)),
        ("registrations", format!("{} contacts of {} users", status.registrations, status.addresses)),
        ("users", status.users.to_string()),
        ("transactions", status.transactions.to_string()),
        ("workers", status.workers.to_string()),
        ("listeners", status.listeners.join("\n")),
        ("domains", status.domains.join(", ")),
    ];
    let mut counters = Vec::new();
    for (part, names) in &status.counters {
        let counted = names.iter().filter(|(_, value)| **value > 0);
        counters.extend(counted.map(|(name, value)| format!("{part}.{name} {value}")));
    }
    facts.push(("counters", counters.join("\n")));
    print_facts(&facts)
}

fn print_registrations(found: Registrations) -> std::io::Result<()> {
    let rows = found
        .registrations
        .into_iter()
        .map(|row| [row.aor, row.contact, format!("{} s", row.expires_s), row.source.to_string(), row.q.to_string()]);
    let rows: Vec<_> = rows.collect();
    print_table(["ADDRESS", "CONTACT", "EXPIRES IN", "SOURCE", "Q"], &rows)?;
    if found.more {
        eprintln!("strowger: there are more; show them with --limit");
    }
    Ok(())
}
