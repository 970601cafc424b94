//! Two runs beside each other.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::data::Run;

/// Which of two values is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// The higher.
    Higher,
    /// The lower.
    Lower,
    /// Neither.
    Neither,
}

/// One figure of both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its unit; empty for counts.
    pub unit: &'static str,
    /// Of the first run; `None` where that did not measure it.
    pub a: Option<f64>,
    /// Of the second.
    pub b: Option<f64>,
    /// Which is better.
    pub better: Better,
    /// The intervals of confidence of both lie apart; `None` where there are none.
    pub is_significant: Option<bool>,
}

impl Row {
    /// The second as a multiple of the first; `None` where there is nothing to divide by.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        match (self.a, self.b) {
            (Some(a), Some(b)) if a != 0.0 => Some(b / a),
            _ => None,
        }
    }

    /// `better` or `worse`: what the second run is; `None` where they are equal, or it does not matter.
    #[must_use]
    pub fn verdict(&self) -> Option<&'static str> {
        let (a, b) = (self.a?, self.b?);
        match self.better {
            _ if a == b => None,
            Better::Neither => None,
            Better::Higher => Some(if b > a { "better" } else { "worse" }),
            Better::Lower => Some(if b < a { "better" } else { "worse" }),
        }
    }
}

/// Two runs beside each other.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What makes them hard to compare.
    pub warnings: Vec<String>,
    /// The figures, in the order in which they matter.
    pub rows: Vec<Row>,
}

/// Compares two runs.
#[must_use]
pub fn compare(a: &Run, b: &Run) -> Comparison {
    let mut rows = Vec::new();
    let mut row = |name: &str, unit, better, of: &dyn Fn(&Run) -> Option<f64>| {
        let (a, b) = (of(a), of(b));
        if a.is_some() || b.is_some() {
            rows.push(Row { name: name.to_owned(), unit, a, b, better, is_significant: None });
        }
    };
    row("offered", "/s", Better::Neither, &|run| Some(run.offered_per_s));
    row("carried", "/s", Better::Higher, &|run| Some(run.carried_per_s));
    row("carried of sent", "%", Better::Higher, &|run| Some(100.0 * run.carried_share));
    row("lost", "", Better::Lower, &|run| Some(float(run.lost)));
    row("failed", "", Better::Lower, &|run| Some(float(run.failed)));
    row("sent again", "", Better::Lower, &|run| Some(float(run.repeats_sent)));
    row("server: processors", "", Better::Neither, &|run| Some(run.server.as_ref()?.processors));
    row("server: CPU a call", "µs", Better::Lower, &|run| Some(run.server.as_ref()?.cpu_us_per_call));
    row("server: switches a call", "", Better::Lower, &|run| Some(run.server.as_ref()?.switches_per_call));
    row("server: memory", "MiB", Better::Lower, &|run| Some(float(run.server.as_ref()?.peak_bytes) / 1_048_576.0));
    row("server: drops", "", Better::Lower, &|run| run.server.as_ref()?.drops.map(float));
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    for answer in a.answers.iter().chain(&b.answers) {
        let kind = (answer.method.as_str(), answer.answer.as_str());
        if answer.us.count > 0 && !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    for (method, answer) in kinds {
        let times = |run: &Run| {
            let rows = run.answers.iter();
            rows.map(|row| (row.method.as_str(), row.answer.as_str(), row.us))
                .find(|(a_method, an_answer, us)| *a_method == method && *an_answer == answer && us.count > 0)
                .map(|(.., us)| us)
        };
        row(&format!("{method} to {answer}: p50"), "ms", Better::Lower, &|run| Some(times(run)?.p50 / 1e3));
        row(&format!("{method} to {answer}: p99"), "ms", Better::Lower, &|run| Some(times(run)?.p99 / 1e3));
    }
    let metrics = a.rfc6076.iter().filter(|metric| metric.unit == "%");
    for name in metrics.map(|metric| metric.name.as_str()) {
        let better = if name.starts_with('I') { Better::Lower } else { Better::Higher };
        row(name, "%", better, &|run| run.rfc6076.iter().find(|metric| metric.name == name)?.value);
    }
    row("generator: CPU a call", "µs", Better::Neither, &|run| Some(run.generator.cpu_us_per_call));
    row("generator: late at p99", "µs", Better::Neither, &|run| Some(run.generator.lateness_us.p99));
    if let Some(carried) = rows.iter_mut().find(|row| row.name == "carried") {
        carried.is_significant = lies_apart(a, b, "carried_per_s");
    }
    Comparison { warnings: warnings(a, b), rows }
}

fn lies_apart(a: &Run, b: &Run, name: &str) -> Option<bool> {
    let (a, b) = (a.confidence.get(name)?, b.confidence.get(name)?);
    Some((a.mean - b.mean).abs() > a.half_width + b.half_width)
}

fn warnings(a: &Run, b: &Run) -> Vec<String> {
    let mut warnings = Vec::new();
    for (what, one, two) in [("workloads", &a.workload, &b.workload), ("arrivals", &a.arrivals, &b.arrivals)] {
        if one != two {
            warnings.push(format!("the {what} differ: {one} and {two}"));
        }
    }
    if a.declared != b.declared {
        warnings.push("the declared parameters differ".to_owned());
    }
    for (which, run) in [("first", a), ("second", b)] {
        if let Some(why) = &run.generator.bottleneck {
            warnings.push(format!("in the {which} run the generator was the bottleneck: {why}"));
        }
        if run.was_stopped {
            warnings.push(format!("the {which} run was stopped early"));
        }
    }
    warnings
}

impl Comparison {
    /// A table for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for warning in &self.warnings {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "! {warning}");
        }
        let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), figure);
        let width =
            self.rows.iter().map(|row| row.name.chars().count() + row.unit.chars().count() + 3).max().unwrap_or(0);
        let _ = writeln!(text, "{:<width$} {:>12} {:>12} {:>9}", "", "first", "second", "ratio");
        for row in &self.rows {
            let name = if row.unit.is_empty() { row.name.clone() } else { format!("{} ({})", row.name, row.unit) };
            let ratio = row.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
            let mut verdict = row.verdict().unwrap_or("").to_owned();
            if row.is_significant == Some(false) && !verdict.is_empty() {
                verdict.push_str(", within the confidence intervals");
            }
            let line = format!("{name:<width$} {:>12} {:>12} {ratio:>9}  {verdict}", shown(row.a), shown(row.b));
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }

    /// The same for machines.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                json!({ "name": row.name, "unit": row.unit, "a": row.a, "b": row.b, "ratio": row.ratio(),
                    "verdict": row.verdict(), "is_significant": row.is_significant })
            })
            .collect();
        json!({ "warnings": self.warnings, "rows": rows })
    }
}

/// A number with as many digits as say something.
fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 10.0 => format!("{value:.3}"),
        size if size < 1_000.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
const fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::super::parts::example;
    use super::*;

    fn run(calls: u64, millis: u64) -> Run {
        Run::from_json(&example(calls, millis)).expect("a report")
    }

    fn row<'a>(comparison: &'a Comparison, name: &str) -> &'a Row {
        comparison.rows.iter().find(|row| row.name == name).expect(name)
    }

    #[test]
    fn ratios_are_of_the_second_to_the_first() {
        let comparison = compare(&run(9, 20), &run(19, 10));
        let carried = row(&comparison, "carried");
        assert!((carried.ratio().expect("both") - 2.0).abs() < 0.01, "{carried:?}");
        assert_eq!((carried.verdict(), carried.is_significant), (Some("better"), Some(true)));
        let median = row(&comparison, "INVITE to 2xx: p50");
        assert!((median.ratio().expect("both") - 0.535).abs() < 0.02, "{median:?}");
        assert_eq!(median.verdict(), Some("better"), "shorter is better");
        let cpu = row(&comparison, "server: CPU a call");
        assert!((cpu.ratio().expect("both") - 0.5).abs() < 0.01, "{cpu:?}");
        assert_eq!(row(&comparison, "lost").ratio(), None, "0 of 0");
        assert_eq!(row(&comparison, "failed").verdict(), None, "equal");
        assert!(comparison.warnings.is_empty());
    }

    #[test]
    fn what_lies_within_the_confidence_intervals_is_said() {
        let (a, mut b) = (run(10, 20), run(10, 20));
        b.carried_per_s *= 1.001;
        let comparison = compare(&a, &b);
        assert_eq!(row(&comparison, "carried").is_significant, Some(false));
        assert!(comparison.to_text().contains("better, within the confidence intervals"));
    }

    #[test]
    fn a_figure_that_one_run_lacks_has_no_ratio() {
        let (a, mut b) = (run(10, 20), run(10, 20));
        b.server = None;
        let comparison = compare(&a, &b);
        let cpu = row(&comparison, "server: CPU a call");
        assert_eq!((cpu.b, cpu.ratio(), cpu.verdict()), (None, None, None));
        let json = comparison.to_json();
        assert!(
            json["rows"]
                .as_array()
                .expect("rows")
                .iter()
                .any(|row| row["name"] == "server: drops" && row["b"].is_null())
        );
    }

    #[test]
    fn unlike_runs_are_compared_with_a_warning() {
        let (a, mut b) = (run(10, 20), run(10, 20));
        b.workload = "baseline".to_owned();
        b.generator.bottleneck = Some("late".to_owned());
        let text = compare(&a, &b).to_text();
        assert!(text.contains("! the workloads differ: proxy-200 and baseline"), "{text}");
        assert!(text.contains("! in the second run the generator was the bottleneck: late"), "{text}");
        let lines: Vec<_> = text.lines().skip(2).collect();
        let end = |line: &str| line.find("ratio").map(|at| at + "ratio".len());
        let columns = end(lines[0]).expect("a heading");
        assert!(lines.iter().skip(1).all(|line| line.chars().count() >= columns), "aligned:\n{text}");
    }
}
