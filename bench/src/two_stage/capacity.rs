//! The capacity of a single server of each stage, C_s and C_p, with the other stage absent or unlimited.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::deployment::{Deployment, Environment, QuotaScope};
use super::layout::{Layout, Work};
use super::load::{Offer, Pace, run};
use super::sweep::{Schedule, brief};

/// Concurrent calls in a closed loop: enough to keep a server busy.
const AT_ONCE: usize = 64;
/// Factor by which the load is raised from the closed-loop rate, and maximum number of increases.
const STEP: f64 = 1.15;
const MOST_LOADS: usize = 8;
/// Share of the offered load below which a server counts as saturated.
const CARRIES_ALL: f64 = 0.97;
/// Number of loads beyond saturation whose goodput counts.
const BEYOND: usize = 2;

/// Stage whose capacity is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SingleServer {
    /// C_s: a first-stage server in front of three second-stage servers without a limit.
    First,
    /// C_p: a second-stage server that callers reach directly.
    Second,
}

impl SingleServer {
    /// Both stages.
    pub const ALL: [Self; 2] = [Self::First, Self::Second];

    const fn layout(self) -> Layout {
        match self {
            Self::First => Layout::new(1, 3, 1),
            Self::Second => Layout::new(0, 1, 1),
        }
    }

    const fn held(self) -> QuotaScope {
        match self {
            Self::First => QuotaScope::First,
            Self::Second => QuotaScope::All,
        }
    }
}

impl fmt::Display for SingleServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "C_s",
            Self::Second => "C_p",
        })
    }
}

/// Capacity of one server.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Capacity {
    /// Stage of the server.
    pub alone: SingleServer,
    /// Kind of work.
    pub work: Work,
    /// Rate per second in a closed loop.
    pub closed: f64,
    /// Rate per second, the mean of the first loads beyond saturation, where throughput stops growing.
    pub rate: f64,
    /// Processor time per unit at saturation, in microseconds: the quota divided by the rate.
    pub cost_us: f64,
}

/// Measures the capacity on separate servers.
///
/// # Errors
/// If a server or a generator does not run.
pub fn measure(alone: SingleServer, work: Work, course: Schedule, place: &Environment) -> Result<Capacity, String> {
    let mut site = Deployment::start(alone.layout(), work, &[], alone.held(), place)?;
    let workload = work.workload();
    let Schedule { fill, warm_up, time } = course;
    let offer =
        Offer { workload: &workload, pace: Pace::AtOnce(AT_ONCE), warm_up: fill, time, registers: true, seed: 500 };
    let closed = run(&mut site, &offer)?.goodput;
    if closed < 1.0 {
        return Err("the server carries no load".to_owned());
    }
    let mut beyond = Vec::new();
    let mut rate = closed;
    for _ in 0..MOST_LOADS {
        rate *= STEP;
        let outcome = run(&mut site, &Offer { pace: Pace::Rate(rate), warm_up, registers: false, ..offer.clone() })?;
        eprintln!("  {}", brief(rate, &outcome));
        if outcome.goodput < CARRIES_ALL * outcome.offered {
            beyond.push(outcome.goodput);
        }
        if beyond.len() == BEYOND {
            break;
        }
    }
    if beyond.len() < BEYOND {
        return Err(format!("the server is not saturated at {rate:.0}/s"));
    }
    let rate = beyond.iter().sum::<f64>() / BEYOND as f64;
    Ok(Capacity { alone, work, closed, rate, cost_us: 1e4 * place.quota.percent() / rate })
}
