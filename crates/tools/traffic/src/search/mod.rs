//! The search for the highest rate, or the largest number of users, at which rules still hold.
//!
//! [`Search`] returns what to try next and receives the result; it runs nothing itself. It climbs by the algorithm of
//! RFC 7502 (§4.10) until a value holds below one that fails, bisects between them down to the requested precision,
//! and confirms the result by several tries. Machines are noisy: a value counts as too high only if it fails
//! repeatedly, and one that fails its confirmation is replaced by a lower one.

mod climb;
mod ports;
mod report;
mod rule;
#[cfg(test)]
mod tests;

use std::fmt;

use climb::Climb;

pub use ports::{callees_at, comes_at};
pub use report::{ProbeResult, SearchReport};
pub(crate) use report::{kept_back, processors};
pub use rule::{Metric, Rule, RuleCheck, RuleError};

/// Quantity that is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchVariable {
    /// Sessions per second.
    Rate,
    /// Number of users, which determines the number of sessions.
    Users,
}

impl SearchVariable {
    /// Formats a value for people.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Rate if value < 100.0 => format!("{}/s", number(value)),
            Self::Rate => format!("{value:.0}/s"),
            Self::Users => format!("{value:.0} users"),
        }
    }
}

/// Formats a number with at most two decimals.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Parameters of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Quantity that is varied.
    pub variable: SearchVariable,
    /// Starting value (the RFC's `r`).
    pub start: f64,
    /// Share by which the value rises on success (`w`), above 0 and at most 1.
    pub up: f64,
    /// Share by which the value falls on failure (`d`), above 0 and below 1.
    pub down: f64,
    /// Successes without progress that end the RFC's algorithm.
    pub rounds: u32,
    /// Highest value to try.
    pub max: f64,
    /// Maximum gap between the highest value that holds and the lowest that fails, as a share of the former. With
    /// `None` the RFC's algorithm alone decides.
    pub precision: Option<f64>,
    /// How often the result must hold.
    pub confirm: u32,
    /// How often a failed value is tried again before it counts as too high.
    pub retries: u32,
    /// Maximum number of probes.
    pub max_probes: u32,
}

impl Settings {
    /// Returns the RFC's own parameters, without additional steps.
    #[must_use]
    pub const fn rfc7502(over: SearchVariable, start: f64) -> Self {
        Self {
            up: 0.10,
            down: rfc7502_down(0.10),
            precision: None,
            confirm: 1,
            retries: 0,
            max_probes: 200,
            ..Self::new(over, start)
        }
    }

    /// Returns the usual parameters: larger steps, then bisection to a hundredth.
    #[must_use]
    pub const fn new(over: SearchVariable, start: f64) -> Self {
        Self {
            variable: over,
            start,
            up: 0.5,
            down: 0.5,
            rounds: 10,
            max: f64::INFINITY,
            precision: Some(0.01),
            confirm: 3,
            retries: 1,
            max_probes: 80,
        }
    }
}

/// Returns the RFC's `d` for this `w`.
//= rfc7502#4.10
// d := max(0.10, w / 2)
#[must_use]
pub const fn rfc7502_down(up: f64) -> f64 {
    (up / 2.0).max(0.10)
}

/// Purpose of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// To find values below and above the result.
    Climb,
    /// To narrow the gap.
    Halve,
    /// To confirm the result.
    Confirm,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Climb => "climb",
            Self::Halve => "halve",
            Self::Confirm => "confirm",
        })
    }
}

/// A value to try.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// Number, from 1.
    pub number: u32,
    /// Rate, or number of users.
    pub at: f64,
    /// Purpose.
    pub stage: Stage,
}

/// Result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All rules hold.
    Holds,
    /// Some rules do not hold.
    Fails,
    /// The generator could not produce the load; this says nothing about the server.
    GeneratorLimited,
}

/// A value that is too high, and for the server or the generator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    /// Lowest value that did not hold.
    pub at: f64,
    /// Whether the generator was the limit.
    pub is_generator: bool,
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The highest value that holds was found.
    Found,
    /// A value holds, and the generator can produce no more.
    GeneratorLimited,
    /// The maximum value holds.
    AtMax,
    /// Even the lowest value does not hold.
    NothingHolds,
    /// The maximum number of probes was reached.
    TooManyProbes,
    /// The search is in progress, or was stopped.
    Stopped,
}

impl Verdict {
    /// Returns the name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::GeneratorLimited => "generator limited",
            Self::AtMax => "at the maximum",
            Self::NothingHolds => "nothing holds",
            Self::TooManyProbes => "too many probes",
            Self::Stopped => "stopped",
        }
    }
}

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchResult {
    /// How it ended.
    pub verdict: Verdict,
    /// Highest value that holds, below all that do not.
    pub at: Option<f64>,
    /// How often it held.
    pub times: u32,
    /// Lowest value that does not hold.
    pub ceiling: Option<Ceiling>,
}

/// A value that held.
#[derive(Clone, Copy, Debug)]
struct PassingValue {
    at: f64,
    times: u32,
}

/// The search. Call [`next_probe`](Self::next_probe) and [`handle_outcome`](Self::handle_outcome) in turn until there
/// is no next probe.
#[derive(Clone, Debug)]
pub struct Search {
    settings: Settings,
    climb: Climb,
    /// In rising order, all below the ceiling.
    held: Vec<PassingValue>,
    ceiling: Option<Ceiling>,
    /// How often the current value has failed, and how often of these because of the generator.
    failures: u32,
    generator_failures: u32,
    probes: u32,
    next: Option<Probe>,
    verdict: Verdict,
}

/// Lowest value to try, as a share of the start.
const LOWEST: f64 = 1e-3;

impl Search {
    /// Starts a search.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let mut search = Self {
            settings,
            climb: Climb::new(&settings),
            held: Vec::new(),
            ceiling: None,
            failures: 0,
            generator_failures: 0,
            probes: 0,
            next: None,
            verdict: Verdict::Stopped,
        };
        search.decide();
        search
    }

    /// Returns the next probe; `None` when the search is over.
    #[must_use]
    pub const fn next_probe(&self) -> Option<Probe> {
        self.next
    }

    /// Handles the result of [`next_probe`](Self::next_probe).
    pub fn handle_outcome(&mut self, outcome: Outcome) {
        let Some(Probe { at, stage, .. }) = self.next else { return };
        self.probes += 1;
        if outcome == Outcome::Holds {
            (self.failures, self.generator_failures) = (0, 0);
            self.on_held(at);
        } else {
            self.failures += 1;
            self.generator_failures += u32::from(outcome == Outcome::GeneratorLimited);
            // A value that does not hold every time is not the result. A failure of the generator may be a
            // disturbance.
            let is_answer = stage == Stage::Confirm && outcome == Outcome::Fails;
            let retries = if is_answer { 0 } else { self.settings.retries };
            if self.failures > retries {
                let is_generator = self.generator_failures == self.failures;
                (self.failures, self.generator_failures) = (0, 0);
                self.on_failed(at, stage, is_generator);
            }
        }
        if self.failures == 0 && stage == Stage::Climb {
            self.climb.handle(at, outcome == Outcome::Holds);
        }
        self.decide();
        self.check_invariants();
    }

    /// Returns the result so far.
    #[must_use]
    pub fn result(&self) -> SearchResult {
        let best = self.held.last();
        SearchResult {
            verdict: self.verdict,
            at: best.map(|held| held.at),
            times: best.map_or(0, |held| held.times),
            ceiling: self.ceiling,
        }
    }

    /// Returns the parameters.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    fn on_held(&mut self, at: f64) {
        match self.held.iter_mut().find(|held| same(held.at, at)) {
            Some(held) => held.times += 1,
            None => {
                self.held.push(PassingValue { at, times: 1 });
                self.held.sort_by(|a, b| a.at.total_cmp(&b.at));
            }
        }
    }

    fn on_failed(&mut self, at: f64, stage: Stage, is_generator: bool) {
        if self.settings.precision.is_none() && !is_generator {
            // The RFC's result is the highest rate that ever held; only a failed confirmation, which goes beyond the
            // RFC, removes it.
            if stage == Stage::Confirm {
                self.held.retain(|held| !same(held.at, at));
            }
            return;
        }
        if self.ceiling.is_none_or(|ceiling| at <= ceiling.at) {
            self.ceiling = Some(Ceiling { at, is_generator });
        }
        self.held.retain(|held| held.at < at && !same(held.at, at));
    }

    /// Determines the next probe.
    fn decide(&mut self) {
        let planned = if self.failures > 0 { self.next.ok_or(Verdict::Stopped) } else { self.plan() };
        let planned = planned.and_then(|probe| {
            let is_too_many = self.probes >= self.settings.max_probes;
            if is_too_many { Err(Verdict::TooManyProbes) } else { Ok(probe) }
        });
        match planned {
            Ok(probe) => self.next = Some(Probe { number: self.probes + 1, ..probe }),
            Err(verdict) => (self.next, self.verdict) = (None, verdict),
        }
    }

    /// Returns the next probe, or how the search ended.
    fn plan(&self) -> Result<Probe, Verdict> {
        let probe = |at, stage| Ok(Probe { number: 0, at, stage });
        let best = self.held.last();
        let Some(precision) = self.settings.precision else { return self.plan_climb() };
        let Some(best) = best else {
            // A confirmation may fail long after the climb; the search continues below.
            let below = self.ceiling.map(|ceiling| ceiling.at * (1.0 - self.settings.down));
            let at = self.round(self.climb.at().min(below.unwrap_or(f64::INFINITY)));
            return if at < self.lowest() { Err(Verdict::NothingHolds) } else { probe(at, Stage::Climb) };
        };
        let Some(ceiling) = self.ceiling else {
            if best.at >= self.settings.max {
                return self.confirm(*best, Verdict::AtMax);
            }
            return probe(self.above(best.at, self.climb.at()), Stage::Climb);
        };
        let gap = ceiling.at - best.at;
        let least = if self.settings.variable == SearchVariable::Users { 1.0 } else { 0.0 };
        // Allows for rounding errors of differences.
        if gap <= (precision * best.at).max(least) * (1.0 + 1e-9) {
            let verdict = if ceiling.is_generator { Verdict::GeneratorLimited } else { Verdict::Found };
            return self.confirm(*best, verdict);
        }
        probe(self.above(best.at, best.at + gap / 2.0), Stage::Halve)
    }

    /// Plans by the RFC's algorithm alone.
    fn plan_climb(&self) -> Result<Probe, Verdict> {
        let at = self.round(self.climb.at());
        let by_generator = self.ceiling.filter(|ceiling| ceiling.is_generator);
        match (by_generator, self.held.last()) {
            (Some(ceiling), _) if at >= ceiling.at => Err(Verdict::GeneratorLimited),
            (_, Some(best)) if best.at >= self.settings.max => self.confirm(*best, Verdict::AtMax),
            (_, Some(best)) if self.climb.has_converged() => self.confirm(*best, Verdict::Found),
            // No value that held could be confirmed.
            (_, None) if self.climb.has_converged() => Err(Verdict::NothingHolds),
            _ if at < self.lowest() => Err(Verdict::NothingHolds),
            _ => Ok(Probe { number: 0, at, stage: Stage::Climb }),
        }
    }

    fn confirm(&self, best: PassingValue, verdict: Verdict) -> Result<Probe, Verdict> {
        if best.times >= self.settings.confirm {
            return Err(verdict);
        }
        Ok(Probe { number: 0, at: best.at, stage: Stage::Confirm })
    }

    fn lowest(&self) -> f64 {
        let lowest = self.settings.start * LOWEST;
        if self.settings.variable == SearchVariable::Users { lowest.max(1.0) } else { lowest }
    }

    /// Works as [`round`](Self::round), but stays above a value that held: for a short step it keeps the digits.
    fn above(&self, held: f64, at: f64) -> f64 {
        let rounded = self.round(at);
        if rounded > held && !same(rounded, held) {
            return rounded;
        }
        let at = if self.settings.variable == SearchVariable::Users { at.floor().max(held + 1.0) } else { at };
        at.min(self.settings.max)
    }

    /// Rounds a value to the digits that the precision needs, so that it is easy to read and retype.
    fn round(&self, at: f64) -> f64 {
        let at = at.min(self.settings.max);
        let step = match self.settings.precision {
            // The RFC counts in whole sessions per second.
            None => 1.0,
            Some(precision) => 10_f64.powf((precision * at / 4.0).log10().floor()),
        };
        let step = if self.settings.variable == SearchVariable::Users { step.max(1.0) } else { step };
        let floor = (at / step + 1e-9).floor() * step;
        if floor > 0.0 && at < self.settings.max { floor } else { at }
    }

    fn check_invariants(&self) {
        debug_assert!(self.held.is_sorted_by(|a, b| a.at < b.at), "{:?}", self.held);
        debug_assert!(
            self.ceiling.is_none_or(|ceiling| self.held.iter().all(|held| held.at < ceiling.at)),
            "{:?} {:?}",
            self.held,
            self.ceiling
        );
    }
}

/// Returns whether two values are equal up to rounding errors.
fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}
