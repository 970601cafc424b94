//! A CPU quota for all processes of a server, set through a version 1 control group.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Mount point of the CPU controller.
const CONTROLLER: &str = "/sys/fs/cgroup/cpu";
/// Name prefix of the groups created here.
const PREFIX: &str = "strowger-quota-";
/// CPU shares of a group: within its quota, a server takes precedence over everything else on its core.
const SHARES: &str = "262144";

/// Share of a core: `quota_us` of every `period_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Processor time per period in microseconds.
    pub quota_us: u32,
    /// Length of a period in microseconds.
    pub period_us: u32,
}

impl Quota {
    /// Returns the share of a core in percent.
    #[must_use]
    pub fn percent(self) -> f64 {
        100.0 * f64::from(self.quota_us) / f64::from(self.period_us)
    }
}

/// How often a group used up its quota.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throttling {
    periods: f64,
    throttled: f64,
}

impl Throttling {
    /// Returns the share of periods since `earlier` in which the quota was used up, in percent.
    #[must_use]
    pub fn percent_since(self, earlier: Self) -> f64 {
        100.0 * (self.throttled - earlier.throttled) / (self.periods - earlier.periods).max(1.0)
    }
}

/// A control group. Dropping it removes it; its processes must have ended before.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// Creates an empty group without a limit.
    ///
    /// # Errors
    /// If there is no such controller, or this user may not use it.
    pub fn new(name: &str) -> io::Result<Self> {
        let group = Path::new(CONTROLLER).join(format!("{PREFIX}{name}"));
        match fs::create_dir(&group) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let group = Self(group);
        fs::write(group.0.join("cpu.shares"), SHARES)?;
        Ok(group)
    }

    /// Returns a command prefix that puts a program and its children into the group.
    #[must_use]
    pub fn enter(&self) -> Vec<String> {
        let script = "echo $$ > \"$0\" && exec \"$@\"";
        ["sh", "-c", script].map(str::to_owned).into_iter().chain([self.file("cgroup.procs")]).collect()
    }

    /// Limits the group's processes to `quota` from this point.
    ///
    /// # Errors
    /// If the kernel rejects the values.
    pub fn limit(&self, quota: Quota) -> io::Result<()> {
        fs::write(self.0.join("cpu.cfs_period_us"), quota.period_us.to_string())?;
        fs::write(self.0.join("cpu.cfs_quota_us"), quota.quota_us.to_string())
    }

    /// Returns how often the group has used up its quota so far.
    #[must_use]
    pub fn throttling(&self) -> Throttling {
        let text = fs::read_to_string(self.0.join("cpu.stat")).unwrap_or_default();
        let value = |name: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
            found.unwrap_or(0.0)
        };
        Throttling { periods: value("nr_periods "), throttled: value("nr_throttled ") }
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has just ended stays in its group briefly.
        for _ in 0..200 {
            match fs::remove_dir(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(Duration::from_millis(10)),
                _ => break,
            }
        }
    }
}

/// Removes groups left over from killed programs, whose processes have ended with them. Groups with processes stay.
pub fn remove_leftovers() {
    for entry in fs::read_dir(CONTROLLER).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            // Fails if the group is in use.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttling_is_a_share_of_elapsed_periods() {
        let (earlier, later) =
            (Throttling { periods: 100.0, throttled: 50.0 }, Throttling { periods: 200.0, throttled: 140.0 });
        assert!((later.percent_since(earlier) - 90.0).abs() < 1e-9);
        assert_eq!(earlier.percent_since(earlier), 0.0, "no period has passed");
        assert!((Quota { quota_us: 2_000, period_us: 25_000 }.percent() - 8.0).abs() < 1e-9);
    }
}
