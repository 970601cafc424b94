//! Results as they are saved between runs and written as tables.

use std::path::Path;

use serde::{Deserialize, Serialize};
use strowger_timing::{MessageReport, Part, TimingReport};

use super::agreement::Agreement;
use super::baseline::Baseline;
use super::injection::Injection;
use super::loaded::{LoadedRun, Prediction};
use super::overhead::Overhead;
use super::processes::ProcessRun;
use super::program::Program;

/// All results, except for the runs that measure drops, which are tables.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// Rates of which the loads are shares: calls per second, or packets for the echo program.
    pub full_rates: Vec<(Program, f64)>,
    /// Injected delays.
    pub injections: Vec<Injection>,
    /// The server's figures and the probe's.
    pub agreements: Vec<Agreement>,
    /// What the probe costs.
    pub overheads: Vec<Overhead>,
    /// Programs without load.
    pub baselines: Vec<Baseline>,
    /// Programs under load.
    pub loaded: Vec<LoadedRun>,
    /// Predictions of the loaded runs.
    pub predictions: Vec<Prediction>,
    /// Kamailio with several processes.
    pub processes: Vec<ProcessRun>,
}

impl Results {
    /// Returns the rate of which a program's loads are shares.
    #[must_use]
    pub fn full_rate(&self, program: Program) -> Option<f64> {
        self.full_rates.iter().find(|(one, _)| *one == program).map(|(_, rate)| *rate)
    }

    /// Returns a program's baseline.
    #[must_use]
    pub fn baseline(&self, program: Program) -> Option<&Baseline> {
        self.baselines.iter().find(|one| one.program == program)
    }

    /// Returns a program's runs by rising load.
    #[must_use]
    pub fn loaded(&self, program: Program) -> Vec<&LoadedRun> {
        let mut runs: Vec<&LoadedRun> = self.loaded.iter().filter(|run| run.program == program).collect();
        runs.sort_by(|one, other| one.load.total_cmp(&other.load));
        runs
    }

    /// Returns what was predicted of a program.
    #[must_use]
    pub fn prediction(&self, program: Program) -> Option<&Prediction> {
        self.predictions.iter().find(|one| one.program == program)
    }

    /// Writes the probe's reports as tables into a folder: a row for each message type of each run.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write_csv(&self, folder: &Path) -> Result<(), csv::Error> {
        std::fs::create_dir_all(folder)?;
        let named = |name: String, load: f64| (name, load);
        let baselines = self.baselines.iter().map(|one| (named(one.program.to_string(), 0.0), &one.report));
        let loaded = self.loaded.iter().map(|one| (named(one.program.to_string(), one.load), &one.report));
        let processes =
            self.processes.iter().map(|one| (named(format!("Kamailio of {}", one.count), 0.0), &one.report));
        write(&folder.join("baseline.csv"), baselines)?;
        write(&folder.join("loaded.csv"), loaded)?;
        write(&folder.join("processes-parts.csv"), processes)?;
        let agreements = self.agreements.iter().flat_map(|one| {
            [(named("server".to_owned(), one.load), &one.own), (named("probe".to_owned(), one.load), &one.probed)]
        });
        write(&folder.join("agreement.csv"), agreements)?;
        let mut table = csv::Writer::from_path(folder.join("injection.csv"))?;
        table.write_record(["stage", "injected_us", "stamped_us", "probed_us", "packets_stamped", "packets_probed"])?;
        for one in &self.injections {
            let times = [one.injected_us, one.stamped_us, one.probed_us].map(|time| format!("{time:.3}"));
            let counts = [one.packets.0.to_string(), one.packets.1.to_string()];
            table.write_record([one.stage.to_string()].iter().chain(&times).chain(&counts))?;
        }
        table.flush()?;
        let mut table = csv::Writer::from_path(folder.join("overhead.csv"))?;
        table.write_record(["program", "packets_per_s_without", "packets_per_s_with", "probe_cpu", "share_seen"])?;
        for one in &self.overheads {
            for (at, (without, with)) in one.without.iter().zip(&one.with).enumerate() {
                let last = [&one.own_cpu, &one.seen]
                    .map(|list| list.get(at).map_or_else(String::new, |value| format!("{value:.4}")));
                let rates = [format!("{without:.0}"), format!("{with:.0}")];
                table.write_record([one.program.to_string()].iter().chain(&rates).chain(&last))?;
            }
        }
        Ok(table.flush()?)
    }
}

type Named<'a> = ((String, f64), &'a TimingReport);

fn write<'a>(file: &Path, reports: impl Iterator<Item = Named<'a>>) -> Result<(), csv::Error> {
    let mut table = csv::Writer::from_path(file)?;
    let parts = Part::ALL.iter().flat_map(|part| ["mean", "variance"].map(|what| format!("{}_{what}_us", part.key())));
    let head = ["program", "load", "packets_per_s", "cpu", "message", "packets"].map(str::to_owned);
    table.write_record(head.into_iter().chain(parts.map(|name| name.replace("variance_us", "variance_us2"))))?;
    for ((program, load), report) in reports {
        for row in report.messages.iter().chain([&report.all]) {
            let cpu = report.cpu.map_or_else(String::new, |cpu| format!("{cpu:.4}"));
            let known = [program.clone(), format!("{load}"), format!("{:.1}", report.packets_per_s), cpu];
            table.write_record(known.into_iter().chain(cells(row)))?;
        }
    }
    Ok(table.flush()?)
}

fn cells(row: &MessageReport) -> Vec<String> {
    let times = Part::ALL.iter().flat_map(|part| {
        let times = row.parts.get(part.key());
        [times.map(|times| times.mean_us), times.map(|times| times.variance_us2)]
    });
    let times = times.map(|value| value.map_or_else(String::new, |value| format!("{value:.3}")));
    [row.message.clone(), row.packets.to_string()].into_iter().chain(times).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;
    use strowger_timing::{MessageType, MethodName, PartTimes, TimingHistograms};

    use super::*;
    use crate::timing::echo::Stage;

    /// Returns a report of calls whose K_sockq grows with `load`.
    pub(crate) fn report(load: f64) -> TimingReport {
        let mut histograms = TimingHistograms::default();
        let (invite, ok) = (MethodName::Invite, MessageType::Response(200, MethodName::Invite));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time of microseconds")]
        let queued = 8_000 + (100_000.0 * load) as u64;
        for message in [MessageType::Request(invite), ok] {
            let mut times = PartTimes::default();
            for (part, nanos) in [
                (Part::Stack, 1_000),
                (Part::SocketQueue, queued),
                (Part::Copy, 500),
                (Part::Receive, queued + 1_500),
                (Part::Application, 20_000),
                (Part::Send, 3_000),
            ] {
                times.set(part, nanos);
            }
            (0..10).for_each(|_| histograms.record(message, &times));
        }
        let (messages, all) = histograms.report();
        TimingReport { messages, all, packets_per_s: 1_000.0 * load, cpu: Some(load), ..TimingReport::default() }
    }

    /// Returns results of every part.
    pub(crate) fn some() -> Results {
        let injection = |stage, injected_us: f64| Injection {
            stage,
            injected_us,
            stamped_us: injected_us + 1.0,
            probed_us: 1.02 * injected_us,
            packets: (500, 500),
        };
        let loaded = |load: f64| LoadedRun {
            program: Program::Kamailio,
            load,
            is_seen: load != 0.5,
            rate: 10_000.0 * load,
            is_late: false,
            report: report(load),
        };
        let row = json!({ "rate_per_s": 500.0, "calls_per_s": 83.0, "alpha": 1.5, "wait_counts": true, "wait_holds": true,
            "service_s": { "predicted": 2e-5, "measured": 2.1e-5 }, "rho": { "predicted": 0.5, "measured": 0.52 },
            "wait_s": { "predicted": 2e-5, "measured": 2.2e-5 } });
        Results {
            full_rates: vec![(Program::Kamailio, 10_000.0)],
            injections: vec![
                injection(Stage::Receive, 50.0),
                injection(Stage::Application, 200.0),
                injection(Stage::Send, 1_000.0),
            ],
            agreements: vec![Agreement { load: 0.1, calls_per_s: 1_000.0, own: report(0.1), probed: report(0.101) }],
            overheads: vec![Overhead {
                program: Program::Kamailio,
                without: vec![80_000.0],
                with: vec![76_000.0],
                own_cpu: vec![0.07],
                seen: vec![1.0],
                notes: Vec::new(),
            }],
            baselines: Program::ALL.map(|program| Baseline { program, report: report(0.0) }).to_vec(),
            loaded: [0.1, 0.5, 0.9].map(loaded).to_vec(),
            predictions: vec![Prediction { program: Program::Kamailio, validation: json!({ "rows": [row] }) }],
            processes: [1, 4].map(|count| ProcessRun { count, calls_per_s: 5_000.0, report: report(0.3) }).to_vec(),
        }
    }

    #[test]
    fn results_are_saved_as_tables() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = serde_json::to_string(&some()).expect("JSON");
        let read: Results = serde_json::from_str(&text).expect("the same");
        read.write_csv(folder.path()).expect("written");
        let of = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("written");
        assert_eq!(of("loaded.csv").lines().count(), 1 + 3 * 3);
        assert!(
            of("baseline.csv").contains("\necho,0,0.0,0.0000,INVITE,10,1.000,0.000,8.000,"),
            "{}",
            of("baseline.csv")
        );
        assert!(
            of("agreement.csv").contains("\nprobe,0.1,") && of("overhead.csv").contains("Kamailio,80000,76000,0.0700")
        );
        assert!(of("injection.csv").contains("\nbefore receiving,50.000,51.000,51.000,500,500"));
    }
}
