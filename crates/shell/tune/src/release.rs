//! The kernel's version and scheduler.

use crate::host::Host;

/// Scheduler of normal threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// The completely fair scheduler, up to 6.5.
    Cfs,
    /// EEVDF, since 6.6, with one slice for all threads.
    Eevdf,
    /// EEVDF with slices of threads, since 6.12.
    EevdfWithSlices,
    /// A scheduler loaded as eBPF programs (`sched_ext`), which has its own settings.
    Loaded,
}

/// Returns the scheduler of a host.
#[must_use]
pub fn scheduler(host: &Host) -> Scheduler {
    if host.text("/sys/kernel/sched_ext/state").as_deref() == Some("enabled") {
        return Scheduler::Loaded;
    }
    match version(host) {
        Some(version) if version < (6, 6) => Scheduler::Cfs,
        Some(version) if version < (6, 12) => Scheduler::Eevdf,
        // An unknown version is of a kernel that is newer than this program.
        _ => Scheduler::EevdfWithSlices,
    }
}

fn version(host: &Host) -> Option<(u32, u32)> {
    let text = host.text("/proc/sys/kernel/osrelease")?;
    let mut numbers = text.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Returns the host in one line: kernel, scheduler and cores.
#[must_use]
pub fn describe(host: &Host) -> String {
    let release = host.text("/proc/sys/kernel/osrelease").unwrap_or_else(|| "of unknown version".to_owned());
    let scheduler = match scheduler(host) {
        Scheduler::Cfs => "CFS",
        Scheduler::Eevdf => "EEVDF",
        Scheduler::EevdfWithSlices => "EEVDF with slices of threads",
        Scheduler::Loaded => "a loaded scheduler (sched_ext)",
    };
    let base = host.number("/sys/kernel/debug/sched/base_slice_ns");
    let base = base.map_or_else(String::new, |ns| format!(", base slice {} µs", ns / 1_000));
    let cores = host.text("/sys/devices/system/cpu/online").unwrap_or_else(|| "?".to_owned());
    format!("Linux {release}, {scheduler}{base}, cores {cores}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_follows_from_the_version() {
        let folder = tempfile::tempdir().expect("a folder");
        let kernel = folder.path().join("proc/sys/kernel");
        std::fs::create_dir_all(&kernel).expect("a folder");
        let host = Host::below(folder.path());
        let cases = [
            ("3.2.51", Scheduler::Cfs),
            ("5.15.0-91-generic", Scheduler::Cfs),
            ("6.6.1", Scheduler::Eevdf),
            ("6.12.0-rc1", Scheduler::EevdfWithSlices),
            ("7.0", Scheduler::EevdfWithSlices),
        ];
        for (release, wanted) in cases {
            std::fs::write(kernel.join("osrelease"), format!("{release}\n")).expect("written");
            assert_eq!(scheduler(&host), wanted, "{release}");
        }
        assert!(describe(&host).starts_with("Linux 7.0, EEVDF with slices of threads"), "{}", describe(&host));
    }
}
