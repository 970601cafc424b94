//! Threads that may use a part of a core only, by control groups of the kernel's first version.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Where the kernel keeps the groups of its processor controller.
const CONTROLLER: &str = "/sys/fs/cgroup/cpu";

/// How finely time is cut, in microseconds: a thread that has used its part waits until the next one begins.
const PERIOD: u32 = 10_000;

/// Groups, each with one thread. When this is dropped they go; the threads must have ended by then, or are free again.
#[derive(Debug)]
pub struct ThreadGroups {
    groups: Vec<PathBuf>,
}

impl ThreadGroups {
    /// Holds each of the threads of a process whose names begin with `prefix` to `percent` of a core.
    ///
    /// # Errors
    /// When there is no such controller, this user may not use it, or the process has no such threads.
    pub fn hold(pid: u32, prefix: &str, percent: u32) -> io::Result<Self> {
        let mut cages = Self { groups: Vec::new() };
        for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
            let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            if !name.starts_with(prefix) {
                continue;
            }
            let group = Path::new(CONTROLLER).join(format!("strowger-bench-{pid}-{}", name.trim()));
            // One that is there was left by a program that was killed.
            match fs::create_dir(&group) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            cages.groups.push(group.clone());
            fs::write(group.join("cpu.cfs_period_us"), PERIOD.to_string())?;
            fs::write(group.join("cpu.cfs_quota_us"), (PERIOD * percent / 100).to_string())?;
            // Up to its part it comes before everything else on the machine.
            fs::write(group.join("cpu.shares"), "262144")?;
            fs::write(group.join("tasks"), thread.file_name().to_string_lossy().as_bytes())?;
        }
        if cages.groups.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("process {pid} has no thread {prefix}…")));
        }
        Ok(cages)
    }

    /// The share of time's periods in which the threads had used all of their part, in percent: below 100, something else was
    /// the limit.
    #[must_use]
    pub fn throttled(&self) -> f64 {
        let (mut periods, mut throttled) = (0.0, 0.0);
        for group in &self.groups {
            let text = fs::read_to_string(group.join("cpu.stat")).unwrap_or_default();
            for line in text.lines() {
                let number = |value: &str| value.trim().parse::<f64>().unwrap_or(0.0);
                match line.split_once(' ') {
                    Some(("nr_periods", value)) => periods += number(value),
                    Some(("nr_throttled", value)) => throttled += number(value),
                    _ => {}
                }
            }
        }
        100.0 * throttled / periods
    }

    /// How many threads are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

impl Drop for ThreadGroups {
    fn drop(&mut self) {
        for group in &self.groups {
            // A thread that has just ended is in its group for a moment longer.
            for _ in 0..100 {
                match fs::remove_dir(group) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        thread::sleep(Duration::from_millis(10));
                    }
                    _ => break,
                }
            }
        }
    }
}
