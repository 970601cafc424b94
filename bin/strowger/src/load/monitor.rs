//! Looking at a run while it goes on: the line of progress, and the server's processes.

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

/// How often the status is written anew.
const STATUS_EVERY: Duration = Duration::from_millis(200);
/// How often a line stays: in the first minute, and then.
const LINES_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// How often the server is looked at: in runs that take less than this, and in others.
const SHORT_RUN: Duration = Duration::from_secs(30);
const WATCH_EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
/// The columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;

/// How a run is looked at.
#[derive(Clone, Debug, Args)]
pub(super) struct MonitorArguments {
    /// Shows no progress, only the report
    #[arg(short, long)]
    quiet: bool,
    /// The server's process; may be given several times, children count with it [default: who listens at the target, on this machine]
    #[arg(long = "pid", value_name = "PID", conflicts_with = "no_watch")]
    pids: Vec<u32>,
    /// Does not look at the server's processes
    #[arg(long)]
    no_watch: bool,
}

impl MonitorArguments {
    /// Begins to look at the server, where it is on this machine.
    pub(super) fn watch(&self, plan: &Plan, clock: Clock) -> Result<Option<SamplerThread>, Failure> {
        if self.no_watch {
            return Ok(None);
        }
        let every = if length_of(plan) < SHORT_RUN { WATCH_EVERY.0 } else { WATCH_EVERY.1 };
        if !self.pids.is_empty() {
            let watcher = SamplerThread::start(&self.pids, clock, every).map_err(|error| {
                Failure::Usage(format!("--pid: there is no such process, or it may not be looked at: {error}"))
            });
            return watcher.map(Some);
        }
        let found = plan.remote.map(|remote| listening_pids(remote, plan.transport.is_reliable())).unwrap_or_default();
        // It may end in this moment; who was not named is not missed.
        Ok(SamplerThread::start(&found, clock, every).ok())
    }

    /// The same without progress: who makes one run after another shows a line for each.
    pub(super) fn silent(&self) -> Self {
        Self { quiet: true, ..self.clone() }
    }

    /// Whether someone looks on.
    pub(super) fn shows_progress(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }
}

/// How long the measured phase takes, as far as that is known.
fn length_of(plan: &Plan) -> Duration {
    let measured = plan.phases.iter().find(|phase| phase.is_measured);
    measured.map_or(Duration::ZERO, |phase| phase.time.unwrap_or(SHORT_RUN))
}

/// Writes the status in place, and lines that stay, until the run is over.
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

/// Standard error may be gone; the run goes on.
fn write(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}
