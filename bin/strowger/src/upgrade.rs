//! `strowger upgrade`: replaces the program of a running server.

use serde_json::json;
use strowger_control::config::{Config, ConfigSource};
use strowger_control::protocol::{UpgradeReport, UpgradeRequest};
use strowger_control::socket;

use crate::cli::UpgradeArguments;
use crate::failure::Failure;
use crate::table::{print_json, print_line};
use crate::text::{count, size};

pub(crate) fn run(wanted: ConfigSource<'_>, arguments: &UpgradeArguments) -> Result<(), Failure> {
    let socket = match &arguments.socket {
        Some(socket) => socket.clone(),
        // A faulty file is reported by the new process.
        None => Config::load_leniently(wanted)?.0.control_socket(),
    };
    let binary = match &arguments.binary {
        Some(binary) => {
            Some(std::path::absolute(binary).map_err(|error| Failure::Usage(format!("--binary: {error}")))?)
        }
        None => None,
    };
    if let Some(binary) = binary.as_ref().filter(|binary| binary.to_str().is_none()) {
        return Err(Failure::Usage(format!("--binary: {} is not UTF-8; choose another name", binary.display())));
    }
    let ready_ms = arguments.wait.map(|time| u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX));
    let request = UpgradeRequest { binary, close_connections: arguments.close_connections, ready_ms };
    let report = socket::upgrade(&socket, request).map_err(Failure::No)?;
    // The server says which connections it has closed.
    let goes_on = if arguments.close_connections { "the server goes on" } else { "the server goes on as before" };
    let report = report.map_err(|why| Failure::No(format!("not upgraded: {why}; {goes_on}")))?;
    if arguments.json {
        return Ok(print_json(&json!(report))?);
    }
    let UpgradeReport { from_version, version, pid, frozen_us, phases, addresses, transactions, bytes } = report;
    print_line(&format!("version {version} has replaced {from_version}; it is process {pid}"))?;
    let phases: Vec<_> = phases.iter().map(|phase| format!("{} {}", phase.name, ms(phase.us))).collect();
    print_line(&format!("nothing was read for {}: {}", ms(frozen_us), phases.join(", ")))?;
    print_line(&format!(
        "handed over: {}, {}; {} end in the process before",
        count(addresses, "registered address"),
        size(bytes),
        count(transactions, "transaction")
    ))?;
    Ok(())
}

fn ms(us: u64) -> String {
    format!("{:.1} ms", std::time::Duration::from_micros(us).as_secs_f64() * 1000.0)
}
