//! The plots: throughput at each load, measured as points and planned as lines.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::layout::{Layout, Work};
use super::paper;
use super::prediction::of_paper;
use super::results::Results;
use crate::plot::{COLOURS, Drawn, SIZE, draw_axes, head};

/// Colours of the paper's layouts, in their order.
const BLUE: RGBColor = RGBColor(86, 180, 233);

fn colour(layout: Layout) -> RGBColor {
    let all = [COLOURS[1], COLOURS[0], COLOURS[4], COLOURS[2], COLOURS[3], BLUE];
    let place = Layout::PAPER.iter().position(|one| *one == layout);
    place.and_then(|place| all.get(place)).copied().unwrap_or(BLACK)
}

/// Measured points, and corners of the planned line.
struct Curve {
    name: String,
    colour: RGBColor,
    measured: Vec<(f64, f64)>,
    planned: Vec<(f64, f64)>,
}

/// Draws all plots that have results into a folder and returns the file names.
///
/// # Errors
/// If a file cannot be written.
pub fn draw(results: &Results, folder: &Path) -> Result<Vec<&'static str>, Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    let mut drawn = Vec::new();
    let pictures = [
        ("two-stage-calls.svg", Work::Calls, "Calls/s carried by offered calls/s: measured (points), planned (lines)"),
        (
            "two-stage-registrations.svg",
            Work::Registrations,
            "Registrations/s carried by offered: measured (points), planned (lines)",
        ),
    ];
    for (name, work, caption) in pictures {
        let curves: Vec<Curve> = Layout::PAPER.iter().filter_map(|layout| curve(results, *layout, work)).collect();
        if !curves.is_empty() {
            draw_curves(&folder.join(name), caption, &curves)?;
            drawn.push(name);
        }
    }
    let curves: Vec<Curve> = Layout::PAPER.iter().filter_map(|layout| paper_curve(*layout)).collect();
    draw_curves(
        &folder.join("two-stage-paper.svg"),
        "The paper's plan, its figure 16: calls/s carried by offered calls/s",
        &curves,
    )?;
    drawn.push("two-stage-paper.svg");
    Ok(drawn)
}

fn curve(results: &Results, layout: Layout, work: Work) -> Option<Curve> {
    let sweep = results.sweep(layout, work)?;
    let measured: Vec<(f64, f64)> =
        sweep.points.iter().map(|point| (point.outcome.offered, point.outcome.goodput)).collect();
    let last = measured.iter().fold(0.0, |last, point| f64::max(last, point.0));
    let plan = results.both(work).and_then(|both| both.plan(layout, &sweep.shares));
    let planned = plan.map(|plan| corners(&plan, last)).unwrap_or_default();
    Some(Curve { name: layout.to_string(), colour: colour(layout), measured, planned })
}

fn paper_curve(layout: Layout) -> Option<Curve> {
    let plan = of_paper(paper::STATELESS, layout)?;
    Some(Curve {
        name: layout.to_string(),
        colour: colour(layout),
        measured: Vec::new(),
        planned: corners(&plan, 1.5 * plan.capacity()),
    })
}

/// Returns the start, the bends and the end of the throughput line.
fn corners(plan: &strowger_plan::TwoStage, last: f64) -> Vec<(f64, f64)> {
    let bends = plan.break_points().into_iter().map(|point| (point.load_per_s, point.throughput_per_s));
    let bends = bends.filter(|point| point.0 < last);
    [(0.0, 0.0)].into_iter().chain(bends).chain([(last, plan.throughput(last))]).collect()
}

fn draw_curves(file: &Path, caption: &str, curves: &[Curve]) -> Drawn {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    let below = head(&root, caption, curves.iter().map(|curve| (curve.name.as_str(), curve.colour)))?;
    let points = || curves.iter().flat_map(|curve| curve.measured.iter().chain(&curve.planned));
    let last = points().fold(1.0, |x, point| f64::max(x, point.0));
    let highest = points().fold(1.0, |y, point| f64::max(y, point.1));
    let number = |value: f64| format!("{value:.0}");
    let mut chart = draw_axes(&root, below, (0.0..last * 1.02, 0.0..highest * 1.1), Some(&number), &number)?;
    for curve in curves {
        chart.draw_series(LineSeries::new(curve.planned.iter().copied(), curve.colour.stroke_width(1)))?;
        chart.draw_series(curve.measured.iter().map(|point| Circle::new(*point, 4, curve.colour.filled())))?;
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::some;
    use super::*;

    #[test]
    fn each_layout_has_its_points_and_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(draw(&some(), folder.path()).expect("drawn").len(), 3);
        let text = std::fs::read_to_string(folder.path().join("two-stage-calls.svg")).expect("it is there");
        assert!(text.contains("S3P3") && text.matches("<circle").count() == 18, "{text}");
        assert!(text.matches("<polyline").count() >= 6);
        assert_eq!(draw(&Results::default(), folder.path()).expect("drawn"), ["two-stage-paper.svg"]);
    }
}
