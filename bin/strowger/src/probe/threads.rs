//! Table of a program's threads.

use strowger_timing::proc::ThreadUse;

use crate::table::columns;
use crate::text::count;

/// Formats the busiest threads below a blank line; empty if there are none.
#[expect(clippy::cast_precision_loss, reason = "a time of 100 days is exact")]
pub(super) fn text(threads: &[ThreadUse], seconds: f64, most: usize) -> String {
    if threads.is_empty() || most == 0 || seconds <= 0.0 {
        return String::new();
    }
    let head = ["thread", "processor", "waited for one", "µs each time", "gave up /s", "taken away /s"];
    let width = threads.iter().take(most).map(|one| name(one).chars().count()).max().unwrap_or(0).max(head[0].len());
    let percent = |nanos: u64| format!("{:.1} %", nanos as f64 / 1e7 / seconds);
    let rows: Vec<Vec<String>> = threads
        .iter()
        .take(most)
        .map(|one| {
            vec![
                format!("{:<width$}", name(one)),
                percent(one.cpu_ns),
                percent(one.runnable_ns),
                format!("{:.1}", one.runnable_ns as f64 / 1e3 / one.slices.max(1) as f64),
                format!("{:.0}", one.voluntary as f64 / seconds),
                format!("{:.0}", one.involuntary as f64 / seconds),
            ]
        })
        .collect();
    let mut head = head.map(str::to_owned);
    head[0] = format!("{:<width$}", head[0]);
    let more = threads.len().saturating_sub(most);
    let more = if more > 0 { format!("and {} less busy (--top)", count(more as u64, "thread")) } else { String::new() };
    format!("\n\n{}{more}", columns(&head, &rows)).trim_end().to_owned()
}

fn name(one: &ThreadUse) -> String {
    if one.pid == one.thread {
        format!("{} {}", one.name, one.pid)
    } else {
        format!("{} {}/{}", one.name, one.pid, one.thread)
    }
}
