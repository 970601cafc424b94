//! The plots: K_rcv by load. Those of predictions are drawn by `strowger plan validate`.

use std::error::Error;
use std::path::Path;

use strowger_timing::Part;

use super::figures::mean_us;
use super::program::Program;
use super::results::Results;
use crate::plot::{COLOURS, Line, Lines, draw_lines};

/// Draws K_rcv of each program by load into a folder. Returns false if no program has at least two loads.
///
/// # Errors
/// If the file cannot be written.
pub fn draw(results: &Results, folder: &Path) -> Result<bool, Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    let colours = [COLOURS[2], COLOURS[0], COLOURS[1]];
    let lines = Program::ALL.into_iter().zip(colours).map(|(program, colour)| {
        let runs = results.loaded(program);
        let points = runs.iter().filter_map(|run| Some((100.0 * run.load, mean_us(&run.report.all, Part::Receive)?)));
        Line { name: program.to_string(), colour, points: points.collect() }
    });
    let lines: Vec<Line> = lines.filter(|line| line.points.len() > 1).collect();
    if lines.is_empty() {
        return Ok(false);
    }
    let (percent, micros) = (|value: f64| format!("{value:.0} %"), |value: f64| format!("{value:.0} µs"));
    let caption = "Mean K_rcv, from the network device to the program, by load";
    let of = Lines { caption, across: &percent, up: &micros, is_log: true, lines: &lines };
    draw_lines(&folder.join("timing-receive.svg"), &of)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::some;
    use super::*;

    #[test]
    fn programs_with_loads_are_drawn() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(!draw(&Results::default(), folder.path()).expect("nothing to draw"));
        assert!(!folder.path().join("timing-receive.svg").exists());
        assert!(draw(&some(), folder.path()).expect("drawn"));
        let text = std::fs::read_to_string(folder.path().join("timing-receive.svg")).expect("drawn");
        assert!(text.contains("Kamailio") && !text.contains("echo"), "{text}");
    }
}
