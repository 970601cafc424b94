//! Warnings about settings that exceed the machine.

use super::values::{Affinity, Spin};
use super::{Config, Steering};

impl Config {
    /// Returns warnings about the workers on a machine with `cores`, of which the process may use those numbered
    /// `usable`: each a key and the problem with its remedy. None of them prevents a start.
    #[must_use]
    pub fn machine_warnings(&self, cores: usize, usable: &[usize]) -> Vec<(String, String)> {
        let workers = self.workers(cores);
        let mut found = Vec::new();
        let mut tell = |key: &str, what: String| found.push((key.to_owned(), what));
        if self.server.workers.is_some() && usize::from(workers) > cores {
            let what = format!(
                "{workers} workers on {}: they compete for CPU time; lower it, or omit it for one worker per \
                 core",
                counted(cores, "core")
            );
            tell("server.workers", what);
        }
        // If workers is also set, a higher value is refused.
        if let Some(least) = self.server.min_workers.filter(|least| *least > workers) {
            let there = counted(workers.into(), "worker");
            let what = format!("{least} is more than the {there} (one per core), so all of them are active; lower it");
            tell("server.min_workers", what);
        }
        if self.server.steering == Steering::Packets && workers == 1 {
            tell("server.steering", "packets has no effect with one worker; omit it".to_owned());
        }
        if self.server.spin == Spin::Always && usize::from(workers) >= cores {
            let what = format!(
                "always, with {} on {}: under load they leave no core to other processes, and in a container with a CPU quota they use it \
                 up; set server.workers to fewer than the cores, or omit spin",
                counted(workers.into(), "worker"),
                counted(cores, "core")
            );
            tell("server.spin", what);
        }
        self.affinity_warnings(workers.into(), usable, tell);
        found
    }

    fn affinity_warnings(&self, workers: usize, usable: &[usize], mut tell: impl FnMut(&str, String)) {
        if usable.is_empty() {
            return;
        }
        let cores = match &self.server.affinity {
            Affinity::None => return,
            Affinity::Auto if workers > usable.len() => {
                let what = format!(
                    "auto has {} for {}: the scheduler places the other workers; lower server.workers, or write \
                     affinity = \"none\"",
                    counted(usable.len(), "core"),
                    counted(workers, "worker"),
                );
                return tell("server.affinity", what);
            }
            Affinity::Auto => return,
            Affinity::Cores(cores) => cores,
        };
        let of_workers = cores.iter().enumerate().take(workers);
        for (index, core) in of_workers.filter(|(_, core)| !usable.contains(&usize::from(**core))) {
            let what = format!(
                "this process may not use core {core}, so the scheduler places worker {index}; \
                 use one of {}, or write affinity = \"auto\"",
                ranges(usable)
            );
            tell(&format!("server.affinity[{index}]"), what);
        }
        if cores.len() != workers {
            let consequence = if cores.len() < workers {
                "the scheduler places the other workers; list one core per worker, or write affinity = \"auto\""
            } else {
                "the extra cores are unused; remove them, or raise server.workers"
            };
            let (named, there) = (counted(cores.len(), "core"), counted(workers, "worker"));
            tell("server.affinity", format!("{named} for {there}: {consequence}"));
        }
    }
}

fn counted(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// Formats core numbers as `0-3, 8`.
fn ranges(cores: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for core in cores {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *core => *last = *core,
            _ => parts.push((*core, *core)),
        }
    }
    let shown = |(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    parts.iter().map(shown).collect::<Vec<_>>().join(", ")
}
