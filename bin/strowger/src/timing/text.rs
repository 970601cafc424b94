//! A report as tables for people.

use std::fmt::Write as _;

use strowger_timing::{Distribution, MessageReport, Part, TimingReport};

use super::finding::findings;
use crate::plot::Table;
use crate::table::{columns, wrapped};
use crate::text::number;

/// Parts whose distribution has a table.
const DISTRIBUTIONS: [Part; 2] = [Part::Receive, Part::Application];

/// Formats a report for people, without a line end at its end.
pub(crate) fn text(report: &TimingReport) -> String {
    let mut text = format!("{}\n", headline(report));
    for table in tables(report) {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{}\n{}", table.title, columns_of(&table));
    }
    text.push('\n');
    for fact in facts(report) {
        text.push_str(&wrapped("", &fact));
    }
    for finding in findings(report) {
        text.push_str(&wrapped("→ ", &finding));
    }
    for note in &report.notes {
        text.push_str(&wrapped("- ", note));
    }
    text.trim_end().to_owned()
}

/// Returns what was measured, for how long and how.
pub(super) fn headline(report: &TimingReport) -> String {
    let how = match report.method.as_str() {
        "server" => "by the server itself",
        "ebpf" => "by eBPF",
        "proc" => "from /proc, without eBPF",
        other => other,
    };
    format!("{}: {:.1} s, {} packets/s, measured {how}", report.program, report.seconds, rate(report.packets_per_s))
}

/// Returns the tables of a report: means, then distributions. A part that was not measured has no column.
pub(super) fn tables(report: &TimingReport) -> Vec<Table> {
    let rows: Vec<&MessageReport> = report.messages.iter().chain([&report.all]).collect();
    // Without batches, waiting in them is always zero.
    let is_shown =
        |part: Part, times: &Distribution| !matches!(part, Part::ReceiveBatch | Part::SendBatch) || times.mean_us > 0.0;
    let has =
        |part: &Part| rows.iter().any(|row| row.parts.get(part.key()).is_some_and(|times| is_shown(*part, times)));
    let measured: Vec<Part> = Part::ALL.into_iter().filter(has).collect();
    if measured.is_empty() {
        return Vec::new();
    }
    let mut tables = vec![means(&rows, &measured)];
    let known: Vec<Part> = DISTRIBUTIONS
        .into_iter()
        .filter(|part| rows.iter().any(|row| row.parts.get(part.key()).is_some_and(has_quantiles)))
        .collect();
    if !known.is_empty() {
        tables.push(quantiles(&rows, &known));
    }
    tables
}

fn means(rows: &[&MessageReport], parts: &[Part]) -> Table {
    let head = ["message", "packets"].into_iter().chain(parts.iter().map(|part| part.name()));
    let row = |row: &&MessageReport| {
        let cells = parts.iter().map(|part| cell(row.parts.get(part.key()).map(|times| times.mean_us)));
        [row.message.clone(), number(row.packets)].into_iter().chain(cells).collect()
    };
    Table {
        title: "mean of each part, µs".to_owned(),
        head: head.map(str::to_owned).collect(),
        rows: rows.iter().map(row).collect(),
    }
}

fn quantiles(rows: &[&MessageReport], parts: &[Part]) -> Table {
    let head = parts.iter().flat_map(|part| ["p50", "p90", "p99", "max"].map(|what| format!("{} {what}", part.name())));
    let row = |row: &&MessageReport| {
        let cells = parts.iter().flat_map(|part| {
            let times = row.parts.get(part.key()).filter(|times| has_quantiles(times));
            let of = |value: fn(&Distribution) -> f64| cell(times.map(value));
            [of(|times| times.p50_us), of(|times| times.p90_us), of(|times| times.p99_us), of(|times| times.max_us)]
        });
        std::iter::once(row.message.clone()).chain(cells).collect()
    };
    Table {
        title: "distribution, µs".to_owned(),
        head: std::iter::once("message".to_owned()).chain(head).collect(),
        rows: rows.iter().map(row).collect(),
    }
}

/// Whether the single times are known, not only their mean.
fn has_quantiles(times: &Distribution) -> bool {
    times.max_us >= times.mean_us && times.count > 0
}

/// Returns queue, drops, batches and processor time as sentences.
pub(super) fn facts(report: &TimingReport) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some(queue) = report.queue {
        facts.push(format!("queue       mean {}, at most {} packets", micros(queue.mean), number(queue.max)));
    }
    let drops: Vec<String> = report
        .drops
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(cause, count)| format!("{} {cause}", number(*count)))
        .collect();
    facts.push(format!("drops       {}", if drops.is_empty() { "none".to_owned() } else { drops.join(", ") }));
    if report.packets_per_receive > 0.0 {
        facts.push(format!("batches     {} packets a receive call", micros(report.packets_per_receive)));
    }
    if let Some(cpu) = report.cpu {
        facts.push(format!("processors  {cpu:.2} in use (1 is a whole one)"));
    }
    facts
}

fn columns_of(table: &Table) -> String {
    let width = table.rows.iter().filter_map(|row| row.first()).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let width = width.max(table.head.first().map_or(0, |cell| cell.chars().count()));
    // Names are aligned to the left, numbers to the right.
    let padded = |row: &Vec<String>| -> Vec<String> {
        let name = row.first().map(|name| format!("{name:<width$}"));
        name.into_iter().chain(row.iter().skip(1).cloned()).collect()
    };
    columns(&padded(&table.head), &table.rows.iter().map(padded).collect::<Vec<_>>())
}

fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), micros)
}

/// Formats a number to about three digits, without a unit.
pub(super) fn micros(value: f64) -> String {
    match value {
        _ if value >= 100.0 => rate(value),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times and rates are not negative")]
pub(super) fn rate(value: f64) -> String {
    number(value.round() as u64)
}

#[cfg(test)]
mod tests {
    use strowger_timing::{MessageType, PartTimes, QueueDepth, TimingHistograms};

    use super::*;

    fn report() -> TimingReport {
        let mut histograms = TimingHistograms::default();
        for (packet, nanos) in [("INVITE sip:a@b SIP/2.0\r\n\r\n", 150_000), ("ACK sip:a@b SIP/2.0\r\n\r\n", 50_000)] {
            let mut times = PartTimes::default();
            times.set(Part::SocketQueue, 4_000);
            times.set(Part::Receive, 9_000);
            if nanos > 100_000 {
                times.set(Part::Application, nanos);
            }
            histograms.record(MessageType::of(packet.as_bytes()), &times);
        }
        let (messages, all) = histograms.report();
        TimingReport {
            method: "ebpf".to_owned(),
            program: "kamailio (process 7)".to_owned(),
            seconds: 10.0,
            packets_per_s: 1_234.4,
            messages,
            all,
            service: [].into(),
            queue: Some(QueueDepth { mean: 0.25, max: 3 }),
            drops: [("RcvbufErrors".to_owned(), 2), ("no memory".to_owned(), 0)].into(),
            cpu: Some(0.5),
            load: None,
            packets_per_receive: 1.0,
            notes: vec!["TCP was not measured".to_owned()],
        }
    }

    #[test]
    fn only_measured_parts_have_columns() {
        let text = text(&report());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "kamailio (process 7): 10.0 s, 1,234 packets/s, measured by eBPF");
        assert_eq!(lines[3], "message  packets  K_sockq  K_rcv  T_sip");
        assert_eq!(lines[4], "INVITE         1     4.00   9.00    150");
        assert_eq!(lines[5], "ACK            1     4.00   9.00      –");
        assert_eq!(lines[6], "all            2     4.00   9.00    150");
        assert!(text.contains("K_rcv p50  K_rcv p90") && !text.contains("K_snd"), "{text}");
        assert!(text.contains("drops       2 RcvbufErrors\n") && text.ends_with("- TCP was not measured"), "{text}");
    }

    #[test]
    fn a_mean_alone_has_no_distribution() {
        let times = Distribution { count: 9, mean_us: 40.0, ..Distribution::default() };
        let all = MessageReport { message: "all".to_owned(), packets: 9, parts: [("k_rcv".to_owned(), times)].into() };
        let text = text(&TimingReport { all, ..TimingReport::default() });
        assert!(text.contains("40.0") && !text.contains("p50"), "{text}");
        assert!(tables(&TimingReport::default()).is_empty());
    }
}
