//! The plots: cost per unit of work, time to the first response, and costs during warm-up.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::VPos;

use super::figures::{Key, Results, middle};
use super::peer::Peer;
use super::scenario::Scenario;
use super::steps::Load;
use crate::plot::{COLOURS, Drawn, Line, Lines, SIZE, centred, draw_axes, draw_lines, head};

const fn colour(peer: Peer) -> RGBColor {
    match peer {
        Peer::Kamailio => COLOURS[0],
        Peer::Relay => COLOURS[1],
        Peer::Strowger => COLOURS[2],
        Peer::Apart => COLOURS[3],
        Peer::Awake => COLOURS[4],
    }
}
/// Colour intensity of the upper part of a bar.
const LIGHT: f64 = 0.45;

/// Draws all plots that have results into a folder and returns their names and captions.
///
/// # Errors
/// If a file cannot be written.
pub fn draw(results: &Results, folder: &Path) -> Result<Vec<(&'static str, &'static str)>, Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    let mut drawn = Vec::new();
    let mut bars = |name: &'static str, caption: &'static str, groups: Vec<Group>, axis| -> Drawn {
        if !groups.is_empty() {
            draw_bars(&folder.join(name), caption, &groups, axis)?;
            drawn.push((name, caption));
        }
        Ok(())
    };
    let cost = "CPU of all the server's processes at saturation, µs each: dark in user mode, light in the kernel";
    bars("proxy-cpu.svg", cost, costs(results), Axis::FromZero)?;
    let delay = "From the request to the first answer, µs: from the median up to the 99th percentile";
    bars("proxy-delay.svg", delay, delays(results), Axis::Log)?;
    bars(
        "proxy-rate.svg",
        "Highest rate with 99.99 % success in an open loop, calls/s",
        rates(results),
        Axis::FromZero,
    )?;
    let lines = courses(results);
    if !lines.is_empty() {
        let (name, caption) =
            ("proxy-warm.svg", "CPU a call from the start of a server on, µs: stateful Proxy-200 at a steady rate");
        let seconds = |value: f64| format!("{value:.0} s");
        let of = Lines { caption, across: &seconds, up: &number, is_log: false, lines: &lines };
        draw_lines(&folder.join(name), &of)?;
        drawn.push((name, caption));
    }
    Ok(drawn)
}

/// Vertical axis of a bar plot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Axis {
    /// Bars start at zero: dark up to the first value, light up to the second.
    FromZero,
    /// Bars float between their values on a logarithmic axis.
    Log,
}

impl Axis {
    fn at(self, value: f64) -> f64 {
        if self == Self::Log { value.max(1e-3).log10() } else { value }
    }

    fn value(self, at: f64) -> f64 {
        if self == Self::Log { 10_f64.powf(at) } else { at }
    }
}

/// Bars drawn together.
struct Group {
    label: String,
    /// Server and its two values.
    bars: Vec<(Peer, f64, f64)>,
}

impl Group {
    fn new(label: String, of: impl Fn(Peer) -> Option<(f64, f64)>) -> Option<Self> {
        let bars: Vec<_> = Peer::ALL.into_iter().filter_map(|peer| of(peer).map(|(a, b)| (peer, a, b))).collect();
        (!bars.is_empty()).then_some(Self { label, bars })
    }
}

fn costs(results: &Results) -> Vec<Group> {
    let group = |scenario: Scenario| {
        let load = results.saturation(scenario)?;
        Group::new(scenario.to_string(), |peer| {
            let all = results.median(scenario, peer, load, Key::Processor)?;
            let kernel = results.median(scenario, peer, load, Key::Kernel)?;
            Some((all * (1.0 - kernel / 100.0), all))
        })
    };
    Scenario::ALL.into_iter().filter_map(group).collect()
}

fn delays(results: &Results) -> Vec<Group> {
    let mut groups = Vec::new();
    for scenario in Scenario::ALL {
        let rates = results.loads(scenario).into_iter().filter(|load| matches!(load, Load::Rate(_)));
        groups.extend(rates.filter_map(|load| {
            Group::new(format!("{}, {load}", scenario.name()), |peer| {
                let of = |key| results.median(scenario, peer, load, key);
                Some((of(Key::P50)?, of(Key::P99)?))
            })
        }));
    }
    groups
}

fn rates(results: &Results) -> Vec<Group> {
    let group = |scenario: Scenario| {
        Group::new(scenario.to_string(), |peer| results.highest_rate(scenario, peer).map(|rate| (rate, rate)))
    };
    Scenario::ALL.into_iter().filter_map(group).collect()
}

/// Returns the medians over the rounds for each second of each server.
fn courses(results: &Results) -> Vec<Line> {
    let of = |peer: Peer| {
        let rounds: Vec<_> = results.of(Scenario::Call, peer).map(|turn| &turn.course).collect();
        let length = rounds.iter().map(|course| course.len()).min().unwrap_or(0);
        let point = |at: usize| {
            let all = rounds.iter().filter_map(|course| course.get(at));
            let time = all.clone().next()?.0;
            Some((time, middle(all.map(|(_, cost)| *cost).collect())?))
        };
        Line { name: peer.to_string(), colour: colour(peer), points: (0..length).filter_map(point).collect() }
    };
    Peer::ALL.into_iter().map(of).filter(|line| line.points.len() > 1).collect()
}

fn draw_bars(file: &Path, caption: &str, groups: &[Group], axis: Axis) -> Drawn {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    let present = |peer: &Peer| groups.iter().any(|group| group.bars.iter().any(|(its, ..)| its == peer));
    let peers: Vec<Peer> = Peer::ALL.into_iter().filter(present).collect();
    let names: Vec<String> = peers.iter().map(Peer::to_string).collect();
    head(&root, caption, names.iter().map(String::as_str).zip(peers.iter().copied().map(colour)))?;
    let all = || groups.iter().flat_map(|group| &group.bars);
    let highest = all().map(|(.., top)| *top).fold(1e-9, f64::max);
    let range = match axis {
        Axis::FromZero => 0.0..highest * 1.12,
        Axis::Log => axis.at(all().map(|(_, low, _)| *low).fold(highest, f64::min) / 2.0)..axis.at(highest * 2.0),
    };
    let floor = range.start;
    let count = u32::try_from(groups.len()).map_or(1.0, f64::from);
    let mut chart = draw_axes(&root, 64, (0.0..count, range), None, &|at| number(axis.value(at)))?;
    let width = 0.8 / peers.len().max(1) as f64;
    let small = if groups.len() * peers.len() > 12 { 10 } else { 13 };
    for (index, group) in groups.iter().enumerate() {
        let from = index as f64 + 0.1;
        for (peer, dark, top) in &group.bars {
            let place = peers.iter().position(|its| its == peer).unwrap_or(0) as f64;
            let (left, right) = (from + place * width, from + (place + 0.92) * width);
            let bar = |from: f64, to: f64, style: ShapeStyle| Rectangle::new([(left, from), (right, to)], style);
            let (low, high) = (axis.at(*dark), axis.at(*top));
            match axis {
                Axis::FromZero => chart.draw_series([
                    bar(floor, low, colour(*peer).filled()),
                    bar(low, high, colour(*peer).mix(LIGHT).filled()),
                ])?,
                Axis::Log => chart.draw_series([bar(low, high, colour(*peer).filled())])?,
            };
            let (x, y) = chart.plotting_area().map_coordinate(&(f64::midpoint(left, right), high));
            if axis == Axis::Log {
                let below = chart.plotting_area().map_coordinate(&(f64::midpoint(left, right), low)).1;
                root.draw(&Text::new(number(*dark), (x, below + 4), centred(small, VPos::Top)))?;
            }
            root.draw(&Text::new(number(*top), (x, y - 3), centred(small, VPos::Bottom)))?;
        }
        let (x, y) = chart.plotting_area().map_coordinate(&(index as f64 + 0.5, floor));
        root.draw(&Text::new(
            group.label.clone(),
            (x, y + 8),
            centred(if groups.len() > 5 { 11 } else { 14 }, VPos::Top),
        ))?;
    }
    root.present()?;
    Ok(())
}

/// Formats a number: as an integer if large, with thousands separators.
fn number(value: f64) -> String {
    let text = if value < 99.5 && value.fract().abs() > 1e-9 { format!("{value:.1}") } else { format!("{value:.0}") };
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    rest.map_or(grouped.clone(), |rest| format!("{grouped}.{rest}"))
}

#[cfg(test)]
mod tests {
    use super::super::figures::{Figures, Highest, ServerRun};
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 12.34, 98.0, 100.4, 15_241.0, 1e6].map(number),
            ["0", "12.3", "98", "100", "15,241", "1,000,000"]
        );
    }

    #[test]
    fn plots_are_small_and_labelled() {
        let mut figures = Figures::default();
        for (key, value) in [(Key::Processor, 30.0), (Key::Kernel, 60.0), (Key::P50, 50.0), (Key::P99, 150.0)] {
            figures.put(key, value);
        }
        let turn = |peer| ServerRun {
            scenario: Scenario::Call,
            peer,
            round: 1,
            first: None,
            loads: vec![(Load::Rate(1_000), figures.clone()), (Load::Saturation(64), figures.clone())],
            course: (1..50).map(|second| (f64::from(second), 60.0)).collect(),
            answered_bytes: None,
            memory: (0.0, 0.0),
        };
        let results = Results {
            turns: Peer::ALL.map(turn).to_vec(),
            highest: vec![Highest { scenario: Scenario::Call, peer: Peer::Strowger, rate: 9e3, is_generators: false }],
            ..Results::default()
        };
        let folder = tempfile::tempdir().expect("a folder");
        let drawn = draw(&results, folder.path()).expect("they can be drawn");
        assert_eq!(drawn.len(), 4);
        for (name, _) in drawn {
            let text = std::fs::read_to_string(folder.path().join(name)).expect("it is there");
            assert!(text.contains("Strowger") && text.len() < 40_000, "{name}: {} bytes", text.len());
        }
        assert!(draw(&Results::default(), folder.path()).expect("nothing to draw").is_empty());
    }
}
