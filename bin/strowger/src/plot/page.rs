//! A self-contained page of plots with zoom, including uPlot.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::chart::{Chart, Shape};
use super::document::{Document, Table};
use super::unit::DisplayUnit;

const UPLOT: &str = include_str!("uplot/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("uplot/uPlot.min.css");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Returns the page as HTML.
pub(crate) fn page(document: &Document, charts: &[&Chart]) -> String {
    let data: Vec<Value> = charts.iter().map(|chart| chart_json(chart)).collect();
    // Data must not close the script element.
    let data = json!(data).to_string().replace('<', "\\u003c");
    let title = escape(&document.title);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <title>{title}</title><style>{UPLOT_STYLE}</style><style>{STYLE}</style></head>\n<body><main>\n<h1>{title}</h1>\n"
    );
    for note in &document.notes {
        // Writing to a String cannot fail.
        let _ = writeln!(html, "<p>{}</p>", escape(note));
    }
    for table in &document.tables {
        html.push_str(&table_html(table));
    }
    html.push_str("<div id=\"charts\"></div>\n");
    if !charts.is_empty() {
        html.push_str("<p class=\"how\">Drag to zoom, double-click to reset.</p>\n");
    }
    let version = env!("CARGO_PKG_VERSION");
    let _ = write!(
        html,
        "<footer>Made by strowger {version}.</footer>\n</main>\n<script>{UPLOT}</script>\n\
         <script>const CHARTS = {data};\n{SCRIPT}</script>\n</body></html>\n"
    );
    html
}

/// Returns all lines over common x values, with gaps for missing values, as required by uPlot.
fn chart_json(chart: &Chart) -> Value {
    let bits: BTreeSet<u64> =
        chart.lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| x.to_bits())).collect();
    // The bit patterns of non-negative numbers sort like the numbers.
    let places: Vec<f64> = bits.into_iter().map(f64::from_bits).collect();
    let mut data: Vec<Value> = vec![json!(places)];
    for line in &chart.lines {
        let mut points = line.points.iter().peekable();
        let values = places.iter().map(|place| {
            let mut value = None;
            while let Some((_, y)) = points.next_if(|(x, _)| x <= place) {
                value = Some(*y);
            }
            value
        });
        data.push(json!(values.collect::<Vec<Option<f64>>>()));
    }
    let lines = chart
        .lines
        .iter()
        .map(|line| json!({ "name": line.name, "dots": line.shape == Shape::Dots, "colour": line.colour }));
    json!({
        "title": chart.title, "across": chart.across, "x": unit(chart.x), "y": unit(chart.y), "log": chart.is_log,
        "acrossLog": chart.is_across_log,
        "lines": lines.collect::<Vec<_>>(), "data": data,
    })
}

fn table_html(table: &Table) -> String {
    let cells = |tag: &str, cells: &[String]| -> String {
        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
    };
    let rows: String = table.rows.iter().map(|row| format!("<tr>{}</tr>\n", cells("td", row))).collect();
    format!(
        "<section class=\"chart\"><h2>{}</h2><div class=\"wide\"><table>\n<tr>{}</tr>\n{rows}</table></div></section>\n",
        escape(&table.title),
        cells("th", &table.head)
    )
}

const fn unit(show: DisplayUnit) -> &'static str {
    match show {
        DisplayUnit::Micros | DisplayUnit::Seconds => "time",
        DisplayUnit::Rate => "rate",
        DisplayUnit::Share => "share",
        DisplayUnit::Count | DisplayUnit::Number | DisplayUnit::Truth => "number",
        DisplayUnit::Bytes => "bytes",
        DisplayUnit::Bits => "bits",
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::chart::Line;

    #[test]
    fn lines_share_x_positions() {
        let lines = vec![
            Line::new("model", vec![(1.0, 10.0), (2.0, 20.0)]),
            Line::dots("</script>", vec![(1.5, 12.0), (2.0, 19.0)]),
        ];
        let chart = Chart {
            title: "wait".to_owned(),
            across: "rate".to_owned(),
            x: DisplayUnit::Rate,
            y: DisplayUnit::Micros,
            is_log: false,
            is_across_log: false,
            lines,
        };
        let value = chart_json(&chart);
        assert_eq!(value["data"], json!([[1.0, 1.5, 2.0], [10.0, null, 20.0], [null, 12.0, 19.0]]));
        let html = page(&Document::of_charts("W < ∞", &[], Vec::new()), &[&chart]);
        assert!(html.contains("<h1>W &lt; ∞</h1>") && html.contains("\\u003c/script>"));
    }
}
