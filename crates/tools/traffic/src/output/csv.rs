//! Tables for other programs, with a header line (RFC 4180, with lines that end in LF).

use std::fmt::Write as _;

use super::charts::count_of;
use super::data::RunReport;

/// Returns the slices of a run; rates per second, times in microseconds.
#[must_use]
pub fn intervals(run: &RunReport) -> String {
    let mut text = "at_s,offered,refused,carried,lost,failed,unfinished,repeats,answered,mean_us,p50_us,p90_us,p95_us,p99_us,late_p99_us,unread_p99_us,\
        server_user,server_system,server_resident_bytes,server_drops\n"
        .to_owned();
    let server = run.server.as_ref().map_or(&[][..], |server| &server.rows);
    let half = run.intervals.width_s / 2.0;
    for row in &run.intervals.rows {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "{},{},{},{},{},{},{},{},{},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1}",
            row.at_s,
            row.offered,
            row.refused,
            row.carried,
            row.lost,
            row.failed,
            row.unfinished,
            row.repeats,
            row.answered,
            row.mean_us,
            row.p50_us,
            row.p90_us,
            row.p95_us,
            row.p99_us,
            row.late_p99_us,
            row.unread_p99_us
        );
        // The server is sampled at intervals of its own.
        let beside = server.iter().find(|seen| (seen.at_s - row.at_s).abs() <= half);
        let _ = match beside {
            None => writeln!(text, ",,,,"),
            Some(seen) => {
                let drops = seen.drops.map(|drops| drops.to_string()).unwrap_or_default();
                writeln!(text, ",{:.3},{:.3},{},{drops}", seen.user, seen.system, seen.resident_bytes)
            }
        };
    }
    text
}

/// Returns the distributions of a run: a line for each time that occurred, with the share of times up to it.
#[must_use]
pub fn histograms(run: &RunReport) -> String {
    let mut text = "method,answer,us,count,share\n".to_owned();
    for distribution in &run.distributions {
        let all = count_of(distribution);
        let mut seen = 0_u64;
        for (us, count) in &distribution.us {
            seen = seen.saturating_add(*count);
            #[expect(clippy::cast_precision_loss, reason = "a share")]
            let share = seen as f64 / all.max(1) as f64;
            let _ = writeln!(text, "{},{},{us:.3},{count},{share:.6}", distribution.method, distribution.answer);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::phase_data::example_run;
    use super::*;

    fn table(text: &str) -> Vec<Vec<&str>> {
        text.lines().map(|line| line.split(',').collect()).collect()
    }

    #[test]
    fn every_slice_is_a_line_with_all_columns() {
        let run = RunReport::from_json(&example_run(10, 20)).expect("a report");
        let text = intervals(&run);
        let rows = table(&text);
        assert_eq!(rows.len(), 61);
        assert!(rows.iter().all(|row| row.len() == 20), "{:?}", rows[1]);
        assert_eq!(rows[30][..6], ["30", "10", "0", "9", "0", "1"]);
        assert_eq!(rows[30][14..], ["8.1", "6.0", "0.200", "0.100", "41943040", "0"]);
        let without = RunReport { server: None, ..run };
        assert!(table(&intervals(&without)).iter().all(|row| row.len() == 20));
    }

    #[test]
    fn shares_rise_to_one() {
        let run = RunReport::from_json(&example_run(10, 20)).expect("a report");
        let text = histograms(&run);
        let shares: Vec<f64> =
            table(&text).iter().filter(|row| row[1] == "2xx").map(|row| row[4].parse().expect("a number")).collect();
        assert!(shares.is_sorted() && shares.last() == Some(&1.0), "{shares:?}");
    }
}
