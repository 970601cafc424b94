//! Results as they are saved for another run.

use serde::{Deserialize, Serialize};
use strowger_interop::failover::{Fault, METHODS, Method, Outcome, Series};

/// Results of calls or registrations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// Number of attempts.
    pub offered: u64,
    /// Number of failures.
    pub failed: u64,
    /// Number of late successes.
    pub late: u64,
    /// Seconds from the last success before the failure to the first success after it.
    pub outage_s: f64,
    /// Longest duration of a success, in seconds.
    pub longest_s: f64,
    /// Sum of the successes' delays above the median, in seconds.
    pub delay_s: f64,
}

impl From<Series> for Requests {
    fn from(series: Series) -> Self {
        Self {
            offered: series.offered,
            failed: series.failed,
            late: series.late,
            outage_s: series.outage.as_secs_f64(),
            longest_s: series.longest.as_secs_f64(),
            delay_s: series.delay.as_secs_f64(),
        }
    }
}

/// Results of one method and one fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the method.
    pub method: String,
    /// What failed.
    pub fault: String,
    /// Calls per second.
    pub call_rate: f64,
    /// Registrations per second.
    pub registration_rate: f64,
    /// Calls.
    pub calls: Requests,
    /// Registrations.
    pub registrations: Requests,
    /// Registrations that were acknowledged.
    pub acknowledged: u64,
    /// Acknowledged registrations missing at the survivor during the failure.
    pub away: u64,
    /// Acknowledged registrations still missing after the recovery.
    pub lost: u64,
}

impl Row {
    /// Creates the results of a method at these rates of calls and registrations.
    #[must_use]
    pub fn new(
        method: &dyn Method,
        fault: Fault,
        (call_rate, registration_rate): (f64, f64),
        outcome: &Outcome,
    ) -> Self {
        Self {
            method: method.name().to_owned(),
            fault: fault.to_string(),
            call_rate,
            registration_rate,
            calls: outcome.calls.into(),
            registrations: outcome.registrations.into(),
            acknowledged: outcome.acknowledged,
            away: outcome.away,
            lost: outcome.lost,
        }
    }
}

/// All results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Results in any order.
    pub rows: Vec<Row>,
}

impl Results {
    /// Returns the results of a method and a fault.
    #[must_use]
    pub fn row(&self, method: &dyn Method, fault: Fault) -> Option<&Row> {
        let fault = fault.to_string();
        self.rows.iter().find(|row| row.method == method.name() && row.fault == fault)
    }

    /// Adds a row, replacing an earlier one.
    pub fn put(&mut self, row: Row) {
        self.rows.retain(|old| (&old.method, &old.fault) != (&row.method, &row.fault));
        self.rows.push(row);
    }

    /// Removes the results of a method.
    pub fn forget(&mut self, method: &dyn Method) {
        self.rows.retain(|row| row.method != method.name());
    }

    /// Returns all results, ordered by method.
    pub fn all(&self) -> impl Iterator<Item = (&'static dyn Method, Fault, &Row)> {
        let faults = METHODS.into_iter().flat_map(|method| method.faults().iter().map(move |fault| (method, *fault)));
        faults.filter_map(|(method, fault)| Some((method, fault, self.row(method, fault)?)))
    }
}
