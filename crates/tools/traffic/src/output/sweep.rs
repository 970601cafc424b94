//! A sweep as a page: throughput, response times and the server's CPU use over the load.

use super::format::{grouped, micros, number, percent};
use super::page::{Page, Tone, table};
use super::plot::{Plot, Scale, Series, Shape};
use crate::sweep::{Mean, Point, SweepReport};

type Points = Vec<(f64, f64)>;

/// Returns the page.
#[must_use]
pub fn sweep_page(report: &SweepReport) -> String {
    let repeats = report.sweep.settings().repeats;
    let facts = [
        format!("to {}", report.to),
        format!("arrivals {}", report.arrivals),
        format!("{repeats} × {} at each rate", report.length),
        report.restart.as_ref().map(|command| format!("restarted by {command}")).unwrap_or_default(),
        format!("seed {}", report.seed),
    ];
    let mut page = Page::new("load sweep", &report.workload, &facts);
    let (tone, sentence, more) = verdict(report);
    page.verdict(tone, &sentence, &more);
    tiles(&mut page, report);
    page.cards(vec![
        ("Throughput in calls per second against load".to_owned(), throughput_plot(report)),
        ("Response time against load".to_owned(), latency_plot(report)),
        ("CPUs used by the server against load".to_owned(), processors_plot(report)),
        ("Share of successful calls against load".to_owned(), success_plot(report)),
    ]);
    if let Some(html) = points_table(report) {
        page.wide("All rates", &html);
    }
    page.end(&format!(
        "A call succeeds if it is carried and each of its requests gets its 2xx within {:?}. Bars are 95 % confidence \
         intervals: by Student's t for repeated runs, by batch means of its seconds for a single run, if these are independent of \
         each other. Throughput counts calls that ended before the last arrival.",
        report.sweep.settings().within
    ))
}

/// Success share from which losses count as few.
const FEW_LOST: f64 = 0.99;

fn verdict(report: &SweepReport) -> (Tone, String, Vec<String>) {
    let Some(peak) = report.peak() else {
        return (Tone::Bad, "Nothing was measured.".to_owned(), vec![report.ending()]);
    };
    let share = peak.success.map(|success| success.mean);
    let of_them = share.map(|share| format!(", {} % of them", percent(100.0 * share))).unwrap_or_default();
    let sentence = format!(
        "At most {} calls per second succeeded, at {} offered{of_them}.",
        number(peak.throughput.mean),
        number(peak.offered.mean)
    );
    match report.bottleneck() {
        Some((rate, why)) => {
            let limit = format!("The generator was the bottleneck from {}/s on: {why}", number(rate));
            (Tone::Bad, sentence, vec![limit, report.ending()])
        }
        // At its highest throughput a server may lose many calls.
        None if report.was_stopped || share.is_some_and(|share| share < FEW_LOST) => {
            (Tone::Fair, sentence, vec![report.ending()])
        }
        None => (Tone::Good, sentence, vec![report.ending()]),
    }
}

fn tiles(page: &mut Page, report: &SweepReport) {
    let points = report.sweep.points();
    let mut tiles = Vec::new();
    if let Some(peak) = report.peak() {
        tiles.push(("highest throughput", format!("{}/s", number(peak.throughput.mean)), plus_minus(peak.throughput)));
        if let Some(success) = peak.success {
            tiles.push(("there", format!("{} %", percent(100.0 * success.mean)), "of the calls succeeded".to_owned()));
        }
    }
    // Up to this rate nothing fails.
    if let Some(clean) =
        points.iter().take_while(|point| point.success.is_some_and(|success| success.mean >= 0.9999)).last()
    {
        tiles.push(("highest clean rate", format!("{}/s", number(clean.rate)), "at least 99.99 % succeed".to_owned()));
        if let Some(p99) = clean.latency_p99 {
            let median = clean.latency_p50.map(|p50| format!("median {}", micros(1e6 * p50.mean))).unwrap_or_default();
            tiles.push(("99th percentile there", micros(1e6 * p99.mean), median));
        }
    }
    page.tiles(&tiles);
}

fn plus_minus(mean: Mean) -> String {
    mean.half_width.map(|half| format!("± {} (95 %)", number(half))).unwrap_or_default()
}

fn throughput_plot(report: &SweepReport) -> Option<String> {
    let points = report.sweep.points();
    let of = |point: &Point| Some(point.throughput);
    let last = points.iter().map(|point| point.offered.mean).fold(0.0, f64::max);
    let mut series =
        vec![Series { name: "y = x", colour: 1, shape: Shape::Dashed, points: vec![(0.0, 0.0), (last, last)] }];
    series.extend(with_bars("succeeded in time", 2, points, of, 1.0));
    plot("throughput against load", report, series, number)
}

fn latency_plot(report: &SweepReport) -> Option<String> {
    let points = report.sweep.points();
    let mut series = with_bars("mean", 2, points, |point| point.latency_mean, 1e6);
    series.extend(with_bars("median", 4, points, |point| point.latency_p50, 1e6));
    series.extend(with_bars("p99", 5, points, |point| point.latency_p99, 1e6));
    plot("response time against load", report, series, micros)
}

fn processors_plot(report: &SweepReport) -> Option<String> {
    let series = with_bars("processors kept busy", 4, report.sweep.points(), |point| point.processors, 1.0);
    plot("processors against load", report, series, number)
}

fn success_plot(report: &SweepReport) -> Option<String> {
    let of = |point: &Point| point.success.map(|success| Mean { mean: success.mean.min(1.0), ..success });
    let mut series = with_bars("succeeded in time", 2, report.sweep.points(), of, 100.0);
    // No share exceeds one.
    for (_, percent) in series.iter_mut().flat_map(|series| &mut series.points) {
        *percent = percent.min(100.0);
    }
    plot("success against load", report, series, |value| format!("{} %", percent(value)))
}

/// Returns a line with a dot and a confidence interval at each rate.
fn with_bars<'a>(
    name: &'a str,
    colour: u8,
    points: &[Point],
    of: impl Fn(&Point) -> Option<Mean>,
    by: f64,
) -> Vec<Series<'a>> {
    let shown: Vec<(f64, Mean)> = points.iter().filter_map(|point| Some((point.offered.mean, of(point)?))).collect();
    let line: Points = shown.iter().map(|(x, mean)| (*x, by * mean.mean)).collect();
    let spans = shown.iter().filter_map(|(x, mean)| {
        let half = mean.half_width?;
        Some([(*x, by * (mean.mean - half).max(0.0)), (*x, by * (mean.mean + half))])
    });
    let spans: Points = spans.flatten().collect();
    vec![
        Series { name: "", colour, shape: Shape::Spans, points: spans },
        Series { name, colour, shape: Shape::Line, points: line.clone() },
        Series { name: "", colour, shape: Shape::Dots, points: line },
    ]
}

fn plot(title: &str, report: &SweepReport, series: Vec<Series<'_>>, y_text: fn(f64) -> String) -> Option<String> {
    let values = || series.iter().flat_map(|series| series.points.iter().copied());
    if series.iter().all(|series| series.shape != Shape::Line || series.points.is_empty()) {
        return None;
    }
    let (low, high) = values()
        .fold((f64::INFINITY, 0.0_f64), |(low, high), (_, y)| (if y > 0.0 { low.min(y) } else { low }, high.max(y)));
    let is_wide = high > 50.0 * low && title.starts_with("response");
    let y = if is_wide { Scale::log(values().map(|(_, y)| y)) } else { Scale::from_zero(values().map(|(_, y)| y)) };
    let x = Scale::from_zero(values().map(|(x, _)| x));
    let tips = tips(report.sweep.points());
    Some(
        Plot { title, x, y, x_text: |rate| format!("{}/s", number(rate)), y_text, series, marks: Vec::new(), tips }
            .draw(),
    )
}

/// Returns the tooltip of each rate; it extends half-way to the neighbouring rates.
fn tips(points: &[Point]) -> Vec<(f64, f64, String)> {
    let at = |index: usize| points.get(index).map(|point| point.offered.mean);
    let text = |point: &Point| {
        format!(
            "{}/s offered\n{}/s in time {}\n{} % succeeded",
            number(point.offered.mean),
            number(point.throughput.mean),
            plus_minus(point.throughput),
            point.success.map(|success| percent(100.0 * success.mean)).unwrap_or_default()
        )
    };
    let rows = points.iter().enumerate().map(|(index, point)| {
        let own = point.offered.mean;
        let before = index.checked_sub(1).and_then(at).map_or(0.0, |other| f64::midpoint(own, other));
        let behind = at(index + 1).map_or(own, |other| f64::midpoint(own, other));
        (before, behind, text(point))
    });
    rows.collect()
}

fn points_table(report: &SweepReport) -> Option<String> {
    let head = [
        "rate",
        "runs",
        "offered",
        "in time",
        "±",
        "success",
        "mean",
        "p50",
        "p99",
        "processors",
        "kept back",
        "generator",
    ];
    let time = |mean: Option<Mean>| mean.map(|mean| micros(1e6 * mean.mean)).unwrap_or_default();
    let rows = report.sweep.points().iter().map(|point| {
        vec![
            format!("{}/s", number(point.rate)),
            grouped(point.runs.len() as u64),
            format!("{}/s", number(point.offered.mean)),
            format!("{}/s", number(point.throughput.mean)),
            point.throughput.half_width.map(number).unwrap_or_default(),
            point.success.map(|success| format!("{} %", percent(100.0 * success.mean))).unwrap_or_default(),
            time(point.latency_mean),
            time(point.latency_p50),
            time(point.latency_p99),
            point.processors.map(|busy| number(busy.mean)).unwrap_or_default(),
            grouped(point.refused()),
            point.bottleneck().map(|_| "was the bottleneck".to_owned()).unwrap_or_default(),
        ]
    });
    table(&head, &rows.collect::<Vec<_>>())
}
