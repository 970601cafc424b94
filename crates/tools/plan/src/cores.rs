//! Capacity of several cores: C = T·C₁.

use serde::Serialize;

use crate::error::{PlanError, count, positive};
use crate::explain::{Explain, Explanation};
use crate::units;

/// Threads and capacity of a multi-core server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Cores {
    /// p: number of processors.
    pub processors: u32,
    /// c: number of cores of all processors together.
    pub cores: u32,
    /// C₁: capacity of one thread on one core, 1/s.
    pub base_per_s: f64,
    /// T: number of threads with the highest capacity.
    pub threads: u32,
    /// C = T·C₁, in the unit of C₁.
    pub capacity_per_s: f64,
}

/// Returns threads and capacity by the thesis's rule (section 7.6, eq. 7.1).
///
/// T = c + 2 on one processor and T = c on several, because moving threads between processors costs more than idle
/// moments do. This is a first approximation, measured on one process with a shared socket and up to 6 cores.
///
/// # Errors
/// No processor, fewer cores than processors, a base capacity that is not above 0.
pub fn cores(processors: u32, cores: u32, base_per_s: f64) -> Result<Cores, PlanError> {
    count("processors", processors, MOST)?;
    count("cores", cores, MOST)?;
    let base_per_s = positive("base capacity", base_per_s)?;
    if cores < processors {
        return Err(PlanError::Contradiction {
            input: "cores".into(),
            reason: format!("{processors} processors cannot have {cores} cores"),
            remedy: "give the total number of cores",
        });
    }
    let threads = if processors == 1 { cores + 2 } else { cores };
    Ok(Cores { processors, cores, base_per_s, threads, capacity_per_s: f64::from(threads) * base_per_s })
}

const MOST: u32 = 1 << 20;

impl Explain for Cores {
    fn explain(&self) -> Explanation {
        let (formula, numbers) = if self.processors == 1 {
            ("c + 2 (one processor)", format!("{} + 2", self.cores))
        } else {
            ("c (more than one processor)", self.cores.to_string())
        };
        Explanation::new()
            .step(
                ("T", "the number of threads with the highest capacity"),
                formula,
                numbers,
                self.threads.to_string(),
                "Krishnamurthy, thesis, section 7.6",
            )
            .step(
                ("C", "their capacity"),
                "T·C₁",
                format!("{} × {}", self.threads, units::rate(self.base_per_s)),
                units::rate(self.capacity_per_s),
                "Krishnamurthy, thesis, eq. 7.1",
            )
    }
}
