//! The tables of `bench/TUNING.md`, and the gains that `strowger tune` quotes.

use std::fmt::Write as _;

use strowger_tune::{Gain, Gains};

use super::plot;
use super::results::{Capacity, Results, Shared, Sweep, ratio};
use super::server::{Contender, Tuning};
use super::thesis::{ONE_CORE, Row, TWO_CORES};

/// Shares of dropped packets of the thesis's tables, in percent.
const THRESHOLDS: [f64; 3] = [1.0, 2.0, 5.0];

/// Returns the text between the markers.
#[must_use]
pub fn text(results: &Results) -> String {
    let mut text = results.around.clone();
    if !results.tuned.is_empty() {
        let _ = write!(text, "\n![Calls per second of Kamailio by its processes](plots/{})\n", plot::FILE);
    }
    section(&mut text, results, 1, ("One core", "6.1 to 6.3", &ONE_CORE), "");
    let note = "**The generator competes for the second core**: it runs there, without polling, because this machine has two. \
        The figures of two cores are therefore lower than those of two cores of a server's own, and the generator was late in \
        the runs marked \\*.\n\n";
    section(&mut text, results, 2, ("Two cores", "7.1 to 7.3", &TWO_CORES), note);
    singles(&mut text, &results.single);
    shared(&mut text, &results.shared);
    text
}

type Chapter<'t> = (&'t str, &'t str, &'t [Row]);

fn section(text: &mut String, results: &Results, cores: u32, (title, tables, thesis): Chapter<'_>, note: &str) {
    let pairs = pairs(&results.tuned, cores);
    if pairs.is_empty() {
        return;
    }
    let _ = write!(
        text,
        "\n## {title}\n\n{note}Highest calls per second with at most 1, 2 and 5 % of the packets dropped (≥: less was dropped at the highest rate that the generator could offer):\n\n"
    );
    text.push_str("| server | 1 %, baseline | tuned | change | 2 %, baseline | tuned | 5 %, baseline | tuned |\n|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for (baseline, tuned) in &pairs {
        let mut cells = Vec::new();
        for threshold in THRESHOLDS {
            let both = (baseline.calls_at(threshold), tuned.calls_at(threshold));
            cells.extend([whole(both.0), whole(both.1)]);
            if threshold == 1.0 {
                cells.push(change(both));
            }
        }
        let _ = writeln!(text, "| {} | {} |", baseline.contender, cells.join(" | "));
    }
    let _ = write!(
        text,
        "\nAt the first rate at which the baseline drops more than 1 %, and K_rcv at 80 % of the baseline's saturation:\n\n\
         | server | calls/s | drops, baseline % | tuned % | lower by | K_rcv, baseline µs | tuned µs |\n|---|---:|---:|---:|---:|---:|---:|\n"
    );
    for (baseline, tuned) in &pairs {
        let _ = writeln!(text, "| {} | {} |", baseline.contender, compared(baseline, tuned));
    }
    let _ = write!(
        text,
        "\nThe thesis's tables {tables} (OpenSIPS, Xeon E5540, CFS; baseline and enhanced server mode), 1 % of drops:\n\n\
         | threads | calls/s, baseline | enhanced | compared at | drops, baseline % | enhanced % | K_rcv, baseline µs | enhanced µs |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for row in thesis {
        let Row { threads, calls, compared_at, drops_percent, kernel_time_us } = row;
        let _ = writeln!(
            text,
            "| {threads} | {} | {} | {compared_at} | {:.2} | {:.2} | {:.0} | {:.0} |",
            calls.0, calls.1, drops_percent.0, drops_percent.1, kernel_time_us.0, kernel_time_us.1
        );
    }
}

/// Returns the servers on this number of cores, untuned and tuned.
pub(crate) fn pairs(all: &[Sweep], cores: u32) -> Vec<(&Sweep, &Sweep)> {
    let is_here = |sweep: &&Sweep| sweep.contender.cores == cores && sweep.tuning == Tuning::None;
    let tuned = |of: &Sweep| all.iter().find(|other| other.contender == of.contender && other.tuning == Tuning::All);
    all.iter().filter(is_here).filter_map(|sweep| Some((sweep, tuned(sweep)?))).collect()
}

/// Writes a capacity; ≥ if it is more.
pub(crate) fn whole(value: Option<Capacity>) -> String {
    let write = |one: Capacity| format!("{}{:.0}", if one.is_more { "≥ " } else { "" }, one.calls_per_s);
    value.map_or_else(|| "–".to_owned(), write)
}

fn micros(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.1}"))
}

pub(crate) fn change((before, after): (Option<Capacity>, Option<Capacity>)) -> String {
    ratio(before, after).map_or_else(|| "–".to_owned(), |ratio| format!("{:+.1} %", 100.0 * (ratio - 1.0)))
}

fn compared(baseline: &Sweep, tuned: &Sweep) -> String {
    let over = baseline.counted().find(|point| point.drops_percent > 1.0).or(baseline.counted().next_back());
    let Some(point) = over else { return "–".to_owned() };
    let other = tuned.at(point.calls_per_s);
    let lower = match other {
        Some(other) if point.drops_percent > 0.0 => {
            format!("{:.0} %", 100.0 * (1.0 - other.drops_percent / point.drops_percent))
        }
        _ => "–".to_owned(),
    };
    let late = if point.is_late || other.is_some_and(|other| other.is_late) { "\\*" } else { "" };
    format!(
        "{:.0}{late} | {:.2} | {} | {lower} | {} | {}",
        point.calls_per_s,
        point.drops_percent,
        other.map_or_else(|| "–".to_owned(), |other| format!("{:.2}", other.drops_percent)),
        micros(baseline.kernel_time_us),
        micros(tuned.kernel_time_us)
    )
}

fn singles(text: &mut String, all: &[Sweep]) {
    if all.is_empty() {
        return;
    }
    text.push_str(
        "\n## Each tuning alone\n\nThe server has its core, or cores, without other programs. Drops are those at the highest \
         rate, which is an overload for the baseline.\n\n\
         | server | cores | tuning | calls/s at 1 % | change | drops in overload % | packets served/s there |\n|---|---:|---|---:|---:|---:|---:|\n",
    );
    for sweep in all {
        let baseline = baseline(all, sweep.contender);
        let both = (baseline.and_then(|baseline| baseline.calls_at(1.0)), sweep.calls_at(1.0));
        let change = if sweep.tuning == Tuning::None { String::new() } else { change(both) };
        let (drops, served) = sweep.counted().next_back().map_or((f64::NAN, f64::NAN), |point| {
            (point.drops_percent, point.packets_per_s * (1.0 - point.drops_percent / 100.0))
        });
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {change} | {drops:.2} | {served:.0} |",
            sweep.contender,
            sweep.contender.cores,
            sweep.tuning,
            whole(both.1),
        );
    }
}

fn baseline(all: &[Sweep], contender: Contender) -> Option<&Sweep> {
    all.iter().find(|other| other.contender == contender && other.tuning == Tuning::None)
}

fn shared(text: &mut String, all: &[Shared]) {
    if all.is_empty() {
        return;
    }
    text.push_str(
        "\n## Beside another program\n\nAn endless loop in a session of its own runs on the server's core, as a backup or a \
         compiler does. The load is 30 % of the server's saturation.\n\n\
         | server | tuning | calls/s | drops % | p99 of INVITE to 180 ms | K_rcv µs | server's share of the core % |\n|---|---|---:|---:|---:|---:|---:|\n",
    );
    for Shared { contender, tuning, point, kernel_time_us } in all {
        let p99 = point.p99_ms.map_or_else(|| "–".to_owned(), |p99| format!("{p99:.2}"));
        let _ = writeln!(
            text,
            "| {contender} | {tuning} | {:.0} | {:.2} | {p99} | {} | {:.0} |",
            point.calls_per_s,
            point.drops_percent,
            micros(*kernel_time_us),
            100.0 * point.processors,
        );
    }
}

/// Returns the gains for `strowger tune`.
#[must_use]
pub fn gains(results: &Results) -> Gains {
    let mut gains: Vec<Gain> = Vec::new();
    let singles = results.single.iter().map(|sweep| (sweep.contender, sweep.tuning));
    let mut all: Vec<(Contender, Tuning)> =
        singles.chain(results.shared.iter().map(|shared| (shared.contender, shared.tuning))).collect();
    all.sort_unstable();
    all.dedup();
    for (contender, tuning) in all {
        let Some(name) = tuning.name() else { continue };
        let effects: Vec<String> = alone(&results.single, contender, tuning)
            .into_iter()
            .chain(beside(&results.shared, contender, tuning))
            .collect();
        if !effects.is_empty() {
            gains.push(Gain {
                name: name.to_owned(),
                server: contender.name().to_owned(),
                processes: contender.processes as usize,
                cores: contender.cores as usize,
                effect: effects.join("; "),
            });
        }
    }
    Gains { date: results.date.clone(), gains }
}

fn alone(all: &[Sweep], contender: Contender, tuning: Tuning) -> Option<String> {
    let tuned = all.iter().find(|sweep| sweep.contender == contender && sweep.tuning == tuning)?;
    let before = baseline(all, contender)?;
    let rates = ratio(before.calls_at(1.0), tuned.calls_at(1.0))?;
    let drops = before.counted().next_back().zip(tuned.counted().next_back())?;
    Some(format!(
        "{:+.0} % calls/s at 1 % drops, {:.1} → {:.1} % drops in overload",
        100.0 * (rates - 1.0),
        drops.0.drops_percent,
        drops.1.drops_percent
    ))
}

fn beside(all: &[Shared], contender: Contender, tuning: Tuning) -> Option<String> {
    let of = |tuning| all.iter().find(|one| one.contender == contender && one.tuning == tuning);
    let (before, tuned) = (of(Tuning::None)?, of(tuning)?);
    let kernel_time = before.kernel_time_us.zip(tuned.kernel_time_us);
    let kernel_time =
        kernel_time.map_or_else(String::new, |(before, tuned)| format!("K_rcv {before:.0} → {tuned:.0} µs, "));
    Some(format!(
        "beside a busy program {kernel_time}p99 of INVITE to 180 {:.1} → {:.1} ms",
        before.point.p99_ms?, tuned.point.p99_ms?
    ))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tuning::results::tests::sweep;

    /// Returns small results with all parts but two cores.
    pub(crate) fn results() -> Results {
        let contender = Contender { is_ours: false, processes: 8, cores: 1 };
        let before = sweep(contender, Tuning::None, &[(1_000.0, 0.0), (2_000.0, 2.0)]);
        let tuned = sweep(contender, Tuning::All, &[(1_000.0, 0.0), (2_000.0, 1.25)]);
        let batch = Sweep { tuning: Tuning::Batch, ..tuned.clone() };
        let shared = |tuning, kernel_time_us, p99_ms| Shared {
            contender,
            tuning,
            point: super::super::results::Point { p99_ms: Some(p99_ms), ..before.points[0] },
            kernel_time_us: Some(kernel_time_us),
        };
        Results {
            around: "- Machine\n".to_owned(),
            date: "2026-01-01".to_owned(),
            tuned: vec![before.clone(), tuned],
            shared: vec![shared(Tuning::None, 90.0, 20.0), shared(Tuning::Nice, 30.0, 1.5)],
            single: vec![before, batch],
        }
    }

    #[test]
    fn baseline_and_tuned_stand_side_by_side() {
        let text = text(&results());
        for row in [
            "| Kamailio, 8 processes | 1500 | 1800 | +20.0 % | ≥ 2000 | ≥ 2000 | ≥ 2000 | ≥ 2000 |",
            "| Kamailio, 8 processes | 2000 | 2.00 | 1.25 | 38 % | 12.0 | 12.0 |",
            "| 16 | 1200 | 1400 | 1400 | 1.37 | 0.81 | 1394 | 919 |",
            "| Kamailio, 8 processes | 1 | SCHED_BATCH | 1800 | +20.0 % | 1.25 | 11850 |",
            "| Kamailio, 8 processes | nice -10 | 1000 | 0.00 | 1.50 | 30.0 | 90 |",
        ] {
            assert!(text.contains(row), "{row}:\n{text}");
        }
        assert!(!text.contains("## Two cores"));
    }

    #[test]
    fn gains_are_told_for_each_tuning() {
        let Gains { gains, date } = gains(&results());
        assert_eq!(date, "2026-01-01");
        let of = |name: &str| gains.iter().find(|gain| gain.name == name).map(|gain| gain.effect.as_str());
        assert_eq!(of("batch"), Some("+20 % calls/s at 1 % drops, 2.0 → 1.2 % drops in overload"));
        assert_eq!(of("nice"), Some("beside a busy program K_rcv 90 → 30 µs, p99 of INVITE to 180 20.0 → 1.5 ms"));
        assert_eq!(gains.len(), 2);
    }
}
