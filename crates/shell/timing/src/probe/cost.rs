//! What the programs in the kernel cost.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::programs::ProgramError;
use aya::sys::{Stats, enable_stats};

/// How often it is measured. The kernel's own measurement costs more than some of the programs.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long each time.
const WINDOW: Duration = Duration::from_millis(30);

/// Measures the time in which the programs run, for a part of the time.
#[derive(Debug, Default)]
pub(super) struct Cost {
    /// The kernel measures while this is open: since when, and the run time before.
    window: Option<(OwnedFd, Instant, Duration)>,
    last: Option<Instant>,
    measured: Duration,
    ran: Duration,
}

impl Cost {
    /// Opens or closes a window if it is time to.
    pub(super) fn step(&mut self, programs: &Ebpf) {
        if let Some((_, since, before)) = &self.window {
            if since.elapsed() < WINDOW {
                return;
            }
            let (length, before) = (since.elapsed(), *before);
            self.window = None;
            if let Ok(ran) = run_time(programs) {
                // Others may let the kernel measure as well, also between the windows.
                self.ran += ran.saturating_sub(before);
                self.measured += length;
            }
        } else if self.last.is_none_or(|last| last.elapsed() >= INTERVAL) {
            self.last = Some(Instant::now());
            // Without permission the cost stays unknown.
            let before = run_time(programs).ok();
            let file = enable_stats(Stats::RunTime).ok();
            self.window = file.zip(before).map(|(file, before)| (file, Instant::now(), before));
        }
    }

    /// Returns the processors that the programs used, without what entering them costs; `None` if not measured.
    pub(super) fn processors(&self) -> Option<f64> {
        (!self.measured.is_zero()).then(|| self.ran.as_secs_f64() / self.measured.as_secs_f64())
    }
}

/// Returns the time in which the programs ran while the kernel measured it.
fn run_time(programs: &Ebpf) -> Result<Duration, ProgramError> {
    let loaded = programs.programs().filter(|(_, program)| program.fd().is_ok());
    loaded.map(|(_, program)| Ok(program.info()?.run_time())).sum()
}
