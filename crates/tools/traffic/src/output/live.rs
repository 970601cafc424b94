//! Terminal output during a run: a status line that is rewritten in place, and permanent lines of figures.

use std::time::Duration;

use crate::engine::{Load, Plan, Progress};
use crate::meter::{Meter, OutcomeCounts, ResponseClass};
use crate::metrics::{accounts_of, main_method};

/// Lines after which the column heads are repeated.
const HEAD_EVERY: usize = 20;
/// Width of the progress bar in characters.
const BAR: usize = 24;

/// Added to a countdown, so that it shows the second that has begun.
const ALMOST: Duration = Duration::from_millis(999);

/// What the progress of a phase is computed from.
#[derive(Clone, Debug)]
struct Stage {
    name: String,
    is_measured: bool,
    begins_calls: bool,
    calls: Option<u64>,
    time: Option<Duration>,
    warm_up: Duration,
}

/// State of the live output.
#[derive(Clone, Debug, Default)]
pub struct LiveStatus {
    stages: Vec<Stage>,
    before: Option<(Duration, OutcomeCounts, u64)>,
    lines: usize,
}

impl LiveStatus {
    /// Creates the output for a run of a plan.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let stages = plan.phases.iter().map(|phase| Stage {
            name: phase.name.clone(),
            is_measured: phase.is_measured,
            begins_calls: !matches!(phase.load, Load::None),
            calls: phase.calls,
            time: phase.time,
            warm_up: phase.warm_up,
        });
        Self { stages: stages.collect(), ..Self::default() }
    }

    /// Returns whether the current counts, `since` the phase began, belong to the measurement; only then is a
    /// [`line`](Self::line) meaningful.
    #[must_use]
    pub fn is_measuring(&self, phase: usize, since: Duration) -> bool {
        self.stages.get(phase).is_none_or(|stage| stage.is_measured && since >= stage.warm_up)
    }

    /// Returns the progress of a phase that began `since` ago.
    #[must_use]
    pub fn status(&self, phase: usize, since: Duration, is_stopping: bool, progress: &Progress) -> String {
        let accounts = accounts_of(speaking(progress));
        let going_on = grouped(accounts.unfinished);
        if is_stopping {
            return format!("stopping: {going_on} calls in progress; press Ctrl-C again to end at once");
        }
        let Some(stage) = self.stages.get(phase) else { return String::new() };
        if since < stage.warm_up {
            let part = since.as_secs_f64() / stage.warm_up.as_secs_f64();
            return format!("warm-up {} {} s of {} s", bar(part), since.as_secs(), stage.warm_up.as_secs());
        }
        let since = since - stage.warm_up;
        let name = if stage.is_measured { "measuring" } else { stage.name.as_str() };
        let done = if stage.is_measured { accounts.offered } else { accounts.carried };
        let is_over =
            stage.time.is_some_and(|time| since >= time) || stage.calls.is_some_and(|calls| accounts.offered >= calls);
        if !stage.begins_calls {
            let answered = grouped(accounts.offered);
            return format!("answering: {answered} calls so far, {going_on} in progress; Ctrl-C ends the run");
        }
        if is_over && stage.is_measured {
            return format!("draining: {going_on} calls in progress");
        }
        match (stage.time, stage.calls) {
            (Some(time), _) => {
                let left = time.saturating_sub(since);
                let part = since.as_secs_f64() / time.as_secs_f64().max(1e-9);
                format!("{name} {} {} left, {going_on} calls in progress", bar(part), clock(left + ALMOST))
            }
            (None, Some(calls)) => {
                #[expect(clippy::cast_precision_loss, reason = "for people")]
                let part = done as f64 / calls.max(1) as f64;
                let left =
                    remaining(since, part).map(|left| format!(", {} left", clock(left + ALMOST))).unwrap_or_default();
                format!("{name} {} {} of {}{left}", bar(part), grouped(done), grouped(calls))
            }
            (None, None) => format!("{name}: {} calls, {going_on} in progress; Ctrl-C ends the run", grouped(done)),
        }
    }

    /// Restarts the counts, `elapsed` since the run began.
    pub fn begin(&mut self, elapsed: Duration) {
        self.before = Some((elapsed, OutcomeCounts::default(), 0));
    }

    /// Returns the line for this moment, `elapsed` since the run began: rates since the line before, times since the
    /// phase began. The column heads precede it at intervals.
    #[must_use]
    pub fn line(&mut self, elapsed: Duration, progress: &Progress) -> String {
        let meter = speaking(progress);
        let accounts = accounts_of(meter);
        let (at, then, repeats) = match self.before {
            // A new phase restarts the counts.
            Some((at, then, _)) if then.offered > accounts.offered => (at, OutcomeCounts::default(), 0),
            before => before.unwrap_or_default(),
        };
        let seconds = elapsed.saturating_sub(at).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let rate = |now: u64, then: u64| if seconds > 0.0 { now.saturating_sub(then) as f64 / seconds } else { 0.0 };
        let times = main_method(meter).and_then(|verb| meter.answer(verb, ResponseClass::Success));
        let quantile = |share| times.map_or_else(|| "-".to_owned(), |times| short(times.quantile(share)));
        let late = if meter.lateness.count() > 0 { short(meter.lateness.quantile(0.99)) } else { "-".to_owned() };
        let mut text = String::new();
        if self.lines.is_multiple_of(HEAD_EVERY) {
            text.push_str("    time  offered/s  carried/s       lost     failed     active retrans/s        p50        p99   late p99\n");
        }
        text.push_str(&format!(
            "{:>8} {:>10.0} {:>10.0} {:>10} {:>10} {:>10} {:>9.0} {:>10} {:>10} {:>10}",
            clock(elapsed),
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

/// Returns the meter of the end that began calls, or, if none did, of the one that answered.
fn speaking(progress: &Progress) -> &Meter {
    let Progress { caller, callee, .. } = progress;
    let speaks = |meter: &&Meter| meter.began.offered > 0;
    [caller, callee].into_iter().find(speaks).unwrap_or(if callee.answered.sent > 0 { callee } else { caller })
}

/// Returns the estimated remaining time.
fn remaining(since: Duration, part: f64) -> Option<Duration> {
    let begun = part > 0.01 && since > Duration::from_secs(1);
    let left = begun.then(|| since.as_secs_f64() * (1.0 / part - 1.0))?;
    Duration::try_from_secs_f64(left.max(0.0)).ok()
}

/// Formats a time as hours, minutes and seconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Draws a progress bar.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a few characters"
)]
fn bar(part: f64) -> String {
    let full = ((part.clamp(0.0, 1.0) * BAR as f64).round() as usize).min(BAR);
    format!("{}{}", "━".repeat(full), "·".repeat(BAR - full))
}

/// Formats a number with a comma every three digits.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a time in few characters.
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
    use crate::script::{MethodId, SessionResult};

    fn calls(progress: &mut Progress, count: u64) {
        for _ in 0..count {
            progress.caller.began.offered += 1;
            progress.caller.on_begin(true);
            progress.caller.on_answer(MethodId::Invite, 200, Duration::from_millis(12));
            progress.caller.on_end(true, SessionResult::Carried, Duration::ZERO);
        }
    }

    #[test]
    fn rates_cover_the_last_interval() {
        let (mut live, mut progress) = (LiveStatus::default(), Progress::default());
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
    fn the_status_shows_phase_progress() {
        use crate::options::{Options, Target, workload};
        let to = Target::parse("udp:127.0.0.1:5060").expect("sound");
        let mut options = Options::new(workload("proxy-200").expect("built in"), Some(to), 7);
        (options.users, options.rate, options.warm_up) = (10_000, 100.0, Duration::from_secs(10));
        options.time = Some(Duration::from_secs(60));
        let (plan, _) = options.plan().expect("a plan");
        let live = LiveStatus::new(&plan);
        let mut progress = Progress::default();
        (progress.callee.began.offered, progress.callee.began.carried) = (3_100, 3_000);
        let second = Duration::from_secs;
        let status = live.status(0, Duration::from_millis(500), false, &progress);
        assert!(status.starts_with("registering ━━━━━━━·") && status.ends_with(" 3,000 of 10,000"), "{status}");
        assert!(
            live.status(0, second(3), false, &progress).ends_with("0:00:07 left"),
            "{}",
            live.status(0, second(3), false, &progress)
        );
        let mut progress = Progress::default();
        calls(&mut progress, 400);
        assert!(
            !live.is_measuring(0, second(20)) && !live.is_measuring(1, second(4)) && live.is_measuring(1, second(12))
        );
        assert!(live.status(1, second(4), false, &progress).ends_with("4 s of 10 s"));
        let status = live.status(1, second(25), false, &progress);
        assert!(status.starts_with("measuring ━") && status.contains("0:00:45 left"), "{status}");
        progress.caller.began.unfinished = 7;
        assert_eq!(live.status(1, second(70), false, &progress), "draining: 7 calls in progress");
        assert!(live.status(1, second(30), true, &progress).starts_with("stopping: 7 calls"));
    }

    #[test]
    fn rates_restart_per_phase() {
        let (mut live, mut progress) = (LiveStatus::default(), Progress::default());
        calls(&mut progress, 100);
        let _ = live.line(Duration::from_secs(1), &progress);
        let mut next = Progress::default();
        calls(&mut next, 10);
        let line = live.line(Duration::from_secs(2), &next);
        assert!(line.contains(" 10  "), "{line}");
    }
}
