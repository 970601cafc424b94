//! Memory available to the process: the machine's, or the limit of its control groups.

use std::fs;
use std::path::Path;

/// The proc file system.
const PROC: &str = "/proc";
/// Mount point of the control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// Returns the maximum memory of this process, in bytes; `u64::MAX` if the kernel does not report it.
pub(crate) fn allowed() -> u64 {
    allowed_by(Path::new(PROC), Path::new(GROUPS))
}

fn allowed_by(proc: &Path, groups: &Path) -> u64 {
    let machine = fs::read_to_string(proc.join("meminfo")).ok().and_then(|text| total(&text));
    let own = fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    let limits = own.lines().flat_map(|line| limit_files(groups, line));
    let limits = limits.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    limits.chain(machine).min().unwrap_or(u64::MAX)
}

/// Parses the line `MemTotal:  24613568 kB` into bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the limit files of a group and its ancestors. `line` is from `/proc/self/cgroup`, such as
/// `0::/system.slice/a` (version 2) or `9:memory:/a` (version 1). In a container the group's own path does not exist,
/// but its root does.
fn limit_files(groups: &Path, line: &str) -> Vec<std::path::PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let (root, name) = match controllers {
        "" => (groups.to_owned(), "memory.max"),
        some if some.split(',').any(|one| one == "memory") => (groups.join("memory"), "memory.limit_in_bytes"),
        _ => return Vec::new(),
    };
    Path::new(path.trim_start_matches('/')).ancestors().map(|group| root.join(group).join(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result for a machine of 4 GiB with these control groups and limits.
    fn allowed_with(groups: &str, limits: &[(&str, &str)]) -> u64 {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |file: &str, text: &str| {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("it can be made");
            fs::write(file, text).expect("it can be written");
        };
        write("proc/meminfo", "MemTotal:        4194304 kB\nMemFree:          100000 kB\n");
        write("proc/self/cgroup", groups);
        limits.iter().for_each(|(file, text)| write(&format!("groups/{file}"), text));
        allowed_by(&folder.path().join("proc"), &folder.path().join("groups"))
    }

    #[test]
    fn no_limit_means_machine_memory() {
        assert_eq!(allowed_with("", &[]), 4 << 30);
        assert_eq!(allowed_with("0::/\n", &[("memory.max", "max\n")]), 4 << 30);
        let unlimited = [("memory/memory.limit_in_bytes", "9223372036854771712\n")];
        assert_eq!(allowed_with("9:memory:/\n", &unlimited), 4 << 30);
    }

    #[test]
    fn the_tightest_cgroup_wins() {
        let v2 = [("memory.max", "max\n"), ("a/memory.max", "1073741824\n"), ("a/b/memory.max", "2147483648\n")];
        assert_eq!(allowed_with("0::/a/b\n", &v2), 1 << 30, "a group cannot have more than the one above it");
        let v1 = [("memory/a/memory.limit_in_bytes", "536870912\n")];
        assert_eq!(allowed_with("4:cpu,cpuacct:/x\n9:memory:/a\n", &v1), 512 << 20);
        let container = [("memory/memory.limit_in_bytes", "268435456\n")];
        assert_eq!(allowed_with("9:memory:/docker/0123\n", &container), 256 << 20, "its root is the group");
    }

    #[test]
    fn memory_is_plausible() {
        assert!((16 << 20..u64::MAX).contains(&allowed()), "{}", allowed());
    }
}
