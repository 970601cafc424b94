//! The paper's measurements (Singh and Schulzrinne, tables 1 and 2): Proxy-200 calls per second.

use super::scenario::Scenario;
use crate::shells::Architecture;

/// The paper's machines, in the order of its columns.
pub(super) const MACHINES: [&str; 4] = ["1×P", "4×P", "1×S", "2×S"];

/// Returns an architecture's result on each machine, or `None` if the paper has no row for it.
pub(super) const fn calls(scenario: Scenario, architecture: Architecture) -> Option<[u32; 4]> {
    match (scenario, architecture) {
        (Scenario::Stateless, Architecture::EventBased) => Some([1_550, 400, 150, 600]),
        (Scenario::Stateless, Architecture::ThreadPerMessage) => Some([1_300, 500, 100, 500]),
        (Scenario::Stateless, Architecture::PoolThreadPerMessage) => Some([1_400, 850, 110, 600]),
        (Scenario::Stateless, Architecture::ThreadPool) => Some([1_500, 1_300, 152, 750]),
        (Scenario::Stateless, Architecture::ProcessPool) => Some([1_600, 1_350, 160, 1_000]),
        (Scenario::Stateful, Architecture::EventBased) => Some([1_150, 300, 160, 400]),
        (Scenario::Stateful, Architecture::ThreadPerMessage) => Some([600, 175, 90, 300]),
        // The paper's row `thread pool (sipd)`: a message goes to a thread of the pool instead of a new thread.
        (Scenario::Stateful, Architecture::PoolThreadPerMessage) => Some([850, 340, 120, 300]),
        (Scenario::Stateful, Architecture::TwoStageThreads) => Some([1_100, 550, 155, 500]),
        _ => None,
    }
}

/// Returns that result relative to the event-based architecture on the same machine.
pub(super) fn relative(scenario: Scenario, architecture: Architecture, machine: usize) -> Option<f64> {
    let [own, base] = [architecture, Architecture::EventBased].map(|which| calls(scenario, which));
    Some(f64::from(*own?.get(machine)?) / f64::from(*base?.get(machine)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_own_example_holds() {
        // "approximately three times": stateless, thread pool, four processors.
        let ratio = relative(Scenario::Stateless, Architecture::ThreadPool, 1).expect("it has this row");
        assert!((2.9..3.4).contains(&ratio), "{ratio}");
    }
}
