//! Resource usage of a server on this machine: CPU time, memory, context switches, interrupts of the machine, and
//! dropped datagrams. It is read from /proc by process ID and includes child processes.

mod parse;
mod series;

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_net::Clock;
use strowger_timing::proc::Host;

pub use series::{ServerSeries, Usage};

use parse::ProcStat;

/// Number of samples after which children and sockets are looked up again.
const REFRESH_INTERVAL: usize = 10;
/// Maximum number of samples kept: one day at one per second.
const MAX_SAMPLES: usize = 86_400;

/// Resource usage of a process and its children since they started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The time of the sample.
    pub at: Timestamp,
    /// Number of processes.
    pub processes: u64,
    /// Number of threads of all processes.
    pub threads: u64,
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Resident memory, in bytes. Memory shared by several processes is counted once if the kernel reports that, else
    /// once for each.
    pub resident_bytes: u64,
    /// Voluntary context switches.
    pub voluntary: u64,
    /// Involuntary context switches.
    pub involuntary: u64,
    /// Major page faults.
    pub major_faults: u64,
    /// Interrupts of the whole machine.
    pub interrupts: u64,
    /// Soft interrupts of the whole machine.
    pub soft_interrupts: u64,
    /// Datagrams dropped because the processes' socket buffers were full; `None` without permission to see their
    /// sockets.
    pub drops: Option<u64>,
    /// Datagrams dropped because a buffer of any socket in their network namespace was full.
    pub machine_drops: u64,
}

impl Sample {
    /// Adds what other processes have used before, so that usage goes on where it was.
    fn after(self, before: &Self) -> Self {
        Self {
            user: self.user + before.user,
            system: self.system + before.system,
            voluntary: self.voluntary + before.voluntary,
            involuntary: self.involuntary + before.involuntary,
            major_faults: self.major_faults + before.major_faults,
            drops: self.drops.zip(before.drops.or(Some(0))).map(|(own, before)| own + before),
            ..self
        }
    }

    /// Subtracts what the processes that are sampled from now on have used already: while their parent ran, they
    /// counted as its children.
    fn without(&self, first: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(first.user),
            system: self.system.saturating_sub(first.system),
            voluntary: self.voluntary.saturating_sub(first.voluntary),
            involuntary: self.involuntary.saturating_sub(first.involuntary),
            major_faults: self.major_faults.saturating_sub(first.major_faults),
            drops: self.drops.map(|drops| drops.saturating_sub(first.drops.unwrap_or(0))),
            ..*self
        }
    }
}

/// Sampler of processes and their children.
#[derive(Debug)]
pub struct ProcessSampler {
    host: Host,
    pids: Vec<u32>,
    tick: Duration,
    page_bytes: u64,
    family: Vec<u32>,
    sockets: Option<BTreeSet<u64>>,
    /// Resident memory of all processes together at the last exact measurement, and by the quick count then; only for
    /// more than one process.
    together: Option<(u64, u64)>,
    samples: usize,
}

impl ProcessSampler {
    /// Starts sampling.
    ///
    /// # Errors
    /// If one of the processes does not exist, or the list is empty.
    pub fn new(pids: &[u32]) -> io::Result<Self> {
        let pids = pids.to_vec();
        if pids.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        for pid in &pids {
            read_stat(*pid)?;
        }
        let tick =
            Duration::from_secs(1) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100).max(1);
        let page_bytes = rustix::param::page_size() as u64;
        Ok(Self {
            host: Host::default(),
            pids,
            tick,
            page_bytes,
            family: Vec::new(),
            sockets: None,
            together: None,
            samples: 0,
        })
    }

    /// Returns the name of the first process.
    #[must_use]
    pub fn name(&self) -> String {
        let pid = self.root_pid();
        let short = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        // The kernel keeps 15 characters of the name; the path of the executable may have the rest.
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let long = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if long.starts_with(short.trim_end()) { long.to_owned() } else { short.trim_end().to_owned() }
    }

    /// Returns the children of an ended process that have survived it, such as one that it has handed over to.
    fn survivors(&self) -> Vec<u32> {
        let alive: Vec<u32> = self.family.iter().copied().filter(|pid| read_stat(*pid).is_ok()).collect();
        self.host.eldest(&alive)
    }

    fn root_pid(&self) -> u32 {
        self.pids.first().copied().unwrap_or(0)
    }

    fn refresh_children(&mut self) {
        self.family = self.host.process_tree(&self.pids);
        self.sockets = self.host.inodes(&self.family);
        let exact = || {
            let sizes = self.family.iter().map(|pid| {
                let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
                Some(parse::field(&text, "Pss:") * 1_024).filter(|bytes| *bytes > 0)
            });
            sizes.sum::<Option<u64>>()
        };
        self.together = (self.family.len() > 1).then(exact).flatten().map(|bytes| (bytes, quick_count(&self.family)));
    }

    /// Returns the usage so far.
    ///
    /// # Errors
    /// If the first process has ended.
    pub fn sample(&mut self, at: Timestamp) -> io::Result<Sample> {
        if self.samples.is_multiple_of(REFRESH_INTERVAL) {
            self.refresh_children();
        }
        self.samples += 1;
        let eldest = self.root_pid();
        read_stat(eldest)?;
        let mut sample = Sample { at, ..Sample::default() };
        for pid in &self.family {
            // Children may end at any time.
            let Ok(stat) = read_stat(*pid) else { continue };
            sample.processes += 1;
            sample.threads += stat.threads;
            sample.user += self.tick * u32::try_from(stat.user_ticks).unwrap_or(u32::MAX);
            sample.system += self.tick * u32::try_from(stat.system_ticks).unwrap_or(u32::MAX);
            sample.resident_bytes += stat.resident_pages * self.page_bytes;
            sample.major_faults += stat.major_faults;
            for thread in self.host.numbers(&format!("{pid}/task")) {
                let status = self.host.read(&format!("{pid}/task/{thread}/status"));
                sample.voluntary += parse::field(&status, "voluntary_ctxt_switches:");
                sample.involuntary += parse::field(&status, "nonvoluntary_ctxt_switches:");
            }
        }
        if let Some((exact, quick)) = self.together {
            sample.resident_bytes = (exact + quick_count(&self.family)).saturating_sub(quick);
        }
        let machine = self.host.read("stat");
        sample.interrupts = parse::field(&machine, "intr ");
        sample.soft_interrupts = parse::field(&machine, "softirq ");
        sample.machine_drops = self.host.counter(Some(eldest), "snmp", "Udp", "RcvbufErrors").unwrap_or(0);
        sample.drops = self.sockets.as_ref().map(|sockets| self.host.datagram_drops(eldest, sockets));
        Ok(sample)
    }
}

/// A [`ProcessSampler`] with a thread of its own.
#[derive(Debug)]
pub struct SamplerThread {
    stop: Sender<()>,
    thread: JoinHandle<ServerSeries>,
}

impl SamplerThread {
    /// Samples processes and their children at intervals of `every`, by the clock of the run, until
    /// [`stop`](Self::stop). When the first process ends, those that `successors` finds are sampled instead, or else its
    /// children.
    ///
    /// # Errors
    /// If one of the processes does not exist, or the thread cannot be started.
    pub fn start(
        pids: &[u32],
        clock: Clock,
        every: Duration,
        successors: impl Fn() -> Vec<u32> + Send + 'static,
    ) -> io::Result<Self> {
        let mut watch = ProcessSampler::new(pids)?;
        let samples = vec![watch.sample(clock.now())?];
        let mut series = ServerSeries { pid: watch.root_pid(), name: watch.name(), samples, ..ServerSeries::default() };
        let mut before = Sample::default();
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("load-watch".to_owned()).spawn(move || {
            loop {
                // The last interval is sampled too, however short.
                let is_last = stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout);
                match watch.sample(clock.now()) {
                    Ok(sample) if series.samples.len() < MAX_SAMPLES => series.samples.push(sample.after(&before)),
                    Ok(_) => {}
                    Err(_) => match successor(&watch, successors(), clock.now()) {
                        Some((next, first)) => {
                            before = series.samples.last().map_or(before, |last| last.without(&first));
                            series.successors.push(next.root_pid());
                            watch = next;
                        }
                        None => series.is_gone = true,
                    },
                }
                if is_last || series.is_gone {
                    return series;
                }
            }
        })?;
        Ok(Self { stop, thread })
    }

    /// Stops sampling and returns the samples.
    #[must_use]
    pub fn stop(self) -> ServerSeries {
        // The thread may have ended together with the process.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

/// Returns a sampler of the processes that go on for one that has ended, and their usage so far.
fn successor(ended: &ProcessSampler, found: Vec<u32>, now: Timestamp) -> Option<(ProcessSampler, Sample)> {
    let pids = if found.is_empty() { ended.survivors() } else { found };
    let mut next = ProcessSampler::new(&pids).ok()?;
    let first = next.sample(now).ok()?;
    Some((next, first))
}

/// Returns the processes that listen at an address of this machine over UDP or TCP; only the parent of each process
/// tree. Empty if nothing listens there, the address belongs to another machine, or permission is missing.
#[must_use]
pub fn listening_pids(address: SocketAddr, is_stream: bool) -> Vec<u32> {
    // A wildcard listener does not listen at the addresses of other machines.
    if UdpSocket::bind((address.ip(), 0)).is_err() {
        return Vec::new();
    }
    let host = Host::default();
    let files = if is_stream { ["tcp", "tcp6"] } else { ["udp", "udp6"] };
    let tables = files.map(|file| host.read(&format!("net/{file}")));
    let inodes: BTreeSet<u64> = tables.iter().flat_map(|table| parse::listeners(table, address, is_stream)).collect();
    if inodes.is_empty() {
        return Vec::new();
    }
    let holds = |pid: &u32| host.inodes(&[*pid]).is_some_and(|own| !own.is_disjoint(&inodes));
    let holders: Vec<u32> = host.numbers("").into_iter().filter(holds).collect();
    host.eldest(&holders)
}

/// Returns the resident memory of processes, in bytes, without mapped files. Copy-on-write pages shared with the
/// parent count once for each process. The kernel need not walk their pages for this.
fn quick_count(pids: &[u32]) -> u64 {
    let (mut own, mut shared) = (0, 0);
    for pid in pids {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        own += parse::field(&status, "RssAnon:") * 1_024;
        shared = (parse::field(&status, "RssShmem:") * 1_024).max(shared);
    }
    own + shared
}

fn read_stat(pid: u32) -> io::Result<ProcStat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    ProcStat::parse(&text).filter(|stat| !stat.is_dead).ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_usage_is_sampled() {
        let mut watch = ProcessSampler::new(&[std::process::id()]).expect("it runs");
        let first = watch.sample(Timestamp::ZERO).expect("it runs");
        let mut sum = 0_u64;
        let clock = Clock::start();
        let begun = clock.now();
        while clock.now().saturating_since(begun) < Duration::from_millis(60) {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
        }
        let second = watch.sample(Timestamp::from_millis(60)).expect("it runs");
        assert!(first.resident_bytes > 1 << 20, "{first:?}");
        assert!(second.user + second.system > first.user + first.system, "{first:?} {second:?}");
        assert!(second.threads >= 1 && second.processes >= 1);
        assert!(second.drops.is_some(), "its own sockets can be seen");
        assert!(!watch.name().is_empty());
    }

    #[test]
    fn listeners_are_found() {
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = udp.local_addr().expect("bound");
        assert_eq!(listening_pids(address, false), [std::process::id()]);
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        assert_eq!(listening_pids(tcp.local_addr().expect("bound"), true), [std::process::id()]);
        drop(udp);
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], address.port()));
        let everywhere = UdpSocket::bind(("0.0.0.0", address.port())).expect("a port");
        assert_eq!(listening_pids(elsewhere, false), [0_u32; 0], "another machine's");
        drop(everywhere);
        assert_eq!(listening_pids(address, false), [0_u32; 0]);
    }

    #[test]
    fn dropped_datagrams_are_counted() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("bound");
        let mut watch = ProcessSampler::new(&[std::process::id()]).expect("it runs");
        let before = watch.sample(Timestamp::ZERO).expect("it runs");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
        for _ in 0..5_000 {
            sender.send_to(&[0; 1_000], address).expect("loopback");
        }
        let after = watch.sample(Timestamp::ZERO).expect("it runs");
        assert!(after.drops > before.drops, "{before:?} {after:?}");
    }

    #[test]
    fn shared_memory_is_counted_once() {
        let mut children = [0; 3].map(|_| std::process::Command::new("sleep").arg("60").spawn().expect("sleep"));
        let pids = children.each_ref().map(std::process::Child::id);
        // They have pages of their own only once they run.
        while !pids
            .iter()
            .all(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n"))
        {
            std::thread::yield_now();
        }
        let alone: u64 = pids
            .iter()
            .map(|pid| {
                ProcessSampler::new(&[*pid])
                    .and_then(|mut watch| watch.sample(Timestamp::ZERO))
                    .expect("it runs")
                    .resident_bytes
            })
            .sum();
        let together =
            ProcessSampler::new(&pids).and_then(|mut watch| watch.sample(Timestamp::ZERO)).expect("they run");
        assert_eq!(together.processes, 3);
        assert!(together.resident_bytes > 0 && together.resident_bytes < alone, "{} {alone}", together.resident_bytes);
        for child in &mut children {
            child.kill().and_then(|()| child.wait()).expect("it ends");
        }
    }

    #[test]
    fn the_sampler_sees_a_process_end() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let watcher =
            SamplerThread::start(&[child.id()], Clock::start(), Duration::from_millis(1), Vec::new).expect("it runs");
        let family = Host::default().process_tree(&[std::process::id(), child.id()]);
        let times = family.iter().filter(|pid| **pid == child.id()).count();
        assert_eq!(times, 1, "a child is of the family, once");
        child.kill().and_then(|()| child.wait()).expect("it ends");
        while !watcher.thread.is_finished() {
            std::thread::yield_now();
        }
        let series = watcher.stop();
        assert!(series.is_gone && !series.samples.is_empty() && series.successors.is_empty(), "{series:?}");
        assert_eq!(series.name, "sleep");
        assert!(ProcessSampler::new(&[series.pid]).is_err() && ProcessSampler::new(&[]).is_err());
    }

    #[test]
    fn the_sampler_follows_to_the_process_that_goes_on() {
        let [mut first, mut second] =
            [0; 2].map(|_| std::process::Command::new("sleep").arg("60").spawn().expect("sleep"));
        let goes_on = second.id();
        let (told, asked) = channel();
        let successors = move || {
            let _ = told.send(());
            vec![goes_on]
        };
        let watcher = SamplerThread::start(&[first.id()], Clock::start(), Duration::from_millis(1), successors);
        let watcher = watcher.expect("it runs");
        first.kill().and_then(|()| first.wait()).expect("it ends");
        asked.recv().expect("it asks who goes on");
        let series = watcher.stop();
        second.kill().and_then(|()| second.wait()).expect("it ends");
        assert_eq!((series.pid, series.successors, series.is_gone), (first.id(), vec![goes_on], false));
    }

    #[test]
    fn the_sampler_follows_to_a_child_that_survives() {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "sleep 60 & echo $!; read line"]);
        shell.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut shell = shell.spawn().expect("a shell");
        let mut child = String::new();
        let mut told = io::BufReader::new(shell.stdout.take().expect("piped"));
        io::BufRead::read_line(&mut told, &mut child).expect("its child's number");
        let child: u32 = child.trim().parse().expect("a number");
        let mut watch = ProcessSampler::new(&[shell.id()]).expect("it runs");
        assert_eq!(watch.sample(Timestamp::ZERO).expect("it runs").processes, 2);
        shell.kill().and_then(|()| shell.wait()).expect("it ends");
        assert!(watch.sample(Timestamp::ZERO).is_err());
        let (next, _) = successor(&watch, Vec::new(), Timestamp::ZERO).expect("the child goes on");
        assert_eq!(next.root_pid(), child);
        let killed = std::process::Command::new("kill").arg(child.to_string()).status().expect("kill runs");
        assert!(killed.success());
    }

    #[test]
    fn usage_goes_on_where_it_was_after_a_replacement() {
        let used = |ms| Sample { user: Duration::from_millis(ms), drops: Some(ms), ..Sample::default() };
        // The new process had used 30 when the one before ended, which counted as its parent's.
        let before = used(100).without(&used(30));
        assert_eq!(used(35).after(&before), used(105));
    }
}
