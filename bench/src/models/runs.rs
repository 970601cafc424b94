//! Runs that measure drops, and the results of a load without disturbances: tables of all runs, and the tables
//! derived from them for `strowger plan`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::observation::{Observation, circumstances, write as write_table};
use crate::proxy::figures::middle;

/// Allowed excess of the processor time per packet over the best run, for a run to count.
const SLACK: f64 = 0.08;

/// A server under a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Name of the server.
    pub name: String,
    /// c: threads or processes that receive from its socket.
    pub servers: u32,
    /// K: packets in the socket or in service.
    pub queue: u64,
    /// Whether the fit uses it.
    pub seen: bool,
    /// Offered calls per second.
    pub calls: f64,
    /// λ: packets per second.
    pub rate: f64,
    /// Processor time per served packet, in µs.
    pub each_us: f64,
    /// Share of dropped packets.
    pub drops: f64,
    /// Average number of cores busy with packets.
    pub cpu: f64,
}

impl Run {
    fn observation(&self) -> Observation {
        Observation {
            name: self.name.clone(),
            servers: self.servers,
            queue: Some(self.queue),
            calls_per_s: self.calls,
            packets_per_s: self.rate,
            // The servers share the core, which multiplies each one's service time by their number.
            service_us: Some(f64::from(self.servers) * self.each_us),
            drops: Some(self.drops),
            busy: self.cpu,
            ..Observation::default()
        }
    }
}

/// Saves all runs in `NAME-runs.csv` with the conditions above them as comments.
///
/// # Errors
/// If the file cannot be written.
pub fn keep(folder: &Path, name: &str, around: &str, runs: &[Run]) -> io::Result<()> {
    let mut text = Vec::new();
    for line in around.lines() {
        writeln!(text, "# {line}")?;
    }
    let mut table = csv::Writer::from_writer(text);
    runs.iter().try_for_each(|run| table.serialize(run))?;
    let text = table.into_inner().map_err(csv::IntoInnerError::into_error)?;
    fs::write(folder.join(format!("{name}-runs.csv")), text)
}

/// Derives `NAME-seen.csv` and `NAME-unseen.csv` from `NAME-runs.csv`, if that exists.
///
/// # Errors
/// If a file cannot be read or written.
pub fn settle(folder: &Path, name: &str) -> io::Result<()> {
    let file = folder.join(format!("{name}-runs.csv"));
    if !file.is_file() {
        return Ok(());
    }
    let mut table = csv::ReaderBuilder::new().comment(Some(b'#')).from_path(&file)?;
    let all = table.deserialize().collect::<Result<Vec<Run>, _>>()?;
    let (counted, runs) = undisturbed(&all);
    let around = format!(
        "{}\n- Runs: {counted} of {} count, in which a packet took at most {:.0} % longer than in the best run of that server at that \
         rate or at a lower one",
        circumstances(&file)?,
        all.len(),
        100.0 * SLACK,
    );
    for (seen, which) in [(true, "seen"), (false, "unseen")] {
        let own: Vec<Observation> = runs.iter().filter(|run| run.seen == seen).map(Run::observation).collect();
        write_table(&folder.join(format!("{name}-{which}.csv")), &around, &own)?;
    }
    Ok(())
}

/// Returns the undisturbed result of each load of each server, the median of each figure over the runs that count,
/// and the total number of runs that count.
///
/// Other work on the physical machine only increases the time per packet, as does a lower rate, which needs more
/// wake-ups. So a run counts if its time per packet hardly exceeds that of the best run of the same server at the
/// same or a lower rate. This criterion depends on disturbances, not on drops. A load without undisturbed runs is
/// left out.
fn undisturbed(all: &[Run]) -> (usize, Vec<Run>) {
    let (mut counted, mut settled) = (0, Vec::new());
    let mut servers: Vec<&str> = Vec::new();
    for run in all {
        if !servers.contains(&run.name.as_str()) {
            servers.push(&run.name);
        }
    }
    for server in servers {
        let mut loads: BTreeMap<u64, Vec<&Run>> = BTreeMap::new();
        // Non-negative floats compare like their bits.
        all.iter().filter(|run| run.name == server).for_each(|run| {
            loads.entry(run.calls.to_bits()).or_default().push(run);
        });
        let mut best = f64::INFINITY;
        for runs in loads.values() {
            best = runs.iter().map(|run| run.each_us).fold(best, f64::min);
            let own: Vec<&Run> = runs.iter().copied().filter(|run| run.each_us <= best * (1.0 + SLACK)).collect();
            counted += own.len();
            settled.extend(median(&own));
        }
    }
    (counted, settled)
}

/// Returns the median of each figure, or `None` without runs.
fn median(runs: &[&Run]) -> Option<Run> {
    let of = |figure: fn(&Run) -> f64| middle(runs.iter().map(|run| figure(run)).collect());
    let first = (*runs.first()?).clone();
    Some(Run {
        rate: of(|run| run.rate)?,
        each_us: of(|run| run.each_us)?,
        drops: of(|run| run.drops)?,
        cpu: of(|run| run.cpu)?,
        ..first
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(servers: u32, calls: f64, each_us: f64, drops: f64) -> Run {
        Run {
            name: format!("pool of {servers}"),
            servers,
            queue: 800,
            seen: calls < 2.0,
            calls,
            rate: 6.0 * calls,
            each_us,
            drops,
            cpu: 0.5,
        }
    }

    #[test]
    fn only_undisturbed_runs_count() {
        let all = [
            run(1, 1.0, 10.0, 0.0),
            run(1, 1.0, 10.4, 0.1),
            run(1, 1.0, 10.9, 0.9),
            // Within the slack of the best run at a lower rate; the others do not matter.
            run(1, 2.0, 10.5, 0.2),
            run(1, 2.0, 12.0, 0.9),
            run(1, 2.0, 12.0, 0.9),
            run(1, 3.0, 11.0, 0.9),
            // Each server is judged separately.
            run(2, 1.0, 20.0, 0.3),
        ];
        let (counted, settled) = undisturbed(&all);
        let drops: Vec<(u32, f64, f64)> = settled.iter().map(|run| (run.servers, run.calls, run.drops)).collect();
        assert_eq!(drops, [(1, 1.0, 0.05), (1, 2.0, 0.2), (2, 1.0, 0.3)]);
        assert_eq!(counted, 4);
        assert_eq!(undisturbed(&[]), (0, Vec::new()));
    }

    #[test]
    fn tables_are_made_of_all_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect("written");
        settle(folder.path(), "pools").expect("there is nothing to do");
        keep(folder.path(), "pools", "- Machine: one", &[run(2, 1.0, 5.0, 0.0), run(2, 3.0, 4.5, 0.25)]).expect("kept");
        let head = "# - Machine: one\nname,servers,queue,seen,calls,rate,each_us,drops,cpu\n";
        assert_eq!(
            read("pools-runs.csv"),
            format!("{head}pool of 2,2,800,true,1.0,6.0,5.0,0.0,0.5\npool of 2,2,800,false,3.0,18.0,4.5,0.25,0.5\n")
        );
        settle(folder.path(), "pools").expect("made");
        let (seen, unseen) = (read("pools-seen.csv"), read("pools-unseen.csv"));
        assert!(
            seen.starts_with("# - Machine: one\n# - Runs: 2 of 2 count, in which a packet took at most 8 % longer"),
            "{seen}"
        );
        assert!(seen.ends_with("\npool of 2,2,800,1.0,6.0,,,10.000,,,0.000000,0.5000\n"), "{seen}");
        assert!(unseen.ends_with("\npool of 2,2,800,3.0,18.0,,,9.000,,,0.250000,0.5000\n"), "{unseen}");
    }
}
