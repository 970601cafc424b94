//! `strowger ctl reload --all`: reloads every server of a configuration that runs on this machine.

use std::collections::BTreeSet;
use std::path::PathBuf;

use strowger_control::config::{Config, ConfigSource};
use strowger_control::protocol::{Request, Response};
use strowger_control::socket;

use crate::failure::Failure;
use crate::table::print_line;

/// Reloads all servers of the configuration on this machine: the clusters first, so that they know the users that a
/// first stage sends them.
pub(crate) fn reload_all(wanted: ConfigSource<'_>, is_dry_run: bool) -> Result<(), Failure> {
    let (config, _) = Config::load_for_check(wanted)?;
    if !config.has_stages() {
        return Err(Failure::Usage("--all: the configuration is for one server; omit it".to_owned()));
    }
    let (mut asked, mut refused, mut elsewhere) = (0, 0, Vec::new());
    for (name, socket) in servers(&config, wanted)? {
        if !socket.exists() {
            elsewhere.push(name);
            continue;
        }
        asked += 1;
        let request = if is_dry_run { Request::CheckReload } else { Request::Reload };
        let said = match socket::ask(&socket, &request) {
            Ok(Response::Reloaded(done)) => {
                done.changes.iter().try_for_each(|change| print_line(&format!("{name}: {change}")))?;
                done.result
            }
            Ok(Response::Error(why)) | Err(why) => {
                refused += 1;
                why
            }
            Ok(_) => {
                refused += 1;
                "sent an unexpected answer".to_owned()
            }
        };
        print_line(&format!("{name}: {said}"))?;
    }
    if !elsewhere.is_empty() {
        let names = elsewhere.join(", ");
        print_line(&format!("not on this machine: {names}; copy the file there, and run `strowger ctl reload --all`"))?;
    }
    match (asked, refused) {
        (0, _) => {
            let folder = config.common_folder().display().to_string();
            Err(Failure::No(format!(
                "no server of this configuration runs here: none has its folder in {folder} (server.data)"
            )))
        }
        (_, 0) => Ok(()),
        _ if is_dry_run => Err(Failure::No("not all servers could reload the configuration".to_owned())),
        _ => Err(Failure::No("not all servers have reloaded the configuration".to_owned())),
    }
}

/// Returns the servers named in the configuration and those with a folder here, with their sockets; the first stage
/// last.
fn servers(config: &Config, wanted: ConfigSource<'_>) -> Result<Vec<(String, PathBuf)>, Failure> {
    let mut names: BTreeSet<String> = config.stage_names().into_iter().collect();
    // A server that shares its entry in the file with others, such as NAME-2.
    let folders = std::fs::read_dir(config.common_folder()).into_iter().flatten().flatten();
    let here: BTreeSet<String> = folders.filter_map(|folder| folder.file_name().into_string().ok()).collect();
    names.extend(here.iter().cloned());
    let mut servers = Vec::new();
    for name in names {
        match Config::load(ConfigSource { member: Some(&name), ..wanted }) {
            Ok((config, _)) => servers.push((config.is_first_stage(), name, config.control_socket())),
            // A folder of something else.
            Err(_) if here.contains(&name) => {}
            Err(error) => return Err(error.into()),
        }
    }
    servers.sort();
    Ok(servers.into_iter().map(|(_, name, socket)| (name, socket)).collect())
}
