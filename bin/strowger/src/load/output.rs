//! Where reports go, and what they say to the shell.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use strowger_traffic::engine::{PhaseReport, Report};
use strowger_traffic::report::About;

use crate::failure::Failure;

/// Where a run's report goes, beside the terminal.
#[derive(Debug, Args)]
pub(super) struct OutputArguments {
    /// Writes the report as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Prints the report and writes it, and says by the exit code whether it is to be believed.
pub(super) fn conclude(report: &Report, about: &About, output: &OutputArguments) -> Result<(), Failure> {
    if let Some(file) = &output.json {
        let json = format!("{:#}\n", report.to_json(about));
        if file.as_os_str() == "-" {
            std::io::stdout().write_all(json.as_bytes()).map_err(Failure::Output)?;
        } else {
            std::fs::write(file, json)
                .map_err(|error| Failure::No(format!("{} cannot be written: {error}", file.display())))?;
        }
    }
    let is_piped = output.json.as_ref().is_some_and(|file| file.as_os_str() == "-");
    if !is_piped {
        std::io::stdout().write_all(report.to_text(about).as_bytes()).map_err(Failure::Output)?;
    }
    if let Some(why) = &report.broken_off {
        return Err(Failure::No(why.clone()));
    }
    match report.measured().and_then(PhaseReport::bottleneck) {
        Some(why) => Err(Failure::No(format!("the generator was the bottleneck: {why}"))),
        None => Ok(()),
    }
}
