//! The section "In short" of `bench/TUNING.md`: figures of the tables, as they stand there.

use super::results::{Results, Shared, Sweep, ratio};
use super::server::Tuning;
use super::table::{change, pairs, whole};

/// Returns the summary as a list.
#[must_use]
pub fn summary(results: &Results) -> String {
    let lines =
        [best_count(results), largest_change(results, 1), largest_change(results, 2), best_single(&results.single)];
    lines.into_iter().flatten().chain(beside(&results.shared)).map(|line| format!("- {line}\n")).collect()
}

fn best_count(results: &Results) -> Option<String> {
    let all = pairs(&results.tuned, 1);
    let kamailio: Vec<&Sweep> = all.iter().map(|pair| pair.0).filter(|sweep| !sweep.contender.is_ours).collect();
    let calls = |sweep: &Sweep| sweep.calls_at(1.0).map_or(0.0, |capacity| capacity.calls_per_s);
    let best = kamailio.iter().max_by(|one, other| calls(one).total_cmp(&calls(other)))?;
    let most = kamailio.iter().max_by_key(|sweep| sweep.contender.processes)?;
    Some(format!(
        "On one core and untuned, {} carry most: {} calls/s with at most 1 % of the packets dropped; {} carry {}.",
        best.contender,
        whole(best.calls_at(1.0)),
        most.contender,
        whole(most.calls_at(1.0))
    ))
}

fn largest_change(results: &Results, cores: u32) -> Option<String> {
    let gain = |(before, tuned): &(&Sweep, &Sweep)| ratio(before.calls_at(1.0), tuned.calls_at(1.0));
    let all = pairs(&results.tuned, cores);
    let known = all.into_iter().filter_map(|pair| Some((gain(&pair)?, pair)));
    let (_, (before, tuned)) = known.max_by(|one, other| one.0.total_cmp(&other.0))?;
    let both = (before.calls_at(1.0), tuned.calls_at(1.0));
    Some(format!(
        "Tuning changes most for {} on {}: {} instead of {} calls/s at 1 % of drops ({}).",
        before.contender,
        if cores == 1 { "one core" } else { "two cores" },
        whole(both.1),
        whole(both.0),
        change(both)
    ))
}

fn best_single(all: &[Sweep]) -> Option<String> {
    let calls = |sweep: &Sweep| sweep.calls_at(1.0);
    let baseline = |of: &Sweep| {
        all.iter().find(|other| other.contender == of.contender && other.tuning == Tuning::None).and_then(calls)
    };
    let known = all.iter().filter(|sweep| sweep.tuning != Tuning::None);
    let known = known.filter_map(|sweep| Some((ratio(baseline(sweep), calls(sweep))?, sweep)));
    let (_, best) = known.max_by(|one, other| one.0.total_cmp(&other.0))?;
    let both = (baseline(best), calls(best));
    Some(format!(
        "Of the tunings one by one, {} changes most: {} for {} on {} of the cores.",
        best.tuning,
        change(both),
        best.contender,
        best.contender.cores
    ))
}

/// Returns a line for each of Kamailio and Strowger.
fn beside(all: &[Shared]) -> Vec<String> {
    let baselines = [false, true]
        .map(|is_ours| all.iter().find(|one| one.tuning == Tuning::None && one.contender.is_ours == is_ours));
    baselines.into_iter().flatten().filter_map(|before| improved(all, before)).collect()
}

fn improved(all: &[Shared], before: &Shared) -> Option<String> {
    let others = all.iter().filter(|one| one.contender == before.contender && one.tuning != Tuning::None);
    let known: Vec<(f64, &Shared)> = others.filter_map(|one| Some((one.kernel_time_us?, one))).collect();
    let least = |is_real_time: bool| {
        let kind = known.iter().filter(|(_, one)| one.tuning.is_real_time() == is_real_time);
        kind.min_by(|one, other| one.0.total_cmp(&other.0))
    };
    let (time, best) = least(false)?;
    let real_time = least(true).map(|(time, best)| format!(", with {} {time:.1} µs", best.tuning));
    Some(format!(
        "Beside a busy program on its core, K_rcv of {} is {:.1} µs; with {} {time:.1} µs{}.",
        before.contender,
        before.kernel_time_us?,
        best.tuning,
        real_time.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::table::tests::results;

    #[test]
    fn the_summary_has_figures_of_the_tables() {
        let results = results();
        let (summary, text) = (summary(&results), crate::tuning::table::text(&results));
        assert_eq!(summary.lines().count(), 4, "{summary}");
        assert!(summary.contains("1800 instead of 1500 calls/s at 1 % of drops (+20.0 %)"), "{summary}");
        for number in ["1500", "1800", "+20.0", "90.0", "30.0"] {
            assert!(text.contains(number) && summary.contains(number), "{number}: {summary}");
        }
    }
}
