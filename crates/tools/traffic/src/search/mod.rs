//! The search for the highest rate, or the largest number of users, at which rules still hold.
//!
//! [`Search`] says what to try next and is told what came of it; it runs nothing itself. It climbs by the algorithm of
//! RFC 7502 (§4.10) until it has seen a value that holds below one that does not, halves what lies between down to the precision that is
//! wanted, and tries what it has found several times. Machines are noisy: a value counts as too high only when it fails again,
//! and one that fails its confirmation is given up for a lower one.

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

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchVariable {
    /// Sessions a second.
    Rate,
    /// Users, whose number says how many sessions there are.
    Users,
}

impl SearchVariable {
    /// A value of it, for people.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Rate if value < 100.0 => format!("{}/s", number(value)),
            Self::Rate => format!("{value:.0}/s"),
            Self::Users => format!("{value:.0} users"),
        }
    }
}

/// At most two digits behind the point.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// How it searches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// What is varied.
    pub variable: SearchVariable,
    /// Where it begins (the RFC's `r`).
    pub start: f64,
    /// By what share it rises on success (`w`), above 0 and at most 1.
    pub up: f64,
    /// By what share it falls on failure (`d`), above 0 and below 1.
    pub down: f64,
    /// Successes without progress that end the RFC's algorithm.
    pub rounds: u32,
    /// Nothing above this is tried.
    pub max: f64,
    /// How close the highest value that holds and the lowest that does not must come, as a share of the former. `None`: the
    /// RFC's algorithm alone decides.
    pub precision: Option<f64>,
    /// How often the result must hold.
    pub confirm: u32,
    /// How often a value that failed is tried again before it counts as too high.
    pub retries: u32,
    /// Tries at most.
    pub max_probes: u32,
}

impl Settings {
    /// The RFC's own parameters, and nothing behind its algorithm.
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

    /// What is usual: larger steps, then halving to a hundredth.
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

/// The RFC's `d`, where `w` is this.
//= rfc7502#4.10
// d := max(0.10, w / 2)
#[must_use]
pub const fn rfc7502_down(up: f64) -> f64 {
    (up / 2.0).max(0.10)
}

/// Why it tries something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// To find values below and above what is sought.
    Climb,
    /// To come closer.
    Halve,
    /// To be sure.
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

/// What is to be tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// Counts from 1.
    pub number: u32,
    /// The rate, or the users.
    pub at: f64,
    /// Why.
    pub stage: Stage,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All rules hold.
    Holds,
    /// Some do not.
    Fails,
    /// The generator could not do what was asked: it says nothing of the server.
    GeneratorLimited,
}

/// What is too high, and for whom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    /// The lowest value that did not hold.
    pub at: f64,
    /// It was the generator that could not.
    pub is_generator: bool,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// With the highest value that holds.
    Found,
    /// With one that holds, and above which the generator can do no more.
    GeneratorLimited,
    /// With the highest value that was allowed; it holds.
    AtMax,
    /// Even the lowest value does not hold.
    NothingHolds,
    /// After as many tries as were allowed.
    TooManyProbes,
    /// It has not ended yet, or was ended from outside.
    Stopped,
}

impl Verdict {
    /// The name, as reports have it.
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

/// What is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchResult {
    /// How it ended.
    pub verdict: Verdict,
    /// The highest value that holds, below all that do not.
    pub at: Option<f64>,
    /// How often that held.
    pub times: u32,
    /// What does not hold.
    pub ceiling: Option<Ceiling>,
}

/// A value that held.
#[derive(Clone, Copy, Debug)]
struct PassingValue {
    at: f64,
    times: u32,
}

/// The search. [`next_probe`](Self::next_probe) and [`handle_outcome`](Self::handle_outcome) take turns until there is no
/// next one.
#[derive(Clone, Debug)]
pub struct Search {
    settings: Settings,
    climb: Climb,
    /// In rising order, all below the ceiling.
    held: Vec<PassingValue>,
    ceiling: Option<Ceiling>,
    /// How often the value that is tried now has failed, and of those, for the generator's sake.
    failures: u32,
    generator_failures: u32,
    probes: u32,
    next: Option<Probe>,
    verdict: Verdict,
}

/// The lowest that is tried, as a share of the start.
const LOWEST: f64 = 1e-3;

impl Search {
    /// Begins.
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

    /// What to try; `None` when it is over.
    #[must_use]
    pub const fn next_probe(&self) -> Option<Probe> {
        self.next
    }

    /// What came of [`next_probe`](Self::next_probe).
    pub fn handle_outcome(&mut self, outcome: Outcome) {
        let Some(Probe { at, stage, .. }) = self.next else { return };
        self.probes += 1;
        if outcome == Outcome::Holds {
            (self.failures, self.generator_failures) = (0, 0);
            self.on_held(at);
        } else {
            self.failures += 1;
            self.generator_failures += u32::from(outcome == Outcome::GeneratorLimited);
            // What does not hold each time is not what is sought; the generator may have been disturbed.
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

    /// What is known so far.
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

    /// How it searches.
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
            // The RFC's result is the highest rate that ever held; only what is asked of it beyond the RFC takes it away.
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

    /// Settles what is next.
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

    /// What to try, or how it ended.
    fn plan(&self) -> Result<Probe, Verdict> {
        let probe = |at, stage| Ok(Probe { number: 0, at, stage });
        let best = self.held.last();
        let Some(precision) = self.settings.precision else { return self.plan_climb() };
        let Some(best) = best else {
            // A confirmation may have failed long after the climb: it goes on below.
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
        // Differences of fractions are not exact.
        if gap <= (precision * best.at).max(least) * (1.0 + 1e-9) {
            let verdict = if ceiling.is_generator { Verdict::GeneratorLimited } else { Verdict::Found };
            return self.confirm(*best, verdict);
        }
        probe(self.above(best.at, best.at + gap / 2.0), Stage::Halve)
    }

    /// The RFC's algorithm alone.
    fn plan_climb(&self) -> Result<Probe, Verdict> {
        let at = self.round(self.climb.at());
        let by_generator = self.ceiling.filter(|ceiling| ceiling.is_generator);
        match (by_generator, self.held.last()) {
            (Some(ceiling), _) if at >= ceiling.at => Err(Verdict::GeneratorLimited),
            (_, Some(best)) if best.at >= self.settings.max => self.confirm(*best, Verdict::AtMax),
            (_, Some(best)) if self.climb.has_converged() => self.confirm(*best, Verdict::Found),
            // Nothing that held could be confirmed.
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

    /// As [`round`](Self::round), but above what has held: where the step is short, its digits stay.
    fn above(&self, held: f64, at: f64) -> f64 {
        let rounded = self.round(at);
        if rounded > held && !same(rounded, held) {
            return rounded;
        }
        let at = if self.settings.variable == SearchVariable::Users { at.floor().max(held + 1.0) } else { at };
        at.min(self.settings.max)
    }

    /// A value with no more digits than the precision asks for, so that it is read and typed again easily.
    fn round(&self, at: f64) -> f64 {
        let at = at.min(self.settings.max);
        let step = match self.settings.precision {
            // The RFC counts in whole sessions a second.
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

/// Whether two values are the same but for rounding.
fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}
