//! Where threads run, how fast the cores are, and the settings of the scheduler for the whole machine.

use crate::apply::Change;
use crate::cores::Cores;
use crate::host::Host;
use crate::place::{Place, Task};
use crate::proposal::{Group, Proposal, Request, Topic};
use crate::release::{Scheduler, scheduler};
use crate::target::{Program, Target};

/// From this number of cores on, one of them can be left to interrupts.
const MANY_CORES: usize = 4;
/// Weight of a control group that is proposed: ten times the default.
const WEIGHT: u64 = 1_000;
const SHARES: u64 = 10_240;
/// Wake-up time of an idle state, in microseconds, above which it is worth avoiding.
const SLOW_WAKE_US: u64 = 50;
/// Slice of all threads that is proposed where threads have none of their own.
const BASE_SLICE_NS: u64 = 300_000;
const BASE_SLICE_FILE: &str = "/sys/kernel/debug/sched/base_slice_ns";

pub(crate) static AFFINITY: Topic = Topic {
    name: "affinity",
    group: Group::Scheduler,
    title: "cores of the server apart from those of interrupts",
    gain: "keeps caches warm; thesis, section 7.5.1: never migrating is worse than migrating freely when one core is full",
    risk: "a core that is full gets no help from idle ones, and other programs on these cores delay the server",
    explanation: "The core that handles the network card's interrupts also delivers packets (softirq), before any thread. \
        A server thread on this core is interrupted by each packet. On a machine with several cores for the server alone, \
        leave that core to the kernel. The thesis (section 7.5.1) shows the other side: forbidding migration by \
        sched_migration_cost = 5 ms raised drops, and 0 was best within one processor, so pin a whole server to a set of \
        cores rather than each thread to one. Strowger pins its workers by server.affinity.",
};

pub(crate) static CPU_WEIGHT: Topic = Topic {
    name: "cpu-weight",
    group: Group::Scheduler,
    title: "weight of the server's control group",
    gain: "the group gets ten times the share of a default one when cores are busy; nothing when they are not",
    risk: "other services of the machine get less while the server is busy",
    explanation: "Between control groups only their weights count; nice values count within a group. A service of systemd \
        has its own group if CPU accounting is on, with the default weight of 100 (cpu.shares 1024 in version 1).",
};

pub(crate) static CPU_QUOTA: Topic = Topic {
    name: "cpu-quota",
    group: Group::Scheduler,
    title: "quota of the server's control group",
    gain: "no pauses of up to a period (usually 100 ms) in which packets wait or are dropped",
    risk: "the server may use more of the machine than was sold to it; orchestrators set the quota again",
    explanation: "A group that has used its quota stands still until the next period begins. With a quota of half a core \
        and a period of 100 ms, a burst that takes 50 ms of work is followed by 50 ms without service, which is longer \
        than any queue of a server that carries its load. Use weights for fairness, or a shorter period for a hard limit.",
};

pub(crate) static GOVERNOR: Topic = Topic {
    name: "governor",
    group: Group::Scheduler,
    title: "frequency of the cores",
    gain: "full speed also at low load, when the governor would slow the cores down",
    risk: "more power",
    explanation: "Frequency governors follow the load of the past milliseconds; a SIP server at low load is idle most of the \
        time, so its packets are processed at low frequency. Most virtual machines have no governor.",
};

pub(crate) static IDLE_STATES: Topic = Topic {
    name: "idle-states",
    group: Group::Scheduler,
    title: "deep idle states of the cores",
    gain: "saves the wake-up time of the state (shown) for the first packet after a pause",
    risk: "much more power and heat, and less turbo for the other cores",
    explanation: "An idle core goes to sleep, deeper the longer it expects to be idle. Waking from a deep state takes more \
        time than processing a packet. The states whose latency is above 50 µs are proposed.",
};

pub(crate) static BASE_SLICE: Topic = Topic {
    name: "base-slice",
    group: Group::Scheduler,
    title: "slice of all threads of the machine",
    gain: "as slice, for kernels whose threads have no slices of their own",
    risk: "more switches for all programs",
    explanation: "Linux 6.6 to 6.11 have EEVDF but only one slice, base_slice_ns in debugfs. Before 6.6 there was CFS, with \
        the three parameters of the thesis; see cfs.",
};

pub(crate) static CFS: Topic = Topic {
    name: "cfs",
    group: Group::Scheduler,
    title: "the thesis's \"enhanced server mode\" of CFS",
    gain: "thesis, table 6.3: 26 to 41 % fewer drops, 7 to 34 % less K_rcv; table 7.3, two cores: 4 to 54 % and 2 to 73 %",
    risk: "more switches for all programs of the machine",
    explanation: "For kernels before 6.6. The thesis (sections 6.3.2 and 7.4.2) sets sched_latency_ns = 800,000 times the \
        cores, sched_min_granularity_ns to T_sip at full load but at least 100,000, sched_wakeup_granularity_ns = 0, \
        sched_migration_cost_ns = 0 (one processor), and sched_tunable_scaling to none. They are in /proc/sys/kernel up to \
        5.12 and in debugfs from 5.13 on.",
};

pub(crate) static TOPICS: [&Topic; 7] =
    [&AFFINITY, &CPU_WEIGHT, &CPU_QUOTA, &GOVERNOR, &IDLE_STATES, &BASE_SLICE, &CFS];

/// Returns the proposals on cores.
pub(crate) fn advise(host: &Host, request: &Request) -> Vec<Proposal> {
    let mut all = Vec::new();
    if let Some(target) = &request.target {
        all.extend(affinity(host, request, target));
        all.extend(weight(host, target));
        all.extend(quota(host, target));
    }
    let limit = limited_cores(host, request.target.as_ref());
    all.extend(governor(host, limit.as_ref()));
    all.extend(idle_states(host, limit.as_ref()));
    all.extend(machine(host));
    all
}

/// Returns the cores that handle interrupts of network devices.
pub(crate) fn interrupt_cores(host: &Host) -> Cores {
    let cards: Vec<String> = host.list("/sys/class/net");
    // A virtio card's interrupts belong to the device above it.
    let folders =
        cards.iter().flat_map(|card| ["", "../"].map(|up| format!("/sys/class/net/{card}/device/{up}msi_irqs")));
    let numbers = folders.flat_map(|folder| host.list(&folder));
    let lists = numbers.filter_map(|number| {
        let folder = format!("/proc/irq/{number}");
        host.text(&format!("{folder}/effective_affinity_list"))
            .or_else(|| host.text(&format!("{folder}/smp_affinity_list")))
    });
    Cores::new(lists.filter_map(|list| list.parse::<Cores>().ok()).flat_map(|cores| cores.iter().collect::<Vec<_>>()))
}

fn affinity(host: &Host, request: &Request, target: &Target) -> Option<Proposal> {
    let interrupts = interrupt_cores(host);
    let of_thread = |task: &Task| Some((*task, host.kernel().cores(task.thread).ok()?));
    let threads: Vec<(Task, Cores)> = target.threads.iter().filter_map(of_thread).collect();
    let own = own_cores(host, target)?;
    let free = own.without(&interrupts);
    if own.len() < MANY_CORES || free.len() == own.len() || free.is_empty() {
        return None;
    }
    // A thread that somebody has put on certain cores gets no other ones, and one that has no other stays.
    let change = |(task, cores): &(Task, Cores)| {
        let rest = cores.without(&interrupts);
        (rest.len() < cores.len() && !rest.is_empty()).then(|| Change::new(Place::Cores(*task), rest.to_string()))
    };
    let changes: Vec<Change> = threads.iter().filter_map(change).collect();
    if changes.is_empty() {
        return None;
    }
    let proposal = Proposal::new(&AFFINITY, own.to_string(), free.to_string())
        .because(format!("interrupts of the network are on {interrupts}{}", pinning(host, target)))
        .optional();
    let is_one_set = threads.iter().all(|(_, cores)| *cores == own);
    let proposal = if is_one_set { proposal.in_unit(format!("CPUAffinity={free}")) } else { proposal };
    Some(match request.program {
        Program::Strowger => proposal.by_hand(format!("server.affinity = [{}]", list(&free))),
        Program::Kamailio | Program::OpenSips | Program::Other => proposal.by(changes),
    })
}

/// Returns the cores on which a server may run: those of all its threads.
pub(crate) fn own_cores(host: &Host, target: &Target) -> Option<Cores> {
    let sets = target.threads.iter().filter_map(|task| host.kernel().cores(task.thread).ok());
    let all = Cores::new(sets.flat_map(|cores| cores.iter().collect::<Vec<_>>()));
    (!all.is_empty()).then_some(all)
}

/// Returns the cores to which somebody has limited the server, by affinity or by a control group; `None` if it may run
/// on all.
fn limited_cores(host: &Host, target: Option<&Target>) -> Option<Cores> {
    let own = own_cores(host, target?)?;
    (!online(host)?.without(&own).is_empty()).then_some(own)
}

/// Returns what a reason says of such a limit.
fn pinning(host: &Host, target: &Target) -> String {
    let limit = limited_cores(host, Some(target));
    limit.map_or_else(String::new, |cores| format!("; its limit to the cores {cores} is kept"))
}

fn list(cores: &Cores) -> String {
    cores.iter().map(|core| core.to_string()).collect::<Vec<_>>().join(", ")
}

/// Returns the cores of the machine that are on.
pub(crate) fn online(host: &Host) -> Option<Cores> {
    host.text("/sys/devices/system/cpu/online")?.parse().ok()
}

fn weight(host: &Host, target: &Target) -> Option<Proposal> {
    if target.is_in_root_group() {
        return None;
    }
    let (folder, is_version_2) = target.group(host, "cpu")?;
    let (name, wanted) = if is_version_2 { ("cpu.weight", WEIGHT) } else { ("cpu.shares", SHARES) };
    let path = format!("{folder}/{name}");
    let current = host.number(&path).filter(|current| *current < wanted)?;
    let proposal = Proposal::new(&CPU_WEIGHT, current.to_string(), wanted.to_string())
        .because(format!("nice values do not count outside of {}", target.unit().unwrap_or("its group")))
        .by(vec![Change::new(Place::file(path), wanted.to_string())])
        .in_unit(format!("CPUWeight={WEIGHT}"));
    Some(proposal)
}

fn quota(host: &Host, target: &Target) -> Option<Proposal> {
    let (folder, is_version_2) = target.group(host, "cpu")?;
    let (path, current, unlimited) = if is_version_2 {
        let path = format!("{folder}/cpu.max");
        let text = host.text(&path)?;
        let period = text.split(' ').nth(1)?.to_owned();
        (path, text, format!("max {period}"))
    } else {
        let path = format!("{folder}/cpu.cfs_quota_us");
        let text = host.text(&path)?;
        (path, text, "-1".to_owned())
    };
    if current.starts_with("max") || current == "-1" {
        return None;
    }
    let throttled = host.text(&format!("{folder}/cpu.stat")).unwrap_or_default();
    let throttled = throttled.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.parse::<u64>().ok());
    let proposal = Proposal::new(&CPU_QUOTA, current, unlimited.clone())
        .because(format!("it stood still in {} periods", throttled.unwrap_or(0)))
        .optional()
        .by(vec![Change::new(Place::file(path), unlimited)])
        .in_unit("CPUQuota=");
    Some(proposal)
}

/// Returns the names of the cores in `/sys/devices/system/cpu`, only those of `limit` if there is one.
fn core_names(host: &Host, limit: Option<&Cores>) -> Vec<String> {
    let mut names = host.list("/sys/devices/system/cpu");
    let number = |name: &str| name.strip_prefix("cpu")?.parse::<usize>().ok();
    names.retain(|name| {
        number(name).is_some_and(|core| limit.is_none_or(|limit| limit.iter().any(|other| other == core)))
    });
    names
}

/// Returns the end of a reason if a proposal concerns only the cores of `limit`.
fn only(limit: Option<&Cores>) -> String {
    limit.map_or_else(String::new, |cores| format!("; only {cores}, to which the server is limited"))
}

fn governor(host: &Host, limit: Option<&Cores>) -> Option<Proposal> {
    let cores = core_names(host, limit);
    let path = |core: &String| format!("/sys/devices/system/cpu/{core}/cpufreq/scaling_governor");
    let offers = |core: &String| {
        let file = format!("/sys/devices/system/cpu/{core}/cpufreq/scaling_available_governors");
        host.text(&file).is_some_and(|all| all.split_whitespace().any(|one| one == "performance"))
    };
    let slow: Vec<(String, String)> = cores
        .iter()
        .filter(|core| offers(core))
        .filter_map(|core| Some((path(core), host.text(&path(core)).filter(|now| now != "performance")?)))
        .collect();
    let current = slow.first()?.1.clone();
    let changes = slow.iter().map(|(path, _)| Change::new(Place::file(path.clone()), "performance")).collect();
    let proposal = Proposal::new(&GOVERNOR, current, "performance")
        .because(format!("{} cores slow down between packets{}", slow.len(), only(limit)))
        .by(changes);
    Some(proposal)
}

fn idle_states(host: &Host, limit: Option<&Cores>) -> Option<Proposal> {
    let mut changes = Vec::new();
    let mut slowest = 0;
    for core in core_names(host, limit) {
        let folder = format!("/sys/devices/system/cpu/{core}/cpuidle");
        for state in host.list(&folder).iter().filter(|name| name.starts_with("state")) {
            let latency = host.number(&format!("{folder}/{state}/latency")).unwrap_or(0);
            let disable = format!("{folder}/{state}/disable");
            if latency > SLOW_WAKE_US && host.text(&disable).as_deref() == Some("0") {
                slowest = slowest.max(latency);
                changes.push(Change::new(Place::file(disable), "1"));
            }
        }
    }
    if changes.is_empty() {
        return None;
    }
    let proposal = Proposal::new(&IDLE_STATES, "on", "off")
        .because(format!("waking takes up to {slowest} µs{}", only(limit)))
        .optional()
        .by(changes);
    Some(proposal)
}

/// Returns the proposal for the scheduler of the whole machine, where threads have no slices of their own.
fn machine(host: &Host) -> Option<Proposal> {
    match scheduler(host) {
        Scheduler::EevdfWithSlices | Scheduler::Loaded => None,
        Scheduler::Eevdf => {
            let current = host.number(BASE_SLICE_FILE).filter(|now| *now > BASE_SLICE_NS)?;
            let proposal = Proposal::new(&BASE_SLICE, current.to_string(), BASE_SLICE_NS.to_string())
                .because("this kernel has one slice for all threads")
                .by(vec![Change::new(Place::file(BASE_SLICE_FILE), BASE_SLICE_NS.to_string())]);
            Some(proposal)
        }
        Scheduler::Cfs => cfs(host),
    }
}

fn cfs(host: &Host) -> Option<Proposal> {
    let cores = online(host).map_or(1, |cores| cores.len());
    let latency = (800_000 * cores).to_string();
    // The kernel keeps the granularity below the latency, so the latency comes first.
    let wanted = [
        ("tunable_scaling", "0"),
        ("latency_ns", latency.as_str()),
        ("min_granularity_ns", "100000"),
        ("wakeup_granularity_ns", "0"),
        ("migration_cost_ns", "0"),
    ];
    let path = |name: &str| {
        let paths = [format!("/proc/sys/kernel/sched_{name}"), format!("/sys/kernel/debug/sched/{name}")];
        paths.into_iter().find(|path| host.has(path))
    };
    let changes: Vec<Change> = wanted
        .iter()
        .filter_map(|(name, value)| Some((path(name)?, *value)))
        .filter(|(path, value)| host.text(path).as_deref() != Some(value))
        .map(|(path, value)| Change::new(Place::file(path), value))
        .collect();
    if changes.is_empty() {
        return None;
    }
    let proposal = Proposal::new(&CFS, "desktop or server mode", "enhanced server mode")
        .because(format!("{} parameters differ", changes.len()))
        .by(changes);
    Some(proposal)
}
