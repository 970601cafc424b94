//! Plots of packet times: the distribution of each part by message type, and the parts over time.

use strowger_timing::{Distribution, MessageReport, Part, TimingReport};

use super::finding::findings;
use super::text::{facts, headline, tables};
use super::timeline::{TimePoint, Timeline};
use crate::plot::{Chart, DisplayUnit, Document, Line};

/// Maximum number of message types in a plot that can be told apart.
const MAX_LINES: usize = 8;

/// Returns the page of a report.
pub(super) fn document(report: &TimingReport, timeline: &Timeline) -> Document {
    let facts = facts(report).into_iter().map(|fact| labelled(&fact));
    let notes = std::iter::once(headline(report)).chain(findings(report)).chain(facts);
    let mut charts: Vec<Chart> = Part::ALL.into_iter().filter_map(|part| distribution(report, part)).collect();
    charts.extend(over_time(timeline));
    Document {
        title: format!("Where the time of a packet goes: {}", report.program),
        notes: notes.chain(report.notes.iter().cloned()).collect(),
        tables: tables(report),
        charts,
    }
}

/// Returns the cumulative distribution of a part, with a line for each of the most frequent message types.
fn distribution(report: &TimingReport, part: Part) -> Option<Chart> {
    let times = |row: &MessageReport| -> Option<Distribution> {
        row.parts.get(part.key()).filter(|times| times.histogram.len() > 1).cloned()
    };
    let mut rows: Vec<(&MessageReport, Distribution)> =
        report.messages.iter().filter_map(|row| Some((row, times(row)?))).collect();
    rows.sort_by_key(|(row, _)| std::cmp::Reverse(row.packets));
    rows.truncate(MAX_LINES);
    // The order of the tables.
    rows.sort_by_key(|(row, _)| report.messages.iter().position(|other| other.message == row.message));
    if rows.is_empty() {
        rows.push((&report.all, times(&report.all)?));
    }
    Some(Chart {
        title: format!("{}, {}: share of packets within a time", part.name(), meaning(part)),
        across: part.name().to_owned(),
        x: DisplayUnit::Micros,
        y: DisplayUnit::Share,
        is_log: false,
        is_across_log: true,
        lines: rows.iter().map(|(row, times)| Line::new(&row.message, cumulative(times))).collect(),
    })
}

/// Returns a line of a column of names and one of texts as a sentence.
fn labelled(fact: &str) -> String {
    fact.split_once("  ").map_or_else(|| fact.to_owned(), |(name, text)| format!("{name}: {}", text.trim_start()))
}

/// Says what a part is, for readers who do not know the names.
const fn meaning(part: Part) -> &'static str {
    match part {
        Part::Stack => "from the network device to the socket's queue",
        Part::SocketQueue => "in the socket's queue",
        Part::WakeUp => "until the sleeping receiver runs",
        Part::Copy => "from the queue to the program",
        Part::Receive => "from the network device to the program",
        Part::ReceiveBatch => "waiting for packets received together with it",
        Part::Common => "in the program, what all messages have in common",
        Part::Specific => "in the program, what depends on the message",
        Part::Application => "in the program",
        Part::SendBatch => "waiting for packets sent together with it",
        Part::Send => "from the send call to the network device",
        Part::SendCall => "the whole send call",
    }
}

/// Returns the share of values up to each bound, s.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn cumulative(times: &Distribution) -> Vec<(f64, f64)> {
    let all = times.histogram.iter().map(|bucket| bucket.count).sum::<u64>() as f64;
    let mut sum = 0;
    let points = times.histogram.iter().map(|bucket| {
        sum += bucket.count;
        (bucket.up_to_us * 1e-6, sum as f64 / all)
    });
    points.filter(|(time, _)| *time > 0.0).collect()
}

fn over_time(timeline: &Timeline) -> Vec<Chart> {
    let points = timeline.points();
    if points.len() < 2 {
        return Vec::new();
    }
    let line = |name: &str, of: &dyn Fn(&TimePoint) -> Option<f64>| {
        Line::new(name, points.iter().filter_map(|point| Some((point.at_s, of(point)?))).collect())
    };
    let parts = [Part::SocketQueue, Part::Receive, Part::Application, Part::Send];
    let parts = parts.map(|part| line(part.name(), &|point| Some(point.mean_us(part)? * 1e-6)));
    let chart = |title: &str, y: DisplayUnit, lines: Vec<Line>| Chart {
        title: title.to_owned(),
        across: "time since the start".to_owned(),
        x: DisplayUnit::Seconds,
        y,
        is_log: false,
        is_across_log: false,
        lines: lines.into_iter().filter(|line| !line.points.is_empty()).collect(),
    };
    vec![
        chart("mean times over time", DisplayUnit::Micros, parts.into()),
        chart("packets received", DisplayUnit::Rate, vec![line("packets", &|point| Some(point.packets_per_s))]),
        chart("packets in the sockets' queues", DisplayUnit::Number, vec![line("mean", &|point| point.queue)]),
        chart("processors in use", DisplayUnit::Number, vec![line("processors", &|point| point.cpu)]),
    ]
}
