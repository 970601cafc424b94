//! The loads of a scenario.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::proxy::peer::Peer;
use crate::proxy::scenario::Scenario;

/// Load offered to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Load {
    /// Rate per second, with Poisson arrivals.
    Rate(u32),
    /// Closed loop with this many calls or registrations: a new one begins when one ends.
    Saturation(u32),
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Saturation(count) => write!(f, "saturation ({count} at once)"),
            Self::Rate(rate) => write!(f, "{rate}/s"),
        }
    }
}

/// Loads and their durations.
#[derive(Clone, Debug)]
pub struct Loads {
    /// Concurrent calls at saturation.
    pub outstanding: u32,
    /// The other loads, per second; a server begins with the last.
    pub rates: Vec<u32>,
    /// Time until a server counts as in the steady state.
    pub warm_up: Duration,
    /// Measured time of each load.
    pub time: Duration,
    /// Whether this is a smoke test.
    pub is_quick: bool,
}

/// A step of a run: a load, the beginning of which is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Offered load.
    pub load: Load,
    /// Whether it is the scenario's [beginning](Scenario::beginning).
    pub is_first: bool,
    /// Initial time that is not counted.
    pub settle: Duration,
    /// Counted time.
    pub time: Duration,
}

impl Step {
    /// Returns the total duration.
    #[must_use]
    pub const fn length(&self) -> Duration {
        self.settle.saturating_add(self.time)
    }
}

/// Initial time that is not counted if the load is the same as before.
pub(crate) const BREATH: Duration = Duration::from_secs(1);

/// Returns the steps of a server's run.
#[must_use]
pub fn steps(scenario: Scenario, peer: Peer, loads: &Loads) -> Vec<Step> {
    let step = |load, settle, time| Step { load, is_first: false, settle, time };
    let saturation = Load::Saturation(loads.outstanding * scenario.crowd());
    let mut rates = loads.rates.clone();
    let brief = loads.is_quick || peer == Peer::Relay;
    if brief {
        // The relay needs no warm-up.
        let (settle, time) = (Duration::from_secs(1), loads.time.min(Duration::from_secs(4)));
        let all = rates.into_iter().map(Load::Rate).chain([saturation]);
        return all.map(|load| step(load, settle, time)).collect();
    }
    // Skipped for variants of Strowger: it is measured with the default already.
    let beginning = peer.difference().is_none().then(|| scenario.beginning());
    let first = |load, time| Step { load, is_first: true, settle: Duration::ZERO, time };
    let mut steps = Vec::new();
    let mut since = Duration::ZERO;
    if peer == Peer::Apart {
        rates.clear();
    }
    if scenario.is_call() {
        // The highest rate comes first, before and in the steady state.
        rates.reverse();
        if let Some(time) = beginning {
            steps.push(first(Load::Rate(rates.first().copied().unwrap_or(loads.outstanding)), time));
            since = time;
        }
    }
    let begun = steps.len();
    // At saturation no worker sleeps, so one that never sleeps has no advantage.
    let full = (peer != Peer::Awake).then_some(saturation);
    for load in rates.into_iter().map(Load::Rate).chain(full) {
        let is_last = matches!(load, Load::Saturation(_));
        let is_next = steps.len() == begun && scenario.is_call() && !is_last;
        let cold = if is_next || is_last { loads.warm_up.saturating_sub(since) } else { Duration::ZERO };
        let fill = if is_next { Duration::ZERO } else { scenario.fill(is_last) };
        let mut settle = fill.max(cold);
        since += settle + loads.time;
        if let Some(time) = beginning.filter(|_| is_last && !scenario.is_call()) {
            steps.push(first(load, time));
            settle = settle.saturating_sub(time).max(BREATH);
        }
        steps.push(step(load, settle, loads.time));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads() -> Loads {
        let seconds = Duration::from_secs;
        Loads { outstanding: 64, rates: vec![1_000, 3_000], warm_up: seconds(40), time: seconds(8), is_quick: false }
    }

    #[test]
    fn a_server_is_warm_before_it_is_compared() {
        for scenario in Scenario::ALL {
            for peer in [Peer::Strowger, Peer::Kamailio] {
                let steps = steps(scenario, peer, &loads());
                let last = steps.last().expect("there are some");
                let at_once = if scenario.is_call() { 64 } else { 256 };
                assert_eq!(last.load, Load::Saturation(at_once), "{scenario}");
                let before: Duration = steps[..steps.len() - 1].iter().map(Step::length).sum();
                assert!(before + last.settle >= Duration::from_secs(40), "{scenario}: {steps:?}");
            }
        }
    }

    #[test]
    fn variants_are_warm_and_run_only_what_differs() {
        for scenario in Scenario::ALL {
            let paced = |step: &Step| matches!(step.load, Load::Rate(_));
            let awake = steps(scenario, Peer::Awake, &loads());
            assert_eq!((awake.len(), awake.iter().all(paced)), (2, true), "{scenario}: {awake:?}");
            let apart = steps(scenario, Peer::Apart, &loads());
            assert_eq!((apart.len(), apart.iter().any(paced)), (1, false), "{scenario}: {apart:?}");
            let first = if scenario.is_call() { awake[0] } else { apart[0] };
            assert!(first.settle >= Duration::from_secs(40) && !first.is_first, "{scenario}: {first:?}");
        }
    }

    #[test]
    fn the_first_seconds_are_compared_with_the_same_load_when_warm() {
        for scenario in [Scenario::Call, Scenario::Stateless] {
            let steps = steps(scenario, Peer::Strowger, &loads());
            assert!(steps[0].is_first && steps[0].settle.is_zero(), "{steps:?}");
            assert_eq!(steps[0].load, steps[1].load);
            assert!(steps[0].time + steps[1].settle >= Duration::from_secs(40), "{steps:?}");
            assert!(steps[1..].iter().all(|step| !step.is_first));
        }
        for scenario in [Scenario::Register, Scenario::Challenge] {
            let steps = steps(scenario, Peer::Strowger, &loads());
            let [rates @ .., first, warm] = steps.as_slice() else { panic!("{steps:?}") };
            assert!(first.is_first && first.settle.is_zero() && first.time >= Duration::from_secs(32), "{steps:?}");
            assert_eq!(first.load, warm.load);
            assert!(rates.iter().all(|step| !step.is_first && step.load != warm.load), "{steps:?}");
        }
    }

    #[test]
    fn a_load_that_keeps_transactions_lasts_until_they_end() {
        for step in steps(Scenario::Call, Peer::Kamailio, &loads()).iter().skip(1) {
            assert!(step.settle >= Duration::from_secs(30), "{step:?}");
        }
    }

    #[test]
    fn quick_is_quick() {
        let quick = Loads { is_quick: true, time: Duration::from_secs(1), ..loads() };
        for scenario in Scenario::ALL {
            let all: Duration = steps(scenario, Peer::Kamailio, &quick).iter().map(Step::length).sum();
            assert!(all <= Duration::from_secs(8), "{scenario}: {all:?}");
        }
    }
}
