//! Where a balancer spends its instructions.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::contender::{Contender, ExtraConfig, Layout};
use super::{BALANCER, DOMAIN, ITS, cluster, peer};
use crate::callgrind::{self, Counts, Parts};
use crate::programs;

/// T1 of Strowger in milliseconds. Transactions live 64 times as long and take the same steps as with any T1.
const T1_MS: u32 = 200;
/// Number of concurrent calls.
const AT_ONCE: &str = "16";
/// Number of targets.
const TARGETS: u16 = 8;

/// Counts the instructions of a balancer.
///
/// # Errors
/// If valgrind is not installed, or a run fails.
pub fn count(binary: &Path, contender: Contender, counts: Counts) -> Result<Parts, String> {
    callgrind::count(counts, |calls| total(binary, contender, calls, counts.lasts))
}

fn total(binary: &Path, contender: Contender, calls: u32, lasts: Duration) -> Result<Parts, String> {
    let folder = tempfile::Builder::new().prefix("strowger-callgrind-").tempdir().map_err(|error| error.to_string())?;
    let layout = Layout::equal(TARGETS);
    let group = cluster::Group { addresses: (0..TARGETS).map(super::target).collect(), service_time: None };
    let _targets = cluster::AnsweringProcess::start(binary, folder.path(), &group, 1)?;
    let counting = callgrind::before(folder.path());
    let before: Vec<&str> = ["taskset", "-c", ITS].into_iter().chain(counting.iter().map(String::as_str)).collect();
    let more = ExtraConfig { t1_ms: T1_MS, ..ExtraConfig::default() };
    let mut server = peer::start(contender, (binary, folder.path()), layout, &more, &before)?;
    let begun = Instant::now();
    let workload = ["--callee", "remote", "--domain", DOMAIN, "--users", "100"];
    programs::load(binary, BALANCER, &workload, AT_ONCE, calls)?;
    server.check()?;
    thread::sleep(lasts.saturating_sub(begun.elapsed()));
    server.stop()?;
    callgrind::parts(folder.path())
}
