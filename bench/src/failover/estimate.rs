//! The failover paper's formulas for a failure (section 3.7), beside the measurements.

use strowger_interop::failover::Times;
use strowger_plan::{Failover, FailoverTimes, failover};

use super::results::Row;

/// Returns the formulas' results for a method with these times and the defaults of [`FailoverTimes`] otherwise:
/// servers with 99 % availability that are repaired within an hour.
///
/// # Errors
/// If a time is invalid.
pub fn expected(times: Times) -> Result<Failover, String> {
    let times = FailoverTimes {
        client_retry_s: times.retry.as_secs_f64(),
        dns_ttl_s: times.detection.as_secs_f64(),
        replication_s: times.replication.as_secs_f64(),
        ..FailoverTimes::default()
    };
    failover(times).map_err(|error| error.to_string())
}

/// Returns the additional call set-up time averaged over all calls, in seconds, with one failure like the measured
/// one per T_F + T_M.
#[must_use]
pub fn measured_delay_s(row: &Row) -> f64 {
    let times = FailoverTimes::default();
    // The sum of the delays during one failure, divided by the number of calls in the whole period at that rate.
    row.calls.delay_s / (row.call_rate * (times.failure_s + times.repair_s))
}

/// Returns the expected number of registrations that have not reached the other server when the first one fails.
#[must_use]
pub fn expected_away(row: &Row, times: Times) -> f64 {
    row.registration_rate * times.replication.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The formula assumes clients that each wait for T_R during T_D.
    #[test]
    fn the_delay_matches_the_formula_under_its_assumptions() {
        let (retry, detection) = (0.5, 2.0);
        let mut row = Row {
            method: String::new(),
            fault: String::new(),
            call_rate: 100.0,
            registration_rate: 50.0,
            calls: super::super::results::Requests::default(),
            registrations: super::super::results::Requests::default(),
            acknowledged: 0,
            away: 0,
            lost: 0,
        };
        row.calls.delay_s = row.call_rate * detection * retry;
        let times = Times {
            retry: Duration::from_secs_f64(retry),
            detection: Duration::from_secs_f64(detection),
            replication: Duration::from_millis(20),
        };
        let expected = expected(times).expect("times that make sense");
        let ratio = measured_delay_s(&row) / expected.setup_delay_s;
        assert!((ratio - 1.0).abs() < 1e-3, "{ratio}");
        assert!((expected_away(&row, times) - 1.0).abs() < 1e-9);
    }
}
