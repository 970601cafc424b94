//! The plots: goodput by load over UDP and TCP, and a step.

use std::error::Error;
use std::path::Path;

use plotters::prelude::RGBColor;

use super::contender::{Contender, Mode};
use super::results::Results;
use crate::plot::{COLOURS, Line, Lines, draw_lines};

/// Names and captions of the drawn plots.
pub type Drawn = Vec<(&'static str, &'static str)>;

const fn colour(contender: Contender) -> RGBColor {
    match contender {
        Contender::Control => COLOURS[2],
        Contender::Plain => COLOURS[3],
        Contender::Kamailio => COLOURS[0],
        Contender::Limits => COLOURS[4],
    }
}

/// Draws all plots that have results into a folder.
///
/// # Errors
/// If a file cannot be written.
pub fn draw(results: &Results, folder: &Path) -> Result<Drawn, Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    let mut drawn = Vec::new();
    let mut lines = |name: &'static str, caption: &'static str, lines: Vec<Line>, across: &dyn Fn(f64) -> String| {
        if lines.iter().all(|line| line.points.len() < 2) {
            return Ok(());
        }
        let up = |value: f64| format!("{value:.0}");
        draw_lines(&folder.join(name), &Lines { caption, across, up: &up, is_log: false, lines: &lines })?;
        drawn.push((name, caption));
        Ok::<_, Box<dyn Error>>(())
    };
    let times = |value: f64| format!("{value:.0}×");
    let seconds = |value: f64| format!("{value:.0} s");
    lines(
        "overload-udp.svg",
        "Goodput by offered load, percent of the capacity: UDP, callers that retransmit",
        by_load(results, Mode::Udp),
        &times,
    )?;
    lines(
        "overload-tcp.svg",
        "Goodput by offered load, percent of the capacity: TCP",
        by_load(results, Mode::Tcp),
        &times,
    )?;
    lines("overload-step.svg", "A step: calls/s carried, percent of the capacity", by_time(results), &seconds)?;
    Ok(drawn)
}

fn by_load(results: &Results, mode: Mode) -> Vec<Line> {
    let of = |contender| {
        let mut points: Vec<(f64, f64)> = results
            .loads
            .iter()
            .filter(|one| one.contender == contender && one.mode == mode)
            .map(|one| (one.times, one.goodput_percent()))
            .collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Line { name: contender.to_string(), colour: colour(contender), points }
    };
    Contender::ALL.into_iter().map(of).filter(|line| !line.points.is_empty()).collect()
}

fn by_time(results: &Results) -> Vec<Line> {
    let of = |one: &super::step::StepResult| Line {
        name: one.contender.to_string(),
        colour: colour(one.contender),
        points: one.seconds().into_iter().map(|(at, _, carried)| (at, 100.0 * carried / one.capacity)).collect(),
    };
    results.steps.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::some;
    use super::*;

    #[test]
    fn plots_are_drawn_for_existing_data() {
        let folder = tempfile::tempdir().expect("a folder");
        let drawn = draw(&some(), folder.path()).expect("drawn");
        let names: Vec<_> = drawn.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["overload-udp.svg", "overload-step.svg"], "nothing was measured over TCP");
        let text = std::fs::read_to_string(folder.path().join("overload-udp.svg")).expect("it is there");
        assert!(text.contains("Kamailio") && text.contains("no control"));
    }
}
