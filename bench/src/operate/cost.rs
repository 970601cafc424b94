//! Processor time of a server's threads, from the kernel, and what scrapes take of it.

use std::fs;
use std::ops::{Add, Sub};
use std::path::Path;
use std::time::Duration;

use super::scraper::Scrapes;

/// Names of the threads that process messages begin so.
const WORKERS: &str = "worker-";

/// Processor time since the start of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessorTime {
    /// Of the threads that process messages.
    pub(crate) workers: Duration,
    /// Of the others.
    pub(crate) others: Duration,
}

/// Cost of a scrape without calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Processor time of the server.
    pub(crate) processor: ProcessorTime,
    /// Processor time for one that repeats the last one's text.
    pub(crate) repeated: ProcessorTime,
    /// The scrapes.
    pub(crate) scrapes: Scrapes,
}

impl ProcessorTime {
    /// Returns that of a running process.
    pub(crate) fn of(pid: u32) -> Self {
        let mut all = Self::default();
        for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let (is_worker, time) = of_thread(&thread.path());
            *(if is_worker { &mut all.workers } else { &mut all.others }) += time;
        }
        all
    }

    /// Returns an equal share.
    pub(crate) fn share(self, number: u32) -> Self {
        Self { workers: self.workers / number, others: self.others / number }
    }
}

impl Add for ProcessorTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { workers: self.workers + other.workers, others: self.others + other.others }
    }
}

impl Sub for ProcessorTime {
    type Output = Self;

    /// A thread that has ended takes its time with it, so a difference may not be below zero.
    fn sub(self, earlier: Self) -> Self {
        Self {
            workers: self.workers.saturating_sub(earlier.workers),
            others: self.others.saturating_sub(earlier.others),
        }
    }
}

/// Returns whether a thread is a worker, and its processor time.
fn of_thread(folder: &Path) -> (bool, Duration) {
    // A thread that has just ended has none.
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let nanos = read("schedstat").split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
    (read("comm").starts_with(WORKERS), Duration::from_nanos(nanos))
}
