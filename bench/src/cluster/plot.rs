//! The plots: REGISTERs per second, and times until the other server knows a binding.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::contender::Contender;
use super::engine::Kind;
use super::propagation::PropagationResult;
use super::results::Results;
use super::table::GOAL_RATE;
use crate::plot::{COLOURS, Drawn, GRID, Line, Lines, SIZE, draw_lines, font, head};

/// Contenders whose times are drawn, one per colour.
const PROPAGATING: [Contender; 4] = [Contender::Redis, Contender::Postgres, Contender::Mariadb, Contender::KamailioDmq];
/// Height of a row in pixels.
const ROW: i32 = 22;
/// Left end of the bars and right end of the longest one.
const BARS: (i32, i32) = (270, 800);

fn colour(contender: Contender) -> RGBColor {
    match (contender.kamailio(), contender.engine()) {
        (Some(_), _) => COLOURS[0],
        (None, None) => COLOURS[1],
        (None, Some(Kind::Redis)) => COLOURS[2],
        (None, Some(Kind::Postgres)) => COLOURS[3],
        (None, Some(Kind::Mariadb)) => COLOURS[4],
    }
}

/// Draws all plots that have results into a folder and returns the file names.
///
/// # Errors
/// If a file cannot be written.
pub fn draw(results: &Results, folder: &Path) -> Result<Vec<&'static str>, Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    let mut drawn = Vec::new();
    if !results.rates.is_empty() {
        draw_rates(results, &folder.join("cluster-rates.svg"))?;
        drawn.push("cluster-rates.svg");
    }
    let is_drawn = |one: &&PropagationResult| one.asked == GOAL_RATE && PROPAGATING.contains(&one.contender);
    let lines: Vec<Line> = results.propagation.iter().filter(is_drawn).filter_map(line).collect();
    if !lines.is_empty() {
        let of = Lines {
            caption: "From the 200 at one server until the other one finds the phone, by the share of phones, at 5,000 REGISTERs/s",
            across: &|percent| format!("{percent:.0} %"),
            up: &|ms| if ms < 1.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") },
            is_log: true,
            lines: &lines,
        };
        draw_lines(&folder.join("cluster-propagation.svg"), &of)?;
        drawn.push("cluster-propagation.svg");
    }
    Ok(drawn)
}

fn line(one: &PropagationResult) -> Option<Line> {
    let points: Vec<(f64, f64)> = one.times_ms.iter().map(|(share, ms)| (100.0 * share, *ms)).collect();
    let name = one.contender.to_string();
    (!points.is_empty()).then(|| Line { name, colour: colour(one.contender), points })
}

/// Draws a bar per contender.
fn draw_rates(results: &Results, file: &Path) -> Drawn {
    let rows = i32::try_from(results.rates.len())?;
    let height = 90 + ROW * rows;
    let root = SVGBackend::new(file, (SIZE.0, u32::try_from(height)?)).into_drawing_area();
    let names = [
        ("Strowger alone", COLOURS[1]),
        ("with Redis", COLOURS[2]),
        ("with PostgreSQL", COLOURS[3]),
        ("with MariaDB", COLOURS[4]),
        ("Kamailio", COLOURS[0]),
    ];
    let caption = "REGISTERs a second at saturation: server and engine share one core";
    let top = head(&root, caption, names.into_iter())?;
    let rate = |one: &super::rates::RateResult| one.full().map_or(0.0, |pace| pace.rate);
    let most = results.rates.iter().map(rate).fold(1.0, f64::max);
    for (row, one) in (0..).zip(&results.rates) {
        let y = top + 6 + ROW * row;
        let length = (rate(one) / most * f64::from(BARS.1 - BARS.0)) as i32;
        let end = BARS.0 + length.max(1);
        let name = font(13).pos(Pos::new(HPos::Right, VPos::Top));
        root.draw(&Text::new(one.contender.to_string(), (BARS.0 - 8, y + 2), name))?;
        root.draw(&Rectangle::new([(BARS.0, y), (BARS.1, y + ROW - 6)], GRID.mix(0.3).filled()))?;
        root.draw(&Rectangle::new([(BARS.0, y), (end, y + ROW - 6)], colour(one.contender).filled()))?;
        root.draw(&Text::new(format!("{:.0}", rate(one)), (BARS.1 + 10, y + 2), font(13)))?;
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::some;
    use super::*;

    #[test]
    fn plots_are_drawn_for_existing_data() {
        let folder = tempfile::tempdir().expect("a folder");
        let results = some();
        assert_eq!(draw(&results, folder.path()).expect("drawn"), ["cluster-rates.svg", "cluster-propagation.svg"]);
        let text = std::fs::read_to_string(folder.path().join("cluster-rates.svg")).expect("it is there");
        assert!(text.contains("78000") && text.contains("Kamailio, MariaDB write-through"), "{text}");
        let none = Results { propagation: Vec::new(), ..results };
        assert_eq!(draw(&none, folder.path()).expect("drawn"), ["cluster-rates.svg"]);
    }
}
