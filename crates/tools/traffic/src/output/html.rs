//! A run's report as one page that needs nothing else: styles, plots and figures are in it, and no script.

use std::fmt::Write as _;

use super::data::{Confidence, Distribution, IntervalRow, MetricRow, Run, Server};
use super::plot::{Mark, Plot, Scale, Series, Shape, escape};

const STYLE: &str = include_str!("page.css");
/// Bars of a distribution for each factor of ten.
const BARS_PER_DECADE: f64 = 24.0;
/// Times on a linear axis are told apart as long as they differ by less than this factor.
const LINEAR_UP_TO: f64 = 12.0;

/// The page.
#[must_use]
pub fn page(run: &Run) -> String {
    let mut html = String::with_capacity(128 * 1024);
    let name = escape(&run.workload);
    // Writing to a String cannot fail.
    let _ = write!(
        html,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width\"/>\
         <title>{name}: load report</title><style>\n{STYLE}</style></head>\n<body><main>\n<h1>{name}</h1>\n\
         <p class=\"sub\">to <code>{}</code>, arrivals {}, {}, seed {}</p>\n",
        escape(&run.to),
        escape(&run.arrivals),
        seconds(run.elapsed_s),
        run.seed
    );
    warnings(&mut html, run);
    tiles(&mut html, run);
    html.push_str("<div class=\"grid2\">\n");
    card(&mut html, "Load over time, calls a second", load_plot(run));
    card(&mut html, "Latency over time", latency_plot(run));
    card(&mut html, "Distribution of the latency", distribution_plot(run));
    match &run.server {
        Some(server) => card(&mut html, "The server's processors", server_plot(server)),
        None => card(&mut html, "How late the generator was", lateness_plot(run)),
    }
    html.push_str("</div>\n<div class=\"grid2\">\n");
    card(&mut html, "What became of the calls", Some(accounts_table(run)));
    card(&mut html, "RFC 6076", metrics_table(&run.rfc6076));
    card(&mut html, "From requests to answers", answers_table(run));
    card(&mut html, "Messages", messages_table(run));
    if let Some(server) = &run.server {
        card(&mut html, "The server", Some(server_table(server)));
    }
    card(&mut html, "The generator", Some(generator_table(run)));
    if !run.declared.is_empty() {
        let rows = run.declared.iter().map(|(name, value)| (name.as_str(), value.clone()));
        card(&mut html, "Declared parameters", Some(pairs(rows)));
    }
    html.push_str("</div>\n");
    if !run.samples.is_empty() {
        let samples: String = run.samples.iter().map(|sample| format!("<pre>{}</pre>", escape(sample))).collect();
        card(&mut html, &format!("Unexpected messages: the first of {}", run.unexpected), Some(samples));
    }
    let _ = write!(
        html,
        "<footer>strowger load {}. Rates are of the measured phase, behind the warm-up. Times run from the first bit of a \
         request to its answer as the kernel stamped it; histograms are exact to one percent.</footer>\n</main></body></html>\n",
        env!("CARGO_PKG_VERSION")
    );
    html
}

fn warnings(html: &mut String, run: &Run) {
    if let Some(why) = &run.generator.bottleneck {
        let _ = writeln!(html, "<p class=\"warn\"><b>The generator was the bottleneck.</b> {}</p>", escape(why));
    }
    if run.was_stopped {
        html.push_str("<p class=\"warn\"><b>Stopped early.</b> The figures are of what was measured until then.</p>\n");
    }
    if run.server.as_ref().is_some_and(|server| server.is_gone) {
        html.push_str("<p class=\"warn\"><b>The server ended before the run did.</b></p>\n");
    }
}

fn tiles(html: &mut String, run: &Run) {
    html.push_str("<div class=\"tiles\">\n");
    let mut tile = |name: &str, value: String, note: String| {
        let _ = writeln!(
            html,
            "<div class=\"tile\"><span>{name}</span><b>{}</b><small>{}</small></div>",
            escape(&value),
            escape(&note)
        );
    };
    tile("offered", format!("{}/s", number(run.offered_per_s)), format!("{} calls", grouped(run.offered)));
    let plus_minus = run.confidence.get("carried_per_s").map(within).unwrap_or_default();
    tile("carried", format!("{}/s", number(run.carried_per_s)), plus_minus);
    tile("carried of sent", format!("{} %", percent(100.0 * run.carried_share)), lost_and_failed(run));
    if let Some(row) = run.latency() {
        tile("median latency", micros(row.us.p50), format!("{} to {}", row.method, row.answer));
        tile("99th percentile", micros(row.us.p99), format!("longest {}", micros(row.us.max)));
    }
    if let Some(server) = &run.server {
        tile("server CPU", format!("{:.2}", server.processors), "processors".to_owned());
        tile("server CPU a call", micros(server.cpu_us_per_call), format!("{:.1} switches", server.switches_per_call));
    }
    html.push_str("</div>\n");
}

fn within(confidence: &Confidence) -> String {
    let hint = if confidence.is_correlated { "; too short a run for more" } else { "" };
    format!("± {} ({:.0} %){hint}", number(confidence.half_width), 100.0 * confidence.level)
}

fn lost_and_failed(run: &Run) -> String {
    format!("{} lost, {} failed", grouped(run.lost), grouped(run.failed))
}

fn card(html: &mut String, title: &str, body: Option<String>) {
    let Some(body) = body else { return };
    let _ = writeln!(
        html,
        "<section class=\"card\"><h2>{}</h2><div class=\"scroll\">{body}</div></section>",
        escape(title)
    );
}

/// The slices before the last arrival; of a run that is shorter than a slice, all of them.
fn slices(run: &Run) -> Vec<&IntervalRow> {
    let rows = &run.intervals.rows;
    let whole: Vec<_> = rows.iter().filter(|row| row.at_s <= run.elapsed_s + 1e-3).collect();
    if whole.is_empty() { rows.iter().collect() } else { whole }
}

/// The axis of time.
fn time_axis(run: &Run, rows: &[&IntervalRow]) -> Scale {
    let high = rows.last().map_or(run.elapsed_s, |row| row.at_s);
    Scale { low: 0.0, high: high.max(1e-3), is_log: false }
}

/// Tips of all slices.
fn tips(run: &Run, rows: &[&IntervalRow], text: impl Fn(&IntervalRow) -> String) -> Vec<(f64, f64, String)> {
    let width = run.intervals.width_s;
    rows.iter().map(|row| (row.at_s - width, row.at_s, format!("{}\n{}", seconds(row.at_s), text(row)))).collect()
}

fn load_plot(run: &Run) -> Option<String> {
    let rows = slices(run);
    let width = run.intervals.width_s;
    if rows.is_empty() || width <= 0.0 {
        return None;
    }
    let points =
        |of: fn(&IntervalRow) -> u64| rows.iter().map(|row| (row.at_s - width / 2.0, float(of(row)) / width)).collect();
    let highest = rows.iter().map(|row| float(row.offered.max(row.carried).max(row.lost + row.failed)) / width);
    let plot = Plot {
        title: "Calls offered, carried, and lost or failed, a second, over time",
        x: time_axis(run, &rows),
        y: Scale::from_zero(highest),
        x_text: seconds,
        y_text: number,
        x_name: "",
        series: vec![
            Series { name: "carried", colour: 2, shape: Shape::Area, points: points(|row| row.carried) },
            Series { name: "offered", colour: 1, shape: Shape::Dashed, points: points(|row| row.offered) },
            Series {
                name: "lost or failed",
                colour: 3,
                shape: Shape::Line,
                points: points(|row| row.lost + row.failed),
            },
        ],
        marks: Vec::new(),
        tips: tips(run, &rows, |row| {
            format!(
                "offered {}, carried {}, lost {}, failed {}, sent again {}",
                row.offered, row.carried, row.lost, row.failed, row.repeats
            )
        }),
    };
    Some(plot.draw())
}

fn latency_plot(run: &Run) -> Option<String> {
    let rows = slices(run);
    let answered: Vec<_> = rows.iter().filter(|row| row.answered > 0).collect();
    if answered.is_empty() {
        return None;
    }
    let middle = run.intervals.width_s / 2.0;
    let points = |of: fn(&IntervalRow) -> f64| answered.iter().map(|row| (row.at_s - middle, of(row))).collect();
    let values = || answered.iter().flat_map(|row| [row.p50_us, row.p99_us]);
    let log = Scale::log(values());
    let y = if log.high / log.low > LINEAR_UP_TO { log } else { Scale::from_zero(values()) };
    let plot = Plot {
        title: "Percentiles of the latency over time",
        x: time_axis(run, &rows),
        y,
        x_text: seconds,
        y_text: micros,
        x_name: "",
        series: vec![
            Series { name: "p50", colour: 4, shape: Shape::Line, points: points(|row| row.p50_us) },
            Series { name: "p95", colour: 5, shape: Shape::Line, points: points(|row| row.p95_us) },
            Series { name: "p99", colour: 3, shape: Shape::Line, points: points(|row| row.p99_us) },
        ],
        marks: Vec::new(),
        tips: tips(run, &rows, |row| {
            format!(
                "p50 {}, p95 {}, p99 {} of {}",
                micros(row.p50_us),
                micros(row.p95_us),
                micros(row.p99_us),
                grouped(row.answered)
            )
        }),
    };
    Some(plot.draw())
}

fn distribution_plot(run: &Run) -> Option<String> {
    let main = run.latency()?;
    let is_main = |row: &&Distribution| row.method == main.method && row.answer == main.answer;
    let values = &run.distributions.iter().find(is_main)?.us;
    let x = Scale::log(values.iter().map(|(us, _)| *us));
    let (first, step) = (x.low.ln(), 10_f64.ln() / BARS_PER_DECADE);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few hundred bars")]
    let bar_of = |us: f64| ((us.max(x.low).ln() - first) / step) as usize;
    let mut bars = vec![0; bar_of(x.high) + 1];
    for (us, count) in values {
        if let Some(bar) = bars.get_mut(bar_of(*us)) {
            *bar += count;
        }
    }
    let all = float(bars.iter().sum::<u64>().max(1));
    let edge = |bar: usize| (first + step * float(bar as u64)).exp().min(x.high);
    let shares: Vec<f64> = bars.iter().map(|count| 100.0 * float(*count) / all).collect();
    let mut points: Vec<_> = shares.iter().enumerate().map(|(bar, share)| (edge(bar), *share)).collect();
    points.push((x.high, shares.last().copied().unwrap_or(0.0)));
    let tips = shares.iter().enumerate().map(|(bar, share)| {
        let (from, to) = (edge(bar), edge(bar + 1));
        (from, to, format!("{} to {}\n{} %", micros(from), micros(to), percent(*share)))
    });
    let names: Vec<_> = [("p50", main.us.p50), ("p95", main.us.p95), ("p99", main.us.p99)]
        .map(|(name, us)| (format!("{name} {}", micros(us)), us))
        .into();
    let name = format!("share of calls, {} to {}", main.method, main.answer);
    let plot = Plot {
        title: "How often which latency occurred",
        x,
        y: Scale::from_zero(shares.iter().copied()),
        x_text: micros,
        y_text: |share| format!("{} %", number(share)),
        x_name: "logarithmic",
        series: vec![Series { name: &name, colour: 6, shape: Shape::Bars, points }],
        marks: names.iter().map(|(name, at)| Mark { name, at: *at }).collect(),
        tips: tips.collect(),
    };
    Some(plot.draw())
}

fn server_plot(server: &Server) -> Option<String> {
    let last = server.rows.last()?;
    let points = |of: fn(&super::ServerRow) -> f64| server.rows.iter().map(|row| (row.at_s, of(row))).collect();
    let mut from = 0.0;
    let tips = server.rows.iter().map(|row| {
        let text = format!(
            "{}\nuser {:.2}, kernel {:.2} processors\n{} MiB, {} switches/s, {} interrupts/s",
            seconds(row.at_s),
            row.user,
            row.system,
            row.resident_bytes >> 20,
            number(row.voluntary_per_s + row.involuntary_per_s),
            number(row.interrupts_per_s)
        );
        (std::mem::replace(&mut from, row.at_s), row.at_s, text)
    });
    let tips = tips.collect();
    let plot = Plot {
        title: "Processors that the server kept busy over time",
        x: Scale { low: 0.0, high: last.at_s.max(1e-3), is_log: false },
        y: Scale::from_zero(server.rows.iter().map(|row| row.user + row.system)),
        x_text: seconds,
        y_text: |value| format!("{value:.2}"),
        x_name: "",
        series: vec![
            Series { name: "all", colour: 2, shape: Shape::Area, points: points(|row| row.user + row.system) },
            Series { name: "in the kernel", colour: 5, shape: Shape::Area, points: points(|row| row.system) },
        ],
        marks: Vec::new(),
        tips,
    };
    Some(plot.draw())
}

fn lateness_plot(run: &Run) -> Option<String> {
    let rows = slices(run);
    let points: Vec<_> =
        rows.iter().filter(|row| row.late_p99_us > 0.0).map(|row| (row.at_s, row.late_p99_us)).collect();
    if points.is_empty() {
        return None;
    }
    let plot = Plot {
        title: "How late calls began, over time",
        x: time_axis(run, &rows),
        y: Scale::from_zero(points.iter().map(|(_, us)| *us)),
        x_text: seconds,
        y_text: micros,
        x_name: "",
        series: vec![Series { name: "p99 of the lateness", colour: 6, shape: Shape::Area, points }],
        marks: Vec::new(),
        tips: Vec::new(),
    };
    Some(plot.draw())
}

/// A table of names and values.
fn pairs<'a>(rows: impl Iterator<Item = (&'a str, String)>) -> String {
    let rows: String =
        rows.map(|(name, value)| format!("<tr><td>{}</td><td>{}</td></tr>", escape(name), escape(&value))).collect();
    format!("<table>{rows}</table>")
}

fn accounts_table(run: &Run) -> String {
    let accounts = [
        ("offered", run.offered),
        ("kept back by limits of the generator", run.refused),
        ("sent", run.sent),
        ("carried", run.carried),
        ("lost: no answer", run.lost),
        ("failed", run.failed),
        ("unfinished at the end", run.unfinished),
    ];
    let rows = accounts.into_iter().map(|(name, count)| (name, grouped(count)));
    let failures = run.failures.iter().map(|(why, count)| (why.as_str(), grouped(*count)));
    pairs(rows.chain(failures))
}

fn metrics_table(rows: &[MetricRow]) -> Option<String> {
    let mut html =
        "<table><tr><th>metric</th><th></th><th>value</th><th>p50</th><th>p99</th><th>of</th></tr>".to_owned();
    let has_any = |row: &&MetricRow| row.value.is_some();
    for row in rows.iter().filter(has_any) {
        let digits = |value: f64| if row.unit == "%" { percent(value) } else { number(value) };
        let cell = |value: Option<f64>| value.map(digits).unwrap_or_default();
        let _ = write!(
            html,
            "<tr><td>{}</td><td class=\"text\">{} (§{})</td><td>{} {}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&row.name),
            escape(&row.title),
            escape(&row.section),
            cell(row.value),
            escape(&row.unit),
            cell(row.p50),
            cell(row.p99),
            row.count.map(grouped).unwrap_or_default()
        );
    }
    html.push_str("</table>");
    rows.iter().any(|row| has_any(&row)).then_some(html)
}

fn answers_table(run: &Run) -> Option<String> {
    let mut html = "<table><tr><th>request</th><th>answer</th><th>count</th><th>mean</th><th>p50</th><th>p95</th><th>p99</th><th>longest</th></tr>".to_owned();
    for row in &run.answers {
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td>",
            escape(&row.method),
            escape(&row.answer),
            grouped(row.us.count)
        );
        for us in [row.us.mean, row.us.p50, row.us.p95, row.us.p99, row.us.max] {
            let _ = write!(html, "<td>{}</td>", micros(us));
        }
        html.push_str("</tr>");
    }
    html.push_str("</table>");
    (!run.answers.is_empty()).then_some(html)
}

fn messages_table(run: &Run) -> Option<String> {
    let names: std::collections::BTreeSet<&String> =
        run.messages_sent.keys().chain(run.messages_received.keys()).collect();
    let mut html = "<table><tr><th>message</th><th>sent</th><th>received</th></tr>".to_owned();
    for name in &names {
        let of = |map: &std::collections::BTreeMap<String, u64>| {
            map.get(*name).map(|count| grouped(*count)).unwrap_or_default()
        };
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(name),
            of(&run.messages_sent),
            of(&run.messages_received)
        );
    }
    let _ = write!(
        html,
        "<tr><td>again</td><td>{}</td><td>{}</td></tr></table>",
        grouped(run.repeats_sent),
        grouped(run.repeats_received)
    );
    (!names.is_empty()).then_some(html)
}

fn server_table(server: &Server) -> String {
    let drops = server.drops.map_or_else(|| "not visible".to_owned(), grouped);
    let faults: u64 = server.rows.iter().map(|row| row.major_faults).sum();
    let others: u64 = server.rows.iter().map(|row| row.machine_drops).sum();
    let mean = |of: fn(&super::ServerRow) -> f64| {
        server.rows.iter().map(of).sum::<f64>() / float(server.rows.len().max(1) as u64)
    };
    let rows = [
        ("process", format!("{} ({})", server.name, server.pid)),
        ("processors", format!("{:.3}", server.processors)),
        ("CPU time a call", micros(server.cpu_us_per_call)),
        ("context switches a call", format!("{:.2}", server.switches_per_call)),
        ("memory at most", format!("{:.1} MiB", float(server.peak_bytes) / 1_048_576.0)),
        ("datagrams it did not fetch in time", drops),
        ("such datagrams of all sockets", grouped(others)),
        ("page faults to the disk", grouped(faults)),
        ("context switches it had to make", format!("{}/s", number(mean(|row| row.involuntary_per_s)))),
        ("interrupts of the machine", format!("{}/s", number(mean(|row| row.interrupts_per_s)))),
        ("soft interrupts of the machine", format!("{}/s", number(mean(|row| row.soft_interrupts_per_s)))),
    ];
    pairs(rows.into_iter())
}

fn generator_table(run: &Run) -> String {
    let generator = &run.generator;
    let rows = [
        ("calls began late: median", micros(generator.lateness_us.p50)),
        ("calls began late: 99th percentile", micros(generator.lateness_us.p99)),
        ("calls began late: longest", micros(generator.lateness_us.max)),
        ("CPU time a call", micros(generator.cpu_us_per_call)),
        ("datagrams it did not fetch in time", grouped(generator.kernel_drops)),
        ("messages it could not send", grouped(generator.send_failures)),
    ];
    pairs(rows.into_iter())
}

/// Microseconds in the unit that suits them.
fn micros(us: f64) -> String {
    match us {
        us if us <= 0.0 => "0".to_owned(),
        us if us < 1e3 => format!("{} µs", number(us)),
        us if us < 1e6 => format!("{} ms", number(us / 1e3)),
        us => format!("{} s", number(us / 1e6)),
    }
}

/// Seconds in the unit that suits them.
fn seconds(s: f64) -> String {
    match s {
        s if s < 120.0 => format!("{} s", number(s)),
        s if s < 7_200.0 => format!("{} min", number(s / 60.0)),
        s => format!("{} h", number(s / 3_600.0)),
    }
}

/// Three digits that say something, or all before the point.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let part = part.trim_end_matches('0');
    let whole = whole.parse::<u64>().map_or_else(|_| whole.to_owned(), grouped);
    if part.is_empty() { whole } else { format!("{whole}.{part}") }
}

/// Percent, where what is missing to a hundred matters.
fn percent(value: f64) -> String {
    let text = if value > 99.0 && value < 100.0 { format!("{value:.4}") } else { format!("{value:.2}") };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// With a thin gap every three digits.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
const fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use quick_xml::Reader;
    use quick_xml::events::Event;

    use super::super::parts::example;
    use super::*;

    /// The names of all elements, and that they are nested as they must be.
    fn elements(html: &str) -> Vec<String> {
        let mut reader = Reader::from_str(html);
        reader.config_mut().check_end_names = true;
        let (mut names, mut depth) = (Vec::new(), 0);
        loop {
            match reader.read_event().expect("well-formed") {
                Event::Start(tag) => {
                    depth += 1;
                    names.push(tag.name().as_ref().to_string());
                }
                Event::Empty(tag) => names.push(tag.name().as_ref().to_string()),
                Event::End(_) => depth -= 1,
                Event::Eof => break,
                _ => {}
            }
        }
        assert_eq!(depth, 0);
        names
    }

    #[test]
    fn the_page_is_well_formed_and_needs_nothing_else() {
        let html = page(&Run::from_json(&example(10, 20)).expect("a report"));
        let names = elements(&html);
        assert_eq!(names.iter().filter(|name| *name == "svg").count(), 4, "load, latency, distribution, CPU");
        for wanted in ["script", "link", "img", "iframe", "object"] {
            assert!(!names.iter().any(|name| name == wanted), "{wanted}");
        }
        for outside in ["http:", "https:", "//", "url(", "@import", "src=", "href="] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn the_page_says_what_was_measured() {
        let html = page(&Run::from_json(&example(10, 20)).expect("a report"));
        for wanted in [
            "proxy-200",
            "poisson at 10/s",
            "SER",
            "99.8",
            "refused with 503",
            "strowger (4711)",
            "0.30",
            "p99",
            "sigma",
        ] {
            assert!(html.contains(wanted), "{wanted}");
        }
        assert!(html.contains("SIP/2.0 200 &lt;b&gt;&amp;&quot;OK&quot;&lt;/b&gt;"), "samples are no markup");
        assert!(!html.contains("NaN") && !html.contains("inf"), "no number without a value");
    }

    #[test]
    fn a_page_of_nothing_is_a_page() {
        let html = page(&Run::default());
        assert!(elements(&html).contains(&"table".to_owned()));
        assert!(!html.contains("NaN"));
        let report = serde_json::json!({ "offered": 3, "carried": 0, "workload": "<x>", "was_stopped": true,
            "generator": { "bottleneck": "too <slow>" } });
        let html = page(&Run::from_json(&report).expect("a short one"));
        elements(&html);
        assert!(
            html.contains("Stopped early") && html.contains("too &lt;slow&gt;") && html.contains("<h1>&lt;x&gt;</h1>")
        );
    }

    #[test]
    fn numbers_are_short_and_true() {
        let shown = [
            number(0.0),
            number(1.5),
            number(42.04),
            number(1_234_567.8),
            micros(340.0),
            micros(1_234.0),
            micros(2.5e6),
        ];
        assert_eq!(shown, ["0", "1.5", "42", "1\u{202f}234\u{202f}568", "340 µs", "1.23 ms", "2.5 s"]);
        assert_eq!([percent(100.0), percent(99.9985), percent(33.333)], ["100", "99.9985", "33.33"]);
        assert_eq!([seconds(90.0), seconds(600.0), seconds(9_000.0)], ["90 s", "10 min", "2.5 h"]);
    }
}
