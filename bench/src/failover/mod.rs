//! What callers notice when a component fails, for each failover method, beside the formulas of the failover paper.
//! The methods, their servers and their clients are in [`strowger_interop::failover`]; a new method needs a file and
//! a line in [`METHODS`](strowger_interop::failover::METHODS).
//!
//! [`results`] saves the results, [`estimate`] computes the formulas, [`table`] presents both.

pub mod estimate;
pub mod results;
pub mod table;
