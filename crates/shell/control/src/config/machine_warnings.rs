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
                "{workers} workers on {}: they take the processor from one another; lower it, or leave it out for one a \
                 core",
                counted(cores, "core")
            );
            tell("server.workers", what);
        }
        // If workers is also set, a higher value is refused.
        if let Some(least) = self.server.min_workers.filter(|least| *least > workers) {
            let there = counted(workers.into(), "worker");
            let what = format!("{least} is more than there are, {there} (one a core): all of them have work; lower it");
            tell("server.min_workers", what);
        }
        if self.server.steering == Steering::Packets && workers == 1 {
            tell("server.steering", "packets has no effect, for there is one worker; leave it out".to_owned());
        }
        if self.server.spin == Spin::Always && usize::from(workers) >= cores {
            let what = format!(
                "always, with {} on {}: under load they leave no core to anything else on the machine, and below a quota of a \
                 container they use it up; set server.workers to fewer than the cores, or leave spin out",
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
                    "auto has {} for {}: the others go wherever the system likes; lower server.workers, or write \
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
                "there is no core {core} that this process may use, so worker {index} goes wherever the system likes; \
                 name one of {}, or write affinity = \"auto\"",
                ranges(usable)
            );
            tell(&format!("server.affinity[{index}]"), what);
        }
        if cores.len() != workers {
            let consequence = if cores.len() < workers {
                "the workers behind them go wherever the system likes; name one for each, or write affinity = \"auto\""
            } else {
                "those behind the last worker have none; remove them, or raise server.workers"
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
