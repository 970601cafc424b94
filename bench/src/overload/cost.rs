//! Cost of overload control without overload: calls at saturation with and without it, alternating.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::contender::{Contender, Environment, Mode, Server};
use super::load::{LoadRequest, Pace, run};
use crate::quota::Quota;
use crate::register::rounds::median;

/// Concurrent calls: enough to keep the server busy, and few enough that none waits long.
const AT_ONCE: usize = 64;

/// Processor time per call on a whole core in microseconds, measured in succession.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Cost {
    /// With overload control.
    pub control_us: f64,
    /// With `overload.control = false`.
    pub plain_us: f64,
}

impl Cost {
    /// Returns the additional cost of a call with control, in percent.
    #[must_use]
    pub fn percent(&self) -> f64 {
        100.0 * (self.control_us / self.plain_us - 1.0)
    }
}

/// Durations of a run.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Initial time that is not counted.
    pub warm_up: Duration,
    /// Counted time.
    pub time: Duration,
}

impl Schedule {
    /// Schedule of a full run.
    pub const USUAL: Self = Self { warm_up: Duration::from_secs(3), time: Duration::from_secs(6) };
    /// Schedule of a smoke test.
    pub const QUICK: Self = Self { warm_up: Duration::from_secs(1), time: Duration::from_secs(2) };
}

/// Measures both, in reverse order every second time.
///
/// # Errors
/// If a server or the generator does not run.
pub fn turn(place: &Environment, course: Schedule, number: u64) -> Result<Cost, String> {
    let whole = Quota { quota_us: place.quota.period_us, ..place.quota };
    let place = Environment { quota: whole, ..place.clone() };
    let measure = |contender| {
        let ask = LoadRequest {
            warm_up: course.warm_up,
            time: course.time,
            drain: Duration::from_secs(1),
            ..LoadRequest::new(Mode::Udp, Pace::AtOnce(AT_ONCE), 7 + number)
        };
        let outcome = run(&mut Server::start(contender, Mode::Udp, &place, None)?, &ask)?;
        Ok::<_, String>(1e6 * outcome.processors / outcome.goodput.max(1.0))
    };
    if number.is_multiple_of(2) {
        let control_us = measure(Contender::Control)?;
        Ok(Cost { control_us, plain_us: measure(Contender::Plain)? })
    } else {
        let plain_us = measure(Contender::Plain)?;
        Ok(Cost { control_us: measure(Contender::Control)?, plain_us })
    }
}

/// Returns the median over pairs of the additional cost of a call with control, in percent.
#[must_use]
pub fn median_percent(costs: &[Cost]) -> Option<f64> {
    (!costs.is_empty()).then(|| median(costs.iter().map(Cost::percent).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_disturbed_pair_does_not_count() {
        let pair = |control_us| Cost { control_us, plain_us: 20.0 };
        let percent = median_percent(&[pair(20.1), pair(30.0), pair(20.2)]).expect("pairs");
        assert!((percent - 1.0).abs() < 1e-9, "{percent}");
        assert_eq!(median_percent(&[]), None);
    }
}
