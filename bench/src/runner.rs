//! Measurements one after the other, with results that are saved after each.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use crate::programs;
use crate::quiet::QuietWaiter;
use crate::saved_results::{self, Conditions};

/// What the command line says about saved results.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Smoke test: saves its results in a folder that is deleted with the runner.
    pub quick: bool,
    /// Starts from the results of an earlier run and measures only what is missing.
    pub resume: bool,
    /// Measures nothing.
    pub describe: bool,
    /// Measures only some parts, and keeps earlier results of the others.
    pub is_partial: bool,
    /// File in which results are saved, if not beside this program.
    pub file: Option<&'a PathBuf>,
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
    /// Starts with the results of an earlier run, if `options` say so. Waits before each measurement until `cores` are
    /// quiet, for at most `patience` in all.
    ///
    /// # Errors
    /// If the results of the earlier run are required and cannot be used, or the system has no room for files.
    pub fn new(
        name: &'static str,
        options: Options<'_>,
        conditions: Conditions,
        cores: &[usize],
        patience: Duration,
    ) -> Result<Self, String> {
        let Options { quick, resume, describe, is_partial, file } = options;
        let scratch = tempfile::Builder::new().prefix(&format!("strowger-{name}-results-")).tempdir();
        let scratch = scratch.map_err(|error| error.to_string())?;
        let usual = format!("{name}.json");
        let usual = if quick { scratch.path().join(usual) } else { programs::beside(&usual) };
        let file = file.cloned().unwrap_or(usual);
        let results = match saved_results::read(&file, &conditions) {
            Ok(results) if resume || describe || is_partial => results,
            Err(why) if resume || describe => return Err(why),
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
