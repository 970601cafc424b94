//! The metric families, a file for each subject.

mod cluster;
mod server;
mod store;
mod targets;
mod times;

use std::fmt;

use crate::encoder::{Encoder, Family};
use crate::process::Process;

pub(crate) use cluster::write as cluster;
pub use server::HttpConnections;
pub(crate) use server::write as server;
pub(crate) use store::write as store;
pub use targets::MAX_TARGETS;
pub(crate) use targets::write as targets;
pub use times::BOUNDS_NS;
pub(crate) use times::{setup, setups, write as times};

/// Writes the families that each process has.
pub(crate) fn process(to: &mut Encoder<'_>, process: &Process) -> fmt::Result {
    to.fractional_counter(&Family::seconds("process_cpu", "CPU time of the process."), process.cpu_s)?;
    to.gauge(
        &Family::seconds("process_start_time", "Start of the process, in seconds since 1970."),
        process.started_s,
    )?;
    let gauges = [
        (Family::bytes("process_resident_memory", "Memory in use."), process.resident_bytes),
        (Family::new("process_open_fds", "Open files and sockets."), process.open_files),
        (Family::new("process_max_fds", "Limit of open files and sockets."), process.max_files),
    ];
    gauges.iter().try_for_each(|(family, value)| value.map_or(Ok(()), |value| to.gauge(family, value)))
}
