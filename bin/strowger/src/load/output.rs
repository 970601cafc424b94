//! Output of reports, and exit codes.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use strowger_traffic::engine::{PhaseReport, Report};
use strowger_traffic::output::{Machine, RunReport, histograms, intervals, page};
use strowger_traffic::report::RunDescription;

use crate::failure::Failure;
use crate::files::{both, is_piped, ready, write_all};

/// Output files of a run's report.
#[derive(Debug, Args)]
pub(super) struct OutputArguments {
    /// Writes the report as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes the report as a self-contained page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Writes a table of the time series by second, and the histograms to NAME.histograms.csv
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

impl OutputArguments {
    fn is_piped(&self) -> bool {
        [&self.json, &self.html, &self.csv].into_iter().flatten().any(|file| is_piped(file))
    }

    /// Checks before the run that the files can be written.
    pub(super) fn ready(&self) -> Result<(), Failure> {
        let histograms = self.csv.as_deref().filter(|file| !is_piped(file)).map(histograms_beside);
        ready(&[self.json.as_deref(), self.html.as_deref(), self.csv.as_deref(), histograms.as_deref()])
    }
}

/// Prints and writes the report. The exit code says whether the result is valid.
pub(super) fn write_report(report: &Report, about: &RunDescription, output: &OutputArguments) -> Result<(), Failure> {
    let mut json = report.to_json(about);
    if let Value::Object(top) = &mut json {
        top.insert("machine".to_owned(), json!(Machine::here()));
    }
    // The report is printed first, and a failed file does not prevent the others.
    let shown = match output.is_piped() {
        true => Ok(()),
        false => std::io::stdout().write_all(report.to_text(about).as_bytes()).map_err(Failure::Output),
    };
    let written = write_all(&files_of(&json, output)?);
    let bottleneck = report.measured().and_then(PhaseReport::bottleneck);
    let why = match &report.broken_off {
        Some(why) => Err(Failure::No(why.clone())),
        None => match (bottleneck, report.failure_reason()) {
            (Some(why), _) => Err(Failure::No(format!("the generator was the bottleneck: {why}"))),
            (None, Some(why)) => Err(Failure::No(why)),
            (None, None) => Ok(()),
        },
    };
    shown.and(both(written, why))
}

/// Returns a run's report in all requested forms.
fn files_of(json: &Value, output: &OutputArguments) -> Result<Vec<(PathBuf, String)>, Failure> {
    let mut files = Vec::new();
    if let Some(file) = &output.json {
        files.push((file.clone(), format!("{json:#}\n")));
    }
    if output.html.is_none() && output.csv.is_none() {
        return Ok(files);
    }
    let run = RunReport::from_json(json).map_err(|error| Failure::No(error.to_string()))?;
    if let Some(file) = &output.html {
        files.push((file.clone(), page(&run)));
    }
    if let Some(file) = &output.csv {
        files.push((file.clone(), intervals(&run)));
        if !is_piped(file) {
            files.push((histograms_beside(file), histograms(&run)));
        }
    }
    Ok(files)
}

fn histograms_beside(file: &Path) -> PathBuf {
    file.with_extension("histograms.csv")
}
