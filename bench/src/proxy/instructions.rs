//! Instructions in user mode of a whole server for each unit of work, by callgrind: the difference between two runs of unlike
//! length, so that what a start and an end cost is not in it. Both runs last equally long, so that what is done by the clock
//! is not in it either; and longer than transactions live, so that their end is.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::DOMAIN;
use super::figures::Single;
use super::peer::{Peer, Place};
use super::scenario::Scenario;
use crate::callgrind;

/// Users on each side.
const USERS: u32 = 100;
/// Going on at once.
const AT_ONCE: &str = "16";
/// T1 of the server, in milliseconds; a transaction lives 64 times as long. The steps that it takes are the same ones.
const T1_MS: u32 = 200;

/// How much is counted.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Units of work in the short run.
    pub few: u32,
    /// And in the long one.
    pub many: u32,
    /// How long each run lasts, from the server's first answer.
    pub lasts: Duration,
}

impl Counts {
    /// Enough that a hundredth shows.
    pub const USUAL: Self = Self { few: 500, many: 2_500, lasts: Duration::from_secs(20) };
    /// To see that it works. Transactions do not end in it.
    pub const QUICK: Self = Self { few: 50, many: 150, lasts: Duration::from_secs(1) };
}

/// Counts for a server. Two of different addresses may be counted at once.
///
/// # Errors
/// When there is no valgrind, or a run fails.
pub fn count(
    binary: &Path,
    (scenario, peer): (Scenario, Peer),
    address: SocketAddr,
    counts: Counts,
) -> Result<Single, String> {
    let few = total(binary, (scenario, peer), address, counts.few, counts.lasts)?;
    let many = total(binary, (scenario, peer), address, counts.many, counts.lasts)?;
    Ok(Single { scenario, peer, value: (many - few) / f64::from(counts.many - counts.few) })
}

fn total(
    binary: &Path,
    (scenario, peer): (Scenario, Peer),
    address: SocketAddr,
    count: u32,
    lasts: Duration,
) -> Result<f64, String> {
    let folder = tempfile::Builder::new().prefix("strowger-callgrind-").tempdir().map_err(|error| error.to_string())?;
    let before = callgrind::before(folder.path());
    let before = before.each_ref().map(String::as_str);
    let place =
        Place { binary, folder: folder.path(), scenario, address, users: 2 * USERS, memory_mib: 512, t1_ms: T1_MS };
    let mut server = peer.start(&before, &place)?;
    let begun = Instant::now();
    let mut load = Command::new(binary);
    load.args(["load", "run", "--to", &format!("udp:{address}"), "--quiet", "--no-watch", "--no-retransmissions"]);
    load.args(["--workload", scenario.workload(), "--domain", DOMAIN, "--users", &USERS.to_string()]);
    load.args(["--outstanding", AT_ONCE, "-m", &count.to_string()]);
    let output = load.stdin(Stdio::null()).output().map_err(|error| format!("{load:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("the load failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    server.check()?;
    thread::sleep(lasts.saturating_sub(begun.elapsed()));
    server.stop()?;
    let totals: Vec<f64> = callgrind::files(folder.path())?.iter().filter_map(|file| counted(file)).collect();
    if totals.is_empty() {
        return Err("callgrind left no counts".to_owned());
    }
    Ok(totals.iter().sum())
}

/// All instructions of a process, from the end of its file.
fn counted(text: &str) -> Option<f64> {
    let line = text.lines().rev().find_map(|line| line.strip_prefix("totals: "))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_the_last_line_of_its_kind() {
        assert_eq!(counted("events: Ir\nsummary: 12\n\nfn=(1)\n0 5\ntotals: 4711\n"), Some(4_711.0));
        assert_eq!(counted("events: Ir\n"), None);
    }
}
