//! A share of a core for all processes of a server, by a control group of the kernel's first version.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where the kernel keeps the groups of its processor controller.
const CONTROLLER: &str = "/sys/fs/cgroup/cpu";
/// What the names of our groups begin with.
const PREFIX: &str = "strowger-quota-";
/// Up to its quota a server comes before everything else on its core.
const SHARES: &str = "262144";

/// How much of a core: `quota_us` of every `period_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Microseconds of processor time in a period.
    pub quota_us: u32,
    /// Microseconds of a period.
    pub period_us: u32,
}

impl Quota {
    /// The share of a core, in percent.
    #[must_use]
    pub fn percent(self) -> f64 {
        100.0 * f64::from(self.quota_us) / f64::from(self.period_us)
    }
}

/// How often a group had used all of its quota.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throttling {
    periods: f64,
    throttled: f64,
}

impl Throttling {
    /// The share of periods since `earlier` in which all was used, in percent.
    #[must_use]
    pub fn percent_since(self, earlier: Self) -> f64 {
        100.0 * (self.throttled - earlier.throttled) / (self.periods - earlier.periods).max(1.0)
    }
}

/// A control group. Dropping it removes it; its processes must have ended by then.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// Makes an empty group without a limit.
    ///
    /// # Errors
    /// When there is no such controller, or this user may not use it.
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

    /// A command prefix that puts a program and all of its children into the group.
    #[must_use]
    pub fn enter(&self) -> Vec<String> {
        let script = "echo $$ > \"$0\" && exec \"$@\"";
        ["sh", "-c", script].map(str::to_owned).into_iter().chain([self.file("cgroup.procs")]).collect()
    }

    /// Holds its processes to `quota` from now on.
    ///
    /// # Errors
    /// When the kernel refuses these numbers.
    pub fn limit(&self, quota: Quota) -> io::Result<()> {
        fs::write(self.0.join("cpu.cfs_period_us"), quota.period_us.to_string())?;
        fs::write(self.0.join("cpu.cfs_quota_us"), quota.quota_us.to_string())
    }

    /// How often it has used all of its quota so far.
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
        // A process that has just ended is in its group for a moment longer.
        for _ in 0..200 {
            match fs::remove_dir(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(Duration::from_millis(10)),
                _ => break,
            }
        }
    }
}

/// Removes the groups of programs that were killed: their processes have ended with them, and a group that has some is left alone.
pub fn remove_leftovers() {
    for entry in fs::read_dir(CONTROLLER).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            // It fails where the group is in use.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttling_is_a_share_of_the_periods_between() {
        let (earlier, later) =
            (Throttling { periods: 100.0, throttled: 50.0 }, Throttling { periods: 200.0, throttled: 140.0 });
        assert!((later.percent_since(earlier) - 90.0).abs() < 1e-9);
        assert_eq!(earlier.percent_since(earlier), 0.0, "no period has passed");
        assert!((Quota { quota_us: 2_000, period_us: 25_000 }.percent() - 8.0).abs() < 1e-9);
    }
}
