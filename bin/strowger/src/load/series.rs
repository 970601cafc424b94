//! Consecutive runs of a search or a sweep.

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use strowger_traffic::engine::{PhaseReport, Plan, Report, entropy};
use strowger_traffic::options::{Options, WARNING};
use strowger_traffic::report::RunDescription;
use strowger_traffic::search::callees_at;

use super::execute::execute;
use super::monitor::MonitorArguments;
use crate::failure::Failure;
use crate::files::ready;

/// Maximum number of attempts to prepare a run, and the minimum pause between them.
const TRIES: u32 = 3;
const RECOVERY: Duration = Duration::from_secs(5);
/// Interval at which a pause checks for a signal.
const BEAT: Duration = Duration::from_millis(20);

/// State common to the runs.
#[derive(Debug)]
pub(super) struct Series<'a> {
    onlook: &'a MonitorArguments,
    settle: Duration,
    is_stopped: Arc<AtomicBool>,
    /// Listening addresses of callees, the same in all runs.
    places: Option<Vec<SocketAddr>>,
    runs: u32,
    /// Print lines to standard error, because a file goes to standard output.
    is_piped: bool,
    shows: bool,
}

impl<'a> Series<'a> {
    /// Starts a series. From then on, signals end it after the current run.
    pub(super) fn begin(
        onlook: &'a MonitorArguments,
        settle: Duration,
        files: &[Option<&Path>],
    ) -> Result<Self, Failure> {
        ready(files)?;
        let is_stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&is_stopped)).map_err(Failure::Output)?;
        }
        let is_piped = files.iter().flatten().any(|file| file.as_os_str() == "-");
        let shows = onlook.shows_progress();
        Ok(Self { onlook, settle, is_stopped, places: None, runs: 0, is_piped, shows })
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Whether nothing has run yet.
    pub(super) const fn is_first(&self) -> bool {
        self.runs == 0
    }

    /// Starts over for another test or server, with a first run of its own.
    pub(super) fn begin_anew(&mut self) {
        (self.places, self.runs) = (None, 0);
    }

    /// Runs a plan that `check` has approved. `None` if a signal came first.
    pub(super) fn run(
        &mut self,
        options: &Options,
        check: &dyn Fn(&Plan) -> Result<(), String>,
    ) -> Result<Option<(Report, RunDescription)>, Failure> {
        if self.is_first() {
            options.plan()?.1.declared.iter().filter(|(name, _)| name == WARNING).for_each(|(_, text)| {
                eprintln!("strowger: warning: {text}");
            });
        } else {
            self.pause(self.settle);
        }
        let mut tries = 0;
        loop {
            if self.is_stopped() {
                return Ok(None);
            }
            let (mut plan, about) = options.plan()?;
            check(&plan).map_err(Failure::Usage)?;
            // If callees moved, they would have to register again, and calls to their old addresses would fail.
            if self.places.is_none() {
                self.places = Some(callees_at(&plan).map_err(Failure::Output)?);
            }
            plan.callees_at = self.places.clone().unwrap_or_default();
            plan.run = entropy();
            let mut report = execute(plan, &about, &self.onlook.silent())?;
            if !self.is_first() && is_silence(&report) {
                // The server answered before, so its silence is a valid result.
                report.broken_off = None;
            }
            tries += 1;
            match &report.broken_off {
                None => {
                    self.runs += 1;
                    return Ok(Some((report, about)));
                }
                // A server that was just overloaded may fail during preparation.
                Some(_) if !self.is_first() && tries < TRIES && !self.is_stopped() => {
                    self.pause(self.settle.max(RECOVERY));
                }
                Some(why) => return Err(Failure::No(why.clone())),
            }
        }
    }

    /// Leaves the server idle for a time; a signal ends the pause.
    pub(super) fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_stopped() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(BEAT));
        }
    }

    /// Prints a permanent line.
    pub(super) fn line(&self, text: &str) -> Result<(), Failure> {
        self.status("");
        if self.is_piped {
            eprintln!("{text}");
            return Ok(());
        }
        writeln!(std::io::stdout().lock(), "{text}").map_err(Failure::Output)
    }

    /// Shows a status on a terminal until the next line.
    pub(super) fn status(&self, text: &str) {
        if self.shows && std::io::stderr().is_terminal() {
            // Standard error may be closed; the runs continue.
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r\x1b[K{text}").and_then(|()| err.flush());
        }
    }
}

/// Whether the run was aborted only because nothing arrived during the measurement.
fn is_silence(report: &Report) -> bool {
    let is_silent = |phase: &PhaseReport| phase.links.received == 0 && phase.meter().began.sent > 0;
    !report.was_stopped && report.measured().is_some_and(is_silent)
}
