//! What one server of each stage carries, the other stage being none or without limit: C_s and C_p.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::deployment::{Deployment, Environment, QuotaScope};
use super::layout::{Layout, Work};
use super::load::{Offer, Pace, run};
use super::sweep::{Schedule, brief};

/// Calls at once in a closed loop: enough to keep a server busy.
const AT_ONCE: usize = 64;
/// From a closed loop on loads are raised by this factor, so many times at most.
const STEP: f64 = 1.15;
const MOST_LOADS: usize = 8;
/// A server that carries less of what is offered is full.
const CARRIES_ALL: f64 = 0.97;
/// Of so many loads at which it is full the goodput counts.
const BEYOND: usize = 2;

/// Whose capacity it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SingleServer {
    /// C_s, a first-stage server in front of three second-stage servers that are not held.
    First,
    /// C_p, a second-stage server that callers reach directly.
    Second,
}

impl SingleServer {
    /// Both.
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

/// What one server carries.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Capacity {
    /// Whose.
    pub alone: SingleServer,
    /// Of what.
    pub work: Work,
    /// A second, in a closed loop.
    pub closed: f64,
    /// A second, the mean of the first loads beyond saturation: where the line of throughput becomes flat.
    pub rate: f64,
    /// What one costs at saturation, in microseconds of processor time: the quota over the rate.
    pub cost_us: f64,
}

/// Measures it on servers of its own.
///
/// # Errors
/// When a server or a generator does not run.
pub fn measure(alone: SingleServer, work: Work, course: Schedule, place: &Environment) -> Result<Capacity, String> {
    let mut site = Deployment::start(alone.layout(), work, &[], alone.held(), place)?;
    let workload = work.workload();
    let Schedule { fill, warm_up, time } = course;
    let offer =
        Offer { workload: &workload, pace: Pace::AtOnce(AT_ONCE), warm_up: fill, time, registers: true, seed: 500 };
    let closed = run(&mut site, &offer)?.goodput;
    if closed < 1.0 {
        return Err("it carries nothing".to_owned());
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
        return Err(format!("it is not full at {rate:.0}/s"));
    }
    let rate = beyond.iter().sum::<f64>() / BEYOND as f64;
    Ok(Capacity { alone, work, closed, rate, cost_us: 1e4 * place.quota.percent() / rate })
}
