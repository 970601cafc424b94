//! The pictures: how many users each server carries, what a sweep takes of a core, and how long a growing table takes for one
//! change.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Their size in pixels.
const SIZE: (u32, u32) = (900, 380);
const TEXT: RGBColor = RGBColor(50, 50, 50);
const GRID: RGBColor = RGBColor(225, 225, 225);
/// Colours that people who see no red or green tell apart.
const COLOURS: [RGBColor; 3] = [RGBColor(230, 130, 0), RGBColor(120, 120, 120), RGBColor(0, 114, 178)];

type Drawn = Result<(), Box<dyn Error>>;

/// Points with a name.
pub struct Line {
    /// Whose.
    pub name: String,
    /// They.
    pub points: Vec<(f64, f64)>,
}

/// What a picture of lines shows.
pub struct Lines<'a> {
    /// Above it.
    pub caption: &'a str,
    /// What stands behind the numbers of its axis below.
    pub unit: &'a str,
    /// As far up as many times more.
    pub is_log: bool,
    /// What is drawn.
    pub lines: &'a [Line],
}

/// Bars that stand together, with a name.
pub struct Group {
    /// Below them.
    pub name: String,
    /// Their heights.
    pub bars: Vec<f64>,
}

fn font(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT)
}

fn legend<'n, B: DrawingBackend>(
    root: &DrawingArea<B, plotters::coord::Shift>,
    names: impl Iterator<Item = &'n str>,
) -> Drawn
where
    B::ErrorType: 'static,
{
    let mut x = 70;
    for (name, colour) in names.zip(COLOURS) {
        root.draw(&Rectangle::new([(x, 40), (x + 14, 54)], colour.filled()))?;
        root.draw(&Text::new(name.to_owned(), (x + 20, 41), font(14)))?;
        x += 40 + 8 * i32::try_from(name.len()).unwrap_or(0);
    }
    Ok(())
}

/// Draws up to three lines.
///
/// # Errors
/// When the file cannot be written.
pub fn draw_lines(file: &Path, of: &Lines<'_>) -> Drawn {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    root.draw(&Text::new(of.caption.to_owned(), (70, 12), font(16)))?;
    legend(&root, of.lines.iter().map(|line| line.name.as_str()))?;
    let at = |value: f64| if of.is_log { value.max(0.1).log10() } else { value };
    let points = || of.lines.iter().flat_map(|line| &line.points);
    let last = points().fold(1.0, |x, point| f64::max(x, point.0));
    let highest = points().fold(1e-9, |y, point| f64::max(y, point.1));
    let low = if of.is_log { points().fold(highest, |y, point| f64::min(y, point.1)) } else { 0.0 };
    let range = if of.is_log { at(low / 2.0)..at(highest * 2.0) } else { 0.0..highest * 1.1 };
    let mut chart = ChartBuilder::on(&root)
        .margin_top(64)
        .margin_right(20)
        .set_label_area_size(LabelAreaPosition::Left, 70)
        .set_label_area_size(LabelAreaPosition::Bottom, 44)
        .build_cartesian_2d(0.0..last, range)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .y_labels(6)
        .x_labels(10)
        .label_style(font(13))
        .y_label_formatter(&|value| short(if of.is_log { 10_f64.powf(*value) } else { *value }))
        .x_label_formatter(&|value| format!("{}{}", short(*value), of.unit))
        .draw()?;
    for (line, colour) in of.lines.iter().zip(COLOURS) {
        let points = line.points.iter().map(|(x, y)| (*x, at(*y)));
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    root.present()?;
    Ok(())
}

/// Draws groups of up to three bars, as `names` says whose they are.
///
/// # Errors
/// When the file cannot be written.
pub fn draw_bars(file: &Path, caption: &str, names: &[&str], groups: &[Group]) -> Drawn {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    root.draw(&Text::new(caption.to_owned(), (70, 12), font(16)))?;
    legend(&root, names.iter().copied())?;
    let highest = groups.iter().flat_map(|group| &group.bars).copied().fold(1e-9, f64::max);
    let mut chart = ChartBuilder::on(&root)
        .margin_top(64)
        .margin_right(20)
        .set_label_area_size(LabelAreaPosition::Left, 70)
        .set_label_area_size(LabelAreaPosition::Bottom, 34)
        .build_cartesian_2d(0.0..groups.len() as f64, 0.0..highest * 1.12)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .y_labels(6)
        .y_label_style(font(13))
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    let centred = |size, vertical| font(size).pos(Pos::new(HPos::Center, vertical));
    for (index, group) in groups.iter().enumerate() {
        let width = 0.8 / group.bars.len().max(1) as f64;
        for (place, (height, colour)) in group.bars.iter().zip(COLOURS).enumerate() {
            let left = index as f64 + 0.1 + width * place as f64;
            let right = left + width * 0.92;
            chart.draw_series([Rectangle::new([(left, 0.0), (right, *height)], colour.filled())])?;
            let (x, y) = chart.plotting_area().map_coordinate(&(f64::midpoint(left, right), *height));
            root.draw(&Text::new(short(*height), (x, y - 3), centred(12, VPos::Bottom)))?;
        }
        let (x, y) = chart.plotting_area().map_coordinate(&(index as f64 + 0.5, 0.0));
        root.draw(&Text::new(group.name.clone(), (x, y + 8), centred(11, VPos::Top)))?;
    }
    root.present()?;
    Ok(())
}

/// For people: with few digits.
#[must_use]
pub fn short(value: f64) -> String {
    match value {
        _ if value >= 999.5e3 => format!("{:.2} M", value / 1e6),
        _ if value >= 9_995.0 => format!("{:.0} k", value / 1e3),
        _ if value >= 99.5 || value.fract().abs() < 1e-9 => format!("{value:.0}"),
        _ if value >= 0.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let short_ones = [0.0, 0.254, 1.25, 45.0, 312.4, 25_300.0, 4_321_000.0].map(short);
        assert_eq!(short_ones, ["0", "0.25", "1.2", "45", "312", "25 k", "4.32 M"]);
    }

    #[test]
    fn pictures_are_small_and_say_whose_they_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let points = |scale: f64| (1..200).map(|x| (f64::from(x), f64::from(x % 7 + 1) * scale)).collect();
        let lines = ["one", "two"].map(|name| Line { name: name.to_owned(), points: points(2.0) });
        for is_log in [false, true] {
            let file = folder.path().join("lines.svg");
            draw_lines(&file, &Lines { caption: "Caption", unit: " s", is_log, lines: &lines }).expect("drawn");
            let text = std::fs::read_to_string(file).expect("it is there");
            assert!(text.contains("one") && text.contains("Caption") && text.len() < 60_000);
        }
        let file = folder.path().join("bars.svg");
        let groups = [Group { name: "a".to_owned(), bars: vec![1.0, 2.0] }];
        draw_bars(&file, "Caption", &["one", "two"], &groups).expect("drawn");
        assert!(std::fs::read_to_string(file).expect("it is there").contains("two"));
    }
}
