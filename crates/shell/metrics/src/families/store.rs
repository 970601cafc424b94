//! Storage of registrations, and the databases of users and call records.

use std::fmt;

use strowger_control::protocol::{Database, Disk, Status, Store};

use crate::encoder::{Encoder, Family, flag};

pub(crate) fn write(to: &mut Encoder<'_>, status: &Status) -> fmt::Result {
    if let Some(store) = &status.store {
        registrations(to, store)?;
    }
    database(to, "users_database_up", "1 if the shared users are followed.", status.users_database.as_ref())?;
    let help = "1 if call records are written to their database.";
    database(to, "calls_database_up", help, status.calls_database.as_ref())
}

fn database(to: &mut Encoder<'_>, name: &str, help: &str, found: Option<&Database>) -> fmt::Result {
    found.map_or(Ok(()), |found| to.gauge(&Family::new(name, help), flag(found.trouble.is_none())))
}

fn registrations(to: &mut Encoder<'_>, store: &Store) -> fmt::Result {
    let help = "1 if registrations can be stored.";
    to.gauge(&Family::new("store_up", help), flag(!matches!(store.state.as_str(), "failing" | "opening")))?;
    let help = "1 while stored registrations are being read.";
    to.gauge(&Family::new("store_loading", help), flag(store.state == "loading"))?;
    store.disk.as_ref().map_or(Ok(()), |disk| on_disk(to, disk))
}

fn on_disk(to: &mut Encoder<'_>, disk: &Disk) -> fmt::Result {
    let gauges = [
        (Family::bytes("store_journal_size", "Size of the journal."), disk.journal_bytes),
        (Family::new("store_journal_segments", "Files of the journal."), disk.journal_segments),
        (Family::new("store_waiting", "Records that wait for a commit."), disk.waiting),
        (Family::new("store_unwritten", "Addresses whose latest state waits for the disk to recover."), disk.unwritten),
        (
            Family::new("store_segments_behind", "Files of the journal that are not yet in the database."),
            disk.checkpoint.segments_behind,
        ),
        (Family::new("store_rows", "Addresses in the database."), disk.checkpoint.rows),
        (
            Family::new(
                "store_checkpoint_failing",
                "1 if registrations cannot be moved from the journal into the database.",
            ),
            flag(disk.checkpoint.failing.is_some()),
        ),
    ];
    gauges.iter().try_for_each(|(family, value)| to.gauge(family, *value))?;
    if let Some(last_s) = disk.checkpoint.last_s {
        to.gauge(&Family::seconds("store_checkpoint_age", "Time since the last checkpoint."), last_s)?;
    }
    // Only histograms and summaries have quantiles by convention; these two are computed over the time since the start.
    let percentile = |percentile: &str, ms: f64| (vec![("percentile", percentile.to_owned())], ms / 1e3);
    let percentiles = [percentile("50", disk.commit_p50_ms), percentile("99", disk.commit_p99_ms)];
    let help = "Time from the write of a group of records to the end of its sync, since the start.";
    to.gauges(&Family::seconds("store_commit_time", help), percentiles)?;
    let counters = [
        ("store_groups", "Groups of records written and synced.", disk.groups),
        ("store_records", "Records in these groups.", disk.records),
        (
            "store_refused",
            "Records not stored. If durability is guaranteed, each is a REGISTER answered 503.",
            disk.refused,
        ),
        ("store_late", "Part of store_refused: records that waited too long for a slow disk.", disk.late),
        ("store_lost", "Changes dropped because too many were waiting (write-behind).", disk.lost),
        ("store_faults", "Times that writing has begun to fail.", disk.faults),
        ("store_recoveries", "Times that writing has recovered.", disk.recoveries),
        ("store_purged", "Expired addresses removed from the database.", disk.checkpoint.purged),
    ];
    counters.iter().try_for_each(|(name, help, value)| to.counter(&Family::new(name, help), *value))
}
