//! The page: the key figures, then every table.

use std::fmt::Write as _;

use strowger_plan::two_stage::Bottleneck;
use strowger_plan::{StageRequirements, TwoStage, stages};

use super::capacity::SingleServer;
use super::layout::{Layout, Work};
use super::paper;
use super::prediction::{Comparison, compare, of_paper};
use super::results::Results;
use super::sweep::Sweep;

/// Allowed deviation from the plan, in percent.
const GOAL_ERROR: f64 = 10.0;
/// Required throughput of P clusters relative to P times that of one, while the first stage is not saturated.
const GOAL_EFFICIENCY: f64 = 0.9;
/// Unmixed kinds of work, in the order of the page.
const WORKS: [Work; 2] = [Work::Calls, Work::Registrations];

/// Returns the highest throughput of a sweep per second.
fn peak(sweep: &Sweep) -> f64 {
    sweep.points.iter().map(|point| point.outcome.goodput).fold(0.0, f64::max)
}

/// Returns a layout's throughput relative to P times that of S0P1, or if the first stage saturates before the
/// clusters, to n times that of S1P1. Returns `None` for a layout that is not an enlargement of these.
fn efficiency(results: &Results, layout: Layout, work: Work) -> Option<(&'static str, f64)> {
    let both = results.both(work)?;
    let (first, clusters) = (f64::from(layout.first), f64::from(layout.clusters));
    let has_room = first * both.first >= clusters * both.second;
    let (of, unit, times) = match has_room {
        true => ("P × S0P1", Layout::PAPER[0], clusters),
        false => ("n × S1P1", Layout::PAPER[1], first),
    };
    let (one, all) = (results.sweep(unit, work)?, results.sweep(layout, work)?);
    let has_grown = layout.servers == 1 && times > 1.0;
    has_grown.then(|| (of, peak(all) / (times * peak(one))))
}

fn worst(compared: &[Comparison]) -> f64 {
    compared
        .iter()
        .map(Comparison::error_percent)
        .fold(0.0, |worst: f64, one| if one.abs() > worst.abs() { one } else { worst })
}

/// Returns the key figures.
#[must_use]
pub fn summary(results: &Results) -> String {
    let mut text = String::from(
        "| | the most carried /s | efficiency | planned | the paper, stateless | the paper, stateful |\n|---|---:|---:|---:|---:|---:|\n",
    );
    for layout in Layout::PAPER {
        let Some(sweep) = results.sweep(layout, Work::Calls) else { continue };
        let plan = results.both(Work::Calls).and_then(|both| both.plan(layout, &sweep.shares));
        let efficiency = efficiency(results, layout, Work::Calls);
        let papers = [paper::STATELESS, paper::STATEFUL].map(|test| of_paper(test, layout).map(|plan| plan.capacity()));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {layout}, calls | {:.0} | {} | {} | {} | {} |",
            peak(sweep),
            efficiency.map_or("–".to_owned(), |(of, part)| format!("{:.0} % of {of}", 100.0 * part)),
            rate(plan.map(|plan| plan.capacity())),
            rate(papers[0]),
            rate(papers[1]),
        );
    }
    text
}

fn rate(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.0}"))
}

/// Returns all tables.
#[must_use]
pub fn all(results: &Results) -> String {
    let mut text = String::new();
    goals(results, &mut text);
    capacities(results, &mut text);
    for work in WORKS {
        bends(results, work, &mut text);
        points(results, work, &mut text);
    }
    controlled(results, &mut text);
    mixes(results, &mut text);
    text
}

fn goals(results: &Results, text: &mut String) {
    text.push_str("\n## Goals\n\n| goal | work | measured | |\n|---|---|---:|---|\n");
    for work in WORKS {
        let Some(both) = results.both(work) else { continue };
        let sweeps = || results.sweeps.iter().filter(|sweep| sweep.work == work && sweep.layout.servers == 1);
        let all: Vec<Comparison> = sweeps().flat_map(|sweep| compare(sweep, both)).collect();
        if all.is_empty() {
            continue;
        }
        let within = all.iter().filter(|one| one.error_percent().abs() <= GOAL_ERROR).count();
        let _ = writeln!(
            text,
            "| each point within {GOAL_ERROR:.0} % of the plan | {work} | {within} of {}; the worst {:+.1} % | {} |",
            all.len(),
            worst(&all),
            met(within == all.len())
        );
        let parts = Layout::PAPER.iter().filter_map(|layout| Some(efficiency(results, *layout, work)?.1));
        let least = parts.fold(f64::INFINITY, f64::min);
        if least.is_finite() {
            let _ = writeln!(
                text,
                "| the efficiency of more servers is at least {GOAL_EFFICIENCY} | {work} | {least:.2} | {} |",
                met(least >= GOAL_EFFICIENCY)
            );
        }
    }
}

const fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "**missed**" }
}

fn capacities(results: &Results, text: &mut String) {
    text.push_str(
        "\n## What one server carries\n\nC_s: a first-stage server in front of three second-stage servers without a CPU \
         quota. C_p: a second-stage server that callers reach directly (S0P1). The load rises from the throughput of a \
         closed loop of 64; the capacity is the mean goodput at the first two loads of which less than 97 % was carried.\n\n\
         | | | a second | closed loop | CPU µs each | the paper |\n|---|---|---:|---:|---:|---:|\n",
    );
    for one in &results.capacities {
        let of = |test: paper::Test| if one.alone == SingleServer::First { test.first } else { test.second };
        let papers = match one.work {
            Work::Calls => format!("{:.0} stateless, {:.0} stateful", of(paper::STATELESS), of(paper::STATEFUL)),
            _ => format!("{:.0}", of(paper::REGISTRATIONS)),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} | {:.0} | {:.1} | {papers} |",
            one.alone, one.work, one.rate, one.closed, one.cost_us
        );
    }
}

fn bends(results: &Results, work: Work, text: &mut String) {
    let Some(both) = results.both(work) else { return };
    let test = if work == Work::Calls { paper::STATELESS } else { paper::REGISTRATIONS };
    let _ = write!(
        text,
        "\n## {}\n\nWhere the line bends, according to `strowger plan two-stage`, for the measured shares and for the paper's capacities and shares: the \
         offered load, with the carried load in brackets.\n\n| | shares | ours: bends at | the most, planned | measured | error | the paper: {} | its plan |\n\
         |---|---|---|---:|---:|---:|---|---:|\n",
        capital(&work.to_string()),
        test.name
    );
    for sweep in results.sweeps.iter().filter(|sweep| sweep.work == work) {
        let Some(plan) = both.plan(sweep.layout, &sweep.shares) else { continue };
        let papers = of_paper(test, sweep.layout).filter(|_| sweep.layout.servers == 1);
        let highest = sweep.points.iter().fold(0.0, |load, point| f64::max(load, point.outcome.offered));
        let planned = plan.throughput(highest);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {planned:.0} | {:.0} | {:+.1} % | {} | {} |",
            named(sweep),
            share_list(&sweep.shares),
            bend_list(&plan),
            peak(sweep),
            100.0 * (peak(sweep) / planned - 1.0),
            papers.as_ref().map_or("–".to_owned(), bend_list),
            rate(papers.as_ref().map(TwoStage::capacity)),
        );
    }
}

fn named(sweep: &Sweep) -> String {
    let weights: Vec<String> = sweep.weights.iter().map(u16::to_string).collect();
    match weights.is_empty() {
        true => sweep.layout.to_string(),
        false => format!("{}, weights {}", sweep.layout, weights.join(":")),
    }
}

fn share_list(shares: &[f64]) -> String {
    shares.iter().map(|share| format!("{share:.2}")).collect::<Vec<_>>().join(", ")
}

fn bend_list(plan: &TwoStage) -> String {
    let one = |point: strowger_plan::BreakPoint| {
        let full = match point.full {
            Bottleneck::First => "first stage".to_owned(),
            Bottleneck::Second(many) => format!("{many} of the second"),
        };
        format!("{:.0} ({:.0}): {full}", point.load_per_s, point.throughput_per_s)
    };
    plan.break_points().into_iter().map(one).collect::<Vec<_>>().join("; ")
}

const POINT_HEAD: &str = "| | offered/s | planned | carried | error | 503/s | p50, ms | p99, ms | quota used up, first % | second % |\n\
     |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";

fn points(results: &Results, work: Work, text: &mut String) {
    let Some(both) = results.both(work) else { return };
    let name = if work == Work::Calls { "calls" } else { "registrations" };
    let _ = write!(
        text,
        "\n![{}](plots/two-stage-{name}.svg)\n\n\\* marks loads for which a generator was late.\n\n{POINT_HEAD}",
        capital(work.unit())
    );
    for sweep in results.sweeps.iter().filter(|sweep| sweep.work == work) {
        point_rows(sweep, &compare(sweep, both), text);
    }
}

fn point_rows(sweep: &Sweep, compared: &[Comparison], text: &mut String) {
    for (point, one) in sweep.points.iter().zip(compared) {
        let outcome = &point.outcome;
        let time = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.1}"));
        let _ = writeln!(
            text,
            "| {}{} | {:.0} | {:.0} | {:.0} | {:+.1} % | {:.0} | {} | {} | {:.0} | {:.0} |",
            named(sweep),
            if outcome.is_late { " \\*" } else { "" },
            one.offered,
            one.predicted,
            one.measured,
            one.error_percent(),
            outcome.refused,
            time(outcome.p50_ms),
            time(outcome.p99_ms),
            outcome.first_throttled,
            outcome.second_throttled,
        );
    }
}

fn controlled(results: &Results, text: &mut String) {
    let work = Work::ControlledRegistrations;
    let (Some(sweep), Some(both)) = (results.sweep(Layout::PAPER[0], work), results.both(work)) else { return };
    let _ = write!(
        text,
        "\n### With overload control\n\nThe registrations above are those of servers with `overload.control = false`. By \
         default servers limit the load they accept. S0P1 with that limit, and the plan of servers without it:\n\n{POINT_HEAD}"
    );
    point_rows(sweep, &compare(sweep, both), text);
}

fn mixes(results: &Results, text: &mut String) {
    let mixed: Vec<&Sweep> = results.sweeps.iter().filter(|sweep| matches!(sweep.work, Work::Mixed(_))).collect();
    if mixed.is_empty() {
        return;
    }
    text.push_str(
        "\n## Calls and registrations together\n\nλ_P calls and λ_R registrations a second. Each takes as much CPU time \
         as it does alone, so the utilisation of a second-stage server is λ_R/μ_r + λ_P/μ_p; above 1 it is overloaded. \
         *Needed* is the result of `strowger plan two-stage --requests λ_P --registers λ_R` for a utilisation of up to 1.\n\n\
         | | λ_P | λ_R | one server's time | needed | planned /s | carried /s | error |\n|---|---:|---:|---:|---|---:|---:|---:|\n",
    );
    for sweep in mixed {
        let Some(both) = results.both(sweep.work) else { continue };
        for one in compare(sweep, both) {
            let registers = sweep.work.registrations() * one.offered;
            let requests = one.offered - registers;
            let needed = needed(results, registers, requests);
            let (time, needed) = needed.unwrap_or((f64::NAN, String::new()));
            let _ = writeln!(
                text,
                "| {}, {} | {requests:.0} | {registers:.0} | {time:.2} | {needed} | {:.0} | {:.0} | {:+.1} % |",
                sweep.layout,
                sweep.work,
                one.predicted,
                one.measured,
                one.error_percent()
            );
        }
    }
}

/// Returns the utilization of a single second-stage server and the layout needed for this mix. The first stage's rate
/// is that of the mix.
fn needed(results: &Results, registers: f64, requests: f64) -> Option<(f64, String)> {
    let rate = |alone, work| Some(results.capacity(alone, work)?.rate);
    let first_time = registers / rate(SingleServer::First, Work::Registrations)?
        + requests / rate(SingleServer::First, Work::Calls)?;
    let asked = StageRequirements {
        registers_per_s: registers,
        requests_per_s: requests,
        first_per_s: (registers + requests) / first_time,
        register_per_s: rate(SingleServer::Second, Work::Registrations)?,
        proxy_per_s: rate(SingleServer::Second, Work::Calls)?,
        utilization: 1.0,
        skew: 1.0,
    };
    let answer = stages(asked).ok()?;
    Some((answer.single_utilization, format!("S{}P{}", answer.first, answer.clusters)))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::some;
    use super::*;

    #[test]
    fn the_page_shows_the_goals_met_and_the_plan() {
        let results = some();
        let text = summary(&results) + &all(&results);
        assert!(text.contains("| S3P3, calls | 2700 | 100 % of P × S0P1 | 2700 | 2700 | 1950 |"), "{text}");
        assert!(
            text.contains("| each point within 10 % of the plan | calls | 24 of 24; the worst +0.0 % | met |"),
            "{text}"
        );
        assert!(
            text.contains(
                "| S2P2, weights 60:40 | 0.60, 0.40 | 1500 (1500): 1 of the second; 2100 (1740): first stage |"
            ),
            "{text}"
        );
        assert!(text.contains("| S2P2B2 | 1050 | 1050 | 840 | -20.0 % |"), "{text}");
        assert!(text.contains("| S1P1, 50 % registrations |") && text.contains("| S0P1 |"), "{text}");
    }

    #[test]
    fn a_point_far_from_the_plan_misses_its_goal() {
        let mut results = some();
        let sweep = results.sweeps.iter_mut().find(|sweep| sweep.layout == Layout::PAPER[5]).expect("a sweep");
        sweep.points.iter_mut().for_each(|point| point.outcome.goodput *= 0.8);
        let text = all(&results);
        assert!(text.contains("21 of 24; the worst -20.0 % | **missed** |"), "{text}");
        assert!(text.contains("at least 0.9 | calls | 0.80 | **missed** |"), "{text}");
    }
}
