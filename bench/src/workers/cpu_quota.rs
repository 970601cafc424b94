//! Threads limited to a share of a core by version 1 control groups.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Mount point of the CPU controller.
const CONTROLLER: &str = "/sys/fs/cgroup/cpu";

/// Quota period in microseconds: a thread that has used up its quota waits until the next period.
const PERIOD: u32 = 10_000;

/// Control groups with one thread each. Dropping this removes them; threads that are still running become unlimited.
#[derive(Debug)]
pub struct ThreadGroups {
    groups: Vec<PathBuf>,
}

impl ThreadGroups {
    /// Limits each thread of a process whose name begins with `prefix` to `percent` of a core.
    ///
    /// # Errors
    /// If there is no such controller, this user may not use it, or the process has no such threads.
    pub fn hold(pid: u32, prefix: &str, percent: u32) -> io::Result<Self> {
        let mut cages = Self { groups: Vec::new() };
        for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
            let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            if !name.starts_with(prefix) {
                continue;
            }
            let group = Path::new(CONTROLLER).join(format!("strowger-bench-{pid}-{}", name.trim()));
            // An existing group was left over from a killed program.
            match fs::create_dir(&group) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            cages.groups.push(group.clone());
            fs::write(group.join("cpu.cfs_period_us"), PERIOD.to_string())?;
            fs::write(group.join("cpu.cfs_quota_us"), (PERIOD * percent / 100).to_string())?;
            // Within its quota, it takes precedence over everything else on the machine.
            fs::write(group.join("cpu.shares"), "262144")?;
            fs::write(group.join("tasks"), thread.file_name().to_string_lossy().as_bytes())?;
        }
        if cages.groups.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("process {pid} has no thread {prefix}…")));
        }
        Ok(cages)
    }

    /// Returns the share of periods in which the threads used up their quota, in percent. Below 100, something else
    /// was the bottleneck.
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

    /// Returns the number of limited threads.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns whether no thread is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

impl Drop for ThreadGroups {
    fn drop(&mut self) {
        for group in &self.groups {
            // A thread that has just ended stays in its group briefly.
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
