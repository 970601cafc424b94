//! `strowger load compare`: compares two runs.

use std::path::{Path, PathBuf};

use clap::Args;
use strowger_traffic::output::{RunReport, compare, comparison_page};

use crate::failure::Failure;
use crate::files::{both, ready, write};

#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// Output of `load run --json`
    a: PathBuf,
    /// Output of the other run
    b: PathBuf,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    /// Writes a page with plots of both
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Names of the runs [default: the servers' process names, or the file names]
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', num_args = 1)]
    names: Vec<String>,
}

impl CompareArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        ready(&[self.html.as_deref()])?;
        let (a, b) = (read(&self.a)?, read(&self.b)?);
        let names = self.names(&a, &b)?;
        let comparison = compare(&a, &b).named(&names);
        let page = self.html.as_ref().map_or(Ok(()), |file| write(file, &comparison_page(&a, &b, &comparison)));
        let text = if self.json { format!("{:#}\n", comparison.to_json()) } else { comparison.to_text() };
        both(page, write(Path::new("-"), &text))
    }

    fn names(&self, a: &RunReport, b: &RunReport) -> Result<[String; 2], Failure> {
        match self.names.as_slice() {
            [one, two] => return Ok([one.clone(), two.clone()]),
            [] => {}
            _ => return Err(Failure::Usage("--names needs two names, separated by a comma".to_owned())),
        }
        let servers = [a, b].map(|run| run.server.as_ref().map(|server| server.name.clone()));
        match servers {
            [Some(one), Some(two)] if one != two => Ok([one, two]),
            _ => Ok([&self.a, &self.b].map(|file| file.file_stem().unwrap_or_default().to_string_lossy().into_owned())),
        }
    }
}

fn read(file: &Path) -> Result<RunReport, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::Usage(format!("{}: {error}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    let json = serde_json::from_str(&text).map_err(|error| {
        wrong(&format!("this is not the report of a run ({error}); give a file written by `load run --json FILE`"))
    })?;
    RunReport::from_json(&json).map_err(|error| wrong(&error))
}
