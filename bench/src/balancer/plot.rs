//! The plots: times by load, throughput by number of targets, and the effect of a stopped target.

use std::error::Error;
use std::path::Path;

use plotters::prelude::RGBColor;

use super::contender::{Contender, Layout};
use super::figures::{Figures, Rule};
use super::results::Results;
use crate::plot::{COLOURS, Line, Lines, draw_lines};

use Contender::{
    Hash, KamailioCallLoad, KamailioHash, LeastCalls, LeastTransactions, LeastWork175, LeastWorkOfTwo, RoundRobin,
};

/// Contenders in the plots with their colours: those of Okabe and Ito, distinguishable with red-green colour
/// blindness.
const DRAWN: [(Contender, RGBColor); 8] = [
    (Hash, RGBColor(0, 0, 0)),
    (RoundRobin, RGBColor(204, 121, 167)),
    (LeastCalls, RGBColor(86, 180, 233)),
    (LeastTransactions, RGBColor(0, 158, 115)),
    (LeastWork175, RGBColor(0, 114, 178)),
    (LeastWorkOfTwo, RGBColor(213, 94, 0)),
    (KamailioHash, RGBColor(150, 150, 150)),
    (KamailioCallLoad, RGBColor(230, 159, 0)),
];

/// Names and captions of the drawn plots.
pub type Drawn = Vec<(&'static str, &'static str)>;

/// Draws all plots that have results into a folder.
///
/// # Errors
/// If a file cannot be written.
pub fn draw(results: &Results, folder: &Path) -> Result<Drawn, Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    let mut drawn = Vec::new();
    let mut lines =
        |name: &'static str, caption: &'static str, lines: Vec<Line>, axes: (&dyn Fn(f64) -> String, bool)| {
            if lines.iter().all(|line| line.points.len() < 2) {
                return Ok(());
            }
            let up = |value: f64| if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") };
            let of = Lines { caption, across: axes.0, up: &up, is_log: axes.1, lines: &lines };
            draw_lines(&folder.join(name), &of)?;
            drawn.push((name, caption));
            Ok::<_, Box<dyn Error>>(())
        };
    let percent = |value: f64| format!("{value:.0} %");
    let count = |value: f64| format!("{value:.0}");
    let seconds = |value: f64| format!("{value:.0} s");
    lines(
        "balancer-invite.svg",
        "INVITE to 200 by load, the mean in ms: eight targets of 300 calls/s",
        by_load(results, |figures| figures.invite.mean),
        (&percent, true),
    )?;
    lines(
        "balancer-bye.svg",
        "BYE to 200 by load, the mean in ms: eight targets of 300 calls/s",
        by_load(results, |figures| figures.bye.mean),
        (&percent, true),
    )?;
    lines(
        "balancer-invite-p99.svg",
        "INVITE to 200 by load, the 99th percentile in ms: eight targets of 300 calls/s",
        by_load(results, |figures| figures.invite.p99),
        (&percent, true),
    )?;
    lines(
        "balancer-throughput.svg",
        "Calls/s of which 99.99 % are answered within 50 ms, by the number of targets",
        by_count(results),
        (&count, false),
    )?;
    lines(
        "balancer-disturbed.svg",
        "Calls to one of eight targets that stops for a while, percent of all",
        disturbed(results),
        (&seconds, false),
    )?;
    Ok(drawn)
}

fn by_load(results: &Results, of: fn(&Figures) -> f64) -> Vec<Line> {
    let layout = Layout::equal(8);
    let line = |(contender, colour): (Contender, RGBColor)| {
        let loads = results.loads(layout).into_iter();
        let points = loads.filter_map(|percent| {
            Some((f64::from(percent), results.median(contender, layout, percent, of).filter(|value| *value > 0.0)?))
        });
        Line { name: contender.name().to_owned(), colour, points: points.collect() }
    };
    DRAWN.into_iter().map(line).filter(|line| !line.points.is_empty()).collect()
}

fn by_count(results: &Results) -> Vec<Line> {
    let layouts: Vec<Layout> =
        results.layouts().into_iter().filter(|layout| *layout == Layout::equal(layout.targets)).collect();
    let line = |(contender, colour): (Contender, RGBColor)| {
        let points = layouts.iter().filter_map(|layout| {
            let (rate, _) = results.highest(contender, *layout, Rule::Soon)?;
            Some((f64::from(layout.targets), rate))
        });
        Line { name: contender.name().to_owned(), colour, points: points.collect() }
    };
    let ideal = layouts.iter().map(|layout| (f64::from(layout.targets), layout.capacity())).collect();
    let ideal = Line { name: "what they can serve".to_owned(), colour: RGBColor(215, 215, 215), points: ideal };
    let all = [ideal].into_iter().chain(DRAWN.into_iter().map(line));
    all.filter(|line| !line.points.is_empty()).collect()
}

fn disturbed(results: &Results) -> Vec<Line> {
    let line = |(index, done): (usize, &super::disturbance::Disturbance)| {
        let shares = (0_u32..).zip(&done.seconds);
        let points = shares.filter_map(|(second, of)| Some((f64::from(second), of.share?))).collect();
        let colour = DRAWN.get(index).map_or(COLOURS[0], |(_, colour)| *colour);
        Line { name: format!("{}, {}", done.contender.name(), done.how), colour, points }
    };
    results.disturbances.iter().enumerate().map(line).filter(|line| line.points.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::super::figures::{LoadRun, Times};
    use super::*;

    #[test]
    fn plots_are_small_and_labelled() {
        let turn = |contender, targets| {
            let invite = Times { mean: 3.0, p99: 9.0, ..Times::default() };
            let figures = Figures { invite, bye: invite, soon: 1.0, ..Figures::default() };
            let loads = vec![(40, figures), (80, figures), (90, figures)];
            LoadRun { contender, layout: Layout::equal(targets), round: 1, loads }
        };
        let turns = [Hash, LeastWork175, KamailioCallLoad].into_iter();
        let turns = turns.flat_map(|contender| [1, 2, 8].map(|targets| turn(contender, targets))).collect();
        let results = Results { turns, ..Results::default() };
        let folder = tempfile::tempdir().expect("a folder");
        let drawn = draw(&results, folder.path()).expect("they can be drawn");
        assert_eq!(drawn.len(), 4);
        for (name, _) in drawn {
            let text = std::fs::read_to_string(folder.path().join(name)).expect("it is there");
            assert!(text.contains("tlwl-1.75") && text.len() < 40_000, "{name}: {} bytes", text.len());
        }
        assert!(draw(&Results::default(), folder.path()).expect("nothing to draw").is_empty());
    }
}
