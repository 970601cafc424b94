//! `strowger plan databases`: compares replication and partitioning.

use clap::Args;
use strowger_plan::{Explain as _, PlanError, databases};

use super::field::{Field, Input, InputPoint};
use super::numbers::{Numbers, counts, plain, rates, times};
use super::presentation::{Answer, DisplayArguments, Model, present};
use crate::failure::Failure;
use crate::plot::DisplayUnit;

#[derive(Debug, Args)]
pub(crate) struct DatabasesArguments {
    /// D, number of databases
    #[arg(long, value_name = "N", value_parser = counts, allow_hyphen_values = true)]
    databases: Numbers,
    /// N, writes per second: REGISTERs that change something
    #[arg(long, value_name = "RATE", value_parser = rates, allow_hyphen_values = true)]
    writes: Numbers,
    /// r, reads per write: 2 if there are as many calls as REGISTERs, each of which reads once
    #[arg(long, value_name = "NUMBER", value_parser = plain, default_value = "2", allow_hyphen_values = true)]
    reads_per_write: Numbers,
    /// T, time of a database for a write
    #[arg(long, value_name = "TIME", value_parser = times, allow_hyphen_values = true)]
    write_time: Numbers,
    /// t, time for a read, as a fraction of a write
    #[arg(long, value_name = "NUMBER", value_parser = plain, default_value = "0.5", allow_hyphen_values = true)]
    read_over_write: Numbers,
    #[command(flatten)]
    shown: DisplayArguments,
}

impl DatabasesArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        present(self, &self.shown)
    }
}

impl Model for DatabasesArguments {
    const NAME: &'static str = "databases";
    const TITLE: &'static str = "D databases: replicas, each with all data, compared with partitions, each with a part";
    const SWEEP: &'static str = "--databases 1..8/1";

    fn inputs(&self) -> Vec<Input<'_>> {
        vec![
            Input::new("databases", "databases D", DisplayUnit::Count, &self.databases),
            Input::new("writes_per_s", "writes N", DisplayUnit::Rate, &self.writes),
            Input::new("reads_per_write", "reads for each write r", DisplayUnit::Number, &self.reads_per_write),
            Input::new("write_us", "a write takes T", DisplayUnit::Micros, &self.write_time),
            Input::new("read_over_write", "a read, of a write t", DisplayUnit::Number, &self.read_over_write),
        ]
    }

    fn answer(&self, at: &InputPoint) -> Result<Answer, PlanError> {
        let write_s = at.of("write_us");
        let found = databases(
            at.count("databases"),
            at.of("writes_per_s"),
            at.of("reads_per_write"),
            write_s,
            at.of("read_over_write"),
        )?;
        let judged = |name: &str, busy: f64, limit: f64| {
            let limit = DisplayUnit::Rate.text(limit.floor());
            if busy < 1.0 {
                format!(
                    "{name}: each is busy {} of the time; full at {limit} of writes.",
                    DisplayUnit::Share.text(busy)
                )
            } else {
                format!(
                    "{name}: {} of work per second: OVERLOADED; they carry {limit} of writes.",
                    DisplayUnit::Seconds.text(busy)
                )
            }
        };
        let says = vec![
            judged("Replicas", found.replicated, found.replicated_limit_per_s),
            judged("Partitions", found.partitioned, found.partitioned_limit_per_s),
            format!(
                "Replicas survive each other's failure, but each of them handles every write: no number of replicas carries {} of writes. \
                 D partitions carry D times as much as one, but a failed partition takes its users with it.",
                DisplayUnit::Rate.text((1.0 / write_s).floor())
            ),
        ];
        Ok(Answer {
            outputs: vec![
                Field::new("replicated", "a replica works", DisplayUnit::Share, found.replicated).drawn(),
                Field::new("partitioned", "a partition works", DisplayUnit::Share, found.partitioned).drawn(),
                Field::new(
                    "replicated_limit_per_s",
                    "replicas carry writes",
                    DisplayUnit::Rate,
                    found.replicated_limit_per_s,
                ),
                Field::new(
                    "partitioned_limit_per_s",
                    "partitions carry writes",
                    DisplayUnit::Rate,
                    found.partitioned_limit_per_s,
                ),
            ],
            conclusions: says,
            explanation: found.explain(),
            ..Answer::default()
        })
    }
}
