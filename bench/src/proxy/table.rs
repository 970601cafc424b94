//! The tables, as Markdown.

use std::fmt::Write as _;

use super::measure::{Figures, Load};
use super::peer::Peer;
use super::scenario::Scenario;
use crate::register::rounds::median;

/// All runs of one server under one load.
#[derive(Debug)]
pub struct Row {
    /// Which.
    pub peer: Peer,
    /// Under which.
    pub load: Load,
    /// What came of each.
    pub runs: Vec<Figures>,
}

impl Row {
    fn median(&self, of: impl Fn(&Figures) -> f64) -> f64 {
        median(self.runs.iter().map(of).filter(|value| !value.is_nan()).collect())
    }
}

/// The table of a scenario: a row a load and server, medians of the rounds, and beside ours its ratio to the other's.
#[must_use]
pub fn of(scenario: Scenario, rows: &[Row]) -> String {
    let mut text = format!(
        "\n### {scenario}\n\n| load | server | carried/s | not carried % | CPU µs each | cores | {0} to {1} p50 µs | p99 µs | \
         memory MiB | drops | generator's core |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        scenario.timed().0,
        scenario.timed().1
    );
    for row in rows {
        let rate = row.median(|run| run.rate);
        let doubt = if row.runs.iter().any(|run| run.is_doubtful) { " (generator late)" } else { "" };
        let _ = writeln!(
            text,
            "| {} | {} | {rate:.0}{doubt} | {:.3} | {:.1} | {:.2} | {:.0} | {:.0} | {:.0} | {:.0} | {:.2} |",
            row.load,
            row.peer,
            row.median(|run| run.lost),
            row.median(|run| run.processor),
            row.median(|run| run.cores),
            row.median(|run| run.p50),
            row.median(|run| run.p99),
            row.median(|run| run.memory),
            row.median(|run| run.drops),
            row.median(|run| run.generator),
        );
    }
    for ours in rows.iter().filter(|row| row.peer == Peer::Strowger) {
        let other = rows.iter().find(|row| row.peer == Peer::Kamailio && row.load == ours.load);
        let Some(theirs) = other.filter(|row| !row.runs.is_empty()) else { continue };
        let ratio = |of: fn(&Figures) -> f64| ours.median(of) / theirs.median(of);
        let _ = writeln!(
            text,
            "\nAt {}: CPU {:.2} ×, rate {:.2} ×, p50 {:.2} ×, p99 {:.2} × Kamailio's.",
            ours.load,
            ratio(|run| run.processor),
            ratio(|run| run.rate),
            ratio(|run| run.p50),
            ratio(|run| run.p99),
        );
    }
    text
}
