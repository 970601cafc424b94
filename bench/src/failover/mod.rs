//! What callers notice when something dies, for each way to fail over, beside the formulas of the failover paper. The ways themselves,
//! their servers and their clients are [`strowger_interop::failover`]; a new one is a file and a line in
//! [`METHODS`](strowger_interop::failover::METHODS).
//!
//! [`results`] keeps what was measured, [`estimate`] says what formulas expect of it, [`table`] shows both.

pub mod estimate;
pub mod results;
pub mod table;
