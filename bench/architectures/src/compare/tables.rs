//! The tables, as Markdown.

use std::fmt::Write as _;

use super::load::{Figures, Load};
use super::scenario::Scenario;
use super::server::Subject;
use super::{BOTH_CORES, CompareArguments, ONE_CORE, Row, paper};
use crate::shells::Architecture;

/// Returns everything between the marks.
pub(super) fn all(arguments: &CompareArguments, rows: &[Row], around: &str) -> String {
    let of = |scenario: Scenario, cores: &str, is_full: bool| -> Vec<&Row> {
        let fits = |row: &&Row| {
            row.scenario == scenario && row.cores == cores && matches!(row.load, Load::Saturation(_)) == is_full
        };
        rows.iter().filter(fits).collect()
    };
    let mut text = format!("## Figures\n\n{around}\n{}", words(arguments));
    text.push_str("\n![Speed and context switches of each architecture](architectures.svg)\n");
    for (title, scenario) in [
        ("Table 1: stateless proxy, Proxy-200", Scenario::Stateless),
        ("Table 2: stateful proxy, Proxy-200", Scenario::Stateful),
    ] {
        let _ = write!(text, "\n### {title}\n\n{}", beside_the_paper(&of(scenario, ONE_CORE, true)));
        let _ = write!(text, "\n{}", costs(&of(scenario, ONE_CORE, true)));
    }
    let _ = write!(text, "\n### REGISTER\n\n{}", costs(&of(Scenario::Register, ONE_CORE, true)));
    let _ = write!(
        text,
        "\n### Stateful Proxy-200 at {} calls/s\n\n{}",
        arguments.rate,
        costs(&of(Scenario::Stateful, ONE_CORE, false))
    );
    for scenario in [Scenario::Stateless, Scenario::Stateful] {
        let _ = write!(text, "\n### Two cores, {scenario}\n\n{}", two_cores(rows, scenario));
    }
    text
}

fn words(arguments: &CompareArguments) -> String {
    format!(
        "{} users on each side. The server runs on the first core, `strowger load` (caller and callee) on the second. At saturation {} calls \
         are in progress at all times, so response times are those of that queue. {} rounds; the servers alternate and are restarted for \
         each run, with {} s of warm-up and {} s of measurement; the tables have medians. The other tables have one round. *Not carried* \
         includes calls still in progress at the end of a run. The server's T1 is {} ms. Pools have {} threads or processes, second stages {}.\n",
        arguments.users,
        arguments.outstanding,
        arguments.rounds,
        arguments.warm_up,
        arguments.seconds,
        arguments.t1_ms,
        Architecture::ThreadPool.usual_count(),
        Architecture::TwoStageThreads.usual_count(),
    )
}

/// Returns the table of the paper's columns beside the measured ones.
fn beside_the_paper(rows: &[&Row]) -> String {
    let [a, b, c, d] = paper::MACHINES;
    let mut text = format!(
        "| architecture | paper: {a} | {b} | {c} | {d} | here, calls/s | paper's {a}, event-based = 1 | here |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    let base = base(rows);
    for row in rows {
        let rate = row.median(|run| run.rate);
        let relative = number(rate / base, 2);
        let Subject::Shell(architecture) = row.subject else {
            let _ = writeln!(text, "| {} | | | | | {} | | {relative} |", row.subject, number(rate, 0));
            continue;
        };
        let theirs = paper::calls(row.scenario, architecture);
        let cells: String = (0..4)
            .map(|machine| format!(" {} |", theirs.map_or("–".to_owned(), |row| row[machine].to_string())))
            .collect();
        let ratio = paper::relative(row.scenario, architecture, 0);
        let ratio = ratio.map_or("–".to_owned(), |ratio| number(ratio, 2));
        let _ = writeln!(text, "| {architecture} |{cells} {} | {ratio} | {relative} |", number(rate, 0));
    }
    text
}

/// Returns the rate of the event-based architecture among these rows.
fn base(rows: &[&Row]) -> f64 {
    let is_base = |row: &&&Row| row.subject == Subject::Shell(Architecture::EventBased);
    rows.iter().find(is_base).map_or(f64::NAN, |row| row.median(|run| run.rate))
}

fn costs(rows: &[&Row]) -> String {
    let what = rows.first().map_or("", |row| if row.scenario == Scenario::Register { "REGISTER" } else { "call" });
    let mut text = format!(
        "| architecture | {what}s/s | not carried % | CPU µs a {what} | switches a {what} | to the 2xx: p50 µs | p99 µs | \
         memory MiB | drops | generator's core |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for row in rows {
        let cell = |of: fn(&Figures) -> f64, digits| number(row.median(of), digits);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            row.subject,
            cell(|run| run.rate, 0),
            cell(|run| run.lost, 2),
            cell(|run| run.processor, 1),
            cell(|run| run.switches, 2),
            cell(|run| run.p50, 0),
            cell(|run| run.p99, 0),
            cell(|run| run.memory, 1),
            cell(|run| run.drops, 0),
            cell(|run| run.generator, 2),
        );
    }
    text
}

/// Returns the table of estimates for two cores. The generator needs one of the two cores, so the estimate uses the
/// cost of a call with threads on both cores and the load of the busiest thread. Sharing a core with the generator
/// makes a call cost more than it would otherwise.
fn two_cores(rows: &[Row], scenario: Scenario) -> String {
    let mut text = String::from(
        "| architecture | CPU µs a call: one core | both | ratio | cores used | busiest thread | calls/s on both, reckoned |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
    );
    for both in rows.iter().filter(|row| row.scenario == scenario && row.cores == BOTH_CORES) {
        let is_one = |row: &&Row| {
            row.scenario == scenario
                && row.subject == both.subject
                && row.cores == ONE_CORE
                && matches!(row.load, Load::Saturation(_))
        };
        let one = rows.iter().find(is_one).map_or(f64::NAN, |row| row.median(|run| run.processor));
        let two = both.median(|run| run.processor);
        let busiest = both.median(|run| run.busiest);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            both.subject,
            number(one, 1),
            number(two, 1),
            number(two / one, 2),
            number(both.median(|run| run.cores), 2),
            number(busiest, 2),
            number(ceiling(two, both.median(|run| run.rate), busiest), 0),
        );
    }
    text
}

/// Returns the calls per second that two cores could carry: all their time at `processor` µs per call, limited by the
/// busiest thread with a whole core.
fn ceiling(processor: f64, rate: f64, busiest: f64) -> f64 {
    (2e6 / processor).min(rate / busiest)
}

/// Formats a number, or a dash for NaN.
pub(super) fn number(value: f64, digits: usize) -> String {
    if value.is_finite() { format!("{value:.digits$}") } else { "–".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_cannot_use_two_cores() {
        // 100 µs per call: 20,000 on two cores if all work can be divided.
        assert_eq!(ceiling(100.0, 5_000.0, 0.25), 20_000.0);
        // A server with all work in one thread is limited to one core.
        assert_eq!(ceiling(100.0, 5_000.0, 0.5), 10_000.0);
        assert_eq!(number(f64::NAN, 1), "–");
    }
}
