//! Runs a plan with progress display and monitoring.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use strowger_traffic::engine::{Plan, Report, Run};
use strowger_traffic::output::LiveStatus;
use strowger_traffic::report::RunDescription;

use super::monitor::{MonitorArguments, show_progress};
use crate::failure::Failure;

/// Runs a plan until its end or a signal (a second one aborts), shows progress on a terminal and monitors the server.
pub(super) fn execute(plan: Plan, about: &RunDescription, onlook: &MonitorArguments) -> Result<Report, Failure> {
    let is_answer = plan.caller.is_none();
    let live = LiveStatus::new(&plan);
    let watched = plan.clone();
    let run = Run::prepare(plan)?;
    let watcher = onlook.watch(&watched, run.clock())?;
    if is_answer {
        // Every thread listens on all of them.
        let mut addresses: Vec<_> = run.listening().iter().map(ToString::to_string).collect();
        addresses.dedup();
        addresses.truncate(watched.callee.as_ref().map_or(1, |callee| callee.listen.len().max(1)));
        eprintln!("answering at {}, seed {}; Ctrl-C ends it", addresses.join(", "), about.seed);
    }
    let stopper = run.stopper();
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::Output)?;
    let handle = signals.handle();
    let (by_signal, is_stopping) = (stopper.clone(), Arc::new(AtomicBool::new(false)));
    let said = Arc::clone(&is_stopping);
    let listener = std::thread::spawn(move || {
        for _ in signals.forever() {
            said.store(true, Ordering::SeqCst);
            by_signal.stop();
        }
    });
    let shows = onlook.shows_progress();
    let progress = shows.then(|| std::thread::spawn(move || show_progress(&stopper, live, &is_stopping)));
    let report = run.go();
    handle.close();
    let server = watcher.map(strowger_traffic::process_usage::SamplerThread::stop);
    for thread in [Some(listener), progress].into_iter().flatten() {
        // The monitor threads are not essential; a panic has been printed.
        let _ = thread.join();
    }
    Ok(Report { server, ..report? })
}
