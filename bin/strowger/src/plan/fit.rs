//! `strowger plan fit`: derives a profile from measurements.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use strowger_plan::fit::{Estimate, Fit, Options, fit};

use super::measured::MeasuredArguments;
use super::profile::load;
use crate::failure::Failure;
use crate::plot::{Chart, DisplayUnit, Document, Line, draw};
use crate::table::{self, columns, wrapped};

#[derive(Debug, Args)]
pub(crate) struct FitArguments {
    #[command(flatten)]
    measured: MeasuredArguments,
    /// Profile for what the measurements lack: a file, measured or goals
    #[arg(long, value_name = "PROFILE", default_value = "measured")]
    from: PathBuf,
    /// Name of the profile
    #[arg(long, value_name = "NAME", default_value = "fitted")]
    name: String,
    /// Seed of the bootstrap
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Writes the profile, for --profile of mg1, mmck, mgck, size and validate; - is standard output
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Prints the profile and all fitted values as JSON
    #[arg(long, help_heading = "Output", conflicts_with = "output")]
    json: bool,
    /// Draws the fit and the measurements: FILE.svg or FILE.html
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    plot: Option<PathBuf>,
}

const TITLE: &str = "A profile from measurements";

impl FitArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let measured = self.measured.read_in_parts()?;
        let options = Options { seed: self.seed, from: load(&self.from)?.profile, name: self.name.clone() };
        let fitted = fit(&measured, &options).map_err(|error| Failure::Usage(error.to_string()))?;
        let json = json!({ "profile": fitted.profile, "fit": without_profile(&fitted) });
        if let Some(file) = &self.plot {
            let seen = measured.iter().filter(|one| one.servers == 1);
            let seen: Vec<(f64, f64)> = seen.filter_map(|one| Some((one.rate_per_s, one.mean_s()?))).collect();
            draw(file, &Document::of_charts(TITLE, &fitted.notes, charts(&fitted, seen)))?;
        }
        if self.json {
            table::print_json(&json)?;
            return Ok(());
        }
        match &self.output {
            Some(file) if file.as_os_str() == "-" => table::print_json(&json)?,
            Some(file) => {
                std::fs::write(file, format!("{json:#}\n"))
                    .map_err(|error| Failure::No(format!("{} cannot be written: {error}", file.display())))?;
                table::print_line(&format!("{}\nwritten to {}", text(&fitted), file.display()))?;
            }
            None => {
                table::print_line(&format!(
                    "{}\nnot written; --output FILE writes the profile for --profile",
                    text(&fitted)
                ))?;
            }
        }
        Ok(())
    }
}

/// Returns the fit without the profile, which is printed separately.
fn without_profile(fitted: &Fit) -> serde_json::Value {
    let mut value = json!(fitted);
    if let Some(map) = value.as_object_mut() {
        map.remove("profile");
    }
    value
}

fn charts(fitted: &Fit, seen: Vec<(f64, f64)>) -> Vec<Chart> {
    let service = fitted.service.iter().map(|at| (at.rate_per_s, at.mean_s.value)).collect();
    let alpha = fitted.alpha.iter().map(|at| (at.rate_per_s, at.alpha.value)).collect();
    let chart = |title: &str, y: DisplayUnit, lines: Vec<Line>| Chart {
        title: title.to_owned(),
        across: "arrivals λ".to_owned(),
        x: DisplayUnit::Rate,
        y,
        is_log: false,
        is_across_log: false,
        lines,
    };
    vec![
        chart(
            "mean service time E[X]",
            DisplayUnit::Micros,
            vec![Line::new("fitted", service), Line::dots("measured", seen)],
        ),
        chart("α", DisplayUnit::Number, vec![Line::new("α(λ)", alpha)]),
    ]
}

/// Formats an interval, if there is one.
pub(super) fn interval(estimate: &Estimate, show: DisplayUnit) -> String {
    estimate.interval.map_or_else(|| "–".to_owned(), |(low, high)| format!("{} to {}", show.text(low), show.text(high)))
}

fn text(fitted: &Fit) -> String {
    let mut text = format!("{TITLE}: {} measurements, seed {}\n", fitted.measurements, fitted.seed);
    let head = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let rows = fitted.service.iter().map(|at| {
        vec![
            DisplayUnit::Rate.text(at.rate_per_s),
            DisplayUnit::Micros.text(at.mean_s.value),
            interval(&at.mean_s, DisplayUnit::Micros),
            format!("{} µs²", DisplayUnit::Number.text(at.second_moment_s2.value * 1e12)),
            interval(&at.second_moment_s2.clone().scaled(1e12), DisplayUnit::Number),
        ]
    });
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "\nservice time of one thread\n{}",
        columns(&head(&["λ", "E[X]", "95 %", "E[X²]", "95 %"]), &rows.collect::<Vec<_>>())
    );
    let rows = fitted.alpha.iter().map(|at| {
        vec![
            DisplayUnit::Rate.text(at.rate_per_s),
            DisplayUnit::Number.text(at.alpha.value),
            interval(&at.alpha, DisplayUnit::Number),
        ]
    });
    let _ = write!(text, "\nservice time by rate\n{}", columns(&head(&["λ", "α", "95 %"]), &rows.collect::<Vec<_>>()));
    if !fitted.messages.is_empty() {
        let rows = fitted.messages.iter().map(|message| {
            let mean = message.mean_s.as_ref();
            vec![
                message.message.clone(),
                DisplayUnit::Share.text(message.share),
                mean.map_or_else(|| "–".to_owned(), |mean| DisplayUnit::Micros.text(mean.value)),
                mean.map_or_else(|| "–".to_owned(), |mean| interval(mean, DisplayUnit::Micros)),
                message.scv.as_ref().map_or_else(|| "–".to_owned(), |scv| DisplayUnit::Number.text(scv.value)),
            ]
        });
        let head = head(&["message", "share", "E[X]", "95 %", "scv"]);
        let _ = write!(text, "\nby message type\n{}", columns(&head, &rows.collect::<Vec<_>>()));
    }
    text.push('\n');
    text.push_str(&facts(fitted));
    text.push('\n');
    for note in &fitted.notes {
        text.push_str(&wrapped("- ", note));
    }
    text
}

/// Formats the single values.
fn facts(fitted: &Fit) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut add = |name: String, estimate: &Estimate, show: DisplayUnit| {
        rows.push(vec![name, show.text(estimate.value), interval(estimate, show), estimate.method.clone()]);
    };
    if let Some(scv) = &fitted.scv {
        add("variation Var[X]/E[X]²".to_owned(), scv, DisplayUnit::Number);
    }
    if let Some(beta) = &fitted.beta {
        add("β: for each thread".to_owned(), &beta.per_thread, DisplayUnit::Number);
        add("β: for each packet/s".to_owned(), &beta.per_packet, DisplayUnit::Number);
        add("β: constant".to_owned(), &beta.constant, DisplayUnit::Number);
    }
    add("base capacity C₁, calls".to_owned(), &fitted.base_capacity_per_s, DisplayUnit::Rate);
    for cost in &fitted.costs {
        let runs = if cost.runs == 1 { "run" } else { "runs" };
        add(format!("{}, {} {runs}", cost.kind, cost.runs), cost.estimate(), DisplayUnit::Micros);
    }
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..4).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
