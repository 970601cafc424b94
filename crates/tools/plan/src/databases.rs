//! D databases, replicated or partitioned.

use serde::Serialize;

use crate::error::{PlanError, count, not_negative, positive};
use crate::explain::{Explain, Explanation};
use crate::units;

/// Load on each of D databases: seconds of work per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Databases {
    /// D: number of databases.
    pub databases: u32,
    /// N: writes/s.
    pub writes_per_s: f64,
    /// r: reads per write.
    pub reads_per_write: f64,
    /// T: duration of a write, s.
    pub write_s: f64,
    /// t: duration of a read relative to a write.
    pub read_over_write: f64,
    /// ((t·r/D) + 1)·T·N: load on each replica. A write goes to all databases, a read to one.
    pub replicated: f64,
    /// ((t·r + 1)/D)·T·N: load on each partition. Reads and writes are divided among the databases.
    pub partitioned: f64,
    /// Write rate that saturates the replicas, writes/s.
    pub replicated_limit_per_s: f64,
    /// Write rate that saturates the partitions, writes/s.
    pub partitioned_limit_per_s: f64,
}

/// Compares replicas and partitions (failover paper, sections 4.1 and 4.2).
///
/// # Errors
/// No database, a negative rate or ratio, a write duration that is not above 0.
pub fn databases(
    databases: u32,
    writes_per_s: f64,
    reads_per_write: f64,
    write_s: f64,
    read_over_write: f64,
) -> Result<Databases, PlanError> {
    let copies = f64::from(count("databases", databases, 1 << 20)?);
    let writes_per_s = not_negative("writes", writes_per_s)?;
    let reads_per_write = not_negative("reads for each write", reads_per_write)?;
    let write_s = positive("time of a write", write_s)?;
    let read_over_write = not_negative("time of a read over a write's", read_over_write)?;
    let reads = reads_per_write * read_over_write;
    let (replicated, partitioned) = ((reads / copies + 1.0) * write_s, (reads + 1.0) / copies * write_s);
    Ok(Databases {
        databases,
        writes_per_s,
        reads_per_write,
        write_s,
        read_over_write,
        replicated: replicated * writes_per_s,
        partitioned: partitioned * writes_per_s,
        replicated_limit_per_s: 1.0 / replicated,
        partitioned_limit_per_s: 1.0 / partitioned,
    })
}

impl Explain for Databases {
    fn explain(&self) -> Explanation {
        let (t, r) = (units::number(self.read_over_write), units::number(self.reads_per_write));
        let work = format!("{} × {}", units::time(self.write_s), units::rate(self.writes_per_s));
        Explanation::new()
            .step(
                ("replicas", "the utilization of each"),
                "((t·r/D) + 1)·T·N",
                format!("(({t} × {r} / {}) + 1) × {work}", self.databases),
                units::share(self.replicated),
                "Singh and Schulzrinne, failover paper, section 4.1",
            )
            .step(
                ("partitions", "the utilization of each"),
                "((t·r + 1)/D)·T·N",
                format!("(({t} × {r} + 1) / {}) × {work}", self.databases),
                units::share(self.partitioned),
                "Singh and Schulzrinne, failover paper, section 4.2",
            )
    }
}
