//! Tables of a run's page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::data::{Calls, Counts, MetricRow, Recovery, RunReport, Server, ServerRow};
use super::format::{bytes, float, grouped, micros, number, percent, seconds};
use super::page::{pairs, table};
use super::plot::escape;

/// Returns the outcomes of calls: a bar, the two sums that must hold, and the reasons of failures.
pub(super) fn accounts(run: &RunReport) -> String {
    let parts = [
        (2, "carried", run.carried),
        (5, "lost: no answer", run.lost),
        (3, "failed", run.failed),
        (1, "unfinished", run.unfinished),
    ];
    let all = float(run.sent.saturating_add(run.refused).max(1));
    let mut html = String::from("<div class=\"stack\">");
    for (colour, name, count) in parts.iter().copied().chain([(6, "kept back", run.refused)]) {
        if count > 0 {
            let share = 100.0 * float(count) / all;
            // Writing to a String cannot fail.
            let _ = write!(
                html,
                "<i class=\"k{colour}\" style=\"flex: {count} 0 0\" title=\"{name}: {} %\"></i>",
                percent(share)
            );
        }
    }
    html.push_str("</div>");
    let (offered, sent, refused) = (grouped(run.offered), grouped(run.sent), grouped(run.refused));
    let _ = write!(
        html,
        "<p class=\"sum\"><span>{offered} offered</span><em>=</em><span>{sent} sent</span><em>+</em>\
         <span><i class=\"k6\"></i>{refused} refused by the generator’s limits</span></p>\
         <p class=\"sum\"><span>{sent} sent</span>"
    );
    for (index, (colour, name, count)) in parts.into_iter().enumerate() {
        let sign = if index == 0 { '=' } else { '+' };
        let _ = write!(html, "<em>{sign}</em><span><i class=\"k{colour}\"></i>{} {name}</span>", grouped(count));
    }
    html.push_str("</p>");
    if !adds_up(run) {
        html.push_str("<p class=\"sum\"><b>The counts do not add up: this is a bug.</b></p>");
    }
    if !run.failures.is_empty() {
        let reasons = run.failures.iter().map(|(why, count)| (why.as_str(), grouped(*count)));
        let _ = write!(html, "<div class=\"reasons\">{}</div>", pairs(reasons));
    }
    html
}

/// Returns the outcomes of calls under load.
pub(super) fn calls(calls: &Calls) -> String {
    let ended = calls.ended_by_bye.saturating_add(calls.ended_otherwise);
    let setup = &calls.setup_us;
    let rows = [
        ("answered", grouped(calls.answered)),
        ("ended by a BYE that was answered", format!("{} of {}", grouped(calls.ended_by_bye), grouped(ended))),
        ("refused with 503", grouped(calls.refused_503)),
        ("timed out (no answer, or 408)", grouped(calls.timed_out)),
        ("refused otherwise", grouped(calls.refused_otherwise)),
        ("going on", grouped(calls.going_on)),
        ("tried again after a 503", grouped(calls.tried_again)),
        ("setup, first INVITE to 200: median", micros(setup.p50)),
        ("setup: 99th percentile", micros(setup.p99)),
        ("setup: longest", micros(setup.max)),
    ];
    pairs(rows.into_iter())
}

/// Returns when phones were registered after a power cut, and the messages this took.
pub(super) fn recovery(recovery: &Recovery) -> String {
    let counts = |counts: &Counts| format!("mean {}, at most {}", number(counts.mean), counts.max);
    let times = recovery.times.iter().map(|time| {
        let text = time.s.map_or_else(|| "never".to_owned(), seconds);
        (format!("{} % registered", number(time.percent)), text)
    });
    let mut rows: Vec<_> = vec![("phones".to_owned(), grouped(recovery.phones))];
    rows.extend(times);
    rows.push(("registration attempts per phone".to_owned(), counts(&recovery.attempts)));
    rows.push(("REGISTERs per phone".to_owned(), counts(&recovery.requests)));
    if recovery.refreshed > 0 || recovery.refreshes_failed > 0 {
        rows.push(("refreshes that succeeded".to_owned(), grouped(recovery.refreshed)));
        rows.push(("refreshes that failed".to_owned(), grouped(recovery.refreshes_failed)));
    }
    pairs(rows.iter().map(|(name, value)| (name.as_str(), value.clone())))
}

fn adds_up(run: &RunReport) -> bool {
    let ended = total([run.carried, run.lost, run.failed, run.unfinished].into_iter());
    run.offered == run.sent.saturating_add(run.refused) && run.sent == ended
}

pub(super) fn metrics(rows: &[MetricRow]) -> Option<String> {
    let mut html =
        "<table><tr><th>metric</th><th class=\"text\"></th><th>value</th><th>p50</th><th>p99</th><th>of</th></tr>"
            .to_owned();
    let has_any = |row: &&MetricRow| row.value.is_some();
    for row in rows.iter().filter(has_any) {
        let shown = |value: f64| match row.unit.as_str() {
            "%" => format!("{} %", percent(value)),
            "ms" => micros(value * 1e3),
            "s" => micros(value * 1e6),
            unit => format!("{} {unit}", number(value)),
        };
        let cell = |value: Option<f64>| escape(&value.map(shown).unwrap_or_default());
        let _ = write!(
            html,
            "<tr><td>{}</td><td class=\"text\">{} (§{})</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&row.name),
            escape(&row.title),
            escape(&row.section),
            cell(row.value),
            cell(row.p50),
            cell(row.p99),
            row.count.map(grouped).unwrap_or_default()
        );
    }
    html.push_str("</table>");
    rows.iter().any(|row| has_any(&row)).then_some(html)
}

pub(super) fn answers(run: &RunReport) -> Option<String> {
    let sent = run.answers.iter().map(|row| (row, ""));
    let due = run.answers_from_due.iter().map(|row| (row, ", from due"));
    let rows = sent.chain(due).map(|(row, from)| {
        let times = [row.us.mean, row.us.p50, row.us.p90, row.us.p99, row.us.p999, row.us.max].map(micros);
        let mut cells = vec![format!("{} → {}{from}", row.method, row.answer), grouped(row.us.count)];
        cells.extend(times);
        cells
    });
    let head = ["request → answer", "count", "mean", "p50", "p90", "p99", "p99.9", "longest"];
    table(&head, &rows.collect::<Vec<_>>())
}

pub(super) fn messages(run: &RunReport) -> Option<String> {
    let names: BTreeSet<&String> = run.messages_sent.keys().chain(run.messages_received.keys()).collect();
    let of =
        |map: &BTreeMap<String, u64>, name: &String| map.get(name).map(|count| grouped(*count)).unwrap_or_default();
    // Requests before responses.
    let is_answer = |name: &&&String| name.starts_with(|c: char| c.is_ascii_digit());
    let ordered = names.iter().filter(|name| !is_answer(name)).chain(names.iter().filter(is_answer));
    let mut rows: Vec<Vec<String>> = ordered
        .map(|name| vec![(*name).clone(), of(&run.messages_sent, name), of(&run.messages_received, name)])
        .collect();
    if !rows.is_empty() {
        rows.push(vec!["of them again".to_owned(), grouped(run.repeats_sent), grouped(run.repeats_received)]);
        rows.push(vec!["unexpected".to_owned(), String::new(), grouped(run.unexpected)]);
    }
    table(&["message", "sent", "received"], &rows)
}

/// Returns the calls by script, if there are several scripts.
pub(super) fn scripts(run: &RunReport) -> Option<String> {
    if run.scripts.len() < 2 {
        return None;
    }
    let rows = run.scripts.iter().map(|row| {
        let all = total(run.scripts.iter().filter(|other| other.end == row.end).map(|other| other.sent));
        let share = 100.0 * float(row.sent) / float(all.max(1));
        let counts = [row.sent, row.carried, row.lost, row.failed, row.unfinished].map(grouped);
        let name =
            if row.script.starts_with(&row.end) { row.script.clone() } else { format!("{}: {}", row.end, row.script) };
        let mut cells = vec![name, format!("{} %", percent(share))];
        cells.extend(counts);
        cells
    });
    table(&["end: script", "share", "sent", "carried", "lost", "failed", "unfinished"], &rows.collect::<Vec<_>>())
}

/// Returns the outcomes of requests.
pub(super) fn transactions(run: &RunReport) -> Option<String> {
    let rows = run.transactions.iter().map(|(method, row)| {
        let share = format!("{} %", percent(100.0 * row.share));
        vec![method.clone(), grouped(row.all), grouped(row.succeeded), grouped(row.failed), share]
    });
    table(&["transactions", "all", "succeeded", "failed", "success"], &rows.collect::<Vec<_>>())
}

/// Returns the handshakes, if there were any.
pub(super) fn handshakes(run: &RunReport) -> Option<String> {
    let all = &run.handshakes;
    if all.count + all.failed == 0 {
        return None;
    }
    let rows = [
        ("complete", format!("{} ({}/s)", grouped(all.count), number(all.per_s))),
        ("median", micros(all.us.p50)),
        ("p99", micros(all.us.p99)),
        ("longest", micros(all.us.max)),
        ("resumed sessions", format!("{} %", percent(100.0 * all.resumed_share))),
        ("failed", grouped(all.failed)),
    ];
    let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]);
    let failures = all.failures.iter().map(|(reason, count)| vec![reason.clone(), grouped(*count)]);
    table(&["handshakes", ""], &rows.chain(failures).collect::<Vec<_>>())
}

/// Returns the responses that differ from those of the record.
pub(super) fn record(run: &RunReport) -> Option<String> {
    let record = run.record.as_ref()?;
    let rows = record
        .differs
        .iter()
        .map(|row| vec![format!("{}: {} → {}", row.method, row.recorded, row.got), grouped(row.count)]);
    let same = vec!["as recorded".to_owned(), grouped(record.same)];
    table(&["answers", "count"], &std::iter::once(same).chain(rows).collect::<Vec<_>>())
}

pub(super) fn server(server: &Server) -> String {
    let drops = server.drops.map_or_else(|| "not visible".to_owned(), grouped);
    let faults = total(server.rows.iter().map(|row| row.major_faults));
    let others = total(server.rows.iter().map(|row| row.machine_drops));
    let mean =
        |of: fn(&ServerRow) -> f64| server.rows.iter().map(of).sum::<f64>() / float(server.rows.len().max(1) as u64);
    let more = if server.processes > 1 { format!(" and {} more", server.processes - 1) } else { String::new() };
    let rows = [
        ("process", format!("{} ({}){more}", server.name, server.pid)),
        ("processors kept busy", format!("{:.3}", server.processors)),
        ("CPU time a call", micros(server.cpu_us_per_call)),
        ("context switches a call", format!("{:.2}", server.switches_per_call)),
        ("memory at most", bytes(float(server.peak_bytes))),
        ("datagrams dropped at full buffers", drops),
        ("datagrams dropped on the whole machine", grouped(others)),
        ("major page faults", grouped(faults)),
        ("involuntary context switches", format!("{}/s", number(mean(|row| row.involuntary_per_s)))),
        ("interrupts of the machine", format!("{}/s", number(mean(|row| row.interrupts_per_s)))),
        ("soft interrupts of the machine", format!("{}/s", number(mean(|row| row.soft_interrupts_per_s)))),
    ];
    pairs(rows.into_iter())
}

pub(super) fn generator(run: &RunReport) -> String {
    let generator = &run.generator;
    let late = &generator.lateness_us;
    let lateness = [
        ("delay of call starts: median", micros(late.p50)),
        ("delay of call starts: p99", micros(late.p99)),
        ("delay of call starts: maximum", micros(late.max)),
    ];
    let unread = &generator.unread_us;
    let waiting = [
        ("delay of reads: median", micros(unread.p50)),
        ("delay of reads: p99", micros(unread.p99)),
        ("delay of reads: maximum", micros(unread.max)),
    ];
    let resent = &generator.resend_lateness_us;
    let resending = [
        ("delay of retransmissions: median", micros(resent.p50)),
        ("delay of retransmissions: p99", micros(resent.p99)),
    ];
    let resending = resending.into_iter().filter(|_| resent.count > 0);
    let rows = [
        ("CPU time per call, both ends", micros(generator.cpu_us_per_call)),
        ("datagrams dropped by its sockets", grouped(generator.kernel_drops)),
        ("messages it could not send", grouped(generator.send_failures)),
        ("calls removed too early", grouped(generator.forgotten)),
    ];
    let joined = [("messages sent in segmented packets", grouped(generator.joined))];
    let joined = joined.into_iter().filter(|_| generator.joined > 0);
    let shared = [
        ("messages handed over between its threads", grouped(generator.handed_over)),
        ("messages dropped between its threads", grouped(generator.handover_drops)),
    ];
    // Only threads that listen at one address hand messages over.
    let shared = shared.into_iter().filter(|_| generator.handed_over > 0);
    // A run that only answers is never late.
    let lateness = lateness.into_iter().filter(|_| late.count > 0);
    let waiting = waiting.into_iter().filter(|_| unread.count > 0);
    pairs(lateness.chain(waiting).chain(resending).chain(rows).chain(joined).chain(shared))
}

/// Returns the sum of counts from a file, which may have any values.
fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}
