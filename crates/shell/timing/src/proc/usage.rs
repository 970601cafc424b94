//! Processor time of the threads of a program, and how long they waited for a processor.

use std::collections::{BTreeMap, BTreeSet};

use super::host::Host;

/// What a thread used since the start of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadUse {
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// Processor time, ns.
    pub cpu_ns: u64,
    /// Time in which it could have run but waited for a processor, ns.
    pub runnable_ns: u64,
    /// Number of times that it got a processor.
    pub slices: u64,
    /// Number of times that it gave up the processor to wait for something.
    pub voluntary: u64,
    /// Number of times that the scheduler took the processor away.
    pub involuntary: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    cpu_ns: u64,
    runnable_ns: u64,
    slices: u64,
    voluntary: u64,
    involuntary: u64,
}

/// Sampler of the threads of processes and of their children. Threads that ended keep what they had used when they
/// were last seen.
#[derive(Clone, Debug)]
pub struct UsageSampler {
    host: Host,
    pids: Vec<u32>,
    threads: BTreeMap<(u32, u32), (String, Counters, Counters)>,
}

impl UsageSampler {
    /// Starts a measurement.
    #[must_use]
    pub fn start(host: &Host, pids: &[u32]) -> Self {
        let mut sampler = Self { host: host.clone(), pids: pids.to_vec(), threads: BTreeMap::new() };
        sampler.read(|counters| counters);
        sampler
    }

    /// Reads what the threads have used until now.
    pub fn sample(&mut self) {
        // A new thread has used everything since the start.
        self.read(|_| Counters::default());
    }

    fn read(&mut self, first: impl Fn(Counters) -> Counters) {
        for pid in self.host.process_tree(&self.pids) {
            for thread in self.host.numbers(&format!("{pid}/task")) {
                let Some(now) = self.counters(pid, thread) else { continue };
                let entry = self.threads.entry((pid, thread)).or_insert_with(|| {
                    let name = self.host.read(&format!("{pid}/task/{thread}/comm"));
                    (name.trim_end().to_owned(), first(now), now)
                });
                entry.2 = now;
            }
        }
    }

    fn counters(&self, pid: u32, thread: u32) -> Option<Counters> {
        let folder = format!("{pid}/task/{thread}");
        let schedule = self.host.read(&format!("{folder}/schedstat"));
        let mut numbers = schedule.split_ascii_whitespace().map(|number| number.parse::<u64>().unwrap_or(0));
        let (cpu_ns, runnable_ns, slices) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let status = self.host.read(&format!("{folder}/status"));
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        Some(Counters {
            cpu_ns,
            runnable_ns,
            slices,
            voluntary: field("voluntary_ctxt_switches:"),
            involuntary: field("nonvoluntary_ctxt_switches:"),
        })
    }

    /// Returns what each thread used, the busiest first.
    #[must_use]
    pub fn threads(&self) -> Vec<ThreadUse> {
        let mut uses: Vec<ThreadUse> = self
            .threads
            .iter()
            .map(|((pid, thread), (name, first, last))| ThreadUse {
                pid: *pid,
                thread: *thread,
                name: name.clone(),
                cpu_ns: last.cpu_ns.saturating_sub(first.cpu_ns),
                runnable_ns: last.runnable_ns.saturating_sub(first.runnable_ns),
                slices: last.slices.saturating_sub(first.slices),
                voluntary: last.voluntary.saturating_sub(first.voluntary),
                involuntary: last.involuntary.saturating_sub(first.involuntary),
            })
            .collect();
        uses.sort_by_key(|one| std::cmp::Reverse((one.cpu_ns, one.runnable_ns)));
        uses
    }

    /// Returns the processors in use over `seconds` since the start; `None` if no thread can be seen.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a time of 100 days is exact")]
    pub fn cpu(&self, seconds: f64) -> Option<f64> {
        let used: u64 = self.threads().iter().map(|one| one.cpu_ns).sum();
        (!self.threads.is_empty() && seconds > 0.0).then(|| used as f64 / 1e9 / seconds)
    }

    /// Returns the share that was used of the processor time that the program can use for its packets, over `seconds`
    /// since the start: 1 is at its capacity. That is what the threads `receivers` can use, or with none known, those
    /// that were busy for 1 % of the time; at most the processors on which the program may run. `None` if unknown.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a time of 100 days is exact")]
    pub fn load(&self, receivers: &BTreeSet<u32>, seconds: f64) -> Option<f64> {
        let allowed = self.host.allowed_processors(&self.host.process_tree(&self.pids))? as f64;
        let threads = self.threads();
        let share = |one: &ThreadUse| one.cpu_ns as f64 / 1e9 / seconds;
        let total: f64 = threads.iter().map(share).sum();
        // In a container the threads have other numbers here than for the probe.
        let is_known = threads.iter().any(|one| receivers.contains(&one.thread));
        let busy =
            threads.iter().filter(|one| if is_known { receivers.contains(&one.thread) } else { share(one) > 0.01 });
        let shares: Vec<f64> = busy.map(share).collect();
        let can_use = (shares.len() as f64).clamp(1.0, allowed.max(1.0));
        (seconds > 0.0).then(|| (shares.iter().sum::<f64>() / can_use).max(total / allowed))
    }

    /// Says how long the threads waited for a processor; `None` if that is unknown.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a time of 100 days is exact")]
    pub fn scheduling(&self, seconds: f64) -> Option<String> {
        let threads = self.threads();
        let sum = |of: fn(&ThreadUse) -> u64| threads.iter().map(of).sum::<u64>() as f64;
        let (waited, slices) = (sum(|one| one.runnable_ns), sum(|one| one.slices));
        if slices == 0.0 || seconds <= 0.0 {
            return None;
        }
        Some(format!(
            "its threads waited {:.1} µs for a processor each time they could run ({:.1} % of the period in total), and \
             were switched {:.0} times a second, {:.0} of them against their will",
            waited / slices / 1e3,
            waited / 1e7 / seconds,
            (sum(|one| one.voluntary) + sum(|one| one.involuntary)) / seconds,
            sum(|one| one.involuntary) / seconds
        ))
    }
}
