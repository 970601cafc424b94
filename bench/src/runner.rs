//! Measurements one after the other, with results that are saved after each.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use crate::programs;
use crate::quiet::QuietWaiter;
use crate::saved_results::{self, Conditions};

/// Options of a benchmark about the results that it saves.
#[derive(Args, Clone, Debug)]
pub struct RunArguments {
    /// Which kind of run it is.
    #[command(flatten)]
    pub mode: ModeArguments,
    /// Starts from the results of an earlier run and measures only what is missing
    #[arg(long)]
    pub resume: bool,
    /// File in which results are saved for another run [default: the benchmark's name with .json, beside this program]
    #[arg(long)]
    results: Option<PathBuf>,
}

/// Options of every benchmark that writes a page, also of those that keep their results beside it.
#[derive(Clone, Copy, Debug, Args)]
pub struct ModeArguments {
    /// Smoke test: a little of everything; writes nothing into the repository
    #[arg(long)]
    pub quick: bool,
    /// Measures nothing; writes the page of the saved results
    #[arg(long)]
    pub describe: bool,
}

/// What a run measures, and where.
#[derive(Debug)]
pub struct Run<'a, P> {
    /// Name of the benchmark.
    pub name: &'static str,
    /// Options about results.
    pub arguments: &'a RunArguments,
    /// Parts that are asked for; all if this is empty.
    pub only: &'a [P],
    /// All parts.
    pub all: &'a [P],
    /// What the results depend on.
    pub conditions: Conditions,
    /// Cores that must be quiet before each measurement.
    pub cores: &'a [usize],
    /// Maximum total time of all waits for quiet cores.
    pub patience: Duration,
}

/// Runs measurements and has their results.
#[derive(Debug)]
pub struct Runner<R> {
    /// Results so far.
    pub results: R,
    name: &'static str,
    file: PathBuf,
    conditions: Conditions,
    begun: Instant,
    calm: QuietWaiter,
    waits: bool,
    failures: usize,
    // Results of a smoke test are deleted with it.
    _scratch: TempDir,
}

impl<R: Default + Serialize + DeserializeOwned> Runner<R> {
    /// Starts a run. It has the results of an earlier one if its arguments say so, or if only some parts are measured;
    /// `forget` removes those of a part that is measured again. Also returns the parts to measure.
    ///
    /// # Errors
    /// If the results of the earlier run are required and cannot be used, or the system has no room for files.
    pub fn start<P: Copy>(run: Run<'_, P>, forget: impl Fn(&mut R, P)) -> Result<(Self, Vec<P>), String> {
        let Run { name, arguments, only, all, conditions, cores, patience } = run;
        let RunArguments { mode: ModeArguments { quick, describe }, resume, results } = arguments;
        let scratch = tempfile::Builder::new().prefix(&format!("strowger-{name}-results-")).tempdir();
        let scratch = scratch.map_err(|error| error.to_string())?;
        let usual = format!("{name}.json");
        let usual = if *quick { scratch.path().join(usual) } else { programs::beside(&usual) };
        let file = results.clone().unwrap_or(usual);
        let parts = if only.is_empty() { all } else { only };
        let mut results = match saved_results::read(&file, &conditions) {
            Ok(results) if *resume || *describe || !only.is_empty() => results,
            Err(why) if *resume || *describe => return Err(why),
            _ => R::default(),
        };
        if !*resume && !*describe {
            parts.iter().for_each(|part| forget(&mut results, *part));
        }
        let runner = Self {
            results,
            name,
            file,
            conditions,
            begun: Instant::now(),
            calm: QuietWaiter::new(cores, patience),
            waits: !patience.is_zero(),
            failures: 0,
            _scratch: scratch,
        };
        Ok((runner, parts.to_vec()))
    }

    /// Runs one measurement when the machine is quiet and saves its results, which `keep` adds to the others.
    pub fn measure<T>(
        &mut self,
        what: &str,
        measure: impl FnOnce() -> Result<T, String>,
        keep: impl FnOnce(&mut R, T),
    ) {
        if self.waits {
            self.calm.wait();
        }
        self.say(what);
        match measure() {
            Ok(found) => {
                keep(&mut self.results, found);
                if let Err(why) = saved_results::write(&self.file, &self.conditions, &self.results) {
                    eprintln!("  NOT SAVED: {why}");
                }
            }
            Err(why) => self.fail(what, &why),
        }
    }

    /// Counts a failed measurement.
    pub fn fail(&mut self, what: &str, why: &str) {
        self.failures += 1;
        eprintln!("  FAILED: {what}: {why}");
    }

    /// Prints a line with the time since the start.
    pub fn say(&self, what: &str) {
        eprintln!("[{:.1} min] {what}", self.begun.elapsed().as_secs_f64() / 60.0);
    }

    /// Reports the end of a part.
    pub fn finish_part(&self, part: impl Debug, begun: Instant) {
        self.say(&format!("{part:?} took {:.1} min", begun.elapsed().as_secs_f64() / 60.0));
    }

    /// Reports the end of the run.
    pub fn finish(&self) {
        self.say(&self.calm.told());
        if self.failures > 0 {
            eprintln!("{}: {} measurements failed; --resume repeats them", self.name, self.failures);
        }
    }

    /// Returns the path of a file beside the saved results.
    #[must_use]
    pub fn beside(&self, name: impl AsRef<Path>) -> PathBuf {
        self.file.with_file_name(name.as_ref())
    }
}

/// Returns the exit code of a benchmark, and prints why it failed.
pub fn exit_code(name: &str, outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}
