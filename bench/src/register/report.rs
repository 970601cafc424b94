//! The tables, and their place in `bench/RESULTS.md`.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use super::contender::Contender;
use super::process::sync_time;
use super::rounds::{PaceResult, Run, median};
use super::start::{StartResult, StopSignal};

/// Replaces the text between the markers of this name, or appends it with markers.
///
/// # Errors
/// If the file cannot be written.
pub fn replace(file: &Path, name: &str, text: &str) -> io::Result<()> {
    let old = fs::read_to_string(file).unwrap_or_else(|_| "# Results\n".to_owned());
    let (begin, end) = (format!("<!-- {name}: begin -->"), format!("<!-- {name}: end -->"));
    let inside = format!("{begin}\n{}\n{end}", text.trim_end());
    let place = old.find(&begin).zip(old.find(&end).map(|at| at + end.len())).filter(|(from, to)| from < to);
    let new = match place {
        Some((from, to)) => format!("{}{inside}{}", &old[..from], &old[to..]),
        None => format!("{}\n\n{inside}\n", old.trim_end()),
    };
    fs::write(file, new)
}

/// Returns the disk and the other programs as lines of Markdown.
#[must_use]
pub fn surroundings(folder: &Path) -> String {
    let say = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    };
    let disk = say("findmnt", &["-n", "-o", "SOURCE,FSTYPE,OPTIONS", "-T", &folder.display().to_string()]);
    let disk = disk.split_whitespace().collect::<Vec<_>>().join(" ");
    let kamailio = say("kamailio", &["-v"]);
    let kamailio = kamailio.lines().next().unwrap_or("version: none").trim_start_matches("version: ").to_owned();
    let sqlite = say("dpkg-query", &["-W", "-f", "${Version}", "libsqlite3-0"]);
    format!(
        "- Disk: {disk}; {}\n- {kamailio}, its db_sqlite with SQLite {sqlite}\n",
        match sync_time(folder, 200) {
            Ok((middle, most)) =>
                format!("appending 400 bytes and fdatasync takes {middle:.2} ms, at most {most:.2} ms"),
            Err(error) => error.to_string(),
        },
    )
}

fn middle<'a>(runs: impl IntoIterator<Item = &'a PaceResult>, of: impl Fn(&PaceResult) -> f64) -> f64 {
    median(runs.into_iter().map(of).collect())
}

/// Returns the table of saturation and, if measured, that of a given rate.
#[must_use]
pub fn comparison(all: &[(Contender, Result<Vec<Run>, String>)], rate: u32) -> String {
    let mut text = String::from(
        "\n| at saturation | users | REGISTER/s | least to most | of memory | p50 ms | p99 ms | p99.9 ms | CPU µs each | cores | phones' core | switches each | bytes written each | flushes each | memory MiB | 503 | other | lost | sent again | first REGISTER/s | fdatasync ms |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let full_rate = |runs: &[Run]| middle(runs.iter().map(|run| &run.full), |one| one.tally.rate());
    for (contender, runs) in all {
        let runs = match runs {
            Ok(runs) => runs,
            Err(error) => {
                let _ = writeln!(text, "| {contender} | did not run: {} |", error.replace('|', "/"));
                continue;
            }
        };
        let base = all.iter().find_map(|(other, runs)| {
            (other.is_ours() == contender.is_ours() && !other.keeps()).then_some(runs.as_ref().ok()?)
        });
        let rate = full_rate(runs);
        let share = base.map_or("".to_owned(), |base| format!("{:.0} %", 100.0 * rate / full_rate(base)));
        let rates: Vec<f64> = runs.iter().map(|run| run.full.tally.rate()).collect();
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let most = rates.iter().copied().fold(0.0, f64::max);
        let full: Vec<&PaceResult> = runs.iter().map(|run| &run.full).collect();
        let _ = writeln!(
            text,
            "| {contender} | {} | {rate:.0} | {least:.0} to {most:.0} | {share} | {} | {:.0} | {:.2} |",
            runs.first().map_or(0, |run| run.users),
            cells(&full),
            median(runs.iter().map(|run| run.fill.rate()).collect()),
            median(runs.iter().map(|run| run.sync).collect()),
        );
    }
    if rate > 0 {
        let _ = write!(
            text,
            "\n| at {rate} REGISTER/s | REGISTER/s | p50 ms | p99 ms | p99.9 ms | CPU µs each | cores | phones' core | switches each | bytes written each | flushes each | memory MiB | 503 | other | lost | sent again |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        );
        for (contender, runs) in all {
            let open: Vec<&PaceResult> = runs.iter().flatten().filter_map(|run| run.open.as_ref()).collect();
            if !open.is_empty() {
                let rate = middle(open.iter().copied(), |one| one.tally.rate());
                let _ = writeln!(text, "| {contender} | {rate:.0} | {} |", cells(&open));
            }
        }
    }
    text
}

/// Returns the common columns of both tables: times, costs, and the sum of errors.
fn cells(runs: &[&PaceResult]) -> String {
    // With very few responses, costs per response are meaningless.
    let fair: Vec<&PaceResult> = runs.iter().copied().filter(|one| one.tally.taken >= 100).collect();
    let of = |what: &dyn Fn(&PaceResult) -> f64| middle(fair.iter().copied(), what);
    let sum = |what: &dyn Fn(&PaceResult) -> u64| runs.iter().map(|run| what(run)).sum::<u64>();
    format!(
        "{:.2} | {:.2} | {:.2} | {:.1} | {:.2} | {:.2} | {:.2} | {:.0} | {:.3} | {:.0} | {} | {} | {} | {}",
        of(&|one| one.tally.milliseconds(0.5)),
        of(&|one| one.tally.milliseconds(0.99)),
        of(&|one| one.tally.milliseconds(0.999)),
        of(&|one| one.each(one.usage.processor.as_secs_f64() * 1e6)),
        of(&|one| one.usage.processor.as_secs_f64() / one.tally.time.as_secs_f64()),
        of(&|one| one.phones),
        of(&|one| one.each(one.usage.switches as f64)),
        of(&|one| one.each(one.usage.written as f64)),
        of(&|one| one.each(one.flushes as f64)),
        of(&|one| (one.usage.memory + one.usage.shared) as f64 / f64::from(1 << 20)),
        sum(&|one| one.tally.unavailable),
        sum(&|one| one.tally.others),
        sum(&|one| one.tally.lost),
        sum(&|one| one.tally.again),
    )
}

/// A contender, how it was ended, and its starts, or why it did not run.
pub type Starts = (Contender, StopSignal, Result<Vec<StartResult>, String>);

/// Returns the table of starts.
#[must_use]
pub fn starts(all: &[Starts]) -> String {
    let mut text = String::from(
        "\n| start | ended by | bindings before | first answer ms | ready ms | last refusal ms | refused | all there ms | bindings after | missing of the sample | CPU ms to ready | memory before MiB | after MiB | bytes a binding | on disk MiB | stopping ms |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for (contender, end, runs) in all {
        let how = if *end == StopSignal::Stop { "SIGTERM" } else { "kill -9" };
        let runs = match runs {
            Ok(runs) => runs,
            Err(error) => {
                let _ = writeln!(text, "| {contender} | {how} | did not run: {} |", error.replace('|', "/"));
                continue;
            }
        };
        let of = |what: &dyn Fn(&StartResult) -> f64| median(runs.iter().map(what).collect());
        let may = |what: &dyn Fn(&StartResult) -> Option<f64>| {
            let known: Vec<f64> = runs.iter().filter_map(what).collect();
            if known.is_empty() { "–".to_owned() } else { format!("{:.0}", median(known)) }
        };
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        let mib = f64::from(1 << 20);
        let _ = writeln!(
            text,
            "| {contender} | {how} | {:.0} | {:.0} ({}) | {:.0} | {} | {:.0} | {} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {} | {:.0} | {} |",
            of(&|one| one.before as f64),
            of(&|one| ms(one.answered.0)),
            runs.first().map_or(0, |run| run.answered.1),
            of(&|one| ms(one.ready)),
            may(&|one| one.refused.0.map(ms)),
            of(&|one| one.refused.1 as f64),
            may(&|one| one.complete.map(ms)),
            may(&|one| one.after.map(|after| after as f64)),
            of(&|one| f64::from(one.missing)),
            of(&|one| ms(one.processor)),
            of(&|one| one.memory_before as f64 / mib),
            of(&|one| one.memory as f64 / mib),
            may(&|one| contender.keeps().then(|| one.memory as f64 / one.before as f64)),
            of(&|one| one.disk as f64 / mib),
            may(&|one| one.end.map(ms)),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_between_the_markers_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("RESULTS.md");
        fs::write(&file, "# Results\n\nBefore.\n").expect("written");
        for (name, text) in [("a", "first"), ("b", "other"), ("a", "second\n")] {
            replace(&file, name, text).expect("written");
        }
        let text = fs::read_to_string(&file).expect("readable");
        let expected = "# Results\n\nBefore.\n\n<!-- a: begin -->\nsecond\n<!-- a: end -->\n\n<!-- b: begin -->\nother\n<!-- b: end -->\n";
        assert_eq!(text, expected);
    }
}
