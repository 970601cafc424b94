//! A run's report as JSON, and as the few lines that a terminal shows.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::engine::{PhaseReport, Report};
use crate::meter::{Accounts, Answer, Messages, Meter, Times};
use crate::output::Parts;
use crate::script::{Kind, Verb};

/// What a report says of the run beside what was measured.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The workload's or the scenario's name.
    pub workload: String,
    /// The law of arrivals.
    pub arrivals: String,
    /// The seed.
    pub seed: u64,
    /// Where calls went.
    pub to: String,
    /// Parameters of the workload that its paper does not give, and whatever else a reader must know.
    pub declared: Vec<(String, String)>,
}

impl Report {
    /// The measured phase; of a run that never came to it, the last.
    #[must_use]
    pub fn measured(&self) -> Option<&PhaseReport> {
        self.phases.iter().find(|phase| phase.is_measured).or(self.phases.last())
    }

    /// Everything, for machines. The measured phase stands at the top.
    #[must_use]
    pub fn to_json(&self, about: &About) -> Value {
        let mut top = self.measured().map(phase_json).unwrap_or_default();
        if let Some(phase) = self.measured() {
            let meter = phase.meter();
            let (series, server) = (&phase.series, self.server.as_ref());
            let (from, elapsed) = (phase.counted_from, phase.elapsed);
            Parts { meter, metrics: &meter.metrics, series, from, elapsed, server }.extend(&mut top);
        }
        let declared: Map<_, _> = about.declared.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        top.insert("workload".to_owned(), json!(about.workload));
        top.insert("arrivals".to_owned(), json!(about.arrivals));
        top.insert("to".to_owned(), json!(about.to));
        top.insert("seed".to_owned(), json!(about.seed));
        top.insert("declared".to_owned(), Value::Object(declared));
        top.insert("was_stopped".to_owned(), json!(self.was_stopped));
        let others: Vec<_> = self.phases.iter().filter(|phase| !phase.is_measured).map(phase_json).collect();
        top.insert("preparation".to_owned(), json!(others));
        Value::Object(top)
    }

    /// What a terminal shows at the end.
    #[must_use]
    pub fn to_text(&self, about: &About) -> String {
        let mut text = String::new();
        let Some(phase) = self.measured() else { return "nothing was measured\n".to_owned() };
        let meter = phase.meter();
        let Accounts { offered, refused, sent, carried, lost, failed, unfinished } = accounts_of(phase);
        let seconds = phase.elapsed.as_secs_f64();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} to {}, arrivals {}, seed {}", about.workload, about.to, about.arrivals, about.seed);
        let _ = writeln!(
            text,
            "  offered {offered} = sent {sent} + refused by limits {refused}, in {seconds:.2} s ({:.1}/s)\n  sent {sent} = carried \
             {carried} + lost {lost} + failed {failed} + unfinished {unfinished} (carried {:.1}/s, {:.3} %)",
            per(offered, seconds),
            per(carried, seconds),
            per(100 * carried, sent.max(1) as f64),
        );
        for (verb, answer, times) in meter.answers() {
            let _ = writeln!(
                text,
                "  {:<8} to {:<5} {:>9}  mean {:>9.1?}  p50 {:>9.1?}  p99 {:>9.1?}  max {:>9.1?}",
                verb.as_str(),
                answer_name(answer),
                times.count(),
                times.mean(),
                times.quantile(0.5),
                times.quantile(0.99),
                times.max()
            );
        }
        for (ending, count) in &meter.failures {
            let _ = writeln!(text, "  {count} ended by: {ending}");
        }
        let repeats = (meter.repeats_sent, meter.repeats_received);
        let _ = writeln!(
            text,
            "  sent again {}, received again {}, unexpected {}, late {}",
            repeats.0, repeats.1, meter.unexpected, meter.late
        );
        if meter.lateness.count() > 0 {
            let late = &meter.lateness;
            let _ = writeln!(
                text,
                "  the generator: {:.1?} late at the median, {:.1?} at p99; {:.1} µs of CPU a call",
                late.quantile(0.5),
                late.quantile(0.99),
                cpu_per_call(phase)
            );
        }
        if let Some(why) = phase.bottleneck() {
            let _ = writeln!(text, "  THE GENERATOR WAS THE BOTTLENECK: {why}");
        }
        text
    }
}

/// The accounts of who began; of an end that only answers, the answered ones.
fn accounts_of(phase: &PhaseReport) -> Accounts {
    let meter = phase.meter();
    if meter.began.offered > 0 {
        return meter.began;
    }
    // Others offer what is answered.
    Accounts { offered: meter.answered.sent + meter.answered.refused, ..meter.answered }
}

fn phase_json(phase: &PhaseReport) -> Map<String, Value> {
    let meter = phase.meter();
    let Accounts { offered, refused, sent, carried, lost, failed, unfinished } = accounts_of(phase);
    let seconds = phase.elapsed.as_secs_f64();
    let failures: Map<_, _> = meter.failures.iter().map(|(ending, count)| (ending.to_string(), json!(count))).collect();
    let value = json!({
        "phase": phase.name,
        "elapsed_s": seconds,
        "offered": offered, "refused": refused, "sent": sent,
        "carried": carried, "lost": lost, "failed": failed, "unfinished": unfinished,
        "offered_per_s": per(offered, seconds),
        "carried_per_s": per(carried, seconds),
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
        "generator": {
            "lateness_us": times_json(&meter.lateness),
            "cpu_s": phase.cpu.as_secs_f64(),
            "cpu_us_per_call": cpu_per_call(phase),
            "kernel_drops": phase.links.kernel_drops,
            "send_failures": phase.links.send_failures,
            "unreachable": phase.links.unreachable,
            "connections_opened": phase.links.connected, "connections_broken": phase.links.broken,
            "connections_exhausted": phase.links.exhausted,
            "was_bottleneck": phase.bottleneck().is_some(),
            "bottleneck": phase.bottleneck(),
        },
    });
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn answers_json(meter: &Meter) -> Vec<Value> {
    let rows = meter.answers().map(|(verb, answer, times)| {
        json!({ "method": verb.as_str(), "answer": answer_name(answer), "us": times_json(times) })
    });
    rows.collect()
}

fn messages_json(messages: &Messages) -> Map<String, Value> {
    messages.iter().map(|(kind, count)| (kind_name(kind), json!(count))).collect()
}

/// Times in microseconds.
fn times_json(times: &Times) -> Value {
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let at = |share| us(times.quantile(share));
    json!({ "count": times.count(), "mean": if times.count() > 0 { us(times.mean()) } else { 0.0 }, "p50": at(0.5), "p90": at(0.9),
        "p95": at(0.95), "p99": at(0.99), "p999": at(0.999), "max": us(times.max()) })
}

const fn answer_name(answer: Answer) -> &'static str {
    match answer {
        Answer::Provisional => "1xx",
        Answer::Success => "2xx",
        Answer::Failure => "other",
    }
}

fn kind_name(kind: Kind) -> String {
    match kind {
        Kind::Request(Verb::Other) => "other".to_owned(),
        Kind::Request(verb) => verb.as_str().to_owned(),
        Kind::Response(status) => status.to_string(),
        Kind::Garbage => "garbage".to_owned(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn per(count: u64, by: f64) -> f64 {
    if by > 0.0 { count as f64 / by } else { 0.0 }
}

fn cpu_per_call(phase: &PhaseReport) -> f64 {
    let calls = accounts_of(phase).carried.max(1);
    phase.cpu.as_secs_f64() * 1e6 / per(calls, 1.0)
}
