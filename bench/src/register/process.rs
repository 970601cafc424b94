//! Resource usage of processes and of the disk, from the kernel.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, setpriority_process, waitpid,
};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Usage of all processes and threads of a server since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor time in user mode and in the kernel.
    pub processor: Duration,
    /// Voluntary and involuntary context switches.
    pub switches: u64,
    /// Bytes written to disk (`write_bytes` of `/proc/PID/io`).
    pub written: u64,
    /// Current private memory in bytes.
    pub memory: u64,
    /// Current shared memory of its processes in bytes.
    pub shared: u64,
    /// Current resident memory in bytes, including program and libraries.
    pub resident: u64,
}

impl Usage {
    /// Returns the usage of these processes.
    #[must_use]
    pub fn of(processes: &[u32]) -> Usage {
        let mut all = Usage::default();
        for pid in processes {
            let one = Usage::of_one(*pid);
            all.processor += one.processor;
            all.switches += one.switches;
            all.written += one.written;
            all.memory += one.memory;
            // Each process maps the shared memory, but it exists once.
            all.shared = all.shared.max(one.shared);
            all.resident += one.resident;
        }
        all
    }

    fn of_one(pid: u32) -> Usage {
        let folder = format!("/proc/{pid}");
        // A process that has ended adds no usage.
        let read = |name: &str| fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default();
        let stat = read("stat");
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
        let status = read("status");
        let threads = fs::read_dir(format!("{folder}/task")).into_iter().flatten().flatten();
        let switches = threads.map(|thread| {
            let text = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            value(&text, "voluntary_ctxt_switches:") + value(&text, "nonvoluntary_ctxt_switches:")
        });
        Usage {
            processor: Duration::from_millis(ticks * 10),
            switches: switches.sum(),
            written: value(&read("io"), "write_bytes:"),
            memory: value(&status, "RssAnon:") * 1024,
            shared: value(&status, "RssShmem:") * 1024,
            resident: value(&status, "VmRSS:") * 1024,
        }
    }

    /// Returns the usage between `earlier` and this one, with the current memory.
    #[must_use]
    pub fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            processor: self.processor.saturating_sub(earlier.processor),
            switches: self.switches.saturating_sub(earlier.switches),
            written: self.written.saturating_sub(earlier.written),
            ..*self
        }
    }
}

fn value(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Returns the number of flushes of the disk under `folder`, by any process; 0 if it is not a disk.
#[must_use]
pub fn flushes(folder: &Path) -> u64 {
    let stat = fs::metadata(folder).ok().and_then(|folder| {
        let device = folder.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()
    });
    stat.and_then(|stat| stat.split_whitespace().nth(15)?.parse().ok()).unwrap_or(0)
}

/// Returns the time to append 400 bytes to a file in `folder` and make them durable (fdatasync), in milliseconds: the
/// median and the maximum of `count` repetitions, or of as many as fit into a second.
///
/// # Errors
/// If no file can be written in the folder.
pub fn sync_time(folder: &Path, count: usize) -> io::Result<(f64, f64)> {
    let mut file = tempfile::tempfile_in(folder)?;
    let mut times = Vec::new();
    let all = Instant::now();
    while times.len() < count && (times.is_empty() || all.elapsed() < Duration::from_secs(1)) {
        let began = Instant::now();
        file.write_all(&[b'x'; 400])?;
        file.sync_data()?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], times[times.len() - 1]))
}

/// Returns the process and all its descendants.
#[must_use]
pub fn family(root: u32) -> Vec<u32> {
    let mut all = vec![root];
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let parent = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    let mut next = 0;
    while let Some(parent) = all.get(next).copied() {
        all.extend(parents.iter().filter(|(_, its)| *its == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    all
}

/// Sends a signal. Ignores a process that has ended.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Makes this process the reaper of a killed server's processes, so that it can [reap](bury) them instead of the
/// system's first process.
///
/// # Errors
/// If the kernel refuses.
pub fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Kills processes and waits until they end. The first one is reaped by the owner of its handle.
pub fn bury(family: &[u32]) {
    family.iter().for_each(|pid| signal(*pid, Signal::KILL));
    for pid in family.iter().skip(1).filter_map(|pid| i32::try_from(*pid).ok().and_then(Pid::from_raw)) {
        // It is reparented shortly after its parent has ended; other errors mean that it has ended.
        for _ in 0..200 {
            match waitpid(Some(pid), WaitOptions::NOHANG) {
                Ok(Some(_)) => break,
                _ if rustix::process::test_kill_process(pid).is_err() => break,
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

/// Gives this thread and threads started afterwards the highest scheduling priority available. Returns whether the
/// system permits it, which takes root. Otherwise other work of the machine, such as its housekeeping, would be part
/// of the measured times.
pub fn go_first() -> bool {
    setpriority_process(None, -20).is_ok()
}

/// Pins this thread to one core.
///
/// # Errors
/// If there is no such core.
pub fn stay_on(core: usize) -> io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(sched_setaffinity(None, &cores)?)
}

/// Returns the size of all files in a folder in bytes, without subfolders.
#[must_use]
pub fn size(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).filter(fs::Metadata::is_file).map(|file| file.len()).sum()
}
