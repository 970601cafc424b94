//! Plots of a run, and of two runs in one plot.

use super::data::{Distribution, IntervalRow, RunReport, ServerRow};
use super::format::{bytes, float, grouped, micros, number, percent, seconds};
use super::plot::{Kind, Mark, Plot, Scale, Series, Shape};

/// Bars of a distribution for each factor of ten.
const BARS_PER_DECADE: f64 = 24.0;
/// Largest ratio of times for which a linear axis is readable; above it the axis is logarithmic.
const LINEAR_UP_TO: f64 = 12.0;

/// A run in a plot: its name and its colour.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlottedRun<'a> {
    pub run: &'a RunReport,
    pub name: &'a str,
    pub colour: u8,
}

/// Bytes in a MiB; axes of memory have round numbers of them.
pub(super) const MIB: f64 = 1_048_576.0;

type Points = Vec<(f64, f64)>;
type Tips = Vec<(f64, f64, String)>;

/// Returns the slices before the last arrival (which comes shortly before the end); of a run shorter than a slice,
/// all of them.
fn slices(run: &RunReport) -> Vec<&IntervalRow> {
    let rows = &run.intervals.rows;
    let whole: Vec<_> = rows.iter().filter(|row| row.at_s <= run.elapsed_s + 0.05 * run.intervals.width_s).collect();
    if whole.is_empty() { rows.iter().collect() } else { whole }
}

/// Returns the calls in progress when the last one began.
pub(super) fn behind(run: &RunReport) -> u64 {
    slices(run).last().map_or(0, |row| row.unfinished)
}

/// Returns a value of each slice, at its middle, divided by the slice's width if it is a rate.
fn points(run: &RunReport, of: impl Fn(&IntervalRow) -> f64) -> Points {
    let middle = run.intervals.width_s / 2.0;
    slices(run).into_iter().map(|row| (row.at_s - middle, of(row))).collect()
}

fn rates(run: &RunReport, of: impl Fn(&IntervalRow) -> u64) -> Points {
    let width = if run.intervals.width_s > 0.0 { run.intervals.width_s } else { 1.0 };
    points(run, |row| float(of(row)) / width)
}

/// Returns a value of each slice in which something was answered.
fn latencies(run: &RunReport, of: impl Fn(&IntervalRow) -> f64) -> Points {
    let middle = run.intervals.width_s / 2.0;
    slices(run).into_iter().filter(|row| row.answered > 0).map(|row| (row.at_s - middle, of(row))).collect()
}

fn highest(series: &[Series<'_>]) -> impl Iterator<Item = f64> {
    series.iter().flat_map(|series| series.points.iter().map(|(_, y)| *y))
}

/// Returns the time axis, as long as the longest run.
fn time_axis<'a>(runs: impl Iterator<Item = &'a RunReport>) -> Scale {
    let ends = runs.map(|run| slices(run).last().map_or(run.elapsed_s, |row| row.at_s));
    Scale { low: 0.0, high: ends.fold(1e-3, f64::max), kind: Kind::Linear }
}

fn tips(run: &RunReport, text: impl Fn(&IntervalRow) -> String) -> Tips {
    let width = run.intervals.width_s;
    let rows = slices(run).into_iter();
    rows.map(|row| (row.at_s - width, row.at_s, format!("{}\n{}", seconds(row.at_s), text(row)))).collect()
}

/// Draws a plot over time, from zero.
fn over_time(title: &str, x: Scale, y_text: fn(f64) -> String, series: Vec<Series<'_>>, tips: Tips) -> Option<String> {
    if series.iter().all(|series| series.points.is_empty()) {
        return None;
    }
    let y = Scale::from_zero(highest(&series));
    Some(Plot { title, x, y, x_text: seconds, y_text, series, marks: Vec::new(), tips }.draw())
}

pub(super) fn load(run: &RunReport) -> Option<String> {
    let series = vec![
        Series { name: "carried", colour: 2, shape: Shape::Area, points: rates(run, |row| row.carried) },
        Series { name: "offered", colour: 1, shape: Shape::Dashed, points: rates(run, |row| row.offered) },
        Series {
            name: "lost or failed",
            colour: 3,
            shape: Shape::Line,
            points: rates(run, |row| row.lost + row.failed),
        },
    ];
    let tips = tips(run, |row| {
        format!(
            "offered {}, carried {}, lost {}, failed {}, retransmitted {}",
            row.offered, row.carried, row.lost, row.failed, row.repeats
        )
    });
    let title = "Calls per second over time: offered, carried, and lost or failed";
    over_time(title, time_axis([run].into_iter()), number, series, tips)
}

/// Plots the number of registered phones over time.
pub(super) fn registered(run: &RunReport) -> Option<String> {
    let recovery = run.recovery.as_ref()?;
    let points: Points = recovery.course.iter().map(|(at, count)| (*at, float(*count))).collect();
    let high = recovery.course.last().map_or(0.0, |last| last.0).max(1e-3);
    let series = vec![Series { name: "registered", colour: 2, shape: Shape::Area, points }];
    let tips = recovery.course.windows(2).filter_map(|pair| {
        let [(from, _), (to, count)] = pair else { return None };
        Some((*from, *to, format!("{}\n{} of {}", seconds(*to), grouped(*count), grouped(recovery.phones))))
    });
    let x = Scale { low: 0.0, high, kind: Kind::Linear };
    over_time("Phones registered, over time", x, number, series, tips.collect())
}

/// Plots what several runs carried, and what the first was offered.
pub(super) fn loads(runs: &[PlottedRun<'_>]) -> Option<String> {
    let mut series: Vec<_> = runs
        .iter()
        .map(|shown| {
            let points = rates(shown.run, |row| row.carried);
            Series { name: shown.name, colour: shown.colour, shape: Shape::Line, points }
        })
        .collect();
    let first = runs.first()?;
    let points = rates(first.run, |row| row.offered);
    series.insert(0, Series { name: "offered", colour: 1, shape: Shape::Dashed, points });
    over_time(
        "Calls carried per second, over time",
        time_axis(runs.iter().map(|shown| shown.run)),
        number,
        series,
        Vec::new(),
    )
}

pub(super) fn latency(run: &RunReport) -> Option<String> {
    let series = vec![
        Series { name: "p50", colour: 4, shape: Shape::Line, points: latencies(run, |row| row.p50_us) },
        Series { name: "p90", colour: 2, shape: Shape::Line, points: latencies(run, |row| row.p90_us) },
        Series { name: "p99", colour: 6, shape: Shape::Line, points: latencies(run, |row| row.p99_us) },
    ];
    let tips = tips(run, |row| {
        format!(
            "p50 {}, p90 {}, p99 {} of {}",
            micros(row.p50_us),
            micros(row.p90_us),
            micros(row.p99_us),
            grouped(row.answered)
        )
    });
    latency_plot(time_axis([run].into_iter()), series, tips)
}

/// Plots the median and 99th percentile of several runs.
pub(super) fn latencies_of(runs: &[PlottedRun<'_>]) -> Option<String> {
    let names: Vec<_> =
        runs.iter().map(|shown| [format!("{} p50", shown.name), format!("{} p99", shown.name)]).collect();
    let series = runs.iter().zip(&names).flat_map(|(shown, [median, p99])| {
        let of = |name, shape, points| Series { name, colour: shown.colour, shape, points };
        [
            of(median.as_str(), Shape::Line, latencies(shown.run, |row| row.p50_us)),
            of(p99.as_str(), Shape::Dashed, latencies(shown.run, |row| row.p99_us)),
        ]
    });
    latency_plot(time_axis(runs.iter().map(|shown| shown.run)), series.collect(), Vec::new())
}

fn latency_plot(x: Scale, series: Vec<Series<'_>>, tips: Tips) -> Option<String> {
    if series.iter().all(|series| series.points.is_empty()) {
        return None;
    }
    let log = Scale::log(highest(&series));
    let y = if log.high / log.low > LINEAR_UP_TO { log } else { Scale::from_zero(highest(&series)) };
    let title = "Percentiles of the latency over time";
    Some(Plot { title, x, y, x_text: seconds, y_text: micros, series, marks: Vec::new(), tips }.draw())
}

fn distribution_of(run: &RunReport) -> Option<&Distribution> {
    let main = run.latency()?;
    let is_main = |row: &&Distribution| row.method == main.method && row.answer == main.answer;
    run.distributions.iter().find(is_main).filter(|distribution| !distribution.us.is_empty())
}

pub(super) fn count_of(distribution: &Distribution) -> u64 {
    distribution.us.iter().fold(0, |all, (_, count)| all.saturating_add(*count))
}

/// Returns the share of samples up to each time.
fn percentile_points(distribution: &Distribution) -> Points {
    let all = float(count_of(distribution).max(1));
    let (mut seen, mut points) = (0_u64, Vec::new());
    for (us, count) in &distribution.us {
        points.push((float(seen) / all, *us));
        seen = seen.saturating_add(*count);
        points.push((float(seen) / all, *us));
    }
    points
}

/// Plots the percentile curves of several runs.
pub(super) fn percentiles(runs: &[PlottedRun<'_>]) -> Option<String> {
    let found: Vec<_> = runs.iter().filter_map(|shown| Some((shown, distribution_of(shown.run)?))).collect();
    let most = found.iter().map(|(_, distribution)| count_of(distribution)).max()?;
    let series: Vec<_> = found
        .iter()
        .map(|(shown, distribution)| {
            let shape = if runs.len() == 1 { Shape::Area } else { Shape::Line };
            Series { name: shown.name, colour: shown.colour, shape, points: percentile_points(distribution) }
        })
        .collect();
    let plot = Plot {
        title: "Cumulative distribution of the latency",
        x: Scale::nines(most),
        y: Scale::log(highest(&series)),
        x_text: |share| format!("{} %", percent(100.0 * share)),
        y_text: micros,
        series,
        marks: Vec::new(),
        tips: if let [(_, distribution)] = found.as_slice() { percentile_tips(distribution) } else { Vec::new() },
    };
    Some(plot.draw())
}

fn percentile_tips(distribution: &Distribution) -> Tips {
    let points = percentile_points(distribution);
    let pairs = points.chunks(2).filter_map(|pair| match pair {
        [(from, us), (to, _)] => Some((*from, *to, format!("{} % took {} or less", percent(100.0 * to), micros(*us)))),
        _ => None,
    });
    pairs.collect()
}

pub(super) fn distribution(run: &RunReport) -> Option<String> {
    let main = run.latency()?;
    let values = &distribution_of(run)?.us;
    let x = Scale::log(values.iter().map(|(us, _)| *us));
    let (first, step) = (x.low.ln(), 10_f64.ln() / BARS_PER_DECADE);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few hundred bars")]
    let bar_of = |us: f64| ((us.max(x.low).ln() - first) / step) as usize;
    let mut bars = vec![0_u64; bar_of(x.high) + 1];
    for (us, count) in values {
        if let Some(bar) = bars.get_mut(bar_of(*us)) {
            *bar = bar.saturating_add(*count);
        }
    }
    let all = float(bars.iter().fold(0_u64, |all, bar| all.saturating_add(*bar)).max(1));
    let edge = |bar: usize| (first + step * float(bar as u64)).exp().min(x.high);
    let shares: Vec<f64> = bars.iter().map(|count| 100.0 * float(*count) / all).collect();
    let mut points: Vec<_> = shares.iter().enumerate().map(|(bar, share)| (edge(bar), *share)).collect();
    points.push((x.high, shares.last().copied().unwrap_or(0.0)));
    let tips = shares.iter().enumerate().map(|(bar, share)| {
        let (from, to) = (edge(bar), edge(bar + 1));
        (from, to, format!("{} to {}\n{} %", micros(from), micros(to), percent(*share)))
    });
    let names: Vec<_> = [("p50", main.us.p50), ("p90", main.us.p90), ("p99", main.us.p99)]
        .map(|(name, us)| (format!("{name} {}", micros(us)), us))
        .into();
    let name = format!("share of all, {} → {}, by time", main.method, main.answer);
    let plot = Plot {
        title: "Histogram of the latency",
        x,
        y: Scale::from_zero(shares.iter().copied()),
        x_text: micros,
        y_text: |share| format!("{} %", number(share)),
        series: vec![Series { name: &name, colour: 4, shape: Shape::Bars, points }],
        marks: names.iter().map(|(name, at)| Mark { name, at: *at }).collect(),
        tips: tips.collect(),
    };
    Some(plot.draw())
}

/// Returns a value of the server for each sampling interval.
fn server_points(run: &RunReport, of: impl Fn(&ServerRow) -> f64) -> Points {
    run.server.iter().flat_map(|server| server.rows.iter().map(|row| (row.at_s, of(row)))).collect()
}

fn server_tips(run: &RunReport) -> Tips {
    let mut from = 0.0;
    let rows = run.server.iter().flat_map(|server| &server.rows).map(|row| {
        let text = format!(
            "{}\nuser {:.2}, kernel {:.2} processors\n{}, {} switches/s, {} interrupts/s",
            seconds(row.at_s),
            row.user,
            row.system,
            bytes(float(row.resident_bytes)),
            number(row.voluntary_per_s + row.involuntary_per_s),
            number(row.interrupts_per_s)
        );
        (std::mem::replace(&mut from, row.at_s), row.at_s, text)
    });
    rows.collect()
}

pub(super) fn processors(run: &RunReport) -> Option<String> {
    let series = vec![
        Series { name: "all", colour: 2, shape: Shape::Area, points: server_points(run, |row| row.user + row.system) },
        Series { name: "in the kernel", colour: 5, shape: Shape::Area, points: server_points(run, |row| row.system) },
    ];
    let title = "CPUs used by the server over time";
    over_time(title, time_axis([run].into_iter()), |value| format!("{value:.2}"), series, server_tips(run))
}

pub(super) fn memory(run: &RunReport) -> Option<String> {
    let points = server_points(run, |row| float(row.resident_bytes) / MIB);
    let series = vec![Series { name: "resident", colour: 6, shape: Shape::Area, points }];
    over_time("Memory of the server over time", time_axis([run].into_iter()), mib, series, server_tips(run))
}

pub(super) fn mib(value: f64) -> String {
    bytes(value * MIB)
}

/// Plots a value of several runs' servers.
pub(super) fn servers(
    title: &str,
    runs: &[PlottedRun<'_>],
    y_text: fn(f64) -> String,
    of: fn(&ServerRow) -> f64,
) -> Option<String> {
    let series = runs.iter().map(|shown| {
        let points = server_points(shown.run, of);
        Series { name: shown.name, colour: shown.colour, shape: Shape::Line, points }
    });
    over_time(title, time_axis(runs.iter().map(|shown| shown.run)), y_text, series.collect(), Vec::new())
}

pub(super) fn going_on(run: &RunReport) -> Option<String> {
    let points: Points = slices(run).into_iter().map(|row| (row.at_s, float(row.unfinished))).collect();
    let mut series = vec![Series { name: "calls at the end of each slice", colour: 4, shape: Shape::Area, points }];
    if run.repeats_sent > 0 {
        let points = rates(run, |row| row.repeats);
        series.push(Series { name: "retransmissions per second", colour: 3, shape: Shape::Line, points });
    }
    over_time("Calls in progress over time", time_axis([run].into_iter()), number, series, Vec::new())
}

pub(super) fn lateness(run: &RunReport) -> Option<String> {
    let of = |name, colour, shape, of: fn(&IntervalRow) -> f64| Series { name, colour, shape, points: points(run, of) };
    let mut series = vec![
        of("delay of call starts: p99", 5, Shape::Area, |row| row.late_p99_us),
        of("delay of reads: p99", 3, Shape::Line, |row| row.unread_p99_us),
    ];
    // A run that only answers is never late.
    series.retain(|series| series.points.iter().any(|(_, us)| *us > 0.0));
    if series.is_empty() {
        return None;
    }
    over_time("Delays of the generator over time", time_axis([run].into_iter()), micros, series, Vec::new())
}
