//! What of a faulty file can be read: who only wants to ask a running server need not wait until all of it is right.

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::{Config, ConfigError, Server};

/// Lines that are left out at most because no TOML can be made with them.
const MAX_LINES: usize = 64;

impl Config {
    /// As [`load`](Self::load), but of a file with faults what can be read of it, with the faults beside it: where the control
    /// socket is, and which addresses and domains are the server's. All else may be missing then.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load_leniently(file: Option<&Path>) -> Result<(Self, Option<ConfigError>), ConfigError> {
        let Some((path, text)) = super::read(file)? else { return Ok((Self::default(), None)) };
        match Self::parse(&text) {
            Ok(config) => Ok((config, None)),
            Err(faults) => Ok((salvaged(&text), Some(faults.in_file(&path)))),
        }
    }
}

fn salvaged(text: &str) -> Config {
    // Values that do not fit each other keep nobody from reading them.
    if let Ok(config) = toml::from_str(text) {
        return config;
    }
    let table = readable(text);
    let usual = Server::default();
    let server = Server {
        data: value(&table, "server", "data").unwrap_or(usual.data),
        domains: value(&table, "server", "domains").unwrap_or(usual.domains),
        listen: value(&table, "server", "listen").unwrap_or(usual.listen),
        ..usual
    };
    let control = super::Control { socket: value(&table, "control", "socket") };
    Config { server, control, ..Config::default() }
}

fn value<T: DeserializeOwned>(table: &Table, section: &str, key: &str) -> Option<T> {
    let section = table.get(section).and_then(Value::as_table)?;
    section.get(key)?.clone().try_into().ok()
}

/// The text as TOML, without the lines that keep it from being one.
fn readable(text: &str) -> Table {
    let mut lines: Vec<&str> = text.lines().collect();
    for _ in 0..MAX_LINES {
        let at = match read(&lines) {
            Ok(table) => return table,
            Err(at) => at,
        };
        // What was not ended is found out about after it: of the last two lines that one, without which more can be read.
        let up_to = lines.iter().enumerate().take(at.saturating_add(1));
        let written: Vec<usize> = up_to.filter(|(_, line)| !line.trim().is_empty()).map(|(at, _)| at).collect();
        let reached = |without: &usize| {
            let mut rest = lines.clone();
            leave_out(&mut rest, *without);
            read(&rest).err().unwrap_or(usize::MAX)
        };
        let Some(faulty) = written.into_iter().rev().take(2).rev().max_by_key(reached) else { break };
        leave_out(&mut lines, faulty);
    }
    Table::new()
}

fn leave_out(lines: &mut [&str], at: usize) {
    if let Some(line) = lines.get_mut(at) {
        *line = "";
    }
}

/// These lines as TOML, or the line, from 0, from which on they are none.
fn read(lines: &[&str]) -> Result<Table, usize> {
    let text = lines.join("\n");
    toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.as_bytes().get(..span.start)).unwrap_or_default();
        before.iter().filter(|byte| **byte == b'\n').count()
    })
}
