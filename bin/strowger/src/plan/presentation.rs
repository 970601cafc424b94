//! Output common to all models: a single answer or a sweep, as text, JSON or plots.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};
use strowger_plan::{Explanation, PlanError};

use super::field::{Field, Input, InputPoint, points};
use crate::failure::Failure;
use crate::plot::{Chart, Document, Line, draw};
use crate::table::{self, WIDTH, columns, wrapped};

/// Output options.
#[derive(Debug, Args)]
pub(super) struct DisplayArguments {
    /// Prints JSON
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
    /// Prints the formulas with their numbers, and their sources
    #[arg(long, help_heading = "Output")]
    pub(super) explain: bool,
    /// Draws a sweep: FILE.svg, or FILE.html, a self-contained page with zoom
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) plot: Option<PathBuf>,
}

/// Answer for one point.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) outputs: Vec<Field>,
    /// Values for JSON only.
    pub(super) more: Map<String, Value>,
    /// Conclusions: the first limit, and what to do.
    pub(super) conclusions: Vec<String>,
    pub(super) explanation: Explanation,
    /// Reason if a requirement is not met.
    pub(super) rejection: Option<String>,
    /// Text for people instead of names and values, for a single answer.
    pub(super) report: Option<String>,
}

/// A model with its inputs.
pub(super) trait Model {
    /// Name on the command line.
    const NAME: &'static str;
    /// Title of the output.
    const TITLE: &'static str;
    /// Example of a sweep.
    const SWEEP: &'static str;
    /// Returns the inputs that may be swept, in display order.
    fn inputs(&self) -> Vec<Input<'_>>;
    /// Computes one answer.
    fn answer(&self, at: &InputPoint) -> Result<Answer, PlanError>;
    /// Returns the assumptions made for missing arguments.
    fn assumptions(&self) -> Vec<String> {
        Vec::new()
    }
    /// Returns plots of one answer, if any.
    fn charts(&self, _answer: &Answer) -> Vec<Chart> {
        Vec::new()
    }
}

/// Converts an error to a failure with its remedy.
pub(super) fn refused(error: &PlanError) -> Failure {
    Failure::Usage(format!("{error}; {}", error.remedy()))
}

/// Maximum number of lines in a plot that can be told apart.
const MOST_LINES: usize = 8;

/// A point with its answer.
type SolvedPoint = (InputPoint, Answer);

/// Prints the answer. The exit code says whether requirements are met.
pub(super) fn present<M: Model>(model: &M, shown: &DisplayArguments) -> Result<(), Failure> {
    let inputs = model.inputs();
    let points = points(&inputs).map_err(Failure::Usage)?;
    let mut solved: Vec<SolvedPoint> = Vec::with_capacity(points.len());
    for at in points {
        let answer = model.answer(&at).map_err(|error| refused(&error))?;
        solved.push((at, answer));
    }
    let is_swept = inputs.iter().any(|input| input.numbers.is_swept());
    if let Some(file) = &shown.plot {
        let charts = match solved.first() {
            Some((_, answer)) if !is_swept => model.charts(answer),
            _ => sweep_charts(&inputs, &solved),
        };
        if charts.is_empty() {
            return Err(Failure::Usage(format!(
                "--plot needs a sweep; give one number as a range, FROM..TO/STEP, such as {}",
                M::SWEEP
            )));
        }
        draw(file, &Document::of_charts(M::TITLE, &model.assumptions(), charts))?;
    }
    if shown.json {
        table::print_json(&json_of(model, &inputs, &solved, shown.explain, is_swept))?;
    } else {
        let text = text_of(model, &inputs, &solved, shown.explain, is_swept);
        let drawn = shown.plot.as_deref().map(written).unwrap_or_default();
        table::print_line(&format!("{text}{drawn}"))?;
    }
    match solved.as_mut_slice() {
        [(_, answer)] => answer.rejection.take().map_or(Ok(()), |why| Err(Failure::No(why))),
        several if several.iter().all(|(_, answer)| answer.rejection.is_some()) => {
            Err(Failure::No("no row of the sweep meets the requirements".to_owned()))
        }
        _ => Ok(()),
    }
}

fn written(file: &Path) -> String {
    format!("\n\ndrawn in {}", file.display())
}

fn row_json(inputs: &[Input<'_>], at: &InputPoint, answer: &Answer) -> Map<String, Value> {
    let mut row = Map::new();
    for input in inputs {
        row.insert(input.key.to_owned(), input.show.json(at.of(input.key)));
    }
    for field in &answer.outputs {
        row.insert(field.key.to_owned(), field.json());
    }
    row.extend(answer.more.clone());
    if let Some(why) = &answer.rejection {
        row.insert("reason".to_owned(), json!(why));
    }
    row
}

fn json_of<M: Model>(model: &M, inputs: &[Input<'_>], solved: &[SolvedPoint], explains: bool, is_swept: bool) -> Value {
    let mut top = Map::new();
    let explanation = |answer: &Answer| json!(answer.explanation.steps);
    if is_swept {
        let swept: Vec<_> = inputs.iter().filter(|input| input.numbers.is_swept()).map(|input| input.key).collect();
        let rows = solved.iter().map(|(at, answer)| {
            let mut row = row_json(inputs, at, answer);
            if explains {
                row.insert("explanation".to_owned(), explanation(answer));
            }
            Value::Object(row)
        });
        let rows: Vec<Value> = rows.collect();
        top.insert("swept".to_owned(), json!(swept));
        top.insert("rows".to_owned(), json!(rows));
    } else if let Some((at, answer)) = solved.first() {
        top = row_json(inputs, at, answer);
        top.insert("says".to_owned(), json!(answer.conclusions));
        if explains {
            top.insert("explanation".to_owned(), explanation(answer));
        }
    }
    top.insert("model".to_owned(), json!(M::NAME));
    let assumptions = model.assumptions();
    if !assumptions.is_empty() {
        top.insert("assumptions".to_owned(), json!(assumptions));
    }
    Value::Object(top)
}

fn text_of<M: Model>(
    model: &M,
    inputs: &[Input<'_>],
    solved: &[SolvedPoint],
    explains: bool,
    is_swept: bool,
) -> String {
    let mut text = format!("{}\n", M::TITLE);
    for assumption in model.assumptions() {
        text.push_str(&wrapped("  ", &assumption));
    }
    text.push('\n');
    match solved {
        [(_, Answer { report: Some(report), .. })] if !is_swept => text.push_str(report),
        [(at, answer)] if !is_swept => text.push_str(&one_text(inputs, at, answer)),
        _ => text.push_str(&sweep_text(inputs, solved)),
    }
    if explains && let Some((at, answer)) = solved.first() {
        let swept: Vec<String> = inputs
            .iter()
            .filter(|input| input.numbers.is_swept())
            .map(|input| format!("{} {}", input.name, input.show.text(at.of(input.key))))
            .collect();
        let which = if swept.is_empty() { String::new() } else { format!(", at {}", swept.join(", ")) };
        // Writing to a String cannot fail.
        let _ = write!(text, "\nformulas{which}\n{}", explained(&answer.explanation));
    }
    text.trim_end().to_owned()
}

/// Formats inputs, outputs and conclusions.
fn one_text(inputs: &[Input<'_>], at: &InputPoint, answer: &Answer) -> String {
    let given = inputs.iter().map(|input| (input.name, input.show.exact(at.of(input.key))));
    let found = answer.outputs.iter().map(|field| (field.name, field.text()));
    let (given, found): (Vec<_>, Vec<_>) = (given.collect(), found.collect());
    let width = given.iter().chain(&found).map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let facts = |facts: &[(&str, String)]| -> String {
        facts.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
    };
    let mut text = format!("{}\n{}", facts(&given), facts(&found));
    if !answer.conclusions.is_empty() {
        text.push('\n');
    }
    for line in &answer.conclusions {
        // Indented lines are part of a table.
        if line.starts_with(' ') {
            let _ = writeln!(text, "{line}");
        } else {
            text.push_str(&wrapped("", line));
        }
    }
    text
}

fn sweep_text(inputs: &[Input<'_>], solved: &[SolvedPoint]) -> String {
    let mut text = String::new();
    let fixed = inputs.iter().filter(|input| !input.numbers.is_swept());
    let fixed: Vec<String> =
        fixed.map(|input| format!("{} {}", input.name, input.show.exact(input.numbers.first()))).collect();
    if !fixed.is_empty() {
        let _ = writeln!(text, "with {}\n", listed(&fixed));
    }
    let swept: Vec<&Input<'_>> = inputs.iter().filter(|input| input.numbers.is_swept()).collect();
    let mut head: Vec<String> = swept.iter().map(|input| input.name.to_owned()).collect();
    // A column without values is omitted.
    let is_known = |column: usize| {
        solved.iter().any(|(_, answer)| answer.outputs.get(column).is_some_and(|field| field.value.is_some()))
    };
    let outputs = solved.first().map(|(_, answer)| answer.outputs.as_slice()).unwrap_or_default();
    let known = outputs.iter().enumerate().filter(|(column, _)| is_known(*column));
    head.extend(known.map(|(_, field)| field.name.to_owned()));
    let rows = solved.iter().map(|(at, answer)| {
        let given = swept.iter().map(|input| input.show.exact(at.of(input.key)));
        let found = answer.outputs.iter().enumerate().filter(|(column, _)| is_known(*column));
        given.chain(found.map(|(_, field)| field.text())).collect()
    });
    text.push_str(&columns(&head, &rows.collect::<Vec<Vec<String>>>()));
    text.push_str(&rejections(solved));
    text
}

/// Returns why rows have no answer or do not meet a requirement.
fn rejections(solved: &[SolvedPoint]) -> String {
    let (empty, full): (Vec<_>, Vec<_>) = solved
        .iter()
        .filter_map(|(_, answer)| Some((answer, answer.rejection.as_ref()?)))
        .partition(|(answer, _)| has_none(answer));
    let mut text = String::new();
    // Writing to a String cannot fail.
    if let Some((_, why)) = empty.first() {
        let _ = write!(text, "\n– no answer: {why}\n");
    }
    if let Some((_, why)) = full.first() {
        let _ = write!(
            text,
            "\n{} of {} rows do not meet the requirements, the first because {why}\n",
            full.len(),
            solved.len()
        );
    }
    text
}

fn has_none(answer: &Answer) -> bool {
    answer.outputs.iter().any(|field| field.value.is_none())
}

/// Joins the parts with commas, wrapped.
fn listed(parts: &[String]) -> String {
    let mut text = String::new();
    let mut width = 0;
    for (index, part) in parts.iter().enumerate() {
        let length = part.chars().count() + 2;
        if index > 0 {
            width += length;
            let breaks = width > WIDTH;
            text.push_str(if breaks { ",\n     " } else { ", " });
            width = if breaks { length } else { width };
        } else {
            width = length;
        }
        text.push_str(part);
    }
    text
}

/// Formats formulas, each with its numbers below it.
pub(super) fn explained(explanation: &Explanation) -> String {
    let mut text = String::new();
    for step in &explanation.steps {
        let symbol = &step.symbol;
        let indent = " ".repeat(symbol.chars().count());
        let _ = write!(text, "\n  {symbol}  {}  [{}]\n", step.meaning, step.source);
        let _ = writeln!(text, "  {symbol} = {}", step.formula);
        if !step.numbers.is_empty() && step.numbers != step.formula {
            let _ = writeln!(text, "  {indent} = {}", step.numbers);
        }
        let _ = writeln!(text, "  {indent} = {}", step.value);
    }
    text
}

/// Returns a plot of each output over the longest sweep, with one line per value of the other inputs.
fn sweep_charts(inputs: &[Input<'_>], solved: &[SolvedPoint]) -> Vec<Chart> {
    let swept: Vec<&Input<'_>> = inputs.iter().filter(|input| input.numbers.is_swept()).collect();
    let Some(across) = swept.iter().max_by_key(|input| input.numbers.all().len()) else { return Vec::new() };
    let others: Vec<&&Input<'_>> = swept.iter().filter(|input| input.key != across.key).collect();
    let name = |at: &InputPoint| -> String {
        let parts = others.iter().map(|input| format!("{} {}", input.name, input.show.text(at.of(input.key))));
        parts.collect::<Vec<_>>().join(", ")
    };
    let mut names: Vec<String> = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, _) in solved {
        let name = name(at);
        if seen.insert(name.clone()) {
            names.push(name);
        }
        if names.len() == MOST_LINES {
            break;
        }
    }
    let outputs = solved.first().map(|(_, answer)| answer.outputs.as_slice()).unwrap_or_default();
    let charts = outputs.iter().enumerate().filter(|(_, field)| field.is_drawn).map(|(column, field)| {
        let lines = names.iter().map(|wanted| {
            let own = solved.iter().filter(|(at, _)| name(at) == *wanted);
            let points = own.filter_map(|(at, answer)| Some((at.of(across.key), answer.outputs.get(column)?.value?)));
            Line::new(if wanted.is_empty() { field.name } else { wanted.as_str() }, points.collect())
        });
        Chart {
            title: field.name.to_owned(),
            across: across.name.to_owned(),
            x: across.show,
            y: field.show,
            is_log: false,
            is_across_log: false,
            lines: lines.collect(),
        }
        .with_scale()
    });
    charts.collect()
}
