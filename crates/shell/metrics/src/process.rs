//! What the system knows of this process, under the names that all exporters use.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Figures of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// CPU time, in seconds.
    pub cpu_s: f64,
    /// Memory in use, in bytes; none if the system does not say.
    pub resident_bytes: Option<u64>,
    /// Open files and sockets; none if the system does not say cheaply.
    pub open_files: Option<u64>,
    /// Limit of open files; none if there is none.
    pub max_files: Option<u64>,
    /// Start, in seconds since 1970.
    pub started_s: f64,
}

impl Process {
    /// Reads the figures of this process, which was started `uptime` ago.
    #[must_use]
    pub fn read(uptime: Duration) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Self {
            cpu_s: Duration::try_from(cpu).unwrap_or_default().as_secs_f64(),
            resident_bytes: resident_bytes(),
            open_files: open_files(),
            max_files: getrlimit(Resource::Nofile).current,
            started_s: now.saturating_sub(uptime).as_secs_f64(),
        }
    }
}

/// Reads the second field of `/proc/self/statm`, a number of pages.
fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    pages.checked_mul(u64::try_from(rustix::param::page_size()).ok()?)
}

/// Returns the number of entries of `/proc/self/fd`, which Linux 6.2 reports as the folder's size. Counting them would
/// take milliseconds with 100,000 connections.
fn open_files() -> Option<u64> {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self/fd").ok().map(|folder| folder.size()).filter(|size| *size > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_those_of_this_process() {
        let uptime = Duration::from_secs(3_600);
        let found = Process::read(uptime);
        assert!(found.cpu_s > 0.0 && found.cpu_s < 1e6, "{found:?}");
        assert!(found.resident_bytes.is_some_and(|bytes| bytes > 100_000), "{found:?}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
        assert!((now - 3_600.0 - found.started_s).abs() < 60.0, "{found:?}");
    }
}
