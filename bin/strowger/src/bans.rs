//! `strowger ctl ban`: shows and changes the addresses that are not served.

use std::io;
use std::path::Path;

use serde_json::json;
use strowger_control::protocol::{Ban, Bans, Failures, NewBan, Request, Response};
use strowger_control::socket;

use crate::cli::ctl::BanCommand;
use crate::failure::Failure;
use crate::table::{print_json, print_line, print_table};
use crate::text::clock;

/// Number of addresses listed by default.
const LIMIT: u32 = 100;

pub(crate) fn run(path: &Path, command: Option<&BanCommand>, as_json: bool) -> Result<(), Failure> {
    match command {
        None => list(path, LIMIT, as_json),
        Some(BanCommand::List { limit }) => list(path, *limit, as_json),
        Some(BanCommand::Failures { limit }) => failures(path, *limit, as_json),
        Some(BanCommand::Add { address, time }) => {
            let for_s = time.map(|time| time.0.as_secs().max(1));
            let ban = changed(path, &Request::AddBan(NewBan { address: *address, for_s }))?;
            if as_json {
                return Ok(print_json(&json!(ban))?);
            }
            let until = ban.left_s.map_or_else(|| "until `strowger ctl ban rm`".to_owned(), clock);
            Ok(print_line(&format!("{} is banned: {until}", ban.address))?)
        }
        Some(BanCommand::Rm { address }) => {
            let ban = changed(path, &Request::RemoveBan { address: *address })?;
            if as_json {
                return Ok(print_json(&json!(ban))?);
            }
            Ok(print_line(&format!("{} is not banned any more", ban.address))?)
        }
    }
}

fn changed(path: &Path, request: &Request) -> Result<Ban, Failure> {
    match socket::ask(path, request).map_err(Failure::No)? {
        Response::Ban(ban) => Ok(ban),
        Response::Error(why) => Err(Failure::No(why)),
        _ => Err(Failure::No("the server sent an unexpected answer".to_owned())),
    }
}

fn list(path: &Path, limit: u32, as_json: bool) -> Result<(), Failure> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    match socket::ask(path, &Request::Bans { limit }).map_err(Failure::No)? {
        Response::Bans(found) if as_json => Ok(print_json(&json!(found))?),
        Response::Bans(found) => Ok(print(found)?),
        Response::Error(why) => Err(Failure::No(why)),
        _ => Err(Failure::No("the server sent an unexpected answer".to_owned())),
    }
}

fn failures(path: &Path, limit: u32, as_json: bool) -> Result<(), Failure> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    match socket::ask(path, &Request::Failures { limit }).map_err(Failure::No)? {
        Response::Failures(found) if as_json => Ok(print_json(&json!(found))?),
        Response::Failures(found) => Ok(print_failures(found)?),
        Response::Error(why) => Err(Failure::No(why)),
        _ => Err(Failure::No("the server sent an unexpected answer".to_owned())),
    }
}

fn print_failures(found: Failures) -> io::Result<()> {
    let rows = found.failures.into_iter().map(|failure| {
        let ban = match (failure.exempt, failure.proven) {
            (true, _) => "never",
            (false, true) => "counts",
            (false, false) => "unproven",
        };
        let (user, count) = (failure.user.unwrap_or_default(), failure.count.to_string());
        let times = [clock(failure.first_s), clock(failure.last_s)];
        let [first, last] = times;
        [last, first, count, failure.event, failure.address, failure.transport, ban.to_owned(), user]
    });
    let names = ["LAST", "FIRST", "COUNT", "EVENT", "ADDRESS", "TRANSPORT", "BAN", "USER"];
    print_table(names, &rows.collect::<Vec<_>>())?;
    if found.more {
        eprintln!("strowger: the list is truncated; --limit shows more");
    }
    Ok(())
}

fn print(found: Bans) -> io::Result<()> {
    let rows = found.bans.into_iter().map(|ban| {
        let left = ban.left_s.map_or_else(|| "until removed".to_owned(), clock);
        [ban.address, ban.cause, clock(ban.since_s), left, ban.number.to_string()]
    });
    print_table(["ADDRESS", "CAUSE", "SINCE", "LEFT", "BANS"], &rows.collect::<Vec<_>>())?;
    if found.more {
        eprintln!("strowger: the list is truncated; `strowger ctl ban list --limit` shows more");
    }
    Ok(())
}
