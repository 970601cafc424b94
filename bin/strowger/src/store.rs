//! Storage of registrations, for `ctl status`.

use strowger_control::protocol::{Checkpoint, Disk, EarlierState, Store};

use crate::text::{clock, count, number, size};

/// State of a store.
pub(crate) const OK: &str = "ok";
pub(crate) const LOADING: &str = "loading";
pub(crate) const OPENING: &str = "opening";
pub(crate) const FAILING: &str = "failing";

pub(crate) fn shown(store: &Store) -> String {
    let mut lines = vec![format!("{}: {}", store.mode, state(store))];
    if store.state != OK {
        lines.extend(store.why.clone());
        lines.extend(store.remedy.as_ref().map(|remedy| format!("→ {remedy}")));
    }
    if let Some(disk) = &store.disk {
        lines.extend(disk_lines(disk, &store.state));
    }
    lines.join("\n")
}

fn state(store: &Store) -> String {
    let is_promised = store.mode == "write-through";
    let meanwhile = if is_promised { "REGISTER gets 503, calls continue" } else { "registrations are in memory only" };
    match store.state.as_str() {
        OK if store.mode == "memory" => "registrations are lost when the server stops".to_owned(),
        OK => "ok".to_owned(),
        LOADING => {
            let percent = store.loading.map_or_else(String::new, |share| format!(" ({:.0} %)", share * 100.0));
            format!("LOADING{percent}: REGISTER gets 503, as do calls to addresses that are not loaded yet")
        }
        OPENING => "NOT OPEN: REGISTER gets 503, as do calls to addresses that are not registered".to_owned(),
        _ => {
            let time = store.failing_s.map_or_else(String::new, |time| format!(" for {}", clock(time)));
            format!("FAILING{time}: {meanwhile}")
        }
    }
}

fn disk_lines(disk: &Disk, state: &str) -> Vec<String> {
    let mut lines = vec![
        match state {
            OPENING => "journal and database are not read yet".to_owned(),
            _ => format!("{}; {}", journal(disk, state), checkpoint(&disk.checkpoint)),
        },
        commits(disk),
    ];
    if let Some(why) = &disk.checkpoint.failing {
        lines.push(format!("CHECKPOINT FAILS: {why}"));
    }
    let counters = [
        (disk.waiting, format!("{} waiting for a commit", count(disk.waiting, "record"))),
        (disk.unwritten, format!("{} waiting for the disk", count(disk.unwritten, "address"))),
        (disk.refused, format!("{} refused with 503", number(disk.refused))),
        (disk.late, format!("{} of them after the timeout", number(disk.late))),
        (disk.lost, format!("{} lost", count(disk.lost, "change"))),
        (disk.faults, format!("{}, recovered from {}", count(disk.faults, "fault"), number(disk.recoveries))),
    ];
    let counted: Vec<String> = counters.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
    if !counted.is_empty() {
        lines.push(counted.join(", "));
    }
    lines.extend(found(&disk.found));
    lines
}

fn journal(disk: &Disk, state: &str) -> String {
    // While the store fails, disk figures are not updated.
    let as_of = if state == FAILING { " (last known)" } else { "" };
    format!("journal {} in {}{as_of}", size(disk.journal_bytes), count(disk.journal_segments, "file"))
}

fn checkpoint(checkpoint: &Checkpoint) -> String {
    let last = match checkpoint.last_s {
        Some(ago) => format!("checkpoint {} ago", clock(ago)),
        None => "no checkpoint since start".to_owned(),
    };
    let behind = match checkpoint.segments_behind {
        0 => String::new(),
        files => format!(", {} behind", count(files, "file")),
    };
    format!("{last}, {} in the database{behind}", count(checkpoint.rows, "address"))
}

fn commits(disk: &Disk) -> String {
    if disk.groups == 0 {
        return "no commits since start".to_owned();
    }
    format!(
        "{} of {}: p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
        count(disk.groups, "commit"),
        count(disk.records, "record"),
        disk.commit_p50_ms,
        disk.commit_p99_ms,
        disk.commit_longest_ms
    )
}

fn found(found: &EarlierState) -> Vec<String> {
    let mut lines = Vec::new();
    if found.is_complete {
        let mut line = format!("at start: {} loaded in {:.1} s", count(found.loaded, "contact"), found.took_s);
        if found.expired > 0 {
            line.push_str(&format!(", {} left out", count(found.expired, "expired address")));
        }
        lines.push(line);
    }
    if found.skipped > 0 {
        lines.push(format!("DAMAGED: {} could not be read", count(found.skipped, "record")));
    }
    lines.extend(found.damage.iter().map(|damage| format!("DAMAGED: {damage}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durable() -> Store {
        let found = EarlierState { is_complete: true, loaded: 1_000_000, took_s: 1.94, ..EarlierState::default() };
        let checkpoint = Checkpoint { last_s: Some(65.0), rows: 1_000_000, ..Checkpoint::default() };
        let disk = Disk {
            journal_bytes: 1_500_000,
            journal_segments: 1,
            groups: 2,
            records: 9,
            commit_p50_ms: 0.4,
            ..Disk::default()
        };
        let disk = Disk { checkpoint, found, commit_p99_ms: 1.26, commit_longest_ms: 5.0, ..disk };
        Store { mode: "write-through".to_owned(), state: OK.to_owned(), disk: Some(disk), ..Store::default() }
    }

    #[test]
    fn ok_status_is_brief() {
        let memory = Store { mode: "memory".to_owned(), state: OK.to_owned(), ..Store::default() };
        assert_eq!(shown(&memory), "memory: registrations are lost when the server stops");
        assert_eq!(
            shown(&durable()),
            "write-through: ok\n\
             journal 1.5 MB in 1 file; checkpoint 0:01:05 ago, 1,000,000 addresses in the database\n\
             2 commits of 9 records: p50 0.4 ms, p99 1.3 ms, max 5.0 ms\n\
             at start: 1,000,000 contacts loaded in 1.9 s"
        );
    }

    #[test]
    fn a_failing_status_stands_out_and_gives_a_remedy() {
        let mut store = durable();
        store.state = FAILING.to_owned();
        (store.why, store.failing_s) = (Some("no space left in data/journal".to_owned()), Some(12.0));
        store.remedy = Some("make room".to_owned());
        if let Some(disk) = &mut store.disk {
            (disk.refused, disk.late, disk.faults) = (1234, 4, 1);
            disk.found.skipped = 2;
        }
        let text = shown(&store);
        assert!(
            text.starts_with(
                "write-through: FAILING for 0:00:12: REGISTER gets 503, calls continue\n\
                 no space left in data/journal\n→ make room\n"
            ),
            "{text}"
        );
        assert!(
            text.contains("\n1,234 refused with 503, 4 of them after the timeout, 1 fault, recovered from 0\n"),
            "{text}"
        );
        assert!(text.contains("\njournal 1.5 MB in 1 file (last known); checkpoint 0:01:05 ago, "), "{text}");
        assert!(text.ends_with("DAMAGED: 2 records could not be read"), "{text}");
        store.mode = "write-behind".to_owned();
        assert!(shown(&store).contains("FAILING for 0:00:12: registrations are in memory only\n"));
        store.state = OPENING.to_owned();
        assert!(shown(&store).contains("\njournal and database are not read yet\n"), "{}", shown(&store));
        (store.state, store.loading) = (LOADING.to_owned(), Some(0.42));
        assert!(shown(&store).starts_with("write-behind: LOADING (42 %): "), "{}", shown(&store));
    }
}
