//! The plot: each architecture's speed relative to the event-based one, here and in the paper, and its context
//! switches.

use std::fmt::Write as _;

use super::load::{Figures, Load};
use super::scenario::Scenario;
use super::server::Subject;
use super::{ONE_CORE, Row, paper};
use crate::shells::Architecture;

const WIDTH: f64 = 980.0;
const PANEL: f64 = 470.0;
const LABELS: f64 = 178.0;
const BARS: f64 = 214.0;
const STEP: f64 = 30.0;
const TOP: f64 = 66.0;
const HEAD: f64 = 30.0;
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#24292f}.t{font-weight:600;font-size:15px}.h{font-weight:600}\
    .n{fill:#57606a;font-size:12px}.a{fill:#3b82c4}.b{fill:#d9822b}.g{stroke:#8c959f;stroke-dasharray:3 3}\
    .p{fill:#fff;stroke:#24292f;stroke-width:1.6}.q{fill:#24292f}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}.n{fill:#9198a1}.a{fill:#58a6e0}.b{fill:#e39a4b}\
    .p{fill:#0d1117;stroke:#e6edf3}.q{fill:#e6edf3}}";

/// One row of a panel.
struct Bar {
    name: String,
    value: f64,
    text: String,
    /// The paper's values on one processor and on four.
    paper: [Option<f64>; 2],
}

/// Draws the plot as SVG.
pub(super) fn draw(rows: &[Row]) -> String {
    let bars = |scenario, of: fn(&Row, f64) -> (f64, String), with_paper| bars(rows, scenario, of, with_paper);
    let panels = [
        ("Speed, stateless", "a", bars(Scenario::Stateless, speed, true)),
        ("Speed, stateful", "a", bars(Scenario::Stateful, speed, true)),
        ("Context switches a call, stateless", "b", bars(Scenario::Stateless, switches, false)),
        ("Context switches a call, stateful", "b", bars(Scenario::Stateful, switches, false)),
    ];
    let lines = panels.iter().map(|(.., bars)| bars.len()).max().unwrap_or(0) as f64;
    let panel = HEAD + lines * STEP + 26.0;
    let height = TOP + 2.0 * panel + 8.0;
    // Writing to a String cannot fail.
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"Speed and context switches of seven architectures of a SIP server\"><style>{STYLE}</style>\
         <text class=\"t\" x=\"12\" y=\"24\">One SIP server, seven architectures, one core</text>"
    );
    draw_legend(&mut svg);
    for (index, (title, colour, bars)) in panels.iter().enumerate() {
        let (x, y) = (12.0 + (PANEL + 16.0) * (index % 2) as f64, TOP + panel * (index / 2) as f64);
        draw_panel(&mut svg, (x, y), title, colour, bars);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_legend(svg: &mut String) {
    let _ = write!(
        svg,
        "<rect class=\"a\" x=\"12\" y=\"36\" width=\"12\" height=\"12\"/><text class=\"n\" x=\"30\" y=\"46\">here, event-based = 1</text>\
         {}<text class=\"n\" x=\"200\" y=\"46\">the paper, one Pentium 4</text>\
         {}<text class=\"n\" x=\"386\" y=\"46\">the paper, four Pentiums</text>",
        diamond("p", 190.0, 42.0),
        diamond("q", 376.0, 42.0)
    );
}

fn draw_panel(svg: &mut String, (x, y): (f64, f64), title: &str, colour: &str, bars: &[Bar]) {
    let values = bars.iter().flat_map(|bar| bar.paper.into_iter().flatten().chain([bar.value]));
    let highest = values.filter(|value| value.is_finite()).fold(f64::MIN_POSITIVE, f64::max);
    let at = |value: f64| x + LABELS + BARS * value.max(0.0) / highest;
    let _ = write!(svg, "<text class=\"h\" x=\"{x}\" y=\"{}\">{title}</text>", y + 14.0);
    let bottom = y + HEAD + STEP * bars.len() as f64;
    if colour == "a" && !bars.is_empty() {
        let one = at(1.0);
        let _ = write!(
            svg,
            "<line class=\"g\" x1=\"{one:.1}\" x2=\"{one:.1}\" y1=\"{}\" y2=\"{bottom}\"/>",
            y + HEAD - 4.0
        );
    }
    for (index, bar) in bars.iter().enumerate() {
        let middle = y + HEAD + STEP * (index as f64 + 0.5) - 2.0;
        let value = if bar.value.is_finite() { bar.value } else { 0.0 };
        let end = bar.paper.into_iter().flatten().chain([value]).fold(0.0, f64::max);
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect class=\"{colour}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"18\" rx=\"2\"/>\
             <text class=\"n\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x + LABELS - 10.0,
            middle + 4.0,
            bar.name,
            at(0.0),
            middle - 9.0,
            (at(value) - at(0.0)).max(1.0),
            at(end) + 10.0,
            middle + 4.0,
            bar.text
        );
        for (value, class) in bar.paper.iter().zip(["p", "q"]) {
            if let Some(value) = value {
                svg.push_str(&diamond(class, at(*value), middle));
            }
        }
    }
}

fn diamond(class: &str, x: f64, y: f64) -> String {
    format!("<path class=\"{class}\" d=\"M{:.1} {y:.1}l5.5 -5.5l5.5 5.5l-5.5 5.5z\"/>", x - 5.5)
}

fn bars(rows: &[Row], scenario: Scenario, of: fn(&Row, f64) -> (f64, String), with_paper: bool) -> Vec<Bar> {
    let full = |row: &&Row| {
        row.scenario == scenario
            && row.cores == ONE_CORE
            && matches!(row.load, Load::Saturation(_))
            && !row.runs.is_empty()
    };
    let is_base = |row: &&Row| row.subject == Subject::Shell(Architecture::EventBased);
    let base = rows.iter().filter(full).find(is_base).map_or(f64::NAN, |row| row.median(|run: &Figures| run.rate));
    let bar = |row: &Row| {
        let Subject::Shell(architecture) = row.subject else { return None };
        let (value, text) = of(row, base);
        let theirs = |machine| paper::relative(scenario, architecture, machine).filter(|_| with_paper);
        Some(Bar { name: architecture.to_string(), value, text, paper: [theirs(0), theirs(1)] })
    };
    rows.iter().filter(full).filter_map(bar).collect()
}

fn speed(row: &Row, base: f64) -> (f64, String) {
    let rate = row.median(|run| run.rate);
    (rate / base, format!("{rate:.0}/s"))
}

fn switches(row: &Row, _: f64) -> (f64, String) {
    let switches = row.median(|run| run.switches);
    (switches, format!("{switches:.1}"))
}
