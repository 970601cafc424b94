//! How the kernel schedules a thread: policy, nice value, slice.

use std::fmt;
use std::io;
use std::str::FromStr;

use crate::sys::scheduling::{attributes, set_attributes};

/// Scheduling policy of a thread; see sched(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `SCHED_OTHER`, the default.
    Other,
    /// `SCHED_BATCH`: as the default, but a thread that wakes up does not interrupt another one.
    Batch,
    /// `SCHED_IDLE`: only when nothing else runs.
    Idle,
    /// `SCHED_FIFO`: before all others, until it sleeps.
    Fifo,
    /// `SCHED_RR`: as `SCHED_FIFO`, but threads of one priority take turns.
    RoundRobin,
}

impl Policy {
    const ALL: [Self; 5] = [Self::Other, Self::Batch, Self::Idle, Self::Fifo, Self::RoundRobin];

    /// Returns its name as systemd and `chrt` write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Batch => "batch",
            Self::Idle => "idle",
            Self::Fifo => "fifo",
            Self::RoundRobin => "rr",
        }
    }

    /// Returns whether threads of this policy run before all others.
    #[must_use]
    pub const fn is_real_time(self) -> bool {
        matches!(self, Self::Fifo | Self::RoundRobin)
    }

    const fn number(self) -> i32 {
        match self {
            Self::Other => libc::SCHED_OTHER,
            Self::Batch => libc::SCHED_BATCH,
            Self::Idle => libc::SCHED_IDLE,
            Self::Fifo => libc::SCHED_FIFO,
            Self::RoundRobin => libc::SCHED_RR,
        }
    }
}

/// Scheduling of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// Policy.
    pub policy: Policy,
    /// Nice value, -20 (first) to 19; 0 for real-time policies, under which the kernel does not tell it.
    pub nice: i32,
    /// Real-time priority, 1 to 99; 0 for other policies.
    pub priority: u32,
    /// Slice in nanoseconds, 0 for the default one. Kernels before 6.12 have no slices of threads and ignore it, as do
    /// real-time policies.
    pub slice_ns: u64,
    /// Whether children start with the default policy and nice value.
    pub is_reset_on_fork: bool,
}

impl Scheduling {
    /// Returns the scheduling of a thread; 0 is the calling one.
    ///
    /// # Errors
    /// When there is no such thread, or its policy is not one of [`Policy`].
    pub fn of(thread: u32) -> io::Result<Self> {
        let found = attributes(number(thread)?)?;
        let is_named = |policy: &Policy| u32::try_from(policy.number()).is_ok_and(|it| it == found.sched_policy);
        let policy = Policy::ALL.into_iter().find(is_named).ok_or(io::ErrorKind::Unsupported)?;
        let (priority, slice_ns) =
            if policy.is_real_time() { (found.sched_priority, 0) } else { (0, found.sched_runtime) };
        let is_reset_on_fork = found.sched_flags & RESET_ON_FORK != 0;
        Ok(Self { policy, nice: found.sched_nice, priority, slice_ns, is_reset_on_fork })
    }

    /// Sets the scheduling of a thread; 0 is the calling one.
    ///
    /// # Errors
    /// When there is no such thread, or the kernel refuses: a lower nice value and real-time policies take privilege.
    pub fn set(&self, thread: u32) -> io::Result<()> {
        let attributes = libc::sched_attr {
            size: size_of::<libc::sched_attr>() as libc::c_uint,
            sched_policy: u32::try_from(self.policy.number()).unwrap_or(0),
            sched_flags: if self.is_reset_on_fork { RESET_ON_FORK } else { 0 },
            sched_nice: self.nice,
            sched_priority: self.priority,
            sched_runtime: if self.policy.is_real_time() { 0 } else { self.slice_ns },
            sched_deadline: 0,
            sched_period: 0,
        };
        set_attributes(number(thread)?, &attributes)
    }
}

const RESET_ON_FORK: u64 = libc::SCHED_FLAG_RESET_ON_FORK as u64;

fn number(thread: u32) -> io::Result<i32> {
    i32::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput.into())
}

impl fmt::Display for Scheduling {
    /// Writes `other nice -10 priority 0 slice 100000`, which [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, nice, priority, slice_ns, is_reset_on_fork } = self;
        write!(f, "{} nice {nice} priority {priority} slice {slice_ns}", policy.name())?;
        if *is_reset_on_fork { f.write_str(" reset-on-fork") } else { Ok(()) }
    }
}

impl FromStr for Scheduling {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut words, wrong) = (text.split_whitespace(), || format!("{text:?} describes no scheduling"));
        let policy = words.next().and_then(|name| Policy::ALL.into_iter().find(|policy| policy.name() == name));
        let mut found =
            Self { policy: policy.ok_or_else(wrong)?, nice: 0, priority: 0, slice_ns: 0, is_reset_on_fork: false };
        while let Some(word) = words.next() {
            if word == "reset-on-fork" {
                found.is_reset_on_fork = true;
                continue;
            }
            let value = words.next().ok_or_else(wrong)?;
            match word {
                "nice" => found.nice = value.parse().map_err(|_| wrong())?,
                "priority" => found.priority = value.parse().map_err(|_| wrong())?,
                "slice" => found.slice_ns = value.parse().map_err(|_| wrong())?,
                _ => return Err(wrong()),
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_changes_its_own_scheduling() {
        let thread = std::thread::spawn(|| {
            let usual = Scheduling::of(0).expect("its own");
            let wanted = Scheduling { policy: Policy::Batch, nice: usual.nice.max(5), slice_ns: 300_000, ..usual };
            wanted.set(0).expect("no privilege is needed");
            let got = Scheduling::of(0).expect("its own");
            assert_eq!((got.policy, got.nice, got.priority), (Policy::Batch, wanted.nice, 0));
            // Older kernels have no slices.
            assert!([0, 300_000].contains(&got.slice_ns), "{got:?}");
        });
        thread.join().expect("it does not panic");
        assert!(Scheduling::of(u32::MAX).is_err());
    }

    #[test]
    fn scheduling_is_written_and_read() {
        for text in ["other nice 0 priority 0 slice 0", "rr nice -3 priority 50 slice 0 reset-on-fork"] {
            assert_eq!(text.parse::<Scheduling>().expect(text).to_string(), text);
        }
        for text in ["", "deadline", "other nice", "other nice x", "other colour 1"] {
            assert!(text.parse::<Scheduling>().is_err(), "{text}");
        }
    }
}
