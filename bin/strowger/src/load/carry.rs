//! Carries out a plan while someone looks on.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use strowger_traffic::engine::{Plan, Report, Run, Stopper};
use strowger_traffic::report::About;

use crate::failure::Failure;

/// How often the line of progress is written anew.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Runs a plan, with a line of progress on a terminal, until its end or a signal.
pub(super) fn carry_out(plan: Plan, about: &About) -> Result<Report, Failure> {
    let is_answer = plan.caller.is_none();
    let run = Run::prepare(plan)?;
    if is_answer {
        for address in run.listening().iter().take(1) {
            eprintln!("answering at {address}, seed {}; Ctrl-C ends it", about.seed);
        }
    }
    let stopper = run.stopper();
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::Output)?;
    let handle = signals.handle();
    let by_signal = stopper.clone();
    let listener = std::thread::spawn(move || signals.forever().for_each(|_| by_signal.stop()));
    let shows = std::io::stderr().is_terminal();
    let progress = shows.then(|| std::thread::spawn(move || show_progress(&stopper)));
    let report = run.go();
    handle.close();
    for thread in [Some(listener), progress].into_iter().flatten() {
        // They only look on; a panic there was printed.
        let _ = thread.join();
    }
    Ok(report?)
}

fn show_progress(stopper: &Stopper) {
    let begun = Instant::now();
    while stopper.phase().is_some() {
        std::thread::sleep(PROGRESS_EVERY);
        let progress = stopper.progress();
        let (began, answered) = (progress.caller.began, progress.callee.answered);
        // Standard error may be gone; the run goes on.
        let _ = write!(
            std::io::stderr(),
            "\r\x1b[K{:>4} s  offered {}  carried {}  lost {}  failed {}  going on {}  answered {}",
            begun.elapsed().as_secs(),
            began.offered,
            began.carried,
            began.lost,
            began.failed,
            began.unfinished,
            answered.sent
        );
    }
    let _ = write!(std::io::stderr(), "\r\x1b[K");
}
