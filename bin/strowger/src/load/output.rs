//! Output of reports, and exit codes.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use strowger_traffic::engine::{PhaseReport, Report};
use strowger_traffic::output::{Machine, RunReport, histograms, intervals, page};
use strowger_traffic::report::RunDescription;

use crate::failure::Failure;

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

/// Whether the file is standard output.
pub(super) fn is_piped(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Checks before a measurement that the files can be written and differ from each other.
pub(super) fn ready(files: &[Option<&Path>]) -> Result<(), Failure> {
    let mut taken: Vec<PathBuf> = Vec::new();
    for file in files.iter().flatten() {
        // Devices and pipes, such as /dev/null, may appear several times, and opening them could have side effects.
        let is_file = !is_piped(file) && std::fs::metadata(file).map_or(true, |is| is.is_file() || is.is_dir());
        if is_file {
            try_to_open(file).map_err(|error| {
                Failure::Usage(format!("{} cannot be written: {error}; the run was not started", file.display()))
            })?;
        }
        let place = if is_piped(file) { file.to_path_buf() } else { std::path::absolute(file).unwrap_or_default() };
        if (is_file || is_piped(file)) && taken.contains(&place) {
            let name = if is_piped(file) { "standard output (-)".to_owned() } else { file.display().to_string() };
            return Err(Failure::Usage(format!("{name} is named for two forms of the report; name another file")));
        }
        taken.push(place);
    }
    Ok(())
}

/// Tests whether the file can be opened, without changes.
fn try_to_open(file: &Path) -> std::io::Result<()> {
    if std::fs::OpenOptions::new().write(true).open(file).map_or_else(is_missing, |_| Ok(false))? {
        std::fs::OpenOptions::new().write(true).create_new(true).open(file)?;
        std::fs::remove_file(file)?;
    }
    Ok(())
}

fn is_missing(error: std::io::Error) -> std::io::Result<bool> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(true) } else { Err(error) }
}

/// Writes all files, then reports those that failed; `-` is standard output.
pub(super) fn write_all(files: &[(PathBuf, String)]) -> Result<(), Failure> {
    files.iter().map(|(file, text)| write(file, text)).fold(Ok(()), both)
}

/// Combines two results, including both messages if both failed.
pub(super) fn both(one: Result<(), Failure>, other: Result<(), Failure>) -> Result<(), Failure> {
    match (one, other) {
        (Err(one), Err(other)) => Err(Failure::No(format!("{one}\nstrowger: {other}"))),
        (one, other) => one.and(other),
    }
}

/// Writes a file; `-` is standard output.
pub(super) fn write(file: &Path, text: &str) -> Result<(), Failure> {
    if is_piped(file) {
        return std::io::stdout().write_all(text.as_bytes()).map_err(Failure::Output);
    }
    std::fs::write(file, text).map_err(|error| Failure::No(format!("{} cannot be written: {error}", file.display())))
}
