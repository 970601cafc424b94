//! Runs of the load generator and their reports.

use serde_json::Value;

use super::{CommandResult, Folder};

/// Runs `strowger` with these arguments, and returns its report and its other output. On a busy machine the generator
/// may be late, which is exit code 1.
pub(crate) fn report(folder: &Folder, arguments: &[&str]) -> (Value, CommandResult) {
    let ran = folder.run(&[arguments, &["--json", "report.json"]].concat());
    assert!(ran.code == Some(0) || ran.err.contains("bottleneck"), "{arguments:?}: {ran:?}");
    (folder.json("report.json"), ran)
}

/// Does the same for a run whose counts add up.
pub(crate) fn sound_report(folder: &Folder, arguments: &[&str]) -> (Value, CommandResult) {
    let (report, ran) = report(folder, arguments);
    assert_adds_up(&report);
    (report, ran)
}

pub(crate) fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"))
}

/// Asserts `offered = sent + refused` and `sent = carried + lost + failed + unfinished`.
pub(crate) fn assert_adds_up(report: &Value) {
    let n = |name| number(report, name);
    assert_eq!(n("offered"), n("sent") + n("refused"), "{report}");
    assert_eq!(n("sent"), n("carried") + n("lost") + n("failed") + n("unfinished"), "{report}");
}
