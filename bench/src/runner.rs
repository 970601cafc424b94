//! Measurements one after the other, with results that are saved after each.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
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

impl RunArguments {
    /// Returns whether the run starts without the results of an earlier one.
    #[must_use]
    pub const fn is_fresh(&self) -> bool {
        !self.resume && !self.mode.describe
    }
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
    /// Starts with the results of an earlier run if `arguments` say so, or if the run `is_partial`: then it keeps the
    /// results of the other parts. Waits before each measurement until `cores` are quiet, for at most `patience` in all.
    ///
    /// # Errors
    /// If the results of the earlier run are required and cannot be used, or the system has no room for files.
    pub fn new(
        name: &'static str,
        (arguments, is_partial): (&RunArguments, bool),
        conditions: Conditions,
        cores: &[usize],
        patience: Duration,
    ) -> Result<Self, String> {
        let RunArguments { mode: ModeArguments { quick, describe }, resume, results } = arguments;
        let scratch = tempfile::Builder::new().prefix(&format!("strowger-{name}-results-")).tempdir();
        let scratch = scratch.map_err(|error| error.to_string())?;
        let usual = format!("{name}.json");
        let usual = if *quick { scratch.path().join(usual) } else { programs::beside(&usual) };
        let file = results.clone().unwrap_or(usual);
        let results = match saved_results::read(&file, &conditions) {
            Ok(results) if *resume || *describe || is_partial => results,
            Err(why) if *resume || *describe => return Err(why),
            _ => R::default(),
        };
        Ok(Self {
            results,
            name,
            file,
            conditions,
            begun: Instant::now(),
            calm: QuietWaiter::new(cores, patience),
            waits: !patience.is_zero(),
            failures: 0,
            _scratch: scratch,
        })
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
