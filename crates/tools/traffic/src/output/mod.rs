//! What a run shows: live lines, and from its report tables for programs, a page for people, and comparisons of two runs.
//!
//! [`Parts::extend`] adds to the JSON what belongs to a phase's course; everything else here is made of that JSON alone
//! ([`Run`]), so that a page can be drawn, and two runs compared, long after.

mod charts;
mod compare;
mod csv;
mod data;
mod html;
mod live;
pub(crate) mod page;
mod parts;
pub(crate) mod plot;
mod sweep;
mod tables;
mod versus;
pub(crate) mod words;

pub use compare::{Better, Comparison, Row, compare};
pub use csv::{histograms, intervals};
pub use data::{
    AnswerRow, Callee, Calls, Confidence, Counts, Difference, Distribution, Generator, IntervalRow, Intervals, Latency,
    Machine, MetricRow, Record, Recovery, RecoveryTime, Run, RunError, ScriptRow, Server, ServerRow, Transactions,
};
pub use html::page;
pub use live::Live;
pub use parts::Parts;
pub use sweep::sweep_page;
pub use versus::page_of_two;
pub(crate) use words::{percent, percent_of};
