//! Comparison of two runs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::data::RunReport;
use super::format::{float, grouped, number, seconds};

/// Relative difference up to which two values count as equal; the ratio is then shown as 1.
const SAME: f64 = 5e-4;
/// The same for times and for what is measured once for each call: the two histograms are exact to one percent each.
const SAME_TIME: f64 = 0.02;
/// Relative difference up to which the lengths of two runs count as equal.
const SAME_LENGTH: f64 = 0.01;

/// Whether a higher or a lower value is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BetterWhen {
    /// Higher is better.
    Higher,
    /// Lower is better.
    Lower,
    /// Neither.
    Neither,
}

/// One figure of both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name.
    pub name: String,
    /// Unit; empty for counts.
    pub unit: &'static str,
    /// Value of the first run; `None` if it was not measured.
    pub a: Option<f64>,
    /// Value of the second run.
    pub b: Option<f64>,
    /// Number of calls of each run, for a count that is judged per call.
    pub of_calls: Option<(u64, u64)>,
    /// Whether higher or lower is better.
    pub better: BetterWhen,
    /// Whether the confidence intervals do not overlap; `None` without intervals.
    pub is_significant: Option<bool>,
}

impl Row {
    /// Returns the second value as a multiple of the first; `None` if the first is zero or missing.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        match (self.a, self.b) {
            (Some(a), Some(b)) if a != 0.0 => Some(b / a),
            _ => None,
        }
    }

    /// Returns `better` or `worse` for the second run; `None` if the values are practically equal or neither is
    /// better.
    #[must_use]
    pub fn verdict(&self) -> Option<&'static str> {
        let (mut a, mut b) = (self.a?, self.b?);
        if let Some((of_a, of_b)) = self.of_calls {
            (a, b) = (a / float(of_a.max(1)), b / float(of_b.max(1)));
        }
        let same = if matches!(self.unit, "ms" | "µs") { SAME_TIME } else { SAME };
        match self.better {
            _ if (b - a).abs() <= same * a.abs() => None,
            BetterWhen::Neither => None,
            BetterWhen::Higher => Some(if b > a { "better" } else { "worse" }),
            BetterWhen::Lower => Some(if b < a { "better" } else { "worse" }),
        }
    }
}

/// Comparison of two runs.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Names of the first and the second run.
    pub names: [String; 2],
    /// What makes the runs hard to compare.
    pub warnings: Vec<String>,
    /// Figures, by importance.
    pub rows: Vec<Row>,
}

/// Compares two runs.
#[must_use]
pub fn compare(a: &RunReport, b: &RunReport) -> Comparison {
    let mut rows = Vec::new();
    let mut row = |name: &str, unit, better, of: &dyn Fn(&RunReport) -> Option<f64>| {
        let (a, b) = (of(a), of(b));
        if a.is_some() || b.is_some() {
            rows.push(Row { name: name.to_owned(), unit, a, b, of_calls: None, better, is_significant: None });
        }
    };
    row("offered", "/s", BetterWhen::Neither, &|run| has_rate(run).then_some(run.offered_per_s));
    row("carried", "/s", BetterWhen::Higher, &|run| has_rate(run).then_some(run.carried_per_s));
    row("carried of sent", "%", BetterWhen::Higher, &|run| Some(100.0 * run.carried_share));
    row("lost", "", BetterWhen::Lower, &|run| Some(float(run.lost)));
    row("failed", "", BetterWhen::Lower, &|run| Some(float(run.failed)));
    row("sent again", "", BetterWhen::Lower, &|run| Some(float(run.repeats_sent)));
    row("server: processors", "", BetterWhen::Neither, &|run| Some(run.server.as_ref()?.processors));
    row("server: CPU a call", "µs", BetterWhen::Lower, &|run| Some(run.server.as_ref()?.cpu_us_per_call));
    row("server: switches a call", "", BetterWhen::Lower, &|run| Some(run.server.as_ref()?.switches_per_call));
    row("server: memory", "MiB", BetterWhen::Lower, &|run| Some(float(run.server.as_ref()?.peak_bytes) / 1_048_576.0));
    row("server: drops", "", BetterWhen::Lower, &|run| run.server.as_ref()?.drops.map(float));
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    for answer in a.answers.iter().chain(&b.answers) {
        let kind = (answer.method.as_str(), answer.answer.as_str());
        if answer.us.count > 0 && !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    for (method, answer) in kinds {
        let times = |run: &RunReport| {
            let rows = run.answers.iter();
            rows.map(|row| (row.method.as_str(), row.answer.as_str(), row.us))
                .find(|(a_method, an_answer, us)| *a_method == method && *an_answer == answer && us.count > 0)
                .map(|(.., us)| us)
        };
        row(&format!("{method} to {answer}: p50"), "ms", BetterWhen::Lower, &|run| Some(times(run)?.p50 / 1e3));
        row(&format!("{method} to {answer}: p99"), "ms", BetterWhen::Lower, &|run| Some(times(run)?.p99 / 1e3));
    }
    let metrics = a.rfc6076.iter().filter(|metric| metric.unit == "%");
    for name in metrics.map(|metric| metric.name.as_str()) {
        let better = if name.starts_with('I') { BetterWhen::Lower } else { BetterWhen::Higher };
        row(name, "%", better, &|run| run.rfc6076.iter().find(|metric| metric.name == name)?.value);
    }
    row("generator: CPU a call", "µs", BetterWhen::Neither, &|run| Some(run.generator.cpu_us_per_call));
    row("generator: late at p99", "µs", BetterWhen::Neither, &|run| Some(run.generator.lateness_us.p99));
    let unread = |run: &RunReport| Some(&run.generator.unread_us).filter(|us| us.count > 0).map(|us| us.p99);
    row("generator: read delay at p99", "µs", BetterWhen::Neither, &unread);
    judge(&mut rows, a, b);
    Comparison { names: ["first".to_owned(), "second".to_owned()], warnings: warnings(a, b), rows }
}

/// Adds confidence intervals to the figures, and the numbers of calls that counts refer to.
fn judge(rows: &mut [Row], a: &RunReport, b: &RunReport) {
    let main = a.latency().map(|row| format!("{} to {}", row.method, row.answer)).unwrap_or_default();
    let latency = format!("{main}: p99");
    let counts = ["lost", "failed", "sent again", "server: drops"];
    for row in rows {
        row.is_significant = match row.name.as_str() {
            "carried" => lies_apart(a, b, "carried_per_s"),
            name if name == latency => lies_apart(a, b, "latency_p99_us"),
            _ => None,
        };
        row.of_calls = counts.contains(&row.name.as_str()).then_some((a.sent, b.sent));
    }
}

/// Returns whether the run was long enough for rates; the report of a shorter one has none.
fn has_rate(run: &RunReport) -> bool {
    run.offered_per_s > 0.0
}

fn lies_apart(a: &RunReport, b: &RunReport, name: &str) -> Option<bool> {
    let (a, b) = (a.confidence.get(name)?, b.confidence.get(name)?);
    Some((a.mean - b.mean).abs() > a.half_width + b.half_width)
}

fn warnings(a: &RunReport, b: &RunReport) -> Vec<String> {
    let mut warnings = Vec::new();
    for (what, one, two) in [("workloads", &a.workload, &b.workload), ("arrivals", &a.arrivals, &b.arrivals)] {
        if one != two {
            warnings.push(format!("the {what} differ: {one} and {two}"));
        }
    }
    let differs = |one: f64, two: f64| (one - two).abs() > SAME_LENGTH * one.max(two);
    if differs(float(a.sent), float(b.sent)) || differs(a.elapsed_s, b.elapsed_s) {
        let [one, two] = [a, b].map(|run| format!("{} calls in {}", grouped(run.sent), seconds(run.elapsed_s)));
        warnings.push(format!("the lengths differ: {one} and {two}; counts are compared per call"));
    }
    if a.declared != b.declared {
        warnings.push("the declared parameters differ".to_owned());
    }
    for (which, run) in [("first", a), ("second", b)] {
        if let Some(why) = &run.generator.bottleneck {
            warnings.push(format!("in the {which} run the generator was the bottleneck: {why}"));
        }
        if let Some(why) = &run.caution {
            warnings.push(format!("in the {which} run {why}"));
        }
        if run.was_stopped {
            warnings.push(format!("the {which} run was stopped before its end"));
        }
    }
    warnings
}

impl Comparison {
    /// Sets the names of the runs.
    #[must_use]
    pub fn named(self, names: &[String; 2]) -> Self {
        Self { names: names.clone(), ..self }
    }

    /// Returns the most important figures in a sentence.
    #[must_use]
    pub fn summary(&self) -> String {
        let [first, second] = &self.names;
        let find = |wanted: &dyn Fn(&str) -> bool| self.rows.iter().find(|row| wanted(&row.name));
        let times = |row: &Row| row.ratio().map(|ratio| format!("{} ×", number(ratio)));
        let mut parts = Vec::new();
        let mut part =
            |row: Option<&Row>, what: &str| parts.extend(row.and_then(times).map(|times| format!("{times} {what}")));
        part(find(&|name| name == "carried"), "the calls");
        part(find(&|name| name == "server: CPU a call"), "the CPU a call");
        part(find(&|name| name == "server: memory"), "the memory");
        part(find(&|name| name.ends_with("to 2xx: p50")), "the median latency");
        part(find(&|name| name.ends_with("to 2xx: p99")), "the 99th percentile");
        match parts.split_last() {
            None => format!("{second} and {first} have no figures in common."),
            Some((last, [])) => format!("{second} has {last} of {first}."),
            Some((last, others)) => format!("{second} has {} and {last} of {first}.", others.join(", ")),
        }
    }

    /// Returns a table for people.
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
        let [first, second] = self.names.each_ref().map(|name| short(name));
        let _ = writeln!(text, "{:<width$} {first:>12} {second:>12} {:>9}", "", "ratio");
        for row in &self.rows {
            let name = if row.unit.is_empty() { row.name.clone() } else { format!("{} ({})", row.name, row.unit) };
            let ratio = row.ratio().map_or_else(|| "-".to_owned(), figure);
            let mut verdict = row.verdict().unwrap_or("").to_owned();
            if row.is_significant == Some(false) && !verdict.is_empty() {
                verdict.push_str(", within the confidence intervals");
            }
            let line = format!("{name:<width$} {:>12} {:>12} {ratio:>9}  {verdict}", shown(row.a), shown(row.b));
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let _ = writeln!(text, "\n{}", self.summary());
        text
    }

    /// Returns the comparison for programs.
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
        json!({ "names": self.names, "summary": self.summary(), "warnings": self.warnings, "rows": rows })
    }
}

/// Returns a name short enough for its column.
fn short(name: &str) -> String {
    if name.chars().count() <= 12 { name.to_owned() } else { name.chars().take(11).chain(['…']).collect() }
}

/// Formats a number with its significant digits.
pub(super) fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 10.0 => format!("{value:.3}"),
        size if size < 1_000.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::phase_data::example_run;
    use super::*;

    fn run(calls: u64, millis: u64) -> RunReport {
        RunReport::from_json(&example_run(calls, millis)).expect("a report")
    }

    fn row<'a>(comparison: &'a Comparison, name: &str) -> &'a Row {
        comparison.rows.iter().find(|row| row.name == name).expect(name)
    }

    #[test]
    fn ratios_are_second_to_first() {
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
        assert_eq!(row(&comparison, "failed").verdict(), Some("better"), "as many of twice the calls");
        assert!(
            matches!(comparison.warnings.as_slice(), [one] if one.contains("the lengths differ")),
            "twice the calls"
        );
        let summary = comparison.named(&["ours".to_owned(), "theirs".to_owned()]).summary();
        assert!(summary.starts_with("theirs has 2") && summary.ends_with("of ours."), "{summary}");
        assert!(summary.contains("0.5 × the CPU a call"), "{summary}");
    }

    #[test]
    fn insignificant_differences_are_marked() {
        let (a, mut b) = (run(10, 20), run(10, 20));
        b.carried_per_s *= 1.001;
        let comparison = compare(&a, &b);
        assert_eq!(row(&comparison, "carried").is_significant, Some(false));
        assert!(comparison.to_text().contains("better, within the confidence intervals"));
    }

    #[test]
    fn changes_below_histogram_resolution_are_ignored() {
        let (a, mut b) = (run(10, 20), run(10, 20));
        for row in &mut b.answers {
            (row.us.p50, row.us.p99) = (row.us.p50 * 1.01, row.us.p99 * 1.03);
        }
        let comparison = compare(&a, &b);
        assert_eq!(row(&comparison, "INVITE to 2xx: p50").verdict(), None, "within what each is exact to");
        let p99 = row(&comparison, "INVITE to 2xx: p99");
        assert_eq!(p99.verdict(), Some("worse"));
        assert_eq!(p99.is_significant, Some(false), "the slices scatter alike");
        b.server.as_mut().expect("a server").cpu_us_per_call *= 1.01;
        assert_eq!(row(&compare(&a, &b), "server: CPU a call").verdict(), None);
    }

    /// Twice the calls lose twice as many.
    #[test]
    fn counts_are_compared_per_call() {
        let (mut a, mut b) = (run(10, 20), run(10, 20));
        (a.sent, a.lost, b.sent, b.lost) = (1_000, 10, 2_000, 20);
        (a.repeats_sent, b.repeats_sent) = (100, 150);
        let comparison = compare(&a, &b);
        assert_eq!(row(&comparison, "lost").verdict(), None);
        assert_eq!(row(&comparison, "sent again").verdict(), Some("better"), "100 of 1000, 150 of 2000");
        let warned =
            comparison.warnings.iter().any(|text| text.contains("1\u{202f}000 calls in") && text.contains("per call"));
        assert!(warned, "{:?}", comparison.warnings);
        b.sent = 1_001;
        assert!(compare(&a, &b).warnings.is_empty());
    }

    #[test]
    fn a_figure_missing_in_one_run_has_no_ratio() {
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
    fn comparing_unlike_runs_warns() {
        let (a, mut b) = (run(10, 20), run(10, 20));
        b.workload = "baseline".to_owned();
        b.generator.bottleneck = Some("late".to_owned());
        let text = compare(&a, &b).to_text();
        assert!(text.contains("! the workloads differ: proxy-200 and baseline"), "{text}");
        assert!(text.contains("! in the second run the generator was the bottleneck: late"), "{text}");
        let lines: Vec<_> = text.lines().skip(2).take_while(|line| !line.is_empty()).collect();
        let end = |line: &str| line.find("ratio").map(|at| at + "ratio".len());
        let columns = end(lines[0]).expect("a heading");
        assert!(lines.iter().skip(1).all(|line| line.chars().count() >= columns), "aligned:\n{text}");
    }

    /// A file may be damaged or foreign: each number of a report is replaced by one that no run has.
    #[test]
    fn extreme_numbers_do_not_break_tables_and_pages() {
        use super::super::{comparison_page, histograms, intervals, page};
        let sound = example_run(9, 20);
        let mut leaves = Vec::new();
        paths(&sound, String::new(), &mut leaves);
        let extremes = [json!(u64::MAX), json!(5e-324), json!(f64::MAX), json!(-f64::MAX)];
        let good = RunReport::from_json(&sound).expect("a report");
        let mut read = 0;
        // Rows of a list are parsed alike, so the first one of each list suffices.
        for leaf in leaves.iter().filter(|leaf| !leaf.contains("rows/") || leaf.contains("rows/0/")) {
            for extreme in &extremes {
                let mut report = sound.clone();
                *report.pointer_mut(leaf).expect("a leaf") = extreme.clone();
                let Ok(run) = RunReport::from_json(&report) else { continue };
                read += 1;
                let comparison = compare(&good, &run);
                let pages = [page(&run), comparison_page(&good, &run, &comparison), intervals(&run), histograms(&run)];
                assert!(pages.iter().all(|page| !page.is_empty()), "{leaf} {extreme}");
            }
        }
        assert!(read > 200, "{read}");
    }

    /// Finds the paths of all numbers.
    fn paths(value: &Value, at: String, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                paths(value, format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            }),
            Value::Array(values) => {
                values
                    .iter()
                    .enumerate()
                    .take(2)
                    .for_each(|(index, value)| paths(value, format!("{at}/{index}"), found));
            }
            Value::Number(_) => found.push(at),
            _ => {}
        }
    }
}
