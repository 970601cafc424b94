//! A table with many bindings beside one with few: memory per binding, and whether a REGISTER costs the same.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use super::contender::{Contender, RunningServer, free_address};
use super::load::{PATIENCE, Pace, Phones, Tally};
use super::process::Usage;
use super::rounds::{PaceResult, median};

/// Time without a new registration after which the fill is aborted.
const STANDSTILL: Duration = Duration::from_secs(60);
/// Interval between progress reports of the fill.
const BEAT: Duration = Duration::from_secs(10);

/// Extent of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of bindings of the small and of the large table.
    pub users: [u32; 2],
    /// Number of sockets of the users.
    pub sockets: u32,
    /// REGISTERs in flight.
    pub window: usize,
    /// Runs of each table.
    pub rounds: usize,
    /// Duration of refreshes before the measurement.
    pub warm: Duration,
    /// Duration of measured refreshes.
    pub seconds: Duration,
    /// `timers.t1` of Strowger.
    pub t1: String,
    /// Folder for temporary folders.
    pub folder: std::path::PathBuf,
}

/// A running server with its phones and its measurements.
#[derive(Debug)]
pub struct Table {
    users: u32,
    server: RunningServer,
    phones: Phones,
    fill: Tally,
    /// Usage before the first registration.
    empty: Usage,
    /// Usage when all users were registered and their transactions had ended.
    full: Usage,
    runs: Vec<PaceResult>,
    _folder: tempfile::TempDir,
}

/// Fills both tables, then measures them in rotation.
///
/// # Errors
/// If a server does not start, ends, or does not accept all users.
pub fn run(plan: &Plan, contender: &Contender) -> Result<String, String> {
    let [few, many] = plan.users;
    let mut tables = [Table::fill(plan, contender, few)?, Table::fill(plan, contender, many)?];
    for round in 1..=plan.rounds {
        for table in &mut tables {
            table.measure(plan)?;
            eprintln!("round {round}: {} users: {:.2} µs a REGISTER", table.users, table.cost());
        }
    }
    Ok(show(&tables))
}

impl Table {
    fn fill(plan: &Plan, contender: &Contender, users: u32) -> Result<Table, String> {
        let folder = tempfile::Builder::new().prefix("strowger-scale-").tempdir_in(&plan.folder);
        let folder = folder.map_err(|error| format!("{}: {error}", plan.folder.display()))?;
        let address = free_address();
        contender.prepare(folder.path(), address, &plan.t1)?;
        let mut server = contender.start(folder.path(), address)?;
        let empty = Usage::of(server.processes());
        let mut phones = Phones::new(address, users, plan.sockets);
        let (began, mut registered, mut moved) = (Instant::now(), 0, Instant::now());
        let mut fill = phones.fill(plan.window, BEAT);
        while phones.registered() < users as usize {
            if phones.registered() > registered {
                (registered, moved) = (phones.registered(), Instant::now());
            }
            let taken = began.elapsed().as_secs();
            eprintln!("{registered} of {users} users are registered after {taken} s");
            if moved.elapsed() > STANDSTILL {
                return Err(format!("only {registered} of {users} users were registered"));
            }
            let more = phones.fill(plan.window, BEAT);
            fill.time += more.time;
            fill.taken += more.taken;
            server.check()?;
        }
        phones.run(Pace::Stop, PATIENCE);
        // Transactions live 64 times T1.
        thread::sleep(Duration::from_secs(5));
        let full = Usage::of(server.processes());
        Ok(Table { users, server, phones, fill, empty, full, runs: Vec::new(), _folder: folder })
    }

    fn measure(&mut self, plan: &Plan) -> Result<(), String> {
        let pace = Pace::Window(plan.window);
        self.phones.run(pace, plan.warm);
        let own = [std::process::id()];
        let (before, before_own) = (Usage::of(self.server.processes()), Usage::of(&own));
        let mut tally = self.phones.run(pace, plan.seconds);
        let usage = Usage::of(self.server.processes()).since(&before);
        let phones = Usage::of(&own).since(&before_own).processor.as_secs_f64() / tally.time.as_secs_f64();
        // Requests in flight end before the other table runs.
        tally.lost += self.phones.run(Pace::Stop, PATIENCE + Duration::from_secs(1)).lost;
        self.server.check()?;
        self.runs.push(PaceResult { tally, usage, flushes: 0, phones });
        Ok(())
    }

    fn costs(&self) -> impl Iterator<Item = f64> {
        self.runs.iter().map(|run| run.each(run.usage.processor.as_secs_f64() * 1e6))
    }

    /// Returns the processor time per REGISTER in microseconds.
    fn cost(&self) -> f64 {
        median(self.costs().collect())
    }
}

fn show(tables: &[Table; 2]) -> String {
    let mut text = String::from(
        "\n| users | first REGISTER/s | memory before MiB | memory MiB | resident MiB | bytes a binding | REGISTER/s | CPU µs each | least to most | p50 ms | p99 ms | phones' core | 503 | other | lost |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    for table in tables {
        let Table { users, fill, empty, full, runs, .. } = table;
        let of = |what: &dyn Fn(&PaceResult) -> f64| median(runs.iter().map(what).collect());
        let sum = |what: &dyn Fn(&Tally) -> u64| runs.iter().map(|run| what(&run.tally)).sum::<u64>();
        let _ = writeln!(
            text,
            "| {users} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.2} | {:.2} to {:.2} | {:.2} | {:.2} | {:.2} | {} | {} | {} |",
            fill.rate(),
            mib(empty.memory),
            mib(full.memory),
            mib(full.resident),
            full.memory.saturating_sub(empty.memory) as f64 / f64::from(*users),
            of(&|run| run.tally.rate()),
            table.cost(),
            table.costs().fold(f64::INFINITY, f64::min),
            table.costs().fold(0.0, f64::max),
            of(&|run| run.tally.milliseconds(0.5)),
            of(&|run| run.tally.milliseconds(0.99)),
            of(&|run| run.phones),
            sum(&|tally| tally.unavailable),
            sum(&|tally| tally.others),
            sum(&|tally| tally.lost),
        );
    }
    let [few, many] = tables;
    let ratio = many.cost() / few.cost();
    let _ = writeln!(
        text,
        "\nA REGISTER with {} bindings costs {ratio:.2} times what it costs with {}.",
        many.users, few.users
    );
    text
}
