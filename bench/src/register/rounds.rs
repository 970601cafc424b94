//! The comparison: every contender in rotation, several times, each time in a new folder.

use std::time::Duration;

use super::contender::{Contender, free_address};
use super::load::{PATIENCE, Pace, Phones, Tally};
use super::process::{Usage, flushes, sync_time};

/// Extent of the comparison.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of users.
    pub users: u32,
    /// Number of their sockets.
    pub sockets: u32,
    /// REGISTERs in flight at saturation.
    pub window: usize,
    /// REGISTERs per second of the second measurement; 0 skips it.
    pub rate: u32,
    /// Maximum time for the first registration of all users.
    pub fill: Duration,
    /// Duration of refreshes before the measurement.
    pub warm: Duration,
    /// Duration of measured refreshes.
    pub seconds: Duration,
    /// `timers.t1` of Strowger; transactions live 64 times as long.
    pub t1: String,
    /// Folder for temporary folders.
    pub folder: std::path::PathBuf,
}

/// Results at one pace.
#[derive(Debug)]
pub struct PaceResult {
    /// Results of the phones.
    pub tally: Tally,
    /// Resource usage of the server.
    pub usage: Usage,
    /// Flushes of the disk, by any process.
    pub flushes: u64,
    /// Share of their core that the phones used. Near 1, the phones were the bottleneck and not the server.
    pub phones: f64,
}

impl PaceResult {
    /// Returns an amount per 200.
    #[must_use]
    pub fn each(&self, amount: f64) -> f64 {
        amount / self.tally.taken.max(1) as f64
    }
}

/// One run of one contender.
#[derive(Debug)]
pub struct Run {
    /// Duration of an fdatasync just before, in milliseconds.
    pub sync: f64,
    /// Registered users when the measurement began.
    pub users: usize,
    /// First registrations.
    pub fill: Tally,
    /// Refreshes at saturation.
    pub full: PaceResult,
    /// Refreshes at the plan's rate, if the server sustains it.
    pub open: Option<PaceResult>,
}

/// Runs one contender once.
///
/// # Errors
/// If the contender does not start.
pub fn run(plan: &Plan, contender: &Contender) -> Result<Run, String> {
    let folder = tempfile::Builder::new().prefix("strowger-register-").tempdir_in(&plan.folder);
    let folder = folder.map_err(|error| format!("{}: {error}", plan.folder.display()))?;
    let address = free_address();
    let sync = sync_time(folder.path(), 100).map_err(|error| error.to_string())?.0;
    contender.prepare(folder.path(), address, &plan.t1)?;
    let mut server = contender.start(folder.path(), address)?;
    let mut queue = Phones::new(address, plan.users, plan.sockets);
    let fill = queue.fill(plan.window, plan.fill);
    let users = queue.registered();
    server.check()?;
    let mut measure = |pace: Pace| {
        queue.run(pace, plan.warm);
        let own = [std::process::id()];
        let (before, before_own, flushed) = (Usage::of(server.processes()), Usage::of(&own), flushes(folder.path()));
        let mut tally = queue.run(pace, plan.seconds);
        let usage = Usage::of(server.processes()).since(&before);
        let flushes = flushes(folder.path()) - flushed;
        let phones_used = Usage::of(&own).since(&before_own).processor;
        // Requests in flight at the end do not count for the rate, but do if they are lost.
        tally.lost += queue.run(Pace::Stop, PATIENCE + Duration::from_secs(1)).lost;
        let phones = phones_used.as_secs_f64() / tally.time.as_secs_f64();
        PaceResult { tally, usage, flushes, phones }
    };
    let full = measure(Pace::Window(plan.window));
    let can = plan.rate > 0 && full.tally.rate() > 1.2 * f64::from(plan.rate);
    let open = can.then(|| measure(Pace::Rate(plan.rate)));
    server.check()?;
    Ok(Run { sync, users, fill, full, open })
}

/// Returns the median; for an even number the lower of the middle two.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}
