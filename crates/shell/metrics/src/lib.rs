//! Metrics of the server in the formats of Prometheus and OpenMetrics.
//!
//! [`COUNTERS`] lists the counters of `strowger ctl status` with their metrics and meanings; a test compares it with
//! what a server reports and with `docs/operating/counters.md`. [`Scrape`] is what a scrape reads, [`Scrape::encode`]
//! its text. Labels come from the configuration (trunks, balancers, targets, members) or from fixed lists (methods,
//! parts of a packet's time), never from users or callers.

mod counters;
mod encoder;
mod families;
mod format;
mod process;
mod scrape;

pub use counters::{COUNTERS, Counter, Kind};
pub use families::{BOUNDS_NS, HttpConnections, MAX_TARGETS};
pub use format::Format;
pub use process::Process;
pub use scrape::Scrape;
