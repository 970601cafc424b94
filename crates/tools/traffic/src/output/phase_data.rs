//! Data of a phase in a report's JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, json};
use strowger_foundation::Timestamp;

use super::data::{Confidence, Distribution, IntervalRow, Intervals, MetricRow, Server, ServerRow};
use super::format::float;
use crate::meter::Meter;
use crate::metrics::{Figure, Metrics, Series, Slice, Value, main_method};
use crate::process_usage::{ServerSeries, Usage};
use crate::statistics::batch_means;

/// Confidence level of intervals.
const LEVEL: f64 = 0.95;

/// Data of a phase.
#[derive(Clone, Copy, Debug)]
pub struct PhaseData<'a> {
    /// Counts of the end that began the calls.
    pub meter: &'a Meter,
    /// Metrics of RFC 6076 at that end.
    pub metrics: &'a Metrics,
    /// Slices.
    pub series: &'a Series,
    /// Beginning, after the warm-up.
    pub from: Timestamp,
    /// Time from there to the last arrival.
    pub elapsed: Duration,
    /// Calls carried within that time.
    pub carried_in_time: u64,
    /// Server, if it is on this machine.
    pub server: Option<&'a ServerSeries>,
}

impl PhaseData<'_> {
    /// Adds `rfc6076`, `intervals`, `distributions`, `confidence`, and `server` if there is one.
    pub fn extend(&self, report: &mut Map<String, serde_json::Value>) {
        let intervals = self.intervals();
        report.insert("confidence".to_owned(), json!(self.confidence(&intervals)));
        report.insert("intervals".to_owned(), json!(intervals));
        report.insert("rfc6076".to_owned(), json!(self.metrics.figures().iter().map(metric_row).collect::<Vec<_>>()));
        report.insert("distributions".to_owned(), json!(self.distributions()));
        if let Some(server) = self.server {
            report.insert("server".to_owned(), json!(self.server(server)));
        }
    }

    fn intervals(&self) -> Intervals {
        let width_s = self.series.width().as_secs_f64();
        let rows = self.series.slices().iter().enumerate();
        Intervals {
            width_s,
            latency_of: main_method(self.meter).map(|verb| verb.as_str().to_owned()).unwrap_or_default(),
            rows: rows.map(|(index, slice)| interval_row(slice, float(index as u64 + 1) * width_s)).collect(),
        }
    }

    /// Returns means with confidence intervals, from the slices that lie entirely before the last arrival.
    fn confidence(&self, intervals: &Intervals) -> BTreeMap<&'static str, Confidence> {
        let elapsed_s = self.elapsed.as_secs_f64() + 1e-3;
        let rows: Vec<_> = intervals.rows.iter().filter(|row| row.at_s <= elapsed_s).collect();
        let answered = || rows.iter().filter(|row| row.answered > 0);
        let carried = self.series.slices().iter().take(rows.len());
        let series: [(_, Vec<f64>); 3] = [
            ("carried_per_s", carried.map(|slice| float(slice.ended_well()) / intervals.width_s).collect()),
            ("latency_mean_us", answered().map(|row| row.mean_us).collect()),
            ("latency_p99_us", answered().map(|row| row.p99_us).collect()),
        ];
        series.into_iter().filter_map(|(name, values)| Some((name, batch_means(&values, LEVEL)?.into()))).collect()
    }

    fn distributions(&self) -> Vec<Distribution> {
        let rows = self.meter.answers().map(|(verb, answer, times)| Distribution {
            method: verb.as_str().to_owned(),
            answer: answer.name().to_owned(),
            us: times
                .histogram()
                .iter_recorded()
                .map(|row| (float(row.value_iterated_to()) / 1e3, u64::from(row.count_at_value())))
                .collect(),
        });
        rows.collect()
    }

    /// Returns the resource use of the server.
    #[must_use]
    pub fn server(&self, seen: &ServerSeries) -> Server {
        let rows: Vec<ServerRow> =
            seen.during(self.from, self.elapsed, self.series.width()).iter().map(server_row).collect();
        let total = seen.total(self.from, self.elapsed).unwrap_or_default();
        // Share of the calls that falls into the sampled time.
        let elapsed = self.elapsed.as_secs_f64();
        let part = if elapsed > 0.0 { total.time.as_secs_f64() / elapsed } else { 0.0 };
        let calls = float(self.carried_in_time) * part;
        let per_call = |value: f64| if calls > 0.0 { value / calls } else { 0.0 };
        Server {
            name: seen.name.clone(),
            pid: seen.pid,
            processes: seen.samples.iter().map(|sample| sample.processes).max().unwrap_or(0),
            successors: seen.successors.clone(),
            is_gone: seen.is_gone,
            processors: total.processors(),
            cpu_us_per_call: per_call((total.user + total.system).as_secs_f64() * 1e6),
            switches_per_call: per_call(float(total.voluntary + total.involuntary)),
            drops: total.drops,
            peak_bytes: rows.iter().map(|row| row.resident_bytes).max().unwrap_or(0).max(total.resident_bytes),
            rows,
        }
    }
}

fn metric_row(figure: &Figure<'_>) -> MetricRow {
    let mut row = MetricRow {
        name: figure.name.to_owned(),
        title: figure.title.to_owned(),
        section: figure.section.to_owned(),
        unit: figure.unit.to_owned(),
        ..MetricRow::default()
    };
    match figure.value {
        Value::Ratio(ratio) => row.value = ratio,
        Value::Times(times) => {
            row.count = Some(times.count());
            if times.count() > 0 {
                let scale = if figure.unit == "ms" { 1e3 } else { 1.0 };
                let shown = |time: Duration| Some(time.as_secs_f64() * scale);
                let at = |share| shown(times.quantile(share));
                (row.value, row.max) = (shown(times.mean()), shown(times.max()));
                (row.p50, row.p95, row.p99) = (at(0.5), at(0.95), at(0.99));
            }
        }
    }
    row
}

fn interval_row(slice: &Slice, at_s: f64) -> IntervalRow {
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    IntervalRow {
        at_s,
        offered: slice.offered,
        refused: slice.refused,
        carried: slice.carried,
        lost: slice.lost,
        failed: slice.failed,
        unfinished: slice.unfinished,
        repeats: slice.repeats,
        answered: slice.latency.count(),
        mean_us: us(slice.latency.mean()),
        p50_us: us(slice.latency.quantile(0.5)),
        p90_us: us(slice.latency.quantile(0.9)),
        p95_us: us(slice.latency.quantile(0.95)),
        p99_us: us(slice.latency.quantile(0.99)),
        late_p99_us: us(slice.lateness.quantile(0.99)),
        unread_p99_us: us(slice.unread.quantile(0.99)),
    }
}

fn server_row(usage: &Usage) -> ServerRow {
    let time = usage.time.as_secs_f64();
    let per_s = |value: f64| if time > 0.0 { value / time } else { 0.0 };
    ServerRow {
        at_s: usage.at.as_secs_f64(),
        user: per_s(usage.user.as_secs_f64()),
        system: per_s(usage.system.as_secs_f64()),
        resident_bytes: usage.resident_bytes,
        voluntary_per_s: per_s(float(usage.voluntary)),
        involuntary_per_s: per_s(float(usage.involuntary)),
        interrupts_per_s: per_s(float(usage.interrupts)),
        soft_interrupts_per_s: per_s(float(usage.soft_interrupts)),
        major_faults: usage.major_faults,
        drops: usage.drops,
        machine_drops: usage.machine_drops,
    }
}

/// Returns a run for the tests of this folder: sixty seconds of calls, one of them failed, with a sampled server.
#[cfg(test)]
pub(super) fn example_run(calls_per_s: u64, answer_ms: u64) -> serde_json::Value {
    use crate::meter::ResponseClass;
    use crate::script::{MethodId, SessionResult};
    let (mut meter, mut series) = (Meter::default(), Series::default());
    let mut metrics = Metrics::default();
    for second in 1..=60 {
        for number in 0..calls_per_s + second % 3 {
            meter.began.offered += 1;
            meter.on_begin(true);
            let time = Duration::from_millis(answer_ms) + Duration::from_micros(97 * number);
            meter.on_answer(MethodId::Invite, 180, time / 2);
            meter.on_answer(MethodId::Invite, 200, time);
            metrics.srd_successful.record(time);
            (metrics.invites, metrics.invites_successful) = (metrics.invites + 1, metrics.invites_successful + 1);
            meter.lateness.record(Duration::from_micros(8));
            meter.unread.record(Duration::from_micros(6));
            let is_bad = number == 0 && second == 30;
            meter.on_end(true, if is_bad { SessionResult::Refused(503) } else { SessionResult::Carried }, time);
        }
        series.record(Duration::from_secs(second), &meter, &meter.unread);
    }
    let sample = |second: u64| crate::process_usage::Sample {
        at: Timestamp::from_millis(1_000 * second),
        user: Duration::from_millis(200 * second),
        system: Duration::from_millis(100 * second),
        resident_bytes: 40 << 20,
        voluntary: 1_000 * second,
        drops: Some(second / 20),
        ..crate::process_usage::Sample::default()
    };
    let samples = (0..=60).map(sample).collect();
    let server = ServerSeries { pid: 4_711, name: "strowger".to_owned(), samples, ..ServerSeries::default() };
    let elapsed = Duration::from_secs(60);
    let accounts = meter.began;
    let mut report = match json!({
        "workload": "proxy-200", "arrivals": "poisson at 10/s", "to": "udp:127.0.0.1:5060", "seed": 7,
        "declared": { "sigma": "1" }, "elapsed_s": 60.0,
        "offered": accounts.offered, "sent": accounts.sent, "carried": accounts.carried, "failed": accounts.failed,
        "offered_per_s": float(accounts.offered) / 60.0, "carried_per_s": float(accounts.carried) / 60.0,
        "carried_share": float(accounts.carried) / float(accounts.sent),
        "failures": { "refused with 503": 1 },
        "answers": [{ "method": "INVITE", "answer": "2xx", "us": us_of(meter.answer(MethodId::Invite, ResponseClass::Success)) }],
        "messages_sent": { "INVITE": accounts.sent }, "samples": ["SIP/2.0 200 <b>&\"OK\"</b>"], "unexpected": 1,
        "generator": { "lateness_us": us_of(Some(&meter.lateness)), "unread_us": us_of(Some(&meter.unread)),
            "cpu_us_per_call": 12.5, "bottleneck": null },
    }) {
        serde_json::Value::Object(map) => map,
        _ => Map::new(),
    };
    let parts = PhaseData {
        meter: &meter,
        metrics: &metrics,
        series: &series,
        from: Timestamp::ZERO,
        elapsed,
        carried_in_time: accounts.carried,
        server: Some(&server),
    };
    parts.extend(&mut report);
    serde_json::Value::Object(report)
}

#[cfg(test)]
fn us_of(times: Option<&crate::time_histogram::TimeHistogram>) -> serde_json::Value {
    let Some(times) = times else { return json!({}) };
    let at = |share| times.quantile(share).as_secs_f64() * 1e6;
    json!({ "count": times.count(), "mean": times.mean().as_secs_f64() * 1e6, "p50": at(0.5), "p90": at(0.9), "p95": at(0.95), "p99": at(0.99) })
}

#[cfg(test)]
mod tests {
    use super::super::data::RunReport;
    use super::*;

    #[test]
    fn measurements_are_read_from_json() {
        let run = RunReport::from_json(&example_run(10, 20)).expect("a report");
        assert_eq!((run.intervals.rows.len(), run.intervals.width_s), (60, 1.0));
        let row = run.intervals.rows[29];
        assert_eq!((row.at_s, row.offered, row.carried, row.failed), (30.0, 10, 9, 1));
        assert!((row.p50_us / 20_388.0 - 1.0).abs() < 0.02, "{row:?}");
        assert_eq!(run.intervals.rows.iter().map(|row| row.offered).sum::<u64>(), run.offered);
        let success = run.distributions.iter().find(|row| row.answer == "2xx").expect("answers");
        assert_eq!(success.us.iter().map(|(_, count)| count).sum::<u64>(), run.offered);
        let ser = run.rfc6076.iter().find(|row| row.name == "SER").expect("a metric");
        assert_eq!((ser.value, ser.unit.as_str(), ser.section.as_str()), (Some(100.0), "%", "4.6"));
        let srd = run.rfc6076.iter().find(|row| row.name == "SRD").expect("a metric");
        assert!((srd.value.expect("measured") - 0.0205).abs() < 0.001, "in seconds: {srd:?}");
        let rrd = run.rfc6076.iter().find(|row| row.name == "RRD").expect("a metric");
        assert_eq!((rrd.value, rrd.count), (None, Some(0)), "nobody registered");
    }

    #[test]
    fn server_usage_is_computed_per_call() {
        let run = RunReport::from_json(&example_run(10, 20)).expect("a report");
        let server = run.server.expect("watched");
        assert!((server.processors - 0.3).abs() < 1e-9, "{}", server.processors);
        let expected = 0.3 * 60.0 * 1e6 / float(run.carried);
        assert!((server.cpu_us_per_call / expected - 1.0).abs() < 1e-6, "{}", server.cpu_us_per_call);
        assert_eq!((server.drops, server.rows.len(), server.peak_bytes), (Some(3), 60, 40 << 20));
    }

    #[test]
    fn means_have_confidence_intervals() {
        let run = RunReport::from_json(&example_run(10, 20)).expect("a report");
        let carried = run.confidence["carried_per_s"];
        assert!((carried.mean - run.carried_per_s).abs() < 1e-9 && carried.half_width < 0.1, "{carried:?}");
        assert_eq!((carried.batches, carried.level), (20, 0.95));
    }

    #[test]
    fn other_json_is_rejected() {
        let error = RunReport::from_json(&json!({ "calls": 3 })).expect_err("no report");
        assert!(error.to_string().contains("load run --json"), "{error}");
    }
}
