//! A line a second while a run goes on.

use std::time::Duration;

use crate::engine::Progress;
use crate::meter::{Accounts, Answer, Meter};
use crate::metrics::{accounts_of, main_verb};

/// Lines after which the names of the columns come again.
const HEAD_EVERY: usize = 20;

/// What was shown last.
#[derive(Clone, Debug, Default)]
pub struct Live {
    before: Option<(Duration, Accounts, u64)>,
    lines: usize,
}

impl Live {
    /// The line for now, `elapsed` since the run began: rates since the line before, times since the phase began. The names of
    /// the columns stand above it now and then.
    #[must_use]
    pub fn line(&mut self, elapsed: Duration, progress: &Progress) -> String {
        let meter = speaking(progress);
        let accounts = accounts_of(meter);
        let (at, then, repeats) = match self.before {
            // A new phase counts anew.
            Some((at, then, _)) if then.offered > accounts.offered => (at, Accounts::default(), 0),
            before => before.unwrap_or_default(),
        };
        let seconds = elapsed.saturating_sub(at).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let rate = |now: u64, then: u64| if seconds > 0.0 { now.saturating_sub(then) as f64 / seconds } else { 0.0 };
        let times = main_verb(meter).and_then(|verb| meter.answer(verb, Answer::Success));
        let quantile = |share| times.map_or_else(|| "-".to_owned(), |times| short(times.quantile(share)));
        let late = if meter.lateness.count() > 0 { short(meter.lateness.quantile(0.99)) } else { "-".to_owned() };
        let mut text = String::new();
        if self.lines.is_multiple_of(HEAD_EVERY) {
            text.push_str("    time  offered/s  carried/s       lost     failed   going on   again/s        p50        p99   late p99\n");
        }
        let clock = elapsed.as_secs();
        text.push_str(&format!(
            "{:>2}:{:02}:{:02} {:>10.0} {:>10.0} {:>10} {:>10} {:>10} {:>9.0} {:>10} {:>10} {:>10}",
            clock / 3_600,
            clock / 60 % 60,
            clock % 60,
            rate(accounts.offered, then.offered),
            rate(accounts.carried, then.carried),
            accounts.lost,
            accounts.failed,
            accounts.unfinished,
            rate(meter.repeats_sent, repeats),
            quantile(0.5),
            quantile(0.99),
            late,
        ));
        self.lines += 1;
        self.before = Some((elapsed, accounts, meter.repeats_sent));
        text
    }
}

/// The end that began calls, or, where none did, the one that answered some.
fn speaking(progress: &Progress) -> &Meter {
    let Progress { caller, callee, .. } = progress;
    let speaks = |meter: &&Meter| meter.began.offered > 0;
    [caller, callee].into_iter().find(speaks).unwrap_or(if callee.answered.sent > 0 { callee } else { caller })
}

/// A time in few characters.
fn short(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 0.1 => format!("{:.1} ms", s * 1e3),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{Ending, Verb};

    fn calls(progress: &mut Progress, count: u64) {
        for _ in 0..count {
            progress.caller.began.offered += 1;
            progress.caller.on_begin(true);
            progress.caller.on_answer(Verb::Invite, 200, Duration::from_millis(12));
            progress.caller.on_end(true, Ending::Carried, Duration::ZERO);
        }
    }

    #[test]
    fn rates_are_since_the_line_before() {
        let (mut live, mut progress) = (Live::default(), Progress::default());
        calls(&mut progress, 100);
        let first = live.line(Duration::from_secs(1), &progress);
        let (head, line) = first.split_once('\n').expect("a heading first");
        assert_eq!(head.chars().count(), line.chars().count(), "aligned");
        assert!(line.contains("0:00:01") && line.contains(" 100 ") && line.contains("12.1 ms"), "{line}");
        calls(&mut progress, 500);
        let second = live.line(Duration::from_secs(3), &progress);
        assert!(second.contains("0:00:03") && second.contains(" 250 ") && !second.contains('\n'), "{second}");
    }

    #[test]
    fn a_new_phase_begins_anew() {
        let (mut live, mut progress) = (Live::default(), Progress::default());
        calls(&mut progress, 100);
        let _ = live.line(Duration::from_secs(1), &progress);
        let mut next = Progress::default();
        calls(&mut next, 10);
        let line = live.line(Duration::from_secs(2), &next);
        assert!(line.contains(" 10  "), "{line}");
    }
}
