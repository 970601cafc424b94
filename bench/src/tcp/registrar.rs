//! Strowger in place of the echo server: registrations and calls with each connection lifetime, by `strowger load`.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::role::CLIENT_CORE;
use super::server_address;
use crate::server::Server;

/// Users of the clients, and connections that they share if opened in advance.
const USERS: u32 = 1_000;

/// Initial seconds of a run that are not measured.
const WARM_UP: u32 = 2;

/// Maximum connections if each request opens one that stays open: both ends' files, and other open files of a
/// process.
const MOST_OPENED: u32 = 18_000;

/// Name of a connection lifetime in the table, its transport, and `--connect` of the load generator.
type Lifetime = (&'static str, &'static str, Option<&'static str>);

/// All lifetimes.
const LIFETIMES: [Lifetime; 5] = [
    ("udp", "udp", None),
    ("persistent", "tcp", Some("persistent")),
    (OPENS, "tcp", Some(OPENS)),
    ("dialog", "tcp", Some("dialog")),
    ("transaction", "tcp", Some("transaction")),
];

/// The lifetime in which each request opens a connection that stays open.
const OPENS: &str = "persistent-with-open";

/// The tests: name, workload, rate per second, and the request and response whose time is reported.
const TESTS: [(&str, &str, u32, &str); 2] =
    [("REGISTER", "registration", 2_500, "REGISTER"), ("INVITE to 200", "proxy-200", 500, "INVITE")];

/// Runs both tests with each lifetime.
///
/// # Errors
/// If a program does not run.
pub fn measure(binary: &Path, seconds: u32) -> io::Result<String> {
    let mut text = String::from(
        "\n| test | a second | connections | p50 µs | p99 µs | server CPU µs each | switches each | not carried | carried/s |\n\
         |---|---:|---|---:|---:|---:|---:|---:|---:|\n",
    );
    for (name, workload, rate, method) in TESTS {
        for lifetime in LIFETIMES {
            let name_of = lifetime.0;
            // A registration has no dialog.
            if workload == "registration" && name_of == "dialog" {
                continue;
            }
            let report = one(binary, workload, rate, lifetime, seconds)?;
            let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
            let answers = report["answers"].as_array().map(Vec::as_slice).unwrap_or_default();
            let answer = answers.iter().find(|row| row["method"] == method && row["answer"] == "2xx");
            let time = |which: &str| answer.map_or(f64::NAN, |row| number(&row["us"][which]));
            eprintln!("  {name} over {name_of}: p50 {:.0} µs", time("p50"));
            let _ = writeln!(
                text,
                "| {name} | {rate} | {name_of} | {:.0} | {:.0} | {:.1} | {:.2} | {:.0} | {:.0} |",
                time("p50"),
                time("p99"),
                number(&report["server"]["cpu_us_per_call"]),
                number(&report["server"]["switches_per_call"]),
                number(&report["sent"]) - number(&report["carried"]),
                number(&report["carried_per_s"]),
            );
        }
    }
    Ok(text)
}

fn one(binary: &Path, workload: &str, rate: u32, lifetime: Lifetime, seconds: u32) -> io::Result<Value> {
    let (_, transport, connect) = lifetime;
    // If each request opens a connection, the run ends before the process runs out of files.
    let seconds = if connect == Some(OPENS) { seconds.min(MOST_OPENED / rate - WARM_UP) } else { seconds };
    let address = server_address();
    let config = format!(
        "[server]\nlisten = [\"udp:{address}\", \"tcp:{address}\"]\ndomains = [\"example.com\"]\ndata = \"data\"\nworkers = 1\n\
         [store]\nmode = \"memory\"\n[auth]\nrequire = []\n[tcp]\nconnections = 19000\nper_source = 19000\n[log]\nlevel = \"error\"\n"
    );
    let server = Server::start("tcp", &config, address);
    let pinned =
        Command::new("taskset").args(["-acp", "0", &server.pid().to_string()]).stdout(Stdio::null()).status()?;
    if !pinned.success() {
        return Err(io::Error::other("the server cannot be bound to a core"));
    }
    let json = tempfile::NamedTempFile::new()?;
    let mut command = Command::new("taskset");
    command.args(["-c", CLIENT_CORE]).arg(binary).args(["load", "run", "--to", &format!("{transport}:{address}")]);
    command.args(["--workload", workload, "--domain", "example.com", "--users", &USERS.to_string()]);
    command.args(["--rate", &rate.to_string(), "--arrivals", "uniform", "--warm-up", &format!("{WARM_UP}s")]);
    command.args(["--time", &format!("{seconds}s"), "--pid", &server.pid().to_string()]);
    if let Some(connect) = connect {
        command.args(["--connect", connect]);
        let connections = if connect == OPENS { rate * (WARM_UP + seconds) } else { USERS };
        if connect.starts_with("persistent") {
            command.args(["--connections", &connections.to_string()]);
        }
    }
    let output = command.arg("--json").arg(json.path()).stdin(Stdio::null()).output()?;
    let text = std::fs::read(json.path())?;
    serde_json::from_slice(&text).map_err(|_| io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
}
