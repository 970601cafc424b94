//! `strowger token`: who may use the page and the API.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use strowger_administration::{Role, Token, TokenError, TokenFile};
use strowger_control::config::{Config, ConfigSource, Span};
use strowger_control::protocol::Change;

use crate::cli::token::{TokenArguments, TokenCommand};
use crate::failure::Failure;
use crate::notify_server::notify_server;
use crate::table::{print_json, print_line, print_table};
use crate::utc;

pub(crate) fn run(wanted: ConfigSource<'_>, arguments: &TokenArguments) -> Result<(), Failure> {
    let (config, _) = Config::load(wanted)?;
    let file = TokenFile::in_folder(&config.server.data);
    let change = match &arguments.command {
        TokenCommand::Add { name, role, expires } => {
            add(&file, name, *role, *expires, arguments.json)?;
            Change::new("token add", format!("{name} ({role})"))
        }
        TokenCommand::Rm { name } => {
            file.remove(name).map_err(failure)?;
            done("removed", name, arguments.json)?;
            Change::new("token rm", name)
        }
        TokenCommand::List => return list(&file, arguments.json),
    };
    // The server reads the file by itself, and writes this into its audit log.
    notify_server(&config, change);
    Ok(())
}

fn add(file: &TokenFile, name: &str, role: Role, expires: Option<Span>, as_json: bool) -> Result<(), Failure> {
    let now_s = now_s();
    let folder = file.path().parent().filter(|folder| !folder.exists());
    let expires_s = expires.map(|time| now_s.saturating_add(time.0.as_secs()));
    let token = file.add(name, role, now_s, expires_s).map_err(failure)?;
    if let Some(folder) = folder {
        eprintln!(
            "strowger: note: this is the first token in a new folder, {}; a server with other data does not know it: change \
             to the server's folder, or give its configuration with -c",
            folder.display()
        );
    }
    if as_json {
        let value = json!({
            "result": "added", "name": name, "role": role, "token": token, "created_s": now_s, "expires_s": expires_s,
        });
        return Ok(print_json(&value)?);
    }
    print_line(&token)?;
    eprintln!("strowger: note: this is the only time that the token is shown; it lets its bearer in as {role}");
    Ok(())
}

fn done(what: &str, name: &str, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return Ok(print_json(&json!({ "result": what, "name": name }))?);
    }
    Ok(print_line(&format!("{name} {what}"))?)
}

fn list(file: &TokenFile, as_json: bool) -> Result<(), Failure> {
    let (tokens, now_s) = (file.list().map_err(failure)?, now_s());
    if as_json {
        let row = |token: &Token| {
            json!({
                "name": token.name,
                "role": token.role,
                "created_s": token.created_s,
                "expires_s": token.expires_s,
                "expired": token.is_expired(now_s),
            })
        };
        let rows: Vec<_> = tokens.iter().map(row).collect();
        return Ok(print_json(&json!({ "tokens": rows }))?);
    }
    let row = |token: Token| {
        let expires = match token.expires_s {
            None => "never".to_owned(),
            Some(_) if token.is_expired(now_s) => "EXPIRED".to_owned(),
            Some(end) => day(end),
        };
        [token.name, token.role.to_string(), day(token.created_s), expires]
    };
    let rows: Vec<_> = tokens.into_iter().map(row).collect();
    Ok(print_table(["NAME", "ROLE", "MADE", "EXPIRES"], &rows)?)
}

#[expect(clippy::needless_pass_by_value, reason = "a function for map_err")]
fn failure(error: TokenError) -> Failure {
    Failure::No(error.to_string())
}

/// Returns the date in UTC.
fn day(seconds: u64) -> String {
    let text = utc::rfc3339(seconds.saturating_mul(1000));
    text.split_once('T').map_or_else(String::new, |(day, _)| day.to_owned())
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
