//! Report of a run as JSON, and as the few lines that a terminal shows.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::engine::{CallRole, LATE_AT_MEDIAN, LATE_AT_P99, LinkCounts, PhaseReport, Report, counted, with_remedy};
use crate::handshakes::NOT_CHECKED;
use crate::meter::{Messages, Meter, OutcomeCounts};
use crate::metrics::accounts_of;
use crate::output::{PhaseData, Server, percent_of};
use crate::script::{Kind, MethodId, SessionResult};
use crate::time_histogram::times_json;
use crate::{recovery, tally};

/// Minimum number of calls and minimum time for a rate.
const RATE_OF: (u64, Duration) = (2, Duration::from_millis(100));

/// Description of the run in a report.
#[derive(Clone, Debug, Default)]
pub struct RunDescription {
    /// Name of the workload or scenario.
    pub workload: String,
    /// Arrival law.
    pub arrivals: String,
    /// Seed.
    pub seed: u64,
    /// Destination of calls.
    pub to: String,
    /// Parameters of the workload that its paper does not give, and other things that a reader must know.
    pub declared: Vec<(String, String)>,
}

impl Report {
    /// Returns the measured phase; the last phase if the run did not get so far.
    #[must_use]
    pub fn measured(&self) -> Option<&PhaseReport> {
        self.phases.iter().find(|phase| phase.is_measured).or(self.phases.last())
    }

    fn parts<'a>(&'a self, phase: &'a PhaseReport) -> PhaseData<'a> {
        let meter = phase.meter();
        let (series, server) = (&phase.series, self.server.as_ref());
        let (from, elapsed, carried_in_time) = (phase.counted_from, phase.elapsed, phase.carried_in_time);
        PhaseData { meter, metrics: &meter.metrics, series, from, elapsed, carried_in_time, server }
    }

    /// Returns the resource use of the server, if it was sampled for long enough.
    #[must_use]
    pub fn server_used(&self) -> Option<Server> {
        let (phase, seen) = (self.measured()?, self.server.as_ref()?);
        let total = seen.total(phase.counted_from, phase.elapsed);
        total.filter(|total| !total.time.is_zero()).map(|_| self.parts(phase).server(seen))
    }

    /// Returns why a run carried no call, or received none to answer, with a possible remedy. `None` if there was
    /// one, and for a run with own calls that was stopped by hand.
    #[must_use]
    pub fn failure_reason(&self) -> Option<String> {
        let phase = self.measured().filter(|phase| phase.is_measured && phase.is_warm)?;
        let OutcomeCounts { offered, sent, carried, .. } = accounts_of(phase.meter());
        // A run that only answers is normally stopped by hand.
        if phase.role == CallRole::Callee && offered == 0 {
            let came = match phase.links.received {
                0 => "no message arrived; check the address here (--listen) and at the caller".to_owned(),
                messages => format!("{} arrived, but none began a call", counted(messages, "message")),
            };
            return Some(format!("nobody called: {came}"));
        }
        if self.was_stopped {
            return None;
        }
        if offered == 0 || carried > 0 {
            return None;
        }
        let worst = phase.meter().failures.iter().max_by_key(|(_, count)| **count);
        Some(match worst {
            Some((ending, _)) => {
                let why = with_remedy(*ending, &phase.meter().refusals);
                format!("none of {} was carried; most ended by: {why}", counted(sent, "call"))
            }
            None if sent == 0 => {
                format!(
                    "none of {} could be started: check the limits (--max-calls), ports and connections",
                    counted(offered, "call")
                )
            }
            None => format!("none of {} ended in time; allow more time (--drain)", counted(sent, "call")),
        })
    }

    /// Returns everything for programs, with the measured phase at the top level.
    #[must_use]
    pub fn to_json(&self, about: &RunDescription) -> Value {
        let mut top = self.measured().map(phase_json).unwrap_or_default();
        if let Some(phase) = self.measured() {
            self.parts(phase).extend(&mut top);
            let compared = phase.answer_comparison();
            if !compared.is_empty() {
                top.insert("record".to_owned(), compared.to_json());
            }
        }
        let declared: Map<_, _> = about.declared.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        top.insert("workload".to_owned(), json!(about.workload));
        top.insert("arrivals".to_owned(), json!(about.arrivals));
        top.insert("to".to_owned(), json!(about.to));
        top.insert("seed".to_owned(), json!(about.seed));
        top.insert("declared".to_owned(), Value::Object(declared));
        top.insert("was_stopped".to_owned(), json!(self.was_stopped));
        top.insert("broken_off".to_owned(), json!(self.broken_off));
        let others: Vec<_> = self.phases.iter().filter(|phase| !phase.is_measured).map(phase_json).collect();
        top.insert("preparation".to_owned(), json!(others));
        Value::Object(top)
    }

    /// Returns the final text for a terminal.
    #[must_use]
    pub fn to_text(&self, about: &RunDescription) -> String {
        let mut text = String::new();
        let Some(phase) = self.measured() else { return "nothing was measured\n".to_owned() };
        let meter = phase.meter();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} to {}, arrivals {}, seed {}", about.workload, about.to, about.arrivals, about.seed);
        text.push_str(&accounts_text(phase));
        text.push_str(&tally::notes(phase));
        text.push_str(&self.time_series_text(phase));
        text.push_str(&phase.handshakes().to_text(phase.elapsed));
        for (name, _) in about.declared.iter().filter(|(_, value)| value == NOT_CHECKED) {
            let _ = writeln!(text, "  {name}: {NOT_CHECKED}");
        }
        for (verb, answer, times) in meter.answers() {
            let _ = writeln!(
                text,
                "  {:<8} to {:<5} {:>9}  mean {:>9.1?}  p50 {:>9.1?}  p99 {:>9.1?}  max {:>9.1?}",
                verb.as_str(),
                answer.name(),
                times.count(),
                times.mean(),
                times.quantile(0.5),
                times.quantile(0.99),
                times.max()
            );
        }
        text.push_str(&tally::from_due(phase));
        text.push_str(&recovery::text(phase));
        text.push_str(&tally::text(phase));
        text.push_str(&phase.answer_comparison().to_text());
        for (ending, count) in &meter.failures {
            let said = if let SessionResult::Refused(status) = ending {
                meter.refusals.reasons(*status)
            } else {
                String::new()
            };
            let _ = writeln!(text, "  {count} ended by: {ending}{said}");
        }
        let repeats = (meter.repeats_sent, meter.repeats_received);
        let _ = writeln!(
            text,
            "  retransmissions: sent {}, received {}; unexpected {}, late {}",
            repeats.0, repeats.1, meter.unexpected, meter.late
        );
        if meter.lateness.count() > 0 {
            let late = &meter.lateness;
            let _ = writeln!(
                text,
                "  generator: delay of call starts: median {:.1?} (limit {LATE_AT_MEDIAN:?}), p99 {:.1?} (limit {LATE_AT_P99:?}){}",
                late.quantile(0.5),
                late.quantile(0.99),
                cpu_per_call(phase).map(|us| format!("; {us:.1} µs of CPU per call")).unwrap_or_default()
            );
        }
        let unread = phase.unread();
        if unread.count() > 0 {
            let _ = writeln!(
                text,
                "  generator: delay of reads: median {:.1?} (limit {LATE_AT_MEDIAN:?}), p99 {:.1?} (limit {LATE_AT_P99:?})",
                unread.quantile(0.5),
                unread.quantile(0.99),
            );
        }
        let resent = phase.resend_lateness();
        if resent.count() > 0 {
            let _ = writeln!(
                text,
                "  generator: delay of retransmissions: median {:.1?} (limit {LATE_AT_MEDIAN:?}), p99 {:.1?} (limit {LATE_AT_P99:?})",
                resent.quantile(0.5),
                resent.quantile(0.99),
            );
        }
        let LinkCounts { sent, segmented: joined, .. } = phase.links;
        if joined > 0 {
            let _ = writeln!(text, "  {joined} of the generator's {sent} messages left in segmented packets");
        }
        if let Some(server) = self.server_used() {
            text.push_str(&server_line(&server));
        }
        if let Some(why) = phase.bottleneck() {
            let _ = writeln!(text, "  THE GENERATOR WAS THE BOTTLENECK: {why}");
        }
        text
    }
}

impl Report {
    /// Returns deviations of the run from what was requested.
    fn time_series_text(&self, phase: &PhaseReport) -> String {
        let mut text = String::new();
        if self.was_stopped && self.broken_off.is_none() {
            text.push_str("  the run was STOPPED before its end\n");
        }
        if !phase.is_measured {
            text.push_str("  it ended during preparation: NOTHING WAS MEASURED\n");
        } else if !phase.is_warm {
            text.push_str("  it ended during warm-up: NOTHING WAS MEASURED\n");
        }
        if phase.is_used_up {
            text.push_str("  the arrivals ran out before the requested number or time\n");
        }
        text
    }
}

/// Returns the outcomes and rates of calls. Only calls carried until the last arrival count in a rate: after it a
/// server works off its backlog.
fn accounts_text(phase: &PhaseReport) -> String {
    let OutcomeCounts { offered, refused, sent, carried, lost, failed, unfinished } = accounts_of(phase.meter());
    let in_time = phase.carried_in_time;
    let shown = |count| rate(phase, count).map(|rate| format!("{rate:.1}/s"));
    let offered_rate = shown(offered).map(|rate| format!(" ({rate})")).unwrap_or_default();
    let carried_rate = shown(in_time).map(|rate| format!("{rate}, ")).unwrap_or_default();
    let mut text = format!(
        "  offered {offered} = sent {sent} + refused by limits {refused}, in {:.2} s{offered_rate}\n  sent {sent} = carried \
         {carried} + lost {lost} + failed {failed} + unfinished {unfinished} (carried {carried_rate}{} %)\n",
        phase.elapsed.as_secs_f64(),
        percent_of(carried, sent),
    );
    let behind = phase.carried_behind;
    if behind > 0 {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {behind} carried calls ended after the last arrival and are not included in rates");
    }
    text
}

/// Returns the rate per second; `None` for too few calls or too short a time.
fn rate(phase: &PhaseReport, count: u64) -> Option<f64> {
    let is_said = accounts_of(phase.meter()).offered >= RATE_OF.0 && phase.elapsed >= RATE_OF.1;
    is_said.then(|| per(count, phase.elapsed.as_secs_f64()))
}

fn server_line(server: &Server) -> String {
    let drops =
        server.drops.map_or_else(|| "drops not visible".to_owned(), |drops| format!("{drops} datagrams dropped"));
    let others = if server.processes > 1 { format!(" and {} more", server.processes - 1) } else { String::new() };
    let gone = if server.is_gone { "; IT ENDED BEFORE THE RUN DID" } else { "" };
    let replaced = server.successors.iter().map(|pid| format!(", replaced by process {pid}")).collect::<String>();
    format!(
        "  server ({}, process {}{others}{replaced}): {:.2} CPUs, {:.1} µs of CPU and {:.1} context switches per call, {} MiB at most, \
         {drops}{gone}\n",
        server.name,
        server.pid,
        server.processors,
        server.cpu_us_per_call,
        server.switches_per_call,
        server.peak_bytes.div_ceil(1 << 20),
    )
}

fn phase_json(phase: &PhaseReport) -> Map<String, Value> {
    let meter = phase.meter();
    let OutcomeCounts { offered, refused, sent, carried, lost, failed, unfinished } = accounts_of(phase.meter());
    let seconds = phase.elapsed.as_secs_f64();
    let failures: Map<_, _> = meter.failures.iter().map(|(ending, count)| (ending.to_string(), json!(count))).collect();
    let value = json!({
        "phase": phase.name,
        "elapsed_s": seconds,
        "offered": offered, "refused": refused, "sent": sent,
        "carried": carried, "lost": lost, "failed": failed, "unfinished": unfinished,
        "offered_per_s": rate(phase, offered).unwrap_or_default(),
        "carried_per_s": rate(phase, phase.carried_in_time).unwrap_or_default(),
        "carried_in_time": phase.carried_in_time,
        "ended_in_warm_up": !phase.is_warm,
        "arrivals_used_up": phase.is_used_up,
        "carried_share": per(carried, sent.max(1) as f64),
        "failures": failures,
        "answers": answers_json(meter),
        "call_us": times_json(&meter.durations),
        "timers": meter.timers().map(|(number, times)| (number.to_string(), times_json(times))).collect::<Map<_, _>>(),
        "messages_sent": messages_json(&meter.sent),
        "messages_received": messages_json(&meter.received),
        "repeats_sent": meter.repeats_sent, "repeats_received": meter.repeats_received,
        "unexpected": meter.unexpected, "late_messages": meter.late,
        "samples": meter.samples.iter().map(|sample| String::from_utf8_lossy(sample)).collect::<Vec<_>>(),
        "callee": { "answered": phase.callee.answered.sent, "carried": phase.callee.answered.carried,
            "lost": phase.callee.answered.lost, "failed": phase.callee.answered.failed,
            "unfinished": phase.callee.answered.unfinished, "repeats_sent": phase.callee.repeats_sent,
            "service_drops": phase.service_drops },
        "handshakes": phase.handshakes().to_json(phase.elapsed),
        "generator": generator_json(phase),
    });
    match value {
        Value::Object(mut map) => {
            tally::extend(phase, &mut map);
            recovery::extend(phase, &mut map);
            map
        }
        _ => Map::new(),
    }
}

/// Returns the generator's own figures.
fn generator_json(phase: &PhaseReport) -> Value {
    json!({
        "lateness_us": times_json(&phase.meter().lateness),
        "unread_us": times_json(&phase.unread()),
        "resend_lateness_us": times_json(&phase.resend_lateness()),
        "cpu_s": phase.cpu.as_secs_f64(),
        "cpu_us_per_call": cpu_per_call(phase).unwrap_or_default(),
        "handed_over": phase.links.handed_over, "handover_drops": phase.links.handover_drops,
        "forgotten": phase.forgotten,
        "joined": phase.links.segmented,
        "kernel_drops": phase.links.kernel_drops,
        "send_failures": phase.links.send_failures,
        "unreachable": phase.links.unreachable,
        "connections_opened": phase.links.connected, "connections_broken": phase.links.broken,
        "connections_exhausted": phase.links.exhausted,
        "was_bottleneck": phase.bottleneck().is_some(),
        "bottleneck": phase.bottleneck(),
    })
}

fn answers_json(meter: &Meter) -> Vec<Value> {
    let rows = meter.answers().map(
        |(verb, answer, times)| json!({ "method": verb.as_str(), "answer": answer.name(), "us": times_json(times) }),
    );
    rows.collect()
}

fn messages_json(messages: &Messages) -> Map<String, Value> {
    messages.iter().map(|(kind, count)| (kind_name(kind), json!(count))).collect()
}

fn kind_name(kind: Kind) -> String {
    match kind {
        Kind::Request(MethodId::Other) => "other".to_owned(),
        Kind::Request(verb) => verb.as_str().to_owned(),
        Kind::Response(status) => status.to_string(),
        Kind::Garbage => "garbage".to_owned(),
    }
}

/// Returns `count` divided by `by`; 0 if that is zero.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(crate) fn per(count: u64, by: f64) -> f64 {
    if by > 0.0 { count as f64 / by } else { 0.0 }
}

/// Returns the generator's CPU time per call in microseconds; `None` if no call was carried.
fn cpu_per_call(phase: &PhaseReport) -> Option<f64> {
    // Calls of the whole phase, including its end.
    let calls = accounts_of(phase.meter()).carried.max(phase.meter().success_times());
    (calls > 0).then(|| phase.cpu.as_secs_f64() * 1e6 / per(calls, 1.0))
}
