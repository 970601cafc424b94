//! Measurements from files: runs of `strowger load`, and tables.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;
use strowger_plan::fit::{Observation, RunOptions, from_csv, from_run};

use super::numbers::{Numbers, counts, plain};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(super) struct MeasuredArguments {
    /// What load run --json wrote, and tables (.csv)
    #[arg(value_name = "FILE", required_unless_present = "stateless")]
    files: Vec<PathBuf>,
    /// A run whose calls went through routes that keep no state; may be given several times
    #[arg(long, value_name = "FILE")]
    stateless: Vec<PathBuf>,
    /// c, threads that took packets from one queue, in runs; tables have a column
    #[arg(long, value_name = "N", value_parser = counts, default_value = "1")]
    servers: Numbers,
    /// K, packets that the queue has room for, where no table says it [default: 200, as in the thesis]
    #[arg(long, value_name = "N", value_parser = counts)]
    queue: Option<Numbers>,
    /// Packets that a call brings to the server, for tables that have calls a second and no rate
    #[arg(long, value_name = "NUMBER", value_parser = plain, default_value = "6")]
    packets_per_call: Numbers,
}

impl MeasuredArguments {
    /// All measurements.
    pub(super) fn read(&self) -> Result<Vec<Observation>, Failure> {
        let mut all = Vec::new();
        for (files, stateless) in [(&self.files, false), (&self.stateless, true)] {
            for file in files {
                all.extend(self.read_file(file, stateless)?);
            }
        }
        for observation in &mut all {
            observation.queue = observation.queue.or_else(|| self.queue.as_ref().map(|queue| whole(queue.first())));
        }
        Ok(all)
    }

    fn read_file(&self, file: &Path, stateless: bool) -> Result<Vec<Observation>, Failure> {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|error| {
            Failure::Usage(format!("{name}: {error}; give what load run --json wrote, or a table (.csv)"))
        })?;
        if !text.trim_start().starts_with('{') {
            let read = from_csv(&name, &text, self.packets_per_call.first());
            return read.map_err(|error| Failure::Usage(error.to_string()));
        }
        let json: Value = serde_json::from_str(&text)
            .map_err(|error| Failure::Usage(format!("{name}: this is no report of a run ({error})")))?;
        let servers = u32::try_from(whole(self.servers.first())).unwrap_or(u32::MAX);
        let read = from_run(&name, &json, RunOptions { stateless, servers });
        read.map(|one| vec![one]).map_err(|error| Failure::Usage(error.to_string()))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was read as a count")]
fn whole(value: f64) -> u64 {
    value as u64
}
