//! What the failover paper's formulas expect of a failure (section 3.7), beside what was measured.

use strowger_interop::failover::Times;
use strowger_plan::{Failover, FailoverTimes, failover};

use super::results::Row;

/// The formulas' results for a way with these times, where all else is as [`FailoverTimes`] has it: servers that are 99 % available and
/// repaired within an hour.
///
/// # Errors
/// When a time makes no sense.
pub fn expected(times: Times) -> Result<Failover, String> {
    let times = FailoverTimes {
        client_retry_s: times.retry.as_secs_f64(),
        dns_ttl_s: times.detection.as_secs_f64(),
        replication_s: times.replication.as_secs_f64(),
        ..FailoverTimes::default()
    };
    failover(times).map_err(|error| error.to_string())
}

/// What call set-up takes longer on the mean of all calls, s, where there is one failure like the measured one in each T_F + T_M.
#[must_use]
pub fn measured_delay_s(row: &Row) -> f64 {
    let times = FailoverTimes::default();
    // The delays of all calls of one failure are its own sum at any rate, divided by the calls of the whole time at that rate.
    row.calls.delay_s / (row.call_rate * (times.failure_s + times.repair_s))
}

/// How many registrations are expected not to have reached the other server when the first dies.
#[must_use]
pub fn expected_away(row: &Row, times: Times) -> f64 {
    row.registration_rate * times.replication.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Clients that each wait for T_R, for as long as T_D, are what the formula is about.
    #[test]
    fn measured_delay_is_the_formulas_where_all_calls_wait_as_it_says() {
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
