//! The highest rate that a warmed-up server sustains, by `strowger load search`. The search is short, because at
//! these rates one or two seconds show whether packets are lost.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::DOMAIN;
use super::figures::Highest;
use super::peer::Peer;
use super::scenario::Scenario;

/// Condition of the search. There are no retransmissions, so each dropped packet is a failed call.
const RULE: &str = "success=99.99%";

/// Searches, starting at `start`.
///
/// # Errors
/// If no rate holds, or the search cannot run. The error includes its output.
pub fn highest(
    binary: &Path,
    folder: &Path,
    (scenario, peer): (Scenario, Peer),
    address: SocketAddr,
    (start, users): (f64, u32),
    is_quick: bool,
) -> Result<Highest, String> {
    let json = folder.join("search.json");
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]).arg(binary).args(["load", "search", "--to", &format!("udp:{address}"), "--quiet"]);
    command.args(["--workload", scenario.workload(), "--domain", DOMAIN, "--users", &users.to_string()]);
    command.args([
        "--sockets",
        "8",
        "--no-watch",
        "--segmentation",
        "--busy-poll",
        "--no-retransmissions",
        "--drain",
        "2s",
        "--settle",
        "1s",
    ]);
    command.args(["--rule", RULE, "--start", &format!("{start:.0}"), "--up", "15%", "--down", "15%"]);
    let length = if is_quick { ["1s", "20%", "1", "8"] } else { ["4s", "3%", "2", "20"] };
    command.args(["--time", length[0], "--precision", length[1], "--confirm", length[2], "--max-probes", length[3]]);
    command.arg("--json").arg(&json);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = std::fs::read(&json).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("the search left no report: {}", said.trim())
    })?;
    let report: Value = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", json.display()))?;
    let rate = report["found"].as_f64().ok_or_else(|| format!("no rate is sustained: {}", report["verdict"]))?;
    Ok(Highest { scenario, peer, rate, is_generators: report["too_high"]["is_generator"] == true })
}
