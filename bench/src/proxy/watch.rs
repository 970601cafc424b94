//! Resource usage of a server's processes during a measurement. Cheap for the generator's core: it does not read
//! memory maps, which an exact count of shared memory would need.

use std::fs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_net::Clock;

use crate::quiet::stolen;
use crate::register::process::family;

/// Sampling interval.
const EVERY: Duration = Duration::from_millis(250);
/// The kernel's unit of processor time, in seconds.
const TICK: f64 = 0.01;

/// Usage of processes since their start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Time of the sample.
    pub at: Timestamp,
    /// Processor seconds in user mode.
    pub user: f64,
    /// Processor seconds in the kernel.
    pub system: f64,
    /// Voluntary and involuntary context switches.
    pub switches: f64,
    /// Private memory in bytes.
    pub private: f64,
    /// Shared memory in bytes, counted once.
    pub shared: f64,
    /// Datagrams dropped at the port.
    pub drops: f64,
    /// Steal of all cores, in ticks.
    pub stolen: u64,
}

impl Sample {
    fn of(processes: &[u32], port: u16, at: Timestamp) -> Self {
        let mut all = Self { at, drops: drops(port), stolen: stolen(), ..Self::default() };
        for pid in processes {
            // A process that has ended adds no usage.
            let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let stat = read("stat");
            let mut ticks = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
            let mut next = || ticks.next().and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0) * TICK;
            all.user += next();
            all.system += next();
            let status = read("status");
            all.private += 1024.0 * value(&status, "RssAnon:");
            all.shared = all.shared.max(1024.0 * value(&status, "RssShmem:"));
            for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let text = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
                all.switches += value(&text, "voluntary_ctxt_switches:") + value(&text, "nonvoluntary_ctxt_switches:");
            }
        }
        all
    }

    /// Returns the total memory in bytes.
    #[must_use]
    pub fn memory(&self) -> f64 {
        self.private + self.shared
    }

    /// Returns the usage between `earlier` and this sample, with the current memory.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user - earlier.user,
            system: self.system - earlier.system,
            switches: self.switches - earlier.switches,
            drops: self.drops - earlier.drops,
            stolen: self.stolen.saturating_sub(earlier.stolen),
            ..*self
        }
    }
}

/// Returns the first and the last of `samples` within a period.
#[must_use]
pub fn within(samples: &[Sample], from: Timestamp, time: Duration) -> Option<(Sample, Sample)> {
    let mut inside = samples.iter().filter(|sample| sample.at >= from && sample.at <= from + time);
    let first = inside.next()?;
    Some((*first, *inside.next_back()?))
}

/// A sampling thread.
#[derive(Debug)]
pub struct Watcher {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Watcher {
    /// Starts sampling a process, its children and the sockets of a port, with the clock of a run.
    #[must_use]
    pub fn start(pid: u32, port: u16, clock: Clock) -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            // All of them existed when the server first answered.
            let processes = family(pid);
            let mut samples = vec![Sample::of(&processes, port, clock.now())];
            loop {
                let is_over = stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
                samples.push(Sample::of(&processes, port, clock.now()));
                if is_over {
                    return samples;
                }
            }
        });
        Self { stop, thread }
    }

    /// Stops sampling and returns the samples.
    #[must_use]
    pub fn stop(self) -> Vec<Sample> {
        // The thread ends only on this message.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

/// Returns the datagrams dropped so far by sockets of this port, from /proc/net/udp.
fn drops(port: u16) -> f64 {
    let table = fs::read_to_string("/proc/net/udp").unwrap_or_default();
    let suffix = format!(":{port:04X}");
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows = rows.filter(|fields| fields.get(1).is_some_and(|local| local.ends_with(&suffix)));
    rows.filter_map(|fields| fields.last()?.parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_usage_is_sampled() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        let port = socket.local_addr().expect("bound").port();
        let before = Sample::of(&[std::process::id()], port, Timestamp::ZERO);
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        for _ in 0..20_000 {
            sender.send_to(&[0; 1_000], ("127.0.0.1", port)).expect("loopback");
        }
        let used = Sample::of(&[std::process::id()], port, Timestamp::from_millis(9)).since(&before);
        assert!(used.user + used.system > 0.0, "{used:?}");
        assert!(used.drops > 0.0, "nobody has read them: {used:?}");
        assert!(used.private > 1e5, "{used:?}");
    }

    #[test]
    fn an_interval_has_its_samples() {
        let samples: Vec<Sample> = (0..10)
            .map(|second| Sample {
                at: Timestamp::from_millis(1_000 * second),
                user: second as f64,
                ..Sample::default()
            })
            .collect();
        let (first, last) = within(&samples, Timestamp::from_millis(1_500), Duration::from_secs(5)).expect("some");
        assert_eq!(last.since(&first).user, 4.0);
        assert!(within(&samples, Timestamp::from_millis(8_500), Duration::from_secs(9)).is_none(), "one is no stretch");
    }
}
