//! The goals, and whether the results reach them.

use std::fmt::Write as _;

use super::agreement::Agreement;
use super::program::Program;
use super::results::Results;
use crate::models::describe::rows;
use serde_json::Value;

/// Wanted error of an injected delay, percent.
const INJECTED_PERCENT: f64 = 5.0;
/// Wanted cost of the probe at saturation, percent of the packets per second.
const COST_PERCENT: f64 = 10.0;
/// Wanted error of the rate at which 1 % is dropped, percent.
const DROPS_PERCENT: f64 = 10.0;

/// A goal and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// What is measured.
    pub what: String,
    /// What is wanted.
    pub wanted: String,
    /// What was measured.
    pub measured: String,
    /// Whether the goal is reached.
    pub holds: bool,
}

/// Returns the goals of the parts that were measured. `drops` is the validation of the drops.
#[must_use]
pub fn goals(results: &Results, drops: Option<&Value>) -> Vec<Goal> {
    let waits =
        [Program::Strowger, Program::Kamailio, Program::Echo].into_iter().filter_map(|program| waits(results, program));
    let costs = results.overheads.iter().filter_map(|one| {
        let percent = one.percent()?;
        Some(Goal {
            what: format!("packets/s that the probe costs {} at saturation", one.program),
            wanted: format!("≤ {COST_PERCENT:.0} %"),
            measured: format!("{percent:.1} %"),
            holds: percent <= COST_PERCENT,
        })
    });
    let all = [injected(results), agreed(results)].into_iter().flatten().chain(waits).chain(drops.and_then(dropped));
    all.chain(costs).collect()
}

fn injected(results: &Results) -> Option<Goal> {
    let worst = results.injections.iter().map(|one| one.error_percent().abs()).max_by(f64::total_cmp)?;
    Some(Goal {
        what: "largest error of an injected delay".to_owned(),
        wanted: format!("≤ {INJECTED_PERCENT:.0} %"),
        measured: format!("{worst:.1} %"),
        holds: worst <= INJECTED_PERCENT,
    })
}

fn agreed(results: &Results) -> Option<Goal> {
    let compared: Vec<bool> = results.agreements.iter().flat_map(Agreement::compared).map(|one| one.holds()).collect();
    let good = compared.iter().filter(|holds| **holds).count();
    (!compared.is_empty()).then(|| Goal {
        what: "parts of the server within 5 % or 1 µs of its own stamps".to_owned(),
        wanted: "all".to_owned(),
        measured: format!("{good} of {}", compared.len()),
        holds: good == compared.len(),
    })
}

fn waits(results: &Results, program: Program) -> Option<Goal> {
    let rows = rows(&results.prediction(program)?.validation, "rows");
    let judged: Vec<bool> = rows.iter().filter_map(|row| row["wait_holds"].as_bool()).collect();
    let good = judged.iter().filter(|holds| **holds).count();
    (!judged.is_empty()).then(|| Goal {
        what: format!("waits of {program} predicted within 15 % or 5 µs, at 30 to 80 %"),
        wanted: "all".to_owned(),
        measured: format!("{good} of {}", judged.len()),
        holds: good == judged.len(),
    })
}

fn dropped(drops: &Value) -> Option<Goal> {
    let rows = rows(drops, "one_percent");
    let errors = rows.iter().filter_map(|row| {
        let rate = &row["rate_per_s"];
        Some(100.0 * (rate["predicted"].as_f64()? / rate["measured"].as_f64()? - 1.0).abs())
    });
    let worst = errors.max_by(f64::total_cmp)?;
    Some(Goal {
        what: "largest error of the predicted rate at which Kamailio drops 1 %".to_owned(),
        wanted: format!("≤ {DROPS_PERCENT:.0} %"),
        measured: format!("{worst:.1} %"),
        holds: worst <= DROPS_PERCENT,
    })
}

/// Returns the goals as a table.
#[must_use]
pub fn goals_table(goals: &[Goal]) -> String {
    let mut text = String::from("| goal | wanted | measured | |\n|---|---:|---:|---|\n");
    for Goal { what, wanted, measured, holds } in goals {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {what} | {wanted} | {measured} | {} |", if *holds { "yes" } else { "**no**" });
    }
    text.push('\n');
    text
}

/// Returns the summary of the page: each goal as a line.
#[must_use]
pub fn summary(goals: &[Goal]) -> String {
    let lines = goals.iter().map(|goal| {
        let Goal { what, wanted, measured, holds } = goal;
        let verdict = if *holds { "" } else { ", **missed**" };
        let mut letters = what.chars();
        let capital: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
        format!("- {capital}: {measured} (wanted: {wanted}{verdict}).\n")
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::results::tests::some;
    use super::*;

    #[test]
    fn each_part_has_its_goal() {
        let drops = json!({ "one_percent": [{ "rate_per_s": { "predicted": 90.0, "measured": 100.0 } }] });
        let goals = goals(&some(), Some(&drops));
        let measured: Vec<(&str, bool)> = goals.iter().map(|goal| (goal.measured.as_str(), goal.holds)).collect();
        assert_eq!(
            measured,
            [("1.9 %", true), ("3 of 3", true), ("1 of 1", true), ("10.0 %", true), ("5.0 %", true)],
            "{goals:?}"
        );
        assert!(goals_table(&goals).contains("| all | 1 of 1 | yes |"));
        assert!(summary(&goals).starts_with("- Largest error of an injected delay: 1.9 % (wanted: ≤ 5 %).\n"));
        assert!(super::goals(&Results::default(), None).is_empty());
    }
}
