//! Output of a search for people and programs.

use std::fmt;

use serde_json::{Value, json};

use super::{Metric, Outcome, Probe, Rule, RuleCheck, SearchResult, SearchVariable, Settings, Verdict};
use crate::engine::Report;
use crate::meter::ResponseClass;
use crate::metrics::main_method;
use crate::output::percent_of;
use crate::report::per;
use crate::time_histogram::TimeHistogram;

/// A probe and its result.
#[derive(Clone, Debug)]
pub struct ProbeResult {
    /// Probe.
    pub probe: Probe,
    /// Quantity that is varied.
    pub variable: SearchVariable,
    /// Result for the search.
    pub outcome: Outcome,
    /// Result of each rule.
    pub checks: Vec<RuleCheck>,
    /// Why the generator could not produce the load.
    pub limit: Option<String>,
    /// Sessions per second that the arrival law demanded.
    pub offered_per_s: f64,
    /// Sessions per second that were carried, up to the last arrival.
    pub carried_per_s: f64,
    /// Sessions that began.
    pub sent: u64,
    /// Sessions that succeeded.
    pub carried: u64,
    /// Times from the main request to its 2xx.
    pub latency: TimeHistogram,
    /// 99th percentile of these times in seconds, with infinity for unanswered requests; `None` without requests.
    pub p99: Option<f64>,
    /// Average CPU use of the server, if it was sampled.
    pub processors: Option<f64>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl ProbeResult {
    /// Judges a run by the rules.
    #[must_use]
    pub fn judge(probe: Probe, over: SearchVariable, rules: &[Rule], report: &Report, seed: u64) -> Self {
        let phase = report.measured();
        let meter = phase.map(|phase| phase.meter().clone()).unwrap_or_default();
        let checks: Vec<_> = rules.iter().map(|rule| rule.check(&meter)).collect();
        let holds = checks.iter().all(|checked| checked.holds);
        let cold = phase.filter(|phase| !phase.is_warm).map(|_| "it ended during warm-up".to_owned());
        let limit = cold.or_else(|| phase?.bottleneck()).or_else(|| kept_back(meter.began.refused).filter(|_| holds));
        let outcome = match (&limit, holds) {
            (Some(_), _) => Outcome::GeneratorLimited,
            (None, true) => Outcome::Holds,
            (None, false) => Outcome::Fails,
        };
        let seconds = phase.map_or(0.0, |phase| phase.elapsed.as_secs_f64());
        let latency = main_method(&meter).and_then(|verb| meter.answer(verb, ResponseClass::Success)).cloned();
        Self {
            probe,
            variable: over,
            outcome,
            checks,
            limit,
            offered_per_s: per(meter.began.offered, seconds),
            carried_per_s: per(phase.map_or(0, |phase| phase.carried_in_time), seconds),
            sent: meter.began.sent,
            carried: meter.began.carried,
            latency: latency.unwrap_or_default(),
            p99: P99.of(&meter),
            processors: processors(report),
            seed,
        }
    }

    fn to_json(&self) -> Value {
        let us = |share| self.latency.quantile(share).as_secs_f64() * 1e6;
        let rules = self.checks.iter().map(|checked| {
            let measured = checked.measured.filter(|value| value.is_finite());
            json!({ "rule": checked.rule.to_string(), "measured": measured, "holds": checked.holds })
        });
        json!({
            "number": self.probe.number, "at": self.probe.at, "stage": self.probe.stage.to_string(),
            "outcome": outcome_name(self.outcome), "rules": rules.collect::<Vec<_>>(), "generator": self.limit,
            "offered_per_s": self.offered_per_s, "carried_per_s": self.carried_per_s, "sent": self.sent,
            "carried": self.carried, "latency_us": { "mean": self.latency.mean().as_secs_f64() * 1e6, "p50": us(0.5),
            "p99": us(0.99) }, "server_processors": self.processors, "seed": self.seed,
        })
    }
}

/// Formats the line of a probe.
impl fmt::Display for ProbeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Probe { number, at, stage } = self.probe;
        let value = self.variable.show(at);
        let outcome = outcome_name(self.outcome);
        write!(f, "{number:>3}  {:<7}  {value:>12}  {outcome:<9}  ", stage.to_string())?;
        if let Some(why) = &self.limit {
            return f.write_str(why);
        }
        for (index, checked) in self.checks.iter().enumerate() {
            write!(f, "{}{checked}", if index > 0 { ", " } else { "" })?;
        }
        // These appear whatever the rules measure: calls that satisfy the rules may have failed or been slow.
        let shows = |what: fn(Metric) -> bool| self.checks.iter().any(|checked| what(checked.rule.metric()));
        if !shows(|metric| matches!(metric, Metric::Success(_) | Metric::Drops)) && self.sent > 0 {
            write!(f, ", success {}%", percent_of(self.carried, self.sent))?;
        }
        if let Some(p99) = self.p99.filter(|_| !shows(|metric| metric == P99)) {
            write!(f, ", p99 {}", P99.show(p99))?;
        }
        self.processors.map_or(Ok(()), |busy| write!(f, ", server {busy:.2} CPU"))
    }
}

const fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Holds => "holds",
        Outcome::Fails => "fails",
        Outcome::GeneratorLimited => "generator",
    }
}

/// Metric that a line shows in addition to the rules.
const P99: Metric = Metric::Quantile(0.99, None);

/// Returns a limit message for calls that were never offered to the server.
pub(crate) fn kept_back(refused: u64) -> Option<String> {
    (refused > 0).then(|| {
        format!(
            "{refused} calls were refused by the generator's limits; raise --max-calls, or use more ports (--sockets)"
        )
    })
}

/// Returns the average CPU use of the sampled server in the measured phase.
pub(crate) fn processors(report: &Report) -> Option<f64> {
    let (server, phase) = (report.server.as_ref()?, report.measured()?);
    Some(server.total(phase.counted_from, phase.elapsed)?.processors())
}

/// A complete search.
#[derive(Clone, Debug)]
pub struct SearchReport {
    /// Rules.
    pub rules: Vec<Rule>,
    /// Parameters.
    pub settings: Settings,
    /// Probes with their results, in order.
    pub probes: Vec<ProbeResult>,
    /// Result.
    pub result: SearchResult,
    /// Workload.
    pub workload: String,
    /// Destination of calls.
    pub to: String,
}

impl SearchReport {
    /// Returns everything for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Settings { variable: over, start, up, down, rounds, max, precision, confirm, retries, max_probes } =
            self.settings;
        let SearchResult { verdict, at, times, ceiling } = self.result;
        json!({
            "search": match over { SearchVariable::Rate => "rate", SearchVariable::Users => "users" },
            "workload": self.workload, "to": self.to,
            "rules": self.rules.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "verdict": verdict.as_str(), "found": at, "held_times": times,
            "too_high": ceiling.map(|ceiling| json!({ "at": ceiling.at, "is_generator": ceiling.is_generator })),
            "settings": { "start": start, "up": up, "down": down, "rounds": rounds, "max": max.is_finite().then_some(max),
                "precision": precision, "confirm": confirm, "retries": retries, "max_probes": max_probes },
            "probes": self.probes.iter().map(ProbeResult::to_json).collect::<Vec<_>>(),
        })
    }

    /// Returns the result in a sentence.
    ///
    /// # Errors
    /// The sentence, if it is no answer: the limit was the generator's and not the server's, nothing holds, or the
    /// search was stopped.
    pub fn sentence(&self) -> Result<String, String> {
        let over = self.settings.variable;
        let rules = self.rules.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let SearchResult { verdict, at, times, ceiling } = self.result;
        let held = match at {
            Some(at) => {
                format!("{} hold{} {rules}", over.show(at), if over == SearchVariable::Rate { "s" } else { "" })
            }
            None => format!("no probe satisfied {rules}"),
        };
        let too_high = ceiling.map(|ceiling| over.show(ceiling.at));
        match (verdict, at) {
            (Verdict::Found, Some(_)) => {
                let beyond = too_high.map(|value| format!("; {value} does not")).unwrap_or_default();
                Ok(format!("{held} ({}){beyond}", times_text(times)))
            }
            (Verdict::AtMax, Some(_)) => Ok(format!("{held}, the highest value allowed (--max)")),
            (Verdict::GeneratorLimited, Some(at)) => {
                let limit = self.probes.iter().rev().find_map(|probed| probed.limit.clone()).unwrap_or_default();
                Err(format!(
                    "at least {}: {held}, but the generator cannot reach {}. {limit}",
                    over.show(at),
                    too_high.unwrap_or_default()
                ))
            }
            (Verdict::TooManyProbes, _) => Err(format!(
                "no result after {} probes; so far, {held}. Use longer probes (--time), which vary less, or more (--max-probes)",
                self.probes.len()
            )),
            (Verdict::Stopped, _) => Err(format!("stopped before the end; so far, {held}")),
            (_, _) if ceiling.is_some_and(|ceiling| ceiling.is_generator) => Err(format!(
                "the generator cannot even reach {}: {}",
                too_high.unwrap_or_default(),
                self.probes.iter().rev().find_map(|probed| probed.limit.clone()).unwrap_or_default()
            )),
            (_, _) => {
                let lowest = self.probes.iter().map(|probed| probed.probe.at).fold(f64::INFINITY, f64::min);
                Err(format!("{held}, down to {}; does the workload run at all (strowger load run)?", over.show(lowest)))
            }
        }
    }
}

fn times_text(times: u32) -> String {
    match times {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        times => format!("{times} times"),
    }
}
