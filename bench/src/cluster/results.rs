//! Results as they are saved between runs and written as tables.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::contender::Contender;
use super::frozen::FreezeResult;
use super::joining::JoinResult;
use super::propagation::{PropagationResult, SHARES};
use super::rates::RateResult;

/// All results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// REGISTERs per second, their costs and times.
    pub rates: Vec<RateResult>,
    /// Times from a 200 until the other server finds the phone.
    pub propagation: Vec<PropagationResult>,
    /// Joining members.
    pub joining: Vec<JoinResult>,
    /// Frozen engines.
    pub frozen: Vec<FreezeResult>,
}

impl Results {
    /// Returns the rates of a contender.
    #[must_use]
    pub fn rated(&self, contender: Contender) -> Option<&RateResult> {
        self.rates.iter().find(|one| one.contender == contender)
    }

    /// Returns the 200s per second of a contender at saturation.
    #[must_use]
    pub fn full_rate(&self, contender: Contender) -> Option<f64> {
        Some(self.rated(contender)?.full()?.rate)
    }

    /// Returns the saturation rate of a contender relative to that of its program as a single server.
    #[must_use]
    pub fn share(&self, contender: Contender) -> Option<f64> {
        Some(self.full_rate(contender)? / self.full_rate(contender.base())?)
    }

    /// Returns the same relative rate computed from the server's own processor time, as on a dedicated machine.
    #[must_use]
    pub fn own_share(&self, contender: Contender) -> Option<f64> {
        let cost = |one| Some(self.rated(one)?.full()?.cost.server);
        Some(cost(contender.base())? / cost(contender)?)
    }

    /// Returns the propagation times of a contender at a rate.
    #[must_use]
    pub fn propagated(&self, contender: Contender, asked: u32) -> Option<&PropagationResult> {
        self.propagation.iter().find(|one| (one.contender, one.asked) == (contender, asked))
    }

    /// Returns the joining member of a contender.
    #[must_use]
    pub fn joined(&self, contender: Contender) -> Option<&JoinResult> {
        self.joining.iter().find(|one| one.contender == contender)
    }

    /// Returns the frozen engine of a contender.
    #[must_use]
    pub fn frozen(&self, contender: Contender) -> Option<&FreezeResult> {
        self.frozen.iter().find(|one| one.contender == contender)
    }

    /// Sorts the contenders in the order of the tables.
    pub fn sort(&mut self) {
        self.rates.sort_by_key(|one| one.contender);
        self.propagation.sort_by_key(|one| (one.contender, one.asked));
        self.joining.sort_by_key(|one| one.contender);
        self.frozen.sort_by_key(|one| one.contender);
    }

    /// Writes a table of each part into a folder.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write_csv(&self, folder: &Path) -> Result<(), csv::Error> {
        std::fs::create_dir_all(folder)?;
        write(&folder.join("rates.csv"), &RATES, self.rates.iter().flat_map(rate_rows).collect())?;
        let shares = SHARES.map(|share| format!("p{}_ms", 100.0 * share));
        let head: Vec<&str> = PROPAGATION.into_iter().chain(shares.iter().map(String::as_str)).collect();
        write(&folder.join("propagation.csv"), &head, self.propagation.iter().map(propagation_row).collect())?;
        write(&folder.join("joining.csv"), &JOINING, self.joining.iter().map(joining_row).collect())?;
        write(&folder.join("frozen.csv"), &FROZEN, self.frozen.iter().map(frozen_row).collect())
    }
}

const RATES: [&str; 18] = [
    "contender",
    "users",
    "asked_per_s",
    "taken_per_s",
    "p50_ms",
    "p99_ms",
    "server_cpu_s_per_1000",
    "engine_cpu_s_per_1000",
    "follower_cpu_s_per_1000",
    "replica_cpu_s_per_1000",
    "server_core",
    "other_core",
    "unavailable",
    "others",
    "lost",
    "again",
    "first_registers_per_s",
    "fdatasync_ms",
];
const PROPAGATION: [&str; 5] = ["contender", "asked_per_s", "taken_per_s", "sample", "missing"];
const JOINING: [&str; 9] = [
    "contender",
    "bindings",
    "first_registers_per_s",
    "own_bytes",
    "joined_bytes",
    "engine_memory_bytes",
    "engine_disk_bytes",
    "warm_s",
    "found",
];
const FROZEN: [&str; 19] = [
    "contender",
    "calls_per_s",
    "frozen_s",
    "calls_before",
    "failed_before",
    "p99_before_ms",
    "calls_during",
    "failed_during",
    "p99_during_ms",
    "registers",
    "taken",
    "unavailable",
    "others",
    "least_503_ms",
    "most_503_ms",
    "served_s",
    "drained_s",
    "same_s",
    "registrations",
];

/// Formats an optional value.
fn maybe(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.3}")).unwrap_or_default()
}

fn rate_rows(one: &RateResult) -> Vec<Vec<String>> {
    let row = |pace: &super::rates::PaceResult| {
        let cost = pace.cost;
        let mut row = vec![one.contender.to_string(), one.users.to_string()];
        row.push(pace.asked.map_or_else(|| "saturation".to_owned(), |rate| rate.to_string()));
        row.extend([pace.rate, pace.p50_ms, pace.p99_ms].map(|value| format!("{value:.3}")));
        row.extend([cost.server, cost.engine, cost.follower, cost.replica].map(|value| format!("{value:.5}")));
        row.extend([pace.server_core, pace.other_core].map(|value| format!("{value:.3}")));
        row.extend([pace.unavailable, pace.others, pace.lost, pace.again].map(|count| count.to_string()));
        row.extend([one.fill_rate, one.sync_ms].map(|value| format!("{value:.3}")));
        row
    };
    one.paces.iter().map(row).collect()
}

fn propagation_row(one: &PropagationResult) -> Vec<String> {
    let first = [one.contender.to_string(), one.asked.to_string(), format!("{:.1}", one.rate)];
    let counts = [one.sample, one.missing].map(|count| count.to_string());
    first.into_iter().chain(counts).chain(SHARES.map(|share| maybe(one.at(share)))).collect()
}

fn joining_row(one: &JoinResult) -> Vec<String> {
    let mut row = vec![one.contender.to_string(), one.bindings.to_string()];
    row.extend([one.fill_rate, one.own_bytes].map(|value| format!("{value:.1}")));
    row.extend([one.joined_bytes, one.engine_bytes, one.disk_bytes, one.warm_s].map(maybe));
    row.push(one.found.map(|found| found.to_string()).unwrap_or_default());
    row
}

fn frozen_row(one: &FreezeResult) -> Vec<String> {
    let mut row = vec![one.contender.to_string(), one.rate.to_string(), one.frozen_s.to_string()];
    for calls in [one.before, one.during] {
        row.extend([calls.begun.to_string(), calls.failed.to_string(), format!("{:.3}", calls.p99_ms)]);
    }
    let registers = one.registers;
    row.extend(
        [registers.sent, registers.taken, registers.unavailable, registers.others].map(|count| count.to_string()),
    );
    row.extend([registers.least_ms, registers.most_ms, one.served_s, one.drained_s, one.same_s].map(maybe));
    row.push(one.registrations.map(|count| count.to_string()).join(" "));
    row
}

fn write(file: &Path, head: &[&str], rows: Vec<Vec<String>>) -> Result<(), csv::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut writer = csv::Writer::from_path(file)?;
    writer.write_record(head)?;
    for row in rows {
        writer.write_record(row)?;
    }
    Ok(writer.flush()?)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::cluster::frozen::{Calls, Registers};
    use crate::cluster::rates::{Cost, PaceResult};

    fn rated(contender: Contender, rate: f64, server: f64) -> RateResult {
        let pace = |asked: Option<u32>| PaceResult {
            asked,
            rate: asked.map_or(rate, f64::from),
            p50_ms: 0.5,
            p99_ms: 2.0,
            unavailable: 0,
            others: 0,
            lost: 0,
            again: 0,
            cost: Cost { server, engine: 0.004, follower: 0.002, replica: 0.0 },
            other_core: 0.5,
            server_core: 0.99,
        };
        let paces = [None, Some(5_000), Some(1_000)].map(pace).to_vec();
        RateResult { contender, users: 50_000, fill_rate: 40_000.0, sync_ms: 0.3, paces }
    }

    /// Returns sample results of every part.
    pub(crate) fn some() -> Results {
        let calls = |p99_ms| Calls { begun: 40_000, failed: 0, p50_ms: 0.2, p99_ms };
        let joined = |contender, own_bytes| JoinResult {
            contender,
            bindings: 1_000_000,
            fill_rate: 60_000.0,
            own_bytes,
            engine_bytes: Some(500.0),
            disk_bytes: Some(300.0),
            warm_s: (contender != Contender::Alone).then_some(3.1),
            found: Some(1_000_000),
            joined_bytes: (contender != Contender::Alone).then_some(270.0),
        };
        let times_ms = SHARES.map(|share| (share, 10.0 * share)).to_vec();
        Results {
            rates: vec![
                rated(Contender::Alone, 130_000.0, 0.007),
                rated(Contender::Redis, 78_000.0, 0.009),
                rated(Contender::Kamailio1, 2_000.0, 0.3),
            ],
            propagation: vec![PropagationResult {
                contender: Contender::Redis,
                asked: 5_000,
                rate: 4_999.0,
                sample: 2_000,
                missing: 0,
                times_ms,
            }],
            joining: vec![joined(Contender::Alone, 250.0), joined(Contender::Redis, 274.0)],
            frozen: vec![FreezeResult {
                contender: Contender::Redis,
                rate: 2_000.0,
                frozen_s: 60.0,
                before: calls(0.6),
                during: calls(0.7),
                registers: Registers {
                    sent: 500,
                    taken: 0,
                    unavailable: 500,
                    others: 0,
                    least_ms: Some(2_000.1),
                    most_ms: Some(2_003.0),
                },
                served_s: Some(0.4),
                drained_s: Some(0.5),
                same_s: Some(1.4),
                registrations: [2_500, 2_500],
            }],
        }
    }

    #[test]
    fn tables_are_saved_as_csv() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = serde_json::to_string(&some()).expect("JSON");
        let read: Results = serde_json::from_str(&text).expect("the same");
        read.write_csv(folder.path()).expect("written");
        let table = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("it is there");
        assert!(
            table("rates.csv")
                .contains("Redis: engine and disk,50000,saturation,78000.000,0.500,2.000,0.00900,0.00400")
        );
        assert_eq!(table("rates.csv").lines().count(), 10);
        assert!(table("propagation.csv").lines().next().is_some_and(|head| head.ends_with("p99_ms,p99.9_ms")));
        assert!(table("joining.csv").contains("alone, write-through"));
        assert!(table("frozen.csv").contains(",0.400,0.500,1.400,2500 2500"));
    }

    #[test]
    fn shares_are_relative_to_a_single_server() {
        let results = some();
        let share = results.own_share(Contender::Redis).expect("both were measured");
        assert!((share - 7.0 / 9.0).abs() < 1e-9, "{share}");
        assert_eq!(results.own_share(Contender::Mariadb), None);
    }
}
