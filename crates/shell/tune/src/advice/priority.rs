//! Which thread runs when: slices, policies, nice values, autogroups.

use strowger_net::{Policy, Scheduling};

use crate::apply::{Change, Wanted};
use crate::host::Host;
use crate::place::{Form, Place, Task};
use crate::proposal::{Group, Proposal, Request, Topic};
use crate::release::{Scheduler, scheduler};
use crate::target::{Program, Target};

/// Slice that is proposed: the shortest that the kernel grants.
const SLICE_NS: u64 = 100_000;
/// Nice value that is proposed, as in the unit file of this server.
const NICE: i32 = -10;
/// Real-time priority that is proposed: below the kernel's own threads (50).
const PRIORITY: u32 = 10;
const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

pub(crate) static SLICE: Topic = Topic {
    name: "slice",
    group: Group::Scheduler,
    title: "scheduler slice of the server's threads",
    gain: "a shorter wait after a wake-up, in theory; beside a program of another session none was measured \
           (bench/TUNING.md). Thesis, table 6.3, with CFS: 26 to 41 % fewer drops, 7 to 34 % less K_rcv",
    risk: "a busy thread is interrupted more often when others wait for the core; none when it has the core for itself",
    explanation: "EEVDF runs the eligible thread with the earliest deadline, and a thread's deadline is its share of the \
        core after one slice. A server with a short slice therefore gets the core soon after a packet wakes it, although \
        its share of the core stays the same. The slice is set for each thread (sched_setattr, sched_runtime), since Linux \
        6.12, between 0.1 and 100 ms. Threads started later inherit it. Our \
        benchmark found no gain beside a busy program of another session.\n\
        The thesis (sections 6.3 and 7.4) tuned CFS for the same two effects: sched_wakeup_granularity_ns = 0, so that a \
        woken thread runs at once, and sched_min_granularity_ns about equal to T_sip, so that a packet is processed \
        without interruption. T_sip is 10 to 20 µs today and 100 to 400 µs then, so the shortest slice of 100 µs is still \
        several packets long. systemd has no setting for it: the drop-in runs this command after the start.",
};

pub(crate) static BATCH: Topic = Topic {
    name: "batch",
    group: Group::Scheduler,
    title: "SCHED_BATCH for servers with more processes than cores",
    gain: "fewer switches between the server's own processes; not in the thesis, which had only CFS's wake-up granularity",
    risk: "a woken process waits for the running one also when that is another program: do not use it on a core shared \
           with busy programs",
    explanation: "When a packet arrives, the kernel wakes another receiver, and with the default policy it may interrupt \
        the one that is running. Both do the same work, so the switch gains nothing and costs its caches. Threads of \
        SCHED_BATCH do not interrupt others when they wake up; everything else is as with the default policy. The thesis \
        finds the same cost as β(λ, c), which grows with the number of processes c on one core (tables 5.2 to 5.6). The \
        better remedy is as many processes as cores (children in Kamailio, udp_workers in OpenSIPS), which the thesis shows too (table 6.1: 2,200 \
        calls/s with 2 threads, 1,200 with 16).",
};

pub(crate) static NICE_VALUE: Topic = Topic {
    name: "nice",
    group: Group::Scheduler,
    title: "nice value of the server",
    gain: "calls do not wait for backups, logs and cron jobs on the same cores; nothing on a machine that has no other work",
    risk: "with server.spin = \"always\", or a program that loops, the others get almost nothing",
    explanation: "A nice value of -10 gives the server ten times the weight of a default program (each step is a factor of \
        1.25). A server that sleeps when idle takes nothing away by it. Within a session or a control group with its own \
        weight, nice values count only against programs of the same group: see autogroup and cpu-weight.",
};

pub(crate) static AUTOGROUP_OFF: Topic = Topic {
    name: "autogroup",
    group: Group::Scheduler,
    title: "automatic groups of sessions",
    gain: "makes nice values count against the whole machine, for programs started afterwards; by itself nothing",
    risk: "an interactive session is no longer protected from the many processes of another one",
    explanation: "With sched_autogroup_enabled = 1 each session (setsid) is a group of its own, and all groups get the same \
        share of a core. A server with nice -10 then competes with a compiler in another session as equals: its nice value \
        counts only inside its session, where nothing else runs. The kernel uses automatic groups only for processes in \
        the root group of the CPU controller; services of systemd with CPU accounting are not concerned. A process keeps \
        its group: turning groups off concerns programs started afterwards, so it belongs into a file that lasts (--write \
        sysctl). For a running server there is autogroup-nice.",
};

pub(crate) static AUTOGROUP_NICE: Topic = Topic {
    name: "autogroup-nice",
    group: Group::Scheduler,
    title: "nice value of the server's session",
    gain: "as nice, against the whole machine, and without a change for other sessions",
    risk: "as nice; it ends with the session, and no file makes it last",
    explanation: "While automatic groups are on, the kernel schedules sessions as programs are scheduled without them: each \
        session has a nice value of its own, /proc/PID/autogroup. Setting that of the server's session does for the server \
        what nice and autogroup do together, at once, and leaves the protection of interactive sessions as it is.",
};

pub(crate) static FIFO: Topic = Topic {
    name: "fifo",
    group: Group::Scheduler,
    title: "real-time policy SCHED_FIFO",
    gain: "runs before every normal program at once; the thesis names no real-time policy",
    risk: "a server that loops locks everybody else out for 95 % of each second (sched_rt_runtime_us), ssh included; with \
           many processes on a core the first keeps it",
    explanation: "Normal programs run only when no thread of SCHED_FIFO is ready. It is the strongest form of priority and \
        unlike nice it has no fairness: the server's own helper processes, the generator of a test, and kernel threads of \
        normal priority (including ksoftirqd, which delivers packets under load) wait as well. Use it where the server has \
        cores of its own and sleeps.",
};

pub(crate) static RR: Topic = Topic {
    name: "rr",
    group: Group::Scheduler,
    title: "real-time policy SCHED_RR",
    gain: "as fifo, and processes of the server take turns (sched_rr_timeslice_ms)",
    risk: "as fifo",
    explanation: "As fifo, but threads of the same priority take turns of 100 ms by default, so a busy process does not keep \
        the others from running for ever. A turn is long against T1: the other processes wait for it.",
};

pub(crate) static TOPICS: [&Topic; 7] = [&SLICE, &BATCH, &NICE_VALUE, &AUTOGROUP_OFF, &AUTOGROUP_NICE, &FIFO, &RR];

/// A thread with its scheduling.
type Thread = (Task, Scheduling);

/// Returns the proposals on priorities.
pub(crate) fn advise(host: &Host, request: &Request) -> Vec<Proposal> {
    let Some(target) = &request.target else { return Vec::new() };
    let threads: Vec<Thread> =
        target.threads.iter().filter_map(|task| Some((*task, host.kernel().scheduling(task.thread).ok()?))).collect();
    if threads.is_empty() {
        return Vec::new();
    }
    let mut all = Vec::new();
    all.extend(batch(request, target, &threads));
    all.extend(slice(host, target, &threads));
    all.extend(nice(&threads));
    all.extend(autogroup(host, target));
    all.extend(autogroup_nice(host, target));
    all.extend(real_time(&threads, Policy::Fifo, &FIFO));
    all.extend(real_time(&threads, Policy::RoundRobin, &RR));
    all
}

fn slice(host: &Host, target: &Target, threads: &[Thread]) -> Option<Proposal> {
    if scheduler(host) != Scheduler::EevdfWithSlices {
        return None;
    }
    let is_longer = |(_, scheduling): &&Thread| {
        !scheduling.policy.is_real_time() && (scheduling.slice_ns == 0 || scheduling.slice_ns > SLICE_NS)
    };
    let longer: Vec<&Thread> = threads.iter().filter(is_longer).collect();
    let slowest = longer.iter().map(|(_, scheduling)| scheduling.slice_ns).max()?;
    let current = if slowest == 0 { "default".to_owned() } else { format!("{} µs", slowest / 1_000) };
    // With a minus, the server starts even if its threads cannot be set.
    let unit = format!(
        "ExecStartPost=-+/usr/local/bin/strowger tune --pid $MAINPID --apply slice --state /run/strowger-tune-{}.json",
        target.file_name()
    );
    let changes = longer.iter().map(|(task, _)| set(task, Wanted::Slice(SLICE_NS))).collect();
    let proposal = Proposal::new(&SLICE, current, format!("{} µs", SLICE_NS / 1_000))
        .because(format!("{}; no gain was measured beside a program of another session", count(&longer)))
        .optional()
        .by(changes)
        .in_unit(unit);
    Some(proposal)
}

fn batch(request: &Request, target: &Target, threads: &[Thread]) -> Option<Proposal> {
    let default: Vec<&Thread> = threads.iter().filter(|(_, scheduling)| scheduling.policy == Policy::Other).collect();
    let receivers = target.receivers.unwrap_or(target.processes.len());
    let has_children = matches!(request.program, Program::Kamailio | Program::OpenSips);
    if default.is_empty() || receivers < 2 || !has_children {
        return None;
    }
    let changes = default.iter().map(|(task, _)| set(task, Wanted::Policy(Policy::Batch, 0))).collect();
    let proposal = Proposal::new(&BATCH, "other", "batch")
        .because(format!("{receivers} processes interrupt each other when packets wake them; on cores of their own"))
        .optional()
        .by(changes)
        .in_unit("CPUSchedulingPolicy=batch");
    Some(proposal)
}

fn nice(threads: &[Thread]) -> Option<Proposal> {
    let later: Vec<&Thread> =
        threads.iter().filter(|(_, scheduling)| !scheduling.policy.is_real_time() && scheduling.nice > NICE).collect();
    let current = later.iter().map(|(_, scheduling)| scheduling.nice).max()?;
    let changes = later.iter().map(|(task, _)| set(task, Wanted::Nice(NICE))).collect();
    let proposal = Proposal::new(&NICE_VALUE, current.to_string(), NICE.to_string())
        .because("calls wait for the server; other programs can wait for it")
        .by(changes)
        .in_unit(format!("Nice={NICE}"));
    Some(proposal)
}

fn autogroup(host: &Host, target: &Target) -> Option<Proposal> {
    let is_on = host.text(AUTOGROUP).as_deref() == Some("1");
    if !is_on || !target.is_in_root_group() {
        return None;
    }
    let proposal = Proposal::new(&AUTOGROUP_OFF, "1", "0")
        .because("for programs started afterwards: nice values count against the whole machine")
        .optional()
        .by(vec![Change::new(Place::file(AUTOGROUP), "0")]);
    Some(proposal)
}

fn autogroup_nice(host: &Host, target: &Target) -> Option<Proposal> {
    let is_on = host.text(AUTOGROUP).as_deref() == Some("1");
    if !is_on || !target.is_in_root_group() {
        return None;
    }
    let path = format!("/proc/{}/autogroup", target.pid());
    let group = host.text(&path)?;
    let place = Place::File { path, form: Form::Autogroup };
    let current = place.read(host).ok()?;
    if current.parse::<i32>().is_ok_and(|nice| nice <= NICE) {
        return None;
    }
    let proposal = Proposal::new(&AUTOGROUP_NICE, current, NICE.to_string())
        .because(format!("nice values count only inside {}", group.split(' ').next().unwrap_or("its session")))
        .by(vec![Change::new(place, NICE.to_string())]);
    Some(proposal)
}

fn real_time(threads: &[Thread], policy: Policy, topic: &'static Topic) -> Option<Proposal> {
    let normal: Vec<&Thread> = threads.iter().filter(|(_, scheduling)| !scheduling.policy.is_real_time()).collect();
    let current = normal.first()?.1.policy.name();
    let changes = normal.iter().map(|(task, _)| set(task, Wanted::Policy(policy, PRIORITY))).collect();
    let mut proposal = Proposal::new(topic, current, format!("{} {PRIORITY}", policy.name()))
        .because("only where the server has its cores for itself")
        .optional()
        .by(changes);
    proposal.unit_lines =
        vec![format!("CPUSchedulingPolicy={}", policy.name()), format!("CPUSchedulingPriority={PRIORITY}")];
    Some(proposal)
}

fn set(task: &Task, value: Wanted) -> Change {
    Change { place: Place::Scheduling(*task), value }
}

fn count(threads: &[&Thread]) -> String {
    match threads.len() {
        1 => "1 thread".to_owned(),
        many => format!("{many} threads"),
    }
}
