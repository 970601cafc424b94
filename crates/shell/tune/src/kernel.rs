//! What is asked of the kernel by system calls instead of files: scheduling, cores and limits of processes, and the
//! buffers of sockets.

use std::fmt::Debug;
use std::io;

use rustix::process::{Pid, Resource, Rlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use strowger_net::Scheduling;

use crate::cores::Cores;
use crate::sockets::{SocketBuffer, udp_buffers};

/// Limit on open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimit {
    /// The limit in force; `None` for no limit.
    pub soft: Option<u64>,
    /// The value up to which the process may raise it.
    pub hard: Option<u64>,
}

/// System calls on processes and sockets. Tests have their own.
pub trait Kernel: Debug {
    /// Returns the scheduling of a thread.
    ///
    /// # Errors
    /// When the thread has ended or the kernel refuses; so for all methods.
    fn scheduling(&self, thread: u32) -> io::Result<Scheduling>;

    /// Sets the scheduling of a thread.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn set_scheduling(&self, thread: u32, scheduling: &Scheduling) -> io::Result<()>;

    /// Returns the cores on which a thread may run.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn cores(&self, thread: u32) -> io::Result<Cores>;

    /// Sets the cores on which a thread may run.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn set_cores(&self, thread: u32, cores: &Cores) -> io::Result<()>;

    /// Returns the limit on open files of a process.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn file_limit(&self, process: u32) -> io::Result<FileLimit>;

    /// Sets the limit on open files of a process.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn set_file_limit(&self, process: u32, limit: FileLimit) -> io::Result<()>;

    /// Returns the receive buffers of the UDP sockets of this network namespace.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn udp_buffers(&self) -> io::Result<Vec<SocketBuffer>>;
}

/// The running kernel.
#[derive(Clone, Copy, Debug)]
pub struct RunningKernel;

fn pid(number: u32) -> io::Result<Pid> {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

impl Kernel for RunningKernel {
    fn scheduling(&self, thread: u32) -> io::Result<Scheduling> {
        let found = Scheduling::of(thread)?;
        // The kernel shows the default slice as a number, but a thread that was given this number would keep it when
        // the default changes. This thread has the default one.
        let usual = Scheduling::of(0)?;
        let is_usual = !usual.policy.is_real_time() && found.slice_ns == usual.slice_ns;
        Ok(Scheduling { slice_ns: if is_usual { 0 } else { found.slice_ns }, ..found })
    }

    fn set_scheduling(&self, thread: u32, scheduling: &Scheduling) -> io::Result<()> {
        scheduling.set(thread)
    }

    fn cores(&self, thread: u32) -> io::Result<Cores> {
        let set = sched_getaffinity(Some(pid(thread)?))?;
        Ok(Cores::new((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core))))
    }

    fn set_cores(&self, thread: u32, cores: &Cores) -> io::Result<()> {
        let mut set = CpuSet::new();
        cores.iter().filter(|core| *core < CpuSet::MAX_CPU).for_each(|core| set.set(core));
        Ok(sched_setaffinity(Some(pid(thread)?), &set)?)
    }

    fn file_limit(&self, process: u32) -> io::Result<FileLimit> {
        // prlimit returns the former limit only when it sets one, so the file is the way that changes nothing.
        let text = std::fs::read_to_string(format!("/proc/{process}/limits"))?;
        parse_file_limit(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn set_file_limit(&self, process: u32, limit: FileLimit) -> io::Result<()> {
        let limit = Rlimit { current: limit.soft, maximum: limit.hard };
        rustix::process::prlimit(Some(pid(process)?), Resource::Nofile, limit)?;
        Ok(())
    }

    fn udp_buffers(&self) -> io::Result<Vec<SocketBuffer>> {
        udp_buffers()
    }
}

/// A kernel that is not there: files of another machine are read, so nothing is known of its processes.
#[derive(Clone, Copy, Debug)]
pub struct NoKernel;

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Kernel for NoKernel {
    fn scheduling(&self, _: u32) -> io::Result<Scheduling> {
        unsupported()
    }

    fn set_scheduling(&self, _: u32, _: &Scheduling) -> io::Result<()> {
        unsupported()
    }

    fn cores(&self, _: u32) -> io::Result<Cores> {
        unsupported()
    }

    fn set_cores(&self, _: u32, _: &Cores) -> io::Result<()> {
        unsupported()
    }

    fn file_limit(&self, _: u32) -> io::Result<FileLimit> {
        unsupported()
    }

    fn set_file_limit(&self, _: u32, _: FileLimit) -> io::Result<()> {
        unsupported()
    }

    fn udp_buffers(&self) -> io::Result<Vec<SocketBuffer>> {
        unsupported()
    }
}

/// Reads `/proc/PID/limits`.
fn parse_file_limit(text: &str) -> Option<FileLimit> {
    let mut values = text.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace();
    let mut next = || match values.next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some(FileLimit { soft: next()?, hard: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let text = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 unlimited            files\n";
        assert_eq!(parse_file_limit(text), Some(FileLimit { soft: Some(1_024), hard: None }));
        assert_eq!(parse_file_limit("Max cpu time 1 2 s\n"), None);
        let own = RunningKernel.file_limit(std::process::id()).expect("its own");
        assert!(own.soft.is_none_or(|soft| soft > 16), "{own:?}");
    }
}
