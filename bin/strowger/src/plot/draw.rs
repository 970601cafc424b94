//! Plots as files: SVG, or a page with zoom.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::chart::{Chart, Line, Shape};
use super::document::Document;
use super::page::page;
use crate::failure::Failure;

/// Width of a picture and height of each plot, in pixels.
const SIZE: (u32, u32) = (900, 360);
const GRID: RGBColor = RGBColor(225, 225, 225);
const TEXT: RGBColor = RGBColor(50, 50, 50);
/// Colours suitable for colour-blind readers (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 130, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(120, 120, 120),
    RGBColor(0, 0, 0),
];

type DrawResult = Result<(), Box<dyn Error>>;

/// Format of a file of plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileFormat {
    /// A picture.
    Svg,
    /// A self-contained page with zoom.
    Html,
}

/// Writes plots in the format given by the file extension.
pub(crate) fn draw(file: &Path, document: &Document) -> Result<(), Failure> {
    let kind = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let format = match kind {
        "svg" => FileFormat::Svg,
        "html" | "htm" => FileFormat::Html,
        _ => {
            return Err(Failure::Usage(format!(
                "{}: plots are .svg or .html; use one of these extensions",
                file.display()
            )));
        }
    };
    draw_as(format, file, document)
}

/// Writes plots in a format.
pub(crate) fn draw_as(format: FileFormat, file: &Path, document: &Document) -> Result<(), Failure> {
    let charts: Vec<&Chart> = document.charts.iter().filter(|chart| !chart.is_empty()).collect();
    if charts.is_empty() && (format == FileFormat::Svg || document.tables.is_empty()) {
        return Err(Failure::No("there is nothing to plot: no point has a result".to_owned()));
    }
    let text = match format {
        FileFormat::Svg => svg(&charts).map_err(|error| Failure::No(format!("the plot cannot be drawn: {error}")))?,
        FileFormat::Html => page(document, &charts),
    };
    std::fs::write(file, text).map_err(|error| Failure::No(format!("{} cannot be written: {error}", file.display())))
}

fn svg(charts: &[&Chart]) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    let count = u32::try_from(charts.len())?;
    {
        let root = SVGBackend::with_string(&mut text, (SIZE.0, SIZE.1 * count)).into_drawing_area();
        root.fill(&WHITE)?;
        for (area, chart) in root.split_evenly((charts.len(), 1)).iter().zip(charts) {
            draw_chart(area, chart)?;
        }
        root.present()?;
    }
    Ok(text)
}

fn font(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT)
}

fn colour(line: usize) -> RGBColor {
    COLOURS.get(line % COLOURS.len()).copied().unwrap_or(TEXT)
}

fn draw_chart<B: DrawingBackend>(area: &DrawingArea<B, Shift>, chart: &Chart) -> DrawResult
where
    B::ErrorType: 'static,
{
    area.draw(&Text::new(chart.title.clone(), (70, 12), font(16)))?;
    draw_legend(area, &chart.lines)?;
    let scaled = |is_log: bool, value: f64| if is_log { value.max(f64::MIN_POSITIVE).log10() } else { value };
    // On a logarithmic axis the lines are at 10^0.2 and the like, for which two digits are enough.
    let unscaled = |is_log: bool, value: f64| if is_log { two_digits(10_f64.powf(value)) } else { value };
    let (at, across) = (|y: f64| scaled(chart.is_log, y), |x: f64| scaled(chart.is_across_log, x));
    let (low, high) = chart.range();
    let high = if high > 0.0 { high } else { 1.0 };
    let range = if chart.is_log { at(low / 1.5)..at(high * 1.5) } else { 0.0..high * 1.08 };
    let (first, last) = chart.extent();
    let mut plane = ChartBuilder::on(area)
        .margin_top(64)
        .margin_right(24)
        .set_label_area_size(LabelAreaPosition::Left, 90)
        .set_label_area_size(LabelAreaPosition::Bottom, 52)
        .build_cartesian_2d(across(first)..across(last), range)?;
    plane
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .y_labels(6)
        .x_labels(8)
        .label_style(font(13))
        .x_desc(chart.across.clone())
        .y_label_formatter(&|value| chart.y.text(unscaled(chart.is_log, *value)))
        .x_label_formatter(&|value| chart.x.text(unscaled(chart.is_across_log, *value)))
        .draw()?;
    for (index, line) in chart.lines.iter().enumerate() {
        let points = line.points.iter().map(|(x, y)| (across(*x), at(*y)));
        let colour = colour(line.colour.unwrap_or(index));
        match line.shape {
            Shape::Line => plane.draw_series(LineSeries::new(points, colour.stroke_width(2)))?,
            Shape::Dots => plane.draw_series(points.map(|point| Circle::new(point, 4, colour.filled())))?,
        };
    }
    Ok(())
}

fn two_digits(value: f64) -> f64 {
    format!("{value:.1e}").parse().unwrap_or(value)
}

fn draw_legend<B: DrawingBackend>(area: &DrawingArea<B, Shift>, lines: &[Line]) -> DrawResult
where
    B::ErrorType: 'static,
{
    if lines.len() < 2 {
        return Ok(());
    }
    let mut x = 70;
    for (index, line) in lines.iter().enumerate() {
        let colour = colour(line.colour.unwrap_or(index));
        match line.shape {
            Shape::Line => area.draw(&Rectangle::new([(x, 43), (x + 14, 47)], colour.filled()))?,
            Shape::Dots => area.draw(&Circle::new((x + 7, 45), 4, colour.filled()))?,
        }
        area.draw(&Text::new(line.name.clone(), (x + 20, 39), font(13)))?;
        x += 40 + 7 * i32::try_from(line.name.chars().count()).unwrap_or(0);
    }
    Ok(())
}
