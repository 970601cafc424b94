//! The targets: `strowger load answer`, one process for all targets of the same speed. Each address is a separate
//! server with its own queue.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::contender::Layout;
use super::{OTHERS, target};
use crate::register::process::signal;

/// Maximum time for a target to start listening.
const PATIENCE: Duration = Duration::from_secs(20);

/// Targets served by one process.
#[derive(Clone, Debug)]
pub struct Group {
    /// Addresses of the targets.
    pub addresses: Vec<SocketAddr>,
    /// Service time per request; `None` means zero.
    pub service_time: Option<String>,
}

/// Returns the groups of a layout: the fast targets, and the slow ones if there are any.
#[must_use]
pub fn groups(layout: Layout) -> Vec<Group> {
    let of = |is_slow: bool| Group {
        addresses: (0..layout.targets).filter(|index| layout.is_slow(*index) == is_slow).map(target).collect(),
        service_time: Some(layout.service_time(is_slow)),
    };
    [of(false), of(true)].into_iter().filter(|group| !group.addresses.is_empty()).collect()
}

/// A process that answers as one group of targets. Dropping it kills it.
#[derive(Debug)]
pub struct AnsweringProcess {
    child: Child,
}

impl AnsweringProcess {
    /// Starts the process and waits until it listens. `seed` seeds its service times.
    ///
    /// # Errors
    /// If it does not listen. The error includes its output.
    pub fn start(binary: &Path, folder: &Path, group: &Group, seed: u64) -> Result<Self, String> {
        let first = group.addresses.first().ok_or("a group without targets")?;
        let log = folder.join(format!("answering-{}", first.ip()));
        let mut command = Command::new("taskset");
        command.args(["-c", OTHERS]).arg(binary).args(["load", "answer", "--quiet", "--seed", &seed.to_string()]);
        for address in &group.addresses {
            command.args(["--listen", &format!("udp:{address}")]);
        }
        if let Some(time) = &group.service_time {
            command.args(["--service-time", time]);
        }
        let file = File::create(&log).map_err(|error| error.to_string())?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn();
        let mut answering = Self { child: child.map_err(|error| format!("{command:?}: {error}"))? };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = fs::read_to_string(&log).unwrap_or_default();
            if said.contains("answering at") {
                return Ok(answering);
            }
            let is_gone = answering.child.try_wait().map_err(|error| error.to_string())?.is_some();
            if is_gone || Instant::now() > deadline {
                return Err(format!("the targets do not answer: {}", said.trim()));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a signal to the process.
    pub fn signal(&self, which: Signal) {
        signal(self.child.id(), which);
    }

    /// Returns its process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for AnsweringProcess {
    fn drop(&mut self) {
        // Both fail only if the process has ended already. Killing also ends a stopped process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts all processes of a layout.
///
/// # Errors
/// As [`AnsweringProcess::start`].
pub fn start(binary: &Path, folder: &Path, layout: Layout, seed: u64) -> Result<Vec<AnsweringProcess>, String> {
    groups(layout).iter().map(|group| AnsweringProcess::start(binary, folder, group, seed)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::contender::TargetSpeeds;
    use super::*;

    #[test]
    fn slow_targets_form_their_own_group() {
        assert_eq!(groups(Layout::equal(10)).iter().map(|group| group.addresses.len()).collect::<Vec<_>>(), [10]);
        let unequal = groups(Layout { speeds: TargetSpeeds::Unequal, ..Layout::equal(8) });
        assert_eq!(unequal.iter().map(|group| group.addresses.len()).collect::<Vec<_>>(), [4, 4]);
        assert_ne!(unequal[0].service_time, unequal[1].service_time);
        assert_eq!(unequal[1].addresses[0].to_string(), "127.0.1.2:5080");
    }
}
