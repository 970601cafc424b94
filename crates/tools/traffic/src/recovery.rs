//! Sections of reports about calls under load, and about the recovery of phones after a power cut.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::engine::PhaseReport;
use crate::metrics::{Calls, Counts, Recovery, SHARES};
use crate::output::percent_of;
use crate::time_histogram::times_json;

/// Adds `calls` if calls were made, and `recovery` if the phase is one of phones.
pub(crate) fn extend(phase: &PhaseReport, top: &mut Map<String, Value>) {
    let calls = &phase.meter().metrics.calls;
    if calls.begun > 0 {
        top.insert("calls".to_owned(), calls_json(calls));
    }
    if let Some(recovery) = &phase.recovery {
        top.insert("recovery".to_owned(), recovery_json(recovery));
    }
}

fn calls_json(calls: &Calls) -> Value {
    json!({ "begun": calls.begun, "answered": calls.answered, "ended_by_bye": calls.ended_by_bye,
        "ended_otherwise": calls.ended_otherwise, "bye_share": calls.bye_share(), "refused_503": calls.refused_503,
        "timed_out": calls.timed_out, "timed_out_408": calls.timed_out_408,
        "refused_otherwise": calls.refused_otherwise, "going_on": calls.in_progress(), "tried_again": calls.tried_again,
        "setup_us": times_json(&calls.setup) })
}

fn recovery_json(recovery: &Recovery) -> Value {
    let times = SHARES.iter().map(|share| {
        let time = recovery.time_of(share / 100.0).map(|time| time.as_secs_f64());
        json!({ "percent": share, "s": time })
    });
    let course = recovery.time_series().into_iter().map(|(at, count)| json!([at.as_secs_f64(), count]));
    let (refreshed, refreshes_failed) = recovery.refreshes();
    json!({ "phones": recovery.phones(), "registered": recovery.registered(), "times": times.collect::<Vec<_>>(),
        "attempts": counts_json(recovery.attempts()), "requests": counts_json(recovery.requests()),
        "refreshed": refreshed, "refreshes_failed": refreshes_failed, "course": course.collect::<Vec<_>>() })
}

fn counts_json(counts: &Counts) -> Value {
    json!({ "mean": counts.mean(), "p50": counts.quantile(0.5), "p99": counts.quantile(0.99), "max": counts.max() })
}

/// Returns the same as text.
pub(crate) fn text(phase: &PhaseReport) -> String {
    let calls = &phase.meter().metrics.calls;
    let mut text = if calls.begun > 0 { calls_text(calls) } else { String::new() };
    if let Some(recovery) = &phase.recovery {
        text.push_str(&recovery_text(recovery));
    }
    text
}

fn calls_text(calls: &Calls) -> String {
    let Calls { answered, ended_by_bye, ended_otherwise, refused_503, timed_out, refused_otherwise, .. } = calls;
    let mut text = format!(
        "  calls answered {answered}, refused with 503 {refused_503}, timed out {timed_out}, otherwise refused {refused_otherwise}, \
         in progress {}\n",
        calls.in_progress(),
    );
    let ended = ended_by_bye + ended_otherwise;
    if ended > 0 {
        // Writing to a String cannot fail.
        let share = percent_of(*ended_by_bye, ended);
        let _ = writeln!(text, "  answered calls that ended {ended}, by an answered BYE {ended_by_bye} ({share} %)");
    }
    if *answered > 0 {
        let times = &calls.setup;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "  setup, INVITE to 200 {answered:>7}  mean {:>9.1?}  p50 {:>9.1?}  p99 {:>9.1?}  max {:>9.1?}",
            times.mean(),
            times.quantile(0.5),
            times.quantile(0.99),
            times.max()
        );
    }
    if calls.tried_again > 0 {
        let _ = writeln!(text, "  retried {} times after the Retry-After of a 503", calls.tried_again);
    }
    text
}

fn recovery_text(recovery: &Recovery) -> String {
    let times = SHARES.iter().map(|share| match recovery.time_of(share / 100.0) {
        Some(time) => format!("{share} % after {:.3} s", time.as_secs_f64()),
        None => format!("{share} % never"),
    });
    let times: Vec<_> = times.collect();
    let counts = |counts: &Counts| {
        format!(
            "mean {:.3}, p50 {}, p99 {}, max {}",
            counts.mean(),
            counts.quantile(0.5),
            counts.quantile(0.99),
            counts.max()
        )
    };
    let mut text = format!(
        "  of {} phones {} registered: {}\n  registration attempts per phone: {}; REGISTERs per phone: {}\n",
        recovery.phones(),
        recovery.registered(),
        times.join(", "),
        counts(recovery.attempts()),
        counts(recovery.requests()),
    );
    let (refreshed, failed) = recovery.refreshes();
    if refreshed + failed > 0 {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  successful refreshes {refreshed}, failed {failed}");
    }
    text
}
