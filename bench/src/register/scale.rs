//! A table with many bindings beside one with few: what a binding takes of the memory, and whether a REGISTER costs the same.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use super::contender::{Contender, RunningServer, free_address};
use super::load::{PATIENCE, Pace, Phones, Tally};
use super::process::Usage;
use super::rounds::{PaceResult, median};

/// How long the fill may take without anybody being registered.
const STANDSTILL: Duration = Duration::from_secs(60);
/// How often the progress of the fill is told.
const BEAT: Duration = Duration::from_secs(10);

/// What is done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bindings of the small table, and of the large one.
    pub users: [u32; 2],
    /// Sockets that they are spread over.
    pub sockets: u32,
    /// REGISTERs under way.
    pub window: usize,
    /// How often each table has its turn.
    pub rounds: usize,
    /// Refreshes that are not counted, before those that are.
    pub warm: Duration,
    /// Refreshes that are counted.
    pub seconds: Duration,
    /// `timers.t1` of Strowger.
    pub t1: String,
    /// Where the temporary folders are made.
    pub folder: std::path::PathBuf,
}

/// A server that runs, with its phones and what was measured of it.
#[derive(Debug)]
pub struct Table {
    users: u32,
    server: RunningServer,
    phones: Phones,
    fill: Tally,
    /// Before anybody was registered.
    empty: Usage,
    /// When all were, and their transactions had ended.
    full: Usage,
    runs: Vec<PaceResult>,
    _folder: tempfile::TempDir,
}

/// Fills both tables, then lets them have their turns.
///
/// # Errors
/// When a server does not start, or ends, or does not take all users.
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
                return Err(format!("only {registered} of {users} were taken"));
            }
            let more = phones.fill(plan.window, BEAT);
            fill.time += more.time;
            fill.taken += more.taken;
            server.check()?;
        }
        phones.run(Pace::Stop, PATIENCE);
        // A transaction lives 64 times as long as T1.
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
        // What is under way ends before the other table has its turn.
        tally.lost += self.phones.run(Pace::Stop, PATIENCE + Duration::from_secs(1)).lost;
        self.server.check()?;
        self.runs.push(PaceResult { tally, usage, flushes: 0, phones });
        Ok(())
    }

    fn costs(&self) -> impl Iterator<Item = f64> {
        self.runs.iter().map(|run| run.each(run.usage.processor.as_secs_f64() * 1e6))
    }

    /// The processor's time for a REGISTER, in microseconds.
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
        "\nA REGISTER with {} bindings takes {ratio:.2} of what it takes with {}.",
        many.users, few.users
    );
    text
}
