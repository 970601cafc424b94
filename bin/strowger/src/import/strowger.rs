//! `strowger import strowger`: imports users, aliases and gateways from a file of another Strowger server.

use std::path::Path;

use serde_json::json;
use strowger_control::config::Config;
use strowger_control::protocol::Change;
use strowger_store::TransferCounts;

use super::store;
use crate::failure::Failure;
use crate::notify_server::notify_server;
use crate::table::{print_json, print_table};
use crate::text::number;

pub(super) fn import(config: &Config, file: &Path, as_json: bool) -> Result<(), Failure> {
    let all = store(config)?.import_all(file)?;
    notify_server(config, Change::new("import", file.to_string_lossy()));
    let parts = [("users", all.users), ("aliases", all.aliases), ("gateways", all.gateways)];
    if as_json {
        let part = |(name, TransferCounts { added, kept }): (&str, _)| {
            (name.to_owned(), json!({ "added": added, "kept": kept }))
        };
        return Ok(print_json(&parts.into_iter().map(part).collect::<serde_json::Map<_, _>>().into())?);
    }
    let row = |(name, TransferCounts { added, kept }): (&str, _)| [name.to_owned(), number(added), number(kept)];
    Ok(print_table(["", "ADDED", "HERE ALREADY"], &parts.map(row))?)
}
