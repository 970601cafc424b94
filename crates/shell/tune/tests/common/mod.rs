//! A host that exists only as files below a folder, with a kernel of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use strowger_net::{Policy, Scheduling};
use strowger_tune::{Cores, Demand, FileLimit, Host, Kernel, Program, Request, SocketBuffer, Target};
use tempfile::TempDir;

/// Process number of the Kamailio on the host.
pub(crate) const KAMAILIO: u32 = 100;
/// Number of its processes, each with one thread.
pub(crate) const PROCESSES: u32 = 3;

/// Settings of threads and processes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tasks {
    pub(crate) scheduling: BTreeMap<u32, Scheduling>,
    pub(crate) cores: BTreeMap<u32, Cores>,
    pub(crate) files: BTreeMap<u32, FileLimit>,
    pub(crate) buffers: Vec<SocketBuffer>,
}

/// A kernel whose tasks a test can see.
#[derive(Clone, Debug)]
pub(crate) struct TestKernel(pub(crate) Arc<Mutex<Tasks>>);

impl TestKernel {
    pub(crate) fn tasks(&self) -> Tasks {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Tasks)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn of<T: Clone>(&self, map: fn(&Tasks) -> &BTreeMap<u32, T>, task: u32) -> io::Result<T> {
        map(&self.tasks()).get(&task).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Kernel for TestKernel {
    fn scheduling(&self, thread: u32) -> io::Result<Scheduling> {
        self.of(|tasks| &tasks.scheduling, thread)
    }

    fn set_scheduling(&self, thread: u32, scheduling: &Scheduling) -> io::Result<()> {
        self.change(|tasks| _ = tasks.scheduling.insert(thread, *scheduling));
        Ok(())
    }

    fn cores(&self, thread: u32) -> io::Result<Cores> {
        self.of(|tasks| &tasks.cores, thread)
    }

    fn set_cores(&self, thread: u32, cores: &Cores) -> io::Result<()> {
        self.change(|tasks| _ = tasks.cores.insert(thread, cores.clone()));
        Ok(())
    }

    fn file_limit(&self, process: u32) -> io::Result<FileLimit> {
        self.of(|tasks| &tasks.files, process)
    }

    fn set_file_limit(&self, process: u32, limit: FileLimit) -> io::Result<()> {
        self.change(|tasks| _ = tasks.files.insert(process, limit));
        Ok(())
    }

    fn udp_buffers(&self) -> io::Result<Vec<SocketBuffer>> {
        Ok(self.tasks().buffers)
    }
}

/// A host with everything that can be tuned, and a Kamailio with three processes.
pub(crate) struct TestHost {
    pub(crate) root: TempDir,
    pub(crate) state: TempDir,
    pub(crate) kernel: TestKernel,
}

impl TestHost {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        for (path, text) in FILES {
            write(root.path(), path, text);
        }
        let usual = Scheduling { policy: Policy::Other, nice: 0, priority: 0, slice_ns: 0, is_reset_on_fork: false };
        let mut tasks = Tasks {
            scheduling: BTreeMap::new(),
            cores: BTreeMap::new(),
            files: BTreeMap::new(),
            buffers: vec![SocketBuffer { inode: 4_711, port: 5_060, bytes: 524_288, drops: 17 }],
        };
        for pid in KAMAILIO..KAMAILIO + PROCESSES {
            let parent = if pid == KAMAILIO { 1 } else { KAMAILIO };
            process(root.path(), pid, parent);
            tasks.scheduling.insert(pid, usual);
            tasks.cores.insert(pid, Cores::new(0..8));
            tasks.files.insert(pid, FileLimit { soft: Some(1_024), hard: Some(4_096) });
        }
        let state = tempfile::tempdir().expect("a folder");
        Self { root, state, kernel: TestKernel(Arc::new(Mutex::new(tasks))) }
    }

    pub(crate) fn host(&self) -> Host {
        Host::with_kernel(self.root.path(), Box::new(self.kernel.clone()))
    }

    pub(crate) fn request(&self) -> Request {
        let target = Target::of(&self.host(), KAMAILIO).expect("it runs");
        let demand = Demand { calls_per_s: 4_000.0, longest_wait: Duration::from_millis(250) };
        Request { target: Some(target), program: Program::Kamailio, demand }
    }

    pub(crate) fn state_file(&self) -> PathBuf {
        self.state.path().join("tune.json")
    }

    /// Returns each file with its bytes, and the tasks.
    pub(crate) fn snapshot(&self) -> (BTreeMap<PathBuf, Vec<u8>>, Tasks) {
        let mut files = BTreeMap::new();
        collect(self.root.path(), &mut files);
        (files, self.kernel.tasks())
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        write(self.root.path(), path, text);
    }

    pub(crate) fn read(&self, path: &str) -> String {
        self.host().read(path).expect(path)
    }
}

fn collect(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            collect(&entry.path(), files);
        } else if kind.is_file() {
            files.insert(entry.path(), fs::read(entry.path()).expect("a file"));
        }
    }
}

fn write(root: &Path, path: &str, text: &str) {
    let place = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(place.parent().expect("a folder")).expect("a folder");
    fs::write(place, text).expect(path);
}

fn process(root: &Path, pid: u32, parent: u32) {
    let rest = vec!["0"; 40].join(" ");
    let stat = format!("{pid} (kama) ilio) S {parent} {rest}\n");
    write(root, &format!("/proc/{pid}/stat"), &stat);
    write(root, &format!("/proc/{pid}/task/{pid}/stat"), &stat);
    write(root, &format!("/proc/{pid}/comm"), "kamailio\n");
    write(root, &format!("/proc/{pid}/cgroup"), "0::/system.slice/kamailio.service\n");
    write(root, &format!("/proc/{pid}/autogroup"), "/autogroup-25 nice 0\n");
    let udp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n  \
               525: 0100007F:13C4 00000000:0000 07 00000000:00000A00 00:00000000 00000000  0 0 4711 2 0000000000000000 17\n";
    write(root, &format!("/proc/{pid}/net/udp"), udp);
    fs::create_dir_all(root.join(format!("proc/{pid}/fd"))).expect("a folder");
    symlink("socket:[4711]", root.join(format!("proc/{pid}/fd/3"))).expect("a link");
}

const FILES: &[(&str, &str)] = &[
    ("/proc/sys/kernel/osrelease", "6.18.0\n"),
    ("/proc/sys/kernel/random/boot_id", "one\n"),
    ("/proc/sys/kernel/sched_autogroup_enabled", "1\n"),
    ("/proc/sys/net/core/rmem_max", "212992\n"),
    ("/proc/sys/net/core/rmem_default", "212992\n"),
    ("/proc/sys/net/core/wmem_max", "212992\n"),
    ("/proc/sys/net/core/netdev_max_backlog", "1000\n"),
    ("/proc/sys/net/core/busy_read", "0\n"),
    ("/proc/sys/net/core/busy_poll", "0\n"),
    ("/proc/sys/net/ipv4/udp_mem", "100\t200\t300\n"),
    ("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
    ("/proc/sys/net/netfilter/nf_conntrack_count", "60000\n"),
    ("/proc/sys/net/netfilter/nf_conntrack_max", "65536\n"),
    ("/proc/net/softnet_stat", "0000ffff 00000010 00000003 0\n"),
    ("/proc/irq/36/smp_affinity_list", "0\n"),
    ("/sys/class/net/eth0/device/msi_irqs/36", "msix\n"),
    ("/sys/class/net/eth0/queues/rx-0/rps_cpus", "00\n"),
    ("/sys/class/net/lo/queues/rx-0/rps_cpus", "00\n"),
    ("/sys/devices/system/cpu/online", "0-7\n"),
    ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
    ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors", "performance powersave\n"),
    ("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n"),
    ("/sys/devices/system/cpu/cpu1/cpufreq/scaling_available_governors", "performance powersave\n"),
    ("/sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "2\n"),
    ("/sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0\n"),
    ("/sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "133\n"),
    ("/sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "0\n"),
    ("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
    ("/sys/fs/cgroup/system.slice/kamailio.service/cgroup.procs", "100\n"),
    ("/sys/fs/cgroup/system.slice/kamailio.service/cpu.weight", "100\n"),
    ("/sys/fs/cgroup/system.slice/kamailio.service/cpu.max", "50000 100000\n"),
    ("/sys/fs/cgroup/system.slice/kamailio.service/cpu.stat", "nr_periods 9\nnr_throttled 4\n"),
];
