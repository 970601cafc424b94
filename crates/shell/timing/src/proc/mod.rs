//! What /proc tells about a server without eBPF: the length of its sockets' queues, drops by cause, processor time, and
//! how long its threads waited for a processor.
//!
//! Nothing here sees single packets. The mean time in the queue is an estimate by Little's law.

mod host;
mod queue;
mod table;
mod usage;

pub use host::{Host, LocalSocket, Program, TargetError};
pub use queue::QueueSampler;
pub use usage::{ThreadUse, UsageSampler};
