//! The plot: what Kamailio carries by its number of processes, untuned and tuned.

use std::path::Path;

use super::results::Results;
use super::server::Tuning;
use crate::plot::{COLOURS, Drawn, Line, Lines, draw_lines};

/// File of the plot, in the folder of plots.
pub const FILE: &str = "tuning.svg";

/// Draws the calls per second at 1 % of drops.
///
/// # Errors
/// If the file cannot be written.
pub fn draw(file: &Path, results: &Results) -> Drawn {
    let kinds = [(1, Tuning::None), (1, Tuning::All), (2, Tuning::None), (2, Tuning::All)];
    let lines: Vec<Line> = kinds
        .into_iter()
        .zip(COLOURS)
        .map(|((cores, tuning), colour)| {
            let here = results
                .tuned
                .iter()
                .filter(|sweep| !sweep.contender.is_ours && sweep.contender.cores == cores && sweep.tuning == tuning);
            let points =
                here.filter_map(|sweep| Some((f64::from(sweep.contender.processes), sweep.calls_at(1.0)?.calls_per_s)));
            let name = format!("{cores} {}, {tuning}", if cores == 1 { "core" } else { "cores" });
            Line { name, colour, points: points.collect() }
        })
        .filter(|line| !line.points.is_empty())
        .collect();
    let of = Lines {
        caption: "Calls per second of Kamailio with at most 1 % of the packets dropped, by its processes",
        across: &|processes| format!("{processes:.0}"),
        up: &|calls| format!("{calls:.0}"),
        is_log: false,
        lines: &lines,
    };
    draw_lines(file, &of)
}
