//! Measurements read from files: runs of `strowger load`, logs and reports of `strowger probe`, and tables.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;
use strowger_plan::fit::{
    FitError, Observation, RunOptions, from_csv, from_packet_log, from_packet_log_in_parts, from_run,
    from_timing_report, is_packet_log, is_timing_report, share_setup,
};

use super::numbers::{Numbers, counts, plain};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(super) struct MeasuredArguments {
    /// Outputs of load run --json, probe --log and probe --json, and tables (.csv)
    #[arg(value_name = "FILE", required_unless_present = "stateless")]
    files: Vec<PathBuf>,
    /// A run whose calls used stateless routes; may be repeated
    #[arg(long, value_name = "FILE")]
    stateless: Vec<PathBuf>,
    /// c, number of threads that served one queue, for runs and reports; logs tell, and tables have a column
    #[arg(long, value_name = "N", value_parser = counts, default_value = "1")]
    servers: Numbers,
    /// K, capacity of the queue in packets, unless a table has it [default: 200, as in the thesis]
    #[arg(long, value_name = "N", value_parser = counts)]
    queue: Option<Numbers>,
    /// Number of packets per call at the server, for tables with calls per second instead of a rate
    #[arg(long, value_name = "NUMBER", value_parser = plain, default_value = "6")]
    packets_per_call: Numbers,
}

/// Reads a packet log, given its name and text.
type ReadLog = fn(&str, &str) -> Result<Vec<Observation>, FitError>;

impl MeasuredArguments {
    /// Returns all measurements, for a comparison.
    pub(super) fn read(&self) -> Result<Vec<Observation>, Failure> {
        self.read_all(|name, text| from_packet_log(name, text).map(|one| vec![one]))
    }

    /// Returns all measurements, logs in parts, for a fit.
    pub(super) fn read_in_parts(&self) -> Result<Vec<Observation>, Failure> {
        self.read_all(from_packet_log_in_parts)
    }

    fn read_all(&self, of_log: ReadLog) -> Result<Vec<Observation>, Failure> {
        let mut all = Vec::new();
        for (files, stateless) in [(&self.files, false), (&self.stateless, true)] {
            for file in files {
                all.extend(self.read_file(file, stateless, of_log)?);
            }
        }
        share_setup(&mut all);
        for observation in &mut all {
            observation.queue = observation.queue.or_else(|| self.queue.as_ref().map(|queue| whole(queue.first())));
        }
        Ok(all)
    }

    fn read_file(&self, file: &Path, stateless: bool, of_log: ReadLog) -> Result<Vec<Observation>, Failure> {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|error| {
            Failure::Usage(format!(
                "{name}: {error}; give a file written by load run --json or probe --log, or a table (.csv)"
            ))
        })?;
        if is_packet_log(&text) {
            return of_log(&name, &text).map_err(|error| Failure::Usage(error.to_string()));
        }
        if !text.trim_start().starts_with('{') {
            let read = from_csv(&name, &text, self.packets_per_call.first());
            return read.map_err(|error| Failure::Usage(error.to_string()));
        }
        let json: Value = serde_json::from_str(&text)
            .map_err(|error| Failure::Usage(format!("{name}: this is not the report of a run ({error})")))?;
        let servers = u32::try_from(whole(self.servers.first())).unwrap_or(u32::MAX);
        let read = if is_timing_report(&json) {
            from_timing_report(&name, &json, servers)
        } else {
            from_run(&name, &json, RunOptions { stateless, servers })
        };
        read.map(|one| vec![one]).map_err(|error| Failure::Usage(error.to_string()))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was read as a count")]
fn whole(value: f64) -> u64 {
    value as u64
}
