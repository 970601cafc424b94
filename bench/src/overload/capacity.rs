//! The highest call rate that a server carries.

use std::time::Duration;

use super::contender::{Contender, Environment, Mode, Server};
use super::load::{LoadRequest, Outcome, Pace, run};

/// Concurrent calls during warm-up: enough to keep the server busy.
const AT_ONCE: usize = 64;
/// Share of calls that must succeed, in percent.
pub const CARRIED_PERCENT: f64 = 99.9;
/// Maximum 99th percentile from INVITE to 200, in milliseconds: ten periods of the default quota.
pub const P99_MS: f64 = 250.0;
/// First and highest rate of the search, relative to the throughput in a closed loop.
const FIRST: f64 = 0.95;
const HIGHEST: f64 = 1.3;
/// Factor to the next lower rate while no rate has held.
const DOWN: f64 = 0.8;

/// Durations and precision of a search.
#[derive(Clone, Copy, Debug)]
pub struct SearchSettings {
    /// Time until transactions end at the rate at which they begin.
    pub warm_up: Duration,
    /// Duration of each rate.
    pub time: Duration,
    /// Duration at the found rate: a queue that grows by a hundredth of the load shows only after a while.
    pub steady: Duration,
    /// Maximum number of rates.
    pub probes: usize,
    /// Relative distance between a rate that holds and one that does not, at which the search ends.
    pub precision: f64,
}

impl SearchSettings {
    /// Settings of a full run.
    pub const USUAL: Self = Self {
        warm_up: Duration::from_secs(35),
        time: Duration::from_secs(8),
        steady: Duration::from_secs(40),
        probes: 8,
        precision: 0.03,
    };
    /// Settings of a smoke test.
    pub const QUICK: Self = Self {
        warm_up: Duration::from_secs(2),
        time: Duration::from_secs(2),
        steady: Duration::from_secs(2),
        probes: 3,
        precision: 0.15,
    };
}

/// Result of a search.
#[derive(Clone, Copy, Debug)]
pub struct CapacityResult {
    /// Calls per second.
    pub rate: f64,
    /// Throughput in a closed loop.
    pub closed: f64,
    /// 99th percentile from INVITE to 200 at the rate, in milliseconds.
    pub p99_ms: f64,
}

/// Highest rate that held and lowest that did not, so far.
#[derive(Clone, Copy, Debug)]
struct Bracket {
    holds: Option<f64>,
    fails: f64,
}

impl Bracket {
    /// Returns the next rate to try.
    fn next(self) -> f64 {
        match self.holds {
            Some(holds) => (holds * self.fails).sqrt(),
            None => self.fails * DOWN,
        }
    }

    fn is_narrow(self, precision: f64) -> bool {
        self.holds.is_some_and(|holds| self.fails <= holds * (1.0 + precision))
    }
}

/// A server and the state of its search.
struct Search {
    server: Server,
    mode: Mode,
    effort: SearchSettings,
    seed: u64,
}

/// Searches by bisection on a separate, warmed-up server, then steps down to the highest rate that holds for a longer
/// time.
///
/// # Errors
/// If the server does not start, or no rate holds.
pub fn search(
    contender: Contender,
    mode: Mode,
    place: &Environment,
    effort: SearchSettings,
    seed: u64,
) -> Result<CapacityResult, String> {
    let mut search = Search { server: Server::start(contender, mode, place, None)?, mode, effort, seed };
    let closed = search.ask(Pace::AtOnce(AT_ONCE), effort.warm_up, effort.time)?.goodput;
    if closed < 1.0 {
        return Err("the server carries no calls".to_owned());
    }
    let none_holds = || format!("no rate is sustained; the closed loop carried {closed:.0}/s");
    let highest = search.halve(closed)?.ok_or_else(none_holds)?;
    let (rate, p99_ms) = search.step_down(highest)?.ok_or_else(none_holds)?;
    Ok(CapacityResult { rate, closed, p99_ms })
}

impl Search {
    /// Returns the highest rate that holds for a short time.
    fn halve(&mut self, closed: f64) -> Result<Option<f64>, String> {
        let mut bracket = Bracket { holds: None, fails: closed * HIGHEST };
        let mut rate = closed * FIRST;
        for _ in 0..self.effort.probes {
            if holds(&self.try_rate(rate, self.effort.time)?) {
                bracket.holds = Some(rate);
            } else {
                bracket.fails = rate;
            }
            if bracket.is_narrow(self.effort.precision) {
                break;
            }
            rate = bracket.next();
        }
        Ok(bracket.holds)
    }

    /// Returns the highest rate up to `rate` that holds for a long time, and its 99th percentile from INVITE to 200
    /// in milliseconds.
    fn step_down(&mut self, mut rate: f64) -> Result<Option<(f64, f64)>, String> {
        for _ in 0..self.effort.probes {
            let outcome = self.try_rate(rate, self.effort.steady)?;
            if let (true, Some(p99_ms)) = (holds(&outcome), outcome.p99_ms) {
                return Ok(Some((rate, p99_ms)));
            }
            rate *= 1.0 - self.effort.precision;
        }
        Ok(None)
    }

    fn try_rate(&mut self, rate: f64, time: Duration) -> Result<Outcome, String> {
        let outcome = self.ask(Pace::Rate(rate), Duration::from_secs(2), time)?;
        let p99 = outcome.p99_ms.unwrap_or(f64::NAN);
        eprintln!("  {rate:.0}/s for {} s: {:.3} % carried, p99 {p99:.1} ms", time.as_secs(), outcome.carried);
        Ok(outcome)
    }

    fn ask(&mut self, pace: Pace, warm_up: Duration, time: Duration) -> Result<Outcome, String> {
        let ask = LoadRequest { warm_up, time, ..LoadRequest::new(self.mode, pace, self.seed) };
        self.seed += 1;
        run(&mut self.server, &ask)
    }
}

fn holds(outcome: &Outcome) -> bool {
    outcome.carried >= CARRIED_PERCENT && outcome.p99_ms.is_some_and(|p99| p99 <= P99_MS) && !outcome.is_late
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_narrows_from_both_sides() {
        let mut bracket = Bracket { holds: None, fails: 1_000.0 };
        assert!(!bracket.is_narrow(0.03) && bracket.next() < 1_000.0);
        bracket.holds = Some(800.0);
        assert!(bracket.next() > 800.0 && bracket.next() < 1_000.0 && !bracket.is_narrow(0.03));
        bracket.holds = Some(980.0);
        assert!(bracket.is_narrow(0.03));
    }

    #[test]
    fn a_rate_holds_only_with_good_times() {
        let good = Outcome { carried: 100.0, p99_ms: Some(40.0), ..Outcome::default() };
        assert!(holds(&good));
        assert!(!holds(&Outcome { carried: 99.8, ..good }) && !holds(&Outcome { p99_ms: Some(400.0), ..good }));
        assert!(!holds(&Outcome { p99_ms: None, ..good }), "nothing was answered");
    }
}
