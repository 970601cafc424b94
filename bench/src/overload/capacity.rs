//! The highest rate of calls that a server carries.

use std::time::Duration;

use super::contender::{Contender, Environment, Mode, Server};
use super::load::{LoadRequest, Outcome, Pace, run};

/// Calls at once while the server is made warm: enough to keep it busy.
const AT_ONCE: usize = 64;
/// The share of calls that must be carried, in percent.
pub const CARRIED_PERCENT: f64 = 99.9;
/// What the 99th percentile of INVITE to 200 may be, in milliseconds: ten periods of the usual quota.
pub const P99_MS: f64 = 250.0;
/// The first rate that is tried, and the highest that is thought possible, as parts of the throughput in a closed loop.
const FIRST: f64 = 0.95;
const HIGHEST: f64 = 1.3;
/// The parts of a rate that failed that are tried when none has held yet.
const DOWN: f64 = 0.8;

/// How long each part of a search takes.
#[derive(Clone, Copy, Debug)]
pub struct SearchSettings {
    /// Until as many transactions end as begin.
    pub warm_up: Duration,
    /// Of each rate.
    pub time: Duration,
    /// Of the rate that is found: a queue that grows by a hundredth of the load shows only after a while.
    pub steady: Duration,
    /// Rates at most.
    pub probes: usize,
    /// The step between what holds and what does not, at which it ends, as a part of the rate.
    pub precision: f64,
}

impl SearchSettings {
    /// For figures.
    pub const USUAL: Self = Self {
        warm_up: Duration::from_secs(35),
        time: Duration::from_secs(8),
        steady: Duration::from_secs(40),
        probes: 8,
        precision: 0.03,
    };
    /// For trying.
    pub const QUICK: Self = Self {
        warm_up: Duration::from_secs(2),
        time: Duration::from_secs(2),
        steady: Duration::from_secs(2),
        probes: 3,
        precision: 0.15,
    };
}

/// What was found.
#[derive(Clone, Copy, Debug)]
pub struct CapacityResult {
    /// Calls a second.
    pub rate: f64,
    /// The throughput with a new call for each that ends.
    pub closed: f64,
    /// INVITE to 200 at the rate, in milliseconds.
    pub p99_ms: f64,
}

/// What holds and what does not, so far.
#[derive(Clone, Copy, Debug)]
struct Bracket {
    holds: Option<f64>,
    fails: f64,
}

impl Bracket {
    /// The next rate to try.
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

/// A server, and what is asked of it one after another.
struct Search {
    server: Server,
    mode: Mode,
    effort: SearchSettings,
    seed: u64,
}

/// Searches by halving, on a server of its own that has been made warm, and from there down to what holds for longer.
///
/// # Errors
/// When the server does not start, or no rate holds.
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
        return Err("it carries nothing".to_owned());
    }
    let none_holds = || format!("no rate holds; {closed:.0}/s were carried in a closed loop");
    let highest = search.halve(closed)?.ok_or_else(none_holds)?;
    let (rate, p99_ms) = search.step_down(highest)?.ok_or_else(none_holds)?;
    Ok(CapacityResult { rate, closed, p99_ms })
}

impl Search {
    /// The highest rate that holds for a short time.
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

    /// The highest rate up to this one that holds for long, and its 99th percentile of INVITE to 200 in milliseconds.
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
