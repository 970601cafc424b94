//! Where a whole server spends its instructions, per scenario.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::DOMAIN;
use super::peer::{Environment, Peer};
use super::scenario::Scenario;
use crate::callgrind::{self, Counts, Parts};
use crate::programs;

/// Users per side.
const USERS: u32 = 100;
/// Number of concurrent calls.
const AT_ONCE: &str = "16";
/// T1 of the server in milliseconds. Transactions live 64 times as long and take the same steps as with any T1.
const T1_MS: u32 = 200;

/// Counts the instructions of a server. Two servers with different addresses may be counted simultaneously.
///
/// # Errors
/// If valgrind is not installed, or a run fails.
pub fn count(
    binary: &Path,
    (scenario, peer): (Scenario, Peer),
    address: SocketAddr,
    counts: Counts,
) -> Result<Parts, String> {
    callgrind::count(counts, |units| total(binary, (scenario, peer), address, units, counts.lasts))
}

fn total(
    binary: &Path,
    (scenario, peer): (Scenario, Peer),
    address: SocketAddr,
    count: u32,
    lasts: Duration,
) -> Result<Parts, String> {
    let folder = tempfile::Builder::new().prefix("strowger-callgrind-").tempdir().map_err(|error| error.to_string())?;
    let before = callgrind::before(folder.path());
    let before = before.each_ref().map(String::as_str);
    let place = Environment {
        binary,
        folder: folder.path(),
        scenario,
        address,
        users: 2 * USERS,
        memory_mib: 512,
        t1_ms: T1_MS,
    };
    let mut server = peer.start(&before, &place)?;
    let begun = Instant::now();
    let workload = ["--workload", scenario.workload(), "--domain", DOMAIN, "--users", &USERS.to_string()];
    programs::load(binary, address, &workload, AT_ONCE, count)?;
    server.check()?;
    thread::sleep(lasts.saturating_sub(begun.elapsed()));
    server.stop()?;
    callgrind::parts(folder.path())
}
