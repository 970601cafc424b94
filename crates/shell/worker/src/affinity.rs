//! CPU affinity of the workers.

use rustix::thread::{CpuSet, sched_setaffinity};

/// Pins this thread to the core configured for its worker; without one, to the `usable` ones, so that the scheduler
/// places it. Does nothing if those are not given.
pub(crate) fn pin(worker: usize, cores: &[usize], usable: &[usize]) {
    let chosen = match cores.get(worker) {
        Some(core) => std::slice::from_ref(core),
        None if usable.is_empty() => return,
        None => usable,
    };
    let mut set = CpuSet::new();
    chosen.iter().filter(|core| **core < CpuSet::MAX_CPU).for_each(|core| set.set(*core));
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!(worker, ?chosen, %error, "the worker cannot be pinned to its core; the scheduler places it");
    }
}
