//! Figures from reports of times.

use strowger_timing::{Distribution, MessageReport, Part, TimingReport};

/// Returns a part of a row, if it was measured.
#[must_use]
pub fn part(row: &MessageReport, part: Part) -> Option<&Distribution> {
    row.parts.get(part.key()).filter(|times| times.count > 0)
}

/// Returns the mean of a part, µs.
#[must_use]
pub fn mean_us(row: &MessageReport, of: Part) -> Option<f64> {
    part(row, of).map(|times| times.mean_us)
}

/// Returns the row of a message type.
#[must_use]
pub fn row<'a>(report: &'a TimingReport, message: &str) -> Option<&'a MessageReport> {
    report.messages.iter().find(|row| row.message == message)
}

/// Returns the report without its histograms, for saving.
#[must_use]
pub fn without_histograms(mut report: TimingReport) -> TimingReport {
    report.remove_histograms();
    report
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::report;
    use super::*;

    #[test]
    fn only_measured_parts_have_figures() {
        let found = without_histograms(report(0.1));
        let invite = row(&found, "INVITE").expect("a row");
        assert_eq!((mean_us(invite, Part::Stack), mean_us(invite, Part::WakeUp)), (Some(1.0), None));
        assert!(row(&found, "BYE").is_none() && found.all.parts["k_copy"].histogram.is_empty());
    }
}
