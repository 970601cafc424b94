//! The tables of `bench/TABLES.md`.

use std::fmt::Write as _;
use std::time::Duration;

use super::contention::LockContention;
use super::credentials::Source;
use super::growth::{Growth, Kind as Grown};
use super::kind::Kind;
use super::measure::Cost;
use super::model::{Expiry, Server};
use super::plot::short;
use super::table::REFRESH;
use super::timeline::Timeline;
use super::verify::Outcome;

/// One server of the paper's ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LadderStep {
    /// Kind of its table.
    pub kind: Kind,
    /// Source of its credentials.
    pub source: Source,
    /// How it finds expired registrations.
    pub expiry: Expiry,
    /// Index of the server that it is compared with.
    pub from: Option<usize>,
    /// Factor of the same step in the paper on one core and on two.
    pub paper: &'static str,
}

impl LadderStep {
    /// Returns all servers. Each differs in one property from the one that it is compared with. Without PostgreSQL,
    /// SQLite is used instead.
    #[must_use]
    pub fn all(database: Source) -> Vec<Self> {
        let rung = |kind, source, expiry, paper| Self { kind, source, expiry, from: None, paper };
        let (narrow, wide) = (Kind::Buckets(512), Kind::Buckets(1 << 17));
        let mut rungs = vec![
            rung(narrow, database, Expiry::Sweep, "–"),
            rung(wide, database, Expiry::Sweep, "2.6, 3.1"),
            rung(wide, Source::Memory, Expiry::Sweep, "1.76, 1.90 (with locations: 3.6, 3.5)"),
            rung(wide, Source::Memory, Expiry::Parts, "1.073, 1.076 (with databases: 0.78, 1.071)"),
            rung(Kind::Ours, Source::Memory, Expiry::Own, "–"),
        ];
        for (place, rung) in rungs.iter_mut().enumerate() {
            rung.from = place.checked_sub(1);
        }
        rungs.push(Self { from: Some(3), ..rung(narrow, Source::Memory, Expiry::Parts, "–") });
        if database != Source::Sqlite {
            rungs.push(Self { from: Some(1), ..rung(wide, Source::Sqlite, Expiry::Sweep, "–") });
        }
        rungs
    }

    /// Returns a short description.
    #[must_use]
    pub fn name(&self) -> String {
        let expiry = match self.expiry {
            Expiry::Sweep => "sweep",
            Expiry::Parts => "sweep in parts",
            Expiry::Own => "due ones only",
        };
        format!("{}, {}, {expiry}", self.kind, self.source)
    }
}

/// Measurements of a rung at some numbers of users, on one core and on two.
#[derive(Clone, Debug)]
pub struct RungResult {
    /// Measured rung.
    pub rung: LadderStep,
    /// Servers by number of cores.
    pub servers: Vec<Server>,
}

/// Returns the table of conforming users.
#[must_use]
pub fn users(all: &[RungResult]) -> String {
    let mut text = String::from(
        "| | table, credentials, expiry | against | one core: users on average | × | in the busiest second | × | two cores: users on average | × | in the busiest second | × | two cores to one | the paper's ×, one core and two |\n\
         |---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for (row, climbed) in (1..).zip(all) {
        let from = climbed.rung.from.and_then(|from| all.get(from));
        let against = climbed.rung.from.map_or("–".to_owned(), |from| format!("{}", from + 1));
        let _ = write!(text, "| {row} | {} | {against} | ", climbed.rung.name());
        for (cores, server) in climbed.servers.iter().enumerate() {
            let from = from.and_then(|from| from.servers.get(cores));
            for users in [Server::users_on_average, Server::users_at_peak] {
                let times = from.map_or("–".to_owned(), |from| format!("{:.2}", users(server) / users(from)));
                let is_beyond = if users(server) > server.user.end() { "~" } else { "" };
                let _ = write!(text, "{is_beyond}{} | {times} | ", short(users(server)));
            }
        }
        let scale = match climbed.servers.as_slice() {
            [one, two, ..] => two.users_at_peak() / one.users_at_peak(),
            _ => f64::NAN,
        };
        let _ = writeln!(text, "{scale:.2} | {} |", climbed.rung.paper);
    }
    text
}

/// A measurement at one number of users.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// Kind of table.
    pub kind: Kind,
    /// Source of credentials.
    pub source: Source,
    /// Number of users.
    pub users: u32,
    /// Number of cores.
    pub cores: usize,
    /// Measured cost.
    pub cost: Cost,
}

/// Returns the median of repeated measurements, in the order of the first ones.
#[must_use]
pub fn middle(turns: &[Measurement]) -> Vec<Measurement> {
    let mut cells: Vec<Vec<Measurement>> = Vec::new();
    let name = |one: &Measurement| (one.kind, one.source, one.users, one.cores);
    for one in turns {
        match cells.iter_mut().find(|cell| name(&cell[0]) == name(one)) {
            Some(cell) => cell.push(*one),
            None => cells.push(vec![*one]),
        }
    }
    let middle = |mut cell: Vec<Measurement>| {
        cell.sort_by_key(|one| one.cost.registration);
        cell[cell.len() / 2]
    };
    cells.into_iter().map(middle).collect()
}

/// Returns the table of costs.
#[must_use]
pub fn costs(all: &[Measurement], populations: &[u32]) -> String {
    let mut text = String::from("| CPU µs a registration, with the part of a call that comes with it | cores |");
    for users in populations {
        let _ = write!(text, " {} users |", short(f64::from(*users)));
    }
    text.push_str("\n|---|---:|");
    populations.iter().for_each(|_| text.push_str("---:|"));
    text.push('\n');
    let mut rows: Vec<(Kind, Source, usize)> = Vec::new();
    for one in all {
        let row = (one.kind, one.source, one.cores);
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    for (kind, source, cores) in rows {
        let _ = write!(text, "| {kind}, {source} | {cores} |");
        for users in populations {
            let is_it =
                |one: &&Measurement| (one.kind, one.source, one.cores, one.users) == (kind, source, cores, *users);
            let cell = all.iter().find(is_it).map(|one| micros(one.cost.registration));
            let _ = write!(text, " {} |", cell.unwrap_or_default());
        }
        text.push('\n');
    }
    text
}

/// Returns the table of full sweeps.
#[must_use]
pub fn sweeps(all: &[(Kind, u32, Duration)]) -> String {
    let mut text = String::from("| a whole sweep | users | ms | ns a user |\n|---|---:|---:|---:|\n");
    for (kind, users, time) in all {
        let each = time.as_secs_f64() * 1e9 / f64::from(*users);
        let _ =
            writeln!(text, "| {kind} | {} | {:.1} | {each:.0} |", short(f64::from(*users)), time.as_secs_f64() * 1e3);
    }
    text
}

/// Returns the table of the generator's results.
#[must_use]
pub fn verified(all: &[(LadderStep, u32, Result<Outcome, String>)]) -> String {
    let mut text = String::from(
        "| table, credentials, expiry | users | times faster | as of so many users | core worked out | core used | used / worked out | transactions that went well % | conforming | generator's core | what makes this row void |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---|---:|---|\n",
    );
    for (rung, users, outcome) in all {
        let _ = match outcome {
            Err(error) => writeln!(
                text,
                "| {} | {} | did not run: {} |",
                rung.name(),
                short(f64::from(*users)),
                error.replace('|', "/")
            ),
            Ok(one) => writeln!(
                text,
                "| {} | {} | {:.0} | {} | {:.2} | {:.2} | {:.2} | {:.3} | {} | {:.2} | {} |",
                rung.name(),
                short(f64::from(*users)),
                one.speed,
                short(f64::from(*users) * one.speed),
                one.worked_out,
                one.used,
                one.used / one.worked_out,
                one.good * 100.0,
                if one.is_conforming { "yes" } else { "no" },
                one.generator,
                one.fault.as_deref().unwrap_or("–").replace('|', "/"),
            ),
        };
    }
    text
}

/// Returns the table of timelines.
#[must_use]
pub fn timelines(all: &[Timeline]) -> String {
    let mut text = String::from(
        "| table, expiry | core on average % | in the fullest tenth of a second % | nobody else is served for, ms | bindings that expired | most bindings there |\n\
         |---|---:|---:|---:|---:|---:|\n",
    );
    for one in all {
        let _ = writeln!(
            text,
            "| {} | {:.1} | {:.0} | {:.2} | {} | {} |",
            line_name(one),
            one.mean() * 100.0,
            one.peak() * 100.0,
            one.pause.as_secs_f64() * 1e3,
            one.expired,
            one.most
        );
    }
    text
}

/// Returns the name of a timeline's row.
#[must_use]
pub fn line_name(one: &Timeline) -> String {
    match one.expiry {
        Expiry::Sweep => format!("{}, a sweep a minute", one.kind),
        Expiry::Parts => format!("{}, a sixtieth a second", one.kind),
        Expiry::Own => format!("{}, due ones only", one.kind),
    }
}

/// Returns the table of lock contention.
#[must_use]
pub fn locks(all: &[LockContention]) -> String {
    let mut text = String::from(
        "| table | locks | operations/s, both cores | taken already, of a million | waited, % of both cores | longest wait µs | waited for at all | most to mean |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for one in all {
        let _ = writeln!(
            text,
            "| {}{} | {} | {} | {:.0} | {:.2} | {} | {} | {:.1} |",
            one.kind,
            if one.sweeps { ", one sweep" } else { "" },
            one.waits.counts.len(),
            short(one.operations as f64 / one.time.as_secs_f64()),
            one.per_million(),
            one.waited() * 100.0,
            micros(one.waits.longest),
            one.waits.counts.iter().filter(|count| **count > 0).count(),
            one.most_of_mean(),
        );
    }
    text
}

/// Returns the table of growth.
#[must_use]
pub fn growths(all: &[Growth]) -> String {
    let mut text = String::from(
        "| table | contacts | mean insertion µs | longest ms | mean removal µs | longest ms | resident before MiB | at the top | bytes a contact | at the end | given back % |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    for one in all {
        let half = one.longest_us.len() / 2;
        let longest = |part: &[f64]| part.iter().copied().fold(0.0, f64::max) / 1e3;
        let &[before, top, end, ref rest @ ..] = one.resident.as_slice() else { continue };
        let back = |end: u64| 100.0 * top.saturating_sub(end) as f64 / top.saturating_sub(before).max(1) as f64;
        let _ = writeln!(
            text,
            "| {} | {} | {:.2} | {:.3} | {:.2} | {:.3} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} |",
            growth_name(one.kind),
            short(f64::from(one.contacts)),
            one.mean_us[0],
            longest(&one.longest_us[..half]),
            one.mean_us[1],
            longest(&one.longest_us[half..]),
            mib(before),
            mib(top),
            top.saturating_sub(before) as f64 / f64::from(one.contacts),
            mib(end),
            back(end),
        );
        if let (Some(told), Some(end)) = (one.told_us, rest.first()) {
            let told = told / 1e3;
            let _ = writeln!(
                text,
                "| …told to shrink when it is empty | | | | | {told:.3} | | | | {:.0} | {:.0} |",
                mib(*end),
                back(*end)
            );
        }
    }
    text
}

/// Returns the name of a growing table's row.
#[must_use]
pub const fn growth_name(kind: Grown) -> &'static str {
    match kind {
        Grown::Ours => "ours",
        Grown::Std => "the standard library's map",
    }
}

/// Returns the core seconds per second of a user.
#[must_use]
pub fn user_seconds(cost: &Cost, pair: Duration) -> f64 {
    super::model::with_kernel(cost.of_user(), cost.messages, pair, REFRESH)
}

fn micros(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    if micros < 99.5 { format!("{micros:.1}") } else { format!("{micros:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::model::Curve;

    #[test]
    fn each_rung_differs_in_one_thing_from_its_reference() {
        for database in [Source::Postgres, Source::Sqlite] {
            let rungs = LadderStep::all(database);
            for rung in &rungs {
                let Some(from) = rung.from.map(|from| rungs[from]) else { continue };
                let others = [rung.kind != from.kind, rung.source != from.source, rung.expiry != from.expiry];
                // A table that knows what is due is another kind of table, so this rung differs in two properties.
                let expected = if rung.expiry == Expiry::Own { 2 } else { 1 };
                assert_eq!(others.iter().filter(|is_other| **is_other).count(), expected, "{rung:?} and {from:?}");
            }
        }
    }

    #[test]
    fn extrapolated_values_are_marked() {
        let rung = LadderStep::all(Source::Sqlite)[0];
        let flat = |end: f64, value| Curve::new(vec![(1.0, value), (end, value)]);
        let server = |end| Server { user: flat(end, 1e-6), sweep: flat(end, 1e-9), expiry: Expiry::Own, cores: 1.0 };
        let text = users(&[RungResult { rung, servers: vec![server(2e6), server(5e5)] }]);
        let row: Vec<&str> = text.lines().nth(2).expect("a row").split(" | ").collect();
        assert_eq!([row[3], row[5], row[7], row[9]], ["1.00 M", "1.00 M", "~1.00 M", "~1.00 M"], "{text}");
    }
}
