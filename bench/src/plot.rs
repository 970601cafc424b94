//! Common parts of the benchmark plots: size, fonts, colours, and lines over time.

use std::error::Error;
use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Size of a plot in pixels.
pub const SIZE: (u32, u32) = (900, 380);
/// Colour of the grid.
pub const GRID: RGBColor = RGBColor(225, 225, 225);
/// Colours that are distinguishable with red-green colour blindness.
pub const COLOURS: [RGBColor; 5] = [
    RGBColor(230, 130, 0),
    RGBColor(120, 120, 120),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
];
const TEXT: RGBColor = RGBColor(50, 50, 50);

/// Result of drawing. The usual error is a file that cannot be written.
pub type Drawn = Result<(), Box<dyn Error>>;

/// A named series of points.
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Colour of the line.
    pub colour: RGBColor,
    /// Points of the series.
    pub points: Vec<(f64, f64)>,
}

/// Contents of a line plot.
pub struct Lines<'a> {
    /// Caption above the plot.
    pub caption: &'a str,
    /// Formats the labels of the horizontal axis.
    pub across: &'a dyn Fn(f64) -> String,
    /// Formats the labels of the vertical axis.
    pub up: &'a dyn Fn(f64) -> String,
    /// Whether the vertical axis is logarithmic.
    pub is_log: bool,
    /// Series to draw.
    pub lines: &'a [Line],
}

/// Returns the plot font in this size.
#[must_use]
pub fn font(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT)
}

/// Returns the plot font in this size, centred on a point.
#[must_use]
pub fn centred(size: i32, vertical: VPos) -> TextStyle<'static> {
    font(size).pos(Pos::new(HPos::Center, vertical))
}

/// Draws the caption and the legend, in as many rows as needed, and returns the distance of their lower end from the
/// upper edge in pixels.
///
/// # Errors
/// If the file cannot be written.
pub fn head<'n, B: DrawingBackend>(
    root: &DrawingArea<B, Shift>,
    caption: &str,
    names: impl Iterator<Item = (&'n str, RGBColor)>,
) -> Result<i32, Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    root.fill(&WHITE)?;
    root.draw(&Text::new(caption.to_owned(), (70, 12), font(16)))?;
    let (mut x, mut y) = (70, 40);
    for (name, colour) in names {
        let width = 40 + 8 * i32::try_from(name.len()).unwrap_or(0);
        if x > 70 && x + width > i32::try_from(SIZE.0).unwrap_or(i32::MAX) {
            (x, y) = (70, y + 20);
        }
        root.draw(&Rectangle::new([(x, y), (x + 14, y + 14)], colour.filled()))?;
        root.draw(&Text::new(name.to_owned(), (x + 20, y + 1), font(14)))?;
        x += width;
    }
    Ok(y + 24)
}

/// The area of a plot within its axes.
pub type Plane<'a, B> = ChartContext<'a, B, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws the axes and the horizontal grid lines, `below` pixels from the upper edge. Without `across`, which formats the
/// labels of the horizontal axis, there is none, as under bars.
///
/// # Errors
/// If the file cannot be written.
pub fn draw_axes<'a, B: DrawingBackend + 'a>(
    root: &'a DrawingArea<B, Shift>,
    below: i32,
    (x, y): (Range<f64>, Range<f64>),
    across: Option<&dyn Fn(f64) -> String>,
    up: &dyn Fn(f64) -> String,
) -> Result<Plane<'a, B>, Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    let mut chart = ChartBuilder::on(root)
        .margin_top(below)
        .margin_right(20)
        .set_label_area_size(LabelAreaPosition::Left, 70)
        .set_label_area_size(LabelAreaPosition::Bottom, if across.is_some() { 44 } else { 34 })
        .build_cartesian_2d(x, y)?;
    let up = |value: &f64| up(*value);
    let across_label = |value: &f64| across.map_or_else(String::new, |across| across(*value));
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().light_line_style(TRANSPARENT).bold_line_style(GRID).axis_style(GRID);
    mesh.y_labels(6).y_label_formatter(&up);
    match across {
        Some(_) => mesh.x_labels(10).label_style(font(13)).x_label_formatter(&across_label),
        None => mesh.disable_x_axis().y_label_style(font(13)),
    };
    mesh.draw()?;
    Ok(chart)
}

/// Draws a line plot.
///
/// # Errors
/// If the file cannot be written.
pub fn draw_lines(file: &Path, of: &Lines<'_>) -> Drawn {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    let below = head(&root, of.caption, of.lines.iter().map(|line| (line.name.as_str(), line.colour)))?;
    let at = |value: f64| if of.is_log { value.max(0.1).log10() } else { value };
    let points = || of.lines.iter().flat_map(|line| &line.points);
    let last = points().fold(1.0, |x, point| f64::max(x, point.0));
    let highest = points().fold(1e-9, |y, point| f64::max(y, point.1));
    let low = if of.is_log { points().fold(highest, |y, point| f64::min(y, point.1)) } else { 0.0 };
    let range = if of.is_log { at(low / 2.0)..at(highest * 2.0) } else { 0.0..highest * 1.1 };
    let up = |value: f64| (of.up)(if of.is_log { 10_f64.powf(value) } else { value });
    let mut chart = draw_axes(&root, below, (0.0..last, range), Some(of.across), &up)?;
    for line in of.lines {
        let points = line.points.iter().map(|(x, y)| (*x, at(*y)));
        chart.draw_series(LineSeries::new(points, line.colour.stroke_width(2)))?;
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_plots_are_small_and_labelled() {
        let folder = tempfile::tempdir().expect("a folder");
        let points = |scale: f64| (1..200).map(|x| (f64::from(x), f64::from(x % 7 + 1) * scale)).collect();
        let lines = ["one", "two"].map(|name| Line { name: name.to_owned(), colour: COLOURS[0], points: points(2.0) });
        let seconds = |value: f64| format!("{value:.0} s");
        for is_log in [false, true] {
            let file = folder.path().join("lines.svg");
            let of =
                Lines { caption: "Caption", across: &seconds, up: &|value| value.to_string(), is_log, lines: &lines };
            draw_lines(&file, &of).expect("drawn");
            let text = std::fs::read_to_string(file).expect("it is there");
            assert!(text.contains("one") && text.contains("Caption") && text.contains(" s") && text.len() < 60_000);
        }
    }
}
