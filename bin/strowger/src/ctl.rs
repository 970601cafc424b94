//! `strowger ctl`: controls a running server over its control socket.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use strowger_control::config::{Config, ConfigSource};
use strowger_control::protocol::{
    Balancer, Call, Calls, Database, EndedCalls, MediaEngine, Outage, Overload, Predecessor, Registration,
    Registrations, Request, Response, Status, Takeover, Trunk, WorkerLoad,
};
use strowger_control::socket;

use crate::cli::ctl::{CtlArguments, CtlCommand};
use crate::failure::Failure;
use crate::table::{print_facts, print_json, print_line, print_table};
use crate::targets::Wait;
use crate::text::{clock, count};
use crate::{address, bans, members, rebalance, reload, store, targets, timing, tls, trace_client};

pub(crate) fn run(wanted: ConfigSource<'_>, arguments: &CtlArguments) -> Result<(), Failure> {
    if let CtlCommand::Reload { all: true, dry_run } = arguments.command {
        return reload::reload_all(wanted, dry_run);
    }
    let (config, socket) = reach(wanted, arguments)?;
    let socket = socket.as_path();
    let request = match &arguments.command {
        CtlCommand::Status | CtlCommand::Members => Request::Status,
        CtlCommand::Registrations { user, limit } => {
            let user = user.as_deref().map(|user| address::typed(&config, user)).transpose()?;
            let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
            Request::Registrations { user: user.map(|user| user.to_string()), limit }
        }
        CtlCommand::Unregister { user, contact, .. } => {
            let user = address::typed(&config, user)?.to_string();
            Request::Unregister { user, contact: contact.clone() }
        }
        CtlCommand::Calls { ended: true, user, limit } => {
            Request::EndedCalls { user: user.clone(), limit: usize::try_from(*limit).unwrap_or(usize::MAX) }
        }
        CtlCommand::Calls { limit, .. } => Request::Calls { limit: usize::try_from(*limit).unwrap_or(usize::MAX) },
        CtlCommand::Hangup { call_id } => Request::EndCall { call_id: call_id.clone() },
        CtlCommand::Trace(trace) => return trace_client::follow(socket, trace, arguments.json),
        CtlCommand::Timing(measured) => return timing::server::run(socket, measured, arguments.json),
        CtlCommand::Reload { dry_run: true, .. } => Request::CheckReload,
        CtlCommand::Reload { .. } => Request::Reload,
        CtlCommand::Targets { set, command: None } => Request::Targets { set: set.clone() },
        CtlCommand::Targets { command: Some(command), .. } => {
            return targets::change(socket, command, arguments.json);
        }
        CtlCommand::Rebalance(rebalance) => return rebalance::run(wanted, socket, rebalance, arguments.json),
        CtlCommand::Drain { target, wait, time } => {
            let wait = wait.then_some(Wait { at_most: time.map(|time| time.0) });
            return targets::drain(socket, target, wait, arguments.json);
        }
        CtlCommand::Ban { command } => return bans::run(socket, command.as_ref(), arguments.json),
        CtlCommand::Undrain { target } => {
            return targets::undrain(socket, target, arguments.json);
        }
    };
    match socket::ask(socket, &request).map_err(Failure::No)? {
        Response::Error(message)
        | Response::NotFound(message)
        | Response::Conflict(message)
        | Response::Busy(message) => Err(Failure::No(message)),
        Response::Status(status) if matches!(arguments.command, CtlCommand::Members) => match &status.cluster {
            Some(cluster) if arguments.json => Ok(print_json(&json!(cluster))?),
            Some(cluster) => {
                members::print(cluster)?;
                members::trouble(cluster).map_or(Ok(()), |why| Err(Failure::No(why)))
            }
            None => Err(Failure::No("the server does not share registrations: it has no [cluster]".to_owned())),
        },
        Response::Status(status) if arguments.json => Ok(print_json(&json!(status))?),
        Response::Status(status) => Ok(print_status(&status)?),
        Response::Registrations(found) if arguments.json => Ok(print_json(&json!(found))?),
        Response::Registrations(found) => Ok(print_registrations(found)?),
        Response::Unregistered(gone) if gone.registrations.is_empty() => {
            Err(Failure::No("there is no such registration; `strowger ctl registrations` lists all of them".to_owned()))
        }
        Response::Unregistered(gone) if arguments.json => Ok(print_json(&json!(gone))?),
        Response::Unregistered(gone) => {
            gone.registrations
                .iter()
                .try_for_each(|one| print_line(&format!("{}: {} unregistered", one.aor, one.contact)))?;
            Ok(())
        }
        Response::Calls(found) if arguments.json => Ok(print_json(&json!(found))?),
        Response::Calls(found) => Ok(print_calls(found)?),
        Response::EndedCalls(found) if arguments.json => Ok(print_json(&json!(found))?),
        Response::EndedCalls(found) => Ok(print_ended_calls(found)?),
        Response::Ending(ended) if arguments.json => Ok(print_json(&json!(ended))?),
        Response::Ending(ended) => {
            let line =
                |call: Call| format!("{}: {} call from {} to {}", call.call_id, call.state, call.caller, call.callee);
            ended.calls.into_iter().try_for_each(|call| print_line(&format!("{} is being ended", line(call))))?;
            Ok(())
        }
        Response::Targets(found) if arguments.json => Ok(print_json(&json!(found))?),
        Response::Targets(found) => Ok(targets::print(found)?),
        Response::Trace(_)
        | Response::Timing(_)
        | Response::Backup(_)
        | Response::Target(_)
        | Response::Bans(_)
        | Response::Failures(_)
        | Response::Upgraded(_)
        | Response::Ban(_)
        | Response::Followed
        | Response::CallSetups(_)
        | Response::Clusters(_) => Err(Failure::No("the server sent an unexpected answer".to_owned())),
        Response::Reloaded(what) if arguments.json => Ok(print_json(&json!(what))?),
        Response::Reloaded(what) => {
            what.changes.iter().try_for_each(|change| print_line(&change.to_string()))?;
            Ok(print_line(&what.result)?)
        }
    }
}

/// Returns the configuration and the socket of its server. A faulty file does not prevent contact with a running
/// server; its faults are reported, because the server would reject the file at a reload.
fn reach(wanted: ConfigSource<'_>, arguments: &CtlArguments) -> Result<(Config, PathBuf), Failure> {
    if let Some(socket) = &arguments.socket {
        // A file found here by chance does not belong to that server.
        let config = if wanted.file.is_some() { Config::load_leniently(wanted)?.0 } else { Config::default() };
        return Ok((config, socket.clone()));
    }
    if matches!(arguments.command, CtlCommand::Reload { .. }) {
        let (config, _) = Config::load(wanted)?;
        let socket = config.control_socket();
        return Ok((config, socket));
    }
    let (config, fault) = Config::load_leniently(wanted).map_err(|fault| {
        Failure::Usage(format!("{fault} (or query the running server through its socket, with --socket)"))
    })?;
    let told = fault.map(|fault| fault.to_string()).unwrap_or_default();
    told.lines().for_each(|line| eprintln!("strowger: warning: {line}"));
    let socket = config.control_socket();
    Ok((config, socket))
}

/// Describes the number of users and their storage.
fn users(status: &Status) -> String {
    let Some(shared) = &status.users_database else { return status.users.to_string() };
    let databases = shared.databases.join(", ");
    match &shared.trouble {
        None => format!("{}, from {databases}", status.users),
        Some(why) => {
            let lasted = shared.trouble_s.unwrap_or_default();
            format!("{}, NOT FOLLOWED for {lasted:.0} s: {why}", status.users)
        }
    }
}

fn call_records(calls: &Database) -> String {
    let databases = calls.databases.join(", ");
    match &calls.trouble {
        None => format!("written to {databases}"),
        Some(why) => format!("NOT WRITTEN for {:.0} s: {why}", calls.trouble_s.unwrap_or_default()),
    }
}

fn upgraded(takeover: &Takeover) -> String {
    let Takeover { from_version, from_pid, frozen_us, predecessors } = takeover;
    let ms = Duration::from_micros(*frozen_us).as_secs_f64() * 1000.0;
    let mut text = format!("from version {from_version} (process {from_pid}); nothing was read for {ms:.1} ms");
    for one in predecessors {
        let Predecessor { pid, version, replaced_s, transactions, connections, .. } = one;
        text.push_str(&format!(
            "\nprocess {pid} (version {version}, replaced {} ago) has {} and {}",
            clock(*replaced_s),
            count(*transactions, "transaction"),
            count(*connections, "connection")
        ));
    }
    text
}

fn print_status(status: &Status) -> io::Result<()> {
    let state = if status.draining { ", draining" } else { "" };
    let mut facts = vec![
        ("version", format!("{} (process {}{state})", status.version, status.pid)),
        ("uptime", format!("{:.0} s", status.uptime_s)),
        ("registrations", format!("{} contacts of {} users", status.registrations, status.addresses)),
        ("users", users(status)),
        ("transactions", status.transactions.to_string()),
        ("workers", workers(status)),
        ("listeners", status.listeners.join("\n")),
        ("domains", status.domains.join(", ")),
        ("key", status.key.clone()),
    ];
    if let Some(kept) = &status.store {
        // Failures come first, because the operator looks for them.
        let place = if kept.state == store::OK { facts.len() } else { 0 };
        facts.insert(place, ("store", store::shown(kept)));
    }
    if let Some(takeover) = &status.takeover {
        facts.push(("upgraded", upgraded(takeover)));
    }
    if !status.certificates.is_empty() {
        let is_due = status.certificates.iter().any(tls::is_due);
        let lines: Vec<String> = status.certificates.iter().map(tls::line).collect();
        facts.insert(if is_due { 0 } else { facts.len() }, ("certificates", lines.join("\n")));
    }
    if !status.media.is_empty() {
        let is_out = status.media.iter().any(|engine| !engine.is_up);
        let state = |engine: &MediaEngine| if engine.is_up { "" } else { ": DOES NOT ANSWER" };
        let lines: Vec<_> = status.media.iter().map(|one| format!("udp:{}{}", one.address, state(one))).collect();
        facts.insert(if is_out { 0 } else { facts.len() }, ("media engines", lines.join("\n")));
    }
    if let Some(cluster) = &status.cluster {
        let place = if cluster.trouble.is_some() || cluster.conflict.is_some() { 0 } else { facts.len() };
        facts.insert(place, ("cluster", members::summary(cluster)));
    }
    if let Some(calls) = &status.calls_database {
        let place = if calls.trouble.is_some() { 0 } else { facts.len() };
        facts.insert(place, ("call records", call_records(calls)));
    }
    if status.overload.limiting > 0 {
        facts.insert(0, ("overload", overload(&status.overload)));
    } else if !status.overload.sorted_by.is_empty() {
        facts.push(("overload", overload(&status.overload)));
    }
    if !status.outages.is_empty() {
        // Outages come first too, unless only callers named the next hops.
        let (lines, place) = outages(&status.outages);
        facts.insert(place.min(facts.len()), ("no answer", lines));
    }
    if !status.balancers.is_empty() {
        facts.push(("balancers", status.balancers.iter().map(balancer).collect::<Vec<_>>().join("\n")));
    }
    if !status.trunks.is_empty() {
        facts.push(("trunks", status.trunks.iter().map(trunk).collect::<Vec<_>>().join("\n")));
    }
    if let Some(banned) = status.counters.get("bans").and_then(|bans| bans.get("banned")).filter(|banned| **banned > 0)
    {
        facts.push(("banned", format!("{} (`strowger ctl ban`)", count(*banned, "address"))));
    }
    let mut counters = Vec::new();
    for (part, names) in &status.counters {
        let counted = names.iter().filter(|(_, value)| **value > 0);
        counters.extend(counted.map(|(name, value)| format!("{part}.{name} {value}")));
    }
    facts.push(("counters", counters.join("\n")));
    print_facts(&facts)
}

/// Describes outages and returns their position in the output. Next hops named by callers may be many and are only
/// counted.
fn outages(all: &[Outage]) -> (String, usize) {
    let mut lines: Vec<String> = all.iter().filter(|outage| outage.uri.is_some()).map(outage).collect();
    let place = if lines.is_empty() { usize::MAX } else { 0 };
    let others = u64::try_from(all.len() - lines.len()).unwrap_or(u64::MAX);
    if others > 0 {
        lines.push(format!("{} named by callers", count(others, "address")));
    }
    (lines.join("\n"), place)
}

/// Formats an outage: `gateway sip:192.0.2.1 of pstn: timeout for 0:02:10, tried last for 0:00:25 more`.
fn outage(outage: &Outage) -> String {
    let who = match (&outage.uri, &outage.set, &outage.trunk) {
        (Some(uri), Some(set), _) => format!("gateway {uri} of {set}"),
        (Some(uri), None, Some(trunk)) => format!("{uri} of trunk {trunk}"),
        (Some(uri), None, None) => format!("target {uri}"),
        (None, ..) => outage.address.clone(),
    };
    let next = match outage.avoided_s {
        Some(left) => format!("tried last for {} more", clock(left)),
        None => "not tried since".to_owned(),
    };
    format!("{who}: {} for {}, {next}", outage.cause, clock(outage.since_s))
}

/// Formats overload control: `refusing 42 % of new calls, 1,950 requests a second admitted, standing wait 24 ms; new
/// work sorted and dropped by the kernel`.
fn overload(now: &Overload) -> String {
    let sorted = match (now.sorted_by.as_str(), now.filtered_by_kernel) {
        ("nobody", _) => "new work is not sorted".to_owned(),
        (by, 0) => format!("new work sorted by the {by}"),
        (by, _) => format!("new work sorted by the {by} and dropped by the kernel"),
    };
    if now.limiting == 0 {
        return format!("none; {sorted}");
    }
    format!(
        "{:.1} % of new calls refused, {} requests/s admitted, with a wait of {:.0} ms; {sorted}",
        now.shed * 100.0,
        now.admitted_per_s,
        now.wait_us as f64 / 1_000.0
    )
}

/// Formats the number of workers and the load of those with shards: `2: 20 shards, 61 % busy; 12 shards, 57 % busy,
/// always awake`.
fn workers(status: &Status) -> String {
    let shown = |WorkerLoad { shards, load, awake }: &WorkerLoad| {
        format!("{shards} shards, {:.0} % busy{}", load * 100.0, if *awake { ", always awake" } else { "" })
    };
    let loads: Vec<_> = status.loads.iter().map(shown).collect();
    if loads.is_empty() { status.workers.to_string() } else { format!("{}: {}", status.workers, loads.join("; ")) }
}

/// Formats a balancer: `pool (least-work): 3 of 4 targets in service, 1,204 calls`.
fn balancer(balancer: &Balancer) -> String {
    let Balancer { name, policy, targets, in_service, calls } = balancer;
    format!("{name} ({policy}): {in_service} of {} in service, {}", count(*targets, "target"), count(*calls, "call"))
}

/// Formats the registration at a trunk: `carrier: refused (403) for 0:00:12, next try in 0:20:05`.
fn trunk(trunk: &Trunk) -> String {
    let Trunk { name, state, since_s, expires_s, last_answer, next_try_s } = trunk;
    let answer = match last_answer {
        Some(status) if state != "registered" => format!(" ({status})"),
        _ => String::new(),
    };
    let mut text = format!("{name}: {state}{answer} for {}", clock(*since_s));
    if let Some(left) = expires_s {
        text.push_str(&format!(", expires in {}", clock(*left)));
    }
    let next = if state == "registered" { "renewed" } else { "next try" };
    match next_try_s {
        Some(left) => text.push_str(&format!(", {next} in {}", clock(*left))),
        None if state != "stopped" => text.push_str(", request pending"),
        None => {}
    }
    text
}

/// Formats an address as `tcp:192.0.2.1:5060`, or without the transport if an older server has not told it.
fn shown_peer(transport: &str, address: SocketAddr) -> String {
    if transport.is_empty() { address.to_string() } else { format!("{}:{address}", transport.to_ascii_lowercase()) }
}

fn print_registrations(found: Registrations) -> io::Result<()> {
    let is_shared = found.registrations.iter().any(|row| row.member.is_some());
    let of_member = |row: &Registration| row.member.map_or_else(String::new, |member| member.to_string());
    let rows = found.registrations.into_iter().map(|row| {
        let member = of_member(&row);
        let source = shown_peer(&row.transport, row.source);
        [row.aor, row.contact, format!("{} s", row.expires_s), source, row.q.to_string(), member]
    });
    let rows: Vec<_> = rows.collect();
    let head = ["ADDRESS", "CONTACT", "EXPIRES IN", "SOURCE", "Q", "MEMBER"];
    if is_shared {
        print_table(head, &rows)?;
    } else {
        let [head @ .., _] = head;
        print_table(head, &rows.into_iter().map(|[row @ .., _]| row).collect::<Vec<_>>())?;
    }
    if found.more {
        eprintln!("strowger: the list is truncated; --limit shows more");
    }
    Ok(())
}

fn print_ended_calls(found: EndedCalls) -> io::Result<()> {
    if let Some(note) = &found.note {
        eprintln!("strowger: note: {note}");
    }
    let rows = found.calls.into_iter().map(|call| {
        let status = call.status.map_or_else(String::new, |status| status.to_string());
        [call.start, clock(call.talk_s), call.reason, status, call.caller, call.callee, call.source, call.call_id]
    });
    print_table(
        ["START", "TALK", "REASON", "STATUS", "CALLER", "CALLEE", "SOURCE", "CALL-ID"],
        &rows.collect::<Vec<_>>(),
    )?;
    if found.more {
        eprintln!("strowger: the list is truncated; --limit shows more");
    }
    Ok(())
}

fn print_calls(found: Calls) -> io::Result<()> {
    let rows = found.calls.into_iter().map(|call| {
        let transport = call.target_transport.unwrap_or_default();
        let target = call.target.map_or_else(String::new, |target| shown_peer(&transport, target));
        let source = shown_peer(&call.transport, call.source);
        [call.state, clock(call.age_s), call.caller, call.callee, source, target, call.call_id]
    });
    let rows: Vec<_> = rows.collect();
    print_table(["STATE", "AGE", "CALLER", "CALLEE", "SOURCE", "TARGET", "CALL-ID"], &rows)?;
    if found.more {
        eprintln!("strowger: the list is truncated; --limit shows more");
    }
    Ok(())
}
