//! `strowger plan validate`: compares predictions of the models with measurements.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use strowger_plan::validate::{OnePercent, Pair, Row, Validation, validate};

use super::measured::MeasuredArguments;
use super::presentation::refused;
use super::profile::load;
use crate::failure::Failure;
use crate::plot::{Chart, DisplayUnit, Document, Line, draw};
use crate::table::{self, columns, wrapped};

#[derive(Debug, Args)]
pub(crate) struct ValidateArguments {
    #[command(flatten)]
    measured: MeasuredArguments,
    /// Output of plan fit, from other measurements than these
    #[arg(long, value_name = "FILE")]
    profile: PathBuf,
    /// Exits with 1 if a wait (one thread, 30 to 80 % load) deviates by more than 15 % and 5us, or a rate of 1 %
    /// drops by more than 10 %
    #[arg(long)]
    strict: bool,
    /// Prints JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Draws waits, drops, and ρ compared with the number of busy processors: FILE.svg or FILE.html
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    plot: Option<PathBuf>,
}

const TITLE: &str = "Predictions and measurements";

impl ValidateArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let loaded = load(&self.profile)?;
        let measured = self.measured.read()?;
        let found = validate(&measured, &loaded.profile).map_err(|error| refused(&error))?;
        if let Some(file) = &self.plot {
            draw(file, &Document::of_charts(TITLE, &loaded.says(), charts(&found)))?;
        }
        if self.json {
            table::print_json(&json!(found))?;
        } else {
            let profile: String = loaded.says().iter().map(|line| wrapped("  ", line)).collect();
            table::print_line(&format!("{TITLE}\n{profile}{}", text(&found)))?;
        }
        match found.holds {
            Some(false) if self.strict => Err(Failure::No("a prediction exceeds its tolerance".to_owned())),
            None if self.strict => Err(Failure::No(
                "no measurement can be judged: give waits of one thread at 30 to 80 % load, or drops on both sides of 1 %".to_owned(),
            )),
            _ => Ok(()),
        }
    }
}

fn shown(value: Option<f64>, show: DisplayUnit) -> String {
    value.map_or_else(|| "–".to_owned(), |value| show.text(value))
}

/// Formats the error of a prediction.
fn error(pair: &Pair) -> String {
    pair.error().map_or_else(|| "–".to_owned(), |error| format!("{:+.1} %", 100.0 * error))
}

fn verdict(holds: Option<bool>) -> String {
    match holds {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "",
    }
    .to_owned()
}

fn text(found: &Validation) -> String {
    let mut text = String::new();
    let head = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let single: Vec<Vec<String>> = found.rows.iter().filter(|row| row.servers == 1).map(single_row).collect();
    if !single.is_empty() {
        let head = head(&[
            "calls",
            "λ",
            "α",
            "E[X] model",
            "measured",
            "ρ model",
            "CPU",
            "W model",
            "measured",
            "error",
            "within",
            "drops model",
            "measured",
        ]);
        // Writing to a String cannot fail.
        let _ = write!(text, "\none thread (M/G/1, as the thesis's table 4.4)\n{}", columns(&head, &single));
    }
    let several: Vec<Vec<String>> = found.rows.iter().filter(|row| row.servers > 1).map(several_row).collect();
    if !several.is_empty() {
        let head = head(&[
            "threads",
            "calls",
            "λ",
            "β",
            "E[X] model",
            "measured",
            "ρ model",
            "CPU",
            "drops model",
            "measured",
        ]);
        let _ = write!(
            text,
            "\nseveral threads (M/M/c/K, as the thesis's tables 5.2 to 5.6)\n{}",
            columns(&head, &several)
        );
    }
    if !found.one_percent.is_empty() {
        let rows = found.one_percent.iter().map(one_percent_row);
        let head = head(&["threads", "λ with 1 % drops, model", "measured", "error", "within"]);
        let _ = write!(text, "\nrate at which 1 % is dropped\n{}", columns(&head, &rows.collect::<Vec<_>>()));
    }
    text.push('\n');
    text.push_str(&summary(found));
    text
}

fn summary(found: &Validation) -> String {
    let (judged, kept) = found.waits;
    let mut lines = Vec::new();
    if judged > 0 {
        lines.push(format!(
            "Of {judged} waits of one thread at 30 to 80 % load, {kept} are predicted within 15 % or 5 µs."
        ));
    }
    let judged: Vec<bool> = found.one_percent.iter().filter_map(|one| one.holds).collect();
    if !judged.is_empty() {
        let kept = judged.iter().filter(|holds| **holds).count();
        lines.push(format!("Of {} rates at which 1 % is dropped, {kept} are predicted within 10 %.", judged.len()));
    }
    if lines.is_empty() {
        lines.push(
            "No measurement can be judged: that needs waits of one thread at 30 to 80 % load, or drops on both sides of 1 %.".to_owned(),
        );
    }
    lines.join("\n")
}

fn single_row(row: &Row) -> Vec<String> {
    vec![
        shown(row.calls_per_s, DisplayUnit::Rate),
        DisplayUnit::Rate.text(row.rate_per_s),
        DisplayUnit::Number.text(row.alpha),
        shown(row.service_s.predicted, DisplayUnit::Micros),
        shown(row.service_s.measured, DisplayUnit::Micros),
        shown(row.rho.predicted, DisplayUnit::Share),
        shown(row.rho.measured, DisplayUnit::Share),
        shown(row.wait_s.predicted, DisplayUnit::Micros),
        shown(row.wait_s.measured, DisplayUnit::Micros),
        error(&row.wait_s),
        verdict(row.wait_holds),
        shown(row.drops.predicted, DisplayUnit::Share),
        shown(row.drops.measured, DisplayUnit::Share),
    ]
}

fn several_row(row: &Row) -> Vec<String> {
    vec![
        row.servers.to_string(),
        shown(row.calls_per_s, DisplayUnit::Rate),
        DisplayUnit::Rate.text(row.rate_per_s),
        if row.beta.is_finite() { DisplayUnit::Number.text(row.beta) } else { "–".to_owned() },
        shown(row.service_s.predicted, DisplayUnit::Micros),
        shown(row.service_s.measured, DisplayUnit::Micros),
        shown(row.rho.predicted, DisplayUnit::Share),
        shown(row.rho.measured, DisplayUnit::Share),
        shown(row.drops.predicted, DisplayUnit::Share),
        shown(row.drops.measured, DisplayUnit::Share),
    ]
}

fn one_percent_row(one: &OnePercent) -> Vec<String> {
    vec![
        one.servers.to_string(),
        shown(one.rate_per_s.predicted, DisplayUnit::Rate),
        shown(one.rate_per_s.measured, DisplayUnit::Rate),
        error(&one.rate_per_s),
        verdict(one.holds),
    ]
}

fn charts(found: &Validation) -> Vec<Chart> {
    let mut threads: Vec<u32> = found.rows.iter().map(|row| row.servers).collect();
    threads.dedup();
    let one: &[u32] = if threads.contains(&1) { &[1] } else { &[] };
    vec![
        chart(found, "mean wait W of one thread", DisplayUnit::Micros, |row| row.wait_s, one),
        chart(
            found,
            "utilization: ρ of the model, and processors kept busy",
            DisplayUnit::Share,
            |row| row.rho,
            &threads,
        ),
        chart(found, "share of packets dropped", DisplayUnit::Share, |row| row.drops, &threads),
    ]
}

/// Returns a line of the model and the measured points for each number of threads.
fn chart(found: &Validation, title: &str, y: DisplayUnit, of: fn(&Row) -> Pair, threads: &[u32]) -> Chart {
    let points = |servers: u32, part: fn(&Pair) -> Option<f64>| -> Vec<(f64, f64)> {
        let own = found.rows.iter().filter(|row| row.servers == servers);
        own.filter_map(|row| Some((row.rate_per_s, part(&of(row))?))).collect()
    };
    let name = |kind: &str, servers: u32| {
        let threads_are = if servers == 1 { "thread" } else { "threads" };
        if threads.len() > 1 { format!("{kind}, {servers} {threads_are}") } else { kind.to_owned() }
    };
    let lines = threads.iter().enumerate().flat_map(|(number, servers)| {
        let colour = |line: Line| if threads.len() > 1 { line.coloured(number) } else { line };
        [
            colour(Line::new(&name("model", *servers), points(*servers, |pair| pair.predicted))),
            colour(Line::dots(&name("measured", *servers), points(*servers, |pair| pair.measured))),
        ]
    });
    let lines = lines.filter(|line| !line.points.is_empty());
    Chart {
        title: title.to_owned(),
        across: "arrivals λ".to_owned(),
        x: DisplayUnit::Rate,
        y,
        is_log: false,
        is_across_log: false,
        lines: lines.collect(),
    }
    .with_scale()
}
