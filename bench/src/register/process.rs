//! What processes and the disk below them have done, as the kernel tells it.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, setpriority_process, waitpid,
};
use rustix::thread::{CpuSet, sched_setaffinity};

/// What a server has used since it began, all of its processes and threads together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Of the processors, for itself and in the kernel.
    pub processor: Duration,
    /// How often it was taken off a processor, by waiting or by others.
    pub switches: u64,
    /// Bytes that it had the disk write (`write_bytes` of `/proc/PID/io`).
    pub written: u64,
    /// Private memory in bytes, now.
    pub memory: u64,
    /// Memory that its processes share, in bytes, now.
    pub shared: u64,
    /// All that is in memory of it, its program and libraries included, in bytes, now.
    pub resident: u64,
}

impl Usage {
    /// Of these processes.
    #[must_use]
    pub fn of(processes: &[u32]) -> Usage {
        let mut all = Usage::default();
        for pid in processes {
            let one = Usage::of_one(*pid);
            all.processor += one.processor;
            all.switches += one.switches;
            all.written += one.written;
            all.memory += one.memory;
            // Mapped by each of them, there once.
            all.shared = all.shared.max(one.shared);
            all.resident += one.resident;
        }
        all
    }

    fn of_one(pid: u32) -> Usage {
        let folder = format!("/proc/{pid}");
        // A process that has just gone has used nothing more.
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

    /// What was used between `earlier` and this; memory as it is now.
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

/// How often the disk under `folder` was told to make good what it holds (flushes), by anybody; nothing where it is none.
#[must_use]
pub fn flushes(folder: &Path) -> u64 {
    let stat = fs::metadata(folder).ok().and_then(|folder| {
        let device = folder.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()
    });
    stat.and_then(|stat| stat.split_whitespace().nth(15)?.parse().ok()).unwrap_or(0)
}

/// How long it takes to append 400 bytes to a file in `folder` and to make that durable (fdatasync), in milliseconds: the
/// middle and the longest of `count` times, or of as many as a second has.
///
/// # Errors
/// When the folder takes no files.
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

/// The process and all that it has begun.
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

/// Sends it a signal; one that is gone already is no matter.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Makes the processes of a server that is killed ours to [bury](bury), not those of the system's first process.
///
/// # Errors
/// When the kernel does not.
pub fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Kills processes and waits for their end: the first one is left to whoever has its handle.
pub fn bury(family: &[u32]) {
    family.iter().for_each(|pid| signal(*pid, Signal::KILL));
    for pid in family.iter().skip(1).filter_map(|pid| i32::try_from(*pid).ok().and_then(Pid::from_raw)) {
        // It becomes ours when its parent has ended, which takes a moment; other errors are that it is gone.
        for _ in 0..200 {
            match waitpid(Some(pid), WaitOptions::NOHANG) {
                Ok(Some(_)) => break,
                _ if rustix::process::test_kill_process(pid).is_err() => break,
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

/// Lets this thread and what it starts from now on go before others on their cores, as far as the system can; whether it may, which
/// takes root. What else the machine has to do, as its own housekeeping, would otherwise be in the times of whoever waits for it.
pub fn go_first() -> bool {
    setpriority_process(None, -20).is_ok()
}

/// Keeps this thread on one core.
///
/// # Errors
/// When there is no such core.
pub fn stay_on(core: usize) -> io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(sched_setaffinity(None, &cores)?)
}

/// The bytes of all files in a folder, the folders in it left out.
#[must_use]
pub fn size(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).filter(fs::Metadata::is_file).map(|file| file.len()).sum()
}
