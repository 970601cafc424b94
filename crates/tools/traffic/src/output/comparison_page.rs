//! Page of two runs.

use std::fmt::Write as _;

use super::charts::{self, PlottedRun};
use super::compare::{BetterWhen, Comparison, Row, figure};
use super::data::RunReport;
use super::format::{bytes, float, micros, number};
use super::html::{facts, verdict};
use super::page::{Page, Tone};
use super::plot::escape;

/// Colours of the first and the second run.
const COLOURS: [u8; 2] = [5, 2];

/// Returns the page of two runs.
#[must_use]
pub fn comparison_page(a: &RunReport, b: &RunReport, comparison: &Comparison) -> String {
    let [first, second] = &comparison.names;
    let mut page = Page::new("Load comparison", &format!("{second} beside {first}"), &both(a, b));
    let shown = [(a, first), (b, second)];
    let mut tone = if comparison.warnings.is_empty() { Tone::Good } else { Tone::Fair };
    let mut more = Vec::new();
    for (run, name) in shown {
        let (its, sentence, _) = verdict(run);
        tone = tone.max(its);
        more.push(format!("{name}: {sentence}"));
    }
    more.extend(comparison.warnings.iter().cloned());
    page.verdict(tone, &comparison.summary(), &more);
    page.tiles(&tiles(shown));
    let runs = [0, 1].map(|index| {
        let (run, name) = shown[index];
        PlottedRun { run, name, colour: COLOURS[index] }
    });
    let latency = match a.latency() {
        Some(row) => format!("Latency, {} → {}", row.method, row.answer),
        None => "Latency".to_owned(),
    };
    page.cards(vec![
        ("Calls carried, a second".to_owned(), charts::loads(&runs)),
        (latency.clone(), charts::latencies_of(&runs)),
        (format!("{latency}: percentiles"), charts::percentiles(&runs)),
        (
            "CPUs used by the servers".to_owned(),
            charts::servers("Processors over time", &runs, |value| format!("{value:.2}"), |row| row.user + row.system),
        ),
        (
            "Memory of the servers".to_owned(),
            charts::servers("Memory over time", &runs, charts::mib, |row| float(row.resident_bytes) / charts::MIB),
        ),
        (
            "Context switches of the servers per second".to_owned(),
            charts::servers("Context switches over time", &runs, number, |row| {
                row.voluntary_per_s + row.involuntary_per_s
            }),
        ),
    ]);
    page.wide("All figures", &rows(comparison));
    page.end(&format!(
        "Ratios are {second} to {first}. Times are accurate to 1 %, so a difference of less than 2 % is not significant. A \
         difference within both confidence intervals is not significant either; without intervals, a single run does not show \
         the variance of a figure."
    ))
}

/// Returns what both runs have in common; the warnings name what differs.
fn both(a: &RunReport, b: &RunReport) -> Vec<String> {
    let theirs = facts(b);
    let mut common: Vec<String> = facts(a).into_iter().filter(|fact| theirs.contains(fact)).collect();
    if a.workload == b.workload {
        common.insert(0, a.workload.clone());
    }
    common
}

fn tiles(shown: [(&RunReport, &String); 2]) -> Vec<(&'static str, String, String)> {
    let mut tiles = Vec::new();
    let mut tile = |name, of: &dyn Fn(&RunReport) -> Option<(f64, String)>| {
        let [(a, first), (b, _)] = shown;
        if let (Some((one, told)), Some((two, text))) = (of(a), of(b)) {
            let times = if one > 0.0 { format!(", {} ×", number(two / one)) } else { String::new() };
            tiles.push((name, text, format!("{first} {told}{times}")));
        }
    };
    tile("carried", &|run| Some((run.carried_per_s, format!("{}/s", number(run.carried_per_s)))));
    tile("median latency", &|run| run.latency().map(|row| (row.us.p50, micros(row.us.p50))));
    tile("99th percentile", &|run| run.latency().map(|row| (row.us.p99, micros(row.us.p99))));
    tile("CPU a call", &|run| {
        run.server.as_ref().map(|server| (server.cpu_us_per_call, micros(server.cpu_us_per_call)))
    });
    tile("memory", &|run| {
        run.server.as_ref().map(|server| (float(server.peak_bytes), bytes(float(server.peak_bytes))))
    });
    tiles
}

fn rows(comparison: &Comparison) -> String {
    let [first, second] = comparison.names.each_ref().map(|name| escape(name));
    let mut html =
        format!("<table class=\"figures\"><tr><th></th><th>{first}</th><th>{second}</th><th>ratio</th><th></th></tr>");
    let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), figure);
    for row in &comparison.rows {
        let name = if row.unit.is_empty() { row.name.clone() } else { format!("{} ({})", row.name, row.unit) };
        let ratio = row.ratio().map_or_else(|| "–".to_owned(), figure);
        let (class, verdict) = judged(row);
        // Writing to a String cannot fail.
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{ratio}</td><td class=\"{class}\">{verdict}</td></tr>",
            escape(&name),
            shown(row.a),
            shown(row.b)
        );
    }
    html.push_str("</table>");
    html
}

fn judged(row: &Row) -> (&'static str, &'static str) {
    match (row.better, row.verdict(), row.is_significant) {
        (BetterWhen::Neither, ..) | (_, None, _) => ("", ""),
        (_, Some(_), Some(false)) => ("", "within the intervals"),
        (_, Some("better"), _) => ("good", "better"),
        (_, Some(verdict), _) => ("bad", verdict),
    }
}
