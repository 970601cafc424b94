//! The comparison: every contender in turn, several times, each time anew in a folder of its own.

use std::time::Duration;

use super::contender::{Contender, free_address};
use super::load::{PATIENCE, Pace, Phones, Tally};
use super::process::{Usage, flushes, sync_time};

/// How much is done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Users of the population.
    pub users: u32,
    /// Sockets that they are spread over.
    pub sockets: u32,
    /// REGISTERs under way at saturation.
    pub window: usize,
    /// REGISTERs a second of the second measurement; none where 0.
    pub rate: u32,
    /// How long users may take to be registered for the first time.
    pub fill: Duration,
    /// Refreshes that are not counted, before those that are.
    pub warm: Duration,
    /// Refreshes that are counted.
    pub seconds: Duration,
    /// `timers.t1` of Strowger; a transaction lives 64 times as long.
    pub t1: String,
    /// Where the temporary folders are made.
    pub folder: std::path::PathBuf,
}

/// What was measured while a pace was kept.
#[derive(Debug)]
pub struct PaceResult {
    /// What the phones saw.
    pub tally: Tally,
    /// What the server used.
    pub usage: Usage,
    /// Flushes of the disk, by anybody.
    pub flushes: u64,
    /// The share of their core that the phones used: near 1 they were the limit, not the server.
    pub phones: f64,
}

impl PaceResult {
    /// Something of what was used, for each 200.
    #[must_use]
    pub fn each(&self, amount: f64) -> f64 {
        amount / self.tally.taken.max(1) as f64
    }
}

/// One run of one contender.
#[derive(Debug)]
pub struct Run {
    /// What an fdatasync took just before, in milliseconds.
    pub sync: f64,
    /// Users that were registered when the measuring began.
    pub users: usize,
    /// First registrations.
    pub fill: Tally,
    /// Refreshes at saturation.
    pub full: PaceResult,
    /// Refreshes at the plan's rate, where the server can.
    pub open: Option<PaceResult>,
}

/// One run.
///
/// # Errors
/// When the contender does not start.
pub fn run(plan: &Plan, contender: &Contender) -> Result<Run, String> {
    let folder = tempfile::Builder::new().prefix("strowger-register-").tempdir_in(&plan.folder);
    let folder = folder.map_err(|error| format!("{}: {error}", plan.folder.display()))?;
    let address = free_address();
    let sync = sync_time(folder.path(), 100).map_err(|error| error.to_string())?.0;
    contender.prepare(folder.path(), address, &plan.t1)?;
    let mut server = contender.start(folder.path(), address)?;
    let mut crowd = Phones::new(address, plan.users, plan.sockets);
    let fill = crowd.fill(plan.window, plan.fill);
    let users = crowd.registered();
    server.check()?;
    let mut measure = |pace: Pace| {
        crowd.run(pace, plan.warm);
        let own = [std::process::id()];
        let (before, before_own, flushed) = (Usage::of(server.processes()), Usage::of(&own), flushes(folder.path()));
        let mut tally = crowd.run(pace, plan.seconds);
        let usage = Usage::of(server.processes()).since(&before);
        let flushes = flushes(folder.path()) - flushed;
        let phones_used = Usage::of(&own).since(&before_own).processor;
        // Those that were under way are no part of the rate, but they count where they are lost.
        tally.lost += crowd.run(Pace::Stop, PATIENCE + Duration::from_secs(1)).lost;
        let phones = phones_used.as_secs_f64() / tally.time.as_secs_f64();
        PaceResult { tally, usage, flushes, phones }
    };
    let full = measure(Pace::Window(plan.window));
    let can = plan.rate > 0 && full.tally.rate() > 1.2 * f64::from(plan.rate);
    let open = can.then(|| measure(Pace::Rate(plan.rate)));
    server.check()?;
    Ok(Run { sync, users, fill, full, open })
}

/// The middle one; of an even number the lower of the two.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}
