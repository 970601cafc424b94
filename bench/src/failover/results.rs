//! What was measured, as it is kept for another run.

use serde::{Deserialize, Serialize};
use strowger_interop::failover::{Fault, METHODS, Method, Outcome, Series};

/// What became of calls, or of registrations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// How many were begun.
    pub offered: u64,
    /// How many did not succeed.
    pub failed: u64,
    /// How many succeeded late.
    pub late: u64,
    /// Seconds from the last good one before to the first good one after.
    pub outage_s: f64,
    /// Seconds that the longest took which succeeded.
    pub longest_s: f64,
    /// Seconds that all that succeeded took longer than the median one, together.
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

/// One way, and one thing that died.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The name of the way.
    pub method: String,
    /// What died.
    pub fault: String,
    /// Calls a second.
    pub call_rate: f64,
    /// Registrations a second.
    pub registration_rate: f64,
    /// Calls.
    pub calls: Requests,
    /// Registrations.
    pub registrations: Requests,
    /// Registrations that were acknowledged.
    pub acknowledged: u64,
    /// Those that the survivor did not have while what died stayed dead.
    pub away: u64,
    /// Those that it did not have either once that was back.
    pub lost: u64,
}

impl Row {
    /// What came of a way under so many calls and registrations a second.
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

/// All that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// In any order.
    pub rows: Vec<Row>,
}

impl Results {
    /// What was measured of this.
    #[must_use]
    pub fn row(&self, method: &dyn Method, fault: Fault) -> Option<&Row> {
        let fault = fault.to_string();
        self.rows.iter().find(|row| row.method == method.name() && row.fault == fault)
    }

    /// Takes a row in the place of an earlier one.
    pub fn put(&mut self, row: Row) {
        self.rows.retain(|old| (&old.method, &old.fault) != (&row.method, &row.fault));
        self.rows.push(row);
    }

    /// Forgets a way.
    pub fn forget(&mut self, method: &dyn Method) {
        self.rows.retain(|row| row.method != method.name());
    }

    /// What there is, way by way.
    pub fn all(&self) -> impl Iterator<Item = (&'static dyn Method, Fault, &Row)> {
        let faults = METHODS.into_iter().flat_map(|method| method.faults().iter().map(move |fault| (method, *fault)));
        faults.filter_map(|(method, fault)| Some((method, fault, self.row(method, fault)?)))
    }
}
