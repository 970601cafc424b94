//! Monitoring of a run: the progress line and the server's processes.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use strowger_net::Clock;
use strowger_traffic::engine::{Plan, Stopper};
use strowger_traffic::output::LiveStatus;
use strowger_traffic::process_usage::{SamplerThread, listening_pids};

use crate::failure::Failure;

/// Interval at which the status line is updated.
const STATUS_EVERY: Duration = Duration::from_millis(200);
/// Interval between permanent lines: in the first minute, and later.
const LINES_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// Length below which a run counts as short; the server's sampling interval depends on it.
const SHORT_RUN: Duration = Duration::from_secs(30);
const WATCH_EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
/// Width of a terminal that does not report it, in columns.
const COLUMNS: usize = 80;

/// Monitoring options of a run.
#[derive(Clone, Debug, Args)]
pub(super) struct MonitorArguments {
    /// Shows only the report, without progress
    #[arg(short, long)]
    quiet: bool,
    /// Process of the server, including its children; may be repeated [default: the process on this machine that
    /// listens at the target]
    #[arg(long = "pid", value_name = "PID", conflicts_with = "no_watch")]
    pids: Vec<u32>,
    /// Does not monitor the server's processes
    #[arg(long)]
    no_watch: bool,
}

impl MonitorArguments {
    /// Starts monitoring the server if it is on this machine.
    pub(super) fn watch(&self, plan: &Plan, clock: Clock) -> Result<Option<SamplerThread>, Failure> {
        if self.no_watch {
            return Ok(None);
        }
        let every = if length_of(plan) < SHORT_RUN { WATCH_EVERY.0 } else { WATCH_EVERY.1 };
        if !self.pids.is_empty() {
            let watcher = SamplerThread::start(&self.pids, clock, every, Vec::new).map_err(|error| {
                Failure::Usage(format!("--pid: the process does not exist or cannot be monitored: {error}"))
            });
            return watcher.map(Some);
        }
        let (remote, is_stream) = (plan.remote, plan.transport.is_reliable());
        let find = move || remote.map(|remote| listening_pids(remote, is_stream)).unwrap_or_default();
        // The process may end at this moment; that is an error only if it was named. An upgrade replaces it.
        Ok(SamplerThread::start(&find(), clock, every, find).ok())
    }

    /// Returns the arguments without progress: a series of runs prints one line per run.
    pub(super) fn silent(&self) -> Self {
        Self { quiet: true, ..self.clone() }
    }

    /// Whether progress is shown.
    pub(super) fn shows_progress(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }
}

/// Returns the length of the measured phase, if known.
fn length_of(plan: &Plan) -> Duration {
    let measured = plan.phases.iter().find(|phase| phase.is_measured);
    measured.map_or(Duration::ZERO, |phase| phase.time.unwrap_or(SHORT_RUN))
}

/// Updates the status line and prints permanent lines until the run ends.
pub(super) fn show_progress(stopper: &Stopper, mut live: LiveStatus, is_stopping: &Arc<AtomicBool>) {
    let begun = Instant::now();
    let (mut phase_now, mut phase_begun, mut next_line) = (None, begun, None);
    while let Some(phase) = stopper.phase() {
        let now = Instant::now();
        if phase_now != Some(phase) {
            (phase_now, phase_begun, next_line) = (Some(phase), now, None);
        }
        let (elapsed, since) = (begun.elapsed(), now - phase_begun);
        let progress = stopper.progress();
        let mut text = String::from("\r\x1b[K");
        if live.is_measuring(phase, since) {
            if next_line.is_some_and(|at| now >= at) {
                text.push_str(&live.line(elapsed, &progress));
                text.push('\n');
            }
            if next_line.is_none() {
                live.begin(elapsed);
            }
            if next_line.is_none_or(|at| now >= at) {
                let every = if since < Duration::from_secs(60) { LINES_EVERY.0 } else { LINES_EVERY.1 };
                next_line = Some(next_line.unwrap_or(now) + every);
            }
        }
        let status = live.status(phase, since, is_stopping.load(Ordering::SeqCst), &progress);
        text.extend(status.chars().take(columns().saturating_sub(1)));
        write(&text);
        std::thread::sleep(STATUS_EVERY);
    }
    write("\r\x1b[K");
}

fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(COLUMNS)
}

/// Writes to standard error. A failure does not stop the run.
fn write(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}
