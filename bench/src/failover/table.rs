//! The tables of `bench/FAILOVER.md`.

use std::fmt::Write as _;

use strowger_interop::failover::{LATE, METHODS};

use super::estimate::{expected, expected_away, measured_delay_s};
use super::results::{Requests, Results};

const MICROSECONDS: f64 = 1e6;

/// Returns the table of methods.
#[must_use]
pub fn ways() -> String {
    let line =
        |method: &dyn strowger_interop::failover::Method| format!("- `{}`: {}\n", method.name(), method.describe());
    METHODS.map(line).concat()
}

/// Returns the table of what callers noticed.
#[must_use]
pub fn noticed(results: &Results) -> String {
    let mut text = format!(
        "| way | what died | calls | failed | > {} ms | outage s | longest s | registrations | failed | > {} ms | outage s | \
         longest s | acknowledged | away | lost |\n|---|---|{}\n",
        LATE.as_millis(),
        LATE.as_millis(),
        "---:|".repeat(13)
    );
    for (method, fault, row) in results.all() {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {fault} | {} | {} | {} | {} | {} |",
            method.name(),
            requests(&row.calls),
            requests(&row.registrations),
            row.acknowledged,
            row.away,
            row.lost
        );
    }
    text
}

fn requests(of: &Requests) -> String {
    let Requests { offered, failed, late, outage_s, longest_s, .. } = of;
    format!("{offered} | {failed} | {late} | {outage_s:.2} | {longest_s:.2}")
}

/// Returns the table of the formulas' values beside the measured ones.
#[must_use]
pub fn beside_formulas(results: &Results) -> String {
    let mut text = format!(
        "| way | what died | T_R s | T_D s | outage of calls s | set-up longer on the mean, µs: measured | T_R(1−R)(1−e^(−T_D/T_M)) | T_d ms | \
         away | rate·T_d | 1−e^(−T_d/T_F) |\n|---|---|{}\n",
        "---:|".repeat(9)
    );
    for (method, fault, row) in results.all() {
        let Some(times) = method.times(fault) else { continue };
        let Ok(expected) = expected(times) else { continue };
        let _ = writeln!(
            text,
            "| {} | {fault} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} | {} | {:.1} | {:.1e} |",
            method.name(),
            times.retry.as_secs_f64(),
            times.detection.as_secs_f64(),
            row.calls.outage_s,
            measured_delay_s(row) * MICROSECONDS,
            expected.setup_delay_s * MICROSECONDS,
            times.replication.as_secs_f64() * 1e3,
            row.away,
            expected_away(row, times),
            expected.lost_registration,
        );
    }
    text
}
